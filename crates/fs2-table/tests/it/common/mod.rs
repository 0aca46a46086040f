//! A table's pages as a plain byte vector.

use fs2_block::{BlockNo, BlockSize};
use fs2_table::{Geometry, Header, Limits, PAGE_BYTES, Recovery, Replica, ReplicaTable, Report, Trust};

pub(crate) const KEY: u64 = 0x5eed;
pub(crate) const GENERATION: u64 = 7;

/// The entry pages of a table of `pages`.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) geometry: Geometry,
    pub(crate) header: Header,
}

pub(crate) fn entry(original: u32, replica: u32, hash: u64, trust: Trust) -> Replica {
    Replica { original: BlockNo(original), replica: BlockNo(replica), hash, trust }
}

pub(crate) fn limits(degree: u8, trust_verified: bool) -> Limits<'static> {
    Limits {
        first_block: BlockNo(1),
        blocks: 10_000,
        degree,
        forbidden: &|b| (300..400).contains(&b.0),
        forbidden_original: &|b| (300..350).contains(&b.0),
        trust_verified,
    }
}

impl Image {
    pub(crate) fn new(pages: u32) -> Image {
        let first = Geometry::new(0, 10, BlockSize::B1024).first_page_offset();
        let geometry = Geometry::new(first + u64::from(pages) * PAGE_BYTES as u64, 10, BlockSize::B1024);
        assert_eq!(geometry.pages(), pages);
        let mut header = Header::new(KEY, BlockSize::B1024, pages);
        header.generation = GENERATION;
        Image { bytes: vec![0; pages as usize * PAGE_BYTES], geometry, header }
    }

    pub(crate) fn page(&mut self, page: u32) -> &mut [u8] {
        &mut self.bytes[page as usize * PAGE_BYTES..][..PAGE_BYTES]
    }

    pub(crate) fn recover(&self, limits: Limits<'_>) -> (ReplicaTable, Report) {
        let mut recovery = Recovery::new(self.geometry, &self.header, limits);
        // In reads of three pages.
        for (i, bytes) in self.bytes.chunks(3 * PAGE_BYTES).enumerate() {
            recovery.feed(i as u32 * 3, bytes);
        }
        recovery.finish()
    }

    /// Writes the dirty pages; before a mark those too whose flag differs. Returns how many.
    pub(crate) fn flush(&mut self, table: &mut ReplicaTable, before_mark: bool) -> usize {
        let mut pages = Vec::new();
        while let Some(page) = table.next_dirty_page(pages.last().copied()) {
            pages.push(page);
        }
        assert_eq!(pages.len(), table.dirty_pages());
        if before_mark {
            pages.extend(table.pages_needing_flag_change(true));
        }
        for &page in &pages {
            let encoded = table.encode_page(page, GENERATION, KEY, true);
            self.page(page).copy_from_slice(&encoded.bytes[..]);
            table.mark_written(page, &encoded);
        }
        assert_eq!(table.dirty_pages(), 0);
        pages.len()
    }
}
