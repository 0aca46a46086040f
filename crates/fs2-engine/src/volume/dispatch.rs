//! What goes to the device next, and what I/O in flight keeps others from.

use fs2_block::{Extent, Nanos, Op, Sector};

use super::Volume;
use super::state::{Hold, InFlight, Kind, Purpose};
use crate::io::{Io, IoData, IoId, IoOp, Target};
use crate::plant::Plant;

impl Volume {
    /// The next I/O to do; call it only while a device slot is free, so that the choice is made late.
    pub fn poll_dispatch(&mut self, now: Nanos) -> Option<Io> {
        let io = self.next_dispatch(now);
        if self.config.paranoid {
            self.check();
        }
        io
    }

    fn next_dispatch(&mut self, now: Nanos) -> Option<Io> {
        if let Some(io) = self.dispatch_urgent(now) {
            return Some(io);
        }
        if self.flush_active.is_none() && !self.flush_waiting.is_empty() && !self.unit_access_active() {
            if let Some(io) = self.unit_access_before_flush(now) {
                return Some(io);
            }
            let waiters = std::mem::take(&mut self.flush_waiting);
            let io = self.dispatch(
                now,
                Target::Volume,
                IoOp::Flush,
                Extent::default(),
                IoData::None,
                Purpose::Flush(waiters),
            );
            self.flush_active = Some(io.id);
            return Some(io);
        }
        // Keeps I5: a client's bitmap waits for this one read, which others' requests must not pass for ever.
        if let Some(io) = self.load_wanted(now) {
            return Some(io);
        }
        if let Some(io) = self.dispatch_trail(now) {
            return Some(io);
        }
        if let Some(io) = self.copy_beside(now) {
            return Some(io);
        }
        if let Some(io) = self.dispatch_client(now) {
            return Some(io);
        }
        if self.detach.is_some() {
            if self.requests.is_empty() && self.in_flight.is_empty() && self.flush_waiting.is_empty() {
                self.step_detach();
                return self.dispatch_urgent(now);
            }
            return None;
        }
        if self.leaving {
            return self.load_wanted(now);
        }
        self.dispatch_background(now)
    }

    /// The next of what goes before everything else.
    pub(super) fn dispatch_urgent(&mut self, now: Nanos) -> Option<Io> {
        while let Some(u) = self.urgent.pop_front() {
            let background = matches!(u.purpose, Purpose::TablePage { .. } | Purpose::EraseOldSlot);
            // R7: a client may have taken the table's blocks since this was queued.
            if background && !self.table_write_possible() {
                if let Purpose::TablePage { page } = u.purpose {
                    self.table.mark_dirty(page);
                }
                continue;
            }
            let held = background && u.target == Target::Volume;
            let io = self.dispatch(now, u.target, u.op, u.extent, u.data, u.purpose);
            // R7: a client's write to these blocks comes after this one.
            if held && !self.planted(Plant::TableWriteHoldsNothing) {
                self.hold(io.id, self.widened(u.extent), true);
            }
            return Some(io);
        }
        None
    }

    pub(super) fn dispatch(
        &mut self,
        now: Nanos,
        target: Target,
        op: IoOp,
        extent: Extent,
        data: IoData,
        purpose: Purpose,
    ) -> Io {
        if let Purpose::Client { seq, .. } = purpose {
            if op == IoOp::Read {
                self.stats.read_wait += now.since(self.requests[seq].waits_since());
            }
            let alone = self.in_flight.values().all(|io| !matches!(io.purpose, Purpose::Client { .. }));
            let op = match op {
                IoOp::Read => Some(Op::Read),
                IoOp::Write { .. } => Some(Op::Write),
                _ => None,
            };
            self.disturbance.client_begins(&self.head, now, op, extent, alone);
        }
        if target == Target::Volume && op != IoOp::Flush {
            self.swept = Sector(extent.sector().0 + extent.sectors());
        }
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.in_flight.insert(id.0, InFlight { purpose, target, op, extent, dispatched: now });
        Io { id, target, op, extent, data }
    }

    pub(super) fn hold(&mut self, io: IoId, extent: Extent, exclusive: bool) {
        self.holds.push(Hold { io, extent, exclusive });
    }

    /// Whether I/O in flight forbids touching `extent`.
    pub(super) fn held(&self, extent: Extent, exclusive: bool) -> bool {
        self.holds.iter().any(|h| (exclusive || h.exclusive) && h.extent.overlaps(extent))
    }

    /// Whether a request that arrived before `seq` and still waits forbids touching `extent`.
    pub(super) fn queued_before(&self, seq: u64, extent: Extent, exclusive: bool) -> bool {
        self.waiting.keys().take_while(|&s| s < seq).any(|s| {
            let p = &self.requests[s];
            (exclusive || p.kind != Kind::Read) && p.lock.overlaps(extent)
        })
    }

    /// Whether the engine's own I/O may touch `extent` now; it never waits, it comes back later.
    pub(super) fn untouched(&self, extent: Extent, exclusive: bool) -> bool {
        !self.held(extent, exclusive) && !self.queued_before(u64::MAX, extent, exclusive)
    }

    /// `extent` widened to whole blocks.
    pub(super) fn widened(&self, extent: Extent) -> Extent {
        let b = u64::from(self.block_size.bytes());
        let start = extent.offset() / b * b;
        Extent::new(start, extent.end().next_multiple_of(b) - start)
    }
}
