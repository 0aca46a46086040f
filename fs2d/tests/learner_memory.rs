//! The default policy learns in fixed memory: at most 64 MiB beside the log, on the largest volume, whatever is read and written
//! and however long nothing rests.
//!
//! What is counted is what Rust's allocator hands out to the test's thread.

mod counting;

use counting::{HAS, MOST};
use fs2_block::{BlockNo, BlockRange, Nanos};
use fs2_engine::policy::{Fetch, Fs2, Place, Policy, ReadSeen, Shape, Space};
use fs2_engine::{Brought, Head, Log};
use fs2_table::{Replica, Trust};

const MAX: isize = 64 << 20;

/// What it takes after so much: less says that something is no longer remembered.
const LEAST: isize = 24 << 20;

/// Blocks of 16 TiB.
const BLOCKS: u32 = u32::MAX;

/// Reads until one is repeated: more than are open at a time.
const LATER: u32 = 100;

/// A volume whose files nobody has copied, with its last block free.
struct Full;

impl Space for Full {
    fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
        Some(Vec::new())
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
    fn copies(&self, _: BlockNo) -> usize {
        0
    }
    fn room(&self) -> usize {
        1000
    }
    fn capacity(&self) -> usize {
        BLOCKS as usize / 20
    }
}

/// The policy, what it has, and a log without room: everything has to be remembered by address.
struct Learner {
    policy: Fs2,
    log: Log,
    head: Head,
    now: Nanos,
    from: isize,
}

impl Learner {
    fn new() -> Learner {
        let from = HAS.get();
        MOST.set(from);
        let shape =
            Shape { blocks: BLOCKS, group_blocks: 32_768, first_block: 0, block_bytes: 4096, seed: 1 };
        Learner { policy: Fs2::new(&shape), log: Log::new(0), head: Head::new(None), now: Nanos(0), from }
    }

    fn read(&mut self, start: u32, blocks: u32, copy: Option<u32>) {
        self.now += Nanos::from_millis(5);
        let copy = copy.map(BlockNo);
        let blocks = BlockRange::new(start, start + blocks);
        let seen = ReadSeen {
            now: self.now,
            arrived: self.now,
            touched: blocks,
            blocks,
            data: Brought::NOTHING,
            wanted: true,
            hashes: &[],
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
        self.policy.read_came(blocks);
        self.policy.read_seen(&seen, &Full, &mut self.log);
        self.policy.trail();
    }

    /// A rest: as much of what waits is asked for as one rest has time for.
    fn rest(&mut self, reads: usize) {
        self.policy.idle(self.now, &mut self.log);
        for _ in 0..reads {
            let Fetch::Read(blocks) = self.policy.fetch(Nanos::from_millis(60_000), &Full) else { break };
            self.policy.fetched(blocks, Brought::NOTHING, &[], &mut self.log);
        }
    }

    fn check(&self, what: &str) {
        let most = MOST.get() - self.from;
        assert!(most <= MAX, "{what}: {most} bytes, {MAX} are allowed");
    }
}

/// A generator of Marsaglia's.
fn random(state: &mut u64) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 32) as u32
}

#[test]
fn it_learns_in_64_mib() {
    let mut l = Learner::new();
    let mut seed = 88_172_645_463_325_252;
    let mut earlier = seed;
    for i in 0..1_500_000 {
        let at = random(&mut seed) % (BLOCKS - 64);
        l.read(at, 1 + i % 32, (i % 3 == 0).then(|| BLOCKS - at));
        // And again, somewhat later: else most of it would not be worth a copy.
        if i >= LATER {
            let at = random(&mut earlier) % (BLOCKS - 64);
            l.read(at, 1 + (i - LATER) % 32, None);
        }
    }
    l.check("reads all over the volume");
    assert!(MOST.get() - l.from > LEAST, "it remembers hardly anything: {} bytes", MOST.get() - l.from);
    // The same few blocks, again and again, while nothing rests.
    for i in 0..6_000_000 {
        l.read(1000 + i % 3 * 2, 1, None);
    }
    l.check("the same reads");
    for i in 0..1_000_000 {
        let at = random(&mut seed) % (BLOCKS - 64);
        let (original, replica) = (BlockNo(at), BlockNo(BLOCKS - at));
        let lost = Replica { original, replica, hash: 0, trust: Trust::Verified };
        l.policy.written(BlockRange::at(original, 1), &[lost]);
        if i % 100_000 == 0 {
            l.rest(1000);
        }
    }
    l.check("writes all over the volume");
    l.rest(usize::MAX);
    l.check("rests");
    let mut place = Place::Later;
    while place == Place::Later {
        place = l.policy.place(64, &l.head, &Full);
    }
    assert_eq!(place, Place::Nowhere);
    l.check("a full volume");
}
