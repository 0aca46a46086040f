//! Where a sector is under the head, and when.
//!
//! Angles are turns in units of 2⁻⁶⁴ in a `u64`, so that "modulo one turn" is what the integers
//! do anyway and an angle after years of uptime is as exact as one after a second.
//!
//! * G1: the angle of the platter is a function of absolute time alone: `now · spin`, 0 at time 0.
//! * G2: sector `s + 1` passes the head right after sector `s`, a skew later where a track or
//!   cylinder ends between them, so a sequential transfer never loses a turn.
//! * G3: the last zone has no end: a sector beyond the capacity has a place too.

use fs2_block::Nanos;

use crate::profile::DiskSpec;

/// A bit-recording zone: sectors from `first` to the next zone's first.
#[derive(Clone, Debug)]
struct Placed {
    first: u64,
    /// Sectors on a track.
    spt: u64,
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
    /// Angle turned in a nanosecond.
    spin: u64,
    /// Nanoseconds of a turn, in 2⁻¹⁶.
    turn_fixed: u64,
    track_skew: u64,
    /// What a cylinder's end adds to the track skew.
    cylinder_extra: u64,
    heads: u64,
    cylinder_skew: u64,
}

/// Arriving this many nanoseconds after a sector's start still counts as in time. Times are
/// rounded to nanoseconds at each step of an access; without slack an exact hit would now and
/// then cost a turn.
const SLACK_NS: u64 = 64;

const TURN: f64 = 18_446_744_073_709_551_616.0; // 2^64

impl Geometry {
    pub(crate) fn new(disk: &DiskSpec) -> Geometry {
        let period_ns = 60e9 / disk.rpm;
        // Rounding spin to an integer changes the speed by less than one part in 10^12.
        let spin = (TURN / period_ns).round() as u64;
        let turn_fixed = (TURN / spin as f64 * 65_536.0).round() as u64;
        let angle = |ms: f64| (ms * 1e6 / period_ns * TURN) as u64;
        let (track_skew, cylinder_skew) = (angle(disk.track_skew_ms), angle(disk.cylinder_skew_ms));
        let mut g = Geometry {
            zones: Box::new([]),
            spin,
            turn_fixed,
            track_skew,
            cylinder_extra: cylinder_skew.saturating_sub(track_skew),
            heads: u64::from(disk.tracks_per_cylinder.max(1)),
            cylinder_skew,
        };
        let mut zones = Vec::with_capacity(disk.zones.len());
        let mut base = 0u64;
        for (i, zone) in disk.zones.iter().enumerate() {
            let spt = u64::from(zone.sectors_per_track);
            let end = disk.zones.get(i + 1).map_or(u64::MAX, |next| next.first_sector);
            let placed =
                Placed { first: zone.first_sector, spt, unit: (TURN / spt as f64) as u64, base, end };
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
        let i = self.zones.partition_point(|z| z.first <= sector);
        &self.zones[i.saturating_sub(1)]
    }

    /// Angle the platter turns from the start of the zone's first sector to the start of its
    /// sector number `i`, reading everything between.
    fn start_in(&self, zone: &Placed, i: u64) -> u128 {
        let (track, place) = (i / zone.spt, i % zone.spt);
        (u128::from(track) << 64)
            + u128::from(track) * u128::from(self.track_skew)
            + u128::from(track / self.heads) * u128::from(self.cylinder_extra)
            + u128::from(place * zone.unit)
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
        let zone = self.zone(sector);
        zone.base.wrapping_add(self.start_in(zone, sector.saturating_sub(zone.first)) as u64)
    }

    /// Angle at which `sector` ends.
    pub(crate) fn sector_end_angle(&self, sector: u64) -> u64 {
        self.sector_angle(sector).wrapping_add(self.zone(sector).unit)
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
        let wait = self.sector_angle(sector).wrapping_sub(angle);
        if wait > u64::MAX - SLACK_NS * self.spin { Nanos(0) } else { self.time_of(wait) }
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
        if count == 0 {
            return Nanos(0);
        }
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

    /// How many whole sectors from `sector`, at most `limit`, pass within `time`.
    pub(crate) fn passed(&self, sector: u64, limit: u64, time: Nanos) -> u64 {
        let zone = self.zone(sector);
        // On the track where it begins, a division tells.
        let on_track = (zone.spt - (sector - zone.first) % zone.spt).min(zone.end - sector).min(limit);
        let turned = u128::from(time.0) * u128::from(self.spin);
        if turned < u128::from(on_track) * u128::from(zone.unit) {
            return turned as u64 / zone.unit;
        }
        if on_track == limit || self.transfer(sector, limit) <= time {
            return limit;
        }
        // The largest n with transfer(n) <= time lies in low..high.
        let (mut low, mut high) = (on_track, limit);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.transfer(sector, middle) <= time {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether both sectors are on one track.
    pub(crate) fn same_track(&self, a: u64, b: u64) -> bool {
        let (zone, other) = (self.zone(a), self.zone(b));
        zone.first == other.first && (a - zone.first) / zone.spt == (b - zone.first) / zone.spt
    }
}
