//! Profiles as TOML: reading with the line of every fault, and writing.

pub(crate) mod detail;
mod render;

use std::ops::RangeInclusive;

use serde::Deserialize;
use toml::Spanned;

pub(crate) use render::to_toml;

use crate::controller::ReadAhead;
use crate::profile::{DiskSpec, DriveProfile, FlashSpec, Mechanism, Power, ProfileError, Zone};
use crate::seek::{SEEK_MAX_MS, SeekCurve};

/// 2⁵³ sectors (4 EiB): whole numbers up to here are exact in the floating point of seek curves.
const MAX_SECTORS: u64 = 1 << 53;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    name: String,
    #[serde(default)]
    about: String,
    capacity_sectors: Spanned<i64>,
    disk: Option<Spanned<RawDisk>>,
    flash: Option<Spanned<RawFlash>>,
    power: RawPower,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDisk {
    rpm: Spanned<f64>,
    track_skew_ms: Option<Spanned<f64>>,
    cylinder_skew_ms: Option<Spanned<f64>>,
    tracks_per_cylinder: Option<Spanned<i64>>,
    write_settle_ms: Spanned<f64>,
    same_track_ms: Option<Spanned<f64>>,
    overhead_us: Option<Spanned<f64>>,
    hit_overhead_us: Option<Spanned<f64>>,
    bus_mb_s: Spanned<f64>,
    bus_write_mb_s: Option<Spanned<f64>>,
    seek: Spanned<RawSeek>,
    zones: Option<Spanned<Vec<RawZone>>>,
    platter: Option<Spanned<detail::RawPlatter>>,
    controller: Option<detail::RawController>,
    cache: RawCache,
    write_cache: Option<detail::RawWriteCache>,
    remapped: Option<detail::RawRemapped>,
}

/// Distance in sectors, time in milliseconds.
type RawPoints = Vec<Spanned<(f64, f64)>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSeek {
    cubic_linear: Option<RawCubic>,
    sqrt_linear: Option<RawSqrt>,
    table: Option<Spanned<RawPoints>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCubic {
    cubic: Spanned<[f64; 4]>,
    knee_sectors: Spanned<f64>,
    linear: Spanned<[f64; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSqrt {
    base_ms: Spanned<f64>,
    root_ms: Spanned<f64>,
    knee_sectors: Spanned<f64>,
    tail_ms_per_sector: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawZone {
    first_sector: Spanned<i64>,
    sectors_per_track: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCache {
    segments: Spanned<i64>,
    segment_kib: Option<Spanned<i64>>,
    segment_sectors: Option<Spanned<i64>>,
    read_ahead: Option<Spanned<String>>,
    past_sectors: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFlash {
    read_latency_us: Spanned<f64>,
    write_latency_us: Spanned<f64>,
    read_mb_s: Spanned<f64>,
    write_mb_s: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPower {
    seek_w: Spanned<f64>,
    read_w: Spanned<f64>,
    write_w: Spanned<f64>,
    idle_w: Spanned<f64>,
    standby_w: Option<Spanned<f64>>,
    spin_up_w: Option<Spanned<f64>>,
    spin_up_s: Option<Spanned<f64>>,
    standby_after_s: Option<Spanned<f64>>,
}

/// The text at hand, to turn byte positions into lines.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, at: usize, what: impl Into<String>) -> ProfileError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        ProfileError::Malformed {
            name: self.name.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            what: what.into(),
        }
    }

    fn number(
        &self,
        value: &Spanned<f64>,
        what: &str,
        range: RangeInclusive<f64>,
    ) -> Result<f64, ProfileError> {
        let v = *value.get_ref();
        // A NaN is in no range.
        if range.contains(&v) {
            return Ok(v);
        }
        let (low, high) = (range.start(), range.end());
        Err(self.error(value.span().start, format!("{what} is {v}, expected {low} to {high}")))
    }

    fn whole(
        &self,
        value: &Spanned<i64>,
        what: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, ProfileError> {
        match u64::try_from(*value.get_ref()) {
            Ok(v) if range.contains(&v) => Ok(v),
            _ => Err(self.error(
                value.span().start,
                format!("{what} is {}, expected {} to {}", value.get_ref(), range.start(), range.end()),
            )),
        }
    }

    fn disk(&self, at: usize, raw: &RawDisk, capacity: u64) -> Result<DiskSpec, ProfileError> {
        let rpm = self.number(&raw.rpm, "rpm", 600.0..=100_000.0)?;
        let turn_ms = 60_000.0 / rpm;
        let platter = raw.platter.as_ref().map(|p| self.platter(p)).transpose()?;
        let mut track_skew_ms = 0.0;
        let mut cylinder_skew_ms = 0.0;
        let mut tracks_per_cylinder = 1;
        let zones = match &platter {
            Some(p) => {
                let given = [
                    ("track_skew_ms", raw.track_skew_ms.as_ref().map(Spanned::span)),
                    ("cylinder_skew_ms", raw.cylinder_skew_ms.as_ref().map(Spanned::span)),
                    ("tracks_per_cylinder", raw.tracks_per_cylinder.as_ref().map(Spanned::span)),
                    ("zones", raw.zones.as_ref().map(Spanned::span)),
                ];
                if let Some((name, Some(span))) = given.into_iter().find(|(_, span)| span.is_some()) {
                    return Err(self.error(span.start, format!("{name} beside disk.platter, which says it")));
                }
                detail::zones_of(p)
            }
            None => {
                let skew = self.needed(&raw.track_skew_ms, "track_skew_ms", at)?;
                track_skew_ms = self.number(skew, "track_skew_ms", 0.0..=turn_ms * 0.999)?;
                let skew = self.needed(&raw.cylinder_skew_ms, "cylinder_skew_ms", at)?;
                cylinder_skew_ms = self.number(skew, "cylinder_skew_ms", track_skew_ms..=turn_ms * 0.999)?;
                let tracks = self.needed(&raw.tracks_per_cylinder, "tracks_per_cylinder", at)?;
                tracks_per_cylinder = self.whole(tracks, "tracks_per_cylinder", 1..=256)? as u32;
                self.zones(self.needed(&raw.zones, "zones", at)?, capacity)?
            }
        };
        let controller = raw.controller.as_ref().map(|c| self.controller(c)).transpose()?;
        let overhead_us = match (&controller, &raw.overhead_us) {
            (Some(_), None) => 0.0,
            (_, given) => self.number(self.needed(given, "overhead_us", at)?, "overhead_us", 0.0..=1e6)?,
        };
        // A seek curve measured with writes makes reads settle sooner.
        let settle_min = if platter.is_some() { -1000.0 } else { 0.0 };
        Ok(DiskSpec {
            rpm,
            track_skew_ms,
            cylinder_skew_ms,
            tracks_per_cylinder,
            zones,
            seek: self.seek(&raw.seek, platter.as_ref().map_or(capacity, |p| p.cylinders().into()))?,
            same_track_ms: self.optional(&raw.same_track_ms, "same_track_ms", 0.0..=1000.0)?,
            write_settle_ms: self.number(&raw.write_settle_ms, "write_settle_ms", settle_min..=1000.0)?,
            overhead_us,
            hit_overhead_us: self
                .optional(&raw.hit_overhead_us, "hit_overhead_us", 0.0..=1e6)?
                .unwrap_or(overhead_us),
            bus_mb_s: self.number(&raw.bus_mb_s, "bus_mb_s", 0.1..=1e6)?,
            bus_write_mb_s: self.optional(&raw.bus_write_mb_s, "bus_write_mb_s", 0.1..=1e6)?,
            segments: self.whole(&raw.cache.segments, "segments", 0..=1024)? as u32,
            segment_sectors: self.segment_sectors(&raw.cache)?,
            read_ahead: self.read_ahead(&raw.cache, platter.is_some())?,
            remapped: match (&raw.remapped, &platter) {
                (Some(r), None) => Some(self.remapped(r)?),
                (Some(_), Some(_)) => return Err(self.error(at, "disk.remapped beside disk.platter")),
                (None, _) => None,
            },
            platter,
            controller,
            write_cache: raw.write_cache.as_ref().map(|w| self.write_cache(w)).transpose()?,
        })
    }

    fn segment_sectors(&self, raw: &RawCache) -> Result<u32, ProfileError> {
        match (&raw.segment_kib, &raw.segment_sectors) {
            (Some(kib), None) => Ok(self.whole(kib, "segment_kib", 1..=1 << 20)? as u32 * 2),
            (None, Some(sectors)) => Ok(self.whole(sectors, "segment_sectors", 1..=1 << 21)? as u32),
            _ => {
                let what = "expected exactly one of segment_kib and segment_sectors under disk.cache";
                Err(self.error(raw.segments.span().start, what))
            }
        }
    }

    fn read_ahead(&self, raw: &RawCache, has_platter: bool) -> Result<ReadAhead, ProfileError> {
        let Some(name) = &raw.read_ahead else { return Ok(ReadAhead::Segment) };
        if matches!(name.get_ref().as_str(), "track" | "cylinder" | "next-track") && !has_platter {
            let what = format!(
                "read_ahead {} is for a drive with disk.platter, expected segment, none or past",
                name.get_ref()
            );
            return Err(self.error(name.span().start, what));
        }
        let kind = match (name.get_ref().as_str(), &raw.past_sectors) {
            ("past", Some(n)) => {
                return Ok(ReadAhead::Past(self.whole(n, "past_sectors", 0..=1 << 21)? as u32));
            }
            ("past", None) => return Err(self.error(name.span().start, "read_ahead past needs past_sectors")),
            ("segment", _) => ReadAhead::Segment,
            ("none", _) => ReadAhead::None,
            ("track", _) => ReadAhead::Track,
            ("cylinder", _) => ReadAhead::Cylinder,
            ("next-track", _) => ReadAhead::NextTrack,
            (other, _) => {
                let what = format!(
                    "read_ahead `{other}`, expected segment, none, track, cylinder, next-track or past"
                );
                return Err(self.error(name.span().start, what));
            }
        };
        match &raw.past_sectors {
            Some(n) => Err(self.error(n.span().start, "past_sectors is for read_ahead = \"past\"")),
            None => Ok(kind),
        }
    }

    fn needed<'v, T>(
        &self,
        value: &'v Option<Spanned<T>>,
        what: &str,
        at: usize,
    ) -> Result<&'v Spanned<T>, ProfileError> {
        value.as_ref().ok_or_else(|| self.error(at, format!("missing field `{what}`")))
    }

    fn optional(
        &self,
        value: &Option<Spanned<f64>>,
        what: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ProfileError> {
        value.as_ref().map(|v| self.number(v, what, range)).transpose()
    }

    fn zones(&self, raw: &Spanned<Vec<RawZone>>, capacity: u64) -> Result<Vec<Zone>, ProfileError> {
        if raw.get_ref().is_empty() {
            return Err(self.error(raw.span().start, "no zone, expected at least one"));
        }
        let mut zones: Vec<Zone> = Vec::with_capacity(raw.get_ref().len());
        for zone in raw.get_ref() {
            let first_sector = self.whole(&zone.first_sector, "first_sector", 0..=capacity - 1)?;
            let at = zone.first_sector.span().start;
            match zones.last() {
                None if first_sector != 0 => {
                    return Err(
                        self.error(at, format!("the first zone begins at sector {first_sector}, expected 0"))
                    );
                }
                Some(before) if first_sector <= before.first_sector => {
                    let what = format!(
                        "zone begins at sector {first_sector}, expected more than the zone before it ({})",
                        before.first_sector
                    );
                    return Err(self.error(at, what));
                }
                _ => {}
            }
            let spt = self.whole(&zone.sectors_per_track, "sectors_per_track", 8..=1 << 20)?;
            zones.push(Zone { first_sector, sectors_per_track: spt as u32 });
        }
        Ok(zones)
    }

    /// A curve over as many sectors, or cylinders, as there are.
    fn seek(&self, raw: &Spanned<RawSeek>, full: u64) -> Result<SeekCurve, ProfileError> {
        let curve = self.curve(raw)?;
        match curve.fault(full) {
            Some(what) => Err(self.error(raw.span().start, what)),
            None => Ok(curve),
        }
    }

    fn curve(&self, raw: &Spanned<RawSeek>) -> Result<SeekCurve, ProfileError> {
        let distance = 1.0..=MAX_SECTORS as f64;
        match raw.get_ref() {
            RawSeek { cubic_linear: Some(c), sqrt_linear: None, table: None } => {
                for (value, at) in c
                    .cubic
                    .get_ref()
                    .iter()
                    .map(|v| (v, c.cubic.span()))
                    .chain(c.linear.get_ref().iter().map(|v| (v, c.linear.span())))
                {
                    if !value.is_finite() || value.abs() > 1e6 {
                        let what = format!("coefficient {value}, expected -1e6 to 1e6");
                        return Err(self.error(at.start, what));
                    }
                }
                Ok(SeekCurve::CubicLinear {
                    cubic: *c.cubic.get_ref(),
                    knee: self.number(&c.knee_sectors, "knee_sectors", distance)?,
                    linear: *c.linear.get_ref(),
                })
            }
            RawSeek { cubic_linear: None, sqrt_linear: Some(s), table: None } => Ok(SeekCurve::SqrtLinear {
                base: self.number(&s.base_ms, "base_ms", 0.0..=1000.0)?,
                root: self.number(&s.root_ms, "root_ms", 0.0..=1000.0)?,
                knee: self.number(&s.knee_sectors, "knee_sectors", distance)?,
                slope: self.number(&s.tail_ms_per_sector, "tail_ms_per_sector", 0.0..=1000.0)?,
            }),
            RawSeek { cubic_linear: None, sqrt_linear: None, table: Some(t) } => self.table(t),
            _ => Err(self.error(
                raw.span().start,
                "expected exactly one of cubic_linear, sqrt_linear and table under disk.seek",
            )),
        }
    }

    fn table(&self, raw: &Spanned<RawPoints>) -> Result<SeekCurve, ProfileError> {
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(raw.get_ref().len());
        for point in raw.get_ref() {
            let (x, ms) = *point.get_ref();
            let before = points.last().map_or(0.0, |p| p.0);
            // Written so that a NaN fails.
            if !(x > before && x <= MAX_SECTORS as f64 && (0.0..=SEEK_MAX_MS).contains(&ms)) {
                let what = format!(
                    "point [{x}, {ms}], expected a distance above {before} sectors and a time of 0 to 10000 ms"
                );
                return Err(self.error(point.span().start, what));
            }
            points.push((x, ms));
        }
        if points.is_empty() {
            return Err(self.error(raw.span().start, "empty seek table, expected at least one point"));
        }
        Ok(SeekCurve::Table { points })
    }

    fn flash(&self, raw: &RawFlash) -> Result<FlashSpec, ProfileError> {
        Ok(FlashSpec {
            read_latency_us: self.number(&raw.read_latency_us, "read_latency_us", 0.0..=1e6)?,
            write_latency_us: self.number(&raw.write_latency_us, "write_latency_us", 0.0..=1e6)?,
            read_mb_s: self.number(&raw.read_mb_s, "read_mb_s", 0.1..=1e6)?,
            write_mb_s: self.number(&raw.write_mb_s, "write_mb_s", 0.1..=1e6)?,
        })
    }

    fn power(&self, raw: &RawPower) -> Result<Power, ProfileError> {
        let watts = 0.0..=1000.0;
        Ok(Power {
            seek_w: self.number(&raw.seek_w, "seek_w", watts.clone())?,
            read_w: self.number(&raw.read_w, "read_w", watts.clone())?,
            write_w: self.number(&raw.write_w, "write_w", watts.clone())?,
            idle_w: self.number(&raw.idle_w, "idle_w", watts.clone())?,
            standby_w: self.optional(&raw.standby_w, "standby_w", watts.clone())?,
            spin_up_w: self.optional(&raw.spin_up_w, "spin_up_w", watts)?,
            spin_up_s: self.optional(&raw.spin_up_s, "spin_up_s", 0.0..=600.0)?,
            standby_after_s: self.optional(&raw.standby_after_s, "standby_after_s", 0.1..=1e6)?,
        })
    }
}

pub(crate) fn profile(text: &str, name: &str) -> Result<DriveProfile, ProfileError> {
    let source = Source { name, text };
    let raw: RawProfile = toml::from_str(text)
        .map_err(|e| source.error(e.span().map_or(0, |s| s.start), e.message().to_owned()))?;
    let capacity = source.whole(&raw.capacity_sectors, "capacity_sectors", 1..=MAX_SECTORS)?;
    let mechanism = match (&raw.disk, &raw.flash) {
        (Some(d), None) => Mechanism::Disk(Box::new(source.disk(d.span().start, d.get_ref(), capacity)?)),
        (None, Some(f)) => Mechanism::Flash(source.flash(f.get_ref())?),
        (Some(_), Some(f)) => {
            return Err(source.error(f.span().start, "both [disk] and [flash], expected one of them"));
        }
        (None, None) => return Err(source.error(0, "neither [disk] nor [flash], expected one of them")),
    };
    Ok(DriveProfile {
        power: source.power(&raw.power)?,
        name: raw.name,
        about: raw.about,
        capacity,
        mechanism,
    })
}
