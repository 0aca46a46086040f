//! What a client's request ends at once as it arrives: mappings, copies in flight, free blocks, trust (R1 to R5).

use fs2_block::{BlockRange, Nanos, Op, Request, Sector};
use fs2_ext2::Freeze;
use smallvec::SmallVec;

use super::crowd::Crowd;
use super::{Contents, Extent, IoId, Kind, Pending, Plant, Purpose, Standing, Volume};
use crate::config::DiscardMode;

/// Copies of which the policy is told that the file system took their blocks, at most: as many as a group of 4 KiB blocks has.
const DISPLACED_MAX: usize = 1 << 15;

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
        let (blocks, covered) =
            (request.extent.blocks_touched(self.block_size), request.extent.blocks_covered(self.block_size));
        let lock = self.widened(request.extent);
        let mut pending = Pending::new(request, kind, lock, blocks.intersect(fs), covered.intersect(fs), now);
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
        let mut copies = SmallVec::<[Sector; 4]>::new();
        if !self.gate_open() && self.may_have_copy(&pending) {
            copies.extend(self.copies_of(pending.blocks).map(|copy| copy.sector(self.block_size)));
        }
        if let Some(ghost) = &mut self.ghost
            && matches!(kind, Kind::Read | Kind::Write)
        {
            ghost.arrived(rested, request.op, request.extent, &copies);
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
            false => {
                let lost = self.table.originals_in(blocks);
                self.drop_originals(blocks);
                lost
            }
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
        if self.policy.keeps_turns() {
            self.log.outdate(blocks);
        } else {
            self.log.kill(blocks);
        }
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

    /// Copies in flight into `blocks` are not published.
    pub(super) fn void_targets(&mut self, blocks: BlockRange) {
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

    /// Mappings with an original in `blocks` go.
    pub(super) fn drop_originals(&mut self, blocks: BlockRange) {
        if self.table.is_empty() {
            return;
        }
        for replicas in self.table.remove_by_original(blocks) {
            self.stats.invalidated += u64::from(replicas.len());
            // R: evicted by W(O); its space may be given back while R is in F.
            self.want_punch(replicas);
        }
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
        if self.table.count_replicas_in(blocks) > DISPLACED_MAX {
            return self.drop_replicas(blocks);
        }
        let lost = self.table.replicas_in(blocks);
        let worth = lost.iter().filter_map(|r| self.table.age_and_value(r.replica)).map(|v| v.1).max();
        self.drop_replicas(blocks);
        self.policy.displaced(blocks, &lost, worth, &mut self.log);
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
        self.backups_written.extend(layout.copies_in(p.request.extent));
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
}
