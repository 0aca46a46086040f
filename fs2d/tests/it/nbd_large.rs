//! Large writes, whose payloads are received in their place while others of their length are expected: what clients and the
//! image see of them.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fs2_block::{BlockNo, BlockRange, Permille};
use fs2_engine::offline::{CreateOptions, Devices, ReplicateOptions, create, replicate};
use fs2_engine::{AttachOptions, EngineConfig, PolicyKind, Volume};
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};
use fs2_store::{Direct, FileStore, Lock, OpenOptions, Store, StoreIo};
use fs2d::frontend::nbd::codec::wire;
use fs2d::frontend::nbd::{Listen, Options, Server};
use fs2d::server::{Drive, Server as Machine};

use crate::nbd_support::{Client, PATIENCE, eventually};

const BYTES: usize = 8 << 20;
const LARGE: usize = 128 << 10;
/// Where nothing else is written.
const WARM: usize = 6 << 20;

/// A gate that a thread waits at.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }
}

/// A file's store that counts writes.
struct Counting {
    file: FileStore,
    writes: AtomicUsize,
    /// What a write ends with after its first half, or 0.
    errno: AtomicI32,
    gate: Gate,
}

impl Counting {
    fn count(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    fn write(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.gate.pass();
        match self.errno.load(Ordering::SeqCst) {
            0 => self.file.write_at(offset, buf, fua),
            errno => {
                self.file.write_at(offset, &buf[..buf.len() / 2], false).unwrap();
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }
}

impl Store for Counting {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.file)
    }
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        self.write(offset, buf, fua)
    }
    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.file.try_read(offset, buf)
    }
    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        self.write(offset, buf, false).map(|()| true)
    }
    fn tries(&self) -> bool {
        self.file.tries()
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.file.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }
}

struct Rig {
    server: Server,
    machine: Arc<Machine>,
    store: Arc<Counting>,
    path: PathBuf,
    image: std::fs::File,
    _dir: tempfile::TempDir,
}

fn pattern(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|i| (i / 4096 * 31 + i % 509) as u8).collect()
}

/// What tells one write from the others.
fn payload(n: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 997 + i % 13) as u8 ^ n).collect()
}

struct How {
    options: Options,
    listen: Option<Listen>,
    direct: Direct,
    rotational: bool,
    policy: PolicyKind,
}

impl Default for How {
    fn default() -> How {
        How {
            options: Options::default(),
            listen: None,
            direct: Direct::Off,
            rotational: false,
            policy: PolicyKind::None,
        }
    }
}

impl Rig {
    fn new() -> Rig {
        Rig::of(&pattern(0, BYTES), How::default())
    }

    fn of(bytes: &[u8], how: How) -> Rig {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let image = dir.path().join("image");
        std::fs::write(&image, bytes).unwrap();
        let open = OpenOptions { write: true, direct: how.direct, lock: Lock::None, lock_wait: None };
        let store = Arc::new(Counting {
            file: FileStore::open(&image, open).unwrap(),
            writes: AtomicUsize::new(0),
            errno: AtomicI32::new(0),
            gate: Gate::default(),
        });
        let config = EngineConfig { policy: how.policy, paranoid: true, ..EngineConfig::default() };
        let attach = AttachOptions::default();
        let (volume, _) = Volume::attach(&mut StoreIo::new(&*store), None, config, &attach).unwrap();
        let drive = Drive { depth: 32, time_scale: 1.0, host_reserve: 0, rotational: how.rotational };
        let machine = Machine::start(volume, store.clone(), None, drive, "large".into()).unwrap();
        let path = dir.path().join("volume.sock");
        let listen = how.listen.unwrap_or_else(|| Listen::Unix(path.clone()));
        let server = Server::bind(listen, machine.clone(), how.options).unwrap();
        let image = std::fs::File::open(&image).unwrap();
        Rig { server, machine, store, path, image, _dir: dir }
    }

    fn client(&self) -> Client {
        Client::go(&self.path, true)
    }

    /// One whose next payload is received in its place, since one of its length went before.
    fn warm_client(&self) -> Client {
        let mut client = self.client();
        client.write(WARM as u64, &pattern(WARM, LARGE));
        client
    }

    fn count(&self) -> usize {
        self.store.count()
    }

    /// What the image holds.
    fn image(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.image.read_exact_at(&mut bytes, offset as u64).unwrap();
        bytes
    }

    fn no_connections(&self) {
        eventually("all are gone", || self.server.connections() == 0);
    }

    /// Ends it; whatever was taken has been answered or dropped.
    fn end(self) {
        assert_eq!(self.server.shutdown(PATIENCE), 0, "connections that had to be cut");
        self.machine.detach();
    }
}

/// Of the length that is expected and of others, many at a time, FUA too, by whatever socket and to whatever file.
#[test]
fn what_was_written_is_there() {
    let listen = || Some(Listen::Tcp("127.0.0.1:0".parse().unwrap()));
    for how in [
        How::default(),
        How { direct: Direct::Auto, ..How::default() },
        How { rotational: true, ..How::default() },
        How { listen: listen(), ..How::default() },
    ] {
        let rig = Rig::of(&pattern(0, BYTES), how);
        let mut client = match rig.server.tcp_address() {
            Some(address) => Client::go_tcp(address),
            None => rig.client(),
        };
        let lengths = [
            LARGE,
            LARGE,
            160 << 10,
            200 << 10,
            64 << 10,
            64 << 10,
            1 << 20,
            1 << 20,
            LARGE + 512,
            4096,
            4096,
            LARGE,
        ];
        for (n, len) in lengths.into_iter().enumerate() {
            let (offset, bytes) = (n * 1536, payload(n as u8, len));
            let flags = if n % 3 == 0 { wire::CMD_FLAG_FUA } else { 0 };
            assert_eq!(client.call(wire::CMD_WRITE, flags, offset as u64, len as u32, &bytes).error, 0);
            assert!(rig.image(offset, len) == bytes, "{offset}+{len}");
            assert!(client.read(offset as u64, len as u32) == bytes, "{offset}+{len}");
        }
        drop(client);
        rig.end();
    }
}

/// C1: an incomplete request writes nothing, wherever its client left.
#[test]
fn a_client_that_leaves_in_the_middle_writes_nothing() {
    let rig = Rig::new();
    let bytes = payload(9, LARGE);
    let mut whole = 0;
    for sent in [0, 1, 4096, 65_536, 100_000, LARGE - 1] {
        // Also behind one that is whole.
        for warm in [false, true].into_iter().cycle().take(8) {
            let mut client = if warm { rig.warm_client() } else { rig.client() };
            whole += usize::from(warm);
            client.send(wire::CMD_WRITE, 0, 1, 0, LARGE as u32);
            client.stream.write_all(&bytes[..sent]).unwrap();
        }
        rig.no_connections();
        assert!(rig.image(0, LARGE) == pattern(0, LARGE), "after {sent} bytes");
    }
    assert_eq!(rig.count(), whole);
    rig.end();
}

#[test]
fn who_sends_no_more_is_cut() {
    let patience = Some(Duration::from_millis(300));
    let options = Options { patience, ..Options::default() };
    let rig = Rig::of(&pattern(0, BYTES), How { options, ..How::default() });
    let mut idle = rig.warm_client();
    idle.send(wire::CMD_WRITE, 0, 1, 0, LARGE as u32);
    idle.stream.write_all(&payload(1, LARGE - 1)).unwrap();
    rig.no_connections();
    assert_eq!(rig.machine.clients_cut(), 1);
    // Nor does it hold up the end of the server.
    let mut idle = rig.warm_client();
    idle.send(wire::CMD_WRITE, 0, 1, 0, LARGE as u32);
    idle.stream.write_all(&payload(1, 100)).unwrap();
    assert_eq!(rig.server.shutdown(PATIENCE), 0);
    assert!(rig.image(0, LARGE) == pattern(0, LARGE));
    rig.machine.detach();
}

#[test]
fn a_payload_comes_in_small_parts() {
    let rig = Rig::new();
    let mut client = rig.warm_client();
    let mut random = 7u64;
    for n in 0..40 {
        let bytes = payload(n, LARGE);
        client.send(wire::CMD_WRITE, 0, n.into(), u64::from(n) * LARGE as u64, LARGE as u32);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Of some writes all parts are small, of others one in ten.
            let small = n % 2 == 0 || random >> 60 < 2;
            let len = if small { 1 + (random >> 56) as usize } else { 20_000 };
            let (part, left) = rest.split_at(len.min(rest.len()));
            client.stream.write_all(part).unwrap();
            rest = left;
        }
        assert_eq!(client.receive().unwrap().error, 0);
        assert!(rig.image(usize::from(n) * LARGE, LARGE) == bytes, "{n}");
    }
    rig.end();
}

/// The client is told, and its connection goes on.
#[test]
fn what_fails_below_fails() {
    let rig = Rig::new();
    let mut client = rig.warm_client();
    for (errno, told) in [(libc::EIO, 5), (libc::ENOSPC, 28)] {
        rig.store.errno.store(errno, Ordering::SeqCst);
        for n in 0..5 {
            let answer = client.call(wire::CMD_WRITE, 0, 0, LARGE as u32, &payload(n, LARGE));
            assert_eq!(answer.error, told);
        }
        rig.store.errno.store(0, Ordering::SeqCst);
        let bytes = payload(200, LARGE);
        client.write(0, &bytes);
        assert!(client.read(0, LARGE as u32) == bytes);
    }
    let before = rig.count();
    // Beyond the end it is refused, with its payload.
    let answer = client.call(wire::CMD_WRITE, 0, (BYTES - 4096) as u64, LARGE as u32, &payload(3, LARGE));
    assert_ne!(answer.error, 0);
    client.write(0, &payload(4, LARGE));
    assert_eq!(rig.count(), before + 1);
    rig.end();
}

/// Overlapping writes end in the order in which they came; one that waits has its payload with it.
#[test]
fn who_overlaps_waits() {
    let rig = Rig::new();
    let (first, second) = (payload(1, LARGE), payload(2, LARGE));
    for _ in 0..10 {
        let (mut one, mut two) = (rig.warm_client(), rig.warm_client());
        let taken = || rig.machine.with_volume(|v| v.stats().writes);
        let writes = taken();
        rig.store.gate.set(true);
        let before = rig.count();
        one.send(wire::CMD_WRITE, 0, 1, 0, LARGE as u32);
        one.stream.write_all(&first).unwrap();
        eventually("the first is at the file", || rig.count() == before + 1);
        two.send(wire::CMD_WRITE, 0, 2, 64 << 10, LARGE as u32);
        two.stream.write_all(&second).unwrap();
        eventually("the second is taken", || taken() == writes + 2);
        assert_eq!(rig.count(), before + 1, "it waits");
        rig.store.gate.set(false);
        assert_eq!((one.receive().unwrap().error, two.receive().unwrap().error), (0, 0));
        assert!(rig.image(0, 64 << 10) == first[..64 << 10]);
        assert!(rig.image(64 << 10, LARGE) == second);
    }
    rig.end();
}

/// What is read beside a write is the old or the new; what is read after it is the new.
#[test]
fn reads_beside_writes() {
    let rig = Rig::new();
    let stop = AtomicBool::new(false);
    let mut writer = rig.warm_client();
    let fill = |n: u8| vec![n; LARGE];
    writer.write(0, &fill(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut client, mut least) = (rig.client(), 0);
            while !stop.load(Ordering::SeqCst) {
                let bytes = client.read(0, LARGE as u32);
                let (low, high) = (*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap());
                assert!(low >= least, "{low} to {high} after {least}");
                least = high.saturating_sub(1);
            }
        });
        for n in 1..=250 {
            writer.write(0, &fill(n));
            assert!(writer.read(0, LARGE as u32) == fill(n));
        }
        stop.store(true, Ordering::SeqCst);
        reader.join().unwrap();
    });
    rig.end();
}

/// Requests of all sizes, many at a time, in pieces of any size, beside the bytes that must come of them.
#[test]
fn any_mixture() {
    for seed in 1..=6u64 {
        println!("seed {seed}");
        let rig = Rig::new();
        let mut client = rig.client();
        let mut sender = client.stream.try_clone().unwrap();
        let mut random = seed;
        let mut below = move |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let mut known = pattern(0, BYTES);
        let mut stream = Vec::new();
        const REQUESTS: u64 = 300;
        let mut len = 0;
        for n in 0..REQUESTS {
            // Now and then another.
            if n == 0 || below(4) == 0 {
                len =
                    [4096, 16 << 10, 32 << 10, 64 << 10, LARGE, 192 << 10, 300 << 10, 512][below(8) as usize];
            }
            let unit = if below(4) == 0 { 512 } else { 4096 };
            let at = below(((BYTES - len) / unit) as u64) as usize * unit;
            let flags = if below(8) == 0 { wire::CMD_FLAG_FUA } else { 0 };
            let header = fs2d::frontend::nbd::codec::RawRequest {
                flags,
                command: wire::CMD_WRITE,
                cookie: n,
                offset: at as u64,
                length: len as u32,
            };
            stream.extend_from_slice(&header.encode());
            let bytes = payload(n as u8, len);
            stream.extend_from_slice(&bytes);
            known[at..at + len].copy_from_slice(&bytes);
        }
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut rest = &stream[..];
                while !rest.is_empty() {
                    let len = [13, 28, 3000, 20_000, 131_100, 500_000][below(6) as usize].min(rest.len());
                    sender.write_all(&rest[..len]).unwrap();
                    rest = &rest[len..];
                }
            });
            for _ in 0..REQUESTS {
                assert_eq!(client.receive().unwrap().error, 0);
            }
        });
        assert!(rig.image(0, BYTES) == known, "seed {seed}");
        rig.end();
    }
}

/// R1, R3, R4: of metadata the engine sees that nothing changed, and data end what stood for the old content.
#[test]
fn metadata_is_seen_and_copies_end() {
    const BLOCK: usize = 1024;
    let data: Vec<(u32, u16)> = (1100..1228).map(|b| (b, b as u16)).collect();
    let mut image = Plan { shape: Shape::Plain, grain: Grain::SMALL }.make(&data, &[]);
    let options =
        CreateOptions { space: Permille::new(400).unwrap(), volume_id: 7, now_secs: 1, checked: true };
    create(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    let blocks = [BlockRange::new(1100, 1228)];
    let options = ReplicateOptions { blocks: &blocks, near: BlockNo(1300), written_since: false };
    replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    for policy in [PolicyKind::None, PolicyKind::Fs2] {
        let rig = Rig::of(&image, How { policy, ..How::default() });
        let mut client = rig.client();
        let invalidated = || rig.machine.with_volume(|v| v.stats().invalidated);
        client.write(1700 * BLOCK as u64, &[0; LARGE]);
        // The superblock, descriptors, bitmaps and what lies behind them, as they are.
        client.write(0, &image[..LARGE]);
        assert_eq!(invalidated(), 0);
        let bytes = payload(5, LARGE);
        client.write(1100 * BLOCK as u64, &bytes);
        assert!(client.read(1100 * BLOCK as u64, LARGE as u32) == bytes);
        assert_eq!(invalidated(), 128);
        drop(client);
        rig.end();
    }
}
