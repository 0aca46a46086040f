//! Tests say what they need, and are shown as skipped where that is missing.

use std::fs::File;
use std::io::Write;

/// Something a machine may lack.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// To be the superuser.
    Root,
    /// `/dev/fuse`.
    Fuse,
    /// A kernel that can offer FUSE requests by io_uring.
    FuseRing,
    /// `/dev/loop-control`.
    Loop,
    /// A guest with a kernel of its own: qemu, busybox and the kernel that `tests/guest/run --prepare` fetches.
    Guest,
    /// A program in the search path or in `target/tools/bin`.
    Program(&'static str),
}

impl Need {
    /// What is missing and how to get it; `None` where it is there.
    fn lacking(self) -> Option<String> {
        let opens = |path| File::options().read(true).write(true).open(path).is_ok();
        match self {
            Need::Root => (!nix::unistd::geteuid().is_root()).then(|| "root (sudo -E cargo test)".into()),
            Need::Fuse => (!opens("/dev/fuse")).then(|| "/dev/fuse (modprobe fuse; package fuse3)".into()),
            Need::FuseRing => (!opens("/sys/module/fuse/parameters/enable_uring")).then(|| {
                "/sys/module/fuse/parameters/enable_uring (Linux 6.14, CONFIG_FUSE_IO_URING)".into()
            }),
            Need::Loop => (!opens("/dev/loop-control")).then(|| "/dev/loop-control (modprobe loop)".into()),
            Need::Guest => crate::guest::lacking(),
            Need::Program(name) => crate::tool(name).is_none().then(|| format!("{name} ({})", origin(name))),
        }
    }
}

/// Where a program comes from.
fn origin(program: &str) -> String {
    let package = match program {
        "fsx" => return "cargo install fsx --locked --root target/tools".into(),
        "mke2fs" | "e2fsck" | "debugfs" | "dumpe2fs" => "e2fsprogs",
        "nbdinfo" | "nbdcopy" => "libnbd-bin",
        "qemu-img" => "qemu-utils",
        "prlimit" | "flock" | "unshare" | "findmnt" | "fsck" | "blkid" | "losetup" => "util-linux",
        "pgrep" => "procps",
        "systemd-analyze" | "systemd-socket-activate" => "systemd",
        "promtool" => "prometheus",
        other => other,
    };
    format!("apt-get install {package}")
}

/// What of it this machine lacks, in words; `None` where all is there.
pub fn missing(needs: &[Need]) -> Option<String> {
    let root = needs.iter().find(|n| matches!(n, Need::Root)).and_then(|n| n.lacking());
    // Without root it cannot be told what else root would find.
    let all: Vec<String> = match root {
        Some(root) => vec![root],
        None => needs.iter().filter_map(|n| n.lacking()).collect(),
    };
    (!all.is_empty()).then(|| all.join(", "))
}

/// Whether the calling test can run here. Where not, says so past the harness's capture, so that a
/// skipped test is never mistaken for one that ran.
///
/// # Panics
/// Where something is missing and `FS2_FORBID_SKIP` is set: the machine was meant to have it.
pub fn needs(needs: &[Need]) -> bool {
    let Some(missing) = missing(needs) else { return true };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let forbidden = std::env::var_os("FS2_FORBID_SKIP").is_some_and(|v| !v.is_empty() && v != "0");
    assert!(!forbidden, "{name} needs {missing}, and FS2_FORBID_SKIP forbids to skip it");
    // On a line of its own: the harness has written half of one.
    let _ = writeln!(std::io::stderr(), "\nskipped: {name}: needs {missing}");
    false
}

/// A number from the environment, such as how long the suites run; `default` where it is not set.
///
/// # Panics
/// Where it is set to something else.
pub fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok().filter(|v| !v.is_empty());
    value.map_or(default, |v| v.parse().unwrap_or_else(|e| panic!("{name}={v}: {e}")))
}
