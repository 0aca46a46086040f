//! MSR Cambridge's csv: `FILETIME,host,disk,Read|Write,offset,bytes,response`, the times in units
//! of 100 ns, the first of them from 1601 on.

use fs2_block::{Extent, Nanos, Op};

use super::Lines;
use crate::event::{Devices, Event};
use crate::text::{Fields, number};

pub(crate) struct Msr;

/// From 1601 to 1970, in units of 100 ns.
const EPOCH: i128 = 116_444_736_000_000_000;

const LINE: &str = "`FILETIME,host,disk,Read|Write,offset,bytes,response`";

/// How long a request took. A clock that was set back meanwhile leaves a number below 0, or one so large that it is no
/// time: the request was there all the same, and how long it took is not known. Nor is it where it is 0: no request takes less
/// than 100 ns, and traces of other formats that were brought into this one have 0 everywhere.
fn response(word: &[u8]) -> Option<Option<Nanos>> {
    if let Some(took) = number(word).and_then(|t| t.checked_mul(100)) {
        return Some((took > 0).then_some(Nanos(took)));
    }
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then_some(None)
}

impl Lines for Msr {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        if line.trim_ascii().is_empty() || line.starts_with(b"Timestamp") {
            return Ok(None);
        }
        let mut fields = Fields::new(line, b',');
        let (Some(time), Some(host), Some(disk), Some(op), Some(offset), Some(bytes), Some(took)) = (
            fields.next(),
            fields.next(),
            fields.next(),
            fields.next(),
            fields.next(),
            fields.next(),
            fields.next(),
        ) else {
            return Err(LINE);
        };
        let time = number(time)
            .and_then(|t| t.checked_mul(100))
            .ok_or("a FILETIME, in units of 100 ns from 1601 on")?;
        number(disk).ok_or("a disk's number")?;
        let op = match op {
            word if word.eq_ignore_ascii_case(b"read") => Op::Read,
            word if word.eq_ignore_ascii_case(b"write") => Op::Write,
            _ => return Err("Read or Write"),
        };
        let extent = number(offset)
            .zip(number(bytes))
            .and_then(|(o, n)| Extent::checked(o, n))
            .ok_or("an offset and a number of bytes, together below 2^63")?;
        let took = response(took).ok_or("a response time, in units of 100 ns")?;
        // The device's name, `host,disk`, as it stands in the line where no spaces are around either.
        let begin = line.iter().position(|b| *b == b',').ok_or(LINE)? + 1;
        let there = line.get(begin..begin + host.len() + 1 + disk.len());
        let device = match there.filter(|name| name.starts_with(host) && name.ends_with(disk)) {
            Some(name) => devices.index(name)?,
            None => devices.index(&[host, disk].join(&b','))?,
        };
        Ok(Some(Event { took: took.into(), ..Event::request(time, op, extent, device) }))
    }

    fn clock_unix_ns(&self) -> Option<i128> {
        Some(-EPOCH * 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converted and replayed, they were requests that had been measured and took no time.
    #[test]
    fn a_response_of_0_is_none() {
        for (word, took) in
            [("1", Some(100)), ("0", None), ("00", None), ("-1", None), ("18446744073709551615", None)]
        {
            assert_eq!(response(word.as_bytes()), Some(took.map(Nanos)), "{word}");
        }
        assert_eq!((response(b""), response(b"x"), response(b"-")), (None, None, None));
    }
}
