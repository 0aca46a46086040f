//! Volumes that the kernel uses are left alone, by every program.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fs2_tests::{
    KERNEL, LoopDev, Mounted, PlainMount, Scratch, Served, file_digest, loops_below, mke2fs, needs, run,
};
use fs2_tools::kernel::unmount;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn refused_by_all(scratch: &Scratch, volume: &Path, says: &str) {
    let dir = scratch.make_dir("dir");
    scratch.run("mkfs2", [volume]).ended(1).says(says);
    scratch.run("mkfs2", [Path::new("--undo"), volume]).ended(1).says(says);
    for force in ["-q", "-qF"] {
        let mut mkfs = scratch.command("fs2");
        run(mkfs.arg0("mkfs.fs2").arg(force).arg(volume)).ended(1).says(says);
    }
    scratch.run("chkfs2", [Path::new("-p"), volume]).ended(8).says(says);
    scratch
        .run("fs2d", ["serve", "--lock-wait", "0"].map(Path::new).into_iter().chain([volume]))
        .ended(2)
        .says(says);
    scratch
        .run("fs2", ["mount", "--lock-wait", "0"].map(Path::new).into_iter().chain([volume, &dir]))
        .ended(32)
        .says(says);
}

#[test]
fn a_mounted_volume_and_one_on_a_loop_device() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let before = file_digest(&image);
    let plain = PlainMount::new(&image, &scratch.path("plain"), "ro");
    let [device] = &loops_below(scratch.dir())[..] else { panic!("one loop device") };
    let says =
        format!("{} is mounted at {}; unmount it first: umount", image.display(), plain.dir().display());
    refused_by_all(&scratch, &image, &says);
    let says = format!("{} is mounted at {}", device.display(), plain.dir().display());
    refused_by_all(&scratch, device, &says);
    drop(plain);

    let attached = LoopDev::attach(&image, &["--read-only"]).unwrap();
    let device = attached.path().display();
    let says =
        format!("{} is the backing of {device}; detach that first: losetup -d {device}", image.display());
    refused_by_all(&scratch, &image, &says);
    drop(attached);
    assert_eq!(file_digest(&image), before);
}

#[test]
fn mounted_by_fs2_already() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &[]);
    let says = format!("{} is in use by process {}", image.display(), mounted.pid());
    refused_by_all(&scratch, &image, &says);
    let again = scratch.run("fs2", [Path::new("mount"), &image, mounted.dir()]).ended(32);
    again.says(&format!("fs2 umount {} first", mounted.dir().display()));
    // "End that first" was said of the daemon, below programs that used the volume.
    let says = format!("unmount it first: fs2 umount {}", mounted.dir().display());
    scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]).ended(8).says(&says);
    scratch.run("mkfs2", [&image]).ended(1).says(&says);
    mounted.umount().ended(0);
    scratch.run("fs2", [Path::new("umount"), &image]).ended(32).says("is not mounted by FS2");
}

/// The lock of a volume that `fs2d serve` serves was waited for, in vain, and nobody said whose it was.
#[test]
fn served_already() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let made = scratch.path("image");
    mke2fs(&made, 64 << 20, &["-t", "ext2"]);
    // Its control socket, which has the image's name in a test, is where it is by default.
    let image = scratch.path(&fs2d::runtime::key_of(&made).unwrap());
    std::fs::rename(&made, &image).unwrap();
    let served = Served::found(&scratch, &image, &[]);
    let dir = scratch.make_dir("dir");
    let refused = scratch.run("fs2", [Path::new("mount"), "--lock-wait=0".as_ref(), &image, &dir]).ended(32);
    refused.says(&format!("{} is served by process {} (nbd unix:", image.display(), served.pid()));
    served.stop();
    scratch.run("fs2", [Path::new("mount"), "--frontend=fuse".as_ref(), &image, &dir]).ended(0);
    scratch.run("fs2", [Path::new("umount"), &dir]).ended(0);
}

/// It got a table within the table's volume, and a mark that the daemon below knew nothing of.
#[test]
fn what_a_daemon_serves_by_fuse_is_not_taken_for_a_volume_of_its_own() {
    if !needs(KERNEL) {
        return;
    }
    struct Daemon(std::process::Child);
    impl Drop for Daemon {
        fn drop(&mut self) {
            let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
    let scratch = Scratch::new();
    let (image, dir) = (scratch.path("my image"), scratch.make_dir("fuse"));
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mut serve = scratch.command("fs2d");
    serve.args(["serve", "--frontend=fuse", "--policy=none", "--fuse-dir"]).args([&dir, &image]);
    let daemon = Daemon(serve.stderr(Stdio::null()).spawn().unwrap());
    let file = dir.join("volume");
    let until = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < until, "it is not served");
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = file_digest(&file);
    let says = |what: &Path| {
        let (what, image, dir) = (what.display(), image.display(), dir.display());
        format!("{what} leads to {image}, which a daemon of FS2 serves at {dir}; give that volume itself")
    };
    refused_by_all(&scratch, &file, &says(&file));
    let lower = LoopDev::attach(&file, &[]).unwrap();
    refused_by_all(&scratch, lower.path(), &says(lower.path()));
    // Further down, and from a byte on.
    let upper = LoopDev::attach(lower.path(), &["--offset", "1M"]).unwrap();
    scratch.run("mkfs2", [upper.path()]).ended(1).says(&says(upper.path()));
    drop(upper);
    drop(lower);
    assert_eq!(file_digest(&file), before);
    drop(daemon);
    Mounted::new(&scratch, &image, &scratch.path("mnt"), &["--require-active"]).umount().ended(0);
}

/// The daemon stayed and held the volume, since no record told of a mount that it could have ended with.
#[test]
fn a_mount_that_is_killed_leaves_no_daemon() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (scratch.path("image"), scratch.make_dir("dir"));
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    let mut mount = scratch.command("fs2");
    // On a slow drive mount(2) takes its time.
    mount.args(["mount", "--frontend=fuse", "--drive=wd800-repaired", "--time-scale=30"]);
    let mut mount = mount.arg(&image).arg(&dir).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    let wait = |what: &mut dyn FnMut() -> bool| {
        while !what() {
            assert!(Instant::now() < until, "in vain");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait(&mut || !loops_below(scratch.dir()).is_empty());
    mount.kill().unwrap();
    mount.wait().unwrap();
    // The kernel may have gone through with it.
    let _ = unmount(&dir, false);
    let control = || {
        std::fs::read_dir(scratch.runtime())
            .unwrap()
            .flatten()
            .any(|f| f.path().extension().is_some_and(|x| x == "ctl"))
    };
    wait(&mut || !control());
    scratch.run("fs2", [Path::new("mount"), "--frontend=fuse".as_ref(), &image, &dir]).ended(0);
    scratch.run("fs2", [Path::new("umount"), &dir]).ended(0);
}

/// Its log was taken from it, and with that the right to end its daemon, which two could have then.
#[test]
fn another_name_of_what_is_mounted() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, other) = (scratch.path("image"), scratch.path("other"));
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    std::fs::hard_link(&image, &other).unwrap();
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &[]);
    let logs = || {
        let files = std::fs::read_dir(scratch.runtime()).unwrap().map(|e| e.unwrap());
        let logs = files.filter(|f| f.path().extension().is_some_and(|x| x == "log"));
        logs.map(|f| f.metadata().unwrap().ino()).collect::<Vec<_>>()
    };
    let before = logs();
    let again = scratch.run("fs2", [Path::new("mount"), &other, &scratch.make_dir("again")]).ended(32);
    again.says(&format!("fs2 umount {} first", mounted.dir().display()));
    // "End that first" was said of the daemon, below programs that used the volume.
    let says = format!("unmount it first: fs2 umount {}", mounted.dir().display());
    scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]).ended(8).says(&says);
    scratch.run("mkfs2", [&image]).ended(1).says(&says);
    assert!(before.len() == 1 && logs() == before);
    mounted.umount().ended(0);
}

/// It was said to be unmounted, with exit code 0.
#[test]
fn what_is_covered_is_not_unmounted() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &[]);
    let dir = mounted.dir();
    run(Command::new("mount").args(["-t", "tmpfs", "cover"]).arg(dir)).ended(0);
    let refused = scratch.run("fs2", [Path::new("umount"), dir]);
    run(Command::new("umount").arg(dir)).ended(0);
    refused.ended(32).says("tmpfs from cover is mounted above the volume");
    mounted.umount().ended(0);
}

/// The loop device of a mount was looked for by the link's name and not found: the volume was taken for unmounted, and a second
/// mount ended the first one's daemon. By a relative name the daemon made another directory, and was not found there.
#[test]
fn a_runtime_directory_by_any_name() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt, again) = (scratch.path("image"), scratch.make_dir("mnt"), scratch.make_dir("again"));
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    std::os::unix::fs::symlink(scratch.make_dir("run"), scratch.path("link")).unwrap();
    for name in [scratch.path("link"), "run".into()] {
        let fs2 = |command: &str, paths: &[&Path]| {
            let mut fs2 = scratch.command("fs2");
            fs2.env("FS2_RUNTIME_DIR", &name).current_dir(scratch.dir()).arg(command).args(paths);
            run(&mut fs2)
        };
        fs2("mount", &["--frontend=fuse".as_ref(), "--host-reserve=0%".as_ref(), &image, &mnt]).ended(0);
        let mounted = Mounted::found(&scratch, &mnt);
        fs2("mount", &[&image, &again]).ended(32).says("is in use by process");
        std::fs::write(mnt.join("file"), "still there").unwrap();
        run(Command::new("sync").arg("-f").arg(mnt.join("file"))).ended(0);
        let told = fs2("status", &[]).ended(0).out;
        assert_eq!(told.lines().count(), 1, "{told}");
        mounted.umount().ended(0);
    }
}
