//! The store on rings answers as the others do; its rings hold memory, stripes and order.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use fs2_store::{
    AlignedBuf, Direct, FileStore, Lock, OpenOptions, RingEnd, RingIo, RingOp, Store, Stretch, UringStore,
};
use proptest::prelude::*;

use crate::common::{agree, file_of, scratch, steps};

fn open(path: &Path, direct: Direct) -> Option<UringStore> {
    let options = OpenOptions { write: true, direct, lock: Lock::None, lock_wait: None };
    match UringStore::new(FileStore::open(path, options).unwrap()) {
        Ok(store) => Some(store),
        Err((_, e)) => {
            assert!(std::env::var_os("FS2_FORBID_SKIP").is_none(), "no io_uring: {e}");
            eprintln!("skipped: no io_uring here: {e}");
            None
        }
    }
}

/// A ring seen as a store: each read and write is begun and waited for, by the plain calls where the ring refuses.
struct ByRing(UringStore);

impl ByRing {
    fn run(&self, op: RingOp, offset: u64, buffer: AlignedBuf) -> Result<io::Result<AlignedBuf>, AlignedBuf> {
        let mut ring = self.0.ring().unwrap();
        if let Err(refused) = ring.begin(RingIo { tag: 7, op, offset, buffer }) {
            assert_eq!(ring.pending(), 0);
            return Err(refused.buffer);
        }
        assert_eq!(ring.pending(), 1);
        let mut ended = Vec::new();
        assert!(!ring.wait(None, true, &mut ended));
        let RingEnd { tag, buffer, result } = ended.pop().unwrap();
        assert_eq!((tag, ring.pending()), (7, 0));
        Ok(result.map(|()| buffer))
    }
}

impl Store for ByRing {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.run(RingOp::Read, offset, AlignedBuf::zeroed(buf.len())) {
            Ok(read) => read.map(|b| buf.copy_from_slice(&b)),
            Err(_) => self.0.read_at(offset, buf),
        }
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        match self.run(RingOp::Write { fua }, offset, AlignedBuf::copy_of(buf)) {
            Ok(written) => written.map(drop),
            Err(_) => self.0.write_at(offset, buf, fua),
        }
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.0.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
    fn stretches(&self, offset: u64, len: u64, limit: usize) -> io::Result<Vec<Stretch>> {
        self.0.stretches(offset, len, limit)
    }
}

/// Reads and writes from memory where that is possible.
struct ByTrying(FileStore);

impl Store for ByTrying {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.0.try_read(offset, buf)? { Ok(()) } else { self.0.read_at(offset, buf) }
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        if !fua && self.0.try_write(offset, buf)? { Ok(()) } else { self.0.write_at(offset, buf, fua) }
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.0.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_file_on_rings_is_a_vector(direct: bool, steps in steps(300 * 4096, 40_000, 40)) {
        let dir = scratch();
        let direct = if direct { Direct::Auto } else { Direct::Off };
        let path = file_of(dir.path(), "f", 300 * 4096);
        if let Some(store) = open(&path, direct) {
            agree(&ByRing(store), &mut vec![0; 300 * 4096], &steps);
        }
    }

    #[test]
    fn a_file_from_memory_is_a_vector(steps in steps(999_999, 40_000, 40)) {
        for dir in [scratch(), tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap()] {
            let path = file_of(dir.path(), "f", 999_999);
            let options = OpenOptions { write: true, direct: Direct::Off, ..OpenOptions::default() };
            agree(&ByTrying(FileStore::open(path, options).unwrap()), &mut vec![0; 999_999], &steps);
        }
    }
}

/// More than a ring holds: what it has no room for comes back, and each that was begun ends once.
#[test]
fn a_full_ring_refuses_and_forgets_nothing() {
    let dir = scratch();
    let Some(store) = open(&file_of(dir.path(), "f", 1 << 20), Direct::Auto) else { return };
    let mut ring = store.ring().unwrap();
    let io =
        |n: u64, op| RingIo { tag: n, op, offset: n * 4096, buffer: AlignedBuf::copy_of(&[n as u8; 4096]) };
    let mut begun = 0;
    while begun < 200 && ring.begin(io(begun, RingOp::Write { fua: false })).is_ok() {
        begun += 1;
    }
    assert!((64..200).contains(&begun), "{begun}");
    let mut ended = Vec::new();
    while ring.pending() > 0 {
        ring.wait(None, true, &mut ended);
    }
    let mut tags: Vec<u64> = ended.iter().map(|e| e.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..begun).collect::<Vec<_>>());
    assert!(ended.iter().all(|e| e.result.is_ok() && e.buffer.iter().all(|&b| b == e.tag as u8)));
    ended.clear();
    ring.begin(io(0, RingOp::Read)).unwrap();
    ring.begin(io(begun - 1, RingOp::Read)).unwrap();
    // Dropped with I/O under way: it waits for its end, or the kernel would write freed memory.
    drop(ring);
    let mut buf = [1; 4096];
    store.read_at((begun - 1) * 4096, &mut buf).unwrap();
    assert!(buf.iter().all(|&b| u64::from(b) == begun - 1));
}

#[test]
fn what_is_not_for_a_ring_comes_back() {
    let dir = scratch();
    let Some(store) = open(&file_of(dir.path(), "f", 1 << 20), Direct::Auto) else { return };
    let mut ring = store.ring().unwrap();
    let mut begin =
        |op, offset, len| ring.begin(RingIo { tag: 0, op, offset, buffer: AlignedBuf::zeroed(len) }).is_ok();
    assert!(!begin(RingOp::Write { fua: true }, 4096, 8192), "a file's is of two calls");
    let mut io = |offset, len| begin(RingOp::Write { fua: false }, offset, len);
    assert!(!io(0, 0));
    assert!(!io(1 << 20, 4096), "beyond the end");
    assert!(!io(u64::MAX - 100, 4096));
    if store.file().is_direct() {
        assert!(!io(7, 100), "its edges want reading first");
    }
    assert!(io(4096, 8192));
}

#[test]
fn input_ends_a_wait() {
    let dir = scratch();
    let Some(store) = open(&file_of(dir.path(), "f", 1 << 20), Direct::Auto) else { return };
    let mut ring = store.ring().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut ended = Vec::new();
    assert!(!ring.wait(Some(ours.as_fd()), false, &mut ended), "nothing is pending, nothing waits");
    io::Write::write_all(&mut &theirs, b"x").unwrap();
    let mut seen = false;
    for n in 0..100 {
        ring.begin(RingIo { tag: n, op: RingOp::Read, offset: 0, buffer: AlignedBuf::zeroed(4096) }).unwrap();
        while ring.pending() > 0 {
            seen |= ring.wait(Some(ours.as_fd()), true, &mut ended);
        }
    }
    assert!(seen, "a hundred waits and the byte was never seen");
    assert_eq!(ended.len(), 100);
}

/// Completions that the kernel leaves to the thread's next wait were not taken by who only looks.
#[test]
fn who_looks_without_waiting_finds_what_has_ended() {
    let dir = scratch();
    let Some(store) = open(&file_of(dir.path(), "f", 1 << 20), Direct::Auto) else { return };
    let mut ring = store.ring().unwrap();
    let start = std::time::Instant::now();
    for n in 0..32 {
        let buffer = AlignedBuf::zeroed(64 << 10);
        ring.begin(RingIo { tag: n, op: RingOp::Write { fua: false }, offset: 0, buffer }).unwrap();
        let mut ended = Vec::new();
        while ended.is_empty() {
            assert!(!ring.wait(None, false, &mut ended));
            assert!(start.elapsed().as_secs() < 60, "write {n} does not end");
        }
        assert!(ended[0].tag == n && ended[0].result.is_ok() && ring.pending() == 0);
    }
}
