//! Whether a connection's thread asks for its client's next request again and again, or sleeps until it comes.
//!
//! A client with one request in flight and the thread that serves it take turns, and each turn puts two processors to
//! sleep and wakes them. That takes longer than serving the request, in a guest ten times as long, since an idle
//! processor is given back to the host. A thread that asks spares its own half of it: measured, three times the rate
//! at half of the processor time. But where others want the processor, asking takes it from the very client that is
//! waited for. Nobody can tell beforehand, so where turns are short it is tried, and goes on as long as it is faster.
//!
//! - K1: between requests, only for a client that sends one request at a time, and only while it does.
//! - K2: a trial, and what was a success once, ends when it has taken longer than the window it is compared with.
//! - K3: nobody is asked for longer than [`ASKED_MAX`] at a time.

use std::time::Duration;

/// Turns that are compared with as many others. Guess: some ms of the fastest.
const WINDOW: u32 = 256;

/// Longer turns wait for a device, and sleeping costs them nothing that shows. Guess.
const LONGEST: Duration = Duration::from_micros(200);

/// After so long the client has something else to do. Guess: several turns without sleep.
pub(super) const ASKED_MAX: Duration = Duration::from_micros(50);

/// Windows without a trial after one that brought nothing; twice as many after each further one, up to the second.
/// Guess: trials cost less than 1 % then.
const REST: (u32, u32) = (16, 1 << 14);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Sleeping,
    /// Asking, compared with a window asleep that took so long.
    Trying(Duration),
    /// Asking, and the best window so far took so long.
    Asking(Duration),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Asking {
    now: Now,
    turns: u32,
    took: Duration,
    /// Windows to go before the next trial, and how many after that if it brings nothing.
    rest: u32,
    next_rest: u32,
}

impl Asking {
    pub(super) fn new() -> Asking {
        Asking { now: Now::Sleeping, turns: 0, took: Duration::ZERO, rest: 0, next_rest: REST.0 }
    }

    /// Whether to ask for the next request, before sleeping.
    pub(super) fn is_on(&self) -> bool {
        self.now != Now::Sleeping
    }

    /// The client sent one request after it had its answer; so long after the one before.
    pub(super) fn one(&mut self, took: Duration) {
        self.turns += 1;
        self.took += took;
        let whole = self.turns == WINDOW;
        match self.now {
            Now::Sleeping if whole => {
                let window = self.window();
                if self.rest > 0 || window > LONGEST * WINDOW {
                    self.rest = self.rest.saturating_sub(1);
                } else {
                    self.now = Now::Trying(window);
                }
            }
            // A third less, or it is not worth a processor that nobody else can have meanwhile.
            Now::Trying(asleep) if self.took > asleep / 3 * 2 => {
                self.rest = self.next_rest;
                self.next_rest = (self.next_rest * 2).min(REST.1);
                self.sleep();
            }
            Now::Trying(_) if whole => {
                self.next_rest = REST.0;
                self.now = Now::Asking(self.window());
            }
            // K2: others want the processor now, or the client does more between its requests.
            Now::Asking(best) if self.took > best * 2 => self.sleep(),
            Now::Asking(best) if whole => self.now = Now::Asking(best.min(self.window())),
            Now::Sleeping | Now::Trying(_) | Now::Asking(_) => {}
        }
    }

    /// It sent several at once, or did not wait for an answer (K1).
    pub(super) fn several(&mut self) {
        self.sleep();
    }

    fn sleep(&mut self) {
        self.window();
        self.now = Now::Sleeping;
    }

    fn window(&mut self) -> Duration {
        self.turns = 0;
        std::mem::take(&mut self.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// So many turns, of one length asleep and another asking; how many were asked for, and how often it began.
    fn play(a: &mut Asking, turns: u32, asleep: Duration, asking: Duration) -> (u32, u32) {
        let (mut asked, mut began) = (0, 0);
        for _ in 0..turns {
            let before = a.is_on();
            a.one(if before { asking } else { asleep });
            asked += u32::from(before);
            began += u32::from(!before && a.is_on());
        }
        (asked, began)
    }

    #[test]
    fn what_is_faster_goes_on() {
        let mut a = Asking::new();
        assert_eq!(play(&mut a, 100 * WINDOW, us(50), us(10)), (99 * WINDOW, 1));
        // K2: another program takes the processor.
        assert_eq!(play(&mut a, 1, us(50), us(3000)), (1, 0));
        a.one(us(3000));
        assert!(!a.is_on(), "before the window's end");
        assert_eq!(play(&mut a, WINDOW, us(50), us(10)), (0, 1), "it is tried again");
    }

    #[test]
    fn trials_that_bring_nothing_become_rare() {
        for asking in [us(34), us(50), us(3000)] {
            let mut a = Asking::new();
            let (asked, began) = play(&mut a, 5000 * WINDOW, us(50), asking);
            assert!((6..10).contains(&began), "{began}");
            assert!(asked <= began * WINDOW, "{asked}");
        }
    }

    #[test]
    fn who_waits_for_a_device_is_not_asked() {
        let mut a = Asking::new();
        assert_eq!(play(&mut a, 100 * WINDOW, us(5000), us(1)), (0, 0));
    }

    #[test]
    fn several_at_a_time_end_it_at_once() {
        let mut a = Asking::new();
        play(&mut a, 3 * WINDOW, us(50), us(10));
        assert!(a.is_on());
        a.several();
        assert!(!a.is_on());
        // K1: now and then is enough.
        for _ in 0..100 {
            assert_eq!(play(&mut a, WINDOW - 1, us(50), us(10)), (0, 0));
            a.several();
        }
    }
}
