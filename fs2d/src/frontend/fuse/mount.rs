//! The system calls that make and undo a FUSE mount.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fs2_store::{SERVED_SOURCE, SERVED_TYPE};
use nix::mount::{MntFlags, MsFlags, umount2};

/// Which mount it is, however many come and go at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountIdentity {
    /// Never used again since Linux 6.8; before that, not while the mount lives.
    mount: u64,
    /// Of the mounted device; the number of one without hardware (major 0) is soon used again.
    device: (u32, u32),
}

impl MountIdentity {
    /// The mount `dir` is on. Asks the kernel only, so that a server that does not answer cannot
    /// make this wait.
    ///
    /// # Errors
    /// Where there is no such directory.
    pub fn of(dir: &Path) -> io::Result<MountIdentity> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let flags = libc::AT_STATX_DONT_SYNC | libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
        let mask = libc::STATX_MNT_ID | libc::STATX_MNT_ID_UNIQUE;
        let mut out = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: `path` ends in a zero byte and `out` is room for one statx; both outlive the call.
        let rc = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, out.as_mut_ptr()) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zero bytes are a valid statx, and the kernel filled it in.
        let out = unsafe { out.assume_init() };
        Ok(MountIdentity { mount: out.stx_mnt_id, device: (out.stx_dev_major, out.stx_dev_minor) })
    }

    /// The number of a FUSE mount's connection: its device's minor number.
    pub(super) fn connection(self) -> u32 {
        self.device.1
    }
}

/// A mount that is taken out of the tree on drop, unless it is kept.
pub(super) struct Mounted {
    dir: PathBuf,
    identity: MountIdentity,
    kept: bool,
}

impl Mounted {
    /// Mounts the file system that answers on `device` (an open /dev/fuse) at `dir`. It tells who looks for it which `volume` that has.
    pub(super) fn new(dir: &Path, device: &File, volume: &Path) -> io::Result<Mounted> {
        let options = format!(
            "fd={},rootmode=40700,user_id={},group_id={},default_permissions",
            device.as_raw_fd(),
            nix::unistd::geteuid(),
            nix::unistd::getegid(),
        );
        let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        // Not a path: no program takes it for where the volume's device is mounted.
        let mut source = OsString::from(SERVED_SOURCE);
        source.push(volume);
        nix::mount::mount(Some(&*source), dir, Some(SERVED_TYPE), flags, Some(options.as_str())).map_err(
            |e| {
                let e = io::Error::from(e);
                io::Error::new(e.kind(), format!("{}: cannot mount FUSE: {e}", dir.display()))
            },
        )?;
        match MountIdentity::of(dir) {
            Ok(identity) => Ok(Mounted { dir: dir.to_owned(), identity, kept: false }),
            Err(e) => {
                let _ = umount2(dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
                Err(e)
            }
        }
    }

    /// As [`MountIdentity::connection`].
    pub(super) fn connection(&self) -> u32 {
        self.identity.connection()
    }

    /// Leaves it mounted, to be undone by [`unmount`].
    pub(super) fn keep(mut self) -> MountIdentity {
        self.kept = true;
        self.identity
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.kept {
            // Nobody was told of it yet.
            let _ = unmount(&self.dir, self.identity, true);
        }
    }
}

/// Unmounts `dir` if the mount there is the one meant; does nothing where that is gone. `lazy`
/// takes it out of the tree though it is in use.
pub(super) fn unmount(dir: &Path, meant: MountIdentity, lazy: bool) -> io::Result<()> {
    match MountIdentity::of(dir) {
        Ok(there) if there == meant => {}
        // Unmounted by someone else, or the directory is gone with it.
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    }
    let flags = if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    match umount2(dir, flags | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
