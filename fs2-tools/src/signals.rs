//! Signals that ask for an orderly end.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The last one that came; 0: none.
static ASKED: AtomicI32 = AtomicI32::new(0);

const CAUGHT: [Signal; 3] = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT];

extern "C" fn ask(signal: std::ffi::c_int) {
    ASKED.store(signal, Ordering::Relaxed);
}

/// From now on SIGTERM, SIGHUP and SIGINT end nothing by themselves: [`asked`] tells of them.
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
        caught.0.push((signal, unsafe { sigaction(signal, &action) }?));
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
