//! Which blocks a file has, by direct to triple indirect pointers.
//!
//! B1: every block of a map lies in the volume and, but for the inode that owns what is reserved
//!     for growing, outside static metadata.
//! B2: no block occurs twice, and together they are no more than the inode's own count says: this
//!     bounds time and memory on a volume that lies.

use crate::inode::{DIRECT, Inode, RESIZE_INO};
use crate::layout::Layout;
use crate::problem::Problem;
use crate::raw::le32;
use fs2_block::{BlockNo, BlockRange, Extent, ReadAt};
use std::collections::HashSet;

/// Flags of an inode whose pointers are not a block map: extents, inline data.
const OTHER_MAPS: u32 = 0x8_0000 | 0x1000_0000;

/// The blocks of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockMap {
    /// Runs in file order: first file block, blocks of the volume. Holes lie between; two runs
    /// that follow each other in both are one.
    pub data: Vec<(u32, BlockRange)>,
    /// Indirect blocks, in the order a reader of the file meets them.
    pub indirect: Vec<BlockNo>,
    /// Bytes in the file.
    pub size: u64,
}

/// Levels of indirection from the inode's last three pointers.
const LEVELS: [u32; 3] = [1, 2, 3];

struct Walk<'a> {
    layout: &'a Layout,
    inode: &'a Inode,
    pointers: u64,
    /// File blocks to map: those up to the file's size.
    blocks: u64,
    /// Blocks the inode may still claim.
    left: u64,
    seen: HashSet<u32>,
    map: BlockMap,
}

impl BlockMap {
    /// Reads the map of `inode` up to the file's size. Inodes without one (devices, short symbolic
    /// links, empty ones) have an empty map.
    ///
    /// # Errors
    /// [`Problem::Corrupt`] for a pointer out of the volume or into static metadata, a block
    /// claimed twice, or more blocks than the inode counts; [`Problem::Unsupported`] for an inode
    /// with extents or inline data; [`Problem::Io`].
    pub fn read(layout: &Layout, dev: &mut dyn ReadAt, inode: &Inode) -> Result<BlockMap, Problem> {
        let block_bytes = u64::from(layout.block_size().bytes());
        let map = BlockMap { size: inode.size, ..BlockMap::default() };
        let sectors = u64::from(layout.block_size().sectors());
        let attributes = if inode.file_acl == 0 { 0 } else { sectors };
        let has_map = inode.is_regular()
            || inode.is_directory()
            || inode.is_symlink() && u64::from(inode.blocks) > attributes;
        if !has_map {
            return Ok(map);
        }
        if inode.flags & OTHER_MAPS != 0 {
            let feature = if inode.flags & 0x8_0000 != 0 { "extents" } else { "inline data" };
            return Err(Problem::Unsupported { features: vec![format!("{feature} in inode {}", inode.ino)] });
        }
        let mut walk = Walk {
            layout,
            inode,
            pointers: block_bytes / 4,
            blocks: inode.size.div_ceil(block_bytes).min(u64::from(u32::MAX)),
            left: u64::from(inode.blocks) / sectors,
            seen: HashSet::new(),
            map,
        };
        for (i, &pointer) in inode.block[..DIRECT].iter().enumerate() {
            walk.data(i as u64, pointer)?;
        }
        let mut first = DIRECT as u64;
        for (&level, &pointer) in LEVELS.iter().zip(&inode.block[DIRECT..]) {
            walk.indirect(dev, first, level, pointer)?;
            first += walk.pointers.pow(level);
        }
        walk.check_once()?;
        Ok(walk.map)
    }

    /// The file's bytes in order: byte of the file, bytes of the volume. Holes are left out; the
    /// last extent ends with the file.
    pub fn file_extents(&self, layout: &Layout) -> Vec<(u64, Extent)> {
        let size = layout.block_size();
        self.data
            .iter()
            .filter_map(|&(first, range)| {
                let at = size.bytes_of(first);
                let bytes = range.extent(size);
                let len = bytes.len().min(self.size.saturating_sub(at));
                (len > 0).then(|| (at, Extent::new(bytes.offset(), len)))
            })
            .collect()
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> u64 {
        self.data.iter().map(|(_, range)| u64::from(range.len())).sum()
    }

    /// Every block, data and indirect, as sorted ranges that neither touch nor overlap.
    pub fn all_blocks(&self) -> Vec<BlockRange> {
        let data = self.data.iter().map(|&(_, range)| range);
        merge(data.chain(self.indirect.iter().map(|&block| BlockRange::one(block))).collect())
    }
}

/// Sorts ranges and joins those that touch.
pub(crate) fn merge(mut ranges: Vec<BlockRange>) -> Vec<BlockRange> {
    ranges.sort_unstable();
    let mut merged: Vec<BlockRange> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if last.end() >= range.start() => {
                *last = BlockRange::new(last.start(), last.end().max(range.end()));
            }
            _ => merged.push(range),
        }
    }
    merged
}

impl Walk<'_> {
    fn wrong(&self, what: String) -> Problem {
        Problem::corrupt(format!("inode {}", self.inode.ino), what)
    }

    // Keeps B1 and B2.
    fn claim(&mut self, block: u32, what: &str) -> Result<(), Problem> {
        let outside = block < self.layout.first_data_block() || block >= self.layout.blocks();
        if outside {
            return Err(self.wrong(format!("{what} block {block} is outside the volume")));
        }
        if self.inode.ino != RESIZE_INO && self.layout.is_static_metadata(BlockNo(block)) {
            return Err(self.wrong(format!("{what} block {block} is static metadata")));
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            self.wrong(format!("more blocks than the {} sectors it counts", self.inode.blocks))
        })?;
        Ok(())
    }

    fn data(&mut self, at: u64, block: u32) -> Result<(), Problem> {
        if block == 0 || at >= self.blocks {
            return Ok(());
        }
        self.claim(block, "data")?;
        match self.map.data.last_mut() {
            Some((first, range))
                if range.end() == block && u64::from(*first) + u64::from(range.len()) == at =>
            {
                *range = BlockRange::new(range.start(), block + 1);
            }
            _ => self.map.data.push((at as u32, BlockRange::one(BlockNo(block)))),
        }
        Ok(())
    }

    /// Follows indirect block `block`, which maps file blocks from `first` on.
    fn indirect(&mut self, dev: &mut dyn ReadAt, first: u64, level: u32, block: u32) -> Result<(), Problem> {
        if block == 0 || first >= self.blocks {
            return Ok(());
        }
        self.claim(block, "indirect")?;
        if !self.seen.insert(block) {
            return Err(self.wrong(format!("indirect block {block} occurs twice")));
        }
        self.map.indirect.push(BlockNo(block));
        let mut bytes = vec![0; self.layout.block_size().bytes() as usize];
        dev.read_at(BlockNo(block).extent(self.layout.block_size()).offset(), &mut bytes).map_err(|e| {
            Problem::io(format!("reading block {block}, indirect block of inode {}", self.inode.ino), e)
        })?;
        let each = self.pointers.pow(level - 1);
        for (i, pointer) in (0u64..).zip(bytes.chunks_exact(4).map(|b| le32(b, 0))) {
            let at = first + i * each;
            if level == 1 { self.data(at, pointer)? } else { self.indirect(dev, at, level - 1, pointer)? }
        }
        Ok(())
    }

    fn check_once(&self) -> Result<(), Problem> {
        let mut ranges: Vec<BlockRange> = self.map.data.iter().map(|&(_, range)| range).collect();
        ranges.extend(self.map.indirect.iter().map(|&block| BlockRange::one(block)));
        ranges.sort_unstable();
        match ranges.iter().zip(ranges.iter().skip(1)).find(|(a, b)| a.end() > b.start()) {
            Some((_, twice)) => Err(self.wrong(format!("block {} occurs twice", twice.start()))),
            None => Ok(()),
        }
    }
}

/// How many indirect blocks a file of `blocks` blocks without holes has, where a block holds
/// `pointers` pointers; `None` for more than triple indirect reaches.
pub(crate) fn indirect_blocks(blocks: u64, pointers: u64) -> Option<u64> {
    let mut left = blocks.saturating_sub(DIRECT as u64);
    let mut indirect = 0;
    for level in LEVELS {
        let here = left.min(pointers.pow(level));
        indirect += (1..=level).map(|l| here.div_ceil(pointers.pow(l))).sum::<u64>();
        left -= here;
    }
    (left == 0).then_some(indirect)
}
