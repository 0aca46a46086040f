//! Copies beside open requests, on a volume that never rests.
//!
//! Where nobody ever pauses nothing would be copied, and there most is to be won. So after a while without a long rest
//! ([`EngineConfig::restless_after`](crate::EngineConfig)) copies are made beside clients' requests, before those that wait for the drive.
//! All that are open wait for them; what that costs is charged like work in pauses and limited with it, and some is left to these, where a
//! copy costs less ([`Disturbance`](super::disturbance::Disturbance)). Not where the drive caches writes: it has them behind an answer that
//! came at once, and nobody sees who waits for them then.

use fs2_block::Nanos;

use super::{Io, Volume};
use crate::part::Part;

impl Volume {
    /// The next copy beside open requests.
    pub(super) fn copy_beside(&mut self, now: Nanos) -> Option<Io> {
        if self.background.is_some() || self.requests.is_empty() || !self.is_restless(now) {
            return None;
        }
        if self.detach.is_some() || self.leaving || !self.may_copy() || self.head.caches_writes() {
            return None;
        }
        let least = self.policy.copies_beside()?;
        if !self.disturbance.may_begin_beside() || self.log.next_len(least, least) < least {
            return None;
        }
        let io = self.copy_closed(now, least as u32)?;
        self.disturbance.begins(&self.head, true);
        (self.background, self.beside) = (Some(io.id), true);
        Some(io)
    }

    fn is_restless(&self, now: Nanos) -> bool {
        now.since(self.rested) >= self.config.restless_after && !self.config.without.has(Part::Beside)
    }
}
