//! The made-up volume and the traces of the paper's evaluation: pinned, and what they must hold.

use fs2_block::Op;
use fs2_disk::DriveProfile;
use fs2_sim::paper::{DEFAULT_PARAMS, Paper, Params, Workload};

/// The built-in parameters with some numbers replaced: `name = value`, each of which must be there.
fn params(replaced: &[(&str, &str)]) -> Params {
    let mut text = DEFAULT_PARAMS.to_owned();
    for (from, to) in replaced {
        assert!(text.contains(from), "no '{from}'");
        text = text.replace(from, to);
    }
    Params::parse(&text).expect("parameters that make sense")
}

/// A tenth of the volume, a twentieth of its past, and workloads to match.
fn small() -> Params {
    params(&[
        ("groups = 624 ", "groups = 64 "),
        ("cycles = 10 ", "cycles = 3 "),
        ("directories = 889", "directories = 40"),
        ("files = 17000", "files = 800"),
        ("items = 10000", "items = 500"),
        ("seconds = 1200.0", "seconds = 60.0"),
        ("files = 22000", "files = 2200"),
        ("files = 6000", "files = 300"),
        ("seconds = 900.0", "seconds = 60.0"),
        ("customers = 288000", "customers = 20000"),
        ("mib = 150", "mib = 15"),
    ])
}

fn drive() -> DriveProfile {
    DriveProfile::builtin("wd800-repaired").expect("built in")
}

#[test]
fn the_layout_is_the_same_on_every_machine() {
    let paper = Paper::build(&small(), &Workload::ALL).expect("room for all");
    let l = paper.layout();
    // Whoever changes the layout changes every figure of the evaluation: measure them again.
    assert_eq!(l.free * 1000 / l.usable, 470);
    let layout = (l.free, l.free_runs, l.files, l.extents, l.digest);
    assert_eq!(layout, (970_389, 14_602, 11_292, 13_197, 1_306_800_741_390_076_963));
    assert_eq!(paper.free_map().free.len(), l.free);
}

/// The whole of it: some seconds with optimisation, half a minute without.
#[test]
fn the_paper_s_volume_is_47_per_cent_free() {
    let paper = Paper::build(&Params::default(), &Workload::ALL).expect("room for all");
    let l = paper.layout();
    assert_eq!(l.free * 1000 / l.usable, 470);
    let layout = (l.free_runs, l.files, l.extents, l.digest);
    assert_eq!(layout, (187_747, 98_972, 118_982, 0x5c95_6021_b75f_5b50));
}

#[test]
fn runs_are_repeated_by_number_and_differ_where_users_do() {
    let paper = Paper::build(&small(), &Workload::ALL).expect("room for all");
    let map = paper.free_map();
    for w in Workload::ALL {
        let first = paper.run(w, 1, &drive());
        let again = paper.run(w, 1, &drive());
        assert_eq!(first.requests, again.requests, "{}", w.name());
        assert!(first.requests.len() > 100, "{}: {}", w.name(), first.requests.len());
        let second = paper.run(w, 2, &drive());
        assert_eq!(second.requests == first.requests, w == Workload::Cvs, "{}", w.name());
        let end = map.bytes();
        let mut last = fs2_block::Nanos(0);
        for r in first.requests.iter().chain(&first.tail) {
            assert!(r.at >= last && r.service.is_some(), "{}: {r:?}", w.name());
            last = r.at;
            assert!(!r.extent.is_empty() && r.extent.end() <= end);
            // What is read or written is in use: files, or metadata.
            for b in r.extent.blocks_covered(map.block_size).iter() {
                assert!(!map.free.contains(b.0), "{}: {b} is free", w.name());
            }
        }
        // The cache holds everything: nothing is read twice within a run.
        let mut seen = std::collections::HashSet::new();
        for r in first.requests.iter().filter(|r| r.op == Op::Read) {
            for b in r.extent.blocks_covered(map.block_size).iter() {
                assert!(seen.insert(b), "{}: {b} is read twice", w.name());
            }
        }
        assert!(first.tail.iter().all(|r| r.op == Op::Write));
    }
}

#[test]
fn nothing_is_written_but_what_changes() {
    let quiet = params(&[("groups = 624 ", "groups = 64 "), ("cycles = 10 ", "cycles = 0 ")]);
    let paper = Paper::build(&quiet, &[Workload::X]).expect("room");
    let run = paper.run(Workload::X, 1, &drive());
    assert!(run.requests.iter().chain(&run.tail).all(|r| r.op == Op::Read));
    let times = params(&[
        ("access_times = false", "access_times = true"),
        ("groups = 624 ", "groups = 64 "),
        ("cycles = 10 ", "cycles = 0 "),
    ]);
    let paper = Paper::build(&times, &[Workload::X]).expect("room");
    let run = paper.run(Workload::X, 1, &drive());
    assert!(run.requests.iter().chain(&run.tail).any(|r| r.op == Op::Write));
    // One that was not laid out asks for nothing.
    assert!(paper.run(Workload::Cvs, 1, &drive()).requests.is_empty());
    assert!(paper.extents(Workload::Cvs).is_empty() && !paper.extents(Workload::X).is_empty());
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let wrong = |from: &str, to: &str| {
        assert!(DEFAULT_PARAMS.contains(from), "no '{from}'");
        Params::parse(&DEFAULT_PARAMS.replace(from, to)).expect_err(to).to_string()
    };
    assert!(wrong("groups = 624", "groups = 4000000").contains("volume.groups is 4000000"));
    assert!(wrong("fill_to = 0.80", "fill_to = nan").contains("ageing.fill_to"));
    assert!(wrong("used_in_the_end = 0.53", "used_in_the_end = -1.0").contains("used_in_the_end"));
    assert!(wrong("inactive_off_least_s = 1.0", "inactive_off_least_s = 0.0").contains("inactive_off"));
    assert!(wrong("name = \"author\"", "name = \"writer\"").contains("no table author"));
    assert!(wrong("seed = 2005", "sead = 2005").contains("sead"));
    assert!(wrong("percent = 20.0", "percent = 50.0").contains("percent of all"));
    // A volume that is too small for the files is an error, not a panic.
    let tiny = params(&[
        ("groups = 624 ", "groups = 16 "),
        ("cycles = 10 ", "cycles = 1 "),
        ("mib = 150", "mib = 4000"),
    ]);
    assert!(Paper::build(&tiny, &[Workload::Tpcw]).is_err());
}
