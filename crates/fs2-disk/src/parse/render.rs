//! Profiles as TOML: writing what the reader reads back to an equal profile.

use std::fmt::Write as _;

use crate::controller::{ControllerSpec, ReadAhead, WriteCacheSpec};
use crate::platter::{HeadOrder, PlatterSpec, Sparing};
use crate::profile::{DiskSpec, DriveProfile, Mechanism};
use crate::seek::SeekCurve;

pub(crate) fn to_toml(p: &DriveProfile) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = render(p, &mut out);
    out
}

fn render(p: &DriveProfile, out: &mut String) -> std::fmt::Result {
    writeln!(out, "name = {}", toml::Value::from(p.name.as_str()))?;
    writeln!(out, "about = {}", toml::Value::from(p.about.as_str()))?;
    writeln!(out, "capacity_sectors = {}", p.capacity)?;
    match &p.mechanism {
        Mechanism::Disk(d) => {
            writeln!(out, "\n[disk]\nrpm = {:?}", d.rpm)?;
            if d.platter.is_none() {
                writeln!(out, "track_skew_ms = {:?}", d.track_skew_ms)?;
                writeln!(out, "cylinder_skew_ms = {:?}", d.cylinder_skew_ms)?;
                writeln!(out, "tracks_per_cylinder = {}", d.tracks_per_cylinder)?;
            }
            writeln!(out, "write_settle_ms = {:?}", d.write_settle_ms)?;
            if let Some(ms) = d.same_track_ms {
                writeln!(out, "same_track_ms = {ms:?}")?;
            }
            writeln!(out, "overhead_us = {:?}", d.overhead_us)?;
            writeln!(out, "hit_overhead_us = {:?}", d.hit_overhead_us)?;
            writeln!(out, "bus_mb_s = {:?}", d.bus_mb_s)?;
            if let Some(mb_s) = d.bus_write_mb_s {
                writeln!(out, "bus_write_mb_s = {mb_s:?}")?;
            }
            match &d.seek {
                SeekCurve::CubicLinear { cubic, knee, linear } => {
                    writeln!(out, "\n[disk.seek.cubic_linear]\ncubic = {cubic:?}")?;
                    writeln!(out, "knee_sectors = {knee:?}\nlinear = {linear:?}")?;
                }
                SeekCurve::SqrtLinear { base, root, knee, slope } => {
                    writeln!(out, "\n[disk.seek.sqrt_linear]\nbase_ms = {base:?}\nroot_ms = {root:?}")?;
                    writeln!(out, "knee_sectors = {knee:?}\ntail_ms_per_sector = {slope:?}")?;
                }
                SeekCurve::Table { points } => {
                    writeln!(out, "\n[disk.seek]\ntable = [")?;
                    for (x, ms) in points {
                        writeln!(out, "    [{x:?}, {ms:?}],")?;
                    }
                    writeln!(out, "]")?;
                }
            }
            cache(d, out)?;
            if let Some(w) = &d.write_cache {
                let WriteCacheSpec { extents, sectors, idle_ms } = w;
                writeln!(out, "\n[disk.write_cache]\nextents = {extents}\nsectors = {sectors}")?;
                writeln!(out, "idle_ms = {idle_ms:?}")?;
            }
            if let Some(r) = &d.remapped {
                writeln!(out, "\n[disk.remapped]\npermille = {}\nseed = {}", r.permille, r.seed as i64)?;
            }
            if let Some(c) = &d.controller {
                controller(c, out)?;
            }
            match &d.platter {
                Some(p) => platter(p, out)?,
                None => {
                    for z in &d.zones {
                        writeln!(out, "\n[[disk.zones]]\nfirst_sector = {}", z.first_sector)?;
                        writeln!(out, "sectors_per_track = {}", z.sectors_per_track)?;
                    }
                }
            }
        }
        Mechanism::Flash(f) => {
            writeln!(out, "\n[flash]\nread_latency_us = {:?}", f.read_latency_us)?;
            writeln!(out, "write_latency_us = {:?}", f.write_latency_us)?;
            writeln!(out, "read_mb_s = {:?}\nwrite_mb_s = {:?}", f.read_mb_s, f.write_mb_s)?;
        }
    }
    let w = &p.power;
    writeln!(out, "\n[power]\nseek_w = {:?}\nread_w = {:?}", w.seek_w, w.read_w)?;
    writeln!(out, "write_w = {:?}\nidle_w = {:?}", w.write_w, w.idle_w)?;
    if let Some(x) = w.standby_w {
        writeln!(out, "standby_w = {x:?}")?;
    }
    if let Some(x) = w.spin_up_w {
        writeln!(out, "spin_up_w = {x:?}")?;
    }
    if let Some(x) = w.spin_up_s {
        writeln!(out, "spin_up_s = {x:?}")?;
    }
    if let Some(x) = w.standby_after_s {
        writeln!(out, "standby_after_s = {x:?}")?;
    }
    Ok(())
}

fn cache(d: &DiskSpec, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[disk.cache]\nsegments = {}", d.segments)?;
    match d.segment_sectors {
        odd if odd % 2 == 1 => writeln!(out, "segment_sectors = {odd}")?,
        even => writeln!(out, "segment_kib = {}", (even / 2).max(1))?,
    }
    let name = match d.read_ahead {
        ReadAhead::Segment => return Ok(()),
        ReadAhead::None => "none",
        ReadAhead::Track => "track",
        ReadAhead::Cylinder => "cylinder",
        ReadAhead::NextTrack => "next-track",
        ReadAhead::Past(n) => return writeln!(out, "read_ahead = \"past\"\npast_sectors = {n}"),
    };
    writeln!(out, "read_ahead = \"{name}\"")
}

fn controller(c: &ControllerSpec, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[disk.controller]\nread_hit_us = {:?}", c.read_hit_us)?;
    writeln!(out, "read_miss_us = {:?}\nwrite_us = {:?}", c.read_miss_us, c.write_us)?;
    writeln!(out, "write_bus_us = {:?}", c.write_bus_us)?;
    writeln!(out, "write_seek_min_us = {:?}", c.write_seek_min_us)?;
    writeln!(out, "reconnect_us = {:?}\ncomplete_us = {:?}", c.reconnect_us, c.complete_us)?;
    writeln!(out, "read_water = {:?}\nwater_by_request = {}", c.read_water, c.water_by_request)?;
    writeln!(out, "zero_latency_read = {}", c.zero_latency_read)?;
    writeln!(out, "zero_latency_write = {}", c.zero_latency_write)?;
    writeln!(out, "read_any_free = {}\nahead_on_hit = {}", c.read_any_free, c.ahead_on_hit)?;
    writeln!(out, "hits_on_written = {}", c.hits_on_written)
}

fn platter(p: &PlatterSpec, out: &mut String) -> std::fmt::Result {
    let order = match p.order {
        HeadOrder::Plain => "plain",
        HeadOrder::SerpentineInZone => "serpentine-in-zone",
        HeadOrder::Serpentine => "serpentine",
    };
    let sparing = match p.sparing {
        Sparing::None => "none",
        Sparing::Tracks => "tracks",
        Sparing::PerTrack => "per-track",
        Sparing::PerCylinder => "per-cylinder",
        Sparing::PerCylinderSlipOn => "per-cylinder-slip-on",
        Sparing::PerCylinderFront => "per-cylinder-front",
        Sparing::PerCylinderFrontSlipOn => "per-cylinder-front-slip-on",
        Sparing::AtEnd => "at-end",
        Sparing::PerRange(_) => "per-range",
        Sparing::PerZone => "per-zone",
        Sparing::PerZoneSlipOn => "per-zone-slip-on",
    };
    writeln!(out, "\n[disk.platter]\nheads = {}\norder = \"{order}\"", p.heads)?;
    writeln!(out, "head_switch_ms = {:?}\nsparing = \"{sparing}\"", p.head_switch_ms)?;
    if let Sparing::PerRange(cylinders) = p.sparing {
        writeln!(out, "range_cylinders = {cylinders}")?;
    }
    for z in &p.zones {
        writeln!(out, "\n[[disk.platter.zones]]\nfirst_cylinder = {}", z.first_cylinder)?;
        writeln!(out, "last_cylinder = {}", z.last_cylinder)?;
        writeln!(out, "sectors_per_track = {}", z.sectors_per_track)?;
        writeln!(out, "offset_sectors = {:?}\nfront_sectors = {}", z.offset, z.front)?;
        writeln!(out, "track_skew_sectors = {:?}", z.track_skew)?;
        writeln!(out, "cylinder_skew_sectors = {:?}\nspares = {}", z.cylinder_skew, z.spares)?;
        let remaps: Vec<_> = z.remaps.iter().map(|(from, to)| [*from, *to]).collect();
        writeln!(out, "slips = {:?}\nremaps = {remaps:?}", z.slips)?;
    }
    Ok(())
}
