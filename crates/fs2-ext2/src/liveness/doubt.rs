//! Invariant I5: whether a mark of cleanness may be left, or somebody wrote an unmounted volume and did not come to the end.

use std::fmt;

use fs2_block::{BlockNo, BlockRange};
use roaring::RoaringBitmap;

use super::{Liveness, bit_runs};

/// Why a bitmap on disk may say less than files do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The block was written, and the bitmap calls it free.
    Block(BlockNo),
    /// The group's bitmap was written and no superblock after it.
    Bitmap(u32),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Block(b) => {
                write!(
                    f,
                    "block {b} was written while the superblock called the volume unmounted, and its bitmap calls it free"
                )
            }
            Doubt::Bitmap(g) => write!(
                f,
                "the block bitmap of group {g} was written while the superblock called the volume unmounted, and no superblock after it"
            ),
        }
    }
}

/// What a kernel's page cache writes of an unmounted device at least: a page, on most machines.
const PAGE_CACHE_BYTES: u32 = 4096;

/// `range` and what shares a page of so many blocks with it; the largest volume may end within its last page.
fn pages(range: BlockRange, blocks: u32) -> BlockRange {
    let end = range.end().checked_next_multiple_of(blocks).unwrap_or(u32::MAX);
    BlockRange::new(range.start() - range.start() % blocks, end)
}

impl Liveness {
    /// A superblock that a tool wrote: its bitmaps were on disk before, in any order with its blocks. It writes by way of the page cache
    /// what lies beside small blocks in use, too, as it is.
    pub(super) fn announced(&mut self) {
        self.bitmaps_unannounced.clear();
        if self.unannounced.is_empty() {
            return;
        }
        if !self.set_unannounced.is_empty() {
            // Bits may be set in all of a large volume: only those beside what was written are looked at one by one.
            let beside = &self.set_unannounced & &self.pages_with(&self.unannounced);
            self.unannounced -= self.pages_with(&beside);
        }
        self.told |= std::mem::take(&mut self.unannounced);
    }

    /// The pages of a page cache that `range` lies in.
    fn pages_of(&self, range: BlockRange) -> BlockRange {
        pages(range, (PAGE_CACHE_BYTES / self.block_size().bytes()).max(1))
    }

    /// What shares a page with a block of `set`.
    fn pages_with(&self, set: &RoaringBitmap) -> RoaringBitmap {
        let (mut runs, mut all) = (set.iter(), RoaringBitmap::new());
        while let Some(run) = runs.next_range() {
            let pages = self.pages_of(BlockRange::new(*run.start(), *run.end() + 1));
            all.insert_range(pages.start()..pages.end());
        }
        all
    }

    /// Groups that [`Liveness::doubt`] is to be asked about, ascending.
    pub fn doubtful_groups(&self) -> RoaringBitmap {
        let mut groups = self.bitmaps_unannounced.clone();
        let (first, end) = (self.layout.first_data_block(), self.layout.blocks());
        for set in [&self.unannounced, &self.told] {
            let mut runs = set.range(first..end);
            while let Some(run) = runs.next_range() {
                let group = |b: &u32| self.layout.group_of(BlockNo(*b));
                groups.insert_range(group(run.start())..=group(run.end()));
            }
        }
        groups
    }

    /// Why no mark may vouch for a group's bitmap, given as it is on disk: whoever wrote blocks, or the bitmap itself,
    /// while the superblock called the volume unmounted seems not to have come to its end. `changed`: it is not what it was at the attach.
    pub fn doubt(&self, group: u32, bitmap: &[u8], changed: bool) -> Option<Doubt> {
        let blocks = self.layout.group_blocks(group);
        for free in bit_runs(bitmap, blocks, false) {
            let of = |set: &'_ RoaringBitmap, may: &dyn Fn(u32) -> bool| {
                set.range(free.start()..free.end()).find(|&b| self.in_universe(BlockNo(b)) && may(b))
            };
            // The page is known as far as this bitmap goes.
            let alone = |b: u32| {
                let page = self.pages_of(BlockRange::new(b, b + 1)).intersect(blocks);
                free.start() <= page.start() && page.end() <= free.end()
            };
            let block = of(&self.unannounced, &|_| true).or_else(|| of(&self.told, &alone));
            if let Some(block) = block {
                return Some(Doubt::Block(BlockNo(block)));
            }
        }
        (changed && self.bitmaps_unannounced.contains(group)).then_some(Doubt::Bitmap(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_where_block_numbers_do() {
        let of = |from, to, blocks| {
            let pages = pages(BlockRange::new(from, to), blocks);
            (pages.start(), pages.end())
        };
        assert_eq!((of(5, 6, 4), of(4, 9, 4), of(5, 6, 1)), ((4, 8), (4, 12), (5, 6)));
        assert_eq!(of(u32::MAX - 1, u32::MAX, 4), (u32::MAX - 3, u32::MAX));
    }
}
