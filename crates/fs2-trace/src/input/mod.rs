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

/// Reads until `buf` is full or the input ends; how many bytes came.
pub(crate) fn read_up_to(input: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buf.len() {
        match input.read(&mut buf[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// The first `limit` bytes, and a reader that gives them out again and then the rest.
pub(crate) fn peek(mut input: BoxRead, limit: usize) -> io::Result<(Vec<u8>, BoxRead)> {
    let mut head = vec![0; limit];
    let got = read_up_to(&mut input, &mut head)?;
    head.truncate(got);
    let again = io::Cursor::new(head.clone()).chain(input);
    Ok((head, Box::new(again)))
}
