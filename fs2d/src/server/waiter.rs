//! Who waits for an answer, and how it gets there.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fs2_store::{AlignedBuf, Pipe};

use super::{Core, Server};
use crate::service::{Answer, Completion, Errno, Sink, Tag};

/// Who waits for a request.
pub(super) enum Waiter {
    /// A closure.
    Completion(Completion),
    /// A lane's sink, the request's tag there, and what a read brought without a buffer.
    Sink(Arc<dyn Sink>, Tag, Option<Pipe>),
    /// A thread in [`Service::call`].
    Caller(Arc<CallSlot>),
}

/// An answer on its way: to whom, the memory, how it ended.
pub(super) type Owed = (Waiter, AlignedBuf, Result<(), Errno>);

impl Waiter {
    pub(super) fn answer(self, buffer: AlignedBuf, result: Result<(), Errno>) {
        match self {
            Waiter::Completion(done) => done(buffer, result),
            Waiter::Sink(sink, tag, lent) => {
                let mut one = ONE.take();
                one.push(Answer { tag, buffer, result, lent });
                sink.answers(&mut one);
                ONE.set(one);
            }
            Waiter::Caller(slot) => slot.answer(buffer, result),
        }
    }
}

/// Where a thread in [`Service::call`] finds its answer.
#[derive(Default)]
pub(super) struct CallSlot {
    pub(super) answered: AtomicBool,
    answer: Mutex<Option<(AlignedBuf, Result<(), Errno>)>>,
    told: Condvar,
}

impl CallSlot {
    fn answer(&self, buffer: AlignedBuf, result: Result<(), Errno>) {
        let mut slot = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some((buffer, result));
        self.answered.store(true, Ordering::Release);
        drop(slot);
        self.told.notify_one();
    }

    pub(super) fn wait(&self) -> (AlignedBuf, Result<(), Errno>) {
        let mut slot = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match slot.take() {
                Some(answer) => {
                    self.answered.store(false, Ordering::Relaxed);
                    return answer;
                }
                None => slot = self.told.wait(slot).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Server {
    /// Hands answers to their clients, outside the lock.
    pub(super) fn answer<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        while let Some(first) = self.next_answer(&mut core) {
            core = self.tell(first, core);
        }
        core
    }

    /// The same from `first` on, once.
    pub(super) fn tell<'a>(&'a self, first: Owed, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        let owed = self.with_more(first, &mut core);
        drop(core);
        owed.for_each(|(waiter, buffer, result)| waiter.answer(buffer, result));
        self.lock()
    }

    /// All answers after `first`, which mostly is the only one: then nothing is allocated.
    pub(super) fn with_more(&self, first: Owed, core: &mut Core) -> impl Iterator<Item = Owed> + use<> {
        let mut more = Vec::new();
        while let Some(answer) = self.next_answer(core) {
            more.push(answer);
        }
        std::iter::once(first).chain(more)
    }

    pub(super) fn next_answer(&self, core: &mut Core) -> Option<Owed> {
        loop {
            let reply = core.volume.poll_reply()?;
            if let Some(client) = core.clients.remove(reply.request) {
                let buffer = client.buffer.unwrap_or_else(|| AlignedBuf::zeroed(0));
                return Some((client.waiter, buffer, reply.result.map_err(Errno)));
            }
        }
    }
}

thread_local! {
    /// Room for an answer that a thread gives to a sink not its own, between one and the next.
    static ONE: Cell<Vec<Answer>> = const { Cell::new(Vec::new()) };

    /// One call at a time runs on a thread.
    pub(super) static CALL: Arc<CallSlot> = Arc::default();
}
