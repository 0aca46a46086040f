//! Several streams read in turns: the drive reads ahead of each, and copies in the order of some turns would end that.

use fs2_block::{Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{FreeMap, InUse, Pace, Replay, Scheme, Settings};
use fs2_trace::Record;

const READ: u64 = 128 << 10;
const STREAMS: u64 = 6;
/// Reads of each, of 6 MiB.
const READS: u64 = 48;

/// Streams take turns, in another order each time, and each read comes when the drive has long read ahead.
fn turns(seed: u64) -> Vec<Record> {
    let mut random = seed;
    let mut next = [0; STREAMS as usize];
    let mut records = Vec::new();
    while records.len() < (STREAMS * READS) as usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let stream = (random >> 33) % STREAMS;
        let at = &mut next[stream as usize];
        if *at < READS {
            let extent = Extent::new(((stream * 500 + 100) << 20) + *at * READ, READ);
            records.push(Record::new(Nanos::from_millis(40 * records.len() as u64), Op::Read, extent));
            *at += 1;
        }
    }
    records
}

/// What reads take in the mean, in ms, in three runs with a minute between, and blocks copied.
fn runs(kind: PolicyKind, without: &[Part]) -> (Vec<f64>, u64) {
    let all: Vec<_> = (1..=3).map(turns).collect();
    let mut map = FreeMap::aged(4 << 30, Permille::new(500).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = InUse::new(map.block_size);
    all.iter().flatten().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin("exos-x24").expect("it is built in");
    let mut settings = Settings::new(drive).with_scheme(Scheme::Engine(kind));
    settings.pace = Pace::closed();
    settings.engine.without = without.iter().copied().collect();
    let mut replay = Replay::new(&map, settings).expect("a volume");
    let mut one = |requests: &Vec<Record>| {
        replay.run(requests.iter().copied().map(Ok::<_, ()>)).expect("no reader fails");
        replay.idle(Nanos::from_millis(60_000));
        replay.last_run().t_a_reads_ms()
    };
    let took = all.iter().map(&mut one).collect();
    (took, replay.volume().stats().copies_written)
}

#[test]
fn streams_are_left_to_the_drive() {
    let (none, _) = runs(PolicyKind::None, &[]);
    let (copied, blocks) = runs(PolicyKind::Fs2, &[Part::Streams]);
    let (fs2, few) = runs(PolicyKind::Fs2, &[]);
    assert!(copied[1] > none[1] * 1.5, "else there is nothing to show: {none:?} {copied:?}");
    assert!((0..3).all(|i| fs2[i] < none[i] * 1.1), "{none:?} {fs2:?}");
    assert!(few * 4 < blocks, "{few} of {blocks} blocks are copied");
}
