//! Why a backing could not be opened.

use std::io;
use std::path::PathBuf;

/// Why a backing could not be opened: what, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("{} does not exist; check the path", path.display())]
    NotFound {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Somebody else holds it.
    #[error("{} is in use by {holder}; end that first, or wait for it", path.display())]
    Busy {
        /// What was to be opened.
        path: PathBuf,
        /// Who holds it, as far as this process may see.
        holder: String,
    },
    /// A file system on it is mounted.
    #[error("{} is mounted at {}; unmount it first: umount {}", path.display(), at.display(), at.display())]
    Mounted {
        /// What was to be opened.
        path: PathBuf,
        /// The mount point.
        at: PathBuf,
    },
    /// A loop device stands on the file and could write it.
    #[error("{} is the backing of {}; detach that first: losetup -d {}", path.display(), loopdev.display(), loopdev.display())]
    OnLoop {
        /// What was to be opened.
        path: PathBuf,
        /// The loop device.
        loopdev: PathBuf,
    },
    /// A daemon of FS2 serves a volume by it, or by what it stands on.
    #[error("{} leads to {}, which a daemon of FS2 serves at {}; give that volume itself, once its daemon has ended", path.display(), volume.display(), at.display())]
    Served {
        /// What was to be opened.
        path: PathBuf,
        /// Where the daemon's FUSE mount is.
        at: PathBuf,
        /// The volume, as far as it is told.
        volume: PathBuf,
    },
    /// A mount stands on it by the device of a daemon that died, and waits for the next one.
    #[error("{} is mounted at {} by way of {}, whose daemon died and is awaited; unmount it first, once the next one serves: {umount} {}", path.display(), at.display(), device.display(), at.display())]
    Awaited {
        /// What was to be opened.
        path: PathBuf,
        /// The mount point.
        at: PathBuf,
        /// The block device that is mounted.
        device: PathBuf,
        /// The command that unmounts it.
        umount: &'static str,
    },
    /// A directory, pipe, socket or character device.
    #[error("{} is {what}, not a regular file or block device; give an image file or a disk", path.display())]
    NotAFileOrDevice {
        /// What was to be opened.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// It cannot be written.
    #[error("{} cannot be written: {why}; make it writable", path.display())]
    ReadOnly {
        /// What was to be opened.
        path: PathBuf,
        /// What forbids it.
        why: &'static str,
    },
    /// O_DIRECT was demanded and does not work there.
    #[error("{} cannot bypass the page cache: {why}; open it with direct I/O off or automatic", path.display())]
    NoDirect {
        /// What was to be opened.
        path: PathBuf,
        /// What forbids it.
        why: &'static str,
    },
    /// The system said no.
    #[error("{}: {doing}: {source}{}", path.display(), next_step(source))]
    Io {
        /// What was to be opened.
        path: PathBuf,
        /// During which step.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether waiting may help: another holder may let go.
    pub fn is_transient(&self) -> bool {
        matches!(self, OpenError::Busy { .. } | OpenError::OnLoop { .. })
    }
}

fn next_step(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EPERM) if nix::unistd::geteuid().is_root() => {
            "; it may be immutable: lsattr shows it, chattr -i takes that away"
        }
        Some(libc::EACCES | libc::EPERM) => "; run as root, or as a user who may open it",
        Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::EINVAL) => {
            "; the file system lacks what is needed here, move the file to a local one"
        }
        Some(libc::EMFILE | libc::ENFILE) => "; raise the limit of open files",
        Some(libc::EIO) => "; the device fails, see dmesg",
        Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => {
            "; no device is behind this node, check the path"
        }
        _ => "",
    }
}
