//! When reading for nobody may begin: the sweep over unverified entries, and bitmaps nobody waits for.
//!
//! A disk that was idle for [`EngineConfig::idle_after`](crate::EngineConfig) is worth a copy, which saves more than
//! it costs. A sweep saves little, and a request that arrives while one of its reads is at the device waits for it.
//! So the sweep waits until the volume was idle for so long that it mostly stays so, and learns how long that is:
//!
//! - P1: a request that meets such a read makes the wait [`LONGER`] times longer;
//! - P2: every other request makes it shorter by a [`SHORTER`]th, down to `idle_after`.
//!
//! Where a wait exists at all that few requests end, about one request in `SHORTER` * ln `LONGER`, 355, meets the
//! sweep: too few to move the slowest hundredth by much, whatever the arrivals are.

use fs2_block::Nanos;

/// Guess, with [`SHORTER`]: found by the simulation in `crates/fs2-sim/tests/it/sweep.rs`.
const LONGER: u64 = 4;
const SHORTER: u64 = 256;

/// The wait before anything is known, in idle times: 240 ms where a disk is idle after 15. Guess.
const AT_FIRST: u64 = 16;

/// A volume used less often than this is as good as idle. Guess.
const WAIT_MAX: Nanos = Nanos(600_000_000_000);

/// How long to wait before reading for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Patience {
    least: Nanos,
    wait: Nanos,
}

impl Patience {
    /// Where a disk is idle after `least`.
    pub(super) fn new(least: Nanos) -> Patience {
        Patience { least, wait: Nanos(least.0.saturating_mul(AT_FIRST)).min(WAIT_MAX).max(least) }
    }

    /// Without a request for so long, it may begin.
    pub(super) fn wait(&self) -> Nanos {
        self.wait
    }

    /// A request arrived; whether it met such a read.
    pub(super) fn arrived(&mut self, met: bool) {
        let wait = self.wait.0;
        let wait = if met { wait.saturating_mul(LONGER) } else { wait - wait.div_ceil(SHORTER).min(wait) };
        self.wait = Nanos(wait).min(WAIT_MAX).max(self.least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_how_long_to_wait() {
        let least = Nanos::from_millis(15);
        let mut p = Patience::new(least);
        assert_eq!(p.wait(), Nanos::from_millis(240));
        p.arrived(true);
        assert_eq!(p.wait(), Nanos::from_millis(960));
        // Nobody met for long: back to the least, and never below.
        (0..2000).for_each(|_| p.arrived(false));
        assert_eq!(p.wait(), least);
        (0..100).for_each(|_| p.arrived(true));
        assert_eq!(p.wait(), WAIT_MAX);
        assert_eq!(Patience::new(Nanos(0)).wait(), Nanos(0));
    }

    /// Gaps of 200 ms always: after a few requests the wait is longer than they are, and few meet the sweep.
    #[test]
    fn one_request_in_three_hundred_meets_the_sweep() {
        let mut p = Patience::new(Nanos::from_millis(15));
        let mut met = 0;
        for _ in 0..15_000 {
            let meets = p.wait() < Nanos::from_millis(200);
            met += u32::from(meets);
            p.arrived(meets);
        }
        assert!((30..=60).contains(&met), "{met}");
    }
}
