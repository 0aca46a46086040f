//! Bugs to plant, one for each rule of `docs/safety.md`: a proof that cannot fail proves nothing.
//!
//! Without the feature `planted-bugs` [`Plant`] has the same names and nothing listens to them:
//! [`crate::EngineConfig`] holds none, and every test for one is the constant `false`.

macro_rules! plants {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// A rule to break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Plant {
            $($(#[$doc])* $name),+
        }

        impl Plant {
            /// Every one of them.
            pub const ALL: &'static [Plant] = &[$(Plant::$name),+];
        }
    };
}

plants! {
    /// Counterexample 1: a copy does not wait for the mark's erasure.
    CopyKeepsMark,
    /// Counterexample 2: what a replica read brought is not hashed.
    ReplicaNotHashed,
    /// Counterexample 3: the checker writes the mark over pages it has not verified. The model of the
    /// checker listens to it.
    CheckerLaunders,
    /// Counterexamples 4 and R4's old wording: a discard over any connection frees.
    AnyConnectionFrees,
    /// Counterexample 5: a discard that is passed down drops no mapping.
    PassedDiscardKeepsMapping,
    /// Counterexample 5, second trace: it drops at its arrival only.
    PassedDiscardDropsEarly,
    /// Counterexample 6: a punch does not hold the replica's block.
    PunchHoldsNothing,
    /// Counterexample 6, read literally: a punch after the block was written.
    PunchAfterWrite,
    /// Counterexample 7 and R5, dispatch of the read: a read does not wait for a write in flight.
    ReadPassesWrite,
    /// Counterexample 8: a foreign writer freezes, but the replicas stay.
    ForeignKeepsReplicas,
    /// Counterexample 9: a discard that was held frees although a write came after it.
    HeldDiscardFrees,
    /// Counterexample 10 and R3: a bitmap write does not wait for copies into what it claims.
    ClaimDoesNotWait,
    /// Weak reading: the mark is written after a freeze.
    MarkAfterFreeze,
    /// Weak reading: the mark is written after the table's blocks were lost.
    MarkAfterTableLost,
    /// The mark is written over a bitmap whose writer had not finished.
    MarkThoughUnannounced,
    /// Weak reading: once the table's blocks are lost, the mark is not erased.
    LostTableKeepsMark,
    /// Weak reading and R6: a read served from a replica does not pin it.
    NoPin,
    /// R0: the volume need not be clean.
    DirtyIsValid,
    /// R0: no mark is needed.
    NoMarkNeeded,
    /// R0: the token is not compared.
    TokenIgnored,
    /// R0: the copies of the superblock are not compared.
    BackupsIgnored,
    /// R1: a written block stays in F.
    WriteStaysFree,
    /// R1: a write keeps the mappings with its block as original.
    WriteKeepsOriginal,
    /// R1: a write keeps the mappings with its block as replica.
    WriteKeepsReplica,
    /// R2: the block joins F only after the acknowledgement, whatever came since.
    DiscardAfterAck,
    /// R2: with discards passed down, the block joins F before the discard ended below.
    DiscardBeforeEnd,
    /// "Only a discard": a bit that is 0 in a bitmap write frees.
    BitZeroFrees,
    /// R3: bits that are 1 are not looked at.
    ClaimIgnored,
    /// R4: nothing freezes.
    NeverFreezes,
    /// R4: a check after a mount that had not ended does not freeze.
    CheckKeepsFree,
    /// R5: a write of the original during the copy does not stop the publication.
    CopyIgnoresVersion,
    /// R5: what the policy had read is copied although a request changed it since.
    FetchIgnoresVersion,
    /// R5: F is not looked at again at the dispatch of a copy.
    CopySkipsRecheck,
    /// R5: a write of the replica's block does not wait for the copy.
    WritePassesCopy,
    /// R6: a new copy does not wait for reads of its target.
    CopyPassesPin,
    /// R7: a table write is issued although the client took the block.
    TableLossIgnored,
    /// R7: a client's write does not wait for a table write in flight.
    TableWriteHoldsNothing,
    /// R8: a read of a block that holds a replica is answered with zeroes. The model's driver listens to
    /// it: the machine has no other way to answer a read than from the device.
    ReplicaMasked,
    /// R8: what the disk does not read is an error, although a replica holds it.
    UnreadIsError,
    /// The mark stays through the first write of a session.
    MarkKept,
    /// The mark's erasure is not flushed before the first write.
    EraseNotFlushed,
    /// At a clean detach, mark and pages share one flush.
    MarkSharesFlush,
    /// A clean detach flags every page as verified, whatever became of its entries.
    FlagNotPerPage,
    /// The mark is written although F was not valid.
    MarkThoughInvalid,
    /// Unverified entries are read.
    UnverifiedServed,
    /// A flush joins an fdatasync that runs already.
    FlushJoins,
    /// A failed flush fails only once.
    FlushForgets,
}
