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
    /// What the input said behind the bytes at hand.
    failed: Option<std::io::Error>,
}

impl ByteReader {
    pub(crate) fn new(input: BoxRead) -> ByteReader {
        ByteReader {
            input,
            buf: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            offset: 0,
            failed: None,
        }
    }

    /// Bytes given out so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes without taking them: `n`, or fewer where the input ends before.
    ///
    /// # Errors
    /// What the input says before it has given `n`.
    pub(crate) fn peek(&mut self, n: usize) -> Result<&[u8], TraceError> {
        let have = self.peek_up_to(n)?.len();
        if have < n
            && let Some(source) = self.failed.take()
        {
            return Err(TraceError::Io { offset: self.offset + have as u64, source });
        }
        Ok(&self.buf[self.start..self.start + have])
    }

    /// As [`peek`](Self::peek), also where the input fails behind the bytes given: for those who look
    /// beyond what they need.
    ///
    /// # Errors
    /// What the input says before it has given anything.
    pub(crate) fn peek_up_to(&mut self, n: usize) -> Result<&[u8], TraceError> {
        debug_assert!(n <= BUFFER / 2);
        if self.end - self.start < n {
            self.fill(n);
        }
        if self.start == self.end
            && let Some(source) = self.failed.take()
        {
            return Err(TraceError::Io { offset: self.offset, source });
        }
        Ok(&self.buf[self.start..self.end.min(self.start + n)])
    }

    /// Takes `n` bytes that were peeked at.
    pub(crate) fn take(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    fn fill(&mut self, n: usize) {
        if self.start + n > self.buf.len() {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.failed.is_none() && self.end - self.start < n {
            match self.input.read(&mut self.buf[self.end..]) {
                Ok(0) => break,
                Ok(got) => self.end += got,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.failed = Some(e),
            }
        }
    }
}
