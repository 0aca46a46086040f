//! For fuzzing: requests as the kernel might send them, and others, through all of a mount but the kernel.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fs2_block::{ConnectionId, Extent, Op};
use fs2_store::{AlignedBuf, Parts, Stretch};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use zerocopy::{FromZeros, IntoBytes};

use super::Shared;
use super::device::{Device, Inbox};
use super::ring::arrived;
use super::serving::Serving;
use super::session::{self, REQUEST_BYTES_MAX};
use super::volume::VolumeFs;
use super::wire::{RingHeader, op};
use crate::service::{ClientRequest, Completion, Errno, ExportInfo, Service};

/// Bytes of the volume: what is answered fits into a socket.
const VOLUME_BYTES: u64 = 128 << 10;

/// Where a request's fields lie.
const LEN: Range<usize> = 0..4;
const OPCODE: Range<usize> = 4..8;
const UNIQUE: Range<usize> = 8..16;
const OFFSET: Range<usize> = 48..56;
const SIZE: Range<usize> = 56..60;
const HEADER_BYTES: usize = 40;
const IO_BYTES: usize = 80;

/// What a packet that ends before does not say is 0.
fn number(packet: &[u8], at: Range<usize>) -> u64 {
    let mut word = [0; 8];
    let field = packet.get(at.start..at.end.min(packet.len())).unwrap_or_default();
    word[..field.len()].copy_from_slice(field);
    u64::from_le_bytes(word)
}

/// What the volume holds at a byte.
fn content(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A volume that holds [`content`], and remembers what was to be written.
#[derive(Default)]
struct Fake {
    from_memory: bool,
    /// One of so many requests is answered late, or its answer is dropped; 0: none.
    late: u8,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    begun: u32,
    held: Vec<(AlignedBuf, Completion)>,
    written: Option<(Extent, Vec<u8>)>,
}

impl Fake {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, mut request: ClientRequest) -> (AlignedBuf, Result<(), Errno>) {
        let (extent, len) = (request.extent, request.buffer.len() as u64);
        assert!(extent.end() <= VOLUME_BYTES, "{extent} is beyond the volume");
        match request.op {
            Op::Read => {
                assert_eq!(len, extent.len(), "room for a read");
                request.buffer.iter_mut().zip(extent.offset()..).for_each(|(b, at)| *b = content(at));
            }
            Op::Write => {
                assert_eq!(len, extent.len(), "payload of a write");
                self.seen().written = Some((extent, request.buffer.to_vec()));
            }
            _ => assert_eq!(len, 0, "no payload"),
        }
        // Some fail, with what the kernel takes and what it does not.
        let result = match extent.offset() >> 9 & 31 {
            30 => Err(Errno(libc::EOPNOTSUPP)),
            31 => Err(Errno(extent.len() as i32 - 600)),
            _ => Ok(()),
        };
        (request.buffer, result)
    }
}

impl Service for Fake {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            size_bytes: VOLUME_BYTES,
            block_bytes: 4096,
            rotational: false,
            description: String::new(),
        }
    }

    fn connect(&self) -> ConnectionId {
        ConnectionId(1)
    }

    fn disconnect(&self, _: ConnectionId) {
        assert!(self.seen().held.is_empty(), "the connection outlives its requests");
    }

    fn submit(&self, request: ClientRequest, done: Completion) {
        let (buffer, result) = self.done(request);
        done(buffer, result);
    }

    fn answers_from_memory(&self) -> bool {
        self.from_memory
    }

    fn begin(&self, request: ClientRequest, done: Completion) {
        let mut seen = self.seen();
        seen.begun += 1;
        let late = self.late > 0 && seen.begun.is_multiple_of(self.late.into());
        drop(seen);
        let (buffer, result) = self.done(request);
        if late {
            self.seen().held.push((buffer, done));
        } else {
            done(buffer, result);
        }
    }

    fn stretches(&self, extent: Extent, _: usize) -> Result<Vec<Stretch>, Errno> {
        match extent.offset() % 5 {
            0 => Err(Errno(-1)),
            1 => Ok(Vec::new()),
            n => Ok(vec![
                Stretch { len: extent.offset() % 7777, hole: n == 2 },
                Stretch { len: u64::MAX, hole: n == 3 },
            ]),
        }
    }
}

/// The kernel's end of a connection, and what it waits for.
struct Kernel {
    end: OwnedFd,
    /// Of each request that was taken and not yet answered: what was sent.
    owed: BTreeMap<u64, Vec<u8>>,
}

impl Kernel {
    /// False where the socket has no room for so much.
    fn send(&self, packet: &[u8]) -> bool {
        send(self.end.as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT) == Ok(packet.len())
    }

    /// Takes the answers there are, each of which is owed once.
    fn answers(&mut self) {
        let mut answer = vec![0; VOLUME_BYTES as usize + 1024];
        while let Ok(n) = recv(self.end.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT) {
            let answer = &answer[..n];
            assert!(
                n >= 16 && number(answer, 0..4) == n as u64,
                "an answer of {n} bytes with another length"
            );
            let error = number(answer, 4..8) as i32;
            let sent = self.owed.remove(&number(answer, 8..16)).expect("what is answered was asked, once");
            let opcode = number(&sent, OPCODE) as u32;
            assert!((-511..=0).contains(&error), "the kernel refuses {error}");
            assert!(error == 0 || n == 16, "an error with a payload");
            assert!(
                error != -libc::ENOSYS || !matches!(opcode, op::FALLOCATE | op::FSYNC),
                "asked never again"
            );
            let got = &answer[16..];
            match opcode {
                op::READ => {
                    let size = number(&sent, SIZE);
                    assert!(got.len() as u64 <= size, "more than was asked for");
                    assert!(size <= REQUEST_BYTES_MAX.into() || error != 0, "no memory for {size} bytes");
                    let from = number(&sent, OFFSET);
                    assert!(
                        got.iter().zip(from..).all(|(&b, at)| b == content(at)),
                        "other bytes than the volume's"
                    );
                }
                op::READDIR => assert!(got.len() as u64 <= number(&sent, SIZE), "more than was asked for"),
                op::WRITE if error == 0 => {
                    let len = sent.len().saturating_sub(IO_BYTES);
                    assert_eq!(number(got, 0..4), len as u64, "all of it is written");
                }
                _ => {}
            }
        }
    }
}

/// A packet as the kernel lays it out in an entry of a ring: header, fixed part, payload.
fn in_entry(packet: &[u8], payload: &mut AlignedBuf) -> RingHeader {
    let (request, rest) = packet.split_at(packet.len().min(HEADER_BYTES));
    let fixed = match number(packet, OPCODE) as u32 {
        op::LOOKUP => 0,
        op::READ | op::WRITE | op::READDIR => IO_BYTES - HEADER_BYTES,
        _ => 128,
    };
    let (fixed, behind) = rest.split_at(rest.len().min(fixed));
    // What an earlier request left there.
    let mut header = RingHeader { in_out: [0xa5; 128], op_in: [0xa5; 128], ..RingHeader::new_zeroed() };
    header.in_out[..request.len()].copy_from_slice(request);
    header.op_in[..fixed.len()].copy_from_slice(fixed);
    header.payload_bytes = behind.len() as u32;
    payload[..behind.len()].copy_from_slice(behind);
    header
}

/// Takes `bytes` as what the kernel sends: `bytes[0]` chooses what serves (with bit 5, packets lie in a ring's entries,
/// and their answers go to the device all the same; with bit 6 a ring is wanted when it is offered), then come packets, each with its length
/// before it (two bytes, the lesser first; with the highest bit set, the length in the packet's own header is left as it
/// is, and mended otherwise). Each packet has a number of its own.
///
/// # Panics
/// Where a request is answered twice or never, or with what it did not ask for; no input may do that.
pub fn fuzz_requests(bytes: &[u8]) {
    let Some((&how, mut rest)) = bytes.split_first() else { return };
    let Ok((ours, end)) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
    else {
        return;
    };
    let device = Device::over(File::from(ours));
    let mut kernel = Kernel { end, owed: BTreeMap::new() };
    let fake = Arc::new(Fake { from_memory: how & 1 != 0, late: how >> 1 & 7, ..Fake::default() });
    let shared = Arc::<Shared>::default();
    let volume = VolumeFs::new(Serving::new(fake.clone(), shared.clone()), shared);
    let mut inbox = Inbox::new(64 << 10);
    let by_ring = how & 0x20 != 0;
    let Ok(parts) = Parts::zeroed(if by_ring { 4 } else { 1 }, 64 << 10) else { return };
    let (mut longest, mut agreed, mut unique) = (0, how & 0x10 != 0, 0u64);
    while let Some((head, behind)) = rest.split_at_checked(2) {
        let word = u16::from_le_bytes([head[0], head[1]]);
        let (packet, behind) = behind.split_at(behind.len().min(usize::from(word & 0x7fff)));
        rest = behind;
        let mut packet = packet.to_vec();
        unique += 1;
        if packet.len() >= HEADER_BYTES {
            packet[UNIQUE].copy_from_slice(&unique.to_le_bytes());
            if word & 0x8000 == 0 {
                let len = packet.len() as u32;
                packet[LEN].copy_from_slice(&len.to_le_bytes());
            }
        }
        if packet.is_empty() || !kernel.send(&packet) {
            continue;
        }
        if !by_ring {
            inbox.make_room(longest, |len| volume.room(len));
        }
        let whole = packet.len() >= HEADER_BYTES && number(&packet, LEN) == packet.len() as u64;
        let reply = match device.receive(&mut inbox) {
            Ok(reply) => reply.expect("it is mounted"),
            Err(e) => {
                assert!(!whole && e.kind() == ErrorKind::InvalidData, "{e}");
                if by_ring {
                    // Its length may be another's: it is refused, or read as far as it goes.
                    let mut payload = AlignedBuf::zeroed(64 << 10);
                    let _ = arrived(&in_entry(&packet, &mut payload), payload, &mut inbox);
                    inbox.clear();
                }
                continue;
            }
        };
        assert!(whole, "that is no request");
        if by_ring {
            let lent = parts.lend(unique as usize % 4);
            let mut payload = lent.unwrap_or_else(|| AlignedBuf::zeroed(64 << 10));
            let header = in_entry(&packet, &mut payload);
            let request = arrived(&header, payload, &mut inbox).expect("its length is its parts'");
            assert_eq!(request.unique, unique);
        }
        assert_eq!(inbox.head.header.as_bytes(), &packet[..HEADER_BYTES]);
        // Nobody waits for an answer to these: there may be none.
        if !matches!(number(&packet, OPCODE) as u32, op::FORGET | op::BATCH_FORGET) {
            kernel.owed.insert(unique, packet.clone());
        }
        fake.seen().written = None;
        if agreed {
            let more = session::take(&mut inbox, reply, &mut longest, &volume);
            if let Some((extent, payload)) = fake.seen().written.take() {
                let asked = Extent::new(number(&packet, OFFSET), number(&packet, SIZE));
                assert_eq!((extent, &payload[..]), (asked, &packet[IO_BYTES..]), "what is written was sent");
            }
            if by_ring {
                inbox.clear();
            }
            if !more {
                break;
            }
        } else {
            match session::agree(&inbox, reply, &mut |offered| {
                Ok((how & 0x40 != 0 && offered).then_some(128 << 10))
            }) {
                Ok(done) => agreed = done,
                Err(_) => break,
            }
        }
        kernel.answers();
        if fake.seen().held.len() >= 5 {
            let held = std::mem::take(&mut fake.seen().held);
            for (n, (buffer, done)) in held.into_iter().enumerate() {
                if n % 2 == 0 {
                    done(buffer, Err(Errno(n as i32 * 300)));
                }
            }
            kernel.answers();
        }
    }
    // The service drops what it has not done: that is an answer too.
    drop(std::mem::take(&mut fake.seen().held));
    kernel.answers();
    assert!(kernel.owed.is_empty(), "never answered: {:?}", kernel.owed.keys());
}
