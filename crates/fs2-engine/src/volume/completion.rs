//! What an I/O's end sets off.

use fs2_block::{BlockNo, BlockRange, Nanos, Op};
use fs2_ext2::Freeze;
use fs2_table::value::VALUE_MAX;
use fs2_table::{BitmapChecksums, Replica, Stretch, Trust, content_hash};

use super::home::MarkState;
use super::tail::Modelled;
use super::view::View;
use super::{
    Contents, CopyJob, InFlight, IoId, IoOp, Kind, Plant, Purpose, Reply, Source, Standing, Target, Volume,
    Waiter,
};
use crate::config::DiscardMode;
use crate::io::{Brought, EDQUOT, EIO, ENOSPC, Ended, Outcome};
use crate::log::{Captured, Log};
use crate::policy::{NoCopies, ReadSeen};
use crate::stats::AccessKind;
use crate::worth::UNAPPRAISED;

impl Volume {
    /// An I/O ended.
    ///
    /// # Panics
    /// Where `id` is not in flight, or a successful read brings another length than was asked for:
    /// a driver's errors.
    pub fn complete(&mut self, now: Nanos, id: IoId, outcome: Outcome<'_>) {
        self.ended(now, id, outcome.into());
    }

    /// An I/O on a client's blocks ended, over a device whose contents nobody has. Bitmaps and superblocks
    /// the engine reads for itself ([`IoData::None`]) are brought by [`Volume::complete`] all the same.
    ///
    /// # Panics
    /// As [`Volume::complete`]; where the volume was not attached by [`Volume::attach_unseen`]; where a
    /// name is missing.
    pub fn complete_unseen(&mut self, now: Nanos, id: IoId, result: Result<(), i32>, brought: Brought<'_>) {
        assert_eq!(self.contents, Contents::Unseen, "this volume's contents are seen");
        self.ended(now, id, Ended { result, brought });
    }

    pub(super) fn ended(&mut self, now: Nanos, id: IoId, outcome: Ended<'_>) {
        let io = self.in_flight.remove(id.0).expect("the I/O is in flight");
        if io.op == IoOp::Read && outcome.result.is_ok() {
            match outcome.brought {
                Brought::Bytes(data) => {
                    assert_eq!(data.len() as u64, io.extent.len(), "a read brings what was asked for");
                }
                Brought::Names(names) => {
                    let covered = io.extent.blocks_covered(self.block_size).intersect(self.fs_blocks);
                    assert_eq!(names.len(), covered.len() as usize, "a name for each block");
                }
                Brought::Unseen => {}
            }
        }
        self.holds.retain(|h| h.io != id);
        self.account(now, &io, outcome.result.is_ok());
        let is_client = match &io.purpose {
            Purpose::Client { .. } => true,
            Purpose::Flush(waiters) => waiters.iter().any(|w| w.client().is_some()),
            _ => false,
        };
        let at_drive = io.target == Target::Volume;
        self.finish_io(now, id, io, outcome);
        if at_drive {
            self.accessed = now;
        }
        if is_client {
            self.last_activity = now;
        }
        for ack in &mut self.acks {
            ack.after.retain(|&io| io != id);
        }
        for ack in self.acks.extract_if(.., |a| a.after.is_empty()) {
            self.replies.push_back(Reply { request: ack.request, result: ack.result });
        }
        self.settle(now);
    }

    /// Feeds the belief about the head and the times.
    fn account(&mut self, now: Nanos, io: &InFlight, done: bool) {
        let op = match io.op {
            IoOp::Read => Op::Read,
            IoOp::Write { .. } => Op::Write,
            IoOp::Flush if io.target == Target::Volume => {
                self.head.flushed(io.dispatched, now);
                return;
            }
            _ => return,
        };
        if io.target != Target::Volume {
            return;
        }
        let (sector, bytes) = (io.extent.sector(), io.extent.len());
        if !done {
            // A drive tries for seconds: that is no time of an access.
            self.head.failed(op, sector, bytes, io.dispatched, now);
            if let Purpose::Client { seq, .. } = io.purpose
                && let Some(p) = self.requests.get_mut(seq)
            {
                (p.sampled, p.failed_at) = (None, Some(now));
            }
            return;
        }
        let predicted = self.head.completed(op, sector, bytes, io.dispatched, now);
        if let Some(ghost) = self.ghost.as_mut().filter(|_| op == Op::Write && self.head.caches_writes()) {
            ghost.writes_are_cached();
        }
        // Before the drive is known to cache them, too: it has them all the same.
        if op == Op::Write && self.config.settle {
            let took = now.since(self.accessed.max(io.dispatched));
            self.write_cache.written(self.head.write_back_ms(), took, self.head.caches_writes());
        }
        let kind = match (&io.purpose, op) {
            (Purpose::Client { source: Source::Copy { .. }, .. }, _) => AccessKind::ReplicaRead,
            (Purpose::Client { .. }, Op::Read) => AccessKind::Read,
            (Purpose::Client { .. }, _) => AccessKind::Write,
            _ => AccessKind::Own,
        };
        self.stats.parts.add(kind, io.extent.offset());
        if let Purpose::Client { seq, .. } = io.purpose {
            let modelled = self.modelled_slowest();
            if let Some(p) = self.requests.get_mut(seq) {
                if let Some(arm) = p.sampled.take() {
                    self.control.took(arm, now.since(io.dispatched));
                }
                if p.failed_at.is_none() {
                    self.disturbance.answered(now.since(p.arrived), p.charged, modelled);
                }
            }
            // Nobody described the drive: its seeks are a guess.
            if let Some(split) = predicted.filter(|_| !self.config.turns) {
                let m = &mut self.stats.modelled;
                m.count += 1;
                m.seek += u128::from(split.seek.0);
                m.rotation += u128::from(split.rotation.0);
                m.transfer += u128::from(split.transfer.0) + u128::from(split.overhead.0);
            }
            let times =
                if op == Op::Read { &mut self.stats.read_access } else { &mut self.stats.write_access };
            times.add(now.since(io.dispatched));
            self.expected = predicted.map(|p| p.total());
            self.disturbance.served(op == Op::Read, now.since(io.dispatched));
        }
    }

    fn finish_io(&mut self, now: Nanos, id: IoId, io: InFlight, outcome: Ended<'_>) {
        if self.background == Some(id) {
            self.own_ended(now, &io, outcome.result.is_ok());
            self.background = None;
        }
        match io.purpose {
            Purpose::Client { seq, ref source } => {
                if io.op == IoOp::Read {
                    self.read_done(now, seq, source, &io, outcome);
                } else {
                    self.change_done(now, seq, outcome);
                }
            }
            Purpose::Flush(waiters) => {
                if self.flush_active == Some(id) {
                    self.flush_active = None;
                    self.write_cache.flushed();
                }
                self.flush_answers(now, io.dispatched, &waiters);
                self.flush_done(waiters, outcome.result, io.target);
            }
            Purpose::Copy(job) => self.copy_done(job, outcome.result),
            Purpose::Punch => {}
            Purpose::LoadGroup(group) => self.group_read(group, outcome),
            Purpose::Verify { block, alarm } => self.original_read_back(block, alarm, outcome),
            Purpose::Trail => {
                if outcome.result.is_ok() {
                    self.policy.trail_read(io.extent.len(), now.since(io.dispatched));
                }
            }
            Purpose::Fetch { blocks, void } => self.fetch_done(blocks, void, outcome),
            Purpose::EraseMark => self.unmarked_written(outcome.result),
            Purpose::EraseOldSlot => {
                if outcome.result.is_err() {
                    self.stats.table_errors += 1;
                }
            }
            Purpose::LookBelow { stale } => self.superblock_read_back(now, stale, outcome),
            Purpose::TablePage { page } => match outcome.result {
                Ok(()) => self.stats.table_pages_written += 1,
                Err(_) => {
                    self.stats.table_errors += 1;
                    self.table.mark_dirty(page);
                }
            },
            Purpose::Detach(step) => self.detach_io_done(step, outcome),
        }
    }

    /// The 99th percentile of the model without copies, and whether several are open.
    pub(super) fn modelled_slowest(&self) -> Modelled {
        let company = self.requests.len() + self.flushes.len() > 1;
        Modelled { slowest: self.ghost.as_ref().and_then(|g| g.slowest()), company }
    }

    /// An access of the engine's own ended: who waited for it, and for how long.
    fn own_ended(&mut self, now: Nanos, io: &InFlight, done: bool) {
        let took = now.since(io.dispatched);
        let beside = std::mem::take(&mut self.beside);
        // What the drive did before that is nobody's wait for this.
        let alone = now.since(self.accessed.max(io.dispatched));
        let copied = matches!(io.purpose, Purpose::Copy(_));
        if copied && done && self.config.settle && self.caches_writes() {
            self.write_cache.copied(now, took, beside);
        } else if done && !beside {
            self.pauses.own_took(took + self.write_cache.copy_took());
        }
        let waited = |arrived: Nanos| now.since(arrived).min(alone);
        self.requests.values_mut().for_each(|p| p.behind_own += waited(p.arrived));
        let open = self.requests.values().map(|p| (waited(p.arrived), p.kind == Kind::Read));
        let flushes = self.flushes.values().map(|f| (waited(f.arrived), false));
        if self.disturbance.own_ended(open.chain(flushes)) {
            let requests = self.requests.values_mut().map(|p| (p.arrived, &mut p.charged));
            let flushes = self.flushes.values_mut().map(|f| (f.arrived, &mut f.charged));
            for (arrived, charged) in requests.chain(flushes) {
                charged.own += waited(arrived);
                charged.beside += if beside { waited(arrived) } else { Nanos(0) };
            }
        }
    }

    fn change_done(&mut self, now: Nanos, seq: u64, outcome: Ended<'_>) {
        let p = &self.requests[seq];
        match (p.kind, outcome.result) {
            (Kind::Discard, Ok(())) => {
                debug_assert_eq!(self.config.discard, DiscardMode::Pass);
                if !self.planted(Plant::DiscardBeforeEnd) {
                    self.free_discarded(seq);
                }
            }
            (Kind::Write | Kind::Zeroes, Err(errno)) => {
                self.write_failed = true;
                // Force unit access is a flush as well: it may have taken the error of an earlier write that a flush was to tell.
                // Where there was no room for the write itself, nothing was flushed.
                if p.request.flags.fua && !matches!(errno, ENOSPC | EDQUOT) {
                    self.flush_failed();
                }
            }
            _ => {}
        }
        self.finish(now, seq, outcome.result);
    }

    fn read_done(&mut self, now: Nanos, seq: u64, source: &Source, io: &InFlight, outcome: Ended<'_>) {
        let failed = match source {
            Source::Copy { first, hashes } => self.copy_failed(seq, *first, hashes, outcome),
            Source::Original => self.original_failed(seq, outcome.result),
        };
        if failed {
            if self.requests[seq].tried.wants_original() || self.copy_of_unreadable(seq).is_some() {
                // Unseen by the client: another place answers.
                self.requests.get_mut(seq).expect("a request lives until it is answered").active = false;
                self.waiting.insert(seq, ());
            } else {
                let errno = self.requests[seq].tried.original.unwrap_or(EIO);
                self.finish(now, seq, Err(errno));
            }
            return;
        }
        let p = &self.requests[seq];
        let (blocks, tainted, arrived) = (p.blocks, p.tainted, p.waits_since());
        let unread = p.tried.original.is_some();
        // A copy is read whole.
        let (copy, covered) = match source {
            Source::Copy { first, .. } => (Some(*first), blocks),
            Source::Original => (None, p.covered),
        };
        self.stats.reads_from_replica += u64::from(copy.is_some());
        if copy.is_some() && unread {
            self.stats.original_errors += 1;
            // From now on at once.
            self.unreadable.insert_range(blocks.start()..blocks.end());
        }
        self.give_up_dead(seq);
        if !blocks.is_empty() && !matches!(self.standing, Standing::Inactive(_)) {
            let data = if tainted { Brought::NOTHING } else { self.part(io, covered, outcome.brought) };
            if copy.is_none() && !tainted && !covered.is_empty() {
                self.originals_seen(covered, data);
            }
            if self.standing == Standing::Active {
                self.show_policy((arrived, io.dispatched, now), covered, blocks, data, copy);
            }
        }
        self.finish(now, seq, Ok(()));
    }

    /// What copies of a read's blocks the disk did not read, while another place brought what they hold: they go.
    fn give_up_dead(&mut self, seq: u64) {
        let p = &self.requests[seq];
        let len = p.blocks.len();
        for first in p.tried.dead.clone() {
            let range = BlockRange::at(first, len);
            self.table.remove_by_replica(range);
            self.withdraw(range);
        }
    }

    /// The original of a read was tried; whether it could not be read.
    fn original_failed(&mut self, seq: u64, result: Result<(), i32>) -> bool {
        let Err(errno) = result else { return false };
        let p = self.requests.get_mut(seq).expect("a request lives until it is answered");
        p.tried.original = Some(errno);
        let len = p.blocks.len();
        if let Some(first) = self.copy_of_unreadable(seq) {
            // Nothing is to take its place until it is read.
            self.table.touch_run(BlockRange::at(first, len), VALUE_MAX);
        }
        true
    }

    /// A copy was read for a request, and has to be what the original was (R8); whether it is not.
    fn copy_failed(&mut self, seq: u64, first: BlockNo, hashes: &[u64], outcome: Ended<'_>) -> bool {
        let unread = outcome.result.is_err();
        let good = !unread && self.copy_is_good(first, hashes, outcome);
        if !good {
            let p = self.requests.get_mut(seq).expect("a request lives until it is answered");
            p.tried.copies.push(first);
            if unread {
                // Where no other place brings it either, it stays for another try.
                p.tried.dead.push(first);
                self.stats.replica_errors += 1;
            }
        }
        !good
    }

    /// The bytes of a read that lie in `covered`.
    fn part<'a>(&self, io: &InFlight, covered: BlockRange, brought: Brought<'a>) -> Brought<'a> {
        if covered.is_empty() {
            return Brought::NOTHING;
        }
        let Brought::Bytes(data) = brought else { return brought };
        let bs = self.block_size;
        // A copy's extent lies elsewhere, but it is of whole blocks.
        let lead = io.extent.offset().next_multiple_of(u64::from(bs.bytes())) - io.extent.offset();
        Brought::Bytes(&data[lead as usize..][..bs.bytes_of(covered.len()) as usize])
    }

    fn show_policy(
        &mut self,
        (arrived, dispatched, now): (Nanos, Nanos, Nanos),
        covered: BlockRange,
        blocks: BlockRange,
        data: Brought<'_>,
        copy: Option<BlockNo>,
    ) {
        let wanted = self.may_capture(blocks);
        let capture = wanted && self.log_has_room() && !data.is_nothing();
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        if capture {
            hashes.extend((0..covered.len()).map(|i| self.hash_of(covered, i, data)));
        }
        let first_copy = self.table.first_copy_of(blocks.first());
        let slowest = self.head.slowest(self.block_size.bytes_of(blocks.len()));
        let seen = ReadSeen {
            now,
            arrived,
            touched: blocks,
            blocks: covered,
            data: if capture { data } else { Brought::NOTHING },
            wanted,
            hashes: &hashes,
            copy,
            first_copy,
            measured: now.since(dispatched),
            served: now.since(dispatched.max(self.accessed)).min(slowest),
            expected: self.expected,
            positioning: Nanos::from_millis_f64(self.head.mean_positioning_ms()),
            transfer: self.head.transfer(self.block_size.bytes_of(blocks.len())),
            alone: self.requests.len() == 1,
            at_once: self.accessed <= dispatched,
        };
        let mut policy = std::mem::replace(&mut self.policy, Box::new(NoCopies));
        let mut log = std::mem::replace(&mut self.log, Log::new(0));
        policy.read_seen(&seen, &View::of(self), &mut log);
        // Whoever waits, also at the device, is not to wait for that, too.
        self.trail = policy.trail().filter(|_| seen.alone);
        (self.policy, self.log) = (policy, log);
        self.hashes = hashes;
    }

    /// Whether copies may be made of what a client reads in `blocks`.
    fn may_capture(&self, blocks: BlockRange) -> bool {
        self.policy.captures() && self.capture_allowed() && self.may_be_originals(blocks)
    }

    fn may_be_originals(&self, blocks: BlockRange) -> bool {
        // The daemon itself writes the table's blocks: a copy of them could not be kept.
        let table = self.home.as_ref().is_some_and(|h| h.touches(blocks));
        // What lies before the file system is none of its blocks: no table may name it.
        let before = self.layout.as_ref().is_some_and(|l| blocks.start() < l.first_data_block());
        !table && !before
    }

    fn log_has_room(&self) -> bool {
        self.log.has_room(self.block_size.bytes() as usize)
    }

    /// Whether a policy would be shown what a read of `blocks` brings.
    pub(super) fn would_capture(&self, blocks: BlockRange) -> bool {
        self.may_capture(blocks) && self.log_has_room()
    }

    /// What the policy asked for was read, or could not be.
    fn fetch_done(&mut self, blocks: BlockRange, void: bool, outcome: Ended<'_>) {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        let read = outcome.result.is_ok() && self.may_be_originals(blocks) && !void;
        if read {
            self.originals_seen(blocks, outcome.brought);
        }
        let good = read && self.capture_allowed();
        if good {
            hashes.extend((0..blocks.len()).map(|i| self.hash_of(blocks, i, outcome.brought)));
        }
        let data = if good { outcome.brought } else { Brought::NOTHING };
        self.with_policy(|policy, log, _| policy.fetched(blocks, data, &hashes, log));
        self.hashes = hashes;
    }

    /// What the table's entries carry of the content of `blocks`' block `i`, given what they brought.
    fn hash_of(&self, blocks: BlockRange, i: u32, data: Brought<'_>) -> u64 {
        match data {
            Brought::Bytes(data) => {
                let bytes = self.block_size.bytes() as usize;
                content_hash(self.key(), &data[i as usize * bytes..][..bytes])
            }
            Brought::Names(names) => names[i as usize],
            // Any function of the address will do: what is unseen is what it should be.
            Brought::Unseen => (u64::from(blocks.start() + i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn capture_allowed(&self) -> bool {
        self.may_copy() && self.detach.is_none() && !self.leaving
    }

    /// Hashes what a replica read brought; entries that fail it go (R8).
    fn copy_is_good(&mut self, first: BlockNo, hashes: &[u64], outcome: Ended<'_>) -> bool {
        let range = BlockRange::at(first, hashes.len() as u32);
        if self.planted(Plant::ReplicaNotHashed) {
            return true;
        }
        if matches!(outcome.brought, Brought::Unseen) {
            return true;
        }
        let mut good = true;
        for (i, (block, &hash)) in (0..).zip(range.iter().zip(hashes)) {
            if self.hash_of(range, i, outcome.brought) != hash {
                self.stats.hash_mismatches += 1;
                self.table.remove(block);
                good = false;
            }
        }
        good
    }

    /// Originals were read: entries are verified against them, or refuted.
    fn originals_seen(&mut self, blocks: BlockRange, data: Brought<'_>) {
        if !self.unreadable.is_empty() {
            self.unreadable.remove_range(blocks.start()..blocks.end());
        }
        // Nearly always every entry is verified and as it should be: that is seen in one pass.
        let as_it_should_be = |s: &Stretch<'_>| {
            let from = s.original.0 - blocks.start();
            s.trust == Trust::Verified
                && (from..).zip(s.hashes).all(|(i, &h)| self.hash_of(blocks, i, data) == h)
        };
        if self.table.stretches_of(blocks).all(|s| as_it_should_be(&s)) {
            return;
        }
        for (i, block) in (0..).zip(blocks.iter()) {
            let hash = self.hash_of(blocks, i, data);
            let entries: Vec<Replica> = self.table.replicas_of(block).collect();
            for e in entries {
                self.compare(e, hash);
            }
        }
    }

    fn compare(&mut self, e: Replica, hash: u64) {
        match (e.trust, e.hash == hash) {
            (Trust::Unverified, true) => {
                self.table.set_trust(e.replica, Trust::Verified);
                self.stats.verified += 1;
            }
            (Trust::Unverified, false) => {
                self.table.remove(e.replica);
                self.stats.refuted += 1;
            }
            (Trust::Verified, true) => {}
            (Trust::Verified, false) => {
                self.freeze(Freeze::BrokenInvariant("an original differs from its verified entry"), true);
            }
        }
    }

    fn copy_done(&mut self, job: CopyJob, result: Result<(), i32>) {
        let void_before = self.stats.copies_void;
        if let Err(errno) = result {
            self.stats.copy_errors += 1;
            if matches!(errno, ENOSPC | EDQUOT) {
                self.vacated.add(job.target);
                self.copies_off = true;
            } else {
                self.withdraw(job.target);
            }
            return;
        }
        let recheck = !self.planted(Plant::WriteStaysFree);
        let mut outdated = Vec::new();
        for (i, &(captured, alive)) in job.blocks.iter().enumerate() {
            let Captured { original, hash, worth } = captured;
            let replica = job.target.first().plus(i as u32);
            let is_free = |b| self.live.as_ref().is_some_and(|l| l.is_free(b));
            // A block of no file is not worth a copy, and may hold a replica itself tomorrow.
            let wanted = alive && !is_free(original);
            // R5: published when neither block changed since.
            if self.standing == Standing::Active && wanted && (is_free(replica) || !recheck) {
                let entry = Replica { original, replica, hash, trust: Trust::Verified };
                // Copied because it was read: that counts as a first use.
                let worth = if worth == UNAPPRAISED { 1 } else { worth };
                if self.table.insert_worth(entry, worth).is_ok() {
                    self.stats.copies_written += 1;
                    continue;
                }
            }
            self.stats.copies_void += 1;
            if !alive && !is_free(original) {
                outdated.push(Replica { original, replica, hash, trust: Trust::Unverified });
            }
        }
        if self.stats.copies_void > void_before {
            self.vacated.add(job.target);
        }
        if !outdated.is_empty() {
            self.policy.outdated(&outdated);
        }
    }

    /// The device fails in `range`, where no replica is: nothing is copied there any more in this session. The next place would be
    /// the same one, and whoever reads would wait for it to fail again.
    fn withdraw(&mut self, range: BlockRange) {
        if let Some(live) = &mut self.live {
            live.withdraw(range);
        }
    }

    fn group_read(&mut self, group: u32, outcome: Ended<'_>) {
        self.groups_wanted.remove(&group);
        for p in self.requests.values_mut() {
            p.groups.retain(|&g| g != group);
        }
        let Some(live) = &mut self.live else { return };
        let blocks = live.layout().group_blocks(group);
        if outcome.result.is_err() {
            live.lose_group(group);
            self.stats.invalidated += self.table.remove_by_replica(blocks) as u64;
            return;
        }
        let equal = self.bitmap_checksums.get(group as usize)
            == Some(&BitmapChecksums::of_bitmap(outcome.brought.bytes()));
        if !equal && self.standing == Standing::Active {
            self.freeze(Freeze::ForeignWriter, true);
            return;
        }
        let Some(live) = &mut self.live else { return };
        if live.load_group(group, outcome.brought.bytes()).is_none() {
            return;
        }
        self.vacated.add(blocks);
        // The load filter's second half: R not in F, O in F.
        let gone: Vec<BlockNo> = self
            .table
            .replicas_in(blocks)
            .into_iter()
            .filter(|r| !live.is_free(r.replica))
            .chain(self.table.originals_in(blocks).into_iter().filter(|r| live.is_free(r.original)))
            .map(|r| r.replica)
            .collect();
        for replica in gone {
            self.stats.invalidated += u64::from(self.table.remove(replica).is_some());
        }
    }

    fn original_read_back(&mut self, block: BlockNo, alarm: bool, outcome: Ended<'_>) {
        if outcome.result.is_err() {
            return;
        }
        self.unreadable.remove(block.0);
        let hash = self.hash_of(BlockRange::one(block), 0, outcome.brought);
        let entries: Vec<Replica> = self.table.replicas_of(block).collect();
        for e in entries {
            if alarm && e.trust == Trust::Verified && e.hash != hash {
                // The sample failed: nothing that was on disk is trusted without its original.
                self.alarm.clear();
                self.table.remove(e.replica);
                self.stats.refuted += 1;
                self.table.all_unverified();
                self.want_mark_erased();
                return;
            }
            self.compare(e, hash);
        }
    }

    fn unmarked_written(&mut self, result: Result<(), i32>) {
        let piece = |p: &Purpose| matches!(p, Purpose::EraseMark);
        let MarkState::Erasing { mut failed } = self.mark else { return };
        if result.is_err() {
            self.stats.table_errors += 1;
            // The header is no whole any more: what is left of it need not be written.
            self.urgent.retain(|u| !piece(&u.purpose));
            failed = true;
        }
        self.mark = MarkState::Erasing { failed };
        let left = self.urgent.iter().any(|u| piece(&u.purpose))
            || self.in_flight.values().any(|io| piece(&io.purpose));
        if left {
            return;
        }
        if failed {
            self.erase_failed();
            return;
        }
        if self.planted(Plant::EraseNotFlushed) {
            self.mark = MarkState::Erased { old_slot: true };
            return;
        }
        self.mark = MarkState::Flushing;
        self.flush_home(Waiter::MarkErased);
    }

    fn superblock_read_back(&mut self, now: Nanos, stale: bool, outcome: Ended<'_>) {
        if stale {
            // A client's write waits for this read: what was read is not what the client wrote last.
            return;
        }
        let Some(live) = &self.live else { return };
        self.looked_below = outcome.result.is_ok().then_some(now);
        if outcome.result.is_err() {
            // What wants to know asks again with the next round, not at once and for ever.
            self.next_look = now + self.config.table_flush_every;
            self.next_table_flush = self.next_look;
        } else if outcome.brought.bytes() != &live.superblock()[..] {
            self.freeze(Freeze::ForeignWriter, true);
        }
    }
}
