//! Entries against each other: what no single page can show.
//!
//! All of it sorts and goes through once; no step searches for each entry, because who wrote the
//! pages may have chosen them so that searching is slow.

use super::{Found, Report};
use crate::Trust;
use crate::leaf::Item;
use crate::originals::{Run, cut_at_granules};
use crate::page::{Entry, PAGE_ENTRIES};
use crate::table::OnDisk;
use std::collections::BTreeMap;

/// The page generations of entries that have left the page they were read from, by replica.
pub(super) type Generations = BTreeMap<u32, u64>;

/// Pages that have entries, by first replica.
fn in_order(found: &[Found]) -> Vec<usize> {
    let mut order: Vec<(u32, usize)> =
        found.iter().enumerate().filter_map(|(n, f)| Some((f.leaf.as_ref()?.bounds().0, n))).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, n)| n).collect()
}

/// Makes the pages' ranges disjoint and replicas unique.
pub(super) fn overlaps(found: &mut [Found], report: &mut Report) -> Generations {
    let order = in_order(found);
    let mut generations = Generations::new();
    let mut from = 0;
    while from < order.len() {
        let last = |n: usize| found[n].leaf.as_ref().map_or(0, |l| l.bounds().1);
        let first = |n: usize| found[n].leaf.as_ref().map_or(0, |l| l.bounds().0);
        let mut to = from + 1;
        let mut reach = last(order[from]);
        while to < order.len() && first(order[to]) <= reach {
            reach = reach.max(last(order[to]));
            to += 1;
        }
        if to - from > 1 {
            rearrange(found, &order[from..to], &mut generations, report);
        }
        from = to;
    }
    generations
}

/// Merges pages whose ranges overlap into as many of them as are needed.
fn rearrange(found: &mut [Found], pages: &[usize], generations: &mut Generations, report: &mut Report) {
    report.pages_overlapping += pages.len() as u32;
    let mut all: Vec<(Item, u64)> = Vec::new();
    for &n in pages {
        let page = &mut found[n];
        page.on_disk = OnDisk::Unknown;
        all.extend(page.leaf.take().iter().flat_map(|l| l.items()).map(|item| (item, page.generation)));
    }
    let content = |e: Entry| (e.replica, e.original, e.hash);
    all.sort_by_key(|&((entry, _), generation)| (content(entry), generation));
    let mut kept: Vec<Item> = Vec::with_capacity(all.len());
    for same in all.chunk_by(|a, b| a.0.0.replica == b.0.0.replica) {
        let (mut item, generation) = same[same.len() - 1];
        if same.len() > 1 {
            if content(same[0].0.0) != content(item.0) {
                report.same_replica += same.len() as u64;
                continue;
            }
            report.repeated += same.len() as u64 - 1;
            item.1 = item.1.with_trust(Trust::Unverified);
        }
        generations.insert(item.0.replica, generation);
        kept.push(item);
    }
    // Never more leaves than pages: no leaf but the last is less than full.
    for (&n, items) in pages.iter().zip(kept.chunks(PAGE_ENTRIES)) {
        found[n].leaf = Some(Box::new(items.iter().copied().collect()));
    }
}

/// Drops entries whose replica is another's original, and those others. Returns the runs that are
/// left, sorted.
pub(super) fn contradictions(found: &mut [Found], report: &mut Report) -> Vec<Run> {
    let runs = runs(found);
    let order = in_order(found);
    let mut bad = Vec::new();
    let mut replicas =
        order.iter().flat_map(|&n| &found[n].leaf).flat_map(|l| l.entries()).map(|e| e.replica);
    // `ahead`: the replicas seen that may be originals of this run or one behind it.
    let mut ahead = std::collections::VecDeque::new();
    for run in &runs {
        while ahead.front().is_some_and(|&r| r < run.original) {
            ahead.pop_front();
        }
        while ahead.back().is_none_or(|&r| r < run.end()) {
            let Some(r) = replicas.next() else { break };
            if r >= run.original {
                ahead.push_back(r);
            }
        }
        for &r in ahead.iter().take_while(|&&r| r < run.end()) {
            bad.push(r);
            bad.push(run.replica + (r - run.original));
        }
    }
    drop(replicas);
    if bad.is_empty() {
        return runs;
    }
    report.contradictory += drop_entries(found, bad);
    self::runs(found)
}

/// Drops what is more than `degree` of one original: the entries of the oldest pages, the highest
/// replicas where equal. Returns the runs that are left, sorted.
pub(super) fn degree(
    found: &mut [Found],
    runs: Vec<Run>,
    degree: usize,
    generations: &Generations,
    report: &mut Report,
) -> Vec<Run> {
    let mut bad = Vec::new();
    let granule = |run: &Run| run.original / 64;
    for near in runs.chunk_by(|a, b| granule(a) == granule(b)) {
        if near.len() <= degree {
            continue;
        }
        let mut count = [0u32; 64];
        for original in near.iter().flat_map(|run| run.originals().iter()) {
            count[(original.0 % 64) as usize] += 1;
        }
        if count.iter().all(|&n| n as usize <= degree) {
            continue;
        }
        let mut over: Vec<(u32, u32)> = Vec::new();
        for run in near {
            let pairs = (0..run.len).map(|k| (run.original + k, run.replica + k));
            over.extend(pairs.filter(|(o, _)| count[(o % 64) as usize] as usize > degree));
        }
        bad.extend(over);
    }
    if bad.is_empty() {
        return runs;
    }
    let order = in_order(found);
    let firsts: Vec<u32> = order.iter().filter_map(|&n| Some(found[n].leaf.as_ref()?.bounds().0)).collect();
    let generation = |replica: u32| {
        let of_page = || found[order[firsts.partition_point(|&f| f <= replica) - 1]].generation;
        generations.get(&replica).copied().unwrap_or_else(of_page)
    };
    let mut ranked: Vec<_> = bad.into_iter().map(|(o, r)| (o, std::cmp::Reverse(generation(r)), r)).collect();
    ranked.sort_unstable();
    let extra =
        ranked.chunk_by(|a, b| a.0 == b.0).flat_map(|same| &same[degree..]).map(|&(.., r)| r).collect();
    report.over_degree += drop_entries(found, extra);
    self::runs(found)
}

/// All runs of the pages, sorted, each within a granule and of one trust.
fn runs(found: &[Found]) -> Vec<Run> {
    let mut runs = Vec::new();
    for leaf in found.iter().flat_map(|f| &f.leaf) {
        for piece in leaf.pieces(0..leaf.len()) {
            let trust = |k: usize| leaf.warmth(piece.slot + k).trust();
            let mut from = 0;
            while from < piece.len {
                let to = (from..piece.len).find(|&k| trust(k) != trust(from)).unwrap_or(piece.len);
                runs.extend(cut_at_granules(Run {
                    original: piece.original + from as u32,
                    replica: piece.replica + from as u32,
                    len: (to - from) as u32,
                    trust: trust(from),
                }));
                from = to;
            }
        }
    }
    runs.sort_unstable_by_key(Run::key);
    runs
}

/// Drops the entries of some replicas, which may be named more than once.
fn drop_entries(found: &mut [Found], mut replicas: Vec<u32>) -> u64 {
    replicas.sort_unstable();
    replicas.dedup();
    let count = replicas.len() as u64;
    let order = in_order(found);
    let mut next = replicas.into_iter().peekable();
    for n in order {
        let page = &mut found[n];
        let Some(leaf) = &mut page.leaf else { continue };
        let last = leaf.bounds().1;
        if next.peek().is_none_or(|&r| r > last) {
            continue;
        }
        leaf.retain(|entry| next.next_if_eq(&entry.replica).is_none());
        page.on_disk = OnDisk::Unknown;
        if leaf.len() == 0 {
            page.leaf = None;
        }
    }
    assert!(next.peek().is_none(), "entries to drop that are in no page");
    count
}
