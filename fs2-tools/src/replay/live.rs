//! `fs2-replay live`: a trace on a real device or file, at the trace's times.
//!
//! Each request has a deadline, its time in the trace after the beginning; workers take the requests in order
//! and each waits for its own one's deadline, so that as many are in flight as there are workers, and what one
//! loses the next does not inherit. How late each began is part of the result: a replay that was late is
//! another workload.
//!
//! Nothing is written without two options that say so; a device that is mounted is refused in any case.

mod report;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fs2_block::{Nanos, Op};
use fs2_sim::replay::Histogram;
use fs2_store::{AlignedBuf, Direct, FileStore, OpenError, OpenOptions, Store};
use fs2_trace::Record;

use super::Failure;
use super::input::{ReadArgs, refuse_once};
use crate::output::quoted;
use crate::outputs;

const EXAMPLES: &str = "\
Examples:
  fs2-replay live web.blkparse.zst /dev/sdb                  reads only, at the recorded pace
  fs2-replay live web.blkparse.zst disk.img --speed 10 --depth 64 --beyond wrap --json
  fs2-replay live web.blkparse.zst /dev/sdb --allow-writes --consent 'overwrite /dev/sdb'
      writes too: whatever is on the device is lost

Exit codes: 0 done, 1 refused, or a request failed, 2 usage.";

/// Replay a trace on a real device or file, at the trace's times
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The trace; several files are parts of one trace (blktrace's, one for each processor)
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// A block device that is not mounted, or a file
    #[arg(required = true, value_name = "DEVICE")]
    onto: PathBuf,
    /// So many times as fast as recorded
    #[arg(long, value_name = "X", default_value = "1", value_parser = parse_speed)]
    speed: f64,
    /// Requests in flight at most
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Leave everything out that changes the device; this is the default
    #[arg(long, conflicts_with = "allow_writes")]
    read_only: bool,
    /// Write zeroes where the trace writes; asks for --consent
    #[arg(long, requires = "consent")]
    allow_writes: bool,
    /// With --allow-writes: the words 'overwrite DEVICE'
    #[arg(long, value_name = "WORDS", requires = "allow_writes")]
    consent: Option<String>,
    /// What becomes of requests beyond the device's end: refuse (before anything is done) or wrap
    #[arg(long, value_name = "WHAT", default_value = "refuse", value_parser = parse_beyond)]
    beyond: Beyond,
    /// Go through the page cache, where O_DIRECT does not work; latencies are the cache's then
    #[arg(long)]
    buffered: bool,
    /// At most so many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// What becomes of requests beyond the device's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beyond {
    Refuse,
    Wrap,
}

fn parse_beyond(text: &str) -> Result<Beyond, String> {
    match text {
        "refuse" => Ok(Beyond::Refuse),
        "wrap" => Ok(Beyond::Wrap),
        _ => Err("there are refuse and wrap".into()),
    }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (1e-3..=1e6).contains(&speed) { Ok(speed) } else { Err("give 0.001 to 1000000".into()) }
}

/// Bytes of a request that are asked for at a time: no kernel passes more on in one piece, and no trace can
/// make us need more memory.
const PIECE: usize = 4 << 20;

/// Requests read ahead of those waiting for their deadline.
const AHEAD: usize = 1024;

/// A worker's sums, and all workers' together.
#[derive(Default)]
struct Sums {
    reads: u64,
    writes: u64,
    other: u64,
    bytes: u64,
    failed: u64,
    wrapped: u64,
    first_error: Option<String>,
    latency: Histogram,
    latency_total: Nanos,
    latency_max: Nanos,
    late: Histogram,
    late_total: Nanos,
    late_max: Nanos,
}

impl Sums {
    fn merge(&mut self, other: Sums) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.other += other.other;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.wrapped += other.wrapped;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latency.merge(&other.latency);
        self.latency_total += other.latency_total;
        self.latency_max = self.latency_max.max(other.latency_max);
        self.late.merge(&other.late);
        self.late_total += other.late_total;
        self.late_max = self.late_max.max(other.late_max);
    }
}

/// What the whole replay came to.
struct Outcome {
    sums: Sums,
    /// Requests left out because they would change the device.
    left_out: u64,
    /// Discards: never sent.
    discards: u64,
    skipped: u64,
    direct: bool,
    device_bytes: u64,
    /// From the first request's time to the last one's, at this speed.
    planned: Duration,
    elapsed: Duration,
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let words = format!("overwrite {}", args.onto.display());
    if args.allow_writes && args.consent.as_deref() != Some(words.as_str()) {
        return Err(Failure(format!(
            "--allow-writes destroys what is on {}: to agree, give --consent {}",
            args.onto.display(),
            quoted(Path::new(&words))
        )));
    }
    if args.traces.iter().any(|p| p.as_os_str() == "-") {
        return Err(Failure("a trace is read while the clock runs: give a file, not standard input".into()));
    }
    if args.beyond == Beyond::Refuse {
        refuse_once(&args.traces, "a trace is read twice, the first time to see whether it fits")?;
    }
    if args.allow_writes {
        outputs::refuse_same(&[&args.onto], args.traces.iter().map(PathBuf::as_path))?;
    }
    let store = open_device(args)?;
    let size = store.size_bytes();
    if size == 0 {
        return Err(Failure::at(&args.onto, "no bytes in it, expected a device or an image"));
    }
    if args.beyond == Beyond::Refuse {
        refuse_beyond(args, size)?;
    }
    if !store.is_direct() {
        writeln!(err, "fs2-replay: through the page cache: latencies are the cache's, not the device's")?;
    }
    let outcome = replay(args, &store, size)?;
    let sums = &outcome.sums;
    if sums.reads + sums.writes + sums.other + sums.failed == 0 {
        let what = match outcome.left_out + outcome.discards {
            0 => "no request in it; `fs2-replay info` says what there is".to_owned(),
            n => format!("nothing was replayed: its {n} requests would change the device"),
        };
        return Err(Failure::at(&args.traces[0], what));
    }
    let done = if args.json { report::json(args, &outcome, out) } else { report::text(args, &outcome, out) };
    done?;
    match &outcome.sums.first_error {
        None => Ok(()),
        Some(first) => Err(Failure::at(
            &args.onto,
            format!("{} requests failed, the first one: {first}", outcome.sums.failed),
        )),
    }
}

fn open_device(args: &Args) -> Result<FileStore, Failure> {
    let direct = if args.buffered { Direct::Off } else { Direct::On };
    // The claim is exclusive: a mounted device is refused, and so is one that another program holds.
    let options = OpenOptions { write: args.allow_writes, direct, ..OpenOptions::default() };
    FileStore::open(&args.onto, options).map_err(|e| match e {
        OpenError::NoDirect { .. } => Failure(format!("{e}; --buffered goes through the page cache")),
        e => Failure(e.to_string()),
    })
}

/// Whether a request is made at all.
fn is_made(args: &Args, op: Op) -> bool {
    match op {
        Op::Read => true,
        Op::Write | Op::WriteZeroes | Op::Flush => args.allow_writes,
        Op::Discard | Op::Punch => false,
    }
}

fn limit(args: &Args) -> usize {
    args.limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}

/// Reads the trace once, so that nothing is done where a request does not fit.
fn refuse_beyond(args: &Args, size: u64) -> Result<(), Failure> {
    let mut beyond = (0u64, 0u64);
    for record in args.read.open(&args.traces, false)?.take(limit(args)) {
        let record = record.map_err(|e| Failure(e.to_string()))?;
        if is_made(args, record.op) && record.extent.end() > size {
            beyond = (beyond.0 + 1, beyond.1.max(record.extent.end()));
        }
    }
    if beyond.0 == 0 {
        return Ok(());
    }
    Err(Failure::at(
        &args.onto,
        format!(
            "{} requests reach beyond its end at {size} bytes, the furthest to {}; --beyond wrap folds them back",
            beyond.0, beyond.1
        ),
    ))
}

/// Where a request goes: where it says, or folded back into the device. `None` where it is larger than that.
fn place(offset: u64, len: u64, size: u64) -> Option<(u64, bool)> {
    if offset.checked_add(len).is_some_and(|end| end <= size) {
        return Some((offset, false));
    }
    // Sectors stay sectors.
    let room = (size.checked_sub(len)? / 512).saturating_add(1);
    Some((offset / 512 % room * 512, true))
}

/// A request with its deadline.
struct Timed {
    record: Record,
    due: Duration,
}

fn replay(args: &Args, store: &FileStore, size: u64) -> Result<Outcome, Failure> {
    let mut stream = args.read.open(&args.traces, false)?;
    let (sender, receiver) = sync_channel::<Timed>(AHEAD);
    let receiver = Mutex::new(receiver);
    let (mut left_out, mut discards) = (0, 0);
    let mut planned = Duration::ZERO;
    let ended = AtomicU64::new(0);
    let mut trace_error = None;
    let mut records = stream.by_ref().take(limit(args)).peekable();
    // Thousands are put in order before the first comes out, and nothing is due meanwhile.
    records.peek();
    let begin = Instant::now();
    let sums = std::thread::scope(|scope| {
        let (receiver, ended) = (&receiver, &ended);
        let workers: Vec<_> =
            (0..args.depth).map(|_| scope.spawn(move || work(store, size, receiver, begin, ended))).collect();
        let mut first = None;
        for record in records {
            let record = match record {
                Ok(record) => record,
                Err(e) => {
                    trace_error = Some(Failure(e.to_string()));
                    break;
                }
            };
            let at = record.at.since(*first.get_or_insert(record.at));
            let due = Duration::from_secs_f64(at.as_secs_f64() / args.speed);
            planned = planned.max(due);
            if !is_made(args, record.op) {
                *(if matches!(record.op, Op::Discard | Op::Punch) {
                    &mut discards
                } else {
                    &mut left_out
                }) += 1;
                continue;
            }
            if sender.send(Timed { record, due }).is_err() {
                break;
            }
        }
        drop(sender);
        let mut sums = Sums::default();
        for worker in workers {
            if let Ok(of_one) = worker.join() {
                sums.merge(of_one);
            }
        }
        sums
    });
    if let Some(e) = trace_error {
        return Err(e);
    }
    Ok(Outcome {
        sums,
        left_out,
        discards,
        skipped: stream.skipped().count,
        direct: store.is_direct(),
        device_bytes: size,
        planned,
        elapsed: Duration::from_nanos(ended.load(Ordering::Relaxed)),
    })
}

fn nanos(d: Duration) -> Nanos {
    Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// A worker's memory.
struct Buffers {
    read: AlignedBuf,
    zeroes: AlignedBuf,
}

/// Takes requests until there are none left.
fn work(
    store: &FileStore,
    size: u64,
    requests: &Mutex<Receiver<Timed>>,
    begin: Instant,
    ended: &AtomicU64,
) -> Sums {
    let mut sums = Sums::default();
    // What is written is zeroes, and never what was read before it.
    let mut buffers = Buffers { read: AlignedBuf::zeroed(0), zeroes: AlignedBuf::zeroed(0) };
    loop {
        let next = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Timed { record, due }) = next else { return sums };
        if let Some(wait) = due.checked_sub(begin.elapsed()) {
            std::thread::sleep(wait);
        }
        let started = begin.elapsed();
        let done = one(store, size, &record, &mut buffers, &mut sums);
        let over = begin.elapsed();
        ended.fetch_max(nanos(over).0, Ordering::Relaxed);
        let (late, latency) = (nanos(started.saturating_sub(due)), nanos(over.saturating_sub(started)));
        sums.late.add(late);
        sums.late_total += late;
        sums.late_max = sums.late_max.max(late);
        match done {
            Ok(()) => {
                sums.latency.add(latency);
                sums.latency_total += latency;
                sums.latency_max = sums.latency_max.max(latency);
            }
            Err(e) => {
                sums.failed += 1;
                let (op, extent) = (record.op, record.extent);
                sums.first_error.get_or_insert_with(|| {
                    let mut text = String::new();
                    let _ = write!(text, "{op:?} of {} bytes at {}: {e}", extent.len(), extent.offset());
                    text
                });
            }
        }
    }
}

/// Makes a request.
fn one(
    store: &FileStore,
    size: u64,
    record: &Record,
    buffers: &mut Buffers,
    sums: &mut Sums,
) -> io::Result<()> {
    let len = record.extent.len();
    let (offset, wrapped) = place(record.extent.offset(), len, size)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "larger than the device"))?;
    sums.wrapped += u64::from(wrapped);
    match record.op {
        Op::Read => sums.reads += 1,
        Op::Write => sums.writes += 1,
        _ => sums.other += 1,
    }
    match record.op {
        Op::Flush => return store.flush(),
        Op::WriteZeroes => {
            sums.bytes += len;
            return store.write_zeroes(offset, len, true);
        }
        _ => {}
    }
    let want = usize::try_from(len).unwrap_or(PIECE).min(PIECE);
    let buf = if record.op == Op::Read { &mut buffers.read } else { &mut buffers.zeroes };
    if buf.len() < want {
        *buf = AlignedBuf::zeroed(want);
    }
    let mut done = 0;
    while done < len {
        let n = usize::try_from(len - done).unwrap_or(PIECE).min(PIECE);
        match record.op {
            Op::Read => store.read_at(offset + done, &mut buf[..n])?,
            _ => store.write_at(
                offset + done,
                &buf[..n],
                record.flags.contains(fs2_trace::RecordFlags::FUA),
            )?,
        }
        done += n as u64;
    }
    sums.bytes += len;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_end_is_folded_back_by_sectors() {
        assert_eq!(place(0, 4096, 4096), Some((0, false)));
        assert_eq!(place(512, 512, 4096), Some((512, false)));
        assert_eq!(place(4096, 512, 4096), Some((0, true)));
        assert_eq!(place(10 * 512, 1024, 4096), Some((3 * 512, true)));
        assert_eq!(place(u64::MAX - 511, 512, 4096).map(|p| p.1), Some(true));
        assert_eq!(place(0, 8192, 4096), None);
        for offset in (0..1 << 20).step_by(512) {
            let (at, _) = place(offset, 1536, 10_240).expect("it fits");
            assert!(at + 1536 <= 10_240 && at % 512 == 0);
        }
    }

    #[test]
    fn speeds_are_positive_numbers() {
        assert_eq!(parse_speed("2.5"), Ok(2.5));
        for wrong in ["0", "-1", "nan", "inf", "fast", ""] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
    }
}
