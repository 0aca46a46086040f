//! `fs2-replay profile` and `validate`: what they print and what they refuse.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fs2_disk::DriveProfile;

/// Exit code, standard output, standard error.
fn replay(args: &[&str]) -> (i32, String, String) {
    let args = std::iter::once("fs2-replay").chain(args.iter().copied()).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = fs2_tools::replay::run(args, &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// The made-up drive of fs2-disk's tests.
fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/fs2-disk/tests/drives/small.diskspecs")
}

/// Two reads that take 1450 and 300 us in the model: 300 us of overhead, 800 of rotation, 350 of transfer
/// of three sectors, and then a hit. Each is said to have been measured 250 us longer.
const TRACE: &str = "R Miss 10 3 1700.0 1000000.0\nR Hit 20 4 550.0 0.0\n";

#[test]
fn profiles_are_listed_and_shown() {
    let (code, out, _) = replay(&["profile", "list"]);
    assert_eq!(code, 0);
    for name in DriveProfile::names() {
        assert!(out.lines().any(|l| l.starts_with(name)), "{name}");
        let (code, shown, _) = replay(&["profile", "show", name]);
        assert_eq!((code, shown.as_str()), (0, DriveProfile::builtin_source(name).unwrap()));
    }
    let (code, _, err) = replay(&["profile", "show", "no-such-drive"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("fs2-replay: no-such-drive: ") && err.contains("wd800-repaired"), "{err}");
}

/// A name may be of anything, and such files are kept whole: memory ran out.
#[test]
fn what_has_no_end_is_no_profile_and_no_measurement() {
    let endless = "/dev/zero";
    for (args, limit) in [
        (&["profile", "show", endless][..], 1),
        (&["profile", "import", endless], 16),
        (&["validate", endless, endless], 1),
        (&["validate", "wd800-repaired", endless], 256),
        (&["run", endless, "--free-map", endless], 256),
        (&["sweep", endless, "--out", "none", "--dry-run"], 1),
        (&["paper", "--params", endless], 1),
    ] {
        let (code, _, err) = replay(args);
        assert!(code == 1 && err.contains(&format!("more than {limit} MiB")), "{args:?}: {err}");
    }
}

#[test]
fn an_imported_drive_is_a_profile_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let (code, toml, err) = replay(&["profile", "import", small().to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""));
    let file = dir.path().join("small.toml");
    std::fs::write(&file, &toml).unwrap();
    let (code, again, _) = replay(&["profile", "show", file.to_str().unwrap()]);
    assert_eq!((code, again), (0, toml));
    // A file that names what is not there.
    let broken = dir.path().join("broken.diskspecs");
    std::fs::write(&broken, "\n\n  source gone.model\n").unwrap();
    let (code, _, err) = replay(&["profile", "import", broken.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(err.contains("broken.diskspecs, line 3, column 10: gone.model: No such file"), "{err}");
}

/// Found: its engine was told its true zones, and nothing said so.
#[test]
fn of_an_imported_drive_nothing_else_is_believed_and_that_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("a.txt");
    std::fs::write(&trace, "0.0 D R 8 8 7 a\n").unwrap();
    let run = |drive: &str, belief: &str| {
        let args = [
            "run",
            trace.to_str().unwrap(),
            "--runs",
            "1",
            "--policy",
            "none",
            "--drive",
            drive,
            "--belief",
            belief,
        ];
        let (code, _, err) = replay(&args);
        assert_eq!(code, 0, "{err}");
        err.contains("its own mapping")
    };
    let small = small();
    let small = small.to_str().unwrap();
    assert!(run(small, "mismatched") && !run(small, "equal") && !run("wd800-repaired", "mismatched"));
}

#[test]
fn validation_of_a_drive_always_a_quarter_millisecond_off() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, packed) = (dir.path().join("t"), dir.path().join("t.gz"));
    std::fs::write(&plain, TRACE).unwrap();
    let mut gzip = flate2::read::GzEncoder::new(TRACE.as_bytes(), flate2::Compression::fast());
    std::io::copy(&mut gzip, &mut std::fs::File::create(&packed).unwrap()).unwrap();
    let each = dir.path().join("each.csv");
    let specs = small();
    for trace in [&plain, &packed] {
        let (code, out, err) = replay(&[
            "validate",
            specs.to_str().unwrap(),
            trace.to_str().unwrap(),
            "--json",
            "--each",
            each.to_str().unwrap(),
        ]);
        assert_eq!(code, 0, "{err}");
        let said: serde_json::Value = serde_json::from_str(&out).unwrap();
        let is = |path: &str, want: f64| {
            let got = said.pointer(path).and_then(serde_json::Value::as_f64).unwrap();
            assert!((got - want).abs() < 1e-4, "{path}: {got}, expected {want}");
        };
        is("/demerit_ms", 0.25);
        is("/requests", 2.0);
        is("/cache_hits", 1.0);
        is("/media/accesses", 1.0);
        is("/media/seek_ms", 0.0);
        is("/media/rotation_ms", 0.8);
        is("/media/transfer_ms", 0.3);
        is("/groups/reads/measured/mean_ms", 1.125);
        is("/groups/all/modelled/percentiles_ms/p50", 0.3);
        is("/groups/all/modelled/percentiles_ms/p99", 1.45);
        assert!(said.pointer("/groups/writes").unwrap().is_null());
    }
    let lines = std::fs::read_to_string(&each).unwrap();
    assert!(lines.lines().nth(1).unwrap().starts_with("R,10,3,1.7,1.4"), "{lines}");
    let (code, out, _) = replay(&["validate", specs.to_str().unwrap(), plain.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(out.contains("\ndemerit 0.250 ms\n"), "{out}");
    assert!(out.contains("all, measured"), "{out}");
}

#[test]
fn a_malformed_trace_is_told_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t");
    for (text, said) in [
        ("R Hit 1 1 1 1\nR Hit 1\n", "t: line 2: no count"),
        ("", "t: no request"),
        ("R Hit 1 1 -1 1\n", "t: line 1: `-1`, expected microseconds"),
    ] {
        std::fs::write(&trace, text).unwrap();
        let (code, out, err) = replay(&["validate", "wd800-repaired", trace.to_str().unwrap()]);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains(said), "{err}");
    }
    let (code, _, err) = replay(&["validate", "wd800-repaired", "/no/such/trace"]);
    assert_eq!(code, 1);
    assert!(err.contains("/no/such/trace: No such file"), "{err}");
    assert_eq!(replay(&["validate"]).0, 2);
}

/// `info` read them and this did not.
#[test]
fn a_mark_and_comments_are_no_requests() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t");
    std::fs::write(
        &trace,
        "\u{feff}# measured\nR Miss 10 3 1700.0 100.0\n  # again\nR Miss 20 3 1700.0 0.0\n",
    )
    .unwrap();
    for args in [&["validate", "wd800-repaired"][..], &["info"]] {
        let (code, out, err) = replay(&[args, &[trace.to_str().unwrap(), "--json"]].concat());
        assert_eq!(code, 0, "{args:?}: {err}");
        let said: serde_json::Value = serde_json::from_str(&out).unwrap();
        let requests = said.pointer("/summary/requests").or(said.get("requests"));
        assert_eq!(requests, Some(&2.into()), "{out}");
    }
    // The mark is the text's, not a line's.
    std::fs::write(&trace, "R Miss 10 3 1700.0 100.0\n\u{feff}R Miss 20 3 1700.0 0.0\n").unwrap();
    let (code, _, err) = replay(&["validate", "wd800-repaired", trace.to_str().unwrap()]);
    assert!(code == 1 && err.contains("t: line 2: "), "{err}");
}

#[test]
fn a_drive_that_is_extended_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t");
    std::fs::write(&trace, "R Miss 10 3 1700.0 100.0\nR Miss 300000000 3 1700.0 0.0\n").unwrap();
    let args = ["validate", "wd800-repaired", trace.to_str().unwrap()];
    let (code, out, err) = replay(&args);
    assert!(code == 0 && out.contains("extended from 74.5 GiB to 143.1 GiB"), "{out}{err}");
    let (_, out, _) = replay(&[&args[..], &["--json"]].concat());
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&said["extended_from_sectors"], &said["beyond_the_drive"]), (&156_301_488.into(), &1.into()));
}

/// Found: `fs2-replay ... | head` ended with an error about a broken pipe.
#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    use std::os::unix::process::ExitStatusExt;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_fs2-replay"))
        .args(["profile", "show", "exos-x24"])
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.signal(), Some(nix::sys::signal::Signal::SIGPIPE as i32), "{:?}", done.status);
    assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
}
