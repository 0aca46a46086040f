//! Why a trace could not be read further: what, where, and what was expected.

use std::io;

use crate::formats::Format;

/// A trace could not be read further. Records delivered before are good.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file or device failed.
    #[error("trace cannot be read at byte {offset}: {source}")]
    Io {
        /// Bytes read before.
        offset: u64,
        /// What it said.
        source: io::Error,
    },
    /// It does not begin as our container does.
    #[error("not an FS2 trace: begins with {found:02x?}, expected the bytes of \"FS2TRACE\"")]
    NotATrace {
        /// Its first bytes, at most 8.
        found: Vec<u8>,
    },
    /// A container of a version this program does not know.
    #[error(
        "trace version {found}, and this program reads version {supported}: convert it with the fs2-replay that wrote \
         it (convert TRACE OUT.blkparse), or use that one"
    )]
    Version {
        /// The version it says.
        found: u16,
        /// What can be read.
        supported: u16,
    },
    /// The bytes end before the trace does: its writer was stopped, or the copy is incomplete.
    #[error("trace ends at byte {offset} after {records} records, expected {expected}")]
    Truncated {
        /// Bytes there are.
        offset: u64,
        /// Whole records before, those of damaged blocks among them where these were passed over.
        records: u64,
        /// What should have followed.
        expected: &'static str,
    },
    /// The header's content is wrong.
    #[error("trace header, byte {offset}: {what}")]
    Header {
        /// Byte of the field.
        offset: u64,
        /// What is wrong and what was expected.
        what: String,
    },
    /// A block's content is wrong.
    #[error("trace block at byte {offset} (record {record} on): {what}")]
    Block {
        /// Byte at which the block begins.
        offset: u64,
        /// Number of its first record, from 0.
        record: u64,
        /// What is wrong and what was expected.
        what: String,
    },
    /// A record's content is wrong.
    #[error("trace record {record} (block at byte {offset}): {what}")]
    Record {
        /// Byte at which its block begins.
        offset: u64,
        /// Its number, from 0.
        record: u64,
        /// What is wrong and what was expected.
        what: String,
    },
    /// A line's content is wrong.
    #[error("line {line}: {found:?}, expected {expected}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// The line, cut short where it is long, or the part of it that is wrong.
        found: String,
        /// What should have been there.
        expected: &'static str,
    },
    /// A binary record's content is wrong.
    #[error("byte {offset}: {what}")]
    Byte {
        /// Where the record begins, counted after decompression.
        offset: u64,
        /// What is wrong and what was expected.
        what: String,
    },
    /// The first bytes fit no format, or more than one.
    #[error("{what}; `--format` names it, one of: {}", Format::names())]
    Unrecognised {
        /// What was found: nothing that fits, or the candidates.
        what: String,
    },
    /// The inputs, or the options and the inputs, do not fit together.
    #[error("{0}")]
    Unfit(String),
    /// Damage that can be passed over.
    #[error("{source}; `--skip-bad` {how}")]
    Skippable {
        /// What is wrong.
        source: Box<TraceError>,
        /// What becomes of the trace then.
        how: &'static str,
    },
    /// An error of one of several inputs, or of an input with a name.
    #[error("{name}: {source}")]
    In {
        /// The input's name as it was handed in.
        name: String,
        /// What is wrong with it.
        source: Box<TraceError>,
    },
}

impl TraceError {
    /// The same error with the name of the input it came from.
    pub(crate) fn in_input(self, name: &str) -> TraceError {
        TraceError::In { name: name.to_owned(), source: Box::new(self) }
    }

    /// The same error with what `--skip-bad` does about it.
    pub(crate) fn skippable(self, how: &'static str) -> TraceError {
        TraceError::Skippable { source: Box::new(self), how }
    }

    /// Whether the bytes of a trace are to blame: not a device that failed, nor what was asked for.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            // What a decoder finds wrong has no number of the system's.
            TraceError::Io { source, .. } => source.raw_os_error().is_none(),
            TraceError::Truncated { .. }
            | TraceError::Header { .. }
            | TraceError::Block { .. }
            | TraceError::Record { .. }
            | TraceError::Line { .. }
            | TraceError::Byte { .. } => true,
            TraceError::NotATrace { .. }
            | TraceError::Version { .. }
            | TraceError::Unrecognised { .. }
            | TraceError::Unfit(_) => false,
            TraceError::Skippable { source, .. } | TraceError::In { source, .. } => source.is_damage(),
        }
    }
}
