//! A disk with a bad sector here and there: what the engine does of its own does not stand before it for ever, and the rest is done.

use fs2_block::{BlockNo, BlockSize, Nanos, Op};
use fs2_engine::{EDQUOT, EIO, ENOSPC, EngineConfig, Io, IoOp, Target};
use fs2_sim::glue::Scripted;
use fs2_table::PAGE_BYTES;
use fs2_table::value::VALUE_MAX;

use crate::session::{BLOCK, Session, config};

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
