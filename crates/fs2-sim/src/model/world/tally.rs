//! What is counted.

use super::*;

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    session: u32,
    counts: [(&'static str, u64); 15],
}

impl Tally {
    /// Adds what was counted since `before`.
    pub fn since(&self, before: &Tally, to: &mut crate::model::swarm::Coverage) {
        for (now, then) in self.counts.iter().zip(&before.counts) {
            let then = if self.session == before.session { then.1 } else { 0 };
            if now.1 > then {
                *to.0.entry(now.0).or_default() += now.1 - then;
            }
        }
    }
}

impl World {
    /// What the engine has counted in this session, and what the world knows beside it.
    pub fn tally(&self) -> Tally {
        let Some(v) = &self.volume else { return Tally::default() };
        let s = v.stats();
        Tally {
            session: self.sessions,
            counts: [
                ("copies published", s.copies_written),
                ("copies in vain", s.copies_void),
                ("reads from replicas", s.reads_from_replica),
                ("replicas invalidated", s.invalidated),
                ("replicas reclaimed", s.reclaimed),
                ("replicas whose hash failed", s.hash_mismatches),
                ("entries verified", s.verified),
                ("entries refuted", s.refuted),
                ("bitmap writes that waited (R3)", s.claims_waited),
                ("blocks freed by discards", s.discarded_blocks),
                ("table pages written", s.table_pages_written),
                ("freezes", u64::from(matches!(v.standing(), Standing::Frozen(_)))),
                ("active sessions", u64::from(*v.standing() == Standing::Active)),
                ("sessions that went on elsewhere", u64::from(self.went_on)),
                ("sessions with entries trusted at once", u64::from(self.trusted > 0)),
            ],
        }
    }
}
