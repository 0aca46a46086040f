//! Which daemons there are: those behind what `fs2 mount` mounted, and those that serve a volume by themselves (`fs2d serve`)
//! with their control socket in the runtime directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs2_control::{Client, Command, ControlError, Reply, Status};
use fs2d::runtime::own_dir;

use super::{
    MountRecord, Unmounted, VolumeError, all_records, device_served, end, find_record, served_control,
};

/// How long a daemon may take to answer: it does in microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// A daemon that was found; whether it answers is another question.
#[derive(Clone, Debug)]
pub struct Found {
    /// What `fs2 mount` wrote down of its volume; `None` where it serves without that.
    pub record: Option<MountRecord>,
    /// Its control socket.
    pub control: PathBuf,
}

impl Found {
    /// By its socket.
    pub fn at(control: impl Into<PathBuf>) -> Found {
        Found { record: None, control: control.into() }
    }

    fn mounted(record: MountRecord) -> Found {
        Found { control: record.control.clone(), record: Some(record) }
    }

    /// Where its volume is mounted, else its socket.
    pub fn name(&self) -> String {
        self.dir().unwrap_or(&self.control).display().to_string()
    }

    /// Where its volume is mounted.
    pub fn dir(&self) -> Option<&Path> {
        self.record.as_ref().map(|r| &*r.dir)
    }

    /// How its volume is doing.
    ///
    /// # Errors
    /// Where it does not answer within 2 s, or its supervisor gave up; [`VolumeError::Unmounted`] where its mount has ended meanwhile.
    pub fn status(&self) -> Result<Status, VolumeError> {
        if let Some(why) = self.record.as_ref().and_then(MountRecord::failure) {
            return Err(VolumeError::Other(why));
        }
        let client = Client::connect_within(&self.control, PATIENCE);
        if let (Some(record), Err(ControlError::NoDaemon { .. })) = (&self.record, &client) {
            if end::has_ended(record, PATIENCE) {
                return Err(VolumeError::Unmounted(record.dir.clone()));
            }
            if let Some(why) = end::orphaned(record) {
                return Err(VolumeError::Other(why));
            }
        }
        // Its socket takes connections that it does not see.
        let stopped = |e: ControlError| match (&self.record, &e) {
            (Some(record), ControlError::Timeout { .. }) => {
                record.silence(&e).map_or(e.into(), VolumeError::Other)
            }
            _ => e.into(),
        };
        match client.map_err(stopped)?.ask(&Command::Status).map_err(stopped)? {
            Reply::Status(mut status) => {
                if let Some(record) = &self.record {
                    status.remedy = record.remedy(&status);
                }
                Ok(*status)
            }
            other => Err(VolumeError::Other(format!("the daemon answered {other:?}"))),
        }
    }
}

/// Every daemon of this user: mounted volumes in the order of their directories, then others in that of their sockets.
pub fn daemons() -> Vec<Found> {
    let mut all: Vec<Found> = all_records().into_iter().map(Found::mounted).collect();
    let known: Vec<PathBuf> = all.iter().map(|f| f.control.clone()).collect();
    all.extend(sockets().into_iter().filter(|socket| !known.contains(socket)).map(Found::at));
    all
}

fn sockets() -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(entries) = own_dir().and_then(std::fs::read_dir) else { return Vec::new() };
    let is_socket = |e: &std::fs::DirEntry| {
        e.path().extension().is_some_and(|x| x == "ctl") && e.file_type().is_ok_and(|t| t.is_socket())
    };
    let mut all: Vec<PathBuf> = entries.flatten().filter(is_socket).map(|e| e.path()).collect();
    all.sort();
    all
}

/// The daemon whose volume is mounted at `place`, or whose image or device that is.
pub fn daemon_of(place: &Path) -> Option<Found> {
    if let Some(record) = find_record(place) {
        return Some(Found::mounted(record));
    }
    served_control(place).map(Found::at)
}

/// The directory of the mounted volume that `place` names, where it is mounted, or its image or device; and its daemon. A volume that
/// somebody else mounted from a daemon's block device counts, too.
pub fn mounted_at(place: &Path) -> Option<(PathBuf, Found)> {
    if let Some(record) = find_record(place) {
        return Some((record.dir.clone(), Found::mounted(record)));
    }
    let mount = crate::kernel::mount_at(place).ok()??;
    let is_source = |found: &Found| {
        let device = found.status().ok().and_then(|status| device_served(&status));
        device.is_some_and(|device| device == mount.source)
    };
    daemons().into_iter().find(is_source).map(|found| (mount.target, found))
}

/// Those that [`mount`](super::mount) mounted, in the order of their directories.
pub fn all_mounted() -> Vec<(PathBuf, Found)> {
    all_records().into_iter().map(|record| (record.dir.clone(), Found::mounted(record))).collect()
}

/// Clears away what daemons left that nobody uses: their sockets, and the records of volumes that are not mounted any more. Returns those of
/// volumes that have no mark: they died, which such a volume wants chkfs2 for, or say why there is none.
pub fn clear_dead() -> Vec<Unmounted> {
    let ended: Vec<_> = all_records().iter().filter_map(end::clear_if_dead).collect();
    let gone = ended.into_iter().filter(|ended| !ended.clean).collect();
    for found in daemons().iter().filter(|f| f.record.is_none()) {
        // One that cannot be removed is no worse than before.
        let _ = fs2_control::remove_stale(&found.control);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_called_by_its_mount_point_or_its_socket() {
        let found = Found::at("/run/fs2/dev-7.ctl");
        assert_eq!((found.name().as_str(), found.dir()), ("/run/fs2/dev-7.ctl", None));
        let e = found.status().unwrap_err().to_string();
        assert!(e.contains("/run/fs2/dev-7.ctl"), "{e}");
    }
}
