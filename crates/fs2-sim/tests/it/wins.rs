//! What the default policy wins, and that it never costs more than it may, on small made-up volumes over a modelled
//! drive: each part by what is lost without it.

use fs2_block::{BlockSize, Extent, Nanos, Op, Permille};
use fs2_disk::{DriveProfile, Scheduler};
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{Belief, FreeMap, InUse, Pace, Replay, Run, Settings};
use fs2_trace::Record;
use fs2_trace::synth::{self, Workload};

const MIB: u64 = 1 << 20;

fn map() -> FreeMap {
    let map = FreeMap::aged(4 << 30, Permille::new(500).unwrap(), 7).expect("a volume");
    assert_eq!(map.block_size, BlockSize::B4096);
    map
}

fn settings(policy: PolicyKind) -> Settings {
    let mut s = Settings::new(DriveProfile::builtin("wd800-repaired").expect("built in")).with_policy(policy);
    s.pace = Pace::closed();
    s
}

/// Blocks in use, in an order that leaps.
fn leaps(map: &FreeMap, n: usize) -> Vec<u64> {
    let used: Vec<u32> = (0..map.blocks).filter(|b| !map.free.contains(*b)).collect();
    let mut seed = 1u64;
    let mut places: Vec<u64> = (0..n as u64 * 2)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u64::from(used[(seed >> 33) as usize % used.len()]) * 4096
        })
        .collect();
    let mut once = std::collections::HashSet::new();
    places.retain(|p| once.insert(*p));
    places.truncate(n);
    places
}

fn requests(places: &[u64], every: Nanos) -> impl Iterator<Item = Record> + '_ {
    (0..).zip(places).map(move |(i, &at)| Record::new(Nanos(every.0 * i), Op::Read, Extent::new(at, 4096)))
}

fn run(replay: &mut Replay, records: impl Iterator<Item = Record>) -> Run {
    let run = replay.run(records.map(Ok::<_, ()>)).expect("a trace");
    replay.idle(Nanos::from_millis(120_000));
    run
}

/// Nothing turns: a copy would save nothing and wear the device.
#[test]
fn on_a_solid_state_drive_nothing_is_copied() {
    let map = map();
    let places = leaps(&map, 500);
    for (drive, copies) in [("ssd-sata", 0), ("ssd-nvme", 0), ("laptop-5400", 500)] {
        let mut s = settings(PolicyKind::Fs2);
        s = Settings { drive: DriveProfile::builtin(drive).expect("built in"), ..s }
            .with_belief(Belief::Equal, 1);
        let mut replay = Replay::new(&map, s).expect("a volume");
        run(&mut replay, requests(&places, Nanos(0)));
        assert_eq!(replay.last_run().replicas, copies, "{drive}");
    }
}

/// The log has room for a quarter of what is read: the rest is read again in the rest, and lies in visit order all the same.
#[test]
fn what_the_log_cannot_hold_is_copied_when_the_volume_rests() {
    let map = map();
    let places = leaps(&map, 2000);
    let mut s = settings(PolicyKind::Fs2);
    s.engine.log_bytes_max = 2 * MIB as usize;
    let mut replay = Replay::new(&map, s).expect("a volume");
    let first = run(&mut replay, requests(&places, Nanos(0)));
    assert_eq!(replay.last_run().replicas, 2000);
    let second = run(&mut replay, requests(&places, Nanos(0)));
    assert!(
        second.t_a_reads_ms() < first.t_a_reads_ms() / 4.0,
        "{} {}",
        second.t_a_reads_ms(),
        first.t_a_reads_ms()
    );
}

/// Found: where nearly all comes from the drive's cache, copies of short runs were read for where the next read might go on, and the cache no
/// longer had what lay behind the originals: the third run took 2.2 times as long as without copies.
#[test]
fn what_the_drives_cache_has_is_not_looked_for_among_copies() {
    let shape = synth::Shape { requests: 5000, span_bytes: 20 << 30, gap_ns: 100_000_000 };
    let trace: Vec<_> = Workload::Mixed { write_permille: 50 }.generate(shape, 905).collect();
    let mut map = FreeMap::aged(20 << 30, Permille::new(400).unwrap(), 1).expect("a volume");
    let mut in_use = InUse::new(map.block_size);
    trace.iter().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let third = |policy, without: &[Part]| {
        let mut s = Settings::new(DriveProfile::builtin("exos-x24").expect("built in")).with_policy(policy);
        s.engine.without = without.iter().copied().collect();
        let mut replay = Replay::new(&map, s.with_belief(Belief::Equal, 1)).expect("a volume");
        (0..3)
            .map(|_| {
                let run = replay.run(trace.iter().map(|r| Ok::<_, ()>(*r))).expect("a trace");
                replay.idle(Nanos::from_millis(1000));
                run.response_ms()
            })
            .fold(0.0, |_, last| last)
    };
    let plain = third(PolicyKind::None, &[]);
    // As it was found, and as it is.
    for (without, most) in [(&[Part::Batches][..], 1.1), (&[], 1.3)] {
        let with = third(PolicyKind::Fs2, without);
        assert!(with < plain * most, "{with} ms, {plain} without copies");
    }
}

/// Found: of a scan beside small reads, both of which the drive orders, pieces were copied as they ended, and read from there again it took longer
/// than the drive had time for; and each small read that had waited for long went before the rest of the scan. A run took up to 90 times as long.
#[test]
fn a_scan_beside_small_reads_is_served_as_without_copies() {
    let map = FreeMap::aged(40 << 30, Permille::new(500).unwrap(), 7).expect("a volume");
    let places = leaps(&map, 1000);
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut trace = Vec::new();
    for tour in 0..6 {
        let begin = tour * 40_000u64;
        let scan = (0..1500).map(|i| (begin + 20_000 + 2 * i, Extent::new((20 << 30) + i * 65_536, 65_536)));
        trace.extend(scan);
        trace.extend((0..400).map(|i| {
            let place = places[random(1000).min(random(1000)) as usize];
            (begin + 100 * i + random(100), Extent::new(place, 4096))
        }));
    }
    trace.sort_by_key(|r| r.0);
    let record = |&(ms, extent): &(u64, Extent)| Record::new(Nanos::from_millis(ms), Op::Read, extent);
    let runs = |policy| {
        let mut s = Settings { pace: Pace::Open, depth: 8, ..settings(policy) };
        s.engine.scheduler = Scheduler::Sptf;
        let mut replay = Replay::new(&map, s).expect("a volume");
        [(); 3].map(|()| run(&mut replay, trace.iter().map(record)).response_ms())
    };
    let (plain, with) = (runs(PolicyKind::None), runs(PolicyKind::Fs2));
    assert!(
        plain.iter().zip(with).all(|(plain, with)| with < plain * 1.2),
        "{with:?} ms, {plain:?} without copies"
    );
}

/// Seven times as far apart, with the same free blocks: a smaller share of the volume, and as many copies.
#[test]
fn a_stretched_volume_has_room_for_as_many_copies() {
    let map = map();
    let places = leaps(&map, 500);
    let mut s = settings(PolicyKind::Fs2);
    s.stretch = 7;
    let mut replay = Replay::new(&map, s).expect("a volume");
    run(&mut replay, requests(&places, Nanos(0)));
    assert_eq!(replay.last_run().replicas, 500);
}

/// Every tenth block is written before each run: its copy is made again where it was, and the order stays.
#[test]
fn copies_of_what_was_written_are_made_again_in_their_places() {
    let map = map();
    let places = leaps(&map, 1000);
    let mut replay = Replay::new(&map, settings(PolicyKind::Fs2)).expect("a volume");
    run(&mut replay, requests(&places, Nanos(0)));
    let before = run(&mut replay, requests(&places, Nanos(0)));
    let written =
        places.iter().step_by(10).map(|&at| Record::new(Nanos(0), Op::Write, Extent::new(at, 4096)));
    run(&mut replay, written);
    assert_eq!(replay.last_run().replicas, 1000);
    let after = run(&mut replay, requests(&places, Nanos(0)));
    assert!(
        after.t_a_reads_ms() < before.t_a_reads_ms() * 1.1,
        "{} {}",
        after.t_a_reads_ms(),
        before.t_a_reads_ms()
    );
}

/// What is written between its first reading and its copying is copied where it was read. Found on a compiler's headers, whose inodes
/// got their times of access: the blocks around each were read in two places.
#[test]
fn what_is_written_before_it_is_copied_keeps_its_turn() {
    let map = map();
    let places = leaps(&map, 1000);
    let second = |written: &[u64]| {
        let mut replay = Replay::new(&map, settings(PolicyKind::Fs2)).expect("a volume");
        // Right behind the reads: nothing of them is copied yet.
        let writes = written.iter().map(|&at| Record::new(Nanos(0), Op::Write, Extent::new(at, 4096)));
        run(&mut replay, requests(&places, Nanos(0)).chain(writes));
        assert_eq!(replay.last_run().replicas, 1000);
        run(&mut replay, requests(&places, Nanos(0))).t_a_reads_ms()
    };
    let tenth: Vec<u64> = places.iter().skip(5).step_by(10).copied().collect();
    let (with, without) = (second(&tenth), second(&[]));
    assert!(with < without * 1.1, "{with} {without}");
}

/// Found: nothing was won on traces of requests by the sector, for only what covers blocks whole was copied and read from copies.
#[test]
fn what_is_read_in_part_of_blocks_is_copied_too() {
    let map = map();
    let places = leaps(&map, 1000);
    let parts = || {
        (0..)
            .zip(&places)
            .map(|(i, &at)| Record::new(Nanos(i), Op::Read, Extent::new(at + 1536, 512 * (1 + i % 5))))
    };
    let mut replay = Replay::new(&map, settings(PolicyKind::Fs2)).expect("a volume");
    let first = run(&mut replay, parts());
    assert_eq!(replay.last_run().replicas, 1000);
    let second = run(&mut replay, parts());
    assert_eq!(second.reads_from_copies, 1000);
    let (first, second) = (first.t_a_reads_ms(), second.t_a_reads_ms());
    assert!(second < first / 4.0, "{second} {first}");
}

/// Three programs read in turns what each of them read alone: their copies are three streams, and the drive's own
/// read-ahead has no time between them. Trails give it the time.
#[test]
fn streams_in_turns_are_read_ahead() {
    let map = map();
    let places = leaps(&map, 1200);
    let turns: Vec<u64> = (0..400).flat_map(|i| [places[i], places[400 + i], places[800 + i]]).collect();
    let elapsed = |segment_kib: u32| {
        let mut s = settings(PolicyKind::Fs2);
        s.drive = s.drive.with_read_ahead(16, segment_kib);
        s.engine.drive = Some(s.drive.clone());
        let mut replay = Replay::new(&map, s).expect("a volume");
        run(&mut replay, requests(&places, Nanos(0)));
        run(&mut replay, requests(&turns, Nanos(0))).response_reads_ms()
    };
    // Trails are no longer than a segment: with 16 KiB there are next to none.
    let (with, without) = (elapsed(256), elapsed(16));
    assert!(with < without * 0.6, "{with} {without}");
}

/// Pauses of 20 to 30 ms that never come again: copying in them cannot pay, and must not cost either.
#[test]
fn pauses_are_not_used_up() {
    let map = map();
    let places = leaps(&map, 6000);
    let of = |policy| {
        let mut replay = Replay::new(&map, settings(policy)).expect("a volume");
        let records = (0..).zip(&places).scan(0u64, |at, (i, &place)| {
            *at += 25_000_000 + i % 7 * 2_000_000;
            Some(Record::new(Nanos(*at), Op::Read, Extent::new(place, 4096)))
        });
        replay.run(records.map(Ok::<_, ()>)).expect("a trace").response_reads_ms()
    };
    let (none, fs2) = (of(PolicyKind::None), of(PolicyKind::Fs2));
    assert!(fs2 < none * 1.015, "{fs2} {none}");
}
