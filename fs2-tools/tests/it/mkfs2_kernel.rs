//! mkfs2 and chkfs2 beside the kernel's ext2. Needs e2fsprogs, root and /dev/loop-control; without
//! these each test says so and ends.

use std::fs;
use std::path::Path;

use fs2_tools::kernel::{LoopDevice, LoopOptions, MountGuard, MountOptions, mount_ext2};

use crate::kernel::loops_are_here;
use crate::mkfs2_support::*;

fn mounted(image: &Path, at: &Path) -> (MountGuard, LoopDevice) {
    fs::create_dir_all(at).unwrap();
    let device = LoopDevice::attach(image, &LoopOptions::default()).unwrap();
    let guard = mount_ext2(&device.path(), at, MountOptions::default()).unwrap();
    (guard, device)
}

#[test]
fn in_use_is_refused_and_nothing_written() {
    if !loops_are_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    let before = hash(&path);
    let refused = |program: &str, args: &[&str], code: i32, word: &str| {
        let said = run(dir, program, args);
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains(word), "{said:?} does not say {word:?}");
    };
    let (guard, device) = mounted(&path, &dir.join("m"));
    let after_mount = hash(&path);
    let name = device.path().display().to_string();
    for target in ["v", &name] {
        refused(MKFS2, &[target], 1, "is mounted at");
        refused(MKFS2, &["--undo", target], 1, "umount");
        refused(CHKFS2, &["-p", target], 8, "is mounted at");
        refused(CHKFS2, &["-n", target], 8, "is mounted at");
    }
    drop(guard);
    refused(MKFS2, &["v"], 1, "losetup -d");
    refused(CHKFS2, &["-p", "v"], 8, "losetup -d");
    drop(device);
    assert_ne!(before, after_mount, "a mount writes the superblock");
    assert_eq!(run(dir, MKFS2, &["v"]).code, 0);
}

#[test]
fn through_the_kernel_and_back() {
    if !loops_are_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = image(dir, "v", "-b 1024", "24M");
    ok(dir, MKFS2, &["v"]);
    let files = data_blocks(&path);
    let mut session = Session::start(&path, None);
    let replicas = session.copy(&files);
    assert!(session.end().marked);
    // A plain mount elsewhere: a file goes, another comes, free blocks with copies are overwritten.
    {
        let (_guard, _device) = mounted(&path, &dir.join("m"));
        fs::remove_file(dir.join("m/sub/file39")).unwrap();
        fs::write(dir.join("m/new"), vec![0x42; 14_000_000]).unwrap();
    }
    e2fsck_clean(dir, "v");
    let session = Session::start(&path, None);
    assert!(!session.is_active(), "the superblock differs");
    session.kill();
    let said = run(dir, CHKFS2, &["-p", "--json", "v"]);
    assert_eq!(said.code, 1, "{said:?}");
    let said = said.json();
    assert!(said["entries_dropped"].as_u64().unwrap() > 0, "{said}");
    let mut session = Session::start(&path, None);
    assert!(session.is_active());
    assert!(session.report.verified < replicas.len());
    let bytes = fs::read(&path).unwrap();
    for range in files.iter().flat_map(|&r| pieces(r, 8)) {
        let e = range.extent(session.volume.block_size());
        assert!(session.read(range) == bytes[e.offset() as usize..e.end() as usize], "{range}");
    }
    assert!(session.end().marked);
    ok(dir, MKFS2, &["--undo", "v"]);
    {
        let (_guard, _device) = mounted(&path, &dir.join("m"));
        assert!(fs::read(dir.join("m/new")).unwrap() == vec![0x42; 14_000_000]);
        assert!(fs::read(dir.join("m/large")).unwrap() == fs::read(dir.join("content/large")).unwrap());
    }
    e2fsck_clean(dir, "v");
}

/// `tune2fs -C 0 -T now` on a mounted volume, as who has checked a snapshot of it does, made what was written afterwards count as checked.
#[test]
fn a_check_that_a_mount_went_on_after_is_none() {
    if !loops_are_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    image(dir, "v", "-b 1024", "24M");
    let asks = || {
        let _ = fs::remove_file(dir.join("asked"));
        let said = run_instead_of_e2fsck(dir, "touch asked; exec $E2FSCK \"$@\"", MKFS2, &["v"]);
        assert_eq!(said.code, 0, "{said:?}");
        ok(dir, MKFS2, &["--undo", "v"]);
        dir.join("asked").exists()
    };
    assert!(!asks(), "it was made and checked just now");
    {
        let (_guard, device) = mounted(&dir.join("v"), &dir.join("m"));
        ok(dir, "tune2fs", &["-C", "0", "-T", "now", device.path().to_str().unwrap()]);
        fs::write(dir.join("m/new"), [7; 100_000]).unwrap();
    }
    let said = ok(dir, "dumpe2fs", &["-h", "v"]).out;
    let count = said.lines().find_map(|line| line.strip_prefix("Mount count:"));
    assert_eq!(count.map(str::trim), Some("0"), "{said}");
    assert!(asks(), "it was mounted and written since");
    // Times are in seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    ok(dir, "e2fsck", &["-f", "-p", "v"]);
    assert!(!asks(), "it was checked just now");
}
