//! What was read and had no copy: what copies of it would have saved so far. Where there is no room, what is read again and again so
//! becomes worth more than copies nobody reads, and what is read once does not.

use fs2_table::content_hash;
use fs2_table::value::{OCTAVE, sum};

/// What is read for the first time may never be read again: it counts for a half. Measured: where it counts for a whole, larger files wait for
/// more than twelve repeats behind copies of small ones that were read once, with a half for six; real traces with room for a third of what
/// they read are up to 6 % slower with a half, and with an eighth up to 24 %.
const UNPROVEN: u8 = OCTAVE;

/// Of what was read in a row the first block is remembered, and each that is a multiple of this. Guess.
const STRIDE_BLOCKS: u32 = 8;

/// Remembered for each replica that there may be, and at most: 16 MiB. A quarter of what the learner may take.
const SLOTS: usize = 4;
const SLOTS_MAX: usize = 1 << 22;
const SLOTS_MIN: usize = 1 << 10;
/// A block may be in any of so many slots. Guess.
const BUCKET: usize = 4;
/// In a slot, below 23 bits of the block's hash: it came again. Below that is the value.
const AGAIN: u32 = 1 << 8;

/// Values age a step when so many times what the volume may hold came again while there was not room for all that waits: what comes for the
/// first time, as all of a backup does, ages nothing. Measured: with a quarter, what fills the room takes over from what is no longer read a
/// third sooner, and real traces with room for a third of what they read are up to 7 % slower.
const AGAIN_A_STEP: usize = 1;

/// Weight of a block in the share that comes again: 64 MiB of blocks of 4 KiB. A guess.
const SHARE_RATE: f64 = 1.0 / 16384.0;

/// What is known of a block that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    /// What a copy is worth: what it would have saved so far.
    pub(super) value: u8,
    /// It had come before.
    pub(super) again: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Sightings {
    /// By a hash of the block. Empty before the first.
    slots: Vec<u32>,
    /// The last block of the present run.
    last: Option<(u32, Sighting)>,
    /// Blocks that came again while there was not room for all that waits, since values aged.
    again: usize,
    /// The share of what was read that had been read before, lately.
    share: f64,
}

impl Sightings {
    /// A run ends.
    pub(super) fn end(&mut self) {
        self.last = None;
    }

    /// A block of the present run was read that has no copy, and a copy would have saved `gain`, on a volume that may hold so many
    /// replicas and is `full` or not.
    pub(super) fn read(&mut self, block: u32, gain: u8, capacity: usize, full: bool) -> Sighting {
        let sighting = match self.last {
            Some((last, same)) if last + 1 == block && !block.is_multiple_of(STRIDE_BLOCKS) => same,
            _ => self.meet(block, gain, capacity),
        };
        self.last = Some((block, sighting));
        self.again += usize::from(sighting.again && full);
        self.came(sighting.again);
        sighting
    }

    /// A block was read that has no copy, and that had been read before or not.
    pub(super) fn came(&mut self, again: bool) {
        self.share += (f64::from(u8::from(again)) - self.share) * SHARE_RATE;
    }

    /// The share of those that had.
    pub(super) fn share_again(&self) -> f64 {
        self.share
    }

    fn meet(&mut self, block: u32, gain: u8, capacity: usize) -> Sighting {
        if self.slots.is_empty() {
            let slots = capacity.saturating_mul(SLOTS).clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two();
            self.slots = vec![0; slots];
        }
        let hash = content_hash(0, &block.to_le_bytes());
        let tag = (hash >> 41) as u32;
        let at = hash as usize & (self.slots.len() - 1) & !(BUCKET - 1);
        let bucket = &mut self.slots[at..at + BUCKET];
        if let Some(slot) = bucket.iter_mut().find(|s| **s != 0 && **s >> 9 == tag) {
            let value = sum(*slot as u8, gain);
            *slot = tag << 9 | AGAIN | u32::from(value);
            return Sighting { value, again: true };
        }
        let first = gain.saturating_sub(UNPROVEN);
        let sighting = Sighting { value: first, again: false };
        // What came once is the first to give up its place, and what is read no more in the end.
        let Some(least) = bucket.iter_mut().min_by_key(|s| (**s != 0, **s & AGAIN, **s as u8)) else {
            return sighting;
        };
        let once = *least & AGAIN == 0;
        if *least == 0 || once && (*least as u8) < first {
            *least = tag << 9 | u32::from(first);
        } else if once {
            bucket.iter_mut().filter(|s| **s & AGAIN == 0).for_each(|s| *s = fallen(*s, OCTAVE));
        } else {
            *least = fallen(*least, 1);
        }
        sighting
    }

    /// Whether values are to age by a step, for a volume that may hold so many replicas; they have here.
    pub(super) fn age(&mut self, capacity: usize) -> bool {
        let due = self.again >= capacity.saturating_mul(AGAIN_A_STEP).max(1);
        if due {
            self.again = 0;
            for slot in &mut self.slots {
                *slot = fallen(*slot, OCTAVE / 4);
            }
        }
        due
    }
}

/// The slot with a lower value; empty where nothing is left of it.
fn fallen(slot: u32, by: u8) -> u32 {
    let value = (slot as u8).saturating_sub(by);
    if value > 0 { slot & !0xff | u32::from(value) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_worth_more() {
        let mut s = Sightings::default();
        let mut run = |from: u32, len: u32| {
            let values: Vec<u8> = (from..from + len).map(|b| s.read(b, 50, 1000, false).value).collect();
            s.end();
            values
        };
        assert_eq!(run(101, 6), [42; 6]);
        assert_eq!(run(101, 6), [55; 6]);
        assert_eq!(run(101, 6), [61; 6], "two and a half");
        assert_eq!(run(103, 6), [42, 65, 65, 65, 65, 65], "the rest of it by the multiple of eight");
        assert_eq!(run(200, 1), [42]);
    }

    #[test]
    fn what_comes_once_ages_nothing() {
        let mut s = Sightings::default();
        let mut tour = |from: u32, n: u32, full: bool| {
            for i in 0..n {
                s.read(from + 3 * i, 90, 1000, full);
            }
            s.age(1000)
        };
        assert!(!tour(0, 40_000, true));
        // 500 blocks, over and over; some share their place with others.
        let aged = (0..9).filter(|_| tour(1_000_000, 500, true)).count();
        assert!((2..=4).contains(&aged), "{aged}");
        assert!((0..9).all(|_| !tour(1_000_000, 500, false)), "there is room");
    }

    #[test]
    fn places_are_shared() {
        let mut s = Sightings::default();
        let mut tour =
            |from: u32| (0..1000).filter(|i| s.read(from + 5 * i, 90, 1000, false).value > 82).count();
        // As many as there may be replicas, and three times as many once.
        assert_eq!(tour(0), 0);
        assert!(tour(0) > 950);
        assert_eq!((1..4).map(|i| tour(10_000 * i)).sum::<usize>(), 0);
        let known = tour(0);
        assert!(known > 900, "{known}");
        // Behind what takes longer a block and came once.
        let mut s = Sightings::default();
        for i in 0..10_000 {
            s.read(1_000_000 + 3 * i, 90, 1000, false);
        }
        let known = (0..20).map(|_| (0..1000).filter(|i| s.read(5 * i, 50, 1000, false).value > 42).count());
        let known: Vec<usize> = known.collect();
        assert!(known[19] > 900, "{known:?}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut s = Sightings::default();
        s.read(0, 1, usize::MAX, false);
        assert_eq!(s.slots.len() * 4, 16 << 20);
    }
}
