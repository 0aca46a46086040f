//! The replica engine: a state machine between a file system and its disk, without I/O of its own.
//!
//! The main type is [`Volume`]: requests, completions and the time go in; dispatches, replies and the
//! next wake-up come out. How bytes reach a device, and when, is left to whoever drives it.
//!
//! ```
//! use fs2_block::{ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId};
//! use fs2_engine::{AttachOptions, EngineConfig, Outcome, Volume};
//!
//! // Sixteen blocks that hold no file system: served as a plain device.
//! let mut disk = vec![7u8; 65536];
//! let (mut volume, _) = Volume::attach(&mut disk, None, EngineConfig::default(), &AttachOptions::default())?;
//! let request = Request {
//!     id: RequestId(1),
//!     connection: ConnectionId(0),
//!     op: Op::Read,
//!     extent: Extent::new(4096, 512),
//!     flags: Flags::default(),
//! };
//! volume.submit(Nanos(0), request, None);
//! let io = volume.poll_dispatch(Nanos(0)).expect("nothing forbids it");
//! assert_eq!(io.extent, Extent::new(4096, 512));
//! volume.complete(Nanos(100), io.id, Outcome::read(&disk[4096..4608]));
//! assert_eq!(volume.poll_reply().map(|r| r.result), Some(Ok(())));
//! # Ok::<(), fs2_engine::AttachError>(())
//! ```
#![forbid(unsafe_code)]

mod backups;
mod config;
mod head;
mod io;
mod log;
pub mod offline;
mod part;
mod plant;
pub mod policy;
mod seq_map;
mod stats;
mod volume;
mod worth;

pub use config::{DiscardMode, EngineConfig, Watermarks};
pub use fs2_ext2::Freeze;
pub use head::Head;
pub use io::{
    Brought, EDQUOT, EINVAL, EIO, ENOSPC, EOPNOTSUPP, ESHUTDOWN, Io, IoData, IoId, IoOp, Outcome, Reply,
    Target,
};
pub use log::{Batch, Captured, Log, Payload, RunId};
pub use part::{Part, Without};
pub use plant::Plant;
pub use policy::PolicyKind;
pub use stats::{
    AccessKind, Control, Failed, Failure, Modelled, Parts, PauseWork, ReplicaGate, Sample, Stats, Times,
    WatermarkState,
};
pub use volume::{
    AttachError, AttachOptions, AttachReport, DetachReport, HandOver, Inactive, Standing, Volume,
};
pub use worth::{UNAPPRAISED, worth};
