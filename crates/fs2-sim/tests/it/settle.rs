//! A drive that caches writes has copies still to write when somebody reads, unless they are flushed while nobody waits.

use fs2_block::{Extent, Nanos, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_engine::{EIO, EngineConfig, IoOp, PolicyKind};
use fs2_sim::glue::Scripted;
use fs2_sim::replay::{Belief, FreeMap, InUse, Pace, Replay, Run, Scheme, Settings};
use fs2_trace::Record;

use crate::session::{BLOCK, DATA, Session, config, image};

/// A session on a drive that takes so long for a write, several of which it has seen.
fn on_a_drive(settle: bool, us: u64) -> Session {
    let mut s = Session::attach(image(&DATA, &[], 0), EngineConfig { settle, ..config() });
    copying_to(&mut s, 1300).idle(1000);
    writes(&mut s, us, 20);
    s
}

/// So many writes of one block, each of which the drive answers in so long.
fn writes(s: &mut Session, us: u64, count: u8) {
    s.takes = Nanos(us * 1000);
    (0..count).for_each(|n| s.write(1501, 1, n).unwrap_or_else(|e| panic!("write {n}: {e}")).clear());
}

/// Reads are copied from there on, when nobody asks for anything.
fn copying_to(s: &mut Session, target: u32) -> &mut Session {
    s.policy(Scripted { capture: true, target: Some(target), ..Scripted::default() })
}

/// Nobody asks for anything until a copy is made, and then for a read, which is not dispatched yet.
fn copy_and_read(s: &mut Session) {
    s.now += Nanos::from_millis(1000);
    s.volume.handle_timeout(s.now);
    while let Some(io) = s.dispatch() {
        let copies = io.extent == Extent::new(1300 * BLOCK as u64, 1024);
        if copies {
            s.submit(Op::Read, 1500 * BLOCK as u64, 1024, None);
        }
        s.complete(io);
        if copies {
            break;
        }
    }
}

fn flushes(s: &Session) -> usize {
    s.done.iter().filter(|(op, _)| *op == IoOp::Flush).count()
}

#[test]
fn a_copy_in_the_drives_cache_is_flushed_at_once() {
    for (settle, us, wanted) in [(true, 100, 1), (true, 1000, 0), (false, 100, 0)] {
        let mut s = on_a_drive(settle, us);
        s.value(1100);
        let before = flushes(&s);
        s.idle(1000);
        assert_eq!(s.replicas(), [(1100, 1300)]);
        assert_eq!(flushes(&s) - before, wanted, "settle {settle}, {us} us");
        let copy = s.done.iter().rposition(|(_, e)| *e == Extent::new(1300 * BLOCK as u64, 1024)).unwrap();
        assert_eq!(s.done.get(copy + 1).is_some_and(|(op, _)| *op == IoOp::Flush), wanted == 1);
        s.idle(1000);
        assert_eq!(flushes(&s) - before, wanted, "once");
    }
}

#[test]
fn who_comes_meanwhile_goes_first() {
    let mut s = on_a_drive(true, 100);
    s.value(1100);
    let before = flushes(&s);
    copy_and_read(&mut s);
    // No copy of that, now.
    s.policy(Scripted::default());
    let read = s.dispatch().expect("the read that came");
    assert!(s.dispatch().is_none(), "nobody waits for the flush");
    s.complete(read);
    assert_eq!((s.run().len(), flushes(&s)), (1, before));
    s.idle(1000);
    assert_eq!(flushes(&s), before + 1);
    // A client's flush does as well.
    copying_to(&mut s, 1310).value(1101);
    s.now += Nanos::from_millis(1000);
    s.volume.handle_timeout(s.now);
    while let Some(io) = s.dispatch() {
        let copies = io.extent == Extent::new(1310 * BLOCK as u64, 1024);
        if copies {
            s.submit(Op::Flush, 0, 0, None);
        }
        s.complete(io);
    }
    assert_eq!(s.run().len(), 1);
    s.idle(1000);
    assert_eq!(flushes(&s), before + 2);
}

/// A drive whose cache is full of clients' writes answers none of them soon, and seems to have no cache: a flush of the one copy in it took
/// five seconds.
#[test]
fn a_copy_in_a_cache_that_is_full_waits_for_a_long_rest() {
    let mut s = on_a_drive(true, 100);
    s.value(1100);
    let before = flushes(&s);
    copy_and_read(&mut s);
    s.policy(Scripted::default()).run();
    writes(&mut s, 100, 200);
    writes(&mut s, 3000, 60);
    s.idle(500);
    assert_eq!(
        (s.replicas(), flushes(&s)),
        (vec![(1100, 1300)], before),
        "clients' writes would be waited for"
    );
    s.idle(6000);
    assert_eq!(flushes(&s), before + 1);
}

/// A copy is no smaller than what clients write, and waits for all whose room it needs: one of a MiB took half a second.
#[test]
fn no_copy_is_put_into_a_cache_that_is_full() {
    for (quick, waits) in [(10, false), (250, true)] {
        let mut s = on_a_drive(true, 100);
        s.value(1100);
        writes(&mut s, 100, quick);
        writes(&mut s, 3000, 60);
        s.idle(500);
        assert_eq!(s.replicas().len(), usize::from(!waits), "behind {quick} writes");
        s.idle(6000);
        assert_eq!(s.replicas(), [(1100, 1300)], "behind {quick} writes");
    }
}

/// Clients' writes were in it before anybody knew of the cache, and the first flush of a copy waited for all of them.
#[test]
fn a_cache_that_is_found_with_a_copy_may_be_full_of_others() {
    for (slow, at_once) in [(10, true), (120, false)] {
        let mut s = Session::attach(image(&DATA, &[], 0), EngineConfig { settle: true, ..config() });
        copying_to(&mut s, 1300).idle(1000);
        writes(&mut s, 1000, slow);
        writes(&mut s, 100, 10);
        s.value(1100);
        let before = flushes(&s);
        s.idle(100);
        assert_eq!(s.replicas(), [(1100, 1300)]);
        assert_eq!(flushes(&s) - before, usize::from(at_once), "behind {slow} writes");
        s.idle(2000);
        assert_eq!(flushes(&s) - before, 1, "behind {slow} writes");
    }
}

#[test]
fn a_copy_that_failed_is_in_no_cache() {
    let mut s = on_a_drive(true, 100);
    s.value(1100);
    let before = flushes(&s);
    s.fail = |io| (io.extent == Extent::new(1300 * BLOCK as u64, 1024)).then_some(EIO);
    s.idle(1000);
    assert_eq!((s.replicas().len(), flushes(&s)), (0, before));
}

#[test]
fn its_failure_is_a_failed_flush() {
    let mut s = on_a_drive(true, 100);
    s.value(1100);
    s.fail = |io| (io.op == IoOp::Flush).then_some(EIO);
    s.idle(1000);
    s.fail = |_| None;
    // What the device was to tell of clients' writes it has told the engine.
    assert_eq!(s.other(Op::Flush, 0, 0), Err(EIO));
    assert_eq!(s.write(1501, 1, 1), Err(EIO));
    assert_eq!(s.value(1100), 0x11);
    s.idle(1000);
}

const READS: u64 = 3000;

/// Reads in one order, and writes in between; a pause of 20 to 100 ms behind each.
fn requests() -> Vec<Record> {
    let mut at = Nanos(0);
    let mut request = |i: u64| {
        at += Nanos::from_millis(20 + i * 7919 % 80);
        let (op, block) = if i % 5 == 4 {
            (Op::Write, 900_000 + i % 50 * 31)
        } else {
            (Op::Read, 60_000 + i * 4409 % READS * 8)
        };
        Record::new(at, op, Extent::new(block * 4096, 4096))
    };
    (0..READS).map(&mut request).collect()
}

fn runs(drive: &str, requests: &[Record], kind: PolicyKind) -> Vec<Run> {
    let mut map = FreeMap::aged(4 << 30, Permille::new(500).expect("below 1000"), 7).expect("ext2 has room");
    let mut in_use = InUse::new(map.block_size);
    requests.iter().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin(drive).expect("it is built in");
    let mut settings =
        Settings::new(drive).with_belief(Belief::WriteCache, 1).with_scheme(Scheme::Engine(kind));
    settings.pace = Pace::closed();
    settings.engine.space = Permille::new(50).expect("below 1000");
    let mut replay = Replay::new(&map, settings).expect("a volume");
    let mut one = || {
        replay.run(requests.iter().copied().map(Ok::<_, ()>)).expect("no reader fails");
        replay.idle(Nanos::from_millis(60_000));
        replay.last_run().clone()
    };
    (0..3).map(|_| one()).collect()
}

#[test]
fn a_write_cache_nobody_told_of_costs_no_gain_and_does_no_harm() {
    let of = |kind| runs("wd800-repaired", &requests(), kind);
    let (none, fs2) = (of(PolicyKind::None), of(PolicyKind::Fs2));
    let response = |runs: &[Run], run: usize| (runs[run].response_ms(), runs[run].response.quantile(990));
    let (plain, first, third) = (response(&none, 0), response(&fs2, 0), response(&fs2, 2));
    assert!(first.0 < plain.0 * 1.01 && first.1.0 < plain.1.0 * 102 / 100, "{plain:?} {first:?}");
    assert!(third.0 < plain.0 * 0.6, "{plain:?} {third:?}");
}

/// A log is appended to with gaps, and a file beside it read backwards: the arm's ways are short, but each append costs the drive a turn when
/// it comes to write them.
#[test]
fn appends_in_the_cache_are_not_waited_for() {
    let mut at = Nanos(0);
    let mut request = |i: u64| {
        at += Nanos::from_millis(20 + i % 100 / 97 * 90);
        let (op, block) =
            if i.is_multiple_of(2) { (Op::Write, 900_000 + i * 4) } else { (Op::Read, 880_000 - i * 8) };
        Record::new(at, op, Extent::new(block * 4096, 4096))
    };
    let requests: Vec<_> = (0..2 * READS).map(&mut request).collect();
    let first = |kind| runs("exos-x24", &requests, kind)[0].response_ms();
    let (none, fs2) = (first(PolicyKind::None), first(PolicyKind::Fs2));
    assert!(fs2 < none * 1.05, "{fs2} {none}");
}
