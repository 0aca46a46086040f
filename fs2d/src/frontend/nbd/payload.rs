//! The payload of a write, on its way into memory.
//!
//! A large payload is copied three times between a client's memory and the page cache: into the socket, out of it, and into the
//! cache. So it is received where it stays ([`super::input`]): once more cost a third of the time. Moving pages from the
//! socket through a pipe into the file spares the second copy as well, and was no faster: what is received head by head, so that a
//! payload stays in the socket, leaves its client waiting for room (docs/performance.md).

use std::io::ErrorKind;

use fs2_block::Extent;
use fs2_store::AlignedBuf;

use super::connection::{Batch, Connection, End};
use super::input::Input;

impl Connection {
    /// Takes a write's payload.
    pub(super) fn payload(
        &self,
        extent: Extent,
        input: &mut Input,
        batch: &mut Batch,
    ) -> Result<AlignedBuf, End> {
        // At most 32 MiB: the session saw to it.
        let len = extent.len() as usize;
        input.request(len);
        let (mut buffer, have) = input.payload(len);
        let mut rest = &mut buffer[have..];
        while !rest.is_empty() {
            self.before_input(batch)?;
            let wait = !batch.lane.is_pending();
            let got = match input.fill(rest, |bufs| self.receive(bufs, wait, None)) {
                Err(e) if e.kind() == ErrorKind::WouldBlock && !wait => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(End::SendsNoMore),
                got => got?,
            };
            if got == 0 {
                return Err(if self.outbox.is_stopping() { End::Stopped } else { End::Eof });
            }
            let got = got.min(rest.len());
            rest = &mut rest[got..];
        }
        Ok(buffer)
    }
}
