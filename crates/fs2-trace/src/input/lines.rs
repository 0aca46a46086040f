//! Lines of a text, with their numbers, in a buffer of fixed size.

use std::io::{ErrorKind, Read};

use memchr::memchr;

use super::BoxRead;
use crate::error::TraceError;

/// Bytes of the buffer: the longest line that can be read.
const BUFFER: usize = 256 << 10;

/// Cuts an input into lines.
pub(crate) struct LineReader {
    input: BoxRead,
    buf: Box<[u8]>,
    /// The bytes at hand: `buf[start..end]`.
    start: usize,
    end: usize,
    eof: bool,
    /// Bytes before `start`.
    offset: u64,
    /// Lines given out.
    line: u64,
}

impl LineReader {
    pub(crate) fn new(input: BoxRead) -> LineReader {
        let buf = vec![0; BUFFER].into_boxed_slice();
        LineReader { input, buf, start: 0, end: 0, eof: false, offset: 0, line: 0 }
    }

    /// The number of the line given out last, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The next line without its end; a last line may lack one.
    ///
    /// # Errors
    /// What the input says, and a line longer than the buffer. Both end the reading.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        let mut searched = 0;
        loop {
            let have = &self.buf[self.start..self.end];
            if let Some(at) = memchr(b'\n', &have[searched..]) {
                return Ok(Some(self.take(searched + at, 1)));
            }
            searched = have.len();
            if self.eof {
                return Ok(if searched == 0 { None } else { Some(self.take(searched, 0)) });
            }
            self.fill()?;
        }
    }

    /// Takes a line of `len` bytes and the `end` bytes of its end.
    fn take(&mut self, len: usize, end: usize) -> &[u8] {
        let from = self.start;
        self.start += len + end;
        self.offset += (len + end) as u64;
        self.line += 1;
        let line = &self.buf[from..from + len];
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    fn fill(&mut self) -> Result<(), TraceError> {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buf.len() {
            return Err(TraceError::Line {
                line: self.line + 1,
                found: excerpt(&self.buf[..64]),
                expected: "a line of fewer than 262,144 bytes",
            });
        }
        loop {
            match self.input.read(&mut self.buf[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    self.eof = n == 0;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(TraceError::Io { offset: self.offset + self.end as u64, source });
                }
            }
        }
    }
}

/// The first bytes of a line, for a message.
pub(crate) fn excerpt(line: &[u8]) -> String {
    const MOST: usize = 80;
    let mut text = String::from_utf8_lossy(&line[..line.len().min(MOST)]).into_owned();
    if line.len() > MOST {
        text.push('…');
    }
    text
}
