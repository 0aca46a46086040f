//! The threads that run the machine when nobody brings a request, and what they share with those that do.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fs2_block::Nanos;

use super::access::Job;
use super::waiter::CallSlot;
use super::{Core, NEVER, Server};

/// A worker looks after so long at the latest, whatever the machine says.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

impl Server {
    /// What a worker does.
    pub(super) fn work(&self) {
        let mut core = self.lock();
        loop {
            core = self.run(core, None);
            if core.stopping {
                return;
            }
            core = self.rest(core);
            if core.at_device == 0 {
                let now = self.now();
                core.volume.handle_timeout(now);
            }
        }
    }

    /// Runs whatever is ready, until nothing is, or until `mine` was answered: then others go on, or a
    /// client under load would wait for everyone else's I/O.
    pub(super) fn run<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        mine: Option<&CallSlot>,
    ) -> MutexGuard<'a, Core> {
        loop {
            core = self.answer(core);
            let answered = mine.is_some_and(|m| m.answered.load(Ordering::Acquire));
            let job = match core.handed.pop_front() {
                // Who wants to go home leaves it to whom it was handed.
                Some(job) if answered => {
                    core.handed.push_front(job);
                    None
                }
                Some(job) => Some(job),
                None => self.dispatch(&mut core, self.now()),
            };
            let Some(mut job) = job else {
                // A dispatch that needs no I/O answers at once. What others bring meanwhile is looked for again (S5).
                let Some(first) = self.next_answer(&mut core) else { return core };
                core = self.tell(first, core);
                continue;
            };
            if answered {
                // Keeps S5.
                self.hand(&mut core, job);
                self.fill(&mut core, self.now());
                return self.answer(core);
            }
            self.fill(&mut core, self.now());
            drop(core);
            let result = self.perform(&mut job);
            core = self.lock();
            self.complete(&mut core, self.now(), job, result);
            self.calm(&core);
        }
    }

    /// Waits for work, or until it is time to look, unless another worker waits for that already (S6).
    fn rest<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        // Keeps S5: whoever handed something over while nobody was idle has woken nobody.
        debug_assert!(core.handed.is_empty(), "{} handed over, and a worker rests", core.handed.len());
        let now = self.now();
        let look = now + self.engine_time(LOOK_AT_LEAST_EVERY);
        let at = match core.volume.poll_timeout() {
            Some(at) => at.min(look),
            // Requests are under way. Who ends the last of them does not tell.
            None if core.at_device > 0 => look.min(now + core.volume.config().idle_after),
            None => look,
        };
        core.idle += 1;
        let first = core.wakes_at > at || core.wakes_at <= now;
        if first {
            core.wakes_at = at;
            let real = Duration::from_nanos((at.since(now).0 as f64 * self.drive.time_scale) as u64 + 1);
            core = self.work.wait_timeout(core, real).unwrap_or_else(|_| std::process::abort()).0;
            if core.wakes_at == at {
                core.wakes_at = NEVER;
            }
        } else {
            core = self.work.wait(core).unwrap_or_else(|_| std::process::abort());
        }
        core.idle -= 1;
        core
    }

    fn engine_time(&self, real: Duration) -> Nanos {
        Nanos((real.as_nanos() as f64 / self.drive.time_scale) as u64)
    }

    /// Wakes a worker, where one rests.
    pub(super) fn wake(&self, core: &Core) {
        // Nobody waits: a system call for nothing.
        if core.idle > 0 {
            self.work.notify_one();
        }
    }

    /// Leaves to a worker what was dispatched.
    pub(super) fn hand(&self, core: &mut Core, job: Job) {
        core.handed.push_back(job);
        self.wake(core);
    }

    /// Leaves to workers what there is room for at the device: each does one I/O at a time.
    pub(super) fn fill(&self, core: &mut Core, now: Nanos) {
        while let Some(job) = self.dispatch(core, now) {
            self.hand(core, job);
        }
    }

    /// Keeps S6 when the last I/O has ended: idle time begins now, and nobody may be waiting for its end.
    pub(super) fn calm(&self, core: &Core) {
        if core.volume.is_detaching() {
            self.work.notify_all();
        } else if core.at_device == 0
            && core.idle > 0
            && core.volume.poll_timeout().is_some_and(|at| at < core.wakes_at)
        {
            self.work.notify_one();
        }
    }
}
