//! Bytes on their way in: decompressed, cut into lines or records, with their place known.

mod bytes;
mod lines;
mod unpack;

pub(crate) use bytes::ByteReader;
pub(crate) use lines::{LineReader, excerpt};
pub use unpack::{Compression, unpack};

use std::io::{self, ErrorKind, Read};

/// What a source of bytes is handed over as.
pub type BoxRead = Box<dyn Read + Send>;

/// The first `limit` bytes, and a reader that gives them out again and then the rest. Where an error
/// comes before `limit`, what was read before it is good: the reader gives that out first.
///
/// # Errors
/// What the input says before it has given any byte.
pub(crate) fn peek(mut input: BoxRead, limit: usize) -> io::Result<(Vec<u8>, BoxRead)> {
    let mut head = vec![0; limit];
    let mut got = 0;
    let rest: BoxRead = loop {
        if got == limit {
            break input;
        }
        match input.read(&mut head[got..]) {
            Ok(0) => break input,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if got == 0 => return Err(e),
            Err(e) => break Box::new(Fails(Some(e))),
        }
    };
    head.truncate(got);
    let again = io::Cursor::new(head.clone()).chain(rest);
    Ok((head, Box::new(again)))
}

/// What is left of an input that failed: its error, once.
struct Fails(Option<io::Error>);

impl Read for Fails {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
