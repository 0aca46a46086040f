//! Where something became free: whoever looked for room in vain need not look again before.

use fs2_block::BlockRange;

/// Parts of the volume that are counted apart. Guess.
const PARTS: usize = 1 << 10;
/// Blocks of a part: the least a block group of the usual sizes has.
const PART_BLOCKS: u32 = 1 << 13;

/// Counts, by part of the volume, how often blocks were vacated there; several parts share a counter on large
/// volumes.
#[derive(Clone, Debug)]
pub struct Vacated {
    counts: Box<[u32]>,
}

impl Default for Vacated {
    fn default() -> Vacated {
        Vacated { counts: vec![0; PARTS].into() }
    }
}

impl Vacated {
    /// Some of these blocks were vacated.
    pub fn add(&mut self, blocks: BlockRange) {
        for part in parts(blocks) {
            self.counts[part] = self.counts[part].wrapping_add(1);
        }
    }

    /// Changes whenever one of these blocks is vacated, and sometimes without.
    pub fn of(&self, blocks: BlockRange) -> u64 {
        parts(blocks).map(|part| u64::from(self.counts[part])).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.counts.len() * size_of::<u32>()
    }
}

fn parts(blocks: BlockRange) -> impl Iterator<Item = usize> {
    let first = (blocks.start() / PART_BLOCKS) as usize;
    let end = if blocks.is_empty() { first } else { ((blocks.end() - 1) / PART_BLOCKS) as usize + 1 };
    (first..end.min(first + PARTS)).map(|part| part % PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_where_blocks_are_vacated() {
        let mut vacated = Vacated::default();
        let group = |n: u32| BlockRange::new(n * 32768, (n + 1) * 32768);
        let before: Vec<u64> = (0..4).map(|n| vacated.of(group(n))).collect();
        vacated.add(BlockRange::new(32768, 32769));
        vacated.add(BlockRange::new(3 * 32768 - 1, 3 * 32768 + 1));
        let changed: Vec<bool> = (0..4).map(|n| vacated.of(group(n)) != before[n as usize]).collect();
        assert_eq!(changed, [false, true, true, true]);
        vacated.add(BlockRange::EMPTY);
        assert_eq!(vacated.of(group(0)), before[0]);
        vacated.add(BlockRange::new(0, u32::MAX));
        assert_ne!(vacated.of(group(0)), before[0]);
    }
}
