//! Second copies: of what has a copy and moved the arm all the same, and of what has one in part.

use fs2_block::BlockRange;

use super::{Ended, Fs2, is_whole};
use crate::log::Log;
use crate::part::Part;
use crate::policy::{ReadSeen, Space};

/// A second copy is made where reads go on from the first one less often than this: more often than not the sequence
/// breaks there. Measured beside second copies of whatever moved the arm, not other shares.
const BREAKS: f64 = 0.5;

/// Second copies are at most this share of what is read, and those made to have what is read at once in one place as much again. Measured on
/// real traces: with what has to be made again, copies then stay below a tenth of the traffic, and what is read at random is 4 % slower than
/// without a limit.
const SECOND_SHARE: f64 = 1.0 / 22.0;

/// So much of that share is saved up at most. Measured: 4 MiB is as good, a little slower where several streams are read in turns.
const SECOND_SAVED_BYTES: u64 = 16 << 20;

/// Where fewer reads than this leave nothing open behind them, others come in between, though not right now: their order is nobody's. Where
/// fewer are served at once, it is the drive that chooses. Measured: with 0.6 or without it, the pages of a web server by four, at a
/// drive with a queue, take 5 to 9 % longer; 0.9 and 0.98 are alike.
const MOSTLY: f64 = 0.9;

impl Fs2 {
    /// What may be copied a second time at most is saved up so far.
    fn seconds_saved(&self) -> f64 {
        (SECOND_SAVED_BYTES / u64::from(self.shape.block_bytes)) as f64
    }

    /// Whether this many blocks find room in the log, and on the volume behind all that waits.
    fn has_room(&self, blocks: u32, space: &dyn Space, log: &Log) -> bool {
        let (block_bytes, blocks) = (self.shape.block_bytes as usize, blocks as usize);
        log.has_room(blocks * block_bytes) && space.room() >= log.bytes() / block_bytes + blocks
    }

    /// A read of which some has a copy and some has none: only all of it in one place can be read from there. So all of it is copied where each
    /// block may have another copy, and there is room.
    pub(super) fn is_copied_whole(
        &mut self,
        seen: &ReadSeen<'_>,
        space: &dyn Space,
        at: usize,
        log: &mut Log,
    ) -> bool {
        self.whole_room =
            (self.whole_room + f64::from(seen.touched.len()) * SECOND_SHARE).min(self.seconds_saved());
        let (blocks, mut lacking) = (seen.touched, 0);
        if blocks.len() > 1 && seen.copy.is_none() {
            space.lacking(blocks, &mut |part| lacking += part.len());
        }
        let copied = blocks.len() - lacking;
        if !(1..blocks.len()).contains(&copied)
            || self.without.has(Part::SecondCopies)
            || !is_whole(seen)
            || self.whole_room < f64::from(copied)
            || blocks.iter().any(|b| space.has_replica(b) || log.contains(b))
            || !self.has_room(blocks.len(), space, log)
        {
            return false;
        }
        self.whole_room -= f64::from(copied);
        let run = &mut self.open[at];
        run.captured += lacking;
        run.known.extend(blocks.iter().filter(|&b| space.copies(b) > 0).map(|b| b.0));
        self.push(seen, blocks, at, log);
        true
    }

    /// Whether another place of what was read is of use: in a row with what was read before, or wherever it lies, for the nearer of two can be
    /// chosen. A drive that has others to serve chooses who is next and is torn between two places, and so is a sweep over one that nobody
    /// described.
    fn second_is_of_use(&self, seen: &ReadSeen<'_>) -> bool {
        let in_order = seen.alone && self.alone >= MOSTLY;
        in_order || self.described && seen.at_once && self.at_once >= MOSTLY
    }

    /// A read that moved the arm though all of it has a copy, between reads that belong elsewhere: another copy is made in the
    /// order in which it came now. Only where there is room, and nothing to copy for the first time.
    pub(super) fn second_copy(
        &mut self,
        seen: &ReadSeen<'_>,
        before: Option<(BlockRange, Ended)>,
        space: &dyn Space,
        at: usize,
        log: &mut Log,
    ) {
        let saved = self.seconds_saved();
        self.second_room = (self.second_room + f64::from(seen.touched.len()) * SECOND_SHARE).min(saved);
        if let Some((blocks, first)) = before
            && seen.first_copy.is_some_and(|c| first.goes_on_at(c))
        {
            // It was no break. What was written meanwhile stays.
            self.second_room = (self.second_room + log.kill(blocks) as f64).min(saved);
        }
        let Some(first) = seen.first_copy else { return };
        let missed = seen.measured > self.miss;
        if !missed
            || self.without.has(Part::SecondCopies)
            || !self.second_is_of_use(seen)
            || !is_whole(seen)
            || self.second_room < f64::from(seen.touched.len())
            || self.copies_go_on.of(seen.copy.unwrap_or(first)) >= BREAKS
            || seen.touched.iter().any(|b| space.copies(b) == 0 || space.has_replica(b))
            || !self.has_room(seen.touched.len(), space, log)
        {
            return;
        }
        self.second_room -= f64::from(seen.touched.len());
        self.push(seen, seen.touched, at, log);
        self.open[at].known.extend(seen.touched.iter().map(|b| b.0));
        self.second = Some((seen.touched, Ended::after(first, seen.touched.len())));
    }
}
