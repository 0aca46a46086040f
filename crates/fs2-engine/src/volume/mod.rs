//! A volume: the state machine between a file system and its disk.
//!
//! Invariants, asserted by [`Volume::check`]; `docs/safety.md` has the rules they come from:
//!
//! - I1: a replica lives only in a block of F, or of a group whose bitmap was equal to the mark's at
//!   the attach and is not loaded yet.
//! - I2: no mapping names a block that a request in flight may change, as original or as replica.
//! - I3: two I/Os in flight overlap only if neither changes what the bytes read as.
//! - I4: nothing that changes the volume is dispatched while the mark stands on disk.
//! - I5: a request waits only for requests that arrived before it, for I/O in flight and, where the volume never rests, for
//!   copies that go first until somebody has waited for half a second, or was answered, and as many came; so every
//!   request ends.

mod arrival;
mod attach;
mod background;
mod beside;
mod check;
mod clients;
mod completion;
mod control;
mod crowd;
mod detach;
mod digest;
mod dispatch;
mod disturbance;
mod flush;
mod ghost;
mod hand_over;
mod home;
mod inactive;
mod patience;
mod pauses;
mod recovery;
mod room;
mod rush;
mod state;
mod tail;
mod unread;
mod view;
mod write_cache;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, BlockSize, ConnectionId, Extent, Nanos, Op, Request, RequestId};
use fs2_disk::Overdue;
use fs2_ext2::{Freeze, Layout, Liveness};
use fs2_table::{ReplicaTable, Vacated};
use roaring::RoaringBitmap;

pub use attach::{AttachError, AttachOptions, AttachReport};
pub use detach::DetachReport;
pub use hand_over::HandOver;
pub(crate) use home::touches;
pub use inactive::Inactive;
pub(crate) use inactive::NO_MARK;
pub(crate) use recovery::UNREAD_JUMP;

use crate::config::{EngineConfig, LONG_REST};
use crate::head::Head;
use crate::io::{EINVAL, EIO, EOPNOTSUPP, ESHUTDOWN, Io, IoData, IoId, IoOp, Reply, Target};
use crate::log::Log;
use crate::plant::Plant;
use crate::policy::{Behind, Policy, Shape};
use crate::seq_map::SeqMap;
use crate::stats::{Failure, PauseWork, Stats, WatermarkState};
use control::Control;
use crowd::Crowd;
use disturbance::Disturbance;
use ghost::Ghost;
use home::{Home, MarkState};
use patience::Patience;
use pauses::Pauses;
use rush::Rush;
use state::{
    Ack, Contents, CopyJob, Hold, InFlight, Kind, OpenFlush, Pending, Purpose, Source, Urgent, Waiter,
};
use write_cache::WriteCache;

/// Whether replicas are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// F is trusted; copies are made and read.
    Active,
    /// F is empty for the rest of the session; what replicas are left may be read.
    Frozen(Freeze),
    /// Plain pass-through.
    Inactive(Inactive),
}

/// A volume. See the module, and the crate for how it is driven.
#[derive(Clone)]
pub struct Volume {
    config: EngineConfig,
    contents: Contents,
    bytes: u64,
    block_size: BlockSize,
    /// Blocks of the file system; none where there is no file system.
    fs_blocks: BlockRange,
    standing: Standing,
    layout: Option<Arc<Layout>>,
    live: Option<Liveness>,
    /// Where F grew, or a copy did not become a replica.
    vacated: Vacated,
    table: ReplicaTable,
    home: Option<Home>,
    mark: MarkState,
    /// Tries of the mark's erasure that failed in a row.
    erase_tries: u8,
    /// The mark's checksums of the bitmaps; groups whose bitmap was written since.
    bitmap_checksums: Arc<Vec<u32>>,
    bitmaps_written: BTreeSet<u32>,
    /// Hashes of the superblock's copies, in order of groups; groups whose copy was written since.
    backups: Arc<Vec<u64>>,
    backups_written: BTreeSet<u32>,

    /// Free blocks and replicas when the watermarks were last looked at.
    weighed: Option<(u64, usize)>,

    next_seq: u64,
    requests: SeqMap<Pending>,
    /// Blocks of originals that could not be read and have a copy, until they are read.
    unreadable: RoaringBitmap,
    /// Where many requests are outstanding.
    crowd: Option<Crowd>,
    waiting: SeqMap<()>,
    /// Those of them that ask for force unit access, ascending.
    forced: VecDeque<u64>,
    next_io: u64,
    in_flight: SeqMap<InFlight>,
    holds: Vec<Hold>,
    urgent: VecDeque<Urgent>,
    acks: Vec<Ack>,
    replies: VecDeque<Reply>,

    /// Clients', whether they wait or are at the device.
    flushes: BTreeMap<RequestId, OpenFlush>,
    flush_waiting: Vec<Waiter>,
    /// What had arrived before the first of them.
    flush_behind: u64,
    flush_active: Option<IoId>,
    flush_failed: bool,
    write_cache: WriteCache,
    write_failed: bool,
    /// A foreign writer or a broken invariant was seen.
    distrusted: bool,

    /// For [`Plant::DiscardAfterAck`] only.
    late_discards: Vec<(BlockRange, ConnectionId)>,
    groups_wanted: BTreeSet<u32>,
    log: Log,
    copying: bool,
    copies_off: bool,
    host_short: bool,
    punches: VecDeque<BlockRange>,
    alarm: Vec<BlockNo>,
    sweep_after: Option<BlockNo>,
    /// The engine's own I/O in flight, and whether it began beside open requests.
    background: Option<IoId>,
    beside: bool,
    /// When the superblock was last found to be what clients wrote.
    looked_below: Option<Nanos>,
    /// When that may be tried again, where it could not be read.
    next_look: Nanos,
    next_table_flush: Nanos,
    /// The page that was written last in this round.
    page_written: Option<u32>,
    last_activity: Nanos,
    patience: Patience,
    pauses: Pauses,
    /// When the last long rest ended, and the drive's last access.
    rested: Nanos,
    accessed: Nanos,
    disturbance: Disturbance,
    /// What was predicted of the client's access that ended last.
    expected: Option<Nanos>,
    control: Control,
    /// Plain ext2 beside it, where the drive is known.
    ghost: Option<Box<Ghost>>,
    /// When background work was last asked for.
    looked: Nanos,
    /// Then the search for a place ended before it was through.
    searching: bool,
    /// Replicas that gave way, since values aged, to some of which the policy did not say what they are worth.
    unappraised: usize,

    detach: Option<detach::Detach>,
    /// Another process is to go on: nothing new begins.
    leaving: bool,
    policy: Box<dyn Policy>,
    head: Head,
    /// One past the last sector a request was dispatched to, for C-LOOK.
    swept: fs2_block::Sector,
    /// Room for what waits before a request, between one choice and the next.
    earlier: clients::Earlier,
    /// Whether more is open than usual.
    rush: Rush,
    /// Whether a request may go first because of its age, and the one that did last.
    overdue: Overdue,
    waited_for: Option<u64>,
    stats: Stats,
    /// Blocks to read next into the drive's own cache.
    trail: Option<BlockRange>,
    /// Room for a read's hashes, between one read and the next.
    hashes: Vec<u64>,
    /// Room for the copies a read may be served from, between one choice and the next.
    copies: Vec<BlockNo>,
    /// Likewise: what goes to the drive behind it.
    behind: Behind,
    /// The copy that the last read was served from, if it was from one.
    last_copy: Option<BlockRange>,
}

impl Volume {
    /// Bytes of the volume.
    pub fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// The file system's block size, 4096 where there is none.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Whether replicas are kept.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The file system's layout, unless it could not be read.
    pub fn layout(&self) -> Option<&Arc<Layout>> {
        self.layout.as_ref()
    }

    /// The replica table.
    pub fn table(&self) -> &ReplicaTable {
        &self.table
    }

    /// What the daemon believes to be free, while it believes anything.
    pub fn liveness(&self) -> Option<&Liveness> {
        self.live.as_ref()
    }

    /// The belief about the drive's head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The policy in force.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// The settings in force.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Counters and times since the attach.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What the engine's own work in short pauses costs, and whether it goes on.
    pub fn pause_work(&self) -> PauseWork {
        self.disturbance.told()
    }

    /// Whether copies are read, where a model of the drive without copies says what they are worth.
    pub fn replica_gate(&self) -> Option<crate::stats::ReplicaGate> {
        self.ghost.as_ref().map(|g| g.told())
    }

    /// What reads that have a copy take from copies and from originals, where a control sample is taken.
    pub fn control(&self) -> crate::stats::Control {
        self.control.told()
    }

    /// Requests of clients that wait to be started.
    pub fn requests_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// I/Os dispatched and not completed, the engine's own among them.
    pub fn ios_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Blocks waiting to be copied.
    pub fn log_blocks(&self) -> usize {
        self.log.ready_blocks()
    }

    /// The blocks that copies in flight are being written to.
    pub fn copies_in_flight(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.in_flight.values().filter_map(|io| match &io.purpose {
            Purpose::Copy(job) => Some(job.target),
            _ => None,
        })
    }

    /// Share of the volume that is free and holds no replica.
    pub fn free_share(&self) -> fs2_block::Permille {
        self.free_share_without(0)
    }

    /// The same if so many replicas fewer were there.
    fn free_share_without(&self, replicas: usize) -> fs2_block::Permille {
        let (Some(live), Some(layout)) = (&self.live, &self.layout) else {
            return fs2_block::Permille::default();
        };
        let blocks = u64::from(layout.blocks());
        let whole = self.counted(blocks - layout.static_metadata_blocks().min(blocks));
        let left = self.table.len().saturating_sub(replicas) as u64;
        fs2_block::Permille::of(live.free_estimate().saturating_sub(left), whole)
    }

    /// Of so many blocks those that shares are of.
    fn counted(&self, blocks: u64) -> u64 {
        blocks / u64::from(self.config.apart.max(1))
    }

    /// Where the free share stands.
    pub fn watermark_state(&self) -> WatermarkState {
        let (share, marks) = (self.free_share(), self.config.watermarks);
        if share < marks.critical() {
            WatermarkState::Critical
        } else if share < marks.low() {
            WatermarkState::Low
        } else if self.copying {
            WatermarkState::Copying
        } else {
            WatermarkState::Suspended
        }
    }

    fn planted(&self, plant: Plant) -> bool {
        cfg!(feature = "planted-bugs") && self.config.plants.contains(&plant)
    }

    /// Tells that a connection ended: no request can come over it any more.
    pub fn connection_gone(&mut self, connection: ConnectionId) {
        if let Some(live) = &mut self.live {
            live.connection_gone(connection);
        }
    }

    /// A request arrives. `payload` is what a write brings, in memory no client can change; `None` in a replay of addresses.
    ///
    /// # Panics
    /// Where a write's payload is missing, or has not the extent's length: a driver's error.
    pub fn submit(&mut self, now: Nanos, request: Request, payload: Option<&[u8]>) {
        let mut rested = Nanos(0);
        if !self.has_open() {
            rested = now.since(self.last_activity);
            self.pauses.ended(rested);
            if rested >= LONG_REST {
                self.rested = now;
            }
            self.write_cache.rested(rested);
        }
        self.last_activity = now;
        self.patience.arrived(self.reads_for_nobody());
        let late = std::mem::take(&mut self.late_discards);
        let refuse = |errno| Reply { request: request.id, result: Err(errno) };
        if self.detach.is_some() || self.leaving {
            self.replies.push_back(refuse(ESHUTDOWN));
            return;
        }
        if request.extent.end() > self.bytes {
            self.replies.push_back(refuse(EINVAL));
            return;
        }
        if self.flush_failed && request.op != Op::Read {
            self.stats.failed.add(Failure { op: request.op, extent: request.extent, errno: EIO });
            self.replies.push_back(refuse(EIO));
            return;
        }
        if request.op == Op::Punch && self.standing != Standing::Active {
            // R2: a trim of a volume that nobody checked would zero what its bitmaps do not know of yet. Who wants zeroes writes them.
            self.replies.push_back(refuse(EOPNOTSUPP));
            return;
        }
        if request.op == Op::Flush {
            self.flush_arrives(now, request.id);
        } else if request.extent.is_empty() {
            self.replies.push_back(Reply { request: request.id, result: Ok(()) });
        } else {
            let kind = self.kind_of(&request);
            if kind == Kind::Write && self.contents == Contents::Bytes {
                assert_eq!(
                    payload.map(|bytes| bytes.len() as u64),
                    Some(request.extent.len()),
                    "a write's payload is as long as its extent"
                );
            }
            self.request_arrives(now, rested, request, kind, payload);
        }
        for (range, connection) in late {
            if let Some(live) = &mut self.live {
                live.discarded(range, connection, true);
            }
        }
        self.settle(now);
    }

    /// Whether a client waits for an answer.
    fn has_open(&self) -> bool {
        !(self.requests.is_empty() && self.flushes.is_empty())
    }

    fn kind_of(&self, request: &Request) -> Kind {
        match request.op {
            Op::Read => Kind::Read,
            Op::Write => Kind::Write,
            Op::WriteZeroes => Kind::Zeroes,
            Op::Discard => Kind::Discard,
            // R2: a punch is a discard only under a kernel mount of plain ext2, of blocks that it may free; else it is
            // write-zeroes.
            Op::Punch
                if self.live.as_ref().is_some_and(|l| l.is_mounted() && l.may_be_freed(request.extent)) =>
            {
                Kind::Discard
            }
            Op::Punch => Kind::Zeroes,
            Op::Flush => unreachable!("flushes are taken before"),
        }
    }

    /// Time passed; nothing else happened.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.settle(now);
    }

    /// The next answer to a client.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// When [`Volume::handle_timeout`] and [`Volume::poll_dispatch`] should be called at the latest.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.background.is_some() || self.detach.is_some() || self.leaving || self.has_open() {
            return None;
        }
        let at = if self.has_background_work() {
            Nanos(0)
        } else {
            let table = (self.table_write_possible() && self.table.dirty_pages() > 0)
                .then_some(self.next_table_flush);
            let sweep = self.has_patient_work().then(|| self.last_activity + self.patience.wait());
            let fetch = self.may_copy().then(|| self.policy.fetch_at(self.last_activity)).flatten();
            let few = (self.may_copy() && self.log.has_work()).then(|| self.last_activity + LONG_REST);
            table.into_iter().chain(sweep).chain(fetch).chain(few).min()?
        };
        Some(at.max(self.last_activity + self.rest_needed()))
    }

    /// Whether [`Volume::poll_dispatch`] brought nothing because a place for copies is looked for in pieces, between which others have their
    /// turn: who has nothing else to do asks again. Tells it once.
    pub fn is_still_searching(&mut self) -> bool {
        std::mem::take(&mut self.searching)
    }

    /// Ends trust in F. With `distrust`, every entry goes and the mark with it, and nothing else of the
    /// table is written any more: its blocks may be someone else's.
    fn freeze(&mut self, why: Freeze, distrust: bool) {
        if self.planted(Plant::NeverFreezes) {
            return;
        }
        if matches!(self.standing, Standing::Inactive(_)) {
            return;
        }
        if self.standing == Standing::Active {
            self.standing = Standing::Frozen(why.clone());
        }
        self.detach_frozen(&why);
        if let Some(live) = &mut self.live {
            live.freeze(why);
        }
        self.log.clear();
        self.groups_wanted.clear();
        self.punches.clear();
        for p in self.requests.values_mut() {
            p.groups.clear();
        }
        self.distrusted |= distrust;
        if distrust && !self.planted(Plant::ForeignKeepsReplicas) {
            self.table.clear();
            self.alarm.clear();
            self.want_mark_erased();
        }
    }

    /// The host of a sparse backing has too little space left for copies, or enough again.
    pub fn host_is_short(&mut self, short: bool) {
        self.host_short = short;
    }

    /// Whether it was said to have too little.
    pub fn is_host_short(&self) -> bool {
        self.host_short
    }

    /// Whether a flush failed: something that was answered may be lost ([`AttachOptions::flush_failed`]).
    pub fn has_lost_writes(&self) -> bool {
        self.flush_failed
    }

    /// Why writes, discards and flushes are answered with errors, whatever they ask for; `None` while they are not.
    pub fn refuses_changes(&self) -> Option<&'static str> {
        if self.flush_failed {
            Some("a flush failed below, and what was lost then no later one brings back")
        } else if self.mark.erase_failed() {
            Some("the mark on the replica table cannot be erased")
        } else {
            None
        }
    }

    /// Puts another policy in force, one of a test's or a simulator's own.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
    }

    /// Breaks these rules from now on; the engine's own checks are silent where one is broken.
    #[cfg(feature = "planted-bugs")]
    pub fn set_plants(&mut self, plants: &[Plant]) {
        self.config.plants = plants.to_vec();
        self.config.paranoid = plants.is_empty();
    }

    /// The driver noticed that something else wrote to the backing.
    pub fn foreign_writer(&mut self, now: Nanos) {
        self.freeze(Freeze::ForeignWriter, true);
        self.settle(now);
    }

    /// The short list that runs after every event.
    fn settle(&mut self, now: Nanos) {
        let _ = now;
        self.step_reclaim();
        self.step_log();
        if self.config.paranoid {
            self.check();
        }
    }

    fn shape(layout: &Layout, seed: u64) -> Shape {
        Shape {
            blocks: layout.blocks(),
            group_blocks: layout.blocks_per_group(),
            first_block: layout.first_data_block(),
            block_bytes: layout.block_size().bytes(),
            seed,
        }
    }
}
