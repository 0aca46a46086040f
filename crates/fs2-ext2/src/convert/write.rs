//! Writes of a conversion: whole blocks, what is not ours in them unchanged.

use super::by_group;
use crate::free::{FreeMap, mark};
use crate::inode::{INODE_BYTES, Inode, place_of};
use crate::layout::{Layout, READ_BYTES_MAX};
use crate::problem::Problem;
use crate::superblock::{DESCRIPTOR_BYTES, Superblock};
use fs2_block::{BlockNo, BlockRange, Extent, WriteAt};
use std::collections::BTreeSet;

pub(super) struct Writer<'a> {
    pub(super) dev: &'a mut dyn WriteAt,
    pub(super) layout: &'a Layout,
}

impl Writer<'_> {
    pub(super) fn flush(&mut self, what: &str) -> Result<(), Problem> {
        self.dev.flush().map_err(|e| Problem::io(format!("flushing after {what}"), e))
    }

    /// Reads a block, has it changed, writes it.
    fn change(
        &mut self,
        block: BlockNo,
        what: &str,
        change: impl FnOnce(&mut [u8]) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let extent = block.extent(self.layout.block_size());
        let mut bytes = vec![0; extent.len() as usize];
        self.dev
            .read_at(extent.offset(), &mut bytes)
            .map_err(|e| Problem::io(format!("reading block {block}, {what}"), e))?;
        change(&mut bytes)?;
        self.dev
            .write_at(extent.offset(), &bytes)
            .map_err(|e| Problem::io(format!("writing block {block}, {what}"), e))
    }

    pub(super) fn superblock(&mut self, superblock: &Superblock) -> Result<(), Problem> {
        let extent = self.layout.superblock_extent();
        let size = u64::from(self.layout.block_size().bytes());
        let at = (extent.offset() % size) as usize;
        self.change(BlockNo((extent.offset() / size) as u32), "superblock", |bytes| {
            bytes[at..at + extent.len() as usize].copy_from_slice(superblock.raw());
            Ok(())
        })
    }

    /// Writes the primary descriptors of the groups that `ranges` lie in.
    pub(super) fn descriptors(&mut self, ranges: &[BlockRange]) -> Result<(), Problem> {
        let layout = self.layout;
        let per_block = layout.block_size().bytes() / DESCRIPTOR_BYTES;
        let blocks: BTreeSet<u32> =
            by_group(layout, ranges).iter().map(|(group, _)| group / per_block).collect();
        for block in blocks {
            let size = layout.block_size().bytes() as usize;
            let from = block as usize * size;
            let bytes = layout.descriptors_bytes();
            let bytes = &bytes[from..bytes.len().min(from + size)];
            self.change(BlockNo(layout.first_data_block() + 1 + block), "group descriptors", |old| {
                old[..bytes.len()].copy_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Marks `ranges` used, or free, in the bitmaps of their groups.
    pub(super) fn bitmaps(&mut self, ranges: &[BlockRange], used: bool) -> Result<(), Problem> {
        let layout = self.layout;
        for of_group in by_group(layout, ranges).chunk_by(|(a, _), (b, _)| a == b) {
            let Some(&(group, _)) = of_group.first() else { continue };
            let what = format!("block bitmap of group {group}");
            self.change(layout.bitmap_block(group), &what, |bytes| {
                for &(_, range) in of_group {
                    mark(bytes, layout.group_blocks(group).start(), range, used);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether the bitmaps call all of `ranges` used.
    pub(super) fn check_used(&mut self, ranges: &[BlockRange]) -> Result<(), Problem> {
        let layout = self.layout;
        for of_group in by_group(layout, ranges).chunk_by(|(a, _), (b, _)| a == b) {
            let Some(&(group, _)) = of_group.first() else { continue };
            let bytes = layout.read_bitmap(&mut *self.dev, group)?;
            let map = FreeMap::new(layout, group, &bytes)?;
            let free = of_group.iter().flat_map(|(_, range)| range.iter()).find(|&block| map.is_free(block));
            if let Some(block) = free {
                return Err(Problem::corrupt(
                    format!("block {}, block bitmap of group {group}", layout.bitmap_block(group)),
                    format!("block {block} of inode 5 is marked free"),
                ));
            }
        }
        Ok(())
    }

    pub(super) fn zero(&mut self, ranges: &[BlockRange]) -> Result<(), Problem> {
        for range in ranges {
            let extent = range.extent(self.layout.block_size());
            self.dev
                .write_zeroes(extent.offset(), extent.len())
                .map_err(|e| Problem::io(format!("zeroing blocks {range}"), e))?;
        }
        Ok(())
    }

    pub(super) fn zero_extents(&mut self, extents: &[Extent]) -> Result<(), Problem> {
        for extent in extents {
            self.dev
                .write_zeroes(extent.offset(), extent.len())
                .map_err(|e| Problem::io(format!("zeroing the bytes from {}", extent.offset()), e))?;
        }
        Ok(())
    }

    /// Writes blocks, those that follow each other together.
    pub(super) fn blocks(&mut self, blocks: &[(BlockNo, Vec<u8>)]) -> Result<(), Problem> {
        let size = self.layout.block_size();
        let at_once = READ_BYTES_MAX / size.bytes() as usize;
        for run in blocks.chunk_by(|(a, _), (b, _)| b.0 == a.0 + 1).flat_map(|run| run.chunks(at_once)) {
            let Some(&(first, _)) = run.first() else { continue };
            let bytes: Vec<u8> = run.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
            self.dev
                .write_at(first.extent(size).offset(), &bytes)
                .map_err(|e| Problem::io(format!("writing indirect blocks from block {first}"), e))?;
        }
        Ok(())
    }

    pub(super) fn inode(&mut self, inode: &Inode) -> Result<(), Problem> {
        let (block, at) = place_of(self.layout, inode.ino)?;
        self.change(block, &format!("inode {}", inode.ino), |bytes| {
            inode.put(&mut bytes[at..at + INODE_BYTES]);
            Ok(())
        })
    }
}
