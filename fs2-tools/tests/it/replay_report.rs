//! What `fs2-replay run` reports: tables, figures and JSON.

use serde_json::Value;

use super::replay_run::{replay, write_trace};

/// A table for each policy, and none that had them side by side.
#[test]
fn policies_are_compared_with_one_another() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("turns.txt");
    write_trace(&trace);
    let trace = trace.to_str().expect("a name in text");
    let rows = |policies: &str| {
        let (code, out, _) = replay(&[trace, "--closed-loop", "--split", "0,5,10", "--policy", policies]);
        assert_eq!(code, 0, "{out}");
        let from = out.lines().skip_while(|l| !l.starts_with("last runs"));
        from.take_while(|l| !l.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rows("fs2"), [] as [String; 0]);
    let found = rows("fs2,none");
    assert_eq!(found[0], "last runs (run 3), gain of each over none", "whatever the order");
    assert_eq!(found.len(), 5, "{found:?}");
    let numbers = |row: &str| row.split_whitespace().map(|w| w.parse().ok()).collect::<Vec<Option<f64>>>();
    let (fs2, none) = (numbers(&found[3]), numbers(&found[4]));
    assert!(
        found[3].trim_start().starts_with("fs2 ") && found[4].trim_start().starts_with("none "),
        "{found:?}"
    );
    for at in [1, 3, 5] {
        let (a, b) = (none[at].expect("a mean"), fs2[at].expect("a mean"));
        let gain = fs2[at + 1].expect("a gain");
        assert!((gain - 100.0 * (a - b) / a).abs() < 0.1 && gain > 20.0, "{found:?}");
        assert_eq!(none[at + 1], None, "a dash");
    }
    assert!(rows("fs2,fs2-2005")[0].ends_with("gain of each over fs2"));
}

/// Found: with runs told apart the single pass ended before its rest, in which nearly everything is copied.
#[test]
fn a_single_pass_has_its_rest_whether_or_not_runs_are_told_apart() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("turns.txt");
    write_trace(&trace);
    let trace = trace.to_str().expect("a name in text");
    let single = |more: &[&str]| -> Value {
        let args = [&[trace, "--closed-loop", "--json", "--policy", "fs2,alis-run"], more].concat();
        let (code, out, err) = replay(&args);
        assert_eq!(code, 0, "{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        json["policies"].as_array().expect("policies").iter().map(|p| p["single_pass"].clone()).collect()
    };
    // All of the trace lies before the second run.
    let (whole, split) = (single(&["--runs", "1"]), single(&["--split", "0,1000"]));
    assert_eq!(whole, split);
    assert!(whole[1]["replicas"].as_u64() > Some(0), "{whole}");
}

#[test]
fn a_report_has_every_figure_of_every_run() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("turns.txt");
    write_trace(&trace);
    let trace = trace.to_str().expect("a name in text");
    let (code, out, err) =
        replay(&[trace, "--closed-loop", "--split", "0,5,10", "--json", "--policy", "none,fs2"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["drive"], "wd800-repaired");
    assert_eq!(json["scheduler"], "fcfs");
    let policies = json["policies"].as_array().expect("policies");
    assert_eq!(
        policies.iter().map(|p| p["name"].as_str().expect("a name")).collect::<Vec<_>>(),
        ["none", "fs2"]
    );
    for p in policies {
        assert_eq!(p["single_pass"]["requests"], 900);
        let runs = p["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 3);
        for (i, run) in (1..).zip(runs) {
            assert_eq!(run["run"], i);
            assert_eq!((&run["requests"], &run["reads"]), (&300.into(), &300.into()));
            for key in [
                "elapsed_s",
                "wait_ms",
                "t_a_ms",
                "t_a_reads_ms",
                "t_s_ms",
                "t_r_ms",
                "t_t_ms",
                "p99_ms",
                "cache_hit_percent",
                "busy_percent",
                "energy_mj_per_access",
                "energy_total_j",
                "copy_percent",
                "replicas",
            ] {
                assert!(run[key].is_number(), "{key}: {run}");
            }
            let f = |key: &str| run[key].as_f64().expect("a number");
            assert!((f("t_a_ms") - f("t_s_ms") - f("t_r_ms") - f("t_t_ms")).abs() < 0.003, "{run}");
        }
    }
    let read = |p: usize, run: usize| policies[p]["runs"][run]["t_a_reads_ms"].as_f64().expect("a number");
    assert!(read(1, 2) * 2.0 < read(0, 2), "copies win: {out}");
    let bounds = &json["bounds"];
    let b = |key: &str| bounds[key].as_f64().expect("a number");
    assert!(b("b0") <= b("b1") && b("b1") <= b("b2_reuse_w") && b("b2_reuse_w") <= b("b2_reuse"));
    assert!(b("b2_reuse") <= b("b2_order") && b("b2_order") < read(0, 2));
    let share = policies[1]["runs"][2]["share_percent"].as_f64().expect("a number");
    let want = 100.0 * (read(0, 2) - read(1, 2)) / (read(0, 2) - b("b2_order"));
    assert!((share - want).abs() < 0.1, "{share} against {want}");
}

#[test]
fn a_table_for_people_and_passes_without_a_split() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("turns.txt");
    write_trace(&trace);
    let trace = trace.to_str().expect("a name in text");
    let args = [
        trace,
        "--policy",
        "fs2",
        "--runs",
        "2",
        "--limit",
        "300",
        "--used",
        "50%",
        "--idle-between",
        "30s",
        "--belief",
        "mismatched",
        "--scheduler",
        "sptf",
        "--depth",
        "4",
        "--stretch",
        "--train",
        trace,
    ];
    let (code, out, err) = replay(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    for said in [
        "sptf (depth 4)",
        "--runs 2",
        "--used 50%",
        "belief mismatched",
        "times as far apart",
        "fs2\n",
        "single",
        "B2o",
        "memory:",
    ] {
        assert!(out.contains(said), "{said} is missing:\n{out}");
    }
    assert_eq!(out.lines().filter(|l| l.split_whitespace().nth(1) == Some("300")).count(), 3, "{out}");
    assert_eq!(replay(&args).1.lines().take(8).collect::<Vec<_>>(), out.lines().take(8).collect::<Vec<_>>());
}

/// Found: two results with other seeds, clients or devices could not be told apart.
#[test]
fn a_result_says_what_was_run() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (trace, page) = (dir.path().join("turns.txt"), dir.path().join("page.html"));
    write_trace(&trace);
    let name = trace.to_str().expect("a name in text");
    let args = [
        name,
        "--policy",
        "none",
        "--runs",
        "1",
        "--seed",
        "9",
        "--closed-loop",
        "--clients",
        "2",
        "--limit",
        "20",
        "--event",
        "D",
        "--json",
        "--html",
        page.to_str().expect("a name in text"),
    ];
    let run = || -> Value {
        let (code, out, err) = replay(&args);
        assert_eq!((code, err.as_str()), (0, ""));
        serde_json::from_str(&out).expect("JSON")
    };
    let mut json = run();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    let options = &json["options"];
    for (name, is) in [
        ("seed", Value::from(9)),
        ("clients", 2.into()),
        ("think", "5ms,100ms".into()),
        ("limit", 20.into()),
        ("runs", 1.into()),
        ("idle-between", "60s".into()),
        ("event", "D".into()),
        ("used", "60%".into()),
        ("policy", serde_json::json!(["none"])),
        ("device", Value::Null),
    ] {
        assert_eq!(options[name], is, "{name}");
    }
    let input = &json["inputs"][0];
    let bytes = std::fs::metadata(&trace).expect("a trace").len();
    assert_eq!(
        (&input["what"], &input["path"], &input["bytes"]),
        (&"trace".into(), &name.into(), &bytes.into())
    );
    assert_eq!(input["xxh3"].as_str().map(str::len), Some(32));
    assert!(json["process"]["memory_mib"].is_number() && json["process"]["wall_s"].is_number());
    // All that differs from one time to the next is in one place.
    let mut again = run();
    for one in [&mut json, &mut again] {
        one.as_object_mut().expect("an object").remove("process").expect("there");
    }
    assert_eq!(json, again);
    let said = "--clients 2 --closed-loop --event D --limit 20 --policy none --runs 1 --seed 9";
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains(&format!("fs2-replay {}, options {said}<", env!("CARGO_PKG_VERSION"))));
    let (_, out, _) = replay(&args[..args.len() - 3]);
    assert!(out.contains(&format!(", options {said}\n")), "{out}");
}

/// Found: a run without requests had accesses of 0 ms, which counted as the most that could be won.
#[test]
fn nothing_has_no_figures() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (trace, page) = (dir.path().join("turns.txt"), dir.path().join("page.html"));
    write_trace(&trace);
    let page = page.to_str().expect("a name in text");
    let args = [
        trace.to_str().expect("a name in text"),
        "--policy",
        "none,fs2",
        "--split",
        "0,5,1000000",
        "--html",
        page,
    ];
    let (code, out, err) = replay(&args);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("no request in run 3, from 1000000 s on (--split)"), "{err}");
    let none = &out[out.find("\nnone\n").expect("none")..out.find("\nfs2\n").expect("fs2")];
    assert!(
        !none.contains("gain") && none.lines().any(|l| l.trim_start().starts_with("3 ") && l.contains(" - ")),
        "{none}"
    );
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(
        html.contains("In run 2 a read took") && !html.contains("run 3: seek"),
        "of the last run with requests"
    );
    let (_, out, _) = replay(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&out).expect("JSON");
    for p in json["policies"].as_array().expect("policies") {
        let run = p["runs"][2].as_object().expect("a run");
        let of_nothing = [
            "run",
            "requests",
            "reads",
            "reads_from_copies",
            "failed",
            "elapsed_s",
            "behind_s",
            "queue_max",
            "energy_total_j",
            "replicas",
        ];
        for (key, value) in run {
            assert!(value.is_null() != of_nothing.contains(&key.as_str()), "{key}: {value}");
        }
    }
    assert_eq!(
        (&json["bounds"]["runs"][2]["b2_order"], &json["policies"][0]["warm_up_runs"]),
        (&Value::Null, &Value::Null)
    );
}

/// Found: T_A was said to be a mean of all requests, and wait what it lacks of the response.
#[test]
fn a_flush_has_no_access_and_the_help_says_so() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("flushes.txt");
    let line = |i: u32| format!("{i}.0 D R {} 8 7 a\n{i}.5 D F 0 0 7 a\n", 800_000 * i);
    std::fs::write(&trace, (0..4).map(line).collect::<String>()).expect("written");
    let trace = trace.to_str().expect("a name in text");
    let (code, out, err) = replay(&[trace, "--policy", "none", "--runs", "1", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let run = &json["policies"][0]["runs"][0];
    let f = |key: &str| run[key].as_f64().expect("a number");
    assert_eq!(run["requests"], 8);
    // Four accesses, eight requests.
    assert!((f("response_ms") - f("wait_ms") - f("t_a_ms") / 2.0).abs() < 0.002, "{run}");
    assert!(f("response_ms") < f("t_a_ms"), "{run}");
    let (code, help, _) = replay(&["--help"]);
    assert!(code == 0 && help.contains("means over accesses at the drive, wait and response"));
}

/// Found: a trace whose later parts are read faster was said to warm up without copies.
#[test]
fn without_copies_nothing_warms_up() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("two.spc");
    let line =
        |i: u64| format!("0,{},4096,r,{i}\n", if i < 20 { i * 7_919 % 20 * 800_000 } else { 8 * (i - 20) });
    std::fs::write(&trace, (0..40).map(line).collect::<String>()).expect("written");
    let trace = trace.to_str().expect("a name in text");
    let (code, out, err) = replay(&[trace, "--split", "0,19.5", "--policy", "none", "--json"]);
    assert_eq!(code, 0, "{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let took = |run: usize| json["policies"][0]["runs"][run]["t_a_reads_ms"].as_f64().expect("a number");
    assert!(took(1) < took(0) / 2.0, "{} {}", took(0), took(1));
    assert!(json["policies"][0]["warm_up_runs"].is_null());
}

#[test]
fn all_policies_are_compared_on_the_same_runs() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("turns.txt");
    write_trace(&trace);
    let trace = trace.to_str().expect("a name in text");
    let (code, out, err) =
        replay(&[trace, "--closed-loop", "--split", "0,5,10", "--json", "--policy", "all"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let policies = json["policies"].as_array().expect("policies");
    let names: Vec<_> = policies.iter().map(|p| p["name"].as_str().expect("a name")).collect();
    let want = "none organ-pipe abr hot-files alis-heat alis-run borg sr-array fs2-static fs2-2005 fs2";
    assert_eq!(names.join(" "), want);
    let t_a = |p: usize, run: usize| policies[p]["runs"][run]["t_a_reads_ms"].as_f64().expect("a number");
    for (p, name) in names.iter().enumerate() {
        // Each run repeats the last. What is known beforehand helps the first already, everything else the third. Not
        // the soonest of scattered copies: it leaves what the drive reads ahead, and these reads are sequences.
        match *name {
            "none" => {}
            "sr-array" => assert!(t_a(p, 0) == t_a(0, 0) && t_a(p, 2) > t_a(0, 2), "{out}"),
            "fs2-static" => assert!(t_a(p, 0) < t_a(0, 0), "{out}"),
            _ => assert!(t_a(p, 0) == t_a(0, 0) && t_a(p, 2) < t_a(0, 2), "{name}: {out}"),
        }
    }
}
