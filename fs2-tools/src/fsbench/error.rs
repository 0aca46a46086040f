//! Why a benchmark does not run, or does not count.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The command line makes no sense: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Refused before anything was written.
    #[error("{0}")]
    Refused(String),
    /// The file system says no.
    #[error("{}: {what}: {source}", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A run that ended early, or whose files are not what was written.
    #[error("{0}")]
    Failed(String),
    /// Stopped by this signal: exit code 128 and its number.
    #[error("stopped by {}", match .0 { 2 => "Ctrl-C".to_string(), n => format!("signal {n}") })]
    Interrupted(i32),
}

impl BenchError {
    /// For `map_err`: an error at a path.
    pub fn at<'a>(path: &'a Path, what: impl Display + 'a) -> impl FnOnce(io::Error) -> BenchError + 'a {
        move |source| BenchError::Io { path: path.to_owned(), what: what.to_string(), source }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> i32 {
        match self {
            BenchError::Usage(_) => 2,
            BenchError::Interrupted(signal) => 128 + signal,
            _ => 1,
        }
    }
}
