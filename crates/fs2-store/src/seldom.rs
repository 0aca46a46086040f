//! Lines of the log that come as often as something fails: a device that is gone, or a client that tries again and again, does not fill
//! the log, which of a mount lies in memory (`/run`).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines that are written in each [`WINDOW`], and how long that is. Guesses: enough to see what fails and whether it goes on.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Lines of one kind.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The present window.
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Seldom {
    /// None were written yet.
    pub const fn new() -> Seldom {
        Seldom(Mutex::new(State { since: None, written: 0, left_out: 0 }))
    }

    /// Has `write` write a line, unless enough were written lately; it is told what to say of those that were left out before.
    pub fn line(&self, write: impl FnOnce(&str)) {
        if let Some(left_out) = self.next(Instant::now()) {
            match left_out {
                0 => write(""),
                n => write(&format!(" ({n} such lines before it were left out)")),
            }
        }
    }

    /// How many were left out before the next line, if that is to be written.
    fn next(&self, now: Instant) -> Option<u64> {
        let mut s = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if s.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (s.since, s.written) = (Some(now), 0);
        }
        if s.written == LINES {
            s.left_out += 1;
            return None;
        }
        s.written += 1;
        Some(std::mem::take(&mut s.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_what_is_seldom_is_all_written() {
        let seldom = Seldom::default();
        let start = Instant::now();
        let written = (0..1000).filter(|_| seldom.next(start) == Some(0)).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(seldom.next(start + WINDOW), Some(990));
        for n in 1..100 {
            assert_eq!(seldom.next(start + WINDOW + WINDOW / 5 * n), Some(0));
        }
    }
}
