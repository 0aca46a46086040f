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

mod access;
mod begin;
mod ends;
mod lane;
mod lock;
mod pages;
mod requests;
mod slab;
mod trace;
mod waiter;
mod workers;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use fs2_block::{ConnectionId, Nanos, Request};
use fs2_engine::Volume;
use fs2_store::{AlignedBuf, Seldom, Store};

use crate::service::ExportInfo;
use crate::wakeups::Wakeups;
use access::Job;
use lock::Lock;
use slab::Slab;
pub(crate) use trace::parts;
pub use trace::{TraceRing, TraceTap};
use waiter::Waiter;

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

/// A served volume.
pub struct Server {
    core: Lock<Core>,
    /// Something may be dispatched, or it is time to look.
    work: Condvar,
    store: Arc<dyn Store>,
    table: Option<Arc<dyn Store>>,
    drive: Drive,
    /// Whether I/O is tried from memory by the thread that dispatched it.
    tries: bool,
    /// Whether what is read may be lent to clients, and not copied.
    lends: bool,
    start: Instant,
    connections: AtomicU32,
    clients_cut: AtomicU64,
    wakeups: OnceLock<Wakeups>,
    on_lost: OnceLock<Box<dyn Fn() + Send + Sync>>,
    failures: Seldom,
    info: ExportInfo,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// Workers at most: what is done from memory or by a lane's own ring needs none.
pub(crate) const WORKERS_MAX: usize = 16;

impl Server {
    /// Serves `volume` from `store` (and its table from `table`, where that lives apart).
    ///
    /// # Errors
    /// Where a thread cannot be started, as below a limit of memory or of processes; those that were have ended.
    pub fn start(
        volume: Volume,
        store: Arc<dyn Store>,
        table: Option<Arc<dyn Store>>,
        drive: Drive,
        description: String,
    ) -> io::Result<Arc<Server>> {
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
            core: Lock::new(core),
            work: Condvar::new(),
            tries: store.tries() && !drive.rotational,
            lends: store.lends() && !drive.rotational,
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
        for n in 0..drive.depth.min(WORKERS_MAX) {
            let worker = server.clone();
            let started = std::thread::Builder::new().name(format!("io-{n}")).spawn(move || worker.work());
            match started {
                Ok(thread) => server.workers.lock().unwrap_or_else(PoisonError::into_inner).push(thread),
                Err(e) => {
                    server.end_workers(server.lock());
                    return Err(e);
                }
            }
        }
        Ok(server)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
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

    /// Copies stop while a sparse backing's host is short of space. Call now and then.
    pub fn look_at_host(&self) {
        if let Some((free, total)) = self.store.host_space() {
            let reserve = self.drive.host_reserve;
            let short = u128::from(free) * 1000 < u128::from(total) * u128::from(reserve);
            let was = {
                let volume = &mut self.lock().volume;
                let was = volume.is_host_short();
                volume.host_is_short(short);
                was
            };
            // Keeps S1: who reads the log may wait for this very volume.
            if short && !was {
                let percent = f64::from(reserve) / 10.0;
                tracing::warn!(
                    "no copies: less than {percent} % of the file system that holds {} is free; make room there, or allow less: --host-reserve",
                    self.info.description
                );
            }
        }
    }

    /// Connections are numbered from here on, as a predecessor would have gone on.
    pub fn number_connections_from(&self, next: ConnectionId) {
        self.connections.store(next.0, Ordering::Relaxed);
    }
}

/// No worker wakes of its own.
const NEVER: Nanos = Nanos(u64::MAX);
