//! A volume served by `fs2d serve` over NBD, no root needed. The daemon ends on drop.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::mounted::whatever_is_free;
use crate::{Done, Scratch, run};

/// A daemon may take this long to start; a guard against hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// And this long to end, whoever is connected. It promises five seconds; on a loaded machine nothing that
/// matters can be told from a longer time, but from none at all.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// A daemon of a test's own.
#[derive(Debug)]
pub struct Served<'a> {
    scratch: &'a Scratch,
    child: Child,
    socket: PathBuf,
    control: PathBuf,
    log: PathBuf,
}

impl<'a> Served<'a> {
    /// `fs2d serve --frontend nbd ARGS IMAGE`; `Err` is how it ended before it served anything.
    ///
    /// # Panics
    /// Where it neither serves nor ends.
    pub fn start(scratch: &'a Scratch, image: &Path, args: &[&str]) -> Result<Served<'a>, Done> {
        Served::start_with(scratch, image, args, scratch.dir())
    }

    /// As [`Served::new`], with its control socket in the runtime directory, where `fs2 status` and others find it.
    ///
    /// # Panics
    /// Where it does not serve.
    #[track_caller]
    pub fn found(scratch: &'a Scratch, image: &Path, args: &[&str]) -> Served<'a> {
        let runtime = scratch.make_dir("run");
        Served::start_with(scratch, image, args, &runtime)
            .unwrap_or_else(|done| panic!("{}: {}: {}", done.command(), done.code, done.err))
    }

    fn start_with(
        scratch: &'a Scratch,
        image: &Path,
        args: &[&str],
        control: &Path,
    ) -> Result<Served<'a>, Done> {
        let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = |ending: &str| scratch.path(&format!("{name}.{ending}"));
        let (socket, control, log) = (place("nbd"), control.join(format!("{name}.ctl")), place("log"));
        let mut command = scratch.command("fs2d");
        command.args(["serve", "--frontend", "nbd", "--listen"]).arg(format!("unix:{}", socket.display()));
        command.args(whatever_is_free(args));
        command.arg("--control").arg(&control).args(args).arg(image);
        let said = format!("{command:?}");
        let out = std::fs::File::create(&log).expect("a log");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).spawn().expect("fs2d");
        let mut served = Served { scratch, child, socket, control, log };
        let until = Instant::now() + PATIENCE;
        while !served.log().contains("; control socket ") {
            if let Some(status) = served.child.try_wait().expect("a child of ours") {
                let code = status.code().unwrap_or(-1);
                return Err(Done::new(code, String::new(), served.log(), said));
            }
            assert!(Instant::now() < until, "{said} serves nothing: {}", served.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(served)
    }

    /// As [`Served::start`], where it must serve.
    ///
    /// # Panics
    /// Where it does not.
    #[track_caller]
    pub fn new(scratch: &'a Scratch, image: &Path, args: &[&str]) -> Served<'a> {
        Served::start(scratch, image, args)
            .unwrap_or_else(|done| panic!("{}: {}: {}", done.command(), done.code, done.err))
    }

    /// What libnbd's tools and qemu call it.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// The socket it serves on.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The daemon's process.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// What it said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `fs2 status --json` of it.
    #[track_caller]
    pub fn status(&self) -> Value {
        run(self.scratch.command("fs2").args(["status", "--json", "--control"]).arg(&self.control))
            .ended(0)
            .json()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Panics
    /// Where it had ended before.
    #[track_caller]
    pub fn kill(mut self) {
        assert!(self.is_alive(), "the daemon ended before it was killed: {}", self.log());
        self.child.kill().and_then(|()| self.child.wait()).expect("a child of ours");
    }

    /// Asks it to end with SIGTERM; how it ended.
    ///
    /// # Panics
    /// Where it does not end.
    pub fn stop(mut self) -> Done {
        let asked = Instant::now();
        kill(self.pid(), Signal::SIGTERM).expect("the daemon runs");
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                let code = status.code().unwrap_or(-1);
                return Done::new(code, String::new(), self.log(), "fs2d serve".into());
            }
            assert!(asked.elapsed() < END_PATIENCE, "the daemon does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
