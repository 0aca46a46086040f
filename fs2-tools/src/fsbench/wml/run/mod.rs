//! A run: its threads, its end, and what was counted.
//!
//! Processes of a script are groups of threads of this one: they share nothing in the language but what is shared
//! here too (filesets, semaphores, events). What a kernel does per process (open files, asynchronous I/O, limits
//! without a target) is kept per process here.

mod live;
mod outcome;
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fileset::FileSet;
use super::model::{Model, Step};

pub(super) use live::{Live, ThreadState, Totals};
pub use outcome::{Ended, Event, OpReport, RunError, RunOptions, RunReport};
use session::Session;

/// At most so many bytes at once: what is longer is read and written in pieces.
pub(super) const PIECE_BYTES: u64 = 64 << 20;

/// Carries out a script's steps on files that are there.
pub(super) fn run(
    model: &Arc<Model>,
    sets: &Arc<Vec<FileSet>>,
    options: &RunOptions,
    sink: &mut dyn FnMut(Event),
) -> Result<RunReport, RunError> {
    let warm_from = Instant::now() + options.warmup;
    let mut session: Option<Session> = None;
    let mut steps = model.steps.clone();
    if !steps.iter().any(|s| matches!(s, Step::Start | Step::Run { .. })) {
        steps.push(Step::Run { seconds: None, period_s: None });
    }
    for step in steps {
        match step {
            Step::Echo(text) => sink(Event::Said(text)),
            Step::System(command) if options.system => system(command)?,
            Step::System(command) => sink(Event::Said(format!("system {command:?}: left out"))),
            Step::Start => {
                if session.is_none() {
                    session = Some(Session::start(model, sets, options)?);
                }
            }
            Step::Sleep(seconds) => {
                let time = match &session {
                    Some(_) => options.runtime.unwrap_or(Duration::from_secs(seconds)),
                    None => Duration::from_secs(seconds),
                };
                match &mut session {
                    Some(session) => {
                        if session.warm_up(warm_from, options, sink) {
                            session.wait(Instant::now() + time, options, sink);
                        }
                    }
                    None => {
                        let until = Instant::now() + time;
                        while Instant::now() < until && !(options.interrupted)() {
                            std::thread::sleep(
                                until
                                    .saturating_duration_since(Instant::now())
                                    .min(Duration::from_millis(50)),
                            );
                        }
                    }
                }
            }
            Step::Snapshot => {
                if let Some(session) = &session {
                    sink(Event::Counted(session.report()));
                }
            }
            Step::Stop => break,
            Step::Run { seconds, period_s } => {
                let mut session = match session {
                    Some(session) => session,
                    None => Session::start(model, sets, options)?,
                };
                let time =
                    options.runtime.unwrap_or(Duration::from_secs(seconds.unwrap_or(super::RUN_SECONDS)));
                if session.warm_up(warm_from, options, sink) {
                    timed(&mut session, time, period_s, options, sink);
                }
                return session.stop(options.grace);
            }
        }
    }
    match session {
        Some(session) => session.stop(options.grace),
        None => Ok(RunReport {
            elapsed: Duration::ZERO,
            ops: Vec::new(),
            ended: Some(Ended::AllDone),
            within_warmup: None,
        }),
    }
}

fn timed(
    session: &mut Session,
    time: Duration,
    period_s: Option<u64>,
    options: &RunOptions,
    sink: &mut dyn FnMut(Event),
) {
    let end = session.start + time;
    let Some(period) = period_s.map(Duration::from_secs) else {
        session.wait(end, options, sink);
        return;
    };
    let mut before = session.report();
    let mut next = session.start + period;
    while next < end && session.wait(next, options, sink) {
        let now = session.report();
        sink(Event::Counted(since(&before, &now)));
        before = now;
        next += period;
    }
    session.wait(end, options, sink);
}

/// What came between two reports: counts, bytes and times; the extremes are of the whole run.
fn since(before: &RunReport, now: &RunReport) -> RunReport {
    let mut out = now.clone();
    out.elapsed = now.elapsed.saturating_sub(before.elapsed);
    for (op, earlier) in out.ops.iter_mut().zip(&before.ops) {
        op.count -= earlier.count.min(op.count);
        op.bytes -= earlier.bytes.min(op.bytes);
        op.total_ns -= earlier.total_ns.min(op.total_ns);
    }
    out
}

fn system(command: String) -> Result<(), RunError> {
    let failed = |what: String| RunError::System { command: command.clone(), what };
    match std::process::Command::new("sh").arg("-c").arg(&command).stdin(std::process::Stdio::null()).status()
    {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(status.to_string())),
        Err(error) => Err(failed(format!("cannot be started: {error}"))),
    }
}
