//! Ends a FUSE connection whose server hangs or was killed, so that no task waits for ever.
//!
//! Whoever waits for an answer of a FUSE server can, once the server has seen the request, not be
//! killed; with a loop device in between nobody can give up at all. Tests that serve FUSE in their
//! own process keep one of these beside the server.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};

use super::told;

const CONTROL: &str = "/sys/fs/fuse/connections";

/// Aborts connection `$1` once process `$2` is gone or a corpse with threads that wait; ends when
/// the connection has.
const MOURNER: &str = r#"
while [ -e "/sys/fs/fuse/connections/$1" ]; do
    case "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$2/status" 2>/dev/null)" in
        ''|Z|X) echo 1 > "/sys/fs/fuse/connections/$1/abort"; exit;;
    esac
    sleep 1
done"#;

/// Mounts the fusectl file system at `/sys/fs/fuse/connections`, where it belongs, if it is not
/// there. It stays: by then others may look there too.
///
/// # Errors
/// `PermissionDenied` for others than root; `NotFound` without FUSE in the kernel.
pub fn mount_fusectl() -> io::Result<()> {
    let dir = Path::new(CONTROL);
    if super::mount_at(dir)?.is_some_and(|m| m.fstype == "fusectl") {
        return Ok(());
    }
    match mount(Some("fusectl"), dir, Some("fusectl"), MsFlags::empty(), None::<&str>) {
        // Someone was faster.
        Ok(()) | Err(nix::Error::EBUSY) => Ok(()),
        Err(e) => Err(told(dir, "cannot mount fusectl", e)),
    }
}

/// Watches one connection until it is dropped.
#[derive(Debug)]
pub struct FuseWatchdog {
    fired: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// A process of its own: nothing in a killed process acts any more.
    mourner: Child,
}

impl FuseWatchdog {
    /// Aborts FUSE connection `connection` when requests wait and `progress` has not changed for
    /// `patience`, or when this process dies. A connection without requests is only idle.
    ///
    /// # Errors
    /// As [`mount_fusectl`]; `NotFound` where there is no such connection, or no `sh`.
    pub fn start(
        connection: u32,
        patience: Duration,
        progress: impl Fn() -> u64 + Send + 'static,
    ) -> io::Result<FuseWatchdog> {
        mount_fusectl()?;
        let dir = Path::new(CONTROL).join(connection.to_string());
        if !dir.exists() {
            return Err(told(&dir, "no such FUSE connection", io::ErrorKind::NotFound));
        }
        let mourner = Command::new("sh")
            .args(["-c", MOURNER, "sh", &connection.to_string(), &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let (stop, stopped) = channel();
        let mut dog = FuseWatchdog { fired: Arc::default(), stop: Some(stop), thread: None, mourner };
        let fired = dog.fired.clone();
        let watch = move || {
            let (mut last, mut since) = (progress(), Instant::now());
            let look = (patience / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
            while stopped.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
                let now = progress();
                if now != last || is_idle(&dir) {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() >= patience {
                    fired.store(true, Ordering::Relaxed);
                    eprintln!("{}: no progress for {patience:?}, aborted", dir.display());
                    // Where it is gone, there is nothing to end.
                    let _ = std::fs::write(dir.join("abort"), "1");
                    return;
                }
            }
        };
        dog.thread = Some(std::thread::Builder::new().name("fuse-watchdog".into()).spawn(watch)?);
        Ok(dog)
    }

    /// Whether it had to abort the connection.
    pub fn fired(&self) -> bool {
        self.fired.load(Ordering::Relaxed)
    }
}

fn is_idle(connection: &Path) -> bool {
    std::fs::read_to_string(connection.join("waiting")).is_ok_and(|n| n.trim() == "0")
}

impl Drop for FuseWatchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = self.mourner.kill();
        let _ = self.mourner.wait();
    }
}
