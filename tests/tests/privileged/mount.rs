//! A volume through its whole life in the host's kernel: converted, mounted, read, changed, unmounted,
//! mounted again, converted back. What is read is compared with a tree in memory at every step. The drive is
//! not modelled and no time is measured.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fs2_tests::{
    KERNEL, LoopDev, Mounted, Need, PlainMount, Rng, Scratch, Tree, debugfs, digest, dump, e2fsck_clean,
    file_digest, loops_below, mke2fs, mounts_below, needs, run,
};

const GIB: u64 = 1 << 30;

/// A sparse ext2 image with `per_dir` files each in its lowest and its highest region.
fn image(scratch: &Scratch, bytes: u64, per_dir: usize, rng: &mut Rng) -> (PathBuf, Tree) {
    let image = scratch.path("image");
    mke2fs(&image, bytes, &["-t", "ext2", "-m", "0", "-b", "4096"]);
    let plain = PlainMount::new(&image, &scratch.path("plain"), "rw");
    let dirs = Tree::far_apart(plain.dir());
    let tree = Tree::make(plain.dir(), &dirs, per_dir, rng);
    (image, tree)
}

fn compare_plainly(scratch: &Scratch, image: &Path, tree: &Tree) {
    tree.compare(PlainMount::new(image, &scratch.path("plain"), "ro").dir());
}

fn assert_nothing_left(scratch: &Scratch) {
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
    let left: Vec<_> = std::fs::read_dir(scratch.runtime()).unwrap().flatten().map(|e| e.path()).collect();
    // The stamp by which a foreign writer is noticed is meant to stay.
    assert!(left.iter().all(|p| p.extension().is_some_and(|x| x == "stamp")), "{left:?}");
}

/// No replica was ever wrong and no table write ever failed.
#[track_caller]
fn assert_sound(status: &serde_json::Value) {
    for counter in ["hash_mismatches", "replica_errors", "table_errors"] {
        assert_eq!(status[counter], 0, "{counter} in {status}");
    }
    assert_eq!(status["liveness"], "active");
}

#[test]
fn mount_read_copy_change_remount_and_undo() {
    if !needs(KERNEL) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    let seed = 20_051_023;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let (image, mut tree) = image(&scratch, GIB, 120, &mut rng);
    scratch.run("mkfs2", [&image]).ended(0).says("is an FS2 volume now");
    e2fsck_clean(&image);
    compare_plainly(&scratch, &image, &tree);

    let mnt = scratch.path("fs2");
    let torture = ["--policy", "torture", "--paranoid", "--require-active"];
    let mounted = Mounted::new(&scratch, &image, &mnt, &torture);
    let much = [("copies_written", 1000), ("reads_from_replica", 300)];
    assert_sound(&mounted.read_until(3, &much, || tree.compare(&mnt)));

    let mut did = Vec::new();
    for i in 0..1500 {
        match rng.below(150) {
            0 => mounted.trim(),
            1..=2 => mounted.cold(),
            _ => did.push(tree.step(&mnt, &mut rng)),
        }
        if i % 300 == 299 {
            mounted.cold();
            tree.compare(&mnt);
        }
    }
    println!("{}", did.join("\n"));
    let status = mounted.status();
    assert_sound(&status);
    assert!(
        status["invalidated"].as_u64() > Some(100) && status["reclaimed"].as_u64() > Some(100),
        "{status}"
    );
    assert_eq!(status["discard_seen"], true);
    let held = status["replicas"].as_u64();
    assert!(held > Some(500), "{status}");
    mounted.umount().ended(0);
    assert_nothing_left(&scratch);
    e2fsck_clean(&image);
    compare_plainly(&scratch, &image, &tree);

    // At once: a file's blocks are read once in this round, so what came from a replica was copied in the
    // session before.
    let mounted = Mounted::new(&scratch, &image, &mnt, &torture);
    let status = mounted.status();
    assert!(status["replicas"].as_u64() > Some(500) && status["replicas_unverified"] == 0, "{status}");
    tree.compare(&mnt);
    let status = mounted.status();
    assert_sound(&status);
    assert!(status["reads_from_replica"].as_u64() > Some(20), "{status}");
    mounted.umount().ended(0);
    compare_plainly(&scratch, &image, &tree);

    let undone = scratch.run("mkfs2", [Path::new("--undo"), Path::new("--json"), &image]).ended(0).json();
    assert!(undone["scrubbed_blocks"].as_u64() > Some(500), "{undone}");
    assert_eq!((&undone["left_in_use"], &undone["damaged"]), (&0.into(), &serde_json::Value::Null));
    e2fsck_clean(&image);
    compare_plainly(&scratch, &image, &tree);
    let inode = debugfs(&image, false, "stat <5>").out;
    assert!(inode.contains("Size: 0") && inode.contains("Blockcount: 0"), "{inode}");
    scratch.run("mkfs2", [Path::new("--undo"), &image]).ended(1).says("to make it an FS2 volume: mkfs2 ");
}

/// With copies that nothing drops before the end (files are only read, space is plenty), no copy of a file's
/// block is left anywhere once `mkfs2 --undo` has scrubbed.
#[test]
fn undo_leaves_no_copy_of_a_file() {
    if !needs(KERNEL) || !needs(&[Need::Program("dumpe2fs")]) {
        return;
    }
    let mut rng = Rng::new(2);
    let scratch = Scratch::new();
    let (image, tree) = image(&scratch, GIB, 100, &mut rng);
    let blocks: HashSet<u64> =
        tree.files().values().flat_map(|bytes| bytes.chunks_exact(4096)).map(digest).collect();
    let copies = || {
        let digests = dump(&image).block_digests(&image, true);
        digests.into_iter().filter(|(_, d)| blocks.contains(d)).count()
    };
    assert_eq!(copies(), 0);
    scratch.run("mkfs2", [&image]).ended(0);
    let mnt = scratch.path("fs2");
    let options = ["--policy", "fs2", "--drive", "wd800-repaired", "--time-scale", "0.1", "--require-active"];
    let mounted = Mounted::new(&scratch, &image, &mnt, &options);
    for _ in 0..2 {
        mounted.cold();
        tree.compare(&mnt);
    }
    // Copies are made when the volume rests, which on a busy machine it does only now.
    // They are of directories and indirect blocks, too: until no more come.
    let mut before = None;
    for _ in 0..120 {
        let replicas = mounted.status()["replicas"].as_u64();
        if replicas > Some(1000) && replicas == before {
            break;
        }
        before = replicas;
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    mounted.umount().ended(0);
    assert!(copies() > 1000, "{} copies: the test shows nothing", copies());
    scratch.run("mkfs2", [Path::new("--undo"), &image]).ended(0);
    assert_eq!(copies(), 0);
    e2fsck_clean(&image);
    compare_plainly(&scratch, &image, &tree);
}

#[test]
fn what_holds_no_ext2_is_not_mounted() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    std::fs::write(&image, Rng::new(3).bytes(4 << 20)).unwrap();
    let before = file_digest(&image);
    let dir = scratch.make_dir("dir");
    let what = format!("{}: not an ext2 volume: no magic number 0xEF53 at byte 1080", image.display());
    let done = scratch.run("fs2", [Path::new("mount"), &image, &dir]).ended(32);
    done.says(&what).says(&format!("mke2fs -t ext2 {}", image.display()));
    assert_eq!(file_digest(&image), before);
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
}

/// "Invalid argument" alone was said, which the kernel says of any file system.
#[test]
fn of_an_ext4_volume_it_is_said_what_is_not_supported() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (scratch.path("image"), scratch.make_dir("dir"));
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let refused =
        scratch.run("fs2", [Path::new("mount"), "--frontend=fuse".as_ref(), &image, &dir]).ended(32);
    refused.says("unsupported: has_journal extent").says("FS2 takes volumes as mke2fs -t ext2 makes them");
    let other = scratch.path("other");
    mke2fs(&other, 16 << 20, &["-t", "ext2", "-O", "dir_nlink"]);
    scratch.run("fs2", [Path::new("mount"), &other, &dir]).ended(32).says("unsupported: dir_nlink");
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
}

/// debugfs leaves the clean flag alone and writes its bitmaps last. A session behind one that was killed copied into the file it had written.
#[test]
fn a_tool_that_was_killed_on_the_served_device_leaves_no_mark() {
    if !needs(KERNEL) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, _) = image(&scratch, 256 << 20, 2, &mut Rng::new(7));
    e2fsck_clean(&image);
    scratch.run("mkfs2", [&image]).ended(0);
    let (dir, file) = (scratch.path("fs2"), scratch.path("file"));
    std::fs::write(&file, Rng::new(8).bytes(4 << 20)).unwrap();
    let args = ["--policy", "torture"];
    // What `debugfs -w` does on the served device, and whether it comes to its end; the next session's state.
    let next = |name: &str, ends: bool| {
        let mounted = Mounted::new(&scratch, &image, &dir, &args);
        let device = loops_below(scratch.dir()).remove(0);
        let held = std::fs::File::open(&device).unwrap();
        nix::mount::umount(&dir).unwrap();
        let mut debugfs = Command::new("debugfs");
        debugfs.env("DEBUGFS_PAGER", "__none__");
        debugfs.arg("-w").arg(&device).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut debugfs = debugfs.spawn().unwrap();
        let (mut asks, told) = (debugfs.stdin.take().unwrap(), debugfs.stdout.take().unwrap());
        // What it says goes by pages of 4 KiB.
        writeln!(asks, "write {} {name}\n{}", file.display(), format!("stat {name}\n").repeat(60)).unwrap();
        if ends {
            drop(asks);
        } else {
            // Behind the file: its blocks are allocated, and written but for a few in the tool's cache.
            assert!(BufReader::new(told).lines().any(|line| line.unwrap().contains("Size: 4194304")));
            debugfs.kill().unwrap();
        }
        debugfs.wait().unwrap();
        drop(held);
        // The daemon ends with its last user.
        let ended = || nix::sys::signal::kill(mounted.pid(), None).is_err();
        for _ in 0..600 {
            if ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(ended(), "the daemon goes on");
        drop(mounted);
        let mounted = Mounted::new(&scratch, &image, &dir, &args);
        let state = mounted.status()["liveness"].clone();
        mounted.umount();
        state
    };
    assert_eq!(next("finished", true), "active");
    assert_ne!(next("killed", false), "active");
}

/// It was told to be opened read-only, for which FS2 has no option.
#[test]
fn what_is_write_protected_is_refused_with_the_command_that_reads_it() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (scratch.path("image"), scratch.make_dir("dir"));
    mke2fs(&image, 16 << 20, &["-t", "ext2"]);
    let attached = LoopDev::attach(&image, &["--read-only"]).unwrap();
    let device = attached.path().display();
    let refused = scratch.run("fs2", [Path::new("mount"), attached.path(), &dir]).ended(32);
    let advice = format!("mount -t ext2 -o ro {device} DIR");
    refused
        .says(&format!("{device} cannot be written: the device is set read-only; make it writable; "))
        .says(&advice);
    // As it is told.
    run(Command::new("sh").args(["-c", &advice.replace("DIR", &dir.display().to_string())])).ended(0);
    fs2_tools::kernel::unmount(&dir, false).unwrap();
}

#[test]
fn a_test_that_panics_leaves_nothing_behind() {
    if !needs(KERNEL) {
        return;
    }
    let mut rng = Rng::new(3);
    let scratch = Scratch::new();
    let (image, _) = image(&scratch, GIB / 4, 4, &mut rng);
    scratch.run("mkfs2", [&image]).ended(0);
    let mut pid = None;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mounted = Mounted::new(&scratch, &image, &scratch.path("fs2"), &[]);
        pid = Some(mounted.pid());
        std::panic::resume_unwind(Box::new("planted"));
    }));
    assert!(panicked.is_err());
    assert_nothing_left(&scratch);
    assert!(nix::sys::signal::kill(pid.unwrap(), None).is_err(), "the daemon is gone");
}

/// It took one, and a script that named several had none of them unmounted.
#[test]
fn several_are_unmounted_one_after_another() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let mount = |name: &str| {
        let (image, mnt) = (scratch.path(&format!("{name}.img")), scratch.path(name));
        mke2fs(&image, 32 << 20, &["-t", "ext2", "-b", "4096"]);
        scratch.run("mkfs2", [&image]).ended(0);
        Mounted::new(&scratch, &image, &mnt, &["--require-active"])
    };
    let umount = |dirs: &[&Path]| {
        let mut umount = scratch.command("fs2");
        run(umount.arg("umount").args(dirs))
    };
    let (a, b, c) = (mount("a"), mount("b"), mount("c"));
    let busy = std::fs::File::create(b.dir().join("busy")).unwrap();
    // The others are, and which was not is told.
    let said = umount(&[a.dir(), b.dir(), c.dir()]).ended(64);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    said.says(&format!("{} is busy: ", b.dir().display()));
    let is_mounted = |m: &Mounted| fs2_tools::kernel::mount_at(m.dir()).unwrap().is_some();
    assert_eq!([is_mounted(&a), is_mounted(&b), is_mounted(&c)], [false, true, false]);
    umount(&[a.dir(), b.dir()]).ended(32);
    drop(busy);
    umount(&[b.dir()]).ended(0);
    for ended in [a, b, c] {
        ended.umount().ended(32);
    }
    assert_nothing_left(&scratch);
}
