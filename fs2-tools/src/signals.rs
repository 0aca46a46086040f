//! Signals that ask for an orderly end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_: std::ffi::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on SIGTERM, SIGHUP and SIGINT end nothing by themselves: [`asked`] tells of them.
///
/// # Errors
/// What the system says.
pub(crate) fn catch() -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(ask), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        // SAFETY: the handler stores into an atomic and does nothing else, which a handler may.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Whether one of them came.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
