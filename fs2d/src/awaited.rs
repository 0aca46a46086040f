//! A volume whose daemon died below a mount that stands on a ublk device: programs wait in it, the kernel has blocks that it has not written
//! down yet, and the volume's next ublk daemon goes on with both. Whatever another writes to the volume meanwhile, these blocks go over.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs2_store::{FileStore, OpenError};
use nix::sys::stat::{major, minor};

use crate::frontend::ublk;

/// The device that waits for a daemon of the volume of this [`FileStore::identity`] and where it is mounted, as the ublk driver and this mount
/// namespace have it.
pub fn by_driver(identity: &str) -> Option<(PathBuf, PathBuf)> {
    // Where the driver may not be asked, no device of root's can be told of.
    let devices = ublk::awaited(ublk::Tag::of(identity)).unwrap_or_default();
    let mounts = if devices.is_empty() { Vec::new() } else { std::fs::read("/proc/self/mountinfo").ok()? };
    devices.into_iter().map(ublk::block_path).find_map(|device| {
        let at = mounted(&mounts, std::fs::metadata(&device).ok()?.rdev())?;
        Some((device, at))
    })
}

/// Refuses a volume that is claimed, and is mounted so.
pub(crate) fn refuse(path: &Path, volume: &FileStore) -> Result<(), OpenError> {
    let Ok(identity) = volume.identity() else { return Ok(()) };
    by_driver(&identity).map_or(Ok(()), |(device, at)| {
        Err(OpenError::Awaited { path: path.to_owned(), at, device, umount: "umount" })
    })
}

/// Where a block device is mounted, by the text of mountinfo: its third field is the device, its fifth the directory.
fn mounted(mounts: &[u8], device: u64) -> Option<PathBuf> {
    let device = format!("{}:{}", major(device), minor(device));
    mounts.split(|&b| b == b'\n').find_map(|line| {
        let mut fields = line.split(|&b| b == b' ');
        (fields.nth(2)? == device.as_bytes()).then(|| unescape(fields.nth(1)?)).flatten()
    })
}

/// The kernel writes space, tab, newline, backslash and # as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Option<PathBuf> {
    let mut parts = field.split(|&b| b == b'\\');
    let mut path = parts.next()?.to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3)?;
        path.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
        path.extend(rest);
    }
    Some(OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::makedev;

    use super::*;

    #[test]
    fn a_mount_is_known_by_the_number_of_its_device() {
        let mounts = b"25 1 259:2 / / rw shared:1 - ext4 /dev/nvme0n1p2 rw\n\
            36 25 259:20 / /mnt/my\\040disk\\134 ro - ext2 /dev/ublkb0 ro\n";
        assert_eq!(mounted(mounts, makedev(259, 20)), Some("/mnt/my disk\\".into()));
        assert_eq!(mounted(mounts, makedev(259, 2)), Some("/".into()));
        assert_eq!(mounted(mounts, makedev(59, 2)), None);
    }
}
