//! The clean end of a session: everything drained, the pages written, flushed, then the mark.
//!
//! ```text
//! drain | superblock, descriptors, written bitmaps and superblock copies read back | pages | flush | checksums, mark | flush
//! ```
//! The order is the rule: a mark on disk says that the pages it vouches for, and everything a client
//! wrote before, were durable before it. A crash in between leaves no mark, that is all.

use std::collections::VecDeque;
use std::sync::Arc;

use fs2_block::{Extent, Nanos};
use fs2_ext2::{Freeze, Liveness};
use fs2_table::{BitmapChecksums, Mark, Token};

use super::home::MarkState;
use super::{IoData, IoOp, Plant, Purpose, Standing, Target, Urgent, Volume, Waiter};
use crate::io::Ended;

/// Table pages written at once.
const PAGES_AT_ONCE: usize = 64;

/// Bytes of one read of the descriptor table.
const READ_BYTES: u64 = 1 << 20;

/// What an I/O of the detach brings.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Superblock,
    Descriptors(u64),
    Bitmap {
        group: u32,
        written: bool,
    },
    /// The copy of the superblock in this group.
    Backup(u32),
    Page(u32),
    Checksums,
    Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    ReadBack,
    Pages,
    FlushedPages,
    Mark,
    FlushedMark,
    Done,
}

/// How far the detach has come.
#[derive(Clone, Debug)]
pub(super) struct Detach {
    phase: Phase,
    why_not: Option<String>,
    descriptors: Vec<u8>,
    pages: Option<VecDeque<u32>>,
    marked: bool,
    untouched: bool,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetachReport {
    /// The mark stands: the next attach is active and trusts the verified entries at once.
    pub marked: bool,
    /// Why there is no mark.
    pub why_not: Option<String>,
    /// The volume is as the attach found it: nothing was written, not even the mark.
    pub untouched: bool,
    /// Replicas in the table.
    pub replicas: usize,
}

impl Volume {
    /// No request is taken any more; those that were run to their end, then the table is written.
    /// Drive on until [`Volume::detached`] says so.
    pub fn begin_detach(&mut self, now: Nanos) {
        if self.detach.is_none() {
            self.detach = Some(Detach {
                phase: Phase::Start,
                why_not: None,
                descriptors: Vec::new(),
                pages: None,
                marked: false,
                untouched: false,
            });
            self.log.clear();
            self.punches.clear();
            self.groups_wanted.retain(|g| self.requests.values().any(|p| p.groups.contains(g)));
        }
        self.settle(now);
    }

    /// Whether [`Volume::begin_detach`] was called.
    pub fn is_detaching(&self) -> bool {
        self.detach.is_some()
    }

    /// The report, once nothing is left to do.
    pub fn detached(&self) -> Option<DetachReport> {
        let d = self.detach.as_ref().filter(|d| d.phase == Phase::Done)?;
        if !self.in_flight.is_empty() || !self.urgent.is_empty() || !self.requests.is_empty() {
            return None;
        }
        // A foreign writer noticed at the very end has it erased again.
        let marked = d.marked && self.mark == MarkState::Stands;
        let untouched = d.untouched && marked;
        Some(DetachReport { marked, why_not: d.why_not.clone(), untouched, replicas: self.table.len() })
    }

    /// Whether a mark may be written, as far as the session's history goes.
    fn why_no_mark(&self) -> Option<String> {
        let live = match (&self.standing, &self.live) {
            (Standing::Inactive(why), _) if !self.planted(Plant::MarkThoughInvalid) => {
                return Some(format!("the volume was served inactive: {why}"));
            }
            (Standing::Frozen(why), _) if !self.planted(Plant::MarkAfterFreeze) => {
                return Some(format!("the session was frozen: {why}"));
            }
            (_, Some(live)) => live,
            (_, None) => return Some("there is no FS2 volume".into()),
        };
        let Some(home) = &self.home else { return Some("there is no table".into()) };
        if !home.owned && !self.planted(Plant::MarkAfterTableLost) {
            return Some("a client wrote to the table's blocks".into());
        }
        if self.flush_failed || self.write_failed {
            let which = self.stats.failed.first_change.map(|f| format!(" ({f})")).unwrap_or_default();
            let what = if self.flush_failed { "a flush" } else { "a client's write" };
            return Some(format!("{what} failed{which}"));
        }
        if self.mark.erase_failed() {
            return Some("the old mark could not be erased".into());
        }
        if !live.is_clean() && !self.planted(Plant::DirtyIsValid) {
            return Some("the file system was not cleanly unmounted".into());
        }
        None
    }

    /// One phase on; everything before is done and nothing is in flight.
    pub(super) fn step_detach(&mut self) {
        while self.urgent.is_empty() && self.flush_waiting.is_empty() {
            let Some(d) = &self.detach else { return };
            match d.phase {
                Phase::Start => self.detach_start(),
                Phase::ReadBack => self.detach_compare(),
                Phase::Pages => self.detach_pages(),
                Phase::FlushedPages => self.detach_mark(),
                Phase::Mark => {
                    self.set_phase(Phase::FlushedMark);
                    self.flush_home(Waiter::Detach);
                }
                Phase::FlushedMark => {
                    let d = self.detach.as_mut().expect("detaching");
                    d.marked = d.why_not.is_none();
                    d.phase = Phase::Done;
                    // Perhaps also where it could not be written.
                    self.mark = MarkState::Stands;
                    if self.distrusted {
                        self.want_mark_erased();
                    }
                }
                Phase::Done => return,
            }
        }
        // A flush asked for above is dispatched by the caller's next turn; hand it over now.
        if self.urgent.is_empty() {
            let waiters = std::mem::take(&mut self.flush_waiting);
            self.urgent.push_back(Urgent {
                target: Target::Volume,
                op: IoOp::Flush,
                extent: Extent::default(),
                data: IoData::None,
                purpose: Purpose::Flush(waiters),
            });
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        self.detach.as_mut().expect("detaching").phase = phase;
    }

    fn give_up(&mut self, why: &str) {
        let d = self.detach.as_mut().expect("detaching");
        if d.why_not.is_none() {
            d.why_not = Some(why.into());
        }
    }

    /// Trust ended while the session does: no mark.
    pub(super) fn detach_frozen(&mut self, why: &Freeze) {
        if self.detach.as_ref().is_some_and(|d| !matches!(d.phase, Phase::Start | Phase::Done)) {
            self.give_up(&format!("the session was frozen: {why}"));
        }
    }

    fn detach_start(&mut self) {
        let inactive = matches!(self.standing, Standing::Inactive(_));
        if self.mark == MarkState::Stands && !inactive && !self.planted(Plant::MarkKept) {
            // Nothing changed in this session: the mark that stands says what is so.
            let d = self.detach.as_mut().expect("detaching");
            (d.marked, d.untouched) = (true, true);
            d.phase = Phase::Done;
            return;
        }
        if let Some(why) = self.why_no_mark() {
            self.give_up(&why);
            self.set_phase(Phase::Pages);
            // A foreign writer is looked for before table pages are written.
            if let (true, Some(_), Some(layout)) = (self.table_write_possible(), &self.live, &self.layout) {
                self.urge_read(layout.superblock_extent(), Step::Superblock);
            }
            return;
        }
        self.set_phase(Phase::ReadBack);
        let layout = self.layout.clone().expect("an active volume has a layout");
        self.urge_read(layout.superblock_extent(), Step::Superblock);
        let at = layout.descriptors_extent();
        for piece in pieces(at, READ_BYTES) {
            self.urge_read(piece, Step::Descriptors(piece.offset() - at.offset()));
        }
        self.detach.as_mut().expect("detaching").descriptors = vec![0; at.len() as usize];
        let written = std::mem::take(&mut self.bitmaps_written);
        let mut groups = written.clone();
        // Keeps the mark from vouching for a bitmap that its writer had not finished.
        if self.doubts() {
            groups.extend(self.live.iter().flat_map(Liveness::doubtful_groups));
        }
        for group in groups {
            let step = Step::Bitmap { group, written: written.contains(&group) };
            self.urge_read(layout.bitmap_block(group).extent(self.block_size), step);
        }
        for group in std::mem::take(&mut self.backups_written) {
            self.urge_read(layout.copy_extent(group), Step::Backup(group));
        }
    }

    /// Whether the rule about unfinished bitmaps is in force. Of a volume that was dirty at the attach nothing is announced.
    fn doubts(&self) -> bool {
        !self.planted(Plant::MarkThoughUnannounced) && !self.planted(Plant::MarkThoughInvalid)
    }

    fn urge_read(&mut self, extent: Extent, step: Step) {
        let (target, op, data) = (Target::Volume, IoOp::Read, IoData::None);
        self.urgent.push_back(Urgent { target, op, extent, data, purpose: Purpose::Detach(step) });
    }

    fn detach_compare(&mut self) {
        let d = self.detach.as_ref().expect("detaching");
        let live = self.live.as_ref().expect("an active volume has a notion of liveness");
        if d.why_not.is_none() && d.descriptors != live.descriptors() {
            self.give_up("the group descriptors on disk are not those the client wrote");
            self.freeze(Freeze::ForeignWriter, true);
        }
        self.set_phase(Phase::Pages);
    }

    fn detach_pages(&mut self) {
        let possible = self.table_write_possible();
        let verified = self.detach.as_ref().is_some_and(|d| d.why_not.is_none());
        if possible && self.detach.as_ref().is_some_and(|d| d.pages.is_none()) {
            if verified && self.planted(Plant::FlagNotPerPage) {
                let all: Vec<_> = self.table.iter().map(|e| e.replica).collect();
                for replica in all {
                    self.table.set_trust(replica, fs2_table::Trust::Verified);
                }
            }
            let mut pages: Vec<u32> = Vec::new();
            let mut after = None;
            while let Some(page) = self.table.next_dirty_page(after) {
                pages.push(page);
                after = Some(page);
            }
            if verified {
                // Every page whose entries were not verified loses its flag, and the others get it.
                pages.extend(self.table.pages_needing_flag_change(true));
            }
            self.detach.as_mut().expect("detaching").pages = Some(pages.into());
        }
        let mut n = 0;
        while n < PAGES_AT_ONCE
            && let Some(page) =
                self.detach.as_mut().and_then(|d| d.pages.as_mut()).and_then(VecDeque::pop_front)
        {
            n += 1;
            let home = self.home.as_ref().expect("a table has a home");
            let offset = home.geometry.page_offset(page);
            let encoded = self.table.encode_page(page, home.generation, home.volume_id, verified);
            self.table.mark_written(page, &encoded);
            self.urge_table_write(offset, &encoded.bytes[..], || Purpose::Detach(Step::Page(page)));
        }
        if n > 0 {
            return;
        }
        if !verified && !possible {
            self.set_phase(Phase::Done);
            return;
        }
        self.set_phase(Phase::FlushedPages);
        if self.planted(Plant::MarkSharesFlush) {
            return;
        }
        let apart = self.home.as_ref().is_some_and(|h| h.target == Target::Table);
        self.flush_for(Waiter::Detach);
        if apart {
            self.flush_home(Waiter::Detach);
        }
    }

    fn detach_mark(&mut self) {
        if self.detach.as_ref().is_some_and(|d| d.why_not.is_some()) {
            self.set_phase(Phase::Done);
            return;
        }
        let live = self.live.as_ref().expect("an active volume has a notion of liveness");
        let token = Token::new(*live.superblock(), live.descriptors(), &self.backups);
        let sums = BitmapChecksums(self.bitmap_checksums.to_vec());
        let (block_size, pages_end) = (self.block_size, self.table.pages_end());
        let home = self.home.as_mut().expect("a table has a home");
        home.generation += 1;
        home.slot = 1 - home.slot;
        let mut header = home.unmarked(home.generation, block_size);
        let bitmap_checksums_hash = sums.hash(home.volume_id);
        header.mark = Some(Box::new(Mark { token, bitmap_checksums_hash, pages_end: Some(pages_end) }));
        let sums_at = home.geometry.checksums_offset(home.slot);
        let header_at = home.geometry.header_slot_offset(home.slot);
        self.urge_table_write(sums_at, &sums.encode(), || Purpose::Detach(Step::Checksums));
        self.urge_table_write(header_at, &header.encode(), || Purpose::Detach(Step::Mark));
        self.set_phase(Phase::Mark);
    }

    pub(super) fn detach_io_done(&mut self, step: Step, outcome: Ended<'_>) {
        if outcome.result.is_err() {
            if let Step::Page(page) = step {
                self.table.mark_dirty(page);
            }
            self.stats.table_errors += 1;
            match step {
                Step::Backup(group) => {
                    self.give_up(&format!("the copy of the superblock in group {group} cannot be read"));
                }
                _ => self.give_up("reading or writing below failed"),
            }
            return;
        }
        match step {
            Step::Superblock => {
                let live = self.live.as_ref().expect("an active volume has a notion of liveness");
                if outcome.brought.bytes() != &live.superblock()[..] {
                    self.give_up("the superblock on disk is not the one the client wrote");
                    self.freeze(Freeze::ForeignWriter, true);
                }
            }
            Step::Descriptors(at) => {
                let d = self.detach.as_mut().expect("detaching");
                d.descriptors[at as usize..][..outcome.brought.bytes().len()]
                    .copy_from_slice(outcome.brought.bytes());
            }
            Step::Bitmap { group, written } => {
                let bitmap = outcome.brought.bytes();
                let (before, now) =
                    (self.bitmap_checksums.get(group as usize).copied(), BitmapChecksums::of_bitmap(bitmap));
                let live = self.live.as_ref().expect("an active volume has a notion of liveness");
                let doubt = live.doubt(group, bitmap, before != Some(now));
                if let Some(doubt) = doubt.filter(|_| self.doubts()) {
                    self.give_up(&doubt.to_string());
                }
                // One that no client wrote keeps its checksum: that it differs is for the next session to see.
                if written
                    && let Some(sum) = Arc::make_mut(&mut self.bitmap_checksums).get_mut(group as usize)
                {
                    *sum = now;
                }
            }
            Step::Backup(group) => {
                // As with bitmaps: one that no client wrote keeps its hash.
                let at = self.layout.as_ref().map(|layout| layout.copies().binary_search(&group));
                if let Some(Ok(at)) = at {
                    Arc::make_mut(&mut self.backups)[at] = Token::hash_copy(outcome.brought.bytes());
                }
            }
            Step::Page(_) => self.stats.table_pages_written += 1,
            Step::Checksums | Step::Mark => {}
        }
    }

    pub(super) fn detach_flushed(&mut self, result: Result<(), i32>) {
        if result.is_err() {
            self.give_up("a flush failed");
        }
    }
}

/// `extent` in pieces of at most `most` bytes.
fn pieces(extent: Extent, most: u64) -> impl Iterator<Item = Extent> {
    let piece = move |at: u64| Extent::new(at, most.min(extent.end() - at));
    (extent.offset()..extent.end()).step_by(most as usize).map(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_all_of_it_in_order() {
        let of = |offset, len| {
            pieces(Extent::new(offset, len), 10).map(|e| (e.offset(), e.len())).collect::<Vec<_>>()
        };
        assert_eq!(of(7, 0), []);
        assert_eq!(of(7, 9), [(7, 9)]);
        assert_eq!(of(7, 10), [(7, 10)]);
        assert_eq!(of(7, 25), [(7, 10), (17, 10), (27, 5)]);
    }
}
