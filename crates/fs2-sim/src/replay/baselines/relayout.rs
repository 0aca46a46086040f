//! Schemes of copies that are laid out as a whole: a planner says which originals lie where in a reserved
//! area, and this writes the layout through the engine, as replicas of its table.
//!
//! ```text
//! night: plan -> evict what lies elsewhere -> read a lot of originals, ascending -> write it in layout order
//! ```
//! Originals stay where they are; a write voids the copy, as everywhere in the engine. Reads and writes are
//! the engine's own I/O, charged to the drive and counted.

use std::collections::{BTreeMap, VecDeque};

use fs2_block::{BlockNo, BlockRange, Nanos, Sector};
use fs2_engine::policy::{Asked, Fetch, Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use fs2_engine::{Brought, Head, Log, RunId};

use super::area::{Around, Days, NIGHT, reserve, slots};

/// Blocks of a lot: read, sorted in memory, written. 32 MiB, half of what the engine's log takes.
const LOT_BLOCKS: usize = 8192;

/// Gaps up to this long are read rather than skipped: 32 KiB pass in less time than half a turn takes.
const BRIDGE_BLOCKS: u32 = 8;

/// Longest read, 1 MiB: an arriving request waits for it to end.
const READ_BLOCKS: u32 = 256;

/// Decides which originals are copied and in which order.
pub(super) trait Planner: Clone + Send + Sync + 'static {
    /// A request read these blocks.
    fn read(&mut self, blocks: BlockRange);

    /// The layout wanted from now on: originals in the order in which their copies are to lie, at most
    /// `room`, none twice.
    fn layout(&mut self, room: usize) -> Vec<u32>;

    /// Whether there is something to lay out before the first day.
    fn knows_beforehand(&self) -> bool {
        false
    }

    /// Whether it lays out once and never again.
    fn once(&self) -> bool {
        false
    }

    /// How many blocks the area is to have, at most `room`.
    fn area_blocks(&self, room: u32) -> u32 {
        room
    }

    /// Where the area is to be.
    fn around(&self, shape: &Shape) -> Around {
        Around::middle(shape)
    }

    /// Whether a read goes to its copy only where that is nearer to the head.
    fn nearest_only(&self) -> bool {
        false
    }
}

/// A night's work that is left.
#[derive(Clone, Debug, Default)]
struct Work {
    /// Slots and the originals they are to hold, ascending by slot.
    to_write: VecDeque<(u32, u32)>,
    /// Reads of the present lot.
    to_read: VecDeque<BlockRange>,
    /// The present lot: slot by original.
    lot: BTreeMap<u32, u32>,
    run: Option<RunId>,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Relayout<P> {
    planner: P,
    shape: Shape,
    room: u32,
    days: Days,
    /// Every block of the area, ascending; empty until it was chosen.
    area: Vec<u32>,
    /// The layout: original by slot.
    holds: BTreeMap<u32, u32>,
    /// Slot of each original whose copy is on its way.
    target: BTreeMap<u32, u32>,
    work: Work,
    evict: VecDeque<BlockRange>,
    /// Slots of the log's next blocks.
    next: Option<BlockRange>,
    planned_beforehand: bool,
    /// The bitmaps of so many groups have been seen.
    groups_known: u32,
}

impl<P: Planner> Relayout<P> {
    /// For a volume of this shape, with room for so many copies.
    pub(super) fn new(planner: P, shape: &Shape, room: u32) -> Relayout<P> {
        Relayout {
            planned_beforehand: !planner.knows_beforehand(),
            planner,
            shape: shape.clone(),
            room,
            days: Days::default(),
            area: Vec::new(),
            holds: BTreeMap::new(),
            target: BTreeMap::new(),
            work: Work::default(),
            evict: VecDeque::new(),
            next: None,
            groups_known: 0,
        }
    }

    fn is_working(&self) -> bool {
        !self.work.to_write.is_empty() || !self.work.to_read.is_empty()
    }

    fn wants_a_plan(&self) -> bool {
        !self.planned_beforehand || (self.days.is_over() && !self.planner.once())
    }

    /// The free runs of the volume, or the group whose bitmap is missing.
    fn vacant(&mut self, space: &dyn Space) -> Result<Vec<BlockRange>, u32> {
        // A large volume has thousands of groups: each is asked for once.
        while self.groups_known < self.shape.groups() {
            space.vacant(self.groups_known).ok_or(self.groups_known)?;
            self.groups_known += 1;
        }
        let mut free: Vec<BlockRange> = Vec::new();
        for group in 0..self.shape.groups() {
            for run in space.vacant(group).ok_or(group)? {
                match free.last_mut() {
                    Some(last) if last.end() == run.start() => {
                        *last = BlockRange::new(last.start(), run.end())
                    }
                    _ => free.push(run),
                }
            }
        }
        Ok(free)
    }

    fn plan(&mut self, space: &dyn Space) -> Result<(), u32> {
        let free = self.vacant(space)?;
        if self.area.is_empty() {
            self.area =
                slots(&reserve(&free, self.planner.area_blocks(self.room), self.planner.around(&self.shape)));
        }
        // What the file system has taken of the area is no place any more.
        let ours = |slot: &u32| self.holds.get(slot).is_some_and(|&o| space.has_replica(BlockNo(o)));
        let vacant = |slot: u32| {
            let after = free.partition_point(|r| r.end() <= slot);
            free.get(after).is_some_and(|r| r.start() <= slot)
        };
        let usable: Vec<u32> = self.area.iter().copied().filter(|s| vacant(*s) || ours(s)).collect();
        self.planned_beforehand = true;
        self.days.begin();
        let layout = self.planner.layout(usable.len());
        let mut wanted: BTreeMap<u32, u32> = BTreeMap::new();
        // A free block has nothing to copy: its place in the layout stays empty, so that neighbours stay such.
        let blocks = self.shape.first_block..self.shape.blocks;
        let in_use = |o: u32| blocks.contains(&o) && !vacant(o) && self.area.binary_search(&o).is_err();
        for (&slot, original) in usable.iter().zip(layout).filter(|(_, o)| in_use(*o)) {
            wanted.insert(slot, original);
        }
        for (&slot, original) in &self.holds {
            if wanted.get(&slot) != Some(original) {
                match self.evict.back_mut() {
                    Some(last) if last.end() == slot => *last = BlockRange::new(last.start(), slot + 1),
                    _ => self.evict.push_back(BlockRange::new(slot, slot + 1)),
                }
            }
        }
        let stays = |(slot, original): (&u32, &u32)| {
            // A write may have voided what lay there.
            self.holds.get(slot) == Some(original) && space.has_replica(BlockNo(*original))
        };
        self.work.to_write = wanted.iter().filter(|w| !stays(*w)).map(|(&s, &o)| (s, o)).collect();
        self.holds = wanted;
        Ok(())
    }

    /// The next lot: its reads, ascending, small gaps bridged.
    fn begin_lot(&mut self) {
        let n = LOT_BLOCKS.min(self.work.to_write.len());
        self.work.lot = self.work.to_write.drain(..n).map(|(slot, original)| (original, slot)).collect();
        self.target.extend(&self.work.lot);
        for &original in self.work.lot.keys() {
            match self.work.to_read.back_mut() {
                Some(r) if original - r.end() <= BRIDGE_BLOCKS && original + 1 - r.start() <= READ_BLOCKS => {
                    *r = BlockRange::new(r.start(), original + 1);
                }
                _ => self.work.to_read.push_back(BlockRange::new(original, original + 1)),
            }
        }
    }

    fn is_vacant(&self, blocks: BlockRange, space: &dyn Space) -> bool {
        let inside = |r: &BlockRange| r.start() <= blocks.start() && blocks.end() <= r.end();
        space.vacant(self.shape.group_of(blocks.first())).is_some_and(|runs| runs.iter().any(inside))
    }
}

impl<P: Planner> Policy for Relayout<P> {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }

    fn choose(&mut self, _: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize> {
        let Asked { original, copies, only_copies, .. } = *asked;
        if !self.planner.nearest_only() {
            return (!copies.is_empty()).then_some(0);
        }
        let at = |b: &BlockNo| head.distance(Sector(u64::from(b.0) * self.shape.block_sectors()));
        let nearest = (0..copies.len()).min_by_key(|&i| at(&copies[i]))?;
        (only_copies || at(&copies[nearest]) < head.distance(original.sector())).then_some(nearest)
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, _: &dyn Space, _: &mut Log) {
        if !seen.touched.is_empty() {
            self.days.request();
            self.planner.read(seen.touched);
        }
    }

    fn idle(&mut self, _: Nanos, log: &mut Log) {
        // As many of the log's next blocks as have neighbouring slots.
        self.next = None;
        for original in log.next_blocks() {
            let Some(&slot) = self.target.get(&original.0) else { break };
            match &mut self.next {
                None => self.next = Some(BlockRange::new(slot, slot + 1)),
                Some(next) if next.end() == slot => *next = BlockRange::new(next.start(), slot + 1),
                Some(_) => break,
            }
        }
    }

    fn place(&mut self, want: u32, _: &Head, space: &dyn Space) -> Place {
        let Some(next) = self.next else { return Place::Nowhere };
        let next = BlockRange::new(next.start(), next.start() + next.len().min(want));
        // A group's end splits what is vacant in both.
        let group = self.shape.group_of(next.first());
        let next = BlockRange::new(next.start(), next.end().min(self.shape.group_range(group).end()));
        if self.is_vacant(next, space) {
            return Place::At(next);
        }
        // The file system has taken the slot: block by block, and elsewhere in the group where that fails.
        let one = BlockRange::one(next.first());
        if self.is_vacant(one, space) {
            return Place::At(one);
        }
        match space.vacant(group).as_deref() {
            Some([run, ..]) => Place::At(BlockRange::one(run.first())),
            _ => Place::Nowhere,
        }
    }

    fn fetch_at(&self, idle_since: Nanos) -> Option<Nanos> {
        (self.is_working() || self.wants_a_plan()).then_some(idle_since + NIGHT)
    }

    fn fetch(&mut self, _: Nanos, space: &dyn Space) -> Fetch {
        if self.work.to_read.is_empty()
            && self.wants_a_plan()
            && let Err(group) = self.plan(space)
        {
            return Fetch::NeedsGroup(group);
        }
        if self.work.to_read.is_empty() && !self.work.to_write.is_empty() {
            self.begin_lot();
        }
        self.work.to_read.front().map_or(Fetch::Nothing, |&r| Fetch::Read(r))
    }

    fn fetched(&mut self, blocks: BlockRange, data: Brought<'_>, hashes: &[u64], log: &mut Log) {
        self.work.to_read.pop_front();
        let bytes = self.shape.block_bytes as usize;
        if !data.is_nothing() {
            let run = *self.work.run.get_or_insert_with(|| log.open());
            for (i, block) in blocks.iter().enumerate().filter(|(_, b)| self.work.lot.contains_key(&b.0)) {
                log.push(run, block, hashes[i], data.block(i, bytes));
            }
        }
        if self.work.to_read.is_empty() {
            if let Some(run) = self.work.run.take() {
                log.sort_by_key(run, |b| self.work.lot.get(&b.0).copied());
                log.close(run);
            }
            self.work.lot.clear();
        }
    }

    fn evict(&mut self) -> Option<BlockRange> {
        self.evict.pop_front()
    }

    fn hot_region(&self) -> Option<BlockRange> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
