//! A mount from its first request to its last: the handshake, then threads that take requests.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::device::{Device, Inbox, Reply};
use super::volume::VolumeFs;
use super::wire::{self, InitIn, InitIn2, InitOut, init, op};

/// Bytes of the largest write or read in one request.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests the kernel sends without waiting for earlier ones; more would be queued there.
const BACKGROUND_MAX: u16 = 256;

/// How often a thread that served several requests without sleep lets others have the processor, who may send more,
/// before it sleeps (docs/performance.md).
const PATIENCE: u32 = 4;

/// Longer than who sends requests has the processor between two of them, shorter than the turn of a program that
/// computes (3 ms); and how many times as long such a one is not given way to. Guesses.
const TURN: Duration = Duration::from_micros(500);
const TURN_REST: u32 = 32;

/// After so many requests that came alone only one of [`ALONE_REST`] is followed by a question. Guesses: a client with one
/// request in flight pays less than 0.2 % then.
const ALONE_MAX: u32 = 8;
const ALONE_REST: u32 = 32;

/// Agrees with the kernel on what is spoken. `ring` is told whether the kernel offers to send requests by io_uring, and
/// says how many bytes one may carry then, or that it is not wanted; once it is agreed, the kernel waits for the ring.
///
/// # Errors
/// Where it is too old (before 7.23, Linux 3.15), or speaks something else; and what `ring` says.
pub(super) fn handshake(
    device: &Device,
    ring: impl FnMut(bool) -> io::Result<Option<u32>>,
) -> io::Result<()> {
    let mut ring = ring;
    let mut inbox = Inbox::new(REQUEST_BYTES_MAX as usize);
    let gone = || io::Error::new(ErrorKind::NotConnected, "unmounted before it was served");
    loop {
        let reply = device.receive(&mut inbox)?.ok_or_else(gone)?;
        if agree(&inbox, reply, &mut ring)? {
            return Ok(());
        }
    }
}

/// Answers what should be an INIT; false where the kernel asks again.
pub(super) fn agree(
    inbox: &Inbox,
    reply: Reply,
    ring: &mut dyn FnMut(bool) -> io::Result<Option<u32>>,
) -> io::Result<bool> {
    let offer = (inbox.head.header.opcode == op::INIT).then(|| inbox.fixed::<InitIn>()).flatten();
    let Some(offer) = offer else {
        if matches!(inbox.head.header.opcode, op::FORGET | op::BATCH_FORGET) {
            reply.none();
        }
        return Err(io::Error::new(ErrorKind::InvalidData, "the kernel does not begin with INIT"));
    };
    let spoken = InitOut { major: wire::MAJOR, minor: wire::MINOR, ..InitOut::default() };
    if offer.major > wire::MAJOR {
        // It asks again, in these terms.
        reply.value(&spoken);
        return Ok(false);
    }
    if offer.major < wire::MAJOR || offer.minor < 23 {
        reply.error(libc::EPROTO);
        let what = format!("this kernel's FUSE is too old ({}.{})", offer.major, offer.minor);
        return Err(io::Error::new(ErrorKind::Unsupported, what));
    }
    if offer.flags & init::ASYNC_DIO == 0 {
        tracing::warn!("this kernel has no asynchronous direct I/O on FUSE: one request at a time");
    }
    let wanted = init::ASYNC_READ | init::BIG_WRITES | init::ASYNC_DIO | init::MAX_PAGES;
    let more = inbox.fixed::<InitIn2>().filter(|_| offer.flags & init::EXT != 0);
    let offered = more.is_some_and(|more| more.flags2 & init::OVER_IO_URING != 0);
    let (bytes_max, by_ring) = match ring(offered)? {
        Some(bytes_max) if offered => (bytes_max.min(REQUEST_BYTES_MAX), true),
        _ => (REQUEST_BYTES_MAX, false),
    };
    reply.value(&InitOut {
        max_readahead: offer.max_readahead.min(bytes_max),
        flags: wanted & offer.flags | if by_ring { init::EXT } else { 0 },
        flags2: if by_ring { init::OVER_IO_URING } else { 0 },
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: bytes_max,
        time_gran: 1,
        max_pages: (bytes_max / 4096) as u16,
        ..spoken
    });
    Ok(true)
}

/// Serves with so many threads until the file system is unmounted.
///
/// # Errors
/// What ended a thread before that.
pub(super) fn serve(device: Device, volume: Arc<VolumeFs>, threads: usize) -> io::Result<()> {
    let more = (1..threads).map(|_| device.another());
    let devices = more.chain([Ok(device.clone())]).collect::<io::Result<Vec<_>>>()?;
    // Only the threads keep the connection.
    drop(device);
    let spawn = |(n, device): (usize, Device)| {
        let volume = volume.clone();
        // Without one it sleeps each time.
        let asked = device.asked().ok();
        std::thread::Builder::new()
            .name(format!("fuse-{n}"))
            .spawn(move || take_requests(&device, asked.as_ref(), &volume))
    };
    let threads: Vec<_> = devices.into_iter().enumerate().map(spawn).collect();
    let mut end = Ok(());
    for thread in threads {
        let ended =
            thread.and_then(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        end = end.and(ended);
    }
    end
}

fn take_requests(device: &Device, asked: Option<&Device>, volume: &VolumeFs) -> io::Result<()> {
    let mut inbox = Inbox::new(REQUEST_BYTES_MAX as usize);
    // Fresh memory is touched by being zeroed: more than most requests need only where some need it.
    let mut longest = 0;
    // Requests since the thread last slept, as far as it knows; and since it last asked for one and had it.
    let (mut awake, mut alone) = (0u32, 0u32);
    let mut not_before = Instant::now();
    let wakeups = volume.serving().service().wakeups();
    loop {
        inbox.make_room(longest, |len| volume.room(len));
        let asked = asked.filter(|_| awake > 1 || awake == 1 && is_asked(alone));
        let found = match asked {
            Some(asked) => {
                next_of_many(asked, &mut inbox, if awake > 1 { PATIENCE } else { 0 }, &mut not_before)
            }
            None => Err(ErrorKind::WouldBlock.into()),
        };
        let received = match found {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                wakeups.turn(awake as usize);
                awake = 0;
                alone = alone.wrapping_add(1);
                device.receive(&mut inbox)
            }
            found => {
                alone = 0;
                found
            }
        };
        let Some(reply) = received? else { return Ok(()) };
        awake = awake.saturating_add(1);
        if !take(&mut inbox, reply, &mut longest, volume) {
            return Ok(());
        }
    }
}

/// Whether a thread asks for a second request: where those before came one at a time, seldom.
fn is_asked(alone: u32) -> bool {
    alone < ALONE_MAX || alone.is_multiple_of(ALONE_REST)
}

/// Asks for a request without sleep; and with `patience` again, after others had the processor who may send one. Where
/// that took long and brought nothing, they were others: not again before `not_before`.
fn next_of_many(
    asked: &Device,
    inbox: &mut Inbox,
    patience: u32,
    not_before: &mut Instant,
) -> io::Result<Option<Reply>> {
    let mut received = asked.ask(inbox);
    for _ in 0..patience {
        if !matches!(&received, Err(e) if e.kind() == ErrorKind::WouldBlock) {
            return received;
        }
        let now = Instant::now();
        if now < *not_before {
            return received;
        }
        std::thread::yield_now();
        received = asked.ask(inbox);
        let took = now.elapsed();
        if took > TURN && received.is_err() {
            *not_before = now + took * TURN_REST;
        }
    }
    received
}

/// Does what was received; false where it was the last. `longest`: bytes of the longest payload so far.
pub(super) fn take(inbox: &mut Inbox, reply: Reply, longest: &mut usize, volume: &VolumeFs) -> bool {
    match inbox.head.header.opcode {
        op::DESTROY => {
            reply.ok();
            return false;
        }
        op::READ => *longest = (*longest).max(inbox.head.io.size.min(REQUEST_BYTES_MAX) as usize),
        _ => *longest = (*longest).max(inbox.payload_len()),
    }
    if let Some(work) = volume.handle(inbox, reply) {
        volume.serving().run(work);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    #[test]
    fn what_is_there_is_found_and_nothing_is_waited_for() {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_NONBLOCK).unwrap();
        let (device, mut kernel) = (Device::over(File::from(ours)), File::from(theirs));
        let mut inbox = Inbox::new(1000);
        let would_block = |found: io::Result<Option<Reply>>| {
            assert_eq!(found.err().map(|e| e.kind()), Some(ErrorKind::WouldBlock));
        };
        // Nothing came, though others had the processor; also where they may not have it.
        let later = Instant::now() + Duration::from_secs(3600);
        let mut not_before = Instant::now();
        would_block(next_of_many(&device, &mut inbox, PATIENCE, &mut not_before));
        not_before = later;
        would_block(next_of_many(&device, &mut inbox, PATIENCE, &mut not_before));
        assert_eq!(not_before, later);
        // A request: its length, and what it is.
        let mut request = [0; 40];
        (request[0], request[4]) = (40, op::FSYNC as u8);
        for patience in [0, PATIENCE] {
            kernel.write_all(&request).unwrap();
            next_of_many(&device, &mut inbox, patience, &mut not_before).unwrap().unwrap().ok();
            assert_eq!(inbox.head.header.opcode, op::FSYNC);
        }
        would_block(next_of_many(&device, &mut inbox, 0, &mut not_before));
    }

    #[test]
    fn requests_that_come_alone_are_seldom_followed_by_a_question() {
        assert!((0..ALONE_MAX).all(is_asked));
        let asked = (ALONE_MAX..ALONE_MAX + 10 * ALONE_REST).filter(|&alone| is_asked(alone)).count();
        assert_eq!(asked, 10);
    }
}
