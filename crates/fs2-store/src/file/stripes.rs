//! Locks over ranges of bytes, coarse and of fixed number.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of one stripe. A guess: a request of the usual sizes lies in one or two.
const STRIPE: u64 = 1 << 20;
const COUNT: usize = 64;

/// Read-write locks, the stripe of a byte being its MiB modulo their number. All of a range are taken in one
/// step, so that nobody waits in a ring; who wants them alone is not passed by newcomers.
pub(super) struct Stripes {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    /// Sharers of each, -1 where somebody has it alone.
    held: [i32; COUNT],
    /// How many wait to have it alone.
    wanted: [u32; COUNT],
    waiters: u32,
}

/// A set of stripes, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(u64);

impl Mask {
    pub(crate) fn of(offset: u64, len: u64) -> Mask {
        let (first, last) = (offset / STRIPE, (offset + len.max(1) - 1) / STRIPE);
        if last - first >= COUNT as u64 - 1 {
            return Mask(u64::MAX);
        }
        Mask((first..=last).fold(0, |mask, s| mask | 1 << (s % COUNT as u64)))
    }

    fn stripes(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            (left != 0).then(|| {
                let next = left.trailing_zeros() as usize;
                left &= left - 1;
                next
            })
        })
    }
}

/// Locked until dropped.
pub(super) struct Held<'a> {
    stripes: &'a Stripes,
    mask: Mask,
    alone: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.stripes.release(self.mask, self.alone);
    }
}

impl Stripes {
    pub(super) fn new() -> Stripes {
        let state = State { held: [0; COUNT], wanted: [0; COUNT], waiters: 0 };
        Stripes { state: Mutex::new(state), freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiters += 1;
        state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        state
    }

    /// Together with other sharers.
    pub(super) fn shared(&self, offset: u64, len: u64) -> Held<'_> {
        let mask = Mask::of(offset, len);
        let mut state = self.lock();
        while !state.share(mask) {
            state = self.wait(state);
        }
        Held { stripes: self, mask, alone: false }
    }

    /// The same for I/O that ends later, on whichever thread: [`Stripes::release`] gives it back. False where
    /// one would have to wait.
    pub(super) fn try_shared(&self, mask: Mask) -> bool {
        self.lock().share(mask)
    }

    /// With nobody else.
    pub(super) fn alone(&self, offset: u64, len: u64) -> Held<'_> {
        let mask = Mask::of(offset, len);
        let mut state = self.lock();
        mask.stripes().for_each(|s| state.wanted[s] += 1);
        while mask.stripes().any(|s| state.held[s] != 0) {
            state = self.wait(state);
        }
        for s in mask.stripes() {
            (state.held[s], state.wanted[s]) = (-1, state.wanted[s] - 1);
        }
        Held { stripes: self, mask, alone: true }
    }

    /// Gives back what [`Stripes::try_shared`] took.
    pub(super) fn release_shared(&self, mask: Mask) {
        self.release(mask, false);
    }

    fn release(&self, mask: Mask, alone: bool) {
        let mut state = self.lock();
        for s in mask.stripes() {
            state.held[s] = if alone { 0 } else { state.held[s] - 1 };
        }
        if state.waiters > 0 {
            self.freed.notify_all();
        }
    }
}

impl State {
    fn share(&mut self, mask: Mask) -> bool {
        if mask.stripes().any(|s| self.held[s] < 0 || self.wanted[s] > 0) {
            return false;
        }
        mask.stripes().for_each(|s| self.held[s] += 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stripe_once() {
        let of = |offset, len| Mask::of(offset, len).stripes().collect::<Vec<_>>();
        assert_eq!(of(0, 0), [0]);
        assert_eq!(of(STRIPE - 1, 2), [0, 1]);
        assert_eq!(of(63 * STRIPE, 2 * STRIPE), [0, 63]);
        assert_eq!(of(5, 64 * STRIPE).len(), COUNT);
        assert_eq!(of(STRIPE, 63 * STRIPE), (1..64).collect::<Vec<_>>());
        assert_eq!(of(7 * STRIPE, 1 << 40).len(), COUNT);
    }

    #[test]
    fn alone_keeps_out_and_is_not_passed() {
        let stripes = Stripes::new();
        let one = stripes.shared(0, 10);
        assert!(stripes.try_shared(Mask::of(5, 10)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(stripes.alone(0, 2 * STRIPE)));
            while stripes.lock().waiters == 0 {
                std::thread::yield_now();
            }
            assert!(!stripes.try_shared(Mask::of(STRIPE, 1)), "nobody passes who waits to have it alone");
            assert!(stripes.try_shared(Mask::of(2 * STRIPE, 1)), "others are free");
            stripes.release_shared(Mask::of(2 * STRIPE, 1));
            drop(one);
            stripes.release_shared(Mask::of(5, 10));
            waits.join().unwrap();
        });
        assert!(stripes.lock().held.iter().all(|&h| h == 0) && stripes.lock().wanted.iter().all(|&w| w == 0));
        let alone = stripes.alone(STRIPE, 1);
        assert!(!stripes.try_shared(Mask::of(0, 2 * STRIPE)));
        drop(alone);
        assert!(stripes.try_shared(Mask::of(0, 2 * STRIPE)));
    }
}
