//! A trace: records, or an error with its place.

use crate::crc32c;

pub(crate) fn run(data: &[u8]) {
    read(data);
    if data.starts_with(b"FS2TRACE") {
        let mended = mended(data);
        if mended != data {
            read(&mended);
        }
    }
}

fn read(data: &[u8]) {
    let reader = match fs2_trace::Reader::new(data) {
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
