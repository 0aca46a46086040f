//! What a mount set up, written down for whoever unmounts it.

use std::io;
use std::path::{Path, PathBuf};

use fs2_control::{Liveness, Status};
use fs2d::cli::ublk_tag;
use fs2d::frontend::ublk::Tag;
use serde::{Deserialize, Serialize};

use super::VolumeError;
use super::daemon::{beginning_of, is_alive, is_stopped};
use super::end::is_mounted;
use super::place::{located, mounted_on};
use crate::kernel::mounts;
use crate::output::quoted;

/// A mounted volume. One JSON file each in the runtime directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountRecord {
    /// Where it is mounted; in the file, where it was mounted first.
    pub dir: PathBuf,
    /// The image or device.
    pub device: PathBuf,
    /// The replica table's file or device, where it lives apart.
    #[serde(default)]
    pub table: Option<PathBuf>,
    /// The daemon's control socket.
    pub control: PathBuf,
    /// The daemon's log.
    pub log: PathBuf,
    /// The daemon's process.
    pub pid: u32,
    /// When that began, in the kernel's ticks: a later process may have its number.
    #[serde(default)]
    pub began: Option<u64>,
    /// `fuse`, `nbd` or `ublk`.
    pub frontend: String,
    /// The loop, NBD or ublk device that is mounted.
    pub block_device: PathBuf,
    /// The FUSE mount or the NBD socket below it.
    pub carrier: PathBuf,
    /// Connections of an NBD device.
    #[serde(default)]
    pub connections: u16,
    /// The arguments that start the daemon again, should it die.
    #[serde(default)]
    pub again: Vec<String>,
    /// Replicas were trusted when it was mounted.
    #[serde(default)]
    pub active: bool,
    /// This record's own file.
    pub path: PathBuf,
}

impl MountRecord {
    /// What lies beside it has the record's own name, whatever is written in it.
    pub(super) fn read(path: &Path) -> io::Result<MountRecord> {
        let mut record: MountRecord =
            serde_json::from_str(&std::fs::read_to_string(path)?).map_err(io::Error::other)?;
        record.path = path.to_owned();
        record.control = path.with_extension("ctl");
        record.log = path.with_extension("log");
        record.carrier = path.with_extension(if record.frontend == "fuse" { "fuse" } else { "nbd" });
        Ok(record)
    }

    /// Its daemon is this process from now on.
    pub(super) fn is_served_by(&mut self, pid: u32) {
        (self.pid, self.began) = (pid, beginning_of(pid));
    }

    /// The word by which its NBD device is known as this volume's.
    pub(super) fn backend(&self) -> String {
        format!("fs2 {}", self.path.display())
    }

    /// By which its ublk device is known as this volume's: what was served then. Its path may lead to another by now, or nowhere.
    ///
    /// # Errors
    /// Where that was not written down, what the system says of the path.
    pub(super) fn ublk_tag(&self) -> Result<Tag, VolumeError> {
        match self.served_tag() {
            Some(tag) => Ok(tag),
            None => ublk_tag(&self.device).map_err(|e| VolumeError::Other(e.to_string())),
        }
    }

    /// The same where it was written down what was served; former versions did not.
    pub(super) fn served_tag(&self) -> Option<Tag> {
        self.again.iter().find_map(|arg| arg.strip_prefix("--instead-of=")).map(Tag::of)
    }

    pub(super) fn write(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        let tmp = self.path.with_extension("mount.new");
        std::fs::write(&tmp, text).and_then(|()| std::fs::rename(&tmp, &self.path)).inspect_err(|_| {
            let _ = std::fs::remove_file(&tmp);
        })
    }

    /// What to say of a daemon that did not answer, of which was `said` how, and that is there all the same.
    pub fn silence(&self, said: &dyn std::fmt::Display) -> Option<String> {
        let MountRecord { pid, began, .. } = self;
        if is_stopped(*pid, *began) {
            return Some(format!(
                "its daemon (process {pid}) is stopped, and what reads and writes waits; kill -CONT {pid} lets it go on"
            ));
        }
        is_alive(*pid, *began).then(|| format!("its daemon is there (process {pid}): {said}"))
    }

    /// The command that checks the volume, for a shell.
    pub fn check_command(&self) -> String {
        let table =
            self.table.as_deref().map_or(String::new(), |table| format!("--table {} ", quoted(table)));
        format!("chkfs2 -f -p {table}{}", quoted(&self.device))
    }

    /// What makes its volume active where it is not, for a shell: it is mounted, and has to be unmounted first.
    pub fn remedy(&self, status: &Status) -> Option<String> {
        let then = match &status.liveness {
            Liveness::Active => return None,
            // The daemon says in words that it is to be unmounted.
            Liveness::Frozen(_) => self.check_command(),
            Liveness::Inactive(_) => status.remedy.clone()?,
        };
        Some(format!("fs2 umount {} && {then}", quoted(&self.dir)))
    }

    /// Where the supervisor writes why it gave up.
    pub(super) fn failure_file(&self) -> PathBuf {
        self.path.with_extension("failed")
    }

    /// Why no daemon serves the volume any more, where its supervisor gave up.
    pub fn failure(&self) -> Option<String> {
        std::fs::read_to_string(self.failure_file()).ok().filter(|why| !why.is_empty())
    }

    /// Removes what the mount left in the runtime directory. The log goes too: it told of one session.
    pub(super) fn forget(&self) {
        for file in [&self.path, &self.log, &self.failure_file()] {
            let _ = std::fs::remove_file(file);
        }
        if self.frontend == "fuse" {
            let _ = std::fs::remove_dir(&self.carrier);
        }
    }
}

/// The records as they were written. None where another may have written them ([`fs2d::runtime::own_dir`]): files are removed and
/// processes ended by them.
fn written() -> Vec<MountRecord> {
    let Ok(entries) = fs2d::runtime::own_dir().and_then(std::fs::read_dir) else { return Vec::new() };
    entries
        .flatten()
        .filter(|e| e.path().extension().is_some_and(|x| x == "mount"))
        .filter_map(|e| MountRecord::read(&e.path()).ok())
        .collect()
}

/// Every mounted volume of this user, with the directory where it is mounted now, in the order of these. One that this namespace has
/// nowhere is told of with the directory where it was mounted first.
pub fn all_records() -> Vec<MountRecord> {
    let mounts = mounts().unwrap_or_default();
    let mut all: Vec<MountRecord> = written().into_iter().map(|r| located(r, &mounts)).collect();
    all.sort_by(|a, b| a.dir.cmp(&b.dir));
    all
}

/// The volume mounted at `place`, with that directory, or whose image or device that is, or the device that its daemon serves and the kernel
/// has mounted; else the one that was mounted there first, if it is nowhere else in this namespace.
pub fn find_record(place: &Path) -> Option<MountRecord> {
    let path = resolved(place);
    let there = mounted_on(&path, &written(), &mounts().unwrap_or_default());
    // A loop device's number may be another's by now.
    let is_it =
        |r: &MountRecord| r.dir == path || r.device == path || r.block_device == path && is_mounted(r);
    there.or_else(|| all_records().into_iter().find(is_it))
}

/// The volume that was mounted first at `dir`, and is elsewhere now.
pub(super) fn gone_from(dir: &Path) -> Option<MountRecord> {
    let (path, mounts) = (resolved(dir), mounts().unwrap_or_default());
    let first = written().into_iter().find(|r| r.dir == path)?;
    Some(located(first, &mounts)).filter(|now| now.dir != path)
}

/// As the mount table has it. A mount whose server is dead may not let itself be resolved.
fn resolved(place: &Path) -> PathBuf {
    let path = place.canonicalize().or_else(|_| std::path::absolute(place));
    path.unwrap_or_else(|_| place.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record that a former version wrote has no table, and its volume is unmounted by this one.
    #[test]
    fn a_record_without_a_table_is_read_and_the_command_names_what_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.mount");
        let former = r#"{ "dir": "/srv", "device": "/my disk", "control": "/c", "log": "/l", "pid": 1, "frontend": "fuse",
            "block_device": "/dev/loop0", "carrier": "/f", "path": "/p" }"#;
        std::fs::write(&path, former).unwrap();
        let mut record = MountRecord::read(&path).unwrap();
        assert_eq!((record.table.clone(), record.check_command()), (None, "chkfs2 -f -p '/my disk'".into()));
        record.table = Some("/the table".into());
        record.write().unwrap();
        let again = MountRecord::read(&path).unwrap();
        assert_eq!(again.check_command(), "chkfs2 -f -p --table '/the table' '/my disk'");
    }

    /// By its path a device was another volume's where an image had been put in the place of the one that was served, and none's where that was
    /// deleted: nobody gave it up, and an unmount waited for ever.
    #[test]
    fn a_device_is_known_by_what_was_served() {
        let mut record: MountRecord = serde_json::from_str(
            r#"{ "dir": "/srv", "device": "/absent", "control": "/c", "log": "/l", "pid": 1, "frontend": "ublk",
            "block_device": "/dev/ublkb0", "carrier": "/n", "path": "/p" }"#,
        )
        .unwrap();
        assert!(record.ublk_tag().is_err());
        let settings = fs2d::settings::Settings { instead_of: Some("file-1-2-3".into()), ..settings() };
        record.again = settings.to_args().into_iter().map(|arg| arg.into_string().unwrap()).collect();
        assert_eq!(record.ublk_tag().unwrap(), Tag::of("file-1-2-3"));
    }

    fn settings() -> fs2d::settings::Settings {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            settings: fs2d::settings::Settings,
        }
        <Only as clap::Parser>::parse_from(["x"]).settings
    }

    #[test]
    fn a_record_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.mount");
        let text = r#"{ "dir": "/srv", "device": "/disk", "control": "/c", "log": "/l", "pid": 1, "frontend": "fuse",
            "block_device": "/dev/loop0", "carrier": "/f", "path": "/p" }"#;
        let mut record: MountRecord = serde_json::from_str(text).unwrap();
        record.path = path.clone();
        std::fs::create_dir(&path).unwrap();
        record.write().unwrap_err();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// chkfs2, which was all that `fs2 status` printed, refuses what is mounted.
    #[test]
    fn what_makes_a_mounted_volume_active_begins_with_its_unmount() {
        let record: MountRecord = serde_json::from_str(
            r#"{ "dir": "/my srv", "device": "/disk", "control": "/c", "log": "/l", "pid": 1, "frontend": "fuse",
            "block_device": "/dev/loop0", "carrier": "/f", "path": "/p" }"#,
        )
        .unwrap();
        let remedy = |liveness, remedy: Option<&str>| {
            record.remedy(&Status { liveness, remedy: remedy.map(String::from), ..Status::default() })
        };
        let inactive = || Liveness::Inactive("there is no mark".into());
        assert_eq!(remedy(inactive(), Some("mkfs2 /disk")).unwrap(), "fs2 umount '/my srv' && mkfs2 /disk");
        assert_eq!(remedy(inactive(), None), None, "nothing helps");
        let frozen = remedy(Liveness::Frozen("errors".into()), Some("unmount, then chkfs2 -f -p /disk"));
        assert_eq!(frozen.unwrap(), "fs2 umount '/my srv' && chkfs2 -f -p /disk");
        assert_eq!(remedy(Liveness::Active, None), None);
    }

    /// They are removed with it, and what is mounted at one is unmounted.
    #[test]
    fn a_record_names_no_files_but_those_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mine) = (dir.path().join("volume.mount"), dir.path().join("mine"));
        for (frontend, carrier) in [("fuse", "volume.fuse"), ("nbd", "volume.nbd"), ("ublk", "volume.nbd")] {
            let forged = serde_json::json!({
                "dir": "/srv", "device": "/disk", "control": mine, "log": mine, "pid": 1, "frontend": frontend,
                "block_device": "/dev/loop0", "carrier": "/home", "path": mine,
            });
            std::fs::write(&path, forged.to_string()).unwrap();
            std::fs::write(&mine, "").unwrap();
            let record = MountRecord::read(&path).unwrap();
            let beside =
                ["volume.mount", "volume.ctl", "volume.log", carrier].map(|name| dir.path().join(name));
            assert_eq!([&record.path, &record.control, &record.log, &record.carrier], beside.each_ref());
            record.forget();
            assert!(mine.exists() && !path.exists());
        }
    }
}
