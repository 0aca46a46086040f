//! A drive: where its head is, what its cache holds, and how long the next access takes.
//!
//! * D1: the same commands at the same times take the same times, on every machine.
//! * D2: [`Disk::predict`] says exactly what [`Disk::serve`] would.
//! * D3: a drive does one thing at a time: an access starts no earlier than the last one ended.

use std::sync::Arc;

use fs2_block::{Nanos, Op, SECTOR_BYTES, Sector};

use crate::cache::{Ahead, Cache, Found};
use crate::geometry::Geometry;
use crate::profile::{DriveProfile, FlashSpec, Mechanism};
use crate::service::Service;

/// Sectors beyond this are taken to be this one, so that no sum can overflow.
const LAST_SECTOR: u64 = 1 << 60;

/// A modelled drive.
///
/// Addresses beyond the profile's capacity are served as if its last zone went on.
#[derive(Clone, Debug)]
pub struct Disk {
    pub(crate) fixed: Arc<Fixed>,
    /// Sector at the head, where the cache is not reading ahead.
    head: u64,
    /// When the last access ended.
    pub(crate) free_at: Nanos,
    pub(crate) cache: Cache,
}

/// What no access changes.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) profile: DriveProfile,
    /// `None` for a drive without platters.
    pub(crate) geometry: Option<Geometry>,
    overhead: Nanos,
    hit_overhead: Nanos,
    same_track: Option<Nanos>,
    /// Nanoseconds of a sector over the bus (for flash: of a read), in 2⁻¹⁶.
    bus_fixed: u64,
    /// The same of a write to flash.
    write_fixed: u64,
    /// Latency of a write to flash.
    write_latency: Nanos,
}

/// A command for the platters.
#[derive(Clone, Copy, Debug)]
struct Task {
    start: Nanos,
    op: Op,
    first: u64,
    end: u64,
    phase: u64,
    ahead: Option<Ahead>,
}

/// What an access will have changed. `ahead` is how far reading ahead had come when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Nothing,
    Answered { segment: usize, start: u64, end: u64, resume: Option<Nanos> },
    Read { ahead: Option<Ahead>, reuse: Option<usize>, start: u64, end: u64, since: Nanos },
    Written { ahead: Option<Ahead>, start: u64, end: u64 },
}

fn micros(us: f64) -> Nanos {
    Nanos::from_millis_f64(us / 1000.0)
}

/// First sector and one past the last, within what can be summed.
pub(crate) fn span(sector: Sector, sectors: u32) -> (u64, u64) {
    let first = sector.0.min(LAST_SECTOR);
    (first, first + u64::from(sectors))
}

/// Nanoseconds of a sector at `mb_s` million bytes a second, in 2⁻¹⁶.
fn sector_fixed(mb_s: f64) -> u64 {
    (SECTOR_BYTES as f64 / mb_s * 1000.0 * 65_536.0).round() as u64
}

fn times(count: u64, fixed: u64) -> Nanos {
    Nanos(((u128::from(count) * u128::from(fixed)) >> 16) as u64)
}

impl Disk {
    /// A drive at rest: head at sector 0, cache empty.
    pub fn new(profile: DriveProfile) -> Disk {
        let (fixed, cache) = match &profile.mechanism {
            Mechanism::Disk(d) => (
                Fixed {
                    geometry: Some(Geometry::new(d)),
                    overhead: micros(d.overhead_us),
                    hit_overhead: micros(d.hit_overhead_us),
                    same_track: d.same_track_ms.map(Nanos::from_millis_f64),
                    bus_fixed: sector_fixed(d.bus_mb_s),
                    write_fixed: 0,
                    write_latency: Nanos(0),
                    profile: profile.clone(),
                },
                Cache::new(d.segments, d.segment_kib),
            ),
            Mechanism::Flash(FlashSpec { read_latency_us, write_latency_us, read_mb_s, write_mb_s }) => (
                Fixed {
                    geometry: None,
                    overhead: micros(*read_latency_us),
                    hit_overhead: Nanos(0),
                    same_track: None,
                    bus_fixed: sector_fixed(*read_mb_s),
                    write_fixed: sector_fixed(*write_mb_s),
                    write_latency: micros(*write_latency_us),
                    profile: profile.clone(),
                },
                Cache::new(0, 1),
            ),
        };
        Disk { fixed: Arc::new(fixed), head: 0, free_at: Nanos(0), cache }
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
    /// Flushes, discards and empty accesses cost a command's overhead and move nothing.
    pub fn serve(&mut self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Service {
        let (service, effect) = self.plan(now, op, sector, sectors, 0);
        self.apply(effect);
        self.free_at = service.end();
        service
    }

    /// What [`Disk::serve`] would return, without doing it.
    pub fn predict(&self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Service {
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
        let ahead = self.cache.ahead(g, start);
        let task = Task { start, op, first, end, phase, ahead };
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
                (s, Effect::Answered { segment, start: first, end, resume })
            }
            (Found::Coming { segment }, Some(a)) => {
                let begin = start + s.overhead;
                s.rotation = a.since.since(begin);
                s.cache_hit = s.rotation == Nanos(0);
                let passed = a.since + g.transfer(a.from, end - a.from);
                s.transfer = passed.max(begin + bus).since(begin + s.rotation);
                (s, Effect::Answered { segment, start: first, end, resume: None })
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
        let begin = start + f.overhead;
        let seek = self.seek_to(g, ahead, op, rest);
        let angle = g.angle_at(begin + seek).wrapping_add(phase);
        let rotation = g.rotation_from(angle, rest);
        let media = g.transfer(rest, end - rest);
        let bus = times(end - first, f.bus_fixed);
        let since = begin + seek + rotation + media;
        let service = Service {
            op,
            start,
            overhead: f.overhead,
            seek,
            rotation,
            transfer: media.max(bus),
            cache_hit: false,
        };
        let effect = match op {
            Op::Read => Effect::Read { ahead, reuse, start: first, end, since },
            _ => Effect::Written { ahead, start: first, end },
        };
        (service, effect)
    }

    fn seek_to(&self, g: &Geometry, ahead: Option<Ahead>, op: Op, target: u64) -> Nanos {
        let head = ahead.map_or(self.head, |a| a.filled);
        let Some(disk) = self.fixed.profile.disk() else { return Nanos(0) };
        match self.fixed.same_track {
            _ if head == target => Nanos(0),
            Some(time) if g.same_track(head, target) => time + disk.settle(op),
            _ => disk.seek_time(head.abs_diff(target), op),
        }
    }

    /// How far reading ahead has come at `now`, where it was going on.
    pub(crate) fn ahead(&self, now: Nanos) -> Option<Ahead> {
        self.fixed.geometry.as_ref().and_then(|g| self.cache.ahead(g, now))
    }

    pub(crate) fn apply(&mut self, effect: Effect) {
        let capacity = self.fixed.profile.capacity_sectors();
        match effect {
            Effect::Nothing => {}
            Effect::Answered { segment, start, end, resume } => {
                self.cache.answered(segment, start, end, capacity, resume);
            }
            Effect::Read { ahead, reuse, start, end, since } => {
                self.cache.stop(ahead);
                self.head = end;
                self.cache.fill(reuse, start, end, since, capacity);
            }
            Effect::Written { ahead, start, end } => {
                self.cache.stop(ahead);
                self.head = end;
                self.cache.written(start, end);
            }
        }
    }
}
