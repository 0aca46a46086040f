//! `fs2-replay validate`: a modelled drive against times measured on the real one.
//!
//! A trace in DiskSim's validate form holds a closed loop: each request was sent so long after the
//! one before had completed. The model is given the same requests with the same pauses.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, Split};
use fs2d::text::AtMost;

use super::Failure;
use super::input::MEASURED_BYTES_MAX;
use super::profile::{load, told};
use crate::outputs;

const EXAMPLES: &str = "\
Examples:
  fs2-replay validate disk.diskspecs disk.trace.zst
  fs2-replay validate cheetah-15k5 measured.trace --each times.csv";

#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// A built-in drive's name, or a profile in a file (.toml, .diskspecs, .parv)
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,

    /// Measured requests, plain, gzip, bzip2, xz or zstd: R|W Hit|Miss BLOCK COUNT SERVICE_US PAUSE_US; - is standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Also write measured and modelled time of each request, in order, to this file (comma separated)
    #[arg(long, value_name = "FILE")]
    each: Option<PathBuf>,
}

/// A request as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    op: Op,
    sector: Sector,
    sectors: u32,
    service_us: f64,
    pause_us: f64,
}

fn parse(line: &str) -> Result<Measured, String> {
    const FORM: &str = "R|W Hit|Miss BLOCK COUNT SERVICE_US PAUSE_US";
    let mut fields = line.split_ascii_whitespace();
    let mut field = |what: &str| fields.next().ok_or_else(|| format!("no {what}, expected {FORM}"));
    let op = match field("R or W")? {
        "R" => Op::Read,
        "W" => Op::Write,
        other => return Err(format!("`{other}`, expected R or W")),
    };
    let hit = field("Hit or Miss")?;
    if hit != "Hit" && hit != "Miss" {
        return Err(format!("`{hit}`, expected Hit or Miss"));
    }
    fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("`{text}`, expected {what}"))
    }
    let sector: u64 = number(field("block")?, "a block's number")?;
    let sectors: u32 = number(field("count")?, "a number of blocks")?;
    let micros = |text: &str| match text.parse::<f64>() {
        Ok(us) if (0.0..=1e12).contains(&us) => Ok(us),
        _ => Err(format!("`{text}`, expected microseconds")),
    };
    let service_us = micros(field("service time")?)?;
    let pause_us = micros(field("pause")?)?;
    if let Some(more) = fields.next() {
        return Err(format!("`{more}` behind it, expected {FORM}"));
    }
    if sectors == 0 {
        return Err("a request for no block".to_owned());
    }
    Ok(Measured { op, sector: Sector(sector), sectors, service_us, pause_us })
}

fn read(path: &Path) -> Result<Vec<Measured>, Failure> {
    let at = |e: std::io::Error| Failure::at(path, e);
    let file: fs2_trace::BoxRead = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(at)?),
    };
    let text = BufReader::new(AtMost::new(fs2_trace::unpack(file).map_err(at)?.1, MEASURED_BYTES_MAX));
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.map_err(|e| Failure::at(path, format!("line {}: {e}", i + 1)))?;
        // As of any other text: a byte order mark begins it, and comments are passed over.
        let line = if i == 0 { line.strip_prefix('\u{feff}').unwrap_or(&line) } else { &line }.trim();
        if !line.is_empty() && !line.starts_with('#') {
            all.push(parse(line).map_err(|e| Failure::at(path, format!("line {}: {e}", i + 1)))?);
        }
    }
    if all.is_empty() {
        return Err(Failure::at(path, "no request"));
    }
    Ok(all)
}

/// What the model made of the requests.
struct Modelled {
    /// Of each request, milliseconds.
    response_ms: Vec<f64>,
    hits: u64,
    /// Uses of the platters, in the background too.
    media: Split,
}

fn model(mut disk: Disk, trace: &[Measured]) -> Modelled {
    let mut now = Nanos(0);
    let mut hits = 0;
    let mut response_ms = Vec::with_capacity(trace.len());
    for r in trace {
        let service = disk.serve(now, r.op, r.sector, r.sectors);
        hits += u64::from(service.cache_hit);
        response_ms.push(service.end().since(now).as_millis_f64());
        now = service.end() + Nanos((r.pause_us * 1000.0) as u64);
    }
    // The last writes reach the platters too.
    let media = disk.activity(now + Nanos::from_millis(60_000)).media;
    Modelled { response_ms, hits, media }
}

/// Root mean square of the horizontal distance between two cumulative distributions, given by as many
/// times each: the demerit figure of Ruemmler and Wilkes (1994).
fn demerit(a: &[f64], b: &[f64]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    (sum / a.len() as f64).sqrt()
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// The time below which so many per cent lie, of ascending times.
fn percentile(times: &[f64], percent: f64) -> f64 {
    let i = (percent / 100.0 * times.len() as f64).ceil() as usize;
    times[i.clamp(1, times.len()) - 1]
}

const PERCENTILES: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];

fn ascending(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(each) = &args.each {
        if each.as_os_str() == "-" {
            return Err(Failure(
                "--each - : each request goes to a file, the table to standard output".to_owned(),
            ));
        }
        outputs::refuse_same(&[each], [args.profile.as_path(), args.trace.as_path()])?;
    }
    let mut profile = load(&args.profile)?;
    let trace = read(&args.trace)?;
    let past =
        trace.iter().filter(|r| r.sector.0.saturating_add(u64::from(r.sectors)) > profile.capacity_sectors());
    let past_end = past.count();
    let end = trace.iter().map(|r| r.sector.0.saturating_add(u64::from(r.sectors))).max().unwrap_or(0);
    let extended = profile.fit(end);
    let modelled = model(Disk::new(profile.clone()), &trace);
    if let Some(path) = &args.each {
        let each = trace.iter().zip(&modelled.response_ms);
        let lines = each.map(|(r, ms)| {
            let op = if r.op == Op::Read { 'R' } else { 'W' };
            format!("{op},{},{},{},{ms}\n", r.sector.0, r.sectors, r.service_us / 1000.0)
        });
        let text = format!("op,sector,sectors,measured_ms,modelled_ms\n{}", lines.collect::<String>());
        std::fs::write(path, text).map_err(|e| Failure::at(path, e))?;
    }
    let of = |op: Op, times: &[f64]| {
        let some = trace.iter().zip(times).filter(|(r, _)| r.op == op).map(|(_, t)| *t);
        ascending(some.collect())
    };
    let measured: Vec<f64> = trace.iter().map(|r| r.service_us / 1000.0).collect();
    let (reads, writes) = (Op::Read, Op::Write);
    let pairs = [
        ("all", ascending(measured.clone()), ascending(modelled.response_ms.clone())),
        ("reads", of(reads, &measured), of(reads, &modelled.response_ms)),
        ("writes", of(writes, &measured), of(writes, &modelled.response_ms)),
    ];
    let media = &modelled.media;
    let access = media.mean_seek() + media.mean_rotation() + media.mean_transfer();
    if args.json {
        let side = |times: &[f64]| {
            let at = |p: &f64| (format!("p{p}"), serde_json::json!(percentile(times, *p)));
            let cdf: serde_json::Map<_, _> = PERCENTILES.iter().map(at).collect();
            serde_json::json!({ "mean_ms": mean(times), "percentiles_ms": cdf })
        };
        let group = |(name, a, b): &(&str, Vec<f64>, Vec<f64>)| {
            let value = match a.is_empty() {
                true => serde_json::Value::Null,
                false => serde_json::json!({
                    "requests": a.len(), "demerit_ms": demerit(a, b), "measured": side(a), "modelled": side(b),
                }),
            };
            ((*name).to_owned(), value)
        };
        let groups: serde_json::Map<_, _> = pairs.iter().map(group).collect();
        let said = serde_json::json!({
            "profile": profile.name(),
            "requests": trace.len(),
            "beyond_the_drive": past_end,
            "extended_from_sectors": extended.as_ref().map(|e| e.from),
            "demerit_ms": demerit(&pairs[0].1, &pairs[0].2),
            "cache_hits": modelled.hits,
            "media": {
                "accesses": media.count,
                "seek_ms": media.mean_seek().as_millis_f64(),
                "rotation_ms": media.mean_rotation().as_millis_f64(),
                "transfer_ms": media.mean_transfer().as_millis_f64(),
                "access_ms": access.as_millis_f64(),
            },
            "groups": groups,
        });
        writeln!(out, "{said}")?;
        return Ok(());
    }
    writeln!(
        out,
        "profile {}: {} requests, {} reads from the drive's cache",
        profile.name(),
        trace.len(),
        modelled.hits
    )?;
    if past_end > 0 {
        writeln!(out, "{past_end} requests lie beyond the drive's end")?;
    }
    if let Some(extended) = &extended {
        writeln!(out, "{}", told(extended))?;
    }
    writeln!(out, "demerit {:.3} ms", demerit(&pairs[0].1, &pairs[0].2))?;
    writeln!(
        out,
        "mean of {} uses of the platters: seek {:.3} rotation {:.3} transfer {:.3} access {:.3} ms\n",
        media.count,
        media.mean_seek().as_millis_f64(),
        media.mean_rotation().as_millis_f64(),
        media.mean_transfer().as_millis_f64(),
        access.as_millis_f64(),
    )?;
    write!(out, "response time, ms    demerit     mean")?;
    for p in PERCENTILES {
        write!(out, "{:>8}", format!("p{p}"))?;
    }
    writeln!(out)?;
    for (name, a, b) in pairs.iter().filter(|p| !p.1.is_empty()) {
        for (side, times) in [("measured", a), ("modelled", b)] {
            let figure = if side == "modelled" { format!("{:.3}", demerit(a, b)) } else { String::new() };
            write!(out, "{:<20} {figure:>7} {:>8.3}", format!("{name}, {side}"), mean(times))?;
            for p in PERCENTILES {
                write!(out, "{:>8.3}", percentile(times, p))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_validate_form() {
        let r = parse("R Miss   8437728   8    1283.5 41575.00").unwrap();
        let want = Measured {
            op: Op::Read,
            sector: Sector(8_437_728),
            sectors: 8,
            service_us: 1283.5,
            pause_us: 41575.0,
        };
        assert_eq!(r, want);
        for (line, said) in [
            ("", "no R or W"),
            ("X Hit 1 1 1 1", "`X`, expected R or W"),
            ("R Near 1 1 1 1", "expected Hit or Miss"),
            ("R Hit -1 1 1 1", "a block's number"),
            ("R Hit 1 0 1 1", "no block"),
            ("R Hit 1 1 nan 1", "expected microseconds"),
            ("R Hit 1 1 1", "no pause"),
            ("R Hit 1 1 1 1 1", "behind it"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn the_demerit_is_a_distance_of_distributions() {
        assert_eq!(demerit(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 0.0);
        // All a quarter later.
        assert!((demerit(&[1.0, 2.0], &[1.25, 2.25]) - 0.25).abs() < 1e-12);
        assert!((demerit(&[1.0, 2.0], &[1.0, 2.5]) - (0.125f64).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn percentiles_by_hand() {
        let times: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([1.0, 50.0, 99.0, 100.0].map(|p| percentile(&times, p)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[7.0], 1.0), 7.0);
    }
}
