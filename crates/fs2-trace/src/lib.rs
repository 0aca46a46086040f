//! Disk traces: requests with their arrival and service times, as files.
//! The main types are [`Writer`] and [`Reader`] of the project's own container, both over the
//! byte streams they are handed, and [`Record`], one request. Opening files, pacing a replay and
//! measuring time are left to those above; each trace format is a module of `formats`.
//!
//! ```
//! use fs2_block::{Extent, Nanos, Op};
//! use fs2_trace::{Header, Reader, Record, Writer};
//!
//! let header = Header { volume_bytes: 1 << 30, block_size: None, start_unix_ns: 0 };
//! let mut writer = Writer::new(Vec::new(), header).unwrap();
//! let record = Record::new(Nanos(5), Op::Read, Extent::new(4096, 8192));
//! writer.push(&record).unwrap();
//! let bytes = writer.finish().unwrap();
//!
//! let reader = Reader::new(&bytes[..]).unwrap();
//! assert_eq!(reader.header(), header);
//! assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), [record]);
//! ```
#![forbid(unsafe_code)]

mod error;
mod formats;
mod record;

pub use error::TraceError;
pub use formats::container::{Header, Reader, Writer};
pub use record::{Record, RecordFlags};
