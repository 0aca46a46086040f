//! Whether a profile is still a drive's.

use fs2_block::{Nanos, Op, Sector};

use super::bench::Bench;
use super::robust::median;
use super::rotation::turn;
use super::{CAPACITY_MIN, Options, Oracle, Refused};
use crate::disk::Disk;
use crate::profile::DriveProfile;

/// How far a drive is from a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Root mean square of the horizontal distance between the distributions of measured and modelled access times,
    /// milliseconds: the demerit figure of Ruemmler and Wilkes (1994).
    pub demerit_ms: f64,
    /// Mean measured access time, milliseconds.
    pub mean_ms: f64,
    /// Turns a minute, measured; `None` where none are to be seen.
    pub rpm: Option<f64>,
    /// What does not fit, in sentences; empty: the profile is this drive's.
    pub faults: Vec<String>,
    /// Reads asked for.
    pub reads: u64,
}

impl Verdict {
    /// Whether the profile is this drive's.
    pub fn fits(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Share of the mean access time that the demerit may be. An arm that is a quarter slower makes 10 % and more
/// (`tests/it/calibrate.rs`).
const DEMERIT_MAX: f64 = 0.06;
/// A tenth of a millisecond is within what two machines differ by.
const DEMERIT_FLOOR_MS: f64 = 0.1;
/// Sectors of a long read, 512 KiB: most of its time is the rate's, also of a drive that reads 550 MB/s.
const LONG: u32 = 1024;
/// Share that a long read may be off by. Guess: a SATA and an NVMe drive differ by six times.
const LONG_OFF_MAX: f64 = 0.25;
/// Quartz is better than this by far, and belts are gone.
const RPM_OFF_MAX: f64 = 0.003;

/// Compares a drive with a profile: speed of rotation, and the times of reads anywhere and near the last.
///
/// # Errors
/// [`Refused`], as [`super::calibrate`].
///
/// # Panics
/// As [`super::calibrate`].
pub fn check(oracle: &mut dyn Oracle, options: Options, profile: &DriveProfile) -> Result<Verdict, Refused> {
    assert!((1..=64).contains(&options.grain), "a grain of {} sectors", options.grain);
    if options.capacity_sectors < CAPACITY_MIN {
        return Err(Refused::TooSmall(options.capacity_sectors));
    }
    let mut bench = Bench::new(oracle, options);
    bench.progress("whether there is an arm", 0.0);
    let mut faults = Vec::new();
    if options.capacity_sectors > profile.capacity_sectors() {
        faults.push(format!(
            "it has {} sectors, the profile {}",
            options.capacity_sectors,
            profile.capacity_sectors()
        ));
    }
    let arm = bench.scattered(40)?.varies();
    if arm != profile.rotational() {
        let (is, says) = if arm { ("has an arm", "has none") } else { ("has no arm", "has one") };
        faults.push(format!("the drive {is}, that of the profile {says}"));
    }
    let mut rpm = None;
    if let (true, Some(said)) = (arm, profile.rpm()) {
        bench.progress("rotation", 0.1);
        rpm = turn(&mut bench)?.map(|t| 60e6 / t.us);
        match rpm {
            None => faults.push("no speed of rotation explains its times".into()),
            Some(is) if (is / said - 1.0).abs() > RPM_OFF_MAX => {
                faults.push(format!("it turns at {is:.0} rpm, the profile says {said:.0}"));
            }
            Some(_) => {}
        }
    }
    bench.progress("access times", 0.4);
    let times = both(&mut bench, profile)?;
    let mut compare = |what: &str, chosen: &[Both]| {
        let mean = chosen.iter().map(|b| b.measured).sum::<f64>() / chosen.len().max(1) as f64 / 1000.0;
        let off = demerit(chosen) / 1000.0;
        // Waits for the platter are drawn anew: their distributions differ by a turn over the root of their number.
        let chance = 0.5 * profile.turn().as_millis_f64() / (chosen.len().max(1) as f64).sqrt();
        if off > DEMERIT_MAX * mean + DEMERIT_FLOOR_MS + chance {
            faults.push(format!("access times of {what} are {off:.2} ms off, of {mean:.2} ms in the mean"));
        }
        (off, mean)
    };
    let (anywhere, near): (Vec<Both>, Vec<Both>) = times.iter().partition(|b| b.anywhere);
    compare("reads anywhere", &anywhere);
    compare("reads near the last", &near);
    let (demerit_ms, mean_ms) = compare("all reads", &times);
    if !arm && !profile.rotational() {
        // Short reads of all of them take about as long.
        let (is, said) = long(&mut bench, profile)?;
        if (is - said).abs() > LONG_OFF_MAX * said + DEMERIT_FLOOR_MS {
            faults.push(format!("reads of {} KiB take {is:.2} ms, by the profile {said:.2}", LONG / 2));
        }
    }
    bench.progress("done", 1.0);
    Ok(Verdict { demerit_ms, mean_ms, rpm, faults, reads: bench.reads })
}

/// A read on the drive and on a model of the profile; microseconds.
#[derive(Clone, Copy)]
struct Both {
    anywhere: bool,
    measured: f64,
    modelled: f64,
}

fn both(bench: &mut Bench<'_>, profile: &DriveProfile) -> Result<Vec<Both>, Refused> {
    let mut model = Disk::new(profile.clone());
    let end = bench.capacity().min(profile.capacity_sectors()).saturating_sub(4096);
    let (mut at, mut last) = (bench.place(0, end), None);
    let mut out = Vec::new();
    for i in 0..bench.share(600, 200) {
        at = match i % 2 {
            // Anywhere; a twentieth of the drive or less away.
            0 => bench.place(0, end),
            _ => bench.place(at.saturating_sub(end / 20), (at + end / 20).min(end)),
        };
        let sample = bench.read(at)?;
        // The same pauses, each after its own end.
        let pause = last.map_or(0.0, |end: f64| sample.begin - end);
        last = Some(sample.end);
        let began = model.free_at() + Nanos((pause * 1000.0) as u64);
        let service = model.serve(began, Op::Read, Sector(at), bench.options.grain);
        let modelled = service.end().since(began).as_millis_f64() * 1000.0;
        out.push(Both { anywhere: i % 2 == 0, measured: sample.took(), modelled });
    }
    Ok(out)
}

/// What a long read takes, measured and modelled; milliseconds.
fn long(bench: &mut Bench<'_>, profile: &DriveProfile) -> Result<(f64, f64), Refused> {
    let mut times = Vec::new();
    for _ in 0..bench.share(40, 11) {
        let at = bench.place(0, bench.capacity() - u64::from(LONG));
        times.push(bench.read_long(at, LONG.into())?.took());
    }
    let modelled = Disk::new(profile.clone()).serve(Nanos(0), Op::Read, Sector(0), LONG).total();
    Ok((median(&times) / 1000.0, modelled.as_millis_f64()))
}

/// As [`Verdict::demerit_ms`]; the twentieth part that is longest of each side is left out, for a machine that did
/// something else is not the drive's.
fn demerit(times: &[Both]) -> f64 {
    let (mut a, mut b): (Vec<f64>, Vec<f64>) = times.iter().map(|t| (t.measured, t.modelled)).unzip();
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let kept = a.len() - a.len() / 20;
    let sum: f64 = a.iter().zip(&b).take(kept).map(|(a, b)| (a - b) * (a - b)).sum();
    (sum / kept.max(1) as f64).sqrt()
}
