//! What is known of each volume over time, and what follows from two statuses of one daemon. No clock, no terminal.

use std::collections::VecDeque;
use std::path::PathBuf;

use fs2_control::{Parts, Status};

use crate::volume::Found;

/// Points of history that are kept: more than a screen shows.
const HISTORY_MAX: usize = 240;

/// What a read took, in ms, in the time between two statuses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Split {
    /// Dispatch to completion, measured.
    pub(super) mean: f64,
    /// Before that, measured.
    pub(super) wait: f64,
    /// What an access is made of, where a model says: seek, rotation, transfer.
    pub(super) parts: Option<[f64; 3]>,
}

/// What happened between two statuses, a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) reads: f64,
    pub(super) read_bytes: f64,
    pub(super) writes: f64,
    pub(super) write_bytes: f64,
    pub(super) discards: f64,
    pub(super) flushes: f64,
    pub(super) copies: f64,
    pub(super) dropped: f64,
    /// Share of the reads that replicas served; `None` without reads.
    pub(super) hits: Option<f64>,
    /// `None` where no read ended.
    pub(super) split: Option<Split>,
    /// Where the accesses were.
    pub(super) parts: Parts,
}

/// A point of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    pub(super) access_ms: Option<f64>,
    pub(super) hits: Option<f64>,
}

/// A volume being watched.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    /// Where it is mounted, or its daemon's socket.
    pub(super) name: String,
    /// It is mounted.
    pub(super) mounted: bool,
    /// The daemon's socket, by which it is known.
    pub(super) control: PathBuf,
    /// The last status.
    pub(super) now: Option<Status>,
    /// Between the last two.
    pub(super) rates: Option<Rates>,
    /// One point for each status but the first; the latest last.
    pub(super) history: VecDeque<Point>,
    /// Why there is no newer status.
    pub(super) trouble: Option<String>,
}

impl Watched {
    pub(super) fn new(found: &Found) -> Watched {
        Watched {
            name: found.name(),
            mounted: found.dir().is_some(),
            control: found.control.clone(),
            ..Watched::default()
        }
    }

    #[cfg(test)]
    pub(super) fn named(name: &str) -> Watched {
        Watched { name: name.into(), mounted: true, control: name.into(), ..Watched::default() }
    }

    /// A daemon answered, or did not.
    pub(super) fn told(&mut self, answer: Result<Status, String>) {
        let status = match answer {
            Ok(status) => status,
            Err(why) => {
                self.trouble = Some(why);
                return;
            }
        };
        self.trouble = None;
        let rates = self.now.as_ref().and_then(|before| rates(before, &status));
        match &rates {
            Some(r) => {
                self.history.push_back(Point { access_ms: r.split.map(|s| s.mean), hits: r.hits });
                if self.history.len() > HISTORY_MAX {
                    self.history.pop_front();
                }
            }
            // Another daemon, or the first word of this one.
            None if self.now.as_ref().is_some_and(|n| n.uptime_s == status.uptime_s) => return,
            None => self.history.clear(),
        }
        self.rates = rates;
        self.now = Some(status);
    }
}

/// `None` where no time passed, or `after` is of another session: its counters began anew.
fn rates(before: &Status, after: &Status) -> Option<Rates> {
    let seconds = after.uptime_s - before.uptime_s;
    let same = before.pid == after.pid && before.reads <= after.reads && before.writes <= after.writes;
    if !same || !seconds.is_finite() || seconds <= 0.0 {
        return None;
    }
    let per_s = |a: u64, b: u64| a.saturating_sub(b) as f64 / seconds;
    let (a, b) = (after, before);
    let reads = a.reads.saturating_sub(b.reads);
    let replica_reads = a.reads_from_replica.saturating_sub(b.reads_from_replica);
    let dropped = |s: &Status| s.invalidated.saturating_add(s.reclaimed);
    let less = |a: &[u64], b: &[u64]| {
        let b = b.iter().copied().chain(std::iter::repeat(0));
        a.iter().zip(b).map(|(a, b)| a.saturating_sub(b)).collect()
    };
    Some(Rates {
        reads: per_s(a.reads, b.reads),
        read_bytes: per_s(a.read_bytes, b.read_bytes),
        writes: per_s(a.writes, b.writes),
        write_bytes: per_s(a.write_bytes, b.write_bytes),
        discards: per_s(a.discards, b.discards),
        flushes: per_s(a.flushes, b.flushes),
        copies: per_s(a.copies_written, b.copies_written),
        dropped: per_s(dropped(a), dropped(b)),
        // A read that is under way is counted, and not yet whence it came.
        hits: (reads > 0).then(|| (replica_reads as f64 / reads as f64).min(1.0)),
        split: split(before, after),
        parts: Parts {
            reads: less(&a.parts.reads, &b.parts.reads),
            replica_reads: less(&a.parts.replica_reads, &b.parts.replica_reads),
            writes: less(&a.parts.writes, &b.parts.writes),
            own: less(&a.parts.own, &b.parts.own),
        },
    })
}

fn split(before: &Status, after: &Status) -> Option<Split> {
    let (a, b) = (&after.total_s, &before.total_s);
    let ms = |a: f64, b: f64, n: u64| (a - b).max(0.0) * 1e3 / n as f64;
    let reads = a.reads.checked_sub(b.reads).filter(|n| *n > 0)?;
    let accesses = a.accesses.checked_sub(b.accesses).filter(|n| *n > 0);
    Some(Split {
        mean: ms(a.read, b.read, reads),
        wait: ms(a.read_wait, b.read_wait, reads),
        parts: accesses
            .map(|n| [ms(a.seek, b.seek, n), ms(a.rotation, b.rotation, n), ms(a.transfer, b.transfer, n)]),
    })
}

#[cfg(test)]
mod tests {
    use fs2_control::TotalS;

    use super::*;

    fn status(uptime_s: f64, reads: u64) -> Status {
        Status {
            pid: 1,
            uptime_s,
            reads,
            reads_from_replica: reads / 2,
            parts: Parts { reads: vec![reads, 1], ..Parts::default() },
            total_s: TotalS { reads, read: reads as f64 * 0.004, ..TotalS::default() },
            ..Status::default()
        }
    }

    #[test]
    fn rates_are_differences() {
        let mut w = Watched::named("/srv");
        w.told(Ok(status(1.0, 100)));
        assert!(w.rates.is_none() && w.history.is_empty());
        w.told(Ok(status(3.0, 120)));
        let r = w.rates.clone().unwrap();
        assert_eq!((r.reads, r.hits, r.parts.reads), (10.0, Some(0.5), vec![20, 0]));
        let split = r.split.unwrap();
        assert!((split.mean - 4.0).abs() < 1e-9 && split.parts.is_none(), "{split:?}");
        w.told(Ok(status(4.0, 120)));
        let r = w.rates.clone().unwrap();
        assert_eq!((r.reads, r.hits, r.split), (0.0, None, None));
        assert_eq!(w.history.len(), 2);
    }

    #[test]
    fn another_session_begins_anew() {
        let mut w = Watched::named("/srv");
        w.told(Ok(status(10.0, 100)));
        w.told(Ok(status(11.0, 101)));
        w.told(Ok(status(0.5, 3)));
        assert!(w.rates.is_none() && w.history.is_empty());
        assert_eq!(w.now.as_ref().unwrap().reads, 3);
        w.told(Err("gone".into()));
        assert_eq!((w.trouble.as_deref(), w.now.is_some()), (Some("gone"), true));
        w.told(Ok(status(1.0, 4)));
        assert!(w.trouble.is_none() && w.rates.is_some());
    }

    #[test]
    fn the_same_moment_twice_changes_nothing() {
        let mut w = Watched::named("/srv");
        w.told(Ok(status(1.0, 1)));
        w.told(Ok(status(2.0, 2)));
        let before = w.rates.clone();
        w.told(Ok(status(2.0, 2)));
        assert_eq!((w.rates, w.history.len()), (before, 1));
    }
}
