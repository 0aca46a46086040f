//! From events to requests: one event of each request is its arrival, its completion gives the time
//! it took.
//!
//! * M1: requests come out in the order in which their chosen events came in.
//! * M2: at most [`PENDING_MAX`] of them wait for a completion, whatever the trace holds.

use std::collections::{BTreeSet, VecDeque};

use fs2_block::{Nanos, Op};

use crate::event::{Event, Kind};
use crate::record::RecordFlags;

/// Requests that may wait for their completions: more than a kernel keeps outstanding. A guess.
const PENDING_MAX: usize = 16_384;
/// Requests looked at for one completion.
const LOOK_MAX: usize = 256;

pub(crate) struct Matcher {
    arrival: Kind,
    pending: VecDeque<Slot>,
    /// Number of the first of `pending`.
    first: u64,
    /// Those not completed: device, first byte, number.
    open: BTreeSet<(u32, u64, u64)>,
    /// A completion was seen; without any there is nothing to wait for.
    completions: bool,
    /// More than `PENDING_MAX` events came before any completion.
    no_completions: bool,
}

struct Slot {
    event: Event,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Open,
    Done,
    /// Handed back by the driver: it will be issued again.
    Gone,
}

impl Matcher {
    /// Requests arrive with events of this kind.
    pub(crate) fn new(arrival: Kind) -> Matcher {
        Matcher {
            arrival,
            pending: VecDeque::new(),
            first: 0,
            open: BTreeSet::new(),
            completions: false,
            no_completions: false,
        }
    }

    /// Takes an event.
    pub(crate) fn push(&mut self, event: Event) {
        if event.kind == self.arrival {
            if self.arrival == Kind::Complete || self.no_completions {
                self.pending.push_back(Slot { event, state: State::Done });
                return;
            }
            let number = self.first + self.pending.len() as u64;
            self.open.insert((event.device, event.extent.offset(), number));
            self.pending.push_back(Slot { event, state: State::Open });
            if self.pending.len() > PENDING_MAX && !self.completions {
                self.no_completions = true;
                self.open.clear();
                self.pending.iter_mut().for_each(|slot| slot.state = State::Done);
            }
            return;
        }
        match event.kind {
            Kind::Complete if !self.no_completions => {
                self.completions = true;
                self.close(&event, false);
            }
            Kind::Requeue if self.arrival == Kind::Issue => self.close(&event, true),
            _ => {}
        }
    }

    /// Ends the requests that this event ends: those that lie within it, since a request that was
    /// queued in parts is completed as one.
    fn close(&mut self, event: &Event, requeued: bool) {
        let from = event.extent.offset();
        let end = event.extent.end();
        // A flush has no place: it is found at 0, the earliest of them first.
        let to = if event.op == Op::Flush { from } else { end.saturating_sub(1) };
        let mut closed = [(0, 0, 0); LOOK_MAX];
        let mut n = 0;
        for key in self.open.range((event.device, from, 0)..=(event.device, to, u64::MAX)).take(LOOK_MAX) {
            let Some(slot) = self.pending.get_mut((key.2 - self.first) as usize) else { continue };
            if slot.event.op != event.op || slot.event.extent.end() > end {
                continue;
            }
            slot.state = if requeued { State::Gone } else { State::Done };
            slot.event.took = Some(Nanos(event.time.saturating_sub(slot.event.time))).into();
            if event.flags.contains(RecordFlags::FAILED) {
                slot.event.flags = slot.event.flags.with(RecordFlags::FAILED);
            }
            closed[n] = *key;
            n += 1;
            if event.op == Op::Flush {
                break;
            }
        }
        for key in &closed[..n] {
            self.open.remove(key);
        }
    }

    /// The next request that need not wait longer; at the trace's `end` none need.
    pub(crate) fn pop(&mut self, end: bool) -> Option<Event> {
        loop {
            let slot = self.pending.front()?;
            match slot.state {
                State::Open if !end && self.pending.len() <= PENDING_MAX => return None,
                State::Open => {
                    self.open.remove(&(slot.event.device, slot.event.extent.offset(), self.first));
                }
                _ => {}
            }
            // Keeps M2: what has waited longest goes without.
            self.first += 1;
            let slot = self.pending.pop_front()?;
            if slot.state != State::Gone {
                return Some(slot.event);
            }
        }
    }
}
