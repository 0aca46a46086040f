//! SR-array: copies of a block at equal angles of the platter; the soonest wins.
//!
//! Xiang Yu, Benjamin Gum, Yuqun Chen, Randolph Y. Wang, Kai Li, Arvind Krishnamurthy and Thomas E. Anderson,
//! "Trading Capacity for Performance in a Disk Array", OSDI 2000, section 2.3 (rotational replication on one disk):
//! D_r copies of each block are spread evenly over the turn, so that the wait is R / (2 D_r) in the mean; reads go
//! to the copy soonest reached. What bounds rotation without predicting what is read next.
//!
//! Parameters: D_r = 3, the original and two copies (the paper's choice depends on the array; at equal space every
//! further copy halves what has one). Copies lie in free blocks as near to the original as its angle allows. A
//! block gains a copy each time it is read, until it has both or the space is used up; a write voids them (the
//! paper propagates writes in the background, to blocks it does not have to give back).

use std::collections::BTreeMap;

use fs2_block::{BlockNo, BlockRange, Nanos, Op, SECTOR_BYTES, Sector};
use fs2_disk::{Disk, DriveProfile};
use fs2_engine::policy::{Asked, Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use fs2_engine::{Head, Log};
use fs2_table::Replica;

/// Copies beside the original.
pub(super) const COPIES: u8 = 2;

/// Longest read that is copied, 256 KiB: the longest write of a copy. Longer ones wait for transfer mostly.
const BLOCKS_MAX: u32 = 64;

/// Free runs tried for a copy, the nearest. A guess: these are a few groups' seeks apart at most.
const RUNS_TRIED: usize = 8;

/// Starts tried in each run: a turn of the paper's drive is 112 blocks of 4 KiB.
const STARTS_TRIED: u32 = 128;

/// See the module.
#[derive(Clone)]
pub(super) struct SrArray {
    shape: Shape,
    /// Tells where sectors are on the platter; serves nothing.
    ruler: Disk,
    room: usize,
    /// Copies written of each block.
    copies: BTreeMap<u32, u8>,
    written: usize,
    /// The log's next blocks that are neighbours.
    next: BlockRange,
}

impl SrArray {
    /// For a volume of this shape on this drive, with room for so many copies.
    pub(super) fn new(shape: &Shape, drive: &DriveProfile, room: u32) -> SrArray {
        SrArray {
            shape: shape.clone(),
            ruler: Disk::new(drive.clone()),
            room: room as usize,
            copies: BTreeMap::new(),
            written: 0,
            next: BlockRange::new(0, 0),
        }
    }

    /// When the block's first sector passes the head, in ns of a turn from some fixed moment.
    fn angle(&self, block: u32) -> u64 {
        let sector = Sector(u64::from(block) * self.shape.block_sectors());
        let s = self.ruler.predict(Nanos(0), Op::Read, sector, 1);
        (s.end().0 - s.transfer.0) % self.turn()
    }

    fn turn(&self) -> u64 {
        self.ruler.profile().turn().0.max(1)
    }

    /// How far a copy at `block` is from the one wanted: ns of rotation off `angle`, and the way there.
    fn cost(&self, block: u32, angle: u64, original: u32) -> u64 {
        let off = self.angle(block).abs_diff(angle);
        let sectors = u64::from(block.abs_diff(original)) * self.shape.block_sectors();
        off.min(self.turn() - off.min(self.turn())) + self.ruler.profile().seek_time(sectors, Op::Read).0
    }
}

impl Policy for SrArray {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }

    fn choose(&mut self, now: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize> {
        let Asked { original, first, copies, only_copies, .. } = *asked;
        let bytes = u64::from(self.shape.block_bytes);
        let within = original.offset() - u64::from(first.0) * bytes;
        let cost = |at: u64| head.read_cost_ms(now, Sector(at / SECTOR_BYTES), original.len());
        let mut best = if only_copies { f64::INFINITY } else { cost(original.offset()) };
        let mut choice = None;
        for (i, copy) in copies.iter().enumerate() {
            let copy = cost(u64::from(copy.0) * bytes + within);
            if copy < best {
                (best, choice) = (copy, Some(i));
            }
        }
        choice
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log) {
        if seen.data.is_nothing() || seen.blocks.len() > BLOCKS_MAX {
            return;
        }
        let bytes = self.shape.block_bytes as usize;
        let mut run = None;
        for (i, block) in seen.blocks.iter().enumerate() {
            if self.written < self.room && !space.has_replica(block) && !log.contains(block) {
                let run = *run.get_or_insert_with(|| log.open());
                log.push(run, block, seen.hashes[i], seen.data.block(i, bytes));
            }
        }
        if let Some(run) = run {
            log.close(run);
        }
    }

    fn written(&mut self, blocks: BlockRange, _: &[Replica]) {
        let (first, last) = (blocks.start(), blocks.end());
        let void: Vec<u32> = self.copies.range(first..last).map(|(&b, _)| b).collect();
        for block in void {
            self.written -= usize::from(self.copies.remove(&block).unwrap_or(0));
        }
    }

    fn idle(&mut self, _: Nanos, log: &mut Log) {
        let mut next: Option<BlockRange> = None;
        for block in log.next_blocks() {
            match &mut next {
                None => next = Some(BlockRange::one(block)),
                // A copy of the same blocks must go to the same turn: they have as many copies.
                Some(n) if n.end() == block.0 && self.copies.get(&n.start()) == self.copies.get(&block.0) => {
                    *n = BlockRange::new(n.start(), block.0 + 1);
                }
                Some(_) => break,
            }
        }
        self.next = next.unwrap_or(BlockRange::new(0, 0));
    }

    fn place(&mut self, want: u32, _: &Head, space: &dyn Space) -> Place {
        let original = self.next.start();
        let mut want = want.min(self.next.len()).max(1);
        let number = self.copies.get(&original).copied().unwrap_or(0) + 1;
        let part = self.turn() * u64::from(number) / (u64::from(COPIES) + 1);
        let angle = (self.angle(original) + part) % self.turn();
        let home = self.shape.group_of(BlockNo(original));
        while want > 0 {
            // The original's group, its neighbours, and so on, until one has room.
            for distance in 0..self.shape.groups() {
                let groups =
                    [home.checked_sub(distance), home.checked_add(distance).filter(|_| distance > 0)];
                let mut runs: Vec<BlockRange> = Vec::new();
                for group in groups.into_iter().flatten().filter(|g| *g < self.shape.groups()) {
                    let Some(vacant) = space.vacant(group) else { return Place::NeedsGroup(group) };
                    runs.extend(vacant.into_iter().filter(|r| r.len() >= want));
                }
                runs.sort_by_key(|r| r.start().abs_diff(original));
                runs.truncate(RUNS_TRIED);
                let starts = runs.iter().flat_map(|r| {
                    let last = (r.end() - want).min(r.start() + STARTS_TRIED);
                    r.start()..=last
                });
                if let Some(at) = starts.min_by_key(|&b| (self.cost(b, angle, original), b)) {
                    for block in original..original + want {
                        *self.copies.entry(block).or_default() += 1;
                        self.written += 1;
                    }
                    return Place::At(BlockRange::new(at, at + want));
                }
            }
            want /= 2;
        }
        Place::Nowhere
    }

    fn hot_region(&self) -> Option<BlockRange> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
