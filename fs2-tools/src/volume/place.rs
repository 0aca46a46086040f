//! Where a record's volume is mounted, as the kernel tells it by the device: what was bound to a second directory and unmounted from the
//! first, or moved (`mount --move`), is elsewhere than was written down. A mount in another namespace is not seen from here.

use std::io;
use std::path::{Path, PathBuf};

use fs2d::frontend::ublk;

use super::MountRecord;
use crate::kernel::{Mount, is_named_for, loops, mounts, nbd_is_anothers, nbd_number};

/// The mounts of a record's volume among `all`, in the order in which they were made.
pub(super) fn mounts_of<'a>(record: &MountRecord, all: &'a [Mount]) -> Vec<&'a Mount> {
    let Some(number) = number_of(&record.block_device) else {
        // One that is gone may be mounted still: a ublk device, which its daemon did not leave to another.
        return all.iter().filter(|m| m.source == record.block_device).collect();
    };
    let ours: Vec<_> = all.iter().filter(|m| m.device == number && number != (0, 0)).collect();
    if !ours.is_empty() && is_anothers(record) {
        return Vec::new();
    }
    ours
}

/// Whether the record's device is another's by now, as a record outlives its mount where all was killed: numbers are given again. Of one that does
/// not tell the record is believed: its daemon must not end below a mount.
pub(super) fn is_anothers(record: &MountRecord) -> bool {
    let device = &record.block_device;
    match &*record.frontend {
        "fuse" => !is_loop_of(record),
        "nbd" => nbd_number(device).is_some_and(|number| nbd_is_anothers(number, &record.backend())),
        _ => ublk::device_of(device)
            .zip(record.served_tag())
            .is_some_and(|(number, tag)| ublk::is_anothers(tag, number).unwrap_or(false)),
    }
}

/// The numbers of a device; (0, 0) for what is none, `None` where nothing is.
fn number_of(device: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    let number = std::fs::metadata(device).ok()?.rdev();
    Some((nix::sys::stat::major(number) as u32, nix::sys::stat::minor(number) as u32))
}

/// Whether the loop device of a FUSE mount still is on its file.
pub(super) fn is_loop_of(record: &MountRecord) -> bool {
    let file = record.carrier.join(fs2d::frontend::fuse::FILE_NAME);
    let by_itself = || is_named_for(&record.block_device, &file);
    match loops() {
        Ok(all) => all
            .iter()
            .find(|l| l.device == record.block_device)
            // Of a FUSE mount that was taken out of the tree (`umount -l`) the kernel has no whole path.
            .is_some_and(|l| l.file == file || by_itself().unwrap_or(false)),
        // There is no sysfs, as in a chroot. Of one that does not tell it is believed: its daemon must not end below a mount.
        Err(_) => by_itself().unwrap_or(true),
    }
}

/// The record with the directory where its volume is mounted: the one that was written down, if it is there or nowhere, else one where one
/// sees it, whole rather than a part of it.
pub(super) fn located(record: MountRecord, all: &[Mount]) -> MountRecord {
    let ours = mounts_of(&record, all);
    if ours.iter().any(|m| m.target == record.dir) {
        return record;
    }
    let is_covered = |m: &Mount| all.iter().rfind(|above| above.target == m.target) != Some(m);
    let best = ours.iter().min_by_key(|m| (is_covered(m), m.root != Path::new("/")));
    match best {
        Some(mount) => MountRecord { dir: mount.target.clone(), ..record },
        None => record,
    }
}

/// The one of `records` whose volume one sees at `dir`, or, where that is covered, the one that lies below; with that directory.
pub(super) fn mounted_on(dir: &Path, records: &[MountRecord], all: &[Mount]) -> Option<MountRecord> {
    let mut there = all.iter().rev().filter(|m| m.target == dir);
    there.find_map(|mount| {
        let record = records.iter().find(|r| !mounts_of(r, std::slice::from_ref(mount)).is_empty())?;
        Some(MountRecord { dir: dir.to_owned(), ..record.clone() })
    })
}

/// Where else in this namespace the volume is mounted than at the record's directory.
///
/// # Errors
/// Where the mount table cannot be read.
pub(super) fn elsewhere(record: &MountRecord) -> io::Result<Option<PathBuf>> {
    let all = mounts()?;
    Ok(mounts_of(record, &all).into_iter().map(|m| m.target.clone()).find(|target| *target != record.dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::parse_mountinfo;

    /// `fs2 status` and `fs2 umount` went on naming a directory where nothing was mounted any more, or something of another's.
    #[test]
    fn a_volume_is_where_the_kernel_has_it() {
        let record = |device: &str, dir: &str| -> MountRecord {
            serde_json::from_value(serde_json::json!({
                "dir": dir, "device": "/image", "control": "/c", "log": "/l", "pid": 1, "frontend": "ublk",
                "block_device": device, "carrier": "/n", "path": "/p",
            }))
            .unwrap()
        };
        // A device that is there on each machine, and one that is gone; of the former only the numbers count.
        let (zero, gone) = (record("/dev/zero", "/a"), record("/dev/absent", "/g"));
        let table = |lines: &[&str]| parse_mountinfo(lines.join("\n").as_bytes()).unwrap();
        let at = |record: &MountRecord, lines: &[&str]| {
            let all = table(lines);
            (mounts_of(record, &all).len(), located(record.clone(), &all).dir.display().to_string())
        };
        let (a, b) = ("9 1 1:5 / /a rw - ext2 /dev/x rw", "8 1 1:5 / /b rw - ext2 /dev/x rw");
        let (part, above) = ("7 1 1:5 /sub /c rw - ext2 /dev/x rw", "6 1 0:9 / /b rw - tmpfs none rw");
        let foreign = "5 1 0:9 / /a rw - tmpfs /dev/zero rw";
        assert_eq!(at(&zero, &[]), (0, "/a".into()), "as it was written down");
        assert_eq!(at(&zero, &[foreign]), (0, "/a".into()));
        assert_eq!(at(&zero, &[b, a]), (2, "/a".into()));
        assert_eq!(at(&zero, &[foreign, part, b]), (2, "/b".into()), "whole");
        assert_eq!(at(&zero, &[b, above, part]), (2, "/c".into()), "seen");
        assert_eq!(at(&gone, &["9 1 1:5 / /h rw - ext2 /dev/absent rw"]), (1, "/h".into()));
        let on = |dir: &str, lines: &[&str]| {
            let found = mounted_on(Path::new(dir), &[gone.clone(), zero.clone()], &table(lines));
            found.map(|r| (r.block_device.display().to_string(), r.dir.display().to_string()))
        };
        assert_eq!(on("/b", &[a, b]), Some(("/dev/zero".into(), "/b".into())));
        assert_eq!(on("/b", &[b, above]), Some(("/dev/zero".into(), "/b".into())), "below it");
        assert_eq!(on("/a", &[foreign, b]), None);
    }
}
