//! Buffers used again: fresh memory costs a page fault for each 4 KiB, three times the copying.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use fs2_store::AlignedBuf;

/// Bytes kept for use again, of all connections: what one may have in flight.
const SPARE_BYTES_MAX: usize = 64 << 20;

/// Buffers of a server, by capacity. The last returned is the first given: its bytes are still in the
/// processor's cache.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Spare>);

#[derive(Debug, Default)]
struct Spare {
    by_capacity: BTreeMap<usize, Vec<AlignedBuf>>,
    bytes: usize,
}

impl Pool {
    /// A buffer of `len` bytes, zeros or what a client of this server read or wrote before.
    pub(super) fn take(&self, len: usize) -> AlignedBuf {
        if len == 0 {
            return AlignedBuf::zeroed(0);
        }
        let capacity = capacity_for(len);
        let found = {
            let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = spare.by_capacity.get_mut(&capacity).and_then(Vec::pop);
            if found.is_some() {
                spare.bytes -= capacity;
            }
            found
        };
        let mut buffer = found.unwrap_or_else(|| AlignedBuf::zeroed(capacity));
        buffer.set_len(len);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn put(&self, buffer: AlignedBuf) {
        let capacity = buffer.capacity();
        if capacity == 0 || capacity != capacity_for(capacity) {
            return;
        }
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The sizes asked for have changed: begin anew.
        let full = spare.bytes + capacity > SPARE_BYTES_MAX;
        let old = if full { std::mem::take(&mut *spare) } else { Spare::default() };
        spare.bytes += capacity;
        spare.by_capacity.entry(capacity).or_default().push(buffer);
        drop(spare);
        drop(old);
    }
}

/// A few sizes for all lengths, at most a quarter (and 4 KiB) larger than what is asked for.
fn capacity_for(len: usize) -> usize {
    len.next_multiple_of((len.next_power_of_two() / 8).max(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_little_waste() {
        let mut sizes = std::collections::BTreeSet::new();
        for len in (0..32 << 20).step_by(509) {
            let capacity = capacity_for(len);
            assert!(capacity >= len && capacity <= len + len / 4 + 4096, "{len}");
            assert_eq!(capacity_for(capacity), capacity);
            sizes.insert(capacity);
        }
        assert!(sizes.len() < 64, "{}", sizes.len());
    }

    #[test]
    fn buffers_come_back_and_are_bounded() {
        let pool = Pool::default();
        let first = pool.take(5000);
        let address = first.as_ptr();
        pool.put(first);
        let again = pool.take(8000);
        assert_eq!((again.len(), again.as_ptr()), (8000, address));
        pool.put(AlignedBuf::zeroed(0));
        let many: Vec<_> = (0..5).map(|_| pool.take(20 << 20)).collect();
        many.into_iter().for_each(|b| pool.put(b));
        let spare = pool.0.lock().unwrap();
        let kept: usize = spare.by_capacity.iter().map(|(size, of)| size * of.len()).sum();
        assert_eq!(kept, spare.bytes);
        assert!(kept <= SPARE_BYTES_MAX);
    }
}
