//! The write cache and standby: when a write is done, what is written when, what sleeping costs.

use std::collections::BTreeSet;

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Energy, Service};
use proptest::prelude::*;

const SECOND: Nanos = Nanos(1_000_000_000);
/// wd800: a command answered by the electronics, and nanoseconds of a sector over its bus.
const OVERHEAD: u64 = 100_000;
const BUS: u64 = 5120;

trait Times {
    fn times(self, n: u64) -> Nanos;
}

impl Times for Nanos {
    fn times(self, n: u64) -> Nanos {
        Nanos(self.0 * n)
    }
}

fn disk(kib: u32, idle_ms: f64) -> Disk {
    Disk::new(DriveProfile::default().with_write_cache(kib, idle_ms))
}

fn write(d: &mut Disk, now: Nanos, sector: u64, sectors: u32) -> Service {
    d.serve(now, Op::Write, Sector(sector), sectors)
}

#[test]
fn a_write_ends_when_its_data_is_in_the_cache() {
    let mut d = disk(1024, 100.0);
    let w = write(&mut d, Nanos(0), 80_000_000, 8);
    assert_eq!((w.overhead, w.transfer), (Nanos(OVERHEAD), Nanos(8 * BUS)));
    assert_eq!(w.positioning(), Nanos(0));
    // Nothing is written before the drive was idle for 100 ms.
    let idle_from = w.end() + Nanos::from_millis(100);
    assert_eq!(d.activity(idle_from).background.count, 0);
    assert_eq!(d.activity(idle_from + Nanos(1)).background.count, 1);
    // It is answered from the cache, before and after.
    assert!(d.predict(w.end(), Op::Read, Sector(80_000_000), 8).cache_hit);
    assert!(d.predict(w.end() + SECOND, Op::Read, Sector(80_000_000), 8).cache_hit);
}

/// Its segments have long been taken by others: nobody has it but the write cache.
#[test]
fn a_read_waits_for_what_it_overlaps_alone() {
    let mut d = disk(8192, 100.0);
    let mut now = Nanos(0);
    for n in 0..200 {
        now = write(&mut d, now, 100_000 * n, 8).end();
    }
    let read = |d: &mut Disk, now, sector, sectors| d.serve(now, Op::Read, Sector(sector), sectors);
    for n in 0..40 {
        now = read(&mut d, now, 120_000_000 + 10_000 * n, 8).end();
    }
    let over = read(&mut d, now, 100_000 * 150 + 4, 8);
    assert!(
        !over.cache_hit && over.end().since(now) < Nanos::from_millis(70),
        "two ways of the arm: {over:?}"
    );
    // All others are still to be written.
    let flush = d.serve(over.end(), Op::Flush, Sector(0), 0);
    assert!(flush.end().since(over.end()) > Nanos::from_millis(199 * 2), "{flush:?}");
    assert_eq!(d.activity(flush.end()).background.count, 200);
}

/// The last of what the cache holds is being written when the flush comes.
#[test]
fn a_flush_waits_for_what_is_being_written() {
    let mut d = disk(1024, 10.0);
    let begins = write(&mut d, Nanos(0), 80_000_000, 8).end() + Nanos::from_millis(10);
    let written = d.clone().serve(begins - Nanos(1), Op::Flush, Sector(0), 0).end();
    assert!(written > begins + Nanos::from_millis(5), "an arm moves: {written:?} {begins:?}");
    for us in 1..10_000 {
        let now = begins + Nanos(1000 * us);
        let flush = d.clone().serve(now, Op::Flush, Sector(0), 0);
        assert!(flush.end() + Nanos(1000) >= written, "{us}: {flush:?}, and all is written at {written:?}");
        assert!(flush.end() <= written.max(now + Nanos(OVERHEAD)) + Nanos(1000), "{us}: {flush:?}");
    }
}

#[test]
fn idle_writing_goes_upwards_from_the_head_and_takes_what_the_platters_take() {
    let mut d = disk(1024, 10.0);
    let mut bare = Disk::new(DriveProfile::default());
    let mut now = Nanos(0);
    for sector in [90_000_000, 30_000_000, 60_000_000] {
        now = write(&mut d, now, sector, 8).end();
    }
    // The platters' share of the same writes, in the order of C-LOOK from sector 0.
    let mut at = now + Nanos::from_millis(10);
    let mut seeks = Nanos(0);
    for sector in [30_000_000, 60_000_000, 90_000_000] {
        let s = write(&mut bare, at, sector, 8);
        seeks += s.seek;
        at = s.end();
    }
    let all = d.activity(now + SECOND).background;
    assert_eq!((all.count, all.seek), (3, seeks));
    let until = now + Nanos::from_millis(10) + all.total();
    assert!(until.0.abs_diff(at.0) < 10);
    // A read in the midst waits for the write that was begun, not for the others.
    let first_begun = now + Nanos::from_millis(10) + Nanos(1000);
    let read = d.serve(first_begun, Op::Read, Sector(10_000_000), 8);
    assert_eq!(d.activity(read.end()).background.count, 1);
    let one = d.activity(read.end()).background.total();
    assert_eq!(read.overhead.0, one.0 - 1000);
}

#[test]
fn what_is_written_twice_reaches_the_platters_once() {
    let mut d = disk(1024, 50.0);
    let mut now = Nanos(0);
    // Overlapping and adjacent: sectors 1000 to 1040 in one piece.
    for (sector, sectors) in [(1000, 16), (1024, 16), (1008, 20), (1000, 8)] {
        now = write(&mut d, now, sector, sectors).end();
    }
    let b = d.activity(now + SECOND).background;
    assert_eq!(b.count, 1);
    let whole = Disk::new(DriveProfile::default()).predict(Nanos(0), Op::Read, Sector(1000), 40).transfer;
    assert!(b.transfer.0.abs_diff(whole.0) < 5, "{b:?} {whole:?}");
}

#[test]
fn a_full_cache_makes_the_host_wait() {
    // 64 KiB: 128 sectors, eight writes of 16.
    let mut d = disk(64, 1000.0);
    let mut now = Nanos(0);
    for i in 0..8 {
        let w = write(&mut d, now, i * 10_000_000, 16);
        assert_eq!(w.overhead, Nanos(OVERHEAD), "{i}");
        now = w.end();
    }
    let w = write(&mut d, now, 155_000_000, 16);
    let b = d.activity(w.end()).background;
    assert_eq!(b.count, 1);
    assert_eq!(w.overhead, b.total() + Nanos(OVERHEAD));
    // More than half the cache goes around it.
    let big = write(&mut d, w.end() + SECOND.times(10), 120_000_000, 65);
    assert!(big.seek > Nanos(0) && big.rotation > Nanos(0));
}

#[test]
fn a_flush_waits_for_everything() {
    let mut d = disk(1024, 1000.0);
    let w = write(&mut d, Nanos(0), 70_000_000, 8);
    let w = write(&mut d, w.end(), 20_000_000, 8);
    let flush = d.serve(w.end(), Op::Flush, Sector(0), 0);
    let b = d.activity(flush.end()).background;
    assert_eq!(b.count, 2);
    assert_eq!(flush.total(), b.total() + Nanos(OVERHEAD));
    // Nothing is left to flush.
    assert_eq!(d.serve(flush.end(), Op::Flush, Sector(0), 0).total(), Nanos(OVERHEAD));
    // Without a write cache a flush is a command and nothing else.
    let mut bare = Disk::new(DriveProfile::default());
    let w = write(&mut bare, Nanos(0), 70_000_000, 8);
    assert_eq!(bare.serve(w.end(), Op::Flush, Sector(0), 0).total(), Nanos(OVERHEAD));
}

#[test]
fn a_read_half_in_the_write_cache_waits_for_the_platters() {
    let mut d = disk(1024, 1000.0);
    let w = write(&mut d, Nanos(0), 50_000_000, 8);
    let read = d.serve(w.end(), Op::Read, Sector(49_999_996), 8);
    assert!(!read.cache_hit);
    assert_eq!(d.activity(read.end()).background.count, 1);
}

#[test]
fn standby_and_spinning_up() {
    let profile = DriveProfile::builtin("laptop-5400").unwrap().with_standby_after(Some(10.0));
    let (power, spin_up) = (profile.power(), Nanos(3_500_000_000));
    let mut d = Disk::new(profile.clone());
    let mut energy = Energy::new(power);
    let a = d.serve(Nanos(0), Op::Read, Sector(1_000_000), 8);
    energy.add(&a);
    // 10 s later it still turns.
    let later = a.end() + Nanos(9_900_000_000);
    assert!(d.predict(later, Op::Read, Sector(300_000_000), 8).overhead < Nanos::from_millis(1));
    // A minute later it does not; the command waits for it.
    let then = a.end() + SECOND.times(60);
    let b = d.serve(then, Op::Read, Sector(300_000_000), 8);
    energy.add(&b);
    assert!(b.overhead.0.abs_diff(spin_up.0 + 100_000) < 10, "{b:?}");
    let now = b.end();
    let activity = d.activity(now);
    assert_eq!((activity.spin_ups, activity.spinning_up), (1, spin_up));
    assert!(activity.standby.0.abs_diff(50_000_000_000) < 20_000_000, "{activity:?}");
    energy.finish(now, &activity);
    // 5 W for 3.5 s, of which the access paid idling; 50 s of standby.
    assert!((energy.spin_up_joules() - 3.5 * (5.0 - 0.66)).abs() < 1e-9);
    assert!((energy.standby_joules() - 50.0 * 0.18).abs() < 0.01);
    assert!((energy.idle_joules() - 10.0 * 0.66).abs() < 0.05);
    // Idling all the time would have cost more; waking up for less than the sleep saved would not.
    let mut awake = Disk::new(profile.with_standby_after(None));
    let mut idle = Energy::new(power);
    let a = awake.serve(Nanos(0), Op::Read, Sector(1_000_000), 8);
    let b = awake.serve(then, Op::Read, Sector(300_000_000), 8);
    idle.add(&a);
    idle.add(&b);
    idle.finish(now, &awake.activity(b.end()));
    assert!(energy.joules() < idle.joules(), "{} {}", energy.joules(), idle.joules());
    assert_eq!(awake.activity(now).standby, Nanos(0));
    // Reading from the cache wakes nobody.
    let hit = d.predict(now + SECOND.times(60), Op::Read, Sector(300_000_000), 8);
    assert!(hit.cache_hit);
}

#[test]
fn energy_of_background_writes() {
    let mut d = disk(1024, 10.0);
    let power = d.profile().power();
    let w = write(&mut d, Nanos(0), 70_000_000, 8);
    let mut energy = Energy::new(power);
    energy.add(&w);
    let activity = d.activity(SECOND);
    energy.finish(SECOND, &activity);
    let b = activity.background;
    let want = b.seek.as_secs_f64() * 14.0 + (b.rotation + b.transfer).as_secs_f64() * 8.0;
    assert!((energy.background_joules() - want).abs() < 1e-12 && want > 0.05);
    // All but seeking is at 8 W for this drive.
    assert!((energy.joules() - (8.0 + b.seek.as_secs_f64() * 6.0)).abs() < 1e-6);
}

/// Writes come faster than the platters take them: each waits for room while another is written.
#[test]
fn no_moment_is_paid_twice() {
    let mut d = disk(64, 10.0);
    let mut energy = Energy::new(d.profile().power());
    let mut now = Nanos(0);
    for i in 0..500u64 {
        let w = write(&mut d, now, i * 7_919 % 1000 * 150_000, 16);
        energy.add(&w);
        now = w.end();
    }
    let activity = d.activity(now);
    energy.finish(now, &activity);
    // The drive needs 8 W for all but seeking, and 14 W for that.
    let want = now.as_secs_f64() * 8.0 + activity.media.seek.as_secs_f64() * 6.0;
    assert!((energy.joules() / want - 1.0).abs() < 0.001, "{} of {want}", energy.joules());
}

proptest! {
    /// Whatever is asked: every sector written reaches the platters once it was flushed, no write is
    /// lost or done for nothing, and predictions hold.
    #[test]
    fn every_write_reaches_the_platters(
        kib in prop::sample::select(vec![8u32, 64, 1024]),
        idle_ms in prop::sample::select(vec![0.0, 5.0, 100.0]),
        steps in prop::collection::vec((0u8..6, 0u64..400, 1u32..40, 0u64..200_000_000), 1..60),
    ) {
        let mut d = disk(kib, idle_ms);
        let mut now = Nanos(0);
        let mut written = BTreeSet::new();
        for (kind, place, sectors, pause) in steps {
            let op = match kind { 0..3 => Op::Write, 5 => Op::Flush, _ => Op::Read };
            let sector = Sector(place * 16);
            let predicted = d.predict(now, op, sector, sectors);
            let before = d.activity(now).background;
            let s = d.serve(now, op, sector, sectors);
            prop_assert_eq!(predicted, s);
            prop_assert!(s.start >= now);
            let after = d.activity(s.end()).background;
            prop_assert!(after.count >= before.count);
            if op == Op::Write {
                written.extend(sector.0..sector.0 + u64::from(sectors));
            }
            now = s.end() + Nanos(pause);
        }
        let flush = d.serve(now, Op::Flush, Sector(0), 0);
        let done = d.activity(flush.end());
        prop_assert_eq!(d.activity(flush.end() + SECOND.times(1000)).background, done.background);
        // Each destage and each write around the cache passes its sectors: no fewer than were written.
        let sector_ns = 8_333_333.0 / 1032.0;
        let passed = done.media.transfer.0 as f64 / sector_ns;
        prop_assert!(passed + 1.0 >= written.len() as f64, "{passed} of {}", written.len());
    }
}
