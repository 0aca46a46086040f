//! What the engine's own work in pauses, beside open requests and in rests costs clients, and how much of that it may.
//!
//! Requests that arrive while the engine's access is at the device wait for it, those that come behind them before the
//! device has nothing more to do are as late, and the first ones find head and cache as that access left them and not as the
//! client did. All three are charged here: the waits as they were, who comes behind with the longest of them, the first
//! [`FOLLOWED`] with what they are predicted to take and would have taken without. Where somebody always waits nobody is ever alone: behind
//! work beside open requests as many are taken to come late as waited, and behind work in a pause [`BEHIND`]. Work in pauses goes on as long as
//!
//! - D1: what it cost reads is at most [`LIMIT`] of the time reads took at the device, and the same of all requests together,
//! - D2: plus [`SHARE`] of what copies have saved by then, each for all that were open, for what gains may be invested in: as predicted, but no
//!   more than [`MEASURED`] as much as reads took less than in the model beside the volume, where there is one,
//! - D3: plus [`FIRST`], or nothing would ever begin, and
//! - D4: the slowest hundredth is hardly slower than without it ([`Tail`]).
//!
//! The more of that is left, the greater a risk of meeting a request is taken ([`Pauses`](super::pauses::Pauses)). Work beside open requests
//! ([`beside`](super::beside)) needs [`BESIDE`] and [`BESIDE_TAIL`] of it, begins again only when as many came as waited, and does not make
//! work in pauses more timid before all is spent.
//! After that work waits for rests ([`LONG_REST`]) until the accounts allow it again. Where D4 alone does not, it goes on in pauses of a length of which
//! none has ended so soon: nobody is late for it.
//!
//! - D5: What work in rests costs has an account of its own, [`REST_SHARE`] of the others. While more was spent, work waits for rests that are the
//!   longer, the more it is ([`REST_POWER`]): where every request ends a rest, as of one who listens to music, each would pay for a copy.
//!
//! All sums are halved now and then: what was is forgotten.

use fs2_block::{Extent, Nanos, Op};

use super::tail::{Modelled, Tail, Waits};
use crate::config::LONG_REST;
use crate::head::Head;
use crate::part::{Part, Without};
use crate::stats::PauseWork;

/// Share of the time that requests take. EVALUATION's target: never more than 1 % worse than without copies. Measured with
/// eight clients on a drive of 15,000 turns: the worst first pass loses 0.6 %.
const LIMIT: f64 = 0.009;

/// Share of what was saved. Measured: a quarter to 0.7 are alike on real traces; on made-up workloads the mean of 78 and 75 of 1,500 runs is
/// worse by more than 1 % with 0.5 and 0.7, of 72 with this.
const SHARE: f64 = 1.0 / 3.0;

/// What copies are predicted to save counts up to so many times what the model beside the volume measures: that comes later, and it serves
/// several in another order. Measured: with 1 a single pass of a cvs update takes 3.31 ms a read, with 2 and more 2.88; with eight clients and rests of
/// a second the mean of runs is won by 12.6 % (1), 13.5 (2), 13.8 (4), 14.5 (all), with a wrong belief 8.9, 10.3, 10.8, 11.1. Of made-up workloads'
/// 1,500 runs 78 (1), 80 (2) and 79 (4) are worse by more than 1 %, and 90 where nothing is measured.
const MEASURED: f64 = 4.0;

/// What may be spent before anything is known, in ms. Measured: 50 costs short traces more than 1 %, 10 one long one most of its gain.
const FIRST: f64 = 15.0;

/// The risk taken where nothing is left to spend, and where all is. Measured: a risk that does not depend on it is too
/// small on one real trace or too large on another.
const RISKS: (f64, f64) = (0.1, 0.5);

/// What must be left for work beside open requests. Measured on a volume that never rests: from 0.1 to 0.5 crowds have won all they will
/// after two or three repeats, with 0.7 one later.
const BESIDE: f64 = 0.5;

/// What must be left for it of what may be late. Measured like [`Tail`]'s share: with 0.3 the 99th percentile rises by more than 2 % in 51 of
/// 672 runs, with this in 32, with 0.8 or 0.9 in 31; a long start of programs wins 25, 21 and 15 % in its first pass.
const BESIDE_TAIL: f64 = 0.6;

/// So many at the most come late behind work in a pause. Guess: a volume that never rests is late for ever otherwise.
const BEHIND: u32 = 1024;

/// In ms, so long somebody may wait for accesses beside open requests that follow one another. One client is served soonest by few long waits:
/// measured from one access to a hundred at a time, the second repeat of a volume that never rests takes 2.24 ms a read, 2.11 (2), 1.36 (8),
/// 1.17 (16) and 0.65 (100). Of a crowd somebody is served meanwhile.
const BURST: f64 = 500.0;

/// What a copy saves counts for so many that are open at the most, as in the model beside the volume.
const OPEN_MAX: usize = 32;

/// Accesses behind the engine's own work that are compared with what they would have taken without: who reads on from the drive's
/// cache misses what the drive would have read ahead one or more accesses later. Measured: of 450 runs of made-up workloads 38 are slower
/// by more than 1 % with 1, and 32 with 16; a long trace with short pauses has 5.85, 6.72 and 7.73 ms a read in its second pass with 1, 4 and
/// 16, and the same from the fourth on.
const FOLLOWED: u32 = 16;

/// The same behind work in a rest, from which a drive with large segments is read for longer before that shows. Measured on music that is heard:
/// with 16, as with 64 in pauses, what the drive had read ahead hides half of the cost; with 64 in pauses made-up mixtures' second runs gain
/// half a point less.
const FOLLOWED_IN_RESTS: u32 = 64;

/// Work in rests may cost this much of what work in pauses may. Measured on requests that come one every few seconds: with all of it they take
/// up to twice as much longer; made-up mixtures' first runs gain 10.7 % and not 10.5.
const REST_SHARE: f64 = 0.5;

/// What was spent beyond it, in parts of it, to this power is how many times [`LONG_REST`] work waits for then, and how many at the most: above
/// that, a minute, nobody's next request is near. The power is measured likewise: with 2 such requests take a third to a half more.
const REST_POWER: i32 = 3;
const REST_MAX: f64 = 60.0;

/// Requests of a kind after which its sums are halved. Guess.
const HALVE_EVERY: u64 = 8192;

/// When the engine does something of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum During {
    /// In a pause, which may end at any time.
    #[default]
    Pause,
    /// Beside open requests.
    Requests,
    /// In a rest.
    Rest,
}

/// Sums of one kind of request, in ms.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Of work in pauses and beside open requests.
    cost: f64,
    /// What of that was work beside open requests.
    beside: f64,
    /// Of work in rests.
    rests: f64,
    took: f64,
    requests: u64,
}

/// Accesses behind the engine's own work that are compared.
#[derive(Clone, Debug)]
struct Follow {
    head: Box<Head>,
    left: u32,
    /// The next is the first.
    first: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Disturbance {
    without: Without,
    /// The head as it would be without the engine's own work of the last pause, and for how many more accesses that is followed.
    without_own: Option<Follow>,
    /// Its access is at the device.
    at_device: bool,
    /// When the last one began.
    during: During,
    reads: Account,
    others: Account,
    /// What copies were predicted to save, which may be of reads that would have come from the drive's cache, and what they did by the model
    /// beside the volume, where there is one.
    saved: f64,
    measured: Option<f64>,
    tail: Tail,
    /// So much later, in ms, than without the engine's own work is what comes before the device has nothing more to do.
    late: f64,
    /// So many come as late yet.
    behind: u32,
    /// Accesses beside open requests since one of these was answered.
    burst: u32,
}

impl Disturbance {
    /// Nothing was disturbed yet; these parts of the accounts are not looked at.
    pub(super) fn without(without: Without) -> Disturbance {
        Disturbance { without, ..Disturbance::default() }
    }

    /// The engine's own access is about to begin.
    pub(super) fn begins(&mut self, head: &Head, during: During) {
        // Who is followed still goes on without this work, too.
        let follow = self.without_own.get_or_insert_with(|| Follow {
            head: Box::new(head.clone()),
            left: 0,
            first: true,
        });
        follow.left = if during == During::Rest { FOLLOWED_IN_RESTS } else { FOLLOWED };
        follow.first = true;
        (self.at_device, self.during) = (true, during);
        self.burst += u32::from(during == During::Requests);
    }

    /// Whether there is enough left for work beside open requests, and who waited for the last was served.
    pub(super) fn may_begin_beside(&self) -> bool {
        let goes_on = self.burst > 0 && self.late < BURST;
        if self.during == During::Requests && self.behind > 0 && !goes_on {
            return false;
        }
        let tail = if self.without.has(Part::Slowest) { 1.0 } else { self.tail.left_beside() };
        self.left(|a| a.cost) >= BESIDE && tail >= BESIDE_TAIL
    }

    /// Whether somebody may wait for a trail.
    pub(super) fn may_trail(&self) -> bool {
        self.without.has(Part::Slowest) || self.tail.left_for_trails() >= 0.0
    }

    /// An access of the engine's own has ended. Who is open has waited for it, in the engine or in the drive's
    /// queue: for how long, and whether they read. Says whether they are charged with it.
    pub(super) fn own_ended(&mut self, open: impl Iterator<Item = (Nanos, bool)>) -> bool {
        let charged = std::mem::take(&mut self.at_device);
        if charged {
            if self.behind == 0 {
                self.late = 0.0;
            }
            // Nobody was served between accesses of a burst.
            let before = if self.burst > 1 { self.late } else { 0.0 };
            let mut waiting = 0;
            for (waited, reads) in open {
                let waited = waited.as_millis_f64();
                self.charge(reads, waited);
                self.late = self.late.max(before + waited);
                waiting += 1;
            }
            self.behind = if self.during == During::Requests { waiting } else { BEHIND };
        }
        charged && self.during != During::Rest
    }

    /// A request arrives, while others are open or not.
    pub(super) fn came(&mut self, alone: bool, reads: bool) {
        if alone || self.behind == 0 {
            (self.late, self.behind) = (0.0, 0);
        }
        self.behind = self.behind.saturating_sub(1);
        self.charge(reads, self.late);
    }

    /// A request was answered: its response, what of it was waits, and the model's 99th percentile without copies.
    pub(super) fn answered(&mut self, response: Nanos, waits: Waits, modelled: Modelled) {
        self.burst = 0;
        self.tail.answered(response, waits, modelled);
    }

    /// A client's access to `extent` begins, alone at the device or not, perhaps while the engine's own is still there. `None`: of what is
    /// neither read nor write the belief about the head knows nothing.
    pub(super) fn client_begins(
        &mut self,
        head: &Head,
        now: Nanos,
        op: Option<Op>,
        extent: Extent,
        alone: bool,
    ) {
        let Some(follow) = &mut self.without_own else { return };
        let Some(op) = op else {
            self.without_own = None;
            return;
        };
        // It is followed for as long as there is such work now and then, and the drive is the same.
        follow.head.learn_from(head);
        let (sector, bytes) = (extent.sector(), extent.len());
        let would = follow.head.suppose_ms(now, op, sector, bytes);
        follow.left -= 1;
        let first = std::mem::take(&mut follow.first);
        // In which order the drive serves several, nobody knows.
        if follow.left == 0 || !alone {
            self.without_own = None;
        }
        if alone || first {
            // It may have brought the head nearer, too.
            self.charge(op == Op::Read, head.cost_ms(now, op, sector, bytes) - would);
        }
    }

    /// A request took so long, from its arrival on.
    pub(super) fn served(&mut self, reads: bool, took: Nanos) {
        let account = self.account(reads);
        account.took += took.as_millis_f64();
        account.requests += 1;
        if account.requests.is_multiple_of(HALVE_EVERY) {
            account.took /= 2.0;
            account.cost /= 2.0;
            account.beside /= 2.0;
            account.rests /= 2.0;
            if reads {
                self.saved /= 2.0;
                self.measured = self.measured.map(|ms| ms / 2.0);
            }
        }
    }

    /// A copy was read instead of its original, which saves so much for each of the requests that are open.
    pub(super) fn saved(&mut self, time: Nanos, open: usize) {
        self.saved += time.as_millis_f64() * open.min(OPEN_MAX) as f64;
    }

    /// By the model beside the volume copies saved so many ms.
    pub(super) fn measured(&mut self, ms: f64) {
        *self.measured.get_or_insert_default() += ms;
    }

    /// What copies saved.
    fn gained(&self) -> f64 {
        self.measured.map_or(self.saved, |ms| (ms * MEASURED).clamp(0.0, self.saved))
    }

    /// The share of pauses that may be met by work of the engine's own; `None`: none, it waits for [`Disturbance::rest`].
    pub(super) fn risk_allowed(&self) -> Option<f64> {
        if self.spent_in_rests() > 1.0 {
            return None;
        }
        let tail = self.left_of_slowest();
        let left = self.left(|a| a.cost - a.beside).min(tail);
        (self.left_in_pauses().min(tail) >= 0.0).then_some(RISKS.0 + (RISKS.1 - RISKS.0) * left)
    }

    /// What is left of what may be late.
    fn left_of_slowest(&self) -> f64 {
        if self.without.has(Part::Slowest) { 1.0 } else { self.tail.left() }
    }

    /// What is left to spend in pauses.
    fn left_in_pauses(&self) -> f64 {
        self.left(|a| a.cost - a.beside).min(self.left(|a| a.cost))
    }

    /// Whether work may be done in pauses in which nobody comes, as far as is known: where the slowest hundredth alone leaves nothing.
    pub(super) fn may_where_nobody_comes(&self) -> bool {
        self.spent_in_rests() <= 1.0 && self.left_in_pauses() >= 0.0 && self.left_of_slowest() < 0.0
    }

    /// How long a rest work waits for where none may be done in pauses: the longer, the more work in rests has cost beyond what it may.
    pub(super) fn rest(&self) -> Nanos {
        Nanos((LONG_REST.0 as f64 * self.spent_in_rests().powi(REST_POWER).clamp(1.0, REST_MAX)) as u64)
    }

    /// What work in rests has cost, in parts of what it may.
    fn spent_in_rests(&self) -> f64 {
        (1.0 - self.left(|a| a.rests)) / REST_SHARE
    }

    /// What is left to spend for work that cost so much, from 1 down; below 0, too much was spent.
    fn left(&self, cost: fn(&Account) -> f64) -> f64 {
        if self.without.has(Part::Disturbance) {
            return 1.0;
        }
        let left = |cost: f64, took: f64| 1.0 - cost / (LIMIT * took + SHARE * self.gained() + FIRST);
        let (r, o) = (&self.reads, &self.others);
        left(cost(r), r.took).min(left(cost(r) + cost(o), r.took + o.took)).min(1.0)
    }

    /// What it cost and what it may cost: of the two accounts the one with less left, of those of rests where too much was spent there.
    pub(super) fn told(&self) -> PauseWork {
        let limit = |took: f64| LIMIT * took + SHARE * self.gained() + FIRST;
        let (r, o) = (&self.reads, &self.others);
        let (reads, all) = (limit(r.took), limit(r.took + o.took));
        let [a, b] = if self.spent_in_rests() > 1.0 {
            [(r.rests, REST_SHARE * reads), (r.rests + o.rests, REST_SHARE * all)]
        } else {
            [(r.cost, reads), (r.cost + o.cost, all)]
        };
        let (cost_ms, limit_ms) = if a.0 / a.1 >= b.0 / b.1 { a } else { b };
        PauseWork { allowed: self.risk_allowed().is_some(), cost_ms, limit_ms }
    }

    fn charge(&mut self, reads: bool, ms: f64) {
        let during = self.during;
        let account = self.account(reads);
        match during {
            During::Pause => account.cost += ms,
            During::Requests => {
                account.cost += ms;
                account.beside += ms;
            }
            During::Rest => account.rests += ms,
        }
    }

    fn account(&mut self, reads: bool) -> &mut Account {
        if reads { &mut self.reads } else { &mut self.others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause in which the engine works; the request that ends it has waited for so many ms.
    fn pause(d: &mut Disturbance, reads: bool, waited: u64) {
        let head = Head::new(None);
        d.begins(&head, During::Pause);
        let now = Nanos::from_millis(waited);
        d.own_ended([(now, reads)].into_iter());
        let op = if reads { Op::Read } else { Op::Write };
        d.client_begins(&head, now, Some(op), Extent::new(0, 4096), false);
    }

    #[test]
    fn work_ends_when_it_has_cost_enough_and_begins_again() {
        let mut d = Disturbance::default();
        assert_eq!(d.risk_allowed(), Some(RISKS.1));
        pause(&mut d, true, 10);
        pause(&mut d, true, 5);
        assert_eq!(d.risk_allowed(), Some(RISKS.0));
        pause(&mut d, true, 1);
        assert!(d.risk_allowed().is_none());
        assert_eq!(d.told(), PauseWork { allowed: false, cost_ms: 16.0, limit_ms: FIRST });
        // Writes are no reason to disturb reads: all that waited were reads.
        (0..1000).for_each(|_| d.served(false, Nanos::from_millis(5)));
        assert!(d.risk_allowed().is_none());
        (0..50).for_each(|_| d.served(true, Nanos::from_millis(5)));
        assert!(d.risk_allowed().is_some());
        (0..5).for_each(|_| pause(&mut d, true, 10));
        assert!(d.risk_allowed().is_none());
        d.saved(Nanos::from_millis(150), 1);
        assert!(d.risk_allowed().is_some());
    }

    #[test]
    fn all_that_came_meanwhile_are_charged() {
        let mut d = Disturbance::default();
        pause(&mut d, false, 21);
        assert!(d.risk_allowed().is_none());
        let mut d = Disturbance::default();
        let waited = |ms: [u64; 2]| ms.map(|ms| (Nanos::from_millis(ms), true)).into_iter();
        d.own_ended(waited([100, 96]));
        assert_eq!(d.told().cost_ms, 0.0, "nothing of the engine's own was done");
        d.begins(&Head::new(None), During::Pause);
        // In the drive's queue, which takes several.
        d.client_begins(&Head::new(None), Nanos(0), Some(Op::Read), Extent::new(0, 4096), false);
        d.own_ended(waited([6, 2]));
        assert_eq!(d.told().cost_ms, 8.0);
        d.own_ended(waited([9, 5]));
        assert_eq!(d.told().cost_ms, 8.0, "once");
    }

    #[test]
    fn those_behind_are_as_late_until_none_is_open() {
        let mut d = Disturbance::default();
        d.came(true, true);
        pause(&mut d, true, 6);
        assert_eq!(d.told().cost_ms, 6.0);
        d.came(false, true);
        assert_eq!(d.told().cost_ms, 12.0);
        d.came(false, false);
        assert_eq!(d.told().cost_ms, 18.0, "of all requests");
        d.came(true, true);
        d.came(false, true);
        assert_eq!(d.told().cost_ms, 18.0);
    }

    /// Two wait for work beside them; two more come as late, then nobody, though none is alone.
    #[test]
    fn behind_work_beside_requests_as_many_are_late_as_waited() {
        let mut d = Disturbance::default();
        (0..500).for_each(|_| d.served(true, Nanos::from_millis(20)));
        assert!(d.may_begin_beside());
        d.begins(&Head::new(None), During::Requests);
        d.own_ended([(Nanos::from_millis(30), true), (Nanos::from_millis(10), true)].into_iter());
        assert_eq!(d.told().cost_ms, 40.0);
        (0..5).for_each(|_| d.came(false, true));
        assert_eq!(d.told().cost_ms, 100.0);
        // 105 may be spent: pauses are as welcome as before, until it is.
        assert!(!d.may_begin_beside());
        assert_eq!(d.risk_allowed(), Some(RISKS.1));
        pause(&mut d, true, 10);
        assert_eq!(d.risk_allowed(), None);
        // Copies that save time of several requests pay for all of them.
        d.saved(Nanos::from_millis(100), 8);
        assert!(d.may_begin_beside() && d.risk_allowed().is_some());
    }

    /// Nobody is ever alone: that does not make all that come late for ever.
    #[test]
    fn behind_work_in_a_pause_so_many_are_late() {
        let mut d = Disturbance::default();
        d.begins(&Head::new(None), During::Pause);
        d.own_ended([(Nanos::from_millis(10), true)].into_iter());
        (0..10 * BEHIND).for_each(|_| d.came(false, true));
        assert_eq!(d.told().cost_ms, 10.0 * f64::from(1 + BEHIND));
    }

    /// Five of 100 ms, then who waited is served, and as many come; who does is as late as all five made it.
    #[test]
    fn work_beside_requests_goes_on_for_half_a_second() {
        let mut d = Disturbance::default();
        d.saved(Nanos::from_millis(100_000), 1);
        let work = |d: &mut Disturbance| {
            let mut n = 0;
            while d.may_begin_beside() {
                d.begins(&Head::new(None), During::Requests);
                d.own_ended([(Nanos::from_millis(100), true)].into_iter());
                n += 1;
            }
            n
        };
        assert_eq!((work(&mut d), d.told().cost_ms), (5, 500.0));
        d.answered(Nanos::from_millis(510), Waits::default(), Modelled::default());
        assert_eq!(work(&mut d), 0, "nobody came yet");
        d.came(false, true);
        assert_eq!((d.told().cost_ms, work(&mut d)), (1000.0, 5));
    }

    #[test]
    fn what_was_is_forgotten() {
        let mut d = Disturbance::default();
        pause(&mut d, true, 1000);
        (0..HALVE_EVERY * 7).for_each(|_| d.served(true, Nanos(0)));
        assert!(d.risk_allowed().is_some());
    }

    /// Who reads on from what the drive read ahead finds that there, and misses what it would have read ahead behind it: the read after.
    #[test]
    fn what_the_drive_would_have_read_ahead_is_charged() {
        let profile = fs2_disk::DriveProfile::builtin("wd800-repaired").unwrap();
        let mut drive = fs2_disk::Disk::new(profile.clone());
        let mut head = Head::new(Some(profile));
        let mut d = Disturbance::default();
        let mut now = Nanos(0);
        let mut access = |d: &mut Disturbance, head: &mut Head, op: Op, extent: Extent, own: bool| {
            now += Nanos::from_millis(30);
            if own {
                d.begins(head, During::Pause);
                d.own_ended(std::iter::empty());
            } else {
                d.client_begins(head, now, Some(op), extent, true);
            }
            let sectors = extent.sectors() as u32;
            let end = drive.serve(now, op, extent.sector(), sectors).end();
            head.completed(op, extent.sector(), extent.len(), now, end);
            let took = end.since(now);
            now = end;
            took
        };
        let on = |i: u64| Extent::new(i * 131_072, 131_072);
        let far = Extent::new(30 << 30, 65_536);
        for i in 0..20 {
            access(&mut d, &mut head, Op::Read, on(i), false);
        }
        access(&mut d, &mut head, Op::Write, far, true);
        let mut lost = Nanos(0);
        let mut charged = Vec::new();
        for i in 20..20 + u64::from(FOLLOWED) {
            let took = access(&mut d, &mut head, Op::Read, on(i), false);
            lost += took.since(Nanos::from_millis(3));
            charged.push(d.told().cost_ms);
        }
        let (first, all) = (charged[0], charged[charged.len() - 1]);
        assert!(lost > Nanos::from_millis(5), "one of them moved the arm: {lost:?}");
        assert!(all > 5.0 && all > first + 2.0, "{charged:?}");
        access(&mut d, &mut head, Op::Read, far, false);
        assert_eq!(d.told().cost_ms, all, "no longer followed");
    }

    /// Work in pauses before it is known that the drive caches writes, and again so soon that the arm without it is followed all the time.
    #[test]
    fn who_is_followed_learns_what_the_drive_is() {
        let profile = fs2_disk::DriveProfile::builtin("wd800-repaired").unwrap();
        let mut drive = fs2_disk::Disk::new(profile.clone().with_write_cache(8 << 10, 50.0));
        let mut head = Head::new(Some(profile));
        let mut d = Disturbance::default();
        let mut now = Nanos(0);
        let mut random = 1u64;
        let mut charged = 0.0;
        for i in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (own, write) = (i % 10 == 0, i % 2 == 0);
            let op = if write || own { Op::Write } else { Op::Read };
            let extent = Extent::new((random >> 33) % 16_000_000 * 4096, 4096);
            now += Nanos::from_millis(30);
            if own {
                d.begins(&head, During::Pause);
                d.own_ended(std::iter::empty());
            } else {
                d.client_begins(&head, now, Some(op), extent, true);
            }
            let end = drive.serve(now, op, extent.sector(), 8).end();
            head.completed(op, extent.sector(), extent.len(), now, end);
            now = end;
            if i == 500 {
                assert!(head.caches_writes() && d.without_own.is_some());
                charged = d.others.cost;
            }
        }
        let writes = d.others.cost - charged;
        assert!(
            writes.abs() < 10.0,
            "650 writes into the cache cost the same with that work as without: {writes} ms"
        );
    }

    /// Requests that take as long all, of which one in fifty has waited: the 99th percentile rises.
    #[test]
    fn where_the_slowest_hundredth_alone_leaves_nothing_work_goes_on_where_nobody_comes() {
        let mut d = Disturbance::default();
        assert!(!d.may_where_nobody_comes(), "it may anywhere");
        for i in 0..2000 {
            let own = Nanos::from_millis(if i % 50 == 0 { 10 } else { 0 });
            d.answered(Nanos::from_millis(20) + own, Waits { own, beside: Nanos(0) }, Modelled::default());
            d.served(true, Nanos::from_millis(20));
        }
        assert!(d.risk_allowed().is_none() && d.may_where_nobody_comes());
        // Half of what the time allows was spent in rests, or all of it in pauses.
        let (mut rests, mut pauses) = (d.clone(), d);
        rest(&mut rests, true, 200);
        assert!(!rests.may_where_nobody_comes());
        pause(&mut pauses, true, 400);
        assert!(!pauses.may_where_nobody_comes());
    }

    /// A rest in which the engine works; the request that ends it has waited for so many ms.
    fn rest(d: &mut Disturbance, reads: bool, waited: u64) {
        d.begins(&Head::new(None), During::Rest);
        let charged = d.own_ended([(Nanos::from_millis(waited), reads)].into_iter());
        assert!(!charged, "the slowest hundredth is of pauses");
    }

    #[test]
    fn the_more_work_in_rests_costs_the_longer_they_have_to_be() {
        let mut d = Disturbance::default();
        let seconds = |d: &Disturbance| d.rest().as_millis_f64() / 1000.0;
        rest(&mut d, true, 7);
        assert_eq!((seconds(&d), d.risk_allowed().is_some()), (1.0, true));
        // Twice what it may.
        rest(&mut d, true, 8);
        assert_eq!((seconds(&d), d.risk_allowed()), (8.0, None));
        assert_eq!(d.told(), PauseWork { allowed: false, cost_ms: 15.0, limit_ms: FIRST * REST_SHARE });
        rest(&mut d, true, 100);
        assert_eq!(seconds(&d), 60.0, "nobody waits for ever");
        // What others took is no reason to disturb reads.
        d.served(false, Nanos::from_millis(1_000_000));
        assert_eq!(seconds(&d), 60.0);
        d.served(true, Nanos::from_millis(30_000));
        assert_eq!((seconds(&d), d.risk_allowed().is_some()), (1.0, true));
        rest(&mut d, false, 20_000);
        assert!(seconds(&d) > 8.0, "nor are reads any to disturb others");

        // What pauses cost makes no rest longer.
        let mut d = Disturbance::default();
        pause(&mut d, true, 1000);
        assert_eq!((seconds(&d), d.risk_allowed()), (1.0, None));
        (0..HALVE_EVERY * 7).for_each(|_| d.served(true, Nanos(0)));
        rest(&mut d, true, 100);
        assert_eq!(d.risk_allowed(), None);
        (0..HALVE_EVERY * 4).for_each(|_| d.served(true, Nanos(0)));
        assert_eq!((seconds(&d), d.risk_allowed().is_some()), (1.0, true), "what was is forgotten");
    }

    /// A large segment hides for long that the drive no longer reads ahead.
    #[test]
    fn behind_a_rest_more_are_followed() {
        let (mut d, head) = (Disturbance::default(), Head::new(None));
        d.begins(&head, During::Rest);
        d.own_ended(std::iter::empty());
        let access = |d: &mut Disturbance| {
            d.client_begins(&head, Nanos(0), Some(Op::Read), Extent::new(0, 4096), true);
        };
        (0..FOLLOWED).for_each(|_| access(&mut d));
        assert!(d.without_own.is_some());
        (FOLLOWED..FOLLOWED_IN_RESTS).for_each(|_| access(&mut d));
        assert!(d.without_own.is_none());
    }

    #[test]
    fn what_copies_save_is_hardly_more_than_was_measured() {
        let mut d = Disturbance::default();
        let limit = |d: &Disturbance| d.told().limit_ms - FIRST;
        d.saved(Nanos::from_millis(300), 1);
        assert_eq!(limit(&d), 100.0, "nothing is modelled beside it");
        d.measured(-50.0);
        assert_eq!(limit(&d), 0.0);
        d.measured(80.0);
        assert_eq!(limit(&d), 40.0);
        d.measured(1000.0);
        assert_eq!(limit(&d), 100.0);
    }
}
