//! What a drive that caches writes has still to write: what clients wrote, and the last copy.
//!
//! - W1: a copy in a pause is flushed before the engine does anything else of its own, unless a client comes, and at most 2 MiB of them in a
//!   longer rest: the drive writes them while nobody waits.
//! - W2: neither that copy nor its flush waits for a client's write that the drive had not the time to write by itself, also where the drive,
//!   whose cache is full, no longer seems to have one, or where what else is in it was written before it was known.
//! - W3: a copy beside open requests is made, and flushed at once, only where what clients wrote takes the drive no longer than [`SOON`].

use fs2_block::Nanos;

/// After so long a rest a drive writes what it has cached. Guess; drives differ.
const WRITTEN_AFTER: Nanos = Nanos::from_millis(50);

/// No more than this is taken to be left: what clients write without rest is written meanwhile, too. Measured: with a second some crowds
/// lose up to 4 % of the mean; with 5 s a laptop's drive, 7 s of appends in its cache, is flushed too soon and a run takes 68 % longer; with
/// 20 s another volume's repeats win 15 % and not 85.
const LEFT_MAX: Nanos = Nanos::from_millis(10_000);

/// A write that took more than this part of what writing it takes was not just put into a cache. Measured: as 1 ms.
const QUICK: f64 = 0.25;

/// A flush beside open requests waits for no more of clients' writes. Measured: from 0 to 500 ms real traces win the same; without
/// a limit, eight clients of a database lose up to 10 % of the mean.
const SOON: Nanos = Nanos::from_millis(250);

/// Copies of at most 256 KiB that are flushed together in a long rest. Guess.
const TOGETHER: u32 = 8;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteCache {
    /// What the drive needs to write what it has of its clients.
    left: Nanos,
    /// Some of it was answered when the drive seemed to cache writes.
    known: bool,
    /// Copies since the last flush: when the last one was written, what all took, how many.
    copied: Option<(Nanos, Nanos, u32)>,
    /// The last one was made beside open requests.
    beside: bool,
}

impl WriteCache {
    /// A write was answered in so long, perhaps from the cache, and the drive seemed to have one or not; the arm needs so many ms to get
    /// there. One that waited for room in the cache left as much there as it found.
    pub(super) fn written(&mut self, ms: f64, took: Nanos, cached: bool) {
        if took.as_millis_f64() < ms * QUICK {
            self.left = (self.left + Nanos::from_millis_f64(ms)).min(LEFT_MAX);
            self.known |= cached;
        }
    }

    /// Whether clients' writes are left that the drive is known to have cached, though it may no longer seem to: one whose cache is
    /// full answers as slowly as one that has none.
    pub(super) fn has_writes(&self) -> bool {
        self.known
    }

    /// A copy did, which took so long.
    pub(super) fn copied(&mut self, now: Nanos, took: Nanos, beside: bool) {
        self.beside = beside;
        let (_, before, count) = self.copied.unwrap_or_default();
        self.copied = Some((now, before + took, count + 1));
    }

    /// Nothing was asked of the drive for so long.
    pub(super) fn rested(&mut self, time: Nanos) {
        self.left = self.left_after(time);
        self.known &= self.left > Nanos(0);
    }

    fn left_after(&self, rest: Nanos) -> Nanos {
        self.left.since(rest.since(WRITTEN_AFTER))
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

    /// Whether a flush after such a rest waits for hardly any client's write.
    pub(super) fn flushes_soon(&self, rest: Nanos) -> bool {
        self.left_after(rest) <= SOON
    }

    /// Whether a copy waits for a flush.
    pub(super) fn has_copy(&self) -> bool {
        self.copied.is_some()
    }

    /// Whether one made beside open requests does.
    pub(super) fn has_copy_beside(&self) -> bool {
        self.beside && self.copied.is_some()
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
        (0..4).for_each(|_| cache.written(8.0, ms(1), true));
        assert_eq!(cache.written_after(), ms(82));
        cache.rested(ms(40));
        assert_eq!(cache.written_after(), ms(82), "the drive does not begin so soon");
        cache.rested(ms(70));
        assert_eq!(cache.written_after(), ms(62));
        cache.rested(ms(70));
        assert_eq!(cache.written_after(), ms(0));
        (0..31).for_each(|_| cache.written(8.0, ms(1), true));
        assert!(cache.flushes_soon(ms(0)));
        cache.written(8.0, ms(1), true);
        assert!(!cache.flushes_soon(ms(55)) && cache.flushes_soon(ms(56)));
        (0..100_000).for_each(|_| cache.written(8.0, ms(1), true));
        assert_eq!(cache.written_after(), LEFT_MAX + WRITTEN_AFTER);
        cache.flushed();
        assert_eq!(cache.written_after(), ms(0));
    }

    #[test]
    fn a_write_that_waited_for_room_leaves_as_much_as_it_found() {
        let mut cache = WriteCache::default();
        (0..10).for_each(|_| cache.written(8.0, ms(2), true));
        assert!(cache.written_after() == ms(0) && !cache.has_writes());
        cache.written(8.0, ms(1), false);
        assert!(cache.written_after() == ms(58) && !cache.has_writes(), "the drive is not known to have it");
        cache.written(8.0, ms(1), true);
        (0..10).for_each(|_| cache.written(8.0, ms(9), false));
        assert!(cache.written_after() == ms(66) && cache.has_writes());
        cache.rested(ms(65));
        assert!(cache.has_writes());
        cache.rested(ms(51));
        assert!(!cache.has_writes() && cache.written_after() == ms(0));
        cache.written(8.0, ms(1), true);
        cache.flushed();
        assert!(!cache.has_writes());
    }

    #[test]
    fn copies_are_flushed_some_together() {
        let mut cache = WriteCache::default();
        assert!(!cache.has_copy() && !cache.may_wait());
        for n in 1..TOGETHER {
            cache.copied(ms(n.into()), ms(2), false);
            assert!(cache.has_copy() && cache.may_wait());
        }
        assert!(!cache.has_copy_beside());
        cache.copied(ms(90), ms(2), true);
        assert!(cache.has_copy_beside());
        assert!(!cache.may_wait());
        assert_eq!((cache.copied_at(), cache.copy_took()), (Some(ms(90)), ms(16)));
        cache.flushed();
        assert!(!cache.has_copy());
    }
}
