//! Running e2fsck.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::programs::{USUAL, find};
use crate::signals;

/// The bits of its exit code after which the bitmaps are right: none, or "errors corrected".
pub(super) const CORRECTED: i32 = 1;

/// The bit of its exit code that says that it was cancelled.
pub(super) const CANCELLED: i32 = 32;

/// How long after a signal it hears of it, at most: guess.
const NAP: Duration = Duration::from_millis(100);

/// How e2fsck is called, but for `-f` and the device.
pub(super) struct E2fsck {
    program: PathBuf,
    options: Vec<OsString>,
    words: Words,
}

/// Where what it says goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// To standard output and standard error, as its own.
    Through,
    /// All of it to standard error.
    Apart,
    /// To the caller, when it has ended.
    Kept,
}

impl E2fsck {
    /// `None` where there is no e2fsck.
    pub(super) fn new(options: Vec<OsString>, words: Words) -> Option<E2fsck> {
        let program = find("e2fsck", std::env::var_os("PATH").as_deref(), USUAL)?;
        Some(E2fsck { program, options, words })
    }

    /// Runs it to its end; its exit code, 8 (operational error) where a signal ended it. What is kept of its words is
    /// written to `out`. Signals that ask this process for an end are handed on to it, and its end is waited for.
    pub(super) fn run(&self, force: bool, device: &Path, out: &mut dyn io::Write) -> io::Result<i32> {
        let mut command = Command::new(&self.program);
        command.args(&self.options);
        if force {
            command.arg("-f");
        }
        // A device whose name begins with a dash is not an option.
        command.arg("--").arg(device);
        let status = match self.words {
            Words::Through => to_its_end(&mut command)?,
            Words::Apart => to_its_end(command.stdout(Stdio::from(io::stderr())))?,
            Words::Kept => {
                let done = command.output()?;
                out.write_all(&done.stdout)?;
                out.write_all(&done.stderr)?;
                done.status
            }
        };
        let code = status.code().unwrap_or_else(|| if status.signal().is_some() { 8 } else { 32 });
        Ok(if signals::asked() { code | CANCELLED } else { code })
    }
}

/// Runs a command that ends neither because nobody reads any more what it says (as below `| head -1`), nor alone where this process is
/// asked to end.
fn to_its_end(command: &mut Command) -> io::Result<ExitStatus> {
    // SAFETY: signal(2) may be called between fork and exec; nothing else is done there.
    unsafe {
        command.pre_exec(|| Ok(signal(Signal::SIGPIPE, SigHandler::SigIgn).map(drop)?));
    }
    let _caught = signals::catch_for_now()?;
    let mut child = command.spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let herald = scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                if let Some(signal) = signals::last() {
                    let _ = kill(pid, signal);
                    return;
                }
                std::thread::park_timeout(NAP);
            }
        });
        // Its number is nobody else's until it is waited for, and then nothing is sent there any more.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        ended.store(true, Ordering::Release);
        herald.thread().unpark();
        let _ = herald.join();
        child.wait()
    })
}
