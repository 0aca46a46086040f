//! Copies beside open requests, step by step: what goes first, and what does not go at all.

use fs2_block::{Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::{EngineConfig, Freeze, IoOp, Part, Standing, Without};
use fs2_sim::glue::Scripted;

use crate::session::{BLOCK, DATA, Session, config, image};

/// Never resting, with 1100 read and waiting to be copied to 1300.
fn waiting(config: EngineConfig) -> Session {
    let restless_after = Nanos(0);
    let mut s = Session::attach(image(&DATA, &[], 0), EngineConfig { restless_after, ..config });
    s.policy(Scripted { capture: true, beside: Some(1), target: Some(1300), ..Scripted::default() });
    assert_eq!(s.value(1100), 0x11);
    s.done.clear();
    s
}

fn asks(s: &mut Session, block: u64) -> u64 {
    s.submit(Op::Read, block * BLOCK as u64, BLOCK as u64, None)
}

/// Blocks at which the engine read and wrote, in order.
fn done(s: &Session) -> Vec<(bool, u64)> {
    s.done
        .iter()
        .filter(|(op, _)| *op != IoOp::Flush)
        .map(|(op, e)| (*op == IoOp::Read, e.offset() / BLOCK as u64))
        .collect()
}

#[test]
fn a_copy_goes_before_who_waits_and_a_look_before_it() {
    let mut s = waiting(config());
    let request = asks(&mut s, 1104);
    let answers = s.run();
    assert_eq!(answers, [(request, Ok([0x15, 0].repeat(BLOCK / 2)))]);
    let done = done(&s);
    assert_eq!(done[0], (true, 1), "the superblock");
    let at = |what| done.iter().position(|&d| d == what).unwrap_or_else(|| panic!("{what:?} in {done:?}"));
    assert!(at((false, 1300)) < at((true, 1104)), "{done:?}");
    assert_eq!(s.replicas(), [(1100, 1300)]);
    let stats = s.volume.stats();
    assert!(stats.copies_written == 1 && stats.beside >= 2, "{stats:?}");
}

#[test]
fn a_foreign_writer_is_noticed_before_copies_land() {
    let mut s = waiting(config());
    // Mounted elsewhere meanwhile, once more.
    s.device[1024 + 52] += 1;
    asks(&mut s, 1104);
    assert_eq!(s.run().len(), 1);
    assert_eq!(*s.volume.standing(), Standing::Frozen(Freeze::ForeignWriter));
    assert_eq!((s.volume.stats().copies_written, s.replicas()), (0, vec![]));
    assert!(!done(&s).contains(&(false, 1300)));
}

#[test]
fn a_look_holds_for_a_minute() {
    let without = [Part::Disturbance, Part::Slowest].into_iter().collect::<Without>();
    let mut s = waiting(EngineConfig { without, ..config() });
    // Else writes are so quick that there must be a cache.
    s.takes = Nanos::from_millis(10);
    let looks = |s: &Session| done(s).iter().filter(|&&d| d == (true, 1)).count();
    for block in [1104, 1105] {
        asks(&mut s, block);
        s.run();
        s.policy(Scripted { capture: true, beside: Some(1), target: Some(1400), ..Scripted::default() });
    }
    assert_eq!((looks(&s), s.volume.stats().copies_written), (1, 2));
    s.now += Nanos::from_millis(60_000);
    asks(&mut s, 1101);
    s.run();
    assert_eq!(looks(&s), 2);
}

#[test]
fn nobody_waits_who_flushes() {
    let mut s = waiting(config());
    s.submit(Op::Flush, 0, 0, None);
    asks(&mut s, 1104);
    let flush = s.dispatch().expect("it goes first");
    assert_eq!(flush.op, IoOp::Flush);
    let next = s.dispatch().expect("the drive takes more");
    assert_eq!(next.extent.offset(), 1104 * BLOCK as u64);
    s.complete(flush);
    s.complete(next);
    assert_eq!(s.run().len(), 2);
    assert_eq!(s.volume.stats().beside, 0);
}

#[test]
fn where_there_is_no_room_nothing_gives_way_beside_requests() {
    let without = [Part::Disturbance, Part::Slowest].into_iter().collect::<Without>();
    let mut s = waiting(EngineConfig { space: Permille::new(1).unwrap(), without, ..config() });
    s.takes = Nanos::from_millis(10);
    for (i, block) in [1101, 1102, 1103, 1104, 1105, 1500].into_iter().enumerate() {
        asks(&mut s, block);
        s.run();
        let target = Some(1310 + i as u32);
        s.policy(Scripted { capture: true, beside: Some(1), target, ..Scripted::default() });
    }
    let stats = s.volume.stats();
    assert!((1..5).contains(&stats.copies_written) && stats.reclaimed == 0, "{stats:?}");
}

/// Where a drive caches writes a copy is on its platters before anybody is served; where a flush would have clients' writes to wait for,
/// none is made.
#[test]
fn a_copy_in_the_drives_cache_is_flushed_before_anybody_is_served() {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in").with_write_cache(8192, 1.0);
    let cached = || EngineConfig { drive: Some(drive.clone()), settle: true, ..config() };
    let mut s = waiting(cached());
    asks(&mut s, 1104);
    assert_eq!(s.run().len(), 1);
    let at = |s: &Session, what: (IoOp, u64)| {
        s.done.iter().position(|(op, e)| (*op, e.offset() / BLOCK as u64) == what)
    };
    let copy = at(&s, (IoOp::Write { fua: false }, 1300)).expect("a copy");
    assert_eq!(s.done[copy + 1].0, IoOp::Flush);
    assert!(copy + 1 < at(&s, (IoOp::Read, 1104)).expect("the read"), "{:?}", s.done);
    let beside = s.volume.stats().beside;
    assert!(beside >= 3, "look, copy and flush: {beside}");

    let mut s = Session::attach(image(&DATA, &[], 0), EngineConfig { restless_after: Nanos(0), ..cached() });
    (0..50).for_each(|n| s.write(1501, 1, n).unwrap_or_else(|e| panic!("write {n}: {e}")).clear());
    s.policy(Scripted { capture: true, beside: Some(1), target: Some(1300), ..Scripted::default() });
    assert_eq!(s.value(1100), 0x11);
    asks(&mut s, 1104);
    assert_eq!(s.run().len(), 1);
    assert_eq!((s.volume.stats().copies_written, s.volume.stats().beside), (0, 0));
}

/// A copy made in a pause is flushed in a pause.
#[test]
fn who_comes_after_a_pause_waits_for_no_flush() {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in").with_write_cache(8192, 1.0);
    let config = EngineConfig { drive: Some(drive), settle: true, restless_after: Nanos(0), ..config() };
    let mut s = Session::attach(image(&DATA, &[], 0), config);
    s.policy(Scripted { capture: true, target: Some(1300), ..Scripted::default() });
    s.value(1100);
    s.now += Nanos::from_millis(1000);
    s.volume.handle_timeout(s.now);
    let copy = std::iter::from_fn(|| {
        s.dispatch().map(|io| (io.extent.offset() == 1300 * BLOCK as u64, s.complete(io)).0)
    });
    assert!(copy.take(100).any(|copies| copies));
    asks(&mut s, 1104);
    let next = s.dispatch().expect("the read that came");
    assert_eq!((next.op, next.extent.offset()), (IoOp::Read, 1104 * BLOCK as u64));
}

/// A drive that caches writes behind a page cache; the part left out; a policy that does not; a rest less than a minute ago.
#[test]
fn elsewhere_copies_wait_for_rests() {
    let drive = DriveProfile::builtin("wd800-repaired").expect("it is built in").with_write_cache(8192, 1.0);
    let cached = EngineConfig { drive: Some(drive), ..config() };
    let without = EngineConfig { without: [Part::Beside].into_iter().collect::<Without>(), ..config() };
    for config in [cached, without] {
        let mut s = waiting(config);
        asks(&mut s, 1104);
        s.run();
        assert_eq!(s.volume.stats().beside, 0);
    }
    let mut s = waiting(config());
    s.policy(Scripted { target: Some(1300), ..Scripted::default() });
    asks(&mut s, 1104);
    s.run();
    assert_eq!(s.volume.stats().beside, 0);
    let mut s = Session::attach(image(&DATA, &[], 0), config());
    s.policy(Scripted { capture: true, beside: Some(1), target: Some(1300), ..Scripted::default() });
    s.value(1100);
    // Requests twice a second, the first after a rest.
    let mut reads = |n: usize| {
        for _ in 0..n {
            s.now += Nanos::from_millis(500);
            assert_eq!(s.value(1500), 0x17);
        }
        s.volume.stats().beside
    };
    assert_eq!(reads(115), 0);
    assert!(reads(10) > 0);
    assert_eq!(s.replicas()[0], (1100, 1300));
}
