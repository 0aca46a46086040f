//! Free blocks are the file system's: what becomes of copies where it allocates.

use fs2_block::{Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{FreeMap, Pace, Replay, Scheme, Settings};
use fs2_trace::Record;

const BLOCK: u64 = 4096;
const READS: u64 = 2000;
/// Where a file grows.
const GROWS_AT: u64 = 600_000;

fn volume(map: &FreeMap, without: &[Part]) -> Replay {
    let mut settings = Settings::new(DriveProfile::builtin("wd800-repaired").expect("it is built in"))
        .with_scheme(Scheme::Engine(PolicyKind::Fs2));
    settings.pace = Pace::closed();
    settings.engine.without = without.iter().copied().collect();
    Replay::new(map, settings).expect("a volume")
}

/// 8 GiB, of which a stretch is free: the file grows into its beginning, which is nearest to what is read.
fn map() -> FreeMap {
    let mut map = FreeMap::aged(8 << 30, Permille::new(300).expect("below 1000"), 7).expect("ext2 has room");
    let metadata = |b: u32| b % 32_768 < 1100;
    map.free.clear();
    map.free.extend((GROWS_AT as u32..GROWS_AT as u32 + 600_000).filter(|&b| !metadata(b)));
    map
}

/// Scattered before it, in an order of their own.
fn read_at(i: u64) -> u32 {
    (GROWS_AT - 50_000 + i * 4409 % READS * 20) as u32
}

fn reads() -> impl Iterator<Item = Record> {
    (0..READS).map(|i| Record::new(Nanos(0), Op::Read, Extent::new(u64::from(read_at(i)) * BLOCK, BLOCK)))
}

fn run(replay: &mut Replay, records: impl Iterator<Item = Record>) -> f64 {
    replay.run(records.map(Ok::<_, ()>)).expect("no reader fails");
    replay.idle(Nanos::from_millis(30_000));
    let run = replay.last_run();
    assert_eq!(run.failed, 0);
    run.reads_split.total().0 as f64 / 1e6 / run.reads_split.count.max(1) as f64
}

/// The file grows by so many blocks.
fn growth(from: u64, blocks: u64) -> impl Iterator<Item = Record> {
    // The last block of before was not full.
    let write =
        |at: u64| Record::new(Nanos(0), Op::Write, Extent::new((GROWS_AT + at - 1) * BLOCK, 5 * BLOCK));
    (from..from + blocks).step_by(4).map(write)
}

#[test]
fn copies_lie_where_no_file_is_about_to_grow() {
    let map = map();
    let lost = |without: &[Part]| {
        let mut replay = volume(&map, without);
        // What is free there is known from now on.
        run(&mut replay, reads().take(10));
        run(&mut replay, growth(40, 40));
        run(&mut replay, reads());
        for i in 0..8 {
            run(&mut replay, growth(80 + i * 24, 24));
        }
        replay.volume().check();
        replay.volume().stats().invalidated
    };
    let (with, without) = (lost(&[]), lost(&[Part::Foresight]));
    assert!(without > 150, "{without} copies lie in its way");
    assert_eq!(with, 0);
}

#[test]
fn copies_whose_blocks_were_taken_are_made_again() {
    let map = map();
    let third = |without: &[Part]| {
        let mut replay = volume(&map, without);
        let plain = run(&mut replay, reads());
        run(&mut replay, reads());
        // A large file, of which nobody knew.
        let copies: Vec<u32> = replay.volume().table().iter().map(|r| r.replica.0).collect();
        let (first, last) = (copies.iter().min().expect("some"), copies.iter().max().expect("some"));
        assert!(last - first < 3 * READS as u32, "they lie together: {first} to {last}");
        let half = u64::from(last - first) / 2;
        let taken = (0..half).step_by(4).map(|i| {
            Record::new(Nanos(0), Op::Write, Extent::new((u64::from(*first) + i) * BLOCK, 4 * BLOCK))
        });
        run(&mut replay, taken);
        let third = run(&mut replay, reads());
        replay.volume().check();
        (plain, third)
    };
    let ((plain, with), (_, without)) = (third(&[]), third(&[Part::Remaking]));
    assert!(with < plain / 4.0, "{with} of {plain} ms");
    assert!(without > 2.0 * with, "{without} ms where they are not made again, {with} where they are");
}

/// Of each file the first block was written, and then a new file took the places of all copies: these first blocks' copies came to lie elsewhere than
/// the rest, and no file could be read whole from one place.
#[test]
fn copies_that_were_void_when_their_blocks_were_taken_lie_among_the_others_again() {
    const FILES: u64 = 200;
    let map = map();
    let mut replay = volume(&map, &[]);
    let file = |i: u64| u64::from(read_at(i * 10));
    let all = || (0..FILES).map(|i| Record::new(Nanos(0), Op::Read, Extent::new(file(i) * BLOCK, 8 * BLOCK)));
    run(&mut replay, all());
    let copies: Vec<u64> = replay.volume().table().iter().map(|r| u64::from(r.replica.0)).collect();
    let (first, last) = (copies.iter().min().expect("some"), copies.iter().max().expect("some"));
    let written = (0..FILES).map(|i| Record::new(Nanos(0), Op::Write, Extent::new(file(i) * BLOCK, BLOCK)));
    let taken = (*first..=*last).map(|b| Record::new(Nanos(0), Op::Write, Extent::new(b * BLOCK, BLOCK)));
    run(&mut replay, written.chain(taken));
    run(&mut replay, all());
    replay.volume().check();
    let table = replay.volume().table();
    let whole = |i: &u64| {
        let start = file(*i) as u32;
        table.copy_of_run(fs2_block::BlockRange::new(start, start + 8)).next().is_some()
    };
    assert_eq!((0..FILES).filter(whole).count() as u64, FILES);
}
