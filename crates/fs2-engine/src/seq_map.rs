//! A map from ascending numbers, for what comes and goes in nearly that order: requests and I/Os in flight.
//!
//! Invariants:
//!
//! - M1: keys are in ascending order, and each names a slot of its own that is taken.
//! - M2: a slot is taken or on the list of unused ones, never both; what was once allocated is used again, so
//!   that a request costs no allocation.

use std::collections::VecDeque;
use std::ops::Index;

/// See the module. Adding a key above all others takes constant time, removing one the time to move what is
/// between it and the nearer end.
#[derive(Clone, Debug)]
pub(crate) struct SeqMap<T> {
    order: VecDeque<(u64, u32)>,
    slots: Vec<Option<T>>,
    unused: Vec<u32>,
}

impl<T> SeqMap<T> {
    pub(crate) fn new() -> SeqMap<T> {
        SeqMap { order: VecDeque::new(), slots: Vec::new(), unused: Vec::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    #[inline]
    fn find(&self, key: u64) -> Result<usize, usize> {
        // Numbers are given one after another: where none is missing between the first and this one its place is known.
        if let Some(&(first, _)) = self.order.front()
            && let Some(at) = key.checked_sub(first).and_then(|at| usize::try_from(at).ok())
            && let Some(&(there, _)) = self.order.get(at)
            && there == key
        {
            return Ok(at);
        }
        self.look_for(key)
    }

    #[inline(never)]
    fn look_for(&self, key: u64) -> Result<usize, usize> {
        let Some(&(last, _)) = self.order.back() else { return Err(0) };
        let len = self.order.len();
        if last < key {
            return Err(len);
        }
        // The same between this one and the last.
        if let Some(at) = usize::try_from(last - key).ok().and_then(|below| (len - 1).checked_sub(below))
            && self.order[at].0 == key
        {
            return Ok(at);
        }
        self.order.binary_search_by_key(&key, |&(k, _)| k)
    }

    #[inline]
    fn slot(&self, key: u64) -> Option<usize> {
        // Whoever has one request at a time asks for the first.
        match self.order.front() {
            Some(&(first, slot)) if first == key => Some(slot as usize),
            _ => self.find(key).ok().map(|at| self.order[at].1 as usize),
        }
    }

    /// Adds a value, or replaces the one of that key.
    pub(crate) fn insert(&mut self, key: u64, value: T) {
        if self.order.back().is_none_or(|&(last, _)| last < key) {
            let slot = self.take_slot(value);
            return self.order.push_back((key, slot));
        }
        match self.find(key) {
            Ok(at) => self.slots[self.order[at].1 as usize] = Some(value),
            Err(at) => {
                let slot = self.take_slot(value);
                self.order.insert(at, (key, slot));
            }
        }
    }

    #[inline]
    fn take_slot(&mut self, value: T) -> u32 {
        match self.unused.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(value);
                slot
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u32 - 1
            }
        }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let at = self.find(key).ok()?;
        let (_, slot) = if at == 0 { self.order.pop_front()? } else { self.order.remove(at)? };
        self.unused.push(slot);
        self.slots[slot as usize].take()
    }

    #[inline]
    pub(crate) fn contains_key(&self, key: u64) -> bool {
        self.find(key).is_ok()
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let slot = self.slot(key)?;
        self.slots[slot].as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let slot = self.slot(key)?;
        self.slots[slot].as_mut()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The key with `rank` keys below it.
    pub(crate) fn key_at(&self, rank: usize) -> Option<u64> {
        self.order.get(rank).map(|&(key, _)| key)
    }

    /// In ascending order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        self.order.iter().map(|&(key, _)| key)
    }

    /// In ascending order of keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.order.iter().filter_map(|&(key, slot)| Some((key, self.slots[slot as usize].as_ref()?)))
    }

    /// In ascending order of keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// In no order.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// How many keys are less.
    pub(crate) fn rank(&self, key: u64) -> usize {
        self.find(key).unwrap_or_else(|at| at)
    }
}

impl<T> Index<u64> for SeqMap<T> {
    type Output = T;

    #[inline]
    fn index(&self, key: u64) -> &T {
        self.get(key).unwrap_or_else(|| missing(key))
    }
}

#[cold]
#[inline(never)]
fn missing(key: u64) -> ! {
    panic!("{key} is in the map")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_tree(steps in prop::collection::vec((0u8..8, 0u64..40), 0..200)) {
            let (mut map, mut tree) = (SeqMap::new(), BTreeMap::new());
            let mut next = 40;
            for (op, key) in steps {
                match op {
                    0..=2 => {
                        map.insert(next, next);
                        tree.insert(next, next);
                        next += 1;
                    }
                    3 => {
                        map.insert(key, next);
                        tree.insert(key, next);
                    }
                    4 => map.values_mut().chain(tree.values_mut()).for_each(|v| *v += 1),
                    _ => {
                        let key = if op == 5 { next.saturating_sub(1 + key / 8) } else { key };
                        prop_assert_eq!(map.remove(key), tree.remove(&key));
                    }
                }
                prop_assert!(map.iter().map(|(k, v)| (k, *v)).eq(tree.iter().map(|(k, v)| (*k, *v))));
                prop_assert!(map.values().eq(tree.values()));
                prop_assert_eq!((map.is_empty(), map.len()), (tree.is_empty(), tree.len()));
                prop_assert!(map.keys().eq(tree.keys().copied()));
                prop_assert_eq!(map.key_at(3), tree.keys().nth(3).copied());
                prop_assert_eq!(map.rank(key), tree.range(..key).count());
                prop_assert_eq!(map.contains_key(key), tree.contains_key(&key));
                prop_assert_eq!(map.get(key), tree.get(&key));
                prop_assert_eq!(map.get_mut(key).copied(), tree.get(&key).copied());
                prop_assert!(map.slots.len() <= steps_max(&tree, &map));
            }
        }
    }

    /// M2: no more slots than were taken at a time.
    fn steps_max(tree: &BTreeMap<u64, u64>, map: &SeqMap<u64>) -> usize {
        tree.len() + map.unused.len()
    }
}
