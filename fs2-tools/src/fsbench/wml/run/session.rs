//! The threads of a run: started, watched, counted, and waited for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::aio::Pool;
use super::super::buffer::Aligned;
use super::super::fileset::FileSet;
use super::super::gates::{Events, Gate, Stop, lock};
use super::super::model::{Amount, Model, Op, OpClass, OpKind};
use super::super::ops::Worker;
use super::PIECE_BYTES;
use super::live::{Ending, Leaving, Live, OpStats, ThreadState, Totals};
use super::outcome::{Ended, Event, OpReport, RunError, RunOptions, RunReport};

/// Running threads.
pub(super) struct Session {
    pub(super) live: Arc<Live>,
    pub(super) threads: Vec<Arc<ThreadState>>,
    /// Of the threads, or of what counts.
    pub(super) start: Instant,
    warming: bool,
}

/// Writes come out of so many bytes of noise, more where the script writes more at once.
const NOISE_BYTES: u64 = 8 << 20;

fn flowops(model: &Model) -> impl Iterator<Item = &Op> {
    let mut rest: Vec<&Op> = model.processes.iter().flat_map(|p| &p.threads).flat_map(|t| &t.ops).collect();
    std::iter::from_fn(move || {
        let op = rest.pop()?;
        rest.extend(&op.inner);
        Some(op)
    })
}

impl Session {
    pub(super) fn start(
        model: &Arc<Model>,
        sets: &Arc<Vec<FileSet>>,
        options: &RunOptions,
    ) -> Result<Self, RunError> {
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
        let warming = !options.warmup.is_zero();
        let mut session = Session { live, threads: Vec::new(), start: Instant::now(), warming };
        let mut of_process: HashMap<(usize, u64), (Arc<Totals>, Arc<Pool>)> = HashMap::new();
        for (stream, ((p, instance, t, name), gates)) in places.into_iter().zip(own).enumerate() {
            let (totals, pool) = of_process.entry((p, instance)).or_default().clone();
            lock(&session.live.pools).push(pool.clone());
            let state = Arc::new(ThreadState {
                name: name.clone(),
                spec: (p, t),
                doing: AtomicUsize::new(0),
                counters: Mutex::new(vec![OpStats::default(); model.processes[p].threads[t].counters.len()]),
                warming: AtomicBool::new(warming),
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
    pub(super) fn why(&self) -> Result<Ended, RunError> {
        lock(&self.live.ending).why.take().unwrap_or(Ok(Ended::Time))
    }

    /// Until the run ends or the time is over; whether it goes on.
    pub(super) fn wait(&self, until: Instant, options: &RunOptions, sink: &mut dyn FnMut(Event)) -> bool {
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

    pub(super) fn tell(&self, options: &RunOptions) {
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

    /// Sees the warm-up to its end, where it is not over; whether the run goes on.
    pub(super) fn warm_up(
        &mut self,
        until: Instant,
        options: &RunOptions,
        sink: &mut dyn FnMut(Event),
    ) -> bool {
        if !self.warming {
            return true;
        }
        if !self.wait(until, options, sink) {
            return false;
        }
        self.clear();
        self.warming = false;
        true
    }

    /// What counts begins.
    fn clear(&mut self) {
        for thread in &self.threads {
            let mut counters = lock(&thread.counters);
            counters.iter_mut().for_each(|c| *c = OpStats::default());
            thread.warming.store(false, Ordering::Release);
        }
        self.start = Instant::now();
    }

    pub(super) fn report(&self) -> RunReport {
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
        RunReport { elapsed, ops, ended: None, within_warmup: None }
    }

    pub(super) fn wait_for_threads(&self, grace: Duration) -> Result<(), RunError> {
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

    pub(super) fn stop(mut self, grace: Duration) -> Result<RunReport, RunError> {
        self.live.end(Ok(Ended::Time));
        self.wait_for_threads(grace)?;
        let within_warmup = self.warming.then(|| self.report().elapsed);
        if within_warmup.is_some() {
            self.clear();
        }
        let report = self.report();
        Ok(RunReport { ended: Some(self.why()?), within_warmup, ..report })
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
