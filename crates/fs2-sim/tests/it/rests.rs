//! Where every request ends a rest, the engine's own work in these rests is what each of them would pay for.

use fs2_block::{Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{FreeMap, InUse, Pace, Replay, Scheme, Settings};
use fs2_trace::Record;

const BLOCK: u64 = 4096;

/// Reads of one who listens: 64 KiB every 1.5 seconds, 4 MiB in a row, elsewhere each time.
const READS: u64 = 2048;

fn listener() -> Vec<Record> {
    let at = |i: u64| {
        let (song, part) = (i / 64, i % 64);
        Extent::new((20_000 + song * 37 % 97 * 9000) * BLOCK + part * (64 << 10), 64 << 10)
    };
    (0..READS).map(|i| Record::new(Nanos::from_millis(1500 * i), Op::Read, at(i))).collect()
}

/// What the reads take in the mean, in ms, and how many blocks were copied.
fn listen(drive: &str, kind: PolicyKind, without: &[Part]) -> (f64, u64) {
    let reads = listener();
    let mut map = FreeMap::aged(4 << 30, Permille::new(500).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = InUse::new(map.block_size);
    reads.iter().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin(drive).expect("it is built in");
    let mut settings = Settings::new(drive).with_scheme(Scheme::Engine(kind));
    settings.pace = Pace::Open;
    settings.engine.without = without.iter().copied().collect();
    settings.engine.space = Permille::new(50).expect("below 1000");
    let mut replay = Replay::new(&map, settings).expect("a volume");
    replay.run(reads.iter().map(|r| Ok::<_, ()>(*r))).expect("no reader fails");
    replay.volume().check();
    (replay.last_run().response_reads_ms(), replay.volume().stats().copies_written)
}

fn hardly_later(drive: &str) {
    let (plain, _) = listen(drive, PolicyKind::None, &[]);
    let (with, copied) = listen(drive, PolicyKind::Fs2, &[]);
    assert!(copied > 0, "what it costs is tried");
    assert!(with < plain * 1.05, "{with} ms beside {plain}");
    let (unlimited, _) = listen(drive, PolicyKind::Fs2, &[Part::Disturbance]);
    assert!(unlimited > plain * 1.2, "{unlimited} ms beside {plain}: nothing to see otherwise");
}

#[test]
fn who_listens_to_music_hardly_waits_for_copies() {
    hardly_later("wd800-repaired");
}

/// Its segments hide for many reads that the drive no longer reads ahead.
#[test]
fn nor_on_a_drive_with_a_large_cache() {
    hardly_later("nearline-hc310");
}
