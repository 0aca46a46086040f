//! SPC-1 traces: `ASU,LBA,bytes,R|W,seconds[,...]`, with LBAs of 512 bytes.

use fs2_block::{Op, SECTOR_BYTES};

use super::Lines;
use crate::event::{Devices, Event};
use crate::text::{Fields, decimal, number};

pub(crate) struct Spc;

const LINE: &str = "`ASU,LBA,bytes,R|W,seconds`";

impl Lines for Spc {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        let names = line.get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"ASU,"));
        if line.trim_ascii().is_empty() || line[0] == b'#' || names {
            return Ok(None);
        }
        let mut fields = Fields::new(line, b',');
        let (Some(asu), Some(lba), Some(bytes), Some(op), Some(time)) =
            (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(LINE);
        };
        number(asu).ok_or("an ASU, a number")?;
        let offset = number(lba).and_then(|n| n.checked_mul(SECTOR_BYTES));
        let extent = offset
            .zip(number(bytes))
            .and_then(|(o, n)| fs2_block::Extent::checked(o, n))
            .ok_or("an LBA and a number of bytes, together below 2^63 bytes")?;
        let op = read_or_write(op).ok_or("R or W")?;
        let time = decimal(time, 1_000_000_000).ok_or("a time in seconds")?;
        let device = devices.index(asu)?;
        Ok(Some(Event::request(time, op, extent, device)))
    }
}

/// The operation of a letter.
pub(super) fn read_or_write(word: &[u8]) -> Option<Op> {
    match word {
        b"R" | b"r" => Some(Op::Read),
        b"W" | b"w" => Some(Op::Write),
        _ => None,
    }
}
