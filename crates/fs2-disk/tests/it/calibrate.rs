//! A modelled drive is measured in virtual time, by a clock that is sometimes late, and what was found is compared
//! with what it is. With `--nocapture` the tables of docs/calibration.md are printed.

use std::fmt::Write as _;

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::calibrate::{
    CAPACITY_MIN, Calibration, Options, Oracle, Refused, Stop, Timed, calibrate, check,
};
use fs2_disk::{Disk, DriveProfile};

/// A modelled drive and a machine that is not idle.
struct Machine {
    disk: Disk,
    now: Nanos,
    seed: u64,
    /// Mean of how late a wake-up is, nanoseconds.
    jitter: f64,
    /// Of a thousand reads, so many end up to 20 ms late.
    late: u64,
    /// Of a thousand reads, so many are answered from a cache for no reason.
    early: u64,
    /// Fails after so many reads.
    reads_left: u64,
}

impl Machine {
    fn new(profile: &DriveProfile, seed: u64) -> Machine {
        let disk = Disk::new(profile.clone());
        Machine { disk, now: Nanos(0), seed, jitter: 5_000.0, late: 15, early: 5, reads_left: u64::MAX }
    }

    fn quiet(profile: &DriveProfile, seed: u64) -> Machine {
        Machine { jitter: 0.0, late: 0, early: 0, ..Machine::new(profile, seed) }
    }

    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential: most wake-ups are nearly in time.
    fn slack(&mut self) -> Nanos {
        Nanos((-self.jitter * (1.0 - self.random()).ln()) as u64)
    }

    fn happens(&mut self, permille: u64) -> bool {
        self.random() * 1000.0 < permille as f64
    }
}

impl Oracle for Machine {
    fn read(&mut self, sector: u64, sectors: u32) -> Result<Timed, Stop> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(Stop)?;
        assert!(sectors > 0 && sector + u64::from(sectors) <= self.disk.profile().capacity_sectors());
        let begin = self.now;
        let asked = begin + self.slack();
        let mut end = match self.happens(self.early) {
            true => asked + Nanos(60_000),
            false => self.disk.serve(asked, Op::Read, Sector(sector), sectors).end(),
        };
        end += self.slack();
        if self.happens(self.late) {
            end += Nanos((self.random() * 20e6) as u64);
        }
        self.now = end + Nanos(2_000);
        Ok(Timed { begin, end })
    }

    fn pause(&mut self, time: Nanos) {
        self.now = self.now + time + self.slack();
    }
}

fn options(profile: &DriveProfile, seed: u64) -> Options {
    Options { capacity_sectors: profile.capacity_sectors(), grain: 8, seed, budget: Nanos(60_000_000_000) }
}

fn builtin(name: &str) -> DriveProfile {
    DriveProfile::builtin(name).unwrap()
}

fn measured(name: &str, seed: u64) -> (DriveProfile, Calibration) {
    let profile = builtin(name);
    let found = calibrate(&mut Machine::new(&profile, seed + 1), options(&profile, seed)).unwrap();
    (profile, found)
}

/// Mean rate of a drive at a place, over many tracks.
fn mb_s(profile: &DriveProfile, at: u64) -> f64 {
    // Reads in one go, by a model of it.
    let mut disk = Disk::new(profile.clone());
    let at = at.min(profile.capacity_sectors() - (1 << 17));
    let first = disk.serve(Nanos(0), Op::Read, Sector(at), 1 << 16);
    let second = disk.serve(first.end(), Op::Read, Sector(at + (1 << 16)), 1 << 16);
    512.0 * f64::from(1 << 16) / second.end().since(first.end()).as_millis_f64() / 1000.0
}

/// What a read waits for before its sector comes round: overhead and arm. Only their sum can be seen.
fn ready_ms(profile: &DriveProfile, distance: u64) -> f64 {
    let middle = profile.capacity_sectors() - 1024;
    let mut disk = Disk::new(profile.clone());
    let first = disk.serve(Nanos(0), Op::Read, Sector(middle), 8);
    let to = Sector((middle + 8).saturating_sub(distance));
    let s = disk.serve(first.end(), Op::Read, to, 8);
    (s.overhead + s.seek).as_millis_f64()
}

fn mean_ready_ms(profile: &DriveProfile) -> f64 {
    let full = profile.capacity_sectors() as f64;
    let at = |i: i32| (f64::from(i) + 0.5) / 200.0;
    (0..200).map(|i| ready_ms(profile, (at(i) * full * 0.999) as u64) * 2.0 * (1.0 - at(i))).sum::<f64>()
        / 200.0
}

/// Name, true, recovered, and what they may differ by: a share, and an amount that a clock is off by.
type Row = (String, f64, f64, f64, f64);

fn rows(truth: &DriveProfile, found: &DriveProfile) -> Vec<Row> {
    let full = truth.capacity_sectors();
    let mut out = vec![("rotation, rpm".into(), truth.rpm().unwrap(), found.rpm().unwrap(), 0.001, 0.0)];
    let seeks = [("short", 8192), ("1/100", full / 100), ("1/3", full / 3), ("full", full / 100 * 97)];
    for (name, distance) in seeks {
        let (is, was) = (ready_ms(found, distance), ready_ms(truth, distance));
        out.push((format!("arm, {name}, ms"), was, is, 0.03, 0.02));
    }
    out.push(("arm, mean, ms".into(), mean_ready_ms(truth), mean_ready_ms(found), 0.03, 0.0));
    for (name, tenth) in [("outer", 0), ("1/4", 25), ("middle", 50), ("3/4", 75), ("inner", 99)] {
        let at = full / 100 * tenth + full / 300;
        out.push((format!("rate, {name}, MB/s"), mb_s(truth, at), mb_s(found, at), 0.03, 0.0));
    }
    let (a, b) = (truth.read_ahead(), found.read_ahead());
    out.push(("cache segments".into(), f64::from(a.0), f64::from(b.0), 0.0, 0.5));
    out.push(("segment, KiB".into(), a.1 as f64 / 1024.0, b.1 as f64 / 1024.0, 0.03, 0.0));
    out
}

fn turning() -> impl Iterator<Item = &'static str> {
    DriveProfile::names().filter(|n| builtin(n).rotational())
}

#[test]
fn every_drive_is_recovered() {
    let (mut table, mut wrong) = (String::new(), Vec::new());
    let mut times = String::from(
        "| drive | seconds | reads | seek residual, us | rate residual |\n|---|---|---|---|---|\n",
    );
    for name in turning() {
        let (truth, found) = measured(name, 1);
        let rows = rows(&truth, &found.profile);
        if table.is_empty() {
            let names: Vec<&str> = rows.iter().map(|r| r.0.as_str()).collect();
            table = format!("| drive | {} |\n|{}\n", names.join(" | "), "---|".repeat(rows.len() + 1));
        }
        let _ = write!(table, "| {name} |");
        for (figure, is, was, share, amount) in rows {
            let _ = write!(table, " {is:.2} / {was:.2} |");
            if (was - is).abs() > share * is + amount {
                wrong.push(format!("{name}: {figure} is {is:.3}, recovered {was:.3}"));
            }
        }
        table.push('\n');
        let _ = writeln!(
            times,
            "| {name} | {:.0} | {} | {:.0} | {:.2} % |",
            found.elapsed.as_secs_f64(),
            found.reads,
            found.seek_residual_us,
            found.rate_residual_percent
        );
    }
    println!("{table}\n{times}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn other_seeds_say_the_same() {
    let mut wrong = Vec::new();
    for seed in 2..12 {
        for name in turning() {
            let (truth, found) = measured(name, seed);
            let found_rows = rows(&truth, &found.profile);
            for (figure, is, was, share, amount) in found_rows {
                // A pass of the cache may count one too few.
                if (was - is).abs() > share * is + amount.max(if share == 0.0 { 1.0 } else { 0.0 }) {
                    wrong.push(format!("{name}, seed {seed}: {figure} is {is:.3}, recovered {was:.3}"));
                }
            }
            let (seek, rate) = (found.seek_residual_us, found.rate_residual_percent);
            if seek > 120.0 || rate > 3.0 {
                wrong.push(format!("{name}, seed {seed}: residuals {seek:.0} us, {rate:.2} %"));
            }
            // What is written is what the other tools read.
            let text = found.profile.to_toml();
            assert_eq!(DriveProfile::parse(&text, name).unwrap(), found.profile, "{name}, seed {seed}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn skews_and_cylinders_where_they_can_be_seen() {
    for (name, track, cylinder, tracks) in [("cheetah-15k5", 0.5, 0.7, 8), ("nearline-hc310", 0.9, 0.9, 1)] {
        let (_, found) = measured(name, 3);
        let text = found.profile.to_toml();
        let value = |key: &str| -> f64 {
            let line = text.lines().find(|l| l.starts_with(key)).unwrap();
            line.split(" = ").nth(1).unwrap().parse().unwrap()
        };
        assert!((value("track_skew_ms") - track).abs() < 0.03, "{text}");
        assert!((value("cylinder_skew_ms") - cylinder).abs() < 0.03, "{text}");
        assert_eq!(value("tracks_per_cylinder"), f64::from(tracks), "{text}");
    }
}

#[test]
fn a_drive_without_an_arm_is_told() {
    for name in DriveProfile::names().filter(|n| !builtin(n).rotational()) {
        let (truth, found) = measured(name, 1);
        assert!(!found.profile.rotational() && found.seeks.is_empty(), "{name}");
        assert!(found.notes.iter().any(|n| n.contains("it has no arm")), "{:?}", found.notes);
        let of = |p: &DriveProfile, sectors| {
            Disk::new(p.clone()).serve(Nanos(0), Op::Read, Sector(0), sectors).total().as_millis_f64()
                * 1000.0
        };
        println!("| {name} | {:.0} | {} |", found.elapsed.as_secs_f64(), found.reads);
        for sectors in [8, 1024] {
            // The clock of these tests is late by twice 5 us in the mean.
            let (is, was) = (of(&truth, sectors), of(&found.profile, sectors));
            println!("| {name} | read of {sectors} sectors, us | {is:.1} | {was:.1} |");
            assert!((was - is - 10.0).abs() < 0.05 * is + 5.0, "{name}: {is} us, recovered {was}");
        }
    }
}

#[test]
fn the_same_answers_make_the_same_profile() {
    let (_, a) = measured("wd800-repaired", 5);
    let (_, b) = measured("wd800-repaired", 5);
    assert_eq!(a, b);
}

#[test]
fn less_time_means_fewer_places() {
    let profile = builtin("wd800-repaired");
    for seed in 1..4 {
        let hurried = Options { budget: Nanos(20_000_000_000), ..options(&profile, seed) };
        let found = calibrate(&mut Machine::new(&profile, seed), hurried).unwrap();
        assert!(found.elapsed.as_secs_f64() < 25.0, "{}", found.elapsed.as_secs_f64());
        assert!((found.profile.rpm().unwrap() / 7200.0 - 1.0).abs() < 0.002);
        let (is, was) = (mean_ready_ms(&profile), mean_ready_ms(&found.profile));
        assert!((was / is - 1.0).abs() < 0.06, "seed {seed}: {is} {was}");
    }
}

#[test]
fn a_part_of_a_drive_is_measured_as_that() {
    // A partition of 2 GiB, sectors of 512 bytes: no seek is longer than it.
    let profile = builtin("wd800-repaired");
    let part = Options { capacity_sectors: 4 << 20, grain: 1, ..options(&profile, 7) };
    let found = calibrate(&mut Machine::new(&profile, 8), part).unwrap();
    assert_eq!(found.profile.capacity_sectors(), 4 << 20);
    assert!(found.seeks.iter().all(|s| s.distance < 4 << 20));
    assert!((ready_ms(&found.profile, 2_000_000) / ready_ms(&profile, 2_000_000) - 1.0).abs() < 0.03);
}

/// What the drive's cache answered was taken for a read of the platters: a part of 256 MiB turned a thousandth too slowly, and
/// some of 1 GiB by four hundredths.
#[test]
fn a_small_part_turns_as_fast_as_the_drive() {
    let mut wrong = Vec::new();
    for (name, sizes) in [("exos-x24", 19..22), ("nearline-hc310", 19..24)] {
        let profile = builtin(name);
        for (size, seed) in sizes.flat_map(|size| (1..50).map(move |seed| (size, seed))) {
            let part = Options { capacity_sectors: (1 << size) + seed * 4096, ..options(&profile, seed) };
            // It may be so small that no seeks are to be seen.
            let Ok(found) = calibrate(&mut Machine::new(&profile, seed + 77), part) else { continue };
            let rpm = found.profile.rpm().unwrap();
            if (rpm / profile.rpm().unwrap() - 1.0).abs() > 0.0005 {
                wrong.push(format!("{name}, 2^{size}, seed {seed}: {rpm}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A logical volume whose first extents lie on inner tracks: the way down from a place is longer than by the first ones.
#[test]
fn tracks_may_grow_towards_the_end() {
    let text = DriveProfile::builtin_source("wd800-repaired").unwrap();
    let (before, zones) = text.split_at(text.find("[[disk.zones]]").unwrap());
    let power = &zones[zones.find("[power]").unwrap()..];
    let zone = |first: u64, tracks: u64| {
        format!("[[disk.zones]]\nfirst_sector = {first}\nsectors_per_track = {tracks}\n\n")
    };
    let profile =
        DriveProfile::parse(&[before, &zone(0, 500), &zone(250_000, 1000), power].concat(), "grows").unwrap();
    for seed in 1..4 {
        let part = Options { capacity_sectors: 1 << 21, ..options(&profile, seed) };
        let found = calibrate(&mut Machine::new(&profile, seed), part).unwrap();
        let (is, was) = (ready_ms(&profile, 500_000), ready_ms(&found.profile, 500_000));
        assert!((was / is - 1.0).abs() < 0.1, "seed {seed}: {is} {was}");
    }
}

/// A volume of so many stretches of so many sectors, the last of them first on the drive.
struct Stretches(Machine, u64, u64);

impl Oracle for Stretches {
    fn read(&mut self, sector: u64, sectors: u32) -> Result<Timed, Stop> {
        let Stretches(machine, long, count) = self;
        let stretch = *count - 1 - sector / *long;
        machine.read(stretch * *long + sector % *long, sectors)
    }

    fn pause(&mut self, time: Nanos) {
        self.0.pause(time);
    }
}

/// A volume whose halves lie in the other order on the drive, as after `pvmove` or where it was enlarged: from end to end is a
/// short way. A profile was written that nothing read: "a seek over 11905777 takes 16.68 ms, and one from end to end only 3.45".
#[test]
fn a_volume_in_another_order_has_no_curve() {
    for name in ["wd800-repaired", "nearline-hc310"] {
        let profile = builtin(name);
        let volume = profile.capacity_sectors() / 16 * 16;
        for seed in 1..4 {
            let all = Options { capacity_sectors: volume, ..options(&profile, seed) };
            let found = calibrate(&mut Stretches(Machine::new(&profile, seed), volume / 2, 2), all);
            let Err(refused) = found else { panic!("{name}, seed {seed}: a profile") };
            assert!(matches!(refused, Refused::NoCurve(_)), "{name}, seed {seed}: {refused}");
            assert!(refused.to_string().contains("measure all of the drive"), "{refused}");
        }
    }
}

/// Of three stretches each way is as long as another, and a curve went through all of them: "curve within 0 us".
#[test]
fn a_curve_that_is_what_was_measured_says_so() {
    let profile = builtin("nearline-hc310");
    let long = profile.capacity_sectors() / 24 * 8;
    let volume = Options { capacity_sectors: 3 * long, ..options(&profile, 1) };
    let found = calibrate(&mut Stretches(Machine::new(&profile, 1), long, 3), volume).unwrap();
    let said = |found: &Calibration| found.notes.iter().any(|n| n.contains("the residual says nothing"));
    assert!(said(&found), "{:?}", found.notes);
    let (_, whole) = measured("nearline-hc310", 1);
    assert!(!said(&whole), "{:?}", whole.notes);
}

/// So large that a quarter of it has room for 61, and for 122, places apart from each other.
#[test]
fn the_cache_is_looked_at_in_different_places() {
    let profile = builtin("wd800-repaired").with_read_ahead(16, 4096);
    let (segments, bytes) = profile.read_ahead();
    for places in [61, 122] {
        let apart = bytes / 512 * 3 / 2;
        let part = Options { capacity_sectors: places * 4 * apart + 800, ..options(&profile, 1) };
        let found = calibrate(&mut Machine::quiet(&profile, 1), part).unwrap();
        assert_eq!(found.profile.read_ahead(), (segments, bytes), "{places} places");
    }
}

/// A drive, or the bridge before it, that keeps short reads and no long ones: a long read of a place that was just read waits for
/// the platters, and that was taken for the rate of the bus, 53 MB/s of a drive that reads 255.
#[test]
fn a_bus_is_as_fast_as_what_came_over_it() {
    struct ShortOnly(Machine);
    impl Oracle for ShortOnly {
        fn read(&mut self, sector: u64, sectors: u32) -> Result<Timed, Stop> {
            let Timed { begin, mut end } = self.0.read(sector, sectors)?;
            if sectors > 64 && end.since(begin) < Nanos(1_500_000) {
                end += self.0.disk.profile().turn();
                self.0.now = end;
            }
            Ok(Timed { begin, end })
        }
        fn pause(&mut self, time: Nanos) {
            self.0.pause(time);
        }
    }
    let profile = builtin("nearline-hc310");
    for seed in 1..4 {
        let machine = Machine { early: 0, ..Machine::new(&profile, seed) };
        let found = calibrate(&mut ShortOnly(machine), options(&profile, seed)).unwrap();
        let (is, was) = (mb_s(&profile, 1 << 20), mb_s(&found.profile, 1 << 20));
        assert!((was / is - 1.0).abs() < 0.05, "seed {seed}: {is} {was}");
        assert!(found.notes.iter().any(|n| n.contains("bus cannot be seen")), "{:?}", found.notes);
    }
}

/// A partition of one zone on a machine that is busy: none of the streams there went on evenly, and a bus ten times as fast as the
/// platters was one of 10 MB/s.
#[test]
fn without_a_stream_the_zones_tell_the_rate() {
    let profile = builtin("exos-x24").with_read_ahead(0, 0);
    let mut none = 0;
    for seed in 1..30 {
        let part = Options { capacity_sectors: 1 << 22, ..options(&profile, seed) };
        let mut busy = Machine { early: 80, late: 50, ..Machine::new(&profile, seed) };
        // It may be too busy.
        let Ok(found) = calibrate(&mut busy, part) else { continue };
        let (is, was) = (mb_s(&profile, 1 << 20), mb_s(&found.profile, 1 << 20));
        assert!((was / is - 1.0).abs() < 0.1, "seed {seed}: {is} {was}");
        if found.rates.is_empty() {
            none += 1;
            assert!(found.notes.iter().any(|n| n.contains("No stream")), "{:?}", found.notes);
        }
    }
    assert!(none > 0);
}

#[test]
fn what_is_no_disk_is_refused() {
    /// Waits as long as it likes.
    struct Moody(Nanos, u64);
    impl Oracle for Moody {
        fn read(&mut self, _: u64, _: u32) -> Result<Timed, Stop> {
            self.1 = self.1.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let begin = self.0;
            self.0 += Nanos(500_000 + (self.1 >> 33) % 12_000_000);
            Ok(Timed { begin, end: self.0 })
        }
        fn pause(&mut self, time: Nanos) {
            self.0 += time;
        }
    }
    let profile = builtin("wd800-repaired");
    for seed in 0..20 {
        let refused = calibrate(&mut Moody(Nanos(0), seed), options(&profile, seed)).unwrap_err();
        assert_eq!(refused, Refused::NoRotation, "seed {seed}");
    }
    let small = Options { capacity_sectors: CAPACITY_MIN - 1, ..options(&profile, 1) };
    assert_eq!(
        calibrate(&mut Machine::new(&profile, 1), small).unwrap_err(),
        Refused::TooSmall(CAPACITY_MIN - 1)
    );
}

/// Found: a drive of today behind USB 2 was "not one disk alone", or the machine too busy, and to be tried again when it rests.
#[test]
fn a_bus_far_slower_than_the_platters_is_named() {
    let text = builtin("nearline-hc310").to_toml();
    let bus = text.lines().find(|line| line.starts_with("bus_mb_s")).unwrap();
    let behind = DriveProfile::parse(&text.replace(bus, "bus_mb_s = 35.0"), "usb").unwrap();
    for seed in 1..4 {
        let refused = calibrate(&mut Machine::new(&behind, seed), options(&behind, seed)).unwrap_err();
        assert!(refused.to_string().contains("a bus far slower than its platters"), "seed {seed}: {refused}");
    }
}

/// The first 256 MiB of a drive whose cache holds as much: there is hardly an arm to be seen.
#[test]
fn where_no_seeks_are_to_be_seen_there_is_no_profile() {
    let mut refused = 0;
    for name in ["exos-x24", "nearline-hc310"] {
        let profile = builtin(name);
        for seed in 1..20 {
            let part = Options { capacity_sectors: CAPACITY_MIN, ..options(&profile, seed) };
            match calibrate(&mut Machine::new(&profile, seed), part) {
                Ok(found) => {
                    let text = found.profile.to_toml();
                    assert_eq!(
                        DriveProfile::parse(&text, name).unwrap(),
                        found.profile,
                        "{name}, seed {seed}"
                    );
                    let (is, was) = (ready_ms(&profile, 200_000), ready_ms(&found.profile, 200_000));
                    assert!((was / is - 1.0).abs() < 0.5, "{name}, seed {seed}: {is} {was}");
                }
                Err(Refused::NoSeeks { .. }) => refused += 1,
                Err(other) => panic!("{name}, seed {seed}: {other}"),
            }
        }
    }
    assert!(refused > 0);
}

/// However little time there is, the curve does not run on from the first half of the way.
#[test]
fn the_longest_way_is_always_measured() {
    for name in turning() {
        let profile = builtin(name);
        let full = profile.capacity_sectors() / 100 * 95;
        for seed in 1..12 {
            let hurried = Options { budget: Nanos(5_000_000_000), ..options(&profile, seed) };
            let found = calibrate(&mut Machine::new(&profile, seed), hurried).unwrap();
            let longest = found.seeks.last().map_or(0, |s| s.distance);
            assert!(longest > full, "{name}, seed {seed}: {longest} of {full}");
            let (is, was) = (ready_ms(&profile, full), ready_ms(&found.profile, full));
            assert!((was / is - 1.0).abs() < 0.1, "{name}, seed {seed}: {is} {was}");
        }
    }
}

/// Ends wherever a read fails, and panics nowhere on the way.
#[test]
fn a_read_that_fails_ends_it() {
    let profile = builtin("cheetah-15k5");
    for reads_left in (0..4000).step_by(37) {
        let mut failing = Machine { reads_left, ..Machine::new(&profile, 1) };
        assert_eq!(calibrate(&mut failing, options(&profile, 1)).unwrap_err(), Refused::Stopped);
    }
    let mut failing = Machine { reads_left: 300, ..Machine::new(&profile, 1) };
    assert_eq!(check(&mut failing, options(&profile, 1), &profile).unwrap_err(), Refused::Stopped);
}

#[test]
fn a_check_knows_the_drive() {
    for name in DriveProfile::names() {
        let (truth, found) = measured(name, 1);
        for seed in 1..8 {
            let verdict = |p: &DriveProfile| {
                check(&mut Machine::new(&truth, seed + 7), options(&truth, seed), p).unwrap()
            };
            let own = verdict(&truth);
            assert!(own.fits(), "{name}, seed {seed}: {own:?}");
            let measured = verdict(&found.profile);
            assert!(measured.fits(), "{name}, seed {seed}: {measured:?}");
            if seed == 1 {
                println!("| {name} | {:.2} | {:.2} | {} |", own.demerit_ms, own.mean_ms, own.reads);
            }
        }
    }
}

#[test]
fn a_check_knows_other_drives() {
    let all: Vec<DriveProfile> = DriveProfile::names().map(builtin).collect();
    for truth in &all {
        for other in &all {
            let same_but_for_the_curve =
                truth.name().starts_with("wd800") && other.name().starts_with("wd800");
            if truth.name() == other.name() || same_but_for_the_curve {
                continue;
            }
            let verdict = check(&mut Machine::new(truth, 3), options(truth, 3), other).unwrap();
            assert!(!verdict.fits(), "{} taken for {}: {verdict:?}", truth.name(), other.name());
        }
        if truth.rotational() {
            for other in [truth.clone().with_rpm_scaled(1.01), truth.clone().with_seek_scaled(1.25)] {
                let verdict = check(&mut Machine::new(truth, 3), options(truth, 3), &other).unwrap();
                assert!(!verdict.fits(), "{} taken for a slightly other one: {verdict:?}", truth.name());
            }
        }
    }
}

#[test]
fn a_quiet_machine_and_a_loud_one() {
    let profile = builtin("nearline-hc310");
    let quiet = calibrate(&mut Machine::quiet(&profile, 1), options(&profile, 1)).unwrap();
    assert!((mean_ready_ms(&quiet.profile) / mean_ready_ms(&profile) - 1.0).abs() < 0.01);
    // Four times the delay of a wake-up, and one read of twenty late.
    let mut loud = Machine { jitter: 20_000.0, late: 50, early: 10, ..Machine::new(&profile, 1) };
    let loud = calibrate(&mut loud, options(&profile, 1)).unwrap();
    assert!((loud.profile.rpm().unwrap() / 7200.0 - 1.0).abs() < 0.002);
    assert!((mean_ready_ms(&loud.profile) / mean_ready_ms(&profile) - 1.0).abs() < 0.05);
}
