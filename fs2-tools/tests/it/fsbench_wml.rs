//! FileBench's language: every script of `tests/wml` runs and counts what its comments work out by hand; wrong scripts
//! are told where they are wrong; the personalities do what they are known for. Needs neither root nor FileBench.
//!
//! A script's comments: `mix: a=1 b=5` ratios of counts, within 1 %; `exact: a=100` counts (within `slack: n`);
//! `bytes: a=4096 2` mean bytes of an operation, within so many percent; `drawn: a=10` mean of a `testrandvar`, within
//! 2 %; `said: text`; `ended:` why; `ops:` how many operations to run; `needs: direct` a file system with direct I/O.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fs2_tools::fsbench::wml::{Ended, Event, RunError, RunOptions, RunReport, Script, Site, filebench};

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn scripts(of: &str) -> Vec<(String, String)> {
    let mut found: Vec<_> = std::fs::read_dir(dir(of))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "f"))
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no scripts in {of}");
    found
}

/// The values of a comment's keyword.
fn said<'a>(source: &'a str, keyword: &'a str) -> impl Iterator<Item = &'a str> {
    source.lines().filter_map(move |line| line.strip_prefix("# ")?.strip_prefix(keyword)?.strip_prefix(": "))
}

fn pairs(text: &str) -> Vec<(&str, f64)> {
    text.split_whitespace()
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or_else(|| panic!("{pair}"));
            (name, value.parse().unwrap())
        })
        .collect()
}

fn counts(report: &RunReport) -> HashMap<&str, (f64, f64)> {
    report.ops.iter().map(|op| (op.name.as_str(), (op.count as f64, op.bytes as f64))).collect()
}

fn plan_and_run(
    file: &str,
    source: &str,
    set: &[(&str, &str)],
    options: &RunOptions,
) -> Result<(RunReport, Vec<String>), RunError> {
    let set: Vec<_> = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let plan = Script::parse(file, source).and_then(|s| s.plan(&set)).unwrap_or_else(|e| panic!("{e}"));
    let dir = tempfile::tempdir().unwrap();
    let site = plan.create(dir.path(), options)?;
    let mut words = Vec::new();
    let report = site.run(options, &mut |event| {
        if let Event::Said(text) = event {
            words.push(text);
        }
    })?;
    assert_verified(&site, options);
    Ok((report, words))
}

fn assert_verified(site: &Site, options: &RunOptions) {
    let found = site.verify(options);
    assert_eq!(found.damaged, 0, "{:?}", found.examples);
}

fn mix(file: &str, counts: &HashMap<&str, (f64, f64)>, mix: &str) {
    let mix = pairs(mix);
    let (first, unit) = mix[0];
    let loops = counts[first].0 / unit;
    assert!(
        loops >= 100.0 || mix.len() == 1 || file == "create.f" || file == "limits.f",
        "{file}: {loops} loops"
    );
    for (name, ratio) in mix {
        let found = counts.get(name).unwrap_or_else(|| panic!("{file}: no flowop {name}")).0 / loops;
        assert!((found / ratio - 1.0).abs() < 0.01, "{file}: {name} {found} for each {first}, not {ratio}");
    }
}

#[test]
fn the_corpus_counts_what_was_worked_out_by_hand() {
    for (file, source) in scripts("tests/wml") {
        let began = Instant::now();
        // Long enough never to be why a script ends: all of them end by themselves.
        let options = RunOptions {
            runtime: Some(Duration::from_secs(600)),
            ops: said(&source, "ops").next().map(|n| n.parse().unwrap()),
            ..RunOptions::default()
        };
        let (report, words) = match plan_and_run(&file, &source, &[], &options) {
            Ok(done) => done,
            Err(e)
                if said(&source, "needs").any(|n| n == "direct") && e.to_string().contains("direct I/O") =>
            {
                println!("{file}: skipped, no direct I/O in the temporary directory");
                continue;
            }
            Err(e) => panic!("{file}: {e}: {:?}", std::error::Error::source(&e)),
        };
        let counts = counts(&report);
        said(&source, "mix").for_each(|text| mix(&file, &counts, text));
        let slack: f64 = said(&source, "slack").next().map_or(0.0, |n| n.parse().unwrap());
        for (name, count) in said(&source, "exact").flat_map(pairs) {
            assert!(
                (counts[name].0 - count).abs() <= slack,
                "{file}: {name} {:?}, not {count}",
                counts[name].0
            );
        }
        for text in said(&source, "bytes") {
            let (pair, percent) = text.split_once(' ').unwrap_or((text, "0.1"));
            let (name, bytes) = pairs(pair)[0];
            let (found, percent) = (counts[name].1 / counts[name].0, percent.parse::<f64>().unwrap());
            assert!(
                (found / bytes - 1.0).abs() * 100.0 <= percent,
                "{file}: {name} {found} bytes, not {bytes}"
            );
        }
        for (name, mean) in said(&source, "drawn").flat_map(pairs) {
            let found = report.ops.iter().find(|op| op.name == name).and_then(|op| op.drawn).unwrap().0;
            assert!((found / mean - 1.0).abs() < 0.02, "{file}: {name} {found}, not {mean}");
        }
        for text in said(&source, "said") {
            assert!(words.iter().any(|w| w.trim() == text), "{file}: `{text}` is not in {words:?}");
        }
        let ended = match report.ended {
            Some(Ended::Finished(_)) => "finished",
            Some(Ended::FirstDone(_)) => "firstdone",
            Some(Ended::AllDone) => "alldone",
            Some(Ended::Ops) => "ops",
            other => panic!("{file}: ended {other:?}"),
        };
        assert_eq!(said(&source, "ended").next(), Some(ended), "{file}");
        if file == "database.f" {
            semaphores(&counts);
        }
        println!("{file}: {:.2} s", began.elapsed().as_secs_f64());
    }
}

/// See `database.f`. The opening of each file counts with the flowop that did it; asynchronous flowops of both writers
/// count together. What is blocked at the end has been written for once more.
fn semaphores(counts: &HashMap<&str, (f64, f64)>) {
    let posts = counts["post-log"].0;
    let log = counts["log-write"].0 - 1.0;
    assert!(
        ((posts - 30.0) / 20.0 - 1.0..=posts / 20.0 + 2.0).contains(&log),
        "{log} log writes, {posts} posts"
    );
    let posts = counts["post-db"].0;
    for name in ["db-write-a", "db-write-b"] {
        let writes = counts[name].0 - 2.0;
        let bounds = 10.0 * ((posts - 60.0) / 50.0 - 1.0)..=10.0 * (posts / 50.0 + 2.0);
        assert!(bounds.contains(&writes), "{writes} {name} for {posts} posts");
    }
}

#[test]
fn wrong_scripts_are_told_where() {
    let mut wrong = Vec::new();
    for (file, source) in scripts("tests/wml/bad") {
        let expected = said(&source, "error").next().unwrap_or_else(|| panic!("{file} expects nothing"));
        let found = Script::parse(&file, &source).and_then(|s| s.plan(&[])).expect_err(&file);
        if found.to_string() != format!("{file}:{expected}") {
            wrong.push(format!("{found}\n  expected {file}:{expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let script = Script::parse("x.f", "set $iosize=2k").unwrap();
    let wrong = script.plan(&[("iosiz".into(), "4k".into())]).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "x.f:1:1: unknown variable in --set: the script has no `iosiz`: did you mean `iosize`?"
    );
}

fn personality(name: &str) -> String {
    std::fs::read_to_string(dir(&format!("src/fsbench/wml/personalities/{name}.f"))).unwrap()
}

/// Loops of section "personalities" of docs/fsbench-language.md, small: the mix of operations to 1 %, and bytes where
/// the script fixes them.
#[test]
fn personalities_have_their_mixes() {
    let small = [("files", "100"), ("threads", "4"), ("filesize", "4k")];
    for (name, set, ops, mixes) in [
        // 31 operations a loop.
        ("webserver", &small[..], 31_000, "log=1 page.open=10 page.read=10 page.close=10"),
        // 11 operations a loop.
        (
            "fileserver",
            &small[..],
            11_000,
            "create=1 write=1 close-written=1 open-to-append=1 append=1 close-appended=1 open-to-read=1 read=1 \
             close-read=1 delete=1 stat=1",
        ),
        // 13 operations a loop, two of them fsync.
        (
            "varmail",
            &small[..],
            13_000,
            "delete=1 create=1 deliver=1 sync-delivered=1 close-delivered=1 open-to-answer=1 read-answered=1 answer=1 \
             sync-answered=1 close-answered=1 open-to-read=1 read=1 close-read=1",
        ),
        // 19 operations a loop.
        (
            "webproxy",
            &small[..],
            19_000,
            "delete=1 create=1 store=1 close-stored=1 hit.open=5 hit.read=5 hit.close=5",
        ),
    ] {
        let options = RunOptions { ops: Some(ops), ..RunOptions::default() };
        let (report, _) =
            plan_and_run(name, &personality(name), set, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        mix(name, &counts(&report), mixes);
        assert_eq!(report.ended, Some(Ended::Ops), "{name}");
    }
}

/// Twenty shadows read 2 KB, or what `--set iosize` says; writers write behind them.
#[test]
fn a_database_by_the_size_of_its_reads() {
    for (iosize, bytes) in [("1k", 1024.0), ("2k", 2048.0), ("8k", 8192.0)] {
        let set = [
            ("files", "2"),
            ("filesize", "256k"),
            ("logsize", "256k"),
            ("shadows", "5"),
            ("writers", "1"),
            ("usermode", "100"),
            ("iosize", iosize),
        ];
        let options = RunOptions { ops: Some(6000), ..RunOptions::default() };
        let (report, _) = plan_and_run("oltp.f", &personality("oltp"), &set, &options).unwrap();
        let counts = counts(&report);
        // Openings count as reads of nothing: five shadows open two files each, unless one is late.
        let (reads, read) = counts["shadow-read"];
        let full = read / bytes;
        assert!(
            full.fract() == 0.0 && (5.0..=10.0).contains(&(reads - full)),
            "{read} bytes in {reads} reads"
        );
        // Posts follow reads one to one, but for those the five are in.
        assert!((counts["post-db"].0 - full).abs() <= 5.0, "{counts:?}");
        // A hundred writes at the beginning, and for each thousand posts.
        let rounds = (counts["db-write"].0 - 2.0) / 100.0;
        let posts = counts["post-db"].0 / 1000.0;
        assert!(
            (posts - 2.0 - 1.0..=posts + 2.0).contains(&rounds),
            "{rounds} rounds for {posts} thousand posts"
        );
    }
}

/// Readers at 64 MiB a second in all, by 256 KiB: no more than that and the five seconds that may be saved up.
#[test]
fn films_are_read_at_their_rate_and_replaced() {
    let set = [
        ("active", "3"),
        ("passive", "4"),
        ("filesize", "1m"),
        ("threads", "2"),
        ("rate", "64"),
        ("interval", "0"),
    ];
    let options = RunOptions { runtime: Some(Duration::from_millis(500)), ..RunOptions::default() };
    let (report, _) = plan_and_run("videoserver.f", &personality("videoserver"), &set, &options).unwrap();
    let counts = counts(&report);
    let seconds = report.elapsed.as_secs_f64();
    let (_, bytes) = counts["read"];
    // Each reader's first turn is free, and each limit takes whole MiB.
    assert!(bytes <= (64.0 * seconds + 4.0) * 1048576.0, "{bytes} bytes in {seconds} s");
    assert!(counts["remove"].0 >= 1.0 && counts["write"].1 >= 1048576.0, "{counts:?}");
    assert_eq!(report.ended, Some(Ended::Time));
}

#[test]
fn a_run_without_files_names_flowop_and_fileset() {
    let source = "define fileset name=few,path=/tmp,entries=3,dirwidth=5,size=1k,prealloc
        define process name=p { thread name=t { flowop createfile name=more,filesetname=few,fd=1 } }";
    let error = plan_and_run("x.f", source, &[], &RunOptions::default()).unwrap_err();
    assert!(matches!(error, RunError::NoFile { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("flowop more") && text.contains("fileset few, all of whose files exist"), "{text}");
}

#[test]
fn misuse_of_slots_names_flowop_and_line() {
    let set = "define fileset name=a,path=/tmp,entries=3,dirwidth=5,size=1k,prealloc
        define fileset name=b,path=/tmp,entries=3,dirwidth=5,size=1k,prealloc\n";
    for (ops, line, part) in [
        ("flowop closefile name=x,fd=1", 3, "fd 1 is not open"),
        ("flowop fsync name=x", 3, "fd 0 is not open"),
        (
            "flowop openfile name=o,filesetname=a,fd=1\n flowop openfile name=x,filesetname=a,fd=1",
            4,
            "open already",
        ),
        (
            "flowop read name=o,filesetname=a,fd=1,iosize=1\n flowop read name=x,filesetname=b,fd=1,iosize=1",
            4,
            "fileset a open, not of b",
        ),
        ("flowop read name=x,filesetname=a,random,iosize=2k", 3, "more than the 1024"),
        ("flowop read name=x,fd=4,iosize=1k", 3, "nothing is open at fd 4"),
        ("flowop writewholefile name=x,filesetname=a,srcfd=3", 3, "fd 3 (srcfd) had no file"),
    ] {
        let source = format!("{set}define process name=p {{ thread name=t {{ {ops} }} }}");
        let error = plan_and_run("x.f", &source, &[], &RunOptions::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("flowop x") && text.contains(part), "{ops}: {text}");
        assert!(text.contains(&format!("line {line}:")), "{ops}: {text}");
    }
}

/// The same seed draws the same: sizes, choices, offsets; another does not.
#[test]
fn one_thread_repeats_by_its_seed() {
    let source = "set $size=cvar(type=cvar-gamma,parameters=mean:9000;gamma:1.5)
        define fileset name=set,path=/tmp,entries=30,dirwidth=5,size=$size,prealloc=60
        define process name=p { thread name=t,memsize=1m {
          flowop openfile name=open,filesetname=set,fd=1
          flowop appendfilerand name=append,iosize=8k,fd=1,iters=3
          flowop readwholefile name=read,fd=1
          flowop closefile name=close,fd=1
        } }";
    let bytes = |seed| {
        let options = RunOptions { seed, ops: Some(600), ..RunOptions::default() };
        let (report, _) = plan_and_run("x.f", source, &[], &options).unwrap();
        report.ops.iter().map(|op| (op.count, op.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

/// Two runs in one set of files: between them it is put back, and both do the same work.
#[test]
fn files_are_put_back_between_runs() {
    let source = scripts("tests/wml").into_iter().find(|(file, _)| file == "mongo.f").unwrap().1;
    let plan = Script::parse("mongo.f", &source).unwrap().plan(&[]).unwrap();
    let (dir, options) = (tempfile::tempdir().unwrap(), RunOptions::default());
    let site = plan.create(dir.path(), &options).unwrap();
    for run in 0..3 {
        let report = site.run(&options, &mut |_| {}).unwrap();
        assert_eq!(counts(&report)["delete"].0, 80.0, "run {run}");
        assert_verified(&site, &options);
        site.restore(&options).unwrap();
        assert_verified(&site, &options);
    }
}

/// Found: operations of the warm-up were among those asked for, and what ended within it was a run.
#[test]
fn what_the_warm_up_does_counts_for_no_end() {
    let script = |end: &str, how: &str| {
        format!(
            "define fileset name=set,path=/tmp,entries=10,dirwidth=5,size=4k,prealloc
            define process name=p {{ thread name=t,memsize=1m {{
              flowop readwholefile name=read,filesetname=set,fd=1,iters=10
              flowop closefile name=close,fd=1
              {end}
            }} }}
            {how}"
        )
    };
    const BY_HAND: &str = "create processes\nsleep 600\nshutdown processes";
    let warmup = Duration::from_millis(300);
    for (end, ops, least) in [
        ("", Some(500), 500),
        ("flowop finishoncount name=end,value=500", None, 500),
        ("flowop finishoncount name=end,value=50,target=close", None, 550),
        ("flowop finishonbytes name=end,value=1m", None, 300),
    ] {
        for how in ["run 600", BY_HAND] {
            let source = script(end, how);
            let options = RunOptions { ops, warmup, ..RunOptions::default() };
            let began = Instant::now();
            let (report, _) = plan_and_run("x.f", &source, &[], &options).unwrap();
            assert!(began.elapsed() >= warmup && report.within_warmup.is_none(), "{end} {how}");
            let counted: u64 = report.counted().map(|op| op.count).sum();
            // An end is asked for once in a turn of about eleven operations, in the middle of which the warm-up may end.
            let most = if ops.is_some() { least } else { least + 60 };
            assert!((least..=most).contains(&counted), "{end} {how}: {counted}");
            assert!(report.ended.is_some_and(|why| why != Ended::Time), "{end} {how}");
        }
    }
    // Every file is made once: done long before the warm-up is.
    let source = scripts("tests/wml").into_iter().find(|(file, _)| file == "createfiles.f").unwrap().1;
    let options = RunOptions { warmup: Duration::from_secs(600), ..RunOptions::default() };
    let (report, _) = plan_and_run("x.f", &source, &[], &options).unwrap();
    assert!(report.within_warmup.is_some_and(|took| took < options.warmup), "{report:?}");
    assert_eq!((report.counted().map(|op| op.count).sum::<u64>(), report.elapsed), (0, Duration::ZERO));
    let (dir, file) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::with_suffix(".f").unwrap());
    std::fs::write(file.path(), source).unwrap();
    let args = ["run", file.path().to_str().unwrap(), ".", "--warmup", "1h"];
    let (code, out, err) = fsbench(dir.path(), &args);
    assert!(code == Some(1) && format!("{out}{err}").contains("within the warm-up"), "{code:?} {out} {err}");
}

/// A snapshot, `psrun`'s periods and the report in the original's words.
#[test]
fn filebench_s_own_lines() {
    let source = "define fileset name=set,path=/tmp,entries=10,dirwidth=5,size=4k,prealloc
        enable lathist
        define process name=p { thread name=t,memsize=1m,instances=2 {
          flowop openfile name=open-first,filesetname=set,fd=1
          flowop readwholefile name=read,fd=1
          flowop closefile name=close-last,fd=1
        } }
        psrun -1 2";
    let plan = Script::parse("x.f", source).unwrap().plan(&[]).unwrap();
    assert_eq!(plan.runtime(), Duration::from_secs(2));
    let (dir, mut periods) = (tempfile::tempdir().unwrap(), Vec::new());
    let options = RunOptions::default();
    let site = plan.create(dir.path(), &options).unwrap();
    let report = site
        .run(&options, &mut |event| match event {
            Event::Counted(report) => periods.push(report),
            Event::Said(_) => {}
        })
        .unwrap();
    assert_eq!(periods.len(), 1, "one period of a second ends before the run of two does");
    assert!(periods[0].counted().map(|op| op.count).sum::<u64>() < report.counted().map(|op| op.count).sum());

    let text = filebench(&report, Duration::from_millis(2500));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "2.500: Per-Operation Breakdown");
    // The script's last flowop first.
    let names: Vec<&str> = lines[1..4].iter().map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["close-last", "read", "open-first"]);
    for line in &lines[1..4] {
        // name Nops Nops/s Nmb/s Nms/op [least - most], then a histogram by powers of two.
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize, unit: &str| words[i].strip_suffix(unit).unwrap().parse::<f64>().unwrap();
        let (ops, rate) = (number(1, "ops"), number(2, "ops/s"));
        assert!((rate - ops / report.elapsed.as_secs_f64()).abs() <= 0.51, "{line}");
        assert!(number(3, "mb/s") >= 0.0 && number(4, "ms/op") > 0.0, "{line}");
        assert!(words[5].starts_with('[') && words[5].ends_with("ms") && words[6] == "-", "{line}");
        let histogram = line.split_once("\t[ ").unwrap().1.trim_end_matches(" ]");
        let powers: Vec<f64> = histogram.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!((powers.len(), powers.iter().sum::<f64>()), (64, ops));
    }
    let words: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(
        (words[..3].to_vec(), words[4], words[6], words[8]),
        (vec!["2.500:", "IO", "Summary:"], "ops", "ops/s", "rd/wr")
    );
    let total: u64 = words[3].parse().unwrap();
    assert_eq!(total, report.counted().map(|op| op.count).sum::<u64>());
    assert!(
        words[7].ends_with("/0") && words[9].ends_with("mb/s") && words[10].ends_with("ms/op"),
        "{}",
        lines[4]
    );
}

fn fsbench(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsbench"));
    let out = command.args(args).arg("--quiet-warnings").current_dir(dir).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn from_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let script = "set $files=10
        define fileset name=set,path=/tmp,entries=$files,dirwidth=5,size=4k,prealloc
        define process name=p { thread name=t,memsize=1m {
          flowop openfile name=open,filesetname=set,fd=1
          flowop readwholefile name=read,fd=1
          flowop closefile name=close,fd=1
          flowop finishoncount name=end,value=300
        } }
        echo \"loaded with $files files\"";
    std::fs::write(dir.join("small.f"), script).unwrap();
    std::fs::create_dir(dir.join("vol")).unwrap();

    let (code, out, err) = fsbench(dir, &["run", "small.f", "vol", "--set", "files=20", "--runs", "2"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("small.f") && out.contains("read") && out.contains("run 2"), "{out}");
    assert!(out.contains("verified: 20 files, 80"), "{out}");

    let (code, out, err) = fsbench(dir, &["run", "small.f", "vol", "--format", "filebench"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("IO Summary:   300 ops ") && out.contains(": loaded with 10 files\n"), "{out}");

    let (code, out, err) = fsbench(dir, &["run", "small.f", "vol", "--set", "file=20"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("did you mean `files`?"), "{err}");

    std::fs::write(dir.join("wrong.f"), "define fileset nam=x").unwrap();
    let (code, _, err) = fsbench(dir, &["run", "wrong.f", "vol"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("fsbench: wrong.f:1:16: unknown attribute of define fileset `nam`"), "{err}");

    let (code, _, err) =
        fsbench(dir, &["run", "webproxy", "vol", "--set", "files=50", "--ops", "500", "--set", "threads=2"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));

    // Made by one command, run by another.
    for args in [&["--runs", "0", "--keep"][..], &["--reuse"]] {
        let (code, out, err) = fsbench(dir, &[&["run", "small.f", "vol"], args].concat());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}: {out}");
    }

    let (code, _, err) = fsbench(dir, &["run", "gone.f", "vol"]);
    assert!(code == Some(1) && err.contains("gone.f"), "{err}");
    assert_eq!(std::fs::read_dir(dir.join("vol")).unwrap().count(), 0, "nothing is left");
}

/// Room of every kind is looked for before a script's first file is made.
#[test]
fn a_script_that_needs_too_much_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::create_dir(dir.join("vol")).unwrap();
    let script = |set: &str, thread: &str| {
        format!(
            "define fileset name=set,path=/tmp,{set},prealloc
             define process name=p,instances=20 {{ thread name=t,{thread} {{
               flowop openfile name=open,filesetname=set,opennext
             }} }}"
        )
    };
    let small = "entries=1,size=4k,dirwidth=5";
    for (text, says) in [
        (script("entries=1000,size=100t,dirwidth=20", "memsize=1m"), "free"),
        // Sizes whose sum no number holds.
        (script("entries=1000,size=9000000000000000000,dirwidth=20", "memsize=1m"), "free"),
        (script("entries=2000000,size=1,dirwidth=1000", "memsize=1m"), "ulimit"),
        (script(small, "memsize=1t,instances=100"), "memory"),
    ] {
        std::fs::write(dir.join("large.f"), &text).unwrap();
        let (code, out, err) = fsbench(dir, &["run", "large.f", "vol"]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{text}: {err}");
        assert!(err.contains(says), "{says}: {err}");
        assert_eq!(std::fs::read_dir(dir.join("vol")).unwrap().count(), 0, "nothing is left");
    }
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    /// Reads and checks it; what is wrong has a place within it.
    fn swallow(source: &str) {
        let lines = source.split('\n').count() as u32;
        let checked = Script::parse("x.f", source).and_then(|script| script.plan(&[]));
        if let Err(e) = checked {
            assert!(e.pos.line >= 1 && e.pos.line <= lines && e.pos.column >= 1, "{e}\n{source}");
            assert!(e.what.len() < 10_000, "{} bytes of error", e.what.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_text_is_swallowed(text in "\\PC{0,200}") {
            swallow(&text);
        }

        /// Scripts of the corpus with a piece cut out, doubled, or replaced by another's.
        #[test]
        fn scripts_a_little_beside_are_swallowed(
            which in any::<prop::sample::Index>(),
            other in any::<prop::sample::Index>(),
            places in prop::array::uniform4(any::<prop::sample::Index>()),
            word in prop::sample::select(vec![
                "", " ", "{", "}", ",", "=", "\"", "$", "$x", "flowop", "thread", "define", "set $x=", "99999999g",
                "-1", "randvar(", "cvar(type=gamma,parameters=mean:x)", "18446744073709551615", "\\", "#", "/", "run",
            ]),
        ) {
            let scripts = scripts("tests/wml");
            let (a, b) = (&which.get(&scripts).1, &other.get(&scripts).1);
            // All of them are ASCII.
            let [p, q, r, s] = places;
            let (p, q) = (p.index(a.len() + 1), q.index(a.len() + 1));
            let (r, s) = (r.index(b.len() + 1), s.index(b.len() + 1));
            let (p, q, r, s) = (p.min(q), p.max(q), r.min(s), r.max(s));
            let s = s.min(r + 200);
            swallow(&[&a[..p], word, &b[r..s], &a[q..]].concat());
        }
    }

    /// What could cost more than it is long: composites within composites, texts made of texts, endless braces.
    #[test]
    fn small_scripts_stay_small() {
        let mut doubling = String::from("define flowop name=c0 { flowop hog name=h,value=1 }\n");
        for i in 1..200 {
            let (to, from) = (i, i - 1);
            doubling +=
                &format!("define flowop name=c{to} {{ flowop c{from} name=a flowop c{from} name=b }}\n");
        }
        let process = |body: &str| format!("define process name=p {{ thread name=t {{ {body} }} }}");
        let error =
            |source: &str| Script::parse("x.f", source).and_then(|s| s.plan(&[])).unwrap_err().to_string();
        assert!(
            error(&(doubling.clone() + &process("flowop c20 name=x"))).contains("more than 20000 flowops")
        );
        assert!(error(&(doubling + &process("flowop c199 name=x"))).contains("deep"));

        let texts: String = (0..60).map(|i| format!("set $t{}=\"$t{i}$t{i}\"\n", i + 1)).collect();
        assert!(error(&format!("set $t0=\"ab\"\n{texts}")).contains("more than 1024 bytes"));
        for open in
            ["{", "define process name=p {", "define process name=p { thread name=t {", "\"", "set $x=$("]
        {
            error(&open.repeat(10_000));
        }
        assert!(
            error(&format!("define fileset name=f,path=/,{}", "x=1,".repeat(1000)))
                .contains("unknown attribute")
        );
        assert!(error(&"#".repeat((1 << 20) + 1)).contains("more than a script may have"));
    }
}

#[test]
fn a_script_is_scaled() {
    let source = "set $n=1000
        define fileset name=many,path=/t,size=2k,entries=$n,leafdirs=10,dirwidth=20,dirgamma=0,prealloc
        define file name=one,path=/t,size=10m,prealloc
        define file name=small,path=/t,size=100,prealloc
        define process name=p { thread name=t {
          flowop read name=r,filename=one,iosize=4k,random,workingset=2m
          flowop read name=s,filesetname=many,iosize=1k,random,workingset=2k
        } }";
    let plan = Script::parse("scaled.f", source).and_then(|s| s.plan(&[])).unwrap();
    assert_eq!(plan.needs(1).bytes, 1000 * 2048 + (10 << 20) + 100);
    let small = plan.scaled(0.01);
    // Ten files of the thousand; of the single ones the bytes, in whole blocks.
    assert_eq!(small.needs(1).bytes, 10 * 2048 + 25 * 4096 + 100);
    let dir = tempfile::tempdir().unwrap();
    let options = RunOptions { ops: Some(200), ..RunOptions::default() };
    let site = small.create(dir.path(), &options).unwrap();
    assert_eq!(site.verify(&options).files, 10 + 1 + 1);
    // Within the smaller working set, or reads past the end would move nothing.
    let report = site.run(&options, &mut |_| {}).unwrap();
    let read = report.ops.iter().find(|op| op.name == "r").unwrap();
    // The first of a flowop's operations opens its file.
    assert_eq!((read.count, read.bytes), (100, 99 * 4096));
}

#[test]
fn system_statements_are_left_out_when_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("was-here");
    let source = format!(
        "define fileset name=set,path=/t,size=1k,prealloc
        define process name=p {{ thread name=t {{
          flowop statfile name=stat,filesetname=set
          flowop finishoncount name=end,value=1
        }} }}
        system \"touch {}\"
        run 10",
        trace.display()
    );
    let left_out = RunOptions { system: false, ..RunOptions::default() };
    let (_, words) = plan_and_run("system.f", &source, &[], &left_out).unwrap();
    assert!(!trace.exists());
    assert!(words.iter().any(|w| w.contains("touch") && w.contains("left out")), "{words:?}");
    plan_and_run("system.f", &source, &[], &RunOptions::default()).unwrap();
    assert!(trace.exists());
}
