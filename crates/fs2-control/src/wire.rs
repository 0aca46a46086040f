//! Frames and what is in them: the only module that knows the encoding. Pure; sockets are the
//! business of `client` and `server`.
//!
//! bincode 2 is no longer maintained. It decodes nothing but frames of this project's own socket,
//! which only the daemon's user can open, and always below a limit.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::{Command, Reply};

/// The version of this contract; see the crate's documentation for when it must change.
pub const PROTOCOL_VERSION: u32 = 9;

/// The first version whose daemons take [`upgrade_frame`].
pub(crate) const UPGRADES_SINCE: u32 = 9;

/// The longest frame anyone may send, in bytes without the length. (A status is about 2 KiB; a guess
/// with much room.)
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// The longest command, in bytes without the length: a path of 4096 bytes, with room.
pub const COMMAND_BYTES_MAX: usize = 16 << 10;

/// The longest hello: later versions may append to it.
pub(crate) const HELLO_BYTES_MAX: usize = 64;

/// Bytes of the length before a frame.
pub(crate) const PREFIX_BYTES: usize = 4;

const MAGIC: [u8; 4] = *b"FS2C";

/// How a request to make room for another program begins, and its answer.
const UPGRADE: [u8; 4] = *b"FS2U";

/// Bytes that are no frame of this contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The length before a frame is above what may come here.
    #[error("a frame of {bytes} bytes, where at most {max} may come")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// The peer does not begin with a hello of this contract.
    #[error("the peer does not speak the FS2 control protocol")]
    NotHello,
    /// A frame's content cannot be decoded, or goes on behind its end.
    #[error("a frame cannot be decoded: {0}")]
    Malformed(String),
}

/// Checks the length before a frame against what may come.
pub(crate) fn frame_len(prefix: [u8; PREFIX_BYTES], max: usize) -> Result<usize, WireError> {
    let bytes = u32::from_le_bytes(prefix) as usize;
    if bytes > max { Err(WireError::TooLong { bytes, max }) } else { Ok(bytes) }
}

/// A whole frame around `content`.
fn frame(content: &[u8]) -> Result<Vec<u8>, WireError> {
    let bytes = content.len();
    let len = u32::try_from(bytes).ok().filter(|_| bytes <= FRAME_BYTES_MAX);
    let len = len.ok_or(WireError::TooLong { bytes, max: FRAME_BYTES_MAX })?;
    let mut out = Vec::with_capacity(PREFIX_BYTES + bytes);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(content);
    Ok(out)
}

/// A hello's frame.
pub(crate) fn hello_frame() -> Vec<u8> {
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    frame(&content).expect("a hello has 8 bytes")
}

/// The version in a hello's content. What a later version appends is ignored.
pub(crate) fn hello_version(content: &[u8]) -> Result<u32, WireError> {
    match content.split_first_chunk::<4>() {
        Some((&MAGIC, rest)) => match rest.split_first_chunk::<4>() {
            Some((&version, _)) => Ok(u32::from_le_bytes(version)),
            None => Err(WireError::NotHello),
        },
        _ => Err(WireError::NotHello),
    }
}

/// Contents up to here, all there are but for the longest messages, are decoded below
/// [`SHORT_LIMIT`]: whoever sends little cannot have much reserved for him by the lengths he claims.
const SHORT_BYTES: usize = 4096;

/// Bytes in memory that a short content may ask for: eight times as many, as numbers do, and again.
const SHORT_LIMIT: usize = 16 * SHORT_BYTES;

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<FRAME_BYTES_MAX>()
}

fn encode(value: &impl Serialize, max: usize) -> Result<Vec<u8>, WireError> {
    let content = bincode::serde::encode_to_vec(value, config())
        .map_err(|e| WireError::Malformed(format!("not encodable: {e}")))?;
    if content.len() > max {
        return Err(WireError::TooLong { bytes: content.len(), max });
    }
    frame(&content)
}

fn decode<T: DeserializeOwned>(content: &[u8]) -> Result<T, WireError> {
    let decoded = if content.len() <= SHORT_BYTES {
        let short = bincode::config::standard().with_limit::<SHORT_LIMIT>();
        bincode::serde::decode_from_slice(content, short)
    } else {
        bincode::serde::decode_from_slice(content, config())
    };
    let (value, used) = decoded.map_err(|e| WireError::Malformed(e.to_string()))?;
    match content.len() - used {
        0 => Ok(value),
        left => Err(WireError::Malformed(format!("{left} bytes behind its end"))),
    }
}

/// A command's frame.
pub(crate) fn command_frame(command: &Command) -> Result<Vec<u8>, WireError> {
    encode(command, COMMAND_BYTES_MAX)
}

/// A command from a frame's content.
pub(crate) fn command(content: &[u8]) -> Result<Command, WireError> {
    decode(content)
}

/// The frame that asks a daemon of any version to make room for `program`.
pub(crate) fn upgrade_frame(program: &Path) -> Result<Vec<u8>, WireError> {
    let content = [&UPGRADE[..], program.as_os_str().as_bytes()].concat();
    match content.len() {
        bytes if bytes > COMMAND_BYTES_MAX => Err(WireError::TooLong { bytes, max: COMMAND_BYTES_MAX }),
        _ => frame(&content),
    }
}

/// The program of such a frame's content, if it is one: no command of any version begins so.
pub(crate) fn upgrade(content: &[u8]) -> Option<PathBuf> {
    let program = content.strip_prefix(&UPGRADE)?;
    Some(OsStr::from_bytes(program).into())
}

/// The frame that answers it.
pub(crate) fn upgraded_frame(reply: &Reply) -> Result<Vec<u8>, WireError> {
    let why = match reply {
        Reply::Done => String::new(),
        Reply::Error { what, place, next } => format!("{place}: {what}; {next}"),
        Reply::Status(_) => "no answer to what was asked".to_owned(),
    };
    let refused = u8::from(*reply != Reply::Done);
    frame(&[&UPGRADE[..], &[refused], why.as_bytes()].concat())
}

/// What such an answer says: whether the daemon makes room, or why not.
pub(crate) fn upgraded(content: &[u8]) -> Result<Result<(), String>, WireError> {
    match content.strip_prefix(&UPGRADE).and_then(<[u8]>::split_first) {
        Some((0, [])) => Ok(Ok(())),
        Some((1, why)) => Ok(Err(String::from_utf8_lossy(why).into_owned())),
        _ => Err(WireError::Malformed("no answer to an upgrade".into())),
    }
}

/// A reply's frame.
pub(crate) fn reply_frame(reply: &Reply) -> Result<Vec<u8>, WireError> {
    encode(reply, FRAME_BYTES_MAX)
}

/// A reply from a frame's content.
pub(crate) fn reply(content: &[u8]) -> Result<Reply, WireError> {
    decode(content)
}

/// For fuzzing: takes `bytes` as a peer's whole stream, as server and as client, and returns how many
/// frames held a command or a reply.
///
/// # Panics
/// Where what was decoded does not survive being encoded again, or is shown beyond its bounds: a bug.
pub fn fuzz_frame(bytes: &[u8]) -> usize {
    let mut understood = 0;
    let mut rest = bytes;
    while let Some((&prefix, behind)) = rest.split_first_chunk::<PREFIX_BYTES>() {
        let Ok(len) = frame_len(prefix, FRAME_BYTES_MAX) else { break };
        let Some((content, behind)) = behind.split_at_checked(len) else { break };
        rest = behind;
        if let Ok(version) = hello_version(content) {
            assert_eq!(content[4..8], version.to_le_bytes());
        }
        if let Some(program) = upgrade(content) {
            assert!(command(content).is_err(), "no command begins so");
            if let Ok(again) = upgrade_frame(&program) {
                assert_eq!(&again[PREFIX_BYTES..], content);
            }
        }
        let _ = upgraded(content);
        if let Ok(c) = command(content) {
            understood += 1;
            // Not every content that decodes fits a command's frame, but what fits comes back.
            if let Ok(again) = command_frame(&c) {
                assert_eq!(command(&again[PREFIX_BYTES..]).as_ref(), Ok(&c));
            }
        }
        if let Ok(r) = reply(content) {
            understood += 1;
            if let Reply::Status(status) = &r {
                let _ = status.to_json();
                let _ = status.to_text();
            }
            // Encoded forms are compared: a NaN is not equal to itself.
            if let Ok(again) = reply_frame(&r) {
                let back = reply(&again[PREFIX_BYTES..]).expect("what was encoded can be decoded");
                assert_eq!(reply_frame(&back).as_ref(), Ok(&again));
            }
        }
    }
    understood
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::status::{Liveness, Source, Status};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// A tool of any version may ask this of a daemon of any other: these bytes never change.
    #[test]
    fn the_bytes_of_an_upgrade_are_for_ever() {
        let asked = upgrade_frame(Path::new("/p")).unwrap();
        assert_eq!(hex(&asked), "06000000465332552f70");
        assert_eq!(upgrade(&asked[PREFIX_BYTES..]), Some("/p".into()));
        let done = upgraded_frame(&Reply::Done).unwrap();
        assert_eq!(hex(&done), "050000004653325500");
        assert_eq!(upgraded(&done[PREFIX_BYTES..]), Ok(Ok(())));
        let refused = upgraded_frame(&Reply::error("a", "b", "c")).unwrap();
        assert_eq!(hex(&refused), "0c0000004653325501623a20613b2063");
        assert_eq!(upgraded(&refused[PREFIX_BYTES..]), Ok(Err("b: a; c".into())));
        for other in [&b"FS2U"[..], b"FS2U\x02", b"FS2U\x00x", b"FS2C\x00", b""] {
            assert!(upgraded(other).is_err(), "{other:?}");
        }
        let long = "x".repeat(COMMAND_BYTES_MAX);
        assert!(matches!(upgrade_frame(Path::new(&long)), Err(WireError::TooLong { .. })));
    }

    /// The bytes of version 9. A change here is a change of the contract: raise `PROTOCOL_VERSION`.
    #[test]
    fn the_bytes_are_those_of_this_version() {
        assert_eq!(hex(&hello_frame()), "080000004653324309000000");
        assert_eq!(hex(&command_frame(&Command::Status).unwrap()), "0100000000");
        assert_eq!(hex(&command_frame(&Command::Detach).unwrap()), "0100000001");
        let trace = Command::TraceStart { path: "/t".into() };
        assert_eq!(hex(&command_frame(&trace).unwrap()), "0400000002022f74");
        assert_eq!(hex(&command_frame(&Command::TraceStop).unwrap()), "0100000003");
        assert_eq!(hex(&command_frame(&Command::Ping).unwrap()), "0100000004");
        assert_eq!(hex(&reply_frame(&Reply::Done).unwrap()), "0100000001");
        let error = Reply::error("a", "b", "");
        assert_eq!(hex(&reply_frame(&error).unwrap()), "060000000201610162".to_owned() + "00");
        let status = Status { liveness: Liveness::Active, pid: 7, ..Status::default() };
        let frame = reply_frame(&Reply::Status(Box::new(status))).unwrap();
        let want = [
            "00",                 // which reply
            "000000000000",       // volume, uuid, frontend, policy, drive, data_path
            "06616374697665",     // liveness
            "00",                 // remedy
            "0000",               // volume_bytes, block_bytes
            &"00".repeat(5 * 8),  // free_share, watermarks, space_share
            "000000",             // watermark_state, discard_seen, hot_region
            "0000000000",         // head_block, parts
            &"00".repeat(19 + 5), // counters, failed among them
            "00",                 // copy_errors
            "00",                 // pause_work
            &"00".repeat(2 * 8),
            "0000",                     // replica_gate
            "000000000000",             // hash_mismatches to clients_cut
            "00000000000000046e6f6e65", // access_ms
            &"00".repeat(3 + 7 * 8),    // total_s
            &"00".repeat(1 + 2 * 3),    // control
            "00046e6f6e65",             // energy_j
            "0000000000000000",         // uptime_s
            "000000",                   // trace, trace_failed, detach
            "0700",                     // pid, version
        ];
        assert_eq!(hex(&frame[PREFIX_BYTES..]), want.concat());
    }

    #[test]
    fn a_length_above_the_bound_is_refused_before_anything_is_read() {
        assert_eq!(frame_len([0, 0, 16, 0], FRAME_BYTES_MAX), Ok(1 << 20));
        assert_eq!(
            frame_len([1, 0, 16, 0], FRAME_BYTES_MAX),
            Err(WireError::TooLong { bytes: (1 << 20) + 1, max: 1 << 20 })
        );
        assert!(frame_len([0xff; 4], FRAME_BYTES_MAX).is_err());
    }

    /// A string that claims 2^63 bytes, in a frame of ten.
    #[test]
    fn a_claimed_length_is_not_believed() {
        let mut content = vec![2, 253];
        content.extend_from_slice(&(1u64 << 63).to_le_bytes());
        assert!(matches!(reply(&content), Err(WireError::Malformed(_))));
        assert!(matches!(command(&content), Err(WireError::Malformed(_))));
    }

    /// Short and long contents are decoded below different limits; both hold all they can.
    #[test]
    fn what_fits_is_decoded_on_either_side_of_the_limit() {
        for len in
            [0, 1, SHORT_BYTES - 20, SHORT_BYTES - 5, SHORT_BYTES, SHORT_BYTES + 5, FRAME_BYTES_MAX / 2]
        {
            let sent = Reply::error("x".repeat(len), "", "y");
            let frame = reply_frame(&sent).unwrap();
            assert_eq!(reply(&frame[PREFIX_BYTES..]), Ok(sent), "{len} bytes");
        }
        for len in [1, SHORT_BYTES - 3, SHORT_BYTES + 3, COMMAND_BYTES_MAX - 10] {
            let sent = Command::TraceStart { path: "x".repeat(len).into() };
            let frame = command_frame(&sent).unwrap();
            assert_eq!(command(&frame[PREFIX_BYTES..]), Ok(sent), "{len} bytes");
        }
    }

    #[test]
    fn bytes_behind_a_value_are_refused() {
        assert_eq!(command(&[4]), Ok(Command::Ping));
        assert!(matches!(command(&[4, 0]), Err(WireError::Malformed(_))));
    }

    #[test]
    fn a_path_too_long_is_refused_by_its_sender() {
        let path = "x".repeat(COMMAND_BYTES_MAX).into();
        assert!(matches!(command_frame(&Command::TraceStart { path }), Err(WireError::TooLong { .. })));
        let reply = Reply::error("x".repeat(FRAME_BYTES_MAX), "", "");
        assert!(matches!(reply_frame(&reply), Err(WireError::TooLong { .. })));
    }

    #[test]
    fn a_path_need_not_be_utf8() {
        use std::os::unix::ffi::OsStringExt;
        let path = std::ffi::OsString::from_vec(vec![b'/', 0xff, 0xfe]).into();
        let sent = Command::TraceStart { path };
        assert_eq!(command(&command_frame(&sent).unwrap()[PREFIX_BYTES..]), Ok(sent));
    }

    proptest! {
        #[test]
        fn garbage_is_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            fuzz_frame(&bytes);
            let _ = command(&bytes);
            let _ = reply(&bytes);
            let _ = hello_version(&bytes);
        }

        /// Nearer to the target: a good frame with some bytes changed.
        #[test]
        fn damaged_frames_are_harmless(
            status in crate::status::tests::any_status(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut frame = reply_frame(&Reply::Status(Box::new(status))).unwrap();
            prop_assert_eq!(fuzz_frame(&frame), 1);
            for (at, byte) in damage {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            fuzz_frame(&frame);
        }

        #[test]
        fn what_is_sent_arrives(status in crate::status::tests::any_status(), text in ".*") {
            for sent in [Reply::Status(Box::new(status)), Reply::error(text.clone(), text, "")] {
                let frame = reply_frame(&sent).unwrap();
                prop_assert_eq!(reply(&frame[PREFIX_BYTES..]).unwrap(), sent);
            }
        }

        #[test]
        fn a_source_survives_its_text(name in "[a-z ]{0,20}") {
            for source in [Source::Modelled(name.clone()), Source::Simulated(name.clone())] {
                prop_assert_eq!(Source::from(source.to_string()), source);
            }
        }
    }
}
