//! Bytes at an offset: how the pure crates are handed a device without knowing one.

use std::io;

/// Something that can be read at byte offsets: a device, a file, a slice in a test.
pub trait ReadAt {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` where the device ends earlier; otherwise what the device says.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Bytes the device holds.
    ///
    /// # Errors
    /// What the device says.
    fn size_bytes(&mut self) -> io::Result<u64>;
}

/// A device that can also be written.
pub trait WriteAt: ReadAt {
    /// Writes `buf` at `offset`.
    ///
    /// # Errors
    /// What the device says; after an error any part may have been written.
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes bytes read as zero, sparsely where the device can.
    ///
    /// # Errors
    /// As [`WriteAt::write_at`].
    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// What the device says; what was written since the last flush may then be lost.
    fn flush(&mut self) -> io::Result<()>;
}

impl ReadAt for Vec<u8> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl WriteAt for Vec<u8> {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.get_mut(start..end).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(buf);
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        self.write_at(offset, &vec![0; len])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
