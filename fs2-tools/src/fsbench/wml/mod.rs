//! FileBench's workload language: scripts are read, checked, and run without FileBench.
//!
//! [`Script`] is one that was read, [`Plan`] one that was checked with its variables, [`Site`] its files on a file
//! system. Statistics over runs, cold caches and reports other than FileBench's own are left to the modules beside
//! this one. `docs/fsbench-language.md` is the language, and what is different here.
//!
//! ```
//! use fs2_tools::fsbench::wml::{RunOptions, Script};
//!
//! let script = Script::parse("small.f", "
//!     set $files=4
//!     define fileset name=set,path=/tmp,size=4k,entries=$files,dirwidth=2,prealloc
//!     define process name=reader {
//!       thread name=reader {
//!         flowop openfile name=open,filesetname=set,fd=1
//!         flowop readwholefile name=read,fd=1
//!         flowop closefile name=close,fd=1
//!         flowop finishoncount name=end,value=30
//!       }
//!     }")?;
//! let dir = tempfile::tempdir()?;
//! let site = script.plan(&[("files".into(), "10".into())])?.create(dir.path(), &RunOptions::default())?;
//! let report = site.run(&RunOptions::default(), &mut |_| {})?;
//! assert_eq!(report.counted().map(|op| op.count).sum::<u64>(), 30);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aio;
mod buffer;
mod fileset;
mod gates;
mod index;
mod ops;
pub(super) mod priority;
mod report;
mod run;
mod workload;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use fs2_wml::model::OpClass;
pub use fs2_wml::{Pos, QuitMode, ScriptError};
pub use report::filebench;
pub use run::{Ended, Event, OpReport, RunError, RunOptions, RunReport};

pub use workload::{entries, of_file};

use super::Verified;
use fileset::FileSet;
use fs2_wml::{dist, model, tree};
use gates::Stop;
use model::Model;

/// How long a script runs that does not say.
const RUN_SECONDS: u64 = 60;

/// A script that was read.
#[derive(Clone, Debug)]
pub struct Script(fs2_wml::Script);

/// A script that was checked: it can fail only because of the file system.
#[derive(Clone, Debug)]
pub struct Plan {
    model: Arc<Model>,
}

/// What a plan asks of a file system and a system.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Needs {
    /// Bytes of all files, those not made in advance too.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
    /// Open files.
    pub descriptors: u64,
    /// Bytes of the threads' memory.
    pub memory_bytes: u64,
    /// Threads.
    pub threads: u64,
}

impl Script {
    /// Reads a script. `name` stands before the place in errors.
    ///
    /// # Errors
    /// Where it is not of the language: with the place, and what was expected.
    pub fn parse(name: &str, source: &str) -> Result<Self, ScriptError> {
        fs2_wml::Script::parse(name, source).map(Self)
    }

    /// Checks it, with `overrides` of the variables it sets: those keep the value given here.
    ///
    /// # Errors
    /// Names that are not known, with the nearest that is; values that cannot be; each with its place.
    pub fn plan(&self, overrides: &[(String, String)]) -> Result<Plan, ScriptError> {
        Ok(Plan { model: Arc::new(self.0.build(overrides)?) })
    }
}

impl Plan {
    /// The same with filesets `factor` times as large: so many times as many files and leaf directories where there are
    /// several, so many times as long a file where there is one, and working sets within those.
    pub fn scaled(mut self, factor: f64) -> Self {
        Arc::make_mut(&mut self.model).scale(factor);
        self
    }

    /// The variables the script sets, as they came out, in the order of their names.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.model.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A variable that is a number.
    pub fn variable(&self, name: &str) -> Option<u64> {
        self.model.variables.iter().find(|(n, _)| n == name).and_then(|(_, value)| value.parse().ok())
    }

    /// How long the script says it runs.
    pub fn runtime(&self) -> std::time::Duration {
        let seconds = self.model.steps.iter().find_map(|step| match step {
            model::Step::Run { seconds, .. } => *seconds,
            _ => None,
        });
        std::time::Duration::from_secs(seconds.unwrap_or(RUN_SECONDS))
    }

    /// What it needs. Plans the filesets as `create` does, so that sizes drawn at random are known.
    pub fn needs(&self, seed: u64) -> Needs {
        let mut needs = Needs { threads: self.model.threads(), ..Needs::default() };
        for set in self.sets(Path::new(""), seed) {
            let (bytes, inodes) = set.needs();
            needs.bytes = needs.bytes.saturating_add(bytes);
            needs.inodes = needs.inodes.saturating_add(inodes);
        }
        for process in &self.model.processes {
            for thread in &process.threads {
                let n = process.instances.saturating_mul(thread.instances);
                needs.memory_bytes = needs.memory_bytes.saturating_add(n.saturating_mul(thread.memory_bytes));
                needs.descriptors =
                    needs.descriptors.saturating_add(n.saturating_mul(self.descriptors(thread)));
            }
        }
        needs
    }

    /// Files a thread may have open.
    fn descriptors(&self, thread: &model::ThreadSpec) -> u64 {
        let (mut fds, mut own) = (BTreeSet::new(), BTreeSet::new());
        let mut rest: Vec<&model::Op> = thread.ops.iter().collect();
        while let Some(op) = rest.pop() {
            rest.extend(&op.inner);
            match op.fileset {
                Some(set) if op.opennext && op.fd == 0 => own.insert(set),
                set => fds.insert((op.fd, set.filter(|_| op.fd == 0))),
            };
        }
        fds.len() as u64 + own.iter().map(|set| self.model.filesets[*set].entries).sum::<u64>()
    }

    /// Where filesets lie: below the directory, and where a script has more than one path, below the path there.
    fn sets(&self, dir: &Path, seed: u64) -> Vec<FileSet> {
        let filesets = &self.model.filesets;
        let many = filesets.iter().any(|f| f.path != filesets[0].path);
        let set = |(i, spec): (usize, &model::FilesetSpec)| {
            let mut base = dir.to_path_buf();
            if many {
                // Only what names a directory: neither the root nor a way out of the benchmark's own.
                let parts = Path::new(&spec.path).components();
                base.extend(parts.filter(|c| matches!(c, std::path::Component::Normal(_))));
            }
            FileSet::plan(spec, &base, seed, i as u64)
        };
        filesets.iter().enumerate().map(set).collect()
    }

    /// Makes its files below `dir`, in directories named as the filesets are. What was there under these names is
    /// removed, unless the script says `reuse`.
    ///
    /// # Errors
    /// What the file system said, with the file it was about; interrupted from outside.
    pub fn create(&self, dir: &Path, options: &RunOptions) -> Result<Site, RunError> {
        raise_descriptors(self.needs(options.seed).descriptors);
        let mut sets = self.sets(dir, options.seed);
        let stop = Stop::default();
        for set in &mut sets {
            watched(&stop, options, || set.create(options.seed, &stop))?;
        }
        Ok(Site { model: self.model.clone(), sets: Arc::new(sets) })
    }

    /// Takes over the files that `create` of the same script, variables and seed has made below `dir`, unchanged.
    pub fn adopt(&self, dir: &Path, options: &RunOptions) -> Site {
        raise_descriptors(self.needs(options.seed).descriptors);
        let mut sets = self.sets(dir, options.seed);
        sets.iter_mut().for_each(FileSet::adopt);
        Site { model: self.model.clone(), sets: Arc::new(sets) }
    }
}

/// Does something long that looks at `stop`, which is set when the caller's interruption is.
fn watched<T>(
    stop: &Stop,
    options: &RunOptions,
    work: impl FnOnce() -> Result<T, RunError>,
) -> Result<T, RunError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if (options.interrupted)() {
                    stop.set();
                }
                std::thread::park_timeout(std::time::Duration::from_millis(50));
            }
        });
        let result = work();
        done.store(true, Ordering::Release);
        watcher.thread().unpark();
        if stop.is_set() { Err(RunError::Interrupted) } else { result }
    })
}

/// Takes as many open files as the system lets this process have, if it needs more than it has.
fn raise_descriptors(needed: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    /// For everything that is no file of a thread.
    const OWN: u64 = 100;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < needed.saturating_add(OWN)
    {
        // What cannot be had shows when a file cannot be opened, with the system's own words.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.saturating_add(OWN).min(hard), hard);
    }
}

/// A plan whose files are there.
#[derive(Debug)]
pub struct Site {
    model: Arc<Model>,
    sets: Arc<Vec<FileSet>>,
}

impl Site {
    /// Brings the files back to what they were when made, for another run: see `docs/fsbench-language.md`. Files that
    /// were only read are not touched.
    ///
    /// # Errors
    /// What the file system said; interrupted from outside.
    pub fn restore(&self, options: &RunOptions) -> Result<(), RunError> {
        let stop = Stop::default();
        for set in self.sets.iter() {
            watched(&stop, options, || set.restore(options.seed, &stop))?;
        }
        Ok(())
    }

    /// Runs it once. `sink` is told what the script says and counts on the way.
    ///
    /// # Errors
    /// Why there is no result, with the flowop's name where there is one. Ends within `options.grace` of its time
    /// always; threads that hang in the kernel are then left behind.
    pub fn run(&self, options: &RunOptions, sink: &mut dyn FnMut(Event)) -> Result<RunReport, RunError> {
        run::run(&self.model, &self.sets, options, sink)
    }

    /// Compares files with what should be there: all of them exist that should, and those no flowop has written to have
    /// the content they were made with.
    pub fn verify(&self, options: &RunOptions) -> Verified {
        let (stop, mut found) = (Stop::default(), Verified::default());
        let all = || {
            self.sets.iter().for_each(|set| set.verify(options.seed, &stop, &mut found));
            Ok(())
        };
        // Interrupted, the caller knows.
        let _ = watched(&stop, options, all);
        found
    }

    /// The directories of its filesets.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.sets.iter().map(|set| set.root.as_path())
    }
}
