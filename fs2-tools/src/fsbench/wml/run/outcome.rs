//! What a run is told, and what it tells.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::super::super::measure::Histogram;
use super::super::Pos;
use super::super::model::{OpClass, OpKind};
use super::live::OpStats;

/// Why a run ended without a result.
#[derive(Debug, Error)]
pub enum RunError {
    /// A flowop had no file to work on, and the script does not say that this ends it.
    #[error(
        "flowop {flowop} could not obtain a file of fileset {fileset}{why}: shorten the run, give the fileset more \
         entries, or end on this with `set mode quit firstdone`"
    )]
    NoFile {
        /// The flowop's name.
        flowop: String,
        /// The fileset's.
        fileset: String,
        /// What it looked for.
        why: &'static str,
    },
    /// A flowop failed.
    #[error("flowop {flowop} (line {at}): {what}")]
    Flowop {
        /// Its name.
        flowop: String,
        /// Where it stands, line and column.
        at: Pos,
        /// What could not be done, to which file.
        what: String,
        /// What the system said.
        #[source]
        source: Option<io::Error>,
    },
    /// The files could not be made.
    #[error("fileset {fileset}: {what}")]
    Prepare {
        /// The fileset's name.
        fileset: String,
        /// What could not be done, to which file.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Threads did not end with the run.
    #[error("the run ended {seconds} s ago, and {count} threads have not: {threads}")]
    Hung {
        /// How long they were waited for.
        seconds: u64,
        /// How many.
        count: usize,
        /// Some of them, with the flowop each is in.
        threads: String,
    },
    /// A thread could not be started.
    #[error("cannot start thread {thread}")]
    Spawn {
        /// Which.
        thread: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A `system` command failed.
    #[error("system {command:?}: {what}")]
    System {
        /// The command.
        command: String,
        /// How it ended.
        what: String,
    },
    /// The caller asked to end.
    #[error("interrupted")]
    Interrupted,
}

/// Why a run ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Its time was over.
    Time,
    /// A `finishoncount` or `finishonbytes` of this name had its number.
    Finished(String),
    /// `set mode quit firstdone`: this flowop had nothing left to do.
    FirstDone(String),
    /// `set mode quit alldone`: no thread had.
    AllDone,
    /// The number of operations asked for was reached.
    Ops,
}

/// How to run.
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
    /// Instead of the script's own time.
    pub runtime: Option<Duration>,
    /// Ends after so many operations that count (file system and asynchronous ones).
    pub ops: Option<u64>,
    /// So much from the beginning does not count: neither in the report, nor for `ops`, `finishoncount` and `finishonbytes`.
    pub warmup: Duration,
    /// Random choices and contents come from it.
    pub seed: u64,
    /// How long threads may take to end.
    pub grace: Duration,
    /// Whether `system` statements are carried out.
    pub system: bool,
    /// Asked now and then whether to end at once.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Told now and then how far the run is: operations that count, bytes read, bytes written.
    pub progress: &'a dyn Fn(u64, u64, u64),
}

impl std::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions")
            .field("runtime", &self.runtime)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        Self {
            runtime: None,
            ops: None,
            warmup: Duration::ZERO,
            seed: 1,
            // An fsync behind a full write cache of a slow disk takes tens of seconds.
            grace: Duration::from_secs(60),
            system: true,
            interrupted: &|| false,
            progress: &|_, _, _| {},
        }
    }
}

/// What was counted of the flowops of one name.
#[derive(Clone, Debug)]
pub struct OpReport {
    /// Their name, a composite's before a dot.
    pub name: String,
    /// The language's word for them.
    pub kind: &'static str,
    /// What they count into.
    pub class: OpClass,
    /// Whether they read a file's content.
    pub reads: bool,
    /// Whether they write it.
    pub writes: bool,
    /// How many there were.
    pub count: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// How long all of them took together, nanoseconds.
    pub total_ns: u128,
    /// How long each took.
    pub latency: Histogram,
    /// Latencies by power of two of nanoseconds, where the script enables it.
    pub powers: Option<Box<[u64; 64]>>,
    /// Of `testrandvar`: mean and standard deviation.
    pub drawn: Option<(f64, f64)>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// From the moment the threads started (or the warm-up ended) to the end.
    pub elapsed: Duration,
    /// Flowops in the order of the script.
    pub ops: Vec<OpReport>,
    /// Why it ended; of a report before the end, `None`.
    pub ended: Option<Ended>,
    /// How long after its start it ended, where that was within the warm-up: nothing of it counts.
    pub within_warmup: Option<Duration>,
}

impl RunReport {
    /// Operations that count: all on the file system, opening and closing too, and asynchronous ones.
    pub fn counted(&self) -> impl Iterator<Item = &OpReport> {
        self.ops.iter().filter(|op| matches!(op.class, OpClass::Io | OpClass::Aio))
    }
}

/// What a run tells while it lasts.
#[derive(Clone, Debug)]
pub enum Event {
    /// The script's own words.
    Said(String),
    /// Counted so far, when asked for by the script: since its start, or `psrun`'s period.
    Counted(RunReport),
}

impl OpReport {
    pub(super) fn new(name: &str, kind: OpKind) -> Self {
        let word = OpKind::ALL.iter().find(|(_, k)| *k == kind).map_or("flowop", |(word, _)| *word);
        Self {
            name: name.into(),
            kind: word,
            class: kind.class(),
            reads: kind.reads(),
            writes: kind.writes(),
            count: 0,
            bytes: 0,
            total_ns: 0,
            latency: Histogram::new(),
            powers: None,
            drawn: None,
        }
    }

    pub(super) fn add(&mut self, stats: &OpStats) {
        self.count += stats.count;
        self.bytes += stats.bytes;
        self.total_ns += stats.latency.sum_ns();
        self.latency.merge(&stats.latency);
        if let Some(powers) = &stats.powers {
            let mine = self.powers.get_or_insert_with(|| Box::new([0; 64]));
            mine.iter_mut().zip(powers.iter()).for_each(|(mine, theirs)| *mine += theirs);
        }
    }
}
