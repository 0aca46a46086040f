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
use fs2_engine::policy::{Fs2, Policy, ReadSeen, Shape, Space};
use fs2_engine::{AttachOptions, Brought, EngineConfig, Head, Log, Outcome, PolicyKind, Times, Volume};
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

/// A volume whose files have copies from block 2²⁷ on, with room for more.
struct Copied;

impl Space for Copied {
    fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
        None
    }
    fn is_known(&self, _: u32) -> bool {
        true
    }
    fn first_vacant(&self, _: BlockRange, _: u32, _: u32) -> Option<BlockRange> {
        None
    }
    fn vacated(&self, _: BlockRange) -> u64 {
        0
    }
    fn has_replica(&self, _: BlockNo) -> bool {
        false
    }
    fn copies(&self, block: BlockNo) -> usize {
        usize::from(block.0 >= 1 << 27)
    }
    fn room(&self) -> usize {
        1 << 24
    }
}

/// What the policy does when a read has ended: runs, chances, heat, places, trails; what is new goes into the log with its payload, or is
/// remembered by address when that is full. The goal is below 1 us.
fn learning(c: &mut Criterion) {
    let shape = Shape { blocks: 1 << 28, group_blocks: 32768, first_block: 0, block_bytes: 4096, seed: 1 };
    let data = vec![7u8; 64 << 10];
    let hashes = [7u64; 16];
    let mut group = c.benchmark_group("learning from a read");
    group.sample_size(20).measurement_time(Duration::from_secs(4));
    let mut timed = |name: &str, blocks: u32, payload: bool, copied: bool, log_bytes: usize, again: bool| {
        let (mut policy, mut log) = (Fs2::new(&shape), Log::new(log_bytes));
        let mut n = 0u32;
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                let before = on_processor();
                for _ in 0..iterations {
                    n = n.wrapping_add(1);
                    // All over a half of the volume; one in eight again, later than the log has it: what does not come again is not copied
                    // in the end.
                    let of = if again && n % 8 == 7 { n.wrapping_sub(20_000) } else { n };
                    let start = of.wrapping_mul(0x9e37_79b1) >> 5 & !15 | u32::from(copied) << 27;
                    let (range, now) =
                        (BlockRange::new(start, start + blocks), Nanos(u64::from(n) * 5_000_000));
                    let copy = copied.then_some(BlockNo(start ^ 1 << 20));
                    let seen = ReadSeen {
                        now,
                        arrived: Nanos(now.0 - 5_000_000),
                        blocks: range,
                        data: if payload {
                            Brought::Bytes(&data[..blocks as usize * 4096])
                        } else {
                            Brought::NOTHING
                        },
                        wanted: true,
                        hashes: &hashes[..blocks as usize],
                        copy,
                        first_copy: copy,
                        measured: Nanos::from_millis(5),
                        served: Nanos::from_millis(5),
                        expected: Some(Nanos::from_millis(3)),
                        positioning: Nanos::from_millis(6),
                        alone: true,
                    };
                    policy.read_seen(black_box(&seen), &Copied, &mut log);
                    black_box(policy.trail());
                    if !log.has_room(64 << 10) {
                        log.clear();
                    }
                }
                on_processor() - before
            });
        });
    };
    timed("4 KiB, copied", 1, false, true, 0, true);
    timed("4 KiB, new, with its payload", 1, true, false, 64 << 20, true);
    timed("4 KiB, new, by address", 1, false, false, 0, true);
    timed("4 KiB, read once", 1, true, false, 64 << 20, false);
    timed("64 KiB, copied", 16, false, true, 0, true);
    timed("64 KiB, new, with its payload", 16, true, false, 64 << 20, true);
    timed("64 KiB, new, by address", 16, false, false, 0, true);
    timed("64 KiB, read once", 16, true, false, 64 << 20, false);
    group.finish();
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

criterion_group!(benches, lookups, release, hash, hooks, learning, request, drive);
criterion_main!(benches);
