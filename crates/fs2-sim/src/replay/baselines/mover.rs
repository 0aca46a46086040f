//! Schemes that move blocks to a reserved area, and send writes there too: a planner says which block is to be
//! in which slot, and this moves them at night, between the engine and the drive.
//!
//! ```text
//! night: plan -> take out what is to leave (if it is newer than its home) -> bring in what is new
//! ```
//! A night's moves are done in lots: sources read by ascending address, targets written by ascending address.
//! A block is moved when its write has ended; one that is written meanwhile stays where it is. The area lies in
//! free blocks; what the file system takes of it is given up, and the block there goes home.

use std::collections::{BTreeMap, VecDeque};

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

/// A block on its way, by target.
type Lot = BTreeMap<u32, Step>;

#[derive(Clone, Copy, Debug)]
struct Step {
    from: u32,
    block: u32,
    inwards: bool,
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
    /// Steps of the night not yet in a lot, in order: target and step.
    todo: VecDeque<(u32, Step)>,
    lot: Lot,
    reads: VecDeque<BlockRange>,
    /// A write under way: targets.
    writing: Option<BlockRange>,
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
            todo: VecDeque::new(),
            lot: Lot::new(),
            reads: VecDeque::new(),
            writing: None,
            owed: VecDeque::new(),
            absorb: 0,
        }
    }

    /// The write under way has ended: its blocks have moved.
    fn settle(&mut self) {
        let Some(range) = self.writing.take() else { return };
        let done: Vec<(u32, Step)> =
            self.lot.range(range.start()..range.end()).map(|(&to, &s)| (to, s)).collect();
        for (to, step) in done {
            self.lot.remove(&to);
            if step.inwards {
                self.place.insert(step.block, to);
                self.held.insert(to, Held { block: step.block, dirty: false });
            } else {
                self.place.remove(&step.block);
                self.held.remove(&step.from);
            }
        }
    }

    fn plan(&mut self) {
        self.days.begin();
        self.absorb = 0;
        let arranged = self.planner.arrange(self.slots.len());
        let wanted = self.slots.iter().zip(arranged).filter_map(|(&slot, block)| Some((slot, block?)));
        let wanted: BTreeMap<u32, u32> = wanted.filter(|(slot, _)| !self.given_up.contains(*slot)).collect();
        let leaves: Vec<(u32, Held)> = self
            .held
            .iter()
            .filter(|(slot, h)| wanted.get(slot) != Some(&h.block))
            .map(|(&s, &h)| (s, h))
            .collect();
        for (slot, Held { block, dirty }) in leaves {
            if dirty || self.planner.moves() {
                self.todo.push_back((block, Step { from: slot, block, inwards: false }));
            } else {
                self.held.remove(&slot);
                self.place.remove(&block);
            }
        }
        let comes = wanted.iter().filter(|(slot, block)| self.place.get(block) != Some(slot));
        self.todo.extend(comes.map(|(&slot, &block)| (slot, Step { from: block, block, inwards: true })));
    }

    /// The next lot: all inwards or all outwards, so that what leaves has left.
    fn begin_lot(&mut self) {
        let inwards = self.todo.front().is_some_and(|t| t.1.inwards);
        while self.lot.len() < LOT_BLOCKS && self.todo.front().is_some_and(|t| t.1.inwards == inwards) {
            let Some((to, step)) = self.todo.pop_front() else { break };
            // What could not leave keeps its slot, and who is still in the area has no home to be read from.
            let stuck = self.held.contains_key(&to) || self.place.contains_key(&step.block);
            if !(inwards && stuck) {
                self.lot.insert(to, step);
            }
        }
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

    /// The lot's next write: neighbours by target.
    fn next_write(&mut self) -> Option<BlockRange> {
        let mut range: Option<BlockRange> = None;
        for &to in self.lot.keys() {
            match &mut range {
                None => range = Some(BlockRange::new(to, to + 1)),
                Some(r) if r.end() == to && r.len() < WRITE_BLOCKS => *r = BlockRange::new(r.start(), to + 1),
                Some(_) => break,
            }
        }
        range
    }

    fn access(&self, op: Op, blocks: BlockRange) -> OwnIo {
        OwnIo { op, extent: blocks.extent(self.block_size) }
    }

    /// The file system writes to a block of the area: it is a slot no more.
    fn give_up(&mut self, slot: u32) {
        if self.slots.binary_search(&slot).is_err() || !self.given_up.insert(slot) {
            return;
        }
        self.lot.remove(&slot);
        self.todo.retain(|(to, step)| *to != slot && step.from != slot);
        self.lot.retain(|_, step| step.from != slot);
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
            let taken = self.held.contains_key(&slot) || self.lot.contains_key(&slot);
            if !taken && !self.given_up.contains(slot) {
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

impl<P: Planner> Redirect for Mover<P> {
    fn place(&mut self, _: Nanos, op: Op, extent: Extent, pieces: &mut Vec<Extent>) {
        self.settle();
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

    fn own(&mut self, now: Nanos, idle_since: Nanos) -> Option<OwnIo> {
        self.settle();
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
            if let Some(write) = self.next_write() {
                self.writing = Some(write);
                return Some(self.access(Op::Write, write));
            }
            if self.todo.is_empty() {
                if !self.days.is_over() {
                    return None;
                }
                self.plan();
                if self.todo.is_empty() {
                    return None;
                }
            }
            self.begin_lot();
        }
    }

    fn wake_up(&self, now: Nanos) -> Option<Nanos> {
        let work = !self.owed.is_empty() || !self.todo.is_empty() || !self.lot.is_empty();
        (work || self.days.is_over()).then_some(now)
    }

    fn boxed_clone(&self) -> Box<dyn Redirect> {
        Box::new(self.clone())
    }
}
