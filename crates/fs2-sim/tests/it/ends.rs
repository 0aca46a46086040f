//! How a session's mark goes, and how its end comes: what fails on the way, what arrives on the way, and what is
//! left alone because nothing changed.

use fs2_block::{BlockNo, BlockRange, Op, WriteAt};
use fs2_engine::{
    AttachError, AttachOptions, DiscardMode, EIO, EngineConfig, HandOver, Inactive, Io, IoData, IoOp,
    Outcome, Standing, Volume,
};
use fs2_sim::glue::Scripted;
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};
use fs2_table::{Header, PAGE_BYTES};

use crate::session::{BLOCK, DATA, Probe, Session, config, image, image_of};

fn of(image: Vec<u8>, config: EngineConfig) -> Session {
    let mut s = Session::attach(image, config);
    s.policy(Scripted::default());
    s
}

fn plain() -> Session {
    of(image(&DATA, &[], 0), config())
}

/// 1100 to 1103 have replicas from 1300 on.
fn copied() -> Session {
    of(image(&DATA, &[BlockRange::new(1100, 1104)], 1300), config())
}

fn at(block: u32) -> u64 {
    u64::from(block) * BLOCK as u64
}

fn writes(s: &Session) -> usize {
    s.done.iter().filter(|d| matches!(d.0, IoOp::Write { .. })).count()
}

#[test]
fn where_nothing_changed_the_mark_stays_as_it_is() {
    let mut s = copied();
    s.idle(1000).value(1100);
    s.volume.begin_detach(s.now);
    s.run();
    let ended = s.volume.detached().unwrap();
    assert_eq!((ended.marked, ended.replicas, ended.why_not), (true, 4, None));
    assert_eq!((writes(&s), s.done.iter().filter(|d| d.0 == IoOp::Flush).count()), (0, 0));
    // A plain device's mark is nobody's word.
    let mut device = image(&DATA, &[], 0);
    device[1024 + 58] = 0;
    let mut s = Session::attach(device, config());
    assert_eq!(*s.volume.standing(), Standing::Inactive(Inactive::NotClean));
    s.volume.begin_detach(s.now);
    s.run();
    let ended = s.volume.detached().unwrap();
    assert!(!ended.marked && ended.why_not.unwrap().contains("inactive"));
    assert!(s.done.is_empty(), "{:?}", s.done);
}

#[test]
fn a_volume_still_mounted_gets_no_mark() {
    for clean in [false, true] {
        let mut s = plain();
        s.superblock(false, 1);
        if clean {
            s.superblock(true, 1);
        }
        s.volume.begin_detach(s.now);
        s.run();
        assert_eq!(s.volume.detached().unwrap().marked, clean);
        // What was written of the table is flushed in either case.
        assert_eq!(s.done.last().map(|d| d.0), Some(IoOp::Flush));
    }
}

/// Where the volume's only bitmap is, and the byte and bit of a block in it.
fn bit_of(block: u32) -> (u64, usize, u8) {
    (
        at(Plan { shape: Shape::Plain, grain: Grain::SMALL }.bitmap(0)),
        (block - 1) as usize / 8,
        1 << ((block - 1) % 8),
    )
}

/// A tool writes the bitmap with the block's bit set or cleared.
fn write_bit(s: &mut Session, block: u32, set: bool) {
    let (at, byte, bit) = bit_of(block);
    let mut bitmap = s.device[at as usize..][..BLOCK].to_vec();
    if set {
        bitmap[byte] |= bit
    } else {
        bitmap[byte] &= !bit
    }
    let id = s.submit(Op::Write, at, BLOCK as u64, Some(&bitmap));
    assert_eq!(s.run(), [(id, Ok(bitmap))]);
}

/// Why there is no mark, or none is given.
fn why_no_mark(mut s: Session) -> Option<String> {
    s.volume.begin_detach(s.now);
    s.run();
    let ended = s.volume.detached().expect("it ended");
    assert_eq!(ended.marked, ended.why_not.is_none());
    ended.why_not
}

/// debugfs -w on a served device that is killed before it writes its bitmaps, or a mount by another superblock: VALID stands all the time, and the
/// next session copied into the file.
#[test]
fn a_block_written_unannounced_is_in_the_bitmap_or_there_is_no_mark() {
    let in_doubt = |s: Session| why_no_mark(s).is_some_and(|why| why.contains("block 1310 was written"));
    for loaded in [false, true] {
        let written = || {
            let mut s = plain();
            if loaded {
                s.load_bitmap();
            }
            s.write(1310, 1, 7).unwrap();
            s
        };
        assert!(in_doubt(written()), "nothing but the block");
        // A later tool, or mount, comes to its end: that tells nothing of this one.
        let mut s = written();
        s.superblock(true, 1);
        s.superblock(false, 2);
        s.superblock(true, 2);
        assert!(in_doubt(s));
        let mut s = written();
        s.other(Op::WriteZeroes, 1310, 1).unwrap();
        assert!(in_doubt(s));
        // The next process knows it, too.
        let mut s = written();
        s.volume.begin_leaving(s.now);
        s.run();
        let given = HandOver::decode(&s.volume.left(b"").unwrap()).unwrap();
        s.volume = Volume::take_over(&mut s.device, None, config(), given).unwrap().0;
        assert!(in_doubt(s));
        // It comes to its end, or the block is given back.
        let mut s = written();
        write_bit(&mut s, 1310, true);
        s.superblock(true, 1);
        let (marked, device) = s.detach();
        assert!(marked);
        assert_eq!(*Session::attach(device, config()).volume.standing(), Standing::Active);
        let mut s = written();
        s.other(Op::Discard, 1310, 1).unwrap();
        assert_eq!(why_no_mark(s), None);
        // Blocks in use, and blocks written under a mount, are in the bitmap.
        let mut s = plain();
        s.write(1500, 1, 7).unwrap();
        assert_eq!(why_no_mark(s), None);
        let mut s = plain();
        s.superblock(false, 1);
        s.write(1310, 1, 7).unwrap();
        s.superblock(true, 1);
        assert_eq!(why_no_mark(s), None, "made and removed again");
    }
}

/// The same of a bitmap that frees blocks whose file is not gone yet.
#[test]
fn a_bitmap_written_unannounced_is_followed_by_a_superblock_or_there_is_no_mark() {
    let in_doubt =
        |s: Session| why_no_mark(s).is_some_and(|why| why.contains("bitmap of group 0 was written"));
    let freed = || {
        let mut s = plain();
        write_bit(&mut s, 1500, false);
        s
    };
    assert!(in_doubt(freed()));
    let mut s = freed();
    s.superblock(true, 0);
    assert!(in_doubt(s), "the same superblock, beside something else");
    let mut s = freed();
    s.superblock(true, 1);
    assert_eq!(why_no_mark(s), None);
    let mut s = plain();
    s.load_bitmap();
    assert_eq!(why_no_mark(s), None, "the same bitmap");
    let mut s = plain();
    s.superblock(false, 1);
    write_bit(&mut s, 1500, false);
    s.superblock(true, 1);
    assert_eq!(why_no_mark(s), None, "under a mount");
}

/// A bitmap that no client wrote is read for a block's sake; its checksum stays the mark's.
#[test]
fn a_bitmap_that_is_only_looked_at_keeps_its_checksum() {
    let mut s = plain();
    s.write(1500, 1, 7).unwrap();
    let (at, byte, bit) = bit_of(1600);
    s.device[at as usize + byte] ^= bit;
    let (marked, device) = s.detach();
    assert!(marked);
    let mut s = Session::attach(device, config());
    s.policy(Scripted::default());
    s.idle(10_000);
    assert!(matches!(s.volume.standing(), Standing::Frozen(_)), "{:?}", s.volume.standing());
}

/// The report said that a mark stood which had been erased.
#[test]
fn a_foreign_writer_noticed_at_the_very_end() {
    let mut s = copied();
    s.write(1500, 1, 1).unwrap();
    s.volume.begin_detach(s.now);
    s.run();
    assert!(s.volume.detached().unwrap().marked);
    s.volume.foreign_writer(s.now);
    assert_eq!(s.volume.detached(), None, "the mark is to be erased");
    let erasure = s.dispatch().unwrap();
    assert!(matches!(erasure.op, IoOp::Write { .. }));
    assert_eq!(s.volume.detached(), None, "it is being erased");
    s.complete(erasure);
    s.run();
    assert!(!s.volume.detached().unwrap().marked);
    let mut device = s.device;
    let (next, _) = Volume::attach(&mut device, None, config(), &AttachOptions::default()).unwrap();
    assert_eq!(*next.standing(), Standing::Inactive(Inactive::NoMark));
}

/// The mark's write failed, and its bytes reached the disk all the same: the mark stayed there for the next session to trust.
#[test]
fn a_foreign_writer_noticed_when_the_mark_could_not_be_written() {
    for at_once in [true, false] {
        let mut s = copied();
        s.write(1500, 1, 1).unwrap();
        s.volume.begin_detach(s.now);
        let mut failed = 0;
        while let Some(io) = s.dispatch() {
            let marks =
                |bytes: &[u8]| Header::parse(bytes).is_ok_and(|h| h.is_some_and(|h| h.mark.is_some()));
            match &io.data {
                IoData::Engine(bytes) if marks(bytes) => {
                    failed += 1;
                    s.device.write_at(io.extent.offset(), bytes).unwrap();
                    s.volume.complete(s.now, io.id, Outcome::failed(EIO));
                    if at_once {
                        s.volume.foreign_writer(s.now);
                    }
                }
                _ => s.complete(io),
            }
        }
        if !at_once {
            s.volume.foreign_writer(s.now);
            s.run();
        }
        assert_eq!((failed, s.volume.detached().map(|d| d.marked)), (1, Some(false)));
        let mut device = s.device;
        let (next, _) = Volume::attach(&mut device, None, config(), &AttachOptions::default()).unwrap();
        assert_eq!(*next.standing(), Standing::Inactive(Inactive::NoMark), "at once: {at_once}");
    }
}

/// A header in four pieces of which the first fails: the others need not be written, the other slot is.
#[test]
fn what_is_left_of_a_header_that_failed_is_not_written() {
    let mut s = of(image_of(Shape::Fragmented, &[(1500, 1)], &[], 0), config());
    s.submit(Op::Write, at(1500), BLOCK as u64, Some(&[7; BLOCK]));
    let piece = s.dispatch().unwrap();
    assert_eq!((writes(&s), piece.extent.len()), (0, 1024));
    s.fail = |_| Some(EIO);
    s.complete(piece);
    s.fail = |_| None;
    let answers = s.run();
    assert!(answers[0].1.is_ok());
    // One that failed, four pieces of the other slot, the client's.
    assert_eq!((writes(&s), s.volume.stats().table_errors), (1 + 4 + 1, 1));
}

/// Two header slots fail twice each: refused, and told; the next change tries again.
#[test]
fn a_mark_that_cannot_be_erased_forbids_changes_for_now() {
    let mut s = plain();
    s.fail = |io: &Io| (io.extent.len() == PAGE_BYTES as u64).then_some(EIO);
    assert_eq!(s.write(1500, 1, 1), Err(EIO));
    assert_eq!((writes(&s), s.volume.stats().table_errors), (4, 4));
    assert_eq!(s.value(1500), 0x17);
    assert!(s.volume.refuses_changes().is_some_and(|why| why.contains("the mark")));
    s.fail = |_| None;
    assert!(s.write(1500, 1, 1).is_ok());
    assert_eq!((s.volume.refuses_changes(), s.volume.stats().failed.writes), (None, 1));
    assert_eq!((writes(&s), s.volume.stats().table_errors), (4 + 1 + 1, 4));
}

/// The flush behind the erasure fails: it latches, and nothing is tried again.
#[test]
fn a_flush_that_fails_behind_the_erasure_ends_all_changes() {
    let mut s = plain();
    s.fail = |io: &Io| (io.op == IoOp::Flush).then_some(EIO);
    assert_eq!(s.write(1500, 1, 1), Err(EIO));
    assert_eq!((writes(&s), s.done.iter().filter(|d| d.0 == IoOp::Flush).count()), (1, 1));
    s.fail = |_| None;
    assert_eq!(s.write(1500, 1, 1), Err(EIO));
    assert_eq!(writes(&s), 1);
    let failed = s.volume.stats().failed;
    assert_eq!((failed.reads, failed.writes, failed.flushes), (0, 2, 0));
    assert!(s.volume.refuses_changes().is_some_and(|why| why.contains("a flush failed")));
    let (marked, device) = s.detach();
    assert!(!marked);
    assert_eq!(device[at(1500) as usize], 0x17);
}

/// A session that goes on where a flush had failed: nobody there was told, perhaps, and what was lost no flush brings back.
#[test]
fn a_failed_flush_is_told_by_the_next_daemon_too() {
    let device = image(&DATA, &[], 0);
    for passive in [false, true] {
        let options = AttachOptions { flush_failed: true, passive, ..AttachOptions::default() };
        let (volume, _) = Volume::attach(&mut device.clone(), None, config(), &options).unwrap();
        let mut s = Session::of(volume, device.clone());
        assert_eq!(s.other(Op::Flush, 0, 0), Err(EIO));
        assert_eq!(s.write(1500, 1, 1), Err(EIO));
        assert_eq!(s.value(1500), 0x17);
        let (_, after) = s.detach();
        assert!(after == device, "nothing was written");
    }
}

/// A daemon died after the file system was grown below its mount: the superblock is on the disk, the new groups' descriptors are in the
/// kernel's memory. Nobody is told to check what is mounted.
#[test]
fn of_a_mount_that_goes_on_it_is_not_said_that_its_descriptors_are_wrong() {
    let mut device = image(&DATA, &[], 0);
    // Where group 0 has its bitmap.
    device[2048..2052].fill(0);
    let mut standing = |orphaned| {
        let options = AttachOptions { orphaned, ..AttachOptions::default() };
        Volume::attach(&mut device, None, config(), &options).unwrap().0.standing().clone()
    };
    assert_eq!(standing(true), Standing::Inactive(Inactive::Orphaned));
    let found = standing(false);
    assert!(
        matches!(&found, Standing::Inactive(Inactive::Unsupported(why)) if why.contains("e2fsck")),
        "{found:?}"
    );
}

/// The mark on inode 5 would outlive what clients write to a volume that is served with another table.
#[test]
fn a_table_apart_is_refused_where_there_is_one_on_inode_5() {
    let (mut device, mut empty) = (image_of(Shape::Plain, &[(1500, 1)], &[], 0), vec![0; 128 << 10]);
    for passive in [false, true] {
        let options = AttachOptions { passive, ..AttachOptions::default() };
        let refused = Volume::attach(&mut device, Some(&mut empty), config(), &options).err();
        assert!(matches!(refused, Some(AttachError::TableOnInode)), "{refused:?}");
    }
}

/// What clients got errors for is counted by kind, and why there is no mark names the first of the changes.
#[test]
fn what_failed_for_clients_is_told() {
    let mut s = plain();
    s.fail = |io: &Io| (io.extent.offset() == at(1500)).then_some(EIO);
    let _ = s.read(1500, 1);
    assert_eq!(s.write(1500, 1, 1), Err(EIO));
    assert_eq!(s.write(1500, 2, 1), Err(EIO));
    s.fail = |io: &Io| (io.op == IoOp::Flush).then_some(EIO);
    assert_eq!(s.other(Op::Flush, 0, 0), Err(EIO));
    assert_eq!(s.other(Op::Flush, 0, 0), Err(EIO));
    let failed = s.volume.stats().failed;
    assert_eq!((failed.reads, failed.writes, failed.flushes), (1, 2, 2));
    assert_eq!(failed.last.unwrap().to_string(), "a flush: Input/output error (os error 5)");
    let first = format!("a write of {BLOCK} bytes at byte {}: Input/output error (os error 5)", at(1500));
    assert_eq!(failed.first_change.unwrap().to_string(), first);
    s.volume.begin_detach(s.now);
    s.run();
    assert_eq!(s.volume.detached().unwrap().why_not.unwrap(), format!("a flush failed ({first})"));
}

/// R2: a discard that was overwritten while it waited is answered, and nothing else: not passed down, and what
/// was written is not free.
#[test]
fn a_discard_overtaken_by_a_write_is_not_passed_down() {
    for discard in [DiscardMode::Memory, DiscardMode::Pass] {
        let mut s = of(image(&DATA, &[], 0), EngineConfig { discard, ..config() });
        s.idle(1000);
        let first = s.submit(Op::Discard, at(1200), 4 * BLOCK as u64, None);
        let second = s.submit(Op::Write, at(1201), BLOCK as u64, Some(&[7; BLOCK]));
        let mut answers = s.run();
        answers.sort();
        assert_eq!(
            answers.iter().map(|a| (a.0, a.1.is_ok())).collect::<Vec<_>>(),
            [(first, true), (second, true)]
        );
        assert!(s.done.iter().all(|d| d.0 != IoOp::Discard), "{discard:?}");
        let live = s.volume.liveness().unwrap();
        let free = [1200, 1201, 1202, 1203].map(|b| live.is_free(BlockNo(b)));
        assert_eq!(free, [true, false, true, true], "{discard:?}");
        // One that nothing overtook is passed down where that is asked.
        s.other(Op::Discard, 1200, 1).unwrap();
        let passed = s.done.iter().filter(|d| d.0 == IoOp::Discard).count();
        assert_eq!(passed, usize::from(discard == DiscardMode::Pass));
    }
}

/// Of a foreign writer that changed a descriptor alone neither the superblock tells nor a bitmap that was written.
#[test]
fn descriptors_that_no_client_wrote_leave_no_mark() {
    for foreign in [false, true] {
        let mut s = copied();
        s.write(1100, 1, 1).unwrap();
        let layout = fs2_ext2::Layout::read(&mut s.device).unwrap();
        // Group 0's count of free blocks.
        s.device[layout.descriptors_extent().offset() as usize + 12] ^= u8::from(foreign);
        assert_eq!(s.detach().0, !foreign);
    }
}

/// R2 and R3: a bitmap's claim counts as a write. A tool may take a block for its own that a discard before it, which waits, was to free.
#[test]
fn a_discard_overtaken_by_a_claim_frees_nothing_of_it() {
    let mut s = plain();
    s.idle(1000);
    let first = s.submit(Op::Discard, at(1200), 4 * BLOCK as u64, None);
    let bitmap = Plan { shape: Shape::Plain, grain: Grain::SMALL }.bitmap(0);
    let mut bits = s.device[at(bitmap) as usize..][..BLOCK].to_vec();
    // The first bit is block 1's.
    bits[1200 / 8] |= 1 << (1200 % 8);
    let second = s.submit(Op::Write, at(bitmap), BLOCK as u64, Some(&bits));
    let mut answers = s.run();
    answers.sort();
    assert_eq!(
        answers.iter().map(|a| (a.0, a.1.is_ok())).collect::<Vec<_>>(),
        [(first, true), (second, true)]
    );
    let live = s.volume.liveness().unwrap();
    assert_eq!([1200, 1201, 1202, 1203].map(|b| live.is_free(BlockNo(b))), [true, false, true, true]);
}

/// A read of two blocks one of which is written meanwhile: it tells nothing of the other's entry either.
#[test]
fn what_a_write_overtook_verifies_nothing() {
    let mut s =
        of(image(&DATA, &[BlockRange::new(1100, 1104)], 1300), EngineConfig { distrust: true, ..config() });
    s.write(1500, 1, 1).unwrap();
    s.submit(Op::Read, at(1100), 2 * BLOCK as u64, None);
    let read = s.dispatch().unwrap();
    s.submit(Op::Write, at(1101), BLOCK as u64, Some(&[7; BLOCK]));
    s.complete(read);
    s.run();
    assert_eq!((s.volume.stats().verified, s.volume.table().unverified_count()), (0, 3));
    assert_eq!(s.volume.stats().refuted, 0);
}

/// Policies are shown what a read brought only where it may be copied.
#[test]
fn what_may_not_be_copied_is_not_shown() {
    let mut s = plain();
    s.idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000);
    let probe = Probe::default();
    s.volume.set_policy(Box::new(probe.clone()));
    let shown = |s: &mut Session| {
        s.value(1100);
        probe.captured.lock().unwrap().pop()
    };
    assert_eq!(shown(&mut s), Some(true));
    s.volume.host_is_short(true);
    assert_eq!(shown(&mut s), Some(false));
    s.volume.host_is_short(false);
    assert_eq!(shown(&mut s), Some(true));
    // A write elsewhere takes nothing from a read.
    s.submit(Op::Read, at(1100), BLOCK as u64, None);
    let io = s.dispatch().unwrap();
    s.submit(Op::Write, at(1200), BLOCK as u64, Some(&[7; BLOCK]));
    s.complete(io);
    assert_eq!(probe.captured.lock().unwrap().pop(), Some(true));
    s.run();
    // The session is to end, and then the read does.
    let read = s.submit(Op::Read, at(1100), BLOCK as u64, None);
    let io = s.dispatch().unwrap();
    s.volume.begin_detach(s.now);
    s.complete(io);
    assert_eq!(probe.captured.lock().unwrap().pop(), Some(false));
    assert_eq!(s.run()[0].0, read);
}

#[test]
fn a_table_apart_that_was_cut_off_is_too_small() {
    let (s, _) = Session::attach_apart_of(20, |_| {});
    for (len, small) in
        [(0, true), (PAGE_BYTES + 100, true), (2 * PAGE_BYTES - 1, true), (2 * PAGE_BYTES, false)]
    {
        let (s, _) = Session::attach_both(s.device.clone(), s.table[..len].to_vec(), config());
        let Standing::Inactive(Inactive::DamagedTable(what)) = s.volume.standing() else {
            panic!("{len}: {:?}", s.volume.standing());
        };
        assert_eq!(what.contains("too small"), small, "{len}: {what}");
    }
}
