//! Who gets the room there is: copies of the greatest value, and the file system before all of them.

use fs2_block::BlockRange;

use super::{Standing, Volume};
use crate::config::COPY_BLOCKS_MAX;
use crate::worth::{CLEARLY, UNAPPRAISED};

/// Replicas evicted below the low mark in one event at most.
const EVICT_STEP: usize = 256;

/// Victims are looked for so many times, at different places. Guess.
const TRIES: usize = 4;

impl Volume {
    fn vacancies(&self) -> usize {
        self.capacity().saturating_sub(self.table.len())
    }

    /// How many of the log's next blocks may be copied, `want` at the most: where there is no room, over copies of less
    /// value only. What is not worth that is dropped.
    pub(super) fn admit(&mut self, want: u32) -> Option<u32> {
        if self.vacancies() >= want as usize {
            return Some(want);
        }
        while let Some((worth, n)) = self.log.next_worth(COPY_BLOCKS_MAX as usize) {
            if worth == UNAPPRAISED {
                self.unappraised += n;
                if self.unappraised >= self.capacity() {
                    self.unappraised = 0;
                    self.table.age();
                }
            }
            for _ in 0..TRIES {
                let lacking = n.saturating_sub(self.vacancies());
                if lacking == 0 {
                    break;
                }
                self.evict(lacking, worth.saturating_sub(CLEARLY));
            }
            let room = self.vacancies().min(n);
            // Half of what is read at once is no use; all of it may be more than is written at once.
            match (self.log.next_whole(room), self.log.next_whole(n)) {
                (0, 0) if room == n => return Some(n as u32),
                (0, 0) => self.log.refuse(n),
                (0, whole) => self.log.refuse(whole),
                (whole, _) => return Some(whole as u32),
            }
        }
        None
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
            // Whole regions, from where most replicas are neighbours.
            while self.free_share() < marks.low() && !self.table.is_empty() {
                let Some(first) = self.table.iter().next() else { break };
                let group = self.layout.as_ref().map_or(0, |l| l.group_of(first.replica));
                let region =
                    self.layout.as_ref().map_or(BlockRange::one(first.replica), |l| l.group_blocks(group));
                self.stats.reclaimed += self.table.remove_by_replica(region) as u64;
            }
        } else if share < marks.low() && !self.table.is_empty() {
            self.evict(EVICT_STEP, u8::MAX);
        }
        // Evicting changes it: then it is weighed again at the next event.
        self.weighed = weighed;
    }

    /// About `n` of the least valuable replicas go, of those worth less than `below`.
    fn evict(&mut self, n: usize, below: u8) {
        for range in self.table.victims(n, below) {
            self.evict_range(range);
        }
    }

    fn evict_range(&mut self, range: BlockRange) {
        if self.config.punch {
            for r in self.table.replicas_in(range) {
                self.want_punch(BlockRange::one(r.replica));
            }
        }
        self.stats.reclaimed += self.table.remove_by_replica(range) as u64;
    }
}
