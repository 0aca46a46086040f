//! A volume whose daemon died below a mount that stands: programs wait, the kernel has blocks that it has not written down yet, and whoever
//! serves the volume next goes on with that mount. Nobody else may change it meanwhile, though nobody holds it.

use std::path::{Path, PathBuf};

use fs2_store::{FileStore, OpenError};
use fs2d::awaited::by_driver;

use super::{all_records, is_mounted};

/// Refuses a volume that is claimed, so that no daemon has it, and mounted all the same.
///
/// # Errors
/// [`OpenError::Awaited`].
pub(crate) fn refuse_awaited(path: &Path, volume: &FileStore) -> Result<(), OpenError> {
    let Ok(identity) = volume.identity() else { return Ok(()) };
    // The driver knows of daemons that a service manager starts, and of an image that was moved.
    let by_driver = || by_driver(&identity).map(|(device, at)| (device, at, "umount"));
    let found = by_record(&identity).or_else(by_driver);
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
