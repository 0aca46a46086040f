//! `zipf-0` to `zipf-4`, `zipf-alpha`, `shared`, `hybrid`: static web sites whose documents are requested by
//! Zipf's law (data-centre study).
//!
//! A pass is one phase or several of the same length. Each says which sites are served and how steep the law
//! is; where there are several, caches are emptied of the documents before each. A document's first request
//! in a phase is set apart: whether it is cached says nothing of how the cache serves the site.

mod files;
mod plan;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::files::{both, make};
use crate::fsbench::control::in_threads;
use crate::fsbench::{
    BenchError, Content, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified,
    Workload, Zipf, preflight,
};
use files::{Documents, SEND, evict, serve};
use plan::{Parameters, Phase, Study};

const SOURCE: &str = "data centres";
/// FileBench has none of these: `stock` is `paper` by another name.
const PRESETS: &[&str] = &["ci", "paper", "stock"];

const fn entry(
    name: &'static str,
    summary: &'static str,
    make: fn(&Setup) -> Result<Box<dyn Workload>, BenchError>,
) -> Entry {
    Entry { name, summary, source: SOURCE, presets: PRESETS, make }
}

pub(super) const ENTRIES: [Entry; 8] = [
    entry("zipf-0", "a site's documents by Zipf's law: 1-250 KB, 25 MB", |s| of(s, Study::Class(0))),
    entry("zipf-1", "the same, 1 KB-1 MB, 100 MB", |s| of(s, Study::Class(1))),
    entry("zipf-2", "the same, 1 KB-4 MB, 450 MB", |s| of(s, Study::Class(2))),
    entry("zipf-3", "the same, 1 KB-16 MB, 2 GB", |s| of(s, Study::Class(3))),
    entry("zipf-4", "the same, 1 KB-64 MB, 6 GB", |s| of(s, Study::Class(4))),
    entry("zipf-alpha", "the same at 4 GB, one steepness of the law after another", |s| of(s, Study::Alpha)),
    entry("shared", "cached requests of one site, then of two like it in one cache", |s| {
        of(s, Study::Shared)
    }),
    entry("hybrid", "a site beside another, then with its popular files in a directory of their own", |s| {
        of(s, Study::Hybrid)
    }),
];

fn of(setup: &Setup, study: Study) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Sites::new(setup, study)?))
}

/// Classes of a phase: a document's first request in it, and later ones.
const CLASSES: [&str; 3] = ["first", "cached", "uncached"];

struct Sites {
    parameters: Parameters,
    study: Study,
    seed: u64,
    sites: Vec<Documents>,
    phases: Vec<Phase>,
    /// Most popular documents of the second site that have a copy in the hot directory.
    hot: usize,
    /// The hot directory's own site, where it lies outside of the run's.
    elsewhere: Option<Site>,
    passes: u32,
}

/// What a site's name is below the run's directory.
fn root(site: usize) -> String {
    format!("site{site}")
}

/// Where copies of popular documents are below the hot directory.
const HOT: &str = "hot";

impl Sites {
    fn new(setup: &Setup, study: Study) -> Result<Sites, BenchError> {
        let parameters = Parameters::new(setup, study)?;
        let p = &parameters;
        let sites = if matches!(study, Study::Shared | Study::Hybrid) { 2 } else { 1 };
        let sites: Vec<Documents> = (0..sites)
            .map(|s| {
                // Identical sites: the same sizes and ranks.
                let mut rng = Rng::stream(setup.seed, "documents");
                Documents::new(&root(s), s as u64, p.files, p.largest, p.swaps, &mut rng)
            })
            .collect();
        let phases = p.phases(study)?;
        let hot = match p.hot {
            Some(share) => {
                let zipf = Zipf::new(p.files as usize, phases[0].alpha);
                let mut sum = 0.0;
                let below = |rank: &usize| {
                    let enough = sum >= share;
                    sum += zipf.probability(*rank);
                    !enough
                };
                (0..p.files as usize).take_while(below).count()
            }
            None => 0,
        };
        if let Some(dir) = p.hot_dir.as_deref().filter(|d| !d.is_empty()) {
            preflight::directory(dir.as_ref())?;
        }
        Ok(Sites { parameters, study, seed: setup.seed, sites, phases, hot, elsewhere: None, passes: 0 })
    }

    fn hot_needs(&self) -> Needs {
        let bytes = (0..self.hot).map(|r| self.sites[self.sites.len() - 1].of_rank(r).len).sum();
        Needs { bytes, inodes: self.hot as u64 + 1, ..Needs::default() }
    }

    fn hot_path(&self, site: &Site, rank: usize) -> PathBuf {
        self.elsewhere.as_ref().unwrap_or(site).path(HOT).join(format!("r{rank:05}.html"))
    }

    /// Copies the popular documents.
    fn make_hot(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        if let Some(dir) = self.parameters.hot_dir.as_deref().filter(|d| !d.is_empty()) {
            let dir = PathBuf::from(dir);
            let same = |a: std::io::Result<PathBuf>, b: std::io::Result<PathBuf>| {
                a.is_ok_and(|a| b.is_ok_and(|b| a == b))
            };
            if site.root().parent().is_some_and(|run| same(run.canonicalize(), dir.canonicalize())) {
                return Err(BenchError::Usage(
                    "--set hot_dir: is the directory of the run itself; give one on another file system, or leave it away"
                        .into(),
                ));
            }
            preflight::room(&dir, &self.hot_needs())?;
            let name = "hybrid, its popular files";
            self.elsewhere = Some(Site::create(&dir, name, serde_json::Value::Null, self.seed)?);
        }
        let dir = self.elsewhere.as_ref().unwrap_or(site).path(HOT);
        std::fs::create_dir(&dir).map_err(BenchError::at(&dir, "making the directory"))?;
        for rank in 0..self.hot {
            control.check()?;
            let document = self.sites[1].of_rank(rank);
            make(&self.hot_path(site, rank), Content::new(self.seed, document.number), document.len)?;
        }
        Ok(())
    }

    /// Where a request goes in a phase.
    fn path(&self, site: &Site, phase: &Phase, which: usize, rank: usize) -> PathBuf {
        if phase.uses_hot && which == 1 && rank < self.hot {
            self.hot_path(site, rank)
        } else {
            site.path(&self.sites[which].of_rank(rank).path)
        }
    }

    /// Empties the page cache of all documents, as far as their file systems do that.
    fn evict(&self, site: &Site, control: &Control) -> Result<(), BenchError> {
        for documents in &self.sites {
            for document in &documents.files.files {
                control.check()?;
                evict(&site.path(&document.path))?;
            }
        }
        (0..self.hot).try_for_each(|rank| evict(&self.hot_path(site, rank)))
    }

    /// All classes of a pass; the last is for requests of the site that a study is not about.
    fn classes(&self) -> Vec<OpClass> {
        let named = |p: &Phase, class: &str| match p.name.as_str() {
            "" => class.to_owned(),
            name => format!("{name}, {class}"),
        };
        let mut all: Vec<OpClass> =
            self.phases.iter().flat_map(|p| CLASSES.map(|c| OpClass::new(named(p, c)))).collect();
        all.push(OpClass::uncounted("other site"));
        all
    }

    /// Serves a phase's sites until `over`.
    fn serve(
        &self,
        site: &Site,
        control: &Control,
        number: usize,
        over: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<OpClass>, BenchError> {
        let phase = &self.phases[number];
        let zipf = Zipf::new(self.parameters.files as usize, phase.alpha);
        let seen: Vec<Vec<AtomicBool>> =
            self.sites.iter().map(|s| (0..s.count()).map(|_| AtomicBool::new(false)).collect()).collect();
        let each = self.parameters.threads as usize;
        let other = 3 * self.phases.len();
        in_threads(control, each * phase.sites, |thread| {
            let which = thread / each;
            let stream = format!("requests {thread} of phase {number} pass {}", self.passes);
            let (mut rng, mut recorder) = (site.stream(&stream), control.recorder(self.classes()));
            let mut buffer = vec![0; SEND];
            while !over() {
                let rank = zipf.draw(&mut rng);
                let path = self.path(site, phase, which, rank);
                let began = Instant::now();
                let (cached, n) = serve(&path, &mut buffer).map_err(BenchError::at(&path, "serving it"))?;
                let took = began.elapsed();
                let want = self.sites[which].of_rank(rank).len;
                if n != want {
                    return Err(BenchError::Failed(format!("{}: {n} bytes of {want}", path.display())));
                }
                let class =
                    if seen[which][rank].swap(true, Ordering::Relaxed) { 2 - usize::from(cached) } else { 0 };
                // Of a hybrid's sites the second one is looked at.
                let class =
                    if self.study == Study::Hybrid && which == 0 { other } else { 3 * number + class };
                recorder.add(class, took, n, 0);
            }
            Ok(recorder.into_classes())
        })
    }

    fn metrics(&self, report: &PassReport, seconds: &[f64]) -> Vec<Metric> {
        let mut rates = Vec::new();
        let mut cached = Vec::new();
        for (number, seconds) in seconds.iter().enumerate() {
            let ops = |class: usize| report.classes[3 * number + class].ops as f64;
            rates.push((ops(0) + ops(1) + ops(2)) / seconds.max(1e-9));
            let again = ops(1) + ops(2);
            cached.push(if again > 0.0 { 100.0 * ops(1) / again } else { 0.0 });
        }
        let name = |number: usize, what: &str| match self.phases[number].name.as_str() {
            "" => what.to_owned(),
            name => format!("{name} {what}"),
        };
        let last = self.phases.len() - 1;
        let mut metrics = Vec::new();
        match self.study {
            Study::Class(_) => {
                let (n, ns) = report.classes.iter().filter(|c| c.counted).fold((0, 0.0), |(n, ns), c| {
                    (n + c.ops, ns + c.latencies.mean_ns().unwrap_or(0.0) * c.ops as f64)
                });
                metrics.push(Metric::more("requests", "/s", rates[0]));
                metrics.push(Metric::less("response", "ms", ns / 1e6 / n.max(1) as f64));
            }
            Study::Shared => {}
            Study::Alpha | Study::Hybrid => {
                let of = |n: usize| Metric::more(&name(n, "requests"), "/s", rates[n]);
                metrics.extend((0..=last).rev().map(of));
            }
        }
        metrics.extend((0..=last).rev().map(|n| Metric::more(&name(n, "cached"), "%", cached[n])));
        if self.study == Study::Hybrid && rates[0] > 0.0 {
            metrics.push(Metric::more("gain", "%", 100.0 * (rates[1] / rates[0] - 1.0)));
        }
        metrics
    }
}

impl Workload for Sites {
    fn parameters(&self) -> serde_json::Value {
        let mut all = serde_json::to_value(&self.parameters).unwrap_or_default();
        // What this study does not have.
        if let Some(all) = all.as_object_mut() {
            all.retain(|_, value| !value.is_null());
        }
        all
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let threads = self.parameters.threads * self.sites.len() as u64;
        let own = Needs {
            descriptors: threads,
            memory: threads * (SEND as u64 + (64 << 10)) + self.parameters.files * 64,
            ..Needs::default()
        };
        let here = self.parameters.hot_dir.as_ref().is_some_and(String::is_empty);
        let own = if here { both(own, self.hot_needs()) } else { own };
        self.sites.iter().map(|s| s.files.needs()).fold(own, both)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        if self.study == Study::Hybrid {
            self.make_hot(site, control)?;
        }
        self.sites.iter().try_for_each(|s| s.files.make(site, control))
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        if self.parameters.hot_dir.as_ref().is_some_and(|d| !d.is_empty()) {
            return Err(BenchError::Refused(
                "hybrid with a hot_dir cannot go on with prepared files: those in hot_dir are removed with the run \
                 that made them; run it without --reuse"
                    .into(),
            ));
        }
        Ok(())
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn usual_duration(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.parameters.seconds))
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let limits = control.limits();
        let progress = control.progress();
        let parts = self.phases.len() as f64;
        let mut all = self.classes();
        let mut seconds = Vec::new();
        // What emptying caches takes belongs to no phase.
        let mut aside = Duration::ZERO;
        for number in 0..self.phases.len() {
            if parts > 1.0 {
                let began = Instant::now();
                self.evict(site, control)?;
                aside += began.elapsed();
            }
            let part = (number + 1) as f64 / parts;
            let began = control.elapsed().max(limits.warmup);
            let until = limits.duration.map(|d| limits.warmup + d.mul_f64(part) + aside);
            let most = limits.ops.map(|n| (n as f64 * part).round() as u64);
            let over = || {
                control.stopped()
                    || until.is_some_and(|u| control.elapsed() >= u)
                    || most.is_some_and(|m| progress.ops.load(Ordering::Relaxed) >= m)
            };
            let classes = self.serve(site, control, number, &over)?;
            all.iter_mut().zip(&classes).for_each(|(sum, one)| sum.merge(one));
            seconds.push(control.elapsed().saturating_sub(began).as_secs_f64());
        }
        self.passes += 1;
        let mut report = control.report(all);
        report.elapsed = report.elapsed.saturating_sub(aside);
        report.metrics = self.metrics(&report, &seconds);
        let idle = |n: usize| report.classes[3 * n..3 * n + 3].iter().all(|c| c.ops == 0);
        if (0..self.phases.len()).any(idle) {
            report.short =
                Some("a phase answered no request; give it longer (--duration) or more --ops".into());
        }
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        for documents in &self.sites {
            documents.files.verify(site, control, &mut verified)?;
        }
        for rank in 0..self.hot {
            control.check()?;
            let document = self.sites[1].of_rank(rank);
            let content = Content::new(self.seed, document.number);
            verified.compare(&self.hot_path(site, rank), content, document.len);
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests;
