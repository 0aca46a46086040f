//! `fsbench` on a temporary directory: every workload small, its files compared; bad input; what is left.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn fsbench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsbench"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

#[track_caller]
fn ended(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    (out, err)
}

#[track_caller]
fn run(args: &[&str], dir: &Path, code: i32) -> (String, String) {
    let output = fsbench().arg("run").args(args).arg(dir).output().expect("fsbench");
    ended(&output, code)
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A directory with something in it that is not fsbench's.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("mine"), b"stays").expect("a file");
    dir
}

#[track_caller]
fn nothing_left(dir: &Path) {
    assert_eq!(names_in(dir), ["mine"]);
    assert_eq!(std::fs::read(dir.join("mine")).expect("the file"), b"stays");
}

/// Runs a workload twice; every file is as written, and nothing is left.
#[track_caller]
fn works(args: &[&str]) -> String {
    let dir = place();
    let mut all = vec!["--runs", "2", "--seed", "7"];
    all.extend(args);
    let (out, err) = run(&all, dir.path(), 0);
    assert!(out.contains("as written") && out.contains("run 2"), "{out}{err}");
    nothing_left(dir.path());
    out
}

#[test]
fn cvs_update_reads_two_trees() {
    let out = works(&["cvs-update", "--scale", "0.05", "--set", "touch=5"]);
    // 125 files: each stated once and mapped twice; 8 directories with six probes and reads.
    let count = |name: &str| {
        let line = out.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {out}"));
        line[24..].split_whitespace().next().expect("a count").parse::<u64>().expect("a number")
    };
    assert_eq!((count("working files"), count("map ,v")), (125, 250));
    assert_eq!((count("CVS files"), count("probes")), (32, 16));
    assert_eq!((count("listings"), count("locks"), count("read whole")), (16, 16, 10));
}

#[test]
fn startx_loads_and_reads() {
    let out = works(&["startx", "--scale", "0.1", "--set", "think_min_us=0", "--set", "think_max_us=500"]);
    assert!(out.contains("searches in vain") && out.contains("faults"), "{out}");
}

#[test]
fn surge_answers_and_logs() {
    let out = works(&["surge", "--scale", "0.05", "--duration", "1s", "--set", "off=0.002"]);
    assert!(out.contains("request ") && out.contains("page "), "{out}");
}

#[test]
fn tpcw_orders_in_every_mix() {
    for mix in ["tpcw-browsing", "tpcw-shopping", "tpcw-ordering"] {
        let out = works(&[mix, "--scale", "0.02", "--ops", "300", "--set", "think=0.001"]);
        assert!(out.contains("home"), "{out}");
    }
}

#[test]
fn postmark_reads_what_it_wrote() {
    for processes in ["processes=1", "processes=4"] {
        let small = ["--scale", "0.2", "--set", "most=9000", "--set", "least=500"];
        let out = works(&[&["postmark", "--set", processes], &small[..]].concat());
        assert!(out.contains("throughput MB/s") && out.contains("append"), "{out}");
    }
}

#[test]
fn the_walks_see_every_file() {
    works(&["find", "--scale", "0.05"]);
    works(&["log", "--scale", "0.05"]);
}

#[test]
fn compile_and_reclaim_leave_what_they_should() {
    let quick = ["--set", "cpu_min_ms=0", "--set", "cpu_max_ms=2"];
    works(&[&["compile", "--scale", "0.2"], &quick[..]].concat());
    let out = works(&["reclaim", "--scale", "0.05", "--set", "objects=0"]);
    assert!(out.contains("cleaning s") && !out.contains("compilation"), "{out}");
    let out = works(&["reclaim", "--scale", "0.02", "--set", "objects=2"]);
    assert!(out.contains("compilation s"), "{out}");
}

#[test]
fn single_file_is_read_at_every_size() {
    let out = works(&["single-file", "--set", "most=1048576", "--set", "reads=20", "--set", "mib=4"]);
    for class in ["open+close 1 KiB", "from memory 1 MiB", "4 KiB from memory /s", "1 MiB from memory us"] {
        assert!(out.contains(class), "{class}: {out}");
    }
}

#[test]
fn sites_of_every_class_are_served() {
    let small = ["--set", "files=40", "--set", "largest=20000", "--set", "threads=2", "--ops", "400"];
    for class in ["zipf-0", "zipf-1", "zipf-2", "zipf-3", "zipf-4"] {
        let out = works(&[&[class], &small[..]].concat());
        assert!(out.contains("requests /s") && out.contains("cached %"), "{out}");
    }
    let out = works(&[&["zipf-alpha", "--set", "alphas=0.5, 1"], &small[..]].concat());
    assert!(out.contains("alpha 1, cached") && out.contains("alpha 0.5 cached %"), "{out}");
    let out = works(&[&["shared"], &small[..]].concat());
    assert!(out.contains("shared cached %") && out.contains("single cached %"), "{out}");
    let out = works(&[&["hybrid"], &small[..]].concat());
    assert!(out.contains("gain %") && out.contains("other site"), "{out}");
}

#[test]
fn auctions_and_boards_are_visited() {
    for name in ["rubis", "rubbos"] {
        let quick = [name, "--scale", "0.05", "--ops", "300", "--set", "think=0.001"];
        let out = works(&quick);
        assert!(out.contains("store ") && out.contains("response ms"), "{out}");
        let out = works(&[&quick[..], &["--set", "mix=browsing"]].concat());
        assert!(!out.contains("store "), "{out}");
    }
}

#[test]
fn a_hot_directory_elsewhere_is_cleaned_too() {
    let (dir, hot) = (place(), place());
    let set = format!("hot_dir={}", hot.path().display());
    let small = ["hybrid", "--set", "files=60", "--set", "largest=30000", "--set", "threads=1"];
    let args = |more: &[&'static str]| -> Vec<String> {
        let all = small.iter().chain(more).map(|s| (*s).to_owned());
        all.chain(["--set".to_owned(), set.clone()]).collect()
    };
    let go = |args: Vec<String>, code| {
        let output = fsbench().arg("run").args(args).arg(dir.path()).output().expect("fsbench");
        ended(&output, code)
    };
    let (out, _) = go(args(&["--ops", "300"]), 0);
    assert!(out.contains("as written"), "{out}");
    nothing_left(dir.path());
    nothing_left(hot.path());
    // Ended at one moment after another, in whatever it is doing then.
    let mut stopped = 0;
    for ms in (0..12).map(|i| 40 * i) {
        let mut command = fsbench();
        command.arg("run").args(args(&["--duration", "1h"])).arg(dir.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("fsbench");
        let until = Instant::now() + Duration::from_secs(60);
        while !dir.path().join("fsbench.d").exists() {
            assert!(
                Instant::now() < until && child.try_wait().expect("a child").is_none(),
                "it does not begin"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(ms));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("a signal");
        assert_eq!(child.wait().expect("its end").code(), Some(130));
        stopped += 1;
        nothing_left(dir.path());
        nothing_left(hot.path());
    }
    assert_eq!(stopped, 12);
    // Nowhere is a place to go on from.
    let (_, err) = go(args(&["--ops", "300", "--runs", "0", "--keep"]), 0);
    nothing_left(hot.path());
    let (_, refused) = go(args(&["--ops", "300", "--reuse"]), 1);
    assert!(refused.contains("without --reuse"), "{err}{refused}");
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is_written() {
    let dir = place();
    let path = dir.path();
    let said = |args: &[&str], code| run(args, path, code).1;
    assert!(said(&["cvs-updat"], 2).contains("cvs-update"));
    assert!(said(&["startx", "--preset", "huge"], 2).contains("paper"));
    assert!(said(&["startx", "--set", "colour=red"], 2).contains("processes"));
    assert!(said(&["startx", "--scale", "0"], 2).contains("0.001"));
    assert!(said(&["cvs-update", "--set", "ageing_mib=100000000"], 1).contains("free"));
    for (args, code, says) in [
        (["zipf-1", "alpha=11"], 2, "0 to 10"),
        (["zipf-1", "alphas=1"], 2, "no such parameter"),
        (["postmark", "files=-1"], 2, "--set files: '-1' is below 0"),
        (["zipf-alpha", "alphas=1,x"], 2, "'x' is no number"),
        (["shared", "files=0"], 2, "shared: 1 to"),
        (["hybrid", "hot_dir=/absent/dir"], 1, "no such directory"),
        (["single-file", "least=0"], 2, "1 byte"),
        (["single-file", "most=1099511627776"], 1, "free"),
        (["rubis", "mix=bids"], 2, "browsing and bidding"),
        (["rubbos", "users=9"], 2, "10 users"),
        (["rubbos", "users=4000000000"], 1, "needed"),
        // A shift would make nothing of it.
        (["surge", "ageing_mib=17592186044416"], 2, "ageing"),
    ] {
        assert!(said(&[args[0], "--set", args[1]], code).contains(says), "{args:?}");
    }
    assert!(said(&["surge", "--set", "users=10000", "--set", "hosts=100"], 1).contains("ulimit"));
    let trace = path.join("trace");
    assert!(said(&["startx", "--record", trace.to_str().expect("text")], 1).contains("FS2 volume"));
    nothing_left(path);
    assert!(run(&["startx"], &path.join("absent"), 1).1.contains("no such directory"));
    assert!(run(&["startx"], &path.join("mine"), 1).1.contains("not a directory"));
    nothing_left(path);
}

#[test]
fn help_and_list_name_what_there_is() {
    let (help, _) = ended(&fsbench().args(["run", "--help"]).output().expect("fsbench"), 0);
    assert!(help.contains("Examples:") && help.contains("--scale"), "{help}");
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    // They end by their own work only, whatever was asked for.
    assert!(words.contains("done whole is: find, log, compile, reclaim"), "{help}");
    let (list, _) = ended(&fsbench().arg("list").output().expect("fsbench"), 0);
    let papers = ["cvs-update", "startx", "surge", "tpcw-browsing", "tpcw-shopping", "tpcw-ordering"];
    let centre = ["single-file", "zipf-0", "zipf-4", "zipf-alpha", "shared", "hybrid", "rubis", "rubbos"];
    for name in papers.into_iter().chain(["postmark", "find", "compile", "log", "reclaim"]).chain(centre) {
        assert!(list.lines().any(|l| l.split_whitespace().next() == Some(name)), "{name}: {list}");
    }
}

#[test]
fn a_workload_s_parameters_are_listed() {
    let (out, _) = ended(&fsbench().args(["list", "startx"]).output().expect("fsbench"), 0);
    assert!(out.contains("--preset modern") && out.contains("--set libraries=458"), "{out}");
    ended(&fsbench().args(["list", "nothing"]).output().expect("fsbench"), 2);
}

/// Starts a run that goes on until it is ended, and waits until it has made its directory's first files.
fn started(dir: &Path, ready: &str) -> std::process::Child {
    let mut child = fsbench()
        .args(["run", "surge", "--scale", "0.05", "--duration", "1h"])
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("fsbench");
    let until = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(dir.join(ready)).map_or(0, |m| m.len()) == 0 {
        assert!(Instant::now() < until, "{ready} does not come about");
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn ctrl_c_cleans_up() {
    // While files are made, and while the log tells that requests are being answered.
    for ready in ["fsbench.d/FSBENCH", "fsbench.d/access1.log"] {
        for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
            let dir = place();
            let child = started(dir.path(), ready);
            kill(Pid::from_raw(child.id() as i32), signal).expect("a signal");
            let (_, err) = ended(&child.wait_with_output().expect("its end"), code);
            assert!(err.contains("stopped by"), "{err}");
            nothing_left(dir.path());
        }
    }
}

#[test]
fn what_a_killed_run_leaves_is_named_and_can_be_removed() {
    let dir = place();
    let mut child = started(dir.path(), "fsbench.d/FSBENCH");
    let (_, err) = run(&["startx"], dir.path(), 1);
    assert!(err.contains(&format!("process {}", child.id())), "{err}");
    let busy = fsbench().arg("clean").arg(dir.path()).output().expect("fsbench");
    ended(&busy, 1);
    child.kill().expect("a kill");
    child.wait().expect("its end");
    let (_, err) = run(&["startx"], dir.path(), 1);
    assert!(err.contains("fsbench clean"), "{err}");
    ended(&fsbench().arg("clean").arg(dir.path()).output().expect("fsbench"), 0);
    nothing_left(dir.path());
    ended(&fsbench().arg("clean").arg(dir.path()).output().expect("fsbench"), 0);
}

#[test]
fn what_a_killed_comparison_leaves_can_be_removed() {
    let dir = place();
    let args =
        ["compare", "surge", "--scale", "0.05", "--duration", "1h", "--a", "off=0.1", "--b", "off=0.2"];
    let mut command = fsbench();
    command.args(args).arg(dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("fsbench");
    let until = Instant::now() + Duration::from_secs(60);
    while !dir.path().join("fsbench-b.d/fsbench.d/FSBENCH").exists() {
        assert!(Instant::now() < until && child.try_wait().expect("a child").is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    ended(&fsbench().arg("clean").arg(dir.path()).output().expect("fsbench"), 1);
    child.kill().expect("a kill");
    child.wait().expect("its end");
    let (_, err) = ended(&fsbench().args(args).arg(dir.path()).output().expect("fsbench"), 1);
    assert!(err.contains("fsbench clean"), "{err}");
    ended(&fsbench().arg("clean").arg(dir.path()).output().expect("fsbench"), 0);
    nothing_left(dir.path());
    // What is called so and is somebody's stays.
    let theirs = dir.path().join("fsbench-a.d");
    std::fs::create_dir(&theirs).expect("a directory");
    std::fs::write(theirs.join("file"), b"theirs").expect("a file");
    ended(&fsbench().arg("clean").arg(dir.path()).output().expect("fsbench"), 0);
    let absent = fsbench().arg("clean").arg(dir.path().join("absent")).output().expect("fsbench");
    assert!(String::from_utf8_lossy(&absent.stderr).contains("absent does not exist"));
    ended(&absent, 2);
    assert!(theirs.join("file").exists());
}

#[test]
fn a_directory_that_vanishes_is_an_error_that_names_it() {
    let dir = place();
    let child = started(dir.path(), "fsbench.d/access1.log");
    std::fs::rename(dir.path().join("fsbench.d/host0"), dir.path().join("fsbench.d/gone")).expect("a rename");
    let (_, err) = ended(&child.wait_with_output().expect("its end"), 1);
    assert!(err.contains("host0"), "{err}");
    nothing_left(dir.path());
}

/// A program in the place of PostMark's: what fsbench real starts.
fn stand_in(script: &str) -> (tempfile::TempDir, std::ffi::OsString) {
    use std::os::unix::fs::PermissionsExt;
    let bin = tempfile::tempdir().expect("a directory");
    let program = bin.path().join("postmark");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let mut path = bin.path().as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    (bin, path)
}

#[test]
fn a_program_that_is_killed_fails_the_run() {
    for (script, says) in
        [("kill -KILL $$", "signal: 9"), ("echo no luck >&2; exit 7", "exit status: 7: no luck")]
    {
        let ((_bin, path), dir) = (stand_in(script), place());
        let output = fsbench().args(["real", "postmark"]).arg(dir.path()).env("PATH", path).output();
        let (_, err) = ended(&output.expect("fsbench"), 1);
        assert!(err.contains("postmark config: ") && err.contains(says), "{err}");
        nothing_left(dir.path());
    }
}

/// `kill` reaches fsbench alone, Ctrl-C both.
#[test]
fn a_signal_to_fsbench_ends_its_program_too() {
    let tmp = tempfile::tempdir().expect("a directory");
    let started = tmp.path().join("pid");
    let ((_bin, path), dir) =
        (stand_in("echo $$ > \"$TMPDIR/new\"; mv \"$TMPDIR/new\" \"$TMPDIR/pid\"; exec sleep 1000"), place());
    let mut command = fsbench();
    command.args(["real", "postmark"]).arg(dir.path()).env("PATH", path).env("TMPDIR", tmp.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fsbench");
    let until = Instant::now() + Duration::from_secs(60);
    while !started.exists() {
        assert!(Instant::now() < until && child.try_wait().expect("a child").is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = std::fs::read_to_string(&started).expect("a number").trim().parse().expect("a number");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("a signal");
    let (_, err) = ended(&child.wait_with_output().expect("its end"), 143);
    assert!(err.contains("stopped by signal 15"), "{err}");
    assert!(kill(Pid::from_raw(pid), None).is_err(), "process {pid} goes on");
    nothing_left(dir.path());
}

/// Found: it panicked when all was measured, and neither table nor document was written.
#[test]
fn a_directory_s_name_may_be_of_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let (around, results) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("one"));
    let dir = around.path().join(std::ffi::OsStr::from_bytes(b"a\xffb"));
    std::fs::create_dir(&dir).expect("a directory");
    let json = results.path().join("r.json");
    let mut command = fsbench();
    command.args(["run", "cvs-update", "--scale", "0.02", "--json"]).arg(&json).arg(&dir);
    let (out, err) = ended(&command.output().expect("fsbench"), 0);
    assert!(out.contains("as written"), "{out}{err}");
    let document = std::fs::read_to_string(&json).expect("a document");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let last = document["arguments"].as_array().and_then(|all| all.last()).expect("arguments");
    assert!(last.as_str().expect("text").ends_with("a\u{fffd}b"), "{last}");
}

#[test]
fn damage_fails_the_run() {
    let dir = place();
    let small = ["startx", "--scale", "0.1", "--set", "think_max_us=0", "--set", "think_min_us=0"];
    let mut prepare = small.to_vec();
    prepare.extend(["--runs", "0", "--keep"]);
    run(&prepare, dir.path(), 0);
    let victim = dir.path().join("fsbench.d/bin/p00");
    let mut bytes = std::fs::read(&victim).expect("a program");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&victim, bytes).expect("damage");
    let mut again = small.to_vec();
    again.push("--reuse");
    let (out, err) = run(&again, dir.path(), 1);
    assert!(err.contains("bin/p00") && err.contains(&format!("byte {last} ")), "{out}{err}");
    assert_eq!(names_in(dir.path()), ["mine"], "a reused site is removed after its run");
}

/// Found: cvs was asked for the files that are younger than it wrote down, of which there is none, and all were as written.
#[test]
fn damage_to_a_real_working_copy_fails_the_run() {
    for program in ["git", "cvs"] {
        let dir = place();
        let run = |more: &[&str]| {
            let mut command = fsbench();
            command.args(["real", program]).arg(dir.path()).args(["--scale", "0.01"]).args(more);
            command.output().expect("fsbench")
        };
        let (out, _) = ended(&run(&["--runs", "0", "--keep"]), 0);
        if out.starts_with("skipped: ") {
            eprintln!("{out}");
            continue;
        }
        let victim = dir.path().join("fsbench.d/work/dir000/file00000.c");
        let file = std::fs::File::options().read(true).write(true).open(&victim).expect("a file");
        let dated = file.metadata().expect("its dates").modified().expect("its date");
        std::os::unix::fs::FileExt::write_all_at(&file, b"#", 20).expect("damage");
        // As if the volume had read another block for it.
        file.set_modified(dated).expect("its date");
        drop(file);
        let (out, err) = ended(&run(&["--reuse"]), 1);
        assert!(err.contains("not what was written") || err.contains("nobody made"), "{program}: {out}{err}");
        nothing_left(dir.path());
    }
}

#[test]
fn prepared_files_serve_one_later_run_of_the_same_kind() {
    let dir = place();
    let args = ["cvs-update", "--scale", "0.02"];
    let with = |more: &[&'static str]| [&args[..], more].concat();
    run(&with(&["--runs", "0", "--keep"]), dir.path(), 0);
    let (_, err) = run(&with(&["--reuse", "--seed", "2"]), dir.path(), 1);
    assert!(err.contains("seed 1"), "{err}");
    let (out, _) = run(&with(&["--reuse", "--keep"]), dir.path(), 0);
    assert!(out.contains("as written"), "{out}");
    let (_, err) = run(&with(&["--reuse"]), dir.path(), 1);
    assert!(err.contains("a run has changed it"), "{err}");
    ended(&fsbench().arg("clean").arg(dir.path()).output().expect("fsbench"), 0);
    nothing_left(dir.path());
}

#[test]
fn a_script_without_an_end_is_refused() {
    let dir = place();
    let script = dir.path().join("zero.f");
    std::os::unix::fs::symlink("/dev/zero", &script).expect("a link");
    let (_, err) = run(&[script.to_str().expect("a name in text")], dir.path(), 1);
    assert!(err.contains("zero.f: reading the script: more than 1 MiB"), "{err}");
}
