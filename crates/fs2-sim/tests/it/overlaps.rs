//! What overlaps waits, in the order of its arrival, whether it is in flight or waits itself; the daemon's own
//! writes and punches come back later.

use fs2_block::{BlockNo, BlockRange, Op};
use fs2_engine::{DiscardMode, EngineConfig, Io, IoOp};
use fs2_sim::glue::Scripted;

use crate::session::{BLOCK, DATA, Session, config, image};

const SIZE: u64 = BLOCK as u64;

/// 1100 to 1103 have replicas from 1300 on; bitmap loaded, mark erased, nothing left to do.
fn quiet(config: EngineConfig) -> Session {
    let mut s = Session::attach(image(&DATA, &[BlockRange::new(1100, 1104)], 1300), config);
    s.policy(Scripted::default()).idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000).idle(10_000).value(1500);
    s.done.clear();
    s
}

fn place(io: &Io) -> u32 {
    (io.extent.offset() / SIZE) as u32
}

#[test]
fn what_overlaps_a_request_that_waits_waits_behind_it() {
    let two = [7; 2 * BLOCK];
    // The one in the middle waits for a write in flight; the last overlaps only the middle one.
    for (middle, last, waits) in [
        (Op::Write, Op::Read, true),
        (Op::Write, Op::Write, true),
        (Op::Read, Op::Write, true),
        (Op::Read, Op::Read, false),
    ] {
        let payload = |op, len: u64| (op == Op::Write).then_some(&two[..len as usize]);
        let mut s = quiet(config());
        s.submit(Op::Write, 1200 * SIZE, SIZE, payload(Op::Write, SIZE));
        let first = s.dispatch().unwrap();
        s.submit(middle, 1200 * SIZE, 2 * SIZE, payload(middle, 2 * SIZE));
        s.submit(last, 1201 * SIZE, SIZE, payload(last, SIZE));
        // And one that has nothing to do with them.
        s.submit(Op::Read, 1203 * SIZE, SIZE, None);
        let mut now = Vec::new();
        while let Some(io) = s.dispatch() {
            now.push(place(&io));
            s.complete(io);
        }
        let expected: &[u32] = if waits { &[1203] } else { &[1201, 1203] };
        assert_eq!(now, expected, "{middle:?}, then {last:?}");
        s.done.clear();
        s.complete(first);
        assert_eq!(s.run().len(), 4);
        let order: Vec<u64> = s.done.iter().map(|d| d.1.offset() / SIZE).collect();
        assert_eq!(order[..2], [1200, 1200]);
        assert_eq!(order.get(2), waits.then_some(&1201));
    }
}

#[test]
fn a_discard_passed_down_waits_one_answered_from_memory_does_not() {
    for discard in [DiscardMode::Memory, DiscardMode::Pass] {
        let mut s = quiet(EngineConfig { discard, ..config() });
        s.submit(Op::Write, 1200 * SIZE, SIZE, Some(&[1; BLOCK]));
        let write = s.dispatch().unwrap();
        let id = s.submit(Op::Discard, 1200 * SIZE, SIZE, None);
        assert!(s.dispatch().is_none());
        let answer = s.volume.poll_reply().map(|r| r.request.0);
        assert_eq!(answer, (discard == DiscardMode::Memory).then_some(id));
        s.complete(write);
        s.run();
        assert!(s.volume.liveness().unwrap().is_free(BlockNo(1200)));
    }
}

/// R2: of a discard that waits, what was written since stays out of F, and the rest joins it.
#[test]
fn a_discard_frees_what_no_write_overtook() {
    let mut s = quiet(EngineConfig { discard: DiscardMode::Pass, ..config() });
    s.write(1200, 6, 1).unwrap();
    let free = |s: &Session| -> Vec<u32> {
        (1199..1207).filter(|&b| s.volume.liveness().unwrap().is_free(BlockNo(b))).collect()
    };
    assert_eq!(free(&s), [1199, 1206]);
    s.submit(Op::Read, 1200 * SIZE, SIZE, None);
    let read = s.dispatch().unwrap();
    s.submit(Op::Discard, 1200 * SIZE, 6 * SIZE, None);
    s.submit(Op::Write, 1202 * SIZE, SIZE, Some(&[2; BLOCK]));
    s.submit(Op::Write, 1204 * SIZE, 512, Some(&[2; 512]));
    assert!(s.dispatch().is_none());
    s.complete(read);
    assert_eq!(s.run().len(), 4);
    assert_eq!(free(&s), [1199, 1200, 1201, 1203, 1205, 1206]);
    assert!(s.done.iter().all(|d| d.0 != IoOp::Discard));
    // A write elsewhere is no reason to keep it.
    s.submit(Op::Read, 1200 * SIZE, SIZE, None);
    let read = s.dispatch().unwrap();
    s.submit(Op::Discard, 1200 * SIZE, SIZE, None);
    s.submit(Op::Write, 1202 * SIZE, SIZE, Some(&[2; BLOCK]));
    s.complete(read);
    assert_eq!(s.run().len(), 3);
    assert_eq!(s.done.iter().filter(|d| d.0 == IoOp::Discard).count(), 1);
}

/// What was evicted is punched only where nobody wrote it, and nobody is at it.
#[test]
fn no_punch_of_what_was_written_or_is_being_read() {
    let evicted = || {
        let mut s = quiet(EngineConfig { punch: true, ..config() });
        s.policy(Scripted { evict: Some(BlockRange::new(1301, 1303)), ..Scripted::default() });
        s.volume.handle_timeout(s.now);
        s
    };
    let punched = |s: &mut Session| -> Vec<u64> {
        s.idle(10_000);
        let rows = s.done.iter().filter(|d| d.0 == IoOp::Discard).map(|d| d.1);
        rows.flat_map(|row| (row.offset()..row.end()).step_by(BLOCK).map(|at| at / SIZE)).collect()
    };
    assert_eq!(punched(&mut evicted()), [1301, 1302]);
    let mut s = evicted();
    s.write(1302, 1, 9).unwrap();
    assert_eq!(punched(&mut s), [1301]);
    let mut s = evicted();
    s.policy(Scripted { eager: true, ..Scripted::default() });
    s.submit(Op::Read, 1301 * SIZE, SIZE, None);
    let read = s.dispatch().unwrap();
    let punch = s.dispatch().unwrap();
    assert_eq!((punch.op, place(&punch)), (IoOp::Discard, 1302));
    s.complete(read);
    s.complete(punch);
    s.run();
}

/// A page of the table waits while a client reads the block it lies in, or the same place of another device.
#[test]
fn a_page_is_written_when_nobody_is_at_its_place() {
    let pages = |s: &Session| s.volume.stats().table_pages_written;
    for apart in [false, true] {
        let mut s = if apart { Session::attach_apart(&DATA, config()) } else { quiet(config()) };
        s.copying_to(1310).idle(10_000).value(1500);
        s.idle(100);
        let (before, dirty) = (pages(&s), s.volume.table().dirty_pages());
        assert_eq!((before > 0, dirty), (true, 0));
        // Where the last page was written to.
        let at =
            s.done.iter().rev().find(|d| matches!(d.0, IoOp::Write { .. }) && d.1.len() == 4096).unwrap().1;
        s.copying_to(1320).value(1501);
        s.idle(100);
        assert_eq!(s.volume.table().dirty_pages(), 1);
        s.submit(Op::Read, at.offset(), SIZE, None);
        let read = s.dispatch().unwrap();
        s.now += config().table_flush_every;
        s.volume.handle_timeout(s.now);
        while let Some(io) = s.dispatch() {
            s.complete(io);
        }
        assert_eq!(pages(&s) - before, u64::from(apart), "apart: {apart}");
        s.complete(read);
        s.run();
        s.idle(10_000).idle(10_000);
        assert_eq!((pages(&s) - before, s.volume.table().dirty_pages()), (1, 0));
    }
}

/// A client's write to a bitmap waits until the daemon has read it once. That read came when no request could
/// start: under a load that never let the device idle it never came.
#[test]
fn a_bitmap_write_under_load_is_answered() {
    let mut s = Session::attach(image(&DATA, &[], 0), config());
    s.policy(Scripted::default());
    let at = s.volume.layout().unwrap().bitmap_block(0).extent(s.volume.block_size()).offset();
    let bitmap = s.device[at as usize..][..BLOCK].to_vec();
    s.submit(Op::Read, 1100 * SIZE, SIZE, None);
    let write = s.submit(Op::Write, at, SIZE, Some(&bitmap));
    let mut answered = Vec::new();
    for _ in 0..20 {
        // One I/O at a time, and always another request that could be next.
        s.submit(Op::Read, 1101 * SIZE, SIZE, None);
        let io = s.dispatch().unwrap();
        s.complete(io);
        answered.extend(std::iter::from_fn(|| s.volume.poll_reply()).map(|r| r.request.0));
    }
    assert!(answered.contains(&write), "answered: {answered:?}");
}
