//! HP's SRT: a header of text that begins `$$TR_IOREC-1.` and ends with a form feed, then records
//! of big-endian u32: bytes of the record, version and type, seconds, microseconds, start and stop
//! in microseconds from there, bytes, sector of 256 bytes, device, driver, cylinder, flags, origin,
//! and later versions' additions. Type 1 is a request, type 4 one that the tracer doubts: DiskSim
//! leaves those out, and so does this reader.

use fs2_block::{Extent, Nanos, Op};

use crate::error::TraceError;
use crate::event::{Devices, Event, Fault, Source};
use crate::input::{BoxRead, ByteReader};

/// How a trace begins.
pub(crate) const MAGIC: &[u8] = b"$$TR_IOREC-1.";
const FORM_FEED: u8 = 0x0c;

/// Longest header of text.
const HEADER_MAX: usize = 64 << 10;
/// Shortest record: the fields of version 1.
const RECORD_MIN: usize = 13 * 4;
/// Longest: later versions add a few fields.
const RECORD_MAX: usize = 256;
const SECTOR_BYTES: u64 = 256;

/// Of the flags: a read.
const READ: u32 = 1;
const SHORT_IO: u32 = 1;
const SUSPECT_IO: u32 = 4;

/// Reads one file.
pub(crate) struct Srt {
    bytes: ByteReader,
}

impl Srt {
    /// # Errors
    /// Where no record follows the header.
    pub(crate) fn new(input: BoxRead) -> Result<Srt, TraceError> {
        let mut bytes = ByteReader::new(input);
        let head = bytes.peek_up_to(HEADER_MAX)?;
        let what = |what: &str| Err(TraceError::Byte { offset: 0, what: what.to_owned() });
        if !head.starts_with(MAGIC) {
            return what("no header, expected one that begins with `$$TR_IOREC-1.`");
        }
        // The form feed ends the header, or a line's end where a tool has dropped it.
        let ends = |mark: u8| {
            let places = head.iter().enumerate().filter(move |(_, b)| **b == mark);
            places.map(|(at, _)| at + 1)
        };
        let begins = |at: &usize| head[*at..].is_empty() || plausible(&head[*at..]);
        let start = ends(FORM_FEED)
            .flat_map(|at| [at, (at + 1).min(head.len())])
            .find(begins)
            .or_else(|| ends(b'\n').find(begins));
        let Some(start) = start else {
            return what("no record after the header, expected one after a form feed");
        };
        bytes.take(start);
        Ok(Srt { bytes })
    }
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|i| record[at + i]))
}

/// Whether these bytes can be a record's first.
fn plausible(head: &[u8]) -> bool {
    if head.len() < 8 {
        return false;
    }
    let (size, id) = (u32_at(head, 0) as usize, u32_at(head, 4));
    (RECORD_MIN..=RECORD_MAX).contains(&size)
        && (1..=8).contains(&(id >> 16))
        && (1..=10).contains(&(id & 0xffff))
}

impl Source for Srt {
    fn next(&mut self, devices: &mut Devices) -> Result<Option<Event>, Fault> {
        loop {
            let offset = self.bytes.offset();
            let bad = |what| Fault::Bad(TraceError::Byte { offset, what });
            let head = self.bytes.peek(RECORD_MIN)?;
            if head.is_empty() {
                return Ok(None);
            }
            if head.len() < RECORD_MIN {
                let what = format!("the file ends after {} bytes of a record", head.len());
                self.bytes.take(RECORD_MIN);
                return Err(Fault::Fatal(TraceError::Byte { offset, what }));
            }
            if !plausible(head) {
                let (size, id) = (u32_at(head, 0), u32_at(head, 4));
                // Records are made of u32: the next may begin at any of them.
                self.bytes.take(4);
                return Err(bad(format!(
                    "a record of {size} bytes, version {}, type {}, expected 52 to 256, 1 to 8, 1 to 10",
                    id >> 16,
                    id & 0xffff
                )));
            }
            let size = u32_at(head, 0) as usize;
            let kind = u32_at(head, 4) & 0xffff;
            let at = |word: usize| u64::from(u32_at(head, word * 4));
            let time = at(2) * 1_000_000_000 + at(3) * 1000;
            let took = at(5).checked_sub(at(4)).map(|us| Nanos(us * 1000));
            let (len, sector, device) = (at(6), at(7), at(8));
            let read = u32_at(head, 11 * 4) & READ != 0;
            let have = self.bytes.peek(size)?.len();
            self.bytes.take(size);
            if have < size {
                let what = format!("the file ends after {have} bytes of a record of {size}");
                return Err(Fault::Fatal(TraceError::Byte { offset, what }));
            }
            match kind {
                SHORT_IO => {}
                SUSPECT_IO => continue,
                kind => return Err(bad(format!("a record of type {kind}, expected 1 or 4"))),
            }
            let op = if read { Op::Read } else { Op::Write };
            let extent = Extent::new(sector * SECTOR_BYTES, len);
            let device = devices.index(device.to_string().as_bytes()).map_err(|what| bad(what.to_owned()))?;
            return Ok(Some(Event { took: took.into(), ..Event::request(time, op, extent, device) }));
        }
    }
}
