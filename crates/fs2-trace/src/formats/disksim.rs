//! DiskSim's own traces: `ms device block count flags`, and its validation traces:
//! `R|W Hit|Miss block count service_us gap_us`. Blocks are of 512 bytes.

use fs2_block::{Nanos, Op};

use super::Lines;
use super::spc::read_or_write;
use crate::event::{Devices, Event, sectors};
use crate::text::{Words, decimal, hex, number};

const BLOCKS: &str = "a block and a number of blocks, together below 2^54";

/// `ms device block count flags`; the flags are hexadecimal, bit 0 is a read.
pub(crate) struct Ascii;

impl Lines for Ascii {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        let mut words = Words::new(line);
        let Some(time) = words.next().filter(|w| w[0] != b'#') else { return Ok(None) };
        let (Some(device), Some(block), Some(count), Some(flags), None) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Err("`ms device block count flags`");
        };
        let time = decimal(time, 1_000_000).ok_or("a time in milliseconds")?;
        number(device).ok_or("a device's number")?;
        let extent = number(block).zip(number(count)).and_then(|(s, n)| sectors(s, n)).ok_or(BLOCKS)?;
        let flags = hex(flags).ok_or("flags in hexadecimal")?;
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        let device = devices.index(device)?;
        Ok(Some(Event::request(time, op, extent, device)))
    }
}

/// One request at a time: the next arrives its gap after this one was served.
#[derive(Default)]
pub(crate) struct Validate {
    /// When the next request arrives.
    next: u64,
}

impl Lines for Validate {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        let mut words = Words::new(line);
        let Some(op) = words.next().filter(|w| w[0] != b'#') else { return Ok(None) };
        let (Some(cache), Some(block), Some(count), Some(service), Some(gap), None) =
            (words.next(), words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Err("`R|W Hit|Miss block count service_us gap_us`");
        };
        let op = read_or_write(op).ok_or("R or W")?;
        if !cache.is_ascii() || !cache[0].is_ascii_alphabetic() {
            return Err("Hit or Miss");
        }
        let extent = number(block).zip(number(count)).and_then(|(s, n)| sectors(s, n)).ok_or(BLOCKS)?;
        let service = decimal(service, 1000).ok_or("a service time in microseconds")?;
        let gap = decimal(gap, 1000).ok_or("a gap in microseconds")?;
        let time = self.next;
        self.next = time
            .checked_add(service)
            .and_then(|t| t.checked_add(gap))
            .ok_or("times that end within 584 years")?;
        let device = devices.index(b"")?;
        Ok(Some(Event { took: Some(Nanos(service)).into(), ..Event::request(time, op, extent, device) }))
    }
}
