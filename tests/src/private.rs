//! Scripts in namespaces of their own: what they mount is seen by nobody else, and what they start ends with them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Done, Need, Scratch, program, run_within};

/// What [`privately`] needs beside [`KERNEL`](crate::KERNEL).
pub const PRIVATE: &[Need] = &[
    Need::Program("unshare"),
    Need::Program("mount"),
    Need::Program("findmnt"),
    Need::Program("fsck"),
    Need::Program("blkid"),
    Need::Program("losetup"),
];

/// `/run` is empty and `/usr/sbin` has the project's programs and mount(8)'s helpers beside what was there: the machine's own
/// stay as they are.
const PRELUDE: &str = r#"
set -eEuo pipefail
trap 'echo "failed: $BASH_COMMAND (line $LINENO of the script)" >&2' ERR
mount --make-rprivate /
sbin=$(realpath /sbin)
mount -t tmpfs none /run
mkdir /run/sbin
mount --bind "$sbin" /run/sbin
mount -t tmpfs none "$sbin"
ln -s /run/sbin/* "$sbin/"
# A test may hide what is below /tmp.
mkdir /run/binaries
mount --bind "$BINARIES" /run/binaries
for name in fs2 fs2d mkfs2 chkfs2; do ln -sf "/run/binaries/$name" "$sbin/"; done
for name in mount umount fsck mkfs; do ln -sf /run/binaries/fs2 "$sbin/$name.fs2"; done
within() { for _ in $(seq 400); do "$@" > /dev/null 2>&1 && return 0; sleep 0.05; done; echo "never: $*" >&2; return 1; }
# A bare `!` ends no script.
not() { ! "$@"; }
key() { echo "file-$(stat -c %d-%i "$1")"; }
# Nothing but stamps is left of an image's mounts: no record, no daemon, no loop device.
left() {
    ! ls /run/fs2/"$(key "$1")".* 2> /dev/null | grep -v '\.stamp$' || return 1
    ! losetup -nO BACK-FILE | grep -F "/run/fs2/$(key "$1")."
}
daemon() { sed -n 's/.*"pid": \([0-9]*\),/\1/p' "/run/fs2/$(key "$1").mount"; }
"#;

/// Runs a bash script as root of mount and process namespaces of its own, in the scratch directory. The kernel kills what is left
/// of it at its end. With `FS2_PACKAGE=DIR`, an unpacked package, its programs are taken.
///
/// # Panics
/// Where it does not end.
#[track_caller]
pub fn privately(scratch: &Scratch, script: &str) -> Done {
    let binaries = match std::env::var_os("FS2_PACKAGE").filter(|p| !p.is_empty()) {
        Some(package) => Path::new(&package).join("usr/sbin"),
        None => program("fs2").parent().expect("its directory").to_owned(),
    };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]);
    command.arg(format!("{PRELUDE}{script}")).current_dir(scratch.dir());
    command
        .env("BINARIES", binaries)
        .env("NO_COLOR", "1")
        .env_remove("FS2_LOG")
        .env_remove("FS2_RUNTIME_DIR");
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    run_within(&mut command, Duration::from_secs(240))
}
