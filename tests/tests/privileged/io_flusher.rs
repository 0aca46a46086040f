//! What the kernel is told of a daemon behind whose volume a mount may stand, by whatever frontend: that it writes out what others
//! need freed, and that its memory stays.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use fs2_tests::{Need, Scratch, mke2fs, needs};

/// PF_MEMALLOC_NOIO of linux/sched.h: what PR_SET_IO_FLUSHER sets.
const MEMALLOC_NOIO: u64 = 0x0008_0000;

/// CAP_SYS_RESOURCE of linux/capability.h.
const SYS_RESOURCE: u32 = 24;

/// Killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn flags(thread: &Path) -> u64 {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    // After the name, which may hold anything: state, four numbers, flags.
    let after = stat.rsplit_once(") ").unwrap().1;
    let words: Vec<&str> = after.split_whitespace().collect();
    words[6].parse().unwrap()
}

/// A first daemon behind NBD or FUSE told the kernel nothing of it.
#[test]
fn daemons_do_not_wait_for_writes_of_their_own() {
    if !needs(&[Need::Root, Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 32 << 20, &["-t", "ext2", "-b", "4096"]);
    let control = scratch.path("control");
    let mut daemon = scratch.command("fs2d");
    daemon.arg("serve").arg(&image).arg("--control").arg(&control);
    daemon.arg("--listen").arg(format!("unix:{}", scratch.path("nbd").display()));
    let daemon = Running(daemon.stderr(Stdio::null()).spawn().unwrap());
    for _ in 0..600 {
        if control.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(control.exists(), "it serves");
    let process = format!("/proc/{}", daemon.0.id());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let locked = status.lines().find_map(|l| l.strip_prefix("VmLck:")).unwrap();
    assert_ne!(locked.trim(), "0 kB");
    let capabilities = status.lines().find_map(|l| l.strip_prefix("CapEff:\t")).unwrap();
    if u64::from_str_radix(capabilities, 16).unwrap() >> SYS_RESOURCE & 1 == 0 {
        println!("SKIPPED in part: root has no CAP_SYS_RESOURCE here");
        return;
    }
    let threads: Vec<_> = std::fs::read_dir(format!("{process}/task")).unwrap().flatten().collect();
    assert!(threads.len() > 1);
    for thread in threads {
        assert_ne!(flags(&thread.path()) & MEMALLOC_NOIO, 0, "{}", thread.path().display());
    }
}
