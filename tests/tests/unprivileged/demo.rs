//! `fs2 demo` in its own process, small and fast: the last run of FS2 reads from replicas, plain ext2 never
//! does, and nothing is left behind but the report.

use std::time::Duration;

use fs2_tests::{Need, Scratch, needs, run, run_within};

#[test]
fn the_demo_reads_from_replicas_and_leaves_nothing() {
    if !needs(&["mke2fs", "debugfs", "e2fsck"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let (temporary, work) = (scratch.make_dir("tmp"), scratch.make_dir("work"));
    let left = |dir| std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    // A wrong one was told of after the image was made, or after all the runs.
    for (option, value, says) in [
        ("--report", "/nonexistent/x", "/nonexistent/x: No such file"),
        ("--drive", "nosuch", "no drive profile 'nosuch'"),
        ("--policy", "nosuch", "no policy 'nosuch'"),
        ("--time-scale", "0", "not a factor between"),
    ] {
        let mut demo = scratch.command("fs2");
        demo.env("TMPDIR", &temporary).current_dir(&work).args(["demo", "--in-process", option, value]);
        let said = run(&mut demo).ended(1).says(says);
        assert_eq!(said.out, "", "{option}");
        assert!(left(&temporary).is_empty() && left(&work).is_empty(), "{option}");
    }
    let mut demo = scratch.command("fs2");
    demo.env("TMPDIR", &temporary).current_dir(&work);
    demo.args(["demo", "--in-process", "--runs", "2", "--pairs", "20", "--time-scale", "0.05", "--json"]);
    demo.args(["--report", "report.html"]);
    let said = run_within(&mut demo, Duration::from_secs(600)).ended(0).json();
    let runs = said["runs"].as_array().expect("a list of runs");
    assert_eq!(runs.len(), 4, "{said}");
    for run in runs {
        let (reads, copies) = (run["reads"].as_u64().unwrap(), run["from_replica"].as_u64().unwrap());
        assert!(reads >= 40, "{run}");
        match (run["system"].as_str(), run["run"].as_u64()) {
            (Some("ext2"), _) => assert_eq!(copies, 0, "{run}"),
            (Some("FS2"), Some(2)) => assert!(copies > 0, "{run}"),
            _ => {}
        }
    }
    let html = std::fs::read_to_string(work.join("report.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("FS2"), "a page with pictures");
    assert_eq!(left(&work), ["report.html"]);
    assert!(left(&temporary).is_empty(), "{:?}", left(&temporary));
}

/// What had no room was missed when it was read, by its name alone: debugfs ends well whatever it fails at.
#[test]
fn what_debugfs_cannot_write_is_told_of() {
    if !needs(&["mke2fs", "debugfs"].map(Need::Program)) {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let (temporary, bin) = (scratch.make_dir("tmp"), scratch.make_dir("bin"));
    let debugfs = bin.join("debugfs");
    let script =
        "#!/bin/sh\necho 'debugfs 1.47.0 (5-Feb-2023)' >&2; cat > /dev/null; echo '256: no room' >&2\n";
    std::fs::write(&debugfs, script).unwrap();
    std::fs::set_permissions(&debugfs, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut demo = scratch.command("fs2");
    demo.env("TMPDIR", &temporary).env("PATH", path).current_dir(scratch.dir());
    let said =
        run(demo.args(["demo", "--in-process"])).ended(1).says("ext2.img failed: 256: no room; TMPDIR says");
    assert!(said.err.contains(temporary.to_str().unwrap()), "{}", said.err);
}
