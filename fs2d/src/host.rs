//! Looks at the space of the file system that holds an image, on a thread of their own: where that stands still, as a network's whose server
//! is gone, such a look waits for as long as it does, and the service manager would take who waits with it for dead.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::server::Server;

/// The looks at one volume's host. The thread ends with them, or with the look that is under way.
pub(crate) struct HostLooks {
    /// `None` where there is no file whose host may be full.
    ask: Option<SyncSender<()>>,
}

impl HostLooks {
    /// # Errors
    /// Where no thread can be started.
    pub(crate) fn at(server: &Arc<Server>) -> io::Result<HostLooks> {
        if !server.store().sparse() {
            return Ok(HostLooks { ask: None });
        }
        let (ask, asked) = sync_channel(1);
        // Whoever ends lets the backing go, whatever a look waits for.
        let server = Arc::downgrade(server);
        let look = move || {
            while let (Ok(()), Some(server)) = (asked.recv(), server.upgrade()) {
                server.look_at_host();
            }
        };
        std::thread::Builder::new().name("host".into()).spawn(look)?;
        Ok(HostLooks { ask: Some(ask) })
    }

    /// Has a look begun, and does not wait for it. Nothing where the one before has not ended.
    pub(crate) fn look(&self) {
        if let Some(ask) = &self.ask {
            let _ = ask.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use fs2_engine::{AttachOptions, EngineConfig, Volume};
    use fs2_store::{MemStore, Store, StoreIo};

    use super::*;
    use crate::server::Drive;

    /// A file whose host has no room, and says so when it is let.
    struct Hung {
        memory: MemStore,
        begun: Mutex<Sender<()>>,
        end: Mutex<Receiver<()>>,
        sparse: AtomicBool,
    }

    impl Store for Hung {
        fn below(&self) -> Option<&dyn Store> {
            Some(&self.memory)
        }
        fn size_bytes(&self) -> u64 {
            self.memory.size_bytes()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.memory.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
            self.memory.write_at(offset, buf, fua)
        }
        fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
            self.memory.write_zeroes(offset, len, no_hole)
        }
        fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
            self.memory.discard(offset, len)
        }
        fn flush(&self) -> io::Result<()> {
            self.memory.flush()
        }
        fn sparse(&self) -> bool {
            self.sparse.load(Ordering::SeqCst)
        }
        fn host_space(&self) -> Option<(u64, u64)> {
            let _ = self.begun.lock().unwrap_or_else(PoisonError::into_inner).send(());
            self.end.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()?;
            Some((0, 1))
        }
    }

    /// systemd's watchdog ended a daemon whose host stood still, with all that programs had not written: the word that it lives came from the
    /// thread that asked.
    #[test]
    fn a_host_that_stands_still_holds_nobody_up() {
        let ((begun, has_begun), (end, ended)) = (channel(), channel());
        let hung = Arc::new(Hung {
            memory: MemStore::new(1 << 20),
            begun: Mutex::new(begun),
            end: Mutex::new(ended),
            sparse: AtomicBool::new(true),
        });
        let store: Arc<dyn Store> = hung.clone();
        let (options, config) = (AttachOptions::default(), EngineConfig::default());
        let (volume, _) = Volume::attach(&mut StoreIo::new(&*store), None, config, &options).unwrap();
        let drive = Drive { depth: 1, time_scale: 1.0, host_reserve: 100, rotational: false };
        let server = Server::start(volume, store, None, drive, "hung".into()).unwrap();
        let (tell, told) = channel();
        let asked = server.clone();
        std::thread::spawn(move || {
            let looks = HostLooks::at(&asked).unwrap();
            looks.look();
            let _ = tell.send(looks);
        });
        // Far longer than it takes.
        let long = Duration::from_secs(20);
        let looks = told.recv_timeout(long).expect("who asks goes on");
        has_begun.recv_timeout(long).expect("somebody looks");
        assert!(!server.with_volume(Volume::is_host_short));
        // Of those that are asked for meanwhile there is one more.
        for _ in 0..10 {
            looks.look();
        }
        for _ in 0..2 {
            end.send(()).unwrap();
        }
        has_begun.recv_timeout(long).unwrap();
        assert!(server.with_volume(Volume::is_host_short), "the first has ended");
        drop((looks, end));
        assert!(has_begun.recv_timeout(Duration::from_millis(20)).is_err());
        hung.sparse.store(false, Ordering::SeqCst);
        assert!(HostLooks::at(&server).unwrap().ask.is_none(), "a device has no host");
        server.detach();
    }
}
