//! `fs2-replay info`: what a trace is, and what is in it.

use std::io::{self, Write};
use std::path::PathBuf;

use fs2_block::Nanos;
use fs2_trace::{Count, Percentiles, Stream, Summariser, Summary};
use serde_json::json;

use super::Failure;
use super::input::ReadArgs;

const EXAMPLES: &str = "\
Examples:
  fs2-replay info web.blkparse.zst              what is in a trace of any format
  fs2-replay info sda.blktrace.*                a trace of several processors, merged by time
  fs2-replay info --event Q --json a.bin        as JSON, a request arriving when it was queued
  fs2-replay info --device hm,1 hm.csv.gz       one of several disks
  zcat a.gz | fs2-replay info -                 standard input";

#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The trace; several files are parts of one, merged by time; - is standard input
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// What no two requests of a trace lie apart.
const A_YEAR: Nanos = Nanos(365 * 86_400 * 1_000_000_000);

/// For people.
pub(super) fn years(time: Nanos) -> String {
    format!("{:.1} years", time.as_secs_f64() / A_YEAR.as_secs_f64())
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let mut stream = args.read.open(&args.traces, false)?;
    let mut summariser = Summariser::new();
    let mut records = 0;
    let (mut before, mut jump) = (None, None);
    for record in &mut stream {
        let record = record.map_err(|e| Failure(e.to_string()))?;
        summariser.add(&record);
        records += 1;
        let gap = record.at.since(before.replace(record.at).unwrap_or(record.at));
        jump = jump.or((gap > A_YEAR).then_some((records, gap)));
    }
    if let Some((n, gap)) = jump {
        let gap = years(gap);
        writeln!(
            err,
            "fs2-replay: request {n} comes {gap} after the one before it: is the time of either wrong?"
        )?;
    }
    let summary = summariser.finish();
    tell_skipped(&stream, err)?;
    refuse_nothing(&stream, records)?;
    if args.json {
        let json = json(args, &stream, &summary);
        writeln!(out, "{}", serde_json::to_string_pretty(&json).map_err(io::Error::other)?)?;
    } else {
        text(args, &stream, &summary, out)?;
    }
    Ok(())
}

/// Refuses a trace of which all that there is was left out.
///
/// # Errors
/// How much it was.
pub(super) fn refuse_nothing(stream: &Stream, records: u64) -> Result<(), Failure> {
    match stream.skipped().count {
        n if n > 0 && records == 0 => {
            Err(Failure(format!("nothing was read: {} lines, records or blocks are wrong", thousands(n))))
        }
        _ => Ok(()),
    }
}

/// What was left out, for people.
pub(super) fn tell_skipped(stream: &Stream, err: &mut dyn Write) -> io::Result<()> {
    let skipped = stream.skipped();
    if skipped.count > 0 {
        let count = thousands(skipped.count);
        writeln!(err, "fs2-replay: {count} lines, records or blocks left out; the first:")?;
        for what in &skipped.first {
            writeln!(err, "  {what}")?;
        }
        for what in &skipped.ended {
            writeln!(err, "fs2-replay: nothing is read behind this: {what}")?;
        }
    }
    Ok(())
}

fn json(args: &Args, stream: &Stream, summary: &Summary) -> serde_json::Value {
    let skipped = stream.skipped();
    let devices = stream
        .devices()
        .iter()
        .map(|d| json!({ "name": d.name, "requests": d.requests, "end_bytes": d.end_bytes }));
    json!({
        "traces": args.traces.iter().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        "format": stream.format().name(),
        "compression": stream.compression().to_string(),
        "event": stream.event().map(|e| e.letter().to_string()),
        "start_unix_ns": stream.start_unix_ns(),
        "volume_bytes": stream.header().map(|h| h.volume_bytes),
        "devices": devices.collect::<Vec<_>>(),
        "skipped": { "count": skipped.count, "first": skipped.first, "ended": skipped.ended },
        "out_of_order": stream.late(),
        "own_io_left_out": stream.own(),
        "outside_partition": stream.outside(),
        "completions_of_no_request": stream.unmatched(),
        "summary": summary,
    })
}

fn text(args: &Args, stream: &Stream, s: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<_> = args.traces.iter().map(|p| p.display().to_string()).collect();
    line(out, "trace", &names.join(" "))?;
    let event = stream.event().map_or(String::new(), |e| format!(", arrivals at {}", e.letter()));
    line(out, "format", &format!("{}, packed: {}{event}", stream.format(), stream.compression()))?;
    if let Some(header) = stream.header() {
        line(out, "volume", &bytes(header.volume_bytes))?;
    }
    let devices = stream.devices();
    if devices.len() > 1 || devices.iter().any(|d| !d.name.is_empty()) {
        for d in devices.iter().take(20) {
            let what =
                format!("{:?}: {} requests, up to {}", d.name, thousands(d.requests), bytes(d.end_bytes));
            line(out, "device", &what)?;
        }
        if devices.len() > 20 {
            line(out, "", &format!("and {} more", devices.len() - 20))?;
        }
    }
    let seconds = s.last_s - s.first_s;
    line(out, "requests", &format!("{} in {}", thousands(s.requests), duration(seconds)))?;
    let mix = &s.mix;
    for (name, count) in [
        ("reads", mix.read),
        ("writes", mix.write),
        ("write zeroes", mix.write_zeroes),
        ("discards", mix.discard),
        ("flushes", mix.flush),
    ] {
        let Count { requests, bytes: b } = count;
        if requests > 0 {
            let share = requests as f64 * 100.0 / s.requests as f64;
            line(out, name, &format!("{} ({share:.1} %), {}", thousands(requests), bytes(b)))?;
        }
    }
    if s.fua > 0 {
        line(out, "FUA", &format!("{} writes", thousands(s.fua)))?;
    }
    if s.failed > 0 {
        line(out, "failed", &thousands(s.failed))?;
    }
    let span = s.end_byte.saturating_sub(s.first_byte);
    let addresses = format!("{} from byte {} to {}", bytes(span), s.first_byte, s.end_byte);
    line(out, "addresses", &addresses)?;
    let rate = format!(
        "mean {:.1} a second, most {} in second {}",
        s.mean_per_second,
        thousands(s.peak_per_second),
        thousands(s.peak_second)
    );
    line(out, "rate", &rate)?;
    line(out, "interarrival", &spread(&s.interarrival_ms, "ms"))?;
    if mix.read.requests > 0 {
        line(out, "read size", &spread_bytes(&s.read_bytes))?;
        let again = format!(
            "{:.1} % of the reads, {:.1} % of their blocks; {:.1} % of the reads not written since; {:.1} % \
             of what was written",
            s.reread_percent, s.reread_blocks_percent, s.reread_unwritten_percent, s.read_after_write_percent
        );
        line(out, "read again", &again)?;
    }
    if mix.write.requests > 0 {
        line(out, "write size", &spread_bytes(&s.write_bytes))?;
    }
    line(out, "sequential", &format!("{:.1} % begin where the request before ended", s.sequential_percent))?;
    let sets = format!(
        "{} ({} read, {} written)",
        bytes(s.working_set_bytes),
        bytes(s.read_set_bytes),
        bytes(s.write_set_bytes)
    );
    line(out, "working set", &sets)?;
    if s.hours.len() > 1 {
        for hour in s.hours.iter().take(48) {
            let what =
                format!("hour {}: {}, {} requests", hour.hour, bytes(hour.bytes), thousands(hour.requests));
            line(out, "", &what)?;
        }
        if s.hours.len() > 48 {
            line(out, "", &format!("and {} hours more; --json has them", s.hours.len() - 48))?;
        }
    }
    if let Some(service) = &s.service_ms {
        let (n, all) = (thousands(service.count), thousands(s.requests));
        let of =
            if service.count < s.requests { format!("; of {n} of {all} requests") } else { String::new() };
        line(out, "service time", &format!("{}{of}", spread(service, "ms")))?;
    }
    let estimate = format!("{:.1} % by an estimate (8 ms to position, 50 MB/s)", s.busy_estimated_percent);
    line(
        out,
        "busy",
        &match s.busy_measured_percent {
            Some(measured) => format!("{measured:.1} % of the time by its service times; {estimate}"),
            None if s.service_ms.is_some() => {
                format!("{estimate}; half of the requests or more have no service time")
            }
            None => format!("{estimate}; the trace has no service times"),
        },
    )?;
    if stream.late() > 0 {
        line(
            out,
            "out of order",
            &format!("{} requests, moved to the time before them", thousands(stream.late())),
        )?;
    }
    if let Some(told) = unmatched(stream) {
        line(out, "left out", &told)?;
    }
    if stream.outside() > 0 {
        line(out, "left out", &format!("{} requests outside the partition", thousands(stream.outside())))?;
    }
    if stream.own() > 0 {
        line(out, "left out", &format!("{} requests of the daemon's own", thousands(stream.own())))?;
    }
    if s.uncounted > 0 {
        line(out, "left out", &format!("{} requests beyond 16 TiB of working set", thousands(s.uncounted)))?;
    }
    Ok(())
}

/// Whether completions belong to no request, and what that may mean.
fn unmatched(stream: &Stream) -> Option<String> {
    let (n, event) = (stream.unmatched(), stream.event()?.letter());
    (n > 0).then(|| {
        format!(
            "{} completions of no request: its {event} was lost, came before the trace, or its device has none (--event)",
            thousands(n)
        )
    })
}

fn line(out: &mut dyn Write, name: &str, what: &str) -> io::Result<()> {
    writeln!(out, "{name:<13} {what}")
}

fn spread(p: &Percentiles, unit: &str) -> String {
    let [half, most_of, nearly_all] = [p.p50, p.p90, p.p99].map(two_digits);
    format!("mean {:.3}, half {half}, 90 % {most_of}, 99 % {nearly_all}, most {:.3} {unit}", p.mean, p.max)
}

/// A percentile: it is known to 0.8 %, from below, so that a third digit would mean nothing.
fn two_digits(x: f64) -> String {
    if !(1e-9..1e18).contains(&x) {
        return "0".to_owned();
    }
    // Rounded first: 99.6 is 100, which has its digits elsewhere.
    let decimals = |x: f64| 1 - x.log10().floor() as i32;
    let scale = 10f64.powi(decimals(x));
    let rounded = (x * scale).round() / scale;
    format!("{rounded:.*}", usize::try_from(decimals(rounded)).unwrap_or(0))
}

fn spread_bytes(p: &Percentiles) -> String {
    let b = |v: f64| bytes(v as u64);
    format!("mean {}, half {}, 90 % {}, most {}", b(p.mean), b(p.p50), b(p.p90), b(p.max))
}

/// Bytes in the largest unit of which there is one.
pub(super) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return if unit == "bytes" { format!("{n} bytes") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        return format!("{seconds:.3} s");
    }
    let whole = seconds as u64;
    format!("{} h {} min {} s", whole / 3600, whole / 60 % 60, whole % 60)
}

/// With commas between the thousands.
pub(super) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_the_digits_that_are_known() {
        for (x, is) in [
            (0.0, "0"),
            (99.615, "100"),
            (12_345.0, "12000"),
            (9.96, "10"),
            (1.25, "1.3"),
            (0.009_96, "0.010"),
            (0.000_123, "0.00012"),
        ] {
            assert_eq!(two_digits(x), is);
        }
    }
}
