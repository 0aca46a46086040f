//! The profile, of all that was measured.

use super::arm::Seen;
use super::bench::{Bench, Scattered};
use super::buffer::Buffer;
use super::robust::{median, slope};
use super::rotation::Turn;
use super::zones::Map;
use super::{Calibration, RatePoint, Refused, SeekPoint, fit};
use crate::controller::ReadAhead;
use crate::profile::{DiskSpec, DriveProfile, FlashSpec, Mechanism, Power};
use crate::seek::SeekCurve;

const NO_POWER: Power = Power {
    seek_w: 0.0,
    read_w: 0.0,
    write_w: 0.0,
    idle_w: 0.0,
    standby_w: None,
    spin_up_w: None,
    spin_up_s: None,
    standby_after_s: None,
};

/// What the arm takes longer before a write; data sheets say 0.5 to 1 ms.
const SETTLE_GUESS_MS: f64 = 0.5;

const UNSEEN: &str =
    "Reads tell nothing of writes and power: the time a write settles longer is a guess, powers are 0.";

pub(super) fn disk(
    bench: &Bench<'_>,
    turn: &Turn,
    map: &Map,
    buffer: &Buffer,
    seen: Vec<Seen>,
) -> Calibration {
    // Of a miss only the sum of overhead and arm can be seen: the overhead is taken to be that of a hit.
    let least = seen.iter().map(|s| s.us).fold(f64::INFINITY, f64::min);
    let overhead_us = if least.is_finite() { buffer.overhead_us.min(least) } else { buffer.overhead_us };
    let points: Vec<(f64, f64)> =
        seen.iter().map(|s| (s.distance as f64, ((s.us - overhead_us) / 1000.0).max(0.0))).collect();
    let seek = fit::curve(&points, bench.options.capacity_sectors);
    let seeks: Vec<SeekPoint> = seen
        .iter()
        .map(|s| SeekPoint {
            distance: s.distance,
            ms: s.us / 1000.0,
            fitted_ms: overhead_us / 1000.0 + seek.millis(s.distance),
            accesses_ms: s.accesses.iter().map(|us| us / 1000.0).collect(),
        })
        .collect();
    let mut rates = map.rates.clone();
    for rate in &mut rates {
        rate.fitted_mb_s = buffer.bus_mb_s.map_or(rate.fitted_mb_s, |bus| rate.fitted_mb_s.min(bus));
    }
    let mut notes = map.notes.clone();
    notes.extend(buffer.notes.iter().cloned());
    if matches!(seek, SeekCurve::Table { .. }) {
        notes.push(
            "No curve of a known form fits its seeks: what was measured is the curve itself, so that the residual says \
             nothing. A volume of several stretches, or a drive that others use, is like that."
                .into(),
        );
    }
    notes.push(UNSEEN.into());
    let spec = DiskSpec {
        rpm: 60e6 / turn.us,
        track_skew_ms: map.track_skew_us / 1000.0,
        cylinder_skew_ms: map.cylinder_skew_us.max(map.track_skew_us) / 1000.0,
        tracks_per_cylinder: map.tracks_per_cylinder,
        zones: map.zones.clone(),
        seek,
        same_track_ms: map.quick_on_track.unwrap_or(true).then_some(0.0),
        write_settle_ms: SETTLE_GUESS_MS,
        overhead_us,
        hit_overhead_us: buffer.overhead_us,
        bus_mb_s: buffer.bus_mb_s.unwrap_or(map.fastest_mb_s(turn) * 10.0),
        bus_write_mb_s: None,
        segments: buffer.segments,
        segment_sectors: buffer.segment_sectors.max(1),
        read_ahead: if buffer.reads_ahead { ReadAhead::Segment } else { ReadAhead::None },
        platter: None,
        controller: None,
        write_cache: None,
        remapped: None,
    };
    let profile = DriveProfile {
        name: "calibrated".into(),
        about: format!("measured: {:.0} rpm, {} zones", spec.rpm, spec.zones.len()),
        capacity: bench.options.capacity_sectors,
        mechanism: Mechanism::Disk(Box::new(spec)),
        power: NO_POWER,
    };
    let mut off: Vec<f64> = seeks.iter().map(|s| (s.fitted_ms - s.ms).powi(2)).collect();
    off.sort_by(f64::total_cmp);
    off.truncate(off.len().div_ceil(10) * 9);
    let seek_residual_us = 1000.0 * (off.iter().sum::<f64>() / off.len().max(1) as f64).sqrt();
    let rate_off = |r: &RatePoint| 100.0 * (r.fitted_mb_s / r.mb_s - 1.0).abs();
    Calibration {
        profile,
        seeks,
        rate_residual_percent: rates.iter().map(rate_off).fold(0.0, f64::max),
        rates,
        seek_residual_us,
        reads: bench.reads,
        elapsed: bench.elapsed(),
        notes,
    }
}

/// A drive without an arm: a latency and a rate.
pub(super) fn flash(bench: &mut Bench<'_>, first: &Scattered) -> Result<Calibration, Refused> {
    let capacity = bench.capacity();
    let mut latencies = first.0.clone();
    latencies.extend(bench.scattered(bench.share(400, 100))?.0);
    let short = median(&latencies);
    let mut sizes = Vec::new();
    for sectors in [64, 128, 256, 512, 1024] {
        let sectors = bench.grain() * (sectors / bench.grain()).max(1);
        let mut times = Vec::new();
        for _ in 0..bench.share(40, 11) {
            let at = bench.place(0, capacity - sectors);
            times.push(bench.read_long(at, sectors)?.took());
        }
        sizes.push((sectors as f64, median(&times)));
    }
    let per_sector = slope(&sizes).unwrap_or(0.0);
    let mut notes = Vec::new();
    let mb_s = if per_sector > 512.0 / 1e6 {
        512.0 / per_sector
    } else {
        notes.push("Long reads take no longer than short ones: the rate is a guess.".into());
        10_000.0
    };
    let latency = (short - 512.0 / mb_s * bench.grain() as f64).max(0.0);
    notes.push(
        "Its latency does not depend on where it reads: it has no arm, and copies nearer the head gain nothing. Serve \
         it plain, or with --policy none."
            .into(),
    );
    notes.push(
        "Reads tell nothing of writes and power: writes are taken to be like reads, powers are 0.".into(),
    );
    let profile = DriveProfile {
        name: "calibrated".into(),
        about: "measured: latency does not depend on the place".into(),
        capacity: bench.options.capacity_sectors,
        mechanism: Mechanism::Flash(FlashSpec {
            read_latency_us: latency,
            write_latency_us: latency,
            read_mb_s: mb_s.clamp(0.1, 1e6),
            write_mb_s: mb_s.clamp(0.1, 1e6),
        }),
        power: NO_POWER,
    };
    Ok(Calibration {
        profile,
        seeks: vec![],
        rates: vec![],
        seek_residual_us: 0.0,
        rate_residual_percent: 0.0,
        reads: bench.reads,
        elapsed: bench.elapsed(),
        notes,
    })
}
