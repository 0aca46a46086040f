//! One bound on the data in flight of all connections together.
//!
//! A connection's first [`FREE_BYTES`] are its own and never counted, so small requests never meet this: neither its lock
//! nor a client that sits on what it was given. What goes beyond is taken from the budget, in the order in which
//! connections asked.
//!
//! Invariants:
//! G1: `used` is what was taken and not yet given back; it is at most `bytes_max`, but that one request that is larger
//!     is let through while nothing else is.
//! G2: who waits is first in the line or behind somebody who waits: nobody is passed over by a smaller request.
//! G3: a place in the line goes with its [`Turn`].

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Of each connection, uncounted: eight of a kernel's usual largest requests of 128 KiB.
pub(super) const FREE_BYTES: u64 = 1 << 20;

/// How long who waits does not look whether its connection has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct State {
    used: u64,
    line: VecDeque<u64>,
    next_ticket: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
}

/// A place in the line.
#[derive(Debug)]
pub(super) struct Turn {
    budget: Arc<Budget>,
    ticket: u64,
}

impl Budget {
    pub(super) fn new(bytes_max: u64) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes`; where they are not to be had yet, false, and `turn` holds the place of who asks.
    pub(super) fn take(self: &Arc<Self>, bytes: u64, turn: &mut Option<Turn>) -> bool {
        let mut s = self.lock();
        let mine = turn.as_ref().map(|t| t.ticket);
        let next = s.line.front().is_none_or(|first| Some(*first) == mine);
        if next && (s.used == 0 || s.used.saturating_add(bytes) <= self.bytes_max) {
            s.used += bytes;
            drop(s);
            // Keeps G3: whoever is behind looks at what is left.
            *turn = None;
            return true;
        }
        if mine.is_none() {
            let ticket = s.next_ticket;
            s.next_ticket += 1;
            s.line.push_back(ticket);
            *turn = Some(Turn { budget: self.clone(), ticket });
        }
        false
    }

    /// Takes `bytes` if that needs no waiting.
    pub(super) fn try_take(&self, bytes: u64) -> bool {
        let mut s = self.lock();
        let fits = s.line.is_empty() && (s.used == 0 || s.used.saturating_add(bytes) <= self.bytes_max);
        s.used += if fits { bytes } else { 0 };
        fits
    }

    /// Gives `bytes` back.
    pub(super) fn give(&self, bytes: u64) {
        let mut s = self.lock();
        s.used -= bytes;
        if !s.line.is_empty() {
            self.changed.notify_all();
        }
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.lock().used
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().line.len()
    }
}

impl Turn {
    /// Waits for a change, or until it is time to see whether it is still worth waiting.
    pub(super) fn wait(&self) {
        let s = self.budget.lock();
        drop(self.budget.changed.wait_timeout(s, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut s = self.budget.lock();
        s.line.retain(|&ticket| ticket != self.ticket);
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let budget = Budget::new(100);
        assert!(budget.try_take(60));
        let (mut large, mut small) = (None, None);
        assert!(!budget.take(80, &mut large));
        assert!(!budget.take(10, &mut small), "it would fit, but somebody waits");
        assert!(!budget.try_take(10));
        budget.give(60);
        assert!(!budget.take(10, &mut small));
        assert!(budget.take(80, &mut large));
        assert!(budget.take(10, &mut small));
        assert_eq!((budget.used(), budget.lock().line.len()), (90, 0));
    }

    #[test]
    fn too_large_goes_alone() {
        let budget = Budget::new(10);
        assert!(budget.try_take(5));
        let mut turn = None;
        assert!(!budget.take(50, &mut turn));
        budget.give(5);
        assert!(budget.take(50, &mut turn));
        assert!(!budget.try_take(1));
        budget.give(50);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn who_leaves_the_line_holds_up_nobody() {
        let budget = Budget::new(10);
        assert!(budget.try_take(9));
        let (mut gone, mut next) = (None, None);
        assert!(!budget.take(5, &mut gone));
        assert!(!budget.take(1, &mut next));
        drop(gone);
        assert!(budget.take(1, &mut next));
    }

    #[test]
    fn threads_get_through() {
        let budget = Budget::new(100);
        let threads: Vec<_> = (1..=8)
            .map(|n| {
                let budget = budget.clone();
                std::thread::spawn(move || {
                    for round in 0..200 {
                        let bytes = (n * 31 + round * 17) % 120 + 1;
                        let mut turn = None;
                        while !budget.take(bytes, &mut turn) {
                            turn.as_ref().expect("it was not its turn").wait();
                        }
                        let used = budget.used();
                        assert!(used <= 100 || used == bytes, "{used} of 100, {bytes} of them one's own");
                        budget.give(bytes);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(budget.used(), 0);
    }
}
