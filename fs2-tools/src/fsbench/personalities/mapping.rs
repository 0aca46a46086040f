//! Files read by page faults, as a program reads its libraries.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::raw::c_void;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};

/// A page of memory, at least.
const PAGE: u64 = 4096;

/// A file mapped for reading. Its memory is never looked at: pages are faulted in by the kernel on
/// request, so that an unreadable one is an error and no SIGBUS.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of a file; `None` where there are none.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(file: &File, len: u64) -> io::Result<Option<Mapping>> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let Some(size) = NonZeroUsize::new(len) else { return Ok(None) };
        // SAFETY: a new mapping at a place of the kernel's choice; nothing of ours lies there.
        let start = unsafe { mmap(None, size, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, file, 0) }?;
        Ok(Some(Mapping { start, len }))
    }

    /// Faults in the pages that hold `len` bytes from `at`, as reading a byte of each would; what is
    /// beyond the end is left out.
    ///
    /// # Errors
    /// `EFAULT` where a page cannot be read.
    pub(super) fn touch(&self, at: u64, len: u64) -> io::Result<()> {
        let from = (at / PAGE * PAGE) as usize;
        let to = usize::try_from(at.saturating_add(len)).unwrap_or(usize::MAX).min(self.len);
        let Some(len) = to.checked_sub(from).filter(|n| *n > 0) else { return Ok(()) };
        // SAFETY: from < self.len, so the address lies in the mapping, which lives as long as self.
        let start = unsafe { self.start.byte_add(from) };
        // SAFETY: the range lies in the mapping; populating changes no content.
        unsafe { madvise(start, len, MmapAdvise::MADV_POPULATE_READ) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, whole, and nobody holds a reference into it.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_faulted_in_up_to_the_end_and_not_beyond() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = File::open(&path).unwrap();
        let mapping = Mapping::new(&file, 10_000).unwrap().unwrap();
        for (at, len) in
            [(0, 1), (0, 10_000), (4095, 2), (9999, 1), (9999, 1 << 40), (10_000, 5), (1 << 40, 1)]
        {
            mapping.touch(at, len).unwrap();
        }
        assert!(Mapping::new(&file, 0).unwrap().is_none());
    }

    #[test]
    fn a_page_that_is_gone_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::new(&file, 10_000).unwrap().unwrap();
        file.set_len(0).unwrap();
        assert!(mapping.touch(8192, 100).is_err());
    }
}
