//! Traces as a command line names them: files or standard input, the options on how to read them, and
//! a bar on a terminal where that takes long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fs2_block::Op;
use fs2_trace::{ArrivalEvent, BoxRead, DEVICE_STRIDE, DeviceChoice, Format, OpenOptions, Partition, Stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Failure;
use crate::outputs;

/// Bytes of a free map, or of measured requests, at most, unpacked: they are kept. A guess: a terabyte's dumpe2fs has a hundredth of it.
pub(super) const MEASURED_BYTES_MAX: u64 = 256 << 20;

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
    /// Only the requests within one partition of the device, at their addresses there: its first sector and how many it
    /// has, as `fdisk -l` lists them [default: the device as a whole]
    #[arg(long, value_name = "START[,SECTORS]", value_parser = str::parse::<Partition>)]
    pub(super) partition: Option<Partition>,
    /// Put the address ranges of several devices side by side, without gaps between them; the trace is read
    /// twice, so it cannot come from standard input
    #[arg(long, conflicts_with_all = ["device", "partition"])]
    pub(super) pack: bool,
    /// Where each device begins, once `place` has found it.
    #[arg(skip)]
    places: OnceLock<DeviceChoice>,
    /// By how many bytes each device's addresses are moved up, once `align` has found it.
    #[arg(skip)]
    moved: OnceLock<Vec<(String, u64)>>,
    /// No bar, however long it takes.
    #[arg(skip)]
    pub(super) quiet: bool,
}

/// Bytes of a sector.
const SECTOR: u64 = 512;

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
            partition: self.partition,
            moved: self.moved.get().cloned().unwrap_or_default(),
            own_io: false,
        }
    }

    /// Has every device begin where a block does: a trace of a whole device has the blocks of a partition's file system
    /// wherever the partition begins, sector 63 for one. Moved up by `sectors`, or where it is not given by what most of
    /// the device's reads among the first `limit` requests ask for: more than half of them then begin and end with blocks.
    /// `open` and `place` keep to it from then on. Returns what is moved, and by how many sectors.
    pub(super) fn align(
        &self,
        traces: &[&[PathBuf]],
        limit: usize,
        block_bytes: u64,
        sectors: Option<u64>,
    ) -> Result<Vec<(String, u64)>, Failure> {
        let block = block_bytes / SECTOR;
        // Of each device the reads, and how many of them begin and end so many sectors behind blocks.
        let mut reads: BTreeMap<String, (u64, Vec<u64>)> = BTreeMap::new();
        for paths in traces.iter().filter(|paths| !paths.is_empty()) {
            let mut stream = open(paths, self.options(), self.quiet)?;
            let mut apart: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
            // What is wrong with a trace is said when it is replayed.
            for record in stream.by_ref().take(limit).map_while(Result::ok).filter(|r| r.op == Op::Read) {
                let (begin, end) = (record.extent.offset() / SECTOR, record.extent.end() / SECTOR);
                let place = record.extent.offset() / DEVICE_STRIDE;
                let (all, behind) = apart.entry(place).or_insert_with(|| (0, vec![0; block as usize]));
                *all += 1;
                if begin % block == end % block {
                    behind[(begin % block) as usize] += 1;
                }
            }
            for (place, (all, behind)) in apart {
                let device = stream.device_at(place * DEVICE_STRIDE).map(|d| d.name.as_str());
                let name = self.device.as_deref().or(device);
                let sum = reads.entry(name.unwrap_or_default().to_owned()).or_default();
                sum.0 += all;
                sum.1.resize(block as usize, 0);
                sum.1.iter_mut().zip(behind).for_each(|(sum, n)| *sum += n);
            }
        }
        let moved: Vec<(String, u64)> = reads
            .into_iter()
            .map(|(name, (all, behind))| {
                let most = (0..).zip(&behind).find(|(_, n)| **n * 2 > all).map_or(0, |(at, _)| at);
                (name, sectors.unwrap_or((block - most) % block))
            })
            .filter(|(_, sectors)| *sectors > 0)
            .collect();
        let _ =
            self.moved.set(moved.iter().map(|(name, sectors)| (name.clone(), sectors * SECTOR)).collect());
        Ok(moved)
    }

    /// Opens a trace: a file, several that are parts of one, or `-` for standard input. `own_io` gives out
    /// also a daemon's own requests.
    pub(super) fn open(&self, paths: &[PathBuf], own_io: bool) -> Result<Stream, Failure> {
        if self.pack && self.places.get().is_none() {
            refuse_once(paths, "--pack reads a trace twice")?;
            self.place(&[paths], usize::MAX)?;
        }
        let mut options = OpenOptions { own_io, ..self.options() };
        if let Some(places) = self.places.get() {
            options.devices = places.clone();
        }
        open(paths, options, self.quiet)
    }

    /// Finds where each device begins, by the first `limit` requests of each of these traces: at the same place in all
    /// of them, in whatever order they name the devices. `open` keeps to it from then on. Where none has several, each
    /// keeps its own addresses: two names are one volume then.
    pub(super) fn place(&self, traces: &[&[PathBuf]], limit: usize) -> Result<(), Failure> {
        let traces = || traces.iter().filter(|paths| !paths.is_empty());
        if self.device.is_some() || !self.pack && traces().count() < 2 {
            return Ok(());
        }
        let mut ends: Vec<(String, u64)> = Vec::new();
        let mut several = self.pack;
        for paths in traces() {
            let mut stream = open(paths, self.options(), self.quiet)?;
            for record in stream.by_ref().take(limit) {
                record.map_err(|e| Failure(e.to_string()))?;
            }
            let devices = stream.devices().iter().filter(|d| d.requests > 0);
            several |= devices.clone().count() > 1;
            for device in devices {
                let moved = self.moved.get().into_iter().flatten().find(|m| m.0 == device.name);
                let end = device.end_bytes.saturating_add(moved.map_or(0, |m| m.1));
                match ends.iter_mut().find(|(name, _)| *name == device.name) {
                    Some((_, last)) => *last = end.max(*last),
                    None => ends.push((device.name.clone(), end)),
                }
            }
        }
        if !several {
            return Ok(());
        }
        if let Some((name, end)) = ends.iter().find(|(_, end)| !self.pack && *end > DEVICE_STRIDE) {
            let end = crate::mkfs2::bytes(*end);
            return Err(Failure(format!(
                "device {name:?}, whose requests reach to {end}, does not fit beside the trace's other devices; --device \
                 chooses one"
            )));
        }
        let mut begin: u64 = 0;
        let places = ends.into_iter().map(|(name, end)| {
            let at = begin;
            let room = if self.pack {
                end.saturating_add(PACK_BYTES - 1) / PACK_BYTES * PACK_BYTES
            } else {
                DEVICE_STRIDE
            };
            begin = begin.saturating_add(room);
            (name, at)
        });
        // Whoever came first has found the same.
        let _ = self.places.set(DeviceChoice::Placed(places.collect()));
        Ok(())
    }
}

/// Refuses what is there once, standard input and pipes, to a command that reads a trace again, as `why` says.
///
/// # Errors
/// Which it is.
pub(super) fn refuse_once<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
    why: &str,
) -> Result<(), Failure> {
    for path in paths {
        if path == Path::new("-") {
            return Err(Failure(format!("{why}: give a file, not standard input")));
        }
        let kind = std::fs::metadata(path).map(|about| about.file_type());
        if kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) {
            return Err(Failure::at(path, format!("{why}: give a file, not a pipe")));
        }
    }
    Ok(())
}

fn open(paths: &[PathBuf], options: OpenOptions, quiet: bool) -> Result<Stream, Failure> {
    if paths.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(Failure("- is named twice, and there is one standard input".to_owned()));
    }
    let mut inputs: Vec<(String, BoxRead)> = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        files.push(if path == Path::new("-") { None } else { Some(file(path)?) });
    }
    refuse_twice(paths)?;
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

/// Refuses a file that is named twice as a part of one trace: each of its requests would be two.
fn refuse_twice(paths: &[PathBuf]) -> Result<(), Failure> {
    for (i, path) in paths.iter().enumerate() {
        if let Some(same) = paths[..i].iter().find(|before| outputs::is_same(before, path)) {
            let what = if same == path {
                "named twice".to_owned()
            } else {
                format!("the same file as {}", same.display())
            };
            let then = "each of its requests would come twice; name each part of a trace once";
            return Err(Failure::at(path, format!("{what}: {then}")));
        }
    }
    Ok(())
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
pub(super) struct Bar {
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

    /// A bar of passes over a trace that is in memory.
    pub(super) fn of_passes(passes: u64, quiet: bool) -> Bar {
        let bar = Bar::new(Some(passes), quiet);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} passes, {eta} left") {
            bar.bar.set_style(style);
        }
        bar
    }

    pub(super) fn advance(&self, by: u64) {
        self.bar.inc(by);
        if !self.quiet && self.bar.is_hidden() && self.begun.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
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
        self.bar.advance(n as u64);
        Ok(n)
    }
}

impl<R> Drop for Counted<R> {
    fn drop(&mut self) {
        self.bar.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found: each trace had its devices in the order in which it names them.
    #[test]
    fn a_device_begins_at_one_place_in_every_trace() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let put = |name: &str, devices: &[u32]| {
            let path = dir.path().join(name);
            let lines = (0..).zip(devices).map(|(i, d)| format!("{d},{},512,r,{i}\n", i * 8));
            std::fs::write(&path, lines.collect::<String>()).expect("written");
            vec![path]
        };
        let (a, b) = (put("a", &[3, 5, 3]), put("b", &[5, 7]));
        for (pack, step) in [(false, DEVICE_STRIDE), (true, PACK_BYTES)] {
            let read = ReadArgs { pack, quiet: true, ..ReadArgs::default() };
            read.place(&[&a, &[], &b], usize::MAX).expect("traces");
            let begins = |paths: &[PathBuf]| -> Vec<u64> {
                let records = read.open(paths, false).expect("a trace");
                records.map(|r| r.expect("a request").extent.offset() / step * step).collect()
            };
            assert_eq!((begins(&a), begins(&b)), (vec![0, step, 0], vec![step, 2 * step]), "pack: {pack}");
        }
        // One device each: two names of one volume.
        let (a, b) = (put("a", &[3, 3]), put("b", &[5, 5]));
        let read = ReadArgs { quiet: true, ..ReadArgs::default() };
        read.place(&[&a, &b], usize::MAX).expect("traces");
        assert_eq!(
            read.open(&b, false).expect("a trace").nth(1).expect("two").expect("whole").extent.offset(),
            4096
        );
    }
}
