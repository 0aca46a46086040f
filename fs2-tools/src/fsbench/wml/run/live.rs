//! What the threads of a run share, and how it ends.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use super::super::super::measure::Histogram;
use super::super::QuitMode;
use super::super::aio::Pool;
use super::super::buffer::Aligned;
use super::super::fileset::FileSet;
use super::super::gates::{Events, Gate, Stop, lock};
use super::super::model::Model;
use super::outcome::{Ended, RunError};

#[derive(Clone, Debug, Default)]
pub(in super::super) struct OpStats {
    pub(in super::super) count: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) latency: Histogram,
    pub(in super::super) powers: Option<Box<[u64; 64]>>,
    pub(in super::super) sum: f64,
    pub(in super::super) squares: f64,
}

/// What a process's limits and ends without a target go by.
#[derive(Debug, Default)]
pub(in super::super) struct Totals {
    /// Limits hold in the warm-up, too.
    pub(in super::super) ops: AtomicU64,
    pub(in super::super) rw_ops: AtomicU64,
    pub(in super::super) rw_bytes: AtomicU64,
    /// Ends go by what counts: the warm-up's operations are not among these.
    pub(in super::super) counted_ops: AtomicU64,
    pub(in super::super) counted_bytes: AtomicU64,
}

/// A thread as the others see it.
#[derive(Debug)]
pub(in super::super) struct ThreadState {
    pub(super) name: String,
    /// Its process and thread in the model.
    pub(super) spec: (usize, usize),
    /// The counter of the flowop it is in, plus one; 0 between flowops.
    pub(in super::super) doing: AtomicUsize,
    pub(in super::super) counters: Mutex<Vec<OpStats>>,
    /// Changes with `counters` locked, as these are cleared: an operation counts in all places or in none.
    pub(in super::super) warming: AtomicBool,
    pub(super) gone: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) active: usize,
    pub(super) at: Option<Instant>,
    pub(super) why: Option<Result<Ended, RunError>>,
}

/// What all threads of a run share.
#[derive(Debug)]
pub(in super::super) struct Live {
    pub(in super::super) model: Arc<Model>,
    pub(in super::super) sets: Arc<Vec<FileSet>>,
    pub(in super::super) stop: Stop,
    pub(in super::super) events: Events,
    /// Instances of semaphores and blocks, by their full names.
    pub(in super::super) gates: Vec<(String, Arc<Gate>)>,
    pub(in super::super) noise: Arc<Aligned>,
    pub(in super::super) ops_left: Option<AtomicU64>,
    pub(super) pools: Mutex<Vec<Arc<Pool>>>,
    pub(super) ending: Mutex<Ending>,
    pub(super) ended: Condvar,
    pub(super) said: Mutex<Vec<String>>,
    pub(super) go: Mutex<bool>,
    pub(super) gone_on: Condvar,
}

impl Live {
    /// The first to end it says why.
    pub(in super::super) fn end(&self, why: Result<Ended, RunError>) {
        let mut ending = lock(&self.ending);
        if ending.why.is_none() {
            ending.at = Some(Instant::now());
            ending.why = Some(why);
        }
        self.stop.set();
        self.ended.notify_all();
        drop(ending);
        self.gates.iter().for_each(|(_, gate)| gate.end());
        self.sets.iter().for_each(FileSet::end);
        self.events.end();
        lock(&self.pools).iter().for_each(|pool| pool.end());
        *lock(&self.go) = true;
        self.gone_on.notify_all();
    }

    /// The model's words from within a thread; a script that says too much is cut short.
    pub(in super::super) fn say(&self, text: String) {
        let mut said = lock(&self.said);
        if said.len() < 1000 {
            said.push(text);
        }
    }

    /// A thread has nothing left to do.
    pub(super) fn out_of_work(&self, flowop: &str, no_file: RunError) {
        match self.model.quit {
            QuitMode::FirstDone => self.end(Ok(Ended::FirstDone(flowop.into()))),
            QuitMode::Timeout => self.end(Err(no_file)),
            QuitMode::AllDone => {}
        }
    }

    pub(super) fn leave(&self) {
        let mut ending = lock(&self.ending);
        ending.active -= 1;
        let last = ending.active == 0;
        drop(ending);
        if last {
            self.end(Ok(Ended::AllDone));
        }
    }
}

/// Leaves its run also when its thread panics: the run's end waits for that.
pub(super) struct Leaving {
    pub(super) live: Arc<Live>,
    pub(super) state: Arc<ThreadState>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.live.end(Err(RunError::Spawn {
                thread: self.state.name.clone(),
                source: io::Error::other("it panicked; this is a fault of this program"),
            }));
        }
        self.state.gone.store(true, Ordering::Release);
        self.live.leave();
    }
}
