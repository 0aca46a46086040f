//! A script as it is written, with places.

use super::error::Pos;
use super::lex::Piece;

/// A value as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Term {
    Int(u64),
    Bool(bool),
    Word(String),
    Text(Vec<Piece>),
    Var(String),
    /// Rows of a table of probabilities: percent, least, largest.
    Table(Vec<[Box<Placed<Term>>; 3]>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed<T> {
    pub(super) at: Pos,
    pub(super) it: T,
}

/// `name=value`, `name` alone, or a composite's `$local=value`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attr {
    pub(super) at: Pos,
    pub(super) name: String,
    pub(super) local: bool,
    pub(super) value: Option<Placed<Term>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flowop {
    pub(super) at: Pos,
    pub(super) kind: String,
    pub(super) attrs: Vec<Attr>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Thread {
    pub(super) at: Pos,
    pub(super) attrs: Vec<Attr>,
    pub(super) flowops: Vec<Flowop>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Assigned {
    /// A first term, then operators (`+ - * /`) with theirs.
    Sum(Placed<Term>, Vec<(char, Placed<Term>)>),
    Random(Vec<Attr>),
    Custom(Vec<Attr>),
}

/// When a run ends before its time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum QuitMode {
    /// Never by itself: a thread without a file to work on is an error.
    #[default]
    Timeout,
    /// When all threads have nothing left to do.
    AllDone,
    /// When the first thread has nothing left to do.
    FirstDone,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    Set {
        name: String,
        value: Assigned,
    },
    Mode(QuitMode),
    DefineFiles {
        one: bool,
        attrs: Vec<Attr>,
    },
    DefineProcess {
        attrs: Vec<Attr>,
        threads: Vec<Thread>,
    },
    DefineFlowop {
        attrs: Vec<Attr>,
        flowops: Vec<Flowop>,
    },
    DefineRandvar(Vec<Attr>),
    CreateFiles,
    CreateProcesses,
    Shutdown,
    Run(Option<Placed<Term>>),
    PsRun {
        period_s: Option<u64>,
        seconds: Option<Placed<Term>>,
    },
    Sleep(Placed<Term>),
    EventGen(Vec<Attr>),
    Echo(Vec<Piece>),
    System(Vec<Piece>),
    Snapshot,
    LatencyHistogram,
    /// Needs other hosts.
    Multi(&'static str),
    Quit,
    /// Accepted and without effect here.
    Nothing,
}
