//! `fsbench run` with the options that measure, in a directory of any file system.

use std::ffi::OsString;
use std::path::Path;

use fs2_tools::fsbench::measure::{Document, RunKind};

/// Exit code, output, errors.
fn fsbench(args: &[&str], dir: &Path) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("fsbench").chain(args.iter().copied()).map(OsString::from);
    let code = fs2_tools::fsbench::run(args.chain([dir.as_os_str().to_owned()]), &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

const SMALL: [&str; 4] = ["run", "cvs-update", "--scale", "0.02"];

#[test]
fn everything_measured_is_in_one_document() {
    let dir = tempfile::tempdir().unwrap();
    let out_dir = tempfile::tempdir().unwrap();
    let (json, csv) = (out_dir.path().join("r.json"), out_dir.path().join("i.csv"));
    let args = ["--runs", "3", "--train", "1", "--seed", "5", "--json", json.to_str().unwrap()];
    let all: Vec<&str> = SMALL.into_iter().chain(args).chain(["--interval", csv.to_str().unwrap()]).collect();
    let (code, out, err) = fsbench(&all, dir.path());
    assert_eq!(code, 0, "{out}{err}");
    let document = Document::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((document.workload.name.as_str(), document.workload.seed), ("cvs-update", 5));
    let kinds: Vec<RunKind> = document.runs.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [RunKind::Train, RunKind::Measured, RunKind::Measured, RunKind::Measured]);
    assert_eq!(document.summary["elapsed_s"].n, 3);
    assert!(document.runs.iter().all(|r| r.ops > 0 && r.elapsed_s > 0.0 && r.short.is_none()));
    assert!(
        document.runs.iter().all(|r| r.energy.iter().all(|e| e.joules != Some(0.0))),
        "unavailable is not 0"
    );
    assert!(document.environment.file_system.is_some());
    let class = &document.runs[1].classes[0];
    assert_eq!(
        document.latency(&class.name).count(),
        document.measured().map(|r| r.classes[0].ops).sum::<u64>()
    );
    assert!(out.contains("95 % ±") && out.contains("elapsed_s"), "{out}");
    let rows = std::fs::read_to_string(&csv).unwrap();
    let ops: u64 = rows.lines().skip(1).map(|r| r.split(',').nth(2).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(ops, document.runs.iter().map(|r| r.ops).sum::<u64>());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn runs_go_on_until_the_interval_is_narrow_or_the_most_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let out_dir = tempfile::tempdir().unwrap();
    let json = out_dir.path().join("r.json");
    let run = |share: &str| {
        let args =
            ["--until-ci", share, "--max-runs", "4", "--quiet-warnings", "--json", json.to_str().unwrap()];
        let all: Vec<&str> = SMALL.into_iter().chain(args).collect();
        let (code, out, err) = fsbench(&all, dir.path());
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        Document::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap()
    };
    // No two runs are that equal, and no clock that good.
    let never = run("0.0001%");
    assert_eq!(never.measured().count(), 4);
    assert!(
        never.warnings.iter().any(|w| w.contains("after 4 runs") && w.contains("--max-runs")),
        "{:?}",
        never.warnings
    );
    let soon = run("99.9%").measured().count();
    assert!((3..=4).contains(&soon), "{soon}");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for (args, says) in [
        (vec!["--mem-limit", "1k"], "at least 4m"),
        (vec!["--cold", "remount"], "--cold"),
        (vec!["--until-ci", "x"], "no share"),
        (vec!["--interval", "/absent/dir/i.csv"], "/absent/dir/i.csv"),
    ] {
        let all: Vec<&str> = SMALL.into_iter().chain(args).collect();
        let (code, _, err) = fsbench(&all, dir.path());
        // A temporary directory of a machine may be a mount of its own; then root can do it.
        if code == 0 && says == "--cold" {
            continue;
        }
        assert!(code != 0 && err.contains(says), "{code} {err}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// Found: its rate was 2e11 a second, or none, and the exit code 0; and of a meter that was not there not a word.
#[test]
fn a_pass_within_its_warm_up_is_too_short_and_a_silent_meter_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) =
        fsbench(&[&SMALL[..], &["--warmup", "1h", "--meter", "/nonexistent"]].concat(), dir.path());
    assert!(code == 1 && format!("{out}{err}").contains("within the warm-up"), "{code}\n{out}\n{err}");
    let (code, out, err) = fsbench(&[&SMALL[..], &["--meter", "/nonexistent"]].concat(), dir.path());
    assert!(code == 0 && format!("{out}{err}").contains("--meter: /nonexistent"), "{code}\n{out}\n{err}");
}

/// Found: the energy of the warm-up was the run's, its time was not: 10 W for 8 s in a run of 2 s.
#[test]
fn a_meter_is_read_from_the_end_of_the_warm_up() {
    let (dir, out_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (json, meter) = (out_dir.path().join("r.json"), out_dir.path().join("m.csv"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let watts: String = (now - 10..now + 600).map(|s| format!("{s},10\n")).collect();
    std::fs::write(&meter, watts).unwrap();
    for name in ["zipf-0", "varmail"] {
        let args = ["run", name, "--scale", "0.1", "--duration", "500ms", "--warmup", "1500ms"];
        let files = ["--json", json.to_str().unwrap(), "--meter", meter.to_str().unwrap()];
        let (code, out, err) = fsbench(&[&args[..], &files].concat(), dir.path());
        assert_eq!(code, 0, "{out}{err}");
        let document = Document::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
        let run = &document.runs[0];
        let joules = run.energy.iter().find(|e| e.source == "meter").unwrap().joules.unwrap();
        // Threads end after the run, and begin what follows its warm-up late; on a busy machine by some time.
        let seconds = joules / 10.0 - run.elapsed_s;
        assert!((-0.4..1.0).contains(&seconds), "{name}: {joules} J in {} s", run.elapsed_s);
    }
    // What ends within it has none.
    let args = [&SMALL[..], &["--warmup", "1h", "--json", json.to_str().unwrap()]].concat();
    let (code, out, err) = fsbench(&[&args[..], &["--meter", meter.to_str().unwrap()]].concat(), dir.path());
    assert_eq!(code, 1, "{out}{err}");
    let document = Document::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let energy = &document.runs[0].energy;
    assert!(energy.len() == 2 && energy.iter().all(|e| e.joules.is_none()), "{energy:?}");
}

/// Found: its file was read as the run ended, when it had not told of the last second yet: no run had a figure.
#[test]
fn a_meter_that_goes_on_is_waited_for() {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};
    let (dir, out_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (json, meter) = (out_dir.path().join("r.json"), out_dir.path().join("m.csv"));
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut file = std::fs::File::create(&meter).unwrap();
    let mut next = now() - 10;
    let mut record = move || {
        while next <= now() {
            // In two pieces: who looks meanwhile sees half of a line.
            write!(file, "{next},1").unwrap();
            writeln!(file, "0").unwrap();
            next += 1;
        }
    };
    record();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(20));
                record();
            }
        });
        let args = ["run", "zipf-0", "--scale", "0.1", "--duration", "500ms", "--runs", "2"];
        let files = ["--json", json.to_str().unwrap(), "--meter", meter.to_str().unwrap()];
        let (code, out, err) = fsbench(&[&args[..], &files].concat(), dir.path());
        over.store(true, Ordering::Relaxed);
        assert_eq!(code, 0, "{out}{err}");
    });
    let document = Document::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let read: Vec<_> = document.runs.iter().flat_map(|r| &r.energy).filter(|e| e.source == "meter").collect();
    assert!(read.len() == 2 && read.iter().all(|e| e.joules.is_some()), "{read:?}");
}

/// Found: the document replaced the table of seconds, or what a meter had recorded.
#[test]
fn one_file_is_not_two_outputs_nor_an_input() {
    let dir = tempfile::tempdir().unwrap();
    let out_dir = tempfile::tempdir().unwrap();
    let at = |name: &str| out_dir.path().join(name).to_str().unwrap().to_owned();
    let (one, link) = (at("one"), at("link"));
    std::fs::write(&one, "1,2\n").unwrap();
    std::os::unix::fs::symlink("one", &link).unwrap();
    let script = at("script.f");
    std::fs::write(&script, "").unwrap();
    for (args, says) in [
        (["run", "cvs-update", "--json", &one, "--interval", &link], "two outputs are the same file"),
        (["run", "cvs-update", "--json", &one, "--meter", &link], "which is read"),
        (["run", "cvs-update", "--interval", &link, "--meter", &one], "which is read"),
        (["run", &script, "--json", &script, "--interval", &one], "it is read"),
        (["compare", "cvs-update", "--json", &one, "--meter", &link], "which is read"),
    ] {
        let more: &[&str] = if args[0] == "compare" { &["--b", "touch=5"] } else { &[] };
        let (code, _, err) = fsbench(&[&args, more].concat(), dir.path());
        assert!(code == 1 && err.contains(says) && err.contains("another name"), "{args:?}: {code} {err}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    let plan = at("plan.toml");
    std::fs::write(
        &plan,
        "size = '2g'\ndrives = ['wd800-repaired']\nsystems = ['ext2']\n[[workload]]\nname = 'cvs-update'\n",
    )
    .unwrap();
    let (code, _, err) = fsbench(&["sweep", "--html", &plan], Path::new(&plan));
    assert!(code == 1 && err.contains("it is read"), "{code} {err}");
    assert_eq!(std::fs::read_to_string(&one).unwrap(), "1,2\n");
}

/// What is written to it, and whether anything had been made in a directory by then.
struct Told<'a> {
    dir: &'a Path,
    before: std::time::SystemTime,
    early: String,
    late: String,
}

impl std::io::Write for Told<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let untouched = std::fs::metadata(self.dir)?.modified()? == self.before;
        let text = if untouched { &mut self.early } else { &mut self.late };
        text.push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Found: `compare` told after all its runs what `run` tells before the first.
#[test]
fn a_comparison_warns_before_its_runs() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = dirs.each_ref().map(|dir| dir.path().to_str().unwrap());
    let dir = dirs[0].path();
    let before = std::fs::metadata(dir).unwrap().modified().unwrap();
    let mut err = Told { dir, before, early: String::new(), late: String::new() };
    let args = ["fsbench", "compare", "cvs-update", a, b, "--scale", "0.02", "--runs", "2"];
    assert_eq!(fs2_tools::fsbench::run(args.map(OsString::from), &mut Vec::new(), &mut err), 0);
    let Told { early, late, .. } = err;
    assert!(early.contains("fsbench: warning: A: the files") && !early.contains(": B: "), "{early}");
    assert_eq!(late.matches("warning: B: the files").count(), 1, "{late}");
    assert!(!late.contains("warning: A: the files"), "{late}");
}

#[test]
fn files_that_fit_into_memory_are_told_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let out_dir = tempfile::tempdir().unwrap();
    let json = out_dir.path().join("r.json");
    let run = |more: &[&str]| {
        let all: Vec<&str> =
            SMALL.into_iter().chain(["--json", json.to_str().unwrap()]).chain(more.iter().copied()).collect();
        let (code, out, err) = fsbench(&all, dir.path());
        assert_eq!(code, 0, "{out}{err}");
        let document = Document::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
        (err, document.warnings)
    };
    let (err, warnings) = run(&[]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("the memory there is") && warnings[0].contains("--cold remount"),
        "{warnings:?}"
    );
    assert_eq!(err, format!("fsbench: warning: {}\n", warnings[0]), "once");
    let (err, warnings) = run(&["--quiet-warnings", "--runs", "2"]);
    assert_eq!(err, "");
    assert!(warnings[0].contains("--cold remount"), "{warnings:?}");
    // Nothing is measured.
    assert_eq!(run(&["--runs", "0"]).0, "");
    // Told before it is refused for want of a place, there would be nothing to tell of.
    let (code, _, err) = fsbench(&SMALL, &dir.path().join("absent"));
    assert!(code == 1 && !err.contains("warning"), "{err}");
    let (code, _, err) = fsbench(&["run", "cvs-update", "--set", "ageing_mib=1000000000"], dir.path());
    assert!(code == 1 && !err.contains("warning"), "{err}");
}

#[test]
fn two_settings_in_one_directory_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let out_dir = tempfile::tempdir().unwrap();
    let json = out_dir.path().join("c.json");
    let path = dir.path().to_str().unwrap().to_owned();
    let args = [
        "compare",
        "cvs-update",
        &path,
        "--scale",
        "0.02",
        "--runs",
        "3",
        "--a",
        "touch=0",
        "--b",
        "touch=40",
    ];
    let all: Vec<&str> = args.into_iter().chain(["--quiet-warnings", "--json"]).collect();
    let (code, out, err) = fsbench(&all, &json);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("touch=0") && out.contains("touch=40") && out.contains("B to A"), "{out}");
    let all: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let read = |side: &str| -> u64 {
        let classes = all[side]["runs"][0]["classes"].as_array().unwrap();
        classes.iter().map(|c| c["bytes_read"].as_u64().unwrap()).sum()
    };
    assert!(read("b") > read("a"), "forty files more are read");
    assert!(all["compared"]["elapsed_s"]["relative"].is_number());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    // Nothing to compare.
    let same = ["compare", "cvs-update", &path, "--quiet-warnings", "--json"];
    let (code, _, err) = fsbench(&same, &json);
    assert!(code == 2 && err.contains("--a and --b"), "{err}");
    // By two names: B was refused for what A had just made.
    let twice = dir.path().join(".");
    let same = ["compare", "cvs-update", &path, twice.to_str().unwrap(), "--quiet-warnings", "--json"];
    let (code, _, err) = fsbench(&same, &json);
    assert!(code == 2 && err.contains("--a and --b"), "{err}");
}

/// Standard output of somebody who has seen enough.
struct Closed;

impl std::io::Write for Closed {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_measured_is_written_before_it_is_printed() {
    let (dir, out_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().to_str().unwrap();
    let small = ["cvs-update", path, "--scale", "0.02", "--quiet-warnings", "--json"];
    for (command, more) in
        [("run", &[][..]), ("compare", &["--runs", "2", "--a", "touch=0", "--b", "touch=1"])]
    {
        let json = out_dir.path().join(command);
        let args = ["fsbench", command].into_iter().chain(small).chain([json.to_str().unwrap()]);
        let args = args.chain(more.iter().copied()).map(OsString::from);
        let mut err = Vec::new();
        assert_eq!(fs2_tools::fsbench::run(args, &mut Closed, &mut err), 1, "{command}");
        assert!(String::from_utf8_lossy(&err).contains("writing the output"), "{command}");
        let text = std::fs::read_to_string(&json).unwrap_or_else(|e| panic!("{command}: {e}"));
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{command}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_document_that_cannot_be_written_is_refused_before_the_run() {
    let (dir, out_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().to_str().unwrap();
    let fifo = out_dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let small = ["cvs-update", path, "--scale", "0.02"];
    let run: Vec<&str> = ["run", "--keep"].into_iter().chain(small).collect();
    let settings = ["--runs", "2", "--a", "touch=0", "--b", "touch=1"];
    let compare: Vec<&str> = ["compare"].into_iter().chain(small).chain(settings).collect();
    for (json, says) in [(fifo.as_path(), "not a file"), (Path::new("/absent/dir/r.json"), "No such file")] {
        for args in [&run[..], &compare, &["paper"]] {
            let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
            let (code, out, err) = fsbench(&args, json);
            assert_eq!((code, out.as_str()), (1, ""), "{args:?}: {err}");
            // No warning either, which is told when the run begins.
            assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
            assert!(err.contains(&format!("{}: ", json.display())) && err.contains(says), "{args:?}: {err}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?}");
        }
    }
    assert!(!fifo.symlink_metadata().unwrap().is_file(), "it is what it was");
}

#[test]
fn the_table_is_printed_whatever_becomes_of_the_document() {
    let (dir, out_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().to_str().unwrap();
    let small = ["cvs-update", path, "--scale", "0.05", "--quiet-warnings", "--json"];
    for (command, more, says) in [
        ("run", &["--runs", "2"][..], "as written"),
        ("compare", &["--runs", "2", "--a", "touch=0", "--b", "touch=1"], "B to A"),
    ] {
        let gone = out_dir.path().join(command);
        std::fs::create_dir(&gone).unwrap();
        let json = gone.join("r.json");
        let args = [command].into_iter().chain(small).chain([json.to_str().unwrap()]);
        let args = args.chain(more.iter().copied()).map(OsString::from);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = std::thread::scope(|scope| {
            scope.spawn(|| {
                // The run has begun: something lies in its directory.
                while std::fs::read_dir(dir.path()).unwrap().next().is_none() {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                std::fs::remove_dir(&gone).unwrap();
            });
            fs2_tools::fsbench::run(std::iter::once("fsbench".into()).chain(args), &mut out, &mut err)
        });
        let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
        assert_eq!(code, 1, "{command}: {out}{err}");
        assert!(out.contains(says) && err.contains("r.json: No such file"), "{command}: {out}{err}");
    }
}

#[test]
fn a_document_on_standard_output_sends_the_tables_to_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let small = ["cvs-update", path, "--scale", "0.02", "--quiet-warnings", "--json"];
    for (command, more, says) in [
        ("run", &[][..], "as written"),
        ("compare", &["--runs", "2", "--a", "touch=0", "--b", "touch=1"], "B to A"),
    ] {
        let args: Vec<&str> = [command].into_iter().chain(more.iter().copied()).chain(small).collect();
        let (code, out, err) = fsbench(&args, Path::new("-"));
        assert_eq!(code, 0, "{command}: {out}{err}");
        assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok(), "{command}: {out}");
        assert!(err.contains(says), "{command}: {err}");
    }
    assert!(!Path::new("-").exists());
}

#[test]
fn a_run_of_no_time_or_no_operation_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let compare = ["compare", "cvs-update", "--a", "touch=0", "--b", "touch=1"];
    for (command, option) in [
        (&SMALL[..], ["--ops", "0"]),
        (&SMALL, ["--duration", "0s"]),
        (&SMALL, ["--duration", "0.0000000001ms"]),
        (&compare, ["--duration", "0"]),
    ] {
        let args: Vec<&str> = command.iter().copied().chain(option).collect();
        let (code, out, err) = fsbench(&args, dir.path());
        assert_eq!((code, out.as_str()), (2, ""), "{option:?}: {err}");
        assert!(err.contains(option[0]) && err.contains("more than 0"), "{option:?}: {err}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    let (code, _, err) = fsbench(&["paper", "--duration", "0", "--work-dir"], dir.path());
    assert!(code == 2 && err.contains("more than 0"), "{err}");
}

#[test]
fn a_real_program_runs_or_is_skipped_with_its_package() {
    let dir = tempfile::tempdir().unwrap();
    for program in ["git", "cvs", "postmark"] {
        let args = ["real", program, "--scale", "0.02", "--runs", "2", "--quiet-warnings"];
        let (code, out, err) = fsbench(&args, dir.path());
        assert_eq!(code, 0, "{out}{err}");
        let skipped = out.starts_with("skipped: ") && out.contains("apt-get install");
        assert!(skipped || out.contains("as written"), "{program}: {out}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// Found: it went on for its own time whatever was asked for, and what the warm-up did counted.
#[test]
fn a_real_database_is_asked_for_as_long_as_was_said() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, out_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The server is another user.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let json = out_dir.path().join("r.json");
    let args = ["real", "postgres", "--set", "pg_scale=1", "--set", "pg_seconds=9", "--duration", "1s"];
    let more = ["--warmup", "1s", "--quiet-warnings", "--json", json.to_str().unwrap()];
    // Options of `real` stand behind the directory.
    let all: Vec<&str> = args[..2].iter().chain([&dir.path().to_str().unwrap()]).copied().collect();
    let all: Vec<&str> = all.into_iter().chain(args[2..].iter().chain(&more).copied()).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = std::iter::once("fsbench").chain(all).map(OsString::from);
    let code = fs2_tools::fsbench::run(words, &mut out, &mut err);
    let said = String::from_utf8([out, err].concat()).unwrap();
    assert_eq!(code, 0, "{said}");
    if said.starts_with("skipped: ") {
        eprintln!("{said}");
        return;
    }
    let document = Document::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let run = &document.runs[0];
    // What it is told, in whole seconds with the rest of the warm-up.
    assert!((1.0..2.0).contains(&run.elapsed_s), "{said}");
    // Where the server took all of the warm-up to start, throughput is in the program's own words.
    if run.elapsed_s > 1.0 {
        let (told, counted) = (run.figures["throughput_tx_per_s"], run.ops_per_s().unwrap());
        assert!((told - counted).abs() < 1e-6 * counted, "{told} {counted}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Found: what only the second workload refuses was refused when the first had run for hours, whose figures went with it.
#[test]
fn a_paper_that_makes_no_sense_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    for (size, workload, more, says) in [
        ("100m", "cvs", ["--drive", "nonsense"], "nonsense"),
        ("100m", "cvs", ["--mem-limit", "much"], "--mem-limit: 'much' is no size"),
        ("100m", "cvs", ["--set", "nothing=1"], "no such parameter"),
        ("1m", "cvs", ["--seed", "2"], "more than --size"),
        // Of a bookshop only.
        ("8g", "all", ["--preset", "class-0"], "cvs-update has no preset 'class-0'"),
    ] {
        let one = ["paper", "--scale", "0.02", "--runs", "1", "--size", size, "--workload", workload];
        let args: Vec<&str> = one.into_iter().chain(more).chain(["--work-dir"]).collect();
        let (code, _, err) = fsbench(&args, dir.path());
        assert!(code == 2 && err.contains(says) && !err.contains("making"), "{args:?}: {code} {err}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
