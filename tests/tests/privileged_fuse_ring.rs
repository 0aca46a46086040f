//! A volume below a loop device with FUSE's requests by io_uring: what many writers wrote is there, the end is clean, and a
//! daemon that is killed leaves nothing that hangs. Sets the kernel's parameter, which every mount goes by, and puts it back:
//! a program of its own.

use std::path::Path;
use std::process::Command;

use fs2_tests::{KERNEL, Mounted, Need, Scratch, e2fsck_clean, mke2fs, needs, run};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers requests by io_uring; as it was before on drop.
struct Offered(String);

impl Offered {
    fn new() -> Offered {
        let former = std::fs::read_to_string(PARAMETER).expect("the parameter");
        std::fs::write(PARAMETER, "Y").expect("the parameter");
        Offered(former)
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let _ = std::fs::write(PARAMETER, &self.0);
    }
}

/// Requests of many sizes at depth, each block with its checksum, read back past the kernel's caches.
fn written_and_read(dir: &Path) {
    let file = dir.join("file");
    let fio = |more: &[&str]| {
        let mut command = Command::new("fio");
        command.args([
            "--name=x",
            "--randseed=7",
            "--size=48m",
            "--rw=randwrite",
            "--bsrange=4k-256k",
            "--ba=4k",
        ]);
        command.args([
            "--ioengine=libaio",
            "--iodepth=32",
            "--direct=1",
            "--verify=crc32c",
            "--verify_state_save=0",
        ]);
        run(command.arg(format!("--filename={}", file.display())).args(more)).ended(0);
    };
    fio(&["--verify_fatal=1"]);
    fio(&["--verify_only", "--verify_fatal=1"]);
}

#[test]
fn by_ring_from_end_to_end() {
    if !needs(KERNEL) || !needs(&[Need::FuseRing, Need::Program("fio")]) {
        return;
    }
    let _offered = Offered::new();
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 96 << 20, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &["--fuse-ring", "on"]);
    written_and_read(mounted.dir());
    mounted.cold();
    let digest = fs2_tests::file_digest(&mounted.dir().join("file"));
    mounted.umount().ended(0);
    e2fsck_clean(&image);

    // On a drive that takes its time.
    let slow = ["--fuse-ring", "on", "--drive", "wd800-repaired", "--time-scale", "0.02"];
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &slow);
    assert_eq!(fs2_tests::file_digest(&mounted.dir().join("file")), digest);
    mounted.umount().ended(0);

    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &["--fuse-ring", "auto"]);
    mounted.kill_daemon();
    drop(mounted);
    let checked = run(Command::new("e2fsck").args(["-f", "-y"]).arg(&image));
    assert!(matches!(checked.code, 0 | 1), "e2fsck ended {}", checked.code);
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &["--fuse-ring", "off"]);
    assert_eq!(fs2_tests::file_digest(&mounted.dir().join("file")), digest);
    mounted.umount().ended(0);
    e2fsck_clean(&image);
}
