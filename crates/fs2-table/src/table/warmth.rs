//! Which replicas are worth their place.
//!
//! Each entry has a [value](crate::value), which rises with each use and falls with each ageing step, and an age, the steps since its last
//! use. What a use is worth and when a step is due is the caller's. What lies in a row is judged together, by its warmest; on disk, and so after
//! a mount, each eight neighbours are as warm as the warmest of them.

use super::ReplicaTable;
use crate::leaf::Leaf;
use crate::page::{PAGE_ENTRIES, WARMTH_RUN};
use crate::value::VALUE_MAX;
use fs2_block::{BlockNo, BlockRange};
use std::cmp::Reverse;
use std::ops::Range;

/// Value, age, page in order, and the slots there.
type Candidate = (u8, Reverse<u8>, usize, Range<usize>);

/// Every stamp is looked at once in so many ageing steps; must be well below 128.
const SWEEP_STEPS: usize = 32;
/// Entries looked at for each one asked for, and at least so many pages, far apart: neighbours came together and are worth the same. Guesses.
const LOOK: usize = 16;
const LOOK_PAGES: usize = 16;
/// Entries that are judged together at most.
const UNIT_MAX: usize = 64;
/// Pages that stand for all of them.
const SAMPLE_PAGES: usize = 64;

impl ReplicaTable {
    /// A read used this replica.
    pub fn touch(&mut self, replica: BlockNo) {
        self.touch_run(BlockRange::one(replica), 0);
    }

    /// A read used these replicas, to the value of each of which so much is [added](crate::value::sum). Pages do not become dirty by it:
    /// use is written along with whatever else changes.
    pub fn touch_run(&mut self, replicas: BlockRange, gain: u8) {
        let now = self.now;
        for place in self.places_of(replicas) {
            let leaf = self.leaf_mut(place);
            for slot in leaf.lower_bound(replicas.start())..leaf.lower_bound(replicas.end()) {
                leaf.touch(slot, now, gain);
            }
        }
    }

    /// One ageing step: ages rise by one, values fall by a quarter of an octave. Looks at 1/32 of the
    /// entries.
    pub fn age(&mut self) {
        self.now += 1;
        let pages = self.pages.len();
        let from = self.sweep_hand as usize;
        let to = (from + pages.div_ceil(SWEEP_STEPS)).min(pages);
        for page in self.pages.get_mut(from..to).unwrap_or_default() {
            page.leaf.iter_mut().for_each(|l| l.sweep(self.now));
        }
        self.sweep_hand = if to >= pages { 0 } else { to as u32 };
    }

    /// Ageing steps since the last use and the value of the run of eight the replica is in.
    pub fn age_and_value(&self, replica: BlockNo) -> Option<(u8, u8)> {
        let (place, slot) = self.find(replica.0)?;
        let leaf = self.leaf(place);
        Some(leaf.warmest(run_of(leaf, slot), self.now))
    }

    /// Runs of replicas with together about `n` entries and a value of less than `below`, the least valuable first: of
    /// those that hands going round the table meet next, the ones with the lowest value, the oldest first where
    /// equal. Every block of a range holds a replica. Nothing is removed.
    pub fn victims(&mut self, n: usize, below: u8) -> Vec<BlockRange> {
        let mut candidates = self.candidates(n, below);
        candidates.sort_by_key(|&(value, age, ..)| (value, age));
        let mut found = 0;
        let mut victims = Vec::new();
        for (_, _, place, slots) in candidates {
            if found >= n {
                break;
            }
            found += slots.len();
            let pieces = self.leaf(place).pieces(slots);
            let blocks = pieces.map(|p| BlockRange::at(BlockNo(p.replica), p.len as u32));
            victims.extend(blocks);
        }
        victims
    }

    /// About how many replicas are worth less than each value, from a sample of them.
    pub fn worth_less(&self) -> [usize; VALUE_MAX as usize + 2] {
        let (mut less, mut seen) = ([0; VALUE_MAX as usize + 2], 0);
        let pages = self.order.len().min(SAMPLE_PAGES);
        for page in 0..pages {
            let leaf = self.leaf(page * self.order.len() / pages);
            seen += leaf.len();
            for slots in units(leaf) {
                less[usize::from(leaf.warmest(slots.clone(), self.now).1) + 1] += slots.len();
            }
        }
        let mut sum = 0;
        for n in &mut less {
            sum += *n;
            *n = (sum as u64 * self.len as u64 / seen.max(1) as u64) as usize;
        }
        less
    }

    /// Units among those that the hands meet next, with value, age and place.
    fn candidates(&mut self, n: usize, below: u8) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        if self.order.is_empty() {
            return candidates;
        }
        let pages = self.order.len();
        let hands = n.saturating_mul(LOOK).div_ceil(PAGE_ENTRIES / 2).max(LOOK_PAGES).min(pages);
        let first = self.place_for(self.victim_hand);
        for hand in 0..hands {
            let place = (first + hand * pages / hands) % pages;
            let leaf = self.leaf(place);
            for slots in units(leaf) {
                let (age, value) = leaf.warmest(slots.clone(), self.now);
                if value < below {
                    candidates.push((value, Reverse(age), place, slots));
                }
            }
        }
        self.victim_hand = self.mins[(first + 1) % pages];
        candidates
    }
}

/// What stays or goes together: slots of copies that lie in a row as their originals do, for half of what is read at once is no use.
fn units(leaf: &Leaf) -> impl Iterator<Item = Range<usize>> {
    leaf.pieces(0..leaf.len()).flat_map(|p| {
        (p.slot..p.slot + p.len)
            .step_by(UNIT_MAX)
            .map(move |from| from..(from + UNIT_MAX).min(p.slot + p.len))
    })
}

/// The slots of the run of eight that `slot` is in.
fn run_of(leaf: &Leaf, slot: usize) -> Range<usize> {
    let from = slot / WARMTH_RUN * WARMTH_RUN;
    from..(from + WARMTH_RUN).min(leaf.len())
}
