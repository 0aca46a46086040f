//! What goes into and comes out of the machine, beside requests.

use std::sync::Arc;

use fs2_block::{Extent, RequestId};

/// Names one dispatched I/O until its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Which backing an I/O goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The volume's own device.
    Volume,
    /// The file or device that holds the replica table, where it lives apart.
    Table,
}

/// What the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Read.
    Read,
    /// Write; with `fua`, durable before it completes.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Make the bytes read as zero, durable by the next flush.
    WriteZeroes {
        /// Keep the space allocated below.
        no_hole: bool,
        /// Durable before it completes.
        fua: bool,
    },
    /// Tell the device the bytes are not needed.
    Discard,
    /// Make completed writes durable.
    Flush,
}

/// Whose memory an I/O reads from or writes into.
#[derive(Clone, Debug)]
pub enum IoData {
    /// None: a flush, zeroes, a discard; for a read, memory the driver takes for the occasion and
    /// hands to [`crate::Volume::complete`].
    None,
    /// The request's own buffer, which belongs to the daemon alone. The extent may lie elsewhere than
    /// the request's (a replica); the length is the same.
    Client(RequestId),
    /// Bytes of the engine.
    Engine(Arc<[u8]>),
}

/// One I/O for the driver. It is complete when [`crate::Volume::complete`] was called with its id.
#[derive(Clone, Debug)]
pub struct Io {
    /// Its name.
    pub id: IoId,
    /// Where to.
    pub target: Target,
    /// What.
    pub op: IoOp,
    /// Which bytes of the target (empty for a flush).
    pub extent: Extent,
    /// Whose memory.
    pub data: IoData,
}

/// How an I/O ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Done, or an errno value.
    pub result: Result<(), i32>,
    /// The bytes a read brought, of the extent's length; empty otherwise. No one but the daemon can
    /// write this memory.
    pub data: &'a [u8],
}

impl<'a> Outcome<'a> {
    /// A write, flush or discard that succeeded.
    pub fn done() -> Outcome<'static> {
        Outcome { result: Ok(()), data: &[] }
    }

    /// A read that succeeded.
    pub fn read(data: &'a [u8]) -> Outcome<'a> {
        Outcome { result: Ok(()), data }
    }

    /// A failure with this errno.
    pub fn failed(errno: i32) -> Outcome<'static> {
        Outcome { result: Err(errno), data: &[] }
    }
}

/// A request's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request.
    pub request: RequestId,
    /// Done, or an errno value.
    pub result: Result<(), i32>,
}

/// Input/output error.
pub const EIO: i32 = 5;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// No space left below.
pub const ENOSPC: i32 = 28;
/// The volume is shutting down.
pub const ESHUTDOWN: i32 = 108;
