//! The default policy: whole read runs in visit order, large free runs near the heat, choice by
//! predicted positioning time with lookahead.
//!
//! `docs/policy.md` says how it works, what each part is worth on real traces and where its constants come from.

mod backlog;
mod chances;
mod placement;
mod trail;

use fs2_block::{BlockNo, BlockRange, Extent, Nanos, SECTOR_BYTES, Sector};
use fs2_table::Replica;

use self::backlog::Backlog;
use self::chances::Chances;
use self::placement::Placement;
use self::trail::Trails;
use super::{Fetch, Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use crate::head::Head;
use crate::io::Brought;
use crate::log::{Log, RunId};

/// Read runs that may be open at once. Measured: 4; 16 makes the repeats of a cvs update 40 % slower.
const OPEN_RUNS: usize = 4;

/// Longer runs are sequential reading, which gains nothing. Measured on the same traces.
const RUN_BYTES_MAX: u64 = 8 << 20;

/// Stretches of a run that found no room. More than the blocks of a run of 1 KiB blocks: only what is read again and
/// again exceeds it.
const LATE_MAX: usize = 1 << 13;

/// How fast the chance of continuation is learnt. Measured: 0.02 to 0.1 are alike.
const LEARN: f64 = 0.05;

/// A read continues another if it begins this many blocks before or after the other's end.
const CONTINUES: std::ops::RangeInclusive<i64> = -2..=64;

/// Start of the chance that a copy goes on: one half. Measured.
const COPY_GOES_ON: u8 = 128;

/// A read whose time is more than this part of a mean positioning moved the arm. Measured on real traces: 1/6 to 1/2.
const MISS_SHARE: f64 = 1.0 / 3.0;

#[derive(Clone, Debug)]
struct OpenRun {
    id: RunId,
    start: u32,
    end: u32,
    /// What found no room in the log, in order; at most [`LATE_MAX`].
    late: Vec<BlockRange>,
}

/// Where a read ended, and whether the next one begins there: the place whose chance is learnt next.
#[derive(Clone, Copy, Debug)]
struct Ended {
    first: BlockNo,
    end: BlockNo,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Fs2 {
    shape: Shape,
    open: Vec<OpenRun>,
    /// Chance that the next read goes on where a copy ends, by place of the copy.
    copies_go_on: Chances,
    /// Chance that the next read goes on where an original ends, by place of the original.
    originals_go_on: Chances,
    /// The last read's first copy, if it had one, and the last read.
    last_copy: Option<Ended>,
    last_original: Option<Ended>,
    placement: Placement,
    backlog: Backlog,
    trails: Trails,
    /// What the last choice of a copy saves, predicted.
    saving: Nanos,
    /// What the last choice went by: longer reads were misses, and no trail is longer than so many bytes.
    miss: Nanos,
    trail_max: u64,
}

impl Fs2 {
    /// For a volume of this shape.
    pub fn new(shape: &Shape) -> Fs2 {
        Fs2 {
            open: Vec::new(),
            copies_go_on: Chances::new(shape.blocks, COPY_GOES_ON),
            originals_go_on: Chances::new(shape.blocks, 0),
            last_copy: None,
            last_original: None,
            placement: Placement::new(shape),
            backlog: Backlog::default(),
            trails: Trails::new(shape.blocks),
            saving: Nanos(0),
            miss: Nanos(u64::MAX),
            trail_max: 0,
            shape: shape.clone(),
        }
    }

    /// Whether reads go on where the ones before them ended.
    fn learn(&mut self, seen: &ReadSeen<'_>) {
        let goes_on = |e: Ended, at: BlockNo| CONTINUES.contains(&(i64::from(at.0) - i64::from(e.end.0)));
        if let Some(last) = self.last_copy {
            let came_true = seen.first_copy.is_some_and(|c| goes_on(last, c));
            self.copies_go_on.learn(last.first, came_true, LEARN);
        }
        if let Some(last) = self.last_original {
            self.originals_go_on.learn(last.first, goes_on(last, seen.blocks.first()), LEARN);
        }
        let ended = |first: BlockNo| Ended { first, end: first.plus(seen.blocks.len()) };
        self.last_copy = seen.first_copy.map(ended);
        self.last_original = Some(ended(seen.blocks.first()));
    }

    /// The run that a read extends: it starts inside it or at its end; else a new one, and the oldest is closed.
    fn run_of(&mut self, blocks: BlockRange, log: &mut Log) -> usize {
        let (start, end) = (blocks.start(), blocks.end());
        if let Some(i) = self.open.iter().position(|r| (r.start..=r.end).contains(&start)) {
            self.open[i].end = self.open[i].end.max(end);
            return i;
        }
        if self.open.len() == OPEN_RUNS {
            let oldest = self.open.remove(0);
            self.close(oldest, log);
        }
        self.open.push(OpenRun { id: log.open(), start, end, late: Vec::new() });
        self.open.len() - 1
    }

    fn close(&mut self, run: OpenRun, log: &mut Log) {
        log.close(run.id);
        self.backlog.push(run.late);
    }
}

impl Policy for Fs2 {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Fs2
    }

    /// What a read costs, less what the next one saves if it goes on from there: for copies and original alike.
    fn choose(
        &mut self,
        now: Nanos,
        head: &Head,
        original: Extent,
        first: BlockNo,
        copies: &[BlockNo],
    ) -> Option<usize> {
        let block_bytes = u64::from(self.shape.block_bytes);
        let within = original.offset() - u64::from(first.0) * block_bytes;
        let positioning = head.mean_positioning_ms();
        let plain = head.read_cost_ms(now, original.sector(), original.len());
        let mut best = plain - self.originals_go_on.of(first) * positioning;
        let mut choice = None;
        for (i, &copy) in copies.iter().enumerate() {
            let sector = Sector((u64::from(copy.0) * block_bytes + within) / SECTOR_BYTES);
            let cost = head.read_cost_ms(now, sector, original.len());
            let ahead = cost - self.copies_go_on.of(copy) * positioning;
            if ahead < best {
                (best, choice) = (ahead, Some(i));
                self.saving = Nanos::from_millis_f64((plain - cost).max(0.0));
            }
        }
        self.miss = Nanos::from_millis_f64(positioning * MISS_SHARE);
        // Three quarters: the read that the trail follows is in the segment too.
        self.trail_max = head.segment_bytes() / 4 * 3;
        choice
    }

    fn saving(&self) -> Nanos {
        self.saving
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log) {
        if seen.blocks.is_empty() {
            return;
        }
        self.placement.read(seen.copy.unwrap_or(seen.blocks.first()), seen.measured);
        self.learn(seen);
        self.trails.read(seen.now.since(seen.arrived));
        if let Some(copy) = seen.copy {
            let blocks = BlockRange::at(copy, seen.blocks.len());
            let missed = seen.measured > self.miss;
            self.trails.copy_read(blocks, missed, self.trail_max, self.shape.block_bytes);
        }
        let at = self.run_of(seen.blocks, log);
        let run = &mut self.open[at];
        let length = u64::from(run.end - run.start) * u64::from(self.shape.block_bytes);
        if length > RUN_BYTES_MAX {
            // Sequential reading: what was captured goes, nothing more comes.
            log.kill(BlockRange::new(run.start, run.end));
            run.late.clear();
            return;
        }
        if !seen.wanted {
            return;
        }
        let bytes = self.shape.block_bytes as usize;
        space.lacking(seen.blocks, &mut |part| {
            if seen.data.is_nothing() {
                if run.late.len() < LATE_MAX {
                    run.late.push(part);
                }
                return;
            }
            for block in part.iter() {
                let i = (block.0 - seen.blocks.start()) as usize;
                log.push(run.id, block, seen.hashes[i], seen.data.block(i, bytes));
            }
        });
    }

    fn trail(&mut self) -> Option<BlockRange> {
        self.trails.take()
    }

    fn written(&mut self, blocks: BlockRange, lost: &[Replica]) {
        self.backlog.written(blocks, lost);
    }

    fn idle(&mut self, _: Nanos, log: &mut Log) {
        for run in std::mem::take(&mut self.open) {
            self.close(run, log);
        }
        self.backlog.look(log);
    }

    fn fetch_at(&self, idle_since: Nanos) -> Option<Nanos> {
        self.backlog.fetch_at(idle_since, self.open.iter().any(|r| !r.late.is_empty()))
    }

    fn fetch(&mut self, rested: Nanos, space: &dyn Space) -> Fetch {
        self.backlog.fetch(rested, self.shape.block_bytes, space)
    }

    fn fetched(&mut self, blocks: BlockRange, data: Brought<'_>, hashes: &[u64], log: &mut Log) {
        self.backlog.fetched(blocks, data, hashes, self.shape.block_bytes, log);
    }

    fn place(&mut self, want: u32, head: &Head, space: &dyn Space) -> Place {
        if let Some(home) = self.backlog.home(want, &self.shape, space) {
            return Place::At(home);
        }
        let place = self.placement.place(want, head, space);
        if place == Place::Nowhere {
            self.backlog.clear();
        }
        place
    }

    fn hot_region(&self) -> Option<BlockRange> {
        self.placement.hot_region()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
