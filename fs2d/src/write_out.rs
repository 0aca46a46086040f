//! What the file system above holds, written before its daemon ends below it: a machine that goes down asks daemons to end before it unmounts
//! what they serve, or does not unmount it at all.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::frontend::serve_on;

/// How long it may take: whoever goes down kills what does not end, systemd after 90 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has the kernel write what the mount of this record holds, and waits for that; nothing where it is not mounted. Meanwhile the volume must be
/// served, and `look` is called as while it is.
pub(crate) fn write_out(record: &Path, look: impl FnMut()) {
    let Some(mount) = Mount::of(record).filter(Mount::stands) else { return };
    let dir = mount.dir.display().to_string();
    tracing::warn!("{dir} is mounted: what it has not written yet is written first");
    let until = Instant::now() + PATIENCE;
    let written = std::thread::Builder::new().name("write-out".into()).spawn(move || mount.write());
    match written {
        Ok(written) => {
            serve_on(|| !written.is_finished() && Instant::now() < until, look);
            match written.is_finished().then(|| written.join()) {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(e))) => tracing::error!("what {dir} holds is not all written: {e}"),
                Some(Err(_)) => tracing::error!("what {dir} holds is not all written"),
                None => tracing::error!("what {dir} holds is not all written after {} s", PATIENCE.as_secs()),
            }
        }
        Err(e) => tracing::error!("what {dir} holds is not written: {e}"),
    }
}

/// Where a volume is mounted.
struct Mount {
    dir: PathBuf,
    block_device: PathBuf,
}

impl Mount {
    /// As its record has it, which is there for as long as it is mounted.
    fn of(record: &Path) -> Option<Mount> {
        let record: serde_json::Value = serde_json::from_slice(&std::fs::read(record).ok()?).ok()?;
        let path = |name: &str| Some(PathBuf::from(record.get(name)?.as_str()?));
        Some(Mount { dir: path("dir")?, block_device: path("block_device")? })
    }

    /// Whether its directory shows it.
    fn stands(&self) -> bool {
        let device = std::fs::metadata(&self.block_device).map(|m| m.rdev());
        let shown = std::fs::metadata(&self.dir).map(|m| m.dev());
        matches!((device, shown), (Ok(device), Ok(shown)) if device == shown)
    }

    /// For a thread that does nothing else: it has none of the process's files from then on. Where the kernel keeps it, waiting for the volume, the
    /// process could not end otherwise, and with its lock on the backing no other could serve what is waited for.
    fn write(&self) -> io::Result<()> {
        let dir = CString::new(self.dir.as_os_str().as_bytes())?;
        // SAFETY: the call takes numbers only, and closes files of this thread alone, which uses none that another has opened.
        if unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) }
            != 0
        {
            return Err(io::Error::last_os_error());
        }
        // A mount of its own: that at the directory can be unmounted meanwhile.
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
        // SAFETY: the path is a string with its end, and the descriptor, if there is one, is nobody's yet.
        let apart = unsafe {
            match libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, dir.as_ptr(), flags) {
                fd @ 0.. => OwnedFd::from_raw_fd(fd as libc::c_int),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let root =
            openat(&apart, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let root = File::from(root);
        // Unmounted since.
        if root.metadata()?.dev() != std::fs::metadata(&self.block_device)?.rdev() {
            return Ok(());
        }
        Ok(nix::unistd::syncfs(root.as_fd())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mounted_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("a.mount");
        let nobody = || panic!("nothing is waited for");
        write_out(&record, nobody);
        for text in ["", "{}", r#"{"dir": 1, "block_device": "/dev/null"}"#] {
            std::fs::write(&record, text).unwrap();
            assert!(Mount::of(&record).is_none(), "{text}");
        }
        let text = format!(r#"{{"dir": "{}", "block_device": "/dev/null", "pid": 7}}"#, dir.path().display());
        std::fs::write(&record, text).unwrap();
        let mount = Mount::of(&record).expect("a record");
        assert_eq!((&*mount.dir, &*mount.block_device), (dir.path(), Path::new("/dev/null")));
        assert!(!mount.stands());
        write_out(&record, nobody);
    }
}
