//! The payload of a write: into memory, or, where nobody but the store needs it, by reference into a pipe.
//!
//! A large payload is copied three times on its way from a client's memory to the page cache: into the socket, out of it, and
//! into the cache. The second is spared where the pages that the kernel received it in go into a pipe, and from there into the
//! file (`splice`). All of the payload goes into the pipe before its request is submitted (C1 of [`super::connection`]), so
//! that of a client that leaves in the middle nothing is written, as ever.
//!
//! - W1: what arrived in memory stays there. So while payloads come in pipes no more is received than a head
//!   ([`Input::head_by_head`]): what follows it is still in the socket.
//! - W2: a pipe has places, and each takes a page or a part of one. A payload for which there are too few goes into memory,
//!   what is in the pipe first.

use std::io::{ErrorKind, IoSliceMut};
use std::time::Instant;

use fs2_block::{Extent, Flags};
use fs2_store::{AlignedBuf, Pipe};

use super::asking::REST_ASKED_MAX;
use super::connection::{Batch, Connection, End};
use super::input::Input;

/// Smaller payloads are copied, and read ahead. Measured at depth 8 (docs/performance.md): 64 KiB gain nothing by a pipe.
const PIPED_BYTES_MIN: u64 = 128 << 10;

/// Where a payload is.
pub(super) enum Payload {
    Memory(AlignedBuf),
    /// All of it, and nothing else.
    Piped(Pipe),
}

impl Connection {
    /// Takes a write's payload.
    pub(super) fn payload(
        &self,
        extent: Extent,
        flags: Flags,
        input: &mut Input,
        batch: &mut Batch,
    ) -> Result<Payload, End> {
        // At most 32 MiB: the session saw to it.
        let len = extent.len() as usize;
        let may_pipe = extent.len() >= PIPED_BYTES_MIN
            && !flags.fua
            && self.outbox.socket.takes_pages()
            && batch.lane.takes_pipe(extent);
        // Keeps W1.
        if may_pipe {
            input.head_by_head();
        } else {
            input.ahead();
        }
        let mut pipe = if may_pipe && input.bytes().is_empty() { self.outbox.pipe_for(len) } else { None };
        if let Some(into) = &mut pipe
            && self.receive_piped(into, len, batch)?
        {
            return Ok(pipe.map_or_else(|| Payload::Memory(AlignedBuf::zeroed(0)), Payload::Piped));
        }
        let mut buffer = self.outbox.pool.take(len, &mut batch.stash);
        let mut have = 0;
        if let Some(mut pipe) = pipe {
            // Keeps W2.
            have = pipe.len();
            pipe.take_out(&mut buffer[..have])?;
            self.outbox.put_pipe(pipe);
        }
        self.receive_copied(&mut buffer[have..], input, batch)?;
        Ok(Payload::Memory(buffer))
    }

    /// False where the pipe takes no more before it has `len` bytes.
    fn receive_piped(&self, pipe: &mut Pipe, len: usize, batch: &mut Batch) -> Result<bool, End> {
        let socket = &self.outbox.socket;
        let (mut asked, mut arrived) = (Some(REST_ASKED_MAX), false);
        while pipe.len() < len {
            let rest = len - pipe.len();
            match pipe.receive(socket.as_fd(), rest) {
                Ok(0) => {
                    // What came before it was whole.
                    self.before_input(batch)?;
                    return Err(if self.outbox.is_stopping() { End::Stopped } else { End::Eof });
                }
                Ok(_) => {
                    arrived = false;
                    continue;
                }
                Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e.into()),
                // It says the same of both.
                Err(_) if arrived => return Ok(false),
                Err(_) => {}
            }
            self.before_input(batch)?;
            let wait = !batch.lane.is_pending();
            if wait && let Some(asked) = asked.take() {
                let since = Instant::now();
                while !arrived && since.elapsed() < asked {
                    std::hint::spin_loop();
                    arrived = socket.has_input(false)?;
                }
            }
            arrived = arrived || socket.has_input(wait)?;
            if !arrived && wait {
                return Err(End::SendsNoMore);
            }
        }
        Ok(true)
    }

    /// What has arrived is copied, the rest is received in its place.
    fn receive_copied(&self, buffer: &mut [u8], input: &mut Input, batch: &mut Batch) -> Result<(), End> {
        let have = buffer.len().min(input.bytes().len());
        buffer[..have].copy_from_slice(&input.bytes()[..have]);
        input.take(have);
        let (mut at, mut asked) = (have, Some(REST_ASKED_MAX));
        while at < buffer.len() {
            self.before_input(batch)?;
            let wait = !batch.lane.is_pending();
            let rest = &mut buffer[at..];
            let wanted = rest.len();
            let mut got = 0;
            let filled = input.fill(|ahead| {
                let bufs = &mut [IoSliceMut::new(rest), IoSliceMut::new(ahead)];
                // Once: a client far away sends a payload in many parts.
                got = self.receive(bufs, wait, asked.take().filter(|_| wait))?;
                Ok(got.saturating_sub(wanted))
            });
            match filled {
                Err(e) if e.kind() == ErrorKind::WouldBlock && !wait => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(End::SendsNoMore),
                filled => filled?,
            };
            if got == 0 {
                return Err(if self.outbox.is_stopping() { End::Stopped } else { End::Eof });
            }
            at += got.min(wanted);
        }
        Ok(())
    }
}
