//! Buffers used again: fresh memory costs a page fault for each 4 KiB, three times the copying.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use fs2_store::AlignedBuf;

/// Bytes kept for use again, of all connections: what one may have in flight.
const SPARE_BYTES_MAX: usize = 64 << 20;

/// Bytes that one connection keeps at hand. A guess: a batch of small requests.
const STASH_BYTES: usize = 64 << 10;

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
    /// A buffer of `len` bytes, zeros or what a client of this server read or wrote before. `stash` is the calling
    /// thread's own: small ones come into it several at a time, so that a request rarely takes the pool's lock.
    pub(super) fn take(&self, len: usize, stash: &mut Vec<AlignedBuf>) -> AlignedBuf {
        if len == 0 {
            return AlignedBuf::zeroed(0);
        }
        let capacity = capacity_for(len);
        if stash.last().is_none_or(|b| b.capacity() != capacity) {
            self.put(stash);
            self.fetch(capacity, stash);
        }
        let mut buffer = stash.pop().unwrap_or_else(|| AlignedBuf::zeroed(capacity));
        buffer.set_len(len);
        buffer
    }

    fn fetch(&self, capacity: usize, stash: &mut Vec<AlignedBuf>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = spare.by_capacity.get_mut(&capacity) {
            let n = of.len().min((STASH_BYTES / capacity).max(1));
            stash.extend(of.drain(of.len() - n..));
            spare.bytes -= n * capacity;
        }
    }

    /// Takes buffers back and leaves the vector empty.
    pub(super) fn put(&self, buffers: &mut Vec<AlignedBuf>) {
        if buffers.is_empty() {
            return;
        }
        let mut old = Vec::new();
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for buffer in buffers.drain(..) {
            let capacity = buffer.capacity();
            if capacity == 0 || capacity != capacity_for(capacity) {
                continue;
            }
            if spare.bytes + capacity > SPARE_BYTES_MAX {
                // The sizes asked for have changed: begin anew.
                old.push(std::mem::take(&mut *spare));
            }
            spare.bytes += capacity;
            spare.by_capacity.entry(capacity).or_default().push(buffer);
        }
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
        let mut stash = Vec::new();
        let first = pool.take(5000, &mut stash);
        let address = first.as_ptr();
        pool.put(&mut vec![first]);
        let again = pool.take(8000, &mut stash);
        assert_eq!((again.len(), again.as_ptr()), (8000, address));
        pool.put(&mut vec![AlignedBuf::zeroed(0)]);
        let mut many: Vec<_> = (0..5).map(|_| pool.take(20 << 20, &mut stash)).collect();
        pool.put(&mut many);
        let spare = pool.0.lock().unwrap();
        let kept: usize = spare.by_capacity.iter().map(|(size, of)| size * of.len()).sum();
        assert_eq!(kept, spare.bytes);
        assert!(kept <= SPARE_BYTES_MAX);
    }

    #[test]
    fn a_stash_is_small_and_of_one_size() {
        let pool = Pool::default();
        let mut stash = Vec::new();
        let mut many: Vec<_> = (0..100).map(|_| pool.take(4096, &mut stash)).collect();
        pool.put(&mut many);
        let one = pool.take(4096, &mut stash);
        assert_eq!(stash.len() + 1, STASH_BYTES / 4096);
        let large = pool.take(1 << 20, &mut stash);
        assert!(stash.is_empty(), "of another size it goes back");
        pool.put(&mut vec![one, large]);
        assert_eq!(pool.0.lock().unwrap().bytes, 100 * 4096 + (1 << 20));
    }
}
