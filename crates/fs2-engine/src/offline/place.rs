//! Where the table's bytes are, and what its two header slots say.

use fs2_block::{BlockNo, BlockRange, Extent, ReadAt};
use fs2_ext2::{FreeMap, Layout, Problem, TableFile};
use fs2_table::{
    BitmapChecksums, Geometry, Header, Mark, PAGE_BYTES, Recovered, Token, begins_as_ours, page_number,
};

use super::undo::other_volume;
use super::{Devices, OfflineError, Phase, Progress};
use crate::backups;
use crate::volume::UNREAD_JUMP;

/// The largest single read or write, in bytes.
pub(super) const IO_BYTES: usize = 1 << 20;

/// Pages of bitmap checksums at most: of the groups of 8 MiB that 2^32 blocks of 1 KiB have, twice.
const SUMS_PAGES_MAX: u64 = 2 * (1 << 32 >> 13) / 1024;

/// The table's place: inode 5's blocks, or all of a device.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Bytes of the table, bytes of the device it is on, in the table's order.
    pub(super) extents: Vec<(u64, Extent)>,
    /// The blocks of the volume it occupies, its file's map included, in ascending order.
    pub(super) blocks: Vec<BlockRange>,
    pub(super) geometry: Geometry,
}

impl Place {
    pub(super) fn of_file(file: &TableFile, layout: &Layout) -> Place {
        Place {
            extents: file.extents.clone(),
            blocks: file.blocks.clone(),
            geometry: Geometry::new(file.size, layout.group_count(), layout.block_size()),
        }
    }

    pub(super) fn apart(bytes: u64, layout: &Layout) -> Place {
        Place {
            extents: vec![(0, Extent::new(0, bytes))],
            blocks: Vec::new(),
            geometry: Geometry::new(bytes, layout.group_count(), layout.block_size()),
        }
    }

    /// The same for a table of so many pages at its beginning.
    pub(super) fn of_pages(mut self, pages: u32) -> Place {
        self.geometry.table_bytes = self.geometry.page_offset(pages);
        self
    }

    /// The same for a table of so many bytes at its beginning.
    pub(super) fn ending_with(mut self, bytes: u64) -> Place {
        self.geometry.table_bytes = bytes;
        self
    }

    /// The place as it was divided when this header's pages were written, if otherwise: the volume had fewer block groups then, or more. Each
    /// 1,024 of them have two pages of checksums before the table's. Not where any page lies where it does now: a single one may be misplaced.
    pub(super) fn divided_for(&self, devices: &mut Devices<'_>, header: &Header) -> Option<Place> {
        let page = PAGE_BYTES as u64;
        if header.pages == self.geometry.pages() || header.block_size != self.geometry.block_size {
            return None;
        }
        // Behind the most checksums that there can be.
        let end = (self.geometry.table_bytes / page).min(2 + SUMS_PAGES_MAX + u64::from(header.pages));
        let fits = |g: &Geometry| g.pages() >= header.pages;
        let (mut found, mut at) = (None, 2);
        while at < end {
            let n = (end - at).min((IO_BYTES / PAGE_BYTES) as u64);
            let read = |devices: &mut Devices<'_>, at: u64, n: u64| {
                self.read(devices.home(), at * page, (n * page) as usize)
            };
            // Page by page: one that cannot be read tells nothing.
            let bytes = read(devices, at, n).unwrap_or_else(|_| {
                let one = |at| read(devices, at, 1).unwrap_or(vec![0; PAGE_BYTES]);
                (at..at + n).flat_map(one).collect()
            });
            for (at, bytes) in (at..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                let number = page_number(bytes, header.volume_id);
                let Some(first) = number.and_then(|number| at.checked_sub(number.into())) else { continue };
                if first * page == self.geometry.first_page_offset() {
                    return None;
                }
                found = found.or_else(|| self.geometry.beginning_at(first).filter(fits));
            }
            at += n;
        }
        // Without a page the header tells, of a table as large as its place.
        let last = self.geometry.table_bytes / page;
        let first = last.checked_sub(header.pages.into()).filter(|_| header.pages > self.geometry.pages());
        let found = found.or_else(|| self.geometry.beginning_at(first?).filter(fits));
        found.map(|geometry| Place { geometry, ..self.clone() })
    }

    /// Where the table is that belongs to the volume.
    pub(super) fn find(devices: &mut Devices<'_>, layout: &Layout) -> Result<Place, OfflineError> {
        let mut file = TableFile::find(layout, &mut *devices.volume);
        if let Ok(Some(found)) = &file
            && devices.table.is_some()
            && !Place::of_file(found, layout).is_ours(&mut *devices.volume)?
        {
            file = Err(not_ours());
        }
        match (&mut devices.table, file) {
            (Some(_), Ok(Some(_))) => Err(OfflineError::TableOnInode),
            // What else is on inode 5 is no concern of a table that lives apart.
            (Some(table), Ok(None) | Err(Problem::NotTable { .. })) => {
                let bytes = table.size_bytes().map_err(OfflineError::io("asking the table for its size"))?;
                Ok(Place::apart(bytes, layout))
            }
            (None, Ok(Some(file))) => Ok(Place::of_file(&file, layout)),
            (None, Ok(None)) => Err(Problem::NoTable.into()),
            (None, Err(Problem::NotTable { why })) => match Place::remains(devices, layout)? {
                Some(_) => Err(OfflineError::Remains(why)),
                None => Err(Problem::NotTable { why }.into()),
            },
            (_, Err(problem)) => Err(problem.into()),
        }
    }

    /// What is left of a table whose file on inode 5 is damaged, and its header: only where one of its slots is whole and of this
    /// volume, so that nothing else's blocks are taken for the table's.
    pub(super) fn remains(
        devices: &mut Devices<'_>,
        layout: &Layout,
    ) -> Result<Option<(Place, Stands)>, OfflineError> {
        let Some(file) = TableFile::remains(layout, &mut *devices.volume)? else { return Ok(None) };
        let mut place = Place::of_file(&file, layout);
        // No table is as large as its volume: a size that holes need not back is memory for pages that nobody wrote.
        let volume_bytes = layout.block_size().bytes_of(layout.blocks());
        place.geometry.table_bytes = place.geometry.table_bytes.min(volume_bytes);
        // A slot in a hole is no header.
        let [a, b] = [0, 1].map(|slot| {
            let at = place.geometry.header_slot_offset(slot);
            place.read(devices.home(), at, PAGE_BYTES).unwrap_or(vec![0xff; PAGE_BYTES])
        });
        let found = Header::recover(&a, &b);
        if let Some(version) = found.other_version() {
            return Err(OfflineError::Newer(version));
        }
        let stands = Stands::of(&found, &place).ok();
        Ok(stands
            .filter(|stands| other_volume(&stands.header, layout).is_none())
            .map(|stands| (place, stands)))
    }

    /// The stretches of the device that hold `len` bytes of the table from `offset`.
    fn stretches(&self, offset: u64, len: u64) -> impl Iterator<Item = Extent> + '_ {
        let end = offset + len;
        let first = self.extents.partition_point(|(from, e)| from + e.len() <= offset);
        self.extents[first..].iter().take_while(move |(from, _)| *from < end).map(move |(from, e)| {
            let start = offset.max(*from);
            Extent::new(e.offset() + (start - from), end.min(from + e.len()) - start)
        })
    }

    pub(super) fn read(
        &self,
        dev: &mut dyn ReadAt,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, OfflineError> {
        let mut bytes = vec![0; len];
        let mut at = 0;
        for e in self.stretches(offset, len as u64) {
            let n = e.len() as usize;
            dev.read_at(e.offset(), &mut bytes[at..at + n])
                .map_err(OfflineError::io(format!("reading the replica table at byte {}", e.offset())))?;
            at += n;
        }
        if at < len {
            return Err(OfflineError::Damaged(format!(
                "it ends within bytes {offset} to {}",
                offset + len as u64
            )));
        }
        Ok(bytes)
    }

    pub(super) fn write(
        &self,
        devices: &mut Devices<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), OfflineError> {
        let mut at = 0;
        for e in self.stretches(offset, bytes.len() as u64) {
            let n = e.len() as usize;
            devices
                .home()
                .write_at(e.offset(), &bytes[at..at + n])
                .map_err(OfflineError::io(format!("writing the replica table at byte {}", e.offset())))?;
            at += n;
        }
        Ok(())
    }

    pub(super) fn zero(&self, devices: &mut Devices<'_>, offset: u64, len: u64) -> Result<(), OfflineError> {
        for e in self.stretches(offset, len) {
            devices
                .home()
                .write_zeroes(e.offset(), e.len())
                .map_err(OfflineError::io(format!("zeroing the replica table at byte {}", e.offset())))?;
        }
        Ok(())
    }

    /// Whether a file on inode 5 is the table's, be it damaged. `volume` is what inode 5 is on, wherever the table in question is.
    pub(super) fn is_ours(&self, volume: &mut dyn ReadAt) -> Result<bool, OfflineError> {
        match self.slots(&mut *volume) {
            Ok(found) if found.header.is_some() => Ok(true),
            Err(OfflineError::Newer(_)) => Ok(true),
            Ok(_) | Err(OfflineError::Damaged(_)) => Ok(self.holds(volume)? == Holds::Ours),
            Err(e) => Err(e),
        }
    }

    /// What a file that no header stands in holds: whether it is ours at all. Reads it as far as that takes.
    pub(super) fn holds(&self, dev: &mut dyn ReadAt) -> Result<Holds, OfflineError> {
        let (mut holds, mut at) = (Holds::Zeroes, 0);
        while at < self.geometry.table_bytes {
            let len = (self.geometry.table_bytes - at).min(IO_BYTES as u64) as usize;
            let bytes = self.read(dev, at, len)?;
            if bytes.chunks(PAGE_BYTES).any(begins_as_ours) {
                return Ok(Holds::Ours);
            }
            if bytes.iter().any(|&byte| byte != 0) {
                holds = Holds::Other;
            }
            at += len as u64;
        }
        Ok(holds)
    }

    /// What the two header slots hold.
    pub(super) fn slots(&self, dev: &mut dyn ReadAt) -> Result<Recovered, OfflineError> {
        let none = [0xff; PAGE_BYTES];
        let read =
            [0, 1].map(|slot| self.read(&mut *dev, self.geometry.header_slot_offset(slot), PAGE_BYTES));
        // As a session has it: one that cannot be read counts as damaged, and is what is written first.
        let found = match read {
            [Err(OfflineError::Io { .. }), Ok(b)] => Header::recover(&none, &b).unread(0),
            [Ok(a), Err(OfflineError::Io { .. })] => Header::recover(&a, &none).unread(1),
            [a, b] => Header::recover(&a?, &b?),
        };
        // Another version is refused, not guessed at, in whichever slot it is.
        match found.other_version() {
            Some(version) => Err(OfflineError::Newer(version)),
            None => Ok(found),
        }
    }
}

/// What there is in a file without a header that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// A header slot or a page that begins as ours do.
    Ours,
    /// Zeroes only: also an undo that was cut off leaves that.
    Zeroes,
    /// Something else.
    Other,
}

/// What is told of a file on inode 5 that is not the table's.
pub(super) fn not_ours() -> Problem {
    let why = "no header and no page in it is FS2's; if it is a damaged table all the same, chkfs2 -f -y makes an empty one of it";
    Problem::NotTable { why: why.into() }
}

/// The header that stands, and where.
#[derive(Clone, Debug)]
pub(super) struct Stands {
    pub(super) header: Header,
    pub(super) slot: usize,
    /// This slot could not be read: what is written there has a generation that is higher than any it may hold.
    pub(super) unread: Option<usize>,
}

impl Stands {
    /// The header that counts, if it fits the place. Of a place that grew since the pages of the header count.
    pub(super) fn of(found: &Recovered, place: &Place) -> Result<Stands, OfflineError> {
        let Some(header) = found.header.clone() else {
            return Err(OfflineError::Damaged(found.report.to_string()));
        };
        if header.block_size != place.geometry.block_size || header.pages > place.geometry.pages() {
            return Err(OfflineError::Damaged(format!(
                "its header is for {} pages and blocks of {} bytes, its place has {} and the volume {}",
                header.pages,
                header.block_size.bytes(),
                place.geometry.pages(),
                place.geometry.block_size.bytes(),
            )));
        }
        Ok(Stands { header, slot: found.slot, unread: found.unread_slot() })
    }

    fn write_next(
        &mut self,
        place: &Place,
        devices: &mut Devices<'_>,
        mark: Option<Box<Mark>>,
    ) -> Result<(), OfflineError> {
        let (mut header, slot) = (self.header.next(mark), 1 - self.slot);
        header.generation += if self.unread == Some(slot) { UNREAD_JUMP } else { 0 };
        place.write(devices, place.geometry.header_slot_offset(slot), &header.encode())?;
        devices.flush()?;
        (self.header, self.slot) = (header, slot);
        Ok(())
    }

    /// Erases the mark, durably (O2).
    pub(super) fn erase_mark(
        &mut self,
        place: &Place,
        devices: &mut Devices<'_>,
    ) -> Result<(), OfflineError> {
        self.write_next(place, devices, None)
    }

    /// Writes a mark for the volume as `layout` and `sums` say, and a table that has entries up to `pages_end`; what it vouches for is
    /// durable (O2).
    pub(super) fn write_mark(
        &mut self,
        place: &Place,
        devices: &mut Devices<'_>,
        layout: &Layout,
        sums: &BitmapChecksums,
        pages_end: Option<u32>,
    ) -> Result<(), OfflineError> {
        let copies = backups::hashes(layout, &mut *devices.volume).map_err(Problem::from)?;
        place.write(devices, place.geometry.checksums_offset(1 - self.slot), &sums.encode())?;
        devices.flush()?;
        let token = Token::new(*layout.superblock().raw(), layout.descriptors_bytes(), &copies);
        let mark = Mark { token, bitmap_checksums_hash: sums.hash(self.header.volume_id), pages_end };
        self.write_next(place, devices, Some(Box::new(mark)))?;
        if let Some(slot) = self.unread {
            // A drive may mend what it is given anew. Where it does not, no session believes a mark beside it.
            place.read(devices.home(), place.geometry.header_slot_offset(slot), PAGE_BYTES)?;
        }
        Ok(())
    }
}

/// Reads every block bitmap: its checksum, and whether it agrees with its descriptor.
pub(super) fn read_bitmaps(
    layout: &Layout,
    dev: &mut dyn ReadAt,
    progress: &mut dyn FnMut(Progress),
    mut each: impl FnMut(u32, &FreeMap<'_>),
) -> Result<BitmapChecksums, OfflineError> {
    let total = u64::from(layout.group_count());
    let mut sums = Vec::with_capacity(layout.group_count() as usize);
    layout.for_each_bitmap(dev, |group, bytes| {
        let map = FreeMap::new(layout, group, bytes)?;
        let says = u32::from(layout.groups()[group as usize].free_blocks);
        if map.free_count() != says {
            return Err(Problem::corrupt(
                format!("block {}, block bitmap of group {group}", layout.bitmap_block(group)),
                format!("{} blocks are free, its descriptor says {says}", map.free_count()),
            ));
        }
        sums.push(BitmapChecksums::of_bitmap(bytes));
        each(group, &map);
        progress(Progress { phase: Phase::Bitmaps, done: u64::from(group) + 1, total });
        Ok(())
    })?;
    Ok(BitmapChecksums(sums))
}

/// Runs of blocks that follow each other, from a sorted list; none longer than `max`.
pub(super) fn runs(blocks: impl IntoIterator<Item = BlockNo>, max: u32) -> Vec<BlockRange> {
    let mut runs: Vec<BlockRange> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(last) if last.contains(block) => {}
            Some(last) if last.end() == block.0 && last.len() < max => {
                *last = BlockRange::new(last.start(), block.0 + 1);
            }
            _ => runs.push(BlockRange::one(block)),
        }
    }
    runs
}
