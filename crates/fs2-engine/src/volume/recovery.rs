//! The table at the attach: found, its mark read, its pages taken.

use std::io;
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, Extent, ReadAt};
use fs2_ext2::{Layout, Liveness, Problem, TableFile, TableInode};
use fs2_table::{BitmapChecksums, Geometry, Header, Limits, Recovery, ReplicaTable, Report, begins_as_ours};

use super::home::Home;
use super::{Inactive, Target, Volume};
use crate::config::EngineConfig;
use crate::offline::other_volume;

/// More than the generations of two headers are ever apart: each try to write one takes one.
pub(crate) const UNREAD_JUMP: u64 = 1 << 10;

/// Pages that cannot be read of one read of the table; behind them the rest of it is given up. A guess: a bad sector or two, not a bad disk.
const UNREAD_PAGES_MAX: u32 = 4;

/// Bytes of one read of the table: with the pieces that indirect blocks cut it into, less than a read for each MiB.
const READ_BYTES: usize = 2 << 20;

/// The volume's device, and the table's where that lives apart.
pub(super) struct Backings<'a> {
    pub(super) dev: &'a mut (dyn ReadAt + 'a),
    pub(super) table: Option<&'a mut (dyn ReadAt + 'a)>,
}

impl<'a> Backings<'a> {
    /// The device the table's bytes are on.
    pub(super) fn home(&mut self) -> &mut (dyn ReadAt + 'a) {
        match &mut self.table {
            Some(table) => &mut **table,
            None => &mut *self.dev,
        }
    }
}

/// Why there is no table to use.
pub(super) enum NotFound {
    /// It could not be read: a mark may stand in it, and could not be erased before something changes.
    Unread(io::Error),
    /// It was, and there is none that bears a mark.
    Unusable(Inactive),
    /// The one given apart bears a mark for the volume of this UUID.
    OtherVolume(String),
}

pub(super) struct Found {
    pub(super) home: Home,
    pub(super) header: Header,
    pub(super) file: Option<TableFile>,
}

impl Volume {
    /// Whether a header slot of `file` begins as ours do, or cannot be read.
    pub(super) fn may_bear_mark(dev: &mut dyn ReadAt, file: &TableFile) -> bool {
        let page = fs2_table::PAGE_BYTES;
        (0..2).any(|slot| {
            let first = file.extent_of(slot * page as u64, 4).first().map(|e| e.offset());
            let mut start = [0; 4];
            first.is_some_and(|at| dev.read_at(at, &mut start).is_err() || begins_as_ours(&start))
        })
    }

    pub(super) fn find_table(backings: &mut Backings<'_>, layout: &Layout) -> Result<Found, NotFound> {
        let damaged = |what: String| NotFound::Unusable(Inactive::DamagedTable(what));
        let (bs, groups) = (layout.block_size(), layout.group_count());
        let (target, file, inode, bytes, extents) = match &mut backings.table {
            Some(table) => {
                let size = table.size_bytes().map_err(NotFound::Unread)?;
                (Target::Table, None, None, size, vec![(0, Extent::new(0, size))])
            }
            None => {
                let unusable = |p| match p {
                    Problem::Io { source, .. } => NotFound::Unread(source),
                    other => damaged(other.to_string()),
                };
                let file = TableFile::find(layout, backings.dev).map_err(unusable)?;
                let file = file.ok_or(NotFound::Unusable(Inactive::NoTable))?;
                let inode = TableInode::read(layout, backings.dev).map_err(unusable)?;
                (Target::Volume, Some(file.clone()), Some(inode), file.size, file.extents)
            }
        };
        let mut home = Home {
            target,
            extents: Arc::new(extents),
            blocks: Arc::new(file.as_ref().map_or(Vec::new(), |f| sorted(&f.blocks))),
            inode,
            geometry: Geometry::new(bytes, groups, bs),
            pages: 0,
            volume_id: 0,
            generation: 0,
            slot: 0,
            jump: 0,
            sole: false,
            owned: true,
        };
        let slot = |s| home.geometry.header_slot_offset(s);
        let page = fs2_table::PAGE_BYTES;
        if bytes < 2 * page as u64 {
            return Err(damaged("it is too small for a header".into()));
        }
        // One that cannot be read counts as damaged, and is what an erasure overwrites first.
        let found = match [0, 1].map(|s| read_file(backings.home(), &home, slot(s), page)) {
            [Err(e), Err(_)] => return Err(NotFound::Unread(e)),
            [Err(_), Ok(b)] => Header::recover(&vec![0xff; page], &b).unread(0),
            [Ok(a), Err(_)] => Header::recover(&a, &vec![0xff; page]).unread(1),
            [Ok(a), Ok(b)] => Header::recover(&a, &b),
        };
        home.jump = if found.unread_slot().is_some() { UNREAD_JUMP } else { 0 };
        // Nothing of it is touched, its mark not either: how one is erased in that format is not known. That program
        // compares its mark with the superblock, which every mount changes.
        if let Some(version) = found.other_version() {
            return Err(NotFound::Unusable(Inactive::OtherVersion(version)));
        }
        let header = found.header.ok_or_else(|| damaged(found.report.to_string()))?;
        // Also of one that does not fit: it is somebody's.
        if backings.table.is_some()
            && let Some(uuid) = other_volume(&header, layout)
        {
            return Err(NotFound::OtherVolume(uuid));
        }
        if header.block_size != bs || header.pages > home.geometry.pages() {
            return Err(damaged("its header is for another volume or size".into()));
        }
        // A file that grew since has pages nobody emptied: those of the header count.
        home.pages = header.pages;
        (home.volume_id, home.generation, home.slot) = (header.volume_id, header.generation, found.slot);
        home.sole = found.report.slots[1 - found.slot] == Err(fs2_table::Damage::NotAHeader);
        Ok(Found { home, header, file })
    }

    pub(super) fn read_checksums(
        backings: &mut Backings<'_>,
        found: &Found,
        groups: u32,
        lenient: bool,
    ) -> Result<BitmapChecksums, String> {
        let home = &found.home;
        let mark = match &found.header.mark {
            Some(mark) => mark,
            None if lenient => return Ok(BitmapChecksums(vec![0; groups as usize])),
            None => return Err("it bears no mark".into()),
        };
        let at = home.geometry.checksums_offset(home.slot);
        let len = home.geometry.checksums_bytes() as usize;
        let bytes = read_file(backings.home(), home, at, len).map_err(|e| e.to_string())?;
        BitmapChecksums::decode(&bytes, groups, home.volume_id, mark.bitmap_checksums_hash)
            .map_err(|e| e.to_string())
    }

    pub(super) fn read_table(
        backings: &mut Backings<'_>,
        found: &Found,
        live: &Liveness,
        config: &EngineConfig,
    ) -> io::Result<(ReplicaTable, Report)> {
        let (home, layout) = (&found.home, live.layout());
        let forbidden = |b: BlockNo| !live.in_universe(b);
        let own = |b: BlockNo| home.touches(BlockRange::one(b));
        let limits = Limits {
            first_block: BlockNo(layout.first_data_block()),
            blocks: layout.blocks(),
            degree: config.degree,
            forbidden: &forbidden,
            forbidden_original: &own,
            trust_verified: !config.distrust,
        };
        let mut recovery = Recovery::marked(home.geometry, &found.header, limits);
        let (mut page, pages) = (0, recovery.pages());
        while page < pages {
            let n = (pages - page).min((READ_BYTES / fs2_table::PAGE_BYTES) as u32);
            let len = n as usize * fs2_table::PAGE_BYTES;
            match read_file(backings.home(), home, home.geometry.page_offset(page), len) {
                Ok(bytes) => recovery.feed(page, &bytes),
                // Page by page: one that cannot be read costs its own entries only. Each of them takes a drive seconds, and somebody waits.
                Err(_) => {
                    let mut failed = 0;
                    for page in page..page + n {
                        let at = home.geometry.page_offset(page);
                        match read_file(backings.home(), home, at, fs2_table::PAGE_BYTES) {
                            Ok(bytes) => recovery.feed(page, &bytes),
                            Err(_) => failed += 1,
                        }
                        if failed == UNREAD_PAGES_MAX {
                            break;
                        }
                    }
                }
            }
            page += n;
        }
        Ok(recovery.finish())
    }
}

/// Reads `len` bytes of the table's file.
fn read_file(dev: &mut dyn ReadAt, home: &Home, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut at = 0;
    for e in home.stretches(offset, len as u64) {
        let n = e.len() as usize;
        dev.read_at(e.offset(), &mut bytes[at..at + n])?;
        at += n;
    }
    if at < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Ranges that do not overlap, in ascending order.
fn sorted(ranges: &[BlockRange]) -> Vec<BlockRange> {
    let mut ranges: Vec<_> = ranges.iter().copied().filter(|r| !r.is_empty()).collect();
    ranges.sort_unstable();
    ranges
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::home::tests::in_pieces;

    #[test]
    fn the_file_is_read_whole_or_not_at_all() {
        let mut dev: Vec<u8> = (0..16384u32).map(|at| (at / 100) as u8).collect();
        let home = in_pieces();
        let all = read_file(&mut dev, &home, 0, 6144).unwrap();
        let want = [&dev[5000..6024], &dev[9000..12072], &dev[1000..3048]].concat();
        assert_eq!(all, want);
        assert_eq!(read_file(&mut dev, &home, 1000, 4000).unwrap(), want[1000..5000]);
        for (offset, len) in [(0, 6145), (6000, 145), (6144, 1)] {
            let error = read_file(&mut dev, &home, offset, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len} from {offset}");
        }
        assert_eq!(read_file(&mut dev, &home, 6000, 144).unwrap(), want[6000..]);
    }
}
