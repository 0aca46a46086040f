//! The paper's policy (SOSP'05, sections 2.2, 3.1 and 3.2), literally.
//!
//! Regions of block groups are counted; the hottest is where the head mostly is. Blocks outside it that
//! are read together with blocks in it are copied into its free blocks, contiguous and in the order of
//! access. A read goes to the copies only if every block of it has one, they are contiguous, and they
//! are nearer, by address, to where the last request ended.

use std::collections::VecDeque;

use fs2_block::{BlockNo, BlockRange, Nanos, Sector};

use super::{Asked, Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use crate::head::Head;
use crate::log::{Log, RunId};

/// Regions at most: the paper takes "a multiple of block groups"; a guess that keeps the counts small.
const REGIONS_MAX: u32 = 1024;

/// Reads that count as being made together. The paper gives no number; a guess.
const TOGETHER: usize = 8;

/// Blocks of a temporal group at most, so that it finds a contiguous run. A guess.
const GROUP_BLOCKS_MAX: u32 = 256;

/// Counts are halved after so many reads, so that the hot region can move. A guess.
const HALVE_EVERY: u64 = 4096;

/// See the module.
#[derive(Clone, Debug)]
pub struct Fs2Of2005 {
    shape: Shape,
    region_groups: u32,
    counts: Vec<u64>,
    reads: u64,
    together: usize,
    /// Whether each of the last reads touched the hot region.
    recent: VecDeque<bool>,
    group: Option<(RunId, u32)>,
}

impl Fs2Of2005 {
    /// For a volume of this shape.
    pub fn new(shape: &Shape) -> Fs2Of2005 {
        Fs2Of2005::with(shape, shape.groups().div_ceil(REGIONS_MAX), TOGETHER)
    }

    /// The same with other guesses: block groups of a region, and reads that count as being made together,
    /// both at least 1.
    pub fn with(shape: &Shape, region_groups: u32, together: usize) -> Fs2Of2005 {
        let region_groups = region_groups.max(1);
        Fs2Of2005 {
            counts: vec![0; shape.groups().div_ceil(region_groups).max(1) as usize],
            shape: shape.clone(),
            region_groups,
            reads: 0,
            together: together.max(1),
            recent: VecDeque::new(),
            group: None,
        }
    }

    fn region_of(&self, block: BlockNo) -> usize {
        ((self.shape.group_of(block) / self.region_groups) as usize).min(self.counts.len() - 1)
    }

    fn hot(&self) -> usize {
        // The first of the hottest.
        let max = self.counts.iter().max().copied().unwrap_or(0);
        self.counts.iter().position(|&c| c == max).unwrap_or(0)
    }

    fn region_groups(&self, region: usize) -> std::ops::Range<u32> {
        let from = region as u32 * self.region_groups;
        from..(from + self.region_groups).min(self.shape.groups())
    }

    fn close_group(&mut self, log: &mut Log) {
        if let Some((run, _)) = self.group.take() {
            log.close(run);
        }
    }
}

impl Policy for Fs2Of2005 {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Fs2Of2005
    }

    fn choose(&mut self, _: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize> {
        let Asked { original, copies, only_copies, .. } = *asked;
        let per_block = self.shape.block_sectors();
        let at = |b: &BlockNo| head.distance(Sector(u64::from(b.0) * per_block));
        let nearest = (0..copies.len()).min_by_key(|&i| at(&copies[i]))?;
        (only_copies || at(&copies[nearest]) < head.distance(original.sector())).then_some(nearest)
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log) {
        if seen.blocks.is_empty() {
            return;
        }
        // Activity is where the head was: at the copy, if one was read.
        let at = seen.copy.unwrap_or(seen.blocks.first());
        let region = self.region_of(at);
        self.counts[region] += 1;
        self.reads += 1;
        if self.reads.is_multiple_of(HALVE_EVERY) {
            self.counts.iter_mut().for_each(|c| *c /= 2);
        }
        let hot = self.hot();
        self.recent.push_back(region == hot);
        if self.recent.len() > self.together {
            self.recent.pop_front();
        }
        let together = self.recent.iter().any(|&h| h);
        let outside = self.region_of(seen.blocks.first()) != hot;
        if !outside || !together || seen.data.is_nothing() {
            return;
        }
        let bytes = self.shape.block_bytes as usize;
        for (i, block) in seen.blocks.iter().enumerate() {
            if space.has_replica(block) || log.contains(block) {
                continue;
            }
            let (run, n) = *self.group.get_or_insert_with(|| (log.open(), 0));
            if log.push(run, block, seen.hashes[i], seen.data.block(i, bytes)) {
                self.group = Some((run, n + 1));
                if n + 1 == GROUP_BLOCKS_MAX {
                    self.close_group(log);
                }
            }
        }
    }

    fn idle(&mut self, _: Nanos, log: &mut Log) {
        self.close_group(log);
    }

    fn place(&mut self, want: u32, _: &Head, space: &dyn Space) -> Place {
        // The hot region first, then its neighbours; within a region, the run that holds the whole
        // group and leaves least over, else the longest: "more weight on regions with more free space".
        let hot = self.hot();
        let mut regions: Vec<usize> = (0..self.counts.len()).collect();
        regions.sort_by_key(|r| r.abs_diff(hot));
        for region in regions {
            let mut best: Option<BlockRange> = None;
            for group in self.region_groups(region) {
                let Some(runs) = space.vacant(group) else { return Place::NeedsGroup(group) };
                for run in runs {
                    let better = match best {
                        None => true,
                        Some(b) if b.len() >= want => run.len() >= want && run.len() < b.len(),
                        Some(b) => run.len() > b.len(),
                    };
                    if better {
                        best = Some(run);
                    }
                }
            }
            if let Some(run) = best {
                return Place::At(BlockRange::new(run.start(), run.start() + want.min(run.len())));
            }
        }
        Place::Nowhere
    }

    fn hot_region(&self) -> Option<BlockRange> {
        let groups = self.region_groups(self.hot());
        // One past its last group may begin beyond 2^32 blocks.
        let (first, last) = (groups.start, groups.end.saturating_sub(1));
        Some(BlockRange::new(self.shape.group_range(first).start(), self.shape.group_range(last).end()))
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Behind;

    struct AllFree(Shape);
    impl Space for AllFree {
        fn vacant(&self, group: u32) -> Option<Vec<BlockRange>> {
            let at = group * self.0.group_blocks;
            Some(vec![BlockRange::new(at + 10, at + 100), BlockRange::new(at + 200, at + 900)])
        }
        fn is_known(&self, _: u32) -> bool {
            true
        }
        fn first_vacant(&self, _: BlockRange, _: u32, _: u32) -> Option<BlockRange> {
            unreachable!("this policy weighs all runs of a region")
        }
        fn vacated(&self, _: BlockRange) -> u64 {
            0
        }

        fn has_replica(&self, _: BlockNo) -> bool {
            false
        }
        fn copies(&self, _: BlockNo) -> usize {
            0
        }
        fn room(&self) -> usize {
            1000
        }
    }

    fn shape() -> Shape {
        Shape { blocks: 8000, group_blocks: 1000, first_block: 0, block_bytes: 1024, seed: 0 }
    }

    fn read(p: &mut Fs2Of2005, log: &mut Log, first: u32, n: u32) {
        let data = vec![first as u8; (n * 1024) as usize];
        let hashes = vec![u64::from(first); n as usize];
        let blocks = BlockRange::new(first, first + n);
        let (copy, first_copy) = (None, None);
        let (now, measured) = (Nanos(0), Nanos(0));
        let data = crate::io::Brought::Bytes(&data);
        let seen = ReadSeen {
            now,
            arrived: now,
            touched: blocks,
            blocks,
            data,
            wanted: true,
            hashes: &hashes,
            copy,
            first_copy,
            measured,
            served: measured,
            expected: None,
            positioning: Nanos::from_millis(6),
            transfer: Nanos(0),
            alone: true,
            at_once: true,
        };
        p.read_seen(&seen, &AllFree(shape()), log);
    }

    #[test]
    fn only_blocks_outside_the_hot_region_are_copied_into_it() {
        let (mut p, mut log) = (Fs2Of2005::new(&shape()), Log::new(1 << 20));
        for i in 0..4 {
            read(&mut p, &mut log, 3300 + i, 1);
        }
        read(&mut p, &mut log, 6020, 2);
        read(&mut p, &mut log, 6001, 1);
        assert_eq!(p.hot_region(), Some(BlockRange::new(3000, 4000)));
        p.idle(Nanos(0), &mut log);
        let got: Vec<u32> = log.take(9).unwrap().blocks.iter().map(|b| b.original.0).collect();
        assert_eq!(got, [6020, 6021, 6001], "in the order of access");
        let head = Head::new(None);
        assert_eq!(p.place(3, &head, &AllFree(shape())), Place::At(BlockRange::new(3010, 3013)));
        assert_eq!(p.place(300, &head, &AllFree(shape())), Place::At(BlockRange::new(3200, 3500)));
    }

    #[test]
    fn regions_of_several_groups_are_counted_and_filled_as_one() {
        let mut log = Log::new(1 << 20);
        let mut p = Fs2Of2005::with(&shape(), 3, 1);
        read(&mut p, &mut log, 3300, 1);
        read(&mut p, &mut log, 5300, 1);
        read(&mut p, &mut log, 4300, 1);
        assert_eq!(p.hot_region(), Some(BlockRange::new(3000, 6000)));
        // Outside, but the only read of late: not together with any within.
        read(&mut p, &mut log, 7300, 1);
        p.idle(Nanos(0), &mut log);
        assert!(log.take(9).is_none());
        let mut p = Fs2Of2005::with(&shape(), 3, 2);
        read(&mut p, &mut log, 3300, 1);
        read(&mut p, &mut log, 7300, 1);
        p.idle(Nanos(0), &mut log);
        assert_eq!(log.take(9).map(|b| b.blocks.len()), Some(1));
    }

    #[test]
    fn nearest_address_wins_and_ties_go_to_the_original() {
        let mut p = Fs2Of2005::new(&shape());
        let mut head = Head::new(None);
        head.completed(fs2_block::Op::Read, Sector(2000), 1024, Nanos(0), Nanos(1));
        let original = BlockNo(901).extent(fs2_block::BlockSize::B1024);
        let pick = |p: &mut Fs2Of2005, c: &[u32]| {
            let c: Vec<_> = c.iter().map(|&b| BlockNo(b)).collect();
            let behind = Behind::default();
            let (first, only_copies) = (BlockNo(901), false);
            p.choose(Nanos(0), &head, &Asked { original, first, copies: &c, only_copies, behind: &behind })
        };
        assert_eq!(pick(&mut p, &[1200, 950]), Some(1));
        assert_eq!(pick(&mut p, &[1200]), None);
        assert_eq!(pick(&mut p, &[1101]), None, "as near: the original");
    }

    #[test]
    fn the_last_region_of_the_largest_volume_ends_with_it() {
        // 16 TiB in blocks of 4 KiB, less one: groups times their blocks do not fit into 32 bits.
        let shape = Shape { blocks: u32::MAX, group_blocks: 32_768, ..shape() };
        let mut p = Fs2Of2005::new(&shape);
        *p.counts.last_mut().unwrap() = 1;
        let region = p.hot_region().unwrap();
        assert_eq!(region.end(), u32::MAX);
        assert_eq!(region.start(), p.region_groups(p.counts.len() - 1).start * 32_768);
    }
}
