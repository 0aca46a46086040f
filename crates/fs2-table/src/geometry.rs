//! Where what lies in a table file (docs/format.md, "The table").

use crate::page::{PAGE_BYTES, PAGE_ENTRIES};
use fs2_block::BlockSize;

/// One page more for every so many, so that pages need not be full. Where no page is free, eight neighbours are squeezed
/// into seven: with one more for seven there always are eight that fit, as long as the table is not full.
const SLACK: u64 = 7;

/// More pages than this would number more entries than there are block numbers.
const PAGES_MAX: u64 = u32::MAX as u64 / PAGE_ENTRIES as u64;

const PAGE: u64 = PAGE_BYTES as u64;

/// The areas of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the file; what is beyond the last whole page is not used.
    pub table_bytes: u64,
    /// Block groups of the volume.
    pub groups: u32,
    /// Of the volume.
    pub block_size: BlockSize,
}

impl Geometry {
    /// The areas of a file of `table_bytes` for a volume of `groups` block groups.
    pub fn new(table_bytes: u64, groups: u32, block_size: BlockSize) -> Geometry {
        Geometry { table_bytes, groups, block_size }
    }

    /// Bytes of a file for `max_replicas` replicas, a multiple of 4096 and so of every block size.
    pub fn bytes_needed(max_replicas: u64, groups: u32, block_size: BlockSize) -> u64 {
        let first = Geometry::new(0, groups, block_size).first_page_offset();
        first + pages_for(max_replicas) * PAGE
    }

    /// The areas of the same file where its first entry page is the file's `first`th page, counted from 0; `None` where no volume has them so.
    pub fn beginning_at(self, first: u64) -> Option<Geometry> {
        let sums = first.checked_sub(2).filter(|sums| *sums > 0 && sums.is_multiple_of(2))? / 2;
        let groups = u32::try_from(sums.checked_mul(PAGE / 4)?).ok()?;
        Some(Geometry { groups, ..self })
    }

    /// Byte offset of header slot 0 or 1.
    ///
    /// # Panics
    /// For any other slot.
    pub fn header_slot_offset(&self, slot: usize) -> u64 {
        assert!(slot < 2, "header slot {slot} of 2");
        slot as u64 * PAGE
    }

    /// Byte offset of the bitmap checksums that belong to header slot 0 or 1.
    ///
    /// # Panics
    /// For any other slot.
    pub fn checksums_offset(&self, slot: usize) -> u64 {
        assert!(slot < 2, "header slot {slot} of 2");
        2 * PAGE + slot as u64 * self.checksums_bytes()
    }

    /// Bytes of one area of bitmap checksums, padding included.
    pub fn checksums_bytes(&self) -> u64 {
        (u64::from(self.groups) * 4).next_multiple_of(PAGE)
    }

    /// Byte offset of entry page 0.
    pub fn first_page_offset(&self) -> u64 {
        2 * PAGE + 2 * self.checksums_bytes()
    }

    /// Byte offset of an entry page.
    pub fn page_offset(&self, page: u32) -> u64 {
        self.first_page_offset() + u64::from(page) * PAGE
    }

    /// Entry pages that fit; 0 where the file is too small to be a table.
    pub fn pages(&self) -> u32 {
        (self.table_bytes.saturating_sub(self.first_page_offset()) / PAGE).min(PAGES_MAX) as u32
    }

    /// Replicas the table takes: a little less than the pages hold.
    pub fn max_entries(&self) -> usize {
        entries_for(self.pages())
    }
}

/// Pages for a table of `entries`.
pub(crate) fn pages_for(entries: u64) -> u64 {
    let full = entries.div_ceil(PAGE_ENTRIES as u64).max(1);
    (full + full.div_ceil(SLACK)).min(PAGES_MAX)
}

/// The largest number of entries for which `pages` are enough.
pub(crate) fn entries_for(pages: u32) -> usize {
    // full + ⌈full / SLACK⌉ ≤ pages, because full / SLACK ≤ pages − full and that is whole.
    let full = u64::from(pages) * SLACK / (SLACK + 1);
    full as usize * PAGE_ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_file_of_the_bytes_needed_takes_what_was_asked(
            replicas in 1u64..30_000_000, groups in 1u32..200_000,
        ) {
            let bytes = Geometry::bytes_needed(replicas, groups, BlockSize::B4096);
            let g = Geometry::new(bytes, groups, BlockSize::B4096);
            prop_assert!(g.max_entries() as u64 >= replicas);
            prop_assert_eq!(u64::from(g.pages()), pages_for(g.max_entries() as u64));
            prop_assert_eq!(g.page_offset(g.pages()), bytes);
            prop_assert!(g.checksums_offset(1) + u64::from(groups) * 4 <= g.first_page_offset());
            let smaller = Geometry { table_bytes: bytes - 1, ..g };
            prop_assert_eq!(smaller.pages(), g.pages() - 1);
        }

        #[test]
        fn where_the_pages_begin_tells_the_areas(groups in 1u32..=1 << 19, bytes: u64, first: u64) {
            let g = Geometry::new(bytes, groups, BlockSize::B4096);
            let found = g.beginning_at(g.first_page_offset() / PAGE).expect("there are such volumes");
            prop_assert_eq!((found.first_page_offset(), found.pages()), (g.first_page_offset(), g.pages()));
            for first in [first, first % 10_000] {
                let there = g.beginning_at(first).map(|g| g.first_page_offset());
                prop_assert_eq!(there, (first > 2 && first % 2 == 0 && first / 2 <= 1 << 22).then(|| first * PAGE));
            }
        }

        #[test]
        fn any_size_has_a_geometry(bytes: u64, groups: u32) {
            let g = Geometry::new(bytes, groups, BlockSize::B1024);
            prop_assert!(g.pages() == 0 || g.page_offset(g.pages()) <= bytes);
            prop_assert!(g.max_entries() <= g.pages() as usize * PAGE_ENTRIES);
            prop_assert!(g.pages() < 2 || pages_for(g.max_entries() as u64) <= g.pages().into());
        }
    }

    #[test]
    fn two_hundredths_of_a_percent() {
        // 1 TiB, 4 KiB blocks, replicas in 5 %.
        let blocks = 1u64 << 28;
        let bytes = Geometry::bytes_needed(blocks / 20, 8192, BlockSize::B4096);
        let share = bytes as f64 / (blocks as f64 * 4096.0);
        assert!((0.000_200..0.000_235).contains(&share), "{share}");
    }
}
