//! A small ext2 volume, byte by byte: one group or four, blocks of 1 or 4 KiB, one file.
//!
//! Written from the format alone, without `fs2-ext2`, so that the model's idea of what is where is its
//! own. `e2fsck -fn` finds nothing in it.

use super::content::{Content, Grain, Value};

/// First byte of the superblock, which has 1 KiB, whatever the blocks' size.
pub const SUPERBLOCK: u64 = 1024;
/// Byte in the superblock of its state.
pub const STATE: usize = 58;
/// Byte in the superblock of its mount count.
pub const MNT_COUNT: usize = 52;
/// Byte in the superblock of the number of blocks.
pub const BLOCKS_COUNT: usize = 4;
/// Byte in the superblock of the time of the last check.
pub const LAST_CHECK: usize = 64;

const DATA_INO: u32 = 12;
/// Inode of the replica table.
const TABLE_INO: u32 = 5;
/// The blocks of pointers of the file lie here.
const MAP_AT: u32 = 10;
/// So many a file of all blocks needs.
const MAP_MAX: u32 = 13;
const INODE_BYTES: u32 = 128;
/// Single free blocks of [`Shape::Fragmented`], every other one.
const SINGLES: std::ops::Range<u32> = 1024..1124;

/// How an image is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One group, its free space in one piece, 3 MiB.
    Plain,
    /// The same with the free space in single blocks, so that the table's file is in pieces.
    Fragmented,
    /// Four groups of 1 MiB; the first blocks of the third are not its metadata.
    Groups,
}

/// A volume's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How it is laid out.
    pub shape: Shape,
    /// Its blocks.
    pub grain: Grain,
}

impl Plan {
    /// Blocks of the volume: what lies between the first and the last MiB may hold replicas.
    pub fn blocks(self) -> u32 {
        let mib = if self.shape == Shape::Groups { 4 } else { 3 };
        mib * self.mib()
    }

    fn mib(self) -> u32 {
        (1 << 20) / self.grain.block() as u32
    }

    /// The first block of the first group.
    pub fn first(self) -> u32 {
        u32::from(self.grain.block() == 1024)
    }

    /// Groups.
    pub fn groups(self) -> u32 {
        if self.shape == Shape::Groups { 4 } else { 1 }
    }

    /// Blocks of a group; the last may have fewer.
    pub fn group_blocks(self) -> u32 {
        if self.shape == Shape::Groups { self.mib() } else { 8 * self.grain.block() as u32 }
    }

    /// The group of a block.
    pub fn group_of(self, block: u32) -> u32 {
        (block - self.first()) / self.group_blocks()
    }

    fn start(self, group: u32) -> u32 {
        self.first() + group * self.group_blocks()
    }

    fn len(self, group: u32) -> u32 {
        (self.blocks() - self.start(group)).min(self.group_blocks())
    }

    /// Block of the descriptors.
    pub fn descriptors(self) -> u32 {
        self.first() + 1
    }

    /// Whether a group begins with a copy of superblock and descriptors.
    pub(super) fn has_backup(group: u32) -> bool {
        // Sparse superblocks: 0 and powers of 3, 5, 7; of five groups all but two.
        matches!(group, 0 | 1 | 3)
    }

    /// Byte of a group's copy of the superblock.
    pub(super) fn backup(self, group: u32) -> u64 {
        u64::from(self.start(group)) * self.grain.block() as u64
    }

    /// Block of a group's block bitmap. In the third group files may have the first blocks.
    pub fn bitmap(self, group: u32) -> u32 {
        self.start(group) + if Plan::has_backup(group) { 2 } else { 20 }
    }

    fn inode_bitmap(self, group: u32) -> u32 {
        self.bitmap(group) + 1
    }

    /// First block of a group's inodes.
    pub fn inode_table(self, group: u32) -> u32 {
        self.bitmap(group) + 2
    }

    fn inodes(self) -> u32 {
        // As many as fill whole blocks, and at least 16.
        (self.grain.block() as u32 / INODE_BYTES).max(16)
    }

    fn inode_blocks(self) -> u32 {
        self.inodes() * INODE_BYTES / self.grain.block() as u32
    }

    fn root_dir(self) -> u32 {
        self.inode_table(0) + self.inode_blocks()
    }

    fn lost_found(self) -> u32 {
        self.root_dir() + 1
    }

    /// Where a block's bit is in its group's bitmap: byte and mask.
    fn bit_at(self, block: u32) -> (usize, u8) {
        let n = (block - self.first()) % self.group_blocks();
        (n as usize / 8, 1 << (n % 8))
    }

    /// Sets or clears `block`'s bit in its group's bitmap.
    pub fn set_bit(self, bitmap: &mut [u8], block: u32, used: bool) {
        let (byte, bit) = self.bit_at(block);
        if used {
            bitmap[byte] |= bit;
        } else {
            bitmap[byte] &= !bit;
        }
    }

    /// Whether `block`'s bit is set in its group's bitmap.
    pub fn bit(self, bitmap: &[u8], block: u32) -> bool {
        let (byte, bit) = self.bit_at(block);
        bitmap[byte] & bit != 0
    }

    /// Writes the number of free blocks, as the groups' bitmaps have it, into the superblock and the
    /// descriptors.
    pub fn count_free(self, bitmaps: &[Vec<u8>], superblock: &mut [u8], descriptors: &mut [u8]) {
        let mut all = 0;
        for (group, bitmap) in (0..).zip(bitmaps) {
            let blocks = self.start(group)..self.start(group) + self.len(group);
            let free = blocks.filter(|b| !self.bit(bitmap, *b)).count() as u32;
            put16(descriptors, group as usize * 32 + 12, free as u16);
            all += free;
        }
        put32(superblock, 12, all);
    }

    /// Changes a superblock's numbers for `groups` groups more, or fewer.
    pub fn resize(self, superblock: &mut [u8], groups: i8) {
        for (at, each) in [(BLOCKS_COUNT, self.group_blocks()), (0, self.inodes())] {
            let now = u32::from_le_bytes([0, 1, 2, 3].map(|i| superblock[at + i]));
            put32(superblock, at, now.wrapping_add_signed(i32::from(groups) * each as i32));
        }
    }

    /// Writes a group's descriptor.
    pub fn describe_group(self, descriptors: &mut [u8], group: u32) {
        let d = &mut descriptors[group as usize * 32..][..32];
        put32(d, 0, self.bitmap(group));
        put32(d, 4, self.inode_bitmap(group));
        put32(d, 8, self.inode_table(group));
        let (inodes, used) = (self.inodes(), if group == 0 { 12 } else { 0 });
        put16(d, 14, (inodes - used) as u16);
        put16(d, 16, if group == 0 { 2 } else { 0 });
    }

    /// Byte of the table's inode on the volume, and how many it has.
    pub fn table_inode(self) -> (u64, usize) {
        let at = u64::from(self.inode_table(0)) * self.grain.block() as u64;
        (at + u64::from((TABLE_INO - 1) * INODE_BYTES), INODE_BYTES as usize)
    }

    /// The image: `data` are the blocks of its one file with what they hold, `keep_free` blocks that stay
    /// free in every shape.
    pub fn make(self, data: &[(u32, Value)], keep_free: &[u32]) -> Vec<u8> {
        let size = self.grain.block();
        let mut file: Vec<u32> = data.iter().map(|d| d.0).collect();
        if self.shape == Shape::Fragmented {
            assert_eq!(size, 1024, "larger blocks hold a page of the table in one piece");
            // The table takes the lowest of the single blocks.
            let full = |b: &u32| !SINGLES.contains(b) || b.is_multiple_of(2);
            let taken = |b: &u32| file.contains(b) || keep_free.contains(b);
            let from = MAP_AT + MAP_MAX;
            let all: Vec<u32> = (from..self.blocks()).filter(|b| full(b) && !taken(b)).collect();
            file.extend(all);
        }
        let mut image = Image { plan: self, bytes: vec![0u8; self.blocks() as usize * size] };
        let map = Map::of(&file, size);
        for (block, bytes) in &map.nodes {
            image.block(*block).copy_from_slice(bytes);
        }
        for &(block, value) in data {
            Content::of(value).put(image.block(block), self.grain);
        }
        let mut used: Vec<u32> = (self.first()..=self.lost_found()).chain(file.iter().copied()).collect();
        used.extend(map.nodes.iter().map(|n| n.0));
        for group in 1..self.groups() {
            if Plan::has_backup(group) {
                used.extend([self.start(group), self.start(group) + 1]);
            }
            used.extend(self.bitmap(group)..self.inode_table(group) + self.inode_blocks());
        }
        let bitmaps: Vec<Vec<u8>> = (0..self.groups()).map(|g| self.bitmap_of(g, &used)).collect();
        for (group, bitmap) in (0..).zip(&bitmaps) {
            image.block(self.bitmap(group)).copy_from_slice(bitmap);
        }
        image.metadata(&bitmaps, file.len() as u32, &map);
        image.bytes
    }

    fn bitmap_of(self, group: u32, used: &[u32]) -> Vec<u8> {
        let mut bitmap = vec![0xff; self.grain.block()];
        for block in self.start(group)..self.start(group) + self.len(group) {
            self.set_bit(&mut bitmap, block, used.contains(&block));
        }
        bitmap
    }
}

fn put16(b: &mut [u8], at: usize, v: u16) {
    b[at..at + 2].copy_from_slice(&v.to_le_bytes());
}

fn put32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

/// The pointers of a file: in the inode, and the blocks of pointers.
struct Map {
    root: [u32; 15],
    nodes: Vec<(u32, Vec<u8>)>,
}

impl Map {
    fn of(file: &[u32], size: usize) -> Map {
        let mut map = Map { root: [0; 15], nodes: Vec::new() };
        let direct = file.len().min(12);
        map.root[..direct].copy_from_slice(&file[..direct]);
        let rest = &file[direct..];
        if rest.is_empty() {
            return map;
        }
        let leaf = size / 4;
        let (single, rest) = rest.split_at(rest.len().min(leaf));
        map.root[12] = map.node(single, size);
        if !rest.is_empty() {
            let leaves: Vec<u32> = rest.chunks(leaf).map(|leaf| map.node(leaf, size)).collect();
            map.root[13] = map.node(&leaves, size);
        }
        map
    }

    fn node(&mut self, pointers: &[u32], size: usize) -> u32 {
        let n = self.nodes.len() as u32;
        assert!(n < MAP_MAX, "a file of so many blocks has no room for its map");
        let mut bytes = vec![0; size];
        for (i, p) in pointers.iter().enumerate() {
            put32(&mut bytes, i * 4, *p);
        }
        self.nodes.push((MAP_AT + n, bytes));
        MAP_AT + n
    }
}

struct Image {
    plan: Plan,
    bytes: Vec<u8>,
}

impl Image {
    fn block(&mut self, block: u32) -> &mut [u8] {
        let size = self.plan.grain.block();
        &mut self.bytes[block as usize * size..][..size]
    }

    fn metadata(&mut self, bitmaps: &[Vec<u8>], file_blocks: u32, map: &Map) {
        let plan = self.plan;
        let size = plan.grain.block();
        let (inodes, groups) = (plan.inodes(), plan.groups());
        let mut sb = vec![0; 1024];
        let log = (size / 1024).ilog2();
        for (offset, v) in [
            (0, inodes * groups),
            (BLOCKS_COUNT, plan.blocks()),
            (16, inodes * groups - 12),
            (20, plan.first()),
            (24, log),
            (28, log),
            (32, plan.group_blocks()),
            (36, plan.group_blocks()),
            (40, inodes),
            (76, 1),
            (84, 11),
            (96, 2),
            (100, 1),
        ] {
            put32(&mut sb, offset, v);
        }
        put16(&mut sb, 54, 0xffff);
        put16(&mut sb, 56, 0xEF53);
        put16(&mut sb, STATE, 1);
        put16(&mut sb, 60, 1);
        put16(&mut sb, 88, INODE_BYTES as u16);
        sb[104..120].copy_from_slice(b"fs2-sim's volume");
        let mut gd = vec![0; size];
        for g in 0..groups {
            plan.describe_group(&mut gd, g);
        }
        plan.count_free(bitmaps, &mut sb, &mut gd);
        for g in (0..groups).filter(|g| Plan::has_backup(*g)) {
            put16(&mut sb, 90, g as u16);
            let at = if g == 0 { SUPERBLOCK as usize } else { plan.start(g) as usize * size };
            self.bytes[at..at + 1024].copy_from_slice(&sb);
            self.block(plan.start(g) + 1).copy_from_slice(&gd);
            let bitmap = self.block(plan.inode_bitmap(g));
            inode_bits(bitmap, inodes, if g == 0 { 12 } else { 0 });
        }
        if groups > 2 {
            inode_bits(self.block(plan.inode_bitmap(2)), inodes, 0);
        }

        let one = |block| {
            let mut root = [0; 15];
            root[0] = block;
            root
        };
        let map_blocks = map.nodes.len() as u32;
        self.inode(2, 0o040_755, 3, 1, 1, &one(plan.root_dir()));
        self.inode(11, 0o040_700, 2, 1, 1, &one(plan.lost_found()));
        self.inode(DATA_INO, 0o100_644, 1, file_blocks, file_blocks + map_blocks, &map.root);

        let names: [(u32, u8, &[u8]); 4] =
            [(2, 2, b"."), (2, 2, b".."), (11, 2, b"lost+found"), (DATA_INO, 1, b"data")];
        directory(self.block(plan.root_dir()), &names);
        directory(self.block(plan.lost_found()), &[(11, 2, b"."), (2, 2, b"..")]);
    }

    /// `size` and `blocks` in blocks.
    fn inode(&mut self, ino: u32, mode: u16, links: u16, size: u32, blocks: u32, root: &[u32; 15]) {
        let (bytes, at) = (self.plan.grain.block() as u32, self.plan.inode_table(0));
        let table = &mut self.bytes[at as usize * bytes as usize..];
        let i = &mut table[((ino - 1) * INODE_BYTES) as usize..][..INODE_BYTES as usize];
        put16(i, 0, mode);
        put32(i, 4, size * bytes);
        put16(i, 26, links);
        put32(i, 28, blocks * bytes / 512);
        for (k, p) in root.iter().enumerate() {
            put32(i, 40 + 4 * k, *p);
        }
    }
}

/// The first `used` of `inodes` are in use; what is behind them counts as used.
fn inode_bits(bitmap: &mut [u8], inodes: u32, used: u32) {
    bitmap.fill(0xff);
    for i in used..inodes {
        bitmap[i as usize / 8] &= !(1 << (i % 8));
    }
}

fn directory(block: &mut [u8], entries: &[(u32, u8, &[u8])]) {
    let (mut offset, end) = (0, block.len());
    for (i, (ino, kind, name)) in entries.iter().enumerate() {
        let len = if i + 1 == entries.len() { end - offset } else { (8 + name.len()).next_multiple_of(4) };
        put32(block, offset, *ino);
        put16(block, offset + 4, len as u16);
        block[offset + 6] = name.len() as u8;
        block[offset + 7] = *kind;
        block[offset + 8..][..name.len()].copy_from_slice(name);
        offset += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_from_block_one() {
        let plan = Plan { shape: Shape::Plain, grain: Grain::SMALL };
        let image = plan.make(&[(1100, 5)], &[]);
        let bitmap = &image[plan.bitmap(0) as usize * 1024..][..1024];
        let used = |b| plan.bit(bitmap, b);
        assert!(used(1) && used(plan.lost_found()) && !used(plan.lost_found() + 1));
        assert!(used(1100) && !used(1101) && !used(plan.blocks() - 1));
        assert!(bitmap[(plan.blocks() as usize - 1) / 8 + 1..].iter().all(|&b| b == 0xff));
    }

    #[test]
    fn groups_and_blocks_of_4_kib() {
        let plan = Plan { shape: Shape::Groups, grain: Grain::LARGE };
        let image = plan.make(&[(300, 5), (512, 6)], &[]);
        let bitmap = |g| &image[plan.bitmap(g) as usize * 4096..][..4096];
        assert_eq!((plan.group_of(511), plan.group_of(512), plan.first()), (1, 2, 0));
        assert!(plan.bit(bitmap(1), 300) && !plan.bit(bitmap(1), 511));
        assert!(plan.bit(bitmap(2), 512) && !plan.bit(bitmap(2), 513) && plan.bit(bitmap(2), plan.bitmap(2)));
    }
}
