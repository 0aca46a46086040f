//! A mount over NBD or ublk whose daemon is gone, and the supervisor that would start another with it, as after `killall -9 fs2`. Programs wait, and
//! so would an unmount, which writes: it cannot be killed, and holds the right to end the mount. So whoever is to unmount it starts both again first.

use std::time::{Duration, Instant};

use super::daemon::is_alive;
use super::end::is_silent;
use super::{MountRecord, VolumeError, supervisor, uninterrupted};

/// How long the next daemon may take until it serves; the kernel notices a ublk daemon's death after 3 s. Guess.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a supervisor may take until it has its lock: longer takes one that ended. Guess.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);

/// How long a daemon that answers may take until its supervisor has written down that it serves, which on a full file system it cannot. Guess.
const RECORD_PATIENCE: Duration = Duration::from_secs(2);

const NAP: Duration = Duration::from_millis(20);

/// Whether nobody serves the mount's device, which outlives its daemon, and nobody starts another daemon.
pub(super) fn nobody_serves(record: &MountRecord) -> bool {
    record.frontend != "fuse"
        // One that was given up fails.
        && record.failure().is_none()
        // Of a former version's, nobody knows how it is started.
        && !record.again.is_empty()
        && !is_alive(record.pid, record.began)
        && !supervisor::is_there(record)
        && is_silent(&record.control)
}

/// Starts the supervisor again, and with it a daemon; the mount as it is served then, or given up: nobody waits for its device any more. The
/// caller has the right to end the mount, so that one starts them.
///
/// # Errors
/// Where none serves in time.
pub(super) fn revive(record: &MountRecord) -> Result<MountRecord, VolumeError> {
    let begun = Instant::now();
    let mut answers_since = None;
    supervisor::start(record)?;
    loop {
        // Where it is mounted now is not written down.
        let now = MountRecord::read(&record.path).map(|now| MountRecord { dir: record.dir.clone(), ..now });
        let now = now.unwrap_or_else(|_| record.clone());
        if now.failure().is_some() || is_alive(now.pid, now.began) {
            return Ok(now);
        }
        if !is_silent(&now.control)
            && answers_since.get_or_insert_with(Instant::now).elapsed() > RECORD_PATIENCE
        {
            return Ok(now);
        }
        let ended = begun.elapsed() > BEGIN_PATIENCE && !supervisor::is_there(record);
        if ended || begun.elapsed() > PATIENCE {
            let still = if ended { "" } else { " yet; it is still being tried" };
            return Err(VolumeError::Other(format!(
                "{}: its daemon is gone (process {}), and none could be started in its place{still}: see {}; an unmount would wait for one",
                record.dir.display(),
                record.pid,
                record.log.display()
            )));
        }
        uninterrupted()?;
        std::thread::sleep(NAP);
    }
}

#[cfg(test)]
mod tests {
    use super::super::end::orphaned;
    use super::*;

    /// What was to be done was told in a circle, to `fs2 mount` and from there to `fs2 umount`, which waited for ever.
    #[test]
    fn a_mount_that_nobody_serves_is_told_from_one_whose_next_daemon_comes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut killed = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut record = MountRecord {
            dir: at("m"),
            device: at("image"),
            table: None,
            control: at("ctl"),
            log: at("log"),
            pid: 0,
            began: None,
            frontend: "ublk".into(),
            block_device: at("ublkb0"),
            carrier: at("nbd"),
            connections: 0,
            again: vec!["image".into()],
            active: true,
            path: at("mount"),
        };
        record.is_served_by(killed.id());
        assert!(!nobody_serves(&record) && orphaned(&record).is_none(), "it lives");
        killed.kill().unwrap();
        killed.wait().unwrap();
        let said = orphaned(&record).unwrap();
        let start = format!("its daemon is gone (process {}), and nobody starts another, ", record.pid);
        assert!(
            said.starts_with(&start) && said.contains(&format!("fs2 umount {} does", at("m").display())),
            "{said}"
        );
        let supervisor = std::fs::File::create(at("mount.supervised")).unwrap();
        let lock = nix::fcntl::Flock::lock(supervisor, nix::fcntl::FlockArg::LockExclusiveNonblock).unwrap();
        assert!(!nobody_serves(&record) && orphaned(&record).is_none(), "its supervisor lives");
        drop(lock);
        assert!(nobody_serves(&record));
        let nobody_knows_how = MountRecord { again: Vec::new(), ..record.clone() };
        assert!(!nobody_serves(&nobody_knows_how));
        assert!(!nobody_serves(&MountRecord { frontend: "fuse".into(), ..record.clone() }));
        std::fs::write(record.failure_file(), "the daemon ended 5 times in a row").unwrap();
        assert!(!nobody_serves(&record), "it fails what it is asked");
    }
}
