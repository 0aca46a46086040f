//! Which replicas are worth their place.
//!
//! Each entry has a value, 0 to 127, which rises with each use and is halved every few ageing steps, and an
//! age, the steps since its last use. What a use is worth and when a step is due is the caller's. Runs of eight neighbours are judged together, by their
//! warmest.

use super::ReplicaTable;
use crate::leaf::Leaf;
use crate::page::WARMTH_RUN;
use fs2_block::{BlockNo, BlockRange};
use std::cmp::Reverse;
use std::ops::Range;

/// Value, age, page in order, and the slots there.
type Candidate = (u8, Reverse<u8>, usize, Range<usize>);

/// Every stamp is looked at once in so many ageing steps; must be well below 128.
const SWEEP_STEPS: usize = 32;
/// Entries looked at for each one asked for; and pages at most in one call. Guesses.
const LOOK: usize = 16;
const LOOK_PAGES: usize = 1024;

impl ReplicaTable {
    /// A read used this replica.
    pub fn touch(&mut self, replica: BlockNo) {
        self.touch_run(BlockRange::one(replica), 1);
    }

    /// A read used these replicas, each of which gains so much in value. Pages do not become dirty by it: use is written along with
    /// whatever else changes.
    pub fn touch_run(&mut self, replicas: BlockRange, gain: u8) {
        let now = self.now;
        for place in self.places_of(replicas) {
            let leaf = self.leaf_mut(place);
            for slot in leaf.lower_bound(replicas.start())..leaf.lower_bound(replicas.end()) {
                leaf.touch(slot, now, gain);
            }
        }
    }

    /// One ageing step: ages rise by one, values are halved at every fourth. Looks at 1/32 of the
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
    /// those a hand going round the table meets next, the ones with the lowest value, the oldest first where
    /// equal. Every block of a range holds a replica. Nothing is removed.
    pub fn victims(&mut self, n: usize, below: u8) -> Vec<BlockRange> {
        let (mut candidates, hand) = self.candidates(n, below);
        self.victim_hand = self.mins.get(hand).copied().unwrap_or(0);
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

    /// Whether [`ReplicaTable::victims`] would find any.
    pub fn has_victim(&self, n: usize, below: u8) -> bool {
        !self.candidates(n, below).0.is_empty()
    }

    /// Runs of eight among those that the hand meets next, with value, age and place; and where it is then.
    fn candidates(&self, n: usize, below: u8) -> (Vec<Candidate>, usize) {
        let look = n.saturating_mul(LOOK);
        let mut candidates = Vec::new();
        let mut seen = 0;
        let mut place = if self.order.is_empty() { 0 } else { self.place_for(self.victim_hand) };
        for _ in 0..self.order.len().min(LOOK_PAGES) {
            if seen >= look {
                break;
            }
            let leaf = self.leaf(place);
            for from in (0..leaf.len()).step_by(WARMTH_RUN) {
                let slots = run_of(leaf, from);
                let (age, value) = leaf.warmest(slots.clone(), self.now);
                if value < below {
                    candidates.push((value, Reverse(age), place, slots));
                }
            }
            seen += leaf.len();
            place = (place + 1) % self.order.len();
        }
        (candidates, place)
    }
}

/// The slots of the run of eight that `slot` is in.
fn run_of(leaf: &Leaf, slot: usize) -> Range<usize> {
    let from = slot / WARMTH_RUN * WARMTH_RUN;
    from..(from + WARMTH_RUN).min(leaf.len())
}
