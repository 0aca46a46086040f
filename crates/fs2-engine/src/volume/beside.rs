//! Copies beside open requests, on a volume that never rests.
//!
//! Where nobody ever pauses nothing would be copied, and there most is to be won. So after a while without a long rest
//! ([`EngineConfig::restless_after`](crate::EngineConfig)) copies are made beside clients' requests, before those that wait for the drive.
//! All that are open wait for them; what that costs is charged, limited with work in pauses, and has an account of its own besides
//! ([`Disturbance`](super::disturbance::Disturbance)).
//!
//! A drive that caches writes has them behind an answer that came at once, and nobody would see who waits for them later. There each
//! is flushed before anybody is served, which is charged like the copy, and none is made while a flush would have clients' writes to
//! wait for (W3 of [`write_cache`](super::write_cache)). Not with force unit access: an error of it could be of any client's write that
//! the drive had cached, where one of a copy is of no one's.
//!
//! The table is written in rests only; a foreign writer is looked for here, too, for copies may land where it wrote (R4).

use fs2_block::Nanos;

use super::disturbance::During;
use super::{Io, Target, Volume};
use crate::part::Part;

impl Volume {
    /// The next copy beside open requests.
    pub(super) fn copy_beside(&mut self, now: Nanos) -> Option<Io> {
        if self.background.is_some() || self.requests.is_empty() || !self.is_restless(now) {
            return None;
        }
        if self.detach.is_some() || self.leaving || self.flush_failed {
            return None;
        }
        // Who flushes shall not wait for them, for nobody charges that.
        if self.flush_active.is_some() || !self.flush_waiting.is_empty() || self.unit_access_active() {
            return None;
        }
        if self.write_cache.has_copy_beside() {
            return Some(self.flush_beside(now));
        }
        // Who cannot read them shall not wait for them.
        if !self.may_copy() || !self.gate_open() {
            return None;
        }
        let least = self.policy.copies_beside()?;
        // Over others copies are made row by row, and of each all would wait for the way there.
        if !self.disturbance.may_begin_beside() || self.vacancies() < least {
            return None;
        }
        if self.longest_wait().is_some_and(|longest| self.waits_for_overdue(now, longest)) {
            return None;
        }
        // Keeps W3.
        if self.caches_writes() && !(self.config.settle && self.write_cache.flushes_soon(Nanos(0))) {
            return None;
        }
        if self.log.next_len(least, least) < least {
            return None;
        }
        let io = if self.has_looked_below(now) {
            self.policy.beside();
            self.copy_closed(now, least as u32)?
        } else {
            self.look_below(now)?
        };
        if io.target == Target::Volume {
            self.disturbance.begins(&self.head, During::Requests);
        }
        self.stats.beside += 1;
        (self.background, self.beside) = (Some(io.id), true);
        Some(io)
    }

    /// Has the drive write the copy just made before it serves anybody else.
    fn flush_beside(&mut self, now: Nanos) -> Io {
        let io = self.flush_copies(now);
        self.disturbance.begins(&self.head, During::Requests);
        self.stats.beside += 1;
        self.beside = true;
        io
    }

    fn is_restless(&self, now: Nanos) -> bool {
        now.since(self.rested) >= self.config.restless_after && !self.config.without.has(Part::Beside)
    }
}
