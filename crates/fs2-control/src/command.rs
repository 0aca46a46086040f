//! What can be asked, and what is answered.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// What a tool asks of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// How the volume is doing; answered by [`Reply::Status`].
    Status,
    /// Take no more requests, write the table and the mark, and exit. The answer comes when the
    /// detach has ended: a [`Reply::Status`] with [`Status::detach`], or an error.
    Detach,
    /// Begin to record requests in a file.
    TraceStart {
        /// Where to. [`crate::Client`] makes it absolute; the server refuses what is not.
        #[serde(with = "path_bytes")]
        path: PathBuf,
    },
    /// End the recording.
    TraceStop,
    /// Nothing; answered by [`Reply::Done`] when the daemon lives.
    Ping,
    /// Let another program go on as the daemon, while the volume stays mounted. [`Reply::Done`] says that it
    /// begins; how it went, the next daemon's status tells.
    Upgrade {
        /// The program, an absolute path; it gets the same arguments.
        #[serde(with = "path_bytes")]
        program: PathBuf,
    },
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Command::Status`], and to [`Command::Detach`] where the daemon has more to say than done.
    Status(Box<Status>),
    /// It was done.
    Done,
    /// It was not done.
    Error {
        /// What went wrong.
        what: String,
        /// Where: a device, a file, a block. In JSON the field is `where`.
        #[serde(rename = "where")]
        place: String,
        /// What to do next; may be empty.
        next: String,
    },
}

impl Reply {
    /// An error: what went wrong, where, and what to do next (may be empty).
    pub fn error(what: impl Into<String>, place: impl Into<String>, next: impl Into<String>) -> Reply {
        Reply::Error { what: what.into(), place: place.into(), next: next.into() }
    }
}

/// Paths as bytes: not every path is UTF-8.
mod path_bytes {
    use std::ffi::OsString;
    use std::fmt;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::de::{SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(path.as_os_str().as_bytes())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from_vec(from.deserialize_seq(Bytes)?).into())
    }

    /// Takes bytes as they come. `Vec`'s own way reserves up to 1 MiB for whatever length is claimed.
    struct Bytes;

    impl<'de> Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the bytes of a path")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = from.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
}
