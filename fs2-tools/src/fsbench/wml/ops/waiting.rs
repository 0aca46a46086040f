//! Waiting for others, for the rate, and for the end.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::super::gates::lock;
use super::super::model::{Amount, Op, OpKind};
use super::super::run::Ended;
use super::failure::Failure;
use super::{Flow, Worker};
use fs2_wml::is_gate;

/// What a limit remembers between its turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit {
    pub(super) last: u64,
    pub(super) left: i64,
}

impl Worker<'_> {
    pub(super) fn reach(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let live = self.live;
        let reached = self.reached.entry(op.slot).or_insert_with(|| {
            let target = op.gates.as_deref().unwrap_or_default();
            live.gates
                .iter()
                .filter(|(name, _)| is_gate(name, target))
                .map(|(_, gate)| gate.clone())
                .collect()
        });
        let reached = reached.clone();
        let value = op.value.draw(&mut self.rng);
        let mut start = Instant::now();
        for gate in &reached {
            if op.kind == OpKind::Wakeup {
                gate.wake();
                // One for each it wakes.
                if let Flow::Stop = self.count(op, start, 0) {
                    return Ok(Flow::Stop);
                }
                start = Instant::now();
            } else if !gate.post(value, op.blocking, &live.stop) {
                return Ok(Flow::Stop);
            }
        }
        Ok(if op.kind == OpKind::Wakeup { Flow::Next } else { self.count(op, start, 0) })
    }

    /// What a limit or an end goes by: its target's numbers, or the process's.
    pub(super) fn so_far(&self, op: &Op) -> u64 {
        let by_bytes = matches!(op.kind, OpKind::BwLimit | OpKind::FinishOnBytes);
        if let Some(slot) = op.target {
            let stats = &lock(&self.state.counters)[slot];
            return if by_bytes { stats.bytes } else { stats.count };
        }
        let total = match op.kind {
            OpKind::IopsLimit => &self.totals.rw_ops,
            OpKind::BwLimit => &self.totals.rw_bytes,
            OpKind::FinishOnBytes => &self.totals.counted_bytes,
            OpKind::FinishOnCount => &self.totals.counted_ops,
            _ => &self.totals.ops,
        };
        total.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&mut self, op: &Op) -> Flow {
        if self.live.model.event_rate == 0 {
            return Flow::Next;
        }
        let start = Instant::now();
        let now = self.so_far(op);
        let limit = self.limits.entry(op.slot).or_default();
        if limit.last == 0 {
            limit.last = now;
            return Flow::Next;
        }
        limit.left -= now.saturating_sub(limit.last) as i64;
        limit.last = now;
        if limit.left < 0 {
            let missing = limit.left.unsigned_abs();
            let (events, worth) = match op.kind {
                OpKind::BwLimit => ((missing >> 20) + 1, 1 << 20),
                _ => (missing, 1),
            };
            limit.left += (events * worth) as i64;
            if !self.live.events.take(events, &self.live.stop) {
                return Flow::Stop;
            }
        }
        self.count(op, start, 0)
    }

    pub(super) fn finish(&mut self, op: &Op) -> Flow {
        let value = match &op.value {
            Amount::Fixed(n) => *n,
            Amount::Drawn(dist) => dist.mean() as u64,
        };
        // Asked first: a target's numbers are cleared by the time that this is over.
        let warming = self.state.warming.load(Ordering::Acquire);
        let (start, so_far) = (Instant::now(), self.so_far(op));
        let reached =
            !warming && if op.kind == OpKind::FinishOnBytes { so_far > value } else { so_far >= value };
        let flow = self.count(op, start, 0);
        if reached {
            let thread = &self.live.model.processes[self.place.0].threads[self.place.1];
            self.live.end(Ok(Ended::Finished(thread.counters[op.slot].name.clone())));
            return Flow::Stop;
        }
        flow
    }
}
