//! A volume whose daemon died below a mount that stands: programs wait, the kernel has blocks that it has not written down yet, and whoever
//! serves the volume next goes on with that mount. Nobody else may change it meanwhile, though nobody holds it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs2_store::{FileStore, OpenError};
use fs2d::frontend::ublk;

use super::{all_records, is_mounted};
use crate::kernel::mounts;

/// Refuses a volume that is claimed, so that no daemon has it, and mounted all the same.
///
/// # Errors
/// [`OpenError::Awaited`].
pub(crate) fn refuse_awaited(path: &Path, volume: &FileStore) -> Result<(), OpenError> {
    let Ok(identity) = volume.identity() else { return Ok(()) };
    let found = by_record(&identity).or_else(|| by_driver(&identity));
    found.map_or(Ok(()), |(device, at, umount)| {
        Err(OpenError::Awaited { path: path.to_owned(), at, device, umount })
    })
}

type Found = (PathBuf, PathBuf, &'static str);

/// As `fs2 mount` wrote it down, of devices that outlive their daemon.
fn by_record(identity: &str) -> Option<Found> {
    let is_it = |device: &Path| FileStore::identity_at(device).is_ok_and(|known| known == identity);
    let mut all = all_records().into_iter().filter(|r| r.frontend != "fuse");
    all.find(|r| is_it(&r.device) && is_mounted(r)).map(|r| (r.block_device, r.dir, "fs2 umount"))
}

/// As the ublk driver has it: of a daemon that a service manager starts, and of an image that was moved.
fn by_driver(identity: &str) -> Option<Found> {
    // Where the driver may not be asked, no device of root's can be told of.
    let devices = ublk::awaited(ublk::Tag::of(identity)).unwrap_or_default();
    let mounted = mounts().unwrap_or_default();
    devices.into_iter().map(ublk::block_path).find_map(|device| {
        let number = std::fs::metadata(&device).ok()?.rdev();
        let number = (nix::sys::stat::major(number) as u32, nix::sys::stat::minor(number) as u32);
        let at = mounted.iter().find(|m| m.device == number)?.target.clone();
        Some((device, at, "umount"))
    })
}
