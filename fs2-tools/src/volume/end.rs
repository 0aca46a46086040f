//! The end of a mounted volume: unmounted by whom and how it may be, its daemon detaches cleanly once nobody uses it any more.
//!
//! | who notices | how | for |
//! |---|---|---|
//! | `fs2 umount`, `umount.fs2` | it unmounts | every frontend |
//! | the daemon | the kernel closes its file: the loop device went with its last user | FUSE |
//! | the supervisor | the mount table changed | NBD, ublk |
//!
//! Invariants:
//! 1. Who ends a daemon has the right to ([`fs2d::runtime::begin_ending`]), so it is ended once and its record outlives it.
//!    Who mounts a volume has that right until it is mounted; a daemon without a record that finds it free ends, as who mounted is no more.
//! 2. No daemon is ended while its device is mounted or open, wherever: such a volume is left to whoever notices its last use.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs2_control::{Client, Command, ControlError, Reply};
use fs2d::frontend::ublk;
use fs2d::runtime::{Ending, begin_ending, has_stamp, whose_are_seen};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::daemon::{is_alive, wait_gone};
use super::place::{elsewhere, is_anothers, mounts_of};
use super::record::gone_from;
use super::revive::{nobody_serves, revive};
use super::upgrade::UPGRADE_PATIENCE;
use super::{MountRecord, VolumeError, find_record, io_error, supervisor, uninterrupted};
use crate::kernel::{mount_at, mounts, nbd_disconnect, nbd_number, nbd_unclaimed, unmount};
use crate::output::quoted;

/// How long someone who looks into a device for a moment, such as udev, is waited for. Guess.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// How long another's end of the same mount may take: a detach writes the table.
const END_PATIENCE: Duration = Duration::from_secs(120);

const NAP: Duration = Duration::from_millis(10);

/// How an unmount ended.
#[derive(Clone, Debug)]
pub struct Unmounted {
    /// What was unmounted.
    pub record: MountRecord,
    /// The mark was set: the next mount is fast at once.
    pub clean: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// Nobody saw its daemon end, and nothing says that it ended in order.
    pub died: bool,
    /// Which trace could not be written, and why.
    pub trace_failed: Option<String>,
    /// Others use the volume: it is unmounted here, and its daemon ends with the last of them.
    pub in_use: bool,
    /// Where else it is mounted in this namespace.
    pub elsewhere: Option<PathBuf>,
}

/// How the report of a session without replicas begins: nothing is wrong with the volume.
pub const SERVED_INACTIVE: &str = "the volume was served inactive";

/// Unmounts a volume and ends its daemon cleanly, unless the volume is used elsewhere.
///
/// # Errors
/// Where it is in use, or was not mounted by FS2.
pub fn umount(dir: &Path) -> Result<Unmounted, VolumeError> {
    umount_how(dir, false)
}

/// As [`umount`]; `lazy` takes it out of the tree though it is in use, as `umount -l` does.
///
/// # Errors
/// As [`umount`].
pub fn umount_how(dir: &Path, lazy: bool) -> Result<Unmounted, VolumeError> {
    let unknown = || {
        let why = match gone_from(dir) {
            Some(r) => {
                format!(
                    "{} is mounted on {} now; fs2 umount {}",
                    r.device.display(),
                    r.dir.display(),
                    quoted(&r.dir)
                )
            }
            None => format!("see fs2 status{}", whose_are_seen()),
        };
        VolumeError::Other(format!("{} is not mounted by FS2; {why}", dir.display()))
    };
    let mut record = find_record(dir).ok_or_else(unknown)?;
    // Keeps 1: from here on nobody else ends it.
    let _ending = wait_for_right(&record.dir, || begin_ending(&record.path))?.ok_or_else(unknown)?;
    let all = mounts().map_err(io_error("mount table"))?;
    let ours = mounts_of(&record, &all);
    let mounted = all.iter().rfind(|m| m.target == record.dir);
    if let Some(above) = mounted.filter(|m| !ours.contains(m))
        && ours.iter().any(|m| m.target == above.target)
    {
        let (dir, kind, source) = (&record.dir, &above.fstype, above.source.display());
        return Err(VolumeError::Other(format!(
            "{} is covered: {kind} from {source} is mounted above the volume; unmount that first: umount {}",
            dir.display(),
            quoted(dir)
        )));
    }
    let Some(mounted) = mounted.filter(|m| ours.contains(m)) else {
        let ended = finish_unused(record, lazy)?;
        return if ended.in_use { Err(VolumeError::Other(used_elsewhere(&ended.record))) } else { Ok(ended) };
    };
    // Of one that is read-only nothing is written.
    if !mounted.is_read_only() && nobody_serves(&record) {
        record = revive(&record)?;
    }
    let dir = record.dir.clone();
    unmount(&dir, lazy).map_err(|e| not_unmounted(&dir, e))?;
    let finished = finish_unused(record, lazy);
    // Not before: another may have the table's lock, and the volume is to end well.
    crate::kernel::forget_helper(&dir);
    finished
}

/// Why it stays mounted, and what helps.
fn not_unmounted(dir: &Path, e: io::Error) -> VolumeError {
    if e.kind() != io::ErrorKind::ResourceBusy {
        return io_error("umount")(e);
    }
    let all = mounts().unwrap_or_default();
    // What was mounted before it, at a longer path, is hidden by it.
    let itself = all.iter().rposition(|m| m.target == dir).unwrap_or(all.len());
    let below = all.iter().skip(itself + 1).find(|m| m.target.starts_with(dir));
    let dir_quoted = quoted(dir);
    let why = match below {
        Some(m) => format!("{} is mounted below it; umount {} first", m.target.display(), quoted(&m.target)),
        None => format!(
            "a program has a file or its working directory there; fuser -vm {dir_quoted} or lsof {dir_quoted} tells which"
        ),
    };
    VolumeError::Other(format!("{} is busy: {why}", dir.display()))
}

/// Of a volume that is not mounted here and used all the same.
fn used_elsewhere(record: &MountRecord) -> String {
    let (dir, device, block_device) =
        (record.dir.display(), record.device.display(), record.block_device.display());
    format!(
        "{dir} is not mounted by FS2 any more; {device}, which was mounted there, is used elsewhere: {block_device} by a process \
         (fuser -v {block_device}) or in another mount namespace; its daemon ends with its last user"
    )
}

/// Ends the daemon of a volume that was unmounted, unless it is used elsewhere. The caller has the right to.
fn finish_unused(record: MountRecord, lazy: bool) -> Result<Unmounted, VolumeError> {
    let until = Instant::now() + if lazy { Duration::ZERO } else { BUSY_PATIENCE };
    while is_used(&record) {
        let elsewhere = elsewhere(&record).map_err(io_error("mount table"))?;
        if elsewhere.is_some() || Instant::now() > until {
            let (clean, why_not, died, trace_failed) = (false, None, false, None);
            return Ok(Unmounted { record, clean, why_not, died, trace_failed, in_use: true, elsewhere });
        }
        std::thread::sleep(NAP);
    }
    finish(record)
}

/// The right to end a mount as `take` takes it; `None` where that has ended meanwhile. `what` is being mounted or unmounted by whoever has it.
pub(super) fn wait_for_right(
    what: &Path,
    take: impl Fn() -> io::Result<Option<Ending>>,
) -> Result<Option<Ending>, VolumeError> {
    let until = Instant::now() + END_PATIENCE;
    loop {
        match take() {
            Ok(Some(ending)) => return Ok(Some(ending)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let what =
                    format!("{}: it needs root, or the user who mounted it (its log: {e})", what.display());
                return Err(VolumeError::Other(what));
            }
            Err(e) => return Err(io_error(format!("the log of {}", what.display()))(e)),
            Ok(None) if Instant::now() > until => {
                let what =
                    format!("{} is being mounted or unmounted by another, without end", what.display());
                return Err(VolumeError::Other(what));
            }
            Ok(None) => {
                uninterrupted()?;
                std::thread::sleep(NAP);
            }
        }
    }
}

/// Whether a mount whose daemon does not answer has ended: its record is gone. Where it is unmounted, whoever ends it is waited for.
pub(super) fn has_ended(record: &MountRecord, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    while record.path.exists() {
        if is_in_place(record) || Instant::now() > until {
            return false;
        }
        std::thread::sleep(NAP);
    }
    true
}

/// What to do of a mount whose daemon died, where nobody starts another one.
pub(super) fn orphaned(record: &MountRecord) -> Option<String> {
    let MountRecord { dir, pid, began, .. } = record;
    if is_alive(*pid, *began) {
        return None;
    }
    let (dir, check) = (quoted(dir), record.check_command());
    if record.frontend == "fuse" {
        let then = format!("fs2 umount {dir}, then {check}, then mount it again");
        return Some(format!("its daemon is gone (process {pid}); {then}"));
    }
    nobody_serves(record).then(|| {
        format!(
            "its daemon is gone (process {pid}), and nobody starts another, for which programs wait; fs2 umount {dir} does, and unmounts it; \
             then {check}, then mount it again"
        )
    })
}

/// Waits for the end of a mount that is ending, or ends one whose daemon died, so that its volume or directory can be mounted.
///
/// # Errors
/// Where it is mounted or used.
pub(super) fn make_way(record: &MountRecord) -> Result<(), VolumeError> {
    // Programs wait. Where another has the right to end it, it is about to.
    if is_mounted(record)
        && nobody_serves(record)
        && let Ok(Some(_ending)) = begin_ending(&record.path)
    {
        let record = revive(record)?;
        if record.failure().is_none() {
            let (device, dir) = (record.device.display(), record.dir.display());
            return Err(VolumeError::Other(format!(
                "{device} was mounted by FS2 on {dir}, its daemon was gone, and process {} serves it now; fs2 umount {} first",
                record.pid,
                quoted(&record.dir)
            )));
        }
    }
    let in_use = || {
        let (device, dir) = (record.device.display(), record.dir.display());
        format!(
            "{device} is in use by process {}, mounted by FS2 on {dir}; fs2 umount {} first",
            record.pid,
            quoted(&record.dir)
        )
    };
    // A ublk device that is gone may be mounted still. One that is there is known by its number, for its name may have gone to another's.
    let is_gone_below = || !record.block_device.exists() && is_in_place(record);
    let unmounted = || match is_mounted(record) || is_gone_below() {
        false => Ok(()),
        true => {
            let orphaned = orphaned(record).map(|why| format!("{}: {why}", record.dir.display()));
            Err(VolumeError::Other(orphaned.or_else(|| record.failure()).unwrap_or_else(in_use)))
        }
    };
    unmounted()?;
    let until = Instant::now() + BUSY_PATIENCE;
    while record.path.exists() && is_used(record) {
        if Instant::now() > until {
            return Err(VolumeError::Other(format!(
                "{} was mounted by FS2 from {}, whose device {} is still in use: by a process (fuser -v {3}) or in another mount namespace",
                record.dir.display(),
                record.device.display(),
                record.block_device.display(),
                quoted(&record.block_device)
            )));
        }
        uninterrupted()?;
        std::thread::sleep(NAP);
    }
    match wait_for_right(&record.dir, || begin_ending(&record.path))? {
        // Who had the right may have been mounting it.
        Some(_ending) => unmounted().and_then(|()| finish(record.clone()).map(drop)),
        None => Ok(()),
    }
}

/// Whether nobody listens at a control socket.
pub(super) fn is_silent(control: &Path) -> bool {
    matches!(Client::connect(control), Err(ControlError::NoDaemon { .. }))
}

/// Clears away what a mount left whose daemon died, or ended in order where nobody supervised it, where nobody uses its volume any more; how it
/// ended, if so. Where its supervisor gave up, the reason stays to be read.
pub(super) fn clear_if_dead(record: &MountRecord) -> Option<Unmounted> {
    let unmounted = || !is_mounted(record) && !is_in_place(record) && !is_used(record);
    if record.failure().is_some()
        || is_alive(record.pid, record.began)
        || !is_silent(&record.control)
        || !unmounted()
    {
        return None;
    }
    // Where another has the right to, it is about to.
    let _right = begin_ending(&record.path).ok()??;
    finish(record.clone()).ok()
}

/// Ends what a mount left that was killed before it wrote its record: its NBD device is connected still, and so its daemon in use for ever. Whether
/// there was any. The caller has the right to.
///
/// # Errors
/// As [`finish`].
pub(super) fn end_abandoned(device: &Path, control: &Path, path: &Path) -> Result<bool, VolumeError> {
    let mut record = MountRecord {
        dir: PathBuf::new(),
        device: device.to_owned(),
        table: None,
        control: control.to_owned(),
        log: path.with_extension("log"),
        pid: 0,
        began: None,
        frontend: "nbd".into(),
        block_device: PathBuf::new(),
        carrier: path.with_extension("nbd"),
        connections: 0,
        again: Vec::new(),
        active: false,
        path: path.to_owned(),
    };
    let Some(number) = nbd_unclaimed(&record.backend()).first().copied() else { return Ok(false) };
    record.block_device = format!("/dev/nbd{number}").into();
    if let Ok(Reply::Status(status)) = Client::connect(control).and_then(|mut c| c.ask(&Command::Status)) {
        record.is_served_by(status.pid);
    }
    finish(record).map(|_| true)
}

/// Ends the daemon of a volume that nobody uses, and clears away what the mount left. The caller has the right to.
///
/// # Errors
/// Where the daemon does not end.
pub(super) fn finish(record: MountRecord) -> Result<Unmounted, VolumeError> {
    let dismissed = supervisor::dismiss(&record);
    if let Some(number) = nbd_number(&record.block_device) {
        nbd_disconnect(number, &record.backend()).map_err(io_error("NBD device"))?;
    }
    let (mut pid, mut began) = (record.pid, record.began);
    let asked = ask_to_end(&record);
    if !matches!(asked, Ok(Reply::Status(_) | Reply::Done)) && began.is_some() && is_alive(pid, began) {
        // One of another version, as before its package was upgraded, takes no command, nor does one that too many speak with. It knows the
        // signal.
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGTERM);
    }
    let (mut trace_failed, mut died) = (None, false);
    let (clean, why_not) = match asked {
        Ok(Reply::Status(status)) => {
            trace_failed = status.trace_failed;
            // Another than the record's, where that one was replaced meanwhile.
            if pid != status.pid {
                (pid, began) = (status.pid, None);
            }
            let detach = status.detach.unwrap_or_default();
            (detach.marked, detach.why_not)
        }
        Ok(Reply::Error { what, .. }) => (false, Some(what)),
        Ok(Reply::Done) => (true, None),
        // Not in its words: nothing is to be started now.
        Err(ControlError::NoDaemon { .. }) if !is_alive(pid, began) => {
            let why = detached_unmarked(&record.log);
            died = why.is_none();
            (false, Some(why.unwrap_or_else(|| format!("its daemon was gone (process {pid})"))))
        }
        Err(e) => (false, Some(e.to_string())),
    };
    wait_gone(pid, began)?;
    dismissed.wait();
    remove_device(&record);
    // A stamp is left only with the mark, and one of before went when the session began as an active one.
    let (clean, why_not) = match why_not {
        Some(_) if record.active && has_stamp(&record.device) => (true, None),
        why_not => (clean, why_not),
    };
    died &= !clean;
    // A daemon that was killed leaves its FUSE mount behind.
    if record.frontend == "fuse" && mount_at(&record.carrier).ok().flatten().is_some() {
        let _ = unmount(&record.carrier, true);
    }
    let why_not = match (record.failure(), why_not) {
        (Some(failure), _) => Some(failure),
        // The daemon that was mounted with was another.
        (None, Some(why)) if record.active && why.starts_with(SERVED_INACTIVE) => {
            Some(format!("its daemon died meanwhile and the one that took over trusted no replica: {why}"))
        }
        (None, why) => why,
    };
    // One that was killed leaves it.
    let _ = fs2_control::remove_stale(&record.control);
    record.forget();
    Ok(Unmounted { record, clean, why_not, died, trace_failed, in_use: false, elsewhere: None })
}

/// Why a daemon that ended in order, and told nobody but its log, left no mark: its last word of that, if it came after the last that it serves.
fn detached_unmarked(log: &Path) -> Option<String> {
    let log = std::fs::read(log).ok()?;
    let log = String::from_utf8_lossy(&log);
    let begun = log.lines().rev().skip_while(|line| !line.contains(" INFO ") || !line.contains(": serving "));
    let others = begun.count();
    let own = log.lines().count() - others;
    // What does not tell of its beginning may be another's.
    let own = if others == 0 { 0 } else { own };
    let last = log.lines().rev().take(own).find_map(|line| line.split_once(" detached without a mark: "));
    last.map(|(_, why)| why.to_owned())
}

/// Takes away the FUSE mounts of daemons that died, and the directory that their successor makes anew. One that is served stays.
pub(super) fn clear_dead_carrier(carrier: &Path) {
    // The attributes of its root the kernel may know by heart.
    let is_dead = || nix::sys::statvfs::statvfs(carrier) == Err(nix::errno::Errno::ENOTCONN);
    // One may lie above another.
    while is_dead() && unmount(carrier, true).is_ok() {}
    let _ = std::fs::remove_dir(carrier);
}

/// A ublk device that its daemon took not along, since it died: nobody will serve it, and whoever looks into it would wait for ever.
fn remove_device(record: &MountRecord) {
    let Some(number) = ublk::device_of(&record.block_device).filter(|_| record.block_device.exists()) else {
        return;
    };
    let given_up = record
        .ublk_tag()
        .map_err(|e| e.to_string())
        .and_then(|tag| ublk::give_up(tag, Some(number)).map_err(|e| e.to_string()));
    if let Err(e) = given_up {
        eprintln!("fs2: {} stays, and nobody serves it: {e}", record.block_device.display());
    }
}

/// Tells the daemon to end. One that is just replaced (`fs2 upgrade`) goes on as another program in the same process, which answers soon.
fn ask_to_end(record: &MountRecord) -> Result<Reply, ControlError> {
    let until = Instant::now() + UPGRADE_PATIENCE;
    loop {
        match Client::connect(&record.control).and_then(|mut c| c.ask(&Command::Detach)) {
            Err(ControlError::NoDaemon { .. } | ControlError::Closed { .. })
                if record.began.is_some() && is_alive(record.pid, record.began) && Instant::now() < until =>
            {
                std::thread::sleep(NAP);
            }
            asked => return asked,
        }
    }
}

/// Whether the volume's device, which is there, is mounted anywhere in this mount namespace.
pub fn is_mounted(record: &MountRecord) -> bool {
    let Ok(all) = mounts() else { return true };
    record.block_device.exists() && !mounts_of(record, &all).is_empty()
}

/// Whether it is mounted somewhere in this mount namespace, be its device gone.
pub(super) fn is_in_place(record: &MountRecord) -> bool {
    mounts().is_ok_and(|all| !mounts_of(record, &all).is_empty())
}

/// Whether anybody uses the volume's device: a mount in whichever namespace, or a process that has it open.
pub(super) fn is_used(record: &MountRecord) -> bool {
    if is_anothers(record) {
        return false;
    }
    if record.frontend == "fuse" {
        // It goes with its last user.
        return true;
    }
    // The kernel's own word for a mount, wherever it is.
    let opened = std::fs::File::options().read(true).custom_flags(libc::O_EXCL).open(&record.block_device);
    if opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY)) {
        return true;
    }
    is_open_somewhere(&record.block_device)
}

/// Whether a process that can be seen from here has the device open.
fn is_open_somewhere(device: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let mut ids = processes.flatten().filter(|p| p.file_name().as_encoded_bytes()[0].is_ascii_digit());
    ids.any(|process| has_open(&process.path(), device))
}

/// Whether a process, by its directory in /proc, is seen to have the device open.
pub(super) fn has_open(process: &Path, device: &Path) -> bool {
    let Ok(open) = std::fs::read_dir(process.join("fd")) else { return false };
    open.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == device))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a mount whose daemon is this process.
    fn record_of(dir: &Path, pid: u32) -> MountRecord {
        let path = |name: &str| dir.join(name);
        let mut record = MountRecord {
            dir: path("m"),
            device: path("image"),
            table: None,
            control: path("ctl"),
            log: path("log"),
            pid: 0,
            began: None,
            frontend: "ublk".into(),
            block_device: path("ublkb0"),
            carrier: path("ublkb0"),
            connections: 0,
            again: Vec::new(),
            active: true,
            path: path("mount"),
        };
        record.is_served_by(pid);
        record
    }

    /// Its end was waited for in vain for two minutes, and the volume stayed locked.
    #[test]
    fn a_daemon_that_takes_no_command_is_ended_by_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("150").spawn().unwrap();
        let record = record_of(dir.path(), child.id());
        let other_version = std::os::unix::net::UnixListener::bind(&record.control).unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = other_version.accept() {
                let _ = std::io::Write::write_all(&mut stream, &[0xff; 64]);
            }
        });
        let start = Instant::now();
        let ended = finish(record).unwrap();
        assert!(!ended.clean && ended.why_not.is_some() && start.elapsed() < Duration::from_secs(30));
        let _ = child.wait();
    }

    /// A daemon that served sixteen others said so, and its end was waited for in vain.
    #[test]
    fn a_daemon_that_refuses_the_command_is_ended_by_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("150").spawn().unwrap();
        let record = record_of(dir.path(), child.id());
        let refuses =
            fs2_control::serve(&record.control, |_| Reply::error("no more are served", "", "")).unwrap();
        let ended = finish(record).unwrap();
        assert_eq!((ended.clean, ended.why_not.as_deref()), (false, Some("no more are served")));
        refuses.shutdown();
        let _ = child.wait();
    }

    /// The command came between the two programs and was lost: the next one served on, and its end was waited for in vain.
    #[test]
    fn a_daemon_that_is_being_replaced_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("150").spawn().unwrap();
        let pid = child.id();
        let record = record_of(dir.path(), pid);
        let control = record.control.clone();
        let next = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            let detach = Some(fs2_control::DetachInfo { marked: true, ..Default::default() });
            let status = fs2_control::Status { pid, detach, ..Default::default() };
            fs2_control::serve(&control, move |_| {
                kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
                Reply::Status(Box::new(status.clone()))
            })
        });
        let ended = finish(record).unwrap();
        assert!(ended.clean && ended.why_not.is_none(), "{ended:?}");
        next.join().unwrap().unwrap().shutdown();
        let _ = child.wait();
    }

    /// Who watched a volume that was unmounted in order was told that its daemon had died.
    #[test]
    fn a_mount_that_has_ended_is_told_from_a_daemon_that_died() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let mut record = record_of(dir.path(), child.id());
        record.frontend = "fuse".into();
        let _ = child.wait();
        std::fs::write(&record.path, "").unwrap();
        let found = super::super::Found { control: record.control.clone(), record: Some(record.clone()) };
        // Nothing is mounted there, and nobody takes the record away.
        assert!(!has_ended(&record, Duration::from_millis(20)));
        let ended = std::thread::spawn({
            let path = record.path.clone();
            move || {
                std::thread::sleep(Duration::from_millis(100));
                std::fs::remove_file(path).unwrap();
            }
        });
        let e = found.status().unwrap_err();
        assert!(matches!(e, VolumeError::Unmounted(_)), "{e}");
        assert_eq!(e.to_string(), format!("{} is unmounted", record.dir.display()));
        ended.join().unwrap();
        // A mount whose daemon died is in place, as the root directory is.
        std::fs::write(&record.path, "").unwrap();
        let root = mount_at(Path::new("/")).unwrap().expect("a root directory");
        record = MountRecord { dir: "/".into(), block_device: root.source.clone(), ..record };
        let found = super::super::Found { record: Some(record), ..found };
        let e = found.status().unwrap_err().to_string();
        assert!(e.starts_with("its daemon is gone (process "), "{e}");
    }

    /// The next mount took away what was written of why the device had gone, and mounted over it.
    #[test]
    fn who_mounts_does_not_take_a_mount_away_whose_device_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = record_of(dir.path(), 1);
        // A mount from what is no file.
        let proc = mount_at(Path::new("/proc")).unwrap().expect("the processes");
        (record.dir, record.block_device) = ("/proc".into(), proc.source.clone());
        assert!(!is_mounted(&record) && is_in_place(&record), "{:?}", record.block_device);
        std::fs::write(&record.path, "").unwrap();
        let e = make_way(&record).unwrap_err().to_string();
        assert!(e.contains("is in use by process 1, mounted by FS2 on /proc"), "{e}");
        // With what its supervisor wrote of it.
        std::fs::write(record.failure_file(), "the daemon ended 5 times in a row").unwrap();
        assert_eq!(make_way(&record).unwrap_err().to_string(), "the daemon ended 5 times in a row");
        assert!(record.path.exists());
    }

    #[test]
    fn an_open_file_is_seen_and_a_closed_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("device");
        std::fs::write(&path, "").unwrap();
        assert!(!is_open_somewhere(&path));
        let open = std::fs::File::open(&path).unwrap();
        assert!(is_open_somewhere(&path));
        drop(open);
        assert!(!is_open_somewhere(&path));
    }
}
