//! `fs2-replay info` and `convert` as programs: what they print, what they refuse, their exit codes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Exit code, standard output, standard error.
fn run(dir: &Path, args: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fs2-replay"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    let done = child.wait_with_output().unwrap();
    (done.status.code().unwrap(), done.stdout, String::from_utf8(done.stderr).unwrap())
}

fn ok(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let (code, out, err) = run(dir, args, input);
    assert_eq!(code, 0, "{args:?}: {err}");
    out
}

fn json(dir: &Path, args: &[&str], input: &[u8]) -> Value {
    serde_json::from_slice(&ok(dir, args, input)).unwrap()
}

/// Two requests to one ASU, one to another; the second read reads again.
const SPC: &str = "0,8,4096,R,0.5\n3,8,4096,W,0.75\n0,8,4096,R,1.5\n";

#[test]
fn info_says_what_is_in_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("a.spc"), SPC).unwrap();
    let info = json(dir, &["info", "--json", "a.spc"], b"");
    assert_eq!((&info["format"], &info["compression"]), (&Value::from("spc"), &Value::from("none")));
    assert_eq!(info["summary"]["requests"], 3);
    assert_eq!(info["summary"]["mix"]["read"]["requests"], 2);
    assert_eq!(info["summary"]["reread_percent"], 50.0);
    assert_eq!(info["devices"][1]["name"], "3");
    assert_eq!(info["summary"]["first_s"], 0.5);

    let one = json(dir, &["info", "--json", "--device", "3", "-"], SPC.as_bytes());
    assert_eq!(one["summary"]["requests"], 1);

    let packed = json(dir, &["info", "--json", "--pack", "a.spc"], b"");
    assert_eq!(packed["summary"]["end_byte"], (1 << 20) + 2 * 4096);
    let apart = &info["summary"]["end_byte"];
    assert_eq!(*apart, (1_u64 << 42) + 2 * 4096);

    let text = String::from_utf8(ok(dir, &["info", "a.spc"], b"")).unwrap();
    assert!(text.contains("requests      3 in 1.000 s"), "{text}");
    assert!(text.contains("\"3\": 1 requests"), "{text}");

    // Found: gaps that are all 100 ms had percentiles of 99.615 ms.
    let even: String = (0..50).map(|i| format!("0,8,4096,R,{}.{}\n", i / 10, i % 10)).collect();
    let text = String::from_utf8(ok(dir, &["info", "-"], even.as_bytes())).unwrap();
    let says = "interarrival  mean 100.000, half 100, 90 % 100, 99 % 100, most 100.000 ms";
    assert!(text.contains(says), "{text}");
}

/// Found: half of a trace was left out without a word where half of its Ds were lost.
#[test]
fn completions_of_no_request_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let line = |i: u32| {
        format!("{i}.0 {} R {} 8 1 a\n{i}.5 C R {} 8 0 a\n", ["D", "Q"][i as usize % 2], i * 8, i * 8)
    };
    fs::write(dir.join("a"), (0..20).map(line).collect::<String>()).unwrap();
    let info = String::from_utf8(ok(dir, &["info", "a"], b"")).unwrap();
    assert!(
        info.contains("requests      10 in") && info.contains("10 completions of no request: its D was lost"),
        "{info}"
    );
    assert_eq!(json(dir, &["info", "--json", "a"], b"")["completions_of_no_request"], 10);
    let (code, _, err) = run(dir, &["run", "a", "--runs", "1", "--policy", "none"], b"");
    assert!(code == 0 && err.contains("10 completions belong to no request"), "{err}");
    let (_, _, err) = run(dir, &["run", "a", "--runs", "1", "--policy", "none", "--event", "C"], b"");
    assert_eq!(err, "");
}

/// The names of the columns were a line that cannot be read.
#[test]
fn columns_with_names_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let named = format!("ASU,LBA,Size,Opcode,Timestamp\r\n{SPC}");
    let out = String::from_utf8(ok(dir.path(), &["info", "-"], named.as_bytes())).unwrap();
    assert!(out.contains("\nrequests      3 in "), "{out}");
}

/// Between the names an option was "2 values required".
#[test]
fn options_stand_anywhere_and_two_names_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), SPC).unwrap();
    let (code, _, err) = run(dir.path(), &["convert", "in", "--to", "blkparse", "out"], b"");
    assert!(code == 0 && dir.path().join("out").is_file(), "{err}");
    let (code, _, err) = run(dir.path(), &["convert", "in"], b"");
    assert!(code == 2 && err.contains("then the file to write"), "{err}");
}

/// Found: the text had a flush for a write of no bytes, and a read of none was lost without a word.
#[test]
fn convert_says_what_a_text_cannot() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "0,8,0,W,0.1\n0,8,512,R,0.2\n0,8,0,R,0.3\n").unwrap();
    let (code, _, err) = run(dir.path(), &["convert", "a", "b.txt"], b"");
    assert!(code == 0 && err.contains("3 requests from spc\n2 of them are of no bytes"), "{err}");
    let mix = &json(dir.path(), &["info", "--json", "b.txt"], b"")["summary"]["mix"];
    assert_eq!((&mix["flush"]["requests"], &mix["read"]["requests"]), (&Value::from(0), &Value::from(1)));
}

#[test]
fn convert_keeps_every_request() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("a.spc"), SPC).unwrap();
    ok(dir, &["convert", "--device", "0", "a.spc", "a.fs2trace"], b"");
    ok(dir, &["convert", "--to", "blkparse", "a.fs2trace", "a.txt"], b"");
    let text = ok(dir, &["convert", "--to", "blkparse", "a.fs2trace", "-"], b"");
    assert_eq!(fs::read(dir.join("a.txt")).unwrap(), text);
    assert_eq!(text.iter().filter(|b| **b == b'\n').count(), 2);
    let (a, b) = ("a.fs2trace", "a.txt");
    let of = |name| json(dir, &["info", "--json", name], b"");
    assert_eq!((&of(a)["summary"], &of(a)["format"]), (&of(b)["summary"], &Value::from("container")));
    // The size is what the requests reach, rounded up.
    assert_eq!(of(a)["volume_bytes"], 1 << 20);
    // Nothing else is left in the directory.
    assert_eq!(fs::read_dir(dir).unwrap().count(), 3);

    for (size, bytes) in [("8192", 8192), ("10g", 10u64 << 30), ("1.5MiB", 3 << 19)] {
        let piped = ok(dir, &["convert", "--volume-bytes", size, "--device", "0", "-", "-"], SPC.as_bytes());
        assert_eq!(json(dir, &["info", "--json", "-"], &piped)["volume_bytes"], bytes, "{size}");
    }
}

#[test]
fn a_partition_is_converted_into_a_trace_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let whole = "0,8,4096,R,0.5\n0,72,4096,W,0.75\n0,2048,4096,R,1.5\n";
    let own = ["convert", "--volume-bytes", "8388608", "-", "whole.fs2trace"];
    ok(dir, &own, whole.as_bytes());
    let part = ["--partition", "64,1024"];
    ok(dir, &[&["convert", "whole.fs2trace", "part.fs2trace"], &part[..]].concat(), b"");
    let info = json(dir, &["info", "--json", "part.fs2trace"], b"");
    // The partition's size, not the device's.
    assert_eq!(info["volume_bytes"], 1024 * 512);
    assert_eq!((&info["summary"]["requests"], &info["devices"][0]["end_bytes"]), (&1.into(), &8192.into()));
    // To the device's end nobody says how long it is.
    ok(dir, &["convert", "--partition", "64", "whole.fs2trace", "rest.fs2trace"], b"");
    assert_eq!(json(dir, &["info", "--json", "rest.fs2trace"], b"")["volume_bytes"], 1 << 20);
    let text = ok(dir, &[&["info", "whole.fs2trace"], &part[..]].concat(), b"");
    assert!(String::from_utf8(text).unwrap().contains("left out      2 requests outside the partition"));
    assert_eq!(
        json(dir, &[&["info", "--json", "whole.fs2trace"], &part[..]].concat(), b"")["outside_partition"],
        2
    );
}

/// Found: with the last name forgotten, a trace was overwritten by the one before it.
#[test]
fn no_trace_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("a.spc"), SPC).unwrap();
    fs::write(dir.join("b.spc"), SPC).unwrap();
    std::os::unix::fs::symlink("a.spc", dir.join("link")).unwrap();
    for (args, says) in [
        (&["convert", "a.spc", "a.spc"][..], "a.spc: it is read, so it cannot be written too"),
        (&["convert", "--force", "--to", "blkparse", "a.spc", "a.spc"], "it is read"),
        (&["convert", "--force", "a.spc", "link"], "link: the same file as a.spc, which is read"),
        (&["convert", "a.spc", "b.spc"], "b.spc: there already, with 46 bytes"),
        (&["convert", "--to", "blkparse", "a.spc", "b.spc"], "--force"),
        (&["run", "a.spc", "--device", "0", "--html", "a.spc"], "a.spc: it is read"),
        (&["run", "a.spc", "--train", "b.spc", "--html", "./b.spc"], "the same file as b.spc"),
        (&["run", "a.spc", "--html", "-"], "a page goes to a file"),
        (&["validate", "wd800-repaired", "a.spc", "--each", "link"], "the same file as a.spc"),
        (&["validate", "wd800-repaired", "a.spc", "--each", "-"], "goes to a file"),
        (
            &["live", "a.spc", "a.spc", "--buffered", "--allow-writes", "--consent", "overwrite a.spc"],
            "a.spc: it is read",
        ),
    ] {
        let (code, out, err) = run(dir, args, b"");
        assert_eq!((code, out.len()), (1, 0), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
        for name in ["a.spc", "b.spc"] {
            assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), SPC, "{args:?}");
        }
        assert_eq!(fs::read_dir(dir).unwrap().count(), 3, "{args:?} leaves a file");
    }
    ok(dir, &["convert", "--force", "--to", "container", "--device", "0", "a.spc", "b.spc"], b"");
    assert_eq!(json(dir, &["info", "--json", "b.spc"], b"")["format"], "container");
}

/// The container was written under any name, `.csv` as well.
#[test]
fn the_name_says_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("a.spc"), SPC).unwrap();
    let written = |name: &str| json(dir, &["info", "--json", name], b"")["format"].clone();
    for (name, format) in
        [("b.fs2trace", "container"), ("b", "container"), ("b.txt", "blkparse"), ("b.BLKPARSE", "blkparse")]
    {
        ok(dir, &["convert", "--device", "0", "a.spc", name], b"");
        assert_eq!(written(name), format, "{name}");
    }
    for name in ["c.csv", "c.SPC", "c.blkparse.zst", "c.blktrace.0"] {
        let (code, _, err) = run(dir, &["convert", "--device", "0", "a.spc", name], b"");
        assert!(
            code == 1 && err.contains("no trace is written as .") && err.contains("--to container"),
            "{name}: {err}"
        );
        assert!(!dir.join(name).exists(), "{name}");
    }
    ok(dir, &["convert", "--device", "0", "--to", "container", "a.spc", "c.csv"], b"");
    assert_eq!(written("c.csv"), "container");
    ok(dir, &["convert", "--device", "0", "--to", "container", "a.spc", "c.txt"], b"");
    assert_eq!(written("c.txt"), "container");
}

/// Found: each generation or page that was interrupted left a hidden file of any size.
#[test]
fn an_interrupt_leaves_nothing_behind() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    // Who runs the tests in the background may have it ignored, and so has whatever is started from there.
    let mut child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_fs2-replay")])
        .args(["generate", "zipf", "--requests", "100000000000", "a.fs2trace"])
        .current_dir(&dir)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Until it has its file open.
    let at = fs::canonicalize(&dir).unwrap();
    let files = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    while !files(child.id()).any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(&at))) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(nix::sys::signal::Signal::SIGINT as i32));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn help_has_examples() {
    for command in ["info", "convert"] {
        let help = String::from_utf8(ok(Path::new("."), &[command, "--help"], b"")).unwrap();
        for says in ["Usage: fs2-replay", "Examples:", "--skip-bad", "--event", "--device"] {
            assert!(help.contains(says), "{command}: {help}");
        }
    }
}

#[test]
fn what_is_refused_says_where_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("bad.spc"), "0,8,4096,R,0.5\n0,8,4096,X,0.6\n0,8,4096,R,0.7\n").unwrap();
    fs::write(dir.join("prose"), "This is no trace.\n").unwrap();
    for (args, says) in [
        (&["info", "bad.spc"][..], "bad.spc: line 2: \"0,8,4096,X,0.6\", expected R or W"),
        (&["info", "gone"], "gone: No such file or directory"),
        (&["info", "."], ".: a directory, expected a trace"),
        (
            &["info", "prose"],
            "prose: no trace format fits what begins with \"This is no trace.\"; `--format`",
        ),
        (
            &["info", "--device", "9", "--skip-bad", "bad.spc"],
            "no request for device \"9\"; the trace has \"0\"",
        ),
        (&["info", "--pack", "-"], "--pack reads a trace twice: give a file, not standard input"),
        (&["convert", "bad.spc", "out"], "bad.spc: line 2: "),
        (&["convert", "bad.spc", "-"], "needs --volume-bytes"),
    ] {
        let (code, out, err) = run(dir, args, b"");
        assert_eq!((code, out.len()), (1, 0), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
    assert!(!dir.join("out").exists(), "a conversion that fails leaves nothing");
    for args in
        [&["info"][..], &["info", "--format", "tar", "a"], &["info", "--event", "X", "a"], &["convert", "a"]]
    {
        let (code, _, err) = run(dir, args, b"");
        assert_eq!(code, 2, "{args:?}: {err}");
    }
    let (code, out, err) = run(dir, &["info", "--json", "--skip-bad", "bad.spc"], b"");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("1 lines, records or blocks left out"), "{err}");
    let info: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&info["skipped"]["count"], &info["summary"]["requests"]), (&Value::from(1), &Value::from(2)));
}

#[test]
fn what_a_stopped_daemon_left_of_a_trace_can_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["generate", "uniform", "--requests", "20000", "--gib", "1", "whole.fs2trace"], b"");
    let whole = fs::read(dir.join("whole.fs2trace")).unwrap();
    // Two of its three blocks are there.
    fs::write(dir.join("cut.fs2trace"), &whole[..whole.len() * 9 / 10]).unwrap();
    fs::write(dir.join("disk.img"), []).unwrap();
    fs::File::options().write(true).open(dir.join("disk.img")).unwrap().set_len(2 << 30).unwrap();
    let replay = ["run", "cut.fs2trace", "--runs", "1", "--policy", "none", "--limit", "20000", "--json"];
    let live = ["live", "cut.fs2trace", "disk.img", "--speed", "1000000", "--json"];
    for args in [&["info", "cut.fs2trace", "--json"][..], &["convert", "cut.fs2trace", "out"], &replay, &live]
    {
        let (code, out, err) = run(dir, args, b"");
        assert_eq!((code, out.len()), (1, 0), "{args:?}: {err}");
        assert!(err.contains("after 16384 records") && err.contains("; `--skip-bad` takes what"), "{err}");
        let (code, out, err) = run(dir, &[args, &["--skip-bad"]].concat(), b"");
        assert_eq!(code, 0, "{args:?}: {err}");
        let out = String::from_utf8(out).unwrap();
        let told = out.contains("\"skipped_bad\": 1") || out.contains("\"skipped\": 1");
        assert!(
            told || err.contains("nothing is read behind this: cut.fs2trace: trace ends at"),
            "{out}{err}"
        );
    }
    assert_eq!(json(dir, &["info", "--json", "out"], b"")["summary"]["requests"], 16_384);
}

/// It ended well with a trace of nothing.
#[test]
fn of_which_nothing_was_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("bad.spc"), "nothing\nof\nit\n").unwrap();
    let good =
        "  8,0 1 1 0.5 9 D R 8 + 8 [x]\n  8,0 1 2 0.6 9 D FN 0 + 0 [x]\n  8,0 1 3 0.7 9 D W 16 + 8 [x]\n";
    fs::write(dir.join("good.txt"), good).unwrap();
    let bad = ["--format", "spc", "--skip-bad", "bad.spc"];
    let beyond = ["--partition", "1000000,8", "good.txt"];
    for (args, says) in [
        (&bad[..], "nothing was read: 3 lines"),
        (&beyond[..], "no request within the partition: the trace's 2 all"),
    ] {
        for (command, to) in [("info", &[][..]), ("convert", &["out"])] {
            let (code, _, err) = run(dir, &[&[command][..], args, to].concat(), b"");
            assert!(code == 1 && err.contains(says), "{command} {args:?}: {code}, {err}");
        }
    }
    assert!(!dir.join("out").exists());
}

/// Found: each request was two.
#[test]
fn a_file_is_no_two_parts_of_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("a.spc"), SPC).unwrap();
    fs::copy(dir.join("a.spc"), dir.join("copy.spc")).unwrap();
    std::os::unix::fs::symlink("a.spc", dir.join("link")).unwrap();
    fs::hard_link(dir.join("a.spc"), dir.join("hard")).unwrap();
    for name in ["a.spc", "./a.spc", "link", "hard"] {
        for args in [&["info", "a.spc", "copy.spc", name][..], &["run", "a.spc", name, "--runs", "1"]] {
            let (code, _, err) = run(dir, args, b"");
            let says = [&format!("{name}: "), "would come twice; name each part"];
            assert!(code == 1 && says.iter().all(|s| err.contains(s)), "{args:?}: {code} {err}");
        }
    }
    // As much of another file is another part.
    assert_eq!(json(dir, &["info", "--json", "a.spc", "copy.spc"], b"")["summary"]["requests"], 6);
    // What is learnt from may be what is replayed.
    ok(dir, &["run", "a.spc", "--train", "link", "--runs", "1", "--policy", "none"], b"");
}

/// Found: of a trace with some service times it said what they were, and that there were none.
#[test]
fn info_says_how_many_requests_have_a_service_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines = [
        "x",
        "0.0 ; 100 ; 8 ; R ; 0.0 ; 0.0",
        "1.5 ; 200 ; 8 ; W ; 0.0 ; 0.004",
        "2.5 ; 300 ; 8 ; W ; 0.0 ; 0.004",
    ];
    let info = |lines: &[&str]| {
        fs::write(dir.join("a.load"), lines.join("\n") + "\n").unwrap();
        String::from_utf8(ok(dir, &["info", "a.load"], b"")).unwrap()
    };
    let says = |text: &str, of: &str, busy: &str| text.contains(of) && text.contains(busy);
    let half = info(&lines[..3]);
    assert!(
        says(&half, "4.000 ms; of 1 of 2 requests", "; half of the requests or more have no service time"),
        "{half}"
    );
    assert!(!half.contains("the trace has no service times"), "{half}");
    let most = info(&lines);
    assert!(says(&most, "4.000 ms; of 2 of 3 requests", "of the time by its service times"), "{most}");
    let none = info(&lines[..2]);
    assert!(says(&none, "", "; the trace has no service times") && !none.contains("4.000"), "{none}");
}

#[test]
fn generate_makes_the_same_trace_twice() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for kind in ["cvs", "zipf", "sequential", "write-heavy", "read-after-write", "uniform", "mixed"] {
        let args = ["generate", kind, "--requests", "2000", "--gib", "1", "--seed", "5"];
        let (code, out, err) = run(dir, &[&args[..], &["--force", "a.fs2trace"]].concat(), b"");
        assert_eq!((code, out.len(), err.as_str()), (0, 0, "2,000 requests made up\n"));
        let again = ok(dir, &[&args[..], &["-"]].concat(), b"");
        assert_eq!(fs::read(dir.join("a.fs2trace")).unwrap(), again, "{kind}");
        let info = json(dir, &["info", "--json", "a.fs2trace"], b"");
        assert_eq!(info["summary"]["requests"], 2000, "{kind}");
        assert!(info["summary"]["end_byte"].as_u64().unwrap() <= 1 << 30, "{kind}");
        let other = ok(dir, &["generate", kind, "--requests", "2000", "--gib", "1", "--seed", "6", "-"], b"");
        assert_ne!(other, again, "{kind}");
    }
    let before = fs::read(dir.join("a.fs2trace")).unwrap();
    // Found: a container was in the file called .csv.
    for name in ["a.csv", "a.CSV", "a.blkparse", "a.txt", "a.fs2trace.gz", "a.blktrace.0"] {
        let (code, _, err) = run(dir, &["generate", "cvs", "--requests", "10", name], b"");
        let says = [name, "a container", ".fs2trace", "fs2-replay convert"];
        assert!(
            code == 1 && says.iter().all(|s| err.contains(s)) && !dir.join(name).exists(),
            "{name}: {err}"
        );
    }
    for name in ["plain", "a.b"] {
        ok(dir, &["generate", "cvs", "--requests", "10", name], b"");
    }
    // Found: half of the requests were at the clock's end.
    let (code, _, err) =
        run(dir, &["generate", "uniform", "--requests", "20000", "--gap", "30000m", "long"], b"");
    assert!(code == 1 && err.contains("584 years") && !dir.join("long").exists(), "{err}");
    let (code, _, err) = run(dir, &["generate", "cvs", "a.fs2trace"], b"");
    assert!(code == 1 && err.contains("a.fs2trace: there already") && err.contains("--force"), "{err}");
    assert_eq!(fs::read(dir.join("a.fs2trace")).unwrap(), before);
    let (code, _, err) = run(dir, &["generate", "sequential", "--writes", "50%", "b.fs2trace"], b"");
    assert_eq!((code, err.as_str()), (1, "fs2-replay: sequential takes --writes 0% or 100%, no mixture\n"));
    // Found: these two took any --writes and wrote as ever.
    for (kind, says) in [("cvs", "cvs writes nothing"), ("read-after-write", "read-after-write writes half")]
    {
        let (code, _, err) = run(dir, &["generate", kind, "--writes", "20%", "b.fs2trace"], b"");
        assert!(code == 1 && err.contains(says), "{err}");
    }
    // Found: options of other kinds were taken, and changed nothing.
    for (kind, option, value, of) in [
        ("cvs", "--files", "5", "zipf"),
        ("zipf", "--runs", "5", "cvs"),
        ("uniform", "--idle-between", "1s", "cvs"),
        ("mixed", "--noise", "5%", "cvs"),
        ("write-heavy", "--distance", "1000", "read-after-write"),
    ] {
        let (code, _, err) = run(dir, &["generate", kind, option, value, "b.fs2trace"], b"");
        let says = format!("fs2-replay: {kind} has no {option}, which is an option of {of}\n");
        assert_eq!((code, err), (2, says));
    }
    assert!(!dir.join("b.fs2trace").exists());
    let reads =
        ok(dir, &["generate", "cvs", "--requests", "1000", "--writes", "0%", "--noise", "0%", "-"], b"");
    assert_eq!(json(dir, &["info", "--json", "-"], &reads)["summary"]["mix"]["write"]["requests"], 0);
    let writes = ok(dir, &["generate", "uniform", "--requests", "1000", "--writes", "100%", "-"], b"");
    let info = json(dir, &["info", "--json", "-"], &writes);
    assert_eq!(info["summary"]["mix"]["write"]["requests"], 1000);
}
