//! An outcome as text.

use std::io::{self, Write};

use super::runner::{Outcome, Run};
use crate::mkfs2::bytes;

/// Columns that a workload's own figures may take beside the runs.
const BESIDE_MAX: usize = 60;

/// Prints what was run, each run, the kinds of operations, and what the daemon did.
///
/// # Errors
/// The output's.
pub fn print(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let setup = &outcome.setup;
    writeln!(
        out,
        "{}, preset {}, scale {}, seed {}",
        outcome.workload, setup.preset, setup.scale, setup.seed
    )?;
    writeln!(out, "prepared in {:.1} s", outcome.prepare.as_secs_f64())?;
    if outcome.runs.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    runs(outcome, out)?;
    writeln!(out)?;
    classes(outcome, out)?;
    if outcome.runs.iter().any(|r| r.fs2.is_some()) {
        writeln!(out)?;
        daemon(outcome, out)?;
    }
    if let Some(v) = &outcome.verified {
        writeln!(out)?;
        match v.damaged {
            0 => writeln!(out, "verified: {} files, {}, as written", v.files, bytes(v.bytes))?,
            n => writeln!(out, "verified: {n} of {} files are not what was written", v.files)?,
        }
    }
    Ok(())
}

fn names(outcome: &Outcome) -> Vec<String> {
    let mut names = Vec::new();
    let (mut trained, mut counted) = (0, 0);
    for run in &outcome.runs {
        let n = if run.training { &mut trained } else { &mut counted };
        *n += 1;
        names.push(if run.training { format!("train {n}") } else { format!("run {n}") });
    }
    names
}

fn runs(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let metrics = outcome.runs.first().map(|r| r.report.metrics.clone()).unwrap_or_default();
    let heads: Vec<String> = metrics
        .iter()
        .map(|m| if m.unit.is_empty() { m.name.clone() } else { format!("{} {}", m.name, m.unit) })
        .collect();
    let width = |head: &String| head.len().max(10);
    // What does not fit beside the runs goes below them.
    let beside = heads.iter().map(|h| 2 + width(h)).sum::<usize>() <= BESIDE_MAX;
    let shown = if beside { &heads[..] } else { &[] };
    write!(out, "{:<9}{:>10}{:>10}{:>10}{:>11}{:>11}", "", "seconds", "ops", "ops/s", "MiB read", "written")?;
    for head in shown {
        write!(out, "  {head:>w$}", w = width(head))?;
    }
    writeln!(out)?;
    for (name, run) in names(outcome).iter().zip(&outcome.runs) {
        let r = &run.report;
        let (read, written) = r.bytes();
        let mib = |n: u64| n as f64 / 1048576.0;
        write!(
            out,
            "{name:<9}{:>10.2}{:>10}{:>10.1}{:>11.1}{:>11.1}",
            r.elapsed.as_secs_f64(),
            r.ops(),
            r.ops_per_second(),
            mib(read),
            mib(written)
        )?;
        for (metric, head) in r.metrics.iter().zip(shown) {
            write!(out, "  {:>w$.2}", metric.value, w = width(head))?;
        }
        writeln!(out)?;
    }
    if !beside {
        writeln!(out)?;
        for (i, head) in heads.iter().enumerate() {
            write!(out, "{head:<30}")?;
            for run in &outcome.runs {
                let value = run.report.metrics.get(i).map_or(0.0, |m| m.value);
                write!(out, "{value:>12.2}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// The last run's kinds of operations.
fn classes(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let Some(run) = outcome.runs.last() else { return Ok(()) };
    writeln!(
        out,
        "{:<24}{:>10}{:>11}{:>9}{:>9}{:>9}{:>9}",
        "last run", "ops", "mean ms", "p50", "p95", "p99", "max"
    )?;
    for class in run.report.classes.iter().filter(|c| c.ops > 0) {
        let q = |q| class.latencies.quantile_ns(q).unwrap_or(0) as f64 / 1e6;
        writeln!(
            out,
            "{:<24}{:>10}{:>11.3}{:>9.3}{:>9.3}{:>9.3}{:>9.3}",
            class.name,
            class.ops,
            class.mean_ms().unwrap_or(0.0),
            q(0.5),
            q(0.95),
            q(0.99),
            class.latencies.max_ns().unwrap_or(0) as f64 / 1e6
        )?;
    }
    Ok(())
}

fn daemon(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let used: Vec<_> = names(outcome).into_iter().zip(&outcome.runs).collect();
    if let Some(first) = used.iter().find_map(|(_, r): &(String, &Run)| r.fs2.as_ref()) {
        writeln!(
            out,
            "FS2: policy {}, drive {}; parts {}; energy {}",
            first.policy, first.drive, first.source, first.energy_source
        )?;
    }
    let heads = ["reads", "replica", "read ms", "T_s", "T_r", "T_t", "J", "copies"];
    write!(out, "{:<9}", "")?;
    for head in heads {
        write!(out, "{head:>9}")?;
    }
    writeln!(out)?;
    let number = |n: Option<f64>| n.map_or_else(|| "-".into(), |n| format!("{n:.2}"));
    for (name, run) in used {
        let Some(u) = &run.fs2 else { continue };
        writeln!(
            out,
            "{name:<9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            u.reads,
            u.reads_from_replica,
            number(u.access_ms),
            number(u.seek_ms),
            number(u.rotation_ms),
            number(u.transfer_ms),
            number(u.energy_j),
            u.copies_written
        )?;
    }
    Ok(())
}
