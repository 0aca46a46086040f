//! Those who judge, and what they say.

use std::fmt;

use super::*;

/// What must never happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which oracle says so.
    pub oracle: Oracle,
    /// What it saw.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}

/// Those who judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oracle {
    /// A read brings the last acknowledged write or one in flight, and what the block held meanwhile.
    Read,
    /// The daemon writes to no live block.
    Live,
    /// After a crash everything flushed is there, and every live block holds what was written to it.
    Crash,
    /// A mark that would be trusted tells the truth.
    Mark,
    /// Trust ends only where there is a reason; no replica fails its hash without one.
    Trust,
    /// Each request is answered once, with success unless something below failed.
    Answer,
    /// The engine's own invariants.
    Check,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Oracle::Read => "read",
            Oracle::Live => "live",
            Oracle::Crash => "crash",
            Oracle::Mark => "mark",
            Oracle::Trust => "trust",
            Oracle::Answer => "answer",
            Oracle::Check => "check",
        })
    }
}

impl World {
    /// After everything was let happen: no request is left without its answer.
    ///
    /// # Errors
    /// Where one is.
    pub fn judge_end(&mut self) -> Result<(), Violation> {
        self.drain()?;
        if self.served() {
            // A bitmap may wait for the engine's own read, which is no background work.
            self.drain()?;
        }
        let waits = |o: &crate::model::kernel::Outstanding| {
            let unread = matches!(o.ask, Ask::Discard(_)) && !self.sockets.is_empty();
            !unread && !o.late
        };
        let unanswered = self.kernel.outstanding.iter().find(|(_, o)| waits(o));
        if let (Some((id, o)), Some(_)) = (unanswered, &self.volume) {
            return Err(violation(Oracle::Answer, format!("request {id}, {:?}, is never answered", o.ask)));
        }
        if self.volume.as_ref().is_some_and(Volume::is_detaching) {
            return Err(violation(Oracle::Answer, "the detach never ends".into()));
        }
        Ok(())
    }

    /// Reads every block that counts from its replica, from its original, and from its replica again.
    ///
    /// # Errors
    /// What must never happen.
    pub fn reads_everything(&mut self) -> Result<(), Violation> {
        self.drain()?;
        for b in DATA.into_iter().chain([P]) {
            for from in [From::Replica, From::Original, From::Replica] {
                if self.is_enabled(Action::Read(b, from)) {
                    self.step(Action::Read(b, from))?;
                    self.drain()?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn judge_trust(&self) -> Result<(), Violation> {
        let Some(v) = &self.volume else { return Ok(()) };
        let unwarranted = match v.standing() {
            // A superblock whose write failed is not the one that was sent.
            Standing::Frozen(Freeze::ForeignWriter) => !self.foreign && !self.failed,
            Standing::Frozen(Freeze::BrokenInvariant(_)) => !self.foreign,
            Standing::Frozen(Freeze::SecondMount | Freeze::Checked) => !self.kernel_died,
            Standing::Frozen(Freeze::Superblock(_) | Freeze::Errors | Freeze::Descriptor(_)) => !self.resized,
            Standing::Frozen(_) => true,
            Standing::Active | Standing::Inactive(_) => false,
        };
        if unwarranted {
            let what = format!("the session ended its trust: {:?}", v.standing());
            return Err(violation(Oracle::Trust, what));
        }
        if v.stats().hash_mismatches > 0 && !self.doubt && !self.foreign {
            return Err(violation(Oracle::Trust, "a replica failed its hash, and nothing had failed".into()));
        }
        Ok(())
    }

    /// Nothing may change while a loss of power could leave a mark that would be trusted.
    pub(super) fn judge_erased(&self) -> Result<(), Violation> {
        if self.devices.iter().any(Device::lies) {
            // Whatever was promised to be durable is not: each state that this leaves is looked at.
            return Ok(());
        }
        let durable = self.devices.each_ref().map(Device::durable);
        if mark::promises(&self.ground, &durable).is_some() {
            return Err(violation(Oracle::Mark, "the volume changes while a mark stands".into()));
        }
        Ok(())
    }

    /// Each block that counts holds what it would hold without the daemon's own writes.
    pub(super) fn judge_differential(&self, refs: u16) -> Result<(), Violation> {
        for b in DATA.into_iter().chain([P]).filter(|b| refs >> b & 1 == 1 && self.kernel.is_defined(*b)) {
            let (holds, plain) =
                (self.devices[0].block(self.blocks[b]), self.devices[0].plain_block(self.blocks[b]));
            if let Some(plain) = plain.filter(|plain| *plain != holds) {
                let what = format!("{} holds {holds:?}; without the daemon's writes {plain:?}", NAMES[b]);
                return Err(violation(Oracle::Crash, what));
            }
        }
        Ok(())
    }

    /// What the mark promises is compared with what is there.
    pub(super) fn judge_mark(&self) -> Result<(), Violation> {
        let Some(promises) = mark::promises(&self.ground, &self.devices) else { return Ok(()) };
        let refs = self.refs_on_disk();
        if let Some(page) = promises.not_zero {
            return Err(violation(Oracle::Mark, format!("it says that page {page} of the table is zero")));
        }
        for p in promises.entries {
            let Some(b) = (0..TRACKED).find(|&b| self.blocks[b] == p.original) else { continue };
            let holds = self.devices[0].block(p.original);
            if refs >> b & 1 == 1 && hash_of(self.ground.volume_id, &holds.bytes(self.grain())) != p.hash {
                let what = format!("it vouches for {}, which holds {holds:?}", NAMES[b]);
                return Err(violation(Oracle::Mark, what));
            }
        }
        for b in DATA {
            if refs >> b & 1 == 1 && !self.bit_on_disk(b) {
                let what = format!("it vouches for a bitmap that calls {} free", NAMES[b]);
                return Err(violation(Oracle::Mark, what));
            }
        }
        Ok(())
    }
}
