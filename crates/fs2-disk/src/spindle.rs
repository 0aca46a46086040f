//! Tracking a platter's angle from the moments accesses completed.
//!
//! A Kalman filter over two numbers: by how much the platter is ahead of the profile's (phase,
//! turns), and how fast that grows (rate, turns a second: the profile's speed is a little wrong).

use fs2_block::Nanos;

const TURN: f64 = 18_446_744_073_709_551_616.0; // 2^64

/// Variance of one observation: completions are late by some 20 to 100 µs, a hundredth of a turn.
const OBSERVED: f64 = 1e-4;
/// Relative error of a stated speed (guess; sheets say 0.1 to 0.5 %, drives keep within 0.02 %).
const SPEED_DOUBT: f64 = 3e-4;
/// Growth of the phase's variance by wander, turns² a second (guess).
const PHASE_WANDER: f64 = 1e-6;
/// Growth of the rate's variance by wander, (turns/s)² a second (guess).
const RATE_WANDER: f64 = 1e-8;
/// Beyond this standard deviation, in turns, the angle counts as unknown. A uniform angle has 0.289.
const UNKNOWN: f64 = 0.2;
/// Beyond this one an observation cannot say how many whole turns passed since the last.
const AMBIGUOUS: f64 = 0.15;
/// Weight of an observation in the mean square surprise.
const SURPRISE_RATE: f64 = 1.0 / 8.0;
/// So many observations in a row that do not fit mean that it is the estimate that is wrong.
const LOST_AFTER: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Spindle {
    at: Nanos,
    /// Turns in 2⁻⁶⁴.
    phase: u64,
    /// Turns a second.
    rate: f64,
    variance: [f64; 3],
    /// Running mean of squared surprises, turns²; a twelfth when observations are noise.
    surprise: f64,
    misfits: u32,
    rate_doubt: f64,
}

impl Spindle {
    pub(crate) fn new(turns_per_second: f64) -> Spindle {
        let rate_doubt = (turns_per_second * SPEED_DOUBT) * (turns_per_second * SPEED_DOUBT);
        Spindle {
            at: Nanos(0),
            phase: 0,
            rate: 0.0,
            variance: [1.0, 0.0, rate_doubt],
            surprise: 1.0 / 12.0,
            misfits: 0,
            rate_doubt,
        }
    }

    /// By how much the platter is believed to be ahead at `now`.
    pub(crate) fn phase(&self, now: Nanos) -> u64 {
        let turns = self.rate * now.since(self.at).as_secs_f64();
        self.phase.wrapping_add(((turns - turns.floor()) * TURN) as u64)
    }

    fn variance(&self, now: Nanos) -> [f64; 3] {
        let dt = now.since(self.at).as_secs_f64();
        let [phase, both, rate] = self.variance;
        [phase + dt * (2.0 * both + dt * rate) + PHASE_WANDER * dt, both + dt * rate, rate + RATE_WANDER * dt]
    }

    /// Standard deviation of the angle at `now`, in turns, `more` added; `None`: unknown.
    pub(crate) fn deviation(&self, now: Nanos, more: f64) -> Option<f64> {
        let deviation = (self.variance(now)[0].max(self.surprise) + more * more).sqrt();
        (deviation < UNKNOWN).then_some(deviation)
    }

    /// The platter was seen `seen` ahead at `now`.
    pub(crate) fn observe(&mut self, now: Nanos, seen: u64) {
        let expected = self.phase(now);
        let [phase, both, rate] = self.variance(now);
        if phase.sqrt() > AMBIGUOUS {
            self.restart(now, seen, rate.min(self.rate_doubt));
            return;
        }
        let surprise = seen.wrapping_sub(expected) as i64 as f64 / TURN;
        self.surprise += (surprise * surprise - self.surprise) * SURPRISE_RATE;
        let total = phase + OBSERVED;
        if surprise * surprise > (16.0 * total).max(0.0064) {
            self.misfits += 1;
            if self.misfits >= LOST_AFTER {
                self.rate = 0.0;
                self.restart(now, seen, self.rate_doubt);
            }
            return;
        }
        self.misfits = 0;
        let (gain, rate_gain) = (phase / total, both / total);
        self.phase = expected.wrapping_add((surprise * gain * TURN) as i64 as u64);
        self.rate += rate_gain * surprise;
        self.variance = [phase * (1.0 - gain), both * (1.0 - gain), rate - rate_gain * both];
        self.at = now;
    }

    fn restart(&mut self, now: Nanos, seen: u64, rate_variance: f64) {
        self.at = now;
        self.phase = seen;
        self.variance = [OBSERVED, 0.0, rate_variance];
        self.misfits = 0;
    }
}
