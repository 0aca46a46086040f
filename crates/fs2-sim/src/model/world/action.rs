//! What may happen next.

use super::super::kernel::Tracked;

/// Which copy a read is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum From {
    /// The original; its payload is captured.
    Original,
    /// A replica where there is one.
    Replica,
}

/// A program for unmounted volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// `e2fsck -f` that mends what it finds.
    Check,
    /// The same, clearing inode 5.
    CheckClears,
    /// `resize2fs`: one group more.
    Grow,
    /// `resize2fs -M`: one group less, and a block of the table moves to S.
    Shrink,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The client reads.
    Read(Tracked, From),
    /// The client reads a block that is nobody's.
    ReadFree(Tracked, From),
    /// The client reads one of a block's parts.
    ReadPart(Tracked, usize, From),
    /// The client reads a block and its neighbour in one request.
    ReadTwo(Tracked, From),
    /// The client writes a new value.
    Write(Tracked),
    /// The client writes a block and its neighbour in one request.
    WriteTwo(Tracked),
    /// The same while another write of the block is in flight.
    WriteToo(Tracked),
    /// It writes one part.
    WritePart(Tracked, usize),
    /// It writes zeroes.
    Zero(Tracked),
    /// It writes zeroes to one part.
    ZeroPart(Tracked, usize),
    /// It allocates a block, in memory.
    Alloc(Tracked),
    /// It frees a block, in memory.
    Free(Tracked),
    /// It discards a free block (fstrim, or a freed one with -o discard).
    Discard(Tracked),
    /// The same while a write of the block is in flight.
    DiscardToo(Tracked),
    /// It discards a free block and the first part of its free neighbour.
    DiscardOdd(Tracked),
    /// It discards the first part of a free block.
    DiscardPart(Tracked),
    /// The same from a frontend that knows punched holes only.
    Punch(Tracked),
    /// The client stops waiting for a discard and goes on.
    GiveUp(Tracked),
    /// The bitmap of R's group is sent with the content it has now.
    SendBitmap,
    /// The same of S's group, where that is another.
    SendOtherBitmap,
    /// The bitmap of R's group arrives.
    BitmapArrives,
    /// That of S's group does.
    OtherBitmapArrives,
    /// A tool marks a block used without writing it.
    Claim(Tracked),
    /// The client writes P: what belongs to files.
    WriteRefs,
    /// A tool has a block zeroed by a frontend that knows punched holes only.
    PunchZeroes(Tracked),
    /// It flushes.
    Flush,
    /// It flushes while another flush is in flight.
    FlushToo,
    /// The kernel mounts.
    Mount,
    /// It unmounts in order; all I/O is done at once.
    Unmount,
    /// The mounted file system is frozen (FIFREEZE): all is written, and it is marked clean.
    FreezeFs,
    /// And thawed.
    Thaw,
    /// It is remounted read-only.
    ReadOnly,
    /// And for writing again.
    Writable,
    /// A program works on the unmounted volume through the daemon, request by request.
    Run(Tool),
    /// The kernel dies, the daemon lives.
    KernelDies,
    /// The connections are cut; the client goes on over new ones and sends again what was not answered. What
    /// was sent but not read stays in the old ones' sockets.
    Reconnect,
    /// The daemon sees that a connection's client is gone, and reads no more from it.
    Notice(u32),
    /// What the client sends next goes over this one of its connections.
    Route(u32),
    /// The daemon reads the next request that came over this one of the connections in use.
    Arrives(u32),
    /// A discard is sent; it stays in the socket.
    SendDiscard(Tracked),
    /// The daemon reads what is in the socket of the connection.
    Receive(u32),
    /// The next payload is to be copied to this block.
    Target(Tracked),
    /// The policy evicts the replica in a block.
    Evict(Tracked),
    /// A device slot is free, and the policy would have this block read for itself.
    Fetch(Tracked),
    /// A device slot is free and the engine may do work of its own.
    Background,
    /// Nothing: there is a replica in a block, or a scripted beginning went wrong.
    Expect(Tracked),
    /// The device does the I/O at this place of its queue.
    Land(usize),
    /// It fails it.
    Fail(usize),
    /// The daemon is killed, and its clients with it; I/O in the device's queue goes on.
    Kill,
    /// The daemon is killed; its clients wait and send again what was not answered.
    KillAlone,
    /// Another process goes on with the session, where it is one to go on with; else it begins anew.
    HandOver,
    /// Power fails; of the writes in the caches those with their bit survive.
    PowerLoss(u64),
    /// Power fails; each sector in the caches survives or does not, as the seed has it.
    PowerLossTorn(u64),
    /// A daemon attaches.
    Attach,
    /// The daemon is asked to end in order; its clients are done.
    Detach,
    /// The same while requests are in flight.
    DetachBusy,
    /// `chkfs2`: e2fsck -f ends 0, then the table is rewritten and marked.
    Check,
    /// With no daemon attached, the volume is mounted elsewhere, a block written, and unmounted.
    ElsewhereWrites(Tracked),
    /// The same by a copy of the superblock: the primary one tells nothing of it.
    ElsewhereByCopy(Tracked),
    /// With a daemon attached, something else writes a block.
    ForeignWrites(Tracked),
    /// With a daemon attached, something else mounts the volume and writes a block of the table.
    ForeignTakes(Tracked),
    /// And the daemon is told so.
    ForeignNoticed,
}
