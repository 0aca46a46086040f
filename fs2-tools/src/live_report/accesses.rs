//! A trace as figures: one pass, in memory that does not grow with it.

use fs2_block::{Extent, Nanos, Op, Sector};
use fs2_sim::replay::{Dot, DotKind, Histogram};
use fs2_trace::{Record, RecordFlags, TraceError};

/// Accesses kept for the pictures.
const DOTS_MAX: usize = 8000;

/// What a trace says of a volume's accesses.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    /// Clients' accesses, evenly chosen among all.
    pub(super) dots: Vec<Dot>,
    /// How many there were.
    pub(super) seen: u64,
    /// Every so many is kept.
    every: u64,
    /// When the first arrived and the last was answered.
    pub(super) first: Option<Nanos>,
    pub(super) last: Nanos,
    /// Dispatch to completion: reads from their own place, reads from replicas, writes.
    pub(super) originals: Histogram,
    pub(super) replicas: Histogram,
    pub(super) writes: Histogram,
    /// The sums of these, in ns.
    pub(super) originals_ns: u128,
    pub(super) replicas_ns: u128,
    /// The daemon's own accesses.
    pub(super) own: u64,
    /// Of the reads from replicas, those that the trace does not say where they were.
    pub(super) unplaced: u64,
    /// What failed; counted nowhere else.
    pub(super) failed: u64,
    /// Clients' accesses of which the trace does not say how long they took; counted nowhere else.
    pub(super) untimed: u64,
    /// One past the last sector that was touched.
    head: u64,
    /// Where the next read from a replica was.
    place: Option<(Extent, Option<Nanos>)>,
}

/// As the daemon writes it: where a read from a replica, whose record follows, took place.
const PLACE: RecordFlags = RecordFlags::REPLICA.with(RecordFlags::COPY);

impl Accesses {
    /// Takes a trace in; what is whole of one that was cut off counts, and the error says where it was.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub(super) fn of(
        records: impl Iterator<Item = Result<Record, TraceError>>,
    ) -> Result<(Accesses, Option<TraceError>), TraceError> {
        let mut all = Accesses { every: 1, ..Accesses::default() };
        for record in records {
            match record {
                Ok(record) => all.add(&record),
                Err(cut @ TraceError::Truncated { .. }) => return Ok((all, Some(cut))),
                Err(e) => return Err(e),
            }
        }
        Ok((all, None))
    }

    fn add(&mut self, r: &Record) {
        let place = self.place.take();
        if r.flags.contains(RecordFlags::FAILED) {
            self.failed += 1;
            return;
        }
        if !matches!(r.op, Op::Read | Op::Write) {
            return;
        }
        if r.flags.contains(PLACE) {
            self.place = Some((r.extent, r.service));
            return;
        }
        if r.flags.contains(RecordFlags::COPY) || r.flags.contains(RecordFlags::HASH) {
            self.own += 1;
            self.moved(r.extent);
            return;
        }
        let Some(took) = r.service else {
            self.untimed += 1;
            self.moved(r.extent);
            return;
        };
        let replica = r.flags.contains(RecordFlags::REPLICA);
        let place =
            place.filter(|(at, service)| replica && at.len() == r.extent.len() && *service == r.service);
        self.unplaced += u64::from(replica && place.is_none());
        let extent = place.map_or(r.extent, |p| p.0);
        self.first = Some(self.first.map_or(r.at, |f| f.min(r.at)));
        self.last = self.last.max(r.at + took);
        let (times, kind) = match (r.op, replica) {
            (Op::Write, _) => (&mut self.writes, DotKind::Write),
            (_, true) => (&mut self.replicas, DotKind::ReadFromCopy),
            (_, false) => (&mut self.originals, DotKind::Read),
        };
        times.add(took);
        match kind {
            DotKind::ReadFromCopy => self.replicas_ns += u128::from(took.0),
            DotKind::Read => self.originals_ns += u128::from(took.0),
            DotKind::Write => {}
        }
        let distance = self.moved(extent);
        if self.seen.is_multiple_of(self.every) {
            self.dots.push(Dot { at: r.at, sector: extent.sector(), distance, access: took, kind });
            if self.dots.len() > 2 * DOTS_MAX {
                self.every *= 2;
                let mut n = 0;
                self.dots.retain(|_| {
                    n += 1;
                    n % 2 == 1
                });
            }
        }
        self.seen += 1;
    }

    /// The head went there; how far, in sectors.
    fn moved(&mut self, to: Extent) -> u64 {
        let Sector(first) = to.sector();
        let distance = first.abs_diff(self.head);
        self.head = first + to.len().div_ceil(512);
        distance
    }

    /// The dots with times from the first request on.
    pub(super) fn dots_from_first(&self) -> Vec<Dot> {
        let first = self.first.unwrap_or_default();
        let mut dots: Vec<Dot> = self.dots.iter().map(|d| Dot { at: d.at.since(first), ..*d }).collect();
        dots.sort_by_key(|d| d.at);
        dots
    }

    /// Reads, and their mean access in ms, of originals and of replicas; `None` of none.
    pub(super) fn reads(&self) -> [(u64, Option<f64>); 2] {
        let mean = |sum: u128, n: u64| (n > 0).then(|| sum as f64 / n as f64 / 1e6);
        let (o, r) = (self.originals.count(), self.replicas.count());
        [(o, mean(self.originals_ns, o)), (r, mean(self.replicas_ns, r))]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record at `ms`, of a block of 4 KiB, that took `took` ms.
    pub(crate) fn record(op: Op, ms: u64, block: u64, took: u64, flags: RecordFlags) -> Record {
        let mut r = Record::new(Nanos::from_millis(ms), op, Extent::new(block * 4096, 4096));
        (r.service, r.flags) = (Some(Nanos::from_millis(took)), flags);
        r
    }

    #[test]
    fn a_read_is_where_it_took_place() {
        let (none, replica) = (RecordFlags::NONE, RecordFlags::REPLICA);
        let trace = [
            record(Op::Read, 100, 10, 5, none),
            record(Op::Read, 105, 1000, 2, PLACE),
            record(Op::Read, 101, 20, 2, replica),
            record(Op::Write, 108, 1001, 1, RecordFlags::COPY),
            record(Op::Read, 110, 1002, 1, none),
            // Of this one the place is not known, and one that is another's is not taken for it.
            record(Op::Read, 111, 7, 9, PLACE),
            record(Op::Read, 112, 30, 3, replica),
            record(Op::Write, 120, 31, 4, none),
            record(Op::Read, 130, 40, 4, RecordFlags::FAILED),
        ];
        let (a, cut) = Accesses::of(trace.into_iter().map(Ok)).unwrap();
        assert!(cut.is_none());
        let dots = a.dots_from_first();
        let seen: Vec<_> =
            dots.iter().map(|d| (d.at.0 / 1_000_000, d.sector.0 / 8, d.distance / 8, d.kind)).collect();
        use DotKind::{Read, ReadFromCopy, Write};
        let want = [
            (0, 10, 10, Read),
            (1, 1000, 989, ReadFromCopy),
            (10, 1002, 0, Read),
            (12, 30, 973, ReadFromCopy),
            (20, 31, 0, Write),
        ];
        assert_eq!(seen, want);
        assert_eq!((a.own, a.unplaced, a.failed, a.seen), (1, 1, 1, 5));
        assert_eq!(a.reads(), [(2, Some(3.0)), (2, Some(2.5))]);
        assert_eq!(a.last, Nanos::from_millis(124));
    }

    /// They were drawn as 0 ms.
    #[test]
    fn what_has_no_service_time_is_not_drawn() {
        let timed = record(Op::Read, 100, 10, 0, RecordFlags::NONE);
        let mut untimed = record(Op::Write, 105, 20, 0, RecordFlags::NONE);
        untimed.service = None;
        let (a, _) = Accesses::of([timed, untimed].into_iter().map(Ok)).unwrap();
        assert_eq!((a.seen, a.untimed, a.dots.len(), a.writes.count()), (1, 1, 1, 0));
        assert_eq!(a.reads()[0], (1, Some(0.0)));
    }

    #[test]
    fn a_long_trace_keeps_so_many_dots_evenly() {
        let trace = (0..100_000).map(|n| Ok(record(Op::Read, n, n, 1, RecordFlags::NONE)));
        let (a, _) = Accesses::of(trace).unwrap();
        assert_eq!(a.seen, 100_000);
        assert!((DOTS_MAX..=2 * DOTS_MAX).contains(&a.dots.len()), "{}", a.dots.len());
        let gaps: Vec<_> = a.dots.windows(2).map(|w| w[1].at.0 - w[0].at.0).collect();
        assert!(gaps.iter().all(|g| *g == gaps[0]));
    }

    #[test]
    fn what_is_whole_of_a_trace_cut_off_counts() {
        let end = TraceError::Truncated { offset: 5, records: 1, expected: "more" };
        let trace = [Ok(record(Op::Read, 1, 1, 1, RecordFlags::NONE)), Err(end)];
        let (a, cut) = Accesses::of(trace.into_iter()).unwrap();
        assert!(a.seen == 1 && matches!(cut, Some(TraceError::Truncated { offset: 5, .. })));
        let bad = [Err(TraceError::NotATrace { found: vec![] })];
        assert!(Accesses::of(bad.into_iter()).is_err());
    }
}
