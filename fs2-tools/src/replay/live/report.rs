//! What a replay on a real device came to.

use std::io::Write;

use fs2_block::Nanos;
use fs2_sim::replay::Histogram;
use serde::Serialize;

use super::super::Failure;
use super::{Args, Outcome};

/// Times in milliseconds; quantiles are right within 0.2 %.
#[derive(Serialize)]
struct Times {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// So many requests took at most so long, more than the entry before.
#[derive(Serialize)]
struct Step {
    upto_ms: f64,
    requests: u64,
}

#[derive(Serialize)]
struct Figures {
    trace: Vec<String>,
    device: String,
    device_bytes: u64,
    direct: bool,
    writes_allowed: bool,
    speed: f64,
    depth: u16,
    reads: u64,
    writes: u64,
    other: u64,
    failed: u64,
    wrapped: u64,
    /// Left out because they would change the device.
    left_out: u64,
    discards_left_out: u64,
    skipped_bad: u64,
    mib: f64,
    planned_s: f64,
    elapsed_s: f64,
    lateness_ms: Times,
    latency_ms: Times,
    latency_histogram: Vec<Step>,
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

fn times(h: &Histogram, total: Nanos, max: Nanos) -> Times {
    // A step's upper end may lie above the greatest time there was.
    let at = |permille| round(h.quantile(permille).min(max).as_millis_f64());
    Times {
        mean: round(total.as_millis_f64() / h.count().max(1) as f64),
        p50: at(500),
        p90: at(900),
        p99: at(990),
        p999: at(999),
        max: round(max.as_millis_f64()),
    }
}

/// The histogram in octaves from 1/16 ms.
fn octaves(h: &Histogram) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::new();
    let mut upto = Nanos(62_500);
    let mut inside = 0;
    for (end, n) in h.steps() {
        while end > upto {
            out.push(Step { upto_ms: round(upto.as_millis_f64()), requests: inside });
            inside = 0;
            upto = Nanos(upto.0.saturating_mul(2));
        }
        inside += n;
    }
    if inside > 0 {
        out.push(Step { upto_ms: round(upto.as_millis_f64()), requests: inside });
    }
    out
}

fn figures(args: &Args, o: &Outcome) -> Figures {
    let s = &o.sums;
    Figures {
        trace: args.traces.iter().map(|t| t.display().to_string()).collect(),
        device: args.onto.display().to_string(),
        device_bytes: o.device_bytes,
        direct: o.direct,
        writes_allowed: args.allow_writes,
        speed: args.speed,
        depth: args.depth,
        reads: s.reads,
        writes: s.writes,
        other: s.other,
        failed: s.failed,
        wrapped: s.wrapped,
        left_out: o.left_out,
        discards_left_out: o.discards,
        skipped_bad: o.skipped,
        mib: round(s.bytes as f64 / 1_048_576.0),
        planned_s: round(o.planned.as_secs_f64()),
        elapsed_s: round(o.elapsed.as_secs_f64()),
        lateness_ms: times(&s.late, s.late_total, s.late_max),
        latency_ms: times(&s.latency, s.latency_total, s.latency_max),
        latency_histogram: octaves(&s.latency),
    }
}

/// Prints JSON.
pub(super) fn json(args: &Args, outcome: &Outcome, out: &mut dyn Write) -> Result<(), Failure> {
    let all = figures(args, outcome);
    serde_json::to_writer_pretty(&mut *out, &all).map_err(|e| Failure(e.to_string()))?;
    writeln!(out)?;
    Ok(())
}

/// Characters of the longest bar.
const BAR: u64 = 50;

/// Prints figures and a histogram.
pub(super) fn text(args: &Args, outcome: &Outcome, out: &mut dyn Write) -> Result<(), Failure> {
    let f = figures(args, outcome);
    let how = if f.direct { "O_DIRECT" } else { "page cache" };
    writeln!(
        out,
        "{} on {} ({how}), {} times as fast, at most {} in flight",
        f.trace.join(" "),
        f.device,
        f.speed,
        f.depth
    )?;
    writeln!(
        out,
        "{} reads, {} writes, {} others, {:.1} MiB in {:.3} s ({:.3} s by the trace)",
        f.reads, f.writes, f.other, f.mib, f.elapsed_s, f.planned_s
    )?;
    for (n, what) in [
        (f.left_out, "left out: they would change the device"),
        (f.discards_left_out, "discards left out: none is ever sent"),
        (f.wrapped, "were beyond the device's end and folded back"),
        (f.skipped_bad, "lines, records or blocks of the trace were wrong and left out"),
        (f.failed, "FAILED"),
    ] {
        if n > 0 {
            writeln!(out, "{n} {what}")?;
        }
    }
    for (name, t) in [("late", &f.lateness_ms), ("latency", &f.latency_ms)] {
        writeln!(
            out,
            "{name:<8} mean {:.3} ms, p50 {:.3}, p90 {:.3}, p99 {:.3}, p99.9 {:.3}, max {:.3}",
            t.mean, t.p50, t.p90, t.p99, t.p999, t.max
        )?;
    }
    let most = f.latency_histogram.iter().map(|s| s.requests).max().unwrap_or(1).max(1);
    for s in &f.latency_histogram {
        let bar = "#".repeat((s.requests * BAR).div_ceil(most) as usize);
        writeln!(out, "{:>10.3} ms {:>9} {bar}", s.upto_ms, s.requests)?;
    }
    Ok(())
}
