//! A report in FileBench's own form, so that what reads its output reads ours.

use std::fmt::Write;
use std::time::Duration;

use super::run::RunReport;

const MIB: f64 = 1024.0 * 1024.0;

/// The lines FileBench prints at the end of a run: one for each name of a flowop, the script's last first, and a
/// summary. `at` is the time since the program started, which begins its messages.
///
/// Bytes a second are of 2^20; latencies are means, least and most, in milliseconds.
pub fn filebench(report: &RunReport, at: Duration) -> String {
    let seconds = report.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let mean_ms = |ns: u128, count: u64| if count > 0 { ns as f64 / count as f64 / 1e6 } else { 0.0 };
    let at = at.as_secs_f64();
    let mut out = format!("{at:5.3}: Per-Operation Breakdown\n");
    for op in report.ops.iter().rev() {
        let (least, most) = (op.latency.min_ns().unwrap_or(0), op.latency.max_ns().unwrap_or(0));
        let _ = write!(
            out,
            "{:<20} {}ops {:8.0}ops/s {:5.1}mb/s {:8.3}ms/op [{:.3}ms - {:5.3}ms]",
            op.name,
            op.count,
            op.count as f64 / seconds,
            op.bytes as f64 / MIB / seconds,
            mean_ms(op.total_ns, op.count),
            least as f64 / 1e6,
            most as f64 / 1e6,
        );
        if let Some(powers) = &op.powers {
            let _ = write!(out, "\t[ ");
            powers.iter().for_each(|n| {
                let _ = write!(out, "{n} ");
            });
            let _ = write!(out, "]");
        }
        out.push('\n');
    }
    let sum = |of: &dyn Fn(&super::run::OpReport) -> u64| report.counted().map(of).sum::<u64>();
    let count = sum(&|op| op.count);
    let total_ns: u128 = report.counted().map(|op| op.total_ns).sum();
    let _ = writeln!(
        out,
        "{at:5.3}: IO Summary: {count:5} ops {:5.3} ops/s {:.0}/{:.0} rd/wr {:5.1}mb/s {:5.3}ms/op",
        count as f64 / seconds,
        sum(&|op| if op.reads { op.count } else { 0 }) as f64 / seconds,
        sum(&|op| if op.writes { op.count } else { 0 }) as f64 / seconds,
        sum(&|op| op.bytes) as f64 / MIB / seconds,
        mean_ms(total_ns, count),
    );
    out
}
