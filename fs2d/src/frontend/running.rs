//! The frontend in use, whichever it is: whether it lives and is used, and its end.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{fuse, nbd, ublk};

/// The frontend in use.
pub(crate) enum Frontend {
    Nbd(nbd::Server),
    /// With the directory that it is mounted on.
    Fuse(fuse::Server, MountPoint),
    Ublk(Box<ublk::Server>),
}

/// How often the daemon looks around while it serves.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How often it looks whether what it waits for has come.
const NAP: Duration = Duration::from_millis(100);

impl Frontend {
    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Frontend::Nbd(_) => true,
            Frontend::Fuse(f, _) => f.is_alive(),
            Frontend::Ublk(u) => u.is_alive(),
        }
    }

    /// Whether it was used and no longer is, as far as the frontend can tell.
    pub(crate) fn is_unused(&self) -> bool {
        matches!(self, Frontend::Fuse(f, _) if f.is_unused())
    }

    /// Whether anybody uses it now. A ublk device it claims for a moment.
    pub(crate) fn is_in_use(&self) -> bool {
        match self {
            Frontend::Nbd(n) => n.connections() > 0,
            Frontend::Fuse(f, _) => f.is_open(),
            Frontend::Ublk(u) => u.is_in_use(),
        }
    }

    /// Whether another daemon can go on with the same device.
    pub(crate) fn outlives_its_daemon(&self) -> bool {
        matches!(self, Frontend::Ublk(device) if device.outlives_its_daemon())
    }

    /// `look` is called as while it serves, for as long as that takes. What is left to do when the session has ended.
    pub(crate) fn stop(self, look: impl FnMut()) -> Rest {
        let nothing = |unused| Rest { unused, device: None };
        match self {
            Frontend::Nbd(n) => {
                let cut = n.shutdown(Duration::from_secs(4));
                if cut > 0 {
                    tracing::warn!("{cut} connections were cut");
                }
                nothing(false)
            }
            Frontend::Fuse(f, point) => {
                if let Err(e) = f.unmount() {
                    tracing::error!("the FUSE mount cannot be ended: {e}");
                }
                drop(point);
                nothing(f.is_unused())
            }
            Frontend::Ublk(u) => {
                let path = u.path();
                if u.is_in_use() {
                    // What its file system has not written yet would be lost.
                    tracing::warn!("{} is mounted: it is served until it is not", path.display());
                    serve_on(|| u.is_alive() && u.is_in_use(), look);
                }
                let stopped = u.stop().inspect_err(|e| {
                    tracing::error!("{} cannot be stopped: {e}", path.display());
                });
                Rest { unused: false, device: stopped.ok() }
            }
        }
    }
}

/// A directory to be mounted on. What of its path had to be made goes on drop, as far as nothing is in it.
pub(crate) struct MountPoint {
    /// The outermost first.
    made: Vec<PathBuf>,
}

impl MountPoint {
    /// # Errors
    /// Where something is missing that cannot be made.
    pub(crate) fn new(dir: &Path) -> io::Result<MountPoint> {
        let dir = std::path::absolute(dir)?;
        let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
        let mut point = MountPoint { made: Vec::new() };
        for dir in missing.into_iter().rev() {
            match std::fs::create_dir(dir) {
                Ok(()) => point.made.push(dir.into()),
                // Somebody else's by now.
                Err(_) if dir.is_dir() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(point)
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        for dir in self.made.iter().rev() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// What a frontend that was stopped leaves.
pub(crate) struct Rest {
    /// It was used, and its last user let go: who is cut off uses it still.
    pub(crate) unused: bool,
    device: Option<ublk::Stopped>,
}

impl Rest {
    /// Removes the device, if there is one. It takes as long as somebody has it open: the session must have ended before.
    pub(crate) fn remove(self) {
        if let Some(Err(e)) = self.device.map(ublk::Stopped::remove) {
            tracing::error!("the ublk device cannot be removed: {e}");
        }
    }
}

/// Waits while something is so, as that a device that is to go is in use. Copies are made until then, so that the daemon looks around as before.
pub(crate) fn serve_on(mut is_so: impl FnMut() -> bool, mut look: impl FnMut()) {
    let mut next = Instant::now();
    while is_so() {
        if Instant::now() >= next {
            look();
            next = Instant::now() + LOOK_EVERY;
        }
        std::thread::sleep(NAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_to_be_mounted_on_goes_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        drop(MountPoint::new(&at("a/b/c")).unwrap());
        assert!(!at("a").exists());
        std::fs::create_dir(at("a")).unwrap();
        let point = MountPoint::new(&at("a/b/../b/c")).unwrap();
        assert!(at("a/b/c").is_dir());
        std::fs::write(at("a/b/somebody's"), "").unwrap();
        drop(point);
        assert!(at("a/b/somebody's").exists() && !at("a/b/c").exists());
        drop(MountPoint::new(&at("a")).unwrap());
        assert!(at("a").exists(), "it was there");
        let (file, below) = (at("a/b/somebody's"), at("a/b/somebody's/d"));
        assert!(MountPoint::new(&file).is_ok(), "who mounts says what it is");
        assert!(MountPoint::new(&below).is_err());
    }

    /// From SIGTERM on nobody looked, while the device served and copied for as long as it stayed mounted.
    #[test]
    fn who_is_to_end_looks_around_while_its_device_is_mounted() {
        let (mut looked, mut mounted) = (0, 3);
        let in_use = || {
            mounted -= 1;
            mounted > 0
        };
        serve_on(in_use, || looked += 1);
        assert!(looked > 0);
        serve_on(|| false, || panic!("nobody uses it"));
    }
}
