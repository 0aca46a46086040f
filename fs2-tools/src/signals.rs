//! Signals that ask for an orderly end, or for a stop.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use fs2_block::{ReadAt, WriteAt};
use fs2_store::StoreIo;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;

/// The last one that came; 0: none.
static ASKED: AtomicI32 = AtomicI32::new(0);

const CAUGHT: [Signal; 3] = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT];

extern "C" fn ask(signal: std::ffi::c_int) {
    ASKED.store(signal, Ordering::Relaxed);
}

/// From now on SIGTERM, SIGHUP and SIGINT end nothing by themselves: [`asked`] tells of them. A SIGHUP that the parent had ignored, as nohup(1)
/// has it, stays so.
///
/// # Errors
/// What the system says.
pub(crate) fn catch() -> io::Result<()> {
    catch_for_now().map(std::mem::forget)
}

/// The same until what is handed out is dropped; then they end what they ended before.
///
/// # Errors
/// What the system says.
pub(crate) fn catch_for_now() -> io::Result<Caught> {
    let action = SigAction::new(SigHandler::Handler(ask), SaFlags::SA_RESTART, SigSet::empty());
    let mut caught = Caught(Vec::new());
    for signal in CAUGHT {
        // SAFETY: the handler stores into an atomic and does nothing else, which a handler may.
        let before = unsafe { sigaction(signal, &action) }?;
        if signal == Signal::SIGHUP && matches!(before.handler(), SigHandler::SigIgn) {
            // SAFETY: what was there before is put back.
            unsafe { sigaction(signal, &before) }?;
        } else {
            caught.0.push((signal, before));
        }
    }
    Ok(caught)
}

/// What the signals did before.
#[derive(Debug)]
pub(crate) struct Caught(Vec<(Signal, SigAction)>);

impl Drop for Caught {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            // SAFETY: what was there before is put back.
            let _ = unsafe { sigaction(*signal, before) };
        }
    }
}

/// Whether one of them came.
pub(crate) fn asked() -> bool {
    last().is_some()
}

/// The last one that came.
pub(crate) fn last() -> Option<Signal> {
    Signal::try_from(ASKED.load(Ordering::Relaxed)).ok()
}

/// SIGTSTP or SIGCONT, whichever came last; 0: none.
static STOPS: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_stop(signal: std::ffi::c_int) {
    STOPS.store(signal, Ordering::Relaxed);
}

/// From now on SIGTSTP stops nothing by itself: [`stop_asked`] tells of it, and of SIGCONT. For who has a terminal to put in order first.
///
/// # Errors
/// What the system says.
pub(crate) fn catch_stops() -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note_stop), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTSTP, Signal::SIGCONT] {
        // SAFETY: the handler stores into an atomic and does nothing else, which a handler may.
        let before = unsafe { sigaction(signal, &action) }?;
        if matches!(before.handler(), SigHandler::SigIgn) {
            // SAFETY: what was there before is put back.
            unsafe { sigaction(signal, &before) }?;
        }
    }
    Ok(())
}

/// Which of the two came last since this was asked.
pub(crate) fn stop_asked() -> Option<Signal> {
    Signal::try_from(STOPS.swap(0, Ordering::Relaxed)).ok()
}

/// Stops this process, or with `group` all of its process group as the terminal's Ctrl-Z does, until SIGCONT. Where nobody would
/// ever send that, the kernel stops nothing.
///
/// # Errors
/// What the system says.
pub(crate) fn stop(group: bool) -> io::Result<()> {
    let usual = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler.
    let caught = unsafe { sigaction(Signal::SIGTSTP, &usual) }?;
    // A parent that had it ignored goes on without this one.
    if !matches!(caught.handler(), SigHandler::SigIgn) {
        kill(if group { Pid::from_raw(0) } else { Pid::this() }, Signal::SIGTSTP)?;
    }
    // SAFETY: what was there before is put back.
    unsafe { sigaction(Signal::SIGTSTP, &caught) }?;
    STOPS.store(0, Ordering::Relaxed);
    Ok(())
}

/// A store that fails from the moment on at which one of them came: whoever writes it ends as where the power fails, and says so.
pub(crate) struct UntilAsked<'a>(pub(crate) StoreIo<'a>);

impl UntilAsked<'_> {
    fn go_on(&mut self) -> io::Result<&mut Self> {
        // No `Interrupted`, which is tried again.
        if asked() { Err(io::Error::other("interrupted")) } else { Ok(self) }
    }
}

impl ReadAt for UntilAsked<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.go_on()?.0.read_at(offset, buf)
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        self.0.size_bytes()
    }
}

impl WriteAt for UntilAsked<'_> {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.go_on()?.0.write_at(offset, buf)
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.go_on()?.0.write_zeroes(offset, len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.go_on()?.0.flush()
    }
}
