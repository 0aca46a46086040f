//! The shape of a request.

use crate::{Extent, Nanos};

/// What a client asks for. Frontends tag it; the engine answers under the same tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The connection a request came over. A FUSE file and a ublk device are one connection for their
/// whole life; every accepted NBD socket is a new one, and numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make the bytes read as zero, durable by the next flush.
    WriteZeroes,
    /// The client no longer needs the bytes; they may read as anything.
    Discard,
    /// A punched hole from a frontend that cannot tell a discard from write-zeroes (FUSE + loop).
    Punch,
    /// Make every write completed before this request arrived durable.
    Flush,
}

impl Op {
    /// Whether the operation may change what the bytes read as.
    pub fn changes_content(self) -> bool {
        matches!(self, Op::Write | Op::WriteZeroes | Op::Discard | Op::Punch)
    }
}

/// Modifiers of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flags {
    /// Force unit access: durable before it is acknowledged.
    pub fua: bool,
    /// Write zeroes must keep the blocks allocated in what lies below.
    pub no_hole: bool,
}

/// One request. The payload, where there is one, stays with whoever submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The frontend's tag.
    pub id: RequestId,
    /// Where it came from.
    pub connection: ConnectionId,
    /// What is to be done.
    pub op: Op,
    /// To which bytes (empty for a flush).
    pub extent: Extent,
    /// Modifiers.
    pub flags: Flags,
}

/// A request of a trace: when it arrived and what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time from the trace's start.
    pub at: Nanos,
    /// What is to be done.
    pub op: Op,
    /// To which bytes.
    pub extent: Extent,
}
