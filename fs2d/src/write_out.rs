//! What the file system above holds, written before its daemon ends below it: a machine that goes down asks daemons to end before it unmounts
//! what they serve, or does not unmount it at all.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, openat};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;

use crate::frontend::serve_on;
use crate::upgrade::ITSELF;

/// How long it may take: whoever goes down kills what does not end, systemd after 90 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has the kernel write what the mount of this record holds, and waits for that; nothing where it is not mounted. Meanwhile the volume must be
/// served, and `look` is called as while it is.
pub(crate) fn write_out(record: &Path, look: impl FnMut()) {
    let Some(mount) = Mount::of(record).filter(Mount::stands) else { return };
    let dir = mount.dir.display().to_string();
    tracing::warn!("{dir} is mounted: what it has not written yet is written first");
    let until = Instant::now() + PATIENCE;
    match begin(record) {
        Ok(mut writes) => {
            let mut ended = None;
            let goes_on = || {
                ended = writes.try_wait().transpose();
                ended.is_none() && Instant::now() < until
            };
            serve_on(goes_on, look);
            match ended {
                Some(Ok(how)) if how.success() => {}
                Some(Ok(how)) => tracing::error!("what {dir} holds is not all written: {how}"),
                Some(Err(e)) => tracing::error!("what {dir} holds is not all written: {e}"),
                None => tracing::error!("what {dir} holds is not all written after {} s", PATIENCE.as_secs()),
            }
        }
        Err(e) => tracing::error!("what {dir} holds is not written: {e}"),
    }
}

/// A process of its own that does it ([`write_as_told`]). Where this one ends before it, the kernel may keep that until the volume is served again: it
/// has none of this one's files, and none of its memory, where the ublk device is mapped, so that another daemon can have both volume and device. A
/// thread would have the latter, and keep this process from ending.
fn begin(record: &Path) -> io::Result<Child> {
    // `fs2 daemon` or `fs2d serve`.
    let serve = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let mut itself = Command::new(ITSELF);
    itself.arg(serve).arg("--write-out").arg(record).stdin(Stdio::null()).stdout(Stdio::null()).spawn()
}

/// What such a process does; whether all is written.
pub(crate) fn write_as_told(record: &Path) -> bool {
    // Who ends all that is left of a session ends it, too, and the daemon heeds that in its own way.
    let _ = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]).thread_block();
    let written = Mount::of(record).filter(Mount::stands).map_or(Ok(()), |mount| mount.write());
    written.inspect_err(|e| tracing::error!("{}: {e}", record.display())).is_ok()
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

    fn write(&self) -> io::Result<()> {
        let dir = CString::new(self.dir.as_os_str().as_bytes())?;
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
