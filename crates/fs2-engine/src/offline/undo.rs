//! An FS2 volume becomes an ext2 volume again: replicas and table are scrubbed, inode 5 is given back.

use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, WriteAt};
use fs2_ext2::{Layout, Liveness, Problem, Superblock, TableFile, convert, uuid_text};
use fs2_table::{BitmapChecksums, Header, Limits, PAGE_BYTES, Recovered, Recovery, ReplicaTable, Report};

use super::create::zero_pages;
use super::mark::{MarkFound, mark_found, marked_sums};
use super::place::{Holds, IO_BYTES, Place, Stands, not_ours, read_bitmaps, runs};
use super::{Devices, OfflineError, Phase, Progress};
use crate::volume::touches;

/// How a table is to be taken away.
#[derive(Clone, Copy, Debug, Default)]
pub struct UndoOptions {
    /// `e2fsck -f` found nothing wrong just now, or nothing any more, and nobody wrote since: the bitmaps are right. Without it replicas
    /// are scrubbed only where a valid mark vouches for the bitmaps.
    pub checked: bool,
    /// The backing was written since the last session of this boot: its mark counts for nothing.
    pub written_since: bool,
}

/// What was undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Bytes of the table that is gone.
    pub table_bytes: u64,
    /// Blocks that held replicas and were overwritten with zeroes.
    pub scrubbed: u64,
    /// Entries whose replica was in a block that is in use now, and so left alone.
    pub in_use: u64,
    /// Why replicas may be left in free blocks that nothing names any more.
    pub damaged: Option<String>,
}

/// Takes the table away: erases its mark, overwrites every free block that it calls a replica, and the
/// table, and frees inode 5 (or leaves the place given as far as it was the table's all zero). Files are not touched.
///
/// A damaged table is taken away too, also one whose file has holes; where its replicas are is then not known, or not of all. A file on
/// inode 5 in which nothing begins as ours do is somebody's, unless it is all zero.
///
/// # Errors
/// Before anything is written: [`OfflineError::Volume`] for a volume that is not clean or has no table, or something else on inode 5;
/// [`OfflineError::OtherVolume`], [`OfflineError::Newer`]; last of all [`OfflineError::Unchecked`] where there are replicas to scrub and
/// only a check can say that no file has their blocks. Device errors later leave the volume to
/// `e2fsck -p`; then undo once more.
pub fn undo(
    devices: &mut Devices<'_>,
    options: &UndoOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Undone, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    layout.check_usable()?;
    let place = match Place::find(devices, &layout) {
        Err(OfflineError::Remains(why)) => return undo_remains(devices, &layout, why, options, progress),
        place => place?,
    };
    let found = match place.slots(devices.home()) {
        Err(OfflineError::Damaged(_)) if devices.table.is_none() => return Err(not_ours().into()),
        found => found?,
    };
    refuse_other_volume(devices, &found, &layout)?;
    let before = found.header.as_ref().and_then(|header| place.divided_for(devices, header));
    let place = before.unwrap_or(place);
    let mut undone = Undone { table_bytes: place.geometry.table_bytes, ..Undone::default() };
    let size = layout.block_size();
    let stands = match Stands::of(&found, &place) {
        Ok(stands) => Some(stands),
        // Something that never was a table, or not this volume's, is not ours to overwrite.
        Err(e) if devices.table.is_some() && found.header.as_ref().is_none_or(|h| h.block_size != size) => {
            return Err(e);
        }
        Err(_) if devices.table.is_none() && place.holds(devices.home())? == Holds::Other => {
            return Err(not_ours().into());
        }
        Err(e) => {
            undone.damaged = Some(e.to_string());
            None
        }
    };
    // What lies behind is not the table's.
    let place = match &stands {
        Some(stands) if devices.table.is_some() => place.of_pages(stands.header.pages),
        _ => place,
    };
    undone.table_bytes = place.geometry.table_bytes;
    let scrub = match &stands {
        Some(stands) => {
            let bitmaps = Bitmaps::of(devices, &layout, &place, &found, stands, options);
            to_scrub(devices, &layout, &place, stands, &bitmaps, &mut undone, progress)?
        }
        None => Vec::new(),
    };
    if devices.table.is_some() {
        undo_apart(devices, &place, stands, &scrub, &layout, progress)?;
    } else {
        undo_inside(&mut *devices.volume, &place, stands, &scrub, progress)?;
    }
    Ok(undone)
}

/// Why the bitmaps may be believed, which say what is free.
enum Bitmaps {
    /// All of the volume was checked.
    Checked,
    /// They are those of a mark that is valid, if these are their checksums.
    Marked(BitmapChecksums),
    /// One that calls a file's block free costs ext2 nothing until it gives that block away.
    Doubtful,
}

impl Bitmaps {
    fn of(
        devices: &mut Devices<'_>,
        layout: &Layout,
        place: &Place,
        found: &Recovered,
        stands: &Stands,
        options: &UndoOptions,
    ) -> Bitmaps {
        if options.checked {
            return Bitmaps::Checked;
        }
        let mark = mark_found(found, stands, layout, &mut *devices.volume);
        if mark != MarkFound::Valid || options.written_since {
            return Bitmaps::Doubtful;
        }
        marked_sums(devices, place, stands, layout).map_or(Bitmaps::Doubtful, Bitmaps::Marked)
    }

    fn are_right(&self, sums: &BitmapChecksums) -> bool {
        match self {
            Bitmaps::Checked => true,
            Bitmaps::Marked(then) => then == sums,
            Bitmaps::Doubtful => false,
        }
    }
}

/// The free blocks that the table calls replicas.
fn to_scrub(
    devices: &mut Devices<'_>,
    layout: &Layout,
    place: &Place,
    stands: &Stands,
    bitmaps: &Bitmaps,
    undone: &mut Undone,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<BlockRange>, OfflineError> {
    let live = Liveness::new(Arc::new(layout.clone()), &place.blocks);
    let (table, report) = load(devices, place, stands, &live, false)?;
    let lost = report.pages_damaged + report.pages_unread;
    if lost > 0 {
        undone.damaged = Some(format!("{lost} of its pages cannot be read"));
    }
    let mut free = Vec::new();
    let sums = read_bitmaps(layout, &mut *devices.volume, progress, |_, map| {
        let here = table.replicas_in(map.blocks());
        let all = here.len() as u64;
        // Keeps O4.
        let here: Vec<BlockNo> = here.into_iter().map(|r| r.replica).filter(|&r| map.is_free(r)).collect();
        undone.in_use += all - here.len() as u64;
        undone.scrubbed += here.len() as u64;
        free.extend(runs(here, IO_BYTES as u32 / layout.block_size().bytes()));
    })?;
    // Keeps O4.
    match free.is_empty() || bitmaps.are_right(&sums) {
        true => Ok(free),
        false => Err(OfflineError::Unchecked),
    }
}

/// Takes away what is left of a table whose file is damaged.
fn undo_remains(
    devices: &mut Devices<'_>,
    layout: &Layout,
    why: String,
    options: &UndoOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Undone, OfflineError> {
    let Some((place, stands)) = Place::remains(devices, layout)? else {
        return Err(Problem::NotTable { why }.into());
    };
    let mut undone = Undone { table_bytes: place.geometry.table_bytes, ..Undone::default() };
    // What damaged its file may have damaged the bitmaps, whatever its mark says.
    let bitmaps = if options.checked { Bitmaps::Checked } else { Bitmaps::Doubtful };
    let scrub = to_scrub(devices, layout, &place, &stands, &bitmaps, &mut undone, progress)?;
    undone.damaged = Some(why);
    // Its mark stays until it is overwritten with the rest: no session takes such a file for a table.
    let mut step = |dev: &mut dyn WriteAt, _: &TableFile, layout: &Layout| {
        zero_blocks(dev, &scrub, layout, progress).map_err(super::create::into_io)
    };
    convert::undo_remains(&mut *devices.volume, &mut step)?;
    Ok(undone)
}

/// Refuses a table given apart whose mark is for a volume with another UUID, whether or not it fits this one.
pub(super) fn refuse_other_volume(
    devices: &Devices<'_>,
    found: &Recovered,
    layout: &Layout,
) -> Result<(), OfflineError> {
    let header = found.header.as_ref().filter(|_| devices.table.is_some());
    header.and_then(|h| other_volume(h, layout)).map_or(Ok(()), |uuid| Err(OfflineError::OtherVolume(uuid)))
}

/// The UUID of the volume that a table's mark is for, where that is another.
pub(crate) fn other_volume(header: &Header, layout: &Layout) -> Option<String> {
    let of = Superblock::uuid_in(&header.mark.as_ref()?.token.superblock);
    (of != layout.superblock().uuid()).then(|| uuid_text(&of))
}

fn undo_inside(
    volume: &mut dyn WriteAt,
    place: &Place,
    stands: Option<Stands>,
    scrub: &[BlockRange],
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OfflineError> {
    let mut stands = stands;
    let mut step = |dev: &mut dyn WriteAt, _: &TableFile, layout: &Layout| {
        let mut devices = Devices::new(dev, None);
        if let Some(stands) = &mut stands {
            stands.erase_mark(place, &mut devices).map_err(super::create::into_io)?;
            // What is left is one sector, zeroed last: whoever is called again behind a crash finds it, or nothing but zeroes.
            let old = place.geometry.header_slot_offset(1 - stands.slot);
            place.zero(&mut devices, old, PAGE_BYTES as u64).map_err(super::create::into_io)?;
        }
        zero_blocks(devices.volume, scrub, layout, progress).map_err(super::create::into_io)
    };
    convert::undo(volume, &mut step)?;
    Ok(())
}

fn undo_apart(
    devices: &mut Devices<'_>,
    place: &Place,
    stands: Option<Stands>,
    scrub: &[BlockRange],
    layout: &Layout,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OfflineError> {
    if let Some(mut stands) = stands {
        stands.erase_mark(place, devices)?;
    }
    zero_blocks(devices.volume, scrub, layout, progress)?;
    devices.flush()?;
    // The header goes last: until then undo can be called again.
    zero_pages(place, devices, progress)?;
    devices.flush()?;
    place.zero(devices, 0, 2 * PAGE_BYTES as u64)?;
    devices.flush()
}

pub(super) fn zero_blocks(
    volume: &mut dyn WriteAt,
    blocks: &[BlockRange],
    layout: &Layout,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OfflineError> {
    let total = blocks.iter().map(|r| u64::from(r.len())).sum();
    let mut done = 0;
    for range in blocks {
        let extent = range.extent(layout.block_size());
        volume
            .write_zeroes(extent.offset(), extent.len())
            .map_err(OfflineError::io(format!("zeroing blocks {range}")))?;
        done += u64::from(range.len());
        progress(Progress { phase: Phase::Scrub, done, total });
    }
    Ok(())
}

/// Reads the table's pages, filtered as a daemon would, but for the degree: any.
pub(super) fn load(
    devices: &mut Devices<'_>,
    place: &Place,
    stands: &Stands,
    live: &Liveness,
    trust_verified: bool,
) -> Result<(ReplicaTable, Report), OfflineError> {
    let layout = live.layout();
    let forbidden = |b: BlockNo| !live.in_universe(b);
    let own = |b: BlockNo| touches(&place.blocks, BlockRange::one(b));
    let limits = Limits {
        first_block: BlockNo(layout.first_data_block()),
        blocks: layout.blocks(),
        degree: u8::MAX,
        forbidden: &forbidden,
        forbidden_original: &own,
        trust_verified,
    };
    let mut recovery = Recovery::new(place.geometry, &stands.header, limits);
    let pages_at_once = (IO_BYTES / PAGE_BYTES) as u32;
    let pages = recovery.pages();
    let mut page = 0;
    while page < pages {
        let n = (pages - page).min(pages_at_once);
        match place.read(devices.home(), place.geometry.page_offset(page), n as usize * PAGE_BYTES) {
            Ok(bytes) => recovery.feed(page, &bytes),
            // Page by page: one that cannot be read costs its own entries only.
            Err(_) => {
                for page in page..page + n {
                    let at = place.geometry.page_offset(page);
                    if let Ok(bytes) = place.read(devices.home(), at, PAGE_BYTES) {
                        recovery.feed(page, &bytes);
                    }
                }
            }
        }
        page += n;
    }
    Ok(recovery.finish())
}
