//! chkfs2 and the e2fsck that it runs: what stands while that writes, and after it failed.

use super::*;

fn instead_of_e2fsck(dir: &Path, script: &str, args: &[&str]) -> Said {
    run_instead_of_e2fsck(dir, script, CHKFS2, args)
}

#[test]
fn a_mount_while_e2fsck_runs_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    Session::start(&path, None).kill();
    // What a mount and unmount leave: a later time, or a higher count.
    for change in ["ssv mtime 20380101000000", "ssv mnt_count 1"] {
        let script = format!("$E2FSCK \"$@\"; code=$?; debugfs -w -R '{change}' v; exit $code");
        let said = instead_of_e2fsck(dir, &script, &["-f", "-p", "v"]);
        assert_eq!(said.code, 8, "{change}: {said:?}");
        assert!(said.err.contains("was mounted while it was being checked"), "{said:?}");
        let session = Session::start(&path, None);
        assert!(!session.is_active());
        session.kill();
    }
    assert_eq!(run(dir, CHKFS2, &["-f", "-p", "v"]).code & !1, 0);
    assert_eq!(active(&path), (replicas.len(), 0));
}

/// e2fsck writes what it mends before the superblock that tells of it: where power goes in between, copies of what was there before were
/// trusted.
#[test]
fn no_mark_stands_while_e2fsck_may_write() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let standing = |name: &str| {
        let session = Session::start(&dir.join(name), None);
        let active = session.is_active();
        session.kill();
        active
    };
    let as_it_was = std::fs::read(&path).unwrap();
    for args in [&["-p", "v"][..], &["-y", "v"], &["-f", "-p", "v"], &["-p", "--quick", "v"]] {
        std::fs::write(&path, &as_it_was).unwrap();
        let said = instead_of_e2fsck(dir, "cp v during; $E2FSCK \"$@\"", args);
        assert!(said.code == 0, "{args:?}: {said:?}");
        assert!(!standing("during"), "{args:?}");
        assert_eq!(active(&path), (replicas.len(), 0), "{args:?}: it is back");
    }
    // What e2fsck mended before it was killed is not covered up by a copy, whatever the superblock says.
    std::fs::write(&path, &as_it_was).unwrap();
    let original = replicas[0].original.0;
    let mends = format!("printf x | dd of=v bs=1024 seek={original} conv=notrunc; kill -9 $$");
    assert_eq!(instead_of_e2fsck(dir, &mends, &["-f", "-y", "v"]).code, 8);
    assert!(!standing("v"));
    // Looking only, nothing is written.
    std::fs::write(&path, &as_it_was).unwrap();
    assert_eq!(instead_of_e2fsck(dir, "cp v during; $E2FSCK \"$@\"", &["-n", "v"]).code, 0);
    assert!(standing("during") && std::fs::read(&path).unwrap() == as_it_was);
}

/// What e2fsck mends in inode 5 or a descriptor makes a table of what was none, and its mark, which nobody could erase, was believed where
/// power went before the superblock was written.
#[test]
fn no_mark_stands_while_e2fsck_may_mend_what_leads_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    let as_it_was = std::fs::read(&path).unwrap();
    let layout = Layout::read(&mut as_it_was.clone()).unwrap();
    // i_blocks of inode 5, and where the inode table of the last group is.
    let inode_5 =
        layout.groups()[0].inode_table.0 as usize * 1024 + 4 * usize::from(layout.superblock().inode_size());
    let descriptor = 2048 + 32 * (layout.group_count() as usize - 1);
    for (what, at, bit) in [("i_blocks", inode_5 + 28, 2), ("a descriptor", descriptor + 11, 0x40)] {
        let mut damaged = as_it_was.clone();
        damaged[at] ^= bit;
        std::fs::write(&path, &damaged).unwrap();
        // Power goes when everything is mended but the superblock, which is written last.
        let script = "cp v during; $E2FSCK -f -y during; \
                      dd if=v of=during bs=1024 skip=1 seek=1 count=1 conv=notrunc; exec $E2FSCK \"$@\"";
        let said = instead_of_e2fsck(dir, script, &["-f", "-y", "v"]);
        assert_eq!(said.code, 1, "{what}: {said:?}");
        let during = std::fs::read(dir.join("during")).unwrap();
        assert_eq!(during[at], as_it_was[at], "{what} is mended");
        let session = Session::start(&dir.join("during"), None);
        assert!(!session.is_active(), "{what}");
        session.kill();
        // Then the next check is of all of it.
        let said = instead_of_e2fsck(dir, "echo \"[$*]\"; exec $E2FSCK \"$@\"", &["-p", "during"]);
        assert!(said.code == 1 && said.out.contains("[-p -f -- during]"), "{what}: {said:?}");
        assert_eq!(active(&dir.join("during")), (replicas.len(), 0), "{what}");
        assert_eq!(active(&path), (replicas.len(), 0), "{what}");
        // Looking only, nothing is written.
        std::fs::write(&path, &damaged).unwrap();
        let said = run(dir, CHKFS2, &["-n", "v"]);
        assert_eq!(said.code, 4, "{what}: {said:?}");
        assert!(std::fs::read(&path).unwrap() == damaged, "{what}");
    }
}

/// A pipe's reader that left (`| head -1`) ended e2fsck, a signal chkfs2, and the mark that had been erased before was gone.
#[test]
fn where_e2fsck_fails_and_has_written_nothing_the_mark_stands_again() {
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, _, replicas) = used(dir);
    for options in ["-fp", "-fy", "-ffy"] {
        let mut chkfs2 = Command::new(CHKFS2);
        let elsewhere = dir.join("boot").join(options);
        chkfs2.env("FS2_RUNTIME_DIR", elsewhere);
        chkfs2.args([options, "v"]).current_dir(dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut chkfs2 = chkfs2.spawn().unwrap();
        drop((chkfs2.stdout.take(), chkfs2.stderr.take()));
        assert_eq!(chkfs2.wait().unwrap().code(), Some(0), "{options}");
        assert_eq!(active(&path), (replicas.len(), 0), "{options}");
    }
    let asked =
        "trap 'exit 32' TERM; kill -TERM $PPID; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; done; exit 0";
    for (script, code) in [("exit 8", 8), ("kill -9 $$", 8), (asked, 32)] {
        let said = instead_of_e2fsck(dir, script, &["-f", "-p", "v"]);
        assert_eq!(said.code, code, "{script}: {said:?}");
        assert!(said.err.contains("the replica table was not checked"), "{said:?}");
        assert_eq!(active(&path), (replicas.len(), 0), "{script}");
    }
    // What is wrong and was left so, or was written, is vouched for by nobody.
    let as_it_was = std::fs::read(&path).unwrap();
    for script in ["exit 12", "printf x | dd of=v bs=1 seek=1000 conv=notrunc; exit 8"] {
        std::fs::write(&path, &as_it_was).unwrap();
        assert_eq!(instead_of_e2fsck(dir, script, &["-f", "-p", "v"]).code & 8, 8, "{script}");
        let session = Session::start(&path, None);
        assert!(!session.is_active(), "{script}");
        session.kill();
    }
}

/// e2fsck refuses to begin then; the mark had been erased for it and did not come back.
#[test]
fn where_nobody_can_be_asked_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, ..) = used(dir);
    let before = hash(&path);
    for args in [&["v"][..], &["-f", "v"], &["-f", "--scrub", "v"]] {
        let said = run(dir, CHKFS2, args);
        assert!(said.code == 8 && said.err.contains("no terminal to ask at"), "{args:?}: {said:?}");
        assert!(said.err.contains("answer beforehand: chkfs2 -p v (-y"), "{said:?}");
        assert_eq!(hash(&path), before, "{args:?}");
    }
}

#[test]
fn e2fscks_failure_keeps_the_table_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, ..) = used(dir);
    let mut session = Session::start(&path, None);
    session.write(BlockNo(20_000), 1);
    session.kill();
    let before = hash(&path);
    for code in [4, 8, 12, 32] {
        let said = instead_of_e2fsck(dir, &format!("exit {code}"), &["-p", "v"]);
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains(&format!("e2fsck ended with {code}; the replica table was not checked")));
        assert_eq!(hash(&path), before);
    }
    let said = instead_of_e2fsck(dir, "kill -9 $$", &["-p", "v"]);
    assert_eq!(said.code, 8, "{said:?}");
    // Meanwhile nobody else gets the image.
    let said = instead_of_e2fsck(dir, &format!("{MKFS2} v; exit 8"), &["-p", "v"]);
    assert!(said.code == 8 && said.err.contains("in use by process"), "{said:?}");
    assert_eq!(hash(&path), before);
    // It is handed the options and nothing else.
    let said = instead_of_e2fsck(dir, "echo \"[$*]\"; exec $E2FSCK \"$@\"", &["-y", "--quick", "v"]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("[-y -f -- v]"), "{said:?}");
    let said = instead_of_e2fsck(dir, "echo \"[$*]\"; exec $E2FSCK \"$@\"", &["-a", "v"]);
    assert!(said.code == 0 && said.out.contains("[-p -- v]"), "{said:?}");
}

/// e2fsck checks all of a volume after so many mounts, or so long, and writes the superblock. It was run a second time, and somebody was
/// said to have changed the volume.
#[test]
fn a_check_that_is_due_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    for due in [&["-c", "20", "-C", "25"][..], &["-c", "-1", "-i", "1d", "-T", "20200101"]] {
        ok(dir, "tune2fs", &[due, &["v"]].concat());
        ok(dir, MKFS2, &["v"]);
        let mut session = Session::start(&path, None);
        let replicas = session.copy(&data_blocks(&path)).len();
        assert!(replicas > 200 && session.end().marked);
        let said = instead_of_e2fsck(dir, "echo \"[$*]\"; exec $E2FSCK \"$@\"", &["-p", "v"]);
        assert_eq!(said.code, 0, "{due:?}: {said:?}");
        assert!(said.out.contains("check forced") && said.out.matches("[-p").count() == 1, "{said:?}");
        assert!(!said.out.contains("changed outside FS2"), "{said:?}");
        assert_eq!(active(&path), (replicas, 0), "{due:?}");
        let said = ok(dir, CHKFS2, &["-p", "v"]);
        assert!(said.out.contains("verified by the mark"), "{said:?}");
        ok(dir, MKFS2, &["--undo", "v"]);
    }
}
