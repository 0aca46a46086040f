//! Who gets the room there is: copies of the greatest value, and the file system before all of them.

use fs2_block::BlockRange;
use fs2_table::content_hash;

use super::{Standing, Volume};
use crate::config::COPY_BLOCKS_MAX;

/// Replicas evicted below the low mark in one event at most.
const EVICT_STEP: usize = 256;

/// Values age a step when so many times what the volume may hold was offered in vain, not for the first time; at every
/// fourth step they are halved. Measured: with 1, what fills the room takes over from what is no longer read at its twelfth
/// repeat, with 2 at its 23rd, with 1/4 at its fifth; real traces with room for a third of what they read are up to 7 % faster
/// with 2 and up to 20 % slower with 1/4.
const OFFERS_A_STEP: usize = 1;

/// So many neighbouring blocks are remembered as one.
const UNIT_BLOCKS: u32 = 8;

/// Bits of that memory for each replica that there may be, and at most: 16 MiB. All is forgotten when a sixteenth is set, so
/// that few units are taken for others.
const BITS: usize = 64;
const BITS_MAX: usize = 1 << 27;

/// What was offered while there was no room. What comes for the first time, as all of a backup does, is no reason for
/// anything to age.
#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    /// A bit for each unit, by a hash of it. Empty before the first.
    units: Vec<u64>,
    set: usize,
    /// The last unit, and whether it had come before.
    last: Option<(u32, bool)>,
    /// Blocks that came again since values aged.
    again: usize,
}

impl Offers {
    /// Counts blocks offered to a volume that may hold so many; true when values are to age.
    fn count(&mut self, capacity: usize, blocks: &[BlockRange]) -> bool {
        if self.units.is_empty() {
            let bits = capacity.saturating_mul(BITS).min(BITS_MAX).next_power_of_two().max(1 << 12);
            self.units = vec![0; bits / 64];
        }
        blocks.iter().flat_map(|r| r.iter()).for_each(|b| self.one(b.0 / UNIT_BLOCKS));
        let due = self.again >= capacity.saturating_mul(OFFERS_A_STEP).max(1);
        if due {
            self.again = 0;
        }
        due
    }

    fn one(&mut self, unit: u32) {
        let known = match self.last {
            Some((last, known)) if last == unit => known,
            _ => self.meet(unit),
        };
        self.last = Some((unit, known));
        self.again += usize::from(known);
    }

    /// Remembers a unit; says whether it was known.
    fn meet(&mut self, unit: u32) -> bool {
        let bit = content_hash(0, &unit.to_le_bytes()) as usize & (self.units.len() * 64 - 1);
        let (word, mask) = (bit / 64, 1 << (bit % 64));
        if self.units[word] & mask != 0 {
            return true;
        }
        self.units[word] |= mask;
        self.set += 1;
        if self.set > self.units.len() * 4 {
            self.units.fill(0);
            self.set = 0;
        }
        false
    }
}

impl Volume {
    fn vacancies(&self) -> usize {
        self.capacity().saturating_sub(self.table.len())
    }

    /// How many of the log's next blocks may be copied, `want` at the most: where there is no room, over copies of less
    /// value only. What is not worth that is dropped.
    pub(super) fn admit(&mut self, want: u32) -> Option<u32> {
        if self.vacancies() >= want as usize {
            return Some(want);
        }
        while let Some((worth, n)) = self.log.next_worth(COPY_BLOCKS_MAX as usize) {
            let blocks: Vec<BlockRange> = self.log.next_blocks().take(n).map(BlockRange::one).collect();
            self.offered(&blocks);
            let lacking = n.saturating_sub(self.vacancies());
            if lacking > 0 {
                self.evict(lacking, worth);
            }
            match self.vacancies().min(n) {
                0 => self.log.refuse(n),
                n => return Some(n as u32),
            }
        }
        None
    }

    /// These blocks were to be copied while there was no room.
    pub(super) fn offered(&mut self, blocks: &[BlockRange]) {
        let capacity = self.capacity();
        if self.offers.count(capacity, blocks) {
            self.table.age();
        }
    }

    /// Free share against the watermarks, after every event.
    pub(super) fn step_reclaim(&mut self) {
        if self.standing != Standing::Active {
            return;
        }
        while let Some(range) = self.policy.evict() {
            self.evict_range(range);
        }
        // Everything below follows from these two.
        let weighed = self.live.as_ref().map(|l| (l.free_estimate(), self.table.len()));
        if weighed == self.weighed {
            return;
        }
        let marks = self.config.watermarks;
        let share = self.free_share();
        if share < marks.low() {
            self.copying = false;
        } else if share >= marks.high() {
            self.copying = true;
        }
        if share < marks.critical() {
            // Whole regions, from where most replicas are neighbours.
            while self.free_share() < marks.low() && !self.table.is_empty() {
                let Some(first) = self.table.iter().next() else { break };
                let group = self.layout.as_ref().map_or(0, |l| l.group_of(first.replica));
                let region =
                    self.layout.as_ref().map_or(BlockRange::one(first.replica), |l| l.group_blocks(group));
                self.stats.reclaimed += self.table.remove_by_replica(region) as u64;
            }
        } else if share < marks.low() && !self.table.is_empty() {
            self.evict(EVICT_STEP, u8::MAX);
        }
        // Evicting changes it: then it is weighed again at the next event.
        self.weighed = weighed;
    }

    /// About `n` of the least valuable replicas go, of those worth less than `below`.
    fn evict(&mut self, n: usize, below: u8) {
        for range in self.table.victims(n, below) {
            self.evict_range(range);
        }
    }

    fn evict_range(&mut self, range: BlockRange) {
        if self.config.punch {
            for r in self.table.replicas_in(range) {
                self.want_punch(BlockRange::one(r.replica));
            }
        }
        self.stats.reclaimed += self.table.remove_by_replica(range) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_once_ages_nothing() {
        let mut offers = Offers::default();
        let scan: Vec<BlockRange> = (0..2000).map(|i| BlockRange::new(100 * i, 100 * i + 20)).collect();
        let aged = scan.chunks(3).filter(|part| offers.count(1000, part)).count();
        assert!(aged <= 2, "40 times what there is room for, {aged} steps");
        // 1,000 blocks, as many as there is room for.
        offers.count(1000, &scan[..50]);
        assert!((0..10).all(|_| offers.count(1000, &scan[..50])));
    }

    #[test]
    fn memory_is_bounded() {
        let mut offers = Offers::default();
        offers.count(usize::MAX, &[BlockRange::new(0, 100)]);
        assert_eq!(offers.units.len() * 8, 16 << 20);
    }
}
