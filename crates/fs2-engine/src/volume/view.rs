//! The volume as policies see it: what is free, and what room copies have.

use std::cell::OnceCell;

use fs2_block::{BlockNo, BlockRange};
use fs2_table::value::VALUE_MAX;

use super::Volume;
use super::state::Purpose;
use crate::policy::Space;
use crate::worth::CLEARLY;

/// The volume's free space, as policies see it; and how many replicas are worth less than each value, once that was asked.
pub(super) struct View<'a>(pub(super) &'a Volume, OnceCell<[usize; VALUE_MAX as usize + 2]>);

impl<'a> View<'a> {
    pub(super) fn of(volume: &'a Volume) -> View<'a> {
        View(volume, OnceCell::new())
    }
}

impl Space for View<'_> {
    fn vacant(&self, group: u32) -> Option<Vec<BlockRange>> {
        let (v, live) = (self.0, self.0.live.as_ref()?);
        if live.frozen().is_some() {
            return Some(Vec::new());
        }
        if !live.is_loaded(group) {
            return None;
        }
        let blocks = live.layout().group_blocks(group);
        let mut runs = Vec::new();
        let mut free = live.free().range(blocks.start()..blocks.end());
        while let Some(run) = free.next_range() {
            runs.push(BlockRange::new(*run.start(), run.end() + 1));
        }
        let mut taken: Vec<_> = v.table.replica_runs_in(blocks).collect();
        for io in v.in_flight.values() {
            if let Purpose::Copy(job) = &io.purpose {
                taken.push(job.target.intersect(blocks));
            }
        }
        taken.retain(|t| !t.is_empty());
        taken.sort();
        Some(without(&runs, &taken))
    }

    fn is_known(&self, group: u32) -> bool {
        self.0.live.as_ref().is_some_and(|l| l.is_loaded(group))
    }

    fn vacant_at_most(&self, group: u32) -> u64 {
        self.0.live.as_ref().map_or(0, |l| l.free_at_most(group))
    }

    fn first_vacant(&self, within: BlockRange, least: u32, enough: u32) -> Option<BlockRange> {
        let (v, live) = (self.0, self.0.live.as_ref()?);
        let mut runs = live.free().range(within.start()..within.end());
        let free =
            std::iter::from_fn(|| runs.next_range().map(|r| BlockRange::new(*r.start(), *r.end() + 1)));
        let taken = |look: BlockRange| {
            let mut taken: Vec<_> = v.table.replica_runs_in(look).collect();
            for io in v.in_flight.values() {
                if let Purpose::Copy(job) = &io.purpose {
                    taken.push(job.target.intersect(look));
                }
            }
            taken.retain(|t| !t.is_empty());
            taken.sort();
            taken
        };
        first_row(free, taken, least, enough)
    }

    fn vacated(&self, blocks: BlockRange) -> u64 {
        self.0.vacated.of(blocks).wrapping_add(self.0.table.vacated().of(blocks))
    }

    fn has_replica(&self, block: BlockNo) -> bool {
        self.0.table.copies_of(block) >= usize::from(self.0.config.degree)
    }

    fn copies(&self, block: BlockNo) -> usize {
        self.0.table.copies_of(block)
    }

    fn room(&self) -> usize {
        self.0.capacity().saturating_sub(self.0.table.len())
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn room_for(&self, worth: u8) -> usize {
        let less = self.1.get_or_init(|| self.0.table.worth_less());
        self.room() + less[usize::from(worth.saturating_sub(CLEARLY).min(VALUE_MAX))]
    }

    fn lacking(&self, blocks: BlockRange, each: &mut dyn FnMut(BlockRange)) {
        let mut at = blocks.start();
        for copied in self.0.table.copied_in(blocks) {
            if copied.start() > at {
                each(BlockRange::new(at, copied.start()));
            }
            // Places of a second copy may lie within those of a first.
            at = at.max(copied.end());
        }
        if at < blocks.end() {
            each(BlockRange::new(at, blocks.end()));
        }
    }
}

/// The first `least` blocks in a row that are `free` and not `taken`, or up to `enough`. Runs and what is taken
/// of a stretch come in ascending order; no stretch is asked for that is longer than `enough`.
fn first_row(
    free: impl Iterator<Item = BlockRange>,
    taken: impl Fn(BlockRange) -> Vec<BlockRange>,
    least: u32,
    enough: u32,
) -> Option<BlockRange> {
    let least = least.max(1);
    for run in free {
        let mut at = run.start();
        while run.end() - at >= least {
            let look = BlockRange::new(at, run.end().min(at.saturating_add(enough.max(least))));
            let taken = taken(look);
            if taken.is_empty() {
                return Some(look);
            }
            for t in taken {
                if t.start().saturating_sub(at) >= least {
                    return Some(BlockRange::new(at, t.start()));
                }
                at = at.max(t.end());
            }
        }
    }
    None
}

/// `runs` without `taken`; both ascending.
pub(super) fn without(runs: &[BlockRange], taken: &[BlockRange]) -> Vec<BlockRange> {
    let mut out = Vec::new();
    let mut next = 0;
    for run in runs {
        let mut at = run.start();
        while next < taken.len() && taken[next].end() <= at {
            next += 1;
        }
        let mut i = next;
        while i < taken.len() && taken[i].start() < run.end() {
            if taken[i].start() > at {
                out.push(BlockRange::new(at, taken[i].start()));
            }
            at = at.max(taken[i].end());
            i += 1;
        }
        if at < run.end() {
            out.push(BlockRange::new(at, run.end()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn vacant_runs_agree_with_sets(least in 0u32..12, enough in 0u32..16, a in proptest::collection::vec((0u32..200, 1u32..20), 0..8), b in proptest::collection::vec((0u32..200, 1u32..20), 0..8)) {
            let set = |v: &[(u32, u32)]| -> std::collections::BTreeSet<u32> { v.iter().flat_map(|&(s, n)| s..s + n).collect() };
            let runs = |s: &std::collections::BTreeSet<u32>| {
                let mut out: Vec<BlockRange> = Vec::new();
                for &x in s {
                    match out.last_mut() {
                        Some(r) if r.end() == x => *r = BlockRange::new(r.start(), x + 1),
                        _ => out.push(BlockRange::new(x, x + 1)),
                    }
                }
                out
            };
            let (sa, sb) = (set(&a), set(&b));
            let mut taken: Vec<_> = b.iter().map(|&(s, n)| BlockRange::new(s, s + n)).collect();
            taken.sort();
            let want = runs(&sa.difference(&sb).copied().collect());
            prop_assert_eq!(without(&runs(&sa), &taken), want.clone());

            let first = want.iter().find(|r| r.len() >= least.max(1));
            let cut = first.map(|r| BlockRange::at(r.first(), r.len().min(enough.max(least).max(1))));
            let asked = |look: BlockRange| {
                assert!(!look.is_empty() && look.len() <= enough.max(least).max(1));
                sb.range(look.start()..look.end()).map(|&b| BlockRange::new(b, b + 1)).collect()
            };
            prop_assert_eq!(first_row(runs(&sa).into_iter(), asked, least, enough), cut);
        }
    }
}
