//! The slowest hundredth of requests: whether the 99th percentile of the response rises by the engine's own work.
//!
//! Beside each response stands what it would have been without the wait behind that work, plainly. What copies save is left out of it: it is
//! predicted, and counted by half it let later runs' 99th percentile rise by 4 %. Work beside open requests has an account of its own, whose
//! limit rises with what the model without copies takes where several are open: what copies gain there may be spent on more of them. One client
//! whose reads all come from copies would wait for each such work longer than for anything else. Trails are read only while no more responses
//! are slow, for whatever reason, than in that model.

use fs2_block::Nanos;

/// Responses told apart by 0.4 % at the most, from 65 µs to 137 s.
const PARTS: u32 = 256;
const FIRST_OCTAVE: u32 = 16;
const BUCKETS: usize = 21 * PARTS as usize;

/// Share of requests above the percentile that is watched, and how much that may rise: EVALUATION's target is 2 %. Measured from 1 to 1.75 %: alike.
const SLOW: f64 = 0.01;
const RISE: f64 = 1.015;

/// The share that may be above that. Less than [`SLOW`], for what waits is spread far beyond the limit, and a few more move the percentile
/// a long way. Measured with one client and eight on two traces and seven drives, two beliefs: with all of it the percentile rises by more than
/// 2 % in 67 of 672 runs, with this in 31, with 0.008 in 35, and the mean of runs with a true belief is won by 18.5, 18.2 and 17.2 %.
const LATE: f64 = 0.009;

/// So many may be late before anything is known. Measured from a half on: alike.
const FIRST: f64 = 2.0;

/// Share of the percentile of the model without copies up to which responses may rise by work beside open requests. Measured on a
/// volume that never rests: with 0.8 a crowd takes six repeats to win all it will, with this four, with all of it three.
const MODELLED: f64 = 0.9;

/// Trails look at so many responses or half as many, for what one run leaves another would spend at once. Measured with one client on four traces
/// and six drives: of 576 runs 74 have a 99th percentile that is by more than 2 % above that without copies where nothing looks at trails, and
/// the mean of all is won by 30.6 %; with this 15 and 30.4 %. Over [`HALVE_EVERY`] and with 0.5 % for [`RISE`], 6 and 30.3, but where all that is
/// slow is as slow, hardly a trail is read: with room for a half a cvs update's repeats take a third longer.
const LATELY: u32 = 2048;

/// The limit is moved every so many requests, and counts are halved after so many. Guesses.
const MOVED_EVERY: u32 = 32;
const HALVE_EVERY: u32 = 16_384;

/// A percentile is looked up every so many times. A guess: some five are slower then.
const KNOWN_AFTER: u32 = 512;

/// How long a request waited behind the engine's own work, and what of that began while others were open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) own: Nanos,
    pub(super) beside: Nanos,
}

/// The 99th percentile of the model without copies, and whether several are open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Modelled {
    pub(super) slowest: Option<Nanos>,
    pub(super) company: bool,
}

/// How many responses are above a limit.
#[derive(Clone, Debug)]
struct Late {
    /// The limit's bucket.
    from: usize,
    /// With the waits that count here, and plainly.
    waited: u32,
    plain: u32,
}

impl Late {
    fn new() -> Late {
        Late { from: BUCKETS, waited: 0, plain: 0 }
    }

    fn add(&mut self, waited: usize, plain: usize) {
        self.waited += u32::from(waited >= self.from);
        self.plain += u32::from(plain >= self.from);
    }

    fn count(&mut self, waited: &[u32], plain: &[u32]) {
        self.waited = waited[self.from..].iter().sum();
        self.plain = plain[self.from..].iter().sum();
    }

    fn move_to(&mut self, from: usize, waited: &[u32], plain: &[u32]) {
        while self.from > from {
            self.from -= 1;
            self.waited += waited[self.from];
            self.plain += plain[self.from];
        }
        while self.from < from {
            self.waited -= waited[self.from];
            self.plain -= plain[self.from];
            self.from += 1;
        }
    }

    /// What is left of what may be late of so many, from 1 down; below 0, there is too much.
    fn left(&self, answered: u32) -> f64 {
        // Not below 0: halves are rounded.
        let own = f64::from(self.waited.saturating_sub(self.plain));
        let may = f64::from(answered) * LATE - f64::from(self.plain);
        1.0 - own / (may.max(0.0) + FIRST)
    }
}

/// How many of the last responses are above a limit, whatever made them so.
#[derive(Clone, Debug)]
struct Lately {
    /// The limit's bucket.
    from: usize,
    over: u32,
    of: u32,
}

impl Lately {
    fn add(&mut self, response: usize) {
        self.over += u32::from(response >= self.from);
        self.of += 1;
        if self.of >= LATELY {
            (self.over, self.of) = (self.over.div_ceil(2), self.of / 2);
        }
    }

    fn left(&self) -> f64 {
        1.0 - f64::from(self.over) / (f64::from(self.of) * LATE + FIRST)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    /// Responses as they were, without waits behind work beside requests, and plainly.
    real: Vec<u32>,
    paused: Vec<u32>,
    plain: Vec<u32>,
    answered: u32,
    /// Plainly, less than [`SLOW`] of all are from this bucket on.
    slow_from: usize,
    slow: u32,
    /// Of work in pauses, [`RISE`] above that; of all work, there or at [`MODELLED`].
    pauses: Late,
    all: Late,
    /// Beside trails: [`RISE`] above the model's percentile.
    trails: Lately,
}

impl Default for Tail {
    fn default() -> Tail {
        let none = || vec![0; BUCKETS];
        Tail {
            real: none(),
            paused: none(),
            plain: none(),
            answered: 0,
            slow_from: BUCKETS,
            slow: 0,
            pauses: Late::new(),
            all: Late::new(),
            trails: Lately { from: BUCKETS, over: 0, of: 0 },
        }
    }
}

fn bucket(time: Nanos) -> usize {
    let ns = time.0.max(1 << FIRST_OCTAVE);
    let octave = ns.ilog2();
    let part = (ns >> (octave - PARTS.ilog2())) as u32 % PARTS;
    (((octave - FIRST_OCTAVE) * PARTS + part) as usize).min(BUCKETS - 1)
}

/// The shortest time of a bucket, or of the one behind the last.
fn begin(bucket: usize) -> Nanos {
    let (octave, part) = (bucket as u32 / PARTS, bucket as u32 % PARTS);
    Nanos(u64::from(PARTS + part) << (FIRST_OCTAVE - PARTS.ilog2() + octave))
}

/// Halves counts, a half that is over going to the next longer: where hardly two are told as one, half of each would be none.
fn halve(counts: &mut [u32]) {
    let mut over = 0;
    for n in counts {
        *n += over;
        over = *n % 2;
        *n /= 2;
    }
}

/// The 99th percentile of times, older ones weighing less.
#[derive(Clone, Debug)]
pub(super) struct Percentile {
    counts: Vec<u32>,
    added: u32,
    value: Option<Nanos>,
}

impl Percentile {
    pub(super) fn new() -> Percentile {
        Percentile { counts: vec![0; BUCKETS], added: 0, value: None }
    }

    /// One more.
    pub(super) fn add(&mut self, time: Nanos) {
        self.counts[bucket(time)] += 1;
        self.added += 1;
        if self.added.is_multiple_of(KNOWN_AFTER) {
            let most = f64::from(self.added) * SLOW;
            let (mut slow, mut from) = (0, BUCKETS);
            while from > 0 && f64::from(slow + self.counts[from - 1]) < most {
                from -= 1;
                slow += self.counts[from];
            }
            self.value = Some(begin(from));
        }
        if self.added == HALVE_EVERY {
            halve(&mut self.counts);
            self.added = self.counts.iter().sum();
        }
    }

    /// Less than a hundredth took so long; `None` before there were [`KNOWN_AFTER`].
    pub(super) fn value(&self) -> Option<Nanos> {
        self.value
    }
}

impl Tail {
    /// A request was answered: its response, its waits, and the 99th percentile of the model without copies, where there is one.
    pub(super) fn answered(&mut self, response: Nanos, waits: Waits, modelled: Modelled) {
        let without = |wait: Nanos| bucket(Nanos(response.0.saturating_sub(wait.0)));
        let (real, paused, plain) = (bucket(response), without(waits.beside), without(waits.own));
        self.real[real] += 1;
        self.paused[paused] += 1;
        self.plain[plain] += 1;
        self.slow += u32::from(plain >= self.slow_from);
        self.pauses.add(paused, plain);
        self.all.add(real, plain);
        self.trails.add(real);
        self.answered += 1;
        if self.answered == HALVE_EVERY {
            self.answered /= 2;
            [&mut self.real, &mut self.paused, &mut self.plain].into_iter().for_each(|counts| halve(counts));
            self.slow = self.plain[self.slow_from..].iter().sum();
            self.pauses.count(&self.paused, &self.plain);
            self.all.count(&self.real, &self.plain);
        }
        if self.answered.is_multiple_of(MOVED_EVERY) {
            self.move_limits(modelled);
        }
    }

    fn move_limits(&mut self, modelled: Modelled) {
        let most = f64::from(self.answered) * SLOW;
        while self.slow_from > 0 && f64::from(self.slow + self.plain[self.slow_from - 1]) < most {
            self.slow_from -= 1;
            self.slow += self.plain[self.slow_from];
        }
        while f64::from(self.slow) >= most && self.slow_from < BUCKETS {
            self.slow -= self.plain[self.slow_from];
            self.slow_from += 1;
        }
        let behind = |ns: f64| (bucket(Nanos(ns as u64)) + 1).min(BUCKETS);
        let limit = begin(self.slow_from).0 as f64 * RISE;
        self.pauses.move_to(behind(limit), &self.paused, &self.plain);
        let slowest = modelled.slowest.unwrap_or_default().0 as f64;
        let in_company = if modelled.company { slowest * MODELLED } else { 0.0 };
        self.all.move_to(behind(limit.max(in_company)), &self.real, &self.plain);
        self.trails.from = modelled.slowest.map_or(BUCKETS, |s| behind(s.0 as f64 * RISE));
    }

    /// What is left for work in pauses of what may be late, from 1 down; below 0, there is too much.
    pub(super) fn left(&self) -> f64 {
        self.pauses.left(self.answered)
    }

    /// The same for trails: whatever makes responses slow, no more are than without copies.
    pub(super) fn left_for_trails(&self) -> f64 {
        self.trails.left()
    }

    /// The same for work beside open requests.
    pub(super) fn left_beside(&self) -> f64 {
        self.all.left(self.answered)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    fn in_pause(own: Nanos) -> Waits {
        Waits { own, beside: Nanos(0) }
    }

    #[test]
    fn buckets_begin_where_they_should() {
        for b in 0..BUCKETS - 1 {
            let from = begin(b);
            assert_eq!((bucket(from), bucket(Nanos(begin(b + 1).0 - 1))), (b, b));
        }
        assert_eq!(begin(BUCKETS), Nanos(1 << 37));
        assert_eq!((bucket(Nanos(0)), bucket(Nanos(u64::MAX))), (0, BUCKETS - 1));
    }

    /// A thousand requests of 1 to 10 ms, and of every hundred one of 20 to 29 ms; every `met`th waits 35 ms more.
    fn thousand(tail: &mut Tail, met: u64) {
        for i in 1..=1000 {
            let took = if i % 100 == 50 { 20 + i / 100 } else { 1 + i % 10 };
            let behind = if met > 0 && i % met == 1 { 35 } else { 0 };
            tail.answered(ms(took + behind), in_pause(ms(behind)), Modelled::default());
        }
    }

    #[test]
    fn waits_beyond_the_slowest_hundredth_are_counted() {
        let mut tail = Tail::default();
        assert_eq!(tail.left(), 1.0);
        (0..5).for_each(|_| thousand(&mut tail, 0));
        assert_eq!(tail.left(), 1.0, "nothing of the engine's own");
        thousand(&mut tail, 1000);
        assert!(tail.left() > 0.0 && tail.left() < 1.0, "one of 6,000: {}", tail.left());
        (0..5).for_each(|_| thousand(&mut tail, 100));
        assert!(tail.left() < 0.0, "one in a hundred is met: {}", tail.left());
        (0..100).for_each(|_| thousand(&mut tail, 0));
        assert!(tail.left() > 0.9, "what was is forgotten: {}", tail.left());
    }

    #[test]
    fn short_waits_make_nothing_late() {
        let mut tail = Tail::default();
        for i in 0..20_000 {
            let behind = if i % 3 == 0 { 1 } else { 0 };
            let took = if i % 50 == 0 { 20 } else { 5 };
            tail.answered(
                ms(took + if took == 5 { behind } else { 0 }),
                in_pause(ms(behind)),
                Modelled::default(),
            );
        }
        assert!(tail.left() > 0.9, "{}", tail.left());
    }

    #[test]
    fn the_percentile_may_rise_a_little() {
        let (mut little, mut more) = (Tail::default(), Tail::default());
        for i in 0..20_000 {
            let took = ms(if i % 50 == 0 { 20 } else { 5 });
            for (tail, wait) in [(&mut little, 15_150), (&mut more, 15_600)] {
                let behind = Nanos(if i % 50 == 1 { wait * 1000 } else { 0 });
                tail.answered(took + behind, in_pause(behind), Modelled::default());
            }
        }
        assert!(little.left() == 1.0 && more.left() < 0.0, "{} {}", little.left(), more.left());
    }

    /// Copies gain: nine in ten of what is slow without them is fast with them. That may be spent on more of them, up to the model's
    /// percentile, by work beside requests; pauses are left what they have.
    #[test]
    fn what_copies_gain_may_be_spent_beside_requests() {
        let (mut gains, mut none) = (Tail::default(), Tail::default());
        for i in 0..20_000 {
            let own = ms(if i % 50 == 1 { 20 } else { 0 });
            for (tail, slowest) in [(&mut gains, ms(40)), (&mut none, ms(10))] {
                let modelled = Modelled { slowest: Some(slowest), company: true };
                tail.answered(ms(5) + own, Waits { own, beside: own }, modelled);
            }
        }
        assert!(
            gains.left_beside() == 1.0 && none.left_beside() < 0.0,
            "{} {}",
            gains.left_beside(),
            none.left_beside()
        );
        assert!(gains.left() == 1.0 && none.left() == 1.0);
    }

    /// Whatever makes it so slow, and however many are open.
    #[test]
    fn no_trails_where_the_slowest_are_slower_than_without_copies() {
        let left = |modelled: Option<u64>| {
            let mut tail = Tail::default();
            for i in 0..20_000 {
                let modelled = Modelled { slowest: modelled.map(ms), company: false };
                tail.answered(ms(if i % 50 == 1 { 20 } else { 5 }), Waits::default(), modelled);
            }
            tail.left_for_trails()
        };
        assert_eq!((left(None), left(Some(21))), (1.0, 1.0));
        assert!(left(Some(19)) < 0.0, "one in fifty: {}", left(Some(19)));
    }

    /// The same waits: where nothing plainly takes much longer than the slowest hundredth, more may be late before the percentile rises.
    #[test]
    fn a_steep_distribution_bears_more_than_a_flat_one() {
        let (mut steep, mut flat) = (Tail::default(), Tail::default());
        for i in 0..10_000 {
            let slow = i % 50 == 0;
            let behind = ms(if i % 200 == 1 { 150 } else { 0 });
            for (tail, took) in [(&mut steep, 20), (&mut flat, 20 + i / 50 % 100)] {
                let took = ms(if slow { took } else { 5 });
                tail.answered(took + behind, in_pause(behind), Modelled::default());
            }
        }
        assert!(steep.left() > 0.2 && flat.left() < 0.0, "{} {}", steep.left(), flat.left());
    }

    #[test]
    fn the_percentile_is_that_of_what_came_lately() {
        let mut p = Percentile::new();
        for i in 0..KNOWN_AFTER {
            assert_eq!(p.value(), None);
            p.add(ms(if i % 200 == 0 { 90 } else { 3 + u64::from(i % 2) * 4 }));
        }
        let near =
            |p: &Percentile, at: u64| p.value().is_some_and(|v| v > ms(at) && v.0 < ms(at).0 * 101 / 100);
        assert!(near(&p, 7), "three of 512 are slower: {:?}", p.value());
        (0..HALVE_EVERY * 9).for_each(|i| p.add(ms(if i % 50 == 0 { 90 } else { 7 })));
        assert!(near(&p, 90), "one in fifty: {:?}", p.value());
        (0..HALVE_EVERY * 9).for_each(|_| p.add(ms(5)));
        assert!(near(&p, 5), "{:?}", p.value());
    }

    /// Responses spread so far that hardly two are told as one: half of each is none, half of all is not.
    #[test]
    fn halving_forgets_no_more_of_what_is_slow_than_of_what_is_fast() {
        let mut p = Percentile::new();
        let mut tail = Tail::default();
        let mut lowest = ms(1000);
        for i in 0..u64::from(HALVE_EVERY) * 6 {
            // One in fifty takes 20 to 80 ms: half of these, a hundredth of all, 50 ms and more.
            let slow = i % 50 == 0;
            let took = if slow {
                ms(20) + Nanos(i / 50 * 7_919_000 % 60_000_000)
            } else {
                ms(5) + Nanos(i % 50 * 10_000)
            };
            p.add(took);
            tail.answered(took, in_pause(Nanos(0)), Modelled::default());
            if i > 2000 && i.is_multiple_of(u64::from(KNOWN_AFTER)) {
                lowest = lowest.min(p.value().unwrap()).min(begin(tail.slow_from));
            }
        }
        assert!(lowest > ms(45), "the 99th percentile is 50 ms: {lowest:?}");
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_responses(times in proptest::collection::vec((0u64..200, 0u64..60), 1..400)) {
            let mut tail = Tail::default();
            for _ in 0..60 {
                times.iter().for_each(|&(t, w)| {
                    let own = Nanos(w * 900_000);
                    let beside = if t % 2 == 0 { own } else { Nanos(0) };
                    let modelled = Modelled {
                        slowest: (t % 3 == 0).then_some(Nanos(t * 600_000)),
                        company: t % 4 > 0,
                    };
                    tail.answered(Nanos(t * 500_000) + own, Waits { own, beside }, modelled);
                });
                let from = |counts: &[u32], i: usize| counts[i..].iter().sum::<u32>();
                prop_assert_eq!(tail.slow, from(&tail.plain, tail.slow_from));
                for (late, waited) in [(&tail.pauses, &tail.paused), (&tail.all, &tail.real)] {
                    prop_assert_eq!(late.waited, from(waited, late.from));
                    prop_assert_eq!(late.plain, from(&tail.plain, late.from));
                }
                prop_assert!(tail.left() <= 1.0 && tail.left_beside() <= 1.0);
            }
        }
    }
}
