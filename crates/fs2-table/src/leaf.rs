//! A page in memory.
//!
//! L1: entries are strictly ascending by replica, at most [`PAGE_ENTRIES`].
//! L2: `unverified` is the number of entries without the verified bit.

use crate::Trust;
use crate::page::{Entry, PAGE_ENTRIES};

const VERIFIED: u8 = 0x80;
/// Values saturate here.
pub(crate) const VALUE_MAX: u8 = 0x7f;
/// Values are halved at every so manyth ageing step. Guess.
const HALVING: u64 = 4;
/// Ages are kept below this, so that stamps, which wrap at 256, stay readable between two sweeps.
const AGE_MAX: u64 = 128;
/// The ageing step a table begins at: high enough that every age has a step it began at.
pub(crate) const FIRST_STEP: u64 = 256;

/// When an entry was last used, how often, and whether it is verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warmth {
    /// Low byte of the ageing step of the last use.
    stamp: u8,
    /// [`VERIFIED`] and the value as of `stamp`.
    bits: u8,
}

impl Warmth {
    pub(crate) fn new(now: u64, age: u8, value: u8, trust: Trust) -> Warmth {
        let age = u64::from(age).min(AGE_MAX);
        let bits = value.min(VALUE_MAX) | if trust == Trust::Verified { VERIFIED } else { 0 };
        Warmth { stamp: now.wrapping_sub(age) as u8, bits }
    }

    pub(crate) fn trust(self) -> Trust {
        if self.bits & VERIFIED != 0 { Trust::Verified } else { Trust::Unverified }
    }

    pub(crate) fn with_trust(mut self, trust: Trust) -> Warmth {
        self.bits = self.bits & VALUE_MAX | if trust == Trust::Verified { VERIFIED } else { 0 };
        self
    }

    /// Steps since the last use.
    pub(crate) fn age(self, now: u64) -> u8 {
        (now as u8).wrapping_sub(self.stamp)
    }

    /// Uses, halved at every [`HALVING`]th step since.
    pub(crate) fn value(self, now: u64) -> u8 {
        (self.bits & VALUE_MAX).checked_shr(halvings(self.age(now), now)).unwrap_or(0)
    }

    fn touch(&mut self, now: u64) {
        *self = Warmth::new(now, 0, self.value(now).saturating_add(1), self.trust());
    }

    fn sweep(&mut self, now: u64) {
        if u64::from(self.age(now)) > AGE_MAX {
            *self = Warmth::new(now, AGE_MAX as u8, 0, self.trust());
        }
    }
}

/// Halvings in the last `age` steps.
fn halvings(age: u8, now: u64) -> u32 {
    (now / HALVING - (now - u64::from(age)) / HALVING) as u32
}

/// The entries of one page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    entries: Vec<Entry>,
    warmth: Vec<Warmth>,
    unverified: u16,
}

/// An entry with its warmth, on the way from one leaf to another.
pub(crate) type Item = (Entry, Warmth);

impl Leaf {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() == PAGE_ENTRIES
    }

    pub(crate) fn unverified(&self) -> usize {
        usize::from(self.unverified)
    }

    pub(crate) fn entry(&self, slot: usize) -> Entry {
        self.entries[slot]
    }

    pub(crate) fn warmth(&self, slot: usize) -> Warmth {
        self.warmth[slot]
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first and last replica; a leaf in the table is never empty.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        (self.entries[0].replica, self.entries[self.len() - 1].replica)
    }

    /// The slot of a replica, or the slot it would have.
    pub(crate) fn find(&self, replica: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&replica, |e| e.replica)
    }

    /// The first slot whose replica is at least this.
    pub(crate) fn lower_bound(&self, replica: u32) -> usize {
        self.entries.partition_point(|e| e.replica < replica)
    }

    pub(crate) fn insert(&mut self, slot: usize, (entry, warmth): Item) {
        assert!(!self.is_full(), "insert into a full leaf");
        if self.entries.len() == self.entries.capacity() {
            // In small steps: most leaves are neither nearly empty nor full.
            let more = 16.min(PAGE_ENTRIES - self.len());
            self.entries.reserve_exact(more);
            self.warmth.reserve_exact(more);
        }
        self.unverified += u16::from(warmth.trust() == Trust::Unverified);
        self.entries.insert(slot, entry);
        self.warmth.insert(slot, warmth);
    }

    pub(crate) fn push(&mut self, item: Item) {
        self.insert(self.len(), item);
    }

    /// Removes the entries of slots `from..to`.
    pub(crate) fn remove(&mut self, from: usize, to: usize) {
        let gone = self.warmth[from..to].iter().filter(|w| w.trust() == Trust::Unverified).count();
        self.unverified -= gone as u16;
        self.entries.drain(from..to);
        self.warmth.drain(from..to);
        if self.entries.capacity() - self.len() > 48 {
            self.entries.shrink_to(self.len() + 8);
            self.warmth.shrink_to(self.len() + 8);
        }
    }

    /// Keeps the entries of which `keep` says so.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        let items: Vec<Item> = self.items().filter(|i| keep(i.0)).collect();
        *self = items.into_iter().collect();
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = Item> {
        self.entries.iter().copied().zip(self.warmth.iter().copied())
    }

    pub(crate) fn set_trust(&mut self, slot: usize, trust: Trust) {
        let w = &mut self.warmth[slot];
        match (w.trust(), trust) {
            (Trust::Verified, Trust::Unverified) => self.unverified += 1,
            (Trust::Unverified, Trust::Verified) => self.unverified -= 1,
            _ => return,
        }
        w.bits ^= VERIFIED;
    }

    pub(crate) fn all_unverified(&mut self) {
        self.warmth.iter_mut().for_each(|w| w.bits &= !VERIFIED);
        self.unverified = self.len() as u16;
    }

    pub(crate) fn touch(&mut self, slot: usize, now: u64) {
        self.warmth[slot].touch(now);
    }

    pub(crate) fn sweep(&mut self, now: u64) {
        self.warmth.iter_mut().for_each(|w| w.sweep(now));
    }

    /// Age of the youngest and value of the most used of some slots.
    pub(crate) fn warmest(&self, slots: std::ops::Range<usize>, now: u64) -> (u8, u8) {
        let of = &self.warmth[slots];
        let age = of.iter().map(|w| w.age(now)).min().unwrap_or(0);
        (age, of.iter().map(|w| w.value(now)).max().unwrap_or(0))
    }

    /// As [`Leaf::warmest`], with the value as of the use that long ago: what goes to disk.
    pub(crate) fn warmest_as_used(&self, slots: std::ops::Range<usize>, now: u64) -> (u8, u8) {
        let (age, value) = self.warmest(slots, now);
        let used = u64::from(value).checked_shl(halvings(age, now).min(56)).unwrap_or(0);
        (age, used.min(u64::from(VALUE_MAX)) as u8)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Leaf>()
            + self.entries.capacity() * size_of::<Entry>()
            + self.warmth.capacity() * size_of::<Warmth>()
    }
}

impl FromIterator<Item> for Leaf {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Leaf {
        let items = items.into_iter();
        let mut leaf = Leaf::default();
        leaf.entries.reserve_exact(items.size_hint().0);
        leaf.warmth.reserve_exact(items.size_hint().0);
        items.for_each(|item| leaf.push(item));
        leaf
    }
}

/// The runs in which both originals and replicas count up by one: (original, replica, length).
pub(crate) fn pieces(entries: &[Entry]) -> impl Iterator<Item = (u32, u32, u32)> {
    entries
        .chunk_by(|a, b| {
            a.replica.checked_add(1) == Some(b.replica) && a.original.checked_add(1) == Some(b.original)
        })
        .map(|run| (run[0].original, run[0].replica, run.len() as u32))
}
