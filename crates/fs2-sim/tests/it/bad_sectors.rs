//! A disk with a bad sector here and there: what the engine does of its own does not stand before it for ever, and the rest is done.

use fs2_block::{BlockNo, BlockSize, Nanos, Op};
use fs2_engine::{EDQUOT, EIO, ENOSPC, Io, IoOp, Target};
use fs2_sim::glue::Scripted;
use fs2_table::PAGE_BYTES;

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
