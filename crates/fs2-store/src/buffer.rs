//! Memory that O_DIRECT accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes on a 4096-byte boundary, owned by the daemon alone: no client can write them while they
/// are hashed or copied.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// Whose memory it is, where it is not its own.
    lent: Option<(Arc<Parts>, usize)>,
}

const ALIGN: usize = 4096;

/// Buffers from here on are mappings of their own, which the system has back when they are dropped. glibc keeps what is smaller than the
/// largest mapping it gave back in its heaps, as after an attach that read a table, and finds aligned memory only in holes larger than what
/// was freed: beside small things that stay, its heaps grew with each new buffer.
const MAPPED_FROM: usize = 64 << 10;

// SAFETY: the buffer owns its memory; nothing else points to it.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let capacity = len.next_multiple_of(ALIGN);
        if capacity == 0 {
            return AlignedBuf { start: NonNull::dangling(), len: 0, capacity: 0, lent: None };
        }
        let layout = Self::layout(capacity);
        let start = if capacity >= MAPPED_FROM {
            map(capacity).ok()
        } else {
            // SAFETY: the layout's size is not zero.
            NonNull::new(unsafe { alloc_zeroed(layout) })
        };
        let Some(start) = start else { handle_alloc_error(layout) };
        AlignedBuf { start, len, capacity, lent: None }
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
        if let Some((parts, n)) = self.lent.take() {
            // What was written here is seen by who has it next.
            parts.lent[n].store(false, Ordering::Release);
        } else if self.capacity >= MAPPED_FROM {
            unmap(self.start, self.capacity);
        } else if self.capacity > 0 {
            // SAFETY: allocated in `zeroed` with the same layout, being below [`MAPPED_FROM`].
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

/// So many zero bytes of a mapping of their own.
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let all = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; it lies over nothing of ours.
    Ok(unsafe { mmap_anonymous(None, all, protection, MapFlags::MAP_PRIVATE) }?.cast())
}

/// Ends what [`map`] made, of that length, to which nothing points any more.
fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: our own mapping, of this length; who had it is dropped.
    let _ = unsafe { munmap(start.cast(), bytes) };
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

/// Memory at addresses that stay, in parts of one size that are lent as [`AlignedBuf`]s: for a kernel that was told the
/// addresses once. What was never touched costs nothing.
///
/// Invariant: a part is lent to one at a time.
#[derive(Debug)]
pub struct Parts {
    start: NonNull<u8>,
    part_bytes: usize,
    lent: Box<[AtomicBool]>,
}

// SAFETY: the memory is reached through the buffers alone, each part through one at a time.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

impl Parts {
    /// `count` parts of `part_bytes` (rounded up to 4096) zero bytes.
    ///
    /// # Errors
    /// `InvalidInput` for none of them or none in them; `OutOfMemory` where there is no room.
    pub fn zeroed(count: usize, part_bytes: usize) -> io::Result<Arc<Parts>> {
        let part_bytes = part_bytes.next_multiple_of(ALIGN);
        let start = map(count.checked_mul(part_bytes).ok_or(io::ErrorKind::InvalidInput)?)?;
        let lent = (0..count).map(|_| AtomicBool::new(false)).collect();
        Ok(Arc::new(Parts { start, part_bytes, lent }))
    }

    /// Bytes of each part.
    pub fn part_bytes(&self) -> usize {
        self.part_bytes
    }

    /// Where part `n` begins.
    ///
    /// # Panics
    /// Where there is no such part.
    pub fn address(&self, n: usize) -> *mut u8 {
        assert!(n < self.lent.len(), "part {n} of {}", self.lent.len());
        self.start.as_ptr().wrapping_add(n * self.part_bytes)
    }

    /// Part `n`, whole, until what is returned is dropped; `None` while somebody has it.
    ///
    /// # Panics
    /// Where there is no such part.
    pub fn lend(self: &Arc<Parts>, n: usize) -> Option<AlignedBuf> {
        let start = NonNull::new(self.address(n))?;
        // Keeps the invariant.
        if self.lent[n].swap(true, Ordering::Acquire) {
            return None;
        }
        let (len, capacity) = (self.part_bytes, self.part_bytes);
        Some(AlignedBuf { start, len, capacity, lent: Some((self.clone(), n)) })
    }

    /// Whether somebody has part `n`.
    ///
    /// # Panics
    /// Where there is no such part.
    pub fn is_lent(&self, n: usize) -> bool {
        self.lent[n].load(Ordering::Acquire)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Each buffer in it held a reference to us.
        unmap(self.start, self.lent.len() * self.part_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for len in [0, 1, 511, 4096, MAPPED_FROM - 1, MAPPED_FROM, 70_000] {
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

    #[test]
    fn a_part_is_lent_once_and_keeps_its_place() {
        let parts = Parts::zeroed(3, 5000).unwrap();
        assert_eq!(parts.part_bytes(), 8192);
        let mut first = parts.lend(1).unwrap();
        assert_eq!(
            (first.len(), first.capacity(), first.as_ptr()),
            (8192, 8192, parts.address(1).cast_const())
        );
        assert!(first.iter().all(|&b| b == 0) && first.as_ptr().addr().is_multiple_of(ALIGN));
        assert!(parts.lend(1).is_none() && parts.is_lent(1) && !parts.is_lent(0));
        first.set_len(1);
        first.fill(7);
        // On another thread, as a service's worker drops it.
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert!(!parts.is_lent(1));
        let again = parts.lend(1).unwrap();
        assert_eq!(&again[..2], [7, 0]);
        // It outlives what it is part of.
        drop(parts);
        assert_eq!(&again[..2], [7, 0]);
        assert!(Parts::zeroed(0, 1).is_err() && Parts::zeroed(1, 0).is_err());
        assert!(Parts::zeroed(usize::MAX / 4096, 8192).is_err());
    }
}
