//! A script that was checked: every name resolved, every number known or a random variable. Running it can fail
//! only because of the file system under it.

use std::sync::Arc;

use super::ast::QuitMode;
use super::dist::{Dist, Rng};
use super::error::Pos;

/// A number, or what it is drawn from each time it is needed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Amount {
    Fixed(u64),
    Drawn(Arc<Dist>),
}

impl Amount {
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Amount::Fixed(n) => *n,
            Amount::Drawn(dist) => dist.draw(rng) as u64,
        }
    }

    pub(super) fn draw_f64(&self, rng: &mut Rng) -> f64 {
        match self {
            Amount::Fixed(n) => *n as f64,
            Amount::Drawn(dist) => dist.draw(rng),
        }
    }

    pub(super) fn mean(&self) -> f64 {
        match self {
            Amount::Fixed(n) => *n as f64,
            Amount::Drawn(dist) => dist.mean(),
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        *self == Amount::Fixed(0)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilesetSpec {
    pub(super) name: String,
    /// As the script says; below the benchmark's directory in the end.
    pub(super) path: String,
    pub(super) size: Amount,
    /// Shape of a gamma law of the sizes in 1/1000 about `size`; 0 leaves them equal.
    pub(super) size_gamma: u64,
    pub(super) entries: u64,
    pub(super) leafdirs: u64,
    pub(super) dirwidth: Amount,
    /// Shape of the gamma laws of depth and width in 1/1000; 0 makes both constant.
    pub(super) dirgamma: u64,
    pub(super) dirdepth: Option<Amount>,
    pub(super) prealloc_percent: u64,
    pub(super) paralloc: bool,
    pub(super) reuse: bool,
    pub(super) trusttree: bool,
    pub(super) readonly: bool,
    pub(super) writeonly: bool,
}

/// What a flowop does. The names are the language's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OpKind {
    OpenFile,
    CreateFile,
    CloseFile,
    DeleteFile,
    StatFile,
    Fsync,
    FsyncSet,
    ReadWholeFile,
    WriteWholeFile,
    AppendFile,
    AppendFileRand,
    Read,
    Write,
    AioWrite,
    AioWait,
    MakeDir,
    RemoveDir,
    ListDir,
    Hog,
    Delay,
    SemBlock,
    SemPost,
    Block,
    Wakeup,
    EventLimit,
    IopsLimit,
    OpsLimit,
    BwLimit,
    FinishOnCount,
    FinishOnBytes,
    Print,
    TestRandVar,
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
    pub(super) const ALL: &[(&str, OpKind)] = &[
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

    pub(super) fn class(self) -> OpClass {
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

    pub(super) fn reads(self) -> bool {
        matches!(self, OpKind::Read | OpKind::ReadWholeFile)
    }

    pub(super) fn writes(self) -> bool {
        use OpKind::*;
        matches!(self, Write | WriteWholeFile | AppendFile | AppendFileRand | AioWrite)
    }

    /// Whether it needs a fileset by its name; the others may have a slot opened before.
    pub(super) fn needs_fileset(self) -> bool {
        use OpKind::*;
        matches!(self, OpenFile | CreateFile | MakeDir | RemoveDir | ListDir | FsyncSet)
    }

    /// Whether it moves `iosize` bytes at a time and cannot do with none.
    pub(super) fn needs_iosize(self) -> bool {
        use OpKind::*;
        matches!(self, Read | Write | AioWrite | AppendFile | AppendFileRand)
    }

    pub(super) fn needs_target(self) -> bool {
        matches!(self, OpKind::SemPost | OpKind::Wakeup)
    }

    pub(super) fn needs_value(self) -> bool {
        matches!(self, OpKind::SemPost | OpKind::SemBlock)
    }

    pub(super) fn takes_target(self) -> bool {
        use OpKind::*;
        matches!(self, IopsLimit | OpsLimit | BwLimit | FinishOnCount | FinishOnBytes) || self.needs_target()
    }
}

/// A flowop of a thread.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Op {
    pub(super) kind: OpKind,
    pub(super) at: Pos,
    /// Its place among the thread's counters, by name.
    pub(super) slot: usize,
    pub(super) iters: Amount,
    pub(super) fileset: Option<usize>,
    pub(super) fd: u32,
    pub(super) srcfd: u32,
    pub(super) iosize: Amount,
    pub(super) working_set: u64,
    pub(super) value: Amount,
    pub(super) highwater: u64,
    pub(super) random: bool,
    pub(super) opennext: bool,
    pub(super) directio: bool,
    pub(super) dsync: bool,
    pub(super) noreadahead: bool,
    pub(super) blocking: bool,
    pub(super) indexed: Option<Amount>,
    /// Of the limits and ends: the thread's counter they go by.
    pub(super) target: Option<usize>,
    /// Of posts and wake-ups: the name of the gates they open.
    pub(super) gates: Option<String>,
    /// Of `print`.
    pub(super) text: String,
    pub(super) inner: Vec<Op>,
}

/// What the counters of a thread are of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counter {
    pub(super) name: String,
    pub(super) kind: OpKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadSpec {
    pub(super) name: String,
    pub(super) instances: u64,
    pub(super) memory_bytes: u64,
    pub(super) ioprio: Option<u64>,
    pub(super) ops: Vec<Op>,
    pub(super) counters: Vec<Counter>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProcessSpec {
    pub(super) name: String,
    pub(super) instances: u64,
    pub(super) nice: u64,
    pub(super) threads: Vec<ThreadSpec>,
}

/// What is done in order, once the files are there.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Echo(String),
    System(String),
    /// Starts the processes and goes on.
    Start,
    Sleep(u64),
    /// Prints the counters up to now.
    Snapshot,
    Stop,
    /// Starts what is not started, waits, counts, stops. No seconds: the language's own 60.
    Run {
        seconds: Option<u64>,
        period_s: Option<u64>,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    pub(super) filesets: Vec<FilesetSpec>,
    pub(super) processes: Vec<ProcessSpec>,
    pub(super) steps: Vec<Step>,
    pub(super) quit: QuitMode,
    /// Events a second; 0: none, and limits do not limit.
    pub(super) event_rate: u64,
    pub(super) histogram: bool,
    /// Variables and their values, to be shown.
    pub(super) variables: Vec<(String, String)>,
}

impl Model {
    /// Threads of all processes.
    pub(super) fn threads(&self) -> u64 {
        let of =
            |p: &ProcessSpec| p.threads.iter().map(|t| t.instances).sum::<u64>().saturating_mul(p.instances);
        self.processes.iter().map(of).fold(0, u64::saturating_add)
    }
}
