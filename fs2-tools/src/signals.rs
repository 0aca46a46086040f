//! Signals that ask for an orderly end.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use fs2_block::{ReadAt, WriteAt};
use fs2_store::StoreIo;
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
