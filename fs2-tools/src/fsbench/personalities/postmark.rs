//! `postmark`: PostMark 1.51's transactions on many small files, in several processes at once (elastic
//! quotas).
//!
//! Each process has a directory of its own, makes its files, does its transactions and removes all files
//! again. The first process of the first pass draws as PostMark does with the same seed, so that both do the same
//! operations. Every file that is read is compared with what was written, outside of the time that is reported
//! for the read.
//!
//! With blocks of 512 bytes a call costs little more than entering the kernel, so that what a thread adds to it shows:
//! the C library's calls look for a cancellation in every process with threads, and the kernel counts references and takes
//! a lock for a descriptor that threads share. Calls are therefore made by rustix, which enters the kernel itself, and
//! each thread has a table of descriptors of its own, as a process of PostMark's would.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::path::DecInt;

use crate::fsbench::control::{Recorder, in_threads};
use crate::fsbench::{
    BenchError, Content, Control, Entry, Metric, Needs, OpClass, PassReport, Setup, Site, Verified, Workload,
};

use super::mersenne::Mersenne;

pub(super) const ENTRY: Entry = Entry {
    name: "postmark",
    summary: "PostMark 1.51: small files made, read, appended to and removed, 1 to 8 at once",
    source: "elastic quotas",
    presets: &["ci", "paper", "stock"],
    make: |setup| Ok(Box::new(PostMark::new(setup)?)),
};

const CLASSES: [&str; 4] = ["create", "read", "append", "delete"];
const CREATE: usize = 0;
const READ: usize = 1;
const APPEND: usize = 2;
const DELETE: usize = 3;

parameters! {
    struct Parameters {
        /// At the same time, a thread and a directory each.
        processes: u64,
        /// Of each process.
        transactions: u64,
        /// Files of each process at the beginning.
        files: u64,
        /// Smallest file, bytes.
        least: u64,
        /// Largest file, bytes.
        most: u64,
        /// Of ten transactions so many read, the others append.
        read_bias: u64,
        /// Of ten transactions so many create, the others delete.
        create_bias: u64,
        /// Bytes of a read or write.
        block: u64,
    }
}

pub(super) struct PostMark {
    parameters: Parameters,
    seed: u64,
    passes: u64,
    compared: u64,
    compared_bytes: u64,
    /// What was read and not as written.
    wrong: Vec<(PathBuf, String)>,
}

/// An operation on a slot of the table of files, which has twice as many as there are at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Create { slot: usize, len: u64 },
    Read { slot: usize },
    Append { slot: usize, by: u64 },
    Delete { slot: usize },
}

/// Which operations there are, in PostMark's order and by its draws.
struct Draws<'a> {
    parameters: &'a Parameters,
    rng: Mersenne,
    /// Bytes of each file; `None`: the slot is free.
    slots: Vec<Option<u64>>,
    /// The slot after the one taken last.
    after: usize,
    there: usize,
}

impl Draws<'_> {
    fn new(parameters: &Parameters, seed: u32) -> Draws<'_> {
        let mut rng = Mersenne::new(seed);
        // PostMark fills its buffer of text from the same generator first.
        for _ in 0..2 * parameters.most.min(SOURCE_MAX) {
            rng.below(95);
        }
        Draws { parameters, rng, slots: vec![None; 2 * parameters.files as usize], after: 0, there: 0 }
    }

    /// A new file, where there is a free slot.
    fn create(&mut self) -> Option<Act> {
        let next = self.slots.get(self.after).is_some_and(Option::is_none).then_some(self.after);
        let slot = next.or_else(|| self.slots.iter().position(Option::is_none))?;
        self.after = slot + 1;
        let Parameters { least, most, .. } = *self.parameters;
        let len = least + self.rng.below(most - least);
        self.slots[slot] = Some(len);
        self.there += 1;
        Some(Act::Create { slot, len })
    }

    fn delete(&mut self, slot: usize) -> Act {
        self.slots[slot] = None;
        self.there -= 1;
        Act::Delete { slot }
    }

    /// Any file that is there, of which there is one.
    fn used(&mut self) -> (usize, u64) {
        loop {
            let slot = self.rng.below(self.slots.len() as u64) as usize;
            if let Some(len) = self.slots[slot] {
                return (slot, len);
            }
        }
    }

    /// One transaction: a read or an append, a creation or a deletion; `None` where no file is left.
    fn transaction(&mut self) -> Option<[Option<Act>; 2]> {
        if self.there == 0 {
            return None;
        }
        let first = if self.rng.below(10) < self.parameters.read_bias {
            Some(Act::Read { slot: self.used().0 })
        } else {
            let (slot, len) = self.used();
            // A file of the largest size is left alone, and no append is counted.
            let room = self.parameters.most.saturating_sub(len);
            (room > 0).then(|| {
                let by = self.rng.below(room) + 1;
                self.slots[slot] = Some(len + by);
                Act::Append { slot, by }
            })
        };
        let second = if self.rng.below(10) < self.parameters.create_bias {
            self.create()
        } else {
            let slot = self.used().0;
            Some(self.delete(slot))
        };
        Some([first, second])
    }

    /// What is left, from the table's beginning.
    fn remove_one(&mut self, from: usize) -> Option<Act> {
        let slot = (from..self.slots.len()).find(|i| self.slots[*i].is_some())?;
        Some(self.delete(slot))
    }
}

/// Contents come out of at most so many bytes of noise.
const SOURCE_MAX: u64 = 64 << 20;

/// A file that is there.
#[derive(Clone, Copy)]
struct Alive {
    serial: u64,
    len: u64,
}

/// A process's run.
struct Process<'a> {
    dir: PathBuf,
    dir_fd: OwnedFd,
    recorder: Recorder<'a>,
    block: usize,
    seed: u64,
    /// By slot.
    files: Vec<Option<Alive>>,
    made: u64,
    /// Noise, of which each file is a part: what takes no time to make does not count as the file system's. Its first
    /// block is repeated behind its period.
    source: &'a [u8],
    period: usize,
    buffer: Vec<u8>,
    compared: (u64, u64),
    wrong: Vec<(PathBuf, String)>,
}

impl PostMark {
    fn new(setup: &Setup) -> Result<PostMark, BenchError> {
        let usual = Parameters {
            processes: 4,
            transactions: 5000,
            files: 2500,
            least: 8 << 10,
            most: 64 << 10,
            read_bias: 5,
            create_bias: 5,
            block: 512,
        };
        let p = match setup.preset.as_str() {
            "paper" => usual,
            // PostMark's own defaults.
            "stock" => {
                Parameters { processes: 1, transactions: 500, files: 500, least: 500, most: 10_000, ..usual }
            }
            _ => Parameters { processes: 2, transactions: 1000, files: 500, ..usual },
        };
        let p = setup.apply(Parameters {
            transactions: setup.scaled(p.transactions, 1),
            files: setup.scaled(p.files, 1),
            ..p
        })?;
        if !(1..=1000).contains(&p.processes)
            || p.files == 0
            || p.files > 10_000_000
            || !(1..=p.most).contains(&p.least)
            || p.most > 1 << 40
            || !(1..=1 << 20).contains(&p.block)
            || p.read_bias > 10
            || p.create_bias > 10
        {
            return Err(BenchError::Usage(
                "postmark: 1 to 1,000 processes, a file at least, 1 <= least <= most, a block of 1 byte to 1 MiB, \
                 biases from 0 to 10"
                    .into(),
            ));
        }
        Ok(PostMark {
            parameters: p,
            seed: setup.seed,
            passes: 0,
            compared: 0,
            compared_bytes: 0,
            wrong: Vec::new(),
        })
    }

    /// Bytes after which contents repeat.
    fn period(&self) -> u64 {
        (2 * self.parameters.most).min(SOURCE_MAX)
    }
}

/// Writes all of it.
fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Gives the calling thread descriptors of its own, those that are open now among them. Without it all is slower, no more.
fn own_descriptors() {
    // SAFETY: no memory is touched. A descriptor that this thread opens is used and closed by this thread only, and
    // closing one that it shares no longer closes the thread's copy, which goes with the thread.
    unsafe { libc::unshare(libc::CLONE_FILES) };
}

impl Process<'_> {
    fn path(&self, serial: u64) -> PathBuf {
        self.dir.join(serial.to_string())
    }

    /// An error of a file: its path is made where there is one.
    fn at(&self, serial: u64, what: &'static str) -> impl FnOnce(io::Error) -> BenchError {
        move |e| BenchError::at(&self.path(serial), what)(e)
    }

    /// Opens a file by its name in the process's directory.
    fn open(&self, serial: u64, flags: OFlags) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o666);
        let open = || rustix::fs::openat(&self.dir_fd, DecInt::new(serial), flags | OFlags::CLOEXEC, mode);
        Ok(rustix::io::retry_on_intr(open)?)
    }

    /// Where in the source a file's first byte lies.
    fn begin(&self, serial: u64) -> usize {
        (crate::fsbench::rng::mix(self.seed ^ serial) % self.period as u64) as usize
    }

    /// Writes a file's bytes from `from` to `to` in blocks: a file begins at a place of its own in the source, and goes
    /// round. The source goes on behind its period for a block.
    fn write(&self, file: &OwnedFd, serial: u64, from: u64, to: u64) -> io::Result<()> {
        let begin = self.begin(serial) as u64;
        let mut at = from;
        while at < to {
            let place = ((begin + at) % self.period as u64) as usize;
            let n = (to - at).min(self.block as u64) as usize;
            write_all(file, &self.source[place..place + n])?;
            at += n as u64;
        }
        Ok(())
    }

    /// Whether these are a file's bytes from its beginning.
    fn is_content(&self, serial: u64, mut bytes: &[u8]) -> bool {
        let mut place = self.begin(serial);
        while !bytes.is_empty() {
            let (here, behind) = bytes.split_at(bytes.len().min(self.period - place));
            if here != &self.source[place..place + here.len()] {
                return false;
            }
            (bytes, place) = (behind, 0);
        }
        true
    }

    fn act(&mut self, act: Act) -> Result<(), BenchError> {
        match act {
            Act::Create { slot, len } => self.create(slot, len),
            Act::Read { slot } => self.on(slot, Self::read),
            Act::Append { slot, by } => self.on(slot, |this, file| this.append(slot, file, by)),
            Act::Delete { slot } => self.on(slot, |this, file| this.delete(slot, file)),
        }
    }

    fn on(
        &mut self,
        slot: usize,
        act: impl FnOnce(&mut Self, Alive) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        match self.files[slot] {
            Some(file) => act(self, file),
            None => Err(BenchError::Failed(format!("postmark: slot {slot} has no file"))),
        }
    }

    fn create(&mut self, slot: usize, len: u64) -> Result<(), BenchError> {
        let serial = self.made;
        let began = Instant::now();
        let file = self
            .open(serial, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
            .map_err(self.at(serial, "making it"))?;
        self.write(&file, serial, 0, len).map_err(self.at(serial, "writing it"))?;
        drop(file);
        self.recorder.done(CREATE, began, 0, len);
        self.made += 1;
        self.files[slot] = Some(Alive { serial, len });
        Ok(())
    }

    fn read(&mut self, Alive { serial, len }: Alive) -> Result<(), BenchError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let room = len as usize + self.block;
        if buffer.len() < room {
            buffer.resize(room, 0);
        }
        let began = Instant::now();
        let read = || -> io::Result<usize> {
            let (file, mut at) = (self.open(serial, OFlags::RDONLY)?, 0);
            // As many blocks as it has, and the rest, which is asked for as a whole one: a file that is longer shows.
            loop {
                let block = &mut buffer[at..at + self.block];
                let n = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut *block))?;
                at += n;
                if n < self.block || at as u64 > len {
                    return Ok(at);
                }
            }
        };
        let got = { read }().map_err(self.at(serial, "reading it"))?;
        self.recorder.done(READ, began, got as u64, 0);
        if got as u64 != len || !self.is_content(serial, &buffer[..got]) {
            self.wrong.push((self.path(serial), format!("{got} bytes read are not the {len} written")));
        }
        self.buffer = buffer;
        self.compared = (self.compared.0 + 1, self.compared.1 + len);
        Ok(())
    }

    fn append(&mut self, slot: usize, Alive { serial, len }: Alive, by: u64) -> Result<(), BenchError> {
        let began = Instant::now();
        let file =
            self.open(serial, OFlags::WRONLY | OFlags::APPEND).map_err(self.at(serial, "opening it"))?;
        self.write(&file, serial, len, len + by).map_err(self.at(serial, "appending to it"))?;
        drop(file);
        self.recorder.done(APPEND, began, 0, by);
        self.files[slot] = Some(Alive { serial, len: len + by });
        Ok(())
    }

    fn delete(&mut self, slot: usize, file: Alive) -> Result<(), BenchError> {
        let began = Instant::now();
        rustix::fs::unlinkat(&self.dir_fd, DecInt::new(file.serial), AtFlags::empty())
            .map_err(|e| self.at(file.serial, "removing it")(e.into()))?;
        self.recorder.done(DELETE, began, 0, 0);
        self.files[slot] = None;
        Ok(())
    }

    /// How many transactions were done.
    fn run(&mut self, mut draws: Draws, control: &Control) -> Result<u64, BenchError> {
        let Parameters { files, transactions, .. } = *draws.parameters;
        for _ in 0..files {
            if control.over() {
                break;
            }
            draws.create().map_or(Ok(()), |act| self.act(act))?;
        }
        let mut done = 0;
        while done < transactions && !control.over() {
            let Some(acts) = draws.transaction() else { break };
            acts.into_iter().flatten().try_for_each(|act| self.act(act))?;
            done += 1;
        }
        let mut from = 0;
        while !control.stopped()
            && let Some(act @ Act::Delete { slot }) = draws.remove_one(from)
        {
            self.act(act)?;
            from = slot;
        }
        if draws.there == 0 {
            fs::remove_dir(&self.dir).map_err(BenchError::at(&self.dir, "removing it"))?;
        }
        Ok(done)
    }
}

/// Makes a directory, and opens it.
fn made(dir: &Path) -> io::Result<OwnedFd> {
    fs::create_dir(dir)?;
    Ok(fs::File::open(dir)?.into())
}

fn dir_of(site: &Site, thread: usize) -> PathBuf {
    site.path(format!("process{thread}"))
}

impl Workload for PostMark {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let p = &self.parameters;
        // All transactions could create.
        let files = p.processes * (p.files + p.transactions.min(p.files));
        Needs {
            bytes: files.saturating_mul(p.most),
            inodes: files + p.processes,
            descriptors: 2 * p.processes,
            memory: self.period() + p.block + p.processes * (p.most + p.block + 128 * p.files),
        }
    }

    fn prepare(&mut self, _site: &Site, _control: &Control) -> Result<(), BenchError> {
        Ok(())
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let p = self.parameters.clone();
        let sums = std::sync::Mutex::new((0u64, (0u64, 0u64), Vec::new()));
        let (period, block) = (self.period() as usize, p.block as usize);
        let mut source = vec![0; period + block];
        Content::new(self.seed, 0).fill(0, &mut source[..period]);
        for i in 0..block {
            source[period + i] = source[i];
        }
        let classes = in_threads(control, p.processes as usize, |thread| {
            own_descriptors();
            let number = self.passes * p.processes + thread as u64;
            let dir = dir_of(site, thread);
            let mut process = Process {
                dir_fd: made(&dir).map_err(BenchError::at(&dir, "making the directory"))?,
                dir,
                recorder: control.recorder(CLASSES.map(OpClass::new).into()),
                block,
                seed: crate::fsbench::rng::mix(self.seed.wrapping_add(number)),
                files: vec![None; 2 * p.files as usize],
                made: 0,
                source: &source,
                period,
                buffer: Vec::new(),
                compared: (0, 0),
                wrong: Vec::new(),
            };
            // PostMark's seed is an int.
            let draws = Draws::new(&p, self.seed.wrapping_add(number) as u32);
            let done = process.run(draws, control)?;
            let mut sums = sums.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            sums.0 += done;
            sums.1 = (sums.1.0 + process.compared.0, sums.1.1 + process.compared.1);
            sums.2.append(&mut process.wrong);
            Ok(process.recorder.into_classes())
        })?;
        let (done, compared, mut wrong) =
            sums.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.passes += 1;
        self.compared += compared.0;
        self.compared_bytes += compared.1;
        self.wrong.append(&mut wrong);
        let mut report = control.report(classes);
        let limits = control.limits();
        let planned = p.processes.saturating_mul(p.transactions);
        if done < planned && limits.duration.is_none() && limits.ops.is_none() {
            report.short = Some(format!("{done} of {planned} transactions; no file was left"));
        }
        let (all, seconds) = (control.elapsed(), report.elapsed.as_secs_f64());
        let (read, written) = report.bytes();
        report.metrics = vec![
            // All were counted, those of a warm-up too.
            Metric::less("completion", "s", all.as_secs_f64()),
            Metric::more("transactions", "/s", done as f64 / all.as_secs_f64().max(1e-9)),
            Metric::more("throughput", "MB/s", (read + written) as f64 / 1e6 / seconds.max(1e-9)),
        ];
        Ok(report)
    }

    fn verify(&mut self, site: &Site, _control: &Control) -> Result<Verified, BenchError> {
        let mut verified =
            Verified { files: self.compared, bytes: self.compared_bytes, ..Verified::default() };
        for (path, wrong) in self.wrong.drain(..) {
            verified.files -= 1;
            verified.note(&path, 0, Some(wrong));
        }
        for thread in 0..self.parameters.processes as usize {
            let dir = dir_of(site, thread);
            if Path::new(&dir).exists() {
                verified.note(&dir, 0, Some("was to be removed".into()));
            }
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsbench::Limits;

    /// What PostMark 1.51 itself reported for these settings and its own seed: 4,980 files created, 2,475 read, 2,525
    /// appended to and 4,980 deleted.
    #[test]
    fn the_draws_are_postmark_s() {
        let setup = Setup { preset: "paper".into(), seed: 42, scale: 1.0, set: vec![], passes: 1 };
        let p = Parameters { least: 8192, most: 65_536, ..PostMark::new(&setup).unwrap().parameters };
        let mut draws = Draws::new(&p, 42);
        let mut counts = [0; 4];
        let mut count = |act: Act| {
            counts[match act {
                Act::Create { .. } => CREATE,
                Act::Read { .. } => READ,
                Act::Append { .. } => APPEND,
                Act::Delete { .. } => DELETE,
            }] += 1;
        };
        (0..p.files).filter_map(|_| draws.create()).for_each(&mut count);
        for _ in 0..p.transactions {
            draws.transaction().unwrap().into_iter().flatten().for_each(&mut count);
        }
        while let Some(act) = draws.remove_one(0) {
            count(act);
        }
        assert_eq!(counts, [4980, 2475, 2525, 4980]);
    }

    #[test]
    fn transactions_are_as_postmark_s() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::create(dir.path(), "postmark", serde_json::Value::Null, 42).unwrap();
        let set = [
            ("processes", "2"),
            ("files", "300"),
            ("transactions", "1000"),
            ("most", "9000"),
            ("least", "500"),
        ];
        let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        let setup = Setup { preset: "ci".into(), seed: 42, scale: 1.0, set, passes: 1 };
        let mut postmark = PostMark::new(&setup).unwrap();
        let control = Control::new(Limits::default());
        let report = postmark.pass(&site, &control).unwrap();
        let count = |class: usize| report.classes[class].ops;
        // Two transactions in each of 2,000: half of the first kind read, half of the second create.
        let near = |n: u64, of: u64| n.abs_diff(of) < 116;
        assert!(near(count(READ), 1000) && count(APPEND) <= 2000 - count(READ), "{}", count(READ));
        assert!(near(count(CREATE), 600 + 1000), "{}", count(CREATE));
        assert_eq!(count(CREATE), count(DELETE));
        assert!(report.short.is_none());
        let verified = postmark.verify(&site, &control).unwrap();
        assert_eq!((verified.files, verified.damaged), (count(READ), 0));
        assert_eq!(fs::read_dir(site.root()).unwrap().count(), 1, "the marker alone");
    }
}
