//! Records of a binary file, with their place, in a buffer of fixed size.

use std::io::{ErrorKind, Read};

use super::BoxRead;
use crate::error::TraceError;

/// Bytes of the buffer; no record is longer than half of it.
const BUFFER: usize = 256 << 10;

/// Hands out bytes in pieces of known size.
pub(crate) struct ByteReader {
    input: BoxRead,
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes before `start`.
    offset: u64,
}

impl ByteReader {
    pub(crate) fn new(input: BoxRead) -> ByteReader {
        ByteReader { input, buf: vec![0; BUFFER].into_boxed_slice(), start: 0, end: 0, offset: 0 }
    }

    /// Bytes given out so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes without taking them: `n`, or fewer where the input ends before.
    ///
    /// # Errors
    /// What the input says.
    pub(crate) fn peek(&mut self, n: usize) -> Result<&[u8], TraceError> {
        debug_assert!(n <= BUFFER / 2);
        if self.end - self.start < n {
            self.fill(n)?;
        }
        Ok(&self.buf[self.start..self.end.min(self.start + n)])
    }

    /// Takes `n` bytes that were peeked at.
    pub(crate) fn take(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    fn fill(&mut self, n: usize) -> Result<(), TraceError> {
        if self.start + n > self.buf.len() {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < n {
            match self.input.read(&mut self.buf[self.end..]) {
                Ok(0) => break,
                Ok(got) => self.end += got,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let offset = self.offset + (self.end - self.start) as u64;
                    return Err(TraceError::Io { offset, source });
                }
            }
        }
        Ok(())
    }
}
