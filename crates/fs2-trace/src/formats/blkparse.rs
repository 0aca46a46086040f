//! blkparse's text: its default form, and the shorter one of trace points.
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//!   8,0    1        9     0.000412000     0  C   W 223490 + 8 [0]
//! 0.000016 D RM 9240 8 20496 bash
//! ```
//! Device, processor, number, seconds, process, action, kind, sector and sectors of 512 bytes.

use fs2_block::{Extent, Op};

use super::Lines;
use crate::event::{Devices, Event, Kind, sectors};
use crate::record::RecordFlags;
use crate::text::{Words, decimal, number};

/// Whether the summary that blkparse puts at the end was reached. Another run's events may follow it, in a file put
/// together from several.
#[derive(Default)]
pub(crate) struct Blkparse {
    summary: bool,
}

const LINE: &str = "`device cpu number seconds pid action rwbs [sector + sectors]` or \
                    `seconds action rwbs sector sectors pid command`";
const SECONDS: &str = "a time in seconds";
const ACTION: &str = "an action as blkparse has them (Q, G, I, D, C, M, F, ...)";
const RWBS: &str = "a kind of request as blkparse has them (R, W, D, F, N, then F, A, S, M)";
const SECTORS: &str = "a sector and a number of sectors, together below 2^54";
const PID: &str = "a process's number";

impl Lines for Blkparse {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str> {
        let mut words = Words::new(line);
        let Some(first) = words.next() else { return Ok(None) };
        self.summary |= first.starts_with(b"CPU") || first.starts_with(b"Total");
        // No line of a summary begins with a device.
        if self.summary && split_device(first).is_none() {
            return Ok(None);
        }
        self.summary = false;
        // blkparse names its inputs on standard output, before the events or behind the summary.
        if first[0] == b'#' || line.starts_with(b"Input file ") {
            return Ok(None);
        }
        if first.contains(&b',') { long(first, words, devices) } else { short(first, words, devices) }
    }
}

/// A device's numbers: `major,minor`.
fn split_device(word: &[u8]) -> Option<(u64, u64)> {
    let (major, minor) = word.split_at(word.iter().position(|b| *b == b',')?);
    number(major).zip(number(&minor[1..]))
}

/// The default form, after its first word.
fn long(device: &[u8], mut words: Words, devices: &mut Devices) -> Result<Option<Event>, &'static str> {
    split_device(device).ok_or("a device, `major,minor`")?;
    let (Some(_cpu), Some(_number), Some(time), Some(pid), Some(action)) =
        (words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Err(LINE);
    };
    let time = decimal(time, 1_000_000_000).ok_or(SECONDS)?;
    let pid = number(pid).ok_or(PID)?;
    let Some(kind) = kind(action)? else { return Ok(None) };
    let Some(rwbs) = Rwbs::parse(words.next().ok_or(RWBS)?)? else { return Ok(None) };
    let mut sector = 0;
    let mut count = 0;
    let mut failed = false;
    let mut word = words.next();
    if let Some(w) = word.filter(|w| w[0].is_ascii_digit()) {
        sector = number(w).ok_or(SECTORS)?;
        word = words.next();
        if word == Some(b"+") {
            count = words.next().and_then(number).ok_or(SECTORS)?;
            word = words.next();
        }
    } else if word.is_some_and(|w| w[0] == b'(') {
        // A SCSI command handed through.
        return Ok(None);
    }
    if kind == Kind::Complete {
        // The error is the last word; with `-t` there is a time before it, `( 4990000)`.
        failed = word.into_iter().chain(words).last().is_some_and(|w| w.starts_with(b"[") && w != b"[0]");
    }
    let extent = place(sector, count).ok_or(SECTORS)?;
    let device = devices.index(device)?;
    Ok(rwbs.event(time, kind, extent, pid, device).map(|mut event| {
        if failed {
            event.flags = event.flags.with(RecordFlags::FAILED);
        }
        event
    }))
}

/// The shorter form, after its first word.
fn short(time: &[u8], mut words: Words, devices: &mut Devices) -> Result<Option<Event>, &'static str> {
    let time = decimal(time, 1_000_000_000).ok_or(LINE)?;
    let Some(kind) = kind(words.next().ok_or(LINE)?)? else { return Ok(None) };
    let Some(rwbs) = Rwbs::parse(words.next().ok_or(RWBS)?)? else { return Ok(None) };
    let (Some(sector), Some(count), Some(pid)) = (words.next(), words.next(), words.next()) else {
        return Err(LINE);
    };
    let extent = number(sector).zip(number(count)).and_then(|(s, n)| place(s, n)).ok_or(SECTORS)?;
    let pid = number(pid).ok_or(PID)?;
    let device = devices.index(b"")?;
    Ok(rwbs.event(time, kind, extent, pid, device))
}

/// Where a request lies. One without a place, a flush, may say so by a sector of all ones, and then has no sectors.
fn place(sector: u64, count: u64) -> Option<Extent> {
    if (sector, count) == (u64::MAX, 0) { Some(Extent::new(0, 0)) } else { sectors(sector, count) }
}

/// What an action is to us; `None` where nothing.
fn kind(action: &[u8]) -> Result<Option<Kind>, &'static str> {
    Ok(Some(match action {
        b"Q" => Kind::Queue,
        b"I" => Kind::Insert,
        b"D" => Kind::Issue,
        b"R" => Kind::Requeue,
        b"C" => Kind::Complete,
        b"G" | b"S" | b"M" | b"F" | b"P" | b"U" | b"UT" | b"X" | b"B" | b"A" | b"m" | b"T" | b"N" | b"ZP"
        | b"ZU" | b"ZM" => return Ok(None),
        _ => return Err(ACTION),
    }))
}

/// The letters that say what kind a request is of.
pub(crate) struct Rwbs {
    op: Op,
    /// A flush goes before it.
    preflush: bool,
    fua: bool,
}

impl Rwbs {
    /// `None` for what neither reads nor writes: commands of drivers and of zones.
    fn parse(word: &[u8]) -> Result<Option<Rwbs>, &'static str> {
        if word.len() > 16 || !word.iter().all(u8::is_ascii_uppercase) {
            return Err(RWBS);
        }
        let preflush = matches!(word, [b'F', b'R' | b'W' | b'D' | b'F' | b'N' | b'Z', ..]);
        let (op, rest) = match &word[usize::from(preflush)..] {
            [b'R', rest @ ..] => (Op::Read, rest),
            [b'W', b'Z', rest @ ..] => (Op::WriteZeroes, rest),
            // A zone append writes, at the place its completion says.
            [b'W', rest @ ..] | [b'Z', b'A', rest @ ..] => (Op::Write, rest),
            [b'D', b'E', rest @ ..] | [b'D', rest @ ..] => (Op::Discard, rest),
            [b'F', rest @ ..] => (Op::Flush, rest),
            [b'N', rest @ ..] if preflush => (Op::Flush, rest),
            [b'N' | b'Z', ..] => return Ok(None),
            _ => return Err(RWBS),
        };
        Ok(Some(Rwbs { op, preflush, fua: rest.contains(&b'F') }))
    }

    /// The event, `None` for a request of no sectors that does nothing.
    fn event(&self, time: u64, kind: Kind, extent: Extent, pid: u64, device: u32) -> Option<Event> {
        let empty = extent.is_empty();
        // A write of no sectors is there for the flush before it, whether that is said or not.
        let flush = self.preflush || self.op == Op::Write;
        let op = if empty && flush { Op::Flush } else { self.op };
        if empty && op != Op::Flush {
            return None;
        }
        let fua = self.fua && op == Op::Write;
        let extent = if op == Op::Flush { Extent::new(0, 0) } else { extent };
        Some(Event {
            kind,
            flags: if fua { RecordFlags::FUA } else { RecordFlags::NONE },
            source: pid as u16,
            ..Event::request(time, op, extent, device)
        })
    }
}
