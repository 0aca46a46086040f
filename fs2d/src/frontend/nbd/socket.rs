//! A connected stream socket, of a path or of TCP.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{
    KeepAlive, PeerCredentials, ReceiveTimeout, SendTimeout, SndBuf, SndBufForce, TcpNoDelay,
};
use nix::sys::socket::{self, AddressFamily, MsgFlags, Shutdown, SockaddrLike, SockaddrStorage};
use nix::sys::time::{TimeVal, TimeValLike};

/// Bytes on their way to a client of the same machine, beyond which a thread of their own is needed: eight answers of
/// 128 KiB. With the usual 208 KiB that thread was woken for nearly every large answer, a quarter of the server's time.
const SEND_BYTES: usize = 1 << 20;

/// Owns the descriptor; all calls take `&self`, the kernel serialises what must be.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Socket {
        // These fail on a socket that is not TCP, where they mean nothing.
        let _ = socket::setsockopt(&fd, TcpNoDelay, &true);
        let _ = socket::setsockopt(&fd, KeepAlive, &true);
        // TCP finds out by itself how much is good; more than the system's limit takes CAP_NET_ADMIN.
        let local = socket::getsockname::<SockaddrStorage>(fd.as_raw_fd()).ok();
        if local.and_then(|a| a.family()) == Some(AddressFamily::Unix)
            && socket::setsockopt(&fd, SndBufForce, &SEND_BYTES).is_err()
        {
            let _ = socket::setsockopt(&fd, SndBuf, &SEND_BYTES);
        }
        Socket(fd)
    }

    /// For whoever waits for input together with something else.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for bytes; 0 at the end of the stream. `WouldBlock` where a timeout passed.
    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv_into(&mut [IoSliceMut::new(buf)], true)
    }

    /// As [`Socket::recv`], into several buffers in turn; without `wait`, `WouldBlock` where there is nothing.
    pub(super) fn recv_into(&self, bufs: &mut [IoSliceMut<'_>], wait: bool) -> io::Result<usize> {
        let flags = if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        loop {
            let received = socket::recvmsg::<()>(self.0.as_raw_fd(), bufs, None, flags);
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
            match socket::sendmsg::<()>(self.0.as_raw_fd(), bufs, &[], flags, None) {
                Err(Errno::EINTR) => {}
                r => return Ok(r?),
            }
        }
    }

    /// As [`Socket::send`] with `wait`; `WouldBlock` only where the other side has taken nothing for as long as the
    /// timeout.
    pub(super) fn send_patiently(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let before = self.unsent();
            match self.send(bufs, true) {
                // The kernel wakes a sender when a large part of the buffer is free, and does not tell of less.
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.unsent() < before => {}
                sent => return sent,
            }
        }
    }

    /// What the kernel keeps for the other side, in bytes of its own counting; 0 where it does not say.
    fn unsent(&self) -> libc::c_int {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ, which is TIOCOUTQ's number, stores an int there.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if done < 0 { 0 } else { bytes }
    }

    /// Limits how long one send or receive waits; `None` for ever.
    pub(super) fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        // Zero means for ever to the kernel.
        let micros = limit.map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX).max(1));
        let limit = TimeVal::microseconds(micros);
        socket::setsockopt(&self.0, ReceiveTimeout, &limit)?;
        Ok(socket::setsockopt(&self.0, SendTimeout, &limit)?)
    }

    /// Whether the other side has closed, though what it sent before may still be unread.
    pub(super) fn peer_gone(&self) -> bool {
        let mut watched = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        let n = unsafe { libc::poll(&mut watched, 1, 0) };
        n > 0 && watched.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Ends the stream in both directions; whoever waits on it wakes.
    pub(super) fn close(&self) {
        // It fails where the other side was faster.
        let _ = socket::shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }

    /// Ends what arrives; replies still go out.
    pub(super) fn close_incoming(&self) {
        let _ = socket::shutdown(self.0.as_raw_fd(), Shutdown::Read);
    }

    /// Who is at the other end, for the log.
    pub(super) fn peer(&self) -> String {
        if let Ok(c) = socket::getsockopt(&self.0, PeerCredentials)
            && c.pid() != 0
        {
            return format!("process {} of user {}", c.pid(), c.uid());
        }
        let tcp = self.0.try_clone().map(TcpStream::from).and_then(|s| s.peer_addr());
        tcp.map_or_else(|_| "a client already gone".into(), |a| a.to_string())
    }
}
