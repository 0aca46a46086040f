//! Traces as a command line names them: files or standard input, the options on how to read them, and
//! a bar on a terminal where that takes long.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs2_trace::{ArrivalEvent, BoxRead, DeviceChoice, Format, OpenOptions, Stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Failure;

/// No bar before that.
const PATIENCE: Duration = Duration::from_secs(2);

/// How to read a trace.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Reading the trace")]
pub(super) struct ReadArgs {
    /// The trace's format, instead of finding it by the first bytes [container, blktrace, blkparse, spc,
    /// msr, fiu, disksim, disksim-validate, fio, blkreplay, vscsi1, vscsi2, srt]
    #[arg(long, value_name = "FORMAT", value_parser = str::parse::<Format>, hide_possible_values = true)]
    pub(super) format: Option<Format>,
    /// What counts as a request's arrival in blktrace and blkparse traces: queued (Q), inserted (I), issued
    /// (D) or completed (C) [default: the first there is of D, Q, I, C]
    #[arg(long, value_name = "Q|I|D|C", value_parser = str::parse::<ArrivalEvent>)]
    pub(super) event: Option<ArrivalEvent>,
    /// Count lines, records and blocks that are wrong, and go on; of a trace that ends early, or cannot be
    /// unpacked further, take what was read before
    #[arg(long)]
    pub(super) skip_bad: bool,
    /// Only the requests for one device, by the name `info` shows [default: all, each device in an address
    /// range of its own, 4 TiB apart]
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<String>,
    /// Put the address ranges of several devices side by side, without gaps between them; the trace is read
    /// twice, so it cannot come from standard input
    #[arg(long, conflicts_with = "device")]
    pub(super) pack: bool,
    /// No bar, however long it takes.
    #[arg(skip)]
    pub(super) quiet: bool,
}

/// Where a device's addresses may begin.
const PACK_BYTES: u64 = 1 << 20;

impl ReadArgs {
    /// As the trace crate wants it.
    fn options(&self) -> OpenOptions {
        OpenOptions {
            format: self.format,
            event: self.event,
            skip_bad: self.skip_bad,
            devices: self.device.clone().map_or(DeviceChoice::Apart, DeviceChoice::Only),
            own_io: false,
        }
    }

    /// Opens a trace: a file, several that are parts of one, or `-` for standard input. `own_io` gives out
    /// also a daemon's own requests.
    pub(super) fn open(&self, paths: &[PathBuf], own_io: bool) -> Result<Stream, Failure> {
        let mut options = OpenOptions { own_io, ..self.options() };
        if self.pack {
            if paths.iter().any(|p| p == Path::new("-")) {
                return Err(Failure(
                    "--pack reads a trace twice, and standard input is there once".to_owned(),
                ));
            }
            options.devices = packed(open(paths, options.clone(), self.quiet)?)?;
        }
        open(paths, options, self.quiet)
    }
}

/// The devices of a trace side by side.
fn packed(mut stream: Stream) -> Result<DeviceChoice, Failure> {
    for record in &mut stream {
        record.map_err(|e| Failure(e.to_string()))?;
    }
    let mut begin: u64 = 0;
    let mut places = Vec::new();
    for device in stream.devices() {
        places.push((device.name.clone(), begin));
        begin = begin.saturating_add(device.end_bytes).next_multiple_of(PACK_BYTES);
    }
    Ok(DeviceChoice::Placed(places))
}

fn open(paths: &[PathBuf], options: OpenOptions, quiet: bool) -> Result<Stream, Failure> {
    let mut inputs: Vec<(String, BoxRead)> = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        files.push(if path == Path::new("-") { None } else { Some(file(path)?) });
    }
    let sizes = files.iter().map(|f| f.as_ref().map(|(_, bytes)| *bytes)).sum::<Option<u64>>();
    let bar = Bar::new(sizes, quiet);
    for (path, file) in paths.iter().zip(files) {
        let input: BoxRead = match file {
            Some((file, _)) => Box::new(Counted { input: file, bar: bar.clone() }),
            None => Box::new(Counted { input: io::stdin(), bar: bar.clone() }),
        };
        let name = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
        inputs.push((name, input));
    }
    fs2_trace::open(inputs, options).map_err(|e| Failure(e.to_string()))
}

/// A trace's file, and how long it is.
fn file(path: &Path) -> Result<(File, u64), Failure> {
    let file = File::open(path).map_err(|e| Failure::at(path, e))?;
    let about = file.metadata().map_err(|e| Failure::at(path, e))?;
    if about.is_dir() {
        return Err(Failure::at(path, "a directory, expected a trace"));
    }
    Ok((file, about.len()))
}

/// How far the reading is; shown on a terminal, and only once it has taken long.
#[derive(Clone)]
struct Bar {
    bar: ProgressBar,
    begun: Instant,
    quiet: bool,
}

impl Bar {
    fn new(bytes: Option<u64>, quiet: bool) -> Bar {
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::hidden());
        let style = match bytes {
            Some(_) => "{bar:40} {bytes} of {total_bytes}, {eta} left",
            None => "{spinner} {bytes}",
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Bar { bar, begun: Instant::now(), quiet }
    }
}

/// An input whose bytes move a bar.
struct Counted<R> {
    input: R,
    bar: Bar,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        self.bar.bar.inc(n as u64);
        if !self.bar.quiet && self.bar.bar.is_hidden() && self.bar.begun.elapsed() > PATIENCE {
            self.bar.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Ok(n)
    }
}

impl<R> Drop for Counted<R> {
    fn drop(&mut self) {
        self.bar.bar.finish_and_clear();
    }
}
