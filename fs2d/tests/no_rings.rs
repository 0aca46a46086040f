//! A process that gets no ring. In a file of its own: its limit is the whole process's.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fs2_store::{FileStore, OpenOptions, Store, UringStore};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.iter().filter(|&&b| b == b'\n').count(), Ordering::SeqCst);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Each connection asks for one: a client that came again and again filled the log.
#[test]
fn threads_without_a_ring_do_not_fill_the_log() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let store = match UringStore::new(FileStore::open(file.path(), options).unwrap()) {
        Ok(store) => store,
        Err((_, e)) => return eprintln!("skipped: this system has no io_uring for us: {e}"),
    };
    let lines = Lines::default();
    let writer = lines.clone();
    let by = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
    let had = tracing::subscriber::with_default(by, || (0..2000).filter(|_| store.ring().is_some()).count());
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let lines = lines.0.load(Ordering::SeqCst);
    assert_eq!(had, 0);
    assert!((1..1000).contains(&lines), "{lines} lines");
}
