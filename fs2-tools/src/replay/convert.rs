//! `fs2-replay convert`: a trace in another format.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use fs2_trace::{BlkparseWriter, Header, Record, Stream, Writer};

use super::Failure;
use super::info::{refuse_nothing, tell_skipped, thousands};
use super::input::ReadArgs;
use crate::fsbench::measure::attach::parse_bytes;
use crate::new_file::NewFile;
use crate::output::quoted;
use crate::outputs;

const EXAMPLES: &str = "\
Examples:
  fs2-replay convert web.csv.gz web.fs2trace            into the container that is read fastest
  fs2-replay convert sda.blktrace.* sda.fs2trace        the files of several processors into one
  fs2-replay convert a.fs2trace a.blkparse              into text for other tools
  fs2-replay convert --to blkparse a.fs2trace - | less  standard output

Without --to the last name says what is written: .blkparse and .txt blkparse's text, any other the container; a name \
that promises what is not written, as .csv or .gz, is refused.

A container needs the volume's size. Unless --volume-bytes or --partition says it, it is the end of the \
highest request, rounded up to a MiB; standard output needs it said. A file that is there already is not \
written over without --force: where the last name is forgotten, it is a trace.";

#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = "fs2-replay convert [OPTIONS] IN... OUT")]
pub(super) struct Args {
    /// The trace, one file or more, or - for standard input; then the file to write, or - for standard output
    // At least two, which clap would ask of what stands on either side of an option.
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    files: Vec<PathBuf>,
    /// What to write, whatever the last name says
    #[arg(long, value_enum)]
    to: Option<To>,
    /// Size of the traced volume: bytes, or such as 10g
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    volume_bytes: Option<u64>,
    /// Replace the file to write where it is there already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// The container of docs/trace-format.md
    Container,
    /// blkparse's text: a D line for each request, a C line where its service time is known
    Blkparse,
}

/// The size while it is not known: what a request can reach.
const UNKNOWN_VOLUME: u64 = i64::MAX as u64;

/// Ends of names by which traces of other formats are known, or packed ones: nothing here writes them.
const NOT_WRITTEN: [&str; 14] = [
    "blktrace", "bz2", "csv", "fio", "gz", "iolog", "json", "load", "spc", "srt", "tsv", "vscsi", "xz", "zst",
];

/// What a name says that is in it: its end, in small letters.
fn end_of(target: &Path) -> Option<String> {
    let ends = |name: &Path| name.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    // blktrace puts the processor behind.
    let stem = target.with_extension("");
    match ends(target) {
        Some(end)
            if end.bytes().all(|b| b.is_ascii_digit()) && ends(&stem).as_deref() == Some("blktrace") =>
        {
            ends(&stem)
        }
        end => end,
    }
}

/// Refuses a name that says that something else than a container is in it, to who writes only that.
///
/// # Errors
/// What it would be, and how another format is written.
pub(super) fn refuse_no_container(target: &Path) -> Result<(), Failure> {
    match end_of(target).as_deref() {
        Some(end) if NOT_WRITTEN.contains(&end) || matches!(end, "blkparse" | "txt") => {
            let whole = target.with_extension("fs2trace");
            let (name, whole) = (target.display(), quoted(&whole));
            Err(Failure(format!(
                "{name}: what is written is a container, which is no .{end}: end its name with .fs2trace; `fs2-replay convert {whole} \
                 OUT.blkparse` then makes blkparse's text of it, the one other format that is written"
            )))
        }
        _ => Ok(()),
    }
}

/// What to write: as asked for, or as the name says. It once was the container whatever that said.
fn wanted(to: Option<To>, target: &Path) -> Result<To, Failure> {
    match (to, end_of(target).as_deref()) {
        (Some(to), _) => Ok(to),
        (None, Some("blkparse" | "txt")) => Ok(To::Blkparse),
        (None, Some(end)) if NOT_WRITTEN.contains(&end) => Err(Failure(format!(
            "{}: no trace is written as .{end}; a name that ends with .fs2trace gets the container, one with .blkparse or .txt \
             blkparse's text, and --to container or --to blkparse writes that under this name",
            target.display()
        ))),
        _ => Ok(To::Container),
    }
}

/// Whether there is something to read and something to write.
pub(super) fn check_files(args: &Args) -> Result<(), Failure> {
    match args.files.len() {
        0 | 1 => Err(Failure("a trace is needed, and then the file to write: convert IN... OUT".to_owned())),
        _ => Ok(()),
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let Some((target, traces)) = args.files.split_last() else {
        return Err(Failure("a trace and a file to write are needed".to_owned()));
    };
    outputs::refuse_same(&[target], traces.iter().map(PathBuf::as_path))?;
    outputs::refuse_there(target, args.force)?;
    let to = wanted(args.to, target)?;
    let mut stream = args.read.open(traces, true)?;
    let (records, left_out) = if target == Path::new("-") {
        if to == To::Container && known_volume(args, &stream).is_none() {
            let what =
                "a container on standard output needs --volume-bytes, since its first bytes say the size";
            return Err(Failure(what.to_owned()));
        }
        let done = convert(args, to, &mut stream, target, out)?;
        (done.records, done.left_out)
    } else {
        to_file(args, to, &mut stream, target)?
    };
    tell_skipped(&stream, err)?;
    writeln!(err, "{} requests from {}", thousands(records), stream.format())?;
    if left_out > 0 {
        writeln!(
            err,
            "{} of them are of no bytes and left out: blkparse's text has none",
            thousands(left_out)
        )?;
    }
    Ok(())
}

fn known_volume(args: &Args, stream: &Stream) -> Option<u64> {
    let traced = match args.read.partition {
        Some(partition) => partition.len_bytes,
        None => stream.header().map(|h| h.volume_bytes),
    };
    args.volume_bytes.or(traced)
}

/// Requests read, and how many of them were left out.
fn to_file(args: &Args, to: To, stream: &mut Stream, target: &Path) -> Result<(u64, u64), Failure> {
    NewFile::create(target)?.write_with(|file| {
        let done = convert(args, to, stream, target, file)?;
        if let Some(mut header) = done.header {
            // Only now is known how far the requests reach, and when they began.
            if header.volume_bytes == UNKNOWN_VOLUME {
                header.volume_bytes = done.end_bytes.next_multiple_of(1 << 20).max(1 << 20);
            }
            header.start_unix_ns = stream.start_unix_ns().unwrap_or(header.start_unix_ns);
            let at = |e: io::Error| Failure::at(target, e);
            file.seek(SeekFrom::Start(0)).map_err(at)?;
            file.write_all(&header.to_bytes()).map_err(at)?;
        }
        Ok((done.records, done.left_out))
    })
}

struct Done {
    records: u64,
    /// Of them what the format cannot say.
    left_out: u64,
    end_bytes: u64,
    /// What the container's first bytes say.
    header: Option<Header>,
}

fn convert(
    args: &Args,
    to: To,
    stream: &mut Stream,
    target: &Path,
    out: &mut dyn Write,
) -> Result<Done, Failure> {
    let mut sink = match to {
        To::Blkparse => Sink::Blkparse(BlkparseWriter::new(out)),
        To::Container => {
            let known = stream.header();
            let volume = known_volume(args, stream).unwrap_or(UNKNOWN_VOLUME);
            let header = Header {
                volume_bytes: volume,
                block_size: known.and_then(|h| h.block_size),
                start_unix_ns: known.map_or(0, |h| h.start_unix_ns),
            };
            Sink::Container(Writer::new(out, header).map_err(|e| Failure::at(target, e))?, header)
        }
    };
    let (mut records, mut end_bytes) = (0, 0);
    for record in stream.by_ref() {
        let record = record.map_err(|e| Failure(e.to_string()))?;
        records += 1;
        end_bytes = end_bytes.max(record.extent.end());
        sink.push(&record).map_err(|e| Failure::at(target, e))?;
    }
    refuse_nothing(stream, records)?;
    let left_out = match &sink {
        Sink::Container(..) => 0,
        Sink::Blkparse(writer) => writer.left_out(),
    };
    let header = sink.finish().map_err(|e| Failure::at(target, e))?;
    Ok(Done { records, left_out, end_bytes, header })
}

enum Sink<'a> {
    Container(Writer<&'a mut dyn Write>, Header),
    Blkparse(BlkparseWriter<&'a mut dyn Write>),
}

impl Sink<'_> {
    fn push(&mut self, record: &Record) -> io::Result<()> {
        match self {
            Sink::Container(writer, _) => writer.push(record),
            Sink::Blkparse(writer) => writer.push(record),
        }
    }

    fn finish(self) -> io::Result<Option<Header>> {
        match self {
            Sink::Container(writer, header) => writer.finish().map(|_| Some(header)),
            Sink::Blkparse(writer) => writer.finish().map(|_| None),
        }
    }
}
