//! A store seen by the pure crates, and stores behind pointers.

use std::io;
use std::sync::Arc;

use fs2_block::{ReadAt, WriteAt};

use crate::{ModelTotals, Pipe, Ring, Stamp, Store, Stretch};

/// A store handed to a pure crate, which reads and writes it through [`ReadAt`] and [`WriteAt`].
/// Counts the reads, so that a caller can hold an attach to its budget of device reads.
pub struct StoreIo<'a> {
    store: &'a dyn Store,
    no_hole: bool,
    reads: u64,
    bytes_read: u64,
}

impl<'a> StoreIo<'a> {
    /// The store, nothing counted yet.
    pub fn new(store: &'a dyn Store) -> StoreIo<'a> {
        StoreIo { store, no_hole: false, reads: 0, bytes_read: 0 }
    }

    /// The same; what is zeroed stays allocated.
    pub fn without_holes(store: &'a dyn Store) -> StoreIo<'a> {
        StoreIo { no_hole: true, ..StoreIo::new(store) }
    }

    /// Calls of `read_at` so far, failed ones included, empty ones not.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Bytes asked for by those calls.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

impl ReadAt for StoreIo<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if !buf.is_empty() {
            self.reads += 1;
            self.bytes_read += buf.len() as u64;
        }
        self.store.read_at(offset, buf)
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.store.size_bytes())
    }
}

impl WriteAt for StoreIo<'_> {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.store.write_at(offset, buf, false)
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.store.write_zeroes(offset, len, self.no_hole)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.store.flush()
    }
}

macro_rules! forward {
    ($($pointer:ty),+) => {$(
        impl<S: Store + ?Sized> Store for $pointer {
            fn size_bytes(&self) -> u64 {
                (**self).size_bytes()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
                (**self).read_at(offset, buf)
            }
            fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
                (**self).write_at(offset, buf, fua)
            }
            fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
                (**self).try_read(offset, buf)
            }
            fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
                (**self).try_write(offset, buf)
            }
            fn try_lend(&self, offset: u64, len: usize, pipe: &mut Pipe) -> io::Result<bool> {
                (**self).try_lend(offset, len, pipe)
            }
            fn lends(&self) -> bool {
                (**self).lends()
            }
            fn ring(&self) -> Option<Box<dyn Ring>> {
                (**self).ring()
            }
            fn tries(&self) -> bool {
                (**self).tries()
            }
            fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
                (**self).write_zeroes(offset, len, no_hole)
            }
            fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
                (**self).discard(offset, len)
            }
            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }
            fn logical_block_bytes(&self) -> u32 {
                (**self).logical_block_bytes()
            }
            fn rotational(&self) -> bool {
                (**self).rotational()
            }
            fn queue_depth(&self) -> Option<u32> {
                (**self).queue_depth()
            }
            fn sparse(&self) -> bool {
                (**self).sparse()
            }
            fn host_space(&self) -> Option<(u64, u64)> {
                (**self).host_space()
            }
            fn stretches(&self, offset: u64, len: u64, limit: usize) -> io::Result<Vec<Stretch>> {
                (**self).stretches(offset, len, limit)
            }
            fn stamp(&self) -> Option<Stamp> {
                (**self).stamp()
            }
            fn stamps_below(&self) -> Vec<Stamp> {
                (**self).stamps_below()
            }
            fn modelled(&self) -> Option<ModelTotals> {
                (**self).modelled()
            }
        }
    )+};
}

forward!(&S, Box<S>, Arc<S>);
