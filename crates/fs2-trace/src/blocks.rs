//! Sets of blocks of 4 KiB, for what was read and written.
//!
//! Exact while the trace touches at most 65,536 regions of 256 MiB, 16 TiB; a request beyond is not
//! counted. A set takes at most a bit a block, 8 KiB a region.

use std::collections::HashMap;

use fs2_block::Extent;
use roaring::RoaringBitmap;

const BLOCK_LOG: u32 = 12;
/// Blocks of a region: what one part of a roaring bitmap holds.
const REGION_LOG: u32 = 16;
const REGIONS_MAX: usize = 1 << 16;

/// Gives regions numbers in the order in which they are touched.
#[derive(Default)]
pub(crate) struct Regions {
    numbers: HashMap<u64, u32>,
    last: Option<(u64, u32)>,
}

/// Blocks within a region, as one number: the region's above, the block's below.
pub(crate) type Piece = std::ops::RangeInclusive<u32>;

impl Regions {
    /// The blocks that a request touches, region by region; `None` where one has no number.
    pub(crate) fn pieces(&mut self, extent: Extent, pieces: &mut Vec<Piece>) -> Option<()> {
        pieces.clear();
        if extent.is_empty() {
            return Some(());
        }
        let mut block = extent.offset() >> BLOCK_LOG;
        let last = (extent.end() - 1) >> BLOCK_LOG;
        while block <= last {
            let region = block >> REGION_LOG;
            let number = self.number(region)? << REGION_LOG;
            let end = last.min((region << REGION_LOG) | 0xffff);
            pieces.push(number | (block & 0xffff) as u32..=number | (end & 0xffff) as u32);
            block = end + 1;
        }
        Some(())
    }

    fn number(&mut self, region: u64) -> Option<u32> {
        if let Some((last, number)) = self.last
            && last == region
        {
            return Some(number);
        }
        let next = self.numbers.len();
        let number = match self.numbers.get(&region) {
            Some(number) => *number,
            None if next == REGIONS_MAX => return None,
            None => {
                self.numbers.insert(region, next as u32);
                next as u32
            }
        };
        self.last = Some((region, number));
        Some(number)
    }
}

/// A set of blocks.
#[derive(Default)]
pub(crate) struct Blocks(RoaringBitmap);

impl Blocks {
    /// Adds blocks; whether all were there before.
    pub(crate) fn insert(&mut self, pieces: &[Piece]) -> bool {
        pieces.iter().fold(0, |new, piece| new + self.0.insert_range(piece.clone())) == 0
    }

    pub(crate) fn remove(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            self.0.remove_range(piece.clone());
        }
    }

    /// Whether all of them are in it.
    pub(crate) fn contains(&self, pieces: &[Piece]) -> bool {
        pieces.iter().all(|piece| self.0.contains_range(piece.clone()))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks() << BLOCK_LOG
    }

    /// Bytes in either.
    pub(crate) fn union_bytes(&self, other: &Blocks) -> u64 {
        self.0.union_len(&other.0) << BLOCK_LOG
    }
}
