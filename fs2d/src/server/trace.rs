//! Records on their way from the machine to the trace's writer.
//!
//! Invariants:
//! T1: whoever runs the machine never waits for the writer, allocates nothing for it and makes no system call: a record
//!     that finds the ring full is counted and left out.
//! T2: every record that was put in before [`TraceRing::close`] is taken out or counted as lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use fs2_trace::Record;

/// How long the writer rests where there is nothing; nobody wakes it (T1). What the ring holds lasts for that long at
/// six million records a second.
const REST: Duration = Duration::from_millis(10);

/// A bounded ring without locks, for one trace.
#[derive(Debug)]
pub struct TraceRing {
    records: ArrayQueue<Record>,
    lost: AtomicU64,
    closed: AtomicBool,
}

impl TraceRing {
    /// For at most `capacity` records that wait, at least 1.
    pub fn new(capacity: usize) -> TraceRing {
        TraceRing {
            records: ArrayQueue::new(capacity.max(1)),
            lost: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Puts a record in, or counts it as lost; true where it was put in.
    #[inline]
    pub fn push(&self, record: Record) -> bool {
        let there = self.records.push(record).is_ok();
        if !there {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        there
    }

    /// Nothing more is put in: [`TraceRing::drain`] comes to an end.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Records that were left out.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Takes out records until the ring is closed and empty, waiting where there are none. For one thread.
    ///
    /// # Errors
    /// What `take` says first; what comes after it is lost.
    pub fn drain<E>(&self, mut take: impl FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        loop {
            let closed = self.closed.load(Ordering::Acquire);
            while let Some(record) = self.records.pop() {
                take(record)?;
            }
            if closed {
                return Ok(());
            }
            std::thread::sleep(REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs2_block::{Extent, Nanos, Op};

    fn record(n: u64) -> Record {
        Record::new(Nanos(n), Op::Read, Extent::new(n * 4096, 4096))
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let ring = TraceRing::new(4);
        let there = (0..10).filter(|&n| ring.push(record(n))).count();
        assert_eq!((there, ring.lost()), (4, 6));
        ring.close();
        let mut seen = Vec::new();
        ring.drain(|r| {
            seen.push(r.at.0);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(seen, [0, 1, 2, 3], "the first stay, in their order");
    }

    #[test]
    fn many_writers_lose_nothing_uncounted() {
        let ring = TraceRing::new(64);
        let taken = std::thread::scope(|s| {
            let taken = s.spawn(|| {
                let mut taken = 0u64;
                ring.drain(|_| {
                    taken += 1;
                    Ok::<_, ()>(())
                })
                .unwrap();
                taken
            });
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    s.spawn(|| {
                        for n in 0..5000 {
                            ring.push(record(n));
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|w| w.join().unwrap());
            ring.close();
            taken.join().unwrap()
        });
        assert_eq!(taken + ring.lost(), 20_000);
        assert!(taken >= 64, "a ring full at least");
    }

    #[test]
    fn a_writer_that_fails_ends() {
        let ring = TraceRing::new(4);
        ring.push(record(1));
        assert_eq!(ring.drain(|_| Err("full")), Err("full"));
    }
}
