//! Chances learnt by place: one number for a stretch of blocks.

use fs2_block::BlockNo;

use super::places::Places;

/// How far one case anywhere moves what new places begin with. Measured on real traces: a 64th is alike, with a 1024th half of it is won.
const RATE_OF_ALL: f64 = 1.0 / 256.0;

/// By place, the share of cases in which something came true, lately.
#[derive(Clone, Debug)]
pub(super) struct Chances {
    /// In 1/255, as the difference from `start`: memory that was never learnt into is never touched.
    moved: Vec<u8>,
    start: u8,
    /// The share of cases anywhere, in 1/255, with which a place begins that nothing was learnt of.
    all: f64,
    places: Places,
}

impl Chances {
    /// For a volume of so many blocks. All begin at `start`/255, and then at what others turned out to have.
    pub(super) fn new(blocks: u32, start: u8) -> Chances {
        let places = Places::new(blocks);
        Chances { moved: vec![0; places.count()], start, all: f64::from(start), places }
    }

    /// From 0 to 1.
    pub(super) fn of(&self, block: BlockNo) -> f64 {
        self.of_place(self.places.of(block)) / 255.0
    }

    fn of_place(&self, at: usize) -> f64 {
        match self.moved[at] {
            0 => self.all,
            moved => f64::from(moved ^ self.start),
        }
    }

    /// It came true, or not; `rate` is how far one case moves the chance.
    pub(super) fn learn(&mut self, block: BlockNo, came_true: bool, rate: f64) {
        let at = self.places.of(block);
        let target = if came_true { 255.0 } else { 0.0 };
        let p = self.of_place(at);
        self.all += (target - self.all) * RATE_OF_ALL;
        if p == target {
            return;
        }
        let moved = p + (target - p) * rate;
        // Rounded towards the target, so that small steps are not lost.
        let moved = moved.clamp(0.0, 255.0);
        let below = moved as u8;
        let up = came_true && f64::from(below) < moved;
        let learnt = (below + u8::from(up)) ^ self.start;
        // 0 says that nothing was learnt.
        self.moved[at] = learnt.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_learns_and_its_neighbours_do_not() {
        let mut c = Chances::new(10_000, 128);
        let (here, there) = (BlockNo(300), BlockNo(600));
        assert_eq!(c.of(here), 128.0 / 255.0);
        c.learn(there, true, 0.0);
        (0..200).for_each(|_| c.learn(here, true, 0.05));
        assert_eq!((c.of(here), c.of(there)), (1.0, 129.0 / 255.0));
        (0..200).for_each(|_| c.learn(BlockNo(511), false, 0.05));
        assert_eq!(c.of(here), 0.0);
        // Beyond the volume's end, the last place.
        c.learn(BlockNo(u32::MAX), true, 1.0);
        assert_eq!(c.of(BlockNo(9_999)), 1.0);
    }

    #[test]
    fn a_new_place_begins_with_what_others_have() {
        let mut c = Chances::new(1 << 20, 128);
        let new = BlockNo(1 << 19);
        assert_eq!(c.of(new), 128.0 / 255.0);
        // Each place sees one case.
        (0..1000).for_each(|n| c.learn(BlockNo(256 * n), false, 0.05));
        assert!(c.of(new) < 0.02, "{}", c.of(new));
        // From there on it learns by itself.
        let before = c.of(new);
        c.learn(new, true, 0.05);
        assert!((c.of(new) - before - 0.05).abs() < 0.01, "{} after {before}", c.of(new));
        (0..1000).for_each(|n| c.learn(BlockNo(256 * n), true, 0.05));
        assert!(c.of(new) < 0.1 && c.of(BlockNo((1 << 20) - 1)) > 0.95);
    }

    #[test]
    fn a_place_that_has_learnt_what_all_begin_with_keeps_it() {
        let mut c = Chances::new(10_000, 128);
        let here = BlockNo(0);
        c.learn(here, true, 1.0);
        // Back at one half.
        c.learn(here, false, 127.0 / 255.0);
        (0..2000).for_each(|_| c.learn(BlockNo(5_000), false, 0.05));
        assert!((c.of(here) - 0.5).abs() < 0.01, "{}", c.of(here));
    }
}
