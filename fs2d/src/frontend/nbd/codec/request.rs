//! Requests of the transmission phase: from 28 foreign bytes to something the machine may be asked.

use fs2_block::{Extent, Flags, Op};

use super::{Export, PAYLOAD_BYTES_MAX, WireError, wire};

/// Bytes of a request before its payload.
pub const HEADER_BYTES: usize = 28;

/// A request's header, taken apart but not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRequest {
    /// Command flags, `wire::CMD_FLAG_*`.
    pub flags: u16,
    /// The command, `wire::CMD_*`.
    pub command: u16,
    /// The client's tag, returned with the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes; of a write, also those that follow.
    pub length: u32,
}

impl RawRequest {
    /// Takes a header apart; `None` where it does not begin with the magic number.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<RawRequest> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (command, rest) = rest.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (length, _) = rest.split_first_chunk()?;
        (u32::from_be_bytes(*magic) == wire::REQUEST_MAGIC).then(|| RawRequest {
            flags: u16::from_be_bytes(*flags),
            command: u16::from_be_bytes(*command),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            length: u32::from_be_bytes(*length),
        })
    }

    /// The header's bytes, as a client sends them.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Bytes that follow this header, wanted or not.
    pub fn payload_bytes(&self) -> u32 {
        if self.command == wire::CMD_WRITE { self.length } else { 0 }
    }

    /// What the request comes to for `export`; `None` is a good-bye.
    pub(super) fn judge(&self, export: &Export, agreed: Agreed) -> Option<Command> {
        match self.try_judge(export, agreed) {
            Ok(command) => command,
            Err(refusal) => Some(Command::Refuse(refusal)),
        }
    }

    fn try_judge(&self, export: &Export, agreed: Agreed) -> Result<Option<Command>, Refusal> {
        // FUA is allowed, and means nothing, on commands that change nothing.
        let (known, op) = match self.command {
            wire::CMD_READ => (if agreed.structured { wire::CMD_FLAG_DF } else { 0 }, Some(Op::Read)),
            wire::CMD_WRITE => (0, Some(Op::Write)),
            wire::CMD_DISC => return Ok(None),
            wire::CMD_FLUSH => (0, Some(Op::Flush)),
            wire::CMD_TRIM => (0, Some(Op::Discard)),
            wire::CMD_CACHE => (0, None),
            wire::CMD_WRITE_ZEROES => {
                (wire::CMD_FLAG_NO_HOLE | wire::CMD_FLAG_FAST_ZERO, Some(Op::WriteZeroes))
            }
            wire::CMD_BLOCK_STATUS if agreed.context => (wire::CMD_FLAG_REQ_ONE, None),
            wire::CMD_BLOCK_STATUS => return refuse(WireError::Inval, "base:allocation was not negotiated"),
            _ => return refuse(WireError::Inval, "unknown command"),
        };
        if self.flags & !(known | wire::CMD_FLAG_FUA) != 0 {
            return refuse(WireError::Inval, "unknown command flag");
        }
        if op == Some(Op::Flush) {
            if self.offset != 0 || self.length != 0 {
                return refuse(WireError::Inval, "a flush has no extent");
            }
            let flags = Flags::default();
            return Ok(Some(Command::Submit { op: Op::Flush, extent: Extent::default(), flags }));
        }
        if self.length == 0 {
            return refuse(WireError::Inval, "empty request");
        }
        if matches!(op, Some(Op::Read | Op::Write)) && self.length > PAYLOAD_BYTES_MAX {
            let whole = self.flags & wire::CMD_FLAG_DF != 0;
            return refuse(
                if whole { WireError::Overflow } else { WireError::Inval },
                "more than 32 MiB in one request",
            );
        }
        let extent =
            Extent::checked(self.offset, u64::from(self.length)).filter(|e| e.end() <= export.size_bytes);
        let Some(extent) = extent else {
            let grows = matches!(op, Some(Op::Write | Op::WriteZeroes));
            return refuse(
                if grows { WireError::NoSpc } else { WireError::Inval },
                "beyond the end of the volume",
            );
        };
        // A fast zero must not be slower than a write of the same bytes, and the service cannot promise
        // that. A refusal at once is what the flag is for: the client plans without it.
        if self.flags & wire::CMD_FLAG_FAST_ZERO != 0 {
            return refuse(WireError::NotSup, "zeros are stored; they would not be fast");
        }
        Ok(Some(match (op, self.command) {
            (Some(op), _) => {
                let fua = op.changes_content() && self.flags & wire::CMD_FLAG_FUA != 0;
                let no_hole = self.flags & wire::CMD_FLAG_NO_HOLE != 0;
                Command::Submit { op, extent, flags: Flags { fua, no_hole } }
            }
            (None, wire::CMD_BLOCK_STATUS) => {
                Command::BlockStatus { extent, one: self.flags & wire::CMD_FLAG_REQ_ONE != 0 }
            }
            (None, _) => Command::Acknowledge,
        }))
    }
}

/// What the handshake agreed on that changes how requests are judged and answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Structured replies.
    pub(super) structured: bool,
    /// `base:allocation`; only together with structured replies.
    pub(super) context: bool,
}

fn refuse<T>(error: WireError, message: &'static str) -> Result<T, Refusal> {
    Err(Refusal { error, message })
}

/// Why a request was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub error: WireError,
    /// For people.
    pub message: &'static str,
}

/// What a request asks for, within the export and the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Hand it to the machine. Of a write, the extent's bytes follow in the stream; whoever drives the
    /// session takes them before the next step.
    Submit {
        /// Read, write, write zeroes, discard or flush.
        op: Op,
        /// Within the export; at most 32 MiB of a read or write; empty of a flush.
        extent: Extent,
        /// Modifiers.
        flags: Flags,
    },
    /// Describe what is stored.
    BlockStatus {
        /// Within the export, not empty.
        extent: Extent,
        /// One extent is enough.
        one: bool,
    },
    /// Nothing to be done (CACHE: nothing above the device keeps what it would read); answer success.
    Acknowledge,
    /// Answer with an error; a payload, where there is one, is skipped by the session.
    Refuse(Refusal),
}

/// A judged request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's tag.
    pub cookie: u64,
    /// What is to be done.
    pub command: Command,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn export() -> Export {
        Export { size_bytes: 1 << 30, block_bytes: 4096, rotational: false, description: String::new() }
    }

    const ALL: Agreed = Agreed { structured: true, context: true };

    fn judge(command: u16, flags: u16, offset: u64, length: u32) -> Option<Command> {
        RawRequest { flags, command, cookie: 0, offset, length }.judge(&export(), ALL)
    }

    fn error(command: u16, flags: u16, offset: u64, length: u32) -> WireError {
        match judge(command, flags, offset, length) {
            Some(Command::Refuse(r)) => r.error,
            other => panic!("not refused: {other:?}"),
        }
    }

    proptest! {
        #[test]
        fn headers_round_trip(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) {
            let raw = RawRequest { flags, command, cookie, offset, length };
            prop_assert_eq!(RawRequest::decode(&raw.encode()), Some(raw));
        }

        /// Whatever comes in, what goes on lies within the export and the limits.
        #[test]
        fn nothing_beyond_the_bounds_passes(
            flags in 0u16..64, command in 0u16..10, offset in prop_oneof![0u64..1 << 31, any::<u64>()], length: u32,
            structured: bool,
        ) {
            let raw = RawRequest { flags, command, cookie: 1, offset, length };
            match raw.judge(&export(), Agreed { structured, context: structured }) {
                Some(Command::Submit { op, extent, .. }) => {
                    prop_assert!(extent.end() <= 1 << 30);
                    prop_assert_eq!(extent.is_empty(), op == Op::Flush);
                    if matches!(op, Op::Read | Op::Write) {
                        prop_assert!(extent.len() <= u64::from(PAYLOAD_BYTES_MAX));
                    }
                }
                Some(Command::BlockStatus { extent, .. }) => {
                    prop_assert!(structured && extent.end() <= 1 << 30 && !extent.is_empty());
                }
                Some(Command::Acknowledge) => prop_assert_eq!(command, wire::CMD_CACHE),
                Some(Command::Refuse(_)) => {}
                None => prop_assert_eq!(command, wire::CMD_DISC),
            }
        }
    }

    #[test]
    fn refusals_carry_the_right_error() {
        let end = 1 << 30;
        assert_eq!(error(wire::CMD_READ, 0, end, 1), WireError::Inval);
        assert_eq!(error(wire::CMD_TRIM, 0, end - 1, 2), WireError::Inval);
        assert_eq!(error(wire::CMD_WRITE, 0, end, 1), WireError::NoSpc);
        assert_eq!(error(wire::CMD_WRITE, 0, u64::MAX, 1), WireError::NoSpc);
        assert_eq!(error(wire::CMD_WRITE_ZEROES, 0, end - 1, 2), WireError::NoSpc);
        assert_eq!(error(wire::CMD_WRITE, 0, 0, PAYLOAD_BYTES_MAX + 1), WireError::Inval);
        assert_eq!(error(wire::CMD_READ, wire::CMD_FLAG_DF, 0, PAYLOAD_BYTES_MAX + 1), WireError::Overflow);
        assert_eq!(error(wire::CMD_READ, 0, 0, 0), WireError::Inval);
        assert_eq!(error(wire::CMD_READ, wire::CMD_FLAG_NO_HOLE, 0, 1), WireError::Inval);
        assert_eq!(error(wire::CMD_FLUSH, 0, 1, 0), WireError::Inval);
        assert_eq!(error(8, 0, 0, 0), WireError::Inval);
        assert_eq!(error(wire::CMD_WRITE_ZEROES, wire::CMD_FLAG_FAST_ZERO, 0, 1), WireError::NotSup);
        let raw = RawRequest { flags: 0, command: wire::CMD_BLOCK_STATUS, cookie: 0, offset: 0, length: 1 };
        let bare = raw.judge(&export(), Agreed::default());
        assert!(matches!(bare, Some(Command::Refuse(_))), "{bare:?}");
    }

    #[test]
    fn flags_arrive() {
        let fua = Flags { fua: true, no_hole: false };
        for (command, op) in [
            (wire::CMD_WRITE, Op::Write),
            (wire::CMD_TRIM, Op::Discard),
            (wire::CMD_WRITE_ZEROES, Op::WriteZeroes),
        ] {
            let want = Command::Submit { op, extent: Extent::new(512, 7), flags: fua };
            assert_eq!(judge(command, wire::CMD_FLAG_FUA, 512, 7), Some(want));
        }
        let want = Command::Submit { op: Op::Read, extent: Extent::new(512, 7), flags: Flags::default() };
        assert_eq!(judge(wire::CMD_READ, wire::CMD_FLAG_FUA | wire::CMD_FLAG_DF, 512, 7), Some(want));
        let flags = Flags { fua: false, no_hole: true };
        let want =
            Command::Submit { op: Op::WriteZeroes, extent: Extent::new(0, u64::from(u32::MAX >> 4)), flags };
        assert_eq!(judge(wire::CMD_WRITE_ZEROES, wire::CMD_FLAG_NO_HOLE, 0, u32::MAX >> 4), Some(want));
    }
}
