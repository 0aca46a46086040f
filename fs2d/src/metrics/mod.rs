//! The volume's metrics for Prometheus: HTTP on a socket, `GET /metrics` and nothing else.
//!
//! Requests of the volume cost nothing for it: the page is made from the engine's own counters when it is asked for.
//!
//! - M1: at most [`CONNECTIONS_MAX`] connections at a time, each with its thread; one more is closed at once.
//! - M2: a connection has at most [`request::HEAD_BYTES_MAX`] bytes of a request in memory, one answer, and
//!   [`PATIENCE`] for each of the two.
//! - M3: a Unix socket is its owner's alone; a TCP address that other machines reach is refused unless allowed.

mod page;
pub mod request;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs2_store::Seldom;

use crate::frontend::nbd::{Listen, Listener};
pub(crate) use page::{Measured, page};
use request::{Asked, HEAD_BYTES_MAX, Refusal, asked};

/// Connections at a time. A guess: a scraper or two, and a person.
const CONNECTIONS_MAX: usize = 8;

/// For a request's head, and for taking the answer; a guess, half of Prometheus' own 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// For a client to close after its answer: closing first might cut the answer off.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long accepting rests when the system has no descriptor left.
const REST: Duration = Duration::from_millis(100);

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A socket file, mode 0600.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(s: &str) -> Result<Place, String> {
        if let Some(path) = s.strip_prefix("unix:").filter(|p| !p.is_empty()) {
            return Ok(Place::Unix(path.into()));
        }
        let address = s.strip_prefix("tcp:").unwrap_or(s);
        address
            .parse()
            .map(Place::Tcp)
            .map_err(|_| format!("'{s}' is neither unix:PATH nor ADDRESS:PORT, such as 127.0.0.1:9835"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
            Place::Tcp(address) => write!(f, "{address}"),
        }
    }
}

type MakePage = dyn Fn() -> String + Send + Sync;

/// A socket that nobody is served on yet.
pub struct Bound(Listener);

impl Bound {
    /// Listens.
    ///
    /// # Errors
    /// `PermissionDenied` for an address other machines reach, where `remote` is not said; what the system says.
    pub fn new(place: &Place, remote: bool) -> io::Result<Bound> {
        let listen = match place {
            Place::Unix(path) => Listen::Unix(path.clone()),
            Place::Tcp(address) => Listen::Tcp(*address),
        };
        Ok(Bound(Listener::bind(listen, remote)?))
    }

    /// Answers with what `page` makes.
    ///
    /// # Errors
    /// What the system says.
    pub fn serve(self, page: impl Fn() -> String + Send + Sync + 'static) -> io::Result<Server> {
        self.serve_within(PATIENCE, page)
    }

    fn serve_within(
        self,
        patience: Duration,
        page: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let (wake, woken) = UnixStream::pair()?;
        let address = self.0.address.clone();
        let shared = Arc::new(Shared {
            page: Box::new(page),
            patience,
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            refusals: Seldom::default(),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || accept(&theirs, &self.0, &woken))?;
        Ok(Server { shared, address, accepting: Mutex::new(Some((wake, thread))) })
    }
}

struct Shared {
    page: Box<MakePage>,
    patience: Duration,
    stopping: AtomicBool,
    connections: AtomicUsize,
    refusals: Seldom,
}

/// Metrics being served. Dropping it closes the socket and removes its file.
pub struct Server {
    shared: Arc<Shared>,
    address: String,
    accepting: Mutex<Option<(UnixStream, JoinHandle<()>)>>,
}

impl Server {
    /// Where, with the port in use.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((wake, thread)) = accepting {
            drop(wake);
            // Who is being answered has a thread and a bounded time of its own.
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &Listener, wake: &UnixStream) {
    loop {
        let ready = listener.wait(wake, true, None);
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        match ready.and_then(|ready| if ready { listener.accept() } else { Ok(None) }) {
            Ok(None) => {}
            // Reading, writing and time limits are the same for a socket of any family.
            Ok(Some(fd)) => welcome(shared, UnixStream::from(fd)),
            Err(e) => {
                shared.refusals.line(|more| {
                    tracing::warn!("cannot accept a connection for metrics: {e}{more}");
                });
                let _ = listener.wait(wake, false, Some(REST));
            }
        }
    }
}

/// Keeps M1 also when the thread panics or was never started.
struct Leave(Arc<Shared>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

fn welcome(shared: &Arc<Shared>, stream: UnixStream) {
    let before = shared.connections.fetch_add(1, Ordering::SeqCst);
    let leave = Leave(shared.clone());
    if before >= CONNECTIONS_MAX {
        return;
    }
    let spawned = std::thread::Builder::new().name("metrics-client".into()).spawn(move || {
        // However it ended, it ended for this client only.
        let _ = answer(&leave.0, &stream);
    });
    if let Err(e) = spawned {
        shared.refusals.line(|more| {
            tracing::warn!("no thread for a connection for metrics: {e}{more}");
        });
    }
}

/// One request, one answer.
fn answer(shared: &Shared, stream: &UnixStream) -> io::Result<()> {
    let (status, kind, body) = match ask(stream, shared.patience)? {
        None => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", (shared.page)()),
        Some(refusal) => {
            let body = format!("{}: metrics are at /metrics\n", refusal.status());
            (refusal.status(), "text/plain; charset=utf-8", body)
        }
    };
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    let answer = [head.as_bytes(), body.as_bytes()].concat();
    let deadline = Instant::now() + shared.patience;
    let mut rest = &answer[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match (&*stream).write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    stream.shutdown(Shutdown::Write)?;
    // Unread bytes at the close would make the kernel take the answer back.
    let (deadline, mut bin) = (Instant::now() + GOODBYE, [0; 1024]);
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        if (&*stream).read(&mut bin)? == 0 {
            return Ok(());
        }
    }
}

/// Reads a request's head (keeps M2); `None` where it asks for metrics.
fn ask(mut stream: &UnixStream, patience: Duration) -> io::Result<Option<Refusal>> {
    let deadline = Instant::now() + patience;
    let (mut head, mut len) = ([0; HEAD_BYTES_MAX], 0);
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut head[len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        match asked(&head[..len]) {
            Asked::More => {}
            Asked::Metrics => return Ok(None),
            Asked::Refused(why) => return Ok(Some(why)),
        }
    }
}

/// Until `deadline`, never nothing.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests;
