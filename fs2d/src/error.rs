//! Why a volume is not served.

use std::io;
use std::path::{Path, PathBuf};

use fs2_control::quoted;
use fs2_engine::AttachError;
use fs2_engine::offline::below_remedy;
use fs2_ext2::Problem;

/// Only where there is nothing that a new file system would destroy.
fn how_to_make(device: &str, what: &str) -> String {
    match *what == Problem::NotExt2.to_string() {
        true => format!("; a new file system is made by mke2fs -t ext2 {}", quoted(Path::new(device))),
        false => String::new(),
    }
}

/// For what was made and not given a size yet.
fn how_to_begin(device: &str, source: &AttachError) -> String {
    let quoted = quoted(Path::new(device));
    match source {
        AttachError::Refused(Problem::TooShort { .. }) => format!(
            "; check the path, and restore what it held; a new volume of an image is made by truncate -s SIZE {quoted} and mke2fs -t ext2 {quoted}"
        ),
        AttachError::Io { what, source } => {
            below_remedy(what, source, &quoted, None).map_or(String::new(), |remedy| format!("; {remedy}"))
        }
        _ => String::new(),
    }
}

/// Why a volume is not served.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The backing cannot be had.
    #[error(transparent)]
    Open(#[from] fs2_store::OpenError),
    /// The backing may only be read, and there is no serving without writing.
    #[error("{source}; to read it without FS2: mount -t ext2 -o ro {} DIR", quoted(device))]
    ReadOnly {
        /// The backing.
        device: PathBuf,
        /// What forbids it.
        #[source]
        source: fs2_store::OpenError,
    },
    /// The volume cannot be served at all.
    #[error("{device}: {source}{}", how_to_begin(device, source))]
    Attach {
        /// The backing.
        device: String,
        /// Why.
        #[source]
        source: AttachError,
    },
    /// `--require-active`, and it is not.
    #[error("{device} is not active: {why}{}", remedy.as_ref().map(|r| format!("; to activate it: {r}")).unwrap_or_default())]
    NotActive {
        /// The backing.
        device: String,
        /// Why.
        why: String,
        /// The command that mends it.
        remedy: Option<String>,
    },
    /// There is no ext2 file system, and it was not asked to be served all the same.
    #[error("{device}: {what}{}; --passive serves it as it is", how_to_make(device, what))]
    NotExt2 {
        /// The backing.
        device: String,
        /// What was found instead.
        what: String,
    },
    /// A setting that cannot be met.
    #[error("{0}")]
    Setting(String),
    /// Something else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
