//! Clients' requests in slots that are used again: a request costs no allocation.

use fs2_block::RequestId;

/// Values under numbers that are never given twice: the slot below, above it how often it was used.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    unused: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), unused: Vec::new() }
    }

    /// The number the next value will get.
    pub(super) fn next_id(&mut self) -> RequestId {
        let slot = match self.unused.last() {
            Some(&slot) => slot,
            None => {
                self.slots.push((0, None));
                self.unused.push(self.slots.len() as u32 - 1);
                self.slots.len() as u32 - 1
            }
        };
        RequestId(u64::from(self.slots[slot as usize].0) << 32 | u64::from(slot))
    }

    /// Puts a value where [`Slab::next_id`] said.
    pub(super) fn insert(&mut self, value: T) {
        self.next_id();
        if let Some(slot) = self.unused.pop() {
            self.slots[slot as usize].1 = Some(value);
        }
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&T> {
        let (used, value) = self.slots.get(id.0 as u32 as usize)?;
        value.as_ref().filter(|_| u64::from(*used) == id.0 >> 32)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        let (used, value) = self.slots.get_mut(id.0 as u32 as usize)?;
        value.as_mut().filter(|_| u64::from(*used) == id.0 >> 32)
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<T> {
        self.get(id)?;
        let slot = id.0 as u32;
        let (used, value) = &mut self.slots[slot as usize];
        *used = used.wrapping_add(1);
        self.unused.push(slot);
        value.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_once_and_slots_again() {
        let mut slab = Slab::new();
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..5 {
            let ids: Vec<_> = (0..3)
                .map(|n| {
                    let id = slab.next_id();
                    slab.insert(round * 10 + n);
                    assert!(seen.insert(id), "{id:?} twice");
                    id
                })
                .collect();
            assert_eq!(slab.get_mut(ids[1]).copied(), Some(round * 10 + 1));
            for (n, &id) in ids.iter().enumerate().rev() {
                assert_eq!(slab.remove(id), Some(round * 10 + n as i32));
                assert_eq!((slab.remove(id), slab.get(id)), (None, None));
            }
        }
        assert_eq!(slab.slots.len(), 3);
    }
}
