//! What frees blocks and what takes them: watermarks, punches, discards.

use fs2_block::{BlockNo, BlockRange, ConnectionId, Op, Permille};
use fs2_engine::{
    DiscardMode, EIO, EOPNOTSUPP, EngineConfig, Inactive, IoOp, Standing, WatermarkState, Watermarks,
};
use fs2_ext2::Freeze;
use fs2_sim::glue::Scripted;
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};

use crate::session::{BLOCK, DATA, Session, config, image};

/// A volume of which `free` blocks of the middle are free: data fills the rest of it.
pub(crate) fn narrow(free: u32, marks: [u16; 3], copied: &[BlockRange]) -> Session {
    narrow_with(free, marks, copied, config())
}

fn narrow_with(free: u32, marks: [u16; 3], copied: &[BlockRange], config: EngineConfig) -> Session {
    let data: Vec<(u32, u16)> =
        (30..3071).filter(|b| !(1400..1400 + free).contains(b)).map(|b| (b, b as u16)).collect();
    // The table takes the first free blocks.
    let p = |n| Permille::new(n).unwrap();
    let watermarks = Watermarks::new(p(marks[0]), p(marks[1]), p(marks[2])).unwrap();
    let space = Permille::new(1000).unwrap();
    let config = EngineConfig { watermarks, space, ..config };
    Session::attach(image(&data, copied, 1420), config)
}

#[test]
fn the_watermarks_start_and_stop_copying() {
    let mut s = narrow(600, [150, 100, 50], &[]);
    let free = s.volume.free_share();
    assert!(free > Permille::new(150).unwrap(), "{free}");
    assert_eq!(s.volume.watermark_state(), WatermarkState::Copying);
    s.copying_to(1600).idle(1000).read(1000, 64).unwrap();
    s.idle(100);
    assert_eq!(s.volume.table().len(), 64);
    // Free blocks are used: between high and low copies go on, below low they stop and replicas go.
    s.write(1700, 100, 1).unwrap();
    assert!(s.volume.free_share() < Permille::new(150).unwrap(), "{}", s.volume.free_share());
    assert_eq!(s.volume.watermark_state(), WatermarkState::Copying);
    assert_eq!(s.volume.stats().reclaimed, 0);
    s.write(1800, 120, 1).unwrap();
    assert_eq!(s.volume.stats().reclaimed, 64, "as many as one step takes");
    let share = s.volume.free_share();
    assert!(share < Permille::new(150).unwrap(), "{share}");
    // No copies until there is more than high again.
    assert_eq!(s.volume.watermark_state(), WatermarkState::Suspended);
    s.read(1000, 4).unwrap();
    s.idle(100);
    assert_eq!((s.volume.table().len(), s.volume.log_blocks()), (0, 0));
    s.other(Op::Discard, 1700, 100).unwrap();
    s.other(Op::Discard, 1800, 120).unwrap();
    // At the next event.
    s.idle(1);
    assert_eq!(s.volume.watermark_state(), WatermarkState::Copying);
    s.read(1000, 4).unwrap();
    s.idle(100);
    assert_eq!(s.volume.table().len(), 4);
}

#[test]
fn below_low_some_go_and_below_critical_whole_regions() {
    // Of 600 free blocks 320 hold replicas; so many of the rest are written at once.
    // What lies in a row goes together, up to 64 of one page of the table: of 248 and 72, three times 64, 56 and again 64.
    for (written, left) in [(200, 320 - 312), (260, 0)] {
        let mut s = narrow(600, [60, 40, 20], &[]);
        for n in 0..5 {
            s.copying_to(1600 + n * 64).idle(1000).read(1000 + n * 64, 64).unwrap();
            s.idle(100);
        }
        assert_eq!((s.volume.table().len(), s.volume.stats().reclaimed), (320, 0));
        s.policy(Scripted::default());
        let vacant = s.volume.free_share();
        s.write(1925, 75, 1).unwrap();
        s.write(1400, written - 75, 1).unwrap();
        assert!(vacant > Permille::new(60).unwrap(), "{vacant}");
        assert_eq!(s.volume.table().len(), left, "{written} written");
        assert_eq!(s.volume.stats().reclaimed, 320 - left as u64);
    }
}

#[test]
fn evicted_replicas_are_punched_where_that_is_asked() {
    for punch in [false, true] {
        let mut s = Session::copied(EngineConfig { punch, ..config() });
        s.idle(1000).write(1500, 1, 1).unwrap();
        let evict = |range| Scripted { evict: Some(range), eager: true, ..Scripted::default() };
        s.policy(evict(BlockRange::new(1301, 1303))).idle(1000);
        assert_eq!((s.volume.stats().reclaimed, s.replicas()), (2, vec![(1100, 1300), (1103, 1303)]));
        s.write(1103, 1, 3).unwrap();
        s.idle(1000);
        let expected: &[u32] = if punch { &[1301, 1302, 1303] } else { &[] };
        assert_eq!(punched(&s), expected);
    }
}

/// Every block that was punched, ascending.
fn punched(s: &Session) -> Vec<u32> {
    let extents = s.done.iter().filter(|d| d.0 == IoOp::Discard).map(|d| d.1);
    let mut blocks: Vec<u32> = extents
        .flat_map(|e| e.offset() / BLOCK as u64..e.end() / BLOCK as u64)
        .map(|b| u32::try_from(b).unwrap())
        .collect();
    blocks.sort();
    blocks
}

/// Also what gives way below the critical mark: in rows, of which what was taken since stays as it is.
#[test]
fn whole_regions_that_go_are_punched_where_that_is_asked() {
    for punch in [false, true] {
        let mut s = narrow_with(600, [60, 40, 20], &[], EngineConfig { punch, ..config() });
        for n in 0..5 {
            s.copying_to(1600 + n * 64).idle(1000).read(1000 + n * 64, 64).unwrap();
            s.idle(100);
        }
        s.policy(Scripted::default());
        s.write(1925, 75, 1).unwrap();
        s.write(1400, 185, 1).unwrap();
        assert_eq!((s.volume.table().len(), s.volume.stats().reclaimed), (0, 320));
        // Two of them are taken before there is a rest.
        s.write(1700, 2, 1).unwrap();
        assert_eq!(punched(&s), []);
        s.idle(10_000);
        let expected: Vec<u32> = if punch { (1600..1700).chain(1702..1920).collect() } else { Vec::new() };
        assert_eq!(punched(&s), expected);
        let punches = s.done.iter().filter(|d| d.0 == IoOp::Discard);
        assert!(punches.clone().all(|d| d.1.len() <= 64 * BLOCK as u64), "as long as a copy at the most");
        assert!(punches.count() < 20, "by rows, not by blocks");
        assert_eq!([1700, 1701].map(|b| s.value(b)), [0x101; 2]);
    }
}

/// R3: a bitmap that claims a block is answered after the punch of the block has ended.
#[test]
fn a_claim_waits_for_the_punch() {
    let mut s = Session::copied(EngineConfig { punch: true, ..config() });
    s.policy(Scripted::default()).idle(10_000).write(1500, 1, 1).unwrap();
    let evict = Some(BlockRange::new(1301, 1302));
    s.policy(Scripted { evict, eager: true, ..Scripted::default() });
    s.volume.handle_timeout(s.now);
    let punch = s.dispatch().unwrap();
    assert_eq!((punch.op, punch.extent.offset()), (IoOp::Discard, 1301 * BLOCK as u64));
    let at = Plan { shape: Shape::Plain, grain: Grain::SMALL }.bitmap(0) as usize * BLOCK;
    let mut bitmap = s.device[at..at + BLOCK].to_vec();
    bitmap[1300 / 8] |= 1 << (1300 % 8);
    let claim = s.submit(Op::Write, at as u64, BLOCK as u64, Some(&bitmap));
    let write = s.dispatch().unwrap();
    s.complete(write);
    assert!(s.volume.poll_reply().is_none(), "not yet");
    s.complete(punch);
    assert_eq!(s.run(), [(claim, Ok(bitmap))]);
    assert_eq!(s.volume.stats().claims_waited, 1);
}

/// What waits to be punched when a flush fails stays: changes of bitmaps are refused from then on, and files may have blocks of which nobody
/// here is told.
#[test]
fn nothing_is_punched_behind_a_failed_flush() {
    for fails in [false, true] {
        let mut s = Session::copied(EngineConfig { punch: true, ..config() });
        s.policy(Scripted::default()).idle(10_000).write(1500, 1, 1).unwrap();
        s.write(1101, 1, 1).unwrap();
        if fails {
            s.fail = |io| (io.op == IoOp::Flush).then_some(EIO);
        }
        s.submit(Op::Flush, 0, 0, None);
        assert_eq!(s.run()[0].1.is_err(), fails);
        s.idle(10_000);
        assert_eq!(punched(&s), if fails { vec![] } else { vec![1301] });
    }
}

/// R1: what a discard touches in part counts as written; what is left of it nobody knows.
#[test]
fn what_a_discard_touches_in_part_has_no_copy_any_more() {
    let mut s = Session::copied(EngineConfig { discard: DiscardMode::Pass, ..config() });
    s.policy(Scripted::default());
    s.submit(Op::Discard, 1101 * BLOCK as u64 + 512, 2 * BLOCK as u64, None);
    s.run();
    let left: Vec<u32> = s.replicas().iter().map(|r| r.0).collect();
    assert_eq!(left, [1100]);
}

#[test]
fn discards_passed_down_free_at_their_end() {
    let mut s = Session::plain(EngineConfig { discard: DiscardMode::Pass, ..config() });
    s.idle(1000).write(1200, 4, 1).unwrap();
    assert!(!s.volume.liveness().unwrap().is_free(BlockNo(1201)));
    s.other(Op::Discard, 1200, 4).unwrap();
    assert_eq!(s.volume.stats().discarded_blocks, 4);
    assert!(s.volume.liveness().unwrap().is_free(BlockNo(1201)));
    // One that fails frees nothing.
    s.write(1200, 4, 1).unwrap();
    s.fail = |io| (io.op == IoOp::Discard).then_some(EIO);
    assert_eq!(s.other(Op::Discard, 1200, 4), Err(EIO));
    assert_eq!(s.volume.stats().discarded_blocks, 4);
    // In part: half a block at either end stays.
    s.fail = |_| None;
    let id = s.submit(Op::Discard, 1200 * 1024 + 512, 3 * 1024, None);
    assert_eq!(s.run()[0].0, id);
    assert_eq!(s.volume.stats().discarded_blocks, 6);
    let live = s.volume.liveness().unwrap();
    assert_eq!([1200, 1201, 1202, 1203].map(|b| live.is_free(BlockNo(b))), [false, true, true, false]);
}

#[test]
fn a_punch_is_a_discard_only_under_a_mount() {
    let mut s = Session::plain(config());
    s.idle(1000).write(1200, 8, 1).unwrap();
    s.other(Op::Punch, 1200, 1).unwrap();
    assert_eq!((s.value(1200), s.volume.stats().discarded_blocks, s.volume.stats().writes), (0, 0, 2));
    s.superblock(false, 1);
    s.other(Op::Punch, 1201, 1).unwrap();
    assert_eq!((s.value(1201), s.volume.stats().discarded_blocks), (0x101, 1));
    s.superblock(true, 1);
    s.other(Op::Punch, 1202, 1).unwrap();
    assert_eq!((s.value(1202), s.volume.stats().discarded_blocks), (0, 1));
    // Frozen, also under a mount.
    s.superblock(false, 2);
    s.volume.foreign_writer(s.now);
    assert_eq!(s.other(Op::Punch, 1203, 1), Err(EOPNOTSUPP));
    assert_eq!((s.value(1203), s.volume.stats().discarded_blocks), (0x101, 1));
}

/// Of a volume that nobody checked after a kill, a trim zeroed blocks of files that had been synced, for its bitmaps did not know of
/// them yet.
#[test]
fn a_punch_of_a_volume_that_is_served_plain_is_refused() {
    let mut device = image(&DATA, &[], 1300);
    device[1024 + 58] = 0;
    let mut s = Session::attach(device, config());
    assert_eq!(*s.volume.standing(), Standing::Inactive(Inactive::NotClean));
    s.write(1200, 2, 1).unwrap();
    assert_eq!(s.other(Op::Punch, 1200, 1), Err(EOPNOTSUPP));
    assert_eq!(s.value(1200), 0x101);
    s.other(Op::WriteZeroes, 1201, 1).unwrap();
    assert_eq!((s.value(1200), s.value(1201)), (0x101, 0));
}

/// The same where a frontend can tell discards, and they are to be passed down.
#[test]
fn a_discard_of_a_volume_that_nobody_checked_is_not_passed_down() {
    let pass = || EngineConfig { discard: DiscardMode::Pass, ..config() };
    let lands = |s: &mut Session| {
        s.fail = |io| (io.op == IoOp::Discard).then_some(EIO);
        s.other(Op::Discard, 1200, 1) == Err(EIO)
    };
    for state in [0, 2, 3] {
        let mut device = image(&DATA, &[], 1300);
        device[1024 + 58] = state;
        assert!(!lands(&mut Session::attach(device, pass())), "state {state}");
    }
    // One that is plain for another reason is a plain device; a mount that goes on knows its blocks.
    let mut device = image(&DATA, &[], 1300);
    device[1024 + 96] |= 0x40;
    let mut s = Session::attach(device, pass());
    assert!(matches!(s.volume.standing(), Standing::Inactive(Inactive::Unsupported(_))));
    assert!(lands(&mut s));
    let mut s = Session::plain(pass());
    s.idle(1000).superblock(false, 1);
    assert!(lands(&mut s));
    s.superblock(false, 2);
    assert_eq!(*s.volume.standing(), Standing::Frozen(Freeze::SecondMount));
    assert!(!lands(&mut s));
}

/// While it is mounted a file system is grown by zeroing what lies behind its end, and its kernel zeroes inode tables.
#[test]
fn a_punch_of_what_no_discard_frees_is_zeroes_under_a_mount() {
    let mut device = image(&DATA, &[], 1300);
    let end = device.len() as u64;
    device.extend([0x55; 8 * BLOCK]);
    let mut s = Session::attach(device, config());
    s.idle(1000).superblock(false, 1);
    let layout = s.volume.liveness().unwrap().layout().clone();
    let table = layout.groups()[0].inode_table.0 + layout.superblock().inode_table_blocks() as u32 - 1;
    s.write(table, 1, 9).unwrap();
    for (at, len) in [(u64::from(table) * 1024, 1024), (end - 1024, 2048), (end + 2048, 1024)] {
        let id = s.submit(Op::Punch, at, len, None);
        assert_eq!(s.run()[0].0, id);
        assert!(s.device[at as usize..][..len as usize].iter().all(|&b| b == 0), "{len} bytes at {at}");
    }
    assert_eq!(s.volume.stats().discarded_blocks, 0);
    assert_eq!(s.device[end as usize + 1024..][..1024], [0x55; 1024]);
}

#[test]
fn what_a_lost_connection_wrote_no_discard_frees() {
    let mut s = Session::plain(config());
    s.idle(1000).write(1200, 2, 1).unwrap();
    s.other(Op::Discard, 1200, 1).unwrap();
    assert_eq!(s.volume.stats().discarded_blocks, 1);
    s.volume.connection_gone(ConnectionId(0));
    s.other(Op::Discard, 1201, 1).unwrap();
    assert_eq!(s.volume.stats().discarded_blocks, 1);
}
