//! `fs2 demo` through the kernel, small and fast: replicas are read, and no mount, loop device, process or
//! file is left behind, also by a signal. Its figures are said whatever becomes of the report, and whoever listens.

use std::process::Stdio;
use std::time::{Duration, Instant};

use fs2_tests::{
    KERNEL, Need, PRIVATE, Scratch, loops_below, mounts_below, needs, privately, program, run_within,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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

/// It left mounts, loop devices, daemons and images, which `fs2 status` did not show.
#[test]
fn a_signal_ends_the_demo_cleaned_up() {
    if !needs(KERNEL) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let scratch = Scratch::new();
        let temporary = scratch.make_dir("tmp");
        // Heeded also where these tests run under nohup.
        let mut demo = std::process::Command::new("env");
        demo.arg("--default-signal=HUP").arg(program("fs2")).env("FS2_RUNTIME_DIR", scratch.runtime());
        demo.env("TMPDIR", &temporary).current_dir(scratch.dir()).args(["demo", "--pairs", "600", "--json"]);
        let demo = demo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(120);
        // Each volume is two: by FUSE, and on the loop device.
        while mounts_below(scratch.dir()).len() < 4 {
            assert!(Instant::now() < until, "{:?}", mounts_below(scratch.dir()));
            std::thread::sleep(Duration::from_millis(50));
        }
        kill(Pid::from_raw(demo.id().cast_signed()), signal).unwrap();
        let said = demo.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(128 + signal as i32), "{err}");
        assert!(err.contains("interrupted; everything was cleaned up"), "{err}");
        assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]), "{signal}");
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{signal}");
    }
}

/// What took minutes was not said where the page found no room.
#[test]
fn the_figures_are_said_before_the_page_is_written() {
    if !needs(KERNEL) || !needs(PRIVATE) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
        mkdir full; mount -t tmpfs -o size=4k none full
        demo() { fs2 demo --in-process --runs 1 --pairs 2 --time-scale 0.01 "$@"; }
        code=0; demo --report full/page.html > said 2> err || code=$?; [ $code = 1 ]
        grep -q 'run 1  FS2' said; grep -q 'seek' said; grep -q 'full/page.html: No space left' err
        demo --report page.html | true; [ "${PIPESTATUS[0]}" = 0 ]; [ -s page.html ]
        code=0; demo --report page.html > /dev/full 2> err || code=$?; [ $code = 1 ]; grep -q 'No space left' err
    "#;
    privately(&scratch, script).ended(0);
}
