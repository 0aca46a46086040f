//! Virtual time: arrivals, a drive, and the engine between them.
//!
//! Invariants:
//!
//! - L1: time never goes back, and whatever ends at a moment has ended before what arrives at it.
//! - L2: at most `depth` I/Os are at the device; the engine is asked for the next only while there are
//!   fewer, at the moment it could begin.
//! - L3: the engine learns of the drive by completions only: when each I/O was dispatched and ended.
//! - L4: as many requests as may be are outstanding at most: what comes faster than the drive serves it takes no memory, but waits in the
//!   trace.

mod settings;
mod sums;

use std::sync::Arc;

use fs2_block::{
    ConnectionId, Extent, Flags, Nanos, Op, Permille, ReadAt, Request, RequestId, SECTOR_BYTES, Sector,
};
use fs2_disk::{Activity, Disk, Energy, Queue, Scheduler, Service};
use fs2_engine::policy::Shape;
use fs2_engine::{Brought, Io, IoData, IoOp, Outcome, PolicyKind, Standing, Target, Volume};
use fs2_trace::Record;

use super::baselines::Ground;
use super::belief::Secrets;
use super::redirect::{OwnIo, Redirect};
use super::samples::Samples;
use super::{FreeMap, Image, Run};
pub use settings::{Pace, ReplayError, Settings};

/// The daemon looks after so long at the latest, whatever the engine says; so do we.
const LOOK_AT_LEAST_EVERY: Nanos = Nanos(1_000_000_000);

/// A drive passes a command over for this long at most. A guess; drives are said to bound it by seconds.
const AGE_MAX: Nanos = Nanos::from_millis(2000);

/// A scheme leaves so many blocks of the room for copies unused, the length of a copy write: where the table
/// could fill up, the engine evicts.
const SPARE_BLOCKS: u32 = 64;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    arrived: Nanos,
    /// The byte it asked for first.
    offset: u64,
    op: Op,
}

/// What the drive works on.
#[derive(Debug)]
struct Active {
    task: Task,
    service: Service,
    /// When the host sees it end.
    seen: Nanos,
    /// It is of the engine's or a scheme's own: no request, and no flush that a request waits for.
    own: bool,
}

#[derive(Debug)]
enum Task {
    Engine(Io),
    /// A redirecting scheme's own.
    Scheme(OwnIo),
}

/// A volume, its policy and its drive. See the module.
pub struct Replay {
    volume: Volume,
    image: Image,
    disk: Disk,
    depth: usize,
    pace: Pace,
    queue_max: usize,
    secrets: Secrets,
    redirect: Option<Box<dyn Redirect>>,
    map: Option<(FreeMap, u32)>,
    now: Nanos,
    /// Not before this time is the engine asked again whether it has something to do.
    look_again: Nanos,
    requests: Vec<Outstanding>,
    unused: Vec<u32>,
    /// Of these, flushes.
    flushes: u64,
    /// What the drive was sent and has not begun, and the order it likes: its own command queue.
    waiting: Vec<Io>,
    queue: Queue,
    active: Option<Active>,
    /// Where a request goes; kept for its memory.
    pieces: Vec<Extent>,
    bytes: Vec<u8>,
    run: Run,
    between_runs: bool,
    /// Whether what was done before the first run is to be charged to it.
    prepared: bool,
    /// Reads from copies before this run.
    copies_read: u64,
    energy: Energy,
    own_energy: Energy,
    /// What the drive had done by itself when the run began, or what was prepared for it; and when the run began.
    by_itself: [Activity; 2],
    /// Energy of background writes that accesses of the run have paid as idling, joules.
    paid_joules: f64,
    last_answer: Nanos,
    /// When a request arrived or was answered last.
    last_request: Nanos,
    /// Dots to keep of each run for pictures, and those of the last one.
    dots_max: Option<usize>,
    samples: Option<Box<Samples>>,
}

impl Replay {
    /// A volume with this free space, made ours by `mkfs2`'s own code and attached.
    ///
    /// # Errors
    /// Where the free space is no volume's, or has no room for the replica table.
    pub fn new(map: &FreeMap, settings: Settings) -> Result<Replay, ReplayError> {
        let stretched;
        let factor = settings.stretch.max(1);
        let space = if factor > 1 {
            stretched = map.stretched(factor).map_err(|e| ReplayError(e.to_string()))?;
            &stretched
        } else {
            map
        };
        let mut engine = settings.engine;
        engine.drive_orders = settings.depth > 1;
        // The same room for replicas as the traced volume has, and as much of it free.
        engine.apart = factor;
        let share = u32::from(engine.space.get()).div_ceil(factor) as u16;
        let table_for = Permille::new(share).unwrap_or(engine.space);
        let (mut policy, mut redirect) = (settings.policy, settings.redirect);
        if let Some(scheme) = settings.scheme {
            let known = settings.known.map(|k| match factor {
                1 => k,
                _ => Arc::new(k.moved(|b| map.stretch_block(b, factor))),
            });
            let room = engine.space.share_of(u64::from(map.blocks)) as u32;
            let ground = Ground {
                map: space,
                shape: shape_of(space, engine.seed),
                room: room.saturating_sub(room.min(SPARE_BLOCKS)),
                drive: engine.drive.as_ref().unwrap_or(&settings.drive),
                known: known.as_deref(),
            };
            policy = policy.or_else(|| scheme.policy(&ground));
            redirect = redirect.or_else(|| scheme.redirect(&ground));
            engine.degree = scheme.degree();
        }
        if engine.policy == PolicyKind::None && policy.is_none() && engine.scheduler == Scheduler::Fcfs {
            // Nobody asks for a prediction: none is made.
            (engine.drive, engine.turns) = (None, false);
        }
        let mut image = Image::new(space);
        image
            .convert(table_for, engine.seed | 1)
            .map_err(|e| ReplayError(format!("the volume cannot be given a replica table: {e}")))?;
        let (mut volume, _) = Volume::attach_unseen(&mut image, engine)
            .map_err(|e| ReplayError(format!("the volume cannot be attached: {e}")))?;
        if let Standing::Inactive(why) = volume.standing() {
            return Err(ReplayError(format!("the volume is served without replicas: {why}")));
        }
        if let Some(policy) = policy {
            volume.set_policy(policy);
        }
        let power = settings.drive.power();
        Ok(Replay {
            volume,
            image,
            disk: Disk::new(settings.drive),
            depth: settings.depth.max(1),
            pace: settings.pace,
            queue_max: settings.queue_max.max(1),
            secrets: settings.secrets,
            redirect,
            pieces: Vec::new(),
            prepared: false,
            map: (factor > 1).then(|| (map.clone(), factor)),
            now: Nanos(0),
            look_again: Nanos(0),
            requests: Vec::new(),
            unused: Vec::new(),
            flushes: 0,
            waiting: Vec::new(),
            queue: Queue::new(Scheduler::Sptf, Some(AGE_MAX)),
            active: None,
            bytes: Vec::new(),
            run: Run::default(),
            between_runs: false,
            copies_read: 0,
            energy: Energy::new(power),
            own_energy: Energy::new(power),
            by_itself: [Activity::default(); 2],
            paid_joules: 0.0,
            last_answer: Nanos(0),
            last_request: Nanos(0),
            dots_max: None,
            samples: None,
        })
    }

    /// The engine.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The moment.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Bytes of the volume.
    pub fn bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    /// Replays one run of requests, in the order of their times, and says what it cost. Requests beyond
    /// the volume's end fail.
    ///
    /// # Errors
    /// The trace's.
    pub fn run<E>(&mut self, trace: impl IntoIterator<Item = Result<Record, E>>) -> Result<Run, E> {
        self.begin_run();
        let begin = self.now;
        let (mut first, mut last): (Option<Nanos>, Option<Record>) = (None, None);
        let mut arrived = begin;
        for record in trace {
            let record = record?;
            let at = match self.pace {
                Pace::Open => begin + record.at.since(*first.get_or_insert(record.at)),
                Pace::Closed { clients, .. } => {
                    while self.outstanding() >= clients {
                        self.step();
                    }
                    let think = self.pace.think(last.as_ref(), &record);
                    last = Some(record);
                    self.now + think
                }
            };
            self.advance(at);
            // Keeps L4.
            while self.outstanding() >= self.queue_max {
                self.step();
            }
            self.submit(&record, at);
            arrived = at;
        }
        while self.outstanding() > 0 {
            self.step();
        }
        self.run.elapsed = self.last_answer.max(begin).since(begin);
        self.run.behind = self.last_answer.since(arrived);
        self.end_run();
        if let Some(samples) = &mut self.samples {
            samples.ended(self.last_answer.max(begin));
        }
        self.finish_sums();
        Ok(self.run.clone())
    }

    /// Lets time pass without requests; what the engine does meanwhile belongs to the run before.
    pub fn idle(&mut self, time: Nanos) {
        self.advance(self.now + time);
        self.finish_sums();
    }

    /// Lets a scheme that knows something beforehand do its work, in as much idle time as it takes (an hour
    /// at most); what that costs belongs to the next run.
    pub fn prepare(&mut self) {
        self.begin_run();
        (self.between_runs, self.prepared) = (true, true);
        for _ in 0..60 {
            let before = self.run.copy_sectors + self.run.own_read_sectors;
            self.advance(self.now + Nanos::from_millis(60_000));
            if self.run.copy_sectors + self.run.own_read_sectors == before {
                break;
            }
        }
    }

    /// The figures of the last run, those of the idle time after it included so far.
    pub fn last_run(&self) -> &Run {
        &self.run
    }

    fn outstanding(&self) -> usize {
        self.requests.len() - self.unused.len()
    }

    /// A request of the trace that arrived then, which may be a while ago.
    fn submit(&mut self, record: &Record, arrived: Nanos) {
        let extent = self.place(record.extent);
        self.last_request = self.now;
        self.run.requests += 1;
        let read = record.op == Op::Read;
        self.run.reads += u64::from(read);
        self.flushes += u64::from(record.op == Op::Flush);
        let outstanding = Outstanding { arrived, offset: extent.offset(), op: record.op };
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.requests[slot as usize] = outstanding;
                slot
            }
            None => {
                self.requests.push(outstanding);
                self.requests.len() as u32 - 1
            }
        };
        self.run.queue_max = self.run.queue_max.max(self.outstanding() as u64);
        if let Some(a) = self.active.as_ref().filter(|a| a.own) {
            self.run.wait_behind_copies += a.seen.since(self.now);
        }
        let request = Request {
            id: RequestId(u64::from(slot)),
            connection: ConnectionId(0),
            op: record.op,
            extent,
            flags: Flags::default(),
        };
        self.volume.submit(self.now, request, None);
        self.pump();
    }

    /// Where a request goes on a stretched volume.
    fn place(&self, extent: Extent) -> Extent {
        self.map.as_ref().map_or(extent, |(map, factor)| map.stretch_extent(extent, *factor))
    }

    /// Time goes on to `until`.
    fn advance(&mut self, until: Nanos) {
        loop {
            if let Some(active) = &self.active {
                if active.seen > until {
                    break;
                }
                self.complete();
                continue;
            }
            if self.now >= until {
                break;
            }
            match self.wake_up() {
                Some(at) if at < until => self.look(at),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// The next event, whatever it is. Something must be outstanding.
    fn step(&mut self) {
        if self.active.is_some() {
            self.complete();
        } else {
            // A request waits for something that is not at the device.
            let at = self.wake_up().unwrap_or(self.now + LOOK_AT_LEAST_EVERY);
            self.look(at);
        }
    }

    fn wake_up(&self) -> Option<Nanos> {
        let engine = self.volume.poll_timeout();
        let scheme = self.redirect.as_ref().and_then(|r| r.wake_up(self.last_request));
        let first = engine.into_iter().chain(scheme.filter(|_| self.outstanding() == 0)).min()?;
        Some(first.max(self.look_again).max(self.now))
    }

    fn look(&mut self, at: Nanos) {
        self.now = at;
        self.volume.handle_timeout(at);
        self.pump();
        if self.active.is_none()
            && self.outstanding() == 0
            && let Some(redirect) = &mut self.redirect
            && let Some(own) = redirect.own(at, self.last_request)
        {
            let (sector, sectors) = (own.extent.sector(), own.extent.sectors() as u32);
            let (service, seen) = self.secrets.serve(&mut self.disk, at, own.op, sector, sectors);
            if let Some(samples) = &mut self.samples {
                let end = Sector(own.extent.end() / SECTOR_BYTES);
                samples.access(&service, own.extent.sector(), end, None);
            }
            self.active = Some(Active { task: Task::Scheme(own), service, seen, own: true });
            self.look_again = Nanos(0);
        }
        if self.active.is_none() {
            self.look_again = at + LOOK_AT_LEAST_EVERY;
        }
    }

    /// Fills the device, hands out answers.
    fn pump(&mut self) {
        // Keeps L2.
        while self.waiting.len() + usize::from(self.active.is_some()) < self.depth {
            let Some(io) = self.volume.poll_dispatch(self.now) else {
                // Takes the processor's time and not the drive's.
                if self.volume.is_still_searching() {
                    continue;
                }
                break;
            };
            if self.active.is_none() && self.waiting.is_empty() {
                self.start(io);
            } else {
                self.enqueue(io);
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(reply) = self.volume.poll_reply() {
            let slot = reply.request.0 as usize;
            let Outstanding { arrived, op, .. } = self.requests[slot];
            self.flushes -= u64::from(op == Op::Flush);
            self.unused.push(slot as u32);
            let response = self.now.since(arrived);
            self.run.failed += u64::from(reply.result.is_err());
            self.run.response.add(response);
            self.run.response_total += response;
            self.run.response_course.add(response);
            if op == Op::Read {
                self.run.response_reads_total += response;
            }
            (self.last_answer, self.last_request) = (self.now, self.now);
        }
    }

    /// The drive is sent an I/O while it is at another.
    fn enqueue(&mut self, io: Io) {
        let (op, sectors) = (op_of(&io), io.extent.sectors() as u32);
        let moved = self.redirect.as_ref().filter(|_| is_request(&io) && sectors > 0 && op != Op::Discard);
        let sector = moved.map_or(io.extent.sector(), |r| Sector(r.begins(io.extent) / SECTOR_BYTES));
        self.queue.push(io.id.0, op, &[sector], sectors, self.now);
        self.waiting.push(io);
    }

    /// The drive begins with an I/O.
    fn start(&mut self, io: Io) {
        debug_assert_eq!(io.target, Target::Volume, "the table lives on the volume");
        let op = op_of(&io);
        self.pieces.clear();
        if let Some(redirect) = &mut self.redirect
            && is_request(&io)
        {
            redirect.place(self.now, op, io.extent, &mut self.pieces);
            let all: u64 = self.pieces.iter().map(|p| p.len()).sum();
            debug_assert!(all == io.extent.len() || all == 0, "a request moves, it does not grow");
        }
        let first = self.pieces.first().copied().unwrap_or(io.extent);
        let (sector, sectors) = (first.sector(), first.sectors() as u32);
        let (mut service, mut seen) = self.secrets.serve(&mut self.disk, self.now, op, sector, sectors);
        // A request whose blocks lie apart is as many accesses, one after the other.
        for piece in self.pieces.iter().skip(1) {
            let (sector, sectors) = (piece.sector(), piece.sectors() as u32);
            let (next, next_seen) = self.secrets.serve(&mut self.disk, seen, op, sector, sectors);
            service.overhead += next.overhead;
            service.seek += next.seek;
            service.rotation += next.rotation;
            service.transfer += next.transfer;
            service.cache_hit &= next.cache_hit;
            seen = next_seen;
        }
        let last = self.pieces.last().copied().unwrap_or(io.extent);
        self.sample_access(&io, first, last.end(), &service);
        let own = !is_request(&io) && (io.op != IoOp::Flush || self.flushes == 0);
        self.active = Some(Active { task: Task::Engine(io), service, seen, own });
        self.look_again = Nanos(0);
    }

    /// What the drive works on has ended.
    fn complete(&mut self) {
        let Some(Active { task, service, seen, .. }) = self.active.take() else { return };
        self.now = seen;
        match task {
            Task::Engine(io) => self.complete_io(&io, &service),
            Task::Scheme(own) => self.count_own(own.op, own.extent.sectors(), &service, true),
        }
        // Keeps L2: what waited at the device goes first.
        if !self.waiting.is_empty()
            && let Some(next) = self.queue.pop(self.now, &self.disk)
            && let Some(at) = self.waiting.iter().position(|io| io.id.0 == next.id)
        {
            let io = self.waiting.swap_remove(at);
            self.start(io);
        }
        self.pump();
        self.sample_moment(false);
    }

    fn complete_io(&mut self, io: &Io, service: &Service) {
        self.count(io, service);
        match (io.op, &io.data) {
            (IoOp::Read, IoData::Client(_) | IoData::Around { .. } | IoData::Unseen) => {
                self.volume.complete_unseen(self.now, io.id, Ok(()), Brought::Unseen);
            }
            (IoOp::Read, _) => {
                self.bytes.resize(io.extent.len() as usize, 0);
                let done = self.image.read_at(io.extent.offset(), &mut self.bytes);
                let outcome = if done.is_ok() { Outcome::read(&self.bytes) } else { Outcome::failed(5) };
                self.volume.complete(self.now, io.id, outcome);
            }
            _ => self.volume.complete(self.now, io.id, Outcome::done()),
        }
    }
}

fn shape_of(map: &FreeMap, seed: u64) -> Shape {
    Shape {
        blocks: map.blocks,
        group_blocks: map.blocks_per_group,
        first_block: map.first_block(),
        block_bytes: map.block_size.bytes(),
        seed,
    }
}

fn op_of(io: &Io) -> Op {
    match io.op {
        IoOp::Read => Op::Read,
        IoOp::Write { .. } => Op::Write,
        IoOp::WriteZeroes { .. } => Op::WriteZeroes,
        IoOp::Discard => Op::Discard,
        IoOp::Flush => Op::Flush,
    }
}

/// Whether an I/O serves a request; the engine's own are all others. Only clients write zeroes.
fn is_request(io: &Io) -> bool {
    io.data.request().is_some() || matches!(io.op, IoOp::WriteZeroes { .. })
}
