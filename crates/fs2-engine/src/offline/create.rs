//! An ext2 volume becomes an FS2 volume: the table is made, empty, and marked.
//!
//! ```text
//! on inode 5: clean flag off | bitmaps, counts | table | inode 5 | checksums | mark | clean flag on
//! apart:                                         table |           checksums | mark
//! ```
//! A flush follows each. Apart, the volume is not written at all.

use std::io;

use fs2_block::{BlockRange, Extent, Permille, ReadAt, WriteAt};
use fs2_ext2::{Layout, Problem, TableFile, convert};
use fs2_table::{BitmapChecksums, Geometry, Header, PAGE_BYTES};

use super::place::{IO_BYTES, Place, Stands, not_ours, read_bitmaps};
use super::{Devices, OfflineError, Phase, Progress};
use crate::Watermarks;

/// Bytes at the start of a table's own device that must be zero: the superblocks of other file systems
/// lie in them (btrfs's at 64 KiB is the last).
const MUST_BE_ZERO: u64 = 128 << 10;

/// How a table is to be made.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Share of the volume that may hold replicas; the table is made as large as that takes.
    pub space: Permille,
    /// Drawn at random: names the table and is the key of its hashes.
    pub volume_id: u64,
    /// Seconds since 1970, for inode 5.
    pub now_secs: u32,
    /// `e2fsck -f` found nothing wrong just now, and nobody wrote since: the bitmaps are right. Without it only a volume is taken that
    /// was never mounted, or checked after it was last mounted and written.
    pub checked: bool,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions {
            space: crate::EngineConfig::default().space,
            volume_id: 0,
            now_secs: 0,
            checked: false,
        }
    }
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Bytes of the volume it takes, the map of its file included; 0 where it lives apart.
    pub volume_bytes_taken: u64,
    /// Where in the volume it lies.
    pub blocks: Vec<BlockRange>,
    /// Replicas it has room for.
    pub replicas_max: u64,
    /// Bytes of the volume those would take.
    pub replicas_bytes_max: u64,
    /// Blocks free now.
    pub free_blocks: u64,
    /// Blocks that may be: all but metadata that stays where it is.
    pub blocks_to_use: u64,
}

impl Created {
    /// Replicas that there is room for now, where by `marks` so much stays free beside them.
    pub fn replicas_now(&self, marks: Watermarks) -> u64 {
        // As an attach weighs it, in whole thousandths.
        if Permille::of(self.free_blocks, self.blocks_to_use) <= marks.low() {
            return 0;
        }
        let beside = marks.low().share_of(self.blocks_to_use);
        self.free_blocks.saturating_sub(beside).min(self.replicas_max)
    }
}

/// Bytes of the table that [`create`] would make for this volume.
///
/// # Errors
/// Where the volume cannot be worked on: as [`create`].
pub fn table_bytes(volume: &mut dyn ReadAt, space: Permille) -> Result<u64, OfflineError> {
    let layout = Layout::read(volume)?;
    layout.check_usable()?;
    Ok(bytes_for(&layout, space))
}

fn bytes_for(layout: &Layout, space: Permille) -> u64 {
    let replicas = space.share_of(u64::from(layout.blocks()));
    Geometry::bytes_needed(replicas, layout.group_count(), layout.block_size())
}

/// Makes the table and marks it. Every block bitmap is read.
///
/// # Errors
/// Before anything is written: [`OfflineError::Volume`] for what is not a clean ext2 volume of the
/// features allowed, has bitmaps that disagree with their descriptors, a table already, or no room; last of all
/// [`OfflineError::Unchecked`];
/// [`OfflineError::TableTooSmall`], [`OfflineError::TableThere`] or [`OfflineError::NotEmpty`] for the
/// place given. Device errors later leave the volume to `e2fsck -p`, and the place given to be emptied.
pub fn create(
    devices: &mut Devices<'_>,
    options: &CreateOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Created, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    layout.check_usable()?;
    // It reads the copies of the superblock, which the mark needs when much is written.
    let checked = layout.is_checked_since_mounted(&mut *devices.volume).map_err(Problem::from)?;
    let options = &CreateOptions { checked: checked || options.checked, ..*options };
    let bytes = bytes_for(&layout, options.space);
    if devices.table.is_some() {
        create_apart(devices, &layout, bytes, options, progress)
    } else {
        create_inside(&mut *devices.volume, bytes, options, progress)
    }
}

fn created(layout: &Layout, place: &Place) -> Created {
    let block = u64::from(layout.block_size().bytes());
    let blocks: u64 = place.blocks.iter().map(|b| u64::from(b.len())).sum();
    let replicas_max = place.geometry.max_entries() as u64;
    Created {
        table_bytes: place.geometry.table_bytes,
        volume_bytes_taken: blocks * block,
        blocks: place.blocks.clone(),
        replicas_max,
        replicas_bytes_max: replicas_max * block,
        free_blocks: layout.groups().iter().map(|g| u64::from(g.free_blocks)).sum(),
        blocks_to_use: u64::from(layout.blocks()).saturating_sub(layout.static_metadata_blocks()),
    }
}

fn create_inside(
    volume: &mut dyn WriteAt,
    bytes: u64,
    options: &CreateOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Created, OfflineError> {
    let before = Layout::read(&mut *volume)?;
    let plan = match convert::plan(&mut *volume, bytes, options.now_secs) {
        Err(Problem::NotTable { why }) => {
            return match Place::remains(&mut Devices::new(volume, None), &before)? {
                Some(_) => Err(OfflineError::Remains(why)),
                None => Err(Problem::NotTable { why }.into()),
            };
        }
        Err(problem @ Problem::HasTable { .. }) => {
            let file = TableFile::find(&before, &mut *volume)?.ok_or(Problem::NoTable)?;
            return match Place::of_file(&file, &before).is_ours(&mut *volume)? {
                true => Err(problem.into()),
                false => Err(not_ours().into()),
            };
        }
        plan => plan?,
    };
    refuse_unchecked(options)?;
    let mut sums = read_bitmaps(&before, &mut *volume, progress, |_, _| {})?;
    let place = Place::of_file(&plan.table, &plan.layout);
    let result = created(&plan.layout, &place);
    let mut stands = fresh(&place, options.volume_id);
    let first = stands.header.encode();
    let total = u64::from(place.geometry.pages());
    progress(Progress { phase: Phase::Table, done: 0, total });
    let mut write_table = |dev: &mut dyn WriteAt, _: &TableFile, _: &Layout| {
        place.write(&mut Devices::new(dev, None), 0, &first).map_err(into_io)
    };
    let mut write_mark = |dev: &mut dyn WriteAt, file: &TableFile, layout: &Layout| {
        // The file's own blocks are in use now.
        for group in groups_of(layout, &file.blocks) {
            let bitmap = layout.read_bitmap(&mut *dev, group).map_err(io::Error::other)?;
            sums.0[group as usize] = BitmapChecksums::of_bitmap(&bitmap);
        }
        stands.write_mark(&place, &mut Devices::new(dev, None), layout, &sums, Some(0)).map_err(into_io)
    };
    convert::execute(volume, plan, &mut write_table, &mut write_mark)?;
    progress(Progress { phase: Phase::Table, done: total, total });
    Ok(result)
}

/// Keeps O5.
fn refuse_unchecked(options: &CreateOptions) -> Result<(), OfflineError> {
    match options.checked {
        true => Ok(()),
        false => Err(OfflineError::Unchecked),
    }
}

/// A step's error, for the conversion to put its own words before.
pub(super) fn into_io(e: OfflineError) -> io::Error {
    match e {
        OfflineError::Io { source, .. } => source,
        other => io::Error::other(other),
    }
}

fn groups_of(layout: &Layout, blocks: &[BlockRange]) -> Vec<u32> {
    let mut groups: Vec<u32> = blocks
        .iter()
        .flat_map(|r| layout.group_of(r.first())..=layout.group_of(fs2_block::BlockNo(r.end() - 1)))
        .collect();
    groups.dedup();
    groups
}

/// The first header of a table, in slot 0.
fn fresh(place: &Place, volume_id: u64) -> Stands {
    let geometry = place.geometry;
    Stands { header: Header::new(volume_id, geometry.block_size, geometry.pages()), slot: 0, unread: None }
}

fn create_apart(
    devices: &mut Devices<'_>,
    layout: &Layout,
    bytes: u64,
    options: &CreateOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Created, OfflineError> {
    if let Some(file) = find_file(layout, devices)?
        && Place::of_file(&file, layout).is_ours(&mut *devices.volume)?
    {
        return Err(Problem::HasTable { bytes: file.size }.into());
    }
    let has =
        devices.home().size_bytes().map_err(OfflineError::io("asking the table's place for its size"))?;
    if has < bytes {
        return Err(OfflineError::TableTooSmall { needs: bytes, has });
    }
    refuse_foreign(&Place::apart(has, layout), devices, has)?;
    // Of a larger place the beginning: every page is read at each start.
    let place = Place::apart(bytes, layout);
    refuse_unchecked(options)?;
    let sums = read_bitmaps(layout, &mut *devices.volume, progress, |_, _| {})?;
    let mut stands = empty_table(&place, devices, options.volume_id, progress)?;
    stands.write_mark(&place, devices, layout, &sums, Some(0))?;
    Ok(created(layout, &place))
}

fn find_file(layout: &Layout, devices: &mut Devices<'_>) -> Result<Option<TableFile>, OfflineError> {
    match TableFile::find(layout, &mut *devices.volume) {
        // What else is on inode 5 is no concern of a table that lives apart.
        Err(Problem::NotTable { .. }) => Ok(None),
        other => Ok(other?),
    }
}

fn refuse_foreign(place: &Place, devices: &mut Devices<'_>, has: u64) -> Result<(), OfflineError> {
    let found = place.slots(devices.home())?;
    if found.header.is_some() {
        return Err(OfflineError::TableThere);
    }
    let start = place.read(devices.home(), 0, MUST_BE_ZERO.min(has) as usize)?;
    if start.iter().any(|&byte| byte != 0) {
        return Err(OfflineError::NotEmpty);
    }
    Ok(())
}

/// Makes a place a table without entries and without a mark. Until the end there is no header,
/// so that nothing of what was there before can be taken for its pages.
pub(super) fn empty_table(
    place: &Place,
    devices: &mut Devices<'_>,
    volume_id: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Stands, OfflineError> {
    let stands = fresh(place, volume_id);
    place.zero(devices, 0, 2 * PAGE_BYTES as u64)?;
    devices.flush()?;
    zero_pages(place, devices, progress)?;
    devices.flush()?;
    place.write(devices, 0, &stands.header.encode())?;
    devices.flush()?;
    Ok(stands)
}

/// As [`empty_table`], over a damaged one on inode 5: at every step something begins as ours do, so that behind a crash it is known for
/// what it is.
pub(super) fn empty_table_over(
    place: &Place,
    devices: &mut Devices<'_>,
    volume_id: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Stands, OfflineError> {
    let stands = fresh(place, volume_id);
    let header = stands.header.encode();
    // No header yet: its checksum is another's.
    let mut begun = [0; PAGE_BYTES];
    begun[..4].copy_from_slice(&header[..4]);
    place.write(devices, 0, &begun)?;
    devices.flush()?;
    place.zero(devices, PAGE_BYTES as u64, PAGE_BYTES as u64)?;
    zero_pages(place, devices, progress)?;
    devices.flush()?;
    place.write(devices, 0, &header)?;
    devices.flush()?;
    Ok(stands)
}

/// Zeroes everything behind the header slots.
pub(super) fn zero_pages(
    place: &Place,
    devices: &mut Devices<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OfflineError> {
    let rest = Extent::new(2 * PAGE_BYTES as u64, place.geometry.table_bytes - 2 * PAGE_BYTES as u64);
    let mut at = rest.offset();
    while at < rest.end() {
        let n = (rest.end() - at).min(64 * IO_BYTES as u64);
        place.zero(devices, at, n)?;
        at += n;
        let page = PAGE_BYTES as u64;
        progress(Progress {
            phase: Phase::Table,
            done: (at - rest.offset()) / page,
            total: rest.len() / page,
        });
    }
    Ok(())
}
