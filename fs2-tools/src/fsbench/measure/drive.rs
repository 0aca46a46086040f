//! What the drive did during a run, made of what its daemon told.
//!
//! Energy by the paper's form: E_A = T_s·P_seek + (T_r + T_t)·P_idle. The paper adds idle energy for the whole
//! time; here idle counts only while the drive is not busy, and both parts are told.

use fs2_disk::{DriveProfile, Power};
use serde::{Deserialize, Serialize};

use super::super::fs2::DaemonUse;
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
    /// Of these, the arm's, joules.
    pub seek_j: Option<f64>,
    /// Energy of the time between them.
    pub idle_j: Option<f64>,
}

impl DriveSpan {
    /// From the daemon's figures of a pass; `elapsed_s` is its time in the drive's seconds. `power`: of the
    /// drive's profile, where known.
    pub fn of(used: &DaemonUse, elapsed_s: f64, power: Option<Power>) -> DriveSpan {
        let n = used.accesses;
        let (t_s, t_r, t_t) = (used.seek_ms, used.rotation_ms, used.transfer_ms);
        let t_a = t_s.zip(t_r).zip(t_t).map(|((s, r), t)| s + r + t);
        let seconds = |ms: Option<f64>| match n {
            0 if used.source != "none" => Some(0.0),
            n => ms.map(|ms| ms * n as f64 / 1000.0),
        };
        let busy_s = seconds(t_a);
        let access_j =
            power.and_then(|p| Some(seconds(t_s)? * p.seek_w + (seconds(t_r)? + seconds(t_t)?) * p.idle_w));
        DriveSpan {
            source: used.source.clone(),
            policy: used.policy.clone(),
            accesses: n,
            t_a_ms: t_a,
            t_s_ms: t_s,
            t_r_ms: t_r,
            t_t_ms: t_t,
            busy_s,
            busy_percent: busy_s.filter(|_| elapsed_s > 0.0).map(|b| 100.0 * b / elapsed_s),
            reads: used.reads,
            reads_from_replica: used.reads_from_replica,
            writes: used.writes,
            copies_written: used.copies_written,
            access_j,
            seek_j: power.zip(seconds(t_s)).map(|(p, s)| s * p.seek_w),
            idle_j: power.zip(busy_s).map(|(p, busy)| (elapsed_s - busy).max(0.0) * p.idle_w),
        }
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

/// What the drive did in the rest after a run: copies are made then, and cost what accesses cost. It idles meanwhile, with
/// copies or without; that is the energy of no run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestSpan {
    /// Accesses of the drive, whoever's.
    pub accesses: u64,
    /// How long it was at work, seconds.
    pub busy_s: Option<f64>,
    /// Blocks copied.
    pub copies_written: u64,
    /// Energy of the accesses, joules, where the drive's power is known.
    pub access_j: Option<f64>,
    /// Of these, the arm's, joules.
    pub seek_j: Option<f64>,
}

impl RestSpan {
    /// From the daemon's figures of the time after a run; `power`: of the drive's profile, where known.
    pub fn of(used: &DaemonUse, power: Option<Power>) -> RestSpan {
        let DriveSpan { accesses, busy_s, copies_written, access_j, seek_j, .. } =
            DriveSpan::of(used, 0.0, power);
        RestSpan { accesses, busy_s, copies_written, access_j, seek_j }
    }
}

/// The power of the drive a daemon names (`X` or `X (simulated)`), where it is a built-in profile or one in a
/// file.
pub fn power_called(drive: &str) -> Option<Power> {
    let name = drive.strip_suffix(" (simulated)").unwrap_or(drive);
    let profile = DriveProfile::builtin(name).ok().or_else(|| {
        let text = fs2d::text::read_file(std::path::Path::new(name)).ok()?;
        DriveProfile::parse(&text, name).ok()
    });
    profile.map(|p| p.power())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(accesses: u64, parts: Option<(f64, f64, f64)>) -> DaemonUse {
        DaemonUse {
            policy: "fs2".into(),
            source: "simulated drive wd800-repaired".into(),
            accesses,
            seek_ms: parts.map(|p| p.0),
            rotation_ms: parts.map(|p| p.1),
            transfer_ms: parts.map(|p| p.2),
            ..DaemonUse::default()
        }
    }

    fn paper() -> Option<Power> {
        power_called("wd800-repaired (simulated)")
    }

    /// The paper's drive takes 14 W seeking and 8 W otherwise: 200 accesses of 7 + 4.5 + 1 ms in 5 s are
    /// 1.4 s · 14 + 1.1 s · 8 = 28.4 J, and 2.5 s idle · 8 = 20 J.
    #[test]
    fn energy_by_the_paper_s_form_and_idle_only_outside() {
        let span = DriveSpan::of(&used(200, Some((7.0, 4.5, 1.0))), 5.0, paper());
        assert_eq!((span.t_a_ms, span.busy_s, span.busy_percent), (Some(12.5), Some(2.5), Some(50.0)));
        let close = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} {b}");
        close(span.access_j, 28.4);
        close(span.idle_j, 20.0);
        close(span.access_mj(), 142.0);
        close(span.reading().joules, 48.4);
        assert_eq!(span.reading().source, "disk model");
    }

    #[test]
    fn a_rest_costs_its_accesses_and_no_idling() {
        let copied = DaemonUse { copies_written: 70, ..used(200, Some((7.0, 4.5, 1.0))) };
        let rest = RestSpan::of(&copied, paper());
        assert_eq!((rest.accesses, rest.copies_written, rest.busy_s), (200, 70, Some(2.5)));
        assert!((rest.access_j.unwrap() - 28.4).abs() < 1e-9, "{rest:?}");
        assert_eq!(RestSpan::of(&used(0, None), paper()).access_j, Some(0.0));
        assert_eq!(RestSpan::of(&copied, None).access_j, None);
    }

    #[test]
    fn a_run_without_accesses_was_idle() {
        let span = DriveSpan::of(&used(0, None), 2.0, paper());
        assert_eq!((span.t_a_ms, span.busy_s, span.idle_j), (None, Some(0.0), Some(16.0)));
    }

    #[test]
    fn what_is_not_known_is_unavailable() {
        assert!(power_called("unknown").is_none());
        let span = DriveSpan::of(&used(10, Some((1.0, 1.0, 1.0))), 1.0, None);
        assert_eq!((span.t_a_ms, span.access_j), (Some(3.0), None));
        assert!(span.reading().unavailable.is_some());
        let plain = DaemonUse { source: "none".into(), ..DaemonUse::default() };
        assert_eq!(DriveSpan::of(&plain, 1.0, None).busy_s, None);
    }
}
