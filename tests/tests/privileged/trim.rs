//! A trim of a volume that nobody checked after a kill. ext2's fsync writes no bitmap: on the disk the blocks of a file that was synced are
//! free still, and by FUSE and a loop device a discard comes as a request that may want zeroes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use fs2_tests::{KERNEL, Mounted, Rng, Scratch, mke2fs, needs, run};

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
