//! Where a new file goes: long free runs in few groups, near the middle of the volume, found with
//! the descriptors' counts so that only a few bitmaps are read.

use crate::free::FreeMap;
use crate::layout::Layout;
use crate::problem::Problem;
use fs2_block::{BlockRange, ReadAt};
use std::ops::Range;

/// How many windows of groups have their bitmaps read, in search of one with few runs. A guess: a
/// volume that is fragmented in eight places is so in most.
const WINDOWS_MAX: usize = 8;

/// Free blocks for a file of `need` blocks, exactly that many, in block order.
pub(super) fn choose(layout: &Layout, dev: &mut dyn ReadAt, need: u64) -> Result<Vec<BlockRange>, Problem> {
    let has: u64 = layout.groups().iter().map(|g| u64::from(g.free_blocks)).sum();
    let has = has.min(u64::from(layout.superblock().free_blocks_count()));
    if has < need {
        return Err(Problem::NoSpace { what: "the replica table".into(), needs: need, has });
    }
    let mut best: Option<Vec<BlockRange>> = None;
    for window in windows(layout, need) {
        let groups = window.len();
        let runs = runs_in(layout, dev, window)?;
        let taken = longest(runs, need);
        let few = taken.len() <= groups;
        if best.as_ref().is_none_or(|best| taken.len() < best.len()) {
            best = Some(taken);
        }
        if few {
            break;
        }
    }
    Ok(best.unwrap_or_default())
}

/// The shortest windows of groups with `need` free blocks between them, those near the middle
/// first, no two sharing a group.
fn windows(layout: &Layout, need: u64) -> Vec<Range<u32>> {
    let groups = layout.groups();
    let mut all = Vec::new();
    let (mut end, mut free) = (0, 0);
    for start in 0..groups.len() {
        while free < need && end < groups.len() {
            free += u64::from(groups[end].free_blocks);
            end += 1;
        }
        if free < need {
            break;
        }
        all.push(start as u32..end as u32);
        free -= u64::from(groups[start].free_blocks);
    }
    let middle = groups.len() as u32;
    all.sort_by_key(|w| (w.end - w.start, (w.start + w.end).abs_diff(middle)));
    let mut chosen: Vec<Range<u32>> = Vec::new();
    for window in all {
        if chosen.len() == WINDOWS_MAX {
            break;
        }
        if chosen.iter().all(|other| window.end <= other.start || other.end <= window.start) {
            chosen.push(window);
        }
    }
    chosen
}

/// The free runs of these groups, joined across their boundaries.
fn runs_in(layout: &Layout, dev: &mut dyn ReadAt, groups: Range<u32>) -> Result<Vec<BlockRange>, Problem> {
    let mut runs: Vec<BlockRange> = Vec::new();
    for group in groups {
        let bytes = layout.read_bitmap(dev, group)?;
        let map = FreeMap::new(layout, group, &bytes)?;
        let says = layout.groups()[group as usize].free_blocks;
        if map.free_count() != u32::from(says) {
            return Err(Problem::corrupt(
                format!("block {}, block bitmap of group {group}", layout.bitmap_block(group)),
                format!("{} blocks are free, its descriptor says {says}", map.free_count()),
            ));
        }
        for run in map.free_runs() {
            match runs.last_mut() {
                Some(last) if last.end() == run.start() => *last = BlockRange::new(last.start(), run.end()),
                _ => runs.push(run),
            }
        }
    }
    Ok(runs)
}

/// `need` blocks from the longest of `runs`, in block order.
fn longest(mut runs: Vec<BlockRange>, need: u64) -> Vec<BlockRange> {
    runs.sort_by_key(|run| (std::cmp::Reverse(run.len()), run.start()));
    let mut left = need;
    let mut taken = Vec::new();
    for run in runs {
        let here = left.min(u64::from(run.len())) as u32;
        if here == 0 {
            break;
        }
        taken.push(BlockRange::new(run.start(), run.start() + here));
        left -= u64::from(here);
    }
    taken.sort_unstable();
    taken
}
