//! chkfs2 after sessions that ended well and badly. Needs e2fsprogs, no root.

mod damage;
mod e2fsck;

use std::path::{Path, PathBuf};

use fs2_block::{BlockNo, BlockRange};
use fs2_engine::{EngineConfig, Part, Standing};
use fs2_ext2::{Layout, TableFile};

use crate::mkfs2_support::*;

/// A converted image with copies of a file's blocks, left in order.
fn used(dir: &Path) -> (PathBuf, Vec<BlockRange>, Vec<fs2_table::Replica>) {
    let path = image(dir, "v", "-b 1024", "24M");
    ok(dir, MKFS2, &["v"]);
    let files = data_blocks(&path);
    let mut session = Session::start(&path, None);
    let replicas = session.copy(&files);
    assert!(replicas.len() > 200, "{} copies", replicas.len());
    assert!(session.end().marked);
    (path, files, replicas)
}

/// The image with the bytes of the table's file at `offset` changed.
fn changed(path: &Path, offset: u64, len: u64, change: fn(&mut u8)) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    let layout = Layout::read(&mut bytes).unwrap();
    let file = TableFile::find(&layout, &mut bytes).unwrap().unwrap();
    for e in file.extent_of(offset, len) {
        bytes[e.offset() as usize..e.end() as usize].iter_mut().for_each(change);
    }
    bytes
}

/// All but two header slots and a page of checksums for each: where the mark is.
fn but_for_the_mark(path: &Path) -> Vec<u8> {
    changed(path, 0, 4 * fs2_table::PAGE_BYTES as u64, |b| *b = 0)
}

fn active(path: &Path) -> (usize, usize) {
    let session = Session::start(path, None);
    assert!(session.is_active(), "{:?}", session.volume.standing());
    (session.report.verified, session.report.unverified)
}

#[test]
fn nothing_to_do_after_a_clean_end() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let (before, rest) = (hash(&path), but_for_the_mark(&path));
    for option in ["-n", "-p", "-y"] {
        let said = ok(dir, CHKFS2, &[option, "v"]);
        assert!(said.out.contains(&format!("clean: {} replicas", replicas.len())), "{said:?}");
        assert!(but_for_the_mark(&path) == rest, "{option}");
        assert!(hash(&path) == before || option != "-n");
    }
    assert_eq!(active(&path), (replicas.len(), 0));
    // -f checks all the same, and all that was verified is so again.
    let said = ok(dir, CHKFS2, &["-f", "-p", "--json", "v"]).json();
    assert_eq!(said["replicas_verified"], replicas.len());
    assert_eq!(said["findings"], serde_json::json!([]));
    assert_eq!(active(&path), (replicas.len(), 0));
    e2fsck_clean(dir, "v");
}

#[test]
fn active_again_after_an_unclean_end() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, files, replicas) = used(dir);
    let (a, b) = (replicas[0].original, replicas[1].original);
    let mut session = Session::start(&path, None);
    assert!(session.is_active());
    session.write(a, 0xA5);
    session.write(b, 0x5A);
    session.kill();
    let session = Session::start(&path, None);
    assert!(matches!(session.volume.standing(), Standing::Inactive(_)));
    session.kill();

    // Looking changes nothing and says what is wrong.
    let before = hash(&path);
    let said = run(dir, CHKFS2, &["-n", "v"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.out.contains("did not end cleanly"), "{said:?}");
    assert!(said.out.contains("dropped: the original has changed"), "{said:?}");
    assert_eq!(hash(&path), before);
    // Nor does asking where there is no terminal: e2fsck refuses that.
    assert_eq!(run(dir, CHKFS2, &["v"]).code, 8);
    assert_eq!(hash(&path), before);

    let said = run(dir, CHKFS2, &["-p", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(active(&path), (replicas.len() - 2, 0));
    e2fsck_clean(dir, "v");
    assert_eq!(run(dir, CHKFS2, &["-p", "v"]).code, 0);

    // Counterexample 3: the flags of the session before are not believed.
    let mut session = Session::start(&path, None);
    let size = session.volume.block_size().bytes() as usize;
    assert_eq!(session.read(BlockRange::one(a)), vec![0xA5; size]);
    assert_eq!(session.read(BlockRange::one(b)), vec![0x5A; size]);
    let bytes = std::fs::read(&path).unwrap();
    for range in &files {
        let want = {
            let e = range.extent(session.volume.block_size());
            bytes[e.offset() as usize..e.end() as usize].to_vec()
        };
        let got: Vec<u8> = range.iter().flat_map(|block| session.read(BlockRange::one(block))).collect();
        assert!(got == want, "{range}");
    }
}

#[test]
fn a_dirty_volume_is_checked_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let mut session = Session::start(&path, None);
    let mut superblock = std::fs::read(&path).unwrap()[1024..2048].to_vec();
    superblock[58] &= !1;
    session.write_bytes(1024, &superblock);
    session.kill();
    let said = run(dir, CHKFS2, &["-p", "--json", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(active(&path), (replicas.len(), 0));
}

#[test]
fn quick_leaves_everything_unverified() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, files, replicas) = used(dir);
    let mut session = Session::start(&path, None);
    session.write(replicas[0].original, 1);
    session.kill();
    assert_eq!(run(dir, CHKFS2, &["-p", "--quick", "v"]).code, 1);
    // The stale entry is among them: it is found when its original is read.
    assert_eq!(active(&path), (0, replicas.len()));
    let mut session = Session::start(&path, None);
    session.read(files[0]);
    session.idle();
    assert_eq!(session.volume.table().unverified_count(), 0);
    assert!(session.end().marked);
}

#[test]
fn what_the_bitmaps_contradict_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    // Elsewhere: the file is deleted, and another written over some of its copies.
    ok(dir, "debugfs", &["-w", "-R", "rm large", "v"]);
    let taken = replicas[0].replica;
    ok(dir, "debugfs", &["-w", "-R", &format!("setb {taken} 1"), "v"]);
    let said = run(dir, CHKFS2, &["-n", "v"]);
    assert!(said.code & 4 != 0, "{said:?}");
    let said = run(dir, CHKFS2, &["-y", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("dropped: the original's block is free"), "{said:?}");
    assert_eq!(active(&path), (0, 0));
    e2fsck_clean(dir, "v");
}

/// The superblock and the descriptors are the mark's, one bitmap is not: a session comes to that when it reads it, and a check that said
/// that all is verified was wrong.
#[test]
fn a_bitmap_that_the_mark_does_not_know_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    assert_eq!(run(dir, CHKFS2, &["-n", "v"]).code, 0);
    let mut bytes = std::fs::read(&path).unwrap();
    let layout = Layout::read(&mut bytes).unwrap();
    let group = layout.group_of(replicas[0].original);
    let (at, blocks) = (layout.bitmap_block(group).0 as usize * 1024, layout.group_blocks(group));
    // One block is taken and another given back: the counts stay.
    let free = (0..blocks.len() as usize).rfind(|i| bytes[at + i / 8] & 1 << (i % 8) == 0).unwrap();
    for i in [free, (replicas[0].original.0 - blocks.start()) as usize] {
        bytes[at + i / 8] ^= 1 << (i % 8);
    }
    std::fs::write(&path, &bytes).unwrap();
    let before = hash(&path);
    let said = run(dir, CHKFS2, &["-n", "v"]);
    assert!(said.code & 4 != 0 && !said.out.contains("clean: "), "{said:?}");
    assert_eq!(hash(&path), before);
    // As a machine starts nothing is read that is clean by the mark.
    let said = run(dir, CHKFS2, &["-p", "v"]);
    assert!(said.code == 0 && said.out.contains("verified by the mark"), "{said:?}");
    let said = run(dir, CHKFS2, &["-y", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    let told =
        format!("the volume was changed outside FS2; what differs: the blocks in use of group {group}");
    assert!(said.out.contains(&told), "{said:?}");
    assert_eq!(active(&path), (replicas.len(), 0));
    e2fsck_clean(dir, "v");
}

/// What was read of no file, in a group whose bitmap nobody had seen, may have a copy at a session's end. The next session
/// drops it when it sees the bitmap; a check finds nothing wrong.
#[test]
fn what_a_session_could_not_know_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    ok(dir, MKFS2, &["v"]);
    let mut bytes = std::fs::read(&path).unwrap();
    let layout = Layout::read(&mut bytes).unwrap();
    let last = layout.group_count() - 1;
    let bitmap = layout.read_bitmap(&mut bytes, last).unwrap();
    let free = fs2_ext2::FreeMap::new(&layout, last, &bitmap).unwrap().free_runs().pop().unwrap();
    // In a short pause: in a longer one it is looked at.
    let without = [Part::Batches].into_iter().collect();
    let config = EngineConfig { degree: 1, without, ..EngineConfig::default() };
    let mut session = Session::with(&path, None, config);
    for range in data_blocks(&path) {
        pieces(range, 8).into_iter().for_each(|piece| drop(session.read(piece)));
    }
    let of_no_file = BlockRange::at(free.first(), 8);
    session.read(of_no_file);
    session.rest(20);
    let copied = session.volume.table().originals_in(of_no_file).len();
    assert_eq!(copied, 8, "the bitmap was not looked at: {} in all", session.volume.table().len());
    assert!(session.end().marked);
    let said = ok(dir, CHKFS2, &["-f", "-n", "v"]);
    assert!(said.out.contains("clean"), "{said:?}");
    let mut session = Session::start(&path, None);
    assert_eq!(session.volume.table().originals_in(of_no_file).len(), 8);
    session.idle();
    assert_eq!(session.volume.table().originals_in(of_no_file), []);
    assert!(session.end().marked);
    e2fsck_clean(dir, "v");
}

/// A replica that is no copy, under a mark: whoever only looks leaves it to be read, and is told so.
#[test]
fn what_a_standing_mark_vouches_for_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[replicas[0].replica.0 as usize * 1024] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let said = run(dir, CHKFS2, &["-n", "-f", "v"]);
    assert!(said.code == 4 && said.out.contains("1 entry dropped: the replica is no copy"), "{said:?}");
    assert!(said.out.contains("NOT corrected, its mark stands"), "{said:?}");
    assert_eq!(active(&path), (replicas.len(), 0));
    assert_eq!(run(dir, CHKFS2, &["-f", "-p", "v"]).code, 1);
    assert_eq!(active(&path), (replicas.len() - 1, 0));
}

#[test]
fn scrubbed_replicas_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let files = used_blocks_of_files(&path);
    let said = run(dir, CHKFS2, &["-p", "--scrub", "--json", "v"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.json()["scrubbed_blocks"], replicas.len());
    let bytes = std::fs::read(&path).unwrap();
    for r in &replicas {
        let at = r.replica.0 as usize * 1024;
        assert!(bytes[at..at + 1024].iter().all(|&b| b == 0), "{r:?}");
    }
    assert_eq!(used_blocks_of_files(&path), files);
    assert_eq!(active(&path), (0, 0));
    e2fsck_clean(dir, "v");
}

/// Used blocks without the table's.
fn used_blocks_of_files(path: &Path) -> std::collections::BTreeMap<u32, u64> {
    let mut bytes = std::fs::read(path).unwrap();
    let layout = Layout::read(&mut bytes).unwrap();
    let file = TableFile::find(&layout, &mut bytes).unwrap().unwrap();
    used_blocks(path).into_iter().filter(|(b, _)| !file.owns(BlockRange::one(BlockNo(*b)))).collect()
}

#[test]
fn a_table_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    let table = dir.join("t");
    ok(dir, MKFS2, &["--table", "t", "v"]);
    let files = data_blocks(&path);
    let mut session = Session::start(&path, Some(&table));
    let replicas = session.copy(&files);
    session.kill();
    let said = run(dir, CHKFS2, &["-p", "--json", "--table", "t", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    let session = Session::start(&path, Some(&table));
    assert!(session.is_active());
    // What the killed session had not written is not there; what is there was verified.
    assert_eq!(session.report.unverified, 0);
    assert!(session.report.verified > 0 && session.report.verified <= replicas.len());
    session.kill();
    // Without its table the volume is a plain one.
    let said = run(dir, CHKFS2, &["-p", "v"]);
    assert!(said.code == 4 && said.err.contains("no replica table"), "{said:?}");
    // With another volume's it is refused.
    let other = image(dir, "other", "-b 1024", "24M");
    ok(dir, "tune2fs", &["-U", "89abcdef-4567-89ab-cdef-0123456789ab", "other"]);
    let before = (hash(&table), hash(&other));
    let said = run(dir, CHKFS2, &["-n", "--table", "t", "other"]);
    assert!(said.code == 8 && said.err.contains("of another volume"), "{said:?}");
    assert!(said.err.contains("then: mkfs2 --table t other"), "{said:?}");
    let refused = Session::attach(&other, Some(&table), Default::default()).err().expect("its mark would go");
    assert!(refused.to_string().contains("is of another volume (UUID "), "{refused}");
    assert_eq!((hash(&table), hash(&other)), before);
    // Also with that of one whose blocks have another size: undo deleted it.
    let larger = image(dir, "larger", "-b 4096", "24M");
    ok(dir, "tune2fs", &["-U", "89abcdef-4567-89ab-cdef-0123456789ab", "larger"]);
    let before = (hash(&table), hash(&larger));
    for (program, code, options) in [(CHKFS2, 8, &["-n"]), (CHKFS2, 8, &["-fp"]), (MKFS2, 1, &["--undo"])] {
        let said = run(dir, program, &[options, &["--table", "t", "larger"][..]].concat());
        assert!(said.code == code && said.err.contains("of another volume"), "{said:?}");
    }
    assert_eq!((hash(&table), hash(&larger)), before);
    // Who is told what to do is told of the table.
    let mut session = Session::start(&path, Some(&table));
    session.copy(&files);
    session.kill();
    let said = run(dir, CHKFS2, &["-n", "--table", "t", "v"]);
    assert!(said.code == 4 && said.out.contains("to correct it: chkfs2 -f -p --table t v"), "{said:?}");
}

#[test]
fn a_moved_table_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    ok(dir, "resize2fs", &["v", "40M"]);
    let said = run(dir, CHKFS2, &["-p", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(active(&path), (replicas.len(), 0));
}

/// Before the table's pages lie two of checksums for each 1,024 groups: where there were more or fewer groups than before, none was found, every
/// copy was forgotten, and what undo left of them stayed.
#[test]
fn copies_outlive_more_groups_than_the_table_was_made_for() {
    for table in [None, Some("t")] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let with = |options: &[&'static str]| -> Vec<&'static str> {
            let apart = table.map_or(Vec::new(), |t| vec!["--table", t]);
            [options, &apart, &["v"]].concat()
        };
        let path = image(dir, "v", "-b 1024 -g 256 -N 9000 -O ^resize_inode", "250M");
        let made = ok(dir, MKFS2, &with(&["--space", "0.4%", "--json"])).json();
        if let Some(table) = table {
            // What lies behind is not the table's.
            std::fs::File::options().write(true).open(dir.join(table)).unwrap().set_len(1 << 20).unwrap();
        }
        let files = data_blocks(&path);
        let apart = table.map(|t| dir.join(t));
        let mut session = Session::start(&path, apart.as_deref());
        let mut left = session.copy(&files).len();
        assert!(left > 200 && session.end().marked, "{left} copies");
        for to in ["270M", "240M"] {
            ok(dir, "e2fsck", &["-f", "-p", "v"]);
            ok(dir, "resize2fs", &["v", to]);
            let said = run(dir, CHKFS2, &with(&["-n"]));
            assert!(said.code == 4 && said.out.contains("its pages move"), "{said:?}");
            // Blocks that resize2fs moved away from more descriptors are not where their copies' originals were.
            let said = run(dir, CHKFS2, &with(&["-f", "-p", "--json"]));
            let kept = said.json()["replicas_verified"].as_u64().unwrap() as usize;
            assert!(said.code == 1 && kept <= left && kept > left / 10 * 9, "{kept} of {left}: {said:?}");
            let session = Session::start(&path, apart.as_deref());
            assert!(session.is_active(), "{:?}", session.volume.standing());
            assert_eq!((session.report.verified, session.report.unverified), (kept, 0));
            assert!(session.end().marked);
            left = kept;
        }
        // Grown once more, and undone without a check between.
        ok(dir, "e2fsck", &["-f", "-p", "v"]);
        ok(dir, "resize2fs", &["v", "270M"]);
        let said = ok(dir, MKFS2, &with(&["--undo", "--json"])).json();
        assert_eq!(said["scrubbed_blocks"].as_u64(), Some(left as u64), "{said}");
        assert_eq!(said["table_bytes"], made["table_bytes"]);
        e2fsck_clean(dir, "v");
    }
}

/// An empty one has no page that tells where it lies: apart, it could not be checked any more.
#[test]
fn an_empty_table_is_one_for_more_groups_too() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024 -g 256 -N 9000 -O ^resize_inode", "250M");
    ok(dir, MKFS2, &["--space", "0.4%", "--table", "t", "v"]);
    ok(dir, "e2fsck", &["-f", "-p", "v"]);
    ok(dir, "resize2fs", &["v", "270M"]);
    let said = run(dir, CHKFS2, &["-f", "-p", "--table", "t", "v"]);
    assert!(said.code == 1 && said.out.contains("its pages move"), "{said:?}");
    let session = Session::start(&path, Some(&dir.join("t")));
    assert!(session.is_active(), "{:?}", session.volume.standing());
}

#[test]
fn the_daemons_record_is_heeded_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    // What a daemon of this boot leaves at a clean end; then somebody writes the file.
    let stamp = {
        let options = fs2_store::OpenOptions { lock: fs2_store::Lock::None, ..Default::default() };
        let store = fs2_store::FileStore::open(&path, options).unwrap();
        fs2_store::Store::stamp(&store).unwrap().to_line()
    };
    let key = fs2d::runtime::key_of(&path).unwrap();
    let record = dir.join("run").join(format!("{key}.stamp"));
    std::fs::create_dir(dir.join("run")).unwrap();
    std::fs::write(&record, &stamp).unwrap();
    assert_eq!(run(dir, CHKFS2, &["-p", "v"]).code, 0);
    assert!(record.exists(), "nothing was written");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = replicas[0].replica.0 as usize * 1024;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let said = run(dir, CHKFS2, &["-p", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("1 entry dropped: the replica is no copy"), "{said:?}");
    // e2fsck -f, which had to run then, changes the superblock itself.
    assert!(
        said.out.contains(
            "the volume was written (or renamed, linked, or its mode or times changed), or taken away and"
        ),
        "{said:?}"
    );
    assert!(!said.out.contains("superblock"), "{said:?}");
    assert_ne!(std::fs::read_to_string(&record).unwrap(), stamp, "what is written from here on is noticed");
    assert_eq!(run(dir, CHKFS2, &["-p", "v"]).code, 0);
    assert_eq!(active(&path), (replicas.len() - 1, 0));
}

#[test]
fn bad_input_is_refused_and_nothing_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    image(dir, "plain", "-b 1024", "24M");
    std::fs::write(dir.join("zero"), vec![0; 1 << 20]).unwrap();
    ok(dir, "mke2fs", &["-q", "-F", "-t", "ext4", "ext4", "24M"]);
    ok(dir, "debugfs", &["-w", "-R", "ssv state 0", "ext4"]);
    for (name, code, word) in [
        ("plain", 4, "no replica table"),
        ("zero", 8, "not an ext2 volume"),
        ("ext4", 8, "unsupported: has_journal"),
    ] {
        let before = hash(&dir.join(name));
        let said = run(dir, CHKFS2, &["-p", name]);
        assert_eq!(said.code & !1, code, "{said:?}");
        assert!(said.err.contains(word) && said.err.contains(name), "{said:?}");
        if name != "plain" {
            assert_eq!(hash(&dir.join(name)), before, "{name}");
        }
    }
    assert_eq!(run(dir, CHKFS2, &["-p", "nowhere"]).code, 8);
    for args in
        [&["-n", "-p", "zero"][..], &["-p", "-y", "zero"], &["-n", "--scrub", "zero"], &[], &["-Z", "zero"]]
    {
        assert_eq!(run(dir, CHKFS2, args).code, 16, "{args:?}");
    }
    assert!(ok(dir, CHKFS2, &["--help"]).out.contains("Examples:"));
}

#[test]
fn commands_that_are_shown_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (name, table) = ("it's my; volume", "its $table");
    // The programs of this build come first, as the shell finds them.
    let bin = Path::new(MKFS2).parent().unwrap().display();
    let paste = |said: &str, at: &str| {
        let command = &said[said.find(at).unwrap_or_else(|| panic!("{at}: {said}"))..];
        let line = format!("PATH={bin}:$PATH; {}", command.split(['\n', '(']).next().unwrap());
        run(dir, "sh", &["-c", &line])
    };
    std::fs::write(dir.join(name), vec![0; 8 << 20]).unwrap();
    let said = run(dir, MKFS2, &[name]);
    let made = paste(&said.err, "mke2fs -t ext2 ");
    assert_eq!(made.code, 0, "{said:?}: {made:?}");
    ok(dir, MKFS2, &["--table", table, name]);
    let said = run(dir, MKFS2, &["--table", table, name]);
    let undone = paste(&said.err, "mkfs2 --undo ");
    assert_eq!(undone.code, 0, "{said:?}: {undone:?}");
    let made = ok(dir, MKFS2, &["--table", table, name]);
    assert!(made.out.contains(r"fs2 mount --table 'its $table' 'it'\''s my; volume' DIR"), "{made:?}");
    let said = run(dir, CHKFS2, &["--table", table, name]);
    let checked = paste(&said.err, "chkfs2 -p ").code;
    assert_eq!(checked, 0, "{said:?}");
}

#[test]
fn what_is_not_there_is_told_of_before_what_to_answer() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["nosuch"][..], &["-p", "nosuch"], &["--table", "nosuch", "v"]] {
        let said = run(dir.path(), CHKFS2, args);
        assert_eq!((said.code, said.out.as_str()), (8, ""), "{args:?}");
        assert_eq!(said.err, "chkfs2: nosuch does not exist; check the path\n", "{args:?}");
    }
}
