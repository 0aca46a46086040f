//! SIGTERM, SIGINT and SIGHUP, which ask the daemon to end.
//!
//! Invariant 1: they are blocked in every thread ([`Signals::catch`] comes before another is started) and taken by one of their own.
//! So none ends the process by itself, and one that nobody takes stays pending, also while the process becomes another program:
//! that takes it when it has got so far. A SIGHUP that the parent had ignored, as nohup(1) has it, asks nothing.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::stop::Stop;

/// See the module.
pub(crate) struct Signals {
    /// Whether one was taken.
    thread: JoinHandle<bool>,
    enough: Arc<EventFd>,
}

fn all() -> io::Result<SigSet> {
    let mut all = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    if is_ignored(Signal::SIGHUP)? {
        // One that is blocked would be kept, though it is ignored.
        all.remove(Signal::SIGHUP);
    }
    Ok(all)
}

/// Asks without setting anything: a signal that waits to be taken is gone once it is ignored, if only for a moment (keeps 1).
fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing new is given, and `now` is room for what there is.
    Errno::result(unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), now.as_mut_ptr()) })?;
    // SAFETY: the kernel filled it; zeros are a value of it, too.
    Ok(unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

impl Signals {
    /// From now on they ask `stop` for the end.
    pub(crate) fn catch(stop: &Arc<Stop>) -> io::Result<Signals> {
        let all = all()?;
        all.thread_block()?;
        let taken = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let enough = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let (told, stop) = (enough.clone(), stop.clone());
        let take = move || {
            let mut any = false;
            loop {
                let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                let mut fds = [of(taken.as_raw_fd()), of(told.as_raw_fd())];
                // SAFETY: the pointer and the count are those of the array, which outlives the call.
                unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
                if told.read().is_ok() {
                    return any;
                }
                while let Ok(Some(_)) = taken.read_signal() {
                    any = true;
                    stop.ask();
                }
            }
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(take)?;
        Ok(Signals { thread, enough })
    }

    /// Takes no more, and leaves one that was taken to the program that this process becomes.
    pub(crate) fn leave(self) {
        let _ = self.enough.write(1);
        if self.thread.join().unwrap_or(false) {
            let _ = kill(Pid::this(), Signal::SIGTERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::time::Duration;

    use nix::sys::signal::{SigHandler, signal};

    use super::*;

    /// Says to this test that it is the process that is to become another program.
    const CHILD: &str = "FS2_SIGNALS_CHILD";

    /// A SIGTERM while `fs2 upgrade` replaced the daemon's program was taken by the former, which was about to be no more.
    #[test]
    fn who_becomes_another_program_leaves_it_the_signals() {
        if std::env::var_os(CHILD).is_some() {
            let stop = Arc::new(Stop::default());
            let signals = Signals::catch(&stop).unwrap();
            kill(Pid::this(), Signal::SIGTERM).unwrap();
            stop.wait(Duration::from_secs(60), || panic!("the signal was not taken"));
            signals.leave();
            // And one that comes later.
            kill(Pid::this(), Signal::SIGINT).unwrap();
            let args = ["^ShdPnd", "/proc/self/status"].map(Into::into);
            panic!("{}", crate::upgrade::exec(Path::new("/bin/grep"), &args));
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "signals::tests::who_becomes_another_program_leaves_it_the_signals"]);
        child.args(["--nocapture"]).env(CHILD, "1");
        // Keeps 1 in the threads of the test's own harness.
        // SAFETY: pthread_sigmask is async-signal-safe and touches nothing of the parent's memory.
        unsafe { child.pre_exec(|| Ok(all()?.thread_block()?)) };
        let left = child.output().unwrap();
        let said = String::from_utf8_lossy(&left.stdout);
        // The bits of SIGTERM (15) and SIGINT (2).
        assert!(said.contains("ShdPnd:\t0000000000004002"), "{}: {said}", left.status);
    }

    /// As the program that this process became takes what came between.
    #[test]
    fn a_hangup_that_came_before_is_taken() {
        if std::env::var_os(CHILD).is_some() {
            kill(Pid::this(), Signal::SIGHUP).unwrap();
            let stop = Arc::new(Stop::default());
            let _signals = Signals::catch(&stop).unwrap();
            stop.wait(Duration::from_secs(60), || panic!("the signal was not taken"));
            return;
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "signals::tests::a_hangup_that_came_before_is_taken"]).env(CHILD, "1");
        let blocked = || {
            // SAFETY: no handler.
            unsafe { signal(Signal::SIGHUP, SigHandler::SigDfl) }?;
            Ok(all()?.thread_block()?)
        };
        // SAFETY: sigaction and pthread_sigmask are async-signal-safe and touch nothing of the parent's memory.
        unsafe { child.pre_exec(blocked) };
        let done = child.output().unwrap();
        assert!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stdout));
    }

    /// `nohup fs2d serve` ended with its terminal.
    #[test]
    fn a_hangup_that_the_parent_had_ignored_asks_nothing() {
        if std::env::var_os(CHILD).is_some() {
            Signals::catch(&Arc::default()).unwrap().leave();
            // One that is blocked stays, ignored or not.
            kill(Pid::this(), Signal::SIGHUP).unwrap();
            let args = ["^ShdPnd", "/proc/self/status"].map(Into::into);
            panic!("{}", crate::upgrade::exec(Path::new("/bin/grep"), &args));
        }
        for (handler, pending) in [(SigHandler::SigIgn, "0"), (SigHandler::SigDfl, "1")] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "signals::tests::a_hangup_that_the_parent_had_ignored_asks_nothing"]);
            child.args(["--nocapture"]).env(CHILD, "1");
            let as_told = move || {
                // SAFETY: no handler.
                unsafe { signal(Signal::SIGHUP, handler) }?;
                Ok(all()?.thread_block()?)
            };
            // SAFETY: sigaction and pthread_sigmask are async-signal-safe and touch nothing of the parent's memory.
            unsafe { child.pre_exec(as_told) };
            let left = child.output().unwrap();
            let said = String::from_utf8_lossy(&left.stdout);
            assert!(said.contains(&format!("ShdPnd:\t000000000000000{pending}")), "{}: {said}", left.status);
        }
    }
}
