//! For each rule that can be broken, the small world in which that is seen.

use fs2_engine::Plant;

use super::explore::{Found, Limits, explore};
use super::scenarios::{Scenario, by_name};

/// A broken rule and where it shows.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The rule; `None`: R0's wait for the lock, which is not the engine's but its driver's.
    pub plant: Option<Plant>,
    /// Hashing is off too: it would hide what the rule is for, because every replica read is hashed. With
    /// hashing off and nothing else broken the scenario holds.
    pub unhashed: bool,
    /// Where.
    pub scenario: &'static str,
}

const fn shows(plant: Plant, scenario: &'static str) -> Planted {
    Planted { plant: Some(plant), unhashed: false, scenario }
}

const fn unhashed(plant: Plant, scenario: &'static str) -> Planted {
    Planted { plant: Some(plant), unhashed: true, scenario }
}

/// All of them.
pub const TABLE: &[Planted] = &[
    unhashed(Plant::CopyKeepsMark, "mark-copy"),
    shows(Plant::ReplicaNotHashed, "replica-lost"),
    shows(Plant::CheckerLaunders, "chkfs2-quick"),
    shows(Plant::AnyConnectionFrees, "connections"),
    unhashed(Plant::PassedDiscardKeepsMapping, "discard-pass"),
    unhashed(Plant::PassedDiscardDropsEarly, "discard-pass"),
    shows(Plant::PunchHoldsNothing, "punch"),
    shows(Plant::PunchAfterWrite, "punch"),
    shows(Plant::ReadPassesWrite, "direct"),
    shows(Plant::ForeignKeepsReplicas, "foreign"),
    shows(Plant::HeldDiscardFrees, "held-discard"),
    shows(Plant::ClaimDoesNotWait, "claim"),
    shows(Plant::MarkAfterFreeze, "second-mount"),
    shows(Plant::MarkAfterTableLost, "table-lost"),
    shows(Plant::MarkThoughUnannounced, "unfinished"),
    shows(Plant::LostTableKeepsMark, "mark"),
    unhashed(Plant::NoPin, "pins"),
    shows(Plant::DirtyIsValid, "still-mounted"),
    shows(Plant::NoMarkNeeded, "mark"),
    shows(Plant::TokenIgnored, "elsewhere"),
    shows(Plant::BackupsIgnored, "elsewhere-by-copy"),
    shows(Plant::WriteStaysFree, "copy"),
    shows(Plant::WriteKeepsOriginal, "mapped"),
    unhashed(Plant::WriteKeepsReplica, "mapped"),
    shows(Plant::DiscardAfterAck, "discard"),
    unhashed(Plant::DiscardBeforeEnd, "discard-pass"),
    shows(Plant::BitZeroFrees, "bitmap"),
    shows(Plant::ClaimIgnored, "claim"),
    shows(Plant::NeverFreezes, "second-mount"),
    shows(Plant::CheckKeepsFree, "fsck-served"),
    shows(Plant::CopyIgnoresVersion, "copy"),
    shows(Plant::FetchIgnoresVersion, "fetch"),
    shows(Plant::CopySkipsRecheck, "copy"),
    shows(Plant::WritePassesCopy, "copy"),
    unhashed(Plant::CopyPassesPin, "pins"),
    shows(Plant::TableLossIgnored, "table"),
    shows(Plant::TableWriteHoldsNothing, "table"),
    shows(Plant::ReplicaMasked, "elsewhere"),
    shows(Plant::UnreadIsError, "unreadable"),
    shows(Plant::MarkKept, "mark"),
    shows(Plant::EraseNotFlushed, "mark"),
    shows(Plant::MarkSharesFlush, "detach"),
    shows(Plant::FlagNotPerPage, "checked"),
    shows(Plant::MarkThoughInvalid, "dirty"),
    shows(Plant::UnverifiedServed, "checked"),
    shows(Plant::FlushJoins, "flush"),
    shows(Plant::FlushForgets, "flush"),
    Planted { plant: None, unhashed: false, scenario: "pending" },
];

impl Planted {
    /// What it is called.
    pub fn name(&self) -> String {
        self.plant.map_or("NoLockWait".into(), |p| format!("{p:?}"))
    }

    /// The scenario, and the plants beside the one that is looked for.
    ///
    /// # Panics
    /// Where there is no such scenario.
    pub fn ground(&self) -> (Scenario, Vec<Plant>) {
        let scenario = by_name(self.scenario).expect("the scenarios are named");
        let scenario = if self.plant.is_none() { scenario.without_lock_wait() } else { scenario };
        let with = if self.unhashed { vec![Plant::ReplicaNotHashed] } else { Vec::new() };
        (scenario, with)
    }

    /// Looks for a way to see it.
    pub fn look(&self, limits: &Limits) -> Found {
        let (scenario, mut plants) = self.ground();
        plants.extend(self.plant);
        explore(&scenario.start(&plants), limits)
    }
}
