//! An NBD client that does what a test tells it: one connection, requests sent and answered in batches.
//! The source is `doc/proto.md` of the NetworkBlockDevice project; nothing of the server's code is used.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A request's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Bytes are read.
    Read,
    /// Bytes are written; durable before the answer where `fua`.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Everything that was answered is made durable.
    Flush,
    /// Bytes are not needed any more.
    Trim,
}

/// One connection in transmission.
#[derive(Debug)]
pub struct NbdClient {
    stream: UnixStream,
    next: u64,
    /// Bytes that the answers to reads will bring.
    reads: HashMap<u64, usize>,
}

/// Whoever waits longer has a server that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

impl NbdClient {
    /// Connects and asks for the default export.
    ///
    /// # Errors
    /// What the socket says, or that the server is none.
    pub fn connect(socket: &Path) -> io::Result<NbdClient> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if &greeting[..16] != b"NBDMAGICIHAVEOPT" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Fixed newstyle, no zeroes; then EXPORT_NAME with the empty name, which is answered by size and flags.
        stream.write_all(&[0, 0, 0, 3])?;
        stream.write_all(&[b"IHAVEOPT".as_slice(), &1_u32.to_be_bytes(), &0_u32.to_be_bytes()].concat())?;
        let mut size_and_flags = [0; 10];
        stream.read_exact(&mut size_and_flags)?;
        Ok(NbdClient { stream, next: 1, reads: HashMap::new() })
    }

    /// Sends a request; its cookie. `payload` is what a write brings.
    ///
    /// # Errors
    /// What the socket says.
    pub fn send(&mut self, ask: Ask, offset: u64, len: usize, payload: &[u8]) -> io::Result<u64> {
        let cookie = self.next;
        self.next += 1;
        let (flags, command) = match ask {
            Ask::Read => (0_u16, 0_u16),
            Ask::Write { fua } => (u16::from(fua), 1),
            Ask::Flush => (0, 3),
            Ask::Trim => (0, 4),
        };
        let mut bytes = Vec::with_capacity(28 + payload.len());
        bytes.extend(0x2560_9513_u32.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend((len as u32).to_be_bytes());
        bytes.extend(payload);
        if ask == Ask::Read {
            self.reads.insert(cookie, len);
        }
        self.stream.write_all(&bytes)?;
        Ok(cookie)
    }

    /// The next answer: its cookie and, of a read, the bytes.
    ///
    /// # Errors
    /// What the socket says, or the error the server answered.
    pub fn receive(&mut self) -> io::Result<(u64, Vec<u8>)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != 0x6744_6698 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let cookie = u64::from(word(8)) << 32 | u64::from(word(12));
        let len = self.reads.remove(&cookie).unwrap_or(0);
        if word(4) != 0 {
            return Err(io::Error::from_raw_os_error(word(4) as i32));
        }
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok((cookie, bytes))
    }

    /// Sends one request and waits for its answer; no other may be outstanding.
    ///
    /// # Errors
    /// As [`NbdClient::send`] and [`NbdClient::receive`].
    pub fn call(&mut self, ask: Ask, offset: u64, len: usize, payload: &[u8]) -> io::Result<Vec<u8>> {
        let cookie = self.send(ask, offset, len, payload)?;
        let (answered, bytes) = self.receive()?;
        if answered != cookie {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(bytes)
    }
}
