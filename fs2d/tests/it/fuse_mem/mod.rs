//! A volume in memory behind the `Service` face, and what a test over FUSE needs around it.

pub(crate) mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use fs2_block::{ConnectionId, Extent, Flags, Op};
use fs2_store::Stretch;
use fs2d::frontend::fuse::{Control, RingKind, Server};
use fs2d::service::{ClientRequest, Completion, Errno, ExportInfo, Service};
use fs2d::wakeups::Wakeups;

/// Bytes of a block of [`MemService`].
pub(crate) const BLOCK: usize = 4096;

/// As [`MemService::fail`]: requests panic.
pub(crate) const PANIC: i32 = i32::MIN;

/// A volume in memory. A punched block is a hole until it is written.
pub(crate) struct MemService {
    state: Mutex<State>,
    info: ExportInfo,
    /// Answered to every request where not 0.
    pub(crate) fail: AtomicI32,
    connections: AtomicU32,
    /// Calls of `disconnect`.
    pub(crate) disconnected: AtomicU32,
    /// Most requests that were inside `submit` at once.
    pub(crate) depth_max: AtomicUsize,
    depth: AtomicUsize,
    /// Requests that were begun.
    pub(crate) begun: AtomicUsize,
    /// Every third request that is begun is answered by a thread of its own.
    pub(crate) elsewhere: AtomicBool,
    /// Reads are kept, not answered, until [`MemService::held`] was asked for them.
    pub(crate) holds: AtomicBool,
    held: Mutex<Vec<(ClientRequest, Completion)>>,
    from_memory: bool,
    /// Is told of turns, where there is one.
    pub(crate) turns: OnceLock<Wakeups>,
    me: Weak<MemService>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    holes: BTreeSet<usize>,
    seen: BTreeMap<Op, u64>,
    last: Option<(Op, Extent, Flags)>,
    clients: BTreeSet<ConnectionId>,
}

impl MemService {
    pub(crate) fn new(size: usize) -> Arc<MemService> {
        MemService::with(size, false)
    }

    /// Where requests are to be begun, not called.
    pub(crate) fn from_memory(size: usize) -> Arc<MemService> {
        MemService::with(size, true)
    }

    fn with(size: usize, from_memory: bool) -> Arc<MemService> {
        let state = State { bytes: vec![0; size], ..State::default() };
        Arc::new_cyclic(|me| MemService {
            state: Mutex::new(state),
            info: ExportInfo {
                size_bytes: size as u64,
                block_bytes: BLOCK as u32,
                rotational: true,
                description: "memory".into(),
            },
            fail: AtomicI32::new(0),
            connections: AtomicU32::new(0),
            disconnected: AtomicU32::new(0),
            depth_max: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            elsewhere: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            held: Mutex::default(),
            from_memory,
            turns: OnceLock::new(),
            me: me.clone(),
        })
    }

    /// How many requests are kept.
    pub(crate) fn holding(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// The kept ones; later ones are answered again.
    pub(crate) fn held(&self) -> Vec<(ClientRequest, Completion)> {
        self.holds.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.held.lock().unwrap())
    }

    /// How many requests of this kind came.
    pub(crate) fn seen(&self, op: Op) -> u64 {
        self.state.lock().unwrap().seen.get(&op).copied().unwrap_or(0)
    }

    /// The last request.
    pub(crate) fn last(&self) -> Option<(Op, Extent, Flags)> {
        self.state.lock().unwrap().last
    }

    /// Connections requests came over.
    pub(crate) fn clients(&self) -> usize {
        self.state.lock().unwrap().clients.len()
    }

    /// A copy of the volume.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state.lock().unwrap().bytes.clone()
    }

    /// Bytes of holes.
    pub(crate) fn hole_bytes(&self) -> usize {
        self.state.lock().unwrap().holes.len() * BLOCK
    }

    /// Does a request and answers it.
    pub(crate) fn answer(&self, mut request: ClientRequest, done: Completion) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        self.depth_max.fetch_max(depth, Ordering::Relaxed);
        let result = self.run(&mut request);
        self.depth.fetch_sub(1, Ordering::Relaxed);
        done(request.buffer, result);
    }

    fn run(&self, request: &mut ClientRequest) -> Result<(), Errno> {
        assert_ne!(self.fail.load(Ordering::Relaxed), PANIC, "planted");
        let mut state = self.state.lock().unwrap();
        let state = &mut *state;
        *state.seen.entry(request.op).or_default() += 1;
        state.last = Some((request.op, request.extent, request.flags));
        state.clients.insert(request.connection);
        match self.fail.load(Ordering::Relaxed) {
            0 => {}
            e => return Err(Errno(e)),
        }
        let (start, end) = (request.extent.offset() as usize, request.extent.end() as usize);
        let size = state.bytes.len();
        let bytes = state.bytes.get_mut(start..end).ok_or(Errno(libc::EINVAL))?;
        assert!(
            matches!(request.op, Op::Read | Op::Write)
                == (request.buffer.len() == bytes.len() && end > start)
        );
        match request.op {
            Op::Read => request.buffer.copy_from_slice(bytes),
            Op::Write => bytes.copy_from_slice(&request.buffer),
            Op::Punch | Op::Discard | Op::WriteZeroes => bytes.fill(0),
            Op::Flush => {}
        }
        if request.op.changes_content() {
            for block in start / BLOCK..end.div_ceil(BLOCK) {
                let whole = start <= block * BLOCK && (block + 1) * BLOCK <= end && end <= size;
                match request.op {
                    Op::Punch if whole => state.holes.insert(block),
                    Op::Write | Op::WriteZeroes => state.holes.remove(&block),
                    _ => false,
                };
            }
        }
        Ok(())
    }
}

impl Service for MemService {
    fn wakeups(&self) -> Wakeups {
        self.turns.get().cloned().unwrap_or_default()
    }

    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    fn connect(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    fn disconnect(&self, _: ConnectionId) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
    }

    fn answers_from_memory(&self) -> bool {
        self.from_memory
    }

    fn begin(&self, request: ClientRequest, done: Completion) {
        let n = self.begun.fetch_add(1, Ordering::Relaxed);
        if n.is_multiple_of(3) && self.elsewhere.load(Ordering::Relaxed) {
            let me = self.me.upgrade().unwrap();
            std::thread::spawn(move || me.submit(request, done));
        } else {
            self.submit(request, done);
        }
    }

    fn submit(&self, request: ClientRequest, done: Completion) {
        if request.op == Op::Read && self.holds.load(Ordering::Relaxed) {
            return self.held.lock().unwrap().push((request, done));
        }
        self.answer(request, done);
    }

    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno> {
        let state = self.state.lock().unwrap();
        let mut out: Vec<Stretch> = Vec::new();
        let mut at = extent.offset() as usize;
        while at < extent.end() as usize {
            let hole = state.holes.contains(&(at / BLOCK));
            let next = ((at / BLOCK + 1) * BLOCK).min(extent.end() as usize);
            let len = (next - at) as u64;
            let full = out.len() == limit;
            match out.last_mut() {
                Some(last) if last.hole == hole => last.len += len,
                _ if full => break,
                _ => out.push(Stretch { len, hole }),
            }
            at = next;
        }
        Ok(out)
    }
}

/// Whether FUSE can be mounted here; says so where not.
pub(crate) fn fuse_is_here() -> bool {
    let here = nix::unistd::geteuid().is_root()
        && std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !here {
        println!("skipped: needs root and /dev/fuse");
    }
    here
}

/// A mount at a directory of its own; both go on drop.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) service: Arc<MemService>,
    _mourner: Mourner,
    // Dropped last, when nothing is mounted on it.
    _dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(size: usize, threads: usize) -> Rig {
        Rig::of(MemService::new(size), threads)
    }

    pub(crate) fn of(service: Arc<MemService>, threads: usize) -> Rig {
        Rig::with(service, threads, RingKind::Off)
    }

    pub(crate) fn with(service: Arc<MemService>, threads: usize, ring: RingKind) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::mount_with(dir.path(), "".as_ref(), service.clone(), threads, ring).unwrap();
        let mourner = Mourner::new(server.fuse_connection().unwrap()).unwrap();
        Rig { server, service, _mourner: mourner, _dir: dir }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.server.file()
    }

    pub(crate) fn dir(&self) -> &Path {
        self._dir.path()
    }
}

/// A process that aborts the FUSE connection when this one was killed: a thread that waits for an
/// answer of a server in its own process can neither die nor let the connection close.
pub(crate) struct Mourner(Child);

impl Mourner {
    fn new(connection: u32) -> io::Result<Mourner> {
        const SCRIPT: &str = r#"
            while :; do
                case "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)" in
                    ''|Z|X) echo 1; exit;;
                esac
                sleep 1
            done"#;
        Command::new("sh")
            .args(["-c", SCRIPT, "sh", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Control::open(connection)?.abort_file()?)
            .spawn()
            .map(Mourner)
    }
}

impl Drop for Mourner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
