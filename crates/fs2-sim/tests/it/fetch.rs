//! Originals that a policy has read for itself: whoever changes them waits for the read, and voids what it brought.

use fs2_block::{BlockNo, BlockRange, BlockSize, ConnectionId, Flags, Nanos, Op, Permille, ReadAt};
use fs2_block::{Request, RequestId};
use fs2_engine::policy::{Asked, Fetch, Place, Policy, PolicyKind, ReadSeen, Space};
use fs2_engine::{Brought, EngineConfig, Head, Io, IoData, IoOp, Log, Outcome, Standing, Volume};
use fs2_sim::replay::{FreeMap, Image};

/// Has one block read until its copy is there; copies into the first vacant run of its group.
#[derive(Clone)]
struct Asks(BlockNo);

impl Policy for Asks {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }

    fn choose(&mut self, _: Nanos, _: &Head, _: &Asked<'_>) -> Option<usize> {
        None
    }

    fn read_seen(&mut self, _: &ReadSeen<'_>, _: &dyn Space, _: &mut Log) {}

    fn idle(&mut self, _: Nanos, _: &mut Log) {}

    fn place(&mut self, want: u32, _: &Head, space: &dyn Space) -> Place {
        match space.vacant(0) {
            None => Place::NeedsGroup(0),
            Some(runs) => runs
                .first()
                .map_or(Place::Nowhere, |r| Place::At(BlockRange::at(r.first(), want.min(r.len())))),
        }
    }

    fn fetch_at(&self, idle_since: Nanos) -> Option<Nanos> {
        Some(idle_since)
    }

    fn fetch(&mut self, _: Nanos, space: &dyn Space) -> Fetch {
        if space.has_replica(self.0) { Fetch::Nothing } else { Fetch::Read(BlockRange::one(self.0)) }
    }

    fn fetched(&mut self, blocks: BlockRange, data: Brought<'_>, hashes: &[u64], log: &mut Log) {
        assert_eq!(blocks, BlockRange::one(self.0));
        if !data.is_nothing() {
            let run = log.open();
            log.push(run, self.0, hashes[0], data.block(0, 4096));
            log.close(run);
        }
    }

    fn hot_region(&self) -> Option<BlockRange> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

struct Bench {
    volume: Volume,
    image: Image,
    now: Nanos,
}

impl Bench {
    fn end(&mut self, io: &Io, result: Result<(), i32>) {
        self.now += Nanos::from_millis(1);
        match (io.op, &io.data) {
            (IoOp::Read, IoData::Unseen) | (_, IoData::Client(_)) => {
                self.volume.complete_unseen(self.now, io.id, result, Brought::Unseen);
            }
            (IoOp::Read, _) => {
                let mut bytes = vec![0; io.extent.len() as usize];
                self.image.read_at(io.extent.offset(), &mut bytes).expect("inside the volume");
                self.volume.complete(self.now, io.id, Outcome::read(&bytes));
            }
            _ => self.volume.complete(self.now, io.id, Outcome::done()),
        }
    }

    /// Lets the engine work until it does something of this kind.
    fn until(&mut self, wanted: impl Fn(&Io) -> bool) -> Io {
        for _ in 0..1000 {
            self.now += Nanos::from_millis(1000);
            self.volume.handle_timeout(self.now);
            while let Some(io) = self.volume.poll_dispatch(self.now) {
                if wanted(&io) {
                    return io;
                }
                self.end(&io, Ok(()));
            }
        }
        panic!("it never comes");
    }

    fn write(&mut self, block: BlockNo) {
        let request = Request {
            id: RequestId(1),
            connection: ConnectionId(0),
            op: Op::Write,
            extent: block.extent(BlockSize::B4096),
            flags: Flags::default(),
        };
        self.volume.submit(self.now, request, None);
    }
}

fn is_fetch(io: &Io) -> bool {
    io.op == IoOp::Read && matches!(io.data, IoData::Unseen)
}

fn is_copy(io: &Io) -> bool {
    matches!(io.op, IoOp::Write { .. }) && matches!(io.data, IoData::Unseen)
}

#[test]
fn a_write_waits_for_the_read_and_voids_what_it_brought() {
    let block = BlockNo(20_000);
    let mut map =
        FreeMap::aged(256 << 20, Permille::new(600).expect("below 1000"), 1).expect("ext2 has room");
    map.free.remove(block.0);
    let mut image = Image::new(&map);
    let config = EngineConfig { paranoid: true, policy: PolicyKind::None, ..EngineConfig::default() };
    image.convert(config.space, 1).expect("there is room for a table");
    let (mut volume, _) = Volume::attach_unseen(&mut image, config).expect("it can be attached");
    assert_eq!(*volume.standing(), Standing::Active);
    volume.set_policy(Box::new(Asks(block)));
    let mut b = Bench { volume, image, now: Nanos(0) };

    // A read that fails brings nothing; it is asked for again.
    let failed = b.until(is_fetch);
    assert_eq!(failed.extent, block.extent(BlockSize::B4096));
    b.end(&failed, Err(5));
    assert_eq!(b.volume.log_blocks(), 0);

    // A write arrives while the read is at the device: it waits, and then takes the payload with it.
    let fetch = b.until(is_fetch);
    b.write(block);
    let mut write = None;
    for step in 0..10 {
        let Some(io) = b.volume.poll_dispatch(b.now) else { break };
        // What else is to be done goes on, such as erasing the mark.
        assert!(!matches!(io.data, IoData::Client(_)), "the write waits, step {step}: {io:?}");
        b.end(&io, Ok(()));
    }
    b.end(&fetch, Ok(()));
    while let Some(io) = b.volume.poll_dispatch(b.now) {
        if matches!(io.data, IoData::Client(_)) {
            write = Some(io);
            break;
        }
        b.end(&io, Ok(()));
    }
    let write = write.expect("now it may go");
    assert_eq!(b.volume.log_blocks(), 0, "what was read is old");
    b.end(&write, Ok(()));
    assert_eq!(b.volume.poll_reply().map(|r| r.result), Some(Ok(())));

    // Left alone, it is read once more, copied, and never asked for again.
    let fetch = b.until(is_fetch);
    b.end(&fetch, Ok(()));
    let copy = b.until(is_copy);
    b.end(&copy, Ok(()));
    assert!(b.volume.table().has_replica(block));
    b.now += Nanos::from_millis(60_000);
    while let Some(io) = b.volume.poll_dispatch(b.now) {
        assert!(!is_fetch(&io));
        b.end(&io, Ok(()));
    }
}
