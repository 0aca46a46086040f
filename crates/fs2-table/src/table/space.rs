//! Room in pages: splitting, sharing with neighbours, squeezing together.

use super::{Page, ReplicaTable};
use crate::leaf::{Item, Leaf};
use crate::page::PAGE_ENTRIES;
use std::ops::Range;

/// A neighbour takes part in an overflow only below this. Guess.
const SHARE_BELOW: usize = PAGE_ENTRIES * 13 / 16;
/// Pages squeezed together at most when none is free: one more than `SLACK` in the geometry.
const SQUEEZE: usize = 8;
/// A page below this joins a neighbour if together they stay below [`SHARE_BELOW`].
const JOIN_BELOW: usize = PAGE_ENTRIES / 4;

impl ReplicaTable {
    /// A place and slot for a new replica in a page that is not full, making one so where needed.
    pub(super) fn make_room(&mut self, replica: u32) -> Option<(usize, usize)> {
        loop {
            if self.order.is_empty() {
                let page = self.take_page()?;
                self.place_page(0, page, replica);
                return Some((0, 0));
            }
            let place = self.place_for(replica);
            let leaf = self.leaf(place);
            let slot = leaf.lower_bound(replica);
            if !leaf.is_full() {
                return Some((place, slot));
            }
            let room_at = |p: usize| p < self.order.len() && self.leaf(p).len() < SHARE_BELOW;
            if slot == PAGE_ENTRIES && self.page_is_free() {
                // Replicas are mostly placed in ascending order: leave the full page as it is.
                let page = self.take_page()?;
                self.place_page(place + 1, page, replica);
                return Some((place + 1, 0));
            } else if place > 0 && room_at(place - 1) {
                self.redistribute(place - 1..place + 1, 2);
            } else if room_at(place + 1) {
                self.redistribute(place..place + 2, 2);
            } else if let Some(page) = self.take_page() {
                self.split(place, page);
            } else if self.packed || !self.squeeze() {
                self.packed = true;
                return None;
            }
        }
    }

    /// Spreads the entries of some places evenly over the first `n` of their pages and frees the
    /// others.
    pub(super) fn redistribute(&mut self, places: Range<usize>, n: usize) {
        let items: Vec<Item> = places.clone().flat_map(|p| self.leaf(p).items()).collect();
        for p in places.clone() {
            let page = self.order[p];
            self.pages[page as usize].leaf = None;
            self.changed(page);
        }
        let mut from = 0;
        for k in 0..n {
            let to = items.len() * (k + 1) / n;
            let leaf: Leaf = items[from..to].iter().copied().collect();
            self.mins[places.start + k] = leaf.bounds().0;
            self.pages[self.order[places.start + k] as usize].leaf = Some(Box::new(leaf));
            from = to;
        }
        self.mins.drain(places.start + n..places.end);
        self.free.extend(self.order.drain(places.start + n..places.end));
    }

    /// Joins a page that has become small with a neighbour.
    pub(super) fn join_small(&mut self, place: usize) {
        if place >= self.order.len() || self.leaf(place).len() >= JOIN_BELOW {
            return;
        }
        for left in [place.wrapping_sub(1), place] {
            if left < self.order.len()
                && left + 1 < self.order.len()
                && self.leaf(left).len() + self.leaf(left + 1).len() <= SHARE_BELOW
            {
                self.redistribute(left..left + 2, 1);
                return;
            }
        }
    }

    fn split(&mut self, place: usize, page: u32) {
        let items: Vec<Item> = self.leaf(place).items().collect();
        let (left, right) = items.split_at(items.len() / 2);
        let min = right[0].0.replica;
        let old = self.order[place];
        self.pages[old as usize].leaf = Some(Box::new(left.iter().copied().collect()));
        self.changed(old);
        self.place_page(place + 1, page, min);
        self.pages[page as usize].leaf = Some(Box::new(right.iter().copied().collect()));
    }

    /// Frees a page by squeezing neighbours together; false where all are too full for that.
    fn squeeze(&mut self) -> bool {
        let n = SQUEEZE.min(self.order.len());
        let room = (n - 1) * PAGE_ENTRIES;
        let mut sum: usize = (0..n).map(|p| self.leaf(p).len()).sum();
        for from in 0..=self.order.len() - n {
            if sum <= room {
                self.redistribute(from..from + n, n - 1);
                return true;
            }
            if from + n < self.order.len() {
                sum = sum + self.leaf(from + n).len() - self.leaf(from).len();
            }
        }
        false
    }

    fn page_is_free(&self) -> bool {
        !self.free.is_empty() || self.pages.len() < self.pages_max as usize
    }

    fn take_page(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let fresh = self.pages.len() as u32;
            (fresh < self.pages_max).then(|| {
                self.pages.push(Page::default());
                fresh
            })
        })
    }

    /// Puts a page into the order; the caller fills it.
    fn place_page(&mut self, place: usize, page: u32, min: u32) {
        self.order.insert(place, page);
        self.mins.insert(place, min);
        self.changed(page);
        self.pages[page as usize].leaf = Some(Box::default());
    }
}
