//! Schemes that move blocks to a reserved area, and send writes there too: a planner says which block is to be
//! in which slot, and this moves them at night, between the engine and the drive.
//!
//! ```text
//! night: plan -> bring in what is new -> take out what is to leave and is newer than its home -> fill its slots
//! ```
//! What is to be in another slot is read from its home again, or where it is if that is newer.
//! A night's moves are done in lots: sources read by ascending address, targets written by ascending address. A
//! lot has moved once it is read, as if memory served what is not yet written; a block that is written before
//! stays where it is. The area lies in free blocks; what the file system takes of it is given up, and the block
//! there goes home.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fs2_block::{BlockRange, BlockSize, Extent, Nanos, Op};

use roaring::RoaringBitmap;

use super::area::{Days, NIGHT};
use crate::replay::redirect::{OwnIo, Redirect};

/// Blocks of a lot: 32 MiB, as much as copying schemes have in memory.
const LOT_BLOCKS: usize = 8192;

/// Gaps up to this long are read rather than skipped, 32 KiB; reads of 1 MiB and writes of 256 KiB at most, as
/// for copying schemes.
const BRIDGE_BLOCKS: u32 = 8;
const READ_BLOCKS: u32 = 256;
const WRITE_BLOCKS: u32 = 64;

/// Decides which block is where.
pub(super) trait Planner: Clone + Send + Sync + 'static {
    /// A request for these blocks.
    fn request(&mut self, op: Op, blocks: BlockRange);

    /// Who is to be in each of `slots` slots from now on, by ascending address; no block twice.
    fn arrange(&mut self, slots: usize) -> Vec<Option<u32>>;

    /// Whether a block in the area is nowhere else, so that leaving it always costs a write.
    fn moves(&self) -> bool {
        false
    }

    /// So many of the first slots take writes of blocks that are not in the area, one after the other.
    fn absorbs(&self, _slots: usize) -> usize {
        0
    }
}

/// Who is in a slot.
#[derive(Clone, Copy, Debug)]
struct Held {
    block: u32,
    /// Newer than its home.
    dirty: bool,
}

/// A block on its way.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: u32,
    block: u32,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Mover<P> {
    planner: P,
    block_size: BlockSize,
    days: Days,
    /// The area, ascending, and what of it the file system has taken.
    slots: Vec<u32>,
    given_up: RoaringBitmap,
    held: BTreeMap<u32, Held>,
    /// Slot of each block that is in the area.
    place: BTreeMap<u32, u32>,
    /// Steps of the night not yet in a lot, by target: home, and into the area.
    out: BTreeMap<u32, Step>,
    into: BTreeMap<u32, Step>,
    /// Steps into slots that have to be left first.
    later: BTreeMap<u32, Step>,
    /// A lot being read, by target.
    lot: BTreeMap<u32, Step>,
    inwards: bool,
    reads: VecDeque<BlockRange>,
    writes: VecDeque<BlockRange>,
    /// Accesses owed at once, for blocks that had to leave.
    owed: VecDeque<OwnIo>,
    /// Next slot to take a write, as an index.
    absorb: usize,
}

impl<P: Planner> Mover<P> {
    /// With these slots, ascending.
    pub(super) fn new(planner: P, block_size: BlockSize, slots: Vec<u32>) -> Mover<P> {
        Mover {
            planner,
            block_size,
            days: Days::default(),
            slots,
            given_up: RoaringBitmap::new(),
            held: BTreeMap::new(),
            place: BTreeMap::new(),
            out: BTreeMap::new(),
            into: BTreeMap::new(),
            later: BTreeMap::new(),
            lot: BTreeMap::new(),
            inwards: false,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            owed: VecDeque::new(),
            absorb: 0,
        }
    }

    /// The lot is read: its blocks have moved, and are to be written.
    fn switch(&mut self) {
        // Who cannot leave keeps its slot, and so does who was to come there, and so on.
        loop {
            let moving: BTreeSet<u32> = self.lot.values().map(|s| s.block).collect();
            let before = self.lot.len();
            let (held, given_up, inwards) = (&self.held, &self.given_up, self.inwards);
            self.lot.retain(|to, _| {
                let occupied = held.get(to).is_some_and(|h| !moving.contains(&h.block));
                !inwards || !(occupied || given_up.contains(*to))
            });
            if self.lot.len() == before {
                break;
            }
        }
        let lot = std::mem::take(&mut self.lot);
        let gone: Vec<Option<Held>> = lot.values().map(|step| self.held.remove(&step.from)).collect();
        for ((&to, step), held) in lot.iter().zip(gone) {
            if self.inwards {
                let dirty = held.is_some_and(|h| h.dirty);
                self.held.insert(to, Held { block: step.block, dirty });
                self.place.insert(step.block, to);
            } else {
                self.place.remove(&step.block);
            }
            match self.writes.back_mut() {
                Some(r) if r.end() == to && r.len() < WRITE_BLOCKS => {
                    *r = BlockRange::new(r.start(), to + 1);
                }
                _ => self.writes.push_back(BlockRange::new(to, to + 1)),
            }
        }
    }

    fn plan(&mut self) {
        self.days.begin();
        self.absorb = 0;
        let arranged = self.planner.arrange(self.slots.len());
        let wanted = self.slots.iter().zip(arranged).filter_map(|(&slot, block)| Some((slot, block?)));
        let wanted: BTreeMap<u32, u32> = wanted.filter(|(slot, _)| !self.given_up.contains(*slot)).collect();
        let stays: BTreeSet<u32> = wanted.values().copied().collect();
        let leaves: Vec<(u32, Held)> =
            self.held.iter().filter(|(_, h)| !stays.contains(&h.block)).map(|(&s, &h)| (s, h)).collect();
        for (slot, Held { block, dirty }) in leaves {
            if dirty || self.planner.moves() {
                self.out.insert(block, Step { from: slot, block });
            } else {
                self.held.remove(&slot);
                self.place.remove(&block);
            }
        }
        for (slot, block) in wanted {
            let mut from = self.place.get(&block).copied().unwrap_or(block);
            if from == slot {
                continue;
            }
            // Scattered slots take longer to read than homes.
            let at_home = !self.planner.moves() && self.held.get(&from).is_some_and(|h| !h.dirty);
            if at_home {
                self.held.remove(&from);
                self.place.remove(&block);
                from = block;
            }
            self.into.insert(slot, Step { from, block });
        }
    }

    /// The next lot.
    fn begin_lot(&mut self) {
        self.inwards = !self.into.is_empty();
        if self.inwards {
            self.lot_inwards();
        } else {
            while self.lot.len() < LOT_BLOCKS
                && let Some((to, step)) = self.out.pop_first()
            {
                self.lot.insert(to, step);
            }
            if self.out.is_empty() {
                self.into = std::mem::take(&mut self.later);
            }
        }
        // What moved or was written since the plan is somewhere else now.
        let place = &self.place;
        self.lot.retain(|_, s| place.get(&s.block).copied().unwrap_or(s.block) == s.from);
        let mut sources: Vec<u32> = self.lot.values().map(|s| s.from).collect();
        sources.sort_unstable();
        for from in sources {
            match self.reads.back_mut() {
                Some(r) if from - r.end() <= BRIDGE_BLOCKS && from + 1 - r.start() <= READ_BLOCKS => {
                    *r = BlockRange::new(r.start(), from + 1);
                }
                _ => self.reads.push_back(BlockRange::new(from, from + 1)),
            }
        }
    }

    /// Who is in a slot that somebody is to have must be in the same lot, or leave first.
    fn lot_inwards(&mut self) {
        let by_source: BTreeMap<u32, u32> = self.into.iter().map(|(&to, s)| (s.from, to)).collect();
        let last = self.out.is_empty();
        let mut moving = BTreeSet::new();
        while self.lot.len() < LOT_BLOCKS
            && let Some(first) = self.into.pop_first()
        {
            let (mut chain, mut blocked) = (vec![first], false);
            let mut slot = first.0;
            moving.insert(first.1.block);
            while let Some(held) = self.held.get(&slot)
                && !moving.contains(&held.block)
            {
                let next = by_source.get(&slot).and_then(|to| self.into.remove_entry(to));
                let Some(next) = next else {
                    blocked = true;
                    break;
                };
                moving.insert(next.1.block);
                slot = next.0;
                chain.push(next);
            }
            if !blocked {
                self.lot.extend(chain);
            } else {
                chain.iter().for_each(|(_, step)| _ = moving.remove(&step.block));
                // Once everybody has left who will, they stay where they are.
                if !last {
                    self.later.extend(chain);
                }
            }
        }
    }

    fn access(&self, op: Op, blocks: BlockRange) -> OwnIo {
        OwnIo { op, extent: blocks.extent(self.block_size) }
    }

    /// The file system writes to a block of the area: it is a slot no more.
    fn give_up(&mut self, slot: u32) {
        if self.slots.binary_search(&slot).is_err() || !self.given_up.insert(slot) {
            return;
        }
        self.into.remove(&slot);
        self.later.remove(&slot);
        self.lot.retain(|to, step| *to != slot && step.from != slot);
        if let Some(Held { block, dirty }) = self.held.remove(&slot) {
            self.place.remove(&block);
            if dirty || self.planner.moves() {
                let (read, write) = (BlockRange::new(slot, slot + 1), BlockRange::new(block, block + 1));
                self.owed.push_back(self.access(Op::Read, read));
                self.owed.push_back(self.access(Op::Write, write));
            }
        }
    }

    /// A write to a block: where it goes from now on.
    fn written(&mut self, block: u32, whole: bool) {
        self.give_up(block);
        // What was read for moving it is old.
        if !self.lot.is_empty() {
            self.lot.retain(|_, step| step.block != block);
        }
        if let Some(slot) = self.place.get(&block) {
            if let Some(held) = self.held.get_mut(slot) {
                held.dirty = true;
            }
            return;
        }
        let end = self.planner.absorbs(self.slots.len()).min(self.slots.len());
        while whole && self.absorb < end {
            let slot = self.slots[self.absorb];
            self.absorb += 1;
            if !self.held.contains_key(&slot) && !self.given_up.contains(slot) {
                self.held.insert(slot, Held { block, dirty: true });
                self.place.insert(block, slot);
                return;
            }
        }
    }

    /// Who is where: slot and block, by slot.
    #[cfg(test)]
    pub(super) fn layout(&self) -> Vec<(u32, u32)> {
        self.held.iter().map(|(&slot, h)| (slot, h.block)).collect()
    }
}

/// Adds the pieces of `extent`, block by block where `at` says, neighbours joined.
pub(super) fn pieces_of(
    extent: Extent,
    block_size: BlockSize,
    at: impl Fn(u32) -> u32,
    pieces: &mut Vec<Extent>,
) {
    for block in extent.blocks_touched(block_size).iter() {
        let whole = block.extent(block_size);
        let Some(part) = whole.intersect(extent) else { continue };
        let moved = block_size.bytes_of(at(block.0)) + (part.offset() - whole.offset());
        match pieces.last_mut() {
            Some(last) if last.end() == moved => *last = Extent::new(last.offset(), last.len() + part.len()),
            _ => pieces.push(Extent::new(moved, part.len())),
        }
    }
}

/// Where the first of these pieces begins.
pub(super) fn begin_of(extent: Extent, block_size: BlockSize, at: impl Fn(u32) -> u32) -> u64 {
    let first = extent.blocks_touched(block_size).first();
    block_size.bytes_of(at(first.0)) + (extent.offset() - block_size.bytes_of(first.0))
}

impl<P: Planner> Redirect for Mover<P> {
    fn place(&mut self, _: Nanos, op: Op, extent: Extent, pieces: &mut Vec<Extent>) {
        if extent.is_empty() || !matches!(op, Op::Read | Op::Write | Op::WriteZeroes) {
            return;
        }
        let touched = extent.blocks_touched(self.block_size);
        self.days.request();
        self.planner.request(op, touched);
        if op != Op::Read {
            let whole = extent.blocks_covered(self.block_size);
            for block in touched.iter() {
                self.written(block.0, whole.contains(block));
            }
        }
        pieces_of(extent, self.block_size, |b| self.place.get(&b).copied().unwrap_or(b), pieces);
    }

    fn begins(&self, extent: Extent) -> u64 {
        begin_of(extent, self.block_size, |b| self.place.get(&b).copied().unwrap_or(b))
    }

    fn own(&mut self, now: Nanos, idle_since: Nanos) -> Option<OwnIo> {
        if let Some(owed) = self.owed.pop_front() {
            return Some(owed);
        }
        if now < idle_since + NIGHT {
            return None;
        }
        loop {
            if let Some(read) = self.reads.pop_front() {
                return Some(self.access(Op::Read, read));
            }
            if !self.lot.is_empty() {
                self.switch();
            }
            if let Some(write) = self.writes.pop_front() {
                return Some(self.access(Op::Write, write));
            }
            let done = self.out.is_empty() && self.into.is_empty();
            if done {
                if !self.days.is_over() {
                    return None;
                }
                self.plan();
                if self.out.is_empty() && self.into.is_empty() {
                    return None;
                }
            }
            self.begin_lot();
        }
    }

    fn wake_up(&self, idle_since: Nanos) -> Option<Nanos> {
        if !self.owed.is_empty() {
            return Some(idle_since);
        }
        let left = !self.out.is_empty() || !self.into.is_empty() || !self.lot.is_empty();
        let left = left || !self.later.is_empty();
        (left || !self.writes.is_empty() || self.days.is_over()).then_some(idle_since + NIGHT)
    }

    fn boxed_clone(&self) -> Box<dyn Redirect> {
        Box::new(self.clone())
    }
}
