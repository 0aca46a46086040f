//! Units and the shape of a request: the words every other crate speaks.
//!
//! The main types are [`BlockNo`], [`BlockRange`], [`Extent`], [`Nanos`] and [`Request`]. Nothing
//! here knows a file system, a drive or a protocol; nothing here does I/O.
//!
//! ```
//! use fs2_block::{BlockNo, BlockRange, BlockSize, Extent};
//! let bs = BlockSize::new(4096).unwrap();
//! let e = Extent::new(4000, 200);
//! assert_eq!(e.blocks_touched(bs), BlockRange::new(0, 2));
//! assert_eq!(e.blocks_covered(bs), BlockRange::EMPTY);
//! assert_eq!(BlockNo(7).extent(bs), Extent::new(28672, 4096));
//! ```
#![forbid(unsafe_code)]

mod bytes;
mod request;
mod units;

pub use bytes::{ReadAt, WriteAt};
pub use request::{Arrival, ConnectionId, Flags, Op, Request, RequestId};
pub use units::{BlockNo, BlockRange, BlockSize, Extent, Nanos, Permille, SECTOR_BYTES, Sector};
