//! The kernel's own handle on a FUSE connection: how many requests wait, and an end to all of them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::fcntl::{OFlag, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;

/// Where a system that uses fusectl has it.
const USUAL: &str = "/sys/fs/fuse/connections";

/// A FUSE connection, as the fusectl file system shows it. Stays good for this connection alone: once it has
/// ended, nothing waits and an abort does nothing, whoever has its number then.
#[derive(Debug)]
pub struct Control {
    /// The connection's directory; empty once it has ended.
    dir: File,
    abort: File,
}

impl Control {
    /// Connection `number` ([`Server::fuse_connection`](super::Server::fuse_connection)). Where fusectl is
    /// not mounted it is for a moment, in a directory of its own: the open files do not need the mount.
    ///
    /// # Errors
    /// `NotFound` where there is no such connection; `PermissionDenied` for others than root where fusectl
    /// is not mounted.
    pub fn open(number: u32) -> io::Result<Control> {
        match Control::open_in(Path::new(USUAL), number) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Control::open_in(Momentary::mount()?.0.as_path(), number)
            }
            other => other,
        }
    }

    fn open_in(dir: &Path, number: u32) -> io::Result<Control> {
        let dir = dir.join(number.to_string());
        let named = |e: io::Error| io::Error::new(e.kind(), format!("FUSE connection {number}: {e}"));
        let abort = File::options().write(true).open(dir.join("abort")).map_err(named)?;
        let dir = File::open(dir).map_err(named)?;
        Ok(Control { dir, abort })
    }

    /// How many requests wait for an answer; `None` once the connection has ended.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn waiting(&self) -> io::Result<Option<u64>> {
        // It is made when it is opened, and cannot be read again.
        let opened = openat(&self.dir, "waiting", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let mut text = String::new();
        match opened {
            Ok(file) => File::from(file).read_to_string(&mut text)?,
            Err(nix::Error::ENOENT) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        Ok(text.trim().parse().ok())
    }

    /// Ends the connection: whoever waits gets an error.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn abort(&self) -> io::Result<()> {
        (&self.abort).write(b"1").map(drop)
    }

    /// The file that ends the connection when anything is written to it, for a process of its own.
    ///
    /// # Errors
    /// Where there are too many open files.
    pub fn abort_file(&self) -> io::Result<File> {
        self.abort.try_clone()
    }
}

/// fusectl, mounted in a new directory; both go on drop.
struct Momentary(PathBuf);

impl Momentary {
    fn mount() -> io::Result<Momentary> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("fusectl-{}-{n}", std::process::id()));
        std::fs::create_dir(&dir)?;
        let named = |e: nix::Error| {
            let e = io::Error::from(e);
            io::Error::new(e.kind(), format!("{}: cannot mount fusectl: {e}", dir.display()))
        };
        match mount(Some("fusectl"), &dir, Some("fusectl"), MsFlags::empty(), None::<&str>).map_err(named) {
            Ok(()) => Ok(Momentary(dir)),
            Err(e) => {
                let _ = std::fs::remove_dir(&dir);
                Err(e)
            }
        }
    }
}

impl Drop for Momentary {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
        let _ = std::fs::remove_dir(&self.0);
    }
}
