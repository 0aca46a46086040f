//! That a flush failed, remembered outside the process for a daemon that takes over, should this one die.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use fs2_store::Seldom;

/// Remembers it once. From then on every failed request comes by here, in the middle of the engine's work: of a device that is gone, all do.
pub(crate) struct LostWrites {
    device: String,
    keep: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    kept: AtomicBool,
    failures: Seldom,
}

impl LostWrites {
    /// Of this device, by what keeps it.
    pub(crate) fn new(
        device: String,
        keep: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> LostWrites {
        LostWrites { device, keep: Box::new(keep), kept: AtomicBool::new(false), failures: Seldom::default() }
    }

    /// A flush failed. What cannot be kept is tried again the next time.
    pub(crate) fn remember(&self) {
        if self.kept.load(Ordering::SeqCst) {
            return;
        }
        match (self.keep)() {
            Ok(()) => self.kept.store(true, Ordering::SeqCst),
            Err(e) => self.failures.line(|more| {
                tracing::error!("that a flush of {} failed cannot be remembered: {e}{more}", self.device);
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Each failed read behind a failed flush wrote the file anew, or a line of the log, under the engine's lock.
    #[test]
    fn it_is_kept_once_and_tried_until_it_is() {
        let tries = Arc::new(AtomicU32::new(0));
        let tried = tries.clone();
        let full = move || match tried.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        let lost = LostWrites::new("a disk".into(), full);
        (0..100).for_each(|_| lost.remember());
        assert_eq!(tries.load(Ordering::SeqCst), 3);
    }
}
