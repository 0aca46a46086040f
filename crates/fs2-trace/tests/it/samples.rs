//! Every format's sample gives the requests it was written from, detected or named, packed or not.

use std::io::Write;

use fs2_block::{Extent, Nanos, Op};
use fs2_trace::{
    ArrivalEvent, BlkparseWriter, Compression, DeviceChoice, Format, Header, OpenOptions, Partition, Record,
    RecordFlags, Writer,
};

use crate::support::{SAMPLES, all, failure, inputs, open, sample};

const MS: u64 = 1_000_000;

/// What the samples were written from; `tests/samples/README.md`.
fn truth() -> Vec<Record> {
    let request = |us: u64, op, sector: u64, count: u64, took: u64, pid| Record {
        at: Nanos(us * 1000),
        op,
        extent: Extent::new(sector * 512, count * 512),
        service: Some(Nanos(took * 1000)),
        flags: RecordFlags::NONE,
        source: pid,
    };
    let mut records = vec![
        request(1000, Op::Read, 2048, 8, 500, 101),
        request(2500, Op::Write, 409_600, 16, 4000, 102),
        request(3250, Op::Read, 2056, 8, 200, 101),
        request(900_000, Op::Flush, 0, 0, 7000, 103),
        request(1_000_001, Op::Write, 4_194_304, 256, 9000, 102),
    ];
    records[4].flags = RecordFlags::FUA;
    records
}

/// What a format cannot say is taken from the truth.
struct Loses {
    flush: bool,
    fua: bool,
    service: bool,
    source: bool,
    /// Time 0 is the first request.
    rebased: bool,
}

fn expected(loses: &Loses) -> Vec<Record> {
    let mut records = truth();
    if loses.flush {
        records.remove(3);
    }
    let base = if loses.rebased { records[0].at.0 } else { 0 };
    for r in &mut records {
        r.at.0 -= base;
        if loses.fua {
            r.flags = RecordFlags::NONE;
        }
        if loses.service {
            r.service = None;
        }
        if loses.source {
            r.source = 0;
        }
    }
    records
}

fn loses(format: Format) -> Loses {
    use Format::*;
    let events = matches!(format, Blktrace | Blkparse);
    Loses {
        flush: !(events || matches!(format, Fio | Vscsi1 | Vscsi2)),
        fua: !events,
        service: matches!(format, Spc | Fiu | Disksim | Fio | Vscsi1),
        source: !(events || format == Fiu),
        rebased: matches!(format, Msr | Fiu | Vscsi1 | Vscsi2),
    }
}

#[test]
fn every_sample_gives_what_it_was_written_from() {
    let mut seen = Vec::new();
    for (files, format) in SAMPLES {
        for named in [None, Some(*format)] {
            let options = OpenOptions { format: named, ..OpenOptions::default() };
            let stream = open(files, options).unwrap_or_else(|e| panic!("{files:?}: {e}"));
            assert_eq!(stream.format(), *format, "{files:?}");
            assert_eq!(stream.compression(), Compression::None);
            let mut want = expected(&loses(*format));
            if *format == Format::DisksimValidate {
                // One request at a time: each comes its gap after the one before was served.
                let times = [0, 1_500_000, 5_500_000, 1_002_251_000];
                want.iter_mut().zip(times).for_each(|(r, at)| r.at = Nanos(at));
            }
            assert_eq!(all(stream), want, "{files:?}");
        }
        seen.push(*format);
    }
    for format in Format::ALL {
        assert!(format == Format::Container || seen.contains(&format), "a sample of {format}");
    }
}

/// Found: a first input that is empty, as of a processor that saw nothing, had no format, or was none of the one named.
#[test]
fn empty_inputs_are_passed_over() {
    let read = |files: &[(&str, Vec<u8>)], format| {
        fs2_trace::open(inputs(files), OpenOptions { format, ..OpenOptions::default() })
    };
    for (files, format) in SAMPLES.iter().filter(|(files, _)| files.len() == 1) {
        let whole = sample(files[0]);
        for named in [None, Some(*format)] {
            let want = all(read(&[("a", whole.clone())], named).unwrap());
            let beside = read(&[("0", vec![]), ("1", vec![]), ("2", whole.clone()), ("3", vec![])], named);
            let beside = beside.unwrap_or_else(|e| panic!("{format}: {e}"));
            assert_eq!(beside.format(), *format);
            assert_eq!(all(beside), want, "{format}");
            let empty = |files: &[(&str, Vec<u8>)]| failure(read(files, named));
            assert_eq!(empty(&[("a", vec![])]), "a: the input is empty, expected a trace");
            assert_eq!(
                empty(&[("a", vec![]), ("b", vec![]), ("c", vec![])]),
                "all 3 inputs are empty, a to c, expected a trace in one of them at least"
            );
        }
    }
}

/// Found: blkparse names its inputs on standard output, and that was a wrong line; of two outputs in one file the second
/// was left out without a word; with `-t`, a request that failed was none.
#[test]
fn blkparse_is_read_with_all_that_it_prints() {
    let plain = String::from_utf8(sample("blkparse.txt")).unwrap();
    let names = "Input file sda.blktrace.0 added\nInput file sda.blktrace.1 added\n";
    let summary = "CPU0 (sda):\n Reads Queued:           2,        8KiB\t Writes Queued:           2,      136KiB\n\n\
                   Total (sda):\n IO unplugs:             4        \t Timer unplugs:           0\n\n\
                   Throughput (R/W): 8KiB/s / 136KiB/s\nEvents (sda): 15 entries\nSkips: 0 forward (0 -   0.0%)\n";
    for text in [format!("{names}{plain}{summary}"), format!("{plain}{summary}{names}")] {
        let stream =
            |text: &str| fs2_trace::open(inputs(&[("t", text.into())]), OpenOptions::default()).unwrap();
        assert_eq!(all(stream(&text)), truth(), "{text}");
        assert_eq!(all(stream(&text.repeat(2))).len(), 2 * truth().len(), "{text}");
    }
    let text = "8,0 0 1 0.1 7 D R 8 + 8 (   10000) [a]\n8,0 0 2 0.2 0 C R 8 + 8 ( 4990000) [-5]\n\
                8,0 0 3 0.3 7 D R 8 + 8 [a]\n8,0 0 4 0.4 0 C R 8 + 8 ( 1) [0]\n";
    let records = all(fs2_trace::open(inputs(&[("t", text.into())]), OpenOptions::default()).unwrap());
    assert_eq!(records.iter().map(|r| r.flags).collect::<Vec<_>>(), [RecordFlags::FAILED, RecordFlags::NONE]);
}

/// Found: a request whose response was no time, as where a clock was set back, was a wrong line.
#[test]
fn a_response_that_is_no_time_is_unknown() {
    let text = "128166372003061629,hm,1,Read,0,512,-1234\n128166372003061630,hm,1,Read,0,512,18446744073709551000\n\
                128166372003061631,hm,1,Write,0,512,99999999999999999999999\n128166372003061632,hm,1,Read,0,512,7\n";
    let records = all(fs2_trace::open(inputs(&[("t", text.into())]), OpenOptions::default()).unwrap());
    assert_eq!(records.iter().map(|r| r.service).collect::<Vec<_>>(), [None, None, None, Some(Nanos(700))]);
}

#[test]
fn a_stream_can_be_read_on_another_thread() {
    let stream = open(&["fiu.txt"], OpenOptions::default()).unwrap();
    assert_eq!(std::thread::spawn(move || stream.count()).join().unwrap(), 4);
}

#[test]
fn each_event_can_be_the_arrival() {
    for files in [&["blkparse.txt"][..], &["blkparse-short.txt"], &["blktrace7.0.bin", "blktrace7.1.bin"]] {
        for (event, before_us) in [(ArrivalEvent::Queue, 10), (ArrivalEvent::Insert, 5)] {
            let options = OpenOptions { event: Some(event), ..OpenOptions::default() };
            let stream = open(files, options).unwrap();
            assert_eq!(stream.event(), Some(event));
            let mut want = expected(&loses(Format::Blkparse));
            for r in &mut want {
                r.at.0 -= before_us * 1000;
                r.service = r.service.map(|s| Nanos(s.0 + before_us * 1000));
            }
            assert_eq!(all(stream), want, "{files:?} {event:?}");
        }
        let options = OpenOptions { event: Some(ArrivalEvent::Complete), ..OpenOptions::default() };
        let mut want = expected(&loses(Format::Blkparse));
        for r in &mut want {
            r.at.0 += r.service.take().unwrap().0;
            r.source = 0;
        }
        want.sort_by_key(|r| r.at.0);
        if files[0] == "blkparse-short.txt" {
            want.iter_mut()
                .zip(all(open(files, options.clone()).unwrap()))
                .for_each(|(w, g)| w.source = g.source);
        }
        assert_eq!(all(open(files, options).unwrap()), want, "{files:?}");
    }
}

/// Found: requests whose arrival was lost, and those of a device that has no such event, were left out without a word.
#[test]
fn completions_of_no_request_are_counted() {
    let unmatched = |text: &str, event| {
        let options = OpenOptions { event, ..OpenOptions::default() };
        let mut stream = fs2_trace::open(inputs(&[("t", text.into())]), options).unwrap();
        (stream.by_ref().map(Result::unwrap).count(), stream.unmatched())
    };
    let whole = String::from_utf8(sample("blkparse.txt")).unwrap();
    assert_eq!(unmatched(&whole, None), (5, 0));
    let mut lines: Vec<_> = whole.lines().collect();
    lines.remove(lines.iter().position(|l| l.contains(" D ")).unwrap());
    assert_eq!(unmatched(&lines.join("\n"), None), (4, 1));
    assert_eq!(unmatched(&lines.join("\n"), Some(ArrivalEvent::Complete)), (5, 0));
    let other =
        "253,0 0 1 2.0 7 Q R 8 + 8 [a]\n253,0 0 2 2.1 7 Q R 16 + 8 [a]\n253,0 0 3 2.2 0 C R 8 + 8 [0]\n";
    assert_eq!(unmatched(&(whole.clone() + other), None), (5, 1));
    assert_eq!(unmatched(&(whole + other), Some(ArrivalEvent::Queue)), (7, 0));
}

#[test]
fn version_8_as_first_proposed_is_read_too() {
    for name in ["blktrace8.bin", "blktrace8-be.bin"] {
        let whole = sample(name);
        let (mut bytes, mut at) = (Vec::new(), 0);
        while at < whole.len() {
            let length = [whole[at + 50], whole[at + 51]];
            let big = whole[at] != 8;
            let follows =
                usize::from(if big { u16::from_be_bytes(length) } else { u16::from_le_bytes(length) });
            bytes.extend_from_slice(&whole[at..at + 60]);
            bytes.extend_from_slice(&whole[at + 64..at + 64 + follows]);
            at += 64 + follows;
        }
        let stream = fs2_trace::open(inputs(&[("t", bytes)]), OpenOptions::default()).unwrap();
        assert_eq!(all(stream), truth(), "{name}");
    }
}

#[test]
fn where_the_clock_began_is_known() {
    let mut stream = open(&["blktrace7.0.bin", "blktrace7.1.bin"], OpenOptions::default()).unwrap();
    stream.next().unwrap().unwrap();
    assert_eq!(stream.start_unix_ns(), Some(1_700_000_000_000_000_500));
    let mut stream = open(&["msr.csv"], OpenOptions::default()).unwrap();
    stream.next().unwrap().unwrap();
    // 128166372003061629 + 10,000 of 100 ns after 1601 is in February 2007.
    assert_eq!(stream.start_unix_ns(), Some((128_166_372_003_071_629 - 116_444_736_000_000_000) * 100));
    let stream = open(&["spc.csv"], OpenOptions::default()).unwrap();
    assert_eq!(stream.start_unix_ns(), None);
}

fn packed(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::None => bytes.to_vec(),
        Compression::Gzip => {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            e.write_all(bytes).unwrap();
            e.finish().unwrap()
        }
        Compression::Bzip2 => {
            let mut e = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            e.write_all(bytes).unwrap();
            e.finish().unwrap()
        }
        Compression::Xz => {
            let mut e = liblzma::write::XzEncoder::new(Vec::new(), 1);
            e.write_all(bytes).unwrap();
            e.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(bytes, 3).unwrap(),
    }
}

const PACKED: [Compression; 4] = [Compression::Gzip, Compression::Bzip2, Compression::Xz, Compression::Zstd];

#[test]
fn packed_traces_are_read_as_they_are_also_in_several_parts() {
    let plain = sample("blkparse.txt");
    let middle = plain.len() / 2;
    for compression in PACKED {
        let mut two = packed(compression, &plain[..middle]);
        two.extend(packed(compression, &plain[middle..]));
        for bytes in [packed(compression, &plain), two] {
            let stream = fs2_trace::open(inputs(&[("a", bytes)]), OpenOptions::default()).unwrap();
            assert_eq!((stream.format(), stream.compression()), (Format::Blkparse, compression));
            assert_eq!(all(stream), truth(), "{compression}");
        }
    }
}

#[test]
fn a_packed_trace_cut_short_gives_what_there_is_and_an_error() {
    // Enough that each packer has written some of it.
    let line = "0,2048,4096,R,0.5\n";
    let text: String =
        (0..20_000_u64).map(|i| format!("0,{},4096,R,{}.{:06}\n", i * 7919 % 99_991, i, i)).collect();
    for compression in PACKED {
        let mut bytes = packed(compression, text.as_bytes());
        bytes.truncate(bytes.len() * 9 / 10);
        let mut stream = fs2_trace::open(inputs(&[("a.spc", bytes)]), OpenOptions::default()).unwrap();
        let good = stream.by_ref().take_while(Result::is_ok).count();
        assert!(good > 5000, "{compression}: {good} of the requests before the cut");
        let bytes = packed(compression, &text.as_bytes()[..line.len() * 1000]);
        let cut = bytes[..bytes.len() - 3].to_vec();
        let what = failure(fs2_trace::open(inputs(&[("a.spc", cut)]), OpenOptions::default()));
        assert!(what.starts_with("a.spc: trace cannot be read at byte "), "{what}");
        assert!(what.contains(&compression.to_string()), "{what}");
    }
}

#[test]
fn a_bomb_costs_no_memory() {
    // A gibibyte of zeroes in a megabyte of gzip is one line that is too long, whatever follows it.
    let zeroes = packed(Compression::Gzip, &vec![0; 1 << 20]);
    let bomb: Vec<u8> = std::iter::repeat_n(zeroes, 1024).flatten().collect();
    let options = OpenOptions { format: Some(Format::Spc), ..OpenOptions::default() };
    let what = failure(fs2_trace::open(inputs(&[("bomb.gz", bomb)]), options));
    assert!(what.starts_with("bomb.gz: line 1: "), "{what}");
    assert!(what.ends_with("expected a line of fewer than 262,144 bytes"), "{what}");
}

/// Found: a device of which a trace has other events alone took the first range, and the one that was read lay 4 TiB up.
#[test]
fn a_device_without_requests_takes_no_range() {
    // A volume above, which has Q and C, named first; the disk below it has D and C.
    let above = |at: u64| format!("253,0 0 1 0.{at} 5 Q R {at} + 8 [p]\n");
    let below = |at: u64, sector: u64| format!("8,0 0 1 0.{at} 5 D R {sector} + 8 [p]\n");
    // The disk beyond the length of a range, and alone.
    let far = fs2_trace::DEVICE_STRIDE / 512 + 8;
    let opened = |text: String| fs2_trace::open(inputs(&[("a", text.into())]), OpenOptions::default());
    let mut stream = opened(above(1) + &below(2, far) + &above(3) + &below(4, 16)).unwrap();
    let records = stream.by_ref().map(|r| r.expect("a request").extent.offset()).collect::<Vec<_>>();
    assert_eq!(records, [far * 512, 16 * 512]);
    assert_eq!(stream.device_at(far * 512).map(|d| (&d.name[..], d.requests)), Some(("8,0", 2)));
    // Another disk, later: now the first one's do not fit.
    let more = "8,16 0 1 0.5 5 D R 24 + 8 [p]\n";
    let all =
        |stream: fs2_trace::Stream| stream.map(|r| r.map(|r| r.extent.offset()).map_err(|e| e.to_string()));
    let mut both = all(opened(above(1) + &below(2, 16) + more).unwrap());
    assert_eq!(
        (both.next(), both.next()),
        (Some(Ok(16 * 512)), Some(Ok(fs2_trace::DEVICE_STRIDE + 24 * 512)))
    );
    let what = all(opened(above(1) + &below(2, far) + more).unwrap()).last().unwrap().unwrap_err();
    assert!(what.contains("\"8,0\" reach to 4398046519296 bytes, and it does not fit"), "{what}");
}

#[test]
fn devices_have_ranges_of_their_own_or_one_is_chosen() {
    let text = "0,0,512,R,0.1\n7,0,512,W,0.2\n0,1,512,R,0.3\n";
    let stream = |devices| {
        let options = OpenOptions { devices, ..OpenOptions::default() };
        fs2_trace::open(inputs(&[("a", text.into())]), options).unwrap()
    };
    let offsets = |devices| all(stream(devices)).iter().map(|r| r.extent.offset()).collect::<Vec<_>>();
    assert_eq!(offsets(DeviceChoice::Apart), [0, fs2_trace::DEVICE_STRIDE, 512]);
    assert_eq!(offsets(DeviceChoice::Only("0".into())), [0, 512]);
    assert_eq!(offsets(DeviceChoice::Only("7".into())), [0]);
    let placed = DeviceChoice::Placed(vec![("7".into(), 0), ("0".into(), 4096)]);
    assert_eq!(offsets(placed), [4096, 0, 4608]);
    let what = failure(Ok(stream(DeviceChoice::Only("1".into()))));
    assert_eq!(what, "no request for device \"1\"; the trace has \"0\", \"7\"");

    let mut stream = stream(DeviceChoice::Apart);
    assert_eq!(stream.by_ref().count(), 3);
    let devices: Vec<_> =
        stream.devices().iter().map(|d| (d.name.as_str(), d.requests, d.end_bytes)).collect();
    assert_eq!(devices, [("0", 2, 1024), ("7", 1, 512)]);
}

#[test]
fn a_partition_of_a_whole_device() {
    // Before it, over its beginning, its first and its last sectors, over its end, behind it; a flush, which is the device's.
    let text = "8,0 0 1 0.1 7 D R 0 8 [a]\n8,0 0 2 0.2 7 D R 60 8 [a]\n8,0 0 3 0.3 7 D W 63 8 [a]\n\
                8,0 0 4 0.4 7 D R 155 8 [a]\n8,0 0 5 0.5 7 D R 156 8 [a]\n8,0 0 6 0.6 7 D W 200 8 [a]\n\
                8,0 0 7 0.7 7 D FN 0 + 0 [a]\n"
        .replace(" 8 [a]", " + 8 [a]");
    let stream = |partition: &str, devices| {
        let partition = Some(partition.parse().unwrap());
        let options = OpenOptions { partition, devices, ..OpenOptions::default() };
        fs2_trace::open(inputs(&[("a", text.clone().into_bytes())]), options).unwrap()
    };
    let found = |partition: &str| {
        let mut stream = stream(partition, DeviceChoice::Apart);
        let records: Vec<_> = stream.by_ref().map(Result::unwrap).collect();
        let sectors: Vec<_> = records.iter().map(|r| (r.op, r.extent.offset() / 512)).collect();
        (sectors, stream.outside(), stream.devices()[0].requests, stream.devices()[0].end_bytes)
    };
    use Op::{Flush, Read, Write};
    assert_eq!(found("63,100"), (vec![(Write, 0), (Read, 92), (Flush, 0)], 4, 3, 100 * 512));
    assert_eq!(
        found("63"),
        (vec![(Write, 0), (Read, 92), (Read, 93), (Write, 137), (Flush, 0)], 2, 5, 145 * 512)
    );
    let what = failure(Ok(stream("9000", DeviceChoice::Only("8,1".into()))));
    assert_eq!(what, "no request for device \"8,1\"; the trace has \"8,0\"");
    // Several devices have partitions of their own.
    let text = "0,64,512,R,0.1\n7,64,512,W,0.2\n7,0,512,R,0.3\n7,65,512,R,0.4\n";
    let stream = |begin: u64, devices| {
        let partition = Some(Partition { begin_bytes: begin, len_bytes: None });
        let options = OpenOptions { partition, devices, ..OpenOptions::default() };
        fs2_trace::open(inputs(&[("a", text.into())]), options).unwrap()
    };
    let what = failure(Ok(stream(32_768, DeviceChoice::Apart)));
    assert_eq!(what, "a partition of which of the trace's devices? `--device` chooses one");
    let mut of_one = stream(32_768, DeviceChoice::Only("7".into()));
    let offsets: Vec<_> = of_one.by_ref().map(|r| r.unwrap().extent.offset()).collect();
    assert_eq!((offsets, of_one.outside()), (vec![0, 512], 1));
    let what = failure(Ok(stream(1 << 30, DeviceChoice::Only("7".into()))));
    assert_eq!(what, "no request within the partition: the trace's 3 all lie outside it");
}

#[test]
fn partitions_as_they_are_told() {
    let partition = |text: &str| text.parse::<Partition>();
    for text in ["0", "63", "2048,409600"] {
        assert_eq!(partition(text).unwrap().to_string(), text);
    }
    assert_eq!(partition("2, 3"), Ok(Partition { begin_bytes: 1024, len_bytes: Some(1536) }));
    for text in ["", "x", "1,", "1,0", ",1", "-1", "1,2,3", "18446744073709551615", "1,36028797018963968"] {
        let what = partition(text).unwrap_err();
        assert_eq!(
            what,
            format!("no partition {text:?}, expected its first sector and how many it has, as 2048,409600")
        );
    }
}

#[test]
fn times_out_of_order_are_put_in_order() {
    let text = "0,1,512,R,0.3\n0,2,512,R,0.1\n0,3,512,R,0.2\n";
    let mut stream = fs2_trace::open(inputs(&[("a", text.into())]), OpenOptions::default()).unwrap();
    let times: Vec<_> = stream.by_ref().map(|r| r.unwrap().at.0 / MS).collect();
    assert_eq!(times, [100, 200, 300]);
    assert_eq!(stream.late(), 0);
    // Beyond the window the order stays, and the time is the one before.
    let mut text: String = (0..10_000).map(|i| format!("0,{i},512,R,{i}\n")).collect();
    text.push_str("0,0,512,W,1\n");
    let mut stream = fs2_trace::open(inputs(&[("a", text.into())]), OpenOptions::default()).unwrap();
    let records: Vec<_> = stream.by_ref().map(Result::unwrap).collect();
    assert!(records.is_sorted_by_key(|r| r.at));
    assert_eq!((stream.late(), records.len()), (1, 10_001));
    assert_eq!(records.iter().filter(|r| r.op == Op::Write).count(), 1);
}

#[test]
fn a_trace_survives_a_conversion() {
    let source = || open(&["blktrace8.bin"], OpenOptions::default()).unwrap();
    let header = Header { volume_bytes: 1 << 40, block_size: None, start_unix_ns: 7 };
    let mut container = Writer::new(Vec::new(), header).unwrap();
    let mut text = BlkparseWriter::new(Vec::new());
    for record in source() {
        let record = record.unwrap();
        container.push(&record).unwrap();
        text.push(&record).unwrap();
    }
    let container = container.finish().unwrap();
    let stream = fs2_trace::open(inputs(&[("c", container)]), OpenOptions::default()).unwrap();
    assert_eq!((stream.format(), stream.header()), (Format::Container, Some(header)));
    assert_eq!(stream.start_unix_ns(), Some(7));
    assert_eq!(all(stream), truth());
    let text = text.finish().unwrap();
    let stream = fs2_trace::open(inputs(&[("t", text)]), OpenOptions::default()).unwrap();
    assert_eq!(stream.format(), Format::Blkparse);
    assert_eq!(all(stream), truth());
}

/// Found: a write of no bytes, as other formats have them, was a flush in blkparse's text.
#[test]
fn requests_of_no_bytes_are_no_flushes_in_a_text() {
    let csv = "1,h,0,Write,4096,0,1\n2,h,0,Read,4096,0,1\n3,h,0,Read,4096,512,1\n";
    let mut text = BlkparseWriter::new(Vec::new());
    for record in fs2_trace::open(inputs(&[("a", csv.into())]), OpenOptions::default()).unwrap() {
        text.push(&record.unwrap()).unwrap();
    }
    text.push(&Record::new(Nanos(400), Op::Flush, Extent::new(0, 0))).unwrap();
    assert_eq!(text.left_out(), 2);
    let text = text.finish().unwrap();
    let stream = fs2_trace::open(inputs(&[("t", text)]), OpenOptions::default()).unwrap();
    assert_eq!(all(stream).iter().map(|r| r.op).collect::<Vec<_>>(), [Op::Read, Op::Flush]);
}

#[test]
fn a_daemons_own_requests_are_left_out_unless_asked_for() {
    let header = Header { volume_bytes: 1 << 20, block_size: None, start_unix_ns: 0 };
    let mut container = Writer::new(Vec::new(), header).unwrap();
    let flags = [
        RecordFlags::NONE,
        RecordFlags::COPY,
        RecordFlags::REPLICA,
        RecordFlags::HASH.with(RecordFlags::FAILED),
    ];
    for (i, flags) in flags.into_iter().enumerate() {
        let mut record = Record::new(Nanos(i as u64), Op::Read, Extent::new(0, 4096));
        record.flags = flags;
        container.push(&record).unwrap();
    }
    let bytes = container.finish().unwrap();
    for (own_io, given, own) in [(false, 2, 2), (true, 4, 0)] {
        let options = OpenOptions { own_io, ..OpenOptions::default() };
        let mut stream = fs2_trace::open(inputs(&[("c", bytes.clone())]), options).unwrap();
        assert_eq!((stream.by_ref().count(), stream.own()), (given, own));
    }
}

#[test]
fn parts_merge_by_time_and_parts_of_other_formats_are_refused() {
    let (a, b) = ("0,1,512,R,0.1\n0,2,512,R,0.4\n", "0,3,512,R,0.2\n0,4,512,R,0.3\n");
    let stream = fs2_trace::open(inputs(&[("a", a.into()), ("b", b.into())]), OpenOptions::default());
    let sectors: Vec<_> = all(stream.unwrap()).iter().map(|r| r.extent.offset() / 512).collect();
    assert_eq!(sectors, [1, 3, 4, 2]);
    let mixed = [("a", a.into()), ("b", sample("msr.csv"))];
    assert_eq!(
        failure(fs2_trace::open(inputs(&mixed), OpenOptions::default())),
        "b is msr and the input before it spc: several inputs are parts of one trace"
    );
    assert_eq!(failure(fs2_trace::open(Vec::new(), OpenOptions::default())), "no trace was named");
}

/// As spreadsheets and scripts of another system write them.
#[test]
fn a_mark_before_the_text_and_words_in_small_letters_are_read() {
    let of = |text: &str| -> Vec<Record> {
        let input = inputs(&[("t", text.as_bytes().to_vec())]);
        fs2_trace::open(input, OpenOptions::default()).unwrap().map(|r| r.unwrap()).collect()
    };
    let spc = "0,8,4096,R,0.5\n0,16,4096,W,0.6\n";
    assert_eq!((of(&format!("\u{feff}{spc}")), of(spc).len()), (of(spc), 2));
    let msr = "128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,0,Write,310983680,4096,2056\n";
    assert_eq!((of(&msr.to_lowercase()), of(msr).len()), (of(msr), 2));
    let only = failure(fs2_trace::open(inputs(&[("t", b"\xef\xbb\xbf".to_vec())]), OpenOptions::default()));
    assert!(only.contains("the input is empty"), "{only}");
}

/// Found: with spaces behind its commas a trace had one device, whose name was a part of the host's.
#[test]
fn spaces_around_a_field_are_no_part_of_it() {
    let text =
        b"128166372003061629, hm, 0, Read, 4096, 512, 10\n128166372013061629 ,hm , 1,Read ,8192, 512,10 \n\
                 128166372023061629,hm,0,Read,4096,512,10\n";
    let mut stream = fs2_trace::open(vec![("a".to_owned(), Box::new(&text[..]))], OpenOptions::default())
        .expect("a trace");
    assert_eq!(stream.by_ref().filter_map(Result::ok).count(), 3);
    let devices: Vec<_> =
        stream.devices().iter().map(|d| (d.name.as_str(), d.requests, d.end_bytes)).collect();
    assert_eq!(devices, [("hm,0", 2, 4608), ("hm,1", 1, 8704)]);
}
