//! `fs2 mount` that is given something to hold, is killed, or whose daemon dies before it is done: the next command knows what there is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fs2_tests::{KERNEL, Mounted, Need, Scratch, loops_below, mke2fs, mounts_below, needs, program, run};
use fs2_tools::kernel::mount_at;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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

/// `fs2 mount` below strace, which stops it at a system call as `inject` says.
fn stopped(scratch: &Scratch, inject: &str, image: &Path, dir: &Path) -> Command {
    let call = inject.split(':').next().unwrap_or_default();
    let mut strace = Command::new("strace");
    strace.env("FS2_RUNTIME_DIR", scratch.runtime()).arg("-o").arg(scratch.path("trace"));
    strace.args(["-e", &format!("trace={call}"), "-e", &format!("inject={inject}")]);
    strace.arg(program("fs2")).args(["mount", "--frontend=fuse", "--host-reserve=0%"]).arg(image).arg(dir);
    strace
}

#[track_caller]
fn wait(mut what: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !what() {
        assert!(Instant::now() < until, "in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the kernel has of a process: that which strace runs, the daemon that a mount starts.
fn children(pid: u32) -> Vec<Pid> {
    let all = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    all.split_whitespace().filter_map(|n| n.parse().ok()).map(Pid::from_raw).collect()
}

/// A program, killed on drop where it has not ended.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No record told of what was mounted: `fs2 umount` said that it was not mounted by FS2.
#[test]
fn a_mount_that_is_killed_behind_mount_2_is_known() {
    if !needs(KERNEL) || !needs(&[Need::Program("strace")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (volume(&scratch), scratch.make_dir("dir"));
    let strace = Running(stopped(&scratch, "mount:delay_exit=100000000", &image, &dir).spawn().unwrap());
    wait(|| mount_at(&dir).unwrap().is_some());
    let [mount] = children(strace.0.id())[..] else { panic!("one program") };
    kill(mount, Signal::SIGKILL).unwrap();
    drop(strace);
    let mounted = Mounted::found(&scratch, &dir);
    mounted.umount().ended(0);
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
}

/// What it began is undone by the daemon, though a record tells of it by then.
#[test]
fn a_mount_that_is_killed_before_mount_2_leaves_nothing() {
    if !needs(KERNEL) || !needs(&[Need::Program("strace")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (volume(&scratch), scratch.make_dir("dir"));
    run(&mut stopped(&scratch, "rename:signal=KILL", &image, &dir)).ended(-1);
    assert_eq!(mount_at(&dir).unwrap(), None);
    wait(|| mounts_below(scratch.dir()).is_empty() && loops_below(scratch.dir()).is_empty());
    Mounted::new(&scratch, &image, &dir, &[]).umount().ended(0);
}

/// Its daemon, which looks now and then whether somebody mounts what it serves, saw the next one do so, and that one said to kill it.
#[test]
fn a_mount_that_was_killed_before_it_wrote_a_record_is_not_in_the_way_of_the_next() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (volume(&scratch), scratch.make_dir("dir"));
    let key = fs2d::runtime::key_of(&image).unwrap();
    let at = |ending: &str| scratch.runtime().join(format!("{key}.{ending}"));
    // As it leaves it.
    let mut daemon = scratch.command("fs2d");
    daemon.args(["serve", "--frontend=fuse", "--until-unused"]).arg(at("mount")).arg(&image);
    daemon.stderr(Stdio::null());
    let _daemon = Running(daemon.spawn().unwrap());
    wait(|| fs2_control::Client::connect(at("ctl")).is_ok());
    Mounted::new(&scratch, &image, &dir, &[]).umount().ended(0);
}

/// Its FUSE mount stayed for good, and the next one lay above it.
#[test]
fn a_daemon_that_dies_while_it_is_mounted_leaves_no_fuse_mount() {
    if !needs(KERNEL) || !needs(&[Need::Program("strace")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (volume(&scratch), scratch.make_dir("dir"));
    // The mount itself lives, and then not.
    for killed in [false, true] {
        let strace = stopped(&scratch, "mount:delay_enter=3000000", &image, &dir).spawn().unwrap();
        let mut strace = Running(strace);
        wait(|| !loops_below(scratch.dir()).is_empty());
        let [mount] = children(strace.0.id())[..] else { panic!("one program") };
        let [daemon] = children(mount.as_raw() as u32)[..] else { panic!("one daemon") };
        kill(daemon, Signal::SIGKILL).unwrap();
        if killed {
            kill(mount, Signal::SIGKILL).unwrap();
        }
        assert!(!strace.0.wait().unwrap().success());
        assert_eq!(mounts_below(scratch.dir()).len(), usize::from(killed));
    }
    // As a version left it that wrote the record last.
    wait(|| loops_below(scratch.dir()).is_empty());
    for left in std::fs::read_dir(scratch.runtime()).unwrap().flatten().map(|e| e.path()) {
        if left.extension().is_some_and(|x| x == "mount") {
            std::fs::remove_file(left).unwrap();
        }
    }
    let mounted = Mounted::new(&scratch, &image, &dir, &[]);
    // That of the volume, and one below it.
    assert_eq!(mounts_below(scratch.dir()).len(), 2, "{:?}", mounts_below(scratch.dir()));
    mounted.umount().ended(0);
    assert_eq!(mounts_below(scratch.dir()), Vec::<PathBuf>::new());
}

/// The command that was told left out the table, without which chkfs2 knows of no FS2 volume there.
#[test]
fn a_daemon_that_died_is_told_of_with_the_table_of_its_volume() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir, table) = (scratch.path("image"), scratch.path("dir"), scratch.path("a table"));
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    let table_at = format!("--table={}", table.display());
    scratch.run("mkfs2", [Path::new(&table_at), &image]).ended(0);
    let remedy = format!("chkfs2 -f -p --table '{}' {}", table.display(), image.display());
    let mounted = Mounted::new(&scratch, &image, &dir, &[&table_at, "--require-active"]);
    mounted.kill_daemon();
    wait(|| kill(mounted.pid(), None).is_err());
    scratch.run("fs2", [Path::new("status"), &dir]).ended(2).says(&remedy);
    mounted.umount().ended(4).says(&format!("before the next mount: {remedy}"));
    let mounted = Mounted::new(&scratch, &image, &dir, &[&table_at]);
    mounted.kill_daemon();
    wait(|| kill(mounted.pid(), None).is_err());
    run(Command::new("umount").arg(&dir)).ended(0);
    wait(|| loops_below(scratch.dir()).is_empty());
    scratch.run("fs2", ["status"]).ended(0).says(&format!("before the next mount: {remedy}"));
    // As it is told, in a shell that finds it.
    let script = format!("{}/{remedy}", program("chkfs2").parent().unwrap().display());
    let checked = run(Command::new("sh").args(["-c", &script]).env("FS2_RUNTIME_DIR", scratch.runtime()));
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    Mounted::new(&scratch, &image, &dir, &[&table_at, "--require-active"]).umount().ended(0);
}

/// The volume was served and mounted first, then all of it undone, and a file of the runtime directory was blamed.
#[test]
fn a_directory_that_cannot_be_written_down_is_refused_before_anything_begins() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.dir().join(OsStr::from_bytes(b"md\xff"));
    std::fs::create_dir(&dir).unwrap();
    let refused = scratch.run("fs2", [Path::new("mount"), "--frontend=fuse".as_ref(), &image, &dir]);
    refused.ended(32).says(&format!("{} is no UTF-8", dir.display()));
    assert!(!scratch.runtime().exists(), "a daemon was started");
}
