//! Volumes that never rest: where nobody pauses, what comes again is copied beside requests that are open, and costs hardly anything.

use fs2_block::{BlockSize, Extent, Nanos, Op, Permille};
use fs2_disk::{DriveProfile, Scheduler};
use fs2_engine::{Part, PolicyKind};
use fs2_sim::replay::{Belief, FreeMap, InUse, Pace, Replay, Scheme, Settings};
use fs2_trace::Record;

/// Files of two blocks anywhere on 4 GiB.
fn files(first: u64, n: u64) -> Vec<Record> {
    let block = u64::from(BlockSize::B4096.bytes());
    let place = |i: u64| i * 7919 % 65_521 * 16;
    (first..first + n)
        .map(|i| Record::new(Nanos(0), Op::Read, Extent::new(place(i) * block, 2 * block)))
        .collect()
}

/// What each run's requests take in the mean, in ms, and the blocks copied by then. Each of the clients asks for the next as soon as it has
/// an answer; after ten seconds of that the volume is restless.
fn responses(runs: &[Vec<Record>], clients: usize, rest: Nanos, without: &[Part]) -> Vec<(f64, u64)> {
    responses_of(Belief::Equal, runs, clients, rest, without)
}

fn responses_of(
    belief: Belief,
    runs: &[Vec<Record>],
    clients: usize,
    rest: Nanos,
    without: &[Part],
) -> Vec<(f64, u64)> {
    let mut map = FreeMap::aged(4 << 30, Permille::new(500).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = InUse::new(map.block_size);
    runs.iter().flatten().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut settings =
        Settings::new(drive).with_belief(belief, 1).with_scheme(Scheme::Engine(PolicyKind::Fs2));
    settings.depth = clients;
    settings.pace = Pace::Closed { clients, think_min: Nanos(0), think_max: Nanos(0) };
    settings.engine.scheduler = Scheduler::Sptf;
    settings.engine.restless_after = Nanos::from_millis(10_000);
    settings.engine.without = without.iter().copied().collect();
    let mut replay = Replay::new(&map, settings).expect("a volume");
    let mut run = |requests: &Vec<Record>| {
        replay.run(requests.iter().copied().map(Ok::<_, ()>)).expect("no reader fails");
        replay.idle(rest);
        replay.volume().check();
        (replay.last_run().response_ms(), replay.volume().stats().copies_written)
    };
    runs.iter().map(&mut run).collect()
}

#[test]
fn what_comes_again_is_copied_beside_requests() {
    let runs = vec![files(0, 3000); 64];
    for clients in [1, 8, 32] {
        let never = responses(&runs, clients, Nanos(0), &[Part::Beside]);
        let fs2 = responses(&runs, clients, Nanos(0), &[]);
        assert_eq!(never[63].1, 0, "{clients}: nobody pauses");
        assert!(fs2[63].0 < never[63].0 / 2.0, "{clients}: {never:?} {fs2:?}");
        for ((plain, _), (copied, _)) in never.iter().zip(&fs2) {
            assert!(*copied < plain * 1.01, "{clients}: {never:?} {fs2:?}");
        }
    }
}

/// Nobody sees who waits for what a drive has in its cache, so each copy is flushed. Every hundredth read a log is appended to, in order.
#[test]
fn nor_does_a_write_cache_keep_it_from_that() {
    let mut runs = vec![files(0, 3000); 24];
    for run in &mut runs {
        for i in (0..30).rev() {
            let appended = Extent::new((900_000 + i as u64 * 31) * 4096, 4096);
            let flush = Record::new(Nanos(0), Op::Flush, Extent::default());
            run.splice(i * 100..i * 100, [Record::new(Nanos(0), Op::Write, appended), flush]);
        }
    }
    for (clients, share) in [(1, 0.2), (8, 0.85)] {
        let of = |without: &[Part]| responses_of(Belief::WriteCache, &runs, clients, Nanos(0), without);
        let (never, fs2) = (of(&[Part::Beside]), of(&[]));
        assert!(fs2[23].0 < never[23].0 * share, "{clients}: {never:?} {fs2:?}");
        for ((plain, _), (copied, _)) in never.iter().zip(&fs2) {
            assert!(*copied < plain * 1.02, "{clients}: {never:?} {fs2:?}");
        }
    }
}

#[test]
fn what_comes_once_is_not() {
    let runs: Vec<_> = (0..4).map(|run| files(run * 5000, 5000)).collect();
    let once = responses(&runs, 8, Nanos(0), &[]);
    assert_eq!(once, responses(&runs, 8, Nanos(0), &[Part::Beside]));
    assert_eq!(once[3].1, 0);
}

/// A rest of two seconds in every ten: copies wait for it.
#[test]
fn who_rests_now_and_then_is_let_alone() {
    let runs = vec![files(0, 1500); 6];
    let rest = Nanos::from_millis(2000);
    let rests = responses(&runs, 8, rest, &[]);
    assert_eq!(rests, responses(&runs, 8, rest, &[Part::Beside]));
    assert!(rests[5].0 < rests[0].0 / 2.0, "{rests:?}");
}
