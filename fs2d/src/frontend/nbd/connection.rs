//! One client: the thread that reads its requests and hands them to the service.
//!
//! Invariants:
//! C1: a request is submitted only when all of its payload has arrived.
//! C2: each submitted request is answered exactly once, also when the service drops its completion.
//! C3: before the thread waits for the client, it sends the replies it has gathered.
//! C4: a request is not submitted long after its client left: the client may have sent it again over a new
//!     connection, and other writes after it, which the old one would undo.
//! C5: the thread ends when the last request it submitted has ended; so connections bound memory.

use std::fmt;
use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs2_block::{ConnectionId, Extent, Flags, Op};
use fs2_store::{AlignedBuf, Stretch};

use super::codec::{
    CloseReason, Command, Export, Limits, Refusal, ReplyHead, Request, Session, Step, WireError, wire,
};
use super::outbox::{Outbox, Reply, Tail};
use crate::service::{ClientRequest, Errno, Service};

/// Bytes read ahead: an option of 64 KiB fits, and so do 60 writes of 4 KiB. A guess beyond that.
const INPUT_BYTES: usize = 256 << 10;

/// How old the knowledge that the client is there may be (C4). Guess: far below any client's time-out, far
/// above what a batch of requests takes.
const PRESENCE_CHECK: Duration = Duration::from_millis(10);

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
}

impl Connection {
    /// Serves the client to its end and waits for what is still in flight.
    pub(super) fn run(&self) -> End {
        let end = self.serve();
        match &end {
            // The rest may still be wanted.
            End::Session(CloseReason::Disconnect) | End::Eof | End::Stopped => {}
            End::Session(_) | End::HandshakeTimeout | End::Failed(_) => {
                self.outbox.flush();
                self.outbox.kill();
            }
        }
        self.outbox.finish();
        end
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
        let mut input = Input::new();
        assert!(session.input_bytes_max() <= INPUT_BYTES, "an option fits");
        if let Err(end) = self.handshake(&mut session, &mut input) {
            return end;
        }
        self.outbox.adopt_reader();
        let mut seen = Instant::now();
        loop {
            let (used, step) = session.step(input.bytes(), &mut Vec::new());
            input.take(used);
            let r = match step {
                Step::Request(request) => {
                    if seen.elapsed() > PRESENCE_CHECK {
                        // Keeps C4.
                        if self.outbox.socket.peer_gone() {
                            return End::Eof;
                        }
                        seen = Instant::now();
                    }
                    self.request(request, session.structured(), &mut input)
                }
                Step::NeedMore => self.fill(&mut input),
                Step::Replied => Ok(()),
                Step::Close(reason) => Err(End::Session(reason)),
            };
            if let Err(end) = r {
                return end;
            }
        }
    }

    fn handshake(&self, session: &mut Session, input: &mut Input) -> Result<(), End> {
        let deadline = Instant::now() + self.handshake_timeout;
        let socket = &self.outbox.socket;
        let limit = || {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(End::HandshakeTimeout) } else { Ok(socket.set_timeout(Some(left))?) }
        };
        let mut out = Session::greeting().to_vec();
        loop {
            if !out.is_empty() {
                limit()?;
                socket.send_all(&out)?;
                out.clear();
            }
            if session.in_transmission() {
                return Ok(socket.set_timeout(None)?);
            }
            let (used, step) = session.step(input.bytes(), &mut out);
            input.take(used);
            match step {
                Step::NeedMore => {
                    limit()?;
                    match input.fill(|buf| socket.recv(buf))? {
                        0 => return Err(End::Eof),
                        _ if self.outbox.is_stopping() => return Err(End::Stopped),
                        _ => {}
                    }
                }
                Step::Close(reason) => {
                    limit()?;
                    socket.send_all(&out)?;
                    return Err(End::Session(reason));
                }
                // There is no request before transmission.
                Step::Replied | Step::Request(_) => {}
            }
        }
    }

    fn fill(&self, input: &mut Input) -> Result<(), End> {
        // Keeps C3.
        self.outbox.flush();
        match input.fill(|buf| self.outbox.socket.recv(buf))? {
            _ if self.outbox.is_stopping() => Err(End::Stopped),
            0 => Err(End::Eof),
            _ => Ok(()),
        }
    }

    fn request(&self, request: Request, structured: bool, input: &mut Input) -> Result<(), End> {
        let buffer_bytes = match request.command {
            Command::Submit { op: Op::Read | Op::Write, extent, .. } => extent.len(),
            _ => 0,
        };
        if !self.outbox.admit(buffer_bytes) {
            return Err(End::Stopped);
        }
        let mut answer = Answer {
            outbox: self.outbox.clone(),
            cookie: request.cookie,
            structured,
            cost_bytes: buffer_bytes,
            read: None,
            given: false,
        };
        match request.command {
            Command::Submit { op, extent, flags } => {
                // At most 32 MiB: the session saw to it.
                let mut buffer = self.outbox.pool.take(buffer_bytes as usize);
                match op {
                    Op::Read => answer.read = Some(extent),
                    Op::Write => {
                        // Keeps C1.
                        if let Err(end) = self.payload(&mut buffer, input) {
                            answer.withdraw();
                            return Err(end);
                        }
                    }
                    _ => {}
                }
                self.submit(op, extent, flags, buffer, answer);
            }
            Command::BlockStatus { extent, one } => {
                self.outbox.flush();
                match self.service.stretches(extent, if one { 1 } else { EXTENTS_MAX }) {
                    Ok(stretches) => answer.block_status(extent, &stretches, one),
                    Err(Errno(e)) => answer.error(WireError::from_errno(e), None),
                }
            }
            Command::Acknowledge => answer.success(),
            Command::Refuse(Refusal { error, message }) => answer.error(error, Some(message)),
        }
        Ok(())
    }

    fn submit(&self, op: Op, extent: Extent, flags: Flags, buffer: AlignedBuf, answer: Answer) {
        let request = ClientRequest { connection: self.id, op, extent, flags, buffer };
        self.service.submit(
            request,
            Box::new(move |buffer, result| match result {
                Err(Errno(e)) => answer.error(WireError::from_errno(e), None),
                Ok(()) if answer.read.is_some() => answer.data(buffer),
                Ok(()) => {
                    answer.outbox.pool.put(buffer);
                    answer.success();
                }
            }),
        );
    }

    /// Takes a write's payload: what has arrived is copied, the rest is received in its place.
    fn payload(&self, buffer: &mut AlignedBuf, input: &mut Input) -> Result<(), End> {
        let have = buffer.len().min(input.bytes().len());
        buffer[..have].copy_from_slice(&input.bytes()[..have]);
        input.take(have);
        let mut at = have;
        if at < buffer.len() {
            self.outbox.flush();
        }
        while at < buffer.len() {
            let rest = &mut buffer[at..];
            let wanted = rest.len();
            let mut got = 0;
            input.fill(|ahead| {
                got = self.outbox.socket.recv_into(&mut [IoSliceMut::new(rest), IoSliceMut::new(ahead)])?;
                Ok(got.saturating_sub(wanted))
            })?;
            if got == 0 {
                return Err(if self.outbox.is_stopping() { End::Stopped } else { End::Eof });
            }
            at += got.min(wanted);
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

/// The reply a request is owed.
struct Answer {
    outbox: Arc<Outbox>,
    cookie: u64,
    structured: bool,
    cost_bytes: u64,
    /// Of a read: what was asked for.
    read: Option<Extent>,
    given: bool,
}

impl Answer {
    fn give(&mut self, head: ReplyHead, tail: Tail) {
        self.given = true;
        self.outbox.push(Reply { head, tail, cost_bytes: self.cost_bytes });
    }

    /// No reply: the request did not arrive whole.
    fn withdraw(mut self) {
        self.given = true;
        self.outbox.withdraw(self.cost_bytes);
    }

    fn success(mut self) {
        self.give(ReplyHead::simple(self.cookie, None), Tail::None);
    }

    fn error(mut self, error: WireError, message: Option<&'static str>) {
        self.give_error(error, message.unwrap_or(error.message()));
    }

    fn give_error(&mut self, error: WireError, message: &'static str) {
        if self.structured {
            let head = ReplyHead::error(self.cookie, error, message.len() as u16);
            self.give(head, Tail::Text(message));
        } else {
            self.give(ReplyHead::simple(self.cookie, Some(error)), Tail::None);
        }
    }

    fn data(mut self, buffer: AlignedBuf) {
        match self.read {
            Some(extent) if extent.len() == buffer.len() as u64 => {
                let head = if self.structured {
                    ReplyHead::data(self.cookie, extent.offset(), buffer.len() as u32)
                } else {
                    ReplyHead::simple(self.cookie, None)
                };
                self.give(head, Tail::Data(buffer));
            }
            _ => self.error(WireError::Io, Some("a read came back with another length")),
        }
    }

    fn block_status(mut self, extent: Extent, stretches: &[Stretch], one: bool) {
        let bytes = status_bytes(extent, stretches, if one { 1 } else { EXTENTS_MAX });
        let head = ReplyHead::block_status(self.cookie, (bytes.len() / 8) as u32);
        self.give(head, Tail::Bytes(bytes));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Keeps C2.
        if !self.given {
            self.give_error(WireError::Io, "the request was lost");
        }
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

/// Bytes received and not yet used.
struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Input {
        Input { buffer: vec![0; INPUT_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn take(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Lets `receive` fill the free end; there is always room, since no step needs a whole buffer.
    fn fill(&mut self, receive: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        if self.start > self.buffer.len() / 2 || self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let n = receive(&mut self.buffer[self.end..])?;
        self.end += n;
        Ok(n)
    }
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

    #[test]
    fn input_always_has_room() {
        let mut input = Input::new();
        let mut byte = 0u8;
        let mut expect = 0u8;
        for round in 0..2000usize {
            input
                .fill(|room| {
                    assert!(!room.is_empty());
                    let n = room.len().min(1 + round * 7919 % 60_000);
                    room[..n].iter_mut().for_each(|b| (*b, byte) = (byte, byte.wrapping_add(1)));
                    Ok(n)
                })
                .unwrap();
            let keep = round % 28;
            for &b in &input.bytes()[..input.bytes().len().saturating_sub(keep)] {
                assert_eq!(b, expect);
                expect = expect.wrapping_add(1);
            }
            input.take(input.bytes().len().saturating_sub(keep));
        }
    }
}
