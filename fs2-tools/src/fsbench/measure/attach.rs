//! What the measuring asks for on the command line, and what it does around each pass.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::control::Progress;
use super::super::output::write_file;
use super::super::runner::{Around, Outcome, Plan, Run};
use super::super::workload::Needs;
use super::super::{BenchError, Rng, Site, preflight};
use super::advice::{Circumstances, fits_into_memory, kills, warnings};
use super::cold::{Cold, ColdMode, ColdProof};
use super::drive::{DriveSpan, RestSpan, power_called};
use super::energy::{EnergyReading, POWERCAP, RaplSpan, of_meter};
use super::environment::Environment;
use super::histogram::Histogram;
use super::memlimit::MemLimit;
use super::result::{
    ClassRecord, Document, OptionFacts, RunKind, RunRecord, SCHEMA, WorkloadFacts, more_is_better,
};
use super::series::{Series, Ticking};
use super::stats::{StopRule, Verdict};

/// Options of whatever runs passes.
#[derive(clap::Args, Clone, Debug)]
pub struct MeasureArgs {
    /// Before each run: `remount` the file system or `drop` all caches of the machine; looked at afterwards, and
    /// refused where data stayed cached. Needs root
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ColdMode::None)]
    pub cold: ColdMode,
    /// Limit the workload's memory, its page cache included, as 24m or 1g. Needs root and a memory cgroup
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub mem_limit: Option<u64>,
    /// More runs until half the 95 % interval of the first figure is below this share of its mean, as 5%
    #[arg(long, value_name = "SHARE", value_parser = parse_percent)]
    pub until_ci: Option<f64>,
    /// With --until-ci: no more runs than this
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub max_runs: u32,
    /// Write everything that was measured to this file, as one JSON document; - is standard output, and tables then go
    /// to standard error
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write what was done in each second to this file, as CSV
    #[arg(long, value_name = "FILE")]
    pub interval: Option<PathBuf>,
    /// What a power meter records meanwhile: lines of time,watts
    #[arg(long, value_name = "FILE.csv")]
    pub meter: Option<PathBuf>,
    /// No warnings about outliers, slow first runs and wide intervals; they stay in the JSON document
    #[arg(long)]
    pub quiet_warnings: bool,
}

impl MeasureArgs {
    /// As many counted runs as there can be where `runs` were asked for.
    pub fn runs_max(&self, runs: u32) -> u32 {
        self.rule(runs).runs_max
    }

    fn rule(&self, runs: u32) -> StopRule {
        match self.until_ci {
            None => StopRule { runs_min: runs, runs_max: runs, relative_half: None },
            // Of fewer than three runs an interval says little.
            Some(_) => {
                let runs_min = runs.max(3);
                StopRule { runs_min, runs_max: self.max_runs.max(runs_min), relative_half: self.until_ci }
            }
        }
    }
}

impl Default for MeasureArgs {
    fn default() -> MeasureArgs {
        MeasureArgs {
            cold: ColdMode::None,
            mem_limit: None,
            until_ci: None,
            max_runs: 30,
            json: None,
            interval: None,
            meter: None,
            quiet_warnings: false,
        }
    }
}

/// `4096`, `24m`, `1.5g`: bytes with a binary unit.
///
/// # Errors
/// What is wrong with it.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size; give one like 24m or 1g");
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(split);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
    if (1.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// `5%` or `5`: a share, 0.05.
fn parse_percent(text: &str) -> Result<f64, String> {
    if let Some(both) = fs2d::settings::either(text.trim()) {
        return Err(both);
    }
    let number: f64 = text
        .trim()
        .trim_end_matches('%')
        .trim()
        .parse()
        .map_err(|_| format!("'{text}' is no share; give one like 5%"))?;
    if number > 0.0 && number < 100.0 {
        Ok(number / 100.0)
    } else {
        Err("give more than 0 % and less than 100 %".into())
    }
}

/// What was seen around one pass.
#[derive(Clone, Debug)]
struct Seen {
    started: SystemTime,
    /// The warm-up's end, or `started` without one; `None` until then.
    counts_from: Option<SystemTime>,
    /// `None` until then.
    ended: Option<SystemTime>,
    cold: Option<ColdProof>,
    energy: Vec<EnergyReading>,
    mem_used_bytes: Option<u64>,
}

/// Does what [`MeasureArgs`] ask for around each pass.
#[derive(Debug)]
pub struct Measurer {
    args: MeasureArgs,
    cold: Cold,
    limit: Option<MemLimit>,
    rule: StopRule,
    environment: Environment,
    /// What may cache files, as it was before anything was written.
    memory_bytes: Option<u64>,
    seen: Vec<Seen>,
    rapl: Option<Result<RaplSpan, String>>,
    series: Option<Series>,
    /// Or why there is none, until the pass has ended.
    ticking: Option<Result<Ticking, BenchError>>,
    /// Whether passes begin with a warm-up.
    warms_up: bool,
}

fn refused(e: impl std::fmt::Display) -> BenchError {
    BenchError::Refused(e.to_string())
}

fn failed(e: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(e.to_string())
}

impl Measurer {
    /// Checks everything that can be before anything is written; `runs` is what the plan has.
    ///
    /// # Errors
    /// What cannot be done here, and what to do instead.
    pub fn new(args: &MeasureArgs, dir: &Path, runs: u32) -> Result<Measurer, BenchError> {
        let cold = Cold::plan(args.cold, dir).map_err(refused)?;
        let limit = args.mem_limit.map(MemLimit::new).transpose().map_err(refused)?;
        let rule = args.rule(runs);
        let series = args.interval.as_deref().map(Series::create).transpose()?;
        let environment = Environment::of(dir).map_err(BenchError::at(dir, "looking at it"))?;
        Ok(Measurer {
            cold,
            limit,
            rule,
            memory_bytes: preflight::memory_available().or(environment.memory_bytes),
            environment,
            seen: Vec::new(),
            rapl: None,
            series,
            ticking: None,
            warms_up: false,
            args: args.clone(),
        })
    }

    /// Passes begin with such a warm-up: energy is told from its end.
    pub fn with_warm_up(mut self, warmup: Duration) -> Measurer {
        self.warms_up = !warmup.is_zero();
        self
    }

    /// The document of an outcome whose passes it was around.
    pub fn document(&self, outcome: &Outcome, plan: &Plan) -> Document {
        let setup = &outcome.setup;
        let parameters = match &outcome.parameters {
            serde_json::Value::Object(all) => all
                .iter()
                .map(|(k, v)| (k.clone(), v.as_str().map_or_else(|| v.to_string(), str::to_owned)))
                .collect(),
            _ => BTreeMap::new(),
        };
        let mut document = Document {
            schema: SCHEMA,
            program: "fsbench".into(),
            // Paths may be of any bytes.
            arguments: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
            workload: WorkloadFacts {
                name: outcome.workload.clone(),
                preset: setup.preset.clone(),
                seed: setup.seed,
                parameters,
            },
            options: OptionFacts {
                scale: setup.scale,
                cold: self.args.cold.to_string(),
                train: plan.train,
                runs: plan.runs,
                runs_max: self.rule.runs_max,
                until_ci: self.args.until_ci,
                duration_s: plan.limits.duration.map(|d| d.as_secs_f64()),
                ops: plan.limits.ops,
                warmup_s: plan.limits.warmup.as_secs_f64(),
                mem_limit_bytes: self.args.mem_limit,
            },
            environment: self.environment.clone(),
            runs: outcome
                .runs
                .iter()
                .zip(&self.seen)
                .enumerate()
                .map(|(i, (r, s))| record(i, r, s, self.metered(s)))
                .collect(),
            summary: BTreeMap::new(),
            warnings: Vec::new(),
        };
        document.summarise();
        document.warnings = self.warnings(&document, outcome);
        document
    }

    /// What the meter says of a run. Asked after all of them: it tells of a moment when that is over.
    fn metered(&self, seen: &Seen) -> Option<EnergyReading> {
        let path = self.args.meter.as_deref()?;
        Some(match seen.counts_from.zip(seen.ended) {
            Some((from, to)) => of_meter(path, from, to),
            None => EnergyReading::unavailable("meter", WITHIN_WARM_UP),
        })
    }

    /// What is to be warned of before the first run of a workload with these needs. It is among the document's warnings
    /// too.
    pub fn foreseen(&self, needs: &Needs) -> Vec<String> {
        let (memory, limit) = (self.memory_bytes, self.args.mem_limit);
        let fits = memory.or(limit).and_then(|memory| fits_into_memory(needs, memory, limit, self.args.cold));
        kills(needs, limit).into_iter().chain(fits).collect()
    }

    fn warnings(&self, document: &Document, outcome: &Outcome) -> Vec<String> {
        let foreseen = self.foreseen(&outcome.needs);
        // What was asked for, and is not there.
        let meter = document.measured().flat_map(|run| &run.energy).filter(|e| e.source == "meter");
        let silent = meter.filter_map(|e| e.unavailable.as_ref()).next().map(|why| format!("--meter: {why}"));
        foreseen.into_iter().chain(silent).chain(self.seen_afterwards(document, outcome)).collect()
    }

    fn seen_afterwards(&self, document: &Document, outcome: &Outcome) -> Vec<String> {
        let (name, more) = main_figure(outcome);
        let values = document.figure(&name);
        if document.measured().count() < 2 && self.args.until_ci.is_none() {
            // One run was asked for: nothing to say of its spread.
            return Vec::new();
        }
        let learns =
            document.environment.fs2.as_ref().is_some_and(|f| f.policy != "none" && f.liveness == "active");
        let circumstances = Circumstances {
            cold: self.args.cold,
            train: document.options.train,
            warmup_s: document.options.warmup_s,
            learns,
            more_is_better: more,
            run_s: document.summary.get("elapsed_s").map_or(0.0, |s| s.mean),
        };
        warnings(&name, &values, &circumstances, &self.rule)
    }
}

/// The figure a workload is known by, and whether more of it is better.
pub fn main_figure(outcome: &Outcome) -> (String, bool) {
    let first = outcome.runs.first().and_then(|r| r.report.metrics.first());
    match first {
        Some(metric) => (figure_name(&metric.name, &metric.unit), !metric.less_is_better),
        None => ("ops_per_s".into(), more_is_better("ops_per_s")),
    }
}

/// A metric's name as a key of the document: `response time` in ms is `response_time_ms`.
fn figure_name(name: &str, unit: &str) -> String {
    let text = format!("{name} {unit}").replace('/', " per ").replace('%', " percent ");
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    words.join("_")
}

fn record(index: usize, run: &Run, seen: &Seen, metered: Option<EnergyReading>) -> RunRecord {
    let report = &run.report;
    // What was written back belongs to the run's accesses, and to its time.
    let drive = run.fs2.as_ref().map(|used| DriveSpan::of(used, used.elapsed_s, power_called(&used.drive)));
    let rest = run.rest.as_ref().map(|used| RestSpan::of(used, power_called(&used.drive)));
    let mut energy: Vec<EnergyReading> = drive.iter().map(DriveSpan::reading).collect();
    energy.extend(seen.energy.iter().cloned().chain(metered));
    let mut record = RunRecord {
        run: index as u32 + 1,
        kind: if run.training { RunKind::Train } else { RunKind::Measured },
        started_unix_s: seen.started.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()),
        elapsed_s: report.elapsed.as_secs_f64(),
        sync_s: run.sync.as_secs_f64(),
        ops: report.ops(),
        classes: report
            .classes
            .iter()
            .map(|c| ClassRecord::new(&c.name, c.ops, c.bytes_read, c.bytes_written, c.latencies.clone()))
            .collect(),
        figures: report.metrics.iter().map(|m| (figure_name(&m.name, &m.unit), m.value)).collect(),
        short: report.short.clone(),
        cold: seen.cold,
        drive,
        rest,
        energy,
        mem_used_bytes: seen.mem_used_bytes,
    };
    let with_rest = record.total_j_with_rest().map(|joules| EnergyReading {
        note: Some("disk model with the accesses of the rest after the run: copies are made then".into()),
        ..EnergyReading::of(WITH_REST, joules)
    });
    record.energy.extend(with_rest);
    record
}

/// The source of energy that has the rest after a run, too.
const WITH_REST: &str = "disk model and rest";

/// Files of the site whose caches are looked at are chosen among all where there are no more than this.
const LISTED_MAX: usize = 2000;
/// In a larger tree, among as many as so many ways down from its root lead to.
const DESCENTS: usize = 64;

/// A directory's subdirectories and files; nothing of one that cannot be read.
fn listed(dir: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    (dirs, files)
}

/// Files from all over a tree, in order: no part of it hides behind a larger one.
fn some_files(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop()
        && all.len() <= LISTED_MAX
    {
        let (below, files) = listed(&dir);
        dirs.extend(below);
        all.extend(files);
    }
    if all.len() > LISTED_MAX {
        let mut rng = Rng::new(1);
        all = (0..DESCENTS).filter_map(|_| file_below(root, &mut rng)).collect();
    }
    all.sort();
    all.dedup();
    all
}

/// A file that a way down leads to, a turn drawn at each directory; `None` where it ends in an empty one.
fn file_below(root: &Path, rng: &mut Rng) -> Option<PathBuf> {
    let mut dir = root.to_owned();
    loop {
        let (mut dirs, mut files) = listed(&dir);
        // A directory's own files are one turn among its subdirectories.
        let turn = rng.index(dirs.len() + usize::from(dirs.is_empty() || !files.is_empty()));
        if turn == dirs.len() {
            return (!files.is_empty()).then(|| files.swap_remove(rng.index(files.len())));
        }
        dir = dirs.swap_remove(turn);
    }
}

/// Why a source of energy has no figure of a run that is none.
const WITHIN_WARM_UP: &str = "the run ended within its warm-up";

impl Around for Measurer {
    fn before(&mut self, site: &Site, _training: bool) -> Result<(), BenchError> {
        let proof = match self.cold.mode() {
            ColdMode::None => None,
            _ => Some(self.cold.make(&some_files(site.root())).map_err(failed)?),
        };
        self.rapl = (!self.warms_up).then(|| RaplSpan::begin(Path::new(POWERCAP)));
        if let Some(limit) = &self.limit {
            limit.enter().map_err(failed)?;
        }
        let started = SystemTime::now();
        self.seen.push(Seen {
            started,
            counts_from: (!self.warms_up).then_some(started),
            ended: None,
            cold: proof,
            energy: Vec::new(),
            mem_used_bytes: None,
        });
        Ok(())
    }

    fn during(&mut self, progress: Arc<Progress>) {
        let run = self.seen.len();
        self.ticking = self.series.as_mut().map(|series| series.start(run, progress));
    }

    fn warmed(&mut self) {
        self.rapl = Some(RaplSpan::begin(Path::new(POWERCAP)));
        if let Some(seen) = self.seen.last_mut() {
            seen.counts_from = Some(SystemTime::now());
        }
    }

    fn after(&mut self, _site: &Site, _training: bool) -> Result<(), BenchError> {
        let ended = SystemTime::now();
        if let Some(ticking) = self.ticking.take() {
            ticking?.end()?;
        }
        let mem_used = self.limit.as_ref().and_then(MemLimit::used_bytes);
        if let Some(limit) = &self.limit {
            limit.leave().map_err(failed)?;
        }
        let Some(seen) = self.seen.last_mut() else { return Ok(()) };
        (seen.ended, seen.mem_used_bytes) = (Some(ended), mem_used);
        seen.energy.push(match self.rapl.take() {
            Some(Ok(span)) => span.end(),
            Some(Err(why)) => EnergyReading::unavailable("RAPL package", why),
            None => EnergyReading::unavailable("RAPL package", WITHIN_WARM_UP),
        });
        Ok(())
    }

    fn wants_more(&self, runs: &[Run], planned: u32) -> bool {
        let counted: Vec<&Run> = runs.iter().filter(|r| !r.training).collect();
        if self.args.until_ci.is_none() {
            return counted.len() < planned as usize;
        }
        let value = |run: &&Run| run.report.metrics.first().map_or(run.report.ops_per_second(), |m| m.value);
        let values: Vec<f64> = counted.iter().map(value).collect();
        self.rule.judge(&values) == Verdict::More
    }
}

/// Prints what several runs come to; nothing of a single one. An interval, the spread with its mark, and the
/// median and extremes, as a mean of a long tail says little.
///
/// # Errors
/// The output's.
pub fn print_summary(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    if document.measured().count() < 2 {
        return Ok(());
    }
    // Means and p99 of each class are in the document.
    let shown = || {
        let all = document.summary.iter();
        all.filter(|(name, _)| !name.ends_with("_p99_ms") && !name.ends_with("_mean_ms"))
    };
    let width = shown().map(|(k, _)| k).map(|k| k.chars().count()).max().unwrap_or(0).max(6);
    writeln!(
        out,
        "\n{:<width$}{:>5}{:>12}{:>11}{:>8}{:>12}{:>12}{:>12}",
        "figure", "n", "mean", "95 % ±", "CV %", "median", "min", "max"
    )?;
    for (name, s) in shown() {
        let cv =
            s.cv.map_or("-".into(), |cv| format!("{:.1}{}", cv * 100.0, if s.is_wild() { "†" } else { "" }));
        let half = s.ci95_half.map_or("-".into(), number);
        writeln!(
            out,
            "{name:<width$}{:>5}{:>12}{half:>11}{cv:>8}{:>12}{:>12}{:>12}",
            s.n,
            number(s.mean),
            number(s.median),
            number(s.min),
            number(s.max)
        )?;
    }
    if shown().any(|(_, s)| s.is_wild()) {
        writeln!(out, "† the runs vary by more than 40 %: read median and extremes")?;
    }
    Ok(())
}

/// Four digits that mean something.
fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 10_000.0 => format!("{v:.0}"),
        a if a >= 100.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.3}"),
        _ => format!("{v:.4}"),
    }
}

/// Writes a document, all of it or nothing.
///
/// # Errors
/// The file system's.
pub fn write_document(document: &Document, path: &Path) -> Result<(), BenchError> {
    write_file(path, &document.to_json().map_err(failed)?)
}

/// The latencies of all counted passes of an outcome, by class.
pub fn latencies(outcome: &Outcome) -> BTreeMap<String, Histogram> {
    let mut all: BTreeMap<String, Histogram> = BTreeMap::new();
    for class in outcome.runs.iter().filter(|r| !r.training).flat_map(|r| &r.report.classes) {
        all.entry(class.name.clone()).or_default().merge(&class.latencies);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::stats::Summary;
    use super::*;

    #[test]
    fn sizes_and_shares_as_people_type_them() {
        for (text, bytes) in
            [("4096", 4096), ("24m", 24 << 20), ("1.5g", 3 << 29), ("8MiB", 8 << 20), ("2kB", 2048)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "m", "-1", "5x", "1e99", "0"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_percent("5%"), Ok(0.05));
        assert_eq!(parse_percent("2.5"), Ok(0.025));
        for wrong in ["", "0", "0.05", "100%", "x", "nan"] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cold_start_is_proved_by_files_of_every_part() {
        let dir = tempfile::tempdir().unwrap();
        for (part, dirs, files) in [("a", 60, 50), ("b", 60, 50), ("c", 1, 3000)] {
            for d in 0..dirs {
                let below = dir.path().join(format!("{part}/{d}"));
                std::fs::create_dir_all(&below).unwrap();
                (0..files).for_each(|f| std::fs::write(below.join(f.to_string()), b"").unwrap());
            }
        }
        let files = some_files(dir.path());
        let of = |part: &str| files.iter().filter(|f| f.starts_with(dir.path().join(part))).count();
        assert!(["a", "b", "c"].iter().all(|part| of(part) >= 5), "{} {} {}", of("a"), of("b"), of("c"));
        // Of a small tree all are.
        assert_eq!(some_files(&dir.path().join("a/7")).len(), 50);
    }

    /// Found: on a volume mounted with `--time-scale 0.1` a drive that was busy for 12 % was for 115 %, and idled for no joule.
    #[test]
    fn a_drive_is_busy_for_a_share_of_its_own_time() {
        let used = super::super::super::fs2::DaemonUse {
            drive: "wd800-repaired (simulated)".into(),
            source: "simulated drive wd800-repaired".into(),
            elapsed_s: 30.0,
            accesses: 240,
            seek_ms: Some(7.0),
            rotation_ms: Some(4.5),
            transfer_ms: Some(1.0),
            ..Default::default()
        };
        let report =
            super::super::super::PassReport { elapsed: Duration::from_secs(3), ..Default::default() };
        let run = Run { training: false, report, sync: Duration::ZERO, fs2: Some(used), rest: None };
        let now = SystemTime::now();
        let seen = Seen {
            started: now,
            counts_from: Some(now),
            ended: None,
            cold: None,
            energy: Vec::new(),
            mem_used_bytes: None,
        };
        let record = record(0, &run, &seen, None);
        let drive = record.drive.unwrap();
        assert_eq!((record.elapsed_s, drive.busy_s, drive.busy_percent), (3.0, Some(3.0), Some(10.0)));
        // 8 W while it idles.
        assert_eq!(drive.idle_j, Some(27.0 * 8.0));
    }

    #[test]
    fn names_of_figures_are_keys() {
        assert_eq!(figure_name("response time", "ms"), "response_time_ms");
        assert_eq!(figure_name("throughput", "ops/s"), "throughput_ops_per_s");
        assert_eq!(figure_name("interactions", "/s"), "interactions_per_s");
        assert_eq!(figure_name("alpha 0.5 cached", "%"), "alpha_0_5_cached_percent");
        assert_eq!(figure_name("hits", ""), "hits");
    }

    #[test]
    fn a_document_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let document = super::super::result::tests::document(&[1.0, 2.0]);
        write_document(&document, &path).unwrap();
        let read = Document::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read, document);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let e = write_document(&document, &dir.path().join("absent/r.json")).unwrap_err();
        assert!(e.to_string().contains("absent"), "{e}");
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let e = write_document(&document, &fifo).unwrap_err();
        assert!(e.to_string().contains("fifo: not a file"), "{e}");
        // What somebody else has put beside it is nobody's to write to.
        std::fs::write(dir.path().join("r.json.new"), "mine").unwrap();
        write_document(&document, &path).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("r.json.new")).unwrap(), "mine");
    }

    #[test]
    fn the_summary_marks_what_varies() {
        let mut out = Vec::new();
        print_summary(&super::super::result::tests::document(&[1.0, 9.0, 1.2]), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("elapsed_s") && text.contains('†') && text.contains("median and extremes"),
            "{text}"
        );
        let mut out = Vec::new();
        // A mark that stands nowhere is not explained.
        let mut quiet = super::super::result::tests::document(&[1.0, 1.0, 1.0]);
        let wild = Summary::of(&[1.0, 9.0, 1.2]).unwrap();
        quiet.summary.insert("read_p99_ms".into(), wild);
        let mut out_of_sight = Vec::new();
        print_summary(&quiet, &mut out_of_sight).unwrap();
        let said = String::from_utf8(out_of_sight).unwrap();
        assert!(!said.is_empty() && !said.contains('†'), "{said}");
        print_summary(&super::super::result::tests::document(&[1.0]), &mut out).unwrap();
        assert!(out.is_empty());
    }
}
