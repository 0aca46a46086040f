//! The table as sessions read and write it: more pages than one read or one batch has, more entries than the
//! sample, and headers, each with a generation of its own.

use std::collections::BTreeMap;

use fs2_block::{BlockNo, BlockRange, Op};
use fs2_engine::{AttachOptions, EIO, EngineConfig, IoOp, Standing, Target, Volume};
use fs2_sim::glue::Scripted;
use fs2_table::{Header, Mark, PAGE_BYTES};

use crate::session::{BLOCK, DATA, Session, config, image};

const PAGE: u64 = PAGE_BYTES as u64;

/// Where the table on inode 5 begins.
fn table_at(device: &[u8]) -> usize {
    let mut reader = device.to_vec();
    let layout = fs2_ext2::Layout::read(&mut reader).unwrap();
    let file = fs2_ext2::TableFile::find(&layout, &mut reader).unwrap().unwrap();
    file.extents[0].1.offset() as usize
}

/// Where its entry page of that number is, in a table in one piece on a volume of few groups.
fn page_at(device: &[u8], number: usize) -> usize {
    table_at(device) + (4 + number) * PAGE_BYTES
}

/// Both header slots.
fn slots(device: &[u8]) -> [Option<Header>; 2] {
    let at = table_at(device);
    [0, 1].map(|slot| Header::parse(&device[at + slot * PAGE_BYTES..][..PAGE_BYTES]).unwrap())
}

/// Generation and mark of each.
fn headers(device: &[u8]) -> [Option<(u64, bool)>; 2] {
    slots(device).map(|slot| slot.map(|header| (header.generation, header.mark.is_some())))
}

/// Two slots of one generation would leave neither in force.
#[test]
fn each_header_has_the_next_generation() {
    let mut device = image(&DATA, &[], 0);
    let mut last = headers(&device).into_iter().flatten().max().unwrap();
    assert!(last.1, "mkfs2 leaves a mark");
    for _ in 0..3 {
        let mut s = Session::attach(device, config());
        s.policy(Scripted::default()).write(1500, 1, 1).unwrap();
        let sorted = |s: &Session| {
            let mut both = headers(&s.device);
            both.sort();
            both
        };
        // The mark's erasure, over the slot that did not stand; then, at an idle moment, the other slot.
        assert_eq!(sorted(&s), [Some(last), Some((last.0 + 1, false))]);
        s.idle(10_000);
        assert_eq!(sorted(&s), [Some((last.0 + 1, false)), Some((last.0 + 2, false))]);
        let marked;
        (marked, device) = s.detach();
        assert!(marked);
        last = (last.0 + 3, true);
        assert_eq!(headers(&device).iter().max(), Some(&Some(last)));
        assert_eq!(headers(&device).iter().min(), Some(&Some((last.0 - 1, false))));
    }
}

/// A client reads the slot that held the mark just when it is to be overwritten: that comes later, and the slots are as they were until then.
#[test]
fn the_old_slot_is_overwritten_behind_a_read_of_it() {
    let mut s = Session::attach(image(&DATA, &[], 0), config());
    s.policy(Scripted { eager: true, ..Scripted::default() });
    let before = headers(&s.device);
    let (slot, &last) = before.iter().enumerate().max_by_key(|h| h.1).unwrap();
    let last = last.unwrap();
    assert!(last.1, "mkfs2 leaves a mark");
    let layout = fs2_ext2::Layout::read(&mut s.device).unwrap();
    let file = fs2_ext2::TableFile::find(&layout, &mut s.device).unwrap().unwrap();
    s.submit(Op::Read, file.extents[0].1.offset() + slot as u64 * PAGE, PAGE, None);
    let read = s.dispatch().unwrap();
    s.write(1500, 1, 1).unwrap();
    let mut expected = before;
    expected[1 - slot] = Some((last.0 + 1, false));
    assert_eq!(headers(&s.device), expected, "the mark's erasure");
    s.complete(read);
    s.run();
    expected[slot] = Some((last.0 + 2, false));
    assert_eq!(headers(&s.device), expected);
    let (marked, device) = s.detach();
    assert!(marked);
    expected[1 - slot] = Some((last.0 + 3, true));
    assert_eq!(headers(&device), expected, "over the slot that does not stand");
}

#[test]
fn the_sample_is_drawn_from_all_of_the_table() {
    let data: Vec<(u32, u16)> = (100..700).map(|b| (b, b as u16)).collect();
    let device = image(&data, &[BlockRange::new(100, 700)], 1100);
    for (seed, from) in [(0, 0), (5, 1), (8, 0), (9, 1)] {
        let mut s = Session::attach(device.clone(), EngineConfig { seed, ..config() });
        assert_eq!((s.volume.table().len(), s.volume.table().unverified_count()), (600, 0));
        let all: Vec<BlockNo> = s.volume.table().iter().map(|r| r.original).collect();
        s.policy(Scripted::default()).idle(1000);
        let mut read: Vec<BlockNo> = s
            .done
            .iter()
            .map(|d| BlockNo((d.1.offset() / BLOCK as u64) as u32))
            .filter(|b| BlockRange::new(100, 700).contains(*b))
            .collect();
        // Every second of 600, 256 of them.
        read.sort();
        let mut want: Vec<BlockNo> = all.iter().copied().skip(from).step_by(2).take(256).collect();
        want.sort();
        assert_eq!(read, want, "seed {seed}");
    }
    // A table no larger than the sample is looked at whole.
    let device = image(&data, &[BlockRange::new(100, 356)], 1100);
    let mut s = Session::attach(device, config());
    s.policy(Scripted::default()).idle(1000);
    let originals = s.done.iter().filter(|d| d.0 == IoOp::Read && d.1.offset() < 356 * BLOCK as u64);
    assert_eq!(originals.filter(|d| d.1.offset() >= 100 * BLOCK as u64).count(), 256);
}

#[test]
fn a_table_of_several_reads_is_read_to_its_end() {
    for pages in [255, 256, 257, 600] {
        let (s, report) = Session::attach_apart_of(pages, |_| {});
        let report = report.table.unwrap();
        assert_eq!(*s.volume.standing(), Standing::Active);
        assert_eq!((report.pages, report.pages_empty, report.pages_unread), (pages as u32, pages as u32, 0));
    }
}

/// A mark tells which pages are zero, and who attaches does not read them. `chkfs2` reads all.
#[test]
fn pages_that_a_mark_says_are_zero_are_not_read() {
    let copied = [BlockRange::new(100, 356)];
    let marks = |device: &[u8]| -> Vec<Option<u32>> {
        slots(device).into_iter().flatten().filter_map(|h| Some(h.mark?.pages_end)).collect()
    };
    let data: Vec<_> = (100..710).map(|block| (block, block as u16)).collect();
    let empty = image(&data, &[], 0);
    assert_eq!(marks(&empty), [Some(0)], "mkfs2 leaves an empty table");
    let device = image(&data, &copied, 1100);
    assert_eq!(marks(&device), [Some(2)], "of 256 entries, 248 to a page");
    let session = |device: Vec<u8>, block: u32, blocks: u32| {
        let mut s = Session::attach(device, config());
        s.policy(Scripted::default()).write(block, blocks, 1).unwrap();
        let replicas = s.volume.table().len();
        let (marked, device) = s.detach();
        assert!(marked);
        (replicas, device)
    };
    let (replicas, device) = session(device, 705, 1);
    assert_eq!((replicas, marks(&device)), (256, vec![Some(2)]));
    let (none, emptied) = session(device.clone(), 100, 256);
    assert_eq!(
        (none, marks(&emptied)),
        (0, vec![Some(0)]),
        "of a table whose originals were written all are zero again"
    );
    let mut device = device;
    let page = page_at(&device, 2);
    device[page..][..PAGE_BYTES].fill(0xee);
    let attached = |device: &[u8]| {
        let options = AttachOptions::default();
        let (volume, report) = Volume::attach(&mut device.to_vec(), None, config(), &options).unwrap();
        (volume.table().len(), report.table.unwrap())
    };
    let (found, report) = attached(&device);
    assert_eq!((found, report.is_clean(), report.pages_used), (replicas, true, 2), "{report}");
    assert_eq!(attached(&emptied).0, 0);
    // Nothing says so to who finds the mark of an earlier FS2.
    for header in slots(&device).into_iter().flatten().filter(|h| h.mark.is_some()) {
        let mark = header.mark.clone().map(|mark| Box::new(Mark { pages_end: None, ..*mark }));
        let at = slots(&device).iter().position(|h| h.as_ref() == Some(&header)).unwrap();
        let at = table_at(&device) + at * PAGE_BYTES;
        device[at..][..PAGE_BYTES].copy_from_slice(&Header { mark, ..header }.encode());
    }
    let (found, report) = attached(&device);
    assert_eq!((found, report.pages_damaged), (replicas, 1), "{report}");
}

/// Pages that hold anything but entries are written anew at the end, in batches.
#[test]
fn a_detach_writes_its_pages_in_batches() {
    let (mut s, report) = Session::attach_apart_of(150, |pages| pages.fill(0xee));
    assert_eq!(report.table.unwrap().pages_damaged, 150);
    s.policy(Scripted::default()).write(1500, 1, 1).unwrap();
    s.volume.begin_detach(s.now);
    let mut batches = Vec::new();
    let mut written = BTreeMap::new();
    loop {
        let ios: Vec<_> = std::iter::from_fn(|| s.dispatch()).collect();
        if ios.is_empty() {
            break;
        }
        let pages = ios.iter().filter(|io| {
            let page = matches!(io.op, IoOp::Write { .. }) && io.extent.offset() >= 4 * PAGE;
            page && io.target == Target::Table
        });
        for io in pages.clone() {
            *written.entry(io.extent.offset() / PAGE - 4).or_insert(0) += 1;
        }
        match pages.count() {
            0 => {}
            n => batches.push(n),
        }
        ios.into_iter().for_each(|io| s.complete(io));
    }
    assert_eq!(batches, [64, 64, 22]);
    assert_eq!(written, (0..150).map(|page| (page, 1)).collect());
    assert_eq!((s.volume.stats().table_pages_written, s.volume.stats().table_errors), (150, 0));
    let ended = s.volume.detached().unwrap();
    assert!(ended.marked, "{ended:?}");
    let (s, report) = Session::attach_both(s.device, s.table, config());
    let report = report.table.unwrap();
    assert_eq!((s.volume.standing(), report.pages_damaged), (&Standing::Active, 0));
}

/// A page that fails at the end: no mark, and what did not reach the disk is still to be written.
#[test]
fn a_detach_whose_page_fails_leaves_no_mark() {
    let (mut s, _) = Session::attach_apart_of(150, |pages| pages.fill(0xee));
    s.policy(Scripted::default()).write(1500, 1, 1).unwrap();
    s.fail = |io| (io.target == Target::Table && io.extent.offset() == 70 * PAGE).then_some(EIO);
    s.volume.begin_detach(s.now);
    s.run();
    let ended = s.volume.detached().unwrap();
    assert_eq!((ended.marked, ended.why_not.is_some()), (false, true));
    assert_eq!((s.volume.stats().table_pages_written, s.volume.stats().table_errors), (149, 1));
    assert_eq!(s.volume.table().dirty_pages(), 1);
    let found = Header::recover(&s.table[..PAGE_BYTES], &s.table[PAGE_BYTES..2 * PAGE_BYTES]);
    assert!(found.header.unwrap().mark.is_none());
}

/// R7 across a restart. A client took the blocks of a header slot, and the daemon is killed before inode 5 on disk says so: the next one's
/// erasure of the mark, also one that is tried again, goes over the other slot.
#[test]
fn what_a_client_took_of_the_table_stays_the_clients_behind_a_kill() {
    let mut s = Session::attach(image(&DATA, &[], 0), config());
    s.policy(Scripted::default()).write(1500, 1, 1).unwrap();
    let layout = fs2_ext2::Layout::read(&mut s.device).unwrap();
    let file = fs2_ext2::TableFile::find(&layout, &mut s.device).unwrap().unwrap();
    let both = headers(&s.device);
    let standing = usize::from(both[1] > both[0]);
    let at = file.extents[0].1.offset() + (1 - standing) as u64 * PAGE;
    s.write((at / BLOCK as u64) as u32, (PAGE / BLOCK as u64) as u32, 0xee).unwrap();
    let killed = s.device;
    for fails in [false, true] {
        let mut s = Session::attach(killed.clone(), config());
        assert!(matches!(s.volume.standing(), Standing::Inactive(_)), "{:?}", s.volume.standing());
        let id = s.submit(Op::Write, 1501 * BLOCK as u64, BLOCK as u64, Some(&[2; BLOCK]));
        if fails {
            let erasure = s.dispatch().unwrap();
            s.fail = |_| Some(EIO);
            s.complete(erasure);
            s.fail = |_| None;
        }
        assert_eq!(s.run(), [(id, Ok(vec![2; BLOCK]))]);
        let taken = &s.device[at as usize..][..PAGE_BYTES];
        assert!(taken.iter().all(|&b| b == 0xee), "the daemon wrote over what the client had written");
    }
}

/// R7 by inode 5 alone. The kernel exchanges it for another file's (EXT4_IOC_SWAP_BOOT) and writes no block of either: the table's blocks are
/// that file's from then on, and a daemon that wrote on wrote into it.
#[test]
fn what_inode_5_no_longer_names_is_not_written() {
    let inode_5 = |device: &Vec<u8>| {
        let mut device = device.clone();
        let layout = fs2_ext2::Layout::read(&mut device).unwrap();
        fs2_ext2::TableInode::read(&layout, &mut device).unwrap().extent().offset() as usize
    };
    // Access time, group: nothing of the file's. Mode, size, links, sectors, a pointer, the size's high half.
    for (byte, changes) in
        [(8, false), (24, false), (0, true), (5, true), (26, true), (28, true), (41, true), (108, true)]
    {
        let mut s = Session::copied(config());
        s.policy(Scripted::default());
        let at = inode_5(&s.device);
        let from = at / BLOCK * BLOCK;
        let mut block = s.device[from..from + BLOCK].to_vec();
        block[at - from + byte] ^= 1;
        s.submit(Op::Write, from as u64, BLOCK as u64, Some(&block));
        s.run();
        // The mark's erasure came before; an entry that goes makes a page differ, and the old slot waits to be overwritten.
        let before = s.done.len();
        s.write(1101, 1, 1).unwrap();
        s.idle(10_000);
        let mut made = image(&DATA, &[], 0);
        let layout = fs2_ext2::Layout::read(&mut made).unwrap();
        let file = fs2_ext2::TableFile::find(&layout, &mut made).unwrap().unwrap();
        let own = |e: &fs2_block::Extent| file.extents.iter().any(|(_, of)| of.overlaps(*e));
        let written =
            s.done[before..].iter().filter(|(op, e)| matches!(op, IoOp::Write { .. }) && own(e)).count();
        assert_eq!(written == 0, changes, "byte {byte}: {written} writes to the table's blocks");
        let (marked, device) = s.detach();
        assert_eq!(marked, !changes, "byte {byte}");
        assert_eq!(device[at + byte], block[at - from + byte]);
    }
    // A write of a part of it counts, zeroes and a discard do, and what was written back does not undo that.
    for op in [Op::Write, Op::WriteZeroes, Op::Discard] {
        let mut s = Session::copied(config());
        s.policy(Scripted::default());
        let at = inode_5(&s.device);
        let (from, len) = (at / 512 * 512, 512);
        let was = s.device[from..from + len].to_vec();
        let payload = vec![0; len];
        s.submit(op, from as u64, len as u64, (op == Op::Write).then_some(&payload[..]));
        s.run();
        s.submit(Op::Write, from as u64, len as u64, Some(&was));
        s.run();
        assert!(!s.detach().0, "{op:?}");
    }
}

/// R7 by a discard alone: whoever gives up a block of the table gives it to others.
#[test]
fn what_was_discarded_of_the_table_is_not_written() {
    let mut s = Session::copied(config());
    s.policy(Scripted::default());
    let layout = fs2_ext2::Layout::read(&mut s.device).unwrap();
    let file = fs2_ext2::TableFile::find(&layout, &mut s.device).unwrap().unwrap();
    let last = file.extents.last().unwrap().1;
    s.other(Op::Discard, (last.end() / BLOCK as u64) as u32 - 1, 1).unwrap();
    let before = s.done.len();
    s.write(1101, 1, 1).unwrap();
    s.idle(10_000);
    let own = |e: &fs2_block::Extent| file.extents.iter().any(|(_, of)| of.overlaps(*e));
    assert!(s.done[before..].iter().all(|(op, e)| !matches!(op, IoOp::Write { .. }) || !own(e)));
    assert!(!s.detach().0);
}

/// The daemon itself writes the table's blocks, and no copy would be dropped by that: none is made.
#[test]
fn what_is_read_of_the_table_is_not_copied() {
    let mut s = Session::copied(config());
    s.write(1500, 1, 1).unwrap();
    let layout = fs2_ext2::Layout::read(&mut s.device).unwrap();
    let file = fs2_ext2::TableFile::find(&layout, &mut s.device).unwrap().unwrap();
    let first = (file.extents[0].1.offset() / BLOCK as u64) as u32;
    // A block of a file's is.
    for (block, copied) in [(first, 0), (1104, 2)] {
        let before = s.replicas().len();
        s.load_bitmap().copying_to(1310).read(block, 2).unwrap();
        s.idle(1000);
        assert_eq!(s.replicas().len() - before, copied, "block {block}");
    }
}

/// A foreign writer is noticed between the pages of a detach and its mark, or behind that.
#[test]
fn no_mark_behind_a_foreign_writer_noticed_in_a_detach() {
    for before in 0..12 {
        let mut s = Session::copied(config());
        s.policy(Scripted::default()).write(1500, 1, 1).unwrap();
        s.volume.begin_detach(s.now);
        let mut told = false;
        let mut n = 0;
        while let Some(io) = s.dispatch() {
            if n == before {
                s.volume.foreign_writer(s.now);
                told = true;
            }
            n += 1;
            s.complete(io);
        }
        let report = s.volume.detached().expect("it ended");
        let stands = headers(&s.device).into_iter().flatten().max().unwrap().1;
        let none = !report.marked && report.why_not.is_some() && !stands;
        assert!(!told || none, "after {before} of {n}: {report:?}, on disk {stands}");
    }
}

/// A device of which some bytes cannot be read.
struct Unreadable<'a>(&'a mut Vec<u8>, std::ops::Range<u64>);

impl fs2_block::ReadAt for Unreadable<'_> {
    fn size_bytes(&mut self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if offset < self.1.end && offset + buf.len() as u64 > self.1.start {
            return Err(std::io::Error::from_raw_os_error(EIO));
        }
        self.0.read_at(offset, buf)
    }
}

/// The newest header, which bears the mark, cannot be read for a while, nor written. The mark's erasure goes to the other slot, with a
/// number that has to be higher than what was not read.
#[test]
fn a_mark_that_could_not_be_read_is_not_believed_behind_its_erasure() {
    // 1100 to 1103 have replicas. The overwriting of the old slot fails.
    let mut s = Session::copied(config());
    s.policy(Scripted { eager: true, ..Scripted::default() });
    let before = headers(&s.device);
    let old = usize::from(before[1] > before[0]);
    let id = s.submit(Op::Write, 1500 * BLOCK as u64, BLOCK as u64, Some(&[1; BLOCK]));
    while let Some(io) = s.dispatch() {
        let sorted = headers(&s.device);
        let erased = sorted[1 - old] > sorted[old];
        let header = matches!(io.op, IoOp::Write { .. }) && io.extent.len() == PAGE && erased;
        s.fail = if header { |_| Some(EIO) } else { |_| None };
        s.complete(io);
        s.fail = |_| None;
    }
    assert_eq!(s.volume.poll_reply().map(|r| r.request.0), Some(id));
    let (marked, mut device) = s.detach();
    assert!(marked);
    let newest = 1 - old;
    let layout = fs2_ext2::Layout::read(&mut device).unwrap();
    let file = fs2_ext2::TableFile::find(&layout, &mut device).unwrap().unwrap();
    let at = file.extents[0].1.offset() + newest as u64 * PAGE;
    // The next session cannot read it.
    let mut bad = Unreadable(&mut device, at..at + PAGE);
    let (volume, _) = Volume::attach(&mut bad, None, config(), &AttachOptions::default()).unwrap();
    assert!(matches!(volume.standing(), Standing::Inactive(_)));
    let mut s = Session::of(volume, device);
    // Nor write it, the first time.
    let id = s.submit(Op::Write, 1100 * BLOCK as u64, BLOCK as u64, Some(&[0x77; BLOCK]));
    while let Some(io) = s.dispatch() {
        s.fail = if io.extent.offset() == at { |_| Some(EIO) } else { |_| None };
        s.complete(io);
    }
    let reply = s.volume.poll_reply().unwrap();
    assert_eq!((reply.request.0, reply.result), (id, Ok(())));
    // Killed; and it can be read again.
    let mut s = Session::attach(s.device, config());
    s.reading_copies();
    assert_eq!(s.value(1100), 0x7777, "{:?}", s.volume.standing());
}
