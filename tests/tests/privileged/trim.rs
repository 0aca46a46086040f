//! Trims. Of a volume that nobody checked after a kill: ext2's fsync writes no bitmap, so that on the disk the blocks of a file that was
//! synced are free still, and by FUSE and a loop device a discard comes as a request that may want zeroes. `fs2 trim` of volumes to which
//! it is of no use, or by FUSE does harm. And what the kernel's ext2 makes of a discard that is refused.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use fs2_tests::{Done, KERNEL, Mounted, Rng, Scratch, e2fsck_clean, mke2fs, needs, run};

#[test]
fn a_trim_before_the_check_costs_no_file_that_fsync_promised() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("fs2"));
    mke2fs(&image, 128 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mut rng = Rng::new(5);
    let files: Vec<_> = (0..20).map(|n| (mnt.join(n.to_string()), rng.bytes(30_000))).collect();
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    for (path, bytes) in &files {
        let mut file = File::create(path).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
    }
    File::open(&mnt).unwrap().sync_all().unwrap();
    mounted.kill_daemon();
    mounted.umount().ended(4);

    let (mounted, said) = Mounted::and_said(&scratch, &image, &mnt, &[]);
    said.says("inactive: ");
    let holds = |when: &str| {
        for (path, bytes) in &files {
            assert!(fs::read(path).is_ok_and(|there| there == *bytes), "{} {when}", path.display());
        }
    };
    holds("before the trim");
    // Some kernels' ext2 does without; the timer of util-linux calls the same.
    let trimmed = run(Command::new("fstrim").arg(&mnt));
    assert!(trimmed.code == 0 || trimmed.err.contains("not supported"), "{trimmed:?}");
    mounted.umount().ended(0);
    let checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-y"), &image]);
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    mounted.cold();
    holds("after the trim");
    mounted.umount().ended(0);
}

/// Named it is refused; among all of them, as the timer does, it is passed by.
#[track_caller]
fn refused(scratch: &Scratch, dir: &Path, image: &Path, why: &str, next: &str) {
    let blocks = || fs::metadata(image).unwrap().blocks();
    let before = blocks();
    let named = scratch.run("fs2", [Path::new("trim"), dir]).ended(2);
    let all = scratch.run("fs2", ["trim"]).ended(0);
    for said in [named, all] {
        let Done { out, err, .. } = &said;
        assert!(out.is_empty() && err.contains(&format!("{}: not trimmed: ", dir.display())), "{said:?}");
        assert!(err.contains(why) && err.contains(next), "{said:?}");
    }
    run(Command::new("sync").arg("-f").arg(dir)).ended(0);
    // Zeroes written to a sparse file are given their room, or take it away.
    assert_eq!(blocks(), before, "{why}");
}

fn device(dir: &Path) -> String {
    let found = run(Command::new("findmnt").args(["-nro", "SOURCE"]).arg(dir)).ended(0);
    found.out.trim().to_owned()
}

/// A discard that failed, the kernel records as an error of the file system, and may forbid further writes for it.
#[test]
fn a_mount_outlives_what_it_frees_where_discards_are_refused() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("fs2"));
    mke2fs(&image, 64 << 20, &["-t", "ext2", "-b", "4096", "-e", "remount-ro"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mut rng = Rng::new(6);
    let bytes = rng.bytes(1 << 20);
    let goes_on = |mounted: Mounted, liveness: &str| {
        for name in ["new", "newer"] {
            fs::write(mnt.join(name), &bytes).unwrap();
            fs::remove_file(mnt.join(name)).unwrap();
            run(Command::new("sync").arg("-f").arg(&mnt)).ended(0);
        }
        fs::write(mnt.join("last"), &bytes).unwrap();
        mounted.cold();
        assert!(fs::read(mnt.join("last")).unwrap() == bytes);
        let said = mounted.status()["liveness"].as_str().unwrap().to_owned();
        assert!(said.starts_with(liveness), "{said}");
        mounted.umount();
        e2fsck_clean(&image);
    };
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    run(Command::new("tune2fs").args(["-U", "random", &device(&mnt)])).ended(0);
    run(Command::new("sync").arg("-f").arg(&mnt)).ended(0);
    goes_on(mounted, "frozen: ");
    // Not what `fs2 mount` does of itself.
    goes_on(Mounted::new(&scratch, &image, &mnt, &["-o", "discard"]), "inactive: ");
}

#[test]
fn what_is_not_active_or_read_only_is_not_trimmed() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("mnt"));
    mke2fs(&image, 64 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let check = format!("fs2 umount {} && chkfs2 -f -p {}", mnt.display(), image.display());
    let trimmed = |args: &[&Path]| {
        let said = scratch.run("fs2", [&[Path::new("trim")], args].concat()).ended(0);
        assert!(said.out.contains("the file system discarded") && said.err.is_empty(), "{said:?}");
    };
    {
        let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
        for args in [&[][..], &[&*mnt], &[&*image]] {
            trimmed(args);
        }
        // As the timer's service sees it, whose file systems all are read-only to it.
        let sees = "mount -o remount,bind,ro \"$1\" && ! touch \"$1/x\" 2> /dev/null && exec \"$0\" trim";
        let mut service = Command::new("unshare");
        service.args(["--mount", "--propagation", "private", "sh", "-c", sees]);
        service.arg(fs2_tests::program("fs2")).arg(&mnt).env("FS2_RUNTIME_DIR", scratch.runtime());
        let said = run(&mut service).ended(0);
        assert!(said.out.contains("the file system discarded"), "{said:?}");
        run(Command::new("tune2fs").args(["-O", "dir_nlink", &device(&mnt)])).ended(0);
        run(Command::new("sync").arg("-f").arg(&mnt)).ended(0);
        assert!(
            mounted.status()["liveness"].as_str().unwrap().starts_with("frozen: "),
            "{}",
            mounted.status()
        );
        refused(&scratch, &mnt, &image, "it is frozen: ", &check);
        mounted.umount();
    }
    run(Command::new("tune2fs").args(["-O", "^dir_nlink"]).arg(&image)).ended(0);
    {
        let mounted = Mounted::new(&scratch, &image, &mnt, &[]);
        refused(&scratch, &mnt, &image, "it is inactive: ", &check);
        mounted.umount();
    }
    let checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    assert!(checked.code <= 1, "{checked:?}");
    {
        let mounted =
            Mounted::new(&scratch, &image, &mnt, &["--require-active", "--policy", "none", "-o", "ro"]);
        let next = format!("mount -o remount,rw {0}, then fs2 trim {0}", mnt.display());
        refused(&scratch, &mnt, &image, "it is mounted read-only", &next);
        run(Command::new("mount").args(["-o", "remount,rw"]).arg(&mnt)).ended(0);
        trimmed(&[&mnt]);
        mounted.umount().ended(0);
    }
    Mounted::new(&scratch, &image, &mnt, &["--require-active"]).umount().ended(0);
}
