//! Profiles: what is refused and where, what the built-in ones say of themselves.

use fs2_block::{Nanos, Op};
use fs2_disk::{DriveProfile, ProfileError};

fn profile(name: &str) -> DriveProfile {
    DriveProfile::builtin(name).unwrap()
}

fn ms(p: &DriveProfile, distance: u64) -> f64 {
    p.seek_time(distance, Op::Read).as_millis_f64()
}

#[test]
fn every_built_in_profile_parses_under_its_name_and_survives_writing() {
    for name in DriveProfile::names() {
        let p = profile(name);
        assert_eq!(p.name(), name);
        assert!(!p.about().is_empty());
        let text = p.to_toml();
        assert_eq!(DriveProfile::parse(&text, name).unwrap(), p, "{text}");
        assert!(DriveProfile::builtin_source(name).unwrap().contains('#'));
    }
    assert_eq!(DriveProfile::default(), profile("wd800-repaired"));
}

#[test]
fn other_seek_curves_survive_writing() {
    let text = profile("wd800-repaired").to_toml();
    let start = text.find("[disk.seek").unwrap();
    let end = text.find("[disk.cache]").unwrap();
    let table = "[disk.seek]\ntable = [[1, 0.5], [1000, 2.5], [2e6, 9]]\n\n";
    let p = DriveProfile::parse(&format!("{}{table}{}", &text[..start], &text[end..]), "table").unwrap();
    assert_eq!(DriveProfile::parse(&p.to_toml(), "again").unwrap(), p);
    assert_eq!(ms(&p, 0), 0.0);
    assert_eq!(ms(&p, 1), 0.5);
    assert!((ms(&p, 500) - (0.5 + 2.0 * 499.0 / 999.0)).abs() < 1e-6);
    // Beyond the last point the last line goes on: 6.5 ms in 1,999,000 sectors.
    assert!((ms(&p, 3_999_000) - (2.5 + 13.0)).abs() < 1e-6);
}

#[test]
fn the_repaired_curve_meets_itself_and_never_falls() {
    let p = profile("wd800-repaired");
    let below = ms(&p, 10_999_999);
    let above = ms(&p, 11_000_000);
    assert!((below - 5.155).abs() < 0.001, "{below}");
    assert!((above - 5.150).abs() < 0.001, "{above}");
    let mut last = 0.0;
    for x in (1..11_000_000).step_by(1000) {
        let t = ms(&p, x);
        assert!(t >= last, "falls at {x}: {last} to {t}");
        last = t;
    }
}

#[test]
fn the_literal_curve_is_cut_off_at_zero() {
    let p = profile("wd800-literal");
    // 8E-21·x³ − 2E-13·x² + 1E-6·x + 1.35 at 5·10⁶: 1.0 − 5.0 + 5.0 + 1.35.
    assert!((ms(&p, 5_000_000) - 2.35).abs() < 1e-6);
    assert!(ms(&p, 8_900_000) > 0.0);
    for x in [9_000_000, 10_000_000, 10_999_999] {
        assert_eq!(ms(&p, x), 0.0, "{x}");
    }
    assert!((ms(&p, 11_000_000) - 5.15).abs() < 1e-6);
}

#[test]
fn mean_random_seeks_against_the_sheets() {
    // The paper's curve disagrees with the paper's table (9.9 ms); this is what it says.
    let wd = profile("wd800-repaired").mean_seek().as_millis_f64();
    assert!((wd - 8.74).abs() < 0.01, "{wd}");
    // Fitted to 7.4 ms at a third of the stroke; the mean over distances is a little less.
    let hc = profile("nearline-hc310").mean_seek().as_millis_f64();
    assert!((hc / 7.4 - 1.0).abs() < 0.03, "{hc}");
    let write = profile("nearline-hc310").seek_time(1 << 30, Op::Write);
    let read = profile("nearline-hc310").seek_time(1 << 30, Op::Read);
    assert_eq!(write.since(read), Nanos(800_000));
    assert_eq!(profile("ssd-sata").mean_seek(), Nanos(0));
}

#[test]
fn fitting_extends_and_says_so() {
    let mut p = profile("wd800-repaired");
    assert_eq!(p.fit(1000), None);
    assert_eq!(p.capacity_sectors(), 156_301_488);
    let said = p.fit(200_000_000).unwrap();
    assert_eq!(p.capacity_sectors(), 200_000_000);
    assert_eq!(
        said.to_string(),
        "drive profile wd800-repaired describes 156301488 sectors; its last zone was extended to 200000000"
    );
}

#[test]
fn changed_profiles_are_profiles() {
    let nearline = profile("nearline-hc310");
    for p in [
        profile("wd800-repaired").with_layout_of(&nearline),
        nearline.clone().with_layout_of(&profile("wd800-repaired")),
        nearline.clone().with_rpm_scaled(1.0002).with_seek_scaled(0.9).with_read_ahead(0, 1),
        profile("ssd-sata").with_rpm_scaled(2.0).with_layout_of(&nearline).with_read_ahead(3, 4),
    ] {
        assert_eq!(DriveProfile::parse(&p.to_toml(), "changed").unwrap(), p);
    }
    assert_eq!(nearline.clone().with_seek_scaled(0.0).seek_time(1 << 30, Op::Read), Nanos(0));
    assert!((nearline.with_rpm_scaled(1.5).rpm().unwrap() - 10_800.0).abs() < 1e-9);
}

fn refused(text: &str) -> (usize, String) {
    match DriveProfile::parse(text, "x.toml") {
        Err(e @ ProfileError::Malformed { line, .. }) => (line, e.to_string()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// The default profile's text with one line replaced; the replaced line's number and the answer.
fn with_line(starts: &str, instead: &str) -> (usize, usize, String) {
    let text = profile("wd800-repaired").to_toml();
    let at = text.lines().position(|l| l.starts_with(starts)).unwrap();
    let changed: Vec<&str> =
        text.lines().enumerate().map(|(i, l)| if i == at { instead } else { l }).collect();
    let (line, message) = refused(&changed.join("\n"));
    (at + 1, line, message)
}

#[test]
fn each_fault_is_reported_with_its_line_and_what_was_expected() {
    for (starts, instead, expected) in [
        ("rpm", "rpm = 0", "rpm is 0, expected 600 to 100000"),
        ("rpm", "rpm = nan", "rpm is NaN"),
        ("rpm", "rpm = \"fast\"", "invalid type: string"),
        ("rpm", "rpms = 7200", "unknown field `rpms`"),
        ("track_skew", "track_skew_ms = 9.0", "track_skew_ms is 9, expected 0 to 8.3"),
        ("cylinder_skew", "cylinder_skew_ms = 0.5", "cylinder_skew_ms is 0.5, expected 1 to 8.3"),
        ("write_settle", "write_settle_ms = -1", "write_settle_ms is -1"),
        ("capacity", "capacity_sectors = -5", "capacity_sectors is -5, expected 1 to"),
        ("sectors_per_track = 992", "sectors_per_track = 4294967304", "expected 8 to 1048576"),
        ("first_sector = 31260297", "first_sector = 15630148", "more than the zone before it (15630148)"),
        ("first_sector = 0", "first_sector = 1", "the first zone begins at sector 1, expected 0"),
        ("first_sector = 140671339", "first_sector = 156301488", "first_sector is 156301488"),
        ("segments", "segments = 1025", "segments is 1025, expected 0 to 1024"),
        ("cubic", "cubic = [1, 2, inf, 4]", "coefficient inf"),
        ("cubic", "cubic = [1, 2, 3]", "invalid length 3"),
        ("seek_w", "seek_w = 1e9", "seek_w is 1000000000, expected 0 to 1000"),
    ] {
        let (at, line, message) = with_line(starts, instead);
        assert_eq!(line, at, "{instead}: {message}");
        assert!(message.starts_with(&format!("drive profile x.toml, line {at}, column ")), "{message}");
        assert!(message.contains(expected), "{instead}: {message}");
    }
}

#[test]
fn an_arm_that_takes_for_ever_is_refused() {
    let text = profile("wd800-repaired").to_toml();
    let linear = text.lines().find(|l| l.starts_with("linear")).unwrap();
    let cubic = text.lines().find(|l| l.starts_with("cubic")).unwrap();
    for (line, instead) in [
        (linear, "linear = [1e6, 4.16]"),
        (linear, "linear = [0, 10001]"),
        // Between the ends, which are within it.
        (cubic, "cubic = [0, -1e-6, 11, 0]"),
        (cubic, "cubic = [1e6, 0, 0, 0]"),
        (cubic, "cubic = [0, 0, 0, 10001]"),
    ] {
        let message = refused(&text.replace(line, instead)).1;
        assert!(message.contains("a seek over ") && message.contains("expected at most 10000"), "{message}");
    }
    DriveProfile::parse(&text.replace(linear, "linear = [0, 10000]"), "x.toml").unwrap();
}

/// Found: a table whose times were in the wrong order made the far end of the disk the nearest place.
#[test]
fn an_arm_that_is_sooner_the_farther_it_goes_is_refused() {
    let text = profile("wd800-repaired").to_toml();
    let (start, end) = (text.find("[disk.seek").unwrap(), text.find("[disk.cache]").unwrap());
    let with = |curve: &str| format!("{}[disk.seek{curve}\n\n{}", &text[..start], &text[end..]);
    let (line, message) = refused(&with("]\ntable = [[1, 1], [1e6, 9], [1e8, 4.4]]"));
    assert_eq!(line, text[..start].lines().count() + 1, "{message}");
    assert!(
        message.contains(" takes 8.9") && message.contains("from end to end, over 156301488, only "),
        "{message}"
    );
    for curve in [
        // The last line goes on.
        "]\ntable = [[1, 1], [1e6, 9], [1e7, 8]]",
        ".cubic_linear]\ncubic = [0, 0, 0, 1]\nknee_sectors = 10\nlinear = [-1e-7, 16]",
    ] {
        let message = refused(&with(curve)).1;
        assert!(message.contains("expected longer times for longer distances"), "{message}");
    }
    // What is measured goes up and down, and more so where there is hardly an arm to be seen.
    for points in [
        "[1, 2], [10, 1.1], [1e6, 9], [2e6, 3], [1e8, 6.5], [1.5e8, 6]",
        "[1, 0.1], [1e6, 0.9], [1e8, 0.1], [2e8, 0.1]",
    ] {
        DriveProfile::parse(&with(&format!("]\ntable = [{points}]")), "x.toml").unwrap();
    }
}

/// They were taken, and the drive read on for a segment.
#[test]
fn reading_on_to_the_end_of_a_track_needs_tracks() {
    let text = profile("wd800-repaired").to_toml();
    let with = |kind: &str| {
        text.replace("segment_kib = 256", &format!("segment_kib = 256\nread_ahead = \"{kind}\""))
    };
    for kind in ["track", "cylinder", "next-track"] {
        let (line, message) = refused(&with(kind));
        assert_eq!(with(kind).lines().nth(line - 1), Some(&*format!("read_ahead = \"{kind}\"")), "{message}");
        assert!(
            message.contains(&format!("read_ahead {kind} is for a drive with disk.platter")),
            "{message}"
        );
    }
    for kind in ["segment", "none"] {
        DriveProfile::parse(&with(kind), "x.toml").unwrap();
    }
}

#[test]
fn faults_without_a_place_of_their_own() {
    assert!(refused("").1.contains("missing field"));
    assert!(refused("\n\nname = ").1.contains("line 3"));
    let text = profile("wd800-repaired").to_toml();
    let both = format!("{text}\n[flash]\nread_latency_us=1\nwrite_latency_us=1\nread_mb_s=1\nwrite_mb_s=1\n");
    assert!(refused(&both).1.contains("both [disk] and [flash]"));
    let two = text.replace(
        "[disk.cache]",
        "[disk.seek.sqrt_linear]\nbase_ms=1\nroot_ms=1\nknee_sectors=1\ntail_ms_per_sector=0\n\n[disk.cache]",
    );
    assert!(refused(&two).1.contains("exactly one of cubic_linear, sqrt_linear and table"));
    let unknown = DriveProfile::builtin("wd801").unwrap_err().to_string();
    assert_eq!(
        unknown,
        "no built-in drive profile is called `wd801`; there are wd800-repaired, wd800-literal, \
         cheetah-15k5, ultrastar-15k450, nearline-hc310, exos-x24, laptop-5400, ssd-sata, ssd-nvme"
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(at in 0usize..4000, with in "\\PC{0,8}", cut in 0usize..4000) {
        let text = profile("nearline-hc310").to_toml();
        let mut changed: Vec<char> = text.chars().collect();
        let at = at % changed.len();
        let end = (at + cut % 40).min(changed.len());
        changed.splice(at..end, with.chars());
        let changed: String = changed.into_iter().collect();
        if let Ok(p) = DriveProfile::parse(&changed, "x") {
            // What is accepted can be written and read back.
            proptest::prop_assert_eq!(DriveProfile::parse(&p.to_toml(), "y").unwrap(), p);
        }
    }
}

/// `docs/calibration.md` says what each key of a profile means.
#[test]
fn the_page_tells_of_every_key() {
    let page = include_str!("../../../../docs/calibration.md");
    for name in DriveProfile::names() {
        let written = profile(name)
            .with_write_cache(64, 1.0)
            .with_remapped(1, 1)
            .with_standby_after(Some(1.0))
            .to_toml();
        let table = |line: &str| line.trim_matches(['[', ']']).to_owned();
        let mut within = String::new();
        for line in written.lines() {
            if line.starts_with('[') {
                within = table(line) + ".";
            } else if let Some((key, _)) = line.split_once(" = ") {
                assert!(page.contains(&format!("| `{within}{key}` |")), "{within}{key} of {name}");
            }
        }
    }
}
