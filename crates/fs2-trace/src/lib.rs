//! Disk traces of a dozen formats as one stream of requests, and what can be said of them.
//! The main entry is [`open`]: it takes byte streams, compressed or not, finds their format and
//! gives a [`Stream`] of [`Record`]s in order of arrival. [`Writer`] and [`Reader`] are the project's own
//! container. Opening files, pacing a replay and measuring time are left to those above; each
//! format is a module of `formats`, described in `docs/trace-format.md`.
//!
//! ```
//! use fs2_block::{Extent, Nanos, Op};
//! use fs2_trace::{Format, OpenOptions, Record, open};
//!
//! let text = "0,20941264,8192,W,0.551706\n0,20939840,8192,R,0.554041\n";
//! let input = ("a.spc".to_owned(), Box::new(text.as_bytes()) as Box<_>);
//! let stream = open(vec![input], OpenOptions::default()).unwrap();
//! assert_eq!(stream.format(), Format::Spc);
//! let records = stream.collect::<Result<Vec<_>, _>>().unwrap();
//! let first = Record::new(Nanos(551_706_000), Op::Write, Extent::new(20941264 * 512, 8192));
//! assert_eq!(records[0], first);
//! ```
//!
//! Writing and reading the container:
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

mod blocks;
mod detect;
mod error;
mod event;
mod formats;
mod histogram;
mod input;
mod matching;
mod merge;
mod record;
mod stream;
mod summary;
pub mod synth;
mod text;

pub use error::TraceError;
pub use event::Device;
pub use formats::Format;
pub use formats::blkparse_writer::BlkparseWriter;
pub use formats::container::{Header, Reader, Writer};
pub use histogram::Percentiles;
pub use input::{BoxRead, Compression, unpack};
pub use record::{Record, RecordFlags};
pub use stream::{ArrivalEvent, DEVICE_STRIDE, DeviceChoice, OpenOptions, Partition, Skipped, Stream, open};
pub use summary::{Count, Hour, Mix, Summariser, Summary};
