//! `single-file`: one file at a time, of 1 KB to 64 MB, opened and closed, read from the disk, read from memory
//! (data-centre study).
//!
//! The file is dropped from the page cache before each read that is to come from the disk, and the kernel is
//! asked whether it is: where a file system keeps it all the same (tmpfs does), there is no such figure.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::files::{Files, Kind, both, number};
use crate::fsbench::control::{Recorder, in_threads};
use crate::fsbench::measure::residency::residency;
use crate::fsbench::{
    BenchError, Control, Entry, Metric, Needs, OpClass, PassReport, Setup, Site, Verified, Workload,
};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

pub(super) const ENTRY: Entry = Entry {
    name: "single-file",
    summary: "one file of 1 KB to 64 MB: open and close, reads from the disk and from memory",
    source: "data centres",
    // FileBench has no such workload: `stock` is `paper` by another name.
    presets: &["ci", "paper", "stock"],
    make: |setup| Ok(Box::new(Single::new(setup)?)),
};

/// Bytes read at a time.
const PIECE: usize = 128 << 10;
/// Each file is so many times as large as the one before.
const STEP: u64 = 4;
/// Reads of a file of any size, at least.
const READS_MIN: u64 = 3;
/// Attempts to drop a file from the page cache.
const DROPS_MAX: u32 = 4;
/// Sizes whose figures the study has in its tables.
const TOLD: [(u64, &str); 2] = [(4 << 10, "4 KiB"), (1 << 20, "1 MiB")];

/// What is done with each file.
const CLASSES: [&str; 3] = ["open+close", "from disk", "from memory"];
const OPEN: usize = 0;
const DISK: usize = 1;
const MEMORY: usize = 2;

parameters! {
    struct Parameters {
        /// The smallest file, bytes; each next one is four times as large.
        least: u64,
        /// The largest file, bytes.
        most: u64,
        /// Reads of each file and kind ...
        reads: u64,
        /// ... unless they come to more than so many MiB.
        mib: u64,
        /// Readers at a time, of what is in memory.
        threads: u64,
    }
}

struct Single {
    parameters: Parameters,
    files: Files,
}

/// A size as people say it.
fn said(bytes: u64) -> String {
    match bytes {
        n if n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

impl Single {
    fn new(setup: &Setup) -> Result<Single, BenchError> {
        let p = match setup.preset.as_str() {
            "ci" => Parameters { least: 1 << 10, most: 16 << 20, reads: 200, mib: 32, threads: 2 },
            _ => Parameters { least: 1 << 10, most: 64 << 20, reads: 2000, mib: 1024, threads: 8 },
        };
        let p =
            setup.apply(Parameters { reads: setup.scaled(p.reads, 1), mib: setup.scaled(p.mib, 1), ..p })?;
        if p.least == 0
            || p.least > p.most
            || p.most > 1 << 40
            || !(1..=1 << 32).contains(&p.reads)
            || !(1..=1 << 32).contains(&p.mib)
            || !(1..=1000).contains(&p.threads)
        {
            return Err(BenchError::Usage(
                "single-file: 1 byte <= least <= most <= 1 TiB, a read and a MiB at least, 1 to 1,000 threads".into(),
            ));
        }
        let mut files = Files::default();
        let sizes =
            std::iter::successors(Some(p.least), |n| n.checked_mul(STEP)).take_while(|n| *n <= p.most);
        for (i, len) in (0u64..).zip(sizes) {
            files.file(PathBuf::from(format!("file{i:02}")), len, number(Kind::First, i));
        }
        Ok(Single { parameters: p, files })
    }

    fn reads(&self, len: u64) -> u64 {
        let p = &self.parameters;
        p.reads.min((p.mib << 20) / len).max(READS_MIN.min(p.reads))
    }

    fn classes(&self) -> Vec<OpClass> {
        let of = |len| CLASSES.map(|c| format!("{c} {}", said(len)));
        self.files.files.iter().flat_map(|f| of(f.len)).map(OpClass::new).collect()
    }
}

/// Reads a file whole and counts it.
fn read(
    path: &Path,
    len: u64,
    file: &File,
    class: usize,
    recorder: &mut Recorder<'_>,
    buffer: &mut [u8],
) -> Result<(), BenchError> {
    let whole = |buffer: &mut [u8]| -> io::Result<u64> {
        let mut done = 0;
        loop {
            match file.read_at(buffer, done)? {
                0 => return Ok(done),
                n => done += n as u64,
            }
        }
    };
    let began = Instant::now();
    let n = whole(buffer).map_err(BenchError::at(path, "reading it"))?;
    recorder.done(class, began, n, 0);
    if n != len {
        return Err(BenchError::Failed(format!("{}: {n} bytes of {len}", path.display())));
    }
    Ok(())
}

/// Drops a file's pages; whether all are gone. One that is just being used stays at the first attempt.
fn dropped(file: &File) -> io::Result<bool> {
    for _ in 0..DROPS_MAX {
        posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        if residency(file)?.0.cached == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Workload for Single {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let threads = self.parameters.threads;
        let own = Needs { descriptors: threads, memory: threads * PIECE as u64, ..Needs::default() };
        both(self.files.needs(), own)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.files.make(site, control)
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut all = self.classes();
        let mut metrics = Vec::new();
        let mut buffer = vec![0; PIECE];
        'sizes: for (i, planned) in self.files.files.iter().enumerate() {
            let path = site.path(&planned.path);
            let (len, reads) = (planned.len, self.reads(planned.len));
            let class = |kind: usize| 3 * i + kind;
            let mut recorder = control.recorder(self.classes());
            // A first look, so that the inode is in memory.
            let file = File::open(&path).map_err(BenchError::at(&path, "opening it"))?;
            for _ in 0..reads {
                let began = Instant::now();
                drop(File::open(&path).map_err(BenchError::at(&path, "opening it"))?);
                recorder.done(class(OPEN), began, 0, 0);
                if control.over() {
                    break;
                }
            }
            for _ in 0..reads {
                if control.over()
                    || !dropped(&file).map_err(BenchError::at(&path, "dropping it from the page cache"))?
                {
                    break;
                }
                read(&path, len, &file, class(DISK), &mut recorder, &mut buffer)?;
            }
            let alone = recorder.into_classes();
            let threads = self.parameters.threads.min(reads);
            // Read once, so that it is in memory.
            let mut warm = control.recorder(vec![OpClass::uncounted("warm")]);
            read(&path, len, &file, 0, &mut warm, &mut buffer)?;
            let began = Instant::now();
            let together = in_threads(control, threads as usize, |thread| {
                let (mut recorder, mut buffer) = (control.recorder(self.classes()), vec![0; PIECE]);
                let mine = reads / threads + u64::from((thread as u64) < reads % threads);
                for _ in 0..mine {
                    if control.over() {
                        break;
                    }
                    read(&path, len, &file, class(MEMORY), &mut recorder, &mut buffer)?;
                }
                Ok(recorder.into_classes())
            })?;
            let seconds = began.elapsed().as_secs_f64();
            for classes in [&alone, &together] {
                all.iter_mut().zip(classes).for_each(|(sum, one)| sum.merge(one));
            }
            if let Some((_, name)) = TOLD.iter().find(|t| t.0 == len) {
                let us = |kind: usize| all[class(kind)].mean_ms().map(|ms| 1e3 * ms);
                let mut tell = |what: &str, us: Option<f64>| {
                    metrics.extend(us.map(|us| Metric::less(&format!("{name} {what}"), "us", us)));
                };
                tell("from disk", us(DISK));
                tell("from memory", us(MEMORY));
                tell("open+close", us(OPEN));
                let served = all[class(MEMORY)].ops as f64 / seconds.max(1e-9);
                metrics.push(Metric::more(&format!("{name} from memory"), "/s", served));
            }
            if control.over() {
                break 'sizes;
            }
        }
        control.check()?;
        let mut report = control.report(all);
        report.metrics = metrics;
        if control.limits().duration.is_none() && control.limits().ops.is_none() && report.ops() == 0 {
            report.short = Some("nothing was read".into());
        }
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.files.verify(site, control, &mut verified)?;
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsbench::control::Limits;

    fn single(set: &[(&str, &str)]) -> Result<Single, BenchError> {
        let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        Single::new(&Setup { preset: "ci".into(), seed: 1, scale: 1.0, set, passes: 1 })
    }

    #[test]
    fn every_size_is_read_as_often_as_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::create(dir.path(), "single-file", serde_json::Value::Null, 1).unwrap();
        let set = [("least", "1000"), ("most", "1024000"), ("reads", "10"), ("mib", "1"), ("threads", "3")];
        let mut w = single(&set).unwrap();
        let control = Control::new(Limits::default());
        w.prepare(&site, &control).unwrap();
        let lens: Vec<u64> = w.files.files.iter().map(|f| f.len).collect();
        assert_eq!(lens, [1000, 4000, 16_000, 64_000, 256_000, 1_024_000]);
        // 1 MiB holds the fifth file four times, the sixth once.
        let reads: Vec<u64> = lens.iter().map(|l| w.reads(*l)).collect();
        assert_eq!(reads, [10, 10, 10, 10, 4, 3]);
        let report = w.pass(&site, &control).unwrap();
        for (i, n) in reads.into_iter().enumerate() {
            assert_eq!((report.classes[3 * i].ops, report.classes[3 * i + MEMORY].ops), (n, n));
            // None where the file system keeps its files in memory.
            assert!([0, n].contains(&report.classes[3 * i + DISK].ops));
            assert_eq!(report.classes[3 * i + MEMORY].bytes_read, n * lens[i]);
        }
        assert_eq!(w.verify(&site, &control).unwrap().damaged, 0);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for wrong in [("least", "0"), ("most", "1023"), ("reads", "0"), ("mib", "0"), ("threads", "0")] {
            assert!(single(&[wrong]).is_err(), "{wrong:?}");
        }
        assert_eq!(single(&[("most", "1024")]).unwrap().files.files.len(), 1);
        assert_eq!(
            (said(1024), said(3 << 20), said(1000)),
            ("1 KiB".into(), "3 MiB".into(), "1000 B".into())
        );
    }
}
