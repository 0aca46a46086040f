//! blkreplay's .load: prose, then `seconds ; sector ; sectors ; R|W ; delay ; duration`.

use fs2_block::Nanos;

use super::Lines;
use super::spc::read_or_write;
use crate::event::{Devices, Event, sectors};
use crate::text::{Fields, decimal, number};

/// Whether the prose is over.
#[derive(Default)]
pub(crate) struct Blkreplay {
    begun: bool,
}

const LINE: &str = "`seconds ; sector ; sectors ; R|W ; delay ; duration`";

impl Lines for Blkreplay {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        let text = line.trim_ascii();
        // The line of titles; a file put together from several has one for each.
        if text.is_empty() || text[0] == b'#' || text.starts_with(b"start ") || text.starts_with(b"start;") {
            return Ok(None);
        }
        match parse(text, devices) {
            Ok(event) => {
                self.begun = true;
                Ok(Some(event))
            }
            Err(_) if !self.begun && !text[0].is_ascii_digit() => Ok(None),
            Err(expected) => Err(expected),
        }
    }
}

fn parse(text: &[u8], devices: &mut Devices) -> Result<Event, &'static str> {
    let mut fields = Fields::new(text, b';');
    let (Some(time), Some(sector), Some(count), Some(op)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(LINE);
    };
    let time = decimal(time, 1_000_000_000).ok_or("a time in seconds")?;
    let extent = number(sector)
        .zip(number(count))
        .and_then(|(s, n)| sectors(s, n))
        .ok_or("a sector and a number of sectors, together below 2^54")?;
    // Letters after the first are those of blkparse: ahead, synchronous, metadata.
    let (kind, letters) = op.split_at(op.len().min(1));
    let op = read_or_write(kind)
        .filter(|_| letters.len() < 8 && letters.iter().all(u8::is_ascii_uppercase))
        .ok_or("R or W, then letters as blkparse has them")?;
    let duration = fields.nth(1).and_then(|w| decimal(w, 1_000_000_000)).filter(|d| *d > 0);
    let device = devices.index(b"")?;
    Ok(Event { took: duration.map(Nanos).into(), ..Event::request(time, op, extent, device) })
}
