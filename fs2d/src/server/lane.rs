//! One thread's way into the machine: many requests under one lock, and their I/O on that thread.
//!
//! Invariants:
//!
//! - L1: a lane waits for a device only in [`Lane::wait`]. What it dispatched and cannot do from memory it begins on
//!   its ring, or hands to a worker.
//! - L2: answers are given outside the lock, those for the lane's own sink together.
//! - L3: what is lent to a client is in its pipe before the machine hears that the read has ended: what the machine does
//!   next cannot be what such a read finds instead of its file's pages, only what is written into them.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, MutexGuard};

use fs2_block::Nanos;
use fs2_engine::{IoData, IoOp, Target};
use fs2_store::{AlignedBuf, Ring, RingEnd, RingIo, RingOp};

use super::access::Job;
use super::waiter::Owed;
use super::{Core, Server, Waiter};
use crate::service::{Answer, ClientRequest, Errno, Lane, Sink, Tag};

/// I/Os dispatched under one lock. A guess: twice what most clients have in flight; more would make the
/// first wait for the last.
const BATCH: usize = 64;

/// Rounds of dispatch, I/O and completion in one run: then the lane's client is looked at again.
pub(super) const ROUNDS: usize = 8;

pub(super) struct MachineLane {
    server: Arc<Server>,
    work: Work,
}

/// What the lane has in hand.
struct Work {
    sink: Arc<dyn Sink>,
    pushed: Vec<(ClientRequest, Tag)>,
    /// Dispatched, and by which tag its client knows what may be lent to it.
    jobs: Vec<(Job, Option<Tag>)>,
    ring: Option<Box<dyn Ring>>,
    /// Jobs on the ring, by their tag there; their buffers are with it.
    flying: Vec<Option<Job>>,
    unused: Vec<usize>,
    ended: Vec<RingEnd>,
    done: Vec<(Job, Result<(), i32>)>,
    /// What memory did not do in a round; empty between two.
    left: VecDeque<Job>,
    own: Vec<Answer>,
    others: Vec<Owed>,
}

impl MachineLane {
    pub(super) fn new(server: Arc<Server>, sink: Arc<dyn Sink>) -> MachineLane {
        // A head that turns is fed by the workers alone.
        let ring = if server.drive.rotational { None } else { server.store.ring() };
        let work = Work {
            sink,
            pushed: Vec::new(),
            jobs: Vec::new(),
            ring,
            flying: Vec::new(),
            unused: Vec::new(),
            ended: Vec::new(),
            done: Vec::new(),
            left: VecDeque::new(),
            own: Vec::new(),
            others: Vec::new(),
        };
        MachineLane { server, work }
    }

    /// Runs the machine on with what the ring has ended; whether `input` can be read.
    fn reap(&mut self, input: Option<BorrowedFd<'_>>, wait: bool) -> bool {
        let MachineLane { server, work } = self;
        let Some(ring) = work.ring.as_mut().filter(|ring| ring.pending() > 0) else { return false };
        let ready = ring.wait(input, wait, &mut work.ended);
        work.land(server);
        if work.done.is_empty() {
            return ready;
        }
        let mut core = server.lock();
        let now = server.now();
        for (job, result) in work.done.drain(..) {
            server.complete(&mut core, now, job, result);
        }
        work.go(server, core, now);
        ready
    }
}

impl Work {
    fn owe(&mut self, waiter: Waiter, buffer: AlignedBuf, result: Result<(), Errno>) {
        match waiter {
            Waiter::Sink(sink, tag, lent) if Arc::ptr_eq(&sink, &self.sink) => {
                self.own.push(Answer { tag, buffer, result, lent });
            }
            waiter => self.others.push((waiter, buffer, result)),
        }
    }

    fn gather(&mut self, server: &Server, core: &mut Core) {
        while let Some((waiter, buffer, result)) = server.next_answer(core) {
            self.owe(waiter, buffer, result);
        }
    }

    /// Keeps L2: the lock is not held.
    fn give(&mut self) {
        if !self.own.is_empty() {
            self.sink.answers(&mut self.own);
        }
        for (waiter, buffer, result) in self.others.drain(..) {
            waiter.answer(buffer, result);
        }
    }

    /// Begins a job on the ring; gives back what is not for it.
    fn fly(&mut self, mut job: Job) -> Option<Job> {
        let Some(ring) = &mut self.ring else { return Some(job) };
        let op = match (job.io.op, &job.io.data) {
            _ if job.io.target != Target::Volume => return Some(job),
            (IoOp::Read, _) => RingOp::Read,
            (IoOp::Write { fua }, IoData::Client(_)) => RingOp::Write { fua },
            _ => return Some(job),
        };
        let at = self.unused.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        let buffer = std::mem::replace(&mut job.buffer, AlignedBuf::zeroed(0));
        match ring.begin(RingIo { tag: at as u64, op, offset: job.io.extent.offset(), buffer }) {
            Ok(()) => {
                self.flying[at] = Some(job);
                None
            }
            Err(refused) => {
                self.unused.push(at);
                job.buffer = refused.buffer;
                Some(job)
            }
        }
    }

    /// What the ring has ended is done.
    fn land(&mut self, server: &Server) {
        for end in self.ended.drain(..) {
            let at = end.tag as usize;
            let Some(mut job) = self.flying.get_mut(at).and_then(Option::take) else { continue };
            self.unused.push(at);
            job.buffer = end.buffer;
            let result = end.result.map_err(|e| server.failed_below(&job.io, &e));
            self.done.push((job, result));
        }
    }

    /// Dispatches, does what memory can do, completes, and again.
    fn go<'a>(&mut self, server: &'a Server, mut core: MutexGuard<'a, Core>, mut now: Nanos) {
        if server.tries || self.ring.is_some() {
            let mut nothing_left = false;
            for _ in 0..ROUNDS {
                while self.jobs.len() < BATCH
                    && let Some(job) = server.dispatch(&mut core, now)
                {
                    let to_lend = server.may_lend(&core, &job, &self.sink);
                    self.jobs.push((job, to_lend));
                }
                self.gather(server, &mut core);
                if self.jobs.is_empty() {
                    nothing_left = true;
                    break;
                }
                drop(core);
                self.give();
                for (mut job, to_lend) in self.jobs.drain(..) {
                    // Keeps L3.
                    let lent = to_lend.and_then(|tag| server.lend(&job, tag, &*self.sink));
                    let done = if lent.is_some() {
                        job.lent = lent;
                        Some(Ok(()))
                    } else {
                        server.try_now(&mut job)
                    };
                    match done {
                        Some(result) => self.done.push((job, result)),
                        None => self.left.push_back(job),
                    }
                }
                // What the ring does not take either stays, for a worker.
                let mut left = std::mem::take(&mut self.left);
                for _ in 0..left.len() {
                    let job = left.pop_front().and_then(|job| self.fly(job));
                    left.extend(job);
                }
                core = server.lock();
                now = server.now();
                for (job, result) in self.done.drain(..) {
                    server.complete(&mut core, now, job, result);
                }
                for job in left.drain(..) {
                    // Keeps L1.
                    server.hand(&mut core, job);
                }
                self.left = left;
            }
            // Keeps S5 where the rounds are used up.
            if !nothing_left && let Some(job) = server.dispatch(&mut core, now) {
                server.hand(&mut core, job);
            }
            server.calm(&core);
        } else {
            server.fill(&mut core, now);
        }
        self.gather(server, &mut core);
        drop(core);
        self.give();
    }
}

impl Lane for MachineLane {
    fn push(&mut self, request: ClientRequest, tag: Tag) {
        self.work.pushed.push((request, tag));
    }

    fn run(&mut self) {
        let MachineLane { server, work } = self;
        if work.pushed.is_empty() {
            return;
        }
        let mut core = server.lock();
        let now = server.now();
        let mut pushed = std::mem::take(&mut work.pushed);
        for (request, tag) in pushed.drain(..) {
            let waiter = Waiter::Sink(work.sink.clone(), tag, None);
            if let Err((waiter, buffer, errno)) = server.take(&mut core, now, request, waiter) {
                work.owe(waiter, buffer, Err(errno));
            }
        }
        work.pushed = pushed;
        work.go(server, core, now);
    }

    fn is_pending(&self) -> bool {
        self.work.ring.as_ref().is_some_and(|ring| ring.pending() > 0)
    }

    fn look(&mut self) {
        self.reap(None, false);
    }

    fn wait(&mut self, input: Option<BorrowedFd<'_>>) -> bool {
        self.reap(input, true)
    }
}

impl Drop for MachineLane {
    fn drop(&mut self) {
        // A thread that panics leaves nothing at the device that the machine waits for.
        while self.is_pending() {
            self.wait(None);
        }
    }
}
