//! What the engine costs a request: lookup, hash, a request through the machine.
//!
//! `cargo bench -p fs2-benches`. Absolute figures vary by a third and more on a shared machine; compare
//! the lines of one run.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fs2_block::{BlockNo, BlockRange, ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId, Sector};
use fs2_disk::{Disk, DriveProfile};
use fs2_engine::policy::Shape;
use fs2_engine::{AttachOptions, EngineConfig, Head, Outcome, PolicyKind, Times, Volume};
use fs2_table::{Replica, ReplicaTable, Trust, content_hash};
use fs2_trace::Record;
use fs2d::server::TraceRing;

/// A table of `n` replicas in runs of 32, the originals scattered.
fn table(n: u32) -> ReplicaTable {
    let mut t = ReplicaTable::new(n as usize, 1);
    for i in 0..n {
        let run = (i / 32).wrapping_mul(0x9e37_79b1) % (n / 32) * 64;
        let original = BlockNo((1 << 25) + run + i % 32);
        let entry = Replica { original, replica: BlockNo(i), hash: u64::from(i), trust: Trust::Verified };
        // Two runs may be drawn onto the same originals; the second is left out.
        let _ = t.insert(entry);
    }
    t
}

fn lookups(c: &mut Criterion) {
    let t = table(1 << 20);
    let hits: Vec<BlockNo> = t.iter().map(|r| r.original).step_by(97).collect();
    let mut group = c.benchmark_group("table of 1 M replicas");
    let mut i = 0;
    group.bench_function("copy of 8 blocks, there", |b| {
        b.iter(|| {
            i = (i + 1) % hits.len();
            let first = hits[i].0 & !31;
            t.copy_of_run(black_box(BlockRange::new(first, first + 8))).next()
        });
    });
    group.bench_function("any of 8 blocks, none there", |b| {
        let mut at = 0u32;
        b.iter(|| {
            at = at.wrapping_add(0x9e37_79b1) >> 8;
            t.any_in_originals(black_box(BlockRange::new(at, at + 8)))
        });
    });
    group.finish();
}

/// The critical mark: replicas of 10 GiB go, a block group's at a time.
fn release(c: &mut Criterion) {
    const REPLICAS: u32 = 10 << (30 - 12);
    let mut group = c.benchmark_group("10 GiB of replicas");
    group.sample_size(10);
    group.bench_function("dropped by block groups", |b| {
        b.iter_batched(
            || table(REPLICAS),
            |mut t| {
                for from in (0..REPLICAS).step_by(32_768) {
                    t.remove_by_replica(BlockRange::new(from, from + 32_768));
                }
                assert!(t.is_empty());
                t
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn hash(c: &mut Criterion) {
    let block = vec![7u8; 4096];
    let mut group = c.benchmark_group("content hash");
    group.throughput(Throughput::Bytes(4096));
    group.bench_function("4 KiB", |b| b.iter(|| content_hash(1, black_box(&block))));
    group.finish();
}

/// A volume that holds no file system: the machine alone.
fn request(c: &mut Criterion) {
    let mut disk = vec![0u8; 1 << 22];
    let config = EngineConfig { policy: PolicyKind::None, ..EngineConfig::default() };
    let options = AttachOptions::default();
    let (mut volume, _) = Volume::attach(&mut disk, None, config, &options).expect("a plain device attaches");
    let data = vec![0u8; 4096];
    let mut n = 0u64;
    c.bench_function("a 4 KiB read through the machine, plain device", |b| {
        b.iter(|| {
            n += 1;
            let now = Nanos(n * 1000);
            let extent = Extent::new(n * 4096 % (1 << 22), 4096);
            let (id, connection, flags) = (RequestId(n), ConnectionId(0), Flags::default());
            volume.submit(now, Request { id, connection, op: Op::Read, extent, flags }, None);
            let io = volume.poll_dispatch(now).expect("nothing forbids it");
            volume.complete(now + Nanos(500), io.id, Outcome::read(&data));
            volume.poll_reply()
        });
    });
}

/// What a thread has had of a processor, as far as the kernel has counted it: some ms late.
fn on_processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default())
}

/// What the daemon does for a 4 KiB read beside moving bytes: looks the block up, chooses a copy, counts the
/// time and tells the trace. The budget for all of it is 120 ns. Counted in processor time: others' programs add only
/// what they drive out of the caches.
fn hooks(c: &mut Criterion) {
    let t = table(1 << 20);
    let hits: Vec<BlockNo> = t.iter().map(|r| r.original).step_by(97).collect();
    let shape = Shape { blocks: 1 << 28, group_blocks: 32768, first_block: 0, block_bytes: 4096, seed: 1 };
    let mut policy = PolicyKind::Fs2.build(&shape);
    let mut times = Times::default();
    let head = Head::new(None);
    let ring = Arc::new(TraceRing::new(1 << 16));
    let theirs = ring.clone();
    let drain = std::thread::spawn(move || {
        theirs.drain(|record| {
            black_box(record);
            Ok::<_, ()>(())
        })
    });
    let mut group = c.benchmark_group("lookup, choice, metrics and trace hook of a 4 KiB read");
    let mut at = 0u32;
    let mut copies = Vec::new();
    let mut tap = ring.tap();
    let mut one = |block: BlockNo| {
        let now = Nanos(u64::from(block.0));
        let range = BlockRange::one(block);
        let mut choice = None;
        copies.clear();
        copies.extend(t.copy_of_run(range).map(|c| c.first));
        if !copies.is_empty() {
            choice = policy.choose(now, &head, Extent::new(u64::from(block.0) * 4096, 4096), block, &copies);
        }
        times.add(Nanos(u64::from(block.0 & 0xffff)));
        let record = Record::new(now, Op::Read, Extent::new(u64::from(block.0) * 4096, 4096));
        (choice, tap.push(record))
    };
    // Long samples, since time is counted by the clock's tick.
    group.sample_size(20).measurement_time(Duration::from_secs(4));
    let mut timed = |name: &str, next: &mut dyn FnMut() -> BlockNo| {
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                let before = on_processor();
                for _ in 0..iterations {
                    black_box(one(next()));
                }
                on_processor() - before
            });
        });
    };
    timed("no replica", &mut || {
        at = at.wrapping_add(0x9e37_79b9) >> 8;
        BlockNo(at)
    });
    let mut i = 0;
    timed("one replica", &mut || {
        i = (i + 1) % hits.len();
        hits[i]
    });
    group.finish();
    drop(tap);
    ring.close();
    drain.join().expect("it only takes").expect("it never says no");
}

fn drive(c: &mut Criterion) {
    let profile = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let sectors = profile.capacity_sectors();
    let mut disk = Disk::new(profile);
    let mut at = 1u64;
    c.bench_function("an access of the modelled drive", |b| {
        b.iter(|| {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let now = disk.free_at();
            disk.serve(now, Op::Read, Sector((at >> 20) % (sectors - 64)), 8)
        });
    });
}

criterion_group!(benches, lookups, release, hash, hooks, request, drive);
criterion_main!(benches);
