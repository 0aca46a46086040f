//! Replies on their way to one client, and the bound on what that client has in flight.
//!
//! Whoever completes a request puts the reply here. If nobody is writing, it becomes the writer and sends
//! all that has gathered in one system call, again and again until nothing is left; so a batch of
//! completions costs one call and no thread is woken for it.
//!
//! Invariants:
//! O1: at most one thread writes to the socket, the one that set `writing`.
//! O2: `requests` and `bytes` count what was admitted and whose reply is neither sent nor dropped; they are
//!     within the limits, but that a single request is always admitted. What of `bytes` is beyond
//!     [`FREE_BYTES`] was taken from the server's budget.
//! O3: only the connection's own threads wait for the client. Any other thread sends what the socket
//!     takes at once and leaves the rest to the connection's writer thread.
//! O5: the connection's writer thread waits no longer than the socket's timeout for a client that takes nothing: then
//!     the connection is dead, and what it held is free.
//! O4: a reply in the queue has a writer, or was put there by the connection's reader, which writes
//!     before it next waits, or the connection is dead and the queue empty.
//! O6: a reply in a pipe is alone in it, and a pipe is used again only when it is empty. It costs its request's bytes as
//!     one in a buffer does, until all of it is in the socket; what is in the socket, the socket's own bound counts.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fs2_store::{AlignedBuf, Pipe, Seldom};
use smallvec::SmallVec;

use super::budget::{Budget, FREE_BYTES};
use super::codec::ReplyHead;
use super::connection::{data_head, reply_to};
use super::pipes::Pipes;
use super::pool::Pool;
use super::socket::Socket;
use crate::service::{Answer, Sink, Tag};

/// Replies sent by one call: two pieces each, well below the kernel's limit of 1024. A guess; the gain
/// over one call each is had at ten.
const BATCH_REPLIES: usize = 64;

/// Bytes after which a batch is closed, so that what has been sent of a long queue is counted as sent.
/// Guess: several times what a socket holds.
const BATCH_BYTES: usize = 1 << 20;

/// How long a reply completed on the reader's own thread may wait for company. Guess: ten times what a
/// send costs, a tenth of what a fast device takes.
const COMPANY_WAIT: Duration = Duration::from_micros(50);

/// Rounds a foreign thread writes for this client before it hands over: it has its own to do.
const FOREIGN_ROUNDS: u32 = 8;

/// Clients that got no writer: one of those that come again and again may be among them each time.
static THREADLESS: Seldom = Seldom::new();

thread_local! {
    /// The address of the outbox whose reader this thread is, or 0.
    static READER_OF: Cell<usize> = const { Cell::new(0) };

    /// Room for the buffers that answers come with and replies do without.
    static DONE_WITH: Cell<Vec<AlignedBuf>> = const { Cell::new(Vec::new()) };
}

/// What follows a reply's head.
pub(super) enum Tail {
    None,
    Text(&'static str),
    Data(AlignedBuf),
    Bytes(Vec<u8>),
    /// Head and data, without what was sent of them.
    Lent(Pipe),
}

/// One reply.
pub(super) struct Reply {
    pub(super) head: ReplyHead,
    pub(super) tail: Tail,
    /// Bytes its request was admitted with.
    pub(super) cost_bytes: u64,
}

impl Reply {
    /// What is to be sent from memory.
    fn pieces(&self) -> [&[u8]; 2] {
        let tail: &[u8] = match &self.tail {
            Tail::None => &[],
            Tail::Text(s) => s.as_bytes(),
            Tail::Data(b) => b,
            Tail::Bytes(b) => b,
            Tail::Lent(_) => return [&[], &[]],
        };
        [self.head.bytes(), tail]
    }

    fn len(&self) -> usize {
        match &self.tail {
            Tail::Lent(pipe) => pipe.len(),
            _ => self.pieces().iter().map(|p| p.len()).sum(),
        }
    }
}

/// Bounds on one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) requests_max: usize,
    pub(super) bytes_max: u64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Reply>,
    /// An empty queue, for its memory.
    spare: VecDeque<Reply>,
    /// Room for the buffers of replies that were sent, for the writer.
    used: Vec<AlignedBuf>,
    /// Bytes of the queue's first reply that were sent already; a pipe knows that itself.
    sent_of_first: usize,
    writing: bool,
    /// `writing` belongs to the writer thread, which may not have seen it yet.
    handed_over: bool,
    writer_started: bool,
    /// When the oldest reply that waits for company came.
    waiting_since: Option<Instant>,
    requests: usize,
    bytes: u64,
    /// Nothing more is sent; replies are dropped.
    dead: bool,
    /// It is dead because the client took nothing.
    took_nothing: bool,
    /// Nothing more is admitted.
    stopping: bool,
    /// The writer thread may go.
    finished: bool,
    /// Threads that wait for a change.
    waiters: usize,
}

/// See the [module](self).
pub(super) struct Outbox {
    pub(super) socket: Socket,
    pub(super) pool: Arc<Pool>,
    pipes: Arc<Pipes>,
    bounds: Bounds,
    budget: Arc<Budget>,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether reads are answered with structured replies.
    structured: AtomicBool,
}

impl Outbox {
    pub(super) fn new(
        socket: Socket,
        bounds: Bounds,
        pool: Arc<Pool>,
        pipes: Arc<Pipes>,
        budget: Arc<Budget>,
    ) -> Arc<Outbox> {
        Arc::new(Outbox {
            socket,
            pool,
            pipes,
            bounds,
            budget,
            state: Mutex::default(),
            changed: Condvar::new(),
            structured: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics between two writes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiters += 1;
        state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        state
    }

    /// Wakes whoever waits; nobody mostly, and that call is not free.
    fn tell(&self, s: &State) {
        if s.waiters > 0 {
            self.changed.notify_all();
        }
    }

    /// Makes the calling thread the connection's reader: replies it completes itself wait for company
    /// until its next [`Outbox::flush`]. `structured`: as the client wishes its replies.
    pub(super) fn adopt_reader(&self, structured: bool) {
        self.structured.store(structured, Ordering::Relaxed);
        READER_OF.set(std::ptr::from_ref(self).addr());
    }

    /// Counts a request of `cost_bytes` if it is within the bounds now; `None` where it is not, false where
    /// the connection ends.
    pub(super) fn try_admit(&self, cost_bytes: u64) -> Option<bool> {
        let mut s = self.lock();
        if s.dead || s.stopping {
            return Some(false);
        }
        let counted = counted(s.bytes + cost_bytes) - counted(s.bytes);
        if !self.fits(&s, cost_bytes) || counted > 0 && !self.budget.try_take(counted) {
            return None;
        }
        s.requests += 1;
        s.bytes += cost_bytes;
        Some(true)
    }

    fn fits(&self, s: &State, cost_bytes: u64) -> bool {
        let fits = s.requests < self.bounds.requests_max && s.bytes + cost_bytes <= self.bounds.bytes_max;
        fits || s.requests == 0
    }

    /// Waits until a request of `cost_bytes` is within the bounds, and counts it; false where the
    /// connection ends instead, also where the client left during the wait. For the reader alone.
    pub(super) fn admit(self: &Arc<Self>, cost_bytes: u64) -> bool {
        let (mut turn, mut waited) = (None, false);
        let mut s = self.lock();
        loop {
            if s.dead || s.stopping || waited && self.socket.peer_gone() {
                return false;
            }
            let fits = self.fits(&s, cost_bytes);
            if fits {
                // Less than at the last look where replies were sent meanwhile.
                let counted = counted(s.bytes + cost_bytes) - counted(s.bytes);
                if counted == 0 || self.budget.take(counted, &mut turn) {
                    s.requests += 1;
                    s.bytes += cost_bytes;
                    return true;
                }
            }
            waited = true;
            // Keeps O4: what would free a slot may be in the queue.
            if !s.writing && !s.queue.is_empty() {
                s = self.write(s);
            } else if fits && let Some(turn) = &turn {
                drop(s);
                turn.wait();
                s = self.lock();
            } else {
                s = self.wait(s);
            }
        }
    }

    /// Keeps O2 when admitted requests have ended.
    fn release(&self, s: &mut State, requests: usize, cost_bytes: u64) {
        let before = counted(s.bytes);
        s.requests -= requests;
        s.bytes -= cost_bytes;
        if before > counted(s.bytes) {
            self.budget.give(before - counted(s.bytes));
        }
    }

    /// Takes the reply to an admitted request, and sends it unless another thread is at it.
    pub(super) fn push(self: &Arc<Self>, reply: Reply) {
        let mut s = self.lock();
        self.put(&mut s, reply);
        self.sent_soon(s);
    }

    fn put(&self, s: &mut State, reply: Reply) {
        if s.dead {
            self.release(s, 1, reply.cost_bytes);
            self.tell(s);
        } else {
            s.queue.push_back(reply);
        }
    }

    /// Keeps O4 after replies were put into the queue.
    fn sent_soon(self: &Arc<Self>, mut s: MutexGuard<'_, State>) {
        if s.writing || s.queue.is_empty() {
            return;
        }
        if READER_OF.get() == Arc::as_ptr(self).addr() && s.queue.len() < BATCH_REPLIES {
            match s.waiting_since {
                None => {
                    s.waiting_since = Some(Instant::now());
                    return;
                }
                Some(since) if since.elapsed() < COMPANY_WAIT => return,
                Some(_) => {}
            }
        }
        drop(self.write(s));
    }

    /// Gives up admitted requests that get no reply.
    pub(super) fn withdraw(&self, requests: usize, cost_bytes: u64) {
        let mut s = self.lock();
        self.release(&mut s, requests, cost_bytes);
        self.tell(&s);
    }

    /// Sends what waits for company.
    pub(super) fn flush(self: &Arc<Self>) {
        let s = self.lock();
        if !s.writing && !s.queue.is_empty() {
            drop(self.write(s));
        }
    }

    /// Becomes the writer of a thread that must not wait.
    fn write<'a>(self: &'a Arc<Self>, mut s: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        s.writing = true;
        for _ in 0..FOREIGN_ROUNDS {
            let all;
            (s, all) = self.round(s, false);
            if s.queue.is_empty() {
                s.writing = false;
                return s;
            }
            if !all {
                break;
            }
        }
        // Keeps O3.
        s.handed_over = true;
        if !s.writer_started {
            s.writer_started = true;
            let this = self.clone();
            let spawned =
                std::thread::Builder::new().name("nbd-writer".into()).spawn(move || this.writer_thread());
            if let Err(e) = spawned {
                THREADLESS.line(|more| {
                    tracing::warn!("no thread for a slow NBD client, its connection ends: {e}{more}");
                });
                self.die(&mut s);
            }
        }
        self.tell(&s);
        s
    }

    fn writer_thread(self: Arc<Self>) {
        let mut s = self.lock();
        loop {
            if s.handed_over {
                s.handed_over = false;
                while !s.queue.is_empty() {
                    (s, _) = self.round(s, true);
                }
                s.writing = false;
            } else if s.finished || s.dead {
                return;
            } else {
                s = self.wait(s);
            }
        }
    }

    /// Sends one batch outside the lock. False where the socket took only a part of it.
    fn round<'a>(&'a self, mut s: MutexGuard<'a, State>, wait: bool) -> (MutexGuard<'a, State>, bool) {
        s.waiting_since = None;
        let (mut n, mut bytes) = (0, 0);
        for reply in s.queue.iter().take(BATCH_REPLIES) {
            if bytes >= BATCH_BYTES {
                break;
            }
            (n, bytes) = (n + 1, bytes + reply.len());
        }
        let (mut batch, mut used) = (std::mem::take(&mut s.spare), std::mem::take(&mut s.used));
        if n == s.queue.len() {
            std::mem::swap(&mut batch, &mut s.queue);
        } else {
            batch.extend(s.queue.drain(..n));
        }
        let mut skip = s.sent_of_first;
        drop(s);

        let before = (batch.len(), batch.iter().map(|r| r.cost_bytes).sum::<u64>());
        let result = self.send_batch(&mut batch, &mut skip, &mut used, wait);
        let left = (batch.len(), batch.iter().map(|r| r.cost_bytes).sum::<u64>());

        let mut s = self.lock();
        self.release(&mut s, before.0 - left.0, before.1 - left.1);
        s.sent_of_first = skip;
        let all = batch.is_empty();
        while let Some(reply) = batch.pop_back() {
            s.queue.push_front(reply);
        }
        (s.spare, s.used) = (batch, used);
        match result {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock && !wait => {}
            Err(e) => {
                // Keeps O5.
                s.took_nothing |= e.kind() == ErrorKind::WouldBlock && !s.dead;
                self.die(&mut s);
            }
        }
        if s.dead {
            // It may have died while the batch was out.
            self.die(&mut s);
        }
        self.tell(&s);
        (s, all)
    }

    fn die(&self, s: &mut State) {
        s.dead = true;
        let cost_bytes = s.queue.iter().map(|r| r.cost_bytes).sum();
        self.release(s, s.queue.len(), cost_bytes);
        s.queue.clear();
        s.sent_of_first = 0;
        self.socket.close();
        self.tell(s);
    }

    /// Ends the connection now: queued and later replies are dropped.
    pub(super) fn kill(&self) {
        self.die(&mut self.lock());
    }

    /// Admits nothing more and ends what arrives; what was admitted is still answered.
    pub(super) fn stop(&self) {
        let mut s = self.lock();
        s.stopping = true;
        self.socket.close_incoming();
        self.tell(&s);
    }

    /// Whether [`Outbox::stop`] or [`Outbox::kill`] was called, or the client is gone.
    pub(super) fn is_stopping(&self) -> bool {
        let s = self.lock();
        s.stopping || s.dead
    }

    /// Whether the client has left, or was sent away.
    pub(super) fn is_client_gone(&self) -> bool {
        // Looked at first: after a stop, which ends what arrives, every client looks as if it had left.
        let gone = self.socket.peer_gone();
        let s = self.lock();
        s.dead || gone && !s.stopping
    }

    /// Waits until every admitted request is answered (or its reply dropped), then ends the connection. True where
    /// the client took nothing for too long.
    pub(super) fn finish(self: &Arc<Self>) -> bool {
        self.flush();
        let mut s = self.lock();
        while s.requests > 0 {
            s = self.wait(s);
        }
        s.finished = true;
        self.die(&mut s);
        READER_OF.set(0);
        s.took_nothing
    }

    /// Sends the batch, removing from it what has gone out whole, whose buffers are put into `used`; `skip` is what has gone
    /// out of its first.
    fn send_batch(
        &self,
        batch: &mut VecDeque<Reply>,
        skip: &mut usize,
        used: &mut Vec<AlignedBuf>,
        wait: bool,
    ) -> io::Result<()> {
        while let Some(first) = batch.front_mut() {
            if let Tail::Lent(pipe) = &mut first.tail {
                while !pipe.is_empty() {
                    let sent = match wait {
                        true => self.socket.send_pipe_patiently(pipe),
                        false => self.socket.send_pipe(pipe),
                    };
                    if sent? == 0 {
                        return Err(ErrorKind::WriteZero.into());
                    }
                }
                if let Some(Reply { tail: Tail::Lent(pipe), .. }) = batch.pop_front() {
                    self.pipes.put(pipe);
                }
                continue;
            }
            // An array would be filled for each reply.
            let mut pieces = SmallVec::<[IoSlice<'_>; 2 * BATCH_REPLIES]>::new();
            let mut passed = *skip;
            for reply in batch.iter().take_while(|r| !matches!(r.tail, Tail::Lent(_))) {
                for piece in reply.pieces() {
                    let cut = passed.min(piece.len());
                    passed -= cut;
                    if cut < piece.len() {
                        pieces.push(IoSlice::new(&piece[cut..]));
                    }
                }
            }
            let taken =
                if wait { self.socket.send_patiently(&pieces) } else { self.socket.send(&pieces, false) };
            drop(pieces);
            let mut sent = *skip + taken?;
            while let Some(first) = batch.front().filter(|r| !matches!(r.tail, Tail::Lent(_))).map(Reply::len)
                && sent >= first
            {
                sent -= first;
                if let Some(Reply { tail: Tail::Data(buffer), .. }) = batch.pop_front() {
                    used.push(buffer);
                }
            }
            *skip = sent;
            self.pool.put(used);
        }
        Ok(())
    }

    fn take_answers(self: &Arc<Self>, answers: &mut Vec<Answer>) {
        let structured = self.structured.load(Ordering::Relaxed);
        let mut used = DONE_WITH.take();
        let mut s = self.lock();
        for answer in answers.drain(..) {
            let (reply, buffer) = reply_to(answer, structured);
            self.put(&mut s, reply);
            if let Some(buffer) = buffer {
                used.push(buffer);
            }
        }
        self.sent_soon(s);
        self.pool.put(&mut used);
        DONE_WITH.set(used);
    }

    #[cfg(test)]
    fn in_flight(&self) -> (usize, u64) {
        let s = self.lock();
        (s.requests, s.bytes)
    }
}

/// What of a connection's bytes is taken from the server's budget.
fn counted(bytes: u64) -> u64 {
    bytes.saturating_sub(FREE_BYTES)
}

/// A sink is behind an `Arc`, which [`Outbox`]'s writer needs for itself: so it is this that answers go to.
pub(super) struct Answers(pub(super) Arc<Outbox>);

impl Sink for Answers {
    fn answers(&self, answers: &mut Vec<Answer>) {
        self.0.take_answers(answers);
    }

    fn pipe(&self, tag: Tag, len: usize) -> Option<Pipe> {
        if !self.0.socket.takes_pages() {
            return None;
        }
        let mut pipe = self.0.pipes.take()?;
        let head = data_head(tag, len, self.0.structured.load(Ordering::Relaxed));
        // In one pipe with its data: a client that is woken by a head finds nothing behind it, and sleeps again.
        match pipe.put(head.bytes()) {
            Ok(()) if pipe.takes(len) => Some(pipe),
            _ => {
                self.0.pipes.put(pipe);
                None
            }
        }
    }

    fn unused(&self, pipe: Pipe) {
        self.0.pipes.put(pipe);
    }
}

#[cfg(test)]
mod tests;
