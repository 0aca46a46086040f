//! Energy of a run, by each source that can tell: the drive's model, the processor's counters (RAPL), a power
//! meter's record. Sources are never added up, and one that cannot tell says why; it is not 0.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::super::control::signalled;

/// What a source says of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnergyReading {
    /// `disk model`, `disk model and rest`, `RAPL package`, `RAPL package+dram` or `meter`: what goes behind `ops/joule`.
    pub source: String,
    /// Joules; `None` where the source cannot tell.
    pub joules: Option<f64>,
    /// Why it cannot.
    pub unavailable: Option<String>,
    /// What the figure is made of, or leaves out.
    pub note: Option<String>,
}

impl EnergyReading {
    /// A figure.
    pub fn of(source: &str, joules: f64) -> EnergyReading {
        EnergyReading { source: source.into(), joules: Some(joules), unavailable: None, note: None }
    }

    /// No figure, and why.
    pub fn unavailable(source: &str, why: impl Into<String>) -> EnergyReading {
        EnergyReading { source: source.into(), joules: None, unavailable: Some(why.into()), note: None }
    }

    /// Operations to a joule; `None` without a figure, or of no energy.
    pub fn ops_per_joule(&self, ops: u64) -> Option<f64> {
        self.joules.filter(|j| *j > 0.0).map(|j| ops as f64 / j)
    }
}

/// Where Linux shows RAPL.
pub const POWERCAP: &str = "/sys/class/powercap";

/// The counter of a zone, µJ, that starts again at its range.
#[derive(Debug)]
struct Zone {
    counter: PathBuf,
    range_uj: u64,
    last_uj: u64,
    total_uj: u64,
}

impl Zone {
    fn sample(&mut self) -> io::Result<()> {
        let now = read_number(&self.counter)?;
        // Below the last one: it wrapped, once, as it is sampled often enough.
        self.total_uj += match now.checked_sub(self.last_uj) {
            Some(more) => more,
            None => now + self.range_uj.saturating_sub(self.last_uj),
        };
        self.last_uj = now;
        Ok(())
    }
}

/// The processor's energy counters, packages and their memory. They know nothing of disks.
#[derive(Debug)]
pub struct Rapl {
    zones: Vec<Zone>,
    dram: bool,
}

fn read_text(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path);
    text.map(|t| t.trim().to_owned())
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn read_number(path: &Path) -> io::Result<u64> {
    read_text(path)?.parse().map_err(|e| io::Error::other(format!("{}: no number: {e}", path.display())))
}

impl Rapl {
    /// Opens the counters below `root` (see [`POWERCAP`]) and starts at nothing. Cores and graphics are part of
    /// a package and are left out.
    ///
    /// # Errors
    /// Why they are not available, in words: not there (as in most virtual machines), or readable by root only.
    pub fn open(root: &Path) -> Result<Rapl, String> {
        let entries = fs::read_dir(root)
            .map_err(|e| format!("{}: {e} (usual in a virtual machine)", root.display()))?;
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            // intel-rapl:0 and intel-rapl:0:1, not the memory-mapped twins that count the same.
            if entry.file_name().to_str().is_some_and(|n| n.starts_with("intel-rapl:"))
                && let Ok(name) = read_text(&path.join("name"))
                && (name.starts_with("package") || name == "dram")
            {
                found.push((name, path));
            }
        }
        found.sort();
        if !found.iter().any(|(name, _)| name.starts_with("package")) {
            return Err(format!("no RAPL package below {} (usual in a virtual machine)", root.display()));
        }
        let dram = found.iter().any(|(name, _)| name == "dram");
        let mut zones = Vec::new();
        for (_, path) in found {
            let counter = path.join("energy_uj");
            let last_uj = read_number(&counter).map_err(|e| match e.kind() {
                io::ErrorKind::PermissionDenied => format!("{e}; only root may read it"),
                _ => e.to_string(),
            })?;
            let range_uj = read_number(&path.join("max_energy_range_uj")).map_err(|e| e.to_string())?;
            zones.push(Zone { counter, range_uj, last_uj, total_uj: 0 });
        }
        Ok(Rapl { zones, dram })
    }

    /// Adds what was used since the last sample. To be called at least once a minute: a counter that wrapped
    /// twice looks as if it had once.
    ///
    /// # Errors
    /// Where a counter cannot be read any more.
    pub fn sample(&mut self) -> io::Result<()> {
        self.zones.iter_mut().try_for_each(Zone::sample)
    }

    /// Joules up to the last sample.
    pub fn joules(&self) -> f64 {
        self.zones.iter().map(|z| z.total_uj as f64).sum::<f64>() / 1e6
    }

    /// What it is called in reports.
    pub fn label(&self) -> &'static str {
        if self.dram { "RAPL package+dram" } else { "RAPL package" }
    }
}

/// How often the counters are sampled during a run; they wrap after about an hour at 60 W, sooner at more.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// RAPL over a run, sampled by a thread of its own.
#[derive(Debug)]
pub struct RaplSpan {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<io::Result<Rapl>>,
}

impl RaplSpan {
    /// Begins.
    ///
    /// # Errors
    /// As [`Rapl::open`].
    pub fn begin(root: &Path) -> Result<RaplSpan, String> {
        let mut rapl = Rapl::open(root)?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("rapl".into()).spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(SAMPLE_EVERY) {
                rapl.sample()?;
            }
            rapl.sample()?;
            Ok(rapl)
        });
        Ok(RaplSpan { stop, thread: thread.map_err(|e| e.to_string())? })
    }

    /// Ends, with what was used.
    pub fn end(self) -> EnergyReading {
        let _ = self.stop.send(());
        match self.thread.join() {
            Ok(Ok(rapl)) => EnergyReading {
                note: Some("processor and memory, no disk".into()),
                ..EnergyReading::of(rapl.label(), rapl.joules())
            },
            Ok(Err(e)) => EnergyReading::unavailable("RAPL package", e.to_string()),
            Err(_) => EnergyReading::unavailable("RAPL package", "its sampling thread failed"),
        }
    }
}

/// What a power meter wrote: moments and watts.
#[derive(Clone, Debug, PartialEq)]
pub struct MeterRecord {
    /// Seconds since 1970 and watts, in order of time.
    samples: Vec<(f64, f64)>,
}

/// A gap longer than this many times the usual distance of samples is one the meter was off in. Guess.
const GAP_TIMES: f64 = 5.0;

impl MeterRecord {
    /// Reads `time,watts` lines: the time in seconds since 1970 or as `2026-11-20T20:00:00Z` (UTC), with or without a
    /// fraction. A heading, empty lines and lines that begin with # are passed over.
    ///
    /// # Errors
    /// The number of the first line that is neither, goes back in time, or has no power.
    pub fn parse(text: &str) -> Result<MeterRecord, String> {
        let mut samples: Vec<(f64, f64)> = Vec::new();
        let mut heading_allowed = true;
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |what: &str| format!("line {}: {what}: {line:?}", i + 1);
            let Some((time, watts)) = line.split_once(',') else { return Err(at("expected time,watts")) };
            let (time, watts) = (time.trim().trim_matches('"'), watts.trim().trim_matches('"'));
            let parsed = moment(time).zip(watts.parse::<f64>().ok());
            let Some((time, watts)) = parsed else {
                if heading_allowed && time.starts_with(|c: char| c.is_alphabetic()) {
                    heading_allowed = false;
                    continue;
                }
                return Err(at("expected seconds since 1970 or 2026-11-20T20:00:00Z, a comma and watts"));
            };
            heading_allowed = false;
            if !watts.is_finite() || watts < 0.0 {
                return Err(at("no power"));
            }
            if samples.last().is_some_and(|(before, _)| *before >= time) {
                return Err(at("not later than the line before"));
            }
            samples.push((time, watts));
        }
        if samples.len() < 2 {
            return Err("fewer than two samples".into());
        }
        Ok(MeterRecord { samples })
    }

    /// When the last sample was taken, seconds since 1970.
    fn last_s(&self) -> f64 {
        self.samples[self.samples.len() - 1].0
    }

    /// The usual distance of two samples, seconds.
    fn usual_s(&self) -> f64 {
        let mut distances: Vec<f64> = self.samples.windows(2).map(|w| w[1].0 - w[0].0).collect();
        distances.sort_by(f64::total_cmp);
        distances[distances.len() / 2]
    }

    /// Joules from one moment to another, seconds since 1970, by straight lines between the samples.
    ///
    /// # Errors
    /// Where the record does not cover the time, or has a hole in it.
    pub fn joules(&self, from: f64, to: f64) -> Result<f64, String> {
        let (first, last) = (self.samples[0].0, self.last_s());
        if !(from.is_finite() && to.is_finite() && from <= to) {
            return Err(format!("no time from {from} to {to}"));
        }
        if from < first || to > last {
            return Err(format!(
                "the meter recorded {first:.1} to {last:.1}, the run took {from:.1} to {to:.1}"
            ));
        }
        let usual = self.usual_s();
        let mut joules = 0.0;
        for pair in self.samples.windows(2) {
            let ((t0, w0), (t1, w1)) = (pair[0], pair[1]);
            let (a, b) = (t0.max(from), t1.min(to));
            if a >= b {
                continue;
            }
            if t1 - t0 > GAP_TIMES * usual {
                return Err(format!("the meter recorded nothing from {t0:.1} to {t1:.1}"));
            }
            let at = |t: f64| w0 + (w1 - w0) * (t - t0) / (t1 - t0);
            joules += (b - a) * (at(a) + at(b)) / 2.0;
        }
        Ok(joules)
    }
}

/// How long a meter's next sample is waited for, at most: such a distance of samples would not tell much of a run.
const SAMPLE_PATIENCE_S: f64 = 60.0;

fn unix_s(t: SystemTime) -> f64 {
    t.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// A meter's file as it is now. A line that is just being written is none yet.
fn read_meter(path: &Path) -> Result<MeterRecord, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let whole = text.rfind('\n').map_or(text.as_str(), |end| &text[..end]);
    MeterRecord::parse(whole).map_err(|e| format!("{}: {e}", path.display()))
}

/// As `read_meter`; where the meter has not told of `to` yet and may do so soon, then.
fn meter_until(path: &Path, to: f64) -> Result<MeterRecord, String> {
    loop {
        let record = read_meter(path)?;
        let patience = (GAP_TIMES * record.usual_s()).min(SAMPLE_PATIENCE_S);
        // One that is silent for longer was off, and tells no more of the run.
        let may_come = record.last_s() + patience >= to && unix_s(SystemTime::now()) < to + patience;
        if record.last_s() >= to || !may_come || signalled().is_some() {
            return Ok(record);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A meter's file, asked for one run. The sample that comes after its end is waited for: without it nobody knows of the
/// run's last part.
pub fn of_meter(path: &Path, from: SystemTime, to: SystemTime) -> EnergyReading {
    let told = meter_until(path, unix_s(to));
    match told.and_then(|record| record.joules(unix_s(from), unix_s(to))) {
        Ok(joules) => EnergyReading {
            note: Some(format!("everything behind the meter ({})", path.display())),
            ..EnergyReading::of("meter", joules)
        },
        Err(why) => EnergyReading::unavailable("meter", why),
    }
}

/// Seconds since 1970 of a number, or of a moment in UTC such as `2026-11-20T20:00:00.25Z`.
fn moment(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then_some(seconds);
    }
    let text = text.strip_suffix('Z')?;
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-');
    let mut next = || date.next()?.parse::<i64>().ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (time.next()?.parse::<u32>().ok()?, time.next()?.parse::<u32>().ok()?);
    let second = time.next()?.parse::<f64>().ok()?;
    let good = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && (0.0..61.0).contains(&second);
    // Days from the civil calendar (H. Hinnant, "chrono-compatible low-level date algorithms").
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_era = y % 400 * 365 + y % 400 / 4 - y % 400 / 100 + (153 * m + 2) / 5 + day - 1;
    let days = y / 400 * 146_097 + of_era - 719_468;
    good.then(|| days as f64 * 86_400.0 + f64::from(hour * 3600 + minute * 60) + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(root: &Path, dir: &str, name: &str, energy: u64) {
        let dir = root.join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("name"), format!("{name}\n")).unwrap();
        fs::write(dir.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(dir.join("max_energy_range_uj"), "1000000000\n").unwrap();
    }

    fn put(root: &Path, dir: &str, energy: u64) {
        fs::write(root.join(dir).join("energy_uj"), format!("{energy}\n")).unwrap();
    }

    #[test]
    fn packages_and_memory_count_and_cores_do_not() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        zone(root, "intel-rapl:0", "package-0", 100);
        zone(root, "intel-rapl:0:0", "core", 100);
        zone(root, "intel-rapl:0:1", "dram", 100);
        zone(root, "intel-rapl:1", "package-1", 100);
        zone(root, "intel-rapl-mmio:0", "package-0", 100);
        let mut rapl = Rapl::open(root).unwrap();
        assert_eq!((rapl.zones.len(), rapl.label()), (3, "RAPL package+dram"));
        for (dir, energy) in
            [("intel-rapl:0", 2_000_100), ("intel-rapl:0:0", 9_000_000), ("intel-rapl:1", 500_100)]
        {
            put(root, dir, energy);
        }
        rapl.sample().unwrap();
        assert_eq!(rapl.joules(), 2.5);
    }

    #[test]
    fn a_counter_that_starts_again_loses_nothing() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        zone(root, "intel-rapl:0", "package-0", 900_000_000);
        let mut rapl = Rapl::open(root).unwrap();
        put(root, "intel-rapl:0", 50_000_000);
        rapl.sample().unwrap();
        put(root, "intel-rapl:0", 60_000_000);
        rapl.sample().unwrap();
        assert_eq!((rapl.joules(), rapl.label()), (160.0, "RAPL package"));
    }

    #[test]
    fn what_is_not_there_is_unavailable_and_not_zero() {
        let root = tempfile::tempdir().unwrap();
        assert!(Rapl::open(&root.path().join("absent")).unwrap_err().contains("virtual machine"));
        assert!(Rapl::open(root.path()).unwrap_err().contains("no RAPL package"));
        let reading = EnergyReading::unavailable("RAPL package", "none");
        assert_eq!((reading.joules, reading.ops_per_joule(5)), (None, None));
        assert_eq!(EnergyReading::of("meter", 2.0).ops_per_joule(5), Some(2.5));
        assert_eq!(EnergyReading::of("meter", 0.0).ops_per_joule(5), None);
    }

    #[test]
    fn a_span_ends_with_the_last_sample() {
        let root = tempfile::tempdir().unwrap();
        zone(root.path(), "intel-rapl:0", "package-0", 0);
        let span = RaplSpan::begin(root.path()).unwrap();
        put(root.path(), "intel-rapl:0", 7_000_000);
        let reading = span.end();
        assert_eq!((reading.source.as_str(), reading.joules), ("RAPL package", Some(7.0)));
        let span = RaplSpan::begin(root.path()).unwrap();
        fs::remove_file(root.path().join("intel-rapl:0/energy_uj")).unwrap();
        let reading = span.end();
        assert_eq!(reading.joules, None);
        assert!(reading.unavailable.unwrap().contains("energy_uj"));
    }

    #[test]
    fn a_meter_is_integrated_by_straight_lines() {
        let record = MeterRecord::parse("time,watts\n# warm\n100,10\n101,20\n102,20\n\n103,0\n").unwrap();
        assert_eq!(record.joules(100.0, 103.0), Ok(15.0 + 20.0 + 10.0));
        assert_eq!(record.joules(100.5, 101.0), Ok((15.0 + 20.0) / 2.0 * 0.5));
        assert_eq!(record.joules(102.0, 102.0), Ok(0.0));
        assert!(record.joules(99.0, 101.0).unwrap_err().contains("the run took 99.0"));
        assert!(record.joules(102.0, 104.0).is_err());
        assert!(record.joules(102.0, 101.0).is_err());
    }

    #[test]
    fn a_hole_in_the_record_is_no_energy() {
        let record = MeterRecord::parse("1,5\n2,5\n3,5\n4,5\n60,5\n61,5\n").unwrap();
        assert!(record.joules(2.0, 60.5).unwrap_err().contains("nothing from 4.0 to 60.0"));
        assert_eq!(record.joules(1.0, 4.0), Ok(15.0));
    }

    #[test]
    fn moments_in_either_form() {
        assert_eq!(moment("1700000000.5"), Some(1_700_000_000.5));
        assert_eq!(moment("2023-11-14T22:13:20Z"), Some(1_700_000_000.0));
        assert_eq!(moment("2024-02-29 00:00:00.25Z"), Some(1_709_164_800.25));
        assert_eq!(moment("1970-01-01T00:00:00Z"), Some(0.0));
        for bad in ["", "x", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "NaN", "2023-11-14T25:13:20Z"] {
            assert_eq!(moment(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in
            [("1,5\nx,6\n", "line 2"), ("1,5\n1,6\n", "line 2"), ("1;5\n", "line 1"), ("1,-5\n", "line 1")]
        {
            assert!(MeterRecord::parse(text).unwrap_err().contains(line), "{text}");
        }
        assert!(MeterRecord::parse("t,w\nu,v\n").unwrap_err().contains("line 2"));
        assert!(MeterRecord::parse("1,5\n").is_err());
    }
}
