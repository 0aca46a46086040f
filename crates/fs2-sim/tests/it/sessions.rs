//! What a session does and what it counts, step by step: of the engine's own decisions the model makes
//! most itself, and it looks at no counter.

use fs2_block::{BlockNo, BlockRange, BlockSize, Flags, Nanos, Op};
use fs2_engine::{AttachOptions, Inactive, Target, Volume};
use fs2_engine::{EDQUOT, EIO, ENOSPC, EngineConfig, IoOp, Standing};
use fs2_sim::glue::Scripted;
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};
use fs2_table::{Header, PAGE_BYTES, TokenDiffers};

use crate::session::{BLOCK, DATA, Probe, Session, config, image};

#[test]
fn what_is_asked_is_counted() {
    let mut s = Session::plain(config());
    for _ in 0..3 {
        assert_eq!(s.value(1100), 0x11);
    }
    for n in 0..4 {
        s.write(1500, 1, n).unwrap();
    }
    s.other(Op::WriteZeroes, 1501, 1).unwrap();
    for _ in 0..2 {
        s.other(Op::Discard, 1200, 8).unwrap();
    }
    s.idle(1000).other(Op::Discard, 1210, 1).unwrap();
    for _ in 0..6 {
        s.other(Op::Flush, 0, 0).unwrap();
    }
    let stats = s.volume.stats();
    assert_eq!((stats.reads, stats.writes, stats.discards, stats.flushes), (3, 5, 3, 6));
    assert_eq!((stats.reads_from_replica, stats.invalidated, stats.reclaimed), (0, 0, 0));
    assert_eq!((stats.read_access.count(), stats.write_access.count()), (3, 4));
    assert_eq!(stats.read_access.total(), Nanos::from_millis(3));
    assert_eq!(stats.write_access.total(), Nanos::from_millis(4));
    // Free already when the bitmap was loaded at the first idle moment, or not known then: eight joined F,
    // the second time none did, and the one at the end was free.
    assert_eq!(stats.discarded_blocks, 8);
}

#[test]
fn copies_are_made_read_and_dropped() {
    let mut s = Session::plain(config());
    s.copying_to(1300).idle(1000);
    s.value(1100);
    s.idle(1000);
    assert_eq!(s.replicas(), [(1100, 1300)]);
    assert_eq!(s.volume.stats().copies_written, 1);
    s.copying_to(1310).read(1101, 3).unwrap();
    s.idle(1000);
    assert_eq!(s.replicas(), [(1100, 1300), (1101, 1310), (1102, 1311), (1103, 1312)]);
    assert_eq!((s.volume.stats().copies_written, s.volume.stats().copies_void), (4, 0));
    s.reading_copies();
    assert_eq!((s.value(1100), s.value(1101), s.value(1104)), (0x11, 0x12, 0x15));
    assert_eq!(s.volume.stats().reads_from_replica, 2);
    // A run that is copied in one piece is read in one; one that is not, from the original.
    s.read(1101, 3).unwrap();
    s.read(1100, 2).unwrap();
    assert_eq!(s.volume.stats().reads_from_replica, 3);
    s.write(1101, 1, 9).unwrap();
    s.write(1311, 1, 9).unwrap();
    assert_eq!(s.replicas(), [(1100, 1300), (1103, 1312)]);
    assert_eq!(s.volume.stats().invalidated, 2);
    s.other(Op::Discard, 1103, 1).unwrap();
    assert_eq!((s.volume.stats().invalidated, s.volume.table().len()), (3, 1));
}

/// Found: on a trace of requests by the sector, most of which begin or end within blocks, nothing was won.
#[test]
fn parts_of_blocks_are_read_from_copies() {
    let mut s = Session::copied(config());
    s.reading_copies();
    // Of 1101 the second half, 1102, and of 1103 the first.
    let (at, len) = (1101 * 1024 + 512, 2048);
    let mut asked = vec![0; len];
    asked[..512].copy_from_slice(&[0x12, 0].repeat(256));
    asked[512..1536].copy_from_slice(&[0x13, 0].repeat(512));
    asked[1536..].copy_from_slice(&[0x14, 0].repeat(256));
    let part = |s: &mut Session| {
        let id = s.submit(Op::Read, at, len as u64, None);
        assert_eq!(s.run(), [(id, Ok(asked.clone()))]);
        (s.done.pop().unwrap().1.offset(), s.volume.stats().reads_from_replica)
    };
    assert_eq!(part(&mut s), (1301 * 1024, 1), "the copy is read whole");
    // R8: it is no copy any more where nobody asked for, either.
    s.device[1303 * 1024 + 1000] ^= 1;
    assert_eq!(part(&mut s), (at, 1));
    assert_eq!((s.volume.stats().hash_mismatches, s.replicas().len()), (1, 3));
    // A write to another part of the block ends it, too.
    s.submit(Op::Write, 1100 * 1024, 512, Some(&[9; 512]));
    s.run();
    assert_eq!(s.replicas(), [(1101, 1301), (1102, 1302)]);
}

#[test]
fn a_copy_of_what_changed_is_void() {
    let mut s = Session::plain(config());
    s.copying_to(1300).idle(1000);
    s.read(1100, 3).unwrap();
    s.policy(Scripted { capture: true, target: Some(1300), ..Scripted::default() });
    // The erasure of the mark comes first; then the copy is dispatched, and one of its originals is written.
    let mut s = Session::plain(config());
    s.write(1500, 1, 1).unwrap();
    s.idle(10_000).copying_to(1300);
    let (at, len) = (1100 * BLOCK as u64, 3 * BLOCK as u64);
    s.submit(Op::Read, at, len, None);
    let io = s.dispatch().unwrap();
    s.complete(io);
    let copy = s.dispatch().unwrap();
    assert!(matches!(copy.op, IoOp::Write { .. }) && copy.extent.offset() == 1300 * BLOCK as u64);
    s.submit(Op::Write, 1101 * BLOCK as u64, BLOCK as u64, Some(&[5; BLOCK]));
    s.complete(copy);
    s.run();
    assert_eq!(s.replicas(), [(1100, 1300), (1102, 1302)]);
    assert_eq!((s.volume.stats().copies_written, s.volume.stats().copies_void), (2, 1));
}

#[test]
fn a_replica_that_is_not_what_it_was_goes() {
    let mut s = Session::copied(config());
    s.reading_copies();
    s.device[1301 * BLOCK] ^= 1;
    let all = s.read(1100, 4).unwrap();
    assert_eq!([all[0], all[BLOCK], all[2 * BLOCK], all[3 * BLOCK]], [0x11, 0x12, 0x13, 0x14]);
    assert_eq!((s.volume.stats().hash_mismatches, s.volume.stats().reads_from_replica), (1, 0));
    assert_eq!(s.replicas(), [(1100, 1300), (1102, 1302), (1103, 1303)]);
    // One that cannot be read: the original answers.
    s.fail = |io| (io.op == IoOp::Read && io.extent.offset() >= 1300 * BLOCK as u64).then_some(EIO);
    assert_eq!(s.value(1100), 0x11);
    assert_eq!((s.volume.stats().replica_errors, s.volume.stats().reads_from_replica), (1, 0));
    assert_eq!(s.replicas(), [(1102, 1302), (1103, 1303)]);
    s.read(1102, 2).unwrap();
    assert_eq!(s.volume.stats().replica_errors, 2);
    assert_eq!(s.replicas(), []);
    // An original that cannot be read is an error.
    s.fail = |io| (io.op == IoOp::Read).then_some(EIO);
    assert_eq!(s.read(1102, 2), Err(EIO));
}

#[test]
fn entries_are_verified_by_reading_and_at_idle() {
    let distrust = || EngineConfig { distrust: true, ..config() };
    let mut s = Session::copied(distrust());
    assert_eq!(s.volume.table().unverified_count(), 4);
    s.device[1102 * BLOCK] ^= 1;
    // Nothing unverified is read.
    s.reading_copies().read(1100, 2).unwrap();
    assert_eq!((s.volume.stats().reads_from_replica, s.volume.stats().verified), (0, 2));
    s.read(1100, 2).unwrap();
    assert_eq!(s.volume.stats().reads_from_replica, 1);
    s.idle(1000);
    assert_eq!((s.volume.stats().verified, s.volume.stats().refuted), (3, 1));
    assert_eq!(s.replicas(), [(1100, 1300), (1101, 1301), (1103, 1303)]);
    assert_eq!(s.volume.table().unverified_count(), 0);
    // A verified entry's original that differs is not doubted: nothing can be trusted then.
    let mut s = Session::copied(config());
    s.policy(Scripted::default()).idle(1000);
    s.device[1102 * BLOCK] ^= 1;
    s.read(1102, 1).unwrap();
    assert!(matches!(s.volume.standing(), Standing::Frozen(_)));
    assert_eq!(s.replicas(), []);
    // Before it was sampled, the sample finds it.
    let mut s = Session::copied(config());
    s.device[1102 * BLOCK] ^= 1;
    s.idle(1000);
    assert_eq!((s.volume.stats().refuted, s.volume.standing()), (1, &Standing::Active));
    assert_eq!(s.replicas(), [(1100, 1300), (1101, 1301), (1103, 1303)]);
    // The others were doubted, and verified again.
    assert_eq!(s.volume.table().unverified_count(), 0);
    assert!(s.volume.stats().verified > 0);
}

#[test]
fn failures_are_counted_and_stop_what_they_must() {
    let mut s = Session::plain(config());
    s.copying_to(1300).idle(1000);
    s.fail = |io| {
        let copy = matches!(io.op, IoOp::Write { .. })
            && (1300..1310).contains(&(io.extent.offset() / BLOCK as u64));
        copy.then_some(EIO)
    };
    s.value(1100);
    s.idle(1000).copying_to(1301).value(1101);
    s.idle(1000);
    assert_eq!((s.volume.stats().copy_errors, s.replicas()), (2, vec![]));
    // No space below: no more copies in this session.
    s.fail = |io| {
        let copy = matches!(io.op, IoOp::Write { .. })
            && (1300..1310).contains(&(io.extent.offset() / BLOCK as u64));
        copy.then_some(ENOSPC)
    };
    s.copying_to(1302).value(1102);
    s.idle(1000);
    assert_eq!(s.volume.stats().copy_errors, 3);
    s.fail = |_| None;
    s.value(1103);
    s.idle(1000);
    assert_eq!((s.volume.stats().copy_errors, s.replicas()), (3, vec![]));
    // Table pages that fail are written again.
    let mut s = Session::plain(config());
    s.copying_to(1300).idle(1000);
    s.value(1100);
    s.idle(100);
    assert_eq!((s.volume.stats().table_pages_written, s.volume.stats().table_errors), (1, 0));
    s.copying_to(1310);
    s.value(1101);
    s.fail = |io| (matches!(io.op, IoOp::Write { .. }) && io.extent.len() == 4096).then_some(EIO);
    s.idle(10_000);
    assert!(s.volume.stats().table_errors >= 1);
    assert_eq!(s.volume.table().dirty_pages(), 1);
    s.fail = |_| None;
    let errors = s.volume.stats().table_errors;
    s.idle(10_000).idle(10_000);
    assert_eq!((s.volume.table().dirty_pages(), s.volume.stats().table_errors), (0, errors));
}

#[test]
fn a_clean_end_is_trusted_by_the_next_beginning() {
    let mut s = Session::plain(config());
    s.copying_to(1300).idle(1000).read(1100, 2).unwrap();
    s.write(1500, 1, 7).unwrap();
    let (marked, device) = s.detach();
    assert!(marked);
    let mut s = Session::attach(device.clone(), config());
    assert_eq!((s.volume.standing(), s.volume.table().unverified_count()), (&Standing::Active, 0));
    assert_eq!(s.replicas(), [(1100, 1300), (1101, 1301)]);
    s.reading_copies();
    assert_eq!((s.value(1100), s.value(1101)), (0x11, 0x12));
    assert_eq!(s.volume.stats().reads_from_replica, 2);
    // A failed write, a failed flush: no mark.
    for what in [Op::Write, Op::Flush] {
        let mut s = Session::attach(device.clone(), config());
        s.write(1501, 1, 7).unwrap();
        s.fail = |io| match io.op {
            IoOp::Write { .. } => (io.extent.offset() == 1500 * BLOCK as u64).then_some(EIO),
            IoOp::Flush => Some(EIO),
            _ => None,
        };
        let answer = if what == Op::Write { s.write(1500, 1, 1) } else { s.other(Op::Flush, 0, 0) };
        assert_eq!(answer, Err(EIO));
        s.fail = |_| None;
        if what == Op::Flush {
            assert_eq!(s.write(1501, 1, 1), Err(EIO), "latched");
            assert_eq!(s.other(Op::Flush, 0, 0), Err(EIO));
            s.read(1501, 1).unwrap();
        }
        assert!(!s.detach().0, "no mark after a failed {what:?}");
    }
}

#[test]
fn a_policy_is_told_that_the_drive_has_others_to_serve() {
    let mut s = Session::copied(config());
    let probe = Probe::default();
    s.volume.set_policy(Box::new(probe.clone()));
    let block = |n: u64| (n * BLOCK as u64, BLOCK as u64);
    let mut told = Vec::new();
    for (at, len) in [block(1100), block(1101), block(1102)] {
        s.submit(Op::Read, at, len, None);
        told.push(s.dispatch().unwrap());
    }
    told.into_iter().for_each(|io| s.complete(io));
    s.run();
    s.value(1103);
    assert_eq!(*probe.in_company.lock().unwrap(), [false, true, true, false]);
}

/// Force unit access flushes what other writes left in the page cache, and takes the error that a flush was to tell.
#[test]
fn a_failed_force_unit_access_is_a_failed_flush() {
    let forced = Flags { fua: true, ..Flags::default() };
    for op in [Op::Write, Op::WriteZeroes] {
        let mut s = Session::plain(config());
        s.write(1501, 1, 7).unwrap();
        s.fail = |io| match io.op {
            IoOp::Write { fua: true } | IoOp::WriteZeroes { fua: true, .. } => Some(EIO),
            _ => None,
        };
        let payload = vec![1; BLOCK];
        let id = s.submit_flagged(op, 1500 * 1024, 1024, (op == Op::Write).then_some(&payload[..]), forced);
        // A flush that came meanwhile goes after it, and is told.
        let io = s.dispatch().unwrap();
        let flush = s.submit(Op::Flush, 0, 0, None);
        assert!(s.dispatch().is_none(), "not beside it");
        s.complete(io);
        let answers = s.run();
        assert_eq!(answers, [(flush, Err(EIO)), (id, Err(EIO))], "{op:?}");
        s.fail = |_| None;
        assert_eq!(s.other(Op::Flush, 0, 0), Err(EIO), "latched");
        assert_eq!(s.write(1501, 1, 1), Err(EIO));
        s.read(1501, 1).unwrap();
        assert!(!s.detach().0, "no mark");
    }
    // While a flush is at the device it waits.
    let mut s = Session::plain(config());
    s.write(1501, 1, 7).unwrap();
    let flush = s.submit(Op::Flush, 0, 0, None);
    let io = s.dispatch().unwrap();
    let id = s.submit_flagged(Op::Write, 1500 * 1024, 1024, Some(&[1; BLOCK]), forced);
    assert!(s.dispatch().is_none());
    s.complete(io);
    let answers: Vec<_> = s.run().into_iter().map(|(id, answer)| (id, answer.is_ok())).collect();
    assert_eq!(answers, [(flush, true), (id, true)]);
}

/// A full file system below a sparse image refused one write, and the volume refused all that came after.
#[test]
fn force_unit_access_that_finds_no_room_is_no_failed_flush() {
    let forced = Flags { fua: true, ..Flags::default() };
    for (op, errno) in [(Op::Write, ENOSPC), (Op::Write, EDQUOT), (Op::WriteZeroes, ENOSPC)] {
        let mut s = Session::plain(config());
        s.write(1501, 1, 7).unwrap();
        s.fail = match errno {
            ENOSPC => {
                |io| matches!(io.op, IoOp::Write { fua: true } | IoOp::WriteZeroes { .. }).then_some(ENOSPC)
            }
            _ => |io| (io.op == IoOp::Write { fua: true }).then_some(EDQUOT),
        };
        let payload = vec![1; BLOCK];
        let id = s.submit_flagged(op, 1500 * 1024, 1024, (op == Op::Write).then_some(&payload[..]), forced);
        assert_eq!(s.run(), [(id, Err(errno))], "{op:?}");
        s.fail = |_| None;
        assert!(s.write(1501, 1, 1).is_ok() && s.other(Op::Flush, 0, 0).is_ok(), "{op:?}");
        assert!(!s.detach().0, "no mark after a failed {op:?}");
    }
}

/// Two clients flush so that one flush always waits: a write with force unit access, which goes beside none, goes between two.
#[test]
fn flushes_that_come_later_do_not_keep_a_force_unit_access_waiting() {
    let forced = Flags { fua: true, ..Flags::default() };
    let mut s = Session::plain(config());
    s.write(1501, 1, 7).unwrap();
    let first = s.submit(Op::Flush, 0, 0, None);
    let mut flush = s.dispatch().unwrap();
    let ids = [1500, 1104].map(|b| s.submit_flagged(Op::Write, b * 1024, 1024, Some(&[1; BLOCK]), forced));
    let second = s.submit(Op::Flush, 0, 0, None);
    let late = s.submit_flagged(Op::Write, 1105 * 1024, 1024, Some(&[2; BLOCK]), forced);
    assert!(s.dispatch().is_none());
    s.complete(flush);
    let writes = [(); 2].map(|()| s.dispatch().unwrap());
    assert_eq!(writes.each_ref().map(|io| io.extent.offset() / 1024), [1500, 1104]);
    assert!(writes.iter().all(|io| io.op == IoOp::Write { fua: true }));
    assert!(s.dispatch().is_none(), "the flush waits for both, and the last write for the flush");
    let third = s.submit(Op::Flush, 0, 0, None);
    writes.into_iter().for_each(|io| s.complete(io));
    flush = s.dispatch().unwrap();
    assert_eq!(flush.op, IoOp::Flush);
    let fourth = s.submit(Op::Flush, 0, 0, None);
    assert!(s.dispatch().is_none());
    s.complete(flush);
    let answers: Vec<_> = s.run().into_iter().map(|(id, answer)| (id, answer.is_ok())).collect();
    assert_eq!(answers, [first, ids[0], ids[1], second, third, late, fourth].map(|id| (id, true)));
}

/// A client that waits for a flush is no pause, however long that takes, and the flush's end begins one.
#[test]
fn nothing_of_its_own_begins_while_a_client_flushes() {
    let mut s = Session::plain(config());
    let flush = s.submit(Op::Flush, 0, 0, None);
    assert_eq!(s.volume.poll_timeout(), None);
    let io = s.dispatch().unwrap();
    assert_eq!(io.op, IoOp::Flush);
    s.now += Nanos::from_millis(60_000);
    s.volume.handle_timeout(s.now);
    assert!(s.volume.poll_timeout().is_none() && s.dispatch().is_none(), "the bitmap is not loaded yet");
    s.complete(io);
    assert!(s.dispatch().is_none());
    assert!(s.volume.poll_timeout().unwrap() >= s.now + s.volume.config().idle_after);
    assert_eq!(s.run(), [(flush, Ok(vec![]))]);
}

/// Who flushes waits for the engine's own work like any other client, and it is charged with that.
#[test]
fn a_flush_behind_its_own_work_is_charged() {
    let mut s = Session::plain(config());
    s.now = s.volume.poll_timeout().unwrap();
    let own = s.dispatch().expect("the bitmap is loaded");
    assert_eq!((own.op, s.volume.pause_work().cost_ms), (IoOp::Read, 0.0));
    s.submit(Op::Flush, 0, 0, None);
    s.now += Nanos::from_millis(7);
    s.complete(own);
    assert_eq!(s.volume.pause_work().cost_ms, 8.0, "and the millisecond that it takes here");
    // Who comes behind it before all is quiet is as late.
    s.submit(Op::Flush, 0, 0, None);
    assert_eq!(s.volume.pause_work().cost_ms, 16.0);
    assert_eq!(s.run().len(), 2);
    s.submit(Op::Flush, 0, 0, None);
    assert_eq!(s.volume.pause_work().cost_ms, 16.0);
}

/// What waits in a device's own queue is waited for: nothing is read ahead meanwhile.
#[test]
fn no_trail_beside_a_request() {
    let mut s = Session::plain(config());
    let trail = BlockRange::new(1300, 1308);
    let probe = Probe { trail: Some(trail), ..Probe::default() };
    s.volume.set_policy(Box::new(probe));
    let ids = [1100, 1500].map(|b| s.submit(Op::Read, b * 1024, 1024, None));
    let first = s.dispatch().unwrap();
    let second = s.dispatch().unwrap();
    s.complete(first);
    assert!(s.dispatch().is_none(), "no trail beside the second");
    s.complete(second);
    let io = s.dispatch().unwrap();
    assert_eq!((io.op, io.extent), (IoOp::Read, trail.extent(BlockSize::B1024)));
    s.complete(io);
    assert_eq!(s.run().into_iter().map(|(id, _)| id).collect::<Vec<_>>(), ids);
}

#[test]
fn when_it_wants_to_be_called() {
    let mut s = Session::plain(config());
    s.policy(Scripted::default()).value(1100);
    // The bitmap is to be loaded, when nothing was asked for long enough.
    let at = s.volume.poll_timeout().unwrap();
    assert!(at >= s.now + s.volume.config().idle_after);
    // A request in progress: nothing to be called for.
    s.submit(Op::Read, 1100 * 1024, 1024, None);
    assert_eq!(s.volume.poll_timeout(), None);
    s.run();
    let at = s.volume.poll_timeout().unwrap();
    s.now = at - Nanos(1);
    s.idle(0);
    assert_eq!(s.volume.liveness().unwrap().unloaded_count(), 1, "not idle long enough");
    s.now = at;
    let io = s.dispatch().unwrap();
    assert_eq!(s.volume.poll_timeout(), None, "its own read is under way");
    s.complete(io);
    assert_eq!(s.volume.liveness().unwrap().unloaded_count(), 0);
    assert_eq!(s.volume.poll_timeout(), None, "nothing is left to do");
    // A copy is made at once by an eager policy; its page waits for the next round.
    s.copying_to(1300).value(1100);
    s.idle(100);
    assert_eq!(s.volume.stats().table_pages_written, 1);
    s.copying_to(1310).value(1101);
    s.reading_copies().idle(1);
    assert_eq!(s.volume.table().dirty_pages(), 1);
    let at = s.volume.poll_timeout().unwrap();
    assert!(at > s.now + Nanos::from_millis(4000), "{at:?} {:?}", s.now);
    s.now = at;
    s.idle(0);
    assert_eq!(s.volume.table().dirty_pages(), 0);
    assert_eq!(s.volume.poll_timeout(), None);
    s.copying_to(1320).value(1102);
    s.volume.begin_detach(s.now);
    assert_eq!(s.volume.poll_timeout(), None, "who ends a session drives it");
    assert!(s.volume.is_detaching());
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut s = Session::plain(config());
    let size = s.volume.size_bytes();
    assert_eq!((size, s.volume.block_size().bytes()), (3072 * 1024, 1024));
    let id = s.submit(Op::Read, size - 512, 1024, None);
    assert_eq!(s.run(), [(id, Err(fs2_engine::EINVAL))]);
    let id = s.submit(Op::Read, size - 512, 512, None);
    assert!(s.run()[0].1.is_ok());
    let empty = s.submit(Op::Write, size, 0, Some(&[]));
    assert_eq!(s.run(), [(empty, Ok(vec![]))]);
    assert!(id < empty);
    s.volume.begin_detach(s.now);
    let late = s.submit(Op::Read, 0, 512, None);
    assert_eq!(s.run(), [(late, Err(fs2_engine::ESHUTDOWN))]);
}

#[test]
fn a_flush_of_the_table_that_fails_forbids_the_mark() {
    for fails in [false, true] {
        let mut s = Session::attach_apart(&DATA, config());
        s.copying_to(1300).idle(1000).value(1100);
        s.idle(1000);
        assert_eq!(s.replicas(), [(1100, 1300)]);
        if fails {
            s.fail = |io| (io.op == IoOp::Flush && io.target == Target::Table).then_some(EIO);
        }
        s.volume.begin_detach(s.now);
        s.run();
        assert_eq!(s.volume.detached().unwrap().marked, !fails);
        // Nor is one written whose own flush may yet succeed.
        let found = Header::recover(&s.table[..PAGE_BYTES], &s.table[PAGE_BYTES..2 * PAGE_BYTES]);
        assert_eq!(found.header.unwrap().mark.is_some(), !fails);
    }
}

#[test]
fn what_overlaps_in_its_second_block_waits_too() {
    let mut s = Session::plain(config());
    s.policy(Scripted::default()).idle(10_000).write(1105, 1, 1).unwrap();
    let two = vec![3; 2 * BLOCK];
    let first = s.submit(Op::Write, 1100 * BLOCK as u64, two.len() as u64, Some(&two));
    let io = s.dispatch().unwrap();
    let read = s.submit(Op::Read, 1101 * BLOCK as u64, 512, None);
    let beside = s.submit(Op::Read, 1102 * BLOCK as u64, 512, None);
    let other = s.dispatch().unwrap();
    assert_eq!(other.extent.offset(), 1102 * BLOCK as u64);
    assert!(s.dispatch().is_none(), "the read waits for the write");
    s.complete(io);
    s.complete(other);
    let answers = s.run();
    assert_eq!(answers.iter().map(|a| a.0).collect::<Vec<_>>(), [first, beside, read]);
    assert_eq!(answers[2].1, Ok(vec![3; 512]));
}

#[test]
fn headers_that_fail_are_counted() {
    let mut s = Session::plain(config());
    s.policy(Scripted::default()).idle(10_000).write(1500, 1, 1).unwrap();
    // The mark is erased; the slot that held it is to be overwritten at an idle moment.
    s.fail = |io| (matches!(io.op, IoOp::Write { .. }) && io.extent.len() == 4096).then_some(EIO);
    s.idle(10_000);
    assert_eq!(s.volume.stats().table_errors, 1);
    s.fail = |_| None;
    s.idle(10_000);
    assert_eq!(s.volume.stats().table_errors, 1);
}

#[test]
fn no_copies_while_the_host_is_short() {
    let mut s = Session::plain(config());
    s.copying_to(1300).idle(1000);
    s.volume.host_is_short(true);
    s.value(1100);
    s.idle(1000);
    assert_eq!(s.replicas(), []);
    s.volume.host_is_short(false);
    s.value(1100);
    s.idle(1000);
    assert_eq!(s.replicas(), [(1100, 1300)]);
}

#[test]
fn what_an_attach_reports_and_refuses() {
    let device = image(&DATA, &[BlockRange::new(1100, 1104)], 1300);
    let attach = |mut device: Vec<u8>, distrust, written_since| {
        let options = AttachOptions { written_since, ..AttachOptions::default() };
        let config = EngineConfig { distrust, ..config() };
        let (volume, report) = Volume::attach(&mut device, None, config, &options).unwrap();
        (volume.standing().clone(), report.verified, report.unverified)
    };
    assert_eq!(attach(device.clone(), false, false), (Standing::Active, 4, 0));
    assert_eq!(attach(device.clone(), true, false), (Standing::Active, 0, 4));
    assert_eq!(attach(device.clone(), false, true), (Standing::Inactive(Inactive::WrittenSince), 0, 0));
    // A header for more pages than its file has, or for other blocks, is no header of this table.
    let mut reader = device.clone();
    let layout = fs2_ext2::Layout::read(&mut reader).unwrap();
    let at = fs2_ext2::TableFile::find(&layout, &mut reader).unwrap().unwrap().extents[0].1.offset() as usize;
    let header = Header::parse(&device[at..at + PAGE_BYTES]).unwrap();
    let other = Header::parse(&device[at + PAGE_BYTES..at + 2 * PAGE_BYTES]).unwrap();
    let header = header.into_iter().chain(other).max_by_key(|h| h.generation).unwrap();
    for (pages, block_size) in [(header.pages + 1, header.block_size), (header.pages, BlockSize::B4096)] {
        let mut device = device.clone();
        let wrong = Header { pages, block_size, ..header.clone() };
        for slot in 0..2 {
            device[at + slot * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(&wrong.encode());
        }
        let (standing, ..) = attach(device, false, false);
        assert!(matches!(standing, Standing::Inactive(Inactive::DamagedTable(_))), "{standing:?}");
    }
}

#[test]
fn each_reason_for_a_plain_device_has_its_words_and_its_command() {
    let text = || "x".to_owned();
    let check = Some("chkfs2 -f -p --table t d".to_owned());
    let all = [
        (Inactive::NotExt2(text()), "x", None),
        (Inactive::Unsupported(text()), "x", None),
        (Inactive::NotClean, "not cleanly unmounted", check.clone()),
        (Inactive::Errors, "recorded errors", check.clone()),
        (Inactive::NoTable, "no replica table", Some("mkfs2 --table t d".to_owned())),
        (Inactive::DamagedTable(text()), "cannot be used: x", check.clone()),
        (Inactive::OtherVersion(2), "has format version 2, and this FS2", None),
        (Inactive::NoMark, "did not end cleanly", check.clone()),
        (
            Inactive::Token(TokenDiffers::Superblock),
            "changed outside FS2; what differs: superblock",
            check.clone(),
        ),
        (
            Inactive::Token(TokenDiffers::Groups),
            "changed outside FS2, perhaps mounted by a copy of its superblock (sb=) or copied without these (e2image); what differs: group descriptors or a copy",
            check.clone(),
        ),
        (
            Inactive::Token(TokenDiffers::CopiesLeftOut),
            "of an earlier FS2, which did not compare the copies",
            check.clone(),
        ),
        (
            Inactive::Unread { what: text(), block: BlockNo(32768), block_bytes: 4096 },
            "x",
            Some(
                "dd if=/dev/zero of=d bs=4096 seek=32768 count=1 oflag=direct conv=notrunc && tune2fs -C 0 d && chkfs2 -f -p --table t d"
                    .to_owned(),
            ),
        ),
        (
            Inactive::WrittenSince,
            "renamed, linked, or its mode or times changed), or taken away and brought back, since",
            check,
        ),
    ];
    for (why, words, command) in all {
        assert!(why.to_string().contains(words), "{why}");
        assert_eq!(why.remedy("d", Some("t")), command, "{why}");
        assert_eq!(why.remedy("d", None), command.map(|c| c.replace("--table t ", "")));
    }
}

/// Found: files deleted without a discard; behind the next mount their replicas were gone, and no counter told of it.
#[test]
fn what_goes_when_its_bitmap_is_read_is_counted() {
    let mut s = Session::copied(config());
    let at = Plan { shape: Shape::Plain, grain: Grain::SMALL }.bitmap(0) as usize * BLOCK;
    let mut bitmap = s.device[at..at + BLOCK].to_vec();
    for block in [1100, 1101] {
        bitmap[(block - 1) / 8] &= !(1 << ((block - 1) % 8));
    }
    let clean = s.device[1024..2048].to_vec();
    let mut mounted = clean.clone();
    mounted[58] &= !1;
    for (at, bytes) in [(1024, mounted), (at, bitmap), (1024, clean)] {
        s.submit(Op::Write, at as u64, BLOCK as u64, Some(&bytes));
        s.run();
    }
    s.idle(10_000);
    assert_eq!((s.replicas().len(), s.volume.stats().invalidated), (4, 0), "a cleared bit changes nothing");
    s.volume.begin_detach(s.now);
    s.run();
    let ended = s.volume.detached().unwrap();
    assert!(ended.marked, "{:?}", ended.why_not);
    let device = s.device;
    let mut s = Session::attach(device, config());
    assert_eq!(s.replicas().len(), 4);
    s.idle(10_000);
    assert_eq!(s.replicas(), [(1102, 1302), (1103, 1303)]);
    assert_eq!((s.volume.stats().invalidated, s.volume.stats().reclaimed), (2, 0));
    // Of a bitmap that cannot be read the replicas in its group go.
    let mut s = Session::copied(config());
    s.fail = |io| (io.op == IoOp::Read).then_some(EIO);
    s.idle(10_000);
    assert_eq!((s.replicas().len(), s.volume.stats().invalidated), (0, 4));
}

#[test]
fn a_bitmap_that_is_not_the_marks_freezes() {
    let mut s = Session::copied(config());
    s.policy(Scripted::default());
    // Block 1200 is in use, says somebody.
    let bitmap = Plan { shape: Shape::Plain, grain: Grain::SMALL }.bitmap(0) as usize * BLOCK;
    s.device[bitmap + 1199 / 8] |= 1 << (1199 % 8);
    s.idle(10_000);
    assert_eq!(*s.volume.standing(), Standing::Frozen(fs2_engine::Freeze::ForeignWriter));
    assert_eq!(s.replicas(), []);
}

#[test]
fn policies_see_what_is_vacant() {
    let mut s = Session::copied(EngineConfig { degree: 2, ..config() });
    let probe = Probe::default();
    let look = |s: &mut Session, block| {
        s.volume.set_policy(Box::new(probe.clone()));
        s.value(block);
        probe.seen.lock().unwrap().pop().unwrap()
    };
    assert_eq!(look(&mut s, 1100), (None, false), "the bitmap is not loaded");
    s.policy(Scripted::default()).idle(10_000).write(1400, 1, 1).unwrap();
    let runs = |cut: &[(u32, u32)]| {
        let mut free: Vec<BlockRange> = Vec::new();
        // Behind the second piece of data lies the table.
        let taken = [(1100, 1106), (1300, 1304), (1400, 1401), (1500, 1543)];
        for b in 1024..2048u32 {
            if taken.iter().chain(cut).any(|&(a, e)| (a..e).contains(&b)) {
                continue;
            }
            match free.last_mut() {
                Some(r) if r.end() == b => *r = BlockRange::new(r.start(), b + 1),
                _ => free.push(BlockRange::new(b, b + 1)),
            }
        }
        free
    };
    assert_eq!(look(&mut s, 1100), (Some(runs(&[])), false), "one replica of two");
    // A second replica, and a copy under way: neither place is vacant.
    s.copying_to(1310).value(1100);
    s.idle(100);
    assert_eq!(look(&mut s, 1100), (Some(runs(&[(1310, 1311)])), true));
    assert_eq!(look(&mut s, 1104), (Some(runs(&[(1310, 1311)])), false));
    s.copying_to(1320);
    let read = s.submit(Op::Read, 1104 * 1024, 1024, None);
    let io = s.dispatch().unwrap();
    s.complete(io);
    let copy = s.dispatch().unwrap();
    assert_eq!((copy.op, copy.extent.offset()), (IoOp::Write { fua: false }, 1320 * 1024));
    assert_eq!(s.run()[0].0, read);
    assert_eq!(look(&mut s, 1105), (Some(runs(&[(1310, 1311), (1320, 1321)])), false));
    s.complete(copy);
    s.volume.foreign_writer(s.now);
    assert_eq!(s.volume.liveness().unwrap().free_estimate(), 0);
}

#[test]
fn predicted_parts_are_added_up() {
    let drive = Some(fs2_disk::DriveProfile::builtin("wd800-repaired").unwrap());
    let mut s = Session::plain(EngineConfig { drive, ..config() });
    s.policy(Scripted::default());
    for n in 0..40 {
        s.value([1100, 1500][n % 2]);
        s.write(1501, 1, 1).unwrap();
    }
    let m = &s.volume.stats().modelled;
    assert!(m.count > 0 && m.count <= 80, "{m:?}");
    assert!(m.seek > 0 && m.rotation > 0 && m.transfer > 0, "{m:?}");
    // No access takes longer than a few revolutions and a full stroke.
    let most = u128::from(m.count) * 60_000_000;
    assert!(m.seek + m.rotation + m.transfer < most, "{m:?}");
}
