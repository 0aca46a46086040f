//! The literature's schemes, by hand: tiny traces whose layouts can be derived on paper.
//!
//! The volume has two groups of 32,768 blocks of 4 KiB; what is free is named in each test.

use std::sync::Arc;

use fs2_block::{BlockNo, BlockSize, Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_sim::replay::{FreeMap, Pace, ReadSet, Replay, Run, Scheme, Settings};
use fs2_trace::Record;

/// A volume with these free runs. One of them must be long: below 15 % nothing is copied.
fn volume(free: &[(u32, u32)]) -> FreeMap {
    let mut map =
        FreeMap::aged(256 << 20, Permille::new(600).expect("below 1000"), 1).expect("ext2 has room");
    map.free.clear();
    for &(start, end) in free {
        map.free.insert_range(start..end);
    }
    map
}

fn request(op: Op, block: u32, blocks: u32) -> Record {
    let extent = Extent::new(u64::from(block) * 4096, u64::from(blocks) * 4096);
    Record::new(Nanos(0), op, extent)
}

fn read(block: u32, blocks: u32) -> Record {
    request(Op::Read, block, blocks)
}

fn write(block: u32, blocks: u32) -> Record {
    request(Op::Write, block, blocks)
}

fn settings(scheme: Scheme) -> Settings {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut settings = Settings::new(drive).with_scheme(scheme);
    settings.pace = Pace::closed();
    settings.engine.paranoid = true;
    settings
}

/// Replays, then lets a night pass.
fn day(replay: &mut Replay, trace: &[Record]) -> Run {
    let run = match replay.run(trace.iter().map(|r| Ok::<_, ()>(*r))) {
        Ok(run) => run,
        Err(()) => unreachable!("this trace has no bad lines"),
    };
    replay.idle(Nanos::from_millis(60_000));
    replay.volume().check();
    assert_eq!(run.failed, 0);
    run
}

/// Original of each replica, by replica.
fn layout(replay: &Replay) -> Vec<(u32, u32)> {
    let mut all: Vec<_> = replay.volume().table().iter().map(|r| (r.replica.0, r.original.0)).collect();
    all.sort();
    all
}

#[test]
fn fs2_static_copies_what_is_read_to_where_most_of_it_lies() {
    let map = volume(&[(1000, 1100), (19_980, 20_300), (40_000, 40_400), (45_000, 59_000)]);
    let trace =
        [read(60_000, 1), read(5000, 2), read(21_000, 1), read(9000, 1), write(5001, 1), read(5000, 2)];
    let mut known = ReadSet::new(BlockSize::B4096);
    trace.iter().for_each(|r| known.see(r.op, r.extent));
    assert_eq!(known.blocks(), 5);
    let mut settings = settings(Scheme::Fs2Static);
    settings.known = Some(Arc::new(known));
    let mut replay = Replay::new(&map, settings).expect("a volume");
    replay.prepare();
    // Five blocks are read: 5000, 5001, 9000, 21000, 60000; the middle one is 9000. The nearest free run of at
    // least 1 MiB begins at 20000 (that at 1000 is too short; the 20 blocks before it hold mkfs2's table), and its nearer end is its beginning. By address:
    assert_eq!(
        layout(&replay),
        [(20_000, 5000), (20_001, 5001), (20_002, 9000), (20_003, 21_000), (20_004, 60_000)]
    );
    // 40 sectors written. Read: 5000 to 9000 in three places (5000 and 5001 together), 21000 and 60000: no gap
    // is below 32 KiB, so five blocks too.
    let first = day(&mut replay, &trace);
    assert_eq!((first.copy_sectors, first.reads), (40, 5));
    // Copying left the head at 20005: the copy of 60000 is nearer, and then those of 5000, 21000 and 9000. The
    // write voids the copy of 5001: the last read goes to the original.
    assert_eq!(first.reads_from_copies, 4);
    let void: Vec<_> = layout(&replay).into_iter().map(|l| l.1).collect();
    assert_eq!(void, [5000, 9000, 21_000, 60_000]);
    // Never copied again.
    let second = day(&mut replay, &trace);
    let paid = replay.last_run().clone();
    assert_eq!((paid.copy_sectors, paid.replicas), (0, 4));
    assert_eq!(second.reads_from_copies, 3, "5000 and 5001 are read in one request");
    assert!(replay.volume().table().has_replica(BlockNo(9000)));
}
