//! Whether what is read soon, though not next, lies right behind a copy.
//!
//! What is read over and over in no order goes on nowhere, so each copy would be as good as another, and as the original. But a set of
//! blocks that lies close together comes from the drive's cache once the drive has read ahead there, and only if reads keep to that place.

use std::collections::VecDeque;

use fs2_block::{BlockNo, BlockRange};

use super::chances::Chances;
use super::{COPY_GOES_ON, LEARN, READS_AHEAD};

/// Soon: so many reads later at the most. Measured on real traces and made-up ones: 8 to 24 are alike, and so are 32 to 256 blocks ahead.
const SOON: u32 = 16;

/// What it counts for beside reads that go on at once. Measured on made-up mixtures: 0.3 to 1 are alike; with 1, and the same for originals, a cvs
/// update's second run takes a sixth longer.
const WEIGHT: f64 = 0.5;

#[derive(Clone, Debug)]
struct Watched {
    copy: BlockRange,
    left: u32,
}

impl Watched {
    /// Whether a read here comes from what the drive has read there, or read ahead.
    fn is_near(&self, at: BlockNo) -> bool {
        (self.copy.start()..=self.copy.end().saturating_add(READS_AHEAD)).contains(&at.0)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Returns {
    chances: Chances,
    /// Copies of the last reads that nothing came back to yet, read or not.
    watched: VecDeque<Watched>,
    /// The original that was asked for last, and where its copies are.
    asked: Option<BlockNo>,
    copies: Vec<BlockNo>,
}

impl Returns {
    /// For a volume of so many blocks.
    pub(super) fn new(blocks: u32) -> Returns {
        Returns {
            chances: Chances::new(blocks, COPY_GOES_ON),
            watched: VecDeque::new(),
            asked: None,
            copies: Vec::new(),
        }
    }

    /// What the chance that reads come back to this copy counts for, beside that they go on there: from 0 to 1.
    pub(super) fn of(&self, copy: BlockNo) -> f64 {
        WEIGHT * self.chances.of(copy)
    }

    /// Of what begins at `original` there are these copies.
    pub(super) fn asked(&mut self, original: BlockNo, copies: &[BlockNo]) {
        self.asked = Some(original);
        self.copies.clear();
        self.copies.extend_from_slice(copies);
    }

    /// These originals were read, from the copy `known` or having that one; of the read that was asked for last all are known.
    pub(super) fn read(&mut self, originals: BlockRange, known: Option<BlockNo>) {
        if self.asked.take() != Some(originals.first()) {
            self.copies.clear();
            self.copies.extend(known);
        }
        let Returns { chances, watched, copies, .. } = self;
        watched.retain_mut(|w| {
            let back = copies.iter().any(|&c| w.is_near(c));
            w.left -= 1;
            if back || w.left == 0 {
                chances.learn(w.copy.first(), back, LEARN);
            }
            !back && w.left > 0
        });
        // Of others than the last read only the first block is known to be there: the largest volume may end before the rest.
        let end = |c: BlockNo| c.0.saturating_add(originals.len());
        watched.extend(copies.iter().map(|&c| Watched { copy: BlockRange::new(c.0, end(c)), left: SOON }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of single blocks, each with these copies.
    fn read(r: &mut Returns, reads: &[(u32, &[u32])]) {
        for &(original, copies) in reads {
            let copies: Vec<_> = copies.iter().map(|&c| BlockNo(c)).collect();
            r.asked(BlockNo(original), &copies);
            r.read(BlockRange::one(BlockNo(original)), copies.first().copied());
        }
    }

    /// 64 blocks read in no order: their first copies lie 1,000 blocks apart, their second ones together.
    #[test]
    fn reads_come_back_where_all_of_a_set_lies_close_together() {
        let mut r = Returns::new(100_000);
        for i in 0..4000u32 {
            let n = i.wrapping_mul(i).wrapping_mul(2_654_435_761) >> 26;
            read(&mut r, &[(n, &[10_000 + n * 1000, 90_000 + n])]);
        }
        let apart = (0..64).map(|n| r.of(BlockNo(10_000 + n * 1000))).sum::<f64>() / 64.0;
        let together = r.of(BlockNo(90_000));
        assert!(together > 0.9 * WEIGHT && apart < 0.5 * WEIGHT, "{together} {apart}");
    }

    #[test]
    fn soon_is_so_many_reads_later_and_no_more() {
        let of = |between: u32| {
            let mut r = Returns::new(100_000);
            for i in 0..200 {
                read(&mut r, &[(1, &[5000])]);
                (1..between).for_each(|n| read(&mut r, &[(10 + n, &[])]));
                read(&mut r, &[(2, &[5020 + i % 40])]);
                (0..SOON).for_each(|n| read(&mut r, &[(10 + n, &[])]));
            }
            r.of(BlockNo(5000))
        };
        // Half of the reads are followed by the other one, which is followed by nothing.
        let (soon, late) = (of(SOON), of(SOON + 1));
        assert!(soon > 0.3 * WEIGHT && late == 0.0, "{soon} {late}");
    }

    #[test]
    fn of_a_read_nobody_asked_for_one_copy_is_known() {
        let mut r = Returns::new(100_000);
        for _ in 0..200 {
            r.asked(BlockNo(7), &[BlockNo(9000)]);
            // Another read ends first.
            r.read(BlockRange::one(BlockNo(1)), Some(BlockNo(5000)));
            r.read(BlockRange::one(BlockNo(7)), None);
        }
        assert!(r.of(BlockNo(5000)) > 0.9 * WEIGHT);
        assert_eq!(r.of(BlockNo(9000)), r.of(BlockNo(90_000)), "nothing is known of it");
        assert!(r.of(BlockNo(9000)) < r.of(BlockNo(5000)));
    }
}
