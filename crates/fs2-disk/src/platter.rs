//! Where each sector of a drive lies whose cylinders, heads, skews and defects are known.
//!
//! * P1: every sector of a zone has one place; sectors go up along a track, then to the next head,
//!   then to the next cylinder.
//! * P2: [`Spot::run`] sectors from a place lie right behind each other on one track.
//!
//! A *block* here is a place on the medium within a zone, counted from the zone's first track,
//! management area, spares and defects included.

use fs2_block::Nanos;

use crate::divide::{Divisor, Index};
use crate::seek::SeekCurve;

/// How heads follow each other where a cylinder ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadOrder {
    /// Every cylinder begins with head 0.
    Plain,
    /// Odd cylinders of a zone go from the last head to head 0.
    SerpentineInZone,
    /// Odd cylinders of the drive do.
    Serpentine,
}

/// Where spare sectors are kept, and what a slipped (skipped) defect pushes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sparing {
    None,
    /// Whole tracks at the zone's end; slips are tracks.
    Tracks,
    /// At each track's end.
    PerTrack,
    /// At each cylinder's end; a slip is made good in its cylinder.
    PerCylinder,
    /// At each cylinder's end; a slip pushes all of the zone on.
    PerCylinderSlipOn,
    /// At each cylinder's front; a slip is made good in its cylinder.
    PerCylinderFront,
    /// At each cylinder's front; a slip pushes all of the zone on.
    PerCylinderFrontSlipOn,
    /// At the drive's end: a slip pushes all of the zone on.
    AtEnd,
    /// At the end of every so many cylinders.
    PerRange(u32),
    /// At the zone's end.
    PerZone,
    /// At the zone's end, slips in addition.
    PerZoneSlipOn,
}

/// Geometry as a drive's own mapping has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlatterSpec {
    pub(crate) heads: u32,
    pub(crate) order: HeadOrder,
    pub(crate) sparing: Sparing,
    pub(crate) head_switch_ms: f64,
    pub(crate) zones: Vec<PlatterZone>,
}

/// A zone of a [`PlatterSpec`]. Skews and offset are in sectors of the zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlatterZone {
    pub(crate) first_cylinder: u32,
    pub(crate) last_cylinder: u32,
    pub(crate) sectors_per_track: u32,
    /// Angle of the first block.
    pub(crate) offset: f64,
    /// Blocks at the zone's front that hold no sectors.
    pub(crate) front: u64,
    pub(crate) track_skew: f64,
    pub(crate) cylinder_skew: f64,
    /// Spare blocks (or tracks) in each unit of sparing.
    pub(crate) spares: u64,
    /// Blocks (or tracks) skipped, ascending.
    pub(crate) slips: Vec<u64>,
    /// Blocks (or tracks) whose sectors lie elsewhere in the zone, ascending.
    pub(crate) remaps: Vec<(u64, u64)>,
}

impl PlatterSpec {
    /// Sectors of a zone; `None` where its spares and slips leave none.
    pub(crate) fn sectors(&self, z: &PlatterZone) -> Option<u64> {
        let spt = u64::from(z.sectors_per_track);
        let cylinders = u64::from(z.last_cylinder - z.first_cylinder) + 1;
        let slips = z.slips.len() as u64;
        let lost = match self.sparing {
            Sparing::None => 0,
            Sparing::Tracks => z.spares * spt,
            Sparing::PerTrack => z.spares * cylinders * u64::from(self.heads),
            Sparing::PerCylinder | Sparing::PerCylinderFront => z.spares * cylinders,
            Sparing::PerCylinderSlipOn | Sparing::PerCylinderFrontSlipOn => z.spares * cylinders + slips,
            Sparing::AtEnd => slips,
            Sparing::PerRange(range) => z.spares * (cylinders / u64::from(range)),
            Sparing::PerZone => z.spares,
            Sparing::PerZoneSlipOn => z.spares + slips,
        };
        let blocks = cylinders * spt * u64::from(self.heads);
        blocks.checked_sub(lost)?.checked_sub(z.front).filter(|n| *n > 0)
    }

    pub(crate) fn cylinders(&self) -> u32 {
        self.zones.last().map_or(1, |z| z.last_cylinder + 1)
    }
}

/// A place on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) cylinder: u64,
    pub(crate) head: u32,
    /// Place on the track.
    pub(crate) place: u32,
    /// Sectors from this one that lie right behind each other, this one included.
    pub(crate) run: u64,
    /// Angle at which the sector begins, and its width.
    pub(crate) angle: u64,
    pub(crate) unit: u64,
}

impl Spot {
    pub(crate) fn same_track(&self, other: &Spot) -> bool {
        (self.cylinder, self.head) == (other.cylinder, other.head)
    }
}

#[derive(Clone, Debug)]
struct Zone {
    first: u64,
    /// One past the last sector; `u64::MAX` for the last zone.
    end: u64,
    first_cylinder: u64,
    spt: Divisor,
    unit: u64,
    base: u64,
    front: u64,
    track_skew: u64,
    /// What a cylinder's end adds to the track skew.
    cylinder_extra: u64,
    /// Sectors and blocks of a unit of sparing, spare blocks at a unit's front.
    unit_sectors: Divisor,
    unit_blocks: u64,
    unit_front: u64,
    /// From this sector of the zone (front counted) on, so many blocks more were slipped.
    breaks: Vec<(u64, u64)>,
    /// Slipped blocks push on sectors, not blocks.
    slip_on: bool,
    /// Slips before a cylinder (heads · spt) or track (spt) turn its first block on: that unit.
    slips_turn: Option<u64>,
    slips: Vec<u64>,
    /// By blocks, or by tracks of which each lies elsewhere as a whole.
    remaps: Vec<(u64, u64)>,
    remaps_tracks: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Platter {
    zones: Box<[Zone]>,
    index: Index,
    heads: Divisor,
    order: HeadOrder,
    head_switch: Nanos,
    /// Seek time by cylinders; the last entry for all beyond.
    seeks: Box<[Nanos]>,
}

const TURN: f64 = 18_446_744_073_709_551_616.0; // 2^64

impl Platter {
    pub(crate) fn new(spec: &PlatterSpec, seek: &SeekCurve) -> Platter {
        let mut first = 0;
        let mut zones: Vec<Zone> = spec
            .zones
            .iter()
            .map(|z| {
                let zone = Zone::new(spec, z, first);
                first = zone.end;
                zone
            })
            .collect();
        if let Some(last) = zones.last_mut() {
            last.end = u64::MAX;
        }
        let seeks = (0..u64::from(spec.cylinders())).map(|d| seek.nanos(d)).collect();
        Platter {
            index: Index::new(&zones.iter().map(|z| z.first).collect::<Vec<_>>()),
            zones: zones.into_boxed_slice(),
            heads: Divisor::new(u64::from(spec.heads)),
            order: spec.order,
            head_switch: Nanos::from_millis_f64(spec.head_switch_ms),
            seeks,
        }
    }

    fn zone(&self, sector: u64) -> &Zone {
        let mut i = self.index.guess(sector);
        while self.zones[i].end <= sector {
            i += 1;
        }
        &self.zones[i]
    }

    /// Where `sector` lies.
    pub(crate) fn locate(&self, sector: u64) -> Spot {
        let zone = self.zone(sector);
        let i = sector - zone.first + zone.front;
        let mut run = zone.end - sector;
        let mut extra = 0;
        if !zone.breaks.is_empty() {
            let after = zone.breaks.partition_point(|b| b.0 <= i);
            extra = if after == 0 { 0 } else { zone.breaks[after - 1].1 };
            if let Some(next) = zone.breaks.get(after) {
                run = run.min(next.0 - i);
            }
        }
        let (i, slipped) = if zone.slip_on { (i + extra, 0) } else { (i, extra) };
        let (unit, rest) = zone.unit_sectors.div_rem(i);
        run = run.min(zone.unit_sectors.get() - rest);
        // Beyond the last zone's end the sum may wrap: a place all the same (G3).
        let mut block = unit.wrapping_mul(zone.unit_blocks).wrapping_add(zone.unit_front + rest + slipped);
        if !zone.remaps.is_empty() {
            // A run ends with its track in any case.
            let (unit, within) = if zone.remaps_tracks { zone.spt.div_rem(block) } else { (block, 0) };
            match zone.remaps.binary_search_by_key(&unit, |r| r.0) {
                Ok(at) if zone.remaps_tracks => block = zone.remaps[at].1 * zone.spt.get() + within,
                Ok(at) => (block, run) = (zone.remaps[at].1, 1),
                Err(at) if !zone.remaps_tracks => {
                    if let Some(next) = zone.remaps.get(at) {
                        run = run.min(next.0 - block);
                    }
                }
                Err(_) => {}
            }
        }
        let (track, place) = zone.spt.div_rem(block);
        let (cylinder, order) = self.heads.div_rem(track);
        let absolute = zone.first_cylinder.wrapping_add(cylinder);
        let backwards = match self.order {
            HeadOrder::Plain => false,
            HeadOrder::SerpentineInZone => cylinder % 2 == 1,
            HeadOrder::Serpentine => absolute % 2 == 1,
        };
        let turned = zone.slips_turn.map_or(0, |unit| {
            let before = block / unit * unit;
            zone.slips.partition_point(|s| *s < before) as u64
        });
        let angle = zone
            .base
            .wrapping_add(track.wrapping_mul(zone.track_skew))
            .wrapping_add(cylinder.wrapping_mul(zone.cylinder_extra))
            .wrapping_add((place + turned).wrapping_mul(zone.unit));
        Spot {
            cylinder: absolute,
            head: if backwards { self.heads.get() - 1 - order } else { order } as u32,
            place: place as u32,
            run: run.min(zone.spt.get() - place),
            angle,
            unit: zone.unit,
        }
    }

    /// Time from one track to another, `settle_ns` added where the head moves at all.
    pub(crate) fn seek(&self, from: &Spot, to: &Spot, settle_ns: i64) -> Nanos {
        let distance = from.cylinder.abs_diff(to.cylinder).min(self.seeks.len() as u64 - 1);
        let arm = self.seeks[distance as usize];
        let time = if from.head == to.head { arm } else { arm.max(self.head_switch) };
        if time == Nanos(0) { time } else { Nanos(time.0.saturating_add_signed(settle_ns)) }
    }

    /// The first sector on the track of `sector`.
    pub(crate) fn track_first(&self, sector: u64) -> u64 {
        let spot = self.locate(sector);
        let zone = self.zone(sector);
        let mut first = sector.saturating_sub(u64::from(spot.place)).max(zone.first);
        while first < sector {
            let at = self.locate(first);
            if at.same_track(&spot) {
                break;
            }
            first += at.run;
        }
        first.min(sector)
    }

    /// One past the last sector on the track of `sector`.
    pub(crate) fn track_end(&self, sector: u64) -> u64 {
        let spot = self.locate(sector);
        let mut end = sector + spot.run;
        loop {
            let at = self.locate(end);
            if !at.same_track(&spot) || at.angle == spot.angle {
                return end;
            }
            end += at.run;
        }
    }

    /// Sectors on the tracks where `sector` lies, defects and spares included.
    pub(crate) fn sectors_per_track(&self, sector: u64) -> u64 {
        self.zone(sector).spt.get()
    }

    /// One past the last sector of the cylinder of `sector`.
    pub(crate) fn cylinder_end(&self, sector: u64) -> u64 {
        let cylinder = self.locate(sector).cylinder;
        let mut end = self.track_end(sector);
        while self.locate(end).cylinder == cylinder {
            end = self.track_end(end);
        }
        end
    }
}

impl Zone {
    fn new(spec: &PlatterSpec, z: &PlatterZone, first: u64) -> Zone {
        let heads = u64::from(spec.heads);
        let spt = u64::from(z.sectors_per_track);
        let cylinder = spt * heads;
        // All of the zone as one unit; never reached.
        const WHOLE: u64 = 1 << 62;
        let (unit_blocks, spares, at_front) = match spec.sparing {
            Sparing::None | Sparing::Tracks | Sparing::PerZone | Sparing::PerZoneSlipOn => (WHOLE, 0, false),
            Sparing::AtEnd => (WHOLE, 0, false),
            Sparing::PerTrack => (spt, z.spares, false),
            Sparing::PerCylinder | Sparing::PerCylinderSlipOn => (cylinder, z.spares, false),
            Sparing::PerCylinderFront | Sparing::PerCylinderFrontSlipOn => (cylinder, z.spares, true),
            Sparing::PerRange(range) => (cylinder * u64::from(range), z.spares, false),
        };
        let unit = (TURN / spt as f64) as u64;
        let angle = |sectors: f64| (sectors.rem_euclid(spt as f64) / spt as f64 * TURN) as u64;
        let (track_skew, cylinder_skew) = (angle(z.track_skew), angle(z.cylinder_skew));
        let slip_on = matches!(
            spec.sparing,
            Sparing::PerCylinderSlipOn | Sparing::PerCylinderFrontSlipOn | Sparing::AtEnd
        );
        let slip_width = if spec.sparing == Sparing::Tracks { spt } else { 1 };
        let mut zone = Zone {
            first,
            end: first + spec.sectors(z).unwrap_or(1),
            first_cylinder: u64::from(z.first_cylinder),
            spt: Divisor::new(spt),
            unit,
            base: angle(z.offset),
            front: z.front,
            track_skew,
            cylinder_extra: cylinder_skew.wrapping_sub(track_skew),
            unit_sectors: Divisor::new((unit_blocks - spares).max(1)),
            unit_blocks,
            unit_front: if at_front { spares } else { 0 },
            breaks: Vec::new(),
            slip_on,
            slips_turn: match spec.sparing {
                Sparing::PerTrack => Some(spt),
                Sparing::PerCylinder
                | Sparing::PerCylinderSlipOn
                | Sparing::PerCylinderFront
                | Sparing::PerCylinderFrontSlipOn => Some(cylinder),
                _ => None,
            },
            slips: z.slips.clone(),
            remaps: z.remaps.iter().filter(|r| r.0 != r.1).copied().collect(),
            remaps_tracks: spec.sparing == Sparing::Tracks,
        };
        zone.breaks = zone.find_breaks(slip_width);
        zone
    }

    /// From which sector on how many blocks were slipped before it.
    fn find_breaks(&self, width: u64) -> Vec<(u64, u64)> {
        let mut breaks: Vec<(u64, u64)> = Vec::new();
        let sectors = self.unit_sectors.get();
        let (mut extra, mut unit_now) = (0u64, 0u64);
        for slip in &self.slips {
            let slip = slip * width;
            let (unit, rest) = (slip / self.unit_blocks, slip % self.unit_blocks);
            let Some(rest) = rest.checked_sub(self.unit_front) else {
                continue; // A spare that is itself bad.
            };
            let from = if self.slip_on {
                (unit * sectors + rest.min(sectors)).saturating_sub(extra)
            } else {
                if unit != unit_now {
                    if extra > 0 {
                        push_break(&mut breaks, (unit_now + 1) * sectors, 0);
                    }
                    (extra, unit_now) = (0, unit);
                }
                let from = rest.saturating_sub(extra);
                if from >= sectors {
                    continue; // A spare that is itself bad.
                }
                unit * sectors + from
            };
            extra += width;
            push_break(&mut breaks, from, extra);
        }
        if !self.slip_on && extra > 0 && sectors < 1 << 60 {
            push_break(&mut breaks, (unit_now + 1) * sectors, 0);
        }
        breaks
    }
}

fn push_break(breaks: &mut Vec<(u64, u64)>, from: u64, extra: u64) {
    match breaks.last_mut() {
        Some(last) if last.0 >= from => last.1 = extra,
        _ => breaks.push((from, extra)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sparings() -> impl Strategy<Value = Sparing> {
        prop::sample::select(vec![
            Sparing::None,
            Sparing::Tracks,
            Sparing::PerTrack,
            Sparing::PerCylinder,
            Sparing::PerCylinderSlipOn,
            Sparing::PerCylinderFront,
            Sparing::PerCylinderFrontSlipOn,
            Sparing::AtEnd,
            Sparing::PerRange(3),
            Sparing::PerZone,
            Sparing::PerZoneSlipOn,
        ])
    }

    /// A zone's blocks that hold sectors, in the order of sectors, found by going through all of them.
    fn plain(spec: &PlatterSpec, z: &PlatterZone) -> Vec<u64> {
        let spt = u64::from(z.sectors_per_track);
        let cylinder = spt * u64::from(spec.heads);
        let blocks = cylinder * (u64::from(z.last_cylinder - z.first_cylinder) + 1);
        let (unit, at_front) = match spec.sparing {
            Sparing::PerTrack => (spt, false),
            Sparing::PerCylinder | Sparing::PerCylinderSlipOn => (cylinder, false),
            Sparing::PerCylinderFront | Sparing::PerCylinderFrontSlipOn => (cylinder, true),
            Sparing::PerRange(n) => (cylinder * u64::from(n), false),
            _ => (blocks, false),
        };
        let slip_on = matches!(
            spec.sparing,
            Sparing::PerCylinderSlipOn | Sparing::PerCylinderFrontSlipOn | Sparing::AtEnd
        );
        let whole = matches!(
            spec.sparing,
            Sparing::None | Sparing::Tracks | Sparing::AtEnd | Sparing::PerZone | Sparing::PerZoneSlipOn
        );
        let spares = if whole { 0 } else { z.spares };
        let mut order = Vec::new();
        for from in (0..blocks).step_by(unit as usize) {
            let front = if at_front { spares } else { 0 };
            let mut held = 0;
            for block in from + front..(from + unit).min(blocks) {
                let bad = match spec.sparing {
                    Sparing::Tracks => z.slips.contains(&(block / spt)),
                    _ => z.slips.contains(&block),
                };
                // A slip that pushes on leaves a sector less here, else a spare takes its place.
                let room = unit - spares;
                if slip_on && block - from - front >= room || held >= room {
                    break;
                }
                if !bad {
                    order.push(block);
                    held += 1;
                }
            }
        }
        order.drain(..z.front as usize);
        order
    }

    /// A track that lies elsewhere takes no more room than a block, however long it is.
    #[test]
    fn a_remapped_track_lies_elsewhere_as_a_whole() {
        let spt = 1 << 20;
        let zone = PlatterZone {
            first_cylinder: 0,
            last_cylinder: 99,
            sectors_per_track: spt,
            offset: 0.0,
            front: 0,
            track_skew: 0.0,
            cylinder_skew: 0.0,
            spares: 10,
            slips: vec![1],
            remaps: vec![(3, 150), (4, 150)],
        };
        let order = HeadOrder::Plain;
        let spec =
            PlatterSpec { heads: 2, order, sparing: Sparing::Tracks, head_switch_ms: 1.0, zones: vec![zone] };
        let p = Platter::new(&spec, &SeekCurve::Table { points: vec![(1.0, 1.0)] });
        assert_eq!(p.zones[0].remaps.len(), 2);
        let spt = u64::from(spt);
        // Track 1 is passed over, so the third track is track 3, which is track 150: cylinder 75, head 0.
        for (sector, cylinder, place) in [
            (2 * spt - 1, 1, spt - 1),
            (2 * spt, 75, 0),
            (2 * spt + 5, 75, 5),
            (3 * spt - 1, 75, spt - 1),
            (4 * spt, 2, 0),
        ] {
            let spot = p.locate(sector);
            assert_eq!(
                (spot.cylinder, u64::from(spot.place), spot.run),
                (cylinder, place, spt - place),
                "{sector}"
            );
        }
    }

    proptest! {
        /// Against a list of all blocks.
        #[test]
        fn sectors_lie_where_counting_puts_them(
            sparing in sparings(),
            order in prop::sample::select(vec![HeadOrder::Plain, HeadOrder::SerpentineInZone, HeadOrder::Serpentine]),
            heads in 1u32..5,
            zones in prop::collection::vec(
                (3u32..10, 8u32..20, 0u64..3, 0u64..5, prop::collection::btree_set(0u64..2000, 0..4), 0.0f64..8.0),
                1..4
            ),
        ) {
            let mut spec = PlatterSpec { heads, order, sparing, head_switch_ms: 0.5, zones: Vec::new() };
            let mut next = 0;
            for (cylinders, spt, spares, front, slips, offset) in zones {
                // Whole ranges, so that each has its spares.
                let cylinders = cylinders.next_multiple_of(3);
                let (cylinder, blocks) = (u64::from(spt * heads), u64::from(cylinders * spt * heads));
                let slips = slips.into_iter().filter(|s| {
                    let in_cylinder = s % cylinder;
                    match sparing {
                        // One slip at most where there is no spare for more; none among the spares.
                        Sparing::Tracks => *s < u64::from(cylinders * heads) / 4,
                        Sparing::PerCylinderSlipOn | Sparing::PerCylinderFrontSlipOn => {
                            *s < blocks / 2 && (spares..cylinder - spares).contains(&in_cylinder)
                        }
                        _ => *s < blocks / 2,
                    }
                });
                let slips: Vec<u64> = match sparing {
                    // With its spares in front, a cylinder has no place behind for what a slip pushes on.
                    Sparing::None | Sparing::PerCylinderFront => Vec::new(),
                    Sparing::AtEnd | Sparing::PerCylinderSlipOn | Sparing::PerCylinderFrontSlipOn
                    | Sparing::PerZoneSlipOn => slips.collect(),
                    _ => slips.take(spares as usize).collect(),
                };
                let zone = PlatterZone {
                    first_cylinder: next,
                    last_cylinder: next + cylinders - 1,
                    sectors_per_track: spt,
                    offset,
                    front,
                    track_skew: 2.0,
                    cylinder_skew: 3.0,
                    spares,
                    slips,
                    remaps: Vec::new(),
                };
                next += cylinders + 1;
                prop_assume!(spec.sectors(&zone).is_some_and(|n| n > 8));
                spec.zones.push(zone);
            }
            let seek = SeekCurve::Table { points: vec![(1.0, 1.0)] };
            let platter = Platter::new(&spec, &seek);
            let mut sector = 0;
            for z in &spec.zones {
                let all = plain(&spec, z);
                let sectors = spec.sectors(z).unwrap();
                prop_assert!(all.len() as u64 >= sectors, "{} {sectors}", all.len());
                let spt = u64::from(z.sectors_per_track);
                for (i, block) in all.iter().take(sectors as usize).enumerate() {
                    let spot = platter.locate(sector);
                    let (track, place) = (block / spt, block % spt);
                    let cylinder = u64::from(z.first_cylinder) + track / u64::from(heads);
                    let in_order = (track % u64::from(heads)) as u32;
                    let turned = match order {
                        HeadOrder::Plain => false,
                        HeadOrder::SerpentineInZone => (track / u64::from(heads)) % 2 == 1,
                        HeadOrder::Serpentine => cylinder % 2 == 1,
                    };
                    let head = if turned { heads - 1 - in_order } else { in_order };
                    prop_assert_eq!(
                        (spot.cylinder, spot.head, u64::from(spot.place)),
                        (cylinder, head, place),
                        "sector {} of zone {:?}, {:?}", i, z, sparing
                    );
                    prop_assert!(spot.run >= 1 && spot.run <= sectors - i as u64 || z == spec.zones.last().unwrap());
                    // Keeps P2.
                    for n in 1..spot.run.min(sectors - i as u64) {
                        let later = platter.locate(sector + n);
                        prop_assert!(later.same_track(&spot));
                        prop_assert_eq!(u64::from(later.place), place + n);
                        let apart = later.angle.wrapping_sub(spot.angle.wrapping_add(n * spot.unit));
                        prop_assert_eq!(apart, 0);
                    }
                    sector += 1;
                }
            }
        }

        #[test]
        fn track_ends_enclose_the_sector(sector in 0u64..5000, heads in 1u32..4, slip in 0u64..500) {
            let zone = PlatterZone {
                first_cylinder: 0,
                last_cylinder: 200,
                sectors_per_track: 17,
                offset: 3.0,
                front: 5,
                track_skew: 2.0,
                cylinder_skew: 3.0,
                spares: 1,
                slips: vec![slip, slip + 1],
                remaps: Vec::new(),
            };
            let spec =
                PlatterSpec { heads, order: HeadOrder::Plain, sparing: Sparing::PerZone, head_switch_ms: 1.0, zones: vec![zone] };
            let p = Platter::new(&spec, &SeekCurve::Table { points: vec![(1.0, 1.0)] });
            let (first, end) = (p.track_first(sector), p.track_end(sector));
            prop_assert!(first <= sector && sector < end && end - first <= 17);
            let here = p.locate(sector);
            for s in first..end {
                prop_assert!(p.locate(s).same_track(&here));
            }
            prop_assert!(first == 0 || !p.locate(first - 1).same_track(&here));
            prop_assert!(!p.locate(end).same_track(&here));
            prop_assert!(p.cylinder_end(sector) >= end);
        }
    }
}
