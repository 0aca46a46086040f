//! `startx`: X and a desktop from cold (FS² paper, 4.5), as several programs that start one after another and
//! share libraries.
//!
//! A program reads the headers of its libraries in the order in which it is linked, maps them, faults in the
//! parts it uses, looks in vain along search paths, and reads its settings whole. Between any two steps it
//! computes: the paper's disk was busy for 37 % of the time only.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::files::{Files, Kind, both, number};
use super::mapping::Mapping;
use crate::fsbench::control::{Recorder, in_threads};
use crate::fsbench::{
    BenchError, Content, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified,
    Workload,
};

pub(super) const ENTRY: Entry = Entry {
    name: "startx",
    summary: "X and a desktop start: shared libraries faulted in, settings read, CPU between",
    source: "FS2 4.5",
    presets: &["ci", "paper", "modern"],
    make: |setup| Ok(Box::new(StartX::new(setup)?)),
};

/// What a program reads of an executable before it maps it: the ELF header and the program headers.
const HEADER_BYTES: u64 = 832;
/// Pages are faulted in by clusters of so much (the kernel's fault-around).
const CLUSTER: u64 = 64 << 10;
/// A line that each program writes into the session's log.
const LOG_LINE: u64 = 120;
/// The log's number.
const LOG_NUMBER: u64 = 1 << 40;

parameters! {
    struct Parameters {
        /// Programs.
        processes: u64,
        /// Libraries and plugins.
        libraries: u64,
        /// Bytes of all libraries together, in KiB.
        library_kib: u64,
        /// Small files: settings, fonts, icons, translations.
        small: u64,
        /// Share of libraries that two programs or more use.
        shared: f64,
        /// Share of opens before which one fails along a search path.
        missing: f64,
        /// Least computing between two steps, in microseconds.
        think_min_us: u64,
        /// Most of it.
        think_max_us: u64,
    }
}

/// Kinds of small files as measured: share of all, median and 90th percentile of the size, largest.
const SMALL: [(&str, f64, f64, f64, u64); 6] = [
    ("qml", 192.0, 5_800.0, 32_800.0, 75_000),
    ("config", 139.0, 9_100.0, 12_000.0, 75_000),
    ("fonts", 65.0, 695.0, 10_000.0, 760_000),
    ("locale", 96.0, 175.0, 5_000.0, 456_000),
    ("icons", 7.0, 56_000.0, 70_000.0, 78_000),
    ("share", 151.0, 20.0, 400.0, 1_300_000),
];

/// Median and 90th percentile of a library, before all are scaled to their sum.
const LIBRARY: (f64, f64) = (147_000.0, 1_090_000.0);
/// Largest library before scaling.
const LIBRARY_MAX: f64 = 129_700_000.0;
/// The 90th percentile of the normal distribution.
const Z90: f64 = 1.281_552;

#[derive(Clone, Debug)]
struct Library {
    path: PathBuf,
    len: u64,
    /// Offsets of the clusters that are used, in the order of use.
    clusters: Vec<u64>,
}

/// What a program does, in its order.
#[derive(Clone, Debug)]
enum Step {
    Load(usize),
    Read(usize),
}

#[derive(Clone, Debug)]
struct Program {
    path: PathBuf,
    len: u64,
    steps: Vec<Step>,
}

pub(super) struct StartX {
    parameters: Parameters,
    files: Files,
    libraries: Vec<Library>,
    small: Vec<PathBuf>,
    programs: Vec<Program>,
    /// Bytes in the session's log so far.
    logged: u64,
}

/// A lognormal size by its median and 90th percentile.
fn size(rng: &mut Rng, median: f64, p90: f64) -> f64 {
    rng.lognormal(median.ln(), (p90 / median).ln() / Z90)
}

impl StartX {
    fn new(setup: &Setup) -> Result<StartX, BenchError> {
        let (processes, libraries, library_kib, small) = match setup.preset.as_str() {
            "paper" => (16, 458, 457_000_000 / 8 / 1024, 650),
            "modern" => (16, 458, 457_000_000 / 1024, 650),
            _ => (6, 80, 40 * 1024, 200),
        };
        let p = setup.apply(Parameters {
            processes,
            libraries: setup.scaled(libraries, 2),
            library_kib: setup.scaled(library_kib, 64),
            small: setup.scaled(small, 1),
            shared: 0.6,
            missing: 0.3,
            think_min_us: 5000,
            think_max_us: 20_000,
        })?;
        let refused = |what: &str| Err(BenchError::Usage(format!("startx: {what}")));
        if p.processes == 0 || p.processes > 1000 || p.libraries == 0 || p.libraries > 1_000_000 {
            return refused("1 to 1,000 processes and 1 to 1,000,000 libraries");
        }
        if !(0.0..=1.0).contains(&p.shared) || !(0.0..=1.0).contains(&p.missing) {
            return refused("shared and missing are shares from 0 to 1");
        }
        if p.small > 10_000_000 || p.library_kib > 1 << 40 {
            return refused("that is more than any desktop has");
        }
        let mut rng = Rng::stream(setup.seed, "startx files");
        let mut files = Files::default();
        for dir in ["bin", "lib", "lib/plugins", "etc", "share"] {
            files.dir(dir);
        }
        let libraries = plan_libraries(&p, &mut rng, &mut files);
        let small = plan_small(&p, &mut rng, &mut files);
        let programs = plan_programs(&p, &mut rng, &libraries, small.len(), &mut files);
        // Installed in some order that is not that of use.
        rng.shuffle(&mut files.files);
        Ok(StartX { parameters: p, files, libraries, small, programs, logged: 0 })
    }

    fn program(
        &self,
        site: &Site,
        control: &Control,
        i: usize,
        chain: &Chain,
    ) -> Result<Vec<OpClass>, BenchError> {
        let p = &self.parameters;
        let mut rng = site.stream(&format!("startx think {i}"));
        let mut run = Running {
            recorder: control.recorder(CLASSES.map(OpClass::new).into()),
            control,
            missing: p.missing,
            think: (p.think_min_us, p.think_max_us),
            buffer: Vec::new(),
        };
        let begun = chain.wait(i, control);
        // The next one starts when this one has loaded its libraries, or failed to.
        let mut next = ChainGuard { chain, i, passed: false };
        if !begun {
            return Ok(run.recorder.into_classes());
        }
        let program = &self.programs[i];
        run.load(&site.path(&program.path), program.len, None)?;
        // Settings are read among the plugins that come after what the program is linked with.
        let linked = program.steps.iter().rposition(|s| matches!(s, Step::Load(_))).map_or(0, |n| n + 1);
        for (n, step) in program.steps.iter().enumerate() {
            if !run.think(&mut rng) {
                break;
            }
            if n == linked / 2 {
                next.pass();
            }
            match step {
                Step::Load(l) => {
                    let library = &self.libraries[*l];
                    run.search(site, &mut rng, &library.path)?;
                    run.load(&site.path(&library.path), library.len, Some(&library.clusters))?;
                }
                Step::Read(s) => {
                    run.search(site, &mut rng, &self.small[*s])?;
                    run.read(&site.path(&self.small[*s]))?;
                }
            }
        }
        Ok(run.recorder.into_classes())
    }
}

fn plan_libraries(p: &Parameters, rng: &mut Rng, files: &mut Files) -> Vec<Library> {
    let drawn: Vec<f64> =
        (0..p.libraries).map(|_| size(rng, LIBRARY.0, LIBRARY.1).min(LIBRARY_MAX)).collect();
    let scale = (p.library_kib << 10) as f64 / drawn.iter().sum::<f64>();
    let mut libraries = Vec::new();
    for (i, bytes) in (0u64..).zip(drawn) {
        let len = ((bytes * scale) as u64).max(HEADER_BYTES);
        let dir = if i % 4 == 3 { "lib/plugins" } else { "lib" };
        let path = PathBuf::from(format!("{dir}/lib{i:04}.so"));
        files.file(&path, len, number(Kind::First, i));
        // 30 to 60 % of it is used, the same parts at every start, in runs of a few clusters.
        let all = len.div_ceil(CLUSTER);
        let wanted = (all as f64 * (0.3 + 0.3 * rng.unit())).ceil() as u64;
        let mut used = std::collections::BTreeSet::new();
        let mut clusters = Vec::new();
        while (used.len() as u64) < wanted {
            let from = rng.below(all);
            for cluster in from..(from + rng.between(1, 4)).min(all) {
                if (used.len() as u64) < wanted && used.insert(cluster) {
                    clusters.push(cluster * CLUSTER);
                }
            }
        }
        libraries.push(Library { path, len, clusters });
    }
    libraries
}

fn plan_small(p: &Parameters, rng: &mut Rng, files: &mut Files) -> Vec<PathBuf> {
    let weights: Vec<f64> = SMALL.iter().map(|k| k.1).collect();
    for (name, ..) in SMALL {
        files.dir(format!("share/{name}"));
    }
    (0..p.small)
        .map(|i| {
            let (name, _, median, p90, most) = SMALL[rng.weighted(&weights)];
            let path = PathBuf::from(format!("share/{name}/f{i:04}"));
            let len = (size(rng, median, p90) as u64).clamp(1, most);
            files.file(&path, len, number(Kind::Second, i));
            path
        })
        .collect()
}

fn plan_programs(
    p: &Parameters,
    rng: &mut Rng,
    libraries: &[Library],
    small: usize,
    files: &mut Files,
) -> Vec<Program> {
    let n = p.processes as usize;
    let mut linked: Vec<Vec<usize>> = vec![Vec::new(); n];
    for l in 0..libraries.len() {
        let users = if n > 1 && rng.chance(p.shared) { rng.between(2, n as u64) as usize } else { 1 };
        let mut order: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut order);
        for user in &order[..users] {
            linked[*user].push(l);
        }
    }
    let mut reads: Vec<Vec<usize>> = vec![Vec::new(); n];
    for s in 0..small {
        reads[rng.index(n)].push(s);
    }
    (0u64..)
        .zip(linked.into_iter().zip(reads))
        .map(|(i, (mut loads, reads))| {
            rng.shuffle(&mut loads);
            let path = PathBuf::from(format!("bin/p{i:02}"));
            let len = (size(rng, 72_000.0, 248_000.0) as u64).clamp(HEADER_BYTES, 1_300_000);
            files.file(&path, len, number(Kind::Third, i));
            // Half of the libraries first, then settings among the rest, which are plugins.
            let plugins = loads.split_off(loads.len() / 2);
            let mut steps: Vec<Step> = loads.into_iter().map(Step::Load).collect();
            let mut rest: Vec<Step> =
                plugins.into_iter().map(Step::Load).chain(reads.into_iter().map(Step::Read)).collect();
            rng.shuffle(&mut rest);
            steps.append(&mut rest);
            Program { path, len, steps }
        })
        .collect()
}

/// Each program may start once the one before it has let it.
struct Chain {
    started: Mutex<usize>,
    changed: Condvar,
}

impl Chain {
    fn wait(&self, i: usize, control: &Control) -> bool {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        while *started < i && !control.over() {
            let (again, _) = self
                .changed
                .wait_timeout(started, Duration::from_millis(50))
                .unwrap_or_else(PoisonError::into_inner);
            started = again;
        }
        *started >= i && !control.over()
    }
}

struct ChainGuard<'a> {
    chain: &'a Chain,
    i: usize,
    passed: bool,
}

impl ChainGuard<'_> {
    fn pass(&mut self) {
        if !self.passed {
            self.passed = true;
            let mut started = self.chain.started.lock().unwrap_or_else(PoisonError::into_inner);
            *started = (*started).max(self.i + 1);
            self.chain.changed.notify_all();
        }
    }
}

impl Drop for ChainGuard<'_> {
    fn drop(&mut self) {
        self.pass();
    }
}

const CLASSES: [&str; 4] = ["searches in vain", "open and map", "faults", "read whole"];
const SEARCH: usize = 0;
const MAP: usize = 1;
const FAULT: usize = 2;
const WHOLE: usize = 3;

struct Running<'a> {
    recorder: Recorder<'a>,
    control: &'a Control,
    missing: f64,
    think: (u64, u64),
    buffer: Vec<u8>,
}

impl Running<'_> {
    fn think(&mut self, rng: &mut Rng) -> bool {
        self.control.sleep(Duration::from_micros(rng.between(self.think.0, self.think.1)))
    }

    /// Looks for a file where it is not.
    fn search(&mut self, site: &Site, rng: &mut Rng, path: &Path) -> Result<(), BenchError> {
        if !rng.chance(self.missing) {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default();
        let place = site.path(["etc", "bin", "share"][rng.index(3)]).join(name);
        let began = Instant::now();
        match File::open(&place) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(BenchError::at(&place, "looking for it")(e)),
            Ok(_) => return Err(BenchError::Failed(format!("{}: is not to be there", place.display()))),
        }
        self.recorder.done(SEARCH, began, 0, 0);
        Ok(())
    }

    /// Reads the header, maps the file and faults in these clusters, or all of it.
    fn load(&mut self, path: &Path, len: u64, clusters: Option<&[u64]>) -> Result<(), BenchError> {
        let began = Instant::now();
        let mut header = [0; HEADER_BYTES as usize];
        let n = header.len().min(len as usize);
        let mut open = || -> io::Result<Option<Mapping>> {
            let file = File::open(path)?;
            file.read_exact_at(&mut header[..n], 0)?;
            Mapping::new(&file, len.min(file.metadata()?.len()))
        };
        let mapping = open().map_err(BenchError::at(path, "mapping it"))?;
        self.recorder.done(MAP, began, n as u64, 0);
        let Some(mapping) = mapping else { return Ok(()) };
        let whole: Vec<u64> = (0..len.div_ceil(CLUSTER)).map(|i| i * CLUSTER).collect();
        for at in clusters.unwrap_or(&whole) {
            if self.control.stopped() {
                break;
            }
            let began = Instant::now();
            mapping.touch(*at, CLUSTER).map_err(BenchError::at(path, "faulting it in"))?;
            self.recorder.done(FAULT, began, CLUSTER.min(len.saturating_sub(*at)), 0);
        }
        Ok(())
    }

    fn read(&mut self, path: &Path) -> Result<(), BenchError> {
        let began = Instant::now();
        self.buffer.clear();
        let n = File::open(path)
            .and_then(|mut f| f.read_to_end(&mut self.buffer))
            .map_err(BenchError::at(path, "reading it"))?;
        self.recorder.done(WHOLE, began, n as u64, 0);
        Ok(())
    }
}

impl Workload for StartX {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let own =
            Needs { bytes: 1 << 20, inodes: 1, descriptors: self.parameters.processes * 2, memory: 1 << 20 };
        both(self.files.needs(), own)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.files.make(site, control)?;
        let log = site.path("session.log");
        File::create_new(&log).map(drop).map_err(BenchError::at(&log, "making it"))
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let chain = Chain { started: Mutex::new(0), changed: Condvar::new() };
        let this = &*self;
        let classes = in_threads(control, this.programs.len(), |i| this.program(site, control, i, &chain))?;
        let mut report = control.report(classes);
        report.metrics = vec![Metric::less("start", "s", report.elapsed.as_secs_f64())];
        // The session's log, as each desktop writes one.
        let log = site.path("session.log");
        let lines = LOG_LINE * self.programs.len() as u64;
        let mut text = vec![0; lines as usize];
        Content::new(site.seed(), LOG_NUMBER).fill(self.logged, &mut text);
        let append = || File::options().append(true).open(&log)?.write_all(&text);
        append().map_err(BenchError::at(&log, "appending to it"))?;
        self.logged += lines;
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.files.verify(site, control, &mut verified)?;
        verified.compare(&site.path("session.log"), Content::new(site.seed(), LOG_NUMBER), self.logged);
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsbench::rng::normal_cdf;

    fn workload(preset: &str) -> StartX {
        StartX::new(&Setup { preset: preset.into(), seed: 1, scale: 1.0, set: vec![], passes: 1 }).unwrap()
    }

    #[test]
    fn libraries_are_sized_used_and_shared_as_said() {
        let x = workload("modern");
        let total: u64 = x.libraries.iter().map(|l| l.len).sum();
        assert!(total.abs_diff(457_000_000) < 500_000, "{total}");
        let (mut used, mut all) = (0, 0);
        for l in &x.libraries {
            let clusters = l.len.div_ceil(CLUSTER);
            used += l.clusters.len() as u64;
            all += clusters;
            assert!(l.clusters.len() as u64 >= clusters * 3 / 10 && l.clusters.iter().all(|c| *c < l.len));
            let mut once = l.clusters.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), l.clusters.len());
        }
        let share = used as f64 / all as f64;
        assert!((0.3..0.6).contains(&share), "{share}");
        let users = |l: usize| {
            let loads = |p: &&Program| p.steps.iter().any(|s| matches!(s, Step::Load(m) if *m == l));
            x.programs.iter().filter(loads).count()
        };
        let shared = (0..x.libraries.len()).filter(|l| users(*l) >= 2).count() as f64;
        let (n, p) = (x.libraries.len() as f64, 0.6);
        assert!((shared - n * p).abs() < 2.58 * (n * p * (1.0 - p)).sqrt(), "{shared} of {n}");
    }

    #[test]
    fn library_sizes_are_lognormal() {
        let x = workload("paper");
        let mut logs: Vec<f64> = x.libraries.iter().map(|l| (l.len as f64).ln()).collect();
        logs.sort_by(f64::total_cmp);
        // Scaled to a sum, so the median is free; the deviation is not.
        let median = logs[logs.len() / 2];
        let sigma = (LIBRARY.1 / LIBRARY.0).ln() / Z90;
        let n = logs.len() as f64;
        let far = |(i, x): (usize, &f64)| (normal_cdf((x - median) / sigma) - (i as f64 + 0.5) / n).abs();
        assert!(logs.iter().enumerate().map(far).fold(0.0, f64::max) < 1.63 / n.sqrt());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let make = |name: &str, value: &str| {
            let set = vec![(name.to_string(), value.to_string())];
            StartX::new(&Setup { preset: "ci".into(), seed: 1, scale: 1.0, set, passes: 1 }).err()
        };
        assert!(make("processes", "0").is_some() && make("shared", "1.5").is_some());
        assert!(make("missing", "nan").is_some());
        assert!(make("processes", "1").is_none() && make("missing", "0").is_none());
    }
}
