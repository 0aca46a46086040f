//! What threads wait for: semaphores, wake-ups, events. All of it ends when the run ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A lock whose holder panicked protects plain numbers all the same.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Set once, when the run ends.
#[derive(Debug, Default)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[derive(Debug, Default)]
struct Levels {
    /// What posts have put in and blocks take out.
    low: u64,
    /// What blocking posts may still put in.
    high: u64,
    woken: bool,
}

/// One instance of a `semblock` or `block`: two System V semaphores, or a wake-up that waits until it is fetched.
#[derive(Debug, Default)]
pub(super) struct Gate {
    levels: Mutex<Levels>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn new(highwater: u64) -> Self {
        Self { levels: Mutex::new(Levels { high: highwater, ..Levels::default() }), changed: Condvar::new() }
    }

    /// Waits for `ready`; false when the run ended before.
    fn wait(&self, stop: &Stop, mut levels: MutexGuard<Levels>, ready: impl Fn(&mut Levels) -> bool) -> bool {
        loop {
            if stop.is_set() {
                return false;
            }
            if ready(&mut levels) {
                self.changed.notify_all();
                return true;
            }
            levels = self.changed.wait(levels).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets posts go on by `value`, then waits for as much.
    pub(super) fn block(&self, value: u64, stop: &Stop) -> bool {
        let mut levels = lock(&self.levels);
        levels.high = levels.high.saturating_add(value);
        self.changed.notify_all();
        self.wait(stop, levels, |l| {
            let enough = l.low >= value;
            l.low -= if enough { value } else { 0 };
            enough
        })
    }

    /// Puts `value` in; a blocking post waits while that is above the high-water mark.
    pub(super) fn post(&self, value: u64, blocking: bool, stop: &Stop) -> bool {
        self.wait(stop, lock(&self.levels), |l| {
            if blocking && l.high < value {
                return false;
            }
            l.high -= if blocking { value } else { 0 };
            l.low = l.low.saturating_add(value);
            true
        })
    }

    /// Waits for a wake-up, also one that came before.
    pub(super) fn sleep(&self, stop: &Stop) -> bool {
        self.wait(stop, lock(&self.levels), |l| std::mem::take(&mut l.woken))
    }

    pub(super) fn wake(&self) {
        lock(&self.levels).woken = true;
        self.changed.notify_all();
    }

    /// After the end was set: everyone looks at it.
    pub(super) fn end(&self) {
        // With the lock: a thread that has not seen the end yet is not waiting yet either.
        let _levels = lock(&self.levels);
        self.changed.notify_all();
    }
}

/// Events at a constant rate, no thread needed: who takes some waits until they would have come. At most five seconds'
/// events wait to be taken, as in the original.
#[derive(Debug)]
pub(super) struct Events {
    rate: f64,
    left: Mutex<(Instant, f64)>,
    ended: Condvar,
}

const EVENTS_SECONDS_MAX: f64 = 5.0;

impl Events {
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Self { rate: rate as f64, left: Mutex::new((now, 0.0)), ended: Condvar::new() }
    }

    /// The run starts: what came before it is not there to be taken.
    pub(super) fn restart(&self) {
        *lock(&self.left) = (Instant::now(), 0.0);
    }

    pub(super) fn take(&self, events: u64, stop: &Stop) -> bool {
        let mut left = lock(&self.left);
        let now = Instant::now();
        let came = now.saturating_duration_since(left.0).as_secs_f64() * self.rate;
        left.0 = left.0.max(now);
        // Below zero: taken before they came.
        left.1 = (left.1 + came).min(EVENTS_SECONDS_MAX * self.rate) - events as f64;
        let due = now + Duration::from_secs_f64((-left.1 / self.rate).clamp(0.0, 1e6));
        self.wait_until(due, stop, left)
    }

    fn wait_until(&self, due: Instant, stop: &Stop, mut left: MutexGuard<(Instant, f64)>) -> bool {
        loop {
            let now = Instant::now();
            if stop.is_set() || now >= due {
                return !stop.is_set();
            }
            left = self.ended.wait_timeout(left, due - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps, until the end of the run at most.
    pub(super) fn sleep(&self, time: Duration, stop: &Stop) -> bool {
        let due = Instant::now() + time.min(Duration::from_secs(1_000_000));
        self.wait_until(due, stop, lock(&self.left))
    }

    pub(super) fn end(&self) {
        let _left = lock(&self.left);
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// A post of one at a time against a block of four with a high-water mark of two: the poster is never more than
    /// six ahead (two, and four for each block under way), and both get through.
    #[test]
    fn semaphores_with_high_water() {
        let (gate, stop) = (Arc::new(Gate::new(2)), Arc::new(Stop::default()));
        let posted = Arc::new(AtomicU64::new(0));
        let poster = {
            let (gate, stop, posted) = (gate.clone(), stop.clone(), posted.clone());
            thread::spawn(move || {
                for _ in 0..402 {
                    assert!(gate.post(1, true, &stop));
                    posted.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        for blocks in 1..=100 {
            assert!(gate.block(4, &stop));
            assert!(posted.load(Ordering::SeqCst) <= 4 * blocks + 2);
        }
        poster.join().unwrap();
        assert_eq!(posted.load(Ordering::SeqCst), 402);
    }

    #[test]
    fn a_wake_up_waits_until_it_is_fetched() {
        let (gate, stop) = (Gate::new(1), Stop::default());
        gate.wake();
        assert!(gate.sleep(&stop));
        stop.set();
        gate.end();
        assert!(!gate.sleep(&stop));
        assert!(!gate.post(5, true, &stop) && !gate.block(1, &stop));
    }

    #[test]
    fn the_end_wakes_everyone() {
        let (low, high) = (Arc::new(Gate::new(0)), Arc::new(Gate::new(0)));
        let (events, stop) = (Arc::new(Events::new(1, Instant::now())), Arc::new(Stop::default()));
        let waiting: Vec<_> = (0..8)
            .map(|i| {
                let (low, high, events, stop) = (low.clone(), high.clone(), events.clone(), stop.clone());
                thread::spawn(move || match i % 4 {
                    0 => low.block(1, &stop),
                    1 => high.post(1, true, &stop),
                    2 => low.sleep(&stop),
                    _ => events.take(1_000_000, &stop),
                })
            })
            .collect();
        stop.set();
        low.end();
        high.end();
        events.end();
        assert!(waiting.into_iter().all(|t| !t.join().unwrap()));
    }

    /// What was taken before it came is waited for: ten events at a thousand a second take ten milliseconds.
    #[test]
    fn events_are_not_early() {
        let start = Instant::now();
        let (events, stop) = (Events::new(1000, start), Stop::default());
        for _ in 0..10 {
            assert!(events.take(1, &stop));
        }
        assert!(start.elapsed() >= Duration::from_millis(9));
    }
}
