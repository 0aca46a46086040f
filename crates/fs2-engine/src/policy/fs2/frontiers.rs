//! Where the file system is about to allocate: behind what it allocated last.
//!
//! A file that grows gets the blocks behind its last ones, and so does the next file of its directory: ext2 searches upwards from the
//! block it gave last. What lies right behind blocks just taken goes next, and copies there would not live for long. A place is known to grow
//! when it did so once. A new file in a group where nothing was allocated lately is not foreseen.

use std::collections::VecDeque;

use fs2_block::{BlockNo, BlockRange};

/// Places that grow, known at a time. Guess.
const MOST: usize = 32;

/// A place is expected to grow by as much as it has lately, and by this at the least. Guess. Measured on a file of 6 GiB written where copies lie:
/// with 128 MiB at the most they were made again four to six times as often.
const AHEAD_LEAST_BYTES: u64 = 1 << 20;

/// What is taken further behind it than this is no growth of it. Guess.
const REACH_BYTES: u64 = 128 << 20;

/// What did not grow for so many halvings is forgotten. Guess.
const LAPSES: u8 = 4;

/// A place that grows.
#[derive(Clone, Copy, Debug)]
struct Frontier {
    end: u32,
    ahead: u32,
    /// It grew, and was not only written once.
    grows: bool,
    /// Halvings since it grew.
    rested: u8,
}

impl Frontier {
    /// What is expected to be taken next.
    fn next(self) -> BlockRange {
        BlockRange::new(self.end, self.end.saturating_add(self.ahead))
    }

    /// Whether it grows by what begins at `block`.
    fn reaches(self, block: BlockNo, reach: u32) -> bool {
        BlockRange::new(self.end, self.end.saturating_add(self.ahead.min(reach))).contains(block)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Frontiers {
    /// The one that grew last comes last.
    known: VecDeque<Frontier>,
    least: u32,
    reach: u32,
}

impl Frontiers {
    pub(super) fn new(block_bytes: u32) -> Frontiers {
        let blocks = |bytes: u64| (bytes / u64::from(block_bytes)) as u32;
        let (least, reach) = (blocks(AHEAD_LEAST_BYTES), blocks(REACH_BYTES));
        Frontiers { known: VecDeque::with_capacity(MOST), least, reach }
    }

    /// The file system took these blocks, which were free.
    pub(super) fn taken(&mut self, blocks: BlockRange) {
        let grown = self.known.iter().position(|f| f.reaches(blocks.first(), self.reach));
        let (ahead, grows) = match grown.and_then(|i| self.known.remove(i)) {
            // Also what it left out on the way.
            Some(f) => (f.ahead.saturating_add(blocks.end() - f.end), true),
            None => (self.least.max(blocks.len()), false),
        };
        if self.known.len() == MOST {
            self.known.pop_front();
        }
        self.known.push_back(Frontier { end: blocks.end(), ahead, grows, rested: 0 });
    }

    /// Time goes by.
    pub(super) fn halve(&mut self) {
        self.known.retain_mut(|f| {
            f.ahead = (f.ahead / 2).max(self.least);
            f.rested += 1;
            f.rested < LAPSES
        });
    }

    /// Where what is about to be taken ends, if `blocks` touch that.
    pub(super) fn beyond(&self, blocks: BlockRange) -> Option<u32> {
        let growing = self.known.iter().filter(|f| f.grows).map(|f| f.next());
        growing.filter(|next| next.overlaps(blocks)).map(|next| next.end()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u32, end: u32) -> BlockRange {
        BlockRange::new(start, end)
    }

    #[test]
    fn what_grows_is_expected_to_grow_on() {
        let mut f = Frontiers::new(4096);
        f.taken(at(1000, 1001));
        assert_eq!(f.beyond(at(0, u32::MAX)), None, "written once");
        f.taken(at(1001, 1002));
        assert_eq!((f.beyond(at(0, 1002)), f.beyond(at(0, 1003))), (None, Some(1259)));
        assert_eq!((f.beyond(at(1258, 1300)), f.beyond(at(1259, 1300))), (Some(1259), None));
        // By as much as it has, what was left out counts.
        f.taken(at(1101, 1201));
        assert_eq!(f.beyond(at(1201, 1202)), Some(1201 + 256 + 200));
        assert_eq!(f.known.len(), 1);
        // Before it, something else is written.
        f.taken(at(900, 910));
        assert_eq!((f.known.len(), f.beyond(at(910, 911))), (2, None));
    }

    #[test]
    fn the_oldest_are_forgotten_and_numbers_end() {
        let mut f = Frontiers::new(1024);
        let grow = |f: &mut Frontiers, start: u32, end: u32| {
            f.taken(at(start, end - 1));
            f.taken(at(end - 1, end));
        };
        (0..100).for_each(|i| grow(&mut f, i * 10_000, i * 10_000 + 2));
        assert_eq!(f.known.len(), MOST);
        assert_eq!((f.beyond(at(10_002, 10_003)), f.beyond(at(990_002, 990_003))), (None, Some(991_027)));
        grow(&mut f, 2_000_000, 3_000_000);
        assert_eq!(f.beyond(at(3_000_000, 3_000_001)), Some(4_000_000), "as far as it has grown");
        // Far behind it something else is written.
        f.taken(at(3_500_000, 3_500_001));
        assert_eq!(f.beyond(at(3_000_000, 3_000_001)), Some(4_000_000));
        f.halve();
        grow(&mut f, 5_000_000, 5_000_002);
        (0..2).for_each(|_| f.halve());
        assert_eq!(f.beyond(at(3_000_000, 3_000_001)), Some(3_125_000));
        f.halve();
        assert_eq!(f.beyond(at(3_000_000, 3_000_001)), None);
        assert_eq!(f.beyond(at(5_000_002, 5_000_003)), Some(5_000_002 + 1024));
        f.taken(at(0, u32::MAX));
        f.taken(at(u32::MAX - 1, u32::MAX));
        assert_eq!(f.beyond(at(u32::MAX - 1, u32::MAX)), None);
    }
}
