//! `fs2-replay sweep`: every combination that a plan names, on all cores, in shards, to be stopped and gone on
//! with at any time.
//!
//! The plan says what the cells are (`plan`), the workers here run them, and what they come to is appended to
//! a file, from which shards are put together (`results`).

mod plan;
mod results;

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::plan::{Cell, Inputs, Name, Plan};
use self::results::{Done, Shard};
use super::Failure;
use super::digest::Digests;
use crate::new_file::NewFile;
use crate::outputs;

const EXAMPLES: &str = "\
Examples:
  fs2-replay sweep plan.toml --dry-run                    what would be run
  fs2-replay sweep plan.toml --out results                everything, on all cores; again to go on after a stop
  fs2-replay sweep plan.toml --out results --shard 2/3    a third of it, for the second of three machines
  fs2-replay sweep plan.toml --out results --merge        when the shards' files are together: sweep.csv, sweep.jsonl

A plan is TOML: [options] of every run, [axes] with values to combine, a [[trace]] for each trace with its \
files and options; docs/sweep.toml is an example. A cell is one combination; a run that is finished is a line \
in DIR/shard-I-of-N.jsonl, and is not run again.";

/// Replay traces under every combination of options
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The plan, a TOML file
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Where results are, and go
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Run the I-th of N parts only
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = parse_shard)]
    shard: (u32, u32),
    /// Run nothing: put all shards in DIR together, as sweep.csv and sweep.jsonl
    #[arg(long, conflicts_with_all = ["dry_run", "shard"])]
    merge: bool,
    /// With --merge: also where results are missing
    #[arg(long, requires = "merge")]
    partial: bool,
    /// Run nothing: list the cells, with --out also which are done, or were run by another version or build, or on other files
    #[arg(long)]
    dry_run: bool,
    /// Cells at a time [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

fn parse_shard(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((i, n)) if 1 <= i && i <= n => Ok((i, n)),
        _ => Err(format!("'{text}' is no shard; give one like 2/3")),
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let plan = Plan::read(&args.plan)?;
    let (number, of) = args.shard;
    let mine = |i: usize| i as u64 % u64::from(of) == u64::from(number) - 1;
    if args.dry_run {
        return list(args, &plan, mine, out);
    }
    let Some(dir) = &args.out else { return Err(Failure("--out is needed".to_owned())) };
    // Traces lie anywhere, in the directory of the results too.
    let shard = format!("shard-{number}-of-{of}.jsonl");
    let written = [dir.join("sweep.csv"), dir.join("sweep.jsonl"), dir.join(shard)];
    let read = plan.cells.iter().flat_map(Cell::reads).chain([args.plan.as_path()]);
    outputs::refuse_same(&written.each_ref().map(PathBuf::as_path), read)?;
    if args.merge {
        return put_together(&plan, dir, args.partial, out, err);
    }
    let cells: Vec<&Cell> = plan.cells.iter().enumerate().filter(|(i, _)| mine(*i)).map(|(_, c)| c).collect();
    let failed = work(args, &cells, &plan.axes, dir, err)?;
    if failed > 0 {
        return Err(Failure(format!("{failed} of {} cells failed", cells.len())));
    }
    if of == 1 { put_together(&plan, dir, false, out, err) } else { Ok(()) }
}

fn list(args: &Args, plan: &Plan, mine: impl Fn(usize) -> bool, out: &mut dyn Write) -> Result<(), Failure> {
    let done = match &args.out {
        Some(dir) if dir.exists() => results::gather(dir)?,
        _ => Default::default(),
    };
    let mut digests = Digests::default();
    for (i, cell) in plan.cells.iter().enumerate().filter(|(i, _)| mine(*i)) {
        let mark = match done.get(&cell.name) {
            None => "",
            // Where a file is not here, nobody can say what it holds.
            Some(done) if cell.inputs(&mut digests).is_ok_and(|now| now != done.inputs) => ", out of date",
            Some(_) => ", done",
        };
        writeln!(out, "{}/{}{mark}: {}", i + 1, plan.cells.len(), cell.name)?;
    }
    Ok(())
}

/// Runs what is not done yet. Returns how many cells failed.
fn work(
    args: &Args,
    cells: &[&Cell],
    axes: &[String],
    dir: &Path,
    err: &mut dyn Write,
) -> Result<usize, Failure> {
    let mut shard = Shard::open(dir, args.shard.0, args.shard.1)?;
    // Whichever shard did it: the parts may have been others before.
    let before = results::gather(dir)?;
    let mut digests = Digests::default();
    let mut todo = Vec::new();
    for cell in cells {
        let inputs = cell.inputs(&mut digests)?;
        match before.get(&cell.name) {
            Some(done) if done.inputs == inputs => {}
            Some(_) => {
                let what = "was run by another version or build, or on other files; give another directory, or remove its line";
                return Err(Failure::at(dir, format!("{} {what}", cell.name)));
            }
            None => todo.push((*cell, inputs)),
        }
    }
    if todo.len() < cells.len() {
        writeln!(err, "{} of {} cells are done already", cells.len() - todo.len(), cells.len())?;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = args.jobs.map_or(cores, NonZeroUsize::get).min(todo.len());
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let bar = progress(todo.len() as u64);
    let mut failed = 0;
    std::thread::scope(|scope| {
        let (send, results) = mpsc::channel();
        for _ in 0..workers {
            let (send, todo, next, stop) = (send.clone(), &todo, &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Some((cell, inputs)) = todo.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    // Nobody listens any more only where the writing has failed.
                    if send.send((cell, one(cell, inputs))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut written = 0;
        for (cell, (notes, result)) in results {
            let done = bar.suspend(|| tell(&cell.name, &notes, &result, err)).and_then(|()| match &result {
                Ok(done) => shard.push(done),
                Err(_) => Ok(()),
            });
            if let Err(e) = done {
                // What the workers are at now is lost; nothing more is begun.
                stop.store(true, Ordering::Relaxed);
                return Err(e);
            }
            failed += usize::from(result.is_err());
            written += 1;
            bar.inc(1);
            if bar.is_hidden() && result.is_ok() {
                writeln!(err, "{written} of {}: {}", todo.len(), cell.label(axes))?;
            }
        }
        bar.finish_and_clear();
        Ok(failed)
    })
}

/// Says what people should know about a cell.
fn tell(
    name: &Name,
    notes: &str,
    result: &Result<Done, Failure>,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    for note in notes.lines() {
        writeln!(err, "{name}: {note}")?;
    }
    if let Err(Failure(what)) = result {
        writeln!(err, "fs2-replay: {name}: {what}")?;
    }
    Ok(())
}

fn progress(cells: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(cells), ProgressDrawTarget::hidden());
    if std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} cells, {elapsed}, {eta} left") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

/// Runs a cell. Notes for people, and the result.
fn one(cell: &Cell, inputs: &Inputs) -> (String, Result<Done, Failure>) {
    let mut notes = Vec::new();
    let done = super::run::compute(&cell.args, false, &mut notes).and_then(|results| {
        let figures = super::run::report::figures(&cell.args, &results);
        let mut result = serde_json::to_value(figures).map_err(|e| Failure(e.to_string()))?;
        if let Some(map) = result.as_object_mut() {
            map.insert("trace".to_owned(), cell.name.trace.clone().into());
            // Files as the plan calls them: where they lie is this machine's.
            for file in ["drive", "free-map", "train"] {
                if let Some(said) = cell.name.options.get(file) {
                    map["options"][file] = said.clone().into();
                }
            }
        }
        Ok(Done { cell: cell.name.clone(), inputs: inputs.clone(), result })
    });
    (String::from_utf8_lossy(&notes).into_owned(), done)
}

fn put_together(
    plan: &Plan,
    dir: &Path,
    partial: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    let all = results::gather(dir)?;
    results::refuse_mixed(plan, &all).map_err(|Failure(what)| Failure::at(dir, what))?;
    let merged = results::merge(plan, &all);
    if let Some(first) = merged.missing.first() {
        let what =
            format!("{} of {} cells are not there yet: {first}", merged.missing.len(), plan.cells.len());
        if !partial {
            return Err(Failure::at(dir, format!("{what}; --partial does without")));
        }
        writeln!(err, "fs2-replay: {what}")?;
    }
    if merged.foreign > 0 {
        writeln!(err, "fs2-replay: {} results are not of this plan and left out", merged.foreign)?;
    }
    for (name, text) in [("sweep.jsonl", &merged.jsonl), ("sweep.csv", &merged.csv)] {
        let path = dir.join(name);
        NewFile::create(&path)?.write(text)?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read_and_wrong_ones_refused() {
        assert_eq!(parse_shard("1/1"), Ok((1, 1)));
        assert_eq!(parse_shard("3/4"), Ok((3, 4)));
        for wrong in ["", "0/1", "2/1", "1", "1/0", "a/b", "-1/2", "1/2/3"] {
            assert!(parse_shard(wrong).is_err(), "{wrong}");
        }
    }

    /// A figure that `run` prints and the table has no column for is a column forgotten.
    #[test]
    fn every_figure_has_a_column() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let trace = dir.path().join("a.txt");
        std::fs::write(&trace, "0.5 D R 64 8 7 a\n").expect("the scratch directory can be written");
        let trace = trace.to_str().expect("text");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = ["fs2-replay", "run", trace, "--runs", "1", "--policy", "none", "--json"];
        assert_eq!(super::super::run(args.map(Into::into), &mut out, &mut err), 0);
        let json: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        let run = json["policies"][0]["runs"][0].as_object().expect("a run");
        let mut printed: Vec<_> = run.keys().map(String::as_str).collect();
        let mut columns: Vec<_> = results::OF_A_RUN.into_iter().chain(["share_percent"]).collect();
        printed.sort_unstable();
        columns.sort_unstable();
        assert_eq!(printed, columns);
    }
}
