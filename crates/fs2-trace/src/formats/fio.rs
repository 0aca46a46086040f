//! fio's iolog. Version 2: `file action [offset length]`, where `file wait ms 0` says that what follows comes that many milliseconds
//! after the start: so fio 3.33 plays it, measured; its manual says microseconds after the wait before. Version 3:
//! `us file action [offset length]`. Each file is a device.

use fs2_block::{Extent, Op};

use super::Lines;
use crate::event::{Devices, Event};
use crate::text::{Words, decimal, number};

/// The version, 0 before the first line, and the time reached, in nanoseconds.
#[derive(Default)]
pub(crate) struct Fio {
    version: u8,
    time: u64,
}

impl Lines for Fio {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        let mut words = Words::new(line);
        if self.version == 0 {
            self.version = match line.trim_ascii() {
                b"fio version 2 iolog" => 2,
                b"fio version 3 iolog" => 3,
                _ => return Err("`fio version 2 iolog` or `fio version 3 iolog` in the first line"),
            };
            return Ok(None);
        }
        let Some(mut file) = words.next() else { return Ok(None) };
        if self.version == 3 {
            // Times may go back: several threads write one log.
            self.time = decimal(file, 1000).ok_or("a time in microseconds")?;
            file = words.next().ok_or("`us file action [offset length]`")?;
        }
        let action = words.next().ok_or("`file action [offset length]`")?;
        let op = match action {
            b"add" | b"open" | b"close" | b"unlink" => return Ok(None),
            b"wait" if self.version == 2 => {
                let at = words.next().and_then(|w| decimal(w, 1_000_000));
                self.time = self.time.max(at.ok_or("a time in milliseconds after `wait`")?);
                return Ok(None);
            }
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            _ => return Err("an action: add, open, close, read, write, trim, sync, datasync or wait"),
        };
        let extent = if op == Op::Flush {
            Extent::new(0, 0)
        } else {
            let (offset, len) = (words.next().and_then(number), words.next().and_then(number));
            offset
                .zip(len)
                .and_then(|(o, n)| Extent::checked(o, n))
                .ok_or("an offset and a length in bytes, together below 2^63")?
        };
        let device = devices.index(file)?;
        Ok(Some(Event::request(self.time, op, extent, device)))
    }
}
