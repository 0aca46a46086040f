//! FIU's traces: `ns pid process LBA sectors R|W major minor md5`, sectors of 512 bytes.

use super::Lines;
use super::spc::read_or_write;
use crate::event::{Devices, Event, sectors};
use crate::text::{Words, number};

pub(crate) struct Fiu;

const LINE: &str = "`ns pid process LBA sectors R|W major minor md5`";

/// Most words of a line that are looked at: a process's name may have some in it.
const WORDS: usize = 24;

impl Lines for Fiu {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        if line.trim_ascii().is_empty() || line[0] == b'#' {
            return Ok(None);
        }
        let mut words = [&[][..]; WORDS];
        let mut n = 0;
        for word in Words::new(line) {
            *words.get_mut(n).ok_or(LINE)? = word;
            n += 1;
        }
        // From the end, since the process's name is the field whose words are not known.
        let [time, pid, .., lba, count, op, major, minor, _md5] = &words[..n] else { return Err(LINE) };
        if n < 9 {
            return Err(LINE);
        }
        let time = number(time).ok_or("a time in nanoseconds")?;
        let pid = number(pid).ok_or("a process's number")?;
        let extent = number(lba)
            .zip(number(count))
            .and_then(|(s, n)| sectors(s, n))
            .ok_or("an LBA and a number of sectors, together below 2^54")?;
        let op = read_or_write(op).ok_or("R or W")?;
        number(major).and(number(minor)).ok_or("a device's major and minor number")?;
        let mut name = [0; 41];
        let len = major.len() + 1 + minor.len();
        name[..major.len()].copy_from_slice(major);
        name[major.len()] = b',';
        name[major.len() + 1..len].copy_from_slice(minor);
        let device = devices.index(&name[..len])?;
        Ok(Some(Event { source: pid as u16, ..Event::request(time, op, extent, device) }))
    }
}
