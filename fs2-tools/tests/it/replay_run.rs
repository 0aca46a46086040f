//! `fs2-replay run` on small traces of our own.

use std::path::Path;

use serde_json::Value;

/// Exit code, standard output, standard error.
pub(super) fn replay(args: &[&str]) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["fs2-replay", "run"].iter().chain(args).map(|a| (*a).into());
    let code = fs2_tools::replay::run(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (code, text(out), text(err))
}

/// Two directories far apart read in turns, three times with a pause between: dispatches in blkparse's form.
pub(super) fn write_trace(path: &Path) {
    let mut text = String::new();
    for round in 0..3 {
        for i in 0..300 {
            let at = f64::from(round) * 5.0 + f64::from(i) * 0.01;
            let sector = (i % 2) * 9_000_000 + 2_000_000 + i / 2 * 64;
            text += &format!("{at:.6} D R {sector} 32 7 reader\n");
        }
    }
    std::fs::write(path, text).expect("the scratch directory can be written");
}

/// Found: a volume of 930 GiB on a drive of 75 had a mean seek of 389 ms, eighteen full strokes, and only a line on
/// standard error said why.
#[test]
fn a_drive_that_is_extended_is_told_of() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (far, page) = (dir.path().join("far"), dir.path().join("page.html"));
    std::fs::write(&far, "0,8,4096,r,0\n0,185000000,4096,r,1\n").expect("written");
    let [far, page] = [&far, &page].map(|p| p.to_str().expect("a name in text"));
    let run = |trace: &str, more: &[&str]| {
        replay(&[&[trace, "--format", "spc", "--policy", "none", "--runs", "1"], more].concat())
    };
    let told = "the drive was extended from 74.5 GiB to 88.";
    let (code, out, err) = run(far, &["--html", page]);
    assert!(code == 0 && out.contains(told), "{out}");
    assert!(std::fs::read_to_string(page).expect("a page").contains(told));
    for says in ["wd800-repaired: the drive was extended", "--drive", "--pack", "--device"] {
        assert!(err.contains(says), "{says} is missing: {err}");
    }
    let (_, out, _) = run(far, &["--json"]);
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["extended_from_sectors"], 156_301_488);
    let (_, out, _) = run(far, &["--drive", "nearline-hc310", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).expect("JSON")["extended_from_sectors"], Value::Null);
}

/// Found: `info` counted them, `run` moved them without a word.
#[test]
fn requests_out_of_order_are_told_of() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("back.spc");
    // Further back than the reader puts in order: 4096 requests.
    let line = |i: u32| format!("0,{},4096,r,{}\n", i * 8, if i < 5000 { i + 10 } else { 1 });
    std::fs::write(&trace, (0..5003).map(line).collect::<String>()).expect("written");
    let trace = trace.to_str().expect("a name in text");
    let args = [trace, "--format", "spc", "--policy", "none", "--runs", "1", "--json"];
    let (code, out, err) = replay(&args);
    assert!(code == 0 && err.contains("3 requests were moved to the time of the one before"), "{err}");
    assert_eq!(serde_json::from_str::<Value>(&out).expect("JSON")["out_of_order"], 3);
}

/// Reads in turns, each device at places of its own, of devices with these names.
fn two_devices(names: [&str; 2], first: u64) -> String {
    let line = |i: u64| {
        let (device, n) = ((i + first) % 2, i / 2);
        let lba = (n + 1 + 1000 * device).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 375_000 * 8;
        format!("{},{lba},4096,r,{}.{:02}\n", names[device as usize], i / 50, i % 50 * 2)
    };
    (0..600).map(line).collect()
}

/// Found: devices were put one behind the other in the order in which each trace names them. Learnt from a trace that
/// named them in another, `fs2` had copies of the wrong blocks, and 8 ms a read where it has 0.2.
#[test]
fn a_device_is_at_one_place_in_what_is_learnt_from_and_what_is_replayed() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let put = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a name in text").to_owned()
    };
    let (trace, turned) = (put("a", two_devices(["0", "1"], 0)), put("b", two_devices(["0", "1"], 1)));
    let from_copies = |trace: &str, train: &str, more: &[&str]| -> u64 {
        let args = [trace, "--train", train, "--policy", "fs2", "--runs", "1", "--closed-loop", "--json"];
        let (code, out, err) = replay(&[&args[..], more].concat());
        assert_eq!(code, 0, "{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        json["policies"][0]["runs"][0]["reads_from_copies"].as_u64().expect("a number")
    };
    let (same, turned) =
        (from_copies(&trace, &trace, &["--pack"]), from_copies(&trace, &turned, &["--pack"]));
    assert!(same > 500 && turned > 500, "{same} and {turned} of 600");
    // One device each is one volume, whatever it is called.
    let (seven, eight) = (put("7", two_devices(["7"; 2], 0)), put("8", two_devices(["8"; 2], 0)));
    assert!(from_copies(&seven, &eight, &["--format", "spc"]) > 500);
}

/// Found: `131076 groups are more than ext2 holds`, of which nobody could tell what to do.
#[test]
fn many_devices_apart_say_what_to_do() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("five.spc");
    let line = |i: u32| format!("{},{},4096,r,{i}\n", i % 5, i * 800);
    std::fs::write(&trace, (0..50).map(line).collect::<String>()).expect("written");
    let trace = trace.to_str().expect("a name in text");
    let (code, _, err) = replay(&[trace, "--runs", "1"]);
    assert!(code == 1 && err.contains("5 devices lie 4 TiB apart: --pack puts them side by side"), "{err}");
    assert_eq!(replay(&[trace, "--runs", "1", "--pack"]).0, 0);
}

/// Found: `134217729 groups are more than ext2 holds`, and nothing of the one request that reached so far.
#[test]
fn a_request_that_no_volume_holds_is_named() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let [a, b] = ["a.spc", "b.spc"].map(|name| dir.path().join(name));
    std::fs::write(&a, "0,8,4096,r,0\n0,4503599627370496,4096,r,1\n0,1600,4096,r,2\n").expect("written");
    std::fs::write(&b, "0,16,4096,r,0.5\n").expect("written");
    let [a, b] = [&a, &b].map(|p| p.to_str().expect("a name in text"));
    let (code, _, err) = replay(&[a, "--runs", "1"]);
    let (sector, size) = ("at sector 4503599627370496 and up to 2048.0 PiB", "in blocks of 4 KiB, 16 TiB");
    let told =
        [&format!("request 2 of {a}, "), sector, "all others end at 804.0 KiB", size, "--limit 1 ends"];
    assert!(code == 1 && told.iter().all(|told| err.contains(told)), "{err}");
    let (code, _, err) = replay(&[a, b, "--runs", "1"]);
    let told =
        [&format!("request 3 of {a} and 1 more, in the order of their times"), sector, "--limit 2 ends"];
    assert!(code == 1 && told.iter().all(|told| err.contains(told)), "{err}");
    assert_eq!(replay(&[a, "--runs", "1", "--limit", "1"]).0, 0);
}

/// Found: `the volume cannot be given a replica table`, and nothing of the trace that leaves no room for one.
#[test]
fn a_trace_that_reads_all_of_its_volume_is_told_of() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("all.spc");
    let line = |i: u32| format!("0,{},131072,r,{i}\n", i * 256);
    std::fs::write(&trace, (0..1024).map(line).collect::<String>()).expect("written");
    let trace = trace.to_str().expect("a name in text");
    let (code, _, err) = replay(&[trace, "--runs", "1", "--policy", "none"]);
    let told = ["of its 32,768 blocks (128.0 MiB) 0 are free", "--free-map", "--limit"];
    assert!(code == 1 && told.iter().all(|told| err.contains(told)), "{err}");
    assert_eq!(replay(&[trace, "--runs", "1", "--policy", "none", "--limit", "500"]).0, 0);
}

/// Found: the clock stood still at its end, and the second run took no time, busy for 184,725,600 % of it.
#[test]
fn a_time_that_no_clock_of_all_runs_reaches_is_refused() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a name in text").to_owned()
    };
    let line = |at: &str| format!("0,80,4096,r,0.0\n0,800,4096,r,0.01\n0,8000,4096,r,{at}\n");
    let (bad, good) = (put("bad.spc", &line("18446744072")), put("good.spc", &line("0.02")));
    let filetime = put(
        "filetime.csv",
        "128166372003061629,hm,1,Read,383496192,32768,1313\n0,hm,1,Read,0,512,1\n\
         128166372003061629,hm,1,Read,383496192,32768,1313\n",
    );
    let says = "584.9 years after the first of its run, and of 3 runs none may take more than 73.1 years";
    for args in [&[&*bad][..], &[&*good, "--train", &*bad]] {
        let (code, out, err) =
            replay(&[args, &["--used", "60%", "--runs", "3", "--policy", "none"]].concat());
        assert!(code == 1 && out.is_empty(), "{out}{err}");
        assert!(err.contains("request 3 comes ") && err.contains(says) && err.contains("--limit 2"), "{err}");
    }
    for limited in [&[&*bad, "--limit", "2"][..], &[&*bad, "--closed-loop"], &[&*good]] {
        assert_eq!(replay(&[limited, &["--runs", "3", "--policy", "none"]].concat()).0, 0, "{limited:?}");
    }
    let (code, _, err) = replay(&[&good, "--idle-between", "1000000000s"]);
    assert!(code == 2 && err.contains("is longer than a month"), "{err}");
    for (trace, warned) in [(&bad, true), (&filetime, true), (&good, false)] {
        let mut err = Vec::new();
        let all = ["fs2-replay", "info", trace].map(Into::into);
        assert_eq!(fs2_tools::replay::run(all, &mut Vec::new(), &mut err), 0);
        let err = String::from_utf8_lossy(&err);
        assert_eq!(err.contains(" years after the one before it"), warned, "{err}");
    }
    let (empty, mut err) = (put("empty", ""), Vec::new());
    for args in [&["info", &*empty][..], &["info", "-", "-"]] {
        let all = ["fs2-replay"].iter().chain(args).map(|a| (*a).into());
        assert_eq!(fs2_tools::replay::run(all, &mut Vec::new(), &mut err), 1);
    }
    let err = String::from_utf8_lossy(&err);
    assert!(err.contains("the input is empty, expected a trace\n") && err.contains("named twice"), "{err}");
}

/// Found: a pipe was read once and then said to be empty; a named one was waited for for ever.
#[test]
fn a_pipe_is_refused() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("coreutils");
    assert!(made.success());
    write_trace(&file);
    let [pipe, file] = [&pipe, &file].map(|p| p.to_str().expect("a name in text"));
    for args in [&[pipe][..], &[file, "--train", pipe]] {
        let (code, _, err) = replay(args);
        assert!(code == 1 && err.contains("pipe: a trace is read once for each run: give a file"), "{err}");
    }
    let mut err = Vec::new();
    for args in [&["info", "--pack", pipe][..], &["live", pipe, file]] {
        let all = ["fs2-replay"].iter().chain(args).map(|a| (*a).into());
        assert_eq!(fs2_tools::replay::run(all, &mut Vec::new(), &mut err), 1);
    }
    assert_eq!(String::from_utf8_lossy(&err).matches("give a file, not a pipe").count(), 2);
}

/// Found: of a whole device's trace over a listing of one of its partitions every request failed at once, which the
/// table and the page did not say.
#[test]
fn requests_beyond_the_volume_are_told_of() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (trace, listing, page) =
        (dir.path().join("t"), dir.path().join("listing"), dir.path().join("page.html"));
    let text = "Filesystem features: sparse_super\nBlock count: 32768\nBlock size: 4096\nBlocks per group: 32768\n\
                Inodes per group: 8192\nInode size: 256\nGroup 0:\nBlock bitmap at 2\nInode bitmap at 3\n\
                Inode table at 4\nFree blocks: 5000-32767\n";
    std::fs::write(&listing, text).expect("written");
    std::fs::write(&trace, "0.0 D R 8000 8 1 a\n1.0 D R 262144 8 1 a\n2.0 D R 16000 8 1 a\n")
        .expect("written");
    let [trace, listing, to] = [&trace, &listing, &page].map(|p| p.to_str().expect("a name in text"));
    let (code, out, err) =
        replay(&[trace, "--free-map", listing, "--policy", "none", "--runs", "1", "--html", to]);
    assert_eq!(code, 0, "{err}");
    let html = std::fs::read_to_string(&page).expect("a page").replace("&#39;", "'");
    for text in [out, err, html] {
        assert!(
            text.contains("1 of 3 requests in run 1 failed: they reach beyond the volume's end at 128.0 MiB"),
            "{text}"
        );
    }
}

/// A whole device's trace over the listing of one of its partitions.
#[test]
fn a_partition_of_a_whole_device_is_replayed_as_itself() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let put = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a name in text").to_owned()
    };
    let listing = "Filesystem features: sparse_super\nBlock count: 32768\nBlock size: 4096\nBlocks per group: 32768\n\
                   Inodes per group: 8192\nInode size: 256\nGroup 0:\nBlock bitmap at 2\nInode bitmap at 3\n\
                   Inode table at 4\nFree blocks: 20000-32767\n";
    let listing = put("listing", listing.to_owned());
    let lines = |begin: u32| -> String {
        let line = |i: u32| {
            format!("{i}.0 D R {} 8 1 a\n{i}.5 D W {} 8 1 a\n", i * 7919 % 15_000 * 8 + begin, i * 80 + begin)
        };
        (1..60).map(line).collect()
    };
    let own = put("own", lines(0));
    // Neighbours before and behind it.
    let whole = put("whole", format!("0.9 D R 8 8 1 a\n{}90.0 D R 9000000 8 1 a\n", lines(2048)));
    let run = |args: &[&str]| {
        let (code, out, err) = replay(
            &[args, &["--free-map", &listing, "--policy", "none,fs2", "--runs", "3", "--json"]].concat(),
        );
        assert_eq!(code, 0, "{err}");
        (serde_json::from_str::<Value>(&out).expect("JSON"), err)
    };
    let (alone, _) = run(&[&own]);
    let (part, told) = run(&[&whole, "--partition", "2048,262144"]);
    assert!(alone["policies"][1]["runs"][2]["reads_from_copies"].as_u64() > Some(0), "{alone}");
    assert_eq!(part["policies"], alone["policies"]);
    assert!(told.contains("2 requests outside the partition are left out"), "{told}");
    assert_eq!(part["options"]["partition"], "2048,262144");
    // Without it the user is told what helps.
    let (_, told) = run(&[&whole]);
    assert!(told.contains("the trace the whole device's (--partition)?"), "{told}");
    let (code, _, err) = replay(&[&whole, "--partition", "2048,262144", "--pack"]);
    assert!(code == 2 && err.contains("cannot be used with"), "{code} {err}");
}

/// Found: schemes of copies won nothing where reads do not begin and end with blocks, and nothing said why.
#[test]
fn reads_of_parts_of_blocks_are_told_of() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = |name: &str, shift: u32| {
        let path = dir.path().join(name);
        let line =
            |i: u32| format!("{i}.0 D R {} 16 1 a\n{i}.5 D W {} 3 1 a\n", 1600 * i + shift, 1600 * i + 900);
        std::fs::write(&path, (0..20).map(line).collect::<String>()).expect("written");
        path.to_str().expect("a name in text").to_owned()
    };
    for (name, shift, share) in [("whole", 0, 0.0), ("in-part", 63, 100.0)] {
        let trace = trace(name, shift);
        let args = [trace.as_str(), "--policy", "none", "--runs", "1", "--align", "0"];
        let (_, out, err) = replay(&args);
        let told = "100 % of the reads do not begin and end with blocks of 4096 bytes";
        assert_eq!((out.contains(told), err.contains(told)), (shift > 0, shift > 0), "{out}{err}");
        let (_, out, _) = replay(&[&args[..], &["--json"]].concat());
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(json["reads_in_part_percent"], share);
    }
}

/// Found: nothing was won on traces of whole devices whose partitions begin at sector 63.
#[test]
fn addresses_are_moved_to_where_blocks_begin() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("t");
    // A device whose partition begins at sector 63, one that begins with a block, one that does neither.
    let lines = (0..60u32).map(|i| {
        let at = i % 20 * 800;
        format!(
            "0,{},8192,r,{i}.0\n1,{},8192,r,{i}.2\n2,{},512,r,{i}.4\n0,{at},512,w,{i}.6\n",
            at + 63,
            at + 64,
            at + i
        )
    });
    std::fs::write(&path, lines.collect::<String>()).expect("written");
    let trace = path.to_str().expect("a name in text");
    let run = |more: &[&str]| -> (Value, String) {
        let args =
            [trace, "--pack", "--policy", "none,fs2", "--runs", "2", "--idle-between", "10s", "--json"];
        let (code, out, err) = replay(&[&args[..], more].concat());
        assert_eq!(code, 0, "{err}");
        (serde_json::from_str(&out).expect("JSON"), err)
    };
    let ((moved, told), (left, quiet)) = (run(&[]), run(&["--align", "0"]));
    let note =
        "the addresses of device 0 are moved up by 1 sector, to where blocks begin (--align 0 leaves them)";
    assert!(told.contains(note), "{told}");
    assert_eq!(moved["moved_up_sectors"], serde_json::json!({"0": 1}));
    assert!(
        !quiet.contains("moved up") && !told.contains("device 1") && !told.contains("device 2"),
        "{told}{quiet}"
    );
    let share = |json: &Value| json["reads_in_part_percent"].as_f64().expect("a share");
    assert!(share(&moved) < 34.0 && share(&left) > 66.0, "{} {}", share(&moved), share(&left));
    // What a read touches is copied: so much less where it begins with a block.
    let copied = |json: &Value| json["policies"][1]["runs"][1]["replicas"].as_u64().expect("a count");
    assert!(copied(&moved) < copied(&left), "{} {}", copied(&moved), copied(&left));
    let (_, _, told) = replay(&[trace, "--device", "0", "--align", "3", "--policy", "none", "--runs", "1"]);
    assert!(told.contains("of device 0 are moved up by 3 sectors"), "{told}");
}

/// Found: bounds of a drive with a write cache were those of the drive without, and of a stretched volume those of the
/// volume as recorded.
#[test]
fn bounds_are_of_the_drive_that_judges_and_of_what_it_serves() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("t");
    // What was written is read at once, from the cache, where there is one for writes.
    let line = |i: u64| {
        let at = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000 * 8;
        format!("{i}.0 D W {at} 8 1 a\n{i}.001 D R {} 8 1 a\n", 8_000_000 - at)
    };
    std::fs::write(&trace, (0..100).map(line).collect::<String>()).expect("written");
    let trace = trace.to_str().expect("a name in text");
    let run = |belief: &str, stretch: &str| -> [f64; 2] {
        let how = ["--belief", belief, "--stretch", stretch, "--policy", "none", "--runs", "1", "--json"];
        let (_, out, _) = replay(&[&[trace], &how[..]].concat());
        let json: Value = serde_json::from_str(&out).expect("JSON");
        let (none, bound) = (&json["policies"][0]["runs"][0]["t_a_reads_ms"], &json["bounds"]["b2_order"]);
        [none, bound].map(|x| x.as_f64().expect("a number"))
    };
    // Nothing is read twice, so that the bound is the drive itself.
    for (belief, stretch) in [("equal", "1"), ("write-cache", "1"), ("equal", "9")] {
        let [none, bound] = run(belief, stretch);
        assert!((none - bound).abs() < none / 50.0, "{belief}, {stretch}: {none} and {bound}");
    }
    assert!((run("equal", "1")[0] - run("write-cache", "1")[0]).abs() > 0.2, "another drive");
    assert!(run("equal", "9")[0] > run("equal", "1")[0] + 1.0, "further apart");
}

#[test]
fn a_policy_named_twice_is_run_once() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("turns.txt");
    write_trace(&trace);
    let trace = trace.to_str().expect("a name in text");
    let args =
        [trace, "--runs", "1", "--limit", "50", "--policy", "none,fs2", "--policy", "none,none", "--json"];
    let (code, out, err) = replay(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let names: Vec<_> = json["policies"].as_array().expect("policies").iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["none", "fs2"]);
    assert_eq!(json["options"]["policy"], serde_json::json!(["none", "fs2"]));
}

#[test]
fn a_drive_that_cannot_keep_up_is_told_of_once() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("rush.spc");
    let line = |i: u32| {
        format!("0,{},4096,r,{}\n", u64::from(i) * 7_777_777 % 12_500_000 * 8, f64::from(i) / 1000.0)
    };
    std::fs::write(&trace, (0..1000).map(line).collect::<String>()).expect("written");
    let trace = trace.to_str().expect("a name in text");
    let args = [trace, "--format", "spc", "--policy", "none,fs2", "--runs", "2", "--closed-loop"];
    let (code, _, err) = replay(&args[..7]);
    assert!(code == 0 && err.matches("cannot keep up").count() == 1 && err.lines().count() == 1, "{err}");
    assert!(err.contains("run 1 of none") && err.contains("--closed-loop"), "{err}");
    // A request each ms, and one in some 13 ms is served: how far the queue grew was not said.
    assert!(
        err.contains(" at a time, and it ends ") && err.contains(" s after the last has come; "),
        "{err}"
    );
    let json: Value = serde_json::from_str(&replay(&[&args[..7], &["--json"]].concat()).1).expect("JSON");
    let run = &json["policies"][0]["runs"][0];
    let (queue, elapsed, behind) = (&run["queue_max"], run["elapsed_s"].as_f64(), run["behind_s"].as_f64());
    assert!((800..1000).contains(&queue.as_u64().expect("a number")), "{run}");
    assert!(err.contains(&format!("up to {queue} at a time")), "{err} {run}");
    assert!(elapsed.zip(behind).is_some_and(|(all, late)| (late + 0.999 - all).abs() < 1e-3), "{run}");
    assert_eq!(replay(&args).2, "");
}

/// Found: a drive that rested for a moment at first, 98.4 % busy, was not told of.
#[test]
fn a_queue_that_grows_is_told_of() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let notes = |name: &str, at: fn(u32) -> f64| {
        let trace = dir.path().join(name);
        let line = |i: u32| format!("0,{},4096,r,{}\n", u64::from(i) * 7_777_777 % 12_500_000 * 8, at(i));
        std::fs::write(&trace, (0..1000).map(line).collect::<String>()).expect("written");
        let trace = trace.to_str().expect("a name in text");
        let args = [trace, "--format", "spc", "--policy", "none", "--runs", "1", "--json"];
        let (code, out, err) = replay(&args);
        assert_eq!(code, 0, "{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        let figure = |name: &str| json["policies"][0]["runs"][0][name].as_f64().expect("a number");
        (figure("busy_percent"), figure("wait_ms"), err.contains("cannot keep up"))
    };
    // A read takes some 13 ms. One each 4 ms, but for ten at first.
    let (busy, wait, told) =
        notes("grows", |i| if i < 10 { f64::from(i) * 0.1 } else { 1.0 + f64::from(i) * 0.004 });
    assert!((90.0..99.0).contains(&busy) && wait > 1000.0 && told, "{busy} {wait}");
    // All at once, and then as many as it can serve: it keeps up.
    let (busy, wait, told) = notes("catches up", |i| f64::from(i.saturating_sub(300)) * 0.019);
    assert!((90.0..99.0).contains(&busy) && wait > 1000.0 && !told, "{busy} {wait}");
}

#[test]
fn what_is_refused_says_why() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (trace, listing) = (dir.path().join("turns.txt"), dir.path().join("listing"));
    write_trace(&trace);
    std::fs::write(&listing, "Block count: some\n").expect("the scratch directory can be written");
    let (trace, listing) = (trace.to_str().expect("a name"), listing.to_str().expect("a name"));
    for (args, code, said) in [
        (vec!["-"], 1, "not standard input"),
        (vec!["/nowhere"], 1, "/nowhere"),
        (vec!["/dev/null", "--format", "spc"], 1, "/dev/null: the input is empty, expected a trace"),
        (vec![trace, "--split", "100,200"], 1, "no request of the trace lies in any"),
        (vec![trace, "--used", "0.6"], 2, "0.6 may be 0.6% or 60%"),
        (vec![trace, "--limit", "0"], 2, "0 is not in 1.."),
        (vec![trace, "--drive", "no-such"], 1, "no-such"),
        (vec![trace, "--free-map", listing], 1, "line 1: 'some', expected a number"),
        (vec![trace, "--split", "5,1"], 2, "ascend"),
        (vec![trace, "--split", "5"], 2, "--split 5: one run alone"),
        (vec![trace, "--stretch", "0"], 2, "give 1 or more"),
        (vec![trace, "--partition", "999999999999,8"], 1, "no request within the partition"),
        (vec![trace, "--policy", "best"], 2, "no policy 'best'"),
        (vec![trace, "--belief", "blind"], 2, "no belief is called 'blind'"),
        (vec![trace, "--idle-between", "soon"], 2, "no time"),
        (vec![trace, "--free-map", listing, "--used", "5%"], 2, "cannot be used with"),
        (vec![trace, "--clients", "8"], 2, "--closed-loop"),
        (vec![trace, "--think", "1ms,2ms"], 2, "--closed-loop"),
    ] {
        let (got, _, err) = replay(&args);
        assert!(got == code && err.contains(said), "{args:?}: {got}, {err}");
    }
}
