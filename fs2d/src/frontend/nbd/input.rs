//! What has arrived from a client and is not yet used.
//!
//! Small requests are received as they come, many at a time, and payloads are copied from there. A large payload is spared
//! that copy: behind a large write another of its length is expected, and what arrives is received in its place, each
//! payload into a buffer of its own and the head behind it into another.
//!
//! - I1: bytes are used as they came: those in `buffer`, then each of `places` with the head behind it.
//! - I2: what lies in a place and is something else than was expected is copied into `buffer`, which has room for all of it:
//!   behind an incomplete head in `buffer` nothing has come yet, and a whole one is used before.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::Arc;

use fs2_store::AlignedBuf;

use super::codec::HEADER_BYTES;
use super::pool::Pool;

/// Bytes received ahead: two writes of 128 KiB, 63 of 4 KiB, and an option of 64 KiB fits. A guess beyond that.
pub(super) const INPUT_BYTES: usize = (256 << 10) + 4096;

/// Smaller payloads are copied. Measured at depth 8 (docs/performance.md).
const PLACED_BYTES_MIN: usize = 32 << 10;

/// Payloads received by one call at most.
const PLACES: usize = INPUT_BYTES / PLACED_BYTES_MIN;

/// Requests after a large write for which another is expected. A guess: where one in eight is large, reading ahead spares less
/// than copying costs.
const EXPECTED: u8 = 8;

/// Room for a payload, and the head behind it.
struct Place {
    payload: AlignedBuf,
    payload_have: usize,
    head: [u8; HEADER_BYTES],
    head_have: usize,
}

/// Bytes received and not yet used.
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    places: VecDeque<Place>,
    /// Of the last large write.
    payload_bytes: usize,
    /// Requests for which another such is expected.
    expected: u8,
    pool: Arc<Pool>,
    /// Buffers at hand.
    stash: Vec<AlignedBuf>,
}

impl Input {
    pub(super) fn new(pool: Arc<Pool>) -> Input {
        Input {
            buffer: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            places: VecDeque::with_capacity(PLACES),
            payload_bytes: 0,
            expected: 0,
            pool,
            stash: Vec::new(),
        }
    }

    /// Another request, with a payload of so many bytes or none.
    pub(super) fn request(&mut self, payload_bytes: usize) {
        if payload_bytes >= PLACED_BYTES_MIN {
            (self.payload_bytes, self.expected) = (payload_bytes, EXPECTED);
        } else {
            self.expected = self.expected.saturating_sub(1);
        }
    }

    /// What comes next: a whole head at least, or all that came.
    pub(super) fn bytes(&mut self) -> &[u8] {
        if self.start == self.end {
            self.gather();
        }
        &self.buffer[self.start..self.end]
    }

    /// Keeps I2.
    fn gather(&mut self) {
        for place in &mut self.places {
            let have = place.payload_have + place.head_have;
            let (payload, head) = self.buffer[self.end..self.end + have].split_at_mut(place.payload_have);
            payload.copy_from_slice(&place.payload[..place.payload_have]);
            head.copy_from_slice(&place.head[..place.head_have]);
            self.end += have;
            (place.payload_have, place.head_have) = (0, 0);
        }
    }

    pub(super) fn take(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// What comes next, as the payload of so many bytes: a buffer, and how many of them are in it.
    pub(super) fn payload(&mut self, len: usize) -> (AlignedBuf, usize) {
        if self.start == self.end
            && self.places.front().is_some_and(|p| p.payload.len() == len)
            && let Some(place) = self.places.pop_front()
        {
            self.buffer[..place.head_have].copy_from_slice(&place.head[..place.head_have]);
            self.end = place.head_have;
            return (place.payload, place.payload_have);
        }
        let mut payload = self.buffer(len);
        self.gather();
        let have = len.min(self.end - self.start);
        payload[..have].copy_from_slice(&self.buffer[self.start..][..have]);
        self.take(have);
        (payload, have)
    }

    /// A buffer of so many bytes, of any content.
    pub(super) fn buffer(&mut self, len: usize) -> AlignedBuf {
        self.pool.take(len, &mut self.stash)
    }

    /// Lets `receive` fill `rest`, which comes before everything, and what there is behind it; how many bytes came. There is
    /// always room, since no step needs a whole buffer.
    pub(super) fn fill(
        &mut self,
        rest: &mut [u8],
        receive: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.gather();
        if self.start > self.buffer.len() / 2 || self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let have = self.end - self.start;
        let in_places = self.expected > 0 && have < HEADER_BYTES;
        self.make_places(if in_places { self.payload_bytes } else { 0 });
        let room = if in_places { HEADER_BYTES - have } else { self.buffer.len() - self.end };

        let mut bufs: [IoSliceMut<'_>; 2 + 2 * PLACES] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (wanted, places) = (rest.len(), 2 + 2 * self.places.len());
        bufs[0] = IoSliceMut::new(rest);
        bufs[1] = IoSliceMut::new(&mut self.buffer[self.end..self.end + room]);
        for (place, bufs) in self.places.iter_mut().zip(bufs[2..].chunks_exact_mut(2)) {
            bufs[0] = IoSliceMut::new(&mut place.payload);
            bufs[1] = IoSliceMut::new(&mut place.head);
        }
        let n = receive(&mut bufs[..places])?;

        let mut left = n.saturating_sub(wanted);
        let mut came = |room: usize| {
            let here = left.min(room);
            left -= here;
            here
        };
        self.end += came(room);
        for place in &mut self.places {
            place.payload_have = came(place.payload.len());
            place.head_have = came(HEADER_BYTES);
        }
        Ok(n)
    }

    /// As many for payloads of `len` bytes as [`INPUT_BYTES`] may hold, for 0 none.
    fn make_places(&mut self, len: usize) {
        if self.places.front().is_some_and(|p| p.payload.len() != len) {
            self.stash.extend(self.places.drain(..).map(|p| p.payload));
            self.pool.put(&mut self.stash);
        }
        let wanted = if len == 0 { 0 } else { (INPUT_BYTES - HEADER_BYTES) / (len + HEADER_BYTES) };
        while self.places.len() < wanted {
            let payload = self.buffer(len);
            self.places.push_back(Place { payload, payload_have: 0, head: [0; HEADER_BYTES], head_have: 0 });
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.make_places(0);
        self.pool.put(&mut self.stash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets so many bytes of `stream` arrive, or all there is room for; how many.
    fn arrive(input: &mut Input, rest: &mut [u8], stream: &mut &[u8], most: usize) -> usize {
        let fill = |bufs: &mut [IoSliceMut<'_>]| {
            let mut came = 0;
            for buf in bufs {
                let n = buf.len().min(most - came).min(stream.len());
                buf[..n].copy_from_slice(&stream[..n]);
                *stream = &stream[n..];
                came += n;
            }
            Ok(came)
        };
        input.fill(rest, fill).unwrap()
    }

    /// A head that says how long its payload is.
    fn request(stream: &mut Vec<u8>, n: usize, len: usize) {
        let mut head = [n as u8; HEADER_BYTES];
        head[..8].copy_from_slice(&(len as u64).to_be_bytes());
        stream.extend_from_slice(&head);
        stream.extend((0..len).map(|i| (i / 251 + i) as u8 ^ n as u8));
    }

    /// The next request's payload, and how much of it was there with its head.
    fn next(input: &mut Input, stream: &mut &[u8], mut most: impl FnMut() -> usize) -> (AlignedBuf, usize) {
        while input.bytes().len() < HEADER_BYTES {
            assert!(arrive(input, &mut [], stream, most()) > 0);
        }
        let len = u64::from_be_bytes(input.bytes()[..8].try_into().unwrap()) as usize;
        input.take(HEADER_BYTES);
        input.request(len);
        let (mut payload, have) = input.payload(len);
        assert_eq!(payload.len(), len);
        let mut at = have;
        while at < len {
            at += arrive(input, &mut payload[at..], stream, most()).min(len - at);
        }
        (payload, have)
    }

    #[test]
    fn what_arrives_is_used_in_order() {
        for seed in 1..=40u64 {
            let mut random = seed;
            let mut below = |n: usize| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as usize % n
            };
            let (mut stream, mut lens, mut len) = (Vec::new(), Vec::new(), 0);
            for n in 0..60 {
                // Often the same again, and also such as leave no room for a second, or for any.
                if below(3) == 0 {
                    len = [
                        0,
                        1,
                        4096,
                        32 << 10,
                        33_000,
                        64 << 10,
                        128 << 10,
                        INPUT_BYTES - 60,
                        INPUT_BYTES,
                        400_000,
                    ][below(10)];
                }
                request(&mut stream, n, len);
                lens.push(len);
            }
            let (mut left, mut input) = (&stream[..], Input::new(Arc::default()));
            for (n, len) in lens.into_iter().enumerate() {
                let (payload, _) =
                    next(&mut input, &mut left, || [1, 27, 30_000, 131_100, 700_000][below(5)]);
                let mut expect = Vec::new();
                request(&mut expect, n, len);
                assert!(payload[..] == expect[HEADER_BYTES..], "seed {seed}, request {n} of {len} bytes");
            }
            assert!(left.is_empty() && input.bytes().is_empty());
        }
    }

    /// The second of a length, and what is behind it, are received into the memory that they stay in.
    #[test]
    fn large_payloads_are_received_in_their_place() {
        const LARGE: usize = 128 << 10;
        let mut stream = Vec::new();
        (0..8).for_each(|n| request(&mut stream, n, LARGE));
        let (mut left, mut input) = (&stream[..], Input::new(Arc::default()));
        next(&mut input, &mut left, || 100);
        let mut places = Vec::new();
        let fill = |bufs: &mut [IoSliceMut<'_>]| {
            let lens: Vec<_> = bufs.iter().map(|b| b.len()).collect();
            assert_eq!(lens[2..], [LARGE, HEADER_BYTES, LARGE, HEADER_BYTES]);
            places = bufs.iter().skip(2).step_by(2).map(|b| b.as_ptr()).collect();
            Err(io::ErrorKind::WouldBlock.into())
        };
        assert!(input.fill(&mut [], fill).is_err());
        for place in places {
            let (payload, have) = next(&mut input, &mut left, || usize::MAX);
            assert_eq!((payload.as_ptr(), have), (place, LARGE));
        }
    }

    #[test]
    fn behind_small_requests_no_large_payload_is_expected() {
        let (mut stream, pool) = (Vec::new(), Arc::new(Pool::default()));
        let mut input = Input::new(pool);
        request(&mut stream, 0, PLACED_BYTES_MIN);
        for n in 1..=EXPECTED {
            request(&mut stream, n.into(), 4096);
        }
        let mut left = &stream[..];
        next(&mut input, &mut left, || 100);
        for _ in 0..EXPECTED {
            assert!(input.expected > 0);
            next(&mut input, &mut left, || 100);
        }
        let _ = input.fill(&mut [], |bufs| {
            assert_eq!(bufs.iter().map(|b| b.len()).collect::<Vec<_>>(), [0, INPUT_BYTES]);
            Ok(0)
        });
        assert!(input.places.is_empty());
        // A single large one keeps room, so that an idle client holds little: none beyond what is received ahead.
        for len in [PLACED_BYTES_MIN, 100_000, INPUT_BYTES, 32 << 20] {
            input.request(len);
            let _ = input.fill(&mut [], |bufs| {
                let most = bufs[1..].iter().map(|b| b.len()).sum::<usize>();
                assert!(most <= INPUT_BYTES + HEADER_BYTES, "{len}: {most}");
                Ok(0)
            });
        }
    }
}
