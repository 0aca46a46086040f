//! Holes in the engine that the model found: each is named in its first line, and closed.

use fs2_block::{BlockNo, BlockSize, ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId};
use fs2_engine::{AttachOptions, EngineConfig, Freeze, IoData, IoOp, Outcome, Standing, Volume};
use fs2_sim::glue::Scripted;
use fs2_sim::model::mark;
use fs2_sim::model::world::{Action, From, O, R, S, T, Tool, U, X};

use crate::play::{BG, Play, READ, READ_COPY, READ_X};

/// A write of a table page took no hold: a client's write to the same block was in flight beside it.
#[test]
fn table_page_without_a_hold() {
    let mut p = Play::at("table");
    p.act(&[BG]).rest().act(&[BG]).flies("the daemon's write of T").act(&[Action::Write(T)]);
    p.waits("the client's write of T").lands("the daemon's write of T").lands("the client's write of T");
    p.act(&[Action::Read(T, From::Original)]).rest();
}

/// A read that waited behind a write was captured although a second write waited behind it.
#[test]
fn payload_of_a_read_between_two_writes() {
    let mut p = Play::at("one-slot");
    p.act(&[Action::WriteToo(O), READ, Action::WriteToo(O)]).rest();
    p.act(&[BG]).rest().mapped(R, false);
    p.act(&[READ_COPY]).rest();
}

/// A free block that a client had read was made an original, then copied into: its copy was stale, and the
/// difference was taken for a broken invariant.
#[test]
fn copy_of_a_free_block() {
    let mut p = Play::at("raw-reads");
    p.act(&[Action::Evict(R), Action::ReadFree(S, From::Original)]).rest();
    p.act(&[BG]).rest().mapped(R, false);
}

/// The payload of a free block waited while the block was copied into; then a tool claimed the block, and what
/// it had held before was published as its copy.
#[test]
fn copy_into_a_block_whose_payload_waits() {
    let mut p = Play::at("raw-reads");
    p.act(&[Action::Evict(R), READ_X]).rest().act(&[Action::ReadFree(S, From::Original)]).rest();
    p.act(&[Action::Target(S), BG]).flies("the daemon's write of S").act(&[Action::Claim(S)]).rest();
    p.act(&[Action::Target(R), BG]).waits("the daemon's write of R").rest().mapped(R, false);
    p.act(&[Action::Read(S, From::Original)]).rest();
    assert_eq!(*p.0.volume().unwrap().standing(), Standing::Active);
}

/// The same of a block that is punched while its payload waits: it holds zeroes when the tool claims it.
#[test]
fn punch_of_a_block_whose_payload_waits() {
    let mut p = Play::at("punch");
    p.act(&[Action::Evict(R), Action::ReadFree(R, From::Original)]).rest();
    // There is no room where the payload is to go, so that the punch goes first.
    p.act(&[Action::Target(X), BG]).flies("a discard of R").rest().act(&[Action::Claim(R)]).rest();
    p.act(&[Action::Target(S), BG]).waits("the daemon's write of S").rest().mapped(S, false);
    p.act(&[Action::Read(R, From::Original)]).rest();
    assert_eq!(*p.0.volume().unwrap().standing(), Standing::Active);
}

/// What a read brings is no payload once a discard has come behind it, which changes the block below when it is passed down.
#[test]
fn payload_of_a_read_that_a_discard_waits_for() {
    let mut p = Play::at("discard-pass-original");
    p.act(&[READ]).flies("the client's read of O");
    p.0.kernel.free(O);
    p.act(&[Action::DiscardToo(O)]).waits("a discard of O").mapped(R, false);
    p.rest().act(&[Action::Claim(O)]).rest();
    p.act(&[BG]).waits("the daemon's write of R").rest().mapped(R, false);
    assert!(!p.reads_o());
}

/// The superblock was compared with what a client sent while it was being read: a foreign writer was seen
/// where there was none.
#[test]
fn superblock_written_while_it_is_read() {
    let mut p = Play::at("superblock");
    p.act(&[BG]).flies("the daemon's read of the superblock").act(&[Action::Mount]).rest();
    assert_eq!(*p.0.volume().unwrap().standing(), Standing::Active);
    // It is looked at again before the page is written.
    p.act(&[BG])
        .flies("the daemon's read of the superblock")
        .rest()
        .act(&[BG])
        .flies("the daemon's write of T");
}

/// After a foreign writer was noticed the detach still wrote table pages, into what may be its blocks.
#[test]
fn table_written_after_a_foreign_writer() {
    let mut p = Play::at("foreign-table");
    p.act(&[Action::ForeignTakes(T), Action::ForeignNoticed, BG]).idle();
    p.act(&[Action::Detach]).waits("the daemon's write of T").rest();
    assert!(p.0.volume().is_none());
}

/// Of a page in pieces the first was at the device when a foreign writer was noticed: the others are not written, into what may
/// be its blocks.
#[test]
fn pieces_of_a_page_that_wait_while_a_foreign_writer_is_noticed() {
    let mut p = Play::at("table-in-pieces");
    p.act(&[BG]).flies("the daemon's read of the superblock").rest();
    p.act(&[BG]).flies("the daemon's write of T").act(&[Action::ForeignTakes(U), Action::ForeignNoticed]);
    p.lands("the daemon's write of T").idle();
}

/// A detach that found another superblock than the client's wrote table pages all the same.
#[test]
fn table_written_by_a_detach_that_finds_a_foreign_writer() {
    let mut p = Play::at("foreign-table");
    p.act(&[Action::ForeignTakes(U)]);
    // Nobody noticed; the driver ends the session (an unnoticed writer is outside the model's actions).
    let before = p.0.devices()[0].block(p.0.block(T));
    p.0.begin_detach();
    p.rest();
    assert_eq!(p.0.devices()[0].block(p.0.block(T)), before, "no page was written");
}

/// A second mount was answered while a copy was on its way into a block that is in use from then on.
#[test]
fn second_mount_answered_before_the_copy() {
    let mut p = Play::at("second-mount");
    p.act(&[Action::Alloc(R), Action::WriteRefs, READ]).rest().act(&[BG]).flies("the daemon's write of R");
    p.act(&[Action::KernelDies, Action::Mount]).lands("the client's write of the superblock").unanswered(1);
    p.lands("the daemon's write of R").unanswered(0);
}

/// An evicted replica was punched while the mark stood: the volume changed under it.
#[test]
fn punch_while_the_mark_stands() {
    let mut p = Play::at("punch-trusted");
    p.act(&[Action::Evict(R), BG]).waits("a discard of R").rest();
    // Once the mark is gone, evicted replicas are punched.
    p.act(&[Action::Write(X)]).rest().act(&[READ_X]).rest().act(&[BG]).rest().mapped(R, true);
    p.act(&[Action::Evict(R), BG]).flies("a discard of R").rest();
}

/// A session asked to end while a bitmap write waited for its group's bitmap never ended.
#[test]
fn detach_with_a_bitmap_waiting() {
    let mut p = Play::at("detach-busy");
    p.act(&[READ]).rest().act(&[BG]).flies("the daemon's write of header slot 0");
    p.act(&[Action::SendBitmap, Action::BitmapArrives, Action::DetachBusy]).rest().unanswered(0);
    assert!(p.0.volume().is_none(), "it ended");
}

/// Killed between the mark's erasure and its flush: the next session read "no mark" from the cache, wrote, and
/// a loss of power brought the mark back.
#[test]
fn erasure_read_from_a_cache() {
    let mut p = Play::at("mark");
    p.act(&[Action::Write(O), Action::Kill]);
    p.lands("a dead daemon's write of header slot 1").act(&[Action::Attach]);
    assert!(matches!(p.0.volume().unwrap().standing(), Standing::Inactive(_)));
    p.act(&[Action::Write(O)]).waits("the client's write of O").rest();
    // Only the client's write survives; the flush was complete, so the erasure does too.
    let last = p.0.devices()[0].cached() - 1;
    p.act(&[Action::PowerLoss(1 << last), Action::Attach]);
    assert!(!p.reads_o());
}

/// The erasure's flush failed; the next daemon's flush does not make good what that one lost.
#[test]
fn erasure_whose_flush_failed() {
    let mut p = Play::at("mark");
    p.act(&[Action::Write(O)]).lands("the daemon's write of header slot 1");
    p.flies("the client's flush").act(&[Action::Fail(0)]).rest().act(&[Action::Kill, Action::Attach]);
    p.act(&[Action::Write(O)]).rest();
    assert_eq!(mark::promises(p.0.ground(), &p.0.devices().each_ref().map(|d| d.durable())), None);
}

/// A header in pieces: one failed, a later one did not, and the mark counted as erased.
#[test]
fn erasure_in_pieces_of_which_one_fails() {
    let mut p = Play::at("mark-in-pieces");
    p.act(&[Action::Write(O)]);
    assert_eq!(p.0.queue_in_words(), ["the daemon's write of header slot 1"; 4], "1 KiB each");
    p.act(&[Action::Fail(0), Action::Land(0), Action::Land(0)])
        .waits("the client's flush")
        .act(&[Action::Land(0)]);
    // The second attempt goes to the slot that stands.
    assert_eq!(p.0.queue_in_words(), ["the daemon's write of header slot 0"; 4]);
    p.rest();
    let [volume, _] = p.0.devices();
    assert_eq!(mark::promises(p.0.ground(), &[volume.durable(), volume.durable()]), None);
    p.act(&[Action::Kill, Action::Attach]);
    assert!(!p.reads_o());
}

/// A block came back by a discard while an older write to it still waited for a copy into it: the copy was
/// published under the write.
#[test]
fn copy_published_under_a_waiting_write() {
    let mut p = Play::at("copy");
    p.act(&[READ]).rest().act(&[BG]).flies("the daemon's write of R");
    p.act(&[Action::Alloc(R), Action::Write(R)]).waits("the client's write of R");
    // The file system would wait for its write; a client that does not is its own enemy, not ours.
    p.0.kernel.free(R);
    p.act(&[Action::DiscardToo(R)]).rest().mapped(R, false);
}

/// A volume served as a plain device, as asked, kept a mark that its next session would have trusted.
#[test]
fn passive_session_erases_the_mark() {
    let p = Play::at("mark");
    let mut disk = p.0.devices()[0].bytes();
    let options = AttachOptions { passive: true, ..AttachOptions::default() };
    let (mut volume, _) = Volume::attach(&mut disk, None, EngineConfig::default(), &options).unwrap();
    let request = Request {
        id: RequestId(1),
        connection: ConnectionId(0),
        op: Op::Write,
        extent: BlockNo(p.0.block(O)).extent(BlockSize::B1024),
        flags: Flags::default(),
    };
    volume.submit(Nanos(0), request, Some(&[7; 1024]));
    let first = volume.poll_dispatch(Nanos(0)).unwrap();
    assert!(matches!(first.data, IoData::Engine(_)), "{first:?}");
    assert!(volume.poll_dispatch(Nanos(0)).is_none(), "the client's write waits");
    volume.complete(Nanos(0), first.id, Outcome::done());
    assert_eq!(volume.poll_dispatch(Nanos(0)).unwrap().op, IoOp::Flush);
}

/// The sample of originals at the attach found one that was not what its verified entry said; everything became
/// unverified, but the mark stayed, and the next session would have trusted the page again.
#[test]
fn sample_that_fails_erases_the_mark() {
    let p = Play::at("mark");
    let mut disk = p.0.devices()[0].bytes();
    let at = p.0.block(O) as usize * 1024;
    disk[at..at + 1024].fill(9);
    let (mut volume, report) =
        Volume::attach(&mut disk, None, EngineConfig::default(), &AttachOptions::default()).unwrap();
    assert_eq!(report.verified, 1);
    let later = Nanos::from_millis(1000);
    let sample = volume.poll_dispatch(later).unwrap();
    assert_eq!((sample.op, sample.extent.offset()), (IoOp::Read, at as u64));
    volume.complete(later, sample.id, Outcome::read(&disk[at..at + 1024]));
    assert!(volume.table().is_empty());
    let next = volume.poll_dispatch(later).unwrap();
    assert!(matches!((next.op, &next.data), (IoOp::Write { .. }, IoData::Engine(_))), "{next:?}");
}

/// A read across the end of the file system, on a larger device, was served from a copy that ends there: the
/// buffer's rest was never filled.
#[test]
fn read_beyond_the_file_system() {
    let mut disk = Play::at("mark").0.bare().bytes();
    let end = disk.len() as u64;
    fs2_engine::offline::create(
        &mut fs2_engine::offline::Devices::new(&mut disk, None),
        &fs2_engine::offline::CreateOptions::default(),
        &mut |_| {},
    )
    .unwrap();
    disk.resize(disk.len() + 2048, 7);
    let config = EngineConfig { idle_after: Nanos(1), ..EngineConfig::default() };
    let (mut volume, _) = Volume::attach(&mut disk, None, config, &AttachOptions::default()).unwrap();
    volume.set_policy(Box::new(Scripted {
        capture: true,
        prefer: true,
        target: Some(1200),
        ..Scripted::default()
    }));
    let mut read = |volume: &mut Volume, at: u64, len: u64| {
        let extent = Extent::new(at, len);
        let (id, connection) = (RequestId(1), ConnectionId(0));
        let request = Request { id, connection, op: Op::Read, extent, flags: Flags::default() };
        volume.submit(Nanos(0), request, None);
        let io = volume.poll_dispatch(Nanos(0)).unwrap();
        let bytes = disk[io.extent.offset() as usize..io.extent.end() as usize].to_vec();
        volume.complete(Nanos(0), io.id, Outcome::read(&bytes));
        assert_eq!(volume.poll_reply().map(|r| r.result), Some(Ok(())));
        // Whatever the engine likes to do of its own.
        while let Some(io) = volume.poll_dispatch(Nanos(10)) {
            let (from, to) = (io.extent.offset() as usize, io.extent.end() as usize);
            if let (IoOp::Write { .. }, IoData::Engine(data)) = (io.op, &io.data) {
                disk[from..to].copy_from_slice(data);
            }
            let bytes = if io.op == IoOp::Read { disk[from..to].to_vec() } else { Vec::new() };
            volume.complete(Nanos(10), io.id, Outcome::read(&bytes));
        }
        bytes
    };
    read(&mut volume, end - 1024, 1024);
    assert_eq!(volume.table().len(), 1, "the last block has a copy");
    assert_eq!(read(&mut volume, end - 1024, 2048).len(), 2048);
    assert_eq!(read(&mut volume, end - 1024, 2048)[1024..], [7; 1024]);
}

/// A read of the boot block, which lies before a file system of 1 KiB blocks, was copied: the next attach dropped the
/// entry as one outside the volume, and a session handed over to another process ended there. The same of what a policy has
/// read for itself.
#[test]
fn the_boot_block_is_not_copied() {
    let mut disk = Play::at("mark").0.bare().bytes();
    let end = disk.len() as u64 / 1024;
    fs2_engine::offline::create(
        &mut fs2_engine::offline::Devices::new(&mut disk, None),
        &fs2_engine::offline::CreateOptions::default(),
        &mut |_| {},
    )
    .unwrap();
    let config = EngineConfig { idle_after: Nanos(1), ..EngineConfig::default() };
    let (mut volume, _) = Volume::attach(&mut disk, None, config, &AttachOptions::default()).unwrap();
    let mut now = Nanos(0);
    let mut copied = |blocks: std::ops::Range<u64>, fetch: Option<u32>| {
        let capture = fetch.is_none();
        let before = volume.table().len();
        let target = Some(1200 + before as u32);
        volume.set_policy(Box::new(Scripted { capture, fetch, target, ..Scripted::default() }));
        let extent = Extent::new(blocks.start * 1024, (blocks.end - blocks.start) * 1024);
        let (id, connection) = (RequestId(1), ConnectionId(0));
        volume.submit(now, Request { id, connection, op: Op::Read, extent, flags: Flags::default() }, None);
        while let Some(io) = volume.poll_dispatch(now) {
            let (from, to) = (io.extent.offset() as usize, io.extent.end() as usize);
            if let (IoOp::Write { .. }, IoData::Engine(data)) = (io.op, &io.data) {
                disk[from..to].copy_from_slice(data);
            }
            let bytes = if io.op == IoOp::Read { disk[from..to].to_vec() } else { Vec::new() };
            volume.complete(now, io.id, Outcome::read(&bytes));
            now += Nanos(10);
        }
        assert_eq!(volume.poll_reply().map(|r| r.result), Some(Ok(())));
        volume.table().len() - before
    };
    assert_eq!((copied(0..1, None), copied(0..2, None), copied(5..6, Some(0))), (0, 0, 0));
    assert_eq!(copied(end - 1..end, None), 1, "others are");
    assert_eq!(copied(5..6, Some(end as u32 - 2)), 1, "others are");
}

/// A block was freed and discarded in memory, then the kernel died; on disk the file still had it, so that
/// e2fsck, through the served volume, had no bitmap to write and called the volume clean. Nothing froze, and a
/// copy was put into the file's block.
#[test]
fn copy_into_a_block_that_a_check_found_in_use() {
    let mut p = Play::at("fsck-served");
    p.act(&[Action::BitmapArrives]).rest().act(&[Action::Free(R), Action::Discard(R)]).rest();
    p.act(&[Action::KernelDies, Action::Run(Tool::Check)]).rest();
    assert_eq!(*p.0.volume().unwrap().standing(), Standing::Frozen(Freeze::Checked));
    p.no_copy_to_r();
}

/// And the check's superblock is answered after copies in flight, which may land in such a block.
#[test]
fn check_answered_before_the_copy() {
    let mut p = Play::at("fsck-served");
    p.act(&[Action::BitmapArrives]).rest().act(&[Action::Free(R), Action::Discard(R)]).rest();
    p.act(&[READ]).rest().act(&[BG]).flies("the daemon's write of R");
    p.act(&[Action::KernelDies, Action::Run(Tool::Check)]).lands("the client's flush");
    p.lands("the client's write of the superblock").unanswered(1);
    p.lands("the daemon's write of R").mapped(R, false);
}
