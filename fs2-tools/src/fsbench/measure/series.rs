//! What was done in each second of a pass, as CSV (`--interval`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::BenchError;
use super::super::control::Progress;

/// What was done in each second, as CSV: one file for all passes.
#[derive(Debug)]
pub(super) struct Series {
    path: PathBuf,
    file: Arc<File>,
    /// It has its first line.
    begun: bool,
}

/// A pass being written down.
#[derive(Debug)]
pub(super) struct Ticking {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl Series {
    /// A place for it; what a file there holds stays until the first pass begins.
    pub(super) fn create(path: &Path) -> Result<Series, BenchError> {
        if path.as_os_str() == "-" {
            return Err(BenchError::Usage("--interval -: give a file; ./- is one of that name".into()));
        }
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(BenchError::at(path, "creating it"))?;
        let mut series = Series { path: path.to_owned(), file: Arc::new(file), begun: false };
        if !series.file.metadata().is_ok_and(|about| about.is_file()) {
            series.begin()?;
        }
        Ok(series)
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        // A pipe has no length.
        let _ = self.file.set_len(0);
        writeln!(&*self.file, "run,seconds,ops,bytes_read,bytes_written")
            .map_err(BenchError::at(&self.path, "writing"))
    }

    /// A row a second, and one for what is left of the last one.
    pub(super) fn start(&mut self, run: usize, progress: Arc<Progress>) -> Result<Ticking, BenchError> {
        self.begin()?;
        let (stop, stopped) = mpsc::channel::<()>();
        let file = Arc::clone(&self.file);
        let write = move || {
            let mut out = BufWriter::new(&*file);
            let began = Instant::now();
            let mut before = [0u64; 3];
            for second in 1u64.. {
                let next = began + Duration::from_secs(second);
                let waited = stopped.recv_timeout(next.saturating_duration_since(Instant::now()));
                let now = [&progress.ops, &progress.bytes_read, &progress.bytes_written]
                    .map(|n| n.load(Ordering::Relaxed));
                let [ops, read, written] = counted(before, now);
                writeln!(out, "{run},{:.3},{ops},{read},{written}", began.elapsed().as_secs_f64())?;
                before = now;
                if waited != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            }
            out.flush()
        };
        let thread = std::thread::Builder::new().name("interval".into()).spawn(write);
        let thread = thread.map_err(BenchError::at(&self.path, "starting to write"))?;
        Ok(Ticking { stop, thread, path: self.path.clone() })
    }
}

/// What was counted from one row to the next. The end of a warm-up begins the count anew.
fn counted(before: [u64; 3], now: [u64; 3]) -> [u64; 3] {
    [0, 1, 2].map(|i| now[i].checked_sub(before[i]).unwrap_or(now[i]))
}

impl Ticking {
    pub(super) fn end(self) -> Result<(), BenchError> {
        let _ = self.stop.send(());
        let ended = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread failed")));
        ended.map_err(BenchError::at(&self.path, "writing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_a_row_for_what_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i.csv");
        let mut series = Series::create(&path).unwrap();
        let progress = Arc::new(Progress::default());
        let ticking = series.start(3, Arc::clone(&progress)).unwrap();
        progress.ops.store(7, Ordering::Relaxed);
        progress.bytes_read.store(900, Ordering::Relaxed);
        ticking.end().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "run,seconds,ops,bytes_read,bytes_written");
        // A machine that stood still for a second would have made two rows of it.
        let sum: u64 = rows[1..].iter().map(|r| r.split(',').nth(2).unwrap().parse::<u64>().unwrap()).sum();
        assert!(rows[1].starts_with("3,") && sum == 7, "{text}");
    }

    /// The row behind a warm-up had 2 to the 64th less what that had counted.
    #[test]
    fn a_count_that_begins_anew_is_counted_from_there() {
        assert_eq!(counted([1_000_000, 7, 0], [5, 9, 0]), [5, 2, 0]);
    }

    /// Of a run that was refused in the end, nothing was left of an earlier one's.
    #[test]
    fn what_was_there_stays_until_a_pass_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i.csv");
        std::fs::write(&path, "an earlier run's").unwrap();
        let mut series = Series::create(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "an earlier run's");
        for run in 1..3 {
            series.start(run, Arc::default()).unwrap().end().unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("run,seconds,") && text.matches("run,").count() == 1, "{text}");
        for bad in [dir.path(), Path::new("/dev/full")] {
            assert!(Series::create(bad).is_err(), "{}", bad.display());
        }
    }
}
