//! Which blocks of a traced volume are free: read from dumpe2fs, or drawn.
//!
//! Invariants:
//!
//! - F1: no block of static metadata is free.
//! - F2: what is drawn depends on size, share and seed alone.

use std::fmt;
use std::io::BufRead;

use fs2_block::{BlockNo, BlockSize, Extent, Op, Permille};
use roaring::RoaringBitmap;

/// Where a group's metadata lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupPlaces {
    /// Block of the block bitmap.
    pub block_bitmap: u32,
    /// Block of the inode bitmap.
    pub inode_bitmap: u32,
    /// First block of the inode table.
    pub inode_table: u32,
}

/// An ext2 volume's geometry and its free blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeMap {
    /// Bytes of a block.
    pub block_size: BlockSize,
    /// Blocks of the volume.
    pub blocks: u32,
    /// Blocks of each group but the last.
    pub blocks_per_group: u32,
    /// Inodes of each group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Blocks reserved behind each copy of the descriptors.
    pub reserved_gdt: u16,
    /// Whether only some groups have a copy of the superblock.
    pub sparse_super: bool,
    /// Where each group's metadata lies.
    pub groups: Vec<GroupPlaces>,
    /// The free blocks.
    pub free: RoaringBitmap,
}

/// What is wrong with a dumpe2fs listing.
#[derive(Debug)]
pub struct FreeMapError {
    /// Line, from 1; 0 where the whole is at fault.
    pub line: usize,
    /// What is wrong there and what was expected.
    pub what: String,
}

impl fmt::Display for FreeMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            n => write!(f, "line {n}: {}", self.what),
        }
    }
}

impl std::error::Error for FreeMapError {}

fn wrong(line: usize, what: impl Into<String>) -> FreeMapError {
    FreeMapError { line, what: what.into() }
}

/// Mean run of free blocks in what is drawn, and how wide the runs spread: the median in blocks, and
/// sigma of the logarithm to base 2 in eighths. From the aged 10 GiB volume whose traces the project is
/// measured with: 24,000 runs in 1,005,069 free blocks, half of them below 16 blocks.
const FREE_RUN_MEDIAN: u64 = 14;
const FREE_RUN_SIGMA_8: u64 = 15;

/// Blocks of a group of 4 KiB blocks: as many as a bitmap of one block has bits.
const PER_GROUP: u64 = 32_768;

/// What mke2fs gives volumes of this size: an inode for 16 KiB.
const BLOCKS_PER_INODE: u32 = 4;

impl FreeMap {
    /// A volume of 4 KiB blocks and at least `bytes` bytes (whole groups of 128 MiB), aged: `used` of its
    /// blocks taken, in runs of log-normal length, by this seed.
    ///
    /// # Errors
    /// Where ext2 has no room for that many blocks.
    pub fn aged(bytes: u64, used: Permille, seed: u64) -> Result<FreeMap, FreeMapError> {
        let groups = bytes.div_ceil(PER_GROUP * 4096).max(1);
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        let mut map = FreeMap::fresh(groups, PER_GROUP as u32 / BLOCKS_PER_INODE, 256)?;
        map.free.clear();
        map.draw(used, seed);
        map.take_metadata();
        Ok(map)
    }

    /// A volume of 4 KiB blocks and whole groups of 128 MiB as mke2fs leaves it: all free but its metadata.
    ///
    /// # Errors
    /// Where ext2 has no room for that many blocks.
    pub(crate) fn fresh(
        groups: u32,
        inodes_per_group: u32,
        inode_size: u16,
    ) -> Result<FreeMap, FreeMapError> {
        let blocks = u32::try_from(u64::from(groups) * PER_GROUP)
            .map_err(|_| wrong(0, "more than ext2 holds in blocks of 4 KiB, 16 TiB"))?;
        let mut map = FreeMap {
            block_size: BlockSize::B4096,
            blocks,
            blocks_per_group: PER_GROUP as u32,
            inodes_per_group,
            inode_size,
            reserved_gdt: 0,
            sparse_super: true,
            groups: Vec::new(),
            free: RoaringBitmap::new(),
        };
        let descriptors = (u64::from(groups) * 32).div_ceil(4096) as u32;
        for g in 0..groups {
            let first = g * PER_GROUP as u32 + if map.has_copy(g) { 1 + descriptors } else { 0 };
            map.groups.push(GroupPlaces {
                block_bitmap: first,
                inode_bitmap: first + 1,
                inode_table: first + 2,
            });
        }
        map.free.insert_range(0..blocks);
        map.take_metadata();
        Ok(map)
    }

    /// As dumpe2fs prints it (e2fsprogs 1.47): geometry, groups, free blocks.
    ///
    /// # Errors
    /// Lines that are not what dumpe2fs prints, or what is missing.
    pub fn from_dumpe2fs(text: impl BufRead) -> Result<FreeMap, FreeMapError> {
        let mut map = FreeMap {
            block_size: BlockSize::B4096,
            blocks: 0,
            blocks_per_group: 0,
            inodes_per_group: 0,
            inode_size: 0,
            reserved_gdt: 0,
            sparse_super: false,
            groups: Vec::new(),
            free: RoaringBitmap::new(),
        };
        let mut block_bytes = 0;
        for (n, line) in (1..).zip(text.lines()) {
            let line = line.map_err(|e| wrong(n, e.to_string()))?;
            let Some((key, value)) = line.split_once(':') else {
                map.group_line(n, line.trim())?;
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            let number = || {
                value
                    .parse::<u32>()
                    .map_err(|_| wrong(n, format!("'{value}', expected a number after '{key}'")))
            };
            match key {
                "Block count" => map.blocks = number()?,
                "Block size" => block_bytes = number()?,
                "Blocks per group" => map.blocks_per_group = number()?,
                "Inodes per group" => map.inodes_per_group = number()?,
                "Inode size" => map.inode_size = number()?.min(u32::from(u16::MAX)) as u16,
                "Reserved GDT blocks" => map.reserved_gdt = number()?.min(u32::from(u16::MAX)) as u16,
                "Filesystem features" => map.sparse_super = value.split(' ').any(|f| f == "sparse_super"),
                "Free blocks" if !map.groups.is_empty() => {
                    for part in value.split(',').map(str::trim).filter(|p| !p.is_empty()) {
                        let (first, last) = range(n, part)?;
                        map.free.insert_range(first..=last);
                    }
                }
                k if k.strip_prefix("Group ").is_some_and(|g| g.parse::<usize>().is_ok()) => {
                    let group = k.strip_prefix("Group ").and_then(|g| g.parse::<usize>().ok());
                    if group != Some(map.groups.len()) {
                        return Err(wrong(n, format!("{k}, expected group {}", map.groups.len())));
                    }
                    map.groups.push(GroupPlaces::default());
                }
                _ => map.group_line(n, line.trim())?,
            }
        }
        map.block_size = BlockSize::new(block_bytes)
            .ok_or_else(|| wrong(0, format!("block size {block_bytes}, expected 1024, 2048 or 4096")))?;
        if map.blocks == 0 || map.blocks_per_group == 0 || map.inodes_per_group == 0 || map.inode_size == 0 {
            return Err(wrong(0, "no dumpe2fs listing: block count, group sizes or inode size are missing"));
        }
        let bits = map.block_size.bytes() * 8;
        if map.blocks_per_group > bits || map.inodes_per_group > bits || map.inode_size > 4096 {
            return Err(wrong(0, "groups larger than a bitmap of one block, or inodes larger than a block"));
        }
        let groups = (map.blocks - map.first_block().min(map.blocks)).div_ceil(map.blocks_per_group);
        if map.groups.len() != groups as usize {
            return Err(wrong(0, format!("{} groups are listed, expected {groups}", map.groups.len())));
        }
        map.free.remove_range(map.blocks..);
        map.take_metadata();
        Ok(map)
    }

    /// `Block bitmap at 641 (+641)` and its like.
    fn group_line(&mut self, n: usize, line: &str) -> Result<(), FreeMapError> {
        let Some(group) = self.groups.last_mut() else { return Ok(()) };
        let places = [
            ("Block bitmap at ", &mut group.block_bitmap),
            ("Inode bitmap at ", &mut group.inode_bitmap),
            ("Inode table at ", &mut group.inode_table),
        ];
        for (name, place) in places {
            // Newer dumpe2fs prints two of them on one line.
            let Some(at) = line.find(name) else { continue };
            let rest = &line[at + name.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            *place = rest[..end].parse().map_err(|_| wrong(n, format!("expected a block after '{name}'")))?;
        }
        Ok(())
    }

    /// First block of group 0.
    pub fn first_block(&self) -> u32 {
        u32::from(self.block_size == BlockSize::B1024)
    }

    /// Bytes of the volume.
    pub fn bytes(&self) -> u64 {
        self.block_size.bytes_of(self.blocks)
    }

    /// Blocks of a group's inode table.
    pub(crate) fn inode_table_blocks(&self) -> u32 {
        (self.inodes_per_group * u32::from(self.inode_size)).div_ceil(self.block_size.bytes())
    }

    /// Blocks that a copy of superblock and descriptors takes, with what is reserved behind it.
    fn copy_blocks(&self) -> u32 {
        1 + (self.groups.len() as u32 * 32).div_ceil(self.block_size.bytes()) + u32::from(self.reserved_gdt)
    }

    fn has_copy(&self, group: u32) -> bool {
        let power_of = |base: u32| {
            let mut n = group;
            while n > 1 && n.is_multiple_of(base) {
                n /= base;
            }
            n == 1
        };
        group <= 1 || !self.sparse_super || power_of(3) || power_of(5) || power_of(7)
    }

    /// Keeps F1.
    fn take_metadata(&mut self) {
        let (copy, table, first) = (self.copy_blocks(), self.inode_table_blocks(), self.first_block());
        self.free.remove_range(0..first);
        for (g, p) in (0..).zip(&self.groups) {
            if self.has_copy(g) {
                let at = first + g * self.blocks_per_group;
                self.free.remove_range(at..at.saturating_add(copy));
            }
            self.free.remove(p.block_bitmap);
            self.free.remove(p.inode_bitmap);
            self.free.remove_range(p.inode_table..p.inode_table.saturating_add(table));
        }
    }

    /// Free and used runs in turns, used ones longer by the ratio of the shares.
    fn draw(&mut self, used: Permille, seed: u64) {
        let (used, free) = (u64::from(used.get()), 1000 - u64::from(used.get()));
        let mut rng = Rng(seed);
        let mut at = 0u64;
        let end = u64::from(self.blocks);
        if free == 0 {
            return;
        }
        while at < end {
            let run = rng.log_normal(FREE_RUN_MEDIAN, FREE_RUN_SIGMA_8);
            let next = (at + run).min(end);
            self.free.insert_range(at as u32..next as u32);
            let taken = rng.log_normal(FREE_RUN_MEDIAN, FREE_RUN_SIGMA_8) as u128 * u128::from(used);
            at = next + (taken / u128::from(free)) as u64;
        }
    }

    /// The volume `factor` times as large, each group of the old one where `factor` new groups were: all
    /// distances between groups grow, what lies between is used. A listing's `reserved_gdt` is dropped.
    ///
    /// # Errors
    /// Where ext2 has no room for that many blocks.
    pub fn stretched(&self, factor: u32) -> Result<FreeMap, FreeMapError> {
        let groups = self.groups.len() as u32 * factor.max(1);
        let blocks = self.stretched_blocks(factor);
        let blocks = u32::try_from(blocks).map_err(|_| wrong(0, "too large when stretched"))?;
        let mut out = FreeMap {
            blocks,
            reserved_gdt: 0,
            groups: vec![GroupPlaces::default(); groups as usize],
            free: RoaringBitmap::new(),
            ..self.clone()
        };
        let (first, per_group) = (self.first_block(), self.blocks_per_group);
        let copy = out.copy_blocks();
        for g in 0..groups {
            let start = first + g * per_group;
            if g % factor == 0 {
                let old = self.groups[(g / factor) as usize];
                let from = first + g / factor * per_group;
                let moved = |b: u32| (b.wrapping_sub(from)).wrapping_add(start);
                let inside = |b: u32| b.wrapping_sub(from) < per_group;
                if inside(old.block_bitmap) && inside(old.inode_bitmap) && inside(old.inode_table) {
                    out.groups[g as usize] = GroupPlaces {
                        block_bitmap: moved(old.block_bitmap),
                        inode_bitmap: moved(old.inode_bitmap),
                        inode_table: moved(old.inode_table),
                    };
                    let clash = out.has_copy(g) && moved(old.block_bitmap) < start + copy;
                    for b in self.free.range(from..from.saturating_add(per_group).min(self.blocks)) {
                        out.free.insert(moved(b));
                    }
                    if !clash {
                        continue;
                    }
                }
            }
            let at = start + if out.has_copy(g) { copy } else { 0 };
            out.groups[g as usize] =
                GroupPlaces { block_bitmap: at, inode_bitmap: at + 1, inode_table: at + 2 };
        }
        out.take_metadata();
        Ok(out)
    }

    /// Blocks of the stretched volume: its last group is a whole one, too.
    fn stretched_blocks(&self, factor: u32) -> u64 {
        let groups = self.groups.len() as u64 * u64::from(factor.max(1));
        groups * u64::from(self.blocks_per_group) + u64::from(self.first_block())
    }

    /// Bytes of the volume `factor` times as large.
    pub fn stretched_bytes(&self, factor: u32) -> u64 {
        match factor {
            0 | 1 => self.bytes(),
            _ => self.stretched_blocks(factor) * u64::from(self.block_size.bytes()),
        }
    }

    /// Where a request goes on the stretched volume: its first block says by how much it moves.
    pub(super) fn stretch_extent(&self, extent: Extent, factor: u32) -> Extent {
        if factor <= 1 {
            return extent;
        }
        let bs = self.block_size;
        let first = BlockNo(u32::try_from(extent.offset() / u64::from(bs.bytes())).unwrap_or(u32::MAX - 1));
        let moved = bs.bytes_of(self.stretch_block(first, factor).0) - bs.bytes_of(first.0);
        Extent::checked(extent.offset() + moved, extent.len()).unwrap_or(extent)
    }

    /// Where a block of the volume lies in the stretched one.
    pub fn stretch_block(&self, block: BlockNo, factor: u32) -> BlockNo {
        let inside = block.0.saturating_sub(self.first_block());
        let group = inside / self.blocks_per_group;
        let shift = u64::from(group) * u64::from(factor - 1) * u64::from(self.blocks_per_group);
        BlockNo((u64::from(block.0) + shift).min(u64::from(u32::MAX - 1)) as u32)
    }
}

/// The blocks a trace shows to have been in use before it began: read before they were written. A map that
/// was drawn knows nothing of them. Memory: two sets of the blocks touched.
#[derive(Clone, Debug)]
pub struct InUse {
    block_size: BlockSize,
    written: RoaringBitmap,
    read: RoaringBitmap,
    end: u64,
}

impl InUse {
    /// Nothing seen yet of a volume with blocks of this size.
    pub fn new(block_size: BlockSize) -> InUse {
        InUse { block_size, written: RoaringBitmap::new(), read: RoaringBitmap::new(), end: 0 }
    }

    /// One past the last byte that was asked for.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The next request of the trace.
    pub fn see(&mut self, op: Op, extent: Extent) {
        self.end = self.end.max(extent.end());
        if extent.end().div_ceil(u64::from(self.block_size.bytes())) > u64::from(u32::MAX) {
            return;
        }
        let blocks = extent.blocks_touched(self.block_size);
        let range = blocks.start()..blocks.end();
        match op {
            _ if blocks.is_empty() => {}
            Op::Read if self.written.is_empty() => {
                self.read.insert_range(range);
            }
            Op::Read => {
                let known = self.written.range_cardinality(range.clone());
                if known == 0 {
                    self.read.insert_range(range);
                } else if known < u64::from(blocks.len()) {
                    self.read.extend(range.filter(|b| !self.written.contains(*b)));
                }
            }
            Op::Write | Op::WriteZeroes => {
                self.written.insert_range(range);
            }
            Op::Discard | Op::Punch | Op::Flush => {}
        }
    }

    /// Takes what was seen to be in use from the free blocks.
    pub fn take_from(&self, map: &mut FreeMap) {
        map.free -= &self.read;
    }
}

fn range(line: usize, text: &str) -> Result<(u32, u32), FreeMapError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(a), Ok(b)) if a <= b => Ok((a, b)),
        _ => Err(wrong(line, format!("'{text}', expected a block or a range of blocks"))),
    }
}

/// splitmix64: one number after another from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// At least 1: `median` times two to the power of a normal variate of `sigma_8` eighths. Integers only,
    /// so that every machine draws the same.
    fn log_normal(&mut self, median: u64, sigma_8: u64) -> u64 {
        // Twelve uniforms of 16 bits less their mean: variance 1 in units of 2^16.
        let sum: i64 = (0..12).map(|_| (self.next() >> 48) as i64).sum::<i64>() - 6 * 65_536;
        let exponent = sum * sigma_8 as i64 / 8;
        let (whole, part) = (exponent.div_euclid(65_536), exponent.rem_euclid(65_536) as u64);
        // Two to the power of `part`, linear between the powers.
        let scaled = median * (65_536 + part);
        let value = if whole >= 0 { scaled << whole.min(24) } else { scaled >> (-whole).min(40) };
        (value >> 16).max(1)
    }
}

/// splitmix64's last step.
pub(crate) fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
