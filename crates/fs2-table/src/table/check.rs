//! The invariants, asserted.

use super::ReplicaTable;
use crate::{Replica, Trust};
use fs2_block::BlockRange;
use std::collections::{BTreeMap, BTreeSet};

impl ReplicaTable {
    /// Asserts every invariant, in time proportional to the table; for tests. That pages on disk
    /// are what the table thinks is not checked.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn check(&self) {
        let all: Vec<Replica> = self.iter().collect();
        let mut degree: BTreeMap<u32, usize> = BTreeMap::new();
        for pair in all.windows(2) {
            assert!(pair[0].replica < pair[1].replica, "T1, T3: {pair:?}");
        }
        let replicas: BTreeSet<u32> = all.iter().map(|r| r.replica.0).collect();
        for r in &all {
            *degree.entry(r.original.0).or_default() += 1;
            assert!(!replicas.contains(&r.original.0), "T2: {r:?}");
            assert!(self.filter.may_have(BlockRange::one(r.original)), "T4: {r:?}");
            let run = self.originals.run_of(r.original.0, r.replica.0);
            assert_eq!(run.map(|run| run.trust), Some(r.trust), "T4: {r:?}");
        }
        for (original, n) in degree {
            assert!(n <= usize::from(self.degree), "T1: {original} has {n} replicas");
        }
        self.originals.check();
        let indexed: usize = self.originals.iter().map(|run| run.len as usize).sum();
        assert_eq!((all.len(), indexed), (self.len, self.len), "T4");
        assert!(self.filter.total().is_none_or(|total| total == self.len as u64), "T4, F1");
        assert_eq!(all.iter().filter(|r| r.trust == Trust::Unverified).count(), self.unverified);
        assert_eq!(self.order.len(), self.mins.len(), "T3");
        for (place, &min) in self.mins.iter().enumerate() {
            self.leaf(place).check();
            assert_eq!(self.leaf(place).bounds().0, min, "T3");
        }
        let mut numbers: Vec<u32> = self.order.iter().chain(&self.free).copied().collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..self.pages.len() as u32), "every page is in order or free");
        assert!(self.pages.len() <= self.pages_max as usize);
        for (page, number) in self.pages.iter().zip(0..) {
            let empty = page.on_disk == super::OnDisk::Empty;
            assert!(self.dirty.get(number) || empty == page.leaf.is_none(), "T5: page {number}");
        }
    }
}
