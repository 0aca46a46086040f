//! Mounting an ext2 volume, unmounting it, and making it cold.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs2d::frontend::fuse::MountIdentity;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{Mount, told};
use crate::output::quoted;

/// How long an unmount waits for a user that is just letting go. Guess.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// MS_NOSYMFOLLOW of linux/mount.h.
const NOSYMFOLLOW: libc::c_ulong = 256;

mod ioctl {
    // _IO(0x12, 97): write out and forget what the page cache holds of a block device.
    nix::ioctl_none!(blkflsbuf, 0x12, 97);
}

/// How a volume is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing may be written.
    pub read_only: bool,
    /// Freed blocks are discarded at once; without it only fstrim tells the daemon of them.
    pub discard: bool,
    /// Further options as after `mount -o`, such as `noatime` or `errors=remount-ro`.
    pub extra: Vec<String>,
}

impl MountOptions {
    /// What mount(2) wants: general flags as bits, those of the file system as text.
    fn split(&self) -> (MsFlags, String) {
        let mut flags = MsFlags::empty();
        let mut data = Vec::new();
        if self.discard {
            data.push("discard");
        }
        for option in self.extra.iter().flat_map(|o| o.split(',')).filter(|o| !o.is_empty()) {
            match option {
                // The last of each pair counts.
                "ro" => flags |= MsFlags::MS_RDONLY,
                "rw" => flags &= !MsFlags::MS_RDONLY,
                "suid" => flags &= !MsFlags::MS_NOSUID,
                "dev" => flags &= !MsFlags::MS_NODEV,
                "exec" => flags &= !MsFlags::MS_NOEXEC,
                "atime" => flags &= !MsFlags::MS_NOATIME,
                "diratime" => flags &= !MsFlags::MS_NODIRATIME,
                "norelatime" => flags &= !MsFlags::MS_RELATIME,
                "nostrictatime" => flags &= !MsFlags::MS_STRICTATIME,
                "async" => flags &= !MsFlags::MS_SYNCHRONOUS,
                "nolazytime" => flags &= !MsFlags::MS_LAZYTIME,
                "nosymfollow" => flags |= MsFlags::from_bits_retain(NOSYMFOLLOW),
                "symfollow" => flags &= !MsFlags::from_bits_retain(NOSYMFOLLOW),
                "silent" => flags |= MsFlags::MS_SILENT,
                "loud" => flags &= !MsFlags::MS_SILENT,
                "nosuid" => flags |= MsFlags::MS_NOSUID,
                "nodev" => flags |= MsFlags::MS_NODEV,
                "noexec" => flags |= MsFlags::MS_NOEXEC,
                "noatime" => flags |= MsFlags::MS_NOATIME,
                "nodiratime" => flags |= MsFlags::MS_NODIRATIME,
                "relatime" => flags |= MsFlags::MS_RELATIME,
                "strictatime" => flags |= MsFlags::MS_STRICTATIME,
                "sync" => flags |= MsFlags::MS_SYNCHRONOUS,
                "dirsync" => flags |= MsFlags::MS_DIRSYNC,
                "lazytime" => flags |= MsFlags::MS_LAZYTIME,
                "iversion" => flags |= MsFlags::MS_I_VERSION,
                "noiversion" => flags &= !MsFlags::MS_I_VERSION,
                "mand" => flags |= MsFlags::MS_MANDLOCK,
                "nomand" => flags &= !MsFlags::MS_MANDLOCK,
                "defaults" => {}
                other => data.push(other),
            }
        }
        if self.read_only {
            flags |= MsFlags::MS_RDONLY;
        }
        (flags, data.join(","))
    }
}

/// A mounted file system, unmounted on drop (taken out of the tree where it is in use).
#[derive(Debug)]
pub struct MountGuard {
    device: PathBuf,
    dir: PathBuf,
    options: MountOptions,
    /// Which mount it is, while it stands.
    id: Option<MountIdentity>,
}

/// Mounts the ext2 file system on `device` at `dir`.
///
/// # Errors
/// `ResourceBusy` for a device in use, `InvalidInput` for no ext2 file system or an option it does
/// not know, `Unsupported`-like kinds of the kernel's choice where it has no ext2.
pub fn mount_ext2(device: &Path, dir: &Path, options: MountOptions) -> io::Result<MountGuard> {
    let dir = dir.canonicalize().map_err(|e| told(dir, "no such directory to mount on", e))?;
    let mut guard = MountGuard { device: device.to_owned(), dir, options, id: None };
    guard.mount()?;
    Ok(guard)
}

/// Changes the options of what is mounted at `dir`, as `mount -o remount` does: general flags are set as given, options of the
/// file system that are not given stay.
///
/// # Errors
/// What the kernel says.
pub fn remount(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let (flags, data) = options.split();
    let flags = flags | MsFlags::MS_REMOUNT;
    mount(None::<&str>, dir, None::<&str>, flags, Some(data.as_str()))
        .map_err(|e| told(dir, "cannot change its mount options", e))
}

/// Unmounts what is mounted at `dir`; `lazy` takes it out of the tree though it is in use, and the
/// file system ends with its last user.
///
/// # Errors
/// `ResourceBusy` where it is in use, `InvalidInput` where nothing is mounted.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    umount2(dir, flags | MntFlags::UMOUNT_NOFOLLOW).map_err(|e| told(dir, "cannot unmount", e))
}

/// Writes out and forgets what the page cache holds of a block device. What a file system mounted
/// on it holds of its files stays: unmount first ([`MountGuard::cold`]).
///
/// # Errors
/// `PermissionDenied` for others than root; what the device says.
pub fn drop_caches_of(device: &Path) -> io::Result<()> {
    let file = File::open(device).map_err(|e| told(device, "cannot open", e))?;
    // SAFETY: the descriptor is open for the whole call, which takes no argument.
    unsafe { ioctl::blkflsbuf(file.as_raw_fd()) }
        .map(drop)
        .map_err(|e| told(device, "cannot flush its buffers", e))
}

/// Makes everything read from a mounted file system come from its device again: unmounts it, drops the
/// device's buffers (and those of the file below a loop device), and mounts it with the same options.
///
/// # Errors
/// `ResourceBusy` where it is in use: it stays mounted. Where it could not be mounted again, the error has the
/// command that does it.
pub fn remount_cold(mounted: &Mount) -> io::Result<()> {
    let (device, dir) = (&mounted.source, &mounted.target);
    // Held open, or a loop device with autoclear would go with the mount.
    let _open = File::open(device).map_err(|e| told(device, "cannot open", e))?;
    let until = Instant::now() + BUSY_PATIENCE;
    loop {
        match unmount(dir, false) {
            Ok(()) => break,
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(e),
        }
    }
    let dropped = drop_caches_of(device).and_then(|()| drop_caches_below(device));
    let options = MountOptions { extra: mounted.options_again(), ..MountOptions::default() };
    let (flags, data) = options.split();
    mount(Some(device), dir, Some(mounted.fstype.as_str()), flags, Some(data.as_str())).map_err(|e| {
        let again = format!(
            "was unmounted and cannot be mounted again (mount -t {} -o {} {} {})",
            mounted.fstype,
            quoted(Path::new(&mounted.options.join(","))),
            quoted(device),
            quoted(dir)
        );
        told(dir, &again, e)
    })?;
    dropped
}

/// What the page cache holds of the file below a loop device without direct I/O; nothing for other devices.
fn drop_caches_below(device: &Path) -> io::Result<()> {
    let Some(entry) = super::loops()?.into_iter().find(|l| l.device == device && !l.deleted) else {
        return Ok(());
    };
    // Only asked where it is a file of a file system that answers: a FUSE file has no cache of its own.
    let holder = super::mount_holding(&entry.file)?;
    if holder.is_none_or(|m| m.fstype.starts_with("fuse")) {
        return Ok(());
    }
    let file = File::open(&entry.file).map_err(|e| told(&entry.file, "cannot open", e))?;
    file.sync_data().map_err(|e| told(&entry.file, "cannot write out", e))?;
    // SAFETY: the descriptor is open for the whole call.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        e => Err(told(&entry.file, "cannot drop its cache", io::Error::from_raw_os_error(e))),
    }
}

impl MountGuard {
    fn mount(&mut self) -> io::Result<()> {
        let (flags, data) = self.options.split();
        mount(Some(&self.device), &self.dir, Some("ext2"), flags, Some(data.as_str())).map_err(|e| {
            let hint = match e {
                nix::Error::EINVAL => " (no ext2 file system, or a feature or option it does not know)",
                nix::Error::ENODEV => " (this kernel has no ext2)",
                nix::Error::EBUSY => " (in use, or mounted already)",
                _ => "",
            };
            told(&self.dir, &format!("cannot mount {} as ext2{hint}", self.device.display()), e)
        })?;
        match MountIdentity::of(&self.dir) {
            Ok(id) => self.id = Some(id),
            Err(e) => {
                let _ = unmount(&self.dir, true);
                return Err(told(&self.dir, "mounted, but cannot be seen", e));
            }
        }
        Ok(())
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is mounted.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Unmounts; a user that is just letting go is waited for. Does nothing where someone else
    /// unmounted it.
    ///
    /// # Errors
    /// `ResourceBusy` where it is in use: it stays mounted, and the guard in charge of it.
    pub fn unmount(&mut self) -> io::Result<()> {
        let until = Instant::now() + BUSY_PATIENCE;
        while self.is_there()? {
            match unmount(&self.dir, false) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => {
                    other?;
                    break;
                }
            }
        }
        self.id = None;
        Ok(())
    }

    /// Makes everything read from it come from the device again: unmounts, drops the device's
    /// buffers, mounts with the same options. Leaves other devices' caches alone.
    ///
    /// # Errors
    /// As [`MountGuard::unmount`], [`drop_caches_of`], [`mount_ext2`]; where the last failed it is
    /// not mounted.
    pub fn cold(&mut self) -> io::Result<()> {
        self.unmount()?;
        drop_caches_of(&self.device)?;
        self.mount()
    }

    /// Leaves it mounted.
    pub fn keep(mut self) {
        self.id = None;
    }

    /// Whether what stands at the directory is what was mounted there.
    fn is_there(&self) -> io::Result<bool> {
        match self.id {
            None => Ok(false),
            Some(id) => match MountIdentity::of(&self.dir) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
                there => Ok(there? == id),
            },
        }
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        if self.unmount().is_err() && self.is_there().unwrap_or(false) {
            let _ = unmount(&self.dir, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_where_the_kernel_looks_for_them() {
        let split = |read_only, discard, extra: &[&str]| {
            let extra = extra.iter().map(|s| s.to_string()).collect();
            MountOptions { read_only, discard, extra }.split()
        };
        assert_eq!(split(false, false, &[]), (MsFlags::empty(), String::new()));
        assert_eq!(
            split(true, true, &["noatime,errors=remount-ro", "nodev", "rw", ""]),
            (
                MsFlags::MS_RDONLY | MsFlags::MS_NOATIME | MsFlags::MS_NODEV,
                "discard,errors=remount-ro".to_string()
            )
        );
        let (flags, data) = split(false, false, &["iversion,mand,noiversion"]);
        assert_eq!((flags, data.as_str()), (MsFlags::MS_MANDLOCK, ""));
    }

    #[test]
    fn errors_say_what_was_tried() {
        let dir = tempfile::tempdir().unwrap();
        let e = mount_ext2(Path::new("/dev/null"), &dir.path().join("absent"), MountOptions::default());
        let e = e.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert!(e.to_string().contains("absent"), "{e}");
        let e = mount_ext2(Path::new("/dev/null"), dir.path(), MountOptions::default()).unwrap_err();
        assert!(e.to_string().contains("/dev/null"), "{e}");
        let e = drop_caches_of(dir.path()).unwrap_err();
        assert!(e.to_string().contains("flush"), "{e}");
    }
}
