//! The table against the volume, after e2fsck: what does not fit is dropped, what is left is hashed,
//! and a mark is written for the volume as it is.
//!
//! ```text
//! header, pages | bitmaps | originals, replicas hashed || mark erased | scrub | pages | checksums | mark
//! ```
//! Where the volume has other block groups than the table was written for, a header of the new division and zeroes come before the pages.
//! Nothing before the double bar writes. A flush follows each step behind it. Who lets e2fsck at the volume before erases the mark
//! first ([`super::unmark`]): e2fsck writes what it mends before it writes the superblock, and power may go in between.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, ReadAt};
use fs2_ext2::{Layout, Liveness, Problem};
use fs2_table::{BitmapChecksums, ReplicaTable, Report, TokenDiffers, Trust, content_hash};

use super::create::{empty_table_over, zero_pages};
use super::mark::{MarkFound, Unmarked, mark_found, marked_sums};
use super::place::{Holds, IO_BYTES, Place, Stands, not_ours, read_bitmaps, runs};
use super::undo::{load, refuse_other_volume, zero_blocks};
use super::{Devices, OfflineError, Phase, Progress};
use crate::backups;
use crate::plant::Plant;

/// How a check is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions<'a> {
    /// `e2fsck -f` ended with 0 or 1 just now, and nobody wrote since: the bitmaps are right.
    pub checked: bool,
    /// The backing was written since the last session of this boot: its mark counts for nothing.
    pub written_since: bool,
    /// Overwrite every replica and leave an empty table.
    pub scrub: bool,
    /// Hash nothing: entries the mark does not vouch for become unverified.
    pub quick: bool,
    /// Compare the block bitmaps with a mark also where nothing else has to be read: a seek for each group.
    pub bitmaps: bool,
    /// Drawn at random: for a table that has to be made anew.
    pub new_volume_id: u64,
    /// The mark that was erased for this check's sake.
    pub unmarked: Option<&'a Unmarked>,
    /// Bugs to plant; ignored without the feature `planted-bugs`.
    pub plants: &'a [Plant],
}

/// What a check found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// What the mark was worth.
    pub mark: MarkFound,
    /// The header slots, where something is wrong with them.
    pub header_damage: Option<String>,
    /// Why the whole table has to be made anew, empty.
    pub unusable: Option<String>,
    /// And nothing says that what is on inode 5 was a table: it may be another's file, which writing one overwrites.
    pub foreign: bool,
    /// The table was written when the volume had so many groups fewer, or more, that its pages have to move.
    pub redivided: bool,
    /// The table's pages.
    pub table: Report,
    /// Dropped: the replica's block is in use.
    pub replica_in_use: u64,
    /// Dropped: the original's block is free. While the mark is valid such entries are left to the next session.
    pub original_free: u64,
    /// Dropped: the original holds something else.
    pub originals_differ: u64,
    /// Dropped: the replica holds something else, or cannot be read.
    pub replicas_differ: u64,
    /// Dropped: the table has fewer pages than before.
    pub no_room: u64,
    /// Kept unverified: the original could not be read.
    pub unread: u64,
    /// Entries in the end that may be used at once.
    pub verified: usize,
    /// Entries in the end that wait for their originals to be read.
    pub unverified: usize,
    /// Blocks overwritten.
    pub scrubbed: u64,
    /// No mark can be written before a full `e2fsck -f`; nothing was compared.
    pub needs_full_check: bool,
    /// Something has to be written for the table to be right and marked.
    pub to_write: bool,
    /// It was written.
    pub written: bool,
    /// The mark erased for the check's sake counts, and was written again as it was.
    pub restored: bool,
    /// A valid mark stands in the end.
    pub marked: bool,
}

impl CheckReport {
    fn new(mark: MarkFound) -> CheckReport {
        CheckReport {
            mark,
            header_damage: None,
            unusable: None,
            foreign: false,
            redivided: false,
            table: Report::default(),
            replica_in_use: 0,
            original_free: 0,
            originals_differ: 0,
            replicas_differ: 0,
            no_room: 0,
            unread: 0,
            verified: 0,
            unverified: 0,
            scrubbed: 0,
            needs_full_check: false,
            to_write: false,
            written: false,
            restored: false,
            marked: false,
        }
    }

    /// Whether something in the table was wrong, the mark aside.
    pub fn has_damage(&self) -> bool {
        self.header_damage.is_some() || self.unusable.is_some() || !self.table.is_clean() || self.stale() > 0
    }

    /// Entries dropped because they do not fit the volume.
    pub fn stale(&self) -> u64 {
        self.replica_in_use + self.original_free + self.originals_differ + self.replicas_differ
    }
}

impl fmt::Display for CheckReport {
    /// What is worth telling, a line each; nothing where all is well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(what) = &self.unusable {
            writeln!(f, "the table cannot be used: {what}")?;
            if self.foreign {
                writeln!(f, "nothing on inode 5 is FS2's: it may be another's file, as a boot loader's")?;
            }
        } else if let Some(what) = &self.header_damage {
            writeln!(f, "{what}")?;
        }
        if self.mark != MarkFound::Valid && self.unusable.is_none() {
            writeln!(f, "{}", self.mark)?;
        }
        if self.redivided {
            writeln!(f, "the volume has other block groups than the table was written for: its pages move")?;
        }
        if !self.table.is_clean() {
            writeln!(f, "table: {}", self.table)?;
        }
        for (n, what) in [
            (self.replica_in_use, "dropped: the replica's block is in use"),
            (self.original_free, "dropped: the original's block is free"),
            (self.originals_differ, "dropped: the original has changed"),
            (self.replicas_differ, "dropped: the replica is no copy"),
            (self.no_room, "dropped: there is no room"),
            (self.unread, "kept unverified: the original cannot be read"),
        ] {
            match n {
                0 => {}
                1 => writeln!(f, "1 entry {what}")?,
                _ => writeln!(f, "{n} entries {what}")?,
            }
        }
        Ok(())
    }
}

/// Checks the table and, where `confirm` agrees, mends it and writes the mark. `confirm` is asked once,
/// only where something is to be written, with everything found so far; where that is [`CheckReport::foreign`] only somebody who was
/// asked can agree.
///
/// Without `checked` and without a valid mark nothing is compared or written: the bitmaps may be wrong.
/// Entries are never trusted for the flag they were found with unless the mark found is valid.
///
/// # Errors
/// [`OfflineError::Volume`] for a volume that is not clean, has no table or too little on inode 5 for one; [`OfflineError::Damaged`] for
/// a place given apart that holds no table; [`OfflineError::OtherVolume`], [`OfflineError::Newer`];
/// device errors, after which there is no mark if anything was written.
pub fn check(
    devices: &mut Devices<'_>,
    options: &CheckOptions<'_>,
    confirm: &mut dyn FnMut(&CheckReport) -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    layout.check_usable()?;
    let place = Place::find(devices, &layout)?;
    let found = match place.slots(devices.home()) {
        Err(OfflineError::Damaged(_)) if devices.table.is_none() => return Err(not_ours().into()),
        found => found?,
    };
    refuse_other_volume(devices, &found, &layout)?;
    if options.checked {
        // The mark needs them, when every entry is hashed.
        backups::hashes(&layout, &mut *devices.volume).map_err(Problem::from)?;
    }
    let before = found.header.as_ref().and_then(|header| place.divided_for(devices, header));
    if let Some(before) = before {
        let mut report = CheckReport::new(MarkFound::Token(TokenDiffers::Superblock));
        if found.report.slots.iter().any(Result::is_err) {
            report.header_damage = Some(found.report.to_string());
        }
        let stands = Stands::of(&found, &before)?;
        return redivide(devices, report, stands, [before, place], layout, options, confirm, progress);
    }
    let stands = match Stands::of(&found, &place) {
        Ok(stands) => stands,
        Err(OfflineError::Damaged(what)) if devices.table.is_none() => {
            return remake(devices, &place, &layout, what, options, confirm, progress);
        }
        Err(e) => return Err(e),
    };
    let unmarked = options.unmarked.filter(|_| stands.header.mark.is_none());
    let mut mark = match unmarked {
        Some(unmarked) => unmarked.found(&layout, &mut *devices.volume),
        None => mark_found(&found, &stands, &layout, &mut *devices.volume),
    };
    if mark == MarkFound::Valid && options.written_since {
        mark = MarkFound::WrittenSince;
    }
    let mut report = CheckReport::new(mark);
    if found.report.slots.iter().any(Result::is_err) {
        report.header_damage = Some(found.report.to_string());
    }
    let launders = cfg!(feature = "planted-bugs") && options.plants.contains(&Plant::CheckerLaunders);
    let live = Liveness::new(Arc::new(layout.clone()), &place.blocks);
    let valid = report.mark == MarkFound::Valid;
    let (mut table, pages) = load(devices, &place, &stands, &live, valid || launders)?;
    report.table = pages;
    let then = valid.then(|| match unmarked {
        Some(unmarked) => unmarked.sums.clone(),
        None => marked_sums(devices, &place, &stands, &layout),
    });
    let sums = if valid && !options.checked && !options.scrub && pages.is_clean() {
        // The entries are as the mark says, if the bitmaps are; a session compares each when it reads it.
        if options.bitmaps {
            let sums = read_bitmaps(&layout, &mut *devices.volume, progress, |_, _| {})?;
            if let Some(what) = differing(then, &sums) {
                report.mark = MarkFound::Differs(what);
                report.needs_full_check = true;
            }
        }
        None
    } else if valid || options.checked {
        let mut of_no_file = Vec::new();
        let sums = against_bitmaps(devices, &layout, &mut table, &mut report, &mut of_no_file, progress)?;
        if let Some(what) = differing(then, &sums) {
            report.mark = MarkFound::Differs(what);
            // Keeps O3: the flags were believed for the sake of this mark.
            table.all_unverified();
        }
        // What a session read and copied without having seen that group's bitmap it leaves so, and the next drops it when it
        // sees the bitmap: no damage while the mark stands for both.
        if report.mark != MarkFound::Valid {
            let dropped = of_no_file.into_iter().filter(|&replica| table.remove(replica).is_some());
            report.original_free = dropped.count() as u64;
        }
        report.needs_full_check = report.mark != MarkFound::Valid && !options.checked;
        Some(sums)
    } else {
        report.needs_full_check = true;
        None
    };
    if report.needs_full_check {
        report.unverified = table.len();
        return Ok(report);
    }
    if sums.is_some() && !options.quick && !options.scrub && !launders {
        verify(devices, &layout, stands.header.volume_id, &mut table, &mut report, progress)?;
    }
    let mut fix = Fix { stands, place, table, layout };
    report.to_write = sums.is_some() && fix.is_needed(&report, options);
    if let Some(sums) = sums.filter(|_| report.to_write)
        && confirm(&report)
    {
        fix.write(devices, &sums, options.scrub, &mut report, progress)?;
    }
    // Keeps O3: what was found wrong and is left so is vouched for by nobody.
    if !report.written
        && report.mark == MarkFound::Valid
        && !report.has_damage()
        && let Some(Unmarked { sums: Ok(sums), pages_end, .. }) = unmarked
    {
        fix.stands.write_mark(&fix.place, devices, &fix.layout, sums, *pages_end)?;
        report.restored = true;
    }
    report.marked = report.written || !report.to_write;
    report.unverified = fix.table.unverified_count();
    report.verified = fix.table.len() - report.unverified;
    Ok(report)
}

/// The table has no header that could be used: an empty one takes its place.
fn remake(
    devices: &mut Devices<'_>,
    place: &Place,
    layout: &Layout,
    what: String,
    options: &CheckOptions<'_>,
    confirm: &mut dyn FnMut(&CheckReport) -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport, OfflineError> {
    let mut report = CheckReport::new(MarkFound::None);
    report.foreign = place.holds(devices.home())? != Holds::Ours;
    if place.geometry.pages() == 0 {
        if report.foreign {
            return Err(not_ours().into());
        }
        return Err(OfflineError::Damaged(format!("{what}, and its file is too small for one")));
    }
    report.unusable = Some(what);
    report.needs_full_check = !options.checked;
    report.to_write = true;
    if report.needs_full_check {
        return Ok(report);
    }
    let sums = read_bitmaps(layout, &mut *devices.volume, progress, |_, _| {})?;
    if confirm(&report) {
        let mut stands = empty_table_over(place, devices, options.new_volume_id, progress)?;
        stands.write_mark(place, devices, layout, &sums, Some(0))?;
        report.written = true;
        report.marked = true;
    }
    Ok(report)
}

/// The volume has other groups than when its table was written, so that the pages belong elsewhere: they move. No flag that they have is
/// believed, and no mark stands until all have moved.
#[expect(clippy::too_many_arguments, reason = "what a check has by then")]
fn redivide(
    devices: &mut Devices<'_>,
    mut report: CheckReport,
    mut stands: Stands,
    [before, place]: [Place; 2],
    layout: Layout,
    options: &CheckOptions<'_>,
    confirm: &mut dyn FnMut(&CheckReport) -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport, OfflineError> {
    report.redivided = true;
    report.to_write = true;
    let live = Liveness::new(Arc::new(layout.clone()), &before.blocks);
    let (mut all, pages) = load(devices, &before, &stands, &live, false)?;
    report.table = pages;
    if !options.checked {
        report.needs_full_check = true;
        report.unverified = all.len();
        return Ok(report);
    }
    let mut of_no_file = Vec::new();
    let sums = against_bitmaps(devices, &layout, &mut all, &mut report, &mut of_no_file, progress)?;
    report.original_free = of_no_file.into_iter().filter(|&r| all.remove(r).is_some()).count() as u64;
    if !options.quick && !options.scrub {
        verify(devices, &layout, stands.header.volume_id, &mut all, &mut report, progress)?;
    }
    // Of a larger place apart it has what it had.
    let place = match devices.table.is_some() {
        true => place.ending_with(before.geometry.page_offset(stands.header.pages)),
        false => place,
    };
    if place.geometry.pages() == 0 {
        return Err(OfflineError::Damaged("its place is too small for a volume with so many groups".into()));
    }
    let mut table = ReplicaTable::new(place.geometry.max_entries(), u8::MAX);
    for entry in all.iter() {
        let worth = all.age_and_value(entry.replica).map_or(0, |(_, worth)| worth);
        // There may be room for some thousand fewer.
        report.no_room += u64::from(table.insert_worth(entry, worth).is_err());
    }
    report.unverified = table.unverified_count();
    report.verified = table.len() - report.unverified;
    if confirm(&report) {
        if options.scrub {
            // While the table names them still. Keeps O2.
            stands.erase_mark(&before, devices)?;
            report.scrubbed = overwrite_replicas(devices, &mut all, &layout, progress)?;
            table.clear();
        }
        // A header stands at every step. By this one, which has no mark, no page is where it says that it belongs.
        stands.header.pages = place.geometry.pages();
        stands.erase_mark(&place, devices)?;
        zero_pages(&place, devices, progress)?;
        devices.flush()?;
        let mut fix = Fix { stands, place, table, layout };
        fix.write(devices, &sums, false, &mut report, progress)?;
        report.unverified = fix.table.unverified_count();
        report.verified = fix.table.len() - report.unverified;
        report.marked = true;
    }
    Ok(report)
}

/// Overwrites every replica of a table, which is empty then; says how many there were.
fn overwrite_replicas(
    devices: &mut Devices<'_>,
    table: &mut ReplicaTable,
    layout: &Layout,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, OfflineError> {
    let scrubbed = table.len() as u64;
    // Keeps O4: entries in blocks that are in use are dropped already.
    let max = (IO_BYTES / layout.block_size().bytes() as usize) as u32;
    let blocks: Vec<BlockRange> = runs(table.iter().map(|e| e.replica), max);
    zero_blocks(devices.volume, &blocks, layout, progress)?;
    devices.flush()?;
    table.clear();
    Ok(scrubbed)
}

/// Where the bitmaps are not those that the mark was written for.
fn differing(then: Option<Result<BitmapChecksums, String>>, now: &BitmapChecksums) -> Option<String> {
    match then? {
        Ok(then) => (0..)
            .zip(then.0.iter().zip(&now.0))
            .find(|(_, (then, now))| then != now)
            .map(|(group, _): (u32, _)| format!("the blocks in use of group {group}")),
        Err(what) => Some(what),
    }
}

/// Drops entries whose replica is in use, tells the replicas of those whose original is free; gives the bitmaps' checksums.
fn against_bitmaps(
    devices: &mut Devices<'_>,
    layout: &Layout,
    table: &mut ReplicaTable,
    report: &mut CheckReport,
    of_no_file: &mut Vec<BlockNo>,
    progress: &mut dyn FnMut(Progress),
) -> Result<BitmapChecksums, OfflineError> {
    read_bitmaps(layout, &mut *devices.volume, progress, |_, map| {
        for entry in table.replicas_in(map.blocks()) {
            if !map.is_free(entry.replica) && table.remove(entry.replica).is_some() {
                report.replica_in_use += 1;
            }
        }
        let originals = table.originals_in(map.blocks());
        of_no_file.extend(originals.iter().filter(|e| map.is_free(e.original)).map(|e| e.replica));
    })
}

/// Hashes both blocks of every entry, in address order. An entry is verified if both are equal to its
/// hash (O3), and dropped if one differs.
fn verify(
    devices: &mut Devices<'_>,
    layout: &Layout,
    key: u64,
    table: &mut ReplicaTable,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OfflineError> {
    table.all_unverified();
    let mut unread = BTreeSet::new();
    let total = table.len() as u64;
    let mut done = 0;
    for group in 0..layout.group_count() {
        let entries = table.originals_in(layout.group_blocks(group));
        let blocks = entries.iter().map(|e| e.original);
        let mut next = entries.iter().peekable();
        hash_blocks(&mut *devices.volume, layout, key, blocks, |block, hash| {
            while let Some(entry) = next.next_if(|e| e.original == block) {
                match hash {
                    Some(hash) if hash == entry.hash => {}
                    Some(_) => {
                        table.remove(entry.replica);
                        report.originals_differ += 1;
                    }
                    None => {
                        unread.insert(entry.replica);
                    }
                }
            }
        });
        done += entries.len() as u64;
        if !entries.is_empty() {
            progress(Progress { phase: Phase::Originals, done, total });
        }
    }
    report.unread = unread.len() as u64;
    let total = table.len() as u64;
    let mut done = 0;
    for group in 0..layout.group_count() {
        let entries = table.replicas_in(layout.group_blocks(group));
        let blocks = entries.iter().map(|e| e.replica);
        let mut next = entries.iter();
        hash_blocks(&mut *devices.volume, layout, key, blocks, |_, hash| {
            let Some(entry) = next.next() else { return };
            if hash != Some(entry.hash) {
                table.remove(entry.replica);
                report.replicas_differ += 1;
            } else if !unread.contains(&entry.replica) {
                table.set_trust(entry.replica, Trust::Verified);
            }
        });
        done += entries.len() as u64;
        if !entries.is_empty() {
            progress(Progress { phase: Phase::Replicas, done, total });
        }
    }
    Ok(())
}

/// Reads sorted blocks, those that follow each other together, and hands on each one's hash (`None`:
/// it cannot be read). Blocks named twice are handed on once.
pub(super) fn hash_blocks(
    dev: &mut dyn ReadAt,
    layout: &Layout,
    key: u64,
    blocks: impl IntoIterator<Item = BlockNo>,
    mut each: impl FnMut(BlockNo, Option<u64>),
) {
    let size = layout.block_size();
    let bytes = size.bytes() as usize;
    let mut buf = vec![0; IO_BYTES];
    for run in runs(blocks, (IO_BYTES / bytes) as u32) {
        let buf = &mut buf[..run.len() as usize * bytes];
        let whole = dev.read_at(run.extent(size).offset(), buf).is_ok();
        for (block, content) in run.iter().zip(buf.chunks_exact_mut(bytes)) {
            // Block by block: one that cannot be read costs its own entries only.
            let read = whole || dev.read_at(block.extent(size).offset(), content).is_ok();
            each(block, read.then(|| content_hash(key, content)));
        }
    }
}

/// A table as it is to be on disk.
pub(super) struct Fix {
    pub(super) stands: Stands,
    pub(super) place: Place,
    pub(super) table: ReplicaTable,
    pub(super) layout: Layout,
}

impl Fix {
    fn is_needed(&self, report: &CheckReport, options: &CheckOptions<'_>) -> bool {
        report.mark != MarkFound::Valid
            || report.has_damage()
            || options.scrub && !self.table.is_empty()
            || self.table.dirty_pages() > 0
            || self.table.pages_needing_flag_change(true).next().is_some()
    }

    fn write(
        &mut self,
        devices: &mut Devices<'_>,
        sums: &BitmapChecksums,
        scrub: bool,
        report: &mut CheckReport,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), OfflineError> {
        // Keeps O2.
        self.stands.erase_mark(&self.place, devices)?;
        if scrub {
            report.scrubbed = overwrite_replicas(devices, &mut self.table, &self.layout, progress)?;
        }
        self.write_pages(devices, progress)?;
        self.stands.write_mark(&self.place, devices, &self.layout, sums, Some(self.table.pages_end()))?;
        report.written = true;
        Ok(())
    }

    /// Writes every page that is not on disk as it should be, and makes them durable.
    pub(super) fn write_pages(
        &mut self,
        devices: &mut Devices<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), OfflineError> {
        let mut pages: BTreeSet<u32> = self.table.pages_needing_flag_change(true).collect();
        let mut after = None;
        while let Some(page) = self.table.next_dirty_page(after) {
            pages.insert(page);
            after = Some(page);
        }
        let total = pages.len() as u64;
        let header = &self.stands.header;
        for (page, done) in pages.into_iter().zip(1..) {
            let encoded = self.table.encode_page(page, header.generation, header.volume_id, true);
            self.place.write(devices, self.place.geometry.page_offset(page), &encoded.bytes[..])?;
            self.table.mark_written(page, &encoded);
            progress(Progress { phase: Phase::Table, done, total });
        }
        devices.flush()
    }
}
