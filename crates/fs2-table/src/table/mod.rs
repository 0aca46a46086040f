//! The replica table in memory: pages in order of replica, an index by original beside them.
//!
//! T1: no two entries name one replica; at most `degree` name one original.
//! T2: no replica is another entry's original.
//! T3: `order` lists the pages that have entries, ascending; `mins` are their first replicas; their
//!     ranges do not overlap.
//! T4: the index and the filter hold exactly the entries of the pages, with their trust.
//! T5: a page whose entries may differ from those on disk is dirty.

mod check;
mod disk;
mod remove;
mod space;
mod warmth;

pub use disk::{EncodedPage, PageInMemory, PageVersion};

use crate::filter::Filter;
use crate::geometry::{entries_for, pages_for};
use crate::leaf::{FIRST_STEP, Leaf, Warmth};
use crate::originals::{Originals, Run};
use crate::page::Entry;
use crate::{Replica, Trust, Vacated};
use disk::Dirty;
pub(crate) use disk::OnDisk;
use fs2_block::{BlockNo, BlockRange};

/// Replicas by original and by replica. See the [crate's example](crate).
///
/// All of it is deterministic: equal calls make equal tables. Cloning copies everything.
#[derive(Clone, Debug)]
pub struct ReplicaTable {
    capacity: usize,
    degree: u8,
    len: usize,
    unverified: usize,
    /// By page number, as far as pages were ever used.
    pages: Vec<Page>,
    /// Pages the table may use.
    pages_max: u32,
    /// Used pages that are empty; the last is used next.
    free: Vec<u32>,
    mins: Vec<u32>,
    order: Vec<u32>,
    originals: Originals,
    filter: Filter,
    dirty: Dirty,
    /// Where replicas went.
    vacated: Vacated,
    /// Squeezing pages together found nothing, and no entry has gone since.
    packed: bool,
    /// Ageing steps since the table was made.
    now: u64,
    /// Where the next sweep over stamps begins.
    sweep_hand: u32,
    /// The replica at which the next search for victims begins.
    victim_hand: u32,
}

#[derive(Clone, Debug, Default)]
struct Page {
    /// Never empty.
    leaf: Option<Box<Leaf>>,
    version: u32,
    on_disk: OnDisk,
}

/// Why an entry was not taken. The table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertRefused {
    /// The block holds another replica, or this one already.
    #[error("block {0} holds a replica already")]
    ReplicaTaken(BlockNo),
    /// The original has as many replicas as the volume allows.
    #[error("block {0} has all the replicas it may have")]
    DegreeReached(BlockNo),
    /// A block would be a replica and be copied too: one lives in a free block, the other does not.
    #[error("block {0} would be both original and replica")]
    Contradiction(BlockNo),
    /// No room for an entry at this place; removing some entries makes room.
    #[error("the table is full")]
    Full,
}

/// A copy of a whole run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCopy {
    /// Holds the copy of the run's first block; the others follow it.
    pub first: BlockNo,
    /// Verified where every entry of the run is.
    pub trust: Trust,
}

/// Entries whose originals and replicas both count up by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch<'a> {
    /// The first entry's original.
    pub original: BlockNo,
    /// Its replica.
    pub replica: BlockNo,
    /// Each entry's content hash; never empty.
    pub hashes: &'a [u64],
    /// Of all of them.
    pub trust: Trust,
}

impl<'a> Stretch<'a> {
    /// The entries, ascending.
    pub fn entries(&self) -> impl Iterator<Item = Replica> + use<'a> {
        let Stretch { original, replica, trust, .. } = *self;
        let entry =
            move |(i, &hash)| Replica { original: original.plus(i), replica: replica.plus(i), hash, trust };
        (0..).zip(self.hashes).map(entry)
    }
}

impl ReplicaTable {
    /// An empty table of at most `max_entries` replicas, `degree` for one original.
    ///
    /// # Panics
    /// Where `degree` is 0.
    pub fn new(max_entries: usize, degree: u8) -> ReplicaTable {
        let pages = pages_for(max_entries as u64) as u32;
        ReplicaTable { capacity: max_entries, ..ReplicaTable::with_pages(pages, degree) }
    }

    /// An empty table of so many pages on disk, which are empty too.
    pub(crate) fn with_pages(pages_max: u32, degree: u8) -> ReplicaTable {
        assert!(degree > 0, "a degree of 0 allows no replica");
        ReplicaTable {
            capacity: entries_for(pages_max),
            degree,
            len: 0,
            unverified: 0,
            pages: Vec::new(),
            pages_max,
            free: Vec::new(),
            mins: Vec::new(),
            order: Vec::new(),
            originals: Originals::default(),
            filter: Filter::new(),
            dirty: Dirty::default(),
            vacated: Vacated::default(),
            packed: false,
            now: FIRST_STEP,
            sweep_hand: 0,
            victim_hand: 0,
        }
    }

    /// Entries in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries at most. (A table just recovered may hold a few more.)
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Replicas one original may have.
    pub fn degree(&self) -> u8 {
        self.degree
    }

    /// Entries that are not verified.
    pub fn unverified_count(&self) -> usize {
        self.unverified
    }

    /// Where replicas went.
    pub fn vacated(&self) -> &Vacated {
        &self.vacated
    }

    /// Bytes of memory, allocators' overhead aside.
    pub fn memory_bytes(&self) -> usize {
        let leaves: usize = self.pages.iter().flat_map(|p| &p.leaf).map(|l| l.memory_bytes()).sum();
        size_of::<ReplicaTable>()
            + self.pages.capacity() * size_of::<Page>()
            + (self.free.capacity() + self.mins.capacity() + self.order.capacity()) * size_of::<u32>()
            + leaves
            + self.originals.memory_bytes()
            + self.filter.memory_bytes()
            + self.dirty.memory_bytes()
            + self.vacated.memory_bytes()
    }

    /// The entry whose copy lies in `replica`.
    pub fn by_replica(&self, replica: BlockNo) -> Option<Replica> {
        let (place, slot) = self.find(replica.0)?;
        Some(self.replica_at(place, slot))
    }

    /// Whether `original` has a replica.
    #[inline]
    pub fn has_replica(&self, original: BlockNo) -> bool {
        self.any_in_originals(BlockRange::one(original))
    }

    /// Whether any block of `originals` has a replica.
    #[inline]
    pub fn any_in_originals(&self, originals: BlockRange) -> bool {
        self.filter.may_have(originals) && self.originals.overlapping(originals).next().is_some()
    }

    /// Every copy of `original`, at most [`ReplicaTable::degree`].
    pub fn replicas_of(&self, original: BlockNo) -> impl Iterator<Item = Replica> {
        self.filter
            .may_have(BlockRange::one(original))
            .then(|| self.originals.copies(original.0))
            .into_iter()
            .flatten()
            .map(|(replica, _)| self.expect_replica(replica))
    }

    /// Where the first copy of `original` lies.
    pub fn first_copy_of(&self, original: BlockNo) -> Option<BlockNo> {
        let may = self.filter.may_have(BlockRange::one(original));
        may.then(|| self.originals.copies(original.0).next()).flatten().map(|(replica, _)| BlockNo(replica))
    }

    /// Number of copies of `original`, at most [`ReplicaTable::degree`].
    pub fn copies_of(&self, original: BlockNo) -> usize {
        if self.filter.may_have(BlockRange::one(original)) {
            self.originals.copies(original.0).count()
        } else {
            0
        }
    }

    /// Every place where the blocks of `originals` are copied one after another. Nothing for no
    /// blocks.
    pub fn copy_of_run(&self, originals: BlockRange) -> impl Iterator<Item = RunCopy> {
        let first = originals.first();
        self.filter
            .may_have(originals)
            .then(|| self.originals.runs_of(first.0))
            .into_iter()
            .flatten()
            .filter_map(move |run| self.follow(originals, run))
    }

    /// Whether the copies that begin in `run` go on for all of `originals`.
    fn follow(&self, originals: BlockRange, mut run: Run) -> Option<RunCopy> {
        let mut trust = run.trust;
        let replica = run.replica + (originals.start() - run.original);
        while run.end() < originals.end() {
            run = self.originals.starting(run.end(), run.replica + run.len)?;
            trust = trust.max(run.trust);
        }
        Some(RunCopy { first: BlockNo(replica), trust })
    }

    /// The entries whose original is in `originals`, ascending by original, then replica.
    pub fn originals_in(&self, originals: BlockRange) -> Vec<Replica> {
        let mut found: Vec<_> =
            self.runs_in(originals).flat_map(|run| self.replicas_iter(run.replicas())).collect();
        found.sort_unstable_by_key(|r| (r.original, r.replica));
        found
    }

    /// The parts of `originals` that have copies, ascending; they overlap where blocks have several.
    pub fn copied_in(&self, originals: BlockRange) -> impl Iterator<Item = BlockRange> {
        self.runs_in(originals).map(|run| run.originals())
    }

    /// The entries whose original is in `originals`, as stretches; in the order of [`ReplicaTable::copied_in`].
    pub fn stretches_of(&self, originals: BlockRange) -> impl Iterator<Item = Stretch<'_>> {
        self.runs_in(originals).flat_map(move |run| {
            self.hashes_in(run.replicas()).map(move |(first, hashes)| Stretch {
                original: BlockNo(run.original + (first.0 - run.replica)),
                replica: first,
                hashes,
                trust: run.trust,
            })
        })
    }

    /// The hashes of the entries whose replica is in `replicas`, from a first replica on; ascending.
    pub fn hashes_in(&self, replicas: BlockRange) -> impl Iterator<Item = (BlockNo, &[u64])> {
        self.places_of(replicas).flat_map(move |place| {
            let leaf = self.leaf(place);
            let slots = leaf.lower_bound(replicas.start())..leaf.lower_bound(replicas.end());
            leaf.pieces(slots).map(move |p| (BlockNo(p.replica), leaf.hashes(p.slot..p.slot + p.len)))
        })
    }

    fn runs_in(&self, originals: BlockRange) -> impl Iterator<Item = Run> {
        self.filter
            .may_have(originals)
            .then(|| self.originals.overlapping(originals))
            .into_iter()
            .flatten()
            .map(move |run| run.clip(originals))
    }

    /// The entries whose replica is in `replicas`, ascending.
    pub fn replicas_in(&self, replicas: BlockRange) -> Vec<Replica> {
        self.replicas_iter(replicas).collect()
    }

    /// The blocks of `replicas` that hold one, as ascending runs; neighbouring runs may touch.
    pub fn replica_runs_in(&self, replicas: BlockRange) -> impl Iterator<Item = BlockRange> {
        self.places_of(replicas).flat_map(move |place| {
            let leaf = self.leaf(place);
            let slots = leaf.lower_bound(replicas.start())..leaf.lower_bound(replicas.end());
            leaf.pieces(slots).map(|p| BlockRange::new(p.replica, p.replica + p.len as u32))
        })
    }

    /// Number of entries whose replica is in `replicas`; looks only at the pages at its ends.
    pub fn count_replicas_in(&self, replicas: BlockRange) -> usize {
        self.places_of(replicas)
            .map(|place| {
                let leaf = self.leaf(place);
                leaf.lower_bound(replicas.end()) - leaf.lower_bound(replicas.start())
            })
            .sum()
    }

    /// Every entry, ascending by replica.
    pub fn iter(&self) -> impl Iterator<Item = Replica> {
        (0..self.order.len())
            .flat_map(move |place| (0..self.leaf(place).len()).map(move |slot| self.replica_at(place, slot)))
    }

    /// Every run of entries with neighbouring originals and replicas, by original.
    /// (original's range, first replica)
    pub fn runs(&self) -> impl Iterator<Item = (BlockRange, BlockNo)> {
        self.originals.iter().map(|run| (run.originals(), BlockNo(run.replica)))
    }

    /// The unverified entry with the lowest original above `after` (from the start where `None`).
    /// With a degree above 1 the same original may have more: ask [`ReplicaTable::replicas_of`].
    pub fn next_unverified(&self, after: Option<BlockNo>) -> Option<Replica> {
        if self.unverified == 0 {
            return None;
        }
        let from = match after {
            Some(block) => block.0.checked_add(1)?,
            None => 0,
        };
        let (_, replica) = self.originals.next_unverified(from)?;
        Some(self.expect_replica(replica))
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Where it would break T1 or T2, or there is no room.
    ///
    /// # Panics
    /// For block number 2³²−1, which no volume has.
    pub fn insert(&mut self, new: Replica) -> Result<(), InsertRefused> {
        self.insert_worth(new, 0)
    }

    /// The same, with the [value](crate::value) it has from the beginning.
    ///
    /// # Errors
    /// As [`ReplicaTable::insert`].
    pub fn insert_worth(&mut self, new: Replica, worth: u8) -> Result<(), InsertRefused> {
        let Replica { original: BlockNo(original), replica: BlockNo(replica), hash, trust } = new;
        assert!(original < u32::MAX && replica < u32::MAX, "{new:?} is in no volume");
        if original == replica || self.has_replica(new.replica) {
            return Err(InsertRefused::Contradiction(new.replica));
        }
        if self.find(replica).is_some() {
            return Err(InsertRefused::ReplicaTaken(new.replica));
        }
        if self.find(original).is_some() {
            return Err(InsertRefused::Contradiction(new.original));
        }
        if self.originals.copies(original).count() >= usize::from(self.degree) {
            return Err(InsertRefused::DegreeReached(new.original));
        }
        if self.len >= self.capacity {
            return Err(InsertRefused::Full);
        }
        let (place, slot) = self.make_room(replica).ok_or(InsertRefused::Full)?;
        let item = (Entry { original, replica, hash }, Warmth::new(self.now, 0, worth, trust));
        let page = self.order[place];
        self.pages[page as usize].leaf.get_or_insert_default().insert(slot, item);
        self.mins[place] = self.leaf(place).bounds().0;
        self.changed(page);
        self.originals.insert(original, replica, trust);
        self.filter.add(original, 1);
        self.len += 1;
        self.unverified += usize::from(trust == Trust::Unverified);
        Ok(())
    }

    /// Sets whether an entry is verified; false where `replica` has none. Does not make its page
    /// dirty: see [`ReplicaTable::pages_needing_flag_change`].
    pub fn set_trust(&mut self, replica: BlockNo, trust: Trust) -> bool {
        let Some((place, slot)) = self.find(replica.0) else { return false };
        let Replica { original, trust: old, .. } = self.replica_at(place, slot);
        if old != trust {
            self.leaf_mut(place).set_trust(slot, trust);
            self.originals.remove(original.0, replica.0, 1);
            self.originals.insert(original.0, replica.0, trust);
            match trust {
                Trust::Verified => self.unverified -= 1,
                Trust::Unverified => self.unverified += 1,
            }
        }
        true
    }

    /// Makes every entry unverified.
    pub fn all_unverified(&mut self) {
        self.pages.iter_mut().flat_map(|p| &mut p.leaf).for_each(|l| l.all_unverified());
        self.originals.all_unverified();
        self.unverified = self.len;
    }

    fn replicas_iter(&self, replicas: BlockRange) -> impl Iterator<Item = Replica> {
        self.places_of(replicas).flat_map(move |place| {
            let leaf = self.leaf(place);
            let slots = leaf.lower_bound(replicas.start())..leaf.lower_bound(replicas.end());
            slots.map(move |slot| self.replica_at(place, slot))
        })
    }

    /// The places (indices of `order`) whose pages may have a replica of the range.
    fn places_of(&self, replicas: BlockRange) -> std::ops::Range<usize> {
        if replicas.is_empty() {
            return 0..0;
        }
        let from = self.place_for(replicas.start());
        let to = self.mins.partition_point(|&min| min < replicas.end());
        from..to.max(from)
    }

    /// The place an entry for this replica would be in: the last that begins at or before it.
    fn place_for(&self, replica: u32) -> usize {
        self.mins.partition_point(|&min| min <= replica).saturating_sub(1)
    }

    fn find(&self, replica: u32) -> Option<(usize, usize)> {
        if self.order.is_empty() {
            return None;
        }
        let place = self.place_for(replica);
        let slot = self.leaf(place).find(replica).ok()?;
        Some((place, slot))
    }

    fn leaf(&self, place: usize) -> &Leaf {
        self.pages[self.order[place] as usize].leaf.as_deref().expect("T3: a page in order has entries")
    }

    fn leaf_mut(&mut self, place: usize) -> &mut Leaf {
        self.pages[self.order[place] as usize].leaf.as_deref_mut().expect("T3: a page in order has entries")
    }

    fn replica_at(&self, place: usize, slot: usize) -> Replica {
        let leaf = self.leaf(place);
        let Entry { original, replica, hash } = leaf.entry(slot);
        let (original, replica) = (BlockNo(original), BlockNo(replica));
        Replica { original, replica, hash, trust: leaf.warmth(slot).trust() }
    }

    fn expect_replica(&self, replica: u32) -> Replica {
        let found = self.by_replica(BlockNo(replica));
        found.unwrap_or_else(|| panic!("T4: the index names replica {replica}, which has no entry"))
    }

    /// The index and filter forget a run.
    fn forget(&mut self, run: Run) {
        self.originals.remove(run.original, run.replica, run.len);
        self.filter.sub(run.original, run.len);
    }
}
