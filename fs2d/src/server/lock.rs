//! The machine's lock: held for a few microseconds at a time, by as many threads as there are clients.
//!
//! Who finds it taken waits awake, and sleeps only where that takes long. A thread that slept is woken by the one that lets
//! go, and mostly put on that one's processor, away from the client whose requests it serves: then the two run side by side,
//! hand each other a few requests at a time, and all that they share goes from one processor's cache to the other's
//! (docs/performance.md has figures).

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Looks before the processor is yielded, and pauses of it before each: some microseconds in all, as long as a batch holds
/// the lock. Measured with the next: 20 pauses or one look win half as much where clients have one request each.
const LOOKS: u32 = 2;
const PAUSES: u32 = 100;

/// Yields before a thread sleeps. Guess: on idle processors they take 20 us; eight win half as much.
const YIELDS: u32 = 64;

/// A yield that took longer gave the processor to a program that computes: the thread yields no more for so many times as
/// long, so that it loses 3 % of its time to such programs. Guess, as for who waits for more input.
const LONG: Duration = Duration::from_micros(500);
const REST: u32 = 32;

/// Looks instead of yields then. Measured: with none, clients' own turns of the processor, which are as long, cost half of
/// what is won.
const MORE_LOOKS: u32 = 20;

thread_local! {
    /// When the thread may yield again.
    static NOT_BEFORE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Alone on its cache lines (two: a processor fetches them in pairs): every thread writes the lock's word with every batch.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(super) fn new(inner: T) -> Lock<T> {
        Lock(Mutex::new(inner))
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.taken())
    }

    #[cold]
    fn taken(&self) -> MutexGuard<'_, T> {
        let awake =
            NOT_BEFORE.with(|not_before| self.awake(not_before, Instant::now, std::thread::yield_now));
        awake.unwrap_or_else(|| self.0.lock().unwrap_or_else(|_| broken()))
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => broken(),
        }
    }

    /// The lock, where it is had without sleep.
    fn awake(
        &self,
        not_before: &Cell<Option<Instant>>,
        now: impl Fn() -> Instant,
        yields: impl Fn(),
    ) -> Option<MutexGuard<'_, T>> {
        if let Some(held) = self.look(LOOKS) {
            return Some(held);
        }
        let mut before = now();
        for _ in 0..YIELDS {
            if not_before.get().is_some_and(|then| before < then) {
                return self.look(MORE_LOOKS);
            }
            yields();
            if let Some(held) = self.try_lock() {
                return Some(held);
            }
            let after = now();
            let took = after - before;
            if took > LONG {
                not_before.set(Some(after + took * REST));
            }
            before = after;
        }
        None
    }

    fn look(&self, looks: u32) -> Option<MutexGuard<'_, T>> {
        (0..looks).find_map(|_| {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            self.try_lock()
        })
    }
}

/// A panic under the lock is a broken invariant: nothing may go on.
fn broken() -> ! {
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_at_a_time() {
        let lock = Arc::new(Lock::new((0u64, 0u64)));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for n in 0..5000 {
                        let mut both = lock.lock();
                        both.0 += 1;
                        if n % 500 == 0 {
                            // Longer than anybody waits awake.
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        both.1 += 1;
                        assert_eq!(both.0, both.1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(lock.lock().0, 8 * 5000);
    }

    /// Yields that a thread takes, each of so long, while another holds the lock.
    fn yields(not_before: &Cell<Option<Instant>>, clock: &Cell<Instant>, each: Duration) -> u32 {
        let (lock, count) = (Lock::new(()), Cell::new(0));
        let held = lock.try_lock();
        let yields = || {
            count.set(count.get() + 1);
            clock.set(clock.get() + each);
        };
        assert!(lock.awake(not_before, || clock.get(), yields).is_none());
        drop(held);
        count.get()
    }

    #[test]
    fn yields_so_many_times_and_hardly_where_others_compute() {
        let (rests, clock) = (Cell::new(None), Cell::new(Instant::now()));
        let (short, long) = (Duration::from_nanos(300), Duration::from_millis(1));
        assert_eq!(yields(&rests, &clock, short), YIELDS);
        assert_eq!(yields(&rests, &clock, LONG), YIELDS);
        // A millisecond each: once, and then not for 32 of them.
        assert_eq!(yields(&rests, &clock, long), 1);
        assert_eq!(yields(&rests, &clock, long), 0);
        clock.set(clock.get() + 32 * long - Duration::from_nanos(1));
        assert_eq!(yields(&rests, &clock, short), 0);
        clock.set(clock.get() + Duration::from_nanos(1));
        assert_eq!(yields(&rests, &clock, short), YIELDS);
    }

    #[test]
    fn what_is_let_go_meanwhile_is_had_awake() {
        let lock = Lock::new(());
        let held = Cell::new(lock.try_lock());
        let got = lock.awake(&Cell::new(None), Instant::now, || drop(held.take()));
        assert!(got.is_some());
    }
}
