//! The parts of a profile that describe a drive in detail: its own mapping, its electronics.

use serde::Deserialize;
use toml::Spanned;

use super::Source;
use crate::controller::{ControllerSpec, RemapSpec, WriteCacheSpec};
use crate::platter::{HeadOrder, PlatterSpec, PlatterZone, Sparing};
use crate::profile::{ProfileError, Zone};

/// Cylinders of a drive at most: each has an entry in a table.
pub(crate) const CYLINDERS_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPlatter {
    heads: Spanned<i64>,
    order: Spanned<String>,
    head_switch_ms: Spanned<f64>,
    sparing: Spanned<String>,
    range_cylinders: Option<Spanned<i64>>,
    zones: Vec<Spanned<RawPlatterZone>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlatterZone {
    first_cylinder: Spanned<i64>,
    last_cylinder: Spanned<i64>,
    sectors_per_track: Spanned<i64>,
    offset_sectors: Spanned<f64>,
    front_sectors: Spanned<i64>,
    track_skew_sectors: Spanned<f64>,
    cylinder_skew_sectors: Spanned<f64>,
    spares: Spanned<i64>,
    slips: Vec<Spanned<i64>>,
    remaps: Vec<Spanned<[i64; 2]>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawController {
    read_hit_us: Spanned<[f64; 2]>,
    read_miss_us: Spanned<[f64; 2]>,
    write_us: Spanned<[f64; 2]>,
    write_bus_us: Spanned<f64>,
    write_seek_min_us: Spanned<f64>,
    reconnect_us: Spanned<f64>,
    read_water: Spanned<f64>,
    water_by_request: bool,
    complete_us: Spanned<[f64; 2]>,
    zero_latency_read: bool,
    zero_latency_write: bool,
    read_any_free: bool,
    ahead_on_hit: bool,
    hits_on_written: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWriteCache {
    extents: Spanned<i64>,
    sectors: Spanned<i64>,
    idle_ms: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRemapped {
    permille: Spanned<i64>,
    seed: Spanned<i64>,
}

impl Source<'_> {
    pub(super) fn remapped(&self, raw: &RawRemapped) -> Result<RemapSpec, ProfileError> {
        // Any 64 bits: TOML's numbers have a sign.
        let seed = *raw.seed.get_ref() as u64;
        Ok(RemapSpec { permille: self.whole(&raw.permille, "permille", 1..=1000)? as u16, seed })
    }

    pub(super) fn platter(&self, raw: &Spanned<RawPlatter>) -> Result<PlatterSpec, ProfileError> {
        let (at, raw) = (raw.span().start, raw.get_ref());
        let order = match raw.order.get_ref().as_str() {
            "plain" => HeadOrder::Plain,
            "serpentine-in-zone" => HeadOrder::SerpentineInZone,
            "serpentine" => HeadOrder::Serpentine,
            other => {
                let what = format!("order `{other}`, expected plain, serpentine-in-zone or serpentine");
                return Err(self.error(raw.order.span().start, what));
            }
        };
        let sparing = self.sparing(raw)?;
        let mut platter = PlatterSpec {
            heads: self.whole(&raw.heads, "heads", 1..=256)? as u32,
            order,
            sparing,
            head_switch_ms: self.number(&raw.head_switch_ms, "head_switch_ms", 0.0..=1000.0)?,
            zones: Vec::with_capacity(raw.zones.len()),
        };
        for raw in &raw.zones {
            let zone = self.platter_zone(raw.get_ref())?;
            check_zone(&platter, &zone).map_err(|what| self.error(raw.span().start, what))?;
            platter.zones.push(zone);
        }
        if platter.zones.is_empty() {
            return Err(self.error(at, "no zone under disk.platter, expected at least one"));
        }
        Ok(platter)
    }

    fn sparing(&self, raw: &RawPlatter) -> Result<Sparing, ProfileError> {
        Ok(match (raw.sparing.get_ref().as_str(), &raw.range_cylinders) {
            ("per-range", Some(n)) => {
                Sparing::PerRange(self.whole(n, "range_cylinders", 1..=CYLINDERS_MAX)? as u32)
            }
            (_, Some(n)) => {
                return Err(self.error(n.span().start, "range_cylinders is for sparing = \"per-range\""));
            }
            ("none", _) => Sparing::None,
            ("tracks", _) => Sparing::Tracks,
            ("per-track", _) => Sparing::PerTrack,
            ("per-cylinder", _) => Sparing::PerCylinder,
            ("per-cylinder-slip-on", _) => Sparing::PerCylinderSlipOn,
            ("per-cylinder-front", _) => Sparing::PerCylinderFront,
            ("per-cylinder-front-slip-on", _) => Sparing::PerCylinderFrontSlipOn,
            ("at-end", _) => Sparing::AtEnd,
            ("per-zone", _) => Sparing::PerZone,
            ("per-zone-slip-on", _) => Sparing::PerZoneSlipOn,
            (other, _) => {
                let what = format!(
                    "sparing `{other}`, expected none, tracks, per-track, per-cylinder, per-cylinder-slip-on, \
                     per-cylinder-front, per-cylinder-front-slip-on, at-end, per-range with range_cylinders, \
                     per-zone or per-zone-slip-on"
                );
                return Err(self.error(raw.sparing.span().start, what));
            }
        })
    }

    fn platter_zone(&self, raw: &RawPlatterZone) -> Result<PlatterZone, ProfileError> {
        let cylinders = 0..=CYLINDERS_MAX - 1;
        let blocks = 0..=1 << 40;
        let spt = self.whole(&raw.sectors_per_track, "sectors_per_track", 8..=1 << 20)? as u32;
        let angle = 0.0..=f64::from(spt);
        let slips = raw.slips.iter().map(|s| self.whole(s, "slip", blocks.clone()));
        let remaps = raw.remaps.iter().map(|r| {
            let pair = r.get_ref().map(u64::try_from);
            let [Ok(from), Ok(to)] = pair else {
                return Err(self.error(r.span().start, "negative block in a remap"));
            };
            Ok((from, to))
        });
        Ok(PlatterZone {
            first_cylinder: self.whole(&raw.first_cylinder, "first_cylinder", cylinders.clone())? as u32,
            last_cylinder: self.whole(&raw.last_cylinder, "last_cylinder", cylinders)? as u32,
            sectors_per_track: spt,
            offset: self.number(&raw.offset_sectors, "offset_sectors", angle.clone())?,
            front: self.whole(&raw.front_sectors, "front_sectors", blocks.clone())?,
            track_skew: self.number(&raw.track_skew_sectors, "track_skew_sectors", angle.clone())?,
            cylinder_skew: self.number(&raw.cylinder_skew_sectors, "cylinder_skew_sectors", angle)?,
            spares: self.whole(&raw.spares, "spares", blocks.clone())?,
            slips: slips.collect::<Result<_, _>>()?,
            remaps: remaps.collect::<Result<_, _>>()?,
        })
    }

    fn pair(&self, raw: &Spanned<[f64; 2]>, what: &str) -> Result<[f64; 2], ProfileError> {
        let pair = *raw.get_ref();
        // A NaN is in no range.
        if pair.iter().all(|v| (0.0..=1e6).contains(v)) {
            return Ok(pair);
        }
        Err(self.error(raw.span().start, format!("{what} is {pair:?}, expected two of 0 to 1000000")))
    }

    pub(super) fn controller(&self, raw: &RawController) -> Result<ControllerSpec, ProfileError> {
        Ok(ControllerSpec {
            read_hit_us: self.pair(&raw.read_hit_us, "read_hit_us")?,
            read_miss_us: self.pair(&raw.read_miss_us, "read_miss_us")?,
            write_us: self.pair(&raw.write_us, "write_us")?,
            write_bus_us: self.number(&raw.write_bus_us, "write_bus_us", 0.0..=1e6)?,
            write_seek_min_us: self.number(&raw.write_seek_min_us, "write_seek_min_us", 0.0..=1e6)?,
            reconnect_us: self.number(&raw.reconnect_us, "reconnect_us", 0.0..=1e6)?,
            read_water: self.number(&raw.read_water, "read_water", 0.0..=1.0)?,
            water_by_request: raw.water_by_request,
            complete_us: self.pair(&raw.complete_us, "complete_us")?,
            zero_latency_read: raw.zero_latency_read,
            zero_latency_write: raw.zero_latency_write,
            read_any_free: raw.read_any_free,
            ahead_on_hit: raw.ahead_on_hit,
            hits_on_written: raw.hits_on_written,
        })
    }

    pub(super) fn write_cache(&self, raw: &RawWriteCache) -> Result<WriteCacheSpec, ProfileError> {
        Ok(WriteCacheSpec {
            extents: self.whole(&raw.extents, "extents", 1..=1 << 16)? as u32,
            sectors: self.whole(&raw.sectors, "sectors", 1..=1 << 24)? as u32,
            idle_ms: self.number(&raw.idle_ms, "idle_ms", 0.0..=1e6)?,
        })
    }
}

/// Whether a zone can follow those of the platter: what is wrong otherwise.
pub(crate) fn check_zone(platter: &PlatterSpec, z: &PlatterZone) -> Result<(), String> {
    if z.first_cylinder > z.last_cylinder {
        return Err(format!("zone from cylinder {} to {}", z.first_cylinder, z.last_cylinder));
    }
    if let Some(before) = platter.zones.last()
        && z.first_cylinder <= before.last_cylinder
    {
        return Err(format!(
            "zone begins at cylinder {}, expected more than the last of the zone before it ({})",
            z.first_cylinder, before.last_cylinder
        ));
    }
    let (heads, spt) = (u64::from(platter.heads), u64::from(z.sectors_per_track));
    let cylinders = u64::from(z.last_cylinder - z.first_cylinder) + 1;
    let blocks = cylinders * heads * spt;
    let (unit, places) = match platter.sparing {
        Sparing::None | Sparing::AtEnd | Sparing::PerZone | Sparing::PerZoneSlipOn => (blocks, blocks),
        Sparing::Tracks => (cylinders * heads, cylinders * heads),
        Sparing::PerTrack => (spt, blocks),
        Sparing::PerRange(range) => (heads * spt * u64::from(range), blocks),
        _ => (heads * spt, blocks),
    };
    if z.spares >= unit {
        return Err(format!("{} spares of {unit}", z.spares));
    }
    if platter.sectors(z).is_none() {
        return Err("no sector left in this zone".to_owned());
    }
    if let Some(i) =
        (0..z.slips.len()).find(|i| z.slips[*i] >= places || *i > 0 && z.slips[*i] <= z.slips[*i - 1])
    {
        return Err(format!("slip {}, expected ascending and below {places}", z.slips[i]));
    }
    let wrong = |i: &usize| {
        let (from, to) = z.remaps[*i];
        from >= places || to >= places || *i > 0 && from <= z.remaps[*i - 1].0
    };
    if let Some(i) = (0..z.remaps.len()).find(wrong) {
        return Err(format!("remap {:?}, expected ascending and below {places}", z.remaps[i]));
    }
    Ok(())
}

/// The zones by sector that follow from the mapping.
pub(crate) fn zones_of(platter: &PlatterSpec) -> Vec<Zone> {
    let mut first_sector = 0;
    let zone = |z: &PlatterZone| {
        let zone = Zone { first_sector, sectors_per_track: z.sectors_per_track };
        first_sector += platter.sectors(z).unwrap_or(0);
        zone
    };
    platter.zones.iter().map(zone).collect()
}
