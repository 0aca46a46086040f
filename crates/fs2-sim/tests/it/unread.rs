//! Reads that a driver answers without having their bytes: which the engine has no use for, and what it makes of them.

use fs2_block::{BlockRange, Nanos, Op};
use fs2_engine::{EngineConfig, Io, PolicyKind};

use crate::session::{BLOCK, DATA, Session, config, image};

/// Reads a block up to its dispatch; the I/O, and whether its bytes are wanted.
fn begin(s: &mut Session, block: u32) -> (Io, bool) {
    s.submit(Op::Read, u64::from(block) * BLOCK as u64, BLOCK as u64, None);
    let io = s.dispatch().expect("nothing else goes on");
    let wanted = s.volume.wants_bytes(&io);
    (io, wanted)
}

fn end_unread(s: &mut Session, io: &Io) {
    s.now += Nanos::from_millis(1);
    s.volume.complete_unread(s.now, io.id);
    let answers = s.run();
    assert!(answers.len() == 1 && answers[0].1.is_ok(), "{answers:?}");
    s.volume.check();
}

/// 1100 to 1103 have replicas from 1300 on; they are read, and nothing is copied.
fn with_replicas() -> Session {
    let mut s = Session::attach(image(&DATA, &[BlockRange::new(1100, 1104)], 1300), config());
    s.load_bitmap().reading_copies();
    s
}

#[test]
fn of_a_plain_device_none_are_wanted() {
    let config = EngineConfig { policy: PolicyKind::None, ..config() };
    let mut s = Session::attach(image(&DATA, &[], 0), config);
    for block in [1, 1100, 1500] {
        let (io, wanted) = begin(&mut s, block);
        assert!(!wanted, "block {block}");
        end_unread(&mut s, &io);
    }
    assert_eq!(s.volume.stats().reads, 3);
}

/// R8 and R6: a replica is hashed first, and its place is pinned to the read's end only.
#[test]
fn a_replica_is_never_unread() {
    let mut s = with_replicas();
    let (io, wanted) = begin(&mut s, 1101);
    assert_eq!(io.extent.offset(), 1301 * BLOCK as u64);
    assert!(wanted);
    s.complete(io);
    s.run();
}

#[test]
#[should_panic(expected = "no client's read of an original")]
fn a_driver_that_does_it_is_told() {
    let mut s = with_replicas();
    let (io, _) = begin(&mut s, 1101);
    s.volume.complete_unread(s.now, io.id);
}

/// What has a replica is compared with it whenever it is read.
#[test]
fn an_original_that_has_a_replica_is_wanted() {
    let config = EngineConfig { policy: PolicyKind::None, ..config() };
    let mut s = Session::attach(image(&DATA, &[BlockRange::new(1100, 1104)], 1300), config);
    s.load_bitmap();
    let (io, wanted) = begin(&mut s, 1101);
    assert_eq!(io.extent.offset(), 1101 * BLOCK as u64);
    assert!(wanted);
    s.complete(io);
    s.run();
    let (io, wanted) = begin(&mut s, 1500);
    assert!(!wanted, "it has none, and this policy copies nothing");
    end_unread(&mut s, &io);
}

#[test]
fn what_may_be_copied_is_wanted() {
    let mut s = Session::attach(image(&DATA, &[], 0), config());
    s.load_bitmap().copying_to(1300);
    let (io, wanted) = begin(&mut s, 1100);
    assert!(wanted);
    s.complete(io);
    s.run();
}

/// R5: of what went past the engine no copy is made, also where it was wanted, and where a replica came meanwhile.
#[test]
fn what_was_not_seen_is_not_copied() {
    let mut s = Session::attach(image(&DATA, &[], 0), config());
    s.load_bitmap().copying_to(1300);
    let (io, _) = begin(&mut s, 1100);
    end_unread(&mut s, &io);
    s.idle(5000);
    assert_eq!(s.replicas(), []);
    // The same block twice at once: what one of them brings is copied.
    let (first, _) = begin(&mut s, 1100);
    let (second, _) = begin(&mut s, 1100);
    s.complete(first);
    s.run();
    s.volume.complete_unread(s.now, second.id);
    s.run();
    s.idle(5000);
    assert_eq!(s.replicas(), [(1100, 1300)]);
}

/// A write that waits for it changes nothing about whom it serves.
#[test]
fn one_that_was_overtaken_is_not_wanted() {
    let mut s = Session::attach(image(&DATA, &[], 0), config());
    s.load_bitmap().copying_to(1300);
    let at = 1100 * BLOCK as u64;
    s.submit(Op::Read, at, BLOCK as u64, None);
    let write = s.submit(Op::Write, at, BLOCK as u64, Some(&[7; BLOCK]));
    let io = s.dispatch().expect("the read");
    assert!(!s.volume.wants_bytes(&io));
    s.volume.complete_unread(s.now, io.id);
    let answers = s.run();
    assert!(answers.iter().any(|(id, a)| *id == write && a.is_ok()));
    assert_eq!(s.value(1100), 0x0707);
}
