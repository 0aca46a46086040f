//! `fsbench compare`: one workload in two directories, or with two settings in one, in turns.
//!
//! The two take turns, and who begins changes: what drifts on the machine meets both alike. Whether they differ says
//! Welch's test; where they do not, a dash stands for the difference.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::measure::attach::{MeasureArgs, Measurer, main_figure};
use super::measure::{Document, SCHEMA, Summary, Welch};
use super::output::{self, Output};
use super::runner::{self, Around, Outcome, Plan, Session};
use super::{BenchError, Entry, Limits, Setup};
use crate::output::quoted;

const EXAMPLES: &str = "\
Examples:
  fsbench compare cvs-update /mnt/ext2 /mnt/fs2 --runs 7 --cold remount
  fsbench compare cvs-update /mnt --a touch=0 --b touch=100

Of each figure both means are shown with half their 95 % interval, and the difference in per cent of A's mean; \
a dash where the two cannot be told apart (Welch's test at 95 %), a dagger where the runs vary by more than 40 %.";

/// Run a workload in two places, or with two settings, in turns, and say whether they differ
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// A workload's name; see fsbench list
    name: String,
    /// Where A runs
    a: PathBuf,
    /// Where B runs; without it in the same directory, with another setting
    b: Option<PathBuf>,
    /// A parameter for A only
    #[arg(long = "a", value_name = "NAME=VALUE", value_parser = super::parse_set)]
    set_a: Vec<(String, String)>,
    /// A parameter for B only
    #[arg(long = "b", value_name = "NAME=VALUE", value_parser = super::parse_set)]
    set_b: Vec<(String, String)>,
    /// A parameter for both
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::parse_set)]
    set: Vec<(String, String)>,
    /// Its size
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Runs of each
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    runs: u32,
    /// Runs of each before those, which do not count
    #[arg(long, value_name = "N", default_value = "0")]
    train: u32,
    /// All random numbers follow from it
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// So many times as many files and operations as the preset
    #[arg(long, value_name = "X", default_value = "1", value_parser = super::parse_scale)]
    scale: f64,
    /// End each run after so long: 90s, 5m. What can only be done whole is (see fsbench run --help)
    #[arg(long, value_name = "TIME", value_parser = super::parse_duration)]
    duration: Option<std::time::Duration>,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// Both documents and what is made of them.
#[derive(Debug, Serialize)]
struct Comparison {
    schema: u32,
    program: &'static str,
    a: Document,
    b: Document,
    /// B against A, by figure.
    compared: std::collections::BTreeMap<String, Welch>,
}

/// A directory of ours below the user's, for two settings in one place; removed on drop where it is empty.
struct Below(PathBuf);

/// Their names.
const BELOW: [&str; 2] = ["fsbench-a.d", "fsbench-b.d"];

impl Below {
    fn new(dir: &Path, name: &str) -> Result<Below, BenchError> {
        let path = dir.join(name);
        std::fs::create_dir(&path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => BenchError::Refused(format!(
                "{}: is in the way; where a comparison that was killed has left it, fsbench clean {} removes it",
                path.display(),
                quoted(dir)
            )),
            _ => BenchError::at(&path, "making it")(e),
        })?;
        Ok(Below(path))
    }
}

/// Removes what a comparison in one directory has left; whether there was anything.
///
/// # Errors
/// Where it is not fsbench's, is in use, or cannot be removed.
pub(super) fn clean(dir: &Path) -> Result<bool, BenchError> {
    let mut found = false;
    for name in BELOW {
        let path = dir.join(name);
        // Neither a link nor what holds somebody else's files.
        if path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
            super::site::clean(&path)?;
            found |= std::fs::remove_dir(&path).is_ok();
        }
    }
    Ok(found)
}

impl Drop for Below {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// One of the two.
struct Side {
    plan: Plan,
    session: Session,
    measurer: Measurer,
    /// Warned of before the first run.
    foreseen: Vec<String>,
}

impl Side {
    fn open(
        args: &Args,
        entry: &Entry,
        (name, dir): (&str, PathBuf),
        own: &[(String, String)],
        err: &mut dyn Write,
    ) -> Result<Side, BenchError> {
        let set = args.set.iter().chain(own).cloned().collect();
        let runs_max = args.measure.runs_max(args.runs);
        let preset = args.preset.clone().unwrap_or_else(|| entry.presets[0].to_owned());
        let plan = Plan {
            dir,
            setup: Setup {
                preset,
                seed: args.seed,
                scale: args.scale,
                set,
                passes: runs_max.saturating_add(args.train),
            },
            runs: args.runs,
            train: args.train,
            limits: Limits { duration: args.duration, ..Limits::default() },
            keep: false,
            reuse: false,
        };
        super::preflight::directory(&plan.dir)?;
        let measurer = Measurer::new(&args.measure, &plan.dir, plan.runs)?;
        let workload = (entry.make)(&plan.setup)?;
        let needs = workload.needs();
        runner::room(&plan, &needs)?;
        let foreseen = measurer.foreseen(&needs);
        warn(args, name, &foreseen, err);
        let session = Session::of(entry.name, workload, &plan)?;
        Ok(Side { plan, session, measurer, foreseen })
    }

    fn pass(&mut self, training: bool) -> Result<(), BenchError> {
        self.session.pass(&mut self.measurer, training)
    }

    fn wants_more(&self) -> bool {
        self.measurer.wants_more(self.session.runs(), self.plan.runs)
    }

    /// What was measured, what came of it, and which of its warnings were given before.
    fn end(self) -> Result<(Document, Outcome, Vec<String>), BenchError> {
        let outcome = self.session.end()?;
        Ok((self.measurer.document(&outcome, &self.plan), outcome, self.foreseen))
    }
}

fn warn<'a>(args: &Args, name: &str, warnings: impl IntoIterator<Item = &'a String>, err: &mut dyn Write) {
    for warning in warnings.into_iter().filter(|_| !args.measure.quiet_warnings) {
        let _ = writeln!(err, "fsbench: warning: {name}: {warning}");
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), BenchError> {
    if args.measure.interval.is_some() {
        return Err(BenchError::Usage("--interval is for fsbench run: two take turns here".into()));
    }
    let entry = super::find(&args.name)?;
    super::preset_is_there(&entry, args.preset.as_deref())?;
    let same = args.b.as_deref().is_none_or(|b| is_same(b, &args.a));
    if same && args.set_a == args.set_b {
        return Err(BenchError::Usage("give two directories, or --a and --b with different settings".into()));
    }
    super::control::catch_signals().map_err(|e| BenchError::Failed(format!("catching Ctrl-C: {e}")))?;
    super::preflight::directory(&args.a)?;
    output::refuse_same([&args.measure.json], args.measure.meter.as_deref())?;
    let json = Output::of(args.measure.json.as_deref())?;
    let below = match same {
        true => Some((Below::new(&args.a, BELOW[0])?, Below::new(&args.a, BELOW[1])?)),
        false => None,
    };
    let (dir_a, dir_b) = match (&below, &args.b) {
        (Some((a, b)), _) => (a.0.clone(), b.0.clone()),
        (None, b) => (args.a.clone(), b.clone().unwrap_or_else(|| args.a.clone())),
    };
    let mut a = Side::open(args, &entry, ("A", dir_a), &args.set_a, err)?;
    let mut b = Side::open(args, &entry, ("B", dir_b), &args.set_b, err)?;
    let mut turn = 0u32;
    loop {
        let training = turn < args.train;
        if !(training || a.wants_more() || b.wants_more()) {
            break;
        }
        let (first, second) = if turn.is_multiple_of(2) { (&mut a, &mut b) } else { (&mut b, &mut a) };
        first.pass(training)?;
        second.pass(training)?;
        turn += 1;
    }
    let ((a, outcome_a, told_a), (b, outcome_b, told_b)) = (a.end()?, b.end()?);
    drop(below);
    let main = main_figure(&outcome_a).0;
    let compared = compare(&a, &b);
    let all = Comparison { schema: SCHEMA, program: "fsbench compare", a, b, compared };
    // Before the table: whoever reads that may have seen enough. Whatever becomes of it, the table is printed.
    let written = json.as_ref().map_or(Ok(()), |json| {
        let text = serde_json::to_string_pretty(&all).map_err(|e| BenchError::Failed(e.to_string()))?;
        json.write(&(text + "\n"), out)
    });
    let Comparison { a, b, compared, .. } = &all;
    let tables = output::tables(json.as_ref(), out, err);
    let dirs = if same { None } else { args.b.as_deref().map(|b| [args.a.as_path(), b]) };
    let printed = print(&args.name, [a, b], dirs, compared, &main, tables).and_then(|()| tables.flush());
    for (name, document, told) in [("A", a, told_a), ("B", b, told_b)] {
        warn(args, name, document.warnings.iter().filter(|w| !told.contains(w)), err);
    }
    let failure = [&outcome_a, &outcome_b].into_iter().find_map(runner::failure).map_or(Ok(()), Err);
    output::last([written, printed.map_err(super::printing), failure], err)
}

/// Welch's test of every figure both have.
pub(super) fn compare(a: &Document, b: &Document) -> std::collections::BTreeMap<String, Welch> {
    let (of_a, of_b) = (a.figures(), b.figures());
    let both = of_a.iter().filter_map(|(name, va)| Some((name.clone(), Welch::test(va, of_b.get(name)?)?)));
    both.collect()
}

/// A difference as the thesis prints it: `+98%`, `-64%†`, or a dash where there is none to be told.
pub(super) fn cell(a: &[f64], b: &[f64]) -> String {
    let Some(welch) = Welch::test(a, b) else { return "?".into() };
    if !welch.is_distinguishable() {
        return "-".into();
    }
    let wild = [a, b].iter().any(|v| Summary::of(v).is_some_and(|s| s.is_wild()));
    let dagger = if wild { "†" } else { "" };
    match welch.relative {
        Some(share) => format!("{:+.0}%{dagger}", share * 100.0),
        None => format!("{:+.3}{dagger}", welch.difference),
    }
}

/// A file system, and the directory where it is not the one mounted: two of one file system would be called alike.
fn place(d: &Document, dir: Option<&Path>) -> String {
    let fs = d.environment.file_system.as_ref();
    let within = dir.filter(|dir| fs.is_none_or(|fs| !is_same(dir, Path::new(&fs.mounted_on))));
    let within = within.map_or(String::new(), |dir| format!("{} in ", dir.display()));
    let fs = fs.map_or("?".into(), |f| format!("{} on {}", f.fstype, f.mounted_on));
    let policy = d.environment.fs2.as_ref().map(|f| format!(", FS2 policy {}, drive {}", f.policy, f.drive));
    format!("{within}{fs}{}", policy.unwrap_or_default())
}

/// Whether two names are of one directory.
fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

fn print(
    name: &str,
    [a, b]: [&Document; 2],
    dirs: Option<[&Path; 2]>,
    compared: &std::collections::BTreeMap<String, Welch>,
    main: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let [dir_a, dir_b] = dirs.map_or([None; 2], |dirs| dirs.map(Some));
    writeln!(out, "{name}, {} runs of each in turns, cold: {}", a.measured().count(), a.options.cold)?;
    writeln!(out, "A: {}{}", place(a, dir_a), settings(a, b))?;
    writeln!(out, "B: {}{}", place(b, dir_b), settings(b, a))?;
    // The figure it is known by first.
    let rest =
        compared.iter().filter(|(k, _)| *k != main && !k.ends_with("_p99_ms") && !k.ends_with("_mean_ms"));
    let mut rows = vec![["figure", "A", "B", "B to A", "p"].map(str::to_owned)];
    for (figure, welch) in compared.get_key_value(main).into_iter().chain(rest) {
        let (va, vb) = (a.figure(figure), b.figure(figure));
        rows.push([figure.clone(), mean(&va), mean(&vb), cell(&va, &vb), format!("{:.4}", welch.p)]);
    }
    writeln!(out)?;
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [figure, a, b, to, p] = [0, 1, 2, 3, 4].map(widest);
    for row in &rows {
        let [f, va, vb, vto, vp] = row;
        writeln!(out, "{f:<figure$}  {va:>a$}  {vb:>b$}  {vto:>to$}  {vp:>p$}")?;
    }
    Ok(())
}

/// A mean with half its interval: four digits of the larger one that mean something, and as many decimals of both.
fn mean(values: &[f64]) -> String {
    let Some(s) = Summary::of(values) else { return "-".into() };
    let largest = s.mean.abs().max(s.ci95_half.unwrap_or_default());
    let whole_digits = if largest > 0.0 { largest.log10().floor() as i32 + 1 } else { 1 };
    let decimals = (4 - whole_digits).clamp(0, 9) as usize;
    match s.ci95_half {
        Some(half) => format!("{:.decimals$} ± {half:.decimals$}", s.mean),
        None => format!("{:.decimals$}", s.mean),
    }
}

/// The parameters in which one differs from the other.
fn settings(this: &Document, other: &Document) -> String {
    let differ =
        this.workload.parameters.iter().filter(|(k, v)| other.workload.parameters.get(*k) != Some(v));
    let all: Vec<String> = differ.map(|(k, v)| format!("{k}={v}")).collect();
    if all.is_empty() { String::new() } else { format!("; {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::super::measure::FileSystem;
    use super::super::measure::result::tests::document;
    use super::*;

    #[test]
    fn cells_as_the_thesis_prints_them() {
        assert_eq!(cell(&[10.0, 10.1, 9.9], &[19.8, 20.0, 20.2]), "+100%");
        assert_eq!(cell(&[10.0, 10.1, 9.9], &[3.6, 3.5, 3.7]), "-64%");
        assert_eq!(cell(&[10.0, 10.5, 9.5], &[10.2, 9.7, 10.4]), "-");
        assert_eq!(
            cell(&[1.0, 1.5, 0.4, 1.1, 1.9], &[100.0, 101.0, 99.0, 100.0, 100.0]).chars().last(),
            Some('†')
        );
        assert_eq!(cell(&[1.0], &[2.0, 3.0]), "?");
    }

    #[test]
    fn the_figure_it_is_known_by_comes_first() {
        let (a, b) = (document(&[2.0, 2.1, 2.05]), document(&[1.0, 1.1, 1.05]));
        let compared = compare(&a, &b);
        assert!(compared["elapsed_s"].is_distinguishable());
        assert!(!compared["joules_meter"].is_distinguishable());
        let mut out = Vec::new();
        print("x", [&a, &b], None, &compared, "ops_per_s", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("figure")).skip(1).collect();
        assert!(rows[0].starts_with("ops_per_s") && rows[0].contains("+9"), "{text}");
        assert!(rows.iter().any(|r| r.starts_with("elapsed_s") && r.contains("-49%")), "{text}");
        assert!(rows.iter().any(|r| r.starts_with("joules_meter") && r.contains(" - ")), "{text}");
    }

    /// Two directories of one file system were called by that alone, and so alike.
    #[test]
    fn two_directories_of_one_file_system_have_names_of_their_own() {
        let mut a = document(&[2.0, 2.1]);
        a.environment.file_system =
            Some(FileSystem { fstype: "ext2".into(), mounted_on: "/".into(), ..FileSystem::default() });
        let said = |dirs: Option<[&str; 2]>| {
            let mut out = Vec::new();
            let dirs = dirs.map(|dirs| dirs.map(Path::new));
            print("x", [&a, &a], dirs, &compare(&a, &a), "ops_per_s", &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            text.lines().skip(1).take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(said(Some(["/one", "/two"])), ["A: /one in ext2 on /", "B: /two in ext2 on /"]);
        // As before where the file system says all: at its root, by whatever name, and with two settings in one directory.
        assert_eq!(said(Some(["/tmp/..", "/two"])), ["A: ext2 on /", "B: /two in ext2 on /"]);
        assert_eq!(said(None), ["A: ext2 on /", "B: ext2 on /"]);
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        // Half a million operations a second.
        let (a, b) = (document(&[1.7e-4, 1.9e-4, 2.6e-4]), document(&[1.9e-4, 2.4e-4, 1.6e-4]));
        let mut out = Vec::new();
        print("x", [&a, &b], None, &compare(&a, &b), "ops_per_s", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let table: Vec<Vec<char>> =
            text.lines().skip_while(|l| !l.starts_with("figure")).map(|l| l.chars().collect()).collect();
        let ends = |of: char| table[0].iter().position(|c| *c == of).unwrap() + 1;
        for row in &table {
            assert_eq!(row.len(), table[0].len(), "{text}");
            // A and B end their columns, and two spaces follow.
            for end in [ends('A'), ends('B')] {
                assert!(row[end - 1] != ' ' && row[end] == ' ' && row[end + 1] == ' ', "{text}");
            }
        }
        assert!(text.contains("  499722 ± 259300  "), "{text}");
    }

    #[test]
    fn means_have_four_digits_that_mean_something() {
        assert_eq!(mean(&[563_000.4, 563_164.5]), "563082 ± 1043");
        assert_eq!(mean(&[2.0, 2.1, 2.05]), "2.050 ± 0.124");
        assert_eq!(mean(&[0.0002, 0.0002]), "0.0002000 ± 0.0000000");
        assert_eq!(mean(&[0.0, 0.0]), "0.000 ± 0.000");
        assert_eq!(mean(&[99.5]), "99.50");
    }
}
