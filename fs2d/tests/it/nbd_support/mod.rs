//! A volume in memory and a client that does as it is told, for tests of the NBD server.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use fs2_block::{ConnectionId, Extent, Op};
use fs2_store::Stretch;
use fs2d::frontend::nbd::codec::{RawRequest, wire};
use fs2d::frontend::nbd::{Listen, Options, Server};
use fs2d::service::{ClientRequest, Completion, Errno, ExportInfo, Service};
use fs2d::wakeups::Wakeups;

/// Granularity of holes.
pub(crate) const HOLE: usize = 4096;

/// Fails a test that hangs; far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

type Held = Vec<(ClientRequest, Completion)>;

/// A volume in memory. Requests run inline, or on threads, or wait while it holds them.
pub(crate) struct MemService {
    pub(crate) bytes: RwLock<Vec<u8>>,
    /// Blocks of `HOLE` bytes that were written.
    stored: Mutex<Vec<bool>>,
    next: AtomicU32,
    held: Mutex<Option<Held>>,
    /// Requests so far.
    pub(crate) submitted: AtomicUsize,
    /// Requests that were submitted and not completed, and their buffers' bytes.
    pub(crate) in_flight: AtomicUsize,
    pub(crate) in_flight_max: AtomicUsize,
    pub(crate) bytes_in_flight: AtomicU64,
    pub(crate) bytes_in_flight_max: AtomicU64,
    pub(crate) disconnected: Mutex<Vec<ConnectionId>>,
    /// Clients sent away for doing nothing.
    pub(crate) cut: AtomicUsize,
    /// Operations with FUA or NO_HOLE, as they came.
    pub(crate) flagged: Mutex<Vec<(Op, bool, bool)>>,
    /// Reads at this offset fail.
    pub(crate) bad_offset: u64,
    /// Requests at this offset are dropped without completion.
    pub(crate) lost_offset: u64,
    /// How long a look for holes takes.
    pub(crate) status_takes: Duration,
    /// Looks for holes so far, and whether they wait.
    pub(crate) status_asked: AtomicUsize,
    pub(crate) status_waits: AtomicBool,
    /// Is told of turns.
    pub(crate) turns: Wakeups,
    workers: Option<Mutex<std::sync::mpsc::Sender<(ClientRequest, Completion)>>>,
}

impl MemService {
    pub(crate) fn inline(len: usize) -> Arc<MemService> {
        Arc::new(MemService::new(len))
    }

    /// Requests are run by `threads` others, in any order.
    pub(crate) fn threaded(len: usize, threads: usize) -> Arc<MemService> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut this = MemService::new(len);
        this.workers = Some(Mutex::new(sender));
        let this = Arc::new(this);
        for _ in 0..threads {
            let (receiver, weak) = (receiver.clone(), Arc::downgrade(&this));
            std::thread::spawn(move || {
                loop {
                    let Ok((request, done)) = receiver.lock().unwrap().recv() else { return };
                    let Some(this) = weak.upgrade() else { return };
                    this.run(request, done);
                }
            });
        }
        this
    }

    fn new(len: usize) -> MemService {
        MemService {
            bytes: RwLock::new(vec![0; len]),
            stored: Mutex::new(vec![false; len.div_ceil(HOLE)]),
            next: AtomicU32::new(1),
            held: Mutex::new(None),
            submitted: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            in_flight_max: AtomicUsize::new(0),
            bytes_in_flight: AtomicU64::new(0),
            bytes_in_flight_max: AtomicU64::new(0),
            disconnected: Mutex::default(),
            cut: AtomicUsize::new(0),
            flagged: Mutex::default(),
            bad_offset: u64::MAX,
            lost_offset: u64::MAX,
            status_takes: Duration::ZERO,
            status_asked: AtomicUsize::new(0),
            status_waits: AtomicBool::new(false),
            turns: Wakeups::default(),
            workers: None,
        }
    }

    /// Whoever waits for a client tells, and nothing follows.
    pub(crate) fn told_of_turns(len: usize) -> Arc<MemService> {
        Arc::new(MemService { turns: Wakeups::at(Path::new("/dev/null")), ..MemService::new(len) })
    }

    /// One read offset fails, requests of another get lost.
    pub(crate) fn with_faults(len: usize, bad_offset: u64, lost_offset: u64) -> Arc<MemService> {
        Arc::new(MemService { bad_offset, lost_offset, ..MemService::new(len) })
    }

    /// Looking for holes takes time.
    pub(crate) fn slow_to_tell_holes(len: usize, status_takes: Duration) -> Arc<MemService> {
        Arc::new(MemService { status_takes, ..MemService::new(len) })
    }

    /// From now on requests wait for `release`.
    pub(crate) fn hold(&self) {
        self.held.lock().unwrap().get_or_insert_default();
    }

    pub(crate) fn held(&self) -> usize {
        self.held.lock().unwrap().as_ref().map_or(0, Vec::len)
    }

    /// Runs what was held, newest first, and holds no more.
    pub(crate) fn release(&self) {
        let held = self.held.lock().unwrap().take().unwrap_or_default();
        held.into_iter().rev().for_each(|(request, done)| self.run(request, done));
    }

    fn run(&self, mut request: ClientRequest, done: Completion) {
        let len = request.buffer.len() as u64;
        let result = self.act(&mut request);
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.bytes_in_flight.fetch_sub(len, Ordering::SeqCst);
        if request.extent.offset() == self.lost_offset {
            return;
        }
        done(request.buffer, result);
    }

    fn act(&self, request: &mut ClientRequest) -> Result<(), Errno> {
        let e = request.extent;
        if request.flags.fua || request.flags.no_hole {
            self.flagged.lock().unwrap().push((request.op, request.flags.fua, request.flags.no_hole));
        }
        if e.end() > self.bytes.read().unwrap().len() as u64 {
            return Err(Errno(libc::EINVAL));
        }
        let range = e.offset() as usize..e.end() as usize;
        match request.op {
            Op::Read if e.offset() == self.bad_offset => return Err(Errno(libc::EREMOTEIO)),
            Op::Read => request.buffer.copy_from_slice(&self.bytes.read().unwrap()[range]),
            Op::Write => {
                self.bytes.write().unwrap()[range.clone()].copy_from_slice(&request.buffer);
                self.store(range.start / HOLE..range.end.div_ceil(HOLE), true);
            }
            Op::WriteZeroes | Op::Discard | Op::Punch => {
                self.bytes.write().unwrap()[range.clone()].fill(0);
                self.store(range.start.div_ceil(HOLE)..range.end / HOLE, request.flags.no_hole);
            }
            Op::Flush => {}
        }
        Ok(())
    }

    fn store(&self, blocks: std::ops::Range<usize>, stored: bool) {
        if !blocks.is_empty() {
            self.stored.lock().unwrap()[blocks].fill(stored);
        }
    }
}

impl Service for MemService {
    fn wakeups(&self) -> Wakeups {
        self.turns.clone()
    }

    fn info(&self) -> ExportInfo {
        ExportInfo {
            size_bytes: self.bytes.read().unwrap().len() as u64,
            block_bytes: 4096,
            rotational: true,
            description: "memory".into(),
        }
    }

    fn connect(&self) -> ConnectionId {
        ConnectionId(self.next.fetch_add(1, Ordering::SeqCst))
    }

    fn disconnect(&self, connection: ConnectionId) {
        self.disconnected.lock().unwrap().push(connection);
    }

    fn client_cut(&self) {
        self.cut.fetch_add(1, Ordering::SeqCst);
    }

    fn submit(&self, request: ClientRequest, done: Completion) {
        let len = request.buffer.len() as u64;
        self.submitted.fetch_add(1, Ordering::SeqCst);
        let n = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.in_flight_max.fetch_max(n, Ordering::SeqCst);
        let bytes = self.bytes_in_flight.fetch_add(len, Ordering::SeqCst) + len;
        self.bytes_in_flight_max.fetch_max(bytes, Ordering::SeqCst);
        if let Some(held) = &mut *self.held.lock().unwrap() {
            return held.push((request, done));
        }
        match &self.workers {
            Some(workers) => workers.lock().unwrap().send((request, done)).expect("workers live"),
            None => self.run(request, done),
        }
    }

    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno> {
        self.status_asked.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.status_takes);
        eventually("a look for holes ends", || !self.status_waits.load(Ordering::SeqCst));
        let stored = self.stored.lock().unwrap();
        let mut found: Vec<Stretch> = vec![];
        let mut at = extent.offset();
        while at < extent.end() {
            let block = at / HOLE as u64;
            let len = ((block + 1) * HOLE as u64).min(extent.end()) - at;
            let hole = !stored[block as usize];
            let full = found.len() == limit;
            match found.last_mut() {
                Some(last) if last.hole == hole => last.len += len,
                _ if full => break,
                _ => found.push(Stretch { len, hole }),
            }
            at += len;
        }
        Ok(found)
    }
}

/// A server on a socket in a directory of its own.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(service: Arc<MemService>) -> Bench {
        Bench::with(service, Options::default())
    }

    pub(crate) fn with(service: Arc<MemService>, options: Options) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.sock");
        let server = Server::bind(Listen::Unix(path.clone()), service, options).unwrap();
        Bench { server, path, _dir: dir }
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.path.display())
    }

    /// A client in transmission, with structured replies and block status.
    pub(crate) fn client(&self) -> Client {
        Client::go(&self.path, true)
    }
}

/// Waits until it is so.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A reply, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    /// Data of a read, pairs of block status, or an error's message.
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) structured: bool,
    pub(crate) size: u64,
    pub(crate) flags: u16,
    reads: std::collections::HashMap<u64, u32>,
}

impl Client {
    /// Connected, nothing said.
    pub(crate) fn raw(path: &Path) -> UnixStream {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The greeting read, flags sent.
    pub(crate) fn hello(path: &Path) -> UnixStream {
        Client::greet(Client::raw(path))
    }

    fn greet(mut stream: UnixStream) -> UnixStream {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, *b"NBDMAGICIHAVEOPT\0\x03");
        stream.write_all(&[0, 0, 0, 3]).unwrap();
        stream
    }

    pub(crate) fn go(path: &Path, structured: bool) -> Client {
        Client::start(Client::hello(path), structured)
    }

    /// Over TCP. (The type says Unix; to read, write and close a descriptor that makes no difference.)
    pub(crate) fn go_tcp(address: std::net::SocketAddr) -> Client {
        let stream: std::os::fd::OwnedFd = std::net::TcpStream::connect(address).unwrap().into();
        let stream = UnixStream::from(stream);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::start(Client::greet(stream), true)
    }

    fn start(mut stream: UnixStream, structured: bool) -> Client {
        if structured {
            assert_eq!(ask(&mut stream, wire::OPT_STRUCTURED_REPLY, &[]), [(wire::REP_ACK, vec![])]);
            let mut query = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
            query.extend_from_slice(wire::CONTEXT);
            assert_eq!(ask(&mut stream, wire::OPT_SET_META_CONTEXT, &query).len(), 2);
        }
        let replies = ask(&mut stream, wire::OPT_GO, &[0; 6]);
        assert_eq!(replies.len(), 2, "{replies:?}");
        let info = &replies[0].1;
        let size = u64::from_be_bytes(info[2..10].try_into().unwrap());
        let flags = u16::from_be_bytes(info[10..12].try_into().unwrap());
        Client { stream, structured, size, flags, reads: Default::default() }
    }

    pub(crate) fn send(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        if command == wire::CMD_READ {
            self.reads.insert(cookie, length);
        }
        let header = RawRequest { flags, command, cookie, offset, length }.encode();
        self.stream.write_all(&header).unwrap();
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> io::Result<Answer> {
        let magic = self.u32()?;
        if magic == wire::SIMPLE_REPLY_MAGIC {
            let error = self.u32()?;
            let cookie = self.u64()?;
            let mut data = vec![];
            if let Some(len) = self.reads.remove(&cookie)
                && error == 0
            {
                assert!(!self.structured, "a read was answered by a simple reply");
                data = self.bytes(len)?;
            }
            return Ok(Answer { cookie, error, data });
        }
        assert_eq!(magic, wire::STRUCTURED_REPLY_MAGIC);
        assert!(self.structured);
        let kinds = self.u32()?;
        let (flags, kind) = ((kinds >> 16) as u16, kinds as u16);
        assert_eq!(flags, wire::REPLY_FLAG_DONE);
        let cookie = self.u64()?;
        let len = self.u32()?;
        let mut data = self.bytes(len)?;
        self.reads.remove(&cookie);
        let mut error = 0;
        match kind {
            wire::REPLY_TYPE_OFFSET_DATA => drop(data.drain(..8)),
            wire::REPLY_TYPE_BLOCK_STATUS => {
                assert_eq!(data[..4], wire::CONTEXT_ID.to_be_bytes());
                data.drain(..4);
            }
            wire::REPLY_TYPE_ERROR => {
                error = u32::from_be_bytes(data[..4].try_into().unwrap());
                assert_eq!(usize::from(data[4]) << 8 | usize::from(data[5]), data.len() - 6);
                data.drain(..6);
            }
            _ => panic!("chunk of type {kind}"),
        }
        Ok(Answer { cookie, error, data })
    }

    /// One request and its reply.
    pub(crate) fn call(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> Answer {
        self.send(command, flags, 77, offset, length);
        self.stream.write_all(payload).unwrap();
        let answer = self.receive().unwrap();
        assert_eq!(answer.cookie, 77);
        answer
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let answer = self.call(wire::CMD_READ, 0, offset, length, &[]);
        assert_eq!(answer.error, 0);
        assert_eq!(answer.data.len(), length as usize);
        answer.data
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert_eq!(self.call(wire::CMD_WRITE, 0, offset, bytes.len() as u32, bytes).error, 0);
    }

    /// The error of a request, which must have one.
    pub(crate) fn error(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> u32 {
        let answer = self.call(command, flags, offset, length, &[]);
        assert_ne!(answer.error, 0);
        answer.error
    }

    /// Asserts that the server has closed.
    pub(crate) fn expect_end(mut self) {
        expect_end(&mut self.stream);
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut b = [0; 4];
        self.stream.read_exact(&mut b)?;
        Ok(u32::from_be_bytes(b))
    }

    fn u64(&mut self) -> io::Result<u64> {
        let mut b = [0; 8];
        self.stream.read_exact(&mut b)?;
        Ok(u64::from_be_bytes(b))
    }

    fn bytes(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let mut b = vec![0; len as usize];
        self.stream.read_exact(&mut b)?;
        Ok(b)
    }
}

/// Reads until the server closes, whatever it still says.
pub(crate) fn expect_end(stream: &mut UnixStream) {
    let mut rest = vec![];
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset, "not closed: {e}"),
    }
}

/// Sends an option.
pub(crate) fn send_option(stream: &mut UnixStream, option: u32, data: &[u8]) {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    stream.write_all(&bytes).unwrap();
}

/// Sends an option and takes its replies up to the one that ends them.
pub(crate) fn ask(stream: &mut UnixStream, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    send_option(stream, option, data);
    let mut replies = vec![];
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
        assert_eq!(head[8..12], option.to_be_bytes());
        let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
        let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
        stream.read_exact(&mut data).unwrap();
        replies.push((kind, data));
        if kind == wire::REP_ACK || kind >> 31 == 1 {
            return replies;
        }
    }
}
