//! What the drive's own read-ahead would have brought, had the next request left it the time.
//!
//! A drive reads on behind a read until the next command comes. Where several streams are read in turns, that is at
//! once, and each read jumps. So after a jump into the log some more of it is read, to nowhere: the drive's cache has
//! it when its stream goes on. How long it is follows from whether later reads come from the drive's cache, by place:
//! a share of a turn, whatever the drive brings in it; only where the drive's segments are known, and within one of them.
//!
//! Where the drive has time it reads ahead by itself, and who waits for a trail waits for nothing. Nobody can tell that
//! from one read, so it is tried: reads behind a jump are taken in windows, in most of them the way that has been faster
//! is gone, in some the other one, and the time from request to answer is compared.

use std::collections::VecDeque;

use fs2_block::{BlockNo, BlockRange, Nanos};

use super::chances::Chances;

/// Trails whose use is watched at a time: as many as drives have segments, twice. Guess.
const WATCHED: usize = 32;

/// How fast it is learnt whether trails are used. Measured on real traces, with the next two.
const LEARN: f64 = 0.1;

/// Reads of a window. Guess: some trails' lengths.
const WINDOW: u32 = 16;

/// One window in so many goes the other way. Guess.
const TRIED_EVERY: u64 = 6;

/// How fast the means of windows follow. Guess: some fifty windows make a mean.
const FOLLOW: f64 = 0.03;

/// Below this chance of being used a trail costs more than it brings: 1 to 3 ms against a positioning. Reckoned, not measured.
const LEAST_CHANCE: f64 = 0.25;

/// Of the jumps where that is so one in so many has a trail all the same, or nobody would ever know that reads go on there now. Guess.
const AGAIN_EVERY: u64 = 64;

/// How fast the mean of what trails take follows, and how many tell something. Guesses.
const MEAN_RATE: f64 = 0.1;
const TELLING: u32 = 8;

/// A drive is as fast as its profile says, unless trails show another speed by so many times: overheads and skews are none. Guess.
const BELIEVED: f64 = 1.5;

/// Above these chances, a trail is as long as the drive reads in such a share of a turn. From a simulation before anything was built: 48, 96 and
/// 192 KiB of a drive of 63 MB/s. Measured on real traces: of drives five times as fast as many bytes win half as much as what takes as long,
/// and on drives of 15,000 turns what takes as long in ms wins nothing more and makes the slowest hundredth slower.
const LENGTHS: [(f64, f64); 2] = [(0.85, 4.0 * SHORTEST), (0.7, 2.0 * SHORTEST)];
const SHORTEST: f64 = 0.096;

/// How the drive reads behind a read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// Bytes that pass its heads in a ms, as its profile has it.
    pub(super) bytes_a_ms: f64,
    /// A turn of its platters.
    pub(super) turn_ms: f64,
    /// No trail is longer.
    pub(super) bytes_max: u64,
}

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
    /// The one to read now, and the one that is to be read, of which nobody knows yet whether it was.
    next: Option<Watched>,
    asked: Option<Watched>,
    /// Jumps that had none for their place's chance.
    given_up: u64,
    trial: Trial,
    speed: Speed,
}

/// How fast the drive reads on, by the trails it read.
#[derive(Clone, Debug, Default)]
struct Speed {
    trails: u32,
    bytes: f64,
    ms: f64,
}

impl Speed {
    fn took(&mut self, bytes: u64, took: Nanos) {
        self.trails = self.trails.saturating_add(1);
        let rate = (1.0 / f64::from(self.trails)).max(MEAN_RATE);
        self.bytes += (bytes as f64 - self.bytes) * rate;
        self.ms += (took.as_millis_f64() - self.ms) * rate;
    }

    fn bytes_a_ms(&self, believed: f64) -> f64 {
        let measured = self.bytes / self.ms.max(f64::MIN_POSITIVE);
        let differs = measured > believed * BELIEVED || measured < believed / BELIEVED;
        if self.trails >= TELLING && differs { measured } else { believed }
    }
}

/// Windows with trails beside windows without.
#[derive(Clone, Debug, Default)]
struct Trial {
    /// Nothing is tried: trails pay.
    none: bool,
    /// Reads left in the present window, whether it has trails, and the time they took so far.
    left: u32,
    trails: bool,
    took: Nanos,
    windows: u64,
    /// Windows seen without and with trails, and the mean time of one, in ms.
    seen: [u64; 2],
    means: [f64; 2],
}

impl Trial {
    /// A read took so long from request to answer.
    fn read(&mut self, took: Nanos) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.took += took;
        if self.left == 0 {
            let way = usize::from(self.trails);
            self.seen[way] += 1;
            let rate = (1.0 / self.seen[way] as f64).max(FOLLOW);
            self.means[way] += (self.took.as_millis_f64() - self.means[way]) * rate;
        }
    }

    /// Whether a jump now is to have a trail.
    fn jump(&mut self) -> bool {
        if self.none {
            return true;
        }
        if self.left == 0 {
            self.windows += 1;
            let better = match self.seen {
                [_, 0] => true,
                [0, _] => false,
                _ => self.means[1] < self.means[0],
            };
            self.trails = better != self.windows.is_multiple_of(TRIED_EVERY);
            (self.left, self.took) = (WINDOW, Nanos(0));
        }
        self.trails
    }
}

impl Trails {
    /// For a volume of so many blocks.
    pub(super) fn new(blocks: u32) -> Trails {
        Trails {
            watched: VecDeque::new(),
            used: Chances::new(blocks, 128),
            next: None,
            asked: None,
            given_up: 0,
            trial: Trial::default(),
            speed: Speed::default(),
        }
    }

    /// Trails are taken for paying, and nothing is tried.
    pub(super) fn always(&mut self) {
        self.trial.none = true;
    }

    /// A read took so long from request to answer.
    pub(super) fn read(&mut self, took: Nanos) {
        self.trial.read(took);
    }

    /// The trail that was taken, of so many bytes, was read: only then its use tells something.
    pub(super) fn took(&mut self, bytes: u64, took: Nanos) {
        self.speed.took(bytes, took);
        let Some(trail) = self.asked.take() else { return };
        self.watched.push_back(trail);
        if self.watched.len() > WATCHED
            && let Some(Watched { of, used: false, .. }) = self.watched.pop_front()
        {
            self.used.learn(of, false, LEARN);
        }
    }

    /// A copy, `blocks`, was read; whether the arm had to move for it, and nobody else waits, who would have to wait for a trail. Blocks are
    /// of `block_bytes`.
    pub(super) fn copy_read(
        &mut self,
        blocks: BlockRange,
        missed: bool,
        alone: bool,
        drive: Reading,
        block_bytes: u32,
    ) {
        if let Some(w) = self.watched.iter_mut().find(|w| w.blocks.contains(blocks.first())) {
            w.used = true;
            self.used.learn(w.of, !missed, LEARN);
        }
        let chance = self.used.of(blocks.first());
        if !missed || !alone || drive.bytes_max == 0 {
            return;
        }
        if chance < LEAST_CHANCE {
            self.given_up += 1;
            if !self.given_up.is_multiple_of(AGAIN_EVERY) {
                return;
            }
        }
        if !self.trial.jump() {
            return;
        }
        let turns = LENGTHS.iter().find(|l| chance > l.0).map_or(SHORTEST, |l| l.1);
        let bytes =
            ((turns * drive.turn_ms * self.speed.bytes_a_ms(drive.bytes_a_ms)) as u64).min(drive.bytes_max);
        let length = (bytes / u64::from(block_bytes)) as u32;
        // The largest volume ends where block numbers do.
        let trail = BlockRange::new(blocks.end(), blocks.end().saturating_add(length));
        if trail.is_empty() {
            return;
        }
        self.next = Some(Watched { blocks: trail, of: blocks.first(), used: false });
    }

    /// The trail to read now.
    pub(super) fn take(&mut self) -> Option<BlockRange> {
        let next = self.next.take()?;
        Some(self.asked.insert(next).blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB_4: u32 = 4096;
    const DRIVE: Reading = Reading { turn_ms: 8.333, bytes_a_ms: 63_400.0, bytes_max: 192 << 10 };

    /// Jumps, each with as many reads behind it as end a window, that take so long with and without a trail.
    fn jumps(t: &mut Trails, n: u32, with: u64, without: u64) -> Vec<Option<BlockRange>> {
        let jump = |i: u32| {
            t.copy_read(BlockRange::new(100 + i % 2, 102 + i % 2), true, true, DRIVE, KIB_4);
            let trail = t.take();
            read(t, &trail);
            let took = if trail.is_some() { with } else { without };
            (0..WINDOW).for_each(|_| t.read(Nanos::from_millis(took)));
            trail
        };
        (0..n).map(jump).collect()
    }

    /// It is read, as fast as the profile says.
    fn read(t: &mut Trails, trail: &Option<BlockRange>) {
        if let Some(trail) = trail {
            let bytes = u64::from(trail.len() * KIB_4);
            t.took(bytes, Nanos::from_millis_f64(bytes as f64 / DRIVE.bytes_a_ms));
        }
    }

    fn share(trails: &[Option<BlockRange>]) -> f64 {
        trails.iter().flatten().count() as f64 / trails.len() as f64
    }

    #[test]
    fn the_faster_way_is_gone_and_the_other_tried() {
        let mut t = Trails::new(1 << 20);
        // Used, or the chance of that would end them.
        let used = |t: &mut Trails| (0..100).for_each(|_| t.used.learn(BlockNo(100), true, LEARN));
        used(&mut t);
        let faster = share(&jumps(&mut t, 60, 1, 3));
        assert!((0.7..0.9).contains(&faster), "{faster}");
        used(&mut t);
        jumps(&mut t, 600, 3, 1);
        used(&mut t);
        let slower = share(&jumps(&mut t, 60, 3, 1));
        assert!((0.1..0.3).contains(&slower), "{slower}");
    }

    /// After 2^32 windows: half a year of 300 a second.
    #[test]
    fn what_is_known_of_the_ways_stays_known() {
        let mut t = Trails::new(1 << 20);
        (0..100).for_each(|_| t.used.learn(BlockNo(100), true, LEARN));
        jumps(&mut t, 12, 1, 3);
        (t.trial.windows, t.trial.seen) = (u32::MAX.into(), [u32::MAX.into(); 2]);
        let faster = share(&jumps(&mut t, 12, 1, 3));
        assert!((0.7..0.9).contains(&faster), "{faster}: {:?}", t.trial);
    }

    #[test]
    fn they_grow_where_they_are_used() {
        let mut t = Trails::new(1 << 20);
        let first = jumps(&mut t, 1, 1, 3);
        assert_eq!(first, [Some(BlockRange::new(102, 114))]);
        for _ in 0..40 {
            jumps(&mut t, 1, 1, 3);
            // The stream goes on in the trail, from the drive's cache.
            t.copy_read(BlockRange::new(103, 104), false, true, DRIVE, KIB_4);
            assert_eq!(t.take(), None, "no jump");
        }
        let longest = jumps(&mut t, 10, 1, 3).into_iter().flatten().map(|b| b.len()).max();
        assert_eq!(longest, Some(48));
        let mut limited = |bytes_max: u64| {
            let mut most = None;
            for _ in 0..20 {
                t.copy_read(BlockRange::new(100, 102), true, true, Reading { bytes_max, ..DRIVE }, KIB_4);
                most = most.max(t.take().map(|b| b.len()));
                (0..WINDOW).for_each(|_| t.read(Nanos(0)));
            }
            most
        };
        assert!(limited(20 << 10).is_some_and(|n| n <= 5), "no longer than a segment allows");
        assert_eq!(limited(0), None);
    }

    /// As the profile has it, unless trails take clearly more or less.
    #[test]
    fn they_take_as_long_on_any_drive() {
        let mut t = Trails::new(1 << 20);
        let drive = Reading { turn_ms: 8.333, bytes_a_ms: 256_000.0, bytes_max: 2 << 20 };
        let length = |t: &mut Trails| {
            (0..WINDOW).for_each(|_| t.read(Nanos(0)));
            t.copy_read(BlockRange::new(100, 102), true, true, drive, KIB_4);
            t.take().map(|b| b.len())
        };
        assert_eq!(length(&mut t), Some(49));
        for (bytes_a_ms, blocks) in [(200_000.0, 49), (64_000.0, 12), (1_024_000.0, 199)] {
            t.speed = Speed::default();
            for n in 0..TELLING {
                assert_eq!(t.speed.bytes_a_ms(drive.bytes_a_ms), drive.bytes_a_ms, "{n} trails");
                t.took((bytes_a_ms * 2.0) as u64, Nanos::from_millis(2));
            }
            t.trial.left = 0;
            t.trial.none = true;
            assert_eq!(length(&mut t), Some(blocks), "{bytes_a_ms}");
        }
        // Overheads too small to measure are no reason for more than a segment.
        (0..100).for_each(|_| t.took(1 << 20, Nanos(0)));
        assert_eq!(length(&mut t), Some(512));
    }

    #[test]
    fn they_end_where_block_numbers_do() {
        let mut t = Trails::new(u32::MAX);
        let mut longest = 0;
        for _ in 0..4 {
            t.copy_read(BlockRange::new(u32::MAX - 4, u32::MAX - 2), true, true, DRIVE, KIB_4);
            longest = longest.max(t.take().map_or(0, |b| b.len()));
            (0..WINDOW).for_each(|_| t.read(Nanos(0)));
        }
        assert_eq!(longest, 2);
    }

    #[test]
    fn they_end_where_nobody_follows() {
        let mut t = Trails::new(1 << 20);
        let trails = jumps(&mut t, 200, 1, 3).into_iter().flatten().count();
        assert!((WATCHED..WATCHED + 20).contains(&trails), "{trails} trails before it was learnt");
        // Now reads go on there: that is found out, and not by a trail of before.
        t.watched.clear();
        for _ in 0..200 * AGAIN_EVERY {
            jumps(&mut t, 1, 1, 3);
            t.copy_read(BlockRange::new(103, 104), false, true, DRIVE, KIB_4);
        }
        let after = share(&jumps(&mut t, 10, 1, 3));
        assert!(after > 0.7, "{after}: {:?}", t.trial);
    }

    /// Others come between, and no trail is read: that none was used says nothing.
    #[test]
    fn what_was_not_read_is_not_judged() {
        let mut t = Trails::new(1 << 20);
        for alone in [false, true] {
            for _ in 0..500 {
                t.copy_read(BlockRange::new(100, 102), true, alone, DRIVE, KIB_4);
                assert!(alone || t.next.is_none(), "it would not be read");
                // Taken, and dropped.
                t.take();
                t.copy_read(BlockRange::new(103, 104), true, alone, DRIVE, KIB_4);
            }
        }
        assert!(share(&jumps(&mut t, 30, 1, 3)) > 0.7);
    }
}
