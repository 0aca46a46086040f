//! What the daemon did during a pass, where the directory lies on an FS2 volume.
//!
//! The daemon counts from its attach; a pass is the difference of two answers. Means become sums for that.

use std::path::{Path, PathBuf};

use fs2_control::{Client, Command, Reply, Status};
use serde::Serialize;

use super::BenchError;
use super::preflight::mount_of;
use crate::volume::{self, MountRecord};

/// The daemon's figures of one pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DaemonUse {
    /// Policy in force.
    pub policy: String,
    /// Drive, real or modelled.
    pub drive: String,
    /// Where the parts of the access time come from.
    pub source: String,
    /// How long it was, in the drive's seconds: a modelled drive may be slower or faster than the clock (`--time-scale`).
    pub elapsed_s: f64,
    /// Reads that reached the volume.
    pub reads: u64,
    /// Of these, read from a replica.
    pub reads_from_replica: u64,
    /// Writes.
    pub writes: u64,
    /// Accesses the parts are means of.
    pub accesses: u64,
    /// Mean access time of a read in ms as the daemon saw it, from the session's mean; `None` where
    /// there was none.
    pub access_ms: Option<f64>,
    /// Mean seek of an access in ms.
    pub seek_ms: Option<f64>,
    /// Mean rotational latency in ms.
    pub rotation_ms: Option<f64>,
    /// Mean transfer in ms, overhead included.
    pub transfer_ms: Option<f64>,
    /// Energy in joules.
    pub energy_j: Option<f64>,
    /// Where the energy's figure comes from.
    pub energy_source: String,
    /// Blocks copied.
    pub copies_written: u64,
    /// Replicas dropped by writes.
    pub invalidated: u64,
    /// Replicas dropped for space.
    pub reclaimed: u64,
    /// Replicas held at the pass's end.
    pub replicas: u64,
}

/// The daemon of the volume that holds a directory.
#[derive(Debug)]
pub struct Daemon {
    record: MountRecord,
}

impl Daemon {
    /// The one whose volume holds `dir`; `None` where it is another file system.
    pub fn of(dir: &Path) -> Option<Daemon> {
        // By the mount and not by its directory: a volume may be bound to several.
        volume::find_record(&mount_of(dir)?.target).map(|record| Daemon { record })
    }

    /// What `fs2 mount` wrote down of it.
    pub fn record(&self) -> &MountRecord {
        &self.record
    }

    /// Has it record every request in a trace at `path`, until the answer is dropped or ended.
    ///
    /// # Errors
    /// Where it does not answer, or cannot write there.
    pub fn record_trace(&self, path: &Path) -> Result<Recording, BenchError> {
        ask(&self.record.control, &Command::TraceStart { path: path.to_owned() })?;
        Ok(Recording { control: Some(self.record.control.clone()) })
    }

    /// Its figures since its attach.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn status(&self) -> Result<Status, BenchError> {
        volume::status(&self.record).map_err(|e| {
            BenchError::Failed(format!("{}: its daemon does not answer: {e}", self.record.dir.display()))
        })
    }
}

/// A trace being recorded; ended on drop.
#[derive(Debug)]
pub struct Recording {
    control: Option<PathBuf>,
}

impl Recording {
    /// One that the daemon at `control` makes.
    #[cfg(test)]
    pub(super) fn of(control: &Path) -> Recording {
        Recording { control: Some(control.to_owned()) }
    }

    /// Ends it; the trace is whole.
    ///
    /// # Errors
    /// Where the daemon does not answer, or could not write all of it.
    pub fn end(mut self) -> Result<(), BenchError> {
        self.control.take().map_or(Ok(()), |control| ask(&control, &Command::TraceStop))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(control) = self.control.take() {
            // The run has failed already, and says so.
            let _ = ask(&control, &Command::TraceStop);
        }
    }
}

fn ask(control: &Path, command: &Command) -> Result<(), BenchError> {
    let failed = |e: &dyn std::fmt::Display| BenchError::Failed(format!("recording a trace: {e}"));
    match Client::connect(control).and_then(|mut client| client.ask(command)).map_err(|e| failed(&e))? {
        Reply::Done => Ok(()),
        Reply::Error { what, .. } => Err(failed(&what)),
        other => Err(failed(&format!("the daemon answered {other:?}"))),
    }
}

/// Whether two answers are of two daemons. The process stays where a program replaced itself (`fs2 upgrade`): what it counts begins anew.
fn is_another(before: &Status, after: &Status) -> bool {
    let counts = |s: &Status| [s.reads, s.writes, s.access_ms.accesses, s.copies_written];
    before.pid != after.pid
        || after.uptime_s < before.uptime_s
        || counts(before).iter().zip(counts(after)).any(|(before, after)| after < *before)
}

/// What happened between two answers of one daemon.
///
/// # Errors
/// Where they are of two.
pub fn difference(before: &Status, after: &Status) -> Result<DaemonUse, BenchError> {
    if is_another(before, after) {
        return Err(BenchError::Failed(
            "another daemon took the place of FS2's during the run: what the first one counted is lost; run it again"
                .into(),
        ));
    }
    Ok(counted(before, after))
}

fn counted(before: &Status, after: &Status) -> DaemonUse {
    let n = |f: fn(&Status) -> u64| f(after).saturating_sub(f(before));
    let mean = |parts: fn(&Status) -> Option<f64>, count: fn(&Status) -> u64| {
        let sum = |s: &Status| parts(s).unwrap_or(0.0) * count(s) as f64;
        let counted = n(count);
        parts(after)?;
        // Two means of the whole session lose digits: what is left may be a hair below nothing.
        (counted > 0).then(|| ((sum(after) - sum(before)) / counted as f64).max(0.0))
    };
    let accesses = |s: &Status| s.access_ms.accesses;
    DaemonUse {
        policy: after.policy.clone(),
        drive: after.drive.clone(),
        source: after.access_ms.source.to_string(),
        elapsed_s: after.uptime_s - before.uptime_s,
        reads: n(|s| s.reads),
        reads_from_replica: n(|s| s.reads_from_replica),
        writes: n(|s| s.writes),
        accesses: n(accesses),
        access_ms: mean(|s| s.access_ms.mean, |s| s.reads),
        seek_ms: mean(|s| s.access_ms.seek, accesses),
        rotation_ms: mean(|s| s.access_ms.rotation, accesses),
        transfer_ms: mean(|s| s.access_ms.transfer, accesses),
        energy_j: after.energy_j.value.map(|v| (v - before.energy_j.value.unwrap_or(0.0)).max(0.0)),
        energy_source: after.energy_j.source.to_string(),
        copies_written: n(|s| s.copies_written),
        invalidated: n(|s| s.invalidated),
        reclaimed: n(|s| s.reclaimed),
        replicas: after.replicas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs2_control::{AccessMs, EnergyJ, Source};

    fn status(reads: u64, mean: f64, accesses: u64, seek: Option<f64>, joules: f64) -> Status {
        Status {
            reads,
            access_ms: AccessMs {
                mean: Some(mean),
                seek,
                rotation: seek,
                accesses,
                source: Source::Simulated("wd800-repaired".into()),
                ..AccessMs::default()
            },
            energy_j: EnergyJ { value: Some(joules), source: Source::None },
            ..Status::default()
        }
    }

    #[test]
    fn a_pass_is_the_difference_of_sums_not_of_means() {
        let before = status(100, 10.0, 200, Some(4.0), 50.0);
        let after = status(300, 6.0, 400, Some(3.0), 75.0);
        let used = difference(&before, &after).unwrap();
        assert_eq!((used.reads, used.accesses), (200, 200));
        // 300 * 6 - 100 * 10 = 800 ms over 200 reads.
        assert_eq!(used.access_ms, Some(4.0));
        assert_eq!((used.seek_ms, used.rotation_ms, used.transfer_ms), (Some(2.0), Some(2.0), None));
        assert_eq!(used.energy_j, Some(25.0));
        assert_eq!(used.source, "simulated drive wd800-repaired");
    }

    #[test]
    fn of_no_access_there_is_no_mean() {
        let same = status(100, 10.0, 200, Some(4.0), 50.0);
        let used = difference(&same, &same).unwrap();
        assert_eq!((used.access_ms, used.seek_ms, used.energy_j), (None, None, Some(0.0)));
        let fresh = difference(&Status::default(), &same).unwrap();
        assert_eq!((fresh.access_ms, fresh.seek_ms), (Some(10.0), Some(4.0)));
    }

    /// Found: their counters were taken for those of one, so that a run had no reads, or those of the whole session.
    #[test]
    fn two_daemons_have_no_figures_together() {
        let before = Status { pid: 7, uptime_s: 100.0, ..status(100, 10.0, 200, Some(4.0), 50.0) };
        let after =
            |pid, uptime_s, reads| Status { pid, uptime_s, ..status(reads, 10.0, 900, Some(4.0), 90.0) };
        // As a supervisor replaces it, as `fs2 upgrade` does, and the latter a while ago.
        for after in [after(8, 130.0, 300), after(7, 3.0, 300), after(7, 130.0, 60)] {
            let said = difference(&before, &after).unwrap_err().to_string();
            assert!(said.contains("another daemon"), "{said}");
        }
        assert_eq!(difference(&before, &after(7, 130.0, 300)).unwrap().elapsed_s, 30.0);
    }
}
