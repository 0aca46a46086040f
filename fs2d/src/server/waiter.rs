//! Who waits for an answer, and how it gets there.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use fs2_store::{AlignedBuf, Pipe};

use crate::service::{Answer, Completion, Errno, Sink, Tag};

/// Who waits for a request.
pub(super) enum Waiter {
    /// A closure.
    Completion(Completion),
    /// A lane's sink, the request's tag there, and what has no place in its buffer: what a read brought, or a write's payload.
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

thread_local! {
    /// Room for an answer that a thread gives to a sink not its own, between one and the next.
    static ONE: Cell<Vec<Answer>> = const { Cell::new(Vec::new()) };

    /// One call at a time runs on a thread.
    pub(super) static CALL: Arc<CallSlot> = Arc::default();
}
