//! Clients' requests: what their arrival ends at once, and when they may start.

use fs2_block::{BlockNo, BlockRange, Op, Request, Sector};
use fs2_ext2::Freeze;
use fs2_table::{Replica, Trust};
use smallvec::SmallVec;

use super::control::Arm;
use super::crowd::Crowd;
use super::tail::Waits;
use super::{
    Contents, EIO, Extent, Io, IoData, IoId, IoOp, Kind, Nanos, Pending, Plant, Purpose, Reply, Source,
    Standing, Target, Volume,
};
use fs2_disk::Scheduler;

use crate::config::DiscardMode;
use crate::part::Part;
use crate::stats::Failure;
use crate::worth::{GOES_ON_BLOCKS, worth};

/// Waiting requests that a scheduler compares at most. A guess: the queue of a drive is as long.
const WINDOW: usize = 256;

/// Where more requests wait than this, one of their originals or copies is always near the arm, and what is read next hardly ever
/// goes on from there: then each is compared with its cheapest place. Measured: 16 to 64 are alike; without a limit bursts of hundreds
/// are served up to a fifth later.
const FEW_WAIT: usize = 64;

/// A request may be passed over for this long. A guess, as long as a drive's own queue allows.
pub(super) const AGE_MAX: Nanos = Nanos::from_millis(2000);

/// Copies of which the policy is told that the file system took their blocks, at most: as many as a group of 4 KiB blocks has.
const DISPLACED_MAX: usize = 1 << 15;

/// Where requests want to go that came before one, and wait: in a row, for each is compared with all before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier {
    changes: Vec<Extent>,
    reads: Vec<Extent>,
}

impl Earlier {
    fn clear(&mut self) {
        self.changes.clear();
        self.reads.clear();
    }

    fn add(&mut self, p: &Pending) {
        let locks = if p.kind == Kind::Read { &mut self.reads } else { &mut self.changes };
        locks.push(p.lock);
    }

    /// Whether one of them forbids touching `extent`, or changing it; see [`Volume::queued_before`].
    fn forbid(&self, extent: Extent, changes: bool) -> bool {
        let reads: &[Extent] = if changes { &self.reads } else { &[] };
        self.changes.iter().chain(reads).any(|lock| lock.overlaps(extent))
    }
}

impl Volume {
    pub(super) fn request_arrives(
        &mut self,
        now: Nanos,
        rested: Nanos,
        request: Request,
        kind: Kind,
        payload: Option<&[u8]>,
    ) {
        self.disturbance.came(!self.has_open(), kind == Kind::Read);
        self.rush.came(self.requests.len());
        let seq = self.next_seq;
        self.next_seq += 1;
        let fs = self.fs_blocks;
        let mut pending = Pending {
            request,
            kind,
            lock: self.widened(request.extent),
            blocks: request.extent.blocks_touched(self.block_size).intersect(fs),
            covered: request.extent.blocks_covered(self.block_size).intersect(fs),
            active: false,
            arrived: now,
            sampled: None,
            behind_own: Nanos(0),
            charged: Waits::default(),
            original_only: false,
            tainted: false,
            overwritten: Vec::new(),
            groups: Vec::new(),
            ack_after: Vec::new(),
        };
        match kind {
            Kind::Read => {
                self.stats.reads += 1;
                self.stats.read_bytes = self.stats.read_bytes.saturating_add(request.extent.len());
                self.policy.read_came(pending.blocks);
            }
            Kind::Write | Kind::Zeroes => {
                self.stats.writes += 1;
                self.stats.write_bytes = self.stats.write_bytes.saturating_add(request.extent.len());
                self.content_changes(pending.blocks, request);
                self.metadata_arrives(&mut pending, payload);
                self.want_mark_erased();
            }
            Kind::Discard => {
                self.stats.discards += 1;
                self.discard_arrives(&pending);
                self.want_mark_erased();
            }
        }
        if let Some(ghost) = &mut self.ghost
            && matches!(kind, Kind::Read | Kind::Write)
        {
            ghost.arrived(rested, request.op, request.extent);
        }
        if kind != Kind::Read && request.flags.fua {
            self.forced.push_back(seq);
        }
        self.requests.insert(seq, pending);
        Crowd::came(&mut self.crowd, &self.requests, seq);
        self.waiting.insert(seq, ());
    }

    /// Blocks are about to be written, zeroed or touched in part (R1).
    fn content_changes(&mut self, blocks: BlockRange, request: Request) {
        if blocks.is_empty() {
            return;
        }
        if request.op != Op::Discard {
            self.allocated(blocks);
        }
        if !self.planted(Plant::WriteStaysFree)
            && let Some(live) = &mut self.live
        {
            live.written(blocks, request.connection);
            // By version, not by address: a discard may bring the block back before the copy ends.
            self.void_targets(blocks);
        }
        let lost = match self.planted(Plant::WriteKeepsOriginal) {
            true => Vec::new(),
            false => self.drop_originals(blocks),
        };
        if !self.planted(Plant::WriteKeepsReplica) {
            self.displace(blocks);
        }
        self.void_payloads(blocks);
        self.policy.written(blocks, &lost);
        // R5: what a read brings is no payload for a copy any more, also of one that still waits: it will be
        // dispatched before this write is.
        self.taint_reads(blocks);
        self.outlives_discards(blocks);
        self.table_touched(blocks);
    }

    /// R2: a discard that still waits frees nothing of what was written or claimed after it.
    fn outlives_discards(&mut self, blocks: BlockRange) {
        Crowd::touching(&mut self.crowd, &mut self.requests, blocks, |p| {
            if p.kind == Kind::Discard {
                p.overwritten.push(blocks);
            }
        });
    }

    fn taint_reads(&mut self, blocks: BlockRange) {
        Crowd::touching(&mut self.crowd, &mut self.requests, blocks, |p| p.tainted |= p.kind == Kind::Read);
    }

    /// No copy may be published of what `blocks` held (R5).
    pub(super) fn void_payloads(&mut self, blocks: BlockRange) {
        if self.planted(Plant::CopyIgnoresVersion) {
            return;
        }
        self.log.kill(blocks);
        let trusting = self.planted(Plant::FetchIgnoresVersion);
        for io in self.in_flight.values_mut() {
            match &mut io.purpose {
                Purpose::Copy(job) => {
                    job.blocks.iter_mut().filter(|b| blocks.contains(b.0.original)).for_each(|b| b.1 = false);
                }
                Purpose::Fetch { blocks: read, void } => *void |= read.overlaps(blocks) && !trusting,
                _ => {}
            }
        }
    }

    /// Mappings with an original in `blocks` go.
    pub(super) fn drop_originals(&mut self, blocks: BlockRange) -> Vec<Replica> {
        if self.table.is_empty() {
            return Vec::new();
        }
        let gone = self.table.remove_by_original(blocks);
        self.stats.invalidated += gone.len() as u64;
        for r in &gone {
            // R: evicted by W(O); its space may be given back while R is in F.
            self.want_punch(BlockRange::one(r.replica));
        }
        gone
    }

    /// Mappings with a replica in `blocks` go. Their space belongs to the client now: never punched.
    pub(super) fn drop_replicas(&mut self, blocks: BlockRange) {
        if self.table.is_empty() {
            return;
        }
        if self.planted(Plant::PunchAfterWrite) {
            let gone = self.table.replicas_in(blocks);
            self.punches.extend(gone.into_iter().map(|r| BlockRange::one(r.replica)));
        }
        self.stats.invalidated += self.table.remove_by_replica(blocks) as u64;
    }

    /// The same, and the policy is told: the file system took `blocks`.
    fn displace(&mut self, blocks: BlockRange) {
        if !(1..=DISPLACED_MAX).contains(&self.table.count_replicas_in(blocks)) {
            return self.drop_replicas(blocks);
        }
        let lost = self.table.replicas_in(blocks);
        let worth = lost.iter().filter_map(|r| self.table.age_and_value(r.replica)).map(|v| v.1).max();
        self.drop_replicas(blocks);
        self.policy.displaced(&lost, worth.unwrap_or(0));
    }

    /// `blocks` are written: those that were free the file system has allocated, and what lies between them, too.
    fn allocated(&mut self, blocks: BlockRange) {
        let Some(live) = &self.live else { return };
        let mut free = live.free().range(blocks.start()..blocks.end());
        if let Some(first) = free.next() {
            let last = free.next_back().unwrap_or(first);
            self.policy.allocated(BlockRange::new(first, last + 1));
        }
    }

    fn metadata_arrives(&mut self, p: &mut Pending, payload: Option<&[u8]>) {
        if self.contents == Contents::Bytes || p.kind == Kind::Zeroes {
            self.table_inode_seen(p.request.extent, payload);
        }
        let Some(layout) = &self.layout else { return };
        for (group, _) in layout.bitmaps_in(p.blocks) {
            self.bitmaps_written.insert(group);
        }
        let Some(live) = &mut self.live else { return };
        if !live.is_telling(p.request.extent) {
            return;
        }
        // Without a payload only zeroes would tell anything.
        let unseen = self.contents == Contents::Unseen && p.kind == Kind::Write;
        let active = self.standing == Standing::Active;
        if active {
            // A client's write to a bitmap that is not loaded waits for that one read (R0).
            let layout = live.layout().clone();
            p.groups = layout.bitmaps_in(p.blocks).map(|(g, _)| g).filter(|&g| !live.is_loaded(g)).collect();
            self.groups_wanted.extend(&p.groups);
        }
        if unseen {
            return;
        }
        let seen = live.payload_seen(p.request.extent, payload, p.request.connection);
        if p.request.extent.overlaps(layout.superblock_extent()) {
            for io in self.in_flight.values_mut() {
                if let Purpose::LookBelow { stale } = &mut io.purpose {
                    *stale = true;
                }
            }
        }
        if self.planted(Plant::BitZeroFrees)
            && let Some(bytes) = payload
        {
            self.free_by_bit_zero(p.request.extent, bytes);
        }
        if !self.planted(Plant::ClaimIgnored) {
            seen.allocated.iter().for_each(|&blocks| self.policy.allocated(blocks));
            for claimed in seen.claimed {
                self.displace(claimed);
                self.outlives_discards(claimed);
                if !self.planted(Plant::ClaimDoesNotWait) {
                    let into = |io: &(u64, &super::InFlight)| match &io.1.purpose {
                        Purpose::Copy(job) => job.target.overlaps(claimed),
                        Purpose::Punch => io.1.extent.overlaps(claimed.extent(self.block_size)),
                        _ => false,
                    };
                    p.ack_after.extend(self.in_flight.iter().filter(into).map(|(id, _)| IoId(id)));
                }
            }
            if !p.ack_after.is_empty() {
                self.stats.claims_waited += 1;
            }
        }
        let silent = |why: &Freeze| *why == Freeze::Checked && self.planted(Plant::CheckKeepsFree);
        if let Some(why) = seen.freeze.filter(|why| !silent(why)) {
            // R4 as R3: whoever wrote this may take any block for its own once it is answered.
            let own =
                |io: &(u64, &super::InFlight)| matches!(io.1.purpose, Purpose::Copy(_) | Purpose::Punch);
            p.ack_after.extend(self.in_flight.iter().filter(own).map(|(id, _)| IoId(id)));
            self.freeze(why, false);
            p.groups.clear();
        }
    }

    fn free_by_bit_zero(&mut self, extent: Extent, payload: &[u8]) {
        let (Some(layout), Some(live)) = (self.layout.clone(), &mut self.live) else { return };
        for (group, block) in layout.bitmaps_in(extent.blocks_touched(self.block_size)) {
            if let Some(part) = extent
                .intersect(block.extent(self.block_size))
                .filter(|p| p.len() == u64::from(self.block_size.bytes()))
            {
                let bytes = &payload[(part.offset() - extent.offset()) as usize..][..part.len() as usize];
                for run in fs2_ext2::bit_runs(bytes, layout.group_blocks(group), false) {
                    live.discarded(run, fs2_block::ConnectionId(0), true);
                }
            }
        }
    }

    fn discard_arrives(&mut self, p: &Pending) {
        // Blocks it covers in part: touched, so R1.
        let (first, last) = (p.blocks.start(), p.blocks.end());
        let (from, to) =
            if p.covered.is_empty() { (last, last) } else { (p.covered.start(), p.covered.end()) };
        for partial in [BlockRange::new(first, from), BlockRange::new(to, last)] {
            self.content_changes(partial, p.request);
        }
        // A freed block's replicas are of no use, and the block itself may soon hold a replica.
        let drop_now =
            self.config.discard == DiscardMode::Memory || !self.planted(Plant::PassedDiscardKeepsMapping);
        if drop_now {
            self.drop_originals(p.covered);
            self.void_payloads(p.covered);
        }
        self.taint_reads(p.covered);
        self.table_touched(p.covered);
        self.table_inode_seen(p.request.extent, None);
    }

    /// The next client request that may start; those that need no I/O are answered on the way.
    pub(super) fn dispatch_client(&mut self, now: Nanos) -> Option<Io> {
        let longest = self.longest_wait();
        if longest.is_some_and(|longest| self.waits_for_overdue(now, longest)) {
            return None;
        }
        if self.config.scheduler != Scheduler::Fcfs && self.waiting.len() > 1 {
            return self.dispatch_scheduled(now, longest.unwrap_or(AGE_MAX).min(AGE_MAX));
        }
        let mut at = 0;
        while let Some(seq) = self.waiting.key_at(at) {
            if !self.may_start(seq) {
                at += 1;
                continue;
            }
            // Whatever starts or ends leaves the queue.
            if let Some(io) = self.start(now, seq, None) {
                return Some(io);
            }
        }
        None
    }

    /// How long a request may wait before it goes first, where copies gain and the drive is not behind.
    pub(super) fn longest_wait(&self) -> Option<Nanos> {
        let never = self.config.without.has(Part::PassingOver) || self.rush.is_with(self.requests.len());
        let watched = self.ghost.as_ref().filter(|_| !never);
        watched.and_then(|g| g.longest_wait())
    }

    /// Whether the oldest request at the device came longer ago than that, and is waited for: the drive's own queue serves what is nearer
    /// to its head, and gets no more of it.
    pub(super) fn waits_for_overdue(&mut self, now: Nanos, longest: Nanos) -> bool {
        let oldest = self.requests.iter().take(WINDOW).find(|(_, p)| p.active);
        let Some((seq, _)) = oldest.filter(|(_, p)| now.since(p.arrived) > longest) else { return false };
        // An older one that still waits has the next turn.
        let oldest = self.waiting.key_at(0).is_none_or(|waits| waits > seq);
        if self.waited_for != Some(seq) && oldest && self.overdue.may_go_first() {
            self.overdue.goes_first();
            self.waited_for = Some(seq);
        }
        self.waited_for == Some(seq)
    }

    /// The same by the scheduler: the request that costs least, with the cheapest of its copies.
    fn dispatch_scheduled(&mut self, now: Nanos, longest: Nanos) -> Option<Io> {
        let mut earlier = std::mem::take(&mut self.earlier);
        let io = loop {
            let mut best: Option<(u64, u64)> = None;
            // What the next of them costs: a sweep may go as far without passing anybody over.
            let mut reach = (self.config.scheduler == Scheduler::CLook).then_some(u64::MAX);
            let mut seen = 0;
            earlier.clear();
            for seq in self.waiting.keys() {
                if seen == WINDOW {
                    break;
                }
                let p = &self.requests[seq];
                let may_start = self.may_start_behind(seq, |lock, changes| earlier.forbid(lock, changes));
                earlier.add(p);
                if !may_start {
                    continue;
                }
                // Nobody starves: what has waited for too long goes first, oldest first.
                if self.overdue.may_go_first() && now.since(p.arrived) > longest {
                    self.overdue.goes_first();
                    self.waited_for = Some(seq);
                    (best, reach) = (Some((0, seq)), None);
                    break;
                }
                seen += 1;
                let cost = self.scheduled_cost(now, p);
                let least = best.map_or(u64::MAX, |(least, _)| least);
                reach = reach.map(|next| next.min(cost.max(least)));
                if best.is_none() || cost < least {
                    best = Some((cost, seq));
                }
            }
            let Some((_, seq)) = best else { break None };
            if let Some(io) = self.start(now, seq, reach) {
                self.swept = Sector(io.extent.sector().0 + io.extent.sectors());
                break Some(io);
            }
        };
        self.earlier = earlier;
        io
    }

    fn scheduled_cost(&self, now: Nanos, p: &Pending) -> u64 {
        let op = if p.kind == Kind::Read { Op::Read } else { Op::Write };
        let cost = |at: Sector| match self.config.scheduler {
            Scheduler::Fcfs => 0,
            Scheduler::Sstf => self.head.distance(at),
            Scheduler::CLook => at.0.wrapping_sub(self.swept.0),
            Scheduler::Sptf => self.head.positioning_ns(now, op, at, p.request.extent.len()),
        };
        let original = p.request.extent.sector();
        if !self.may_read_copy(p) || self.control.sends_home() || !self.gate_open() {
            return cost(original);
        }
        let (mut least, mut by_copies) = (u64::MAX, false);
        let few = self.waiting.len() <= FEW_WAIT;
        for copy in self.copies_of(p.blocks) {
            least = least.min(cost(copy.sector(self.block_size)));
            by_copies |= few && self.policy.prefers_copy(p.blocks.first(), copy);
        }
        if by_copies { least } else { least.min(cost(original)) }
    }

    /// Whether a read may be served by a copy of all its blocks: not where it goes on behind the file system's end,
    /// where the device is larger.
    fn may_read_copy(&self, p: &Pending) -> bool {
        p.kind == Kind::Read
            && !p.original_only
            && !p.blocks.is_empty()
            && p.lock == p.blocks.extent(self.block_size)
    }

    fn may_start(&self, seq: u64) -> bool {
        self.may_start_behind(seq, |lock, changes| self.queued_before(seq, lock, changes))
    }

    /// The same; what came before and waits is asked whether it forbids to touch or change an extent.
    fn may_start_behind(&self, seq: u64, forbids: impl FnOnce(Extent, bool) -> bool) -> bool {
        let p = &self.requests[seq];
        let changes = p.kind != Kind::Read;
        if changes && !(self.mark.is_gone() || self.planted(Plant::MarkKept)) {
            return false;
        }
        if !p.groups.is_empty() {
            return false;
        }
        // See `unit_access_active`; flushes that wait go before what came later.
        let after_flush = !self.flush_waiting.is_empty() && seq >= self.flush_behind;
        if changes && p.request.flags.fua && (self.flush_active.is_some() || after_flush) {
            return false;
        }
        if p.kind == Kind::Read && self.planted(Plant::ReadPassesWrite) {
            return true;
        }
        if p.kind == Kind::Discard && self.config.discard == DiscardMode::Memory {
            // It touches no byte; what it frees is locked against copies by what is in flight.
            return true;
        }
        !self.held(p.lock, changes) && !forbids(p.lock, changes)
    }

    /// One that may start goes to the device, or ends without it. Of a read's places those the sweep reaches only behind `reach` are out
    /// of question.
    fn start(&mut self, now: Nanos, seq: u64, reach: Option<u64>) -> Option<Io> {
        let p = &self.requests[seq];
        let (kind, request, lock) = (p.kind, p.request, p.lock);
        if kind != Kind::Read && self.mark.erase_failed() {
            // The mark cannot be erased: nothing may change, or a later attach would trust old copies.
            self.finish(now, seq, Err(EIO));
            return None;
        }
        match kind {
            Kind::Read => Some(self.start_read(now, seq, reach)),
            Kind::Write => {
                let op = IoOp::Write { fua: request.flags.fua };
                Some(self.start_on(now, seq, op, request.extent, IoData::Client(request.id), lock))
            }
            Kind::Zeroes => {
                let op = IoOp::WriteZeroes { no_hole: request.flags.no_hole, fua: request.flags.fua };
                Some(self.start_on(now, seq, op, request.extent, IoData::None, lock))
            }
            Kind::Discard => self.start_discard(now, seq),
        }
    }

    fn start_on(&mut self, now: Nanos, seq: u64, op: IoOp, extent: Extent, data: IoData, lock: Extent) -> Io {
        let exclusive = !matches!(op, IoOp::Read);
        let purpose = Purpose::Client { seq, source: Source::Original };
        let io = self.dispatch(now, Target::Volume, op, extent, data, purpose);
        if op != IoOp::Discard || !self.planted(Plant::DiscardBeforeEnd) {
            self.hold(io.id, lock, exclusive);
        }
        self.goes(seq);
        io
    }

    /// A request goes to the device.
    fn goes(&mut self, seq: u64) {
        self.no_longer_waits(seq);
        self.overdue.went();
        self.requests.get_mut(seq).expect("it was waiting").active = true;
    }

    fn no_longer_waits(&mut self, seq: u64) {
        self.waiting.remove(seq);
        if let Ok(at) = self.forced.binary_search(&seq) {
            self.forced.remove(at);
        }
    }

    /// What asks for force unit access and came before a flush that waits. Keeps I5: between flushes of several clients there is no moment
    /// in which none waits, and it is done beside none.
    pub(super) fn unit_access_before_flush(&mut self, now: Nanos) -> Option<Io> {
        loop {
            let mut before = self.forced.iter().copied().take_while(|&seq| seq < self.flush_behind);
            let seq = before.find(|&seq| self.may_start(seq))?;
            // Whatever starts or ends leaves the queue.
            if let Some(io) = self.start(now, seq, None) {
                return Some(io);
            }
        }
    }

    pub(super) fn gate_open(&self) -> bool {
        self.config.without.has(Part::Gate) || self.ghost.as_ref().is_none_or(|g| g.is_open())
    }

    fn start_read(&mut self, now: Nanos, seq: u64, reach: Option<u64>) -> Io {
        let p = &self.requests[seq];
        let (request, lock, blocks) = (p.request, p.lock, p.blocks);
        if self.may_read_copy(p) {
            let mut copies = std::mem::take(&mut self.copies);
            copies.clear();
            copies.extend(self.copies_of(blocks));
            let (arm, counts) = if copies.is_empty() { (Arm::Chosen, false) } else { self.control.next() };
            let within = |at: Sector| reach.is_none_or(|reach| at.0.wrapping_sub(self.swept.0) <= reach);
            copies.retain(|copy| within(copy.sector(self.block_size)));
            let (original, first) = (request.extent, blocks.first());
            let only_copies = !within(original.sector());
            let others = self.in_flight.values().any(|io| matches!(io.purpose, Purpose::Client { .. }));
            self.head.goes_in_company(others);
            let choice = match copies.is_empty() || arm == Arm::Home || !self.gate_open() {
                true => None,
                false => self.policy.choose(now, &self.head, original, first, &copies, only_copies),
            };
            self.requests.get_mut(seq).expect("it was waiting").sampled = counts.then_some(arm);
            if choice.is_some() {
                if let Some(ghost) = &mut self.ghost {
                    ghost.redirected();
                }
                let saving = self.policy.saving();
                // Whoever waits is served as much sooner.
                self.disturbance.saved(saving, self.requests.len());
                self.stats.saved += saving;
            }
            let first = choice.and_then(|i| copies.get(i).copied());
            self.copies = copies;
            if let Some(first) = first {
                let target = BlockRange::at(first, blocks.len());
                let mut hashes = SmallVec::from_elem(0, target.len() as usize);
                for (from, part) in self.table.hashes_in(target) {
                    hashes[(from.0 - first.0) as usize..][..part.len()].copy_from_slice(part);
                }
                self.used(target);
                let extent = target.extent(self.block_size);
                let purpose = Purpose::Client { seq, source: Source::Copy { first, hashes } };
                // A copy is read whole, or it could not be hashed (R8).
                let data = if lock == request.extent {
                    IoData::Client(request.id)
                } else {
                    let lead = (request.extent.offset() - lock.offset()) as u32;
                    IoData::Around { request: request.id, lead }
                };
                let io = self.dispatch(now, Target::Volume, IoOp::Read, extent, data, purpose);
                self.hold(io.id, lock, false);
                // R6: the copy is pinned from its choice to the completion.
                if !self.planted(Plant::NoPin) {
                    self.hold(io.id, extent, false);
                }
                self.goes(seq);
                return io;
            }
        }
        self.last_copy = None;
        self.start_on(now, seq, IoOp::Read, request.extent, IoData::Client(request.id), lock)
    }

    /// A copy is read: what it saves it is worth, and so is the one right before it that was read just now. Without either the arm would have
    /// to go.
    fn used(&mut self, copy: BlockRange) {
        let saving = self.policy.saving();
        self.table.touch_run(copy, worth(saving, copy.len()));
        if let Some(before) = self.last_copy.replace(copy)
            && (before.end()..=before.end().saturating_add(GOES_ON_BLOCKS)).contains(&copy.start())
        {
            self.table.touch_run(before, worth(saving, before.len()));
        }
    }

    /// First blocks of the contiguous, trusted copies of all of `blocks`.
    fn copies_of(&self, blocks: BlockRange) -> impl Iterator<Item = BlockNo> {
        let unverified = self.planted(Plant::UnverifiedServed);
        self.table
            .copy_of_run(blocks)
            .filter(move |c| c.trust == Trust::Verified || unverified)
            .map(|c| c.first)
    }

    fn start_discard(&mut self, now: Nanos, seq: u64) -> Option<Io> {
        let p = &self.requests[seq];
        let (request, lock, covered) = (p.request, p.lock, p.covered);
        let overwritten = !p.overwritten.is_empty();
        match self.config.discard {
            DiscardMode::Pass if !overwritten => {
                if !self.planted(Plant::PassedDiscardKeepsMapping)
                    && !self.planted(Plant::PassedDiscardDropsEarly)
                {
                    self.drop_originals(covered);
                    self.drop_replicas(covered);
                    self.void_payloads(covered);
                    self.void_targets(covered);
                }
                if self.planted(Plant::DiscardBeforeEnd) {
                    self.free_discarded(seq);
                }
                Some(self.start_on(now, seq, IoOp::Discard, request.extent, IoData::None, lock))
            }
            _ => {
                if self.planted(Plant::DiscardAfterAck) {
                    self.late_discards.push((covered, request.connection));
                    self.finish(now, seq, Ok(()));
                    return None;
                }
                self.free_discarded(seq);
                self.finish(now, seq, Ok(()));
                None
            }
        }
    }

    /// R2: what the discard covers, less what was written after it arrived, joins F before it is
    /// acknowledged.
    pub(super) fn free_discarded(&mut self, seq: u64) {
        let p = &self.requests[seq];
        let mut runs = vec![p.covered];
        if !self.planted(Plant::HeldDiscardFrees) {
            for gone in &p.overwritten {
                runs = runs
                    .into_iter()
                    .flat_map(|r| {
                        let cut = r.intersect(*gone);
                        if cut.is_empty() {
                            return [r, BlockRange::EMPTY];
                        }
                        [BlockRange::new(r.start(), cut.start()), BlockRange::new(cut.end(), r.end())]
                    })
                    .filter(|r| !r.is_empty())
                    .collect();
            }
        }
        let (connection, any) = (p.request.connection, self.planted(Plant::AnyConnectionFrees));
        if self.standing == Standing::Active
            && let Some(live) = &mut self.live
        {
            for run in runs {
                self.vacated.add(run);
                self.stats.discarded_blocks += live.discarded(run, connection, any);
            }
        }
    }

    /// Copies in flight into `blocks` are not published.
    fn void_targets(&mut self, blocks: BlockRange) {
        for io in self.in_flight.values_mut() {
            if let Purpose::Copy(job) = &mut io.purpose {
                let first = job.target.first();
                for (i, b) in job.blocks.iter_mut().enumerate() {
                    if blocks.contains(first.plus(i as u32)) {
                        b.1 = false;
                    }
                }
            }
        }
    }

    /// A request is over, but for copies its acknowledgement waits for.
    pub(super) fn finish(&mut self, now: Nanos, seq: u64, result: Result<(), i32>) {
        self.no_longer_waits(seq);
        let Some(p) = self.requests.remove(seq) else { return };
        if let Err(errno) = result {
            self.stats.failed.add(Failure { op: p.request.op, extent: p.request.extent, errno });
        }
        if let Some(ghost) = &mut self.ghost
            && matches!(p.kind, Kind::Read | Kind::Write)
        {
            // Keeps G2.
            let given = 1 + self.requests.len().saturating_sub(self.waiting.len());
            let saved = ghost.answered(p.kind == Kind::Read, now.since(p.arrived + p.behind_own), given);
            self.disturbance.measured(saved);
            if let Some(ms) = ghost.access_ms() {
                self.head.takes_without_copies(ms);
            }
        }
        Crowd::went(&mut self.crowd, &self.requests, seq, p.blocks);
        let mut after = p.ack_after;
        after.retain(|io| self.in_flight.contains_key(io.0));
        if after.is_empty() {
            self.replies.push_back(Reply { request: p.request.id, result });
        } else {
            self.acks.push(super::Ack { request: p.request.id, result, after });
        }
    }
}
