//! `fsbench`: the papers' workloads on any mounted directory.
//!
//! [`run`] is the whole program but for the process around it. A [`Workload`] makes its files in a [`Site`],
//! is run any number of times under a [`Control`], and compares every file at the end; which ones there are
//! says [`entries`]. The core (`runner`) checks the place first, repeats, asks FS2's daemon, and cleans up.

mod compare;
pub mod content;
pub mod control;
mod error;
pub mod fs2;
pub mod measure;
mod output;
mod paper;
pub mod personalities;
pub mod preflight;
pub mod real;
pub mod rng;
pub mod runner;
pub mod site;
mod sweep;
pub mod table;
pub mod volumes;
pub mod wml;
pub mod workload;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use fs2d::text::{AtMost, TEXT_BYTES_MAX};

pub use content::Content;
pub use control::{Control, Limits};
pub use error::BenchError;
use measure::attach::{self, MeasureArgs, Measurer};
use output::Output;
pub use rng::{Rng, Zipf};
pub use site::Site;
pub use workload::{Entry, Metric, Needs, OpClass, PassReport, Setup, Verified, Workload};

/// Exit code: done.
const DONE: i32 = 0;
/// Exit code: refused or failed.
const FAILED: i32 = 1;
/// Exit code: the command line makes no sense.
const USAGE: i32 = 2;

const EXAMPLES: &str = "\
Examples:
  fsbench list                             what there is to run
  fsbench list cvs-update                  its presets and parameters
  fsbench run cvs-update /mnt              one of the papers' workloads, small
  fsbench run startx --runs 5 /mnt         five times in one set of files
  fsbench run tpcw-shopping --duration 60s /mnt
                                           a minute of it
  fsbench run zipf-1 --set alpha=0.7 /mnt  with one of its parameters changed
  fsbench run cvs-update --runs 5 --cold remount --mem-limit 24m /mnt
                                           as the papers do: cold, little memory
  fsbench run varmail.f --duration 1m /mnt a script in FileBench's language
  fsbench clean /mnt                       what a killed run has left

Everything is written below DIR/fsbench.d and removed at the end, also after \
Ctrl-C. At the end every file is compared with what was written.

Exit codes: 0 done; 1 refused, failed, short or damaged; 2 usage; \
130 stopped by Ctrl-C.";

/// Run the papers' workloads on a mounted directory.
#[derive(Parser, Debug)]
#[command(name = "fsbench", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// What there is to run; with a name, its parameters
    #[command(after_help = "Examples:
  fsbench list
  fsbench list cvs-update")]
    List {
        /// A workload
        name: Option<String>,
    },
    Run(Box<RunArgs>),
    Compare(Box<compare::Args>),
    Paper(Box<paper::Args>),
    Sweep(sweep::Args),
    /// Run a real program's workload; skipped with the reason where it is not installed
    #[command(after_help = "Examples:
  fsbench real git /mnt
  fsbench real postgres /mnt --runs 3 --cold remount")]
    Real {
        /// Which
        #[arg(value_parser = ["git", "cvs", "postmark", "postgres", "postgres+nginx"])]
        program: String,
        /// The directory, and options of fsbench run
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        rest: Vec<OsString>,
    },
    /// Remove what a run that was killed has left in a directory
    #[command(after_help = "Examples:
  fsbench clean /mnt

Exit codes: 0 done, or there was nothing; 1 failed; 2 usage, or there is no such directory.")]
    Clean {
        /// The directory that was given to `run`
        dir: PathBuf,
    },
}

/// Run a workload in a directory
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
struct RunArgs {
    /// A workload's name (see fsbench list), or a script in FileBench's language: a path that ends in .f
    name: String,
    /// A directory on the file system to be measured
    dir: PathBuf,
    /// Its size: `ci` is small, `paper` is as published; see fsbench list
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// How often; 0 only makes the files
    #[arg(long, value_name = "N", default_value = "1")]
    runs: u32,
    /// Runs before those, reported apart: FS2 learns in them
    #[arg(long, value_name = "N", default_value = "0")]
    train: u32,
    /// All random numbers follow from it
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// So many times as many files and operations as the preset; of a script, files (or bytes, of a single file)
    #[arg(long, value_name = "X", default_value = "1", value_parser = parse_scale)]
    scale: f64,
    /// Change one of its parameters; `fsbench list NAME` shows them. May be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_set)]
    set: Vec<(String, String)>,
    /// End each run after so long: 90s, 5m. What can only be done whole is: find, log, compile, reclaim, and of
    /// `real` git, cvs and postmark
    #[arg(long, alias = "runtime", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// End each run after so many operations, as --duration does
    #[arg(long, value_name = "N", value_parser = parse_ops)]
    ops: Option<u64>,
    /// Begin each run with so long that is not counted
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0s")]
    warmup: Duration,
    /// How to print: `table`, or `filebench` as FileBench prints a run of its language
    #[arg(long, value_name = "FORM", default_value = "table")]
    format: Format,
    /// Leave out a script's `system` statements. Without it they are carried out by `sh`, with your rights
    #[arg(long)]
    no_system: bool,
    /// Leave the files; with --runs 0 another command may go on with them
    #[arg(long)]
    keep: bool,
    /// Go on with files that --runs 0 --keep has left
    #[arg(long)]
    reuse: bool,
    /// Have FS2's daemon record the runs' requests, for fs2-replay; the directory must lie on an FS2 volume
    #[arg(long, value_name = "TRACE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// How a report is printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Ours.
    Table,
    /// FileBench's.
    Filebench,
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (1e-3..=1e3).contains(&scale) { Ok(scale) } else { Err("give 0.001 to 1000".into()) }
}

fn parse_set(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().into(), value.trim().into())),
        _ => Err("give NAME=VALUE".into()),
    }
}

/// `90`, `90s`, `1.5m`, `200ms`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("'{text}': the unit is ms, s, m or h")),
    };
    let n: f64 = number.parse().map_err(|_| format!("'{text}' is no time; give one like 90s or 5m"))?;
    // A year is longer than any run.
    if n * unit <= 3.2e7 { Ok(Duration::from_secs_f64(n * unit)) } else { Err("longer than a year".into()) }
}

/// As [`parse_time`], of a run, which takes some.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("give more than 0, or leave it out for the workload's own end".into()),
        time => Ok(time),
    }
}

fn parse_ops(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("give more than 0, or leave it out for the workload's own end".into()),
        Ok(n) => Ok(n),
        Err(_) => Err(format!("'{text}' is no number of operations")),
    }
}

/// Every workload by name.
pub fn entries() -> Vec<Entry> {
    let mut all = personalities::entries();
    all.extend(wml::entries());
    all.extend(real::entries());
    all
}

/// Finds a workload by name.
///
/// # Errors
/// There is none: with the names that are nearest.
pub fn find(name: &str) -> Result<Entry, BenchError> {
    let all = entries();
    all.iter().find(|e| e.name == name).copied().ok_or_else(|| {
        let mut names: Vec<&str> = all.iter().map(|e| e.name).collect();
        names.sort_by_key(|n| distance(n, name));
        // What differs in half of its letters is not meant.
        let near = |n: &&str| 2 * distance(n, name) <= n.len().max(name.len());
        let near: Vec<&str> = names.into_iter().filter(near).take(3).collect();
        let near = if near.is_empty() { String::new() } else { format!(" near it: {};", near.join(", ")) };
        BenchError::Usage(format!("there is no workload '{name}';{near} fsbench list shows all"))
    })
}

/// Levenshtein's distance, by bytes.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut left_above = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (left_above + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            left_above = above;
        }
    }
    row.last().copied().unwrap_or(0)
}

/// The definition of its arguments, for man pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs the program: `args` with its own name first. Returns its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => return crate::mkfs2::usage(&e, out, err, USAGE, FAILED),
    };
    let done = match &cli.what {
        What::List { name: None } => list(out),
        What::List { name: Some(name) } => describe(name, out),
        What::Run(args) => run_one(args, out, err),
        What::Paper(args) => paper::run(args, out, err),
        What::Real { program, rest } => {
            let name = format!("real-{program}");
            if let Some(missing) = real::missing(&name) {
                let said = writeln!(out, "skipped: {name} needs {missing}");
                return said.map_or(1, |()| DONE);
            }
            let args = ["fsbench".into(), "run".into(), name.into()].into_iter().chain(rest.iter().cloned());
            return run(args, out, err);
        }
        What::Sweep(args) => sweep::run(args, out, err),
        What::Compare(args) => compare::run(args, out, err),
        What::Clean { dir } => clean(dir, out),
    };
    match done {
        Ok(()) => DONE,
        Err(e) => {
            let _ = writeln!(err, "fsbench: {e}");
            e.exit_code()
        }
    }
}

fn printing(e: std::io::Error) -> BenchError {
    BenchError::Failed(format!("writing the output: {e}"))
}

fn list(out: &mut dyn Write) -> Result<(), BenchError> {
    let mut source = "";
    for e in entries() {
        if e.source != source {
            source = e.source;
            writeln!(out, "{source}:").map_err(printing)?;
        }
        writeln!(out, "  {:<14} {}", e.name, e.summary).map_err(printing)?;
    }
    writeln!(out, "\nfsbench list NAME shows presets and parameters; docs/fsbench.md what each does.")
        .map_err(printing)
}

/// A workload's parameters, preset by preset.
fn describe(name: &str, out: &mut dyn Write) -> Result<(), BenchError> {
    let e = find(name)?;
    writeln!(out, "{}: {}\nsource: {}", e.name, e.summary, e.source).map_err(printing)?;
    let mut about = std::collections::BTreeMap::new();
    for preset in e.presets {
        let setup = Setup { preset: (*preset).into(), seed: 1, scale: 1.0, set: Vec::new(), passes: 1 };
        let workload = (e.make)(&setup)?;
        let needs = workload.needs();
        let (bytes, inodes) = (crate::mkfs2::bytes(needs.bytes), needs.inodes);
        writeln!(out, "\n--preset {preset}: about {bytes} in {inodes} files and directories")
            .map_err(printing)?;
        if let serde_json::Value::Object(parameters) = workload.parameters() {
            for (name, value) in parameters {
                writeln!(out, "  --set {name}={value}").map_err(printing)?;
                about.extend(workload.about().iter().filter(|a| a.0 == name).copied());
            }
        }
    }
    for (i, (name, what)) in about.into_iter().enumerate() {
        let head = if i == 0 { "\nParameters:\n" } else { "" };
        writeln!(out, "{head}  {name:<14}{what}").map_err(printing)?;
    }
    Ok(())
}

fn clean(dir: &std::path::Path, out: &mut dyn Write) -> Result<(), BenchError> {
    if !dir.exists() {
        return Err(BenchError::Usage(format!("{} does not exist", dir.display())));
    }
    let found = site::clean(dir)? | compare::clean(dir)?;
    let what = if found { "removed" } else { "there is nothing of fsbench in it" };
    writeln!(out, "{}: {what}", dir.display()).map_err(printing)
}

/// Refuses a preset that a workload does not have.
fn preset_is_there(entry: &Entry, preset: Option<&str>) -> Result<(), BenchError> {
    match preset {
        Some(preset) if !entry.presets.contains(&preset) => Err(BenchError::Usage(format!(
            "{} has no preset '{preset}'; there are {}",
            entry.name,
            entry.presets.join(", ")
        ))),
        _ => Ok(()),
    }
}

fn run_one(args: &RunArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), BenchError> {
    let script = args.name.ends_with(".f");
    let preset = if script {
        if args.preset.is_some() {
            return Err(BenchError::Usage("a script has no presets; change its variables with --set".into()));
        }
        "script".to_owned()
    } else {
        let entry = find(&args.name)?;
        if let Some(missing) = real::missing(entry.name) {
            return Err(BenchError::Refused(format!("{} needs {missing}", entry.name)));
        }
        let preset = args.preset.clone().unwrap_or_else(|| entry.presets[0].to_owned());
        preset_is_there(&entry, Some(&preset))?;
        preset
    };
    control::catch_signals().map_err(|e| BenchError::Failed(format!("catching Ctrl-C: {e}")))?;
    let plan = runner::Plan {
        dir: args.dir.clone(),
        setup: Setup {
            preset,
            seed: args.seed,
            scale: args.scale,
            set: args.set.clone(),
            passes: args.measure.runs_max(args.runs).saturating_add(args.train),
        },
        runs: args.runs,
        train: args.train,
        limits: Limits { duration: args.duration, ops: args.ops, warmup: args.warmup },
        keep: args.keep,
        reuse: args.reuse,
    };
    preflight::directory(&plan.dir)?;
    let script_read = script.then(|| std::path::Path::new(&args.name));
    output::refuse_same(
        [&args.measure.json, &args.measure.interval, &args.record],
        args.measure.meter.as_deref().into_iter().chain(script_read),
    )?;
    let json = Output::of(args.measure.json.as_deref())?;
    let mut measurer = Measurer::new(&args.measure, &plan.dir, plan.runs)?.with_warm_up(plan.limits.warmup);
    let workload = if script {
        let path = std::path::Path::new(&args.name);
        let mut source = Vec::new();
        let file = std::fs::File::open(path).map(|file| AtMost::new(file, TEXT_BYTES_MAX));
        file.and_then(|mut file| file.read_to_end(&mut source))
            .map_err(BenchError::at(path, "reading the script"))?;
        wml::of_file(&args.name, &String::from_utf8_lossy(&source), &plan.setup, !args.no_system)?
    } else {
        (find(&args.name)?.make)(&plan.setup)?
    };
    if args.format == Format::Filebench && !script && wml::entries().iter().all(|e| e.name != args.name) {
        return Err(BenchError::Usage("--format filebench is for workloads in FileBench's language".into()));
    }
    let needs = workload.needs();
    runner::room(&plan, &needs)?;
    // Told before the run, which may be stopped then, and not again after it.
    let foreseen = measurer.foreseen(&needs);
    for warning in foreseen.iter().filter(|_| !args.measure.quiet_warnings && args.runs.max(args.train) > 0) {
        let _ = writeln!(err, "fsbench: warning: {warning}");
    }
    let record = args.record.as_deref();
    let outcome = runner::run_workload(&args.name, workload, &plan, &mut measurer, record)?;
    let document = measurer.document(&outcome, &plan);
    // Before the tables: whoever reads those may have seen enough. Whatever becomes of it, they are printed.
    let written = json.as_ref().map_or(Ok(()), |json| {
        let text = document.to_json().map_err(|e| BenchError::Failed(e.to_string()))?;
        json.write(&text, out)
    });
    let tables = output::tables(json.as_ref(), out, err);
    let printed = match args.format {
        Format::Table => {
            table::print(&outcome, tables).and_then(|()| attach::print_summary(&document, tables))
        }
        Format::Filebench => {
            let mut natives = outcome.runs.iter().filter_map(|r| r.report.native.as_deref());
            natives.try_for_each(|text| tables.write_all(text.as_bytes()))
        }
    }
    .and_then(|()| tables.flush())
    .map_err(printing);
    if !args.measure.quiet_warnings {
        for warning in document.warnings.iter().filter(|w| !foreseen.contains(w)) {
            let _ = writeln!(err, "fsbench: warning: {warning}");
        }
    }
    let failure = runner::failure(&outcome).map_or(Ok(()), Err);
    output::last([written, printed, failure], err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_type_them() {
        for (text, ms) in [("90", 90_000), ("90s", 90_000), ("1.5m", 90_000), ("200ms", 200), ("0s", 0)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in ["", "s", "-1s", "1.2.3s", "5x", "1e9h", "99999999h", "nan"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_its_neighbours() {
        let said = find("cvs-updat").unwrap_err().to_string();
        assert!(said.contains("cvs-update"), "{said}");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn names_are_unique_and_every_preset_makes_a_workload() {
        let all = entries();
        for (i, e) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|f| f.name != e.name), "{}", e.name);
            for preset in e.presets {
                let setup = Setup { preset: (*preset).into(), seed: 1, scale: 1.0, set: vec![], passes: 1 };
                let w = (e.make)(&setup).unwrap_or_else(|err| panic!("{} {preset}: {err}", e.name));
                assert!(w.needs().bytes > 0 && w.parameters().is_object(), "{}", e.name);
                let told = |name: &String| w.about().iter().any(|a| a.0 == name);
                let of_ours = personalities::entries().iter().any(|o| o.name == e.name);
                assert!(!of_ours || w.parameters().as_object().unwrap().keys().all(told), "{}", e.name);
            }
            let typo = Setup {
                preset: e.presets[0].into(),
                seed: 1,
                scale: 1.0,
                set: vec![("no-such".into(), "1".into())],
                passes: 1,
            };
            let said = (e.make)(&typo).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains("no-such"), "{}: {said}", e.name);
        }
    }
}
