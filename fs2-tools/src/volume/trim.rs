//! What the file system of a mounted volume has free, told to its daemon.

use std::path::Path;

use fs2_control::{Liveness, Status};

use super::{MountRecord, VolumeError, io_error};
use crate::kernel::mount_at;
use crate::output::quoted;

/// How a trim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trimmed {
    /// So many bytes the file system discarded.
    Bytes(u64),
    /// Nothing was done.
    Not {
        /// Why.
        why: String,
        /// What to do, if anything helps.
        next: Option<String>,
    },
}

/// Tells the daemon of all free blocks, by FITRIM, where that is of use. A volume that is not active takes no discards; of one that is mounted
/// read-only those that come by FUSE are executed as zeroes, over all free space.
///
/// # Errors
/// What the kernel says.
pub fn trim(dir: &Path, status: &Status, record: Option<&MountRecord>) -> Result<Trimmed, VolumeError> {
    let mounted = mount_at(dir).map_err(io_error("mount table"))?;
    if let Some((why, next)) = no_use(dir, status, record, mounted.is_some_and(|m| m.is_read_only())) {
        return Ok(Trimmed::Not { why, next });
    }
    fitrim(dir).map(Trimmed::Bytes)
}

/// Why it is of no use, and what helps.
fn no_use(
    dir: &Path,
    status: &Status,
    record: Option<&MountRecord>,
    read_only: bool,
) -> Option<(String, Option<String>)> {
    let place = quoted(dir);
    let next = match (&status.liveness, record) {
        (Liveness::Active, _) if read_only => {
            let next = format!("mount -o remount,rw {place}, then fs2 trim {place}");
            return Some((
                "it is mounted read-only; what is free could be overwritten with zeroes".into(),
                Some(next),
            ));
        }
        (Liveness::Active, _) => return None,
        // Unmounting too: a command by the record, of one that is frozen words.
        (_, Some(_)) | (Liveness::Frozen(_), None) => status.remedy.clone(),
        (Liveness::Inactive(_), None) => {
            status.remedy.as_ref().map(|remedy| format!("umount {place} && {remedy}"))
        }
    };
    Some((format!("it is {}; no copies are made in what is free", status.liveness), next))
}

fn fitrim(dir: &Path) -> Result<u64, VolumeError> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(dir).map_err(io_error(dir.display().to_string()))?;
    let mut range = ioctl::Range { start: 0, len: u64::MAX, minlen: 0 };
    // SAFETY: the descriptor is open and the range lives for the whole call.
    unsafe { ioctl::fitrim(file.as_raw_fd(), &mut range) }
        .map_err(|e| io_error(format!("trimming {}", dir.display()))(e.into()))?;
    Ok(range.len)
}

mod ioctl {
    /// `struct fstrim_range` of linux/fs.h.
    #[repr(C)]
    pub(super) struct Range {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) minlen: u64,
    }

    nix::ioctl_readwrite!(fitrim, b'X', 121, Range);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_trimmed_is_told_what_helps() {
        let said = |liveness: Liveness, remedy: Option<&str>, read_only| {
            let status = Status { liveness, remedy: remedy.map(String::from), ..Status::default() };
            no_use(Path::new("/my srv"), &status, None, read_only)
        };
        assert_eq!(said(Liveness::Active, None, false), None);
        let (why, next) = said(Liveness::Active, None, true).unwrap();
        assert!(why.starts_with("it is mounted read-only;"), "{why}");
        assert_eq!(next.as_deref(), Some("mount -o remount,rw '/my srv', then fs2 trim '/my srv'"));
        let inactive = |remedy| said(Liveness::Inactive("there is no mark".into()), remedy, true).unwrap();
        let (why, next) = inactive(Some("chkfs2 -f -p /dev/sdb1"));
        assert!(why.starts_with("it is inactive: there is no mark;"), "{why}");
        assert_eq!(next.as_deref(), Some("umount '/my srv' && chkfs2 -f -p /dev/sdb1"));
        assert_eq!(inactive(None).1, None, "nothing helps");
        let words = "unmount, then chkfs2 -f -p /dev/sdb1";
        let (why, next) = said(Liveness::Frozen("errors".into()), Some(words), false).unwrap();
        assert!(why.starts_with("it is frozen: errors;"), "{why}");
        assert_eq!(next.as_deref(), Some(words));
    }
}
