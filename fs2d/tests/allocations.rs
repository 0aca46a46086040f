//! A read or a write costs no allocation: neither the thread that brings it nor a worker that does its I/O asks for memory,
//! once as many have been under way at a time.
//!
//! What is counted is how often a thread asks Rust's allocator for memory. Not looked at: what is taken of a read for a copy,
//! writes to metadata or to what has copies, other requests, and what the engine reads or writes for itself.

mod counting;
#[path = "it/nbd_support/mod.rs"]
#[expect(dead_code, reason = "a part is used here")]
mod nbd_support;

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};

use counting::TIMES;
use fs2_block::{BlockNo, BlockRange, ConnectionId, Extent, Flags, Nanos, Op, Permille};
use fs2_engine::offline::{CreateOptions, Devices, ReplicateOptions, create, replicate};
use fs2_engine::{AttachOptions, EngineConfig, Part, PolicyKind, Standing, Volume, Without};
use fs2_sim::glue::Scripted;
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};
use fs2_store::{
    AlignedBuf, Direct, FileStore, Lock, MemStore, OpenOptions, Store, StoreIo, Stretch, UringStore,
};
use fs2d::frontend::nbd::codec::wire;
use fs2d::frontend::nbd::{Listen, Options, Server as Nbd};
use fs2d::server::{Drive, Server};
use fs2d::service::{
    Answer, ClientRequest, Completion, Errno, ExportInfo, Lane, Service, Sink, Tag, lane_of,
};
use nbd_support::{Client, PATIENCE};

const REQUESTS: usize = 1000;

/// A vector grows when more is under way than ever was, which on a busy machine may be late; what every request asks for is
/// asked for in every round.
const ROUNDS: usize = 3;
const BYTES: u64 = 4096;

/// The volume's blocks are of so many bytes; these are its one file's.
const BLOCK: u64 = 1024;
const FILE: std::ops::Range<u32> = 1100..1164;

/// A volume with a file; `copied`: all of the file has copies.
fn image(copied: bool) -> Vec<u8> {
    let data: Vec<(u32, u16)> = FILE.map(|b| (b, b as u16)).collect();
    let mut image = Plan { shape: Shape::Plain, grain: Grain::SMALL }.make(&data, &[]);
    let space = Permille::new(400).unwrap();
    let options = CreateOptions { space, volume_id: 7, now_secs: 1, checked: true };
    create(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    if copied {
        let file = [BlockRange::new(FILE.start, FILE.end)];
        let options = ReplicateOptions { blocks: &file, near: BlockNo(1300), written_since: false };
        replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    }
    image
}

/// Memory whose reads and writes ask for memory so many times.
struct Memory {
    bytes: MemStore,
    asks: usize,
}

impl Memory {
    fn ask(&self) {
        for _ in 0..self.asks {
            std::hint::black_box(vec![0u8; 16]);
        }
    }
}

impl Store for Memory {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.bytes)
    }
    fn tries(&self) -> bool {
        true
    }
    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.read_at(offset, buf).map(|()| true)
    }
    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        self.write_at(offset, buf, false).map(|()| true)
    }
    fn size_bytes(&self) -> u64 {
        self.bytes.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.ask();
        self.bytes.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        self.ask();
        self.bytes.write_at(offset, buf, fua)
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.bytes.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.bytes.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        self.bytes.flush()
    }
    /// None is left: by `host_reserve` copies stop.
    fn host_space(&self) -> Option<(u64, u64)> {
        Some((0, 1000))
    }
}

fn memory(copied: bool, asks: usize) -> Arc<Memory> {
    let bytes = image(copied);
    let store = MemStore::new(bytes.len() as u64);
    store.write_at(0, &bytes, false).unwrap();
    Arc::new(Memory { bytes: store, asks })
}

/// What a volume does with copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    /// Policy `none`.
    Off,
    /// Policy `fs2`, which has nothing to copy or may not.
    Learning,
    /// Copies are read wherever there is one.
    Read,
}

/// A machine that does nothing of its own: no pause is long enough, and copying has stopped.
fn serve(store: Arc<dyn Store>, copies: Copies, rotational: bool) -> Arc<Server> {
    let policy = if copies == Copies::Off { PolicyKind::None } else { PolicyKind::Fs2 };
    let idle_after = Nanos::from_millis(10_000_000);
    // What is read behind a jump, to nowhere, gets a buffer: when somebody's read takes long, which on a busy machine is any.
    // And where all reads take long, originals are read.
    let without = Without::from_iter([Part::Trails, Part::Gate]);
    let config = EngineConfig { policy, idle_after, turns: rotational, without, ..EngineConfig::default() };
    let options = AttachOptions::default();
    let (mut volume, _) = Volume::attach(&mut StoreIo::new(&*store), None, config, &options).unwrap();
    assert_eq!(volume.standing(), &Standing::Active);
    if copies == Copies::Read {
        volume.set_policy(Box::new(Scripted { prefer: true, ..Scripted::default() }));
    }
    // One worker, of which it can be told how often it asked.
    let depth = if rotational { 1 } else { 32 };
    let drive = Drive { depth, time_scale: 1.0, host_reserve: 100, rotational };
    let server = Server::start(volume, store, None, drive, "counted".into()).unwrap();
    server.look_at_host();
    server
}

/// Keeps what was answered, and how often the worker that answered had asked for memory.
struct Kept {
    answers: Mutex<Vec<Answer>>,
    came: Condvar,
    /// The client's thread, which answers some itself and counts by itself.
    client: ThreadId,
    asked: AtomicUsize,
}

impl Sink for Kept {
    fn answers(&self, answers: &mut Vec<Answer>) {
        if thread::current().id() != self.client {
            self.asked.store(TIMES.get(), Ordering::Release);
        }
        self.answers.lock().unwrap().append(answers);
        self.came.notify_one();
    }
}

/// A client on the test's own thread.
struct Brought {
    lane: Box<dyn Lane>,
    sink: Arc<Kept>,
    connection: ConnectionId,
    buffers: Vec<AlignedBuf>,
    next: u64,
}

impl Brought {
    /// Requests of so many bytes, so many at a time.
    fn new(server: &Arc<Server>, bytes: u64, depth: usize) -> Brought {
        let answers = Mutex::new(Vec::with_capacity(depth));
        let client = thread::current().id();
        let sink = Arc::new(Kept { answers, came: Condvar::new(), client, asked: AtomicUsize::new(0) });
        let lane = lane_of(&(server.clone() as Arc<dyn Service>), sink.clone());
        let buffers = (0..depth).map(|_| AlignedBuf::zeroed(bytes as usize)).collect();
        Brought { lane, sink, connection: server.connect(), buffers, next: 0 }
    }

    /// Through the file, again and again.
    fn run(&mut self, op: Op, n: usize) {
        let depth = self.buffers.len();
        for _ in 0..n / depth {
            while let Some(mut buffer) = self.buffers.pop() {
                let bytes = buffer.len() as u64;
                let of_file = u64::from(FILE.end - FILE.start) * BLOCK;
                let offset = u64::from(FILE.start) * BLOCK + self.next * bytes % of_file;
                self.next += 1;
                if op == Op::Write {
                    for (i, pair) in buffer.chunks_mut(2).enumerate() {
                        pair.copy_from_slice(&(((offset + 2 * i as u64) / BLOCK) as u16).to_le_bytes());
                    }
                }
                let (extent, flags) = (Extent::new(offset, bytes), Flags::default());
                let request = ClientRequest { connection: self.connection, op, extent, flags, buffer };
                self.lane.push(request, [offset, 0, 0]);
            }
            self.lane.run();
            while self.lane.is_pending() {
                self.lane.wait(None);
            }
            let answers = self.sink.answers.lock().unwrap();
            let (mut answers, late) =
                self.sink.came.wait_timeout_while(answers, PATIENCE, |a| a.len() < depth).unwrap();
            assert!(!late.timed_out(), "{} of {depth} are answered", answers.len());
            for answer in answers.drain(..) {
                assert_eq!(answer.result, Ok(()));
                let block = (answer.tag[0] / BLOCK) as u16;
                assert_eq!(answer.buffer[..2], block.to_le_bytes(), "{block}");
                self.buffers.push(answer.buffer);
            }
        }
    }

    /// How often this thread and the worker asked for memory for so many: the round of some that asked least. Which of the
    /// two does a request is another matter in each round.
    fn counted(&mut self, op: Op) -> (usize, usize) {
        self.run(op, REQUESTS);
        let rounds = (0..ROUNDS).map(|_| {
            let (own, worker) = (TIMES.get(), self.sink.asked.load(Ordering::Acquire));
            self.run(op, REQUESTS);
            (TIMES.get() - own, self.sink.asked.load(Ordering::Acquire) - worker)
        });
        rounds.min_by_key(|(own, worker)| own + worker).expect("there are some")
    }
}

const DEPTHS: [usize; 2] = [1, 8];

/// Whatever is done with copies, one at a time or several, from memory (`rotational`: by a worker).
fn none_is_asked_for(rotational: bool) {
    for copies in [Copies::Off, Copies::Learning, Copies::Read] {
        for depth in DEPTHS {
            let server = serve(memory(copies != Copies::Off, 0), copies, rotational);
            for op in [Op::Read, Op::Write] {
                let counted = Brought::new(&server, BYTES, depth).counted(op);
                assert_eq!(counted, (0, 0), "{op:?}, copies {copies:?}, {depth} at a time");
            }
            let from_copies = server.with_volume(|v| v.stats().reads_from_replica) as usize;
            match copies {
                Copies::Off => assert_eq!(from_copies, 0),
                Copies::Learning => assert!(from_copies > 0),
                Copies::Read => assert_eq!(from_copies, (1 + ROUNDS) * REQUESTS),
            }
            server.detach();
        }
    }
}

#[test]
fn requests_from_memory_ask_for_none() {
    none_is_asked_for(false);
}

#[test]
fn nor_do_workers() {
    none_is_asked_for(true);
}

/// A copy is read whole and hashed, whatever its client asked for: into memory for the occasion, and from there to the client.
#[test]
fn a_part_of_a_block_of_a_copy_asks_once() {
    for (rotational, depth) in [(false, 1), (false, 8), (true, 1), (true, 8)] {
        let server = serve(memory(true, 0), Copies::Read, rotational);
        let (own, worker) = Brought::new(&server, BLOCK / 2, depth).counted(Op::Read);
        let asked = own + worker;
        assert!(asked == REQUESTS, "rotational {rotational}, {depth} at a time: {own}, {worker}");
        let stats = server.with_volume(|v| (v.stats().reads_from_replica, v.stats().hash_mismatches));
        assert_eq!(stats, (((1 + ROUNDS) * REQUESTS) as u64, 0));
        server.detach();
    }
}

/// The hashes of a copy's blocks, where they are more than four.
#[test]
fn a_large_read_of_a_copy_asks_once() {
    for (blocks, times) in [(4, 0), (8, REQUESTS)] {
        let server = serve(memory(true, 0), Copies::Read, false);
        let counted = Brought::new(&server, blocks * BLOCK, 8).counted(Op::Read);
        assert_eq!(counted.0, times, "{blocks} blocks");
        server.detach();
    }
}

#[test]
fn a_request_that_asks_is_seen() {
    for rotational in [false, true] {
        let server = serve(memory(false, 1), Copies::Off, rotational);
        let (own, worker) = Brought::new(&server, BYTES, 8).counted(Op::Read);
        assert_eq!(own + worker, REQUESTS, "rotational {rotational}: {own}, {worker}");
        server.detach();
    }
}

#[test]
fn requests_of_a_file_ask_for_none() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, image(false)).unwrap();
    for direct in [Direct::Off, Direct::Auto] {
        for depth in DEPTHS {
            let open = OpenOptions { write: true, direct, lock: Lock::None, lock_wait: None };
            let file = FileStore::open(&path, open).unwrap();
            let store: Arc<dyn Store> = match UringStore::new(file) {
                Ok(store) => Arc::new(store),
                Err((file, _)) if direct == Direct::Off => Arc::new(*file),
                Err((_, e)) => {
                    // By workers, of which it cannot be told which one answered.
                    assert!(std::env::var_os("FS2_FORBID_SKIP").is_none(), "no io_uring");
                    eprintln!(
                        "skipped: a file that is not in memory is read by a ring, and there is no io_uring: {e}"
                    );
                    continue;
                }
            };
            let server = serve(store, Copies::Off, false);
            for op in [Op::Read, Op::Write] {
                let counted = Brought::new(&server, BYTES, depth).counted(op);
                assert_eq!(counted, (0, 0), "{op:?}, {direct:?}, {depth} at a time");
            }
            server.detach();
        }
    }
}

/// A server whose lanes tell, when they are run, how often their thread asked for memory.
struct Told {
    server: Arc<Server>,
    asked: Arc<AtomicUsize>,
}

struct Telling {
    lane: Box<dyn Lane>,
    asked: Arc<AtomicUsize>,
}

impl Service for Told {
    fn info(&self) -> ExportInfo {
        self.server.info()
    }
    fn connect(&self) -> ConnectionId {
        self.server.connect()
    }
    fn disconnect(&self, connection: ConnectionId) {
        self.server.disconnect(connection);
    }
    fn submit(&self, request: ClientRequest, done: Completion) {
        self.server.submit(request, done);
    }
    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno> {
        self.server.stretches(extent, limit)
    }
    fn lane(self: Arc<Self>, sink: Arc<dyn Sink>) -> Option<Box<dyn Lane>> {
        let lane = self.server.clone().lane(sink)?;
        Some(Box::new(Telling { lane, asked: self.asked.clone() }))
    }
}

impl Lane for Telling {
    fn push(&mut self, request: ClientRequest, tag: Tag) {
        self.lane.push(request, tag);
    }
    fn run(&mut self) {
        self.asked.store(TIMES.get(), Ordering::Release);
        self.lane.run();
    }
    fn is_pending(&self) -> bool {
        self.lane.is_pending()
    }
    fn look(&mut self) {
        self.lane.look();
    }
    fn wait(&mut self, input: Option<BorrowedFd<'_>>) -> bool {
        self.lane.wait(input)
    }
}

/// From the arrival of a request to the arrival of another, so many later: receiving and answering are in it.
#[test]
fn nor_does_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    for asks in [0, 1] {
        for depth in DEPTHS {
            let server = serve(memory(false, asks), Copies::Off, false);
            let asked = Arc::new(AtomicUsize::new(0));
            let told = Arc::new(Told { server: server.clone(), asked: asked.clone() });
            let path = dir.path().join(format!("{asks}-{depth}.sock"));
            let nbd = Nbd::bind(Listen::Unix(path.clone()), told, Options::default()).unwrap();
            let mut client = Client::go(&path, true);
            let mut run = |command| {
                let payload = if command == wire::CMD_WRITE { vec![7; BYTES as usize] } else { Vec::new() };
                for _ in 0..REQUESTS / depth {
                    for n in 0..depth as u64 {
                        client.send(command, 0, n, u64::from(FILE.start) * BLOCK + n * BYTES, BYTES as u32);
                        client.stream.write_all(&payload).unwrap();
                    }
                    for _ in 0..depth {
                        assert_eq!(client.receive().unwrap().error, 0);
                    }
                }
                asked.load(Ordering::Acquire)
            };
            for command in [wire::CMD_READ, wire::CMD_WRITE] {
                let mut before = run(command);
                let rounds = (0..ROUNDS).map(|_| {
                    let after = run(command);
                    after - std::mem::replace(&mut before, after)
                });
                let counted = rounds.min().expect("there are some");
                // What comes at a time may be begun in two parts, and the second of them is what was told last.
                let exact = asks * REQUESTS;
                assert!(
                    counted.abs_diff(exact) < depth.min(exact + 1),
                    "command {command}, {depth} at a time: {counted}"
                );
            }
            drop(client);
            assert_eq!(nbd.shutdown(PATIENCE), 0);
            server.detach();
        }
    }
}
