//! What a workload is: the face between the core, which makes room, repeats, measures and cleans up, and
//! whatever reads and writes files.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::measure::Histogram;
use super::{BenchError, Control, Site};

/// What a workload takes from the machine, at most, over all its passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Bytes of file data, without what the file system adds.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
    /// Descriptors open at a time.
    pub descriptors: u64,
    /// Bytes of its own memory, without the page cache.
    pub memory: u64,
}

/// What a workload is told when it is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// A preset's name: `ci`, `paper`, or another that its [`Entry`] has.
    pub preset: String,
    /// All it draws follows from it.
    pub seed: u64,
    /// Multiplies the numbers of files and operations; 1 is the preset's own.
    pub scale: f64,
    /// `--set NAME=VALUE`, in this order.
    pub set: Vec<(String, String)>,
    /// Passes it will be asked for at most, training included.
    pub passes: u32,
}

impl Setup {
    /// A number of files or operations at this scale, at least `least`.
    pub fn scaled(&self, n: u64, least: u64) -> u64 {
        ((n as f64 * self.scale).round() as u64).max(least)
    }

    /// A workload's parameters with `--set` applied.
    ///
    /// # Errors
    /// An unknown name, with those there are, or a value of another type.
    pub fn apply<P: Serialize + DeserializeOwned>(&self, parameters: P) -> Result<P, BenchError> {
        let internal = |e: &dyn std::fmt::Display| BenchError::Usage(format!("--set: {e}"));
        let mut table = toml::Table::try_from(parameters).map_err(|e| internal(&e))?;
        for (name, value) in &self.set {
            let Some(old) = table.get(name) else {
                let names: Vec<&str> = table.keys().map(String::as_str).collect();
                return Err(BenchError::Usage(format!(
                    "--set {name}: there is no such parameter; there are {}",
                    names.join(", ")
                )));
            };
            let text = match old {
                toml::Value::String(_) if !value.starts_with('"') => format!("v = {value:?}"),
                toml::Value::Float(_) if value.parse::<i64>().is_ok() => format!("v = {value}.0"),
                _ => format!("v = {value}"),
            };
            let parsed: toml::Table = toml::from_str(&text)
                .map_err(|_| BenchError::Usage(format!("--set {name}: '{value}' is no value")))?;
            let kind = old.type_str();
            match parsed.get("v") {
                Some(new) if new.type_str() == kind => table.insert(name.clone(), new.clone()),
                _ => return Err(BenchError::Usage(format!("--set {name}: '{value}' is no {kind}"))),
            };
            table.clone().try_into::<P>().map_err(|e| match value.parse::<i64>() {
                Ok(..0) => BenchError::Usage(format!("--set {name}: '{value}' is below 0")),
                _ => BenchError::Usage(format!(
                    "--set {name}: '{value}' is none of its values: {}",
                    e.message()
                )),
            })?;
        }
        table.try_into().map_err(|e| internal(&e))
    }
}

/// A workload as `fsbench list` knows it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it is called on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its presets, the usual one first.
    pub presets: &'static [&'static str],
    /// Makes it; nothing is written.
    pub make: fn(&Setup) -> Result<Box<dyn Workload>, BenchError>,
}

/// Something that reads and writes files in a [`Site`].
///
/// The core calls `prepare` (or `reopen`) once, then `pass` any number of times with the caches emptied in
/// between where asked for, then `verify` once. No descriptor and no mapping may stay open between two
/// calls: the file system may be mounted anew there. Each looks at [`Control::stopped`] at least
/// every few hundred operations.
pub trait Workload: Send {
    /// Its parameters, for the report: an object.
    fn parameters(&self) -> serde_json::Value;

    /// What its parameters mean: names and descriptions, for `fsbench list`.
    fn about(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// What it takes.
    fn needs(&self) -> Needs;

    /// Makes its files.
    ///
    /// # Errors
    /// The file system's.
    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError>;

    /// Takes over what `prepare` of another process with the same parameters and seed has made, before
    /// any pass.
    ///
    /// # Errors
    /// Where it cannot.
    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Err(BenchError::Refused(
            "this workload cannot take over prepared files; run it without --reuse".into(),
        ))
    }

    /// Whether a pass is a fixed amount of work (`--duration` and `--ops` then cut it short) or goes on
    /// until [`Control::over`].
    fn is_endless(&self) -> bool;

    /// How long a pass of an endless workload lasts where the user says nothing.
    fn usual_duration(&self) -> Option<Duration> {
        None
    }

    /// Runs it once.
    ///
    /// # Errors
    /// The file system's; [`BenchError::Interrupted`] where it was stopped by a signal.
    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError>;

    /// Brings its files back to what a pass begins with, before each pass and before caches are emptied. Workloads that
    /// go on with what the last pass has left need not.
    ///
    /// # Errors
    /// The file system's; [`BenchError::Interrupted`].
    fn restore(&mut self, _control: &Control) -> Result<(), BenchError> {
        Ok(())
    }

    /// Compares every file with what was written.
    ///
    /// # Errors
    /// The file system's. Damage is no error but part of the answer.
    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError>;
}

/// A kind of operation in a pass.
#[derive(Clone, Debug)]
pub struct OpClass {
    /// Such as `read` or `home page`.
    pub name: String,
    /// Whether it counts among the operations a second: what only waits does not.
    pub counted: bool,
    /// How many were done.
    pub ops: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// How long they took.
    pub latencies: Histogram,
}

impl OpClass {
    /// One with nothing in it.
    pub fn new(name: impl Into<String>) -> OpClass {
        OpClass {
            name: name.into(),
            counted: true,
            ops: 0,
            bytes_read: 0,
            bytes_written: 0,
            latencies: Histogram::new(),
        }
    }

    /// One whose operations do not count among the operations a second.
    pub fn uncounted(name: impl Into<String>) -> OpClass {
        OpClass { counted: false, ..OpClass::new(name) }
    }

    /// Counts an operation.
    pub fn add(&mut self, took: Duration, bytes_read: u64, bytes_written: u64) {
        self.ops += 1;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
        self.latencies.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &OpClass) {
        self.ops += other.ops;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.latencies.merge(&other.latencies);
    }

    /// Mean latency in ms; `None` of none.
    pub fn mean_ms(&self) -> Option<f64> {
        self.latencies.mean_ns().map(|ns| ns / 1e6)
    }
}

/// A figure the workload itself is known by.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Such as `response time`.
    pub name: String,
    /// Such as `ms`; empty for a bare number.
    pub unit: String,
    /// Its value.
    pub value: f64,
    /// Whether less is better.
    pub less_is_better: bool,
}

impl Metric {
    /// One of which less is better: a time.
    pub fn less(name: &str, unit: &str, value: f64) -> Metric {
        Metric { name: name.into(), unit: unit.into(), value, less_is_better: true }
    }

    /// One of which more is better: a rate.
    pub fn more(name: &str, unit: &str, value: f64) -> Metric {
        Metric { name: name.into(), unit: unit.into(), value, less_is_better: false }
    }
}

/// What a pass came to.
#[derive(Clone, Debug, Default)]
pub struct PassReport {
    /// From the first operation to the last one's end, warm-up excluded.
    pub elapsed: Duration,
    /// Operations by kind.
    pub classes: Vec<OpClass>,
    /// The figures it is known by, the most important one first.
    pub metrics: Vec<Metric>,
    /// Why the pass is shorter than it was meant to be: such a run is a failure.
    pub short: Option<String>,
    /// The report in the form of the tool the workload comes from, where it comes from one.
    pub native: Option<String>,
}

impl PassReport {
    /// Operations that count.
    pub fn ops(&self) -> u64 {
        self.classes.iter().filter(|c| c.counted).map(|c| c.ops).sum()
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |f: fn(&OpClass) -> u64| self.classes.iter().map(f).sum();
        (sum(|c| c.bytes_read), sum(|c| c.bytes_written))
    }

    /// Operations a second; 0 where no time passed.
    pub fn ops_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.ops() as f64 / seconds } else { 0.0 }
    }
}

/// What `verify` found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Files compared.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// How many differ.
    pub damaged: u64,
    /// The first few of them and how.
    pub examples: Vec<String>,
}

/// Damaged files named in a report.
const EXAMPLES_MAX: usize = 5;

impl Verified {
    /// Notes a file that was compared: `wrong` says how it differs.
    pub fn note(&mut self, path: &Path, bytes: u64, wrong: Option<String>) {
        self.files += 1;
        self.bytes += bytes;
        if let Some(wrong) = wrong {
            self.damaged += 1;
            if self.examples.len() < EXAMPLES_MAX {
                self.examples.push(format!("{}: {wrong}", path.display()));
            }
        }
    }

    /// Compares a file with its content; one that is missing or cannot be read is damaged.
    pub fn compare(&mut self, path: &Path, content: super::Content, len: u64) {
        let wrong = content.compare(path, len).unwrap_or_else(|e| Some(e.to_string()));
        self.note(path, len, wrong);
    }
}
