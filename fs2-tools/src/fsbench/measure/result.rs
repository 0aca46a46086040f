//! The document a benchmark leaves: everything it was told, where it ran, every run, and what is made of them.
//!
//! `docs/fsbench.md` describes it. Fields are added, never renamed or given another meaning, as long as
//! [`SCHEMA`] stays; readers pass over what they do not know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cold::ColdProof;
use super::drive::{DriveSpan, RestSpan};
use super::energy::EnergyReading;
use super::environment::Environment;
use super::histogram::{Histogram, Percentiles};
use super::stats::Summary;

/// The version of the document's form.
pub const SCHEMA: u32 = 1;

/// What one `fsbench run` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Always `fsbench`.
    pub program: String,
    /// The arguments it was given.
    pub arguments: Vec<String>,
    /// What was run.
    pub workload: WorkloadFacts,
    /// How.
    pub options: OptionFacts,
    /// Where.
    pub environment: Environment,
    /// Every run, those for training first, in order.
    pub runs: Vec<RunRecord>,
    /// Over the measured runs: `elapsed_s`, `ops_per_s`, and what else all of them have (see
    /// [`Document::figures`]).
    pub summary: BTreeMap<String, Summary>,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadFacts {
    /// Its name, or the file's.
    pub name: String,
    /// `ci`, `paper`, `stock` or another.
    pub preset: String,
    /// Of all its random numbers.
    pub seed: u64,
    /// Its parameters, as text.
    pub parameters: BTreeMap<String, String>,
}

/// The options that a figure depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OptionFacts {
    /// Size relative to the preset's.
    pub scale: f64,
    /// `none`, `remount` or `drop`.
    pub cold: String,
    /// Runs before those that count.
    pub train: u32,
    /// Measured runs asked for.
    pub runs: u32,
    /// At most, with `--until-ci`.
    pub runs_max: u32,
    /// The interval asked for, half of it as a share of the mean.
    pub until_ci: Option<f64>,
    /// Seconds a run was to take; `None`: as long as its work does.
    pub duration_s: Option<f64>,
    /// Operations a run was to do.
    pub ops: Option<u64>,
    /// Seconds at the start of a run that do not count.
    pub warmup_s: f64,
    /// Memory for the workload's processes with their page cache, bytes; `None`: all of the machine's.
    pub mem_limit_bytes: Option<u64>,
}

/// Whether a run counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// So that what learns has learnt.
    Train,
    /// It counts.
    Measured,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// From 1, training included: the paper's 1st, 2nd, 7th.
    pub run: u32,
    /// Whether it counts.
    pub kind: RunKind,
    /// When it began, seconds since 1970.
    pub started_unix_s: f64,
    /// From its first operation to its last, warm-up excluded, seconds.
    pub elapsed_s: f64,
    /// How long writing back took that the run left behind, seconds.
    pub sync_s: f64,
    /// Operations, of all classes that count as such.
    pub ops: u64,
    /// By class.
    pub classes: Vec<ClassRecord>,
    /// Figures of the workload's own, such as `interactions_per_s`.
    pub figures: BTreeMap<String, f64>,
    /// Why it is shorter than it was meant to be: such a run is a failure.
    pub short: Option<String>,
    /// What was seen of the cold start.
    pub cold: Option<ColdProof>,
    /// What the drive did, where the directory lies on FS2.
    pub drive: Option<DriveSpan>,
    /// What it did in the rest after the run, where there was one that was looked at.
    pub rest: Option<RestSpan>,
    /// Energy by source; never to be added up.
    pub energy: Vec<EnergyReading>,
    /// How much the processes' cgroup held at the end, page cache included, bytes.
    pub mem_used_bytes: Option<u64>,
}

/// The operations of one class in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassRecord {
    /// Such as `read`.
    pub name: String,
    /// How many.
    pub ops: u64,
    /// Bytes read by them.
    pub bytes_read: u64,
    /// Bytes written by them.
    pub bytes_written: u64,
    /// Latency; `None` of no operation.
    pub latency: Option<Percentiles>,
    /// The same whole, for adding up.
    pub histogram: Histogram,
}

impl ClassRecord {
    /// With what is told of its latencies.
    pub fn new(
        name: &str,
        ops: u64,
        bytes_read: u64,
        bytes_written: u64,
        histogram: Histogram,
    ) -> ClassRecord {
        ClassRecord {
            name: name.into(),
            ops,
            bytes_read,
            bytes_written,
            latency: histogram.percentiles(),
            histogram,
        }
    }
}

impl RunRecord {
    /// Operations a second; `None` of a run without length.
    pub fn ops_per_s(&self) -> Option<f64> {
        (self.elapsed_s > 0.0).then(|| self.ops as f64 / self.elapsed_s)
    }

    /// Energy of the drive with the accesses of the rest after the run, joules: those that made its copies are among them.
    pub fn total_j_with_rest(&self) -> Option<f64> {
        Some(self.drive.as_ref()?.total_j()? + self.rest.as_ref()?.access_j?)
    }

    /// Blocks copied, in the rest after the run too.
    pub fn copies_with_rest(&self) -> Option<u64> {
        Some(self.drive.as_ref()?.copies_written + self.rest.as_ref()?.copies_written)
    }

    /// Its figures by name, those it has.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        let mut out = self.figures.clone();
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value.filter(|v| v.is_finite()) {
                out.insert(name.to_owned(), value);
            }
        };
        put("elapsed_s", Some(self.elapsed_s));
        put("ops_per_s", self.ops_per_s());
        for class in &self.classes {
            put(&format!("{}_mean_ms", class.name), class.latency.map(|l| l.mean_ns / 1e6));
            put(&format!("{}_p99_ms", class.name), class.latency.map(|l| l.p99_ns as f64 / 1e6));
        }
        if let Some(drive) = &self.drive {
            put("t_a_ms", drive.t_a_ms);
            put("t_s_ms", drive.t_s_ms);
            put("t_r_ms", drive.t_r_ms);
            put("t_t_ms", drive.t_t_ms);
            put("busy_percent", drive.busy_percent);
            put("access_mj", drive.access_mj());
        }
        for energy in &self.energy {
            let source = energy.source.replace(' ', "_").to_lowercase();
            put(&format!("joules_{source}"), energy.joules);
            put(&format!("ops_per_joule_{source}"), energy.ops_per_joule(self.ops));
        }
        out
    }
}

/// Whether more of a figure is better, by its name.
pub fn more_is_better(figure: &str) -> bool {
    figure.ends_with("_per_s") || figure.starts_with("ops_per_joule")
}

impl Document {
    /// The measured runs.
    pub fn measured(&self) -> impl Iterator<Item = &RunRecord> {
        self.runs.iter().filter(|r| r.kind == RunKind::Measured)
    }

    /// A figure of each measured run, in order; empty where one of them lacks it.
    pub fn figure(&self, name: &str) -> Vec<f64> {
        let all: Option<Vec<f64>> = self.measured().map(|r| r.figures().get(name).copied()).collect();
        all.unwrap_or_default()
    }

    /// The figures that every measured run has, by name.
    pub fn figures(&self) -> BTreeMap<String, Vec<f64>> {
        let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for run in self.measured() {
            for (name, value) in run.figures() {
                all.entry(name).or_default().push(value);
            }
        }
        let runs = self.measured().count();
        all.retain(|_, values| values.len() == runs);
        all
    }

    /// Fills in [`Document::summary`] from the runs.
    pub fn summarise(&mut self) {
        self.summary =
            self.figures().into_iter().filter_map(|(name, v)| Some((name, Summary::of(&v)?))).collect();
    }

    /// The latencies of a class over all measured runs.
    pub fn latency(&self, class: &str) -> Histogram {
        let mut sum = Histogram::new();
        self.measured()
            .flat_map(|r| &r.classes)
            .filter(|c| c.name == class)
            .for_each(|c| sum.merge(&c.histogram));
        sum
    }

    /// One JSON document, with a newline at its end.
    ///
    /// # Errors
    /// Where a figure is not finite, which JSON cannot say.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it; a newer schema is named.
    pub fn from_json(text: &str) -> Result<Document, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(|e| format!("no fsbench document: {e}"))?;
        if head.schema != SCHEMA {
            return Err(format!("written with schema {}, this program reads {SCHEMA}", head.schema));
        }
        serde_json::from_str(text).map_err(|e| format!("no fsbench document: {e}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A document with measured runs of these lengths.
    pub(crate) fn document(elapsed: &[f64]) -> Document {
        let run = |(i, elapsed_s): (usize, &f64)| {
            let mut reads = Histogram::new();
            (1..=100).for_each(|n| reads.record(n * 10_000));
            RunRecord {
                run: i as u32 + 1,
                kind: RunKind::Measured,
                started_unix_s: 1e9 + i as f64 * 100.0,
                elapsed_s: *elapsed_s,
                sync_s: 0.0,
                ops: 100,
                classes: vec![ClassRecord::new("read", 100, 1 << 20, 0, reads)],
                figures: BTreeMap::new(),
                short: None,
                cold: None,
                drive: None,
                rest: None,
                energy: vec![
                    EnergyReading::of("meter", 50.0),
                    EnergyReading::unavailable("RAPL package", "a guest"),
                ],
                mem_used_bytes: None,
            }
        };
        let mut document = Document {
            schema: SCHEMA,
            program: "fsbench".into(),
            arguments: vec!["fsbench".into(), "run".into()],
            workload: WorkloadFacts {
                name: "cvs-update".into(),
                preset: "ci".into(),
                seed: 1,
                ..WorkloadFacts::default()
            },
            options: OptionFacts {
                scale: 1.0,
                cold: "none".into(),
                runs: elapsed.len() as u32,
                ..OptionFacts::default()
            },
            environment: Environment::default(),
            runs: elapsed.iter().enumerate().map(run).collect(),
            summary: BTreeMap::new(),
            warnings: Vec::new(),
        };
        document.summarise();
        document
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let document = document(&[2.0, 2.5, 2.25]);
        let text = document.to_json().unwrap();
        assert_eq!(Document::from_json(&text).unwrap(), document);
        // No key twice: a strict reader takes it.
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["summary"]["elapsed_s"]["median"], 2.25);
        assert_eq!(value["summary"]["ops_per_joule_meter"]["mean"], 2.0);
        assert!(value["summary"].get("joules_rapl_package").is_none(), "unavailable is not 0");
        assert_eq!(value["runs"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn training_runs_do_not_count() {
        let mut document = document(&[9.0, 2.0, 2.0]);
        document.runs[0].kind = RunKind::Train;
        document.summarise();
        assert_eq!(document.summary["elapsed_s"].n, 2);
        assert_eq!(document.figure("elapsed_s"), [2.0, 2.0]);
        assert_eq!(document.latency("read").count(), 200);
    }

    #[test]
    fn a_figure_that_a_run_lacks_has_no_summary() {
        let mut document = document(&[2.0, 2.0]);
        document.runs[1].energy.clear();
        document.summarise();
        assert!(!document.summary.contains_key("joules_meter"));
        assert!(document.figure("joules_meter").is_empty());
    }

    #[test]
    fn other_documents_are_refused_with_their_schema() {
        let text = document(&[1.0]).to_json().unwrap().replacen("\"schema\": 1", "\"schema\": 9", 1);
        assert!(Document::from_json(&text).unwrap_err().contains("schema 9"));
        assert!(Document::from_json("{}").is_err());
        assert!(Document::from_json("nonsense").is_err());
    }

    #[test]
    fn which_way_is_better() {
        assert!(more_is_better("ops_per_s") && more_is_better("ops_per_joule_meter"));
        assert!(!more_is_better("elapsed_s") && !more_is_better("t_a_ms") && !more_is_better("joules_meter"));
    }
}
