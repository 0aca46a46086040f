//! Stretches of sectors that lie elsewhere, for drives known by logical addresses only.
//!
//! Real drives remap single sectors near by, and some whole tracks. Which is not known here; a stretch
//! anywhere on the drive is what hurts those most who believe in the addresses.

use fs2_block::Nanos;

use crate::controller::RemapSpec;
use crate::seek::SeekCurve;

/// Sectors of a stretch, 256 KiB. Guess: so that a long read meets one every 13 MB at 2 %.
const STRETCH: u64 = 512;

#[derive(Clone, Debug)]
pub(crate) struct Remap {
    spec: RemapSpec,
    /// Whole stretches of the drive.
    stretches: u64,
    seek: SeekCurve,
}

impl Remap {
    pub(crate) fn new(spec: RemapSpec, capacity: u64, seek: &SeekCurve) -> Remap {
        Remap { spec, stretches: (capacity / STRETCH).max(1), seek: seek.clone() }
    }

    fn hash(&self, stretch: u64, salt: u64) -> u64 {
        // SplitMix64 (public domain, Vigna).
        let mut z = self.spec.seed.wrapping_add((2 * stretch + salt + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn moved(&self, stretch: u64) -> bool {
        self.hash(stretch, 0) % 1000 < u64::from(self.spec.permille)
    }

    /// Where a sector really lies.
    pub(crate) fn real(&self, sector: u64) -> u64 {
        let (stretch, place) = (sector / STRETCH, sector % STRETCH);
        if self.moved(stretch) { self.hash(stretch, 1) % self.stretches * STRETCH + place } else { sector }
    }

    /// How many sectors from this one, at most `limit`, lie right behind each other.
    pub(crate) fn run(&self, sector: u64, limit: u64) -> u64 {
        let mut end = (sector / STRETCH + 1) * STRETCH;
        if !self.moved(sector / STRETCH) {
            while end - sector < limit && !self.moved(end / STRETCH) {
                end += STRETCH;
            }
        }
        limit.min(end - sector)
    }

    /// Time of the arm between two places.
    pub(crate) fn seek(&self, from: u64, to: u64) -> Nanos {
        self.seek.nanos(from.abs_diff(to))
    }
}
