//! A daemon as its starter sees it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use fs2_control::{Client, Command, Reply, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::end::clear_dead_carrier;
use super::{MountRecord, VolumeError, io_error, scope, uninterrupted};

/// How long a daemon may take until it answers; what it waits for ([`fs2d::cli::longest_wait`]) comes on top, or it would be killed while it
/// takes a device over, and its successor, and the device be given up.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// How long a daemon that serves may be without a word before others are asked whether it does. A guess: its socket is made in milliseconds.
const SILENCE_PATIENCE: Duration = Duration::from_secs(5);

const NAP: Duration = Duration::from_millis(20);

/// How long a daemon may take to end once it was asked.
const END_PATIENCE: Duration = Duration::from_secs(120);

/// How long one that was asked to end before it ever answered may take: it waits for a lock, or for the kernel. Guess.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How long one that is killed may take; longer does one that the kernel keeps for its I/O. Guess.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// This program as it is installed: a later version where a package has replaced it, since what `fs2 upgrade` made of the daemon is not
/// to become the former version again; and itself where it was removed, since a mounted volume needs its daemon all the same.
fn own_program() -> io::Result<PathBuf> {
    Ok(installed(std::env::current_exe()?))
}

fn installed(running: PathBuf) -> PathBuf {
    // The kernel's word for a file whose name is gone.
    let former = running
        .as_os_str()
        .as_bytes()
        .strip_suffix(b" (deleted)")
        .map(|path| PathBuf::from(OsStr::from_bytes(path)));
    match former {
        Some(path) if !running.exists() && path.exists() => path,
        Some(_) if !running.exists() => "/proc/self/exe".into(),
        _ => running,
    }
}

/// A process of this program, apart from its starter: a session of its own, under systemd a scope of its own, its words to the record's log.
pub(super) fn apart(record: &MountRecord, args: &[OsString]) -> Result<Child, VolumeError> {
    let log = std::fs::File::options().append(true).create(true).open(&record.log);
    let log = log.map_err(io_error(record.log.display().to_string()))?;
    let program = own_program().map_err(io_error("this program's path"))?;
    let mut command = scope::launcher(record, &program).unwrap_or_else(|| Process::new(&program));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/");
    // A relative path would be another one there.
    command.env(fs2d::runtime::RUNTIME_DIR, fs2d::runtime::runtime_dir());
    // What a service manager said to whoever mounts is not for the daemon.
    for name in
        ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"]
    {
        command.env_remove(name);
    }
    inherit_streams_alone(&mut command);
    // SAFETY: setsid is async-signal-safe and touches nothing of the parent's memory.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
    }
    command.spawn().map_err(io_error("starting a process"))
}

/// Of its starter's open files a process has only the standard streams: a lock or a pipe that a script gave the command which mounts would
/// be held for as long as the volume is mounted.
fn inherit_streams_alone(command: &mut Process) {
    // Before the fork, after which nothing may be allocated; for a kernel before Linux 5.11.
    let open = open_descriptors();
    let close = move || {
        if !close_all_at_exec() {
            open.iter().for_each(|&fd| close_at_exec(fd));
        }
        Ok(())
    };
    // SAFETY: close_range and fcntl are async-signal-safe, and what was listed is only read.
    unsafe { command.pre_exec(close) };
}

/// All that is open but the standard streams.
fn open_descriptors() -> Vec<RawFd> {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    all.flatten().filter_map(number).filter(|&fd| fd > 2).collect()
}

/// Has the kernel close at exec what is open but the standard streams; whether it knows how to.
fn close_all_at_exec() -> bool {
    // SAFETY: the call takes numbers only, and closes nothing before an exec.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

fn close_at_exec(fd: RawFd) {
    // SAFETY: the call takes numbers only; of what is closed by now it says so.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// A daemon being started; ended on drop unless it is kept.
pub(super) struct Daemon {
    child: Child,
    /// How long the log was before it: what stands there is another's word.
    log_bytes: u64,
    /// Where its FUSE mount is, if it makes one.
    carrier: Option<PathBuf>,
    /// How long it may take until it answers.
    patience: Duration,
    answered: bool,
    kept: bool,
}

impl Daemon {
    /// `args` are those of `fs2 daemon`.
    pub(super) fn start(record: &MountRecord, args: &[OsString]) -> Result<Daemon, VolumeError> {
        let patience = START_PATIENCE.saturating_add(fs2d::cli::longest_wait(args));
        let args = [&[OsString::from("daemon")], args].concat();
        let carrier = (record.frontend == "fuse").then(|| record.carrier.clone());
        let log_bytes = std::fs::metadata(&record.log).map_or(0, |log| log.len());
        let child = apart(record, &args)?;
        Ok(Daemon { child, log_bytes, carrier, patience, answered: false, kept: false })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it answers.
    pub(super) fn wait_ready(&mut self, record: &MountRecord) -> Result<Status, VolumeError> {
        let until = Instant::now() + self.patience;
        loop {
            if let Some(status) = self.look(record, until)? {
                return Ok(status);
            }
            std::thread::sleep(NAP);
        }
    }

    /// Waits until it answers or, where programs wait for it, serves without a word, as `serves` can tell: it cannot make its socket on a
    /// full file system.
    pub(super) fn wait_serving(
        &mut self,
        record: &MountRecord,
        mut serves: impl FnMut() -> bool,
    ) -> Result<Option<Status>, VolumeError> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.look(record, begun + self.patience)? {
                return Ok(Some(status));
            }
            if begun.elapsed() > SILENCE_PATIENCE && serves() {
                self.answered = true;
                return Ok(None);
            }
            std::thread::sleep(NAP);
        }
    }

    /// What it answers, if it does; fails where it has ended, or it is late.
    fn look(&mut self, record: &MountRecord, until: Instant) -> Result<Option<Status>, VolumeError> {
        if let Ok(mut client) = Client::connect(&record.control)
            && let Ok(Reply::Status(status)) = client.ask(&Command::Status)
            // A former daemon of the same device answers at the same place: not what was asked for.
            && status.pid == self.child.id()
        {
            self.answered = true;
            return Ok(Some(*status));
        }
        let ended = self.child.try_wait().map_err(io_error("waiting for the daemon"))?;
        if ended.is_some() || Instant::now() > until {
            let said = match last_words(&record.log, self.log_bytes) {
                said if said.is_empty() => {
                    format!("it left no word in {}; is there room?", record.log.display())
                }
                said => said,
            };
            return Err(VolumeError::Daemon { device: record.device.display().to_string(), said });
        }
        // It is ended by the drop.
        uninterrupted()?;
        Ok(None)
    }

    /// Leaves it running.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let ended = self.child.try_wait().is_ok_and(|ended| ended.is_some());
        if !ended && !end(&mut self.child, if self.answered { END_PATIENCE } else { STOP_PATIENCE }) {
            let pid = self.child.id();
            eprintln!("fs2: daemon {pid} does not end; its volume stays locked until it does");
            return;
        }
        if let Some(carrier) = &self.carrier {
            clear_dead_carrier(carrier);
        }
    }
}

/// How the line begins in which a daemon says why it ends.
const REASON: &str = "fs2d: ";

/// Lines of a log that are told at most, beside the reason or where there is none.
const LINES_TOLD: usize = 3;

/// What a daemon said at its end in a log, behind the first bytes of that, which are others': why it ended, and then what it had warned of, each
/// once; where it did not come to say why, its last lines.
fn last_words(log: &Path, others: u64) -> String {
    let log = std::fs::read(log).unwrap_or_default();
    let own = usize::try_from(others).ok().and_then(|others| log.get(others..)).unwrap_or_default();
    let own = String::from_utf8_lossy(own);
    let lines: Vec<&str> = own.lines().collect();
    let Some(at) = lines.iter().rposition(|line| line.starts_with(REASON)) else {
        return lines[lines.len().saturating_sub(LINES_TOLD)..].join("; ");
    };
    let reason = lines[at..].join("; ");
    let reason = reason.strip_prefix(REASON).unwrap_or_default();
    let mut warned: Vec<&str> = Vec::new();
    for text in lines[..at].iter().filter_map(|line| warning(line)) {
        if !warned.contains(&text) && !reason.contains(text) {
            warned.push(text);
        }
    }
    match &warned[warned.len().saturating_sub(LINES_TOLD)..] {
        [] => reason.to_owned(),
        last => format!("{reason} (before, it warned: {})", last.join("; ")),
    }
}

/// The words of a line of a daemon's log that warns of something or tells of an error, without its time and place.
fn warning(line: &str) -> Option<&str> {
    let (_, behind) = line.split_once(" WARN ").or_else(|| line.split_once(" ERROR "))?;
    behind.split_once(": ").map(|(_, text)| text)
}

/// What a line of a daemon's log says.
pub(super) fn words_of(line: &str) -> &str {
    line.strip_prefix(REASON).or_else(|| warning(line)).unwrap_or(line)
}

/// Asks a daemon to end, kills it where that takes longer than `patience`, and waits for that only so long: who supervises has a
/// device whose programs wait. Whether it ended.
fn end(child: &mut Child, patience: Duration) -> bool {
    [(Signal::SIGTERM, patience), (Signal::SIGKILL, KILL_PATIENCE)].into_iter().any(|(signal, patience)| {
        let _ = kill(Pid::from_raw(child.id() as i32), signal);
        let until = Instant::now() + patience;
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
                Ok(ended) => return ended.is_some(),
                // None of ours any more.
                Err(_) => return true,
            }
        }
    })
}

/// Waits for the end of a daemon that began then, as far as that is known.
pub(super) fn wait_gone(pid: u32, began: Option<u64>) -> Result<(), VolumeError> {
    let until = Instant::now() + END_PATIENCE;
    while is_alive(pid, began) {
        if Instant::now() > until {
            return Err(VolumeError::Other(format!(
                "daemon {pid} does not end; its volume stays locked until it does"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Where this process started the daemon itself, it is a child of ours still to be waited for.
    let _ = nix::sys::wait::waitpid(Pid::from_raw(pid as i32), Some(nix::sys::wait::WaitPidFlag::WNOHANG));
    Ok(())
}

/// Whether the process runs: not gone, no zombie, and not a later one of the same number. Where the system is too short to tell, it does: one that
/// is taken for gone has its device given to another, or taken away.
pub(super) fn is_alive(pid: u32, began: Option<u64>) -> bool {
    is_known_alive(pid, began).unwrap_or(true)
}

/// The same.
///
/// # Errors
/// A shortage ([`is_shortage`]): it cannot be told now.
pub(super) fn is_known_alive(pid: u32, began: Option<u64>) -> io::Result<bool> {
    match state_of(pid) {
        Ok(state) => Ok(!state.starts_with('Z') && (began.is_none() || began == beginning_in(&state))),
        Err(e) if is_shortage(&e) => Err(e),
        Err(_) => Ok(false),
    }
}

/// Whether there is no room for another open file: what was asked for may be there all the same.
pub(super) fn is_shortage(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Whether the process runs and was stopped, as by SIGSTOP: it answers nobody until it is let go on.
pub(super) fn is_stopped(pid: u32, began: Option<u64>) -> bool {
    is_alive(pid, began) && state_of(pid).is_ok_and(|state| state.starts_with(['T', 't']))
}

/// When a process began, in ticks since the machine's start; `None` where it is gone.
pub(super) fn beginning_of(pid: u32) -> Option<u64> {
    beginning_in(&state_of(pid).ok()?)
}

/// What proc_pid_stat(5) has behind the program's name, which may hold anything: the third field and those after it.
fn state_of(pid: u32) -> io::Result<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    Ok(String::from_utf8_lossy(&stat).rsplit(") ").next().unwrap_or_default().to_owned())
}

fn beginning_in(state: &str) -> Option<u64> {
    state.split(' ').nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The supervisor waited without end for a start that did not heed SIGTERM, and programs for the supervisor.
    #[test]
    fn who_does_not_end_when_asked_is_killed() {
        let stubborn = "trap '' TERM; echo ready; for n in $(seq 200); do sleep 0.1; done";
        let mut child = Process::new("sh").args(["-c", stubborn]).stdout(Stdio::piped()).spawn().unwrap();
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        assert!(end(&mut child, Duration::from_millis(50)));
        let status = child.try_wait().unwrap().expect("it has ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        let mut child = Process::new("sleep").arg("60").spawn().unwrap();
        assert!(end(&mut child, Duration::from_secs(30)));
        let status = child.try_wait().unwrap().expect("it has ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
    }

    #[test]
    fn a_process_that_was_stopped_is_told_from_one_that_is_gone() {
        let mut child = Process::new("sleep").arg("60").spawn().unwrap();
        let (pid, began) = (child.id(), beginning_of(child.id()));
        assert!(!is_stopped(pid, began) && is_alive(pid, began));
        kill(Pid::from_raw(pid as i32), Signal::SIGSTOP).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !is_stopped(pid, began) {
            assert!(Instant::now() < until);
        }
        assert!(is_alive(pid, began) && !is_stopped(pid, Some(1)), "another's");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(pid, began) && !is_alive(pid, began));
    }

    /// Each try's line had the lines of the tries before it.
    #[test]
    fn a_daemon_is_told_of_by_its_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let before = "fs2 supervise: try 1 of 5: no such file\n";
        let words = |text: &str| {
            std::fs::write(&log, format!("{before}{text}")).unwrap();
            last_words(&log, before.len() as u64)
        };
        assert_eq!(words("fs2d: it is locked\n"), "it is locked");
        assert_eq!(words("1\n2\n3\n4\n"), "2; 3; 4");
        // What it had warned of stood before the reason, with times, and twice where it was said twice.
        let warns = |text: &str| format!("2026-11-29T02:41:16.123456Z  WARN fs2d::cli: {text}\n");
        let three = ["a: b", "c", "a: b"].map(warns).concat();
        let info = "2026-11-29T02:41:16.123456Z  INFO fs2d::cli: none\n";
        assert_eq!(
            words(&format!("{info}{three}fs2d: no room\nfor it\n")),
            "no room; for it (before, it warned: a: b; c)"
        );
        assert_eq!(words(&format!("{}fs2d: it is c\n", warns("c"))), "it is c");
        assert_eq!((words(""), last_words(&dir.path().join("none"), 7)), (String::new(), String::new()));
        assert_eq!(last_words(&log, u64::MAX), "", "it was cut");
    }

    /// Without close_range: the list made before the fork has what a shell passed on, and not the standard streams.
    #[test]
    fn what_is_open_is_listed_and_closed_at_exec() {
        use std::os::fd::AsRawFd;
        // None of the first: ls opens the directory as the lowest that is free.
        let passed = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 100).unwrap();
        rustix::io::fcntl_setfd(&passed, rustix::io::FdFlags::empty()).unwrap();
        let open = open_descriptors();
        assert!(open.contains(&passed.as_raw_fd()) && open.iter().all(|&fd| fd > 2), "{open:?}");
        let listed = || {
            let ls = Process::new("ls").arg("/proc/self/fd").output().unwrap();
            let fd = passed.as_raw_fd().to_string();
            String::from_utf8(ls.stdout).unwrap().lines().any(|line| line == fd)
        };
        assert!(listed(), "it is inherited by who asks for nothing else");
        close_at_exec(passed.as_raw_fd());
        assert!(!listed());
    }

    /// The end of a daemon that had been killed was waited for in vain where its number had gone to another process.
    #[test]
    fn a_later_process_of_the_same_number_is_not_waited_for() {
        let mut child = Process::new("sleep").arg("60").spawn().unwrap();
        let began = beginning_of(child.id());
        assert!(began.is_some() && is_alive(child.id(), began) && is_alive(child.id(), None));
        assert!(!is_alive(child.id(), began.map(|ticks| ticks - 1)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(child.id(), began) && beginning_of(child.id()).is_none());
    }

    /// After a package was upgraded, the supervisor looked for `/usr/sbin/fs2 (deleted)`, and a daemon that died had no successor.
    #[test]
    fn a_program_that_was_replaced_is_started_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let (path, gone) = (dir.path().join("fs2"), dir.path().join("fs2 (deleted)"));
        assert_eq!(installed(gone.clone()), PathBuf::from("/proc/self/exe"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(installed(path.clone()), path);
        assert_eq!(installed(gone.clone()), path);
        std::fs::write(&gone, "").unwrap();
        assert_eq!(installed(gone.clone()), gone);
    }
}
