//! What a request costs in a replay, all in: generated, through the engine, served by the modelled drive,
//! counted.
//!
//! `cargo bench -p fs2-benches --bench replay`. Absolute figures vary by a third and more on a shared machine.
#![allow(missing_docs)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fs2_block::{BlockSize, Extent, Nanos, Op, Permille};
use fs2_disk::{DriveProfile, Scheduler};
use fs2_engine::PolicyKind;
use fs2_sim::replay::{FreeMap, InUse, Pace, Replay, Settings};
use fs2_trace::Record;

const REQUESTS: u64 = 100_000;

/// 4 KiB reads all over 10 GiB.
fn random(i: u64) -> Record {
    let x = (i + 1).wrapping_mul(6_364_136_223_846_793_005);
    Record::new(Nanos(i * 100_000), Op::Read, Extent::new((x >> 33) % 2_600_000 * 4096, 4096))
}

/// 16 KiB files of eight directories, in turns.
fn turns(i: u64) -> Record {
    let block = (i % 8) * 300_000 + 20_000 + i / 8 * 4 % 8_000;
    Record::new(Nanos(i * 100_000), Op::Read, Extent::new(block * 4096, 16_384))
}

/// The request of that number.
type Trace = fn(u64) -> Record;

fn volume(trace: Trace, policy: PolicyKind, clients: usize) -> Replay {
    let used = Permille::new(600).expect("below 1000");
    let mut map = FreeMap::aged(10 << 30, used, 1).expect("ext2 has room");
    let mut in_use = InUse::new(BlockSize::B4096);
    (0..REQUESTS).map(trace).for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut settings = Settings::new(drive).with_policy(policy);
    let (think_min, think_max) = (Nanos::from_millis(5), Nanos::from_millis(100));
    settings.pace = Pace::Closed { clients, think_min, think_max };
    settings.engine.scheduler = Scheduler::Sptf;
    let mut replay = Replay::new(&map, settings).expect("a volume");
    // The second run is measured: copies are there.
    let _ = replay.run((0..REQUESTS).map(|i| Ok::<_, ()>(trace(i))));
    replay.idle(Nanos::from_millis(60_000));
    replay
}

fn runs(c: &mut Criterion) {
    let mut group = c.benchmark_group("replayed requests");
    group.throughput(Throughput::Elements(REQUESTS)).sample_size(10);
    // With 32 outstanding, every copy of each that waits is looked at before each access.
    let cases = [("random", random as Trace, 1), ("turns", turns, 1), ("turns by 32 clients", turns, 32)];
    for (name, trace, clients) in cases {
        for policy in [PolicyKind::None, PolicyKind::Fs2Of2005, PolicyKind::Fs2] {
            group.bench_function(format!("{name}, {policy}"), |b| {
                b.iter_batched_ref(
                    || volume(trace, policy, clients),
                    |replay| replay.run((0..REQUESTS).map(|i| Ok::<_, ()>(trace(i)))),
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, runs);
criterion_main!(benches);
