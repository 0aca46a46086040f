//! Replies of the transmission phase.

use super::{WireError, wire};

/// The bytes of a reply before its data: at most 28 of them, kept in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    bytes: [u8; ReplyHead::BYTES_MAX],
    len: u8,
}

impl ReplyHead {
    /// The longest head: a chunk of data with its offset.
    const BYTES_MAX: usize = 28;

    const EMPTY: ReplyHead = ReplyHead { bytes: [0; Self::BYTES_MAX], len: 0 };

    fn put(mut self, bytes: &[u8]) -> ReplyHead {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
        self
    }

    fn chunk(kind: u16, cookie: u64, payload: u32) -> ReplyHead {
        ReplyHead::EMPTY
            .put(&wire::STRUCTURED_REPLY_MAGIC.to_be_bytes())
            .put(&wire::REPLY_FLAG_DONE.to_be_bytes())
            .put(&kind.to_be_bytes())
            .put(&cookie.to_be_bytes())
            .put(&payload.to_be_bytes())
    }

    /// A simple reply. The data of a read that succeeded follows; nothing follows otherwise.
    pub fn simple(cookie: u64, error: Option<WireError>) -> ReplyHead {
        ReplyHead::EMPTY
            .put(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes())
            .put(&error.map_or(0, |e| e as u32).to_be_bytes())
            .put(&cookie.to_be_bytes())
    }

    /// The only chunk of a structured reply to a read; `len` bytes of data follow, at most
    /// [`PAYLOAD_BYTES_MAX`](super::PAYLOAD_BYTES_MAX).
    pub fn data(cookie: u64, offset: u64, len: u32) -> ReplyHead {
        ReplyHead::chunk(wire::REPLY_TYPE_OFFSET_DATA, cookie, len + 8).put(&offset.to_be_bytes())
    }

    /// A structured error; a message of `message_bytes` follows.
    pub fn error(cookie: u64, error: WireError, message_bytes: u16) -> ReplyHead {
        ReplyHead::chunk(wire::REPLY_TYPE_ERROR, cookie, 6 + u32::from(message_bytes))
            .put(&(error as u32).to_be_bytes())
            .put(&message_bytes.to_be_bytes())
    }

    /// Block status of `base:allocation`; `extents` pairs of length and state follow, eight bytes each.
    pub fn block_status(cookie: u64, extents: u32) -> ReplyHead {
        ReplyHead::chunk(wire::REPLY_TYPE_BLOCK_STATUS, cookie, 4 + 8 * extents)
            .put(&wire::CONTEXT_ID.to_be_bytes())
    }

    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for ReplyHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReplyHead({:02x?})", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_protocol_lays_them_out() {
        assert_eq!(
            ReplyHead::simple(0x0102, Some(WireError::Inval)).bytes(),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 1, 2]
        );
        let data = ReplyHead::data(7, 0x200, 512);
        assert_eq!(
            data.bytes(),
            [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 2, 0]
        );
        let error = ReplyHead::error(7, WireError::Io, 3);
        assert_eq!(error.bytes()[6..8], [0x80, 1]);
        assert_eq!(error.bytes()[16..], [0, 0, 0, 9, 0, 0, 0, 5, 0, 3]);
        let status = ReplyHead::block_status(7, 2);
        assert_eq!(status.bytes()[6..8], [0, 5]);
        assert_eq!(status.bytes()[16..], [0, 0, 0, 20, 0, 0, 0, 1]);
    }
}
