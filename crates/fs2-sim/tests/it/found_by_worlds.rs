//! Holes in the engine that worlds found: each is named in its first line, and closed.

use std::cell::RefCell;

use fs2_block::{BlockRange, ConnectionId, Extent, Flags, Nanos, Op, ReadAt, Request, RequestId, WriteAt};
use fs2_engine::offline::{CreateOptions, Devices, create, table_bytes};
use fs2_engine::{
    AttachError, AttachOptions, EIO, EngineConfig, IoId, IoOp, Outcome, PolicyKind, Standing, Target, Volume,
};
use fs2_sim::glue::Scripted;
use fs2_sim::world::disk::{Disk, Handle};
use fs2_sim::world::image::{Geometry, make};

use crate::session::{self, Session};

/// A volume with its table apart, fresh and marked: the mark is in slot 1, at byte 4096.
struct Ground {
    volume: Disk,
    table: Disk,
}

fn ground() -> Ground {
    let geo = Geometry::new(1024, 4, 0);
    let mut bytes = make(&geo, &[Some(vec![1500])]);
    let size = table_bytes(&mut bytes, CreateOptions::default().space).unwrap().max(1 << 18);
    let (mut volume, mut table) = (Disk::new(&bytes, 1024), Disk::new(&vec![0; size as usize], 4096));
    let (mut a, mut b) = (|_| false, |_| false);
    let mut v = Handle { disk: &mut volume, fails: &mut a, budget: u64::MAX };
    let mut t = Handle { disk: &mut table, fails: &mut b, budget: u64::MAX };
    let t: &mut dyn WriteAt = &mut t;
    let how = CreateOptions { volume_id: 7, ..CreateOptions::default() };
    create(&mut Devices::new(&mut v, Some(t)), &how, &mut |_| {}).unwrap();
    Ground { volume, table }
}

impl Ground {
    /// Attaches; reads of the table that begin at one of these bytes fail.
    fn attach(&mut self, unreadable: &[u64]) -> Result<Volume, AttachError> {
        let (mut a, mut b) = (|_| false, |e: Extent| unreadable.contains(&e.offset()));
        let mut v = Handle { disk: &mut self.volume, fails: &mut a, budget: 0 };
        let mut t = Handle { disk: &mut self.table, fails: &mut b, budget: 0 };
        let t: &mut dyn ReadAt = &mut t;
        let config = EngineConfig { policy: PolicyKind::None, paranoid: true, ..EngineConfig::default() };
        Volume::attach(&mut v, Some(t), config, &AttachOptions::default()).map(|(volume, _)| volume)
    }
}

/// Writes a block as a client; I/O that changes or flushes something fails as `fails` says, asked with its
/// number. Says what was done, and how the write ended.
fn write(
    volume: &mut Volume,
    id: u64,
    fails: impl Fn(usize, Target, IoOp) -> bool,
) -> (Vec<String>, Result<(), i32>) {
    let request = Request {
        id: RequestId(id),
        connection: ConnectionId(0),
        op: Op::Write,
        extent: Extent::new(1500 * 1024, 1024),
        flags: Flags::default(),
    };
    let done = RefCell::new(Vec::new());
    volume.submit(Nanos(id), request, Some(&[1; 1024]));
    for n in 0..40 {
        if let Some(reply) = volume.poll_reply() {
            assert_eq!(reply.request, request.id);
            return (done.into_inner(), reply.result);
        }
        let Some(io) = volume.poll_dispatch(Nanos(id)) else { continue };
        let failed = fails(n, io.target, io.op);
        let how = if failed { " fails" } else { "" };
        done.borrow_mut().push(match io.op {
            IoOp::Flush => format!("flush {:?}{how}", io.target),
            _ => format!("write {:?} {}{how}", io.target, io.extent.offset()),
        });
        volume.complete(Nanos(id), io.id, if failed { Outcome::failed(EIO) } else { Outcome::done() });
    }
    panic!("no answer after {:?}", done.into_inner());
}

/// Where the header's slot with the mark could not be read at the attach, the volume was served as a plain
/// device and its clients' writes did not wait for the mark's erasure: the next attach could have believed it.
#[test]
fn mark_in_a_slot_that_cannot_be_read() {
    let mut g = ground();
    let mut volume = g.attach(&[4096]).unwrap();
    assert!(matches!(volume.standing(), Standing::Inactive(_)), "{:?}", volume.standing());
    let (done, result) = write(&mut volume, 1, |_, _, _| false);
    assert_eq!(done, ["write Table 4096", "flush Table", "write Volume 1536000"]);
    assert_eq!(result, Ok(()));
}

/// The same where neither slot can be read: there is nothing to overwrite, and no way to know. The attach is
/// refused, as one whose superblock cannot be read is.
#[test]
fn mark_in_a_header_that_cannot_be_read() {
    let refused = ground().attach(&[0, 4096]).err();
    assert!(matches!(refused, Some(AttachError::Io { .. })), "{refused:?}");
}

/// Two errors in a row while the mark was being erased, or one of the flush behind it, and every write of the
/// session was refused: a fault of the table costs speed, and no more while it passes.
#[test]
fn errors_while_the_mark_is_erased() {
    let mut volume = ground().attach(&[]).unwrap();
    assert_eq!(*volume.standing(), Standing::Active);
    let (done, result) = write(&mut volume, 1, |n, _, _| n < 2 || n == 3);
    assert_eq!(
        done,
        [
            "write Table 0 fails",
            "write Table 4096 fails",
            "write Table 0",
            "flush Table fails",
            "write Table 4096",
            "flush Table",
            "write Volume 1536000"
        ]
    );
    assert_eq!(result, Ok(()));
}

/// A mark that could not be erased was never tried again in the session.
#[test]
fn mark_that_was_stuck_is_tried_again() {
    let mut volume = ground().attach(&[]).unwrap();
    let (done, result) = write(&mut volume, 1, |_, target, _| target == Target::Table);
    assert_eq!((done.len(), result), (4, Err(EIO)), "{done:?}");
    assert!(done.iter().all(|d| d.starts_with("write Table")), "{done:?}");
    let (done, result) = write(&mut volume, 2, |_, _, _| false);
    assert_eq!(done, ["write Table 0", "flush Table", "write Volume 1536000"]);
    assert_eq!(result, Ok(()));
}

/// Clients over two connections, without data that counts.
struct Clients {
    disk: Disk,
    volume: Volume,
    group: u32,
    /// The group's first block, its bitmap, and where that is.
    first: u32,
    bitmap: Vec<u8>,
    bitmap_at: u64,
    next: u64,
    /// What is sent to the table's device stays there.
    table_hangs: bool,
    hanging: Vec<IoId>,
}

impl Clients {
    fn new() -> Clients {
        let mut g = ground();
        let volume = g.attach(&[]).unwrap();
        let geo = Geometry::new(1024, 4, 0);
        let group = geo.group_of(2000);
        let bitmap_at = u64::from(geo.bitmap(group)) * 1024;
        let bitmap = g.volume.read(Extent::new(bitmap_at, 1024)).to_vec();
        Clients {
            disk: g.volume,
            volume,
            bitmap,
            first: geo.group(group).0,
            group,
            bitmap_at,
            next: 1,
            table_hangs: false,
            hanging: Vec::new(),
        }
    }

    fn send(&mut self, op: Op, at: u64, over: u32, payload: Option<&[u8]>) -> &mut Clients {
        let request = Request {
            id: RequestId(self.next),
            connection: ConnectionId(over),
            op,
            extent: Extent::new(at, 1024),
            flags: Flags::default(),
        };
        self.next += 1;
        self.volume.submit(Nanos(self.next), request, payload);
        self.work();
        self
    }

    fn work(&mut self) {
        while let Some(io) = self.volume.poll_dispatch(Nanos(self.next)) {
            if self.table_hangs && io.target == Target::Table {
                self.hanging.push(io.id);
                continue;
            }
            let bytes = if io.op == IoOp::Read { self.disk.read(io.extent).to_vec() } else { Vec::new() };
            self.volume.complete(Nanos(self.next), io.id, Outcome { result: Ok(()), data: &bytes });
        }
    }

    fn discard(&mut self, block: u32, over: u32) -> &mut Clients {
        self.send(Op::Discard, u64::from(block) * 1024, over, None)
    }

    fn write(&mut self, block: u32, over: u32) -> &mut Clients {
        self.send(Op::Write, u64::from(block) * 1024, over, Some(&[1; 1024]))
    }

    /// The group's bitmap, with this block in use.
    fn claim(&mut self, block: u32, over: u32) -> &mut Clients {
        let bit = block - self.first;
        self.bitmap[bit as usize / 8] |= 1 << (bit % 8);
        let (at, bytes) = (self.bitmap_at, self.bitmap.clone());
        self.send(Op::Write, at, over, Some(&bytes))
    }

    fn is_free(&self, block: u32) -> bool {
        self.volume.liveness().unwrap().is_free(fs2_block::BlockNo(block))
    }
}

/// A discard over a connection that broke was read after a bitmap had claimed its block over the next one,
/// and took the claim back.
#[test]
fn late_discard_of_a_claimed_block() {
    let mut c = Clients::new();
    assert!(c.discard(2000, 1).is_free(2000));
    assert!(!c.claim(2000, 1).is_free(2000));
    assert!(!c.discard(2000, 0).is_free(2000), "it was left in the old connection's socket");
    assert!(c.discard(2000, 1).is_free(2000), "the file system frees it again");
}

/// The same where the bitmap's write is the first to touch its group, and loads it.
#[test]
fn late_discard_of_a_block_claimed_while_its_group_is_loaded() {
    let mut c = Clients::new();
    assert!(!c.claim(2000, 1).is_free(2000));
    assert!(c.volume.liveness().unwrap().is_loaded(c.group) && c.is_free(2001));
    assert!(!c.discard(2000, 0).is_free(2000));
    assert!(c.write(2000, 1).discard(2000, 1).is_free(2000), "what is written over it says whose it is");
}

/// A discard that waited for the mark's erasure freed its block, although a bitmap had claimed it meanwhile.
#[test]
fn discard_that_waits_while_its_block_is_claimed() {
    let mut c = Clients::new();
    // Idle: the bitmaps are read.
    c.next = 60_000_000_000;
    c.work();
    assert!(c.is_free(2000));
    c.table_hangs = true;
    c.discard(2000, 0).claim(2000, 0).table_hangs = false;
    assert_eq!((c.hanging.len(), c.is_free(2000)), (1, false));
    let erasure = c.hanging.pop().unwrap();
    c.volume.complete(Nanos(c.next), erasure, Outcome::done());
    c.work();
    assert!(!c.is_free(2000));
    assert!(c.discard(2000, 0).is_free(2000), "nothing is left of it");
}

/// After a failed flush copies went on landing in blocks that the file system may have in use, for
/// what tells of that is refused from then on.
#[test]
fn once_a_flush_failed_nothing_lands_in_free_blocks() {
    let image = session::image(&session::DATA, &[BlockRange::new(1100, 1104)], 1300);
    let config = EngineConfig { punch: true, ..session::config() };
    for fails in [false, true] {
        let mut s = Session::attach(image.clone(), config.clone());
        s.write(1500, 1, 1).unwrap();
        s.idle(10_000).idle(10_000);
        // One waits to be copied, and two to be punched.
        let evict = Some(BlockRange::new(1301, 1303));
        s.policy(Scripted { capture: true, target: Some(1310), evict, ..Scripted::default() }).value(1104);
        s.volume.handle_timeout(s.now);
        if fails {
            s.fail = |io| (io.op == IoOp::Flush).then_some(EIO);
        }
        assert_eq!(s.other(Op::Flush, 0, 0).is_err(), fails);
        s.fail = |_| None;
        // One is read, and one evicted, later.
        let evict = Some(BlockRange::new(1300, 1301));
        s.policy(Scripted { capture: true, target: Some(1310), evict, ..Scripted::default() }).value(1105);
        s.volume.handle_timeout(s.now);
        s.done.clear();
        s.idle(10_000).idle(10_000);
        let near =
            |at: &Extent| (1300 * session::BLOCK as u64..1400 * session::BLOCK as u64).contains(&at.offset());
        let landed: Vec<_> = s.done.iter().filter(|(op, at)| *op != IoOp::Read && near(at)).collect();
        assert_eq!(landed.is_empty(), fails, "{landed:?}");
        assert_eq!(s.replicas().len() > 2, !fails);
    }
}
