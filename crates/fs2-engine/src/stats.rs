//! Counters and times of a volume since its attach.

use std::fmt;

use fs2_block::{Extent, Nanos, Op};

/// Where the free share stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkState {
    /// Copies are made.
    Copying,
    /// Between low and high after having been below low: no copies yet.
    Suspended,
    /// Below low: the least valuable replicas go.
    Low,
    /// Below critical: whole regions go.
    Critical,
}

/// Times in a histogram of 8 steps an octave from 1 µs: a quantile is right within 9 %.
#[derive(Clone, Debug)]
pub struct Times {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
}

const STEPS: u64 = 8;

impl Default for Times {
    fn default() -> Times {
        Times { counts: vec![0; 36 * STEPS as usize], count: 0, sum: 0 }
    }
}

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Nanos) {
        self.count += 1;
        self.sum += u128::from(time.0);
        let us = time.0 / 1000;
        let slot = if us < STEPS {
            us
        } else {
            let octave = u64::from(us.ilog2());
            (octave - 2) * STEPS + (us >> (octave - 3)) - STEPS
        };
        let last = self.counts.len() - 1;
        self.counts[(slot as usize).min(last)] += 1;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn total(&self) -> Nanos {
        Nanos(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// How many took less than `2^octave` µs, for `octave` from 0 to 38.
    pub fn below(&self, octave: u32) -> u64 {
        let octave = u64::from(octave);
        let slots = if octave < 4 { 1 << octave } else { (octave - 2) * STEPS };
        self.counts.iter().take(slots as usize).sum()
    }

    /// Their mean, 0 where there is none.
    pub fn mean(&self) -> Nanos {
        Nanos((self.sum / u128::from(self.count.max(1))) as u64)
    }

    /// The time that `share` (0 to 1) of them do not exceed, 0 where there is none.
    pub fn quantile(&self, share: f64) -> Nanos {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (slot, &n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank && n > 0 {
                let slot = slot as u64;
                let us = if slot < STEPS {
                    slot + 1
                } else {
                    let octave = slot / STEPS + 2;
                    (slot % STEPS + STEPS + 1) << (octave - 3)
                };
                return Nanos(us * 1000);
            }
        }
        Nanos(0)
    }
}

/// Predicted parts of the accesses, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Modelled {
    /// Accesses predicted.
    pub count: u64,
    /// Seek.
    pub seek: u128,
    /// Rotational latency.
    pub rotation: u128,
    /// Transfer and overhead.
    pub transfer: u128,
}

/// Accesses of the volume's device, by part of the volume: each part a [`Parts::COUNT`]th of its bytes.
#[derive(Clone, Debug)]
pub struct Parts {
    bytes: u64,
    counts: Box<[[u64; Parts::COUNT]; 4]>,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { bytes: 1, counts: Box::new([[0; Parts::COUNT]; 4]) }
    }
}

/// What an access was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A client's read, where the file system put its blocks.
    Read,
    /// A client's read, at a replica.
    ReplicaRead,
    /// A client's write.
    Write,
    /// The engine's own, for its replicas and its table.
    Own,
}

impl Parts {
    /// Parts of a volume.
    pub const COUNT: usize = 64;

    pub(crate) fn of(volume_bytes: u64) -> Parts {
        Parts { bytes: volume_bytes.div_ceil(Parts::COUNT as u64).max(1), ..Parts::default() }
    }

    pub(crate) fn add(&mut self, kind: AccessKind, offset: u64) {
        let part = (offset / self.bytes) as usize;
        self.counts[kind as usize][part.min(Parts::COUNT - 1)] += 1;
    }

    /// Accesses of this kind since the attach, by the part in which they began.
    pub fn counts(&self, kind: AccessKind) -> &[u64; Parts::COUNT] {
        &self.counts[kind as usize]
    }
}

/// What the engine's own work in short pauses costs clients' requests, or in rests where that is too much, lately; older sums are halved now and then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PauseWork {
    /// It goes on: else it waits for long rests until the sums allow it again.
    pub allowed: bool,
    /// What it cost, in ms, waits and the head's way.
    pub cost_ms: f64,
    /// What it may cost, in ms.
    pub limit_ms: f64,
}

/// Whether copies are read: where reads take longer than a model of plain ext2 beside the volume says, they are not for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaGate {
    /// Reads until copies are read again; 0: they are read.
    pub closed_for: u64,
    /// How often reading them was stopped since the attach.
    pub closings: u64,
}

/// Reads of a control sample and what they took, dispatch to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// How many.
    pub reads: u64,
    /// Their mean, in ms; `None` of none.
    pub mean_ms: Option<f64>,
    /// The mean is right within so many ms, with 95 % confidence; `None` of less than two runs.
    pub error_ms: Option<f64>,
}

/// What reads that have a copy take, by where they were served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Control {
    /// One run of reads in so many was sent to its originals; 0: none is.
    pub every: u16,
    /// Runs served as the policy chose: from copies, or from originals where these were cheaper.
    pub chosen: Sample,
    /// Runs served from originals, whatever it would have chosen.
    pub home: Sample,
}

/// A client's request that was answered with an error of what is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was asked for.
    pub op: Op,
    /// Where; empty for a flush.
    pub extent: Extent,
    /// The error answered.
    pub errno: i32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.op {
            Op::Read => "a read",
            Op::Write => "a write",
            Op::WriteZeroes | Op::Punch => "write-zeroes",
            Op::Discard => "a discard",
            Op::Flush => "a flush",
        };
        f.write_str(what)?;
        if !self.extent.is_empty() {
            write!(f, " of {} bytes at byte {}", self.extent.len(), self.extent.offset())?;
        }
        write!(f, ": {}", std::io::Error::from_raw_os_error(self.errno))
    }
}

/// Requests of clients that were answered with an error of what is below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// Reads.
    pub reads: u64,
    /// Writes, write-zeroes and discards.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// The last of them all.
    pub last: Option<Failure>,
    /// The first that was no read: why no mark can follow.
    pub first_change: Option<Failure>,
}

impl Failed {
    pub(crate) fn add(&mut self, failure: Failure) {
        let count = match failure.op {
            Op::Read => &mut self.reads,
            Op::Flush => &mut self.flushes,
            Op::Write | Op::WriteZeroes | Op::Discard | Op::Punch => &mut self.writes,
        };
        *count += 1;
        self.last = Some(failure);
        if failure.op != Op::Read {
            self.first_change.get_or_insert(failure);
        }
    }
}

/// Counters and times since the attach.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Reads of clients.
    pub reads: u64,
    /// Of these, served from a copy.
    pub reads_from_replica: u64,
    /// Writes and write-zeroes of clients.
    pub writes: u64,
    /// Bytes that clients asked to read.
    pub read_bytes: u64,
    /// Bytes that clients asked to write or to zero.
    pub write_bytes: u64,
    /// Discards of clients.
    pub discards: u64,
    /// Flushes of clients.
    pub flushes: u64,
    /// What clients got errors for.
    pub failed: Failed,
    /// Blocks copied and published.
    pub copies_written: u64,
    /// Blocks copied in vain: what they were made from changed meanwhile, or belongs to no file.
    pub copies_void: u64,
    /// Accesses of the engine's own begun beside open requests.
    pub beside: u64,
    /// Copies that failed below.
    pub copy_errors: u64,
    /// Replicas dropped because a write, a discard or a bitmap touched original or replica, or a bitmap that was read calls the
    /// original free or the replica taken.
    pub invalidated: u64,
    /// Replicas dropped to give space back or to make room.
    pub reclaimed: u64,
    /// Replica reads whose content had another hash.
    pub hash_mismatches: u64,
    /// Replica reads that failed below; what else holds their blocks was read.
    pub replica_errors: u64,
    /// Reads whose original failed below and that were answered from a replica.
    pub original_errors: u64,
    /// Entries verified against their original in this session.
    pub verified: u64,
    /// Unverified entries whose original had another hash.
    pub refuted: u64,
    /// Table pages written.
    pub table_pages_written: u64,
    /// Table or mark writes that failed.
    pub table_errors: u64,
    /// Blocks that joined F by discards.
    pub discarded_blocks: u64,
    /// Bitmap writes that claimed a block being copied into (R3).
    pub claims_waited: u64,
    /// Writes that found their block being copied into or read as a replica.
    pub writes_waited: u64,
    /// Dispatch to completion of clients' reads.
    pub read_access: Times,
    /// Dispatch to completion of clients' writes.
    pub write_access: Times,
    /// Arrival to dispatch of clients' reads, all together.
    pub read_wait: Nanos,
    /// What reading copies instead of originals saved, as predicted at each choice, all together.
    pub saved: Nanos,
    /// Where the accesses were.
    pub parts: Parts,
    /// Predicted parts of clients' accesses, by the profile given.
    pub modelled: Modelled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near() {
        let mut t = Times::default();
        for us in 1..=10_000u64 {
            t.add(Nanos(us * 1000));
        }
        assert_eq!(t.count(), 10_000);
        assert_eq!(t.mean(), Nanos(5_000_500));
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let (got, want) = (t.quantile(share).0 as f64, share * 1e7);
            assert!(got >= want * 0.999 && got <= want * 1.14, "{share}: {got} against {want}");
        }
        assert_eq!(Times::default().quantile(0.99), Nanos(0));
        t.add(Nanos(u64::MAX));
    }

    /// Half a day of reads from a host's page cache, 100,000 a second that all take as long.
    #[test]
    fn months_of_requests_are_counted() {
        let mut t = Times::default();
        t.add(Nanos(5000));
        t.counts[5] = u32::MAX.into();
        t.add(Nanos(5000));
        assert_eq!(t.below(3), 1 << 32);
        assert_eq!(t.quantile(0.5), Nanos(6000));
    }

    #[test]
    fn octaves_begin_where_they_should() {
        let mut t = Times::default();
        (0..5000u64).for_each(|us| t.add(Nanos(us * 1000 + 999)));
        for octave in 0..=12 {
            assert_eq!(t.below(octave), 1 << octave, "below 2^{octave} µs");
        }
        assert_eq!((t.below(13), t.below(38)), (5000, 5000));
        t.add(Nanos(u64::MAX));
        assert_eq!((t.below(37), t.below(38)), (5000, 5001), "the last slot holds all that is longer");
    }

    #[test]
    fn an_access_counts_where_it_begins() {
        let mut parts = Parts::of(6400);
        for offset in [0, 99, 100, 6399, u64::MAX] {
            parts.add(AccessKind::Write, offset);
        }
        let counts = parts.counts(AccessKind::Write);
        assert_eq!((counts[0], counts[1], counts[63]), (2, 1, 2));
        assert_eq!(parts.counts(AccessKind::Own), &[0; 64]);
        Parts::of(0).add(AccessKind::Read, 5);
    }
}
