//! The model against what can be reckoned by hand.

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Energy, Service, Split};

fn wd() -> DriveProfile {
    DriveProfile::builtin("wd800-repaired").unwrap()
}

/// Without a cache, every access is one to the platters.
fn bare(profile: DriveProfile) -> Disk {
    Disk::new(profile.with_read_ahead(0, 1))
}

fn relative(a: f64, b: f64) -> f64 {
    (a / b - 1.0).abs()
}

#[test]
fn rotation_over_uniform_phases_is_half_a_turn() {
    for name in ["wd800-repaired", "nearline-hc310"] {
        let profile = DriveProfile::builtin(name).unwrap();
        let turn = profile.turn().0 as f64;
        let disk = bare(profile);
        let n = 10_000u64;
        for sector in [0, 12_345, 77_777_777, 156_000_000] {
            let sum: u64 = (0..n)
                .map(|i| {
                    disk.predict(Nanos((turn * i as f64 / n as f64) as u64), Op::Read, Sector(sector), 8)
                })
                .map(|s| {
                    assert!((s.rotation.0 as f64) < turn);
                    s.rotation.0
                })
                .sum();
            assert!(relative(sum as f64 / n as f64, turn / 2.0) < 0.01, "{name} {sector}");
        }
    }
}

#[test]
fn the_same_sector_comes_round_every_turn() {
    let mut disk = bare(wd());
    let first = disk.serve(Nanos(0), Op::Read, Sector(1_000_000), 8);
    // Dispatched at once, the same sectors come a turn after they came, less nothing.
    let again = disk.serve(first.end(), Op::Read, Sector(1_000_000), 8);
    let period = again.end().since(first.end()).0 as f64;
    assert!(relative(period, wd().turn().0 as f64) < 1e-6, "{period}");
    // And a hundred years later the platter is where it must be: 7200 rpm is 120 turns a second.
    let later = Nanos(100 * 365 * 86_400 * 1_000_000_000);
    let a = disk.predict(later, Op::Read, Sector(5), 1);
    let b = disk.predict(later + Nanos(1_000_000_000), Op::Read, Sector(5), 1);
    assert!(a.rotation.0.abs_diff(b.rotation.0) < 20, "{a:?} {b:?}");
}

#[test]
fn each_zone_reads_sequentially_at_its_rate() {
    // Name, mean skew of a track: cylinders end every so many tracks.
    for (name, skew_ms) in [
        ("wd800-repaired", 1.0),
        ("nearline-hc310", 0.9),
        ("exos-x24", 0.9),
        ("laptop-5400", 1.2),
        ("cheetah-15k5", (7.0 * 0.5 + 0.7) / 8.0),
        ("ultrastar-15k450", (7.0 * 0.5 + 0.7) / 8.0),
    ] {
        let profile = DriveProfile::builtin(name).unwrap();
        let skew_ns = skew_ms * 1e6;
        let turn = 60e9 / profile.rpm().unwrap();
        for zone in profile.zones().to_vec() {
            let mut disk = Disk::new(profile.clone());
            let (sectors, requests) = (256u32, 400u64);
            let first = disk.serve(Nanos(0), Op::Read, Sector(zone.first_sector), sectors);
            let mut now = first.end();
            let began = now;
            for i in 1..=requests {
                let s =
                    disk.serve(now, Op::Read, Sector(zone.first_sector + i * u64::from(sectors)), sectors);
                assert!(s.cache_hit, "{name} zone at {} request {i}: {s:?}", zone.first_sector);
                now = s.end();
            }
            let per_sector = now.since(began).0 as f64 / (requests * u64::from(sectors)) as f64;
            let expected = (turn + skew_ns) / f64::from(zone.sectors_per_track);
            assert!(relative(per_sector, expected) < 0.01, "{name}: {per_sector} against {expected}");
        }
    }
    // The paper: 54 MB/s (of 2^20) in the outermost zone.
    let mut disk = bare(wd());
    let long = disk.serve(Nanos(0), Op::Read, Sector(0), 1_032_000);
    let mib_s = 1_032_000.0 * 512.0 / 1_048_576.0 / long.transfer.as_secs_f64();
    assert!(relative(mib_s, 54.0) < 0.01, "{mib_s}");
}

#[test]
fn a_transfer_across_a_zone_is_the_sum_of_its_parts_and_a_skew() {
    let border = wd().zones()[1].first_sector;
    let whole = bare(wd()).serve(Nanos(0), Op::Read, Sector(border - 100), 200).transfer;
    let before = bare(wd()).serve(Nanos(0), Op::Read, Sector(border - 100), 100).transfer;
    let after = bare(wd()).serve(Nanos(0), Op::Read, Sector(border), 100).transfer;
    assert!(whole.0.abs_diff(before.0 + after.0 + 1_000_000) < 5, "{whole:?} {before:?} {after:?}");
    // Split there and dispatched without delay, the second half loses no turn either.
    let mut disk = bare(wd());
    let first = disk.serve(Nanos(0), Op::Read, Sector(border - 100), 100);
    let second = disk.serve(first.end(), Op::Read, Sector(border), 100);
    assert_eq!(second.seek, Nanos(0));
    assert!(second.rotation.0.abs_diff(1_000_000) < 5, "{second:?}");
}

#[test]
fn a_track_away_by_hand() {
    // After 8 sectors at the start of track 0 the head goes to the start of track 1: 1032 sectors
    // lie on a track, the next begins 1 ms after it ends.
    let mut disk = bare(wd());
    let first = disk.serve(Nanos(0), Op::Read, Sector(0), 8);
    assert_eq!((first.seek, first.rotation), (Nanos(0), Nanos(0)));
    let second = disk.serve(first.end(), Op::Read, Sector(1032), 8);
    let turn = 60e9 / 7200.0;
    let sector = turn / 1032.0;
    assert_eq!(second.seek, Nanos::from_millis_f64(1.35 + 1.15e-6 * 1024.0 - 1.6e-13 * 1024.0 * 1024.0));
    let end_of_wait = turn + 1e6; // from time 0
    assert!(
        ((second.start + second.seek + second.rotation).0 as f64 - end_of_wait).abs() < 5.0,
        "{second:?} {sector}"
    );
}

#[test]
fn energy_by_hand() {
    let mut energy = Energy::new(wd().power());
    let ms = Nanos::from_millis;
    energy.add(&Service {
        op: Op::Read,
        start: ms(0),
        overhead: ms(0),
        seek: ms(4),
        rotation: ms(3),
        transfer: ms(1),
        cache_hit: false,
    });
    energy.idle(ms(1000));
    // 4 ms · 14 W + 4 ms · 8 W = 56 + 32 mJ; a second of 8 W.
    assert!((energy.access_joules() - 0.088).abs() < 1e-12);
    assert!((energy.seek_joules() - 0.056).abs() < 1e-12);
    assert!((energy.joules() - 8.088).abs() < 1e-12);
    assert!((energy.per_access() - 0.088).abs() < 1e-12);
    assert_eq!(energy.accesses(), 1);
    // The nearline drive reads at 9.4 W, writes at 6.4 W, turns at 5.3 W.
    let power = DriveProfile::builtin("nearline-hc310").unwrap().power();
    let access = |op| {
        let mut e = Energy::new(power);
        let (overhead, seek, rotation, transfer) = (ms(1), ms(2), ms(3), ms(4));
        e.add(&Service { op, start: ms(0), overhead, seek, rotation, transfer, cache_hit: false });
        e.joules()
    };
    assert!((access(Op::Read) - (2.0 * 9.4 + 4.0 * 5.3 + 4.0 * 9.4) / 1000.0).abs() < 1e-12);
    assert!((access(Op::Write) - (2.0 * 9.4 + 4.0 * 5.3 + 4.0 * 6.4) / 1000.0).abs() < 1e-12);
}

#[test]
fn split_sums_and_means() {
    let mut disk = Disk::new(wd());
    let (mut split, mut energy) = (Split::default(), Energy::new(wd().power()));
    let a = disk.serve(Nanos(0), Op::Read, Sector(50_000_000), 8);
    let b = disk.serve(a.end(), Op::Read, Sector(50_000_008), 8);
    for s in [a, b] {
        split.add(&s);
        energy.add(&s);
    }
    assert_eq!((split.count, split.hits), (2, 1));
    assert_eq!(split.total(), a.total() + b.total());
    assert_eq!(split.mean_seek(), Nanos(a.seek.0 / 2));
    let mut twice = split;
    twice.merge(&split);
    assert_eq!((twice.count, twice.mean_total()), (4, split.mean_total()));
    assert_eq!(Split::default().mean_total(), Nanos(0));
}

#[test]
fn writes_settle_and_a_drive_without_write_cache_loses_a_turn_between_them() {
    let mut disk = bare(wd());
    let w = disk.predict(Nanos(0), Op::Write, Sector(50_000_000), 8);
    let r = disk.predict(Nanos(0), Op::Read, Sector(50_000_000), 8);
    assert_eq!(w.seek.since(r.seek), Nanos(500_000));
    let first = disk.serve(Nanos(0), Op::Write, Sector(50_000_000), 8);
    let next = disk.serve(first.end() + Nanos(100_000), Op::Write, Sector(50_000_008), 8);
    assert_eq!(next.seek, Nanos(0));
    assert!(next.rotation.0.abs_diff(wd().turn().0 - 100_000) < 5, "{next:?}");
}

#[test]
fn flash_neither_seeks_nor_turns() {
    let mut disk = Disk::new(DriveProfile::builtin("ssd-sata").unwrap());
    assert!(!disk.profile().rotational());
    let r = disk.serve(Nanos(0), Op::Read, Sector(1 << 30), 8);
    // 4096 bytes at 550 MB/s: 7.447 µs.
    assert_eq!((r.overhead, r.transfer, r.positioning()), (Nanos(77_000), Nanos(7447), Nanos(0)));
    let w = disk.serve(Nanos(0), Op::Write, Sector(0), 8);
    assert_eq!(w.start, r.end());
    assert_eq!((w.overhead, w.transfer), (Nanos(30_000), Nanos(7876)));
}

#[test]
fn what_carries_no_data_costs_a_command_and_moves_nothing() {
    let mut disk = Disk::new(wd());
    let at = disk.serve(Nanos(0), Op::Read, Sector(1_000_000), 8).end();
    let plain = disk.predict(at, Op::Read, Sector(1_000_008), 8);
    let mut other = disk.clone();
    for (op, sectors) in [(Op::Flush, 0), (Op::Discard, 1000), (Op::Punch, 8), (Op::Read, 0), (Op::Write, 0)]
    {
        let s = other.serve(at, op, Sector(9_000_000), sectors);
        assert_eq!(s.total(), Nanos(100_000), "{op:?}");
    }
    assert!(other.predict(plain.start + Nanos(1_000_000), Op::Read, Sector(1_000_008), 8).cache_hit);
}

#[test]
fn remapped_stretches_lie_elsewhere() {
    let plain = bare(wd());
    let moved = bare(wd().with_remapped(20, 7));
    // About 2 % of stretches of 512 sectors answer from elsewhere, all of a stretch from one place.
    let place = |d: &Disk, sector| d.predict(Nanos(0), Op::Read, Sector(sector), 1);
    let differs: Vec<u64> =
        (0..5000).filter(|i| place(&plain, i * 512 + 5) != place(&moved, i * 512 + 5)).collect();
    assert!((60..140).contains(&differs.len()), "{}", differs.len());
    let first = differs[0] * 512;
    assert_ne!(place(&plain, first).seek, place(&moved, first).seek);
    // A read through one goes there and comes back: two seeks more, and the waits.
    let through = |d: &Disk| d.predict(Nanos(0), Op::Read, Sector(first - 8), 512 + 16).transfer;
    let there = place(&moved, first).seek;
    assert!(through(&moved).0 > through(&plain).0 + there.0, "{:?}", through(&moved));
    // Inside of one, sectors follow each other: the rate is one of the zones'.
    let inside = moved.predict(Nanos(0), Op::Read, Sector(first), 100).transfer.0 as f64 / 100.0;
    // 8 to 15 us a sector, and a skew of 1 ms where a track ends among them.
    assert!((8_000.0..26_000.0).contains(&inside), "{inside}");
    assert_eq!(wd().with_remapped(0, 7), wd());
    let p = wd().with_remapped(20, u64::MAX - 3);
    assert_eq!(DriveProfile::parse(&p.to_toml(), "x").unwrap(), p);
}

#[test]
fn reading_ahead_passes_through_remapped_stretches() {
    let profile = wd().with_remapped(200, 3);
    let mut disk = Disk::new(profile);
    let mut now = Nanos(0);
    for i in 0..4000u64 {
        let predicted = disk.predict(now, Op::Read, Sector(i * 8), 8);
        let s = disk.serve(now, Op::Read, Sector(i * 8), 8);
        assert_eq!(s, predicted);
        now = s.end();
    }
    // A fifth of the stretches elsewhere: 62 of them, with two moves of some 10 ms each.
    let mut straight = Disk::new(wd());
    let mut end = Nanos(0);
    for i in 0..4000u64 {
        end = straight.serve(end, Op::Read, Sector(i * 8), 8).end();
    }
    assert!(now > end + Nanos::from_millis(200), "{now:?} {end:?}");
}

/// A drive of one zone of so many sectors a track, 1,000 tracks, and one of 64 sectors a track behind it.
fn tracks_of(spt: u32, cache: &str) -> DriveProfile {
    let text = format!(
        "name = 'tracks'\ncapacity_sectors = {end}\n[disk]\nrpm = 7200.0\ntrack_skew_ms = 1.0\ncylinder_skew_ms = 2.0\n\
         tracks_per_cylinder = 2\nwrite_settle_ms = 0.0\noverhead_us = 100.0\nbus_mb_s = 1000.0\n\
         zones = [{{ first_sector = 0, sectors_per_track = {spt} }}, {{ first_sector = {second}, sectors_per_track = 64 }}]\n\
         [disk.seek]\ntable = [[1.0, 1.0], [1e8, 20.0]]\n[disk.cache]\n{cache}\n\
         [power]\nseek_w = 1.0\nread_w = 1.0\nwrite_w = 1.0\nidle_w = 1.0\n",
        second = 1000 * spt,
        end = 1000 * spt + 64_000,
    );
    DriveProfile::parse(&text, "tracks").unwrap()
}

/// A whole track passes in a turn, also where so many sectors' angles add up to all of it, or by rounding to more.
#[test]
fn a_whole_track_takes_a_turn() {
    for spt in (8..1100).chain([1 << 12]) {
        let disk = Disk::new(tracks_of(spt, "segments = 0\nsegment_kib = 1"));
        let turn = disk.profile().turn().0 as f64;
        for track in [0, 5, 999] {
            let s = disk.predict(Nanos(0), Op::Read, Sector(u64::from(track * spt)), spt);
            assert!(relative(s.transfer.0 as f64, turn) < 1e-6, "{spt} {track}: {s:?}");
        }
    }
}

/// What is read ahead over a zone's end has not passed before it could have been read.
#[test]
fn reading_ahead_over_a_zones_end_takes_its_time() {
    for spt in (8..1100).step_by(4) {
        let cache = "segments = 1\nsegment_sectors = 8192\nread_ahead = 'past'\npast_sectors = 8192";
        let profile = tracks_of(spt, cache);
        let (mut ahead, reads) = (Disk::new(profile.clone()), bare(profile));
        let start = Sector(u64::from(998 * spt));
        let first = ahead.serve(Nanos(0), Op::Read, start, 1);
        let began = first.end() - first.transfer;
        for sectors in [spt, 2 * spt, 2 * spt + 1, 2 * spt + 64, 2 * spt + 300] {
            let least = reads.predict(Nanos(0), Op::Read, start, sectors).transfer;
            for ms in (0..60).step_by(3) {
                let s = ahead.predict(first.end() + Nanos::from_millis(ms), Op::Read, start, sectors);
                assert!(s.end() + Nanos(1000) >= began + least, "{spt}: {sectors} after {ms} ms: {s:?}");
            }
        }
    }
}
