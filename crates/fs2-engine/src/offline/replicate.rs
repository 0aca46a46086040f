//! Replicas by hand: the paper's FS2-static.
//!
//! ```text
//! header, pages, bitmaps, originals hashed || mark erased | copies | read back | pages | checksums | mark
//! ```
//! Nothing before the double bar writes. A flush follows each step behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, WriteAt};
use fs2_ext2::{Layout, Liveness};
use fs2_table::{InsertRefused, Replica, ReplicaTable, Trust};

use super::check::{Fix, MarkFound, hash_blocks, mark_found, marked_sums};
use super::place::{IO_BYTES, Place, Stands, read_bitmaps, runs};
use super::undo::{load, refuse_other_volume};
use super::{Devices, OfflineError, Phase, Progress};

/// What is to be copied, and where.
#[derive(Clone, Copy, Debug)]
pub struct ReplicateOptions<'a> {
    /// The originals, in the order in which their copies are to lie.
    pub blocks: &'a [BlockRange],
    /// The copies go to the free run nearest to this block that takes them all.
    pub near: BlockNo,
    /// The backing was written since the last session of this boot: its mark counts for nothing.
    pub written_since: bool,
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// Where the copies are.
    pub place: BlockRange,
    /// Blocks asked for that are free: there was nothing to copy.
    pub free: u64,
    /// Replicas that these blocks had before, elsewhere; dropped.
    pub dropped: u64,
}

/// Copies blocks, verified, and marks the volume again. A block named twice is copied once; what other
/// replicas it had are dropped.
///
/// # Errors
/// Before anything is written: as [`super::check`]; [`OfflineError::NotMarked`] for a volume that would
/// not be served active; [`OfflineError::NotToCopy`], [`OfflineError::TableFull`],
/// [`OfflineError::NoRun`]. Device errors later leave the volume without a mark.
pub fn replicate(
    devices: &mut Devices<'_>,
    options: &ReplicateOptions<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Replicated, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    layout.check_usable()?;
    let place = Place::find(devices, &layout)?;
    let found = place.slots(devices.home())?;
    let stands = Stands::of(&found, &place)?;
    if devices.table.is_some() {
        refuse_other_volume(&stands.header, &layout)?;
    }
    let mark = match mark_found(&found, &stands, &layout) {
        MarkFound::Valid if options.written_since => MarkFound::WrittenSince,
        mark => mark,
    };
    if mark != MarkFound::Valid {
        return Err(OfflineError::NotMarked(mark));
    }
    let live = Liveness::new(Arc::new(layout.clone()), &place.blocks);
    let (mut table, _) = load(devices, &place, &stands, &live, true)?;
    let then = marked_sums(devices, &place, &stands, &layout)
        .map_err(|what| OfflineError::NotMarked(MarkFound::Differs(what)))?;
    let mut wanted = first_mentions(options.blocks, &layout, &place, table.capacity())?;
    // Their copies elsewhere go, and so make room too.
    let dropped: usize = options.blocks.iter().map(|&range| table.remove_by_original(range).len()).sum();
    let (asked, mut available) = (wanted.len(), Vec::new());
    let sums = read_bitmaps(&layout, &mut *devices.volume, progress, |_, map| {
        for run in map.free_runs() {
            wanted.retain(|&block, _| !run.contains(block));
            add_available(&mut available, run, &live, &table);
        }
    })?;
    if let Some((group, _)) = (0u32..).zip(then.0.iter().zip(&sums.0)).find(|(_, (a, b))| a != b) {
        let what = format!("the blocks in use of group {group}");
        return Err(OfflineError::NotMarked(MarkFound::Differs(what)));
    }
    let mut order: Vec<(usize, BlockNo)> = wanted.into_iter().map(|(block, at)| (at, block)).collect();
    order.sort_unstable();
    let originals: Vec<BlockNo> = order.into_iter().map(|(_, block)| block).collect();
    let needs = originals.len();
    if needs == 0 {
        return Err(OfflineError::NothingToCopy);
    }
    let target = nearest(&available, needs as u32, options.near).ok_or_else(|| OfflineError::NoRun {
        needs: needs as u64,
        longest: available.iter().map(|run| u64::from(run.len())).max().unwrap_or(0),
    })?;
    let key = stands.header.volume_id;
    let mut hashes: Vec<Option<u64>> = Vec::with_capacity(needs);
    hash_blocks(&mut *devices.volume, &layout, key, originals.iter().copied(), |_, hash| {
        hashes.push(hash);
        progress(Progress { phase: Phase::Originals, done: hashes.len() as u64, total: needs as u64 });
    });
    for ((&original, replica), hash) in originals.iter().zip(target.iter()).zip(&hashes) {
        let hash = hash.ok_or(OfflineError::NotToCopy { block: original, why: "it cannot be read" })?;
        let entry = Replica { original, replica, hash, trust: Trust::Verified };
        let has = (table.capacity() - table.len().min(table.capacity())) as u64;
        table.insert(entry).map_err(|refused| match refused {
            InsertRefused::Full => OfflineError::TableFull { needs: needs as u64, has },
            _ => OfflineError::NotToCopy { block: original, why: "another entry contradicts it" },
        })?;
    }

    let mut fix = Fix { stands, place, table, layout };
    // Keeps O2.
    fix.stands.erase_mark(&fix.place, devices)?;
    copy(devices.volume, &fix.layout, &originals, target, progress)?;
    devices.flush()?;
    // Keeps O3: what is vouched for was seen.
    let mut wrong = None;
    let mut back = hashes.iter();
    hash_blocks(&mut *devices.volume, &fix.layout, key, target.iter(), |block, hash| {
        if back.next() != Some(&hash) {
            wrong = wrong.or(Some(block));
        }
    });
    if let Some(block) = wrong {
        let source = std::io::Error::other("what was written does not read back");
        return Err(OfflineError::Io { what: format!("copying into block {block}"), source });
    }
    fix.write_pages(devices, progress)?;
    fix.stands.write_mark(&fix.place, devices, &fix.layout, &sums)?;
    Ok(Replicated { place: target, free: (asked - needs) as u64, dropped: dropped as u64 })
}

/// Each block asked for, with its place in the order.
fn first_mentions(
    blocks: &[BlockRange],
    layout: &Layout,
    place: &Place,
    room: usize,
) -> Result<BTreeMap<BlockNo, usize>, OfflineError> {
    let volume = BlockRange::new(layout.first_data_block(), layout.blocks());
    for range in blocks.iter().filter(|range| !range.is_empty()) {
        if range.start() < volume.start() || range.end() > volume.end() {
            let first =
                if range.start() < volume.start() { range.start() } else { range.start().max(volume.end()) };
            return Err(OfflineError::NotToCopy { block: BlockNo(first), why: "it is outside the volume" });
        }
        if let Some(own) = place.blocks.iter().map(|own| own.intersect(*range)).find(|r| !r.is_empty()) {
            return Err(OfflineError::NotToCopy { block: own.first(), why: "it holds the replica table" });
        }
    }
    let total: u64 = blocks.iter().map(|range| u64::from(range.len())).sum();
    if total > room as u64 {
        return Err(OfflineError::TableFull { needs: total, has: room as u64 });
    }
    let mut order = BTreeMap::new();
    for (at, block) in blocks.iter().flat_map(|range| range.iter()).enumerate() {
        order.entry(block).or_insert(at);
    }
    Ok(order)
}

/// Adds to `available` what of a free run may take copies: inside F's universe, without replicas.
fn add_available(available: &mut Vec<BlockRange>, run: BlockRange, live: &Liveness, table: &ReplicaTable) {
    let mut taken = table.replicas_in(run).into_iter().map(|e| e.replica).peekable();
    for block in run.iter() {
        if taken.next_if_eq(&block).is_some() || !live.in_universe(block) {
            continue;
        }
        match available.last_mut() {
            Some(last) if last.end() == block.0 => *last = BlockRange::new(last.start(), block.0 + 1),
            _ => available.push(BlockRange::one(block)),
        }
    }
}

/// `n` blocks in one run, as near to `near` as there are.
fn nearest(runs: &[BlockRange], n: u32, near: BlockNo) -> Option<BlockRange> {
    let place = |run: &BlockRange| {
        let start = near.0.clamp(run.start(), run.end() - n);
        BlockRange::new(start, start + n)
    };
    let distance =
        |r: &BlockRange| r.start().saturating_sub(near.0).max((near.0 + 1).saturating_sub(r.end()));
    runs.iter().filter(|run| run.len() >= n).map(place).min_by_key(|r| (distance(r), r.start()))
}

/// Writes the copies, in order.
fn copy(
    volume: &mut (dyn WriteAt + '_),
    layout: &Layout,
    originals: &[BlockNo],
    target: BlockRange,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OfflineError> {
    let size = layout.block_size();
    let at_once = IO_BYTES / size.bytes() as usize;
    let mut buf = vec![0; IO_BYTES];
    let (mut done, total) = (0, originals.len() as u64);
    for (chunk, first) in originals.chunks(at_once).zip((target.start()..).step_by(at_once)) {
        let buf = &mut buf[..chunk.len() * size.bytes() as usize];
        let mut at = 0;
        for run in runs(chunk.iter().copied(), at_once as u32) {
            let extent = run.extent(size);
            let end = at + extent.len() as usize;
            volume
                .read_at(extent.offset(), &mut buf[at..end])
                .map_err(OfflineError::io(format!("reading blocks {run}")))?;
            at = end;
        }
        volume
            .write_at(BlockNo(first).extent(size).offset(), buf)
            .map_err(OfflineError::io(format!("writing {} copies from block {first}", chunk.len())))?;
        done += chunk.len() as u64;
        progress(Progress { phase: Phase::Copy, done, total });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_run_that_takes_all() {
        let runs = [(10, 20), (30, 34), (50, 60)].map(|(a, b)| BlockRange::new(a, b));
        let near = |n, near| nearest(&runs, n, BlockNo(near)).map(|r| (r.start(), r.end()));
        assert_eq!(near(4, 31), Some((30, 34)));
        assert_eq!(near(5, 31), Some((15, 20)));
        assert_eq!(near(5, 45), Some((50, 55)));
        assert_eq!(near(3, 52), Some((52, 55)));
        assert_eq!(near(3, 59), Some((57, 60)));
        assert_eq!(near(10, u32::MAX - 1), Some((50, 60)));
        assert_eq!(near(11, 0), None);
    }
}
