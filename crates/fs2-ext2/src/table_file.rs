//! The file that holds the replica table: a regular file on inode 5.
//!
//! T1: it has no hole: every byte of it has its place on the volume.
//! T2: its blocks are free of every other use the layout knows (block map, B1 and B2).
//! T3: they are all it has: nothing lies behind its end, and it has no attributes. Who gave it back would leave them
//!     in use by nobody.

use crate::block_map::{BlockMap, merge};
use crate::inode::{INODE_BYTES, Inode, MODE_REGULAR, TABLE_INO, offset_of};
use crate::layout::Layout;
use crate::liveness::overlay;
use crate::problem::Problem;
use fs2_block::{BlockRange, Extent, ReadAt};

/// The mode of the table's file: regular, for root alone.
pub const TABLE_MODE: u16 = MODE_REGULAR | 0o600;

/// Inode 5 as the replica table's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFile {
    /// Bytes in the file.
    pub size: u64,
    /// Its bytes in file order, whole blocks: byte of the file, bytes of the volume.
    pub extents: Vec<(u64, Extent)>,
    /// Its data blocks, sorted, joined where they touch.
    pub data: Vec<BlockRange>,
    /// Its indirect blocks, sorted, joined where they touch.
    pub indirect: Vec<BlockRange>,
    /// Data and indirect blocks, sorted, joined where they touch.
    pub blocks: Vec<BlockRange>,
}

impl TableFile {
    /// Looks at inode 5: `None` where nobody uses it.
    ///
    /// # Errors
    /// [`Problem::NotTable`] where it is used by something else; as [`BlockMap::read`].
    pub fn find(layout: &Layout, dev: &mut dyn ReadAt) -> Result<Option<TableFile>, Problem> {
        let inode = Inode::read(layout, dev, TABLE_INO)?;
        if inode.is_empty() {
            return Ok(None);
        }
        TableFile::from_inode(layout, dev, &inode).map(Some)
    }

    pub(crate) fn from_inode(
        layout: &Layout,
        dev: &mut dyn ReadAt,
        inode: &Inode,
    ) -> Result<TableFile, Problem> {
        let refuse = |why: String| Err(Problem::NotTable { why });
        if inode.mode != TABLE_MODE {
            return refuse(format!("its mode is {:07o}, not {TABLE_MODE:07o}", inode.mode));
        }
        if inode.links != 1 {
            return refuse(format!("it has {} links, not 1", inode.links));
        }
        if inode.size == 0 {
            return refuse("its size is 0".into());
        }
        let map = BlockMap::read(layout, dev, inode)?;
        let blocks = inode.size.div_ceil(u64::from(layout.block_size().bytes()));
        if map.data_blocks() != blocks {
            return refuse(format!("it has holes: {} of {blocks} blocks", map.data_blocks()));
        }
        let table = TableFile::from_map(layout, inode.size, &map);
        // Keeps T3.
        let sectors = table.blocks_count() * u64::from(layout.block_size().sectors());
        if u64::from(inode.blocks) != sectors {
            return refuse(format!("it has {} sectors, of which its size explains {sectors}", inode.blocks));
        }
        Ok(table)
    }

    /// What a damaged file on inode 5 still has, holes and all: `None` where that is no regular file, or has blocks that its size
    /// does not explain (T3). Whether it is the table's, its content has to say.
    ///
    /// # Errors
    /// As [`BlockMap::read`].
    pub fn remains(layout: &Layout, dev: &mut dyn ReadAt) -> Result<Option<TableFile>, Problem> {
        let inode = Inode::read(layout, dev, TABLE_INO)?;
        if !inode.is_regular() {
            return Ok(None);
        }
        let table = TableFile::from_map(layout, inode.size, &BlockMap::read(layout, dev, &inode)?);
        let sectors = table.blocks_count() * u64::from(layout.block_size().sectors());
        Ok((inode.file_acl == 0 && u64::from(inode.blocks) == sectors).then_some(table))
    }

    /// `map` has no holes up to `size`, or they have no extents.
    pub(crate) fn from_map(layout: &Layout, size: u64, map: &BlockMap) -> TableFile {
        let bytes = layout.block_size();
        TableFile {
            size,
            extents: map
                .data
                .iter()
                .map(|&(first, range)| (bytes.bytes_of(first), range.extent(bytes)))
                .collect(),
            data: merge(map.data.iter().map(|&(_, range)| range).collect()),
            indirect: merge(map.indirect.iter().map(|&block| BlockRange::one(block)).collect()),
            blocks: map.all_blocks(),
        }
    }

    /// Where bytes `offset..offset + len` of the file lie, in file order; what is beyond the
    /// file's last block is left out.
    pub fn extent_of(&self, offset: u64, len: u64) -> Vec<Extent> {
        let end = offset.saturating_add(len);
        let from = self.extents.partition_point(|(at, extent)| at + extent.len() <= offset);
        self.extents[from..]
            .iter()
            .take_while(|(at, _)| *at < end)
            .filter_map(|(at, extent)| {
                let (start, stop) = (offset.max(*at), end.min(at + extent.len()));
                (start < stop).then(|| Extent::new(extent.offset() + (start - at), stop - start))
            })
            .collect()
    }

    /// Whether `range` holds a block of the file, data or indirect. A binary search.
    pub fn owns(&self, range: BlockRange) -> bool {
        let from = self.blocks.partition_point(|own| own.end() <= range.start());
        self.blocks.get(from).is_some_and(|own| own.overlaps(range))
    }

    /// Number of blocks, data and indirect.
    pub fn blocks_count(&self) -> u64 {
        self.blocks.iter().map(|range| u64::from(range.len())).sum()
    }
}

/// Inode 5 as it was found, and as a client's writes leave it.
///
/// The kernel exchanges it for another file's at one call (`EXT4_IOC_SWAP_BOOT`, what this inode is reserved for), and writes none of the
/// table's blocks: the inode alone says that they are another file's now.
#[derive(Clone, Debug)]
pub struct TableInode {
    at: Extent,
    now: [u8; INODE_BYTES],
    found: Inode,
}

impl TableInode {
    /// Reads it.
    ///
    /// # Errors
    /// As [`Inode::read`].
    pub fn read(layout: &Layout, dev: &mut dyn ReadAt) -> Result<TableInode, Problem> {
        let at = Extent::new(offset_of(layout, TABLE_INO)?, INODE_BYTES as u64);
        let mut now = [0; INODE_BYTES];
        dev.read_at(at.offset(), &mut now)
            .map_err(|e| Problem::io(format!("reading inode {TABLE_INO} at byte {}", at.offset()), e))?;
        Ok(TableInode { at, now, found: lasting(&now) })
    }

    /// Where on the volume it lies.
    pub fn extent(&self) -> Extent {
        self.at
    }

    /// `payload` (`None`: zeroes) is written to `extent`: whether that leaves another file there than was found, times aside.
    pub fn changed_by(&mut self, extent: Extent, payload: Option<&[u8]>) -> bool {
        overlay(self.at, &mut self.now, extent, payload) && lasting(&self.now) != self.found
    }
}

/// An inode without what reading its file, or writing to it, changes.
fn lasting(raw: &[u8; INODE_BYTES]) -> Inode {
    Inode { atime: 0, ctime: 0, mtime: 0, ..Inode::parse(TABLE_INO, raw) }
}
