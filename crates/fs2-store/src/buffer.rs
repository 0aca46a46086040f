//! Memory that O_DIRECT accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes on a 4096-byte boundary, owned by the daemon alone: no client can write them while they
/// are hashed or copied.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

const ALIGN: usize = 4096;

// SAFETY: the buffer owns its memory; nothing else points to it.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let capacity = len.next_multiple_of(ALIGN);
        if capacity == 0 {
            return AlignedBuf { start: NonNull::dangling(), len: 0, capacity: 0 };
        }
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        AlignedBuf { start, len, capacity }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut b = AlignedBuf::zeroed(bytes.len());
        b.copy_from_slice(bytes);
        b
    }

    /// Shortens it; the memory stays.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Bytes it can have without new memory, a multiple of 4096.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the length within the capacity. Bytes that come into view are what they last were: whoever
    /// uses a buffer again fills it.
    ///
    /// # Panics
    /// Beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "{len} bytes in a buffer of {}", self.capacity);
        // All of the capacity was initialised when it was allocated.
        self.len = len;
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGN).expect("a buffer's size fits the address space")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated in `zeroed` with the same layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` initialised bytes (or none, dangling) belong to us.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for len in [0, 1, 511, 4096, 70_000] {
            let b = AlignedBuf::zeroed(len);
            assert_eq!(b.len(), len);
            assert!(b.iter().all(|&x| x == 0));
            assert!(len == 0 || b.as_ptr().addr().is_multiple_of(ALIGN));
        }
        assert_eq!(&AlignedBuf::copy_of(b"abc")[..], b"abc");
        let mut again = AlignedBuf::copy_of(b"abc");
        again.set_len(again.capacity());
        assert_eq!((again.len(), &again[..4]), (4096, &b"abc\0"[..]));
    }
}
