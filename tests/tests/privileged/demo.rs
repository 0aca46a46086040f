//! `fs2 demo` through the kernel, small and fast: replicas are read, and no mount, loop device, process or
//! file is left behind.

use std::time::Duration;

use fs2_tests::{KERNEL, Need, Scratch, loops_below, mounts_below, needs, run_within};

#[test]
fn the_demo_through_the_kernel_leaves_nothing() {
    if !needs(KERNEL) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (temporary, work) = (scratch.make_dir("tmp"), scratch.make_dir("work"));
    let mut demo = scratch.command("fs2");
    demo.env("TMPDIR", &temporary).current_dir(&work);
    demo.args(["demo", "--runs", "3", "--pairs", "20", "--time-scale", "0.05", "--json"]);
    demo.args(["--report", "report.html"]);
    let said = run_within(&mut demo, Duration::from_secs(600)).ended(0).json();
    let last = said["runs"].as_array().and_then(|r| r.last()).expect("a list of runs");
    assert_eq!(last["system"], "FS2");
    assert!(last["from_replica"].as_u64() > Some(0), "{last}");
    assert!(
        said["frontend"].as_str().is_some_and(|f| f.contains("FUSE") || f.contains("fuse")),
        "{}",
        said["frontend"]
    );
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(work.join("report.html").exists());
}
