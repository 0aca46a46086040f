//! Chances learnt by place: one number for a stretch of blocks.

use fs2_block::BlockNo;

/// Blocks that share a chance, on volumes of up to 4 TiB of 4 KiB blocks. Measured on real traces: 64 to 1,024 are alike.
const PLACE_BLOCKS: u32 = 256;

/// Places at most: a byte each.
const PLACES_MAX: u32 = 1 << 22;

/// By place, the share of cases in which something came true, lately.
#[derive(Clone, Debug)]
pub(super) struct Chances {
    /// In 1/255, as the difference from `start`: memory that was never learnt into is never touched.
    moved: Vec<u8>,
    start: u8,
    /// Of 2 to this blocks is a place.
    place_shift: u32,
}

impl Chances {
    /// For a volume of so many blocks, all at `start`/255.
    pub(super) fn new(blocks: u32, start: u8) -> Chances {
        let place_blocks = PLACE_BLOCKS.max(blocks.div_ceil(PLACES_MAX).next_power_of_two());
        let place_shift = place_blocks.ilog2();
        Chances { moved: vec![0; (blocks >> place_shift) as usize + 1], start, place_shift }
    }

    fn place(&self, block: BlockNo) -> usize {
        ((block.0 >> self.place_shift) as usize).min(self.moved.len() - 1)
    }

    /// From 0 to 1.
    pub(super) fn of(&self, block: BlockNo) -> f64 {
        f64::from(self.moved[self.place(block)] ^ self.start) / 255.0
    }

    /// It came true, or not; `rate` is how far one case moves the chance.
    pub(super) fn learn(&mut self, block: BlockNo, came_true: bool, rate: f64) {
        let at = self.place(block);
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

    #[test]
    fn the_largest_volume_takes_four_mebibytes() {
        assert!(Chances::new(u32::MAX, 0).moved.len() <= PLACES_MAX as usize + 1);
    }
}
