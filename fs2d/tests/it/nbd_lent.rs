//! Reads whose bytes nobody copies: the pages of the volume's file go into the client's socket as they are.
//!
//! What is asserted is what clients see, and that it did happen so: a store that counts what it lent.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fs2_engine::{AttachOptions, EngineConfig, PolicyKind, Volume};
use fs2_store::{Direct, FileStore, Lock, OpenOptions, Pipe, Store, StoreIo};
use fs2d::frontend::nbd::codec::wire;
use fs2d::frontend::nbd::{Listen, Options, Server};
use fs2d::server::{Drive, Server as Machine};

use crate::nbd_support::{Client, PATIENCE, eventually};

const BYTES: usize = 8 << 20;
const LARGE: u32 = 128 << 10;

/// A file's store that counts.
struct Counting {
    file: FileStore,
    lent: AtomicUsize,
    read: AtomicUsize,
    /// What is asked for is not in memory.
    cold: AtomicBool,
    /// A lending that ends in the middle.
    broken: AtomicBool,
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
        self.file.write_at(offset, buf, fua)
    }
    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.read.fetch_add(1, Ordering::SeqCst);
        self.file.try_read(offset, buf)
    }
    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        self.file.try_write(offset, buf)
    }
    fn tries(&self) -> bool {
        self.file.tries()
    }
    fn try_lend(&self, offset: u64, len: usize, pipe: &mut Pipe) -> io::Result<bool> {
        if self.cold.load(Ordering::SeqCst) {
            return Ok(false);
        }
        if self.broken.load(Ordering::SeqCst) {
            assert!(self.file.try_lend(offset, len / 2, pipe)?);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let lent = self.file.try_lend(offset, len, pipe)?;
        self.lent.fetch_add(usize::from(lent), Ordering::SeqCst);
        Ok(lent)
    }
    fn lends(&self) -> bool {
        self.file.lends()
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
    image: PathBuf,
    _dir: tempfile::TempDir,
}

fn pattern(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|i| (i / 4096 * 31 + i % 509) as u8).collect()
}

impl Rig {
    /// `None` where this kernel lends nothing.
    fn new(options: Options) -> Option<Rig> {
        Rig::listening(options, None)
    }

    fn listening(options: Options, listen: Option<Listen>) -> Option<Rig> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let image = dir.path().join("image");
        std::fs::write(&image, pattern(0, BYTES)).unwrap();
        let open = OpenOptions { write: true, direct: Direct::Off, lock: Lock::None, lock_wait: None };
        let file = FileStore::open(&image, open).unwrap();
        if !file.lends() {
            assert!(std::env::var_os("FS2_FORBID_SKIP").is_none(), "no cachestat");
            eprintln!(
                "skipped: this kernel does not tell what of a file is in memory (cachestat, since 6.5)"
            );
            return None;
        }
        let count = AtomicUsize::default;
        let store = Arc::new(Counting {
            file,
            lent: count(),
            read: count(),
            cold: false.into(),
            broken: false.into(),
        });
        let config = EngineConfig { policy: PolicyKind::None, paranoid: true, ..EngineConfig::default() };
        let options_of_volume = AttachOptions::default();
        let (volume, _) =
            Volume::attach(&mut StoreIo::new(&*store), None, config, &options_of_volume).unwrap();
        let drive = Drive { depth: 32, time_scale: 1.0, host_reserve: 0, rotational: false };
        let machine = Machine::start(volume, store.clone(), None, drive, "lent".into()).unwrap();
        let path = dir.path().join("volume.sock");
        let listen = listen.unwrap_or_else(|| Listen::Unix(path.clone()));
        let server = Server::bind(listen, machine.clone(), options).unwrap();
        Some(Rig { server, machine, store, path, image, _dir: dir })
    }

    fn client(&self) -> Client {
        Client::go(&self.path, true)
    }

    fn lent(&self) -> usize {
        self.store.lent.load(Ordering::SeqCst)
    }

    /// Ends it; whatever was taken has been answered or dropped.
    fn end(self) {
        assert_eq!(self.server.shutdown(PATIENCE), 0, "connections that had to be cut");
        self.machine.detach();
    }
}

#[test]
fn what_is_lent_is_what_is_there() {
    let Some(rig) = Rig::new(Options::default()) else { return };
    for structured in [true, false] {
        let mut client = Client::go(&rig.path, structured);
        let before = rig.lent();
        for (offset, len) in
            [(0, LARGE), (4096, 64 << 10), (BYTES as u32 - LARGE, LARGE), (512, LARGE), (77, 99_999)]
        {
            assert!(
                client.read(offset.into(), len) == pattern(offset as usize, len as usize),
                "{offset}+{len}"
            );
        }
        assert_eq!(rig.lent() - before, 5);
        // Too small, and too large for a pipe.
        for len in [4096, 32 << 10, 1 << 20] {
            assert!(client.read(8192, len) == pattern(8192, len as usize));
        }
        assert_eq!(rig.lent() - before, 5);
    }
    rig.end();
}

#[test]
fn small_and_large_answers_keep_apart() {
    let Some(rig) = Rig::new(Options::default()) else { return };
    let mut client = rig.client();
    let of = |i: u64| (i * 37 % 1900 * 4096, [LARGE, 4096, 40 << 10, 512, 300 << 10][i as usize % 5]);
    for i in 0..400 {
        let (offset, len) = of(i);
        client.send(wire::CMD_READ, 0, i, offset, len);
        // So many that they fit into the sockets.
        if i >= 16 {
            let answer = client.receive().unwrap();
            let (offset, len) = of(answer.cookie);
            assert_eq!(answer.error, 0);
            assert!(answer.data == pattern(offset as usize, len as usize), "{offset}+{len}");
        }
    }
    assert!(rig.lent() > 60, "{}", rig.lent());
    rig.end();
}

/// It holds up nobody, and more pipes than there are it does not get.
#[test]
fn a_client_that_reads_late() {
    let Some(rig) = Rig::new(Options::default()) else { return };
    let mut late = rig.client();
    for i in 0..100 {
        late.send(wire::CMD_READ, 0, i, i * u64::from(LARGE) / 2, LARGE);
    }
    let reads = || rig.lent() + rig.store.read.load(Ordering::SeqCst);
    eventually("all are read", || reads() == 100);
    // What sockets hold, and 64 pipes.
    assert!((64..90).contains(&rig.lent()), "{}", rig.lent());
    let mut other = rig.client();
    assert!(other.read(0, LARGE) == pattern(0, LARGE as usize));
    for _ in 0..100 {
        let answer = late.receive().unwrap();
        assert!(
            answer.error == 0
                && answer.data == pattern(answer.cookie as usize * LARGE as usize / 2, LARGE as usize)
        );
    }
    let before = rig.lent();
    assert!(late.read(0, LARGE) == pattern(0, LARGE as usize));
    assert_eq!(rig.lent(), before + 1, "pipes came back");
    rig.end();
}

#[test]
fn clients_that_leave_take_no_pipes_along() {
    let Some(rig) = Rig::new(Options::default()) else { return };
    for round in 0..40 {
        let mut client = rig.client();
        for i in 0..24 {
            client.send(wire::CMD_READ, 0, i, i * u64::from(LARGE), LARGE);
        }
        // In the middle of an answer, or before the first.
        if round % 2 == 0 {
            client.receive().unwrap();
            io::Read::read_exact(&mut client.stream, &mut vec![0; 1000]).unwrap();
        }
        drop(client);
    }
    eventually("all are gone", || rig.server.connections() == 0);
    let (mut client, before) = (rig.client(), rig.lent());
    assert!(client.read(0, LARGE) == pattern(0, LARGE as usize));
    assert_eq!(rig.lent(), before + 1);
    rig.end();
}

#[test]
fn who_takes_nothing_is_cut_and_shutdown_waits_for_nobody() {
    let patience = Some(Duration::from_millis(300));
    let Some(rig) = Rig::new(Options { patience, ..Options::default() }) else { return };
    let mut idle = rig.client();
    for i in 0..60 {
        idle.send(wire::CMD_READ, 0, i, 0, LARGE);
    }
    eventually("it is cut", || rig.server.connections() == 0);
    assert_eq!(rig.machine.clients_cut(), 1);
    rig.end();

    let Some(rig) = Rig::new(Options::default()) else { return };
    let mut idle = rig.client();
    for i in 0..60 {
        idle.send(wire::CMD_READ, 0, i, 0, LARGE);
    }
    eventually("all are read", || rig.lent() == 60);
    let start = Instant::now();
    assert_eq!(rig.server.shutdown(Duration::from_millis(100)), 1);
    eventually("its thread is gone", || rig.server.connections() == 0);
    assert!(start.elapsed() < PATIENCE / 2, "the writer sat in the kernel");
    rig.machine.detach();
}

/// A read beside a write of the same bytes has old ones or new ones; one after it has new ones.
#[test]
fn reads_beside_writes() {
    let Some(rig) = Rig::new(Options::default()) else { return };
    let stop = AtomicBool::new(false);
    let mut writer = rig.client();
    let fill = |n: u8| vec![n; LARGE as usize];
    writer.write(0, &fill(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut client, mut least, mut rounds) = (rig.client(), 0, 0);
            while !stop.load(Ordering::SeqCst) || rounds == 0 {
                let bytes = client.read(0, LARGE);
                let (low, high) = (*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap());
                assert!(low >= least, "{low} to {high} after {least}");
                // The write before the newest that was seen had ended when it came.
                least = high.saturating_sub(1);
                rounds += 1;
            }
        });
        for n in 1..=250 {
            writer.write(0, &fill(n));
            assert!(writer.read(0, LARGE) == fill(n), "what was written before");
        }
        stop.store(true, Ordering::SeqCst);
        reader.join().unwrap();
    });
    assert!(rig.lent() > 250);
    rig.end();
}

#[test]
fn holes_and_discarded_blocks_are_zeros() {
    let Some(rig) = Rig::new(Options::default()) else { return };
    let mut client = rig.client();
    client.send(wire::CMD_WRITE_ZEROES, 0, 1, 0, LARGE);
    assert_eq!(client.receive().unwrap().error, 0);
    assert!(client.read(0, LARGE) == vec![0; LARGE as usize]);
    assert!(client.read(4096, LARGE)[..LARGE as usize - 4096] == vec![0; LARGE as usize - 4096]);
    rig.end();
}

#[test]
fn what_cannot_be_lent_is_copied_or_fails_as_ever() {
    let Some(rig) = Rig::new(Options::default()) else { return };
    let mut client = rig.client();
    for (how, flag) in [("cold", &rig.store.cold), ("broken", &rig.store.broken)] {
        flag.store(true, Ordering::SeqCst);
        for _ in 0..100 {
            assert!(client.read(0, LARGE) == pattern(0, LARGE as usize), "{how}");
        }
        flag.store(false, Ordering::SeqCst);
    }
    assert_eq!(rig.lent(), 0);
    // The file is shorter than it was.
    let file = std::fs::OpenOptions::new().write(true).open(&rig.image).unwrap();
    file.set_len(BYTES as u64 - 4096).unwrap();
    let at = BYTES as u64 - u64::from(LARGE);
    assert_eq!(client.error(wire::CMD_READ, 0, at, LARGE), 5);
    file.set_len(BYTES as u64).unwrap();
    let mut want = pattern(at as usize, LARGE as usize - 4096);
    want.extend_from_slice(&[0; 4096]);
    // The first time the new end is not in memory.
    for _ in 0..2 {
        assert!(client.read(at, LARGE) == want, "and the connection goes on");
    }
    assert_eq!(rig.lent(), 1);
    rig.end();
}

#[test]
fn over_tcp_everything_is_copied() {
    let address = "127.0.0.1:0".parse().unwrap();
    let Some(rig) = Rig::listening(Options::default(), Some(Listen::Tcp(address))) else { return };
    let mut client = Client::go_tcp(rig.server.tcp_address().unwrap());
    assert!(client.read(0, LARGE) == pattern(0, LARGE as usize));
    assert_eq!(rig.lent(), 0);
    client.stream.flush().unwrap();
    rig.end();
}
