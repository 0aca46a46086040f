//! Emulated browsers: one interaction after another with a time to think between, session after session.

use std::time::{Duration, Instant};

use super::files::both;
use crate::fsbench::control::Recorder;
use crate::fsbench::measure::Histogram;
use crate::fsbench::{BenchError, Control, Metric, Needs, PassReport, Rng};

/// A think time is at most so many means (TPC-W's rule).
const THINK_MAX: f64 = 10.0;
/// A session is at most so many means (TPC-W's rule).
const SESSION_MAX: f64 = 4.0;

/// How long browsers think and stay: means of exponential distributions that are cut off, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) think: f64,
    pub(super) session: f64,
}

impl Times {
    /// Whether these can be times.
    pub(super) fn are_sane(self) -> bool {
        [self.think, self.session].iter().all(|t| (0.0..=1e6).contains(t))
    }

    fn next_think(self, rng: &mut Rng) -> f64 {
        rng.exponential(self.think).min(THINK_MAX * self.think)
    }

    fn next_session(self, rng: &mut Rng) -> f64 {
        rng.exponential(self.session).min(SESSION_MAX * self.session)
    }

    /// One browser until the pass is over. `interact` does an interaction, of a new session where it is told
    /// so, and says which it was and how many bytes it read and wrote. The time to think is not counted.
    pub(super) fn browse(
        self,
        control: &Control,
        rng: &mut Rng,
        recorder: &mut Recorder<'_>,
        mut interact: impl FnMut(bool, &mut Rng) -> Result<(usize, u64, u64), BenchError>,
    ) -> Result<(), BenchError> {
        let now = || control.elapsed().as_secs_f64();
        let (mut is_new, mut session_ends) = (true, now() + self.next_session(rng));
        // Browsers do not come all at once.
        let mut goes_on = control.sleep(Duration::from_secs_f64(rng.unit() * self.think.min(10.0)));
        while goes_on {
            if now() > session_ends {
                (is_new, session_ends) = (true, now() + self.next_session(rng));
            }
            let began = Instant::now();
            let (class, read, written) = interact(is_new, rng)?;
            recorder.done(class, began, read, written);
            is_new = false;
            goes_on = control.sleep(Duration::from_secs_f64(self.next_think(rng)));
        }
        Ok(())
    }

    /// What `clients` of these browsers and the database's growth take, over `passes` of `seconds`, where an
    /// interaction adds `bytes_each` in the mean.
    pub(super) fn needs(self, clients: u64, seconds: u64, passes: u32, bytes_each: f64) -> Needs {
        // No client does more than a thousand interactions a second, nor all of them more than ten thousand.
        let rate = clients as f64 / self.think.max(0.001).max(clients as f64 / 10_000.0);
        let growth = rate * seconds as f64 * f64::from(passes) * bytes_each;
        let own = Needs { descriptors: clients + 64, memory: clients * (256 << 10), ..Needs::default() };
        both(own, Needs { bytes: (growth as u64).min(1 << 30), ..Needs::default() })
    }
}

/// A report's figures: response time and rate of all interactions.
pub(super) fn told(report: &mut PassReport) {
    let mut all = Histogram::new();
    report.classes.iter().for_each(|c| all.merge(&c.latencies));
    if all.count() == 0 {
        report.short = Some("no interaction was made; give it longer (--duration), or --set think=1".into());
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    report.metrics = vec![
        Metric::less("response", "ms", all.mean_ns().unwrap_or(0.0) / 1e6),
        Metric::less("90th percentile", "ms", ms(all.quantile_ns(0.9).unwrap_or(0))),
        Metric::more("interactions", "/s", report.ops_per_second()),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsbench::control::Limits;
    use crate::fsbench::{OpClass, rng};

    /// Kolmogorov's statistic of `draw` against an exponential law cut off at `most` means.
    fn furthest(mean: f64, most: f64, mut draw: impl FnMut() -> f64) -> f64 {
        let n = 20_000;
        let mut all: Vec<f64> = (0..n).map(|_| draw()).collect();
        all.sort_by(f64::total_cmp);
        assert!(*all.last().unwrap() <= most * mean);
        let law = |x: f64| if x >= most * mean { 1.0 } else { 1.0 - (-x / mean).exp() };
        let n = n as f64;
        // At the cut the law jumps, as the draws do: only what lies below it is compared.
        let below = all.iter().enumerate().filter(|(_, x)| **x < most * mean);
        below.map(|(i, x)| (law(*x) - i as f64 / n).abs()).fold(0.0, f64::max) * n.sqrt()
    }

    #[test]
    fn thinking_and_sessions_are_exponential_up_to_their_limits() {
        let (times, mut rng) = (Times { think: 7.0, session: 900.0 }, Rng::new(5));
        assert!(furthest(7.0, THINK_MAX, || times.next_think(&mut rng)) < rng::KS_LIMIT);
        assert!(furthest(900.0, SESSION_MAX, || times.next_session(&mut rng)) < rng::KS_LIMIT);
        assert!(furthest(7.0, THINK_MAX, || 0.95 * times.next_think(&mut rng)) > rng::KS_LIMIT);
    }

    #[test]
    fn sessions_end_and_others_begin() {
        let control = Control::new(Limits { ops: Some(50), ..Limits::default() });
        let (times, mut rng) = (Times { think: 0.0001, session: 0.0 }, Rng::new(6));
        let mut recorder = control.recorder(vec![OpClass::new("a")]);
        let mut news = 0;
        let one = |is_new: bool, _: &mut Rng| {
            news += u32::from(is_new);
            Ok((0, 10, 1))
        };
        times.browse(&control, &mut rng, &mut recorder, one).unwrap();
        let mut report = control.report(recorder.into_classes());
        told(&mut report);
        assert_eq!((report.ops(), report.bytes(), report.short), (50, (500, 50), None));
        assert_eq!(news, 50, "a session of no length is over when the next interaction begins");
    }

    #[test]
    fn what_cannot_be_a_time_is_told() {
        for (think, session) in [(-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)] {
            assert!(!Times { think, session }.are_sane());
        }
        let times = Times { think: 0.0, session: 0.0 };
        assert!(times.are_sane());
        // Bounded, whatever is asked for.
        assert!(times.needs(10_000, 1 << 40, u32::MAX, 1e9).bytes <= 1 << 30);
        let mut nothing = PassReport::default();
        told(&mut nothing);
        assert!(nothing.short.is_some());
    }
}
