//! The machine, run by a thread that brought one request and wants back to its input.
//!
//! Invariant B1: the thread waits for no device. What it dispatched and cannot do from memory it hands to a worker.

use std::sync::MutexGuard;

use fs2_block::Nanos;

use super::lane::ROUNDS;
use super::{Core, Server};

impl Server {
    /// Dispatches, does what memory can do, completes and answers, until nothing may start or the rounds are used up.
    pub(super) fn run_from_memory<'a>(&'a self, mut core: MutexGuard<'a, Core>, mut now: Nanos) {
        for round in 0.. {
            let mut job = self.dispatch(&mut core, now);
            if round == ROUNDS
                && let Some(job) = job.take()
            {
                // Keeps S5: its worker dispatches what else may start.
                self.hand(&mut core, job);
            }
            // After the dispatch: one that needs no I/O answers at once.
            let owed = self.next_answer(&mut core).map(|first| self.with_more(first, &mut core));
            if job.is_none() {
                self.calm(&core);
            }
            // Answers change nothing here, so who has nothing more to do need not come back (S5).
            drop(core);
            owed.into_iter().flatten().for_each(|(waiter, buffer, result)| waiter.answer(buffer, result));
            let Some(mut job) = job else { return };
            let done = self.try_now(&mut job);
            core = self.lock();
            now = self.now();
            match done {
                Some(result) => self.complete(&mut core, now, job, result),
                // Keeps B1.
                None => self.hand(&mut core, job),
            }
        }
    }
}
