//! The volume of a trace: an ext2 file system's structure, made when it is looked at.
//!
//! Superblock, descriptors and bitmaps follow from a [`FreeMap`]; everything else reads as zeroes, but for
//! what was written and is not zero. `mkfs2`'s own code gives it a replica table.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use fs2_block::{BlockNo, BlockSize, Permille, ReadAt, WriteAt};
use fs2_engine::offline::{CreateOptions, Devices, OfflineError, create};
use roaring::RoaringBitmap;

use super::FreeMap;

const SUPERBLOCK_AT: u64 = 1024;

/// See the module. Memory: 32 bytes a group, the free map, the blocks that were written.
#[derive(Clone)]
pub struct Image {
    block_size: BlockSize,
    blocks: u32,
    first_block: u32,
    blocks_per_group: u32,
    superblock: Box<[u8; 1024]>,
    descriptors: Vec<u8>,
    /// Block of each bitmap, and its group.
    bitmaps: BTreeMap<u32, u32>,
    free: RoaringBitmap,
    written: BTreeMap<u32, Box<[u8]>>,
}

fn put16(b: &mut [u8], at: usize, value: u16) {
    b[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(b: &mut [u8], at: usize, value: u32) {
    b[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Clears these bits of a bitmap.
fn clear(bitmap: &mut [u8], bits: Range<usize>) {
    let (first, last) = (bits.start.div_ceil(8), bits.end / 8);
    if first > last {
        // Within one byte.
        bitmap[last] &= !(0xff << (bits.start % 8)) | (0xff << (bits.end % 8));
        return;
    }
    bitmap[first..last].fill(0);
    if !bits.start.is_multiple_of(8) {
        bitmap[first - 1] &= !(0xff << (bits.start % 8));
    }
    if !bits.end.is_multiple_of(8) {
        bitmap[last] &= 0xff << (bits.end % 8);
    }
}

impl Image {
    /// The volume of `map`, without a table.
    pub fn new(map: &FreeMap) -> Image {
        let groups = map.groups.len() as u32;
        let mut superblock = Box::new([0u8; 1024]);
        let s = &mut superblock[..];
        let log = map.block_size.bytes().ilog2() - 10;
        let ro_compat = 2 | u32::from(map.sparse_super);
        let free = u32::try_from(map.free.len()).unwrap_or(u32::MAX);
        for (at, value) in [
            (0, map.inodes_per_group.saturating_mul(groups)),
            (4, map.blocks),
            (12, free),
            (16, map.inodes_per_group.saturating_mul(groups).saturating_sub(11)),
            (20, map.first_block()),
            (24, log),
            (28, log),
            (32, map.blocks_per_group),
            (36, map.blocks_per_group),
            (40, map.inodes_per_group),
            (76, 1),
            (84, 11),
            // ext_attr, resize_inode, dir_index; filetype; large_file, sparse_super.
            (92, 0x38),
            (96, 0x2),
            (100, ro_compat),
        ] {
            put32(s, at, value);
        }
        put16(s, 54, u16::MAX); // no check after so many mounts
        put16(s, 56, 0xef53);
        put16(s, 58, 1); // unmounted in order
        put16(s, 60, 1); // go on after errors
        put16(s, 88, map.inode_size);
        put16(s, 206, map.reserved_gdt);
        s[104..120].copy_from_slice(b"fs2 replay volum");
        let mut descriptors = vec![0; groups as usize * 32];
        let mut bitmaps = BTreeMap::new();
        let first = map.first_block();
        for (g, (d, place)) in (0..).zip(descriptors.chunks_exact_mut(32).zip(&map.groups)) {
            put32(d, 0, place.block_bitmap);
            put32(d, 4, place.inode_bitmap);
            put32(d, 8, place.inode_table);
            let start = first + g * map.blocks_per_group;
            let end = (u64::from(start) + u64::from(map.blocks_per_group)).min(u64::from(map.blocks)) as u32;
            let free = map.free.range_cardinality(start..end);
            put16(d, 12, u16::try_from(free).unwrap_or(u16::MAX));
            put16(d, 14, u16::try_from(map.inodes_per_group).unwrap_or(u16::MAX));
            bitmaps.insert(place.block_bitmap, g);
        }
        Image {
            block_size: map.block_size,
            blocks: map.blocks,
            first_block: first,
            blocks_per_group: map.blocks_per_group,
            superblock,
            descriptors,
            bitmaps,
            free: map.free.clone(),
            written: BTreeMap::new(),
        }
    }

    /// Makes the replica table, as `mkfs2 --space` does.
    ///
    /// # Errors
    /// As [`create`]: what is no volume for a table, or has no room for it.
    pub fn convert(&mut self, space: Permille, volume_id: u64) -> Result<(), OfflineError> {
        let options = CreateOptions { space, volume_id, now_secs: 0, checked: true };
        create(&mut Devices::new(self, None), &options, &mut |_| {}).map(|_| ())
    }

    fn is_plain(&self, block: u32) -> bool {
        let structure = self.block_size.bytes_of(self.first_block + 1) + self.descriptors.len() as u64;
        u64::from(block) * u64::from(self.block_size.bytes()) >= structure.max(2 * SUPERBLOCK_AT)
            && !self.bitmaps.contains_key(&block)
    }

    /// The block as the free map has it.
    fn make(&self, block: u32, out: &mut [u8]) {
        out.fill(0);
        let bs = u64::from(self.block_size.bytes());
        let at = u64::from(block) * bs;
        let mut put = |from: u64, bytes: &[u8]| {
            let (start, end) = (from.max(at), (from + bytes.len() as u64).min(at + bs));
            if start < end {
                out[(start - at) as usize..(end - at) as usize]
                    .copy_from_slice(&bytes[(start - from) as usize..(end - from) as usize]);
            }
        };
        put(SUPERBLOCK_AT, &self.superblock[..]);
        put(self.block_size.bytes_of(self.first_block + 1), &self.descriptors);
        let Some(&group) = self.bitmaps.get(&block) else { return };
        out.fill(0xff);
        let start = self.first_block + group * self.blocks_per_group;
        let end = (u64::from(start) + u64::from(self.blocks_per_group)).min(u64::from(self.blocks)) as u32;
        // By runs: a volume of terabytes has this done for each block group, and that was most of a short replay.
        let mut free = self.free.range(start..end);
        while let Some(run) = free.next_range() {
            clear(out, (run.start() - start) as usize..(run.end() - start) as usize + 1);
        }
    }

    fn read_block(&self, block: u32, out: &mut [u8]) {
        match self.written.get(&block) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => self.make(block, out),
        }
    }

    /// Calls `each` with block, offset in it and the part of `len` bytes from `offset` that lies in it.
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(u32, usize, std::ops::Range<usize>),
    ) -> io::Result<()> {
        let bs = u64::from(self.block_size.bytes());
        if offset.checked_add(len as u64).is_none_or(|end| end > bs * u64::from(self.blocks)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % bs) as usize;
            let n = (bs as usize - within).min(len - done);
            each((at / bs) as u32, within, done..done + n);
            done += n;
        }
        Ok(())
    }

    /// Blocks whose bytes are kept.
    pub fn kept_blocks(&self) -> usize {
        self.written.len()
    }

    /// The block at `block`, for tests of what was drawn.
    pub fn is_free(&self, block: BlockNo) -> bool {
        self.free.contains(block.0)
    }
}

impl ReadAt for Image {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut whole = vec![0; self.block_size.bytes() as usize];
        self.pieces(offset, buf.len(), |block, within, part| {
            // Most of a table is zeroes that nobody made.
            if self.is_plain(block) && !self.written.contains_key(&block) {
                buf[part].fill(0);
                return;
            }
            self.read_block(block, &mut whole);
            let n = part.len();
            buf[part].copy_from_slice(&whole[within..within + n]);
        })
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.block_size.bytes_of(self.blocks))
    }
}

impl WriteAt for Image {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut parts = Vec::new();
        self.pieces(offset, buf.len(), |block, within, part| parts.push((block, within, part)))?;
        let mut whole = vec![0; self.block_size.bytes() as usize];
        for (block, within, part) in parts {
            self.read_block(block, &mut whole);
            whole[within..within + part.len()].copy_from_slice(&buf[part]);
            if self.is_plain(block) && whole.iter().all(|&b| b == 0) {
                self.written.remove(&block);
            } else {
                self.written.insert(block, whole[..].into());
            }
        }
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut at = offset;
        while at < offset + len {
            let n = (offset + len - at).min(zeroes.len() as u64);
            self.write_at(at, &zeroes[..n as usize])?;
            at += n;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_cleared_as_one_by_one() {
        for start in 0..40 {
            for end in start + 1..=40 {
                let (mut runs, mut bits) = ([0xffu8; 5], [0xffu8; 5]);
                clear(&mut runs, start..end);
                (start..end).for_each(|bit| bits[bit / 8] &= !(1 << (bit % 8)));
                assert_eq!(runs, bits, "{start}..{end}");
            }
        }
    }
}
