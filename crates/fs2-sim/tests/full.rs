//! When there is no room for all that is read: what saves most stays, and what is read once does not drive it out.

use fs2_block::{BlockNo, BlockRange, Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::PolicyKind;
use fs2_sim::replay::{FreeMap, InUse, Pace, Replay, Scheme, Settings};
use fs2_trace::Record;

const BLOCK: u64 = 4096;

fn read(place: u64, blocks: u64) -> Record {
    Record::new(Nanos(0), Op::Read, Extent::new(place * BLOCK, blocks * BLOCK))
}

/// Three files of four in use scattered over 4 GiB, and what is read of each in one go.
fn files(seed: u64, n: u64, blocks: u64) -> Vec<Record> {
    // By a multiplier prime to the number of places: no two alike, in no order.
    (0..n).map(|i| read(((i + seed) * 7919 % 15_000) * 64, blocks)).collect()
}

/// What the reads of a run took in the mean, in µs, and what was copied, in % of its sectors.
fn run(replay: &mut Replay, reads: &[Record]) -> (u64, u64) {
    replay.run(reads.iter().map(|r| Ok::<_, ()>(*r))).expect("no reader fails");
    replay.idle(Nanos::from_millis(60_000));
    let run = replay.last_run();
    ((run.t_a_reads_ms() * 1000.0) as u64, run.copy_percent() as u64)
}

fn volume(policy: PolicyKind, space: u16, all: &[&[Record]]) -> Replay {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut map = FreeMap::aged(4 << 30, Permille::new(500).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = InUse::new(map.block_size);
    all.iter().copied().flatten().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let mut settings = Settings::new(drive).with_scheme(Scheme::Engine(policy));
    settings.pace = Pace::closed();
    settings.engine.space = Permille::new(space).expect("below 1000");
    Replay::new(&map, settings).expect("a volume")
}

/// A backup reads everything once, thirty times what there is room for; what is read every day is as fast as before.
#[test]
fn a_scan_drives_nothing_out() {
    let daily = files(0, 600, 4);
    let scan = files(600, 10_000, 8);
    // Room for 2,621 copies; 2,400 blocks are read every day.
    let mut replay = volume(PolicyKind::Fs2, 3, &[&daily, &scan]);
    let (first, _) = run(&mut replay, &daily);
    let (before, _) = (0..3).map(|_| run(&mut replay, &daily)).last().expect("three days");
    assert!(before < first / 5, "{first} {before}");
    let (_, copied) = run(&mut replay, &scan);
    let (after, _) = run(&mut replay, &daily);
    assert!(after < first / 10, "{first} {before} {after}");
    assert!(copied < 10, "{copied} % of the scan were copied");
}

/// Three times what there is room for, read over and over: a third of it stays copied, and is not written again and again.
#[test]
fn more_than_there_is_room_for() {
    let all = files(0, 2000, 4);
    let mut replay = volume(PolicyKind::Fs2, 3, &[&all]);
    let (first, _) = run(&mut replay, &all);
    let later: Vec<(u64, u64)> = (0..8).map(|_| run(&mut replay, &all)).collect();
    for (took, copied) in &later[1..] {
        assert!(*took < first * 9 / 10 && *copied < 25, "{first} {later:?}");
    }
    assert_eq!(replay.volume().stats().copies_void, 0, "what is written is published");
    replay.volume().check();
}

/// Files of several lengths, three times what there is room for: a copy of half a file takes room and cannot be read.
#[test]
fn files_are_copied_whole_or_not_at_all() {
    let all: Vec<Record> = (0..4).flat_map(|i| files(400 * i, 400, 1 << i)).collect();
    let mut replay = volume(PolicyKind::Fs2, 2, &[&all]);
    (0..8).for_each(|_| {
        run(&mut replay, &all);
    });
    let table = replay.volume().table();
    assert!(table.len() > 1700, "{}", table.len());
    let copied = |r: &&Record| {
        let first = BlockNo((r.extent.offset() / BLOCK) as u32);
        let len = (r.extent.len() / BLOCK) as u32;
        let copied = BlockRange::at(first, len).iter().filter(|&b| table.copies_of(b) > 0).count();
        (1..len as usize).contains(&copied)
    };
    let torn = all.iter().filter(copied).count();
    assert!(torn < 10, "{torn} of 1,600");
}

/// What is no longer read makes room for what is.
#[test]
fn other_reads_take_over() {
    let (old, new) = (files(0, 600, 4), files(600, 600, 4));
    let mut replay = volume(PolicyKind::Fs2, 3, &[&old, &new]);
    (0..4).for_each(|_| {
        run(&mut replay, &old);
    });
    let took: Vec<u64> = (0..16).map(|_| run(&mut replay, &new).0).collect();
    assert!(took[15] < took[0] / 4, "{took:?}");
}

/// A scan of small files filled the volume; larger ones, each block of which saves less, are read again and again.
#[test]
fn what_is_read_again_takes_over_from_what_was_read_once() {
    let (scan, new) = (files(300, 10_000, 1), files(0, 300, 8));
    let mut replay = volume(PolicyKind::Fs2, 3, &[&scan, &new]);
    run(&mut replay, &scan);
    let took: Vec<u64> = (0..20).map(|_| run(&mut replay, &new).0).collect();
    assert!(took[19] < took[0] / 3, "{took:?}");
}
