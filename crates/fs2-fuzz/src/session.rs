//! A session's I/O, done at once on a device.

use fs2_block::{ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId, WriteAt};
use fs2_engine::{Io, IoData, IoOp, Outcome, Volume};

use crate::image::BLOCK;

/// Does `io` on `device`; what a client writes is in `payload`. Gives back what a read brought.
///
/// # Panics
/// Where the engine reaches beyond the device: a bug.
pub(crate) fn perform(device: &mut dyn WriteAt, io: &Io, payload: &[u8]) -> Vec<u8> {
    let (at, len) = (io.extent.offset(), io.extent.len());
    match (&io.op, &io.data) {
        (IoOp::Read, _) => {
            let mut bytes = vec![0; len as usize];
            device.read_at(at, &mut bytes).expect("a read within the device");
            return bytes;
        }
        (IoOp::Write { .. }, IoData::Client(_)) => device.write_at(at, payload).expect("within the device"),
        (IoOp::Write { .. }, IoData::Engine(bytes)) => device.write_at(at, bytes).expect("within the device"),
        (IoOp::WriteZeroes { .. }, _) => device.write_zeroes(at, len).expect("within the device"),
        _ => {}
    }
    Vec::new()
}

/// What a session's clients write, wherever they do.
const PAYLOAD: [u8; BLOCK] = [9; BLOCK];

/// Reads blocks and writes a few, lets the volume do all it wants at idle, and detaches.
///
/// # Panics
/// Where an invariant breaks, a request is not answered once, or the session does not end.
pub(crate) fn short_session(mut volume: Volume, device: &mut dyn WriteAt) {
    let mut now = Nanos(0);
    let (mut asked, mut answered) = (0u64, 0u64);
    for step in 0..40u64 {
        now += Nanos::from_millis(50);
        // Blocks of the middle MiB, where replicas and their originals are; each fourth time a write.
        let block = [1100, 1101, 1102, 1103, 1500, 1700, 1300, 1301, 1302, 1303][step as usize % 10];
        let op = if step % 4 == 3 { Op::Write } else { Op::Read };
        let extent = Extent::new((block + step / 20) * BLOCK as u64, BLOCK as u64);
        let request =
            Request { id: RequestId(step), connection: ConnectionId(0), op, extent, flags: Flags::default() };
        volume.submit(now, request, (op == Op::Write).then_some(&PAYLOAD[..]));
        asked += 1;
        answered += run_dry(&mut volume, device, now, 20);
    }
    volume.begin_detach(now);
    answered += run_dry(&mut volume, device, now, 10_000);
    assert!(volume.detached().is_some(), "the session ends");
    assert_eq!(asked, answered, "each request is answered once");
}

/// Dispatches and completes at most `most` I/Os; says how many requests were answered.
fn run_dry(volume: &mut Volume, device: &mut dyn WriteAt, now: Nanos, most: usize) -> u64 {
    let mut answered = 0;
    for _ in 0..most {
        while volume.poll_reply().is_some() {
            answered += 1;
        }
        let Some(io) = volume.poll_dispatch(now) else { break };
        let bytes = perform(device, &io, &PAYLOAD);
        let outcome = if io.op == IoOp::Read { Outcome::read(&bytes) } else { Outcome::done() };
        volume.complete(now, io.id, outcome);
    }
    while volume.poll_reply().is_some() {
        answered += 1;
    }
    answered
}
