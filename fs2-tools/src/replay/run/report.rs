//! What a replay cost, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use fs2_sim::replay::{Bound, Run};
use serde::Serialize;

use super::options::{self, Input, Options, Process};
use super::{Args, Failure, Replayed, Results};
use crate::replay::profile;

/// Figures of a run; milliseconds are means. Of nothing there is none.
#[derive(Clone, Debug, Serialize)]
pub(in crate::replay) struct RunFigures {
    pub(in crate::replay) run: usize,
    pub(in crate::replay) requests: u64,
    pub(in crate::replay) reads: u64,
    pub(in crate::replay) reads_from_copies: u64,
    pub(in crate::replay) failed: u64,
    pub(in crate::replay) elapsed_s: f64,
    pub(in crate::replay) behind_s: f64,
    pub(in crate::replay) queue_max: u64,
    pub(in crate::replay) wait_ms: Option<f64>,
    pub(in crate::replay) wait_behind_copies_ms: Option<f64>,
    pub(in crate::replay) response_ms: Option<f64>,
    pub(in crate::replay) response_reads_ms: Option<f64>,
    pub(in crate::replay) p99_response_ms: Option<f64>,
    pub(in crate::replay) t_a_ms: Option<f64>,
    pub(in crate::replay) t_a_reads_ms: Option<f64>,
    pub(in crate::replay) t_s_ms: Option<f64>,
    pub(in crate::replay) t_r_ms: Option<f64>,
    pub(in crate::replay) t_t_ms: Option<f64>,
    pub(in crate::replay) t_s_reads_ms: Option<f64>,
    pub(in crate::replay) t_r_reads_ms: Option<f64>,
    pub(in crate::replay) t_t_reads_ms: Option<f64>,
    pub(in crate::replay) p99_ms: Option<f64>,
    pub(in crate::replay) p99_reads_ms: Option<f64>,
    pub(in crate::replay) cache_hit_percent: Option<f64>,
    pub(in crate::replay) busy_percent: Option<f64>,
    pub(in crate::replay) energy_mj_per_access: Option<f64>,
    pub(in crate::replay) energy_total_j: f64,
    pub(in crate::replay) copy_percent: Option<f64>,
    pub(in crate::replay) own_read_percent: Option<f64>,
    pub(in crate::replay) replicas: u64,
    /// (none − this) / (none − B2o) of reads' T_A, percent; absent where there is nothing to win.
    pub(in crate::replay) share_percent: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::replay) struct PolicyFigures {
    pub(in crate::replay) name: String,
    pub(in crate::replay) runs: Vec<RunFigures>,
    pub(in crate::replay) single_pass: RunFigures,
    /// Runs until 90 % of the last run's gain over the first.
    pub(in crate::replay) warm_up_runs: Option<usize>,
}

impl PolicyFigures {
    /// The first run that has requests.
    pub(in crate::replay) fn first(&self) -> Option<&RunFigures> {
        self.runs.iter().find(|r| r.requests > 0)
    }

    /// The last one.
    pub(in crate::replay) fn last(&self) -> Option<&RunFigures> {
        self.runs.iter().rfind(|r| r.requests > 0)
    }
}

/// Bounds of a run, ms a read.
#[derive(Clone, Debug, Serialize)]
pub(in crate::replay) struct BoundFigures {
    pub(in crate::replay) reads: u64,
    pub(in crate::replay) reused_percent: Option<f64>,
    pub(in crate::replay) reused_w_percent: Option<f64>,
    pub(in crate::replay) in_order_percent: Option<f64>,
    pub(in crate::replay) b0: Option<f64>,
    pub(in crate::replay) b1: Option<f64>,
    pub(in crate::replay) b2_reuse: Option<f64>,
    pub(in crate::replay) b2_reuse_w: Option<f64>,
    pub(in crate::replay) b2_reuse_strict: Option<f64>,
    pub(in crate::replay) b2_reuse_w_strict: Option<f64>,
    pub(in crate::replay) b2_order: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::replay) struct BoundsOfRuns {
    /// The last run's.
    #[serde(flatten)]
    pub(in crate::replay) last: BoundFigures,
    pub(in crate::replay) runs: Vec<BoundFigures>,
    pub(in crate::replay) single_pass: BoundFigures,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::replay) struct Figures {
    pub(in crate::replay) trace: Vec<String>,
    pub(in crate::replay) drive: String,
    pub(in crate::replay) scheduler: String,
    pub(in crate::replay) depth: u16,
    pub(in crate::replay) belief: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::replay) without: Vec<String>,
    pub(in crate::replay) pace: String,
    pub(in crate::replay) space_percent: f64,
    pub(in crate::replay) volume_bytes: u64,
    pub(in crate::replay) stretch: u32,
    /// Sectors that the drive has by its profile, where it was extended to hold the volume.
    pub(in crate::replay) extended_from_sectors: Option<u64>,
    #[serde(skip)]
    pub(in crate::replay) extended: Option<String>,
    pub(in crate::replay) skipped: u64,
    /// Requests of a pass that were moved to the time of the one before.
    pub(in crate::replay) out_of_order: u64,
    /// Reads of a pass that do not begin and end with blocks of the volume, percent.
    pub(in crate::replay) reads_in_part_percent: Option<f64>,
    /// By how many sectors a device's addresses are moved up, where they are.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::replay) moved_up_sectors: BTreeMap<String, u64>,
    /// What somebody who looks at the figures alone has to know.
    #[serde(skip)]
    pub(in crate::replay) notes: Vec<String>,
    pub(in crate::replay) policies: Vec<PolicyFigures>,
    pub(in crate::replay) bounds: BoundsOfRuns,
    /// Of this program.
    pub(in crate::replay) version: &'static str,
    /// Files that were read, where one is to know them by their contents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::replay) inputs: Vec<Input>,
    pub(in crate::replay) options: Options,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::replay) process: Option<Process>,
}

/// To a thousandth: what a table shows and what two machines agree on.
fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

fn share(none: Option<&Run>, run: &Run, bound: Option<&Bound>) -> Option<f64> {
    let (none, bound) = (none?, bound?);
    if none.reads_split.count == 0 || run.reads_split.count == 0 {
        return None;
    }
    let none = none.t_a_reads_ms();
    let room = none - bound.mean_ms(bound.b2_order);
    // Below a hundredth of an access there is nothing to win, and a share of nothing says nothing.
    (room > none / 100.0).then(|| round(100.0 * (none - run.t_a_reads_ms()) / room))
}

fn run_figures(number: usize, run: &Run, none: Option<&Run>, bound: Option<&Bound>) -> RunFigures {
    // The mean of nothing is no number: a run without requests, reads or accesses has none.
    let of_requests = |x: f64| (run.requests > 0).then(|| round(x));
    let of_accesses = |x: f64| (run.split.count > 0).then(|| round(x));
    let of_reads = |x: f64| (run.reads_split.count > 0).then(|| round(x));
    let of_sectors = |x: f64| (run.sectors > 0).then(|| round(x));
    let [t_s_reads_ms, t_r_reads_ms, t_t_reads_ms] = run.parts_reads_ms().map(of_reads);
    RunFigures {
        run: number,
        requests: run.requests,
        reads: run.reads,
        reads_from_copies: run.reads_from_copies,
        failed: run.failed,
        elapsed_s: round(run.elapsed.as_secs_f64()),
        behind_s: round(run.behind.as_secs_f64()),
        queue_max: run.queue_max,
        wait_ms: of_requests(run.wait_ms()),
        wait_behind_copies_ms: of_requests(
            run.wait_behind_copies.as_millis_f64() / run.requests.max(1) as f64,
        ),
        response_ms: of_requests(run.response_ms()),
        response_reads_ms: (run.reads > 0).then(|| round(run.response_reads_ms())),
        p99_response_ms: of_requests(run.response.quantile(990).as_millis_f64()),
        t_a_ms: of_accesses(run.t_a_ms()),
        t_a_reads_ms: of_reads(run.t_a_reads_ms()),
        t_s_ms: of_accesses(run.t_s_ms()),
        t_r_ms: of_accesses(run.t_r_ms()),
        t_t_ms: of_accesses(run.t_t_ms()),
        t_s_reads_ms,
        t_r_reads_ms,
        t_t_reads_ms,
        p99_ms: of_accesses(run.access.quantile(990).as_millis_f64()),
        p99_reads_ms: of_reads(run.access_reads.quantile(990).as_millis_f64()),
        cache_hit_percent: of_reads(run.cache_hit_percent()),
        busy_percent: of_requests(run.busy_percent()),
        energy_mj_per_access: of_accesses(run.energy_mj_per_access()),
        energy_total_j: round(run.energy_total_j()),
        copy_percent: of_sectors(run.copy_percent()),
        own_read_percent: of_sectors(100.0 * run.own_read_sectors as f64 / run.sectors.max(1) as f64),
        replicas: run.replicas,
        share_percent: share(none, run, bound),
    }
}

fn bound_figures(b: &Bound) -> BoundFigures {
    let ms = |sum| (b.reads > 0).then(|| round(b.mean_ms(sum)));
    let percent = |n: u64| (b.reads > 0).then(|| round(100.0 * n as f64 / b.reads as f64));
    BoundFigures {
        reads: b.reads,
        reused_percent: percent(b.reused),
        reused_w_percent: percent(b.reused_w),
        in_order_percent: percent(b.in_order),
        b0: ms(b.b0),
        b1: ms(b.b1),
        b2_reuse: ms(b.b2_reuse),
        b2_reuse_w: ms(b.b2_reuse_w),
        b2_reuse_strict: ms(b.b2_reuse_strict),
        b2_reuse_w_strict: ms(b.b2_reuse_w_strict),
        b2_order: ms(b.b2_order),
    }
}

/// The first run that has 90 % of what the last has won over the first, of those that read.
fn warm_up(runs: &[Run]) -> Option<usize> {
    let mut read = runs.iter().filter(|r| r.reads_split.count > 0).map(Run::t_a_reads_ms);
    let first = read.next()?;
    let last = read.next_back()?;
    let gain = first - last;
    if gain <= first / 100.0 {
        return None;
    }
    let won = |r: &Run| r.reads_split.count > 0 && first - r.t_a_reads_ms() >= 0.9 * gain;
    runs.iter().position(won).map(|i| i + 1)
}

/// What this process took, `begun` then.
pub(super) fn process(begun: Instant) -> Process {
    Process { memory_mib: memory_mib(), wall_s: round(begun.elapsed().as_secs_f64()) }
}

fn memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(round(kib / 1024.0))
}

fn policy_figures(p: &Replayed, results: &Results) -> PolicyFigures {
    let none = results.policies.iter().find(|p| p.name == "none");
    let runs = p.runs.iter().enumerate().map(|(i, run)| {
        let none = none.and_then(|n| n.runs.get(i));
        run_figures(i + 1, run, none, results.bounds.get(i))
    });
    let none_single = none.map(|n| &n.single_pass);
    PolicyFigures {
        name: p.name.clone(),
        runs: runs.collect(),
        single_pass: run_figures(1, &p.single_pass, none_single, Some(&results.bound_single)),
        // Without copies runs differ by what is read in them.
        warm_up_runs: if p.name == "none" { None } else { warm_up(&p.runs) },
    }
}

/// Requests that reach beyond the volume are refused at once, and take no time.
pub(super) fn beyond(results: &Results) -> Option<String> {
    let mut runs = results.policies.iter().flat_map(|p| (1..).zip(&p.runs));
    let (n, run) = runs.find(|(_, run)| run.failed > 0)?;
    let (volume, failed, requests) = (crate::mkfs2::bytes(results.volume_bytes), run.failed, run.requests);
    Some(format!(
        "{failed} of {requests} requests in run {n} failed: they reach beyond the volume's end at {volume}; is the \
         listing another volume's, or the trace the whole device's (--partition)?"
    ))
}

/// Reads in part from which on they are told of, in percent; a guess. A file system that reads blocks has none.
const IN_PART_TOLD: f64 = 5.0;

/// A copy is a block: who read a part of it has nothing to copy yet.
pub(super) fn in_part(results: &Results) -> Option<String> {
    let share = results.reads_in_part.filter(|share| *share >= IN_PART_TOLD)?;
    let block = results.block_size.bytes();
    Some(format!(
        "{share:.0} % of the reads do not begin and end with blocks of {block} bytes, as a file system's do; blocks read \
         in part are copied by schemes that read again what they copy, not by fs2-2005 and sr-array"
    ))
}

/// What is not where the trace has it.
pub(super) fn moved(results: &Results) -> impl Iterator<Item = String> {
    results.moved.iter().map(|(device, sectors)| {
        let of = if device.is_empty() { String::new() } else { format!(" of device {device}") };
        let many = if *sectors == 1 { "sector" } else { "sectors" };
        format!("the addresses{of} are moved up by {sectors} {many}, to where blocks begin (--align 0 leaves them)")
    })
}

/// All that was found, as it is printed.
pub(in crate::replay) fn figures(args: &Args, results: &Results) -> Figures {
    Figures {
        trace: args.traces.iter().map(|t| t.display().to_string()).collect(),
        drive: results.drive.clone(),
        scheduler: args.scheduler.name().to_owned(),
        depth: args.depth,
        belief: args.belief.name().to_owned(),
        without: args.without.iter().map(|p| p.name().to_owned()).collect(),
        pace: if args.closed_loop { "closed" } else { "open" }.to_owned(),
        space_percent: f64::from(args.space.get()) / 10.0,
        volume_bytes: results.volume_bytes,
        stretch: results.stretch,
        extended_from_sectors: results.extended.as_ref().map(|e| e.from),
        extended: results.extended.as_ref().map(profile::told),
        skipped: results.skipped,
        out_of_order: results.out_of_order,
        reads_in_part_percent: results.reads_in_part.map(round),
        moved_up_sectors: results.moved.iter().cloned().collect(),
        notes: [beyond(results), in_part(results)].into_iter().flatten().chain(moved(results)).collect(),
        policies: results.policies.iter().map(|p| policy_figures(p, results)).collect(),
        bounds: BoundsOfRuns {
            last: bound_figures(&results.bounds.last().copied().unwrap_or_default()),
            runs: results.bounds.iter().map(bound_figures).collect(),
            single_pass: bound_figures(&results.bound_single),
        },
        version: env!("CARGO_PKG_VERSION"),
        inputs: Vec::new(),
        options: options::options(args),
        process: None,
    }
}

/// Prints everything as one JSON object.
pub(super) fn json(figures: &Figures, out: &mut dyn Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, figures).map_err(|e| Failure(e.to_string()))?;
    writeln!(out)?;
    Ok(())
}

const HEAD: &str = "      run  requests    reads  elapsed    wait     T_A    T_A    T_s    T_r    T_t    p99  p99 of   hit  busy  energy   total  copies  replicas share
                                    s      ms  all ms  reads  reads  reads  reads  reads  resp.     %     %      mJ       J       %            %";

/// A figure of a table, or a dash.
fn cell(x: Option<f64>, digits: usize) -> String {
    x.map_or(String::from("-"), |x| format!("{x:.digits$}"))
}

fn line(out: &mut dyn Write, label: &str, f: &RunFigures) -> Result<(), Failure> {
    let share = f.share_percent.map_or(String::from("-"), |s| format!("{s:.0}"));
    writeln!(
        out,
        "{label:>9} {:>9} {:>8} {:>8.1} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>5} {:>5} {:>7} {:>7.0} {:>7} {:>9} {share:>5}",
        f.requests,
        f.reads,
        f.elapsed_s,
        cell(f.wait_ms, 3),
        cell(f.t_a_ms, 3),
        cell(f.t_a_reads_ms, 3),
        cell(f.t_s_reads_ms, 3),
        cell(f.t_r_reads_ms, 3),
        cell(f.t_t_reads_ms, 3),
        cell(f.p99_reads_ms, 2),
        cell(f.p99_response_ms, 2),
        cell(f.cache_hit_percent, 1),
        cell(f.busy_percent, 1),
        cell(f.energy_mj_per_access, 2),
        f.energy_total_j,
        cell(f.copy_percent, 2),
        f.replicas,
    )?;
    Ok(())
}

impl Figures {
    /// The options that are not as by default.
    pub(in crate::replay) fn unusual(&self) -> String {
        match options::unusual(&self.options) {
            said if said.is_empty() => "all options as by default".to_owned(),
            said => format!("options {said}"),
        }
    }

    /// How the trace was replayed, in words.
    pub(in crate::replay) fn setting(&self) -> String {
        let pace = if self.pace == "closed" { "closed loop" } else { "at the trace's pace" };
        let without = match self.without.is_empty() {
            true => String::new(),
            false => format!(", fs2 without {}", self.without.join(", ")),
        };
        format!(
            "{}, {} (depth {}), {pace}, belief {}, space {} %, {} of volume{without}",
            self.drive,
            self.scheduler,
            self.depth,
            self.belief,
            self.space_percent,
            crate::mkfs2::bytes(self.volume_bytes),
        )
    }
}

/// Of means, how much less the second is, in percent.
fn gain(base: Option<f64>, this: Option<f64>) -> Option<f64> {
    let (base, this) = (base.filter(|ms| *ms > 0.0)?, this?);
    Some(100.0 * (base - this) / base)
}

/// Prints the policies side by side, where there are several: their last runs, beside that of `none` or else of the first.
fn comparison(figures: &Figures, out: &mut dyn Write) -> Result<(), Failure> {
    let all = &figures.policies;
    let Some(base) = all.iter().find(|p| p.name == "none").or(all.first()) else { return Ok(()) };
    let Some(of_base) = base.last().filter(|_| all.len() > 1) else { return Ok(()) };
    let names = all.iter().map(|p| p.name.chars().count()).max().unwrap_or(0).max("policy".len());
    writeln!(out, "\nlast runs (run {}), gain of each over {}", of_base.run, base.name)?;
    writeln!(out, "{:>names$}  response   gain  response   gain     T_A   gain", "")?;
    writeln!(out, "{:>names$}    all ms      %  reads ms      %   reads      %", "policy")?;
    for p in all {
        let Some(f) = p.last() else { continue };
        let beside = |of: fn(&RunFigures) -> Option<f64>| match std::ptr::eq(p, base) {
            true => "-".to_owned(),
            false => cell(gain(of(of_base), of(f)), 1),
        };
        writeln!(
            out,
            "{:>names$} {:>9} {:>6} {:>9} {:>6} {:>7} {:>6}",
            p.name,
            cell(f.response_ms, 3),
            beside(|f| f.response_ms),
            cell(f.response_reads_ms, 3),
            beside(|f| f.response_reads_ms),
            cell(f.t_a_reads_ms, 3),
            beside(|f| f.t_a_reads_ms),
        )?;
    }
    Ok(())
}

/// Prints a table for each policy, the policies beside one another, and the bounds.
pub(super) fn tables(figures: &Figures, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{} on {}", figures.trace.join(" "), figures.setting())?;
    writeln!(out, "fs2-replay {}, {}", figures.version, figures.unusual())?;
    if figures.stretch > 1 {
        writeln!(out, "the volume's groups stand {} times as far apart as recorded", figures.stretch)?;
    }
    if let Some(extended) = &figures.extended {
        writeln!(out, "{extended}")?;
    }
    if figures.skipped > 0 {
        writeln!(out, "{} lines, records or blocks of a pass were wrong and left out", figures.skipped)?;
    }
    for note in &figures.notes {
        writeln!(out, "{note}")?;
    }
    for p in &figures.policies {
        writeln!(out, "\n{}\n{HEAD}", p.name)?;
        for f in &p.runs {
            line(out, &f.run.to_string(), f)?;
        }
        line(out, "single", &p.single_pass)?;
        if let Some(n) = p.warm_up_runs {
            writeln!(out, "90 % of the last run's gain by run {n}")?;
        }
    }
    comparison(figures, out)?;
    writeln!(out, "\nbounds, ms a read")?;
    writeln!(out, "      run    reused in order      B0      B1  B2 reuse  strict  reuse-w  strict     B2o")?;
    let single = [("single".to_owned(), &figures.bounds.single_pass)];
    let runs = figures.bounds.runs.iter().enumerate().map(|(i, b)| ((i + 1).to_string(), b));
    for (label, f) in runs.chain(single) {
        writeln!(
            out,
            "{label:>9} {:>7} % {:>6} % {:>7} {:>7} {:>9} {:>7} {:>8} {:>7} {:>7}",
            cell(f.reused_percent, 1),
            cell(f.in_order_percent, 1),
            cell(f.b0, 3),
            cell(f.b1, 3),
            cell(f.b2_reuse, 3),
            cell(f.b2_reuse_strict, 3),
            cell(f.b2_reuse_w, 3),
            cell(f.b2_reuse_w_strict, 3),
            cell(f.b2_order, 3),
        )?;
    }
    if let Some(process) = &figures.process {
        let memory =
            process.memory_mib.map_or(String::new(), |mib| format!("memory: {mib:.0} MiB at the most, "));
        writeln!(out, "\n{memory}{:.1} s", process.wall_s)?;
    }
    Ok(())
}
