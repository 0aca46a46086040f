//! A queue against a driver made up, and against services that answer at once, later, or oddly.

use std::collections::{BTreeMap, VecDeque};

use fs2_block::{Extent, Op};
use fs2_store::{MemStore, Store, Stretch};
use proptest::prelude::*;

use super::*;
use crate::frontend::ublk::uapi::{flag, op};
use crate::service::{Completion, ExportInfo, Service, lane_of};
use crate::wakeups::Wakeups;

const MAX: u32 = 8192;

/// What the kernel does of a queue, with requests from a list. It has "memory" only where a command's
/// address points, as the kernel has.
#[derive(Default)]
struct Kernel {
    /// Addresses of the tags it has.
    given: BTreeMap<u16, u64>,
    /// Requests that wait for a tag, with a write's payload.
    waiting: VecDeque<(IoDescriptor, Vec<u8>)>,
    descriptors: BTreeMap<u16, IoDescriptor>,
    /// What became of each request, in the order of their ends; with a read's bytes.
    ended: Vec<(IoDescriptor, i32, Vec<u8>)>,
    stopping: bool,
}

impl Kernel {
    fn bytes<'a>(addr: u64, len: usize) -> &'a mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
        // SAFETY: the address was exposed by the queue, which keeps a buffer of MAX bytes there until the
        // command came back; this test's one thread touches it in between.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

impl Commands for Kernel {
    fn fetch(&mut self, tag: u16, addr: u64) -> io::Result<()> {
        assert!(self.given.insert(tag, addr).is_none(), "tag {tag} is fetched twice");
        Ok(())
    }

    fn commit(&mut self, tag: u16, result: i32, addr: u64) -> io::Result<()> {
        let d = self.descriptors.remove(&tag).expect("only what is being served is committed");
        let read = (d.op_flags & 0xff) as u8 == op::READ && result > 0;
        let bytes = if read { Kernel::bytes(addr, result as usize).to_vec() } else { Vec::new() };
        self.ended.push((d, result, bytes));
        self.fetch(tag, addr)
    }

    fn descriptor(&self, tag: u16) -> IoDescriptor {
        self.descriptors[&tag]
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // No lane here looks at it.
        // SAFETY: standard input's number is nobody's to close.
        unsafe { BorrowedFd::borrow_raw(0) }
    }

    fn turn(&mut self, _: bool, events: &mut Vec<Event>) -> io::Result<()> {
        while let Some((&tag, &addr)) = self.given.first_key_value()
            && let Some((d, payload)) = self.waiting.pop_front()
        {
            self.given.remove(&tag);
            Kernel::bytes(addr, payload.len()).copy_from_slice(&payload);
            self.descriptors.insert(tag, d);
            events.push(Event::Came(tag, 0));
        }
        if self.waiting.is_empty() && self.stopping {
            while let Some((tag, _)) = self.given.pop_first() {
                events.push(Event::Came(tag, RESULT_ABORT));
            }
        }
        Ok(())
    }
}

/// How a service answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    AtOnce,
    /// From another thread, some time later.
    Later,
    /// With a buffer of its own, of the request's length only.
    OwnBuffer,
    Fails,
}

struct Disk {
    store: Arc<MemStore>,
    manner: Manner,
}

impl Service for Disk {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            size_bytes: self.store.size_bytes(),
            block_bytes: 4096,
            rotational: true,
            description: String::new(),
        }
    }
    fn connect(&self) -> ConnectionId {
        ConnectionId(1)
    }
    fn disconnect(&self, _: ConnectionId) {}
    fn submit(&self, request: ClientRequest, done: Completion) {
        let (store, manner) = (self.store.clone(), self.manner);
        let work = move || {
            let ClientRequest { op, extent, mut buffer, .. } = request;
            let (at, len) = (extent.offset(), extent.len());
            let result = match op {
                _ if manner == Manner::Fails => return done(buffer, Err(Errno(libc::ENOSPC))),
                Op::Read => store.read_at(at, &mut buffer),
                Op::Write => store.write_at(at, &buffer, false),
                Op::WriteZeroes => store.write_zeroes(at, len, true),
                Op::Discard => store.discard(at, len),
                _ => store.flush(),
            };
            let result = result.map_err(|_| Errno(libc::EIO));
            if manner == Manner::OwnBuffer {
                done(AlignedBuf::copy_of(&buffer), result);
            } else {
                done(buffer, result);
            }
        };
        match manner {
            Manner::Later => drop(std::thread::spawn(work)),
            _ => work(),
        }
    }
    fn stretches(&self, _: Extent, _: usize) -> Result<Vec<Stretch>, Errno> {
        Ok(Vec::new())
    }
}

fn leave() -> Leave {
    Leave::new(Arc::new(|| {}))
}

fn queue(kernel: Kernel, manner: Manner, store: &Arc<MemStore>, depth: u16) -> Queue<Kernel> {
    let service: Arc<dyn Service> = Arc::new(Disk { store: store.clone(), manner });
    let buffers = (0..depth).map(|_| AlignedBuf::zeroed(MAX as usize)).collect();
    // The made-up kernel never sleeps: nobody needs waking.
    let outbox = Outbox::new(Arc::new(|| {}));
    let lane = lane_of(&service, outbox.clone());
    Queue::new(kernel, lane, ConnectionId(1), outbox, buffers, MAX, Wakeups::default())
        .expect("fetches cannot fail here")
}

fn request(op: u8, sector: u64, sectors: u32) -> IoDescriptor {
    IoDescriptor { op_flags: op.into(), sectors, start_sector: sector, addr: 0 }
}

#[test]
fn what_was_written_is_read() {
    for manner in [Manner::AtOnce, Manner::Later, Manner::OwnBuffer] {
        let store = Arc::new(MemStore::new(1 << 20));
        let mut waiting: VecDeque<_> =
            (0..20u8).map(|n| (request(op::WRITE, u64::from(n) * 16, 16), vec![n + 1; 8192])).collect();
        waiting.push_back((request(op::FLUSH, 0, 0), vec![]));
        let mut q = queue(Kernel { waiting, stopping: true, ..Kernel::default() }, manner, &store, 3);
        q.run(&leave(), || {}).unwrap();
        assert!(q.commands.ended.iter().all(|(d, r, _)| *r as u32 == d.sectors * 512), "{manner:?}");
        assert_eq!(q.commands.ended.len(), 21);

        let waiting = (0..20u8).map(|n| (request(op::READ, u64::from(n) * 16, 3), vec![])).collect();
        let mut q = queue(Kernel { waiting, stopping: true, ..Kernel::default() }, manner, &store, 3);
        q.run(&leave(), || {}).unwrap();
        assert_eq!(q.commands.ended.len(), 20);
        for (d, result, bytes) in &q.commands.ended {
            assert_eq!(
                (*result, &bytes[..]),
                (1536, &vec![(d.start_sector / 16) as u8 + 1; 1536][..]),
                "{manner:?}"
            );
        }
    }
}

#[test]
fn turns_are_told_of() {
    let store = Arc::new(MemStore::new(1 << 20));
    let waiting = (0..20u64).map(|n| (request(op::READ, n * 16, 16), vec![])).collect();
    let mut q = queue(Kernel { waiting, stopping: true, ..Kernel::default() }, Manner::AtOnce, &store, 1);
    q.wakeups = Wakeups::at("/dev/null".as_ref());
    q.run(&leave(), || {}).unwrap();
    assert_eq!(q.wakeups.told(), (20, 20));
}

#[test]
fn errors_reach_the_kernel_and_the_queue_goes_on() {
    let store = Arc::new(MemStore::new(1 << 20));
    let waiting = VecDeque::from([
        (request(op::READ, 0, 16), vec![]),
        (request(99, 0, 16), vec![]),
        (request(op::READ, 0, 17), vec![]),
        (request(op::DISCARD, 0, 100), vec![]),
    ]);
    let mut q = queue(Kernel { waiting, stopping: true, ..Kernel::default() }, Manner::Fails, &store, 1);
    q.run(&leave(), || {}).unwrap();
    let results: Vec<i32> = q.commands.ended.iter().map(|e| e.1).collect();
    assert_eq!(results, [-libc::ENOSPC, -libc::EOPNOTSUPP, -libc::EINVAL, -libc::ENOSPC]);
}

#[test]
fn who_leaves_answers_what_came_and_takes_no_more() {
    let store = Arc::new(MemStore::new(1 << 20));
    let waiting = (0..9u64).map(|n| (request(op::WRITE, n * 16, 16), vec![7; 8192])).collect();
    let kernel = Kernel { waiting, ..Kernel::default() };
    let mut q = queue(kernel, Manner::Later, &store, 4);
    let leave = leave();
    // Asked before the first turn's requests are looked at: all four are left to the next server.
    leave.ask();
    q.run(&leave, || {}).unwrap();
    assert!(q.commands.ended.is_empty());
    assert_eq!(q.commands.descriptors.len(), 4, "the kernel gives them to the next");
    assert_eq!(q.serving, 0);
}

/// Each I/O that the queue's own thread waited for cost a write to the eventfd, a turn that read it, and a new poll.
#[test]
fn what_the_queues_own_thread_ends_wakes_nobody() {
    let wakes = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = wakes.clone();
    let outbox = Outbox::new(Arc::new(move || _ = counted.fetch_add(1, Ordering::SeqCst)));
    let answer =
        |tag| vec![Answer { tag: [tag, 0, 0], buffer: AlignedBuf::zeroed(0), result: Ok(()), lent: None }];
    outbox.owner.set(std::thread::current().id()).unwrap();
    assert!(outbox.may_sleep());
    outbox.put(&mut answer(0));
    assert_eq!(wakes.load(Ordering::SeqCst), 0);
    outbox.take(&mut Vec::new());
    assert!(outbox.may_sleep());
    std::thread::scope(|s| s.spawn(|| outbox.put(&mut answer(1))).join().unwrap());
    assert_eq!(wakes.load(Ordering::SeqCst), 1, "another thread's end does");
    assert!(!outbox.may_sleep());
}

/// Keeps the first request as if a device had it, until it is looked at; answers the others at once, as from memory.
struct OneWaits {
    outbox: Arc<Outbox>,
    pushed: u32,
    waits: Option<Answer>,
}

impl Lane for OneWaits {
    fn push(&mut self, request: ClientRequest, tag: crate::service::Tag) {
        let answer = Answer { tag, buffer: request.buffer, result: Ok(()), lent: None };
        self.pushed += 1;
        if self.pushed == 1 {
            self.waits = Some(answer);
        } else {
            self.outbox.put(&mut vec![answer]);
        }
    }
    fn run(&mut self) {}
    fn is_pending(&self) -> bool {
        self.waits.is_some()
    }
    fn look(&mut self) {
        self.outbox.put(&mut self.waits.take().into_iter().collect());
    }
    fn wait(&mut self, _: Option<BorrowedFd<'_>>) -> bool {
        self.look();
        true
    }
}

/// A read that waited for a device was not even begun there as long as others came that memory answered.
#[test]
fn what_waits_for_a_device_ends_while_others_keep_coming() {
    let waiting = (0..100u64).map(|n| (request(op::READ, n, 1), vec![])).collect();
    let kernel = Kernel { waiting, stopping: true, ..Kernel::default() };
    let outbox = Outbox::new(Arc::new(|| {}));
    let lane = Box::new(OneWaits { outbox: outbox.clone(), pushed: 0, waits: None });
    let buffers = (0..2).map(|_| AlignedBuf::zeroed(MAX as usize)).collect();
    let mut q = Queue::new(kernel, lane, ConnectionId(1), outbox, buffers, MAX, Wakeups::default()).unwrap();
    q.run(&leave(), || {}).unwrap();
    let at = q.commands.ended.iter().position(|(d, _, _)| d.start_sector == 0);
    assert!(at.is_some_and(|at| at < 50), "it ended after {at:?} of the others");
}

/// A driver that loses tags one by one ends the queue only when all are gone.
#[test]
fn a_tag_that_is_lost_is_not_used_again() {
    let store = Arc::new(MemStore::new(1 << 20));
    let mut q = queue(Kernel::default(), Manner::AtOnce, &store, 2);
    q.came(0, -libc::EINVAL, false).unwrap();
    assert_eq!(q.alive, 1);
    assert!(q.came(0, 0, false).is_err(), "it comes back though it was not given");
    q.came(7, 0, false).unwrap();
}

/// A line each filled `/run`, where the log of a mount lies.
#[test]
fn requests_that_are_refused_do_not_fill_the_log() {
    let store = Arc::new(MemStore::new(1 << 20));
    let waiting = (0..2000).map(|_| (request(0xee, 0, 8), Vec::new())).collect();
    let mut q = queue(Kernel { waiting, stopping: true, ..Kernel::default() }, Manner::AtOnce, &store, 4);
    let lines = crate::logged::lines_with("ublk request refused", || q.run(&leave(), || {}).unwrap());
    assert_eq!(q.commands.ended.len(), 2000);
    assert!((1..1000).contains(&lines), "{lines} lines");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any descriptors at all: each ends once, and bytes of a read are those of the store.
    #[test]
    fn any_descriptors(ops in proptest::collection::vec((0u32..8, 0u64..260, 0u32..20, any::<bool>()), 1..40), depth in 1u16..5, own: bool) {
        let store = Arc::new(MemStore::new(128 << 10));
        for at in 0..32u64 {
            store.write_at(at * 4096, &[at as u8; 4096], false).unwrap();
        }
        let reads_only = |o: u32| if o == 1 || o == 3 || o == 5 { 0 } else { o };
        let waiting: VecDeque<_> = ops.iter().map(|&(o, sector, sectors, fua)| {
            let extra = if fua { flag::FUA } else { 0 };
            (IoDescriptor { op_flags: reads_only(o) | extra, sectors, start_sector: sector, addr: 0 }, vec![])
        }).collect();
        let manner = if own { Manner::OwnBuffer } else { Manner::AtOnce };
        let mut q = queue(Kernel { waiting, stopping: true, ..Kernel::default() }, manner, &store, depth);
        q.run(&leave(), || {}).unwrap();
        prop_assert_eq!(q.commands.ended.len(), ops.len());
        for (d, result, bytes) in &q.commands.ended {
            let inside = (d.start_sector + u64::from(d.sectors)) * 512 <= 128 << 10;
            match (d.op_flags & 0xff) as u8 {
                op::READ if inside && (1..=16).contains(&d.sectors) => {
                    prop_assert_eq!(*result as u32, d.sectors * 512);
                    for (n, byte) in bytes.iter().enumerate() {
                        let at = d.start_sector * 512 + n as u64;
                        prop_assert_eq!(*byte, (at / 4096) as u8);
                    }
                }
                op::READ => prop_assert!(*result < 0),
                op::FLUSH => prop_assert_eq!(*result, 0),
                _ => prop_assert_eq!(*result, -libc::EOPNOTSUPP),
            }
        }
    }
}
