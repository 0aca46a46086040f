//! Which parts of the volume have replicas at all: the quick "no" in front of the index.
//!
//! F1: each counter is the number of entries whose original lies in its part of the volume, or [`FULL`] once they were so many.

use fs2_block::BlockRange;

/// Counters at most: 256 KiB, which stays in a processor's cache. Guess.
const COUNTERS_MAX: usize = 1 << 17;
/// Not counted down from, for what it stands for is not known.
const FULL: u16 = u16::MAX;

// One copy of each block of a part can be counted.
const _: () = assert!((1 << 32) / COUNTERS_MAX as u64 <= FULL as u64);

/// Entries counted by part of the volume; parts grow with the highest original seen.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// A counter stands for 2^shift blocks.
    shift: u32,
    counts: Vec<u16>,
}

impl Filter {
    pub(crate) fn new() -> Filter {
        Filter { shift: 6, counts: Vec::new() }
    }

    /// Counts `len` entries for the originals from `start`.
    pub(crate) fn add(&mut self, start: u32, len: u32) {
        let last = start + (len - 1);
        while (last >> self.shift) as usize >= COUNTERS_MAX {
            self.coarsen();
        }
        let need = (last >> self.shift) as usize + 1;
        if need > self.counts.len() {
            self.counts.resize(need.next_power_of_two(), 0);
        }
        self.each(start, len, |count, n| *count = count.saturating_add(n));
    }

    /// Takes back [`Filter::add`].
    pub(crate) fn sub(&mut self, start: u32, len: u32) {
        self.each(start, len, |count, n| {
            if *count < FULL {
                *count -= n;
            }
        });
    }

    /// False only where no entry's original is in `range`.
    #[inline]
    pub(crate) fn may_have(&self, range: BlockRange) -> bool {
        if range.is_empty() {
            return false;
        }
        let first = (range.start() >> self.shift) as usize;
        let last = ((range.end() - 1) >> self.shift) as usize;
        match self.counts.get(first..) {
            Some(rest) => rest.iter().take(last - first + 1).any(|&c| c > 0),
            None => false,
        }
    }

    /// Entries counted; `None` where that is not known any more.
    pub(crate) fn total(&self) -> Option<u64> {
        self.counts.iter().map(|&c| (c < FULL).then_some(u64::from(c))).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u16>()
    }

    fn each(&mut self, start: u32, len: u32, f: impl Fn(&mut u16, u16)) {
        let (mut at, end) = (u64::from(start), u64::from(start) + u64::from(len));
        while at < end {
            let part = at >> self.shift;
            let stop = ((part + 1) << self.shift).min(end);
            f(&mut self.counts[part as usize], (stop - at) as u16);
            at = stop;
        }
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        let halves = self.counts.len().div_ceil(2);
        for i in 0..halves {
            self.counts[i] =
                self.counts[2 * i].saturating_add(self.counts.get(2 * i + 1).copied().unwrap_or(0));
        }
        self.counts.truncate(halves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn more_than_can_be_counted_are_never_forgotten() {
        let mut filter = Filter::new();
        let part = |n: u32| BlockRange::new(n << 15, (n + 1) << 15);
        // Two parts are copied three times, the first before parts are of so many blocks, and one once.
        (0..3).for_each(|_| filter.add(0, 1 << 15));
        filter.add(u32::MAX - 2, 1);
        (0..3).for_each(|_| filter.add(1 << 15, 1 << 15));
        filter.add(2 << 15, 1 << 15);
        assert_eq!(filter.total(), None);
        for n in [0, 1, 0, 1, 2] {
            filter.sub(n << 15, 1 << 15);
        }
        assert_eq!([0, 1, 2].map(|n| filter.may_have(part(n))), [true, true, false]);
    }

    proptest! {
        #[test]
        fn never_a_wrong_no(
            adds in prop::collection::vec((prop_oneof![0u32..1000, 0u32..1 << 28, 0u32..u32::MAX - 200], 1u32..200, any::<bool>()), 1..40),
            probes in prop::collection::vec((any::<u32>(), 1u32..300), 20),
        ) {
            let mut filter = Filter::new();
            for &(start, len, _) in &adds {
                filter.add(start, len);
            }
            for &(start, len, keep) in &adds {
                if !keep { filter.sub(start, len); }
            }
            for &(start, len, keep) in &adds {
                prop_assert!(!keep || filter.may_have(BlockRange::new(start, start + len)));
            }
            for &(start, len) in &probes {
                let range = BlockRange::new(start, start.saturating_add(len));
                let any = adds.iter().any(|&(s, l, keep)| keep && range.overlaps(BlockRange::new(s, s + l)));
                prop_assert!(!any || filter.may_have(range));
            }
            for &(start, len, keep) in &adds {
                if keep { filter.sub(start, len); }
            }
            prop_assert!(!filter.may_have(BlockRange::new(0, u32::MAX)));
        }
    }
}
