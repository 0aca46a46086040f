//! docs/json.md tells of every field that programs write as JSON, and of no other. Needs e2fsprogs, no root.

use std::collections::BTreeSet;

use fs2_control::{DetachInfo, HotRegion, Status};
use serde_json::Value;

use crate::mkfs2_support::*;

const PAGE: &str = include_str!("../../../docs/json.md");

/// The fields of a value's objects: `a.b`, and `a[].b` of each entry of a list.
fn fields(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(all) => {
            for (name, value) in all {
                let dot = if path.is_empty() { "" } else { "." };
                fields(value, &format!("{path}{dot}{name}"), out);
            }
        }
        Value::Array(all) if all.iter().any(Value::is_object) => {
            all.iter().for_each(|value| fields(value, &format!("{path}[]"), out));
        }
        _ => {
            out.insert(path.to_owned());
        }
    }
}

/// Whether a field is one that the page tells of; `*` is any name.
fn is_told(told: &str, field: &str) -> bool {
    let (told, field): (Vec<_>, Vec<_>) = (told.split('.').collect(), field.split('.').collect());
    told.len() == field.len() && told.iter().zip(field).all(|(t, f)| *t == f || *t == "*")
}

/// A section of the page tells of the fields of these values, each with its unit, and of no others.
#[track_caller]
fn tells_of(section: &str, values: &[Value]) {
    let begin = PAGE.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let text = &PAGE[begin + 4..];
    let text = &text[..text.find("\n## ").unwrap_or(text.len())];
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|l| l.starts_with("| `"))
        .map(|l| l.split('|').map(str::trim).collect())
        .collect();
    let told: Vec<&str> = rows.iter().map(|r| r[1].trim_matches('`')).collect();
    assert!(rows.iter().all(|r| r.len() == 5 && r[2..4].iter().all(|cell| !cell.is_empty())), "{rows:?}");
    let mut found = BTreeSet::new();
    values.iter().for_each(|value| fields(value, "", &mut found));
    for field in &found {
        assert_eq!(told.iter().filter(|t| is_told(t, field)).count(), 1, "{section}: {field}");
    }
    for told in told {
        assert!(found.iter().any(|field| is_told(told, field)), "{section}: {told} is not written");
    }
}

#[test]
fn what_a_volume_is_doing() {
    let status = Status {
        hot_region: Some(HotRegion { first_block: 1, last_block: 2 }),
        detach: Some(DetachInfo::default()),
        ..Status::default()
    };
    let mut listed = status.to_json();
    (listed["dir"], listed["error"]) = ("/srv".into(), Value::Null);
    tells_of("`fs2 status --json DIR`", &[listed]);
}

#[test]
fn what_is_made_checked_and_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    image(dir, "v", "-b 1024", "24M");
    let errors: Vec<Value> =
        [MKFS2, CHKFS2].map(|program| run(dir, program, &["--json", "nosuch"]).json()).into();
    tells_of("Errors", &errors);
    tells_of("`mkfs2 --json DEVICE`", &[ok(dir, MKFS2, &["--json", "v"]).json()]);
    let copy = ["replicate", "v", "--blocks", "100-101", "--near", "9000", "--json"];
    tells_of("`mkfs2 replicate --json DEVICE`", &[ok(dir, MKFS2, &copy).json()]);
    tells_of("`chkfs2 --json DEVICE`", &[ok(dir, CHKFS2, &["-f", "-p", "--json", "v"]).json()]);
    tells_of("`mkfs2 --undo --json DEVICE`", &[ok(dir, MKFS2, &["--undo", "--json", "v"]).json()]);
}

#[test]
fn what_is_in_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("a.txt");
    std::fs::write(&trace, "0.0 D R 0 8 7 r\n0.1 C R 0 8 7 r\n1.0 D W 8 8 7 w\n1.1 C W 8 8 7 w\n").unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = ["fs2-replay", "info", "--json", trace.to_str().unwrap()].map(Into::into);
    assert_eq!(fs2_tools::replay::run(args, &mut out, &mut err), 0);
    tells_of("`fs2-replay info --json TRACE`", &[serde_json::from_slice(&out).unwrap()]);
}

/// Of a program called in this process.
fn said(args: &[&str]) -> Value {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["fs2-replay"].iter().chain(args).map(Into::into);
    let code = fs2_tools::replay::run(all, &mut out, &mut err);
    assert_eq!(code, 0, "{}", String::from_utf8_lossy(&err));
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn what_replays_come_to() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // More than half of the reads lie a sector off the blocks.
    let trace = put("a.txt", "0.0 D R 1 8 7 r\n0.1 D R 801 8 7 r\n0.2 D R 8001 9 7 r\n0.3 D W 9 8 7 w\n");
    let run = said(&["run", "--json", "--runs", "1", "--policy", "none,fs2", "--without", "trails", &trace]);
    tells_of("`fs2-replay run --json TRACE`", &[run]);
    let disk = put("disk", &"x".repeat(8 << 20));
    tells_of(
        "`fs2-replay live --json TRACE DEVICE`",
        &[said(&["live", "--json", "--buffered", &trace, &disk])],
    );
    let measured = put("m.trace", "R Miss 10 3 1700.0 1000000.0\nR Hit 20 4 550.0 0.0\n");
    let validate = said(&["validate", "--json", "wd800-repaired", &measured]);
    assert!(validate["groups"]["writes"].is_null());
    tells_of("`fs2-replay validate --json PROFILE TRACE`", &[validate]);
    let small = crate::replay_paper::small(dir.path());
    let paper = said(&["paper", "--json", "--params", &small, "--workload", "cvs", "--runs", "1"]);
    tells_of("`fs2-replay paper --json`", &[paper]);
}

#[test]
fn what_a_drive_is_measured_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk");
    std::fs::File::create(&image).unwrap().set_len(64 << 30).unwrap();
    let said = |more: &[&str]| {
        let mut fs2 = std::process::Command::new(env!("CARGO_BIN_EXE_fs2"));
        fs2.arg("calibrate").arg(&image).args(["--drive", "cheetah-15k5", "--seconds", "5", "--json"]);
        let done = fs2.args(more).output().unwrap();
        serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("{e}: {done:?}"))
    };
    tells_of("`fs2 calibrate --json DEVICE`", &[said(&[])]);
    tells_of("`fs2 calibrate --check PROFILE --json DEVICE`", &[said(&["--check", "cheetah-15k5"])]);
}

#[test]
fn what_the_demo_measured() {
    use fs2_tools::report::{AddressSeries, DemoReport, RunRow};
    let report = DemoReport {
        runs: vec![RunRow::default()],
        addresses: vec![AddressSeries { points: vec![(0.5, 7)], ..AddressSeries::default() }],
        ..DemoReport::default()
    };
    tells_of("`fs2 demo --json`", &[serde_json::to_value(report).unwrap()]);
}
