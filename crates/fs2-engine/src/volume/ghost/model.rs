//! Drives that are only reckoned with, and who waits for them.

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Chosen, Disk, DriveProfile, Queue, Scheduler};

/// A drive and who waits for it. It has a clock of its own.
#[derive(Clone, Debug)]
pub(super) struct Model {
    disk: Disk,
    /// Who waits for the drive, what the drive was given, and which of these it has begun with: as many at a time as the real one had.
    waiting: Queue,
    given: Queue,
    begun: Option<Chosen>,
    depth: usize,
    clock: Nanos,
}

/// One that was served.
pub(super) struct Served {
    pub(super) op: Op,
    /// How long it took the drive, and since it arrived.
    pub(super) service: Nanos,
    pub(super) response: Nanos,
}

impl Model {
    pub(super) fn new(profile: &DriveProfile, scheduler: Scheduler, age_max: Nanos) -> Model {
        Model {
            disk: Disk::new(profile.clone()),
            waiting: Queue::new(scheduler, Some(age_max)),
            given: Queue::new(Scheduler::Sptf, Some(age_max)),
            begun: None,
            depth: 1,
            clock: Nanos(0),
        }
    }

    pub(super) fn profile(&self) -> &DriveProfile {
        self.disk.profile()
    }

    /// From now on it is that drive, at its beginning.
    pub(super) fn becomes(&mut self, profile: DriveProfile) {
        self.disk = Disk::new(profile);
    }

    #[cfg(test)]
    pub(super) fn clock(&self) -> Nanos {
        self.clock
    }

    /// Requests that arrived and are not served, one at the least.
    pub(super) fn outstanding(&self) -> f64 {
        (self.waiting.len() + self.given.len() + usize::from(self.begun.is_some())).max(1) as f64
    }

    /// A request arrives, after nothing was outstanding for so long; its bytes lie at each of these places.
    pub(super) fn arrived(&mut self, rested: Nanos, op: Op, places: &[Sector], sectors: u32) {
        self.clock += rested;
        self.waiting.push(0, op, places, sectors, self.clock);
        self.give();
    }

    /// The drive is given what it has room for, and begins if it has nothing to do.
    fn give(&mut self) {
        while self.given.len() + usize::from(self.begun.is_some()) < self.depth
            && let Some(c) = self.waiting.pop(self.clock, &self.disk)
        {
            match self.begun {
                None => self.begun = Some(c),
                Some(_) => self.given.push(c.id, c.op, &[c.sector], c.sectors, c.arrival),
            }
        }
    }

    /// It serves the next, when the real drive has served one and had so many.
    pub(super) fn serve(&mut self, given: usize) -> Option<Served> {
        self.depth = self.depth.max(given);
        let next = self.begun.take()?;
        let begun = self.clock;
        self.clock = self.disk.serve(begun, next.op, next.sector, next.sectors).end();
        // It goes on at once with what it has; the volume sees the answer and gives it one more.
        self.begun = self.given.pop(self.clock, &self.disk);
        self.give();
        let (service, response) = (self.clock.since(begun), self.clock.since(next.arrival));
        Some(Served { op: next.op, service, response })
    }
}
