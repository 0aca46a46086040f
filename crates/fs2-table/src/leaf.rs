//! A page in memory: 10 bytes an entry, and as few bits as [`Pairs`] can do with for each run in which original and
//! replica count up together.
//!
//! L1: entries are strictly ascending by replica, at most [`PAGE_ENTRIES`].
//! L2: pieces are as long as they can be; the first begins at slot 0.
//! L3: `unverified` is the number of entries without the verified bit.
//! L4: `slots` is empty where each piece is one entry, and has a slot for each piece elsewhere.

use crate::Trust;
use crate::page::{Entry, PAGE_ENTRIES};
use crate::pairs::Pairs;
use crate::value::{OCTAVE, VALUE_MAX, sum};
use std::ops::Range;

const VERIFIED: u8 = 0x80;
/// Values fall by so much at every ageing step: to a half with every fourth. Guess.
const FALL: u8 = OCTAVE / 4;
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

    /// What its uses came to, less what it fell since.
    pub(crate) fn value(self, now: u64) -> u8 {
        (self.bits & VALUE_MAX).saturating_sub(self.age(now).saturating_mul(FALL))
    }

    fn touch(&mut self, now: u64, gain: u8) {
        *self = Warmth::new(now, 0, sum(self.value(now), gain), self.trust());
    }

    fn sweep(&mut self, now: u64) {
        if u64::from(self.age(now)) > AGE_MAX {
            *self = Warmth::new(now, AGE_MAX as u8, 0, self.trust());
        }
    }
}

/// The entries of one page. A slot is an entry's index in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    /// For each piece its first replica and original.
    starts: Pairs,
    /// For each piece its first slot (L4).
    slots: Vec<u8>,
    hashes: Vec<u64>,
    warmth: Vec<Warmth>,
    unverified: u16,
}

/// An entry with its warmth, on the way from one leaf to another.
pub(crate) type Item = (Entry, Warmth);

/// Entries whose originals and replicas both count up by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) original: u32,
    pub(crate) replica: u32,
    /// Slot of the first.
    pub(crate) slot: usize,
    pub(crate) len: usize,
}

impl Piece {
    /// Where an entry begins that goes on from this piece.
    fn end(&self) -> (u32, u32) {
        (self.replica + self.len as u32, self.original + self.len as u32)
    }
}

/// Room for so many more is made at a time: most leaves are neither nearly empty nor full. Guess.
const ROOM: usize = 2;
/// Room for more than this is given back. Guess.
const ROOM_MAX: usize = 32;
/// A page that loses entries in more places than this is made anew. Guess.
const CUTS_MAX: usize = 4;

impl Leaf {
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() == PAGE_ENTRIES
    }

    pub(crate) fn unverified(&self) -> usize {
        usize::from(self.unverified)
    }

    pub(crate) fn entry(&self, slot: usize) -> Entry {
        let piece = self.piece(self.piece_of(slot));
        let k = (slot - piece.slot) as u32;
        Entry { original: piece.original + k, replica: piece.replica + k, hash: self.hashes[slot] }
    }

    pub(crate) fn hashes(&self, slots: Range<usize>) -> &[u64] {
        &self.hashes[slots]
    }

    pub(crate) fn warmth(&self, slot: usize) -> Warmth {
        self.warmth[slot]
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.pieces(0..self.len()).flat_map(move |p| {
            (p.slot..p.slot + p.len).zip(0..).map(move |(slot, k)| Entry {
                original: p.original + k,
                replica: p.replica + k,
                hash: self.hashes[slot],
            })
        })
    }

    /// The pieces of some slots.
    pub(crate) fn pieces(&self, slots: Range<usize>) -> impl Iterator<Item = Piece> {
        let first = if slots.is_empty() { self.starts.len() } else { self.piece_of(slots.start) };
        (first..self.starts.len()).map(|i| self.piece(i)).take_while(move |p| p.slot < slots.end).map(
            move |p| {
                let skip = slots.start.saturating_sub(p.slot);
                Piece {
                    original: p.original + skip as u32,
                    replica: p.replica + skip as u32,
                    slot: p.slot + skip,
                    len: (p.slot + p.len).min(slots.end) - p.slot - skip,
                }
            },
        )
    }

    /// The first and last replica; a leaf in the table is never empty.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        (self.piece(0).replica, self.entry(self.len() - 1).replica)
    }

    /// The slot of a replica, or the slot it would have.
    pub(crate) fn find(&self, replica: u32) -> Result<usize, usize> {
        let Some(i) = self.starts.up_to(replica).checked_sub(1) else { return Err(0) };
        let piece = self.piece(i);
        let k = (replica - piece.replica) as usize;
        if k < piece.len { Ok(piece.slot + k) } else { Err(piece.slot + piece.len) }
    }

    /// The first slot whose replica is at least this.
    pub(crate) fn lower_bound(&self, replica: u32) -> usize {
        self.find(replica).unwrap_or_else(|slot| slot)
    }

    /// Inserts an entry at the slot [`Leaf::find`] gave for it.
    pub(crate) fn insert(&mut self, slot: usize, (entry, warmth): Item) {
        assert!(!self.is_full(), "insert into a full leaf");
        if self.hashes.len() == self.hashes.capacity() {
            self.hashes.reserve_exact(ROOM);
            self.warmth.reserve_exact(ROOM);
        }
        // A replica that is in no piece lies between two of them, so a piece begins at `slot` or
        // it is the end.
        let next = self.first_piece_from(slot);
        let at = (entry.replica, entry.original);
        let joins_before = next.checked_sub(1).is_some_and(|i| {
            let before = self.piece(i);
            debug_assert_eq!(before.slot + before.len, slot, "L1");
            before.end() == at
        });
        let joins_next = self.starts.get(next) == Some((entry.replica + 1, entry.original + 1));
        if joins_before || joins_next {
            self.name_slots();
        }
        self.slots.iter_mut().skip(next).for_each(|s| *s += 1);
        match (joins_before, joins_next) {
            (true, true) => {
                self.starts.remove(next..next + 1);
                self.slots.remove(next);
            }
            (true, false) => {}
            (false, true) => {
                self.starts.set(next, at);
                self.slots[next] -= 1;
            }
            (false, false) => {
                if !self.slots.is_empty() {
                    if self.slots.len() == self.slots.capacity() {
                        self.slots.reserve_exact(ROOM);
                    }
                    self.slots.insert(next, slot as u8);
                }
                self.starts.insert(next, at);
            }
        }
        self.unverified += u16::from(warmth.trust() == Trust::Unverified);
        self.hashes.insert(slot, entry.hash);
        self.warmth.insert(slot, warmth);
    }

    /// Removes the entries of slots `from..to`, at least one.
    pub(crate) fn remove(&mut self, from: usize, to: usize) {
        let gone = self.warmth[from..to].iter().filter(|w| w.trust() == Trust::Unverified).count();
        self.unverified -= gone as u16;
        let (first, last) = (self.piece_of(from), self.piece_of(to - 1));
        let (head, tail) = (self.piece(first), self.piece(last));
        let head = (head.slot < from).then_some(((head.replica, head.original), head.slot as u8));
        let cut = (to - tail.slot) as u32;
        let tail =
            (tail.slot + tail.len > to).then_some(((tail.replica + cut, tail.original + cut), from as u8));
        let left = head.into_iter().chain(tail);
        self.starts.remove(first..last + 1);
        for (i, (start, _)) in (first..).zip(left.clone()) {
            self.starts.insert(i, start);
        }
        if !self.slots.is_empty() {
            self.slots[last + 1..].iter_mut().for_each(|s| *s -= (to - from) as u8);
            self.slots.splice(first..=last, left.map(|(_, slot)| slot));
        }
        self.hashes.drain(from..to);
        self.warmth.drain(from..to);
        if self.starts.len() == self.len() {
            self.slots = Vec::new();
        }
        if self.hashes.capacity() - self.len() > ROOM_MAX {
            self.hashes.shrink_to(self.len() + ROOM);
            self.warmth.shrink_to(self.len() + ROOM);
        }
        if self.starts.room() > ROOM_MAX {
            self.starts.shrink(ROOM);
            self.slots.shrink_to(self.slots.len() + ROOM);
        }
    }

    /// Removes the entries of several ranges of slots, ascending.
    pub(crate) fn remove_all(&mut self, slots: &[Range<usize>]) {
        if slots.len() <= CUTS_MAX {
            return slots.iter().rev().for_each(|slots| self.remove(slots.start, slots.end));
        }
        let is_kept = |slot| {
            let gone = slots.get(slots.partition_point(|gone| gone.end <= slot));
            gone.is_none_or(|gone| slot < gone.start)
        };
        *self = self.items().enumerate().filter(|&(slot, _)| is_kept(slot)).map(|(_, item)| item).collect();
    }

    /// Keeps the entries of which `keep` says so.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        *self = self.items().filter(|i| keep(i.0)).collect();
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = Item> {
        self.entries().zip(self.warmth.iter().copied())
    }

    pub(crate) fn set_trust(&mut self, slot: usize, trust: Trust) {
        let w = &mut self.warmth[slot];
        match (w.trust(), trust) {
            (Trust::Verified, Trust::Unverified) => self.unverified += 1,
            (Trust::Unverified, Trust::Verified) => self.unverified -= 1,
            _ => return,
        }
        *w = w.with_trust(trust);
    }

    pub(crate) fn all_unverified(&mut self) {
        self.warmth.iter_mut().for_each(|w| *w = w.with_trust(Trust::Unverified));
        self.unverified = self.len() as u16;
    }

    pub(crate) fn touch(&mut self, slot: usize, now: u64, gain: u8) {
        self.warmth[slot].touch(now, gain);
    }

    pub(crate) fn sweep(&mut self, now: u64) {
        self.warmth.iter_mut().for_each(|w| w.sweep(now));
    }

    /// Age of the youngest and value of the most used of some slots.
    pub(crate) fn warmest(&self, slots: Range<usize>, now: u64) -> (u8, u8) {
        let of = &self.warmth[slots];
        let age = of.iter().map(|w| w.age(now)).min().unwrap_or(0);
        (age, of.iter().map(|w| w.value(now)).max().unwrap_or(0))
    }

    /// As [`Leaf::warmest`], with the value before the fall that its age implies: what goes to
    /// disk.
    pub(crate) fn warmest_as_used(&self, slots: Range<usize>, now: u64) -> (u8, u8) {
        let (age, value) = self.warmest(slots, now);
        (age, value.saturating_add(age.saturating_mul(FALL)).min(VALUE_MAX))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Leaf>()
            + self.starts.memory_bytes()
            + self.slots.capacity()
            + self.hashes.capacity() * size_of::<u64>()
            + self.warmth.capacity() * size_of::<Warmth>()
    }

    /// Asserts every invariant but the order of entries.
    pub(crate) fn check(&self) {
        self.starts.check();
        assert_eq!(self.len(), self.warmth.len());
        let singles = self.starts.len() == self.len();
        assert_eq!(self.slots.len(), if singles { 0 } else { self.starts.len() }, "L4");
        assert_eq!(self.slots.first().copied().unwrap_or(0), 0, "L2");
        let pieces: Vec<Piece> = self.pieces(0..self.len()).collect();
        for pair in pieces.windows(2) {
            assert!(pair[0].end() != (pair[1].replica, pair[1].original), "L2: {pair:?}");
            assert!(pair[0].len > 0 && pair[0].slot + pair[0].len == pair[1].slot, "L2: {pair:?}");
        }
        let unverified = self.warmth.iter().filter(|w| w.trust() == Trust::Unverified).count();
        assert_eq!(unverified, self.unverified(), "L3");
    }

    fn piece(&self, i: usize) -> Piece {
        let (replica, original) = self.starts.get(i).expect("a piece of the page");
        if self.slots.is_empty() {
            return Piece { original, replica, slot: i, len: 1 };
        }
        let slot = usize::from(self.slots[i]);
        let end = self.slots.get(i + 1).map_or(self.len(), |&s| usize::from(s));
        Piece { original, replica, slot, len: end - slot }
    }

    fn piece_of(&self, slot: usize) -> usize {
        self.first_piece_from(slot + 1) - 1
    }

    /// The first piece that begins at `slot` or behind it, or how many pieces there are.
    fn first_piece_from(&self, slot: usize) -> usize {
        if self.slots.is_empty() {
            slot.min(self.starts.len())
        } else {
            self.slots.partition_point(|&s| usize::from(s) < slot)
        }
    }

    /// Before pieces get longer than one entry: keeps L4.
    fn name_slots(&mut self) {
        if self.slots.is_empty() {
            self.slots.extend((0..self.starts.len()).map(|i| i as u8));
        }
    }
}

/// From entries in order, at most [`PAGE_ENTRIES`].
impl FromIterator<Item> for Leaf {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Leaf {
        let items: Vec<Item> = items.into_iter().collect();
        assert!(items.len() <= PAGE_ENTRIES, "{} entries in a leaf", items.len());
        debug_assert!(items.is_sorted_by(|a, b| a.0.replica < b.0.replica), "L1");
        let at = |slot: usize| (items[slot].0.replica, items[slot].0.original);
        let goes_on = |slot: usize| slot > 0 && at(slot) == (at(slot - 1).0 + 1, at(slot - 1).1 + 1);
        let slots: Vec<u8> = (0..items.len()).filter(|&slot| !goes_on(slot)).map(|slot| slot as u8).collect();
        Leaf {
            starts: slots.iter().map(|&slot| at(slot.into())).collect(),
            slots: if slots.len() == items.len() { Vec::new() } else { slots.as_slice().into() },
            hashes: items.iter().map(|(entry, _)| entry.hash).collect(),
            warmth: items.iter().map(|&(_, warmth)| warmth).collect(),
            unverified: items.iter().filter(|(_, w)| w.trust() == Trust::Unverified).count() as u16,
        }
    }
}
