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

use super::check::{Fix, hash_blocks};
use super::mark::{MarkFound, mark_found, marked_sums};
use super::place::{IO_BYTES, Place, Stands, read_bitmaps, runs};
use super::undo::{load, refuse_other_volume};
use super::{Devices, OfflineError, Phase, Progress};

/// What is to be copied, and where.
#[derive(Clone, Copy, Debug)]
pub struct ReplicateOptions<'a> {
    /// The originals, in the order in which their copies are to lie.
    pub blocks: &'a [BlockRange],
    /// The copies go to the free run nearest to this block that takes them all, or else to the nearest
    /// ones.
    pub near: BlockNo,
    /// The backing was written since the last session of this boot: its mark counts for nothing.
    pub written_since: bool,
}

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// Where the copies are, ascending; the first of them holds the first copy.
    pub places: Vec<BlockRange>,
    /// Blocks copied.
    pub copied: u64,
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
/// not be served active, whose mark is erased where the volume was written since; [`OfflineError::NotToCopy`], [`OfflineError::TableFull`],
/// [`OfflineError::NoRoom`]. Device errors later leave the volume without a mark.
pub fn replicate(
    devices: &mut Devices<'_>,
    options: &ReplicateOptions<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Replicated, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    layout.check_usable()?;
    let place = Place::find(devices, &layout)?;
    let found = place.slots(devices.home())?;
    refuse_other_volume(devices, &found, &layout)?;
    let mut stands = Stands::of(&found, &place)?;
    let mark = mark_found(&found, &stands, &layout, &mut *devices.volume);
    if mark == MarkFound::Valid && options.written_since {
        // Void for good: this boot knows who wrote, the next would not.
        stands.erase_mark(&place, devices)?;
        return Err(OfflineError::NotMarked(MarkFound::WrittenSince));
    }
    if mark != MarkFound::Valid {
        return Err(OfflineError::NotMarked(mark));
    }
    let live = Liveness::new(Arc::new(layout.clone()), &place.blocks);
    let (mut table, _) = load(devices, &place, &stands, &live, true)?;
    let then = marked_sums(devices, &place, &stands, &layout)
        .map_err(|what| OfflineError::NotMarked(MarkFound::Differs(what)))?;
    let mut wanted = first_mentions(options.blocks, &layout, &place, table.capacity())?;
    // Their copies elsewhere go, and so make room too.
    let gone = options.blocks.iter().flat_map(|&range| table.remove_by_original(range));
    let dropped: usize = gone.map(|replicas| replicas.len() as usize).sum();
    let (asked, mut available) = (wanted.len(), Vec::new());
    let sums = read_bitmaps(&layout, &mut *devices.volume, progress, |_, map| {
        for run in map.free_runs() {
            let free = run.first()..BlockNo(run.end());
            wanted.extract_if(free, |_, _| true).for_each(drop);
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
    let target = nearest(&available, needs as u32, options.near).ok_or_else(|| OfflineError::NoRoom {
        needs: needs as u64,
        has: available.iter().map(|run| u64::from(run.len())).sum(),
    })?;
    let key = stands.header.volume_id;
    let mut hashes: Vec<Option<u64>> = Vec::with_capacity(needs);
    hash_blocks(&mut *devices.volume, &layout, key, originals.iter().copied(), |_, hash| {
        hashes.push(hash);
        progress(Progress { phase: Phase::Originals, done: hashes.len() as u64, total: needs as u64 });
    });
    for ((&original, replica), hash) in originals.iter().zip(blocks_of(&target)).zip(&hashes) {
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
    copy(devices.volume, &fix.layout, &originals, &target, progress)?;
    devices.flush()?;
    // Keeps O3: what is vouched for was seen.
    let mut wrong = None;
    let mut back = hashes.iter();
    hash_blocks(&mut *devices.volume, &fix.layout, key, blocks_of(&target), |block, hash| {
        if back.next() != Some(&hash) {
            wrong = wrong.or(Some(block));
        }
    });
    if let Some(block) = wrong {
        let source = std::io::Error::other("what was written does not read back");
        return Err(OfflineError::Io { what: format!("copying into block {block}"), source });
    }
    fix.write_pages(devices, progress)?;
    let pages_end = Some(fix.table.pages_end());
    fix.stands.write_mark(&fix.place, devices, &fix.layout, &sums, pages_end)?;
    let (copied, free, dropped) = (needs as u64, (asked - needs) as u64, dropped as u64);
    Ok(Replicated { places: target, copied, free, dropped })
}

fn blocks_of(ranges: &[BlockRange]) -> impl Iterator<Item = BlockNo> + '_ {
    ranges.iter().flat_map(|range| range.iter())
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
        // The first that ends behind the range's beginning.
        let own = place.blocks.partition_point(|own| own.end() <= range.start());
        if let Some(own) = place.blocks.get(own).map(|own| own.intersect(*range)).filter(|r| !r.is_empty()) {
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

/// Adds to `available` what of a free run may take copies: inside F's universe, without replicas. Part by part: 16 TiB have
/// 4,294,967,296 blocks.
fn add_available(available: &mut Vec<BlockRange>, run: BlockRange, live: &Liveness, table: &ReplicaTable) {
    for part in live.universe_in(run) {
        let mut from = part.start();
        for taken in table.replicas_in(part).into_iter().map(|e| e.replica.0) {
            add_run(available, from, taken);
            from = taken + 1;
        }
        add_run(available, from, part.end());
    }
}

/// Adds the blocks from `start` to before `end`, which come behind all others, to the last run where they touch it.
fn add_run(runs: &mut Vec<BlockRange>, start: u32, end: u32) {
    match runs.last_mut() {
        _ if start >= end => {}
        Some(last) if last.end() == start => *last = BlockRange::new(last.start(), end),
        _ => runs.push(BlockRange::new(start, end)),
    }
}

/// Shorter pieces are used only where there are not enough longer ones: a read is served from a copy
/// only if all of it lies in one piece. 16 blocks are a usual read of 64 KiB at 4 KiB blocks.
const PIECE_MIN: u32 = 16;

/// Distance of a range to a block, 0 within.
fn distance(range: BlockRange, near: BlockNo) -> u32 {
    range.start().saturating_sub(near.0).max(near.0.saturating_add(1).saturating_sub(range.end()))
}

/// `n` blocks, as near to `near` as there are: in one run, or, where none is long enough (bitmaps and
/// inode tables end a run with its group), in the nearest ones; ascending.
fn nearest(runs: &[BlockRange], n: u32, near: BlockNo) -> Option<Vec<BlockRange>> {
    let part = |run: BlockRange, n: u32| {
        let start = near.0.clamp(run.start(), run.end() - n);
        BlockRange::new(start, start + n)
    };
    let whole = runs.iter().filter(|run| run.len() >= n).map(|&run| part(run, n));
    if let Some(one) = whole.min_by_key(|&r| (distance(r, near), r.start())) {
        return Some(vec![one]);
    }
    let mut order = runs.to_vec();
    order.sort_by_key(|&run| (run.len() < PIECE_MIN, distance(run, near), run.start()));
    let (mut left, mut pieces) = (n, Vec::new());
    for run in order {
        let here = left.min(run.len());
        if here == 0 {
            break;
        }
        pieces.push(part(run, here));
        left -= here;
    }
    pieces.sort_unstable();
    (left == 0).then_some(pieces)
}

/// Writes the copies, in order.
fn copy(
    volume: &mut (dyn WriteAt + '_),
    layout: &Layout,
    originals: &[BlockNo],
    target: &[BlockRange],
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OfflineError> {
    let size = layout.block_size();
    let at_once = IO_BYTES / size.bytes() as usize;
    let mut buf = vec![0; IO_BYTES];
    let (mut done, total) = (0, originals.len() as u64);
    let mut left = originals;
    for piece in target.iter().flat_map(|range| runs(range.iter(), at_once as u32)) {
        let (chunk, rest) = left.split_at(piece.len() as usize);
        left = rest;
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
            .write_at(piece.extent(size).offset(), buf)
            .map_err(OfflineError::io(format!("writing copies to blocks {piece}")))?;
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
        let near = |n, near| {
            let found = nearest(&runs, n, BlockNo(near))?;
            Some(found.iter().map(|r| (r.start(), r.end())).collect::<Vec<_>>())
        };
        assert_eq!(near(4, 31), Some(vec![(30, 34)]));
        assert_eq!(near(5, 31), Some(vec![(15, 20)]));
        assert_eq!(near(5, 45), Some(vec![(50, 55)]));
        assert_eq!(near(3, 52), Some(vec![(52, 55)]));
        assert_eq!(near(3, 59), Some(vec![(57, 60)]));
        assert_eq!(near(10, u32::MAX - 1), Some(vec![(50, 60)]));
        assert_eq!(near(4, u32::MAX), Some(vec![(56, 60)]));
        assert_eq!(near(11, 0), Some(vec![(10, 20), (30, 31)]));
        assert_eq!(near(18, 33), Some(vec![(10, 20), (30, 34), (50, 54)]));
        assert_eq!(near(24, 0), Some(vec![(10, 20), (30, 34), (50, 60)]));
        assert_eq!(near(25, 0), None);
        let long = [(10, 20), (100, 120), (200, 230)].map(|(a, b)| BlockRange::new(a, b));
        let far = nearest(&long, 45, BlockNo(0)).unwrap();
        assert_eq!(far, [BlockRange::new(100, 120), BlockRange::new(200, 225)], "the short one is left");
    }
}
