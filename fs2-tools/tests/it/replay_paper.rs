//! `fs2-replay paper` on a volume small enough for a test.

use serde_json::Value;

/// Exit code, standard output, standard error.
fn paper(args: &[&str]) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["fs2-replay", "paper"].iter().chain(args).map(|a| (*a).into());
    let code = fs2_tools::replay::run(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (code, text(out), text(err))
}

/// The built-in parameters, printed, and made small.
pub(crate) fn small(dir: &std::path::Path) -> String {
    let (code, mut text, err) = paper(&["--print-params"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for (from, to) in [
        ("groups = 624 ", "groups = 64 "),
        ("cycles = 10 ", "cycles = 1 "),
        ("directories = 889", "directories = 60"),
        ("files = 17000", "files = 900"),
        ("files = 22000", "files = 2200"),
        ("files = 6000", "files = 300"),
    ] {
        assert!(text.contains(from), "no '{from}'");
        text = text.replace(from, to);
    }
    let path = dir.join("small.toml");
    std::fs::write(&path, text).expect("the scratch directory can be written");
    path.to_str().expect("a name in text").to_owned()
}

#[test]
fn a_workload_is_told_beside_the_paper_s_figures() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let params = small(dir.path());
    let args = ["--params", &params, "--workload", "cvs", "--runs", "2"];
    let (code, out, err) = paper(&[&args[..], &["--json"]].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["layout"]["digest"].as_str().map(str::len), Some(16));
    let free = json["layout"]["free_percent"].as_f64().expect("a number");
    assert!((46.9..47.1).contains(&free), "{free}");
    let cvs = &json["workloads"][0];
    assert_eq!((cvs["name"].as_str(), cvs["table"].as_u64()), (Some("cvs"), Some(3)));
    assert_eq!(cvs["paper_busy_ext2_percent"], 82.0);
    let policies = cvs["policies"].as_array().expect("policies");
    let names: Vec<_> = policies.iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["none", "fs2-static", "fs2-2005", "fs2"]);
    for p in policies {
        let runs = p["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 2, "{}", p["name"]);
        assert_eq!(runs[0]["requests"], cvs["requests"][0]);
        assert!(runs.iter().all(|r| r["failed"] == 0));
    }
    assert_eq!(policies[0]["improvement"]["t_a"], 0.0);
    assert!(policies[0]["paper"].is_null() && policies[1]["paper"].is_null());
    let of_2005 = &policies[2];
    assert_eq!(of_2005["paper"]["t_a"], 41.0);
    let number = |v: &Value| v.as_f64().expect("a number");
    let (t_a, difference) = (number(&of_2005["improvement"]["t_a"]), number(&of_2005["difference"]["t_a"]));
    assert!((t_a - 41.0 - difference).abs() < 0.01);
    assert_eq!(of_2005["t_a_within_15"], difference.abs() <= 15.0);
    // Both runs are the same on ext2; the second is better on FS².
    let t_a = |p: &Value, run: usize| number(&p["runs"][run]["t_a_ms"]);
    assert!((t_a(&policies[0], 1) / t_a(&policies[0], 0) - 1.0).abs() < 0.05);
    assert!(t_a(&policies[3], 1) < t_a(&policies[0], 1), "{out}");
    // Found: what is copied in the rest after a run cost no energy. The first run reads as ext2 does; all that it
    // read is copied then.
    let energy = |p: &Value, run: usize| number(&p["runs"][run]["energy_total_j"]);
    assert!(energy(&policies[3], 0) > 1.05 * energy(&policies[0], 0), "{out}");
    let total = 100.0 * (1.0 - energy(&policies[3], 1) / energy(&policies[0], 1));
    assert!((number(&policies[3]["improvement"]["total_energy"]) - total).abs() < 0.01, "{out}");

    let (code, out, _) = paper(&[&args[..], &["--policy", "fs2-2005"]].concat());
    assert_eq!(code, 0);
    for part in ["Table 3: CVS update, run 2", "the paper", "difference, points", "T_A of run 1, 2"] {
        assert!(out.contains(part), "no '{part}' in\n{out}");
    }
}

#[test]
fn wrong_parameters_are_refused_with_their_file() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("wrong.toml");
    std::fs::write(&path, "seed = 1\n").expect("the scratch directory can be written");
    let name = path.to_str().expect("a name in text");
    let (code, out, err) = paper(&["--params", name]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("wrong.toml") && err.contains("volume"), "{err}");
    assert_eq!(paper(&["--workload", "oltp"]).0, 2);
}
