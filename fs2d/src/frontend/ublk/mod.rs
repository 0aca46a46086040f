//! The ublk frontend: a block device whose requests the kernel hands to this process.
//!
//! A [`Server`] makes the device, or takes one over that a former daemon of the same volume left with
//! requests waiting in it, and serves each of its queues by a thread. The device outlives the process
//! where the kernel offers recovery: what was in flight is given again to the next daemon.
//!
//! The kernel copies payloads into and out of the daemon's own buffers. Its ways around that copy are not
//! used: with them a write's payload would be memory its owner can still change, and no hash or replica
//! may be taken from such (docs/safety.md).

mod control;
mod protocol;
mod queue;
mod ring;
mod uapi;
mod worker;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use control::{Control, Left};
use fs2_block::ConnectionId;
use ring::{ControlRing, QueueRing};
use uapi::{DeviceInfo, feature};
use worker::{Waiting, Worker, buffers_for, waker};

use crate::memory;
use crate::service::Service;

/// The largest read or write in one request, bytes.
const IO_BYTES_MAX: u32 = 512 << 10;

/// How often a device whose server died is asked for.
const NAP: Duration = Duration::from_millis(20);

/// The kernel looks that often for requests nobody serves any more: a queue with every request at a dead
/// server is found by nothing else (before Linux 6.15).
const IO_TIMEOUT_MS: u32 = 3000;

/// How long taking a device over may take at the most ([`Server::start`]): until the kernel has noticed that its server is gone, has let the device
/// go where it is asked for requests by all tags before, and its node is ours.
pub const TAKE_OVER_PATIENCE: Duration =
    control::QUIESCE_PATIENCE.saturating_add(ring::BUSY_PATIENCE).saturating_add(ring::NODE_PATIENCE);

/// How a device is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Hardware queues; the kernel makes at most one a processor. `None`: as the device below is ([`queues_for`]).
    pub queues: Option<u16>,
    /// Requests in a queue, 1 to 4096.
    pub queue_depth: u16,
    /// Which volume it is: the same in every daemon of it, and in no other's.
    pub tag: Tag,
    /// The device, by its number, that programs wait for: no other is taken over, and none made.
    pub device: Option<u32>,
    /// What may be read ahead, KiB.
    pub read_ahead_kb: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { queues: None, queue_depth: 128, tag: Tag::default(), device: None, read_ahead_kb: 128 }
    }
}

/// One queue where the device below turns: it has one head, which one dispatcher feeds, and a second queue would take memory alone. Else one a
/// processor, as many as four, which each have a ring of their own.
fn queues_for(rotational: bool, processors: usize) -> u16 {
    if rotational { 1 } else { processors.clamp(1, 4) as u16 }
}

/// How a volume's device is known as its, by the number that the kernel keeps for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    made: u64,
    former: u64,
}

impl Tag {
    /// By what a backing is, whatever its name: [`fs2_store::FileStore::identity`], which tells it from a later one of the same inode or
    /// device number.
    pub fn of(identity: &str) -> Tag {
        // Daemons up to 2026-11 made theirs of the same name less its last word: the device number, or file system and inode.
        let former = identity.rsplit_once('-').map_or(identity, |(former, _)| former);
        Tag { made: hash(identity), former: hash(former) }
    }

    /// What a device is given.
    fn made(self) -> u64 {
        self.made
    }

    /// Whether a device that has this number is the volume's, or was when its daemon was a former one: whether it still is, such a daemon
    /// did not write down. `fs2 mount` knows it (`Settings::instead_of`).
    fn is(self, number: u64) -> bool {
        [self.made, self.former].contains(&number)
    }
}

fn hash(name: &str) -> u64 {
    // FNV-1a: stays the same from one version of this program to the next.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// What this machine's ublk can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// A device outlives its daemon, and what was in flight is given to the next.
    pub recovery: bool,
    /// The features in words.
    pub features: String,
}

/// Asks the driver.
///
/// # Errors
/// Why it cannot be used: no ublk, no io_uring, no permission.
pub fn offer() -> io::Result<Offer> {
    let mut control = Control::new(ControlRing::open()?, memory::is_admin());
    let flags = control.features().unwrap_or(0);
    let both = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    Ok(Offer { recovery: flags & both == both && control.privileged, features: protocol::names(flags) })
}

/// Whether a former daemon of the volume left a device in which requests may wait; where `device` is told, that one.
///
/// # Errors
/// As [`offer`]; what the driver says of a device that may be ours.
pub fn is_awaited(tag: Tag, device: Option<u32>) -> io::Result<bool> {
    let mut control = Control::new(ControlRing::open()?, memory::is_admin());
    control::is_awaited(&mut control, &candidates(device), tag, device.is_some())
}

/// Whether a device of this number is another volume's: the number of one that is gone may be given again.
///
/// # Errors
/// As [`offer`]; what the driver says.
pub fn is_anothers(tag: Tag, device: u32) -> io::Result<bool> {
    let mut control = Control::new(ControlRing::open()?, memory::is_admin());
    control::is_anothers(&mut control, device, tag)
}

/// The block devices in which requests may wait for a daemon of the volume, by their numbers. Where nobody serves any by ublk the driver is not
/// asked.
///
/// # Errors
/// As [`is_awaited`].
pub fn awaited(tag: Tag) -> io::Result<Vec<u32>> {
    let all = devices();
    if all.is_empty() {
        return Ok(all);
    }
    control::awaited(&mut Control::new(ControlRing::open()?, memory::is_admin()), &all, tag)
}

/// Which process serves the device, as the driver has it: of one that died it says so until it has noticed.
///
/// # Errors
/// As [`offer`]; what the driver says.
pub fn served_by(device: u32) -> io::Result<Option<u32>> {
    let mut control = Control::new(ControlRing::open()?, memory::is_admin());
    control::served_by(&mut control, device)
}

/// That a device which was to be taken over is not to be had.
pub fn not_awaited(device: u32) -> io::Error {
    control::not_awaited(device)
}

/// Fails every device of the volume, or `device` alone: whoever waits for it gets an error. For devices that no daemon serves,
/// and none will. Returns how many there were.
///
/// # Errors
/// What the driver says.
pub fn give_up(tag: Tag, device: Option<u32>) -> io::Result<usize> {
    let mut control = Control::new(ControlRing::open()?, memory::is_admin());
    let mut found = 0;
    let told = device.is_some();
    for device in candidates(device) {
        let left = control::look(&mut control, device, told)?.map(|info| control.left(&info, tag));
        if left.is_some_and(|left| left != Left::Foreign) {
            control.stop(device)?;
            found += 1;
            // Who has it mounted keeps it: not waited for.
            if let Err(e) = control.remove_later(device) {
                tracing::warn!("/dev/ublkb{device} stays, dead: {e}");
            }
        }
    }
    Ok(found)
}

/// Whom udev may let use a device: its maker's user and group, where it was made without the privileges of root, else `None`.
///
/// # Errors
/// As [`offer`]; what the driver says, as where there is no such device.
pub fn maker(device: u32) -> io::Result<Option<(u32, u32)>> {
    control::maker(&mut Control::new(ControlRing::open()?, memory::is_admin()), device)
}

/// The numbers of all ublk devices.
fn devices() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/sys/class/ublk-char") else { return Vec::new() };
    let number = |e: std::fs::DirEntry| e.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

fn candidates(device: Option<u32>) -> Vec<u32> {
    device.map_or_else(devices, |n| vec![n])
}

/// A device being served.
pub struct Server {
    info: DeviceInfo,
    features: String,
    control: Mutex<Control<ControlRing>>,
    /// The queues' threads, which leave their rings, and the char device that must be closed before another
    /// may serve it.
    threads: Mutex<Vec<JoinHandle<Option<QueueRing>>>>,
    char_device: Mutex<Option<Arc<OwnedFd>>>,
    running: Arc<AtomicUsize>,
    leave: Vec<queue::Leave>,
    connection: Arc<Disconnect>,
}

fn outlives_its_daemon(info: &DeviceInfo) -> bool {
    let both = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    info.flags & both == both
}

/// The char device of a number, which its daemon has open.
pub fn char_path(device: u32) -> PathBuf {
    format!("/dev/ublkc{device}").into()
}

/// The block device of a number.
pub fn block_path(device: u32) -> PathBuf {
    format!("/dev/ublkb{device}").into()
}

impl Server {
    /// Makes a device, or takes over the one that a former daemon of the same volume left, and serves it. Once
    /// this returns, requests run.
    ///
    /// # Errors
    /// Why not; what was made on the way is undone, what was to be taken over is left as it was.
    pub fn start(service: Arc<dyn Service>, options: &Options) -> io::Result<Server> {
        let privileged = memory::is_admin();
        let mut control = Control::new(ControlRing::open()?, privileged);
        let offered = control.features();
        let former = control::take(&mut control, &candidates(options.device), options.tag, options.device)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = protocol::device_info(
            options.queues.unwrap_or_else(|| queues_for(service.info().rotational, processors)).max(1),
            options.queue_depth.clamp(1, uapi::QUEUE_DEPTH_MAX),
            IO_BYTES_MAX,
            privileged,
            options.tag.made(),
        );
        let recovered = former.is_some();
        let info = match former {
            Some(info) => info,
            None => {
                let made = control.add(&wanted, offered).map_err(|e| said("making a ublk device", e));
                let (info, difference) = made?;
                if let Some(difference) = difference {
                    tracing::warn!("ublk device {}: {difference}", info.device);
                }
                if privileged && !outlives_its_daemon(&info) {
                    tracing::warn!(
                        "{} goes with this daemon: should that die, programs that use the volume get errors",
                        block_path(info.device).display()
                    );
                }
                info
            }
        };
        let mut making = Making { control, device: info.device, undo: !recovered };
        if !control::sane(&info) {
            return Err(io::Error::other(format!("the kernel made a strange device: {info:?}")));
        }
        let shape = protocol::Shape { logical_bytes: 512, io_bytes_max: info.io_bytes_max };
        let params = protocol::params(&service.info(), shape);
        if recovered {
            let size = PathBuf::from(format!("/sys/block/ublkb{}/size", info.device));
            let size = std::fs::read_to_string(&size).map_err(|e| said(&size.display().to_string(), e))?;
            control::fits(&size, &params).map_err(|e| said("taking the device over", e))?;
        }
        let connection = Arc::new(Disconnect {
            connection: service.connect(),
            service: service.clone(),
            kept: AtomicBool::new(false),
        });
        let mut server = Server {
            info,
            features: protocol::names(info.flags),
            control: Mutex::new(Control::new(ControlRing::open()?, privileged)),
            threads: Mutex::default(),
            char_device: Mutex::default(),
            running: Arc::default(),
            leave: Vec::new(),
            connection,
        };
        // What takes time or memory comes first: between the begin of a recovery and the first request for work the driver does not
        // bear to be left ([`Control::begin_recovery`]), and where memory is short a daemon is killed just while it takes some.
        let waiting = server.start_queues(&service)?;
        let open_char = |device| ring::open_char(device, privileged, ring::NODE_PATIENCE);
        let char_device = if recovered {
            let ask = |info: &DeviceInfo| ring::ask_by_all_tags(info.device, info);
            making
                .control
                .begin_recovery(info.device, NAP, ask)
                .map_err(|e| said("taking the device over", e))?;
            open_char(info.device)?
        } else {
            // First of all: the driver takes a user's commands only once udev has given that user the node.
            let char_device = open_char(info.device)?;
            making
                .control
                .set_params(info.device, &params)
                .map_err(|e| said("the device's parameters", e))?;
            char_device
        };
        waiting.begin(server.holds(char_device))?;
        let pid = std::process::id();
        if recovered {
            making.control.end_recovery(info.device, pid).map_err(|e| said("taking the device over", e))?;
        } else {
            making.control.start(info.device, pid).map_err(|e| said("starting the device", e))?;
            tune(info.device, options.read_ahead_kb, privileged);
        }
        making.undo = false;
        Ok(server)
    }

    /// Keeps the device open until the last queue has ended.
    fn holds(&self, char_device: OwnedFd) -> Arc<OwnedFd> {
        let char_device = Arc::new(char_device);
        *self.char_device.lock().unwrap_or_else(PoisonError::into_inner) = Some(char_device.clone());
        char_device
    }

    /// A thread for each queue, with all it needs but the device.
    fn start_queues(&mut self, service: &Arc<dyn Service>) -> io::Result<Waiting> {
        let mut waiting = Waiting::default();
        for n in 0..self.info.queues {
            let wake = ring::wake_fd()?;
            let leave = queue::Leave::new(waker(&wake));
            self.leave.push(leave.clone());
            let worker = Worker {
                service: service.clone(),
                connection: self.connection.clone(),
                info: self.info,
                queue: n,
                wake,
                leave,
                running: self.running.clone(),
                buffers: buffers_for(&self.info),
                steps: waiting.add(),
            };
            self.running.fetch_add(1, Ordering::SeqCst);
            let thread = std::thread::Builder::new()
                .name(format!("ublk-{n}"))
                .spawn(move || worker.run())
                .inspect_err(|_| _ = self.running.fetch_sub(1, Ordering::SeqCst))?;
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        waiting.all()?;
        Ok(waiting)
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        block_path(self.info.device)
    }

    /// Its number.
    pub fn device(&self) -> u32 {
        self.info.device
    }

    /// One line for people: the device, its queues, what the kernel grants it.
    pub fn describe(&self) -> String {
        let (n, depth) = (self.info.queues, self.info.queue_depth);
        let (path, features) = (self.path(), &self.features);
        let s = if n == 1 { "" } else { "s" };
        format!("{} ({n} queue{s} of {depth}; {features})", path.display())
    }

    /// Whether every queue is served: false once the device was stopped by someone else.
    pub fn is_alive(&self) -> bool {
        self.running.load(Ordering::SeqCst) == usize::from(self.info.queues)
    }

    /// Whether the block device is mounted, or held by someone exclusively.
    pub fn is_in_use(&self) -> bool {
        let opened = File::options().read(true).custom_flags(libc::O_EXCL).open(self.path());
        opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
    }

    /// Ends the device. Requests being served are answered; those that come later get an error.
    ///
    /// # Errors
    /// What the driver says.
    pub fn stop(self) -> io::Result<Stopped> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).stop(self.info.device)?;
        self.join();
        let control = self.control.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Stopped { control, device: self.info.device })
    }

    /// Whether the kernel keeps the device, and what waits in it, for another daemon.
    pub fn outlives_its_daemon(&self) -> bool {
        outlives_its_daemon(&self.info)
    }

    /// Lets the device go to another daemon ([`Server::outlives_its_daemon`]): what is being served is
    /// answered, what came since waits in the kernel. The service's connection does not end: this is its
    /// number, under which the next daemon goes on.
    pub fn let_go(self) -> ConnectionId {
        self.connection.kept.store(true, Ordering::SeqCst);
        for leave in &self.leave {
            leave.ask();
        }
        self.join();
        self.connection.connection
    }

    /// Ends the queues, and closes their rings only then. A thread that closes its ring and lives on is given
    /// requests by the kernel meanwhile, as their server; nobody gives those back, so the kernel waits for them
    /// for ever, and the device can never be taken over. To a thread that has ended it gives none.
    fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // A panic in one has ended the process.
        let rings: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        drop(rings);
        drop(self.char_device.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// A device that serves nobody any more, and is to be removed.
pub struct Stopped {
    control: Control<ControlRing>,
    device: u32,
}

impl Stopped {
    /// Removes it, which waits until nobody has it open any more.
    ///
    /// # Errors
    /// What the driver says.
    pub fn remove(mut self) -> io::Result<()> {
        self.control.remove(self.device)
    }
}

impl std::fmt::Debug for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopped").field("device", &self.device).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Undoes a device being made.
struct Making {
    control: Control<ControlRing>,
    device: u32,
    undo: bool,
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.undo {
            let _ = self.control.stop(self.device);
            if let Err(e) = self.control.remove(self.device) {
                tracing::warn!("ublk device {} cannot be removed: {e}", self.device);
            }
        }
    }
}

/// Ends the connection with the last queue.
struct Disconnect {
    service: Arc<dyn Service>,
    connection: ConnectionId,
    /// Another process goes on with it.
    kept: AtomicBool,
}

impl Drop for Disconnect {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::SeqCst) {
            self.service.disconnect(self.connection);
        }
    }
}

/// Settings the kernel takes only through sysfs.
fn tune(device: u32, read_ahead_kb: u32, privileged: bool) {
    let queue = PathBuf::from(format!("/sys/block/ublkb{device}/queue"));
    let set = |name: &str, value: String| {
        if let Err(e) = std::fs::write(queue.join(name), value) {
            tracing::warn!("{}: {e}", queue.join(name).display());
        }
    };
    // Below, requests are scheduled again.
    set("scheduler", "none".into());
    set("read_ahead_kb", read_ahead_kb.to_string());
    if privileged {
        // An unprivileged server is killed by its timeout; ours only has its death noticed by it.
        set("io_timeout", IO_TIMEOUT_MS.to_string());
    }
}

fn said(what: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{what}: {e}"))
}

/// The number of a device by its block device's path.
pub fn device_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("ublkb")?.parse().ok()
}

/// The number of a device by the name of either of its nodes, `ublkcN` or `ublkbN`, with or without a directory.
pub fn device_of_node(node: &Path) -> Option<u32> {
    let name = node.file_name()?.to_str()?;
    name.strip_prefix("ublkb").or_else(|| name.strip_prefix("ublkc"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that got the inode of one that was deleted below its mount was taken for that.
    #[test]
    fn a_volume_is_known_by_more_than_its_inode() {
        let (served, later) =
            (Tag::of("file-8-12-1700000000000000000"), Tag::of("file-8-12-1700000000000000001"));
        assert!(served.is(served.made()) && !later.is(served.made()));
        // What a former daemon left, which knew of no more.
        assert!(served.is(hash("file-8-12")) && !served.is(hash("file-8-13")) && !served.is(hash("file-8")));
        assert!(Tag::of("dev-2048-7").is(hash("dev-2048")));
        assert_eq!(hash("file-8-12"), 0x7cde_6cae_f45f_0626, "that of versions before");
    }

    /// A second one took 64 MiB more, and Linux 6.12 does not bear a daemon that is killed between its two queues' first requests for work.
    #[test]
    fn a_device_that_turns_has_one_queue() {
        assert_eq!([1, 2, 64].map(|processors| queues_for(true, processors)), [1, 1, 1]);
        assert_eq!([0, 1, 2, 64].map(|processors| queues_for(false, processors)), [1, 1, 2, 4]);
    }
}
