//! Where everything lies that does not move: groups, bitmaps, inode tables, copies.
//!
//! L1: every bitmap and inode table lies inside the volume, and no two pieces of static metadata
//!     share a block.
//! L2: the list of static metadata is sorted, its ranges neither touch nor overlap.

use crate::problem::{Problem, UnreadCopy};
use crate::raw::{le16, le32, put16, put32};
use crate::superblock::{DESCRIPTOR_BYTES, SUPERBLOCK_BYTES, Superblock};
use fs2_block::{BlockNo, BlockRange, BlockSize, Extent, ReadAt};

/// The largest single read of this crate, in bytes.
pub(crate) const READ_BYTES_MAX: usize = 1 << 20;

/// One group's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// The block that says which blocks of the group are in use.
    pub block_bitmap: BlockNo,
    /// The block that says which inodes of the group are in use.
    pub inode_bitmap: BlockNo,
    /// The first block of the group's inode table.
    pub inode_table: BlockNo,
    /// Free blocks in the group.
    pub free_blocks: u16,
    /// Free inodes in the group.
    pub free_inodes: u16,
    /// Directories in the group.
    pub used_dirs: u16,
}

impl GroupDesc {
    fn parse(b: &[u8]) -> GroupDesc {
        GroupDesc {
            block_bitmap: BlockNo(le32(b, 0)),
            inode_bitmap: BlockNo(le32(b, 4)),
            inode_table: BlockNo(le32(b, 8)),
            free_blocks: le16(b, 12),
            free_inodes: le16(b, 14),
            used_dirs: le16(b, 16),
        }
    }

    fn put(&self, b: &mut [u8]) {
        put32(b, 0, self.block_bitmap.0);
        put32(b, 4, self.inode_bitmap.0);
        put32(b, 8, self.inode_table.0);
        put16(b, 12, self.free_blocks);
        put16(b, 14, self.free_inodes);
        put16(b, 16, self.used_dirs);
    }
}

/// The layout of a volume: superblock, descriptors and what follows from them. About 80 bytes a
/// group (0.6 MiB for a TiB at 4 KiB blocks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    superblock: Superblock,
    groups: Vec<GroupDesc>,
    descriptors: Vec<u8>,
    /// Static metadata, L2.
    fixed: Vec<BlockRange>,
    fixed_blocks: u64,
    /// Block of each block bitmap with its group, sorted.
    bitmaps: Vec<(BlockNo, u32)>,
    /// Groups that begin with a copy of the superblock, ascending, without group 0.
    copies: Vec<u32>,
}

/// What a piece of static metadata is, for messages.
#[derive(Clone, Copy)]
enum Piece {
    Boot,
    Copy,
    BlockBitmap,
    InodeBitmap,
    InodeTable,
}

impl Piece {
    fn name(self) -> &'static str {
        match self {
            Piece::Boot => "boot block",
            Piece::Copy => "superblock and descriptors",
            Piece::BlockBitmap => "block bitmap",
            Piece::InodeBitmap => "inode bitmap",
            Piece::InodeTable => "inode table",
        }
    }
}

impl Layout {
    /// Reads superblock and descriptors, in reads of at most 1 MiB.
    ///
    /// # Errors
    /// As [`Superblock::parse`]; [`Problem::TooShort`] for what is empty or nearly so; [`Problem::NoSuperblock`] where a copy of it has the magic number; [`Problem::Truncated`] where the device is smaller than the
    /// volume; [`Problem::Corrupt`] for descriptors that lead astray; [`Problem::Io`].
    pub fn read(dev: &mut dyn ReadAt) -> Result<Layout, Problem> {
        let has = dev.size_bytes().map_err(|e| Problem::io("asking the device for its size", e))?;
        if has < 2 * SUPERBLOCK_BYTES as u64 {
            return Err(Problem::TooShort { has });
        }
        let mut raw = [0; SUPERBLOCK_BYTES];
        dev.read_at(SUPERBLOCK_BYTES as u64, &mut raw)
            .map_err(|e| Problem::io("reading the superblock at byte 1024", e))?;
        let superblock = match Superblock::parse(&raw) {
            Err(Problem::NotExt2) => return Err(superblock_copy(dev, has).unwrap_or(Problem::NotExt2)),
            parsed => parsed?,
        };
        let needs = superblock.block_size().bytes_of(superblock.blocks_count());
        if needs > has {
            return Err(Problem::Truncated { needs, has });
        }
        let extent = descriptors_extent(&superblock);
        let mut bytes = vec![0; extent.len() as usize];
        let mut offset = extent.offset();
        for piece in bytes.chunks_mut(READ_BYTES_MAX) {
            dev.read_at(offset, piece)
                .map_err(|e| Problem::io(format!("reading the group descriptors at byte {offset}"), e))?;
            offset += piece.len() as u64;
        }
        let groups = bytes.chunks_exact(DESCRIPTOR_BYTES as usize).map(GroupDesc::parse).collect();
        Layout::build(superblock, groups, bytes)
    }

    /// From parts already at hand. Descriptor bytes that [`GroupDesc`] does not name are zero.
    ///
    /// # Errors
    /// [`Problem::Corrupt`] where the parts do not fit each other.
    pub fn from_parts(superblock: Superblock, groups: Vec<GroupDesc>) -> Result<Layout, Problem> {
        let mut bytes = vec![0; groups.len() * DESCRIPTOR_BYTES as usize];
        for (group, b) in groups.iter().zip(bytes.chunks_exact_mut(DESCRIPTOR_BYTES as usize)) {
            group.put(b);
        }
        Layout::build(superblock, groups, bytes)
    }

    fn build(
        superblock: Superblock,
        groups: Vec<GroupDesc>,
        descriptors: Vec<u8>,
    ) -> Result<Layout, Problem> {
        if groups.len() != superblock.group_count() as usize {
            return Err(Problem::corrupt(
                "group descriptors",
                format!("{} of them for {} groups", groups.len(), superblock.group_count()),
            ));
        }
        let mut layout = Layout {
            superblock,
            groups,
            descriptors,
            fixed: Vec::new(),
            fixed_blocks: 0,
            bitmaps: Vec::new(),
            copies: Vec::new(),
        };
        let pieces = layout.pieces()?;
        for &(range, _, _) in &pieces {
            layout.fixed_blocks += u64::from(range.len());
            match layout.fixed.last_mut() {
                Some(last) if last.end() == range.start() => {
                    *last = BlockRange::new(last.start(), range.end())
                }
                _ => layout.fixed.push(range),
            }
        }
        layout.fixed.shrink_to_fit();
        layout.bitmaps = (0..).zip(&layout.groups).map(|(g, d)| (d.block_bitmap, g)).collect();
        layout.bitmaps.sort_unstable();
        let sb = &layout.superblock;
        layout.copies = (1..sb.group_count()).filter(|&group| sb.has_copy(group)).collect();
        Ok(layout)
    }

    /// Every piece of static metadata with what it is and its group, sorted. Checks L1.
    fn pieces(&self) -> Result<Vec<(BlockRange, Piece, u32)>, Problem> {
        let sb = &self.superblock;
        let copy_blocks = 1 + u64::from(sb.descriptor_blocks()) + u64::from(sb.reserved_gdt_blocks());
        let mut pieces = Vec::with_capacity(self.groups.len() * 4 + 1);
        let mut add = |first: BlockNo, len: u64, piece: Piece, group: u32| {
            let end = u64::from(first.0) + len;
            if first.0 < sb.first_data_block() || end > u64::from(sb.blocks_count()) {
                return Err(Problem::corrupt(
                    format!("descriptor of group {group}"),
                    format!("{} at blocks {first} to {} is outside the volume", piece.name(), end - 1),
                ));
            }
            pieces.push((BlockRange::new(first.0, end as u32), piece, group));
            Ok(())
        };
        for (group, desc) in (0..).zip(&self.groups) {
            if sb.has_copy(group) {
                add(self.group_blocks(group).first(), copy_blocks, Piece::Copy, group)?;
            }
            add(desc.block_bitmap, 1, Piece::BlockBitmap, group)?;
            add(desc.inode_bitmap, 1, Piece::InodeBitmap, group)?;
            add(desc.inode_table, sb.inode_table_blocks(), Piece::InodeTable, group)?;
        }
        pieces.extend((sb.first_data_block() > 0).then_some((BlockRange::new(0, 1), Piece::Boot, 0)));
        pieces.sort_unstable_by_key(|(range, _, _)| *range);
        if let Some([(a, piece_a, group_a), (_, piece_b, group_b)]) =
            pieces.array_windows().find(|[(a, _, _), (b, _, _)]| a.end() > b.start())
        {
            return Err(Problem::corrupt(
                format!("descriptor of group {group_b}"),
                format!("{} overlaps the {} of group {group_a} at {a}", piece_b.name(), piece_a.name()),
            ));
        }
        Ok(pieces)
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> BlockSize {
        self.superblock.block_size()
    }

    /// Blocks in the volume (`s_blocks_count`), block 0 included.
    pub fn blocks(&self) -> u32 {
        self.superblock.blocks_count()
    }

    /// The first block of group 0.
    pub fn first_data_block(&self) -> u32 {
        self.superblock.first_data_block()
    }

    /// Blocks in every group but the last.
    pub fn blocks_per_group(&self) -> u32 {
        self.superblock.blocks_per_group()
    }

    /// The descriptors, by group.
    pub fn groups(&self) -> &[GroupDesc] {
        &self.groups
    }

    /// Number of groups.
    pub fn group_count(&self) -> u32 {
        self.superblock.group_count()
    }

    /// The group `block` is in. Blocks before the first group count to group 0, blocks beyond the
    /// volume to the last.
    pub fn group_of(&self, block: BlockNo) -> u32 {
        (block.0.saturating_sub(self.first_data_block()) / self.blocks_per_group())
            .min(self.group_count() - 1)
    }

    /// The blocks of group `group`, the last clipped at the volume's end; empty beyond it.
    pub fn group_blocks(&self, group: u32) -> BlockRange {
        let start =
            u64::from(self.first_data_block()) + u64::from(group) * u64::from(self.blocks_per_group());
        let end = (start + u64::from(self.blocks_per_group())).min(u64::from(self.blocks()));
        if start >= end { BlockRange::EMPTY } else { BlockRange::new(start as u32, end as u32) }
    }

    /// The block bitmap of group `group`.
    ///
    /// # Panics
    /// Where there is no such group.
    pub fn bitmap_block(&self, group: u32) -> BlockNo {
        self.groups[group as usize].block_bitmap
    }

    /// The block bitmaps in `range`, in block order: group and block. One binary search.
    pub fn bitmaps_in(&self, range: BlockRange) -> impl Iterator<Item = (u32, BlockNo)> {
        let from = self.bitmaps.partition_point(|(block, _)| block.0 < range.start());
        self.bitmaps[from..]
            .iter()
            .take_while(move |(block, _)| block.0 < range.end())
            .map(|&(block, group)| (group, block))
    }

    /// The bytes of the primary superblock.
    pub fn superblock_extent(&self) -> Extent {
        Extent::new(SUPERBLOCK_BYTES as u64, SUPERBLOCK_BYTES as u64)
    }

    /// Groups that begin with a copy of the superblock, ascending, without group 0.
    pub fn copies(&self) -> &[u32] {
        &self.copies
    }

    /// The bytes of the copy of the superblock in group `group`, if it has one.
    pub fn copy_extent(&self, group: u32) -> Extent {
        let block = self.group_blocks(group).first();
        Extent::new(block.extent(self.block_size()).offset(), SUPERBLOCK_BYTES as u64)
    }

    /// The groups whose copy of the superblock `extent` touches. One binary search.
    pub fn copies_in(&self, extent: Extent) -> impl Iterator<Item = u32> {
        let from = self.copies.partition_point(|&group| self.copy_extent(group).end() <= extent.offset());
        let touched = move |group: &u32| self.copy_extent(*group).offset() < extent.end();
        self.copies[from..].iter().copied().take_while(touched)
    }

    /// The bytes of the primary descriptors, exactly.
    pub fn descriptors_extent(&self) -> Extent {
        descriptors_extent(&self.superblock)
    }

    /// The bytes of the primary descriptors, as read.
    pub fn descriptors_bytes(&self) -> &[u8] {
        &self.descriptors
    }

    /// Whether `block` holds static metadata: boot block, superblock or descriptors (each copy, and
    /// what is reserved behind it), a bitmap, an inode table. Blocks outside the volume count as
    /// such, so that nothing is ever put there.
    pub fn is_static_metadata(&self, block: BlockNo) -> bool {
        if block.0 >= self.blocks() {
            return true;
        }
        let after = self.fixed.partition_point(|range| range.start() <= block.0);
        after > 0 && self.fixed[after - 1].contains(block)
    }

    /// Static metadata in `range`, as sorted ranges that neither touch nor overlap, clipped to it.
    pub fn static_metadata_in(&self, range: BlockRange) -> impl Iterator<Item = BlockRange> {
        let from = self.fixed.partition_point(|fixed| fixed.end() <= range.start());
        self.fixed[from..]
            .iter()
            .take_while(move |fixed| fixed.start() < range.end())
            .map(move |fixed| fixed.intersect(range))
    }

    /// Blocks that hold static metadata.
    pub fn static_metadata_blocks(&self) -> u64 {
        self.fixed_blocks
    }

    /// Whether every feature is on the allow-list: what `mke2fs -t ext2` sets.
    ///
    /// # Errors
    /// [`Problem::Unsupported`] names each other feature as dumpe2fs does.
    pub fn unsupported(&self) -> Result<(), Problem> {
        self.superblock.unsupported()
    }

    /// Whether the volume was unmounted in order.
    pub fn is_clean(&self) -> bool {
        self.superblock.is_clean()
    }

    /// Whether the superblock says that errors were found.
    pub fn has_errors(&self) -> bool {
        self.superblock.has_errors()
    }

    /// Whether the volume may be worked on: allowed features, clean, no errors.
    ///
    /// # Errors
    /// [`Problem::Unsupported`], [`Problem::Errors`] or [`Problem::Dirty`], in this order.
    pub fn check_usable(&self) -> Result<(), Problem> {
        self.unsupported()?;
        if self.has_errors() {
            return Err(Problem::Errors);
        }
        if !self.is_clean() {
            return Err(Problem::Dirty);
        }
        Ok(())
    }

    /// Reads one group's block bitmap: a block of bytes.
    ///
    /// # Errors
    /// [`Problem::Io`].
    ///
    /// # Panics
    /// Where there is no such group.
    pub fn read_bitmap(&self, dev: &mut dyn ReadAt, group: u32) -> Result<Vec<u8>, Problem> {
        let mut bytes = vec![0; self.block_size().bytes() as usize];
        self.read_bitmap_into(dev, group, &mut bytes)?;
        Ok(bytes)
    }

    fn read_bitmap_into(&self, dev: &mut dyn ReadAt, group: u32, bytes: &mut [u8]) -> Result<(), Problem> {
        let block = self.bitmap_block(group);
        dev.read_at(block.extent(self.block_size()).offset(), bytes)
            .map_err(|e| Problem::io(format!("reading block {block}, block bitmap of group {group}"), e))
    }

    /// Reads every block bitmap, in group order, and hands each on.
    ///
    /// # Errors
    /// [`Problem::Io`], or what `each` returns; either ends it.
    pub fn for_each_bitmap(
        &self,
        dev: &mut dyn ReadAt,
        mut each: impl FnMut(u32, &[u8]) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut bytes = vec![0; self.block_size().bytes() as usize];
        for group in 0..self.group_count() {
            self.read_bitmap_into(dev, group, &mut bytes)?;
            each(group, &bytes)?;
        }
        Ok(())
    }

    /// Reads every copy of the superblock but the primary, in group order, and hands each on.
    ///
    /// # Errors
    /// [`UnreadCopy`].
    pub fn for_each_copy(
        &self,
        dev: &mut dyn ReadAt,
        mut each: impl FnMut(&[u8; SUPERBLOCK_BYTES]),
    ) -> Result<(), UnreadCopy> {
        let (mut bytes, block_bytes) = ([0; SUPERBLOCK_BYTES], self.block_size().bytes());
        for &group in &self.copies {
            let block = self.group_blocks(group).first();
            dev.read_at(self.copy_extent(group).offset(), &mut bytes).map_err(|source| UnreadCopy {
                block,
                block_bytes,
                group,
                source,
            })?;
            each(&bytes);
        }
        Ok(())
    }

    /// Whether the volume was never mounted for writing, by a copy of its superblock neither, or checked in full since. Reads every copy.
    ///
    /// Mount count and time of the check alone may be `tune2fs -C 0 -T now`'s, also below a mount that goes on: that writes every copy,
    /// e2fsck none that it finds good, and the unmount writes the superblock once more. One written in the second of the check is not told
    /// apart on a volume without copies.
    ///
    /// # Errors
    /// [`UnreadCopy`].
    pub fn is_checked_since_mounted(&self, dev: &mut dyn ReadAt) -> Result<bool, UnreadCopy> {
        let superblock = self.superblock();
        let (mut checked, mut passed_over) = (superblock.tells_of_check(), false);
        self.for_each_copy(dev, |copy| {
            checked &= !superblock.shares_check_with(copy);
            passed_over |= superblock.was_passed_over_for(copy);
        })?;
        Ok(!passed_over && (checked || (!superblock.was_mounted() && superblock.mnt_count() == 0)))
    }

    pub(crate) fn superblock_mut(&mut self) -> &mut Superblock {
        &mut self.superblock
    }

    /// Sets a group's count of free blocks, in the descriptor and in its bytes.
    pub(crate) fn set_free_blocks(&mut self, group: u32, free: u16) {
        let at = group as usize * DESCRIPTOR_BYTES as usize;
        self.groups[group as usize].free_blocks = free;
        put16(&mut self.descriptors, at + 12, free);
    }
}

/// Where the primary superblock is not one: a copy, in the first block of group 1 as mke2fs lays groups out.
fn superblock_copy(dev: &mut dyn ReadAt, has: u64) -> Option<Problem> {
    const MAGIC: usize = 56;
    const LOG_BLOCK_SIZE: usize = 24;
    const BLOCK_GROUP_NR: usize = 90;
    (0..3u32).find_map(|log| {
        let block_bytes = 1024u64 << log;
        let block = 8 * block_bytes + u64::from(log == 0);
        let mut raw = [0; SUPERBLOCK_BYTES];
        // What cannot be read is no copy.
        let read =
            block * block_bytes + block_bytes <= has && dev.read_at(block * block_bytes, &mut raw).is_ok();
        let is_copy = read
            && le16(&raw, MAGIC) == 0xEF53
            && le32(&raw, LOG_BLOCK_SIZE) == log
            && le16(&raw, BLOCK_GROUP_NR) == 1;
        is_copy.then_some(Problem::NoSuperblock { block, block_bytes })
    })
}

fn descriptors_extent(sb: &Superblock) -> Extent {
    Extent::new(
        sb.block_size().bytes_of(sb.first_data_block() + 1),
        u64::from(sb.group_count()) * u64::from(DESCRIPTOR_BYTES),
    )
}
