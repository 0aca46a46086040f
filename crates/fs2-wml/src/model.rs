//! A script that was checked: every name resolved, every number known or a random variable. Running it can fail
//! only because of the file system under it.

use std::sync::Arc;

use super::ast::QuitMode;
use super::dist::{Dist, Rng};
use super::error::Pos;

/// A number, or what it is drawn from each time it is needed.
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    /// This.
    Fixed(u64),
    /// Drawn from it.
    Drawn(Arc<Dist>),
}

impl Amount {
    /// One value, as a whole number.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Amount::Fixed(n) => *n,
            Amount::Drawn(dist) => dist.draw(rng) as u64,
        }
    }

    /// One value.
    pub fn draw_f64(&self, rng: &mut Rng) -> f64 {
        match self {
            Amount::Fixed(n) => *n as f64,
            Amount::Drawn(dist) => dist.draw(rng),
        }
    }

    /// The value expected.
    pub fn mean(&self) -> f64 {
        match self {
            Amount::Fixed(n) => *n as f64,
            Amount::Drawn(dist) => dist.mean(),
        }
    }

    /// Whether it is always nothing.
    pub fn is_zero(&self) -> bool {
        *self == Amount::Fixed(0)
    }
}

/// A fileset as it is defined.
#[derive(Clone, Debug, PartialEq)]
pub struct FilesetSpec {
    /// Its name.
    pub name: String,
    /// As the script says; below the benchmark's directory in the end.
    pub path: String,
    /// Bytes of a file.
    pub size: Amount,
    /// Shape of a gamma law of the sizes in 1/1000 about `size`; 0 leaves them equal.
    pub size_gamma: u64,
    /// Files.
    pub entries: u64,
    /// Leaf directories.
    pub leafdirs: u64,
    /// Entries of a directory, on average.
    pub dirwidth: Amount,
    /// Shape of the gamma laws of depth and width in 1/1000; 0 makes both constant.
    pub dirgamma: u64,
    /// Depth, where it has a law of its own.
    pub dirdepth: Option<Amount>,
    /// So many of a hundred are made before a run.
    pub prealloc_percent: u64,
    /// Made by several threads.
    pub paralloc: bool,
    /// What is there is used again.
    pub reuse: bool,
    /// What is there is taken as it is.
    pub trusttree: bool,
    /// Opened for reading alone.
    pub readonly: bool,
    /// Opened for writing alone.
    pub writeonly: bool,
}

/// What a flowop does. The names are the language's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpKind {
    /// `openfile`.
    OpenFile,
    /// `createfile`.
    CreateFile,
    /// `closefile`.
    CloseFile,
    /// `deletefile`.
    DeleteFile,
    /// `statfile`.
    StatFile,
    /// `fsync`.
    Fsync,
    /// `fsyncset`.
    FsyncSet,
    /// `readwholefile`.
    ReadWholeFile,
    /// `writewholefile`.
    WriteWholeFile,
    /// `appendfile`.
    AppendFile,
    /// `appendfilerand`.
    AppendFileRand,
    /// `read`.
    Read,
    /// `write`.
    Write,
    /// `aiowrite`.
    AioWrite,
    /// `aiowait`.
    AioWait,
    /// `makedir`.
    MakeDir,
    /// `removedir`.
    RemoveDir,
    /// `listdir`.
    ListDir,
    /// `hog`.
    Hog,
    /// `delay`.
    Delay,
    /// `semblock`.
    SemBlock,
    /// `sempost`.
    SemPost,
    /// `block`.
    Block,
    /// `wakeup`.
    Wakeup,
    /// `eventlimit`.
    EventLimit,
    /// `iopslimit`.
    IopsLimit,
    /// `opslimit`.
    OpsLimit,
    /// `bwlimit`.
    BwLimit,
    /// `finishoncount`.
    FinishOnCount,
    /// `finishonbytes`.
    FinishOnBytes,
    /// `print`.
    Print,
    /// `testrandvar`.
    TestRandVar,
    /// Flowops under a name of their own.
    Composite,
}

/// What a flowop's count goes into.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpClass {
    /// Counted in the summary: what touches the file system.
    Io,
    /// Counted in the summary too: asynchronous writes and waiting for them.
    Aio,
    /// Semaphores, blocks and wake-ups.
    Sync,
    /// Everything else: processor time, delays, limits, ends.
    Other,
}

impl OpKind {
    /// All of them with their words.
    pub const ALL: &[(&str, OpKind)] = &[
        ("openfile", OpKind::OpenFile),
        ("createfile", OpKind::CreateFile),
        ("closefile", OpKind::CloseFile),
        ("deletefile", OpKind::DeleteFile),
        ("statfile", OpKind::StatFile),
        ("fsync", OpKind::Fsync),
        ("fsyncset", OpKind::FsyncSet),
        ("readwholefile", OpKind::ReadWholeFile),
        ("writewholefile", OpKind::WriteWholeFile),
        ("appendfile", OpKind::AppendFile),
        ("appendfilerand", OpKind::AppendFileRand),
        ("read", OpKind::Read),
        ("write", OpKind::Write),
        ("aiowrite", OpKind::AioWrite),
        ("aiowait", OpKind::AioWait),
        ("makedir", OpKind::MakeDir),
        ("removedir", OpKind::RemoveDir),
        ("listdir", OpKind::ListDir),
        ("hog", OpKind::Hog),
        ("delay", OpKind::Delay),
        ("semblock", OpKind::SemBlock),
        ("sempost", OpKind::SemPost),
        ("block", OpKind::Block),
        ("wakeup", OpKind::Wakeup),
        ("eventlimit", OpKind::EventLimit),
        ("iopslimit", OpKind::IopsLimit),
        ("opslimit", OpKind::OpsLimit),
        ("bwlimit", OpKind::BwLimit),
        ("finishoncount", OpKind::FinishOnCount),
        ("finishonbytes", OpKind::FinishOnBytes),
        ("print", OpKind::Print),
        ("testrandvar", OpKind::TestRandVar),
    ];

    /// What its count goes into.
    pub fn class(self) -> OpClass {
        use OpKind::*;
        match self {
            OpenFile | CreateFile | CloseFile | DeleteFile | StatFile | Fsync | FsyncSet | ReadWholeFile
            | WriteWholeFile | AppendFile | AppendFileRand | Read | Write | MakeDir | RemoveDir | ListDir => {
                OpClass::Io
            }
            AioWrite | AioWait => OpClass::Aio,
            SemBlock | SemPost | Block | Wakeup => OpClass::Sync,
            Hog | Delay | EventLimit | IopsLimit | OpsLimit | BwLimit | FinishOnCount | FinishOnBytes
            | Print | TestRandVar | Composite => OpClass::Other,
        }
    }

    /// Whether it reads a file's content.
    pub fn reads(self) -> bool {
        matches!(self, OpKind::Read | OpKind::ReadWholeFile)
    }

    /// Whether it writes a file's content.
    pub fn writes(self) -> bool {
        use OpKind::*;
        matches!(self, Write | WriteWholeFile | AppendFile | AppendFileRand | AioWrite)
    }

    /// Whether it needs a fileset by its name; the others may have a slot opened before.
    pub fn needs_fileset(self) -> bool {
        use OpKind::*;
        matches!(self, OpenFile | CreateFile | MakeDir | RemoveDir | ListDir | FsyncSet)
    }

    /// Whether it moves `iosize` bytes at a time and cannot do with none.
    pub fn needs_iosize(self) -> bool {
        use OpKind::*;
        matches!(self, Read | Write | AioWrite | AppendFile | AppendFileRand)
    }

    /// Whether it is nothing without a target.
    pub fn needs_target(self) -> bool {
        matches!(self, OpKind::SemPost | OpKind::Wakeup)
    }

    /// Whether it is nothing without a value.
    pub fn needs_value(self) -> bool {
        matches!(self, OpKind::SemPost | OpKind::SemBlock)
    }

    /// Whether it may have a target.
    pub fn takes_target(self) -> bool {
        use OpKind::*;
        matches!(self, IopsLimit | OpsLimit | BwLimit | FinishOnCount | FinishOnBytes) || self.needs_target()
    }
}

/// A flowop of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// Where it stands.
    pub at: Pos,
    /// Its place among the thread's counters, by name.
    pub slot: usize,
    /// How often it is done at a time.
    pub iters: Amount,
    /// Its fileset, by place.
    pub fileset: Option<usize>,
    /// Its slot.
    pub fd: u32,
    /// The slot whose length `writewholefile` takes.
    pub srcfd: u32,
    /// Bytes at a time; 0: whole.
    pub iosize: Amount,
    /// Bytes of the file that are used; 0: all.
    pub working_set: u64,
    /// What counts, waits and delays go by.
    pub value: Amount,
    /// Of `semblock`: what may be outstanding.
    pub highwater: u64,
    /// At random places.
    pub random: bool,
    /// Each use takes the next slot of the set.
    pub opennext: bool,
    /// Past the page cache.
    pub directio: bool,
    /// Written through.
    pub dsync: bool,
    /// Nothing is read ahead.
    pub noreadahead: bool,
    /// A post that waits.
    pub blocking: bool,
    /// What files are picked by.
    pub indexed: Option<Amount>,
    /// Of the limits and ends: the thread's counter they go by.
    pub target: Option<usize>,
    /// Of posts and wake-ups: the name of the gates they open.
    pub gates: Option<String>,
    /// Of `print`.
    pub text: Arc<str>,
    /// A composite's own.
    pub inner: Vec<Op>,
}

/// What the counters of a thread are of.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: OpKind,
}

/// A thread as it is defined.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSpec {
    /// Its name.
    pub name: String,
    /// How many of it.
    pub instances: u64,
    /// Bytes of its buffer.
    pub memory_bytes: u64,
    /// Best-effort level of its I/O.
    pub ioprio: Option<u64>,
    /// Its flowops, in order.
    pub ops: Vec<Op>,
    /// What it counts.
    pub counters: Vec<Counter>,
}

/// A process as it is defined.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSpec {
    /// Its name.
    pub name: String,
    /// How many of it.
    pub instances: u64,
    /// Its nice value.
    pub nice: u64,
    /// Its threads.
    pub threads: Vec<ThreadSpec>,
}

/// What is done in order, once the files are there.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Says something.
    Echo(String),
    /// A shell's command.
    System(String),
    /// Starts the processes and goes on.
    Start,
    /// Waits so many seconds.
    Sleep(u64),
    /// Prints the counters up to now.
    Snapshot,
    /// Ends the run.
    Stop,
    /// Starts what is not started, waits, counts, stops. No seconds: the language's own 60.
    Run {
        /// How long.
        seconds: Option<u64>,
        /// Counts are told so often.
        period_s: Option<u64>,
    },
}

/// A script that was checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Its filesets.
    pub filesets: Vec<FilesetSpec>,
    /// Its processes.
    pub processes: Vec<ProcessSpec>,
    /// What is done in order.
    pub steps: Vec<Step>,
    /// When a run ends before its time.
    pub quit: QuitMode,
    /// Events a second; 0: none, and limits do not limit.
    pub event_rate: u64,
    /// Latencies by power of two are wanted.
    pub histogram: bool,
    /// Variables and their values, to be shown.
    pub variables: Vec<(String, String)>,
}

impl Model {
    /// Threads of all processes.
    pub fn threads(&self) -> u64 {
        let of =
            |p: &ProcessSpec| p.threads.iter().map(|t| t.instances).sum::<u64>().saturating_mul(p.instances);
        self.processes.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Filesets `factor` times as large: in files where there are several, in bytes where there is one.
    pub fn scale(&mut self, factor: f64) {
        let times = |n: u64| (n as f64 * factor).round() as u64;
        // Direct I/O wants whole blocks.
        let bytes = |n: u64| if n < BLOCK { n } else { (times(n) / BLOCK * BLOCK).max(BLOCK) };
        let mut single = Vec::new();
        for set in &mut self.filesets {
            single.push(set.entries + set.leafdirs <= 1);
            if set.entries + set.leafdirs > 1 {
                let entries = |n: u64| if n == 0 { 0 } else { times(n).clamp(1, super::build::ENTRIES_MAX) };
                (set.entries, set.leafdirs) = (entries(set.entries), entries(set.leafdirs));
            } else if let Amount::Fixed(n) = &mut set.size {
                *n = bytes(*n);
            }
        }
        let threads = self.processes.iter_mut().flat_map(|p| &mut p.threads);
        let mut rest: Vec<&mut Op> = threads.flat_map(|t| &mut t.ops).collect();
        while let Some(op) = rest.pop() {
            if op.fileset.is_some_and(|set| single[set]) {
                op.working_set = bytes(op.working_set);
            }
            rest.extend(&mut op.inner);
        }
    }
}

/// What sizes are rounded to when they are scaled, bytes.
const BLOCK: u64 = 4096;
