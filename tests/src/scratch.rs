//! A test's own directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Done, program, run};

/// A temporary directory with a runtime directory in it, so that tests that run at the same time see
/// nothing of one another. Removed on drop, with what is still mounted in it.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// Makes one in `$TMPDIR` or `/tmp`; sparse images go there, so it should be on a disk.
    ///
    /// # Panics
    /// Where the system says no.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Scratch {
        let dir = tempfile::Builder::new().prefix("fs2-test-").tempdir().expect("a temporary directory");
        Scratch { dir }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a directory in it.
    ///
    /// # Panics
    /// Where the system says no.
    pub fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// The runtime directory its programs use.
    pub fn runtime(&self) -> PathBuf {
        self.path("run")
    }

    /// One of the built programs, with this runtime directory, not yet run.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.env("FS2_RUNTIME_DIR", self.runtime()).env("NO_COLOR", "1").env_remove("FS2_LOG");
        command
    }

    /// Runs one of the built programs.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, name: &str, args: impl IntoIterator<Item = A>) -> Done {
        run(self.command(name).args(args))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Each mount has its own undo; this is for one that came about against all expectation.
        for dir in crate::mounts_below(self.dir()).iter().rev() {
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("{} was left mounted\n", dir.display()),
            );
            let _ = fs2_tools::kernel::unmount(dir, true);
        }
    }
}
