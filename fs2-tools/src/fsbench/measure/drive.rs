//! What the drive did during a run, from what its daemon told before and after.
//!
//! Energy by the paper's form: E_A = T_s·P_seek + (T_r + T_t)·P_idle. The paper adds idle energy for the whole
//! time; here idle counts only while the drive is not busy, and both parts are told.

use fs2_control::{Source, Status};
use fs2_disk::Power;
use serde::{Deserialize, Serialize};

use super::energy::EnergyReading;

/// A run's accesses. Milliseconds are means an access; all are the drive's time, modelled or measured as
/// `source` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveSpan {
    /// `simulated drive X`, or `modelled by profile X`.
    pub source: String,
    /// The policy in force.
    pub policy: String,
    /// Accesses of the drive, the engine's own included where the drive is simulated.
    pub accesses: u64,
    /// Mean access time: the sum of the three parts.
    pub t_a_ms: Option<f64>,
    /// Mean seek.
    pub t_s_ms: Option<f64>,
    /// Mean rotational latency.
    pub t_r_ms: Option<f64>,
    /// Mean transfer, overhead included.
    pub t_t_ms: Option<f64>,
    /// How long the drive was at work, seconds.
    pub busy_s: Option<f64>,
    /// Of the run's time, per cent; more than the run's where work was left at its end.
    pub busy_percent: Option<f64>,
    /// Reads the file system made.
    pub reads: u64,
    /// Of these, served from a replica.
    pub reads_from_replica: u64,
    /// Writes the file system made.
    pub writes: u64,
    /// Blocks copied.
    pub copies_written: u64,
    /// Energy of the accesses, joules, where the drive's power is known.
    pub access_j: Option<f64>,
    /// Energy of the time between them.
    pub idle_j: Option<f64>,
}

impl DriveSpan {
    /// The difference of two statuses of one session; `elapsed_s` is the run's time in the drive's seconds.
    /// `power`: of the drive's profile, where known. `None` where the counters went back: another session.
    pub fn between(
        before: &Status,
        after: &Status,
        elapsed_s: f64,
        power: Option<Power>,
    ) -> Option<DriveSpan> {
        if before.pid != after.pid || after.uptime_s < before.uptime_s {
            return None;
        }
        let accesses = after.access_ms.accesses.checked_sub(before.access_ms.accesses)?;
        let part = |mean: fn(&Status) -> Option<f64>| -> Option<f64> {
            let total = |s: &Status| match s.access_ms.accesses {
                0 => Some(0.0),
                n => mean(s).map(|ms| ms * n as f64),
            };
            // Means are rounded; of nothing a trace may be left.
            (accesses > 0).then(|| Some(((total(after)? - total(before)?) / accesses as f64).max(0.0)))?
        };
        let (t_s, t_r, t_t) =
            (part(|s| s.access_ms.seek), part(|s| s.access_ms.rotation), part(|s| s.access_ms.transfer));
        let t_a = t_s.zip(t_r).zip(t_t).map(|((s, r), t)| s + r + t);
        let known = after.access_ms.source != Source::None || before.access_ms.source != Source::None;
        let seconds = |ms: Option<f64>| match accesses {
            0 if known => Some(0.0),
            n => ms.map(|ms| ms * n as f64 / 1000.0),
        };
        let busy_s = seconds(t_a);
        let less = |get: fn(&Status) -> u64| get(after).checked_sub(get(before));
        let access_j =
            power.and_then(|p| Some(seconds(t_s)? * p.seek_w + (seconds(t_r)? + seconds(t_t)?) * p.idle_w));
        Some(DriveSpan {
            source: after.access_ms.source.to_string(),
            policy: after.policy.clone(),
            accesses,
            t_a_ms: t_a,
            t_s_ms: t_s,
            t_r_ms: t_r,
            t_t_ms: t_t,
            busy_s,
            busy_percent: busy_s.filter(|_| elapsed_s > 0.0).map(|b| 100.0 * b / elapsed_s),
            reads: less(|s| s.reads)?,
            reads_from_replica: less(|s| s.reads_from_replica)?,
            writes: less(|s| s.writes)?,
            copies_written: less(|s| s.copies_written)?,
            access_j,
            idle_j: power.zip(busy_s).map(|(p, busy)| (elapsed_s - busy).max(0.0) * p.idle_w),
        })
    }

    /// Energy of an access, mJ.
    pub fn access_mj(&self) -> Option<f64> {
        self.access_j.filter(|_| self.accesses > 0).map(|j| 1000.0 * j / self.accesses as f64)
    }

    /// Energy of the run, joules: accesses, and idle outside of them.
    pub fn total_j(&self) -> Option<f64> {
        Some(self.access_j? + self.idle_j?)
    }

    /// As one of a run's energies.
    pub fn reading(&self) -> EnergyReading {
        match self.total_j() {
            Some(joules) => EnergyReading {
                note: Some(format!(
                    "{}: accesses {:.1} J, idle {:.1} J; idle counts only outside the accesses",
                    self.source,
                    self.access_j.unwrap_or_default(),
                    self.idle_j.unwrap_or_default()
                )),
                ..EnergyReading::of("disk model", joules)
            },
            None => EnergyReading::unavailable("disk model", "the drive's times or its power are not known"),
        }
    }
}

/// The power of the drive a status names, where it is a built-in profile or one in a file.
pub fn power_of(status: &Status) -> Option<Power> {
    let name = match &status.access_ms.source {
        Source::Modelled(name) | Source::Simulated(name) => name.as_str(),
        _ => status.drive.strip_suffix(" (simulated)").unwrap_or(&status.drive),
    };
    let profile = fs2_disk::DriveProfile::builtin(name).ok().or_else(|| {
        let text = std::fs::read_to_string(name).ok()?;
        fs2_disk::DriveProfile::parse(&text, name).ok()
    });
    profile.map(|p| p.power())
}

#[cfg(test)]
mod tests {
    use fs2_control::AccessMs;

    use super::*;

    fn status(accesses: u64, parts: Option<(f64, f64, f64)>) -> Status {
        let some = |get: fn((f64, f64, f64)) -> f64| parts.map(get);
        Status {
            pid: 7,
            policy: "fs2".into(),
            access_ms: AccessMs {
                seek: some(|p| p.0),
                rotation: some(|p| p.1),
                transfer: some(|p| p.2),
                accesses,
                source: Source::Simulated("wd800-repaired".into()),
                ..AccessMs::default()
            },
            ..Status::default()
        }
    }

    fn paper() -> Option<Power> {
        power_of(&status(0, None))
    }

    /// Before: 100 accesses of 4 + 3 + 1 ms. After: 300 whose means are 6 + 4 + 1. So 200 in between took
    /// (1800 − 400) / 200 = 7, (1200 − 300) / 200 = 4.5 and (300 − 100) / 200 = 1 ms.
    #[test]
    fn means_of_what_happened_in_between() {
        let mut after = status(300, Some((6.0, 4.0, 1.0)));
        (after.reads, after.reads_from_replica, after.uptime_s) = (200, 50, 9.0);
        let span = DriveSpan::between(&status(100, Some((4.0, 3.0, 1.0))), &after, 5.0, paper()).unwrap();
        assert_eq!((span.accesses, span.reads, span.reads_from_replica), (200, 200, 50));
        assert_eq!(
            (span.t_s_ms, span.t_r_ms, span.t_t_ms, span.t_a_ms),
            (Some(7.0), Some(4.5), Some(1.0), Some(12.5))
        );
        assert_eq!((span.busy_s, span.busy_percent), (Some(2.5), Some(50.0)));
        // The paper's drive: 14 W seeking, 8 W otherwise. 1.4 s · 14 + 1.1 s · 8 = 28.4 J; idle 2.5 s · 8 = 20 J.
        let close = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} {b}");
        close(span.access_j, 28.4);
        close(span.idle_j, 20.0);
        close(span.access_mj(), 142.0);
        close(span.reading().joules, 48.4);
    }

    #[test]
    fn from_the_first_access_on() {
        let span =
            DriveSpan::between(&status(0, None), &status(10, Some((1.0, 1.0, 1.0))), 1.0, None).unwrap();
        assert_eq!((span.t_a_ms, span.access_j), (Some(3.0), None));
        assert!(span.reading().unavailable.is_some());
    }

    #[test]
    fn a_run_without_accesses_was_idle() {
        let same = status(10, Some((1.0, 1.0, 1.0)));
        let span = DriveSpan::between(&same, &same, 2.0, paper()).unwrap();
        assert_eq!((span.t_a_ms, span.busy_s, span.idle_j), (None, Some(0.0), Some(16.0)));
    }

    #[test]
    fn another_session_has_no_difference() {
        let (a, mut b) = (status(10, Some((1.0, 1.0, 1.0))), status(20, Some((1.0, 1.0, 1.0))));
        b.pid = 8;
        assert_eq!(DriveSpan::between(&a, &b, 1.0, None), None);
        assert_eq!(DriveSpan::between(&status(20, None), &status(10, None), 1.0, None), None);
    }

    #[test]
    fn a_plain_drive_is_not_known() {
        let unknown = Status { drive: "unknown".into(), ..Status::default() };
        assert!(power_of(&unknown).is_none());
        let span = DriveSpan::between(&unknown, &unknown, 1.0, None).unwrap();
        assert_eq!((span.busy_s, span.t_a_ms), (None, None));
    }
}
