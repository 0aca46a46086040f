//! What a frontend sees of the machine behind it.

use std::sync::{Arc, Condvar, Mutex};

use fs2_block::{ConnectionId, Extent, Flags, Op};
use fs2_store::{AlignedBuf, Stretch};

/// An errno value for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What a client may know of the volume.
#[derive(Clone, Debug)]
pub struct ExportInfo {
    /// Bytes of the volume.
    pub size_bytes: u64,
    /// Bytes of a file-system block (the preferred I/O and discard size), or 4096.
    pub block_bytes: u32,
    /// Whether the device below turns.
    pub rotational: bool,
    /// One line for people, such as "ext2 volume 1f2e… on /dev/sdb1".
    pub description: String,
}

/// A request as a frontend hands it over.
#[derive(Debug)]
pub struct ClientRequest {
    /// From [`Service::connect`].
    pub connection: ConnectionId,
    /// What is to be done.
    pub op: Op,
    /// To which bytes; the service refuses what lies beyond the end with EINVAL.
    pub extent: Extent,
    /// Modifiers.
    pub flags: Flags,
    /// Of the extent's length: payload of a write, room for a read; empty otherwise.
    pub buffer: AlignedBuf,
}

/// How a request ended. The buffer comes back: filled for a read that succeeded.
pub type Completion = Box<dyn FnOnce(AlignedBuf, Result<(), Errno>) + Send>;

/// The machine, as a frontend sees it.
pub trait Service: Send + Sync + 'static {
    /// What a client may know.
    fn info(&self) -> ExportInfo;

    /// A number for a new connection; never given twice.
    fn connect(&self) -> ConnectionId;

    /// The connection is gone; its requests still run to their end.
    fn disconnect(&self, connection: ConnectionId);

    /// Takes a request; `done` is called once, from any thread, perhaps before this returns. Does
    /// not wait for I/O. The frontend bounds how much it has outstanding.
    fn submit(&self, request: ClientRequest, done: Completion);

    /// Stored stretches and holes, from `extent`'s start, at most `limit`.
    ///
    /// # Errors
    /// What the device says.
    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno>;

    /// Runs a request to its end on the calling thread, or waits where another thread has it.
    fn call(&self, request: ClientRequest) -> (AlignedBuf, Result<(), Errno>) {
        type Slot = (Mutex<Option<(AlignedBuf, Result<(), Errno>)>>, Condvar);
        let slot: Arc<Slot> = Arc::default();
        let theirs = slot.clone();
        self.submit(
            request,
            Box::new(move |buffer, result| {
                *theirs.0.lock().expect("no panic under this lock") = Some((buffer, result));
                theirs.1.notify_one();
            }),
        );
        let mut guard = slot.0.lock().expect("no panic under this lock");
        loop {
            match guard.take() {
                Some(done) => return done,
                None => guard = slot.1.wait(guard).expect("no panic under this lock"),
            }
        }
    }
}
