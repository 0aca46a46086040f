//! Asynchronous writes as the C library does them: threads of the process take requests, one at a time for each open
//! file, so writes to one file happen in order and those to different files at once.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::buffer::Aligned;
use super::gates::{Stop, lock};

/// As many as the C library starts.
const WORKERS_MAX: usize = 20;
/// A thread that writes faster than its files take it waits here, before memory runs out.
const OUTSTANDING_MAX: usize = 65_536;
/// `aiowait` waits no longer.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A write to do.
struct Job {
    file: Arc<File>,
    data: Arc<Aligned>,
    from: usize,
    len: usize,
    offset: u64,
    owner: Arc<Outstanding>,
}

/// What a thread has not heard of yet.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    state: Mutex<(usize, Option<io::Error>)>,
    fewer: Condvar,
}

impl Outstanding {
    fn wait(&self, most: usize, until: Option<Instant>, stop: &Stop) -> io::Result<()> {
        let mut state = lock(&self.state);
        loop {
            if let Some(error) = state.1.take() {
                return Err(error);
            }
            let now = Instant::now();
            if state.0 <= most || stop.is_set() || until.is_some_and(|t| now >= t) {
                return Ok(());
            }
            let wait = until.map_or(WAIT_MAX, |t| t - now).min(WAIT_MAX);
            state = self.fewer.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Until half of those outstanding are done, one at least, or a second has passed.
    pub(super) fn wait_for_half(&self, stop: &Stop) -> io::Result<()> {
        let outstanding = lock(&self.state).0;
        let done = (outstanding / 2).max(1);
        self.wait(outstanding.saturating_sub(done), Some(Instant::now() + WAIT_MAX), stop)
    }

    fn done(&self, result: io::Result<()>) {
        let mut state = lock(&self.state);
        state.0 -= 1;
        if let Err(error) = result {
            state.1.get_or_insert(error);
        }
        self.fewer.notify_all();
    }

    pub(super) fn end(&self) {
        let _state = lock(&self.state);
        self.fewer.notify_all();
    }
}

#[derive(Default)]
struct Queues {
    /// Waiting writes, by open file; a file has an entry while one of its writes is under way.
    waiting: HashMap<usize, VecDeque<Job>>,
    /// Files none of whose writes is under way.
    ready: VecDeque<usize>,
    workers: usize,
    idle: usize,
    ended: bool,
}

/// A process's workers; started when there is work for them.
#[derive(Default)]
pub(super) struct Pool {
    queues: Mutex<Queues>,
    more: Condvar,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("workers", &lock(&self.queues).workers).finish()
    }
}

impl Pool {
    /// Hands a write over.
    #[expect(clippy::too_many_arguments)]
    pub(super) fn submit(
        self: &Arc<Self>,
        file: &Arc<File>,
        data: &Arc<Aligned>,
        from: usize,
        len: usize,
        offset: u64,
        owner: &Arc<Outstanding>,
        stop: &Stop,
    ) -> io::Result<()> {
        owner.wait(OUTSTANDING_MAX - 1, None, stop)?;
        let key = Arc::as_ptr(file) as usize;
        let job = Job { file: file.clone(), data: data.clone(), from, len, offset, owner: owner.clone() };
        let mut queues = lock(&self.queues);
        if queues.ended {
            return Ok(());
        }
        if queues.idle == 0 && queues.workers < WORKERS_MAX {
            let pool = self.clone();
            std::thread::Builder::new().name("aio".into()).stack_size(64 << 10).spawn(move || pool.work())?;
            queues.workers += 1;
        }
        lock(&owner.state).0 += 1;
        match queues.waiting.get_mut(&key) {
            Some(waiting) => waiting.push_back(job),
            None => {
                queues.waiting.insert(key, VecDeque::from([job]));
                queues.ready.push_back(key);
                self.more.notify_one();
            }
        }
        Ok(())
    }

    fn work(&self) {
        let mut queues = lock(&self.queues);
        loop {
            let Some(key) = queues.ready.pop_front() else {
                if queues.ended {
                    queues.workers -= 1;
                    self.more.notify_all();
                    return;
                }
                queues.idle += 1;
                queues = self.more.wait(queues).unwrap_or_else(PoisonError::into_inner);
                queues.idle -= 1;
                continue;
            };
            let Some(job) = queues.waiting.get_mut(&key).and_then(VecDeque::pop_front) else { continue };
            drop(queues);
            // The file stays open as long as it is in the queue: its key cannot be another's.
            job.owner.done(job.file.write_all_at(job.data.get(job.from, job.len), job.offset));
            queues = lock(&self.queues);
            match queues.waiting.get(&key) {
                Some(waiting) if !waiting.is_empty() => queues.ready.push_back(key),
                _ => {
                    queues.waiting.remove(&key);
                }
            }
        }
    }

    /// Drops what was not begun.
    pub(super) fn end(&self) {
        let mut queues = lock(&self.queues);
        queues.ended = true;
        queues.ready.clear();
        let dropped: Vec<Job> = queues.waiting.values_mut().flat_map(std::mem::take).collect();
        self.more.notify_all();
        drop(queues);
        dropped.into_iter().for_each(|job| job.owner.done(Ok(())));
    }

    /// Whether all workers are gone before `until`.
    pub(super) fn is_empty_by(&self, until: Instant) -> bool {
        let mut queues = lock(&self.queues);
        while queues.workers > 0 {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            queues = self.more.wait_timeout(queues, until - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_arrive_in_order_and_are_waited_for() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let (pool, owner, stop) =
            (Arc::new(Pool::default()), Arc::new(Outstanding::default()), Stop::default());
        let data = Arc::new(Aligned::noise(64 << 10, 1));
        // All to one place: the last is what is read.
        for i in 0..500 {
            pool.submit(&file, &data, i * 64, 64, 0, &owner, &stop).unwrap();
        }
        while lock(&owner.state).0 > 0 {
            let before = lock(&owner.state).0;
            owner.wait_for_half(&stop).unwrap();
            assert!(before == 0 || lock(&owner.state).0 <= before - (before / 2).max(1));
        }
        let mut found = [0; 64];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, data.get(499 * 64, 64));
        pool.end();
        assert!(pool.is_empty_by(Instant::now() + Duration::from_secs(60)));
    }

    #[test]
    fn a_failed_write_is_told() {
        let file = Arc::new(File::open("/dev/null").unwrap());
        let (pool, owner, stop) =
            (Arc::new(Pool::default()), Arc::new(Outstanding::default()), Stop::default());
        let data = Arc::new(Aligned::new(4096));
        pool.submit(&file, &data, 0, 10, 0, &owner, &stop).unwrap();
        assert_eq!(owner.wait(0, None, &stop).unwrap_err().raw_os_error(), Some(libc::EBADF));
        pool.end();
    }
}
