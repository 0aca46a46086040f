//! The volume as one file of a FUSE mount, for a loop device on top of it.
//!
//! [`Server`] mounts, serves with several threads and unmounts. What a request does to the volume
//! is the [`Service`]'s affair; what stands on the file (a loop device, a mounted file system) is
//! its user's.
//!
//! The mount(2) call is made here, not by a helper program, so root (or a user namespace's root)
//! needs nothing installed. Who else than the mounting user comes near is refused by the kernel.
//!
//! Invariants:
//! 1. A mount that was made is unmounted when its `Server` is dropped; where it is still in use,
//!    it is taken out of the tree and served until its last user lets go. I/O is never cut off
//!    except by [`Server::abort`].
//! 2. The mount is one connection of the service from mount to the end of its last thread and the answer to its last
//!    request; until then it has not ended for [`Server::wait`] and [`Server::unmount`].
//! 3. Only our own mount is unmounted, never what stands at its place since.

mod control;
mod device;
mod fuzz;
mod mount;
mod ring;
mod serving;
mod session;
mod volume;
mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::service::Service;
use device::Device;
use serving::Serving;
use volume::VolumeFs;

pub use control::Control;
pub use fuzz::fuzz_requests;
pub use mount::MountIdentity;

/// The name of the one file.
pub const FILE_NAME: &str = "volume";

/// Whether requests come by io_uring (Linux 6.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RingKind {
    /// Where the kernel offers it and this process may, else through /dev/fuse.
    #[default]
    Auto,
    /// Or there is no mount.
    On,
    /// Never.
    Off,
}

/// How long [`Server::unmount`] waits for a user that is just letting go (a loop device is cleared
/// by the kernel a moment after its last close). Guess.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// How long [`Server::unmount`] waits for the end of a mount that is out of the tree. Guess.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A mounted FUSE file system with one file, [`FILE_NAME`], and the threads that serve it.
pub struct Server {
    dir: PathBuf,
    identity: MountIdentity,
    shared: Arc<Shared>,
    runner: Mutex<Option<JoinHandle<()>>>,
    by_ring: bool,
}

/// What the serving threads tell the [`Server`].
#[derive(Default)]
struct Shared {
    end: Mutex<End>,
    ended: Condvar,
    /// Who has the file open, as the kernel tells: a loop device on it is one, until its last user has let go.
    open: AtomicU64,
    /// It was opened at least once.
    opened: AtomicBool,
    /// What is done each time nobody has it open any more.
    unused: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct End {
    /// No thread serves the file system any more, and every request was answered.
    served: bool,
    /// How the session ended, once it has.
    result: Option<Result<(), (io::ErrorKind, String)>>,
}

impl Shared {
    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_opened(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.opened.store(true, Ordering::SeqCst);
    }

    fn file_closed(&self) {
        if self.open.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(tell) = self.unused.get()
        {
            tell();
        }
    }
}

impl Server {
    /// Mounts `service`'s volume at `dir` and serves it with `threads` threads, each of which
    /// takes a request from the kernel and runs it to its end. At most `threads` requests are
    /// outstanding at the service, so this is all that a scheduler for a turning disk gets to
    /// choose from. Where the service answers from memory a thread takes the next request while one
    /// waits for a device: up to 12 more are outstanding then, and two or four threads are enough.
    /// A thread costs little: 128 KiB, and 1 MiB once a request was so large.
    ///
    /// # Errors
    /// `InvalidInput` for no thread or a `dir` that is none; `PermissionDenied` without the right
    /// to mount; what the kernel says otherwise. Nothing is left mounted.
    pub fn mount(dir: &Path, service: Arc<dyn Service>, threads: usize) -> io::Result<Server> {
        Server::mount_with(dir, Path::new(""), service, threads, RingKind::Off)
    }

    /// As [`Server::mount`], with the path of the `volume`, for whoever looks at the mount, and requests by io_uring as `ring` says. Where they come by it, one thread for each processor,
    /// at most four, takes all that are there at once and waits for none of them; `threads` is not used. The requests
    /// outstanding are bounded by the ring's memory: 32 for each processor, 16 where there are many.
    ///
    /// # Errors
    /// As [`Server::mount`]; `Unsupported` for [`RingKind::On`] where the kernel does not offer it, and then what is to be
    /// done about it.
    pub fn mount_with(
        dir: &Path,
        volume: &Path,
        service: Arc<dyn Service>,
        threads: usize,
        ring: RingKind,
    ) -> io::Result<Server> {
        if threads == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a FUSE mount needs a thread"));
        }
        let dir = dir.canonicalize().map_err(|e| named(e, dir, "no such directory to mount on"))?;
        if !dir.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is not a directory", dir.display()),
            ));
        }
        let device = Device::open().map_err(|e| {
            io::Error::new(e.kind(), format!("/dev/fuse (kernel without FUSE, or no access): {e}"))
        })?;
        let undo = mount::Mounted::new(&dir, device.file(), volume)?;

        let shared = Arc::<Shared>::default();
        let volume = VolumeFs::new(Serving::new(service, shared.clone()), shared.clone());
        // The kernel itself admits only the mounting user to the mount's paths. Requests that come
        // in without a path (the loop driver's, under the kernel's own user) pass.
        let mut ready = None;
        session::handshake(&device, |offered| {
            ready = ring_for(ring, offered)?;
            Ok(ready.as_ref().map(ring::Ready::payload_bytes))
        })?;
        let volume = Arc::new(volume);
        let ring_threads = match ready.map(|ready| ready.serve(&device, &volume, undo.connection())) {
            None => None,
            Some((threads, Ok(()))) => Some(threads),
            Some((_, Err(e))) if ring == RingKind::On => {
                return Err(io::Error::new(
                    e.kind(),
                    format!("the kernel refuses requests by io_uring: {e}"),
                ));
            }
            // It sends them through /dev/fuse then; these threads end with the connection.
            Some((_, Err(e))) => {
                tracing::warn!("requests come through /dev/fuse, not by io_uring: {e}");
                None
            }
        };
        let by_ring = ring_threads.is_some();
        // What has no answer comes through /dev/fuse in any case.
        let threads = if by_ring { 1 } else { threads };
        let theirs = shared.clone();
        let runner = std::thread::Builder::new().name("fuse".into()).spawn(move || {
            let result = session::serve(device, volume, threads);
            let result = ring_threads.map_or(Ok(()), ring::Threads::join).and(result);
            if let Err(e) = &result {
                tracing::error!("FUSE session ended: {e}");
            }
            theirs.end().result = Some(result.map_err(|e| (e.kind(), e.to_string())));
            theirs.ended.notify_all();
        })?;
        // `server` undoes the mount from here on.
        let identity = undo.keep();
        let server = Server { dir, identity, shared, runner: Mutex::new(Some(runner)), by_ring };
        // One round trip shows that the threads came up.
        std::fs::metadata(server.file()).map_err(|e| named(e, &server.dir, "the mount does not answer"))?;
        Ok(server)
    }

    /// Whether requests come by io_uring.
    pub fn is_by_ring(&self) -> bool {
        self.by_ring
    }

    /// The file that holds the volume.
    pub fn file(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    /// The kernel's number of this connection, by which [`Control::open`] finds it. `None` once the mount
    /// has ended, when the number may be another's.
    pub fn fuse_connection(&self) -> Option<u32> {
        self.is_alive().then_some(self.identity.connection())
    }

    /// Whether a thread still serves: false after [`Server::unmount`], and after someone else
    /// unmounted or aborted it.
    pub fn is_alive(&self) -> bool {
        let end = self.shared.end();
        !(end.served && end.result.is_some())
    }

    /// Whether the file was open, by a loop device or anybody else, and no longer is. It is the kernel that counts, so
    /// this holds across mount namespaces; the last close comes after the last write.
    pub fn is_unused(&self) -> bool {
        self.shared.opened.load(Ordering::SeqCst) && !self.is_open()
    }

    /// Whether anybody has the file open.
    pub fn is_open(&self) -> bool {
        self.shared.open.load(Ordering::SeqCst) > 0
    }

    /// Has `tell` called each time [`Server::is_unused`] becomes true, by a serving thread, which it must not keep. Only
    /// the first call counts.
    pub fn when_unused(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.unused.set(Box::new(tell));
    }

    /// Waits until the mount has ended, by whomever.
    ///
    /// # Errors
    /// What ended the session, where that was not an unmount.
    pub fn wait(&self) -> io::Result<()> {
        self.wait_until(None).unwrap_or(Ok(()))
    }

    /// Unmounts and waits until every request is answered and every thread has ended. A user that
    /// holds on is waited for a moment; then the mount is taken out of the tree, which needs no
    /// one's consent, and its end is waited for.
    ///
    /// # Errors
    /// `ResourceBusy` where the mount is out of the tree but someone still uses the file: it is
    /// served until they let go ([`Server::wait`]). Otherwise what the kernel says.
    pub fn unmount(&self) -> io::Result<()> {
        let busy_until = Instant::now() + BUSY_PATIENCE;
        while let Err(e) = mount::unmount(&self.dir, self.identity, false) {
            if e.kind() != io::ErrorKind::ResourceBusy {
                return Err(named(e, &self.dir, "cannot unmount"));
            }
            if Instant::now() >= busy_until {
                mount::unmount(&self.dir, self.identity, true)
                    .map_err(|e| named(e, &self.dir, "cannot unmount"))?;
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.wait_until(Some(Instant::now() + END_PATIENCE)).unwrap_or_else(|| {
            Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!(
                    "{} is unmounted but its file still in use; served until that ends",
                    self.dir.display()
                ),
            ))
        })
    }

    /// Ends the connection at once: whoever waits for an answer gets an error. For a server that
    /// hangs; what was written and not flushed may be lost. The mount itself stays until
    /// [`Server::unmount`].
    ///
    /// # Errors
    /// As [`Control::open`].
    pub fn abort(&self) -> io::Result<()> {
        match self.fuse_connection() {
            Some(n) => Control::open(n)?.abort(),
            None => Ok(()),
        }
    }

    /// `None` where the time came first.
    fn wait_until(&self, deadline: Option<Instant>) -> Option<io::Result<()>> {
        let mut end = self.shared.end();
        let result = loop {
            if let (true, Some(result)) = (end.served, &end.result) {
                break result.clone().map_err(|(kind, text)| io::Error::new(kind, text));
            }
            let patience = match deadline {
                None => Duration::from_secs(3600),
                Some(d) => d.checked_duration_since(Instant::now())?,
            };
            end = self.shared.ended.wait_timeout(end, patience).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(end);
        let runner = self.runner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runner) = runner {
            // It has said its last word; a panic in it is in `result` or was printed.
            let _ = runner.join();
        }
        Some(result)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Keeps invariant 1.
        let undone = mount::unmount(&self.dir, self.identity, false)
            .or_else(|_| mount::unmount(&self.dir, self.identity, true));
        if let Err(e) = undone {
            tracing::warn!("cannot unmount {}: {e}", self.dir.display());
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("dir", &self.dir)
            .field("connection", &self.identity.connection())
            .finish()
    }
}

/// What takes requests by io_uring, where that is wanted and can be.
fn ring_for(kind: RingKind, offered: bool) -> io::Result<Option<ring::Ready>> {
    match (kind, offered) {
        (RingKind::Off, _) | (RingKind::Auto, false) => Ok(None),
        (RingKind::On, false) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel offers no requests by io_uring: Linux 6.14 does, after \
             `echo Y > /sys/module/fuse/parameters/enable_uring`",
        )),
        (RingKind::On, true) => ring::Ready::new().map(Some),
        (RingKind::Auto, true) => Ok(ring::Ready::new()
            .inspect_err(|e| tracing::warn!("requests come through /dev/fuse, not by io_uring: {e}"))
            .ok()),
    }
}

fn named(e: io::Error, dir: &Path, what: &str) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {what}: {e}", dir.display()))
}
