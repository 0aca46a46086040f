//! What was found, as a profile, as text and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use fs2_disk::DriveProfile;
use fs2_disk::calibrate::Calibration;

/// One line of a comment: nothing that came from outside ends it.
fn comment(out: &mut String, text: &str) {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(out, "# {plain}");
}

/// The profile as TOML, with how it was found as comments.
pub(super) fn profile(device: &Path, c: &Calibration) -> String {
    let mut out = String::new();
    let seconds = c.elapsed.as_secs_f64();
    comment(
        &mut out,
        &format!("Measured by fs2 calibrate: {}, {} reads in {seconds:.0} s.", device.display(), c.reads),
    );
    if c.profile.rotational() {
        comment(
            &mut out,
            &format!(
                "Residuals: seek curve {:.0} us (root mean square), rates {:.2} % at most.",
                c.seek_residual_us, c.rate_residual_percent
            ),
        );
        comment(
            &mut out,
            "Only the sum of overhead and arm can be seen: the overhead is that of a read from the cache.",
        );
    }
    for note in &c.notes {
        comment(&mut out, note);
    }
    for s in &c.seeks {
        comment(
            &mut out,
            &format!("seek of {} sectors: {:.3} ms, by this profile {:.3}", s.distance, s.ms, s.fitted_ms),
        );
    }
    for r in &c.rates {
        comment(
            &mut out,
            &format!("rate at sector {}: {:.1} MB/s, by this profile {:.1}", r.sector, r.mb_s, r.fitted_mb_s),
        );
    }
    out + "\n" + &c.profile.to_toml()
}

fn seek_ms(p: &DriveProfile, distance: u64) -> f64 {
    p.seek_time(distance, fs2_block::Op::Read).as_millis_f64()
}

/// For a person.
pub(super) fn told(device: &Path, c: &Calibration) -> String {
    let p = &c.profile;
    let mut out = format!("{}: {} reads in {:.0} s\n", device.display(), c.reads, c.elapsed.as_secs_f64());
    if let Some(rpm) = p.rpm() {
        let full = p.capacity_sectors();
        let mean = p.mean_seek().as_millis_f64();
        let (segments, bytes) = p.read_ahead();
        let _ = writeln!(out, "rotation    {rpm:.1} rpm");
        let _ = writeln!(
            out,
            "seek        {:.2} ms short, {mean:.2} ms mean, {:.2} ms full stroke (curve within {:.0} us)",
            seek_ms(p, 4096.min(full / 2)),
            seek_ms(p, full),
            c.seek_residual_us
        );
        let zones = p.zones().len();
        let _ = match (c.rates.first(), c.rates.last()) {
            (Some(outer), Some(inner)) => writeln!(
                out,
                "rate        {:.1} to {:.1} MB/s in {zones} zones (within {:.2} %)",
                outer.mb_s, inner.mb_s, c.rate_residual_percent
            ),
            // A note says why.
            _ => writeln!(out, "rate        not seen; {zones} zones"),
        };
        let _ = writeln!(out, "cache       {segments} segments of {} KiB", bytes / 1024);
    }
    for note in &c.notes {
        let _ = writeln!(out, "note        {note}");
    }
    out
}

/// For a program.
pub(super) fn json(device: &Path, c: &Calibration) -> serde_json::Value {
    let p = &c.profile;
    let seek = |s: &fs2_disk::calibrate::SeekPoint| serde_json::json!({ "sectors": s.distance, "ms": s.ms, "fitted_ms": s.fitted_ms, "accesses_ms": s.accesses_ms });
    let rate = |r: &fs2_disk::calibrate::RatePoint| serde_json::json!({ "sector": r.sector, "mb_s": r.mb_s, "fitted_mb_s": r.fitted_mb_s });
    let (segments, segment_bytes) = p.read_ahead();
    serde_json::json!({
        "device": device.display().to_string(),
        "has_arm": p.rotational(),
        "capacity_sectors": p.capacity_sectors(),
        "reads": c.reads,
        "seconds": c.elapsed.as_secs_f64(),
        "rpm": p.rpm(),
        "mean_seek_ms": p.mean_seek().as_millis_f64(),
        "zones": p.zones().len(),
        "cache": { "segments": segments, "segment_bytes": segment_bytes },
        "seek_residual_us": c.seek_residual_us,
        "rate_residual_percent": c.rate_residual_percent,
        "seeks": c.seeks.iter().map(seek).collect::<Vec<_>>(),
        "rates": c.rates.iter().map(rate).collect::<Vec<_>>(),
        "notes": c.notes,
        "profile": p.to_toml(),
    })
}
