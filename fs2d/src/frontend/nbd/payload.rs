//! The payload of a write, on its way into memory.
//!
//! A large payload is copied three times between a client's memory and the page cache: into the socket, out of it, and into the
//! cache. So it is received where it stays ([`super::input`]): once more cost a third of the time. Moving pages from the
//! socket through a pipe into the file spares the second copy as well, and was no faster: what is received head by head, so that a
//! payload stays in the socket, leaves its client waiting for room (docs/performance.md).

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use fs2_block::Extent;
use fs2_store::AlignedBuf;

use super::connection::{Batch, Connection, End};
use super::input::Input;

/// Bytes a second that a payload has to come with, once patience is over: who sends a byte now and then would keep its memory for ever. A guess:
/// a slow line, on which the longest write takes two minutes.
const PACE: u64 = 256 << 10;

/// How long a payload may be waited for.
fn longest(patience: Duration, bytes: u64) -> Duration {
    patience + Duration::from_secs(bytes.div_ceil(PACE))
}

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
        // What others' answers take meanwhile is not the client's.
        let (longest, mut waited) = (self.patience.map(|p| longest(p, extent.len())), Duration::ZERO);
        while !rest.is_empty() {
            if longest.is_some_and(|longest| waited > longest) {
                return Err(End::SendsNoMore);
            }
            self.before_input(batch)?;
            let wait = !batch.lane.is_pending();
            let began = Instant::now();
            let got = input.fill(rest, |bufs| self.receive(bufs, wait, None));
            waited += began.elapsed();
            let got = match got {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_may_take_what_a_slow_line_does() {
        let longest = |bytes| longest(Duration::from_secs(60), bytes).as_secs();
        assert_eq!((longest(1), longest(1 << 20), longest(32 << 20)), (61, 64, 188));
    }
}
