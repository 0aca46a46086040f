//! Adaptive block rearrangement: the most requested blocks in reserved cylinders in the middle of the disk.
//!
//! Sedat Akyürek and Kenneth Salem, "Adaptive Block Rearrangement", ACM Transactions on Computer Systems 13(2),
//! 1995; "Adaptive Block Rearrangement Under UNIX", USENIX Summer 1993. Requests are counted in a list of bounded
//! length; each day the hottest blocks are copied to the reserved cylinders, and requests for them, writes too,
//! go there; what was written is written back when it leaves. Placement is the papers' organ pipe: the hottest
//! cylinder's worth in the middle one, the next ones to both sides in turn.
//!
//! Parameters: the reserved cylinders are the space budget (the papers' are a few percent of the disk); a list of
//! twice as many blocks, of which an eighth, of the lowest count, goes when it is full (the papers have several rules);
//! counts begin anew each day; a cylinder of 1 MiB, within it by address (guesses; the paper's drive has about so
//! much). A request for several blocks that lie apart is served in pieces: the papers' requests are of one block.

use std::collections::BTreeMap;

use fs2_block::{BlockRange, Op};

use super::mover::Planner;

/// Blocks of a cylinder, 1 MiB.
pub(super) const CYLINDER_BLOCKS: usize = 256;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Abr {
    /// Requests of each block today.
    counts: BTreeMap<u32, u32>,
    list_max: usize,
}

impl Abr {
    /// For an area of so many blocks.
    pub(super) fn new(room: u32) -> Abr {
        Abr { counts: BTreeMap::new(), list_max: 2 * room.max(1) as usize }
    }
}

/// Numbers from 0 to `n` from the middle outwards, alternating: the organ pipe's order.
pub(super) fn from_the_middle(n: usize) -> impl Iterator<Item = usize> {
    let middle = n / 2;
    (0..n).map(move |i| if i.is_multiple_of(2) { middle + i / 2 } else { middle - i.div_ceil(2) })
}

impl Planner for Abr {
    fn request(&mut self, _: Op, blocks: BlockRange) {
        for block in blocks.iter() {
            *self.counts.entry(block.0).or_default() += 1;
        }
        while self.counts.len() > self.list_max {
            let least = self.counts.values().min().copied().unwrap_or(0);
            let mut room = self.list_max.div_ceil(8);
            self.counts.retain(|_, n| {
                let goes = *n == least && room > 0;
                room -= usize::from(goes);
                !goes
            });
        }
    }

    fn arrange(&mut self, slots: usize) -> Vec<Option<u32>> {
        let mut hottest: Vec<(u32, u32)> = std::mem::take(&mut self.counts).into_iter().collect();
        hottest.sort_by_key(|&(block, n)| (std::cmp::Reverse(n), block));
        hottest.truncate(slots / CYLINDER_BLOCKS * CYLINDER_BLOCKS);
        let cylinders = hottest.len().div_ceil(CYLINDER_BLOCKS);
        // In the middle of the area.
        let first = (slots / CYLINDER_BLOCKS - cylinders) / 2 * CYLINDER_BLOCKS;
        let mut out = vec![None; slots];
        for (cylinder, hot) in from_the_middle(cylinders).zip(hottest.chunks_mut(CYLINDER_BLOCKS)) {
            hot.sort_unstable();
            for (i, &(block, _)) in hot.iter().enumerate() {
                out[first + cylinder * CYLINDER_BLOCKS + i] = Some(block);
            }
        }
        out
    }
}
