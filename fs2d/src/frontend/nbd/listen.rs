//! Where to listen, and the rules of each place.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, fcntl};
use nix::sys::socket::sockopt::{self, AcceptConn};
use nix::sys::socket::{
    self, AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr,
};

/// Connections the kernel holds while none is accepted.
const BACKLOG: i32 = 128;

/// Where a server listens.
#[derive(Debug)]
pub enum Listen {
    /// A socket file, made with mode 0600 and removed at the end. One that nobody listens to is replaced.
    Unix(PathBuf),
    /// A TCP address; other than loopback only with `Options::allow_remote`.
    Tcp(SocketAddr),
    /// A listening socket made by someone else, such as a service manager. Its file stays at the end.
    Activated(OwnedFd),
}

impl Listen {
    /// What is wrong with the address itself.
    pub(crate) fn check(&self, allow_remote: bool) -> io::Result<()> {
        match self {
            Listen::Unix(path) => unix_address(path).map(drop),
            Listen::Tcp(address) => check_remote(*address, allow_remote),
            Listen::Activated(_) => Ok(()),
        }
    }
}

/// A listening socket that does not block; removes its file when dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    /// Where it listens, for the log.
    pub(crate) address: String,
    /// Of TCP: the address, with its port.
    pub(crate) tcp: Option<SocketAddr>,
    _file: Option<SocketFile>,
}

impl Listener {
    pub(crate) fn bind(listen: Listen, allow_remote: bool) -> io::Result<Listener> {
        listen.check(allow_remote)?;
        let (fd, file) = match listen {
            Listen::Unix(path) => {
                let (fd, file) = bind_path(&path)?;
                (fd, Some(file))
            }
            Listen::Tcp(address) => (TcpListener::bind(address)?.into(), None),
            Listen::Activated(fd) => {
                if socket::getsockopt(&fd, AcceptConn) != Ok(true) {
                    return Err(invalid("the socket passed is not listening"));
                }
                // One of packets loses what of each is not asked for at once.
                if socket::getsockopt(&fd, sockopt::SockType) != Ok(SockType::Stream) {
                    return Err(invalid("the socket passed is none of a stream (ListenStream=)"));
                }
                (fd, None)
            }
        };
        let tcp = tcp_address(&fd)?;
        if let Some(address) = tcp {
            check_remote(address, allow_remote)?;
        }
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let address = match (&tcp, &file) {
            (Some(address), _) => address.to_string(),
            (None, Some(file)) => file.path.display().to_string(),
            (None, None) => "a socket passed by another program".into(),
        };
        Ok(Listener { fd, address, tcp, _file: file })
    }

    /// The next connection, `None` where there is none (any more).
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match socket::accept4(self.fd.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
            // SAFETY: accept4 has just opened it, and nobody else knows it.
            Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED | Errno::EPROTO) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Waits for a connection to accept; false where something happened to `or`, or `limit` passed.
    pub(crate) fn wait(&self, or: &impl AsFd, listen: bool, limit: Option<Duration>) -> io::Result<bool> {
        let watched = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative descriptor is passed over.
        let ours = if listen { self.fd.as_raw_fd() } else { -1 };
        let mut fds = [watched(or.as_fd().as_raw_fd()), watched(ours)];
        let millis = limit.map_or(-1, |d| i32::try_from(d.as_millis()).unwrap_or(i32::MAX));
        // SAFETY: the pointer and the count are those of the array, which outlives the call.
        let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
        if n < 0 && Errno::last() != Errno::EINTR {
            return Err(io::Error::last_os_error());
        }
        Ok(n > 0 && fds[0].revents == 0)
    }
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what.into())
}

fn check_remote(address: SocketAddr, allow_remote: bool) -> io::Result<()> {
    if allow_remote || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!("{address} can be reached from other machines, and whoever asks there needs no password"),
    ))
}

/// The address of a listening TCP socket, `None` of one with a path.
fn tcp_address(fd: &OwnedFd) -> io::Result<Option<SocketAddr>> {
    let family = socket::getsockname::<SockaddrStorage>(fd.as_raw_fd())?.family();
    match family {
        Some(AddressFamily::Unix) => Ok(None),
        // It fails for what is neither IPv4 nor IPv6.
        _ => TcpListener::from(fd.try_clone()?).local_addr().map(Some),
    }
}

/// A socket file of ours; removed when dropped, if it still is ours.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity)
            && let Err(e) = fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove {}: {e}", self.path.display());
        }
    }
}

fn unix_address(path: &Path) -> io::Result<UnixAddr> {
    UnixAddr::new(path).map_err(|e| invalid(format!("{}: {e}", path.display())))
}

/// Binds, sets the mode and only then listens: nobody connects before the mode is right.
fn bind_path(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    // Two servers that find the same stale file must not remove each other's new one.
    let _lock = lock_directory(path).map_err(named)?;
    let address = unix_address(path)?;
    let fd = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    match socket::bind(fd.as_raw_fd(), &address) {
        Err(Errno::EADDRINUSE) => {
            remove_stale(path, &address).map_err(named)?;
            socket::bind(fd.as_raw_fd(), &address)
        }
        r => r,
    }
    .map_err(|e| named(e.into()))?;
    let meta = fs::symlink_metadata(path).map_err(named)?;
    let file = SocketFile { path: path.into(), identity: (meta.dev(), meta.ino()) };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(named)?;
    socket::listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok((fd, file))
}

fn lock_directory(path: &Path) -> io::Result<Flock<File>> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut dir = File::open(parent)?;
    // Others hold it for as long as a bind takes.
    for _ in 0..100 {
        match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => dir = back,
            Err((_, e)) => return Err(e.into()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(io::Error::new(ErrorKind::WouldBlock, format!("{} is locked by another program", parent.display())))
}

/// Removes a socket that nobody listens to.
fn remove_stale(path: &Path, address: &UnixAddr) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "exists and is not a socket"));
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let probe = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match socket::connect(probe.as_raw_fd(), address) {
        Err(Errno::ECONNREFUSED) => fs::remove_file(path),
        Err(Errno::ENOENT) => Ok(()),
        _ => Err(io::Error::new(ErrorKind::AddrInUse, "another server listens here")),
    }
}
