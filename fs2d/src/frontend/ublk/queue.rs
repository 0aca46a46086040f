//! One queue of a device: which tag is whose, and what is committed when.
//!
//! Invariants:
//! 1. A tag is the kernel's (its command is given), or ours (a request is being served), or gone.
//! 2. While a tag is the kernel's, its buffer lies in its slot untouched: the kernel copies a write's
//!    payload into it before the request is seen here, and copies a read's answer out of it while its
//!    end is committed. So no client's memory is ever looked at.
//! 3. Each request is committed once, with the buffer it ended with.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use fs2_block::ConnectionId;
use fs2_store::{AlignedBuf, Seldom};

use super::protocol::{decode, encode};
use super::uapi::{IoDescriptor, RESULT_ABORT};
use crate::service::{Answer, ClientRequest, Errno, Lane, Sink};
use crate::wakeups::Wakeups;

/// What a queue gets from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The tag's command came back with this result.
    Came(u16, i32),
    /// Something was put into the outbox.
    Woken,
}

/// The commands of one queue. Whoever gives an address keeps the memory behind it until the command
/// came back or the commands were dropped.
pub(super) trait Commands {
    /// Gives tag `tag` to the kernel for the first time, with the address of its buffer.
    fn fetch(&mut self, tag: u16, addr: u64) -> io::Result<()>;

    /// Tells the kernel how `tag`'s request ended, and gives the tag back.
    fn commit(&mut self, tag: u16, result: i32, addr: u64) -> io::Result<()>;

    /// What the kernel wants of `tag`, after its command came back.
    fn descriptor(&self, tag: u16) -> IoDescriptor;

    /// Hands over what was given, waits for at least one event where `wait`, and adds all there are.
    fn turn(&mut self, wait: bool, events: &mut Vec<Event>) -> io::Result<()>;

    /// Can be read once there are events.
    fn fd(&self) -> BorrowedFd<'_>;
}

impl<C: Commands> Commands for &mut C {
    fn fetch(&mut self, tag: u16, addr: u64) -> io::Result<()> {
        (**self).fetch(tag, addr)
    }

    fn commit(&mut self, tag: u16, result: i32, addr: u64) -> io::Result<()> {
        (**self).commit(tag, result, addr)
    }

    fn descriptor(&self, tag: u16) -> IoDescriptor {
        (**self).descriptor(tag)
    }

    fn turn(&mut self, wait: bool, events: &mut Vec<Event>) -> io::Result<()> {
        (**self).turn(wait, events)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        (**self).fd()
    }
}

/// Where requests that ended wait for their queue's thread.
pub(super) struct Outbox {
    answers: Mutex<Vec<Answer>>,
    /// The queue looks at the outbox before it sleeps.
    awake: AtomicBool,
    /// The queue's own thread, once it runs: what that puts in while it waits for a device it looks at itself.
    owner: OnceLock<ThreadId>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Outbox {
    pub(super) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Arc<Outbox> {
        Arc::new(Outbox {
            answers: Mutex::default(),
            awake: AtomicBool::new(true),
            owner: OnceLock::new(),
            wake,
        })
    }

    fn put(&self, answers: &mut Vec<Answer>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).append(answers);
        if !self.awake.swap(true, Ordering::SeqCst) && self.owner.get() != Some(&thread::current().id()) {
            (self.wake)();
        }
    }

    fn take(&self, into: &mut Vec<Answer>) {
        into.append(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether the queue may sleep: whoever puts something in from now on wakes it.
    fn may_sleep(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        let empty = self.answers.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !empty {
            self.awake.store(true, Ordering::SeqCst);
        }
        empty
    }
}

impl Sink for Outbox {
    fn answers(&self, answers: &mut Vec<Answer>) {
        self.put(answers);
    }
}

/// Asks a queue to let the device go.
#[derive(Clone)]
pub(super) struct Leave {
    asked: Arc<AtomicBool>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Leave {
    pub(super) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Leave {
        Leave { asked: Arc::default(), wake }
    }

    pub(super) fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        (self.wake)();
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

enum Slot {
    /// Invariant 1: the kernel's.
    Kernel(AlignedBuf),
    /// Ours. The buffer is with the request, unless it carries no payload.
    Serving { payload_bytes: usize, spare: Option<AlignedBuf> },
    /// A request that came after the queue was asked to leave: the kernel will give it to the next server.
    Parked,
    /// The kernel does not want it back.
    Gone,
}

/// The machine of one queue.
pub(super) struct Queue<C> {
    commands: C,
    lane: Box<dyn Lane>,
    connection: ConnectionId,
    outbox: Arc<Outbox>,
    slots: Vec<Slot>,
    io_bytes_max: u32,
    /// Tags that are not gone.
    alive: usize,
    serving: usize,
    wakeups: Wakeups,
    refusals: Seldom,
}

fn addr(buffer: &AlignedBuf) -> u64 {
    buffer.as_ptr().expose_provenance() as u64
}

impl<C: Commands> Queue<C> {
    /// Gives every tag to the kernel, which takes them with the first turn. `lane` answers to `outbox`; `wakeups` is told of
    /// turns.
    pub(super) fn new(
        mut commands: C,
        lane: Box<dyn Lane>,
        connection: ConnectionId,
        outbox: Arc<Outbox>,
        buffers: Vec<AlignedBuf>,
        io_bytes_max: u32,
        wakeups: Wakeups,
    ) -> io::Result<Queue<C>> {
        for (tag, buffer) in (0..).zip(&buffers) {
            commands.fetch(tag, addr(buffer))?;
        }
        let alive = buffers.len();
        let slots = buffers.into_iter().map(Slot::Kernel).collect();
        let refusals = Seldom::new();
        Ok(Queue {
            commands,
            lane,
            connection,
            outbox,
            slots,
            io_bytes_max,
            alive,
            serving: 0,
            wakeups,
            refusals,
        })
    }

    /// Serves until the kernel wants no tag back and every request has ended; or, asked to leave, until those
    /// that came before have. Calls `given` once the kernel has all tags.
    pub(super) fn run(&mut self, leave: &Leave, given: impl FnOnce()) -> io::Result<()> {
        let (mut events, mut answers) = (Vec::new(), Vec::new());
        let _ = self.outbox.owner.set(thread::current().id());
        self.commands.turn(false, &mut events)?;
        given();
        let mut came = 0;
        loop {
            let leaving = leave.is_asked();
            for event in events.drain(..) {
                if let Event::Came(tag, result) = event {
                    came += 1;
                    self.came(tag, result, leaving)?;
                }
            }
            self.lane.run();
            self.outbox.take(&mut answers);
            for answer in answers.drain(..) {
                self.commit(answer)?;
            }
            if self.serving == 0 && self.alive == 0 {
                return Ok(());
            }
            if self.serving == 0 && leaving {
                // What was committed last must reach the kernel. What comes with it is parked: it is not
                // looked at any more.
                return self.commands.turn(false, &mut events);
            }
            if self.lane.is_pending() {
                // Others may wait for that I/O, and only here it ends.
                self.commands.turn(false, &mut events)?;
                if events.is_empty() && self.outbox.may_sleep() {
                    self.lane.wait(Some(self.commands.fd()));
                } else {
                    self.lane.look();
                }
            } else {
                let wait = self.outbox.may_sleep();
                if wait {
                    self.wakeups.turn(std::mem::take(&mut came));
                }
                self.commands.turn(wait, &mut events)?;
            }
            self.outbox.awake.store(true, Ordering::SeqCst);
        }
    }

    fn came(&mut self, tag: u16, result: i32, leaving: bool) -> io::Result<()> {
        let Some(slot) = self.slots.get_mut(usize::from(tag)) else { return Ok(()) };
        let Slot::Kernel(mut buffer) = std::mem::replace(slot, Slot::Gone) else {
            // Keeps invariant 3.
            return Err(io::Error::other(format!("tag {tag} came back twice")));
        };
        if result != 0 {
            self.alive -= 1;
            if result != RESULT_ABORT {
                tracing::warn!("ublk tag {tag} is lost: {}", io::Error::from_raw_os_error(-result));
            }
            return Ok(());
        }
        if leaving {
            self.slots[usize::from(tag)] = Slot::Parked;
            return Ok(());
        }
        self.serving += 1;
        let descriptor = self.commands.descriptor(tag);
        let decoded = match decode(&descriptor, self.io_bytes_max) {
            Ok(d) => d,
            Err(e) => {
                self.refusals.line(|more| {
                    tracing::warn!("ublk request refused: {descriptor:?}: errno {}{more}", e.0);
                });
                self.slots[usize::from(tag)] = Slot::Serving { payload_bytes: 0, spare: None };
                self.outbox.put(&mut vec![Answer {
                    tag: [tag.into(), 0, 0],
                    buffer,
                    result: Err(e),
                    lent: None,
                }]);
                return Ok(());
            }
        };
        let payload_bytes = decoded.payload_bytes();
        let (buffer, spare) = if payload_bytes > 0 {
            // Bytes of an older request may stand in it: a write's were just copied over them, and a read
            // that succeeds fills them all.
            buffer.set_len(payload_bytes);
            (buffer, None)
        } else {
            (AlignedBuf::zeroed(0), Some(buffer))
        };
        self.slots[usize::from(tag)] = Slot::Serving { payload_bytes, spare };
        let request = ClientRequest {
            connection: self.connection,
            op: decoded.op,
            extent: decoded.extent,
            flags: decoded.flags,
            buffer,
        };
        self.lane.push(request, [tag.into(), 0, 0]);
        Ok(())
    }

    fn commit(&mut self, answer: Answer) -> io::Result<()> {
        let Answer { tag: [tag, _, _], buffer, mut result, lent: _ } = answer;
        // As it was pushed.
        let tag = tag as u16;
        let slot = &mut self.slots[usize::from(tag)];
        let Slot::Serving { payload_bytes, spare } = std::mem::replace(slot, Slot::Gone) else {
            return Err(io::Error::other(format!("tag {tag} was answered twice")));
        };
        let mut buffer = spare.unwrap_or(buffer);
        if buffer.capacity() < self.io_bytes_max as usize {
            // The service kept ours; its own is too small for the next request.
            let mut new = AlignedBuf::zeroed(self.io_bytes_max as usize);
            if result.is_ok() && payload_bytes > buffer.len() {
                result = Err(Errno(libc::EIO));
            }
            let n = payload_bytes.min(buffer.len());
            new[..n].copy_from_slice(&buffer[..n]);
            buffer = new;
        }
        self.serving -= 1;
        self.commands.commit(tag, encode(payload_bytes, result), addr(&buffer))?;
        self.slots[usize::from(tag)] = Slot::Kernel(buffer);
        Ok(())
    }
}

impl<C> Drop for Queue<C> {
    fn drop(&mut self) {
        // Keeps invariant 2 where a queue fails: the kernel may still write into what it was given.
        for slot in &mut self.slots {
            if let Slot::Kernel(buffer) = std::mem::replace(slot, Slot::Gone) {
                std::mem::forget(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests;
