//! What pictures of a replay are drawn from: accesses of a run drawn evenly among all, and how the copies
//! and the hot region went with time.
//!
//! Invariants:
//!
//! - S1: of `seen` accesses every one is among the dots with the same probability (Vitter's algorithm R),
//!   so that the dots are as dense here and there as the accesses were.
//! - S2: no more dots and moments are kept than was said, however long the run.

use fs2_block::{BlockRange, Nanos, Op, Sector};
use fs2_disk::Service;

/// What an access was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotKind {
    /// A read served where the request said.
    Read,
    /// A read served from elsewhere: a copy, or where a scheme has moved the block.
    ReadFromCopy,
    /// A write, of zeroes too.
    Write,
}

/// One access for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dot {
    /// When the drive began with it, since the run's begin.
    pub at: Nanos,
    /// Its first sector, where it took place.
    pub sector: Sector,
    /// Sectors between the end of the drive's access before it, for whomever, and its begin.
    pub distance: u64,
    /// T_A: what the access took.
    pub access: Nanos,
    /// What for.
    pub kind: DotKind,
}

/// The state at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, since the run's begin.
    pub at: Nanos,
    /// Blocks that have a copy.
    pub replicas: u64,
    /// Where the policy takes the head to be mostly, if it says so.
    pub hot: Option<BlockRange>,
}

/// Moments kept of a run at most.
const MOMENTS_MAX: usize = 256;

/// Between the first moments of a run; doubled as often as there would be too many.
const FIRST_STEP: Nanos = Nanos::from_millis(10);

/// Samples of one run and the idle time after it. See the module.
#[derive(Clone, Debug)]
pub struct Samples {
    begin: Nanos,
    dots_max: usize,
    random: u64,
    seen: u64,
    dots: Vec<Dot>,
    /// Where the drive's last access ended.
    head: u64,
    step: Nanos,
    due: Nanos,
    moments: Vec<Moment>,
    /// What was seen after the last of the moments; the end of the run or of the idle time after it.
    latest: Option<Moment>,
    last: Option<Moment>,
    answered: Nanos,
}

impl Samples {
    /// None yet; of a run that begins now, with the head behind `head`. The same accesses give the same dots.
    pub fn new(begin: Nanos, head: Sector, dots_max: usize) -> Samples {
        Samples {
            begin,
            dots_max,
            random: 0,
            seen: 0,
            dots: Vec::new(),
            head: head.0,
            step: FIRST_STEP,
            due: begin,
            moments: Vec::new(),
            latest: None,
            last: None,
            answered: Nanos(0),
        }
    }

    /// When the run began.
    pub fn begin(&self) -> Nanos {
        self.begin
    }

    /// Accesses for requests, the dots drawn from them.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Keeps the rest.
    pub fn forget_dots(&mut self) {
        self.dots = Vec::new();
    }

    /// Some of these accesses, or all, in the order in which the drive began them.
    pub fn dots(&self) -> Vec<Dot> {
        let mut dots = self.dots.clone();
        dots.sort_by_key(|d| d.at);
        dots
    }

    /// The run and the idle time after it, ascending: evenly, but for what changed before a pause.
    pub fn moments(&self) -> impl Iterator<Item = Moment> + '_ {
        let mut after = self.moments.last().map_or(Nanos(0), |m| m.at);
        let rest = [self.latest, self.last].into_iter().flatten().filter(move |m| {
            let new = m.at > after;
            after = after.max(m.at);
            new
        });
        self.moments.iter().copied().chain(rest)
    }

    /// When the run's last request was answered, since its begin; idle time follows.
    pub fn answered(&self) -> Nanos {
        self.answered
    }

    /// Where the drive's last access ended.
    pub(super) fn head(&self) -> Sector {
        Sector(self.head)
    }

    /// The drive begins with an access that leaves the head before `end`; for a request where `kind` says what
    /// for.
    pub(super) fn access(&mut self, service: &Service, sector: Sector, end: Sector, kind: Option<DotKind>) {
        let distance = sector.0.abs_diff(self.head);
        self.head = end.0;
        let Some(kind) = kind else { return };
        self.seen += 1;
        let dot =
            Dot { at: service.start.since(self.begin), sector, distance, access: service.total(), kind };
        // Keeps S1 and S2.
        if self.dots.len() < self.dots_max {
            self.dots.push(dot);
        } else if let Some(old) = {
            let i = self.next_random() % self.seen;
            self.dots.get_mut(usize::try_from(i).unwrap_or(usize::MAX))
        } {
            *old = dot;
        }
    }

    /// The state after an access, or with `last` at the end of the run or of the idle time so far, which
    /// replaces the end said before.
    pub(super) fn moment(&mut self, now: Nanos, replicas: u64, hot: Option<BlockRange>, last: bool) {
        let moment = Moment { at: now.since(self.begin), replicas, hot };
        if last {
            self.last = Some(moment);
            return;
        }
        let before = self.latest.replace(moment);
        if now < self.due {
            return;
        }
        // What was reached before a pause was reached then, not at its end.
        if let Some(before) = before.filter(|b| moment.at.since(b.at) > self.step) {
            self.keep(before);
        }
        self.keep(moment);
        self.due = now + self.step;
    }

    fn keep(&mut self, moment: Moment) {
        if self.moments.last().is_some_and(|m| m.at >= moment.at) {
            return;
        }
        // Keeps S2.
        if self.moments.len() >= MOMENTS_MAX {
            let mut i = 0;
            self.moments.retain(|_| {
                i += 1;
                i % 2 == 1
            });
            self.step = self.step + self.step;
        }
        self.moments.push(moment);
    }

    /// The run's last request was answered.
    pub(super) fn ended(&mut self, at: Nanos) {
        self.answered = at.since(self.begin);
    }

    /// Steele, Lea and Flood's splitmix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// What an access for a request is drawn as; discards and flushes are not.
pub(super) fn kind_of(op: Op, moved: bool) -> Option<DotKind> {
    match op {
        Op::Read if moved => Some(DotKind::ReadFromCopy),
        Op::Read => Some(DotKind::Read),
        Op::Write | Op::WriteZeroes => Some(DotKind::Write),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(start: u64) -> Service {
        Service {
            op: Op::Read,
            start: Nanos(start),
            overhead: Nanos(1),
            seek: Nanos(2),
            rotation: Nanos(3),
            transfer: Nanos(4),
            cache_hit: false,
        }
    }

    /// Each tenth of a long run has about a tenth of the dots: four standard deviations of the
    /// hypergeometric distribution are 48.
    #[test]
    fn dots_are_as_dense_as_accesses() {
        let mut s = Samples::new(Nanos(0), Sector(0), 2000);
        for i in 0..100_000 {
            s.access(&service(i), Sector(i), Sector(i + 1), Some(DotKind::Read));
        }
        let dots = s.dots();
        assert_eq!((dots.len(), s.seen()), (2000, 100_000));
        assert!(dots.windows(2).all(|w| w[0].at < w[1].at), "each at most once, in order");
        for tenth in 0..10 {
            let n = dots.iter().filter(|d| d.at.0 / 10_000 == tenth).count();
            assert!(n.abs_diff(200) <= 54, "tenth {tenth}: {n}");
        }
    }

    #[test]
    fn few_accesses_are_all_kept_and_distances_count_the_engines_own() {
        let mut s = Samples::new(Nanos(100), Sector(50), 10);
        s.access(&service(100), Sector(50), Sector(58), Some(DotKind::Read));
        s.access(&service(110), Sector(1000), Sector(1100), None);
        s.access(&service(120), Sector(90), Sector(98), Some(DotKind::ReadFromCopy));
        let dots = s.dots();
        let seen: Vec<_> = dots.iter().map(|d| (d.at.0, d.sector.0, d.distance, d.access.0)).collect();
        assert_eq!(seen, [(0, 50, 0, 10), (20, 90, 1010, 10)]);
        assert_eq!(dots[1].kind, DotKind::ReadFromCopy);
    }

    #[test]
    fn moments_are_bounded_and_the_last_is_the_last() {
        let mut s = Samples::new(Nanos(0), Sector(0), 0);
        for i in 0..100_000u64 {
            let now = Nanos::from_millis(i);
            s.moment(now, i, None, false);
        }
        s.moment(Nanos::from_millis(100_000), 7, None, true);
        s.moment(Nanos::from_millis(100_001), 8, None, true);
        let moments: Vec<_> = s.moments().collect();
        assert!((100..=MOMENTS_MAX + 1).contains(&moments.len()), "{}", moments.len());
        assert!(moments.windows(2).all(|w| w[0].at < w[1].at));
        assert_eq!(moments[0].at, Nanos(0));
        assert_eq!(moments.last().map(|m| (m.at, m.replicas)), Some((Nanos::from_millis(100_001), 8)));
        // Evenly: no gap is more than twice another, but for the end.
        let gaps: Vec<_> = moments.windows(2).map(|w| w[1].at.since(w[0].at)).collect();
        let (least, most) = gaps[..gaps.len() - 2]
            .iter()
            .fold((Nanos(u64::MAX), Nanos(0)), |(a, b), g| (a.min(*g), b.max(*g)));
        assert!(most <= least + least, "{least:?} {most:?}");
    }

    /// What was copied at the beginning of a long pause is not drawn as copied at its end.
    #[test]
    fn a_pause_begins_where_the_last_change_was() {
        let mut s = Samples::new(Nanos(0), Sector(0), 0);
        for (at, replicas) in [(0, 0), (100, 1), (101, 2), (102, 3), (90_000, 4)] {
            s.moment(Nanos::from_millis(at), replicas, None, false);
        }
        s.moment(Nanos::from_millis(200_000), 4, None, true);
        let seen: Vec<_> = s.moments().map(|m| (m.at.0 / 1_000_000, m.replicas)).collect();
        assert_eq!(seen, [(0, 0), (100, 1), (102, 3), (90_000, 4), (200_000, 4)]);
    }
}
