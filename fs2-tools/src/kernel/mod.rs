//! Loop and NBD devices, mounts and what sysfs says of them: what a command asks of the Linux kernel.
//!
//! The main types are [`LoopDevice`], [`NbdDevice`] and [`MountGuard`]; each undoes on drop what it did. Which
//! device is to be mounted where, and what is on it, is their caller's affair.
//!
//! ```
//! use fs2_tools::kernel::mounts;
//! let all = mounts().unwrap();
//! assert!(all.iter().any(|m| m.target.as_os_str() == "/proc" && m.fstype == "proc"));
//! ```

mod loopdev;
mod mountinfo;
mod mounting;
mod nbd;
mod netlink;
mod utab;
mod watchdog;

pub(crate) use loopdev::is_named_for;
pub use loopdev::{LoopDevice, LoopEntry, LoopOptions, loop_of_file, loops};
pub(crate) use mountinfo::unescape;
pub use mountinfo::{Mount, mount_at, mount_holding, mounts, parse_mountinfo};
pub use mounting::{MountGuard, MountOptions, drop_caches_of, mount_ext2, remount, remount_cold, unmount};
pub use nbd::{
    NbdDevice, NbdOptions, NbdWatch, nbd_available, nbd_disconnect, nbd_is_anothers, nbd_number,
    nbd_reconnect, nbd_unclaimed,
};
pub use utab::{forget_helper, remember_helper};
pub use watchdog::FuseWatchdog;

use std::io;
use std::path::Path;

/// The error of a system call with what was tried in front of it; the kind stays.
fn told(path: &Path, what: &str, e: impl Into<io::Error>) -> io::Error {
    let e = e.into();
    io::Error::new(e.kind(), format!("{}: {what}: {e}", path.display()))
}
