//! The daemon: a replica engine between a file system and its disk. The main type is
//! [`server::Server`], the one place where the machine of `fs2-engine` meets requests, I/O and time.
//! What is copied and what may be trusted is left to the engine; protocols are in [`frontend`].
//!
//! ```
//! use std::sync::Arc;
//! use fs2_block::{Extent, Flags, Op};
//! use fs2_engine::{AttachOptions, EngineConfig, Volume};
//! use fs2_store::{AlignedBuf, MemStore, Store, StoreIo};
//! use fs2d::server::{Drive, Server};
//! use fs2d::service::{ClientRequest, Service};
//!
//! let store: Arc<dyn Store> = Arc::new(MemStore::new(1 << 20));
//! let (volume, _) =
//!     Volume::attach(&mut StoreIo::new(&*store), None, EngineConfig::default(), &AttachOptions::default())?;
//! let drive = Drive { depth: 2, time_scale: 1.0, host_reserve: 0, rotational: false };
//! let server = Server::start(volume, store, None, drive, "an example".into())?;
//! let connection = server.connect();
//! let request = |op, buffer| ClientRequest {
//!     connection,
//!     op,
//!     extent: Extent::new(512, 3),
//!     flags: Flags::default(),
//!     buffer,
//! };
//! assert!(server.call(request(Op::Write, AlignedBuf::copy_of(b"abc"))).1.is_ok());
//! let (read, result) = server.call(request(Op::Read, AlignedBuf::zeroed(3)));
//! assert!(result.is_ok());
//! assert_eq!(&read[..], b"abc");
//! server.detach();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod awaited;
pub mod cli;
pub mod daemon;
pub mod error;
pub mod frontend;
mod host;
mod limits;
#[cfg(test)]
mod logged;
mod lost;
mod memory;
pub mod metrics;
mod notify;
mod passed;
pub mod runtime;
pub mod server;
pub mod service;
pub mod settings;
mod signals;
mod status;
mod stop;
pub mod text;
pub mod trace_file;
mod upgrade;
pub mod wakeups;
mod write_out;

pub use upgrade::ITSELF;
