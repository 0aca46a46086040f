//! Accepting, counting and ending connections.
//!
//! Invariants:
//! V1: a connection is in the map from before its thread starts until its last request has ended.
//! V2: once `stopping` is set no connection enters the map.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs2_store::Seldom;

use crate::service::Service;

use super::budget::Budget;
use super::codec::{CloseReason, PAYLOAD_BYTES_MAX};
use super::connection::{Connection, End};
use super::listen::{Listen, Listener};
use super::outbox::{Bounds, Outbox};
use super::pipes::Pipes;
use super::pool::Pool;
use super::socket::Socket;

/// How long accepting rests when the system has no descriptor or memory left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Bounds of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Listen on addresses that other machines reach. NBD here has neither password nor encryption.
    pub allow_remote: bool,
    /// Connections at a time; the next is closed at once. At least 1.
    pub connections_max: usize,
    /// Requests in flight per connection; at least 1.
    pub requests_max: usize,
    /// Bytes of read and written data in flight per connection; a single request is let through whatever
    /// this says.
    pub bytes_max: u64,
    /// Bytes in flight of all connections together, beside the first MiB of each. A connection that would exceed
    /// it is not read until others have had their answers; in the order of asking. A single request is let through
    /// whatever this says.
    pub memory_max: u64,
    /// For the whole handshake.
    pub handshake_timeout: Duration,
    /// A client with answers to take that takes none for so long, or that began to send a write and goes on with
    /// nothing, loses its connection: what it holds, others wait for. Who owes nothing may be silent for ever.
    /// `None`: so may all.
    pub patience: Option<Duration>,
}

impl Default for Options {
    /// Local only, 32 connections, 128 requests and 64 MiB each (twice the largest request, so that one
    /// arrives while one is served), 512 MiB for all of them, ten seconds, and a minute.
    fn default() -> Options {
        Options {
            allow_remote: false,
            connections_max: 32,
            requests_max: 128,
            bytes_max: 2 * u64::from(PAYLOAD_BYTES_MAX),
            memory_max: 512 << 20,
            handshake_timeout: Duration::from_secs(10),
            patience: Some(Duration::from_secs(60)),
        }
    }
}

#[derive(Default)]
struct State {
    connections: HashMap<u64, Arc<Outbox>>,
    next: u64,
    stopping: bool,
}

struct Shared {
    service: Arc<dyn Service>,
    options: Options,
    pool: Arc<Pool>,
    pipes: Arc<Pipes>,
    budget: Arc<Budget>,
    state: Mutex<State>,
    changed: Condvar,
    refusals: Seldom,
    /// Of connections that come and go: anybody who may connect may do so as often as it likes.
    arrivals: Seldom,
    departures: Seldom,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An NBD server. Dropping it ends all connections at once; [`Server::shutdown`] ends them in order.
pub struct Server {
    shared: Arc<Shared>,
    tcp: Option<SocketAddr>,
    /// The other end of what the accepting thread watches, and that thread.
    accepting: Mutex<Option<(UnixStream, JoinHandle<()>)>>,
}

impl Server {
    /// Listens, and serves `service` to whoever connects.
    ///
    /// # Errors
    /// `AddrInUse` where another server listens there, `AlreadyExists` where the path is taken by something
    /// else than a socket, `PermissionDenied` for an address other machines reach, without
    /// [`Options::allow_remote`]; otherwise what the system says.
    pub fn bind(listen: Listen, service: Arc<dyn Service>, options: Options) -> io::Result<Server> {
        let listener = Listener::bind(listen, options.allow_remote)?;
        let tcp = listener.tcp;
        let shared = Arc::new(Shared {
            service,
            budget: Budget::new(options.memory_max),
            options,
            pool: Arc::default(),
            pipes: Arc::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            refusals: Seldom::default(),
            arrivals: Seldom::default(),
            departures: Seldom::default(),
        });
        let (ours, theirs) = UnixStream::pair()?;
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("nbd-accept".into())
                .spawn(move || accept_loop(&shared, listener, &theirs))?
        };
        Ok(Server { shared, tcp, accepting: Mutex::new(Some((ours, thread))) })
    }

    /// The address in use, with its port, of a server that listens on TCP.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Connections that are open or have requests in flight.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }

    /// Stops: no new connection (the socket file goes), no new request; what is in flight is answered
    /// until `deadline` from now, then every connection is cut. Returns how many had to be cut, 0 where
    /// all was answered. A second call finds nothing to do.
    pub fn shutdown(&self, deadline: Duration) -> usize {
        let end = Instant::now() + deadline;
        self.shared.lock().stopping = true;
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((wake, thread)) = accepting {
            drop(wake);
            if thread.join().is_err() {
                tracing::error!("the thread that accepts NBD connections panicked");
            }
        }
        let mut state = self.shared.lock();
        state.connections.values().for_each(|c| c.stop());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.connections.is_empty() || left.is_zero() {
                break;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let cut = state.connections.len();
        state.connections.values().for_each(|c| c.kill());
        cut
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

fn accept_loop(shared: &Arc<Shared>, listener: Listener, wake: &UnixStream) {
    tracing::info!("NBD on {}", listener.address);
    loop {
        let ready = listener.wait(wake, true, None);
        if shared.lock().stopping {
            return;
        }
        let accepted = ready.and_then(|ready| if ready { listener.accept() } else { Ok(None) });
        match accepted {
            Ok(None) => {}
            Ok(Some(fd)) => welcome(shared, fd),
            Err(e) => {
                shared.refusals.line(|more| tracing::warn!("cannot accept an NBD connection: {e}{more}"));
                let _ = listener.wait(wake, false, Some(ACCEPT_REST));
            }
        }
    }
}

/// Starts a connection's thread.
fn welcome(shared: &Arc<Shared>, fd: OwnedFd) {
    let socket = Socket::new(fd, shared.options.patience);
    let peer = socket.peer();
    let options = &shared.options;
    let bounds = Bounds { requests_max: options.requests_max.max(1), bytes_max: options.bytes_max };
    let (number, outbox) = {
        let mut state = shared.lock();
        if state.stopping || state.connections.len() >= options.connections_max.max(1) {
            let open = state.connections.len();
            drop(state);
            shared.refusals.line(|more| {
                tracing::warn!("NBD connection of {peer} refused: {open} are open{more}");
            });
            return;
        }
        state.next += 1;
        let outbox =
            Outbox::new(socket, bounds, shared.pool.clone(), shared.pipes.clone(), shared.budget.clone());
        let number = state.next;
        state.connections.insert(number, outbox.clone());
        (number, outbox)
    };
    let goodbye = Goodbye { shared: shared.clone(), number };
    let spawned = std::thread::Builder::new().name(format!("nbd-{number}")).spawn(move || {
        let shared = goodbye.shared.clone();
        serve(&shared, outbox, &peer);
        drop(goodbye);
    });
    if let Err(e) = spawned {
        tracing::warn!("no thread for an NBD connection: {e}");
    }
}

fn serve(shared: &Arc<Shared>, outbox: Arc<Outbox>, peer: &str) {
    let id = shared.service.connect();
    // Keeps V1 also when the thread panics.
    struct Disconnect<'a>(&'a Shared, fs2_block::ConnectionId);
    impl Drop for Disconnect<'_> {
        fn drop(&mut self) {
            self.0.service.disconnect(self.1);
        }
    }
    let _disconnect = Disconnect(shared, id);
    shared.arrivals.line(|more| tracing::info!("NBD connection {} of {peer}{more}", id.0));
    let connection = Connection {
        outbox,
        service: shared.service.clone(),
        id,
        handshake_timeout: shared.options.handshake_timeout,
        patience: shared.options.patience,
    };
    let departed = |write: &dyn Fn(&str)| shared.departures.line(write);
    match connection.run() {
        end @ (End::TakesNothing | End::SendsNoMore) => {
            shared.service.client_cut();
            departed(&|more| tracing::warn!("NBD connection {} of {peer} closed: {end}{more}", id.0));
        }
        end @ End::Session(CloseReason::Violation(_)) => {
            departed(&|more| tracing::warn!("NBD connection {} of {peer} closed: {end}{more}", id.0));
        }
        end => departed(&|more| tracing::info!("NBD connection {} of {peer} ended: {end}{more}", id.0)),
    }
}

/// Takes a connection out of the map when its thread is gone, or was never started.
struct Goodbye {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        let gone = self.shared.lock().connections.remove(&self.number);
        if let Some(outbox) = gone {
            outbox.kill();
        }
        self.shared.changed.notify_all();
    }
}
