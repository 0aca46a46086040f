//! The default policy: whole read runs in visit order, large free runs near the heat, choice by
//! predicted positioning time with lookahead.
//!
//! The method and what each part is worth were measured on real traces with a throw-away simulation;
//! the constants below carry those results.

use fs2_block::{BlockNo, BlockRange, Extent, Nanos, SECTOR_BYTES, Sector};

use super::{Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use crate::head::Head;
use crate::log::{Log, RunId};

/// Read runs that may be open at once. Measured: 4; 16 makes the repeats of a cvs update 40 % slower.
const OPEN_RUNS: usize = 4;

/// Longer runs are sequential reading, which gains nothing. Measured on the same traces.
const RUN_BYTES_MAX: u64 = 8 << 20;

/// Smallest free run to copy into while there are such. Measured: 64 KiB to 1 MiB halves a cvs
/// update's second run again.
const FREE_RUN_BYTES: u64 = 1 << 20;

/// Heat is halved after so many reads. Measured.
const HALVE_EVERY: u64 = 5_000;

/// Bins of heat over the volume: choosing a window compares each with each. A guess.
const BINS: u32 = 128;

/// How fast the chance of continuation is learnt. Measured.
const LEARN: f64 = 0.05;

/// A read continues a copy if its own copy begins this many blocks before or after the last one's end.
const CONTINUES: std::ops::RangeInclusive<i64> = -2..=64;

/// One chance of continuation for this many blocks of copies. Measured.
const CHANCE_BLOCKS: u32 = 256;

/// Blocks of the window that copies fill before another place is looked for: 2 % of the volume.
const WINDOW_SHARE: u32 = 50;

#[derive(Clone, Debug)]
struct OpenRun {
    id: RunId,
    start: u32,
    end: u32,
}

/// In this group no `least` blocks in a row were vacant when [`Space::vacated`] said so.
#[derive(Clone, Copy, Debug, Default)]
struct Poor {
    group: u32,
    /// 0: nothing is known.
    least: u32,
    vacated: u64,
}

/// Groups of which is remembered that they are poor: 64 KiB.
const POOR_MAX: usize = 1 << 12;

/// See the module.
#[derive(Clone, Debug)]
pub struct Fs2 {
    shape: Shape,
    open: Vec<OpenRun>,
    heat: Vec<f64>,
    reads: u64,
    /// Chance that the next read continues a copy here, in 1/255, by 256 blocks of copies.
    chance: std::collections::BTreeMap<u32, u8>,
    /// Where the last read's first copy ended, if it had one: the place whose chance is learnt next.
    expected: Option<BlockNo>,
    /// The next block to copy into, and where its window ends.
    cursor: Option<(u32, u32)>,
    free_run: u32,
    /// By group, modulo their number: where no long run was vacant.
    poor: Vec<Poor>,
}

/// Start of a learnt chance: one half.
const CHANCE_START: u8 = 128;

/// Chances kept at most: 16 bits of places; beyond, the start is taken.
const CHANCES_MAX: usize = 1 << 16;

impl Fs2 {
    /// For a volume of this shape.
    pub fn new(shape: &Shape) -> Fs2 {
        Fs2 {
            open: Vec::new(),
            heat: vec![0.0; BINS.min(shape.groups()).max(1) as usize],
            reads: 0,
            chance: std::collections::BTreeMap::new(),
            expected: None,
            cursor: None,
            free_run: (FREE_RUN_BYTES / u64::from(shape.block_bytes)) as u32,
            poor: vec![Poor::default(); (shape.groups() as usize).clamp(1, POOR_MAX)],
            shape: shape.clone(),
        }
    }

    fn bin_of_group(&self, group: u32) -> usize {
        (u64::from(group) * self.heat.len() as u64 / u64::from(self.shape.groups().max(1))) as usize
    }

    fn bin_middle(&self, bin: usize) -> Sector {
        let span = u64::from(self.shape.blocks) * self.shape.block_sectors();
        Sector(span * (2 * bin as u64 + 1) / (2 * self.heat.len() as u64))
    }

    fn chance_of(&self, copy: BlockNo) -> f64 {
        f64::from(self.chance.get(&(copy.0 / CHANCE_BLOCKS)).copied().unwrap_or(CHANCE_START)) / 255.0
    }

    fn learn(&mut self, copy: Option<BlockNo>) {
        let Some(expected) = self.expected else { return };
        let continues = copy.is_some_and(|c| CONTINUES.contains(&(i64::from(c.0) - i64::from(expected.0))));
        let key = expected.0 / CHANCE_BLOCKS;
        if self.chance.len() >= CHANCES_MAX && !self.chance.contains_key(&key) {
            return;
        }
        let p = self.chance.entry(key).or_insert(CHANCE_START);
        let target = if continues { 255.0 } else { 0.0 };
        let moved = f64::from(*p) + (target - f64::from(*p)) * LEARN;
        // Rounded towards the target, so that small steps are not lost.
        *p = if continues { moved.ceil() } else { moved.floor() }.clamp(0.0, 255.0) as u8;
    }

    /// Groups in the order of their mean seek from the heat.
    fn groups_by_cost(&self, head: &Head) -> Vec<u32> {
        let total: f64 = self.heat.iter().sum();
        let bins = self.heat.len();
        let cost: Vec<f64> = (0..bins)
            .map(|b| {
                let here = self.bin_middle(b).0;
                let seek = |h: usize| head.seek_ms(self.bin_middle(h).0.abs_diff(here));
                (0..bins).filter(|&h| self.heat[h] > 0.0).map(|h| self.heat[h] * seek(h)).sum::<f64>()
                    / total.max(1e-9)
            })
            .collect();
        let mut groups: Vec<u32> = (0..self.shape.groups()).collect();
        groups.sort_by(|&a, &b| {
            cost[self.bin_of_group(a)].total_cmp(&cost[self.bin_of_group(b)]).then(a.cmp(&b))
        });
        groups
    }

    /// The first `free_run` vacant blocks in a row in `part` of a group; groups without are not gone through
    /// again until something was vacated.
    fn long_run(&mut self, group: u32, part: BlockRange, space: &dyn Space) -> Option<BlockRange> {
        let (blocks, least) = (self.shape.group_range(group), self.free_run);
        let vacated = space.vacated(blocks);
        let at = group as usize % self.poor.len();
        let known = self.poor[at];
        if known.group == group && known.vacated == vacated && (1..=least).contains(&known.least) {
            return None;
        }
        let found = space.first_vacant(part, least, least);
        if found.is_none() && part == blocks {
            self.poor[at] = Poor { group, least, vacated };
        }
        found
    }

    /// The next vacant stretch from the cursor, in ascending order, of runs that are large enough.
    fn after_cursor(&mut self, want: u32, space: &dyn Space) -> Option<Place> {
        let (at, end) = self.cursor?;
        let mut group = self.shape.group_of(BlockNo(at));
        while group < self.shape.groups() && self.shape.first_block + group * self.shape.group_blocks < end {
            if !space.is_known(group) {
                return Some(Place::NeedsGroup(group));
            }
            let blocks = self.shape.group_range(group);
            let rest = BlockRange::new(at.max(blocks.start()), blocks.end());
            // A run that was begun is filled to its end: it starts at the cursor.
            let next =
                BlockRange::new(rest.start(), rest.end().min(rest.start().saturating_add(want.max(1))));
            let begun = space.first_vacant(next, 1, want).filter(|r| r.start() == at);
            if let Some(run) = begun.or_else(|| self.long_run(group, rest, space)) {
                let len = run.len().min(want);
                self.cursor = Some((run.start() + len, end));
                return Some(Place::At(BlockRange::new(run.start(), run.start() + len)));
            }
            group += 1;
        }
        self.cursor = None;
        None
    }
}

impl Policy for Fs2 {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Fs2
    }

    fn choose(
        &mut self,
        now: Nanos,
        head: &Head,
        original: Extent,
        first: BlockNo,
        copies: &[BlockNo],
    ) -> Option<usize> {
        let within = original.offset() - u64::from(first.0) * u64::from(self.shape.block_bytes);
        let mut best = head.read_cost_ms(now, original.sector(), original.len());
        let mut choice = None;
        for (i, &copy) in copies.iter().enumerate() {
            let sector =
                Sector((u64::from(copy.0) * u64::from(self.shape.block_bytes) + within) / SECTOR_BYTES);
            let ahead = self.chance_of(copy) * head.mean_positioning_ms();
            let cost = head.read_cost_ms(now, sector, original.len()) - ahead;
            if cost < best {
                (best, choice) = (cost, Some(i));
            }
        }
        choice
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log) {
        if seen.blocks.is_empty() {
            return;
        }
        self.reads += 1;
        if self.reads.is_multiple_of(HALVE_EVERY) {
            self.heat.iter_mut().for_each(|h| *h /= 2.0);
        }
        let bin = self.bin_of_group(self.shape.group_of(seen.copy.unwrap_or(seen.blocks.first())));
        let bins = self.heat.len();
        self.heat[bin.min(bins - 1)] += seen.measured.as_millis_f64();
        self.learn(seen.first_copy);
        self.expected = seen.first_copy.map(|c| c.plus(seen.blocks.len()));

        // A read that starts inside or at the end of an open run extends it.
        let (start, end) = (seen.blocks.start(), seen.blocks.end());
        let found = self.open.iter().position(|r| (r.start..=r.end).contains(&start));
        let at = match found {
            Some(i) => {
                self.open[i].end = self.open[i].end.max(end);
                i
            }
            None => {
                if self.open.len() == OPEN_RUNS {
                    let oldest = self.open.remove(0);
                    log.close(oldest.id);
                }
                self.open.push(OpenRun { id: log.open(), start, end });
                self.open.len() - 1
            }
        };
        let run = &self.open[at];
        let length = u64::from(run.end - run.start) * u64::from(self.shape.block_bytes);
        if length > RUN_BYTES_MAX {
            // Sequential reading: what was captured goes, nothing more comes.
            log.kill(BlockRange::new(run.start, run.end));
            return;
        }
        if seen.data.is_nothing() {
            return;
        }
        let bytes = self.shape.block_bytes as usize;
        let id = run.id;
        space.lacking(seen.blocks, &mut |part| {
            for block in part.iter() {
                let i = (block.0 - start) as usize;
                log.push(id, block, seen.hashes[i], seen.data.block(i, bytes));
            }
        });
    }

    fn idle(&mut self, _: Nanos, log: &mut Log) {
        self.open.clear();
        log.close_all();
    }

    fn place(&mut self, want: u32, head: &Head, space: &dyn Space) -> Place {
        if let Some(place) = self.after_cursor(want, space) {
            return place;
        }
        // A new window: the cheapest group by mean seek from the heat that has a large free run; the
        // size asked for is halved while there is none.
        let order = self.groups_by_cost(head);
        let window = (self.shape.blocks / WINDOW_SHARE).max(self.shape.group_blocks);
        self.free_run = (FREE_RUN_BYTES / u64::from(self.shape.block_bytes)) as u32;
        loop {
            for &group in &order {
                if !space.is_known(group) {
                    return Place::NeedsGroup(group);
                }
                if let Some(run) = self.long_run(group, self.shape.group_range(group), space) {
                    self.cursor =
                        Some((run.start(), run.start().saturating_add(window).min(self.shape.blocks)));
                    return self.after_cursor(want, space).unwrap_or(Place::Nowhere);
                }
            }
            if self.free_run <= 1 {
                return Place::Nowhere;
            }
            self.free_run /= 2;
        }
    }

    fn hot_region(&self) -> Option<BlockRange> {
        let (bin, _) =
            self.heat.iter().enumerate().filter(|h| *h.1 > 0.0).max_by(|a, b| a.1.total_cmp(b.1))?;
        let bins = self.heat.len() as u64;
        let blocks = u64::from(self.shape.blocks);
        Some(BlockRange::new((blocks * bin as u64 / bins) as u32, (blocks * (bin as u64 + 1) / bins) as u32))
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
