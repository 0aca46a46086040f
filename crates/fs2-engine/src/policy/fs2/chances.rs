//! Chances learnt by place: one number for a stretch of blocks.

use fs2_block::BlockNo;

use super::places::Places;

/// By place, the share of cases in which something came true, lately.
#[derive(Clone, Debug)]
pub(super) struct Chances {
    /// In 1/255, as the difference from `start`: memory that was never learnt into is never touched.
    moved: Vec<u8>,
    start: u8,
    places: Places,
}

impl Chances {
    /// For a volume of so many blocks, all at `start`/255.
    pub(super) fn new(blocks: u32, start: u8) -> Chances {
        let places = Places::new(blocks);
        Chances { moved: vec![0; places.count()], start, places }
    }

    /// From 0 to 1.
    pub(super) fn of(&self, block: BlockNo) -> f64 {
        f64::from(self.moved[self.places.of(block)] ^ self.start) / 255.0
    }

    /// It came true, or not; `rate` is how far one case moves the chance.
    pub(super) fn learn(&mut self, block: BlockNo, came_true: bool, rate: f64) {
        let at = self.places.of(block);
        let before = self.moved[at] ^ self.start;
        if before == if came_true { u8::MAX } else { 0 } {
            return;
        }
        let p = f64::from(before);
        let moved = p + (if came_true { 255.0 } else { 0.0 } - p) * rate;
        // Rounded towards the target, so that small steps are not lost.
        let moved = moved.clamp(0.0, 255.0);
        let below = moved as u8;
        let up = came_true && f64::from(below) < moved;
        self.moved[at] = (below + u8::from(up)) ^ self.start;
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
        (0..200).for_each(|_| c.learn(here, true, 0.05));
        assert_eq!((c.of(here), c.of(there)), (1.0, 128.0 / 255.0));
        (0..200).for_each(|_| c.learn(BlockNo(511), false, 0.05));
        assert_eq!(c.of(here), 0.0);
        // Beyond the volume's end, the last place.
        c.learn(BlockNo(u32::MAX), true, 1.0);
        assert_eq!(c.of(BlockNo(9_999)), 1.0);
    }
}
