//! Options of the handshake.

use super::request::Agreed;
use super::session::CloseReason;
use super::{EXPORT_NAME, Export, PAYLOAD_BYTES_MAX, wire};

/// Longest name the protocol allows, in bytes.
const NAME_BYTES_MAX: usize = 4096;

/// Bytes before an option's data: magic, option, length.
pub(super) const OPTION_HEADER_BYTES: usize = 16;

/// What an answered option leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The next option.
    Continue,
    /// Transmission.
    Transmission,
    /// The end, after the replies.
    Close(CloseReason),
}

/// The state that options change.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The client answers errors to options: it said so in its flags.
    pub(super) fixed: bool,
    /// The client does without 124 zero bytes.
    pub(super) no_zeroes: bool,
    /// What holds in transmission.
    pub(super) agreed: Agreed,
}

impl Handshake {
    /// Takes the client's flags; an unknown one means that it expects what we cannot do.
    pub(super) fn take_flags(&mut self, flags: u32) -> Result<(), CloseReason> {
        self.fixed = flags & u32::from(wire::FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(wire::FLAG_NO_ZEROES) != 0;
        let known = u32::from(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        if flags & !known == 0 { Ok(()) } else { Err(CloseReason::Violation("unknown client flag")) }
    }

    /// Answers one whole option. The replies' size is bounded by the description's and some hundred
    /// bytes, however long the option is.
    pub(super) fn answer(&mut self, export: &Export, option: u32, data: &[u8], out: &mut Vec<u8>) -> Outcome {
        if !self.fixed && option != wire::OPT_EXPORT_NAME {
            return Outcome::Close(CloseReason::Violation("option from a client without fixed newstyle"));
        }
        let mut reply = Replies { option, out };
        match option {
            wire::OPT_EXPORT_NAME => {
                // There is no error reply to this one.
                if !is_our_name(data) {
                    return Outcome::Close(CloseReason::Violation("unknown export"));
                }
                out.extend_from_slice(&export.size_bytes.to_be_bytes());
                out.extend_from_slice(&self.transmission_flags(export).to_be_bytes());
                if !self.no_zeroes {
                    out.extend_from_slice(&[0; 124]);
                }
                return Outcome::Transmission;
            }
            wire::OPT_ABORT => {
                reply.ack();
                return Outcome::Close(CloseReason::Abort);
            }
            wire::OPT_LIST if data.is_empty() => {
                let name = EXPORT_NAME.as_bytes();
                reply.put(
                    wire::REP_SERVER,
                    &[&(name.len() as u32).to_be_bytes(), name, shortened(&export.description)],
                );
                reply.ack();
            }
            wire::OPT_LIST => reply.error(wire::REP_ERR_INVALID, "LIST has no data"),
            wire::OPT_INFO | wire::OPT_GO => match parse_info(data) {
                None => reply.error(wire::REP_ERR_INVALID, "malformed option"),
                Some((name, _)) if !is_our_name(name) => reply.error(wire::REP_ERR_UNKNOWN, "no such export"),
                Some((_, wanted)) => {
                    self.describe(export, wanted, &mut reply);
                    reply.ack();
                    if option == wire::OPT_GO {
                        return Outcome::Transmission;
                    }
                }
            },
            wire::OPT_STRUCTURED_REPLY if data.is_empty() => {
                self.agreed.structured = true;
                reply.ack();
            }
            wire::OPT_STRUCTURED_REPLY => reply.error(wire::REP_ERR_INVALID, "STRUCTURED_REPLY has no data"),
            wire::OPT_LIST_META_CONTEXT | wire::OPT_SET_META_CONTEXT => {
                self.contexts(option, data, &mut reply)
            }
            _ => reply.error(wire::REP_ERR_UNSUP, "option not supported"),
        }
        Outcome::Continue
    }

    fn describe(&self, export: &Export, wanted: &[u8], reply: &mut Replies<'_>) {
        reply.put(
            wire::REP_INFO,
            &[
                &wire::INFO_EXPORT.to_be_bytes(),
                &export.size_bytes.to_be_bytes(),
                &self.transmission_flags(export).to_be_bytes(),
            ],
        );
        let asked = |kind: u16| wanted.chunks_exact(2).any(|w| w == kind.to_be_bytes());
        if asked(wire::INFO_NAME) {
            reply.put(wire::REP_INFO, &[&wire::INFO_NAME.to_be_bytes(), EXPORT_NAME.as_bytes()]);
        }
        if asked(wire::INFO_DESCRIPTION) {
            let text = shortened(&export.description);
            reply.put(wire::REP_INFO, &[&wire::INFO_DESCRIPTION.to_be_bytes(), text]);
        }
        if asked(wire::INFO_BLOCK_SIZE) {
            let preferred = export.block_bytes.clamp(512, PAYLOAD_BYTES_MAX).next_power_of_two();
            reply.put(
                wire::REP_INFO,
                &[
                    &wire::INFO_BLOCK_SIZE.to_be_bytes(),
                    &1u32.to_be_bytes(),
                    &preferred.to_be_bytes(),
                    &PAYLOAD_BYTES_MAX.to_be_bytes(),
                ],
            );
        }
    }

    fn contexts(&mut self, option: u32, data: &[u8], reply: &mut Replies<'_>) {
        let set = option == wire::OPT_SET_META_CONTEXT;
        if set {
            // Each SET begins anew, also one that fails.
            self.agreed.context = false;
        }
        if !self.agreed.structured {
            return reply.error(wire::REP_ERR_INVALID, "contexts need structured replies");
        }
        let Some((name, queries)) = parse_contexts(data) else {
            return reply.error(wire::REP_ERR_INVALID, "malformed option");
        };
        if !is_our_name(name) {
            return reply.error(wire::REP_ERR_UNKNOWN, "no such export");
        }
        let found = match queries {
            Queries::None => !set,
            Queries::Some { exact, wildcard } => exact || (wildcard && !set),
        };
        if found {
            let id = if set { wire::CONTEXT_ID } else { 0 };
            reply.put(wire::REP_META_CONTEXT, &[&id.to_be_bytes(), wire::CONTEXT]);
            self.agreed.context |= set;
        }
        reply.ack();
    }

    /// What transmission offers.
    fn transmission_flags(&self, export: &Export) -> u16 {
        // MULTI_CONN is true: a flush of the service covers what was written over any connection.
        // FAST_ZERO is offered though each such request is refused: the protocol asks for it, so that
        // clients learn at once not to zero a whole volume ahead of a copy.
        let mut flags = wire::FLAG_HAS_FLAGS
            | wire::FLAG_SEND_FLUSH
            | wire::FLAG_SEND_FUA
            | wire::FLAG_SEND_TRIM
            | wire::FLAG_SEND_WRITE_ZEROES
            | wire::FLAG_CAN_MULTI_CONN
            | wire::FLAG_SEND_CACHE
            | wire::FLAG_SEND_FAST_ZERO;
        if export.rotational {
            flags |= wire::FLAG_ROTATIONAL;
        }
        if self.agreed.structured {
            flags |= wire::FLAG_SEND_DF;
        }
        flags
    }
}

fn is_our_name(name: &[u8]) -> bool {
    name.is_empty() || name == EXPORT_NAME.as_bytes()
}

/// At most 4096 bytes of it, cut between characters.
fn shortened(text: &str) -> &[u8] {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

fn take_u32(data: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = data.split_first_chunk()?;
    Some((u32::from_be_bytes(*head), rest))
}

/// A length and as many bytes, no more than a name may have.
fn take_string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = take_u32(data)?;
    let len = usize::try_from(len).ok().filter(|&n| n <= NAME_BYTES_MAX)?;
    rest.split_at_checked(len)
}

/// The name and the kinds of information wanted, two bytes each.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = take_string(data)?;
    let (count, wanted) = rest.split_first_chunk()?;
    (wanted.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some((name, wanted))
}

/// What was asked of contexts.
#[derive(Debug, PartialEq, Eq)]
enum Queries {
    /// Nothing: all of them, when listing.
    None,
    /// Our context's name, or all of its namespace.
    Some { exact: bool, wildcard: bool },
}

fn parse_contexts(data: &[u8]) -> Option<(&[u8], Queries)> {
    let (name, rest) = take_string(data)?;
    let (count, mut rest) = take_u32(rest)?;
    let (mut exact, mut wildcard) = (false, false);
    for _ in 0..count {
        // Ends at the data's end, whatever the count says.
        let (query, after) = take_string(rest)?;
        exact |= query == wire::CONTEXT;
        wildcard |= query == b"base:";
        rest = after;
    }
    rest.is_empty()
        .then_some((name, if count == 0 { Queries::None } else { Queries::Some { exact, wildcard } }))
}

/// Replies to one option.
pub(super) struct Replies<'a> {
    pub(super) option: u32,
    pub(super) out: &'a mut Vec<u8>,
}

impl Replies<'_> {
    fn put(&mut self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        self.out.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
        self.out.extend_from_slice(&self.option.to_be_bytes());
        self.out.extend_from_slice(&kind.to_be_bytes());
        self.out.extend_from_slice(&(len as u32).to_be_bytes());
        parts.iter().for_each(|p| self.out.extend_from_slice(p));
    }

    fn ack(&mut self) {
        self.put(wire::REP_ACK, &[]);
    }

    pub(super) fn error(&mut self, kind: u32, message: &str) {
        self.put(kind, &[message.as_bytes()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        Export { size_bytes: 1 << 30, block_bytes: 1024, rotational: true, description: "é".repeat(3000) }
    }

    fn fixed() -> Handshake {
        let mut h = Handshake::default();
        h.take_flags(3).unwrap();
        h
    }

    /// Kinds and data of the replies in `out`.
    fn replies(mut out: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut found = vec![];
        while !out.is_empty() {
            assert_eq!(out[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
            let kind = u32::from_be_bytes(out[12..16].try_into().unwrap());
            let len = u32::from_be_bytes(out[16..20].try_into().unwrap()) as usize;
            found.push((kind, out[20..20 + len].to_vec()));
            out = &out[20 + len..];
        }
        found
    }

    fn ask(h: &mut Handshake, option: u32, data: &[u8]) -> (Outcome, Vec<(u32, Vec<u8>)>) {
        let mut out = vec![];
        let outcome = h.answer(&export(), option, data, &mut out);
        (outcome, replies(&out))
    }

    fn string(s: &[u8]) -> Vec<u8> {
        [&(s.len() as u32).to_be_bytes(), s].concat()
    }

    fn context(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
        let mut data = string(name);
        data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|q| data.extend(string(q)));
        data
    }

    #[test]
    fn go_describes_and_goes() {
        let mut data = string(b"fs2");
        data.extend_from_slice(&[0, 4, 0, 3, 0, 1, 0, 2, 0, 99]);
        let (outcome, replies) = ask(&mut fixed(), wire::OPT_GO, &data);
        assert_eq!(outcome, Outcome::Transmission);
        let kinds: Vec<u32> = replies.iter().map(|r| r.0).collect();
        assert_eq!(kinds, [wire::REP_INFO, wire::REP_INFO, wire::REP_INFO, wire::REP_INFO, wire::REP_ACK]);
        assert_eq!(replies[0].1[2..10], (1u64 << 30).to_be_bytes());
        let flags = u16::from_be_bytes([replies[0].1[10], replies[0].1[11]]);
        assert_ne!(flags & wire::FLAG_ROTATIONAL, 0);
        assert_eq!(flags & wire::FLAG_SEND_DF, 0);
        assert_eq!(replies[2].1.len(), 2 + 4096);
        assert!(std::str::from_utf8(&replies[2].1[2..]).is_ok());
        assert_eq!(replies[3].1, [0, 3, 0, 0, 0, 1, 0, 0, 4, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn refusals_leave_the_handshake_going() {
        let mut unknown = string(b"other");
        unknown.extend_from_slice(&[0, 0]);
        for (option, data, kind) in [
            (wire::OPT_GO, unknown, wire::REP_ERR_UNKNOWN),
            (wire::OPT_GO, vec![0, 0, 0], wire::REP_ERR_INVALID),
            (wire::OPT_INFO, vec![0, 0, 0, 0, 0, 1], wire::REP_ERR_INVALID),
            (wire::OPT_LIST, vec![1], wire::REP_ERR_INVALID),
            (wire::OPT_STRUCTURED_REPLY, vec![1], wire::REP_ERR_INVALID),
            (wire::OPT_STARTTLS, vec![], wire::REP_ERR_UNSUP),
            (4, vec![], wire::REP_ERR_UNSUP),
            (11, vec![], wire::REP_ERR_UNSUP),
            (u32::MAX, vec![1, 2, 3], wire::REP_ERR_UNSUP),
            (wire::OPT_SET_META_CONTEXT, context(b"", &[wire::CONTEXT]), wire::REP_ERR_INVALID),
        ] {
            let (outcome, replies) = ask(&mut fixed(), option, &data);
            assert_eq!(
                (outcome, replies.len(), replies[0].0),
                (Outcome::Continue, 1, kind),
                "option {option}"
            );
        }
    }

    #[test]
    fn contexts_are_set_and_reset() {
        let mut h = fixed();
        h.agreed.structured = true;
        let (_, r) = ask(&mut h, wire::OPT_LIST_META_CONTEXT, &context(b"", &[]));
        assert_eq!((r.len(), h.agreed.context), (2, false));
        let (_, r) = ask(&mut h, wire::OPT_LIST_META_CONTEXT, &context(b"", &[b"base:"]));
        assert_eq!(r.len(), 2);
        // A flood of the same query is answered once.
        let flood = vec![wire::CONTEXT; 3000];
        let (_, r) = ask(&mut h, wire::OPT_SET_META_CONTEXT, &context(b"fs2", &flood));
        assert_eq!((r.len(), r[0].0, h.agreed.context), (2, wire::REP_META_CONTEXT, true));
        let (_, r) = ask(&mut h, wire::OPT_SET_META_CONTEXT, &context(b"", &[b"base:", b"qemu:x"]));
        assert_eq!((r.len(), r[0].0, h.agreed.context), (1, wire::REP_ACK, false));
        ask(&mut h, wire::OPT_SET_META_CONTEXT, &context(b"", &[wire::CONTEXT]));
        assert!(h.agreed.context);
        let (_, r) = ask(&mut h, wire::OPT_SET_META_CONTEXT, &context(b"other", &[wire::CONTEXT]));
        assert_eq!((r[0].0, h.agreed.context), (wire::REP_ERR_UNKNOWN, false));
        // A count beyond the data is malformed, not an endless loop.
        let (_, r) = ask(&mut h, wire::OPT_LIST_META_CONTEXT, &[0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(r[0].0, wire::REP_ERR_INVALID);
    }

    #[test]
    fn the_old_way_in() {
        let mut h = Handshake::default();
        h.take_flags(0).unwrap();
        let mut out = vec![];
        assert_eq!(h.answer(&export(), wire::OPT_EXPORT_NAME, b"", &mut out), Outcome::Transmission);
        assert_eq!(out.len(), 8 + 2 + 124);
        assert!(matches!(ask(&mut h, wire::OPT_LIST, b"").0, Outcome::Close(_)));
        assert!(matches!(ask(&mut fixed(), wire::OPT_EXPORT_NAME, b"no").0, Outcome::Close(_)));
        assert!(h.take_flags(4).is_err());
    }
}
