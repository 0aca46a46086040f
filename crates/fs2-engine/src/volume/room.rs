//! Who gets the room there is: copies of the greatest value, and the file system before all of them.

use fs2_block::{BlockNo, BlockRange, Permille};

use super::{Standing, Volume};
use crate::config::COPY_BLOCKS_MAX;
use crate::worth::{CLEARLY, UNAPPRAISED};

/// Replicas evicted below the low mark in one event, and what lies in a row with the last of them. Guess.
const EVICT_STEP: usize = 256;

/// Victims are looked for so many times, at different places. Guess.
const TRIES: usize = 4;

impl Volume {
    pub(super) fn vacancies(&self) -> usize {
        self.capacity().saturating_sub(self.table.len())
    }

    /// How many of the log's next blocks may be copied, `want` at the most: where there is no room, over copies of clearly less
    /// value only. What is not worth that is dropped.
    pub(super) fn admit(&mut self, want: u32) -> Option<u32> {
        if self.vacancies() >= want as usize {
            return Some(want);
        }
        let most = COPY_BLOCKS_MAX as usize;
        // By value, what was looked for in vain among copies worth less: so much room and no more.
        let mut bound = [usize::MAX; 1 << u8::BITS];
        while let Some(next) = self.log.next_rows(most) {
            // Half of a row is no use; a longer one than is written at a time comes in several writes.
            let (row, all) = (next.first.min(most), next.all.min(most));
            let below = next.worth.saturating_sub(CLEARLY);
            let (vacant, over) = (self.vacancies(), self.table.len().saturating_sub(self.capacity()));
            let (mut room, mut victims) = (vacant, Vec::new());
            for _ in 0..TRIES {
                if room >= row || row > bound[usize::from(below)] {
                    break;
                }
                victims = self.victims(all - vacant + over, below);
                let found: usize = victims.iter().map(|v| v.len() as usize).sum();
                room = vacant + found.saturating_sub(over);
            }
            if room < row {
                bound[..=usize::from(below)].iter_mut().for_each(|b| *b = room.min(*b));
                self.log.refuse(next.first);
                continue;
            }
            if next.worth == UNAPPRAISED {
                self.age_by(victims.iter().map(|v| v.len() as usize).sum());
            }
            victims.into_iter().for_each(|v| self.evict_range(v));
            let whole = self.log.next_whole(self.vacancies().min(all));
            return Some(if whole > 0 { whole } else { row } as u32);
        }
        None
    }

    /// So many copies gave way to others of which nobody said what they are worth: values age by as many as the volume may hold.
    fn age_by(&mut self, evicted: usize) {
        self.unappraised += evicted;
        if self.unappraised >= self.capacity() {
            self.unappraised = 0;
            self.table.age();
        }
    }

    /// Free share against the watermarks, after every event.
    pub(super) fn step_reclaim(&mut self) {
        if self.standing != Standing::Active {
            return;
        }
        if self.policy.ages() {
            self.table.age();
        }
        while let Some(range) = self.policy.evict() {
            self.evict_range(range);
        }
        // Everything below follows from these two.
        let weighed = self.live.as_ref().map(|l| (l.free_estimate(), self.table.len()));
        if weighed == self.weighed {
            return;
        }
        let marks = self.config.watermarks;
        let share = self.free_share();
        if share < marks.low() {
            self.copying = false;
        } else if share >= marks.high() {
            self.copying = true;
        }
        if share < marks.critical() {
            let mut from = 0;
            while self.free_share() < marks.low()
                && let Some(regions) = self.regions_below(marks.low(), from)
            {
                // At once: for each range the table may go through all that it knows.
                self.evict_range(regions);
                from = regions.end();
            }
        } else if share < marks.low() && !self.table.is_empty() {
            self.evict(EVICT_STEP, u8::MAX);
        }
        // Evicting changes it: then it is weighed again at the next event.
        self.weighed = weighed;
    }

    /// Whole regions, from where most replicas are neighbours: so many behind `from` that without their replicas the free share is no less
    /// than this, as far as there are any.
    fn regions_below(&self, share: Permille, from: u32) -> Option<BlockRange> {
        let (mut start, mut end, mut gone) = (None, from, 0);
        while self.free_share_without(gone) < share
            && let Some(next) = self.table.replica_runs_in(BlockRange::new(end, u32::MAX)).next()
        {
            let region = self.layout.as_ref().map_or(next, |l| l.group_blocks(l.group_of(next.first())));
            gone += self.table.count_replicas_in(region);
            start = start.or(Some(region.start()));
            end = region.end();
        }
        start.map(|start| BlockRange::new(start, end))
    }

    /// About `n` of the least valuable replicas go, of those worth less than `below`.
    fn evict(&mut self, n: usize, below: u8) {
        for range in self.victims(n, below) {
            self.evict_range(range);
        }
    }

    /// The least valuable replicas, without those that are all that is left of what they are of.
    fn victims(&mut self, n: usize, below: u8) -> Vec<BlockRange> {
        let mut victims = self.table.victims(n, below);
        if !self.unreadable.is_empty() {
            victims.retain(|&range| self.all_that_is_left(range).is_empty());
        }
        victims
    }

    /// Replicas in `range` of originals that the disk does not read.
    fn all_that_is_left(&self, range: BlockRange) -> Vec<BlockNo> {
        if self.unreadable.is_empty() {
            return Vec::new();
        }
        let entries = self.table.replicas_in(range).into_iter();
        entries.filter(|e| self.unreadable.contains(e.original.0)).map(|e| e.replica).collect()
    }

    /// The replicas in `range` go, but for what is all that is left.
    fn evict_range(&mut self, range: BlockRange) {
        let mut start = range.start();
        for kept in self.all_that_is_left(range) {
            self.evict_all(BlockRange::new(start, kept.0));
            start = kept.0 + 1;
        }
        self.evict_all(BlockRange::new(start, range.end()));
    }

    fn evict_all(&mut self, range: BlockRange) {
        if range.is_empty() {
            return;
        }
        if self.config.punch {
            let runs: Vec<BlockRange> = self.table.replica_runs_in(range).collect();
            runs.into_iter().for_each(|run| self.want_punch(run));
        }
        self.stats.reclaimed += self.table.remove_by_replica(range) as u64;
    }
}
