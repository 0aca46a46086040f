//! What has arrived from a client and is not yet used.

use std::io;

use super::codec::HEADER_BYTES;

/// Bytes read ahead: an option of 64 KiB fits, and so do 60 writes of 4 KiB. A guess beyond that.
pub(super) const INPUT_BYTES: usize = 256 << 10;

/// Requests after one with a large payload that are received head by head. A guess: where one in eight is large, reading ahead
/// spares less than copying costs.
const HEADS: u8 = 8;

/// Bytes received and not yet used.
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Requests before which no more than a head is received; 0: whatever has arrived.
    heads: u8,
}

impl Input {
    pub(super) fn new() -> Input {
        Input { buffer: vec![0; INPUT_BYTES].into_boxed_slice(), start: 0, end: 0, heads: 0 }
    }

    /// A request whose payload is not to be received together with its head: nor, likely, will those of the next be.
    pub(super) fn head_by_head(&mut self) {
        self.heads = HEADS;
    }

    /// Any other request.
    pub(super) fn ahead(&mut self) {
        self.heads = self.heads.saturating_sub(1);
    }

    pub(super) fn is_head_by_head(&self) -> bool {
        self.heads > 0
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn take(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Lets `receive` fill the free end; there is always room, since no step needs a whole buffer.
    pub(super) fn fill(&mut self, receive: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        if self.start > self.buffer.len() / 2 || self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = &mut self.buffer[self.end..];
        let head = HEADER_BYTES.saturating_sub(self.end - self.start).max(1);
        let most = if self.heads == 0 { room.len() } else { head.min(room.len()) };
        let n = receive(&mut room[..most])?;
        self.end += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_always_has_room() {
        let mut input = Input::new();
        let mut byte = 0u8;
        let mut expect = 0u8;
        for round in 0..2000usize {
            input
                .fill(|room| {
                    assert!(!room.is_empty());
                    let n = room.len().min(1 + round * 7919 % 60_000);
                    room[..n].iter_mut().for_each(|b| (*b, byte) = (byte, byte.wrapping_add(1)));
                    Ok(n)
                })
                .unwrap();
            let keep = round % 28;
            for &b in &input.bytes()[..input.bytes().len().saturating_sub(keep)] {
                assert_eq!(b, expect);
                expect = expect.wrapping_add(1);
            }
            input.take(input.bytes().len().saturating_sub(keep));
        }
    }

    #[test]
    fn head_by_head_no_payload_comes_with_it() {
        let mut input = Input::new();
        let room = |input: &mut Input, give: usize| {
            let mut room = 0;
            let fill = |r: &mut [u8]| {
                room = r.len();
                Ok(give)
            };
            input.fill(fill).unwrap();
            room
        };
        assert_eq!(room(&mut input, 100), INPUT_BYTES);
        input.take(100);
        input.head_by_head();
        assert_eq!(room(&mut input, 10), HEADER_BYTES);
        assert_eq!(room(&mut input, 18), HEADER_BYTES - 10, "what is missing of it");
        input.take(28);
        for _ in 0..HEADS {
            assert_eq!(room(&mut input, 28), HEADER_BYTES);
            input.take(28);
            input.ahead();
        }
        assert_eq!(room(&mut input, 28), INPUT_BYTES, "no large payload for long");
    }
}
