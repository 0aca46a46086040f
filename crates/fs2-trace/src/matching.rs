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
/// Requests looked at for one completion: as many as 4 MiB have pages. A guess.
const LOOK_MAX: usize = 1024;

pub(crate) struct Matcher {
    arrival: Kind,
    pending: VecDeque<Slot>,
    /// Number of the first of `pending`.
    first: u64,
    /// Those not completed: device, first byte, number.
    open: BTreeSet<(u32, u64, u64)>,
    /// Of `open`, what one event ends; empty between two.
    closing: Vec<(u32, u64, u64)>,
    /// A completion was seen; without any there is nothing to wait for.
    completions: bool,
    /// More than `PENDING_MAX` events came before any completion.
    no_completions: bool,
    /// Completions that ended no request.
    unmatched: u64,
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
            closing: Vec::new(),
            completions: false,
            no_completions: false,
            unmatched: 0,
        }
    }

    /// Completions that ended no request so far.
    pub(crate) fn unmatched(&self) -> u64 {
        self.unmatched
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

    /// Ends the requests that this event ends. A request that was queued in parts is completed as one, so
    /// all that were queued within it; of those issued, the latest for just these bytes, and only where
    /// there is none, those within. The latest, for one whose completion the trace has lost would take the next one's, that the one's after it,
    /// and so on; of several that really are outstanding the sum is the same.
    fn close(&mut self, event: &Event, requeued: bool) {
        let (from, end) = (event.extent.offset(), event.extent.end());
        let mut closing = std::mem::take(&mut self.closing);
        closing.clear();
        let slot_of = |key: &(u32, u64, u64)| self.pending.get((key.2 - self.first) as usize);
        // A flush has no place: it is found at 0.
        if self.arrival == Kind::Issue || event.op == Op::Flush {
            let here = self.open.range((event.device, from, 0)..=(event.device, from, u64::MAX)).rev();
            let same = |e: &Event| e.op == event.op && (e.op == Op::Flush || e.extent == event.extent);
            closing
                .extend(here.take(LOOK_MAX).find(|key| slot_of(key).is_some_and(|slot| same(&slot.event))));
        }
        if closing.is_empty() && event.op != Op::Flush {
            let within = (event.device, from, 0)..=(event.device, end.saturating_sub(1), u64::MAX);
            let inside = |e: &Event| e.op == event.op && e.extent.end() <= end;
            let found = self.open.range(within).take(LOOK_MAX);
            closing.extend(found.filter(|key| slot_of(key).is_some_and(|slot| inside(&slot.event))));
        }
        self.unmatched += u64::from(closing.is_empty() && !requeued);
        for key in &closing {
            self.open.remove(key);
            let slot = &mut self.pending[(key.2 - self.first) as usize];
            slot.state = if requeued { State::Gone } else { State::Done };
            slot.event.took = Some(Nanos(event.time.saturating_sub(slot.event.time))).into();
            if event.flags.contains(RecordFlags::FAILED) {
                slot.event.flags = slot.event.flags.with(RecordFlags::FAILED);
            }
        }
        self.closing = closing;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::sectors;

    /// An event: milliseconds, kind, operation, sector, sectors.
    type Given = (u64, Kind, Op, u64, u64);
    use Kind::{Complete, Issue, Queue, Requeue};
    use Op::{Flush, Read, Write};

    /// The requests that come out: when they arrived, where, and how long they took.
    fn matched(arrival: Kind, given: &[Given]) -> Vec<(u64, u64, Option<u64>)> {
        let mut matcher = Matcher::new(arrival);
        for &(time, kind, op, sector, count) in given {
            let extent = sectors(sector, count).expect("a small place");
            matcher.push(Event { kind, ..Event::request(time, op, extent, 0) });
        }
        let out = std::iter::from_fn(|| matcher.pop(true));
        let out = out.map(|e| (e.time, e.extent.offset() / 512, e.took.get().map(|t| t.0))).collect();
        assert!(matcher.open.is_empty() && matcher.pending.is_empty());
        out
    }

    #[test]
    fn what_was_queued_in_parts_is_completed_as_one() {
        let given = [
            (1, Queue, Read, 8, 8),
            (2, Queue, Read, 16, 8),
            (3, Queue, Read, 24, 8),
            (4, Issue, Read, 8, 16),
            (9, Complete, Read, 8, 16),
        ];
        assert_eq!(matched(Queue, &given), [(1, 8, Some(8)), (2, 16, Some(7)), (3, 24, None)]);
        assert_eq!(matched(Issue, &given), [(4, 8, Some(5))]);
        assert_eq!(matched(Complete, &given), [(9, 8, None)]);
    }

    #[test]
    fn of_two_alike_the_latest_is_completed_first() {
        let given = [
            (1, Issue, Read, 8, 8),
            (2, Issue, Write, 8, 8),
            (3, Issue, Read, 8, 8),
            (4, Issue, Read, 8, 16),
            (5, Complete, Read, 8, 8),
            (7, Complete, Read, 8, 16),
            (8, Complete, Read, 8, 8),
            (9, Complete, Write, 8, 8),
            // Of what was never issued.
            (9, Complete, Write, 8, 8),
        ];
        let want = [(1, 8, Some(7)), (2, 8, Some(7)), (3, 8, Some(2)), (4, 8, Some(3))];
        assert_eq!(matched(Issue, &given), want);
    }

    #[test]
    fn flushes_are_completed_one_by_one() {
        let given = [
            (1, Issue, Flush, 0, 0),
            (2, Issue, Flush, 0, 0),
            (5, Complete, Flush, 0, 0),
            (9, Complete, Flush, 0, 0),
        ];
        assert_eq!(matched(Issue, &given), [(1, 0, Some(8)), (2, 0, Some(3))]);
    }

    /// More than are looked at for one completion.
    #[test]
    fn a_lost_completion_costs_no_other_request_its_time() {
        for (op, sectors) in [(Read, 8), (Flush, 0)] {
            let issued = |i: u64| (10 * i, Issue, op, 0, sectors);
            let lost = |i: u64| i < 2 * LOOK_MAX as u64 || i.is_multiple_of(100);
            let all = 0..4 * LOOK_MAX as u64;
            let given: Vec<Given> = all
                .clone()
                .flat_map(|i| [Some(issued(i)), (!lost(i)).then_some((10 * i + 3, Complete, op, 0, sectors))])
                .flatten()
                .collect();
            let want: Vec<_> = all.map(|i| (10 * i, 0, (!lost(i)).then_some(3))).collect();
            assert_eq!(matched(Issue, &given), want, "{op:?}");
        }
    }

    #[test]
    fn a_large_request_completes_all_that_were_queued_for_it() {
        let mut given: Vec<Given> = (0..1024).map(|i| (i, Queue, Read, 8 * i, 8)).collect();
        given.push((2000, Complete, Read, 0, 8 * 1024));
        assert!(matched(Queue, &given).iter().all(|&(at, _, took)| took == Some(2000 - at)));
    }

    #[test]
    fn what_is_issued_again_counts_once() {
        let given = [
            (1, Issue, Read, 8, 8),
            (2, Requeue, Read, 8, 8),
            (3, Issue, Read, 8, 8),
            (5, Complete, Read, 8, 8),
        ];
        assert_eq!(matched(Issue, &given), [(3, 8, Some(2))]);
    }

    #[test]
    fn a_lost_completion_holds_nothing_up_for_ever() {
        let mut matcher = Matcher::new(Issue);
        let mut out = 0;
        let mut most = 0;
        for i in 0..3 * PENDING_MAX as u64 {
            let extent = sectors(8 * i, 8).expect("a small place");
            let event = |kind, time| Event { kind, ..Event::request(time, Read, extent, 0) };
            matcher.push(event(Issue, 2 * i));
            // The first is never completed.
            if i > 0 {
                matcher.push(event(Complete, 2 * i + 1));
            }
            while let Some(event) = matcher.pop(false) {
                assert_eq!((event.time, event.took.get().is_some()), (2 * out, out > 0));
                out += 1;
            }
            most = most.max(matcher.pending.len());
        }
        assert_eq!(most, PENDING_MAX);
        assert!(out > 2 * PENDING_MAX as u64 - 2);
    }

    #[test]
    fn without_completions_nothing_waits() {
        let mut matcher = Matcher::new(Issue);
        let mut out = 0;
        for i in 0..2 * PENDING_MAX as u64 {
            let extent = sectors(8, 8).expect("a small place");
            matcher.push(Event { kind: Issue, ..Event::request(i, Read, extent, 0) });
            while let Some(event) = matcher.pop(false) {
                assert_eq!((event.time, event.took.get()), (out, None));
                out += 1;
            }
        }
        assert_eq!(out, 2 * PENDING_MAX as u64);
        assert!(matcher.open.is_empty());
    }
}
