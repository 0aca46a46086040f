//! Requests on their way in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fs2_block::{ConnectionId, Extent, Nanos, Op, Request};
use fs2_store::{AlignedBuf, Stretch};

use super::lane::MachineLane;
use super::waiter::CALL;
use super::{Client, Core, Server, Waiter};
use crate::service::{ClientRequest, Completion, Errno, ExportInfo, Lane, Service, Sink};
use crate::wakeups::Wakeups;

impl Server {
    /// A request enters the machine; gives back one that is refused at the door.
    #[expect(clippy::result_large_err, reason = "what came in goes back by the same way")]
    pub(super) fn take(
        &self,
        core: &mut Core,
        now: Nanos,
        request: ClientRequest,
        waiter: Waiter,
    ) -> Result<(), (Waiter, AlignedBuf, Errno)> {
        let ClientRequest { connection, op, extent, flags, buffer } = request;
        let wanted = if matches!(op, Op::Read | Op::Write) { extent.len() } else { 0 };
        if core.stopping || buffer.len() as u64 != wanted {
            let errno = if core.stopping { libc::ESHUTDOWN } else { libc::EINVAL };
            return Err((waiter, buffer, Errno(errno)));
        }
        let request = Request { id: core.clients.next_id(), connection, op, extent, flags };
        let payload = (op == Op::Write).then_some(&buffer[..]);
        core.volume.submit(now, request, payload);
        core.clients.insert(Client { request, buffer: Some(buffer), waiter, arrived: now });
        Ok(())
    }
}

impl Service for Server {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    fn connect(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    fn disconnect(&self, connection: ConnectionId) {
        self.lock().volume.connection_gone(connection);
    }

    fn client_cut(&self) {
        self.clients_cut.fetch_add(1, Ordering::Relaxed);
    }

    fn submit(&self, request: ClientRequest, done: Completion) {
        let mut core = self.lock();
        let now = self.now();
        match self.take(&mut core, now, request, Waiter::Completion(done)) {
            Ok(()) => {
                core = self.answer(core);
                self.wake(&core);
            }
            Err((waiter, buffer, errno)) => {
                drop(core);
                waiter.answer(buffer, Err(errno));
            }
        }
    }

    fn answers_from_memory(&self) -> bool {
        self.tries
    }

    fn wakeups(&self) -> Wakeups {
        self.wakeups.get().cloned().unwrap_or_default()
    }

    fn begin(&self, request: ClientRequest, done: Completion) {
        if !self.tries {
            return self.submit(request, done);
        }
        let mut core = self.lock();
        let now = self.now();
        match self.take(&mut core, now, request, Waiter::Completion(done)) {
            Ok(()) => self.run_from_memory(core, now),
            Err((waiter, buffer, errno)) => {
                drop(core);
                waiter.answer(buffer, Err(errno));
            }
        }
    }

    fn lane(self: Arc<Self>, sink: Arc<dyn Sink>) -> Option<Box<dyn Lane>> {
        Some(Box::new(MachineLane::new(self, sink)))
    }

    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno> {
        let store = &self.store;
        store
            .stretches(extent.offset(), extent.len(), limit)
            .map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn call(&self, request: ClientRequest) -> (AlignedBuf, Result<(), Errno>) {
        let slot = CALL.with(Arc::clone);
        // The thread that brings a request runs the machine; what it cannot run, others do.
        let mut core = self.lock();
        let now = self.now();
        match self.take(&mut core, now, request, Waiter::Caller(slot.clone())) {
            Ok(()) => drop(self.run(core, Some(&slot))),
            Err((waiter, buffer, errno)) => {
                drop(core);
                waiter.answer(buffer, Err(errno));
            }
        }
        slot.wait()
    }
}
