//! A trace of any format, as one input or as two: requests, or an error with its place.

use fs2_trace::{BoxRead, OpenOptions, Reader, Stream, TraceError, open};

use crate::crc32c;

/// A compressed input may unpack to any length; what is read of it is bounded here, as its readers are
/// anywhere: request by request.
const REQUESTS: usize = 100_000;

pub(crate) fn run(data: &[u8]) {
    container(data);
    if data.starts_with(b"FS2TRACE") {
        let mended = mended(data);
        if mended != data {
            container(&mended);
            read(open(vec![input(&mended)], OpenOptions::default()));
        }
    }
    // Errors end it; and with errors passed over.
    read(open(vec![input(data)], OpenOptions::default()));
    let lenient = || OpenOptions { skip_bad: true, own_io: true, ..OpenOptions::default() };
    read(open(vec![input(data)], lenient()));
    let (a, b) = data.split_at(data.len() / 2);
    read(open(vec![input(a), input(b)], lenient()));
}

fn input(data: &[u8]) -> (String, BoxRead) {
    ("trace".to_owned(), Box::new(std::io::Cursor::new(data.to_vec())))
}

fn read(stream: Result<Stream, TraceError>) {
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(e) => return drop(e.to_string()),
    };
    let (mut last, mut ended) = (fs2_block::Nanos(0), false);
    for record in stream.by_ref().take(REQUESTS) {
        assert!(!ended, "nothing comes after an error");
        match record {
            Ok(record) => {
                assert!(record.at >= last, "times never go back");
                last = record.at;
            }
            Err(e) => {
                ended = true;
                drop(e.to_string());
            }
        }
    }
    assert!(stream.skipped().first.len() <= 5);
    let _ = (stream.devices(), stream.start_unix_ns(), stream.late(), stream.own(), stream.event());
}

fn container(data: &[u8]) {
    let reader = match Reader::new(data) {
        Ok(reader) => reader,
        Err(e) => return drop(e.to_string()),
    };
    let volume = reader.header().volume_bytes;
    let mut ended = false;
    for record in reader {
        assert!(!ended, "nothing comes after an error");
        match record {
            Ok(record) => assert!(record.extent.end() <= volume, "a record outside the volume"),
            Err(e) => {
                ended = true;
                drop(e.to_string());
            }
        }
    }
}

/// Our own container with its checksums mended, so that what is behind them is reached: the header's,
/// then block by block as far as their lengths lead.
fn mended(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if let Some(header) = bytes.get_mut(..64) {
        seal(header);
    }
    let mut at = 64;
    while let Some((block, payload)) = bytes.get_mut(at..).and_then(|rest| rest.split_at_mut_checked(32)) {
        let stored = u32::from_le_bytes([block[16], block[17], block[18], block[19]]) as usize;
        let Some(payload) = payload.get(..stored) else { break };
        block[20..24].copy_from_slice(&crc32c(payload).to_le_bytes());
        seal(block);
        at += 32 + stored;
    }
    bytes
}

fn seal(header: &mut [u8]) {
    let (content, crc) = header.split_at_mut(header.len() - 4);
    crc.copy_from_slice(&crc32c(content).to_le_bytes());
}
