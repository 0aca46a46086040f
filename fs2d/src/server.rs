//! The one place where the machine meets the world: real requests, real I/O, real time.
//!
//! Invariants:
//!
//! - S1: the volume changes only under the one lock; no I/O is done and no client called under it.
//! - S2: at most `depth` I/Os are at the device; `poll_dispatch` is called only while there are fewer.
//! - S3: a request's buffer is in its slot, or with the thread that does its I/O, never both.
//! - S4: every request is answered once, also when the machine is shutting down.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs2_block::{ConnectionId, Extent, Nanos, Op, Request, RequestId};
use fs2_engine::{DetachReport, Io, IoData, IoOp, Outcome, Target, Volume};
use fs2_store::{AlignedBuf, Store, Stretch};
use fs2_trace::{Record, RecordFlags};

use crate::service::{ClientRequest, Completion, Errno, ExportInfo, Service};

/// How the machine is driven.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// I/Os at the device at a time, at least 1.
    pub depth: usize,
    /// Real seconds to one of the engine's: 1 unless a drive is modelled faster than real time.
    pub time_scale: f64,
    /// Copying stops while the host has less of its space free, in permille (sparse backings).
    pub host_reserve: u16,
}

struct Client {
    request: Request,
    buffer: Option<AlignedBuf>,
    done: Completion,
    arrived: Nanos,
}

struct Core {
    volume: Volume,
    clients: HashMap<RequestId, Client>,
    next_request: u64,
    at_device: usize,
    stopping: bool,
    trace: Option<mpsc::SyncSender<Record>>,
    trace_lost: u64,
}

/// A served volume.
pub struct Server {
    core: Mutex<Core>,
    /// Something may be dispatched, or it is time to look.
    work: Condvar,
    store: Arc<dyn Store>,
    table: Option<Arc<dyn Store>>,
    drive: Drive,
    start: Instant,
    connections: AtomicU32,
    info: ExportInfo,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// A worker looks after so long at the latest, whatever the machine says.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

impl Server {
    /// Serves `volume` from `store` (and its table from `table`, where that lives apart).
    pub fn start(
        volume: Volume,
        store: Arc<dyn Store>,
        table: Option<Arc<dyn Store>>,
        drive: Drive,
        description: String,
    ) -> Arc<Server> {
        let info = ExportInfo {
            size_bytes: volume.size_bytes(),
            block_bytes: volume.block_size().bytes(),
            rotational: store.rotational(),
            description,
        };
        let core = Core {
            volume,
            clients: HashMap::new(),
            next_request: 0,
            at_device: 0,
            stopping: false,
            trace: None,
            trace_lost: 0,
        };
        let server = Arc::new(Server {
            core: Mutex::new(core),
            work: Condvar::new(),
            store,
            table,
            drive,
            start: Instant::now(),
            connections: AtomicU32::new(0),
            info,
            workers: Mutex::default(),
        });
        let workers = (0..drive.depth)
            .map(|n| {
                let server = server.clone();
                std::thread::Builder::new()
                    .name(format!("io-{n}"))
                    .spawn(move || server.work())
                    .expect("a thread can be started at start-up")
            })
            .collect();
        *server.workers.lock().unwrap_or_else(PoisonError::into_inner) = workers;
        server
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic under the lock is a broken invariant: nothing may go on.
        self.core.lock().unwrap_or_else(|_| std::process::abort())
    }

    /// The engine's time.
    pub fn now(&self) -> Nanos {
        Nanos((self.start.elapsed().as_nanos() as f64 / self.drive.time_scale) as u64)
    }

    /// Looks at the volume.
    pub fn with_volume<T>(&self, look: impl FnOnce(&Volume) -> T) -> T {
        look(&self.lock().volume)
    }

    /// The backing.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Sends a record of every access from now on; `None` ends it. Records that the receiver is too
    /// slow for are counted and left out: clients never wait for a trace. Returns how many were lost.
    pub fn trace_to(&self, sender: Option<mpsc::SyncSender<Record>>) -> u64 {
        let mut core = self.lock();
        core.trace = sender;
        std::mem::take(&mut core.trace_lost)
    }

    fn work(&self) {
        let mut core = self.lock();
        loop {
            core = self.run(core, None);
            if core.stopping {
                return;
            }
            let wait = match core.volume.poll_timeout() {
                Some(at) => {
                    let model = at.since(self.now()).0 as f64 * self.drive.time_scale;
                    Duration::from_nanos(model as u64 + 1).min(LOOK_AT_LEAST_EVERY)
                }
                None => LOOK_AT_LEAST_EVERY,
            };
            core = self.work.wait_timeout(core, wait).unwrap_or_else(|_| std::process::abort()).0;
            if core.at_device == 0 {
                let now = self.now();
                core.volume.handle_timeout(now);
            }
        }
    }

    /// Runs whatever is ready, until nothing is, or until `mine` was answered: then others go on, or a
    /// client under load would wait for everyone else's I/O.
    fn run<'a>(&'a self, mut core: MutexGuard<'a, Core>, mine: Option<&AtomicBool>) -> MutexGuard<'a, Core> {
        loop {
            core = self.answer(core);
            if mine.is_some_and(|m| m.load(Ordering::Acquire)) {
                return core;
            }
            let now = self.now();
            if core.at_device >= self.drive.depth {
                return core;
            }
            let Some(io) = core.volume.poll_dispatch(now) else {
                // A dispatch that needs no I/O answers at once.
                return self.answer(core);
            };
            core.at_device += 1;
            let taken = match io.data {
                IoData::Client(id) => core.clients.get_mut(&id).and_then(|c| c.buffer.take()),
                _ => None,
            };
            drop(core);
            let mut buffer = taken.unwrap_or_else(|| match (&io.op, &io.data) {
                (IoOp::Read, IoData::None) => AlignedBuf::zeroed(io.extent.len() as usize),
                _ => AlignedBuf::zeroed(0),
            });
            let result = self.perform(&io, &mut buffer);
            core = self.lock();
            core.at_device -= 1;
            self.complete(&mut core, now, &io, buffer, result);
            if core.at_device == 0 || core.volume.is_detaching() {
                self.work.notify_all();
            }
        }
    }

    fn complete(
        &self,
        core: &mut Core,
        dispatched: Nanos,
        io: &Io,
        buffer: AlignedBuf,
        result: Result<(), i32>,
    ) {
        let now = self.now();
        if core.trace.is_some() {
            self.trace(core, dispatched, now, io, result);
        }
        let data = if io.op == IoOp::Read && result.is_ok() { &buffer[..] } else { &[] };
        core.volume.complete(now, io.id, Outcome { result, data });
        if let IoData::Client(id) = io.data
            && let Some(client) = core.clients.get_mut(&id)
        {
            client.buffer = Some(buffer);
        }
    }

    fn trace(&self, core: &mut Core, dispatched: Nanos, now: Nanos, io: &Io, result: Result<(), i32>) {
        let op = match io.op {
            IoOp::Read => Op::Read,
            IoOp::Write { .. } => Op::Write,
            IoOp::WriteZeroes { .. } => Op::WriteZeroes,
            IoOp::Discard => Op::Discard,
            IoOp::Flush => Op::Flush,
        };
        if io.target == Target::Table {
            return;
        }
        let mut record = Record::new(dispatched, op, io.extent);
        record.service = Some(now.since(dispatched));
        match io.data {
            IoData::Client(id) => {
                if let Some(c) = core.clients.get(&id) {
                    record.at = c.arrived;
                    record.extent = c.request.extent;
                    record.source = c.request.connection.0 as u16;
                    if c.request.extent != io.extent {
                        record.flags = record.flags.with(RecordFlags::REPLICA);
                    }
                }
            }
            _ if op == Op::Write => record.flags = record.flags.with(RecordFlags::COPY),
            _ if op == Op::Read => record.flags = record.flags.with(RecordFlags::HASH),
            _ => {}
        }
        if result.is_err() {
            record.flags = record.flags.with(RecordFlags::FAILED);
        }
        if let Some(sender) = &core.trace
            && sender.try_send(record).is_err()
        {
            core.trace_lost += 1;
        }
    }

    fn perform(&self, io: &Io, buffer: &mut AlignedBuf) -> Result<(), i32> {
        let store: &dyn Store = match (&io.target, &self.table) {
            (Target::Table, Some(table)) => &**table,
            _ => &*self.store,
        };
        let (at, len) = (io.extent.offset(), io.extent.len());
        let done = match io.op {
            IoOp::Read => store.read_at(at, buffer),
            IoOp::Write { fua } => match &io.data {
                IoData::Engine(bytes) => store.write_at(at, bytes, fua),
                _ => store.write_at(at, buffer, fua),
            },
            IoOp::WriteZeroes { no_hole, fua } => {
                store.write_zeroes(at, len, no_hole).and_then(|()| if fua { store.flush() } else { Ok(()) })
            }
            IoOp::Discard => store.discard(at, len),
            IoOp::Flush => store.flush(),
        };
        done.map_err(|e| {
            tracing::warn!("{:?} of {} failed below: {e}", io.op, io.extent);
            e.raw_os_error().unwrap_or(fs2_engine::EIO)
        })
    }

    /// Hands answers to their clients, outside the lock.
    fn answer<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        loop {
            let mut answers = Vec::new();
            while let Some(reply) = core.volume.poll_reply() {
                if let Some(client) = core.clients.remove(&reply.request) {
                    let buffer = client.buffer.unwrap_or_else(|| AlignedBuf::zeroed(0));
                    answers.push((client.done, buffer, reply.result.map_err(Errno)));
                }
            }
            if answers.is_empty() {
                return core;
            }
            drop(core);
            for (done, buffer, result) in answers {
                done(buffer, result);
            }
            core = self.lock();
        }
    }

    fn take<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        request: ClientRequest,
        done: Completion,
    ) -> MutexGuard<'a, Core> {
        let id = RequestId(core.next_request);
        core.next_request += 1;
        let ClientRequest { connection, op, extent, flags, buffer } = request;
        let request = Request { id, connection, op, extent, flags };
        let wanted = if matches!(op, Op::Read | Op::Write) { extent.len() } else { 0 };
        if core.stopping || buffer.len() as u64 != wanted {
            drop(core);
            done(buffer, Err(Errno(if wanted == 0 { libc::ESHUTDOWN } else { libc::EINVAL })));
            return self.lock();
        }
        let now = self.now();
        let payload = (op == Op::Write).then_some(&buffer[..]);
        core.volume.submit(now, request, payload);
        core.clients.insert(id, Client { request, buffer: Some(buffer), done, arrived: now });
        core
    }

    /// Copies stop while a sparse backing's host is short of space. Call now and then.
    pub fn look_at_host(&self) {
        if let Some((free, total)) = self.store.host_space() {
            let short = u128::from(free) * 1000 < u128::from(total) * u128::from(self.drive.host_reserve);
            self.lock().volume.host_is_short(short);
        }
    }

    /// Ends the session: what was taken is answered, the table written, the mark set where that is
    /// allowed. Frontends have stopped before; later requests are refused.
    pub fn detach(&self) -> DetachReport {
        let mut core = self.lock();
        let now = self.now();
        core.volume.begin_detach(now);
        let report = loop {
            core = self.run(core, None);
            if let Some(report) = core.volume.detached() {
                break report;
            }
            core = self
                .work
                .wait_timeout(core, Duration::from_millis(50))
                .unwrap_or_else(|_| std::process::abort())
                .0;
        };
        core.stopping = true;
        core.trace = None;
        drop(core);
        self.work.notify_all();
        for worker in std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner)) {
            if worker.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        report
    }
}

impl Service for Server {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    fn connect(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    fn disconnect(&self, connection: ConnectionId) {
        self.lock().volume.connection_gone(connection);
    }

    fn submit(&self, request: ClientRequest, done: Completion) {
        let core = self.take(self.lock(), request, done);
        drop(self.answer(core));
        self.work.notify_one();
    }

    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno> {
        let store = &self.store;
        store
            .stretches(extent.offset(), extent.len(), limit)
            .map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn call(&self, request: ClientRequest) -> (AlignedBuf, Result<(), Errno>) {
        type Slot = (Mutex<Option<(AlignedBuf, Result<(), Errno>)>>, Condvar);
        let slot: Arc<Slot> = Arc::default();
        let answered = Arc::new(AtomicBool::new(false));
        let (theirs, told) = (slot.clone(), answered.clone());
        let done: Completion = Box::new(move |buffer, result| {
            *theirs.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((buffer, result));
            told.store(true, Ordering::Release);
            theirs.1.notify_one();
        });
        // The thread that brings a request runs the machine; what it cannot run, others do.
        let core = self.take(self.lock(), request, done);
        let core = self.run(core, Some(&answered));
        let more = core.at_device < self.drive.depth && !core.clients.is_empty();
        drop(core);
        if more {
            self.work.notify_one();
        }
        let mut guard = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match guard.take() {
                Some(answer) => return answer,
                None => guard = slot.1.wait(guard).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
