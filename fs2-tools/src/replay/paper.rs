//! `fs2-replay paper`: tables 2 to 5 of the FS² paper (SOSP 2005), on a made-up volume of the paper's size and
//! age and with workloads like the paper's, beside the paper's own figures.
//!
//! The volume and the traces are `fs2_sim::paper`'s; what they cost says `fs2_sim::replay`. Why the figures
//! differ where they do is in `docs/evaluation.md`.

pub(crate) mod report;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use fs2_block::{Extent, Nanos, Op};
use fs2_disk::DriveProfile;
use fs2_engine::PolicyKind;
use fs2_sim::paper::{DEFAULT_PARAMS, Paper, Params, RunTrace, Workload};
use fs2_sim::replay::{FreeMap, ReadSet, Replay, Run, Scheme, Settings};

use super::Failure;
use super::input::Bar;
use super::profile::load;

const EXAMPLES: &str = "\
Examples:
  fs2-replay paper                              all four workloads, seven runs each: a few minutes
  fs2-replay paper --workload cvs --runs 3      one of them
  fs2-replay paper --print-params > mine.toml   what is assumed, with the source of each number
  fs2-replay paper --params mine.toml --json    the same with other assumptions";

/// The paper's evaluation on a made-up volume, beside the paper's figures
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Which of the paper's workloads: tpcw, cvs, x, surge or all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = parse_workload)]
    workload: Which,
    /// Runs of each; the last one is compared, the paper shows the 7th
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Assumptions about volume and workloads, instead of those built in
    #[arg(long, value_name = "FILE.toml")]
    params: Option<PathBuf>,
    /// Print the assumptions that are built in, and do nothing else
    #[arg(long)]
    print_params: bool,
    /// Policies beside none, which is the paper's ext2
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "fs2-static,fs2-2005,fs2")]
    policy: Vec<Scheme>,
    /// The drive: a built-in profile's name, or a profile in a file
    #[arg(long, value_name = "PROFILE", default_value = "wd800-repaired")]
    drive: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One workload or all.
#[derive(Clone, Copy, Debug)]
enum Which {
    All,
    One(Workload),
}

fn parse_workload(text: &str) -> Result<Which, String> {
    if text == "all" { Ok(Which::All) } else { text.parse().map(Which::One) }
}

/// Idle time after each run, in which copies are made.
const IDLE_BETWEEN: Nanos = Nanos::from_millis(60_000);

/// A policy's runs.
struct Replayed {
    scheme: Scheme,
    /// What each run cost, the policy's own accesses in the rest after it included.
    runs: Vec<Run>,
    /// Of the last run and the time after it.
    copy_percent: f64,
    replicas: u64,
}

/// A workload's results.
struct Outcome {
    workload: Workload,
    /// Requests of each run.
    requests: Vec<usize>,
    policies: Vec<Replayed>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    if args.print_params {
        out.write_all(DEFAULT_PARAMS.as_bytes())?;
        return Ok(());
    }
    let text = match &args.params {
        Some(path) => fs2d::text::read(path).map_err(|e| Failure::at(path, e))?,
        None => DEFAULT_PARAMS.to_owned(),
    };
    let params = Params::parse(&text).map_err(|e| match &args.params {
        Some(path) => Failure::at(path, e),
        None => Failure(e.to_string()),
    })?;
    let mut drive = load(&args.drive)?;
    // All of them are laid out whichever runs: the volume is the same.
    let paper = Paper::build(&params, &Workload::ALL).map_err(|e| Failure(e.to_string()))?;
    let (map, layout) = (paper.free_map(), paper.layout());
    if let Some(extended) = drive.fit(map.bytes() / 512) {
        writeln!(err, "fs2-replay: {extended}")?;
    }
    let workloads: Vec<Workload> = match args.workload {
        Which::All => Workload::ALL.to_vec(),
        Which::One(w) => vec![w],
    };
    let passes = workloads.len() * schemes(args).len() * usize::from(args.runs);
    let bar = Bar::of_passes(passes as u64, false);
    let mut outcomes = Vec::new();
    for workload in workloads {
        outcomes.push(one(args, &paper, workload, &drive, &map, &bar).inspect_err(|_| bar.clear())?);
    }
    bar.clear();
    let all = report::Report { drive: drive.name(), runs: args.runs, layout: &layout, outcomes: &outcomes };
    if args.json { report::json(&all, out) } else { report::tables(&all, out) }
}

/// What the others are compared with comes first.
fn schemes(args: &Args) -> Vec<Scheme> {
    let none: Scheme = PolicyKind::None.into();
    std::iter::once(none).chain(args.policy.iter().copied().filter(|s| *s != none)).collect()
}

fn one(
    args: &Args,
    paper: &Paper,
    workload: Workload,
    drive: &DriveProfile,
    map: &FreeMap,
    bar: &Bar,
) -> Result<Outcome, Failure> {
    let traces: Vec<RunTrace> =
        (1..=u64::from(args.runs)).map(|run| paper.run(workload, run, drive)).collect();
    let mut policies = Vec::new();
    for scheme in schemes(args) {
        policies.push(replay(paper, workload, scheme, &traces, drive, map, bar)?);
    }
    Ok(Outcome { workload, requests: traces.iter().map(|t| t.requests.len()).collect(), policies })
}

fn replay(
    paper: &Paper,
    workload: Workload,
    scheme: Scheme,
    traces: &[RunTrace],
    drive: &DriveProfile,
    map: &FreeMap,
    bar: &Bar,
) -> Result<Replayed, Failure> {
    let mut settings = Settings::new(drive.clone()).with_scheme(scheme);
    settings.pace = workload.pace();
    if scheme == PolicyKind::Fs2Of2005.into() {
        settings.policy = Some(Box::new(paper.fs2_2005()));
    }
    if scheme.needs_known_reads() {
        // The administrator's list: the blocks of all files that belong to the workload.
        let mut known = ReadSet::new(map.block_size);
        for blocks in paper.extents(workload) {
            let bs = map.block_size;
            known.see(Op::Read, Extent::new(bs.bytes_of(blocks.start()), bs.bytes_of(blocks.len())));
        }
        settings.known = Some(Arc::new(known));
    }
    let mut replay = Replay::new(map, settings).map_err(|e| Failure(e.to_string()))?;
    if scheme.needs_known_reads() {
        replay.prepare();
    }
    let (mut runs, mut copies, mut replicas) = (Vec::new(), 0, 0);
    for trace in traces {
        let Ok(mut run) = replay.run(trace.requests.iter().copied().map(Ok::<_, std::convert::Infallible>));
        if !trace.tail.is_empty() {
            let Ok(_) = replay.run(trace.tail.iter().copied().map(Ok::<_, std::convert::Infallible>));
            copies = run.copy_sectors;
        }
        replay.idle(IDLE_BETWEEN);
        let after = replay.last_run();
        if trace.tail.is_empty() {
            copies = after.copy_sectors;
            (run.own_joules, run.background_joules) = (after.own_joules, after.background_joules);
        } else {
            copies += after.copy_sectors;
            run.own_joules += after.own_joules;
            run.background_joules += after.background_joules;
        }
        replicas = after.replicas;
        runs.push(run);
        bar.advance(1);
    }
    let sectors = runs.last().map_or(1, |r| r.sectors.max(1));
    Ok(Replayed { scheme, runs, copy_percent: 100.0 * copies as f64 / sectors as f64, replicas })
}
