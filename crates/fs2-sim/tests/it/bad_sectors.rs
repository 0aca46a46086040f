//! A disk with a bad sector here and there: what the engine does of its own does not stand before it for ever, and the rest is done.

use fs2_block::{BlockNo, BlockRange, BlockSize, Nanos, Op};
use fs2_disk::DriveProfile;
use fs2_engine::{EDQUOT, EIO, ENOSPC, EngineConfig, Io, IoOp, Target, WatermarkState};
use fs2_sim::glue::Scripted;
use fs2_table::PAGE_BYTES;
use fs2_table::value::VALUE_MAX;

use crate::session::{BLOCK, Probe, Session, config, image};

const BS: BlockSize = BlockSize::B1024;
const PAGE: u64 = PAGE_BYTES as u64;

fn at(block: u32) -> u64 {
    u64::from(block) * BLOCK as u64
}

fn is_copy(io: &Io, block: u32) -> bool {
    matches!(io.op, IoOp::Write { .. }) && io.extent.overlaps(BlockNo(block).extent(BS))
}

/// So many milliseconds pass, in which the engine does at most `most` I/Os.
fn idles(s: &mut Session, ms: u64, most: usize) {
    s.now += Nanos::from_millis(ms);
    s.volume.handle_timeout(s.now);
    for _ in 0..most {
        let Some(io) = s.dispatch() else { return };
        s.complete(io);
    }
    panic!("it has not come to rest: {:?}", &s.done[s.done.len() - 4..]);
}

#[test]
fn a_bad_page_of_the_table_keeps_no_other_from_being_written() {
    let (mut s, _) = Session::attach_apart_of(150, |pages| pages.fill(0xee));
    s.policy(Scripted::default()).write(1500, 1, 1).unwrap();
    s.fail = |io| (io.target == Target::Table && io.extent.offset() == 70 * PAGE).then_some(EIO);
    idles(&mut s, 10_000, 1000);
    let stats = s.volume.stats();
    assert_eq!((stats.table_pages_written, stats.table_errors), (149, 1));
    assert_eq!(s.volume.table().dirty_pages(), 1);
}

#[test]
fn a_superblock_that_cannot_be_read_is_not_read_again_and_again() {
    let (mut s, _) = Session::attach_apart_of(150, |pages| pages.fill(0xee));
    s.policy(Scripted::default()).write(1500, 1, 1).unwrap();
    s.fail = |io| (io.op == IoOp::Read && io.extent.offset() < at(2)).then_some(EIO);
    idles(&mut s, 10_000, 1000);
    assert_eq!(s.volume.table().dirty_pages(), 150, "nobody knows whether the volume is another's");
}

/// Places near the head are chosen by rule: the next copy would go to the same one, and fail again.
#[test]
fn where_a_copy_failed_no_other_is_made() {
    for errno in [EIO, ENOSPC, EDQUOT] {
        let mut s = Session::plain(config());
        s.copying_to(1300).load_bitmap();
        s.fail = match errno {
            EIO => |io| is_copy(io, 1300).then_some(EIO),
            ENOSPC => |io| is_copy(io, 1300).then_some(ENOSPC),
            _ => |io| is_copy(io, 1300).then_some(EDQUOT),
        };
        s.value(1100);
        s.idle(1000);
        assert_eq!((s.volume.stats().copy_errors, s.replicas()), (1, vec![]), "{errno}");
        s.value(1100);
        s.idle(1000);
        assert_eq!(s.volume.stats().copy_errors, 1, "{errno}: tried there once more");
        // A lack of room says nothing of the place, and ends copying everywhere.
        let live = s.volume.liveness().unwrap();
        assert_eq!(live.is_free(BlockNo(1300)), errno != EIO);
        s.copying_to(1310).value(1100);
        s.idle(1000);
        assert_eq!(s.replicas(), if errno == EIO { vec![(1100, 1310)] } else { vec![] });
        // What a file system wrote there and gave back again is any free block.
        s.fail = |_| None;
        s.superblock(false, 1);
        s.write(1300, 1, 1).unwrap();
        s.other(Op::Discard, 1300, 1).unwrap();
        assert!(s.volume.liveness().unwrap().is_free(BlockNo(1300)));
    }
}

#[test]
fn where_a_copy_could_not_be_read_no_other_is_made() {
    for loaded in [true, false] {
        let mut s = Session::copied(config());
        if loaded {
            s.load_bitmap();
        }
        s.reading_copies();
        s.fail = |io| (io.op == IoOp::Read && io.extent.overlaps(BlockNo(1301).extent(BS))).then_some(EIO);
        // Unseen by the client.
        assert_eq!(s.value(1101), 0x12);
        assert_eq!(s.replicas(), [(1100, 1300), (1102, 1302), (1103, 1303)]);
        s.load_bitmap();
        let free = |s: &Session, b: u32| s.volume.liveness().unwrap().is_free(BlockNo(b));
        assert_eq!((free(&s, 1300), free(&s, 1301)), (true, false), "loaded before: {loaded}");
        s.copying_to(1301).value(1101);
        s.idle(1000);
        assert_eq!(s.replicas().len(), 3);
        // It was nobody's write: the mark may be left.
        let (marked, _) = s.detach();
        assert!(marked);
    }
}

fn reads(io: &Io, block: u32) -> bool {
    io.op == IoOp::Read && io.extent.overlaps(BlockNo(block).extent(BS))
}

/// 1100 to 1103 have copies from 1300 on.
fn copied(config: EngineConfig) -> Session {
    let mut s = Session::copied(config);
    // Rather from where it is.
    s.policy(Scripted::default());
    s
}

/// So often did I/O touch a block.
fn touched(s: &Session, block: u32) -> usize {
    s.done.iter().filter(|(_, extent)| extent.overlaps(BlockNo(block).extent(BS))).count()
}

#[test]
fn what_cannot_be_read_is_answered_from_its_copy() {
    let mut s = copied(config());
    s.fail = |io| reads(io, 1101).then_some(EIO);
    // Unseen by the client, and whatever the policy prefers.
    assert_eq!((s.value(1101), touched(&s, 1101)), (0x12, 1));
    // The drive would try it for seconds each time.
    assert_eq!((s.value(1101), touched(&s, 1101)), (0x12, 1));
    assert_eq!(&s.read(1100, 3).unwrap()[BLOCK..][..2], [0x12, 0]);
    assert_eq!(touched(&s, 1101), 1, "nor with others");
    let stats = s.volume.stats();
    assert_eq!((stats.original_errors, stats.reads_from_replica, stats.failed.reads), (1, 3, 0));
    // It is all that is left: it gives way to none.
    assert_eq!(s.volume.table().age_and_value(BlockNo(1301)).map(|v| v.1), Some(VALUE_MAX));
    // A part of a block, from a copy that is read whole.
    let id = s.submit(Op::Read, at(1101) + 512, 512, None);
    assert_eq!(s.run(), [(id, Ok([0x12, 0].repeat(256)))]);
    // What is written may be read again, and is.
    s.fail = |_| None;
    s.write(1101, 1, 0x77).unwrap();
    assert_eq!((s.value(1101), touched(&s, 1101)), (0x7777, 3));
    assert_eq!(s.replicas(), [(1100, 1300), (1102, 1302), (1103, 1303)]);
}

#[test]
fn a_sector_that_is_read_after_all_is_no_bad_one() {
    let mut s = copied(config());
    s.fail = |io| reads(io, 1101).then_some(EIO);
    assert_eq!(&s.read(1101, 2).unwrap()[..2], [0x12, 0]);
    s.fail = |_| None;
    // With a block that has no copy it comes from where it is.
    assert_eq!(s.read(1101, 4).unwrap()[..2], [0x12, 0]);
    assert_eq!((s.value(1101), touched(&s, 1301)), (0x12, 1), "{:?}", s.done);
}

#[test]
fn an_error_stays_one_where_no_copy_has_all_that_was_asked_for() {
    let mut s = copied(config());
    s.fail = |io| reads(io, 1103).then_some(EIO);
    assert_eq!(s.read(1103, 2), Err(EIO));
    assert_eq!((s.value(1103), s.value(1104)), (0x14, 0x15), "one by one they are read");
    let stats = s.volume.stats();
    assert_eq!((stats.original_errors, stats.failed.reads), (1, 1));
    // Neither does one that nobody has verified answer.
    let mut s = copied(EngineConfig { distrust: true, ..config() });
    s.fail = |io| reads(io, 1101).then_some(EIO);
    assert_eq!(s.read(1101, 1), Err(EIO));
    assert_eq!((touched(&s, 1301), s.volume.stats().original_errors), (0, 0));
}

#[test]
fn where_neither_is_read_the_copy_stays_for_another_try() {
    let mut s = copied(config());
    s.fail = |io| (reads(io, 1101) || reads(io, 1301)).then_some(if reads(io, 1101) { EIO } else { ENOSPC });
    for tries in 1..=2 {
        assert_eq!(s.read(1101, 1), Err(EIO), "the original's error");
        assert_eq!((touched(&s, 1101), touched(&s, 1301)), (tries, tries));
    }
    assert_eq!(s.replicas().len(), 4);
    s.fail = |io| reads(io, 1101).then_some(EIO);
    assert_eq!(s.value(1101), 0x12);
    // One that holds other bytes is none (R8).
    s.device[1301 * BLOCK] ^= 1;
    assert_eq!(s.read(1101, 1), Err(EIO));
    assert_eq!((s.replicas().len(), s.volume.stats().hash_mismatches), (3, 1));
}

#[test]
fn a_write_that_comes_meanwhile_leaves_no_copy_to_answer() {
    for (offset, len) in [(at(1101), BLOCK), (at(1101) + 512, 512)] {
        // While the original is read, and before the copy is.
        for first_done in [false, true] {
            let mut s = copied(config());
            s.fail = |io| reads(io, 1101).then_some(EIO);
            let read = s.submit(Op::Read, at(1101), BLOCK as u64, None);
            let mut io = s.dispatch();
            if first_done {
                s.complete(io.take().unwrap());
            }
            let write = s.submit(Op::Write, offset, len as u64, Some(&vec![7; len]));
            io.into_iter().for_each(|io| s.complete(io));
            let mut ends: Vec<_> = s.run().into_iter().map(|(id, answer)| (id, answer.err())).collect();
            ends.sort_unstable();
            assert_eq!(ends, [(read, Some(EIO)), (write, None)]);
            assert_eq!(touched(&s, 1301), 0);
        }
    }
}

#[test]
fn an_outage_that_passed_is_forgotten() {
    for copies_first in [false, true] {
        let mut s = copied(config());
        s.fail = |io| (io.op == IoOp::Read).then_some(EIO);
        for _ in 0..2 {
            s.policy(Scripted { prefer: copies_first, ..Scripted::default() });
            assert_eq!(s.read(1101, 2), Err(EIO));
        }
        // Whichever was tried first: it may be all that is left.
        assert_eq!((s.replicas().len(), s.volume.stats().replica_errors), (4, 2));
        assert_eq!((s.volume.stats().original_errors, s.volume.stats().failed.reads), (0, 2));
        s.fail = |_| None;
        let before = touched(&s, 1101);
        s.policy(Scripted::default());
        assert_eq!((s.value(1101), touched(&s, 1101)), (0x12, before + 1), "from where it is");
    }
}

#[test]
fn what_is_read_back_is_no_bad_sector() {
    let mut s = copied(config());
    s.fail = |io| reads(io, 1101).then_some(EIO);
    assert_eq!((s.value(1101), s.value(1101), touched(&s, 1101)), (0x12, 0x12, 1));
    s.fail = |_| None;
    // The sample of originals is read.
    s.idle(1000);
    let before = touched(&s, 1101);
    assert_eq!((before, s.value(1101), touched(&s, 1101)), (2, 0x12, 3));
}

/// 1100 has copies at 1300 and 1310, and is read from where it is.
fn copied_twice() -> Session {
    let mut s = Session::copied(EngineConfig { degree: 2, ..config() });
    s.idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000).copying_to(1310).value(1100);
    s.idle(100).policy(Scripted::default());
    assert_eq!(s.replicas()[..2], [(1100, 1300), (1100, 1310)]);
    s.done.clear();
    s
}

#[test]
fn of_two_copies_the_one_that_is_read_stays() {
    let mut s = copied_twice();
    s.fail = |io| (reads(io, 1100) || reads(io, 1300)).then_some(EIO);
    assert_eq!((s.value(1100), touched(&s, 1100), touched(&s, 1300), touched(&s, 1310)), (0x11, 1, 1, 1));
    assert_eq!(s.replicas()[0], (1100, 1310), "no other read waits for the dead one");
    assert!(!s.volume.liveness().unwrap().is_free(BlockNo(1300)));
    assert_eq!((s.value(1100), touched(&s, 1100), touched(&s, 1300), touched(&s, 1310)), (0x11, 1, 1, 2));
    assert_eq!((s.volume.stats().replica_errors, s.volume.stats().failed.reads), (1, 0));
}

#[test]
fn a_copy_that_dies_leaves_the_other_before_the_original() {
    let mut s = copied_twice();
    s.fail = |io| reads(io, 1100).then_some(EIO);
    assert_eq!((s.value(1100), touched(&s, 1300)), (0x11, 1));
    s.fail = |io| (reads(io, 1100) || reads(io, 1300)).then_some(EIO);
    assert_eq!((s.value(1100), touched(&s, 1100), touched(&s, 1310)), (0x11, 1, 1));
    assert_eq!(s.replicas()[0], (1100, 1310));
    // The last is tried, and the original after it.
    s.fail = |io| (io.op == IoOp::Read).then_some(EIO);
    assert_eq!((s.read(1100, 1), touched(&s, 1100), touched(&s, 1310)), (Err(EIO), 2, 2));
    assert_eq!(s.replicas()[0], (1100, 1310));
}

#[test]
fn a_copy_of_what_cannot_be_read_gives_way_to_none() {
    // For the policy, below low, below critical.
    for (by_policy, written) in [(true, 76), (false, 200), (false, 260)] {
        let mut s = crate::free::narrow(600, [60, 40, 20], &[]);
        for n in 0..5 {
            s.copying_to(1600 + n * 64).idle(1000).read(1000 + n * 64, 64).unwrap();
            s.idle(100);
        }
        assert_eq!(s.volume.table().len(), 320);
        s.policy(Scripted::default());
        s.fail = |io| reads(io, 1100).then_some(EIO);
        assert_eq!((s.value(1100), touched(&s, 1700)), (1100, 2));
        if by_policy {
            let evict = Some(BlockRange::new(1600, 1920));
            s.policy(Scripted { evict, ..Scripted::default() });
        }
        s.write(1925, 75, 1).unwrap();
        s.write(1400, written - 75, 1).unwrap();
        // Below low what lies in a row goes together, or not.
        let left = s.replicas();
        assert!(
            left.contains(&(1100, 1700)) && left.len() == if written == 200 { 64 } else { 1 },
            "{left:?}"
        );
        assert_eq!((s.value(1100), s.volume.stats().reclaimed), (1100, 320 - left.len() as u64));
        if written == 200 {
            s.write(1728, 192, 1).unwrap();
            s.write(1600, 48, 1).unwrap();
            assert_eq!(s.volume.watermark_state(), WatermarkState::Low);
            assert_eq!(s.replicas(), left, "they lie in a row with it");
        }
        if written == 260 {
            // Nothing else is left to give way, and there is still less than that.
            s.write(1600, 100, 1).unwrap();
            s.write(1701, 219, 1).unwrap();
            assert_eq!(s.volume.watermark_state(), WatermarkState::Critical);
            assert_eq!((s.value(1100), s.replicas()), (1100, vec![(1100, 1700)]));
        }
    }
}

/// Nor while its original was tried and it is yet to be read.
#[test]
fn nor_does_one_that_is_about_to_be_read() {
    for row in 0..5 {
        let mut s = crate::free::narrow(600, [60, 40, 20], &[]);
        for n in 0..5 {
            s.copying_to(1600 + n * 64).idle(1000).read(1000 + n * 64, 64).unwrap();
            s.idle(100);
        }
        s.policy(Scripted::default());
        s.fail = |io| (io.op == IoOp::Read && io.extent.offset() < at(1400)).then_some(EIO);
        let block = 1000 + row * 64 + 36;
        let read = s.submit(Op::Read, at(block), BLOCK as u64, None);
        let original = s.dispatch().unwrap();
        s.complete(original);
        // Below low before anything else is dispatched.
        for (start, blocks) in [(1925, 75), (1400, 125)] {
            s.submit(Op::Write, at(start), blocks * BLOCK as u64, Some(&vec![1; blocks as usize * BLOCK]));
        }
        assert!(s.replicas().len() < 320);
        let answers = s.run();
        let answer = answers.into_iter().find(|(id, _)| *id == read).unwrap().1;
        assert_eq!(answer.map(|b| u32::from(u16::from_le_bytes([b[0], b[1]]))), Ok(block), "row {row}");
    }
}

/// A drive tries for seconds. Nothing of that is a seek, a wait for the arm or what copies cost.
#[test]
fn the_time_of_a_failure_is_no_access() {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut s = copied(EngineConfig { drive: Some(drive), ..config() });
    s.takes = Nanos::from_millis(9);
    (0..20).for_each(|i| assert!(s.read([1100, 3000][i % 2], 1).is_ok()));
    let positioning = s.volume.head().mean_positioning_ms();
    let (reads_before, wait) = (s.volume.stats().read_access.count(), s.volume.stats().read_wait);
    let probe = Probe::default();
    s.volume.set_policy(Box::new(probe.clone()));
    s.fail = |io| reads(io, 1101).then_some(EIO);
    s.submit(Op::Read, at(1101), BLOCK as u64, None);
    let io = s.dispatch().unwrap();
    s.takes = Nanos::from_millis(7000);
    s.complete(io);
    assert_eq!(s.volume.head().mean_positioning_ms(), positioning);
    // But the arm was there last.
    let head = s.volume.head();
    let positioned = |block| head.positioning_ns(s.now, Op::Read, BlockNo(block).sector(BS), BLOCK as u64);
    assert_eq!(head.last(), BlockNo(1102).sector(BS));
    assert!(positioned(900) < positioned(2900));
    let failed = s.now;
    s.takes = Nanos::from_millis(9);
    assert!(s.run()[0].1.is_ok());
    assert_eq!(*probe.times.lock().unwrap(), [(failed, Nanos::from_millis(9))]);
    assert!((s.volume.head().mean_positioning_ms() - positioning).abs() < 1.0);
    let stats = s.volume.stats();
    assert_eq!((stats.read_access.count(), stats.read_wait), (reads_before + 1, wait));
    assert!(stats.read_access.total() < Nanos::from_millis(1000), "{:?}", stats.read_access);
    // Nor, where nothing answers in the end, a read that took no time at all.
    let all = |s: &mut Session, is_ok| {
        (0..300).for_each(|i| assert_eq!(s.read([1104, 1500][i % 2], 1).is_ok(), is_ok));
    };
    (0..4).for_each(|_| all(&mut s, true));
    let plain = s.volume.head().plain_read_ms();
    s.fail = |io| (io.op == IoOp::Read).then_some(EIO);
    all(&mut s, false);
    assert!(s.volume.head().plain_read_ms() > plain / 1.1, "{plain}");
}

/// A disk that slept: what a copy saves was reckoned from seconds.
#[test]
fn a_wait_of_seconds_is_not_what_serving_takes() {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let mut s = copied(EngineConfig { drive: Some(drive), ..config() });
    let probe = Probe::default();
    s.volume.set_policy(Box::new(probe.clone()));
    for (blocks, ms) in [(1, 9), (1, 8000), (64, 8000)] {
        s.takes = Nanos::from_millis(ms);
        s.read(1500, blocks).unwrap();
    }
    let served: Vec<_> = probe.times.lock().unwrap().iter().map(|t| t.1).collect();
    assert_eq!(served[0], Nanos::from_millis(9));
    assert!((20..100).contains(&(served[1].0 / 1_000_000)), "{served:?}");
    let transfer = s.volume.head().transfer(63 * BLOCK as u64);
    assert!(served[2].since(served[1]) > Nanos(3 * transfer.0), "more bytes take longer: {served:?}");
}

/// Nor is it what an access of the engine's own takes: in pauses as long as before there would be no time for any.
#[test]
fn a_copy_that_failed_makes_no_pause_too_short() {
    let mut s = Session::plain(config());
    s.policy(Scripted::default()).load_bitmap();
    for _ in 0..64 {
        s.value(1500);
        s.now += Nanos::from_millis(200);
    }
    let copying_to = |s: &mut Session, target| {
        s.policy(Scripted { capture: true, target: Some(target), ..Scripted::default() }).value(1100);
        s.now += Nanos::from_millis(100);
        s.volume.handle_timeout(s.now);
        while let Some(io) = s.dispatch() {
            s.takes = Nanos::from_millis(if is_copy(&io, 1300) { 7000 } else { 1 });
            s.complete(io);
        }
    };
    s.fail = |io| is_copy(io, 1300).then_some(EIO);
    copying_to(&mut s, 1300);
    assert_eq!(touched(&s, 1300), 1);
    copying_to(&mut s, 1310);
    assert_eq!(s.replicas(), [(1100, 1310)]);
}

/// A drive that tries for seconds is no reason to read no copies, nor trails.
#[test]
fn a_failure_is_none_of_the_slowest_responses() {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in");
    let data: Vec<(u32, u16)> = (1000..1064).chain([1500]).map(|b| (b, b as u16)).collect();
    let image = image(&data, &[BlockRange::new(1000, 1064)], 1300);
    let mut s = Session::attach(image, EngineConfig { drive: Some(drive), ..config() });
    s.policy(Scripted::default());
    s.takes = Nanos::from_millis(9);
    (0..640).for_each(|i| assert_eq!(s.value(1000 + i * 17 % 64), (1000 + i * 17 % 64) as u16));
    s.fail = |io| (io.op == IoOp::Read && io.extent.offset() < at(1064)).then_some(EIO);
    for block in 1000..1040 {
        s.submit(Op::Read, at(block), BLOCK as u64, None);
        s.takes = Nanos::from_millis(7000);
        let original = s.dispatch().unwrap();
        s.complete(original);
        s.takes = Nanos::from_millis(9);
        assert!(s.run()[0].1.is_ok());
    }
    assert_eq!(s.volume.replica_gate().unwrap().closings, 0);
    s.fail = |_| None;
    let trail = BlockRange::new(1310, 1318);
    s.volume.set_policy(Box::new(Probe { trail: Some(trail), ..Probe::default() }));
    s.value(1500);
    assert_eq!(s.done.last(), Some(&(IoOp::Read, trail.extent(BS))));
}
