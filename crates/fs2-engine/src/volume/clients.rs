//! Clients' requests: which of those that wait may start, which goes first, how one starts and ends.

use fs2_block::{BlockNo, BlockRange, Op, Sector};
use fs2_table::Trust;
use fs2_table::value::VALUE_MAX;
use smallvec::SmallVec;

use super::control::Arm;
use super::crowd::Crowd;
use super::view::without;
use super::{
    EIO, Extent, Inactive, Io, IoData, IoOp, Kind, Nanos, Pending, Plant, Purpose, Reply, Source, Standing,
    Target, Volume,
};
use fs2_disk::Scheduler;
use fs2_ext2::Freeze;

use crate::config::DiscardMode;
use crate::part::Part;
use crate::policy::Asked;
use crate::stats::Failure;
use crate::worth::{GOES_ON_BLOCKS, worth};

/// Waiting requests that a scheduler compares at most. A guess: the queue of a drive is as long.
const WINDOW: usize = 256;

/// Reads behind one that its place is chosen with regard to. Measured on recorded programs as they came: with 1 some lose what others win, 4 to
/// 64 are alike.
const BEHIND_MAX: usize = 8;

/// Where more requests wait than this, one of their originals or copies is always near the arm, and what is read next hardly ever
/// goes on from there: then each is compared with its cheapest place. Measured: 16 to 64 are alike; without a limit bursts of hundreds
/// are served up to a fifth later.
const FEW_WAIT: usize = 64;

/// A request may be passed over for this long. A guess, as long as a drive's own queue allows.
pub(super) const AGE_MAX: Nanos = Nanos::from_millis(2000);

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
        !p.tried.wants_original() && self.may_have_copy(p)
    }

    pub(super) fn may_have_copy(&self, p: &Pending) -> bool {
        p.kind == Kind::Read && !p.blocks.is_empty() && p.lock == p.blocks.extent(self.block_size)
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
        if let Some(first) = self.copy_of_unreadable(seq) {
            return self.start_copy(now, seq, first);
        }
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
            let choice = if copies.is_empty() || arm == Arm::Home || !self.gate_open() {
                None
            } else {
                let clients =
                    self.in_flight.values().filter(|io| matches!(io.purpose, Purpose::Client { .. }));
                self.head.goes_beside(clients.map(|io| {
                    let op = if io.op == IoOp::Read { Op::Read } else { Op::Write };
                    (op, io.extent)
                }));
                self.look_behind(seq);
                let (copies, behind) = (&copies[..], &self.behind);
                let asked = Asked { original, first, copies, only_copies, behind };
                self.policy.choose(now, &self.head, &asked)
            };
            let choice = choice.filter(|_| self.lets_go(original, only_copies));
            self.requests.get_mut(seq).expect("it was waiting").sampled = counts.then_some(arm);
            if choice.is_some() {
                let saving = self.policy.saving();
                // Whoever waits is served as much sooner.
                self.disturbance.saved(saving, self.requests.len());
                self.stats.saved += saving;
            }
            let first = choice.and_then(|i| copies.get(i).copied());
            self.copies = copies;
            if let Some(first) = first {
                self.used(BlockRange::at(first, blocks.len()));
                return self.start_copy(now, seq, first);
            }
        }
        self.last_copy = None;
        self.requests.get_mut(seq).expect("it was waiting").from_copy = false;
        self.start_on(now, seq, IoOp::Read, request.extent, IoData::Client(request.id), lock)
    }

    /// Whether the copy that was chosen is read, wherever the arm comes from.
    fn lets_go(&mut self, original: Extent, only_copies: bool) -> bool {
        let ghost = self.ghost.as_mut().filter(|_| !self.config.without.has(Part::Gate));
        let (from, positioning) = (original.sector(), self.head.mean_positioning_ms());
        ghost
            .zip(self.policy.saves_at_once())
            .is_none_or(|(ghost, saves)| ghost.lets_go(from, saves, positioning, only_copies))
    }

    /// Reads the copy of all its blocks that begins at `first`.
    fn start_copy(&mut self, now: Nanos, seq: u64, first: BlockNo) -> Io {
        let p = &self.requests[seq];
        let (request, lock, target) = (p.request, p.lock, BlockRange::at(first, p.blocks.len()));
        // One that is read whether the gate is open or not says nothing of whether it should be.
        if let Some(ghost) =
            self.ghost.as_mut().filter(|g| g.is_open() || self.config.without.has(Part::Gate))
        {
            ghost.redirected();
        }
        self.requests.get_mut(seq).expect("it was waiting").from_copy = true;
        if self.is_unreadable(seq) {
            // It is all that is left: nothing is to take its place.
            self.table.touch_run(target, VALUE_MAX);
        }
        let mut hashes = SmallVec::from_elem(0, target.len() as usize);
        for (from, part) in self.table.hashes_in(target) {
            hashes[(from.0 - first.0) as usize..][..part.len()].copy_from_slice(part);
        }
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
        io
    }

    /// Whether the original of a read failed, this time or the last.
    pub(super) fn is_unreadable(&self, seq: u64) -> bool {
        let p = &self.requests[seq];
        let remembered = || self.unreadable.range_cardinality(p.blocks.start()..p.blocks.end()) > 0;
        p.tried.original.is_some() || (!self.unreadable.is_empty() && remembered())
    }

    /// A trusted copy of all that a read asks for, where the original cannot be read and the copy was not tried.
    pub(super) fn copy_of_unreadable(&self, seq: u64) -> Option<BlockNo> {
        let p = &self.requests[seq];
        if !self.may_have_copy(p) || !self.is_unreadable(seq) || self.planted(Plant::UnreadIsError) {
            return None;
        }
        self.copies_of(p.blocks).find(|first| !p.tried.copies.contains(first))
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

    /// Which reads go to the drive behind this one, as far as that is known: those that wait, where they are served as they came and the drive
    /// has nothing else to choose from.
    fn look_behind(&mut self, seq: u64) {
        let mut behind = std::mem::take(&mut self.behind);
        behind.clear();
        if self.config.scheduler == Scheduler::Fcfs && !self.head.in_company() {
            let waiting =
                self.waiting.keys().filter(|&other| other != seq).map(|other| &self.requests[other]);
            for p in waiting.take(BEHIND_MAX).take_while(|p| p.kind == Kind::Read && !p.blocks.is_empty()) {
                behind.push(p.blocks, self.copies_of(p.blocks).filter(|_| self.may_read_copy(p)));
            }
        }
        self.behind = behind;
    }

    /// First blocks of the contiguous, trusted copies of all of `blocks`.
    pub(super) fn copies_of(&self, blocks: BlockRange) -> impl Iterator<Item = BlockNo> {
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
            DiscardMode::Pass if !overwritten && !self.is_unchecked() => {
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

    /// Whether a mount died, and nobody looked what blocks its files have: who mounts such a volume trims by bitmaps that may not know
    /// of them (R2).
    fn is_unchecked(&self) -> bool {
        matches!(
            self.standing,
            Standing::Inactive(Inactive::NotClean | Inactive::Errors) | Standing::Frozen(Freeze::SecondMount)
        )
    }

    /// R2: what the discard covers, less what was written after it arrived, joins F before it is
    /// acknowledged.
    pub(super) fn free_discarded(&mut self, seq: u64) {
        let p = &self.requests[seq];
        let mut gone = if self.planted(Plant::HeldDiscardFrees) { Vec::new() } else { p.overwritten.clone() };
        gone.sort_unstable();
        let runs = without(&[p.covered], &gone);
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
            // Nor is an error's time a read's.
            let counts = result.is_ok() || p.kind == Kind::Write;
            let took = counts.then(|| now.since(p.waits_since() + p.behind_own));
            let saved = ghost.answered(p.kind == Kind::Read, p.from_copy, took, given);
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
