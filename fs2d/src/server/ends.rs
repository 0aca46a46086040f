//! How serving a volume ends: for good, or for a daemon that takes over.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use fs2_engine::DetachReport;

use super::{Core, Server};

impl Server {
    /// Detaches the volume: what was taken is answered, the table written, the mark set where that is
    /// allowed. Frontends have stopped before; later requests are refused.
    pub fn detach(&self) -> DetachReport {
        let mut core = self.lock();
        let now = self.now();
        core.volume.begin_detach(now);
        self.run_until(core, |core| core.volume.detached())
    }

    /// For a daemon that takes over: everything in flight ends, nothing new begins.
    /// Frontends have let their devices go before.
    pub fn suspend(&self) {
        let mut core = self.lock();
        let now = self.now();
        core.volume.begin_leaving(now);
        self.run_until(core, |core| (core.volume.has_left() && core.at_device == 0).then_some(()));
    }

    /// Runs the machine until `ended` says so, and ends the workers.
    fn run_until<'a, T>(&'a self, mut core: MutexGuard<'a, Core>, ended: impl Fn(&Core) -> Option<T>) -> T {
        let end = loop {
            core = self.run(core, None);
            if let Some(end) = ended(&core) {
                break end;
            }
            core.idle += 1;
            let wait = Duration::from_millis(50);
            core = self.work.wait_timeout(core, wait).unwrap_or_else(|_| std::process::abort()).0;
            core.idle -= 1;
        };
        self.end_workers(core);
        end
    }

    /// Ends the workers and waits for that.
    pub(super) fn end_workers(&self, mut core: MutexGuard<'_, Core>) {
        core.stopping = true;
        core.trace = None;
        drop(core);
        self.work.notify_all();
        for worker in std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner)) {
            if worker.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}
