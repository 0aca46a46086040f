//! The idle sweep over unverified entries costs the foreground next to nothing: the slowest hundredth of the reads
//! is at most a twentieth slower than over the same volume without a replica. The engine, a modelled drive, virtual
//! time; the same seeds, the same figures.

use std::collections::VecDeque;

use fs2_block::{
    BlockNo, ConnectionId, Extent, Flags, Nanos, Op, Permille, ReadAt, Request, RequestId, WriteAt,
};
use fs2_disk::{Disk, DriveProfile};
use fs2_engine::{AttachOptions, EngineConfig, Io, IoOp, Outcome, PolicyKind, Standing, Volume};
use fs2_ext2::{Layout, TableFile};
use fs2_sim::replay::{FreeMap, Image};
use fs2_table::{Geometry, Header, PAGE_BYTES, Replica, ReplicaTable, Trust, content_hash};

/// Bytes of the volume.
const BYTES: u64 = 60 << 30;

/// Entries to be verified: more than any run here has idle time for.
const ENTRIES: usize = 30_000;

/// Reads of a run.
const READS: usize = 8_000;

/// Random numbers by seed: splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with this mean.
    fn pause(&mut self, mean_ms: f64) -> Nanos {
        let u = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        Nanos::from_millis_f64(-mean_ms * (1.0 - u).ln())
    }
}

/// How reads arrive.
#[derive(Clone, Copy, Debug)]
enum Arrivals {
    /// Independently of each other, so many a second.
    Poisson(f64),
    /// One reader, which pauses so many ms on average after each answer.
    Closed(f64),
    /// So many reads one after the other, then a pause of so many ms on average, now and then ten times that.
    Bursts(usize, f64),
}

/// A volume without a replica, and the same with entries for blocks all over it, both blocks of each zero; and
/// their originals.
fn images() -> (Image, Image, Vec<BlockNo>) {
    let map = FreeMap::aged(BYTES, Permille::new(600).unwrap(), 1).unwrap();
    let mut image = Image::new(&map);
    image.convert(Permille::new(50).unwrap(), 77).unwrap();
    let empty = image.clone();
    let layout = Layout::read(&mut image).unwrap();
    let file = TableFile::find(&layout, &mut image).unwrap().unwrap();
    let place = |offset: u64| {
        let (from, extent) = file.extents.iter().rfind(|(from, _)| *from <= offset).unwrap();
        extent.offset() + (offset - from)
    };
    let geometry = Geometry::new(file.size, layout.group_count(), layout.block_size());
    let [mut a, mut b] = [[0; PAGE_BYTES]; 2];
    image.read_at(place(geometry.header_slot_offset(0)), &mut a).unwrap();
    image.read_at(place(geometry.header_slot_offset(1)), &mut b).unwrap();
    let found = Header::recover(&a, &b);
    let mut header = found.header.unwrap();
    let hash = content_hash(header.volume_id, &[0; 4096]);
    let (mut table, mut rng) = (ReplicaTable::new(geometry.max_entries(), 1), Rng(3));
    let blocks = layout.blocks();
    let mut draw = |free: bool| loop {
        let block = BlockNo(512 + rng.below(u64::from(blocks) - 1024) as u32);
        let ours = file.blocks.iter().any(|r| r.contains(block)) || layout.is_static_metadata(block);
        if image.is_free(block) == free && !ours {
            return block;
        }
    };
    let mut originals = Vec::new();
    while table.len() < ENTRIES {
        let (original, replica) = (draw(false), draw(true));
        if table.insert(Replica { original, replica, hash, trust: Trust::Verified }).is_ok() {
            originals.push(original);
        }
    }
    let mut page = table.next_dirty_page(None);
    while let Some(number) = page {
        let encoded = table.encode_page(number, header.generation, header.volume_id, true);
        image.write_at(place(geometry.page_offset(number)), &encoded.bytes[..]).unwrap();
        page = table.next_dirty_page(Some(number));
    }
    header.mark.as_mut().unwrap().pages_end = Some(table.pages_end());
    image.write_at(place(geometry.header_slot_offset(found.slot)), &header.encode()).unwrap();
    (empty, image, originals)
}

struct Bench {
    volume: Volume,
    image: Image,
    disk: Disk,
    now: Nanos,
    at_device: Option<(Io, Nanos)>,
    arrived: VecDeque<Nanos>,
    responses: Vec<u64>,
    /// How many reads were answered when the sweep was done.
    swept_at: Option<usize>,
}

impl Bench {
    /// The volume of `image`, nothing trusted. Reads go to originals, with entries and without: what they cost
    /// is the same but for the sweep.
    fn new(mut image: Image) -> Bench {
        let config = EngineConfig { policy: PolicyKind::None, distrust: true, ..EngineConfig::default() };
        let volume = Volume::attach(&mut image, None, config, &AttachOptions::default()).unwrap().0;
        assert_eq!(volume.standing(), &Standing::Active);
        Bench {
            volume,
            image,
            disk: Disk::new(DriveProfile::builtin("wd800-repaired").unwrap()),
            now: Nanos(0),
            at_device: None,
            arrived: VecDeque::new(),
            responses: Vec::new(),
            swept_at: None,
        }
    }

    /// Everything that happens until `until`, where not before it something was answered.
    fn advance(&mut self, until: Nanos, stop_at_answer: bool) -> bool {
        loop {
            self.pump();
            let answered = self.responses.len();
            if let Some((_, end)) = self.at_device {
                if end > until {
                    self.now = until;
                    return false;
                }
                self.complete();
                if stop_at_answer && self.responses.len() > answered {
                    return true;
                }
                continue;
            }
            match self.volume.poll_timeout().map(|at| at.max(self.now)) {
                Some(at) if at < until => {
                    assert!(at > self.now || self.dispatch(at), "the engine wakes up for nothing");
                    self.now = at;
                    self.volume.handle_timeout(at);
                }
                _ => {
                    self.now = until;
                    return false;
                }
            }
        }
    }

    fn dispatch(&mut self, now: Nanos) -> bool {
        let Some(io) = self.volume.poll_dispatch(now) else { return false };
        let op = match io.op {
            IoOp::Read => Op::Read,
            IoOp::Flush => Op::Flush,
            _ => Op::Write,
        };
        let service = self.disk.serve(now, op, io.extent.sector(), io.extent.sectors() as u32);
        self.at_device = Some((io, service.end()));
        true
    }

    fn pump(&mut self) {
        if self.at_device.is_none() {
            self.dispatch(self.now);
        }
    }

    fn complete(&mut self) {
        let (io, end) = self.at_device.take().unwrap();
        self.now = end;
        let mut bytes = vec![0; io.extent.len() as usize];
        let outcome = if io.op == IoOp::Read {
            self.image.read_at(io.extent.offset(), &mut bytes).unwrap();
            Outcome::read(&bytes)
        } else {
            Outcome::done()
        };
        self.volume.complete(end, io.id, outcome);
        if self.swept_at.is_none() && self.volume.table().unverified_count() == 0 {
            self.swept_at = Some(self.responses.len());
        }
        while let Some(reply) = self.volume.poll_reply() {
            assert_eq!(reply.result, Ok(()));
            // One at a time at the device, in the order of arrival.
            let arrived = self.arrived.pop_front().unwrap();
            self.responses.push(end.since(arrived).0);
        }
    }

    fn submit(&mut self, id: usize, block: BlockNo) {
        let request = Request {
            id: RequestId(id as u64),
            connection: ConnectionId(0),
            op: Op::Read,
            extent: Extent::new(u64::from(block.0) * 4096, 4096),
            flags: Flags::default(),
        };
        self.arrived.push_back(self.now);
        self.volume.submit(self.now, request, None);
    }

    /// Reads blocks that have no entry, so that none is verified by being read.
    fn run(&mut self, arrivals: Arrivals, seed: u64, originals: &[BlockNo]) {
        let mut rng = Rng(seed);
        let taken: std::collections::HashSet<BlockNo> = originals.iter().copied().collect();
        let mut next = Nanos(0);
        for id in 0..READS {
            let block = loop {
                let block = BlockNo(512 + rng.below(BYTES / 4096 - 1024) as u32);
                if !taken.contains(&block) {
                    break block;
                }
            };
            let pause = match arrivals {
                Arrivals::Poisson(rate) => rng.pause(1000.0 / rate),
                Arrivals::Closed(mean) => rng.pause(mean),
                Arrivals::Bursts(n, _) if id % n != 0 => Nanos(0),
                Arrivals::Bursts(_, mean) if rng.below(10) == 0 => rng.pause(10.0 * mean),
                Arrivals::Bursts(_, mean) => rng.pause(mean),
            };
            if !matches!(arrivals, Arrivals::Poisson(_)) {
                while !self.arrived.is_empty() {
                    self.advance(Nanos(u64::MAX), true);
                }
                next = self.now;
            }
            next += pause;
            self.advance(next, false);
            self.submit(id, block);
        }
        while !self.arrived.is_empty() {
            self.advance(Nanos(u64::MAX), true);
        }
    }

    /// Of the first `reads`.
    fn quantile_ms(&self, reads: usize, share: f64) -> f64 {
        let mut sorted = self.responses[..reads].to_vec();
        sorted.sort_unstable();
        sorted[(sorted.len() as f64 * share) as usize] as f64 / 1e6
    }
}

#[test]
fn the_sweep_keeps_p99_within_a_twentieth() {
    let (empty, image, originals) = images();
    let arrivals = [
        Arrivals::Poisson(1.0),
        Arrivals::Poisson(5.0),
        Arrivals::Poisson(20.0),
        Arrivals::Poisson(50.0),
        Arrivals::Closed(20.0),
        Arrivals::Closed(100.0),
        Arrivals::Bursts(30, 1000.0),
    ];
    let (mut wrong, mut verified) = (Vec::new(), 0);
    for (seed, arrivals) in (1..).zip(arrivals) {
        let [off, on] = [&empty, &image].map(|image| {
            let mut bench = Bench::new(image.clone());
            bench.run(arrivals, seed, &originals);
            bench
        });
        assert_eq!(off.volume.stats().verified, 0);
        // What follows the sweep's end would only hide it.
        let reads = on.swept_at.unwrap_or(READS);
        let (p99, with) = (off.quantile_ms(reads, 0.99), on.quantile_ms(reads, 0.99));
        println!(
            "{arrivals:?}: p99 {p99:.2} ms, with the sweep {with:.2} ms ({:+.1} %); median {:.2} and {:.2}; {} \
             verified beside {reads} reads in {:.0} s",
            (with / p99 - 1.0) * 100.0,
            off.quantile_ms(reads, 0.5),
            on.quantile_ms(reads, 0.5),
            on.volume.stats().verified,
            on.now.as_secs_f64(),
        );
        verified += on.volume.stats().verified;
        if reads < 1000 || with > p99 * 1.05 {
            wrong.push(format!("{arrivals:?}: {p99:.2} ms became {with:.2} ms, {reads} reads"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(verified > 3000, "hardly anything was swept: nothing is shown");
}

/// And where nobody reads, it comes to its end, one read after the other.
#[test]
fn the_sweep_uses_an_idle_disk() {
    let (_, image, _) = images();
    let mut bench = Bench::new(image);
    bench.advance(Nanos::from_millis(1000 * 600), false);
    let stats = bench.volume.stats();
    assert_eq!((stats.verified, bench.volume.table().unverified_count()), (ENTRIES as u64, 0));
}
