//! Where every request ends a rest, the engine's own work in these rests is what each of them would pay for. Where hardly any does, it is done there.

use fs2_block::{Extent, Nanos, Op, Permille};
use fs2_disk::{DriveProfile, Scheduler};
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{Belief, FreeMap, InUse, Pace, Replay, Scheme, Settings};
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

/// A volume of 4 GiB, half of it in use, whose reads these are.
fn volume(reads: &[Record]) -> FreeMap {
    let mut map = FreeMap::aged(4 << 30, Permille::new(500).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = InUse::new(map.block_size);
    reads.iter().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    map
}

fn settings(drive: &str, kind: PolicyKind) -> Settings {
    let drive = DriveProfile::builtin(drive).expect("it is built in");
    let mut settings = Settings::new(drive).with_scheme(Scheme::Engine(kind));
    settings.engine.space = Permille::new(50).expect("below 1000");
    settings
}

/// What the reads take in the mean, in ms, and how many blocks were copied.
fn listen(drive: &str, kind: PolicyKind, without: &[Part]) -> (f64, u64) {
    let reads = listener();
    let mut settings = settings(drive, kind);
    settings.pace = Pace::Open;
    settings.engine.without = without.iter().copied().collect();
    let mut replay = Replay::new(&volume(&reads), settings).expect("a volume");
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

/// Pauses of up to 90 ms, of which some end while the engine works, until no more may be late; then 0.8 seconds, as nobody ever paused.
#[test]
fn where_no_more_may_be_late_copies_wait_for_a_longer_pause_than_any() {
    let place = |i: u64| i * 7919 % 65_521 * 16 * BLOCK;
    let mut at = 0;
    let reads: Vec<_> = (0..4000)
        .map(|i| {
            at += ((i * 2_654_435_761) >> 7) % 90;
            Record::new(Nanos::from_millis(at), Op::Read, Extent::new(place(i), 2 * BLOCK))
        })
        .collect();
    let mut settings = settings("wd800-repaired", PolicyKind::Fs2).with_belief(Belief::Mismatched, 1);
    settings.pace = Pace::Closed { clients: 2, think_min: Nanos(0), think_max: Nanos::from_millis(1000) };
    settings.depth = 2;
    settings.engine.scheduler = Scheduler::Sptf;
    // More begin, and make somebody late.
    settings.engine.without = [Part::Batches].into_iter().collect();
    let mut replay = Replay::new(&volume(&reads), settings).expect("a volume");
    replay.run(reads.iter().map(|r| Ok::<_, ()>(*r))).expect("no reader fails");
    let copied = |replay: &Replay| replay.volume().stats().copies_written;
    let in_pauses = copied(&replay);
    assert!(in_pauses > 0 && !replay.volume().pause_work().allowed, "{:?}", replay.volume().pause_work());
    replay.idle(Nanos::from_millis(800));
    assert!(copied(&replay) > 2 * in_pauses, "{in_pauses}, then {}", copied(&replay));
}

/// So many scattered reads of 8 KiB, each after a pause of 0.1 seconds.
fn pausing(count: u64) -> impl Iterator<Item = Result<Record, ()>> {
    let extent = |i: u64| Extent::new((20_000 + i * 7919 % 65_521 * 8) * BLOCK, 2 * BLOCK);
    (0..count).map(move |i| Ok(Record::new(Nanos::from_millis(100 * i), Op::Read, extent(i))))
}

#[test]
fn in_pauses_few_blocks_wait_for_more_or_for_a_rest() {
    for (count, without, soon) in [(20, None, 0), (40, None, 64), (20, Some(Part::Batches), 40)] {
        let reads: Vec<_> = pausing(60).flatten().collect();
        let mut settings = settings("wd800-repaired", PolicyKind::Fs2);
        (settings.pace, settings.engine.without) = (Pace::Open, without.into_iter().collect());
        let mut replay = Replay::new(&volume(&reads), settings).expect("a volume");
        replay.run(pausing(count)).expect("no reader fails");
        let copied = |replay: &Replay| replay.volume().stats().copies_written;
        replay.idle(Nanos::from_millis(500));
        assert_eq!(copied(&replay), soon, "{count} reads");
        replay.idle(Nanos::from_millis(1000));
        assert!(copied(&replay) >= count, "{count} reads");
    }
}

/// The order of reading is known already, and whoever reads it meanwhile goes to the original.
#[test]
fn updates_do_not_wait_for_more() {
    let reads: Vec<_> = pausing(60).flatten().collect();
    let mut settings = settings("wd800-repaired", PolicyKind::Fs2);
    settings.pace = Pace::Open;
    let mut replay = Replay::new(&volume(&reads), settings).expect("a volume");
    replay.run(pausing(40)).expect("no reader fails");
    replay.idle(Nanos::from_millis(5000));
    let copied = replay.volume().stats().copies_written;
    assert!(copied > 0);
    let write = Record::new(Nanos(0), Op::Write, reads[7].extent);
    replay.run([Ok::<_, ()>(write)]).expect("no reader fails");
    replay.idle(Nanos::from_millis(500));
    assert_eq!(replay.volume().stats().copies_written, copied + 2);
}
