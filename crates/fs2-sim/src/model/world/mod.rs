//! The world: one client, one device (two where the table lives apart), the engine between them.
//!
//! Every step is one action; after each, all that the engine has to say at once is taken (dispatches into
//! the device's queue, answers to the client). What is nondeterministic in life is an action of its own:
//! which I/O in the queue the device does next, when background work begins, when a bitmap in flight is
//! read, when power fails and what of the cache survives.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId};
use fs2_engine::{
    AttachOptions, DiscardMode, Freeze, HandOver, Io, IoData, IoId, IoOp, Outcome, Plant, Standing, Target,
    Volume,
};

use super::content::{Content, Grain, Value};
use super::device::{Device, Reader};
use super::image::{Plan, Shape};
use super::kernel::{Ask, Kernel, Meta, Role, Tracked, Wrong};
use super::{image, mark};
use crate::glue::{
    Checker, Ground, Scripted, Setup, check_table, check_weakly, hash_of, same_entries, trusted_copies,
};

mod act;
mod action;
mod device_queue;
mod enabled;
mod events;
mod oracle;
mod sockets;
mod tally;
mod tools;
mod words;

pub use action::{Action, From, Tool};
pub use oracle::{Oracle, Violation};
pub use tally::Tally;

/// A block of a file.
pub const O: Tracked = 0;
/// Its neighbour, of the same file.
pub const X: Tracked = 1;
/// A free block.
pub const R: Tracked = 2;
/// Another free block, its neighbour if blocks are free in long runs.
pub const S: Tracked = 3;
/// A block of the table: of its first entry page.
pub const T: Tracked = 4;
/// The block in which the file system says which of the others belong to files: bit n for block n.
pub const P: Tracked = 5;

/// A block of a table page that holds nothing.
pub const U: Tracked = 6;

/// What they are called.
pub const NAMES: &[&str] = &["O", "X", "R", "S", "T", "P", "U"];
const TRACKED: usize = 7;

/// Where they lie; those of the table are looked up. O and X are neighbours; R and S too, where free blocks
/// are in runs, and then in two groups where there are several.
fn places(plan: Plan) -> [u32; TRACKED] {
    match (plan.shape, plan.grain.block()) {
        (Shape::Plain, 1024) => [1100, 1101, 1200, 1201, 0, 1110, 0],
        (Shape::Fragmented, _) => [1100, 1101, 1200, 1202, 0, 1110, 0],
        (Shape::Groups, 1024) => [1100, 1101, 2048, 2049, 0, 1110, 0],
        (Shape::Plain, _) => [300, 301, 400, 401, 0, 310, 0],
        (Shape::Groups, _) => [300, 301, 511, 512, 0, 310, 0],
    }
}

const DATA: [Tracked; 4] = [O, X, R, S];
const TABLE: [Tracked; 2] = [T, U];
const TABLE_BITS: u16 = 1 << T | 1 << U;

/// P holds this plus the bits of the blocks in use.
const REFS: Value = 0x600;

const NOW: Nanos = Nanos(0);

/// The blocks of the one file, and what they hold.
fn files(blocks: &[u32; TRACKED]) -> [(u32, Value); 3] {
    [(blocks[O], 0x100), (blocks[X], 0x200), (blocks[P], REFS | 0b11)]
}

/// One I/O in the device's queue.
#[derive(Clone, Debug)]
struct Queued {
    /// `None` once its daemon is dead.
    io: Option<IoId>,
    /// Not on behalf of a client.
    own: bool,
    device: usize,
    op: IoOp,
    extent: Extent,
    client: Option<u64>,
    /// Where in what it reads lies what the client asked for, if not all of it is that.
    asked: Option<Range<usize>>,
    bytes: Arc<[u8]>,
    /// What a flush covers.
    covers: u32,
    /// Dispatched before a foreign writer was noticed: it could not be helped.
    excused: bool,
}

/// Everything there is.
#[derive(Clone)]
pub struct World {
    ground: Arc<Ground>,
    setup: Arc<Setup>,
    blocks: [u32; TRACKED],
    volume: Option<Volume>,
    policy: Scripted,
    devices: [Device; 2],
    queue: Vec<Queued>,
    /// The clients' buffers.
    buffers: BTreeMap<u64, Arc<[u8]>>,
    /// Clients' reads that the device failed, while they last.
    unread: BTreeMap<u64, Unread>,
    /// The client.
    pub kernel: Kernel,
    /// Bitmaps sent and not arrived, by group, with the content they had when they were sent.
    bitmap_sent: BTreeMap<u32, u16>,
    claiming: Option<Tracked>,
    /// Requests sent and not read, by connection.
    sockets: BTreeMap<u32, Vec<(u64, Ask)>>,
    /// The first of the connections in use.
    connection: u32,
    /// Over which of them the client sends next.
    route: u32,
    /// Connections that the client has left.
    left: Vec<u32>,
    mounts: u16,
    /// The file system is frozen, or mounted read-only.
    quiet: bool,
    /// A program works on the unmounted volume, and how far it is.
    tool: Option<(Tool, u8)>,
    /// The volume's size was changed: the daemon may freeze.
    resized: bool,
    /// Flushes that the device has done. For counting only.
    flushes: u64,
    /// The client must look at the device before it goes on.
    died: bool,
    /// A kernel died in this session.
    kernel_died: bool,
    /// Something below failed: errors are answers.
    failed: bool,
    /// Something else wrote: trust may end.
    foreign: bool,
    /// And the daemon knows nothing of it.
    unnoticed: bool,
    /// Power was lost, blocks were written elsewhere, entries came unverified through a check: a replica
    /// may fail its hash.
    doubt: bool,
    foreign_owns: Option<Tracked>,
    /// Attaches so far, and entries that the last one trusted at once. For counting only.
    sessions: u32,
    trusted: usize,
    /// The session goes on from another process's.
    went_on: bool,
    menu: Arc<Vec<(Action, u8)>>,
    used: Vec<u8>,
}

/// Where the device failed a read of one block, and which trusted copies of it there were when it failed the block itself.
#[derive(Clone, Debug, Default, Hash)]
struct Unread {
    failed: Vec<Extent>,
    stood: Vec<BlockNo>,
}

impl World {
    /// A world before its first attach.
    pub fn new(setup: Setup) -> World {
        let plan = setup.plan();
        let mut blocks = places(plan);
        let ground = Ground::new(&setup, &files(&blocks), &[blocks[R], blocks[S]]);
        if !setup.apart {
            // The first block of the first page, behind two slots and two areas of checksums, and of the next.
            let page = |n: usize| ground.table_blocks[n * 4096 / plan.grain.block()];
            (blocks[T], blocks[U]) = (page(4), page(5));
        }
        let mut found = [None; TRACKED];
        for (block, value) in [(O, 0x100), (X, 0x200), (P, REFS | 0b11)] {
            found[block] = Some(value);
        }
        let devices = [&ground.volume, &ground.table].map(|bytes| Device::new(bytes.clone(), plan.grain));
        World {
            ground: Arc::new(ground),
            setup: Arc::new(setup),
            blocks,
            volume: None,
            policy: policy(plan),
            devices,
            queue: Vec::new(),
            buffers: BTreeMap::new(),
            unread: BTreeMap::new(),
            kernel: Kernel::new(NAMES, &found),
            bitmap_sent: BTreeMap::new(),
            claiming: None,
            sockets: BTreeMap::new(),
            connection: 0,
            route: 0,
            left: Vec::new(),
            mounts: 0,
            quiet: false,
            tool: None,
            resized: false,
            flushes: 0,
            died: false,
            kernel_died: false,
            failed: false,
            foreign: false,
            unnoticed: false,
            doubt: false,
            foreign_owns: None,
            sessions: 0,
            trusted: 0,
            went_on: false,
            menu: Arc::new(Vec::new()),
            used: Vec::new(),
        }
    }

    /// Breaks these rules from now on.
    pub fn with_plants(mut self, plants: &[Plant]) -> World {
        let setup = Arc::make_mut(&mut self.setup);
        setup.plants = plants.to_vec();
        if let Some(v) = &mut self.volume {
            v.set_plants(plants);
        }
        self
    }

    /// Sets what may be done from now on, and how often.
    pub fn with_menu(mut self, menu: &[(Action, u8)]) -> World {
        self.menu = Arc::new(menu.to_vec());
        self.used = vec![0; menu.len()];
        self
    }

    /// Runs actions that are enabled, one after the other.
    ///
    /// # Panics
    /// Where one is not enabled or breaks something: for scripted beginnings.
    pub fn prepared(mut self, actions: &[Action]) -> World {
        for a in actions {
            assert!(self.is_enabled(*a), "{} cannot be done here", self.describe(*a));
            if let Err(v) = self.step(*a) {
                panic!("{}: {v}", self.describe(*a));
            }
            if let Err(v) = self.drain() {
                panic!("after {}: {v}", self.describe(*a));
            }
        }
        self
    }

    fn planted(&self, plant: Plant) -> bool {
        self.setup.plants.contains(&plant)
    }

    /// The volume, while a daemon serves it.
    pub fn volume(&self) -> Option<&Volume> {
        self.volume.as_ref()
    }

    /// The volume the world began with.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The volume as it was before it had a table.
    pub fn bare(&self) -> Device {
        let plan = self.plan();
        let blocks = places(plan);
        let bytes = plan.make(&files(&blocks), &[blocks[R], blocks[S]]);
        Device::new(Arc::new(bytes), plan.grain)
    }

    /// The same client, whose volume is this now; no daemon serves it.
    pub fn with_volume(&self, volume: Device) -> World {
        let mut world = self.clone();
        world.killed();
        world.cut_off();
        world.queue.clear();
        world.devices[0] = volume;
        world.doubt = true;
        world
    }

    /// A tracked block's number.
    pub fn block(&self, b: Tracked) -> u32 {
        self.blocks[b]
    }

    /// The drives lie about flushes from now on.
    pub fn lie(&mut self) {
        self.devices.iter_mut().for_each(Device::lie);
    }

    /// Whether drives that do not lie could leave this of their caches.
    pub fn is_honest(&self, state: Action) -> bool {
        match state {
            Action::PowerLoss(keep) => {
                let n = self.devices[0].cached() as u32;
                let [volume, table] = &self.devices;
                volume.is_honest(keep) && table.is_honest(keep.checked_shr(n).unwrap_or(0))
            }
            // What is torn is lost in part.
            Action::PowerLossTorn(_) => self.devices.iter().all(|d| d.is_honest(0)),
            _ => true,
        }
    }

    /// From now on each crash state is compared with what there would be without the daemon's own writes. The
    /// caches are written first.
    pub fn keep_plain(&mut self) {
        for d in &mut self.devices {
            d.flushed(d.flush_covers());
            d.keep_plain();
        }
    }

    /// Asks the daemon to end, whatever the client is at.
    pub fn begin_detach(&mut self) {
        if let Some(v) = &mut self.volume {
            v.begin_detach(NOW);
        }
    }

    /// The devices: the volume's, the table's.
    pub fn devices(&self) -> &[Device; 2] {
        &self.devices
    }

    /// Whether an I/O in the device's queue is a flush.
    pub fn is_flush(&self, index: usize) -> bool {
        self.queue.get(index).is_some_and(|q| q.op == IoOp::Flush)
    }

    /// Flushes that the device has done.
    pub fn flushes_done(&self) -> u64 {
        self.flushes
    }

    /// I/Os in the device's queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// A number that equal states share.
    pub fn digest(&self) -> u64 {
        let h = &mut DefaultHasher::new();
        if let Some(v) = &self.volume {
            v.digest().hash(h);
        }
        (&self.policy, &self.devices, &self.kernel, &self.used).hash(h);
        for q in &self.queue {
            (q.io.is_some(), q.own, q.device, q.extent, q.client, &q.bytes, q.covers, q.excused).hash(h);
            std::mem::discriminant(&q.op).hash(h);
        }
        // The engine's names for I/Os in order, as it sees them.
        let mut order: Vec<_> = self.queue.iter().filter_map(|q| q.io).collect();
        order.sort_unstable();
        let ranks = self.queue.iter().filter_map(|q| q.io).map(|io| order.binary_search(&io).ok());
        ranks.collect::<Vec<_>>().hash(h);
        (&self.buffers, &self.unread, &self.bitmap_sent, self.claiming, &self.sockets, self.connection)
            .hash(h);
        self.ground.table_blocks[0].hash(h);
        (self.route, &self.left, self.quiet, self.tool, self.resized).hash(h);
        (
            self.mounts,
            self.died,
            self.kernel_died,
            self.failed,
            self.foreign,
            self.unnoticed,
            self.doubt,
            self.foreign_owns,
        )
            .hash(h);
        h.finish()
    }

    pub(super) fn set_policy(&mut self) {
        let policy = Box::new(self.policy.clone());
        if let Some(v) = &mut self.volume {
            v.set_policy(policy);
        }
    }

    pub(super) fn plan(&self) -> Plan {
        self.setup.plan()
    }

    pub(super) fn grain(&self) -> Grain {
        self.setup.grain
    }

    fn extent_of_block(&self, block: u32) -> Extent {
        BlockNo(block).extent(self.grain().size)
    }

    pub(super) fn extent(&self, b: Tracked) -> Extent {
        self.extent_of_block(self.blocks[b])
    }

    fn extent_of_two(&self, b: Tracked) -> Extent {
        Extent::new(self.extent(b).offset(), 2 * self.grain().block() as u64)
    }

    /// The group of a tracked block.
    fn group_of(&self, b: Tracked) -> u32 {
        self.plan().group_of(self.blocks[b])
    }

    /// The groups of the blocks that anything happens to.
    fn groups(&self) -> Vec<u32> {
        let mut all: Vec<u32> = DATA.iter().map(|b| self.group_of(*b)).collect();
        all.dedup();
        all
    }

    /// Blocks that belong to files, in the kernel's memory.
    pub(super) fn refs(&self) -> u16 {
        self.kernel.allocated & !(TABLE_BITS | 1 << P)
    }

    /// Blocks that belong to files, on the device.
    pub(super) fn refs_on_disk(&self) -> u16 {
        // One sector says it; a torn write of P leaves either.
        let [a, _] = self.devices[0].block(self.blocks[P]).cells().unwrap_or_default();
        a & 0xff
    }

    /// A group's bitmap with the tracked bits as in the mask.
    pub(super) fn bitmap(&self, group: u32, mask: u16) -> Vec<u8> {
        let plan = self.plan();
        let mut bytes = self.devices[0].block(plan.bitmap(group)).bytes(plan.grain);
        for b in DATA.into_iter().filter(|b| self.group_of(*b) == group) {
            plan.set_bit(&mut bytes, self.blocks[b], mask >> b & 1 == 1);
        }
        bytes
    }

    /// The superblock on the device.
    pub(super) fn superblock_now(&self) -> Vec<u8> {
        self.devices[0].read(Extent::new(image::SUPERBLOCK, 1024))
    }

    pub(super) fn superblock(&self, mounts: u16, state: u16) -> Vec<u8> {
        let mut bytes = self.superblock_now();
        bytes[image::MNT_COUNT..][..2].copy_from_slice(&mounts.to_le_bytes());
        bytes[image::STATE..][..2].copy_from_slice(&state.to_le_bytes());
        bytes
    }
}

/// One that does nothing of its own.
fn policy(plan: Plan) -> Scripted {
    let groups = Some((plan.first(), plan.group_blocks()));
    Scripted { block_bytes: plan.grain.block(), groups, ..Scripted::default() }
}

fn violation(oracle: Oracle, what: String) -> Violation {
    Violation { oracle, what }
}
