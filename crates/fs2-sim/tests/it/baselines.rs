//! The literature's schemes, by hand: tiny traces whose layouts can be derived on paper.
//!
//! The volume has two groups of 32,768 blocks of 4 KiB; what is free is named in each test.

use std::sync::Arc;

use fs2_block::{BlockNo, BlockSize, Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_sim::replay::{FreeMap, Pace, ReadSet, Replay, Run, Scheme, Settings};
use fs2_trace::Record;

/// What is free in most tests. The 20 blocks from 19980 hold mkfs2's table.
const FREE: [(u32, u32); 4] = [(1000, 1100), (19_980, 20_300), (40_000, 40_400), (45_000, 59_000)];

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
    let map = volume(&FREE);
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
    // least 1 MiB begins at 20001 (that at 1000 is too short, and the table's file took the one before), and its nearer end is its beginning. By address:
    assert_eq!(
        layout(&replay),
        [(20_001, 5000), (20_002, 5001), (20_003, 9000), (20_004, 21_000), (20_005, 60_000)]
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

#[test]
fn alis_heat_copies_the_hottest_extents_by_address() {
    let map = volume(&FREE);
    let mut replay = Replay::new(&map, settings(Scheme::AlisHeat)).expect("a volume");
    // 60 references to the extent of 24000 to 24007, 50 to that of 8000.
    let mut trace = vec![read(24_002, 4); 60];
    trace.extend(vec![read(8000, 8); 50]);
    day(&mut replay, &trace);
    // The area is made of the runs of 1 MiB and more that are nearest to the middle, 32768: first 40000 to 40399.
    // By address 8000 comes first; whole extents are copied.
    let extent = |slot: u32, block: u32| (0..8).map(move |i| (slot + i, block + i));
    let want: Vec<_> = extent(40_000, 8000).chain(extent(40_008, 24_000)).collect();
    assert_eq!(layout(&replay), want);
    assert_eq!((replay.last_run().copy_sectors, replay.last_run().own_read_sectors >= 128), (128, true));
    // The next day all of it comes from there; nothing has to be copied again.
    let second = day(&mut replay, &trace);
    assert_eq!(second.reads_from_copies, 110);
    assert_eq!(replay.last_run().copy_sectors, 0);
    // All three extents that were ever read fit; the copy of 8003, which is written, is made anew.
    let mut third = vec![read(5000, 8); 100];
    third.extend(vec![write(8003, 1)]);
    day(&mut replay, &third);
    let want: Vec<_> =
        extent(40_000, 5000).chain(extent(40_008, 8000)).chain(extent(40_016, 24_000)).collect();
    assert_eq!(layout(&replay), want);
}

#[test]
fn alis_run_lays_runs_in_the_order_of_the_heaviest_edges() {
    let map = volume(&FREE);
    let mut replay = Replay::new(&map, settings(Scheme::AlisRun)).expect("a volume");
    let trace: Vec<_> = (0..40).flat_map(|_| [read(8000, 2), read(60_000, 1), read(24_000, 1)]).collect();
    day(&mut replay, &trace);
    // Call them a, c, b in the order they are read. Within eight references a is followed by c at distances 1, 4 and
    // 7: a -> c weighs 40*8 + 39*5 + 38*2 = 591, c -> b as much (the first c has its b, and so on) but was seen
    // later, b -> a 39*8 + 38*5 + 37*2 = 576. So the run is a, c, and then b behind (591) rather than before (576).
    assert_eq!(layout(&replay), [(40_000, 8000), (40_001, 8001), (40_002, 60_000), (40_003, 24_000)]);
    let second = day(&mut replay, &trace);
    assert_eq!((second.reads_from_copies, replay.last_run().copy_sectors), (120, 0));
}

#[test]
fn sr_array_copies_go_to_equal_angles() {
    let map = volume(&FREE);
    let mut replay = Replay::new(&map, settings(Scheme::SrArray)).expect("a volume");
    for round in 1..=4 {
        day(&mut replay, &[read(8000, 1), read(30_000, 2)]);
        let copies = replay.volume().table().replicas_of(BlockNo(8000)).count();
        assert_eq!(copies, round.min(2), "a copy each time it is read, two at most");
    }
    // When sectors pass the head: a fresh drive at rest tells, by when it would begin to transfer.
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let (turn, disk) = (drive.turn().0, fs2_disk::Disk::new(drive));
    let angle = |block: u32| {
        let s = disk.predict(Nanos(0), Op::Read, fs2_block::Sector(u64::from(block) * 8), 1);
        (s.end().0 - s.transfer.0) % turn
    };
    let mut thirds: Vec<u64> = replay
        .volume()
        .table()
        .replicas_of(BlockNo(8000))
        .map(|r| (angle(r.replica.0) + turn - angle(8000)) % turn)
        .collect();
    thirds.sort_unstable();
    // A block passes in 8 * 9.0 us; the nearest of many starts is half of that away at most.
    for (got, want) in thirds.iter().zip([turn / 3, 2 * turn / 3]) {
        assert!(got.abs_diff(want) < 40_000, "{thirds:?} of a turn of {turn} ns");
    }
    // Neighbours are copied together.
    for r in replay.volume().table().replicas_of(BlockNo(30_000)) {
        assert!(replay.volume().table().replicas_of(BlockNo(30_001)).any(|n| n.replica.0 == r.replica.0 + 1));
    }
}

#[test]
fn every_scheme_has_a_name_and_the_daemon_none_of_them() {
    for scheme in Scheme::ALL {
        assert_eq!(scheme.name().parse::<Scheme>(), Ok(scheme));
        let in_daemon = scheme.name().parse::<fs2_engine::PolicyKind>();
        assert_eq!(in_daemon.is_ok(), matches!(scheme, Scheme::Engine(_)), "{scheme}");
    }
    let wrong = "best".parse::<Scheme>().expect_err("no such policy");
    assert!(wrong.contains("sr-array") && wrong.contains("fs2-2005"), "{wrong}");
}
