//! `fs2-replay generate`: a trace made up by seed, to try a policy where no trace is at hand.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use fs2_block::{BlockSize, Nanos, Op, Permille};
use fs2_trace::synth::{Shape, Synth, Workload};
use fs2_trace::{Header, Writer};

use super::Failure;
use super::convert::refuse_no_container;
use super::info::thousands;
use super::run::parse_time;
use crate::mkfs2::parse_share;
use crate::new_file::NewFile;
use crate::outputs;

const EXAMPLES: &str = "\
Examples:
  fs2-replay generate cvs a.fs2trace                       seven updates of the same tree, a minute apart
  fs2-replay generate zipf --files 10000 --writes 20% a.fs2trace
  fs2-replay generate uniform --requests 10000000 a.fs2trace
  fs2-replay generate mixed --gap 40ms --seed 7 a.fs2trace  whatever comes: another workload with each seed
  fs2-replay generate sequential - | fs2-replay info -     standard output

The same options and seed give the same trace on every machine.";

#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What is asked for
    #[arg(value_enum)]
    kind: Kind,
    /// The file to write, a container (.fs2trace), or - for standard output
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Replace the file where it is there already
    #[arg(long)]
    force: bool,
    /// Requests in the trace
    #[arg(long, value_name = "N", default_value = "100000")]
    requests: u64,
    /// Size of the volume
    #[arg(long, value_name = "GIB", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    gib: u32,
    /// Mean time from one arrival to the next
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse_time)]
    gap: Nanos,
    /// Which trace of its kind
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// How many requests write [default: 10%; none of sequential and cvs, 90% of write-heavy, half of read-after-write; of
    /// mixed, logs and rewrites write besides]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    writes: Option<Permille>,
    /// cvs: how often the same is read; the requests are divided among the runs [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: Option<u64>,
    /// cvs: idle time between two runs [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    idle_between: Option<Nanos>,
    /// cvs: how much of a repeated run goes elsewhere [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    noise: Option<Permille>,
    /// zipf: number of files [default: 5000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: Option<u32>,
    /// read-after-write: how many writes lie between a write and the read of the same [default: 1000]
    #[arg(long, value_name = "N")]
    distance: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Like `cvs update`: metadata and files read in turn, far apart, again and again
    Cvs,
    /// Whole files of 4 to 128 KiB, the nth most popular with a weight of 1/n
    Zipf,
    /// From the beginning to the end in requests of 128 KiB, and again
    Sequential,
    /// Writes of 4 to 64 KiB everywhere, a flush after every 64th
    WriteHeavy,
    /// Writes and reads in turn; what is read was written not long before
    ReadAfterWrite,
    /// Single blocks, each as likely as any other
    Uniform,
    /// Phases of many kinds, drawn by the seed: tours of files, backups, sequential readers, strides, logs, bursts
    Mixed,
}

impl Args {
    fn generate(&self) -> Result<Synth, Failure> {
        let writes = |default: u64| self.writes.map_or(default, |w| u64::from(w.get()));
        // Of these the kind says how many write.
        for (kind, name, writes, says) in
            [(Kind::Cvs, "cvs", 0, "nothing"), (Kind::ReadAfterWrite, "read-after-write", 500, "half")]
        {
            if self.kind == kind && self.writes.is_some_and(|w| u64::from(w.get()) != writes) {
                return Err(Failure(format!("{name} writes {says}: it takes no other --writes")));
            }
        }
        let workload = match self.kind {
            Kind::Cvs => Workload::Cvs {
                runs: self.runs.unwrap_or(7),
                idle_ns: self.idle_between.map_or(60_000_000_000, |idle| idle.0),
                noise_permille: self.noise.map_or(50, |noise| u64::from(noise.get())),
            },
            Kind::Zipf => Workload::Zipf { files: self.files.unwrap_or(5000), write_permille: writes(100) },
            Kind::Sequential => match writes(0) {
                0 => Workload::Sequential { op: Op::Read },
                1000 => Workload::Sequential { op: Op::Write },
                _ => return Err(Failure("sequential takes --writes 0% or 100%, no mixture".to_owned())),
            },
            Kind::WriteHeavy => Workload::WriteHeavy { read_permille: 1000 - writes(900) },
            Kind::ReadAfterWrite => Workload::ReadAfterWrite { distance: self.distance.unwrap_or(1000) },
            Kind::Uniform => Workload::Uniform { write_permille: writes(100) },
            Kind::Mixed => Workload::Mixed { write_permille: writes(100) },
        };
        // Twice the mean at most, one behind the other.
        if self.gap.0.checked_mul(2).and_then(|most| most.checked_mul(self.requests)).is_none() {
            return Err(Failure(format!(
                "{} requests with such a --gap may take longer than a trace's clock goes, 584 years",
                self.requests
            )));
        }
        let shape =
            Shape { requests: self.requests, span_bytes: u64::from(self.gib) << 30, gap_ns: self.gap.0 };
        Ok(workload.generate(shape, self.seed))
    }
}

/// Refuses what is an option of another kind.
///
/// # Errors
/// Which it is, and whose.
pub(super) fn check_kind(args: &Args) -> Result<(), Failure> {
    let name = |kind: Kind| kind.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    for (option, given, of) in [
        ("--runs", args.runs.is_some(), Kind::Cvs),
        ("--idle-between", args.idle_between.is_some(), Kind::Cvs),
        ("--noise", args.noise.is_some(), Kind::Cvs),
        ("--files", args.files.is_some(), Kind::Zipf),
        ("--distance", args.distance.is_some(), Kind::ReadAfterWrite),
    ] {
        if given && args.kind != of {
            return Err(Failure(format!(
                "{} has no {option}, which is an option of {}",
                name(args.kind),
                name(of)
            )));
        }
    }
    Ok(())
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    refuse_no_container(&args.out)?;
    outputs::refuse_there(&args.out, args.force)?;
    let trace = args.generate()?;
    let header =
        Header { volume_bytes: trace.volume_bytes(), block_size: BlockSize::new(4096), start_unix_ns: 0 };
    let write = |out: &mut dyn Write| {
        let mut writer = Writer::new(out, header)?;
        for record in trace {
            writer.push(&record)?;
        }
        writer.finish().map(drop)
    };
    if args.out == Path::new("-") {
        write(out).map_err(|e| Failure::at(&args.out, e))?;
    } else {
        NewFile::create(&args.out)?.write_with(|file| write(file).map_err(|e| Failure::at(&args.out, e)))?;
    }
    writeln!(err, "{} requests made up", thousands(args.requests))?;
    Ok(())
}
