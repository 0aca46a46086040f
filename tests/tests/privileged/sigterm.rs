//! SIGTERM to the daemon of a mounted volume in use: it ends by itself, sets no mark, and the volume says how it
//! becomes active again. What fsync promised is there. Where the volume is unmounted meanwhile, all is as after any unmount.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fs2_store::{FileStore, Lock, OpenOptions};
use fs2_tests::{KERNEL, Mounted, Rng, Scratch, is_busy, mke2fs, needs, run, unless_busy};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The daemon that was started for it held the volume for ever.
#[test]
fn a_mount_that_is_interrupted_leaves_nothing() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.make_dir("mnt"));
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    // As long as it is used, the mount's daemon waits.
    let options = OpenOptions { write: true, lock: Lock::Exclusive, ..OpenOptions::default() };
    let held = FileStore::open(&image, options).unwrap();
    let mut mount = scratch.command("fs2");
    mount.args(["mount", "--lock-wait", "600"]).args([&image, &mnt]).stderr(Stdio::piped());
    let mount = mount.spawn().unwrap();
    let logs = || {
        let files = fs::read_dir(scratch.runtime()).into_iter().flatten().flatten().map(|e| e.path());
        files.filter(|path| path.extension().is_some_and(|x| x == "log")).collect::<Vec<_>>()
    };
    let start = Instant::now();
    while logs().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "no daemon");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(mount.id() as i32), Signal::SIGINT).unwrap();
    let done = mount.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(32) && said.contains("interrupted: nothing is mounted"), "{said}");
    drop(held);
    // Nobody else waits for it; another test's child, between its fork and its exec, has it for a moment.
    Mounted::new(&scratch, &image, &mnt, &["--lock-wait", "60"]).umount().ended(0);
}

/// A machine that goes down asks the daemon to end before anybody unmounts: what programs had written since the last flush was lost.
#[test]
fn what_was_not_flushed_is_written_before_the_daemon_ends() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("mnt"));
    mke2fs(&image, 64 << 20, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    let bytes = Rng::new(7).bytes(3 << 20);
    // Open, so that nobody unmounts it meanwhile.
    let mut file = fs::File::create(mnt.join("letter")).unwrap();
    file.write_all(&bytes).unwrap();
    kill(mounted.pid(), Signal::SIGTERM).unwrap();
    let asked = Instant::now();
    while kill(mounted.pid(), None).is_ok() {
        assert!(asked.elapsed() < Duration::from_secs(120), "the daemon does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whatever else syncs the machine meanwhile.
    let files = fs::read_dir(scratch.runtime()).unwrap().map(|entry| entry.unwrap().path());
    let log = files.filter(|path| path.extension().is_some_and(|x| x == "log")).map(fs::read_to_string);
    let log = log.map(Result::unwrap).collect::<String>();
    assert!(log.contains("what it has not written yet is written first"), "{log}");
    assert!(!log.contains("not all written"), "{log}");
    drop(file);
    mounted.umount();
    let checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    assert!(fs::read(mnt.join("letter")).unwrap() == bytes);
    mounted.umount().ended(0);
}

#[test]
fn sigterm_below_a_mount_in_use_ends_the_daemon() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("mnt"));
    mke2fs(&image, 256 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--policy", "torture", "--require-active"]);
    let promised = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rng = Rng::new(5);
            for n in 0.. {
                let (name, bytes) = (format!("{n}"), rng.bytes(20_000));
                let write = || -> std::io::Result<()> {
                    let mut file = fs::File::create(mnt.join(&name))?;
                    file.write_all(&bytes)?;
                    file.sync_all()?;
                    fs::File::open(&mnt)?.sync_all()
                };
                if write().is_err() {
                    return;
                }
                promised.lock().unwrap().push((name, bytes));
            }
        });
        let start = Instant::now();
        while promised.lock().unwrap().len() < 50 {
            assert!(!writer.is_finished() && start.elapsed() < Duration::from_secs(120), "no load");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(mounted.pid(), Signal::SIGTERM).unwrap();
        let asked = Instant::now();
        while kill(mounted.pid(), None).is_ok() {
            assert!(asked.elapsed() < Duration::from_secs(120), "the daemon does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    mounted.umount();
    let promised = promised.into_inner().unwrap();
    assert!(promised.len() >= 50);
    let remedy = format!("chkfs2 -f -p {}", image.display());
    scratch
        .run("fs2", ["mount", "--require-active", image.to_str().unwrap(), mnt.to_str().unwrap()])
        .ended(32)
        .says(&remedy);
    let mut checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    if checked.code & 4 != 0 {
        // Without a journal, a file being made may have no name yet; that is for a person to decide.
        run(Command::new("e2fsck").arg("-fy").arg(&image));
        checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    }
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    for (name, bytes) in &promised {
        assert!(fs::read(mnt.join(name)).unwrap() == *bytes, "{name} differs");
    }
    mounted.umount().ended(0);
}

/// Its record stayed, and every command said that the daemon had died and that the volume was to be checked.
#[test]
fn who_is_unmounted_after_sigterm_ends_in_order() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("mnt"));
    mke2fs(&image, 64 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let ends = |mounted: &Mounted| {
        let asked = Instant::now();
        while kill(mounted.pid(), None).is_ok() {
            assert!(asked.elapsed() < Duration::from_secs(120), "the daemon does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    fs::write(mnt.join("before"), "before").unwrap();
    kill(mounted.pid(), Signal::SIGTERM).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    fs::write(mnt.join("after"), "after").unwrap();
    unless_busy(|| run(Command::new("umount").arg("-i").arg(&mnt)), is_busy).ended(0);
    ends(&mounted);
    let said = scratch.run("fs2", ["status"]).ended(0);
    assert!(said.out.contains("no volume is mounted") && said.err.is_empty(), "{said:?}");
    let left = fs::read_dir(scratch.runtime()).unwrap().flatten().map(|e| e.path());
    let left: Vec<_> = left.filter(|path| path.extension().is_none_or(|x| x != "stamp")).collect();
    assert!(left.is_empty(), "{left:?}");
    // By a command of ours that is at it already.
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    assert_eq!(fs::read(mnt.join("after")).unwrap(), b"after");
    kill(mounted.pid(), Signal::SIGTERM).unwrap();
    mounted.umount().ended(0);
    scratch.run("fs2", ["status"]).ended(0).says("no volume is mounted");
    Mounted::new(&scratch, &image, &mnt, &["--require-active"]).umount().ended(0);
}
