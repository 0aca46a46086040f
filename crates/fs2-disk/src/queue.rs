//! The request queue: which request goes next, and to which of its copies.
//!
//! * Q1: every request pushed is popped once, or removed.
//! * Q2: where requests are older than the age bound, the oldest goes first, one time in [`OVERDUE_EVERY`].
//! * Q3: equal requests go in the order in which they were pushed, equal copies as they were listed.

use std::collections::VecDeque;

use fs2_block::{Nanos, Op, Sector};

use crate::disk::Disk;
use crate::head::Head;

/// How the next request is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// In order of arrival.
    Fcfs,
    /// The shortest distance in sectors from the head, either way.
    Sstf,
    /// Upwards from where the last request ended; from the top back to the lowest.
    CLook,
    /// The shortest positioning time (seek and rotation), as the predictor has it.
    Sptf,
}

impl Scheduler {
    /// All, in the order in which reports list them.
    pub const ALL: [Scheduler; 4] = [Scheduler::Fcfs, Scheduler::Sstf, Scheduler::CLook, Scheduler::Sptf];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Scheduler::Fcfs => "fcfs",
            Scheduler::Sstf => "sstf",
            Scheduler::CLook => "c-look",
            Scheduler::Sptf => "sptf",
        }
    }

    /// How many of the oldest requests are compared: where a trace overloads a drive, the queue
    /// grows without bound, and comparing all would take quadratic time. Guesses; a drive's own
    /// queue has 32 or 256 places.
    fn window(self) -> usize {
        match self {
            Scheduler::Fcfs => 1,
            Scheduler::Sstf | Scheduler::CLook => 1024,
            Scheduler::Sptf => 256,
        }
    }
}

impl std::str::FromStr for Scheduler {
    type Err = String;

    fn from_str(s: &str) -> Result<Scheduler, String> {
        let found = Scheduler::ALL.into_iter().find(|k| k.name() == s || k.name().replace('-', "") == s);
        found.ok_or_else(|| {
            let names: Vec<_> = Scheduler::ALL.iter().map(|k| k.name()).collect();
            format!("no scheduler is called `{s}`; there are {}", names.join(", "))
        })
    }
}

/// Of so many requests one may go first because it is overdue. Where more are, the drive has more to do than it can, and in order of
/// arrival it would do less still. As many as the kernel's mq-deadline takes in the order of sectors (`fifo_batch`).
const OVERDUE_EVERY: u32 = 16;

/// Whether another request may go first because of its age.
#[derive(Clone, Copy, Debug)]
pub struct Overdue {
    /// Requests that went since one did.
    since: u32,
}

impl Default for Overdue {
    fn default() -> Overdue {
        Overdue { since: OVERDUE_EVERY }
    }
}

impl Overdue {
    /// Whether one may.
    pub fn may_go_first(&self) -> bool {
        self.since >= OVERDUE_EVERY
    }

    /// One does, or is waited for.
    pub fn goes_first(&mut self) {
        self.since = 0;
    }

    /// A request went, whichever.
    pub fn went(&mut self) {
        self.since = self.since.saturating_add(1);
    }
}

/// What a scheduler asks of a drive, or of a belief about one.
pub trait Positioning {
    /// Where the head is, or is believed to be, at `now`.
    fn position(&self, now: Nanos) -> Sector;
    /// Seek and rotation of an access that begins at `now`; 0 where the cache has it.
    fn positioning(&self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Nanos;
}

impl Positioning for Disk {
    fn position(&self, now: Nanos) -> Sector {
        Disk::position(self, now)
    }

    fn positioning(&self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Nanos {
        self.predict(now, op, sector, sectors).positioning()
    }
}

impl Positioning for Head {
    fn position(&self, now: Nanos) -> Sector {
        Head::position(self, now)
    }

    fn positioning(&self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Nanos {
        self.predict(now, op, sector, sectors).positioning()
    }
}

/// A request chosen by [`Queue::pop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// As given to [`Queue::push`].
    pub id: u64,
    /// As pushed.
    pub op: Op,
    /// Number of the copy chosen, in the order pushed.
    pub copy: usize,
    /// Where that copy begins.
    pub sector: Sector,
    /// As pushed.
    pub sectors: u32,
    /// As pushed.
    pub arrival: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    op: Op,
    sectors: u32,
    arrival: Nanos,
    /// Order of arrival.
    number: u64,
    copies: u8,
    at: [Sector; Queue::COPIES_MAX],
}

impl Entry {
    fn copies(&self) -> &[Sector] {
        &self.at[..usize::from(self.copies)]
    }

    fn chosen(&self, copy: usize) -> Chosen {
        let Entry { id, op, sectors, arrival, .. } = *self;
        Chosen { id, op, copy, sector: self.at[copy], sectors, arrival }
    }
}

/// Requests that wait for the drive, each with the places where its data lies.
///
/// Storage is reused: once the queue was as long as it gets, nothing is allocated.
#[derive(Clone, Debug)]
pub struct Queue {
    scheduler: Scheduler,
    age_max: Option<Nanos>,
    /// The requests compared, in no order; empty for FCFS.
    window: Vec<Entry>,
    /// Those behind them, in order of arrival; for FCFS all.
    backlog: VecDeque<Entry>,
    pushed: u64,
    /// One past the last sector chosen, for C-LOOK.
    swept: Sector,
    overdue: Overdue,
}

impl Queue {
    /// Copies a request may have; those beyond are not considered.
    pub const COPIES_MAX: usize = 8;

    /// An empty queue. A request that has waited for longer than `age_max` goes first, one in 16; with
    /// `None` a request may wait for ever (SSTF and SPTF do starve).
    pub fn new(scheduler: Scheduler, age_max: Option<Nanos>) -> Queue {
        Queue {
            scheduler,
            age_max,
            window: Vec::new(),
            backlog: VecDeque::new(),
            pushed: 0,
            swept: Sector(0),
            overdue: Overdue::default(),
        }
    }

    /// The scheduler.
    pub fn scheduler(&self) -> Scheduler {
        self.scheduler
    }

    /// Requests waiting.
    pub fn len(&self) -> usize {
        self.window.len() + self.backlog.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.window.is_empty() && self.backlog.is_empty()
    }

    /// Adds a request for `sectors` sectors that lie at each of `copies`. `arrival` must not fall.
    ///
    /// # Panics
    /// Without any copy.
    pub fn push(&mut self, id: u64, op: Op, copies: &[Sector], sectors: u32, arrival: Nanos) {
        assert!(!copies.is_empty(), "request {id} has no place");
        let count = copies.len().min(Queue::COPIES_MAX);
        let mut at = [Sector(0); Queue::COPIES_MAX];
        at[..count].copy_from_slice(&copies[..count]);
        let entry = Entry { id, op, sectors, arrival, number: self.pushed, copies: count as u8, at };
        self.pushed += 1;
        if self.scheduler == Scheduler::Fcfs || self.window.len() >= self.scheduler.window() {
            self.backlog.push_back(entry);
        } else {
            self.window.push(entry);
        }
    }

    /// Takes the request that goes next if the drive is free at `now`.
    pub fn pop(&mut self, now: Nanos, drive: &impl Positioning) -> Option<Chosen> {
        let chosen = match self.scheduler {
            Scheduler::Fcfs => {
                let entry = self.backlog.pop_front()?;
                entry.chosen(quickest(&entry, now, drive))
            }
            _ => {
                let (index, copy) = match self.window.len() {
                    0 => return None,
                    1 => (0, self.best_copy(&self.window[0], now, drive)),
                    _ => match self.oldest_overdue(now).filter(|_| self.overdue.may_go_first()) {
                        Some(i) => {
                            self.overdue.goes_first();
                            (i, self.best_copy(&self.window[i], now, drive))
                        }
                        None => self.best(now, drive),
                    },
                };
                self.overdue.went();
                let entry = self.window.swap_remove(index);
                self.window.extend(self.backlog.pop_front());
                entry.chosen(copy)
            }
        };
        self.swept = Sector(chosen.sector.0.saturating_add(u64::from(chosen.sectors)));
        Some(chosen)
    }

    /// Takes a request out that is not to be served any more; whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        if let Some(i) = self.window.iter().position(|e| e.id == id) {
            self.window.swap_remove(i);
            self.window.extend(self.backlog.pop_front());
            return true;
        }
        let found = self.backlog.iter().position(|e| e.id == id);
        found.is_some_and(|i| self.backlog.remove(i).is_some())
    }

    /// What a copy costs: least goes first.
    fn cost(&self, entry: &Entry, sector: Sector, head: Sector, now: Nanos, drive: &impl Positioning) -> u64 {
        match self.scheduler {
            Scheduler::Fcfs => entry.number,
            Scheduler::Sstf => sector.0.abs_diff(head.0),
            // What lies behind the sweep comes after all that lies before it.
            Scheduler::CLook => sector.0.wrapping_sub(self.swept.0),
            Scheduler::Sptf => drive.positioning(now, entry.op, sector, entry.sectors).0,
        }
    }

    fn best_copy(&self, entry: &Entry, now: Nanos, drive: &impl Positioning) -> usize {
        if entry.copies == 1 {
            return 0;
        }
        let head = self.head(now, drive);
        let costs = entry.copies().iter().map(|s| self.cost(entry, *s, head, now, drive));
        costs.enumerate().min_by_key(|(_, cost)| *cost).map_or(0, |(i, _)| i)
    }

    fn head(&self, now: Nanos, drive: &impl Positioning) -> Sector {
        if self.scheduler == Scheduler::Sstf { drive.position(now) } else { Sector(0) }
    }

    /// Keeps Q2. The backlog holds younger ones only.
    fn oldest_overdue(&self, now: Nanos) -> Option<usize> {
        let age_max = self.age_max?;
        let oldest = self.window.iter().enumerate().min_by_key(|(_, e)| e.number);
        oldest.filter(|(_, e)| now.since(e.arrival) > age_max).map(|(i, _)| i)
    }

    /// Index in the window, and copy.
    fn best(&self, now: Nanos, drive: &impl Positioning) -> (usize, usize) {
        let head = self.head(now, drive);
        let mut best = ((u64::MAX, u64::MAX), 0, 0);
        for (i, e) in self.window.iter().enumerate() {
            for (copy, sector) in e.copies().iter().enumerate() {
                // Keeps Q3.
                let cost = (self.cost(e, *sector, head, now, drive), e.number);
                if cost < best.0 {
                    best = (cost, i, copy);
                }
            }
        }
        (best.1, best.2)
    }
}

/// The copy soonest reached.
fn quickest(entry: &Entry, now: Nanos, drive: &impl Positioning) -> usize {
    if entry.copies == 1 {
        return 0;
    }
    let times = entry.copies().iter().map(|s| drive.positioning(now, entry.op, *s, entry.sectors));
    times.enumerate().min_by_key(|(_, time)| *time).map_or(0, |(i, _)| i)
}
