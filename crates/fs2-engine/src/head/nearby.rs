//! What the drive's cache has that nobody told of, by how lately something nearby was read.
//!
//! A drive keeps what it read, and what lies behind that: how much of it, a profile may not know. What a read takes that the profile takes
//! for a miss is learnt by how many reads ago the same 128 KiB or the ones before were read, in powers of two, beside what one takes that was not
//! near any of them.

use fs2_block::Sector;

/// What is near: 128 KiB. Measured: on made-up mixtures all up to 1 MiB is alike, and 4 MiB wins less; on recorded traces' repeats 1 MiB wins 1 %
/// more, but a made-up cvs loses 10 % by it, and 3 by this.
const REGION_SECTORS: u64 = 1 << 8;

/// Regions that are remembered, the last one of those that share a place. A guess: more than any drive's cache has segments.
const REGIONS: usize = 1 << 10;

/// Powers of two up to which reads are counted: as many as regions are remembered.
const AGES: usize = 11;

/// Weight of a read in the mean of its age. Measured likewise: a third of it wins 1 to 2 % less.
const RATE: f64 = 1.0 / 16.0;

/// Less of the time than this and most are in the cache; more is the platter's chance. Measured likewise: with 0.75 made-up repeats take 1 % less and a
/// small drive's recorded ones 1.6 % more.
const MOSTLY: f64 = 0.5;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Nearby {
    /// Regions and the read that was there, by the number of the region.
    regions: Box<[(u64, u64)]>,
    reads: u64,
    /// What reads took of what they were expected to, by their age.
    took: [f64; AGES],
    /// The same of those that were near none.
    far: f64,
}

impl Nearby {
    pub(super) fn new() -> Nearby {
        let regions = vec![(u64::MAX, 0); REGIONS].into();
        Nearby { regions, reads: 0, took: [1.0; AGES], far: 1.0 }
    }

    fn region(sector: Sector) -> u64 {
        sector.0 / REGION_SECTORS
    }

    /// In powers of two, how many reads ago something near was read; `None` if that is longer ago than is remembered.
    fn age(&self, sector: Sector) -> Option<usize> {
        let region = Nearby::region(sector);
        let at = |region: u64| {
            let (of, at) = self.regions[region as usize % REGIONS];
            (of == region).then_some(at)
        };
        let last = at(region).max(region.checked_sub(1).and_then(at))?;
        Some((self.reads - last).ilog2() as usize).filter(|&age| age < AGES)
    }

    /// What a read there takes of what a miss would.
    pub(super) fn share(&self, sector: Sector) -> f64 {
        let share = self.age(sector).map_or(1.0, |age| self.took[age] / self.far);
        if share < MOSTLY { share } else { 1.0 }
    }

    /// A write began there: what a drive has of that it may throw away. Of a long write the rest is not looked at.
    pub(super) fn written(&mut self, sector: Sector) {
        let region = Nearby::region(sector);
        for region in [Some(region), region.checked_sub(1)].into_iter().flatten() {
            let slot = &mut self.regions[region as usize % REGIONS];
            if slot.0 == region {
                slot.0 = u64::MAX;
            }
        }
    }

    /// So many sectors were read, and took so much of what a miss is expected to; `None` if no miss was expected.
    pub(super) fn read(&mut self, sector: Sector, sectors: u64, took: Option<f64>) {
        if let Some(took) = took {
            let mean = match self.age(sector) {
                Some(age) => &mut self.took[age],
                None => &mut self.far,
            };
            *mean += (took - *mean) * RATE;
        }
        for region in [sector.0, sector.0 + sectors.saturating_sub(1)].map(|s| Nearby::region(Sector(s))) {
            self.regions[region as usize % REGIONS] = (region, self.reads);
        }
        self.reads += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: u64 = REGION_SECTORS;

    #[test]
    fn what_was_read_lately_is_learnt_to_be_quick_for_as_long_as_the_cache_lasts() {
        let mut nearby = Nearby::new();
        assert_eq!(nearby.share(Sector(7)), 1.0);
        // A cache of 64 segments: what was read 63 reads ago is quick, what was 100 ago is not.
        let mut scattered = (0..u64::MAX).map(|i| Sector((1000 + i * 7919) * REGION));
        for round in 0..100 {
            let (young, old) = (Sector(round * 4 * REGION), Sector((round * 4 + 2) * REGION));
            nearby.read(old, 8, Some(0.8));
            (0..40).for_each(|_| nearby.read(scattered.next().unwrap(), 8, Some(0.8)));
            nearby.read(young, 8, Some(0.8));
            (0..40).for_each(|_| nearby.read(scattered.next().unwrap(), 8, Some(0.8)));
            // What lies behind it.
            nearby.read(Sector(young.0 + 100), 8, Some(0.01));
            nearby.read(Sector(old.0 + 100), 8, Some(0.8));
        }
        let near = Sector(1 << 40);
        let later = |n: u64| {
            let mut nearby = nearby.clone();
            nearby.read(near, 8, Some(0.8));
            (0..n).for_each(|i| nearby.read(Sector((2_000_000 + i * 7919) * REGION), 8, Some(0.8)));
            (
                nearby.share(near),
                nearby.share(Sector(near.0 + REGION)),
                nearby.share(Sector(near.0 + 2 * REGION)),
            )
        };
        let (same, behind, far) = later(40);
        assert!(same < 0.1 && behind == same && far == 1.0, "{same} {behind} {far}");
        assert!(later(80).0 > 0.9);
        assert_eq!(later(5000).0, 1.0, "no longer remembered");
    }

    #[test]
    fn what_tells_nothing_is_not_learnt_and_long_reads_end_somewhere_else() {
        let mut nearby = Nearby::new();
        nearby.read(Sector(1 << 30), 8, Some(0.8));
        (0..200).for_each(|i| nearby.read(Sector(i * 256), 256, None));
        assert_eq!(nearby.share(Sector(199 * 256)), 1.0);
        // The end of a long read is near, too.
        nearby.read(Sector(1 << 34), 64 * REGION, Some(0.8));
        (0..100).for_each(|_| nearby.read(Sector((1 << 34) + 63 * REGION), 8, Some(0.01)));
        assert!(nearby.share(Sector((1 << 34) + 64 * REGION)) < 0.1);
        nearby.read(Sector(1 << 35), 64 * REGION, Some(0.8));
        assert!(nearby.share(Sector((1 << 35) + 63 * REGION)) < 0.1);
    }

    #[test]
    fn what_was_written_since_is_as_if_it_were_not_read() {
        let mut nearby = Nearby::new();
        let (read, other) = (Sector(100 * REGION), Sector(500 * REGION));
        for _ in 0..100 {
            nearby.read(read, 8, Some(0.01));
            nearby.read(other, 8, Some(0.01));
        }
        nearby.read(Sector(900 * REGION), 8, Some(0.8));
        let shares = |nearby: &Nearby| [read, other].map(|at| nearby.share(at) < 0.1);
        assert_eq!(shares(&nearby), [true, true]);
        nearby.written(Sector(102 * REGION));
        assert_eq!(shares(&nearby), [true, true]);
        nearby.written(Sector(101 * REGION + 5));
        assert_eq!(shares(&nearby), [false, true]);
        nearby.written(Sector(0));
        nearby.written(other);
        assert_eq!(shares(&nearby), [false, false]);
    }
}
