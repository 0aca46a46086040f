//! A guest with a kernel of its own, run by `tests/guest/run`: for ublk, NBD and what the host's kernel lacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::{program, run_within};

/// The exit code of `tests/guest/run` where the case did not end.
const HUNG: i32 = 124;

/// What a kernel prints when something is wrong with it, whatever the case thinks.
const COMPLAINTS: &[&str] =
    &["BUG:", "Oops", "WARNING: CPU", "blocked for more than", "Kernel panic", "EXT4-fs error"];

/// A guest to be booted once, for one case. The case is a shell script; in it, the machine's own programs and the
/// built ones run, `/dev/vda` is an empty disk of 1 GiB, `/tmp` is in memory and `/tmp/share` comes out afterwards.
#[derive(Debug)]
pub struct Guest {
    share: TempDir,
    modules: Vec<&'static str>,
    seconds: u64,
    memory_mib: u64,
    waits: bool,
    tolerated: Vec<&'static str>,
}

/// Guests that run at a time, whichever tests': each takes a processor and a half, and a gigabyte.
const TURNS: usize = 2;

/// What a case left behind.
#[derive(Debug)]
pub struct Left {
    share: TempDir,
}

/// Where `tests/guest/run` keeps its kernel: beside this build's output.
fn cache() -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    let find = || match std::env::var_os("FS2_GUEST_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guest"),
    };
    DIR.get_or_init(find).clone()
}

/// A line that looks like an assertion and is none: bash ends a case for no failure before `&&`, and for none that `!` inverts.
fn hollow(script: &str) -> Option<&str> {
    let asserts = |line: &&str| line.starts_with("! ") || line.starts_with('[') && line.contains("] && ");
    script.lines().map(str::trim).filter(|line| !line.contains("||")).find(asserts)
}

/// Waits until fewer than [`TURNS`] guests run; the turn ends with the file.
fn turn(cache: &Path) -> fs::File {
    loop {
        for n in 0..TURNS {
            let file =
                fs::File::create(cache.join(format!("turn{n}"))).expect("a file beside the guest's kernel");
            match file.try_lock() {
                Ok(()) => return file,
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(e)) => panic!("a lock beside the guest's kernel: {e}"),
            }
        }
        sleep(Duration::from_millis(200));
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/run")
}

/// What is missing for a guest, and how to get it.
pub(crate) fn lacking() -> Option<String> {
    let absent =
        [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("xz", "xz-utils")];
    if let Some((program, package)) = absent.into_iter().find(|(p, _)| crate::tool(p).is_none()) {
        return Some(format!("{program} (apt-get install {package})"));
    }
    let there = cache().join("vmlinuz").exists();
    (!there).then(|| "the guest's kernel (tests/guest/run --prepare)".into())
}

impl Guest {
    /// With these kernel modules beside those that the guest itself needs: `nbd`, `ublk_drv`, `loop`.
    ///
    /// # Panics
    /// Where there is no temporary directory.
    pub fn new(modules: &[&'static str]) -> Guest {
        let share = tempfile::Builder::new().prefix("fs2-guest-").tempdir().expect("a temporary directory");
        Guest {
            share,
            modules: modules.to_vec(),
            seconds: 600,
            memory_mib: 1024,
            waits: false,
            tolerated: Vec::new(),
        }
    }

    /// Killed after this many seconds, which guards against hangs; 600 unless told.
    pub fn seconds(mut self, seconds: u64) -> Guest {
        self.seconds = seconds;
        self
    }

    /// MiB of memory; 1024 unless told.
    pub fn memory_mib(mut self, mib: u64) -> Guest {
        self.memory_mib = mib;
        self
    }

    /// Most of the case is waiting, which takes no processor: it runs beside those whose turn it is.
    pub fn waits(mut self) -> Guest {
        self.waits = true;
        self
    }

    /// The kernel may say this, as where the case makes a device fail.
    pub fn tolerates(mut self, words: &'static str) -> Guest {
        self.tolerated.push(words);
        self
    }

    /// Puts a file into `/tmp/share`, under its own name, executable where it was.
    ///
    /// # Panics
    /// Where it cannot be copied.
    #[track_caller]
    pub fn file(self, path: &Path) -> Guest {
        let name = path.file_name().expect("a file's name");
        fs::copy(path, self.share.path().join(name)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Boots, runs `script` with bash in `/tmp/share`, which must end with 0, and waits for the guest's end.
    ///
    /// # Panics
    /// Where the case fails, hangs, or the kernel complains; with the case's output and the console's end. Where a line of the
    /// case would assert nothing.
    #[track_caller]
    pub fn run(self, script: &str) -> Left {
        assert_eq!(
            hollow(script),
            None,
            "bash ends no case for that: one assertion a command, and `not` of the prelude"
        );
        let share = self.share.path().to_owned();
        let case = share.join("case");
        let text = format!("#!/bin/bash\nset -euo pipefail\n. /tmp/share/prelude\n{script}");
        fs::write(share.join("prelude"), include_str!("../guest/prelude")).expect("the share");
        fs::write(&case, text).expect("the share");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&case, mode).expect("the share");
        let cache = cache();
        let turn = (!self.waits).then(|| turn(&cache));
        let programs = program("fs2");
        let mut command = Command::new(self::script());
        command.env("FS2_GUEST_DIR", &cache);
        command.arg("--modules").arg(self.modules.join(" "));
        command.arg("--bin").arg(programs.parent().expect("the programs' directory"));
        command.arg("--seconds").arg(self.seconds.to_string());
        command.arg("--memory").arg(self.memory_mib.to_string());
        let done = run_within(command.arg(&share), Duration::from_secs(self.seconds + 60));
        drop(turn);
        let left = Left { share: self.share };
        let (log, console) = (left.log(), left.console());
        let what =
            if done.code == HUNG { "the guest hung or its kernel panicked" } else { "the case failed" };
        assert_eq!(done.code, 0, "{what}\n{}{}\n--- its output:\n{log}", done.out, done.err);
        let complaint = console.lines().find(|line| {
            COMPLAINTS.iter().any(|c| line.contains(c)) && !self.tolerated.iter().any(|t| line.contains(t))
        });
        assert!(
            complaint.is_none(),
            "the guest's kernel complained\n{console}\n--- the case's output:\n{log}"
        );
        left
    }
}

impl Left {
    /// What the case said.
    pub fn log(&self) -> String {
        fs::read(self.path("log"))
            .map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into_owned())
    }

    /// What the kernel said.
    pub fn console(&self) -> String {
        fs::read(self.path("console"))
            .map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into_owned())
    }

    /// A path in what was `/tmp/share`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.share.path().join(name)
    }

    /// Asserts that the case said this.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Left {
        let log = self.log();
        assert!(log.contains(text), "the case does not say '{text}':\n{log}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The cases of a test's source: what is named behind each `#[test]`.
    fn cases(source: &str) -> impl Iterator<Item = &str> {
        source.split("#[test]").skip(1).filter_map(|part| Some(part.split_once("fn ")?.1.split_once('(')?.0))
    }

    /// The cases that have seconds in a table of `| file | case (notes) | seconds |`.
    fn rows(readme: &str) -> impl Iterator<Item = &str> {
        let cells = readme.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        let timed = |seconds: &str| seconds.starts_with(|c: char| c.is_ascii_digit());
        cells.filter_map(move |cells| match cells[..] {
            ["", _, case, seconds, ""] if timed(seconds) => case.split(' ').next(),
            _ => None,
        })
    }

    /// Who adds a case says what it costs: a tier that grows unseen is one that nobody runs.
    #[test]
    fn every_case_has_a_row_with_its_time() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut sources = String::new();
        for entry in fs::read_dir(tests.join("tests/privileged/guest")).unwrap() {
            sources += &fs::read_to_string(entry.unwrap().path()).unwrap();
        }
        let readme = fs::read_to_string(tests.join("guest/README.md")).unwrap();
        let (cases, rows): (BTreeSet<_>, BTreeSet<_>) = (cases(&sources).collect(), rows(&readme).collect());
        assert!(cases.len() > 10, "not all are found: {cases:?}");
        let absent: Vec<_> = cases.difference(&rows).collect();
        assert!(absent.is_empty(), "without a row in tests/guest/README.md: {absent:?}");
        let gone: Vec<_> = rows.difference(&cases).collect();
        assert!(gone.is_empty(), "in tests/guest/README.md, and no case: {gone:?}");
    }

    #[test]
    fn a_row_without_a_time_is_none() {
        let table = "| test | case | seconds |\n|---|---|---|\n| `x` | one (note) | 5 to 7 |\n| | two | ? |\nthree | 1";
        assert_eq!(rows(table).collect::<Vec<_>>(), ["one"]);
        let source = "#[test]\nfn one() {}\nfn no_case() {}\n#[test]\n#[ignore]\nfn two() {}";
        assert_eq!(cases(source).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn what_bash_lets_pass_is_found() {
        for bad in ["! pgrep fs2", "true\n  [ 1 = 2 ] && [ 3 = 3 ]", "[ -e x ] && echo there"] {
            assert!(hollow(bad).is_some(), "{bad}");
        }
        for good in [
            "not pgrep fs2",
            "[ 1 = 2 ]; [ 3 = 3 ]",
            "! pgrep fs2 || { ps; return 1; }",
            "(cd x && [ -e y ])",
        ] {
            assert_eq!(hollow(good), None);
        }
    }
}
