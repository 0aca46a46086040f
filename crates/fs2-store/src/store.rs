//! The one face of every backing device.

use std::io;
use std::os::fd::BorrowedFd;

use crate::{AlignedBuf, Pipe, Stamp};

/// The error of a sync, which is told from a write's own: the system tells once, and to whoever syncs first, that what was answered long
/// ago found no room below.
pub fn sync_failed(e: io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => io::Error::other(format!("syncing: {e}")),
        _ => e,
    }
}

/// Whether a stretch of a backing is stored or a hole that reads as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Bytes from where the last stretch ended.
    pub len: u64,
    /// Not stored: reads as zero.
    pub hole: bool,
}

/// What a [`Ring`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOp {
    /// Fills the buffer.
    Read,
    /// Writes it; with `fua`, durable before it ends.
    Write {
        /// Force unit access.
        fua: bool,
    },
}

/// I/O to be begun on a [`Ring`].
#[derive(Debug)]
pub struct RingIo {
    /// Comes back with its end.
    pub tag: u64,
    /// What.
    pub op: RingOp,
    /// From where in the store, in bytes; the buffer has the length.
    pub offset: u64,
    /// The memory.
    pub buffer: AlignedBuf,
}

/// I/O of a [`Ring`] that ended.
#[derive(Debug)]
pub struct RingEnd {
    /// As it was begun.
    pub tag: u64,
    /// The memory.
    pub buffer: AlignedBuf,
    /// As [`Store::read_at`] and [`Store::write_at`] have it.
    pub result: io::Result<()>,
}

/// I/O that one thread begins now and waits for later. Stays with that thread.
pub trait Ring {
    /// Begins; at the latest when the thread next waits does the device know of it.
    ///
    /// # Errors
    /// The same back, where this is not for a ring (edges that want reading first, no room): do it by the
    /// store's own calls, on a thread that may wait.
    fn begin(&mut self, io: RingIo) -> Result<(), RingIo>;

    /// I/Os begun and not taken back.
    fn pending(&self) -> usize;

    /// Tells the device what was begun and takes what has ended. With `wait`, and I/O pending, waits until
    /// some ended or `input` has something to read (or may have had since it was last watched: read without
    /// waiting); true where it does.
    fn wait(&mut self, input: Option<BorrowedFd<'_>>, wait: bool, ended: &mut Vec<RingEnd>) -> bool;
}

/// A backing device: positional, blocking, usable from several threads at once.
///
/// Offsets and lengths may be anything within the size; a store whose device needs alignment reads
/// and writes around the edges itself, and serialises those read-modify-writes.
pub trait Store: Send + Sync {
    /// The store that this one stands in front of. What a store does not answer itself, that one is asked.
    fn below(&self) -> Option<&dyn Store> {
        None
    }

    /// Bytes it holds.
    fn size_bytes(&self) -> u64;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// What the device says.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset`; with `fua`, durable before it returns.
    ///
    /// # Errors
    /// What the device says; any part may have been written. With `fua`, ENOSPC and EDQUOT are the write's own: of its
    /// last part nothing was synced, and no error of an earlier write was told by it. What says so of a sync has no
    /// errno ([`sync_failed`]).
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()>;

    /// As [`Store::read_at`], if that can be done from memory, without waiting for a device; false where
    /// it cannot, or the store does not know: then `buf` holds anything.
    ///
    /// # Errors
    /// As [`Store::read_at`].
    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        let _ = (offset, buf);
        Ok(false)
    }

    /// As [`Store::write_at`] without `fua`, if memory takes it without waiting for a device; false
    /// where it does not, or the store does not know: then nothing was written.
    ///
    /// # Errors
    /// As [`Store::write_at`].
    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        let _ = (offset, buf);
        Ok(false)
    }

    /// Puts `len` bytes from `offset` into a pipe without copying them, if they are in memory: whoever takes them out
    /// finds what the place holds then. False where they are not, or the store does not do this: then the pipe is as
    /// before. Probed first, so that it waits for a device only where memory was lost in between.
    ///
    /// # Errors
    /// As [`Store::read_at`], and where the pipe is full; any part may be in the pipe.
    fn try_lend(&self, offset: u64, len: usize, pipe: &mut Pipe) -> io::Result<bool> {
        let _ = (offset, len, pipe);
        Ok(false)
    }

    /// Whether [`Store::try_lend`] is worth trying.
    fn lends(&self) -> bool {
        false
    }

    /// A ring for the calling thread, where the store has such.
    fn ring(&self) -> Option<Box<dyn Ring>> {
        None
    }

    /// Whether [`Store::try_read`] and [`Store::try_write`] are worth trying.
    fn tries(&self) -> bool {
        false
    }

    /// Makes bytes read as zero, durable by the next flush; with `no_hole`, they stay allocated.
    ///
    /// # Errors
    /// As `write_at`.
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()>;

    /// Tells the device that the bytes are no longer needed. A hint: a device that cannot does nothing.
    ///
    /// # Errors
    /// What the device says.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// What the device says; what was written since the last flush may be lost.
    fn flush(&self) -> io::Result<()>;

    /// The smallest aligned unit that is written without reading around it first, in bytes: 1 where
    /// every byte can be addressed.
    fn logical_block_bytes(&self) -> u32 {
        self.below().map_or(1, Store::logical_block_bytes)
    }

    /// Whether it turns (a modelled drive says what its profile says).
    fn rotational(&self) -> bool {
        self.below().is_some_and(Store::rotational)
    }

    /// Requests that the drive takes at a time and serves in an order of its own; `None` where nobody says.
    fn queue_depth(&self) -> Option<u32> {
        self.below()?.queue_depth()
    }

    /// Whether blocks never written take no space below (sparse file, thin volume).
    fn sparse(&self) -> bool {
        self.below().is_some_and(Store::sparse)
    }

    /// Free and total bytes of the file system that holds a sparse file; `None` for devices.
    fn host_space(&self) -> Option<(u64, u64)> {
        self.below()?.host_space()
    }

    /// Stored stretches and holes from `offset` for `len` bytes, in order, at most `limit` of them
    /// (at least one where `len > 0`).
    ///
    /// # Errors
    /// What the device says.
    fn stretches(&self, offset: u64, len: u64, limit: usize) -> io::Result<Vec<Stretch>> {
        match self.below() {
            Some(below) => below.stretches(offset, len, limit),
            None => Ok(if len == 0 { vec![] } else { vec![Stretch { len, hole: false }] }),
        }
    }

    /// What would differ if anybody else had written the backing since, within one boot; `None`
    /// where that cannot be told.
    fn stamp(&self) -> Option<Stamp> {
        self.below()?.stamp()
    }

    /// The same of what is below a loop device, from the upper to the lower, as far as it is all of it that the device has:
    /// another way to the same bytes moves only these.
    fn stamps_below(&self) -> Vec<Stamp> {
        self.below().map_or_else(Vec::new, Store::stamps_below)
    }

    /// What a modelled drive has done so far; `None` for a real one.
    fn modelled(&self) -> Option<ModelTotals> {
        self.below()?.modelled()
    }
}

/// What a modelled drive has done since it was made, in modelled time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelTotals {
    /// Reads served.
    pub reads: u64,
    /// Writes served (write-zeroes included).
    pub writes: u64,
    /// Requests answered from the drive's cache.
    pub cache_hits: u64,
    /// Electronics and command time.
    pub overhead_ns: u64,
    /// Arm movement.
    pub seek_ns: u64,
    /// Waiting for the platter.
    pub rotation_ns: u64,
    /// Moving the data.
    pub transfer_ns: u64,
    /// Serving requests.
    pub busy_ns: u64,
    /// From the store's making to now, idle time included.
    pub span_ns: u64,
    /// Joules used over the span.
    pub energy_joules: f64,
    /// Requests whose real I/O took longer than the modelled drive would have: if this is more than a
    /// few in a thousand, the backing is too slow for the drive that is modelled on it.
    pub late: u64,
}

/// `InvalidInput` where `offset..offset + len` leaves the store.
pub(crate) fn check_range(size: u64, offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("bytes {offset}+{len} reach beyond the end at {size}"),
        )),
    }
}

/// `UnexpectedEof` where `offset..offset + len` leaves the store.
pub(crate) fn check_read(size: u64, offset: u64, len: usize) -> io::Result<()> {
    check_range(size, offset, len as u64).map_err(|e| io::Error::new(io::ErrorKind::UnexpectedEof, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_finds_no_room_is_not_taken_for_a_write() {
        for errno in [libc::ENOSPC, libc::EDQUOT] {
            let e = sync_failed(io::Error::from_raw_os_error(errno));
            assert_eq!(e.raw_os_error(), None);
            assert!(e.to_string().starts_with("syncing: "), "{e}");
        }
        assert_eq!(sync_failed(io::Error::from_raw_os_error(libc::EIO)).raw_os_error(), Some(libc::EIO));
    }
}
