//! fsbench's workloads on a real FS2 volume, each cold and with little memory, in one mount after another:
//! every file as written, the drive's figures told, e2fsck content afterwards.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use fs2_tests::{KERNEL, Mounted, PlainMount, Scratch, e2fsck_clean, mke2fs, needs, run};

const MIB: u64 = 1 << 20;

fn volume(scratch: &Scratch) -> std::path::PathBuf {
    let image = scratch.path("image");
    mke2fs(&image, 512 * MIB, &["-t", "ext2", "-m", "0", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    image
}

/// Small forms of all workloads, in the order of the papers.
const SMALL: [&[&str]; 22] = [
    &["cvs-update", "--scale", "0.08", "--set", "touch=10", "--set", "cpu_us=0"],
    &["startx", "--scale", "0.1", "--set", "think_min_us=0", "--set", "think_max_us=1000"],
    &["surge", "--scale", "0.1", "--ops", "300", "--set", "off=0.002", "--set", "cap=200000"],
    &["tpcw-browsing", "--scale", "0.02", "--ops", "40", "--set", "think=0.001"],
    &["tpcw-shopping", "--scale", "0.02", "--ops", "40", "--set", "think=0.001"],
    &["tpcw-ordering", "--scale", "0.02", "--ops", "40", "--set", "think=0.001"],
    &["postmark", "--scale", "0.1"],
    &["find", "--scale", "0.1"],
    &["compile", "--scale", "0.1", "--set", "cpu_min_ms=0", "--set", "cpu_max_ms=5"],
    &["log", "--scale", "0.03"],
    &["reclaim", "--scale", "0.03", "--set", "objects=0"],
    &["single-file", "--set", "reads=5", "--set", "mib=1", "--set", "most=1048576"],
    &["zipf-0", "--scale", "0.2", "--ops", "60"],
    &["zipf-1", "--scale", "0.1", "--ops", "60"],
    &["zipf-2", "--scale", "0.03", "--ops", "40"],
    &["zipf-3", "--scale", "0.05", "--ops", "20", "--set", "largest=1000000"],
    &["zipf-4", "--scale", "0.2", "--ops", "20", "--set", "largest=1000000"],
    &["zipf-alpha", "--scale", "0.2", "--ops", "60", "--set", "largest=500000", "--set", "alphas=0.5,1"],
    &["shared", "--scale", "0.05", "--ops", "60", "--set", "threads=4"],
    &["hybrid", "--scale", "0.05", "--ops", "60", "--set", "threads=4"],
    &["rubis", "--scale", "0.1", "--ops", "40", "--set", "think=0.001"],
    &["rubbos", "--scale", "0.1", "--ops", "40", "--set", "think=0.001"],
];

#[test]
fn every_workload_runs_cold_on_a_volume_that_copies() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.path("mnt");
    let drive =
        ["--policy", "torture", "--drive", "wd800-repaired", "--time-scale", "0.01", "--require-active"];
    // The memory limit needs a memory cgroup; where there is none, fsbench says so and the test goes without.
    let limited = limit_works(&scratch);
    println!("memory limit: {}", if limited { "64m" } else { "none: no memory cgroup here" });
    let mut copies = 0;
    for chunk in SMALL.chunks(4) {
        let mounted = Mounted::new(&scratch, &image, &dir, &drive);
        for args in chunk {
            let json = scratch.path("result.json");
            let mut command = scratch.command("fsbench");
            command.arg("run").args(*args).args(["--runs", "2", "--seed", "11", "--cold", "remount"]);
            command.args(["--quiet-warnings", "--json"]).arg(&json);
            if limited {
                command.args(["--mem-limit", "64m"]);
            }
            let said = run(command.arg(&dir)).ended(0).says("as written").says("FS2: policy torture");
            let document: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(&json).expect("a document")).expect("JSON");
            let runs = document["runs"].as_array().expect("runs");
            assert_eq!(runs.len(), 2, "{}", said.out);
            for run in runs {
                let drive = &run["drive"];
                assert!(drive["accesses"].as_u64() > Some(0), "{}: {drive}", args[0]);
                assert!(drive["t_a_ms"].as_f64() > Some(0.0), "{}: {drive}", args[0]);
                assert!(drive["access_j"].as_f64() > Some(0.0), "{}: {drive}", args[0]);
            }
            assert_eq!(names_in(&dir), ["lost+found"], "{}", args[0]);
        }
        let status = mounted.status();
        for counter in ["hash_mismatches", "replica_errors", "table_errors"] {
            assert_eq!(status[counter], 0, "{counter} in {status}");
        }
        assert_eq!(status["liveness"], "active");
        copies += status["copies_written"].as_u64().unwrap_or(0);
        mounted.umount().ended(0);
        e2fsck_clean(&image);
    }
    assert!(copies > 500, "{copies} copies: the volume has hardly done anything");
}

/// Found: the drive's accesses and joules were those of warm-up and run, over the run's time alone.
#[test]
fn the_drive_s_figures_are_of_what_follows_the_warm_up() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.path("mnt");
    let mounted = Mounted::new(&scratch, &image, &dir, &["--policy", "none", "--drive", "wd800-repaired"]);
    let json = scratch.path("result.json");
    let mut command = scratch.command("fsbench");
    command.args(["run", "varmail", "--set", "files=100", "--set", "threads=2", "--duration", "1s"]);
    command.args(["--warmup", "4s", "--quiet-warnings", "--json"]).arg(&json).arg(&dir);
    run(&mut command).ended(0);
    let document: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("a document")).expect("JSON");
    let run = &document["runs"][0];
    let number = |v: &serde_json::Value| v.as_f64().unwrap_or_else(|| panic!("{run}"));
    let whole_s = number(&run["elapsed_s"]) + number(&run["sync_s"]);
    // It syncs all the time, and the drive cannot be at work for longer than there is time.
    let busy_s = number(&run["drive"]["busy_s"]);
    assert!(busy_s > 0.0 && busy_s < 1.5 * whole_s, "{busy_s} s of {whole_s} s: {run}");
    mounted.umount().ended(0);
    e2fsck_clean(&image);
}

/// Found: by any other directory than the first it was a file system without a daemon: no figures, and --record was refused.
#[test]
fn a_volume_is_asked_by_whichever_directory_it_is_bound_to() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let (dir, other, part) = (scratch.path("mnt"), scratch.make_dir("other"), scratch.make_dir("part"));
    let drive = ["--policy", "none", "--drive", "wd800-repaired", "--time-scale", "0.01"];
    let mounted = Mounted::new(&scratch, &image, &dir, &drive);
    std::fs::create_dir(dir.join("below")).expect("a directory");
    for (what, at) in [(dir.clone(), &other), (dir.join("below"), &part)] {
        run(Command::new("mount").arg("--bind").arg(&what).arg(at)).ended(0);
        let bound = Bound(at);
        let done = run(scratch.command("fsbench").args(["run", "find", "--scale", "0.1"]).arg(at)).ended(0);
        drop(bound);
        done.says("FS2: policy none");
    }
    mounted.umount().ended(0);
    e2fsck_clean(&image);
}

/// A directory something is bound to; no longer on drop.
struct Bound<'a>(&'a Path);

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

fn limit_works(scratch: &Scratch) -> bool {
    let probe = scratch.make_dir("probe");
    let small = ["find", "--scale", "0.01", "--mem-limit", "64m"];
    run(scratch.command("fsbench").arg("run").args(small).arg(&probe)).code == 0
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Ctrl-C on a terminal reaches every process of the command. One of these moments or another falls into
/// making files, mounting anew, a run.
#[test]
fn ctrl_c_leaves_the_volume_mounted_and_nothing_on_it() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.path("mnt");
    let mounted = Mounted::new(&scratch, &image, &dir, &["--policy", "none"]);
    for ms in [0, 60, 150, 270, 420, 600] {
        let mut command = scratch.command("fsbench");
        command
            .args(["run", "zipf-0", "--scale", "0.1", "--ops", "20", "--runs", "10000", "--cold", "remount"]);
        command.arg(&dir).process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("fsbench");
        let until = Instant::now() + Duration::from_secs(60);
        while !dir.join("fsbench.d").exists() {
            assert!(
                Instant::now() < until && child.try_wait().expect("a child").is_none(),
                "it does not begin"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(ms));
        killpg(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("a signal");
        assert_eq!(child.wait().expect("its end").code(), Some(130), "after {ms} ms");
        assert_eq!(names_in(&dir), ["lost+found"], "after {ms} ms: mounted, and only what was there");
    }
    mounted.umount().ended(0);
    e2fsck_clean(&image);
}

#[test]
fn a_run_is_recorded_for_the_replay() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.path("mnt");
    let trace = scratch.path("cvs.fs2trace");
    let mounted = Mounted::new(&scratch, &image, &dir, &["--policy", "none"]);
    let record = || {
        let mut command = scratch.command("fsbench");
        command.args(["run", "cvs-update", "--scale", "0.05", "--cold", "remount", "--record"]);
        run(command.arg(&trace).arg(&dir))
    };
    std::fs::write(&trace, "earlier").expect("a file");
    record().ended(1).says("cvs.fs2trace: File exists");
    assert_eq!(std::fs::read(&trace).expect("the file"), b"earlier");
    std::fs::remove_file(&trace).expect("a file of ours");
    record().ended(0).says("as written");
    mounted.umount().ended(0);
    let info = run(scratch.command("fs2-replay").args(["info", "--json"]).arg(&trace)).ended(0).json();
    assert!(info.to_string().contains("read"), "{info}");
    // 125 files of two trees were read from the disk, the comparison at the end was not recorded.
    let bytes = std::fs::metadata(&trace).expect("the trace").len();
    assert!(bytes > 500, "{bytes} bytes of trace");
}

#[test]
fn volumes_that_cannot_be_written_are_refused() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let bench = |args: &[&str], dir: &Path| run(scratch.command("fsbench").arg("run").args(args).arg(dir));
    let dir = scratch.path("plain");
    {
        let plain = PlainMount::new(&image, &dir, "ro");
        bench(&["cvs-update"], plain.dir()).ended(1).says("read-only");
    }
    bench(&["cvs-update"], &image).ended(1).says("not a directory");
    {
        let plain = PlainMount::new(&image, &dir, "rw");
        bench(&["tpcw-shopping", "--preset", "paper"], plain.dir()).ended(1).says("free");
        bench(&["find", "--set", "inodes=40000", "--set", "mib=1"], plain.dir()).ended(1).says("inodes");
        assert_eq!(names_in(plain.dir()), ["lost+found"]);
    }
    e2fsck_clean(&image);

    // The daemon is gone: nothing that was set up answers any more.
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &[]);
    mounted.kill_daemon();
    bench(&["cvs-update", "--scale", "0.02"], mounted.dir()).ended(1).says("its daemon does not answer");
    // Taken away behind FS2's back: the directory is there, and what is below it is another file system's.
    run(Command::new("umount").arg("-l").arg(mounted.dir())).ended(0);
    bench(&["cvs-update", "--scale", "0.02"], mounted.dir()).ended(1).says("is not mounted there any more");
    assert!(names_in(mounted.dir()).is_empty());
}

#[test]
fn a_volume_that_fills_up_fails_the_run() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 32 * MIB, &["-t", "ext2", "-m", "0", "-b", "4096"]);
    let plain = PlainMount::new(&image, &scratch.path("mnt"), "rw");
    let mut command = scratch.command("fsbench");
    command.args(["run", "surge", "--scale", "0.05", "--duration", "1h", "--quiet-warnings"]);
    for set in ["cap=100000", "ageing_mib=1", "off=0.002", "seconds=1"] {
        command.args(["--set", set]);
    }
    let mut child =
        command.arg(plain.dir()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("fsbench");
    let log = plain.dir().join("fsbench.d/access1.log");
    let until = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(&log).map_or(0, |m| m.len()) == 0 {
        assert!(Instant::now() < until && child.try_wait().expect("a child").is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Somebody else takes all that is free.
    let full = std::fs::write(plain.dir().join("else"), vec![1; 32 << 20]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC), "{full}");
    let ended = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("access") && said.contains("No space left"), "{said}");
    let mut left = names_in(plain.dir());
    left.sort();
    assert_eq!(left, ["else", "lost+found"]);
}
