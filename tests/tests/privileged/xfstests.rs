//! `tests/xfstests.sh` does what it says with a tree that stands in for xfstests: it serves both devices, makes
//! file systems below a served device, judges the sessions, and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs2_tests::{Done, KERNEL, Need, Scratch, loops_below, mounts_below, needs, program, run};

fn script(scratch: &Scratch, args: &[&str]) -> Done {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binaries: PathBuf = program("fs2d").parent().unwrap().to_owned();
    let mut command = Command::new(here.join("xfstests.sh"));
    command.arg(here.join("standin")).args(args);
    command
        .env("FS2_BIN", binaries)
        .env("FS2_SIZE", "512M")
        .env("TMPDIR", scratch.dir())
        .env_remove("FS2_MUCH");
    let done = run(&mut command);
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]), "{done:?}");
    assert_eq!(std::fs::read_dir(scratch.dir()).unwrap().count(), 0, "{done:?}");
    done
}

fn ready() -> bool {
    needs(KERNEL) && needs(&["losetup", "findmnt", "flock", "bash", "fsck"].map(Need::Program))
}

#[test]
fn a_group_runs_on_served_devices() {
    if !ready() {
        return;
    }
    let done = script(&Scratch::new(), &["-g", "quick"]).ended(0);
    println!("{}", done.out);
    // Two volumes, and the second of them made twice while it was served.
    let done = done.says("standin/7: done").says("sessions: 4");
    assert!(!done.out.contains("frozen") && !done.out.contains("refused"), "{}", done.out);
}

#[test]
fn a_failure_and_an_empty_run_are_told() {
    if !ready() {
        return;
    }
    script(&Scratch::new(), &["-g", "none", "--fail"]).ended(1).says("failing, as asked");
    script(&Scratch::new(), &["-g", "none"]).ended(3).says("shows nothing");
}
