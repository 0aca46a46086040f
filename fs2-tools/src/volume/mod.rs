//! A volume from the administrator's side: mounted with a daemon behind it, found again, unmounted.
//!
//! `mount` starts a daemon for the device, waits until it answers, puts a loop device on the file that
//! its FUSE mount shows (or the kernel's NBD client on its socket, and a supervisor beside the daemon),
//! and mounts ext2 on that. What was set up is written down in the runtime directory, so that `umount` and `status` find it by the directory.

mod awaited;
pub mod cli;
mod daemon;
mod end;
mod found;
mod frontend;
mod place;
mod record;
mod revive;
mod scope;
mod supervisor;
mod trim;
mod upgrade;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs2_control::{Client, Command, Liveness, Reply, Status};
use fs2d::runtime::{Ending, begin_mounting};
use fs2d::settings::{FrontendKind, Settings};

pub(crate) use awaited::refuse_awaited;
pub use end::{SERVED_INACTIVE, Unmounted, is_mounted, umount, umount_how};
pub use found::{Found, all_mounted, clear_dead, daemon_of, daemons, mounted_at};
pub use frontend::best_frontend;
pub use record::{MountRecord, all_records, find_record};
pub use supervisor::supervise;
pub use trim::{Trimmed, trim};
pub use upgrade::{Upgraded, upgrade, upgrade_served};

use crate::kernel::{LoopDevice, LoopOptions, MountOptions, NbdDevice, NbdOptions, mount_ext2, unmount};
use crate::signals;
use daemon::Daemon;

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
        /// Why, by its log.
        said: String,
    },
    /// The daemon does not answer.
    #[error(transparent)]
    Control(#[from] fs2_control::ControlError),
    /// It was mounted, and is not any more.
    #[error("{} is unmounted", .0.display())]
    Unmounted(PathBuf),
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
    /// Queues of a ublk device, where others than usual.
    pub queues: Option<u16>,
    /// Connections of an NBD device, 1 to 16; see [`NbdOptions::connections`].
    pub connections: u16,
    /// Options after `-o`; `discard` is added for an active volume unless `nodiscard` is among them.
    pub options: Vec<String>,
}

/// Why an option of the ext2 mount is refused, if it is `sb=`.
pub(crate) fn another_superblock(option: &str) -> Option<String> {
    let name = option.split('=').next().unwrap_or_default().trim();
    (name == "sb").then(|| {
        format!(
            "'{option}' is not for FS2: a mount by a copy of the superblock leaves the clean flag of the volume's own as it is, so that one that \
             dies could not be told from one that ended; e2fsck -b mends the superblock, mount -t ext2 mounts without FS2"
        )
    })
}

/// Mounts a volume and leaves it so.
///
/// # Errors
/// Why not; what was set up on the way is undone.
pub fn mount(plan: &Plan) -> Result<(MountRecord, Status), VolumeError> {
    if let Some(why) = plan.options.iter().flat_map(|o| o.split(',')).find_map(another_superblock) {
        return Err(VolumeError::Other(why));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(VolumeError::Other(
            "mounting needs root; without it try `fs2 demo` or `fs2d serve`".into(),
        ));
    }
    plan.settings.check().map_err(VolumeError::Other)?;
    let dir = plan.dir.canonicalize().map_err(io_error(format!("{}", plan.dir.display())))?;
    let device = plan.device.canonicalize().map_err(io_error(format!("{}", plan.device.display())))?;
    // It is written down, too; told of before anything begins.
    text_of(vec![dir.clone().into()])?;
    let runtime = fs2d::runtime::make_runtime_dir().map_err(io_error("runtime directory"))?;
    let key = fs2d::runtime::key_of(&device).map_err(io_error(device.display().to_string()))?;
    let place = |ending: &str| runtime.join(format!("{key}.{ending}"));
    // Another name of the same volume is not taken for another volume: all that it leaves here lies at the same place.
    let same = |r: &&MountRecord| r.device == device || r.path == place("mount");
    for old in all_records().iter().filter(same) {
        end::make_way(old)?;
    }
    // One that was mounted there, and is used in another namespace only, is not in the way.
    if let Some(old) = find_record(&dir).filter(|r| is_mounted(r) || end::is_in_place(r) || !end::is_used(r))
    {
        end::make_way(&old)?;
    }
    let until = Instant::now() + SERVED_PATIENCE;
    // Held until it is mounted, or this process is no more.
    let mounting = loop {
        let right = end::wait_for_right(&device, || begin_mounting(&place("mount")))?;
        let Some(right) = right.filter(|_| MountRecord::read(&place("mount")).is_err()) else {
            return Err(VolumeError::Other(format!(
                "{} was mounted meanwhile; see fs2 status",
                device.display()
            )));
        };
        // The right goes with what is ended.
        if end::end_abandoned(&device, &place("ctl"), &place("mount"))? {
            continue;
        }
        let Some(why) = served_by(&device, &place("ctl")) else { break right };
        if Instant::now() > until {
            forget_log(&place("log"), &why);
            return Err(VolumeError::Other(why));
        }
        // One whose mount was killed before it wrote a record ends as soon as it finds that nobody has the right.
        drop(right);
        while served_by(&device, &place("ctl")).is_some() && Instant::now() < until {
            uninterrupted()?;
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mounted = set_up(plan, &dir, &device, &place, &mounting);
    // Where it went with all the rest, the next one's may be there.
    if let Err(e) = &mounted
        && mounting.is_of(&place("mount"))
    {
        forget_log(&place("log"), &e.to_string());
    }
    mounted
}

/// Takes the log of a mount that failed away, whose words were `said`; one that has more is named. The caller has the right to mount, and so
/// nobody else has a log there.
fn forget_log(log: &Path, said: &str) {
    let text = std::fs::read(log).unwrap_or_default();
    if tells_more(&String::from_utf8_lossy(&text), said) {
        eprintln!("fs2: {} tells more", log.display());
    } else {
        let _ = std::fs::remove_file(log);
    }
}

/// Whether the log of a daemon has more than was `said` and what each one writes that serves.
fn tells_more(log: &str, said: &str) -> bool {
    let serves = log.lines().position(|line| line.contains(" INFO ") && line.contains(": serving "));
    let mut others = log.lines().skip(serves.map_or(0, |at| at + 1));
    others.any(|line| {
        !said.contains(daemon::words_of(line)) && !line.contains(" INFO ") && !line.contains(SERVED_INACTIVE)
    })
}

/// Serves the volume and mounts it; `place` is the path of what has an ending in the runtime directory. What was set up is undone where it fails.
fn set_up(
    plan: &Plan,
    dir: &Path,
    device: &Path,
    place: &dyn Fn(&str) -> PathBuf,
    // Held until it is mounted, or all of it is undone: a supervisor would end what nobody uses.
    _mounting: &Ending,
) -> Result<(MountRecord, Status), VolumeError> {
    let frontend = plan.frontend.unwrap_or_else(|| best_frontend().0);
    let mut record = MountRecord {
        dir: dir.to_owned(),
        device: device.to_owned(),
        // The next command may be typed elsewhere.
        table: plan.settings.table.as_deref().map(|t| t.canonicalize().unwrap_or_else(|_| t.to_owned())),
        control: place("ctl"),
        log: place("log"),
        pid: 0,
        began: None,
        frontend: frontend.to_string(),
        block_device: PathBuf::new(),
        carrier: place(if frontend == FrontendKind::Fuse { "fuse" } else { "nbd" }),
        connections: plan.connections,
        again: Vec::new(),
        active: false,
        path: place("mount"),
    };
    let again = supervisor::again(&plan.settings, device).map_err(io_error(device.display().to_string()))?;
    record.again = text_of(daemon_args(plan, frontend, &record, &again))?;
    let _ = std::fs::remove_file(record.failure_file());
    // One that stands still is not asked: its lock is waited for, and no longer than that.
    if frontend == FrontendKind::Fuse && end::is_silent(&record.control) {
        end::clear_dead_carrier(&record.carrier);
    }
    let mut daemon = Daemon::start(&record, &daemon_args(plan, frontend, &record, &plan.settings))?;
    record.is_served_by(daemon.pid());
    let status = daemon.wait_ready(&record)?;
    uninterrupted()?;
    let active = status.liveness == Liveness::Active;
    record.active = active;
    let discard = active && !plan.options.iter().any(|o| o.split(',').any(|o| o == "nodiscard"));
    let options = MountOptions { read_only: false, discard, extra: plan.options.clone() };
    // A turning drive: what is modelled, or what lies below.
    let rotational = plan.settings.drive.as_deref().map_or_else(|| turns(device), |d| !d.starts_with("ssd"));
    match frontend {
        FrontendKind::Fuse => {
            let file = record.carrier.join("volume");
            let loopdev = LoopDevice::attach(&file, &LoopOptions { rotational, ..LoopOptions::default() })
                .map_err(io_error("loop device"))?;
            for warning in loopdev.warnings() {
                eprintln!("fs2: {warning}");
            }
            record.block_device = loopdev.path();
            // Before it is mounted: whoever is killed between the two leaves no mount that nobody knows.
            record.write().map_err(io_error(record.path.display().to_string()))?;
            let mounted = mount_ext2(&loopdev.path(), dir, options).map_err(|e| {
                // The log goes when all has ended: who has that has the right to mount.
                let _ = std::fs::remove_file(&record.path);
                not_mounted(e, &status)
            })?;
            mounted.keep();
            // With autoclear it goes with the unmount.
            loopdev.keep();
            daemon.keep();
        }
        FrontendKind::Nbd => {
            let options_of_nbd =
                NbdOptions { connections: plan.connections, rotational, ..NbdOptions::default() };
            let nbd = NbdDevice::attach(&record.carrier, &record.backend(), &options_of_nbd)
                .map_err(io_error("NBD device"))?;
            for warning in nbd.warnings() {
                eprintln!("fs2: {warning}");
            }
            record.block_device = nbd.path();
            mount_supervised(&record, options, daemon, &status)?;
            nbd.keep();
        }
        FrontendKind::Ublk => {
            record.block_device = device_served(&status).ok_or_else(|| {
                VolumeError::Other(format!("the daemon serves '{}', which is no device", status.frontend))
            })?;
            mount_supervised(&record, options, daemon, &status)?;
        }
    }
    if let Err(e) = crate::kernel::remember_helper(&record.block_device, &record.dir, "fs2") {
        // Without it, umount(8) unmounts and the daemon notices.
        eprintln!("fs2: /run/mount/utab: {e}");
    }
    Ok((record, status))
}

/// How long a daemon that is ending may take to be gone; one that nobody mounted looks every two seconds whether it is to. Guess: longer
/// take only those that serve on.
const SERVED_PATIENCE: Duration = Duration::from_secs(5);

/// Who serves the volume, not by a mount of ours: its lock would be waited for in vain. One that does not answer may be at its end, and that is
/// waited for.
fn served_by(device: &Path, control: &Path) -> Option<String> {
    let Status { pid, frontend, .. } = Found::at(control).status().ok()?;
    Some(format!(
        "{} is served by process {pid} ({frontend}), and not mounted by fs2 mount: use that, or end it first (kill {pid})",
        device.display()
    ))
}

/// Mounts a device that outlives its daemon, with a supervisor already beside that: mount(2) waits for the device, and where the
/// daemon died meanwhile nobody else would start another. The caller has the right to mount: the supervisor would end what nobody uses.
fn mount_supervised(
    record: &MountRecord,
    options: MountOptions,
    daemon: Daemon,
    status: &Status,
) -> Result<(), VolumeError> {
    record.write().map_err(io_error(record.path.display().to_string()))?;
    supervisor::start(record).inspect_err(|_| record.forget())?;
    // From here on it may be another that is to be ended.
    daemon.keep();
    match mount_ext2(&record.block_device, &record.dir, options) {
        Ok(mounted) => {
            mounted.keep();
            Ok(())
        }
        Err(e) => {
            if let Err(e) = end::finish(record.clone()) {
                eprintln!("fs2: {e}");
            }
            Err(not_mounted(e, status))
        }
    }
}

/// Of a file system that is not ext2, ext4's above all, the kernel says only that an argument is invalid.
fn not_mounted(e: io::Error, status: &Status) -> VolumeError {
    match &status.liveness {
        Liveness::Inactive(why) if why.starts_with("unsupported") => {
            VolumeError::Other(format!("mount: {e}; {why}: FS2 takes volumes as mke2fs -t ext2 makes them"))
        }
        _ => io_error("mount")(e),
    }
}

/// Fails where a signal asked for the end, in a program that catches them ([`signals`]).
fn uninterrupted() -> Result<(), VolumeError> {
    if signals::asked() { Err(VolumeError::Other("interrupted: nothing is mounted".into())) } else { Ok(()) }
}

/// The block device that a ublk daemon says it serves: "ublk /dev/ublkbN (...)".
fn device_served(status: &Status) -> Option<PathBuf> {
    let path = status.frontend.split_whitespace().nth(1).map(PathBuf::from);
    path.filter(|p| p.is_absolute())
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

/// The arguments of `fs2 daemon`.
fn daemon_args(
    plan: &Plan,
    frontend: FrontendKind,
    record: &MountRecord,
    settings: &Settings,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec![record.device.clone().into()];
    args.extend(["--frontend".into(), frontend.to_string().into(), "--control".into()]);
    args.push(record.control.clone().into());
    args.extend(["--until-unused".into(), record.path.clone().into()]);
    match frontend {
        FrontendKind::Fuse => {
            args.extend(["--fuse-dir".into(), record.carrier.clone().into()]);
        }
        FrontendKind::Nbd => {
            args.extend(["--listen".into(), format!("unix:{}", record.carrier.display()).into()]);
        }
        FrontendKind::Ublk => args.extend(plan.queues.map(|n| format!("--queues={n}").into())),
    }
    args.extend(settings.to_args());
    args
}

/// They are written down, for a daemon started later.
fn text_of(args: Vec<OsString>) -> Result<Vec<String>, VolumeError> {
    args.into_iter()
        .map(|a| {
            a.into_string()
                .map_err(|a| VolumeError::Other(format!("{} is no UTF-8; use another path", a.display())))
        })
        .collect()
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
    if let Some(why) = record.failure() {
        return Err(VolumeError::Other(why));
    }
    status_of(&record.control)
}

/// What the daemon of a control socket says.
///
/// # Errors
/// Where nobody answers there.
pub fn status_of(control: &Path) -> Result<Status, VolumeError> {
    match Client::connect(control)?.ask(&Command::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(VolumeError::Other(format!("the daemon answered {other:?}"))),
    }
}

/// Where a daemon that was not started by a mount answers for `device`: one that a service manager runs.
pub fn served_control(device: &Path) -> Option<PathBuf> {
    let key = fs2d::runtime::key_of(device).ok()?;
    // Another's would be asked to go on as a program of this user's.
    let control = fs2d::runtime::own_dir().ok()?.join(format!("{key}.ctl"));
    control.exists().then_some(control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_kept_for_what_was_not_said() {
        let said = "the daemon of /v ended at once: /v: not an ext2 volume";
        assert!(!tells_more("", said));
        assert!(!tells_more("fs2d: /v: not an ext2 volume\n", said));
        assert!(tells_more("thread 'main' panicked at src/x.rs:1:2:\nfs2d: /v: not an ext2 volume\n", said));
        // As it is told: without its time.
        let warned = "2026-11-29T02:41:16Z  WARN fs2d::cli: it may wait\nfs2d: /v: not an ext2 volume\n";
        assert!(
            tells_more(warned, said)
                && !tells_more(warned, &format!("{said} (before, it warned: it may wait)"))
        );
        let began = "2026-11-29T02:41:16Z  WARN fs2d::cli: no CAP_SYS_RESOURCE: it may wait\n\
            2026-11-29T02:41:16Z  INFO fs2d::cli: serving /v by fuse /f; control socket /c\n";
        let ended = "2026-11-29T02:41:16Z  WARN fs2d::daemon: /v detached without a mark: the volume was served inactive: x\n";
        let failed = "2026-11-29T02:41:16Z  WARN fs2d::server: a read failed\n";
        let said = "mount: cannot mount /dev/loop0 as ext2";
        assert!(!tells_more(&format!("{began}{ended}"), said));
        assert!(tells_more(&format!("{began}{failed}{ended}"), said));
    }
}
