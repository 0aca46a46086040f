//! Programs: where the built ones are, and running any to its end within a time.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest run of one command. It guards against hangs; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(300);

/// The directory of the profile's binaries: this test is `TARGET/PROFILE/deps/NAME-HASH`.
fn binaries() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let me = std::env::current_exe().expect("this test's own path");
        let dir = me.parent().and_then(Path::parent).expect("TARGET/PROFILE/deps").to_owned();
        let built =
            ["fs2d", "fs2", "mkfs2", "chkfs2", "fs2-replay", "fsbench"].iter().all(|p| dir.join(p).exists());
        if !built {
            build(&dir);
        }
        dir
    })
}

/// A run of this package alone has built no binaries.
fn build(dir: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "-p", "fs2d", "-p", "fs2-tools", "--bins"]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if let Some(target) = dir.parent() {
        command.env("CARGO_TARGET_DIR", target);
    }
    if dir.ends_with("release") {
        command.arg("--release");
    }
    let status = command.stdin(Stdio::null()).status().expect("cargo");
    assert!(status.success(), "the programs do not build");
}

/// The path of a built program, such as `fs2d` or `fsbench`.
pub fn program(name: &str) -> PathBuf {
    binaries().join(name)
}

/// A foreign program's path: in the search path, in `/sbin` and `/usr/sbin`, or in `target/tools/bin`.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/sbin".into(), "/usr/sbin".into()]);
    if let Some(target) = std::env::current_exe().ok().as_deref().and_then(|p| p.ancestors().nth(3)) {
        places.push(target.join("tools/bin"));
    }
    places.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/bin"));
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        places.push(Path::new(&home).join("bin"));
    }
    places.into_iter().map(|p| p.join(name)).find(|p| p.is_file())
}

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Done {
    /// Its exit code; -1 where a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    said: String,
}

impl Done {
    pub(crate) fn new(code: i32, out: String, err: String, said: String) -> Done {
        Done { code, out, err, said }
    }

    /// The command line, for messages.
    pub fn command(&self) -> &str {
        &self.said
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Done {
        assert_eq!(self.code, code, "{}\n{}{}", self.said, self.out, self.err);
        self
    }

    /// Asserts that both outputs together contain `text`.
    #[track_caller]
    pub fn says(self, text: &str) -> Done {
        let all = format!("{}{}", self.out, self.err);
        assert!(all.contains(text), "{} does not say '{text}':\n{all}", self.said);
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|e| panic!("{}: {e}: {}{}", self.said, self.out, self.err))
    }
}

/// Runs a command to its end.
///
/// # Panics
/// Where it cannot be started or does not end.
#[track_caller]
pub fn run(command: &mut Command) -> Done {
    run_within(command, PATIENCE)
}

/// As [`run`], within `patience`; it is killed then.
#[track_caller]
pub fn run_within(command: &mut Command, patience: Duration) -> Done {
    let said = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{said}: {e}"));
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|p| Box::new(p) as _));
    let err = reader(child.stderr.take().map(|p| Box::new(p) as _));
    let until = Instant::now() + patience;
    let mut nap = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{said}: no end within {patience:?}");
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(50));
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    Done { code: status.code().unwrap_or(-1), out, err, said }
}

/// Peak resident memory of the largest child that has ended so far, in bytes.
///
/// # Panics
/// Where the kernel does not tell.
pub fn children_peak() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    getrusage(UsageWho::RUSAGE_CHILDREN).expect("the children's usage").max_rss() as u64 * 1024
}

/// Peak resident memory of a running process, in bytes.
///
/// # Panics
/// Where it does not run.
pub fn peak_of(pid: nix::unistd::Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number of KiB") * 1024
}
