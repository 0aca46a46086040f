//! One connection's conversation as a state machine.
//!
//! Invariants:
//! S1: no more than `Limits::option_bytes_max` + 16 bytes of input are ever needed for one step.
//! S2: what a step appends to `out` is bounded (some 8 KiB), whatever the input.
//! S3: after `Step::Close` every step is the same `Close` and consumes nothing.
//! S4: a step that consumes nothing is `NeedMore` or `Close`: whoever feeds the session makes progress.

use fs2_block::Op;

use super::handshake::{Handshake, OPTION_HEADER_BYTES, Outcome, Replies};
use super::request::{Command, HEADER_BYTES, RawRequest, Request};
use super::{Export, Limits, wire};

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client said good-bye; what it asked before is still to be answered.
    Disconnect,
    /// The client left during the handshake.
    Abort,
    /// The client does not speak the protocol, or asks for more than is allowed.
    Violation(&'static str),
}

/// What the next bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet.
    NeedMore,
    /// Bytes were taken and perhaps replies appended to `out`; step again.
    Replied,
    /// A request. The payload of a write follows in the stream and is taken by the caller.
    Request(Request),
    /// The end; `out` is still to be sent.
    Close(CloseReason),
}

#[derive(Clone, Copy, Debug)]
enum State {
    ClientFlags,
    Option,
    /// Data of an option too long; answered when it has gone by.
    SkipOption {
        option: u32,
        left: u32,
    },
    Transmission,
    /// Payload of a refused write, which is answered when it has gone by: a client that is still sending it has nothing
    /// under that cookie yet that could be answered.
    SkipPayload {
        request: Request,
        left: u32,
    },
    Closed(CloseReason),
}

/// A connection's half of the conversation; see the [module](super).
#[derive(Debug)]
pub struct Session {
    export: Export,
    limits: Limits,
    handshake: Handshake,
    options: u32,
    state: State,
}

impl Session {
    /// A new connection. [`Session::greeting`] is to be sent first.
    pub fn new(export: Export, limits: Limits) -> Session {
        Session { export, limits, handshake: Handshake::default(), options: 0, state: State::ClientFlags }
    }

    /// The server's first bytes.
    pub fn greeting() -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[..8].copy_from_slice(&wire::NBDMAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&wire::IHAVEOPT.to_be_bytes());
        bytes[16..].copy_from_slice(&(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES).to_be_bytes());
        bytes
    }

    /// Whether the handshake is over.
    pub fn in_transmission(&self) -> bool {
        matches!(self.state, State::Transmission | State::SkipPayload { .. })
    }

    /// Whether reads are answered with structured replies.
    pub fn structured(&self) -> bool {
        self.handshake.agreed.structured
    }

    /// Bytes of input after which a step is never `NeedMore`.
    pub fn input_bytes_max(&self) -> usize {
        OPTION_HEADER_BYTES + self.limits.option_bytes_max as usize
    }

    /// Looks at the input: how many bytes of it are used up, and what they came to. Replies of the
    /// handshake are appended to `out`.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        match self.state {
            State::Transmission => self.request(input),
            State::SkipPayload { request, left } => {
                let taken = skip(input, left);
                if taken == left {
                    self.state = State::Transmission;
                    return (taken as usize, Step::Request(request));
                }
                self.state = State::SkipPayload { request, left: left - taken };
                (taken as usize, if taken == 0 { Step::NeedMore } else { Step::Replied })
            }
            State::ClientFlags => {
                let Some(flags) = input.first_chunk() else { return (0, Step::NeedMore) };
                match self.handshake.take_flags(u32::from_be_bytes(*flags)) {
                    Ok(()) => {
                        self.state = State::Option;
                        (4, Step::Replied)
                    }
                    Err(reason) => self.close(reason),
                }
            }
            State::Option => self.option(input, out),
            State::SkipOption { option, left } => {
                let taken = skip(input, left);
                let left = left - taken;
                if left == 0 {
                    Replies { option, out }.error(wire::REP_ERR_TOO_BIG, "option too long");
                    self.state = State::Option;
                } else {
                    self.state = State::SkipOption { option, left };
                }
                (taken as usize, if taken == 0 { Step::NeedMore } else { Step::Replied })
            }
            State::Closed(reason) => (0, Step::Close(reason)),
        }
    }

    fn request(&mut self, input: &[u8]) -> (usize, Step) {
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else {
            // A stream that went astray is found at once, not after 28 bytes that may never come.
            let magic = wire::REQUEST_MAGIC.to_be_bytes();
            let n = input.len().min(magic.len());
            return if input[..n] == magic[..n] {
                (0, Step::NeedMore)
            } else {
                self.close(CloseReason::Violation("wrong magic of a request"))
            };
        };
        let Some(raw) = RawRequest::decode(header) else {
            return self.close(CloseReason::Violation("wrong magic of a request"));
        };
        let Some(command) = raw.judge(&self.export, self.handshake.agreed) else {
            return self.close(CloseReason::Disconnect);
        };
        let request = Request { cookie: raw.cookie, command };
        let taken_by_caller = matches!(command, Command::Submit { op: Op::Write, .. });
        if !taken_by_caller && raw.payload_bytes() > 0 {
            if raw.payload_bytes() > self.limits.payload_skip_bytes_max {
                return self.close(CloseReason::Violation("payload beyond all bounds"));
            }
            self.state = State::SkipPayload { request, left: raw.payload_bytes() };
            return (HEADER_BYTES, Step::Replied);
        }
        (HEADER_BYTES, Step::Request(request))
    }

    fn option(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        let Some((head, rest)) = input.split_first_chunk::<OPTION_HEADER_BYTES>() else {
            return (0, Step::NeedMore);
        };
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..8] != wire::IHAVEOPT.to_be_bytes() {
            return self.close(CloseReason::Violation("wrong magic of an option"));
        }
        let (option, len) = (number(8), number(12));
        if self.options >= self.limits.options_max {
            return self.close(CloseReason::Violation("too many options"));
        }
        if len > self.limits.option_bytes_max {
            if len > self.limits.option_skip_bytes_max || !self.handshake.fixed {
                return self.close(CloseReason::Violation("option beyond all bounds"));
            }
            self.options += 1;
            self.state = State::SkipOption { option, left: len };
            return (OPTION_HEADER_BYTES, Step::Replied);
        }
        let Some(data) = rest.get(..len as usize) else { return (0, Step::NeedMore) };
        self.options += 1;
        let used = OPTION_HEADER_BYTES + data.len();
        match self.handshake.answer(&self.export, option, data, out) {
            Outcome::Continue => (used, Step::Replied),
            Outcome::Transmission => {
                self.state = State::Transmission;
                (used, Step::Replied)
            }
            Outcome::Close(reason) => (used, self.close(reason).1),
        }
    }

    fn close(&mut self, reason: CloseReason) -> (usize, Step) {
        self.state = State::Closed(reason);
        (0, Step::Close(reason))
    }
}

fn skip(input: &[u8], left: u32) -> u32 {
    u32::try_from(input.len()).unwrap_or(u32::MAX).min(left)
}

/// Feeds a session with whatever a client might send, for a fuzzer: `bytes[0]` chooses how the rest is
/// cut into pieces. Returns the requests seen and how the session ended, if it did.
///
/// # Panics
/// Where an invariant of the session is broken; no input may do that.
pub fn fuzz_session(bytes: &[u8]) -> (Vec<Request>, Option<CloseReason>) {
    let Some((&seed, stream)) = bytes.split_first() else { return (vec![], None) };
    let export =
        Export { size_bytes: 1 << 22, block_bytes: 4096, rotational: true, description: "fuzz".into() };
    let limits = Limits { option_bytes_max: 4096, option_skip_bytes_max: 8192, ..Limits::default() };
    let mut session = Session::new(export, limits);
    let (mut out, mut requests) = (Vec::new(), Vec::new());
    // What has arrived is stream[at..arrived].
    let (mut at, mut arrived) = (0, 0);
    loop {
        out.clear();
        let (used, step) = session.step(&stream[at..arrived], &mut out);
        assert!(used <= arrived - at, "more used than there was");
        assert!(out.len() <= 16 << 10, "S2: {} bytes of replies", out.len());
        at += used;
        match step {
            Step::NeedMore => {
                assert_eq!(used, 0);
                assert!(
                    arrived - at < session.input_bytes_max(),
                    "S1: {} bytes do not suffice",
                    arrived - at
                );
                if arrived == stream.len() {
                    return (requests, None);
                }
                arrived = stream.len().min(arrived + 1 + usize::from(seed));
            }
            Step::Replied => assert!(used > 0, "S4"),
            Step::Request(request) => {
                assert!(used > 0, "S4");
                if let Command::Submit { op, extent, .. } = request.command {
                    assert!(extent.end() <= 1 << 22);
                    if op == Op::Write {
                        at = stream.len().min(at + extent.len() as usize);
                        arrived = arrived.max(at);
                    }
                }
                requests.push(request);
            }
            Step::Close(reason) => {
                assert_eq!(session.step(&stream[at..], &mut Vec::new()), (0, Step::Close(reason)), "S3");
                return (requests, Some(reason));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn option(option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend_from_slice(&option.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn hello() -> Vec<u8> {
        vec![0, 0, 0, 3]
    }

    fn go() -> Vec<u8> {
        [hello(), option(wire::OPT_STRUCTURED_REPLY, &[]), option(wire::OPT_GO, &[0; 6])].concat()
    }

    /// Pieces a client might send, right and wrong, so that random runs get far into the protocol.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let request = (0u16..10, 0u16..40, 0u64..1 << 23, prop_oneof![0u32..70_000, any::<u32>()]);
        prop_oneof![
            3 => request.prop_map(|(command, flags, offset, length)| {
                RawRequest { flags, command, cookie: 9, offset, length }.encode().to_vec()
            }),
            2 => (0u32..13, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(o, d)| option(o, &d)),
            1 => prop::collection::vec(any::<u8>(), 0..100),
            1 => (0u32..20_000).prop_map(|n| option(n % 12, &vec![0; n as usize])),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>) {
            fuzz_session(&bytes);
        }

        #[test]
        fn nor_do_plausible_ones(
            seed: u8, into_transmission: bool, pieces in prop::collection::vec(pieces(), 0..20),
        ) {
            let start = if into_transmission { go() } else { hello() };
            fuzz_session(&[vec![seed], start, pieces.concat()].concat());
        }

        /// How the stream is cut changes nothing.
        #[test]
        fn cuts_do_not_matter(a: u8, b: u8, pieces in prop::collection::vec(pieces(), 0..20)) {
            let stream = [go(), pieces.concat()].concat();
            let run = |seed: u8| fuzz_session(&[&[seed], &stream[..]].concat());
            prop_assert_eq!(run(a), run(b));
        }
    }

    fn header(command: u16, length: u32) -> Vec<u8> {
        RawRequest { flags: 0, command, cookie: 5, offset: 0, length }.encode().to_vec()
    }

    fn run(stream: &[u8]) -> (Vec<Request>, Option<CloseReason>) {
        fuzz_session(&[&[0], stream].concat())
    }

    #[test]
    fn a_refused_payload_is_skipped_and_the_next_request_seen() {
        // The export is of 4 MiB; 5 MiB do not fit, but may be sent.
        let stream =
            [go(), header(wire::CMD_WRITE, 5 << 20), vec![0x25; 5 << 20], header(wire::CMD_FLUSH, 0)];
        let (requests, end) = run(&stream.concat());
        assert_eq!(end, None);
        assert!(matches!(requests[0].command, Command::Refuse(_)), "{requests:?}");
        assert!(matches!(requests[1].command, Command::Submit { op: Op::Flush, .. }), "{requests:?}");
    }

    /// libnbd ends a connection that answers what it is still sending.
    #[test]
    fn a_refused_write_is_answered_when_its_payload_has_gone_by() {
        let export = Export { size_bytes: 512, block_bytes: 4096, rotational: false, description: "".into() };
        let mut session = Session::new(export, Limits::default());
        let mut stream = &go()[..];
        while !session.in_transmission() {
            let (used, _) = session.step(stream, &mut vec![]);
            stream = &stream[used..];
        }
        let write = [header(wire::CMD_WRITE, 5000), vec![0; 5000]].concat();
        let mut step = |bytes: &[u8]| session.step(bytes, &mut vec![]);
        assert_eq!(step(&write[..28]), (28, Step::Replied));
        assert_eq!(step(&[]), (0, Step::NeedMore));
        assert_eq!(step(&write[28..5027]), (4999, Step::Replied));
        let (used, last) = step(&write[5027..]);
        let refused = matches!(last, Step::Request(Request { cookie: 5, command: Command::Refuse(_) }));
        assert!(used == 1 && refused, "{used} {last:?}");
        assert_eq!(step(&header(wire::CMD_FLUSH, 0)).0, 28);
    }

    #[test]
    fn bounds_end_the_session() {
        let (requests, end) = run(&[go(), header(wire::CMD_WRITE, (64 << 20) + 1)].concat());
        assert_eq!((requests.len(), end), (0, Some(CloseReason::Violation("payload beyond all bounds"))));
        let (_, end) = run(&[hello(), b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff".to_vec()].concat());
        assert_eq!(end, Some(CloseReason::Violation("option beyond all bounds")));
        let flood = option(99, &[]).repeat(129);
        assert_eq!(run(&[hello(), flood].concat()).1, Some(CloseReason::Violation("too many options")));
        assert_eq!(run(&[go(), vec![0x25, 0x60, 0x95]].concat()).1, None);
        let astray = Some(CloseReason::Violation("wrong magic of a request"));
        assert_eq!(run(&[go(), vec![0x25, 0x61]].concat()).1, astray);
        assert_eq!(
            run(&[go(), header(wire::CMD_DISC, 0), vec![0]].concat()).1,
            Some(CloseReason::Disconnect)
        );
    }

    #[test]
    fn a_long_option_is_skipped_and_answered() {
        let export = Export { size_bytes: 512, block_bytes: 4096, rotational: false, description: "".into() };
        let mut session = Session::new(export, Limits::default());
        let mut out = vec![];
        assert_eq!(session.step(&hello(), &mut out), (4, Step::Replied));
        let long = option(wire::OPT_GO, &vec![0; 70_000]);
        let (used, _) = session.step(&long, &mut out);
        assert_eq!((used, out.len()), (16, 0));
        assert_eq!(session.step(&long[16..], &mut out), (70_000, Step::Replied));
        assert_eq!(out[12..16], wire::REP_ERR_TOO_BIG.to_be_bytes());
        assert_eq!(session.step(&option(wire::OPT_GO, &[0; 6]), &mut out).1, Step::Replied);
        assert!(session.in_transmission());
    }
}
