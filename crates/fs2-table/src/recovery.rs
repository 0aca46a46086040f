//! From the pages on disk to a table; nothing in them is believed unseen.
//!
//! C1: memory is bounded by the pages the geometry has, whatever is in them.
//! C2: no entry of the result breaks the table's invariants or the caller's [`Limits`].
//! C3: every page that is not on disk as the table has it is dirty in the result.

mod resolve;

use crate::leaf::{FIRST_STEP, Leaf, Warmth};
use crate::page::{Entry, PAGE_BYTES, PageDamage, RawPage};
use crate::table::{OnDisk, ReplicaTable};
use crate::{Geometry, Header, Trust};
use fs2_block::{BlockNo, BlockRange};
use std::fmt;

/// What an entry must keep to.
pub struct Limits<'a> {
    /// Of the volume: 0, or 1 with blocks of 1 KiB.
    pub first_block: BlockNo,
    /// Blocks of the volume, the one before `first_block` counted: its highest number plus one.
    pub blocks: u32,
    /// Replicas of one original at most; from 1.
    pub degree: u8,
    /// Where no replica may be: static metadata, the table, the first and last MiB.
    pub forbidden: &'a dyn Fn(BlockNo) -> bool,
    /// What may not be copied: the table.
    pub forbidden_original: &'a dyn Fn(BlockNo) -> bool,
    /// Whether verified pages may be trusted: the mark is there and its token equal.
    pub trust_verified: bool,
}

impl fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("first_block", &self.first_block)
            .field("blocks", &self.blocks)
            .field("degree", &self.degree)
            .field("trust_verified", &self.trust_verified)
            .finish_non_exhaustive()
    }
}

/// What was found on disk and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Pages of the table.
    pub pages: u32,
    /// Pages with entries that were read and used.
    pub pages_used: u32,
    /// Pages that were all zero.
    pub pages_empty: u32,
    /// Pages torn, decayed, misplaced or against the format: their entries are lost.
    pub pages_damaged: u32,
    /// Pages of another table, not used.
    pub pages_foreign: u32,
    /// Pages never fed, because they could not be read.
    pub pages_unread: u32,
    /// Pages newer than the header: used, not trusted.
    pub pages_newer: u32,
    /// Pages whose replicas overlapped those of others, as a crash may leave them: rearranged.
    pub pages_overlapping: u32,
    /// Entries in the pages used.
    pub entries: u64,
    /// Dropped: an address outside the volume.
    pub out_of_range: u64,
    /// Dropped: an address where none may be.
    pub forbidden: u64,
    /// Dropped: a block as its own replica.
    pub own_replica: u64,
    /// The same entry again; kept once, unverified.
    pub repeated: u64,
    /// Dropped: named one replica along with another entry.
    pub same_replica: u64,
    /// Dropped: the replica of one was the original of another.
    pub contradictory: u64,
    /// Dropped: more than `degree` for one original.
    pub over_degree: u64,
    /// Kept, and trusted.
    pub kept_verified: u64,
    /// Kept, to be verified.
    pub kept_unverified: u64,
}

impl Report {
    /// Whether all that was on disk was as a table left in order is. Unverified entries are.
    pub fn is_clean(&self) -> bool {
        let kept = self.kept_verified + self.kept_unverified;
        let bad = self.pages_damaged + self.pages_foreign + self.pages_unread + self.pages_newer;
        kept == self.entries && bad + self.pages_overlapping == 0
    }

    /// Entries dropped.
    pub fn dropped(&self) -> u64 {
        self.entries - self.kept_verified - self.kept_unverified
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} replicas ({} verified, {} unverified) in {} of {} pages",
            self.kept_verified + self.kept_unverified,
            self.kept_verified,
            self.kept_unverified,
            self.pages_used,
            self.pages
        )?;
        let mut say = |n: u64, (one, many): (&str, &str), what: &str| match n {
            0 => Ok(()),
            1 => write!(f, "; 1 {one}{what}"),
            _ => write!(f, "; {n} {many}{what}"),
        };
        let (page, entry) = (("page", "pages"), ("entry", "entries"));
        say(self.pages_damaged.into(), page, " damaged")?;
        say(self.pages_foreign.into(), page, " of another table")?;
        say(self.pages_unread.into(), page, " not read")?;
        say(self.pages_newer.into(), page, " newer than the header, not trusted")?;
        say(self.pages_overlapping.into(), page, " overlapping, rearranged")?;
        say(self.out_of_range, entry, " dropped: outside the volume")?;
        say(self.forbidden, entry, " dropped: in metadata, the table or the volume's ends")?;
        say(self.own_replica, entry, " dropped: a block as its own replica")?;
        say(self.repeated, entry, " there twice")?;
        say(self.same_replica, entry, " dropped: replica named twice")?;
        say(self.contradictory, entry, " dropped: a replica was another's original")?;
        say(self.over_degree, entry, " dropped: more replicas of one block than allowed")
    }
}

/// What has become of a page so far.
#[derive(Clone, Debug, Default)]
struct Found {
    fed: bool,
    /// `None` where it was fed zero.
    on_disk: OnDisk,
    generation: u64,
    leaf: Option<Box<Leaf>>,
}

/// Takes pages as they are read and makes a [`ReplicaTable`] of them.
///
/// ```
/// use fs2_block::{BlockNo, BlockSize};
/// use fs2_table::{Geometry, Header, Limits, Recovery};
///
/// let bytes = Geometry::bytes_needed(1000, 8, BlockSize::B4096);
/// let geometry = Geometry::new(bytes, 8, BlockSize::B4096);
/// let header = Header::new(42, BlockSize::B4096, geometry.pages());
/// let limits = Limits {
///     first_block: BlockNo(0),
///     blocks: 8 * 32768,
///     degree: 1,
///     forbidden: &|block| block.0 < 256,
///     forbidden_original: &|_| false,
///     trust_verified: false,
/// };
/// let mut recovery = Recovery::new(geometry, &header, limits);
/// for page in 0..recovery.pages() {
///     recovery.feed(page, &[0; 4096]); // in reads of any number of pages
/// }
/// let (table, report) = recovery.finish();
/// assert!(table.is_empty() && report.is_clean());
/// ```
#[derive(Debug)]
pub struct Recovery<'a> {
    limits: Limits<'a>,
    volume_id: u64,
    generation: u64,
    found: Vec<Found>,
    damages: Vec<(u32, PageDamage)>,
    report: Report,
}

/// Damages kept for [`Recovery::damages`]: who reads messages reads no more. Guess.
const DAMAGES_MAX: usize = 100;

impl<'a> Recovery<'a> {
    /// For a table of this geometry and header. Pages beyond either are not read.
    pub fn new(geometry: Geometry, header: &Header, limits: Limits<'a>) -> Recovery<'a> {
        Recovery::until(u32::MAX, geometry, header, limits)
    }

    /// As [`Recovery::new`], for who found the header's mark to stand: pages that it says are zero are neither read nor fed.
    pub fn marked(geometry: Geometry, header: &Header, limits: Limits<'a>) -> Recovery<'a> {
        let end = header.mark.as_ref().and_then(|mark| mark.pages_end);
        Recovery::until(end.unwrap_or(u32::MAX), geometry, header, limits)
    }

    fn until(end: u32, geometry: Geometry, header: &Header, limits: Limits<'a>) -> Recovery<'a> {
        let pages = geometry.pages().min(header.pages);
        let fed = end.min(pages);
        Recovery {
            limits,
            volume_id: header.volume_id,
            generation: header.generation,
            found: vec![Found::default(); fed as usize],
            damages: Vec::new(),
            report: Report { pages, pages_empty: pages - fed, ..Report::default() },
        }
    }

    /// Pages to feed.
    pub fn pages(&self) -> u32 {
        self.found.len() as u32
    }

    /// Takes the bytes of whole pages from `first` on, in any order of calls. What could not be
    /// read is not fed; what is no whole page, no page of this table or was fed before is passed
    /// over.
    pub fn feed(&mut self, first: u32, bytes: &[u8]) {
        let pages = (u64::from(first)..self.found.len() as u64).zip(bytes.chunks_exact(PAGE_BYTES));
        for (number, bytes) in pages {
            let number = number as u32;
            if self.found[number as usize].fed {
                continue;
            }
            let found = match RawPage::parse(bytes, number, self.volume_id) {
                Ok(None) => {
                    self.report.pages_empty += 1;
                    Found::default()
                }
                Ok(Some(page)) => self.take(page),
                Err(damage) => {
                    if self.damages.len() < DAMAGES_MAX {
                        self.damages.push((number, damage));
                    }
                    match damage {
                        PageDamage::Foreign(_) => self.report.pages_foreign += 1,
                        _ => self.report.pages_damaged += 1,
                    }
                    Found { on_disk: OnDisk::Unknown, ..Found::default() }
                }
            };
            self.found[number as usize] = Found { fed: true, ..found };
        }
    }

    /// The first pages not used, with the reason: at most 100, in the order they were fed.
    pub fn damages(&self) -> &[(u32, PageDamage)] {
        &self.damages
    }

    fn take(&mut self, page: RawPage<'_>) -> Found {
        let newer = page.header.generation > self.generation;
        let trusted = self.limits.trust_verified && page.header.verified && !newer;
        let trust = if trusted { Trust::Verified } else { Trust::Unverified };
        self.report.pages_used += 1;
        self.report.pages_newer += u32::from(newer);
        self.report.entries += page.header.count as u64;
        let allowed = page.entries().enumerate().filter(|&(_, entry)| self.allowed(entry));
        let with_warmth = allowed.map(|(slot, entry)| {
            let (age, value) = page.warmth(slot);
            (entry, Warmth::new(FIRST_STEP, age, value, trust))
        });
        let leaf: Leaf = with_warmth.collect();
        let on_disk = match (leaf.len() == page.header.count && !newer, page.header.verified) {
            (false, _) => OnDisk::Unknown,
            (true, true) => OnDisk::Verified,
            (true, false) => OnDisk::Unverified,
        };
        let leaf = (leaf.len() > 0).then(|| Box::new(leaf));
        Found { fed: true, on_disk, generation: page.header.generation, leaf }
    }

    fn allowed(&mut self, entry: Entry) -> bool {
        let (original, replica) = (BlockNo(entry.original), BlockNo(entry.replica));
        let volume = BlockRange::new(self.limits.first_block.0, self.limits.blocks);
        let count = if !volume.contains(original) || !volume.contains(replica) {
            &mut self.report.out_of_range
        } else if original == replica {
            &mut self.report.own_replica
        } else if (self.limits.forbidden)(replica) || (self.limits.forbidden_original)(original) {
            &mut self.report.forbidden
        } else {
            return true;
        };
        *count += 1;
        false
    }

    /// The table, and what was found. Pages that are not on disk as the table has them are dirty.
    pub fn finish(mut self) -> (ReplicaTable, Report) {
        for found in self.found.iter_mut().filter(|f| !f.fed) {
            self.report.pages_unread += 1;
            found.on_disk = OnDisk::Unknown;
        }
        let generations = resolve::overlaps(&mut self.found, &mut self.report);
        let runs = resolve::contradictions(&mut self.found, &mut self.report);
        let runs = resolve::degree(
            &mut self.found,
            runs,
            usize::from(self.limits.degree.max(1)),
            &generations,
            &mut self.report,
        );
        let mut table = ReplicaTable::with_pages(self.report.pages, self.limits.degree.max(1));
        table.adopt(self.found.into_iter().map(|f| (f.leaf, f.on_disk)).collect());
        table.adopt_runs(&runs);
        self.report.kept_unverified = table.unverified_count() as u64;
        self.report.kept_verified = (table.len() - table.unverified_count()) as u64;
        (table, self.report)
    }
}
