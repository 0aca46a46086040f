//! `compile`: a tree of sources compiled by several jobs (elastic quotas): most operations look names up, many
//! in vain; what is written is small and partly short-lived.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::files::{Files, Kind, both, make, number, tree};
use crate::fsbench::control::{Recorder, in_threads};
use crate::fsbench::{
    BenchError, Content, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified,
    Workload, Zipf,
};

pub(super) const ENTRY: Entry = Entry {
    name: "compile",
    summary: "sources and headers read, objects and temporaries written, by several jobs",
    source: "elastic quotas",
    presets: &["ci", "paper"],
    make: |setup| Ok(Box::new(Compile::new(setup)?)),
};

/// Sizes are lognormal: sources (median 5 KB, as a kernel's), headers (3 KB), objects (12 KB).
const SOURCE: (f64, f64) = (5145.0, 1.4);
const HEADER: (f64, f64) = (3000.0, 1.1);
const OBJECT: (f64, f64) = (12_000.0, 0.9);
/// No file is larger.
const MOST: u64 = 1 << 20;
/// Headers that an object includes.
const INCLUDES: (u64, u64) = (30, 80);
/// Look-ups in vain for an object, along the include path.
const MISSES: u64 = 22;
/// How popular headers are.
const HEADER_ALPHA: f64 = 0.8;

pub(super) const CLASSES: [&str; 4] = ["look-ups in vain", "read", "write object", "temporary"];
const MISS: usize = 0;
const READ: usize = 1;
const OBJECTS: usize = 2;
const TEMPORARY: usize = 3;

parameters! {
    pub(super) struct Parameters {
        /// Source files, headers included.
        pub(super) sources: u64,
        /// Directories.
        pub(super) dirs: u64,
        /// Objects made.
        pub(super) objects: u64,
        /// At the same time.
        pub(super) jobs: u64,
        /// Least and most computing for an object, in milliseconds.
        pub(super) cpu_min_ms: u64,
        /// Most.
        pub(super) cpu_max_ms: u64,
    }
}

/// An object with what it is made from.
struct Unit {
    source: usize,
    headers: Vec<usize>,
    path: PathBuf,
    len: u64,
    temporaries: u64,
    cpu: Duration,
}

/// The tree and what is made from it; used by `reclaim` too.
pub(super) struct Build {
    jobs: usize,
    files: Files,
    units: Vec<Unit>,
    /// How often it was made; 0 where no object is there.
    made: u64,
}

fn size(rng: &mut Rng, law: (f64, f64)) -> u64 {
    (rng.lognormal(law.0.ln(), law.1) as u64).clamp(64, MOST)
}

impl Build {
    pub(super) fn new(p: &Parameters, seed: u64) -> Result<Build, BenchError> {
        if p.sources < 2
            || p.sources > 10_000_000
            || p.objects > p.sources
            || !(1..=1000).contains(&p.jobs)
            || p.dirs == 0
            || p.dirs > p.sources
        {
            return Err(BenchError::Usage(
                "compile: 2 sources at least, no more objects or directories than sources, 1 to 1,000 jobs"
                    .into(),
            ));
        }
        let mut rng = Rng::stream(seed, "compile tree");
        let dirs = tree("src", p.dirs, 5, &mut rng);
        let mut files = Files::default();
        dirs.iter().for_each(|d| files.dir(d));
        files.dir("obj");
        // What is not compiled is a header, a tenth at least.
        let headers = (p.sources - p.objects).max(p.sources / 10).clamp(1, p.sources - 1);
        for i in 0..p.sources {
            let dir = &dirs[rng.index(dirs.len())];
            let (name, law) =
                if i < headers { (format!("h{i:05}.h"), HEADER) } else { (format!("s{i:05}.c"), SOURCE) };
            files.file(dir.join(name), size(&mut rng, law), number(Kind::First, i));
        }
        let popular = Zipf::new(headers as usize, HEADER_ALPHA);
        let compiled = p.sources - headers;
        let units = (0..p.objects.min(compiled))
            .map(|i| Unit {
                source: (headers + i) as usize,
                headers: (0..rng.between(INCLUDES.0, INCLUDES.1)).map(|_| popular.draw(&mut rng)).collect(),
                path: PathBuf::from(format!("obj/o{i:05}.o")),
                len: size(&mut rng, OBJECT),
                // 2.5 of them in the mean.
                temporaries: rng.between(2, 3),
                cpu: Duration::from_millis(rng.between(p.cpu_min_ms, p.cpu_max_ms)),
            })
            .collect();
        Ok(Build { jobs: p.jobs as usize, files, units, made: 0 })
    }

    pub(super) fn needs(&self) -> Needs {
        let own = Needs {
            bytes: self.units.iter().map(|u| u.len).sum::<u64>() + self.jobs as u64 * MOST,
            inodes: self.units.len() as u64 + 3 * self.jobs as u64,
            descriptors: 2 * self.jobs as u64,
            memory: self.jobs as u64 * 2 * MOST + self.units.len() as u64 * 1024,
        };
        both(self.files.needs(), own)
    }

    pub(super) fn prepare(&self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.files.make(site, control)
    }

    fn content(&self, seed: u64, unit: usize, made: u64) -> Content {
        Content::new(seed, number(Kind::Second, made << 28 | unit as u64))
    }

    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Compiles what `next` gives, until there is no more; the `job`th of several.
    pub(super) fn job(
        &self,
        site: &Site,
        control: &Control,
        job: usize,
        next: &AtomicUsize,
        mut recorder: Recorder<'_>,
        first_class: usize,
    ) -> Result<Vec<OpClass>, BenchError> {
        let mut buffer = Vec::new();
        // Not cut short by a limit: what is there after half a compilation could not be told.
        while !control.stopped() {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = self.units.get(i) else { break };
            self.unit(site, control, job, i, unit, &mut recorder, first_class, &mut buffer)?;
        }
        Ok(recorder.into_classes())
    }

    #[expect(clippy::too_many_arguments, reason = "one caller")]
    fn unit(
        &self,
        site: &Site,
        control: &Control,
        job: usize,
        i: usize,
        unit: &Unit,
        recorder: &mut Recorder<'_>,
        first_class: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), BenchError> {
        let mut read = |path: &Path, recorder: &mut Recorder<'_>| {
            let began = Instant::now();
            buffer.clear();
            let n = File::open(path)
                .and_then(|mut f| f.read_to_end(buffer))
                .map_err(BenchError::at(path, "reading it"))?;
            recorder.done(first_class + READ, began, n as u64, 0);
            Ok::<(), BenchError>(())
        };
        read(&site.path(&self.files.files[unit.source].path), recorder)?;
        let mut rng = Rng::new(i as u64);
        let mut misses = MISSES;
        for (n, header) in (1u64..).zip(&unit.headers) {
            let path = &self.files.files[*header].path;
            // Looked for in the wrong directories first.
            let due = MISSES - MISSES * n / unit.headers.len() as u64;
            while misses > due {
                misses -= 1;
                let dir = &self.files.dirs[rng.index(self.files.dirs.len())];
                let place =
                    site.path(dir).join(format!("no-{}", path.file_name().unwrap_or_default().display()));
                let began = Instant::now();
                match place.metadata() {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(BenchError::at(&place, "looking for it")(e)),
                    Ok(_) => {
                        return Err(BenchError::Failed(format!("{}: is not to be there", place.display())));
                    }
                }
                recorder.done(first_class + MISS, began, 0, 0);
            }
            read(&site.path(path), recorder)?;
        }
        for n in 0..unit.temporaries {
            let path = site.path(format!("obj/tmp{job}-{n}.s"));
            let began = Instant::now();
            make(&path, self.content(site.seed(), i, u64::from(u16::MAX)), unit.len)?;
            recorder.done(first_class + TEMPORARY, began, 0, unit.len);
        }
        burn(unit.cpu, control);
        let path = site.path(&unit.path);
        let began = Instant::now();
        if self.made > 0 {
            // As assemblers do.
            fs::remove_file(&path).map_err(BenchError::at(&path, "removing it"))?;
        }
        make(&path, self.content(site.seed(), i, self.made), unit.len)?;
        recorder.done(first_class + OBJECTS, began, 0, unit.len);
        for n in 0..unit.temporaries {
            let path = site.path(format!("obj/tmp{job}-{n}.s"));
            fs::remove_file(&path).map_err(BenchError::at(&path, "removing it"))?;
        }
        Ok(())
    }

    /// Notes that all objects were made once more.
    pub(super) fn was_made(&mut self) {
        self.made += 1;
    }

    pub(super) fn verify(
        &self,
        site: &Site,
        control: &Control,
        into: &mut Verified,
    ) -> Result<(), BenchError> {
        self.files.verify(site, control, into)?;
        for (i, unit) in self.units.iter().enumerate() {
            control.check()?;
            let path = site.path(&unit.path);
            match self.made {
                0 => {}
                n => into.compare(&path, self.content(site.seed(), i, n - 1), unit.len),
            }
        }
        Ok(())
    }
}

/// Computes for so long, of this thread's own processor time: jobs that share a processor take longer.
fn burn(how_long: Duration, control: &Control) {
    let until = processor_time() + how_long;
    let mut x = 1;
    while processor_time() < until && !control.stopped() {
        for _ in 0..5000 {
            x = crate::fsbench::rng::mix(std::hint::black_box(x));
        }
    }
}

/// What this thread has had of a processor so far.
fn processor_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` lives for the call, which fills it; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

pub(super) struct Compile {
    parameters: Parameters,
    build: Build,
}

pub(super) fn preset(setup: &Setup) -> Parameters {
    let p = match setup.preset.as_str() {
        "paper" => {
            Parameters { sources: 5275, dirs: 1946, objects: 4020, jobs: 16, cpu_min_ms: 50, cpu_max_ms: 200 }
        }
        _ => Parameters { sources: 200, dirs: 40, objects: 60, jobs: 2, cpu_min_ms: 50, cpu_max_ms: 200 },
    };
    Parameters {
        sources: setup.scaled(p.sources, 20),
        dirs: setup.scaled(p.dirs, 1),
        objects: setup.scaled(p.objects, 1),
        ..p
    }
}

impl Compile {
    fn new(setup: &Setup) -> Result<Compile, BenchError> {
        let parameters = setup.apply(preset(setup))?;
        let build = Build::new(&parameters, setup.seed)?;
        Ok(Compile { parameters, build })
    }
}

impl Workload for Compile {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        self.build.needs()
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.build.prepare(site, control)
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let next = AtomicUsize::new(0);
        let build = &self.build;
        let classes = in_threads(control, build.jobs, |job| {
            build.job(site, control, job, &next, control.recorder(CLASSES.map(OpClass::new).into()), 0)
        })?;
        let mut report = control.report(classes);
        self.build.was_made();
        report.metrics = vec![Metric::less("runtime", "s", report.elapsed.as_secs_f64())];
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.build.verify(site, control, &mut verified)?;
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsbench::control::Limits;

    #[test]
    fn computing_takes_a_processor_for_so_long() {
        let control = Control::new(Limits::default());
        let before = processor_time();
        burn(Duration::from_millis(5), &control);
        assert!(processor_time() - before >= Duration::from_millis(5));
        control.stop();
        burn(Duration::from_secs(3600), &control);
    }
}
