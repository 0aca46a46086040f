//! A scope of systemd's for a daemon, and one for who supervises it. A machine that goes down ends a session, and whatever was started in it, before it
//! unmounts file systems: what is written meanwhile was lost below a daemon that was gone, and below NBD and ublk the unmount waited without end.
//! A mount unit (`/etc/fstab`) is unmounted before what it started is ended, so there nothing is to be done.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::OnceLock;

use super::MountRecord;

/// Is there where systemd runs the machine (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// The first letters of our scopes' names.
const PREFIX: &str = "fs2-";

/// What starts `program` in a scope of its own, as the same process, where that is needed; `None` where it is not, or systemd does not
/// make one, which is told.
pub(super) fn launcher(record: &MountRecord, program: &Path) -> Option<Process> {
    static MADE: OnceLock<bool> = OnceLock::new();
    let in_session = Path::new(BOOTED).exists()
        && nix::unistd::geteuid().is_root()
        && std::fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| ends_with_its_starter(&text));
    if !in_session {
        return None;
    }
    let made = MADE.get_or_init(|| {
        let mut probe = in_scope(record, "probe", OsStr::new("true"));
        let done = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let made = done.is_ok_and(|status| status.success());
        if !made {
            eprintln!(
                "fs2: systemd-run makes no scope: the daemon ends with this session, also where the machine goes down; unmount {} \
                 before, or have it mounted by /etc/fstab",
                record.dir.display()
            );
        }
        made
    });
    made.then(|| in_scope(record, "run", program.as_os_str()))
}

/// Nothing ends it but its own end, and the end of all processes, after the last unmount.
fn in_scope(record: &MountRecord, what: &str, program: &OsStr) -> Process {
    static STARTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let key = record.path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let unit = format!("{PREFIX}{key}-{what}-{}-{n}", std::process::id());
    let mut command = Process::new("systemd-run");
    command.args([
        "--scope",
        "--quiet",
        "--collect",
        "--no-ask-password",
        "--property=DefaultDependencies=no",
    ]);
    command.arg(format!("--unit={unit}")).arg("--").arg(program);
    command
}

/// Whether what a process of this cgroup (`/proc/PID/cgroup`) starts is ended with a session or a service, before file systems are unmounted.
fn ends_with_its_starter(cgroup: &str) -> bool {
    let of_systemd = |line: &str| {
        let (hierarchy, path) = line.split_once(':')?.1.split_once(':')?;
        matches!(hierarchy, "" | "name=systemd").then(|| path.to_owned())
    };
    let units = [".scope", ".service", ".mount"];
    let unit = |path: String| {
        path.rsplit('/').find(|part| units.iter().any(|unit| part.ends_with(unit))).map(str::to_owned)
    };
    let of = cgroup.lines().filter_map(of_systemd).find_map(unit);
    of.is_some_and(|unit| {
        !unit.ends_with(".mount")
            && unit != "init.scope"
            && !(unit.starts_with(PREFIX) && unit.ends_with(".scope"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_or_a_service_starts_ends_with_it() {
        for ends in [
            "0::/user.slice/user-0.slice/session-3.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n",
            "0::/system.slice/udisks2.service\n",
            "0::/system.slice/cron.service/sub\n",
            "12:cpu:/\n1:name=systemd:/user.slice/user-0.slice/session-c1.scope\n0::/\n",
        ] {
            assert!(ends_with_its_starter(ends), "{ends}");
        }
        for stays in [
            "0::/system.slice/srv.mount\n",
            "0::/system.slice/fs2-dev-2049-run-17-0.scope\n",
            "0::/init.scope\n",
            "0::/\n",
            "0::/docker/0123456789ab\n",
            "12:cpu:/system.slice/ssh.service\n",
            "",
            "nonsense\n:\n::",
        ] {
            assert!(!ends_with_its_starter(stays), "{stays}");
        }
    }
}
