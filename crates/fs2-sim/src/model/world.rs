//! The world: one client, one device (two where the table lives apart), the engine between them.
//!
//! Every step is one action; after each, all that the engine has to say at once is taken (dispatches into
//! the device's queue, answers to the client). What is nondeterministic in life is an action of its own:
//! which I/O in the queue the device does next, when background work begins, when a bitmap in flight is
//! read, when power fails and what of the cache survives.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, BlockSize, ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId};
use fs2_engine::{AttachOptions, Freeze, Io, IoData, IoId, IoOp, Outcome, Plant, Standing, Target, Volume};

use super::content::{BLOCK, Content, SECTOR, Value};
use super::device::{Device, Reader};
use super::kernel::{Ask, Kernel, Tracked, Wrong};
use super::{image, mark};
use crate::glue::{Ground, Scripted, Setup, check_table, hash_of};

/// A block of a file.
pub const O: Tracked = 0;
/// Another block of the file.
pub const X: Tracked = 1;
/// A free block.
pub const R: Tracked = 2;
/// Another free block.
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
const BLOCKS: [u32; TRACKED] = [1100, 1101, 1200, 1202, 0, 1110, 0];
const DATA: [Tracked; 4] = [O, X, R, S];
const TABLE: [Tracked; 2] = [T, U];
const TABLE_BITS: u16 = 1 << T | 1 << U;

/// P holds this plus the bits of the blocks in use.
const REFS: Value = 0x600;

const NOW: Nanos = Nanos(0);

/// Which copy a read is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum From {
    /// The original; its payload is captured.
    Original,
    /// A replica where there is one.
    Replica,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The client reads.
    Read(Tracked, From),
    /// The client reads a block that is nobody's.
    ReadFree(Tracked, From),
    /// The client writes a new value.
    Write(Tracked),
    /// The same while another write of the block is in flight.
    WriteToo(Tracked),
    /// It writes one sector.
    WritePart(Tracked, usize),
    /// It writes zeroes.
    Zero(Tracked),
    /// It allocates a block, in memory.
    Alloc(Tracked),
    /// It frees a block, in memory.
    Free(Tracked),
    /// It discards a free block (fstrim, or a freed one with -o discard).
    Discard(Tracked),
    /// The same while a write of the block is in flight.
    DiscardToo(Tracked),
    /// The same from a frontend that knows punched holes only.
    Punch(Tracked),
    /// The client stops waiting for a discard and goes on.
    GiveUp(Tracked),
    /// The bitmap is sent with the content it has now.
    SendBitmap,
    /// And arrives.
    BitmapArrives,
    /// A tool marks a block used without writing it.
    Claim(Tracked),
    /// The client writes P: what belongs to files.
    WriteRefs,
    /// A tool has a block zeroed by a frontend that knows punched holes only.
    PunchZeroes(Tracked),
    /// It flushes.
    Flush,
    /// It flushes while another flush is in flight.
    FlushToo,
    /// The kernel mounts.
    Mount,
    /// It unmounts in order; all I/O is done at once.
    Unmount,
    /// The kernel dies, the daemon lives.
    KernelDies,
    /// The connection is cut; the client goes on over the next. What was sent but not read stays in the
    /// old one's socket.
    Reconnect,
    /// A discard is sent; it stays in the socket.
    SendDiscard(Tracked),
    /// The daemon reads what is in the socket of the connection.
    Receive(u32),
    /// The next payload is to be copied to this block.
    Target(Tracked),
    /// The policy evicts the replica in a block.
    Evict(Tracked),
    /// A device slot is free and the engine may do work of its own.
    Background,
    /// Nothing: there is a replica in a block, or a scripted beginning went wrong.
    Expect(Tracked),
    /// The device does the I/O at this place of its queue.
    Land(usize),
    /// It fails it.
    Fail(usize),
    /// The daemon is killed, and its clients with it; I/O in the device's queue goes on.
    Kill,
    /// The daemon is killed; its clients wait and send again what was not answered.
    KillAlone,
    /// Power fails; of the writes in the caches those with their bit survive.
    PowerLoss(u64),
    /// A daemon attaches.
    Attach,
    /// The daemon is asked to end in order; its clients are done.
    Detach,
    /// The same while requests are in flight.
    DetachBusy,
    /// `chkfs2`: e2fsck -f ends 0, then the table is rewritten and marked.
    Check,
    /// With no daemon attached, the volume is mounted elsewhere, a block written, and unmounted.
    ElsewhereWrites(Tracked),
    /// With a daemon attached, something else writes a block.
    ForeignWrites(Tracked),
    /// With a daemon attached, something else mounts the volume and writes a block of the table.
    ForeignTakes(Tracked),
    /// And the daemon is told so.
    ForeignNoticed,
}

/// What must never happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which oracle says so.
    pub oracle: Oracle,
    /// What it saw.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}

/// Those who judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Oracle {
    /// A read brings the last acknowledged write or one in flight, and what the block held meanwhile.
    Read,
    /// The daemon writes to no live block.
    Live,
    /// After a crash everything flushed is there, and every live block holds what was written to it.
    Crash,
    /// A mark that would be trusted tells the truth.
    Mark,
    /// Trust ends only where there is a reason; no replica fails its hash without one.
    Trust,
    /// Each request is answered once, with success unless something below failed.
    Answer,
    /// The engine's own invariants.
    Check,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Oracle::Read => "read",
            Oracle::Live => "live",
            Oracle::Crash => "crash",
            Oracle::Mark => "mark",
            Oracle::Trust => "trust",
            Oracle::Answer => "answer",
            Oracle::Check => "check",
        })
    }
}

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    session: u32,
    counts: [(&'static str, u64); 14],
}

impl Tally {
    /// Adds what was counted since `before`.
    pub fn since(&self, before: &Tally, to: &mut super::swarm::Coverage) {
        for (now, then) in self.counts.iter().zip(&before.counts) {
            let then = if self.session == before.session { then.1 } else { 0 };
            if now.1 > then {
                *to.0.entry(now.0).or_default() += now.1 - then;
            }
        }
    }
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
    /// The client.
    pub kernel: Kernel,
    bitmap_sent: Option<u16>,
    claiming: Option<Tracked>,
    /// Discards sent and not read, by connection.
    sockets: BTreeMap<u32, Vec<(u64, Tracked)>>,
    connection: u32,
    mounts: u16,
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
    menu: Arc<Vec<(Action, u8)>>,
    used: Vec<u8>,
}

impl World {
    /// A world before its first attach.
    pub fn new(setup: Setup) -> World {
        let data: Vec<(u32, Value)> = [O, X]
            .map(|b| (BLOCKS[b], (b as Value + 1) << 8))
            .into_iter()
            .chain([refs_block(0b11)])
            .collect();
        let ground = Ground::new(&setup, &data, &[BLOCKS[R], BLOCKS[S]]);
        let mut blocks = BLOCKS;
        // The first of the first entry page, behind two slots and two areas of checksums.
        if !setup.apart {
            (blocks[T], blocks[U]) = (ground.table_blocks[16], ground.table_blocks[20]);
        }
        let mut found = [None; TRACKED];
        for (block, value) in [(O, 0x100), (X, 0x200), (P, REFS | 0b11)] {
            found[block] = Some(value);
        }
        let devices = [&ground.volume, &ground.table].map(|bytes| Device::new(bytes.clone()));
        World {
            ground: Arc::new(ground),
            setup: Arc::new(setup),
            blocks,
            volume: None,
            policy: Scripted::default(),
            devices,
            queue: Vec::new(),
            buffers: BTreeMap::new(),
            kernel: Kernel::new(NAMES, &found),
            bitmap_sent: None,
            claiming: None,
            sockets: BTreeMap::new(),
            connection: 0,
            mounts: 0,
            died: false,
            kernel_died: false,
            failed: false,
            foreign: false,
            unnoticed: false,
            doubt: false,
            foreign_owns: None,
            sessions: 0,
            trusted: 0,
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

    /// A tracked block's number.
    pub fn block(&self, b: Tracked) -> u32 {
        self.blocks[b]
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

    /// I/Os in the device's queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// What the engine has counted in this session, and what the world knows beside it.
    pub fn tally(&self) -> Tally {
        let Some(v) = &self.volume else { return Tally::default() };
        let s = v.stats();
        Tally {
            session: self.sessions,
            counts: [
                ("copies published", s.copies_written),
                ("copies in vain", s.copies_void),
                ("reads from replicas", s.reads_from_replica),
                ("replicas invalidated", s.invalidated),
                ("replicas reclaimed", s.reclaimed),
                ("replicas whose hash failed", s.hash_mismatches),
                ("entries verified", s.verified),
                ("entries refuted", s.refuted),
                ("bitmap writes that waited (R3)", s.claims_waited),
                ("blocks freed by discards", s.discarded_blocks),
                ("table pages written", s.table_pages_written),
                ("freezes", u64::from(matches!(v.standing(), Standing::Frozen(_)))),
                ("active sessions", u64::from(*v.standing() == Standing::Active)),
                ("sessions with entries trusted at once", u64::from(self.trusted > 0)),
            ],
        }
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
        (&self.buffers, self.bitmap_sent, self.claiming, &self.sockets, self.connection).hash(h);
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

    /// Everything that may happen next.
    pub fn enabled(&self) -> Vec<Action> {
        let mut all: Vec<Action> = (0..self.queue.len()).map(Action::Land).collect();
        if self.is_enabled(Action::BitmapArrives) {
            all.push(Action::BitmapArrives);
        }
        for ((action, most), used) in self.menu.iter().zip(&self.used) {
            if used >= most {
                continue;
            }
            match action {
                Action::Fail(_) => all.extend((0..self.queue.len()).map(Action::Fail)),
                Action::PowerLoss(_) => all.extend(self.power_losses()),
                other => all.extend(self.is_enabled(*other).then_some(*other)),
            }
        }
        all
    }

    /// Which of the writes in the caches survive: every set of up to five, else none, all, each alone and
    /// all but each.
    fn power_losses(&self) -> Vec<Action> {
        let n = self.devices.iter().map(Device::cached).sum::<usize>();
        let all = (1u64 << n) - 1;
        let sets: Vec<u64> = if n <= 5 {
            (0..=all).collect()
        } else {
            let one = (0..n).flat_map(|i| [1 << i, all & !(1 << i)]);
            one.chain([0, all]).collect()
        };
        sets.into_iter().map(Action::PowerLoss).collect()
    }

    fn served(&self) -> bool {
        self.volume.as_ref().is_some_and(|v| !v.is_detaching())
    }

    /// Whether the kernel waits for nothing that must end before it goes on.
    fn mounting(&self) -> bool {
        self.kernel.waits_for(|o| matches!(o.ask, Ask::Super { .. }))
    }

    /// Whether an action makes sense now.
    pub fn is_enabled(&self, action: Action) -> bool {
        let k = &self.kernel;
        let client = self.served() && !self.mounting();
        let gone = self.volume.is_none();
        match action {
            Action::Read(b, _) => client && (k.is_live(b) || TABLE.contains(&b)),
            Action::ReadFree(..) => client,
            Action::Write(b) | Action::WritePart(b, _) | Action::Zero(b) => {
                client && (k.is_allocated(b) || TABLE.contains(&b)) && !k.busy(b)
            }
            Action::WriteToo(b) => client && k.is_allocated(b),
            Action::Alloc(b) => client && !k.is_allocated(b) && !k.discarding(b) && self.claiming != Some(b),
            Action::Free(b) => client && k.is_allocated(b) && !k.busy(b),
            Action::Discard(b) | Action::Punch(b) | Action::SendDiscard(b) => {
                client && !k.is_allocated(b) && !k.busy(b) && self.claiming != Some(b)
            }
            Action::DiscardToo(b) => client && !k.is_allocated(b),
            Action::GiveUp(b) => k.discarding(b),
            Action::SendBitmap => {
                client
                    && self.bitmap_sent.is_none()
                    && !k.waits_for(|o| matches!(o.ask, Ask::Bitmap(_)))
                    && self.claiming.is_none()
            }
            Action::BitmapArrives => self.served() && self.bitmap_sent.is_some(),
            Action::Claim(b) => {
                let free = !k.is_allocated(b) && !k.discarding(b) && k.ghosts.is_empty();
                client && free && self.is_enabled(Action::SendBitmap)
            }
            Action::WriteRefs => client && k.mounted && !k.busy(P),
            Action::PunchZeroes(b) => client && k.is_live(b) && !k.mounted && !k.busy(b),
            Action::FlushToo => client,
            Action::Flush => client && !k.waits_for(|o| o.ask == Ask::Flush),
            Action::Mount => client && !k.mounted && k.outstanding.is_empty() && k.ghosts.is_empty(),
            Action::Unmount => client && k.mounted && k.outstanding.is_empty(),
            Action::KernelDies => self.served() && k.mounted,
            Action::Reconnect => client,
            Action::Receive(c) => self.served() && self.sockets.get(&c).is_some_and(|s| !s.is_empty()),
            Action::Target(b) => self.served() && self.policy.target != Some(self.blocks[b]),
            Action::Evict(b) | Action::Expect(b) => {
                let replica = |v: &Volume| v.table().by_replica(BlockNo(self.blocks[b])).is_some();
                self.volume.as_ref().is_some_and(replica)
            }
            Action::Background => self.served(),
            Action::Land(i) | Action::Fail(i) => i < self.queue.len(),
            Action::Kill | Action::KillAlone => !gone && !self.unnoticed,
            Action::PowerLoss(_) => true,
            // R0: the lock is free only when the last I/O of the former daemon has ended.
            Action::Attach => gone && (self.queue.is_empty() || self.setup.no_lock_wait),
            // What nobody ever notices is outside the fault model.
            Action::DetachBusy => self.served() && !self.unnoticed,
            Action::Detach => self.served() && !self.unnoticed && k.outstanding.is_empty(),
            Action::Check | Action::ElsewhereWrites(_) => {
                let waits = k.mounted || !k.outstanding.is_empty();
                gone && !waits && (self.queue.is_empty() || self.setup.no_lock_wait)
            }
            Action::ForeignWrites(_) | Action::ForeignTakes(_) => self.served(),
            Action::ForeignNoticed => self.foreign && !gone,
        }
    }

    /// Does one action.
    ///
    /// # Errors
    /// What must never happen.
    pub fn step(&mut self, action: Action) -> Result<(), Violation> {
        let kind = |a: Action| match a {
            Action::Fail(_) => Action::Fail(0),
            Action::PowerLoss(_) => Action::PowerLoss(0),
            other => other,
        };
        if let Some(i) = self.menu.iter().position(|m| kind(m.0) == kind(action)) {
            self.used[i] += 1;
        }
        self.act(action)?;
        self.pump()?;
        self.judge_trust()
    }

    fn act(&mut self, action: Action) -> Result<(), Violation> {
        match action {
            Action::Read(b, from) | Action::ReadFree(b, from) => {
                self.policy.prefer = from == From::Replica;
                self.policy.capture = from == From::Original;
                self.set_policy();
                self.send(Ask::Read(b));
            }
            Action::Write(b) | Action::WriteToo(b) => {
                let v = self.kernel.fresh_value(b);
                self.send(Ask::Write(b, v));
            }
            Action::WritePart(b, sector) => {
                let v = self.kernel.fresh_value(b);
                self.send(Ask::WritePart(b, sector, v));
            }
            Action::Zero(b) => self.send(Ask::Zero(b)),
            Action::Alloc(b) => self.kernel.allocate(b),
            Action::Free(b) => self.kernel.free(b),
            Action::Discard(b) | Action::DiscardToo(b) => {
                self.kernel.forget(b);
                self.send(Ask::Discard(b));
            }
            Action::Punch(b) => {
                self.kernel.forget(b);
                self.send(Ask::Punch(b));
            }
            Action::GiveUp(b) => {
                let is = |a: Ask| matches!(a, Ask::Discard(d) | Ask::Punch(d) if d == b);
                self.kernel.outstanding.values_mut().filter(|o| is(o.ask)).for_each(|o| o.given_up = true);
            }
            Action::SendBitmap => self.bitmap_sent = Some(self.kernel.bitmap),
            Action::BitmapArrives => {
                let mask = self.bitmap_sent.take().expect("it was sent");
                self.send(Ask::Bitmap(mask));
            }
            Action::Claim(b) => {
                self.claiming = Some(b);
                self.send(Ask::Bitmap(self.kernel.bitmap | 1 << b));
            }
            Action::WriteRefs => {
                let refs = REFS | self.refs();
                self.send(Ask::Write(P, refs));
            }
            Action::PunchZeroes(b) => self.send(Ask::PunchZeroes(b)),
            Action::Flush | Action::FlushToo => self.send(Ask::Flush),
            Action::Mount => self.mount()?,
            Action::Unmount => self.unmount()?,
            Action::KernelDies => {
                self.kernel.cut_off();
                self.sockets.clear();
                self.bitmap_sent = None;
                self.claiming = None;
                self.died = true;
                self.kernel_died = true;
            }
            Action::Reconnect => self.reconnect(),
            Action::SendDiscard(b) => {
                self.kernel.forget(b);
                let id = self.kernel.send(Ask::Discard(b), self.connection, None);
                self.sockets.entry(self.connection).or_default().push((id, b));
            }
            Action::Receive(c) => {
                let (id, b) = self.sockets.get_mut(&c).expect("it was looked at").remove(0);
                self.sockets.retain(|_, s| !s.is_empty());
                self.submit(id, Ask::Discard(b), c);
            }
            Action::Target(b) => {
                self.policy.target = Some(self.blocks[b]);
                self.set_policy();
            }
            Action::Evict(b) => {
                self.policy.evict = Some(BlockRange::one(BlockNo(self.blocks[b])));
                self.set_policy();
                if let Some(v) = &mut self.volume {
                    v.handle_timeout(NOW);
                }
                self.policy.evict = None;
                self.set_policy();
            }
            Action::Expect(_) => {}
            Action::Background => self.background(),
            Action::Land(i) => self.land(i, false)?,
            Action::Fail(i) => {
                self.failed = true;
                self.land(i, true)?;
            }
            Action::Kill => {
                self.killed();
                self.cut_off();
            }
            Action::KillAlone => self.killed(),
            Action::PowerLoss(keep) => self.power_loss(keep)?,
            Action::Attach => self.attach()?,
            Action::Detach | Action::DetachBusy => {
                self.volume.as_mut().expect("it is served").begin_detach(NOW)
            }
            Action::Check => self.check(),
            Action::ElsewhereWrites(b) => self.elsewhere_writes(b),
            Action::ForeignWrites(b) => {
                let v = self.kernel.fresh_value(b);
                self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes());
                self.kernel.rewritten(b, v);
                self.kernel.forget(b);
                self.foreign = true;
                self.unnoticed = true;
            }
            Action::ForeignTakes(b) => {
                let v = self.kernel.fresh_value(b);
                self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes());
                let mounts = u16::from_le_bytes(self.mnt_count());
                let superblock = self.superblock(mounts + 1, 0);
                self.devices[0]
                    .write_through(u64::from(image::SUPERBLOCK) * BLOCK as u64, &superblock.bytes());
                self.foreign_owns = Some(b);
                self.foreign = true;
                self.unnoticed = true;
            }
            Action::ForeignNoticed => {
                self.unnoticed = false;
                self.queue.iter_mut().for_each(|q| q.excused = true);
                if let Some(b) = self.foreign_owns {
                    self.kernel.rewritten(b, 0);
                    self.kernel.forget(b);
                }
                self.volume.as_mut().expect("it is served").foreign_writer(NOW);
                for b in DATA {
                    if !self.kernel.is_live(b) {
                        continue;
                    }
                    if let Some([v, _]) = self.devices[0].block(self.blocks[b]).cells() {
                        self.kernel.rewritten(b, v);
                    }
                }
            }
        }
        Ok(())
    }

    fn set_policy(&mut self) {
        let policy = Box::new(self.policy.clone());
        if let Some(v) = &mut self.volume {
            v.set_policy(policy);
        }
    }

    fn extent(&self, b: Tracked) -> Extent {
        BlockNo(self.blocks[b]).extent(BlockSize::B1024)
    }

    /// Blocks that belong to files, in the kernel's memory.
    fn refs(&self) -> u16 {
        self.kernel.allocated & !(TABLE_BITS | 1 << P)
    }

    /// Blocks that belong to files, on the device.
    fn refs_on_disk(&self) -> u16 {
        let [a, b] = self.devices[0].block(self.blocks[P]).cells().unwrap_or_default();
        // P is one sector's worth of bits; a torn write of it leaves either.
        debug_assert_eq!(a, b);
        a & 0xff
    }

    fn bitmap(&self, mask: u16) -> Content {
        let mut bytes = self.devices[0].block(image::BITMAP).bytes();
        for b in DATA {
            image::set_bit(&mut bytes, BLOCKS[b], mask >> b & 1 == 1);
        }
        Content::from_bytes(&bytes)
    }

    fn superblock(&self, mounts: u16, state: u16) -> Content {
        let mut bytes = self.devices[0].block(image::SUPERBLOCK).bytes();
        bytes[image::MNT_COUNT..][..2].copy_from_slice(&mounts.to_le_bytes());
        bytes[image::STATE..][..2].copy_from_slice(&state.to_le_bytes());
        Content::from_bytes(&bytes)
    }

    /// The client sends a request over its connection; it arrives at once.
    fn send(&mut self, ask: Ask) {
        let now = ask.block().and_then(|b| self.devices[0].block(self.blocks[b]).cells());
        let id = self.kernel.send(ask, self.connection, now);
        self.submit(id, ask, self.connection);
    }

    fn submit(&mut self, id: u64, ask: Ask, connection: u32) {
        let (op, extent, payload) = self.request(ask);
        let request = Request {
            id: RequestId(id),
            connection: ConnectionId(connection),
            op,
            extent,
            flags: Flags { fua: matches!(ask, Ask::Super { .. }), no_hole: false },
        };
        if let Some(bytes) = &payload {
            self.buffers.insert(id, bytes[..].into());
        }
        let volume = self.volume.as_mut().expect("requests are sent while it is served");
        volume.submit(NOW, request, payload.as_deref());
    }

    fn request(&self, ask: Ask) -> (Op, Extent, Option<Vec<u8>>) {
        let at = |block: u32| BlockNo(block).extent(BlockSize::B1024);
        match ask {
            Ask::Read(b) => (Op::Read, self.extent(b), None),
            Ask::Write(b, v) => (Op::Write, self.extent(b), Some(Content::of(v).bytes().to_vec())),
            Ask::WritePart(b, sector, v) => {
                let at = self.extent(b).offset() + (sector * SECTOR) as u64;
                let bytes = Content::of(v).bytes()[..SECTOR].to_vec();
                (Op::Write, Extent::new(at, SECTOR as u64), Some(bytes))
            }
            Ask::Zero(b) => (Op::WriteZeroes, self.extent(b), None),
            Ask::Discard(b) => (Op::Discard, self.extent(b), None),
            Ask::Punch(b) | Ask::PunchZeroes(b) => (Op::Punch, self.extent(b), None),
            Ask::Bitmap(mask) => (Op::Write, at(image::BITMAP), Some(self.bitmap(mask).bytes().to_vec())),
            Ask::Super { mounts, state } => {
                let bytes = self.superblock(mounts, state).bytes().to_vec();
                (Op::Write, at(image::SUPERBLOCK), Some(bytes))
            }
            Ask::Flush => (Op::Flush, Extent::default(), None),
        }
    }

    /// Takes everything the engine has to say.
    fn pump(&mut self) -> Result<(), Violation> {
        loop {
            self.take_replies()?;
            let Some(volume) = &mut self.volume else { return Ok(()) };
            if self.queue.len() >= self.setup.slots {
                return Ok(());
            }
            match volume.poll_dispatch(NOW) {
                Some(io) => self.enqueue(io),
                None if volume.detached().is_some() => {
                    self.volume = None;
                    self.policy = Scripted::default();
                    return Ok(());
                }
                // A dispatch that needs no I/O answers at once.
                None => return self.take_replies(),
            }
        }
    }

    fn take_replies(&mut self) -> Result<(), Violation> {
        while let Some(reply) = self.volume.as_mut().and_then(Volume::poll_reply) {
            self.answer(reply.request.0, reply.result)?;
        }
        Ok(())
    }

    fn background(&mut self) {
        if self.queue.len() >= self.setup.slots {
            return;
        }
        self.policy.eager = true;
        self.set_policy();
        let io = self.volume.as_mut().and_then(|v| v.poll_dispatch(NOW));
        self.policy.eager = false;
        self.set_policy();
        if let Some(io) = io {
            self.enqueue(io);
        }
    }

    fn enqueue(&mut self, io: Io) {
        let device = usize::from(io.target == Target::Table);
        let client = match io.data {
            IoData::Client(id) => Some(id.0),
            _ => None,
        };
        // A discard has no memory of its own; a client's never lands on a live block either.
        let own = client.is_none() && !matches!(io.op, IoOp::WriteZeroes { .. } | IoOp::Flush);
        let bytes: Arc<[u8]> = match (&io.op, io.data) {
            (IoOp::Write { .. }, IoData::Engine(bytes)) => bytes,
            (IoOp::Write { .. }, IoData::Client(id)) => self.buffers[&id.0].clone(),
            _ => Arc::new([]),
        };
        let covers = self.devices[device].flush_covers();
        let covers = if io.op == IoOp::Flush { covers } else { 0 };
        self.queue.push(Queued {
            io: Some(io.id),
            own,
            device,
            op: io.op,
            extent: io.extent,
            client,
            bytes,
            covers,
            excused: false,
        });
    }

    /// The device does, or fails, an I/O.
    fn land(&mut self, index: usize, fails: bool) -> Result<(), Violation> {
        let q = self.queue.remove(index);
        let zeroes;
        let bytes = match q.op {
            IoOp::WriteZeroes { .. } | IoOp::Discard => {
                zeroes = vec![0; q.extent.len() as usize];
                Some(&zeroes[..])
            }
            IoOp::Write { .. } => Some(&q.bytes[..]),
            _ => None,
        };
        let mut read = Vec::new();
        match (q.op, bytes) {
            (IoOp::Flush, _) if fails => self.devices[q.device].flush_failed(q.covers),
            (IoOp::Flush, _) => self.devices[q.device].flushed(q.covers),
            _ if fails => {}
            (IoOp::Read, _) => {
                read = self.devices[q.device].read(q.extent);
                self.masked(&q, &mut read);
            }
            (op, Some(bytes)) => self.landed(&q, op, bytes)?,
            (_, None) => {}
        }
        if let (Some(id), IoOp::Read, false) = (q.client, q.op, fails) {
            self.buffers.insert(id, read[..].into());
        }
        if let (Some(io), Some(volume)) = (q.io, &mut self.volume) {
            let outcome = if fails { Outcome::failed(5) } else { Outcome { result: Ok(()), data: &read } };
            volume.complete(NOW, io, outcome);
        }
        Ok(())
    }

    /// [`Plant::ReplicaMasked`] lives here: the engine has no way to answer but from the device.
    fn masked(&self, q: &Queued, read: &mut [u8]) {
        let holds = |v: &Volume| {
            let block = BlockNo((q.extent.offset() / BLOCK as u64) as u32);
            v.table().by_replica(block).is_some()
        };
        if self.planted(Plant::ReplicaMasked)
            && q.client.is_some_and(|id| {
                let asked = self.kernel.outstanding.get(&id).and_then(|o| o.ask.block());
                asked.is_some_and(|b| self.extent(b) == q.extent)
            })
            && self.volume.as_ref().is_some_and(holds)
        {
            read.fill(0);
        }
    }

    fn landed(&mut self, q: &Queued, op: IoOp, bytes: &[u8]) -> Result<(), Violation> {
        let tracked: Vec<Tracked> =
            (0..TRACKED).filter(|&b| q.device == 0 && self.extent(b).overlaps(q.extent)).collect();
        for &b in &tracked {
            if q.own && !q.excused && self.kernel.is_live(b) {
                let what = if op == IoOp::Discard { "a discard" } else { "the daemon's write" };
                return Err(violation(Oracle::Live, format!("{what} lands on {}, which is live", NAMES[b])));
            }
        }
        let of_table = self.ground.table_blocks.iter().any(|b| {
            let here = BlockNo(*b).extent(BlockSize::B1024);
            usize::from(self.ground.apart) == q.device && here.overlaps(q.extent)
        });
        // With a rule broken on purpose its consequences are looked for, not the breach itself.
        if self.setup.plants.is_empty() && !(q.own && of_table) && q.io.is_some() {
            self.judge_erased()?;
        }
        if matches!(op, IoOp::Write { fua: true } | IoOp::WriteZeroes { fua: true, .. }) {
            self.devices[q.device].write_through(q.extent.offset(), bytes);
        } else {
            self.devices[q.device].write(q.extent.offset(), bytes);
        }
        for b in tracked {
            if !q.own {
                if TABLE.contains(&b) {
                    self.kernel.allocate(b);
                }
                if self.kernel.is_allocated(b) {
                    self.kernel.landed |= 1 << b;
                }
            }
            let now = self.devices[0].block(self.blocks[b]).cells();
            self.kernel.content_changed(b, now);
        }
        Ok(())
    }

    fn answer(&mut self, id: u64, result: Result<(), i32>) -> Result<(), Violation> {
        let buffer = self.buffers.remove(&id);
        let data = buffer.filter(|b| b.len() == BLOCK).and_then(|b| Content::from_bytes(&b).cells());
        let ask = self.kernel.answered(id, result.is_ok(), data).map_err(|Wrong(what)| {
            let oracle = if what.starts_with("an answer") { Oracle::Answer } else { Oracle::Read };
            violation(oracle, what)
        })?;
        if let (Err(errno), false) = (result, self.failed) {
            return Err(violation(Oracle::Answer, format!("{ask:?} failed with {errno}")));
        }
        match (ask, self.claiming) {
            (Some(Ask::Bitmap(_)), Some(b)) => {
                self.kernel.claim(b);
                self.claiming = None;
            }
            (Some(Ask::Super { mounts, state }), _) if result.is_ok() => {
                // A kernel that mounts reads what belongs to files; earlier than now nobody looks.
                if state & 1 == 0 && self.died {
                    self.reload()?;
                    self.died = false;
                }
                self.kernel.mounted = state & 1 == 0;
                self.mounts = mounts;
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets the device do everything, in order, until nothing is left.
    ///
    /// # Errors
    /// What must never happen.
    pub fn drain(&mut self) -> Result<(), Violation> {
        self.pump()?;
        while !self.queue.is_empty() {
            self.land(0, false)?;
            self.pump()?;
        }
        self.judge_trust()
    }

    /// After everything was let happen: no request is left without its answer.
    ///
    /// # Errors
    /// Where one is.
    pub fn judge_end(&mut self) -> Result<(), Violation> {
        self.drain()?;
        if self.served() {
            // A bitmap may wait for the engine's own read, which is no background work.
            self.drain()?;
        }
        let waits = |o: &super::kernel::Outstanding| {
            let unread = matches!(o.ask, Ask::Discard(_)) && !self.sockets.is_empty();
            !unread
        };
        let unanswered = self.kernel.outstanding.iter().find(|(_, o)| waits(o));
        if let (Some((id, o)), Some(_)) = (unanswered, &self.volume) {
            return Err(violation(Oracle::Answer, format!("request {id}, {:?}, is never answered", o.ask)));
        }
        if self.volume.as_ref().is_some_and(Volume::is_detaching) {
            return Err(violation(Oracle::Answer, "the detach never ends".into()));
        }
        Ok(())
    }

    fn judge_trust(&self) -> Result<(), Violation> {
        let Some(v) = &self.volume else { return Ok(()) };
        let unwarranted = match v.standing() {
            // A superblock whose write failed is not the one that was sent.
            Standing::Frozen(Freeze::ForeignWriter) => !self.foreign && !self.failed,
            Standing::Frozen(Freeze::BrokenInvariant(_)) => !self.foreign,
            Standing::Frozen(Freeze::SecondMount) => !self.kernel_died,
            Standing::Frozen(_) => true,
            Standing::Active | Standing::Inactive(_) => false,
        };
        if unwarranted {
            let what = format!("the session ended its trust: {:?}", v.standing());
            return Err(violation(Oracle::Trust, what));
        }
        if v.stats().hash_mismatches > 0 && !self.doubt && !self.foreign {
            return Err(violation(Oracle::Trust, "a replica failed its hash, and nothing had failed".into()));
        }
        Ok(())
    }

    /// Nothing may change while a loss of power could leave a mark that would be trusted.
    fn judge_erased(&self) -> Result<(), Violation> {
        let durable = self.devices.each_ref().map(Device::durable);
        if mark::promises(&self.ground, &durable).is_some() {
            return Err(violation(Oracle::Mark, "the volume changes while a mark stands".into()));
        }
        Ok(())
    }

    /// What the mark promises is compared with what is there.
    fn judge_mark(&self) -> Result<(), Violation> {
        let Some(promises) = mark::promises(&self.ground, &self.devices) else { return Ok(()) };
        let refs = self.refs_on_disk();
        for p in promises {
            let Some(b) = (0..TRACKED).find(|&b| self.blocks[b] == p.original) else { continue };
            let holds = self.devices[0].block(p.original);
            if refs >> b & 1 == 1 && hash_of(self.ground.volume_id, &holds.bytes()) != p.hash {
                let what = format!("it vouches for {}, which holds {holds:?}", NAMES[b]);
                return Err(violation(Oracle::Mark, what));
            }
        }
        let bitmap = self.devices[0].block(image::BITMAP).bytes();
        for b in DATA {
            if refs >> b & 1 == 1 && !image::bit(&bitmap, BLOCKS[b]) {
                let what = format!("it vouches for a bitmap that calls {} free", NAMES[b]);
                return Err(violation(Oracle::Mark, what));
            }
        }
        Ok(())
    }

    fn mount(&mut self) -> Result<(), Violation> {
        let mounts = u16::from_le_bytes(self.mnt_count());
        self.send(Ask::Super { mounts: mounts + 1, state: 0 });
        Ok(())
    }

    fn mnt_count(&self) -> [u8; 2] {
        let bytes = self.devices[0].block(image::SUPERBLOCK).bytes();
        [bytes[image::MNT_COUNT], bytes[image::MNT_COUNT + 1]]
    }

    /// A kernel finds on the device what belongs to files and what is in use.
    fn reload(&mut self) -> Result<(), Violation> {
        let refs = self.refs_on_disk();
        let bitmap = self.devices[0].block(image::BITMAP).bytes();
        let used = |b: &Tracked| image::bit(&bitmap, BLOCKS[*b]);
        let bits: u16 = DATA.into_iter().filter(used).map(|b| 1 << b).sum();
        self.kernel.bitmap = bits;
        self.kernel.allocated = refs | bits | 1 << P | self.kernel.allocated & TABLE_BITS;
        self.kernel.landed = refs | 1 << P | self.kernel.landed & TABLE_BITS;
        for b in DATA.into_iter().chain([P]) {
            if self.kernel.is_live(b) {
                let found = self.devices[0].block(self.blocks[b]).cells();
                let wrong = |Wrong(what)| violation(Oracle::Crash, what);
                self.kernel.found(b, found).map_err(wrong)?;
            } else {
                self.kernel.forget(b);
            }
        }
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Violation> {
        self.bitmap_sent = None;
        self.send(Ask::Bitmap(self.kernel.bitmap));
        self.drain()?;
        let refs = REFS | self.refs();
        self.send(Ask::Write(P, refs));
        self.drain()?;
        self.send(Ask::Flush);
        self.drain()?;
        self.send(Ask::Super { mounts: self.mounts, state: 1 });
        self.drain()?;
        self.send(Ask::Flush);
        self.drain()
    }

    fn reconnect(&mut self) {
        // What was read by the daemon is sent again under a new number; what was not is, too, and the old
        // stays in the dead connection's socket.
        let old = self.connection;
        self.connection += 1;
        let mut unread = self.sockets.remove(&old).unwrap_or_default();
        for (id, b) in &mut unread {
            self.kernel.outstanding.remove(id);
            self.kernel.ghosts.insert(*id);
            self.send(Ask::Discard(*b));
        }
        if !unread.is_empty() {
            self.sockets.insert(old, unread);
        }
    }

    fn killed(&mut self) {
        self.volume = None;
        self.policy = Scripted::default();
        for q in &mut self.queue {
            q.io = None;
            q.client = None;
        }
        // Reads of a dead daemon change nothing.
        self.queue.retain(|q| q.op != IoOp::Read);
    }

    fn cut_off(&mut self) {
        self.kernel.cut_off();
        self.kernel.ghosts.clear();
        self.buffers.clear();
        self.sockets.clear();
        self.bitmap_sent = None;
        self.claiming = None;
        self.died = true;
    }

    fn power_loss(&mut self, keep: u64) -> Result<(), Violation> {
        self.killed();
        self.cut_off();
        self.queue.clear();
        let n = self.devices[0].cached();
        self.devices[0].power_loss(keep);
        self.devices[1].power_loss(keep >> n);
        self.doubt = true;
        let refs = self.refs_on_disk() | 1 << P;
        for b in DATA.into_iter().chain([P]).filter(|b| refs >> b & 1 == 1) {
            let found = self.devices[0].block(self.blocks[b]).cells();
            let wrong = |Wrong(what)| violation(Oracle::Crash, what);
            self.kernel.after_power_loss(b, found).map_err(wrong)?;
        }
        Ok(())
    }

    fn attach(&mut self) -> Result<(), Violation> {
        self.judge_mark()?;
        // Inode 5 still names its blocks: in the new session they are the table's again.
        TABLE.into_iter().for_each(|b| self.kernel.free(b));
        if self.died {
            self.reload()?;
            self.died = false;
        }
        let [volume, table] = &self.devices;
        let (volume, table) = (&mut Reader(volume), &mut Reader(table));
        let table: Option<&mut dyn fs2_block::ReadAt> = if self.ground.apart { Some(table) } else { None };
        let attached = Volume::attach(volume, table, self.setup.config(), &AttachOptions::default());
        let (volume, report) =
            attached.map_err(|e| violation(Oracle::Answer, format!("the attach failed: {e}")))?;
        self.volume = Some(volume);
        self.sessions += 1;
        self.trusted = report.verified;
        self.foreign = false;
        self.failed = false;
        self.kernel_died = false;
        self.set_policy();
        self.connection += 1;
        // What was never answered is sent again.
        let again: Vec<(u64, Ask)> = self.kernel.outstanding.iter().map(|(id, o)| (*id, o.ask)).collect();
        for (id, ask) in again {
            self.submit(id, ask, self.connection);
        }
        Ok(())
    }

    fn check(&mut self) {
        // e2fsck -f: the bitmap becomes what the files say, the volume is clean.
        let refs = self.refs_on_disk();
        let bitmap = self.bitmap(refs);
        self.devices[0].write_through(u64::from(image::BITMAP) * BLOCK as u64, &bitmap.bytes());
        let mounts = u16::from_le_bytes(self.mnt_count());
        let superblock = self.superblock(mounts, 1);
        self.devices[0].write_through(u64::from(image::SUPERBLOCK) * BLOCK as u64, &superblock.bytes());
        // Everything it looked at is durable before the mark is.
        for d in &mut self.devices {
            d.flushed(d.flush_covers());
        }
        let launder = self.planted(Plant::CheckerLaunders);
        check_table(&self.ground, &mut self.devices, launder);
        // Entries survive whose replicas were written while nobody looked.
        self.doubt = true;
        self.died = true;
    }

    fn elsewhere_writes(&mut self, b: Tracked) {
        let v = self.kernel.fresh_value(b);
        let mask = self.refs_on_disk() | 1 << b;
        self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes());
        let refs = Content::of(REFS | mask);
        self.devices[0].write_through(self.extent(P).offset(), &refs.bytes());
        let bitmap = self.bitmap(mask);
        self.devices[0].write_through(u64::from(image::BITMAP) * BLOCK as u64, &bitmap.bytes());
        let mounts = u16::from_le_bytes(self.mnt_count());
        let superblock = self.superblock(mounts + 1, 1);
        self.devices[0].write_through(u64::from(image::SUPERBLOCK) * BLOCK as u64, &superblock.bytes());
        self.kernel.rewritten(b, v);
        self.kernel.rewritten(P, REFS | mask);
        self.died = true;
        self.doubt = true;
    }

    /// The action in words, for the state it is about to be done in.
    pub fn describe(&self, action: Action) -> String {
        let name = |b: Tracked| NAMES[b];
        match action {
            Action::Land(i) => format!("device does {}", self.describe_io(i)),
            Action::Fail(i) => format!("device fails {}", self.describe_io(i)),
            Action::Read(b, From::Original) | Action::ReadFree(b, From::Original) => {
                format!("read {}", name(b))
            }
            Action::Read(b, From::Replica) | Action::ReadFree(b, From::Replica) => {
                format!("read {} from its replica", name(b))
            }
            Action::Write(b) | Action::WriteToo(b) => format!("write {}", name(b)),
            Action::WritePart(b, s) => format!("write sector {s} of {}", name(b)),
            Action::Zero(b) => format!("write zeroes to {}", name(b)),
            Action::Alloc(b) => format!("allocate {}", name(b)),
            Action::Free(b) => format!("free {}", name(b)),
            Action::Discard(b) | Action::DiscardToo(b) => format!("discard {}", name(b)),
            Action::Punch(b) => format!("punch {}", name(b)),
            Action::GiveUp(b) => format!("give up on the discard of {}", name(b)),
            Action::Claim(b) => format!("a tool marks {} used", name(b)),
            Action::SendDiscard(b) => format!("discard {} into the socket", name(b)),
            Action::Receive(c) => format!("daemon reads the socket of connection {c}"),
            Action::Target(b) => format!("copies go to {}", name(b)),
            Action::Evict(b) => format!("evict the replica in {}", name(b)),
            Action::ElsewhereWrites(b) => format!("mounted elsewhere: write {}", name(b)),
            Action::ForeignWrites(b) => format!("something else writes {}", name(b)),
            Action::ForeignTakes(b) => format!("something else mounts, and writes {}", name(b)),
            Action::PowerLoss(keep) => format!("power fails, kept: {keep:b}"),
            other => format!("{other:?}"),
        }
    }

    fn describe_io(&self, i: usize) -> String {
        let Some(q) = self.queue.get(i) else { return "nothing".into() };
        let whose = match (q.own, q.io) {
            (false, Some(_)) => "the client's",
            (true, Some(_)) => "the daemon's",
            (false, None) => "a dead client's",
            (true, None) => "a dead daemon's",
        };
        let op = match q.op {
            IoOp::Read => "read",
            IoOp::Write { .. } => "write",
            IoOp::WriteZeroes { .. } => "zeroes",
            // Whose cannot be told.
            IoOp::Discard => return format!("a discard of {}", self.describe_place(q)),
            IoOp::Flush => return format!("{whose} flush"),
        };
        format!("{whose} {op} of {}", self.describe_place(q))
    }

    fn describe_place(&self, q: &Queued) -> String {
        let tracked = (0..TRACKED).find(|&b| q.device == 0 && self.extent(b).overlaps(q.extent));
        let first = (q.extent.offset() / BLOCK as u64) as u32;
        match tracked {
            Some(b) => NAMES[b].to_string(),
            None if q.device == 0 && first == image::BITMAP => "the bitmap".into(),
            None if q.device == 0 && first == image::SUPERBLOCK => "the superblock".into(),
            None => match self.ground.table_blocks.iter().position(|b| *b == first) {
                Some(at) if at < 8 => format!("header slot {}", at / 4),
                Some(at) if at < 16 => "checksums".into(),
                Some(at) => format!("table page {}", (at - 16) / 4),
                None => format!("block {first}"),
            },
        }
    }

    /// The device's queue in words.
    pub fn queue_in_words(&self) -> Vec<String> {
        (0..self.queue.len()).map(|i| self.describe_io(i)).collect()
    }
}

fn refs_block(mask: u16) -> (u32, Value) {
    (BLOCKS[P], REFS | mask)
}

fn violation(oracle: Oracle, what: String) -> Violation {
    Violation { oracle, what }
}
