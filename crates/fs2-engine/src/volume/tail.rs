//! The slowest hundredth of requests: whether there are more of them because of the engine's own work.
//!
//! Beside each response stands what it would have been without copies: without the wait behind the engine's own work, and
//! with half of what its copy is predicted to have saved. Slow is what is slower than 99 % of those.

use fs2_block::Nanos;

/// Responses told apart by 1.6 % at the most, from 65 µs to 137 s.
const PARTS: u32 = 64;
const FIRST_OCTAVE: u32 = 16;
const BUCKETS: usize = 21 * PARTS as usize;

/// Share of requests that is slow by definition, and that of those that may be besides. EVALUATION's target: the 99th percentile never more
/// than 2 % above that without copies. Measured: with 0.2 % more, a mismatched belief wins less in a first pass.
const SLOW: f64 = 0.01;
const MORE: f64 = 0.003;

/// So many may be slow before anything is known.
const FIRST: f64 = 2.0;

/// The limit is moved every so many requests, and counts are halved after so many. Guesses.
const MOVED_EVERY: u32 = 32;
const HALVE_EVERY: u32 = 16_384;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    /// Responses as they were, and as they would have been.
    real: Vec<u32>,
    plain: Vec<u32>,
    answered: u32,
    /// Of both, how many are beyond the bucket `limit`: of the plain ones less than [`SLOW`].
    limit: usize,
    slow: u32,
    plainly_slow: u32,
}

impl Default for Tail {
    fn default() -> Tail {
        let none = || vec![0; BUCKETS];
        Tail { real: none(), plain: none(), answered: 0, limit: BUCKETS - 1, slow: 0, plainly_slow: 0 }
    }
}

fn bucket(time: Nanos) -> usize {
    let ns = time.0.max(1 << FIRST_OCTAVE);
    let octave = ns.ilog2();
    let part = (ns >> (octave - PARTS.ilog2())) as u32 % PARTS;
    (((octave - FIRST_OCTAVE) * PARTS + part) as usize).min(BUCKETS - 1)
}

impl Tail {
    /// A request was answered: its response, what of it was a wait behind the engine's own work, and what a copy saved.
    pub(super) fn answered(&mut self, response: Nanos, behind: Nanos, saved: Nanos) {
        // Half: a prediction. Measured: with all of it later runs' 99th percentile is up to 14 % above that without copies, with none
        // a tenth less of a first pass is won.
        let plain = response.0.saturating_sub(behind.0).saturating_add(saved.0 / 2);
        let (real, plain) = (bucket(response), bucket(Nanos(plain)));
        self.real[real] += 1;
        self.plain[plain] += 1;
        self.slow += u32::from(real > self.limit);
        self.plainly_slow += u32::from(plain > self.limit);
        self.answered += 1;
        if self.answered == HALVE_EVERY {
            self.answered /= 2;
            self.real.iter_mut().chain(&mut self.plain).for_each(|n| *n /= 2);
            self.slow = self.real[self.limit + 1..].iter().sum();
            self.plainly_slow = self.plain[self.limit + 1..].iter().sum();
        }
        if self.answered.is_multiple_of(MOVED_EVERY) {
            self.move_limit();
        }
    }

    fn move_limit(&mut self) {
        let most = f64::from(self.answered) * SLOW;
        while self.limit > 0 && f64::from(self.plainly_slow + self.plain[self.limit]) < most {
            self.slow += self.real[self.limit];
            self.plainly_slow += self.plain[self.limit];
            self.limit -= 1;
        }
        while self.limit + 1 < BUCKETS && f64::from(self.plainly_slow) >= most {
            self.limit += 1;
            self.slow -= self.real[self.limit];
            self.plainly_slow -= self.plain[self.limit];
        }
    }

    /// What is left of what may be slow, from 1 (or more, where copies make less slow) down; below 0, there is too much.
    pub(super) fn left(&self) -> f64 {
        let more = f64::from(self.slow) - f64::from(self.plainly_slow);
        1.0 - more / (f64::from(self.answered) * MORE + FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn buckets_ascend_by_small_steps() {
        let mut last = (0, 1 << FIRST_OCTAVE);
        for ns in (0..37 * 100).map(|i| 2f64.powf(f64::from(i) / 100.0) as u64) {
            let b = bucket(Nanos(ns));
            assert!(b == last.0 || b > last.0 && ns as f64 > last.1 as f64 * 0.98, "{ns}");
            if b > last.0 {
                assert!(b - last.0 <= 2, "{ns}: {b} behind {}", last.0);
                last = (b, ns);
            }
        }
        assert_eq!((bucket(Nanos(0)), bucket(Nanos(u64::MAX))), (0, BUCKETS - 1));
    }

    /// A thousand requests of 1 to 10 ms, and of every hundred one of 20 to 29 ms; every `met`th waits 35 ms more.
    fn thousand(tail: &mut Tail, met: u64, saved: u64) {
        for i in 1..=1000 {
            let took = if i % 100 == 50 { 20 + i / 100 } else { 1 + i % 10 };
            let behind = if met > 0 && i % met == 1 { 35 } else { 0 };
            let saved = saved.min(took - 1);
            tail.answered(ms(took - saved + behind), ms(behind), ms(saved));
        }
    }

    #[test]
    fn waits_beyond_the_slowest_hundredth_are_counted() {
        let mut tail = Tail::default();
        assert_eq!(tail.left(), 1.0);
        (0..5).for_each(|_| thousand(&mut tail, 0, 0));
        assert_eq!(tail.left(), 1.0, "nothing of the engine's own");
        thousand(&mut tail, 500, 0);
        assert!(tail.left() > 0.0 && tail.left() < 1.0, "{tail:?}");
        (0..5).for_each(|_| thousand(&mut tail, 100, 0));
        assert!(tail.left() < 0.0, "one in a hundred is met: {}", tail.left());
        (0..100).for_each(|_| thousand(&mut tail, 0, 0));
        assert!(tail.left() > 0.9, "what was is forgotten: {}", tail.left());
    }

    #[test]
    fn short_waits_make_nothing_slow() {
        let mut tail = Tail::default();
        for i in 0..20_000 {
            let behind = if i % 3 == 0 { 1 } else { 0 };
            let took = if i % 50 == 0 { 20 } else { 5 };
            tail.answered(ms(took + if took == 5 { behind } else { 0 }), ms(behind), ms(0));
        }
        assert!(tail.left() > 0.9, "{}", tail.left());
    }

    #[test]
    fn copies_that_make_less_slow_may_be_made_in_more_pauses() {
        let (mut plain, mut copies) = (Tail::default(), Tail::default());
        for _ in 0..10 {
            thousand(&mut plain, 150, 0);
            thousand(&mut copies, 150, 18);
        }
        assert!(plain.left() < 0.0 && copies.left() > 0.0, "{} {}", plain.left(), copies.left());
    }
}
