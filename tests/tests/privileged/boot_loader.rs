//! A boot loader put on inode 5, where the table is, by the kernel's own call for that (EXT4_IOC_SWAP_BOOT). It exchanges the inodes of two
//! files: the table's blocks are the other file's from then on, and inode 5 keeps the table's mode.

// One system call that has no safe wrapper.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use fs2_tests::{
    KERNEL, Mounted, Need, PlainMount, Rng, Scratch, Tree, debugfs, e2fsck_clean, mke2fs, needs,
};

mod ioctl {
    #![allow(missing_docs)]
    nix::ioctl_none!(swap_boot, b'f', 17);
}

fn swap_boot(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: the call takes no argument, and the file is open.
    unsafe { ioctl::swap_boot(file.as_raw_fd()) }.expect("ext4 serves ext2 here");
}

#[test]
fn a_boot_loader_in_the_tables_place_stays() {
    if !needs(KERNEL) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 128 << 20, &["-t", "ext2", "-m", "0", "-b", "4096"]);
    let mut rng = Rng::new(5);
    let tree = {
        let plain = PlainMount::new(&image, &scratch.path("plain"), "rw");
        let root = plain.dir().join("tree");
        fs::create_dir(&root).unwrap();
        let dirs = Tree::far_apart(&root);
        Tree::make(&root, &dirs, 60, &mut rng)
    };
    scratch.run("mkfs2", [&image]).ended(0);
    let mnt = scratch.path("fs2");
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--policy", "torture", "--paranoid"]);
    mounted.cold();
    tree.compare(&mnt.join("tree"));
    let loader = rng.bytes(300_000);
    let boot = mnt.join("boot");
    fs::write(&boot, &loader).unwrap();
    swap_boot(&boot);
    mounted.cold();
    // The file that was the boot loader's has the table's blocks now, as the session goes on.
    let theirs = fs::read(&boot).unwrap();
    assert!(theirs.len() > 8192 && theirs != loader);
    for n in 0..3 {
        fs::write(mnt.join(format!("more {n}")), rng.bytes(2_000_000)).unwrap();
        mounted.cold();
        tree.compare(&mnt.join("tree"));
        // What it knows of its copies it writes when nobody asks for anything.
        std::thread::sleep(Duration::from_secs(1));
        mounted.cold();
        assert!(fs::read(&boot).unwrap() == theirs, "the daemon wrote into a client's file");
    }
    assert!(mounted.status()["copies_written"].as_u64() > Some(100));
    let done = mounted.umount();
    assert!(done.code == 0 || done.code == 4, "{}: {}", done.code, done.err);
    e2fsck_clean(&image);

    let on_inode_5 = || {
        let out = scratch.path("dumped");
        debugfs(&image, false, &format!("dump <5> {}", out.display()));
        fs::read(out).unwrap()
    };
    assert!(on_inode_5() == loader);
    scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]).ended(4).says("chkfs2 -f -y ");
    scratch.run("mkfs2", [Path::new("--undo"), &image]).ended(1).says("mkfs2 --table PATH ");
    scratch.run("mkfs2", [&image]).ended(1).says("mkfs2 --table PATH ");
    assert!(on_inode_5() == loader, "a boot loader was overwritten unasked");
    // Beside it the table goes elsewhere.
    let table = scratch.path("table");
    let apart = ["--table", table.to_str().unwrap()];
    scratch.run("mkfs2", [&apart[..], &[image.to_str().unwrap()]].concat()).ended(0);
    let with = [&apart[..], &["--require-active"]].concat();
    let mounted = Mounted::new(&scratch, &image, &mnt, &with);
    tree.compare(&mnt.join("tree"));
    mounted.umount().ended(0);
    e2fsck_clean(&image);
    assert!(on_inode_5() == loader);
}
