//! A connected stream socket, of a path or of TCP.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use fs2_store::Pipe;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{
    KeepAlive, PeerCredentials, ReceiveTimeout, SendTimeout, SndBuf, SndBufForce, TcpKeepCount, TcpKeepIdle,
    TcpKeepInterval, TcpNoDelay, TcpUserTimeout,
};
use nix::sys::socket::{self, AddressFamily, MsgFlags, Shutdown, SockaddrLike, SockaddrStorage};
use nix::sys::time::{TimeVal, TimeValLike};

/// Bytes on their way to a client of the same machine, beyond which a thread of their own is needed: eight answers of
/// 128 KiB. With the usual 208 KiB that thread was woken for nearly every large answer, a quarter of the server's time.
const SEND_BYTES: usize = 1 << 20;

/// Seconds of silence after which the kernel asks a TCP client whether it is there; its own default is two hours. Who answers
/// none of the questions keeps its place for three minutes, or for a longer patience: [`TcpUserTimeout`] then goes before
/// [`KEEP_COUNT`]. A guess, as the two below: a router that starts again takes
/// less, and a client that connects anew every few minutes does not use up its 32 places.
const KEEP_IDLE_S: u32 = 120;

/// Seconds from one such question to the next.
const KEEP_INTERVAL_S: u32 = 15;

/// So many of them unanswered end the connection.
const KEEP_COUNT: u32 = 4;

/// What was sent and is not confirmed ends it after as long; the kernel's own default comes to a quarter of an hour.
const UNCONFIRMED: Duration = Duration::from_secs((KEEP_IDLE_S + KEEP_INTERVAL_S * KEEP_COUNT) as u64);

/// Pages that the kernel brings from a pipe to a socket at a time. It waits for room before each time, and goes on
/// whenever there is any.
const PAGES_AT_A_TIME: usize = 16;

/// Of the buffer's room, what so many pages and their bookkeeping take at most.
const TAKEN_AT_A_TIME: usize = PAGES_AT_A_TIME * 4096 + 4096;

/// Owns the descriptor; all calls take `&self`, the kernel serialises what must be.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// Of a socket that takes pages as they are: bytes on their way beyond which a sender waits.
    send_bytes: Option<usize>,
}

impl Socket {
    /// With `patience` a client that has vanished is told from a silent one, which may stay; without, both stay as long as the system has it.
    pub(super) fn new(fd: OwnedFd, patience: Option<Duration>) -> Socket {
        // These fail on a socket that is not TCP, where they mean nothing.
        let _ = socket::setsockopt(&fd, TcpNoDelay, &true);
        let _ = socket::setsockopt(&fd, KeepAlive, &true);
        if let Some(patience) = patience {
            let _ = socket::setsockopt(&fd, TcpKeepIdle, &KEEP_IDLE_S);
            let _ = socket::setsockopt(&fd, TcpKeepInterval, &KEEP_INTERVAL_S);
            let _ = socket::setsockopt(&fd, TcpKeepCount, &KEEP_COUNT);
            // It ends also who confirms, but takes nothing, as patience does.
            let millis = u32::try_from(patience.max(UNCONFIRMED).as_millis()).unwrap_or(u32::MAX);
            let _ = socket::setsockopt(&fd, TcpUserTimeout, &millis);
        }
        // TCP finds out by itself how much is good; more than the system's limit takes CAP_NET_ADMIN.
        let local = socket::getsockname::<SockaddrStorage>(fd.as_raw_fd()).ok();
        let is_unix = local.and_then(|a| a.family()) == Some(AddressFamily::Unix);
        if is_unix && socket::setsockopt(&fd, SndBufForce, &SEND_BYTES).is_err() {
            let _ = socket::setsockopt(&fd, SndBuf, &SEND_BYTES);
        }
        // TCP takes pages too, but keeps them until the other side has confirmed them, and a checksum goes over what may
        // change meanwhile.
        let send_bytes = is_unix.then(|| socket::getsockopt(&fd, SndBuf).ok()).flatten();
        Socket { fd, send_bytes }
    }

    /// For whoever waits for input together with something else.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What has arrived, into several buffers in turn; 0 at the end of the stream. With `wait`, waits for it, `WouldBlock` where
    /// a timeout passed; without, `WouldBlock` where there is nothing.
    pub(super) fn recv_into(&self, bufs: &mut [IoSliceMut<'_>], wait: bool) -> io::Result<usize> {
        let flags = if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        loop {
            let received = socket::recvmsg::<()>(self.fd.as_raw_fd(), bufs, None, flags);
            match received.map(|r| r.bytes) {
                Err(Errno::EINTR) => {}
                r => return Ok(r?),
            }
        }
    }

    /// Sends what fits, or with `wait` all unless the connection ends.
    pub(super) fn send(&self, bufs: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        loop {
            match socket::sendmsg::<()>(self.fd.as_raw_fd(), bufs, &[], flags, None) {
                Err(Errno::EINTR) => {}
                r => return Ok(r?),
            }
        }
    }

    /// As [`Socket::send`] with `wait`; `WouldBlock` only where the other side has taken nothing for as long as the
    /// timeout.
    pub(super) fn send_patiently(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.patiently(|| self.send(bufs, true))
    }

    fn patiently(&self, mut send: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        loop {
            let before = self.unsent();
            match send() {
                // The kernel wakes a sender when a large part of the buffer is free, and does not tell of less.
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.unsent() < before => {}
                sent => return sent,
            }
        }
    }

    /// Whether it takes what is in a pipe without copying.
    pub(super) fn takes_pages(&self) -> bool {
        self.send_bytes.is_some()
    }

    /// Sends what fits of a pipe, `WouldBlock` where nothing does. The kernel has no flag for that: but nobody else sends,
    /// so what fits now will.
    pub(super) fn send_pipe(&self, pipe: &mut Pipe) -> io::Result<usize> {
        let room = self.send_bytes.unwrap_or(0).saturating_sub(self.unsent().max(0) as usize);
        let times = room.div_ceil(TAKEN_AT_A_TIME);
        if times == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        // The head, and a page in part at either end.
        let pages = times * PAGES_AT_A_TIME - 3;
        pipe.send(self.as_fd(), pages * 4096)
    }

    /// Sends some of a pipe, and waits for room; `WouldBlock` as [`Socket::send_patiently`].
    pub(super) fn send_pipe_patiently(&self, pipe: &mut Pipe) -> io::Result<usize> {
        let all = pipe.len();
        self.patiently(|| pipe.send(self.as_fd(), all))
    }

    /// What the kernel keeps for the other side, in bytes of its own counting; 0 where it does not say.
    fn unsent(&self) -> libc::c_int {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ, which is TIOCOUTQ's number, stores an int there.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if done < 0 { 0 } else { bytes }
    }

    /// Limits how long one send or receive waits; `None` for ever.
    pub(super) fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        // Zero means for ever to the kernel.
        let micros = limit.map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX).max(1));
        let limit = TimeVal::microseconds(micros);
        socket::setsockopt(&self.fd, ReceiveTimeout, &limit)?;
        Ok(socket::setsockopt(&self.fd, SendTimeout, &limit)?)
    }

    /// Whether the other side has closed, though what it sent before may still be unread.
    pub(super) fn peer_gone(&self) -> bool {
        let mut watched = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        let n = unsafe { libc::poll(&mut watched, 1, 0) };
        n > 0 && watched.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Ends the stream in both directions; whoever waits on it wakes.
    pub(super) fn close(&self) {
        // It fails where the other side was faster.
        let _ = socket::shutdown(self.fd.as_raw_fd(), Shutdown::Both);
    }

    /// Ends what arrives; replies still go out.
    pub(super) fn close_incoming(&self) {
        let _ = socket::shutdown(self.fd.as_raw_fd(), Shutdown::Read);
    }

    /// Who is at the other end, for the log.
    pub(super) fn peer(&self) -> String {
        if let Ok(c) = socket::getsockopt(&self.fd, PeerCredentials)
            && c.pid() != 0
        {
            return format!("process {} of user {}", c.pid(), c.uid());
        }
        let tcp = self.fd.try_clone().map(TcpStream::from).and_then(|s| s.peer_addr());
        tcp.map_or_else(|_| "a client already gone".into(), |a| a.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// One that was switched off kept its place for the two hours after which the kernel asks by default.
    #[test]
    fn a_client_that_vanished_is_asked_for_soon() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = |patience: Option<u64>| {
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let fd = listener.accept().unwrap().0.into();
            let socket = Socket::new(fd, patience.map(Duration::from_secs));
            let of = |e: Result<u32, Errno>| e.unwrap();
            (
                of(socket::getsockopt(&socket.fd, TcpKeepIdle)),
                of(socket::getsockopt(&socket.fd, TcpKeepInterval)),
                of(socket::getsockopt(&socket.fd, TcpKeepCount)),
                of(socket::getsockopt(&socket.fd, TcpUserTimeout)),
                socket::getsockopt(&socket.fd, KeepAlive).unwrap(),
            )
        };
        assert_eq!(options(Some(60)), (120, 15, 4, 180_000, true));
        assert_eq!(options(Some(600)), (120, 15, 4, 600_000, true), "not before its time");
        // Who waits for ever is not to lose a client that is asleep.
        let fd = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (idle, unconfirmed) =
            (socket::getsockopt(&fd, TcpKeepIdle), socket::getsockopt(&fd, TcpUserTimeout));
        let never = options(None);
        assert_eq!((Ok(never.0), Ok(never.3)), (idle, unconfirmed));
    }
}
