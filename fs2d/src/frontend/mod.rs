//! Protocols by which a kernel or a program reaches the volume.

pub mod fuse;
pub mod nbd;
pub mod ublk;
