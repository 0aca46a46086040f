//! How a volume is to behave.

use fs2_block::{Nanos, Permille};
use fs2_disk::{DriveProfile, Knowledge, Scheduler};

use crate::part::Without;
use crate::plant::Plant;
use crate::policy::PolicyKind;

/// When copying starts, stops, and replicas go: shares of the volume that the daemon knows to be
/// free and that hold no replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    high: Permille,
    low: Permille,
    critical: Permille,
}

impl Watermarks {
    /// The paper's: 15, 10 and 5 %.
    pub fn paper() -> Watermarks {
        let p = |n| Permille::new(n).expect("below 1000");
        Watermarks { high: p(150), low: p(100), critical: p(50) }
    }

    /// Three marks, `None` unless high > low > critical.
    pub fn new(high: Permille, low: Permille, critical: Permille) -> Option<Watermarks> {
        (high > low && low > critical).then_some(Watermarks { high, low, critical })
    }

    /// Copying resumes at or above.
    pub fn high(self) -> Permille {
        self.high
    }

    /// Below it copying stops, and the least valuable replicas go.
    pub fn low(self) -> Permille {
        self.low
    }

    /// Below it whole regions of replicas go at once.
    pub fn critical(self) -> Permille {
        self.critical
    }
}

/// A volume without a request for so long is taken to rest: what is read and copied then is limited only by what it costs the requests that
/// end such rests. Guess.
pub(crate) const LONG_REST: Nanos = Nanos::from_millis(1000);

/// Blocks of one copy write in a rest at most: the disk is looked at for arrivals in between. Measured on real
/// traces: 64.
pub(crate) const COPY_BLOCKS_MAX: u32 = 64;

/// In a short pause runs are put together to so many blocks: a longer write fits fewer pauses. Measured on real traces: with 64 one that
/// has little but short pauses (linux-webserver-2) copies a third less, with 1 another (tpcw-shopping) wins nothing in its first pass
/// where completions are seen late.
pub(crate) const MERGED_IN_PAUSES: u32 = 16;

/// What their transfer takes in a rest and in a pause, in ms: more blocks where the drive writes more in it, for what an access costs is
/// mostly the way there. As measured on real traces and a drive of 63 MB/s, blocks of 4 KiB; one of 290 MB/s then copies in pauses three
/// times as much.
pub(crate) const REST_WRITE_MS: f64 = 4.15;
/// See [`REST_WRITE_MS`].
pub(crate) const PAUSE_WRITE_MS: f64 = 1.04;

/// Blocks of one write at most, however fast the drive. Guess.
pub(crate) const WRITE_BLOCKS_MAX: u32 = 1024;

/// What becomes of a client's discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardMode {
    /// Answered from memory: replicas in the discarded blocks stay usable.
    Memory,
    /// Passed down: thin and sparse backings get their space back.
    Pass,
}

/// Settings of a volume.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// What is copied where, and which copy is read.
    pub policy: PolicyKind,
    /// What is believed about the drive; `None`: distance by address only, but see [`EngineConfig::turns`]. With one that does not turn the policy is `none`.
    pub drive: Option<DriveProfile>,
    /// Where that is absent: the device turns, and is taken for a drive of today, `nearline-hc310`, whose seeks are believed and not
    /// where its platter is.
    pub turns: bool,
    /// How much of the profile is believed.
    pub knowledge: Knowledge,
    /// Which of the waiting requests goes next.
    pub scheduler: Scheduler,
    /// The drive is given several at a time, and serves them in the order soonest reached.
    pub drive_orders: bool,
    /// When replicas come and go.
    pub watermarks: Watermarks,
    /// At most this share of the volume holds replicas.
    pub space: Permille,
    /// The volume's block groups were moved so many times as far apart, as a replay does, and what lies between is in use: shares
    /// are of what the volume was before. At least 1.
    pub apart: u32,
    /// At most this many replicas a block.
    pub degree: u8,
    /// What becomes of discards.
    pub discard: DiscardMode,
    /// Whether an evicted replica's space is given back to a sparse backing.
    pub punch: bool,
    /// Copies are flushed where the drive seems to cache writes, so that it writes them while nobody waits. Not where a flush
    /// writes more than the drive's own cache: behind a page cache.
    pub settle: bool,
    /// No request for this long: background work may begin.
    pub idle_after: Nanos,
    /// Without a rest of a second for so long, copies are made beside open requests.
    pub restless_after: Nanos,
    /// The table's changed pages are written this often.
    pub table_flush_every: Nanos,
    /// Payloads waiting to be copied, at most this many bytes.
    pub log_bytes_max: usize,
    /// Of the reads that have a copy, one short run in so many is read from the originals, so that what copies gain can be
    /// measured; 0: none.
    pub control: u16,
    /// Parts of the policy `fs2` that are left out, to see what they are worth.
    pub without: Without,
    /// Trust no entry before its original was read and hashed again.
    pub distrust: bool,
    /// Check every invariant after every event.
    pub paranoid: bool,
    /// Seeds whatever is drawn at random (the alarm's sample).
    pub seed: u64,
    /// Bugs to plant; ignored without the feature `planted-bugs`.
    pub plants: Vec<Plant>,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            policy: PolicyKind::Fs2,
            drive: None,
            turns: false,
            knowledge: Knowledge::Full,
            scheduler: Scheduler::Fcfs,
            drive_orders: false,
            watermarks: Watermarks::paper(),
            // SYSTEM: the default cap of 5 %.
            space: Permille::new(50).expect("below 1000"),
            apart: 1,
            degree: 1,
            discard: DiscardMode::Memory,
            punch: false,
            settle: false,
            // Measured on real traces: 15 ms without a request is followed by more of it.
            idle_after: Nanos::from_millis(15),
            // Measured on volumes that never rest: with 10 s the first repeat wins up to a fifth more, with 300 the first two win little.
            restless_after: Nanos::from_millis(60_000),
            table_flush_every: Nanos::from_millis(5_000),
            log_bytes_max: 64 << 20,
            control: 0,
            without: Without::default(),
            distrust: false,
            paranoid: false,
            seed: 0,
            plants: Vec::new(),
        }
    }
}
