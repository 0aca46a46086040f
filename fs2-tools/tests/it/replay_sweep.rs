//! `fs2-replay sweep`: shards, stops, what is put together.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Exit code, standard output, standard error.
fn sweep(args: &[&str]) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["fs2-replay", "sweep"].iter().chain(args).map(|a| (*a).into());
    let code = fs2_tools::replay::run(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (code, text(out), text(err))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name in text")
}

/// Two places far apart read in turns, `each` times a round.
fn write_trace(path: &Path, each: u32) {
    let mut text = String::new();
    for i in 0..2 * each {
        let at = f64::from(i / each) * 50.0 + f64::from(i % each) * 0.01;
        let sector = (i % 2) * 9_000_000 + 2_000_000 + i % each / 2 * 64;
        text += &format!("{at:.6} D R {sector} 32 7 reader\n");
    }
    std::fs::write(path, text).expect("the scratch directory can be written");
}

/// Two traces, two drives, two policies: eight cells.
fn write_plan(dir: &Path) -> PathBuf {
    write_trace(&dir.join("a.txt"), 400);
    write_trace(&dir.join("b,\"c.txt"), 100);
    let plan = dir.join("plan.toml");
    let text = "
        options = { closed-loop = true, idle-between = '30s' }
        [axes]
        policy = ['none', 'fs2']
        drive = ['wd800-repaired', 'nearline-hc310']
        [[trace]]
        name = 'a, split'
        files = ['a.txt']
        split = [0, 50]
        [[trace]]
        name = 'b'
        files = ['b,\"c.txt']
        runs = 2
    ";
    std::fs::write(&plan, text).expect("the scratch directory can be written");
    plan
}

/// What a merge left in a directory: CSV and JSON lines.
fn merged(dir: &Path) -> [String; 2] {
    ["sweep.csv", "sweep.jsonl"].map(|name| std::fs::read_to_string(dir.join(name)).expect(name))
}

#[test]
fn two_shards_are_one_run() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let plan = write_plan(dir.path());
    let plan = text(&plan);
    let [whole, one, two] = ["whole", "one", "two"].map(|d| dir.path().join(d));
    let (code, out, err) = sweep(&[plan, "--out", text(&whole), "--jobs", "1"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("sweep.csv") && err.contains("8 of 8: b drive=nearline-hc310 policy=fs2\n"),
        "{out}{err}"
    );
    // As on two machines: other directories, more threads.
    for (i, at) in [("1/2", &one), ("2/2", &two)] {
        let (code, out, err) = sweep(&[plan, "--out", text(at), "--shard", i, "--jobs", "3"]);
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        assert!(err.contains("4 of 4") && !err.contains("5 of"), "{err}");
    }
    let (code, _, err) = sweep(&[plan, "--out", text(&one), "--merge"]);
    assert!(code == 1 && err.contains("4 of 8 cells are not there yet: a, split"), "{err}");
    let (code, _, err) = sweep(&[plan, "--out", text(&one), "--merge", "--partial"]);
    assert!(code == 0 && err.contains("4 of 8"), "{err}");
    std::fs::copy(two.join("shard-2-of-2.jsonl"), one.join("shard-2-of-2.jsonl")).expect("copied");
    // The same once more is no contradiction.
    std::fs::copy(one.join("shard-1-of-2.jsonl"), one.join("shard-1-of-3.jsonl")).expect("copied");
    let (code, _, err) = sweep(&[plan, "--out", text(&one), "--merge"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(merged(&one) == merged(&whole), "shards differ from one run");

    let [csv, jsonl] = merged(&whole);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("trace,drive,scheduler,depth,belief,pace,space_percent,stretch,policy,pass,")
    );
    // Eight cells of two runs and a single pass each.
    assert_eq!(lines.len(), 1 + 8 * 3);
    let columns = lines[0].split(',').count();
    for line in &lines[1..] {
        // The one comma that is no border stands in quotes.
        assert_eq!(line.replace("\"a, split\"", "a").split(',').count(), columns, "{line}");
    }
    let cells: Vec<Value> = jsonl.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(cells.len(), 8);
    // The last axis changes fastest: drive, then policy.
    let [none, fs2] = [&cells[0], &cells[1]].map(|c| &c["result"]["policies"][0]);
    assert_eq!((&none["name"], &fs2["name"]), (&"none".into(), &"fs2".into()));
    let read = |p: &Value| p["runs"][1]["t_a_reads_ms"].as_f64().expect("a number");
    let bound = cells[1]["result"]["bounds"]["runs"][1]["b2_order"].as_f64().expect("a number");
    let want = 100.0 * (read(none) - read(fs2)) / (read(none) - bound);
    let share = fs2["runs"][1]["share_percent"].as_f64().expect("filled in from the other cell");
    assert!((share - want).abs() < 0.01 && share > 50.0, "{share} against {want}");
    assert!(!jsonl.contains(text(dir.path())) && !jsonl.contains("memory"), "nothing of this machine");
    assert_eq!(cells[0]["result"]["options"]["drive"], "wd800-repaired");
}

/// Found: a shard that was run before its trace was another one was put together with those after it, shares between the two and all.
#[test]
fn what_was_made_from_other_files_is_not_put_together() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let plan = dir.path().join("plan.toml");
    let out = dir.path().join("out");
    let plan_text = "
        options = { closed-loop = true, runs = 1 }
        [axes]
        policy = ['none', 'fs2']
        drive = ['mine.toml', 'nearline-hc310']
        [[trace]]
        name = 'a'
        files = ['a.txt']
    ";
    std::fs::write(&plan, plan_text).expect("written");
    let mine = fs2_disk::DriveProfile::builtin_source("wd800-repaired").expect("built in");
    let put = |each, drive: &str| {
        write_trace(&dir.path().join("a.txt"), each);
        std::fs::write(dir.path().join("mine.toml"), drive).expect("written");
    };
    let slower = mine.replace("rpm = 7200", "rpm = 5400");
    assert!(slower != mine);
    for (each, drive, what) in [(30, mine, "trace"), (20, slower.as_str(), "drive")] {
        let _ = std::fs::remove_dir_all(&out);
        put(20, mine);
        assert_eq!(sweep(&[text(&plan), "--out", text(&out), "--shard", "1/4"]).0, 0);
        assert_eq!(sweep(&[text(&plan), "--out", text(&out), "--shard", "3/4"]).0, 0);
        put(each, drive);
        assert_eq!(sweep(&[text(&plan), "--out", text(&out), "--shard", "2/4"]).0, 0);
        for more in [&[][..], &["--partial"]] {
            let args = [&[text(&plan), "--out", text(&out), "--merge"], more].concat();
            let (code, _, err) = sweep(&args);
            assert!(code == 1 && err.contains(&format!("are not of the same {what}")), "{err}");
        }
        assert!(!out.join("sweep.csv").exists());
    }
    // Of another drive nothing has to be the same.
    let _ = std::fs::remove_dir_all(&out);
    put(20, mine);
    assert_eq!(sweep(&[text(&plan), "--out", text(&out)]).0, 0);
}

/// Found: a drive in DiskSim's form counted by what its first file says.
#[test]
fn what_a_drive_names_in_turn_is_read_too() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let drives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/fs2-disk/tests/drives");
    for name in ["small.diskspecs", "small.model", "small.seek"] {
        std::fs::copy(drives.join(name), dir.path().join(name)).expect(name);
    }
    let (plan, out) = (dir.path().join("plan.toml"), dir.path().join("out"));
    std::fs::write(dir.path().join("a.txt"), "0.0 D R 8 8 7 a\n").expect("written");
    let plan_text = "options = { runs = 1, policy = 'none', drive = 'small.diskspecs' }\n[[trace]]\nname = 'a'\nfiles = ['a.txt']\n";
    std::fs::write(&plan, plan_text).expect("written");
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
    assert!(code == 0 && err.contains("1 of 1 cells are done already"), "{err}");
    for name in ["small.model", "small.seek"] {
        let path = dir.path().join(name);
        let before = std::fs::read_to_string(&path).expect(name);
        std::fs::write(&path, before.clone() + "\n").expect("written");
        let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
        assert!(code == 1 && err.contains("on other files"), "{name}: {err}");
        std::fs::write(&path, before).expect("written");
    }
}

/// Found: shares stayed empty where `none` was not alone in its cell.
#[test]
fn a_share_is_of_the_none_with_the_same_options_wherever_it_was_run() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    write_trace(&dir.path().join("a.txt"), 200);
    let (plan, out) = (dir.path().join("plan.toml"), dir.path().join("out"));
    let plan_text = "
        options = { closed-loop = true, idle-between = '30s', split = [0, 50] }
        [axes]
        depth = [1, 2]
        policy = ['none,torture', 'fs2']
        [[trace]]
        name = 'a'
        files = ['a.txt']
    ";
    std::fs::write(&plan, plan_text).expect("the scratch directory can be written");
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out), "--jobs", "1"]);
    assert_eq!(code, 0, "{err}");
    let [csv, jsonl] = merged(&out);
    let cells: Vec<Value> = jsonl.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    for depth in 0..2 {
        let [beside, fs2] = [&cells[2 * depth], &cells[2 * depth + 1]].map(|c| &c["result"]);
        let read =
            |result: &Value| result["policies"][0]["runs"][1]["t_a_reads_ms"].as_f64().expect("a number");
        let bound = fs2["bounds"]["runs"][1]["b2_order"].as_f64().expect("a number");
        let want = 100.0 * (read(beside) - read(fs2)) / (read(beside) - bound);
        let share = fs2["policies"][0]["runs"][1]["share_percent"].as_f64().expect("filled in");
        assert!((share - want).abs() < 0.01, "{share} against {want}");
        assert_eq!(beside["policies"][0]["name"], "none");
    }
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().expect("a head");
    let at = |name| head.iter().position(|column| *column == name).expect("a column");
    let (policy, pass, share) = (at("policy"), at("pass"), at("share_percent"));
    let fs2: Vec<_> = rows.filter(|row| (row[policy], row[pass]) == ("fs2", "2")).collect();
    assert!(fs2.len() == 2 && fs2.iter().all(|row| !row[share].is_empty()), "{csv}");
}

#[test]
fn a_killed_sweep_goes_on_where_it_was() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let plan = write_plan(dir.path());
    let out = dir.path().join("out");
    let shard = out.join("shard-1-of-1.jsonl");
    let mut child = Command::new(env!("CARGO_BIN_EXE_fs2-replay"))
        .args(["sweep", text(&plan), "--jobs", "1", "--out", text(&out)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("fs2-replay starts");
    let done = || std::fs::read(&shard).unwrap_or_default().iter().filter(|b| **b == b'\n').count();
    while done() == 0 && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("a child");
    child.wait().expect("a child");
    let before = done();
    assert!((1..8).contains(&before), "{before} of 8 cells were done when it was killed");
    // The worst moment for a kill: in the midst of a line.
    let mut bytes = std::fs::read(&shard).expect("a shard");
    bytes.extend_from_slice(b"{\"cell\":{\"trace\":\"b\",\"opt");
    std::fs::write(&shard, &bytes).expect("written");
    let (code, listed, _) = sweep(&[text(&plan), "--out", text(&out), "--dry-run"]);
    assert_eq!((code, listed.lines().count(), listed.matches(", done:").count()), (0, 8, before));
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out), "--jobs", "2"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains(&format!("{before} of 8 cells are done already")), "{err}");
    let left = 8 - before;
    assert!(err.contains(&format!("{left} of {left}: ")), "{err}");
    let whole = dir.path().join("whole");
    assert_eq!(sweep(&[text(&plan), "--out", text(&whole)]).0, 0);
    assert!(merged(&out) == merged(&whole), "a sweep that was killed differs from one that was not");
    // Nothing left: nothing is run.
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
    assert_eq!((code, err.as_str()), (0, "8 of 8 cells are done already\n"));
    // Other files under the same name are no resumption.
    write_trace(&dir.path().join("a.txt"), 390);
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
    assert!(code == 1 && err.contains("was run by another version or build, or on other files"), "{err}");
    // Found: the list said that they are done.
    let (_, listed, _) = sweep(&[text(&plan), "--out", text(&out), "--dry-run"]);
    let of_a = listed.lines().filter(|l| l.contains(": a, split ")).count();
    assert_eq!((of_a, listed.matches(", out of date: a, split ").count()), (4, 4), "{listed}");
    assert_eq!(listed.matches(", done: ").count(), 4, "{listed}");
    // What cannot be read cannot be compared.
    std::fs::remove_file(dir.path().join("a.txt")).expect("removed");
    let (code, listed, _) = sweep(&[text(&plan), "--out", text(&out), "--dry-run"]);
    assert_eq!((code, listed.matches(", done: ").count()), (0, 8), "{listed}");
}

/// Found: a program that was built anew took the figures of the one before, of the same version, for its own.
#[test]
fn what_another_build_of_the_version_ran_is_not_current() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (plan, out) = (dir.path().join("plan.toml"), dir.path().join("out"));
    write_trace(&dir.path().join("a.txt"), 20);
    let plan_text = "options = { runs = 1 }\n[axes]\npolicy = ['none', 'torture']\n[[trace]]\nname = 'a'\nfiles = ['a.txt']\n";
    std::fs::write(&plan, plan_text).expect("written");
    assert_eq!(sweep(&[text(&plan), "--out", text(&out)]).0, 0);
    let shard = out.join("shard-1-of-1.jsonl");
    let lines = std::fs::read_to_string(&shard).expect("a shard");
    let mut done: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let put = |done: &[Value]| {
        let lines: String = done.iter().map(|d| format!("{d}\n")).collect();
        std::fs::write(&shard, lines).expect("written");
    };
    // As before there was a digest, and of one that says something else.
    let inputs = done[0]["inputs"].as_object_mut().expect("what it was made from");
    inputs.remove("sources");
    put(&done);
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
    assert!(code == 1 && err.contains("was run by another version or build"), "{err}");
    done[0]["inputs"]["sources"] = Value::from(vec!["0123"]);
    put(&done);
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out), "--merge"]);
    assert!(code == 1 && err.contains("are not of the same build of fs2-replay"), "{err}");
}

#[test]
fn a_cell_that_fails_is_told_and_the_others_are_run() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    write_trace(&dir.path().join("good.txt"), 20);
    std::fs::write(dir.path().join("bad.txt"), "0.0 D R 8 8 7 a\n0.1 D R x 8 7 a\n").expect("written");
    let plan = dir.path().join("plan.toml");
    let text_of = "options = { runs = 1, policy = 'none' }\n[[trace]]\nname = 'bad'\nfiles = ['bad.txt']\n\
                   [[trace]]\nname = 'good'\nfiles = ['good.txt']\n";
    std::fs::write(&plan, text_of).expect("written");
    let out = dir.path().join("out");
    for told in ["", "1 of 2 cells are done already\n"] {
        let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
        assert!(code == 1 && err.starts_with(told) && err.contains("1 of 2 cells failed"), "{err}");
        assert!(err.contains("bad.txt") && err.contains("fs2-replay: bad policy=none runs=1: "), "{err}");
    }
    std::fs::write(dir.path().join("bad.txt"), "0.0 D R 8 8 7 a\n").expect("written");
    let (code, _, err) = sweep(&[text(&plan), "--out", text(&out)]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(merged(&out)[1].lines().count(), 2);
}

#[test]
fn results_take_no_traces_place() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let plan = dir.path().join("plan.toml");
    for (name, merge) in [("sweep.csv", false), ("shard-1-of-1.jsonl", false), ("sweep.jsonl", true)] {
        let trace = dir.path().join(name);
        write_trace(&trace, 2);
        let before = std::fs::read(&trace).expect("a trace");
        std::fs::write(&plan, format!("[[trace]]\nname = 'a'\nfiles = ['{name}']\n")).expect("written");
        let args = [text(&plan), "--out", text(dir.path()), "--merge"];
        let (code, _, err) = sweep(&args[..if merge { 4 } else { 3 }]);
        assert!(code == 1 && err.contains(name) && err.contains("it is read"), "{err}");
        assert!(std::fs::read(&trace).expect("a trace") == before);
        std::fs::remove_file(&trace).expect("removed");
    }
}

#[test]
fn the_example_in_the_documentation_is_a_plan() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sweep.toml");
    let (code, out, err) = sweep(&[plan, "--dry-run"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), 2 * 3 * 2 * 2 * 2);
    let (_, part, _) = sweep(&[plan, "--dry-run", "--shard", "2/5"]);
    assert_eq!(part.lines().collect::<Vec<_>>(), out.lines().skip(1).step_by(5).collect::<Vec<_>>());
    for (args, said) in [
        (&[plan][..], "--out"),
        (&[plan, "--out", "x", "--shard", "3/2"], "no shard"),
        (&[plan, "--out", "x", "--merge", "--dry-run"], "cannot be used with"),
        (&[plan, "--out", "x", "--partial"], "--merge"),
    ] {
        let (code, _, err) = sweep(args);
        assert!(code == 2 && err.contains(said), "{args:?}: {err}");
    }
}
