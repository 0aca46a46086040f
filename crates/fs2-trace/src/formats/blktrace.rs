//! blktrace's binary records, as `blktrace` writes them, a file for each processor.
//!
//! Version 7: magic and version u32, sequence u32, time u64 (ns), sector u64, bytes u32, action
//! u32, pid u32, device u32, cpu u32, error u16, length of what follows u16; 48 bytes. Version 8:
//! the pid before an action of 64 bits, and 12 bytes of padding; 64 bytes. (As first proposed it had
//! 8 bytes of padding; such records are told by where the second begins.) The byte order is the
//! traced machine's; the magic tells it. The low half of the action says what happened, the rest
//! what kind the request is of.

use fs2_block::{Extent, Op, SECTOR_BYTES};

use crate::error::TraceError;
use crate::event::{Devices, Event, Fault, Kind, Source};
use crate::input::{BoxRead, ByteReader};
use crate::record::RecordFlags;

const MAGIC: u32 = 0x6561_7400;
const V7_BYTES: usize = 48;
const V8_BYTES: usize = 64;
const V8_BYTES_PROPOSED: usize = 60;

// What kind, above the action: BLK_TC_*.
const READ: u64 = 1 << 16;
const WRITE: u64 = 1 << 17;
const FLUSH: u64 = 1 << 18;
const PACKET: u64 = 1 << 25;
const NOTIFY: u64 = 1 << 26;
const DISCARD: u64 = 1 << 29;
const DRIVER_DATA: u64 = 1 << 30;
const FUA: u64 = 1 << 31;
/// Zone management: reset, reset all, finish, open, close. Only version 8 has them.
const ZONE: u64 = 0b1_1111 << 33;
const WRITE_ZEROES: u64 = 1 << 38;
/// The action is followed by the number of a control group.
const CGROUP: u64 = 1 << 8;
/// Of notifications: the wall clock's time, two u32.
const TIMESTAMP: u64 = 1;

/// Whether these bytes begin a record, and in which byte order.
pub(crate) fn magic(head: &[u8]) -> Option<bool> {
    let bytes = *head.first_chunk::<4>()?;
    if u32::from_le_bytes(bytes) & !0xff == MAGIC {
        Some(false)
    } else if u32::from_be_bytes(bytes) & !0xff == MAGIC {
        Some(true)
    } else {
        None
    }
}

/// Whether these bytes, which are too few for a magic, are the first of one.
fn begins_magic(head: &[u8]) -> bool {
    // The version stands in the byte that is 0 here.
    let [big, little] = [MAGIC.to_be_bytes(), MAGIC.to_le_bytes()];
    let is_little = head.get(1..).is_some_and(|behind| little[1..].starts_with(behind));
    head.len() < 4 && (is_little || big.starts_with(head))
}

/// Reads one file.
pub(crate) struct Blktrace {
    bytes: ByteReader,
    /// The byte order, once a magic was seen.
    big_endian: Option<bool>,
    /// Bytes of a version 8 record in this file, once one was seen.
    v8_bytes: Option<usize>,
    /// The device of the record before, and its index.
    device: Option<(u32, u32)>,
    /// Nanoseconds from 1970 to time 0 of the clock.
    clock: Option<i128>,
    /// After a bad record, the next magic is looked for.
    lost: bool,
}

impl Blktrace {
    pub(crate) fn new(input: BoxRead) -> Blktrace {
        Blktrace {
            bytes: ByteReader::new(input),
            big_endian: None,
            v8_bytes: None,
            device: None,
            clock: None,
            lost: false,
        }
    }

    fn bad(&mut self, what: String) -> Fault {
        self.lost = true;
        Fault::Bad(TraceError::Byte { offset: self.bytes.offset(), what })
    }

    /// The input's last `have` bytes are too few for the record that they begin. That is its end, unless another record begins among them: then
    /// it is the length that is wrong.
    fn cut(&mut self, have: usize, what: String) -> Result<Fault, TraceError> {
        let rest = self.bytes.peek(have)?;
        let goes_on = rest.get(1..).is_some_and(|rest| rest.windows(4).any(|w| magic(w).is_some()));
        if goes_on {
            return Ok(self.bad(what));
        }
        let error = TraceError::Byte { offset: self.bytes.offset(), what };
        self.bytes.take(have);
        Ok(Fault::Fatal(error))
    }

    /// Goes on to the next magic; `false` where there is none.
    fn find(&mut self) -> Result<bool, TraceError> {
        self.bytes.take(1);
        loop {
            let head = self.bytes.peek_up_to(4096)?;
            if head.len() < 4 {
                self.bytes.peek(4)?;
                return Ok(false);
            }
            let order = self.big_endian;
            let found = head
                .windows(4)
                .position(|w| magic(w).is_some_and(|big| order.is_none_or(|order| order == big)));
            match found {
                Some(at) => {
                    self.bytes.take(at);
                    self.lost = false;
                    return Ok(true);
                }
                None => {
                    let n = head.len() - 3;
                    self.bytes.take(n);
                }
            }
        }
    }

    /// Bytes of a version 8 record: the first in a file is followed by the second, or by nothing.
    fn v8_bytes(&mut self, follows: usize) -> Result<usize, TraceError> {
        if let Some(bytes) = self.v8_bytes {
            return Ok(bytes);
        }
        let head = self.bytes.peek_up_to(V8_BYTES + follows + 4)?;
        let begins = |at: usize| head.get(at..).is_some_and(|next| magic(next).is_some());
        let short = V8_BYTES_PROPOSED + follows;
        let proposed = !begins(V8_BYTES + follows) && (begins(short) || head.len() == short);
        let bytes = if proposed { V8_BYTES_PROPOSED } else { V8_BYTES };
        self.v8_bytes = Some(bytes);
        Ok(bytes)
    }

    fn device(&mut self, raw: u32, devices: &mut Devices) -> Result<u32, &'static str> {
        if let Some((last, index)) = self.device
            && last == raw
        {
            return Ok(index);
        }
        // The kernel's own numbers: 12 bits of major, 20 of minor.
        let index = devices.index(format!("{},{}", raw >> 20, raw & 0xf_ffff).as_bytes())?;
        self.device = Some((raw, index));
        Ok(index)
    }
}

impl Source for Blktrace {
    fn next(&mut self, devices: &mut Devices) -> Result<Option<Event>, Fault> {
        if self.lost && !self.find()? {
            return Ok(None);
        }
        self.bytes.peek(V7_BYTES)?;
        let head = self.bytes.peek_up_to(V8_BYTES)?;
        if head.is_empty() {
            return Ok(None);
        }
        let Some(big) = magic(head) else {
            if begins_magic(head) {
                let have = head.len();
                return Err(self.cut(have, format!("the file ends after {have} bytes of a record"))?);
            }
            let found = head[..head.len().min(4)].to_vec();
            return Err(self.bad(format!("{found:02x?}, expected the magic 65 61 74 of a blktrace record")));
        };
        if self.big_endian.is_some_and(|order| order != big) {
            return Err(self.bad("a record of the other byte order, expected one for the whole file".into()));
        }
        let raw = Raw::parse(head, big);
        let Some(mut raw) = raw else {
            let (version, have) = (head[if big { 3 } else { 0 }], head.len());
            return Err(match version {
                7 | 8 => self.cut(have, format!("the file ends after {have} bytes of a record"))?,
                v => self.bad(format!("blktrace version {v}, expected 7 or 8")),
            });
        };
        self.big_endian = Some(big);
        if raw.bytes != V7_BYTES {
            raw.bytes = self.v8_bytes(raw.follows)?;
        }
        // Notifications carry what follows the record; nobody else's is looked at.
        if raw.category & NOTIFY != 0 && raw.action == TIMESTAMP {
            let skip = if raw.cgroup { 8 } else { 0 };
            let head = self.bytes.peek(raw.bytes + raw.follows)?;
            if let Some(pdu) = head.get(raw.bytes + skip..).and_then(|p| p.first_chunk::<8>()) {
                let word = |at: usize| {
                    let bytes = [pdu[at], pdu[at + 1], pdu[at + 2], pdu[at + 3]];
                    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
                };
                let unix = i128::from(word(0)) * 1_000_000_000 + i128::from(word(4));
                self.clock.get_or_insert(unix - i128::from(raw.time));
            }
        }
        let length = raw.bytes + raw.follows;
        let have = self.bytes.peek(length)?.len();
        if have < length {
            let what = format!("the file ends after {have} bytes of a record of {length}");
            return Err(self.cut(have, what)?);
        }
        let event = raw.event();
        let event = match event {
            Ok(event) => event,
            Err(what) => return Err(self.bad(what)),
        };
        let device = match event.kind {
            Kind::Other => 0,
            _ => match self.device(raw.device, devices) {
                Ok(device) => device,
                Err(expected) => {
                    return Err(self.bad(format!("device {:#x}, expected {expected}", raw.device)));
                }
            },
        };
        self.bytes.take(length);
        Ok(Some(Event { device, ..event }))
    }

    fn clock_unix_ns(&self) -> Option<i128> {
        self.clock
    }
}

/// A record's fields.
struct Raw {
    time: u64,
    sector: u64,
    len: u32,
    /// What happened.
    action: u64,
    cgroup: bool,
    /// What kind the request is of.
    category: u64,
    pid: u32,
    device: u32,
    error: u16,
    /// Bytes of the record, and of what follows it.
    bytes: usize,
    follows: usize,
}

impl Raw {
    /// `None` for a record cut short, or of another version.
    fn parse(head: &[u8], big: bool) -> Option<Raw> {
        let u16_at = |at: usize| {
            let bytes = [head[at], head[at + 1]];
            if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
        };
        let u32_at = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let u64_at = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            if big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
        };
        let version = if big { head[3] } else { head[0] };
        let (bytes, action, pid, device) = match version {
            7 if head.len() >= V7_BYTES => (V7_BYTES, u64::from(u32_at(28)), u32_at(32), u32_at(36)),
            8 if head.len() >= V8_BYTES_PROPOSED => (V8_BYTES, u64_at(32), u32_at(28), u32_at(40)),
            _ => return None,
        };
        // Error and length stand where version 7 has them, in version 8 four bytes later.
        let tail = if version == 7 { 44 } else { 48 };
        Some(Raw {
            time: u64_at(8),
            sector: u64_at(16),
            len: u32_at(24),
            action: action & 0xffff & !CGROUP,
            cgroup: action & CGROUP != 0,
            category: action & !0xffff,
            pid,
            device,
            error: u16_at(tail),
            bytes,
            follows: usize::from(u16_at(tail + 2)),
        })
    }

    /// The event, without its device.
    fn event(&self) -> Result<Event, String> {
        let nothing = Event {
            kind: Kind::Other,
            source: self.pid as u16,
            ..Event::request(self.time, Op::Flush, Extent::new(0, 0), 0)
        };
        let ignored = NOTIFY | PACKET | DRIVER_DATA | ZONE;
        let kind = match self.action {
            1 => Kind::Queue,
            6 => Kind::Requeue,
            7 => Kind::Issue,
            8 => Kind::Complete,
            12 => Kind::Insert,
            _ => return Ok(nothing),
        };
        if self.category & ignored != 0 {
            return Ok(nothing);
        }
        let op = match self.len {
            // A write of no bytes is there for the flush before it, whether that is said or not.
            0 if self.category & (FLUSH | WRITE) != 0 => Op::Flush,
            0 => return Ok(nothing),
            _ if self.category & DISCARD != 0 => Op::Discard,
            _ if self.category & WRITE_ZEROES != 0 => Op::WriteZeroes,
            _ if self.category & WRITE != 0 => Op::Write,
            _ if self.category & READ != 0 => Op::Read,
            _ => return Ok(nothing),
        };
        let extent = self
            .sector
            .checked_mul(SECTOR_BYTES)
            .and_then(|offset| Extent::checked(offset, u64::from(self.len)))
            .filter(|_| op != Op::Flush)
            .or((op == Op::Flush).then(|| Extent::new(0, 0)))
            .ok_or_else(|| format!("sector {}, expected an end below 2^63 bytes", self.sector))?;
        let mut flags = RecordFlags::NONE;
        if self.category & FUA != 0 && op == Op::Write {
            flags = flags.with(RecordFlags::FUA);
        }
        if kind == Kind::Complete && self.error != 0 {
            flags = flags.with(RecordFlags::FAILED);
        }
        Ok(Event { kind, op, extent, flags, ..nothing })
    }
}
