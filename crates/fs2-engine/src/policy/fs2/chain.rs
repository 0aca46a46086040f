//! What the reads behind one save by where it is served, where it is known which they are.

use fs2_block::BlockNo;

use super::{Ended, Fs2};
use crate::part::Part;
use crate::policy::Behind;

/// Of the read that comes next, where it may be served from, and what it and those behind it then save.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    next: Vec<(BlockNo, f64)>,
    /// The same of the one before, while that is reckoned.
    before: Vec<(BlockNo, f64)>,
}

impl Chain {
    /// What is saved behind a read that ended there, in ms: of each read that goes on where the one before it ended, a positioning.
    pub(super) fn saves_ms(&self, ended: Ended, positioning: f64) -> f64 {
        let saved = |&(place, saved): &(BlockNo, f64)| {
            saved + if ended.goes_on_at(place) { positioning } else { 0.0 }
        };
        self.next.iter().map(saved).fold(0.0, f64::max)
    }
}

impl Fs2 {
    /// Reckons from the last of the reads behind to the first. Behind the last nothing is known but how often reads go on from there.
    /// Whether there is any.
    pub(super) fn known_ahead(&mut self, behind: &Behind, going_on: f64, positioning: f64) -> bool {
        let mut chain = std::mem::take(&mut self.chain);
        chain.next.clear();
        if !self.without.has(Part::Lookahead) {
            for (blocks, copies) in behind.backwards() {
                let first = blocks.first();
                let chance =
                    |place| if place == first { self.original_goes_on(place) } else { self.goes_on(place) };
                chain.before.clear();
                for place in std::iter::once(first).chain(copies.iter().copied()) {
                    let saves = match chain.next.is_empty() {
                        true => chance(place) * going_on,
                        false => chain.saves_ms(Ended::after(place, blocks.len()), positioning),
                    };
                    chain.before.push((place, saves));
                }
                std::mem::swap(&mut chain.next, &mut chain.before);
            }
        }
        self.chain = chain;
        !self.chain.next.is_empty()
    }
}
