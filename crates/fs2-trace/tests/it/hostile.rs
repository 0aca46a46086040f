//! What is no trace, or a damaged one: the place and the reason are named, nothing panics, nothing is
//! kept but what is bounded.

use fs2_trace::{ArrivalEvent, Format, OpenOptions};
use proptest::prelude::*;

use crate::support::{SAMPLES, failure, inputs, open, sample};

/// What reading these bytes as this format says.
fn says(format: Format, bytes: &[u8]) -> String {
    let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
    failure(fs2_trace::open(inputs(&[("t", bytes.to_vec())]), options))
}

#[test]
fn a_wrong_line_is_named_with_its_number_and_what_was_expected() {
    use Format::*;
    for (format, good, bad, expected) in [
        (Blkparse, "0.1 D R 8 8 1 a", "0.2 D R 8", "`device cpu number seconds"),
        (Blkparse, "0.1 D R 8 8 1 a", "0.2 Y R 8 8 1 a", "an action"),
        (Blkparse, "0.1 D R 8 8 1 a", "0.2 D x 8 8 1 a", "a kind of request"),
        (Blkparse, "0.1 D R 8 8 1 a", "0.2 D R 18014398509481984 8 1 a", "a sector and a number"),
        (Blkparse, "8,0 0 1 0.1 1 D R 8 + 8 [a]", "8,0 0 1 0.1 1 D R 8 + x [a]", "a sector and a number"),
        (Blkparse, "0.1 D R 8 8 1 a", "0.2 D R 18446744073709551615 8 1 a", "a sector and a number"),
        (
            Blkparse,
            "8,0 0 1 0.1 1 D R 8 + 8 [a]",
            "8,0 0 1 0.1 1 D R 18446744073709551615 + 8 [a]",
            "a sector and a number",
        ),
        (Blkparse, "8,0 0 1 0.1 1 D R 8 + 8 [a]", "8,0 0 1 x 1 D R 8 + 8 [a]", "a time in seconds"),
        (Blkparse, "8,0 0 1 0.1 1 D R 8 + 8 [a]", "8,x 0 1 0.1 1 D R 8 + 8 [a]", "a device"),
        (Spc, "0,1,512,R,0.1", "0,1,512,R", "`ASU,LBA,bytes,R|W,seconds`"),
        (Spc, "0,1,512,R,0.1", "0,1,4294967296,R,0.1", "a request of fewer than 4 GiB"),
        (
            Blkparse,
            "8,0 0 1 0.1 1 D R 8 + 8 [a]",
            "8,0 0 1 0.2 1 Q D 8 + 9000000 [a]",
            "a request of fewer than 4 GiB",
        ),
        (Spc, "0,1,512,R,0.1", "x,1,512,R,0.1", "an ASU"),
        (Spc, "0,1,512,R,0.1", "0,1,512,R,0.1.2", "a time in seconds"),
        (Spc, "0,1,512,R,0.1", "0,18014398509481983,512,R,0.1", "an LBA and a number of bytes"),
        (Msr, "1,h,0,Read,0,512,3", "1,h,0,Rd,0,512,3", "Read or Write"),
        (Msr, "1,h,0,Read,0,512,3", "1,h,0,Read,0,512", "`FILETIME,host,disk"),
        (Msr, "1,h,0,Read,0,512,3", "184467440737095517,h,0,Read,0,512,3", "a FILETIME"),
        (Msr, "1,h,0,Read,0,512,3", "1,h,0,Read,0,512,3ms", "a response time"),
        (Msr, "1,h,0,Read,0,512,3", "1,h,0,Read,0,512,-", "a response time"),
        (Fiu, "5 1 sh 8 8 R 6 0 ab", "5 1 sh 8 8 R 6 0", "`ns pid process"),
        (Fiu, "5 1 sh 8 8 R 6 0 ab", "5 1 sh 8 8 Q 6 0 ab", "R or W"),
        (Disksim, "1.5 0 8 8 1", "1.5 0 8 8", "`ms device block"),
        (Disksim, "1.5 0 8 8 1", "1.5 0 8 8 x", "flags in hexadecimal"),
        (DisksimValidate, "R Hit 8 8 1 2", "R Hit 8 8 1", "`R|W Hit|Miss"),
        (DisksimValidate, "R Hit 8 8 1 2", "R Hit 8 8 x 2", "a service time"),
        (DisksimValidate, "R Hit 8 8 1 18446744073709550", "R Hit 8 8 1 18446744073709550", "times that end"),
        (Blkreplay, "0.1 ; 8 ; 8 ; R ; 0 ; 0", "0.1 ; 8 ; 8 ; X ; 0 ; 0", "R or W"),
        (Blkreplay, "0.1 ; 8 ; 8 ; R ; 0 ; 0", "prose", "`seconds ; sector"),
    ] {
        let text = format!("{good}\n{bad}\n{good}\n");
        let what = says(format, text.as_bytes());
        let begins = format!("t: line 2: {bad:?}, expected {expected}");
        assert!(what.starts_with(&begins), "{format}: {what}");

        let options = OpenOptions { format: Some(format), skip_bad: true, ..OpenOptions::default() };
        let mut stream = fs2_trace::open(inputs(&[("t", text.into())]), options).unwrap();
        // A second good line is one too many only where the times add up beyond 584 years.
        let good = if bad == good { 1 } else { 2 };
        assert_eq!(stream.by_ref().map(Result::unwrap).count(), good, "{format} {bad}");
        assert_eq!(stream.skipped().count, 3 - good as u64);
        assert_eq!(format!("{}; `--skip-bad` leaves it out", stream.skipped().first[0]), what);
    }
}

#[test]
fn fio_logs_say_their_version_first() {
    let what = says(Format::Fio, b"/dev/sda add\n");
    assert!(what.contains("line 1") && what.contains("`fio version 2 iolog` or"), "{what}");
    let what = says(Format::Fio, b"fio version 3 iolog\n5 f wait 7 0\n");
    assert!(what.contains("line 2") && what.contains("an action"), "{what}");
    let what = says(Format::Fio, b"fio version 2 iolog\nf add\nf read 5\n");
    assert!(what.contains("line 3") && what.contains("an offset and a length"), "{what}");
}

#[test]
fn a_binary_trace_cut_short_is_named_with_its_byte() {
    for (files, format) in SAMPLES {
        let (Format::Blktrace | Format::Vscsi1 | Format::Vscsi2 | Format::Srt) = format else { continue };
        let whole = sample(files[0]);
        let mut full = 0;
        for cut in 1..whole.len() {
            let options = OpenOptions { format: Some(*format), ..OpenOptions::default() };
            let bytes = whole[..cut].to_vec();
            let opened = fs2_trace::open(inputs(&[("t", bytes)]), options);
            match opened.map(|stream| stream.filter_map(Result::err).next()) {
                // Cut between two records.
                Ok(None) => full += 1,
                Ok(Some(e)) | Err(e) => {
                    let what = e.to_string();
                    assert!(what.starts_with("t: byte "), "{files:?} {cut}: {what}");
                    assert!(what.contains("expected") || what.contains("the file ends after"), "{what}");
                }
            }
        }
        assert!((4..30).contains(&full), "{files:?}: {full} cuts between records");
    }
}

#[test]
fn a_damaged_blktrace_is_read_on_from_the_next_record() {
    let mut bytes = sample("blktrace8.bin");
    let at = bytes.len() - 64 * 3;
    bytes[at + 1] = b'X';
    let what = says(Format::Blktrace, &bytes);
    assert_eq!(
        what,
        format!(
            "t: byte {at}: [08, 58, 61, 65], expected the magic 65 61 74 of a blktrace record; `--skip-bad` leaves it out"
        )
    );
    let options = OpenOptions { skip_bad: true, ..OpenOptions::default() };
    let mut stream = fs2_trace::open(inputs(&[("t", bytes)]), options).unwrap();
    assert_eq!(stream.by_ref().map(Result::unwrap).count(), 5);
    assert_eq!(stream.skipped().count, 1);
    let mut bytes = sample("blktrace7-be.bin");
    bytes[3] = 6;
    assert_eq!(says(Format::Blktrace, &bytes), "t: byte 0: blktrace version 6, expected 7 or 8");
}

#[test]
fn what_moves_no_data_is_a_flush_or_nothing() {
    let text = "0.1 D R 0 0 1 a\n0.2 D FWS 0 0 1 a\n0.3 D WS 0 0 1 a\n0.4 D N 0 8 1 a\n0.5 D FN 0 0 1 a\n\
                0.6 D ZR 64 8 1 a\n0.7 D FWFS 64 8 1 a\n0.8 C FF 18446744073709551615 0 1 a\n0.9 D DS 8 8 1 a\n\
                1.0 D ZA 8 8 1 a\n1.1 D WZ 8 8 1 a\n1.2 D RA 8 8 1 a\n";
    let stream = fs2_trace::open(inputs(&[("t", text.into())]), OpenOptions::default()).unwrap();
    let ops: Vec<_> = stream.map(|r| r.unwrap()).map(|r| (r.op, r.extent.len(), r.flags.bits())).collect();
    use fs2_block::Op::*;
    let fua = fs2_trace::RecordFlags::FUA.bits();
    let moves =
        [(Write, 4096, fua), (Discard, 4096, 0), (Write, 4096, 0), (WriteZeroes, 4096, 0), (Read, 4096, 0)];
    assert_eq!(ops[..3], [(Flush, 0, 0); 3]);
    assert_eq!(ops[3..], moves);
}

#[test]
fn foreign_records_are_named() {
    let mut bytes = sample("vscsi2.bin");
    bytes[40 * 3 + 3] = 9;
    assert_eq!(
        says(Format::Vscsi2, &bytes),
        "t: byte 120: a record of version 9, expected 2; `--skip-bad` leaves it out"
    );
    let mut bytes = sample("srt13.bin");
    let at = bytes.len() - 56;
    bytes[at + 3] = 1;
    let what = says(Format::Srt, &bytes);
    assert!(what.starts_with(&format!("t: byte {at}: a record of 1 bytes, version 3, type 1")), "{what}");
    assert!(says(Format::Srt, b"$$TR_IOREC-1.3\nno end").contains("after a form feed"));
    assert!(says(Format::Srt, b"0,1,512,R,0.1\n").contains("expected one that begins with"));
}

#[test]
fn what_fits_no_format_or_several_is_refused_with_the_way_out() {
    let detect =
        |bytes: &[u8]| failure(fs2_trace::open(inputs(&[("t", bytes.to_vec())]), OpenOptions::default()));
    let all = "`--format` names it, one of: container, blktrace, blkparse, spc, msr, fiu, disksim, \
               disksim-validate, fio, blkreplay, vscsi1, vscsi2, srt";
    // No format would help there.
    assert_eq!(detect(b""), "t: the input is empty, expected a trace");
    assert_eq!(
        detect(b"one two\nthree\n"),
        format!("t: no trace format fits what begins with \"one two\"; {all}")
    );
    // 160 bytes that are five records of version 1 and four of version 2.
    let mut both = [0; 160];
    (0..5).for_each(|i| both[i * 32 + 15] = 1);
    (0..4).for_each(|i| both[i * 40 + 3] = 2);
    assert_eq!(detect(&both), format!("t: the format may be vscsi1 and vscsi2; {all}"));
    // A line is both DiskSim's and, with another, FIU's: as many of each.
    let mixed = b"1.5 0 8 8 1\n5 1 sh 8 8 R 6 0 ab\n";
    assert_eq!(detect(mixed), format!("t: the format may be fiu and disksim; {all}"));
}

#[test]
fn a_wrong_line_or_two_do_not_hide_the_format() {
    let text = "garbage\n0,1,512,R,0.1\n0,2,512,R,0.2\n";
    let options = OpenOptions { skip_bad: true, ..OpenOptions::default() };
    let stream = fs2_trace::open(inputs(&[("t", text.into())]), options).unwrap();
    assert_eq!((stream.format(), stream.count()), (Format::Spc, 2));
}

#[test]
fn an_event_that_is_not_there_is_said() {
    let text = "0.1 Q R 8 8 1 a\n0.2 C R 8 8 1 a\n";
    let options = OpenOptions { event: Some(ArrivalEvent::Issue), ..OpenOptions::default() };
    let what = failure(fs2_trace::open(inputs(&[("t", text.into())]), options));
    assert_eq!(what, "no event D; the trace has 1 Q, 1 C: `--event` chooses one");
    // Without a choice, what is there is taken.
    let stream = fs2_trace::open(inputs(&[("t", text.into())]), OpenOptions::default()).unwrap();
    assert_eq!((stream.event(), stream.count()), (Some(ArrivalEvent::Queue), 1));
}

/// Reads all of it in every way; the number of requests and of errors.
fn read_all(bytes: &[u8]) -> (usize, usize) {
    let mut found = (0, 0);
    for format in Format::ALL.map(Some).into_iter().chain([None]) {
        for skip_bad in [false, true] {
            let options = OpenOptions { format, skip_bad, ..OpenOptions::default() };
            match fs2_trace::open(inputs(&[("t", bytes.to_vec())]), options) {
                Ok(stream) => {
                    let mut last = 0;
                    for item in stream {
                        match item {
                            Ok(record) => {
                                assert!(record.at.0 >= last, "times do not go back");
                                last = record.at.0;
                                found.0 += 1;
                            }
                            Err(e) => {
                                found.1 += usize::from(!e.to_string().is_empty());
                            }
                        }
                    }
                }
                Err(e) => found.1 += usize::from(!e.to_string().is_empty()),
            }
        }
    }
    found
}

fn any_sample() -> impl Strategy<Value = Vec<u8>> {
    let files: Vec<_> = SAMPLES.iter().flat_map(|(files, _)| files.iter().copied()).collect();
    prop::sample::select(files).prop_map(sample)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_all(&bytes);
    }

    #[test]
    fn any_lines_are_read_or_refused(lines in prop::collection::vec("[0-9.,;+ RWDQCF\\[\\]/a-e-]{0,60}", 0..8)) {
        read_all(lines.join("\n").as_bytes());
    }

    #[test]
    fn any_change_to_a_sample_is_read_or_refused(
        mut bytes in any_sample(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()).max(1));
        let (good, bad) = read_all(&bytes);
        prop_assert!(good + bad > 0);
    }
}

#[test]
fn samples_are_read_by_their_own_format_only() {
    for (files, format) in SAMPLES {
        for other in Format::ALL {
            let options = OpenOptions { format: Some(other), ..OpenOptions::default() };
            let count = open(files, options).map_or(0, |s| s.filter_map(Result::ok).count());
            assert_eq!(count > 0, other == *format, "{files:?} as {other}: {count}");
        }
    }
}
