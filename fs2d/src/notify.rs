//! Words to a service manager that started this process with `NOTIFY_SOCKET` (systemd's `Type=notify`); without one nothing is said.

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::passed::SERVED;
use crate::upgrade::sealed;

/// How long a word waits for room where the manager hears none; as long as sd_notify(3) has it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A manager that listens, or did: one that has crashed stays, frozen (as systemd does), and its socket fills up.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Does not wait, for what is said again and again.
    at_once: Option<UnixDatagram>,
    /// Half of the time after which it takes silence for death.
    pub(crate) watchdog: Option<Duration>,
}

impl Manager {
    /// By the environment.
    pub(crate) fn find() -> Manager {
        let text = |name| std::env::var(name).ok();
        let for_us = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = text("WATCHDOG_USEC").and_then(|us| us.parse().ok()).filter(|us| *us > 0 && for_us);
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(|at| {
            let address = match at.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(&at),
            };
            Some((patient().ok()?, address.ok()?))
        });
        let at_once = UnixDatagram::unbound().and_then(|s| s.set_nonblocking(true).map(|()| s)).ok();
        Manager { to, at_once, watchdog: watchdog.map(|us: u64| Duration::from_micros(us / 2)) }
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.to.is_some()
    }

    /// It serves.
    pub(crate) fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// It lives. Waits for nobody: where there is no room, enough of these words wait there to be heard.
    pub(crate) fn alive(&self) {
        if let (Some(socket), Some((_, address)), Some(_)) = (&self.at_once, &self.to, self.watchdog)
            && let Err(e) = socket.send_to_addr(b"WATCHDOG=1\n", address)
            && e.kind() != io::ErrorKind::WouldBlock
        {
            tracing::warn!("the service manager does not listen: {e}");
        }
    }

    /// It ends, which takes as long as it takes: until the device is unmounted, and the table is written. systemd stops watching a service
    /// that stops, and any finite time would begin it anew; the largest number is its word for never.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=ending\n");
        if self.watchdog.is_some() {
            self.say("WATCHDOG_USEC=18446744073709551615\n");
        }
    }

    /// Another program goes on in this process, and says when it is ready. Not an end: after that word systemd starts nothing again.
    pub(crate) fn replaced(&self) {
        self.say("RELOADING=1\nSTATUS=another program takes over\n");
    }

    /// Gives it the identity of what is served to keep (systemd's `FileDescriptorStoreMax=`): it passes that to whoever it starts in the
    /// place of this daemon, and throws it away when the service is stopped. So who finds it knows that clients may go on.
    pub(crate) fn keep(&self, identity: &str) {
        let Some((_, address)) = &self.to else { return };
        let kept = || -> io::Result<()> {
            let fd = sealed("fs2-served", identity.as_bytes())?;
            let to = patient()?;
            to.connect_addr(address)?;
            let what = format!("FDSTORE=1\nFDNAME={SERVED}\n");
            let fds = [fd.as_raw_fd()];
            let with = [ControlMessage::ScmRights(&fds)];
            sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(what.as_bytes())], &with, MsgFlags::empty(), None)?;
            Ok(())
        };
        if let Err(e) = kept() {
            tracing::warn!("the service manager does not keep what is served: {e}");
        }
    }

    fn say(&self, what: &str) {
        if let Some((socket, address)) = &self.to
            && let Err(e) = socket.send_to_addr(what.as_bytes(), address)
        {
            tracing::warn!("the service manager does not listen: {e}");
        }
    }
}

fn patient() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}
