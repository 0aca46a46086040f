//! The asking side: blocking, one connection, one question at a time.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::command::{Command, Reply};
use crate::wire::{
    self, FRAME_BYTES_MAX, HELLO_BYTES_MAX, PREFIX_BYTES, PROTOCOL_VERSION, UPGRADES_SINCE, WireError,
};

/// How long an answer may take (a guess: a status takes microseconds).
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a detach may take beyond that: the table's pages are written and flushed (a guess).
const DETACH_PATIENCE: Duration = Duration::from_secs(120);

/// How much longer a daemon may take to agree to its successor: it flushes first. Guess.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(120);

/// Why a question got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no socket, or nobody listens on it.
    #[error(
        "no FS2 daemon answers at {}: {}; start one with `fs2 mount`, or name the socket of one that runs",
        .path.display(),
        if .cause.kind() == io::ErrorKind::NotFound { "there is no such socket" } else { "nobody listens there any more" }
    )]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The socket belongs to another user.
    #[error("no permission to use {}: only the user the daemon runs as may (try as root)", .path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// Daemon and tool are of different versions.
    #[error(
        "the daemon at {} speaks version {theirs} of the control protocol, this tool version {ours}; \
         use the tools that came with the daemon, or replace it (fs2 upgrade, where the volume is mounted over ublk)",
        .path.display()
    )]
    Version {
        /// The socket.
        path: PathBuf,
        /// This tool's version.
        ours: u32,
        /// The daemon's version.
        theirs: u32,
    },
    /// What answers is no FS2 daemon, or what it sent cannot be read.
    #[error("{}: {cause}", .path.display())]
    Wire {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        cause: WireError,
    },
    /// The question cannot be sent.
    #[error("the command cannot be sent: {0}")]
    Question(WireError),
    /// No answer came in time. The daemon may still do what was asked.
    #[error("the daemon at {} did not answer within {} s; it may be busy or stuck", .path.display(), .waited.as_secs_f32())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The daemon closed the connection: it ended, or had waited too long for a question.
    #[error("the daemon at {} closed the connection before it answered", .path.display())]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// Anything else the kernel says.
    #[error("the control socket {}: {cause}", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    /// None once an error left the stream in an unknown place.
    stream: Option<UnixStream>,
    patience: Duration,
    /// The daemon's version, and its process: 0 where it is not known.
    theirs: u32,
    pid: u32,
}

impl Client {
    /// Connects and exchanges hellos; waits at most 10 s for each answer, and two minutes more for
    /// that to a detach or an upgrade.
    ///
    /// # Errors
    /// Nobody there, not allowed, not an FS2 daemon, or one of another version.
    pub fn connect(path: impl AsRef<Path>) -> Result<Client, ControlError> {
        Client::connect_within(path, PATIENCE)
    }

    /// As [`Client::connect`], waiting at most `patience` for each answer.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_within(path: impl AsRef<Path>, patience: Duration) -> Result<Client, ControlError> {
        let client = Client::connect_any(path, patience)?;
        client.same_version()?;
        Ok(client)
    }

    /// As [`Client::connect`], to a daemon of whatever version: one of another answers nothing but [`Client::upgrade`].
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to_any(path: impl AsRef<Path>) -> Result<Client, ControlError> {
        Client::connect_any(path, PATIENCE)
    }

    fn connect_any(path: impl AsRef<Path>, patience: Duration) -> Result<Client, ControlError> {
        let path = path.as_ref().to_path_buf();
        let stream = match connect(&path, patience) {
            Ok(stream) => stream,
            Err(cause) => {
                return Err(match cause.kind() {
                    io::ErrorKind::WouldBlock => ControlError::Timeout { path, waited: patience },
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        ControlError::NoDaemon { path, cause }
                    }
                    io::ErrorKind::PermissionDenied => ControlError::Denied { path },
                    _ => ControlError::Io { path, cause },
                });
            }
        };
        // As it was when it began to listen; one in another namespace has no number here.
        let peer = getsockopt(&stream, PeerCredentials).map_or(0, |peer| peer.pid());
        let pid = u32::try_from(peer).unwrap_or(0);
        let mut client = Client { path, stream: Some(stream), patience, theirs: PROTOCOL_VERSION, pid };
        let content = client.exchange(&wire::hello_frame(), HELLO_BYTES_MAX, patience)?;
        client.theirs = wire::hello_version(&content).map_err(|cause| client.wire(cause))?;
        Ok(client)
    }

    /// The daemon's process; 0 where it is not known.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn same_version(&self) -> Result<(), ControlError> {
        self.version_at_least(PROTOCOL_VERSION, PROTOCOL_VERSION)
    }

    fn version_at_least(&self, least: u32, most: u32) -> Result<(), ControlError> {
        if (least..=most).contains(&self.theirs) {
            return Ok(());
        }
        Err(ControlError::Version { path: self.path.clone(), ours: PROTOCOL_VERSION, theirs: self.theirs })
    }

    /// Asks the daemon, of whatever version from 9 on, to make room for `program`, an absolute path, which goes on as the volume's daemon.
    /// Says why where it does not.
    ///
    /// # Errors
    /// As [`Client::ask`], and a daemon of an earlier version.
    pub fn upgrade(&mut self, program: &Path) -> Result<Result<(), String>, ControlError> {
        self.version_at_least(UPGRADES_SINCE, u32::MAX)?;
        let frame = wire::upgrade_frame(program).map_err(ControlError::Question)?;
        let content = self.exchange(&frame, FRAME_BYTES_MAX, self.patience + UPGRADE_PATIENCE)?;
        wire::upgraded(&content).map_err(|cause| {
            self.stream = None;
            self.wire(cause)
        })
    }

    /// Asks and waits for the answer. A [`Reply::Error`] is an answer. After an error the connection
    /// is closed, and every further question finds it so.
    ///
    /// # Errors
    /// A daemon of another version, a command too long to be sent (the connection stays), no answer in time, or one that
    /// cannot be read.
    pub fn ask(&mut self, command: &Command) -> Result<Reply, ControlError> {
        self.same_version()?;
        let frame = match command {
            // The daemon's working directory is another one.
            Command::TraceStart { path } => {
                let path = std::path::absolute(path)
                    .map_err(|cause| ControlError::Io { path: self.path.clone(), cause })?;
                wire::command_frame(&Command::TraceStart { path })
            }
            _ => wire::command_frame(command),
        };
        let frame = frame.map_err(ControlError::Question)?;
        let extra = if *command == Command::Detach { DETACH_PATIENCE } else { Duration::ZERO };
        let content = self.exchange(&frame, FRAME_BYTES_MAX, self.patience + extra)?;
        wire::reply(&content).map_err(|cause| {
            self.stream = None;
            self.wire(cause)
        })
    }

    fn wire(&self, cause: WireError) -> ControlError {
        ControlError::Wire { path: self.path.clone(), cause }
    }

    /// Sends a frame and reads the content of one.
    fn exchange(&mut self, frame: &[u8], max: usize, patience: Duration) -> Result<Vec<u8>, ControlError> {
        let path = || self.path.clone();
        let mut stream = self.stream.take().ok_or_else(|| ControlError::Closed { path: path() })?;
        let deadline = Instant::now() + patience;
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ControlError::Timeout { path: path(), waited: patience }
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                ControlError::Closed { path: path() }
            }
            _ => ControlError::Io { path: path(), cause },
        };
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        match stream.write_all(frame) {
            // The daemon may have said why before it closed: read on.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent.map_err(failed)?,
        }
        let mut prefix = [0; PREFIX_BYTES];
        read_exact(&mut stream, &mut prefix, deadline).map_err(failed)?;
        let len = wire::frame_len(prefix, max).map_err(|cause| ControlError::Wire { path: path(), cause })?;
        let mut content = vec![0; len];
        read_exact(&mut stream, &mut content, deadline).map_err(failed)?;
        self.stream = Some(stream);
        Ok(content)
    }
}

/// Connects, waiting at most `patience`: the kernel keeps so many connections for a daemon that accepts none, and then has
/// the next one wait for as long as it may send.
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(patience))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Fills `into` before `deadline`, however slowly the bytes come.
fn read_exact(stream: &mut UnixStream, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = &mut into[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
