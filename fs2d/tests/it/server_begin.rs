//! `Service::begin`: who answers what, and that the thread that brought it waits for no device.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use fs2_block::{Extent, Flags, Op};
use fs2_engine::{AttachOptions, EngineConfig, PolicyKind, Volume};
use fs2_store::{AlignedBuf, MemStore, Store, StoreIo};
use fs2d::server::{Drive, Server};
use fs2d::service::{Answer, ClientRequest, Service, Sink, Tag, lane_of};
use fs2d::wakeups::Wakeups;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;
/// From this block on, nothing is in memory.
const DEEP: u64 = 32;
/// A hang becomes a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// In memory, which answers no sooner than the device.
const SLOW: u64 = 7;
/// In memory that has failed.
const BAD: u64 = 8;

/// Memory, and below it a device that answers when it is told to.
struct Half {
    memory: MemStore,
    closed: Mutex<bool>,
    opened: Condvar,
    /// I/Os that have come to the device.
    deep: AtomicUsize,
}

impl Half {
    fn device(&self) {
        self.deep.fetch_add(1, Ordering::SeqCst);
        let closed = self.closed.lock().unwrap();
        let (closed, waited) = self.opened.wait_timeout_while(closed, PATIENCE, |closed| *closed).unwrap();
        drop(closed);
        assert!(
            !waited.timed_out(),
            "{:?} waits for the device, and nobody opens it",
            thread::current().id()
        );
    }

    fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }
}

fn is_deep(offset: u64, len: usize) -> bool {
    offset + len as u64 > DEEP * BLOCK
}

impl Store for Half {
    fn tries(&self) -> bool {
        true
    }
    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        match offset / BLOCK {
            BAD => return Err(io::Error::from_raw_os_error(libc::EIO)),
            SLOW => self.device(),
            _ => {}
        }
        if is_deep(offset, buf.len()) { Ok(false) } else { self.memory.try_read(offset, buf) }
    }
    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        if is_deep(offset, buf.len()) { Ok(false) } else { self.memory.try_write(offset, buf) }
    }
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if is_deep(offset, buf.len()) {
            self.device();
        }
        self.memory.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        if fua || is_deep(offset, buf.len()) {
            self.device();
        }
        self.memory.write_at(offset, buf, fua)
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.memory.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        self.device();
        self.memory.flush()
    }
}

/// What was answered, by which thread.
#[derive(Debug)]
struct Answered {
    name: &'static str,
    first: u8,
    result: Result<(), i32>,
    by: ThreadId,
}

struct Rig {
    server: Arc<Server>,
    store: Arc<Half>,
    to: Sender<Answered>,
    answers: Mutex<Receiver<Answered>>,
}

impl Rig {
    fn new(depth: usize) -> Rig {
        Rig::of(depth, false)
    }

    fn turning(depth: usize) -> Rig {
        Rig::of(depth, true)
    }

    fn of(depth: usize, rotational: bool) -> Rig {
        let store = Arc::new(Half {
            memory: MemStore::new(BLOCKS * BLOCK),
            closed: Mutex::new(false),
            opened: Condvar::new(),
            deep: AtomicUsize::new(0),
        });
        let config = EngineConfig { policy: PolicyKind::None, paranoid: true, ..EngineConfig::default() };
        let options = AttachOptions::default();
        let (volume, _) = Volume::attach(&mut StoreIo::new(&*store), None, config, &options).unwrap();
        *store.closed.lock().unwrap() = true;
        store.deep.store(0, Ordering::SeqCst);
        let drive = Drive { depth, time_scale: 1.0, host_reserve: 0, rotational };
        let server = Server::start(volume, store.clone(), None, drive, "half".into()).unwrap();
        let (to, answers) = channel();
        Rig { server, store, to, answers: Mutex::new(answers) }
    }

    fn begin(&self, name: &'static str, op: Op, block: u64, byte: u8) {
        self.begin_with(name, op, block, byte, Flags::default());
    }

    fn begin_with(&self, name: &'static str, op: Op, block: u64, byte: u8, flags: Flags) {
        let extent = if op == Op::Flush { Extent::default() } else { Extent::new(block * BLOCK, BLOCK) };
        let mut buffer = AlignedBuf::zeroed(extent.len() as usize);
        buffer.fill(byte);
        let to = self.to.clone();
        let request = ClientRequest { connection: self.server.connect(), op, extent, flags, buffer };
        self.server.begin(
            request,
            Box::new(move |buffer, result| {
                let first = buffer.first().copied().unwrap_or(0);
                assert!(buffer.iter().all(|&b| b == first), "{name}: torn");
                let by = thread::current().id();
                to.send(Answered { name, first, result: result.map_err(|e| e.0), by }).unwrap();
            }),
        );
    }

    fn try_next(&self) -> Result<Answered, TryRecvError> {
        self.answers.lock().unwrap().try_recv()
    }

    /// The next answer, wherever it comes from.
    fn next(&self, what: &str) -> Answered {
        self.answers.lock().unwrap().recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{what}: {e}"))
    }

    /// It was answered before `begin` returned, by this thread.
    fn at_once(&self, name: &str, first: u8, result: Result<(), i32>) {
        let answer = self.try_next().unwrap_or_else(|_| panic!("{name} was not answered at once"));
        assert_eq!((answer.name, answer.first, answer.result), (name, first, result));
        assert_eq!(answer.by, thread::current().id());
    }

    /// The next `n` answers, all without error and by other threads.
    fn by_others(&self, n: usize) -> Vec<Answered> {
        let answers: Vec<_> = (0..n).map(|_| self.next("an answer of a worker")).collect();
        for a in &answers {
            assert!(a.by != thread::current().id() && a.result == Ok(()), "{a:?}");
        }
        answers
    }

    fn end(&self) {
        self.store.open();
        self.server.detach();
        assert!(self.try_next().is_err(), "answered twice, or not yet");
    }
}

#[test]
fn what_memory_has_is_answered_at_once() {
    for depth in [1, 128] {
        let rig = Rig::new(depth);
        for round in 1..=100 {
            rig.begin("write", Op::Write, 3, round);
            rig.at_once("write", round, Ok(()));
            rig.begin("read", Op::Read, 3, 0);
            rig.at_once("read", round, Ok(()));
        }
        assert_eq!(rig.store.deep.load(Ordering::SeqCst), 0);
        rig.begin("a bad read", Op::Read, BAD, 9);
        rig.at_once("a bad read", 9, Err(libc::EIO));
        rig.begin("beyond the end", Op::Read, BLOCKS, 9);
        rig.at_once("beyond the end", 9, Err(libc::EINVAL));
        rig.end();
        rig.begin("after the end", Op::Read, 3, 9);
        rig.at_once("after the end", 9, Err(libc::ESHUTDOWN));
    }
}

#[test]
fn what_waits_for_a_device_is_left_to_workers() {
    let rig = Rig::new(128);
    rig.begin("deep write", Op::Write, 40, 1);
    rig.begin("deep read", Op::Read, 40, 0);
    rig.begin_with("durable write", Op::Write, 3, 2, Flags { fua: true, ..Flags::default() });
    rig.begin("read of it", Op::Read, 3, 0);
    rig.begin("flush", Op::Flush, 0, 0);
    rig.begin("memory", Op::Write, 4, 3);
    rig.at_once("memory", 3, Ok(()));
    assert!(rig.try_next().is_err(), "answered, and the device was not");
    rig.store.open();
    let answers = rig.by_others(5);
    let first = |name| answers.iter().find(|a| a.name == name).unwrap().first;
    // Who answers first is open, but each read found what was written before it.
    assert_eq!((first("deep read"), first("read of it")), (1, 2));
    rig.end();
}

/// More than there are workers, and more than may be dispatched.
#[test]
fn the_bringer_never_waits() {
    for depth in [1, 4, 128] {
        let rig = Rig::new(depth);
        for block in DEEP..BLOCKS {
            rig.begin("write", Op::Write, block, block as u8);
            rig.begin("read", Op::Read, block, 0);
        }
        assert!(rig.try_next().is_err());
        rig.store.open();
        let answers = rig.by_others(2 * (BLOCKS - DEEP) as usize);
        let mut read: Vec<u8> = answers.iter().filter(|a| a.name == "read").map(|a| a.first).collect();
        read.sort_unstable();
        assert!(read.iter().map(|&b| u64::from(b)).eq(DEEP..BLOCKS), "{read:?}");
        rig.end();
    }
}

/// Takes every answer of a lane.
struct Inbox(Sender<(Tag, Result<(), i32>)>);

impl Sink for Inbox {
    fn answers(&self, answers: &mut Vec<Answer>) {
        for a in answers.drain(..) {
            self.0.send((a.tag, a.result.map_err(|e| e.0))).unwrap();
        }
    }
}

/// Nobody's processors are kept awake for a device that takes longer than any wake-up.
#[test]
fn of_turns_nobody_is_told_where_the_device_turns() {
    for (rig, told) in [(Rig::new(1), (1, 1)), (Rig::turning(1), (0, 0))] {
        assert_eq!(rig.server.wakeups().told(), (0, 0));
        rig.server.wakeups().turn(1);
        assert_eq!(rig.server.wakeups().told(), (0, 0), "as long as nobody asks");
        rig.server.tell_of_turns(Wakeups::at("/dev/null".as_ref()));
        rig.server.wakeups().turn(1);
        assert_eq!(rig.server.wakeups().told(), told);
    }
}

/// What comes in one piece is at the device together, as much as it takes, and what follows takes the free places.
#[test]
fn a_drive_that_turns_is_kept_as_full_as_it_may() {
    const DEPTH: usize = 8;
    let rig = Rig::turning(DEPTH);
    let (to, answers) = channel();
    let service: Arc<dyn Service> = rig.server.clone();
    let mut lane = lane_of(&service, Arc::new(Inbox(to)));
    for block in DEEP..DEEP + 20 {
        let extent = Extent::new(block * BLOCK, BLOCK);
        let buffer = AlignedBuf::zeroed(BLOCK as usize);
        let request = ClientRequest {
            connection: service.connect(),
            op: Op::Read,
            extent,
            flags: Flags::default(),
            buffer,
        };
        lane.push(request, [block, 0, 0]);
    }
    lane.run();
    let start = Instant::now();
    while rig.store.deep.load(Ordering::SeqCst) < DEPTH {
        assert!(start.elapsed() < PATIENCE, "{} at the device", rig.store.deep.load(Ordering::SeqCst));
        thread::yield_now();
    }
    assert_eq!(rig.store.deep.load(Ordering::SeqCst), DEPTH, "more than it may have");
    rig.store.open();
    let mut tags: Vec<_> = (0..20).map(|_| answers.recv_timeout(PATIENCE).unwrap()).collect();
    tags.sort_unstable();
    assert!(
        tags.iter().zip(DEEP..).all(|((tag, result), block)| tag[0] == block && result.is_ok()),
        "{tags:?}"
    );
    drop(lane);
    rig.end();
}

/// A thread that could serve others for ever goes back to its input, and nothing is left to nobody.
#[test]
fn after_some_rounds_a_worker_goes_on() {
    const OTHERS: usize = 20;
    let rig = Rig::new(1);
    thread::scope(|scope| {
        let bringer = scope.spawn(|| {
            rig.begin("slow", Op::Read, SLOW, 0);
            thread::current().id()
        });
        let start = Instant::now();
        while rig.store.deep.load(Ordering::SeqCst) == 0 {
            assert!(start.elapsed() < PATIENCE, "the slow read was not tried");
            thread::yield_now();
        }
        // The one place at the device is taken.
        for block in 10..10 + OTHERS as u64 {
            rig.begin("other", Op::Read, block, 1);
        }
        assert!(rig.try_next().is_err());
        rig.store.open();
        let answers = rig.by_others(1 + OTHERS);
        let bringer = bringer.join().unwrap();
        let own = answers.iter().filter(|a| a.by == bringer).count();
        assert!((1..OTHERS / 2).contains(&own), "{own} by the thread that brought one");
        assert!(answers.iter().all(|a| a.first == 0));
    });
    rig.end();
}

/// While the only worker told of a discard, for which nothing was to be done at the device, another client's read was
/// left to it. It woke nobody, since nobody was idle, and the worker went to rest without another look: for up to a second.
#[test]
fn what_is_brought_while_a_worker_answers_is_not_left_lying() {
    let rig = Rig::turning(1);
    let service: Arc<dyn Service> = rig.server.clone();
    let request = |op, block| {
        let len = if op == Op::Read { BLOCK } else { 0 };
        ClientRequest {
            connection: service.connect(),
            op,
            extent: Extent::new(block * BLOCK, BLOCK),
            flags: Flags::default(),
            buffer: AlignedBuf::zeroed(len as usize),
        }
    };
    let (to, ended) = channel();
    let told = to.clone();
    rig.server
        .submit(request(Op::Read, 40), Box::new(move |_, result| told.send(("first", result)).unwrap()));
    let start = Instant::now();
    while rig.store.deep.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < PATIENCE, "the first read was not begun");
        thread::yield_now();
    }
    // The one place at the device is taken: the discard is for the worker.
    let (theirs, told) = (service.clone(), to.clone());
    let read = request(Op::Read, 3);
    rig.server.submit(
        request(Op::Discard, 10),
        Box::new(move |_, result| {
            let brought = thread::spawn(move || {
                let (answered, answers) = channel();
                let mut lane = lane_of(&theirs, Arc::new(Inbox(answered)));
                lane.push(read, [3, 0, 0]);
                lane.run();
                drop(lane);
                answers
            });
            told.send(("discard", result)).unwrap();
            let answers = brought.join().unwrap();
            thread::spawn(move || {
                let (_, result) = answers.recv_timeout(PATIENCE).unwrap();
                to.send(("second", result.map_err(fs2d::service::Errno))).unwrap();
            });
        }),
    );
    rig.store.open();
    for name in ["first", "discard", "second"] {
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), (name, Ok(())));
    }
    rig.end();
}
