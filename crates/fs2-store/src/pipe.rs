//! Bytes on their way from a file to a socket that the daemon does not copy: a pipe, which holds references to pages.
//!
//! - P1: `held` is what was put into the pipe and not yet taken out.
//! - P2: no call on a pipe waits for the pipe itself. Only [`Pipe::send`] waits, for its socket, where that does.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, read, write};

/// Bytes of a page: a pipe's places hold one each.
const PAGE: usize = 4096;

/// See the [module](self).
#[derive(Debug)]
pub struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    held: usize,
    places: usize,
    /// Lives as long as the pipe: by it who makes pipes knows how many there are.
    _counted: Arc<()>,
}

impl Pipe {
    /// Places of a new pipe: a head and 128 KiB at any offset, as a power of two, since the kernel would make it that.
    pub const PLACES: usize = 64;

    /// An empty pipe, which keeps `counted` until it is gone.
    ///
    /// # Errors
    /// What the system says: no descriptor is left, or the user has too many pipes.
    pub fn new(counted: Arc<()>) -> io::Result<Pipe> {
        // Keeps P2.
        let (out, into) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let bytes = fcntl(&into, FcntlArg::F_SETPIPE_SZ((Pipe::PLACES * PAGE) as libc::c_int))?;
        Ok(Pipe { out, into, held: 0, places: bytes as usize / PAGE, _counted: counted })
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Copies `bytes` behind what it holds.
    ///
    /// # Errors
    /// `WouldBlock` where it is full. Any part may have been put in.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let n = write(&self.into, bytes)?;
        self.held += n;
        if n == bytes.len() { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Whether `len` bytes of a file, at any offset, fit into it behind a head.
    pub fn takes(&self, len: usize) -> bool {
        len.div_ceil(PAGE) + 2 <= self.places
    }

    /// Puts references to the pages of a file behind what it holds.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends before; `WouldBlock` where the pipe is full; what the file says. Any part
    /// may have been put in.
    pub(crate) fn refer(&mut self, file: &File, offset: u64, len: usize) -> io::Result<()> {
        let mut at = libc::loff_t::try_from(offset).map_err(|_| ErrorKind::InvalidInput)?;
        let mut left = len;
        while left > 0 {
            // SAFETY: both descriptors are open; `at` outlives the call.
            let n = unsafe {
                libc::splice(
                    file.as_raw_fd(),
                    &mut at,
                    self.into.as_raw_fd(),
                    std::ptr::null_mut(),
                    left,
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            match usize::try_from(n) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.held += n;
                    left -= n;
                }
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == ErrorKind::Interrupted => {}
                    e => return Err(e),
                },
            }
        }
        Ok(())
    }

    /// Sends at most `most` bytes of it to a stream socket; how many went. Waits where the socket does. Pages go as
    /// they are, by reference.
    ///
    /// # Errors
    /// What the socket says. A program must have set SIGPIPE aside, as Rust's do.
    pub fn send(&mut self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let most = most.min(self.held);
        if most == 0 {
            return Ok(0);
        }
        loop {
            // SAFETY: both descriptors are open.
            let n = unsafe {
                libc::splice(
                    self.out.as_raw_fd(),
                    std::ptr::null_mut(),
                    socket.as_raw_fd(),
                    std::ptr::null_mut(),
                    most,
                    0,
                )
            };
            match usize::try_from(n) {
                Ok(n) => {
                    self.held -= n;
                    return Ok(n);
                }
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == ErrorKind::Interrupted => {}
                    e => return Err(e),
                },
            }
        }
    }

    /// Empties it, by reading.
    ///
    /// # Errors
    /// What the system says; then it is of no more use.
    pub fn clear(&mut self) -> io::Result<()> {
        let mut bytes = [0; 256];
        while self.held > 0 {
            let n = read(&self.out, &mut bytes)?;
            self.held -= n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 509 + i) as u8).collect()
    }

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let bytes = pattern(300_000);
        let file = file(&bytes);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut pipe = Pipe::new(Arc::default()).unwrap();
        for (offset, len) in [(0, 1), (0, 4096), (4095, 2), (77, 131_072), (8192, 131_072), (299_999, 1)] {
            assert!(pipe.is_empty() && pipe.takes(len));
            pipe.put(b"head").unwrap();
            pipe.refer(&file, offset as u64, len).unwrap();
            assert_eq!(pipe.len(), 4 + len);
            let mut got = vec![0; 4 + len];
            std::thread::scope(|s| {
                s.spawn(|| theirs.read_exact(&mut got).unwrap());
                while !pipe.is_empty() {
                    assert!(pipe.send(ours.as_fd(), 50_000).unwrap() > 0);
                }
            });
            assert_eq!(got[..4], *b"head");
            assert!(got[4..] == bytes[offset..offset + len], "{offset}+{len}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told_and_never_waited_for() {
        let bytes = pattern(2 << 20);
        let file = file(&bytes);
        let mut pipe = Pipe::new(Arc::default()).unwrap();
        assert!(pipe.takes(128 << 10) && !pipe.takes(1 << 20));
        let full = pipe.refer(&file, 0, 1 << 20).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert_eq!(pipe.put(b"more").unwrap_err().kind(), ErrorKind::WouldBlock);
        pipe.clear().unwrap();
        assert!(pipe.is_empty());
        let short = pipe.refer(&file, (2 << 20) - 100, 4096).unwrap_err();
        assert_eq!((short.kind(), pipe.len()), (ErrorKind::UnexpectedEof, 100));
        pipe.clear().unwrap();
        pipe.put(b"again").unwrap();
        assert_eq!(pipe.len(), 5);
    }

    #[test]
    fn it_counts_as_long_as_it_lives() {
        let counted = Arc::new(());
        let pipe = Pipe::new(counted.clone()).unwrap();
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(pipe);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_socket_that_is_gone_is_an_error() {
        let file = file(&pattern(8192));
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut pipe = Pipe::new(Arc::default()).unwrap();
        pipe.refer(&file, 0, 8192).unwrap();
        assert_eq!(pipe.send(ours.as_fd(), 8192).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
