//! /dev/fuse: requests come out of it, answers go in.
//!
//! Invariants:
//! 1. What a write carries arrives in memory of its own, on a page's boundary, and is not copied again.
//! 2. Every request is answered once; a [`Reply`] that is dropped answers EIO.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use fs2_store::{AlignedBuf, Seldom};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::ring::Outbox;
use super::wire::{self, InHeader, IoIn, OutHeader};

/// Answers up to this length go out in one piece: each piece costs the kernel a look at its memory.
const SHORT_BYTES: usize = 160;

/// Answers that the kernel did not take, whichever thread had them.
static REFUSED: Seldom = Seldom::new();

/// A descriptor of the connection.
#[derive(Clone, Debug)]
pub(super) struct Device(Arc<File>);

impl Device {
    /// A descriptor that belongs to no connection yet.
    pub(super) fn open() -> io::Result<Device> {
        let file = File::options().read(true).write(true).open("/dev/fuse")?;
        Ok(Device(Arc::new(file)))
    }

    /// What plays the kernel is at the file's other end.
    pub(super) fn over(file: File) -> Device {
        Device(Arc::new(file))
    }

    pub(super) fn file(&self) -> &File {
        &self.0
    }

    /// Another descriptor of the same connection, so that threads do not write to the same one.
    pub(super) fn another(&self) -> io::Result<Device> {
        let device = Device::open()?;
        let this = self.0.as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, which outlives the call.
        let done = unsafe { libc::ioctl(device.0.as_raw_fd(), wire::CLONE, &raw const this) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(device) }
    }

    /// As [`Device::another`], for [`Device::ask`]: reading it does not wait.
    pub(super) fn asked(&self) -> io::Result<Device> {
        let device = self.another()?;
        let flags = OFlag::from_bits_retain(fcntl(&device.0, FcntlArg::F_GETFL)?) | OFlag::O_NONBLOCK;
        fcntl(&device.0, FcntlArg::F_SETFL(flags))?;
        Ok(device)
    }

    /// Waits for a request; `None` once the file system is unmounted.
    ///
    /// # Errors
    /// What the kernel says, and `InvalidData` for what is no request.
    pub(super) fn receive(&self, inbox: &mut Inbox) -> io::Result<Option<Reply>> {
        loop {
            match self.ask(inbox) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
    }

    /// As [`Device::receive`]; `WouldBlock` where no request is there and the descriptor is one [`Device::asked`].
    pub(super) fn ask(&self, inbox: &mut Inbox) -> io::Result<Option<Reply>> {
        let n = loop {
            let Inbox { head, body, overflow, .. } = &mut *inbox;
            let bufs = &mut [head.as_mut_bytes(), body, overflow].map(IoSliceMut::new);
            match nix::sys::uio::readv(&self.0, bufs) {
                Ok(n) => break n,
                // ENOENT: who asked was interrupted, and waits no more.
                Err(nix::Error::ENOENT | nix::Error::EINTR) => {}
                // ECONNABORTED: it ended while the kernel was about to hand a request over (`fuse_dev_do_read`).
                Err(nix::Error::ENODEV | nix::Error::ECONNABORTED) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        };
        let header = inbox.head.header;
        if n < size_of::<InHeader>() || header.len as usize != n {
            return Err(io::Error::new(ErrorKind::InvalidData, "the kernel sent what is no FUSE request"));
        }
        // What an earlier request left there.
        inbox.head.as_mut_bytes()[n.min(size_of::<Head>())..].fill(0);
        inbox.behind = n.saturating_sub(size_of::<Head>());
        Ok(Some(Reply { to: To::Device(self.clone()), unique: header.unique }))
    }
}

/// The beginning of a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Head {
    pub(super) header: InHeader,
    /// The fixed part, where it is no longer than a write's; filled up with zeros.
    pub(super) io: IoIn,
}

/// Where requests arrive, one at a time. On a line of its own: the kernel looks up each page that it writes to.
#[repr(align(128))]
pub(super) struct Inbox {
    pub(super) head: Head,
    body: AlignedBuf,
    /// What has no room in the body: memory that is seldom touched.
    overflow: Vec<u8>,
    /// Bytes in the body and, from there on, in what has no room in it.
    behind: usize,
}

impl Inbox {
    /// For requests that carry up to `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Inbox {
        Inbox {
            head: Head::new_zeroed(),
            body: AlignedBuf::zeroed(0),
            overflow: vec![0; bytes_max],
            behind: 0,
        }
    }

    /// Takes in what came elsewhere: the bytes of `fixed`, then the first `len` of `payload`, which is kept where it need
    /// not be copied: where it is a write's, or room for a read.
    pub(super) fn take_in(&mut self, header: InHeader, fixed: &[u8], payload: AlignedBuf, len: usize) {
        let io_bytes = size_of::<IoIn>();
        self.head = Head { header, io: IoIn::new_zeroed() };
        let (start, rest) = fixed.split_at(fixed.len().min(io_bytes));
        self.head.io.as_mut_bytes()[..start.len()].copy_from_slice(start);
        if start.len() == io_bytes && rest.is_empty() {
            self.behind = len;
            self.body = payload;
            return;
        }
        let mut all = [fixed, &payload[..len]].concat();
        let behind = all.split_off(all.len().min(io_bytes));
        self.head.io.as_mut_bytes()[..all.len()].copy_from_slice(&all);
        self.behind = behind.len();
        self.body = AlignedBuf::copy_of(&behind);
    }

    /// Lets go of the memory that the last request may have left.
    pub(super) fn clear(&mut self) {
        self.body = AlignedBuf::zeroed(0);
        self.behind = 0;
    }

    /// Sees to it that a payload of `len` bytes has room in the body: in `room`'s buffer, where it has not.
    pub(super) fn make_room(&mut self, len: usize, room: impl FnOnce(usize) -> AlignedBuf) {
        if self.body.capacity() < len.max(1) {
            self.body = room(len);
            self.body.set_len(self.body.capacity());
        }
    }

    /// Bytes that came behind the fixed part.
    pub(super) fn payload_len(&self) -> usize {
        self.behind
    }

    /// What a write carries; `other` is memory for more than the body has room for.
    pub(super) fn payload(&mut self, other: impl FnOnce(usize) -> AlignedBuf) -> AlignedBuf {
        let (len, there) = (self.behind, self.body.len());
        if len <= there {
            return self.buffer(len, other);
        }
        let mut all = other(len);
        let (start, rest) = all.split_at_mut(there);
        start.copy_from_slice(&self.body);
        rest.copy_from_slice(&self.overflow[..len - there]);
        all
    }

    /// A buffer of `len` bytes, whatever they are: the body, or `other` where it is too small.
    pub(super) fn buffer(&mut self, len: usize, other: impl FnOnce(usize) -> AlignedBuf) -> AlignedBuf {
        if len > self.body.capacity() {
            return other(len);
        }
        let mut body = std::mem::replace(&mut self.body, AlignedBuf::zeroed(0));
        body.set_len(len);
        body
    }

    /// The fixed part of a request that is not [`Head::io`].
    pub(super) fn fixed<T: FromBytes + Immutable>(&self) -> Option<T> {
        let there = self.behind.min(self.body.len());
        let bytes = [self.head.io.as_bytes(), &self.body[..there]].concat();
        T::read_from_prefix(&bytes).ok().map(|(fixed, _)| fixed)
    }

    /// A name that follows the header alone.
    pub(super) fn name(&self) -> Vec<u8> {
        let there = self.behind.min(self.body.len());
        let bytes = [self.head.io.as_bytes(), &self.body[..there]].concat();
        bytes.split(|&b| b == 0).next().unwrap_or_default().to_vec()
    }
}

/// The answer that is owed to a request.
#[derive(Debug)]
pub(super) struct Reply {
    to: To,
    unique: u64,
}

/// Who is told.
#[derive(Debug)]
enum To {
    Device(Device),
    /// An entry of a ring, by its number.
    Entry(Arc<Outbox>, usize),
    Nobody,
}

impl Reply {
    /// What is owed to a ring's entry.
    pub(super) fn to_entry(outbox: Arc<Outbox>, entry: usize, unique: u64) -> Reply {
        Reply { to: To::Entry(outbox, entry), unique }
    }

    pub(super) fn ok(self) {
        self.bytes(&[]);
    }

    pub(super) fn value(self, value: &(impl IntoBytes + Immutable)) {
        self.bytes(value.as_bytes());
    }

    pub(super) fn bytes(mut self, payload: &[u8]) {
        self.send(0, payload);
    }

    /// `errno` lies in 1..512.
    pub(super) fn error(mut self, errno: i32) {
        self.send(errno, &[]);
    }

    /// For a request that has no answer.
    pub(super) fn none(mut self) {
        self.to = To::Nobody;
    }

    fn send(&mut self, errno: i32, payload: &[u8]) {
        let device = match std::mem::replace(&mut self.to, To::Nobody) {
            To::Device(device) => device,
            To::Entry(outbox, entry) => return outbox.reply(entry, errno, payload),
            To::Nobody => return,
        };
        let len = size_of::<OutHeader>() + payload.len();
        let header = OutHeader { len: len as u32, error: -errno, unique: self.unique };
        let mut short = [0; SHORT_BYTES];
        let sent = if len <= SHORT_BYTES {
            let (start, rest) = short.split_at_mut(size_of::<OutHeader>());
            start.copy_from_slice(header.as_bytes());
            rest[..payload.len()].copy_from_slice(payload);
            nix::unistd::write(&device.0, &short[..len])
        } else {
            let bufs = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
            nix::sys::uio::writev(&device.0, &bufs)
        };
        match sent {
            // Nobody waits for it any more.
            Ok(_) | Err(nix::Error::ENOENT | nix::Error::ENODEV) => {}
            Err(e) => REFUSED.line(|more| {
                tracing::error!("the kernel refused a FUSE answer of {len} bytes: {e}{more}");
            }),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // Keeps invariant 2.
        self.send(libc::EIO, &[]);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::super::wire::{FallocateIn, op};
    use super::*;

    /// A device, and the kernel's end: as with /dev/fuse, each read takes one request whole.
    fn device() -> (Device, File) {
        let pair = |fd: OwnedFd| File::from(fd);
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::empty()).unwrap();
        (Device::over(pair(ours)), pair(theirs))
    }

    fn request(opcode: u32, behind: &[u8]) -> Vec<u8> {
        let len = (size_of::<InHeader>() + behind.len()) as u32;
        let header = InHeader { len, opcode, unique: 77, nodeid: 2, uid: 0, gid: 0, pid: 0, padding: 0 };
        [header.as_bytes(), behind].concat()
    }

    fn send(kernel: &File, request: &[u8]) {
        assert_eq!(nix::unistd::write(kernel, request), Ok(request.len()));
    }

    fn answered(kernel: &File) -> (i32, Vec<u8>) {
        let mut bytes = [0; 512];
        let n = nix::unistd::read(kernel, &mut bytes).unwrap();
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize, n);
        assert_eq!(u64::from_ne_bytes(bytes[8..16].try_into().unwrap()), 77);
        (i32::from_ne_bytes(bytes[4..8].try_into().unwrap()), bytes[16..n].to_vec())
    }

    #[test]
    fn a_payload_is_whole_whatever_room_there_was() {
        let (device, kernel) = device();
        let mut inbox = Inbox::new(100_000);
        for room in [0, 4096, 8192] {
            for len in [0usize, 1, 4095, 4096, 4097, 8192, 8193, 60_000] {
                inbox.make_room(room, AlignedBuf::zeroed);
                let sent: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
                let io = IoIn { size: len as u32, offset: 4096, ..IoIn::new_zeroed() };
                send(&kernel, &request(op::WRITE, &[io.as_bytes(), &sent].concat()));
                let reply = device.receive(&mut inbox).unwrap().unwrap();
                assert_eq!((inbox.head.header.opcode, inbox.head.io.size), (op::WRITE, len as u32));
                assert_eq!(inbox.payload_len(), len);
                let got = inbox.payload(AlignedBuf::zeroed);
                assert!(got[..] == sent[..], "{len} bytes with room for {room}");
                assert!(len == 0 || got.as_ptr().addr().is_multiple_of(4096));
                reply.ok();
                assert_eq!(answered(&kernel), (0, Vec::new()));
            }
        }
    }

    #[test]
    fn what_an_earlier_request_left_is_not_read() {
        let (device, kernel) = device();
        let mut inbox = Inbox::new(1000);
        send(&kernel, &request(op::WRITE, &[0xff; 40]));
        device.receive(&mut inbox).unwrap().unwrap().none();
        send(&kernel, &request(op::GETATTR, &[]));
        device.receive(&mut inbox).unwrap().unwrap().none();
        assert_eq!(inbox.head.io.as_bytes(), [0; 40]);
        assert!(inbox.name().is_empty());
        send(&kernel, &request(op::LOOKUP, b"volume\0"));
        device.receive(&mut inbox).unwrap().unwrap().none();
        assert_eq!(inbox.name(), b"volume");
        let mut asked = [1u64.to_ne_bytes(), 2u64.to_ne_bytes(), 3u64.to_ne_bytes()].concat();
        asked.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        send(&kernel, &request(op::FALLOCATE, &asked));
        device.receive(&mut inbox).unwrap().unwrap().none();
        let got = inbox.fixed::<FallocateIn>().unwrap();
        assert_eq!((got.offset, got.length, got.mode), (2, 3, 3));
    }

    #[test]
    fn who_asks_does_not_wait() {
        let (device, kernel) = device();
        fcntl(&device.0, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut inbox = Inbox::new(1000);
        assert_eq!(device.ask(&mut inbox).unwrap_err().kind(), ErrorKind::WouldBlock);
        send(&kernel, &request(op::FSYNC, &[0; 16]));
        device.ask(&mut inbox).unwrap().unwrap().ok();
        assert_eq!(answered(&kernel), (0, Vec::new()));
        assert_eq!(device.ask(&mut inbox).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_no_request_is_an_error_and_a_forgotten_answer_is_eio() {
        let (device, kernel) = device();
        let mut inbox = Inbox::new(1000);
        for wrong in [&request(op::GETATTR, &[])[..39], &request(op::WRITE, &[1; 50])[..80], &[0; 60]] {
            send(&kernel, wrong);
            assert_eq!(device.receive(&mut inbox).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        send(&kernel, &request(op::FSYNC, &[0; 16]));
        drop(device.receive(&mut inbox).unwrap());
        assert_eq!(answered(&kernel), (-libc::EIO, Vec::new()));
        send(&kernel, &request(op::READ, &[0; 40]));
        device.receive(&mut inbox).unwrap().unwrap().bytes(&[5; 300]);
        assert_eq!(answered(&kernel), (0, vec![5; 300]));
    }

    /// A line each filled `/run`, where the log of a mount lies.
    #[test]
    fn answers_that_nobody_takes_do_not_fill_the_log() {
        let (device, kernel) = device();
        drop(kernel);
        let refused = "the kernel refused a FUSE answer";
        let lines = crate::logged::lines_with(refused, || {
            for unique in 0..2000 {
                Reply { to: To::Device(device.clone()), unique }.ok();
            }
        });
        assert!(lines < 1000, "{lines} lines");
    }
}
