//! Scripts as workloads of the core, and the personalities written in the language.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::measure::Histogram;
use super::super::{
    BenchError, Control, Entry, Metric, Needs, OpClass, PassReport, Setup, Verified, Workload,
};
use super::{Ended, Event, Plan, RunError, RunOptions, RunReport, Script, Site, filebench};
use crate::fsbench::control::ended_within_warmup;
use crate::fsbench::site;

/// A personality: its script, and what its presets set in it.
struct Personality {
    name: &'static str,
    source: &'static str,
    presets: &'static [(&'static str, &'static [(&'static str, &'static str)])],
    /// The variable with the number of its files: `--scale` multiplies it.
    files: &'static str,
}

/// Sizes: `stock` are FileBench's own; `thesis` the table 3.2 of Sehgal's thesis; `ci` ours, for two cores and a volume
/// of 1 GiB.
const PERSONALITIES: [Personality; 6] = [
    Personality {
        name: "webserver",
        source: include_str!("personalities/webserver.f"),
        presets: &[
            ("ci", &[("files", "2000"), ("filesize", "32k"), ("threads", "10"), ("seconds", "20")]),
            (
                "thesis",
                // 20,000 files of 32 KB, 3.3 deep on average: ln 20000 / ln 20.
                &[("files", "20000"), ("filesize", "32k"), ("threads", "100"), ("seconds", "600")],
            ),
            ("stock", &[]),
        ],
        files: "files",
    },
    Personality {
        name: "fileserver",
        source: include_str!("personalities/fileserver.f"),
        presets: &[
            ("ci", &[("files", "500"), ("filesize", "64k"), ("threads", "8"), ("seconds", "20")]),
            (
                "thesis",
                // 50,000 files of 256 KB, 3.6 deep: ln 50000 / ln 20.
                &[("files", "50000"), ("filesize", "256k"), ("threads", "100"), ("seconds", "600")],
            ),
            ("stock", &[]),
        ],
        files: "files",
    },
    Personality {
        name: "varmail",
        source: include_str!("personalities/varmail.f"),
        presets: &[
            ("ci", &[("files", "1000"), ("threads", "8"), ("seconds", "20")]),
            // 50,000 files, 0.8 deep: ln 50000 / ln 1000000.
            ("thesis", &[("files", "50000"), ("threads", "100"), ("seconds", "600")]),
            ("stock", &[]),
        ],
        files: "files",
    },
    Personality {
        name: "oltp",
        source: include_str!("personalities/oltp.f"),
        presets: &[
            (
                "ci",
                &[
                    ("files", "4"),
                    ("filesize", "16m"),
                    ("shadows", "20"),
                    ("writers", "2"),
                    ("usermode", "20000"),
                    ("seconds", "20"),
                ],
            ),
            ("thesis", &[("filesize", "512m"), ("seconds", "600")]),
            ("stock", &[]),
        ],
        files: "files",
    },
    Personality {
        name: "webproxy",
        source: include_str!("personalities/webproxy.f"),
        presets: &[("ci", &[("files", "1000"), ("threads", "10"), ("seconds", "20")]), ("stock", &[])],
        files: "files",
    },
    Personality {
        name: "videoserver",
        source: include_str!("personalities/videoserver.f"),
        presets: &[
            (
                "ci",
                &[
                    ("active", "8"),
                    ("passive", "12"),
                    ("filesize", "8m"),
                    ("threads", "6"),
                    ("rate", "24"),
                    ("interval", "2"),
                    ("seconds", "20"),
                ],
            ),
            ("stock", &[]),
        ],
        files: "active",
    },
];

macro_rules! entry {
    ($i:literal, $name:literal, $summary:literal, [$($preset:literal),+]) => {
        Entry {
            name: $name,
            summary: $summary,
            source: "FileBench 1.5; Sehgal et al., FAST 2010 and thesis",
            presets: &[$($preset),+],
            make: |setup| personality(&PERSONALITIES[$i], setup),
        }
    };
}

/// The personalities for the core's list.
pub fn entries() -> Vec<Entry> {
    vec![
        entry!(
            0,
            "webserver",
            "ten files opened, read whole and closed, then a line of the log",
            ["ci", "thesis", "stock"]
        ),
        entry!(
            1,
            "fileserver",
            "files created, written, appended to, read, deleted",
            ["ci", "thesis", "stock"]
        ),
        entry!(2, "varmail", "mails delivered with fsync, read and deleted", ["ci", "thesis", "stock"]),
        entry!(3, "oltp", "a database: readers, asynchronous writers, a log", ["ci", "thesis", "stock"]),
        entry!(4, "webproxy", "a cache: one file replaced for five read", ["ci", "stock"]),
        entry!(5, "videoserver", "streams at a constant rate, and new films", ["ci", "stock"]),
    ]
}

fn personality(personality: &Personality, setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    let Some((_, preset)) = personality.presets.iter().find(|(name, _)| *name == setup.preset) else {
        return Err(BenchError::Usage(format!("{} has no preset '{}'", personality.name, setup.preset)));
    };
    let file = format!("{}.f", personality.name);
    let script = Script::parse(&file, personality.source).map_err(|e| BenchError::Failed(e.to_string()))?;
    let mut set: Vec<(String, String)> = preset.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    if setup.scale != 1.0 {
        let plain = script.plan(&set).map_err(|e| BenchError::Failed(e.to_string()))?;
        if let Some(files) = plain.variable(personality.files) {
            set.push((personality.files.into(), setup.scaled(files, 2).to_string()));
        }
    }
    // Its files are scaled already, by their variable.
    made(script, set, setup, 1.0, false)
}

/// A workload out of a script's text. `name` is shown before the places in errors.
///
/// `system` says whether its `system` statements are carried out.
///
/// # Errors
/// What is wrong with it, and where.
pub fn of_file(
    name: &str,
    source: &str,
    setup: &Setup,
    system: bool,
) -> Result<Box<dyn Workload>, BenchError> {
    let script = Script::parse(name, source).map_err(|e| BenchError::Refused(e.to_string()))?;
    made(script, Vec::new(), setup, setup.scale, system)
}

fn made(
    script: Script,
    mut set: Vec<(String, String)>,
    setup: &Setup,
    scale: f64,
    system: bool,
) -> Result<Box<dyn Workload>, BenchError> {
    set.extend(setup.set.iter().map(|(name, value)| (name.trim_start_matches('$').into(), value.clone())));
    let plan = script.plan(&set).map_err(|e| match e.what.contains("--set") {
        true => BenchError::Usage(e.what),
        false => BenchError::Refused(e.to_string()),
    })?;
    let plan = if scale == 1.0 { plan } else { plan.scaled(scale) };
    Ok(Box::new(Scripted { plan, seed: setup.seed, system, began: Instant::now(), site: None, runs: 0 }))
}

struct Scripted {
    plan: Plan,
    seed: u64,
    system: bool,
    began: Instant,
    site: Option<Site>,
    runs: u32,
}

impl Scripted {
    fn options<'a>(&self, interrupted: &'a (dyn Fn() -> bool + Sync)) -> RunOptions<'a> {
        RunOptions { seed: self.seed, system: self.system, interrupted, ..RunOptions::default() }
    }

    fn site(&self) -> Result<&Site, BenchError> {
        self.site.as_ref().ok_or_else(|| BenchError::Failed("its files were not made".into()))
    }

    fn make(&mut self, root: &Path, control: &Control) -> Result<(), BenchError> {
        let interrupted = || control.stopped();
        self.site = Some(self.plan.create(root, &self.options(&interrupted)).map_err(failed(control))?);
        Ok(())
    }
}

/// A run's error in the core's words. A signal came first where there was one.
fn failed(control: &Control) -> impl FnOnce(RunError) -> BenchError {
    let interrupted = control.check().err();
    move |e| interrupted.unwrap_or_else(|| BenchError::Failed(with_sources(&e)))
}

fn with_sources(e: &dyn std::error::Error) -> String {
    let mut out = e.to_string();
    let mut source = e.source();
    while let Some(e) = source {
        out = format!("{out}: {e}");
        source = e.source();
    }
    out
}

impl Workload for Scripted {
    fn parameters(&self) -> serde_json::Value {
        let variables = self.plan.variables().map(|(name, value)| (name.to_owned(), value.into()));
        serde_json::Value::Object(variables.collect())
    }

    fn needs(&self) -> Needs {
        let needs = self.plan.needs(self.seed);
        Needs {
            bytes: needs.bytes,
            inodes: needs.inodes,
            descriptors: needs.descriptors,
            memory: needs.memory_bytes,
        }
    }

    fn prepare(&mut self, site: &site::Site, control: &Control) -> Result<(), BenchError> {
        self.make(site.root(), control)
    }

    fn reopen(&mut self, site: &site::Site) -> Result<(), BenchError> {
        self.site = Some(self.plan.adopt(site.root(), &self.options(&|| false)));
        Ok(())
    }

    fn restore(&mut self, control: &Control) -> Result<(), BenchError> {
        if self.runs == 0 {
            return Ok(());
        }
        let interrupted = || control.stopped();
        self.site()?.restore(&self.options(&interrupted)).map_err(failed(control))
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn usual_duration(&self) -> Option<Duration> {
        Some(self.plan.runtime())
    }

    fn pass(&mut self, _site: &site::Site, control: &Control) -> Result<PassReport, BenchError> {
        /// Longer than anyone waits for a number of operations.
        const FOREVER: Duration = Duration::from_secs(365 * 86_400);
        self.runs += 1;
        let (limits, interrupted, progress) = (control.limits(), || control.stopped(), control.progress());
        let tell = |ops, read, written| {
            use std::sync::atomic::Ordering::Relaxed;
            progress.ops.store(ops, Relaxed);
            progress.bytes_read.store(read, Relaxed);
            progress.bytes_written.store(written, Relaxed);
        };
        let options = RunOptions {
            runtime: Some(limits.duration.unwrap_or(if limits.ops.is_some() {
                FOREVER
            } else {
                self.plan.runtime()
            })),
            ops: limits.ops,
            // From the pass's beginning, as for other workloads: what is measured around it begins anew then.
            warmup: match limits.warmup.is_zero() {
                true => Duration::ZERO,
                false => limits.warmup.saturating_sub(control.elapsed()).max(Duration::from_nanos(1)),
            },
            // Each run draws differently, from the one seed.
            seed: self.seed.wrapping_add(u64::from(self.runs - 1) << 48),
            progress: &tell,
            ..self.options(&interrupted)
        };
        let mut native = String::new();
        let mut sink = |event| match event {
            Event::Said(text) => {
                native.push_str(&format!("{:5.3}: {text}\n", self.began.elapsed().as_secs_f64()))
            }
            Event::Counted(report) => native.push_str(&filebench(&report, self.began.elapsed())),
        };
        let report = self.site()?.run(&options, &mut sink).map_err(failed(control))?;
        native.push_str(&filebench(&report, self.began.elapsed()));
        Ok(pass_report(&report, native))
    }

    fn verify(&mut self, _site: &site::Site, control: &Control) -> Result<Verified, BenchError> {
        let interrupted = || control.stopped();
        Ok(self.site()?.verify(&self.options(&interrupted)))
    }
}

fn pass_report(report: &RunReport, native: String) -> PassReport {
    let class = |op: &super::OpReport| OpClass {
        name: op.name.clone(),
        counted: matches!(op.class, super::OpClass::Io | super::OpClass::Aio),
        ops: op.count,
        bytes_read: if op.writes { 0 } else { op.bytes },
        bytes_written: if op.writes { op.bytes } else { 0 },
        latencies: op.latency.clone(),
    };
    let mut all = Histogram::new();
    report.counted().for_each(|op| all.merge(&op.latency));
    let ops = report.counted().map(|op| op.count).sum::<u64>();
    let rate = ops as f64 / report.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut metrics = vec![Metric::more("operations", "1/s", rate)];
    metrics.extend(all.mean_ns().map(|ns| Metric::less("latency", "ms", ns / 1e6)));
    PassReport {
        elapsed: report.elapsed,
        classes: report.ops.iter().map(class).collect(),
        metrics,
        short: match (&report.ended, report.within_warmup) {
            (_, Some(took)) => Some(ended_within_warmup(took)),
            (Some(Ended::AllDone), None) if ops == 0 => Some("no thread had anything to do".into()),
            _ => None,
        },
        native: Some(native),
    }
}
