//! Locks over ranges of bytes, coarse and of fixed number.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes of one stripe. A guess: a request of the usual sizes lies in one or two.
const STRIPE: u64 = 1 << 20;
const COUNT: usize = 64;

/// Read-write locks, the stripe of a byte being its MiB modulo their number. Several are taken in
/// ascending order, so that nobody waits in a ring.
pub(super) struct Stripes([RwLock<()>; COUNT]);

/// Locked until dropped.
#[expect(dead_code, reason = "held, not read")]
pub(super) enum Held<'a> {
    Shared(Vec<RwLockReadGuard<'a, ()>>),
    Alone(Vec<RwLockWriteGuard<'a, ()>>),
}

impl Stripes {
    pub(super) fn new() -> Stripes {
        Stripes([const { RwLock::new(()) }; COUNT])
    }

    /// Together with other sharers.
    pub(super) fn shared(&self, offset: u64, len: u64) -> Held<'_> {
        let of = |i: usize| self.0[i].read().unwrap_or_else(PoisonError::into_inner);
        Held::Shared(indices(offset, len).into_iter().map(of).collect())
    }

    /// With nobody else.
    pub(super) fn alone(&self, offset: u64, len: u64) -> Held<'_> {
        let of = |i: usize| self.0[i].write().unwrap_or_else(PoisonError::into_inner);
        Held::Alone(indices(offset, len).into_iter().map(of).collect())
    }
}

fn indices(offset: u64, len: u64) -> Vec<usize> {
    let (first, last) = (offset / STRIPE, (offset + len.max(1) - 1) / STRIPE);
    if last - first >= COUNT as u64 - 1 {
        return (0..COUNT).collect();
    }
    let mut found: Vec<usize> = (first..=last).map(|s| (s % COUNT as u64) as usize).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_and_once_each() {
        assert_eq!(indices(0, 0), [0]);
        assert_eq!(indices(STRIPE - 1, 2), [0, 1]);
        assert_eq!(indices(63 * STRIPE, 2 * STRIPE), [0, 63]);
        assert_eq!(indices(5, 64 * STRIPE).len(), COUNT);
        assert_eq!(indices(STRIPE, 63 * STRIPE), (1..64).collect::<Vec<_>>());
        assert_eq!(indices(7 * STRIPE, 1 << 40).len(), COUNT);
    }
}
