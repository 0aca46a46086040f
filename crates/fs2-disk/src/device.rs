//! A drive that takes several commands at a time and serves them in the order it likes.

use fs2_block::{Nanos, Op, Sector};

use crate::disk::Disk;
use crate::queue::{Queue, Scheduler};
use crate::service::Service;

/// A [`Disk`] behind a command queue (tagged or native command queueing): the host sends up to
/// `depth` commands, and the drive, which knows where its head is, takes the one soonest reached.
#[derive(Clone, Debug)]
pub struct Device {
    disk: Disk,
    queue: Queue,
    depth: usize,
}

/// A command may be passed over for this long. Guess: drives are said to bound it by some seconds.
const AGE_MAX: Nanos = Nanos::from_millis(2000);

impl Device {
    /// A drive at rest that takes `depth` commands at a time and chooses by positioning time.
    /// With a depth of 1 it is the [`Disk`].
    ///
    /// # Panics
    /// With a depth of 0.
    pub fn new(disk: Disk, depth: usize) -> Device {
        assert!(depth > 0, "a command queue of depth 0");
        Device { disk, queue: Queue::new(Scheduler::Sptf, Some(AGE_MAX)), depth }
    }

    /// The drive behind the queue.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Commands the drive would still take at `now`; the one being served counts.
    pub fn room(&self, now: Nanos) -> usize {
        self.depth.saturating_sub(self.queue.len() + usize::from(self.disk.free_at() > now))
    }

    /// Sends a command; `now` must not fall.
    ///
    /// # Panics
    /// Without [`Device::room`].
    pub fn submit(&mut self, now: Nanos, id: u64, op: Op, sector: Sector, sectors: u32) {
        assert!(self.room(now) > 0, "a command queue of depth {} is full", self.depth);
        self.queue.push(id, op, &[sector], sectors, now);
    }

    /// Begins the next command if the drive is free at `now` and has one: its number and what it
    /// takes. Call again at [`Service::end`].
    pub fn start(&mut self, now: Nanos) -> Option<(u64, Service)> {
        if self.disk.free_at() > now {
            return None;
        }
        let c = self.queue.pop(now, &self.disk)?;
        Some((c.id, self.disk.serve(now, c.op, c.sector, c.sectors)))
    }
}
