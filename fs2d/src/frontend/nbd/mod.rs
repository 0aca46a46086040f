//! The volume over the Network Block Device protocol.
pub mod codec;
