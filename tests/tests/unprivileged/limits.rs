//! Limits that a shell or a service manager sets a daemon: it lives below them, or refuses in words.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fs2_tests::{Ask, NbdClient, Need, Scratch, Served, mke2fs, needs, program, run, run_within};

const MIB: u64 = 1 << 20;

/// SIGXFSZ ended the daemon at the first write beyond the limit, below whoever used the volume.
#[test]
fn a_write_beyond_the_limit_of_files_sizes_fails_and_the_daemon_lives() {
    if !needs(&["mke2fs", "prlimit"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    let mut served = Served::new(&scratch, &image, &[]);
    let mut client = NbdClient::connect(served.socket()).unwrap();
    let mut write = |at: u64| client.call(Ask::Write { fua: false }, at, 4096, &[7; 4096]);
    write(40 * MIB).unwrap();
    let mut limit = Command::new("prlimit");
    run(limit.args(["--pid", &served.pid().to_string(), &format!("--fsize={0}:{0}", 20 * MIB)])).ended(0);
    write(40 * MIB).unwrap_err();
    write(10 * MIB).unwrap();
    assert!(served.is_alive() && served.status()["failed"]["writes"] == 1, "{}", served.log());
    assert!(served.log().contains("failed below: File too large"), "{}", served.log());
    drop(client);
    // What it failed to write is the volume's end, and not the daemon's.
    served.stop().ended(0);
}

/// A volume of which not all can be written is refused, before it is served; a limit that may be raised is.
#[test]
fn a_volume_larger_than_files_may_be_is_refused() {
    if !needs(&["mke2fs", "prlimit"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let (image, control) = (scratch.path("image"), scratch.path("ctl"));
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    let limited = |limit: &str| {
        let mut serve = Command::new("prlimit");
        serve.env("FS2_RUNTIME_DIR", scratch.runtime()).arg(format!("--fsize={limit}"));
        serve
            .arg(program("fs2d"))
            .args(["serve", "--host-reserve=0%", "--control"])
            .arg(&control)
            .arg(&image);
        serve
    };
    let says = format!(
        "{} has {} bytes, and this process may write no file behind byte {}",
        image.display(),
        64 * MIB,
        20 * MIB
    );
    run_within(&mut limited(&format!("{0}:{0}", 20 * MIB)), Duration::from_secs(60)).ended(2).says(&says);

    /// Ends a daemon.
    struct Daemon(std::process::Child);
    impl Drop for Daemon {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let mut serve = limited(&format!("{}:unlimited", 20 * MIB));
    let mut daemon = Daemon(serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(120);
    while !control.exists() {
        assert!(daemon.0.try_wait().unwrap().is_none() && Instant::now() < until, "it does not serve");
        std::thread::sleep(Duration::from_millis(5));
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.0.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max file size")).unwrap();
    assert_eq!(line.matches("unlimited").count(), 2, "{line}");
}

/// It panicked where a thread could not be started, with a trace and exit code 101.
#[test]
fn a_daemon_that_gets_no_threads_says_so() {
    if !needs(&["mke2fs", "prlimit"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let (image, nowhere) = (scratch.path("image"), PathBuf::from("/proc/nowhere"));
    mke2fs(&image, 16 * MIB, &["-t", "ext2"]);
    let mut said_so = 0;
    // Which limit is met where depends on the machine. It ends where the frontend cannot begin, behind the threads.
    for limit in (60..400).step_by(6) {
        let mut serve = Command::new("prlimit");
        serve.env("FS2_RUNTIME_DIR", scratch.runtime()).arg(format!("--as={}", limit * MIB));
        serve.arg(program("fs2d")).args(["serve", "--frontend=fuse", "--fuse-dir"]).arg(&nowhere).arg(&image);
        let done = run_within(&mut serve, Duration::from_secs(60));
        assert!(!done.err.contains("panicked"), "{limit} MiB: {done:?}");
        if done.err.contains(&format!("fs2d: starting the threads that do the I/O of {}", image.display())) {
            assert_eq!(done.code, 2, "{done:?}");
            said_so += 1;
        }
    }
    assert!(said_so > 0, "the test shows nothing");
}

/// The control socket's runtime panicked.
#[test]
fn a_daemon_that_may_open_few_files_says_so() {
    if !needs(&["mke2fs", "prlimit"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 16 * MIB, &["-t", "ext2"]);
    let mut said_so = 0;
    for limit in 8..40 {
        let mut serve = Command::new("prlimit");
        serve.env("FS2_RUNTIME_DIR", scratch.runtime()).arg(format!("--nofile={limit}"));
        // It ends where the control socket is to be made, behind the runtime.
        serve.arg(program("fs2d")).args(["serve", "--control=/proc/nowhere/ctl"]).arg(&image);
        let done = run_within(&mut serve, Duration::from_secs(60));
        assert!(done.code == 2 && !done.err.contains("panicked"), "{limit} files: {done:?}");
        said_so += u32::from(done.err.contains("/proc/nowhere/ctl cannot be made: Too many open files"));
    }
    assert!(said_so > 0, "the test shows nothing");
}
