//! The contract between the daemon and the tools that ask it: commands, replies, and the bytes that
//! carry them over a Unix socket. The main types are [`Command`], [`Reply`] and [`Status`]; a tool
//! uses [`Client`], the daemon [`serve`]. What a command does is left to the daemon's handler, and
//! where the socket lies to whoever starts the daemon.
//!
//! ```
//! use fs2_control::{Client, Command, Reply, serve};
//!
//! let dir = tempfile::tempdir()?;
//! let socket = dir.path().join("control");
//! let server = serve(&socket, |command| match command {
//!     Command::Ping => Reply::Done,
//!     _ => Reply::error("not known here", "the example", "ask for something else"),
//! })?;
//! let mut client = Client::connect(&socket)?;
//! assert_eq!(client.ask(&Command::Ping)?, Reply::Done);
//! server.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On the wire
//! Both sides first send a hello, then the client sends commands and reads one reply to each. All
//! travel in frames: a length (u32, little-endian) and that many bytes.
//!
//! ```text
//! hello    | 8 | "FS2C" | version u32 LE |      the same in every version, for ever
//! command  | n | bincode of Command      |      n at most 16 KiB
//! reply    | n | bincode of Reply        |      n at most 1 MiB
//! ```
//! The encoding does not describe itself, so any change of [`Command`], [`Reply`] or [`Status`] needs
//! a new [`PROTOCOL_VERSION`]; peers of different versions exchange hellos and part. But a tool may ask a daemon
//! of any version, from 9 on, to make room for another program, in bytes that never change:
//!
//! ```text
//! upgrade  | n | "FS2U" | the program's path
//! upgraded | n | "FS2U" | 0: it does, 1: it does not | why not, UTF-8
//! ```
#![forbid(unsafe_code)]

mod client;
mod command;
mod quoted;
mod sample;
mod server;
mod status;
mod text;
mod wire;

pub use client::{Client, ControlError};
pub use command::{Command, Reply};
pub use quoted::quoted;
pub use sample::{Control, ControlGain, Sample};
pub use server::{ControlServer, ServeError, ServeLimits, remove_stale, serve, serve_with};
pub use status::{
    AccessMs, DetachInfo, EnergyJ, Failed, HotRegion, Liveness, Marks, NotALiveness, Parts, PauseWork,
    ReplicaGate, Source, Status, TotalS, WatermarkState,
};
pub use text::{bytes, count, duration, figure, less, ms, percent, plain, plus_minus, strip, watermark};
pub use wire::{COMMAND_BYTES_MAX, FRAME_BYTES_MAX, PROTOCOL_VERSION, WireError, fuzz_frame};
