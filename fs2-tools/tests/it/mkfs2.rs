//! mkfs2, judged by e2fsck, dumpe2fs and the engine. Needs e2fsprogs, no root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::mkfs2_support::*;

const SHAPES: [(&str, &str); 6] = [
    ("-b 1024 -I 128", "24M"),
    ("-b 1024 -I 256", "24M"),
    ("-b 2048 -I 128", "40M"),
    ("-b 2048 -I 256", "40M"),
    ("-b 4096 -I 128", "160M"),
    ("-b 4096 -I 256", "160M"),
];

#[test]
fn made_and_undone_at_once() {
    for (options, size) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let path = image(dir, "v", options, size);
        let (before, blocks) = (dump(dir, "v"), used_blocks(&path));
        let said = ok(dir, MKFS2, &["v"]);
        assert!(said.out.contains("is an FS2 volume now") && said.out.contains("inode 5"), "{said:?}");
        e2fsck_clean(dir, "v");
        let session = Session::start(&path, None);
        assert!(session.is_active(), "{options}: {:?}", session.volume.standing());
        assert_eq!(session.report.verified + session.report.unverified, 0);
        assert!(session.end().marked);
        assert_ne!(dump(dir, "v"), before, "the comparison below would see a difference");
        let said = ok(dir, MKFS2, &["--undo", "v"]);
        assert!(said.out.contains("plain ext2 volume again"), "{said:?}");
        assert_eq!(dump(dir, "v"), before, "{options}");
        let after = used_blocks(&path);
        let differ: Vec<u32> = blocks.keys().filter(|b| blocks.get(b) != after.get(b)).copied().collect();
        assert_eq!(differ, [] as [u32; 0], "{options}");
        assert_eq!(after.len(), blocks.len());
    }
}

#[test]
fn undone_after_use_as_if_it_had_never_been() {
    for (options, size) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let plain = image(dir, "plain", options, size);
        let fs2 = dir.join("fs2");
        std::fs::copy(&plain, &fs2).unwrap();
        ok(dir, MKFS2, &["--quiet", "fs2"]);
        let files = data_blocks(&fs2);
        // The same history: reads, and two blocks overwritten that have copies on FS2.
        let mut written = None;
        let mut history = |path: &Path| {
            let mut session = Session::start(path, None);
            let replicas = session.copy(&files);
            let both = *written.get_or_insert_with(|| {
                [replicas.first(), replicas.last()].map(|r| r.expect("something was copied").original)
            });
            session.write(both[0], 0xA5);
            session.write(both[1], 0x5A);
            let left = session.volume.table().len();
            assert_eq!(session.end().marked, session_is_fs2(path));
            (replicas, left, both)
        };
        let (replicas, left, both) = history(&fs2);
        let (none, ..) = history(&plain);
        assert!(none.is_empty());
        assert!(left > 10 && left < replicas.len(), "{options}: {left} of {} copies", replicas.len());
        let said = ok(dir, MKFS2, &["--undo", "--json", "fs2"]).json();
        assert_eq!(said["scrubbed_blocks"], left, "{options}");
        assert_eq!(dump(dir, "fs2"), dump(dir, "plain"), "{options}");
        assert_eq!(used_blocks(&fs2), used_blocks(&plain), "{options}");
        e2fsck_clean(dir, "fs2");
        // Nothing of the files is left in free space: what the table still named reads as zero.
        let mut bytes = std::fs::read(&fs2).unwrap();
        let size = fs2_ext2::Layout::read(&mut bytes).unwrap().block_size().bytes() as usize;
        for r in replicas.iter().filter(|r| !both.contains(&r.original)) {
            let at = r.replica.0 as usize * size;
            assert!(bytes[at..at + size].iter().all(|&b| b == 0), "{options}: {r:?} is left");
        }
    }
}

fn session_is_fs2(path: &Path) -> bool {
    path.ends_with("fs2")
}

#[test]
fn a_table_elsewhere_leaves_the_volume_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    let table = dir.join("t");
    let before = hash(&path);
    ok(dir, MKFS2, &["--table", "t", "v"]);
    assert_eq!(hash(&path), before);
    let meta = std::fs::metadata(&table).unwrap();
    assert!(meta.blocks() * 512 >= meta.len() && meta.len() > 0, "room for it may be gone later");
    let mut session = Session::start(&path, Some(&table));
    assert!(session.is_active());
    assert!(!session.copy(&data_blocks(&path)).is_empty());
    assert!(session.end().marked);
    let session = Session::start(&path, Some(&table));
    assert!(session.is_active() && session.report.verified > 0, "{:?}", session.report);
    session.end();
    let again = run(dir, MKFS2, &["--table", "t", "v"]);
    assert_eq!(again.code, 1);
    assert!(again.err.contains("holds a replica table already"), "{again:?}");
    assert!(again.err.contains("mkfs2 --undo --table t v"), "{again:?}");
    assert!(again.err.contains("if mkfs2 was interrupted: chkfs2 -f -p --table t v;"), "{again:?}");
    let undone = ok(dir, MKFS2, &["--undo", "--table", "t", "--json", "v"]).json();
    assert!(undone["scrubbed_blocks"].as_u64().unwrap() > 0);
    assert!(!table.exists());
    e2fsck_clean(dir, "v");
}

/// A volume with no room for a copy was made an FS2 volume without a word.
#[test]
fn a_full_volume_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    image(dir, "v", "-b 1024 -m 0", "64M");
    let full = |mib: u64| {
        std::fs::copy(dir.join("v"), dir.join("full")).unwrap();
        std::fs::write(dir.join("file"), vec![7; (mib << 20) as usize]).unwrap();
        ok(dir, "debugfs", &["-w", "-R", "write file file", "full"]);
        assert!(run(dir, "e2fsck", &["-fp", "full"]).code <= 1);
        let json = ok(dir, MKFS2, &["--json", "full"]).json();
        let free = json["free_blocks"].as_u64().unwrap();
        let dumped = dump(dir, "full");
        let counted = dumped.lines().find_map(|l| l.strip_prefix("Free blocks:")).unwrap();
        assert_eq!(counted.trim(), free.to_string());
        ok(dir, MKFS2, &["--undo", "full"]);
        assert_eq!(ok(dir, MKFS2, &["--quiet", "full"]).out, "");
        ok(dir, MKFS2, &["--undo", "full"]);
        let said = ok(dir, MKFS2, &["full"]);
        let room = said.out.lines().find(|l| l.starts_with("room:")).map(str::to_owned);
        (free, json["replicas_now"].as_u64().unwrap(), json["replicas_max"].as_u64().unwrap(), room)
    };
    let (_, now, max, room) = full(1);
    assert_eq!((now, room), (max, None));
    let (free, now, max, room) = full(50);
    let room = room.unwrap();
    assert!(0 < now && now < max, "{now} of {max}");
    assert!(
        room.contains(&format!("{free} of ")) && room.contains(&format!("{now} of these may hold replicas")),
        "{room}"
    );
    let (free, now, _, room) = full(57);
    let room = room.unwrap();
    assert!(now == 0 && room.contains(&format!("{free} of ")), "{room}");
    assert!(
        room.contains(
            "none holds a replica until more than 10 % are free at a mount, or 15 % while it is mounted (fs2 mount --watermarks)"
        ),
        "{room}"
    );
}

#[test]
fn the_table_is_as_large_as_space_asks() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "64M");
    let blocks = 64 << 10;
    for (share, permille) in [("0.1%", 1), ("5%", 50), ("40%", 400)] {
        let said = ok(dir, MKFS2, &["--json", "--space", share, "v"]).json();
        let replicas = said["replicas_max"].as_u64().unwrap();
        let asked = blocks * permille / 1000;
        assert!(replicas >= asked && replicas <= asked + 2 * 248 + asked / 32, "{share}: {replicas}");
        e2fsck_clean(dir, "v");
        assert!(Session::start(&path, None).is_active());
        ok(dir, MKFS2, &["--undo", "v"]);
    }
}

/// Exit code 1, all of `words` in what it says, and nothing written.
fn refused(dir: &Path, args: &[&str], words: &[&str]) {
    let name = args.last().unwrap();
    let before = hash(&dir.join(name));
    let said = run(dir, MKFS2, args);
    assert_eq!(said.code, 1, "{args:?}: {said:?}");
    for word in words.iter().chain([name]) {
        assert!(said.err.contains(word), "{args:?} does not say {word:?}: {}", said.err);
    }
    assert_eq!(hash(&dir.join(name)), before, "{args:?} wrote");
}

#[test]
fn bad_input_is_refused_and_nothing_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let good = image(dir, "good", "-b 1024", "24M");
    let copy = |name: &str| {
        std::fs::copy(&good, dir.join(name)).unwrap();
        dir.join(name)
    };

    std::fs::write(dir.join("zero"), vec![0; 1 << 20]).unwrap();
    refused(dir, &["zero"], &["not an ext2 volume", "mke2fs -t ext2 zero"]);
    std::fs::write(dir.join("empty"), b"").unwrap();
    refused(
        dir,
        &["empty"],
        &["empty: it is empty (0 bytes), and no ext2 volume", "truncate -s SIZE empty; mke2fs -t ext2 empty"],
    );

    copy("dirty");
    ok(dir, "debugfs", &["-w", "-R", "ssv state 0", "dirty"]);
    refused(dir, &["dirty"], &["not clean", "e2fsck -p"]);
    refused(dir, &["--undo", "dirty"], &["not clean"]);
    copy("errors");
    ok(dir, "debugfs", &["-w", "-R", "ssv state 3", "errors"]);
    refused(dir, &["errors"], &["has errors", "e2fsck -f"]);

    copy("journal");
    ok(dir, "tune2fs", &["-j", "journal"]);
    refused(dir, &["journal"], &["has_journal", "tune2fs -O ^has_journal journal"]);
    ok(dir, "mke2fs", &["-q", "-F", "-t", "ext4", "ext4", "24M"]);
    refused(dir, &["ext4"], &["unsupported", "extent", "metadata_csum"]);

    let cut = copy("cut");
    std::fs::File::options().write(true).open(cut).unwrap().set_len(20 << 20).unwrap();
    refused(dir, &["cut"], &["needs 25165824 bytes but the device holds 20971520"]);

    ok(dir, "mke2fs", &["-q", "-F", "-t", "ext2", "-b", "1024", "full", "8M"]);
    let free = dump(dir, "full").lines().find_map(|l| l.strip_prefix("Free blocks:")?.trim().parse().ok());
    let free: usize = free.unwrap();
    // Sixty blocks are left, about thirty go into the file's map.
    std::fs::write(dir.join("fill"), vec![1; (free - 90) * 1024]).unwrap();
    ok(dir, "debugfs", &["-w", "-R", "write fill fill", "full"]);
    assert!(run(dir, "e2fsck", &["-fp", "full"]).code <= 1);
    refused(dir, &["--space", "100%", "full"], &["the replica table needs", "free", "--table"]);

    copy("wrong");
    ok(dir, "debugfs", &["-w", "-R", "set_bg 1 free_blocks_count 17", "wrong"]);
    refused(dir, &["wrong"], &["block bitmap of group 1", "its descriptor says 17", "e2fsck -f"]);

    refused(dir, &["--undo", "good"], &["no replica table"]);
    copy("twice");
    ok(dir, MKFS2, &["twice"]);
    refused(dir, &["twice"], &["already has a replica table", "chkfs2 -f -p twice", "mkfs2 --undo twice"]);
    refused(dir, &["--table", "t", "twice"], &["already has a replica table"]);
    assert!(!dir.join("t").exists(), "a file made for a table that was refused is left");
    std::fs::write(dir.join("t"), b"").unwrap();
    refused(dir, &["--table", "t", "twice"], &["already has a replica table"]);
    let left = std::fs::metadata(dir.join("t")).expect("an empty file of the user's is taken away");
    assert_eq!(left.len(), 0, "it was empty");
    let options = fs2_store::OpenOptions { write: true, ..Default::default() };
    let other = fs2_store::FileStore::open(dir.join("t"), options).unwrap();
    let said = run(dir, MKFS2, &["--table", "t", "good"]);
    assert!(said.code == 1 && said.err.contains("t is in use by process"), "{said:?}");
    assert_eq!(std::fs::metadata(dir.join("t")).unwrap().len(), 0, "another's file was touched");
    drop(other);

    std::fs::write(dir.join("precious"), vec![7; 1 << 20]).unwrap();
    let before = hash(&dir.join("precious"));
    refused(dir, &["--table", "precious", "good"], &["holds something else"]);
    std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
    let said = run(dir, MKFS2, &["--table", "dangling", "good"]);
    assert!(said.code == 1 && said.err.contains("dangling: a link to what is not there"), "{said:?}");
    refused(dir, &["--undo", "--table", "precious", "good"], &["cannot be used"]);
    assert_eq!(hash(&dir.join("precious")), before);
    std::fs::write(dir.join("small"), vec![0; 8192]).unwrap();
    refused(dir, &["--table", "small", "good"], &["the table needs", "has 8192"]);
    refused(dir, &["--table", "good", "good"], &["in use by"]);

    let said = run(dir, MKFS2, &["nowhere"]);
    assert!(said.code == 1 && said.err.contains("nowhere does not exist"), "{said:?}");
    let said = run(dir, MKFS2, &["--json", "zero"]);
    assert_eq!(said.code, 1);
    assert!(said.json()["error"].as_str().unwrap().contains("not an ext2 volume"));
    for args in [&["--space", "0.05%", "good"][..], &[], &["--spice", "good"]] {
        assert_eq!(run(dir, MKFS2, args).code, 2, "{args:?}");
    }
    assert!(ok(dir, MKFS2, &["--help"]).out.contains("Examples:"));
}

/// All was done, and then the program panicked: JSON has no such names.
#[test]
fn names_that_are_no_utf_8() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (volume, table) = (OsStr::from_bytes(b"caf\xe9"), OsStr::from_bytes(b"t\xe9"));
    std::fs::rename(image(dir, "v", "-b 1024", "24M"), dir.join(volume)).unwrap();
    let said = |program: &str, args: &[&str]| {
        let args = args.iter().map(|a| if *a == "TABLE" { table } else { OsStr::new(a) });
        let said = run_os(dir, program, &args.chain([OsStr::new("--json"), volume]).collect::<Vec<_>>());
        assert_eq!(said.code, 0, "{program}: {said:?}");
        let json = said.json();
        assert_eq!(json["device"], "caf\u{fffd}");
        json
    };
    assert_eq!(said(MKFS2, &["--table", "TABLE"])["table"], "t\u{fffd}");
    said(MKFS2, &["replicate", "--blocks=700-710", "--near=20000", "--table", "TABLE"]);
    said(CHKFS2, &["-p", "--table", "TABLE"]);
    said(MKFS2, &["--undo", "--table", "TABLE"]);
    assert_eq!(said(MKFS2, &[])["table"], serde_json::Value::Null);
}

#[test]
fn a_damaged_table_can_be_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    let before = dump(dir, "v");
    ok(dir, MKFS2, &["v"]);
    let mut bytes = std::fs::read(&path).unwrap();
    let layout = fs2_ext2::Layout::read(&mut bytes).unwrap();
    let file = fs2_ext2::TableFile::find(&layout, &mut bytes).unwrap().unwrap();
    let mut fill = |from: u64, len: u64| {
        for e in file.extent_of(from, len) {
            bytes[e.offset() as usize..e.end() as usize].fill(0xEE);
        }
        std::fs::write(&path, &bytes).unwrap();
    };
    fill(512, 3584);
    fill(4096, 4096);
    let torn = std::fs::read(&path).unwrap();
    // Nothing of it begins as FS2's: it may be anybody's.
    fill(0, 512);
    let foreign = hash(&path);
    refused(dir, &["--undo", "v"], &["inode 5 is in use but is not the file of a replica table", "FS2's"]);
    refused(dir, &["v"], &["inode 5 is in use but is not the file of a replica table", "mkfs2 --table"]);
    assert_eq!(hash(&path), foreign);
    std::fs::write(&path, torn).unwrap();
    let said = ok(dir, MKFS2, &["--undo", "v"]);
    assert!(said.out.contains("the table was damaged"), "{said:?}");
    assert_eq!(dump(dir, "v"), before);
    e2fsck_clean(dir, "v");
}

#[test]
fn a_tebibyte_takes_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, "mke2fs", &["-q", "-F", "-t", "ext2", "-E", "lazy_itable_init=1", "-T", "largefile4", "v", "1T"]);
    // It takes less than 4 MiB. What it had resident would say little: the kernel counts what its parent had.
    let limited = ["-c", "ulimit -d 65536; exec \"$0\" \"$@\"", MKFS2, "--json", "v"];
    let said = ok(dir, "sh", &limited).json();
    assert!(said["replicas_max"].as_u64().unwrap() >= (1 << 28) / 20);
    assert!(Session::start(&dir.join("v"), None).is_active());
}

#[test]
fn replicas_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    ok(dir, MKFS2, &["v"]);
    std::fs::write(dir.join("list"), "large\n\n/sub/file7\n").unwrap();
    let said = ok(dir, MKFS2, &["replicate", "v", "--files", "list", "--near", "20000", "--json"]).json();
    let blocks: u64 = said["copied_blocks"].as_u64().unwrap();
    // 900,000 bytes in 879 blocks, five of their map, and file7's 2317 bytes in three.
    assert_eq!((blocks, &said["places"][0]), (879 + 5 + 3, &"20000-20886".into()));
    e2fsck_clean(dir, "v");
    let mut session = Session::start(&path, None);
    assert!(session.is_active());
    assert_eq!((session.report.verified as u64, session.report.unverified), (blocks, 0));
    // A read of a stretch is served from the copy, and says the same.
    let bytes = std::fs::read(&path).unwrap();
    let range = data_blocks(&path).into_iter().max_by_key(|r| r.len()).unwrap();
    let part = fs2_block::BlockRange::new(range.start(), range.start() + 8);
    let extent = part.extent(session.volume.block_size());
    assert_eq!(session.read(part), bytes[extent.offset() as usize..extent.end() as usize]);
    assert_eq!(session.volume.stats().reads_from_replica, 1);
    session.kill();

    let one = format!("{}-{}", range.start(), range.start() + 3);
    let said = ok(dir, MKFS2, &["replicate", "v", "--blocks", &one, "--near", "15000"]);
    assert!(said.out.contains("4 blocks copied to 15000-15003"), "{said:?}");
    assert!(said.out.contains("4 replicas elsewhere dropped"), "{said:?}");
    // So many that no command line takes them.
    let (b, list) = (range.start(), dir.join("blocks"));
    std::fs::write(&list, format!("{b}-{}\n\n{}, {}\r\n", b + 1, b + 3, b + 2)).unwrap();
    let said = ok(dir, MKFS2, &["replicate", "v", "--blocks", "@blocks", "--near", "16000"]);
    assert!(said.out.contains("4 blocks copied to 16000-16003"), "{said:?}");
    let piped = format!("{MKFS2} replicate v --blocks - --near 17000 < blocks");
    let said = ok(dir, "sh", &["-c", &piped]);
    assert!(said.out.contains("4 blocks copied to 17000-17003"), "{said:?}");
    std::fs::write(&list, "1-2\n7-x\n").unwrap();
    for (args, word) in [
        (&["--blocks", "@blocks", "--near", "1"][..], "blocks: line 2: \"x\" is no block number"),
        (&["--blocks", "@noblocks", "--near", "1"], "noblocks: reading the list of blocks"),
        (&["--blocks", "99999999", "--near", "1"], "block 99999999 cannot be copied"),
        (&["--files", "nolist", "--near", "1"], "nolist: reading the list"),
        (&["--files", "list2", "--near", "1"], "/nothing: no such file"),
    ] {
        std::fs::write(dir.join("list2"), "nothing/here\n").unwrap();
        let before = hash(&path);
        let said = run(dir, MKFS2, &[&["replicate", "v"], args].concat());
        assert!(said.code == 1 && said.err.contains(word), "{said:?}");
        assert_eq!(hash(&path), before);
    }
    for args in
        [&["--near", "1"][..], &["--blocks", "1", "--files", "list", "--near", "1"], &["--blocks", "1"]]
    {
        assert_eq!(run(dir, MKFS2, &[&["replicate", "v"], args].concat()).code, 2, "{args:?}");
    }
}

/// A lost write of a bitmap: a file's block is called free and a free one used, so that the counts agree, and the superblock says clean.
/// The session copied over the file.
#[test]
fn what_was_mounted_is_checked_before_it_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    let of_file = data_blocks(&path)[0].start();
    let used = used_blocks(&path);
    let free = (of_file..of_file + 8192).find(|block| !used.contains_key(block)).unwrap();
    // What a session through the kernel leaves.
    ok(dir, "debugfs", &["-w", "-R", "ssv mnt_count 1", "v"]);
    std::fs::copy(&path, dir.join("good")).unwrap();
    for request in [format!("freeb {of_file}"), format!("setb {free}")] {
        ok(dir, "debugfs", &["-w", "-R", &request, "v"]);
    }
    ok(dir, "e2fsck", &["-n", "v"]);
    let table = dir.join("t");
    for given in ["", "--table t ", "--space 7% ", "--space 7% --table t "] {
        let next = format!("e2fsck -f v; then: mkfs2 {given}v");
        let args: Vec<&str> = given.split_whitespace().chain(["v"]).collect();
        refused(dir, &args, &["e2fsck finds errors", "bitmap differences", &next]);
        assert!(!table.exists());
    }
    let said = run(dir, MKFS2, &["--json", "v"]);
    assert!(said.code == 1 && said.json()["next"].as_str().unwrap().contains("e2fsck -f v"), "{said:?}");
    assert_eq!(run(dir, "e2fsck", &["-fy", "v"]).code, 1);
    // Checked just now, by whomever: not again.
    let told = "touch asked; exec $E2FSCK \"$@\"";
    let said = run_instead_of_e2fsck(dir, told, MKFS2, &["v"]);
    assert!(said.code == 0 && !dir.join("asked").exists(), "{said:?}");
    ok(dir, MKFS2, &["--undo", "v"]);

    // Mounted meanwhile; ended by a signal.
    let mounts = "$E2FSCK \"$@\"; code=$?; debugfs -w -R 'ssv mnt_count 2' good; exit $code";
    let said = run_instead_of_e2fsck(dir, mounts, MKFS2, &["good"]);
    assert!(said.code == 1 && said.err.contains("was mounted while it was being checked"), "{said:?}");
    let said = run_instead_of_e2fsck(dir, "kill -9 $$", MKFS2, &["good"]);
    assert!(said.code == 1 && said.err.contains("ended by a signal"), "{said:?}");
    assert!(!Session::start(&dir.join("good"), None).is_active());
    let said = run_instead_of_e2fsck(dir, told, MKFS2, &["good"]);
    assert!(said.code == 0 && dir.join("asked").exists() && said.err.is_empty(), "{said:?}");
    assert!(Session::start(&dir.join("good"), None).is_active());
    e2fsck_clean(dir, "good");
}

/// A write of a bitmap that was lost below a mount by a copy of the superblock: a file has the blocks of copies, and every bitmap, count
/// and superblock but that copy is as the mark says. Undo made zeroes of the file.
#[test]
fn undo_overwrites_no_file_that_a_bitmap_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 4096 -g 2048", "32M");
    ok(dir, MKFS2, &["v"]);
    let first = data_blocks(&path)[0].start();
    let blocks = format!("{first}-{}", first + 7);
    let said = ok(dir, MKFS2, &["replicate", "v", "--blocks", &blocks, "--near", "5000"]);
    assert!(said.out.contains("copied to 5000-5007"), "{said:?}");
    let marked = std::fs::read(&path).unwrap();

    std::fs::write(dir.join("hello"), [b'h'; 4096]).unwrap();
    ok(dir, "debugfs", &["-w", "-R", "write hello hello", "v"]);
    ok(dir, "debugfs", &["-w", "-R", "sif hello block[0] 5000", "v"]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5000 * 4096..5001 * 4096].fill(b'h');
    let layout = fs2_ext2::Layout::read(&mut marked.clone()).unwrap();
    let bitmaps = layout.groups().iter().flat_map(|g| [g.block_bitmap, g.inode_bitmap]);
    let lost = bitmaps.map(|block| block.extent(layout.block_size()));
    for e in lost.chain([layout.superblock_extent(), layout.descriptors_extent()]) {
        let range = e.offset() as usize..e.end() as usize;
        bytes[range.clone()].copy_from_slice(&marked[range]);
    }
    std::fs::write(&path, &bytes).unwrap();
    let by_copy = |dir: &Path| {
        let copy = layout.copy_extent(1).offset() as usize;
        let mut bytes = bytes.clone();
        bytes[copy + 52] += 1;
        bytes[copy + 58] &= !1;
        std::fs::write(dir.join("v"), bytes).unwrap();
    };
    by_copy(dir);
    assert_eq!(run(dir, "e2fsck", &["-p", "v"]).code, 0, "nothing tells it");
    let words = ["e2fsck finds errors", "e2fsck -f v; then: mkfs2 --undo v"];
    refused(dir, &["--undo", "v"], &words);
    assert!(run(dir, "e2fsck", &["-fy", "v"]).code <= 1);
    let said = ok(dir, MKFS2, &["--undo", "v"]);
    assert!(said.out.contains("7 replicas\nleft alone:  1 replicas"), "{said:?}");
    let hello = |dir: &Path| ok(dir, "debugfs", &["-R", "cat hello", "v"]).out;
    assert_eq!(hello(dir), "h".repeat(4096));
    e2fsck_clean(dir, "v");

    // The daemon's record alone tells that somebody wrote.
    std::fs::create_dir(dir.join("run")).unwrap();
    std::fs::write(&path, &marked).unwrap();
    ok(dir, CHKFS2, &["-f", "-p", "v"]);
    ok(dir, MKFS2, &["replicate", "v", "--blocks", &blocks, "--near", "5100"]);
    let asked = "touch asked; exec $E2FSCK \"$@\"";
    std::fs::copy(&path, dir.join("kept")).unwrap();
    let said = run_instead_of_e2fsck(dir, asked, MKFS2, &["--undo", "v"]);
    assert!(said.code == 0 && !dir.join("asked").exists(), "a valid mark is enough: {said:?}");
    std::fs::copy(dir.join("kept"), &path).unwrap();
    std::fs::remove_dir_all(dir.join("run")).unwrap();
    std::fs::create_dir(dir.join("run")).unwrap();
    ok(dir, CHKFS2, &["-f", "-p", "v"]);
    ok(dir, MKFS2, &["replicate", "v", "--blocks", &blocks, "--near", "5100"]);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1], 31 << 20).unwrap();
    drop(file);
    let said = run_instead_of_e2fsck(dir, asked, MKFS2, &["--undo", "v"]);
    assert!(said.code == 0 && dir.join("asked").exists(), "{said:?}");
}
