//! fio's iolog. Version 2: `file action [offset length]`, where `file wait ms 0` says that what follows comes that many milliseconds
//! after the start: so fio 3.33 plays it, measured; its manual says microseconds after the wait before. Version 3:
//! `us file action [offset length]`. Each file is a device. fio writes `sync_file_range`, too, which its manual does not name and fio itself
//! does not play: it has the kernel write what it holds of the file, as it would anyway, and asks the drive for nothing.

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
            b"add" | b"open" | b"close" | b"unlink" | b"sync_file_range" => return Ok(None),
            b"wait" if self.version == 2 => {
                let at = words.next().and_then(|w| decimal(w, 1_000_000));
                self.time = self.time.max(at.ok_or("a time in milliseconds after `wait`")?);
                return Ok(None);
            }
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            b"wait" => return Err("an action other than `wait`: in version 3 each line says its time"),
            _ => {
                return Err(
                    "an action: add, open, close, read, write, trim, sync, datasync, sync_file_range or, in version 2, wait",
                );
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(log: &str) -> Result<Vec<(u64, Op)>, &'static str> {
        let (mut fio, mut devices) = (Fio::default(), Devices::default());
        let mut all = Vec::new();
        for line in log.lines() {
            all.extend(fio.parse(line.as_bytes(), &mut devices)?.map(|e| (e.time, e.op)));
        }
        Ok(all)
    }

    /// As fio 3.33 writes it with `sync_file_range=write:2`: such a log was refused.
    #[test]
    fn every_action_that_fio_writes_is_one() {
        let three = "fio version 3 iolog\n33 f add\n176 f open\n180 f write 0 4096\n218 f sync_file_range 4096 0\n\
            326 f datasync 12288 0\n330 f sync 0 0\n340 f trim 0 4096\n350 f read 0 4096\n360 f close\n";
        let (us, f) = (1000, Op::Flush);
        let all = [(180, Op::Write), (326, f), (330, f), (340, Op::Discard), (350, Op::Read)];
        assert_eq!(ops(three).unwrap(), all.map(|(at, op)| (at * us, op)));
        let two = "fio version 2 iolog\nf add\nf open\nf wait 7 0\nf sync_file_range 0 0\nf datasync 0 0\nf close\n";
        assert_eq!(ops(two).unwrap(), [(7_000_000, f)]);
        for (log, says) in [
            ("fio version 3 iolog\n1 f wait 5 0\n", "`wait`"),
            ("fio version 3 iolog\n1 f syncfs 0 0\n", "sync_file_range"),
            ("fio version 2 iolog\nf invalid 0 0\n", "wait"),
        ] {
            assert!(ops(log).unwrap_err().contains(says), "{log}");
        }
    }
}
