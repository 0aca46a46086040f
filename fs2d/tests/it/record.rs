//! `--record`: the log of a session, replayed over the image of before, is the image of after. `--trace`: its accesses.

use fs2_block::{Extent, Flags, Op};
use fs2_store::{AlignedBuf, MemStore, replay_log};
use fs2_trace::{Reader, Record};
use fs2d::daemon::open;
use fs2d::service::{ClientRequest, Service};
use fs2d::settings::Settings;

#[derive(clap::Parser)]
struct Only {
    #[command(flatten)]
    settings: Settings,
}

fn settings(args: &str) -> Settings {
    use clap::Parser;
    Only::parse_from(std::iter::once("x").chain(args.split_whitespace())).settings
}

#[test]
fn a_session_is_recorded_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (image, log) = (dir.path().join("image"), dir.path().join("log"));
    std::fs::write(&image, [5; 1 << 20]).unwrap();
    let settings = settings(&format!("--record {} --passive", log.display()));
    let served = open(&image, &settings).unwrap();
    let put = |op: Op, at: u64, len: u64, byte: u8| {
        let mut buffer = AlignedBuf::zeroed(if op == Op::Write { len as usize } else { 0 });
        buffer.fill(byte);
        let connection = served.server.connect();
        let flags = Flags { fua: byte == 3, no_hole: false };
        served
            .server
            .call(ClientRequest { connection, op, extent: Extent::new(at, len), flags, buffer })
            .1
            .unwrap();
    };
    put(Op::Write, 4096, 8192, 1);
    put(Op::Write, 1000, 30, 2);
    put(Op::Flush, 0, 0, 0);
    put(Op::WriteZeroes, 8192, 4096, 0);
    put(Op::Write, 65536, 512, 3);
    served.end();
    let again = MemStore::from_bytes(&[5; 1 << 20]);
    let met = replay_log(&mut &std::fs::read(&log).unwrap()[..], &again, u64::MAX).unwrap();
    assert!(met.writes == 4 && met.flushes >= 2, "{met:?}");
    assert!(again.to_vec() == std::fs::read(&image).unwrap(), "the replay is the image");
    drop(served);
    let refused = open(&image, &settings).err().expect("the log is there already").to_string();
    assert!(refused.contains("--record"), "{refused}");
}

/// A hole punched into the file of a FUSE mount may be of any length. The trace ended with the first of 4 GiB or more.
#[test]
fn a_trace_goes_on_behind_a_request_longer_than_a_record() {
    const GIB: u64 = 1 << 30;
    let dir = tempfile::tempdir().unwrap();
    let (image, trace) = (dir.path().join("image"), dir.path().join("trace"));
    std::fs::File::create(&image).unwrap().set_len(6 * GIB).unwrap();
    let served = open(&image, &settings(&format!("--trace {} --passive", trace.display()))).unwrap();
    let connection = served.server.connect();
    let put = |op: Op, at: u64, len: u64| {
        let buffer = AlignedBuf::zeroed(if op == Op::Write { len as usize } else { 0 });
        let (extent, flags) = (Extent::new(at, len), Flags::default());
        served.server.call(ClientRequest { connection, op, extent, flags, buffer }).1.unwrap();
    };
    put(Op::Write, 0, 4096);
    put(Op::WriteZeroes, 4096, 5 * GIB);
    put(Op::Write, 8192, 4096);
    served.end();
    let reader = Reader::new(std::fs::File::open(&trace).unwrap()).unwrap();
    let all: Vec<Record> = reader.collect::<Result<_, _>>().expect("it is whole, with its end");
    let places: Vec<_> = all.iter().map(|r| (r.op, r.extent.offset(), r.extent.len())).collect();
    let mut want = vec![(Op::Write, 0, 4096), (Op::Write, 8192, 4096)];
    want.splice(1..1, (0..5).map(|n| (Op::WriteZeroes, 4096 + n * GIB, GIB)));
    assert_eq!(places, want);
}
