//! What a session does exactly at an edge: at a mark, at a limit, with nothing left to do, with one thing
//! left of several. Where the model and the worlds would hardly notice, because nothing goes wrong.

use std::sync::{Arc, Mutex};

use fs2_block::{BlockNo, BlockRange, ConnectionId, Extent, Flags, Nanos, Op, Permille, Request, RequestId};
use fs2_disk::Scheduler;
use fs2_engine::policy::{Asked, Fetch, Place, Policy, PolicyKind, ReadSeen, Space};
use fs2_engine::{
    Brought, EIO, EngineConfig, Head, Io, IoOp, Log, Standing, Volume, WatermarkState, Watermarks,
};
use fs2_sim::glue::Scripted;
use fs2_sim::model::image::Shape;

use crate::session::{BLOCK, DATA, Probe, Session, config, image, image_of};

fn plain(config: EngineConfig) -> Session {
    let mut s = Session::plain(config);
    s.policy(Scripted::default());
    s
}

/// 1100 to 1103 have replicas from 1300 on.
fn copied(config: EngineConfig) -> Session {
    let mut s = Session::copied(config);
    s.policy(Scripted::default());
    s
}

/// A volume of which 600 blocks are free, less what the table takes; so many blocks have replicas there.
fn narrow(marks: [u16; 3], copies: u32) -> Session {
    let data: Vec<(u32, u16)> =
        (30..3071).filter(|b| !(1400..2000).contains(b)).map(|b| (b, b as u16)).collect();
    let [high, low, critical] = marks.map(|n| Permille::new(n).unwrap());
    let watermarks = Watermarks::new(high, low, critical).unwrap();
    let config = EngineConfig { watermarks, space: Permille::new(1000).unwrap(), ..config() };
    let copied: Vec<BlockRange> =
        (copies > 0).then(|| BlockRange::new(1000, 1000 + copies)).into_iter().collect();
    let mut s = Session::attach(image(&data, &copied, 1420), config);
    s.policy(Scripted::default());
    s
}

fn at(block: u32) -> u64 {
    u64::from(block) * BLOCK as u64
}

fn place(io: &Io) -> u32 {
    (io.extent.offset() / BLOCK as u64) as u32
}

#[test]
fn a_share_at_a_mark_is_not_below_it() {
    let s = narrow([3, 2, 1], 320);
    let (layout, live) = (s.volume.layout().unwrap(), s.volume.liveness().unwrap());
    let whole = u64::from(layout.blocks()) - layout.static_metadata_blocks();
    let share = s.volume.free_share();
    assert_eq!(share, Permille::of(live.free_estimate() - 320, whole));
    let share = share.get();
    // At critical: the least valuable go, not whole regions; at least 256, 64 of what lies in a row together.
    let mut s = narrow([share + 2, share + 1, share], 320);
    assert_eq!(s.volume.watermark_state(), WatermarkState::Low);
    s.volume.handle_timeout(s.now);
    assert_eq!((s.volume.table().len(), s.volume.stats().reclaimed), (8, 312));
    // Below it: all of the region.
    let mut s = narrow([share + 3, share + 2, share + 1], 320);
    assert_eq!(s.volume.watermark_state(), WatermarkState::Critical);
    s.volume.handle_timeout(s.now);
    assert_eq!(s.volume.table().len(), 0);
    // At low: nothing goes, and nothing is copied either until there is more than high.
    let mut s = narrow([share + 1, share, share - 1], 320);
    assert_eq!(s.volume.watermark_state(), WatermarkState::Suspended);
    s.volume.handle_timeout(s.now);
    assert_eq!((s.volume.table().len(), s.volume.watermark_state()), (320, WatermarkState::Suspended));
    // At high: copying.
    let mut s = narrow([share, share - 1, share - 2], 320);
    s.volume.handle_timeout(s.now);
    assert_eq!(s.volume.watermark_state(), WatermarkState::Copying);
}

#[test]
fn copying_ends_below_low_not_at_it() {
    let mut s = narrow([3, 2, 1], 0);
    s.idle(1000);
    let share = s.volume.free_share().get();
    let low = share - 5;
    let mut s = narrow([share + 1, low, 1], 0);
    s.idle(1000);
    assert_eq!(s.volume.watermark_state(), WatermarkState::Copying);
    let mut at_low = 0;
    for block in 1600..1650 {
        s.write(block, 1, 1).unwrap();
        let share = s.volume.free_share().get();
        let expected = if share < low { WatermarkState::Low } else { WatermarkState::Copying };
        assert_eq!(s.volume.watermark_state(), expected, "{share} of {low}");
        at_low += u32::from(share == low);
    }
    assert!(at_low > 0);
}

#[test]
fn replicas_fill_their_share_before_any_goes() {
    // 2 of 1000 of 3072 blocks.
    let mut s = plain(EngineConfig { space: Permille::new(2).unwrap(), ..config() });
    s.copying_to(1300).idle(1000).read(1100, 3).unwrap();
    s.idle(1000);
    s.copying_to(1310).read(1103, 3).unwrap();
    s.idle(1000);
    assert_eq!((s.volume.table().len(), s.volume.stats().reclaimed), (6, 0));
    s.copying_to(1320).read(1500, 2).unwrap();
    s.idle(1000);
    assert!(s.volume.table().len() <= 6 && s.volume.table().len() >= 2, "{}", s.volume.table().len());
    assert!(s.volume.stats().reclaimed >= 2);
    assert!(s.replicas().contains(&(1500, 1320)));
}

/// When it wants to be called, with only one thing left to do.
#[test]
fn each_thing_to_do_asks_to_be_called() {
    let idle = config().idle_after;
    let soon = |s: &Session| assert_eq!(s.volume.poll_timeout(), Some(s.now + idle));
    // The sample of originals, before anything was asked.
    assert_eq!(copied(config()).volume.poll_timeout(), Some(idle));
    // The slot that held the mark.
    let mut s = plain(config());
    s.idle(1000).write(1500, 1, 1).unwrap();
    soon(&s);
    s.idle(100);
    assert_eq!(s.volume.poll_timeout(), None);
    // What was read is to be copied.
    s.policy(Scripted { capture: true, target: Some(1300), ..Scripted::default() }).value(1100);
    assert_eq!(s.volume.log_blocks(), 1);
    soon(&s);
    // What was evicted is to be punched.
    let mut s = copied(EngineConfig { punch: true, ..config() });
    s.idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000).idle(10_000).value(1500);
    assert_eq!(s.volume.poll_timeout(), None);
    for (from, to) in [(1300, 1301), (1302, 1304)] {
        s.policy(Scripted { evict: Some(BlockRange::new(from, to)), ..Scripted::default() });
        s.volume.handle_timeout(s.now);
    }
    soon(&s);
    // One row at a time.
    s.now += idle;
    let punch = s.dispatch().unwrap();
    assert_eq!((punch.op, s.dispatch().is_none()), (IoOp::Discard, true));
    s.complete(punch);
    assert_eq!(s.dispatch().unwrap().op, IoOp::Discard);
}

#[test]
fn the_sweep_alone_asks_to_be_called_and_ends() {
    let mut s = copied(EngineConfig { distrust: true, ..config() });
    s.load_bitmap();
    let last = s.now;
    assert_eq!((s.volume.liveness().unwrap().unloaded_count(), s.volume.table().unverified_count()), (0, 4));
    // The sample brings nothing.
    s.fail = |io| (1100..1104).contains(&place(io)).then_some(EIO);
    s.idle(100);
    assert_eq!(s.volume.table().unverified_count(), 4);
    s.fail = |io| (io.op == IoOp::Read && place(io) == 1102).then_some(EIO);
    // 16 idle times, less one part in 256 for each request.
    let wait = Nanos(240_000_000 - 937_500);
    assert_eq!(s.volume.poll_timeout(), Some(last + wait));
    s.idle(1000);
    assert_eq!(s.volume.table().unverified_count(), 1, "one could not be read");
    let reads = |s: &Session| s.done.iter().filter(|d| d.0 == IoOp::Read).count();
    let before = reads(&s);
    s.idle(100_000).idle(100_000);
    assert_eq!((reads(&s), s.volume.poll_timeout()), (before, None), "it is not tried again and again");
}

/// From now on.
#[track_caller]
fn wait(s: &Session) -> Nanos {
    s.volume.poll_timeout().expect("something is left to do").since(s.now)
}

/// P1, P2 of `volume/patience.rs`: only who meets the reading for nobody makes it wait longer.
#[test]
fn who_meets_the_sweep_makes_it_wait() {
    let first = Nanos(240_000_000);
    let shorter = |n: Nanos| Nanos(n.0 - n.0.div_ceil(256));
    // The sample's reads are not for nobody.
    let mut s = copied(config());
    s.now += config().idle_after;
    let io = s.dispatch().unwrap();
    assert_eq!((io.op, place(&io)), (IoOp::Read, 1103));
    s.submit(Op::Read, at(1500), 1024, None);
    s.complete(io);
    s.run();
    s.idle(15).value(1500);
    let now = shorter(shorter(first));
    assert_eq!(wait(&s), now);
    // Those of the sweep are, once the sample has failed.
    let mut s = copied(EngineConfig { distrust: true, ..config() });
    s.fail = |io| (1100..1104).contains(&place(io)).then_some(EIO);
    s.value(1500);
    s.idle(15).value(1500);
    s.fail = |_| None;
    assert_eq!(wait(&s), now);
    s.now += now;
    let io = s.dispatch().unwrap();
    assert_eq!((io.op, place(&io)), (IoOp::Read, 1100));
    s.submit(Op::Read, at(1500), 1024, None);
    s.complete(io);
    let client = s.dispatch().unwrap();
    s.complete(client);
    assert_eq!(wait(&s), Nanos(now.0 * 4));
}

#[test]
fn an_entry_that_is_gone_is_not_read_for_the_sample() {
    let mut s = copied(config());
    s.write(1102, 1, 9).unwrap();
    s.idle(1000);
    let read: Vec<u64> = (s.done.iter().filter(|d| d.0 == IoOp::Read)).map(|d| d.1.offset()).collect();
    assert!(!read.contains(&at(1102)) && read.contains(&at(1101)), "{read:?}");
}

#[test]
fn nothing_is_done_where_nothing_is_left() {
    let mut s = copied(config());
    s.idle(1000).write(1100, 1, 1).unwrap();
    s.idle(10_000).idle(10_000);
    // A look at the superblock for each round of pages, and none without.
    assert_eq!(s.volume.stats().table_pages_written, 1);
    assert_eq!(s.done.iter().filter(|d| d.1.offset() == 1024).count(), 1);
    let before = s.done.len();
    for _ in 0..5 {
        s.idle(10_000);
    }
    assert_eq!(s.done.len(), before, "{:?}", &s.done[before..]);
}

/// The host's word counts at once, not at the next event.
#[test]
fn what_waits_is_not_copied_where_the_host_is_short() {
    let mut s = plain(config());
    s.idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000).policy(Scripted { capture: true, target: Some(1300), ..Scripted::default() });
    s.value(1100);
    assert_eq!(s.volume.log_blocks(), 1);
    s.now += Nanos::from_millis(20);
    s.volume.host_is_short(true);
    assert!(s.dispatch().is_none());
    s.idle(1);
    assert_eq!(s.volume.log_blocks(), 0, "forgotten");
}

#[test]
fn copies_in_flight_are_named() {
    let mut s = plain(config());
    s.idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000).copying_to(1300);
    s.submit(Op::Read, at(1100), 2048, None);
    let read = s.dispatch().unwrap();
    s.complete(read);
    assert_eq!(s.volume.copies_in_flight().count(), 0);
    let copy = s.dispatch().unwrap();
    assert_eq!(s.volume.copies_in_flight().collect::<Vec<_>>(), [BlockRange::new(1300, 1302)]);
    s.complete(copy);
    assert_eq!(s.volume.copies_in_flight().count(), 0);
}

#[test]
fn settings_and_layout_are_those_given() {
    let s = plain(EngineConfig { seed: 77, ..config() });
    assert_eq!(s.volume.config().seed, 77);
    let layout = s.volume.layout().unwrap();
    assert_eq!(layout.blocks(), 3072);
    let (free, metadata) = (s.volume.liveness().unwrap().free_estimate(), layout.static_metadata_blocks());
    let share = |whole: u64| Permille::of(free, whole);
    assert_eq!(s.volume.free_share(), share(3072 - metadata));
    assert_ne!(share(3072 - metadata), share(3072));
}

#[test]
#[should_panic(expected = "as long as its extent")]
fn a_payload_of_another_length_is_a_drivers_error() {
    plain(config()).submit(Op::Write, at(1500), 1024, Some(&[1; 512]));
}

/// Frozen, but nobody else wrote: what replicas are left may be read.
#[test]
fn a_freeze_keeps_replicas_where_nobody_else_wrote() {
    let mut s = copied(config());
    s.idle(1000).superblock(false, 1);
    s.superblock(false, 2);
    assert!(matches!(s.volume.standing(), Standing::Frozen(_)), "a mount of what is mounted");
    assert_eq!(s.replicas().len(), 4);
    s.reading_copies();
    assert_eq!((s.value(1100), s.volume.stats().reads_from_replica), (0x11, 1));
    s.volume.foreign_writer(s.now);
    assert_eq!((s.replicas().len(), s.value(1100)), (0, 0x11));
}

/// Has blocks read for itself, from a time on, and remembers what it was brought.
#[derive(Clone)]
struct Fetches {
    at: Nanos,
    what: BlockRange,
    told: Arc<Mutex<Vec<(BlockRange, bool)>>>,
}

impl Policy for Fetches {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }
    fn choose(&mut self, _: Nanos, _: &Head, _: &Asked<'_>) -> Option<usize> {
        None
    }
    fn read_seen(&mut self, _: &ReadSeen<'_>, _: &dyn Space, _: &mut Log) {}
    fn idle(&mut self, _: Nanos, _: &mut Log) {}
    fn place(&mut self, _: u32, _: &Head, _: &dyn Space) -> Place {
        Place::Nowhere
    }
    fn fetch_at(&self, _: Nanos) -> Option<Nanos> {
        Some(self.at)
    }
    fn fetch(&mut self, _: Nanos, _: &dyn Space) -> Fetch {
        if self.told.lock().unwrap().is_empty() { Fetch::Read(self.what) } else { Fetch::Nothing }
    }
    fn fetched(&mut self, blocks: BlockRange, data: Brought<'_>, _: &[u64], _: &mut Log) {
        self.told.lock().unwrap().push((blocks, !data.is_nothing()));
    }
    fn hot_region(&self) -> Option<BlockRange> {
        None
    }
    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

/// What a policy has read for itself is read at its time, where it may be copied, and where there is something.
#[test]
fn a_policy_is_read_what_it_may_have_when_it_wants_it() {
    // Blocks; whether the host is short; whether the time has come: reads done, and what the policy was told.
    let (there, behind) = (BlockRange::new(1100, 1102), BlockRange::new(3071, 3073));
    for (what, short, due, reads, told) in [
        (there, false, true, 1, Some(true)),
        (there, false, false, 0, None),
        (there, true, true, 0, None),
        (BlockRange::EMPTY, false, true, 0, Some(false)),
        (behind, false, true, 0, Some(false)),
    ] {
        let mut s = plain(config());
        s.idle(1000).write(1500, 1, 1).unwrap();
        s.idle(10_000).idle(10_000);
        s.done.clear();
        s.volume.host_is_short(short);
        let policy = Fetches { at: s.now + Nanos::from_millis(100), what, told: Arc::default() };
        s.volume.set_policy(Box::new(policy.clone()));
        s.idle(99);
        assert_eq!((s.done.len(), policy.told.lock().unwrap().len()), (0, 0), "too early");
        if due {
            s.idle(1);
        }
        assert_eq!(s.done.iter().filter(|d| d.0 == IoOp::Read).count(), reads, "{what} {short} {due}");
        let got = policy.told.lock().unwrap().clone();
        assert_eq!(got, told.map(|read| (what, read)).into_iter().collect::<Vec<_>>());
    }
}

/// Where nobody has contents, a write tells nothing; zeroes do, as they have no contents.
#[test]
fn unseen_writes_tell_nothing_and_zeroes_do() {
    let mut device = image(&DATA, &[], 0);
    let (volume, _) = Volume::attach_unseen(&mut device, config()).unwrap();
    for (op, frozen) in [(Op::Write, false), (Op::WriteZeroes, true)] {
        let mut volume = volume.clone();
        let request = Request {
            id: RequestId(1),
            connection: ConnectionId(0),
            op,
            extent: Extent::new(1024, 1024),
            flags: Flags::default(),
        };
        volume.submit(Nanos(1), request, None);
        assert_eq!(matches!(volume.standing(), Standing::Frozen(_)), frozen, "{op:?}");
    }
}

/// Below critical, regions go until there is more than low again, not all of them.
#[test]
fn as_many_regions_go_as_must() {
    let data: Vec<(u32, u16)> = (100..228).map(|b| (b, b as u16)).collect();
    let device = image_of(Shape::Groups, &data, &[], 0);
    let session = |marks: [u16; 3]| {
        let [high, low, critical] = marks.map(|n| Permille::new(n).unwrap());
        let watermarks = Watermarks::new(high, low, critical).unwrap();
        let mut s = Session::attach(device.clone(), EngineConfig { watermarks, ..config() });
        s.policy(Scripted::default()).idle(10_000);
        for (from, to) in [(100, 1600), (164, 2600)] {
            let groups = Some((1, 1024));
            s.policy(Scripted {
                capture: true,
                eager: true,
                target: Some(to),
                groups,
                ..Scripted::default()
            });
            s.read(from, 64).unwrap();
            s.idle(10_000);
        }
        s.policy(Scripted::default());
        assert_eq!(s.volume.table().len(), 128);
        s
    };
    let share = session([3, 2, 1]).volume.free_share().get();
    let mut s = session([share - 9, share - 10, share - 11]);
    s.write(1800, 60, 1).unwrap();
    let left = s.replicas();
    assert_eq!((left.len(), s.volume.stats().reclaimed), (64, 64));
    let regions: Vec<u32> = left.iter().map(|r| (r.1 - 1) / 1024).collect();
    assert!(regions.iter().all(|&r| r == regions[0]), "{regions:?}");
}

/// Also where a part of what has a replica has another, somewhere else.
#[test]
fn what_has_a_replica_lacks_none() {
    let mut s = Session::copied(EngineConfig { degree: 2, ..config() });
    s.idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000).copying_to(1310).read(1101, 1).unwrap();
    s.idle(100);
    assert_eq!(s.replicas()[..3], [(1100, 1300), (1101, 1301), (1101, 1310)]);
    let probe = Probe::default();
    s.volume.set_policy(Box::new(probe.clone()));
    s.read(1100, 6).unwrap();
    s.read(1101, 2).unwrap();
    assert_eq!(*probe.lacking.lock().unwrap(), [vec![BlockRange::new(1104, 1106)], vec![]]);
}

/// R5: only who changes what is being read for a policy makes it void.
#[test]
fn a_write_elsewhere_leaves_what_is_read_for_a_policy() {
    for (written, good) in [(1200, true), (1101, false)] {
        let mut s = plain(config());
        s.idle(1000).write(1500, 1, 1).unwrap();
        s.idle(10_000).idle(10_000);
        let policy = Fetches { at: s.now, what: BlockRange::new(1100, 1102), told: Arc::default() };
        s.volume.set_policy(Box::new(policy.clone()));
        s.now += config().idle_after;
        let fetch = s.dispatch().unwrap();
        assert_eq!((fetch.op, place(&fetch)), (IoOp::Read, 1100));
        s.submit(Op::Write, at(written), BLOCK as u64, Some(&[7; BLOCK]));
        s.complete(fetch);
        assert_eq!(policy.told.lock().unwrap()[..], [(policy.what, good)]);
        s.run();
    }
}

/// R8: where a copy is not what it was, the original answers, not another copy.
#[test]
fn after_a_bad_copy_the_original_is_read() {
    let mut s = copied(EngineConfig { degree: 2, ..config() });
    s.idle(1000).write(1500, 1, 1).unwrap();
    s.idle(10_000).copying_to(1310).value(1100);
    s.idle(100);
    assert_eq!(s.replicas()[..2], [(1100, 1300), (1100, 1310)]);
    for replica in [1300, 1310] {
        s.device[replica * BLOCK] ^= 1;
    }
    s.reading_copies();
    assert_eq!((s.value(1100), s.volume.stats().hash_mismatches), (0x11, 1));
    assert_eq!((s.value(1100), s.volume.stats().hash_mismatches), (0x11, 2));
    assert_eq!(s.volume.stats().reads_from_replica, 0);
}

/// The order in which reads of these blocks are dispatched, all there from the start.
fn order(s: &mut Session, blocks: &[u32]) -> Vec<u32> {
    for &b in blocks {
        s.submit(Op::Read, at(b), BLOCK as u64, None);
    }
    let order = std::iter::from_fn(|| s.dispatch().map(|io| (place(&io), io)));
    let mut out = Vec::new();
    for (block, io) in order.collect::<Vec<_>>() {
        out.push(block);
        s.complete(io);
    }
    s.run();
    out
}

fn scheduled(scheduler: Scheduler) -> Session {
    let mut s = plain(EngineConfig { scheduler, ..config() });
    s.idle(1000);
    s
}

#[test]
fn the_nearest_goes_first_or_the_next_upwards() {
    for (scheduler, expected) in [
        (Scheduler::Fcfs, [2900, 1090, 1110, 1100]),
        (Scheduler::Sstf, [1100, 1110, 1090, 2900]),
        (Scheduler::CLook, [1110, 2900, 1090, 1100]),
    ] {
        let mut s = scheduled(scheduler);
        // The head ends behind 1103.
        order(&mut s, &[1100, 1103]);
        let order = order(&mut s, &[2900, 1090, 1110, 1100]);
        assert_eq!(order, expected, "{scheduler:?}");
    }
    // Where the drive is the sweep goes on, also behind one that waited alone.
    let mut s = scheduled(Scheduler::CLook);
    order(&mut s, &[1100, 2900]);
    order(&mut s, &[1150]);
    assert_eq!(order(&mut s, &[1100, 2900, 1200]), [1200, 2900, 1100]);
}

/// 1100 to 1103 have copies from 1300 on.
#[test]
fn what_is_rather_read_from_its_copy_is_compared_by_that() {
    let first = |rather_copied: &[u32], others: usize| {
        let rather_copied = rather_copied.iter().map(|&b| BlockNo(b)).collect();
        let mut s = Session::copied(EngineConfig { scheduler: Scheduler::Sstf, ..config() });
        s.idle(1000);
        s.volume.set_policy(Box::new(Probe { rather_copied, ..Probe::default() }));
        // Three blocks behind the first of them.
        order(&mut s, &[1105]);
        let far = (0..others as u32).map(|n| 2000 + n);
        order(&mut s, &[1120, 1103].into_iter().chain(far).collect::<Vec<_>>())[0]
    };
    assert_eq!((first(&[], 0), first(&[1103], 0)), (1103, 1120));
    // Of many, one is near the arm wherever that is.
    assert_eq!((first(&[1103], 62), first(&[1103], 63)), (1120, 1103));
}

/// 1100 to 1103 have copies from 1300 on.
#[test]
fn a_sweep_passes_nobody_over_for_the_place_a_read_would_rather_have() {
    let order = |reads_copies, from, other| {
        let mut s = Session::copied(EngineConfig { scheduler: Scheduler::CLook, ..config() });
        s.idle(1000);
        s.volume.set_policy(Box::new(Probe { reads_copies, ..Probe::default() }));
        order(&mut s, &[from, from + 1]);
        order(&mut s, &[other, 1103])
    };
    // Somebody waits between original and copy; somebody waits behind both; the original is behind the arm.
    assert_eq!(order(true, 1090, 1200), [1103, 1200]);
    assert_eq!(
        (order(true, 1090, 1400), order(false, 1090, 1400)),
        ([1303, 1400].into(), [1103, 1400].into())
    );
    assert_eq!(
        (order(true, 1110, 1400), order(false, 1110, 1400)),
        ([1303, 1400].into(), [1303, 1400].into())
    );
    // Alone it is read wherever it is best.
    assert_eq!(
        (order(true, 1110, 1200), order(false, 1110, 1200)),
        ([1200, 1303].into(), [1200, 1103].into())
    );
}

/// 1100 to 1103 have copies from 1300 on.
#[test]
fn what_goes_to_the_drive_behind_a_read_is_known_where_all_is_served_as_it_came() {
    let behind = |scheduler, others: &[(Op, u32)], at_drive: bool| {
        let mut s = Session::copied(EngineConfig { scheduler, ..config() });
        s.idle(1000);
        let probe = Probe::default();
        let behind = probe.behind.clone();
        s.volume.set_policy(Box::new(probe));
        if at_drive {
            s.submit(Op::Read, at(2900), BLOCK as u64, None);
            s.dispatch().unwrap();
        }
        s.submit(Op::Read, at(1100), BLOCK as u64, None);
        for &(op, block) in others {
            s.submit(op, at(block), BLOCK as u64, (op == Op::Write).then_some(&[0; BLOCK]));
        }
        // Whichever goes first, it is told of the first that has a copy.
        while behind.lock().unwrap().is_empty() {
            s.dispatch().unwrap();
        }
        let told = behind.lock().unwrap();
        told[0].iter().map(|(read, copies)| (read.start(), copies.iter().map(|c| c.0).collect())).collect()
    };
    let reads = [(Op::Read, 1103), (Op::Read, 2000)];
    let known: Vec<(u32, Vec<u32>)> = behind(Scheduler::Fcfs, &reads, false);
    assert_eq!(known, [(2000, vec![]), (1103, vec![1303])]);
    assert_eq!(behind(Scheduler::Sptf, &reads, false), []);
    assert_eq!(behind(Scheduler::Fcfs, &reads, true), [], "the drive has its own order");
    let write = [reads[0], (Op::Write, 2500), reads[1]];
    assert_eq!(behind(Scheduler::Fcfs, &write, false), [(1103, vec![1303])], "a write takes the arm away");
    // As far as it matters.
    let many: Vec<_> = (0..100).map(|n| (Op::Read, 2000 + n)).collect();
    assert_eq!(behind(Scheduler::Fcfs, &many, false).len(), 8);
}

#[test]
fn the_scheduler_lets_nothing_overtake_what_it_overlaps() {
    for scheduler in [Scheduler::Sstf, Scheduler::CLook, Scheduler::Sptf] {
        let mut s = scheduled(scheduler);
        s.write(1500, 1, 1).unwrap();
        s.idle(1000).value(1200);
        let far = vec![5; 2 * BLOCK];
        // A write that is far away begins to wait; a read of its second block is where the head is.
        s.submit(Op::Read, at(1201), 512, None);
        s.submit(Op::Write, at(2899), far.len() as u64, Some(&far));
        let read = s.submit(Op::Read, at(2900), 1024, None);
        let first = s.dispatch().unwrap();
        assert_eq!(place(&first), 1201);
        let write = s.dispatch().unwrap();
        assert_eq!((write.op, place(&write)), (IoOp::Write { fua: false }, 2899));
        assert!(s.dispatch().is_none(), "{scheduler:?}: the read waits for the write");
        s.complete(write);
        s.complete(first);
        let answers = s.run();
        let found = answers.iter().find(|a| a.0 == read).unwrap();
        assert_eq!(found.1.as_ref().unwrap()[..], [5; 1024]);
    }
}

#[test]
fn the_scheduler_lets_no_write_overtake_a_read_of_its_block() {
    let mut s = scheduled(Scheduler::Sstf);
    s.write(2899, 2, 7).unwrap();
    // The head is behind both, nearer to the write.
    s.idle(1000).value(2950);
    let read = s.submit(Op::Read, at(2899), 2 * BLOCK as u64, None);
    s.submit(Op::Write, at(2900), BLOCK as u64, Some(&[9; BLOCK]));
    let first = s.dispatch().unwrap();
    assert_eq!((first.op, place(&first)), (IoOp::Read, 2899));
    s.complete(first);
    let answers = s.run();
    let found = answers.iter().find(|a| a.0 == read).unwrap();
    assert_eq!(found.1.as_ref().unwrap()[..], [7; 2 * BLOCK]);
}

#[test]
fn the_scheduler_starves_nobody() {
    for (waited, first) in [(2000, 1101), (2001, 2900)] {
        let mut s = scheduled(Scheduler::Sstf);
        s.value(1100);
        s.submit(Op::Read, at(2900), 1024, None);
        s.now += Nanos::from_millis(waited);
        s.submit(Op::Read, at(1101), 1024, None);
        assert_eq!(place(&s.dispatch().unwrap()), first, "after {waited} ms");
    }
}

#[test]
fn the_scheduler_compares_256_at_most() {
    for (before, first) in [(255, 1101), (256, 1102)] {
        let mut s = scheduled(Scheduler::Sstf);
        s.value(1100);
        for n in 0..before {
            s.submit(Op::Read, at(2000 + n % 50), 512, None);
        }
        s.submit(Op::Read, at(1101), 512, None);
        let io = s.dispatch().unwrap();
        if first == 1101 {
            assert_eq!(place(&io), 1101);
        } else {
            assert_ne!(place(&io), 1101, "it is not looked at yet");
        }
    }
}

#[test]
fn of_one_cost_the_first_goes_first() {
    let mut s = scheduled(Scheduler::Sstf);
    s.value(1100);
    let first = s.submit(Op::Read, at(1200), 512, None);
    let second = s.submit(Op::Read, at(1200), 1024, None);
    let io = s.dispatch().unwrap();
    assert_eq!((first < second, io.extent), (true, Extent::new(at(1200), 512)));
}
