//! The protocol without a socket: bytes in, decisions out.
//!
//! [`Session`] is one connection's half of the conversation as a state machine: it is shown the bytes
//! that have arrived and says what they ask for. It does no I/O, keeps no payload and allocates only
//! handshake replies; payloads, limits in flight and the volume are the server's affair.
//!
//! What is spoken: fixed newstyle with the options EXPORT_NAME, ABORT, LIST, INFO, GO,
//! STRUCTURED_REPLY, LIST_META_CONTEXT and SET_META_CONTEXT (`base:allocation`). Every other option,
//! STARTTLS and EXTENDED_HEADERS among them, is answered with ERR_UNSUP. The source is `doc/proto.md` of the
//! NetworkBlockDevice project.
//!
//! ```
//! use fs2d::frontend::nbd::codec::{Export, Limits, Session, Step};
//! let export = Export { size_bytes: 1 << 20, block_bytes: 4096, rotational: true, description: "disk".into() };
//! let mut session = Session::new(export, Limits::default());
//! let mut out = Vec::new();
//! // The client's flags: fixed newstyle, no zeroes.
//! assert_eq!(session.step(&[0, 0, 0, 3], &mut out), (4, Step::Replied));
//! // NBD_OPT_ABORT is acknowledged before the end.
//! let abort = [b"IHAVEOPT".as_slice(), &[0, 0, 0, 2], &[0, 0, 0, 0]].concat();
//! let (used, step) = session.step(&abort, &mut out);
//! assert_eq!((used, out.len()), (16, 20));
//! assert!(matches!(step, Step::Close(_)));
//! ```

mod handshake;
mod reply;
mod request;
mod session;

pub use reply::ReplyHead;
pub use request::{Command, HEADER_BYTES, RawRequest, Refusal, Request};
pub use session::{CloseReason, Session, Step, fuzz_session};

/// The export's name beside the empty default name.
pub const EXPORT_NAME: &str = "fs2";

/// Largest payload of one request, in bytes: what every NBD client expects without negotiation.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// What a client is told of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Bytes of the volume.
    pub size_bytes: u64,
    /// Preferred size of I/O in bytes.
    pub block_bytes: u32,
    /// Whether the device below turns.
    pub rotational: bool,
    /// A line for people; at most 4096 bytes of it are sent.
    pub description: String,
}

/// What a client may make the server read and skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one option's data that are looked at; at least 4 KiB is sensible.
    pub option_bytes_max: u32,
    /// Bytes of one option's data that are skipped to answer ERR_TOO_BIG; beyond, the connection ends.
    pub option_skip_bytes_max: u32,
    /// Options of one handshake; beyond, the connection ends.
    pub options_max: u32,
    /// Bytes of a refused write's payload that are skipped to answer it; beyond, the connection ends.
    pub payload_skip_bytes_max: u32,
}

impl Default for Limits {
    /// 64 KiB, 1 MiB, 128 options, 64 MiB. Guesses: a real client's longest option is some hundred
    /// bytes, its handshake five options; the last is twice the largest payload allowed.
    fn default() -> Limits {
        Limits {
            option_bytes_max: 64 << 10,
            option_skip_bytes_max: 1 << 20,
            options_max: 128,
            payload_skip_bytes_max: 64 << 20,
        }
    }
}

/// An error as it goes over the wire; the protocol knows no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum WireError {
    /// Not permitted.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// Out of memory.
    NoMem = 12,
    /// The request is wrong.
    Inval = 22,
    /// No space, or a write beyond the end.
    NoSpc = 28,
    /// A read too large to be answered in one piece.
    Overflow = 75,
    /// Not supported, or a fast zero that would be slow.
    NotSup = 95,
    /// The server is going away.
    Shutdown = 108,
}

impl WireError {
    /// The nearest error the protocol knows to an errno of this system.
    pub fn from_errno(errno: i32) -> WireError {
        match errno {
            libc::EPERM | libc::EACCES | libc::EROFS => WireError::Perm,
            libc::ENOMEM => WireError::NoMem,
            libc::EINVAL => WireError::Inval,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => WireError::NoSpc,
            libc::EOVERFLOW => WireError::Overflow,
            libc::EOPNOTSUPP | libc::ENOSYS => WireError::NotSup,
            libc::ESHUTDOWN => WireError::Shutdown,
            _ => WireError::Io,
        }
    }

    /// A few words for a structured error reply.
    pub fn message(self) -> &'static str {
        match self {
            WireError::Perm => "not permitted",
            WireError::Io => "the device failed",
            WireError::NoMem => "out of memory",
            WireError::Inval => "invalid request",
            WireError::NoSpc => "no space left",
            WireError::Overflow => "too large for one reply",
            WireError::NotSup => "not supported",
            WireError::Shutdown => "the server is shutting down",
        }
    }
}

/// Numbers of the protocol, as `proto.md` names them.
pub mod wire {
    /// The server's first eight bytes.
    pub const NBDMAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
    /// Begins each option, and follows [`NBDMAGIC`].
    pub const IHAVEOPT: u64 = u64::from_be_bytes(*b"IHAVEOPT");
    /// Begins each reply to an option.
    pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
    /// Begins each request.
    pub const REQUEST_MAGIC: u32 = 0x2560_9513;
    /// Begins each simple reply.
    pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
    /// Begins each chunk of a structured reply.
    pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

    /// Handshake flag of server and client: errors to options are answered.
    pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
    /// Handshake flag of server and client: no 124 zero bytes after EXPORT_NAME.
    pub const FLAG_NO_ZEROES: u16 = 2;

    /// Transmission flags.
    pub const FLAG_HAS_FLAGS: u16 = 1;
    /// FLUSH is understood.
    pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
    /// FUA is understood.
    pub const FLAG_SEND_FUA: u16 = 1 << 3;
    /// The device turns.
    pub const FLAG_ROTATIONAL: u16 = 1 << 4;
    /// TRIM is understood.
    pub const FLAG_SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is understood.
    pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// DF is understood; only with structured replies.
    pub const FLAG_SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes completed on all.
    pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is understood.
    pub const FLAG_SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO is understood.
    pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

    /// Options.
    pub const OPT_EXPORT_NAME: u32 = 1;
    /// End the handshake without a transmission.
    pub const OPT_ABORT: u32 = 2;
    /// Name the exports.
    pub const OPT_LIST: u32 = 3;
    /// Upgrade to TLS.
    pub const OPT_STARTTLS: u32 = 5;
    /// Describe an export.
    pub const OPT_INFO: u32 = 6;
    /// Describe an export and enter transmission.
    pub const OPT_GO: u32 = 7;
    /// Answer reads with structured replies.
    pub const OPT_STRUCTURED_REPLY: u32 = 8;
    /// Name the contexts of block status.
    pub const OPT_LIST_META_CONTEXT: u32 = 9;
    /// Select contexts of block status.
    pub const OPT_SET_META_CONTEXT: u32 = 10;

    /// Option replies.
    pub const REP_ACK: u32 = 1;
    /// One export.
    pub const REP_SERVER: u32 = 2;
    /// One piece of information.
    pub const REP_INFO: u32 = 3;
    /// One context.
    pub const REP_META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
    /// Wrong data of an option.
    pub const REP_ERR_INVALID: u32 = (1 << 31) + 3;
    /// Unknown export.
    pub const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// Too much data of an option.
    pub const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

    /// Kinds of information: size and flags.
    pub const INFO_EXPORT: u16 = 0;
    /// The export's name.
    pub const INFO_NAME: u16 = 1;
    /// A line for people.
    pub const INFO_DESCRIPTION: u16 = 2;
    /// Least, preferred and largest size of a request.
    pub const INFO_BLOCK_SIZE: u16 = 3;

    /// The one context of block status.
    pub const CONTEXT: &[u8] = b"base:allocation";
    /// The number it gets.
    pub const CONTEXT_ID: u32 = 1;
    /// Block status: not stored.
    pub const STATE_HOLE: u32 = 1;
    /// Block status: reads as zero.
    pub const STATE_ZERO: u32 = 2;

    /// Commands.
    pub const CMD_READ: u16 = 0;
    /// Write.
    pub const CMD_WRITE: u16 = 1;
    /// Good bye.
    pub const CMD_DISC: u16 = 2;
    /// Flush.
    pub const CMD_FLUSH: u16 = 3;
    /// Discard.
    pub const CMD_TRIM: u16 = 4;
    /// Bring into a cache.
    pub const CMD_CACHE: u16 = 5;
    /// Make bytes read as zero.
    pub const CMD_WRITE_ZEROES: u16 = 6;
    /// What is stored and what is a hole.
    pub const CMD_BLOCK_STATUS: u16 = 7;

    /// Command flags: durable before acknowledged.
    pub const CMD_FLAG_FUA: u16 = 1;
    /// Keep zeroed bytes allocated.
    pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
    /// Answer a read in one chunk.
    pub const CMD_FLAG_DF: u16 = 1 << 2;
    /// One extent of block status is enough.
    pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
    /// Zero fast or not at all.
    pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

    /// Last chunk of a structured reply.
    pub const REPLY_FLAG_DONE: u16 = 1;
    /// Data at an offset.
    pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
    /// Extents of block status.
    pub const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
    /// An error with words.
    pub const REPLY_TYPE_ERROR: u16 = (1 << 15) + 1;
}
