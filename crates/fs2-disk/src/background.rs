//! What a drive does when nobody waits for it: writing what its write cache holds, spinning down.
//!
//! * B1: a sector in the write cache is in one extent, and extents do not overlap.
//! * B2: writing begins only in idle time, or when a command has to wait for it; once begun, an
//!   extent is written to its end.
//! * B3: after a flush the write cache is empty.

use fs2_block::{Nanos, Op};

use crate::cache::Found;
use crate::controller::WriteCacheSpec;
use crate::disk::{Disk, Effect, Medium, Task, times};
use crate::service::{Activity, Service};

/// Extents do not grow beyond this by merging, so that a read never waits long for one. Guess: 1 MiB.
const EXTENT_MAX: u64 = 2048;

/// A stretch of sectors in the write cache.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: u64,
    end: u64,
    /// When its data began to cross the bus.
    since: Nanos,
}

/// What the write cache holds, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    extents: Vec<Extent>,
    sectors: u64,
}

impl Dirty {
    fn overlapping(&self, first: u64, end: u64) -> std::ops::Range<usize> {
        let from = self.extents.partition_point(|e| e.end <= first);
        let to = self.extents.partition_point(|e| e.first < end);
        from..to.max(from)
    }

    /// Adds a write; keeps B1. What it overwrites is gone, and it joins its neighbours.
    fn add(&mut self, first: u64, end: u64, since: Nanos) {
        let over = self.overlapping(first, end);
        let (mut left, mut right) = (None, None);
        for e in &self.extents[over.clone()] {
            left = (e.first < first).then_some(Extent { end: first, ..*e }).or(left);
            right = (e.end > end).then_some(Extent { first: end, ..*e }).or(right);
        }
        let mut new = Extent { first, end, since };
        let mut span = over.clone();
        let before = left.or_else(|| {
            let e = *self.extents.get(over.start.checked_sub(1)?)?;
            (e.end == first).then(|| {
                span.start -= 1;
                e
            })
        });
        let after = right.or_else(|| {
            let e = *self.extents.get(over.end)?;
            (e.first == end).then(|| {
                span.end += 1;
                e
            })
        });
        let mut pieces = [before, None, after];
        for i in [0, 2] {
            if let Some(e) = pieces[i]
                && e.end.max(new.end) - e.first.min(new.first) <= EXTENT_MAX
            {
                new = Extent { first: e.first.min(new.first), end: e.end.max(new.end), since };
                pieces[i] = None;
            }
        }
        pieces[1] = Some(new);
        let size = |e: &Extent| e.end - e.first;
        let gone: u64 = self.extents[span.clone()].iter().map(size).sum();
        self.sectors = self.sectors - gone + pieces.iter().flatten().map(size).sum::<u64>();
        self.extents.splice(span, pieces.into_iter().flatten());
    }

    fn take(&mut self, i: usize) -> Extent {
        let e = self.extents.remove(i);
        self.sectors -= e.end - e.first;
        e
    }

    /// The next by C-LOOK from `head`.
    fn next(&self, head: u64) -> usize {
        let i = self.extents.partition_point(|e| e.first < head);
        if i == self.extents.len() { 0 } else { i }
    }
}

impl Disk {
    /// Whether serving a command at `now` could depend on more than [`Disk::plan`] sees.
    pub(crate) fn has_background(&self) -> bool {
        !self.dirty.extents.is_empty()
    }

    /// Takes the write cache for written.
    pub(crate) fn forget_background(&mut self) {
        self.dirty = Dirty::default();
    }

    /// Does what is done in the background until `now`, and what the command has to wait for:
    /// room in the write cache, an overlapping extent, or for a flush all of it.
    pub(crate) fn prepare(&mut self, now: Nanos, op: Op, first: u64, end: u64) {
        let Some(cache) = self.fixed.write_cache else { return };
        let now = now.max(self.free_at);
        while let Some(start) = self.destage_start(&cache).filter(|start| *start < now) {
            self.destage(start);
        }
        let waited = match op {
            // Also for what was begun before.
            Op::Flush => self.destage_while(now, |d| !d.extents.is_empty()) || self.media_free > now,
            Op::Write | Op::WriteZeroes if buffered(&cache, end - first) => {
                let full = |d: &Dirty| {
                    d.sectors + (end - first) > u64::from(cache.sectors)
                        || d.extents.len() >= cache.extents as usize
                };
                let waited = self.destage_while(now, full);
                // A cache that only lets the host go early takes one write at a time.
                waited || cache.idle_ms == 0.0 && self.media_free > now
            }
            Op::Read => !self.cached(now, first, end) && self.destage_overlapping(now, first, end),
            // Written around the cache: what it holds of these sectors is stale.
            Op::Write | Op::WriteZeroes => self.destage_overlapping(now, first, end),
            Op::Discard | Op::Punch => false,
        };
        if waited {
            self.free_at = self.free_at.max(self.media_free);
        }
    }

    /// When writing in the background would go on: at once after what was written before in the same
    /// idle time, else when the drive was idle for long enough.
    fn destage_start(&self, cache: &WriteCacheSpec) -> Option<Nanos> {
        let first = self.dirty.extents.first()?;
        if cache.idle_ms == 0.0 {
            return Some(self.media_free.max(first.since));
        }
        let idle = self.free_at + Nanos::from_millis_f64(cache.idle_ms);
        Some(if self.media_free > self.free_at { self.media_free } else { idle })
    }

    fn destage_while(&mut self, now: Nanos, more: impl Fn(&Dirty) -> bool) -> bool {
        let mut any = false;
        while !self.dirty.extents.is_empty() && more(&self.dirty) {
            self.destage(now.max(self.media_free));
            any = true;
        }
        any
    }

    /// Writes what overlaps, and nothing that lies on the way: somebody waits.
    fn destage_overlapping(&mut self, now: Nanos, first: u64, end: u64) -> bool {
        let over = self.dirty.overlapping(first, end);
        for _ in over.clone() {
            self.destage_extent(now.max(self.media_free), over.start);
        }
        !over.is_empty()
    }

    /// Writes the next extent from the write cache by C-LOOK, beginning no earlier than `start`.
    fn destage(&mut self, start: Nanos) {
        let i = self.dirty.next(self.ahead(start).map_or(self.head, |a| a.filled));
        self.destage_extent(start, i);
    }

    fn destage_extent(&mut self, start: Nanos, i: usize) {
        let fixed = self.fixed.clone();
        let Some(g) = &fixed.geometry else { return };
        let ahead = self.ahead(start);
        let e = self.dirty.take(i);
        let task = Task { start, op: Op::Write, first: e.first, end: e.end, phase: 0, ahead };
        let (medium, done) = self.write_to_medium(g, &task, start, e.since);
        self.activity.background.add(&Service {
            op: Op::Write,
            start,
            overhead: Nanos(0),
            seek: medium.seek,
            rotation: medium.rotation,
            transfer: medium.transfer,
            cache_hit: false,
        });
        self.cache.stop(ahead);
        self.head = e.end;
        self.media_free = done;
        self.used(&medium, done);
    }

    fn cached(&self, now: Nanos, first: u64, end: u64) -> bool {
        let found = |g| self.cache.find(g, self.ahead(now), first, end);
        self.fixed.geometry.as_ref().is_some_and(|g| matches!(found(g), Found::All { .. }))
    }

    /// A write into the write cache: overhead and bus only.
    pub(crate) fn plan_buffered(&self, start: Nanos, op: Op, first: u64, end: u64) -> (Service, Effect) {
        let f = &*self.fixed;
        let after = usize::from(!self.after_read);
        let (overhead, complete) = match &f.controller {
            Some(c) => (c.write[after] + c.write_bus, c.complete[1]),
            None => (f.hit_overhead, Nanos(0)),
        };
        let service = Service {
            op,
            start,
            overhead,
            seek: Nanos(0),
            rotation: Nanos(0),
            transfer: times(end - first, f.bus_write_fixed) + complete,
            cache_hit: false,
        };
        (service, Effect::Buffered { start: first, end, since: start + overhead })
    }

    /// Whether a write of so many sectors goes into the write cache.
    pub(crate) fn buffers(&self, sectors: u64) -> bool {
        self.fixed.write_cache.as_ref().is_some_and(|c| buffered(c, sectors))
    }

    /// Keeps C3 and B1.
    pub(crate) fn buffer(&mut self, first: u64, end: u64, since: Nanos) {
        let keep = self.fixed.controller.as_ref().is_none_or(|c| c.hits_on_written);
        if self.cache.reads_into(first, end) {
            // What it would read from the platters is stale.
            let ahead = self.ahead(since);
            self.head = ahead.map_or(self.head, |a| a.filled);
            self.cache.stop(ahead);
        }
        self.cache.written(first, end);
        if keep {
            self.cache.hold(first, end);
        }
        self.dirty.add(first, end, since);
    }

    /// When the platters turn at full speed if they are needed at `now`.
    pub(crate) fn spinning_at(&self, now: Nanos) -> Nanos {
        match self.fixed.standby_after {
            Some(after) if now > self.media_used + after => now + self.fixed.spin_up,
            _ => now,
        }
    }

    /// The platters were used as `medium` says, until `done`.
    pub(crate) fn used(&mut self, medium: &Medium, done: Nanos) {
        self.activity.media.add(&Service {
            op: Op::Read,
            start: medium.begin,
            overhead: Nanos(0),
            seek: medium.seek,
            rotation: medium.rotation,
            transfer: medium.transfer,
            cache_hit: false,
        });
        if let Some(after) = self.fixed.standby_after {
            let asleep = medium.begin.since(self.media_used + after);
            if asleep > Nanos(0) {
                self.activity.standby += asleep;
                self.activity.spin_ups += 1;
                self.activity.spinning_up += self.fixed.spin_up;
            }
        }
        self.media_used = done;
    }

    /// What the drive did in the background until `now`, where it is given no other command: writes
    /// from its write cache, and time in standby.
    pub fn activity(&self, now: Nanos) -> Activity {
        let mut disk = self.clone();
        if let Some(cache) = disk.fixed.write_cache {
            while let Some(start) = disk.destage_start(&cache).filter(|start| *start < now) {
                disk.destage(start);
            }
        }
        let mut activity = disk.activity;
        if let Some(after) = disk.fixed.standby_after {
            activity.standby += now.since(disk.media_used + after);
        }
        activity
    }
}

/// Writes larger than half the cache go around it.
fn buffered(cache: &WriteCacheSpec, sectors: u64) -> bool {
    sectors <= u64::from(cache.sectors).div_ceil(2)
}
