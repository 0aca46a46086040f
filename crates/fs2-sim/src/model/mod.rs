//! The model: a client, a device with a volatile cache, the engine between them, and what must never
//! happen.
//!
//! [`kernel`], [`ask`], [`device`], [`mark`], [`image`] and [`content`] share no code with the engine's notion of
//! free blocks or with the table; a test reads their sources for it.

pub mod ask;
pub mod content;
pub mod crash;
pub mod device;
pub mod explore;
pub mod image;
pub mod kernel;
pub mod mark;
pub mod plants;
pub mod scenarios;
pub mod swarm;
pub mod world;
