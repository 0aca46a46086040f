//! FS²-static: what the workload reads, copied once, beforehand, to where most of it lies.
//!
//! Hai Huang, Wanda Hung and Kang G. Shin, "FS2: Dynamic Data Replication in Free Disk Space for Improving Disk
//! Performance and Energy Consumption", SOSP 2005, sections 3.3 and 4.3.2. All blocks of the workload's files are
//! found beforehand and replicated "toward the middle of the disk", which was chosen because most of them lay
//! there; "without any regard to how the blocks are temporally related", so by address. Reads go to the copies
//! where all of them are there, contiguous and nearer than the original (section 3.1); writes void copies, and
//! nothing is copied again.
//!
//! A trace has no list of files: what its reads touch stands for them ([`ReadSet`]). The paper names no limit
//! of space; where the copies do not all fit, the blocks read most often are copied. Copying takes place in the
//! idle time before the first run and is charged to it.

use std::collections::BTreeMap;

use fs2_block::{BlockNo, BlockRange, BlockSize, Extent, Op};
use fs2_engine::policy::Shape;

use super::area::Around;
use super::relayout::Planner;

/// What a workload reads, known beforehand: the administrator's list.
#[derive(Clone, Debug)]
pub struct ReadSet {
    block_size: BlockSize,
    /// Reads of each block.
    reads: BTreeMap<u32, u32>,
}

impl ReadSet {
    /// Of a volume with blocks of this size; empty.
    pub fn new(block_size: BlockSize) -> ReadSet {
        ReadSet { block_size, reads: BTreeMap::new() }
    }

    /// A request of the workload. Blocks beyond what ext2 can number are left out.
    pub fn see(&mut self, op: Op, extent: Extent) {
        if op == Op::Read && extent.end() <= self.block_size.bytes_of(u32::MAX) {
            for block in extent.blocks_covered(self.block_size).iter() {
                *self.reads.entry(block.0).or_default() += 1;
            }
        }
    }

    /// Blocks that were read.
    pub fn blocks(&self) -> usize {
        self.reads.len()
    }

    /// The same on a volume where blocks lie elsewhere.
    pub(in super::super) fn moved(&self, to: impl Fn(BlockNo) -> BlockNo) -> ReadSet {
        let reads = self.reads.iter().map(|(&b, &n)| (to(BlockNo(b)).0, n)).collect();
        ReadSet { reads, ..*self }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Fs2Static {
    /// Most read first.
    known: Vec<u32>,
    middle: u32,
}

impl Fs2Static {
    pub(super) fn new(set: &ReadSet) -> Fs2Static {
        let mut known: Vec<(u32, u32)> = set.reads.iter().map(|(&b, &n)| (b, n)).collect();
        let middle = known.get(known.len() / 2).map_or(0, |k| k.0);
        known.sort_by_key(|&(block, n)| (std::cmp::Reverse(n), block));
        Fs2Static { known: known.into_iter().map(|k| k.0).collect(), middle }
    }
}

impl Planner for Fs2Static {
    fn read(&mut self, _: BlockRange) {}

    fn layout(&mut self, room: usize) -> Vec<u32> {
        let mut layout: Vec<u32> = self.known.iter().copied().take(room).collect();
        layout.sort_unstable();
        layout
    }

    fn knows_beforehand(&self) -> bool {
        true
    }

    fn once(&self) -> bool {
        true
    }

    fn area_blocks(&self, room: u32) -> u32 {
        room.min(u32::try_from(self.known.len()).unwrap_or(u32::MAX))
    }

    fn around(&self, _: &Shape) -> Around {
        Around::Block(self.middle)
    }

    fn nearest_only(&self) -> bool {
        true
    }
}
