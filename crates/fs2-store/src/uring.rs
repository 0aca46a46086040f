//! A file or device whose I/O is begun by one call for many requests and ends later: io_uring.
//!
//! [`UringStore`] is its [`FileStore`] for every blocking call. What it adds is [`Store::ring`]: a ring for
//! the thread that asks, on which that thread begins I/O and waits for it together with its client's socket.
//!
//! Invariants:
//!
//! - U1: the memory of an I/O belongs to the ring from [`Ring::begin`] until the kernel has said that it ended; a
//!   ring that is dropped waits for that.
//! - U2: a direct write holds its stripes until it ended, as [`FileStore`]'s own do (F1 there).
//! - U3: only the thread that made a ring uses it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::file::{FileStore, Mask};
use crate::{Pipe, Ring, RingEnd, RingIo, RingOp, Seldom, Store, sync_failed};

/// I/Os that a ring has under way at most. A guess: what a connection may have in flight.
const ENTRIES: u32 = 128;

/// The completion of a watch for input.
const INPUT: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub struct UringStore {
    file: Arc<FileStore>,
    /// Rings that could not be had: each thread and each connection asks for one.
    lacking: Seldom,
}

impl UringStore {
    /// Puts a file's I/O on rings.
    ///
    /// # Errors
    /// The file itself and why, where this system has no io_uring or does not permit it (an old kernel,
    /// a container's filter, the sysctl `kernel.io_uring_disabled`).
    pub fn new(file: FileStore) -> Result<UringStore, (Box<FileStore>, io::Error)> {
        let file = Arc::new(file);
        match Uring::new(file.clone()) {
            Ok(ring) => {
                drop(ring);
                Ok(UringStore { file, lacking: Seldom::new() })
            }
            Err(e) => {
                let file = Arc::into_inner(file).expect("the ring that had it is gone");
                Err((Box::new(file), e))
            }
        }
    }

    /// The file it stands on.
    pub fn file(&self) -> &FileStore {
        &self.file
    }
}

impl Store for UringStore {
    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.file)
    }

    fn ring(&self) -> Option<Box<dyn Ring>> {
        match Uring::new(self.file.clone()) {
            Ok(ring) => Some(Box::new(ring)),
            Err(e) => {
                self.lacking.line(|more| {
                    tracing::warn!("no ring for this thread, its I/O goes to others: {e}{more}");
                });
                None
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        self.file.write_at(offset, buf, fua)
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.file.try_read(offset, buf)
    }

    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        self.file.try_write(offset, buf)
    }

    fn tries(&self) -> bool {
        self.file.tries()
    }

    fn try_lend(&self, offset: u64, len: usize, pipe: &mut Pipe) -> io::Result<bool> {
        self.file.try_lend(offset, len, pipe)
    }

    fn lends(&self) -> bool {
        self.file.lends()
    }

    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.file.write_zeroes(offset, len, no_hole)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }
}

struct Flying {
    io: RingIo,
    held: Option<Mask>,
}

struct Uring {
    ring: IoUring,
    file: Arc<FileStore>,
    /// What is under way, by the number the kernel knows it by.
    flying: Vec<Option<Flying>>,
    unused: Vec<u32>,
    /// The descriptor that is watched for input.
    watched: Option<RawFd>,
}

impl Uring {
    fn new(file: Arc<FileStore>) -> io::Result<Uring> {
        // The first two spare interrupts of this thread, and the third says that something has ended, for who does not
        // wait; kernels before 6.1 do not know them.
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)
            .or_else(|_| IoUring::builder().dontfork().build(ENTRIES))?;
        let unused = (0..ENTRIES - 1).rev().collect();
        Ok(Uring { ring, file, flying: (0..ENTRIES - 1).map(|_| None).collect(), unused, watched: None })
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        entered(|| self.ring.submit_and_wait(want))
    }

    /// Takes what has ended; whether input arrived.
    fn reap(&mut self, ended: &mut Vec<RingEnd>) -> bool {
        let mut input = false;
        loop {
            let next = self.ring.completion().next();
            let Some(entry) = next else { return input };
            if entry.user_data() == INPUT {
                (input, self.watched) = (true, None);
                continue;
            }
            let at = entry.user_data() as usize;
            let Some(Flying { mut io, held }) = self.flying.get_mut(at).and_then(Option::take) else {
                continue;
            };
            self.unused.push(at as u32);
            let result = match usize::try_from(entry.result()) {
                Ok(n) if n == io.buffer.len() => Ok(()),
                Ok(_) => self.again(&mut io),
                Err(_) => match -entry.result() {
                    // Not now, or not so: the plain call knows what to do.
                    libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::EOPNOTSUPP | libc::EINVAL => {
                        self.again(&mut io)
                    }
                    errno => {
                        let e = io::Error::from_raw_os_error(errno);
                        Err(if io.op == (RingOp::Write { fua: true }) { sync_failed(e) } else { e })
                    }
                },
            };
            if let Some(mask) = held {
                self.file.release_stripes(mask);
            }
            ended.push(RingEnd { tag: io.tag, buffer: io.buffer, result });
        }
    }

    /// By the plain call, from the beginning: what was done in part is done again. It is aligned, so that it
    /// needs no stripes alone while these are held.
    fn again(&self, io: &mut RingIo) -> io::Result<()> {
        match io.op {
            RingOp::Read => self.file.read_at(io.offset, &mut io.buffer),
            RingOp::Write { fua } => self.file.write_held(io.offset, &io.buffer, fua),
        }
    }
}

/// How long a thread rests for which the kernel had no memory. Guess.
const NO_MEMORY_NAP: Duration = Duration::from_millis(1);

/// One call of the kernel that may be repeated: what it did not take stands in the ring for the next.
fn entered(mut enter: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    loop {
        match enter() {
            Ok(_) => return Ok(()),
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR) => {}
                // Completions are to be taken first.
                Some(libc::EBUSY) => return Ok(()),
                // No memory for a request: completions free some, and so do others, perhaps by a write to this volume.
                Some(libc::EAGAIN | libc::ENOMEM) => {
                    std::thread::sleep(NO_MEMORY_NAP);
                    return Ok(());
                }
                _ => return Err(e),
            },
        }
    }
}

impl Ring for Uring {
    fn begin(&mut self, mut io: RingIo) -> Result<(), RingIo> {
        let len = io.buffer.len() as u64;
        let Some(&at) = self.unused.last() else { return Err(io) };
        if len == 0 || len > u64::from(u32::MAX) || !self.file.is_plain(io.offset, len, io.op != RingOp::Read)
        {
            return Err(io);
        }
        if io.op == (RingOp::Write { fua: true }) && !self.file.is_device() {
            // Two calls: see `FileStore::put`.
            return Err(io);
        }
        if io.op != RingOp::Read && self.file.tells_of_earlier() {
            return Err(io);
        }
        let mut held = None;
        if io.op != RingOp::Read && self.file.is_direct() {
            let mask = Mask::of(io.offset, len);
            if !self.file.try_stripes(mask) {
                return Err(io);
            }
            // Keeps U2.
            held = Some(mask);
        }
        // Not registered: the kernel takes a ring down some time after its process ended, and a file it knows stays
        // locked until then.
        let fd = types::Fd(self.file.raw_fd());
        let entry = match io.op {
            RingOp::Read => {
                opcode::Read::new(fd, io.buffer.as_mut_ptr(), len as u32).offset(io.offset).build()
            }
            RingOp::Write { fua } => {
                let flags = if fua { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, io.buffer.as_ptr(), len as u32)
                    .offset(io.offset)
                    .rw_flags(flags)
                    .build()
            }
        };
        // SAFETY: the buffer's memory stays where it is when `io` moves, and stays allocated and untouched in
        // `flying` until the kernel has said that it is done (U1).
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(u64::from(at))) };
        if pushed.is_err() {
            if let Some(mask) = held {
                self.file.release_stripes(mask);
            }
            return Err(io);
        }
        self.unused.pop();
        self.flying[at as usize] = Some(Flying { io, held });
        Ok(())
    }

    fn pending(&self) -> usize {
        self.flying.len() - self.unused.len()
    }

    fn wait(&mut self, input: Option<BorrowedFd<'_>>, wait: bool, ended: &mut Vec<RingEnd>) -> bool {
        let before = ended.len();
        if let Some(fd) = input.filter(|fd| wait && self.watched != Some(fd.as_raw_fd())) {
            let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
            let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).build().user_data(INPUT);
            // SAFETY: the entry points to no memory. There is a place for it: fewer I/Os are let in.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                self.watched = Some(fd.as_raw_fd());
            }
        }
        loop {
            if let Err(e) = self.enter(usize::from(wait && self.pending() > 0)) {
                // Whoever waits for this ring's I/O must not wait for ever; the kernel refuses only what a broken
                // ring asks.
                tracing::error!("io_uring failed: {e}");
                std::process::abort();
            }
            let ready = self.reap(ended);
            if ready || !wait || ended.len() > before || self.pending() == 0 {
                return ready;
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Keeps U1.
        let mut ended = Vec::new();
        while self.pending() > 0 {
            if self.enter(1).is_err() {
                std::mem::forget(std::mem::take(&mut self.flying));
                return;
            }
            self.reap(&mut ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon whose volume is what memory is to be freed by ended itself when there was none.
    #[test]
    fn a_kernel_without_memory_is_asked_again() {
        for (errno, lasting) in [
            (libc::EAGAIN, false),
            (libc::ENOMEM, false),
            (libc::EBUSY, false),
            (libc::EBADF, true),
            (libc::ENXIO, true),
        ] {
            let done = entered(|| Err(io::Error::from_raw_os_error(errno)));
            assert_eq!(done.err().and_then(|e| e.raw_os_error()), lasting.then_some(errno));
        }
        let mut calls = 0;
        let done = entered(|| {
            calls += 1;
            if calls < 3 { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(1) }
        });
        assert!(done.is_ok() && calls == 3);
    }
}
