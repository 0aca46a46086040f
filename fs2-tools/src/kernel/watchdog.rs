//! Ends a FUSE connection whose server hangs or was killed, so that no task waits for ever.
//!
//! Whoever waits for an answer of a FUSE server can, once the server has seen the request, not be
//! killed; with a loop device in between nobody can give up at all. Tests that serve FUSE in their
//! own process keep one of these beside the server.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs2d::frontend::fuse::Control;

/// Writes to standard output, a connection's end, once process `$1` is gone or a corpse with threads
/// that wait.
const MOURNER: &str = r#"
while :; do
    case "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)" in
        ''|Z|X) echo 1; exit;;
    esac
    sleep 1
done"#;

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
    /// As [`Control::open`]; `NotFound` where there is no `sh`.
    pub fn start(
        connection: u32,
        patience: Duration,
        progress: impl Fn() -> u64 + Send + 'static,
    ) -> io::Result<FuseWatchdog> {
        let control = Control::open(connection)?;
        let mourner = Command::new("sh")
            .args(["-c", MOURNER, "sh", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(control.abort_file()?)
            .spawn()?;
        let (stop, stopped) = channel();
        let mut dog = FuseWatchdog { fired: Arc::default(), stop: Some(stop), thread: None, mourner };
        let fired = dog.fired.clone();
        let watch = move || {
            let (mut last, mut since) = (progress(), Instant::now());
            let look = (patience / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
            while stopped.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
                let now = progress();
                if now != last || is_idle(&control) {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() >= patience {
                    fired.store(true, Ordering::Relaxed);
                    eprintln!("FUSE connection {connection}: no progress for {patience:?}, aborted");
                    // Where it is gone, there is nothing to end.
                    let _ = control.abort();
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

/// One that has ended is idle too.
fn is_idle(control: &Control) -> bool {
    control.waiting().is_ok_and(|n| n.unwrap_or(0) == 0)
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
