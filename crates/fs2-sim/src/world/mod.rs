//! Worlds: whole lives of a volume in virtual time, one for each seed.
//!
//! A kernel's file system on several connections, the engine, a device with latency, a volatile cache and
//! faults; daemons that are killed, power that is lost, `chkfs2`, the next daemon. Each seed draws which of
//! these there are, which policy, which block size: worlds differ more than one world's days. After so many
//! events the faults end, and the world must heal ([`World::run`]): every request is answered, copying goes on,
//! a check and an attach make replicas usable, a clean detach leaves a mark, and every block read from the
//! device, as an original and as a replica is the same and right.
//!
//! The oracles: [`history`] says what a block may hold, by version, and knows neither [`fs2_engine`] nor what
//! it thinks is free; [`client`], [`image`] and [`disk`] know as little.
//!
//! ```
//! use fs2_sim::world::{Options, World};
//! let options = Options { events: 300, ..Options::default() };
//! let (once, again) = (World::new(1, options.clone()).run(), World::new(1, options).run());
//! assert!(once.violation.is_none() && once.digest == again.digest);
//! ```

pub mod client;
pub mod coverage;
pub mod disk;
mod driver;
pub mod fault;
mod heal;
pub mod history;
pub mod image;
mod plan;
mod requests;
mod session;
mod steps;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fs2_block::{Nanos, WriteAt};
use fs2_engine::Volume;
use fs2_engine::offline::{CreateOptions, Devices, create, table_bytes};

use crate::model::swarm::{Coverage, Rng};
use client::Client;
use disk::{Disk, Handle};
use driver::Flying;
use fault::Fault;
use history::{History, Value};
use image::File;
pub use plan::{Mix, Options, Plan};
use requests::{Ask, Send};
use session::Session;
use steps::Step;

/// The engine's own invariants are asserted once in so many events (in some worlds after each).
const CHECK_EVERY: u64 = 16;

/// What must not happen, and did.
pub type Broken = String;

/// What happens at a time.
#[derive(Clone, Debug)]
enum Event {
    /// The client, or fate, does something.
    Tick,
    /// A request reaches the daemon.
    Arrive(u64),
    /// The device does an I/O.
    Land(u64),
    /// The daemon hears of it.
    Done(u64),
    /// An answer reaches the client.
    Reply { ask: u64, send: u64, result: Result<(), i32>, data: Option<Vec<u8>> },
    /// The client has waited long for this send.
    Late(u64),
    /// The client takes a block in which the daemon is at something.
    Pounce(u32),
    /// The daemon's timer.
    Wake(u64),
    /// No more comes over a connection.
    Gone(u32, u32),
}

/// How a world ended.
#[derive(Clone, Debug)]
pub struct End {
    /// What must not happen and did.
    pub violation: Option<Broken>,
    /// What happened, in words, if that was asked for.
    pub trace: Vec<String>,
    /// What happened, in numbers.
    pub coverage: Coverage,
    /// One number for all that happened: one seed, one digest.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// What the seed made of the world.
    pub about: String,
}

/// A world.
pub struct World {
    options: Options,
    plan: Plan,
    rng: Rng,
    now: u64,
    order: u64,
    heap: BTreeMap<(u64, u64), Event>,
    events: u64,
    digest: u64,
    trace: Vec<String>,
    coverage: Coverage,

    disks: [Disk; 2],
    /// Blocks of the table's file on the volume, and those of them that are its map.
    reserved: BTreeSet<u32>,
    map: BTreeSet<u32>,
    history: History,
    client: Client,
    versions: u32,

    volume: Option<Volume>,
    session: Session,
    sessions: u32,
    asks: BTreeMap<u64, Ask>,
    sends: BTreeMap<u64, Send>,
    /// What reads brought, by send.
    buffers: BTreeMap<u64, Vec<u8>>,
    /// When outstanding reads were sent.
    reads: BTreeSet<(u64, u64)>,
    names: u64,
    connections: Vec<u32>,
    next_connection: u32,

    flying: BTreeMap<u64, Flying>,
    at_device: usize,
    wakes: u64,
    woken_in_vain: u32,
    slow_until: u64,

    steps: VecDeque<Step>,
    /// Requests until the session ends.
    left: u64,
    /// A mark was left, or a check made one: the next attach must be active.
    active_expected: bool,
    /// Replicas in the table when the last session ended in order.
    left_behind: usize,
    /// Replicas may fail their hashes.
    doubt: bool,
    /// A failed flush has left something in a cache that no flush will take.
    stuck: bool,
    /// The medium has changed the table since it was last checked.
    table_spoilt: bool,
    /// Faults strike.
    faulty: bool,
    /// A mount or unmount was tried again so often; turns of an unmount.
    tries: u32,
    unmounting: u32,
    /// Blocks whose discards lie unread in a socket: the worst to be allocated now.
    baits: Vec<u32>,
    /// By block: the connection over which it was last written in this session.
    last_writer: HashMap<u32, u32>,
    /// What the last read brought.
    last_read: Vec<u8>,
}

impl World {
    /// The world of a seed, before anything has happened.
    ///
    /// # Panics
    /// Where the volume cannot be made: an error of the simulator.
    pub fn new(seed: u64, options: Options) -> World {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x0F52);
        let plan = Plan::draw(seed, &options, &mut rng);
        let geo = plan.geometry.clone();
        let files = first_files(&plan, &mut rng);
        let mut bytes = image::make(&geo, &files);
        let all = geo.block / disk::SECTOR;
        for &b in files.iter().flatten().flatten() {
            let content = history::fill(1, b, all, 0, all);
            bytes[b as usize * geo.block..][..geo.block].copy_from_slice(&content);
        }
        let mut volume = Disk::new(&bytes, geo.block);
        let size = table_bytes(&mut bytes, plan.space).expect("the volume is ext2");
        let mut table = Disk::new(&vec![0; if plan.apart { size.max(1 << 18) } else { 0 } as usize], 4096);
        let made = {
            let mut never = |_| false;
            let mut never_too = |_| false;
            let mut v = Handle { disk: &mut volume, fails: &mut never, budget: u64::MAX };
            let mut t = Handle { disk: &mut table, fails: &mut never_too, budget: u64::MAX };
            let apart: Option<&mut dyn WriteAt> = if plan.apart { Some(&mut t) } else { None };
            let how = CreateOptions { space: plan.space, volume_id: seed | 1, now_secs: 0, checked: true };
            create(&mut Devices::new(&mut v, apart), &how, &mut |_| {}).expect("the volume takes a table")
        };
        let reserved: BTreeSet<u32> = made.blocks.iter().flat_map(|r| r.iter().map(|b| b.0)).collect();
        let map = image::table_map(&geo, |b| volume.block(b).to_vec());
        let mut history = History::new(geo.blocks, geo.block);
        let mut client = Client::new(&geo, plan.discards, !plan.punches);
        client.reload(padded(files, &geo), &reserved, 0);
        for b in (0..geo.blocks).filter(|b| client.blocks[*b as usize].allocated) {
            history.reset(b, Value::Raw(volume.block(b).clone()));
        }
        let left = plan.session;
        World {
            plan,
            rng,
            now: 0,
            order: 0,
            heap: BTreeMap::new(),
            events: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            trace: Vec::new(),
            coverage: Coverage::default(),
            disks: [volume, table],
            reserved,
            map,
            history,
            client,
            versions: 1,
            volume: None,
            session: Session::default(),
            sessions: 0,
            asks: BTreeMap::new(),
            sends: BTreeMap::new(),
            buffers: BTreeMap::new(),
            reads: BTreeSet::new(),
            names: 0,
            connections: Vec::new(),
            next_connection: 0,
            flying: BTreeMap::new(),
            at_device: 0,
            wakes: 0,
            woken_in_vain: 0,
            slow_until: 0,
            steps: VecDeque::from([Step::Attach, Step::Mount]),
            left,
            active_expected: true,
            left_behind: 0,
            doubt: false,
            stuck: false,
            table_spoilt: false,
            faulty: true,
            tries: 0,
            unmounting: 0,
            baits: Vec::new(),
            last_writer: HashMap::new(),
            last_read: Vec::new(),
            options,
        }
    }

    /// Lives it to its end.
    pub fn run(mut self) -> End {
        let about = self.plan.describe();
        let lived = catch_unwind(AssertUnwindSafe(|| self.live()));
        let violation = match lived {
            Ok(result) => result.err(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
                Some(format!("check: {text}"))
            }
        };
        End {
            violation,
            trace: self.trace,
            coverage: self.coverage,
            digest: self.digest,
            events: self.events,
            about,
        }
    }

    fn live(&mut self) -> Result<(), Broken> {
        self.at(0, Event::Tick);
        while self.events < self.options.events {
            self.one()?;
        }
        self.heal()
    }

    /// The next event.
    fn one(&mut self) -> Result<(), Broken> {
        let Some(((time, _), event)) = self.heap.pop_first() else {
            return Err("answer: nothing is left to happen".into());
        };
        self.now = time;
        self.events += 1;
        self.digest(time);
        if self.events.is_multiple_of(CHECK_EVERY)
            && self.options.plants.is_empty()
            && let Some(v) = &self.volume
        {
            v.check();
        }
        match event {
            Event::Tick => self.tick()?,
            Event::Arrive(send) => self.arrive(send)?,
            Event::Land(io) => self.land(io)?,
            Event::Done(io) => self.done(io)?,
            Event::Reply { ask, send, result, data } => self.replied(ask, send, result, data)?,
            Event::Late(send) => self.late(send)?,
            Event::Pounce(block) => self.pounce(block),
            Event::Wake(n) => self.wake(n),
            Event::Gone(session, connection) => {
                if let Some(v) = self.volume.as_mut().filter(|_| session == self.sessions) {
                    v.connection_gone(fs2_block::ConnectionId(connection));
                }
            }
        }
        self.pump()
    }

    fn at(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.heap.insert((self.now + after, self.order), event);
    }

    fn nanos(&self) -> Nanos {
        Nanos(self.now)
    }

    fn digest(&mut self, n: u64) {
        self.digest = (self.digest ^ n).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }

    fn say(&mut self, what: impl FnOnce(&World) -> String) {
        if self.options.trace {
            let line = format!("{:>12.6} {}", self.now as f64 / 1e9, what(self));
            self.trace.push(line);
        }
    }

    fn note(&mut self, what: &'static str, n: u64) {
        if n > 0 {
            *self.coverage.0.entry(what).or_default() += n;
        }
    }

    /// Whether a fault strikes; it is counted.
    fn strikes(&mut self, fault: Fault) -> bool {
        let hit = self.faulty && self.plan.odds.strikes(fault, &mut self.rng);
        if hit {
            self.note(fault.name(), 1);
        }
        hit
    }

    /// Bytes of a block.
    fn block_size(&self) -> u64 {
        self.plan.geometry.block as u64
    }
}

/// Files in every inode there is.
fn padded(mut files: Vec<File>, geo: &image::Geometry) -> Vec<File> {
    files.resize((geo.inodes() - image::FIRST_FILE + 1) as usize, None);
    files
}

/// What is on the volume in the beginning: files in about a third of it.
fn first_files(plan: &Plan, rng: &mut Rng) -> Vec<File> {
    let geo = &plan.geometry;
    let mut files = Vec::new();
    let mut at = geo.first;
    let count = (geo.inodes() - image::FIRST_FILE) / 2;
    let spread = geo.blocks / count;
    for _ in 0..count {
        let n = 1 + rng.below(image::DIRECT.min(1 + spread as usize) as u64) as u32;
        at += rng.below(u64::from(spread)) as u32;
        let end = (at + n).min(geo.blocks);
        let blocks: Vec<u32> = (at.min(end)..end).filter(|b| !geo.is_static(*b)).collect();
        at = end;
        files.push((!blocks.is_empty()).then_some(blocks));
    }
    files
}
