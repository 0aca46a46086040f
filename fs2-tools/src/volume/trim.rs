//! What the file system of a mounted volume has free, told to its daemon.

use std::path::Path;

use fs2_control::{Liveness, Status, plain};

use super::{MountRecord, VolumeError, io_error};
use crate::kernel::mount_at;
use crate::mkfs2::Bar;
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
    let mut bar = Bar::new(false);
    let message = format!("{}: trimming", plain(&dir.display().to_string()));
    let trimmed = fitrim(dir, status, &mut |done, total| bar.show(&message, done, total));
    bar.clear();
    trimmed.map(Trimmed::Bytes)
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

/// A volume's bytes, a block group after the other, as mke2fs makes them: the kernel asks for each run of free blocks and waits for the answer,
/// which takes minutes where there are millions, and tells nothing before the end of what it was asked for. The last has no end, for the volume may
/// have grown.
fn steps(volume_bytes: u64, block_bytes: u32) -> Vec<ioctl::Range> {
    let block = u64::from(block_bytes.max(1024));
    // A block's bits tell of a group; with blocks of 1 KiB the first one is no group's.
    let (group, first) = (8 * block * block, if block == 1024 { 1024 } else { 0 });
    let starts = (0..).map(|n| if n == 0 { 0 } else { first + n * group });
    let mut all: Vec<ioctl::Range> = starts
        .take_while(|start| *start == 0 || *start < volume_bytes)
        .map(|start| ioctl::Range { start, len: if start == 0 { first + group } else { group }, minlen: 0 })
        .collect();
    if let Some(last) = all.last_mut() {
        last.len = u64::MAX;
    }
    all
}

fn fitrim(dir: &Path, status: &Status, told: &mut dyn FnMut(u64, u64)) -> Result<u64, VolumeError> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(dir).map_err(io_error(dir.display().to_string()))?;
    let steps = steps(status.volume_bytes, status.block_bytes);
    let (mut trimmed, total) = (0, steps.len() as u64);
    for (done, mut range) in (0..).zip(steps) {
        told(done, total);
        let begins = range.start == 0;
        // SAFETY: the descriptor is open and the range lives for the whole call.
        match unsafe { ioctl::fitrim(file.as_raw_fd(), &mut range) } {
            Ok(_) => trimmed += range.len,
            // The file system ends before its device does.
            Err(nix::errno::Errno::EINVAL) if !begins => break,
            Err(e) => return Err(io_error(format!("trimming {}", dir.display()))(e.into())),
        }
    }
    Ok(trimmed)
}

mod ioctl {
    /// `struct fstrim_range` of linux/fs.h.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// Of a volume with millions of runs nothing was heard for a quarter of an hour.
    #[test]
    fn a_volume_is_trimmed_group_by_group() {
        for (bytes, block) in
            [(0, 0), (1 << 20, 1024), (64 << 20, 1024), (1 << 30, 4096), ((1 << 30) + 4096, 4096)]
        {
            let all = steps(bytes, block);
            let group = 8 * u64::from(block.max(1024)).pow(2);
            assert_eq!(
                all.len() as u64,
                (bytes.saturating_sub(u64::from(block == 1024) << 10)).div_ceil(group).max(1),
                "{bytes}"
            );
            assert!(all[0].start == 0 && all.last().unwrap().len == u64::MAX);
            assert!(all.windows(2).all(|two| two[0].start + two[0].len == two[1].start), "{all:?}");
            let whole = |range: &ioctl::Range| {
                range.len == group && range.start % group == u64::from(block == 1024) << 10
            };
            assert!(all.iter().skip(1).rev().skip(1).all(whole), "{all:?}");
        }
    }

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
