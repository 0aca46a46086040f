//! Writes that are told of earlier ones: the lack of room that a file system finds when it writes its cache out is told once, on NFS to
//! whoever writes next (`nfs_file_write`), and then to no sync.
//!
//! E1: where a write was told so, the next sync fails. None ends well between the system's word and ours, for none is under way beside a write.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::store::sync_failed;

/// Keeps what a write was told for the sync that it was meant for.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    owed: AtomicBool,
    /// Shared by writes.
    syncing: RwLock<()>,
}

impl Earlier {
    /// Does a write.
    pub(super) fn write(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // Keeps E1.
        let _held = self.syncing.read().unwrap_or_else(PoisonError::into_inner);
        write().inspect_err(|e| {
            if matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)) {
                self.owed.store(true, Ordering::SeqCst);
            }
        })
    }

    /// Does a sync.
    pub(super) fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _held = self.syncing.write().unwrap_or_else(PoisonError::into_inner);
        let done = sync();
        match self.owed.swap(false, Ordering::SeqCst) {
            true => done.and(Err(sync_failed(io::Error::from_raw_os_error(libc::ENOSPC)))),
            false => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was answered and flushed was gone from an image on a full NFS server, and every flush had ended well.
    #[test]
    fn what_a_write_was_told_the_next_sync_tells() {
        let error = |errno| Err(io::Error::from_raw_os_error(errno));
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            let earlier = Earlier::default();
            earlier.write(|| Ok(())).unwrap();
            earlier.sync(|| Ok(())).unwrap();
            assert_eq!(earlier.write(|| error(errno)).unwrap_err().raw_os_error(), Some(errno));
            earlier.write(|| Ok(())).unwrap();
            assert_eq!(earlier.sync(|| Ok(())).unwrap_err().raw_os_error(), None, "not the flush's own");
            earlier.sync(|| Ok(())).unwrap();
        }
        // A write's own, which a sync tells of as well.
        let earlier = Earlier::default();
        earlier.write(|| error(libc::EIO)).unwrap_err();
        earlier.sync(|| Ok(())).unwrap();
    }

    #[test]
    fn no_sync_is_beside_a_write() {
        let earlier = &Earlier::default();
        let (began, begins) = std::sync::mpsc::channel();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let write = move || {
                began.send(()).unwrap();
                told.recv().unwrap();
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            };
            let writes = scope.spawn(move || earlier.write(write));
            begins.recv().unwrap();
            let syncs = scope.spawn(move || earlier.sync(|| Ok(())));
            // It waits for the write, however long that takes.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!syncs.is_finished());
            tell.send(()).unwrap();
            assert!(writes.join().unwrap().is_err() && syncs.join().unwrap().is_err());
        });
    }
}
