//! Entries go: one, those of a range of originals, those of a range of replicas.

use super::ReplicaTable;
use crate::originals::Run;
use crate::{Replica, Trust};
use fs2_block::{BlockNo, BlockRange};

/// The whole index is gone through once where that many times the entries to go exceed its runs:
/// finding one run costs about so many steps of going through. Guess.
const PASS_FACTOR: usize = 32;

impl ReplicaTable {
    /// Removes the entry whose copy lies in `replica`.
    pub fn remove(&mut self, replica: BlockNo) -> Option<Replica> {
        let found = self.by_replica(replica)?;
        self.forget(Run { original: found.original.0, replica: replica.0, len: 1, trust: found.trust });
        self.remove_from_pages(BlockRange::one(replica));
        Some(found)
    }

    /// Removes every entry whose original is in `originals`; they are returned ascending by
    /// original, then replica.
    pub fn remove_by_original(&mut self, originals: BlockRange) -> Vec<Replica> {
        let removed = self.originals_in(originals);
        if removed.is_empty() {
            return removed;
        }
        let runs: Vec<Run> = self.originals.overlapping(originals).map(|run| run.clip(originals)).collect();
        for run in runs {
            self.forget(run);
            self.remove_from_pages(run.replicas());
        }
        removed
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
        self.remove_from_pages(replicas);
        count
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        self.remove_by_replica(BlockRange::new(0, u32::MAX));
    }

    /// Takes the entries of a range of replicas out of the pages; index and filter know already.
    fn remove_from_pages(&mut self, replicas: BlockRange) {
        self.vacated.add(replicas);
        let places = self.places_of(replicas);
        let first = places.start;
        let mut empty = places.end..places.end;
        for place in places {
            let page = self.order[place];
            let slot = &mut self.pages[page as usize];
            let leaf = slot.leaf.as_deref_mut().expect("T3: a page in order has entries");
            let (from, to) = (leaf.lower_bound(replicas.start()), leaf.lower_bound(replicas.end()));
            if from == to {
                continue;
            }
            self.len -= to - from;
            if to - from == leaf.len() {
                self.unverified -= leaf.unverified();
                slot.leaf = None;
                empty = empty.start.min(place)..place + 1;
            } else {
                self.unverified -= leaf.unverified();
                leaf.remove(from, to);
                self.unverified += leaf.unverified();
                self.mins[place] = leaf.bounds().0;
            }
            self.changed(page);
        }
        // Only the pages at the ends of the range can keep entries, so those that lost all are
        // neighbours.
        if !empty.is_empty() {
            self.mins.drain(empty.clone());
            self.free.extend(self.order.drain(empty));
        }
        self.packed = false;
        self.join_small(first + 1);
        self.join_small(first);
    }
}
