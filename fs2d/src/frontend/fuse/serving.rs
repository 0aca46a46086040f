//! Requests of one mount on their way through the service, their memory, and the mount's end.
//!
//! Invariants:
//! 1. An error handed to the kernel lies in 1..512, and is not ENOSYS, nor EOPNOTSUPP but for a punch: it refuses an answer with
//!    any other, and whoever waits for that answer would wait for ever.
//! 2. Every request is answered; one whose completion the service drops, by the reply that is dropped with it (EIO).
//! 3. The connection outlives each of its requests: who has begun one holds the [`Serving`].
//! 4. At most [`BEGUN_MAX`] requests and one for each thread are outstanding.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fs2_block::{ConnectionId, Extent, Flags, Op};
use fs2_store::AlignedBuf;

use super::Shared;
use super::device::Reply;
use super::wire::WriteOut;
use crate::service::{self, ClientRequest, Service};

/// Requests that no thread stays with. With the daemon's four threads as many are outstanding as with sixteen that stay.
const BEGUN_MAX: usize = 12;

/// Bytes of the smallest buffer.
const ROOM_MIN: usize = 128 << 10;

thread_local! {
    /// The buffer of the thread's last request: fresh memory costs a page fault for each 4 KiB.
    static SPARE: Cell<Option<AlignedBuf>> = const { Cell::new(None) };
    /// Whether the thread takes requests. The service's own threads, which answer some, keep nothing.
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// What the service is to do for a request, and what whoever waits for it is told then.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) op: Op,
    pub(super) extent: Extent,
    pub(super) flags: Flags,
    pub(super) buffer: AlignedBuf,
    pub(super) tell: Tell,
    pub(super) reply: Reply,
}

/// What an answer holds where all went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    /// Nothing.
    End,
    /// Nothing; and where the service takes none, that there are none ([`Tell::errno`]).
    Punched,
    /// The buffer's bytes.
    Bytes,
    /// That so many bytes were written.
    Written(u32),
}

impl Tell {
    fn answer(self, reply: Reply, done: Result<&[u8], service::Errno>) {
        match (done, self) {
            (Ok(_), Tell::End | Tell::Punched) => reply.ok(),
            (Ok(bytes), Tell::Bytes) => reply.bytes(bytes),
            (Ok(_), Tell::Written(size)) => reply.value(&WriteOut { size, padding: 0 }),
            (Err(e), _) => reply.error(self.errno(e)),
        }
    }

    /// Keeps invariant 1. The service refuses punches for the rest of its session, and the loop device on top is not to ask again: its
    /// file systems take EIO for a discard that failed and record an error, and have zeroes written where there is no punch.
    pub(super) fn errno(self, e: service::Errno) -> i32 {
        match e.0 {
            libc::EOPNOTSUPP if self == Tell::Punched => libc::EOPNOTSUPP,
            _ => errno(e),
        }
    }
}

/// The service, as a mount uses it. Dropped by whoever is last, a thread that ends or an answer: then the mount has
/// ended.
pub(super) struct Serving {
    service: Arc<dyn Service>,
    connection: ConnectionId,
    shared: Arc<Shared>,
    /// Whether requests are begun, not called.
    begins: bool,
    begun: AtomicUsize,
    /// Buffers of requests that other threads answered, at most [`BEGUN_MAX`].
    returned: Mutex<Vec<AlignedBuf>>,
}

impl Serving {
    pub(super) fn new(service: Arc<dyn Service>, shared: Arc<Shared>) -> Arc<Serving> {
        Arc::new(Serving {
            connection: service.connect(),
            begins: service.answers_from_memory(),
            service,
            shared,
            begun: AtomicUsize::new(0),
            returned: Mutex::default(),
        })
    }

    pub(super) fn service(&self) -> &Arc<dyn Service> {
        &self.service
    }

    pub(super) fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// A buffer of `len` bytes, zeros or what an earlier request left in it.
    pub(super) fn room(&self, len: usize) -> AlignedBuf {
        SERVES.set(true);
        let spare = SPARE.take().or_else(|| self.returned().pop()).filter(|b| b.capacity() >= len);
        let mut buffer = spare.unwrap_or_else(|| AlignedBuf::zeroed(len.max(ROOM_MIN)));
        buffer.set_len(len);
        buffer
    }

    fn keep(&self, buffer: AlignedBuf) {
        if buffer.capacity() < ROOM_MIN {
            return;
        }
        if SERVES.get() {
            return SPARE.set(Some(buffer));
        }
        let mut returned = self.returned();
        if returned.len() < BEGUN_MAX {
            returned.push(buffer);
        }
    }

    fn returned(&self) -> MutexGuard<'_, Vec<AlignedBuf>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the service do it. The answer is given once, by any thread, perhaps after this returned.
    pub(super) fn run(self: &Arc<Serving>, work: Work) {
        let Work { op, extent, flags, buffer, tell, reply } = work;
        let answer = move |done: Result<&[u8], service::Errno>| tell.answer(reply, done);
        let request = ClientRequest { connection: self.connection, op, extent, flags, buffer };
        if let Some(begun) = Begun::new(self) {
            let owed = Owed { answer, begun };
            self.service.begin(request, Box::new(move |buffer, result| owed.pay(buffer, result)));
        } else {
            let (buffer, result) = self.service.call(request);
            self.pay(answer, buffer, result);
        }
    }

    fn pay(
        &self,
        answer: impl FnOnce(Result<&[u8], service::Errno>),
        buffer: AlignedBuf,
        result: Result<(), service::Errno>,
    ) {
        answer(result.map(|()| &buffer[..]));
        self.keep(buffer);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The last thread is gone, and the last request answered.
        self.service.disconnect(self.connection);
        self.shared.end().served = true;
        self.shared.ended.notify_all();
    }
}

/// One of the requests that no thread stays with.
struct Begun(Arc<Serving>);

impl Begun {
    /// `None` where requests are called, or too many were begun: the thread then stays with its request, and so takes
    /// no more.
    fn new(serving: &Arc<Serving>) -> Option<Begun> {
        if !serving.begins {
            return None;
        }
        let begun = Begun(serving.clone());
        // Keeps invariant 4; above it, dropping gives the place back.
        (serving.begun.fetch_add(1, Ordering::Relaxed) < BEGUN_MAX).then_some(begun)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.begun.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that is owed. Dropped unpaid, the reply in `answer` goes first (invariants 2 and 3).
struct Owed<A> {
    answer: A,
    begun: Begun,
}

impl<A: FnOnce(Result<&[u8], service::Errno>)> Owed<A> {
    fn pay(self, buffer: AlignedBuf, result: Result<(), service::Errno>) {
        let Owed { answer, begun } = self;
        begun.0.pay(answer, buffer, result);
    }
}

/// Keeps invariant 1.
pub(super) fn errno(e: service::Errno) -> i32 {
    match e.0 {
        libc::ENOSYS | libc::EOPNOTSUPP => libc::EIO,
        n @ 1..512 => n,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_the_kernel_would_choke_on_become_io_errors() {
        for n in [0, -5, 512, 524, i32::MIN, i32::MAX, libc::ENOSYS, libc::EOPNOTSUPP] {
            assert_eq!(errno(service::Errno(n)), libc::EIO, "{n}");
            let refused = n == libc::EOPNOTSUPP;
            assert_eq!(Tell::Punched.errno(service::Errno(n)), if refused { n } else { libc::EIO }, "{n}");
            assert_eq!(Tell::End.errno(service::Errno(n)), libc::EIO, "{n}");
        }
        for n in [libc::ENOSPC, libc::EINVAL, libc::EROFS, 511] {
            assert_eq!(errno(service::Errno(n)), n);
        }
    }
}
