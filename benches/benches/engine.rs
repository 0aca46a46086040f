//! What the engine costs a request: lookup, hash, a request through the machine.
//!
//! `cargo bench -p fs2-benches`. Absolute figures vary by a third and more on a shared machine; compare
//! the lines of one run.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fs2_block::{
    BlockNo, BlockRange, BlockSize, ConnectionId, Extent, Flags, Nanos, Op, Permille, ReadAt, Request,
    RequestId, Sector,
};
use fs2_disk::{Disk, DriveProfile};
use fs2_engine::policy::{Asked, Behind, Fs2, Place, Policy, ReadSeen, Shape, Space};
use fs2_engine::{
    AttachOptions, Brought, EngineConfig, Head, IoData, IoOp, Log, Outcome, PolicyKind, Times, Volume,
    Watermarks,
};
use fs2_sim::replay::{FreeMap, Image};
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

/// Copies all that is read, one behind the other.
#[derive(Clone)]
struct Everything {
    next: u32,
    blocks: u32,
    group_blocks: u32,
}

impl Policy for Everything {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }

    fn choose(&mut self, _: Nanos, _: &Head, _: &Asked<'_>) -> Option<usize> {
        None
    }

    fn captures(&self) -> bool {
        true
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, _: &dyn Space, log: &mut Log) {
        let run = log.open();
        for ((i, block), &hash) in seen.blocks.iter().enumerate().zip(seen.hashes) {
            log.push(run, block, hash, seen.data.block(i, 4096));
        }
        log.close(run);
    }

    fn idle(&mut self, _: Nanos, _: &mut Log) {}

    fn eager(&self) -> bool {
        true
    }

    fn place(&mut self, want: u32, _: &Head, space: &dyn Space) -> Place {
        let group = self.next / self.group_blocks;
        if !space.is_known(group) {
            return Place::NeedsGroup(group);
        }
        let end = ((group + 1) * self.group_blocks).min(self.blocks);
        match space.first_vacant(BlockRange::new(self.next, end), want, want) {
            Some(row) => {
                self.next = row.end();
                Place::At(row)
            }
            None => {
                self.next = end;
                Place::Nowhere
            }
        }
    }

    fn hot_region(&self) -> Option<BlockRange> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

/// A volume over a device without contents, where everything takes 1 ms.
struct Driven {
    volume: Volume,
    image: Image,
    now: Nanos,
}

impl Driven {
    fn request(&self, op: Op, blocks: BlockRange) -> Request {
        let extent = blocks.extent(BlockSize::B4096);
        Request { id: RequestId(1), connection: ConnectionId(0), op, extent, flags: Flags::default() }
    }

    /// One request, and whatever it sets off.
    fn call(&mut self, op: Op, blocks: BlockRange) {
        self.volume.submit(self.now, self.request(op, blocks), None);
        while let Some(io) = self.volume.poll_dispatch(self.now) {
            self.now += Nanos::from_millis(1);
            match (io.op, &io.data) {
                (IoOp::Read, IoData::Unseen) | (_, IoData::Client(_) | IoData::Around { .. }) => {
                    self.volume.complete_unseen(self.now, io.id, Ok(()), Brought::Unseen);
                }
                (IoOp::Read, _) => {
                    let mut bytes = vec![0; io.extent.len() as usize];
                    self.image.read_at(io.extent.offset(), &mut bytes).expect("inside the volume");
                    self.volume.complete(self.now, io.id, Outcome::read(&bytes));
                }
                _ => self.volume.complete(self.now, io.id, Outcome::done()),
            }
            self.now += Nanos::from_millis(50);
        }
        assert!(self.volume.poll_reply().is_some_and(|r| r.result.is_ok()));
    }
}

/// Blocks of a GiB.
const GIB: u32 = 1 << (30 - 12);

/// A volume of 64 GiB with 10 GiB of replicas, just above the low mark, and a write that takes all that is free: then even
/// without a replica less is free than the low mark asks for, and all of them go.
fn nearly_full(punch: bool) -> (Driven, Request) {
    const REPLICAS: u32 = 10 * GIB;
    let p = |n| Permille::new(n).expect("below 1000");
    let mut map = FreeMap::aged(64 << 30, p(1), 1).expect("ext2 has room");
    map.free.remove_range(0..12 * GIB);
    let mut image = Image::new(&map);
    image.convert(p(200), 1).expect("there is room for a table");
    let watermarks = Watermarks::new(p(310), p(300), p(50)).expect("in order");
    let config = EngineConfig {
        policy: PolicyKind::None,
        space: p(200),
        watermarks,
        punch,
        ..EngineConfig::default()
    };
    let (mut volume, _) = Volume::attach_unseen(&mut image, config).expect("it can be attached");
    volume.set_policy(Box::new(Everything { next: 12 * GIB, blocks: 64 * GIB, group_blocks: 1 << 15 }));
    let mut driven = Driven { volume, image, now: Nanos(0) };
    let mut at = 0;
    while driven.volume.table().len() < REPLICAS as usize {
        // Not what lies at the beginning, which is never copied.
        driven.call(Op::Read, BlockRange::new(1024 + at, 1024 + at + 64));
        at += 64;
        assert!(at < 12 * GIB - 1024, "{} replicas", driven.volume.table().len());
    }
    let mut end = 64 * GIB;
    while driven.volume.free_share() > p(325) {
        driven.call(Op::Write, BlockRange::new(end - GIB, end));
        end -= GIB;
    }
    assert!(driven.volume.table().len() >= REPLICAS as usize, "none has gone yet");
    let from = driven.volume.table().iter().last().map_or(0, |r| r.replica.0 + 1);
    let write = driven.request(Op::Write, BlockRange::new(from, end));
    (driven, write)
}

/// The same through a volume: the write that leaves too little free.
fn reclaim(c: &mut Criterion) {
    let mut group = c.benchmark_group("a write below the critical mark, with 10 GiB of replicas");
    group.sample_size(10);
    for (name, punch) in [("dropped", false), ("dropped, to be punched", true)] {
        // Not made where other benches are asked for: theirs would run in the heap that this leaves.
        let mut made = None;
        group.bench_function(name, |b| {
            let (driven, write) = made.get_or_insert_with(|| nearly_full(punch));
            b.iter_batched(
                || driven.volume.clone(),
                |mut volume| {
                    volume.submit(driven.now, *write, None);
                    assert!(volume.table().is_empty(), "{} are left", volume.table().len());
                    volume
                },
                BatchSize::PerIteration,
            );
        });
    }
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
    let (mut copies, behind) = (Vec::new(), Behind::default());
    let mut tap = ring.tap();
    let mut one = |block: BlockNo| {
        let now = Nanos(u64::from(block.0));
        let range = BlockRange::one(block);
        let mut choice = None;
        copies.clear();
        copies.extend(t.copy_of_run(range).map(|c| c.first));
        if !copies.is_empty() {
            let (original, only_copies) = (Extent::new(u64::from(block.0) * 4096, 4096), false);
            let (first, copies, behind) = (block, &copies[..], &behind);
            choice = policy.choose(now, &head, &Asked { original, first, copies, only_copies, behind });
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
                        touched: range,
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
                        transfer: Nanos(0),
                        alone: true,
                        at_once: true,
                    };
                    policy.read_came(black_box(range));
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

criterion_group!(benches, lookups, release, reclaim, hash, hooks, learning, request, drive);
criterion_main!(benches);
