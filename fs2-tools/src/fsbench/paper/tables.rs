//! What was measured beside what the paper says, as text.

use std::io::{self, Write};

use fs2_sim::paper::Workload;

use super::super::measure::{Document, RunRecord, Summary};
use super::super::volumes::System;
use super::{Args, Measured, Outcome};
use crate::replay::paper::report::{Row, less, line, minus, paper_busy_ext2, paper_row, table_of};

/// The paper's name of a system, as its rows are looked up.
fn scheme(system: System) -> Option<&'static str> {
    match system {
        System::Ext2 => None,
        System::Static => Some("fs2-static"),
        System::Policy(_) => Some("fs2-2005"),
    }
}

/// The paper's row, where it has one; user-perceived gains of TPC-W and SURGE are of response time.
pub(super) fn of_paper(workload: Workload, system: System) -> Option<Row> {
    let row = paper_row(workload, scheme(system)?)?;
    let runtime = match (workload, system) {
        (Workload::Tpcw, System::Static) => Some(20.0),
        (Workload::Tpcw, _) => Some(34.0),
        (Workload::Surge, _) => Some(18.0),
        _ => row.runtime,
    };
    Some(Row { runtime, ..row })
}

/// What a user perceives of a run: the response time in ms where the workload has one, else its length in s.
fn perceived(workload: Workload, run: &RunRecord) -> Option<f64> {
    match workload {
        Workload::Cvs | Workload::X => Some(run.elapsed_s),
        Workload::Tpcw | Workload::Surge => {
            let response = run.figures.iter().find(|(name, _)| name.contains("response"));
            response.map(|(_, ms)| *ms)
        }
    }
}

fn unit(workload: Workload) -> &'static str {
    match workload {
        Workload::Cvs | Workload::X => "s",
        Workload::Tpcw | Workload::Surge => "ms",
    }
}

/// A figure of ext2: it does not learn, so all its runs are one sample.
fn mean(document: &Document, get: impl Fn(&RunRecord) -> Option<f64>) -> Option<f64> {
    let all: Option<Vec<f64>> = document.measured().map(get).collect();
    Summary::of(&all?).map(|s| s.mean)
}

/// A system's last run against ext2's mean, per cent less; the busy share as it is.
pub(super) fn improvement(outcome: &Outcome, measured: &Measured) -> Option<Row> {
    if measured.system == System::Ext2 {
        return None;
    }
    let ext2 = &outcome.systems.first()?.document;
    let last = measured.document.measured().last()?;
    let drive = |get: fn(&super::super::measure::DriveSpan) -> Option<f64>| {
        let from = mean(ext2, |r| get(r.drive.as_ref()?))?;
        less(from, get(last.drive.as_ref()?)?)
    };
    let workload = outcome.workload;
    let runtime = mean(ext2, |r| perceived(workload, r))
        .zip(perceived(workload, last))
        .and_then(|(from, to)| less(from, to));
    Some(Row {
        busy: last.drive.as_ref().and_then(|d| d.busy_percent),
        t_a: drive(|d| d.t_a_ms),
        t_s: drive(|d| d.t_s_ms),
        t_r: drive(|d| d.t_r_ms),
        energy: drive(|d| d.access_mj()),
        runtime,
        total_energy: mean(ext2, RunRecord::total_j_with_rest)
            .zip(last.total_j_with_rest())
            .and_then(|(from, to)| less(from, to)),
    })
}

/// How much longer the first run of a system took than ext2's, per cent.
pub(super) fn first_run_overhead(outcome: &Outcome, measured: &Measured) -> Option<f64> {
    let ext2 = mean(&outcome.systems.first()?.document, |r| perceived(outcome.workload, r))?;
    let first = perceived(outcome.workload, measured.document.measured().next()?)?;
    (ext2 > 0.0).then(|| 100.0 * (first / ext2 - 1.0))
}

fn wrong(e: impl std::fmt::Debug) -> io::Error {
    io::Error::other(format!("{e:?}"))
}

/// Prints one workload's table, its runs, and the overhead of learning.
pub(super) fn print(outcome: &Outcome, args: &Args, out: &mut dyn Write) -> io::Result<()> {
    let (table, name) = table_of(outcome.workload);
    let Some(ext2) = outcome.systems.first() else { return Ok(()) };
    writeln!(
        out,
        "\nTable {table}: {name}, run {} through the kernel on a modelled {}; per cent less than on ext2",
        args.runs, args.drive
    )?;
    writeln!(
        out,
        "preset {}, scale {}, volume {}; the paper's ext2 was busy for {} %",
        args.preset,
        args.scale,
        crate::mkfs2::bytes(args.size),
        paper_busy_ext2(outcome.workload)
    )?;
    writeln!(
        out,
        "{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "", "busy, %", "T_A", "T_s", "T_r", "mJ", "user", "total J"
    )?;
    let busy = mean(&ext2.document, |r| r.drive.as_ref()?.busy_percent);
    line(out, "ext2", &Row { busy, ..Row::default() }).map_err(wrong)?;
    for m in &outcome.systems[1..] {
        let Some(row) = improvement(outcome, m) else { continue };
        line(out, &m.system.name(), &row).map_err(wrong)?;
        if let Some(paper) = of_paper(outcome.workload, m.system) {
            line(out, "  the paper", &paper).map_err(wrong)?;
            line(out, "  difference, points", &minus(&row, &paper)).map_err(wrong)?;
        }
    }
    writeln!(
        out,
        "\nFigures 10, 11 and 13 to 15, by run (user: {}; the drive's times in ms)",
        unit(outcome.workload)
    )?;
    writeln!(
        out,
        "{:<10}{:>4}{:>9}{:>9}{:>8}{:>8}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}",
        "", "run", "user", "busy, %", "T_A", "T_s", "T_r", "T_t", "mJ", "total J", "replica", "copied"
    )?;
    for m in &outcome.systems {
        for r in m.document.measured() {
            runs_line(out, outcome.workload, &m.system.name(), r)?;
        }
    }
    writeln!(
        out,
        "total J and copied have the accesses of the rest after the run, in which most is copied; the drive's other figures and mJ\n\
         are of the run's accesses alone, and no rest's idling is counted"
    )?;
    for m in outcome.systems.iter().filter(|m| matches!(m.system, System::Policy(_))) {
        if let Some(overhead) = first_run_overhead(outcome, m) {
            writeln!(
                out,
                "run 1 of {}: {overhead:+.1} % against ext2; the paper: at worst +1.7 %",
                m.system.name()
            )?;
        }
    }
    Ok(())
}

fn runs_line(out: &mut dyn Write, workload: Workload, name: &str, r: &RunRecord) -> io::Result<()> {
    let show = |v: Option<f64>, digits: usize| v.map_or("-".into(), |v| format!("{v:.digits$}"));
    let d = r.drive.as_ref();
    let replica = d.filter(|d| d.reads > 0).map(|d| 100.0 * d.reads_from_replica as f64 / d.reads as f64);
    writeln!(
        out,
        "{name:<10}{:>4}{:>9}{:>9}{:>8}{:>8}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}",
        r.run,
        show(perceived(workload, r), 2),
        show(d.and_then(|d| d.busy_percent), 1),
        show(d.and_then(|d| d.t_a_ms), 2),
        show(d.and_then(|d| d.t_s_ms), 2),
        show(d.and_then(|d| d.t_r_ms), 2),
        show(d.and_then(|d| d.t_t_ms), 2),
        show(d.and_then(|d| d.access_mj()), 1),
        show(r.total_j_with_rest(), 1),
        replica.map_or("-".into(), |p| format!("{p:.0} %")),
        r.copies_with_rest().map_or("-".into(), |n| n.to_string()),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use fs2_engine::PolicyKind;

    use super::super::super::measure::result::tests::document;
    use super::super::super::measure::{DriveSpan, RestSpan};
    use super::super::Access;
    use super::*;

    fn drive(t_s: f64, elapsed_s: f64) -> DriveSpan {
        let used = super::super::super::fs2::DaemonUse {
            source: "simulated drive x".into(),
            accesses: 1000,
            reads: 1000,
            reads_from_replica: 250,
            seek_ms: Some(t_s),
            rotation_ms: Some(4.0),
            transfer_ms: Some(1.0),
            ..Default::default()
        };
        let power = super::super::super::measure::power_called("wd800-repaired");
        DriveSpan::of(&used, elapsed_s, power)
    }

    fn measured(system: System, runs: &[(f64, f64)]) -> Measured {
        let mut document = document(&runs.iter().map(|r| r.0).collect::<Vec<_>>());
        for (run, (elapsed, t_s)) in document.runs.iter_mut().zip(runs) {
            run.drive = Some(drive(*t_s, *elapsed));
            // FS2 copies at rest, for 40 J.
            let copied = system != System::Ext2;
            run.rest = Some(RestSpan {
                accesses: if copied { 500 } else { 0 },
                busy_s: Some(if copied { 4.0 } else { 0.0 }),
                copies_written: if copied { 777 } else { 0 },
                access_j: Some(if copied { 40.0 } else { 0.0 }),
                seek_j: Some(0.0),
            });
        }
        let access = |n: u64| Access {
            at_s: n as f64 * 0.01,
            sector: n * 977 % 5000,
            distance: n * 31 % 900,
            ms: 3.0,
        };
        let accesses =
            vec![(1, (0..50).map(access).collect()), (runs.len() as u32, (0..40).map(access).collect())];
        Measured { system, document, accesses }
    }

    /// ext2 in 33 s with seeks of 6 ms, FS2 from 34 s down to 23 s with seeks of 3 ms.
    pub(in super::super) fn outcome() -> Outcome {
        Outcome {
            workload: Workload::Cvs,
            systems: vec![
                measured(System::Ext2, &[(33.0, 6.0), (33.0, 6.0)]),
                measured(System::Policy(PolicyKind::Fs2), &[(34.0, 6.0), (23.1, 3.0)]),
            ],
        }
    }

    pub(in super::super) fn args() -> Args {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            args: Args,
        }
        clap::Parser::try_parse_from(["x", "--workload", "cvs", "--runs", "2"]).map(|o: Only| o.args).unwrap()
    }

    #[test]
    fn the_last_run_against_the_mean_of_ext2() {
        let outcome = outcome();
        let row = improvement(&outcome, &outcome.systems[1]).unwrap();
        // 11 ms become 8: 27.3 % less; the seek half; 33 s become 23.1: 30 % less.
        let near =
            |got: Option<f64>, want: f64| assert!((got.unwrap() - want).abs() < 0.06, "{got:?} for {want}");
        near(row.t_a, 27.3);
        near(row.t_s, 50.0);
        near(row.t_r, 0.0);
        near(row.runtime, 30.0);
        // 6 ms · 14 W + 5 ms · 8 W = 124 mJ become 82.
        near(row.energy, 33.9);
        near(row.busy, 100.0 * 8.0 / 23.1);
        // 124 J and 22 s of idling at 8 W are 300; 82 J, 15.1 s of idling, and 40 J in the rest are 242.8.
        near(row.total_energy, 100.0 * (1.0 - 242.8 / 300.0));
        near(first_run_overhead(&outcome, &outcome.systems[1]), 100.0 / 33.0);
        assert!(improvement(&outcome, &outcome.systems[0]).is_none());
    }

    #[test]
    fn the_paper_s_figures_stand_beside_ours() {
        let (outcome, args) = (outcome(), args());
        let mut out = Vec::new();
        print(&outcome, &args, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "Table 3: CVS update, run 2",
            "the paper",
            "difference, points",
            "run 1 of fs2: +3.0 %",
            "+1.7 %",
            "25 %",
            "777",
            "242.8",
            "total J and copied have the accesses of the rest",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let static_row = of_paper(Workload::Tpcw, System::Static).unwrap();
        assert_eq!((static_row.t_r, static_row.runtime), (Some(-1.6), Some(20.0)));
        assert!(of_paper(Workload::Cvs, System::Static).is_none());
    }
}
