//! What fails again and again is told now and then. In a file of its own: a log is a whole process's.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fs2_block::{Extent, Flags, Op};
use fs2_engine::{AttachOptions, EngineConfig, Volume};
use fs2_store::{AlignedBuf, Fault, FaultKind, FaultStore, FileStore, MemStore, OpenOptions, Store, StoreIo};
use fs2d::server::{Drive, Server};
use fs2d::service::{ClientRequest, Service};

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of a mount lies in memory: a line for each request of a disk that was pulled out filled that.
#[test]
fn a_device_that_is_gone_does_not_fill_the_log() {
    let store = Arc::new(FaultStore::new(MemStore::new(1 << 20)));
    let as_store: Arc<dyn Store> = store.clone();
    let (options, config) = (AttachOptions::default(), EngineConfig::default());
    let (volume, _) = Volume::attach(&mut StoreIo::new(&*as_store), None, config, &options).unwrap();
    let drive = Drive { depth: 2, time_scale: 1.0, host_reserve: 0, rotational: false };
    let server = Server::start(volume, as_store, None, drive, "failing".into()).unwrap();
    let (log, connection) = (Log::default(), server.connect());
    store.plan(Fault::on(&[Op::Read], FaultKind::Error(libc::EIO)));
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let read = || {
        let (extent, buffer) = (Extent::new(0, 4096), AlignedBuf::zeroed(4096));
        let request = ClientRequest { connection, op: Op::Read, extent, flags: Flags::default(), buffer };
        server.call(request).1.is_err()
    };
    let failed = (0..2000).filter(|_| read()).count();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines = log.lines().filter(|line| line.contains("failed below")).count();
    assert_eq!((failed, server.with_volume(|v| v.stats().failed.reads)), (2000, 2000));
    assert!((1..1000).contains(&lines), "{lines} lines");
    server.detach();
}

/// A log that is taken once the volume has answered.
#[derive(Clone)]
struct OnTheVolume(Arc<Server>, Arc<AtomicU32>);

impl Write for OnTheVolume {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (server, (tell, told)) = (self.0.clone(), channel());
        std::thread::spawn(move || tell.send(server.with_volume(Volume::size_bytes)));
        // Far longer than it takes.
        told.recv_timeout(Duration::from_secs(20)).map_err(io::Error::other)?;
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The engine's lock was held for as long as the line took; journald writes to a volume, too.
#[test]
fn who_takes_the_log_may_wait_for_the_volume() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let store: Arc<dyn Store> = Arc::new(FileStore::open(file.path(), options).unwrap());
    let (options, config) = (AttachOptions::default(), EngineConfig::default());
    let (volume, _) = Volume::attach(&mut StoreIo::new(&*store), None, config, &options).unwrap();
    let drive = Drive { depth: 2, time_scale: 1.0, host_reserve: 1000, rotational: false };
    let server = Server::start(volume, store, None, drive, "short of space".into()).unwrap();
    let log = OnTheVolume(server.clone(), Arc::default());
    let (taken, by) = (log.1.clone(), tracing_subscriber::fmt().with_writer(move || log.clone()).finish());
    tracing::subscriber::with_default(by, || server.look_at_host());
    assert_eq!(taken.load(Ordering::SeqCst), 1);
    assert!(server.with_volume(Volume::is_host_short));
    server.detach();
}
