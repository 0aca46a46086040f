//! What the worlds must have met, or they proved nothing.

use super::fault::Fault;
use crate::model::swarm::Coverage;

/// Counted in every world, asserted above zero over a hundred of them.
pub const REQUIRED: &[&str] = &[
    "copies published",
    "copies in vain",
    "own work begun beside requests",
    "reads from replicas",
    "reads of parts of blocks from replicas",
    "writes on held replicas",
    "writes on replicas being copied",
    "writes on pinned replicas",
    "discarded blocks reused",
    "blocks freed by discards",
    "bitmaps that claim a replica (R3)",
    "bitmaps that waited for a copy (R3)",
    "freezes",
    "entries verified",
    "entries refuted",
    "replicas invalidated",
    "replicas reclaimed",
    "table pages written",
    "fallbacks: replica unreadable",
    "fallbacks: replica changed",
    "fallbacks: original unreadable",
    "kills",
    "power losses",
    "clean detaches with a mark",
    "attaches, active",
    "attaches, inactive",
    "attaches with entries trusted at once",
    "checks",
    "mounts elsewhere",
    "blocks taken from under the daemon",
    "requests sent again",
    "discards read late",
    "flushes that failed",
    "writes with force unit access",
];

/// What is missing after so many worlds of all kinds: nothing, if all is well.
pub fn missing(coverage: &Coverage) -> Vec<&'static str> {
    let faults = Fault::ALL.iter().map(|f| f.name());
    REQUIRED.iter().copied().chain(faults).filter(|name| coverage.of(name) == 0).collect()
}
