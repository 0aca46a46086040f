//! What a sweep is to do: traces times axes, each combination a `run` of its own.
//!
//! Invariants:
//!
//! - P1: the cells of a plan and their order depend on its text alone, not on the machine: that is what lets
//!   shards run apart.
//! - P2: every cell is a command line that `run` takes; the plan is refused as a whole otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::Deserialize;
use toml::{Table, Value};

use crate::replay::digest::Digests;
use crate::replay::{Failure, run};

/// Cells of a plan at most: more is a mistake in the plan.
const CELLS_MAX: usize = 100_000;

/// What a sweep decides itself.
const NOT_IN_A_PLAN: [&str; 4] = ["json", "html", "help", "version"];

/// Options whose values are files, beside the plan unless they say otherwise.
const FILES: [&str; 2] = ["free-map", "train"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    options: Table,
    #[serde(default)]
    axes: Table,
    trace: Vec<Trace>,
}

#[derive(Deserialize)]
struct Trace {
    name: String,
    files: Vec<String>,
    #[serde(flatten)]
    options: Table,
}

/// `run`'s command line.
#[derive(Parser, Debug)]
#[command(name = "run", no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    args: run::Args,
}

/// What names a cell: the trace's name, and every option with its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Name {
    pub(super) trace: String,
    pub(super) options: BTreeMap<String, String>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.trace)?;
        self.options.iter().try_for_each(|(option, value)| write!(f, " {option}={value}"))
    }
}

/// What a result was made from: `version`, a digest of that program's `sources` (two builds of a version may differ), and by what names
/// files (an option, or `trace`) the XXH3-128 of each.
pub(super) type Inputs = BTreeMap<String, Vec<String>>;

/// One run of a trace under one combination of options.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) name: Name,
    pub(super) args: run::Args,
    /// What it reads: a name each, in order, and where that is.
    files: Vec<(String, PathBuf)>,
}

/// All cells, in order, and the names of the axes.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) cells: Vec<Cell>,
    pub(super) axes: Vec<String>,
}

/// As the command line says it; `None` leaves the option out.
fn words(option: &str, value: &Value) -> Result<Option<String>, String> {
    Ok(Some(match value {
        Value::String(s) => s.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Boolean(true) => String::new(),
        Value::Boolean(false) => return Ok(None),
        Value::Array(all) => {
            let all: Result<Vec<_>, _> = all
                .iter()
                .map(|v| match v {
                    Value::Array(_) | Value::Table(_) | Value::Boolean(_) => Err(wrong(option)),
                    v => words(option, v).map(Option::unwrap_or_default),
                })
                .collect();
            all?.join(",")
        }
        Value::Table(_) | Value::Datetime(_) => return Err(wrong(option)),
    }))
}

fn wrong(option: &str) -> String {
    format!("{option}: expected a text, a number, true, false, or an array of texts or numbers")
}

impl Plan {
    /// Reads a plan. What it names is looked for beside it.
    ///
    /// # Errors
    /// A file that is no plan, options that `run` does not take, options said twice.
    pub(super) fn read(path: &Path) -> Result<Plan, Failure> {
        let text = fs2d::text::read(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::FileTooLarge => Failure::at(path, format!("{e}, expected a plan")),
            _ => Failure::at(path, e),
        })?;
        let dir = path.parent().unwrap_or(Path::new(""));
        Plan::parse(&text, dir).map_err(|what| Failure::at(path, what))
    }

    fn parse(text: &str, dir: &Path) -> Result<Plan, String> {
        let text: Text = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        if text.trace.is_empty() {
            return Err("no [[trace]]: nothing to do".to_owned());
        }
        let mut names = BTreeSet::new();
        for t in &text.trace {
            if !names.insert(&t.name) {
                return Err(format!("two traces are called '{}'", t.name));
            }
            if t.files.is_empty() {
                return Err(format!("trace '{}' has no files", t.name));
            }
        }
        let mut axes = Vec::new();
        for (axis, values) in &text.axes {
            let said =
                text.options.contains_key(axis) || text.trace.iter().any(|t| t.options.contains_key(axis));
            if said {
                return Err(format!("{axis} is an axis, and given outside [axes] too"));
            }
            let Value::Array(values) = values else {
                return Err(format!("axis {axis}: expected an array of values"));
            };
            if values.is_empty() {
                return Err(format!("axis {axis}: no value, so there is no cell"));
            }
            axes.push((axis.clone(), values.clone()));
        }
        let combinations =
            axes.iter().try_fold(text.trace.len(), |n, (_, values)| n.checked_mul(values.len()));
        if combinations.is_none_or(|n| n > CELLS_MAX) {
            return Err(format!("more than {CELLS_MAX} cells"));
        }
        let mut cells = Vec::new();
        for trace in &text.trace {
            let mut common = text.options.clone();
            common.extend(trace.options.clone());
            // Keeps P1: the last axis changes fastest, axes in the order of their names.
            let mut turn = vec![0; axes.len()];
            loop {
                let mut options = common.clone();
                for ((axis, values), i) in axes.iter().zip(&turn) {
                    options.insert(axis.clone(), values[*i].clone());
                }
                cells.push(Cell::new(trace, &options, dir)?);
                let Some(next) = (0..axes.len()).rev().find(|&i| turn[i] + 1 < axes[i].1.len()) else {
                    break;
                };
                turn[next] += 1;
                turn[next + 1..].fill(0);
            }
        }
        let mut seen = BTreeSet::new();
        for cell in &cells {
            if !seen.insert(&cell.name) {
                return Err(format!("twice in the plan: {}", cell.name));
            }
        }
        Ok(Plan { cells, axes: axes.into_iter().map(|(name, _)| name).collect() })
    }
}

impl Cell {
    /// The files that it reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(_, path)| path.as_path())
    }

    /// The trace's name and where on the axes it is.
    pub(super) fn label(&self, axes: &[String]) -> String {
        let said = axes.iter().filter_map(|a| Some(format!(" {a}={}", self.name.options.get(a)?)));
        self.name.trace.clone() + &said.collect::<String>()
    }

    fn new(trace: &Trace, options: &Table, dir: &Path) -> Result<Cell, String> {
        let mut line: Vec<OsString> = Vec::new();
        let mut name = Name { trace: trace.name.clone(), options: BTreeMap::new() };
        let mut files = Vec::new();
        for (option, value) in options {
            if NOT_IN_A_PLAN.contains(&option.as_str()) {
                return Err(format!("{option} has no place in a plan"));
            }
            let Some(said) = words(option, value)? else { continue };
            let mut word = OsString::from(format!("--{option}"));
            let beside = dir.join(&said);
            let at = if FILES.contains(&option.as_str()) {
                // Several traces to train with are joined by commas, as on the command line.
                let paths: Vec<_> = said.split(',').map(|f| dir.join(f)).collect();
                files.extend(paths.iter().map(|p| (option.clone(), p.clone())));
                let paths: Vec<_> = paths.into_iter().map(PathBuf::into_os_string).collect();
                paths.join(OsString::from(",").as_os_str())
            } else if option == "drive" && beside.is_file() {
                files.push((option.clone(), beside.clone()));
                beside.into_os_string()
            } else {
                OsString::from(&said)
            };
            if *value != Value::Boolean(true) {
                word.push("=");
                word.push(at);
            }
            line.push(word);
            let said = if *value == Value::Boolean(true) { "true".to_owned() } else { said };
            name.options.insert(option.clone(), said);
        }
        line.push("--".into());
        for file in &trace.files {
            files.push(("trace".to_owned(), dir.join(file)));
            line.push(dir.join(file).into_os_string());
        }
        // Keeps P2.
        let mut args = Line::try_parse_from(line).map_err(|e| format!("{name}: {}", brief(&e)))?.args;
        args.read.quiet = true;
        Ok(Cell { name, args, files })
    }

    /// Everything that the result depends on beside the cell's name: this program, and the contents of files.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn inputs(&self, known: &mut Digests) -> Result<Inputs, Failure> {
        let program = [("version", env!("CARGO_PKG_VERSION")), ("sources", env!("FS2_REPLAY_SOURCES"))];
        let mut inputs: Inputs =
            program.map(|(what, said)| (what.to_owned(), vec![said.to_owned()])).into_iter().collect();
        for (what, path) in &self.files {
            let mut paths = vec![path.clone()];
            if what == "drive" {
                paths.extend_from_slice(known.beside(path));
            }
            for path in paths {
                let digest = format!("{:032x}", known.of(&path)?);
                inputs.entry(what.clone()).or_default().push(digest);
            }
        }
        Ok(inputs)
    }
}

/// What clap found wrong, in a line.
fn brief(e: &clap::Error) -> String {
    let text = e.to_string();
    let lines = text.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:"));
    lines.filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let plan = Plan::parse(text, Path::new("")).expect("a plan");
        plan.cells.iter().map(|c| c.name.to_string()).collect()
    }

    #[test]
    fn cells_are_traces_times_axes_in_order() {
        let text = "
            options = { closed-loop = true, runs = 2 }
            [axes]
            policy = ['none', ['fs2', 'none']]
            drive = ['wd800-repaired', 'nearline-hc310']
            [[trace]]
            name = 'a'
            files = ['a.txt']
            split = [0, 9.0, 25.5]
            [[trace]]
            name = 'b'
            files = ['b.0', 'b.1']
            runs = 3
        ";
        let cell = |t: &str, d: &str, p: &str| match t {
            "a" => format!("a closed-loop=true drive={d} policy={p} runs=2 split=0,9,25.5"),
            _ => format!("b closed-loop=true drive={d} policy={p} runs=3"),
        };
        let want = ["a", "b"].iter().flat_map(|t| {
            ["wd800-repaired", "nearline-hc310"]
                .iter()
                .flat_map(move |d| ["none", "fs2,none"].map(|p| cell(t, d, p)))
        });
        assert_eq!(names(text), want.collect::<Vec<_>>());
    }

    #[test]
    fn a_plan_that_makes_no_sense_says_why() {
        let with = |more: &str| format!("{more}\n[[trace]]\nname = 'a'\nfiles = ['a']\n");
        for (text, said) in [
            (String::new(), "missing field `trace`"),
            ("trace = []".to_owned(), "nothing to do"),
            (with("nonsense = 1"), "unknown field"),
            (with("[options]\njson = true"), "json has no place"),
            (with("[options]\nspeed = 1"), "a speed=1: unexpected argument '--speed'"),
            (with("[options]\ndepth = 0"), "a depth=0: invalid value '0'"),
            (with("[options]\nruns = { a = 1 }"), "runs: expected a text"),
            (with("[options]\nused = '5%'\nfree-map = 'x'"), "cannot be used with"),
            (with("[options]\nruns = 1\n[axes]\nruns = [1, 2]"), "runs is an axis"),
            (with("[axes]\nruns = 1"), "axis runs: expected an array"),
            (with("[axes]\nruns = []"), "axis runs: no value"),
            (with("[axes]\nruns = [1, 1]"), "twice in the plan: a runs=1"),
            (with("[[trace]]\nname = 'a'\nfiles = ['b']"), "two traces are called 'a'"),
            (with("[[trace]]\nname = 'b'\nfiles = []"), "trace 'b' has no files"),
            (
                with(&format!("[axes]\nruns = {0:?}\nseed = {0:?}", (1..400).collect::<Vec<_>>())),
                "more than 100000",
            ),
        ] {
            let error = Plan::parse(&text, Path::new("")).expect_err(&text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn files_are_beside_the_plan_and_what_is_in_them_counts() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        put("-a", "1");
        put("list", "2");
        put("wd800-repaired", "3");
        let text = "[axes]\ndrive = ['wd800-repaired', 'nearline-hc310']\nseed = [1, 2]\n\
                    [[trace]]\nname = 'x'\nfiles = ['-a']\nfree-map = 'list'";
        let inputs = || -> Vec<Inputs> {
            let plan = Plan::parse(text, dir.path()).expect("a plan");
            let mut known = Digests::default();
            plan.cells.iter().map(|c| c.inputs(&mut known).expect("files")).collect()
        };
        let before = inputs();
        assert!(before[0] == before[1] && before[2] == before[3] && before[0] != before[2], "{before:?}");
        put("wd800-repaired", "4");
        let after = inputs();
        assert!(after[0] != before[0] && after[2] == before[2]);
        put("-a", "5");
        assert!(inputs().iter().zip(&after).all(|(a, b)| a != b));
    }
}
