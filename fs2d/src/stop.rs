//! How the daemon is asked to end, and who waits for that.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Set once, waited for by whoever ends the daemon.
#[derive(Default)]
pub(crate) struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
}

#[derive(Default)]
struct StopState {
    asked: bool,
    /// The next look is due now.
    look: bool,
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, StopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the end; whether nobody had asked before.
    pub(crate) fn ask(&self) -> bool {
        let first = !std::mem::replace(&mut self.state().asked, true);
        self.changed.notify_all();
        first
    }

    /// Has whoever waits look at once whether it is time.
    pub(crate) fn look(&self) {
        self.state().look = true;
        self.changed.notify_all();
    }

    /// Whether it is asked for now, or within this time: which it then did not wait for.
    pub(crate) fn is_asked_within(&self, time: Duration) -> bool {
        let not_asked = |s: &mut StopState| !s.asked;
        let waited = self.changed.wait_timeout_while(self.state(), time, not_asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.asked
    }

    /// Waits for it, `every` so often, and when [`Stop::look`] was called, calling `meanwhile`, which may ask for
    /// the end itself by returning false.
    pub(crate) fn wait(&self, every: Duration, mut meanwhile: impl FnMut() -> bool) {
        let mut state = self.state();
        let mut next = Instant::now() + every;
        while !state.asked {
            if !state.look {
                let wait = next.saturating_duration_since(Instant::now());
                state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.look || Instant::now() >= next {
                state.look = false;
                next = Instant::now() + every;
                // Without the lock: whoever asks or looks must not wait for what is done here.
                drop(state);
                if !meanwhile() {
                    self.ask();
                    return;
                }
                state = self.state();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody had asked then, and a request to go on as another program (`fs2 upgrade`) was still promised.
    #[test]
    fn an_end_found_while_waiting_is_asked_for() {
        let stop = Stop::default();
        stop.wait(Duration::ZERO, || false);
        assert!(!stop.ask(), "it is ending already");
    }
}
