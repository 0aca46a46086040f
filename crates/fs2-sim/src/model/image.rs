//! A small ext2 volume, byte by byte: one group, blocks of 1 KiB, sixteen inodes, one file.
//!
//! Written from the format alone, without `fs2-ext2`, so that the model's idea of what is where is its
//! own. `e2fsck -fn` finds nothing in it.

use super::content::{BLOCK, Content, Value};

/// Blocks of the volume: between the first and the last MiB lies one MiB.
pub const BLOCKS: u32 = 3072;
/// Byte of the superblock.
pub const SUPERBLOCK: u32 = 1;
/// Block of the descriptors.
pub const DESCRIPTORS: u32 = 2;
/// Block of the block bitmap.
pub const BITMAP: u32 = 3;
const INODE_BITMAP: u32 = 4;
const INODE_TABLE: u32 = 5;
const ROOT_DIR: u32 = 7;
const LOST_FOUND: u32 = 8;
const DATA_INO: u32 = 12;
/// The blocks of pointers of the file lie here.
const MAP_AT: u32 = 10;
/// So many a file of all blocks needs.
const MAP_MAX: u32 = 13;
const INODES: u32 = 16;
/// Byte in the superblock of its state.
pub const STATE: usize = 58;
/// Byte in the superblock of its mount count.
pub const MNT_COUNT: usize = 52;

/// How the free space of an image lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// In one piece.
    Plain,
    /// In single blocks, so that the table's file is in pieces.
    Fragmented,
}

/// The image: `data` are the blocks of its one file with what they hold, `keep_free` blocks that stay
/// free in every shape.
pub fn make(shape: Shape, data: &[(u32, Value)], keep_free: &[u32]) -> Vec<u8> {
    let mut file: Vec<u32> = data.iter().map(|d| d.0).collect();
    if shape == Shape::Fragmented {
        // The table takes the lowest of the single blocks.
        let full = |b: &u32| !(1024..1124).contains(b) || b.is_multiple_of(2);
        let taken = |b: &u32| file.contains(b) || keep_free.contains(b);
        let all: Vec<u32> = (MAP_AT + MAP_MAX..BLOCKS).filter(|b| full(b) && !taken(b)).collect();
        file.extend(all);
    }
    let mut image = vec![0u8; BLOCKS as usize * BLOCK];
    let map = Map::of(&file);
    for (block, bytes) in &map.nodes {
        at(&mut image, *block).copy_from_slice(bytes);
    }
    for &(block, value) in data {
        Content::of(value).put(at(&mut image, block));
    }
    let mut used: Vec<u32> = (1..=LOST_FOUND).chain(file.iter().copied()).collect();
    used.extend(map.nodes.iter().map(|n| n.0));
    let bitmap = at(&mut image, BITMAP);
    bitmap[(BLOCKS as usize - 1) / 8..].fill(0xff);
    for bit in 0..(BLOCKS - 1) % 8 {
        bitmap[(BLOCKS as usize - 1) / 8] &= !(1 << bit);
    }
    for b in &used {
        set_bit(bitmap, *b, true);
    }
    let free = BLOCKS - 1 - used.len() as u32;
    write_metadata(&mut image, free, file.len() as u32, &map);
    image
}

/// Sets or clears `block`'s bit in the bitmap's bytes.
pub fn set_bit(bitmap: &mut [u8], block: u32, used: bool) {
    let (byte, bit) = ((block as usize - 1) / 8, 1 << ((block - 1) % 8));
    if used {
        bitmap[byte] |= bit;
    } else {
        bitmap[byte] &= !bit;
    }
}

/// Whether `block`'s bit is set.
pub fn bit(bitmap: &[u8], block: u32) -> bool {
    bitmap[(block as usize - 1) / 8] >> ((block - 1) % 8) & 1 == 1
}

/// Writes the number of free blocks, as the bitmap has it, into the superblock and the descriptor.
pub fn count_free(bitmap: &[u8], superblock: &mut [u8], descriptors: &mut [u8]) {
    let free = (1..BLOCKS).filter(|b| !bit(bitmap, *b)).count();
    put32(superblock, 12, free as u32);
    put16(descriptors, 12, free as u16);
}

fn at(image: &mut [u8], block: u32) -> &mut [u8] {
    &mut image[block as usize * BLOCK..][..BLOCK]
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
    fn of(file: &[u32]) -> Map {
        let mut map = Map { root: [0; 15], nodes: Vec::new() };
        let direct = file.len().min(12);
        map.root[..direct].copy_from_slice(&file[..direct]);
        let rest = &file[direct..];
        if rest.is_empty() {
            return map;
        }
        let (single, rest) = rest.split_at(rest.len().min(256));
        map.root[12] = map.node(single);
        if !rest.is_empty() {
            let leaves: Vec<u32> = rest.chunks(256).map(|leaf| map.node(leaf)).collect();
            map.root[13] = map.node(&leaves);
        }
        map
    }

    fn node(&mut self, pointers: &[u32]) -> u32 {
        let n = self.nodes.len() as u32;
        assert!(n < MAP_MAX, "a file of so many blocks has no room for its map");
        let mut bytes = vec![0; BLOCK];
        for (i, p) in pointers.iter().enumerate() {
            put32(&mut bytes, i * 4, *p);
        }
        self.nodes.push((MAP_AT + n, bytes));
        MAP_AT + n
    }
}

fn write_metadata(image: &mut [u8], free: u32, file_blocks: u32, map: &Map) {
    let sb = at(image, SUPERBLOCK);
    for (offset, v) in [
        (0, INODES),
        (4, BLOCKS),
        (12, free),
        (16, INODES - 12),
        (20, 1),
        (32, 8192),
        (36, 8192),
        (40, INODES),
        (76, 1),
        (84, 11),
        (96, 2),
        (100, 1),
    ] {
        put32(sb, offset, v);
    }
    put16(sb, 54, 0xffff);
    put16(sb, 56, 0xEF53);
    put16(sb, STATE, 1);
    put16(sb, 60, 1);
    put16(sb, 88, 128);
    sb[104..120].copy_from_slice(b"fs2-sim's volume");

    let gd = at(image, DESCRIPTORS);
    put32(gd, 0, BITMAP);
    put32(gd, 4, INODE_BITMAP);
    put32(gd, 8, INODE_TABLE);
    put16(gd, 12, free as u16);
    put16(gd, 14, (INODES - 12) as u16);
    put16(gd, 16, 2);

    let inodes = at(image, INODE_BITMAP);
    inodes.fill(0xff);
    inodes[..2].copy_from_slice(&[0xff, 0x0f]);

    let mut inode = |ino: u32, mode: u16, links: u16, size: u32, blocks: u32, root: &[u32; 15]| {
        let table = &mut image[INODE_TABLE as usize * BLOCK..];
        let i = &mut table[(ino as usize - 1) * 128..][..128];
        put16(i, 0, mode);
        put32(i, 4, size);
        put16(i, 26, links);
        put32(i, 28, blocks * 2);
        for (k, p) in root.iter().enumerate() {
            put32(i, 40 + 4 * k, *p);
        }
    };
    let one = |block| {
        let mut root = [0; 15];
        root[0] = block;
        root
    };
    inode(2, 0o040_755, 3, BLOCK as u32, 1, &one(ROOT_DIR));
    inode(11, 0o040_700, 2, BLOCK as u32, 1, &one(LOST_FOUND));
    let map_blocks = map.nodes.len() as u32;
    inode(DATA_INO, 0o100_644, 1, file_blocks * BLOCK as u32, file_blocks + map_blocks, &map.root);

    let names: [(u32, u8, &[u8]); 4] =
        [(2, 2, b"."), (2, 2, b".."), (11, 2, b"lost+found"), (DATA_INO, 1, b"data")];
    directory(at(image, ROOT_DIR), &names);
    directory(at(image, LOST_FOUND), &[(11, 2, b"."), (2, 2, b"..")]);
}

fn directory(block: &mut [u8], entries: &[(u32, u8, &[u8])]) {
    let mut offset = 0;
    for (i, (ino, kind, name)) in entries.iter().enumerate() {
        let len = if i + 1 == entries.len() { BLOCK - offset } else { (8 + name.len()).next_multiple_of(4) };
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
        let image = make(Shape::Plain, &[(1100, 5)], &[]);
        let bitmap = &image[BITMAP as usize * BLOCK..][..BLOCK];
        assert!(bit(bitmap, 1) && bit(bitmap, LOST_FOUND) && !bit(bitmap, LOST_FOUND + 1));
        assert!(bit(bitmap, 1100) && !bit(bitmap, 1101) && !bit(bitmap, BLOCKS - 1));
        assert!(bitmap[(BLOCKS as usize - 1) / 8 + 1..].iter().all(|&b| b == 0xff));
    }
}
