//! ALIS, heat clustering: what is read most, together in a reserved area, in the order of its addresses.
//!
//! Windsor W. Hsu, Alan Jay Smith and Honesty C. Young, "The Automatic Improvement of Locality in Storage Systems",
//! ACM Transactions on Computer Systems 23(4), 2005 (report UCB/CSD-03-1264, 2003), section on heat clustering:
//! references are counted by extents of fixed size, and the hottest extents are copied once a day; of the orders
//! within the area, that of the original addresses did best. Originals stay, reads go to the area where all their
//! blocks are there.
//!
//! Parameters: extents of 32 KiB (the paper's size is not at hand: a guess), counts halved each day (the paper
//! ages them; by how much is a guess), all of the space budget, in the middle of the volume.

use std::collections::BTreeMap;

use fs2_block::BlockRange;

use super::relayout::Planner;

/// Blocks of an extent.
const EXTENT_BLOCKS: u32 = 8;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct AlisHeat {
    /// References of each extent, in 1/16.
    heat: BTreeMap<u32, u32>,
}

impl Planner for AlisHeat {
    fn read(&mut self, blocks: BlockRange) {
        for extent in blocks.start() / EXTENT_BLOCKS..=(blocks.end() - 1) / EXTENT_BLOCKS {
            let heat = self.heat.entry(extent).or_default();
            *heat = heat.saturating_add(16);
        }
    }

    fn layout(&mut self, room: usize) -> Vec<u32> {
        let mut hottest: Vec<(u32, u32)> = self.heat.iter().map(|(&e, &h)| (e, h)).collect();
        hottest.sort_by_key(|&(extent, heat)| (std::cmp::Reverse(heat), extent));
        hottest.truncate(room / EXTENT_BLOCKS as usize);
        hottest.sort_unstable();
        self.heat.retain(|_, h| {
            *h /= 2;
            *h > 0
        });
        let blocks = |extent: u32| extent * EXTENT_BLOCKS..(extent + 1) * EXTENT_BLOCKS;
        hottest.into_iter().flat_map(|(extent, _)| blocks(extent)).collect()
    }
}
