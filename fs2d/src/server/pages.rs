//! What goes from the store to a client by reference: which reads may be lent.

use std::sync::Arc;

use fs2_engine::{IoData, IoOp, Target};
use fs2_store::Pipe;

use super::{Core, Job, Server, Waiter};
use crate::service::{Sink, Tag};

/// Smaller reads are copied, and their answers go out together. Measured at depth 8 (docs/performance.md): with reads of 16
/// and 32 KiB a client gets 0.8 and 0.9 of the rate by lending, with 64 KiB about the same in 0.6 to 0.7 of the time.
const LENT_BYTES_MIN: u64 = 64 << 10;

impl Server {
    /// Whether what `job` reads may be lent to a client of `sink`; by which tag the client knows it.
    pub(super) fn may_lend(&self, core: &Core, job: &Job, sink: &Arc<dyn Sink>) -> Option<Tag> {
        let (IoOp::Read, IoData::Client(id)) = (job.io.op, &job.io.data) else { return None };
        if !self.lends || job.io.extent.len() < LENT_BYTES_MIN || job.io.target != Target::Volume {
            return None;
        }
        match &core.clients.get(*id)?.waiter {
            Waiter::Sink(to, tag, _) if Arc::ptr_eq(to, sink) => {
                (!core.volume.wants_bytes(&job.io)).then_some(*tag)
            }
            _ => None,
        }
    }

    /// What `job` reads, if it is in memory and the client of `sink` takes it so.
    pub(super) fn lend(&self, job: &Job, tag: Tag, sink: &dyn Sink) -> Option<Pipe> {
        let (at, len) = (job.io.extent.offset(), job.io.extent.len() as usize);
        let mut pipe = sink.pipe(tag, len)?;
        match self.store.try_lend(at, len, &mut pipe) {
            Ok(true) => Some(pipe),
            Ok(false) => {
                sink.unused(pipe);
                None
            }
            // Nobody has seen anything of it. What is wrong shows when it is read, and only what is.
            Err(_) => None,
        }
    }
}
