//! chkfs2 where the table itself is damaged, or another file is in its place.

use super::*;

fn damage(path: &Path, offset: u64, len: u64) {
    std::fs::write(path, changed(path, offset, len, |b| *b ^= 0x55)).unwrap();
}

#[test]
fn damaged_pages_cost_their_entries() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let groups = 3;
    let geometry = fs2_table::Geometry::new(1 << 30, groups, fs2_block::BlockSize::B1024);
    damage(&path, geometry.page_offset(0) + 100, 8);
    let said = run(dir, CHKFS2, &["-n", "v"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.out.contains("1 page damaged"), "{said:?}");
    let said = run(dir, CHKFS2, &["-p", "--json", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    let (verified, unverified) = active(&path);
    assert!(verified < replicas.len() && verified > 0 && unverified == 0, "{verified} of {}", replicas.len());
    assert_eq!(run(dir, CHKFS2, &["-p", "v"]).code, 0);
}

#[test]
fn a_damaged_header_slot_is_written_anew() {
    for slot in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (path, _, replicas) = used(dir);
        damage(&path, slot * 4096 + 200, 4);
        let said = run(dir, CHKFS2, &["-p", "v"]);
        assert_eq!(said.code, 1, "slot {slot}: {said:?}");
        assert!(said.out.contains(&format!("header slot {slot}: checksum differs")), "{said:?}");
        assert_eq!(active(&path), (replicas.len(), 0), "slot {slot}");
        assert_eq!(run(dir, CHKFS2, &["-p", "v"]).code, 0);
    }
}

#[test]
fn without_any_header_an_empty_table_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, ..) = used(dir);
    damage(&path, 0, 8192);
    let before = hash(&path);
    let said = run(dir, CHKFS2, &["-n", "v"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.out.contains("the table cannot be used"), "{said:?}");
    assert_eq!(hash(&path), before);
    assert_eq!(run(dir, CHKFS2, &["-p", "v"]).code, 1);
    assert_eq!(active(&path), (0, 0));
    // Nothing of the old pages comes back.
    assert_eq!(run(dir, CHKFS2, &["-f", "-p", "v"]).code, 0);
    assert_eq!(active(&path), (0, 0));
    e2fsck_clean(dir, "v");
}

/// A boot loader that the kernel put on inode 5 in the table's place keeps the table's mode, and was overwritten unasked.
#[test]
fn another_file_on_inode_5_is_overwritten_by_yes_only() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, ..) = used(dir);
    std::fs::write(&path, changed(&path, 0, u64::MAX, |byte| *byte = 0xB0)).unwrap();
    let inode_5 = || {
        ok(dir, "debugfs", &["-R", "dump <5> dumped", "v"]);
        std::fs::read(dir.join("dumped")).unwrap()
    };
    let before = inode_5();
    assert!(before.len() > 8192 && before.iter().all(|&b| b == 0xB0));
    for options in [&["-p"][..], &["-f", "-p"], &["-n"], &["-f", "-p", "--scrub"]] {
        let said = run(dir, CHKFS2, &[options, &["v"]].concat());
        assert_eq!(said.code, 4, "{said:?}");
        assert!(
            said.out.contains("nothing on inode 5 is FS2's") && said.out.contains("chkfs2 -f -y v"),
            "{said:?}"
        );
        assert!(inode_5() == before, "{options:?}");
    }
    assert_eq!(run(dir, CHKFS2, &["-f", "-y", "v"]).code, 1);
    assert_eq!(active(&path), (0, 0));
    e2fsck_clean(dir, "v");
}

#[test]
fn a_cleared_inode_5_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    used(dir);
    ok(dir, "debugfs", &["-w", "-R", "clri <5>", "v"]);
    let said = run(dir, CHKFS2, &["-y", "v"]);
    assert_eq!(said.code, 1 | 4, "{said:?}");
    assert!(said.err.contains("inode 5 is empty") && said.err.contains("mkfs2 v"), "{said:?}");
    e2fsck_clean(dir, "v");
}

/// A damaged pointer made a hole in the table's file, and every program said that nothing of FS2's was there.
#[test]
fn what_is_left_of_a_damaged_table_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, files, replicas) = used(dir);
    let whole = std::fs::read(&path).unwrap();
    let kept = used_blocks_of_files(&path);
    // Of a header slot, and of the checksums.
    for (pointer, by_chkfs2) in [(5, true), (5, false), (9, true), (9, false)] {
        std::fs::write(&path, &whole).unwrap();
        ok(dir, "debugfs", &["-w", "-R", &format!("sif <5> block[{pointer}] 99999999"), "v"]);
        if by_chkfs2 {
            let said = run(dir, CHKFS2, &["-f", "-y", "v"]);
            assert_eq!(said.code, 1 | 4, "{said:?}");
            assert!(said.out.contains("is taken away") && said.err.contains("mkfs2 v"), "{said:?}");
        } else {
            let said = run(dir, MKFS2, &["--undo", "v"]);
            assert!(said.code == 1 && said.err.contains("e2fsck -f"), "{said:?}");
            assert_eq!(run(dir, "e2fsck", &["-fy", "v"]).code, 1);
            for (program, options) in [(CHKFS2, &["-f", "-p"][..]), (CHKFS2, &["-n"]), (MKFS2, &[])] {
                let said = run(dir, program, &[options, &["v"]].concat());
                // e2fsck sets the clean flag again that was cleared for it: that is its 1.
                let code = if options == ["-n"] { 4 } else { 1 | 4 };
                assert_eq!(said.code, if program == CHKFS2 { code } else { 1 }, "{said:?}");
                assert!(said.err.contains("of the replica table, but damaged: it has holes"), "{said:?}");
                assert!(said.err.contains("mkfs2 --undo v && mkfs2 v"), "{said:?}");
            }
            let said = ok(dir, MKFS2, &["--undo", "v"]);
            assert!(said.out.contains("the table was damaged (it has holes: "), "{said:?}");
        }
        e2fsck_clean(dir, "v");
        let now = used_blocks(&path);
        assert!(now.keys().eq(kept.keys()), "files only");
        assert!(files.iter().flat_map(|range| range.iter()).all(|b| now[&b.0] == kept[&b.0]), "as they were");
        let bytes = std::fs::read(&path).unwrap();
        let left = |r: &&fs2_table::Replica| bytes[r.replica.0 as usize * 1024..][..1024] != [0; 1024];
        assert!(pointer == 5 || replicas.iter().filter(left).count() == 0, "copies are left");
        ok(dir, MKFS2, &["v"]);
        assert_eq!(active(&path), (0, 0));
    }
    // Another's file with a hole is left to its owner.
    let foreign = changed(&path, 0, 8192, |byte| *byte = 0xB0);
    std::fs::write(&path, foreign).unwrap();
    ok(dir, "debugfs", &["-w", "-R", "sif <5> block[9] 99999999", "v"]);
    assert_eq!(run(dir, "e2fsck", &["-fy", "v"]).code, 1);
    let before = used_blocks(&path);
    for (program, options) in [(CHKFS2, &["-f", "-y"][..]), (MKFS2, &["--undo"]), (MKFS2, &[])] {
        let said = run(dir, program, &[options, &["v"]].concat());
        assert!(said.code != 0 && said.err.contains("no table of FS2's is found there"), "{said:?}");
    }
    assert!(used_blocks(&path) == before);
    // Who does not need it is told the way out.
    let said = run(dir, MKFS2, &["v"]);
    assert!(said.err.contains("debugfs -w -R 'clri <5>' v; e2fsck -fy v;"), "{said:?}");
    ok(dir, "debugfs", &["-w", "-R", "clri <5>", "v"]);
    assert_eq!(run(dir, "e2fsck", &["-fy", "v"]).code, 1);
    ok(dir, MKFS2, &["v"]);
}

/// A volume that gained a feature was checked by nobody, and nothing was said of how it loses that again.
#[test]
fn a_feature_that_came_later_goes_as_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let as_it_was = std::fs::read(&path).unwrap();
    let features = [
        "has_journal",
        "dir_nlink",
        "quota",
        "huge_file",
        "extra_isize",
        "project",
        "mmp",
        "uninit_bg",
        "metadata_csum",
        "read-only",
        "flex_bg",
        "dir_nlink,huge_file",
    ];
    for feature in features {
        std::fs::write(&path, &as_it_was).unwrap();
        run(dir, "tune2fs", &["-O", feature, "v"]);
        let first = feature.split(',').next().unwrap();
        if !dump(dir, "v").lines().any(|l| l.starts_with("Filesystem features:") && l.contains(first)) {
            ok(dir, "debugfs", &["-w", "-R", &format!("feature {first}"), "v"]);
        }
        let said = [run(dir, CHKFS2, &["-p", "v"]), run(dir, MKFS2, &["--undo", "v"])];
        assert_eq!((said[0].code, said[1].code), (8, 1), "{feature}: {said:?}");
        assert!(
            said.iter().all(|s| s.err.ends_with("; to check it as it is: e2fsck -f v\n")),
            "{feature}: {said:?}"
        );
        let (from, to) =
            (said[0].err.find("tune2fs -O ^").expect(feature), said[0].err.find("; to check").unwrap());
        ok(dir, "sh", &["-c", &said[0].err[from..to]]);
        assert!(run(dir, CHKFS2, &["-f", "-p", "v"]).code <= 1, "{feature}");
        let (verified, unverified) = active(&path);
        // What the feature needed for itself may have taken copies' blocks.
        assert!(verified > 0 && verified <= replicas.len() && unverified == 0, "{feature}: {verified}");
        ok(dir, MKFS2, &["--undo", "v"]);
        e2fsck_clean(dir, "v");
    }
}
