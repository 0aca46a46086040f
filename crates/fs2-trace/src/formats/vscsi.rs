//! vscsiStats' binary records, little-endian, LBAs of 512 bytes and times in microseconds.
//!
//! Version 1, 32 bytes: number u32, bytes u32, segments u32, command u16, version u16, LBA u64,
//! time u64. Version 2, 40 bytes: command u16, version u16, number u32, bytes u32, segments u32,
//! LBA u64, time u64, response time u64. The version's high byte is 1 or 2.

use fs2_block::{Extent, Nanos, Op, SECTOR_BYTES};

use crate::error::TraceError;
use crate::event::{Devices, Event, Fault, Source};
use crate::input::{BoxRead, ByteReader};

const fn record_bytes(version: u8) -> usize {
    if version == 1 { 32 } else { 40 }
}

/// Where a record's command and version stand.
const fn command_at(version: u8) -> usize {
    if version == 1 { 12 } else { 0 }
}

/// Whether all whole records within these bytes, and at least one, are of this version.
pub(crate) fn fits(head: &[u8], version: u8) -> bool {
    let mut any = false;
    for record in head.chunks_exact(record_bytes(version)).take(1000) {
        let at = command_at(version);
        let command = u16::from_le_bytes([record[at], record[at + 1]]);
        if record[at + 3] != version || command > 0xff {
            return false;
        }
        any = true;
    }
    any
}

/// What a SCSI command does; `None` where it moves no data and is no flush.
fn op(command: u16) -> Option<Op> {
    match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(Op::Write),
        0x41 | 0x93 => Some(Op::WriteZeroes),
        0x35 | 0x91 => Some(Op::Flush),
        _ => None,
    }
}

/// Reads one file of records of version `V`.
pub(crate) struct Vscsi<const V: u8> {
    bytes: ByteReader,
}

impl<const V: u8> Vscsi<V> {
    pub(crate) fn new(input: BoxRead) -> Vscsi<V> {
        Vscsi { bytes: ByteReader::new(input) }
    }
}

impl<const V: u8> Source for Vscsi<V> {
    fn next(&mut self, devices: &mut Devices) -> Result<Option<Event>, Fault> {
        let size = const { record_bytes(V) };
        loop {
            let offset = self.bytes.offset();
            let bad = |what| Fault::Bad(TraceError::Byte { offset, what });
            let record = self.bytes.peek(size)?;
            if record.is_empty() {
                return Ok(None);
            }
            if record.len() < size {
                let what = format!("the file ends after {} bytes of a record of {size}", record.len());
                self.bytes.take(size);
                return Err(Fault::Fatal(TraceError::Byte { offset, what }));
            }
            let u32_at = |at| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
            let u64_at = |at| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
            let at = const { command_at(V) };
            let command = u16::from_le_bytes([record[at], record[at + 1]]);
            let version = record[at + 3];
            let len = u64::from(if V == 1 { u32_at(4) } else { u32_at(8) });
            let (lba, time) = (u64_at(16), u64_at(24));
            let took = (V == 2).then(|| u64_at(size - 8));
            self.bytes.take(size);
            if version != V {
                return Err(bad(format!("a record of version {version}, expected {V}")));
            }
            let Some(op) = op(command) else { continue };
            let extent = if op == Op::Flush {
                Some(Extent::new(0, 0))
            } else {
                lba.checked_mul(SECTOR_BYTES).and_then(|o| Extent::checked(o, len))
            };
            let extent = extent.ok_or_else(|| bad(format!("LBA {lba}, expected an end below 2^63 bytes")))?;
            let time = time
                .checked_mul(1000)
                .ok_or_else(|| bad(format!("time {time}, expected microseconds below 584,000 years")))?;
            let device = devices.index(b"").map_err(|what| bad(what.to_owned()))?;
            let took = took.and_then(|t| t.checked_mul(1000)).map(Nanos);
            return Ok(Some(Event { took: took.into(), ..Event::request(time, op, extent, device) }));
        }
    }
}
