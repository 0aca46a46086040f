//! Backing devices: files, block devices, memory, and decorators that stack on them. The main type is
//! [`Store`], which [`FileStore`], [`UringStore`] and [`MemStore`] are. What is stored, and when, is the engine's affair.
//!
//! ```
//! use fs2_store::{MemStore, Store, Stretch};
//! let disk = MemStore::new(1 << 20);
//! disk.write_at(8192, b"a block", false)?;
//! disk.flush()?;
//! let mut buf = [0; 7];
//! disk.read_at(8192, &mut buf)?;
//! assert_eq!(&buf, b"a block");
//! assert_eq!(disk.stretches(0, 1 << 20, 1)?, [Stretch { len: 8192, hole: true }]);
//! # Ok::<(), std::io::Error>(())
//! ```

mod adaptors;
mod buffer;
mod delay;
mod fault;
mod file;
mod logwrites;
mod mem;
mod pipe;
mod record;
mod rng;
mod seldom;
mod stamp;
mod store;
mod uring;

pub use adaptors::StoreIo;
pub use buffer::{AlignedBuf, Parts};
pub use delay::{DelayStore, Observer, Served};
pub use fault::{Fault, FaultId, FaultKind, FaultStore};
pub use file::{Direct, FileStore, Lock, OpenError, OpenOptions, SERVED_SOURCE, SERVED_TYPE};
pub use logwrites::{FlushEntry, LogStore, LogWriter, Replayed, replay_log};
pub use mem::MemStore;
pub use pipe::Pipe;
pub use record::{CrashState, Discarded, Event, EventKind, RecordStore, Recording, RecordingFull, Tear};
pub use seldom::Seldom;
pub use stamp::{Stamp, StampOf};
pub use store::{ModelTotals, Ring, RingEnd, RingIo, RingOp, Store, Stretch, sync_failed};
pub use uring::UringStore;
