//! Processes, a page cache and a drive: what reaches the disk, and when.
//!
//! Invariants:
//!
//! - K1: requests leave in order of time; the drive serves them one after another.
//! - K2: a block in the cache is not read again; what is dirty is written once it was so for long enough.
//!
//! A process does one step after the other and waits for each read. Left out: read-ahead that overlaps with
//! the process's own work, merging of requests of different processes, the scheduler's anticipation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use fs2_block::{BlockNo, BlockSize, Nanos, Op};
use fs2_disk::{Disk, DriveProfile};
use fs2_trace::Record;

use super::params::Kernel;
use super::volume::{Directory, Mapped, Piece, Run, Stored, Volume, pieces};

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It computes, or its user thinks.
    Think(Nanos),
    /// It needs these blocks; one request reads those side by side that are not in the cache.
    Read(Run),
    /// It changes a block.
    Dirty(u32),
}

/// Steps of a process, written in the words of files.
pub(super) struct Script<'a> {
    pub(super) volume: &'a Volume,
    pub(super) kernel: &'a Kernel,
    pub(super) steps: Vec<Step>,
}

impl<'a> Script<'a> {
    pub(super) fn new(volume: &'a Volume, kernel: &'a Kernel) -> Script<'a> {
        Script { volume, kernel, steps: Vec::new() }
    }

    pub(super) fn think_ms(&mut self, ms: f64) {
        self.steps.push(Step::Think(Nanos::from_millis_f64(ms)));
    }

    pub(super) fn block(&mut self, block: u32) {
        self.steps.push(Step::Read((block, 1)));
    }

    /// A block is changed, and read before if it is not there.
    pub(super) fn change(&mut self, block: u32) {
        self.block(block);
        self.steps.push(Step::Dirty(block));
    }

    /// The inode is looked at.
    pub(super) fn stat(&mut self, stored: &Stored) {
        self.block(self.volume.inode_block(stored.inode));
    }

    /// The inode is looked at, and the file's time of access changes.
    pub(super) fn open(&mut self, stored: &Stored) {
        self.stat(stored);
        if self.kernel.access_times {
            self.steps.push(Step::Dirty(self.volume.inode_block(stored.inode)));
        }
    }

    /// A directory's inode and all of its blocks.
    pub(super) fn list(&mut self, directory: &Directory) {
        self.open(&directory.stored);
        self.pieces(&directory.stored.whole(1));
    }

    /// A name is looked for: the directory's blocks up to the one that has it, of which nothing is known.
    pub(super) fn look_up(&mut self, directory: &Directory, part: f64) {
        self.stat(&directory.stored);
        let map = directory.stored.map();
        let upto = ((map.len() as f64 * part) as usize + 1).min(map.len());
        self.pieces(&pieces(&map[..upto], 1));
    }

    fn pieces(&mut self, pieces: &[Piece]) {
        self.steps.extend(pieces.iter().map(|p| match p {
            Piece::Indirect(block) => Step::Read((*block, 1)),
            Piece::Data(run) => Step::Read(*run),
        }));
    }

    /// These blocks of a file, in requests as large as read-ahead makes them.
    pub(super) fn read(&mut self, blocks: &[Mapped]) {
        let most = (self.kernel.read_ahead_kib / 4).max(1);
        self.pieces(&pieces(blocks, most));
    }

    /// All of a file.
    pub(super) fn read_whole(&mut self, stored: &Stored) {
        self.open(stored);
        self.read(&stored.map());
    }
}

/// The least recently used of so many blocks goes first.
struct Cache {
    capacity: usize,
    /// When each block was used last, by a counter, and the other way round.
    used: BTreeMap<u32, u64>,
    order: BTreeMap<u64, u32>,
    clock: u64,
    /// Since when.
    dirty: BTreeMap<u32, Nanos>,
}

impl Cache {
    fn new(mib: u32) -> Cache {
        let (used, order, dirty) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Cache { capacity: mib as usize * 256, used, order, clock: 0, dirty }
    }

    /// Uses a block; whether it was there.
    fn use_block(&mut self, block: u32) -> bool {
        self.clock += 1;
        let before = self.used.insert(block, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, block);
        while self.used.len() > self.capacity {
            let Some((_, old)) = self.order.pop_first() else { break };
            // What is dirty stays in the kernel until it is written; few blocks are.
            self.used.remove(&old);
        }
        before.is_some()
    }

    fn has(&self, block: u32) -> bool {
        self.used.contains_key(&block)
    }

    /// What has been dirty since `before`, in runs of at most `most` blocks.
    fn clean(&mut self, before: Nanos, most: u32) -> VecDeque<Run> {
        let mut runs: VecDeque<Run> = VecDeque::new();
        self.dirty.retain(|block, since| {
            if *since > before {
                return true;
            }
            match runs.back_mut() {
                Some((start, n)) if *start + *n == *block && *n < most => *n += 1,
                _ => runs.push_back((*block, 1)),
            }
            false
        });
        runs
    }
}

/// What a run asked of the disk.
#[derive(Clone, Debug, Default)]
pub struct RunTrace {
    /// Requests until the last process ended, in order of arrival, with the service they got on plain ext2.
    pub requests: Vec<Record>,
    /// What the kernel wrote afterwards; times from the run's begin.
    pub tail: Vec<Record>,
    /// When the last process ended.
    pub end: Nanos,
}

/// A process on its way.
#[derive(Default)]
struct Process {
    steps: VecDeque<Step>,
    ended: bool,
}

/// How a run is recorded.
pub(super) struct Recording<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) drive: &'a DriveProfile,
    pub(super) cache_mib: u32,
    pub(super) processes: usize,
    /// Nothing begins after that.
    pub(super) until: Nanos,
}

struct Recorder {
    disk: Disk,
    cache: Cache,
    out: Vec<Record>,
}

impl Recorder {
    /// When it is done.
    fn request(&mut self, now: Nanos, op: Op, (start, len): Run, source: usize) -> Nanos {
        let first = BlockNo(start).extent(BlockSize::B4096);
        let extent = fs2_block::Extent::new(first.offset(), u64::from(len) * 4096);
        let begin = now.max(self.disk.free_at());
        let service = self.disk.serve(begin, op, extent.sector(), len * 8);
        let mut record = Record::new(now, op, extent);
        record.service = Some(service.total());
        record.source = (source + 1).min(usize::from(u16::MAX)) as u16;
        self.out.push(record);
        service.end()
    }

    /// Does what a process has to do until it must wait; until when it must.
    fn run(&mut self, steps: &mut VecDeque<Step>, now: Nanos, source: usize) -> Option<Nanos> {
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Think(time) if time > Nanos(0) => return Some(now + time),
                Step::Think(_) => {}
                Step::Dirty(block) => {
                    self.cache.dirty.entry(block).or_insert(now);
                }
                Step::Read((start, len)) => {
                    let Some(first) = (start..start + len).find(|b| !self.cache.has(*b)) else {
                        (start..start + len).for_each(|b| {
                            self.cache.use_block(b);
                        });
                        continue;
                    };
                    let until = (first..start + len).find(|b| self.cache.has(*b)).unwrap_or(start + len);
                    for block in start..until {
                        self.cache.use_block(block);
                    }
                    if until < start + len {
                        steps.push_front(Step::Read((until, start + len - until)));
                    }
                    return Some(self.request(now, Op::Read, (first, until - first), source));
                }
            }
        }
        None
    }
}

impl Recording<'_> {
    /// Runs the processes from an empty cache. `more` gives a process its next steps when it has none; none
    /// end it.
    pub(super) fn record(&self, mut more: impl FnMut(usize, Nanos, &mut Vec<Step>)) -> RunTrace {
        let mut r = Recorder {
            disk: Disk::new(self.drive.clone()),
            cache: Cache::new(self.cache_mib),
            out: Vec::new(),
        };
        let most = (self.kernel.read_ahead_kib / 4).max(1);
        let (after, every) =
            (seconds(self.kernel.write_back_after_s), seconds(self.kernel.write_back_every_s));
        let mut processes: Vec<Process> = (0..self.processes).map(|_| Process::default()).collect();
        let mut writing: VecDeque<Run> = VecDeque::new();
        let mut running = processes.len();
        let mut end = Nanos(0);
        let mut events: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
        events.extend((0..self.processes).map(|i| Reverse((Nanos(0), i))));
        events.push(Reverse((every, self.processes)));
        let mut fresh = Vec::new();
        let mut last = Nanos(0);
        // Keeps K1.
        while let Some(Reverse((now, who))) = events.pop() {
            last = now;
            if who == self.processes {
                if running == 0 {
                    break;
                }
                if writing.is_empty() {
                    writing = r.cache.clean(Nanos(now.0.saturating_sub(after.0)), most);
                }
                let next = match writing.pop_front() {
                    Some(run) => r.request(now, Op::Write, run, who),
                    None => Nanos((now.0 / every.0 + 1) * every.0),
                };
                events.push(Reverse((next, who)));
                continue;
            }
            let process = &mut processes[who];
            let next = loop {
                if let Some(next) = r.run(&mut process.steps, now, who) {
                    break Some(next);
                }
                fresh.clear();
                if now < self.until {
                    more(who, now, &mut fresh);
                }
                if fresh.is_empty() {
                    break None;
                }
                process.steps.extend(fresh.iter());
            };
            match next {
                Some(next) => events.push(Reverse((next, who))),
                None if !process.ended => {
                    process.ended = true;
                    running -= 1;
                    end = end.max(now);
                }
                None => {}
            }
        }
        let requests = std::mem::take(&mut r.out);
        let mut now = last.max(end) + after;
        let rest: Vec<Run> = writing.into_iter().chain(r.cache.clean(now, most)).collect();
        for run in rest {
            now = r.request(now, Op::Write, run, self.processes);
        }
        RunTrace { requests, tail: r.out, end }
    }
}

/// A time of so many seconds.
pub(super) fn seconds(s: f64) -> Nanos {
    Nanos::from_millis_f64(s * 1000.0)
}
