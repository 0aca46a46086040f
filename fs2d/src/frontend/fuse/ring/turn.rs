//! One thread of the ring: which entry is whose, and what is told to the kernel when.
//!
//! Invariants:
//! 1. An entry is the kernel's, or ours (a request came and was not answered), or gone.
//! 2. While an entry is the kernel's, nobody has its part of the memory: the kernel writes there what a request carries
//!    before it is seen here, and reads an answer from there while it is committed.
//! 3. Each request is committed once.
//! 4. The memory stays as long as the kernel may have an entry.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs2_store::{Parts, Seldom};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use nix::sys::eventfd::{EfdFlags, EventFd};
use zerocopy::{FromZeros, IntoBytes};

use super::super::super::is_short;
use super::super::device::{Device, Inbox, Reply};
use super::super::serving::Tell;
use super::super::volume::VolumeFs;
use super::super::wire::{OutHeader, RingCommand, RingHeader, WriteOut, op, ring_command};
use super::entry::arrived;
use crate::service::{Answer, ClientRequest, Lane, Sink, lane_of};
use crate::wakeups::Wakeups;

/// Marks the poll of the eventfd; entries' numbers are smaller.
const WOKEN: u64 = u64::MAX;

/// The connection's place in the ring's table of files.
const DEVICE: types::Fixed = types::Fixed(0);

/// Where answers wait for their thread.
pub(in super::super) struct Outbox {
    answers: Mutex<Vec<Answer>>,
    replies: Mutex<Vec<Said>>,
    /// The thread looks here before it sleeps.
    awake: AtomicBool,
    wake: EventFd,
}

/// A reply that no service gave: to which entry, the errno or 0, and what it holds.
struct Said(usize, i32, Vec<u8>);

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    pub(in super::super) fn new() -> io::Result<Arc<Outbox>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags)?;
        Ok(Arc::new(Outbox {
            answers: Mutex::default(),
            replies: Mutex::default(),
            awake: AtomicBool::new(true),
            wake,
        }))
    }

    pub(in super::super) fn reply(&self, entry: usize, errno: i32, payload: &[u8]) {
        locked(&self.replies).push(Said(entry, errno, payload.to_vec()));
        self.rouse();
    }

    fn rouse(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) {
            // It is full only where it was never read, and then there is something to read.
            let _ = self.wake.write(1);
        }
    }

    /// Whether the thread may sleep: whoever puts something in from now on wakes it.
    fn may_sleep(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        let empty = locked(&self.answers).is_empty() && locked(&self.replies).is_empty();
        if !empty {
            self.awake.store(true, Ordering::SeqCst);
        }
        empty
    }
}

impl Sink for Outbox {
    fn answers(&self, answers: &mut Vec<Answer>) {
        locked(&self.answers).append(answers);
        self.rouse();
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbox")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Invariant 1: not yet told of, or the kernel's.
    Kernel,
    Ours {
        unique: u64,
        tell: Tell,
    },
    Gone,
}

struct Entry {
    queue: u16,
    state: State,
    commit_id: u64,
}

/// A thread's ring, entries and memory.
pub(super) struct Turner {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    /// One header for each entry, in an allocation that is reached by this pointer alone.
    headers: NonNull<RingHeader>,
    /// What the kernel reads when an entry is registered: where its header and its payload lie.
    places: Vec<[libc::iovec; 2]>,
    parts: Arc<Parts>,
    outbox: Arc<Outbox>,
    /// Entries that came back and were not looked at, each with its result.
    came: Vec<(usize, i32)>,
    /// A poll of the eventfd is under way.
    armed: bool,
    /// Entries that are not gone; those that are ours.
    alive: usize,
    ours: usize,
    refusals: Seldom,
}

impl Turner {
    pub(super) fn new(queues: Vec<u16>, entries_each: usize, payload_bytes: usize) -> io::Result<Turner> {
        let entries: Vec<Entry> = queues
            .iter()
            .flat_map(|&queue| (0..entries_each).map(move |_| queue))
            .map(|queue| Entry { queue, state: State::Kernel, commit_id: 0 })
            .collect();
        bind(&queues);
        let commands = entries.len() as u32 + 8;
        // FUSE by io_uring is younger than all of these.
        let ring = IoUring::builder()
            .setup_cqsize((2 * commands).next_power_of_two())
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build(commands)?;
        let parts = Parts::zeroed(entries.len(), payload_bytes)?;
        let headers: Box<[RingHeader]> = entries.iter().map(|_| RingHeader::new_zeroed()).collect();
        let headers = NonNull::from(Box::leak(headers)).cast::<RingHeader>();
        let place = |n: usize| {
            let header = headers.as_ptr().wrapping_add(n);
            [
                libc::iovec { iov_base: header.cast(), iov_len: size_of::<RingHeader>() },
                libc::iovec { iov_base: parts.address(n).cast(), iov_len: parts.part_bytes() },
            ]
        };
        let places = (0..entries.len()).map(place).collect();
        Ok(Turner {
            ring,
            headers,
            places,
            parts,
            outbox: Outbox::new()?,
            came: Vec::new(),
            armed: false,
            // None that the kernel was told of yet.
            alive: 0,
            ours: 0,
            refusals: Seldom::new(),
            entries,
        })
    }

    /// Gives all entries to the kernel.
    ///
    /// # Errors
    /// Where it takes one of them not: what it said.
    pub(super) fn register(&mut self, device: &Device) -> io::Result<()> {
        self.ring.submitter().register_files(&[device.file().as_raw_fd()])?;
        for n in 0..self.entries.len() {
            let places = self.places[n].as_ptr().expose_provenance() as u64;
            let command = RingCommand { queue: self.entries[n].queue, ..RingCommand::default() };
            self.push(&entry128(n, ring_command::REGISTER, &command, Some(places)))?;
            self.alive += 1;
        }
        self.ring.submit()?;
        self.take();
        // What is refused is refused at once.
        let refused = self.came.iter().find(|(_, result)| *result < 0);
        refused.map_or(Ok(()), |(_, result)| Err(io::Error::from_raw_os_error(-result)))
    }

    /// Serves until the kernel wants no entry back and every request has ended.
    ///
    /// # Errors
    /// Where the ring fails.
    pub(super) fn serve(&mut self, volume: &VolumeFs) -> io::Result<()> {
        let mut lane = lane_of(volume.serving().service(), self.outbox.clone());
        let (mut inbox, mut answers) = (Inbox::new(0), Vec::new());
        let wakeups = volume.serving().service().wakeups();
        // Requests since the thread last slept.
        let mut begun = 0;
        loop {
            begun += self.came.len();
            for (n, result) in std::mem::take(&mut self.came) {
                self.came(n, result, volume, &mut inbox, &mut *lane)?;
            }
            lane.run();
            answers.append(&mut locked(&self.outbox.answers));
            for answer in answers.drain(..) {
                self.answered(answer)?;
            }
            let replies = std::mem::take(&mut *locked(&self.outbox.replies));
            for Said(n, errno, payload) in replies {
                self.replied(n, errno, &payload)?;
            }
            if self.alive == 0 && self.ours == 0 {
                return Ok(());
            }
            self.turn(&mut *lane, &wakeups, &mut begun)?;
        }
    }

    /// Hands over what was answered, and waits for something to do.
    fn turn(&mut self, lane: &mut dyn Lane, wakeups: &Wakeups, begun: &mut usize) -> io::Result<()> {
        if !self.armed {
            let poll = opcode::PollAdd::new(types::Fd(self.outbox.wake.as_raw_fd()), libc::POLLIN as u32);
            self.push(&squeue::Entry128::from(poll.build().user_data(WOKEN)))?;
            self.armed = true;
        }
        // Others may wait for I/O that only here ends.
        let pending = lane.is_pending();
        let wait = !pending && self.outbox.may_sleep();
        if wait {
            wakeups.turn(std::mem::take(begun));
        }
        match self.ring.submit_and_wait(wait.into()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted || is_short(&e) => {}
            done => drop(done?),
        }
        self.take();
        if pending && self.came.is_empty() && self.outbox.may_sleep() {
            // SAFETY: the ring has its descriptor open as long as it lives, and it outlives the call.
            lane.wait(Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }));
        } else if pending {
            lane.look();
        }
        self.outbox.awake.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Takes the completions there are.
    fn take(&mut self) {
        for done in self.ring.completion() {
            if done.user_data() == WOKEN {
                self.armed = false;
                // Where another poll was faster there is nothing to read.
                let _ = self.outbox.wake.read();
            } else {
                // Given by us, so it is an entry's number.
                self.came.push((done.user_data() as usize, done.result()));
            }
        }
    }

    fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: what the command points to, and what the kernel knows the entry's memory by, stays until the entry
            // is gone (invariant 4).
            if unsafe { self.ring.submission().push(command) }.is_ok() {
                return Ok(());
            }
            match self.ring.submit() {
                Err(e) if is_short(&e) => std::thread::sleep(Duration::from_millis(1)),
                done => drop(done?),
            }
        }
    }

    /// An entry came back, with a request or for ever.
    fn came(
        &mut self,
        n: usize,
        result: i32,
        volume: &VolumeFs,
        inbox: &mut Inbox,
        lane: &mut dyn Lane,
    ) -> io::Result<()> {
        let State::Kernel = self.entries[n].state else {
            return Err(io::Error::other(format!("entry {n} came back twice")));
        };
        if result < 0 {
            self.entries[n].state = State::Gone;
            self.alive -= 1;
            return Ok(());
        }
        // SAFETY: within the headers, which live as long as `self`. The entry is ours now: the kernel wrote the header
        // before it completed the command, and writes it again only after the entry is given back.
        let header = unsafe { &*self.headers.as_ptr().add(n) };
        self.entries[n].commit_id = header.commit_id;
        self.ours += 1;
        // Keeps invariant 2.
        let Some(payload) = self.parts.lend(n) else {
            return Err(io::Error::other(format!("entry {n}'s memory is still in use")));
        };
        let request = match arrived(header, payload, inbox) {
            Ok(request) => request,
            Err(e) => {
                self.refusals.line(|more| tracing::warn!("refused: {e}{more}"));
                self.entries[n].state = State::Ours { unique: header.commit_id, tell: Tell::End };
                return self.replied(n, libc::EINVAL, &[]);
            }
        };
        let unique = request.unique;
        self.entries[n].state = State::Ours { unique, tell: Tell::End };
        let reply = Reply::to_entry(self.outbox.clone(), n, unique);
        if matches!(request.opcode, op::FORGET | op::BATCH_FORGET | op::DESTROY) {
            // An entry has an answer in any case.
            reply.ok();
        } else if let Some(work) = volume.handle(inbox, reply) {
            work.reply.none();
            self.entries[n].state = State::Ours { unique, tell: work.tell };
            let request = ClientRequest {
                connection: volume.serving().connection(),
                op: work.op,
                extent: work.extent,
                flags: work.flags,
                buffer: work.buffer,
            };
            lane.push(request, [n as u64, 0, 0]);
        }
        // What the request has not taken with it.
        inbox.clear();
        Ok(())
    }

    /// The service has done what it was to do.
    fn answered(&mut self, answer: Answer) -> io::Result<()> {
        let Answer { tag: [n, _, _], buffer, result, lent: _ } = answer;
        // As it was pushed.
        let n = n as usize;
        let State::Ours { tell, .. } = self.entries[n].state else {
            return Err(io::Error::other(format!("entry {n} was answered twice")));
        };
        let len = match (result, tell) {
            (Err(e), _) => {
                drop(buffer);
                return self.commit(n, tell.errno(e), 0);
            }
            (Ok(()), Tell::End | Tell::Punched) => 0,
            (Ok(()), Tell::Written(size)) => {
                drop(buffer);
                return self.replied(n, 0, WriteOut { size, padding: 0 }.as_bytes());
            }
            (Ok(()), Tell::Bytes) if buffer.as_ptr() == self.parts.address(n).cast_const() => buffer.len(),
            (Ok(()), Tell::Bytes) => return self.replied(n, 0, &buffer),
        };
        drop(buffer);
        self.commit(n, 0, len)
    }

    /// Puts an answer into the entry's memory.
    fn replied(&mut self, n: usize, errno: i32, payload: &[u8]) -> io::Result<()> {
        let State::Ours { .. } = self.entries[n].state else {
            return Err(io::Error::other(format!("entry {n} was answered twice")));
        };
        let Some(mut room) = self.parts.lend(n) else {
            return Err(io::Error::other(format!("entry {n} is answered, and its memory still in use")));
        };
        let errno = match room.get_mut(..payload.len()) {
            Some(room) => {
                room.copy_from_slice(payload);
                errno
            }
            None => libc::EIO,
        };
        drop(room);
        self.commit(n, errno, if errno == 0 { payload.len() } else { 0 })
    }

    fn commit(&mut self, n: usize, errno: i32, len: usize) -> io::Result<()> {
        let entry = &mut self.entries[n];
        // Keeps invariant 3.
        let State::Ours { unique, .. } = std::mem::replace(&mut entry.state, State::Kernel) else {
            return Err(io::Error::other(format!("entry {n} was answered twice")));
        };
        let command =
            RingCommand { commit_id: entry.commit_id, queue: entry.queue, ..RingCommand::default() };
        // Keeps invariant 2.
        if self.parts.is_lent(n) {
            return Err(io::Error::other(format!("entry {n} is answered, and its memory still in use")));
        }
        let out = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: -errno, unique };
        // SAFETY: within the headers, which live as long as `self`; the kernel looks at it when the command is submitted.
        let header = unsafe { &mut *self.headers.as_ptr().add(n) };
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        header.payload_bytes = len as u32;
        self.ours -= 1;
        self.push(&entry128(n, ring_command::COMMIT_AND_FETCH, &command, None))
    }
}

impl Drop for Turner {
    fn drop(&mut self) {
        if self.alive > 0 {
            // Keeps invariant 4: the kernel may still write there.
            std::mem::forget(self.parts.clone());
            return;
        }
        let headers = NonNull::slice_from_raw_parts(self.headers, self.entries.len());
        // SAFETY: leaked in `new` with this length; the kernel has no entry.
        drop(unsafe { Box::from_raw(headers.as_ptr()) });
    }
}

/// A command about entry `n`. Of `places` the kernel reads two.
fn entry128(n: usize, what: u32, command: &RingCommand, places: Option<u64>) -> squeue::Entry128 {
    let mut bytes = [0; 80];
    bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
    let built = opcode::UringCmd80::new(DEVICE, what).cmd(bytes).addr(places).build().user_data(n as u64);
    if places.is_none() {
        return built;
    }
    // The crate has no name for the command's `len`, at byte 24 of `struct io_uring_sqe`.
    const LEN: usize = 24;
    const _: () = assert!(size_of::<squeue::Entry128>() == 128);
    let mut built = built;
    // SAFETY: an entry is the kernel's structure of 128 bytes; `len` lies within, aligned, and any number is valid there.
    unsafe { (&raw mut built).cast::<u8>().add(LEN).cast::<u32>().write(2) };
    built
}

/// Keeps the thread on its queues' processors, where that is permitted: who sends there wakes it there.
fn bind(queues: &[u16]) {
    // SAFETY: all zeros are a set with no processor in it.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &queue in queues.iter().filter(|&&queue| usize::from(queue) < 8 * size_of::<libc::cpu_set_t>()) {
        // SAFETY: within the set.
        unsafe { libc::CPU_SET(queue.into(), &mut set) };
    }
    // SAFETY: reads one set. Where none of them is permitted, the thread stays where it may be.
    let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}
