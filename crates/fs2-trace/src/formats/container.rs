//! The project's own container: fixed records in compressed blocks. `docs/trace-format.md`.
//!
//! * T1: what [`Writer::push`] accepts, [`Reader`] gives back unchanged.
//! * T2: a reader holds one block at a time, at most [`MAX_RECORDS`] records, whatever the bytes say.
//! * T3: a reader gives out records of whole, checked blocks only, and nothing after an error; as a
//!   source of events it goes on behind damage where that is asked for, with whole, checked blocks.

use std::io::{self, BufReader, ErrorKind, Read, Write};

use fs2_block::BlockSize;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zstd::bulk::{Compressor, Decompressor};

use crate::error::TraceError;
use crate::event::{Devices, Event, Fault, Kind, Source};
use crate::input::BoxRead;
use crate::record::{RECORD_BYTES, RawRecord, Record};

/// How a container begins.
pub(crate) const MAGIC: [u8; 8] = *b"FS2TRACE";
const BLOCK_MAGIC: [u8; 4] = *b"FS2B";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 64;
const BLOCK_HEADER_BYTES: usize = 32;

/// Most records in a block: 2 MiB of them.
const MAX_RECORDS: usize = 65_536;
/// Most bytes of a block's payload: zstd's bound for 2 MiB is 2 MiB and 8 KiB.
const MAX_STORED: usize = MAX_RECORDS * RECORD_BYTES + 8192;
/// Records the writer puts in a block: 256 KiB, lost at most when its process dies.
const WRITER_RECORDS: usize = 8192;
/// Compression level: zstd's default.
const LEVEL: i32 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U16,
    header_bytes: U16,
    record_bytes: U16,
    reserved: U16,
    volume_bytes: U64,
    block_size: U32,
    reserved2: U32,
    start_unix_ns: U64,
    reserved3: [u8; 20],
    crc: U32,
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlock {
    magic: [u8; 4],
    records: U32,
    first_record: U64,
    stored_bytes: U32,
    payload_crc: U32,
    reserved: U32,
    crc: U32,
}
const _: () = assert!(size_of::<RawBlock>() == BLOCK_HEADER_BYTES);

/// Checksum of a header: CRC-32C of all but its last four bytes.
fn crc_of(header: &[u8]) -> u32 {
    crc32c::crc32c(&header[..header.len() - 4])
}

/// What a trace says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the traced volume; every request lies within.
    pub volume_bytes: u64,
    /// Its file system's block size, where known.
    pub block_size: Option<BlockSize>,
    /// Nanoseconds from 1970 to the trace's start, 0 unknown.
    pub start_unix_ns: u64,
}

/// Writes a trace. Records are buffered; [`Writer::finish`] marks the trace complete.
pub struct Writer<W: Write> {
    out: W,
    header: Header,
    pending: Vec<u8>,
    stored: Vec<u8>,
    /// Records in blocks already written.
    written: u64,
    /// A write failed: `out` may end in part of a block, and nothing may follow that.
    failed: bool,
    compressor: Compressor<'static>,
}

impl Header {
    /// Bytes of a header.
    pub const BYTES: usize = HEADER_BYTES;

    /// The bytes with which a trace begins. A writer that learns the volume's size only at the end
    /// puts them over those at the file's start.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            header_bytes: (HEADER_BYTES as u16).into(),
            record_bytes: (RECORD_BYTES as u16).into(),
            reserved: 0.into(),
            volume_bytes: self.volume_bytes.into(),
            block_size: self.block_size.map_or(0, BlockSize::bytes).into(),
            reserved2: 0.into(),
            start_unix_ns: self.start_unix_ns.into(),
            reserved3: [0; 20],
            crc: 0.into(),
        };
        raw.crc = crc_of(raw.as_bytes()).into();
        zerocopy::transmute!(raw)
    }
}

impl<W: Write> Writer<W> {
    /// Begins a trace: writes the header.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W, header: Header) -> io::Result<Writer<W>> {
        out.write_all(&header.to_bytes())?;
        Ok(Writer {
            out,
            header,
            pending: Vec::with_capacity(WRITER_RECORDS * RECORD_BYTES),
            stored: Vec::with_capacity(zstd::zstd_safe::compress_bound(WRITER_RECORDS * RECORD_BYTES)),
            written: 0,
            failed: false,
            compressor: Compressor::new(LEVEL)?,
        })
    }

    /// Adds a record. Records need not come in order of arrival.
    ///
    /// # Errors
    /// `InvalidInput` for a record outside the volume or longer than 32 bits of bytes (nothing is
    /// added, the trace is unharmed); otherwise what `out` says. After that the trace ends where it
    /// was, and every further call fails.
    pub fn push(&mut self, record: &Record) -> io::Result<()> {
        let raw = RawRecord::from_record(record, self.header.volume_bytes)
            .map_err(|what| io::Error::new(ErrorKind::InvalidInput, what))?;
        self.pending.extend_from_slice(raw.as_bytes());
        if self.pending.len() == WRITER_RECORDS * RECORD_BYTES { self.end_block() } else { Ok(()) }
    }

    /// Records pushed so far.
    pub fn records(&self) -> u64 {
        self.written + (self.pending.len() / RECORD_BYTES) as u64
    }

    /// Ends the block at hand, so that what was pushed can be read even if no more is written.
    ///
    /// # Errors
    /// What `out` says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.end_block()?;
        self.out.flush()
    }

    /// Completes the trace and gives back what it was written to.
    ///
    /// # Errors
    /// What `out` says.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_block()?;
        // A block without records ends a trace.
        self.write_block(0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_block(&mut self) -> io::Result<()> {
        let records = self.pending.len() / RECORD_BYTES;
        if records == 0 {
            return Ok(());
        }
        self.compressor.compress_to_buffer(&self.pending, &mut self.stored)?;
        self.pending.clear();
        self.write_block(records)
    }

    fn write_block(&mut self, records: usize) -> io::Result<()> {
        if std::mem::replace(&mut self.failed, true) {
            return Err(io::Error::other("an earlier write of this trace failed"));
        }
        let mut raw = RawBlock {
            magic: BLOCK_MAGIC,
            records: (records as u32).into(),
            first_record: self.written.into(),
            stored_bytes: (self.stored.len() as u32).into(),
            payload_crc: crc32c::crc32c(&self.stored).into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        raw.crc = crc_of(raw.as_bytes()).into();
        self.out.write_all(raw.as_bytes())?;
        self.out.write_all(&self.stored)?;
        self.stored.clear();
        self.written += records as u64;
        self.failed = false;
        Ok(())
    }
}

/// How a reader may go on behind its last error.
enum Resume {
    /// Not at all.
    Never,
    /// The input is where a block or a record begins.
    Here,
    /// With the block of this header, which was read already.
    Header([u8; BLOCK_HEADER_BYTES]),
    /// With the next header behind the first of these bytes, which are none.
    Search([u8; BLOCK_HEADER_BYTES]),
}

/// Reads a trace: an iterator of its records that ends after the first error.
pub struct Reader<R: Read> {
    input: R,
    header: Header,
    /// Bytes read so far.
    offset: u64,
    /// The block at hand, decompressed, where it began, and the place of the next record in it.
    block: Vec<u8>,
    block_offset: u64,
    next: usize,
    stored: Vec<u8>,
    /// Number of the next record: of those given out so far, and of those lost in damaged blocks.
    given: u64,
    resume: Resume,
    done: bool,
    decompressor: Decompressor<'static>,
}

impl<R: Read> Reader<R> {
    /// Begins to read: checks the header.
    ///
    /// # Errors
    /// Where these bytes begin no trace that this version can read.
    pub fn new(mut input: R) -> Result<Reader<R>, TraceError> {
        let mut bytes = [0; HEADER_BYTES];
        let got = read_up_to(&mut input, &mut bytes, 0)?;
        let magic = &bytes[..got.min(MAGIC.len())];
        if magic != MAGIC {
            return Err(TraceError::NotATrace { found: magic.to_vec() });
        }
        if got < HEADER_BYTES {
            let expected = "a header of 64 bytes";
            return Err(TraceError::Truncated { offset: got as u64, records: 0, expected });
        }
        let raw: RawHeader = zerocopy::transmute!(bytes);
        if raw.version.get() != VERSION {
            return Err(TraceError::Version { found: raw.version.get(), supported: VERSION });
        }
        let refuse = |offset, what| Err(TraceError::Header { offset, what });
        let crc = crc_of(&bytes);
        if raw.crc.get() != crc {
            return refuse(60, format!("checksum {:#010x}, expected {crc:#010x}", raw.crc));
        }
        if usize::from(raw.header_bytes.get()) != HEADER_BYTES {
            return refuse(10, format!("header of {} bytes, expected {HEADER_BYTES}", raw.header_bytes));
        }
        if usize::from(raw.record_bytes.get()) != RECORD_BYTES {
            return refuse(12, format!("records of {} bytes, expected {RECORD_BYTES}", raw.record_bytes));
        }
        if raw.reserved != 0 || raw.reserved2 != 0 || raw.reserved3 != [0; 20] {
            return refuse(14, "reserved bytes in use, expected zeroes".to_owned());
        }
        let block_size = match raw.block_size.get() {
            0 => None,
            bytes => match BlockSize::new(bytes) {
                Some(size) => Some(size),
                None => return refuse(24, format!("block size {bytes}, expected 0, 1024, 2048 or 4096")),
            },
        };
        let decompressor =
            Decompressor::new().map_err(|source| TraceError::Io { offset: HEADER_BYTES as u64, source })?;
        Ok(Reader {
            input,
            header: Header {
                volume_bytes: raw.volume_bytes.get(),
                block_size,
                start_unix_ns: raw.start_unix_ns.get(),
            },
            offset: HEADER_BYTES as u64,
            block: Vec::new(),
            block_offset: HEADER_BYTES as u64,
            next: 0,
            stored: Vec::new(),
            given: 0,
            resume: Resume::Never,
            done: false,
            decompressor,
        })
    }

    /// What the trace says of itself.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Loads the next block; `false` at the trace's end.
    fn load(&mut self) -> Result<bool, TraceError> {
        self.block.clear();
        self.next = 0;
        let loaded = self.load_block();
        if loaded.is_err() {
            // Keeps T3: half a block may have been decompressed.
            self.block.clear();
        }
        loaded
    }

    fn load_block(&mut self) -> Result<bool, TraceError> {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        match std::mem::replace(&mut self.resume, Resume::Never) {
            Resume::Never | Resume::Here => self.fill(&mut bytes, "a block or the end mark")?,
            Resume::Header(header) => bytes = header,
            Resume::Search(from) => bytes = self.search(from)?,
        }
        let began = self.offset - BLOCK_HEADER_BYTES as u64;
        let raw: RawBlock = zerocopy::transmute!(bytes);
        let record = self.given;
        let refuse = |what| Err(TraceError::Block { offset: began, record, what });
        // Its length is not to be trusted until all of the header is.
        self.resume = Resume::Search(bytes);
        if raw.magic != BLOCK_MAGIC {
            return refuse(format!("begins with {:02x?}, expected {BLOCK_MAGIC:02x?}", raw.magic));
        }
        let crc = crc_of(&bytes);
        if raw.crc.get() != crc {
            return refuse(format!("header checksum {:#010x}, expected {crc:#010x}", raw.crc));
        }
        if raw.first_record.get() != record {
            if raw.first_record.get() > record {
                // Blocks before it are lost; it may be whole itself.
                self.given = raw.first_record.get();
                self.resume = Resume::Header(bytes);
            }
            return refuse(format!("says its first record is {}, expected {record}", raw.first_record));
        }
        if raw.reserved != 0 {
            return refuse(format!("reserved field {:#x}, expected 0", raw.reserved));
        }
        let (records, stored) = (raw.records.get() as usize, raw.stored_bytes.get() as usize);
        // Keeps T2: nothing is reserved for a number before it was compared with its limit.
        if records > MAX_RECORDS {
            return refuse(format!("{records} records, expected at most {MAX_RECORDS}"));
        }
        if stored > MAX_STORED || (records == 0) != (stored == 0) {
            return refuse(format!(
                "{stored} stored bytes for {records} records, expected at most {MAX_STORED}, and none for none"
            ));
        }
        let mut payload = std::mem::take(&mut self.stored);
        payload.resize(stored, 0);
        self.resume = Resume::Never;
        self.fill(&mut payload, "the rest of a block")?;
        self.resume = Resume::Here;
        self.given = record.saturating_add(records as u64);
        let crc = crc32c::crc32c(&payload);
        if raw.payload_crc.get() != crc {
            return refuse(format!("payload checksum {:#010x}, expected {crc:#010x}", raw.payload_crc));
        }
        if records == 0 {
            self.resume = Resume::Never;
            return self.end();
        }
        self.block.reserve(records * RECORD_BYTES);
        // decompress_to_buffer fills at most the capacity.
        if let Err(e) = self.decompressor.decompress_to_buffer(&payload, &mut self.block) {
            return refuse(format!(
                "{stored} stored bytes do not decompress ({e}), expected a zstd frame of {records} records"
            ));
        }
        if self.block.len() != records * RECORD_BYTES {
            let got = self.block.len();
            return refuse(format!("decompresses to {got} bytes, expected {}", records * RECORD_BYTES));
        }
        self.stored = payload;
        self.block_offset = began;
        self.given = record;
        Ok(true)
    }

    /// The next bytes that are a block's header, behind the first of these. Magic and checksum are eight
    /// bytes that do not come by chance; a number below that expected would be refused by the caller.
    fn search(
        &mut self,
        mut bytes: [u8; BLOCK_HEADER_BYTES],
    ) -> Result<[u8; BLOCK_HEADER_BYTES], TraceError> {
        loop {
            let begins = |at: &usize| BLOCK_MAGIC.iter().zip(&bytes[*at..]).all(|(a, b)| a == b);
            let at = (1..BLOCK_HEADER_BYTES).find(begins).unwrap_or(BLOCK_HEADER_BYTES);
            bytes.copy_within(at.., 0);
            self.fill(&mut bytes[BLOCK_HEADER_BYTES - at..], "a block or the end mark")?;
            let raw: RawBlock = zerocopy::transmute!(bytes);
            if raw.magic == BLOCK_MAGIC && raw.crc.get() == crc_of(&bytes) {
                // What was lost on the way was told of already.
                self.given = self.given.max(raw.first_record.get());
                return Ok(bytes);
            }
        }
    }

    /// After the end mark nothing may follow.
    fn end(&mut self) -> Result<bool, TraceError> {
        let mut byte = [0];
        match read_up_to(&mut self.input, &mut byte, self.offset)? {
            0 => Ok(false),
            _ => Err(TraceError::Block {
                offset: self.offset,
                record: self.given,
                what: format!("byte {:#04x} after the end mark, expected nothing", byte[0]),
            }),
        }
    }

    fn fill(&mut self, buf: &mut [u8], expected: &'static str) -> Result<(), TraceError> {
        let got = read_up_to(&mut self.input, buf, self.offset)?;
        self.offset += got as u64;
        if got == buf.len() {
            return Ok(());
        }
        Err(TraceError::Truncated { offset: self.offset, records: self.given, expected })
    }

    fn step(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some((bytes, _)) =
                self.block.get(self.next..).and_then(|rest| rest.split_first_chunk::<RECORD_BYTES>())
            {
                let raw: RawRecord = zerocopy::transmute!(*bytes);
                let (offset, record) = (self.block_offset, self.given);
                self.next += RECORD_BYTES;
                self.given = record.saturating_add(1);
                let made = raw.to_record(self.header.volume_bytes);
                return made.map(Some).map_err(|what| TraceError::Record { offset, record, what });
            }
            if !self.load()? {
                return Ok(None);
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.step().transpose();
        // Keeps T3: nothing follows an error.
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Reads until `buf` is full or the input ends; how many bytes came.
fn read_up_to(input: &mut impl Read, buf: &mut [u8], offset: u64) -> Result<usize, TraceError> {
    let mut got = 0;
    while got < buf.len() {
        match input.read(&mut buf[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(TraceError::Io { offset: offset + got as u64, source }),
        }
    }
    Ok(got)
}

/// A container as a source of events: every record is a whole request.
pub(crate) struct ContainerSource {
    reader: Reader<BufReader<BoxRead>>,
}

impl ContainerSource {
    /// # Errors
    /// As [`Reader::new`].
    pub(crate) fn new(input: BoxRead) -> Result<ContainerSource, TraceError> {
        // Behind damage, headers are looked for a few bytes at a time.
        Ok(ContainerSource { reader: Reader::new(BufReader::new(input))? })
    }
}

impl Source for ContainerSource {
    fn next(&mut self, devices: &mut Devices) -> Result<Option<Event>, Fault> {
        let record = match self.reader.step() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(None),
            Err(e) if matches!(self.reader.resume, Resume::Never) => return Err(Fault::Fatal(e)),
            Err(e) => return Err(Fault::Bad(e)),
        };
        let Ok(device) = devices.index(b"") else { return Ok(None) };
        Ok(Some(Event {
            time: record.at.0,
            kind: Kind::Request,
            op: record.op,
            extent: record.extent,
            took: record.service.into(),
            flags: record.flags,
            source: record.source,
            device,
        }))
    }

    fn header(&self) -> Option<Header> {
        Some(self.reader.header())
    }
}
