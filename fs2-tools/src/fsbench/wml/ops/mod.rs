//! The flowops: what each does, and what it counts.

mod directories;
mod failure;
mod files;
mod slots;
mod transfer;
mod waiting;

use std::collections::HashMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::aio::{Outstanding, Pool};
use super::buffer::Aligned;
use super::dist::Rng;
use super::gates::{Gate, lock};
use super::model::{Op, OpClass, OpKind, ThreadSpec};
use super::priority;
use super::run::{Ended, Live, RunError, ThreadState, Totals};
use failure::Failure;
use slots::{Rotation, Slot};
use waiting::Limit;

/// How a flowop came out.
enum Flow {
    Next,
    /// The run is over.
    Stop,
    /// There is no file for it in this fileset.
    NoFile(usize, &'static str),
}

type Result<T> = std::result::Result<T, RunError>;

/// A thread of a script.
pub(super) struct Worker<'a> {
    live: &'a Arc<Live>,
    state: &'a ThreadState,
    place: (usize, usize),
    totals: Arc<Totals>,
    pool: Arc<Pool>,
    gates: HashMap<usize, Arc<Gate>>,
    /// Whom posts and wake-ups reach, by their counter; found at the first.
    reached: HashMap<usize, Vec<Arc<Gate>>>,
    rng: Rng,
    slots: Vec<Slot>,
    rotations: HashMap<usize, Rotation>,
    /// The fileset whose own slot was used last: meant by flowops that name neither slot nor fileset.
    last: Option<usize>,
    limits: HashMap<usize, Limit>,
    memory: Option<Aligned>,
    spare: Option<Aligned>,
    outstanding: Arc<Outstanding>,
    path: PathBuf,
}

impl<'a> Worker<'a> {
    #[expect(clippy::too_many_arguments)]
    pub(super) fn new(
        live: &'a Arc<Live>,
        state: &'a ThreadState,
        place: (usize, usize),
        totals: Arc<Totals>,
        pool: Arc<Pool>,
        gates: HashMap<usize, Arc<Gate>>,
        seed: u64,
        stream: u64,
    ) -> Self {
        Self {
            live,
            state,
            place,
            totals,
            pool,
            gates,
            reached: HashMap::new(),
            // Apart from the streams that made the filesets.
            rng: Rng::new(seed, stream | 1 << 32),
            slots: Vec::new(),
            rotations: HashMap::new(),
            last: None,
            limits: HashMap::new(),
            memory: None,
            spare: None,
            outstanding: Arc::default(),
            path: PathBuf::new(),
        }
    }

    /// Until the run ends; with the flowop that had no file, where one had none.
    pub(super) fn run(&mut self) -> Result<Option<(String, RunError)>> {
        let model = self.live.model.clone();
        let process = &model.processes[self.place.0];
        let thread = &process.threads[self.place.1];
        priority::set(process.nice, thread.ioprio).map_err(|source| RunError::Spawn {
            thread: format!("{}/{} with its priority", process.name, thread.name),
            source,
        })?;
        while !self.live.stop.is_set() {
            if let Err(stopped) = self.list(thread, &thread.ops)? {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// One turn of a list of flowops. `Err` inside: the thread is at its end.
    fn list(
        &mut self,
        thread: &ThreadSpec,
        ops: &[Op],
    ) -> Result<std::result::Result<(), Option<(String, RunError)>>> {
        for op in ops {
            for _ in 0..op.iters.draw(&mut self.rng) {
                if self.live.stop.is_set() {
                    return Ok(Err(None));
                }
                if op.kind == OpKind::Composite {
                    if let Err(stopped) = self.list(thread, &op.inner)? {
                        return Ok(Err(stopped));
                    }
                    continue;
                }
                self.state.doing.store(op.slot + 1, Ordering::Relaxed);
                let flow = self.op(op);
                self.state.doing.store(0, Ordering::Relaxed);
                let name = || thread.counters[op.slot].name.clone();
                match flow.map_err(|failure| failure.of(name(), op))? {
                    Flow::Next => {}
                    Flow::Stop => return Ok(Err(None)),
                    Flow::NoFile(set, why) => {
                        let fileset = self.live.sets[set].spec.name.clone();
                        return Ok(Err(Some((name(), RunError::NoFile { flowop: name(), fileset, why }))));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    fn op(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        match op.kind {
            OpKind::OpenFile => {
                let id = self.slot_id(op);
                self.open(op, id)
            }
            OpKind::CreateFile => self.create(op),
            OpKind::CloseFile => self.close(op),
            OpKind::DeleteFile => self.delete(op),
            OpKind::StatFile => self.stat(op),
            OpKind::Fsync => self.fsync(op),
            OpKind::FsyncSet => self.fsync_set(op),
            OpKind::ReadWholeFile => self.read_whole(op),
            OpKind::WriteWholeFile => self.write_whole(op),
            OpKind::AppendFile | OpKind::AppendFileRand => self.append(op),
            OpKind::Read => self.read(op),
            OpKind::Write => self.write(op),
            OpKind::AioWrite => self.aio_write(op),
            OpKind::AioWait => self.aio_wait(op),
            OpKind::MakeDir => self.make_dir(op),
            OpKind::RemoveDir => self.remove_dir(op),
            OpKind::ListDir => self.list_dir(op),
            OpKind::Hog => {
                let (value, start) = (op.value.draw(&mut self.rng), Instant::now());
                let mut byte = 0u8;
                for i in 0..value {
                    // A store that stays, as the original's to its memory.
                    *black_box(&mut byte) = 1;
                    if i % (1 << 22) == 0 && self.live.stop.is_set() {
                        break;
                    }
                }
                Ok(self.count(op, start, 0))
            }
            OpKind::Delay => {
                let (seconds, start) = (op.value.draw(&mut self.rng), Instant::now());
                let slept = self.live.events.sleep(Duration::from_secs(seconds), &self.live.stop);
                Ok(self.count_if(slept, op, start))
            }
            OpKind::SemBlock | OpKind::Block => {
                let (value, start) = (op.value.draw(&mut self.rng), Instant::now());
                let gate = &self.gates[&op.slot];
                let passed = match op.kind {
                    OpKind::Block => gate.sleep(&self.live.stop),
                    _ => gate.block(value, &self.live.stop),
                };
                Ok(self.count_if(passed, op, start))
            }
            OpKind::SemPost | OpKind::Wakeup => self.reach(op),
            OpKind::EventLimit => {
                if self.live.model.event_rate == 0 {
                    return Ok(Flow::Next);
                }
                let start = Instant::now();
                let passed = self.live.events.take(1, &self.live.stop);
                Ok(self.count_if(passed, op, start))
            }
            OpKind::IopsLimit | OpKind::OpsLimit | OpKind::BwLimit => Ok(self.limit(op)),
            OpKind::FinishOnCount | OpKind::FinishOnBytes => Ok(self.finish(op)),
            OpKind::Print => {
                let start = Instant::now();
                let process = &self.live.model.processes[self.place.0];
                let text = if op.text.is_empty() {
                    op.value.draw(&mut self.rng).to_string()
                } else {
                    op.text.to_string()
                };
                self.live.say(format!("{}/{}: {text}", process.name, process.threads[self.place.1].name));
                Ok(self.count(op, start, 0))
            }
            OpKind::TestRandVar => {
                let value = op.value.draw_f64(&mut self.rng);
                let stats = &mut lock(&self.state.counters)[op.slot];
                stats.count += 1;
                stats.sum += value;
                stats.squares += value * value;
                Ok(Flow::Next)
            }
            OpKind::Composite => Ok(Flow::Next),
        }
    }

    // ---- counting

    /// Counts a flowop that began at `start`; not when the run was over before it was done.
    fn count(&self, op: &Op, start: Instant, bytes: u64) -> Flow {
        let took = start.elapsed();
        if self.live.stop.is_set() {
            return Flow::Stop;
        }
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let counts = {
            let stats = &mut lock(&self.state.counters)[op.slot];
            stats.count += 1;
            stats.bytes += bytes;
            stats.latency.record(ns);
            if self.live.model.histogram {
                let power = (64 - ns.leading_zeros()).min(63) as usize;
                stats.powers.get_or_insert_with(|| Box::new([0; 64]))[power] += 1;
            }
            !self.state.warming.load(Ordering::Acquire)
        };
        if matches!(op.kind.class(), OpClass::Io | OpClass::Aio) {
            self.totals.ops.fetch_add(1, Ordering::Relaxed);
            if op.kind.reads() || op.kind.writes() {
                self.totals.rw_ops.fetch_add(1, Ordering::Relaxed);
                self.totals.rw_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            if !counts {
                return Flow::Next;
            }
            self.totals.counted_ops.fetch_add(1, Ordering::Relaxed);
            self.totals.counted_bytes.fetch_add(bytes, Ordering::Relaxed);
            if let Some(left) = &self.live.ops_left
                && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) == Ok(1)
            {
                self.live.end(Ok(Ended::Ops));
                return Flow::Stop;
            }
        }
        Flow::Next
    }

    fn count_if(&self, passed: bool, op: &Op, start: Instant) -> Flow {
        if passed { self.count(op, start, 0) } else { Flow::Stop }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.outstanding.end();
    }
}
