//! A modelled drive in real time: each request ends when the drive would have ended it.
//!
//! D1: the drive serves one request at a time, in the order in which the requests took their turns; a
//!     request's command reaches it when it took its turn.
//! D2: the real I/O is done while the drive is busy with the request, alone, so that the backing sees the
//!     same order.
//! D3: the modelled clock runs on its own: real I/O that overruns makes a request late (and counted), and
//!     changes no modelled time of those behind it.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs2_block::{Extent, Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Energy, Service, Split};
use nix::errno::Errno;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::store::{check_range, check_read};
use crate::{ModelTotals, Store};

/// A request as the modelled drive saw it; times are modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When the command reached the drive.
    pub arrival: Nanos,
    /// First sector, on the drive.
    pub sector: Sector,
    /// Sectors.
    pub sectors: u32,
    /// What it took.
    pub service: Service,
}

/// Told of each request in the order of service, before its real I/O.
pub type Observer = Box<dyn Fn(&Served) + Send + Sync>;

/// A modelled drive in real time over another store, which should be much faster than the model (a file
/// in memory, say).
///
/// It has no write cache: a write takes its time on the medium, and a flush costs nothing but waiting for
/// what was asked before it. Write-zeroes cost what a write of that length costs, discards nothing.
pub struct DelayStore<S> {
    inner: S,
    profile: DriveProfile,
    first: Sector,
    clock: Clock,
    queue: Mutex<Queue>,
    turn: Condvar,
    observer: Option<Observer>,
}

struct Queue {
    disk: Disk,
    energy: Energy,
    split: Split,
    reads: u64,
    writes: u64,
    late: u64,
    next_ticket: u64,
    serving: u64,
}

impl<S: Store> DelayStore<S> {
    /// The drive over `inner`, its sector 0 at byte 0. One modelled second takes `time_scale` real ones:
    /// 1 is real time, 0.1 ten times as fast. With 0 nobody ever waits: a request arrives when the one
    /// before it ended, so that modelled times are the same in every run.
    ///
    /// # Panics
    /// Where `time_scale` is negative or not finite.
    pub fn new(inner: S, disk: Disk, time_scale: f64) -> DelayStore<S> {
        assert!(time_scale.is_finite() && time_scale >= 0.0, "a time scale of {time_scale}");
        let profile = disk.profile().clone();
        let energy = Energy::new(profile.power());
        DelayStore {
            inner,
            profile,
            first: Sector(0),
            clock: Clock { origin_ns: monotonic_ns(), scale: time_scale },
            queue: Mutex::new(Queue {
                disk,
                energy,
                split: Split::default(),
                reads: 0,
                writes: 0,
                late: 0,
                next_ticket: 0,
                serving: 0,
            }),
            turn: Condvar::new(),
            observer: None,
        }
    }

    /// Puts byte 0 on this sector of the drive, as a partition would be.
    pub fn at_sector(self, first: Sector) -> DelayStore<S> {
        DelayStore { first, ..self }
    }

    /// Tells `observer` of every request.
    pub fn observed_by(self, observer: Observer) -> DelayStore<S> {
        DelayStore { observer: Some(observer), ..self }
    }

    /// What lies below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The drive's profile.
    pub fn profile(&self) -> &DriveProfile {
        &self.profile
    }

    /// Real seconds to a modelled one.
    pub fn time_scale(&self) -> f64 {
        self.clock.scale
    }

    /// The modelled time: since the store was made.
    pub fn now(&self) -> Nanos {
        self.clock.now(&self.queue().disk)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a turn: the arrival's time, and the turn once it has come.
    fn take_turn(&self) -> (Nanos, Turn<'_, S>) {
        let mut queue = self.queue();
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        let arrival = self.clock.now(&queue.disk);
        while queue.serving != ticket {
            queue = self.turn.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        (arrival, Turn(self))
    }

    fn served(&self, op: Op, at: Extent, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if at.is_empty() {
            return run();
        }
        let (arrival, turn) = self.take_turn();
        let end = self.serve(arrival, op, at);
        let result = run();
        if self.clock.sleep_until(end) {
            self.queue().late += 1;
        }
        drop(turn);
        result
    }

    /// Lets the drive do it; when it ends. What is longer than a command can say is several commands.
    fn serve(&self, arrival: Nanos, op: Op, at: Extent) -> Nanos {
        let mut sector = Sector(self.first.0 + at.sector().0);
        let mut left = at.sectors();
        let mut end = arrival;
        while left > 0 {
            let sectors = u32::try_from(left).unwrap_or(u32::MAX);
            let mut queue = self.queue();
            let service = queue.disk.serve(arrival, op, sector, sectors);
            queue.energy.add(&service);
            queue.split.add(&service);
            if op == Op::Read {
                queue.reads += 1;
            } else {
                queue.writes += 1;
            }
            drop(queue);
            if let Some(observer) = &self.observer {
                observer(&Served { arrival, sector, sectors, service });
            }
            end = service.end();
            sector.0 += u64::from(sectors);
            left -= u64::from(sectors);
        }
        end
    }
}

/// Gives the turn on when dropped, also when the request panics.
struct Turn<'a, S: Store>(&'a DelayStore<S>);

impl<S: Store> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        self.0.queue().serving += 1;
        self.0.turn.notify_all();
    }
}

impl<S: Store> Store for DelayStore<S> {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.inner)
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_read(self.size_bytes(), offset, buf.len())?;
        let at = Extent::new(offset, buf.len() as u64);
        self.served(Op::Read, at, || self.inner.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        check_range(self.size_bytes(), offset, buf.len() as u64)?;
        let at = Extent::new(offset, buf.len() as u64);
        self.served(Op::Write, at, || self.inner.write_at(offset, buf, fua))
    }

    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        check_range(self.size_bytes(), offset, len)?;
        let at = Extent::new(offset, len);
        self.served(Op::WriteZeroes, at, || self.inner.write_zeroes(offset, len, no_hole))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let (_, _turn) = self.take_turn();
        self.inner.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        drop(self.take_turn());
        self.inner.flush()
    }

    fn rotational(&self) -> bool {
        self.profile.rotational()
    }

    fn queue_depth(&self) -> Option<u32> {
        // D1
        Some(1)
    }

    fn modelled(&self) -> Option<ModelTotals> {
        let queue = self.queue();
        let busy = queue.split.total();
        let span = self.clock.now(&queue.disk).max(queue.disk.free_at());
        let mut energy = queue.energy.clone();
        energy.idle(span - busy);
        Some(ModelTotals {
            reads: queue.reads,
            writes: queue.writes,
            cache_hits: queue.split.hits,
            overhead_ns: queue.split.overhead.0,
            seek_ns: queue.split.seek.0,
            rotation_ns: queue.split.rotation.0,
            transfer_ns: queue.split.transfer.0,
            busy_ns: busy.0,
            span_ns: span.0,
            energy_joules: energy.joules(),
            late: queue.late,
        })
    }
}

/// Modelled time from the machine's.
struct Clock {
    origin_ns: u64,
    scale: f64,
}

/// A sleeper wakes up to this much late (timer slack of 50 µs and the scheduler): the rest is spun.
const SPIN_NS: u64 = 100_000;

impl Clock {
    fn now(&self, disk: &Disk) -> Nanos {
        if self.scale == 0.0 {
            return disk.free_at();
        }
        Nanos(((monotonic_ns() - self.origin_ns) as f64 / self.scale) as u64)
    }

    /// Sleeps until a modelled time; whether that had passed already.
    fn sleep_until(&self, modelled: Nanos) -> bool {
        if self.scale == 0.0 {
            return false;
        }
        let target = self.origin_ns + (modelled.0 as f64 * self.scale).ceil() as u64;
        if monotonic_ns() > target {
            return true;
        }
        let wake = Duration::from_nanos(target.saturating_sub(SPIN_NS)).into();
        // EINTR: a signal came; the moment is absolute, so ask again.
        while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &wake)
            == Err(Errno::EINTR)
        {}
        while monotonic_ns() < target {
            std::thread::yield_now();
        }
        false
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    Duration::from(now).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::MemStore;

    fn disk() -> Disk {
        Disk::new(DriveProfile::builtin("wd800-repaired").unwrap())
    }

    /// A store and what its observer has seen.
    fn store(scale: f64, size: u64) -> (DelayStore<MemStore>, Arc<Mutex<Vec<Served>>>) {
        let seen: Arc<Mutex<Vec<Served>>> = Arc::default();
        let theirs = seen.clone();
        let observer = Box::new(move |s: &Served| theirs.lock().unwrap().push(*s));
        (DelayStore::new(MemStore::new(size), disk(), scale).observed_by(observer), seen)
    }

    /// The totals, and each service, are those of another drive fed what this one was fed.
    fn check(store: &DelayStore<MemStore>, seen: &[Served], mut twin: Disk) {
        let mut energy = Energy::new(twin.profile().power());
        let mut split = Split::default();
        let (mut last_arrival, mut reads) = (Nanos(0), 0);
        for s in seen {
            assert!(s.arrival >= last_arrival, "served in the order of arrival");
            last_arrival = s.arrival;
            let service = twin.serve(s.arrival, s.service.op, s.sector, s.sectors);
            assert_eq!(service, s.service);
            split.add(&service);
            energy.add(&service);
            reads += u64::from(service.op == Op::Read);
        }
        let t = store.modelled().unwrap();
        assert_eq!((t.reads, t.reads + t.writes, t.cache_hits), (reads, split.count, split.hits));
        let got = [t.overhead_ns, t.seek_ns, t.rotation_ns, t.transfer_ns, t.busy_ns];
        let want = [split.overhead, split.seek, split.rotation, split.transfer, split.total()];
        assert_eq!(got.map(Nanos), want);
        assert!(t.span_ns >= t.busy_ns && t.span_ns >= twin.free_at().0);
        energy.idle(Nanos(t.span_ns - t.busy_ns));
        assert_eq!(t.energy_joules, energy.joules());
    }

    proptest! {
        #[test]
        fn totals_are_the_drives(ops in prop::collection::vec((0u64..1 << 30, 1usize..20_000, 0u8..5), 1..60)) {
            let (s, seen) = store(0.0, 1 << 31);
            let mut want = 0;
            for (offset, len, op) in ops {
                match op {
                    0 => s.write_at(offset, &vec![1; len], true).unwrap(),
                    1 => s.write_zeroes(offset, len as u64, false).unwrap(),
                    2 => s.discard(offset, len as u64).unwrap(),
                    3 => s.flush().unwrap(),
                    _ => s.read_at(offset, &mut vec![0; len]).unwrap(),
                }
                want += usize::from(op != 2 && op != 3);
            }
            let seen = seen.lock().unwrap();
            prop_assert_eq!(seen.len(), want);
            // Nobody waits and nothing is between: busy from first to last.
            let t = s.modelled().unwrap();
            prop_assert_eq!((t.span_ns, t.late), (t.busy_ns, 0));
            check(&s, &seen, disk());
        }
    }

    #[test]
    fn several_at_once_are_served_one_at_a_time() {
        // A thousand times as fast, so that even late wake-ups cost the test little.
        let (s, seen) = store(0.001, 1 << 31);
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let s = &s;
                scope.spawn(move || {
                    for i in 0..50 {
                        let at = (t * 50 + i) * 7_777_777;
                        s.write_at(at, &at.to_le_bytes(), false).unwrap();
                        let mut back = [0; 8];
                        s.read_at(at, &mut back).unwrap();
                        assert_eq!(back, at.to_le_bytes());
                    }
                    s.flush().unwrap();
                });
            }
        });
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 400);
        for pair in seen.windows(2) {
            assert!(pair[1].service.start >= pair[0].service.end(), "one spindle");
        }
        check(&s, &seen, disk());
    }

    #[test]
    fn no_request_ends_before_the_modelled_drive_has() {
        let (s, seen) = store(0.05, 1 << 31);
        for i in 0..20 {
            s.read_at(i * 99_999_999, &mut [0; 4096]).unwrap();
            let end = seen.lock().unwrap().last().unwrap().service.end();
            assert!(s.now() >= end);
        }
    }

    #[test]
    fn a_partition_lies_where_it_is_put() {
        let (s, seen) = store(0.0, 1 << 20);
        let s = s.at_sector(Sector(1_000_000));
        s.read_at(512 * 9 + 100, &mut [0; 512]).unwrap();
        let first = seen.lock().unwrap()[0];
        assert_eq!((first.sector, first.sectors), (Sector(1_000_009), 2));
        assert!(s.rotational());
        // What fails a check or is empty costs nothing.
        assert!(s.read_at(1 << 20, &mut [0; 1]).is_err());
        s.write_at(5, &[], true).unwrap();
        assert_eq!(s.modelled().unwrap().reads + s.modelled().unwrap().writes, 1);
    }
}
