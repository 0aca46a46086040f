//! What a policy chooses a place for, and what it knows of the reads behind.

use fs2_block::{BlockNo, BlockRange, Extent};

/// A read, and where it may be served from.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What is read.
    pub original: Extent,
    /// The first block of it.
    pub first: BlockNo,
    /// First blocks of whole, contiguous, trusted copies of all its blocks; never empty.
    pub copies: &'a [BlockNo],
    /// Whether the original is out of the arm's way.
    pub only_copies: bool,
    /// The reads that go to the drive behind it.
    pub behind: &'a Behind,
}

/// The reads that go to the drive next, in this order, and where each may be served from: as far as that is known. Nothing is where nobody
/// waits, where the order is chosen later, or where something else than a read comes first.
#[derive(Clone, Debug, Default)]
pub struct Behind {
    /// Their blocks, and where their copies end in `copies`.
    reads: Vec<(BlockRange, usize)>,
    copies: Vec<BlockNo>,
}

impl Behind {
    /// Nothing is known.
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.copies.clear();
    }

    /// One more.
    pub(crate) fn push(&mut self, blocks: BlockRange, copies: impl Iterator<Item = BlockNo>) {
        self.copies.extend(copies);
        self.reads.push((blocks, self.copies.len()));
    }

    /// From the last of them to the first: what is read, and the first blocks of its copies.
    pub fn backwards(&self) -> impl Iterator<Item = (BlockRange, &[BlockNo])> {
        self.reads.iter().enumerate().rev().map(|(i, &(blocks, end))| {
            let start = i.checked_sub(1).map_or(0, |before| self.reads[before].1);
            (blocks, &self.copies[start..end])
        })
    }
}
