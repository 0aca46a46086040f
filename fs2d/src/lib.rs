//! The daemon: a replica engine between a file system and its disk.
pub mod frontend;
pub mod service;
