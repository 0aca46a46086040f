//! Whether what is read for the first time is copied.
//!
//! What a program reads at its first start it may read at its next, so a first reading is copied: without that, nothing is won before the third.
//! But a volume that is only read through, as by a backup, would fill all the room there is with copies nobody reads, by work at the disk and 16
//! bytes of memory a block. So first readings have an account. Each block of them that is to be copied is taken from it, whatever becomes of it, but
//! not where the volume is full: there copies are made over others of less value only. One of them that comes again, copied or not, pays for
//! [`PROOF`]. While nothing is left, a copy is made of rows of which half comes at least the second time, as far as `sightings` remembers.
//!
//! What comes again is counted by a sample, so that a few blocks that are read all the time do not pay for everything: each counts once for each
//! time it is met as a first reading.

use fs2_block::BlockRange;

/// What may be copied before any of it came again, and saved up at most: six times what the longest of the real traces reads for the first time
/// before it reads anything again. A guess.
const FIRST_BYTES: u64 = 2 << 30;

/// So many first readings one of them pays for that came again: copies stay where a tenth of them are read. A guess; of the real traces
/// that are read over and over nearly all come again.
const PROOF: i64 = 10;

/// One block in so many is in the sample: no power of two, for those mean something to a file system.
const SAMPLE: u32 = 61;

/// Blocks of the sample that are remembered, 4 bytes each: 64 GiB of first readings of blocks of 4 KiB. Guess.
const REMEMBERED: usize = 1 << 18;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// Blocks that may be copied yet at the first reading; below 0 where the last run took more than there was.
    left: i64,
    most: i64,
    /// Of the sample, by a hash, what was read once, and 1 more. Empty before the first.
    once: Vec<u32>,
}

/// The blocks of a range that are in the sample.
fn sampled(blocks: BlockRange) -> impl Iterator<Item = u32> {
    let first = blocks.start().div_ceil(SAMPLE).saturating_mul(SAMPLE);
    (first..blocks.end()).step_by(SAMPLE as usize)
}

/// Neighbours of the sample lie behind one another.
fn slot(block: u32) -> usize {
    (block / SAMPLE) as usize % REMEMBERED
}

impl Admission {
    pub(super) fn new(block_bytes: u32) -> Admission {
        let most = (FIRST_BYTES / u64::from(block_bytes)) as i64;
        Admission { left: most, most, once: Vec::new() }
    }

    /// Whether first readings are copied now.
    pub(super) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// A block was read for the first time, and is to be copied or not.
    pub(super) fn first(&mut self, block: u32, copied: bool) {
        self.left -= i64::from(copied);
        if block.is_multiple_of(SAMPLE) {
            if self.once.is_empty() {
                self.once = vec![0; REMEMBERED];
            }
            self.once[slot(block)] = block + 1;
        }
    }

    /// Blocks were read, for the first time or not.
    pub(super) fn read(&mut self, blocks: BlockRange) {
        if self.once.is_empty() {
            return;
        }
        for block in sampled(blocks) {
            let once = &mut self.once[slot(block)];
            if *once == block + 1 {
                *once = 0;
                self.left = (self.left + PROOF * i64::from(SAMPLE)).min(self.most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = 4096;
    const MOST: u32 = (FIRST_BYTES / BLOCK as u64) as u32;

    /// So many blocks from there on are read for the first time, by runs of eight; says how many of them are copied.
    fn pass(a: &mut Admission, from: u32, n: u32) -> u32 {
        let mut copied = 0;
        for start in (from..from + n).step_by(8) {
            let blocks = BlockRange::new(start, start + 8);
            a.read(blocks);
            let open = a.is_open();
            blocks.iter().for_each(|b| a.first(b.0, open));
            copied += if open { 8 } else { 0 };
        }
        copied
    }

    #[test]
    fn first_readings_are_copied_until_they_do_not_come_again() {
        let mut a = Admission::new(BLOCK);
        assert_eq!(pass(&mut a, 0, 100 * MOST), MOST);
        assert!(!a.is_open());
    }

    #[test]
    fn a_tenth_that_comes_again_pays_for_all() {
        let mut a = Admission::new(BLOCK);
        let mut copied = 0;
        for i in 0..40 {
            copied += pass(&mut a, i * MOST / 4, MOST / 4);
            // Of what came a while ago.
            (0..MOST / 4 / 9).for_each(|b| a.read(BlockRange::new(i * MOST / 4 + b, i * MOST / 4 + b + 1)));
        }
        assert_eq!(copied, 10 * MOST);
        assert!(a.is_open());
        // A fifth of that does not.
        let copied: u32 = (40..80)
            .map(|i| {
                let copied = pass(&mut a, i * MOST / 4, MOST / 4);
                (0..MOST / 4 / 45)
                    .for_each(|b| a.read(BlockRange::new(i * MOST / 4 + b, i * MOST / 4 + b + 1)));
                copied
            })
            .sum();
        assert!((MOST * 2..MOST * 4).contains(&copied), "{copied} of {}", 10 * MOST);
    }

    #[test]
    fn what_is_read_all_the_time_counts_once() {
        let mut a = Admission::new(BLOCK);
        pass(&mut a, 0, 2 * MOST);
        let spent = a.left;
        (0..1000).for_each(|_| a.read(BlockRange::new(0, 10 * SAMPLE)));
        assert_eq!(a.left, spent + 10 * PROOF * i64::from(SAMPLE));
        assert!(a.is_open());
    }

    #[test]
    fn what_was_not_copied_pays_when_it_comes_again() {
        let mut a = Admission::new(BLOCK);
        assert_eq!(pass(&mut a, 0, 10 * MOST), MOST);
        a.read(BlockRange::new(5 * MOST, 10 * MOST));
        assert_eq!(a.left, i64::from(MOST), "no more is saved up");
    }

    #[test]
    fn the_sample_is_one_block_in_so_many() {
        let of = |start, end| sampled(BlockRange::new(start, end)).collect::<Vec<_>>();
        assert_eq!((of(0, 1), of(1, 61), of(61, 62)), (vec![0], vec![], vec![61]));
        assert_eq!(of(60, 200), [61, 122, 183]);
        assert_eq!(of(u32::MAX - 2, u32::MAX), [] as [u32; 0]);
        let mut a = Admission::new(1024);
        a.first(u32::MAX / SAMPLE * SAMPLE, true);
        assert_eq!(a.left, a.most - 1);
        a.read(BlockRange::new(u32::MAX - 100, u32::MAX));
        assert_eq!((a.left, a.once.len() * 4), (a.most, 1 << 20));
    }
}
