//! Drives in DiskSim's form: what they become, reckoned by hand, and what is refused where.

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Head, Knowledge, ProfileError, Service};
use proptest::prelude::*;

const SPECS: &str = include_str!("../drives/small.diskspecs");
const MODEL: &str = include_str!("../drives/small.model");
const SEEK: &str = include_str!("../drives/small.seek");

fn import_of(specs: &str, model: &str, seek: &str) -> Result<DriveProfile, ProfileError> {
    let mut files = |name: &str| match name {
        "small.model" => Ok(model.to_owned()),
        "small.diskspecs" => Ok(SPECS.to_owned()),
        "small.seek" => Ok(seek.to_owned()),
        _ => Err("no such file".to_owned()),
    };
    DriveProfile::import_disksim(specs, "x.diskspecs", &mut files)
}

fn small() -> DriveProfile {
    import_of(SPECS, MODEL, SEEK).unwrap()
}

/// The drive with one parameter changed.
fn with(from: &str, to: &str) -> DriveProfile {
    let count = |text: &str| text.matches(from).count();
    assert_eq!(count(SPECS) + count(MODEL), 1, "{from}");
    import_of(&SPECS.replace(from, to), &MODEL.replace(from, to), SEEK).unwrap()
}

fn us(times: [f64; 4]) -> [Nanos; 4] {
    times.map(|t| Nanos((t * 1000.0).round() as u64))
}

/// Overhead, seek, rotation and transfer in microseconds, to a few nanoseconds.
#[track_caller]
fn assert_takes(s: Service, expected: [f64; 4]) {
    let want = us(expected);
    for (got, want) in [s.overhead, s.seek, s.rotation, s.transfer].into_iter().zip(want) {
        assert!(got.0.abs_diff(want.0) < 10, "{s:?}, expected {expected:?} us");
    }
}

fn first(profile: DriveProfile, sector: u64, sectors: u32) -> Service {
    Disk::new(profile).serve(Nanos(0), Op::Read, Sector(sector), sectors)
}

#[test]
fn capacity_and_zones_follow_from_the_mapping() {
    let p = small();
    assert_eq!(p.name(), "SMALL");
    // 30 cylinders · 4 heads · 100 less 10 spares, 30 · 4 · 80 less 1000 in front.
    assert_eq!(p.capacity_sectors(), 11_990 + 8_600);
    let zones: Vec<_> = p.zones().iter().map(|z| (z.first_sector, z.sectors_per_track)).collect();
    assert_eq!(zones, [(0, 100), (11_990, 80)]);
    assert_eq!((p.rpm(), p.read_ahead()), (Some(6000.0), (2, 32 * 1024)));
}

#[test]
fn the_profile_survives_writing() {
    let p = small();
    assert_eq!(DriveProfile::parse(&p.to_toml(), "x.toml").unwrap(), p, "{}", p.to_toml());
    let p = with("Bulk sector transfer time = 0.05", "Bulk sector transfer time = 0.099");
    assert_eq!(DriveProfile::parse(&p.to_toml(), "x.toml").unwrap(), p, "{}", p.to_toml());
}

#[test]
fn a_turn_of_ten_milliseconds() {
    // 0.3 ms into a turn of 100 sectors; a sector takes 0.1 ms to read, then 0.05 ms to cross the bus.
    assert_takes(first(small(), 0, 1), [300.0, 0.0, 9_700.0, 150.0]);
    // A slower medium: the last sector crosses after it was read.
    assert_takes(first(small(), 10, 3), [300.0, 0.0, 800.0, 350.0]);
    // A slower bus: all cross one by one after the first was read.
    let slow = with("Bulk sector transfer time = 0.05", "Bulk sector transfer time = 0.2");
    assert_takes(first(slow, 10, 3), [300.0, 0.0, 800.0, 700.0]);
}

#[test]
fn a_slipped_block_is_passed_over() {
    // Sector 5 lies in block 6.
    assert_takes(first(small(), 4, 1), [300.0, 0.0, 100.0, 150.0]);
    assert_takes(first(small(), 5, 1), [300.0, 0.0, 300.0, 150.0]);
    assert_takes(first(small(), 4, 2), [300.0, 0.0, 100.0, 350.0]);
}

#[test]
fn skews_at_tracks_and_cylinders() {
    // Sector 98 ends track 0. The next track begins 20 sectors later; switching heads takes 1.5 ms.
    assert_takes(first(small(), 98, 2), [300.0, 0.0, 9_600.0, 2_250.0]);
    // With a switch of 2.5 ms it is missed, and a turn is lost.
    let slow = with("Head switch time = 1.5", "Head switch time = 2.5");
    assert_takes(first(slow, 98, 2), [300.0, 0.0, 9_600.0, 12_250.0]);
    // Sector 398 ends cylinder 0, on head 3, three skews of 20 sectors further round: block 399 at
    // angle 59 of 100. From head 0 the switch takes 1.5 ms, so the head is there at angle 18.
    assert_takes(first(small(), 398, 2), [300.0, 1_500.0, 4_100.0, 3_250.0]);
}

#[test]
fn a_serpentine_drive_stays_on_its_head() {
    let p = with("mapping scheme = 0", "mapping scheme = 1");
    // At the cylinder's end head 3 stays: 1 ms for a cylinder, 3 ms of skew, as before.
    assert_takes(first(p.clone(), 398, 2), [300.0, 1_500.0, 4_100.0, 3_250.0]);
    // Cylinder 2 begins on head 0 again; cylinder 1 ends on it.
    let mut disk = Disk::new(p);
    disk.serve(Nanos(0), Op::Read, Sector(798), 1);
    let s = disk.serve(Nanos(1_000_000_000), Op::Read, Sector(799), 1);
    assert!(s.cache_hit, "{s:?}");
}

#[test]
fn a_remapped_sector_lies_elsewhere() {
    // Sector 249 would be block 250; it is in block 11,999: cylinder 29, 2 + 4 · 19/40 ms away.
    let s = first(small(), 249, 1);
    assert_eq!(s.seek, Nanos(3_900_000));
    let near = first(small(), 248, 1);
    assert_eq!(near.seek, Nanos(1_500_000));
    // In the midst of a read the arm goes there and comes back.
    let through = first(small(), 248, 3);
    assert!(through.transfer > Nanos(2 * 3_900_000) && through.transfer < Nanos(2 * 3_900_000 + 20_000_000));
}

#[test]
fn offset_and_management_area_of_a_zone() {
    // Block 1000: cylinder 33, head 0, place 40. Angle: 40 of offset, 12 tracks of 16, 3 cylinders of 8 more,
    // 40: 296 of 80, 56 of 80: 0.7 turns. The arm takes 2 + 4 · 23/40 ms; it comes at 4.6 ms.
    assert_takes(first(small(), 11_990, 1), [300.0, 4_300.0, 2_400.0, 175.0]);
}

#[test]
fn hits_and_the_command_before() {
    let mut disk = Disk::new(small());
    let second = Nanos(1_000_000_000);
    disk.serve(Nanos(0), Op::Read, Sector(10), 4);
    // Read ahead: 64 sectors beyond the read, in a segment of 64.
    let s = disk.serve(second, Op::Read, Sector(20), 4);
    assert!(s.cache_hit);
    assert_takes(s, [100.0, 0.0, 0.0, 200.0]);
    assert!(!disk.predict(second, Op::Read, Sector(10), 4).cache_hit);
    assert!(disk.predict(second, Op::Read, Sector(74), 4).cache_hit);
    assert!(!disk.predict(second, Op::Read, Sector(75), 4).cache_hit);
    // After a write, others apply; what was written can be read.
    let w = disk.serve(Nanos(2 * second.0), Op::Write, Sector(5000), 4);
    assert_takes(w, [500.0, 0.0, 0.0, 200.0]);
    let s = disk.serve(Nanos(3 * second.0), Op::Read, Sector(5000), 4);
    assert_takes(s, [200.0, 0.0, 0.0, 200.0]);
    // A partial hit: what is there crosses while the rest is read.
    let part = disk.predict(Nanos(4 * second.0), Op::Read, Sector(5002), 8);
    assert_eq!(part.overhead, Nanos(300_000));
    assert!(!part.cache_hit);
}

#[test]
fn a_write_is_done_in_the_background_and_the_next_waits() {
    let mut disk = Disk::new(small());
    let w = disk.serve(Nanos(0), Op::Write, Sector(11_990), 4);
    assert_eq!(w.end(), Nanos(700_000));
    // From 0.5 ms the arm takes 4.3 + 0.25 ms: angle 0.505; the sector begins at 0.7, four pass.
    let background = disk.activity(Nanos(1_000_000_000)).background;
    assert_eq!((background.count, background.seek), (1, Nanos(4_550_000)));
    assert!(background.rotation.0.abs_diff(1_950_000) < 10, "{background:?}");
    assert!(background.transfer.0.abs_diff(500_000) < 10);
    let done = 500_000 + 4_550_000 + 1_950_000 + 500_000u64;
    // Right behind it, a write waits for that.
    let again = disk.serve(w.end(), Op::Write, Sector(0), 1);
    assert!(again.overhead.0.abs_diff(done - 700_000 + 600_000) < 20, "{again:?}");
    // Without a write cache the host waits itself.
    let slow = with("Fast write level = 2", "Fast write level = 0");
    let w = Disk::new(slow).serve(Nanos(0), Op::Write, Sector(11_990), 4);
    assert_takes(w, [700.0, 4_550.0, 1_750.0, 500.0]);
}

#[test]
fn a_zero_latency_read_begins_where_it_lands() {
    let p = with("Immediate buffer read = 0", "Immediate buffer read = 1");
    // At 0.35 ms the head is in block 3 of sectors 0..5: it begins with block 4 and is done when block 3 has
    // come round, and crossed.
    let s = Disk::new(p.clone()).serve(Nanos(50_000), Op::Read, Sector(0), 5);
    assert_takes(s, [300.0, 0.0, 50.0, 10_050.0]);
    assert_takes(first(p, 10, 5), [300.0, 0.0, 700.0 + 100.0, 550.0]);
    assert_takes(first(small(), 0, 5), [300.0, 0.0, 9_700.0, 550.0]);
}

#[test]
fn what_passes_before_the_read_is_kept() {
    let p = with("Read any free blocks = 0", "Read any free blocks = 1");
    let mut disk = Disk::new(p.clone());
    disk.serve(Nanos(0), Op::Read, Sector(40), 4);
    // The head came to the track at block 3, and 40 lies in block 41. Of that, 64 sectors are kept;
    // right after the read nothing was pushed out yet.
    let now = disk.free_at();
    assert!(disk.predict(now, Op::Read, Sector(10), 4).cache_hit);
    assert!(!Disk::new(small()).predict(now, Op::Read, Sector(10), 4).cache_hit);
}

#[test]
fn a_whole_parameter_file_counts_its_buses() {
    let text = "
        # a system
        disksim_global G { Init Seed = 42, Stat definition file = statdefs }
        disksim_bus B0 { type = 1, Read block transfer time = 0.0, Write block transfer time = 0.0 }
        disksim_bus B1 { type = 1, Read block transfer time = 0.2, Write block transfer time = 0.3 }
        source small.diskspecs
        instantiate [ statfoo ] as Stats
        topology disksim_iodriver d0 [ disksim_bus b0 [ disksim_disk disk0 [] ] ]
    ";
    let p = import_of(text, MODEL, SEEK).unwrap();
    assert_takes(first(p.clone(), 10, 3), [300.0, 0.0, 800.0, 700.0]);
    let w = Disk::new(p.clone()).serve(Nanos(0), Op::Write, Sector(10), 2);
    assert_takes(w, [500.0, 0.0, 0.0, 600.0]);
    assert_eq!(DriveProfile::parse(&p.to_toml(), "x").unwrap(), p);
}

#[test]
fn seek_curves_of_every_kind() {
    let from = "Seek type = extracted,\n      Full seek curve = small.seek,";
    let at = |to: &str, cylinders: u64| {
        let p = with(from, to);
        assert_eq!(DriveProfile::parse(&p.to_toml(), "x").unwrap(), p);
        p.seek_curve().unwrap().millis(cylinders)
    };
    let three = "Single cylinder seek time = 1.0, Average seek time = 4.0, Full strobe seek time = 7.0,";
    assert_eq!(at("Seek type = constant, Constant seek time = 3.5,", 7), 3.5);
    let linear = format!("Seek type = linear, {three}");
    // One, a third (20 of 59) and all.
    assert_eq!([1, 20, 59].map(|d| at(&linear, d)), [1.0, 4.0, 7.0]);
    let curve = format!("Seek type = curve, {three}");
    assert_eq!(at(&curve, 1), 1.0);
    // 1 + b · 58 + c · √58 with c = (−10 + 60 − 35)/(3 · √59), b = (7 − 60 + 56)/(3 · 59).
    assert!(
        (at(&curve, 59) - (1.0 + 3.0 / 177.0 * 58.0 + 15.0 / (3.0 * 59f64.sqrt()) * 58f64.sqrt())).abs()
            < 1e-9
    );
    let hpl = "Seek type = hpl, HPL seek equation values = [ 30, 2.0, 0.5, 3.0, 0.1, 1.25 ],";
    assert_eq!([1, 4, 25, 50].map(|d| at(hpl, d)), [1.25, 3.0, 4.5, 8.0]);
    let ten = "Seek type = hplplus10, HPL seek equation values = [ 30, 2.0, 0.5, 3.0, 0.1, -1.0 ],
        First ten seek times = [ 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9 ],";
    assert_eq!([1, 10, 16, 40].map(|d| at(ten, d)), [1.0, 1.9, 4.0, 7.0]);
}

#[test]
fn faults_are_told_with_file_and_line() {
    let line_of = |text: &str, what: &str| text.lines().position(|l| l.contains(what)).unwrap() + 1;
    for (from, to, file, expected) in [
        ("Segment size (in blks) = 64,", "", "x.diskspecs", "disksim_disk without `Segment size (in blks)`"),
        ("Number of buffer segments = 2,", "Number of buffer segments = two,", "x.diskspecs", "is no number"),
        (
            "Buffer continuous read = 3,",
            "Buffer continuous read = 5,",
            "x.diskspecs",
            "is 5, expected 0 to 4",
        ),
        ("source small.model", "source other.model", "x.diskspecs", "other.model: no such file"),
        ("Full seek curve = small.seek", "Full seek curve = no.seek", "small.model", "no.seek: no such file"),
        ("Blocks per track = 80,", "Blocks per track = 7,", "small.model", "is 7, expected 8 to"),
        (
            "First cylinder number = 30,",
            "First cylinder number = 29,",
            "small.model",
            "begins at cylinder 29",
        ),
        ("slips = [ 5 ]", "slips = [ 99999999 ]", "small.model", "slip 99999999"),
        ("defects = [ 250, 11999 ]", "defects = [ 250 ]", "small.model", "expected pairs"),
        (
            "dm_layout_g1 {",
            "dm_layout_g4 {",
            "small.model",
            "dm_layout_g4 is not supported, expected dm_layout_g1",
        ),
        (
            "Rotation speed (in rpms) = 6000,",
            "Rotation speed (in rpms) = 1e999,",
            "small.model",
            "is no number",
        ),
        (
            "Access time type = trackSwitchPlusRotation,",
            "Access time type = constant,\n      Constant access time = 12.5,",
            "small.model",
            "this Access time type is not supported, expected trackSwitchPlusRotation",
        ),
        (
            "Access time type = trackSwitchPlusRotation,",
            "Access time type = averageRotation,",
            "small.model",
            "this Access time type is not supported",
        ),
        ("Head switch time = 1.5,", "Head switch time = ],", "small.model", "`]`, expected a value"),
    ] {
        let error = import_of(&SPECS.replace(from, to), &MODEL.replace(from, to), SEEK).unwrap_err();
        let ProfileError::Malformed { name, line, .. } = &error else { panic!("{error}") };
        assert!(error.to_string().contains(expected), "{from}: {error}");
        assert_eq!(name, file, "{from}: {error}");
        if !to.is_empty() && !to.contains('{') && file != "small.seek" && !expected.contains("begins") {
            let text = if file == "small.model" { MODEL } else { SPECS };
            // A zone's fault is told where the zone begins, in the lines before.
            let at = line_of(text, from);
            assert!(*line <= at && *line + 15 > at, "{from}: {error}");
        }
    }
    let error = import_of(SPECS, MODEL, "Seek distances measured: 2\n1, 1.0\n1, 2.0\n").unwrap_err();
    assert!(error.to_string().starts_with("drive profile small.seek, line 3"), "{error}");
    let falling =
        import_of(SPECS, MODEL, "Seek distances measured: 3\n1, 1.0\n9, 6.0\n29, 2.9\n").unwrap_err();
    assert!(falling.to_string().contains("expected longer times for longer distances"), "{falling}");
    assert!(import_of("", MODEL, SEEK).unwrap_err().to_string().contains("no disksim_disk block"));
    assert!(
        import_of(&SPECS.repeat(2), MODEL, SEEK).unwrap_err().to_string().contains("a second disksim_disk")
    );
    let mut itself = |_: &str| Ok("source again".to_owned());
    let error = DriveProfile::import_disksim("source again", "x", &mut itself).unwrap_err();
    assert!(error.to_string().contains("nested deeper"), "{error}");
    let deep = format!("disksim_disk D {{ Model = {}", "[ ".repeat(100_000));
    assert!(import_of(&deep, MODEL, SEEK).unwrap_err().to_string().contains("nested deeper"));
}

/// Blocks counted for nothing: a file of empty ones, named again and again, could have any memory.
#[test]
fn blocks_count_as_values_do() {
    let mut asked = 0;
    let mut files = |_: &str| {
        asked += 1;
        Ok("a{} ".repeat(100_000))
    };
    let error =
        DriveProfile::import_disksim(&"source more ".repeat(100), "x", &mut files).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 values"), "{error}");
    assert_eq!(asked, 11);
}

/// What is accepted is a drive: it is written, read back, and serves.
fn exercise(p: &DriveProfile) {
    assert_eq!(DriveProfile::parse(&p.to_toml(), "again").unwrap(), *p);
    let mut disk = Disk::new(p.clone());
    let mut head = Head::new(p.clone(), Knowledge::Full);
    let mut now = Nanos(0);
    for i in 0..40u64 {
        let sector = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 50 + 8);
        let op = if i % 3 == 0 { Op::Write } else { Op::Read };
        let sectors = (i as u32 % 7) * 30 + 1;
        let expected = head.predict(now, op, Sector(sector), sectors);
        assert!(expected.start >= now);
        let s = disk.serve(now, op, Sector(sector), sectors);
        assert!(s.start >= now);
        head.completed(op, Sector(sector), sectors, now, s.end());
        now = s.end() + Nanos(i * 1_000_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn no_text_makes_the_import_panic(
        which in 0usize..3,
        at in 0usize..4000,
        with in prop_oneof![
            "\\PC{0,6}",
            "[0-9.e-]{1,9}",
            Just("{".to_owned()), Just("}".to_owned()), Just("[".to_owned()), Just("]".to_owned()),
            Just("source small.model".to_owned()), Just("source small.diskspecs".to_owned()),
        ],
        cut in 0usize..30,
    ) {
        let mut texts = [SPECS, MODEL, SEEK].map(str::to_owned);
        let mut changed: Vec<char> = texts[which].chars().collect();
        let at = at % changed.len();
        let end = (at + cut).min(changed.len());
        changed.splice(at..end, with.chars());
        texts[which] = changed.into_iter().collect();
        if let Ok(p) = import_of(&texts[0], &texts[1], &texts[2]) {
            exercise(&p);
        }
    }

    #[test]
    fn other_numbers_make_other_drives(
        sparing in 0u32..=10,
        mapping in 0u32..=2,
        ahead in 0u32..=4,
        fast in 0u32..=2,
        bits in any::<u8>(),
        spares in 0u32..40,
    ) {
        let bit = |i: u8| u32::from(bits >> i & 1);
        let model = MODEL
            .replace("Sparing scheme used = 9", &format!("Sparing scheme used = {sparing}"))
            .replace("mapping scheme = 0", &format!("mapping scheme = {mapping}"))
            .replace("Number of spares = 10", &format!("Number of spares = {spares}"));
        let specs = SPECS
            .replace("continuous read = 3", &format!("continuous read = {ahead}"))
            .replace("Fast write level = 2", &format!("Fast write level = {fast}"))
            .replace("buffer read = 0", &format!("buffer read = {}", bit(0)))
            .replace("buffer write = 0", &format!("buffer write = {}", bit(1)))
            .replace("any free blocks = 0", &format!("any free blocks = {}", bit(2)))
            .replace("on idle hit = 0", &format!("on idle hit = {}", bit(3)))
            .replace("Extra write disconnect = 0", &format!("Extra write disconnect = {}", bit(4)))
            .replace("caching in buffer = 1", &format!("caching in buffer = {}", bit(5)))
            .replace("hits on write data = 1", &format!("hits on write data = {}", bit(6)));
        if let Ok(p) = import_of(&specs, &model, SEEK) {
            exercise(&p);
        }
    }
}
