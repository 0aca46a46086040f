//! What a drive that caches writes has still to write: what clients wrote, and the last copy.
//!
//! - W1: a copy in a pause is flushed before the engine does anything else of its own, unless a client comes, and at most 2 MiB of them in a
//!   longer rest: the drive writes them while nobody waits.
//! - W2: that flush waits for no client's write that the drive had not the time to write by itself.
//! - W3: a copy beside open requests is made, and flushed at once, only where what clients wrote takes the drive no longer than [`SOON`].
//!   Where nobody rests and hardly anybody writes it is flushed before it is so much.
//! - W4: for W3 it is learnt by the flushes how much of what is counted they really wait for: a drive writes between reads, too, and in
//!   what order it likes. Not for W2: windows-mssql's reads by eight lose 1 % more with it, and others win nothing.

use fs2_block::Nanos;

/// After so long a rest a drive writes what it has cached. Guess; drives differ.
const WRITTEN_AFTER: Nanos = Nanos::from_millis(50);

/// No more than this is taken to be left: what clients write without rest is written meanwhile, too. Measured: with a second some crowds
/// lose up to 4 % of the mean, with this at most 0.7.
const LEFT_MAX: Nanos = Nanos::from_millis(5000);

/// A flush beside open requests waits for no more of clients' writes. Measured: from 0 to 500 ms real traces win the same; without
/// a limit, eight clients of a database lose up to 10 % of the mean.
const SOON: Nanos = Nanos::from_millis(250);

/// Such a flush takes no more of the time than one in so many: the goal is 1 % of the mean at the most.
const SELDOM: u64 = 200;

/// A flush that is expected to take less says nothing of how much of it was left. Guess.
const TELLING: Nanos = Nanos::from_millis(30);

/// How fast that is learnt. Guess.
const LEARN: f64 = 0.25;

/// Copies of at most 256 KiB that are flushed together in a long rest. Guess.
const TOGETHER: u32 = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    /// What the drive needs at the most to write what it has of its clients, and since when it has any of it.
    left: Nanos,
    since: Nanos,
    /// Share of that which a flush waits for.
    share: f64,
    /// Copies since the last flush: when the last one was written, what all took, how many.
    copied: Option<(Nanos, Nanos, u32)>,
}

impl Default for WriteCache {
    fn default() -> WriteCache {
        WriteCache { left: Nanos(0), since: Nanos(0), share: 1.0, copied: None }
    }
}

impl WriteCache {
    /// A client's write was answered, perhaps from the cache; the arm needs so many ms to get there.
    pub(super) fn written(&mut self, now: Nanos, ms: f64) {
        if self.left == Nanos(0) {
            self.since = now;
        }
        self.left = (self.left + Nanos::from_millis_f64(ms)).min(LEFT_MAX);
    }

    /// A copy did, which took so long.
    pub(super) fn copied(&mut self, now: Nanos, took: Nanos) {
        let (_, before, count) = self.copied.unwrap_or_default();
        self.copied = Some((now, before + took, count + 1));
    }

    /// Nothing was asked of the drive for so long.
    pub(super) fn rested(&mut self, time: Nanos) {
        self.left = self.left.since(time.since(WRITTEN_AFTER));
    }

    /// All of it is on the platters, by a flush that took so long.
    pub(super) fn flushed(&mut self, took: Nanos) {
        // Keeps W4. There may have been more than the most.
        if self.left >= TELLING && self.left < LEFT_MAX {
            let share = (took.0 as f64 / self.left.0 as f64).min(1.0);
            self.share += (share - self.share) * LEARN;
        }
        (self.left, self.copied) = (Nanos(0), None);
    }

    /// What a flush is expected to wait for.
    fn expected(&self) -> Nanos {
        Nanos((self.left.0 as f64 * self.share) as u64)
    }

    /// How long a rest must be for the drive to have written its clients' writes.
    pub(super) fn written_after(&self) -> Nanos {
        // Keeps W2.
        if self.left == Nanos(0) { Nanos(0) } else { self.left + WRITTEN_AFTER }
    }

    /// Whether a flush waits for hardly any client's write.
    pub(super) fn flushes_soon(&self) -> bool {
        self.expected() <= SOON
    }

    /// Whether there will be too much for that before long, and a flush is worth it.
    pub(super) fn wants_flush(&self, now: Nanos) -> bool {
        let expected = self.expected().0;
        expected > SOON.0 / 2 && expected * SELDOM <= now.since(self.since).0
    }

    /// Whether a copy waits for a flush.
    pub(super) fn has_copy(&self) -> bool {
        self.copied.is_some()
    }

    /// Whether more may follow it in a long rest before they are flushed: a turn is lost for each flush.
    pub(super) fn may_wait(&self) -> bool {
        self.copied.is_some_and(|(.., count)| count < TOGETHER)
    }

    /// When that was written.
    pub(super) fn copied_at(&self) -> Option<Nanos> {
        self.copied.map(|(at, ..)| at)
    }

    /// What writing it took: its flush is part of the same work.
    pub(super) fn copy_took(&self) -> Nanos {
        self.copied.map_or(Nanos(0), |(_, took, _)| took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn clients_writes_take_their_time_in_rests_only() {
        let mut cache = WriteCache::default();
        assert_eq!(cache.written_after(), ms(0));
        (0..4).for_each(|_| cache.written(Nanos(0), 8.0));
        assert_eq!(cache.written_after(), ms(82));
        cache.rested(ms(40));
        assert_eq!(cache.written_after(), ms(82), "the drive does not begin so soon");
        cache.rested(ms(70));
        assert_eq!(cache.written_after(), ms(62));
        cache.rested(ms(70));
        assert_eq!(cache.written_after(), ms(0));
        (0..31).for_each(|_| cache.written(Nanos(0), 8.0));
        assert!(cache.flushes_soon());
        cache.written(Nanos(0), 8.0);
        assert!(!cache.flushes_soon());
        (0..100_000).for_each(|_| cache.written(Nanos(0), 8.0));
        assert_eq!(cache.written_after(), LEFT_MAX + WRITTEN_AFTER);
        cache.flushed(ms(0));
        assert_eq!(cache.written_after(), ms(0));
    }

    #[test]
    fn what_flushes_wait_for_is_learnt() {
        let mut cache = WriteCache::default();
        let mut flush = |took| {
            (0..10).for_each(|_| cache.written(ms(0), 8.0));
            let expected = cache.expected();
            cache.flushed(took);
            expected
        };
        assert_eq!([flush(ms(0)), flush(ms(0)), flush(ms(400))], [ms(80), ms(60), ms(45)]);
        (0..20).for_each(|_| _ = flush(ms(40)));
        assert!(flush(ms(40)).0.abs_diff(ms(40).0) < ms(1).0);
        // Of few, or of more than are counted, a flush tells nothing.
        cache.written(ms(0), 8.0);
        cache.flushed(ms(0));
        (0..1000).for_each(|_| cache.written(ms(0), 8.0));
        cache.flushed(ms(0));
        assert!((cache.share - 0.5).abs() < 0.01, "{cache:?}");
    }

    #[test]
    fn hardly_any_writes_are_flushed_before_they_are_many() {
        let mut cache = WriteCache::default();
        (0..20).for_each(|n| cache.written(ms(1000 + 10 * n), 8.0));
        assert!(!cache.wants_flush(ms(2000)), "not that often");
        assert!(cache.wants_flush(ms(33_000)) && cache.flushes_soon());
        cache.flushed(ms(160));
        assert!(!cache.wants_flush(ms(60_000)), "of nothing");
    }

    #[test]
    fn copies_are_flushed_some_together() {
        let mut cache = WriteCache::default();
        assert!(!cache.has_copy() && !cache.may_wait());
        for n in 1..TOGETHER {
            cache.copied(ms(n.into()), ms(2));
            assert!(cache.has_copy() && cache.may_wait());
        }
        cache.copied(ms(90), ms(2));
        assert!(!cache.may_wait());
        assert_eq!((cache.copied_at(), cache.copy_took()), (Some(ms(90)), ms(16)));
        cache.flushed(ms(0));
        assert!(!cache.has_copy());
    }
}
