//! A daemon that kills itself with SIGKILL while it writes a copy, so that a test knows what was in flight:
//! `fs2-killed IMAGE SOCKET REPORT AFTER before|half|after`. It serves IMAGE by NBD on SOCKET with the same engine,
//! server and frontend as `fs2d`; when the copy after AFTER others reaches the store, none, the first half or all
//! of it is written, one line goes to REPORT, and the process is gone. The engine believes the copy to be in
//! flight in all three cases: it was dispatched and is not complete.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fs2_engine::{AttachOptions, EngineConfig, PolicyKind, Standing, Volume};
use fs2_store::{FileStore, Lock, OpenOptions, Store, StoreIo};
use fs2d::frontend::nbd::{self, Listen};
use fs2d::server::{Drive, Server};

/// How much of the copy is written.
#[derive(Clone, Copy)]
enum How {
    Before,
    Half,
    After,
}

struct KillStore {
    inner: FileStore,
    server: OnceLock<Weak<Server>>,
    /// Copies still let through.
    left: AtomicI64,
    how: How,
    report: PathBuf,
}

impl KillStore {
    /// Whether a copy of just these bytes is in flight; nothing else may be there beside it.
    fn is_copy(&self, offset: u64, len: usize) -> bool {
        let Some(server) = self.server.get().and_then(Weak::upgrade) else { return false };
        server.with_volume(|v| {
            let size = v.block_size();
            v.copies_in_flight().any(|r| {
                let e = r.extent(size);
                (e.offset(), e.len()) == (offset, len as u64)
            })
        })
    }

    fn die(&self, offset: u64, buf: &[u8]) -> ! {
        let (written, how) = match self.how {
            How::Before => (0, "before"),
            How::Half => (buf.len() / 2, "half"),
            How::After => (buf.len(), "after"),
        };
        self.inner.write_at(offset, &buf[..written], false).expect("the image takes it");
        let line = format!("{how}: {written} of {} bytes of a copy at {offset}\n", buf.len());
        std::fs::write(&self.report, line).expect("the report takes it");
        let me = nix::unistd::getpid();
        nix::sys::signal::kill(me, nix::sys::signal::Signal::SIGKILL).expect("one may kill oneself");
        loop {
            std::thread::park();
        }
    }
}

impl Store for KillStore {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.inner)
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        if self.is_copy(offset, buf.len()) && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.die(offset, buf);
        }
        self.inner.write_at(offset, buf, fua)
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.inner.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, socket, report, after, how] = &args[..] else {
        eprintln!("usage: fs2-killed IMAGE SOCKET REPORT AFTER before|half|after");
        std::process::exit(1)
    };
    let how = match how.as_str() {
        "before" => How::Before,
        "half" => How::Half,
        _ => How::After,
    };
    let options = OpenOptions {
        write: true,
        lock: Lock::Exclusive,
        lock_wait: Some(Duration::from_secs(30)),
        ..OpenOptions::default()
    };
    let inner = FileStore::open(Path::new(image), options).expect("the image opens");
    let after: i64 = after.parse().expect("a number of copies");
    let store = Arc::new(KillStore {
        inner,
        server: OnceLock::new(),
        left: AtomicI64::new(after),
        how,
        report: PathBuf::from(report),
    });
    let config = EngineConfig {
        policy: PolicyKind::Torture,
        space: fs2_engine_space(),
        seed: after as u64,
        ..EngineConfig::default()
    };
    let (volume, _) = Volume::attach(&mut StoreIo::new(&*store), None, config, &AttachOptions::default())
        .expect("it attaches");
    assert!(matches!(volume.standing(), Standing::Active), "{:?}", volume.standing());
    let drive = Drive { depth: 16, time_scale: 1.0, host_reserve: 0, rotational: false };
    let server = Server::start(volume, store.clone(), None, drive, "a volume".into())
        .expect("its threads can be started");
    store.server.set(Arc::downgrade(&server)).expect("set once");
    let _nbd = nbd::Server::bind(Listen::Unix(socket.into()), server, nbd::Options::default())
        .expect("the socket can be made");
    loop {
        std::thread::park();
    }
}

/// The share of the volume the tests make the table for.
fn fs2_engine_space() -> fs2_block::Permille {
    fs2_block::Permille::new(200).expect("below 1000")
}
