//! How much of a file is in the page cache: cachestat(2), and mincore(2) where the kernel (below 6.5) or a
//! filter of system calls does not have it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Pages of a file, and how many of them are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residency {
    /// Pages the file has.
    pub pages: u64,
    /// Of these, in the page cache.
    pub cached: u64,
}

impl Residency {
    /// Cached pages as a share of all, 0 to 1; 0 of an empty file.
    pub fn share(&self) -> f64 {
        if self.pages == 0 { 0.0 } else { self.cached as f64 / self.pages as f64 }
    }

    /// Both files together.
    pub fn plus(self, other: Residency) -> Residency {
        Residency { pages: self.pages + other.pages, cached: self.cached + other.cached }
    }
}

/// How residency was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// cachestat(2).
    Cachestat,
    /// mincore(2) on a mapping of the file.
    Mincore,
}

mod abi {
    /// `struct cachestat_range` of linux/mman.h.
    #[repr(C)]
    pub(super) struct Range {
        pub(super) off: u64,
        pub(super) len: u64,
    }

    /// `struct cachestat` of linux/mman.h.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct Cachestat {
        pub(super) nr_cache: u64,
        pub(super) nr_dirty: u64,
        pub(super) nr_writeback: u64,
        pub(super) nr_evicted: u64,
        pub(super) nr_recently_evicted: u64,
    }

    /// The same number on every architecture (include/uapi/asm-generic/unistd.h).
    pub(super) const SYS_CACHESTAT: libc::c_long = 451;
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).ok().filter(|s| *s > 0).unwrap_or(4096)
}

/// How much of `file` is in the page cache, without reading any of it.
///
/// # Errors
/// Where neither call may look: mincore tells the truth to the file's owner and to root only.
pub fn residency(file: &File) -> io::Result<(Residency, Method)> {
    match cachestat(file, 0, 0) {
        Ok(cached) => {
            let pages = file.metadata()?.len().div_ceil(page_bytes());
            // A page may lie beyond the end for a moment while the file shrinks.
            Ok((Residency { pages, cached: cached.min(pages) }, Method::Cachestat))
        }
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)) => {
            Ok((mincore(file)?, Method::Mincore))
        }
        Err(e) => Err(e),
    }
}

/// The same of a path; opening it reads its inode.
///
/// # Errors
/// As [`residency`], with the path.
pub fn residency_of(path: &Path) -> io::Result<(Residency, Method)> {
    let told = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    residency(&File::open(path).map_err(told)?).map_err(told)
}

/// Cached pages of the range (`len` 0: to the end), by cachestat(2).
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EPERM` for a file one may not write.
pub fn cachestat(file: &File, off: u64, len: u64) -> io::Result<u64> {
    let range = abi::Range { off, len };
    let mut stat = abi::Cachestat::default();
    // SAFETY: the descriptor is open, and both structures are laid out as the kernel's and live for the call.
    let done = unsafe {
        libc::syscall(
            abi::SYS_CACHESTAT,
            file.as_raw_fd() as libc::c_uint,
            &raw const range,
            &raw mut stat,
            0 as libc::c_uint,
        )
    };
    if done == 0 { Ok(stat.nr_cache) } else { Err(io::Error::last_os_error()) }
}

/// Mapped at a time: bounded memory whatever the file's size.
const WINDOW_BYTES: u64 = 1 << 30;

/// By mincore(2), a window at a time.
fn mincore(file: &File) -> io::Result<Residency> {
    let (len, page) = (file.metadata()?.len(), page_bytes());
    let mut all = Residency::default();
    let mut at = 0;
    while at < len {
        let window = (len - at).min(WINDOW_BYTES);
        let pages = window.div_ceil(page);
        let mut in_core = vec![0u8; pages as usize];
        let (size, offset) = (window as libc::size_t, at as libc::off_t);
        // SAFETY: a new mapping at a place of the kernel's choice; nothing of it is ever read.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is `size` bytes long, and `in_core` has a byte for each of its pages.
        let asked = unsafe { libc::mincore(map, size, in_core.as_mut_ptr()) };
        let failed = (asked != 0).then(io::Error::last_os_error);
        // SAFETY: the mapping made above, which nothing refers to.
        unsafe { libc::munmap(map, size) };
        if let Some(e) = failed {
            return Err(e);
        }
        let cached = in_core.iter().filter(|p| **p & 1 == 1).count() as u64;
        all = all.plus(Residency { pages, cached });
        at += window;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Both ways see a file just written, and see it gone where the cache lets go of it.
    #[test]
    fn written_files_are_cached() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; 100_000]).unwrap();
        file.as_file().sync_all().unwrap();
        let pages = 100_000u64.div_ceil(page_bytes());
        let core = mincore(file.as_file()).unwrap();
        assert_eq!(core, Residency { pages, cached: pages });
        let (seen, _) = residency(file.as_file()).unwrap();
        assert_eq!(seen, core);
        assert_eq!(seen.share(), 1.0);
        // SAFETY: the descriptor is open.
        let advised = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(advised, 0);
        // On tmpfs pages stay, whatever is advised; both ways must agree all the same.
        assert_eq!(residency(file.as_file()).unwrap().0, mincore(file.as_file()).unwrap());
    }

    #[test]
    fn an_empty_file_has_nothing() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(residency(&file).unwrap().0, Residency::default());
        assert_eq!(mincore(&file).unwrap().share(), 0.0);
        assert!(residency_of(Path::new("/absent/file")).unwrap_err().to_string().contains("/absent/file"));
    }
}
