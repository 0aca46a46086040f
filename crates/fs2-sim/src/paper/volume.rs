//! ext2 as it gives out blocks and inodes, after the kernel of the paper's time (Linux 2.6.7).
//!
//! Invariants:
//!
//! - V1: a block or inode is given out once until it is given back; static metadata never.
//! - V2: `free_blocks` and `free_inodes` of a group are what its bitmaps say.
//!
//! Followed: a file's inode goes to its directory's group (`find_group_other`), a directory's by Orlov's
//! rule (`find_group_orlov`); the first block is looked for from the inode's group on, at a sixteenth of it
//! that the process's number chooses; each next block behind the last, else within the next 64, else eight
//! free ones in a row, else any later one of the group. Where the group has none the next is found by
//! quadratic hash, as the paper says (2.6.7 does so for inodes and takes the next group for blocks).
//! Left out: reservations, quotas, extended attributes, the third indirection.

use fs2_block::BlockNo;

use crate::replay::FreeMap;

/// Blocks side by side: the first, and how many.
pub(super) type Run = (u32, u32);

/// Directory entries of this many files fill a block: names of the time, 24 bytes an entry.
const ENTRIES_PER_BLOCK: u32 = 170;
/// Orlov: an inode and a block weigh this much in a directory's debt.
const INODE_COST: u32 = 64;
const BLOCK_COST: u32 = 256;
/// Data blocks before the first indirect block, and those an indirect block points to (blocks of 4 KiB).
const DIRECT: u32 = 12;
const PER_INDIRECT: u32 = 1024;
const BITS: u32 = 64;

/// A bit for each block or inode, set where it is used.
#[derive(Clone, Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(n: u32) -> Bits {
        Bits(vec![0; n.div_ceil(BITS) as usize])
    }

    fn get(&self, i: u32) -> bool {
        self.0[(i / BITS) as usize] >> (i % BITS) & 1 == 1
    }

    fn set(&mut self, i: u32) {
        self.0[(i / BITS) as usize] |= 1 << (i % BITS);
    }

    fn clear(&mut self, i: u32) {
        self.0[(i / BITS) as usize] &= !(1 << (i % BITS));
    }

    /// The first clear bit of a range.
    fn clear_in(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let word = !self.0[(at / BITS) as usize] >> (at % BITS);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < to).then_some(found);
            }
            at = (at / BITS + 1) * BITS;
        }
        None
    }

    /// The first of eight aligned clear bits of a range.
    fn clear_byte_in(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from / 8 * 8;
        while at < to {
            let word = self.0[(at / BITS) as usize];
            if word != u64::MAX {
                let bytes = word.to_le_bytes();
                let first = (at % BITS / 8) as usize;
                if let Some(n) = (first..8).find(|n| bytes[*n] == 0) {
                    let found = at / BITS * BITS + 8 * n as u32;
                    return (found < to).then_some(found);
                }
            }
            at = (at / BITS + 1) * BITS;
        }
        None
    }
}

/// A file or directory: its inode and where its blocks lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    /// From 0 over all groups.
    pub(super) inode: u32,
    /// Its blocks in the order of the file, indirect blocks before what they point to.
    pub(super) runs: Vec<Run>,
    /// Data blocks.
    pub(super) blocks: u32,
}

/// What reading a file asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// An indirect block: it must be there before what follows.
    Indirect(u32),
    /// Data blocks side by side.
    Data(Run),
}

/// Whether the `i`th block of a file's sequence is an indirect one.
fn is_indirect(i: u32) -> bool {
    let first_double = DIRECT + 1 + PER_INDIRECT;
    i == DIRECT
        || i == first_double
        || i > first_double && (i - first_double - 1).is_multiple_of(PER_INDIRECT + 1)
}

/// Blocks a file of so many data blocks takes with its indirect ones.
fn with_indirect(data: u32) -> u32 {
    let single = u32::from(data > DIRECT);
    let beyond = data.saturating_sub(DIRECT + PER_INDIRECT);
    data + single + if beyond > 0 { 1 + beyond.div_ceil(PER_INDIRECT) } else { 0 }
}

/// A data block and the indirect blocks that lead to it, the outer one first; 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) data: u32,
    pub(super) through: [u32; 2],
}

impl Stored {
    /// Where each data block lies.
    pub(super) fn map(&self) -> Vec<Mapped> {
        let first_double = DIRECT + 1 + PER_INDIRECT;
        let (mut through, mut out) = ([0, 0], Vec::with_capacity(self.blocks as usize));
        let all = self.runs.iter().flat_map(|&(start, len)| start..start + len);
        for (sequence, block) in (0..).zip(all) {
            match sequence {
                DIRECT => through = [0, block],
                n if n == first_double => through = [block, 0],
                n if is_indirect(n) => through[1] = block,
                _ => out.push(Mapped { data: block, through }),
            }
        }
        out
    }

    /// All of it, in pieces of at most `most` blocks.
    pub(super) fn whole(&self, most: u32) -> Vec<Piece> {
        pieces(&self.map(), most)
    }
}

/// The pieces that these blocks of a file are read in, at most `most` blocks each.
pub(super) fn pieces(blocks: &[Mapped], most: u32) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    let mut known = [0, 0];
    for mapped in blocks {
        let new = mapped.through.iter().filter(|b| **b != 0 && !known.contains(*b));
        out.extend(new.map(|b| Piece::Indirect(*b)));
        known = mapped.through;
        match out.last_mut() {
            Some(Piece::Data((start, n))) if *start + *n == mapped.data && *n < most => *n += 1,
            _ => out.push(Piece::Data((mapped.data, 1))),
        }
    }
    out
}

/// A directory: its group, its number, what it holds.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) stored: Stored,
    pub(super) group: u32,
    pub(super) entries: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    groups: u32,
    per_group: u32,
    inodes_per_group: u32,
    blocks: Bits,
    inodes: Bits,
    free_blocks: Vec<u32>,
    free_inodes: Vec<u32>,
    directories: Vec<u32>,
    debts: Vec<u8>,
    free: u64,
    all_free_inodes: u64,
    all_directories: u64,
    metadata: u64,
    map: FreeMap,
}

impl Volume {
    /// An empty volume.
    pub(super) fn new(groups: u32, inodes_per_group: u32) -> Option<Volume> {
        let map = FreeMap::fresh(groups, inodes_per_group, 128).ok()?;
        let per_group = map.blocks_per_group;
        let mut blocks = Bits(vec![u64::MAX; (map.blocks / BITS) as usize]);
        for b in &map.free {
            blocks.clear(b);
        }
        let free_blocks = (0..groups)
            .map(|g| map.free.range_cardinality(g * per_group..(g + 1) * per_group) as u32)
            .collect();
        let mut volume = Volume {
            groups,
            per_group,
            inodes_per_group,
            blocks,
            inodes: Bits::new(groups * inodes_per_group),
            free_blocks,
            free_inodes: vec![inodes_per_group; groups as usize],
            directories: vec![0; groups as usize],
            debts: vec![0; groups as usize],
            free: map.free.len(),
            all_free_inodes: u64::from(groups) * u64::from(inodes_per_group),
            all_directories: 0,
            metadata: u64::from(map.blocks) - map.free.len(),
            map,
        };
        // The first eleven inodes are the file system's own.
        for i in 0..11 {
            volume.take_inode_at(i);
        }
        Some(volume)
    }

    pub(super) fn groups(&self) -> u32 {
        self.groups
    }

    /// Free blocks by all blocks that are no static metadata.
    pub(super) fn free_share(&self) -> f64 {
        self.free as f64 / self.usable() as f64
    }

    /// Blocks that are no static metadata.
    pub(super) fn usable(&self) -> u64 {
        u64::from(self.map.blocks) - self.metadata
    }

    /// The geometry; which blocks are free it does not say.
    pub(super) fn geometry(&self) -> &FreeMap {
        &self.map
    }

    /// The volume's geometry and what is free now.
    pub(super) fn free_map(&self) -> FreeMap {
        let mut map = self.map.clone();
        map.free.clear();
        let mut at = 0;
        while let Some(from) = self.blocks.clear_in(at, map.blocks) {
            let mut to = from + 1;
            while to < map.blocks && !self.blocks.get(to) {
                to += 1;
            }
            map.free.insert_range(from..to);
            at = to;
        }
        map
    }

    /// The block of the inode table that holds an inode.
    pub(super) fn inode_block(&self, inode: u32) -> u32 {
        let (group, within) = (inode / self.inodes_per_group, inode % self.inodes_per_group);
        self.map.groups[group as usize].inode_table + within * u32::from(self.map.inode_size) / 4096
    }

    /// The block of the descriptors that holds a group's, and its two bitmaps.
    pub(super) fn group_metadata(&self, group: u32) -> [u32; 3] {
        let places = &self.map.groups[group as usize];
        [1 + group * 32 / 4096, places.block_bitmap, places.inode_bitmap]
    }

    pub(super) fn group_of_inode(&self, inode: u32) -> u32 {
        inode / self.inodes_per_group
    }

    /// The group at a share of the volume's length.
    pub(super) fn group_at(&self, share: f64) -> u32 {
        ((f64::from(self.groups) * share) as u32).min(self.groups - 1)
    }

    fn take_inode_at(&mut self, inode: u32) {
        debug_assert!(!self.inodes.get(inode), "inode {inode} was given out");
        self.inodes.set(inode);
        self.free_inodes[(inode / self.inodes_per_group) as usize] -= 1;
        self.all_free_inodes -= 1;
    }

    fn take_inode(&mut self, group: u32) -> Option<u32> {
        let from = group * self.inodes_per_group;
        let inode = self.inodes.clear_in(from, from + self.inodes_per_group)?;
        self.take_inode_at(inode);
        Some(inode)
    }

    /// 1, 2, 4 … further on, then one after the other.
    fn by_hash(&self, from: u32, fits: impl Fn(usize) -> bool) -> Option<u32> {
        let mut group = from;
        let mut step = 1;
        while step < self.groups {
            group = (group + step) % self.groups;
            if fits(group as usize) {
                return Some(group);
            }
            step <<= 1;
        }
        (0..self.groups).map(|n| (from + n) % self.groups).find(|g| fits(*g as usize))
    }

    fn group_for_file(&self, parent: &Directory) -> Option<u32> {
        let fits = |g: usize| self.free_inodes[g] > 0 && self.free_blocks[g] > 0;
        if fits(parent.group as usize) {
            return Some(parent.group);
        }
        self.by_hash((parent.group + parent.stored.inode) % self.groups, fits)
    }

    fn group_for_directory(&self, parent: u32) -> Option<u32> {
        let groups = u64::from(self.groups);
        let (mean_inodes, mean_blocks) = (self.all_free_inodes / groups, self.free / groups);
        let used = u64::from(self.map.blocks) - self.free;
        let per_directory = (used / self.all_directories.max(1)) as u32;
        let max_directories = self.all_directories / groups + u64::from(self.inodes_per_group) / 16;
        let min_inodes = mean_inodes.saturating_sub(u64::from(self.inodes_per_group) / 4);
        let min_blocks = mean_blocks.saturating_sub(u64::from(self.per_group) / 4);
        let debt = (self.per_group / per_directory.max(BLOCK_COST))
            .min(self.inodes_per_group / INODE_COST)
            .clamp(1, 255) as u8;
        let near = (0..self.groups).map(|n| (parent + n) % self.groups).find(|g| {
            let g = *g as usize;
            self.debts[g] < debt
                && u64::from(self.directories[g]) < max_directories
                && u64::from(self.free_inodes[g]) >= min_inodes.max(1)
                && u64::from(self.free_blocks[g]) >= min_blocks.max(1)
        });
        let any = |g: usize| self.free_inodes[g] > 0 && u64::from(self.free_blocks[g]) >= min_blocks.max(1);
        near.or_else(|| self.by_hash(parent, any))
    }

    /// A directory in exactly this group, as if the rule had chosen it.
    pub(super) fn directory_in(&mut self, group: u32) -> Option<Directory> {
        let group =
            self.by_hash(group + self.groups - 1, |g| self.free_inodes[g] > 0 && self.free_blocks[g] > 0)?;
        let inode = self.take_inode(group)?;
        self.directories[group as usize] += 1;
        self.all_directories += 1;
        self.debts[group as usize] = self.debts[group as usize].saturating_add(1);
        let mut stored = Stored { inode, ..Stored::default() };
        self.grow(&mut stored, 1, group, 0);
        Some(Directory { stored, group, entries: 2 })
    }

    /// A directory within another.
    pub(super) fn directory(&mut self, parent: &mut Directory) -> Option<Directory> {
        let group = self.group_for_directory(parent.group)?;
        self.enter(parent);
        self.directory_in(group)
    }

    fn enter(&mut self, directory: &mut Directory) {
        directory.entries += 1;
        if directory.entries > directory.stored.blocks * ENTRIES_PER_BLOCK {
            let group = directory.group;
            self.grow(&mut directory.stored, 1, group, 0);
        }
    }

    /// An empty file.
    pub(super) fn file(&mut self, parent: &mut Directory) -> Option<Stored> {
        let group = self.group_for_file(parent)?;
        let inode = self.take_inode(group)?;
        self.debts[group as usize] = self.debts[group as usize].saturating_sub(1);
        self.enter(parent);
        Some(Stored { inode, ..Stored::default() })
    }

    /// A file of so many blocks, written by the process `pid`. Smaller where the volume is full.
    pub(super) fn file_of(&mut self, parent: &mut Directory, blocks: u32, pid: u32) -> Option<Stored> {
        let mut file = self.file(parent)?;
        let group = self.group_of_inode(file.inode);
        self.grow(&mut file, blocks, group, pid);
        Some(file)
    }

    /// So many data blocks more at the file's end.
    pub(super) fn grow(&mut self, file: &mut Stored, blocks: u32, group: u32, pid: u32) {
        let have = with_indirect(file.blocks);
        let mut want = with_indirect(file.blocks + blocks) - have;
        file.blocks += blocks;
        let mut goal = match file.runs.last() {
            Some((start, len)) => start + len,
            None => group * self.per_group + pid % 16 * (self.per_group / 16),
        };
        while want > 0 {
            let Some(start) = self.find(goal) else {
                // Full: the file is as long as it got.
                file.blocks = file.blocks.saturating_sub(want);
                return;
            };
            let end = (start / self.per_group + 1) * self.per_group;
            let mut len = 0;
            while len < want && start + len < end && !self.blocks.get(start + len) {
                self.blocks.set(start + len);
                len += 1;
            }
            self.free_blocks[(start / self.per_group) as usize] -= len;
            self.free -= u64::from(len);
            match file.runs.last_mut() {
                Some((s, n)) if *s + *n == start => *n += len,
                _ => file.runs.push((start, len)),
            }
            want -= len;
            goal = start + len;
        }
    }

    /// The next block for a file that would like this one.
    fn find(&self, goal: u32) -> Option<u32> {
        let goal = if goal >= self.map.blocks { 0 } else { goal };
        let group = goal / self.per_group;
        let end = (group + 1) * self.per_group;
        if self.free_blocks[group as usize] > 0 {
            if !self.blocks.get(goal) {
                return Some(goal);
            }
            let near = goal.next_multiple_of(BITS).min(end);
            if let Some(found) = self.blocks.clear_in(goal, near) {
                return Some(found);
            }
            if let Some(found) = self.blocks.clear_byte_in(near, end) {
                let mut first = found;
                while first > near && !self.blocks.get(first - 1) {
                    first -= 1;
                }
                return Some(first);
            }
            if let Some(found) = self.blocks.clear_in(near, end) {
                return Some(found);
            }
        }
        let next = self.by_hash(group, |g| self.free_blocks[g] > 0)?;
        let from = next * self.per_group;
        let end = from + self.per_group;
        self.blocks.clear_byte_in(from, end).or_else(|| self.blocks.clear_in(from, end))
    }

    /// Gives a file's blocks and inode back.
    pub(super) fn remove(&mut self, file: &Stored) {
        for &(start, len) in &file.runs {
            for block in start..start + len {
                debug_assert!(self.blocks.get(block), "{} was free", BlockNo(block));
                self.blocks.clear(block);
            }
            self.free_blocks[(start / self.per_group) as usize] += len;
            self.free += u64::from(len);
        }
        self.inodes.clear(file.inode);
        self.free_inodes[(file.inode / self.inodes_per_group) as usize] += 1;
        self.all_free_inodes += 1;
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        // V2.
        for g in 0..self.groups {
            let count =
                |bits: &Bits, per: u32| (g * per..(g + 1) * per).filter(|i| !bits.get(*i)).count() as u32;
            assert_eq!(
                count(&self.blocks, self.per_group),
                self.free_blocks[g as usize],
                "blocks of group {g}"
            );
            assert_eq!(
                count(&self.inodes, self.inodes_per_group),
                self.free_inodes[g as usize],
                "inodes of {g}"
            );
        }
        assert_eq!(self.free_blocks.iter().map(|n| u64::from(*n)).sum::<u64>(), self.free);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::draw::Draw;
    use super::*;

    /// V1 and V2: beside a set of blocks and inodes in use.
    #[test]
    fn nothing_is_given_out_twice() {
        for seed in 0..4 {
            let mut draw = Draw::new(seed, "volume");
            let mut volume = Volume::new(16, 1024).expect("16 groups");
            let before = volume.free_map();
            let mut root = volume.directory_in(3).expect("room");
            let mut directories = vec![volume.directory(&mut root).expect("room")];
            let mut files: Vec<Stored> = Vec::new();
            for _ in 0..4000 {
                let n = directories.len() as u64;
                let d = draw.below(n) as usize;
                match draw.below(20) {
                    0 => directories.extend(volume.directory(&mut root)),
                    1..=6 if !files.is_empty() => {
                        let at = draw.below(files.len() as u64) as usize;
                        volume.remove(&files.swap_remove(at));
                    }
                    7..=9 if !files.is_empty() => {
                        let at = draw.below(files.len() as u64) as usize;
                        let group = volume.group_of_inode(files[at].inode);
                        volume.grow(&mut files[at], 1 + draw.below(300) as u32, group, 0);
                    }
                    _ => {
                        let blocks = draw.pareto(1.0, 0.6).min(20_000.0) as u32;
                        files.extend(volume.file_of(&mut directories[d], blocks, draw.below(16) as u32));
                    }
                }
            }
            volume.check();
            let (mut blocks, mut inodes) = (BTreeSet::new(), BTreeSet::new());
            let all = directories.iter().map(|d| &d.stored).chain([&root.stored]).chain(&files);
            for stored in all {
                assert!(
                    inodes.insert(stored.inode) && stored.inode > 10,
                    "seed {seed}: inode {}",
                    stored.inode
                );
                for &(start, len) in &stored.runs {
                    for block in start..start + len {
                        assert!(blocks.insert(block), "seed {seed}: block {block} twice");
                        assert!(before.free.contains(block), "seed {seed}: block {block} is metadata");
                    }
                }
                let mapped = stored.map();
                assert_eq!(mapped.len(), stored.blocks as usize, "seed {seed}: {stored:?}");
            }
            assert_eq!(volume.free_map().free.len() + blocks.len() as u64, before.free.len(), "seed {seed}");
        }
    }

    #[test]
    fn indirect_blocks_come_before_what_they_lead_to() {
        let file = |blocks| Stored { inode: 11, runs: vec![(1000, with_indirect(blocks))], blocks };
        assert_eq!(with_indirect(12), 12);
        assert_eq!(with_indirect(13), 14);
        assert_eq!(with_indirect(12 + 1024), 12 + 1024 + 1);
        assert_eq!(with_indirect(12 + 1024 + 1), 12 + 1024 + 1 + 3);
        assert_eq!(with_indirect(12 + 3 * 1024), 12 + 3 * 1024 + 1 + 3);
        let (data, indirect) = (|s, n| Piece::Data((s, n)), Piece::Indirect);
        assert_eq!(file(12).whole(32), [data(1000, 12)]);
        assert_eq!(file(20).whole(32), [data(1000, 12), indirect(1012), data(1013, 8)]);
        assert_eq!(file(20).whole(5)[..4], [data(1000, 5), data(1005, 5), data(1010, 2), indirect(1012)]);
        let map = file(12 + 1024 + 1024 + 2).map();
        assert_eq!(map[12], Mapped { data: 1013, through: [0, 1012] });
        assert_eq!(map[12 + 1024], Mapped { data: 1000 + 1039, through: [1037, 1038].map(|b| b + 1000) });
        let last = pieces(&map[12 + 2048..], 8);
        assert_eq!(last, [indirect(2037), indirect(2039 + 1024), data(2040 + 1024, 2)]);
    }

    #[test]
    fn a_file_goes_where_its_directory_is_and_a_full_group_s_next_is_found_by_hash() {
        let mut volume = Volume::new(16, 1024).expect("16 groups");
        let mut directory = volume.directory_in(5).expect("room");
        assert_eq!(directory.group, 5);
        let file = volume.file_of(&mut directory, 10, 0).expect("room");
        assert_eq!(volume.group_of_inode(file.inode), 5);
        assert!(file.runs.iter().all(|r| r.0 / 32_768 == 5));
        // 6 and 7 are full: behind 5 begins 6, whose next is 7, and then 7 + 2.
        let mut neighbour = volume.directory_in(6).expect("room");
        let filler = volume.file_of(&mut neighbour, 66_000, 0).expect("room");
        assert!(filler.runs.iter().any(|r| r.0 / 32_768 == 8));
        let large = volume.file_of(&mut directory, 40_000, 0).expect("room");
        let mut groups: Vec<u32> = large.runs.iter().map(|r| r.0 / 32_768).collect();
        groups.dedup();
        assert_eq!(groups, [5, 9]);
    }
}
