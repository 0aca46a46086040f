//! What goes to disk: which pages, with which flag.

use super::{Page, ReplicaTable};
use crate::page::{self, PAGE_BYTES, PageHeader, WARMTH_RUN};

/// What is known of a page on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnDisk {
    /// Zero: no entry.
    #[default]
    Empty,
    Unverified,
    Verified,
    /// Damaged, foreign, unreadable, or a write of it failed.
    Unknown,
}

/// Which state of a page was encoded; to be handed back once it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageVersion(u32);

/// A page ready to be written.
#[derive(Clone, Debug)]
pub struct EncodedPage {
    /// What to write at [`crate::Geometry::page_offset`].
    pub bytes: Box<[u8; PAGE_BYTES]>,
    /// For [`ReplicaTable::mark_written`].
    pub version: PageVersion,
    /// Whether the page is flagged verified.
    pub verified: bool,
}

/// The dirty pages, a bit each.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    words: Vec<u64>,
    count: usize,
}

impl Dirty {
    pub(super) fn set(&mut self, page: u32, dirty: bool) {
        let (word, bit) = ((page / 64) as usize, 1u64 << (page % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        if (self.words[word] & bit != 0) != dirty {
            self.words[word] ^= bit;
            self.count = if dirty { self.count + 1 } else { self.count - 1 };
        }
    }

    pub(super) fn get(&self, page: u32) -> bool {
        self.words.get((page / 64) as usize).is_some_and(|w| w >> (page % 64) & 1 != 0)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first dirty page from `page` on.
    fn next(&self, page: u32) -> Option<u32> {
        let mut word = (page / 64) as usize;
        let mut bits = *self.words.get(word)? & (u64::MAX << (page % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

impl ReplicaTable {
    /// Pages that are to be written.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.count()
    }

    /// The page behind the last that holds an entry, in memory or as far as is known on disk: this one and all behind it are zero.
    pub fn pages_end(&self) -> u32 {
        let holds = |page: &Page| page.leaf.is_some() || page.on_disk != OnDisk::Empty;
        self.pages.iter().rposition(holds).map_or(0, |last| last as u32 + 1)
    }

    /// The first dirty page behind `after` (from the first where `None`).
    pub fn next_dirty_page(&self, after: Option<u32>) -> Option<u32> {
        self.dirty.next(after.map_or(Some(0), |page| page.checked_add(1))?)
    }

    /// A page's bytes. `generation` is that of the [`crate::Header`] in force, never more: a page
    /// newer than its header is not trusted. It is flagged verified only where `verified_allowed`
    /// and every entry in it is. A page without entries is all zero.
    ///
    /// # Panics
    /// Where the table has no such page.
    pub fn encode_page(
        &self,
        page: u32,
        generation: u64,
        volume_id: u64,
        verified_allowed: bool,
    ) -> EncodedPage {
        assert!(page < self.pages_max, "page {page} of {}", self.pages_max);
        let empty = Page::default();
        let found = self.pages.get(page as usize).unwrap_or(&empty);
        let verified = wanted(found, verified_allowed) == OnDisk::Verified;
        let version = PageVersion(found.version);
        let Some(leaf) = &found.leaf else {
            return EncodedPage { bytes: Box::new([0; PAGE_BYTES]), version, verified };
        };
        let header = PageHeader { generation, volume_id, number: page, count: leaf.len(), verified };
        let bytes = page::encode(&header, leaf.entries(), |run| {
            let from = run * WARMTH_RUN;
            leaf.warmest_as_used(from..(from + WARMTH_RUN).min(leaf.len()), self.now)
        });
        EncodedPage { bytes, version, verified }
    }

    /// A page encoded as `written` is on disk. It stays dirty where it has changed since. No two
    /// writes of one page may be under way at a time: which one lasts would not be known.
    pub fn mark_written(&mut self, page: u32, written: &EncodedPage) {
        let Some(found) = self.pages.get_mut(page as usize) else { return };
        if PageVersion(found.version) == written.version {
            found.on_disk = match (&found.leaf, written.verified) {
                (None, _) => OnDisk::Empty,
                (Some(_), true) => OnDisk::Verified,
                (Some(_), false) => OnDisk::Unverified,
            };
            self.dirty.set(page, false);
        } else {
            found.on_disk = OnDisk::Unknown;
        }
    }

    /// A page is to be written, because its write failed or for any other reason.
    ///
    /// # Panics
    /// Where the table has no such page.
    pub fn mark_dirty(&mut self, page: u32) {
        assert!(page < self.pages_max, "page {page} of {}", self.pages_max);
        self.know_pages(page + 1);
        self.pages[page as usize].on_disk = OnDisk::Unknown;
        self.changed(page);
    }

    /// The pages, not dirty, whose verified flag on disk is not the one they would be written
    /// with. Before a mark these and the dirty ones are to be written.
    pub fn pages_needing_flag_change(&self, verified_allowed: bool) -> impl Iterator<Item = u32> {
        self.pages
            .iter()
            .zip(0..)
            .filter(move |&(page, number)| {
                !self.dirty.get(number) && page.on_disk != wanted(page, verified_allowed)
            })
            .map(|(_, number)| number)
    }

    /// Keeps T5: what is encoded before this call does not count as written after it.
    pub(super) fn changed(&mut self, page: u32) {
        let found = &mut self.pages[page as usize];
        found.version = found.version.wrapping_add(1);
        self.dirty.set(page, true);
    }

    fn know_pages(&mut self, pages: u32) {
        while self.pages.len() < pages as usize {
            self.free.push(self.pages.len() as u32);
            self.pages.push(Page::default());
        }
    }

    /// Puts what was read from disk into an empty table: the leaf of each page that has one, and
    /// what is on disk of each. Pages behind them are empty.
    pub(crate) fn adopt(&mut self, pages: Vec<(Option<Box<crate::leaf::Leaf>>, OnDisk)>) {
        assert!(self.pages.is_empty() && pages.len() <= self.pages_max as usize);
        self.pages = pages.into_iter().map(|(leaf, on_disk)| Page { leaf, version: 0, on_disk }).collect();
        for (page, found) in self.pages.iter().enumerate().rev() {
            match &found.leaf {
                Some(leaf) => {
                    self.len += leaf.len();
                    self.unverified += leaf.unverified();
                    self.order.push(page as u32);
                }
                None => self.free.push(page as u32),
            }
            if found.on_disk == OnDisk::Unknown {
                self.dirty.set(page as u32, true);
            }
        }
        let pages = &self.pages;
        let min = |page: u32| pages[page as usize].leaf.as_ref().map_or(0, |l| l.bounds().0);
        self.order.sort_unstable_by_key(|&page| min(page));
        self.mins = self.order.iter().map(|&page| min(page)).collect();
    }

    /// Fills the index and the filter from sorted runs; the pages have the entries already.
    pub(crate) fn adopt_runs(&mut self, runs: &[crate::originals::Run]) {
        runs.iter().for_each(|run| self.filter.add(run.original, run.len));
        self.originals = crate::originals::Originals::build(runs.iter().copied());
    }
}

fn wanted(page: &Page, verified_allowed: bool) -> OnDisk {
    match &page.leaf {
        None => OnDisk::Empty,
        Some(leaf) if verified_allowed && leaf.unverified() == 0 => OnDisk::Verified,
        Some(_) => OnDisk::Unverified,
    }
}

/// A page for another process that goes on where this one ends.
#[derive(Clone, Debug)]
pub struct PageInMemory {
    /// As [`ReplicaTable::encode_page`] makes it, or `None` where it has no entries.
    pub bytes: Option<Box<[u8; PAGE_BYTES]>>,
    /// On disk it is not so: after [`crate::Recovery`] of these bytes, [`ReplicaTable::mark_dirty`] it.
    pub differs: bool,
}

impl ReplicaTable {
    /// Every page ever used, in order of their numbers, as memory has them. Trust is told apart from
    /// them: a page's flag here is that of the page on disk, where both can be told in one.
    pub fn pages_in_memory(
        &self,
        generation: u64,
        volume_id: u64,
    ) -> impl Iterator<Item = (u32, PageInMemory)> {
        (0..self.pages.len() as u32).map(move |number| {
            let page = &self.pages[number as usize];
            let flagged = page.on_disk == OnDisk::Verified;
            let encoded = self.encode_page(number, generation, volume_id, flagged);
            let told = match (page.on_disk, &page.leaf) {
                (OnDisk::Empty, leaf) => leaf.is_none(),
                (OnDisk::Unverified | OnDisk::Verified, leaf) => {
                    leaf.is_some() && encoded.verified == flagged
                }
                (OnDisk::Unknown, _) => false,
            };
            let differs = self.dirty.get(number) || !told;
            (number, PageInMemory { bytes: page.leaf.is_some().then_some(encoded.bytes), differs })
        })
    }
}
