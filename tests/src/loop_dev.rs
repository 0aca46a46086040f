//! A file as a loop device, by losetup(8). The tests of crates below this one take this file by its path: it needs nothing but the
//! standard library.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How often losetup is asked: another test may take the free device that it found before it does. Guess.
const ATTEMPTS: u32 = 20;

/// A loop device over a file; detached on drop.
#[derive(Debug)]
pub struct LoopDev(PathBuf);

impl LoopDev {
    /// `losetup --find --show OPTIONS FILE`.
    ///
    /// # Errors
    /// Why there is none, in losetup's words; it needs root.
    pub fn attach(file: &Path, options: &[&str]) -> Result<LoopDev, String> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            let mut losetup = Command::new("losetup");
            losetup.args(["--find", "--show"]).args(options).arg(file);
            let done = losetup.output().map_err(|e| format!("no losetup: {e}"))?;
            if done.status.success() {
                return Ok(LoopDev(String::from_utf8_lossy(&done.stdout).trim().into()));
            }
            why = format!("losetup: {}", String::from_utf8_lossy(&done.stderr).trim());
        }
        Err(why)
    }

    /// Such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDev {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
