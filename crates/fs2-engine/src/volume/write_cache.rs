//! What a drive that caches writes has still to write: what clients wrote, and the last copy.
//!
//! - W1: a copy is flushed before the engine does anything else of its own, unless a client comes: the drive writes it while nobody waits.
//! - W2: that flush waits for no client's write that the drive had not the time to write by itself.

use fs2_block::Nanos;

/// After so long a rest a drive writes what it has cached. Guess; drives differ.
const WRITTEN_AFTER: Nanos = Nanos::from_millis(50);

/// No more than this is taken to be left: what clients write without rest is written meanwhile, too. Guess.
const LEFT_MAX: Nanos = Nanos::from_millis(5000);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteCache {
    /// What the drive needs to write what it has of its clients.
    left: Nanos,
    /// When the last copy was written, where nothing was flushed since, and what that took.
    copied: Option<(Nanos, Nanos)>,
}

impl WriteCache {
    /// A write went into the cache; the arm needs so many ms to get there.
    pub(super) fn written(&mut self, ms: f64) {
        self.left = (self.left + Nanos::from_millis_f64(ms)).min(LEFT_MAX);
    }

    /// A copy did, which took so long.
    pub(super) fn copied(&mut self, now: Nanos, took: Nanos) {
        self.copied = Some((now, took));
    }

    /// Nothing was asked of the drive for so long.
    pub(super) fn rested(&mut self, time: Nanos) {
        self.left = self.left.since(time.since(WRITTEN_AFTER));
    }

    /// All of it is on the platters.
    pub(super) fn flushed(&mut self) {
        *self = WriteCache::default();
    }

    /// How long a rest must be for the drive to have written its clients' writes.
    pub(super) fn written_after(&self) -> Nanos {
        // Keeps W2.
        if self.left == Nanos(0) { Nanos(0) } else { self.left + WRITTEN_AFTER }
    }

    /// Whether a copy waits for a flush.
    pub(super) fn has_copy(&self) -> bool {
        self.copied.is_some()
    }

    /// When that was written.
    pub(super) fn copied_at(&self) -> Option<Nanos> {
        self.copied.map(|(at, _)| at)
    }

    /// What writing it took: its flush is part of the same work.
    pub(super) fn copy_took(&self) -> Nanos {
        self.copied.map_or(Nanos(0), |(_, took)| took)
    }
}
