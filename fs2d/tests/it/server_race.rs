//! Many threads at one machine, over every way in and every way down, against bytes that are known.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use fs2_block::{Extent, Flags, Op};
use fs2_engine::{AttachOptions, EngineConfig, PolicyKind, Volume};
use fs2_store::{
    AlignedBuf, Direct, FileStore, Lock, MemStore, OpenOptions, Ring, Store, StoreIo, UringStore,
};
use fs2d::server::{Drive, Server};
use fs2d::service::{Answer, ClientRequest, Completion, Service, Sink, lane_of};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;
/// Each thread's blocks are its own, but for those all of them write.
const THREADS: u64 = 6;
const SHARED: u64 = BLOCKS - THREADS * 8;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Like the one below it, but without tries, or with some that fail: then I/O goes to rings and workers.
struct Slower<S> {
    store: S,
    /// Tries so far, of which two of three fail; `None`: there are none.
    tries: Option<AtomicU64>,
}

impl<S: Store> Slower<S> {
    fn never_quick(store: S) -> Slower<S> {
        Slower { store, tries: None }
    }

    fn moody(store: S) -> Slower<S> {
        Slower { store, tries: Some(AtomicU64::new(0)) }
    }

    fn is_quick(&self) -> bool {
        self.tries.as_ref().is_some_and(|n| n.fetch_add(1, Ordering::Relaxed).is_multiple_of(3))
    }
}

impl<S: Store> Store for Slower<S> {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.store)
    }
    fn ring(&self) -> Option<Box<dyn Ring>> {
        if self.tries.is_some() { None } else { self.store.ring() }
    }
    fn tries(&self) -> bool {
        self.tries.is_some()
    }
    fn try_read(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<bool> {
        // What a try that failed leaves in the buffer is nobody's.
        buf.fill(0x5a);
        if self.is_quick() { self.store.try_read(offset, buf) } else { Ok(false) }
    }
    fn try_write(&self, offset: u64, buf: &[u8]) -> std::io::Result<bool> {
        if self.is_quick() { self.store.try_write(offset, buf) } else { Ok(false) }
    }
    fn size_bytes(&self) -> u64 {
        self.store.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.store.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> std::io::Result<()> {
        self.store.write_at(offset, buf, fua)
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> std::io::Result<()> {
        self.store.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.store.discard(offset, len)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.store.flush()
    }
}

#[derive(Default)]
struct Inbox {
    answers: Mutex<Vec<Answer>>,
    told: Condvar,
}

impl Sink for Inbox {
    fn answers(&self, answers: &mut Vec<Answer>) {
        self.answers.lock().unwrap().append(answers);
        self.told.notify_one();
    }
}

/// A stamp that fills a block: who wrote it, and in which of his writes.
fn fill(buffer: &mut [u8], stamp: u64) {
    buffer.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&stamp.to_le_bytes()));
}

/// The one stamp of a block.
fn stamp_of(block: &[u8]) -> u64 {
    let first = u64::from_le_bytes(block[..8].try_into().unwrap());
    assert!(block.chunks_exact(8).all(|c| c == &block[..8]), "a torn block: {first:x} and others");
    first
}

/// One thread's requests: of its own blocks it knows the content, of the shared ones that a read brings
/// something somebody wrote whole, and never an older write of its own than it saw before.
struct Caller {
    own: u64,
    thread: u64,
    known: Vec<u64>,
    writes: u64,
    random: Random,
}

enum Plan {
    Read { first: u64, blocks: u64, want: Option<Vec<u64>> },
    Change,
}

impl Caller {
    fn new(thread: u64, seed: u64) -> Caller {
        let random = Random(seed ^ (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Caller { own: SHARED + thread * 8, thread, known: vec![0; 8], writes: 0, random }
    }

    fn next(&mut self) -> (Op, Extent, Flags, AlignedBuf, Plan) {
        let shared = self.random.below(4) == 0;
        let (start, room) = if shared { (0, SHARED) } else { (self.own, 8) };
        let blocks = 1 + self.random.below(3);
        let first = start + self.random.below(room - blocks + 1);
        let extent = Extent::new(first * BLOCK, blocks * BLOCK);
        let at = (first - start) as usize..(first - start + blocks) as usize;
        let flags = Flags { fua: self.random.below(8) == 0, ..Flags::default() };
        match self.random.below(16) {
            0 => (Op::Flush, Extent::default(), Flags::default(), AlignedBuf::zeroed(0), Plan::Change),
            1 if !shared => {
                self.known[at].fill(0);
                (Op::WriteZeroes, extent, flags, AlignedBuf::zeroed(0), Plan::Change)
            }
            2..8 => {
                self.writes += 1;
                let stamp = (self.thread + 1) << 32 | self.writes;
                let mut buffer = AlignedBuf::zeroed(extent.len() as usize);
                fill(&mut buffer, stamp);
                if !shared {
                    self.known[at].fill(stamp);
                }
                (Op::Write, extent, flags, buffer, Plan::Change)
            }
            _ => {
                let want = (!shared).then(|| self.known[at].to_vec());
                let plan = Plan::Read { first, blocks, want };
                (Op::Read, extent, Flags::default(), AlignedBuf::zeroed(extent.len() as usize), plan)
            }
        }
    }

    fn check(plan: &Plan, buffer: &[u8]) {
        let Plan::Read { first, blocks, want } = plan else { return };
        let found: Vec<u64> = buffer.chunks_exact(BLOCK as usize).map(stamp_of).collect();
        assert_eq!(found.len() as u64, *blocks);
        if let Some(want) = want {
            assert_eq!(&found, want, "blocks from {first}");
        }
    }
}

/// Brings up to 16 at a time through a lane. Requests of one thread that overlap are answered as if in order.
fn by_lane(server: &Arc<Server>, thread: u64, seed: u64, requests: usize) {
    let service: Arc<dyn Service> = server.clone();
    let inbox = Arc::new(Inbox::default());
    let mut lane = lane_of(&service, inbox.clone());
    let connection = service.connect();
    let mut caller = Caller::new(thread, seed);
    let mut plans: Vec<Option<Plan>> = Vec::new();
    let (mut brought, mut answered) = (0, 0);
    while answered < requests {
        let batch = 1 + caller.random.below(16) as usize;
        for _ in 0..batch.min(requests - brought).min(16 - (brought - answered).min(16)) {
            let (op, extent, flags, buffer, plan) = caller.next();
            lane.push(ClientRequest { connection, op, extent, flags, buffer }, [plans.len() as u64, 1, 2]);
            plans.push(Some(plan));
            brought += 1;
        }
        lane.run();
        if lane.is_pending() && caller.random.below(2) == 0 {
            lane.look();
        } else if lane.is_pending() {
            let nothing: Option<BorrowedFd<'_>> = None;
            assert!(!lane.wait(nothing));
        }
        let mut answers = inbox.answers.lock().unwrap();
        while answers.is_empty() && !lane.is_pending() && answered < brought {
            answers = inbox.told.wait(answers).unwrap();
        }
        for answer in std::mem::take(&mut *answers) {
            assert_eq!((answer.tag[1], answer.tag[2], answer.result), (1, 2, Ok(())));
            let plan = plans[answer.tag[0] as usize].take().expect("answered once");
            Caller::check(&plan, &answer.buffer);
            answered += 1;
        }
    }
}

fn by_call(server: &Arc<Server>, thread: u64, seed: u64, requests: usize) {
    let connection = server.connect();
    let mut caller = Caller::new(thread, seed);
    for _ in 0..requests {
        let (op, extent, flags, buffer, plan) = caller.next();
        let (buffer, result) = server.call(ClientRequest { connection, op, extent, flags, buffer });
        assert_eq!(result, Ok(()));
        Caller::check(&plan, &buffer);
    }
}

/// What brings one request: [`Service::submit`] or [`Service::begin`].
type Bring = fn(&Server, ClientRequest, Completion);

fn one_by_one(bring: Bring, server: &Arc<Server>, thread: u64, seed: u64, requests: usize) {
    let connection = server.connect();
    let mut caller = Caller::new(thread, seed);
    let left = Arc::new((Mutex::new(requests), Condvar::new()));
    for _ in 0..requests {
        let (op, extent, flags, buffer, plan) = caller.next();
        let left = left.clone();
        bring(
            server,
            ClientRequest { connection, op, extent, flags, buffer },
            Box::new(move |buffer, result| {
                assert_eq!(result, Ok(()));
                Caller::check(&plan, &buffer);
                *left.0.lock().unwrap() -= 1;
                left.1.notify_all();
            }),
        );
    }
    let mut n = left.0.lock().unwrap();
    while *n > 0 {
        n = left.1.wait(n).unwrap();
    }
}

fn race(what: &str, store: Arc<dyn Store>, depth: usize, rotational: bool, requests: usize) {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    eprintln!("{what}, depth {depth}: seed {seed}");
    let config = EngineConfig { policy: PolicyKind::None, paranoid: true, ..EngineConfig::default() };
    let options = AttachOptions::default();
    let (volume, _) = Volume::attach(&mut StoreIo::new(&*store), None, config, &options).unwrap();
    let drive = Drive { depth, time_scale: 1.0, host_reserve: 0, rotational };
    let server = Server::start(volume, store, None, drive, what.into()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let server = &server;
            scope.spawn(move || match thread % 4 {
                0 => by_call(server, thread, seed, requests),
                1 => by_lane(server, thread, seed, requests),
                2 => one_by_one(<Server as Service>::submit, server, thread, seed, requests),
                _ => one_by_one(<Server as Service>::begin, server, thread, seed, requests),
            });
        }
    });
    let report = server.detach();
    assert_eq!(report.replicas, 0);
}

fn file(dir: &tempfile::TempDir, direct: Direct) -> FileStore {
    let path = dir.path().join("f");
    std::fs::File::create(&path).unwrap().set_len(BLOCKS * BLOCK).unwrap();
    let options = OpenOptions { write: true, direct, lock: Lock::None, lock_wait: None };
    FileStore::open(path, options).unwrap()
}

#[test]
fn from_memory() {
    for depth in [1, 7, 128] {
        race("memory", Arc::new(MemStore::new(BLOCKS * BLOCK)), depth, false, 600);
    }
}

#[test]
fn partly_from_memory() {
    for depth in [1, 7, 128] {
        let store = Slower::moody(MemStore::new(BLOCKS * BLOCK));
        race("memory and workers", Arc::new(store), depth, false, 300);
    }
}

#[test]
fn by_workers() {
    for depth in [1, 4, 32] {
        race("workers", Arc::new(Slower::never_quick(MemStore::new(BLOCKS * BLOCK))), depth, false, 300);
    }
}

#[test]
fn by_one_dispatcher() {
    race("a dispatcher", Arc::new(Slower::never_quick(MemStore::new(BLOCKS * BLOCK))), 1, true, 300);
}

#[test]
fn by_rings() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for depth in [2, 64] {
        match UringStore::new(file(&dir, Direct::Auto)) {
            Ok(store) => race("rings", Arc::new(Slower::never_quick(store)), depth, false, 150),
            Err((_, e)) => {
                assert!(std::env::var_os("FS2_FORBID_SKIP").is_none(), "no io_uring: {e}");
                return eprintln!("skipped: no io_uring here: {e}");
            }
        }
    }
}

#[test]
fn through_the_page_cache() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    race("page cache", Arc::new(file(&dir, Direct::Off)), 16, false, 300);
}
