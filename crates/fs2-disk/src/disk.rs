//! A drive: where its head is, what its cache holds, and how long the next access takes.
//!
//! * D1: the same commands at the same times take the same times, on every machine.
//! * D2: [`Disk::predict`] says exactly what [`Disk::serve`] would.
//! * D3: a drive does one thing at a time: an access starts no earlier than the last one ended.

use std::sync::Arc;

use fs2_block::{Nanos, Op, SECTOR_BYTES, Sector};

use crate::background::Dirty;
use crate::cache::{Ahead, Cache, Found};
use crate::controlled::Controller;
use crate::controller::{ReadAhead, WriteCacheSpec};
use crate::geometry::Geometry;
use crate::profile::{DriveProfile, FlashSpec, Mechanism};
use crate::service::{Activity, Service};

/// Sectors beyond this are taken to be this one, so that no sum can overflow.
const LAST_SECTOR: u64 = 1 << 60;

/// A modelled drive.
///
/// Addresses beyond the profile's capacity are served as if its last zone went on.
#[derive(Clone, Debug)]
pub struct Disk {
    pub(crate) fixed: Arc<Fixed>,
    /// Sector at the head, where the cache is not reading ahead.
    pub(crate) head: u64,
    /// When the last access ended.
    pub(crate) free_at: Nanos,
    pub(crate) cache: Cache,
    /// The last command with data was a read.
    pub(crate) after_read: bool,
    pub(crate) dirty: Dirty,
    /// When the last write in the background ends.
    pub(crate) media_free: Nanos,
    /// When the platters were last used.
    pub(crate) media_used: Nanos,
    pub(crate) activity: Activity,
}

/// What no access changes.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) profile: DriveProfile,
    /// `None` for a drive without platters.
    pub(crate) geometry: Option<Geometry>,
    overhead: Nanos,
    pub(crate) hit_overhead: Nanos,
    same_track: Option<Nanos>,
    /// What a write's seek takes longer, nanoseconds.
    settle_ns: i64,
    /// Nanoseconds of a sector over the bus (for flash: of a read), in 2⁻¹⁶.
    pub(crate) bus_fixed: u64,
    /// The same of a write.
    pub(crate) bus_write_fixed: u64,
    pub(crate) controller: Option<Controller>,
    pub(crate) write_cache: Option<WriteCacheSpec>,
    pub(crate) standby_after: Option<Nanos>,
    pub(crate) spin_up: Nanos,
    /// The same of a write to flash.
    write_fixed: u64,
    /// Latency of a write to flash.
    write_latency: Nanos,
}

/// A command for the platters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) start: Nanos,
    pub(crate) op: Op,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) phase: u64,
    pub(crate) ahead: Option<Ahead>,
}

/// What an access takes of the platters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Medium {
    /// When they were needed; where they stood still, they turned later.
    pub(crate) begin: Nanos,
    pub(crate) seek: Nanos,
    pub(crate) rotation: Nanos,
    pub(crate) transfer: Nanos,
}

/// What an access will have changed. `ahead` is how far reading ahead had come when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Nothing,
    /// Answered from the cache; `further`: reading ahead may go on beyond its limit.
    Answered {
        ahead: Option<Ahead>,
        segment: usize,
        start: u64,
        end: u64,
        resume: Option<Nanos>,
        further: bool,
    },
    /// Read from the platters, the sector after it begins to pass at `since`.
    Read {
        ahead: Option<Ahead>,
        reuse: Option<usize>,
        start: u64,
        end: u64,
        since: Nanos,
        medium: Medium,
    },
    Written {
        ahead: Option<Ahead>,
        start: u64,
        end: u64,
        medium: Medium,
    },
    /// Taken into the write cache, from `since` on.
    Buffered {
        start: u64,
        end: u64,
        since: Nanos,
    },
}

pub(crate) fn micros(us: f64) -> Nanos {
    Nanos::from_millis_f64(us / 1000.0)
}

/// First sector and one past the last, within what can be summed.
pub(crate) fn span(sector: Sector, sectors: u32) -> (u64, u64) {
    let first = sector.0.min(LAST_SECTOR);
    (first, first + u64::from(sectors))
}

fn seconds(s: f64) -> Nanos {
    Nanos::from_millis_f64(s * 1000.0)
}

/// Nanoseconds of a sector at `mb_s` million bytes a second, in 2⁻¹⁶.
fn sector_fixed(mb_s: f64) -> u64 {
    (SECTOR_BYTES as f64 / mb_s * 1000.0 * 65_536.0).round() as u64
}

pub(crate) fn times(count: u64, fixed: u64) -> Nanos {
    Nanos(((u128::from(count) * u128::from(fixed)) >> 16) as u64)
}

impl Disk {
    /// A drive at rest: head at sector 0, cache empty.
    pub fn new(profile: DriveProfile) -> Disk {
        let (fixed, cache) = match &profile.mechanism {
            Mechanism::Disk(d) => (
                Fixed {
                    geometry: Some(Geometry::new(d, profile.capacity)),
                    overhead: micros(d.overhead_us),
                    hit_overhead: micros(d.hit_overhead_us),
                    same_track: d.same_track_ms.map(Nanos::from_millis_f64),
                    settle_ns: d.settle_ns(Op::Write),
                    bus_fixed: sector_fixed(d.bus_mb_s),
                    bus_write_fixed: sector_fixed(d.bus_write_mb_s.unwrap_or(d.bus_mb_s)),
                    controller: d.controller.as_ref().map(Controller::new),
                    write_cache: d.write_cache,
                    standby_after: profile.power.standby_after_s.map(seconds),
                    spin_up: profile.power.spin_up_s.map_or(Nanos(0), seconds),
                    write_fixed: 0,
                    write_latency: Nanos(0),
                    profile: profile.clone(),
                },
                Cache::new(d.segments, d.segment_sectors),
            ),
            Mechanism::Flash(FlashSpec { read_latency_us, write_latency_us, read_mb_s, write_mb_s }) => (
                Fixed {
                    geometry: None,
                    overhead: micros(*read_latency_us),
                    hit_overhead: Nanos(0),
                    same_track: None,
                    settle_ns: 0,
                    controller: None,
                    write_cache: None,
                    standby_after: None,
                    spin_up: Nanos(0),
                    bus_fixed: sector_fixed(*read_mb_s),
                    bus_write_fixed: 0,
                    write_fixed: sector_fixed(*write_mb_s),
                    write_latency: micros(*write_latency_us),
                    profile: profile.clone(),
                },
                Cache::new(0, 1),
            ),
        };
        Disk {
            fixed: Arc::new(fixed),
            head: 0,
            free_at: Nanos(0),
            cache,
            after_read: true,
            dirty: Dirty::default(),
            media_free: Nanos(0),
            media_used: Nanos(0),
            activity: Activity::default(),
        }
    }

    /// The drive's profile.
    pub fn profile(&self) -> &DriveProfile {
        &self.fixed.profile
    }

    /// When the last access ended: the earliest start of the next.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// The sector under the head at `now`, reading ahead included.
    pub fn position(&self, now: Nanos) -> Sector {
        Sector(self.ahead(now).map_or(self.head, |a| a.filled))
    }

    /// Serves an access: `now` is when the command reaches the drive; where that is before the
    /// last access ended, it waits until then ([`Service::start`] says when it began).
    ///
    /// A flush waits for all the write cache holds; without one, flushes, discards and empty
    /// accesses cost a command's overhead and move nothing. Waiting for the write cache or for the
    /// platters to spin up counts as overhead.
    pub fn serve(&mut self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Service {
        let waited = self.wait_for(now, op, sector, sectors);
        let (mut service, effect) = self.plan(now, op, sector, sectors, 0);
        self.apply(effect);
        if sectors > 0 && matches!(op, Op::Read | Op::Write | Op::WriteZeroes) {
            self.after_read = op == Op::Read;
        }
        service.start = service.start - waited;
        service.overhead += waited;
        self.free_at = service.end();
        service
    }

    /// Does what has to be done before a command can be planned; how long that holds it up.
    pub(crate) fn wait_for(&mut self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Nanos {
        if self.fixed.write_cache.is_none() {
            return Nanos(0);
        }
        let free_at = self.free_at;
        let (first, end) = span(sector, sectors);
        self.prepare(now, op, first, end);
        self.free_at.since(free_at.max(now))
    }

    /// What [`Disk::serve`] would return, without doing it. Copies the drive's state where its write
    /// cache holds something; allocates nothing otherwise.
    pub fn predict(&self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Service {
        if self.has_background() || op != Op::Read && self.fixed.write_cache.is_some() {
            return self.clone().serve(now, op, sector, sectors);
        }
        self.plan(now, op, sector, sectors, 0).0
    }

    /// The access and its consequences, with the platter `phase` ahead of [`Geometry::angle_at`].
    pub(crate) fn plan(
        &self,
        now: Nanos,
        op: Op,
        sector: Sector,
        sectors: u32,
        phase: u64,
    ) -> (Service, Effect) {
        let f = &*self.fixed;
        let start = now.max(self.free_at);
        let (first, end) = span(sector, sectors);
        let mut s = Service {
            op,
            start,
            overhead: f.hit_overhead,
            seek: Nanos(0),
            rotation: Nanos(0),
            transfer: Nanos(0),
            cache_hit: false,
        };
        let data = matches!(op, Op::Read | Op::Write | Op::WriteZeroes) && sectors > 0;
        let Some(g) = &f.geometry else {
            let write = op != Op::Read;
            s.overhead = if write { f.write_latency } else { f.overhead };
            if data {
                s.transfer = times(u64::from(sectors), if write { f.write_fixed } else { f.bus_fixed });
            }
            return (s, Effect::Nothing);
        };
        if !data {
            return (s, Effect::Nothing);
        }
        if op != Op::Read && self.buffers(u64::from(sectors)) {
            return self.plan_buffered(start, op, first, end);
        }
        let ahead = self.cache.ahead(g, start);
        let task = Task { start, op, first, end, phase, ahead };
        if let Some(controller) = &f.controller {
            return self.plan_controlled(g, controller, &task);
        }
        if op != Op::Read {
            return self.plan_media(g, &task, first, None);
        }
        let bus = times(u64::from(sectors), f.bus_fixed);
        match (self.cache.find(g, ahead, first, end), ahead) {
            (Found::All { segment, stopped_here }, _) => {
                s.transfer = bus;
                s.cache_hit = true;
                let resume = ahead.filter(|_| stopped_here).map(|a| {
                    let angle = g.angle_at(start).wrapping_add(phase);
                    start + g.rotation_from(angle, a.filled)
                });
                (s, Effect::Answered { ahead, segment, start: first, end, resume, further: true })
            }
            (Found::Coming { segment }, Some(a)) => {
                let begin = start + s.overhead;
                s.rotation = a.since.since(begin);
                s.cache_hit = s.rotation == Nanos(0);
                let passed = a.since + g.transfer(a.from, end - a.from);
                s.transfer = passed.max(begin + bus).since(begin + s.rotation);
                (s, Effect::Answered { ahead, segment, start: first, end, resume: None, further: true })
            }
            (Found::Part { segment, rest }, _) => self.plan_media(g, &task, rest, Some(segment)),
            (Found::Nothing | Found::Coming { .. }, _) => self.plan_media(g, &task, first, None),
        }
    }

    /// A read of `first..end` as if the cache held nothing of it; without rotation.
    pub(crate) fn plan_read(&self, start: Nanos, first: u64, end: u64) -> Service {
        let f = &*self.fixed;
        let none = Nanos(0);
        let (seek, media) = f.geometry.as_ref().map_or((none, none), |g| {
            (self.seek_to(g, self.cache.ahead(g, start), Op::Read, first), g.transfer(first, end - first))
        });
        Service {
            op: Op::Read,
            start,
            overhead: f.overhead,
            seek,
            rotation: none,
            transfer: media.max(times(end - first, f.bus_fixed)),
            cache_hit: false,
        }
    }

    /// An access to the platters of which `rest..end` passes the head.
    fn plan_media(&self, g: &Geometry, task: &Task, rest: u64, reuse: Option<usize>) -> (Service, Effect) {
        let Task { start, op, first, end, phase, ahead } = *task;
        let f = &*self.fixed;
        let needed = (start + f.overhead).max(self.media_free);
        let begin = self.spinning_at(needed);
        let seek = self.seek_to(g, ahead, op, rest);
        let angle = g.angle_at(begin + seek).wrapping_add(phase);
        let (at, media) = g.place(rest, end - rest);
        let rotation = g.wait(angle, at);
        let bus = times(end - first, if op == Op::Read { f.bus_fixed } else { f.bus_write_fixed });
        let since = begin + seek + rotation + media;
        let service = Service {
            op,
            start,
            overhead: begin.since(start),
            seek,
            rotation,
            transfer: media.max(bus),
            cache_hit: false,
        };
        let medium = Medium { begin: needed, seek, rotation, transfer: media };
        let effect = match op {
            Op::Read => Effect::Read { ahead, reuse, start: first, end, since, medium },
            _ => Effect::Written { ahead, start: first, end, medium },
        };
        (service, effect)
    }

    pub(crate) fn settle_ns(&self, op: Op) -> i64 {
        if op == Op::Read { 0 } else { self.fixed.settle_ns }
    }

    pub(crate) fn seek_to(&self, g: &Geometry, ahead: Option<Ahead>, op: Op, target: u64) -> Nanos {
        let head = ahead.map_or(self.head, |a| a.filled);
        let Some(disk) = self.fixed.profile.disk() else { return Nanos(0) };
        if let Some(p) = &g.platter {
            // The head stands on the track of the last sector that passed, unless it reads on.
            let on = if ahead.is_some_and(|a| a.active) { head } else { head.saturating_sub(1) };
            return p.seek(&p.locate(on), &p.locate(target), self.settle_ns(op));
        }
        let (head, target) = match &g.remap {
            None => (head, target),
            // The head stands behind the last sector that passed.
            Some(r) => (head.checked_sub(1).map_or(0, |last| r.real(last) + 1), r.real(target)),
        };
        match self.fixed.same_track {
            _ if head == target => Nanos(0),
            Some(time) if g.same_track(head, target) => time + disk.settle(op),
            _ => disk.seek_time(head.abs_diff(target), op),
        }
    }

    /// How far to read ahead after a read of `start..end` into a segment that begins at `from`.
    /// Unless the profile says how: the segment's size from the read's start, and half of it from its
    /// end where the read was long. So what was read with a short read stays.
    fn limit_after(&self, from: u64, start: u64, end: u64) -> u64 {
        let size = self.cache.size();
        let capacity = self.fixed.profile.capacity_sectors().max(end);
        let Some(disk) = self.fixed.profile.disk() else { return end };
        let platter = self.fixed.geometry.as_ref().and_then(|g| g.platter.as_ref());
        let limit = match (disk.read_ahead, platter) {
            (ReadAhead::None, _) => end,
            (ReadAhead::Past(sectors), _) => end + u64::from(sectors),
            (ReadAhead::Track, Some(p)) => p.track_end(end - 1).min(end + size),
            (ReadAhead::Cylinder, Some(p)) => p.cylinder_end(end - 1).min(end + size),
            (ReadAhead::NextTrack, Some(p)) => {
                let track_end = p.track_end(end);
                if from < p.track_first(end) { track_end + p.sectors_per_track(end) } else { track_end }
            }
            _ => start.saturating_add(size).max(end.saturating_add(size / 2)),
        };
        limit.min(capacity)
    }

    /// How far reading ahead has come at `now`, where it was going on.
    pub(crate) fn ahead(&self, now: Nanos) -> Option<Ahead> {
        self.fixed.geometry.as_ref().and_then(|g| self.cache.ahead(g, now))
    }

    /// Reckons reading ahead from a place further on, so that a long stream does not cost more and more.
    fn shorten(&mut self, ahead: Option<Ahead>) {
        if let (Some(a), Some(g)) = (ahead, &self.fixed.geometry)
            && a.active
            && a.filled - a.from > 2 * self.cache.size()
        {
            let since = a.since + g.transfer(a.from, a.filled - a.from);
            self.cache.anchor(a.filled, since);
        }
    }

    pub(crate) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Answered { ahead, segment, start, end, resume, further } => {
                self.shorten(ahead);
                let limit =
                    if further { self.limit_after(self.cache.start_of(segment), start, end) } else { 0 };
                self.cache.answered(segment, limit, resume);
            }
            Effect::Read { ahead, reuse, start, end, since, medium } => {
                self.cache.stop(ahead);
                self.head = end;
                if let Some(segment) = reuse.or_else(|| self.cache.oldest()) {
                    let from = if reuse.is_some() { self.cache.start_of(segment) } else { start };
                    let limit = self.limit_after(from, start, end);
                    self.cache.fill(segment, reuse.is_some(), start, end, since, limit);
                }
                self.used(&medium, since);
            }
            Effect::Written { ahead, start, end, medium } => {
                self.cache.stop(ahead);
                self.head = end;
                self.cache.written(start, end);
                if self.fixed.controller.as_ref().is_some_and(|c| c.hits_on_written) {
                    self.cache.hold(start, end);
                }
                let done = medium.begin + medium.seek + medium.rotation + medium.transfer;
                self.used(&medium, done);
            }
            Effect::Buffered { start, end, since } => self.buffer(start, end, since),
        }
    }
}
