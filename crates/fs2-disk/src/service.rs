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
/// writing, rotation and overhead with that of idling. What a drive does by itself is added by
/// [`Energy::finish`].
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    power: Power,
    accesses: u64,
    seek_j: f64,
    rest_j: f64,
    idle_j: f64,
    background_j: f64,
    standby_j: f64,
    spin_up_j: f64,
    /// Time of the accesses.
    busy: Nanos,
}

impl Energy {
    /// Nothing spent yet, at a drive's powers.
    pub fn new(power: Power) -> Energy {
        Energy {
            power,
            accesses: 0,
            seek_j: 0.0,
            rest_j: 0.0,
            idle_j: 0.0,
            background_j: 0.0,
            standby_j: 0.0,
            spin_up_j: 0.0,
            busy: Nanos(0),
        }
    }

    /// Adds an access.
    pub fn add(&mut self, service: &Service) {
        let p = &self.power;
        let transfer_w = if service.op == Op::Read { p.read_w } else { p.write_w };
        self.accesses += 1;
        self.busy += service.total();
        self.seek_j += service.seek.as_secs_f64() * p.seek_w;
        self.rest_j += service.transfer.as_secs_f64() * transfer_w
            + (service.rotation + service.overhead).as_secs_f64() * p.idle_w;
    }

    /// Adds time in which the drive had nothing to do.
    pub fn idle(&mut self, time: Nanos) {
        self.idle_j += time.as_secs_f64() * self.power.idle_w;
    }

    /// Accounts for the rest of `span`, the time from the drive's start to its end: what the drive
    /// did by itself (`activity`), and idling in between. Call once, after the last access.
    ///
    /// Background writes are taken out of the idle time. What they overlap accesses by, which waited for
    /// them or were answered from the cache meanwhile, those have paid as idling: where idle time has
    /// none left to give, it is taken off the background's energy, and no moment is paid twice.
    pub fn finish(&mut self, span: Nanos, activity: &Activity) {
        let p = self.power;
        let b = &activity.background;
        let spin_up_w = p.spin_up_w.unwrap_or(p.idle_w);
        let background_j = b.seek.as_secs_f64() * p.seek_w
            + b.rotation.as_secs_f64() * p.idle_w
            + b.transfer.as_secs_f64() * p.write_w;
        let twice = (self.busy + b.total() + activity.standby).since(span).min(b.total());
        self.background_j = (background_j - twice.as_secs_f64() * p.idle_w).max(0.0);
        self.standby_j = activity.standby.as_secs_f64() * p.standby_w.unwrap_or(p.idle_w);
        // The access that waited for it has paid for idling in that time.
        self.spin_up_j = activity.spinning_up.as_secs_f64() * (spin_up_w - p.idle_w).max(0.0);
        self.idle(span - self.busy - b.total() - activity.standby);
    }

    /// All energy in joules: accesses, idle time, and what was added by [`Energy::finish`].
    pub fn joules(&self) -> f64 {
        self.access_joules() + self.idle_j + self.background_j + self.standby_j + self.spin_up_j
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

    /// Energy of writing from the drive's write cache in the background, joules.
    pub fn background_joules(&self) -> f64 {
        self.background_j
    }

    /// Energy of time spun down, joules.
    pub fn standby_joules(&self) -> f64 {
        self.standby_j
    }

    /// What spinning up took beyond idling for that time, joules.
    pub fn spin_up_joules(&self) -> f64 {
        self.spin_up_j
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

    /// What came to it after it was `before`.
    pub fn since(&self, before: &Split) -> Split {
        Split {
            count: self.count.saturating_sub(before.count),
            hits: self.hits.saturating_sub(before.hits),
            overhead: self.overhead - before.overhead,
            seek: self.seek - before.seek,
            rotation: self.rotation - before.rotation,
            transfer: self.transfer - before.transfer,
        }
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
}

/// What a drive did beside serving: see [`crate::Disk::activity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Every use of the platters, in the foreground and in the background: arm, waiting for the
    /// sector, and passing it, without overheads and the bus.
    pub media: Split,
    /// Those of them that wrote in the background what the write cache held.
    pub background: Split,
    /// Time spun down.
    pub standby: Nanos,
    /// How often it spun up again.
    pub spin_ups: u64,
    /// How long that took; an access that waited for it counts it as overhead.
    pub spinning_up: Nanos,
}

impl Activity {
    /// What came to it after it was `before`.
    pub fn since(&self, before: &Activity) -> Activity {
        Activity {
            media: self.media.since(&before.media),
            background: self.background.since(&before.background),
            standby: self.standby - before.standby,
            spin_ups: self.spin_ups.saturating_sub(before.spin_ups),
            spinning_up: self.spinning_up - before.spinning_up,
        }
    }
}
