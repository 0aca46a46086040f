//! An ext2 volume of several small groups, and what a check of it does, written from the format alone.
//!
//! Files are inodes of at most twelve direct blocks; there are no directories, and nobody looks for them.

use std::collections::BTreeSet;

/// Bytes of an inode.
const INODE: usize = 128;
/// Direct blocks of an inode.
pub const DIRECT: usize = 12;
/// The first inode that is a file's.
pub const FIRST_FILE: u32 = 12;
const INODES_PER_GROUP: u32 = 32;
/// Byte in the superblock of its mount count.
const MNT_COUNT: usize = 52;
/// Byte in the superblock of its state.
const STATE: usize = 58;

/// Where what lies.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Bytes of a block: 1024, 2048 or 4096.
    pub block: usize,
    /// Blocks of the volume, block 0 included.
    pub blocks: u32,
    /// First block of group 0.
    pub first: u32,
    /// Blocks of a group; the last may be smaller.
    pub per_group: u32,
}

impl Geometry {
    /// A volume of about `mib` MiB in groups of one MiB, without the last `short` blocks.
    pub fn new(block: usize, mib: u32, short: u32) -> Geometry {
        let first = u32::from(block == 1024);
        let per_group = (1 << 20) / block as u32;
        Geometry { block, blocks: first + mib * per_group - short, first, per_group }
    }

    /// Number of groups.
    pub fn groups(&self) -> u32 {
        (self.blocks - self.first).div_ceil(self.per_group)
    }

    /// First block of a group, and the one behind its last.
    pub fn group(&self, g: u32) -> (u32, u32) {
        let start = self.first + g * self.per_group;
        (start, (start + self.per_group).min(self.blocks))
    }

    /// The group of a block.
    pub fn group_of(&self, block: u32) -> u32 {
        block.saturating_sub(self.first) / self.per_group
    }

    /// Blocks of the superblock's copy and the descriptors' at the start of a group.
    fn copy_blocks(g: u32) -> u32 {
        if matches!(g, 0 | 1 | 3 | 5 | 7 | 9 | 25 | 27) { 2 } else { 0 }
    }

    /// The block with the superblock.
    pub fn superblock(&self) -> u32 {
        self.first
    }

    /// Byte of the superblock in the volume.
    pub fn superblock_at(&self) -> u64 {
        1024
    }

    /// The block with the descriptors.
    pub fn descriptors(&self) -> u32 {
        self.first + 1
    }

    /// A group's block bitmap.
    pub fn bitmap(&self, g: u32) -> u32 {
        self.group(g).0 + Geometry::copy_blocks(g)
    }

    /// Blocks of a group's inode table.
    pub fn inode_table(&self, g: u32) -> std::ops::Range<u32> {
        let at = self.bitmap(g) + 2;
        at..at + INODES_PER_GROUP * INODE as u32 / self.block as u32
    }

    /// Whether a block is metadata for ever.
    pub fn is_static(&self, block: u32) -> bool {
        if block < self.first {
            return true;
        }
        let g = self.group_of(block);
        block < self.inode_table(g).end
    }

    /// Inodes in all.
    pub fn inodes(&self) -> u32 {
        self.groups() * INODES_PER_GROUP
    }

    /// The block an inode lies in, and the byte in it.
    pub fn inode_at(&self, ino: u32) -> (u32, usize) {
        let (g, i) = ((ino - 1) / INODES_PER_GROUP, (ino - 1) % INODES_PER_GROUP);
        let at = i as usize * INODE;
        (self.inode_table(g).start + (at / self.block) as u32, at % self.block)
    }

    /// The inodes of a block of an inode table.
    pub fn inodes_in(&self, block: u32) -> std::ops::Range<u32> {
        let g = self.group_of(block);
        let per_block = (self.block / INODE) as u32;
        let first = g * INODES_PER_GROUP + (block - self.inode_table(g).start) * per_block + 1;
        first..first + per_block
    }
}

/// A file: its blocks in order, `None` where there is no such file.
pub type File = Option<Vec<u32>>;

/// Writes an inode's 128 bytes.
pub fn put_inode(bytes: &mut [u8], file: &File, block: usize) {
    bytes[..INODE].fill(0);
    let Some(blocks) = file else { return };
    put16(bytes, 0, 0o100_644);
    put32(bytes, 4, (blocks.len() * block) as u32);
    put16(bytes, 26, 1);
    put32(bytes, 28, (blocks.len() * block / 512) as u32);
    for (i, b) in blocks.iter().enumerate() {
        put32(bytes, 40 + 4 * i, *b);
    }
}

fn inode(bytes: &[u8]) -> File {
    if bytes[26] == 0 {
        return None;
    }
    let pointers = bytes[40..40 + 4 * DIRECT].chunks_exact(4);
    Some(pointers.map(le32).take_while(|b| *b != 0).collect())
}

/// The bitmap of a group, where `used` are the blocks in use.
pub fn bitmap(geo: &Geometry, g: u32, used: impl Fn(u32) -> bool) -> Vec<u8> {
    let mut bytes = vec![0xff; geo.block];
    let (start, end) = geo.group(g);
    for block in start..end {
        if !used(block) {
            let bit = (block - start) as usize;
            bytes[bit / 8] &= !(1 << (bit % 8));
        }
    }
    bytes
}

/// The blocks of a group whose bits are set.
pub fn bits(geo: &Geometry, g: u32, bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (start, end) = geo.group(g);
    (start..end).filter(move |b| bytes[(b - start) as usize / 8] >> ((b - start) % 8) & 1 == 1)
}

/// The descriptors' block, free blocks of each group given.
pub fn descriptors(geo: &Geometry, free: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; geo.block];
    for (g, (d, free)) in (0..).zip(bytes.chunks_exact_mut(32).zip(free)) {
        put32(d, 0, geo.bitmap(g));
        put32(d, 4, geo.bitmap(g) + 1);
        put32(d, 8, geo.inode_table(g).start);
        put16(d, 12, *free as u16);
        put16(d, 14, if g == 0 { INODES_PER_GROUP as u16 - 11 } else { INODES_PER_GROUP as u16 });
    }
    bytes
}

/// The superblock's 1024 bytes.
pub fn superblock(geo: &Geometry, free: u32, mounts: u16, clean: bool) -> Vec<u8> {
    let mut sb = vec![0; 1024];
    let log = (geo.block / 1024).ilog2();
    for (at, v) in [
        (0, geo.inodes()),
        (4, geo.blocks),
        (12, free),
        (16, geo.inodes() - 11),
        (20, geo.first),
        (24, log),
        (28, log),
        (32, geo.per_group),
        (36, geo.per_group),
        (40, INODES_PER_GROUP),
        (76, 1),
        (84, 11),
        (96, 2),
        (100, 1),
    ] {
        put32(&mut sb, at, v);
    }
    put16(&mut sb, MNT_COUNT, mounts);
    put16(&mut sb, 54, 0xffff);
    put16(&mut sb, 56, 0xEF53);
    put16(&mut sb, STATE, u16::from(clean));
    put16(&mut sb, 60, 1);
    put16(&mut sb, 88, INODE as u16);
    sb[104..120].copy_from_slice(b"a world's volume");
    sb
}

/// Whether a superblock says: unmounted in order. And its mount count.
pub fn state(superblock: &[u8]) -> (bool, u16) {
    let le16 = |at: usize| u16::from_le_bytes([superblock[at], superblock[at + 1]]);
    (le16(STATE) & 3 == 1, le16(MNT_COUNT))
}

/// The whole volume, clean; `files` from inode [`FIRST_FILE`] on.
pub fn make(geo: &Geometry, files: &[File]) -> Vec<u8> {
    let mut image = vec![0; geo.blocks as usize * geo.block];
    let used: BTreeSet<u32> = files.iter().flatten().flatten().copied().collect();
    let in_use = |b: u32| geo.is_static(b) || used.contains(&b);
    let free: Vec<u32> = (0..geo.groups())
        .map(|g| (geo.group(g).0..geo.group(g).1).filter(|b| !in_use(*b)).count() as u32)
        .collect();
    let at = |block: u32| block as usize * geo.block;
    let table = descriptors(geo, &free);
    for g in 0..geo.groups() {
        image[at(geo.bitmap(g))..][..geo.block].copy_from_slice(&bitmap(geo, g, in_use));
        image[at(geo.bitmap(g) + 1)..][..geo.block].fill(0xff);
        if Geometry::copy_blocks(g) > 0 {
            image[at(geo.group(g).0 + 1)..][..geo.block].copy_from_slice(&table);
        }
    }
    for (ino, file) in (FIRST_FILE..).zip(files) {
        let (block, byte) = geo.inode_at(ino);
        put_inode(&mut image[at(block) + byte..][..INODE], file, geo.block);
    }
    let sb = superblock(geo, free.iter().sum(), 0, true);
    image[geo.superblock_at() as usize..][..1024].copy_from_slice(&sb);
    image
}

/// Every file of a volume, from inode [`FIRST_FILE`] on. `read` brings a block.
pub fn files(geo: &Geometry, read: impl Fn(u32) -> Vec<u8>) -> Vec<File> {
    let mut all = Vec::new();
    for g in 0..geo.groups() {
        for block in geo.inode_table(g) {
            all.extend(read(block).chunks_exact(INODE).map(inode));
        }
    }
    all.split_off(FIRST_FILE as usize - 1)
}

/// The blocks that map the file on inode 5, which is larger than a file of this world's client.
pub fn table_map(geo: &Geometry, read: impl Fn(u32) -> Vec<u8>) -> BTreeSet<u32> {
    let (block, at) = geo.inode_at(5);
    let bytes = read(block);
    let pointer = |i: usize| Some(le32(&bytes[at + 40 + 4 * i..])).filter(|b| *b != 0);
    let mut map: BTreeSet<u32> = [12, 13, 14].into_iter().filter_map(pointer).collect();
    if let Some(double) = pointer(13) {
        map.extend(read(double).chunks_exact(4).map(le32).filter(|b| *b != 0));
    }
    map
}

/// What a full check leaves.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Blocks to write, some as they are already.
    pub writes: Vec<(u32, Vec<u8>)>,
    /// The superblock's bytes.
    pub superblock: Vec<u8>,
    /// The files that are left, from inode [`FIRST_FILE`] on.
    pub files: Vec<File>,
}

/// A full check: files that claim a block of another or of no one go, bitmaps and counts are made anew, the
/// superblock is clean. `reserved` are blocks of the table's file.
pub fn checked(geo: &Geometry, read: impl Fn(u32) -> Vec<u8>, reserved: &BTreeSet<u32>) -> Checked {
    let mut used = reserved.clone();
    let mut out = Vec::new();
    let mut all = files(geo, &read);
    for (ino, file) in (FIRST_FILE..).zip(&mut all) {
        let Some(blocks) = file else { continue };
        let mine: BTreeSet<u32> = blocks.iter().copied().collect();
        let fits = |b: &u32| *b < geo.blocks && !geo.is_static(*b) && !used.contains(b);
        if mine.len() == blocks.len() && mine.iter().all(fits) {
            used.extend(mine);
            continue;
        }
        *file = None;
        let (block, byte) = geo.inode_at(ino);
        let at = out.iter().position(|(b, _): &(u32, Vec<u8>)| *b == block).unwrap_or_else(|| {
            out.push((block, read(block)));
            out.len() - 1
        });
        put_inode(&mut out[at].1[byte..][..INODE], &None, geo.block);
    }
    let in_use = |b: u32| geo.is_static(b) || used.contains(&b);
    let mut free = Vec::new();
    for g in 0..geo.groups() {
        let (start, end) = geo.group(g);
        free.push((start..end).filter(|b| !in_use(*b)).count() as u32);
        out.push((geo.bitmap(g), bitmap(geo, g, in_use)));
    }
    out.push((geo.descriptors(), descriptors(geo, &free)));
    let at = geo.superblock();
    let found = read(at);
    let byte = (geo.superblock_at() - u64::from(at) * geo.block as u64) as usize;
    let (_, mounts) = state(&found[byte..][..1024]);
    Checked { writes: out, superblock: superblock(geo, free.iter().sum(), mounts, true), files: all }
}

fn put16(b: &mut [u8], at: usize, v: u16) {
    b[at..at + 2].copy_from_slice(&v.to_le_bytes());
}

fn put32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

fn le32(b: &[u8]) -> u32 {
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_a_fresh_volume_changes_nothing() {
        for block in [1024, 2048, 4096] {
            let geo = Geometry::new(block, 4, 9);
            let image = make(&geo, &[Some(vec![700, 701]), None, Some(vec![500])]);
            let read = |b: u32| image[b as usize * block..][..block].to_vec();
            let Checked { writes, superblock, files: found } = checked(&geo, read, &BTreeSet::new());
            assert!(writes.iter().all(|(b, bytes)| read(*b) == *bytes), "blocks of {block}");
            assert_eq!(image[1024..2048], superblock[..]);
            assert_eq!(found[..3], [Some(vec![700, 701]), None, Some(vec![500])]);
            assert!(found[3..].iter().all(Option::is_none));
        }
    }

    #[test]
    fn a_block_claimed_twice_stays_with_the_first() {
        let geo = Geometry::new(1024, 4, 0);
        let image = make(&geo, &[Some(vec![700, 701]), Some(vec![701])]);
        let read = |b: u32| image[b as usize * 1024..][..1024].to_vec();
        let found = checked(&geo, read, &BTreeSet::new()).files;
        assert_eq!(found[..2], [Some(vec![700, 701]), None]);
    }
}
