//! What a former daemon leaves in a memfd: whatever it holds, it is refused, or a session goes on.
//!
//! Byte 0: which session was left (bits 0 and 1; 3 stands for none: what follows are the bytes themselves),
//! whether checksum and length are left wrong (bit 2), whether the volume is another than it was left (bit 3).
//! After it changes of 4 bytes: where, u16, of the whole in 65536th or, with the top bit of the third byte set,
//! in bytes from the beginning; what is done; a value.
//!
//! Not checked: that a block the bytes call free is free. Only the former process knew.

use std::sync::OnceLock;

use fs2_block::{ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId};
use fs2_engine::{AttachOptions, EngineConfig, HandOver, IoOp, Outcome, PolicyKind, Volume};

use crate::crc32c;
use crate::image::{BLOCK, Base, Patched};
use crate::session::{perform, short_session};

/// Before the checksummed bytes: magic, version, checksum; the length is the first of those.
const SUM_AT: usize = 12;
const LEN_AT: usize = 16;

fn config() -> EngineConfig {
    EngineConfig {
        policy: PolicyKind::Torture,
        idle_after: Nanos(0),
        table_flush_every: Nanos::from_millis(500),
        ..EngineConfig::default()
    }
}

/// A volume and what its daemon left.
struct Past {
    device: Patched,
    left: Vec<u8>,
}

/// Sessions, made once: one that did nothing, one that read and made copies, one that wrote as well, over two
/// connections of which one is gone.
fn past(which: usize) -> &'static Past {
    static MADE: [OnceLock<Past>; 3] = [const { OnceLock::new() }; 3];
    MADE[which].get_or_init(|| make(which))
}

fn make(which: usize) -> Past {
    let base = if which == 1 { Base::Pieces } else { Base::Replicas };
    let mut device = Patched::new(base);
    let attached = Volume::attach(&mut device, None, config(), &AttachOptions::default());
    let (mut volume, _) = attached.expect("it attaches");
    let mut now = Nanos(0);
    for step in 0..60 * which as u64 {
        now += Nanos::from_millis(50);
        let (op, block) = match step % 5 {
            4 if which == 2 => (Op::Write, 1900 + step),
            3 if which == 2 => (Op::Discard, 1891 + step),
            n => (Op::Read, 1100 + n % 4),
        };
        let extent = Extent::new(block * BLOCK as u64, BLOCK as u64);
        let connection = ConnectionId((step / 20 % 2) as u32);
        let request = Request { id: RequestId(step), connection, op, extent, flags: Flags::default() };
        volume.submit(now, request, (op == Op::Write).then_some(&[9; BLOCK][..]));
        settle(&mut volume, &mut device, now);
    }
    volume.connection_gone(ConnectionId(1));
    volume.begin_leaving(now);
    settle(&mut volume, &mut device, now);
    let left = volume.left(b"1\na stamp\n").expect("it is one to go on with");
    Past { device, left }
}

fn settle(volume: &mut Volume, device: &mut Patched, now: Nanos) {
    for _ in 0..100 {
        while volume.poll_reply().is_some() {}
        let Some(io) = volume.poll_dispatch(now) else { break };
        let bytes = perform(device, &io, &[9; BLOCK]);
        let outcome = if io.op == IoOp::Read { Outcome::read(&bytes) } else { Outcome::done() };
        volume.complete(now, io.id, outcome);
    }
    while volume.poll_reply().is_some() {}
}

fn change(bytes: &mut Vec<u8>, change: &[u8]) {
    let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
    let at = if change[2] & 128 == 0 { (place * bytes.len()) >> 16 } else { place };
    if at >= bytes.len() {
        return;
    }
    let value = change[3];
    match change[2] % 8 {
        0 | 1 => bytes[at] = value,
        2 => bytes.insert(at, value),
        3 => drop(bytes.remove(at)),
        4 => bytes.truncate(at),
        5 => bytes[at] = bytes[at].wrapping_add(value),
        6 => {
            for b in bytes[at..].iter_mut().take(8) {
                *b = value;
            }
        }
        _ => {
            let twice: Vec<u8> = bytes[at..].iter().take(usize::from(value)).copied().collect();
            bytes.extend(twice);
        }
    }
}

pub(crate) fn run(data: &[u8]) {
    let Some((&head, rest)) = data.split_first() else { return };
    let all = [0, 1, 2].map(past);
    let which = usize::from(head % 4);
    let mut bytes = match all.get(which) {
        Some(past) => past.left.clone(),
        None => rest.to_vec(),
    };
    if which < all.len() {
        for c in rest.chunks_exact(4).take(1000) {
            change(&mut bytes, c);
        }
    }
    if head & 4 == 0 && bytes.len() >= LEN_AT + 8 {
        let len = bytes.len() as u64;
        bytes[LEN_AT..LEN_AT + 8].copy_from_slice(&len.to_le_bytes());
        let sum = crc32c(&bytes[LEN_AT..]);
        bytes[SUM_AT..LEN_AT].copy_from_slice(&sum.to_le_bytes());
    }
    let untouched = which < all.len() && bytes == all[which].left;
    let given = match HandOver::decode(&bytes) {
        Ok(given) => given,
        Err(_) => return assert!(!untouched, "what was left is read"),
    };
    let _ = given.note();
    let mut device = all[(which + usize::from(head >> 3 & 1)) % all.len()].device.clone();
    match Volume::take_over(&mut device, None, config(), given) {
        Ok((volume, _)) => {
            volume.check();
            assert!(!untouched || volume.left(b"").is_err(), "it has not left again");
            short_session(volume, &mut device);
        }
        Err(why) => assert!(!untouched || head & 8 != 0, "refused: {why}"),
    }
}
