//! Drives described in the form of DiskSim's parameters (version 4.0), as profiles of ours.
//!
//! What they mean is written in DiskSim's and its disk model's manuals. Taken over are mechanics, the
//! mapping of sectors with skews, spares and defects (layout model g1), the cache, the write cache
//! and overheads; DiskSim's queueing inside the drive, preseeking and water marks are not.

mod seek;
mod text;

use crate::controller::{ControllerSpec, ReadAhead, WriteCacheSpec};
use crate::parse::detail::{CYLINDERS_MAX, check_zone, zones_of};
use crate::platter::{HeadOrder, PlatterSpec, PlatterZone, Sparing};
use crate::profile::{DiskSpec, DriveProfile, Mechanism, Power, ProfileError};
use text::{Block, Parser, Place, Value};

/// Reads a drive: `text` is what the file called `name` holds, `resolve` gives the files it names.
pub(crate) fn import(
    text: &str,
    name: &str,
    resolve: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<DriveProfile, ProfileError> {
    // The parser wants one lifetime for the closure and its borrow.
    let mut resolve = |file: &str| resolve(file);
    let mut parser = Parser::new(&mut resolve);
    let blocks = parser.blocks(text, name)?;
    let mut drives = blocks.iter().filter(|b| b.kind == "disksim_disk");
    let drive = match (drives.next(), drives.next()) {
        (Some(drive), None) => drive,
        (Some(_), Some(second)) => {
            return Err(second.place.error("a second disksim_disk, expected one drive"));
        }
        (None, _) => {
            let what = "no disksim_disk block, expected a drive".to_owned();
            return Err(ProfileError::Malformed { name: name.to_owned(), line: 1, column: 1, what });
        }
    };
    let (place, model) = needed(drive, "Model")?;
    let model = match model {
        Value::Block(b) => b,
        Value::Word(w) => blocks
            .iter()
            .find(|b| b.kind == "dm_disk" && b.name == *w)
            .ok_or_else(|| place.error(format!("no dm_disk block is called `{w}`")))?,
        _ => return Err(place.error("Model is no block")),
    };
    expect_kind(model, "dm_disk")?;
    let layout = block(model, "Layout Model")?;
    expect_kind(layout, "dm_layout_g1")?;
    let mechanics = block(model, "Mechanical Model")?;
    expect_kind(mechanics, "dm_mech_g1")?;
    // The other types put a number in place of rotation, or of the arm as well.
    if let Some((place, value)) = mechanics.find("Access time type")
        && !matches!(value, Value::Word(w) if w == "trackSwitchPlusRotation")
    {
        return Err(place.error("this Access time type is not supported, expected trackSwitchPlusRotation"));
    }
    let platter = platter(model, layout, mechanics)?;
    // Each bus on the way may be slower than the drive's end of it.
    let bus_mb_s = |name: &str| {
        let mut ms = number(drive, "Bulk sector transfer time", 0.0..=1000.0)?;
        for bus in blocks.iter().filter(|b| b.kind == "disksim_bus") {
            ms = optional(bus, name, 0.0..=1000.0)?.map_or(ms, |bus| bus.max(ms));
        }
        Ok::<f64, ProfileError>((0.512 / ms.max(1e-9)).clamp(0.1, 1e6))
    };
    let read_mb_s = bus_mb_s("Read block transfer time")?;
    let write_mb_s = bus_mb_s("Write block transfer time")?;
    let capacity: u64 = platter.zones.iter().filter_map(|z| platter.sectors(z)).sum();
    let disk = DiskSpec {
        rpm: number(mechanics, "Rotation speed (in rpms)", 600.0..=100_000.0)?,
        track_skew_ms: 0.0,
        cylinder_skew_ms: 0.0,
        tracks_per_cylinder: 1,
        zones: zones_of(&platter),
        seek: seek::curve(mechanics, platter.cylinders(), &mut parser)?,
        same_track_ms: None,
        write_settle_ms: number(mechanics, "Add. write settling delay", -1000.0..=1000.0)?,
        overhead_us: 0.0,
        hit_overhead_us: 0.0,
        bus_mb_s: read_mb_s,
        bus_write_mb_s: (write_mb_s != read_mb_s).then_some(write_mb_s),
        segments: match flag(drive, "Enable caching in buffer")? {
            true => number(drive, "Number of buffer segments", 0.0..=1024.0)? as u32,
            false => 0,
        },
        segment_sectors: number(drive, "Segment size (in blks)", 1.0..=2_097_152.0)? as u32,
        read_ahead: read_ahead(drive)?,
        platter: Some(platter),
        controller: Some(controller(drive)?),
        write_cache: write_cache(drive)?,
        remapped: None,
    };
    Ok(DriveProfile {
        name: drive.name.clone(),
        about: format!("{}, from DiskSim's parameters", drive.name),
        capacity,
        mechanism: Mechanism::Disk(Box::new(disk)),
        // DiskSim's parameters do not speak of power.
        power: Power {
            seek_w: 0.0,
            read_w: 0.0,
            write_w: 0.0,
            idle_w: 0.0,
            standby_w: None,
            spin_up_w: None,
            spin_up_s: None,
            standby_after_s: None,
        },
    })
}

fn expect_kind(block: &Block, kind: &str) -> Result<(), ProfileError> {
    if block.kind == kind {
        return Ok(());
    }
    Err(block.place.error(format!("{} is not supported, expected {kind}", block.kind)))
}

fn needed<'b>(block: &'b Block, name: &str) -> Result<(&'b Place, &'b Value), ProfileError> {
    block.find(name).ok_or_else(|| block.place.error(format!("{} without `{name}`", block.kind)))
}

fn block<'b>(outer: &'b Block, name: &str) -> Result<&'b Block, ProfileError> {
    match needed(outer, name)? {
        (_, Value::Block(b)) => Ok(b),
        (place, _) => Err(place.error(format!("{name} is no block"))),
    }
}

fn number(block: &Block, name: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, ProfileError> {
    let (place, value) = needed(block, name)?;
    match value {
        Value::Number(n) if range.contains(n) => Ok(*n),
        Value::Number(n) => {
            Err(place.error(format!("{name} is {n}, expected {} to {}", range.start(), range.end())))
        }
        _ => Err(place.error(format!("{name} is no number"))),
    }
}

fn optional(
    block: &Block,
    name: &str,
    range: std::ops::RangeInclusive<f64>,
) -> Result<Option<f64>, ProfileError> {
    block.find(name).map(|_| number(block, name, range)).transpose()
}

fn whole(block: &Block, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, ProfileError> {
    let n = number(block, name, *range.start() as f64..=*range.end() as f64)?;
    if n.fract() != 0.0 {
        let (place, _) = needed(block, name)?;
        return Err(place.error(format!("{name} is {n}, expected a whole number")));
    }
    Ok(n as u64)
}

fn flag(block: &Block, name: &str) -> Result<bool, ProfileError> {
    Ok(whole(block, name, 0..=2)? != 0)
}

fn word<'b>(block: &'b Block, name: &str) -> Result<(&'b Place, &'b str), ProfileError> {
    match needed(block, name)? {
        (place, Value::Word(w)) => Ok((place, w)),
        (place, _) => Err(place.error(format!("{name} is no word"))),
    }
}

fn list<'b>(block: &'b Block, name: &str) -> Result<&'b [(Place, Value)], ProfileError> {
    match needed(block, name)? {
        (_, Value::List(l)) => Ok(l),
        (place, _) => Err(place.error(format!("{name} is no list"))),
    }
}

fn blocks_of(block: &Block, name: &str) -> Result<Vec<u64>, ProfileError> {
    let whole = |(place, value): &(Place, Value)| match value {
        Value::Number(n) if n.fract() == 0.0 && (0.0..=1e12).contains(n) => Ok(*n as u64),
        _ => Err(place.error(format!("{name}: expected a block's number"))),
    };
    list(block, name)?.iter().map(whole).collect()
}

fn platter(model: &Block, layout: &Block, mechanics: &Block) -> Result<PlatterSpec, ProfileError> {
    let sparing = match whole(layout, "Sparing scheme used", 0..=10)? {
        0 => Sparing::None,
        1 => Sparing::Tracks,
        2 => Sparing::PerCylinder,
        3 => Sparing::PerTrack,
        4 => Sparing::PerCylinderSlipOn,
        5 => Sparing::PerCylinderFront,
        6 => Sparing::PerCylinderFrontSlipOn,
        7 => Sparing::AtEnd,
        8 => Sparing::PerRange(whole(layout, "Rangesize for sparing", 1..=CYLINDERS_MAX)? as u32),
        9 => Sparing::PerZone,
        _ => Sparing::PerZoneSlipOn,
    };
    let order = match whole(layout, "LBN-to-PBN mapping scheme", 0..=2)? {
        0 => HeadOrder::Plain,
        1 => HeadOrder::SerpentineInZone,
        _ => HeadOrder::Serpentine,
    };
    let mut platter = PlatterSpec {
        heads: whole(model, "Number of data surfaces", 1..=256)? as u32,
        order,
        sparing,
        head_switch_ms: number(mechanics, "Head switch time", 0.0..=1000.0)?,
        zones: Vec::new(),
    };
    for (place, value) in list(layout, "Zones")? {
        let Value::Block(z) = value else { return Err(place.error("a zone that is no block")) };
        let zone = zone(layout, z)?;
        check_zone(&platter, &zone).map_err(|what| z.place.error(what))?;
        platter.zones.push(zone);
    }
    if platter.zones.is_empty() {
        return Err(layout.place.error("no zone, expected at least one"));
    }
    Ok(platter)
}

fn zone(layout: &Block, z: &Block) -> Result<PlatterZone, ProfileError> {
    let spt = whole(z, "Blocks per track", 8..=1 << 20)?;
    let unit_of = |block: &Block| match block.find("Skew units") {
        Some((_, Value::Word(w))) if w == "revolutions" => Ok(Some(spt as f64)),
        Some((_, Value::Word(w))) if w == "sectors" => Ok(Some(1.0)),
        Some((place, _)) => Err(place.error("expected sectors or revolutions")),
        None => Ok(None),
    };
    let unit = unit_of(z)?.or(unit_of(layout)?).unwrap_or(1.0);
    let angle = |name: &str| {
        let n = optional(z, name, 0.0..=1e9)?.unwrap_or(0.0) * unit;
        Ok::<f64, ProfileError>(n.rem_euclid(spt as f64))
    };
    let mut slips = blocks_of(z, "slips")?;
    slips.sort_unstable();
    slips.dedup();
    let defects = blocks_of(z, "defects")?;
    if defects.len() % 2 == 1 {
        return Err(z.place.error("defects: expected pairs of a block and where it is now"));
    }
    let mut remaps: Vec<_> = defects.chunks(2).map(|p| (p[0], p[1])).filter(|p| p.0 != p.1).collect();
    remaps.sort_unstable();
    remaps.dedup_by_key(|p| p.0);
    Ok(PlatterZone {
        first_cylinder: whole(z, "First cylinder number", 0..=CYLINDERS_MAX - 1)? as u32,
        last_cylinder: whole(z, "Last cylinder number", 0..=CYLINDERS_MAX - 1)? as u32,
        sectors_per_track: spt as u32,
        offset: angle("Offset of first block")?,
        front: whole(z, "Empty space at zone front", 0..=1 << 40)?,
        track_skew: angle("Skew for track switch")?,
        cylinder_skew: angle("Skew for cylinder switch")?,
        spares: whole(z, "Number of spares", 0..=1 << 40)?,
        slips,
        remaps,
    })
}

fn read_ahead(drive: &Block) -> Result<ReadAhead, ProfileError> {
    let most = whole(drive, "Maximum read-ahead (blks)", 0..=2_097_152)?;
    let over_requested = number(drive, "Read-ahead over requested", -1.0..=1.0)?;
    Ok(match whole(drive, "Buffer continuous read", 0..=4)? {
        0 => ReadAhead::None,
        1 => ReadAhead::Track,
        2 => ReadAhead::Cylinder,
        4 => ReadAhead::NextTrack,
        _ if most > 0 => ReadAhead::Past(most as u32),
        _ if over_requested > 0.0 => ReadAhead::Segment,
        _ => ReadAhead::Past(number(drive, "Segment size (in blks)", 1.0..=2_097_152.0)? as u32),
    })
}

fn write_cache(drive: &Block) -> Result<Option<WriteCacheSpec>, ProfileError> {
    if whole(drive, "Fast write level", 0..=2)? == 0 {
        return Ok(None);
    }
    let extents = whole(drive, "Maximum number of write segments", 1..=1024)?;
    let size = whole(drive, "Segment size (in blks)", 1..=2_097_152)?;
    let sectors = (extents * size).min(1 << 24) as u32;
    Ok(Some(WriteCacheSpec { extents: extents as u32, sectors, idle_ms: 0.0 }))
}

/// The overheads of a drive: parameters in milliseconds, scaled, as microseconds.
struct Overheads<'b> {
    drive: &'b Block,
    scale: f64,
    /// Added to each command's own.
    each_ms: f64,
}

impl Overheads<'_> {
    fn ms(&self, name: &str) -> Result<f64, ProfileError> {
        number(self.drive, name, 0.0..=1000.0)
    }

    fn us(&self, ms: f64) -> f64 {
        (ms * self.scale * 1000.0).min(1e6)
    }

    fn pair(&self, kind: &str, more_ms: f64) -> Result<[f64; 2], ProfileError> {
        let more = self.each_ms + more_ms;
        let after = |what: &str| Ok(self.us(self.ms(&format!("{kind} over. after {what}"))? + more));
        Ok([after("read")?, after("write")?])
    }
}

fn controller(drive: &Block) -> Result<ControllerSpec, ProfileError> {
    let o = Overheads {
        drive,
        scale: number(drive, "Time scale for overheads", 0.0..=1000.0)?,
        each_ms: number(drive, "Per-request overhead time", 0.0..=1000.0)?,
    };
    let prepare = o.ms("Data preparation overhead")?;
    let reselect = o.ms("First reselect overhead")?;
    let complete_write = o.ms("Write completion overhead")?;
    let fast = whole(drive, "Fast write level", 0..=2)? > 0;
    let (write_us, write_bus_us, complete_ms) = if flag(drive, "Extra write disconnect")? && !fast {
        // The drive lets go of the bus before it takes the data, and again before it is done.
        let delta = o.ms("Extradisc seek delta")?;
        let command = o.ms("Extradisc command overhead")? + o.each_ms + delta;
        let away = o.ms("Extradisc disconnect overhead")? + o.ms("Extradisc inter-disconnect delay")?;
        let bus = (away + reselect + prepare - delta).max(0.0);
        ([o.us(command); 2], o.us(bus), complete_write + o.ms("Other reselect overhead")?)
    } else if fast {
        (o.pair("Write hit", 0.0)?, o.us(prepare), complete_write)
    } else {
        (o.pair("Write miss", 0.0)?, o.us(prepare), complete_write + reselect)
    };
    Ok(ControllerSpec {
        read_hit_us: o.pair("Read hit", prepare)?,
        read_miss_us: o.pair("Read miss", 0.0)?,
        write_us,
        write_bus_us,
        write_seek_min_us: o.us(o.ms("Minimum seek delay")?),
        reconnect_us: o.us(reselect + prepare),
        read_water: number(drive, "High (read) water mark", 0.0..=1.0)?,
        water_by_request: flag(drive, "Set watermark by reqsize")?,
        complete_us: [o.us(o.ms("Read completion overhead")?), o.us(complete_ms)],
        zero_latency_read: flag(drive, "Immediate buffer read")?,
        zero_latency_write: flag(drive, "Immediate buffer write")?,
        read_any_free: flag(drive, "Read any free blocks")?,
        ahead_on_hit: flag(drive, "Read-ahead on idle hit")?,
        hits_on_written: flag(drive, "Allow read hits on write data")?,
    })
}
