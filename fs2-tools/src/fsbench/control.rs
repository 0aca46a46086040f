//! When a pass ends, how far it has come, and what its threads have counted.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::BenchError;
use super::workload::{OpClass, PassReport};

/// Longest sleep without a look at whether to stop.
const NAP: Duration = Duration::from_millis(20);

/// The last signal that asked for an end; 0 for none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn caught(signal: i32) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// Has SIGINT, SIGTERM and SIGHUP end the run in order instead of the process at once. A SIGHUP that the parent had ignored, as nohup(1) has
/// it, stays so.
///
/// # Errors
/// The kernel's.
pub fn catch_signals() -> std::io::Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for which in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        let before = unsafe { signal(which, SigHandler::Handler(caught)) }?;
        if which == Signal::SIGHUP && matches!(before, SigHandler::SigIgn) {
            // SAFETY: no handler.
            unsafe { signal(which, SigHandler::SigIgn) }?;
        }
    }
    Ok(())
}

/// The signal that asked for an end.
pub(super) fn signalled() -> Option<i32> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

/// What ends a pass beside its work being done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// After so long, warm-up excluded.
    pub duration: Option<Duration>,
    /// After so many counted operations.
    pub ops: Option<u64>,
    /// At the start so long is run without being counted.
    pub warmup: Duration,
}

/// How far a pass has come; read by whoever shows it while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Counted operations.
    pub ops: AtomicU64,
    /// Bytes read.
    pub bytes_read: AtomicU64,
    /// Bytes written.
    pub bytes_written: AtomicU64,
}

/// A pass's (or a preparation's) clock, limits and counters. Shared by its threads.
#[derive(Debug)]
pub struct Control {
    started: Instant,
    limits: Limits,
    stop: AtomicBool,
    progress: Arc<Progress>,
}

impl Control {
    /// One whose clock starts now.
    pub fn new(limits: Limits) -> Control {
        Control { started: Instant::now(), limits, stop: AtomicBool::new(false), progress: Arc::default() }
    }

    /// What is counted while it runs.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Since the start, warm-up included.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the pass: another thread failed, or the work is done.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether to end at once, whatever is left to do: a signal, or [`Control::stop`].
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || signalled().is_some()
    }

    /// Whether the pass is over: stopped, or a limit reached.
    pub fn over(&self) -> bool {
        self.stopped()
            || self.limits.ops.is_some_and(|n| self.progress.ops.load(Ordering::Relaxed) >= n)
            || self.limits.duration.is_some_and(|d| self.started.elapsed() >= self.limits.warmup + d)
    }

    /// Whether what begins now is part of the warm-up.
    pub fn warming_up(&self) -> bool {
        !self.limits.warmup.is_zero() && self.started.elapsed() < self.limits.warmup
    }

    /// An error where a signal asked for an end.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`].
    pub fn check(&self) -> Result<(), BenchError> {
        signalled().map_or(Ok(()), |signal| Err(BenchError::Interrupted(signal)))
    }

    /// Sleeps, but not beyond the pass's end; whether the pass goes on.
    pub fn sleep(&self, how_long: Duration) -> bool {
        let until = Instant::now() + how_long;
        while !self.over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(NAP));
        }
        false
    }

    /// A thread's own counters, of these classes.
    pub fn recorder(&self, classes: Vec<OpClass>) -> Recorder<'_> {
        Recorder { control: self, classes }
    }

    /// The report of what `classes` hold: elapsed is from the end of the warm-up to now. A pass that ended before is none.
    pub fn report(&self, classes: Vec<OpClass>) -> PassReport {
        let (took, warmup) = (self.started.elapsed(), self.limits.warmup);
        let short = (!warmup.is_zero() && took <= warmup).then(|| ended_within_warmup(took));
        PassReport { elapsed: took.saturating_sub(warmup), classes, short, ..PassReport::default() }
    }
}

/// Why a pass is short that took no longer than its warm-up.
pub(super) fn ended_within_warmup(took: Duration) -> String {
    format!("it ended after {:.2} s, within the warm-up", took.as_secs_f64())
}

/// A thread's counters; merged when the thread is done.
#[derive(Debug)]
pub struct Recorder<'a> {
    control: &'a Control,
    classes: Vec<OpClass>,
}

impl Recorder<'_> {
    /// Counts an operation of a class that began at `began` and is over.
    pub fn done(&mut self, class: usize, began: Instant, bytes_read: u64, bytes_written: u64) {
        self.add(class, began.elapsed(), bytes_read, bytes_written);
    }

    /// Counts an operation that took so long and is over.
    pub fn add(&mut self, class: usize, took: Duration, bytes_read: u64, bytes_written: u64) {
        if self.control.warming_up() {
            return;
        }
        let class = &mut self.classes[class];
        class.add(took, bytes_read, bytes_written);
        let progress = &self.control.progress;
        if class.counted {
            progress.ops.fetch_add(1, Ordering::Relaxed);
        }
        progress.bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        progress.bytes_written.fetch_add(bytes_written, Ordering::Relaxed);
    }

    /// What was counted.
    pub fn into_classes(self) -> Vec<OpClass> {
        self.classes
    }
}

/// Adds up what several threads counted, class by class.
pub fn merged(of_threads: impl IntoIterator<Item = Vec<OpClass>>) -> Vec<OpClass> {
    let mut all: Vec<OpClass> = Vec::new();
    for classes in of_threads {
        if all.is_empty() {
            all = classes;
            continue;
        }
        for (sum, one) in all.iter_mut().zip(&classes) {
            sum.merge(one);
        }
    }
    all
}

/// Runs `threads` threads to their end and gives what each counted, added up. The first error of one
/// stops the others.
///
/// # Errors
/// The first thread's that failed; a signal.
pub fn in_threads(
    control: &Control,
    threads: usize,
    run: impl Fn(usize) -> Result<Vec<OpClass>, BenchError> + Sync,
) -> Result<Vec<OpClass>, BenchError> {
    let failed: Mutex<Option<BenchError>> = Mutex::new(None);
    let of_threads = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|i| {
                let (run, failed) = (&run, &failed);
                scope.spawn(move || {
                    // Stops the others also where this one panics.
                    let guard = StopOnDrop(control);
                    match run(i) {
                        Ok(classes) => {
                            std::mem::forget(guard);
                            classes
                        }
                        Err(e) => {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                            Vec::new()
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = handles.into_iter().map(|h| h.join()).collect();
        ended
            .into_iter()
            .map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    control.check()?;
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(merged(of_threads)),
    }
}

struct StopOnDrop<'a>(&'a Control);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
