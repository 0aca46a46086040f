//! What the engine does of its own: copying, loading bitmaps, verifying entries, writing table pages,
//! giving space back.

use fs2_block::{BlockNo, BlockRange, Extent, Nanos};

use super::disturbance::During;
use super::home::MarkState;
use super::view::View;
use super::{Contents, CopyJob, Io, IoData, IoOp, Plant, Purpose, Standing, Target, Volume, Waiter};
use crate::config::{
    COPY_BLOCKS_MAX, LONG_REST, MERGED_IN_PAUSES, PAUSE_WRITE_MS, REST_WRITE_MS, WRITE_BLOCKS_MAX,
};
use crate::io::Brought;
use crate::log::Log;
use crate::part::Part;
use crate::policy::{Fetch, NoCopies, Place};

/// For so long at the most table pages are written, and copies made beside requests, after a look for a foreign writer. A guess.
const LOOK_EVERY: Nanos = Nanos::from_millis(60_000);

/// What is read in a row is read in pieces of so much, from its beginning: what Linux reads ahead of a file. Measured on real traces: with 32 and
/// 64 KiB half and three quarters are gained of what 128 gain, with 256 and 1,024 as much.
const PIECE_BYTES: u32 = 128 << 10;

/// Rows of evicted copies that wait to be punched: on a volume that never rests, the oldest of more keep their space. So much is
/// 16 GiB of blocks of 4 KiB where all lie in rows as long as copies are written in, and half a MiB of memory. A guess.
const PUNCHES_MAX: usize = 1 << 16;

/// Of them so many, and pieces of them, are looked at while requests wait: a third of a ms. A guess.
const PUNCH_LOOKS: usize = 1 << 10;

impl Volume {
    /// Whether the disk may be taken for granted to be idle.
    fn is_idle(&self, now: Nanos) -> bool {
        if self.policy.eager() {
            return true;
        }
        let rested = now.since(self.last_activity);
        rested >= self.config.idle_after
            && self
                .rests()
                .into_iter()
                .any(|(least, risk)| rested >= least && self.pauses.is_quiet(rested, risk))
    }

    /// Whether the drive caches writes, or has some it did.
    pub(super) fn caches_writes(&self) -> bool {
        self.head.caches_writes() || self.write_cache.has_writes()
    }

    /// How long a rest must be at the least before the engine does anything of its own, and at which risk: either will do.
    fn rests(&self) -> [(Nanos, f64); 2] {
        // What the drive has still to write of its clients' a flush would wait for.
        let cached = self.config.settle && (self.caches_writes() || self.write_cache.has_copy());
        let written = if cached { self.write_cache.written_after() } else { Nanos(0) };
        let least = self.config.idle_after.max(written);
        let any = self.config.without.has(Part::Pauses);
        match self.disturbance.risk_allowed() {
            Some(risk) => [(least, if any { 1.0 } else { risk }); 2],
            None => {
                let rest = (least.max(self.disturbance.rest()), 1.0);
                let surely = !any && self.disturbance.may_where_nobody_comes();
                [rest, if surely { (least, 0.0) } else { rest }]
            }
        }
    }

    /// What work of the engine's own is done in now.
    fn during(&self, now: Nanos) -> During {
        if now.since(self.last_activity) < LONG_REST { During::Pause } else { During::Rest }
    }

    /// When, from the last request on, the engine may do something of its own: not before it was last asked.
    pub(super) fn rest_needed(&self) -> Nanos {
        if self.policy.eager() {
            return self.config.idle_after;
        }
        let looked = self.looked.since(self.last_activity);
        let [one, other] = self.rests().map(|(least, risk)| self.pauses.quiet_from(least.max(looked), risk));
        one.min(other)
    }

    pub(super) fn has_background_work(&self) -> bool {
        if matches!(self.standing, Standing::Inactive(_)) {
            return false;
        }
        !self.alarm.is_empty()
            || self.write_cache.has_copy() && !self.flush_failed
            || (self.may_copy() && self.log.has_work() && !self.policy.too_few(&self.log))
            || !self.punches.is_empty()
            || self.mark == MarkState::Erased { old_slot: true } && self.table_write_possible()
    }

    /// Reading that nobody waits for, and that waits the longer for a quiet moment.
    pub(super) fn has_patient_work(&self) -> bool {
        !matches!(self.standing, Standing::Inactive(_))
            && ((self.table.unverified_count() > 0 && !self.sweep_done()) || self.groups_left())
    }

    /// Whether such a read is at the device.
    pub(super) fn reads_for_nobody(&self) -> bool {
        !self.beside
            && self.background.is_some_and(|io| {
                self.in_flight.get(io.0).is_some_and(|io| {
                    matches!(io.purpose, Purpose::Verify { alarm: false, .. } | Purpose::LoadGroup(_))
                })
            })
    }

    fn is_quiet(&self, now: Nanos) -> bool {
        self.policy.eager() || now >= self.last_activity + self.patience.wait()
    }

    fn groups_left(&self) -> bool {
        self.standing == Standing::Active && self.live.as_ref().is_some_and(|l| l.unloaded_count() > 0)
    }

    fn sweep_done(&self) -> bool {
        self.sweep_after == Some(BlockNo(u32::MAX))
    }

    pub(super) fn may_copy(&self) -> bool {
        let may = self.copying && !self.copies_off && !self.host_short && !self.flush_failed;
        may && self.standing == Standing::Active
    }

    pub(super) fn dispatch_background(&mut self, now: Nanos) -> Option<Io> {
        if self.background.is_some() || matches!(self.standing, Standing::Inactive(_)) {
            return None;
        }
        self.looked = now;
        if let Some(io) = self.settle_copies(now) {
            return Some(io);
        }
        if !self.is_idle(now) || !self.policy.eager() && self.has_open() {
            return None;
        }
        self.searching = false;
        let copy = self.verify_sample(now).or_else(|| self.copy_next(now));
        // What comes behind copies comes behind the search for their place, too.
        if self.searching {
            return None;
        }
        let io = copy
            .or_else(|| self.fetch_next(now))
            .or_else(|| self.punch_next(now))
            .or_else(|| self.erase_old_slot(now))
            .or_else(|| self.write_table(now))
            .or_else(|| self.is_quiet(now).then(|| self.verify_next(now)).flatten())
            .or_else(|| self.is_quiet(now).then(|| self.load_any(now)).flatten());
        if let Some(io) = &io {
            let moves = matches!(io.op, IoOp::Read | IoOp::Write { .. }) && io.target == Target::Volume;
            if moves {
                self.disturbance.begins(&self.head, self.during(now));
            }
            self.background = Some(io.id);
        }
        io
    }

    /// Has the drive write the copy just made, which is in its cache only: else it does so while somebody reads.
    fn settle_copies(&mut self, now: Nanos) -> Option<Io> {
        let copied = self.write_cache.copied_at()?;
        let rested = now.since(self.last_activity);
        // At once if nobody came meanwhile: the time for it was counted in. Keeps W2.
        let counted_in = self.last_activity < copied && self.write_cache.flushes_soon(rested);
        let quiet = counted_in || self.is_idle(now);
        let more = rested >= LONG_REST && self.may_copy() && self.log.has_work();
        if more && self.write_cache.may_wait() {
            return None;
        }
        if !quiet || self.has_open() || self.flush_active.is_some() || self.flush_failed {
            return None;
        }
        let io = self.flush_copies(now);
        self.disturbance.begins(&self.head, self.during(now));
        Some(io)
    }

    /// A flush of the engine's own.
    pub(super) fn flush_copies(&mut self, now: Nanos) -> Io {
        let purpose = Purpose::Flush(vec![Waiter::Settled]);
        let io = self.dispatch(now, Target::Volume, IoOp::Flush, Extent::default(), IoData::None, purpose);
        (self.flush_active, self.background) = (Some(io.id), Some(io.id));
        io
    }

    /// For reads of clients' blocks by the engine itself.
    fn read_data(&self) -> IoData {
        match self.contents {
            Contents::Bytes => IoData::None,
            Contents::Unseen => IoData::Unseen,
        }
    }

    /// What follows the copy just read, for the drive's own cache: what it brings nobody sees.
    pub(super) fn dispatch_trail(&mut self, now: Nanos) -> Option<Io> {
        let blocks = self.trail.take()?.intersect(self.fs_blocks);
        if blocks.is_empty() || self.detach.is_some() || self.leaving || !self.disturbance.may_trail() {
            return None;
        }
        let extent = blocks.extent(self.block_size);
        let data = self.read_data();
        Some(self.dispatch(now, Target::Volume, IoOp::Read, extent, data, Purpose::Trail))
    }

    #[inline]
    pub(super) fn load_wanted(&mut self, now: Nanos) -> Option<Io> {
        // As mostly: each look for what may start asks.
        if self.groups_wanted.is_empty() {
            return None;
        }
        let busy = |v: &Volume, g: u32| {
            v.in_flight.values().any(|io| matches!(io.purpose, Purpose::LoadGroup(x) if x == g))
        };
        let group = self.groups_wanted.iter().copied().find(|&g| !busy(self, g))?;
        self.load(now, group)
    }

    fn load_any(&mut self, now: Nanos) -> Option<Io> {
        if self.standing != Standing::Active {
            return None;
        }
        let group = self.live.as_ref()?.unloaded_groups().next()?;
        self.load(now, group)
    }

    fn load(&mut self, now: Nanos, group: u32) -> Option<Io> {
        let layout = self.layout.clone()?;
        let extent = layout.bitmap_block(group).extent(self.block_size);
        if self.held(extent, false) {
            return None;
        }
        let io =
            self.dispatch(now, Target::Volume, IoOp::Read, extent, IoData::None, Purpose::LoadGroup(group));
        self.hold(io.id, extent, false);
        Some(io)
    }

    fn verify_sample(&mut self, now: Nanos) -> Option<Io> {
        while let Some(block) = self.alarm.pop() {
            if let Some(io) = self.read_original(now, block, true) {
                return Some(io);
            }
        }
        None
    }

    fn verify_next(&mut self, now: Nanos) -> Option<Io> {
        if self.sweep_done() || self.table.unverified_count() == 0 {
            return None;
        }
        let next = self.table.next_unverified(self.sweep_after);
        self.sweep_after = Some(next.as_ref().map_or(BlockNo(u32::MAX), |r| r.original));
        self.read_original(now, next?.original, false)
    }

    fn read_original(&mut self, now: Nanos, block: BlockNo, alarm: bool) -> Option<Io> {
        let extent = block.extent(self.block_size);
        if !self.table.has_replica(block) || !self.untouched(extent, false) {
            return None;
        }
        let purpose = Purpose::Verify { block, alarm };
        let io = self.dispatch(now, Target::Volume, IoOp::Read, extent, IoData::None, purpose);
        self.hold(io.id, extent, false);
        Some(io)
    }

    /// The next copy: place, lock, look at F again, write.
    fn copy_next(&mut self, now: Nanos) -> Option<Io> {
        let pauses = now.since(self.last_activity) < LONG_REST;
        if !self.may_copy() || !self.log.has_work() || pauses && self.policy.too_few(&self.log) {
            return None;
        }
        self.with_policy(|policy, log, _| policy.idle(now, log));
        let merged = match pauses {
            // One run a write.
            _ if self.config.without.has(Part::Merging) => 1,
            true => self.blocks_in(PAUSE_WRITE_MS).max(MERGED_IN_PAUSES),
            false => self.blocks_in(REST_WRITE_MS).max(COPY_BLOCKS_MAX),
        };
        self.copy_closed(now, merged)
    }

    /// Blocks that the drive writes in so long, by its profile; 0 where nothing is known of it.
    fn blocks_in(&self, ms: f64) -> u32 {
        let blocks = ms * self.head.media_bytes_a_ms() / f64::from(self.block_size.bytes());
        (blocks as u32).min(WRITE_BLOCKS_MAX)
    }

    /// The same of the runs that are closed, together up to so many blocks.
    pub(super) fn copy_closed(&mut self, now: Nanos, merged: u32) -> Option<Io> {
        let want = self.log.next_len(COPY_BLOCKS_MAX.max(merged) as usize, merged as usize) as u32;
        if want == 0 {
            return None;
        }
        // The mark must be gone before the first copy of a session.
        if !self.mark.is_gone() && !self.planted(Plant::CopyKeepsMark) {
            self.want_mark_erased();
            return self.dispatch_urgent(now);
        }
        if self.mark.erase_failed() {
            self.copies_off = true;
            return None;
        }
        let whole = self.policy.keeps_reads_whole();
        let ends = if whole { self.next_pieces(want) } else { None };
        let want = self.admit(ends.unwrap_or(want))?;
        let mut place = self.place(want);
        if let Place::Ends(run) = place
            && whole
        {
            place = match self.next_pieces(run.len()) {
                Some(len) => Place::At(BlockRange::at(run.first(), len)),
                None => self.place(want),
            };
        }
        match place {
            Place::At(target) | Place::Ends(target) => self.copy_into(now, target),
            Place::NeedsGroup(group) => self.load(now, group),
            Place::Later => {
                self.searching = true;
                None
            }
            Place::Nowhere => {
                self.log.clear();
                None
            }
        }
    }

    fn place(&mut self, want: u32) -> Place {
        self.with_policy(|policy, _, v| policy.place(want, &v.head, &View::of(v)))
    }

    /// The most of the log's next blocks, up to so many, that end where reads do; `None` where already the first read is longer.
    fn next_pieces(&self, most: u32) -> Option<u32> {
        let piece = (PIECE_BYTES / self.block_size.bytes()).max(1);
        Some(self.log.next_pieces(most as usize, piece) as u32).filter(|&len| len > 0)
    }

    /// The next originals that the policy wants read for itself.
    fn fetch_next(&mut self, now: Nanos) -> Option<Io> {
        let at = self.policy.fetch_at(self.last_activity)?;
        if now < at || !self.may_copy() || self.detach.is_some() {
            return None;
        }
        let fetch = self.with_policy(|policy, log, v| {
            policy.idle(now, log);
            policy.fetch(now.since(v.last_activity), &View::of(v))
        });
        match fetch {
            Fetch::Nothing => None,
            Fetch::NeedsGroup(group) => self.load(now, group),
            Fetch::Read(range) => {
                let extent = range.extent(self.block_size);
                if range.is_empty() || range.intersect(self.fs_blocks) != range {
                    self.with_policy(|policy, log, _| policy.fetched(range, Brought::NOTHING, &[], log));
                    return None;
                }
                if !self.untouched(extent, false) {
                    return None;
                }
                let data = self.read_data();
                let purpose = Purpose::Fetch { blocks: range, void: false };
                let io = self.dispatch(now, Target::Volume, IoOp::Read, extent, data, purpose);
                // R5: nobody changes them while they are read; who wants to makes void what it brings.
                self.hold(io.id, extent, false);
                Some(io)
            }
        }
    }

    fn copy_into(&mut self, now: Nanos, target: BlockRange) -> Option<Io> {
        let extent = target.extent(self.block_size);
        let locked = if self.planted(Plant::CopyPassesPin) {
            self.holds.iter().any(|h| h.exclusive && h.extent.overlaps(extent))
        } else {
            !self.untouched(extent, true)
        };
        let fits = self.planted(Plant::CopySkipsRecheck) || self.is_vacant(target);
        if locked || !fits {
            return None;
        }
        // R5: this is a write of these blocks too. Who reads free blocks may have made originals of them.
        self.own_write(target);
        let batch = self.log.take(target.len() as usize)?;
        let target = BlockRange::at(target.first(), batch.blocks.len() as u32);
        let extent = target.extent(self.block_size);
        let mut blocks: Vec<_> = batch.blocks.into_iter().map(|b| (b, true)).collect();
        batch.outdated.into_iter().for_each(|i| blocks[i].1 = false);
        let purpose = Purpose::Copy(CopyJob { target, blocks });
        let op = IoOp::Write { fua: false };
        let data = match self.contents {
            Contents::Bytes => IoData::Engine(batch.data.into()),
            Contents::Unseen => IoData::Unseen,
        };
        let io = self.dispatch(now, Target::Volume, op, extent, data, purpose);
        if !self.planted(Plant::WritePassesCopy) {
            self.hold(io.id, extent, true);
        }
        Some(io)
    }

    /// The daemon itself is about to change what free blocks hold.
    fn own_write(&mut self, range: BlockRange) {
        self.drop_originals(range);
        self.void_payloads(range);
    }

    /// Whether every block of `range` is in F and holds no replica.
    fn is_vacant(&self, range: BlockRange) -> bool {
        let Some(live) = &self.live else { return false };
        !range.is_empty()
            && live.free().contains_range(range.start()..range.end())
            && self.table.count_replicas_in(range) == 0
    }

    pub(super) fn with_policy<T>(
        &mut self,
        f: impl FnOnce(&mut dyn crate::policy::Policy, &mut Log, &Volume) -> T,
    ) -> T {
        let mut policy = std::mem::replace(&mut self.policy, Box::new(NoCopies));
        let mut log = std::mem::replace(&mut self.log, Log::new(0));
        let out = f(&mut *policy, &mut log, self);
        (self.policy, self.log) = (policy, log);
        out
    }

    /// Evicted replicas' blocks are to be punched, in one row with those that came just before: no longer a row than is copied at
    /// a time, since whoever writes to one of its blocks waits for all of it.
    pub(super) fn want_punch(&mut self, range: BlockRange) {
        if !self.config.punch || self.standing != Standing::Active || self.flush_failed {
            return;
        }
        let mut start = range.start();
        if let Some(last) = self.punches.back().filter(|last| last.end() == start) {
            start = last.start();
            self.punches.pop_back();
        }
        while start < range.end() {
            let end = start.saturating_add(COPY_BLOCKS_MAX).min(range.end());
            while self.punches.len() >= PUNCHES_MAX {
                self.punches.pop_front();
            }
            self.punches.push_back(BlockRange::new(start, end));
            start = end;
        }
    }

    /// Gives evicted replicas' space back to a sparse backing: only while their blocks are in F and
    /// nothing is in flight on them.
    fn punch_next(&mut self, now: Nanos) -> Option<Io> {
        let careless = self.planted(Plant::PunchAfterWrite);
        // The rest at the next time: mostly copies were written there since, and of all that wait millions of pieces would be looked at.
        for _ in 0..PUNCH_LOOKS {
            let range = self.punches.pop_front()?;
            let extent = range.extent(self.block_size);
            if !careless && (!self.is_vacant(range) || !self.untouched(extent, true)) {
                if range.len() > 1 {
                    // Some of it may still be nobody's.
                    let middle = range.start() + range.len() / 2;
                    self.punches.push_front(BlockRange::new(middle, range.end()));
                    self.punches.push_front(BlockRange::new(range.start(), middle));
                }
                continue;
            }
            if !self.mark.is_gone() || self.mark.erase_failed() {
                // Keeps I4; a replica whose space is not given back is no harm.
                continue;
            }
            self.own_write(range);
            let io = self.dispatch(now, Target::Volume, IoOp::Discard, extent, IoData::None, Purpose::Punch);
            if !self.planted(Plant::PunchHoldsNothing) {
                self.hold(io.id, extent, true);
            }
            return Some(io);
        }
        None
    }

    /// The slot that held the erased mark is overwritten too, so that no mark is left that a damaged
    /// newer slot could bring back.
    fn erase_old_slot(&mut self, now: Nanos) -> Option<Io> {
        if self.mark != (MarkState::Erased { old_slot: true }) || !self.table_write_possible() {
            return None;
        }
        let home = self.home.as_ref()?;
        let (generation, slot) = (home.generation + 1, 1 - home.slot);
        let bytes = home.unmarked(generation, self.block_size).encode();
        let offset = home.geometry.header_slot_offset(slot);
        let io = self.table_write(now, offset, &bytes, || Purpose::EraseOldSlot)?;
        self.mark = MarkState::Erased { old_slot: false };
        if let Some(home) = &mut self.home {
            (home.generation, home.slot) = (generation, slot);
        }
        Some(io)
    }

    fn write_table(&mut self, now: Nanos) -> Option<Io> {
        let due = now >= self.next_table_flush && self.table.dirty_pages() > 0;
        if !due || !self.table_write_possible() {
            return None;
        }
        // A foreign writer is looked for before each round.
        if !self.has_looked_below(now) {
            return self.look_below(now);
        }
        let home = self.home.as_ref()?;
        let (generation, volume_id) = (home.generation, home.volume_id);
        // Onwards from the last: one that cannot be written keeps no other from it, and is tried again in the next round.
        let Some(page) = self.table.next_dirty_page(self.page_written) else {
            self.table_round_ends(now);
            return None;
        };
        // Pages written in a session are not trusted by the next: only a clean detach flags them.
        let encoded = self.table.encode_page(page, generation, volume_id, false);
        self.table.mark_written(page, &encoded);
        self.page_written = Some(page);
        if self.table.next_dirty_page(Some(page)).is_none() {
            self.table_round_ends(now);
        }
        let offset = self.home.as_ref()?.geometry.page_offset(page);
        self.table_write(now, offset, &encoded.bytes[..], || Purpose::TablePage { page })
    }

    fn table_round_ends(&mut self, now: Nanos) {
        (self.page_written, self.looked_below) = (None, None);
        self.next_table_flush = now + self.config.table_flush_every;
    }

    pub(super) fn has_looked_below(&self, now: Nanos) -> bool {
        self.looked_below.is_some_and(|at| now.since(at) < LOOK_EVERY)
    }

    /// Reads the superblock, to see whether it is still what clients wrote last.
    pub(super) fn look_below(&mut self, now: Nanos) -> Option<Io> {
        if now < self.next_look {
            return None;
        }
        let extent = self.live.as_ref()?.layout().superblock_extent();
        let wide = self.widened(extent);
        if !self.untouched(wide, false) {
            return None;
        }
        let look = Purpose::LookBelow { stale: false };
        let io = self.dispatch(now, Target::Volume, IoOp::Read, extent, IoData::None, look);
        self.hold(io.id, wide, false);
        Some(io)
    }

    /// Writes to the table's file in the background; comes back later where a client is at it.
    fn table_write(
        &mut self,
        now: Nanos,
        offset: u64,
        bytes: &[u8],
        purpose: impl Fn() -> Purpose,
    ) -> Option<Io> {
        let home = self.home.as_ref()?;
        let on_volume = home.target == Target::Volume;
        let stretches = home.stretches(offset, bytes.len() as u64);
        let free = |v: &Volume, e: Extent| !on_volume || v.untouched(v.widened(e), true);
        if !stretches.iter().all(|&e| free(self, e)) {
            if let Purpose::TablePage { page } = purpose() {
                self.table.mark_dirty(page);
            }
            return None;
        }
        self.urge_table_write(offset, bytes, purpose);
        self.dispatch_urgent(now)
    }

    /// What may not be copied now need not wait for it.
    pub(super) fn step_log(&mut self) {
        if !self.may_copy() && !self.log.is_empty() {
            self.log.clear();
        }
    }
}
