//! A crowd at a drive that takes many requests: what is read from copies lies together, and what lies far away is not left out for it.

use fs2_block::{Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{FreeMap, InUse, Pace, Replay, Run, Scheme, Settings};
use fs2_trace::Record;

const BLOCK: u64 = 4096;
const READS: u64 = 8000;

/// Pieces that come in the same order in each run, and among them, one in 90, some that never came before.
fn requests(run: u64) -> Vec<Record> {
    let near = |i: u64| 60_000 + i * 4409 % READS * 8;
    let far = |i: u64| 800_000 + ((i + run * READS) * 48_271 % 100_003) * 2;
    let at = |i: u64| if i % 90 == 89 { far(i) } else { near(i) };
    (0..READS).map(|i| Record::new(Nanos(0), Op::Read, Extent::new(at(i) * BLOCK, BLOCK))).collect()
}

/// The last run of these, at a drive that takes eight at a time.
fn last(runs: &[Vec<Record>], pace: Pace, kind: PolicyKind, without: &[Part]) -> Run {
    last_at(8, runs, pace, kind, without)
}

/// The same at one that takes so many.
fn last_at(depth: usize, runs: &[Vec<Record>], pace: Pace, kind: PolicyKind, without: &[Part]) -> Run {
    let mut map = FreeMap::aged(4 << 30, Permille::new(500).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = InUse::new(map.block_size);
    runs.iter().flatten().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut settings = Settings::new(drive).with_scheme(Scheme::Engine(kind));
    settings.depth = depth;
    settings.engine.without = without.iter().copied().collect();
    settings.engine.scheduler = fs2_disk::Scheduler::Sptf;
    settings.pace = pace;
    settings.engine.space = Permille::new(50).expect("below 1000");
    let mut replay = Replay::new(&map, settings).expect("a volume");
    for run in runs {
        replay.run(run.iter().copied().map(Ok::<_, ()>)).expect("no reader fails");
        replay.idle(Nanos::from_millis(120_000));
    }
    replay.volume().check();
    replay.last_run().clone()
}

/// The third run of eight clients.
fn third(kind: PolicyKind, without: &[Part]) -> Run {
    let pace = Pace::Closed { clients: 8, think_min: Nanos(0), think_max: Nanos(0) };
    last(&[requests(0), requests(1), requests(2)], pace, kind, without)
}

#[test]
fn what_has_no_copy_is_not_left_out() {
    let (none, fs2) = (third(PolicyKind::None, &[]), third(PolicyKind::Fs2, &[]));
    let means = (none.response_ms(), fs2.response_ms());
    assert!(means.1 < means.0 / 4.0, "{means:?}");
    // The drive passes it over for as long as copies keep it busy, if it is let: here five times as long.
    let (slow, longest) = (none.response.quantile(990), fs2.response.quantile(1000));
    assert!(longest.0 < slow.0 * 3, "{longest:?}, and without copies a hundredth takes {slow:?}");
    let passed_over = third(PolicyKind::Fs2, &[Part::PassingOver]).response.quantile(1000);
    assert!(passed_over.0 > longest.0 * 3 / 2, "{passed_over:?}, {longest:?}");
}

/// A thousand files are visited in turn, then all are wanted at once: all of them are older than the slowest hundredth, and one
/// in sixteen goes first for that. In order of arrival the drive would go to and fro among the copies.
#[test]
fn a_burst_is_served_in_the_order_that_is_soonest() {
    const FILES: u64 = 1000;
    let place = |i: u64| 60_000 + i * 709;
    let read = |at: Nanos, i: u64| Record::new(at, Op::Read, Extent::new(place(i) * BLOCK, 2 * BLOCK));
    let visits: Vec<_> = (0..FILES).map(|i| read(Nanos::from_millis(20 * i), i * 381 % FILES)).collect();
    let burst: Vec<_> = (0..FILES).map(|i| read(Nanos(0), i)).collect();
    let runs = [visits.clone(), visits, burst];
    let of = |kind, without: &[Part]| last(&runs, Pace::Open, kind, without).response_ms();
    let (none, fs2) = (of(PolicyKind::None, &[]), of(PolicyKind::Fs2, &[]));
    assert!(fs2 < none / 2.0, "{fs2} {none}");
    let unwatched = of(PolicyKind::Fs2, &[Part::PassingOver]);
    assert!(fs2 < unwatched * 1.5, "{fs2} {unwatched}");
}

/// Files of one block that are read by popularity, in no order and four at a time. Where the drive takes one, the volume knows from where the arm
/// goes to the nearer of two copies; one that takes eight chooses who is next, and would be torn between them.
#[test]
fn what_waits_in_the_volume_has_a_choice_of_places() {
    const FILES: u64 = 2000;
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % FILES
    };
    let mut visit = |i: u64| {
        // The least of three: low numbers are popular.
        let file = random().min(random()).min(random());
        let place = 60_000 + file * 381 % FILES * 353;
        Record::new(Nanos::from_millis(40 * (i / 4)), Op::Read, Extent::new(place * BLOCK, BLOCK))
    };
    let runs = [(); 3].map(|()| (0..6000).map(&mut visit).collect::<Vec<_>>());
    let of = |depth, without: &[Part]| last_at(depth, &runs, Pace::Open, PolicyKind::Fs2, without);
    let (second, first) = (of(1, &[]), of(1, &[Part::SecondCopies]));
    let means = (second.response_ms(), first.response_ms());
    assert!(second.replicas > first.replicas && means.0 < means.1 * 0.95, "{means:?}");
    assert_eq!(of(8, &[]).replicas, first.replicas, "each file has one copy");
}
