//! A run: its threads, its end, and what was counted.
//!
//! Processes of a script are groups of threads of this one: they share nothing in the language but what is shared
//! here too (filesets, semaphores, events). What a kernel does per process (open files, asynchronous I/O, limits
//! without a target) is kept per process here.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::super::measure::Histogram;
use super::aio::Pool;
use super::ast::QuitMode;
use super::buffer::Aligned;
use super::error::Pos;
use super::fileset::FileSet;
use super::gates::{Events, Gate, Stop, lock};
use super::model::{Amount, Model, Op, OpClass, OpKind, Step};
use super::ops::Worker;

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
    /// Ends after so many operations (file system and asynchronous ones).
    pub ops: Option<u64>,
    /// Not counted at the beginning.
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

#[derive(Clone, Debug, Default)]
pub(super) struct OpStats {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) latency: Histogram,
    pub(super) powers: Option<Box<[u64; 64]>>,
    pub(super) sum: f64,
    pub(super) squares: f64,
}

/// What a process's limits and ends without a target go by.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) ops: AtomicU64,
    pub(super) rw_ops: AtomicU64,
    pub(super) rw_bytes: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// A thread as the others see it.
#[derive(Debug)]
pub(super) struct ThreadState {
    name: String,
    /// Its process and thread in the model.
    spec: (usize, usize),
    /// The counter of the flowop it is in, plus one; 0 between flowops.
    pub(super) doing: AtomicUsize,
    pub(super) counters: Mutex<Vec<OpStats>>,
    gone: AtomicBool,
}

#[derive(Debug, Default)]
struct Ending {
    active: usize,
    at: Option<Instant>,
    why: Option<Result<Ended, RunError>>,
}

/// What all threads of a run share.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) model: Arc<Model>,
    pub(super) sets: Arc<Vec<FileSet>>,
    pub(super) stop: Stop,
    pub(super) events: Events,
    /// Instances of semaphores and blocks, by their full names.
    pub(super) gates: Vec<(String, Arc<Gate>)>,
    pub(super) noise: Arc<Aligned>,
    pub(super) ops_left: Option<AtomicU64>,
    pools: Mutex<Vec<Arc<Pool>>>,
    ending: Mutex<Ending>,
    ended: Condvar,
    said: Mutex<Vec<String>>,
    go: Mutex<bool>,
    gone_on: Condvar,
}

impl Live {
    /// The first to end it says why.
    pub(super) fn end(&self, why: Result<Ended, RunError>) {
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
    pub(super) fn say(&self, text: String) {
        let mut said = lock(&self.said);
        if said.len() < 1000 {
            said.push(text);
        }
    }

    /// A thread has nothing left to do.
    fn out_of_work(&self, flowop: &str, no_file: RunError) {
        match self.model.quit {
            QuitMode::FirstDone => self.end(Ok(Ended::FirstDone(flowop.into()))),
            QuitMode::Timeout => self.end(Err(no_file)),
            QuitMode::AllDone => {}
        }
    }

    fn leave(&self) {
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
struct Leaving {
    live: Arc<Live>,
    state: Arc<ThreadState>,
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

/// Running threads.
struct Session {
    live: Arc<Live>,
    threads: Vec<Arc<ThreadState>>,
    start: Instant,
}

/// Writes come out of so many bytes of noise, more where the script writes more at once.
const NOISE_BYTES: u64 = 8 << 20;
/// At most so many at once: what is longer is written in pieces.
pub(super) const PIECE_BYTES: u64 = 64 << 20;

fn flowops(model: &Model) -> impl Iterator<Item = &Op> {
    let mut rest: Vec<&Op> = model.processes.iter().flat_map(|p| &p.threads).flat_map(|t| &t.ops).collect();
    std::iter::from_fn(move || {
        let op = rest.pop()?;
        rest.extend(&op.inner);
        Some(op)
    })
}

impl Session {
    fn start(model: &Arc<Model>, sets: &Arc<Vec<FileSet>>, options: &RunOptions) -> Result<Self, RunError> {
        let largest = flowops(model).filter(|op| op.kind.writes()).map(|op| match op.iosize {
            Amount::Fixed(n) => n.min(PIECE_BYTES),
            Amount::Drawn(_) => 0,
        });
        let noise = largest.max().unwrap_or(0).max(NOISE_BYTES);
        let mut gates = Vec::new();
        // Of each thread the gates it waits at, by counter.
        let mut own: Vec<HashMap<usize, Arc<Gate>>> = Vec::new();
        let mut places = Vec::new();
        for (p, process) in model.processes.iter().enumerate() {
            for process_instance in 1..=process.instances {
                for (t, thread) in process.threads.iter().enumerate() {
                    for thread_instance in 1..=thread.instances {
                        let mut mine = HashMap::new();
                        for (slot, counter) in thread.counters.iter().enumerate() {
                            if matches!(counter.kind, OpKind::SemBlock | OpKind::Block) {
                                let gate = Arc::new(Gate::new(highwater(&thread.ops, slot)));
                                gates.push((counter.name.clone(), gate.clone()));
                                mine.insert(slot, gate);
                            }
                        }
                        own.push(mine);
                        let name =
                            format!("{}-{process_instance}/{}-{thread_instance}", process.name, thread.name);
                        places.push((p, process_instance, t, name));
                    }
                }
            }
        }
        let live = Arc::new(Live {
            model: model.clone(),
            sets: sets.clone(),
            stop: Stop::default(),
            events: Events::new(model.event_rate, Instant::now()),
            gates,
            noise: Arc::new(Aligned::noise(noise as usize, options.seed)),
            ops_left: options.ops.map(AtomicU64::new),
            pools: Mutex::default(),
            ending: Mutex::new(Ending { active: 1, ..Ending::default() }),
            ended: Condvar::new(),
            said: Mutex::default(),
            go: Mutex::new(false),
            gone_on: Condvar::new(),
        });
        let mut session = Session { live, threads: Vec::new(), start: Instant::now() };
        let mut of_process: HashMap<(usize, u64), (Arc<Totals>, Arc<Pool>)> = HashMap::new();
        for (stream, ((p, instance, t, name), gates)) in places.into_iter().zip(own).enumerate() {
            let (totals, pool) = of_process.entry((p, instance)).or_default().clone();
            lock(&session.live.pools).push(pool.clone());
            let state = Arc::new(ThreadState {
                name: name.clone(),
                spec: (p, t),
                doing: AtomicUsize::new(0),
                counters: Mutex::new(vec![OpStats::default(); model.processes[p].threads[t].counters.len()]),
                gone: AtomicBool::new(false),
            });
            let (live, seed) = (session.live.clone(), options.seed);
            lock(&live.ending).active += 1;
            let leaving = Leaving { live: live.clone(), state: state.clone() };
            session.threads.push(state.clone());
            let spawned =
                std::thread::Builder::new().name("flowops".into()).stack_size(256 << 10).spawn(move || {
                    let leaving = leaving;
                    let worker =
                        Worker::new(&live, &leaving.state, (p, t), totals, pool, gates, seed, stream as u64);
                    run_thread(&live, worker);
                });
            if let Err(source) = spawned {
                session.live.end(Err(RunError::Spawn { thread: name, source }));
                session.live.leave();
                session.wait_for_threads(options.grace)?;
                return Err(session.why().err().unwrap_or(RunError::Interrupted));
            }
        }
        session.live.events.restart();
        session.start = Instant::now();
        *lock(&session.live.go) = true;
        session.live.gone_on.notify_all();
        session.live.leave();
        Ok(session)
    }

    /// The reason of the end; taken once.
    fn why(&self) -> Result<Ended, RunError> {
        lock(&self.live.ending).why.take().unwrap_or(Ok(Ended::Time))
    }

    /// Until the run ends or the time is over; whether it goes on.
    fn wait(&self, until: Instant, options: &RunOptions, sink: &mut dyn FnMut(Event)) -> bool {
        loop {
            std::mem::take(&mut *lock(&self.live.said)).into_iter().for_each(|text| sink(Event::Said(text)));
            self.tell(options);
            let ending = lock(&self.live.ending);
            let now = Instant::now();
            if ending.why.is_some() || now >= until {
                return ending.why.is_none();
            }
            let wait = (until - now).min(Duration::from_millis(100));
            drop(self.live.ended.wait_timeout(ending, wait).unwrap_or_else(PoisonError::into_inner));
            if (options.interrupted)() {
                self.live.end(Err(RunError::Interrupted));
                return false;
            }
        }
    }

    fn tell(&self, options: &RunOptions) {
        let (mut ops, mut read, mut written) = (0, 0, 0);
        for thread in &self.threads {
            let spec = &self.live.model.processes[thread.spec.0].threads[thread.spec.1];
            for (counter, stats) in spec.counters.iter().zip(&*lock(&thread.counters)) {
                ops +=
                    if matches!(counter.kind.class(), OpClass::Io | OpClass::Aio) { stats.count } else { 0 };
                read += if counter.kind.reads() { stats.bytes } else { 0 };
                written += if counter.kind.writes() { stats.bytes } else { 0 };
            }
        }
        (options.progress)(ops, read, written);
    }

    fn clear(&mut self) {
        for thread in &self.threads {
            lock(&thread.counters).iter_mut().for_each(|c| *c = OpStats::default());
        }
        self.start = Instant::now();
    }

    fn report(&self) -> RunReport {
        let end = lock(&self.live.ending).at.unwrap_or_else(Instant::now);
        let elapsed = end.saturating_duration_since(self.start);
        let mut ops: Vec<OpReport> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let (mut sums, model) = (Vec::new(), &self.live.model);
        for thread in &self.threads {
            let spec = &model.processes[thread.spec.0].threads[thread.spec.1];
            for (counter, stats) in spec.counters.iter().zip(&*lock(&thread.counters)) {
                let place = *places.entry(&counter.name).or_insert_with(|| {
                    sums.push((0.0, 0.0));
                    ops.push(OpReport::new(&counter.name, counter.kind));
                    ops.len() - 1
                });
                ops[place].add(stats);
                sums[place].0 += stats.sum;
                sums[place].1 += stats.squares;
            }
        }
        for (op, (sum, squares)) in ops.iter_mut().zip(sums).filter(|(op, _)| op.kind == "testrandvar") {
            let (n, mean) = (op.count.max(1) as f64, sum / op.count.max(1) as f64);
            op.drawn = Some((mean, (squares / n - mean * mean).max(0.0).sqrt()));
        }
        RunReport { elapsed, ops, ended: None }
    }

    fn wait_for_threads(&self, grace: Duration) -> Result<(), RunError> {
        let until = Instant::now() + grace;
        let mut ending = lock(&self.live.ending);
        while ending.active > 0 && Instant::now() < until {
            let wait = until.saturating_duration_since(Instant::now());
            ending = self.live.ended.wait_timeout(ending, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(ending);
        let mut hung: Vec<String> = Vec::new();
        for thread in self.threads.iter().filter(|t| !t.gone.load(Ordering::Acquire)) {
            let counters = &self.live.model.processes[thread.spec.0].threads[thread.spec.1].counters;
            let doing = thread.doing.load(Ordering::Relaxed).checked_sub(1).and_then(|i| counters.get(i));
            hung.push(format!("{} in {}", thread.name, doing.map_or("no flowop", |c| &c.name)));
        }
        if !lock(&self.live.pools).iter().all(|pool| pool.is_empty_by(until)) {
            hung.push("an asynchronous write".into());
        }
        if hung.is_empty() {
            return Ok(());
        }
        let count = hung.len();
        hung.truncate(5);
        Err(RunError::Hung { seconds: grace.as_secs(), count, threads: hung.join(", ") })
    }

    fn stop(self, grace: Duration) -> Result<RunReport, RunError> {
        self.live.end(Ok(Ended::Time));
        self.wait_for_threads(grace)?;
        let report = self.report();
        Ok(RunReport { ended: Some(self.why()?), ..report })
    }
}

fn highwater(ops: &[Op], slot: usize) -> u64 {
    ops.iter()
        .find_map(|op| {
            if op.slot == slot {
                Some(op.highwater)
            } else {
                Some(highwater(&op.inner, slot)).filter(|h| *h > 0)
            }
        })
        .unwrap_or(0)
}

fn run_thread(live: &Arc<Live>, mut worker: Worker) {
    let mut go = lock(&live.go);
    while !*go {
        go = live.gone_on.wait(go).unwrap_or_else(PoisonError::into_inner);
    }
    drop(go);
    match worker.run() {
        Ok(None) => {}
        Ok(Some((flowop, no_file))) => live.out_of_work(&flowop, no_file),
        Err(error) => live.end(Err(error)),
    }
}

impl OpReport {
    fn new(name: &str, kind: OpKind) -> Self {
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

    fn add(&mut self, stats: &OpStats) {
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

/// Carries out a script's steps on files that are there.
pub(super) fn run(
    model: &Arc<Model>,
    sets: &Arc<Vec<FileSet>>,
    options: &RunOptions,
    sink: &mut dyn FnMut(Event),
) -> Result<RunReport, RunError> {
    let mut session: Option<Session> = None;
    let mut steps = model.steps.clone();
    if !steps.iter().any(|s| matches!(s, Step::Start | Step::Run { .. })) {
        steps.push(Step::Run { seconds: None, period_s: None });
    }
    for step in steps {
        match step {
            Step::Echo(text) => sink(Event::Said(text)),
            Step::System(command) if options.system => system(command)?,
            Step::System(_) => {}
            Step::Start => {
                if session.is_none() {
                    session = Some(Session::start(model, sets, options)?);
                }
            }
            Step::Sleep(seconds) => {
                let time = match &session {
                    Some(_) => options.runtime.unwrap_or(Duration::from_secs(seconds)),
                    None => Duration::from_secs(seconds),
                };
                let until = Instant::now() + time;
                match &session {
                    Some(session) => {
                        session.wait(until, options, sink);
                    }
                    None => {
                        while Instant::now() < until && !(options.interrupted)() {
                            std::thread::sleep(
                                until
                                    .saturating_duration_since(Instant::now())
                                    .min(Duration::from_millis(50)),
                            );
                        }
                    }
                }
            }
            Step::Snapshot => {
                if let Some(session) = &session {
                    sink(Event::Counted(session.report()));
                }
            }
            Step::Stop => break,
            Step::Run { seconds, period_s } => {
                let mut session = match session {
                    Some(session) => session,
                    None => Session::start(model, sets, options)?,
                };
                let time =
                    options.runtime.unwrap_or(Duration::from_secs(seconds.unwrap_or(super::RUN_SECONDS)));
                timed(&mut session, time, period_s, options, sink);
                return session.stop(options.grace);
            }
        }
    }
    match session {
        Some(session) => session.stop(options.grace),
        None => Ok(RunReport { elapsed: Duration::ZERO, ops: Vec::new(), ended: Some(Ended::AllDone) }),
    }
}

fn timed(
    session: &mut Session,
    time: Duration,
    period_s: Option<u64>,
    options: &RunOptions,
    sink: &mut dyn FnMut(Event),
) {
    if !options.warmup.is_zero() {
        if !session.wait(Instant::now() + options.warmup, options, sink) {
            return;
        }
        session.clear();
    }
    let end = session.start + time;
    let Some(period) = period_s.map(Duration::from_secs) else {
        session.wait(end, options, sink);
        return;
    };
    let mut before = session.report();
    let mut next = session.start + period;
    while next < end && session.wait(next, options, sink) {
        let now = session.report();
        sink(Event::Counted(since(&before, &now)));
        before = now;
        next += period;
    }
    session.wait(end, options, sink);
}

/// What came between two reports: counts, bytes and times; the extremes are of the whole run.
fn since(before: &RunReport, now: &RunReport) -> RunReport {
    let mut out = now.clone();
    out.elapsed = now.elapsed.saturating_sub(before.elapsed);
    for (op, earlier) in out.ops.iter_mut().zip(&before.ops) {
        op.count -= earlier.count.min(op.count);
        op.bytes -= earlier.bytes.min(op.bytes);
        op.total_ns -= earlier.total_ns.min(op.total_ns);
    }
    out
}

fn system(command: String) -> Result<(), RunError> {
    let failed = |what: String| RunError::System { command: command.clone(), what };
    match std::process::Command::new("sh").arg("-c").arg(&command).stdin(std::process::Stdio::null()).status()
    {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(status.to_string())),
        Err(error) => Err(failed(format!("cannot be started: {error}"))),
    }
}
