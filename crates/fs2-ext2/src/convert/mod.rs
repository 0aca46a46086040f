//! Giving a volume its table's file, and taking it away again, offline.
//!
//! C1: no block that the volume's bitmaps call used is written but the superblock, descriptors,
//!     bitmaps of the groups concerned and the block that holds inode 5; in these only what follows
//!     from the file changes.
//! C2: the clean flag is off, durably, before anything else is written, and on again after
//!     everything else is durable.
//! C3: a block is marked used, durably, before inode 5 points to it, and inode 5 points to nothing,
//!     durably, before a block is marked free.
//! C4: indirect blocks are durable before inode 5 points to them.
//!
//! So after a crash at any point, with any part of what was not yet flushed lost, `e2fsck -p` finds
//! blocks marked used that nobody owns, counts that are off, or a whole file on inode 5: all of
//! which it mends without asking.

mod place;
mod tree;
mod write;

use crate::RO_COMPAT_LARGE_FILE;
use crate::block_map::{BlockMap, indirect_blocks};
use crate::inode::{INODE_BYTES, Inode, TABLE_INO};
use crate::layout::Layout;
use crate::problem::Problem;
use crate::superblock::STATE_VALID;
use crate::table_file::{TABLE_MODE, TableFile};
use fs2_block::{BlockNo, BlockRange, ReadAt, WriteAt};
use std::io;
use write::Writer;

/// A step of a conversion that is the caller's: it is handed the device, the table's file and the
/// layout *as it will be at the end* (`layout.superblock().raw()` and `layout.descriptors_bytes()`
/// are what the volume holds once the conversion is done; the bitmaps are already on the device).
/// It must not write outside what its caller documents; it need not flush.
pub type Step<'a> = dyn FnMut(&mut dyn WriteAt, &TableFile, &Layout) -> io::Result<()> + 'a;

/// What [`create`] would do, worked out without a write.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file as it will be.
    pub table: TableFile,
    /// The layout as it will be, the clean flag set.
    pub layout: Layout,
    inode: Inode,
    indirect: Vec<(BlockNo, Vec<u8>)>,
}

/// Files of this size or more need the feature large_file.
const LARGE_FILE_BYTES: u64 = 1 << 31;

/// Bytes at a table's beginning that are zeroed last: its header slots, whole blocks of any size.
const BEGINNING_BYTES: u64 = 8192;

/// Chooses blocks for a table of `bytes` bytes: where the fewest groups have room for it, near the
/// middle of the volume, in few pieces. Reads the bitmaps of a few groups only. `now_secs` (seconds
/// since 1970) becomes the inode's times.
///
/// # Errors
/// [`Problem::Unsupported`], [`Problem::Errors`] or [`Problem::Dirty`] for a volume not to be
/// worked on; [`Problem::HasTable`] or [`Problem::NotTable`] where inode 5 is in use;
/// [`Problem::NoSpace`]; [`Problem::Corrupt`]; [`Problem::Io`].
pub fn plan(dev: &mut dyn ReadAt, bytes: u64, now_secs: u32) -> Result<Plan, Problem> {
    let layout = Layout::read(dev)?;
    layout.check_usable()?;
    if let Some(table) = TableFile::find(&layout, dev)? {
        return Err(Problem::HasTable { bytes: table.size });
    }
    let size = layout.block_size();
    let pointers = u64::from(size.bytes()) / 4;
    let bytes = bytes.max(1);
    let data = bytes.div_ceil(u64::from(size.bytes()));
    let too_large = || Problem::Unsupported {
        features: vec![format!("a file of {bytes} bytes in blocks of {}", size.bytes())],
    };
    let indirect = indirect_blocks(data, pointers).ok_or_else(too_large)?;
    let sectors = u32::try_from((data + indirect) * u64::from(size.sectors())).map_err(|_| too_large())?;
    let large = bytes >= LARGE_FILE_BYTES;
    if large && layout.superblock().rev_level() == 0 {
        return Err(too_large());
    }

    // The indirect blocks first of all, so that the data behind them lies in one piece where there
    // is room for it.
    let (nodes, ranges) = tree::split(place::choose(&layout, dev, data + indirect)?, indirect);
    let tree = tree::build(size, &ranges, &nodes);
    let mut map = BlockMap {
        data: Vec::new(),
        indirect: tree.nodes.iter().map(|(block, _)| *block).collect(),
        size: bytes,
    };
    let mut first = 0;
    for range in ranges {
        map.data.push((first, range));
        first += range.len();
    }
    let table = TableFile::from_map(&layout, bytes, &map);
    let inode = Inode {
        ino: TABLE_INO,
        mode: TABLE_MODE,
        size: bytes,
        atime: now_secs,
        ctime: now_secs,
        mtime: now_secs,
        dtime: 0,
        links: 1,
        blocks: sectors,
        flags: 0,
        block: tree.root,
        file_acl: 0,
    };
    let mut after = layout;
    count(&mut after, &table, true)?;
    if large && after.superblock().features().ro_compat & RO_COMPAT_LARGE_FILE == 0 {
        after.superblock_mut().set_large_file();
    }
    Ok(Plan { table, layout: after, inode, indirect: tree.nodes })
}

/// Makes the file: clean flag off; bitmaps and counts; the file's bytes (zeroes, then what
/// `write_table` writes into `table`'s blocks); inode 5; what `write_mark` writes into them; clean
/// flag on as it was. A flush follows each.
///
/// # Errors
/// As [`plan`], before anything is written; [`Problem::Io`] later leaves the volume to `e2fsck -p`.
pub fn create(
    dev: &mut dyn WriteAt,
    bytes: u64,
    now_secs: u32,
    write_table: &mut Step<'_>,
    write_mark: &mut Step<'_>,
) -> Result<TableFile, Problem> {
    let plan = plan(&mut *dev, bytes, now_secs)?;
    execute(dev, plan, write_table, write_mark)
}

/// Carries out a plan that was just made: nobody may have written the volume in between.
///
/// # Errors
/// [`Problem::Io`] leaves the volume to `e2fsck -p`; as [`Layout::read`].
pub fn execute(
    dev: &mut dyn WriteAt,
    plan: Plan,
    write_table: &mut Step<'_>,
    write_mark: &mut Step<'_>,
) -> Result<TableFile, Problem> {
    let Plan { table, layout, inode, indirect } = plan;
    let mut writer = Writer { dev, layout: &layout };

    // Keeps C2.
    let before = Layout::read(&mut *writer.dev)?;
    let clean = layout.superblock().state();
    let mut superblock = before.superblock().clone();
    superblock.set_state(clean & !STATE_VALID);
    writer.superblock(&superblock)?;
    writer.flush("clearing the clean flag")?;

    writer.bitmaps(&table.blocks, true)?;
    writer.descriptors(&table.blocks)?;
    let mut superblock = layout.superblock().clone();
    superblock.set_state(clean & !STATE_VALID);
    writer.superblock(&superblock)?;
    writer.flush("writing bitmaps and counts")?; // Keeps C3.

    writer.zero(&table.data)?;
    writer.blocks(&indirect)?;
    write_table(&mut *writer.dev, &table, &layout)
        .map_err(|e| Problem::io("writing the replica table", e))?;
    writer.flush("writing the replica table")?; // Keeps C4.

    writer.inode(&inode)?;
    writer.flush("writing inode 5")?;

    write_mark(&mut *writer.dev, &table, &layout).map_err(|e| Problem::io("writing the mark", e))?;
    writer.flush("writing the mark")?;

    writer.superblock(layout.superblock())?;
    writer.flush("setting the clean flag")?;
    Ok(table)
}

/// Takes the file away: clean flag off; `scrub`, which erases the mark first and may then zero the
/// replicas the table names; the file's data zeroed, its first 8192 bytes last; inode 5 emptied; indirect blocks zeroed,
/// bitmaps and counts; clean flag on as it was. A flush follows each. The feature large_file stays
/// where it is: other files may have come to need it.
///
/// # Errors
/// Before anything is written: as [`Layout::check_usable`]; [`Problem::NoTable`];
/// [`Problem::NotTable`]; [`Problem::Corrupt`]. [`Problem::Io`] later leaves the volume to
/// `e2fsck -p`.
pub fn undo(dev: &mut dyn WriteAt, scrub: &mut Step<'_>) -> Result<TableFile, Problem> {
    let before = Layout::read(&mut *dev)?;
    before.check_usable()?;
    let table = TableFile::find(&before, &mut *dev)?.ok_or(Problem::NoTable)?;
    give_back(dev, before, table, scrub)
}

/// As [`undo`], of a file that is damaged: what [`TableFile::remains`] of it. The caller has seen that it is the table's.
///
/// # Errors
/// As [`undo`].
pub fn undo_remains(dev: &mut dyn WriteAt, scrub: &mut Step<'_>) -> Result<TableFile, Problem> {
    let before = Layout::read(&mut *dev)?;
    before.check_usable()?;
    let table = TableFile::remains(&before, &mut *dev)?.ok_or(Problem::NoTable)?;
    give_back(dev, before, table, scrub)
}

fn give_back(
    dev: &mut dyn WriteAt,
    before: Layout,
    table: TableFile,
    scrub: &mut Step<'_>,
) -> Result<TableFile, Problem> {
    let mut layout = before.clone();
    count(&mut layout, &table, false)?;
    let mut writer = Writer { dev, layout: &layout };
    writer.check_used(&table.blocks)?;

    let clean = before.superblock().state();
    let mut superblock = before.superblock().clone();
    superblock.set_state(clean & !STATE_VALID);
    writer.superblock(&superblock)?;
    writer.flush("clearing the clean flag")?;

    scrub(&mut *writer.dev, &table, &layout).map_err(|e| Problem::io("scrubbing", e))?;
    writer.flush("scrubbing")?;
    // Its beginning last: what says whose file this is.
    for (from, len) in [(BEGINNING_BYTES, u64::MAX), (0, BEGINNING_BYTES)] {
        writer.zero_extents(&table.extent_of(from, len))?;
        writer.flush("zeroing the replica table")?;
    }

    writer.inode(&Inode::parse(TABLE_INO, &[0; INODE_BYTES]))?;
    writer.flush("emptying inode 5")?; // Keeps C3.

    writer.zero(&table.indirect)?;
    writer.bitmaps(&table.blocks, false)?;
    writer.descriptors(&table.blocks)?;
    let mut superblock = layout.superblock().clone();
    superblock.set_state(clean & !STATE_VALID);
    writer.superblock(&superblock)?;
    writer.flush("writing bitmaps and counts")?;

    writer.superblock(layout.superblock())?;
    writer.flush("setting the clean flag")?;
    Ok(table)
}

/// Takes the file's blocks from the counts of free blocks (or gives them back).
fn count(layout: &mut Layout, table: &TableFile, taken: bool) -> Result<(), Problem> {
    for (group, range) in by_group(layout, &table.blocks) {
        let free = u32::from(layout.groups()[group as usize].free_blocks);
        let after = if taken { free.checked_sub(range.len()) } else { free.checked_add(range.len()) };
        let after =
            after.filter(|n| *n <= layout.group_blocks(group).len()).and_then(|n| u16::try_from(n).ok());
        let Some(after) = after else {
            return Err(Problem::corrupt(
                format!("descriptor of group {group}"),
                format!("{free} free blocks, but the replica table has blocks {range} there"),
            ));
        };
        layout.set_free_blocks(group, after);
    }
    let free = layout.superblock().free_blocks_count();
    let blocks = table.blocks_count() as u32;
    let after = if taken { free.checked_sub(blocks) } else { free.checked_add(blocks) };
    let Some(after) = after.filter(|n| *n <= layout.blocks()) else {
        return Err(Problem::corrupt("superblock at byte 1024", format!("{free} free blocks")));
    };
    layout.superblock_mut().set_free_blocks(after);
    Ok(())
}

/// `ranges` cut at group boundaries, with their groups.
fn by_group(layout: &Layout, ranges: &[BlockRange]) -> Vec<(u32, BlockRange)> {
    ranges
        .iter()
        .flat_map(|&range| {
            let groups = layout.group_of(range.first())..=layout.group_of(BlockNo(range.end() - 1));
            groups.map(move |group| (group, range.intersect(layout.group_blocks(group))))
        })
        .collect()
}
