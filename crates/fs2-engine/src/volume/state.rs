//! What a volume remembers of requests and I/Os while they last.

use fs2_block::{BlockNo, BlockRange, Extent, Nanos, Request, RequestId};
use smallvec::SmallVec;

use super::control::Arm;
use super::detach;
use super::tail::Waits;
use crate::io::{IoData, IoId, IoOp, Target};
use crate::log::Captured;

/// What a request turned out to be when it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Zeroes,
    Discard,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) request: Request,
    pub(super) kind: Kind,
    /// The request's bytes, widened to whole blocks.
    pub(super) lock: Extent,
    /// Blocks of the file system it touches.
    pub(super) blocks: BlockRange,
    /// Blocks of the file system it covers whole.
    pub(super) covered: BlockRange,
    pub(super) active: bool,
    /// When it arrived.
    pub(super) arrived: Nanos,
    /// When a place of it failed last.
    pub(super) failed_at: Option<Nanos>,
    /// How long it waited behind work of the engine's own, and behind such work in a pause or beside requests.
    pub(super) behind_own: Nanos,
    pub(super) charged: Waits,
    /// A read: it went to a copy last.
    pub(super) from_copy: bool,
    /// A read that has a copy and counts in the control sample: served how.
    pub(super) sampled: Option<Arm>,
    /// A read: where it failed already.
    pub(super) tried: Tried,
    /// A read: a write of what it reads arrived before it ended.
    pub(super) tainted: bool,
    /// A discard: what was written or claimed since it arrived.
    pub(super) overwritten: Vec<BlockRange>,
    /// Groups whose bitmap must be loaded first.
    pub(super) groups: Vec<u32>,
    /// Copies and punches into blocks that this bitmap write claims (R3).
    pub(super) ack_after: Vec<IoId>,
}

impl Pending {
    /// Since when it waits for what is no failure: how long a drive tries is nobody's service.
    pub(super) fn waits_since(&self) -> Nanos {
        self.failed_at.unwrap_or(self.arrived)
    }

    /// One that arrived now, of which nothing was done yet.
    pub(super) fn new(
        request: Request,
        kind: Kind,
        lock: Extent,
        blocks: BlockRange,
        covered: BlockRange,
        arrived: Nanos,
    ) -> Pending {
        Pending {
            request,
            kind,
            lock,
            blocks,
            covered,
            active: false,
            arrived,
            behind_own: Nanos(0),
            charged: Waits::default(),
            from_copy: false,
            sampled: None,
            failed_at: None,
            tried: Tried::default(),
            tainted: false,
            overwritten: Vec::new(),
            groups: Vec::new(),
            ack_after: Vec::new(),
        }
    }
}

/// Places of a read that did not bring what they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// The original, and its error.
    pub(super) original: Option<i32>,
    /// Copies, by their first blocks.
    pub(super) copies: SmallVec<[BlockNo; 2]>,
    /// Which of these the disk did not read; the others hold other bytes.
    pub(super) dead: SmallVec<[BlockNo; 2]>,
}

impl Tried {
    /// Whether nothing is left but the original.
    pub(super) fn wants_original(&self) -> bool {
        self.original.is_none() && !self.copies.is_empty()
    }
}

/// Where a read is served from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Original,
    /// The hashes of what it holds; of a few blocks they cost no allocation.
    Copy {
        first: BlockNo,
        hashes: SmallVec<[u64; 4]>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct CopyJob {
    pub(super) target: BlockRange,
    /// With whether the payload still is what the original holds.
    pub(super) blocks: Vec<(Captured, bool)>,
}

/// A client's flush that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFlush {
    pub(super) arrived: Nanos,
    pub(super) charged: Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    Client(RequestId),
    MarkErased,
    Detach,
    /// The engine itself: what it copied is on the platters.
    Settled,
}

impl Waiter {
    /// The client's request, where it is one.
    pub(super) fn client(&self) -> Option<RequestId> {
        match self {
            Waiter::Client(request) => Some(*request),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Client {
        seq: u64,
        source: Source,
    },
    Flush(Vec<Waiter>),
    Copy(CopyJob),
    Punch,
    LoadGroup(u32),
    /// Hash an original against its unverified entry, or as a sample against a verified one.
    Verify {
        block: BlockNo,
        alarm: bool,
    },
    /// Originals that the policy wants to see; `void` once one of them changed.
    Fetch {
        blocks: BlockRange,
        void: bool,
    },
    /// What follows a copy, read for the drive's own cache.
    Trail,
    EraseMark,
    EraseOldSlot,
    /// The superblock below, before table pages are written; `stale` once a client writes it.
    LookBelow {
        stale: bool,
    },
    TablePage {
        page: u32,
    },
    Detach(detach::Step),
}

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) purpose: Purpose,
    pub(super) target: Target,
    pub(super) op: IoOp,
    pub(super) extent: Extent,
    pub(super) dispatched: Nanos,
}

/// Bytes of the volume that an I/O in flight holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) io: IoId,
    pub(super) extent: Extent,
    pub(super) exclusive: bool,
}

/// An I/O of the engine's own that waits for its turn, before everything else.
#[derive(Clone, Debug)]
pub(super) struct Urgent {
    pub(super) target: Target,
    pub(super) op: IoOp,
    pub(super) extent: Extent,
    pub(super) data: IoData,
    pub(super) purpose: Purpose,
}

#[derive(Clone, Debug)]
pub(super) struct Ack {
    pub(super) request: RequestId,
    pub(super) result: Result<(), i32>,
    pub(super) after: Vec<IoId>,
}

/// Whether anyone has the bytes of clients' blocks: chosen when the volume is attached, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    Bytes,
    /// A trace over a modelled drive: writes come without payload, reads without bytes.
    Unseen,
}
