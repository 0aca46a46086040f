//! A benchmark from its first check to its last file removed.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fs2_control::Status;

use super::BenchError;
use super::control::{Control, Limits, Progress};
use super::fs2::{Daemon, DaemonUse, Recording, difference};
use super::preflight;
use super::site::Site;
use super::workload::{Entry, Needs, PassReport, Setup, Verified, Workload};

/// What to run, where and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A directory that is there.
    pub dir: PathBuf,
    /// What the workload is made with.
    pub setup: Setup,
    /// Passes that are counted; 0 only prepares.
    pub runs: u32,
    /// Passes before them that are reported apart: a file system that learns has learnt then.
    pub train: u32,
    /// What ends a pass.
    pub limits: Limits,
    /// Leave the files.
    pub keep: bool,
    /// Take over files left by `keep`.
    pub reuse: bool,
}

/// A pass with what was measured around it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Whether it came before those that count.
    pub training: bool,
    /// What the workload counted.
    pub report: PassReport,
    /// How long writing back took that the pass had left behind.
    pub sync: Duration,
    /// What the daemon did since the warm-up's end, write-back included; `None` where it is not FS2, and of a pass that
    /// ended within its warm-up.
    pub fs2: Option<DaemonUse>,
    /// What it did from then until [`Session::rested`] was called; `None` where that was not.
    pub rest: Option<DaemonUse>,
}

/// A whole benchmark.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The workload's name.
    pub workload: String,
    /// What it was made with.
    pub setup: Setup,
    /// Its parameters.
    pub parameters: serde_json::Value,
    /// What it was said to need.
    pub needs: Needs,
    /// How long the files took to make.
    pub prepare: Duration,
    /// All passes, training first.
    pub runs: Vec<Run>,
    /// What the comparison at the end found.
    pub verified: Option<Verified>,
    /// Why there is no trace of it, where one was asked for.
    pub not_recorded: Option<String>,
}

/// Called around passes by whoever measures or empties caches.
pub trait Around: Send {
    /// Before each pass, its files closed and written back.
    ///
    /// # Errors
    /// Where it cannot do what the user asked for.
    fn before(&mut self, _site: &Site, _training: bool) -> Result<(), BenchError> {
        Ok(())
    }

    /// As a pass begins, with what it will count.
    fn during(&mut self, _progress: Arc<Progress>) {}

    /// As the warm-up of a pass ends, in another thread than the pass's: what is measured begins anew. Not called without
    /// a warm-up, nor where the pass ends within it.
    fn warmed(&mut self) {}

    /// After each pass, before anything is written back.
    ///
    /// # Errors
    /// As `before`.
    fn after(&mut self, _site: &Site, _training: bool) -> Result<(), BenchError> {
        Ok(())
    }

    /// Whether another counted pass is wanted after these.
    fn wants_more(&self, runs: &[Run], planned: u32) -> bool {
        runs.iter().filter(|r| !r.training).count() < planned as usize
    }
}

/// Nothing around it: as many passes as planned, caches as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plainly;

impl Around for Plainly {}

/// Runs a benchmark. What it made is removed again, also where it fails or panics, unless it is kept.
///
/// # Errors
/// Whatever is refused before it or fails in it; a pass that is short; files that are not what was written.
pub fn run(entry: &Entry, plan: &Plan, around: &mut dyn Around) -> Result<Outcome, BenchError> {
    run_recorded(entry, plan, around, None)
}

/// As [`run`]; FS2's daemon records all passes in a trace at `record`.
///
/// # Errors
/// As [`run`]; where the directory does not lie on an FS2 volume, or the trace cannot be written.
pub fn run_recorded(
    entry: &Entry,
    plan: &Plan,
    around: &mut dyn Around,
    record: Option<&Path>,
) -> Result<Outcome, BenchError> {
    preflight::directory(&plan.dir)?;
    run_workload(entry.name, (entry.make)(&plan.setup)?, plan, around, record)
}

/// As [`run_recorded`], with a workload that has no entry: a script.
///
/// # Errors
/// As [`run_recorded`].
pub fn run_workload(
    name: &str,
    workload: Box<dyn Workload>,
    plan: &Plan,
    around: &mut dyn Around,
    record: Option<&Path>,
) -> Result<Outcome, BenchError> {
    preflight::directory(&plan.dir)?;
    if record.is_some() && Daemon::of(&plan.dir).is_none() {
        return Err(BenchError::Refused(format!(
            "{}: does not lie on an FS2 volume, whose daemon would record; fs2 mount it, with --policy none for plain ext2",
            plan.dir.display()
        )));
    }
    if let Some(path) = record.filter(|path| path.symlink_metadata().is_ok()) {
        return Err(BenchError::Refused(format!(
            "{}: File exists; remove it or name another",
            path.display()
        )));
    }
    let mut session = Session::of(name, workload, plan)?;
    if let (Some(path), Some(daemon)) = (record, &session.daemon) {
        write_back(&session.site)?;
        session.recording = Some(daemon.record_trace(path)?);
    }
    for _ in 0..plan.train {
        session.pass(around, true)?;
    }
    while plan.runs > 0 && around.wants_more(session.runs(), plan.runs) {
        session.pass(around, false)?;
    }
    session.end()
}

/// A benchmark whose passes are asked for one by one. What it made is removed on drop, unless it is kept.
pub struct Session {
    plan: Plan,
    workload: Box<dyn Workload>,
    site: Site,
    daemon: Option<Daemon>,
    recording: Option<Recording>,
    /// The daemon's figures as the last pass ended.
    ended: Option<Status>,
    outcome: Outcome,
}

impl Session {
    /// Checks the place and makes the files, or takes them over.
    ///
    /// # Errors
    /// Why not; what was made is removed.
    pub fn open(entry: &Entry, plan: &Plan) -> Result<Session, BenchError> {
        preflight::directory(&plan.dir)?;
        Session::of(entry.name, (entry.make)(&plan.setup)?, plan)
    }

    /// As `open`, with a workload that has no entry: a script.
    ///
    /// # Errors
    /// As `open`.
    pub fn of(name: &str, mut workload: Box<dyn Workload>, plan: &Plan) -> Result<Session, BenchError> {
        preflight::directory(&plan.dir)?;
        let daemon = Daemon::of(&plan.dir);
        // Nothing is written to a volume whose daemon is gone.
        daemon.as_ref().map(Daemon::status).transpose()?;
        let (parameters, needs) = (workload.parameters(), workload.needs());
        room(plan, &needs)?;
        let (site, prepare) = if plan.reuse {
            let mut site = Site::reuse(&plan.dir, name, &parameters, plan.setup.seed)?;
            workload.reopen(&site)?;
            // From here on it is as if made by this run.
            site.keep(plan.keep);
            (site, Duration::ZERO)
        } else {
            let mut site = Site::create(&plan.dir, name, parameters.clone(), plan.setup.seed)?;
            let prepare = prepared(&mut *workload, &site)?;
            site.set_pristine(true)?;
            (site, prepare)
        };
        let outcome = Outcome {
            workload: name.into(),
            setup: plan.setup.clone(),
            parameters,
            needs,
            prepare,
            runs: Vec::new(),
            verified: None,
            not_recorded: None,
        };
        Ok(Session { plan: plan.clone(), workload, site, daemon, recording: None, ended: None, outcome })
    }

    /// The passes so far.
    pub fn runs(&self) -> &[Run] {
        &self.outcome.runs
    }

    /// Its directory.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Another pass.
    ///
    /// # Errors
    /// Whatever fails in it.
    pub fn pass(&mut self, around: &mut dyn Around, training: bool) -> Result<(), BenchError> {
        self.site.set_pristine(false)?;
        let daemon = self.daemon.as_ref();
        // Runs that an interval asks for have no known number.
        let before = self.outcome.runs.iter().filter(|r| r.training == training).count() as u32;
        let (what, of) = if training { ("training run", self.plan.train) } else { ("run", self.plan.runs) };
        let of = if before < of { format!(" of {of}") } else { String::new() };
        let name = format!("{what} {}{of}", before + 1);
        let (run, ended) = pass(&mut *self.workload, &self.site, &self.plan, around, daemon, training, name)?;
        self.outcome.runs.push(run);
        self.ended = ended;
        Ok(())
    }

    /// Charges what the daemon has done since the last pass to that: a volume that copies does most of it at rest.
    /// Before anything else is done on it.
    ///
    /// # Errors
    /// Where the daemon does not answer, or is another.
    pub fn rested(&mut self) -> Result<(), BenchError> {
        if let (Some(daemon), Some(ended), Some(run)) =
            (&self.daemon, &self.ended, self.outcome.runs.last_mut())
        {
            run.rest = Some(difference(ended, &daemon.status()?)?);
        }
        Ok(())
    }

    /// Compares the files where there was a pass, and removes them unless they are kept.
    ///
    /// # Errors
    /// The file system's; a signal.
    pub fn end(mut self) -> Result<Outcome, BenchError> {
        // What was measured is none the worse for it.
        self.outcome.not_recorded = self.recording.take().and_then(|r| r.end().err()).map(|e| e.to_string());
        if !self.outcome.runs.is_empty() {
            let control = Control::new(Limits::default());
            let _shown = Shown::start("comparing".into(), &control);
            self.outcome.verified = Some(self.workload.verify(&self.site, &control)?);
            control.check()?;
        }
        if self.plan.keep {
            self.site.keep(true);
        } else {
            self.site.remove()?;
        }
        Ok(self.outcome)
    }
}

/// Checks that there is room for what a plan makes; what it takes over is there already.
///
/// # Errors
/// As [`preflight::room`].
pub fn room(plan: &Plan, needs: &Needs) -> Result<(), BenchError> {
    match plan.reuse {
        true => preflight::room(&plan.dir, &Needs { bytes: 0, inodes: 0, ..*needs }),
        false => preflight::room(&plan.dir, needs),
    }
}

/// Why an outcome does not count, or not all of it: damaged files, a short pass, no trace.
pub fn failure(outcome: &Outcome) -> Option<BenchError> {
    if let Some(v) = outcome.verified.as_ref().filter(|v| v.damaged > 0) {
        return Some(BenchError::Failed(format!(
            "{} of {} files are not what was written: {}",
            v.damaged,
            v.files,
            v.examples.join("; ")
        )));
    }
    let short = outcome.runs.iter().enumerate().find_map(|(i, r)| Some((i + 1, r.report.short.as_ref()?)));
    let short = short.map(|(i, why)| BenchError::Failed(format!("run {i} ended early: {why}")));
    short.or_else(|| outcome.not_recorded.clone().map(BenchError::Failed))
}

fn prepared(workload: &mut dyn Workload, site: &Site) -> Result<Duration, BenchError> {
    let control = Control::new(Limits::default());
    let shown = Shown::start("preparing".into(), &control);
    workload.prepare(site, &control)?;
    control.check()?;
    write_back(site)?;
    drop(shown);
    Ok(control.elapsed())
}

fn pass(
    workload: &mut dyn Workload,
    site: &Site,
    plan: &Plan,
    around: &mut dyn Around,
    daemon: Option<&Daemon>,
    training: bool,
    name: String,
) -> Result<(Run, Option<Status>), BenchError> {
    let control = Control::new(Limits::default());
    let shown = Shown::start(format!("before {name}"), &control);
    workload.restore(&control)?;
    control.check()?;
    write_back(site)?;
    drop(shown);
    around.before(site, training)?;
    let before = daemon.map(Daemon::status).transpose()?;
    let mut limits = plan.limits;
    if workload.is_endless() && limits.duration.is_none() && limits.ops.is_none() {
        limits.duration = workload.usual_duration();
    }
    let control = Control::new(limits);
    around.during(control.progress());
    let shown = Shown::start(name.clone(), &control);
    let (report, before) = match limits.warmup.is_zero() {
        true => (workload.pass(site, &control), Ok(before)),
        false => warmed_up(workload, site, &control, around, daemon),
    };
    drop(shown);
    control.check()?;
    let (report, before) = (report?, before?);
    around.after(site, training)?;
    let shown = Shown::start(format!("writing back after {name}"), &Control::new(Limits::default()));
    let began = Instant::now();
    write_back(site)?;
    let sync = began.elapsed();
    drop(shown);
    let ended = daemon.map(Daemon::status).transpose()?;
    let fs2 =
        before.as_ref().zip(ended.as_ref()).map(|(before, ended)| difference(before, ended)).transpose()?;
    Ok((Run { training, report, sync, fs2, rest: None }, ended))
}

/// A pass with a warm-up: what it came to, and the daemon's figures as that ended. None where the pass was over by then:
/// they would be figures of what does not count.
fn warmed_up(
    workload: &mut dyn Workload,
    site: &Site,
    control: &Control,
    around: &mut dyn Around,
    daemon: Option<&Daemon>,
) -> (Result<PassReport, BenchError>, Result<Option<Status>, BenchError>) {
    // Ends the wait also where the pass panics.
    let (over, pass_is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let before = scope.spawn(move || {
            let left = control.limits().warmup.saturating_sub(control.elapsed());
            match pass_is_over.recv_timeout(left) {
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    around.warmed();
                    daemon.map(Daemon::status).transpose()
                }
                Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
            }
        });
        let report = workload.pass(site, control);
        drop(over);
        let before = before.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (report, before)
    })
}

/// Writes back what the file system holds dirty.
fn write_back(site: &Site) -> Result<(), BenchError> {
    let at = |e| BenchError::at(site.root(), "writing back")(e);
    let dir = std::fs::File::open(site.root()).map_err(at)?;
    nix::unistd::syncfs(&dir).map_err(|e| at(e.into()))
}

/// A line on standard error that tells once a second how far it is, where that is a terminal.
struct Shown {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Shown {
    fn start(what: String, control: &Control) -> Shown {
        let over = Arc::new(AtomicBool::new(false));
        if !std::io::stderr().is_terminal() {
            return Shown { over, thread: None };
        }
        let (ended, progress, limits) = (Arc::clone(&over), control.progress(), control.limits());
        let thread = std::thread::Builder::new()
            .name("progress".into())
            .spawn(move || show(&what, &progress, limits, &ended));
        Shown { over, thread: thread.ok() }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn show(what: &str, progress: &Progress, limits: Limits, over: &AtomicBool) {
    const MIB: f64 = 1048576.0;
    let began = Instant::now();
    let mut second = 0;
    let mut ops_before = 0;
    let mut shown = false;
    loop {
        second += 1;
        let next = began + Duration::from_secs(second);
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            if over.load(Ordering::Relaxed) {
                if shown {
                    let _ = write!(std::io::stderr(), "\r\x1b[K");
                }
                return;
            }
            std::thread::park_timeout(left);
        }
        let ops = progress.ops.load(Ordering::Relaxed);
        let read = progress.bytes_read.load(Ordering::Relaxed) as f64 / MIB;
        let written = progress.bytes_written.load(Ordering::Relaxed) as f64 / MIB;
        let mut line = format!("\r\x1b[K{what}: {second} s");
        if let Some(whole) = limits.duration {
            line += &format!(" of {:.0} s", (limits.warmup + whole).as_secs_f64());
        }
        if ops > 0 || read + written > 0.0 {
            let rate = ops.saturating_sub(ops_before);
            let of = limits.ops.map_or(String::new(), |n| format!(" of {n}"));
            line +=
                &format!(", {ops}{of} operations ({rate}/s), {read:.0} MiB read, {written:.0} MiB written");
        }
        let _ = write!(std::io::stderr(), "{line}");
        ops_before = ops;
        shown = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found: with a full disk below the trace hours of measuring had neither table nor document, and no file was compared.
    #[test]
    fn what_was_measured_outlives_its_trace() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.ctl");
        let full = |_| fs2_control::Reply::error("No space left on device", "here", "");
        let _daemon = fs2_control::serve(socket.clone(), full).unwrap();
        let entry = super::super::find("find").unwrap();
        let setup = Setup { preset: "ci".into(), seed: 1, scale: 0.01, set: Vec::new(), passes: 1 };
        let limits = Limits::default();
        let plan =
            Plan { dir: dir.path().into(), setup, runs: 1, train: 0, limits, keep: false, reuse: false };
        let mut session = Session::open(&entry, &plan).unwrap();
        session.recording = Some(Recording::of(&socket));
        session.pass(&mut Plainly, false).unwrap();
        let outcome = session.end().unwrap();
        assert!(outcome.runs.len() == 1 && outcome.verified.as_ref().unwrap().files > 0);
        let said = failure(&outcome).unwrap().to_string();
        assert!(said.contains("recording a trace: No space left on device"), "{said}");
    }
}
