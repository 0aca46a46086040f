//! What pictures are drawn from against what the same replay counts, and against the trace.

use fs2_block::{Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::PolicyKind;
use fs2_sim::replay::{DotKind, FreeMap, Pace, Replay, Run, Samples, Settings};
use fs2_trace::Record;

/// Eight places far apart, read in turns; every tenth request is a write.
fn trace() -> Vec<Record> {
    let one = |i: u64| {
        let op = if i % 10 == 9 { Op::Write } else { Op::Read };
        let sector = (i % 8) * 480_000 + 40_000 + i / 8 * 64;
        Record::new(Nanos(i * 20_000_000), op, Extent::new(sector * 512, 32 * 512))
    };
    (0..600).map(one).collect()
}

/// Two runs with a minute after each, and their samples.
fn two_runs(policy: PolicyKind, stretch: u32, dots_max: Option<usize>) -> Vec<(Run, Option<Samples>)> {
    let mut map = FreeMap::aged(4 << 30, Permille::new(600).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = fs2_sim::replay::InUse::new(map.block_size);
    trace().iter().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut settings = Settings::new(drive).with_policy(policy);
    (settings.pace, settings.stretch) = (Pace::closed(), stretch);
    let mut replay = Replay::new(&map, settings).expect("a volume");
    if let Some(n) = dots_max {
        replay.keep_samples(n);
    }
    let mut out = Vec::new();
    for _ in 0..2 {
        replay.run(trace().into_iter().map(Ok::<_, ()>)).expect("no bad lines");
        replay.idle(Nanos::from_millis(60_000));
        out.push((replay.last_run().clone(), replay.last_samples().cloned()));
    }
    out
}

#[test]
fn dots_are_what_was_counted() {
    for (policy, stretch) in [(PolicyKind::None, 1), (PolicyKind::None, 3), (PolicyKind::Fs2, 1)] {
        let mut from_copies = 0;
        for (run, samples) in two_runs(policy, stretch, Some(10_000)) {
            let samples = samples.expect("they were asked for");
            let dots = samples.dots();
            assert_eq!((dots.len() as u64, samples.seen()), (run.split.count, run.split.count));
            let sum = dots.iter().fold(Nanos(0), |sum, d| sum + d.access);
            assert_eq!(sum, run.split.total());
            let count = |kind| dots.iter().filter(|d| d.kind == kind).count() as u64;
            assert_eq!(count(DotKind::ReadFromCopy), run.reads_from_copies, "{policy} {stretch}");
            assert_eq!(count(DotKind::Read) + count(DotKind::ReadFromCopy), run.reads);
            assert_eq!(count(DotKind::Write), run.requests - run.reads);
            from_copies += run.reads_from_copies;
            let last = samples.moments().last().expect("an end");
            assert_eq!(last.replicas, run.replicas);
            assert_eq!(last.at, run.elapsed + Nanos::from_millis(60_000));
            assert_eq!(samples.answered(), run.elapsed);
            assert_eq!(samples.moments().next().map(|m| m.at), Some(Nanos(0)));
        }
        assert_eq!(from_copies > 0, policy == PolicyKind::Fs2, "{policy}");
    }
}

/// Without copies, and none of the engine's own accesses between, the dots are the trace.
#[test]
fn distances_are_the_traces() {
    let (run, samples) = two_runs(PolicyKind::None, 1, Some(10_000)).swap_remove(1);
    let trace = trace();
    let dots = samples.expect("they were asked for").dots();
    let mut as_in_trace = 0;
    for (i, (dot, record)) in dots.iter().zip(&trace).enumerate() {
        assert_eq!(dot.sector, record.extent.sector());
        if i > 0 {
            let before = trace[i - 1].extent.end() / 512;
            as_in_trace += u64::from(dot.distance == dot.sector.0.abs_diff(before));
        }
    }
    // The second run finds every bitmap loaded.
    assert_eq!(run.own.count, 0);
    assert_eq!(as_in_trace, trace.len() as u64 - 1);
}

#[test]
fn sampling_changes_no_figure_and_few_dots_are_drawn_from_all() {
    let with = two_runs(PolicyKind::Fs2, 1, Some(50));
    let without = two_runs(PolicyKind::Fs2, 1, None);
    for ((a, few), (b, none)) in with.iter().zip(&without) {
        assert!(none.is_none());
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        let few = few.as_ref().expect("they were asked for");
        assert_eq!((few.dots().len(), few.seen()), (50, a.split.count));
        let half = few.dots().iter().filter(|d| d.at > Nanos(a.elapsed.0 / 2)).count();
        assert!((10..=40).contains(&half), "{half} of 50 in the second half");
    }
}
