//! What a loop device, or a partition of one, stands on: L3 of [`lock`](super::lock).
//!
//! ```text
//! /dev/loop2p1    bytes 1M..65M of /dev/loop2       claimed by who opened it
//! /dev/loop2      is /dev/loop1                     which is claimed here,
//! /dev/loop1      is disk.img from byte 4M          of which 5M..69M are locked
//! ```

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::lock::{backing_path, device_holder, lock_file, loop_on, mounted_at};
use super::{OpenError, sys};

const LOOP_MAJOR: u32 = 7;

/// Something below an open device that is kept for it.
pub(super) struct Held {
    pub(super) file: File,
    /// The device has all of it, but for what is no whole sector at a file's end.
    pub(super) whole: bool,
}

/// Claims each device below an open one that is claimed, and locks of the file at the bottom what that one reaches.
pub(super) fn hold(path: &Path, device: &File, write: bool) -> Result<Vec<Held>, OpenError> {
    let io = |doing| move |source| OpenError::Io { path: path.to_owned(), doing, source };
    let mut held: Vec<Held> = Vec::new();
    let mut bytes = 0..sys::device_size(device).map_err(io("asking for its size"))?;
    // Each is looked at when it is claimed: a loop device that is open keeps its backing.
    loop {
        let upper = held.last().map_or(device, |h| &h.file);
        let rdev = upper.metadata().map_err(io("looking at it"))?.rdev();
        let (disk, start) = sys::disk_of(rdev).map_err(io("looking for its disk"))?;
        if libc::major(disk) != LOOP_MAJOR {
            return Ok(held);
        }
        let Ok(below) = sys::loop_backing(upper) else { return Ok(held) };
        let up = |byte: u64| byte.saturating_add(start).saturating_add(below.offset);
        bytes = up(bytes.start)..up(bytes.end);
        let Some(backing) = backing_path(&sys::sysfs(disk)) else { return Ok(held) };
        if below.rdev == 0 {
            if let Some((file, len)) = lock(path, disk, &backing, below.file, &bytes, write)? {
                held.push(Held { whole: bytes == (0..len / 512 * 512), file });
            }
            return Ok(held);
        }
        let file = claim(path, &backing, below.rdev, write)?;
        let len = sys::device_size(&file).map_err(io("asking for the size of the device below it"))?;
        held.push(Held { whole: bytes == (0..len), file });
    }
}

/// Claims the device below one, by the path that its loop device has of it, or else by its name.
fn claim(path: &Path, backing: &Path, rdev: u64, write: bool) -> Result<File, OpenError> {
    let is_it =
        |m: io::Result<fs::Metadata>| m.is_ok_and(|m| m.file_type().is_block_device() && m.rdev() == rdev);
    let failed =
        |source| OpenError::Io { path: path.to_owned(), doing: "claiming the device below it", source };
    let by_name = sys::node_of(rdev);
    let nodes = [Some(backing), by_name.as_deref()];
    let Some(node) = nodes.into_iter().flatten().find(|node| is_it(fs::metadata(node))) else {
        let what = format!("{} is no node of it here; make one, as mknod does", backing.display());
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, what)));
    };
    let mut options = fs::OpenOptions::new();
    options.read(true).write(write).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_EXCL);
    match options.open(node) {
        Ok(file) if is_it(file.metadata()) => Ok(file),
        Ok(_) => Err(failed(io::Error::other("replaced while it was being opened"))),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Err(match mounted_at(rdev) {
            Some(at) => OpenError::Mounted { path: node.to_owned(), at },
            None => through(path, &device_holder(rdev), node),
        }),
        Err(e) => Err(failed(e)),
    }
}

/// Locks bytes of the file below a device, and tells how many it has; `None` where that keeps nobody out.
fn lock(
    path: &Path,
    loopdev: u64,
    backing: &Path,
    identity: (u64, u64),
    bytes: &Range<u64>,
    write: bool,
) -> Result<Option<(File, u64)>, OpenError> {
    let opened = fs::OpenOptions::new().read(true).write(write).open(backing);
    let opened = opened.and_then(|file| Ok((file.metadata()?, file))).ok();
    let Some((m, file)) = opened.filter(|(m, _)| (m.dev(), m.ino()) == identity && m.is_file()) else {
        // It was deleted, or lies in another mount namespace: nobody here gets at it but by a loop device.
        return match loop_on(identity, Some(loopdev)) {
            Some((other, _)) => Err(through(path, &other.display(), backing)),
            None => Ok(None),
        };
    };
    match lock_file(backing, &file, &m, bytes, write) {
        Ok(()) => Ok(Some((file, m.len()))),
        Err(OpenError::Busy { holder, .. }) => Err(through(path, &holder, backing)),
        // A file system without locks keeps nobody out; the device itself is claimed all the same.
        Err(e) => {
            tracing::warn!("{}: its backing could not be locked: {e}", path.display());
            Ok(None)
        }
    }
}

fn through(path: &Path, holder: &dyn std::fmt::Display, backing: &Path) -> OpenError {
    let holder = format!("{holder}, through its backing {}", backing.display());
    OpenError::Busy { path: path.to_owned(), holder }
}
