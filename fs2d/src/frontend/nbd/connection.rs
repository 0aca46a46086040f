//! One client: the thread that reads its requests and hands them to the service.
//!
//! Invariants:
//! C1: a request is submitted only when all of its payload has arrived.
//! C2: each submitted request is answered exactly once, also when the service drops its completion.
//! C3: before the thread waits for the client, it begins the requests and sends the replies it has gathered.
//! C4: a request is not submitted long after its client left: the client may have sent it again over a new
//!     connection, and other writes after it, which the old one would undo. What is received may have lain in the
//!     socket since, while this thread or the whole daemon stood still: only a look tells that the client is there.
//! C6: the thread waits for its client only while no I/O is pending on its lane, or for both together, and looks for
//!     holes only while none is: others may wait for that I/O.
//! C5: the thread ends when the last request it submitted has ended; so connections bound memory.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs2_block::{ConnectionId, Extent, Op};
use fs2_store::{AlignedBuf, Pipe, Stretch};

use super::asking::{ASKED_MAX, Asking};
use super::codec::{
    CloseReason, Command, Export, Limits, Refusal, ReplyHead, Request, Session, Step, WireError, wire,
};
use super::input::{INPUT_BYTES, Input};
use super::outbox::{Answers, Outbox, Reply, Tail};
use crate::service::{Answer, ClientRequest, Errno, Lane, Service, Sink, Tag, lane_of};
use crate::wakeups::Wakeups;

/// How old the knowledge that the client is there may be (C4). Guess: far below any client's time-out, far
/// above what a batch of requests takes.
const PRESENCE_CHECK: Duration = Duration::from_millis(10);

/// Requests gathered before they are begun. A guess: what one receive brings of small ones.
const BATCH_REQUESTS: usize = 64;

/// Bytes gathered before they are begun: the first of them should not wait for the last. A guess.
const BATCH_BYTES: u64 = 512 << 10;

/// Extents in one block status reply: 8 KiB of them.
const EXTENTS_MAX: usize = 1024;

/// Why a connection ended.
pub(super) enum End {
    /// As the protocol has it, or not.
    Session(CloseReason),
    /// The client closed the stream.
    Eof,
    /// The server stops, or the client no longer takes replies.
    Stopped,
    /// The handshake took too long.
    HandshakeTimeout,
    /// The client took none of its answers for too long.
    TakesNothing,
    /// The client sent a part of a write, and no more for too long.
    SendsNoMore,
    /// The socket failed.
    Failed(io::Error),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Session(CloseReason::Disconnect) => f.write_str("the client said good-bye"),
            End::Session(CloseReason::Abort) => f.write_str("the client left during the handshake"),
            End::Session(CloseReason::Violation(what)) => write!(f, "against the protocol: {what}"),
            End::Eof => f.write_str("the client closed it"),
            End::Stopped => f.write_str("stopped"),
            End::HandshakeTimeout => f.write_str("the handshake took too long"),
            End::TakesNothing => f.write_str("it takes no answers (--nbd-patience)"),
            End::SendsNoMore => f.write_str("it does not go on with a write (--nbd-patience)"),
            End::Failed(e) => write!(f, "the socket failed: {e}"),
        }
    }
}

/// What a connection's thread needs.
pub(super) struct Connection {
    pub(super) outbox: Arc<Outbox>,
    pub(super) service: Arc<dyn Service>,
    pub(super) id: ConnectionId,
    pub(super) handshake_timeout: Duration,
    /// How long who holds memory may do nothing about it; `None` for ever.
    pub(super) patience: Option<Duration>,
}

impl Connection {
    /// Serves the client to its end and waits for what is still in flight.
    pub(super) fn run(&self) -> End {
        let end = self.serve();
        match &end {
            // The rest may still be wanted.
            End::Session(CloseReason::Disconnect) | End::Eof | End::Stopped => {}
            End::Session(_)
            | End::HandshakeTimeout
            | End::TakesNothing
            | End::SendsNoMore
            | End::Failed(_) => {
                self.outbox.flush();
                self.outbox.kill();
            }
        }
        // The reader sees no more of it than that the stream has ended.
        if self.outbox.finish() { End::TakesNothing } else { end }
    }

    fn serve(&self) -> End {
        let info = self.service.info();
        let export = Export {
            size_bytes: info.size_bytes,
            block_bytes: info.block_bytes,
            rotational: info.rotational,
            description: info.description,
        };
        let mut session = Session::new(export, Limits::default());
        let mut input = Input::new(self.outbox.pool.clone());
        assert!(session.input_bytes_max() <= INPUT_BYTES, "an option fits");
        if let Err(end) = self.handshake(&mut session, &mut input) {
            return end;
        }
        self.outbox.adopt_reader(session.structured());
        let sink: Arc<dyn Sink> = Arc::new(Answers(self.outbox.clone()));
        let mut batch = Batch {
            lane: lane_of(&self.service, sink),
            requests: 0,
            bytes: 0,
            begun: 0,
            room: Room { not_before: Instant::now() },
            asking: Asking::new(),
            wakeups: self.service.wakeups(),
            received: Instant::now(),
            seen: Instant::now(),
        };
        let end = self.transmission(&mut session, &mut input, &mut batch);
        let wanted = match end {
            End::Eof | End::SendsNoMore | End::Failed(_) => false,
            // It waits for no answer, and what it asked for before is to be done.
            End::Session(CloseReason::Disconnect) => true,
            _ => !self.outbox.is_client_gone(),
        };
        if wanted {
            batch.lane.run();
        } else {
            // Keeps C4: what was gathered is dropped with the lane.
            self.outbox.withdraw(batch.requests, batch.bytes);
        }
        while batch.lane.is_pending() {
            batch.lane.wait(None);
        }
        end
    }

    fn transmission(&self, session: &mut Session, input: &mut Input, batch: &mut Batch) -> End {
        loop {
            let (used, step) = session.step(input.bytes(), &mut Vec::new());
            input.take(used);
            let r = match step {
                Step::Request(request) => self.request(request, session.structured(), input, batch),
                Step::NeedMore => self.fill(input, batch),
                Step::Replied => {
                    // A payload goes by: let more of it come than a head's bytes at a time.
                    input.request(0);
                    Ok(())
                }
                Step::Close(reason) => Err(End::Session(reason)),
            };
            if let Err(end) = r {
                return end;
            }
        }
    }

    /// Begins what was gathered.
    fn begin(&self, batch: &mut Batch) -> Result<(), End> {
        if batch.requests == 0 {
            return Ok(());
        }
        if batch.seen.elapsed() > PRESENCE_CHECK {
            // Keeps C4.
            if self.outbox.is_client_gone() {
                return Err(End::Eof);
            }
            batch.seen = Instant::now();
        }
        batch.begun += batch.requests;
        (batch.requests, batch.bytes) = (0, 0);
        batch.lane.run();
        Ok(())
    }

    /// Before the thread waits for the client: keeps C3 and C6.
    pub(super) fn before_input(&self, batch: &mut Batch) -> Result<(), End> {
        self.begin(batch)?;
        self.outbox.flush();
        while batch.lane.is_pending() {
            let ready = batch.lane.wait(Some(self.outbox.socket.as_fd()));
            self.outbox.flush();
            if ready {
                break;
            }
        }
        Ok(())
    }

    fn handshake(&self, session: &mut Session, input: &mut Input) -> Result<(), End> {
        let deadline = Instant::now() + self.handshake_timeout;
        let socket = &self.outbox.socket;
        let limit = || {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(End::HandshakeTimeout) } else { Ok(socket.set_timeout(Some(left))?) }
        };
        let send_all = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                limit()?;
                bytes = &bytes[socket.send(&[IoSlice::new(bytes)], true)?..];
            }
            Ok::<_, End>(())
        };
        let mut out = Session::greeting().to_vec();
        loop {
            send_all(&out)?;
            out.clear();
            if session.in_transmission() {
                return Ok(socket.set_timeout(self.patience)?);
            }
            let (used, step) = session.step(input.bytes(), &mut out);
            input.take(used);
            match step {
                Step::NeedMore => {
                    limit()?;
                    match input.fill(&mut [], |bufs| socket.recv_into(bufs, true))? {
                        0 => return Err(End::Eof),
                        _ if self.outbox.is_stopping() => return Err(End::Stopped),
                        _ => {}
                    }
                }
                Step::Close(reason) => {
                    send_all(&out)?;
                    return Err(End::Session(reason));
                }
                // There is no request before transmission.
                Step::Replied | Step::Request(_) => {}
            }
        }
    }

    fn fill(&self, input: &mut Input, batch: &mut Batch) -> Result<(), End> {
        let got = loop {
            self.before_input(batch)?;
            let wait = !batch.lane.is_pending();
            if wait && batch.begun > 1 {
                batch.room.make();
            }
            let asked = (wait && batch.asking.is_on()).then_some(ASKED_MAX);
            if wait {
                batch.wakeups.turn(batch.begun);
            }
            match input.fill(&mut [], |bufs| self.receive(bufs, wait, asked)) {
                // What the lane saw was taken already; or an idle client was waited for for a while.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                got => break got?,
            }
        };
        let now = Instant::now();
        match batch.begun {
            0 => {}
            1 if (batch.asking.is_on() || !batch.wakeups.are_tried()) => {
                batch.asking.one(now.duration_since(batch.received));
            }
            _ => batch.asking.several(),
        }
        batch.begun = 0;
        batch.received = now;
        match got {
            _ if self.outbox.is_stopping() => Err(End::Stopped),
            0 => Err(End::Eof),
            _ => Ok(()),
        }
    }

    /// What has arrived. With `wait`, waits for it: asleep, but where it is `asked` for, so long.
    pub(super) fn receive(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        wait: bool,
        asked: Option<Duration>,
    ) -> io::Result<usize> {
        let socket = &self.outbox.socket;
        if let Some(asked) = asked {
            let since = Instant::now();
            while since.elapsed() < asked {
                match socket.recv_into(bufs, false) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                    got => return got,
                }
            }
        }
        socket.recv_into(bufs, wait)
    }

    /// Waits until a request is within the bounds.
    fn admit(&self, cost_bytes: u64, batch: &mut Batch) -> Result<(), End> {
        let mut admitted = self.outbox.try_admit(cost_bytes);
        if admitted.is_none() {
            // Keeps C6: what would make room may be among what was gathered, or pending here.
            self.begin(batch)?;
        }
        while admitted.is_none() && batch.lane.is_pending() {
            batch.lane.wait(None);
            self.outbox.flush();
            // The first that ends makes room: the slowest of them may take long.
            admitted = self.outbox.try_admit(cost_bytes);
        }
        let admitted = admitted.unwrap_or_else(|| self.outbox.admit(cost_bytes));
        if admitted { Ok(()) } else { Err(End::Stopped) }
    }

    fn request(
        &self,
        request: Request,
        structured: bool,
        input: &mut Input,
        batch: &mut Batch,
    ) -> Result<(), End> {
        let cost_bytes = match request.command {
            Command::Submit { op: Op::Read | Op::Write, extent, .. } => extent.len(),
            _ => 0,
        };
        self.admit(cost_bytes, batch)?;
        let owed = Owed { cookie: request.cookie, structured, cost_bytes };
        match request.command {
            Command::Submit { op, extent, flags } => {
                let buffer = if op == Op::Write {
                    self.payload(extent, input, batch).inspect_err(|_| {
                        // Keeps C1 and C2.
                        self.outbox.withdraw(1, cost_bytes);
                    })?
                } else {
                    input.request(0);
                    // At most 32 MiB: the session saw to it.
                    input.buffer(cost_bytes as usize)
                };
                let read = (op == Op::Read).then_some(extent);
                let tag = tag(request.cookie, read, cost_bytes);
                let request = ClientRequest { connection: self.id, op, extent, flags, buffer };
                batch.lane.push(request, tag);
                batch.requests += 1;
                batch.bytes += cost_bytes;
                if batch.requests >= BATCH_REQUESTS || batch.bytes >= BATCH_BYTES {
                    self.begin(batch)?;
                }
            }
            Command::BlockStatus { extent, one } => {
                self.begin(batch).inspect_err(|_| {
                    // Keeps C5: nobody else answers it.
                    self.outbox.withdraw(1, cost_bytes);
                })?;
                // Keeps C6: a look for holes may wait for a device, too.
                while batch.lane.is_pending() {
                    batch.lane.wait(None);
                }
                self.outbox.flush();
                let reply = match self.service.stretches(extent, if one { 1 } else { EXTENTS_MAX }) {
                    Ok(stretches) => owed.block_status(extent, &stretches, one),
                    Err(Errno(e)) => owed.error(WireError::from_errno(e), None),
                };
                self.outbox.push(reply);
            }
            Command::Acknowledge => self.outbox.push(owed.success()),
            Command::Refuse(Refusal { error, message }) => {
                self.outbox.push(owed.error(error, Some(message)));
            }
        }
        Ok(())
    }
}

impl From<io::Error> for End {
    fn from(e: io::Error) -> End {
        match e.kind() {
            // Only the handshake has a timeout.
            ErrorKind::WouldBlock => End::HandshakeTimeout,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => End::Eof,
            _ => End::Failed(e),
        }
    }
}

/// What a connection's thread has gathered since it last ran the machine.
pub(super) struct Batch {
    pub(super) lane: Box<dyn Lane>,
    requests: usize,
    bytes: u64,
    /// Requests begun since input was last received.
    begun: usize,
    room: Room,
    asking: Asking,
    wakeups: Wakeups,
    /// When input last came.
    received: Instant,
    /// When the client was last looked for, and was there.
    seen: Instant,
}

/// Lets a client run that shares the thread's processor. One with several requests in flight is about to send more:
/// taken together they cost a third less than one by one, in receiving, sending and waking. Where nobody else wants the
/// processor, nothing happens; where somebody wants it for longer, the thread soon asks no more.
struct Room {
    not_before: Instant,
}

/// Longer than it takes a client to send what it has, far shorter than the time a program is given that computes (3 ms).
const ROOM: Duration = Duration::from_micros(500);

/// Of the time, what may be lost to such programs: 3 %.
const ROOM_SHARE: u32 = 32;

impl Room {
    fn make(&mut self) {
        let now = Instant::now();
        if now < self.not_before {
            return;
        }
        std::thread::yield_now();
        let took = now.elapsed();
        if took > ROOM {
            self.not_before = now + took * ROOM_SHARE;
        }
    }
}

/// In a request's tag: what its reply needs. The least bit of the last word says whether it reads.
fn tag(cookie: u64, read: Option<Extent>, cost_bytes: u64) -> Tag {
    [cookie, read.map_or(0, |e| e.offset()), cost_bytes << 1 | u64::from(read.is_some())]
}

/// What goes before the data of a read that succeeds.
pub(super) fn data_head([cookie, offset, _]: Tag, len: usize, structured: bool) -> ReplyHead {
    if structured { ReplyHead::data(cookie, offset, len as u32) } else { ReplyHead::simple(cookie, None) }
}

/// The reply to a request that ended, and its buffer, where the reply does without.
pub(super) fn reply_to(answer: Answer, structured: bool) -> (Reply, Option<AlignedBuf>) {
    let Answer { tag, buffer, result, lent } = answer;
    let [cookie, _, last] = tag;
    let (cost_bytes, reads) = (last >> 1, last & 1 != 0);
    let owed = Owed { cookie, structured, cost_bytes };
    match result {
        Err(Errno(e)) => (owed.error(WireError::from_errno(e), None), Some(buffer)),
        Ok(()) if reads => match lent {
            Some(pipe) => (owed.lent(tag, pipe), Some(buffer)),
            None => (owed.data(tag, buffer), None),
        },
        Ok(()) => (owed.success(), Some(buffer)),
    }
}

/// The reply a request is owed.
struct Owed {
    cookie: u64,
    structured: bool,
    cost_bytes: u64,
}

impl Owed {
    fn reply(self, head: ReplyHead, tail: Tail) -> Reply {
        Reply { head, tail, cost_bytes: self.cost_bytes }
    }

    fn success(self) -> Reply {
        let head = ReplyHead::simple(self.cookie, None);
        self.reply(head, Tail::None)
    }

    fn error(self, error: WireError, message: Option<&'static str>) -> Reply {
        let message = message.unwrap_or(error.message());
        if self.structured {
            let head = ReplyHead::error(self.cookie, error, message.len() as u16);
            self.reply(head, Tail::Text(message))
        } else {
            let head = ReplyHead::simple(self.cookie, Some(error));
            self.reply(head, Tail::None)
        }
    }

    fn data(self, tag: Tag, buffer: AlignedBuf) -> Reply {
        if self.cost_bytes != buffer.len() as u64 {
            return self.error(WireError::Io, Some("a read came back with another length"));
        }
        let head = data_head(tag, buffer.len(), self.structured);
        self.reply(head, Tail::Data(buffer))
    }

    /// The head is in the pipe already.
    fn lent(self, tag: Tag, pipe: Pipe) -> Reply {
        let head = data_head(tag, self.cost_bytes as usize, self.structured);
        if pipe.len() != head.bytes().len() + self.cost_bytes as usize {
            return self.error(WireError::Io, Some("a read came back with another length"));
        }
        self.reply(head, Tail::Lent(pipe))
    }

    fn block_status(self, extent: Extent, stretches: &[Stretch], one: bool) -> Reply {
        let bytes = status_bytes(extent, stretches, if one { 1 } else { EXTENTS_MAX });
        let head = ReplyHead::block_status(self.cookie, (bytes.len() / 8) as u32);
        self.reply(head, Tail::Bytes(bytes))
    }
}

/// Pairs of length and state for the wire: neighbours of one state joined, nothing beyond the extent.
/// Where nothing is known, the extent counts as stored.
fn status_bytes(extent: Extent, stretches: &[Stretch], limit: usize) -> Vec<u8> {
    let mut left = extent.len();
    let mut found: Vec<(u64, bool)> = Vec::new();
    for s in stretches {
        let len = s.len.min(left);
        left -= len;
        if len == 0 {
            continue;
        }
        let full = found.len() == limit;
        match found.last_mut() {
            Some((n, hole)) if *hole == s.hole => *n += len,
            _ if full => break,
            _ => found.push((len, s.hole)),
        }
    }
    if found.is_empty() {
        found.push((extent.len(), false));
    }
    let state = |hole| if hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 };
    // An extent's length came from 32 bits.
    found
        .iter()
        .flat_map(|&(n, hole)| [(n as u32).to_be_bytes(), state(hole).to_be_bytes()])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_joined_and_clamped() {
        let s = |len, hole| Stretch { len, hole };
        let pairs = |stretches: &[Stretch], limit| {
            let bytes = status_bytes(Extent::new(4096, 1000), stretches, limit);
            let word = |b: &[u8]| u32::from_be_bytes(b.try_into().unwrap());
            bytes.chunks(8).map(|c| (word(&c[..4]), word(&c[4..]))).collect::<Vec<_>>()
        };
        assert_eq!(
            pairs(&[s(100, false), s(0, true), s(200, false), s(5000, true)], 9),
            [(300, 0), (700, 3)]
        );
        assert_eq!(pairs(&[s(100, true), s(200, true), s(1, false)], 1), [(300, 3)]);
        assert_eq!(pairs(&[s(1 << 40, false)], 9), [(1000, 0)]);
        assert_eq!(pairs(&[], 9), [(1000, 0)]);
        assert_eq!(pairs(&[s(0, true)], 9), [(1000, 0)]);
    }
}
