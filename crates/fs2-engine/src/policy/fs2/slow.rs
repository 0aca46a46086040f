//! Places where accesses take longer than the drive's profile says: sectors that lie elsewhere, or that are read at the second
//! attempt.
//!
//! What a mean of few reads may be off by is no slowness: where the profile does not know the platter's angle, each read takes up to a turn more
//! or less, and the place that was slow by chance would be passed over, never to be seen again.

use fs2_block::{BlockNo, Nanos};

use super::places::Places;

/// How much of what was seen last is believed. Measured: 0.125 and 0.25 are alike.
const RATE: f64 = 0.25;

/// What accesses anywhere take longer, or shorter, is learnt from so many. Guess.
const MEAN_RATE: f64 = 1.0 / 256.0;

/// No access tells of more than this, in ms: it would not be forgotten for long.
const MOST: f64 = 30.0;

/// Less than this is a turn lost and won again. Measured: 1 and 2 are alike.
const LEAST: f64 = 1.0;

/// Slowness is doubted by this much of what reads anywhere differ by at the mean: a standard deviation of what is learnt at [`RATE`] is
/// half of that. Measured: with 1, wrong profiles gain a little more, and more workloads nobody chose are worse than without copies; with 0,
/// the pages of a web server in any order, with a profile that is wrong, take a tenth longer.
const DOUBT: f64 = 0.5;

/// Of these is a millisecond.
const UNITS: f64 = 256.0;

/// By place, how much longer reads took than was predicted, beyond what they do anywhere.
#[derive(Clone, Debug)]
pub(super) struct SlowPlaces {
    /// In 1/256 ms. Memory that was never learnt into is never touched.
    more: Vec<i16>,
    /// In ms, at the mean, and by how much reads differ from that.
    anywhere: f64,
    spread: f64,
    places: Places,
}

impl SlowPlaces {
    /// For a volume of so many blocks.
    pub(super) fn new(blocks: u32) -> SlowPlaces {
        let places = Places::new(blocks);
        SlowPlaces { more: vec![0; places.count()], anywhere: 0.0, spread: 0.0, places }
    }

    /// A read at `block` took so long, and was predicted to take `expected`.
    pub(super) fn took(&mut self, block: BlockNo, measured: Nanos, expected: Nanos) {
        let more = (measured.as_millis_f64() - expected.as_millis_f64()).clamp(-MOST, MOST);
        self.anywhere += (more - self.anywhere) * MEAN_RATE;
        self.spread += ((more - self.anywhere).abs() - self.spread) * MEAN_RATE;
        let at = self.places.of(block);
        let before = f64::from(self.more[at]) / UNITS;
        let now = before + (more - self.anywhere - before) * RATE;
        // At most 2 * MOST * UNITS, which fits.
        self.more[at] = (now * UNITS) as i16;
    }

    /// Ms by which a read there is expected to take longer.
    pub(super) fn more(&self, block: BlockNo) -> f64 {
        let more = f64::from(self.more[self.places.of(block)]) / UNITS;
        if more < LEAST { 0.0 } else { (more - DOUBT * self.spread).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn a_place_that_is_slow_is_known_by_a_few_reads_and_forgotten_by_some_more() {
        let mut slow = SlowPlaces::new(10_000);
        let (here, there) = (BlockNo(300), BlockNo(600));
        (0..4).for_each(|_| slow.took(here, ms(18), ms(3)));
        assert!((8.0..15.0).contains(&slow.more(here)), "{}", slow.more(here));
        assert_eq!((slow.more(BlockNo(511)) > 8.0, slow.more(there)), (true, 0.0));
        (0..12).for_each(|_| slow.took(here, ms(3), ms(3)));
        assert_eq!(slow.more(here), 0.0);
        // Beyond the volume's end, the last place.
        (0..4).for_each(|_| slow.took(BlockNo(u32::MAX), ms(9), ms(3)));
        assert!(slow.more(BlockNo(9_999)) > 1.0);
    }

    #[test]
    fn a_profile_that_is_wrong_everywhere_makes_no_place_slow() {
        let mut slow = SlowPlaces::new(1 << 20);
        (0..5000).for_each(|i| slow.took(BlockNo(i * 200), ms(9), ms(5)));
        assert_eq!(slow.more(BlockNo(5001 * 200)), 0.0);
        (0..8).for_each(|_| slow.took(BlockNo(300), ms(9), ms(5)));
        assert_eq!(slow.more(BlockNo(300)), 0.0);
        (0..8).for_each(|_| slow.took(BlockNo(300), ms(14), ms(5)));
        assert!((3.0..6.0).contains(&slow.more(BlockNo(300))), "{}", slow.more(BlockNo(300)));
    }

    /// Reads take up to 8 ms more or less than was predicted, wherever they are.
    #[test]
    fn what_differs_everywhere_makes_no_place_slow() {
        let mut slow = SlowPlaces::new(1 << 20);
        (0..2000).for_each(|i| slow.took(BlockNo(i * 256), ms(if i % 2 == 0 { 10 } else { 2 }), ms(6)));
        slow.took(BlockNo(300), ms(10), ms(6));
        slow.took(BlockNo(300), ms(10), ms(6));
        assert_eq!(slow.more(BlockNo(300)), 0.0);
        (0..8).for_each(|_| slow.took(BlockNo(300), ms(14), ms(6)));
        assert!((3.0..6.0).contains(&slow.more(BlockNo(300))), "{}", slow.more(BlockNo(300)));
    }

    #[test]
    fn times_out_of_all_reason_fit() {
        let mut slow = SlowPlaces::new(1);
        for (measured, expected) in [(u64::MAX, 0), (0, u64::MAX)] {
            (0..100).for_each(|_| slow.took(BlockNo(0), Nanos(measured), Nanos(expected)));
        }
        assert!(slow.more(BlockNo(0)) <= 2.0 * MOST);
    }
}
