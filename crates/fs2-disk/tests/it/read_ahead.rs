//! The drive's cache: what is a hit, what is waited for, what is lost.

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile};

const HIT_OVERHEAD: Nanos = Nanos(100_000);
const AT: u64 = 10_000_000;

/// wd800 with `segments` segments of 256 KiB (512 sectors).
fn disk(segments: u32) -> Disk {
    Disk::new(DriveProfile::default().with_read_ahead(segments, 256))
}

/// Nanoseconds `sectors` take over a bus of 100 MB/s.
fn bus(sectors: u64) -> u64 {
    sectors * 5120
}

#[test]
fn a_hit_costs_overhead_and_bus() {
    let mut d = disk(1);
    let miss = d.serve(Nanos(0), Op::Read, Sector(AT), 8);
    assert!(!miss.cache_hit && miss.seek.0 > 0);
    // Ten milliseconds later the segment is full: 512 sectors from the read's start.
    let later = miss.end() + Nanos::from_millis(10);
    for (first, sectors) in [(AT, 8), (AT + 8, 8), (AT + 504, 8), (AT, 512)] {
        let hit = d.predict(later, Op::Read, Sector(first), sectors);
        assert!(hit.cache_hit, "{first}");
        assert_eq!((hit.overhead, hit.seek, hit.rotation), (HIT_OVERHEAD, Nanos(0), Nanos(0)));
        assert_eq!(hit.transfer.0, bus(u64::from(sectors)), "{first}");
    }
    assert!(!d.predict(later, Op::Read, Sector(AT - 8), 8).cache_hit);
    assert!(!d.predict(later, Op::Read, Sector(AT + 520), 8).cache_hit);
}

#[test]
fn a_read_past_what_was_read_ahead_waits_for_the_media() {
    let mut d = disk(1);
    let miss = d.serve(Nanos(0), Op::Read, Sector(AT), 8);
    // Zone of 1032 sectors a track: 8.07 µs each; 1 ms brings 123 of them, unless a track ends.
    let now = miss.end() + Nanos::from_millis(1);
    let partly = d.predict(now, Op::Read, Sector(AT + 8), 256);
    assert!(partly.cache_hit);
    let media = bare().serve(Nanos(0), Op::Read, Sector(AT + 8), 256).transfer;
    assert!(partly.end().0.abs_diff((miss.end() + media).0) < 5, "{partly:?}");
    // The next sectors not yet begun are waited for as well, a little ahead too.
    for skip in [8, 150, 300] {
        let ahead = d.predict(now, Op::Read, Sector(AT + 8 + skip), 8);
        assert!(ahead.cache_hit, "{skip}");
        assert!(ahead.end() <= partly.end() + Nanos::from_millis(2));
    }
}

fn bare() -> Disk {
    Disk::new(DriveProfile::default().with_read_ahead(0, 1))
}

#[test]
fn reading_ahead_stops_at_the_segments_end() {
    let mut d = disk(1);
    let miss = d.serve(Nanos(0), Op::Read, Sector(AT), 8);
    let much_later = miss.end() + Nanos::from_millis(1000);
    assert_eq!(d.position(much_later), Sector(AT + 512));
    // Partly there, the head stopped: it waits for the platter but does not seek.
    let over = d.predict(much_later, Op::Read, Sector(AT + 500), 24);
    assert!(!over.cache_hit);
    assert_eq!(over.seek, Nanos(0));
    assert!(over.rotation.0 > 0);
    // A hit makes room, and it goes on: by 100 sectors.
    d.serve(much_later, Op::Read, Sector(AT + 100), 8);
    assert_eq!(d.position(much_later + Nanos::from_millis(50)), Sector(AT + 612));
}

#[test]
fn reading_ahead_stops_at_the_next_command_for_the_platters() {
    let mut d = disk(2);
    let miss = d.serve(Nanos(0), Op::Read, Sector(AT), 8);
    let now = miss.end() + Nanos(500_000);
    let got = d.position(now).0;
    assert!((AT + 8 + 40..AT + 8 + 80).contains(&got), "{got}");
    let far = d.serve(now, Op::Read, Sector(90_000_000), 8);
    // The seek began where reading ahead had come to.
    assert_eq!(far.seek, d.profile().seek_time(90_000_000 - got, Op::Read));
    let later = far.end() + Nanos::from_millis(100);
    assert!(d.predict(later, Op::Read, Sector(AT), (got - AT) as u32).cache_hit);
    assert!(!d.predict(later, Op::Read, Sector(AT), (got - AT) as u32 + 1).cache_hit);
}

#[test]
fn the_least_recently_used_segment_goes_first() {
    let mut d = disk(2);
    let mut now = Nanos(0);
    for place in [1, 2, 1, 3] {
        now = d.serve(now, Op::Read, Sector(place * 10_000_000), 8).end() + Nanos::from_millis(20);
    }
    let there = |place: u64| d.predict(now, Op::Read, Sector(place * 10_000_000), 8).cache_hit;
    assert_eq!([there(1), there(2), there(3)], [true, false, true]);
}

#[test]
fn a_write_drops_what_it_overlaps_and_nothing_else() {
    let mut d = disk(2);
    let a = d.serve(Nanos(0), Op::Read, Sector(AT), 8).end() + Nanos::from_millis(20);
    let b = d.serve(a, Op::Read, Sector(2 * AT), 8).end() + Nanos::from_millis(20);
    let now = d.serve(b, Op::Write, Sector(AT + 511), 1).end();
    assert!(!d.predict(now, Op::Read, Sector(AT), 8).cache_hit);
    assert!(d.predict(now, Op::Read, Sector(2 * AT), 8).cache_hit);
    // Right beside is not overlapping.
    let now = d.serve(now, Op::Write, Sector(2 * AT + 512), 8).end();
    assert!(d.predict(now, Op::Read, Sector(2 * AT), 8).cache_hit);
}

#[test]
fn a_long_read_keeps_its_last_part_and_reads_on() {
    let mut d = disk(1);
    let long = d.serve(Nanos(0), Op::Read, Sector(AT), 2048);
    let later = long.end() + Nanos::from_millis(100);
    // 512 sectors in all: half of them read ahead, half of them the end of the read.
    assert!(d.predict(later, Op::Read, Sector(AT + 2048 + 248), 8).cache_hit);
    assert!(d.predict(later, Op::Read, Sector(AT + 2048 - 256), 8).cache_hit);
    assert!(!d.predict(later, Op::Read, Sector(AT + 2048 - 257), 1).cache_hit);
    assert!(!d.predict(later, Op::Read, Sector(AT + 2048 + 249), 8).cache_hit);
}

#[test]
fn reading_ahead_ends_with_the_drive() {
    let mut d = disk(1);
    let last = d.profile().capacity_sectors();
    let s = d.serve(Nanos(0), Op::Read, Sector(last - 16), 8);
    assert_eq!(d.position(s.end() + Nanos::from_millis(1000)), Sector(last));
}

#[test]
fn a_slow_reader_of_a_sequence_meets_hits_only() {
    let mut d = disk(1);
    let mut now = d.serve(Nanos(0), Op::Read, Sector(AT), 8).end();
    for i in 1..1000 {
        now += Nanos::from_millis(5);
        let s = d.serve(now, Op::Read, Sector(AT + i * 8), 8);
        assert!(s.cache_hit, "{i}: {s:?}");
        now = s.end();
    }
}
