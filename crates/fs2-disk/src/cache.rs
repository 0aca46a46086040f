//! The drive's read-ahead cache.
//!
//! A segment is a ring of fixed size. After a read from the platters the drive goes on reading
//! into the read's segment until the segment is full, or a command needs the platters.
//!
//! * C1: a segment holds `start..end`, of that at most the last `size` sectors.
//! * C2: at most one segment is being filled, and then the head is where it is filled to.
//! * C3: no segment holds a sector that was written after it was read.

use fs2_block::Nanos;

use crate::geometry::Geometry;

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    /// One past the last sector held; for the segment being filled: when filling it began.
    end: u64,
    /// Where reading ahead stops.
    limit: u64,
}

const EMPTY: Segment = Segment { start: 0, end: 0, limit: 0 };

/// Reading ahead: sector `from` begins to pass at `since`, the rest after it.
#[derive(Clone, Copy, Debug)]
struct Running {
    segment: usize,
    from: u64,
    since: Nanos,
}

/// Reading ahead as it stands at some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) segment: usize,
    /// Sectors before this one have been read.
    pub(crate) filled: u64,
    /// Still going on.
    pub(crate) active: bool,
    pub(crate) from: u64,
    pub(crate) since: Nanos,
}

/// What the cache can do for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing: position and read all of it.
    Nothing,
    /// It holds everything.
    All {
        segment: usize,
        /// It is the segment the head stands at the end of, having stopped there.
        stopped_here: bool,
    },
    /// Reading ahead is about to bring all of it.
    Coming { segment: usize },
    /// It holds what comes before `rest`; position for that.
    Part { segment: usize, rest: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Cache {
    segments: Vec<Segment>,
    /// Neighbours in the order of use: the next older and the next newer of each segment, and at the
    /// end the newest and the oldest.
    order: Vec<(u32, u32)>,
    /// Sectors in a segment.
    size: u64,
    running: Option<Running>,
}

impl Cache {
    pub(crate) fn new(segments: u32, segment_sectors: u32) -> Cache {
        Cache {
            segments: vec![EMPTY; segments as usize],
            // A ring through a place of its own: its older is the newest, its newer the oldest. At
            // first segment 0 is the oldest.
            order: (0..=segments)
                .map(|i| (i.checked_sub(1).unwrap_or(segments), if i == segments { 0 } else { i + 1 }))
                .collect(),
            size: u64::from(segment_sectors),
            running: None,
        }
    }

    pub(crate) fn ahead(&self, g: &Geometry, now: Nanos) -> Option<Ahead> {
        let Running { segment, from, since } = self.running?;
        let limit = self.segments[segment].limit;
        let filled = from + g.passed(from, limit.saturating_sub(from), now.since(since));
        Some(Ahead { segment, filled, active: filled < limit, from, since })
    }

    /// What there is of `start..end` given the state of reading ahead.
    pub(crate) fn find(&self, g: &Geometry, ahead: Option<Ahead>, start: u64, end: u64) -> Found {
        let running = ahead.map(|a| a.segment);
        let mut best = Found::Nothing;
        if let Some(a) = ahead {
            let s = &self.segments[a.segment];
            let low = s.start.max(a.filled.saturating_sub(self.size)); // C1
            // A start a little further on than the head is waited for, as long as that takes at
            // most half a turn (guess); a new seek would rarely be sooner.
            let soon = || g.transfer(a.filled, start - a.filled).0 <= g.turn().0 / 2;
            if a.filled <= low || start < low {
            } else if end <= a.filled {
                return Found::All { segment: a.segment, stopped_here: !a.active };
            } else if a.active && start <= s.limit && (start <= a.filled || soon()) {
                best = Found::Coming { segment: a.segment };
            } else if start <= a.filled {
                best = Found::Part { segment: a.segment, rest: a.filled };
            }
        }
        for (i, s) in self.segments.iter().enumerate() {
            // One comparison that hardly ever holds; two would each be a coin toss to the processor.
            if start.wrapping_sub(s.start) > s.end.wrapping_sub(s.start) || running == Some(i) {
                continue;
            }
            let low = s.start.max(s.end.saturating_sub(self.size)); // C1
            if s.end <= low || start < low {
                continue;
            }
            if end <= s.end {
                return Found::All { segment: i, stopped_here: false };
            }
            if !matches!(best, Found::Coming { .. }) {
                best = Found::Part { segment: i, rest: s.end };
            }
        }
        best
    }

    /// Puts a segment between two neighbours in the order of use.
    fn put(&mut self, segment: usize, older: u32, newer: u32) {
        let at = segment as u32;
        self.order[segment] = (older, newer);
        self.order[older as usize].1 = at;
        self.order[newer as usize].0 = at;
    }

    fn take(&mut self, segment: usize) {
        let (older, newer) = self.order[segment];
        self.order[older as usize].1 = newer;
        self.order[newer as usize].0 = older;
    }

    /// Makes a segment the newest.
    fn touch(&mut self, segment: usize) {
        let ring = self.segments.len() as u32;
        self.take(segment);
        self.put(segment, self.order[ring as usize].0, ring);
    }

    /// Empties a segment and makes it the oldest.
    fn forget(&mut self, segment: usize) {
        let ring = self.segments.len() as u32;
        self.segments[segment] = EMPTY;
        self.take(segment);
        self.put(segment, ring, self.order[ring as usize].1);
    }

    /// The size of a segment, sectors.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where what a segment holds begins.
    pub(crate) fn start_of(&self, segment: usize) -> u64 {
        self.segments[segment].start
    }

    /// A read was answered from `segment`; its reading ahead may go on to `limit`. `resume` is when
    /// the next sector passes the head that stopped at the segment's end.
    pub(crate) fn answered(&mut self, segment: usize, limit: u64, resume: Option<Nanos>) {
        self.touch(segment);
        let Some(running) = self.running.filter(|r| r.segment == segment) else { return };
        let s = &mut self.segments[segment];
        if limit <= s.limit {
            return;
        }
        if let Some(since) = resume {
            self.running = Some(Running { segment, from: s.limit.max(running.from), since });
        }
        s.limit = limit;
    }

    /// Reading ahead is known to have passed `from` at `since`.
    pub(crate) fn anchor(&mut self, from: u64, since: Nanos) {
        if let Some(r) = &mut self.running {
            (r.from, r.since) = (from, since);
            let s = &mut self.segments[r.segment];
            s.limit = s.limit.max(from);
        }
    }

    /// Stops reading ahead because the platters are needed for something else.
    pub(crate) fn stop(&mut self, ahead: Option<Ahead>) {
        if let Some(a) = ahead {
            self.segments[a.segment].end = a.filled;
        }
        self.running = None;
    }

    /// `start..end` was read from the platters, the sector after it begins to pass at `since`; goes
    /// on reading to `limit`.
    pub(crate) fn fill(
        &mut self,
        segment: usize,
        reuse: bool,
        start: u64,
        end: u64,
        since: Nanos,
        limit: u64,
    ) {
        self.touch(segment);
        let s = &mut self.segments[segment];
        if !reuse {
            s.start = start;
        }
        (s.end, s.limit) = (end, limit);
        self.running = Some(Running { segment, from: end, since });
    }

    /// `start..end` came over the bus.
    pub(crate) fn hold(&mut self, start: u64, end: u64) {
        let Some(segment) = self.oldest() else { return };
        if self.running.is_some_and(|r| r.segment == segment) {
            self.running = None;
        }
        self.touch(segment);
        self.segments[segment] = Segment { start, end, limit: end };
    }

    /// The drive turned out to hold `start..end`: it has read further ahead than was thought, or it is a segment of which nothing was known.
    pub(crate) fn learn(&mut self, start: u64, end: u64) {
        let keep = self.running.map(|r| r.segment);
        let further = |s: &Segment| (s.start..=start).contains(&s.end) && s.end > s.start && end <= s.limit;
        let stopped = |i: &usize| Some(*i) != keep && further(&self.segments[*i]);
        if let Some(i) = (0..self.segments.len()).find(stopped) {
            self.segments[i].end = end;
            self.touch(i);
            return;
        }
        let mut oldest = self.oldest();
        if oldest.is_some() && oldest == keep {
            let next = self.order[oldest.unwrap_or(0)].1 as usize;
            oldest = (next < self.segments.len()).then_some(next);
        }
        if let Some(i) = oldest {
            self.touch(i);
            let s = &mut self.segments[i];
            (s.start, s.end, s.limit) = (start, end, end);
        }
    }

    /// The drive turned out not to hold what begins at `start`, which was thought to be in this segment.
    pub(crate) fn lacks(&mut self, segment: usize, start: u64) {
        let s = &mut self.segments[segment];
        s.end = s.end.min(start).max(s.start);
    }

    pub(crate) fn oldest(&self) -> Option<usize> {
        let ring = self.segments.len();
        let oldest = self.order[ring].1 as usize;
        (oldest < ring).then_some(oldest)
    }

    /// Whether what is being read ahead reaches into `start..end`.
    pub(crate) fn reads_into(&self, start: u64, end: u64) -> bool {
        self.running.is_some_and(|r| {
            let s = &self.segments[r.segment];
            s.start < end && start < s.limit.max(s.end)
        })
    }

    /// Keeps C3: forgets every segment that holds part of a write.
    pub(crate) fn written(&mut self, start: u64, end: u64) {
        for i in 0..self.segments.len() {
            let s = &self.segments[i];
            if s.start < end && start < s.end {
                self.forget(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::profile::DriveProfile;

    /// Sectors 0 to 7 were read, and reading ahead goes on to 64.
    fn reading() -> Cache {
        let mut cache = Cache::new(4, 64);
        cache.fill(0, false, 0, 8, Nanos(0), 64);
        cache
    }

    /// It came as far as 16.
    fn stop(cache: &mut Cache) {
        cache.stop(Some(Ahead { segment: 0, filled: 16, active: true, from: 8, since: Nanos(0) }));
    }

    fn holds(cache: &Cache, first: u64) -> bool {
        let disk = Disk::new(DriveProfile::default());
        let geometry = disk.fixed.geometry.as_ref().unwrap();
        matches!(cache.find(geometry, None, first, first + 8), Found::All { .. })
    }

    #[test]
    fn a_hit_that_was_not_expected_lengthens_the_segment_before_it_up_to_its_limit() {
        let mut cache = reading();
        stop(&mut cache);
        assert!(holds(&cache, 8) && !holds(&cache, 16));
        cache.learn(32, 40);
        assert!(holds(&cache, 16) && holds(&cache, 32) && !holds(&cache, 40));
        // Reading ahead never went as far.
        cache.learn(72, 80);
        assert!(holds(&cache, 72) && !holds(&cache, 48) && holds(&cache, 0));
    }

    #[test]
    fn what_is_read_ahead_meanwhile_is_not_lengthened() {
        let mut cache = reading();
        cache.learn(32, 40);
        stop(&mut cache);
        assert!(holds(&cache, 32) && holds(&cache, 8) && !holds(&cache, 16));
    }

    #[test]
    fn a_miss_that_was_not_expected_shortens_its_segment() {
        let mut cache = reading();
        stop(&mut cache);
        cache.lacks(0, 12);
        assert!(holds(&cache, 0) && !holds(&cache, 8));
        cache.lacks(0, 20);
        assert!(holds(&cache, 0) && !holds(&cache, 8), "it grows by nothing");
    }
}
