//! Where a sector is under the head, and when.
//!
//! Angles are turns in units of 2⁻⁶⁴ in a `u64`, so that "modulo one turn" is what the integers
//! do anyway and an angle after years of uptime is as exact as one after a second.
//!
//! * G1: the angle of the platter is a function of absolute time alone: `now · spin`, 0 at time 0.
//! * G2: sector `s + 1` passes the head right after sector `s`, a skew later where a track or
//!   cylinder ends between them, so a sequential transfer never loses a turn. Where the drive's own
//!   mapping is known ([`Platter`]) it loses what that mapping makes it lose.
//! * G3: the last zone has no end: a sector beyond the capacity has a place too.

use fs2_block::Nanos;

use crate::divide::{Divisor, Index};
use crate::platter::Platter;
use crate::profile::DiskSpec;
use crate::remap::Remap;

/// A bit-recording zone: sectors from `first` to the next zone's first.
#[derive(Clone, Debug)]
struct Placed {
    first: u64,
    /// Sectors on a track.
    spt: Divisor,
    /// Angle a sector takes.
    unit: u64,
    /// Angle of the zone's first sector.
    base: u64,
    /// One past the last sector, `u64::MAX` for the last zone.
    end: u64,
}

/// The profile's geometry, multiplied out.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    zones: Box<[Placed]>,
    index: Index,
    /// In place of the zones.
    pub(crate) platter: Option<Platter>,
    /// Sectors that lie elsewhere than the zones say.
    pub(crate) remap: Option<Remap>,
    /// Angle turned in a nanosecond.
    spin: u64,
    /// Nanoseconds of a turn, in 2⁻¹⁶.
    turn_fixed: u64,
    track_skew: u64,
    /// What a cylinder's end adds to the track skew.
    cylinder_extra: u64,
    heads: Divisor,
    cylinder_skew: u64,
}

/// Pieces of one transfer that are looked at; what follows counts as lying in one piece. No request of
/// this world is longer, and one that is must not take seconds.
const PIECES_MAX: u32 = 1 << 12;

/// Sectors right behind each other; angles from where the first of all begins to pass.
struct Piece {
    from: u128,
    until: u128,
    unit: u64,
    take: u64,
    left_after: u64,
}

/// Arriving this many nanoseconds after a sector's start still counts as in time. Times are
/// rounded to nanoseconds at each step of an access; without slack an exact hit would now and
/// then cost a turn.
const SLACK_NS: u64 = 64;

const TURN: f64 = 18_446_744_073_709_551_616.0; // 2^64

impl Geometry {
    pub(crate) fn new(disk: &DiskSpec, capacity: u64) -> Geometry {
        let period_ns = 60e9 / disk.rpm;
        // Rounding spin to an integer changes the speed by less than one part in 10^12.
        let spin = (TURN / period_ns).round() as u64;
        let turn_fixed = (TURN / spin as f64 * 65_536.0).round() as u64;
        let angle = |ms: f64| (ms * 1e6 / period_ns * TURN) as u64;
        let (track_skew, cylinder_skew) = (angle(disk.track_skew_ms), angle(disk.cylinder_skew_ms));
        let mut g = Geometry {
            zones: Box::new([]),
            index: Index::new(&disk.zones.iter().map(|z| z.first_sector).collect::<Vec<_>>()),
            platter: disk.platter.as_ref().map(|spec| Platter::new(spec, &disk.seek)),
            remap: disk.remapped.map(|spec| Remap::new(spec, capacity, &disk.seek)),
            spin,
            turn_fixed,
            track_skew,
            cylinder_extra: cylinder_skew.saturating_sub(track_skew),
            heads: Divisor::new(u64::from(disk.tracks_per_cylinder.max(1))),
            cylinder_skew,
        };
        let mut zones = Vec::with_capacity(disk.zones.len());
        let mut base = 0u64;
        for (i, zone) in disk.zones.iter().enumerate() {
            let spt = Divisor::new(u64::from(zone.sectors_per_track));
            let end = disk.zones.get(i + 1).map_or(u64::MAX, |next| next.first_sector);
            let placed =
                Placed { first: zone.first_sector, spt, unit: (TURN / spt.get() as f64) as u64, base, end };
            if end != u64::MAX {
                // Keeps G2 across zones: the next one starts a cylinder skew after this one ends.
                base = base.wrapping_add(g.end_in(&placed, end - placed.first) as u64);
                base = base.wrapping_add(cylinder_skew);
            }
            zones.push(placed);
        }
        g.zones = zones.into_boxed_slice();
        g
    }

    fn zone(&self, sector: u64) -> &Placed {
        let mut i = self.index.guess(sector);
        while self.zones[i].end <= sector {
            i += 1;
        }
        &self.zones[i]
    }

    /// Angle the platter turns from the start of the zone's first sector to the start of its
    /// sector number `i`, reading everything between.
    fn start_in(&self, zone: &Placed, i: u64) -> u128 {
        let (track, place) = zone.spt.div_rem(i);
        self.track_in(track) + u128::from(place * zone.unit)
    }

    /// The same to the start of a track.
    fn track_in(&self, track: u64) -> u128 {
        (u128::from(track) << 64)
            + u128::from(track) * u128::from(self.track_skew)
            + u128::from(self.heads.div_rem(track).0) * u128::from(self.cylinder_extra)
    }

    /// The same to the end of the `n`-th sector (`n` of them passed).
    fn end_in(&self, zone: &Placed, n: u64) -> u128 {
        match n {
            0 => 0,
            n => self.start_in(zone, n - 1) + u128::from(zone.unit),
        }
    }

    /// Angle of the platter at `now`.
    pub(crate) fn angle_at(&self, now: Nanos) -> u64 {
        now.0.wrapping_mul(self.spin)
    }

    /// Angle at which `sector` begins.
    pub(crate) fn sector_angle(&self, sector: u64) -> u64 {
        if let Some(p) = &self.platter {
            return p.locate(sector).angle;
        }
        self.angle_of(self.real(sector))
    }

    /// Where a sector really lies.
    pub(crate) fn real(&self, sector: u64) -> u64 {
        self.remap.as_ref().map_or(sector, |r| r.real(sector))
    }

    /// Angle at which a place of the zones begins.
    fn angle_of(&self, sector: u64) -> u64 {
        let zone = self.zone(sector);
        zone.base.wrapping_add(self.start_in(zone, sector.saturating_sub(zone.first)) as u64)
    }

    /// Angle at which `sector` ends.
    pub(crate) fn sector_end_angle(&self, sector: u64) -> u64 {
        if let Some(p) = &self.platter {
            let spot = p.locate(sector);
            return spot.angle.wrapping_add(spot.unit);
        }
        let real = self.real(sector);
        self.angle_of(real).wrapping_add(self.zone(real).unit)
    }

    /// Time to turn by `angle`, less than a turn.
    pub(crate) fn time_of(&self, angle: u64) -> Nanos {
        Nanos(((u128::from(angle) * u128::from(self.turn_fixed)) >> 80) as u64)
    }

    fn time_of_turns(&self, angle: u128) -> Nanos {
        let whole = (angle >> 64) * u128::from(self.turn_fixed);
        let part = (u128::from(angle as u64) * u128::from(self.turn_fixed)) >> 64;
        Nanos(u64::try_from((whole + part) >> 16).unwrap_or(u64::MAX))
    }

    /// Wait from platter angle `angle` until `sector` begins.
    pub(crate) fn rotation_from(&self, angle: u64, sector: u64) -> Nanos {
        self.wait(angle, self.sector_angle(sector))
    }

    /// Wait from platter angle `angle` until `target`.
    pub(crate) fn wait(&self, angle: u64, target: u64) -> Nanos {
        self.time_of(self.wait_angle(angle, target))
    }

    fn wait_angle(&self, angle: u64, target: u64) -> u64 {
        let wait = target.wrapping_sub(angle);
        if wait > u64::MAX - SLACK_NS * self.spin { 0 } else { wait }
    }

    /// Time of one turn.
    pub(crate) fn turn(&self) -> Nanos {
        Nanos(self.turn_fixed >> 16)
    }

    /// Turns in a nanosecond.
    pub(crate) fn turns_per_ns(&self) -> f64 {
        self.spin as f64 / TURN
    }

    /// Time for `count` sectors from `sector` to pass under the head, skews included.
    pub(crate) fn transfer(&self, sector: u64, count: u64) -> Nanos {
        self.transfer_settling(sector, count, 0)
    }

    /// The same where settling on a new track takes `settle_ns` longer.
    pub(crate) fn transfer_settling(&self, sector: u64, count: u64, settle_ns: i64) -> Nanos {
        if count == 0 {
            return Nanos(0);
        }
        if let Some(p) = &self.platter {
            let mut end = 0;
            self.walk(p, sector, count, settle_ns, |piece| {
                end = piece.until;
                true
            });
            return self.time_of_turns(end);
        }
        match &self.remap {
            Some(r) => self.through(r, sector, count, Nanos(u64::MAX)).0,
            None => self.transfer_in_zones(sector, count),
        }
    }

    /// `count` sectors, stretches that lie elsewhere among them: the time they take, or how many pass
    /// within `limit`.
    fn through(&self, r: &Remap, sector: u64, count: u64, limit: Nanos) -> (Nanos, u64) {
        let (mut at, mut passed, mut time) = (sector, 0, Nanos(0));
        if count == 0 {
            return (time, passed);
        }
        for piece in 0.. {
            let (real, mut run) = (r.real(at), r.run(at, count - passed));
            if piece == PIECES_MAX {
                run = count - passed;
            }
            let took = self.transfer_in_zones(real, run);
            if time + took > limit {
                return (limit, passed + self.passed_in_zones(real, run, limit - time));
            }
            (time, passed, at) = (time + took, passed + run, at + run);
            if passed < count {
                let next = r.real(at);
                let seek = r.seek(real + run, next);
                let end = self.angle_of(real + run - 1).wrapping_add(self.zone(real + run - 1).unit);
                let there = end.wrapping_add(seek.0.wrapping_mul(self.spin));
                time = time + seek + self.wait(there, self.angle_of(next));
            } else {
                break;
            }
        }
        (time, passed)
    }

    fn transfer_in_zones(&self, sector: u64, count: u64) -> Nanos {
        let end = sector.saturating_add(count);
        let mut zone = self.zone(sector);
        let mut from = sector;
        let mut angle = 0u128;
        loop {
            let to = end.min(zone.end);
            angle += self.end_in(zone, to - zone.first) - self.start_in(zone, from - zone.first);
            if to == end {
                return self.time_of_turns(angle);
            }
            angle += u128::from(self.cylinder_skew);
            from = to;
            zone = self.zone(to);
        }
    }

    /// Goes through `count` sectors from `sector` piece by piece while `each` says so.
    fn walk(
        &self,
        p: &Platter,
        sector: u64,
        count: u64,
        settle_ns: i64,
        mut each: impl FnMut(&Piece) -> bool,
    ) {
        let (mut at, mut left) = (sector, count);
        let mut spot = p.locate(at);
        let mut from = 0u128;
        for piece in 0.. {
            let take = if piece == PIECES_MAX { left } else { spot.run.min(left) };
            let until = from + u128::from(take) * u128::from(spot.unit);
            left -= take;
            if !each(&Piece { from, until, unit: spot.unit, left_after: left, take }) || left == 0 {
                return;
            }
            at += take;
            let next = p.locate(at);
            let end = spot.angle.wrapping_add(take.wrapping_mul(spot.unit));
            // On the same track only slipped blocks lie between, and pass.
            let switch = if spot.same_track(&next) { Nanos(0) } else { p.seek(&spot, &next, settle_ns) };
            let switch = u128::from(switch.0) * u128::from(self.spin);
            let wait = self.wait_angle(end.wrapping_add(switch as u64), next.angle);
            from = until + switch + u128::from(wait);
            spot = next;
        }
    }

    /// `count` sectors from `sector` pass the head and cross a bus that takes `bus_fixed` 2⁻¹⁶ ns
    /// for each, a sector beginning to cross when it has passed: until the last has passed, and
    /// until the last has crossed, both from when the first begins to pass.
    pub(crate) fn delivery(&self, sector: u64, count: u64, bus_fixed: u64) -> (Nanos, Nanos) {
        let bus = |n: u64| Nanos(((u128::from(n) * u128::from(bus_fixed)) >> 16) as u64);
        let Some(p) = &self.platter else {
            let media = self.transfer(sector, count);
            return (media, (media + bus(1)).max(self.transfer(sector, 1) + bus(count)));
        };
        let (mut passed, mut crossed) = (0, Nanos(0));
        self.walk(p, sector, count, 0, |piece| {
            passed = piece.until;
            let first = self.time_of_turns(piece.from + u128::from(piece.unit));
            crossed = crossed.max(first + bus(piece.left_after + piece.take));
            true
        });
        let passed = self.time_of_turns(passed);
        (passed, crossed.max(passed + bus(1)))
    }

    /// How many whole sectors from `sector`, at most `limit`, pass within `time`.
    pub(crate) fn passed(&self, sector: u64, limit: u64, time: Nanos) -> u64 {
        if let Some(p) = &self.platter {
            let turned = u128::from(time.0) * u128::from(self.spin);
            let mut count = 0;
            if limit > 0 {
                self.walk(p, sector, limit, 0, |piece| {
                    let whole = turned.saturating_sub(piece.from) / u128::from(piece.unit);
                    count += whole.min(u128::from(piece.take)) as u64;
                    piece.until <= turned
                });
            }
            return count;
        }
        match &self.remap {
            Some(r) => self.through(r, sector, limit, time).1,
            None => self.passed_in_zones(sector, limit, time),
        }
    }

    fn passed_in_zones(&self, sector: u64, limit: u64, time: Nanos) -> u64 {
        if limit == 0 {
            return 0;
        }
        let mut zone = self.zone(sector);
        let (mut track, mut place) = zone.spt.div_rem(sector - zone.first);
        let mut turned = u128::from(time.0) * u128::from(self.spin);
        let (mut at, mut left) = (sector, limit);
        loop {
            let here = (zone.spt.get() - place).min(zone.end - at).min(left);
            if turned < u128::from(here) * u128::from(zone.unit) {
                return limit - left + u64::try_from(turned).unwrap_or(u64::MAX) / zone.unit;
            }
            left -= here;
            if left == 0 {
                return limit;
            }
            // Far beyond the first tracks, ask whether all has passed.
            if left > 8 * zone.spt.get() && at == sector && self.transfer_in_zones(sector, limit) <= time {
                return limit;
            }
            at += here;
            // From where this track's part begins to where the next begins.
            let step = if at == zone.end {
                let end = u128::from(here) * u128::from(zone.unit) + u128::from(self.cylinder_skew);
                zone = self.zone(at);
                (track, place) = (0, 0);
                end
            } else {
                let from = self.track_in(track) + u128::from(place * zone.unit);
                (track, place) = (track + 1, 0);
                self.track_in(track) - from
            };
            if turned < step {
                return limit - left;
            }
            turned -= step;
        }
    }

    /// Where `sector` begins, and the time for `count` sectors from there to pass.
    pub(crate) fn place(&self, sector: u64, count: u64) -> (u64, Nanos) {
        if self.platter.is_none() && self.remap.is_none() {
            let zone = self.zone(sector);
            let (track, place) = zone.spt.div_rem(sector - zone.first);
            let angle = self.track_in(track) as u64;
            let angle = zone.base.wrapping_add(angle).wrapping_add(place * zone.unit);
            if place + count <= zone.spt.get() && sector + count <= zone.end {
                // All of a track is a turn, which is more than 64 bits hold.
                return (angle, self.time_of_turns(u128::from(count) * u128::from(zone.unit)));
            }
            return (angle, self.transfer(sector, count));
        }
        (self.sector_angle(sector), self.transfer(sector, count))
    }

    /// Whether both sectors are on one track; where some lie elsewhere, of the places they really have.
    pub(crate) fn same_track(&self, a: u64, b: u64) -> bool {
        if let Some(p) = &self.platter {
            return p.locate(a).same_track(&p.locate(b));
        }
        let (zone, other) = (self.zone(a), self.zone(b));
        zone.first == other.first && zone.spt.div_rem(a - zone.first).0 == zone.spt.div_rem(b - zone.first).0
    }
}
