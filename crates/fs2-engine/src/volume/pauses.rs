//! How long clients pause, and when in a pause there is likely time for one more access of the engine's own.
//!
//! The lengths of past pauses are counted. Work begins, and goes on, where few of the pauses that lasted as long as
//! the present one ended within the time that an access takes. How few, who asks says.

use fs2_block::Nanos;

/// Lengths told apart: each a fifth longer than the one before, up to 20 s.
const BUCKETS: usize = 48;

/// Shorter ones are no pauses: the next request was under way.
const LEAST: Nanos = Nanos::from_millis(5);

/// Pauses before anything is made of them: until then every pause will do. Guess.
const KNOWN_FROM: u64 = 16;

/// They are weighed anew every so many pauses: it takes as long as a request.
const WEIGHED_EVERY: u64 = 8;

/// Counts are halved after so many pauses. Guess.
const HALVE_EVERY: u64 = 1024;

/// What an access of the engine's own takes before one was seen. Guess: 256 KiB on a drive of 2005.
const OWN_FIRST: Nanos = Nanos::from_millis(12);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    /// Pauses by length, and how many were longer than a bucket's beginning.
    counts: [u32; BUCKETS],
    longer: [u32; BUCKETS + 1],
    seen: u64,
    /// What an access of the engine's own takes, lately.
    own: Nanos,
    /// The risk at the beginning of each bucket.
    risks: [f64; BUCKETS],
}

/// Where buckets begin.
const EDGES: [Nanos; BUCKETS + 1] = {
    let mut edges = [LEAST; BUCKETS + 1];
    let mut i = 1;
    while i <= BUCKETS {
        edges[i] = Nanos(edges[i - 1].0 / 5 * 6);
        i += 1;
    }
    edges
};

/// The bucket of a length; the first for all that are no pauses, the last for all that are longer.
fn bucket(length: Nanos) -> usize {
    EDGES[1..BUCKETS].partition_point(|&e| e <= length)
}

impl Pauses {
    /// Nothing is known.
    pub(super) fn new() -> Pauses {
        Pauses {
            counts: [0; BUCKETS],
            longer: [0; BUCKETS + 1],
            seen: 0,
            own: OWN_FIRST,
            risks: [0.0; BUCKETS],
        }
    }

    /// A pause ended.
    pub(super) fn ended(&mut self, length: Nanos) {
        if length < LEAST {
            return;
        }
        self.counts[bucket(length)] += 1;
        self.seen += 1;
        if self.seen.is_multiple_of(HALVE_EVERY) {
            self.counts.iter_mut().for_each(|c| *c = c.div_ceil(2));
        }
        if self.seen >= KNOWN_FROM && self.seen.is_multiple_of(WEIGHED_EVERY) {
            for i in (0..BUCKETS).rev() {
                self.longer[i] = self.longer[i + 1] + self.counts[i];
            }
            self.risks = std::array::from_fn(|i| self.risk(EDGES[i]));
        }
    }

    /// An access of the engine's own took so long.
    pub(super) fn own_took(&mut self, time: Nanos) {
        self.own = Nanos((self.own.0 * 15 + time.0) / 16);
    }

    /// How many pauses were longer; within a bucket they are taken to end evenly.
    fn survivors(&self, length: Nanos) -> f64 {
        let i = bucket(length);
        let (from, to) = (EDGES[i], EDGES[i + 1]);
        let part = (length.since(from).0 as f64 / to.since(from).0 as f64).min(1.0);
        f64::from(self.longer[i]) - f64::from(self.longer[i] - self.longer[i + 1]) * part
    }

    /// Share of the pauses longer than `rested` that an access begun then would meet the end of.
    fn risk(&self, rested: Nanos) -> f64 {
        // Nobody ever paused so long and went on: as good as the end of the work.
        let lasting = self.survivors(rested);
        if lasting <= 0.0 { 0.0 } else { 1.0 - self.survivors(rested + self.own) / lasting }
    }

    /// Whether work may begin after so long a rest, at no more than this risk. At none, only where something is known.
    pub(super) fn is_quiet(&self, rested: Nanos, risk: f64) -> bool {
        if self.seen < KNOWN_FROM { risk > 0.0 } else { self.risk(rested) <= risk }
    }

    /// The soonest time of a pause, not before `rested`, at which work may begin.
    pub(super) fn quiet_from(&self, rested: Nanos, risk: f64) -> Nanos {
        if self.is_quiet(rested, risk) {
            return rested;
        }
        let known = self.seen >= KNOWN_FROM;
        let next = (bucket(rested) + 1..BUCKETS).find(|&i| known && self.risks[i] <= risk);
        next.map_or(EDGES[BUCKETS], |i| EDGES[i]).max(rested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RISK: f64 = 0.3;

    const fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn every_pause_will_do_until_some_were_seen() {
        let mut p = Pauses::new();
        assert!(p.is_quiet(Nanos(0), RISK) && p.is_quiet(ms(15), RISK) && p.is_quiet(ms(100_000), RISK));
        (1..KNOWN_FROM).for_each(|_| p.ended(ms(20)));
        assert_eq!(p.quiet_from(ms(15), RISK), ms(15));
        p.ended(ms(20));
        assert!(!p.is_quiet(ms(15), RISK));
    }

    /// After 2^32 of them, eight months of 200 a second.
    #[test]
    fn what_is_known_of_pauses_stays_known() {
        let mut p = Pauses::new();
        (0..HALVE_EVERY).for_each(|_| p.ended(ms(20)));
        assert!(!p.is_quiet(ms(15), RISK));
        p.seen = u32::MAX.into();
        (0..WEIGHED_EVERY).for_each(|_| p.ended(ms(20)));
        assert!(!p.is_quiet(ms(15), RISK));
    }

    #[test]
    fn work_begins_behind_the_pauses_that_end_soon() {
        let mut p = Pauses::new();
        for _ in 0..100 {
            (0..3).for_each(|_| p.ended(ms(25)));
            p.ended(ms(10_000));
            p.ended(ms(4));
        }
        // Three in four end at 25 ms.
        assert!(!p.is_quiet(ms(15), RISK));
        let from = p.quiet_from(ms(15), RISK);
        assert!((ms(20)..ms(32)).contains(&from), "{from:?}");
        assert!(p.is_quiet(from, RISK) && p.is_quiet(ms(1_000), RISK));
        assert!(
            p.quiet_from(ms(9_995), RISK) < ms(60_000),
            "the end of the longest is not waited for for ever"
        );
    }

    /// Where nobody who paused so long came back so soon: between short pauses and long ones, and behind all.
    #[test]
    fn at_no_risk_nobody_comes() {
        let mut p = Pauses::new();
        (1..KNOWN_FROM).for_each(|_| p.ended(ms(30)));
        assert!(
            !p.is_quiet(ms(100), 0.0) && p.quiet_from(ms(100), 0.0) == EDGES[BUCKETS],
            "nothing is known"
        );
        (0..100).for_each(|_| p.ended(ms(30)));
        (0..20).for_each(|_| p.ended(ms(900)));
        assert!(!p.is_quiet(ms(15), 0.0) && !p.is_quiet(ms(890), 0.0));
        let from = p.quiet_from(ms(15), 0.0);
        assert!((ms(28)..ms(40)).contains(&from), "{from:?}");
        assert!(p.is_quiet(from, 0.0) && p.is_quiet(ms(700), 0.0) && p.is_quiet(ms(1_200), 0.0));
    }

    #[test]
    fn a_longer_access_needs_a_longer_pause() {
        let mut p = Pauses::new();
        (0..1000).for_each(|i| p.ended(ms(5 + i % 200)));
        let short = p.quiet_from(ms(5), RISK);
        (0..100).for_each(|_| p.own_took(ms(60)));
        (0..WEIGHED_EVERY).for_each(|_| p.ended(ms(100)));
        assert!(p.quiet_from(ms(5), RISK) >= short);
        assert!(p.risk(ms(100)) > 0.5, "{}", p.risk(ms(100)));
    }

    #[test]
    fn edges_ascend_and_buckets_are_theirs() {
        assert!(EDGES.windows(2).all(|w| w[0] < w[1]));
        assert!(EDGES[BUCKETS] > ms(20_000));
        for (i, &e) in EDGES[..BUCKETS].iter().enumerate() {
            assert_eq!((bucket(e), bucket(Nanos(EDGES[i + 1].0 - 1))), (i, i));
        }
        assert_eq!((bucket(Nanos(0)), bucket(Nanos(u64::MAX))), (0, BUCKETS - 1));
    }
}
