//! What an access took, and sums of such.

use fs2_block::{Nanos, Op};

use crate::profile::Power;

/// One access, decomposed as the paper does: T_A = T_s + T_r + T_t, and the command overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// What was asked.
    pub op: Op,
    /// When the drive began with it.
    pub start: Nanos,
    /// Command overhead (a solid-state drive's latency).
    pub overhead: Nanos,
    /// T_s: arm movement, with settling.
    pub seek: Nanos,
    /// T_r: waiting for the sector to come round.
    pub rotation: Nanos,
    /// T_t: passing the data, over the media or the bus, whichever is slower.
    pub transfer: Nanos,
    /// The read needed no positioning: its data was in the drive's cache or about to pass the head.
    pub cache_hit: bool,
}

impl Service {
    /// How long the access took: T_A.
    pub fn total(&self) -> Nanos {
        self.overhead + self.seek + self.rotation + self.transfer
    }

    /// When it ended.
    pub fn end(&self) -> Nanos {
        self.start + self.total()
    }

    /// Positioning time: seek and rotation.
    pub fn positioning(&self) -> Nanos {
        self.seek + self.rotation
    }
}

/// Energy as the paper reckons it: E_A = T_s·P_s + (T_r + T_t)·P_i, and idle time beside it.
///
/// Where reading, writing and idling differ, transfer counts with the power of reading or
/// writing, rotation and overhead with that of idling. Spinning down is not modelled.
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    power: Power,
    accesses: u64,
    seek_j: f64,
    rest_j: f64,
    idle_j: f64,
}

impl Energy {
    /// Nothing spent yet, at a drive's powers.
    pub fn new(power: Power) -> Energy {
        Energy { power, accesses: 0, seek_j: 0.0, rest_j: 0.0, idle_j: 0.0 }
    }

    /// Adds an access.
    pub fn add(&mut self, service: &Service) {
        let p = &self.power;
        let transfer_w = if service.op == Op::Read { p.read_w } else { p.write_w };
        self.accesses += 1;
        self.seek_j += service.seek.as_secs_f64() * p.seek_w;
        self.rest_j += service.transfer.as_secs_f64() * transfer_w
            + (service.rotation + service.overhead).as_secs_f64() * p.idle_w;
    }

    /// Adds time in which the drive had nothing to do.
    pub fn idle(&mut self, time: Nanos) {
        self.idle_j += time.as_secs_f64() * self.power.idle_w;
    }

    /// All energy in joules: accesses and idle time.
    pub fn joules(&self) -> f64 {
        self.access_joules() + self.idle_j
    }

    /// Energy of the accesses, joules.
    pub fn access_joules(&self) -> f64 {
        self.seek_j + self.rest_j
    }

    /// The part of [`Energy::access_joules`] spent moving the arm.
    pub fn seek_joules(&self) -> f64 {
        self.seek_j
    }

    /// Energy of idle time, joules.
    pub fn idle_joules(&self) -> f64 {
        self.idle_j
    }

    /// Accesses added.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Mean energy of an access, joules; 0 before the first.
    pub fn per_access(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.access_joules() / self.accesses as f64 }
    }
}

/// Sums of accesses, from which their means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Accesses.
    pub count: u64,
    /// Those of them that needed no positioning.
    pub hits: u64,
    /// Sum of overheads.
    pub overhead: Nanos,
    /// Sum of seeks.
    pub seek: Nanos,
    /// Sum of rotational waits.
    pub rotation: Nanos,
    /// Sum of transfers.
    pub transfer: Nanos,
}

impl Split {
    /// Adds an access.
    pub fn add(&mut self, s: &Service) {
        self.count += 1;
        self.hits += u64::from(s.cache_hit);
        self.overhead += s.overhead;
        self.seek += s.seek;
        self.rotation += s.rotation;
        self.transfer += s.transfer;
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Split) {
        self.count += other.count;
        self.hits += other.hits;
        self.overhead += other.overhead;
        self.seek += other.seek;
        self.rotation += other.rotation;
        self.transfer += other.transfer;
    }

    /// Time the drive was busy.
    pub fn total(&self) -> Nanos {
        self.overhead + self.seek + self.rotation + self.transfer
    }

    fn mean(&self, sum: Nanos) -> Nanos {
        Nanos(sum.0.checked_div(self.count).unwrap_or(0))
    }

    /// Mean T_A; 0 of none.
    pub fn mean_total(&self) -> Nanos {
        self.mean(self.total())
    }

    /// Mean T_s; 0 of none.
    pub fn mean_seek(&self) -> Nanos {
        self.mean(self.seek)
    }

    /// Mean T_r; 0 of none.
    pub fn mean_rotation(&self) -> Nanos {
        self.mean(self.rotation)
    }

    /// Mean T_t; 0 of none.
    pub fn mean_transfer(&self) -> Nanos {
        self.mean(self.transfer)
    }

    /// Mean overhead; 0 of none.
    pub fn mean_overhead(&self) -> Nanos {
        self.mean(self.overhead)
    }
}
