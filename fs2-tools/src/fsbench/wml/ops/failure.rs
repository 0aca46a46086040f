//! What goes wrong in a flowop.

use std::io;

use super::super::model::Op;
use super::super::run::RunError;

/// Again when a signal came between.
pub(super) fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// What went wrong in a flowop, before its name is known.
pub(super) struct Failure {
    what: String,
    source: Option<io::Error>,
}

impl Failure {
    pub(super) fn misuse(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self { what: what.into(), source: Some(source) }
    }

    pub(super) fn open(op: &Op, path: &std::path::Path, source: io::Error) -> Self {
        let hint = if op.directio && source.raw_os_error() == Some(libc::EINVAL) {
            " for direct I/O, which this file system may not have: leave `directio` out"
        } else {
            ""
        };
        Self::io(format!("cannot open {}{hint}", path.display()), source)
    }

    pub(super) fn transfer(op: &Op, what: &str, len: u64, source: io::Error) -> Self {
        let hint = if op.directio && source.raw_os_error() == Some(libc::EINVAL) {
            " with direct I/O: its size must be a multiple of the device's block"
        } else {
            ""
        };
        Self::io(format!("cannot {what} {len} bytes{hint}"), source)
    }

    pub(super) fn of(self, flowop: String, op: &Op) -> RunError {
        RunError::Flowop { flowop, at: op.at, what: self.what, source: self.source }
    }
}
