//! The one place where the machine meets the world: real requests, real I/O, real time.
//!
//! Invariants:
//!
//! - S1: the volume changes only under the one lock; no I/O is done and no client called under it.
//! - S2: at most `depth` I/Os are dispatched and not completed; `poll_dispatch` is called only while there are fewer.
//! - S3: a request's buffer, or the pipe its payload came in, is in its slot, or with the thread that does its I/O, never both.
//! - S4: every request is answered once, also when the machine is shutting down.
//! - S5: whoever leaves the machine has tried to dispatch after its last change: nothing that may start is left
//!   to nobody. What a thread dispatches and does not do itself it hands to a worker.
//! - S6: some worker wakes when `poll_timeout` says so, at the latest one `LOOK_AT_LEAST_EVERY` later.

mod begin;
mod lane;
mod pages;
mod slab;
mod trace;
mod waiter;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs2_block::{ConnectionId, Extent, Nanos, Op, Request};
use fs2_engine::{DetachReport, Io, IoData, IoOp, Outcome, Target, Volume};
use fs2_store::{AlignedBuf, Pipe, Store, Stretch};
use fs2_trace::{Record, RecordFlags};

use crate::seldom::Seldom;
use crate::service::{ClientRequest, Completion, Errno, ExportInfo, Lane, Service, Sink};
use crate::wakeups::Wakeups;
use slab::Slab;
pub(crate) use trace::parts;
pub use trace::{TraceRing, TraceTap};
use waiter::{CALL, CallSlot, Owed, Waiter};

/// How the machine is driven.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// I/Os at the device at a time, at least 1.
    pub depth: usize,
    /// Real seconds to one of the engine's: 1 unless a drive is modelled faster than real time.
    pub time_scale: f64,
    /// Copying stops while the host has less of its space free, in permille (sparse backings).
    pub host_reserve: u16,
    /// Whether the device turns: then workers feed it, as many as its depth, and what goes next is chosen when one of its
    /// places is free, not when a request arrives.
    pub rotational: bool,
}

struct Client {
    request: Request,
    buffer: Option<AlignedBuf>,
    waiter: Waiter,
    arrived: Nanos,
}

impl Client {
    /// The payload that came in a pipe.
    fn take_pipe(&mut self) -> Option<Pipe> {
        match &mut self.waiter {
            Waiter::Sink(_, _, pipe) => pipe.take(),
            _ => None,
        }
    }
}

/// An I/O that was dispatched, and its memory.
struct Job {
    io: Io,
    buffer: AlignedBuf,
    dispatched: Nanos,
    /// What a read brought, or a write's payload, where it is not in the buffer.
    lent: Option<Pipe>,
}

struct Core {
    volume: Volume,
    clients: Slab<Client>,
    at_device: usize,
    /// Dispatched by threads that have better to do than wait for a device.
    handed: VecDeque<Job>,
    /// Threads that wait on `work`.
    idle: usize,
    /// When one of them wakes of its own.
    wakes_at: Nanos,
    stopping: bool,
    trace: Option<TraceTap>,
}

/// Alone on its cache lines (two: a processor fetches them in pairs).
#[repr(align(128))]
struct Alone<T>(T);

/// A served volume.
pub struct Server {
    /// Every thread writes the lock's word with every batch; what lies beside it, they only read.
    core: Alone<Mutex<Core>>,
    /// Something may be dispatched, or it is time to look.
    work: Condvar,
    store: Arc<dyn Store>,
    table: Option<Arc<dyn Store>>,
    drive: Drive,
    /// Whether I/O is tried from memory by the thread that dispatched it.
    tries: bool,
    /// Whether what is read may be lent to clients, and not copied.
    lends: bool,
    /// Whether what is written may come in pipes.
    takes_pipes: bool,
    start: Instant,
    connections: AtomicU32,
    clients_cut: AtomicU64,
    wakeups: OnceLock<Wakeups>,
    on_lost: OnceLock<Box<dyn Fn() + Send + Sync>>,
    failures: Seldom,
    info: ExportInfo,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// A worker looks after so long at the latest, whatever the machine says.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// Workers at most: what is done from memory or by a lane's own ring needs none.
pub(crate) const WORKERS_MAX: usize = 16;

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
            rotational: drive.rotational,
            description,
        };
        let core = Core {
            volume,
            clients: Slab::new(),
            at_device: 0,
            handed: VecDeque::new(),
            idle: 0,
            wakes_at: NEVER,
            stopping: false,
            trace: None,
        };
        let server = Arc::new(Server {
            core: Alone(Mutex::new(core)),
            work: Condvar::new(),
            tries: store.tries() && !drive.rotational,
            lends: store.lends() && !drive.rotational,
            takes_pipes: store.tries() && !drive.rotational,
            store,
            table,
            drive,
            start: Instant::now(),
            connections: AtomicU32::new(0),
            clients_cut: AtomicU64::new(0),
            wakeups: OnceLock::new(),
            on_lost: OnceLock::new(),
            failures: Seldom::default(),
            info,
            workers: Mutex::default(),
        });
        let workers = (0..drive.depth.min(WORKERS_MAX))
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
        self.core.0.lock().unwrap_or_else(|_| std::process::abort())
    }

    /// The engine's time.
    pub fn now(&self) -> Nanos {
        let real = self.start.elapsed().as_nanos() as u64;
        if self.drive.time_scale == 1.0 {
            Nanos(real)
        } else {
            Nanos((real as f64 / self.drive.time_scale) as u64)
        }
    }

    /// Clients that frontends sent away because they held memory and did nothing.
    pub fn clients_cut(&self) -> u64 {
        self.clients_cut.load(Ordering::Relaxed)
    }

    /// Whom frontends tell of their turns, from now on; the first call counts. Nobody is told where the device turns: it takes
    /// longer than any wake-up.
    pub fn tell_of_turns(&self, wakeups: Wakeups) {
        if !self.drive.rotational {
            let _ = self.wakeups.set(wakeups);
        }
    }

    /// Calls `tell` whenever an I/O failed and a flush has failed by then, before anybody is answered; the first call counts.
    pub fn tell_of_lost_writes(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_lost.set(Box::new(tell));
    }

    /// Looks at the volume.
    pub fn with_volume<T>(&self, look: impl FnOnce(&Volume) -> T) -> T {
        look(&self.lock().volume)
    }

    /// The backing.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Puts a record of every access into `tap` from now on; `None` ends it. Clients never wait for a trace.
    pub fn trace_to(&self, tap: Option<TraceTap>) {
        self.lock().trace = tap;
    }

    /// What a worker does.
    fn work(&self) {
        let mut core = self.lock();
        loop {
            core = self.run(core, None);
            if core.stopping {
                return;
            }
            core = self.rest(core);
            if core.at_device == 0 {
                let now = self.now();
                core.volume.handle_timeout(now);
            }
        }
    }

    /// Waits for work, or until it is time to look, unless another worker waits for that already (S6).
    fn rest<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        // Keeps S5: whoever handed something over while nobody was idle has woken nobody.
        debug_assert!(core.handed.is_empty(), "{} handed over, and a worker rests", core.handed.len());
        let now = self.now();
        let look = now + self.engine_time(LOOK_AT_LEAST_EVERY);
        let at = match core.volume.poll_timeout() {
            Some(at) => at.min(look),
            // Requests are under way. Who ends the last of them does not tell.
            None if core.at_device > 0 => look.min(now + core.volume.config().idle_after),
            None => look,
        };
        core.idle += 1;
        let first = core.wakes_at > at || core.wakes_at <= now;
        if first {
            core.wakes_at = at;
            let real = Duration::from_nanos((at.since(now).0 as f64 * self.drive.time_scale) as u64 + 1);
            core = self.work.wait_timeout(core, real).unwrap_or_else(|_| std::process::abort()).0;
            if core.wakes_at == at {
                core.wakes_at = NEVER;
            }
        } else {
            core = self.work.wait(core).unwrap_or_else(|_| std::process::abort());
        }
        core.idle -= 1;
        core
    }

    fn engine_time(&self, real: Duration) -> Nanos {
        Nanos((real.as_nanos() as f64 / self.drive.time_scale) as u64)
    }

    /// Wakes a worker, where one rests.
    fn wake(&self, core: &Core) {
        // Nobody waits: a system call for nothing.
        if core.idle > 0 {
            self.work.notify_one();
        }
    }

    /// Leaves to a worker what was dispatched.
    fn hand(&self, core: &mut Core, job: Job) {
        core.handed.push_back(job);
        self.wake(core);
    }

    /// Leaves to workers what there is room for at the device: each does one I/O at a time.
    fn fill(&self, core: &mut Core, now: Nanos) {
        while let Some(job) = self.dispatch(core, now) {
            self.hand(core, job);
        }
    }

    /// Keeps S6 when the last I/O has ended: idle time begins now, and nobody may be waiting for its end.
    fn calm(&self, core: &Core) {
        if core.volume.is_detaching() {
            self.work.notify_all();
        } else if core.at_device == 0
            && core.idle > 0
            && core.volume.poll_timeout().is_some_and(|at| at < core.wakes_at)
        {
            self.work.notify_one();
        }
    }

    /// Runs whatever is ready, until nothing is, or until `mine` was answered: then others go on, or a
    /// client under load would wait for everyone else's I/O.
    fn run<'a>(&'a self, mut core: MutexGuard<'a, Core>, mine: Option<&CallSlot>) -> MutexGuard<'a, Core> {
        loop {
            core = self.answer(core);
            let answered = mine.is_some_and(|m| m.answered.load(Ordering::Acquire));
            let job = match core.handed.pop_front() {
                // Who wants to go home leaves it to whom it was handed.
                Some(job) if answered => {
                    core.handed.push_front(job);
                    None
                }
                Some(job) => Some(job),
                None => self.dispatch(&mut core, self.now()),
            };
            let Some(mut job) = job else {
                // A dispatch that needs no I/O answers at once. What others bring meanwhile is looked for again (S5).
                let Some(first) = self.next_answer(&mut core) else { return core };
                core = self.tell(first, core);
                continue;
            };
            if answered {
                // Keeps S5.
                self.hand(&mut core, job);
                self.fill(&mut core, self.now());
                return self.answer(core);
            }
            self.fill(&mut core, self.now());
            drop(core);
            let result = self.perform(&mut job);
            core = self.lock();
            self.complete(&mut core, self.now(), job, result);
            self.calm(&core);
        }
    }

    /// The next I/O, with its memory; `None` where nothing may start.
    fn dispatch(&self, core: &mut Core, dispatched: Nanos) -> Option<Job> {
        if core.at_device >= self.drive.depth {
            return None;
        }
        let io = core.volume.poll_dispatch(dispatched)?;
        core.at_device += 1;
        let (buffer, lent) = match (&io.op, &io.data) {
            (_, IoData::Client(id)) => {
                core.clients.get_mut(*id).map_or((None, None), |c| (c.buffer.take(), c.take_pipe()))
            }
            (IoOp::Read, IoData::None | IoData::Around { .. }) => {
                (Some(AlignedBuf::zeroed(io.extent.len() as usize)), None)
            }
            _ => (None, None),
        };
        Some(Job { io, buffer: buffer.unwrap_or_else(|| AlignedBuf::zeroed(0)), dispatched, lent })
    }

    /// An I/O ended: tells the machine and puts the memory back.
    fn complete(&self, core: &mut Core, now: Nanos, job: Job, result: Result<(), i32>) {
        let Job { io, buffer, dispatched, lent } = job;
        core.at_device -= 1;
        if core.trace.is_some() {
            self.trace(core, dispatched, now, &io, result);
        }
        // The client sees it once the machine has found it good.
        if let IoData::Around { request, .. } = io.data
            && result.is_ok()
            && let Some(own) = core.clients.get_mut(request).and_then(|c| c.buffer.as_mut())
        {
            let len = own.len();
            own.copy_from_slice(io.data.asked_of(&buffer, len));
        }
        if lent.is_some() && io.op == IoOp::Read {
            core.volume.complete_unread(now, io.id);
        } else {
            let data = if io.op == IoOp::Read && result.is_ok() { &buffer[..] } else { &[] };
            core.volume.complete(now, io.id, Outcome { result, data });
        }
        if result.is_err()
            && core.volume.has_lost_writes()
            && let Some(tell) = self.on_lost.get()
        {
            tell();
        }
        if let IoData::Client(id) = io.data
            && let Some(client) = core.clients.get_mut(id)
        {
            client.buffer = Some(buffer);
            if let Waiter::Sink(_, _, pipe) = &mut client.waiter {
                *pipe = lent;
            }
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
        match io.data.request() {
            Some(id) => {
                if let Some(c) = core.clients.get(id) {
                    record.at = c.arrived;
                    record.extent = c.request.extent;
                    record.source = c.request.connection.0 as u16;
                    if c.request.extent != io.extent {
                        record.flags = record.flags.with(RecordFlags::REPLICA);
                        // Where it took place, for those who want to know where the head went.
                        let mut place = Record::new(dispatched, op, io.extent);
                        place.service = record.service;
                        place.flags = RecordFlags::REPLICA.with(RecordFlags::COPY);
                        if let Some(tap) = &mut core.trace {
                            tap.push(place);
                        }
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
        if let Some(tap) = &mut core.trace {
            tap.push(record);
        }
    }

    fn perform(&self, job: &mut Job) -> Result<(), i32> {
        let Job { io, buffer, lent, .. } = job;
        let store: &dyn Store = match (&io.target, &self.table) {
            (Target::Table, Some(table)) => &**table,
            _ => &*self.store,
        };
        let (at, len) = (io.extent.offset(), io.extent.len());
        let done = match io.op {
            IoOp::Read => store.read_at(at, buffer),
            IoOp::Write { fua } => match &io.data {
                IoData::Engine(bytes) => store.write_at(at, bytes, fua),
                _ => match lent {
                    Some(pipe) => store.write_pipe(at, pipe),
                    None => store.write_at(at, buffer, fua),
                },
            },
            IoOp::WriteZeroes { no_hole, fua } => {
                store.write_zeroes(at, len, no_hole).and_then(|()| if fua { store.flush() } else { Ok(()) })
            }
            IoOp::Discard => store.discard(at, len),
            IoOp::Flush => store.flush(),
        };
        done.map_err(|e| self.failed_below(io, &e))
    }

    /// The error as the machine wants it. All are counted ([`Volume::stats`]); of many the log has some.
    fn failed_below(&self, io: &Io, e: &std::io::Error) -> i32 {
        let line = |more: &str| tracing::warn!("{:?} of {} failed below: {e}{more}", io.op, io.extent);
        match io.op {
            // The last that matters: from then on changes are refused.
            IoOp::Flush => line(""),
            _ => self.failures.line(line),
        }
        e.raw_os_error().unwrap_or(fs2_engine::EIO)
    }

    /// Does an I/O from memory; `None` where a device would have to be waited for.
    fn try_now(&self, job: &mut Job) -> Option<Result<(), i32>> {
        let Job { io, buffer, lent, .. } = job;
        if !self.tries || io.target != Target::Volume {
            return None;
        }
        let at = io.extent.offset();
        let done = match (io.op, &io.data) {
            (IoOp::Read, _) => self.store.try_read(at, buffer),
            (IoOp::Write { fua: false }, IoData::Engine(bytes)) => self.store.try_write(at, bytes),
            (IoOp::Write { fua: false }, _) => match lent {
                Some(pipe) => self.store.write_pipe(at, pipe).map(|()| true),
                None => self.store.try_write(at, buffer),
            },
            _ => return None,
        };
        match done {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(e) => Some(Err(self.failed_below(io, &e))),
        }
    }

    /// Hands answers to their clients, outside the lock.
    fn answer<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        while let Some(first) = self.next_answer(&mut core) {
            core = self.tell(first, core);
        }
        core
    }

    /// The same from `first` on, once.
    fn tell<'a>(&'a self, first: Owed, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        let owed = self.with_more(first, &mut core);
        drop(core);
        owed.for_each(|(waiter, buffer, result)| waiter.answer(buffer, result));
        self.lock()
    }

    /// All answers after `first`, which mostly is the only one: then nothing is allocated.
    fn with_more(&self, first: Owed, core: &mut Core) -> impl Iterator<Item = Owed> + use<> {
        let mut more = Vec::new();
        while let Some(answer) = self.next_answer(core) {
            more.push(answer);
        }
        std::iter::once(first).chain(more)
    }

    fn next_answer(&self, core: &mut Core) -> Option<Owed> {
        loop {
            let reply = core.volume.poll_reply()?;
            if let Some(client) = core.clients.remove(reply.request) {
                let buffer = client.buffer.unwrap_or_else(|| AlignedBuf::zeroed(0));
                return Some((client.waiter, buffer, reply.result.map_err(Errno)));
            }
        }
    }

    /// A request enters the machine; gives back one that is refused at the door.
    #[expect(clippy::result_large_err, reason = "what came in goes back by the same way")]
    fn take(
        &self,
        core: &mut Core,
        now: Nanos,
        request: ClientRequest,
        waiter: Waiter,
    ) -> Result<(), (Waiter, AlignedBuf, Errno)> {
        let ClientRequest { connection, op, extent, flags, buffer } = request;
        let wanted = if matches!(op, Op::Read | Op::Write) { extent.len() } else { 0 };
        let piped = match &waiter {
            Waiter::Sink(_, _, Some(pipe)) => Some(pipe.len()),
            _ => None,
        };
        let whole = match piped {
            Some(len) => op == Op::Write && len as u64 == wanted && self.may_pipe(core, extent) && !flags.fua,
            None => buffer.len() as u64 == wanted,
        };
        if core.stopping || !whole {
            let errno = if core.stopping { libc::ESHUTDOWN } else { libc::EINVAL };
            return Err((waiter, buffer, Errno(errno)));
        }
        let request = Request { id: core.clients.next_id(), connection, op, extent, flags };
        let payload = (op == Op::Write && piped.is_none()).then_some(&buffer[..]);
        core.volume.submit(now, request, payload);
        core.clients.insert(Client { request, buffer: Some(buffer), waiter, arrived: now });
        Ok(())
    }

    /// Copies stop while a sparse backing's host is short of space. Call now and then.
    pub fn look_at_host(&self) {
        if let Some((free, total)) = self.store.host_space() {
            let reserve = self.drive.host_reserve;
            let short = u128::from(free) * 1000 < u128::from(total) * u128::from(reserve);
            let volume = &mut self.lock().volume;
            if short && !volume.is_host_short() {
                let percent = f64::from(reserve) / 10.0;
                tracing::warn!(
                    "no copies: less than {percent} % of the file system that holds {} is free; make room there, or allow less: --host-reserve",
                    self.info.description
                );
            }
            volume.host_is_short(short);
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
            core.idle += 1;
            let wait = Duration::from_millis(50);
            core = self.work.wait_timeout(core, wait).unwrap_or_else(|_| std::process::abort()).0;
            core.idle -= 1;
        };
        self.end_workers(core);
        report
    }
}

impl Server {
    /// For a successor that goes on with this session: everything in flight ends, nothing new begins.
    /// Frontends have let their devices go before.
    pub fn suspend(&self) {
        let mut core = self.lock();
        let now = self.now();
        core.volume.begin_leaving(now);
        loop {
            core = self.run(core, None);
            if core.volume.has_left() && core.at_device == 0 {
                break;
            }
            core.idle += 1;
            let wait = Duration::from_millis(50);
            core = self.work.wait_timeout(core, wait).unwrap_or_else(|_| std::process::abort()).0;
            core.idle -= 1;
        }
        self.end_workers(core);
    }

    /// Connections are numbered from here on, as a predecessor would have gone on.
    pub fn number_connections_from(&self, next: ConnectionId) {
        self.connections.store(next.0, Ordering::Relaxed);
    }

    fn end_workers(&self, mut core: MutexGuard<'_, Core>) {
        core.stopping = true;
        core.trace = None;
        drop(core);
        self.work.notify_all();
        for worker in std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner)) {
            if worker.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
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

    fn client_cut(&self) {
        self.clients_cut.fetch_add(1, Ordering::Relaxed);
    }

    fn submit(&self, request: ClientRequest, done: Completion) {
        let mut core = self.lock();
        let now = self.now();
        match self.take(&mut core, now, request, Waiter::Completion(done)) {
            Ok(()) => {
                core = self.answer(core);
                self.wake(&core);
            }
            Err((waiter, buffer, errno)) => {
                drop(core);
                waiter.answer(buffer, Err(errno));
            }
        }
    }

    fn answers_from_memory(&self) -> bool {
        self.tries
    }

    fn wakeups(&self) -> Wakeups {
        self.wakeups.get().cloned().unwrap_or_default()
    }

    fn begin(&self, request: ClientRequest, done: Completion) {
        if !self.tries {
            return self.submit(request, done);
        }
        let mut core = self.lock();
        let now = self.now();
        match self.take(&mut core, now, request, Waiter::Completion(done)) {
            Ok(()) => self.run_from_memory(core, now),
            Err((waiter, buffer, errno)) => {
                drop(core);
                waiter.answer(buffer, Err(errno));
            }
        }
    }

    fn lane(self: Arc<Self>, sink: Arc<dyn Sink>) -> Option<Box<dyn Lane>> {
        Some(Box::new(lane::MachineLane::new(self, sink)))
    }

    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno> {
        let store = &self.store;
        store
            .stretches(extent.offset(), extent.len(), limit)
            .map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn call(&self, request: ClientRequest) -> (AlignedBuf, Result<(), Errno>) {
        let slot = CALL.with(Arc::clone);
        // The thread that brings a request runs the machine; what it cannot run, others do.
        let mut core = self.lock();
        let now = self.now();
        match self.take(&mut core, now, request, Waiter::Caller(slot.clone())) {
            Ok(()) => drop(self.run(core, Some(&slot))),
            Err((waiter, buffer, errno)) => {
                drop(core);
                waiter.answer(buffer, Err(errno));
            }
        }
        slot.wait()
    }
}

/// No worker wakes of its own.
const NEVER: Nanos = Nanos(u64::MAX);
