//! The answering side: a thread with a small runtime of its own, beside the request path.
//!
//! - S1: at most [`ServeLimits::clients`] connections are served; what one more gets is an error.
//! - S2: a connection costs at most one command's frame of memory, and only as it arrives.
//! - S3: no connection waits for another: the handler runs on threads of its own, and every wait for
//!   a client has an end.
//! - S4: the socket is its owner's alone from before anyone can connect.
//! - S5: a socket is removed only where nobody listens on it, or where it is our own.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::connect;
use crate::command::{Command, Reply};
use crate::wire::{self, COMMAND_BYTES_MAX, HELLO_BYTES_MAX, PREFIX_BYTES, PROTOCOL_VERSION, WireError};

/// Connections the kernel keeps for us until we accept them.
const BACKLOG: u32 = 64;

/// How long to wait for another process that is making or removing a socket in the same directory.
const DIRECTORY_WAIT: Duration = Duration::from_secs(2);

/// How long a look whether anybody listens at a socket may take; connecting takes microseconds, unless the daemon accepts
/// nobody.
const LISTENER_WAIT: Duration = Duration::from_millis(100);

/// What is granted to clients. The defaults are guesses, generous to a person, short to a fault.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections at once.
    pub clients: usize,
    /// From the connection to a whole hello, and from a command's first byte to its last; also for
    /// taking an answer.
    pub frame: Duration,
    /// From an answer to the next command.
    pub idle: Duration,
    /// At shutdown: for answers under way.
    pub drain: Duration,
}

impl Default for ServeLimits {
    fn default() -> ServeLimits {
        ServeLimits {
            clients: 16,
            frame: Duration::from_secs(5),
            idle: Duration::from_secs(300),
            drain: Duration::from_secs(5),
        }
    }
}

/// Why the socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another daemon answers there.
    #[error("another daemon listens at {}; stop it first, or name another socket", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is a file of another kind.
    #[error("{} is there and is not a socket; it was left alone", .path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Anything else: a missing directory, no permission, a path above 107 bytes.
    #[error("the control socket {} cannot be made: {cause}", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// A control socket being served. Dropping it is [`ControlServer::shutdown`].
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts no more, lets answers under way reach their clients (at most [`ServeLimits::drain`]),
    /// removes the socket. Not to be called by the handler: it would wait for itself.
    pub fn shutdown(self) {}
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported by the panic hook, and the socket is gone with it.
            let _ = thread.join();
        }
    }
}

/// Listens at `path` (mode 0600) and answers each command by `handler`, which may block: it is called
/// on threads of its own, by several clients at once.
///
/// # Errors
/// Somebody listens there, something else is there, or the socket cannot be made.
pub fn serve<H>(path: impl AsRef<Path>, handler: H) -> Result<ControlServer, ServeError>
where
    H: Fn(Command) -> Reply + Send + Sync + 'static,
{
    serve_with(path, ServeLimits::default(), handler)
}

/// As [`serve`], with other limits.
///
/// # Errors
/// As [`serve`].
pub fn serve_with<H>(
    path: impl AsRef<Path>,
    limits: ServeLimits,
    handler: H,
) -> Result<ControlServer, ServeError>
where
    H: Fn(Command) -> Reply + Send + Sync + 'static,
{
    let path = path.as_ref().to_path_buf();
    let failed = |cause| ServeError::Io { path: path.clone(), cause };
    room_for_a_runtime().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(limits.clients.max(1))
        .thread_name("fs2-control")
        .build()
        .map_err(failed)?;
    let listener = listen(&path, &runtime)?;
    let own = Own::of(&path).map_err(failed)?;
    let (stop, stopped) = watch::channel(false);
    let handler: Arc<Handler> = Arc::new(handler);
    let socket = path.clone();
    let thread = std::thread::Builder::new()
        .name("fs2-control".into())
        .spawn(move || {
            runtime.block_on(accept(listener, &socket, own, limits, handler, stopped));
            // A handler that still runs is not waited for.
            runtime.shutdown_background();
        })
        .map_err(failed)?;
    Ok(ControlServer { path, stop, thread: Some(thread) })
}

/// Fails where too few files may be open (RLIMIT_NOFILE) for a runtime, which panics where it cannot have its own pair of sockets. That takes
/// seven with it, and the socket listened on comes next.
fn room_for_a_runtime() -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..4).map(|_| std::os::unix::net::UnixStream::pair()).collect();
    pairs.map(drop)
}

type Handler = dyn Fn(Command) -> Reply + Send + Sync;

/// Which file a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    device: u64,
    inode: u64,
}

impl Own {
    fn of(path: &Path) -> io::Result<Own> {
        let meta = std::fs::symlink_metadata(path)?;
        Ok(Own { device: meta.dev(), inode: meta.ino() })
    }
}

/// Holds others off who make a socket in the same directory, until dropped.
fn lock_directory(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = File::open(parent)?;
    let deadline = Instant::now() + DIRECTORY_WAIT;
    loop {
        match directory.try_lock() {
            Ok(()) => return Ok(directory),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process keeps its directory locked"));
            }
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
}

/// Removes a socket that nobody listens on: a daemon that was killed left it. True where it did; what is no socket, or is
/// being made, stays.
///
/// # Errors
/// What the system says; that there is no such file is no error.
pub fn remove_stale(path: &Path) -> io::Result<bool> {
    // Keeps S5: who makes a socket has it bound before it listens, and holds this lock meanwhile.
    let _directory = match lock_directory(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        directory => directory?,
    };
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
        Ok(meta) if !meta.file_type().is_socket() => return Ok(false),
        Ok(_) => {}
    }
    match connect(path, LISTENER_WAIT) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).map(|()| true),
        _ => Ok(false),
    }
}

fn listen(path: &Path, runtime: &Runtime) -> Result<UnixListener, ServeError> {
    let failed = |cause| ServeError::Io { path: path.to_path_buf(), cause };
    // Keeps S5: between the look at an old socket and its removal nobody puts a new one there.
    let _directory = lock_directory(path).map_err(failed)?;
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(ServeError::NotASocket { path: path.to_path_buf() });
        }
        Ok(_) => match connect(path, LISTENER_WAIT) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            // It listens and takes nobody.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(ServeError::InUse { path: path.to_path_buf() });
            }
            Err(e) => return Err(failed(e)),
            Ok(_) => return Err(ServeError::InUse { path: path.to_path_buf() }),
        },
    }
    let socket = UnixSocket::new_stream().map_err(failed)?;
    socket.bind(path).map_err(failed)?;
    // Keeps S4: nobody can connect before listen().
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    let _runtime = runtime.enter();
    socket.listen(BACKLOG).map_err(failed)
}

async fn accept(
    listener: UnixListener,
    path: &Path,
    own: Own,
    limits: ServeLimits,
    handler: Arc<Handler>,
    mut stopped: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(limits.clients));
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            () = ended(&mut stopped) => break,
            Some(_) = clients.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => match slots.clone().try_acquire_owned() {
                    Ok(slot) => {
                        let (handler, stopped) = (handler.clone(), stopped.clone());
                        clients.spawn(async move {
                            // However it ended, it ended for this client only.
                            let _ = client(stream, limits, handler, stopped).await;
                            drop(slot);
                        });
                    }
                    Err(_) => refuse(stream, limits.clients),
                },
                // Out of descriptors or memory: what there is goes on, new ones wait.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    // Before the listener is closed: as long as it listens nobody takes the path over.
    if Own::of(path).is_ok_and(|now| now == own) {
        // A socket that cannot be removed is found stale by the next daemon.
        let _ = std::fs::remove_file(path);
    }
    drop(listener);
    let _ = timeout(limits.drain, async { while clients.join_next().await.is_some() {} }).await;
}

/// Returns once the server is to end; a handle that is gone is an end as well.
async fn ended(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|s| *s).await;
}

/// Tells one client too many that it is, without waiting for it.
fn refuse(stream: UnixStream, clients: usize) {
    let reply = Reply::error(
        format!("{clients} tools are connected already, no more are served"),
        "the control socket",
        "close one, or try again",
    );
    let (Ok(stream), Ok(reply)) = (stream.into_std(), wire::reply_frame(&reply)) else { return };
    // A new socket's buffer takes these few bytes at once; where not, the client sees the end only.
    let _ = io::Write::write_all(&mut &stream, &[wire::hello_frame(), reply].concat());
}

/// How a connection's service ended early.
#[derive(Debug, thiserror::Error)]
enum Parted {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("too slow")]
    Slow(#[from] tokio::time::error::Elapsed),
    #[error("{0}")]
    Wire(#[from] WireError),
}

async fn client(
    mut stream: UnixStream,
    limits: ServeLimits,
    handler: Arc<Handler>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Parted> {
    let hello = async {
        stream.write_all(&wire::hello_frame()).await?;
        let mut prefix = [0; PREFIX_BYTES];
        stream.read_exact(&mut prefix).await?;
        let content = read_content(&mut stream, prefix, HELLO_BYTES_MAX).await?;
        Ok::<u32, Parted>(wire::hello_version(&content)?)
    };
    let theirs = tokio::select! {
        version = timeout(limits.frame, hello) => version??,
        () = ended(&mut stopped) => return Ok(()),
    };
    // One of another version has a single question, or goes.
    let idle = if theirs == PROTOCOL_VERSION { limits.idle } else { limits.frame };
    loop {
        let mut prefix = [0; PREFIX_BYTES];
        let first = tokio::select! {
            first = timeout(idle, stream.read(&mut prefix[..1])) => first??,
            () = ended(&mut stopped) => return Ok(()),
        };
        if first == 0 {
            return Ok(());
        }
        let command = timeout(limits.frame, async {
            stream.read_exact(&mut prefix[1..]).await?;
            let content = read_content(&mut stream, prefix, COMMAND_BYTES_MAX).await?;
            if let Some(program) = wire::upgrade(&content) {
                return Ok(Some((Command::Upgrade { program }, true)));
            }
            // It knows our version from our hello, and says both to its user.
            let same = theirs == PROTOCOL_VERSION;
            Ok::<_, Parted>(if same { Some((wire::command(&content)?, false)) } else { None })
        });
        let (command, of_any_version) = match command.await? {
            Err(Parted::Wire(cause)) => {
                // Where the next frame begins is not known: say so and part.
                let next = "use the tools that came with the daemon";
                let reply = Reply::error(cause.to_string(), "the control socket", next);
                timeout(limits.frame, stream.write_all(&wire::reply_frame(&reply)?)).await??;
                return Err(cause.into());
            }
            Ok(None) => return Ok(()),
            Ok(Some(command)) => command,
            Err(cause) => return Err(cause),
        };
        let reply = answer(command, handler.clone()).await;
        let frame = if of_any_version { wire::upgraded_frame(&reply) } else { wire::reply_frame(&reply) };
        let frame = frame.or_else(|cause| {
            wire::reply_frame(&Reply::error(format!("the answer cannot be sent: {cause}"), "the daemon", ""))
        })?;
        timeout(limits.frame, stream.write_all(&frame)).await??;
    }
}

/// Reads a frame's content; memory grows with what arrives, not with what is claimed (keeps S2).
async fn read_content(
    stream: &mut UnixStream,
    prefix: [u8; PREFIX_BYTES],
    max: usize,
) -> Result<Vec<u8>, Parted> {
    let len = wire::frame_len(prefix, max)?;
    let mut content = Vec::new();
    stream.take(len as u64).read_to_end(&mut content).await?;
    if content.len() < len {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(content)
}

async fn answer(command: Command, handler: Arc<Handler>) -> Reply {
    if let Command::TraceStart { path } = &command
        && !path.is_absolute()
    {
        let where_ = path.display().to_string();
        return Reply::error("the path of a trace must be absolute", where_, "name it from /");
    }
    match tokio::task::spawn_blocking(move || handler(command)).await {
        Ok(reply) => reply,
        Err(_) => Reply::error("the daemon failed while it answered", "see its log", "ask again"),
    }
}
