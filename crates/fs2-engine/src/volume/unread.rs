//! Reads whose bytes the engine has no use for: a driver may answer them without having the bytes itself.
//!
//! A driver that lends a file's pages to its client, instead of copying them, lets the client find what the place holds
//! when it takes them, which may be after the read's end. So:
//!
//! - Only reads of originals. A replica is hashed before its bytes go to anybody (R8), and its place is pinned to the
//!   read's end and no longer (R6): then another block's copy may be written there, and a client would find that.
//! - What an original's place holds is changed by writes of that very block alone, as long as the block belongs to a
//!   file. A client that reads it has no answer yet, so such a write is concurrent with the read: old bytes and new ones
//!   are both right. A block that is free, or is given back while it is read, may become a replica's place meanwhile;
//!   what a read of it brings nobody may rely on with or without this.
//! - No copy and no hash is made of them (R5): the memory is not the daemon's alone.

use fs2_block::Nanos;

use super::{IoId, IoOp, Purpose, Source, Standing, Volume};
use crate::io::{Brought, Ended, Io};

impl Volume {
    /// Whether the bytes that this I/O brings are of use to the engine; where they are not, it may be ended by
    /// [`Volume::complete_unread`]. Ask after its dispatch.
    pub fn wants_bytes(&self, io: &Io) -> bool {
        let Some(Purpose::Client { seq, source: Source::Original }) =
            self.in_flight.get(io.id.0).filter(|io| io.op == IoOp::Read).map(|io| &io.purpose)
        else {
            return true;
        };
        let p = &self.requests[*seq];
        if p.tainted || p.covered.is_empty() || matches!(self.standing, Standing::Inactive(_)) {
            return false;
        }
        self.standing == Standing::Active && self.would_capture(p.blocks)
            || self.table.stretches_of(p.covered).next().is_some()
    }

    /// A read of an original was done for its client, and nobody here has its bytes.
    ///
    /// # Panics
    /// Where `id` is not in flight, or is no client's read of an original: a driver's error.
    pub fn complete_unread(&mut self, now: Nanos, id: IoId) {
        let io = self.in_flight.get(id.0).filter(|io| io.op == IoOp::Read);
        let Some(&Purpose::Client { seq, source: Source::Original }) = io.map(|io| &io.purpose) else {
            panic!("{id:?} is no client's read of an original");
        };
        // As if a write had come meanwhile: good enough for the client, and for nobody else. So nothing depends on what
        // has changed since the dispatch.
        self.requests.get_mut(seq).expect("a request lives until it is answered").tainted = true;
        self.ended(now, id, Ended { result: Ok(()), brought: Brought::Unseen });
    }
}
