//! The device as an oracle: direct reads between two looks at the clock.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::calibrate::{Oracle, Stop, Timed};
use fs2_disk::{Disk, DriveProfile, Extended};
use fs2_store::{AlignedBuf, Direct, FileStore, Lock, OpenError, OpenOptions, Store};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::replay::Failure;

/// This thread before all others while it lives, where that is permitted: it sleeps nearly all the time, and
/// every wake-up that others delay is a sample lost.
struct First;

impl First {
    fn new() -> First {
        First::set(libc::SCHED_FIFO, 1);
        First
    }

    fn set(policy: libc::c_int, sched_priority: libc::c_int) {
        // SAFETY: plain numbers, for which zero is a value; some C libraries have more of them than the one that is meant.
        let mut wanted: libc::sched_param = unsafe { std::mem::zeroed() };
        wanted.sched_priority = sched_priority;
        // By the thread's handle: musl's sched_setscheduler does nothing.
        // SAFETY: the structure is initialised and outlives the call, which changes nothing but this thread's
        // scheduling. A refusal is no error: then it is measured as it is.
        let _ = unsafe { libc::pthread_setschedparam(libc::pthread_self(), policy, &wanted) };
    }
}

impl Drop for First {
    fn drop(&mut self) {
        First::set(libc::SCHED_OTHER, 0);
    }
}

/// Whose time a read takes.
enum Clock {
    /// The machine's: the device's own time, with all that delays this program.
    Machine(Instant),
    /// A modelled drive's, which is only told, not waited for: how busy the machine is changes nothing.
    Modelled { disk: Box<Disk>, now: Nanos },
}

impl Clock {
    fn now(&self) -> Nanos {
        match self {
            Clock::Machine(began) => Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            Clock::Modelled { now, .. } => *now,
        }
    }
}

/// A device that is read.
pub(super) struct Device {
    store: FileStore,
    path: PathBuf,
    clock: Clock,
    buffer: AlignedBuf,
    failure: Option<String>,
    bar: Option<ProgressBar>,
    /// The modelled drive was smaller than what is read.
    pub(super) extended: Option<Extended>,
    /// Where the machine's clock is looked at.
    _first: Option<First>,
}

impl Device {
    /// Opens `path` for reading, past the page cache; `busy`: also where others use it. With a drive, reads take the
    /// modelled time of that one.
    pub(super) fn open(
        path: &Path,
        busy: bool,
        drive: Option<DriveProfile>,
        bar: bool,
    ) -> Result<Device, Failure> {
        let options = OpenOptions {
            write: false,
            // A modelled drive's times are its own, whatever lies below.
            direct: if drive.is_some() { Direct::Off } else { Direct::On },
            lock: if busy { Lock::None } else { Lock::Exclusive },
            lock_wait: None,
        };
        let store = FileStore::open(path, options).map_err(|e| {
            Failure(match e {
                OpenError::NoDirect { .. } => format!(
                    "{e}; times of a page cache are no drive's: give the block device, or a file where direct I/O works"
                ),
                OpenError::Busy { .. } | OpenError::Mounted { .. } | OpenError::OnLoop { .. } => {
                    format!("{e}; or --busy, to measure it all the same, with others' requests between")
                }
                e => e.to_string(),
            })
        })?;
        let real = drive.is_none();
        let mut extended = None;
        let clock = match drive {
            None => Clock::Machine(Instant::now()),
            Some(mut profile) => {
                extended = profile.fit(store.size_bytes() / 512);
                Clock::Modelled { disk: Box::new(Disk::new(profile)), now: Nanos(0) }
            }
        };
        let bar = bar.then(|| {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} [{wide_bar}] {elapsed}") {
                bar.set_style(style);
            }
            bar
        });
        Ok(Device {
            store,
            path: path.to_owned(),
            clock,
            buffer: AlignedBuf::zeroed(0),
            failure: None,
            bar,
            extended,
            _first: real.then(First::new),
        })
    }

    pub(super) fn sectors(&self) -> u64 {
        self.store.size_bytes() / 512
    }

    /// Sectors of the smallest read: at least one.
    pub(super) fn grain(&self) -> u32 {
        (self.store.logical_block_bytes() / 512).clamp(1, 64)
    }

    /// Its path, and why a read failed.
    pub(super) fn close(self) -> (PathBuf, Option<String>) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        (self.path, self.failure)
    }
}

impl Oracle for Device {
    fn read(&mut self, sector: u64, sectors: u32) -> Result<Timed, Stop> {
        let bytes = sectors as usize * 512;
        if self.buffer.capacity() < bytes {
            self.buffer = AlignedBuf::zeroed(bytes);
        }
        self.buffer.set_len(bytes);
        let begin = self.clock.now();
        let done = self.store.read_at(sector * 512, &mut self.buffer);
        if let Err(e) = done {
            self.failure = Some(format!("reading {sectors} sectors at {sector}: {e}"));
            return Err(Stop);
        }
        if let Clock::Modelled { disk, now } = &mut self.clock {
            *now = disk.serve(begin, Op::Read, Sector(sector), sectors).end();
        }
        Ok(Timed { begin, end: self.clock.now() })
    }

    fn pause(&mut self, time: Nanos) {
        match &mut self.clock {
            Clock::Machine(_) => std::thread::sleep(Duration::from_nanos(time.0)),
            Clock::Modelled { now, .. } => *now += time,
        }
    }

    fn progress(&mut self, what: &'static str, done: f64) {
        if let Some(bar) = &self.bar {
            bar.set_message(what);
            bar.set_position((done * 1000.0) as u64);
        }
    }
}
