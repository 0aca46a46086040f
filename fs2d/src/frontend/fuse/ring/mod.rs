//! Requests by io_uring, where the kernel offers it (Linux 6.14, fs/fuse/dev_uring.c): an answer goes in and the next
//! request comes out by one command, and all of a turn's commands by one call.
//!
//! The kernel has a queue for each processor, and sends what is asked for there to one of the queue's entries: memory of
//! ours that it was told of. [`Threads`] serve the queues, each several; what a request means is [`VolumeFs`]'s affair, as
//! with /dev/fuse, which stays open for what nobody waits for (FORGET) and for interrupts.
//!
//! Invariants:
//! 1. The kernel is told that the ring is used only when each thread has its ring and its memory: from then on it sends
//!    nothing until every queue has an entry.
//! 2. A thread that ends before the kernel has taken back all its entries cuts the connection off: nobody would answer.

mod entry;
mod turn;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::control::Control;
use super::device::Device;
use super::volume::VolumeFs;

pub(super) use entry::arrived;
pub(super) use turn::Outbox;
use turn::Turner;

/// More would share the processors with whoever sends the requests. A guess, as many as read /dev/fuse.
const THREADS_MAX: usize = 4;

/// Entries of a queue: the loop driver sends a client's requests from one processor, and a drive's scheduler chooses among
/// those that came. The most, and the least however many processors there are.
const ENTRIES_MAX: usize = 32;
const ENTRIES_MIN: usize = 16;

/// Bytes of all payloads, which take memory only as far as they were used; more only with so many processors that
/// [`ENTRIES_MIN`] of [`PAYLOAD_MIN`] are more. A guess.
const BYTES_MAX: usize = 128 << 20;

/// Bytes of a payload: the most and the least that a request may carry.
const PAYLOAD_MAX: usize = super::session::REQUEST_BYTES_MAX as usize;
const PAYLOAD_MIN: usize = 128 << 10;

/// How many entries of what size each queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    queues: u16,
    entries: usize,
    payload_bytes: usize,
}

impl Shape {
    fn of(queues: u16) -> Shape {
        let each = BYTES_MAX / usize::from(queues.max(1));
        let entries = (each / PAYLOAD_MAX).clamp(ENTRIES_MIN, ENTRIES_MAX);
        // A power of two: the kernel counts in pages.
        let payload_bytes = (each / entries).max(1).ilog2();
        Shape { queues, entries, payload_bytes: (1 << payload_bytes).clamp(PAYLOAD_MIN, PAYLOAD_MAX) }
    }
}

/// How many processors there may ever be: as many queues has the kernel.
fn processors_possible() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of(text.trim()).ok_or_else(|| io::Error::other(format!("{text:?} are no processors")))
}

/// How many numbers are in such as `0-3,8`.
fn count_of(list: &str) -> Option<u16> {
    list.split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// What a thread begins with.
struct Begin {
    device: Device,
    volume: Arc<VolumeFs>,
    cut: Cut,
}

/// Keeps invariant 2: cuts the connection off, unless it is defused.
struct Cut {
    connection: u32,
    armed: bool,
}

impl Drop for Cut {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        tracing::error!("a thread of the FUSE ring failed: the mount is cut off");
        if let Err(e) = Control::open(self.connection).and_then(|c| c.abort()) {
            tracing::error!("and cannot be: {e}");
        }
    }
}

/// Threads with rings and memory, which wait for the connection.
pub(super) struct Ready {
    shape: Shape,
    threads: Vec<(Sender<Begin>, JoinHandle<io::Result<()>>)>,
    registered: Receiver<io::Result<()>>,
}

/// Threads that serve.
pub(super) struct Threads(Vec<JoinHandle<io::Result<()>>>);

impl Ready {
    /// Makes what can fail before the kernel is told of it.
    ///
    /// # Errors
    /// Where this process has no io_uring or no memory.
    pub(super) fn new() -> io::Result<Ready> {
        let shape = Shape::of(processors_possible()?);
        let count = usize::from(shape.queues).min(THREADS_MAX);
        let (made, told) = channel::<io::Result<()>>();
        let (registers, registered) = channel();
        let mut threads = Vec::new();
        for n in 0..count {
            let queues = (0..shape.queues).skip(n).step_by(count).collect();
            let (begin, begins) = channel::<Begin>();
            let (made, registers) = (made.clone(), registers.clone());
            let thread = std::thread::Builder::new().name(format!("fuse-ring-{n}")).spawn(move || {
                // The kernel takes a ring's commands from the thread that made it.
                let turner = Turner::new(queues, shape.entries, shape.payload_bytes);
                let failed = turner.as_ref().err().map(|e| io::Error::new(e.kind(), e.to_string()));
                let _ = made.send(failed.map_or(Ok(()), Err));
                // Dropped instead: it is not wanted.
                let (Ok(turner), Ok(begin)) = (turner, begins.recv()) else { return Ok(()) };
                let Begin { device, volume, mut cut } = begin;
                // Dropped before `cut` in whatever way this ends.
                let mut turner = turner;
                let _ = registers.send(turner.register(&device));
                drop(device);
                let end = turner.serve(&volume);
                cut.armed = end.is_err();
                end
            })?;
            threads.push((begin, thread));
        }
        for _ in 0..count {
            told.recv().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        }
        Ok(Ready { shape, threads, registered })
    }

    /// Bytes that a request may carry.
    pub(super) fn payload_bytes(&self) -> u32 {
        self.shape.payload_bytes as u32
    }

    /// Gives the kernel every entry. What it refuses it says: then it sends requests by /dev/fuse, and the threads have
    /// nothing to do until the connection ends.
    pub(super) fn serve(
        self,
        device: &Device,
        volume: &Arc<VolumeFs>,
        connection: u32,
    ) -> (Threads, io::Result<()>) {
        let mut result = Ok(());
        let mut threads = Vec::new();
        for (begin, thread) in self.threads {
            let cut = Cut { connection, armed: true };
            let sent = begin.send(Begin { device: device.clone(), volume: volume.clone(), cut });
            let done = sent.map_err(|_| io::Error::other("a thread panicked"));
            let told = done.and_then(|()| {
                self.registered.recv().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            });
            result = result.and(told);
            threads.push(thread);
        }
        (Threads(threads), result)
    }
}

impl Threads {
    /// Waits for the end of all of them.
    ///
    /// # Errors
    /// What ended one before the connection did.
    pub(super) fn join(self) -> io::Result<()> {
        let panicked = |_| Err(io::Error::other("a thread panicked"));
        let mut end = Ok(());
        for thread in self.0 {
            end = end.and(thread.join().unwrap_or_else(panicked));
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_however_many_processors() {
        let of = |queues| {
            let shape = Shape::of(queues);
            (shape.entries, shape.payload_bytes >> 10)
        };
        assert_eq!(of(1), (32, 1024));
        assert_eq!(of(2), (32, 1024));
        assert_eq!(of(4), (32, 1024));
        assert_eq!(of(6), (21, 1024));
        assert_eq!(of(8), (16, 1024));
        assert_eq!(of(16), (16, 512));
        assert_eq!(of(64), (16, 128));
        assert_eq!(of(512), (16, 128));
        for queues in 1..=64 {
            let shape = Shape::of(queues);
            assert!(usize::from(queues) * shape.entries * shape.payload_bytes <= BYTES_MAX, "{shape:?}");
        }
    }

    #[test]
    fn processors_as_the_kernel_lists_them() {
        for (list, count) in [("0", 1), ("0-1", 2), ("0-3,8-11", 8), ("0,2,4-5", 4)] {
            assert_eq!(count_of(list), Some(count), "{list}");
        }
        for list in ["", "x", "3-1", "0-", "0-65535", "0-40000,0-40000"] {
            assert_eq!(count_of(list), None, "{list}");
        }
    }
}
