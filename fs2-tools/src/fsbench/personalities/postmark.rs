//! `postmark`: PostMark 1.51's transactions on many small files, in several processes at once (elastic
//! quotas).
//!
//! Each process has a directory of its own, makes its files, does its transactions and removes all files
//! again. Every file that is read is compared with what was written, outside of the time that is reported for
//! the read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::fsbench::control::{Recorder, in_threads};
use crate::fsbench::{
    BenchError, Content, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified,
    Workload,
};

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

/// A file that is there.
struct Alive {
    serial: u64,
    len: u64,
}

/// A process's run.
struct Process<'a> {
    dir: PathBuf,
    parameters: &'a Parameters,
    recorder: Recorder<'a>,
    rng: Rng,
    seed: u64,
    files: Vec<Alive>,
    made: u64,
    buffer: Vec<u8>,
    whole: Vec<u8>,
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
            || p.least > p.most
            || p.most > 1 << 40
            || !(1..=1 << 20).contains(&p.block)
            || p.read_bias > 10
            || p.create_bias > 10
        {
            return Err(BenchError::Usage(
                "postmark: 1 to 1,000 processes, a file at least, least <= most, a block of 1 byte to 1 MiB, \
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
}

impl Process<'_> {
    fn path(&self, serial: u64) -> PathBuf {
        self.dir.join(serial.to_string())
    }

    fn content(&self, serial: u64) -> Content {
        Content::new(self.seed, serial)
    }

    /// Writes a file's bytes from `from` to `to` in blocks.
    fn write(&mut self, file: &File, serial: u64, from: u64, to: u64) -> io::Result<()> {
        let content = self.content(serial);
        let mut file = file;
        let mut at = from;
        while at < to {
            let n = (to - at).min(self.parameters.block) as usize;
            content.fill(at, &mut self.buffer[..n]);
            file.write_all(&self.buffer[..n])?;
            at += n as u64;
        }
        Ok(())
    }

    fn create(&mut self) -> Result<(), BenchError> {
        let (serial, len) = (self.made, self.rng.between(self.parameters.least, self.parameters.most));
        let path = self.path(serial);
        let began = Instant::now();
        let file = File::create_new(&path).map_err(BenchError::at(&path, "making it"))?;
        self.write(&file, serial, 0, len).map_err(BenchError::at(&path, "writing it"))?;
        drop(file);
        self.recorder.done(CREATE, began, 0, len);
        self.made += 1;
        self.files.push(Alive { serial, len });
        Ok(())
    }

    fn read(&mut self, which: usize) -> Result<(), BenchError> {
        let Alive { serial, len } = self.files[which];
        let path = self.path(serial);
        self.whole.clear();
        let began = Instant::now();
        let mut read = || -> io::Result<()> {
            let mut file = File::open(&path)?;
            loop {
                match file.read(&mut self.buffer)? {
                    0 => return Ok(()),
                    n => self.whole.extend_from_slice(&self.buffer[..n]),
                }
            }
        };
        read().map_err(BenchError::at(&path, "reading it"))?;
        self.recorder.done(READ, began, self.whole.len() as u64, 0);
        let got = std::mem::take(&mut self.whole);
        let content = self.content(serial);
        let mut at = 0;
        let same = got.len() as u64 == len
            && got.chunks(self.buffer.len()).all(|piece| {
                let want = &mut self.buffer[..piece.len()];
                content.fill(at, want);
                at += piece.len() as u64;
                want == piece
            });
        if !same {
            self.wrong.push((path, format!("{} bytes read are not the {len} written", got.len())));
        }
        self.compared = (self.compared.0 + 1, self.compared.1 + len);
        self.whole = got;
        Ok(())
    }

    fn append(&mut self, which: usize) -> Result<(), BenchError> {
        let Alive { serial, len } = self.files[which];
        let room = self.parameters.most.saturating_sub(len);
        // PostMark leaves a file of the largest size alone, and counts no append.
        if room == 0 {
            return Ok(());
        }
        let to = len + self.rng.between(1, room);
        let path = self.path(serial);
        let began = Instant::now();
        let file = File::options().append(true).open(&path).map_err(BenchError::at(&path, "opening it"))?;
        self.write(&file, serial, len, to).map_err(BenchError::at(&path, "appending to it"))?;
        drop(file);
        self.recorder.done(APPEND, began, 0, to - len);
        self.files[which].len = to;
        Ok(())
    }

    fn delete(&mut self, which: usize) -> Result<(), BenchError> {
        let path = self.path(self.files[which].serial);
        let began = Instant::now();
        fs::remove_file(&path).map_err(BenchError::at(&path, "removing it"))?;
        self.recorder.done(DELETE, began, 0, 0);
        self.files.swap_remove(which);
        Ok(())
    }

    /// Any file that is there.
    fn any(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.rng.index(self.files.len()))
    }

    /// How many transactions were done.
    fn run(&mut self, control: &Control) -> Result<u64, BenchError> {
        fs::create_dir(&self.dir).map_err(BenchError::at(&self.dir, "making the directory"))?;
        for _ in 0..self.parameters.files {
            if control.over() {
                break;
            }
            self.create()?;
        }
        let mut done = 0;
        while done < self.parameters.transactions && !control.over() {
            let Some(which) = self.any() else { break };
            match self.rng.below(10) < self.parameters.read_bias {
                true => self.read(which)?,
                false => self.append(which)?,
            }
            match (self.rng.below(10) < self.parameters.create_bias, self.any()) {
                (true, _) | (_, None) => self.create()?,
                (false, Some(which)) => self.delete(which)?,
            }
            done += 1;
        }
        while !self.files.is_empty() && !control.stopped() {
            self.delete(self.files.len() - 1)?;
        }
        if self.files.is_empty() {
            fs::remove_dir(&self.dir).map_err(BenchError::at(&self.dir, "removing it"))?;
        }
        Ok(done)
    }
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
            bytes: files * p.most,
            inodes: files + p.processes,
            descriptors: p.processes,
            memory: p.processes * (p.most + p.block + 32 * (p.files + p.transactions)),
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
        let classes = in_threads(control, p.processes as usize, |thread| {
            let mut process = Process {
                dir: dir_of(site, thread),
                parameters: &p,
                recorder: control.recorder(CLASSES.map(OpClass::new).into()),
                rng: site.stream(&format!("postmark {thread} pass {}", self.passes)),
                seed: self.seed ^ crate::fsbench::rng::mix((self.passes << 16) | thread as u64),
                files: Vec::new(),
                made: 0,
                buffer: vec![0; p.block as usize],
                whole: Vec::new(),
                compared: (0, 0),
                wrong: Vec::new(),
            };
            let done = process.run(control)?;
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
        if done < p.processes * p.transactions && limits.duration.is_none() && limits.ops.is_none() {
            report.short =
                Some(format!("{done} of {} transactions; no file was left", p.processes * p.transactions));
        }
        let seconds = report.elapsed.as_secs_f64();
        let (read, written) = report.bytes();
        report.metrics = vec![
            Metric::less("completion", "s", seconds),
            Metric::more("transactions", "/s", done as f64 / seconds.max(1e-9)),
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
