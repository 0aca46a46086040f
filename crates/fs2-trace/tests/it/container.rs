//! The container: what goes in comes out; what is damaged is refused, with its place.

use std::io::{self, Read, Write};

use fs2_block::{BlockSize, Extent, Nanos, Op};
use fs2_trace::{Header, Reader, Record, RecordFlags, TraceError, Writer};
use proptest::prelude::*;

const VOLUME: u64 = 1 << 40;
const HEADER: Header = Header {
    volume_bytes: VOLUME,
    block_size: Some(BlockSize::B4096),
    start_unix_ns: 1_700_000_000_000_000_000,
};

fn write(records: &[Record], flush_every: usize) -> Vec<u8> {
    let mut w = Writer::new(Vec::new(), HEADER).unwrap();
    for (i, r) in records.iter().enumerate() {
        w.push(r).unwrap();
        assert_eq!(w.records(), i as u64 + 1);
        if (i + 1).is_multiple_of(flush_every) {
            w.flush().unwrap();
        }
    }
    w.finish().unwrap()
}

/// The records delivered, and the error that ended them, if one did.
fn read(bytes: &[u8]) -> (Vec<Record>, Option<TraceError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Some(e)),
    };
    let mut records = Vec::new();
    while let Some(item) = reader.next() {
        match item {
            Ok(r) => records.push(r),
            Err(e) => {
                assert!(reader.next().is_none(), "nothing follows an error");
                return (records, Some(e));
            }
        }
    }
    (records, None)
}

fn record(i: u64) -> Record {
    let mut r = Record::new(Nanos(i * 1000), Op::Read, Extent::new(i * 4096, 4096));
    r.service = Some(Nanos(i));
    r
}

fn records(n: u64) -> Vec<Record> {
    (0..n).map(record).collect()
}

fn any_record() -> impl Strategy<Value = Record> {
    let op =
        prop::sample::select(vec![Op::Read, Op::Write, Op::WriteZeroes, Op::Discard, Op::Punch, Op::Flush]);
    (any::<u64>(), op, 0..VOLUME, any::<u32>(), prop::option::of(0..u64::MAX), 0u8..32, any::<u16>())
        .prop_map(|(at, op, offset, len, service, flags, source)| Record {
            at: Nanos(at),
            op,
            extent: Extent::new(offset, u64::from(len).min(VOLUME - offset)),
            service: service.map(Nanos),
            flags: RecordFlags::from_bits(flags).unwrap(),
            source,
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(any_record(), 0..200), every in 1usize..50) {
        let bytes = write(&records, every);
        prop_assert_eq!(Reader::new(&bytes[..]).unwrap().header(), HEADER);
        let (got, error) = read(&bytes);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(got, records);
    }

    #[test]
    fn no_changed_byte_goes_unnoticed(
        records in prop::collection::vec(any_record(), 1..100),
        every in 1usize..50,
        at in any::<prop::sample::Index>(),
        xor in 1u8..=255,
    ) {
        let mut bytes = write(&records, every);
        let at = at.index(bytes.len());
        bytes[at] ^= xor;
        let (got, error) = read(&bytes);
        prop_assert!(error.is_some(), "byte {at}");
        prop_assert_eq!(&got[..], &records[..got.len()]);
    }

    #[test]
    fn every_truncation_is_said_with_its_place(
        records in prop::collection::vec(any_record(), 1..100),
        every in 1usize..50,
        at in any::<prop::sample::Index>(),
    ) {
        let bytes = write(&records, every);
        let at = at.index(bytes.len());
        let (got, error) = read(&bytes[..at]);
        prop_assert_eq!(&got[..], &records[..got.len()]);
        match error {
            Some(TraceError::Truncated { offset, records, .. }) => {
                prop_assert_eq!((offset, records), (at as u64, got.len() as u64));
            }
            Some(TraceError::NotATrace { found }) => prop_assert_eq!(found.len(), at),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn garbage_is_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
        if magic {
            let n = bytes.len().min(10);
            bytes[..n].copy_from_slice(&b"FS2TRACE\x01\x00"[..n]);
        }
        prop_assert!(read(&bytes).1.is_some());
    }

    /// Blocks whose checksums are right and whose content is not.
    #[test]
    fn well_sealed_garbage_is_refused(
        count in prop_oneof![0u32..4, any::<u32>()],
        payload in prop::collection::vec(any::<u8>(), 0..200),
        raw in any::<bool>(),
    ) {
        let payload = if raw { payload } else { zstd::bulk::compress(&payload, 3).unwrap() };
        // Nothing of nothing is the end mark.
        prop_assume!(count > 0 || !payload.is_empty());
        let (got, error) = read(&with_block(count, 0, &payload));
        // Random 32 bytes are a record now and then; the missing end is an error then.
        prop_assert!(error.is_some() && got.len() < 7);
    }
}

#[test]
fn many_blocks() {
    let all = records(30_000);
    let bytes = write(&all, usize::MAX);
    assert!(bytes.len() < 30_000 * 32 / 2, "{} bytes", bytes.len());
    let (got, error) = read(&bytes);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(got, all);
}

#[test]
fn an_empty_trace_is_a_trace() {
    let bytes = write(&[], 1);
    assert_eq!(bytes.len(), 64 + 32);
    assert!(matches!(read(&bytes), (r, None) if r.is_empty()));
}

#[test]
fn a_stopped_writer_leaves_what_it_flushed() {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out, HEADER).unwrap();
    for r in records(10) {
        w.push(&r).unwrap();
    }
    w.flush().unwrap();
    w.push(&record(10)).unwrap();
    drop(w);
    let (got, error) = read(&out);
    assert_eq!(got, records(10));
    assert_eq!(
        error.unwrap().to_string(),
        format!("trace ends at byte {} after 10 records, expected a block or the end mark", out.len())
    );
}

#[test]
fn what_cannot_be_written_is_refused_and_harms_nothing() {
    let mut w = Writer::new(Vec::new(), HEADER).unwrap();
    w.push(&record(0)).unwrap();
    for (extent, what) in [
        (
            Extent::new(VOLUME - 1, 2),
            "bytes 1099511627775+2, expected an end within the volume's 1099511627776",
        ),
        (Extent::new(0, 1 << 32), "length 4294967296 bytes, expected at most 4294967295"),
    ] {
        let e = w.push(&Record::new(Nanos(0), Op::Discard, extent)).unwrap_err();
        assert_eq!((e.kind(), e.to_string().as_str()), (io::ErrorKind::InvalidInput, what));
    }
    let (got, error) = read(&w.finish().unwrap());
    assert!(error.is_none());
    assert_eq!(got, records(1));
}

/// Takes `room` bytes, then fails.
struct Full {
    room: usize,
    got: Vec<u8>,
}

impl Write for Full {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = buf.len().min(self.room - self.got.len());
        if n == 0 {
            return Err(io::Error::other("full"));
        }
        self.got.extend_from_slice(&buf[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_failed_write_nothing_more_is_written() {
    let mut out = Full { room: 64 + 40, got: Vec::new() };
    let mut w = Writer::new(&mut out, HEADER).unwrap();
    w.push(&record(0)).unwrap();
    assert_eq!(w.flush().unwrap_err().to_string(), "full");
    w.push(&record(1)).unwrap();
    assert_eq!(w.flush().unwrap_err().to_string(), "an earlier write of this trace failed");
    assert!(w.finish().is_err());
    let (got, error) = read(&out.got);
    assert!(got.is_empty());
    assert!(matches!(error, Some(TraceError::Truncated { offset: 104, .. })), "{error:?}");
}

/// Sets the checksum in the last four of `bytes`.
fn seal(bytes: &mut [u8]) {
    let n = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..n]);
    bytes[n..].copy_from_slice(&crc.to_le_bytes());
}

/// A trace of one block, checksums in order, no end mark.
fn with_block(count: u32, first: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = write(&[], 1)[..64].to_vec();
    let mut block = Vec::new();
    block.extend_from_slice(b"FS2B");
    block.extend_from_slice(&count.to_le_bytes());
    block.extend_from_slice(&first.to_le_bytes());
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    block.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    block.extend_from_slice(&[0; 8]);
    seal(&mut block);
    bytes.extend_from_slice(&block);
    bytes.extend_from_slice(payload);
    bytes
}

fn said(bytes: &[u8]) -> String {
    read(bytes).1.expect("an error").to_string()
}

#[test]
fn each_fault_of_the_header_is_named() {
    assert!(said(b"PK\x03\x04").starts_with("not an FS2 trace: begins with [50, 4b, 03, 04]"));
    assert!(said(b"").starts_with("not an FS2 trace: begins with []"));
    let good = write(&records(3), 1);
    for (at, value, message) in [
        (
            8,
            2u8,
            "trace version 2, and this program reads version 1: convert it with the fs2-replay that wrote it (convert TRACE \
             OUT.blkparse), or use that one",
        ),
        (10, 65, "trace header, byte 10: header of 65 bytes, expected 64"),
        (12, 33, "trace header, byte 12: records of 33 bytes, expected 32"),
        (14, 1, "trace header, byte 14: reserved bytes in use, expected zeroes"),
        (28, 1, "trace header, byte 14: reserved bytes in use, expected zeroes"),
        (59, 1, "trace header, byte 14: reserved bytes in use, expected zeroes"),
        (24, 1, "trace header, byte 24: block size 4097, expected 0, 1024, 2048 or 4096"),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        seal(&mut bytes[..64]);
        assert_eq!(said(&bytes), message);
    }
    let mut bytes = good.clone();
    bytes[16] ^= 1;
    assert!(said(&bytes).starts_with("trace header, byte 60: checksum 0x"));
}

#[test]
fn each_fault_of_a_block_is_named() {
    let one = |r: &[u8]| zstd::bulk::compress(r, 3).unwrap();
    let zero = [0u8; 32];
    let at = "trace block at byte 64 (record 0 on): ";
    for (count, first, payload, message) in [
        (65_537, 0, one(&zero), "65537 records, expected at most 65536"),
        (1, 7, one(&zero), "says its first record is 7, expected 0"),
        (2, 0, one(&zero), "decompresses to 32 bytes, expected 64"),
        (1, 0, vec![], "0 stored bytes for 1 records"),
        (0, 0, vec![1], "1 stored bytes for 0 records"),
        (1, 0, vec![1, 2, 3, 4], "4 stored bytes do not decompress"),
        (1, 0, vec![0; 3 << 20], "3145728 stored bytes for 1 records, expected at most 2105344"),
    ] {
        let message = format!("{at}{message}");
        let got = said(&with_block(count, first, &payload));
        assert!(got.starts_with(&message), "{got}");
    }
    let mut bytes = with_block(1, 0, &one(&zero));
    bytes[64] = b'X';
    assert!(said(&bytes).starts_with(&format!("{at}begins with [58, 53, 32, 42]")));
    let mut bytes = with_block(1, 0, &one(&zero));
    bytes[68] ^= 1;
    assert!(said(&bytes).starts_with(&format!("{at}header checksum 0x")));
    let mut bytes = with_block(1, 0, &one(&zero));
    bytes[96] ^= 1;
    assert!(said(&bytes).starts_with(&format!("{at}payload checksum 0x")));
    let mut bytes = write(&records(1), 1);
    bytes.push(9);
    let place = bytes.len() - 1;
    assert_eq!(
        said(&bytes),
        format!("trace block at byte {place} (record 1 on): byte 0x09 after the end mark, expected nothing")
    );
}

#[test]
fn each_fault_of_a_record_is_named() {
    let mut good = [0u8; 64];
    good[8..16].copy_from_slice(&4096u64.to_le_bytes());
    for (at, value, message) in [
        (32 + 28, 6u8, "operation 6, expected 0 to 5"),
        (32 + 29, 0x20, "flags 0x20, expected none beyond 0x1f"),
        (32 + 15, 0x80, "bytes 9223372036854775808+0, expected an end within 63 bits"),
        (32 + 14, 0x80, "bytes 36028797018963968+0, expected an end within the volume's 1099511627776"),
    ] {
        let mut bytes = good;
        bytes[at] = value;
        let (got, error) = read(&with_block(2, 0, &zstd::bulk::compress(&bytes, 3).unwrap()));
        assert_eq!(got.len(), 1);
        assert_eq!(error.unwrap().to_string(), format!("trace record 1 (block at byte 64): {message}"));
    }
}

#[test]
fn a_bomb_is_refused_before_it_grows() {
    // 256 MiB of zeroes in 8 KiB; the block says one record.
    let bomb = zstd::bulk::compress(&vec![0u8; 256 << 20], 3).unwrap();
    assert!(bomb.len() < 64 << 10);
    let got = said(&with_block(1, 0, &bomb));
    assert!(got.contains("do not decompress"), "{got}");
}

#[test]
fn a_failing_input_keeps_its_cause_and_place() {
    struct Fails(Vec<u8>);
    impl Read for Fails {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("medium error"));
            }
            let n = buf.len().min(self.0.len()).min(7);
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0.drain(..n);
            Ok(n)
        }
    }
    let bytes = write(&records(5), 5);
    let cut = bytes.len() - 40;
    let mut reader = Reader::new(Fails(bytes[..cut].to_vec())).unwrap();
    let error = reader.find_map(Result::err).unwrap().to_string();
    assert_eq!(error, format!("trace cannot be read at byte {cut}: medium error"));
}

/// The page and the code agree: bytes of a known record at the places the page gives.
#[test]
fn the_record_is_laid_out_as_the_page_says() {
    let r = Record {
        at: Nanos(0x0102_0304_0506_0708),
        op: Op::Flush,
        extent: Extent::new(0x11_1213_1415, 0x2122_2324),
        service: Some(Nanos(0x3132_3334_3536_3738)),
        flags: RecordFlags::COPY.with(RecordFlags::FAILED),
        source: 0x4142,
    };
    let bytes = write(&[r], 1);
    assert_eq!(bytes[..16], *b"FS2TRACE\x01\x00\x40\x00\x20\x00\x00\x00");
    assert_eq!(bytes[16..24], VOLUME.to_le_bytes());
    assert_eq!(bytes[24..28], 4096u32.to_le_bytes());
    assert_eq!(bytes[32..40], HEADER.start_unix_ns.to_le_bytes());
    assert_eq!(bytes[64..80], *b"FS2B\x01\x00\x00\x00\0\0\0\0\0\0\0\0");
    let stored = u32::from_le_bytes(bytes[80..84].try_into().unwrap()) as usize;
    let raw = zstd::bulk::decompress(&bytes[96..96 + stored], 64).unwrap();
    let mut expected = Vec::new();
    expected.extend_from_slice(&0x0102_0304_0506_0708u64.to_le_bytes());
    expected.extend_from_slice(&0x11_1213_1415u64.to_le_bytes());
    expected.extend_from_slice(&0x3132_3334_3536_3738u64.to_le_bytes());
    expected.extend_from_slice(&0x2122_2324u32.to_le_bytes());
    expected.extend_from_slice(&[5, 0b1_0010, 0x42, 0x41]);
    assert_eq!(raw, expected);
    let end = &bytes[96 + stored..];
    assert_eq!(end.len(), 32);
    assert_eq!(end[..16], *b"FS2B\0\0\0\0\x01\0\0\0\0\0\0\0");
}
