//! What the drive's own read-ahead would have brought, had the next request left it the time.
//!
//! A drive reads on behind a read until the next command comes. Where several streams are read in turns, that is at
//! once, and each read jumps. So after a jump into the log some more of it is read, to nowhere: the drive's cache has
//! it when its stream goes on. Where the next request mostly comes later than that, the drive reads ahead by itself, and
//! who waits for a trail waits for nothing. Whether it helps is learnt from the times that later reads take, by place; it is
//! done only where the drive's segments are known, within one of them.

use std::collections::VecDeque;

use fs2_block::{BlockNo, BlockRange, Nanos};

use super::chances::Chances;

/// Trails whose use is watched at a time: as many as drives have segments, twice. Guess.
const WATCHED: usize = 32;

/// How fast it is learnt whether trails are used. Measured on real traces, with the next two.
const LEARN: f64 = 0.1;

/// A request that comes so soon after an answer leaves no time to read ahead: the shortest trail takes about as long.
const AT_ONCE: Nanos = Nanos(1_000_000);

/// Share of reads that must come at once. Guess: most of them.
const AT_ONCE_SHARE: f64 = 0.5;

/// Below this chance of being used a trail costs more than it brings: 1 to 3 ms against a positioning.
const LEAST_CHANCE: f64 = 0.25;

/// Above these chances, so long a trail, in bytes; the least is 48 KiB.
const LENGTHS: [(f64, u64); 2] = [(0.85, 192 << 10), (0.7, 96 << 10)];
const SHORTEST: u64 = 48 << 10;

#[derive(Clone, Debug)]
struct Watched {
    blocks: BlockRange,
    /// Where the read was that it follows.
    of: BlockNo,
    used: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Trails {
    watched: VecDeque<Watched>,
    /// Chance that a trail is used.
    used: Chances,
    next: Option<BlockRange>,
    /// Share of reads that came at once, lately, and when the last one was answered.
    at_once: f64,
    answered: Nanos,
}

impl Trails {
    /// For a volume of so many blocks.
    pub(super) fn new(blocks: u32) -> Trails {
        Trails {
            watched: VecDeque::new(),
            used: Chances::new(blocks, 128),
            next: None,
            at_once: 0.0,
            answered: Nanos(0),
        }
    }

    /// A read was asked for and answered.
    pub(super) fn read(&mut self, arrived: Nanos, answered: Nanos) {
        let at_once = f64::from(u8::from(arrived.since(self.answered) < AT_ONCE));
        self.at_once += (at_once - self.at_once) * LEARN;
        self.answered = answered;
    }

    /// A copy, `blocks`, was read; whether the arm had to move for it. No trail is longer than `bytes_max`.
    pub(super) fn copy_read(&mut self, blocks: BlockRange, missed: bool, bytes_max: u64, block_bytes: u32) {
        if let Some(w) = self.watched.iter_mut().find(|w| w.blocks.contains(blocks.first())) {
            w.used = true;
            self.used.learn(w.of, !missed, LEARN);
        }
        let chance = self.used.of(blocks.first());
        if !missed || chance < LEAST_CHANCE || self.at_once < AT_ONCE_SHARE {
            return;
        }
        let bytes = LENGTHS.iter().find(|l| chance > l.0).map_or(SHORTEST, |l| l.1).min(bytes_max);
        let trail = BlockRange::at(BlockNo(blocks.end()), (bytes / u64::from(block_bytes)) as u32);
        if trail.is_empty() {
            return;
        }
        self.next = Some(trail);
        self.watched.push_back(Watched { blocks: trail, of: blocks.first(), used: false });
        if self.watched.len() > WATCHED
            && let Some(Watched { of, used: false, .. }) = self.watched.pop_front()
        {
            self.used.learn(of, false, LEARN);
        }
    }

    /// The trail to read now.
    pub(super) fn take(&mut self) -> Option<BlockRange> {
        self.next.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB_4: u32 = 4096;

    fn busy() -> Trails {
        let mut t = Trails::new(1 << 20);
        (0..50).for_each(|i| t.read(Nanos(i), Nanos(i)));
        t
    }

    fn jump(t: &mut Trails, at: u32) -> Option<BlockRange> {
        t.copy_read(BlockRange::new(at, at + 2), true, 192 << 10, KIB_4);
        t.take()
    }

    #[test]
    fn it_follows_jumps_and_grows_where_it_is_used() {
        let mut t = busy();
        assert_eq!(jump(&mut t, 100), Some(BlockRange::new(102, 114)));
        assert_eq!(t.take(), None);
        for _ in 0..40 {
            // The stream goes on in the trail, from the drive's cache.
            t.copy_read(BlockRange::new(102, 104), false, 192 << 10, KIB_4);
            assert_eq!(t.take(), None, "no jump");
            jump(&mut t, 100);
        }
        assert_eq!(jump(&mut t, 100).map(|b| b.len()), Some(48));
        t.copy_read(BlockRange::new(100, 102), true, 64 << 10, KIB_4);
        assert_eq!(t.take().map(|b| b.len()), Some(16), "no longer than a segment allows");
        t.copy_read(BlockRange::new(100, 102), true, 0, KIB_4);
        assert_eq!(t.take(), None);
    }

    #[test]
    fn a_drive_that_has_time_reads_ahead_by_itself() {
        let mut t = busy();
        assert!(jump(&mut t, 100).is_some());
        (1..20).for_each(|i| t.read(Nanos::from_millis(2 * i), Nanos::from_millis(2 * i)));
        assert_eq!(jump(&mut t, 100), None);
    }

    #[test]
    fn it_ends_where_nobody_follows() {
        let mut t = busy();
        let trails = (0..200).filter(|i| jump(&mut t, 100 + i % 2).is_some()).count();
        assert!((WATCHED..WATCHED + 20).contains(&trails), "{trails} trails before it was learnt");
    }
}
