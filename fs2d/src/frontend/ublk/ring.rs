//! The kernel behind the two traits: commands by io_uring, descriptors by mmap.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs2_store::AlignedBuf;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;

use super::super::is_short;
use super::control::Driver;
use super::queue::{Commands, Event};
use super::uapi::{
    CONTROL, ControlCommand, DeviceInfo, IoCommand, IoDescriptor, QUEUE_DEPTH_MAX, io as io_cmd,
};

/// `/dev/ublk-control`, one command at a time.
pub(super) struct ControlRing {
    device: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl ControlRing {
    /// # Errors
    /// Where the kernel has no ublk, none of io_uring, or does not let us.
    pub(super) fn open() -> io::Result<ControlRing> {
        let said = |what: &str, e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
        let device = File::options().read(true).write(true).open(CONTROL);
        let device = device.map_err(|e| said("/dev/ublk-control (modprobe ublk_drv)", e))?;
        let ring = IoUring::builder().build(4).map_err(|e| said("io_uring", e))?;
        Ok(ControlRing { device, ring })
    }
}

impl Driver for ControlRing {
    fn run(&mut self, op: u32, command: &mut ControlCommand) -> io::Result<i32> {
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, op).cmd(bytes).build();
        // SAFETY: the kernel is done with the command, and with what its address points to, when the
        // completion is taken below; the caller keeps that memory until this returns.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::Error::other("the ring is full"))?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_short(&e) => std::thread::sleep(Duration::from_millis(1)),
                Err(e) => {
                    // The command may still run, and its memory is about to go.
                    tracing::error!("a control command is lost: {e}");
                    std::process::abort();
                }
                Ok(_) => {
                    if let Some(done) = self.ring.completion().next() {
                        return match done.result() {
                            n if n < 0 => Err(io::Error::from_raw_os_error(-n)),
                            n => Ok(n),
                        };
                    }
                }
            }
        }
    }
}

/// The descriptors of one queue, mapped for reading.
struct Descriptors {
    start: NonNull<IoDescriptor>,
    bytes: NonZeroUsize,
    depth: u16,
}

// SAFETY: a mapping belongs to the process; this one is only read.
unsafe impl Send for Descriptors {}

fn page_rounded(bytes: usize) -> usize {
    // What the kernel rounds to; its pages are never smaller than 4096.
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    bytes.next_multiple_of(page as usize)
}

impl Descriptors {
    fn map(device: &impl AsFd, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let of = |n: u16| page_rounded(usize::from(n) * size_of::<IoDescriptor>());
        let bytes = NonZeroUsize::new(of(depth)).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = usize::from(queue) * of(QUEUE_DEPTH_MAX);
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice; it lies over nothing of ours.
        let start = unsafe { mmap(None, bytes, ProtFlags::PROT_READ, flags, device, offset as i64) }?;
        Ok(Descriptors { start: start.cast(), bytes, depth })
    }

    fn get(&self, tag: u16) -> IoDescriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: within the mapping, which holds `depth` descriptors and lives as long as `self`. The
        // kernel wrote it before it completed the tag's command, and writes it again only after the tag
        // is given back; volatile because it is the kernel that writes.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length; nothing refers to it any more.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.get()) };
    }
}

/// The commands of one queue on a ring of their own. Used by one thread, the one that made it: the kernel
/// takes a queue's commands from no other.
pub(super) struct QueueRing {
    ring: IoUring,
    descriptors: Descriptors,
    queue: u16,
    wake: Arc<EventFd>,
    /// A poll of `wake` is under way.
    armed: bool,
}

/// Marks the poll of the eventfd; tags are smaller.
const WOKEN: u64 = u64::MAX;

/// The char device's place in the ring's table of files.
const DEVICE: types::Fixed = types::Fixed(0);

/// An eventfd for [`QueueRing`].
pub(super) fn wake_fd() -> io::Result<Arc<EventFd>> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    Ok(Arc::new(EventFd::from_value_and_flags(0, flags)?))
}

/// A ring for a queue of this depth, which takes all its commands in one call.
pub(super) fn ring_of(depth: u16) -> io::Result<IoUring> {
    let entries = u32::from(depth) + 8;
    let size = entries.next_power_of_two();
    // Both since Linux 6.0; ublk came with the same.
    IoUring::builder()
        .setup_cqsize(2 * size)
        .setup_single_issuer()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().setup_cqsize(2 * size).build(entries))
}

impl QueueRing {
    /// `ring` is this thread's, from [`ring_of`].
    pub(super) fn new(
        ring: IoUring,
        device: &impl AsFd,
        queue: u16,
        depth: u16,
        wake: Arc<EventFd>,
    ) -> io::Result<QueueRing> {
        ring.submitter().register_files(&[device.as_fd().as_raw_fd()])?;
        let descriptors = Descriptors::map(device, queue, depth)?;
        Ok(QueueRing { ring, descriptors, queue, wake, armed: false })
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the buffer whose address is in the command stays where it is until the command came
            // back (the contract of `Commands`); a poll has no memory.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.ring.submit() {
                Err(e) if is_short(&e) => std::thread::sleep(Duration::from_millis(1)),
                done => drop(done?),
            }
        }
    }

    fn give(&mut self, op: u32, tag: u16, result: i32, addr: u64) -> io::Result<()> {
        let command = IoCommand { queue: self.queue, tag, result, addr };
        let entry = opcode::UringCmd16::new(DEVICE, op).cmd(bytes_of(&command)).build();
        self.push(&entry.user_data(tag.into()))
    }
}

fn bytes_of(command: &IoCommand) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(command.as_bytes());
    bytes
}

impl Commands for QueueRing {
    fn fetch(&mut self, tag: u16, addr: u64) -> io::Result<()> {
        self.give(io_cmd::FETCH_REQ, tag, 0, addr)
    }

    fn commit(&mut self, tag: u16, result: i32, addr: u64) -> io::Result<()> {
        self.give(io_cmd::COMMIT_AND_FETCH_REQ, tag, result, addr)
    }

    fn descriptor(&self, tag: u16) -> IoDescriptor {
        self.descriptors.get(tag)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring has its descriptor open as long as it lives, and the borrow is of it.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn turn(&mut self, wait: bool, events: &mut Vec<Event>) -> io::Result<()> {
        if !self.armed {
            let entry = opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), libc::POLLIN as u32);
            self.push(&entry.build().user_data(WOKEN))?;
            self.armed = true;
        }
        match self.ring.submit_and_wait(wait.into()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted || is_short(&e) => {}
            done => drop(done?),
        }
        let mut woken = false;
        for done in self.ring.completion() {
            if done.user_data() == WOKEN {
                woken = true;
                events.push(Event::Woken);
            } else {
                // Given by us, so it is a tag.
                events.push(Event::Came(done.user_data() as u16, done.result()));
            }
        }
        if woken {
            self.armed = false;
            // Empties it; where another poll was faster, there is nothing to read.
            let _ = self.wake.read();
        }
        Ok(())
    }
}

/// Asks for a request by every tag of every queue, serves none, and lets the device go. Returns for how many the driver had nobody.
///
/// Threads of ours may be gone with the driver none the wiser only once they ended, and their rings must be closed behind that: see
/// [`super::Server::let_go`].
pub(super) fn ask_by_all_tags(device: u32, info: &DeviceInfo) -> io::Result<usize> {
    let file = open_char(device, true, BUSY_PATIENCE)?;
    // Where the driver does give a request, as from Linux 6.15 on it may, its payload goes here; the thread's end gives it back.
    let buffer = AlignedBuf::zeroed(info.io_bytes_max as usize);
    let asked = std::thread::scope(|scope| {
        let ask = || (0..info.queues).map(|queue| ask_by_all_tags_of(queue, info, &file, &buffer)).collect();
        let thread = std::thread::Builder::new().name("ublk-unserved".into()).spawn_scoped(scope, ask)?;
        // A panic in one has ended the process.
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended")))
    });
    let asked: Vec<(IoUring, usize)> = asked?;
    Ok(asked.iter().map(|(_, taken)| taken).sum())
}

fn ask_by_all_tags_of(
    queue: u16,
    info: &DeviceInfo,
    device: &OwnedFd,
    buffer: &AlignedBuf,
) -> io::Result<(IoUring, usize)> {
    let mut ring = ring_of(info.queue_depth)?;
    let addr = buffer.as_ptr().expose_provenance() as u64;
    for tag in 0..info.queue_depth {
        let command = IoCommand { queue, tag, result: 0, addr };
        // Not by the ring's table of files: that is let go later than the ring.
        let entry = opcode::UringCmd16::new(types::Fd(device.as_raw_fd()), io_cmd::FETCH_REQ);
        let entry = entry.cmd(bytes_of(&command)).build();
        // SAFETY: the buffer outlives this thread, and the driver copies in the thread's own context only.
        unsafe { ring.submission().push(&entry) }.map_err(|_| io::Error::other("the ring is full"))?;
    }
    while !ring.submission().is_empty() {
        match ring.submit() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if is_short(&e) => std::thread::sleep(Duration::from_millis(1)),
            done => drop(done?),
        }
    }
    // What it refuses it refuses at once.
    let refused = ring.completion().filter(|done| done.result() < 0).count();
    Ok((ring, usize::from(info.queue_depth) - refused))
}

/// How long a node may take to be there and ours, in steps of [`NODE_NAP`]. A guess: udev takes milliseconds, on a machine that
/// starts seconds.
pub(super) const NODE_PATIENCE: Duration = Duration::from_secs(10);
const NODE_NAP: Duration = Duration::from_millis(20);

/// How long a device may be open still whose server has ended: as long as the kernel takes for that one's last I/O. Guess.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(60);

/// Opens the char device of a device just made, whose node may take a moment; or of one that a dead server had.
pub(super) fn open_char(device: u32, privileged: bool, patience: Duration) -> io::Result<OwnedFd> {
    let path = format!("/dev/ublkc{device}");
    let until = Instant::now() + patience;
    loop {
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => return Ok(file.into()),
            // Not there yet, not ours yet (udev), or a dead server's last reference is going.
            Err(e)
                if Instant::now() < until
                    && matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EACCES | libc::EBUSY)) =>
            {
                std::thread::sleep(NODE_NAP);
            }
            Err(e) => {
                let hint = if privileged { "" } else { "; has udev a rule that gives it to its maker?" };
                return Err(io::Error::new(e.kind(), format!("{path}: {e}{hint}")));
            }
        }
    }
}
