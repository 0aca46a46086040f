//! What was measured beside what the paper says.

use std::io::Write;

use fs2_sim::paper::{Layout, Workload};
use fs2_sim::replay::Run;
use serde::Serialize;

use super::super::Failure;
use super::{Outcome, Replayed};

/// Everything there is to print.
pub(super) struct Report<'a> {
    pub(super) drive: &'a str,
    pub(super) runs: u16,
    pub(super) layout: &'a Layout,
    pub(super) outcomes: &'a [Outcome],
}

/// A row of the paper's tables 2 to 5: per cent, less than on ext2, but for the disk's busy share.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) busy: Option<f64>,
    pub(crate) t_a: Option<f64>,
    pub(crate) t_s: Option<f64>,
    pub(crate) t_r: Option<f64>,
    /// Energy of an access.
    pub(crate) energy: Option<f64>,
    /// How long the workload takes, where it ends by itself.
    pub(crate) runtime: Option<f64>,
    /// Energy of the run, and of the copies made in the rest after it.
    pub(crate) total_energy: Option<f64>,
}

/// The paper's busy share of ext2, per cent.
pub(crate) fn paper_busy_ext2(workload: Workload) -> f64 {
    match workload {
        Workload::Tpcw => 31.0,
        Workload::Cvs => 82.0,
        Workload::X => 37.0,
        Workload::Surge => 13.0,
    }
}

/// The paper's row for a policy: tables 2 to 5, runtimes and energies from its text.
pub(crate) fn paper_row(workload: Workload, policy: &str) -> Option<Row> {
    let row = |busy, t_a, t_s, t_r, energy| Row {
        busy: Some(busy),
        t_a: Some(t_a),
        t_s: Some(t_s),
        t_r: Some(t_r),
        energy: Some(energy),
        ..Row::default()
    };
    Some(match (workload, policy) {
        (Workload::Tpcw, "fs2-static") => row(23.0, 24.0, 53.0, -1.6, 31.0),
        (_, "fs2-static") => return None,
        (Workload::Tpcw, _) => Row { total_energy: Some(6.7), ..row(17.0, 50.0, 72.0, 31.0, 55.0) },
        (Workload::Cvs, _) => {
            Row { runtime: Some(31.0), total_energy: Some(31.0), ..row(73.0, 41.0, 38.0, 53.0, 40.0) }
        }
        (Workload::X, _) => {
            Row { runtime: Some(16.0), total_energy: Some(19.0), ..row(26.0, 44.0, 53.0, 47.0, 46.0) }
        }
        (Workload::Surge, _) => Row { total_energy: Some(1.9), ..row(4.2, 69.0, 78.0, 68.0, 71.0) },
    })
}

pub(crate) fn table_of(workload: Workload) -> (u8, &'static str) {
    match workload {
        Workload::Tpcw => (2, "TPC-W"),
        Workload::Cvs => (3, "CVS update"),
        Workload::X => (4, "X and KDE"),
        Workload::Surge => (5, "SURGE"),
    }
}

/// Figures of a run; milliseconds are means of all requests, but where they say reads.
#[derive(Serialize)]
struct RunFigures {
    run: usize,
    requests: u64,
    reads: u64,
    reads_from_copies: u64,
    failed: u64,
    elapsed_s: f64,
    busy_percent: f64,
    t_a_ms: f64,
    t_s_ms: f64,
    t_r_ms: f64,
    t_t_ms: f64,
    t_a_reads_ms: f64,
    response_ms: f64,
    cache_hit_percent: f64,
    energy_mj_per_access: f64,
    energy_total_j: f64,
}

#[derive(Serialize)]
struct PolicyFigures {
    name: &'static str,
    runs: Vec<RunFigures>,
    /// The last run against the last one of none.
    improvement: Row,
    paper: Option<Row>,
    /// Improvement less the paper's, points.
    difference: Option<Row>,
    /// Whether each of T_A, T_s and T_r goes the way the paper's does.
    same_sign: Option<bool>,
    /// Whether T_A is within 15 points of the paper's.
    t_a_within_15: Option<bool>,
    copy_percent: f64,
    replicas: u64,
}

#[derive(Serialize)]
struct WorkloadFigures {
    name: &'static str,
    table: u8,
    requests: Vec<usize>,
    paper_busy_ext2_percent: f64,
    policies: Vec<PolicyFigures>,
}

#[derive(Serialize)]
struct LayoutFigures {
    free_percent: f64,
    free_runs: u64,
    mean_free_run_blocks: f64,
    free_in_runs_of_1_mib_percent: f64,
    other_files: u64,
    files: u64,
    extents: u64,
    mib: f64,
    digest: String,
}

#[derive(Serialize)]
struct All<'a> {
    drive: &'a str,
    runs: u16,
    layout: LayoutFigures,
    workloads: Vec<WorkloadFigures>,
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

fn run_figures(n: usize, run: &Run) -> RunFigures {
    RunFigures {
        run: n + 1,
        requests: run.requests,
        reads: run.reads,
        reads_from_copies: run.reads_from_copies,
        failed: run.failed,
        elapsed_s: round(run.elapsed.as_secs_f64()),
        busy_percent: round(run.busy_percent()),
        t_a_ms: round(run.t_a_ms()),
        t_s_ms: round(run.t_s_ms()),
        t_r_ms: round(run.t_r_ms()),
        t_t_ms: round(run.t_t_ms()),
        t_a_reads_ms: round(run.t_a_reads_ms()),
        response_ms: round(run.response_ms()),
        cache_hit_percent: round(run.cache_hit_percent()),
        energy_mj_per_access: round(run.energy_mj_per_access()),
        energy_total_j: round(run.energy_total_j()),
    }
}

/// Per cent that `b` is below `a`; nothing of nothing.
pub(crate) fn less(a: f64, b: f64) -> Option<f64> {
    (a > 0.0).then(|| round(100.0 * (a - b) / a))
}

fn improvement(workload: Workload, none: &Run, run: &Run) -> Row {
    let ends = matches!(workload, Workload::Cvs | Workload::X);
    Row {
        busy: Some(round(run.busy_percent())),
        t_a: less(none.t_a_ms(), run.t_a_ms()),
        t_s: less(none.t_s_ms(), run.t_s_ms()),
        t_r: less(none.t_r_ms(), run.t_r_ms()),
        energy: less(none.energy_mj_per_access(), run.energy_mj_per_access()),
        runtime: if ends { less(none.elapsed.as_secs_f64(), run.elapsed.as_secs_f64()) } else { None },
        total_energy: less(none.energy_total_j(), run.energy_total_j()),
    }
}

pub(crate) fn minus(a: &Row, b: &Row) -> Row {
    let sub = |a: Option<f64>, b: Option<f64>| Some(round(a? - b?));
    Row {
        busy: sub(a.busy, b.busy),
        t_a: sub(a.t_a, b.t_a),
        t_s: sub(a.t_s, b.t_s),
        t_r: sub(a.t_r, b.t_r),
        energy: sub(a.energy, b.energy),
        runtime: sub(a.runtime, b.runtime),
        total_energy: sub(a.total_energy, b.total_energy),
    }
}

pub(crate) fn same_sign(a: &Row, b: &Row) -> bool {
    [(a.t_a, b.t_a), (a.t_s, b.t_s), (a.t_r, b.t_r), (a.energy, b.energy)]
        .iter()
        .all(|pair| matches!(pair, (Some(a), Some(b)) if (*a > 0.0) == (*b > 0.0)))
}

fn policy_figures(workload: Workload, none: &Replayed, p: &Replayed) -> Option<PolicyFigures> {
    let name = p.scheme.name();
    let improvement = improvement(workload, none.runs.last()?, p.runs.last()?);
    let paper = if name == "none" { None } else { paper_row(workload, name) };
    Some(PolicyFigures {
        name,
        runs: p.runs.iter().enumerate().map(|(i, r)| run_figures(i, r)).collect(),
        improvement,
        difference: paper.map(|paper| minus(&improvement, &paper)),
        same_sign: paper.map(|paper| same_sign(&improvement, &paper)),
        t_a_within_15: paper.and_then(|paper| Some((improvement.t_a? - paper.t_a?).abs() <= 15.0)),
        paper,
        copy_percent: round(p.copy_percent),
        replicas: p.replicas,
    })
}

fn all<'a>(report: &Report<'a>) -> All<'a> {
    let l = report.layout;
    let percent = |a: u64, b: u64| round(100.0 * a as f64 / b.max(1) as f64);
    let workloads = report.outcomes.iter().map(|o| {
        let none = o.policies.first();
        WorkloadFigures {
            name: o.workload.name(),
            table: table_of(o.workload).0,
            requests: o.requests.clone(),
            paper_busy_ext2_percent: paper_busy_ext2(o.workload),
            policies: o.policies.iter().filter_map(|p| policy_figures(o.workload, none?, p)).collect(),
        }
    });
    All {
        drive: report.drive,
        runs: report.runs,
        layout: LayoutFigures {
            free_percent: percent(l.free, l.usable),
            free_runs: l.free_runs,
            mean_free_run_blocks: round(l.free as f64 / l.free_runs.max(1) as f64),
            free_in_runs_of_1_mib_percent: percent(l.free_in_long_runs, l.free),
            other_files: l.other_files,
            files: l.files,
            extents: l.extents,
            mib: round(l.blocks as f64 / 256.0),
            digest: format!("{:016x}", l.digest),
        },
        workloads: workloads.collect(),
    }
}

/// Prints everything as one JSON object.
pub(super) fn json(report: &Report<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, &all(report)).map_err(|e| Failure(e.to_string()))?;
    writeln!(out)?;
    Ok(())
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| format!("{:>9}", "-"), |v| format!("{v:>9.1}"))
}

pub(crate) fn line(out: &mut dyn Write, label: &str, row: &Row) -> Result<(), Failure> {
    write!(out, "{label:<22}")?;
    for value in [row.busy, row.t_a, row.t_s, row.t_r, row.energy, row.runtime, row.total_energy] {
        write!(out, "{}", cell(value))?;
    }
    writeln!(out)?;
    Ok(())
}

/// Prints the tables.
pub(super) fn tables(report: &Report<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let all = all(report);
    let l = &all.layout;
    writeln!(
        out,
        "{}; volume {:.1} % free in {} runs of {:.0} blocks on average, {:.0} % of it in runs of 1 MiB and more;\n\
         {} files of the workloads in {} extents, {:.0} MiB; digest {}",
        all.drive,
        l.free_percent,
        l.free_runs,
        l.mean_free_run_blocks,
        l.free_in_runs_of_1_mib_percent,
        l.files,
        l.extents,
        l.mib,
        l.digest,
    )?;
    for (w, o) in all.workloads.iter().zip(report.outcomes) {
        let Some(ext2) = w.policies.first().and_then(|p| p.runs.last()) else { continue };
        let name = table_of(o.workload).1;
        writeln!(out, "\nTable {}: {name}, run {}; per cent less than on ext2", w.table, all.runs)?;
        writeln!(
            out,
            "ext2: {} requests in {:.1} s, busy {:.1} % (paper {} %), T_A {:.2} ms = {:.2} + {:.2} + {:.2}, {:.1} mJ an access, {:.0} J",
            ext2.requests,
            ext2.elapsed_s,
            ext2.busy_percent,
            w.paper_busy_ext2_percent,
            ext2.t_a_ms,
            ext2.t_s_ms,
            ext2.t_r_ms,
            ext2.t_t_ms,
            ext2.energy_mj_per_access,
            ext2.energy_total_j,
        )?;
        writeln!(
            out,
            "{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            "", "busy, %", "T_A", "T_s", "T_r", "mJ", "runtime", "total J"
        )?;
        for p in w.policies.iter().skip(1) {
            line(out, p.name, &p.improvement)?;
            if let (Some(paper), Some(difference)) = (&p.paper, &p.difference) {
                line(out, "  the paper", paper)?;
                line(out, "  difference, points", difference)?;
            }
        }
        writeln!(out, "T_A of run 1, 2 … in ms:")?;
        for p in &w.policies {
            write!(out, "  {:<12}", p.name)?;
            for r in &p.runs {
                write!(out, " {:>6.3}", r.t_a_ms)?;
            }
            writeln!(
                out,
                "   {} replicas, copies {:.1} % of the last run's sectors",
                p.replicas, p.copy_percent
            )?;
        }
    }
    Ok(())
}
