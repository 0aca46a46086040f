//! Records on their way from the machine to the trace's writer.
//!
//! Whoever makes records has a [`TraceTap`] of its own, which fills a piece of memory and hands it over when it is full:
//! a record costs a few stores to memory that nobody else looks at.
//!
//! Invariants:
//! T1: who makes records never waits for the writer, allocates nothing and makes no system call: where no empty piece
//!     is left, records are counted and left out.
//! T2: a piece is with a tap, among the full or among the empty ones; there are at most `pieces` of them, and both
//!     rings have room for all.
//! T3: every record is taken out by [`TraceRing::drain`] or counted as lost, once the taps are gone and the ring closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use fs2_block::Extent;
use fs2_trace::Record;

/// Records of a piece. A guess: so many share the cost of handing over, and are lost with a daemon that is killed.
const PIECE: usize = 128;

/// How long the writer rests where there is nothing; nobody wakes it (T1).
const REST: Duration = Duration::from_millis(5);

/// Most bytes of an access in a trace, whose records have 32 bits for them.
const PART: u64 = 1 << 30;

/// What stands in a trace for an access: a punched hole may be longer than a record can say.
pub(crate) fn parts(record: Record) -> impl Iterator<Item = Record> {
    let (start, end) = (record.extent.offset(), record.extent.end());
    // One where it has no bytes, as a flush.
    (0..record.extent.len().div_ceil(PART).max(1)).map(move |n| {
        let at = start + n * PART;
        Record { extent: Extent::new(at, PART.min(end - at)), ..record }
    })
}

/// A bounded ring without locks, for one trace.
#[derive(Debug)]
pub struct TraceRing {
    full: ArrayQueue<Vec<Record>>,
    empty: ArrayQueue<Vec<Record>>,
    lost: AtomicU64,
    closed: AtomicBool,
}

/// One thread's way in, or that of whoever holds one lock. Dropping it hands over what it has.
#[derive(Debug)]
pub struct TraceTap {
    ring: Arc<TraceRing>,
    piece: Vec<Record>,
}

impl TraceRing {
    /// For at most `records` that wait, at least two pieces of 128.
    pub fn new(records: usize) -> TraceRing {
        let pieces = records.div_ceil(PIECE).max(2);
        let empty = ArrayQueue::new(pieces);
        while empty.push(Vec::with_capacity(PIECE)).is_ok() {}
        TraceRing {
            full: ArrayQueue::new(pieces),
            empty,
            lost: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Another way in.
    pub fn tap(self: &Arc<Self>) -> TraceTap {
        TraceTap { ring: self.clone(), piece: self.empty.pop().unwrap_or_default() }
    }

    fn put_full(&self, piece: Vec<Record>) {
        // Keeps T2: a tap made when no piece was left has one without room.
        if piece.capacity() == 0 {
            return;
        }
        // There is room (T2); if not, keeps T3.
        if let Err(piece) = self.full.push(piece) {
            self.lost.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    }

    /// Nothing more is put in, all taps are gone: [`TraceRing::drain`] comes to an end.
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
            while let Some(mut piece) = self.full.pop() {
                piece.drain(..).try_for_each(&mut take)?;
                // There is room (T2).
                let _ = self.empty.push(piece);
            }
            if closed {
                return Ok(());
            }
            std::thread::sleep(REST);
        }
    }
}

impl TraceTap {
    /// Puts a record in, or counts it as lost; true where it was put in.
    #[inline]
    pub fn push(&mut self, record: Record) -> bool {
        if self.piece.len() == self.piece.capacity() && !self.hand_over() {
            self.ring.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.piece.push(record);
        true
    }

    #[cold]
    fn hand_over(&mut self) -> bool {
        let Some(empty) = self.ring.empty.pop() else { return false };
        let full = std::mem::replace(&mut self.piece, empty);
        self.ring.put_full(full);
        true
    }
}

impl Drop for TraceTap {
    fn drop(&mut self) {
        let last = std::mem::take(&mut self.piece);
        self.ring.put_full(last);
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
        let ring = Arc::new(TraceRing::new(2 * PIECE));
        let mut tap = ring.tap();
        let there = (0..1000).filter(|&n| tap.push(record(n))).count();
        assert_eq!((there, ring.lost()), (2 * PIECE, 1000 - 2 * PIECE as u64));
        assert!(!ring.tap().push(record(0)), "no piece is left for another");
        drop(tap);
        ring.close();
        let mut seen = Vec::new();
        ring.drain(|r| {
            seen.push(r.at.0);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert!(seen.into_iter().eq(0..2 * PIECE as u64), "the first stay, in their order");
        // All pieces are there again.
        assert_eq!((ring.empty.len(), ring.full.len()), (2, 0));
    }

    #[test]
    fn many_writers_lose_nothing_uncounted() {
        let ring = Arc::new(TraceRing::new(8 * PIECE));
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
                    let mut tap = ring.tap();
                    s.spawn(move || {
                        for n in 0..5000 {
                            tap.push(record(n));
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|w| w.join().unwrap());
            ring.close();
            taken.join().unwrap()
        });
        assert_eq!(taken + ring.lost(), 20_000);
        assert!(taken >= 8 * PIECE as u64, "all pieces at least");
        assert_eq!((ring.empty.len(), ring.full.len()), (8, 0));
    }

    #[test]
    fn a_writer_that_fails_ends() {
        let ring = Arc::new(TraceRing::new(PIECE));
        ring.tap().push(record(1));
        assert_eq!(ring.drain(|_| Err("full")), Err("full"));
    }
}
