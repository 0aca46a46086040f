//! The thread of a queue, which goes in steps: it has its memory and its ring; it has the device, and its first requests for work lie in
//! the ring; it asks. Each step waits for all queues, so that a device being taken over has queues without a server for as short as may
//! be, and none of them where anything fails.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use fs2_store::AlignedBuf;
use io_uring::IoUring;
use nix::sys::eventfd::EventFd;

use super::Disconnect;
use super::queue::{self, Outbox, Queue};
use super::ring::{QueueRing, ring_of};
use super::uapi::DeviceInfo;
use crate::memory;
use crate::service::{Service, lane_of};

/// What a thread waits for.
enum Step {
    Device(Arc<OwnedFd>),
    Ask,
}

/// A thread's side of the steps.
pub(super) struct Steps {
    next: mpsc::Receiver<Step>,
    done: mpsc::Sender<io::Result<()>>,
}

/// Threads that wait for their next step. Dropped, they end.
pub(super) struct Waiting {
    next: Vec<mpsc::Sender<Step>>,
    done: mpsc::Sender<io::Result<()>>,
    told: mpsc::Receiver<io::Result<()>>,
}

impl Default for Waiting {
    fn default() -> Waiting {
        let (done, told) = mpsc::channel();
        Waiting { next: Vec::new(), done, told }
    }
}

impl Waiting {
    /// For one more thread.
    pub(super) fn add(&mut self) -> Steps {
        let (to, next) = mpsc::channel();
        self.next.push(to);
        Steps { next, done: self.done.clone() }
    }

    /// Waits until every thread is done with its step.
    pub(super) fn all(&self) -> io::Result<()> {
        let lost = || io::Error::other("a queue's thread ended");
        self.next.iter().try_for_each(|_| self.told.recv().map_err(|_| lost())?)
    }

    fn tell(&self, step: impl Fn() -> Step) {
        // One that ended has told why.
        self.next.iter().for_each(|to| drop(to.send(step())));
    }

    /// Has every queue served, by this device.
    pub(super) fn begin(self, device: Arc<OwnedFd>) -> io::Result<()> {
        self.tell(|| Step::Device(device.clone()));
        self.all()?;
        self.tell(|| Step::Ask);
        self.all()
    }
}

pub(super) struct Worker {
    pub(super) service: Arc<dyn Service>,
    pub(super) connection: Arc<Disconnect>,
    pub(super) info: DeviceInfo,
    pub(super) queue: u16,
    pub(super) wake: Arc<EventFd>,
    pub(super) leave: queue::Leave,
    pub(super) running: Arc<AtomicUsize>,
    pub(super) buffers: Vec<AlignedBuf>,
    pub(super) steps: Steps,
}

/// Where a queue's requests have their payloads, one each.
pub(super) fn buffers_for(info: &DeviceInfo) -> Vec<AlignedBuf> {
    (0..info.queue_depth).map(|_| memory::locked_buffer(info.io_bytes_max as usize)).collect()
}

/// A queue that ends otherwise than in order would let its requests wait for ever. The process ends
/// instead: its successor gets them.
struct EndsInOrder(bool);

impl Drop for EndsInOrder {
    fn drop(&mut self) {
        if !self.0 {
            std::process::abort();
        }
    }
}

impl Worker {
    /// Serves the queue; what is left is its ring, to be closed when this thread has ended ([`super::Server::join`]).
    pub(super) fn run(mut self) -> Option<QueueRing> {
        let buffers = std::mem::take(&mut self.buffers);
        let begun = ring_of(self.info.queue_depth).and_then(|ring| self.serve(ring, buffers));
        self.running.fetch_sub(1, Ordering::SeqCst);
        begun.unwrap_or_else(|e| {
            self.done(Err(e));
            None
        })
    }

    fn done(&self, result: io::Result<()>) {
        let _ = self.steps.done.send(result);
    }

    /// Fails only where nothing was given to the kernel yet; `None` where it was not to be.
    fn serve(&self, ring: IoUring, buffers: Vec<AlignedBuf>) -> io::Result<Option<QueueRing>> {
        self.done(Ok(()));
        let Ok(Step::Device(device)) = self.steps.next.recv() else { return Ok(None) };
        let mut ring = QueueRing::new(ring, &device, self.queue, self.info.queue_depth, self.wake.clone())?;
        drop(device);
        let mut queue = self.queue(&mut ring, buffers)?;
        self.done(Ok(()));
        let Ok(Step::Ask) = self.steps.next.recv() else { return Ok(None) };
        // Dropped before the queue.
        let mut in_order = EndsInOrder(false);
        match queue.run(&self.leave, || self.done(Ok(()))) {
            Ok(()) => in_order.0 = true,
            Err(e) => tracing::error!("ublk queue {} failed, the daemon ends: {e}", self.queue),
        }
        drop(in_order);
        drop(queue);
        Ok(Some(ring))
    }

    fn queue<'a>(
        &self,
        ring: &'a mut QueueRing,
        buffers: Vec<AlignedBuf>,
    ) -> io::Result<Queue<&'a mut QueueRing>> {
        let bytes = self.info.io_bytes_max;
        let outbox = Outbox::new(waker(&self.wake));
        let lane = lane_of(&self.service, outbox.clone());
        Queue::new(ring, lane, self.connection.connection, outbox, buffers, bytes, self.service.wakeups())
    }
}

pub(super) fn waker(wake: &Arc<EventFd>) -> Arc<dyn Fn() + Send + Sync> {
    let wake = wake.clone();
    Arc::new(move || {
        // It fails only where it is full: then its reader is awake.
        let _ = wake.write(1);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where one queue cannot begin, none asks the driver for anything: it would be a device of which a part has a server.
    #[test]
    fn no_queue_asks_where_another_cannot() {
        let mut waiting = Waiting::default();
        let steps = [waiting.add(), waiting.add()];
        let device = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let threads = steps.into_iter().enumerate().map(|(n, steps)| {
            std::thread::spawn(move || {
                let done = |result| drop(steps.done.send(result));
                done(Ok(()));
                assert!(matches!(steps.next.recv(), Ok(Step::Device(_))));
                if n == 0 {
                    return done(Err(io::Error::other("no memory")));
                }
                done(Ok(()));
                assert!(steps.next.recv().is_err(), "nobody asks");
            })
        });
        let threads: Vec<_> = threads.collect();
        waiting.all().unwrap();
        assert_eq!(waiting.begin(device).unwrap_err().to_string(), "no memory");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
