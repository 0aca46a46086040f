//! Cold starts: what was read before must come from the device again, and it is looked whether it will.
//!
//! A run that was to be cold and is not is worse than none, so after the caches were dropped a few of the
//! workload's files are asked for their cached pages ([`residency`](super::residency)); any that are left are an error.
//! Asking opens the files, which reads their inodes: therefore it is made cold a second time afterwards. Of
//! directories and inodes nothing can be asked; they go with the mount.
//!
//! Any new mount namespace (a service's, a container's) holds a copy of every mount, and then the file system outlives
//! its unmounting here, caches and all. Nobody can be asked about that, so where pages are left after a remount the
//! machine's caches are dropped too, and it is looked again.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::residency::{Method, Residency, residency_of};
use crate::kernel::{Mount, mount_holding, mounts, remount_cold};
use crate::output::quoted;

/// How a run is made cold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ColdMode {
    /// Not at all: runs after the first find what is still cached.
    #[default]
    None,
    /// The file system is unmounted, its device's buffers are dropped, and it is mounted with the same options;
    /// where it stays mounted in another namespace, every clean cache of the machine is dropped too.
    Remount,
    /// Every clean cache of the machine is dropped (vm.drop_caches), other file systems' too.
    Drop,
}

/// Files looked at, at most.
const SAMPLES_MAX: usize = 16;

/// Why a run cannot be, or was not, cold.
#[derive(Debug, thiserror::Error)]
pub enum ColdError {
    /// It was done, and data is cached still.
    #[error(
        "{path} is still cached after --cold {mode} ({cached} of {pages} pages): a warm run is no cold one; {advice}"
    )]
    StillWarm {
        /// The first file with cached pages.
        path: PathBuf,
        /// `remount` or `drop`.
        mode: &'static str,
        /// Cached pages of it.
        cached: u64,
        /// All its pages.
        pages: u64,
        /// What to do.
        advice: &'static str,
    },
    /// This mode cannot work here.
    #[error("--cold {mode} of {dir}: {why}")]
    Impossible {
        /// `remount` or `drop`.
        mode: &'static str,
        /// The directory.
        dir: PathBuf,
        /// Why, and what to do instead.
        why: String,
    },
    /// The system says no.
    #[error("--cold {mode}: {source}")]
    Io {
        /// `remount` or `drop`.
        mode: &'static str,
        /// What it says, with the path.
        #[source]
        source: io::Error,
    },
}

/// What was seen of a cold start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdProof {
    /// How it was made cold.
    pub mode: ColdMode,
    /// Files looked at.
    pub files: u64,
    /// Their pages, and how many were cached.
    pub residency: Residency,
    /// How it was looked; `None` where no file was.
    pub method: Option<Method>,
    /// Whether a remount was not enough, and the machine's caches were dropped too.
    pub dropped_too: bool,
}

/// A way to make the file system that holds a directory cold, checked before anything is run.
#[derive(Clone, Debug)]
pub struct Cold {
    mode: ColdMode,
    dir: PathBuf,
}

impl ColdMode {
    fn name(self) -> &'static str {
        match self {
            ColdMode::None => "none",
            ColdMode::Remount => "remount",
            ColdMode::Drop => "drop",
        }
    }
}

impl std::fmt::Display for ColdMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

impl Cold {
    /// Finds out whether it can be done for `dir`.
    ///
    /// # Errors
    /// Why not, and what to do instead: not root, no block device below, mounted more than once.
    pub fn plan(mode: ColdMode, dir: &Path) -> Result<Cold, ColdError> {
        let dir = dir.canonicalize().map_err(|e| ColdError::Impossible {
            mode: mode.name(),
            dir: dir.to_owned(),
            why: e.to_string(),
        })?;
        let this = Cold { mode, dir };
        let impossible =
            |why: String| ColdError::Impossible { mode: mode.name(), dir: this.dir.clone(), why };
        match mode {
            ColdMode::None => {}
            ColdMode::Drop => {
                std::fs::File::options().write(true).open(DROP_CACHES).map_err(|e| {
                    impossible(format!("{DROP_CACHES}: {e}; it needs root: sudo, or --cold none"))
                })?;
            }
            ColdMode::Remount => {
                let mount = this.mount()?;
                if let Some(why) = cannot_remount(&mount, &mounts().map_err(|e| this.io(e))?) {
                    return Err(impossible(why));
                }
                if !nix::unistd::geteuid().is_root() {
                    return Err(impossible("mounting needs root: sudo, or --cold none".into()));
                }
            }
        }
        Ok(this)
    }

    /// How.
    pub fn mode(&self) -> ColdMode {
        self.mode
    }

    fn io(&self, source: io::Error) -> ColdError {
        ColdError::Io { mode: self.mode.name(), source }
    }

    fn mount(&self) -> Result<Mount, ColdError> {
        let found = mount_holding(&self.dir).map_err(|e| self.io(e))?;
        found.ok_or_else(|| ColdError::Impossible {
            mode: self.mode.name(),
            dir: self.dir.clone(),
            why: "nothing is mounted there".into(),
        })
    }

    fn drop_once(&self, caches_too: bool) -> Result<(), ColdError> {
        match self.mode {
            ColdMode::None => Ok(()),
            ColdMode::Remount => {
                remount_cold(&self.mount()?).map_err(|e| self.io(e))?;
                if caches_too { self.drop_caches() } else { Ok(()) }
            }
            ColdMode::Drop => self.drop_caches(),
        }
    }

    fn drop_caches(&self) -> Result<(), ColdError> {
        // What is dirty stays.
        nix::unistd::sync();
        std::fs::write(DROP_CACHES, "3")
            .map_err(|e| self.io(io::Error::new(e.kind(), format!("{DROP_CACHES}: {e}"))))
    }

    /// Makes it cold and proves it by up to 16 of `files`, evenly chosen; files that are not there any more are
    /// left out. No file below the directory may be open, nor may it be anyone's working directory.
    ///
    /// # Errors
    /// [`ColdError::StillWarm`] where pages are left; what the system says.
    pub fn make(&self, files: &[PathBuf]) -> Result<ColdProof, ColdError> {
        match self.attempt(files, false) {
            Err(ColdError::StillWarm { .. }) if self.mode == ColdMode::Remount => self.attempt(files, true),
            made => made,
        }
    }

    fn attempt(&self, files: &[PathBuf], caches_too: bool) -> Result<ColdProof, ColdError> {
        self.drop_once(caches_too)?;
        let mut proof = ColdProof {
            mode: self.mode,
            files: 0,
            residency: Residency::default(),
            method: None,
            dropped_too: caches_too,
        };
        if self.mode == ColdMode::None {
            return Ok(proof);
        }
        let step = files.len().div_ceil(SAMPLES_MAX).max(1);
        for path in files.iter().step_by(step) {
            let (residency, method) = match residency_of(path) {
                Ok(seen) => seen,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(self.io(e)),
            };
            if residency.cached > 0 {
                return Err(ColdError::StillWarm {
                    path: path.clone(),
                    mode: self.mode.name(),
                    cached: residency.cached,
                    pages: residency.pages,
                    advice: "another process reads it, or the file system keeps its data in memory (tmpfs)",
                });
            }
            proof.files += 1;
            proof.residency = proof.residency.plus(residency);
            proof.method = Some(method);
        }
        if proof.files > 0 {
            self.drop_once(caches_too)?;
        }
        Ok(proof)
    }
}

/// Why this mount cannot be taken away and made again for a moment.
fn cannot_remount(mount: &Mount, all: &[Mount]) -> Option<String> {
    let at = mount.target.display();
    if mount.target == Path::new("/") {
        return Some(
            "it lies on the root file system, which stays mounted; use --cold drop, or a volume of its own"
                .into(),
        );
    }
    if !mount.source.is_absolute() || mount.device.0 == 0 {
        return Some(format!(
            "{at} is {} without a block device; use --cold drop, or an ext2 volume",
            mount.fstype
        ));
    }
    if mount.root != Path::new("/") {
        return Some(format!("{at} is a bind mount; give a directory of the file system itself"));
    }
    if let Some(other) = all.iter().find(|m| m.device == mount.device && m.id != mount.id) {
        let other = &other.target;
        return Some(format!(
            "{} is mounted on {} as well and stays cached; umount {}",
            mount.source.display(),
            other.display(),
            quoted(other)
        ));
    }
    let inside = all
        .iter()
        .find(|m| m.id != mount.id && m.target.starts_with(&mount.target) && m.target != mount.target);
    inside.map(|m| format!("{} is mounted inside of it; umount that first", m.target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::parse_mountinfo;

    #[test]
    fn what_cannot_be_remounted_is_told_why() {
        let all = parse_mountinfo(
            b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 7:0 / /a rw - ext2 /dev/loop0 rw\n3 1 0:50 / /t rw - tmpfs tmpfs rw\n\
              4 1 7:1 / /b rw - ext2 /dev/loop1 rw\n5 1 7:1 / /c rw - ext2 /dev/loop1 rw\n\
              6 1 7:2 /sub /bind rw - ext2 /dev/loop2 rw\n7 1 7:3 / /d rw - ext2 /dev/loop3 rw\n8 7 0:51 / /d/x rw - tmpfs t rw\n",
        )
        .unwrap();
        let why = |n: usize| cannot_remount(&all[n], &all);
        assert!(why(0).unwrap().contains("--cold drop"));
        assert_eq!(why(1), None);
        assert!(why(2).unwrap().contains("without a block device"));
        assert!(why(3).unwrap().contains("umount /c"));
        assert!(why(4).unwrap().contains("umount /b"));
        assert!(why(5).unwrap().contains("bind mount"));
        assert!(why(6).unwrap().contains("/d/x is mounted inside"));
    }

    #[test]
    fn none_does_nothing_and_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "x").unwrap();
        let cold = Cold::plan(ColdMode::None, dir.path()).unwrap();
        let proof = cold.make(std::slice::from_ref(&file)).unwrap();
        assert_eq!((proof.files, proof.method), (0, None));
        let e = Cold::plan(ColdMode::None, Path::new("/absent/dir")).unwrap_err();
        assert!(e.to_string().contains("/absent/dir"), "{e}");
    }

    #[test]
    fn proc_cannot_be_cold() {
        let e = Cold::plan(ColdMode::Remount, Path::new("/proc")).unwrap_err().to_string();
        assert!(e.contains("--cold remount of /proc") && e.contains("without a block device"), "{e}");
    }
}
