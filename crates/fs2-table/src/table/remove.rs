//! Entries go: one, those of a range of originals, those of a range of replicas.

use super::ReplicaTable;
use crate::originals::Run;
use crate::{Replica, Trust};
use fs2_block::{BlockNo, BlockRange};
use std::ops::Range;

/// The whole index is gone through once where that many times the entries to go exceed its runs:
/// finding one run costs about so many steps of going through. Guess.
const PASS_FACTOR: usize = 32;
/// So many runs of a range leave the index together, fewer one by one. Guess.
const MANY: usize = 8;

impl ReplicaTable {
    /// Removes the entry whose copy lies in `replica`.
    pub fn remove(&mut self, replica: BlockNo) -> Option<Replica> {
        let found = self.by_replica(replica)?;
        self.forget(Run { original: found.original.0, replica: replica.0, len: 1, trust: found.trust });
        self.remove_from_pages(&[BlockRange::one(replica)]);
        Some(found)
    }

    /// Removes every entry whose original is in `originals` and returns where their replicas were, ascending. Ask
    /// [`ReplicaTable::originals_in`] before where the entries are needed.
    pub fn remove_by_original(&mut self, originals: BlockRange) -> Vec<BlockRange> {
        let mut runs: Vec<Run> = self.runs_in(originals).collect();
        if runs.len() < MANY {
            runs.iter().for_each(|&run| self.forget(run));
        } else {
            self.originals.remove_originals(originals);
            runs.iter().for_each(|run| self.filter.sub(run.original, run.len));
        }
        runs.sort_unstable_by_key(|run| run.replica);
        let replicas: Vec<BlockRange> = runs.iter().map(|run| run.replicas()).collect();
        self.remove_from_pages(&replicas);
        replicas
    }

    /// Removes every entry whose replica is in `replicas` and returns how many there were. Whole
    /// pages are dropped at once: ask [`ReplicaTable::replicas_in`] before where the entries are
    /// needed.
    pub fn remove_by_replica(&mut self, replicas: BlockRange) -> usize {
        let count = self.count_replicas_in(replicas);
        if count == 0 {
            return 0;
        }
        let pass = count.saturating_mul(PASS_FACTOR) >= self.originals.runs();
        let mut runs = Vec::new();
        for place in self.places_of(replicas) {
            let leaf = self.pages[self.order[place] as usize].leaf.as_deref().expect("T3");
            let slots = leaf.lower_bound(replicas.start())..leaf.lower_bound(replicas.end());
            for piece in leaf.pieces(slots) {
                let (original, replica, len) = (piece.original, piece.replica, piece.len as u32);
                if pass {
                    self.filter.sub(original, len);
                } else {
                    runs.push(Run { original, replica, len, trust: Trust::Verified });
                }
            }
        }
        if pass {
            self.originals.remove_replicas(replicas);
        }
        for run in runs {
            self.forget(run);
        }
        self.remove_from_pages(&[replicas]);
        count
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        self.remove_by_replica(BlockRange::new(0, u32::MAX));
    }

    /// Takes the entries of ranges of replicas, ascending, out of the pages; index and filter know already.
    fn remove_from_pages(&mut self, replicas: &[BlockRange]) {
        if replicas.is_empty() {
            return;
        }
        replicas.iter().for_each(|&range| self.vacated.add(range));
        // Places that keep some of their entries, numbered as they are when the empty ones are gone.
        let (mut smaller, mut empty) = (Vec::new(), Vec::new());
        let mut cuts: Vec<Range<usize>> = Vec::new();
        let (mut place, mut next) = (0, 0);
        while next < replicas.len() && place < self.order.len() {
            let start = replicas[next].start();
            place += self.mins[place + 1..].partition_point(|&min| min <= start);
            let end = self.mins.get(place + 1).copied().unwrap_or(u32::MAX);
            let page = self.order[place];
            let slot = &mut self.pages[page as usize];
            let leaf = slot.leaf.as_deref_mut().expect("T3: a page in order has entries");
            cuts.clear();
            while let Some(range) = replicas.get(next).filter(|range| range.start() < end) {
                let cut = leaf.lower_bound(range.start())..leaf.lower_bound(range.end());
                match cuts.last_mut() {
                    Some(last) if last.end == cut.start => last.end = cut.end,
                    _ => cuts.push(cut),
                }
                if range.end() > end {
                    // Its rest is the next page's.
                    break;
                }
                next += 1;
            }
            cuts.retain(|cut| !cut.is_empty());
            let gone: usize = cuts.iter().map(|cut| cut.len()).sum();
            if gone > 0 {
                self.len -= gone;
                self.unverified -= leaf.unverified();
                if gone == leaf.len() {
                    slot.leaf = None;
                    empty.push(place);
                } else {
                    leaf.remove_all(&cuts);
                    self.unverified += leaf.unverified();
                    self.mins[place] = leaf.bounds().0;
                    smaller.push(place - empty.len());
                }
                self.changed(page);
            }
            place += 1;
        }
        self.drop_places(&empty);
        self.packed = false;
        // From the last, for a page that joins another moves those behind it.
        smaller.into_iter().rev().for_each(|place| self.join_small(place));
    }

    /// These places, ascending, have no entries any more.
    fn drop_places(&mut self, empty: &[usize]) {
        let (Some(&first), Some(&last)) = (empty.first(), empty.last()) else { return };
        let mut gone = empty.iter().map(|&place| self.order[place]).collect();
        self.free.append(&mut gone);
        let mut kept = first;
        for place in first..=last {
            if self.pages[self.order[place] as usize].leaf.is_some() {
                (self.order[kept], self.mins[kept]) = (self.order[place], self.mins[place]);
                kept += 1;
            }
        }
        self.order.drain(kept..=last);
        self.mins.drain(kept..=last);
    }
}
