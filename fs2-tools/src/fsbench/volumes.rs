//! Volumes of a benchmark's own: images made, mounted plainly or behind a daemon that models a drive.
//!
//! Everything lies in one directory, and each value undoes on drop what it did.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use fs2_engine::PolicyKind;
use fs2d::settings::{FrontendKind, Settings};

use super::BenchError;
use super::control::signalled;
use crate::kernel::{LoopDevice, LoopOptions, MountGuard, MountOptions, mount_ext2};
use crate::volume::{self, MountRecord};

/// What serves a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Plain ext2: the daemon passes everything through, so that the drive is the same.
    Ext2,
    /// Copies made once, by hand, of every file of the workload: the paper's FS2-static.
    Static,
    /// A policy of the daemon's that copies by itself.
    Policy(PolicyKind),
}

impl System {
    /// What it is called.
    pub fn name(self) -> String {
        match self {
            System::Ext2 => "ext2".into(),
            System::Static => "static".into(),
            System::Policy(kind) => kind.to_string(),
        }
    }

    fn policy(self) -> PolicyKind {
        match self {
            System::Ext2 => PolicyKind::None,
            System::Static => PolicyKind::Static,
            System::Policy(kind) => kind,
        }
    }
}

impl std::str::FromStr for System {
    type Err = String;
    fn from_str(s: &str) -> Result<System, String> {
        match s {
            "ext2" | "none" => Ok(System::Ext2),
            "static" => Ok(System::Static),
            _ => s
                .parse()
                .map(System::Policy)
                .map_err(|_| format!("no system '{s}'; there are ext2, static, fs2-2005, fs2")),
        }
    }
}

/// How a volume is served.
#[derive(Clone, Debug)]
pub struct Serve {
    /// What serves it.
    pub system: System,
    /// The drive that is modelled: a profile's name or file.
    pub drive: String,
    /// Real seconds to one of the drive's.
    pub time_scale: f64,
    /// Options of the ext2 mount.
    pub options: Vec<String>,
}

fn failed(what: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(what.to_string())
}

/// Why volumes cannot be mounted here; `None` where they can.
pub fn missing() -> Option<String> {
    let opens = |path| File::options().read(true).write(true).open(path).is_ok();
    if !nix::unistd::geteuid().is_root() {
        return Some("root, to mount volumes (sudo)".into());
    }
    if !opens("/dev/fuse") {
        return Some("/dev/fuse (modprobe fuse)".into());
    }
    if !opens("/dev/loop-control") {
        return Some("/dev/loop-control (modprobe loop)".into());
    }
    let found = tool("mke2fs").arg("-V").output();
    found.is_err().then(|| "mke2fs (apt-get install e2fsprogs)".into())
}

/// Root's tools are often not on a user's path.
fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", path);
    command
}

fn run(command: &mut Command) -> Result<(), BenchError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|e| failed(format!("{name}: {e}")))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(failed(format!("{name}: {}: {}", done.status, said.trim())))
}

/// A sparse image of `bytes` with an ext2 file system made with `format`, which is an FS2 volume too: it has its
/// table wherever it is served, so that all systems have the same layout.
///
/// # Errors
/// What mke2fs or mkfs2 says; the image is removed.
pub fn make_image(image: &Path, bytes: u64, format: &[String]) -> Result<(), BenchError> {
    let file = File::create(image).map_err(BenchError::at(image, "making it"))?;
    let made = file
        .set_len(bytes)
        .map_err(BenchError::at(image, "making it"))
        .and_then(|()| run(tool("mke2fs").args(["-q", "-F", "-t", "ext2"]).args(format).arg(image)))
        .and_then(|()| mkfs2(&[image.as_os_str().to_owned()]));
    if made.is_err() {
        let _ = std::fs::remove_file(image);
    }
    made
}

fn mkfs2(args: &[OsString]) -> Result<(), BenchError> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once(OsString::from("mkfs2")).chain(args.iter().cloned());
    match crate::mkfs2::run(args, &mut out, &mut err) {
        0 => Ok(()),
        _ => Err(failed(String::from_utf8_lossy(&err).trim())),
    }
}

/// Marks a volume that was mounted plainly as good again.
///
/// # Errors
/// What chkfs2 says.
pub fn mark(image: &Path) -> Result<(), BenchError> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = [OsString::from("chkfs2"), "-f".into(), "-p".into(), image.as_os_str().to_owned()];
    match crate::chkfs2::run_within(args, &mut out, &mut err) {
        // 1: something was mended, if only the mark.
        0 | 1 => Ok(()),
        _ => Err(failed(String::from_utf8_lossy(&err).trim())),
    }
}

/// Copies files (paths from the volume's root) to one place in the middle of the volume, in this order.
///
/// # Errors
/// What mkfs2 says.
pub fn replicate(image: &Path, files: &[PathBuf], blocks: u64) -> Result<(), BenchError> {
    let list = image.with_extension("files");
    let text: Vec<u8> =
        files.iter().flat_map(|f| [f.as_os_str().as_encoded_bytes(), b"\n"].concat()).collect();
    std::fs::write(&list, text).map_err(BenchError::at(&list, "writing"))?;
    let near = (blocks / 2).to_string();
    let mut args: Vec<OsString> = ["replicate", "--near", &near, "--files"].map(OsString::from).to_vec();
    args.extend([list.as_os_str().to_owned(), image.as_os_str().to_owned()]);
    let done = mkfs2(&args);
    let _ = std::fs::remove_file(&list);
    done
}

/// Copies an image with its holes.
///
/// # Errors
/// What cp says.
pub fn copy_image(from: &Path, to: &Path) -> Result<(), BenchError> {
    run(Command::new("cp").args(["--sparse=always", "--reflink=auto", "--"]).args([from, to]))
}

/// `e2fsck -fn`, which must find nothing.
///
/// # Errors
/// What it found.
pub fn check(image: &Path) -> Result<(), BenchError> {
    let done =
        tool("e2fsck").args(["-f", "-n"]).arg(image).output().map_err(|e| failed(format!("e2fsck: {e}")))?;
    match done.status.code() {
        Some(0) => Ok(()),
        _ => Err(failed(format!(
            "e2fsck of {}: {}",
            image.display(),
            String::from_utf8_lossy(&done.stdout).trim()
        ))),
    }
}

/// An image mounted by the kernel alone, as fast as the machine is; unmounted on drop.
#[derive(Debug)]
pub struct Plain {
    // In this order: the mount goes before its device.
    guard: MountGuard,
    device: LoopDevice,
}

impl Plain {
    /// Mounts `image` on `dir`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn mount(image: &Path, dir: &Path) -> Result<Plain, BenchError> {
        let device = LoopDevice::attach(image, &LoopOptions::default()).map_err(failed)?;
        let options = MountOptions { extra: vec!["noatime".into()], ..MountOptions::default() };
        let guard = mount_ext2(&device.path(), dir, options).map_err(failed)?;
        Ok(Plain { guard, device })
    }

    /// Unmounts.
    ///
    /// # Errors
    /// Where it is in use.
    pub fn unmount(mut self) -> Result<(), BenchError> {
        self.guard.unmount().map_err(failed)?;
        self.device.detach().map_err(failed)
    }
}

/// A volume behind a daemon; unmounted on drop, and the daemon ended.
#[derive(Debug)]
pub struct Served {
    record: Option<MountRecord>,
}

/// The daemon's settings by its own command line, so that their defaults are its own.
#[derive(Parser)]
struct Only {
    #[command(flatten)]
    settings: Settings,
}

impl Served {
    /// Serves `image` and mounts it on `dir`.
    ///
    /// # Errors
    /// What the daemon or the kernel says.
    pub fn mount(image: &Path, dir: &Path, how: &Serve) -> Result<Served, BenchError> {
        let (policy, scale) = (how.system.policy().to_string(), how.time_scale.to_string());
        // What is measured is not to depend on how full this machine is.
        let args = [
            "fsbench",
            "--policy",
            &policy,
            "--drive",
            &how.drive,
            "--time-scale",
            &scale,
            "--host-reserve",
            "0%",
        ];
        let active = if how.system == System::Ext2 { "--passive" } else { "--require-active" };
        let parsed = Only::try_parse_from(args.into_iter().chain([active]))
            .map_err(|e| BenchError::Usage(e.to_string()))?;
        let plan = volume::Plan {
            device: image.to_owned(),
            dir: dir.to_owned(),
            frontend: Some(FrontendKind::Fuse),
            settings: parsed.settings,
            options: how.options.clone(),
            queues: None,
            connections: 1,
        };
        let (record, _) = volume::mount(&plan).map_err(failed)?;
        Ok(Served { record: Some(record) })
    }

    /// What was written down of it.
    pub fn record(&self) -> Option<&MountRecord> {
        self.record.as_ref()
    }

    /// Waits until nothing is copied any more, at most `patience`.
    ///
    /// # Errors
    /// Where the daemon does not answer; a signal.
    pub fn settle(&self, patience: Duration) -> Result<(), BenchError> {
        let Some(record) = &self.record else { return Ok(()) };
        let until = Instant::now() + patience;
        let mut quiet = Quiet::default();
        while Instant::now() < until {
            if let Some(signal) = signalled() {
                return Err(BenchError::Interrupted(signal));
            }
            std::thread::sleep(Duration::from_millis(100));
            let s = volume::status(record).map_err(failed)?;
            if quiet.is_enough((s.copies_written, s.copies_waiting), Instant::now()) {
                break;
            }
        }
        Ok(())
    }

    /// Unmounts it and ends the daemon.
    ///
    /// # Errors
    /// Where it is in use, or the daemon does not end.
    pub fn unmount(mut self) -> Result<(), BenchError> {
        let Some(record) = self.record.take() else { return Ok(()) };
        match volume::umount(&record.dir) {
            Ok(_) => Ok(()),
            Err(e) => {
                self.record = Some(record);
                Err(failed(e))
            }
        }
    }
}

/// How long nothing must be copied to be at its end: what found no room while the volume was busy is read again only when it has rested for a second.
const QUIET: Duration = Duration::from_millis(2500);

/// Since when nothing is copied.
#[derive(Default)]
struct Quiet(Option<((u64, u64), Instant)>);

impl Quiet {
    /// Whether that is long enough, by what was copied and what waits for it now.
    fn is_enough(&mut self, copies: (u64, u64), now: Instant) -> bool {
        match self.0 {
            Some((last, since)) if last == copies => now.duration_since(since) >= QUIET,
            _ => {
                self.0 = Some((copies, now));
                false
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(record) = self.record.take()
            && let Err(e) = volume::umount(&record.dir)
        {
            eprintln!("fsbench: {} stays mounted: {e}", record.dir.display());
        }
    }
}

/// The daemon itself, where the arguments ask for it: `fsbench daemon ...` is what mounting starts, as this
/// program is the one that runs.
pub fn daemon(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    #[derive(Parser)]
    struct Daemon {
        #[command(flatten)]
        serve: fs2d::cli::Serve,
    }
    let args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_none_or(|a| a != "daemon") {
        return None;
    }
    Some(match Daemon::try_parse_from(&args[1..]) {
        Ok(daemon) => fs2d::cli::run(&daemon.serve),
        Err(e) => {
            let _ = e.print();
            ExitCode::from(2)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_by_name() {
        for name in ["ext2", "static", "fs2", "fs2-2005"] {
            assert_eq!(name.parse::<System>().unwrap().name(), name);
        }
        assert!("ext3".parse::<System>().unwrap_err().contains("there are ext2"));
    }

    /// Half a second was enough: what is read again only after a second of rest was never copied, and later runs had nothing of it.
    #[test]
    fn what_is_copied_after_a_longer_rest_is_waited_for() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut quiet = Quiet::default();
        let seen =
            [(0, (5, 3)), (900, (5, 3)), (1900, (5, 3)), (2400, (5, 4)), (4800, (5, 4)), (4900, (5, 4))];
        let enough = seen.map(|(ms, copies)| quiet.is_enough(copies, at(ms)));
        assert_eq!(enough, [false, false, false, false, false, true]);
    }

    /// Through this process's own output they would stand among a sweep's tables.
    #[test]
    fn what_e2fsck_says_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        make_image(&image, 8 << 20, &[]).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = [OsString::from("chkfs2"), "-f".into(), "-p".into(), image.into_os_string()];
        let code = crate::chkfs2::run_within(args, &mut out, &mut err);
        let said = String::from_utf8_lossy(&out);
        assert!(code <= 1 && said.contains("files (") && said.contains("blocks"), "{code}: {said}");
    }

    #[test]
    fn only_the_daemon_s_own_arguments_start_it() {
        let args = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(daemon(args(&["fsbench", "run", "daemon"])).is_none());
        assert!(daemon(args(&["fsbench"])).is_none());
        assert!(daemon(args(&["fsbench", "daemon", "--no-such-option"])).is_some());
    }
}
