//! Volumes mounted by `fs2 mount`, and plain ones beside them. Both are unmounted on drop.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fs2_tools::kernel::{FuseWatchdog, loops, mount_at, mounts, unmount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::{Done, Scratch, run, run_within};

/// A FUSE request may wait this long while nothing else gets done either.
const STALL: Duration = Duration::from_secs(60);

/// Rounds of reading, of which three are enough on a machine of its own.
const READ_MAX: usize = 30;

/// Tries again for five seconds while `busy`: another test's child, between its fork and its exec, holds what this
/// process had open.
pub fn unless_busy<T>(mut act: impl FnMut() -> T, busy: impl Fn(&T) -> bool) -> T {
    for _ in 0..50 {
        let done = act();
        if !busy(&done) {
            return done;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    act()
}

/// An umount that ended with that.
pub fn is_busy(done: &Done) -> bool {
    done.code == 32 && done.err.contains("busy")
}

/// What is mounted at or below `dir`.
///
/// # Panics
/// Where /proc cannot be read.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let all = mounts().expect("the mount table");
    all.into_iter().map(|m| m.target).filter(|t| t.starts_with(dir)).collect()
}

/// Loop devices on files below `dir`.
///
/// # Panics
/// Where sysfs cannot be read.
pub fn loops_below(dir: &Path) -> Vec<PathBuf> {
    let all = loops().expect("the loop devices");
    all.into_iter().filter(|l| l.file.starts_with(dir)).map(|l| l.device).collect()
}

/// A volume behind a daemon: FUSE, a loop device, the kernel's ext2.
#[derive(Debug)]
pub struct Mounted<'a> {
    scratch: &'a Scratch,
    dir: PathBuf,
    pid: Pid,
    block_device: PathBuf,
    carrier: PathBuf,
    ended: bool,
    _watchdog: FuseWatchdog,
}

/// How full the machine is that runs the tests is no matter, but where a test says so.
pub(crate) fn whatever_is_free(args: &[&str]) -> &'static [&'static str] {
    if args.contains(&"--host-reserve") { &[] } else { &["--host-reserve", "0%"] }
}

impl<'a> Mounted<'a> {
    /// `fs2 mount --frontend fuse ARGS IMAGE DIR`, which must succeed.
    ///
    /// # Panics
    /// Where it does not.
    #[track_caller]
    pub fn new(scratch: &'a Scratch, image: &Path, dir: &Path, args: &[&str]) -> Mounted<'a> {
        Mounted::and_said(scratch, image, dir, args).0
    }

    /// As [`Mounted::new`], with what it said.
    ///
    /// # Panics
    /// Where it does not succeed.
    #[track_caller]
    pub fn and_said(scratch: &'a Scratch, image: &Path, dir: &Path, args: &[&str]) -> (Mounted<'a>, Done) {
        std::fs::create_dir_all(dir).expect("a directory to mount on");
        let mut command = scratch.command("fs2");
        command
            .args(["mount", "--frontend", "fuse", "-o", "noatime"])
            .args(whatever_is_free(args))
            .args(args);
        command.arg(image).arg(dir);
        let said = run(&mut command).ended(0);
        (Mounted::found(scratch, dir), said)
    }

    /// What `fs2 mount` mounted at `dir`.
    ///
    /// # Panics
    /// Where it did not.
    #[track_caller]
    pub fn found(scratch: &'a Scratch, dir: &Path) -> Mounted<'a> {
        let record = record_of(scratch, dir).expect("the mount is written down");
        let path = |name: &str| PathBuf::from(record[name].as_str().unwrap_or_default());
        let (block_device, carrier) = (path("block_device"), path("carrier"));
        let connection = mount_at(&carrier).expect("the mount table").expect("a FUSE mount").device.1;
        let name = block_device.file_name().unwrap_or_default().to_owned();
        let stat = Path::new("/sys/block").join(name).join("stat");
        // Requests that ended, of all kinds: reads, writes, discards, flushes.
        let done = move || {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            let fields: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            [0, 4, 11, 15].iter().filter_map(|&i| fields.get(i)).sum()
        };
        Mounted {
            scratch,
            dir: dir.to_owned(),
            pid: Pid::from_raw(record["pid"].as_i64().unwrap_or(0) as i32),
            block_device,
            carrier,
            ended: false,
            _watchdog: FuseWatchdog::start(connection, STALL, done).expect("a watchdog"),
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The daemon's process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// `fs2 status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        run(self.scratch.command("fs2").args(["status", "--json"]).arg(&self.dir)).ended(0).json()
    }

    /// Unmounts it and mounts it anew with nothing in the kernel's caches; the daemon stays.
    ///
    /// # Panics
    /// Where the kernel says no.
    #[track_caller]
    pub fn cold(&self) {
        let at = mount_at(&self.dir).expect("the mount table").expect("it is mounted");
        let options = if at.has_option("discard") { "noatime,discard" } else { "noatime" };
        // Held open, or the loop device would go with the mount.
        let _open = File::open(&self.block_device).expect("the loop device");
        unless_busy(|| run(Command::new("umount").arg(&self.dir)), is_busy).ended(0);
        run(Command::new("blockdev").arg("--flushbufs").arg(&self.block_device)).ended(0);
        run(Command::new("mount").args(["-t", "ext2", "-o", options]).args([&self.block_device, &self.dir]))
            .ended(0);
    }

    /// Reads cold, so often at the least, until the daemon has counted more than this of all of these: on a busy machine
    /// copies are made later.
    ///
    /// # Panics
    /// Where it never has.
    #[track_caller]
    pub fn read_until(&self, least: usize, counted: &[(&str, u64)], mut read: impl FnMut()) -> Value {
        let mut status = Value::Null;
        for round in 1..=READ_MAX {
            self.cold();
            read();
            status = self.status();
            if round >= least && counted.iter().all(|(counter, n)| status[counter].as_u64() > Some(*n)) {
                return status;
            }
        }
        panic!("never more than {counted:?}: {status}");
    }

    /// `fs2 trim`.
    #[track_caller]
    pub fn trim(&self) {
        self.scratch.run("fs2", [Path::new("trim"), &self.dir]).ended(0);
    }

    /// `fs2 umount`, whatever comes of it.
    pub fn umount(mut self) -> Done {
        let done = unless_busy(|| self.scratch.run("fs2", [Path::new("umount"), &self.dir]), is_busy);
        self.ended = mount_at(&self.dir).expect("the mount table").is_none() && self.is_gone();
        done
    }

    /// Kills the daemon with SIGKILL.
    ///
    /// # Panics
    /// Where there is none.
    pub fn kill_daemon(&self) {
        kill(self.pid, Signal::SIGKILL).expect("the daemon runs");
    }

    fn is_gone(&self) -> bool {
        kill(self.pid, None).is_err()
    }

    fn undo(&self) {
        if mount_at(&self.dir).ok().flatten().is_some() && unmount(&self.dir, false).is_err() {
            let _ = unmount(&self.dir, true);
        }
        let _ = kill(self.pid, Signal::SIGTERM);
        for _ in 0..100 {
            if self.is_gone() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if !self.is_gone() {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
        if mount_at(&self.carrier).ok().flatten().is_some() {
            let _ = unmount(&self.carrier, true);
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let asked = std::panic::catch_unwind(|| {
            let mut command = self.scratch.command("fs2");
            run_within(command.arg("umount").arg(&self.dir), Duration::from_secs(60)).code
        });
        if !matches!(asked, Ok(0 | 4)) || !self.is_gone() {
            self.undo();
        }
    }
}

/// What `fs2 mount` wrote down of a mount at `dir`.
fn record_of(scratch: &Scratch, dir: &Path) -> Option<Value> {
    let dir = dir.canonicalize().ok()?;
    let entries = std::fs::read_dir(scratch.runtime()).ok()?;
    let records = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "mount"));
    let mut values =
        records.filter_map(|p| serde_json::from_str::<Value>(&std::fs::read_to_string(p).ok()?).ok());
    values.find(|v| v["dir"].as_str().is_some_and(|d| Path::new(d) == dir))
}

/// An image mounted without FS2, over a loop device of its own.
#[derive(Debug)]
pub struct PlainMount {
    dir: PathBuf,
}

impl PlainMount {
    /// `mount -o loop,OPTIONS`.
    ///
    /// # Panics
    /// Where the kernel says no.
    #[track_caller]
    pub fn new(image: &Path, dir: &Path, options: &str) -> PlainMount {
        std::fs::create_dir_all(dir).expect("a directory to mount on");
        let options = format!("loop,noatime,{options}");
        run(Command::new("mount").args(["-t", "ext2", "-o", &options]).args([image, dir])).ended(0);
        PlainMount { dir: dir.to_owned() }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for PlainMount {
    fn drop(&mut self) {
        if unless_busy(|| unmount(&self.dir, false), Result::is_err).is_err() {
            let _ = unmount(&self.dir, true);
        }
    }
}
