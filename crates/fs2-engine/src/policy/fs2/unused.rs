//! Copies that are made again and again and that nobody reads: what a file system writes every few seconds, such as a bitmap or the inode of a
//! log, was read once and lies in its cache since. The next copy of such a block waits for a rest, each time for one twice as long, and in the end
//! for the block to be read: a drive that spun down meanwhile is not to spin up for what nobody wants.

use std::collections::BTreeMap;

use fs2_block::{BlockRange, Nanos};

use crate::config::LONG_REST;

/// A copy is made again at once as long as no more than this many were void, one after the other, before anybody read them. Measured on real
/// traces: with 16 none is slower, with 4 a database's repeats are by up to 10 %, with 0 by up to 23.
const AT_ONCE: u8 = 16;

/// The longest rest that such a copy waits for: so many times twice a long one, a minute. Guess: below what drives spin down after.
const DOUBLED_MAX: u8 = 6;

/// Copies that are remembered, and that wait, at most: 1 MiB of either.
const UNUSED_MAX: usize = 1 << 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Unused {
    /// Copies made again and not read since, by original: how many of them were void before anybody read them.
    times: BTreeMap<u32, u8>,
    /// Originals that wait for a rest, by where their copies were.
    waiting: BTreeMap<u32, u32>,
    /// The shortest rest that one of these waits for.
    rest: Option<Nanos>,
}

impl Unused {
    /// A copy of this is made again.
    pub(super) fn made_again(&mut self, original: u32) {
        if self.times.len() == UNUSED_MAX {
            self.times.clear();
        }
        self.times.entry(original).or_insert(0);
    }

    /// These were read, from wherever.
    pub(super) fn read(&mut self, blocks: BlockRange) {
        while let Some((&original, _)) = self.times.range(blocks.start()..blocks.end()).next() {
            self.times.remove(&original);
        }
    }

    /// The copy that `original` had there is void. Whether the next one is made at once.
    pub(super) fn void(&mut self, home: u32, original: u32) -> bool {
        let Some(times) = self.times.get_mut(&original) else { return true };
        *times = times.saturating_add(1);
        let Some(doubled) = times.checked_sub(AT_ONCE + 1) else { return true };
        if doubled <= DOUBLED_MAX && self.waiting.len() < UNUSED_MAX {
            let rest = rest_of(doubled);
            self.rest = Some(self.rest.map_or(rest, |r| r.min(rest)));
            self.waiting.insert(home, original);
        }
        false
    }

    /// The shortest rest that any waits for.
    pub(super) fn rest(&self) -> Option<Nanos> {
        self.rest
    }

    /// Those that waited for no longer a rest than this: where their copies were, and the originals; no longer waiting.
    pub(super) fn rested(&mut self, rested: Nanos) -> Vec<(u32, u32)> {
        let mut due = Vec::new();
        if self.rest.is_none_or(|r| rested < r) {
            return due;
        }
        let Unused { times, waiting, rest: shortest } = self;
        *shortest = None;
        waiting.retain(|&home, &mut original| {
            let doubled = times.get(&original).map_or(0, |times| times.saturating_sub(AT_ONCE + 1));
            let rest = rest_of(doubled);
            let waits = rested < rest;
            if waits {
                *shortest = Some(shortest.map_or(rest, |r| r.min(rest)));
            } else {
                due.push((home, original));
            }
            waits
        });
        due
    }
}

fn rest_of(doubled: u8) -> Nanos {
    Nanos(LONG_REST.0 << doubled.min(DOUBLED_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(b: u32) -> BlockRange {
        BlockRange::new(b, b + 1)
    }

    /// So many copies of 7 at 100 were made again and void, none read.
    fn void_times(times: u8) -> Unused {
        let mut unused = Unused::default();
        for i in 0..times {
            unused.made_again(7);
            assert_eq!(unused.void(100, 7), i < AT_ONCE, "{i}");
        }
        unused
    }

    #[test]
    fn what_nobody_reads_waits_for_a_rest_twice_as_long_each_time() {
        for doubled in 0..=DOUBLED_MAX {
            let mut unused = void_times(AT_ONCE + doubled);
            unused.rested(Nanos(u64::MAX));
            unused.made_again(7);
            assert!(!unused.void(100, 7));
            let rest = Nanos(LONG_REST.0 << doubled);
            assert_eq!(unused.rested(Nanos(rest.0 - 1)), []);
            assert_eq!(unused.rest(), Some(rest));
            assert_eq!(unused.rested(rest), [(100, 7)]);
            assert_eq!((unused.rest(), unused.rested(Nanos(u64::MAX))), (None, vec![]));
        }
    }

    #[test]
    fn what_nobody_reads_in_the_end_is_not_made_again_before_it_is_read() {
        let mut unused = void_times(AT_ONCE + 1 + DOUBLED_MAX);
        unused.rested(Nanos(u64::MAX));
        for _ in 0..=u8::MAX {
            unused.made_again(7);
            assert!(!unused.void(100, 7));
            assert_eq!((unused.rest(), unused.rested(Nanos(u64::MAX))), (None, vec![]));
        }
        unused.read(block(7));
        unused.made_again(7);
        assert!(unused.void(100, 7));
    }

    #[test]
    fn what_is_read_is_made_again_at_once() {
        let mut unused = void_times(AT_ONCE);
        unused.read(BlockRange::new(8, 20));
        unused.read(block(6));
        assert!(!unused.clone().void(100, 7), "others were read");
        unused.read(block(7));
        assert!(unused.void(100, 7), "first made again after it");
        unused.made_again(7);
        assert!(unused.void(100, 7), "counted anew");
        // One that waits and is read waits for the shortest rest only.
        let mut unused = void_times(AT_ONCE + 4);
        unused.read(block(7));
        assert_eq!(unused.rested(LONG_REST), [(100, 7)]);
    }

    #[test]
    fn each_waits_for_its_own_rest() {
        let mut unused = void_times(AT_ONCE + 2);
        unused.rested(Nanos(u64::MAX));
        unused.made_again(7);
        unused.void(100, 7);
        for _ in 0..=AT_ONCE {
            unused.made_again(9);
            unused.void(50, 9);
        }
        assert_eq!(unused.rest(), Some(LONG_REST));
        assert_eq!(unused.rested(LONG_REST), [(50, 9)]);
        assert_eq!(unused.rest(), Some(Nanos(LONG_REST.0 << 2)));
        assert_eq!(unused.rested(Nanos(LONG_REST.0 << 2)), [(100, 7)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut unused = Unused::default();
        for original in 0..2 * UNUSED_MAX as u32 + 1 {
            unused.made_again(original);
        }
        assert_eq!(unused.times.len(), 1);
        for original in 0..UNUSED_MAX as u32 + 1 {
            unused.times.clear();
            unused.times.insert(original, AT_ONCE);
            assert!(!unused.void(original, original));
        }
        assert_eq!(unused.waiting.len(), UNUSED_MAX);
    }
}
