//! `find`, `log` and `reclaim`: walks over many users' files, and removal in the order of a log (elastic
//! quotas: `find . -print`, and rubberd, which frees space by removing what has been used least).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::compile::{self, Build};
use super::files::{Files, Kind, both, make, number, tree};
use crate::fsbench::control::{Recorder, in_threads};
use crate::fsbench::wml::priority;
use crate::fsbench::{
    BenchError, Content, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified,
    Workload,
};

pub(super) const ENTRIES: [Entry; 3] = [
    Entry {
        name: "find",
        summary: "find . -print over many small directories",
        source: "elastic quotas",
        presets: &["ci", "paper"],
        make: |setup| Ok(Box::new(Walk::new(setup, false)?)),
    },
    Entry {
        name: "log",
        summary: "rubberd's log: lstat of every file of every user, a process and a log for each",
        source: "elastic quotas",
        presets: &["ci", "paper"],
        make: |setup| Ok(Box::new(Walk::new(setup, true)?)),
    },
    Entry {
        name: "reclaim",
        summary: "rubberd's cleaning: files removed in the order of a log, a compilation beside it",
        source: "elastic quotas",
        presets: &["ci", "paper"],
        make: |setup| Ok(Box::new(Reclaim::new(setup)?)),
    },
];

/// Deviation of the logarithm of file sizes (a guess: the paper gives the mean, 21.8 KB).
const SIZE_SIGMA: f64 = 1.8;
/// Bytes of a log's entry for a file: inode, times, size and some of the path.
const ENTRY_BYTES: u64 = 64;
/// Users by what they hold, as the paper's: share of the users, least and most bytes. The last class has no
/// upper end there.
const USERS: [(f64, f64, f64); 4] = [(0.24, 1e4, 1e6), (0.27, 1e6, 1e8), (0.38, 1e8, 1e9), (0.11, 1e9, 2e9)];

/// Files of some users, each below a directory of its own.
struct Homes {
    roots: Vec<PathBuf>,
    files: Files,
    /// Files and directories of each user.
    inodes: Vec<u64>,
}

/// `mib` in all in about so many inodes; one directory for every `per_dir` files.
fn homes(users: u64, inodes: u64, bytes: u64, per_dir: f64, rng: &mut Rng) -> Homes {
    let shares: Vec<f64> = USERS.iter().map(|u| u.0).collect();
    let held: Vec<f64> = (0..users)
        .map(|_| {
            let (_, low, high) = USERS[rng.weighted(&shares)];
            // Each size of a class as likely, by its logarithm.
            (low.ln() + rng.unit() * (high / low).ln()).exp()
        })
        .collect();
    let all: f64 = held.iter().sum();
    let mut homes = Homes { roots: Vec::new(), files: Files::default(), inodes: Vec::new() };
    for (u, held) in held.iter().enumerate() {
        let share = held / all;
        let own = ((inodes as f64 * share).round() as u64).max(2);
        let dirs = ((own as f64 / (per_dir + 1.0)) as u64).clamp(1, own - 1);
        let root = format!("user{u:03}");
        let paths = tree(&root, dirs, 7, rng);
        paths.iter().for_each(|d| homes.files.dir(d));
        let drawn: Vec<f64> = (0..own - dirs).map(|_| rng.lognormal(0.0, SIZE_SIGMA)).collect();
        let scale = bytes as f64 * share / drawn.iter().sum::<f64>();
        for size in drawn {
            let i = homes.files.files.len() as u64;
            let dir = &paths[rng.index(paths.len())];
            homes.files.file(dir.join(format!("f{i:07}")), (size * scale) as u64, number(Kind::First, i));
        }
        homes.roots.push(root.into());
        homes.inodes.push(own);
    }
    homes
}

fn check_sizes(name: &str, users: u64, inodes: u64, mib: u64) -> Result<(), BenchError> {
    if !(1..=10_000).contains(&users) || inodes < 2 * users || inodes > 10_000_000 || mib > 1 << 30 {
        return Err(BenchError::Usage(format!(
            "{name}: 1 to 10,000 users, 2 to 10,000,000 inodes for each and in all, 2^30 MiB at most"
        )));
    }
    Ok(())
}

const DIRS: usize = 0;
const FILES: usize = 1;

/// Walks a tree; `look` is called for what is no directory and says how many bytes were written.
fn walk(
    root: &Path,
    control: &Control,
    recorder: &mut Recorder<'_>,
    look: &mut dyn FnMut(&fs::DirEntry) -> io::Result<u64>,
) -> Result<u64, BenchError> {
    let mut left = vec![root.to_owned()];
    let mut seen = 1;
    while let Some(dir) = left.pop() {
        if control.stopped() {
            return Ok(seen);
        }
        let began = Instant::now();
        let entries: Vec<fs::DirEntry> =
            fs::read_dir(&dir).and_then(Iterator::collect).map_err(BenchError::at(&dir, "listing it"))?;
        recorder.done(DIRS, began, 0, 0);
        let first = left.len();
        for entry in entries {
            seen += 1;
            if entry.file_type().map_err(BenchError::at(&dir, "listing it"))?.is_dir() {
                left.push(entry.path());
                continue;
            }
            let began = Instant::now();
            let written = look(&entry).map_err(BenchError::at(&entry.path(), "looking at it"))?;
            recorder.done(FILES, began, 0, written);
        }
        // In the directory's order.
        left[first..].reverse();
    }
    Ok(seen)
}

parameters! {
    struct WalkParameters {
        /// Users, each with a tree; `log` walks them all at a time.
        users: u64,
        /// Files and directories in all.
        inodes: u64,
        /// Bytes of all files, in MiB.
        mib: u64,
        /// Files for each directory.
        per_dir: f64,
    }
}

struct Walk {
    parameters: WalkParameters,
    logs: bool,
    homes: Homes,
    passes: u64,
}

impl Walk {
    fn new(setup: &Setup, logs: bool) -> Result<Walk, BenchError> {
        let p = match (logs, setup.preset.as_str()) {
            // 32,416 files in 7,715 directories; how large they were is not stated.
            (false, "paper") => WalkParameters { users: 1, inodes: 40_131, mib: 256, per_dir: 4.2 },
            (false, _) => WalkParameters { users: 1, inodes: 4000, mib: 16, per_dir: 4.2 },
            (true, "paper") => WalkParameters { users: 121, inodes: 1_194_133, mib: 26_000, per_dir: 10.0 },
            (true, _) => WalkParameters { users: 12, inodes: 12_000, mib: 260, per_dir: 10.0 },
        };
        let p = setup.apply(WalkParameters {
            inodes: setup.scaled(p.inodes, 2 * p.users),
            mib: setup.scaled(p.mib, 1),
            ..p
        })?;
        let name = if logs { "log" } else { "find" };
        check_sizes(name, p.users, p.inodes, p.mib)?;
        if !(0.0..=1e6).contains(&p.per_dir) {
            return Err(BenchError::Usage(format!("{name}: per_dir is from 0 to 1,000,000")));
        }
        let homes = homes(p.users, p.inodes, p.mib << 20, p.per_dir, &mut Rng::stream(setup.seed, "homes"));
        Ok(Walk { parameters: p, logs, homes, passes: 0 })
    }

    fn log_content(&self, site: &Site, user: usize, pass: u64) -> Content {
        Content::new(site.seed(), number(Kind::Second, pass << 16 | user as u64))
    }

    fn user(&self, site: &Site, control: &Control, user: usize) -> Result<(Vec<OpClass>, u64), BenchError> {
        let classes = if self.logs { ["directories", "lstat and log"] } else { ["directories", "names"] };
        let mut recorder = control.recorder(classes.map(OpClass::new).into());
        let root = site.path(&self.homes.roots[user]);
        if !self.logs {
            let mut names = 0;
            let seen = walk(&root, control, &mut recorder, &mut |entry| {
                // What -print prints.
                names += entry.file_name().len();
                std::hint::black_box((names, entry.ino()));
                Ok(0)
            })?;
            return Ok((recorder.into_classes(), seen));
        }
        let path = site.path(format!("log/{user:03}"));
        let file = File::create(&path).map_err(BenchError::at(&path, "making it"))?;
        let mut log = io::BufWriter::new(file);
        let content = self.log_content(site, user, self.passes);
        let mut at = 0;
        let mut line = [0; ENTRY_BYTES as usize];
        let seen = walk(&root, control, &mut recorder, &mut |entry| {
            std::hint::black_box(entry.path().symlink_metadata()?);
            content.fill(at, &mut line);
            log.write_all(&line)?;
            at += ENTRY_BYTES;
            Ok(ENTRY_BYTES)
        })?;
        log.flush().map_err(BenchError::at(&path, "writing it"))?;
        Ok((recorder.into_classes(), seen))
    }
}

impl Workload for Walk {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        WalkParameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let p = &self.parameters;
        let own = Needs {
            bytes: if self.logs { p.inodes * ENTRY_BYTES } else { 0 },
            inodes: p.users + 1,
            descriptors: 2 * p.users,
            memory: p.users * (1 << 20),
        };
        both(self.homes.files.needs(), own)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let log = site.path("log");
        fs::create_dir(&log).map_err(BenchError::at(&log, "making the directory"))?;
        self.homes.files.make(site, control)
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let this = &*self;
        let seen = Mutex::new(0);
        let classes = in_threads(control, this.homes.roots.len(), |user| {
            let (classes, n) = this.user(site, control, user)?;
            *seen.lock().unwrap_or_else(PoisonError::into_inner) += n;
            Ok(classes)
        })?;
        let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.passes += 1;
        let mut report = control.report(classes);
        let all: u64 = self.homes.inodes.iter().sum();
        if seen < all {
            report.short = Some(format!("{seen} of {all} files and directories"));
        }
        // All were counted, those of a warm-up too.
        let seconds = control.elapsed().as_secs_f64();
        report.metrics = vec![
            Metric::less("runtime", "s", seconds),
            Metric::more("inodes", "/s", seen as f64 / seconds.max(1e-9)),
        ];
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.homes.files.verify(site, control, &mut verified)?;
        if self.logs && self.passes > 0 {
            for user in 0..self.homes.roots.len() {
                let files = self.homes.files.files.iter();
                let own = files.filter(|f| f.path.starts_with(&self.homes.roots[user])).count() as u64;
                let content = self.log_content(site, user, self.passes - 1);
                verified.compare(&site.path(format!("log/{user:03}")), content, own * ENTRY_BYTES);
            }
        }
        Ok(verified)
    }
}

parameters! {
    struct ReclaimParameters {
        /// Users.
        users: u64,
        /// Files and directories in all.
        inodes: u64,
        /// Bytes of all files, in MiB.
        mib: u64,
        /// Removed in each pass, in MiB, and put back before the next; 0 for a compilation alone.
        clean_mib: u64,
        /// How far below the compilation's the priority of the cleaning is: 0 (normal) to 19 (low).
        nice: u64,
        /// Objects compiled meanwhile by two jobs; 0 for none.
        objects: u64,
    }
}

struct Reclaim {
    parameters: ReclaimParameters,
    homes: Homes,
    /// Files in the order of the log: the one used least first.
    order: Vec<usize>,
    /// What the last pass has removed and is not back yet: path, content, bytes.
    gone: Vec<(PathBuf, Content, u64)>,
    build: Option<Build>,
}

impl Reclaim {
    fn new(setup: &Setup) -> Result<Reclaim, BenchError> {
        let p = match setup.preset.as_str() {
            "paper" => ReclaimParameters {
                users: 121,
                inodes: 1_194_133,
                mib: 26_000,
                clean_mib: 5000,
                nice: 0,
                objects: 4020,
            },
            _ => {
                ReclaimParameters { users: 12, inodes: 12_000, mib: 260, clean_mib: 50, nice: 0, objects: 60 }
            }
        };
        let p = setup.apply(ReclaimParameters {
            inodes: setup.scaled(p.inodes, 2 * p.users),
            mib: setup.scaled(p.mib, 1),
            clean_mib: setup.scaled(p.clean_mib, 1),
            objects: setup.scaled(p.objects, 1),
            ..p
        })?;
        check_sizes("reclaim", p.users, p.inodes, p.mib)?;
        if p.clean_mib > p.mib || p.nice > 19 {
            return Err(BenchError::Usage("reclaim: clean_mib is at most mib, nice 0 to 19".into()));
        }
        if p.clean_mib == 0 && p.objects == 0 {
            return Err(BenchError::Usage("reclaim: nothing is to be cleaned, and nothing compiled".into()));
        }
        let mut rng = Rng::stream(setup.seed, "homes");
        let homes = homes(p.users, p.inodes, p.mib << 20, 10.0, &mut rng);
        let mut order: Vec<usize> = (0..homes.files.files.len()).collect();
        Rng::stream(setup.seed, "log order").shuffle(&mut order);
        let build = match p.objects {
            0 => None,
            objects => {
                let whole = compile::preset(&Setup { scale: 1.0, ..setup.clone() });
                let share = objects as f64 / whole.objects as f64;
                let part = |n: u64| ((n as f64 * share) as u64).max(1);
                let sources = part(whole.sources).max(objects + objects / 4 + 2);
                let part = compile::Parameters {
                    sources,
                    dirs: part(whole.dirs).min(sources),
                    objects,
                    jobs: 2,
                    ..whole
                };
                Some(Build::new(&part, setup.seed)?)
            }
        };
        Ok(Reclaim { parameters: p, homes, order, gone: Vec::new(), build })
    }

    /// Files of a pass, in their order.
    fn chosen(&self) -> Vec<usize> {
        let mut bytes = 0;
        let enough = self.parameters.clean_mib << 20;
        let mut chosen = Vec::new();
        for i in &self.order {
            if bytes >= enough {
                break;
            }
            bytes += self.homes.files.files[*i].len;
            chosen.push(*i);
        }
        chosen
    }
}

impl Workload for Reclaim {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        ReclaimParameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let build = self.build.as_ref().map_or(Needs::default(), Build::needs);
        both(both(self.homes.files.needs(), build), Needs { descriptors: 4, ..Needs::default() })
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.homes.files.make(site, control)?;
        self.build.as_ref().map_or(Ok(()), |b| b.prepare(site, control))
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let chosen = self.chosen();
        let removed = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        let (cleaned, compiled) = (Mutex::new((0, Duration::ZERO)), Mutex::new(Duration::ZERO));
        let this = &*self;
        let jobs = this.build.as_ref().map_or(0, Build::jobs);
        let classes = in_threads(control, 1 + jobs, |thread| {
            let names = ["remove"].into_iter().chain(compile::CLASSES);
            let mut recorder = control.recorder(names.map(OpClass::new).collect());
            if thread > 0 {
                let Some(build) = &this.build else { return Ok(recorder.into_classes()) };
                let classes = build.job(site, control, thread, &next, recorder, 1)?;
                let mut compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
                *compiled = (*compiled).max(control.elapsed());
                return Ok(classes);
            }
            priority::set(this.parameters.nice, None)
                .map_err(|e| BenchError::Failed(format!("reclaim: lowering the priority: {e}")))?;
            let mut bytes = 0;
            let mut removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
            for i in &chosen {
                if control.stopped() {
                    break;
                }
                let file = &this.homes.files.files[*i];
                let path = site.path(&file.path);
                let began = Instant::now();
                fs::remove_file(&path).map_err(BenchError::at(&path, "removing it"))?;
                recorder.done(0, began, 0, 0);
                bytes += file.len;
                removed.push((path, Content::new(site.seed(), file.number), file.len));
            }
            *cleaned.lock().unwrap_or_else(PoisonError::into_inner) = (bytes, control.elapsed());
            Ok(recorder.into_classes())
        });
        self.gone.extend(removed.into_inner().unwrap_or_else(PoisonError::into_inner));
        let mut report = control.report(classes?);
        let (bytes, took) = cleaned.into_inner().unwrap_or_else(PoisonError::into_inner);
        let took = took.as_secs_f64();
        if !chosen.is_empty() {
            report.metrics.push(Metric::less("cleaning", "s", took));
            report.metrics.push(Metric::more("cleaned", "MB/s", bytes as f64 / 1e6 / took.max(1e-9)));
        }
        if let Some(build) = &mut self.build {
            let compiled = compiled.into_inner().unwrap_or_else(PoisonError::into_inner);
            report.metrics.push(Metric::less("compilation", "s", compiled.as_secs_f64()));
            build.was_made();
        }
        Ok(report)
    }

    fn restore(&mut self, control: &Control) -> Result<(), BenchError> {
        for (path, content, len) in &self.gone {
            control.check()?;
            make(path, *content, *len)?;
        }
        self.gone.clear();
        Ok(())
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        // What the last pass removed: no other comes that would put it back.
        self.restore(control)?;
        let mut verified = Verified::default();
        self.homes.files.verify(site, control, &mut verified)?;
        if let Some(build) = &self.build {
            build.verify(site, control, &mut verified)?;
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_hold_what_the_paper_s_do() {
        let mut rng = Rng::new(1);
        let made = homes(1210, 200_000, 26_000 << 20, 10.0, &mut rng);
        let mut held = vec![0u64; 1210];
        for f in &made.files.files {
            let user: usize = f.path.iter().next().unwrap().to_str().unwrap()[4..].parse().unwrap();
            held[user] += f.len;
        }
        let total: u64 = held.iter().sum();
        assert!(total.abs_diff(26_000 << 20) < 1 << 20, "{total}");
        // Scaled to a tenth of ten times as many users: the classes' borders scale with them.
        held.sort_unstable();
        let (small, large) = (held[1210 / 4], held[1210 * 9 / 10]);
        assert!(large > 100 * small.max(1), "{small} {large}");
        let inodes: u64 = made.inodes.iter().sum();
        assert!(inodes.abs_diff(200_000) < 3000, "{inodes}");
        assert_eq!(inodes as usize, made.files.files.len() + made.files.dirs.len());
    }

    #[test]
    fn classes_of_users_are_drawn_by_their_share() {
        let shares: Vec<f64> = USERS.iter().map(|u| u.0).collect();
        let mut rng = Rng::new(2);
        let mut counts = [0f64; 4];
        let n = 10_000.0;
        for _ in 0..n as u64 {
            counts[rng.weighted(&shares)] += 1.0;
        }
        let x: f64 = counts.iter().zip(&shares).map(|(c, s)| (c - s * n).powi(2) / (s * n)).sum();
        // The 99th percentile of chi square with 3 degrees.
        assert!(x < 11.34, "{x}");
    }

    #[test]
    fn a_compilation_alone_is_one_of_the_three_of_the_paper_s_table() {
        let setup = |set: &[(&str, &str)]| {
            let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            Setup { preset: "ci".into(), seed: 1, scale: 0.02, set, passes: 1 }
        };
        assert!(Reclaim::new(&setup(&[("nice", "20")])).is_err());
        assert!(Reclaim::new(&setup(&[("clean_mib", "0"), ("objects", "0")])).is_err());
        for (set, figures) in [
            ([("clean_mib", "0"), ("objects", "1")], &["compilation"][..]),
            ([("nice", "19"), ("objects", "1")], &["cleaning", "cleaned", "compilation"]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let site = Site::create(dir.path(), "reclaim", serde_json::Value::Null, 1).unwrap();
            let mut r = Reclaim::new(&setup(&set)).unwrap();
            let control = Control::new(crate::fsbench::Limits::default());
            r.prepare(&site, &control).unwrap();
            let report = r.pass(&site, &control).unwrap();
            let told: Vec<&str> = report.metrics.iter().map(|m| m.name.as_str()).collect();
            assert_eq!(told, figures);
            assert_eq!(r.verify(&site, &control).unwrap().damaged, 0);
        }
    }

    /// Found: files were put back within the pass, and the drive, RAPL and the meter charged that to it.
    #[test]
    fn what_was_removed_is_put_back_outside_of_the_pass() {
        let set = [("objects", "0"), ("clean_mib", "1")].map(|(a, b)| (a.to_string(), b.to_string()));
        let setup = Setup { preset: "ci".into(), seed: 1, scale: 0.02, set: set.into(), passes: 3 };
        let dir = tempfile::tempdir().unwrap();
        let site = Site::create(dir.path(), "reclaim", serde_json::Value::Null, 1).unwrap();
        let mut r = Reclaim::new(&setup).unwrap();
        let control = Control::new(crate::fsbench::Limits::default());
        r.prepare(&site, &control).unwrap();
        let chosen: Vec<PathBuf> =
            r.chosen().iter().map(|i| site.path(&r.homes.files.files[*i].path)).collect();
        let there = || chosen.iter().filter(|path| path.exists()).count();
        for _ in 0..2 {
            r.restore(&control).unwrap();
            assert_eq!(there(), chosen.len());
            r.pass(&site, &control).unwrap();
            assert_eq!(there(), 0, "of {}", chosen.len());
        }
        // What a failed pass has removed is put back, too.
        r.restore(&control).unwrap();
        std::fs::remove_file(&chosen[1]).unwrap();
        r.pass(&site, &control).unwrap_err();
        assert!(!chosen[0].exists());
        r.restore(&control).unwrap();
        assert!(chosen[0].exists());
        make(
            &chosen[1],
            Content::new(site.seed(), r.homes.files.files[r.order[1]].number),
            r.homes.files.files[r.order[1]].len,
        )
        .unwrap();
        r.pass(&site, &control).unwrap();
        let verified = r.verify(&site, &control).unwrap();
        assert_eq!((verified.damaged, there()), (0, chosen.len()));
    }

    #[test]
    fn cleaning_takes_as_much_as_is_asked_for() {
        let setup = Setup { preset: "ci".into(), seed: 1, scale: 1.0, set: vec![], passes: 1 };
        let r = Reclaim::new(&setup).unwrap();
        let bytes: u64 = r.chosen().iter().map(|i| r.homes.files.files[*i].len).sum();
        let last = r.chosen().last().map_or(0, |i| r.homes.files.files[*i].len);
        assert!(bytes >= 50 << 20 && bytes - last < 50 << 20, "{bytes}");
    }
}
