//! What a frontend sees of the machine behind it.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex};

use fs2_block::{ConnectionId, Extent, Flags, Op};
use fs2_store::{AlignedBuf, Pipe, Stretch};

use crate::wakeups::Wakeups;

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

/// What a frontend knows a request by when its answer comes: three words of its own choice.
pub type Tag = [u64; 3];

/// An answer to a request that was brought by a [`Lane`].
#[derive(Debug)]
pub struct Answer {
    /// As the request was tagged.
    pub tag: Tag,
    /// The request's buffer: filled for a read that succeeded.
    pub buffer: AlignedBuf,
    /// How it ended.
    pub result: Result<(), Errno>,
    /// Of a read that succeeded: its bytes, where they are not in the buffer, behind what [`Sink::pipe`] put there.
    pub lent: Option<Pipe>,
}

/// Where answers go.
pub trait Sink: Send + Sync {
    /// Takes the answers and leaves the vector empty. Called from any thread, on a lane's own thread
    /// also by [`Lane::run`] and [`Lane::wait`]; must not wait for the client.
    fn answers(&self, answers: &mut Vec<Answer>);

    /// A pipe for the `len` bytes of a read, so that nobody copies them; whatever is to go before them is in it. `None`:
    /// into the buffer with them. Called by a lane's own thread.
    fn pipe(&self, tag: Tag, len: usize) -> Option<Pipe> {
        let _ = (tag, len);
        None
    }

    /// Takes back a pipe that was not used.
    fn unused(&self, pipe: Pipe) {
        drop(pipe);
    }
}

/// Brings one thread's requests to the machine, many at a time, and lets that thread run it: no other
/// thread is woken for a request that can be served at once.
///
/// A thread with I/O pending on its lane waits nowhere but in [`Lane::wait`]: other clients' requests
/// may wait for that I/O.
pub trait Lane {
    /// Takes a request to be begun by the next [`Lane::run`].
    fn push(&mut self, request: ClientRequest, tag: Tag);

    /// Begins what was pushed and runs the machine as far as it goes without waiting for a device.
    /// Each request is answered exactly once, now or later, by this thread or another.
    fn run(&mut self);

    /// Whether I/O is under way that only this thread can end.
    fn is_pending(&self) -> bool;

    /// With I/O pending, sees to it that the device knows of it, and takes what has ended (and runs the machine on),
    /// without waiting: for a thread that always has something else to do.
    fn look(&mut self) {}

    /// With I/O pending, waits until some of it has ended (and runs the machine on) or `input` can be
    /// read; true where `input` can. Without, returns at once.
    fn wait(&mut self, input: Option<BorrowedFd<'_>>) -> bool;
}

/// The machine, as a frontend sees it.
pub trait Service: Send + Sync + 'static {
    /// What a client may know.
    fn info(&self) -> ExportInfo;

    /// A number for a new connection; never given twice.
    fn connect(&self) -> ConnectionId;

    /// The connection is gone; its requests still run to their end.
    fn disconnect(&self, connection: ConnectionId);

    /// A client was sent away because it held memory and did nothing. For the statistics.
    fn client_cut(&self) {}

    /// Takes a request; `done` is called once, from any thread, perhaps before this returns. Does
    /// not wait for I/O. The frontend bounds how much it has outstanding.
    fn submit(&self, request: ClientRequest, done: Completion);

    /// Whether most requests are answered from memory: then a few threads that [`Service::begin`] do more than
    /// many that [`Service::call`].
    fn answers_from_memory(&self) -> bool {
        false
    }

    /// Whom a thread tells that it waited for its client, so that short turns become shorter.
    fn wakeups(&self) -> Wakeups {
        Wakeups::default()
    }

    /// As [`Service::submit`], for a thread that goes back to its input: what memory answers it does itself, mostly
    /// before this returns, and what waits for a device it leaves to others. A `done` that is dropped tells the
    /// frontend that there will be no answer.
    fn begin(&self, request: ClientRequest, done: Completion) {
        self.submit(request, done);
    }

    /// Stored stretches and holes, from `extent`'s start, at most `limit`.
    ///
    /// # Errors
    /// What the device says.
    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno>;

    /// A way in for one thread that brings many requests, where the machine has one of its own;
    /// [`lane_of`] gives a plain one otherwise.
    fn lane(self: Arc<Self>, sink: Arc<dyn Sink>) -> Option<Box<dyn Lane>> {
        let _ = sink;
        None
    }

    /// Runs a request to its end on the calling thread, or waits where another thread has it.
    fn call(&self, request: ClientRequest) -> (AlignedBuf, Result<(), Errno>) {
        let slot: Arc<Slot> = Arc::default();
        let owed = OwedTo(slot.clone());
        self.submit(request, Box::new(move |buffer, result| owed.pay(buffer, result)));
        let mut guard = slot.0.lock().expect("no panic under this lock");
        loop {
            match guard.take() {
                Some(done) => return done,
                None => guard = slot.1.wait(guard).expect("no panic under this lock"),
            }
        }
    }
}

type Slot = (Mutex<Option<(AlignedBuf, Result<(), Errno>)>>, Condvar);

/// An answer that a thread in [`Service::call`] waits for; EIO where the service drops the completion.
struct OwedTo(Arc<Slot>);

impl OwedTo {
    fn pay(self, buffer: AlignedBuf, result: Result<(), Errno>) {
        *self.0.0.lock().expect("no panic under this lock") = Some((buffer, result));
    }
}

impl Drop for OwedTo {
    fn drop(&mut self) {
        let (answer, told) = &*self.0;
        let mut answer = answer.lock().expect("no panic under this lock");
        answer.get_or_insert_with(|| (AlignedBuf::zeroed(0), Err(Errno(libc::EIO))));
        told.notify_one();
    }
}

/// The calling thread's way into `service`; answers go to `sink`.
pub fn lane_of(service: &Arc<dyn Service>, sink: Arc<dyn Sink>) -> Box<dyn Lane> {
    let own = service.clone().lane(sink.clone());
    own.unwrap_or_else(|| Box::new(PlainLane { service: service.clone(), sink, pushed: Vec::new() }))
}

/// A lane of a service that has none: requests are submitted one by one.
struct PlainLane {
    service: Arc<dyn Service>,
    sink: Arc<dyn Sink>,
    pushed: Vec<(ClientRequest, Tag)>,
}

impl Lane for PlainLane {
    fn push(&mut self, request: ClientRequest, tag: Tag) {
        self.pushed.push((request, tag));
    }

    fn run(&mut self) {
        for (request, tag) in self.pushed.drain(..) {
            let owed = Owed(Some((self.sink.clone(), tag)));
            self.service.submit(request, Box::new(move |buffer, result| owed.pay(buffer, result)));
        }
    }

    fn is_pending(&self) -> bool {
        false
    }

    fn wait(&mut self, _: Option<BorrowedFd<'_>>) -> bool {
        false
    }
}

/// An answer that is owed: where the service drops the completion, the client is told so.
struct Owed(Option<(Arc<dyn Sink>, Tag)>);

impl Owed {
    fn pay(mut self, buffer: AlignedBuf, result: Result<(), Errno>) {
        if let Some((sink, tag)) = self.0.take() {
            sink.answers(&mut vec![Answer { tag, buffer, result, lent: None }]);
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some((sink, tag)) = self.0.take() {
            sink.answers(&mut vec![Answer {
                tag,
                buffer: AlignedBuf::zeroed(0),
                result: Err(Errno(libc::EIO)),
                lent: None,
            }]);
        }
    }
}
