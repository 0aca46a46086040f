//! HFS+ hot files: files of the highest temperature, bytes read by size, moved to a zone of their own.
//!
//! Apple's adaptive hot file clustering: "HFS Plus Volume Format", technical note TN1150, 2004, "Hot Files"; and the
//! file system's source, `hfs_hotfiles.h` of XNU. Over a period the bytes read of each file are counted; a file is a
//! candidate that is at most 10 MiB and was not written in the period. Then the coldest files leave the zone and
//! the hottest enter it, each in one piece where there is one; those that stay, stay where they are. A file is
//! moved, not copied: requests go to the zone, writes too, and leaving it costs a write.
//!
//! A trace has no files. One stands for each maximal run of consecutive blocks that have been read, cut at
//! 10 MiB; what is read next to it later is another. Parameters: the zone is the space budget (TN1150: 5 MB for each
//! GB, 0.5 %), at the volume's beginning; the period is a day, not 60 hours; at least every byte was read once in it
//! (`HFC_MINIMUM_TEMPERATURE` is 24 in 60 hours: nothing here is read so often). No limit on the number of files.

use std::collections::{BTreeMap, BTreeSet};

use fs2_block::{BlockRange, Op};
use roaring::RoaringBitmap;

use super::mover::Planner;

/// Blocks of a file at most: 10 MiB, `HFC_MAXIMUM_FILESIZE`.
const FILE_BLOCKS: u32 = 2560;

/// Reads of each byte of a file in the mean, at least.
const TEMPERATURE_MIN: u64 = 1;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct HotFiles {
    /// Blocks ever read that are in no file of the zone.
    seen: RoaringBitmap,
    /// Times each block was read in this period.
    reads: BTreeMap<u32, u32>,
    written: RoaringBitmap,
    /// Files of the zone: first slot by their blocks.
    zone: BTreeMap<BlockRange, usize>,
}

impl HotFiles {
    fn candidates(&self) -> Vec<BlockRange> {
        let mut files = Vec::new();
        let mut seen = self.seen.iter();
        while let Some(run) = seen.next_range() {
            let (mut start, end) = (*run.start(), *run.end() + 1);
            while start < end {
                let file = BlockRange::new(start, end.min(start + FILE_BLOCKS));
                files.push(file);
                start = file.end();
            }
        }
        files
    }

    fn blocks_read(&self, file: BlockRange) -> u64 {
        self.reads.range(file.start()..file.end()).map(|(_, &n)| u64::from(n)).sum()
    }
}

impl Planner for HotFiles {
    fn request(&mut self, op: Op, blocks: BlockRange) {
        for block in blocks.iter() {
            if op == Op::Read {
                *self.reads.entry(block.0).or_default() += 1;
            } else {
                self.written.insert(block.0);
            }
        }
        if op == Op::Read {
            self.seen.insert_range(blocks.start()..blocks.end());
        }
    }

    fn arrange(&mut self, slots: usize) -> Vec<Option<u32>> {
        // What is in the zone is no candidate.
        for file in self.zone.keys() {
            self.seen.remove_range(file.start()..file.end());
        }
        let quiet = |f: &BlockRange| self.written.range_cardinality(f.start()..f.end()) == 0;
        let hot = |f: &BlockRange| self.blocks_read(*f) >= TEMPERATURE_MIN * u64::from(f.len());
        let mut files: Vec<(BlockRange, bool)> = self.zone.keys().map(|&f| (f, true)).collect();
        let new = self.candidates().into_iter().filter(|f| quiet(f) && hot(f));
        files.extend(new.map(|f| (f, false)));
        // The hottest first: bytes read by size, compared without division; of equals, those that are there.
        let temperature = |f: &BlockRange| (self.blocks_read(*f) << 20) / u64::from(f.len());
        files.sort_by_cached_key(|(f, there)| {
            (std::cmp::Reverse(temperature(f)), std::cmp::Reverse(*there), *f)
        });
        let mut left = slots;
        files.retain(|(f, _)| {
            let fits = f.len() as usize <= left;
            left -= if fits { f.len() as usize } else { 0 };
            fits
        });
        let stay: BTreeSet<BlockRange> = files.iter().map(|f| f.0).collect();
        let gone: Vec<BlockRange> = self.zone.keys().copied().filter(|f| !stay.contains(f)).collect();
        for file in gone {
            self.zone.remove(&file);
            self.seen.insert_range(file.start()..file.end());
        }
        let mut free: BTreeSet<usize> = (0..slots).collect();
        for (file, &at) in &self.zone {
            (at..at + file.len() as usize).for_each(|s| _ = free.remove(&s));
        }
        for (file, _) in files.iter().filter(|f| !f.1) {
            if let Some(at) = first_fit(&free, file.len() as usize) {
                (at..at + file.len() as usize).for_each(|s| _ = free.remove(&s));
                self.zone.insert(*file, at);
            }
        }
        self.reads.clear();
        self.written.clear();
        let mut out = vec![None; slots];
        for (file, &at) in &self.zone {
            for (i, block) in file.iter().enumerate() {
                out[at + i] = Some(block.0);
            }
        }
        out
    }

    fn moves(&self) -> bool {
        true
    }
}

/// The first run of so many free slots.
fn first_fit(free: &BTreeSet<usize>, len: usize) -> Option<usize> {
    let (mut start, mut next) = (0, 0);
    for &slot in free {
        if slot != next {
            start = slot;
        }
        next = slot + 1;
        if next - start == len {
            return Some(start);
        }
    }
    None
}
