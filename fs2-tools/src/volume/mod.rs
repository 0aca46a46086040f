//! A volume from the administrator's side: mounted with a daemon behind it, found again, unmounted.
//!
//! `mount` starts a daemon for the device, waits until it answers, puts a loop device on the file that
//! its FUSE mount shows (or nbd-client on its socket), and mounts ext2 on that. What was set up is
//! written down in the runtime directory, so that `umount` and `status` find it by the directory.

mod record;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use fs2_control::{Client, Command, Liveness, Reply, Status};
use fs2d::settings::{FrontendKind, Settings};

pub use record::{MountRecord, all_records, find_record};

use crate::kernel::{LoopDevice, LoopOptions, MountOptions, mount_ext2, unmount};

/// How long a daemon may take until it answers; the wait for its lock comes on top.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// How long a daemon may take to end once it was asked.
const END_PATIENCE: Duration = Duration::from_secs(120);

/// Why a volume is not mounted, or not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The system says no.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The daemon ended before it served anything.
    #[error("the daemon of {device} ended at once: {said}")]
    Daemon {
        /// The volume.
        device: String,
        /// The last lines of its log.
        said: String,
    },
    /// The daemon does not answer.
    #[error(transparent)]
    Control(#[from] fs2_control::ControlError),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> VolumeError {
    let what = what.into();
    move |source| VolumeError::Io { what, source }
}

/// What `mount` is told.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The image or device.
    pub device: PathBuf,
    /// Where to mount it.
    pub dir: PathBuf,
    /// Which frontend; `None`: the best there is.
    pub frontend: Option<FrontendKind>,
    /// Passed to the daemon.
    pub settings: Settings,
    /// Options after `-o`; `discard` is added for an active volume unless `nodiscard` is among them.
    pub options: Vec<String>,
}

/// Mounts a volume and leaves it so.
///
/// # Errors
/// Why not; what was set up on the way is undone.
pub fn mount(plan: &Plan) -> Result<(MountRecord, Status), VolumeError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(VolumeError::Other(
            "mounting needs root; without it try `fs2 demo` or `fs2d serve`".into(),
        ));
    }
    let dir = plan.dir.canonicalize().map_err(io_error(format!("{}", plan.dir.display())))?;
    let device = plan.device.canonicalize().map_err(io_error(format!("{}", plan.device.display())))?;
    if let Some(old) = find_record(&dir) {
        return Err(VolumeError::Other(format!(
            "{} is mounted by FS2 already, from {}; fs2 umount {} first",
            dir.display(),
            old.device.display(),
            dir.display()
        )));
    }
    let frontend = plan.frontend.unwrap_or(FrontendKind::Fuse);
    let runtime = fs2d::runtime::make_runtime_dir().map_err(io_error("runtime directory"))?;
    let key = fs2d::runtime::key_of(&device).map_err(io_error(device.display().to_string()))?;
    let place = |ending: &str| runtime.join(format!("{key}.{ending}"));
    let mut record = MountRecord {
        dir: dir.clone(),
        device: device.clone(),
        control: place("ctl"),
        log: place("log"),
        pid: 0,
        frontend: frontend.to_string(),
        block_device: PathBuf::new(),
        carrier: place(if frontend == FrontendKind::Fuse { "fuse" } else { "nbd" }),
        path: place("mount"),
    };
    let mut daemon = Daemon::start(plan, frontend, &record)?;
    record.pid = daemon.child.id();
    let status = daemon.wait_ready(&record, plan.settings.lock_wait)?;
    let active = status.liveness == Liveness::Active;
    let discard = active && !plan.options.iter().any(|o| o.split(',').any(|o| o == "nodiscard"));
    let options = MountOptions { read_only: false, discard, extra: plan.options.clone() };
    match frontend {
        FrontendKind::Fuse => {
            let file = record.carrier.join("volume");
            // A turning drive: what is modelled, or what lies below.
            let rotational =
                plan.settings.drive.as_deref().map_or_else(|| turns(&device), |d| !d.starts_with("ssd"));
            let loopdev = LoopDevice::attach(&file, &LoopOptions { rotational, ..LoopOptions::default() })
                .map_err(io_error("loop device"))?;
            for warning in loopdev.warnings() {
                eprintln!("fs2: {warning}");
            }
            record.block_device = loopdev.path();
            let mounted = mount_ext2(&loopdev.path(), &dir, options).map_err(io_error("mount"))?;
            record.write().map_err(io_error(record.path.display().to_string()))?;
            mounted.keep();
            // With autoclear it goes with the unmount.
            loopdev.keep();
        }
        FrontendKind::Nbd => {
            let nbd = NbdDevice::attach(&record.carrier)?;
            record.block_device = nbd.path.clone();
            let mounted = mount_ext2(&nbd.path, &dir, options).map_err(io_error("mount"))?;
            record.write().map_err(io_error(record.path.display().to_string()))?;
            mounted.keep();
            nbd.keep();
        }
    }
    daemon.keep();
    Ok((record, status))
}

/// Whether the device below an image or a device is said to turn.
fn turns(device: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(m) = device.metadata() else { return true };
    let dev = if m.rdev() != 0 { m.rdev() } else { m.dev() };
    let (major, minor) = (nix::sys::stat::major(dev), nix::sys::stat::minor(dev));
    for queue in ["queue/rotational", "../queue/rotational"] {
        if let Ok(s) = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{queue}")) {
            return s.trim() == "1";
        }
    }
    true
}

/// A daemon being started; ended on drop unless it is kept.
struct Daemon {
    child: Child,
    kept: bool,
}

impl Daemon {
    fn start(plan: &Plan, frontend: FrontendKind, record: &MountRecord) -> Result<Daemon, VolumeError> {
        let log = std::fs::File::create(&record.log).map_err(io_error(record.log.display().to_string()))?;
        let me = std::env::current_exe().map_err(io_error("this program's path"))?;
        let mut command = Process::new(me);
        command.arg("daemon").arg(&record.device).arg("--frontend").arg(frontend.to_string());
        command.arg("--control").arg(&record.control);
        match frontend {
            FrontendKind::Fuse => command.arg("--fuse-dir").arg(&record.carrier),
            FrontendKind::Nbd => command.arg("--listen").arg(format!("unix:{}", record.carrier.display())),
        };
        command.args(plan.settings.to_args());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/");
        // SAFETY: setsid is async-signal-safe and touches nothing of the parent's memory.
        unsafe {
            command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
        }
        let child = command.spawn().map_err(io_error("starting the daemon"))?;
        Ok(Daemon { child, kept: false })
    }

    fn wait_ready(&mut self, record: &MountRecord, lock_wait: u64) -> Result<Status, VolumeError> {
        let until = Instant::now() + START_PATIENCE + Duration::from_secs(lock_wait);
        loop {
            if let Ok(mut client) = Client::connect(&record.control)
                && let Ok(Reply::Status(status)) = client.ask(&Command::Status)
                // A former daemon of the same device answers at the same place: not what was asked for.
                && status.pid == self.child.id()
            {
                return Ok(*status);
            }
            let ended = self.child.try_wait().map_err(io_error("waiting for the daemon"))?;
            if ended.is_some() || Instant::now() > until {
                let log = std::fs::read_to_string(&record.log).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(3).collect();
                let said = tail.into_iter().rev().collect::<Vec<_>>().join("; ");
                let said = said.strip_prefix("fs2d: ").unwrap_or(&said).to_owned();
                self.kept = ended.is_some();
                return Err(VolumeError::Daemon { device: record.device.display().to_string(), said });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.kept {
            let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

/// A kernel NBD device made by nbd-client; disconnected on drop unless it is kept.
struct NbdDevice {
    path: PathBuf,
    kept: bool,
}

impl NbdDevice {
    fn attach(socket: &Path) -> Result<NbdDevice, VolumeError> {
        let free = (0..16).map(|n| PathBuf::from(format!("/dev/nbd{n}"))).find(|p| {
            let name = p.file_name().map(PathBuf::from).unwrap_or_default();
            p.exists() && !Path::new("/sys/block").join(name).join("pid").exists()
        });
        let Some(path) = free else {
            return Err(VolumeError::Other(
                "this kernel has no free /dev/nbd: modprobe nbd, or --frontend fuse".into(),
            ));
        };
        let run = Process::new("nbd-client").arg("-unix").arg(socket).arg(&path).args(["-b", "512"]).output();
        match run {
            Ok(out) if out.status.success() => Ok(NbdDevice { path, kept: false }),
            Ok(out) => Err(VolumeError::Other(format!(
                "nbd-client: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            ))),
            Err(e) => Err(VolumeError::Io { what: "nbd-client (package nbd-client)".into(), source: e }),
        }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        if !self.kept {
            let _ = Process::new("nbd-client").arg("-d").arg(&self.path).output();
        }
    }
}

/// How an unmount ended.
#[derive(Clone, Debug)]
pub struct Unmounted {
    /// What was unmounted.
    pub record: MountRecord,
    /// The mark was set: the next mount is fast at once.
    pub clean: bool,
    /// Why not.
    pub why_not: Option<String>,
}

/// Unmounts a volume and ends its daemon cleanly.
///
/// # Errors
/// Where it is in use, or was not mounted by FS2.
pub fn umount(dir: &Path) -> Result<Unmounted, VolumeError> {
    let record = find_record(dir).ok_or_else(|| {
        VolumeError::Other(format!("{} is not mounted by FS2; see fs2 status", dir.display()))
    })?;
    let mounted = crate::kernel::mount_at(&record.dir).map_err(io_error("mount table"))?;
    if mounted.is_some_and(|m| m.source == record.block_device.as_os_str()) {
        unmount(&record.dir, false).map_err(io_error("umount"))?;
    }
    if record.frontend == "nbd" {
        let _ = Process::new("nbd-client").arg("-d").arg(&record.block_device).output();
    }
    let asked = Client::connect(&record.control).and_then(|mut c| c.ask(&Command::Detach));
    let (clean, why_not) = match asked {
        Ok(Reply::Status(status)) => {
            let detach = status.detach.unwrap_or_default();
            (detach.marked, detach.why_not)
        }
        Ok(Reply::Error { what, .. }) => (false, Some(what)),
        Ok(Reply::Done) => (true, None),
        Err(e) => (false, Some(e.to_string())),
    };
    wait_gone(record.pid)?;
    // Where this process started the daemon itself, it is a child of ours still to be waited for.
    let pid = nix::unistd::Pid::from_raw(record.pid as i32);
    let _ = nix::sys::wait::waitpid(pid, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
    // A daemon that was killed leaves its FUSE mount behind.
    if record.frontend == "fuse" && crate::kernel::mount_at(&record.carrier).ok().flatten().is_some() {
        let _ = unmount(&record.carrier, true);
    }
    record.forget();
    Ok(Unmounted { record, clean, why_not })
}

fn wait_gone(pid: u32) -> Result<(), VolumeError> {
    let until = Instant::now() + END_PATIENCE;
    while is_alive(pid) {
        if Instant::now() > until {
            return Err(VolumeError::Other(format!(
                "daemon {pid} does not end; its volume stays locked until it does"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether the process runs: not gone, and no zombie.
fn is_alive(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|s| s.starts_with('Z')),
        Err(_) => false,
    }
}

/// Makes everything read from the volume come from its daemon again: unmounts it, drops the block
/// device's buffers and mounts it anew. The daemon stays.
///
/// # Errors
/// Where it is in use, or what the kernel says.
pub fn cold(record: &MountRecord) -> Result<(), VolumeError> {
    let what = || format!("mounting {} anew", record.dir.display());
    let mounted = crate::kernel::mount_at(&record.dir).map_err(io_error(what()))?;
    let Some(mounted) = mounted else {
        return Err(VolumeError::Other(format!("nothing is mounted on {}", record.dir.display())));
    };
    // Held open, or the loop device would go with the mount.
    let _open = std::fs::File::open(&record.block_device).map_err(io_error(what()))?;
    let (discard, read_only) = (mounted.has_option("discard"), mounted.has_option("ro"));
    let extra =
        ["noatime", "nodiratime"].into_iter().filter(|o| mounted.has_option(o)).map(String::from).collect();
    unmount(&record.dir, false).map_err(io_error(what()))?;
    crate::kernel::drop_caches_of(&record.block_device).map_err(io_error(what()))?;
    let options = MountOptions { read_only, discard, extra };
    mount_ext2(&record.block_device, &record.dir, options).map_err(io_error(what()))?.keep();
    Ok(())
}

/// The status of a mounted volume's daemon.
///
/// # Errors
/// Where it does not answer.
pub fn status(record: &MountRecord) -> Result<Status, VolumeError> {
    match Client::connect(&record.control)?.ask(&Command::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(VolumeError::Other(format!("the daemon answered {other:?}"))),
    }
}

/// Tells the daemon of all free blocks, by FITRIM; how many bytes the file system discarded.
///
/// # Errors
/// What the kernel says.
pub fn trim(dir: &Path) -> Result<u64, VolumeError> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(dir).map_err(io_error(dir.display().to_string()))?;
    let mut range = fitrim::Range { start: 0, len: u64::MAX, minlen: 0 };
    // SAFETY: the descriptor is open and the range lives for the whole call.
    unsafe { fitrim::fitrim(file.as_raw_fd(), &mut range) }
        .map_err(|e| io_error(format!("trimming {}", dir.display()))(e.into()))?;
    Ok(range.len)
}

mod fitrim {
    /// `struct fstrim_range` of linux/fs.h.
    #[repr(C)]
    pub(super) struct Range {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) minlen: u64,
    }

    nix::ioctl_readwrite!(fitrim, b'X', 121, Range);
}
