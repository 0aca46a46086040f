//! What goes into and comes out of the machine, beside requests.

use std::sync::Arc;

use fs2_block::{Extent, RequestId};

use crate::log::Payload;

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
    /// A read of the whole blocks around what a request asks for, for a replica is hashed as a whole: memory the
    /// driver takes for the occasion. Of a success, what lies from byte `lead` on goes into the request's own buffer
    /// before [`crate::Volume::complete`] gets all of it.
    Around {
        /// Whose read.
        request: RequestId,
        /// Bytes before what it asks for; less than a block.
        lead: u32,
    },
    /// Bytes of the engine.
    Engine(Arc<[u8]>),
    /// A copy's bytes, of the extent's length, which nobody has: only where the volume was attached by
    /// [`crate::Volume::attach_unseen`].
    Unseen,
}

impl IoData {
    /// The request it is done for, if it is one's.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            IoData::Client(request) | IoData::Around { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// What of `brought`, by a read of whole blocks around what a request asks for, is for its own buffer of `len` bytes.
    ///
    /// # Panics
    /// Where `brought` is not what the read brings, or `len` not what the request asks for: a driver's errors.
    pub fn asked_of<'a>(&self, brought: &'a [u8], len: usize) -> &'a [u8] {
        let lead = match self {
            IoData::Around { lead, .. } => *lead as usize,
            _ => 0,
        };
        &brought[lead..][..len]
    }
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

/// What a read brought.
#[derive(Clone, Copy, Debug)]
pub enum Brought<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Nobody has the bytes, but a name stands for the content of each block covered whole: equal names,
    /// equal content.
    Names(&'a [u64]),
    /// Nobody has the bytes; every block holds what it should.
    Unseen,
}

impl<'a> Brought<'a> {
    /// Of nothing at all.
    pub const NOTHING: Brought<'static> = Brought::Bytes(&[]);

    /// Whether there is no content, seen or unseen.
    pub fn is_nothing(&self) -> bool {
        match self {
            Brought::Bytes(bytes) => bytes.is_empty(),
            Brought::Names(names) => names.is_empty(),
            Brought::Unseen => false,
        }
    }

    /// Block `i`'s part, blocks being of `block_bytes` bytes.
    ///
    /// # Panics
    /// Where bytes were brought for fewer blocks.
    pub fn block(&self, i: usize, block_bytes: usize) -> Payload<'a> {
        match self {
            Brought::Bytes(bytes) => Payload::Bytes(&bytes[i * block_bytes..(i + 1) * block_bytes]),
            Brought::Names(_) | Brought::Unseen => Payload::Unseen(block_bytes),
        }
    }

    /// The bytes, none where they are unseen.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match self {
            Brought::Bytes(bytes) => bytes,
            _ => &[],
        }
    }
}

/// How an I/O ended, whatever its contents are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) result: Result<(), i32>,
    pub(crate) brought: Brought<'a>,
}

impl<'a> From<Outcome<'a>> for Ended<'a> {
    fn from(o: Outcome<'a>) -> Ended<'a> {
        Ended { result: o.result, brought: Brought::Bytes(o.data) }
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
/// The volume does not do that as it is.
pub const EOPNOTSUPP: i32 = 95;
/// No space left below.
pub const ENOSPC: i32 = 28;
/// A quota below is exceeded.
pub const EDQUOT: i32 = 122;
/// The volume is shutting down.
pub const ESHUTDOWN: i32 = 108;
