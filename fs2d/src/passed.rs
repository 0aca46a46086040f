//! What a service manager passes with `LISTEN_FDS` (sd_listen_fds(3)): the socket to listen on, and what a former daemon of the same
//! service gave it to keep ([`Manager::keep`](crate::notify::Manager::keep)).

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// The first descriptor passed.
const FIRST: i32 = 3;
/// A manager passes two at most; a number beyond this is none of a manager's.
const MOST: u32 = 16;

/// The name under which it is kept what was served. A manager's word for a descriptor.
pub(crate) const SERVED: &str = "fs2-served";
/// An identity is shorter.
const SERVED_MAX: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// It listens.
    pub(crate) socket: Option<OwnedFd>,
    /// The [identity](fs2_store::FileStore::identity) of the backing that a former daemon served, whose clients may go on: the
    /// manager started this one in its place.
    pub(crate) served: Option<String>,
}

impl Passed {
    /// What was passed to this process, once.
    ///
    /// # Errors
    /// `InvalidInput` where there is more than one socket, a descriptor is not open, or what was kept cannot be read.
    pub(crate) fn take() -> io::Result<Passed> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let text = |name| std::env::var(name).ok();
        let number = |name| text(name).and_then(|v| v.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Ok(Passed::default());
        }
        let n = number("LISTEN_FDS").unwrap_or(0);
        if n > MOST {
            return Err(invalid(format!("{n} sockets were passed, one is wanted")));
        }
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Ok(Passed::default());
        }
        let mut fds = Vec::new();
        for i in 0..n as i32 {
            // SAFETY: by the protocol of LISTEN_FDS the descriptor was opened for this process to own, and the flag above sees to
            // it that it is taken once. Where the environment lies and it is not open, the next call says so and nothing is closed.
            let fd = unsafe { OwnedFd::from_raw_fd(FIRST + i) };
            if let Err(e) = fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)) {
                std::mem::forget(fd);
                return Err(invalid(format!(
                    "the socket passed as descriptor {} is not open: {e}",
                    FIRST + i
                )));
            }
            fds.push(fd);
        }
        Passed::named(fds, &text("LISTEN_FDNAMES").unwrap_or_default())
    }

    /// Tells them apart by their names, which lie between colons.
    fn named(fds: Vec<OwnedFd>, names: &str) -> io::Result<Passed> {
        let mut passed = Passed::default();
        let mut names = names.split(':');
        let mut sockets = Vec::new();
        for fd in fds {
            if names.next() == Some(SERVED) {
                passed.served = Some(identity(fd)?);
            } else {
                sockets.push(fd);
            }
        }
        if sockets.len() > 1 {
            return Err(invalid(format!("{} sockets were passed, one is wanted", sockets.len())));
        }
        passed.socket = sockets.pop();
        Ok(passed)
    }
}

/// What a former daemon wrote.
fn identity(kept: OwnedFd) -> io::Result<String> {
    let mut bytes = vec![0; SERVED_MAX];
    // Not from where the other left off.
    let n = File::from(kept).read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    String::from_utf8(bytes)
        .ok()
        .filter(|identity| !identity.is_empty() && n < SERVED_MAX)
        .ok_or_else(|| invalid("what the service manager kept of a former daemon cannot be read".into()))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn holding(bytes: &[u8]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.into()
    }

    fn wrong(fds: Vec<OwnedFd>, names: &str) -> String {
        Passed::named(fds, names).expect_err(names).to_string()
    }

    #[test]
    fn a_socket_and_what_was_kept_are_told_apart_by_name() {
        for names in ["fs2d-nbd@x.socket:fs2-served", "fs2-served:connection"] {
            let fds = match names.starts_with(SERVED) {
                true => vec![holding(b"file-1-2-3"), holding(b"")],
                false => vec![holding(b""), holding(b"file-1-2-3")],
            };
            let passed = Passed::named(fds, names).unwrap();
            assert_eq!((passed.served.as_deref(), passed.socket.is_some()), (Some("file-1-2-3"), true));
        }
        let alone = Passed::named(vec![holding(b"")], "").unwrap();
        assert!(alone.socket.is_some() && alone.served.is_none());
        assert!(Passed::named(vec![holding(b"x")], SERVED).unwrap().socket.is_none());
    }

    #[test]
    fn what_cannot_be_told_apart_or_read_is_refused() {
        assert!(wrong(vec![holding(b""), holding(b"")], "a:b").contains("2 sockets were passed"));
        assert!(wrong(vec![holding(b""), holding(b"")], "").contains("2 sockets were passed"));
        for kept in [&b""[..], b"\xff", &[b'x'; SERVED_MAX]] {
            assert!(wrong(vec![holding(kept)], SERVED).contains("cannot be read"));
        }
    }
}
