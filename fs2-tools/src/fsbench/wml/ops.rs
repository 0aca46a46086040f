//! The flowops: what each does, and what it counts.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::aio::{Outstanding, Pool};
use super::buffer::Aligned;
use super::build::is_gate;
use super::dist::Rng;
use super::fileset::{Deletion, Pick, open_creating};
use super::gates::{Gate, lock};
use super::model::{Amount, Op, OpClass, OpKind, ThreadSpec};
use super::priority;
use super::run::{Ended, Live, PIECE_BYTES, RunError, ThreadState, Totals};

/// What an open file is: the language's slots hold them by number.
#[derive(Debug, Default)]
struct Slot {
    file: Option<Arc<File>>,
    /// Fileset and entry; stays after closing, as in the original: `deletefile` and `srcfd` look at it.
    entry: Option<(usize, usize)>,
}

/// Where a flowop's file is.
#[derive(Clone, Copy, Debug)]
enum SlotId {
    Fd(usize),
    /// A fileset's own, for flowops that name no slot.
    Default(usize),
    /// One of a fileset's own, in rotation (`opennext`).
    Own(usize, usize),
}

#[derive(Debug, Default)]
struct Rotation {
    /// The file it opens next, and the slot it uses next.
    entry: usize,
    slot: usize,
    slots: Vec<Slot>,
    default: Slot,
}

/// What a limit remembers between its turns.
#[derive(Clone, Debug, Default)]
struct Limit {
    last: u64,
    left: i64,
}

/// How a flowop came out.
enum Flow {
    Next,
    /// The run is over.
    Stop,
    /// There is no file for it in this fileset.
    NoFile(usize, &'static str),
}

type Result<T> = std::result::Result<T, RunError>;

/// A thread of a script.
pub(super) struct Worker<'a> {
    live: &'a Arc<Live>,
    state: &'a ThreadState,
    place: (usize, usize),
    totals: Arc<Totals>,
    pool: Arc<Pool>,
    gates: HashMap<usize, Arc<Gate>>,
    /// Whom posts and wake-ups reach, by their counter; found at the first.
    reached: HashMap<usize, Vec<Arc<Gate>>>,
    rng: Rng,
    slots: Vec<Slot>,
    rotations: HashMap<usize, Rotation>,
    /// The fileset whose own slot was used last: meant by flowops that name neither slot nor fileset.
    last: Option<usize>,
    limits: HashMap<usize, Limit>,
    memory: Option<Aligned>,
    spare: Option<Aligned>,
    outstanding: Arc<Outstanding>,
    path: PathBuf,
}

impl<'a> Worker<'a> {
    #[expect(clippy::too_many_arguments)]
    pub(super) fn new(
        live: &'a Arc<Live>,
        state: &'a ThreadState,
        place: (usize, usize),
        totals: Arc<Totals>,
        pool: Arc<Pool>,
        gates: HashMap<usize, Arc<Gate>>,
        seed: u64,
        stream: u64,
    ) -> Self {
        Self {
            live,
            state,
            place,
            totals,
            pool,
            gates,
            reached: HashMap::new(),
            // Apart from the streams that made the filesets.
            rng: Rng::new(seed, stream | 1 << 32),
            slots: Vec::new(),
            rotations: HashMap::new(),
            last: None,
            limits: HashMap::new(),
            memory: None,
            spare: None,
            outstanding: Arc::default(),
            path: PathBuf::new(),
        }
    }

    /// Until the run ends; with the flowop that had no file, where one had none.
    pub(super) fn run(&mut self) -> Result<Option<(String, RunError)>> {
        let model = self.live.model.clone();
        let process = &model.processes[self.place.0];
        let thread = &process.threads[self.place.1];
        priority::set(process.nice, thread.ioprio).map_err(|source| RunError::Spawn {
            thread: format!("{}/{} with its priority", process.name, thread.name),
            source,
        })?;
        while !self.live.stop.is_set() {
            if let Err(stopped) = self.list(thread, &thread.ops)? {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// One turn of a list of flowops. `Err` inside: the thread is at its end.
    fn list(
        &mut self,
        thread: &ThreadSpec,
        ops: &[Op],
    ) -> Result<std::result::Result<(), Option<(String, RunError)>>> {
        for op in ops {
            for _ in 0..op.iters.draw(&mut self.rng) {
                if self.live.stop.is_set() {
                    return Ok(Err(None));
                }
                if op.kind == OpKind::Composite {
                    if let Err(stopped) = self.list(thread, &op.inner)? {
                        return Ok(Err(stopped));
                    }
                    continue;
                }
                self.state.doing.store(op.slot + 1, Ordering::Relaxed);
                let flow = self.op(op);
                self.state.doing.store(0, Ordering::Relaxed);
                let name = || thread.counters[op.slot].name.clone();
                match flow.map_err(|failure| failure.of(name(), op))? {
                    Flow::Next => {}
                    Flow::Stop => return Ok(Err(None)),
                    Flow::NoFile(set, why) => {
                        let fileset = self.live.sets[set].spec.name.clone();
                        return Ok(Err(Some((name(), RunError::NoFile { flowop: name(), fileset, why }))));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    fn op(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        match op.kind {
            OpKind::OpenFile => {
                let id = self.slot_id(op);
                self.open(op, id)
            }
            OpKind::CreateFile => self.create(op),
            OpKind::CloseFile => self.close(op),
            OpKind::DeleteFile => self.delete(op),
            OpKind::StatFile => self.stat(op),
            OpKind::Fsync => self.fsync(op),
            OpKind::FsyncSet => self.fsync_set(op),
            OpKind::ReadWholeFile => self.read_whole(op),
            OpKind::WriteWholeFile => self.write_whole(op),
            OpKind::AppendFile | OpKind::AppendFileRand => self.append(op),
            OpKind::Read => self.read(op),
            OpKind::Write => self.write(op),
            OpKind::AioWrite => self.aio_write(op),
            OpKind::AioWait => self.aio_wait(op),
            OpKind::MakeDir => self.make_dir(op),
            OpKind::RemoveDir => self.remove_dir(op),
            OpKind::ListDir => self.list_dir(op),
            OpKind::Hog => {
                let (value, start) = (op.value.draw(&mut self.rng), Instant::now());
                let mut byte = 0u8;
                for i in 0..value {
                    // A store that stays, as the original's to its memory.
                    *black_box(&mut byte) = 1;
                    if i % (1 << 22) == 0 && self.live.stop.is_set() {
                        break;
                    }
                }
                Ok(self.count(op, start, 0))
            }
            OpKind::Delay => {
                let (seconds, start) = (op.value.draw(&mut self.rng), Instant::now());
                let slept = self.live.events.sleep(Duration::from_secs(seconds), &self.live.stop);
                Ok(self.count_if(slept, op, start))
            }
            OpKind::SemBlock | OpKind::Block => {
                let (value, start) = (op.value.draw(&mut self.rng), Instant::now());
                let gate = &self.gates[&op.slot];
                let passed = match op.kind {
                    OpKind::Block => gate.sleep(&self.live.stop),
                    _ => gate.block(value, &self.live.stop),
                };
                Ok(self.count_if(passed, op, start))
            }
            OpKind::SemPost | OpKind::Wakeup => self.reach(op),
            OpKind::EventLimit => {
                if self.live.model.event_rate == 0 {
                    return Ok(Flow::Next);
                }
                let start = Instant::now();
                let passed = self.live.events.take(1, &self.live.stop);
                Ok(self.count_if(passed, op, start))
            }
            OpKind::IopsLimit | OpKind::OpsLimit | OpKind::BwLimit => Ok(self.limit(op)),
            OpKind::FinishOnCount | OpKind::FinishOnBytes => Ok(self.finish(op)),
            OpKind::Print => {
                let start = Instant::now();
                let process = &self.live.model.processes[self.place.0];
                let text = if op.text.is_empty() {
                    op.value.draw(&mut self.rng).to_string()
                } else {
                    op.text.clone()
                };
                self.live.say(format!("{}/{}: {text}", process.name, process.threads[self.place.1].name));
                Ok(self.count(op, start, 0))
            }
            OpKind::TestRandVar => {
                let value = op.value.draw_f64(&mut self.rng);
                let stats = &mut lock(&self.state.counters)[op.slot];
                stats.count += 1;
                stats.sum += value;
                stats.squares += value * value;
                Ok(Flow::Next)
            }
            OpKind::Composite => Ok(Flow::Next),
        }
    }

    // ---- counting

    /// Counts a flowop that began at `start`; not when the run was over before it was done.
    fn count(&self, op: &Op, start: Instant, bytes: u64) -> Flow {
        let took = start.elapsed();
        if self.live.stop.is_set() {
            return Flow::Stop;
        }
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        {
            let stats = &mut lock(&self.state.counters)[op.slot];
            stats.count += 1;
            stats.bytes += bytes;
            stats.latency.record(ns);
            if self.live.model.histogram {
                let power = (64 - ns.leading_zeros()).min(63) as usize;
                stats.powers.get_or_insert_with(|| Box::new([0; 64]))[power] += 1;
            }
        }
        if matches!(op.kind.class(), OpClass::Io | OpClass::Aio) {
            self.totals.ops.fetch_add(1, Ordering::Relaxed);
            self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
            if op.kind.reads() || op.kind.writes() {
                self.totals.rw_ops.fetch_add(1, Ordering::Relaxed);
                self.totals.rw_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            if let Some(left) = &self.live.ops_left
                && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) == Ok(1)
            {
                self.live.end(Ok(Ended::Ops));
                return Flow::Stop;
            }
        }
        Flow::Next
    }

    fn count_if(&self, passed: bool, op: &Op, start: Instant) -> Flow {
        if passed { self.count(op, start, 0) } else { Flow::Stop }
    }

    // ---- slots and files

    fn slot_id(&mut self, op: &Op) -> SlotId {
        match op.fileset {
            Some(set) if op.opennext && op.fd == 0 => {
                let files = self.live.sets[set].files().max(1);
                let rotation = self.rotations.entry(set).or_default();
                let slot = rotation.slot % files;
                rotation.slot = slot + 1;
                SlotId::Own(set, slot)
            }
            _ => self.plain_id(op),
        }
    }

    /// As `slot_id`, of flowops that do not rotate.
    fn plain_id(&mut self, op: &Op) -> SlotId {
        if op.fd > 0 {
            return SlotId::Fd(op.fd as usize);
        }
        self.last = op.fileset.or(self.last);
        self.last.map_or(SlotId::Fd(0), SlotId::Default)
    }

    fn slot(&mut self, id: SlotId) -> &mut Slot {
        let (slots, i) = match id {
            SlotId::Fd(i) => (&mut self.slots, i),
            SlotId::Default(set) => return &mut self.rotations.entry(set).or_default().default,
            SlotId::Own(set, i) => (&mut self.rotations.entry(set).or_default().slots, i),
        };
        if i >= slots.len() {
            slots.resize_with(i + 1, Slot::default);
        }
        &mut slots[i]
    }

    /// The index a flowop picks by: its value times half the entries, as the original has it.
    fn index(&mut self, op: &Op, entries: usize) -> Option<usize> {
        let value = op.indexed.as_ref()?.draw_f64(&mut self.rng);
        Some((value * (entries / 2) as f64) as usize % entries.max(1))
    }

    fn pick<'b>(own: Option<&'b mut usize>, index: Option<usize>) -> Pick<'b> {
        match (index, own) {
            (Some(i), _) => Pick::Index(i),
            (None, Some(own)) => Pick::Own(own),
            (None, None) => Pick::Next,
        }
    }

    fn options(&self, op: &Op, set: usize) -> OpenOptions {
        let spec = &self.live.sets[set].spec;
        let mut flags = 0;
        flags |= if op.dsync { libc::O_SYNC } else { 0 };
        flags |= if op.directio { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        options.read(!spec.writeonly).write(!spec.readonly).custom_flags(flags);
        options
    }

    fn advise(&self, op: &Op, file: &File) -> std::result::Result<(), Failure> {
        use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
        if op.noreadahead {
            posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)
                .map_err(|e| Failure::io("cannot switch off reading ahead", e.into()))?;
        }
        Ok(())
    }

    fn open(&mut self, op: &Op, id: SlotId) -> std::result::Result<Flow, Failure> {
        let Some(set) = op.fileset else {
            return Err(Failure::misuse(format!("nothing is open at fd {}, and it names no fileset", op.fd)));
        };
        if self.slot(id).file.is_some() {
            return Err(Failure::misuse(format!("fd {} is open already: close it before", op.fd)));
        }
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.files());
        let mut own = self.rotations.get(&set).map_or(0, |r| r.entry);
        let pick = Self::pick(op.opennext.then_some(&mut own), index);
        let Some(entry) = fileset.hold_existing(pick, &self.live.stop) else {
            return Ok(self.none(set, ", all of whose files are deleted or not created yet"));
        };
        if op.opennext {
            self.rotations.entry(set).or_default().entry = own;
        }
        let mut path = std::mem::take(&mut self.path);
        fileset.path(entry, &mut path);
        let options = self.options(op, set);
        let start = Instant::now();
        let opened = retried(|| options.open(&path));
        let flow = self.count(op, start, 0);
        let opened = opened.map_err(|e| Failure::open(op, &path, e)).and_then(|file| {
            self.advise(op, &file)?;
            Ok(file)
        });
        self.path = path;
        match opened {
            Ok(file) => *self.slot(id) = Slot { file: Some(Arc::new(file)), entry: Some((set, entry)) },
            Err(failure) => {
                fileset.release(entry);
                return Err(failure);
            }
        }
        Ok(flow)
    }

    fn none(&self, set: usize, why: &'static str) -> Flow {
        if self.live.stop.is_set() { Flow::Stop } else { Flow::NoFile(set, why) }
    }

    fn create(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let id = self.plain_id(op);
        let Some(set) = op.fileset else { return Err(Failure::misuse("it names no fileset")) };
        if self.slot(id).file.is_some() {
            return Err(Failure::misuse(format!("fd {} is open already: close it before", op.fd)));
        }
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.files());
        let Some(entry) = fileset.begin_creation(Self::pick(None, index), &self.live.stop) else {
            return Ok(self.none(set, ", all of whose files exist"));
        };
        let mut path = std::mem::take(&mut self.path);
        fileset.path(entry, &mut path);
        let mut options = self.options(op, set);
        // The standard library creates only what may be written.
        options.write(true);
        let start = Instant::now();
        let created = retried(|| open_creating(&mut options, &path));
        let flow = self.count(op, start, 0);
        let created = created.map_err(|e| Failure::open(op, &path, e));
        self.path = path;
        fileset.end_creation(entry, created.is_ok());
        *self.slot(id) = Slot { file: Some(Arc::new(created?)), entry: Some((set, entry)) };
        Ok(flow)
    }

    fn close(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let id = self.plain_id(op);
        let slot = self.slot(id);
        let (Some(file), entry) = (slot.file.take(), slot.entry) else {
            return Err(Failure::misuse(format!("fd {} is not open", op.fd)));
        };
        let start = Instant::now();
        drop(file);
        let flow = self.count(op, start, 0);
        if let Some((set, entry)) = entry {
            self.live.sets[set].release(entry);
        }
        Ok(flow)
    }

    fn delete(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let live = self.live;
        let id = SlotId::Fd(op.fd as usize);
        let slot = self.slot(id);
        let given = slot.entry.filter(|_| op.fd > 0);
        let mine = slot.file.is_some();
        if given.is_some() {
            slot.entry = None;
        }
        let (set, deletion) = match (given, op.fileset) {
            (Some((set, entry)), _) => {
                let deletion = live.sets[set].begin_deletion(Err((entry, mine)), &live.stop);
                if mine && deletion == Deletion::InUse {
                    // Still open here: closing it has to give its hold back.
                    self.slot(id).entry = given;
                }
                (set, deletion)
            }
            (None, Some(set)) => {
                let index = self.index(op, live.sets[set].files());
                (set, live.sets[set].begin_deletion(Ok(Self::pick(None, index)), &live.stop))
            }
            (None, None) => return Err(Failure::misuse("it names no fileset, and its fd had no file")),
        };
        let entry = match deletion {
            Deletion::Of(entry) => entry,
            Deletion::InUse => return Ok(Flow::Next),
            Deletion::None => {
                return Ok(self.none(set, ", all of whose files are deleted or not created yet"));
            }
        };
        let fileset = &live.sets[set];
        let mut path = std::mem::take(&mut self.path);
        fileset.path(entry, &mut path);
        let start = Instant::now();
        let removed = fs::remove_file(&path);
        let flow = self.count(op, start, 0);
        fileset.end_deletion(entry, removed.is_ok());
        let failed = removed.map_err(|e| Failure::io(format!("cannot delete {}", path.display()), e));
        self.path = path;
        failed.map(|()| flow)
    }

    fn stat(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        if op.fd > 0
            && let Some(file) = self.slot(SlotId::Fd(op.fd as usize)).file.clone()
        {
            let start = Instant::now();
            file.metadata().map_err(|e| Failure::io("cannot stat an open file", e))?;
            return Ok(self.count(op, start, 0));
        }
        let Some(set) = op.fileset else {
            return Err(Failure::misuse("it names no fileset, and its fd is not open"));
        };
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.files());
        let Some(entry) = fileset.hold_existing(Self::pick(None, index), &self.live.stop) else {
            return Ok(self.none(set, ", all of whose files are deleted or not created yet"));
        };
        fileset.path(entry, &mut self.path);
        let start = Instant::now();
        let found = self.path.symlink_metadata();
        let flow = self.count(op, start, 0);
        fileset.release(entry);
        found.map_err(|e| Failure::io(format!("cannot stat {}", self.path.display()), e)).map(|_| flow)
    }

    fn fsync(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let id = self.plain_id(op);
        let Some(file) = self.slot(id).file.clone() else {
            return Err(Failure::misuse(format!("fd {} is not open", op.fd)));
        };
        let start = Instant::now();
        retried(|| file.sync_all()).map_err(|e| Failure::io("fsync", e))?;
        Ok(self.count(op, start, 0))
    }

    fn fsync_set(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let of_set = |slot: &&Slot| slot.entry.is_some_and(|(set, _)| Some(set) == op.fileset);
        let own = self.rotations.values().flat_map(|r| r.slots.iter().chain([&r.default]));
        let slots = self.slots.iter().chain(own);
        let files: Vec<Arc<File>> = slots.filter(of_set).filter_map(|slot| slot.file.clone()).collect();
        for file in files {
            let start = Instant::now();
            retried(|| file.sync_all()).map_err(|e| Failure::io("fsync", e))?;
            if let Flow::Stop = self.count(op, start, 0) {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Next)
    }

    // ---- reading and writing

    /// The flowop's open file, opened now if it is not: with its working set in bytes, and its entry.
    #[expect(clippy::type_complexity)]
    fn file(
        &mut self,
        op: &Op,
    ) -> std::result::Result<std::result::Result<(Arc<File>, u64, Option<(usize, usize)>), Flow>, Failure>
    {
        let id = self.slot_id(op);
        if self.slot(id).file.is_none() {
            match self.open(op, id)? {
                Flow::Next => {}
                flow => return Ok(Err(flow)),
            }
        }
        let slot = self.slot(id);
        let (file, entry) = match &slot.file {
            Some(file) => (file.clone(), slot.entry),
            None => return Ok(Err(Flow::Stop)),
        };
        if let (Some(wanted), Some((set, _))) = (op.fileset, entry)
            && wanted != set
        {
            let sets = &self.live.sets;
            let (has, wants) = (&sets[set].spec.name, &sets[wanted].spec.name);
            let why =
                format!("fd {} has a file of fileset {has} open, not of {wants}: close it before", op.fd);
            return Err(Failure::misuse(why));
        }
        let size = entry.map_or(0, |(set, entry)| self.live.sets[set].size(entry));
        let working_set = if op.working_set > 0 { op.working_set } else { size };
        Ok(Ok((file, working_set, entry)))
    }

    /// A place in a file for `iosize` bytes: a multiple of them, within the working set.
    fn offset(&mut self, iosize: u64, working_set: u64) -> std::result::Result<u64, Failure> {
        if iosize > working_set {
            let why = format!(
                "{iosize} bytes at a time are more than the {working_set} of the file or working set"
            );
            return Err(Failure::misuse(why));
        }
        let places = (working_set - iosize) / iosize + 1;
        // The original's last place comes up only where the division leaves nothing over.
        Ok(self.rng.below(places) * iosize)
    }

    /// Where a read of `len` bytes goes: somewhere in the thread's memory, or in a buffer of its own.
    fn read_into(&mut self, len: usize) -> &mut [u8] {
        let memory = self.live.model.processes[self.place.0].threads[self.place.1].memory_bytes;
        if len as u64 <= memory {
            let buffer = self.memory.get_or_insert_with(|| Aligned::new(memory as usize));
            let place = buffer.place(len, &mut self.rng);
            return buffer.get_mut(place, len);
        }
        let buffer = match self.spare.take() {
            Some(buffer) if buffer.len() >= len => buffer,
            _ => Aligned::new(len),
        };
        self.spare.insert(buffer).get_mut(0, len)
    }

    fn iosize(&mut self, op: &Op) -> std::result::Result<u64, Failure> {
        match op.iosize.draw(&mut self.rng) {
            0 => Err(Failure::misuse("its iosize came out as zero bytes")),
            n if n > PIECE_BYTES => {
                Err(Failure::misuse(format!("{n} bytes at a time; at most {PIECE_BYTES} can be")))
            }
            n => Ok(n),
        }
    }

    fn read(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let iosize = self.iosize(op)?;
        let (file, working_set, _) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let offset = if op.random { Some(self.offset(iosize, working_set)?) } else { None };
        let buffer = self.read_into(iosize as usize);
        let start = Instant::now();
        let read = match offset {
            Some(offset) => retried(|| file.read_at(buffer, offset)),
            None => retried(|| (&*file).read(buffer)),
        };
        let read = read.map_err(|e| Failure::transfer(op, "read", iosize, e))?;
        let flow = self.count(op, start, read as u64);
        if read == 0 {
            (&*file).seek(SeekFrom::Start(0)).map_err(|e| Failure::io("cannot go to a file's start", e))?;
        }
        Ok(flow)
    }

    fn read_whole(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let (file, working_set, _) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let iosize = match op.iosize.draw(&mut self.rng) {
            0 => working_set.max(1),
            n => n,
        };
        let live = self.live.clone();
        let buffer = self.read_into(iosize.min(PIECE_BYTES) as usize);
        let start = Instant::now();
        let mut bytes = 0;
        (&*file).seek(SeekFrom::Start(0)).map_err(|e| Failure::io("cannot go to a file's start", e))?;
        loop {
            let read =
                retried(|| (&*file).read(buffer)).map_err(|e| Failure::transfer(op, "read", iosize, e))?;
            bytes += read as u64;
            if read == 0 || live.stop.is_set() {
                break;
            }
        }
        Ok(self.count(op, start, bytes))
    }

    /// Writes noise, in pieces of at most what there is of it.
    fn put(
        &mut self,
        op: &Op,
        len: u64,
        mut to: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> std::result::Result<(), Failure> {
        let noise = self.live.noise.clone();
        let mut left = len as usize;
        while left > 0 {
            let piece = left.min(noise.len());
            let place = noise.place(piece, &mut self.rng);
            to(noise.get(place, piece)).map_err(|e| Failure::transfer(op, "write", len, e))?;
            left -= piece;
        }
        Ok(())
    }

    fn written(&self, entry: Option<(usize, usize)>) {
        if let Some((set, entry)) = entry {
            self.live.sets[set].mark_written(entry);
        }
    }

    fn write(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let iosize = self.iosize(op)?;
        let (file, working_set, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let offset = if op.random { Some(self.offset(iosize, working_set)?) } else { None };
        self.written(entry);
        let start = Instant::now();
        match offset {
            Some(mut offset) => self.put(op, iosize, |piece| {
                file.write_all_at(piece, offset)?;
                offset += piece.len() as u64;
                Ok(())
            })?,
            None => self.put(op, iosize, |piece| (&*file).write_all(piece))?,
        }
        Ok(self.count(op, start, iosize))
    }

    fn write_whole(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let (file, working_set, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let source = match op.srcfd {
            0 => None,
            fd => self.slot(SlotId::Fd(fd as usize)).entry,
        };
        let size = match source {
            Some((set, entry)) => self.live.sets[set].size(entry),
            None if op.srcfd > 0 => {
                return Err(Failure::misuse(format!("fd {} (srcfd) had no file", op.srcfd)));
            }
            None => working_set,
        };
        let iosize = match op.iosize.draw(&mut self.rng) {
            0 => size.max(1),
            n => n,
        };
        self.written(entry);
        let start = Instant::now();
        let mut left = size;
        while left > 0 && !self.live.stop.is_set() {
            let piece = left.min(iosize);
            self.put(op, piece, |piece| (&*file).write_all(piece))?;
            left -= piece;
        }
        Ok(self.count(op, start, size))
    }

    fn append(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let mut iosize = self.iosize(op)?;
        if op.kind == OpKind::AppendFileRand {
            iosize = self.rng.below(iosize) + 1;
        }
        let (file, _, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        self.written(entry);
        let start = Instant::now();
        (&*file).seek(SeekFrom::End(0)).map_err(|e| Failure::io("cannot go to a file's end", e))?;
        self.put(op, iosize, |piece| (&*file).write_all(piece))?;
        Ok(self.count(op, start, iosize))
    }

    fn aio_write(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let iosize = self.iosize(op)?;
        let (file, working_set, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let offset = self.offset(iosize, working_set)?;
        self.written(entry);
        let noise = self.live.noise.clone();
        let len = (iosize as usize).min(noise.len());
        let start = Instant::now();
        let mut done = 0;
        while done < iosize {
            let piece = len.min((iosize - done) as usize);
            let place = noise.place(piece, &mut self.rng);
            self.pool
                .submit(&file, &noise, place, piece, offset + done, &self.outstanding, &self.live.stop)
                .map_err(|e| Failure::transfer(op, "write", iosize, e))?;
            done += piece as u64;
        }
        Ok(self.count(op, start, iosize))
    }

    fn aio_wait(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let start = Instant::now();
        self.outstanding
            .wait_for_half(&self.live.stop)
            .map_err(|e| Failure::io("an asynchronous write failed", e))?;
        Ok(self.count(op, start, 0))
    }

    // ---- directories

    fn make_dir(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        self.leafdir(op, false, |path| fs::create_dir(path))
    }

    fn remove_dir(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        self.leafdir(op, true, |path| fs::remove_dir(path))
    }

    fn leafdir(
        &mut self,
        op: &Op,
        exists: bool,
        change: impl Fn(&PathBuf) -> io::Result<()>,
    ) -> std::result::Result<Flow, Failure> {
        let Some(set) = op.fileset else { return Err(Failure::misuse("it names no fileset")) };
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.leafdirs());
        let Some(leafdir) = fileset.take_leafdir(exists, index) else {
            return Ok(self.none(
                set,
                if exists { ", which has no leaf directory" } else { ", whose leaf directories exist" },
            ));
        };
        fileset.leafdir_path(leafdir, &mut self.path);
        let start = Instant::now();
        let changed = change(&self.path);
        let flow = self.count(op, start, 0);
        fileset.put_leafdir(leafdir, exists != changed.is_ok());
        let what = if exists { "remove" } else { "make" };
        changed.map_err(|e| Failure::io(format!("cannot {what} {}", self.path.display()), e)).map(|()| flow)
    }

    fn list_dir(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        /// What the original adds for each entry: its system's structure but for one byte of the name.
        const ENTRY_BYTES: u64 = 279;
        let Some(set) = op.fileset else { return Err(Failure::misuse("it names no fileset")) };
        let fileset = &self.live.sets[set];
        fileset.dir_path(fileset.next_dir(), &mut self.path);
        let start = Instant::now();
        // The directory itself and its parent are listed too, and not told of by the standard library.
        let mut bytes = 2 * ENTRY_BYTES + 3;
        let list = || -> io::Result<u64> {
            for entry in fs::read_dir(&self.path)? {
                bytes += entry?.file_name().len() as u64 + ENTRY_BYTES;
            }
            Ok(bytes)
        };
        match { list }() {
            Ok(bytes) => Ok(self.count(op, start, bytes)),
            // Made with its first file, which has not come yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(self.count(op, start, 0)),
            Err(e) => Err(Failure::io(format!("cannot list {}", self.path.display()), e)),
        }
    }

    // ---- waiting

    fn reach(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let live = self.live;
        let reached = self.reached.entry(op.slot).or_insert_with(|| {
            let target = op.gates.as_deref().unwrap_or_default();
            live.gates
                .iter()
                .filter(|(name, _)| is_gate(name, target))
                .map(|(_, gate)| gate.clone())
                .collect()
        });
        let reached = reached.clone();
        let value = op.value.draw(&mut self.rng);
        let mut start = Instant::now();
        for gate in &reached {
            if op.kind == OpKind::Wakeup {
                gate.wake();
                // One for each it wakes.
                if let Flow::Stop = self.count(op, start, 0) {
                    return Ok(Flow::Stop);
                }
                start = Instant::now();
            } else if !gate.post(value, op.blocking, &live.stop) {
                return Ok(Flow::Stop);
            }
        }
        Ok(if op.kind == OpKind::Wakeup { Flow::Next } else { self.count(op, start, 0) })
    }

    /// What a limit or an end goes by: its target's numbers, or the process's.
    fn so_far(&self, op: &Op) -> u64 {
        let by_bytes = matches!(op.kind, OpKind::BwLimit | OpKind::FinishOnBytes);
        if let Some(slot) = op.target {
            let stats = &lock(&self.state.counters)[slot];
            return if by_bytes { stats.bytes } else { stats.count };
        }
        let total = match op.kind {
            OpKind::IopsLimit => &self.totals.rw_ops,
            OpKind::BwLimit => &self.totals.rw_bytes,
            OpKind::FinishOnBytes => &self.totals.bytes,
            _ => &self.totals.ops,
        };
        total.load(Ordering::Relaxed)
    }

    fn limit(&mut self, op: &Op) -> Flow {
        if self.live.model.event_rate == 0 {
            return Flow::Next;
        }
        let start = Instant::now();
        let now = self.so_far(op);
        let limit = self.limits.entry(op.slot).or_default();
        if limit.last == 0 {
            limit.last = now;
            return Flow::Next;
        }
        limit.left -= now.saturating_sub(limit.last) as i64;
        limit.last = now;
        if limit.left < 0 {
            let missing = limit.left.unsigned_abs();
            let (events, worth) = match op.kind {
                OpKind::BwLimit => ((missing >> 20) + 1, 1 << 20),
                _ => (missing, 1),
            };
            limit.left += (events * worth) as i64;
            if !self.live.events.take(events, &self.live.stop) {
                return Flow::Stop;
            }
        }
        self.count(op, start, 0)
    }

    fn finish(&mut self, op: &Op) -> Flow {
        let value = match &op.value {
            Amount::Fixed(n) => *n,
            Amount::Drawn(dist) => dist.mean() as u64,
        };
        let (start, so_far) = (Instant::now(), self.so_far(op));
        let reached = if op.kind == OpKind::FinishOnBytes { so_far > value } else { so_far >= value };
        let flow = self.count(op, start, 0);
        if reached {
            let thread = &self.live.model.processes[self.place.0].threads[self.place.1];
            self.live.end(Ok(Ended::Finished(thread.counters[op.slot].name.clone())));
            return Flow::Stop;
        }
        flow
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.outstanding.end();
    }
}

/// Again when a signal came between.
fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// What went wrong in a flowop, before its name is known.
struct Failure {
    what: String,
    source: Option<io::Error>,
}

impl Failure {
    fn misuse(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self { what: what.into(), source: Some(source) }
    }

    fn open(op: &Op, path: &std::path::Path, source: io::Error) -> Self {
        let hint = if op.directio && source.raw_os_error() == Some(libc::EINVAL) {
            " for direct I/O, which this file system may not have: leave `directio` out"
        } else {
            ""
        };
        Self::io(format!("cannot open {}{hint}", path.display()), source)
    }

    fn transfer(op: &Op, what: &str, len: u64, source: io::Error) -> Self {
        let hint = if op.directio && source.raw_os_error() == Some(libc::EINVAL) {
            " with direct I/O: its size must be a multiple of the device's block"
        } else {
            ""
        };
        Self::io(format!("cannot {what} {len} bytes{hint}"), source)
    }

    fn of(self, flowop: String, op: &Op) -> RunError {
        RunError::Flowop { flowop, at: op.at, what: self.what, source: self.source }
    }
}
