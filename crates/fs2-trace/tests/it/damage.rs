//! Damaged traces: what was read before the damage is taken where that is asked for, and in a container
//! what lies behind it, too. What was lost is told.

use std::io::{self, Read, Write};

use fs2_block::{Extent, Nanos, Op};
use fs2_trace::{Header, OpenOptions, Record, Skipped, Stream, TraceError, Writer};
use proptest::prelude::*;

use crate::support::{failure, inputs, sample};

const HEADER: Header = Header { volume_bytes: 1 << 40, block_size: None, start_unix_ns: 0 };

fn record(i: u64) -> Record {
    Record::new(Nanos(i * 1000), Op::Read, Extent::new(i * 4096, 4096))
}

/// A container of blocks of ten records, and where each of them begins, the end mark's place last.
fn container(blocks: u64) -> (Vec<u8>, Vec<usize>) {
    let mut w = Writer::new(Vec::new(), HEADER).unwrap();
    for i in 0..blocks * 10 {
        w.push(&record(i)).unwrap();
        if i % 10 == 9 {
            w.flush().unwrap();
        }
    }
    let bytes = w.finish().unwrap();
    let mut begins = vec![64];
    while let Some(stored) = bytes.get(begins[begins.len() - 1] + 16..).and_then(|b| b.first_chunk()) {
        match u32::from_le_bytes(*stored) {
            0 => break,
            stored => begins.push(begins[begins.len() - 1] + 32 + stored as usize),
        }
    }
    assert_eq!(begins.len() as u64, blocks + 1);
    (bytes, begins)
}

fn open(bytes: &[u8], skip_bad: bool) -> Result<Stream, TraceError> {
    fs2_trace::open(inputs(&[("t", bytes.to_vec())]), OpenOptions { skip_bad, ..OpenOptions::default() })
}

/// What is said without `--skip-bad`, and what there is with it: the requests and what was left out.
fn both(bytes: &[u8]) -> (String, Vec<Record>, Skipped) {
    let said = failure(open(bytes, false));
    let mut stream = open(bytes, true).unwrap();
    let records = stream.by_ref().map(|r| r.unwrap_or_else(|e| panic!("{e}"))).collect();
    (said, records, stream.skipped().clone())
}

/// Numbers of the records, by where they lie.
fn numbers(records: &[Record]) -> Vec<u64> {
    records.iter().map(|r| r.extent.offset() / 4096).collect()
}

fn without(lost: std::ops::Range<u64>) -> Vec<u64> {
    (0..50).filter(|i| !lost.contains(i)).collect()
}

#[test]
fn a_container_that_ends_early_is_read_up_to_there() {
    let (bytes, begins) = container(5);
    for cut in [begins[3], begins[3] + 7, begins[3] + 32, begins[4] - 1] {
        let (said, records, skipped) = both(&bytes[..cut]);
        let begins = format!("t: trace ends at byte {cut} after 30 records, expected ");
        assert!(said.starts_with(&begins), "{said}");
        assert!(said.ends_with("; `--skip-bad` takes what was read before"), "{said}");
        assert_eq!(numbers(&records), (0..30).collect::<Vec<_>>(), "{cut}");
        assert_eq!((skipped.count, skipped.ended.len()), (1, 1), "{skipped:?}");
        assert!(skipped.ended[0].starts_with(&begins), "{skipped:?}");
    }
    // Without its end mark all of it is there.
    let (_, records, skipped) = both(&bytes[..begins[5]]);
    assert_eq!((records.len(), skipped.count), (50, 1));
    // Nothing was read of it: there is nothing to take, and no option to name.
    for skip_bad in [false, true] {
        let said = failure(open(&bytes[..begins[1] - 1], skip_bad));
        assert!(said.contains("after 0 records") && !said.contains("--skip-bad"), "{said}");
    }
}

#[test]
fn behind_a_damaged_block_a_container_is_read_on() {
    let (bytes, begins) = container(5);
    for (at, what) in [
        (begins[2] + 40, "payload checksum"),
        (begins[2], "begins with"),
        (begins[2] + 4, "header checksum"),
        (begins[2] + 16, "header checksum"),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let (said, records, skipped) = both(&damaged);
        let begins = format!("t: trace block at byte {} (record 20 on): {what}", begins[2]);
        assert!(said.starts_with(&begins) && said.ends_with("; `--skip-bad` leaves it out"), "{said}");
        assert_eq!(numbers(&records), without(20..30), "{what}");
        assert_eq!((skipped.count, skipped.ended.len()), (1, 0), "{skipped:?}");
        assert!(skipped.first[0].starts_with(&begins), "{skipped:?}");
    }
    // A block that is lost, and one that is there twice.
    let lost = [&bytes[..begins[2]], &bytes[begins[3]..]].concat();
    let (said, records, skipped) = both(&lost);
    assert!(said.contains("says its first record is 30, expected 20"), "{said}");
    assert_eq!((numbers(&records), skipped.count), (without(20..30), 1));
    let twice = [&bytes[..begins[3]], &bytes[begins[2]..]].concat();
    let (said, records, skipped) = both(&twice);
    assert!(said.contains("says its first record is 20, expected 30"), "{said}");
    assert_eq!((numbers(&records), skipped.count), (without(0..0), 1));
    // What holds no record that can be understood, behind a good checksum.
    let mut end = bytes.clone();
    end.push(9);
    let (said, records, skipped) = both(&end);
    assert!(said.contains("after the end mark"), "{said}");
    assert_eq!((records.len(), skipped.count, skipped.ended.len()), (50, 1, 1));
}

proptest! {
    #[test]
    fn one_changed_byte_costs_its_block_and_no_other(at in any::<prop::sample::Index>(), xor in 1u8..=255) {
        let (mut bytes, begins) = container(5);
        let at = 64 + at.index(bytes.len() - 64);
        bytes[at] ^= xor;
        let block = begins.partition_point(|b| *b <= at) as u64 - 1;
        let stream = open(&bytes, true);
        // The first block's loss leaves nothing read before.
        let (records, skipped) = match stream {
            Ok(mut stream) => (stream.by_ref().collect::<Result<Vec<_>, _>>().unwrap(), stream.skipped().count),
            Err(e) => panic!("{e}"),
        };
        prop_assert!(skipped > 0);
        prop_assert_eq!(numbers(&records), without(block * 10..block * 10 + 10));
    }

    #[test]
    fn however_damaged_a_container_gives_only_its_own_records(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let (mut bytes, _) = container(5);
        for (at, byte) in changes {
            let at = 64 + at.index(bytes.len() - 64);
            bytes[at] = byte;
        }
        for cut in cuts {
            bytes.remove(64 + cut.index(bytes.len() - 64));
        }
        if let Ok(stream) = open(&bytes, true) {
            let records: Vec<_> = stream.map_while(Result::ok).collect();
            let numbers = numbers(&records);
            prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            prop_assert!(records.iter().zip(&numbers).all(|(r, n)| *r == record(*n)));
        }
    }
}

fn packed(name: &str, bytes: &[u8]) -> Vec<u8> {
    match name {
        "gzip" => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap()
        }
        "zstd" => zstd::bulk::compress(bytes, 1).unwrap(),
        "xz" => {
            let mut packer = liblzma::write::XzEncoder::new(Vec::new(), 1);
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap()
        }
        _ => {
            let mut packer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap()
        }
    }
}

/// Lines that are not all alike, so that every packer has many blocks of them.
fn lines(n: u64) -> String {
    (0..n)
        .map(|i| format!("0,{},512,R,{}.{:06}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30, i, i))
        .collect()
}

#[test]
fn a_packed_trace_that_ends_early_is_read_up_to_there() {
    for packer in ["gzip", "zstd", "xz", "bzip2"] {
        // Of more than is looked at to find the format, and of less.
        for n in [60_000, 1000] {
            let whole = packed(packer, lines(n).as_bytes());
            let cut = whole.len() - whole.len() / 10;
            if n == 1000 && packer != "gzip" {
                // The others pack so little into one block, which is there whole or not at all.
                continue;
            }
            let (said, records, skipped) = both(&whole[..cut]);
            let begins = "t: trace cannot be read at byte ";
            assert!(said.starts_with(begins) && said.contains(packer), "{packer}: {said}");
            assert!(said.ends_with("; `--skip-bad` takes what was read before"), "{packer}: {said}");
            let read = records.len() as u64;
            assert!(read > n / 3 && read < n, "{packer}: {read} of {n}");
            assert_eq!((skipped.count, skipped.ended.len()), (1, 1), "{packer}: {skipped:?}");
        }
    }
}

/// Found: what fills a tape's last block was taken for a member with an invalid header.
#[test]
fn zeros_behind_gzip_are_no_damage() {
    let (one, two) = (packed("gzip", lines(500).as_bytes()), packed("gzip", lines(500).as_bytes()));
    for zeros in [1, 511, 100_000] {
        let padded = [&one[..], &two, &vec![0; zeros]].concat();
        assert_eq!(open(&padded, false).unwrap().map(Result::unwrap).count(), 1000, "{zeros}");
        let (said, records, _) = both(&[&padded[..], b"this is no member of gzip"].concat());
        assert!(said.contains("gzip: invalid gzip header"), "{said}");
        assert_eq!(records.len(), 1000, "{zeros}");
    }
}

#[test]
fn binary_traces_that_were_packed_are_read_up_to_their_end() {
    for name in ["blktrace8.bin", "blktrace7-be.bin", "vscsi2.bin", "srt13.bin"] {
        let plain = sample(name);
        let all = open(&plain, true).unwrap().count();
        // Stored blocks: all that there is comes before the error.
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        packer.write_all(&plain).unwrap();
        let bytes = packer.finish().unwrap();
        let (said, records, skipped) = both(&bytes[..bytes.len() - 8]);
        assert!(said.contains("gzip: ") && said.contains("--skip-bad"), "{name}: {said}");
        assert_eq!((records.len(), skipped.count, skipped.ended.len()), (all, 1, 1), "{name}");
    }
}

/// A device that fails behind its first bytes.
struct Device(io::Cursor<Vec<u8>>);

impl Read for Device {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(io::Error::from_raw_os_error(5)),
            n => Ok(n),
        }
    }
}

#[test]
fn a_device_that_fails_is_no_damage_to_pass_over() {
    for bytes in [lines(100_000).into_bytes(), packed("gzip", lines(100_000).as_bytes())] {
        let half = bytes[..bytes.len() / 2].to_vec();
        let input = Box::new(Device(io::Cursor::new(half)));
        let options = OpenOptions { skip_bad: true, ..OpenOptions::default() };
        let said = failure(fs2_trace::open(vec![("t".into(), input)], options));
        assert!(said.contains("os error 5") && !said.contains("--skip-bad"), "{said}");
    }
}

/// It was counted among what is left out, and after one or two bytes of a record it lacked a magic.
#[test]
fn a_binary_trace_that_ends_early_is_told_of_apart() {
    for (name, record) in [
        ("blktrace8.bin", 64),
        ("blktrace7-be.bin", 48),
        ("vscsi1.bin", 32),
        ("vscsi2.bin", 40),
        ("srt13.bin", 52),
    ] {
        let whole = sample(name);
        for cut in whole.len() - record + 1..whole.len() {
            let options = OpenOptions { skip_bad: true, ..OpenOptions::default() };
            let mut stream = fs2_trace::open(inputs(&[("t", whole[..cut].to_vec())]), options).unwrap();
            assert!(stream.by_ref().map(Result::unwrap).count() > 0, "{name} {cut}");
            let skipped = stream.skipped();
            assert_eq!((skipped.count, skipped.ended.len()), (1, 1), "{name} {cut}: {skipped:?}");
            assert!(skipped.ended[0].contains(": the file ends after "), "{name} {cut}: {skipped:?}");
        }
    }
}

/// A length that is wrong is no end: records lie behind it.
#[test]
fn a_blktrace_record_that_says_it_is_long_hides_no_others() {
    let mut bytes = sample("blktrace8.bin");
    let at = bytes.len() - 3 * 64;
    bytes[at + 50..at + 52].fill(0xff);
    let options = OpenOptions { skip_bad: true, ..OpenOptions::default() };
    let mut stream = fs2_trace::open(inputs(&[("t", bytes)]), options).unwrap();
    assert_eq!(stream.by_ref().map(Result::unwrap).count(), 5);
    assert_eq!((stream.skipped().count, stream.skipped().ended.len()), (1, 0), "{:?}", stream.skipped());
}

#[test]
fn one_of_several_inputs_that_ends_early_leaves_the_others() {
    let (bytes, begins) = container(5);
    let (whole, cut) = (bytes.clone(), bytes[..begins[2] + 3].to_vec());
    let options = OpenOptions { skip_bad: true, ..OpenOptions::default() };
    let mut stream = fs2_trace::open(inputs(&[("a", cut), ("b", whole)]), options).unwrap();
    assert_eq!(stream.by_ref().map(Result::unwrap).count(), 20 + 50);
    assert!(stream.skipped().ended[0].starts_with("a: trace ends at byte"), "{:?}", stream.skipped());
}
