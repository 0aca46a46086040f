//! What a modelled drive and the request queue cost a request.
//!
//! `cargo bench -p fs2-benches --bench disk`. Absolute figures vary by a third and more on a shared machine;
//! compare the lines of one run.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Head, Knowledge, Queue, Scheduler};

/// SplitMix64 (public domain, Vigna).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// So many requests an iteration, so that setting up does not count.
const REQUESTS: u64 = 10_000;

fn serve(c: &mut Criterion) {
    let mut group = c.benchmark_group("serve");
    group.throughput(Throughput::Elements(REQUESTS));
    for name in ["wd800-repaired", "nearline-hc310", "ssd-nvme"] {
        let profile = DriveProfile::builtin(name).unwrap();
        let blocks = profile.capacity_sectors() / 8;
        let mut run = |what: &str, next: &mut dyn FnMut(&mut Random, u64) -> (Op, u64)| {
            let (mut disk, mut random, mut now) = (Disk::new(profile.clone()), Random(1), Nanos(0));
            let mut i = 0;
            group.bench_function(format!("{name}, {what}"), |b| {
                b.iter(|| {
                    for _ in 0..REQUESTS {
                        i += 1;
                        let (op, block) = next(&mut random, i);
                        now = disk.serve(now, op, Sector(block % blocks * 8), 8).end();
                    }
                    now
                });
            });
        };
        run("random reads", &mut |r, _| (Op::Read, r.below(blocks)));
        run("random writes", &mut |r, _| (Op::Write, r.below(blocks)));
        run("a sequence", &mut |_, i| (Op::Read, i));
    }
    group.finish();
}

fn predict(c: &mut Criterion) {
    let mut group = c.benchmark_group("predict");
    let profile = DriveProfile::default();
    let blocks = profile.capacity_sectors() / 8;
    let mut random = Random(2);
    let mut disk = Disk::new(profile.clone());
    let now = disk.serve(Nanos(0), Op::Read, Sector(80_000_000), 8).end();
    group.bench_function("by the drive", |b| {
        b.iter(|| disk.predict(now, Op::Read, Sector(random.below(blocks) * 8), 8));
    });
    let mut head = Head::new(profile, Knowledge::Full);
    head.completed(Op::Read, Sector(80_000_000), 8, Nanos(0), now);
    group.bench_function("by belief", |b| {
        b.iter(|| head.predict_positioning(now, Sector(random.below(blocks) * 8)));
    });
    group.finish();
}

fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("push and pop");
    let disk = Disk::new(DriveProfile::default());
    for depth in [1, 32] {
        for scheduler in Scheduler::ALL {
            let mut random = Random(3);
            let mut queue = Queue::new(scheduler, Some(Nanos::from_millis(1000)));
            let mut push = |queue: &mut Queue, id| {
                queue.push(id, Op::Read, &[Sector(random.below(150_000_000))], 8, Nanos(0));
            };
            (1..depth).for_each(|id| push(&mut queue, id));
            group.bench_function(format!("{}, {depth} waiting", scheduler.name()), |b| {
                b.iter(|| {
                    push(&mut queue, 0);
                    queue.pop(black_box(Nanos(0)), &disk)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, serve, predict, queue);
criterion_main!(benches);
