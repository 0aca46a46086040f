//! One request of a trace.

use fs2_block::{Arrival, Extent, Nanos, Op};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A request and how it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it arrived, from the trace's start.
    pub at: Nanos,
    /// What was asked.
    pub op: Op,
    /// To which bytes; at most 4 GiB less one byte.
    pub extent: Extent,
    /// From dispatch to completion, where it was measured.
    pub service: Option<Nanos>,
    /// What it was for.
    pub flags: RecordFlags,
    /// Who asked: a connection's or a process's number, modulo 65536; 0 unknown.
    pub source: u16,
}

impl Record {
    /// A request of which no more is known.
    pub fn new(at: Nanos, op: Op, extent: Extent) -> Record {
        Record { at, op, extent, service: None, flags: RecordFlags::NONE, source: 0 }
    }

    /// The request alone.
    pub fn arrival(&self) -> Arrival {
        Arrival { at: self.at, op: self.op, extent: self.extent }
    }
}

/// What a request was for, a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordFlags(u8);

impl RecordFlags {
    /// A client's request served where the file system put its blocks.
    pub const NONE: RecordFlags = RecordFlags(0);
    /// A read served from a replica.
    pub const REPLICA: RecordFlags = RecordFlags(1);
    /// The daemon's own I/O: making or updating replicas. With [`RecordFlags::REPLICA`]: where the read of the next
    /// record took place, and when it was dispatched.
    pub const COPY: RecordFlags = RecordFlags(1 << 1);
    /// The daemon's own I/O: comparing content by hash.
    pub const HASH: RecordFlags = RecordFlags(1 << 2);
    /// Force unit access was asked.
    pub const FUA: RecordFlags = RecordFlags(1 << 3);
    /// It failed.
    pub const FAILED: RecordFlags = RecordFlags(1 << 4);
    const KNOWN: u8 = 0b1_1111;

    /// The set of these bits, or `None` where one has no meaning.
    pub fn from_bits(bits: u8) -> Option<RecordFlags> {
        (bits & !Self::KNOWN == 0).then_some(RecordFlags(bits))
    }

    /// As bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Both sets together.
    pub const fn with(self, other: RecordFlags) -> RecordFlags {
        RecordFlags(self.0 | other.0)
    }

    /// Whether all of `other` is in it.
    pub fn contains(self, other: RecordFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A record's bytes; `docs/trace-format.md` has the page.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawRecord {
    at: U64,
    offset: U64,
    service: U64,
    len: U32,
    op: u8,
    flags: u8,
    source: U16,
}

pub(crate) const RECORD_BYTES: usize = 32;
const _: () = assert!(size_of::<RawRecord>() == RECORD_BYTES);

/// Service time that was not measured.
const UNKNOWN_SERVICE: u64 = u64::MAX;

const OPS: [Op; 6] = [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard, Op::Punch, Op::Flush];

impl RawRecord {
    /// # Errors
    /// What of the record cannot be written, and what can.
    pub(crate) fn from_record(r: &Record, volume_bytes: u64) -> Result<RawRecord, String> {
        let len = u32::try_from(r.extent.len())
            .map_err(|_| format!("length {} bytes, expected at most {}", r.extent.len(), u32::MAX))?;
        within(r.extent, volume_bytes)?;
        let service = r.service.map_or(UNKNOWN_SERVICE, |s| s.0);
        if r.service.is_some() && service == UNKNOWN_SERVICE {
            return Err(format!("service time {service} ns, expected less"));
        }
        let op = OPS.iter().position(|op| *op == r.op).unwrap_or(OPS.len()) as u8;
        Ok(RawRecord {
            at: r.at.0.into(),
            offset: r.extent.offset().into(),
            service: service.into(),
            len: len.into(),
            op,
            flags: r.flags.bits(),
            source: r.source.into(),
        })
    }

    /// # Errors
    /// What of the bytes is no record, and what was expected.
    pub(crate) fn to_record(self, volume_bytes: u64) -> Result<Record, String> {
        let op = OPS
            .get(usize::from(self.op))
            .copied()
            .ok_or_else(|| format!("operation {}, expected 0 to {}", self.op, OPS.len() - 1))?;
        let flags = RecordFlags::from_bits(self.flags)
            .ok_or_else(|| format!("flags {:#04x}, expected none beyond 0x1f", self.flags))?;
        let (offset, len) = (self.offset.get(), u64::from(self.len.get()));
        let extent = Extent::checked(offset, len)
            .ok_or_else(|| format!("bytes {offset}+{len}, expected an end within 63 bits"))?;
        within(extent, volume_bytes)?;
        let service = self.service.get();
        Ok(Record {
            at: Nanos(self.at.get()),
            op,
            extent,
            service: (service != UNKNOWN_SERVICE).then_some(Nanos(service)),
            flags,
            source: self.source.get(),
        })
    }
}

fn within(extent: Extent, volume_bytes: u64) -> Result<(), String> {
    if extent.end() <= volume_bytes {
        return Ok(());
    }
    Err(format!("bytes {extent}, expected an end within the volume's {volume_bytes}"))
}
