//! `fs2 mount` that is given something to hold, is killed, or whose daemon dies before it is done: the next command knows what there is.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs2_tests::{KERNEL, Mounted, Need, Scratch, mke2fs, needs, program, run};

/// A volume of 64 MiB.
fn volume(scratch: &Scratch) -> PathBuf {
    let image = scratch.path("image");
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    image
}

/// A script's lock was held by the daemon for as long as the volume was mounted, so that the script's next run, which was to unmount it,
/// waited for the lock for good.
#[test]
fn a_daemon_keeps_nothing_open_that_its_starter_had() {
    if !needs(KERNEL) || !needs(&[Need::Program("flock")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir, lock) = (volume(&scratch), scratch.make_dir("dir"), scratch.path("lock"));
    let locked = |args: &[&Path]| {
        let mut flock = Command::new("flock");
        flock.env("FS2_RUNTIME_DIR", scratch.runtime()).arg("-n").arg(&lock).arg(program("fs2"));
        run(flock.args(args))
    };
    locked(&["mount".as_ref(), "--frontend=fuse".as_ref(), &image, &dir]).ended(0);
    let mounted = Mounted::found(&scratch, &dir);
    locked(&["status".as_ref(), &dir]).ended(0).says("active");
    mounted.umount().ended(0);
}
