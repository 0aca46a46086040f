//! `fs2-replay run`: a trace under one or more policies over a modelled drive.
//!
//! Every policy gets a fresh volume, the same drive and the same runs; `docs/evaluation.md` says what each
//! figure means.

mod options;
mod passes;
pub(super) mod report;
mod volume;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fs2_block::{BlockSize, Nanos, Permille};
use fs2_disk::{DriveProfile, Extended, Power, Scheduler};
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{
    Belief, Bound, Bounds, FreeMap, Pace, ReadSet, Replay, Run, Samples, Scheme, Settings,
};
use fs2_trace::TraceError;

use super::Failure;
use super::html;
use super::info::thousands;
use super::input::{ReadArgs, refuse_once};
use super::profile::{load, told};
use crate::mkfs2::parse_percent;
use crate::new_file::NewFile;
use crate::outputs;
use passes::{Passes, in_time};
use volume::{free_map, no_volume, stretch_of, used};

const EXAMPLES: &str = "\
Examples:
  fs2-replay run cvs.blktrace.* --free-map cvs.dumpe2fs --closed-loop
      a trace recorded on a volume whose free blocks are known, under none, fs2-2005 and fs2
  fs2-replay run web.spc.gz --used 60% --drive nearline-hc310 --policy none,fs2 --runs 3 --json
      free blocks drawn: 60 % of the volume in use
  fs2-replay run cvs.txt --free-map cvs.dumpe2fs --closed-loop --split 0,9,25
      a trace that holds its own repeats: three runs in one pass
  fs2-replay run sda.blktrace.* --partition 2048,976771072 --free-map sda1.dumpe2fs --closed-loop
      a whole device was traced: what lies within the partition that holds the volume
  fs2-replay run cvs.txt --free-map cvs.dumpe2fs --closed-loop --policy none,fs2 --without trails,gate
      what fs2 is without two of its parts
  fs2-replay run web.spc.gz --used 60% --html web.html
      with a page: addresses over time, seek distances, what an access takes, how copies grow

T_A and its parts T_s, T_r and T_t are means over accesses at the drive, wait and response over requests: \
a flush may have no access, a request in pieces has several. docs/evaluation.md has every figure.";

/// Replay a trace through the engine over a modelled drive, under one or more policies
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The trace; several files are parts of one trace (blktrace's, one for each processor)
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The drive: a built-in profile's name, or a profile in a file
    #[arg(long, value_name = "PROFILE", default_value = "wd800-repaired")]
    drive: PathBuf,
    /// Policies, in the order of the report: none, fs2-2005, fs2, torture, a scheme of the literature, or all of
    /// them but torture
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "none,fs2-2005,fs2")]
    policy: Vec<Policies>,
    /// Which waiting request goes next: fcfs, sstf, c-look or sptf
    #[arg(long, value_name = "NAME", default_value = "fcfs")]
    scheduler: Scheduler,
    /// Requests the drive takes at a time; it serves what it has in the order soonest reached
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Share of the volume that may hold replicas
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_percent)]
    space: Permille,
    /// Passes over the trace; 7, or 1 where --split makes runs of one pass
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// Free blocks of the traced volume: what dumpe2fs printed, compressed or not
    #[arg(long, value_name = "FILE", conflicts_with = "used")]
    free_map: Option<PathBuf>,
    /// Draw the free blocks of an aged volume with this share in use (60% without --free-map)
    #[arg(long, value_name = "SHARE", value_parser = parse_percent)]
    used: Option<Permille>,
    /// Move each device's addresses up by so many sectors, 0 to 7, so that the blocks of its file system are the volume's
    /// [default: what most reads ask for, as 1 where a partition begins at sector 63]
    #[arg(long, value_name = "SECTORS", conflicts_with = "free_map", value_parser = clap::value_parser!(u64).range(0..8))]
    align: Option<u64>,
    /// Each request arrives when the one before it was answered and its think time has passed
    #[arg(long)]
    closed_loop: bool,
    /// With --closed-loop: requests outstanding at a time
    #[arg(long, value_name = "N", default_value = "1", requires = "closed_loop", value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// With --closed-loop: gaps shorter than the first count as service, longer than the second as that
    #[arg(long, value_name = "FROM,TO", default_value = "5ms,100ms", requires = "closed_loop", value_parser = parse_think)]
    think: (Nanos, Nanos),
    /// Idle time between runs
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    idle_between: Nanos,
    /// Seconds of the trace at which its own repeats begin: each is a run
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', value_parser = parse_seconds)]
    split: Vec<Nanos>,
    /// Replay this trace first, once, and report nothing of it
    #[arg(long, value_name = "TRACE", value_delimiter = ',')]
    train: Vec<PathBuf>,
    /// What the engine is told about the drive: equal, mismatched, seek-only, nothing, or equal but for a write-cache
    #[arg(long, value_name = "BELIEF", default_value = "equal")]
    belief: Belief,
    /// Leave these parts of the policy fs2 out, to see what each is worth (docs/policy.md)
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    without: Vec<Part>,
    /// Move the volume's block groups apart until it fills the drive, or so many times as far
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, default_missing_value = "fill", value_parser = parse_stretch)]
    stretch: Option<u32>,
    /// At most so many requests of each pass
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Seed of whatever is drawn: free blocks, what a mismatched drive hides
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write a page with pictures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    pub(super) read: ReadArgs,
}

pub(super) fn parse_time(text: &str) -> Result<Nanos, String> {
    let wrong = || format!("'{text}' is no time; give one like 60s, 500ms or 2m");
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let ms = match unit {
        "us" => 0.001,
        "ms" => 1.0,
        "s" | "" => 1000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return Err(wrong()),
    };
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    // A month at most: nothing above it can be meant.
    match value * ms {
        ms if (0.0..=2.7e9).contains(&ms) => Ok(Nanos::from_millis_f64(ms)),
        ms if ms > 0.0 => Err(format!("'{text}' is longer than a month, the most that is taken")),
        _ => Err(wrong()),
    }
}

/// 0: until it fills the drive.
fn parse_stretch(text: &str) -> Result<u32, String> {
    match text.parse() {
        _ if text == "fill" => Ok(0),
        Ok(0) => Err("give 1 or more, or no number to fill the drive".into()),
        n => n.map_err(|_| format!("'{text}' is no whole number")),
    }
}

fn parse_seconds(text: &str) -> Result<Nanos, String> {
    parse_time(&format!("{}s", text.trim()))
}

fn parse_think(text: &str) -> Result<(Nanos, Nanos), String> {
    let (from, to) = text.split_once(',').ok_or("give two times, like 5ms,100ms")?;
    let (from, to) = (parse_time(from)?, parse_time(to)?);
    if from <= to { Ok((from, to)) } else { Err("the first time is the shorter one".into()) }
}

/// A policy's name, or all of them.
#[derive(Clone, Copy, Debug)]
enum Policies {
    All,
    One(Scheme),
}

impl std::str::FromStr for Policies {
    type Err = String;

    fn from_str(s: &str) -> Result<Policies, String> {
        match s {
            "all" => Ok(Policies::All),
            name => name.parse().map(Policies::One),
        }
    }
}

fn policies(args: &Args) -> Vec<Scheme> {
    let of = |p: &Policies| match p {
        Policies::All => Scheme::ALL.to_vec(),
        Policies::One(scheme) => vec![*scheme],
    };
    let mut all: Vec<Scheme> = Vec::new();
    for scheme in args.policy.iter().flat_map(of) {
        // Twice the same says nothing new.
        if !all.contains(&scheme) {
            all.push(scheme);
        }
    }
    all
}

/// One policy's runs.
pub(super) struct Replayed {
    pub(super) name: String,
    pub(super) runs: Vec<Run>,
    pub(super) single_pass: Run,
    /// Of each run, where they were asked for; only the first and the last have dots.
    pub(super) samples: Vec<Samples>,
}

/// What the report is made of.
pub(super) struct Results {
    pub(super) drive: String,
    pub(super) power: Power,
    /// Where the volume is larger than the drive.
    pub(super) extended: Option<Extended>,
    pub(super) volume_bytes: u64,
    pub(super) block_size: BlockSize,
    pub(super) stretch: u32,
    pub(super) skipped: u64,
    pub(super) out_of_order: u64,
    /// Devices whose addresses are moved up, and by how many sectors.
    pub(super) moved: Vec<(String, u64)>,
    /// Reads of a pass that do not begin and end with blocks, in percent.
    pub(super) reads_in_part: Option<f64>,
    pub(super) policies: Vec<Replayed>,
    pub(super) bounds: Vec<Bound>,
    pub(super) bound_single: Bound,
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let begun = Instant::now();
    if let Some(page) = &args.html {
        if page.as_os_str() == "-" {
            return Err(Failure("--html - : a page goes to a file, figures to standard output".to_owned()));
        }
        let inputs = args.traces.iter().chain(&args.train).chain(&args.free_map).chain([&args.drive]);
        outputs::refuse_same(&[page], inputs.map(PathBuf::as_path))?;
    }
    // What cannot be written is known before hours have gone by.
    let page = args.html.as_deref().map(NewFile::create).transpose()?;
    let inputs = if args.json { options::inputs(args)? } else { Vec::new() };
    let results = compute(args, page.is_some(), err)?;
    let mut figures = report::figures(args, &results);
    figures.inputs = inputs;
    figures.process = Some(report::process(begun));
    if let Some(page) = page {
        page.write(&html::page(&figures, &results))?;
    }
    if args.json { report::json(&figures, out) } else { report::tables(&figures, out) }
}

/// What each value of --split cannot tell.
pub(super) fn check_split(args: &Args) -> Result<(), Failure> {
    if let [from] = args.split[..] {
        let from = from.as_secs_f64();
        return Err(Failure(format!(
            "--split {from}: one run alone; give the time at which each begins, two at least"
        )));
    }
    match args.split.windows(2).any(|w| w[0] >= w[1]) {
        true => Err(Failure("--split: the times must ascend".into())),
        false => Ok(()),
    }
}

/// Replays; `pictures` says whether to keep what they are drawn from. Notes for people go to `err`.
///
/// # Errors
/// A trace, listing or drive that is none, a volume that cannot be, options that contradict one another.
pub(super) fn compute(args: &Args, pictures: bool, err: &mut dyn Write) -> Result<Results, Failure> {
    let mut drive = load(&args.drive)?;
    refuse_once(args.traces.iter().chain(&args.train), "a trace is read once for each run")?;
    check_split(args)?;
    let policies = policies(args);
    if !args.without.is_empty() && !policies.contains(&PolicyKind::Fs2.into()) {
        return Err(Failure("--without leaves parts of fs2 out, which is not among the policies".into()));
    }
    let of_block = u64::from(BlockSize::B4096.bytes());
    let moved = match args.free_map {
        // Its addresses are known.
        Some(_) => Vec::new(),
        None => args.read.align(&[&args.traces, &args.train], limit(args), of_block, args.align)?,
    };
    // Learnt of one device, used on another: the same name is to be the same place.
    args.read.place(&[&args.traces, &args.train], limit(args))?;
    let (map, seen) = free_map(args, err)?;
    let stretch = stretch_of(args.stretch, &map, &drive)?;
    let volume_bytes = map.stretched_bytes(stretch);
    let extended = drive.fit(volume_bytes / 512);
    if let Some(extended) = &extended {
        let instead = "take a larger --drive, put devices side by side (--pack), or choose one (--device)";
        writeln!(err, "fs2-replay: {}: {}; {instead}", drive.name(), told(extended))?;
    }
    if args.belief == Belief::Mismatched && drive.has_own_mapping() {
        let what = "sectors lie by its own mapping, so that the engine is told its true zones and skews; the rest is mismatched";
        writeln!(err, "fs2-replay: {}: {what}", drive.name())?;
    }
    let mut results = Results {
        drive: drive.name().to_owned(),
        power: drive.power(),
        extended,
        block_size: map.block_size,
        volume_bytes,
        stretch,
        skipped: 0,
        out_of_order: 0,
        moved,
        reads_in_part: (seen.reads > 0).then(|| 100.0 * seen.in_part as f64 / seen.reads as f64),
        policies: Vec::new(),
        bounds: Vec::new(),
        bound_single: Bound::default(),
    };
    let trace = Passes::new(args);
    bounds(args, &trace, &drive, &map, &mut results, err)?;
    let known = match policies.iter().any(|p| p.needs_known_reads()) {
        true => Some(Arc::new(known_reads(args, &map)?)),
        false => None,
    };
    for policy in policies {
        results.policies.push(replay(args, &trace, policy, known.clone(), &drive, &map, stretch, pictures)?);
    }
    // Its bar is away before anything is said.
    drop(trace);
    let notes = [overloaded(args, &results), report::beyond(&results), report::in_part(&results)];
    for told in notes.into_iter().flatten().chain(report::moved(&results)) {
        writeln!(err, "fs2-replay: {told}")?;
    }
    Ok(results)
}

/// A response so many times as long at a run's end as at its begin: the queue has grown all along. A guess; a queue that is
/// empty at first is in the last tenth nineteen times as long as in the first.
const GROWN: u64 = 4;

/// Where requests come faster than the drive serves them: then waits say how long the trace is, not how good the
/// order. It is taken to be so where a mean wait is above a second and the drive never rests, or hardly and the queue grows; guesses.
fn is_overloaded(run: &Run) -> bool {
    let grows = || run.response_course.ends().is_some_and(|[first, last]| last.0 / GROWN > first.0);
    run.wait_ms() > 1000.0 && (run.busy_percent() > 99.0 || run.busy_percent() > 90.0 && grows())
}

fn overloaded(args: &Args, results: &Results) -> Option<String> {
    let mut runs = results.policies.iter().flat_map(|p| (1..).zip(&p.runs).map(move |(n, r)| (p, n, r)));
    let (p, n, run) = runs.find(|(_, _, run)| is_overloaded(run))?;
    let wait = run.wait_ms() / 1000.0;
    let what = format!(
        "the drive cannot keep up with the trace: by run {n} of {} requests wait for {wait:.1} s",
        p.name
    );
    let (most, behind) = (thousands(run.queue_max), run.behind.as_secs_f64());
    let grown = format!("up to {most} at a time, and it ends {behind:.0} s after the last has come");
    let then = "--closed-loop sends each after the answer to the one before; or take a faster --drive";
    (!args.closed_loop).then(|| format!("{what} in the mean, {grown}; {then}"))
}

fn open(args: &Args, paths: &[PathBuf]) -> Result<fs2_trace::Stream, Failure> {
    args.read.open(paths, false)
}

fn bad_trace(e: TraceError) -> Failure {
    Failure(e.to_string())
}

fn limit(args: &Args) -> usize {
    args.limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}

fn pace(args: &Args) -> Pace {
    if !args.closed_loop {
        return Pace::Open;
    }
    Pace::Closed { clients: usize::from(args.clients), think_min: args.think.0, think_max: args.think.1 }
}

/// Passes whose bounds are computed. In those that follow the same was read before and in the same order as in the
/// last of these; only the angle at which the drive's platter begins differs.
const BOUND_PASSES: u16 = 3;

fn passes(args: &Args) -> u16 {
    args.runs.unwrap_or(if args.split.len() > 1 { 1 } else { 7 })
}

/// What the trace reads, for schemes that are told beforehand.
fn known_reads(args: &Args, map: &FreeMap) -> Result<ReadSet, Failure> {
    let mut known = ReadSet::new(map.block_size);
    for record in open(args, &args.traces)?.take(limit(args)) {
        let record = record.map_err(bad_trace)?;
        known.see(record.op, record.extent);
    }
    Ok(known)
}

#[allow(clippy::too_many_arguments)]
fn replay(
    args: &Args,
    trace: &Passes<'_>,
    policy: Scheme,
    known: Option<Arc<ReadSet>>,
    drive: &DriveProfile,
    map: &FreeMap,
    stretch: u32,
    pictures: bool,
) -> Result<Replayed, Failure> {
    let fresh = || -> Result<Replay, Failure> {
        let mut s = Settings::new(drive.clone()).with_belief(args.belief, args.seed).with_scheme(policy);
        s.known = known.clone();
        (s.pace, s.depth, s.stretch) = (pace(args), usize::from(args.depth), stretch);
        (s.engine.scheduler, s.engine.space, s.engine.seed) = (args.scheduler, args.space, args.seed);
        if policy == PolicyKind::Fs2.into() {
            s.engine.without = args.without.iter().copied().collect();
        }
        let mut replay = Replay::new(map, s).map_err(|e| no_volume(args, map, &e))?;
        if policy.needs_known_reads() {
            replay.prepare();
        }
        if !args.train.is_empty() {
            let mut records = open(args, &args.train)?.take(limit(args));
            in_time(args, &mut records, |records| replay.run(records).map(drop).map_err(bad_trace))?;
            replay.idle(args.idle_between);
        }
        Ok(replay)
    };
    let mut replay = fresh()?;
    if pictures {
        replay.keep_samples(html::DOTS_MAX);
    }
    let (mut runs, mut samples) = (Vec::new(), Vec::<Samples>::new());
    trace.each_run(passes(args), &args.split, |records| {
        replay.run(records).map_err(bad_trace)?;
        replay.idle(args.idle_between);
        runs.push(replay.last_run().clone());
        if let [_, .., middle] = samples.as_mut_slice() {
            middle.forget_dots();
        }
        samples.extend(replay.last_samples().cloned());
        Ok(())
    })?;
    drop(replay);
    let mut single_pass = runs.first().cloned().unwrap_or_default();
    if args.split.len() > 1 {
        let mut replay = fresh()?;
        trace.each_run(1, &[], |records| {
            replay.run(records).map_err(bad_trace)?;
            replay.idle(args.idle_between);
            single_pass = replay.last_run().clone();
            Ok(())
        })?;
    }
    Ok(Replayed { name: policy.to_string(), runs, single_pass, samples })
}

fn bounds(
    args: &Args,
    trace: &Passes<'_>,
    drive: &DriveProfile,
    map: &FreeMap,
    results: &mut Results,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    let fresh = || -> Result<Bounds, Failure> {
        // The drive that judges, which is not always the one that was named.
        let judge = args.belief.drive(drive.clone());
        let mut bounds = Bounds::new(&judge, map, results.stretch, pace(args));
        bounds.keep(args.belief.secrets(args.seed));
        if !args.train.is_empty() {
            let mut records = open(args, &args.train)?.take(limit(args));
            in_time(args, &mut records, |records| bounds.run(records).map(drop).map_err(bad_trace))?;
        }
        Ok(bounds)
    };
    let mut bounds = fresh()?;
    let mut requests = Vec::new();
    let left = trace.each_run(passes(args).min(BOUND_PASSES), &args.split, |records| {
        let mut n = 0u64;
        results.bounds.push(bounds.run(records.inspect(|_| n += 1)).map_err(bad_trace)?);
        requests.push(n);
        Ok(())
    })?;
    (results.skipped, results.out_of_order) = (left.skipped, left.late);
    if left.late > 0 {
        let moved = "requests were moved to the time of the one before: theirs was earlier";
        writeln!(err, "fs2-replay: {} {moved}", thousands(left.late))?;
    }
    if left.outside > 0 {
        writeln!(err, "fs2-replay: {} requests outside the partition are left out", thousands(left.outside))?;
    }
    // A few there always are where the recording began while requests were under way.
    if left.unmatched > requests.iter().sum::<u64>() / 100 {
        let more = "`fs2-replay info` says what that may mean";
        writeln!(err, "fs2-replay: {} completions belong to no request; {more}", thousands(left.unmatched))?;
    }
    let empty: Vec<_> = (0..args.split.len()).filter(|i| requests.get(*i) == Some(&0)).collect();
    if !requests.is_empty() && empty.len() == requests.len() {
        return Err(Failure("--split: no request of the trace lies in any of the runs".to_owned()));
    }
    for i in empty {
        let from = args.split[i].as_secs_f64();
        writeln!(
            err,
            "fs2-replay: no request in run {}, from {from} s on (--split): it has no figures",
            i + 1
        )?;
    }
    let (known, each) = (results.bounds.len(), args.split.len().max(1));
    for i in known..each * usize::from(passes(args)) {
        results.bounds.push(results.bounds[i - each]);
    }
    results.bound_single = results.bounds.first().copied().unwrap_or_default();
    if args.split.len() > 1 {
        let mut bounds = fresh()?;
        trace.each_run(1, &[], |records| {
            results.bound_single = bounds.run(records).map_err(bad_trace)?;
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_wrong_ones_refused() {
        assert_eq!(parse_time("60s"), Ok(Nanos::from_millis(60_000)));
        assert_eq!(parse_time("1.5ms"), Ok(Nanos(1_500_000)));
        assert_eq!(parse_time("2m"), Ok(Nanos::from_millis(120_000)));
        assert_eq!(parse_seconds(" 9.0"), Ok(Nanos::from_millis(9000)));
        assert_eq!(parse_think("5ms,100ms"), Ok((Nanos::from_millis(5), Nanos::from_millis(100))));
        for wrong in ["", "s", "-1s", "1d", "1e30s", "nan"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert!(parse_think("9s,1s").is_err() && parse_think("9s").is_err());
    }
}
