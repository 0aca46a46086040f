//! An access of the machine, from its dispatch to its end.

use fs2_block::{Nanos, Op};
use fs2_engine::{Io, IoData, IoOp, Outcome, Target};
use fs2_store::{AlignedBuf, Pipe, Store, sync_failed};
use fs2_trace::{Record, RecordFlags};

use super::{Core, Server, Waiter};

/// An I/O that was dispatched, and its memory.
pub(super) struct Job {
    pub(super) io: Io,
    pub(super) buffer: AlignedBuf,
    pub(super) dispatched: Nanos,
    /// What a read brought, or a write's payload, where it is not in the buffer.
    pub(super) lent: Option<Pipe>,
}

impl Server {
    /// The next I/O, with its memory; `None` where nothing may start.
    pub(super) fn dispatch(&self, core: &mut Core, dispatched: Nanos) -> Option<Job> {
        if core.at_device >= self.drive.depth {
            return None;
        }
        let io = core.volume.poll_dispatch(dispatched)?;
        core.at_device += 1;
        let buffer = match (&io.op, &io.data) {
            (_, IoData::Client(id)) => core.clients.get_mut(*id).and_then(|c| c.buffer.take()),
            (IoOp::Read, IoData::None | IoData::Around { .. }) => {
                Some(AlignedBuf::zeroed(io.extent.len() as usize))
            }
            _ => None,
        };
        Some(Job { io, buffer: buffer.unwrap_or_else(|| AlignedBuf::zeroed(0)), dispatched, lent: None })
    }

    pub(super) fn perform(&self, job: &mut Job) -> Result<(), i32> {
        let Job { io, buffer, .. } = job;
        let store: &dyn Store = match (&io.target, &self.table) {
            (Target::Table, Some(table)) => &**table,
            _ => &*self.store,
        };
        let (at, len) = (io.extent.offset(), io.extent.len());
        let done = match io.op {
            IoOp::Read => store.read_at(at, buffer),
            IoOp::Write { fua } => match &io.data {
                IoData::Engine(bytes) => store.write_at(at, bytes, fua),
                _ => store.write_at(at, buffer, fua),
            },
            IoOp::WriteZeroes { no_hole, fua } => {
                let flush = || if fua { store.flush().map_err(sync_failed) } else { Ok(()) };
                store.write_zeroes(at, len, no_hole).and_then(|()| flush())
            }
            IoOp::Discard => store.discard(at, len),
            IoOp::Flush => store.flush(),
        };
        done.map_err(|e| self.failed_below(io, &e))
    }

    /// Does an I/O from memory; `None` where a device would have to be waited for.
    pub(super) fn try_now(&self, job: &mut Job) -> Option<Result<(), i32>> {
        let Job { io, buffer, .. } = job;
        if !self.tries || io.target != Target::Volume {
            return None;
        }
        let at = io.extent.offset();
        let done = match (io.op, &io.data) {
            (IoOp::Read, _) => self.store.try_read(at, buffer),
            (IoOp::Write { fua: false }, IoData::Engine(bytes)) => self.store.try_write(at, bytes),
            (IoOp::Write { fua: false }, _) => self.store.try_write(at, buffer),
            _ => return None,
        };
        match done {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(e) => Some(Err(self.failed_below(io, &e))),
        }
    }

    /// The error as the machine wants it. All are counted ([`Volume::stats`]); of many the log has some.
    pub(super) fn failed_below(&self, io: &Io, e: &std::io::Error) -> i32 {
        let line = |more: &str| tracing::warn!("{:?} of {} failed below: {e}{more}", io.op, io.extent);
        match io.op {
            // The last that matters: from then on changes are refused.
            IoOp::Flush => line(""),
            _ => self.failures.line(line),
        }
        e.raw_os_error().unwrap_or(fs2_engine::EIO)
    }

    /// An I/O ended: tells the machine and puts the memory back.
    pub(super) fn complete(&self, core: &mut Core, now: Nanos, job: Job, result: Result<(), i32>) {
        let Job { io, buffer, dispatched, lent } = job;
        core.at_device -= 1;
        if core.trace.is_some() {
            self.trace(core, dispatched, now, &io, result);
        }
        // The client sees it once the machine has found it good.
        if let IoData::Around { request, .. } = io.data
            && result.is_ok()
            && let Some(own) = core.clients.get_mut(request).and_then(|c| c.buffer.as_mut())
        {
            let len = own.len();
            own.copy_from_slice(io.data.asked_of(&buffer, len));
        }
        if lent.is_some() {
            core.volume.complete_unread(now, io.id);
        } else {
            let data = if io.op == IoOp::Read && result.is_ok() { &buffer[..] } else { &[] };
            core.volume.complete(now, io.id, Outcome { result, data });
        }
        if result.is_err()
            && core.volume.has_lost_writes()
            && let Some(tell) = self.on_lost.get()
        {
            tell();
        }
        if let IoData::Client(id) = io.data
            && let Some(client) = core.clients.get_mut(id)
        {
            client.buffer = Some(buffer);
            if let Waiter::Sink(_, _, pipe) = &mut client.waiter {
                *pipe = lent;
            }
        }
    }

    fn trace(&self, core: &mut Core, dispatched: Nanos, now: Nanos, io: &Io, result: Result<(), i32>) {
        let op = match io.op {
            IoOp::Read => Op::Read,
            IoOp::Write { .. } => Op::Write,
            IoOp::WriteZeroes { .. } => Op::WriteZeroes,
            IoOp::Discard => Op::Discard,
            IoOp::Flush => Op::Flush,
        };
        if io.target == Target::Table {
            return;
        }
        let mut record = Record::new(dispatched, op, io.extent);
        record.service = Some(now.since(dispatched));
        match io.data.request() {
            Some(id) => {
                if let Some(c) = core.clients.get(id) {
                    record.at = c.arrived;
                    record.extent = c.request.extent;
                    record.source = c.request.connection.0 as u16;
                    if c.request.extent != io.extent {
                        record.flags = record.flags.with(RecordFlags::REPLICA);
                        // Where it took place, for those who want to know where the head went.
                        let mut place = Record::new(dispatched, op, io.extent);
                        place.service = record.service;
                        place.flags = RecordFlags::REPLICA.with(RecordFlags::COPY);
                        if let Some(tap) = &mut core.trace {
                            tap.push(place);
                        }
                    }
                }
            }
            _ if op == Op::Write => record.flags = record.flags.with(RecordFlags::COPY),
            _ if op == Op::Read => record.flags = record.flags.with(RecordFlags::HASH),
            _ => {}
        }
        if result.is_err() {
            record.flags = record.flags.with(RecordFlags::FAILED);
        }
        if let Some(tap) = &mut core.trace {
            tap.push(record);
        }
    }
}
