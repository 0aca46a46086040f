//! Backing devices: files, block devices, memory, and decorators that stack on them.
//!
//! The main type is [`Store`]. What is stored, and when, is the engine's affair.

mod buffer;
mod store;

pub use buffer::AlignedBuf;
pub use store::{Store, Stretch};
