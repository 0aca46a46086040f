//! The volume over the Network Block Device protocol.
//!
//! [`Server`] listens on a socket and turns what clients send into requests to a
//! [`Service`](crate::service::Service), one thread per connection and none between it and the service. The
//! [`codec`] holds the protocol without a socket. Which blocks a request touches, and what happens to them,
//! is the service's affair.
//!
//! What a client can rely on:
//! - Flush is global: it covers every write answered before it, over whichever connection (MULTI_CONN).
//! - Block sizes: least 1, preferred the file system's, largest 32 MiB. A larger or misplaced write is
//!   read, dropped and refused up to 64 MiB; beyond that the connection ends.
//! - FAST_ZERO is always refused with ENOTSUP: the service does not promise that stored zeros are faster
//!   than written ones, and the refusal is what the flag asks for in that case.
//! - A read that overlaps a write which is not answered yet, its own or another client's, brings old bytes or new ones,
//!   even within a block: large reads may be answered with the pages of the volume's file themselves, over a unix socket
//!   without any copy. One that begins after a write's answer brings what was written.
//! - CACHE succeeds and does nothing: no layer above the device would keep what it reads.
//! - A client that breaks the protocol loses its own connection and nothing else.
//!
//! ```no_run
//! # fn serve(volume: std::sync::Arc<dyn fs2d::service::Service>) -> std::io::Result<()> {
//! use fs2d::frontend::nbd::{Listen, Options, Server};
//! use std::time::Duration;
//! let server = Server::bind(Listen::Unix("/run/fs2/volume.sock".into()), volume, Options::default())?;
//! // … until SIGTERM:
//! let unfinished = server.shutdown(Duration::from_secs(5));
//! # Ok(())
//! # }
//! ```

mod asking;
mod budget;
pub mod codec;
mod connection;
mod input;
mod listen;
mod outbox;
mod payload;
mod pipes;
mod pool;
mod server;
mod socket;

pub use listen::Listen;
pub(crate) use listen::Listener;
pub use server::{Options, Server};
