//! The file that a volume's trace goes to: made, written by a thread of its own, and ended.
//!
//! Invariants:
//! F1: nothing that is there is written over, least of all what is served.
//! F2: nobody waits for the file under a lock, and whoever ends a trace for no longer than [`Traces::patience`]: a file that
//!     takes nothing any more, as on a server that is gone, holds up no volume's end. [`Traces::cut`] comes before that end,
//!     [`Cut::end`] behind it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::DaemonError;
use crate::runtime;
use crate::server::{Server, TraceRing, parts};

/// Records that may wait for the trace's writer.
const QUEUE: usize = 1 << 16;

/// A guess: what waits is a few MiB at most, and who ends a trace by command waits 10 s for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A file that was not there, and goes again unless it is kept.
pub(crate) struct NewFile {
    pub(crate) file: File,
    path: Option<PathBuf>,
}

impl NewFile {
    /// Keeps F1: never over anything, whatever it is.
    pub(crate) fn create(what: &str, path: &Path) -> Result<NewFile, DaemonError> {
        match File::options().write(true).create_new(true).open(path) {
            Ok(file) => Ok(NewFile { file, path: Some(path.to_owned()) }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(DaemonError::Setting(format!(
                "{what} {}: File exists; remove it or name another",
                path.display()
            ))),
            Err(source) => Err(DaemonError::Io { what: format!("{what} {}", path.display()), source }),
        }
    }

    pub(crate) fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where a trace goes that nobody is there to name anew, as each time that a service manager starts a daemon: to `trace.1`, `trace.2` ...
/// where there is one.
pub fn next_trace(trace: &Path) -> PathBuf {
    if !trace.is_file() {
        return trace.to_owned();
    }
    let numbered = (1_u64..).map(|n| {
        let mut name = trace.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    });
    let mut free = numbered.filter(|path| path.symlink_metadata().is_err());
    free.next().expect("numbers do not end")
}

/// Keeps F1: a trace would be the end of what it is of.
pub(crate) fn refuse_over(trace: &Path, device: &Path, table: Option<&Path>) -> Result<(), DaemonError> {
    let key = runtime::key_of(trace).ok();
    let is = |served: &Path| key.is_some() && runtime::key_of(served).ok() == key;
    let what = match table {
        _ if is(device) => "the volume",
        Some(table) if is(table) => "the volume's table",
        _ => return Ok(()),
    };
    Err(DaemonError::Setting(format!("trace {}: that is {what}; give another file", trace.display())))
}

/// The trace of a served volume, where there is one.
pub(crate) struct Traces {
    now: Mutex<Option<Cut>>,
    /// Of the trace that is or was written last.
    failed: Mutex<Arc<OnceLock<String>>>,
    /// How long a file may take nothing before nobody waits for it.
    pub(crate) patience: Duration,
}

/// A trace; where it is cut off from its volume, nothing is added to what waits for its file.
pub(crate) struct Cut {
    ring: Arc<TraceRing>,
    written: Receiver<io::Result<u64>>,
    failed: Arc<OnceLock<String>>,
    path: PathBuf,
    patience: Duration,
}

impl Traces {
    pub(crate) fn new() -> Traces {
        Traces { now: Mutex::new(None), failed: Mutex::default(), patience: PATIENCE }
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Option<Cut>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to write one.
    ///
    /// # Errors
    /// Where one is being written, or the file takes nothing.
    pub(crate) fn begin(&self, server: &Server, new: NewFile, path: &Path) -> Result<(), DaemonError> {
        let io = |source| DaemonError::Io { what: format!("trace {}", path.display()), source };
        let header = fs2_trace::Header {
            volume_bytes: server.store().size_bytes(),
            block_size: server.with_volume(|v| v.layout().map(|l| l.block_size())),
            start_unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
        };
        let mut writer = fs2_trace::Writer::new(new.file.try_clone().map_err(io)?, header).map_err(io)?;
        let mut now = self.now();
        if let Some(t) = &*now {
            return Err(DaemonError::Setting(format!("a trace is being written to {}", t.path.display())));
        }
        let ring = Arc::new(TraceRing::new(QUEUE));
        let (theirs, failed) = (ring.clone(), Arc::new(OnceLock::new()));
        let (their_failed, named) = (failed.clone(), path.display().to_string());
        let (tell, written) = sync_channel(1);
        std::thread::Builder::new()
            .name("trace".into())
            .spawn(move || {
                let mut records = 0;
                let write = || {
                    theirs.drain(|record| {
                        parts(record).try_for_each(|part| {
                            records += 1;
                            writer.push(&part)
                        })
                    })?;
                    writer.finish().map(drop)
                };
                let written = write().inspect_err(|e| {
                    tracing::error!("trace {named}: {e}; it ends here");
                    let _ = their_failed.set(format!("{named}: {e}"));
                });
                // Whom it is told may have gone (F2).
                let _ = tell.send(written.map(|()| records));
            })
            .map_err(io)?;
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed.clone();
        server.trace_to(Some(ring.tap()));
        *now = Some(Cut { ring, written, failed, path: path.to_owned(), patience: self.patience });
        new.keep();
        Ok(())
    }

    /// Cuts the trace off from its volume; it is still to be ended.
    pub(crate) fn cut(&self, server: &Server) -> Option<Cut> {
        let cut = self.now().take()?;
        server.trace_to(None);
        cut.ring.close();
        Some(cut)
    }

    /// The file a trace is being written to.
    pub(crate) fn path(&self) -> Option<String> {
        self.now().as_ref().filter(|_| self.failed().is_none()).map(|t| t.path.display().to_string())
    }

    /// Which trace could not be written, and why; until another begins.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get().cloned()
    }
}

impl Cut {
    /// Waits until all of it is written; how many records it holds.
    ///
    /// # Errors
    /// What went wrong in writing it, or that its file takes nothing.
    pub(crate) fn end(self) -> Result<u64, DaemonError> {
        let lost = self.ring.lost();
        if lost > 0 {
            tracing::warn!("the trace lacks {lost} accesses: its file is slower than the volume");
        }
        let what = format!("trace {}", self.path.display());
        match self.written.recv_timeout(self.patience) {
            Ok(written) => written.map_err(|source| DaemonError::Io { what, source }),
            Err(RecvTimeoutError::Timeout) => {
                let why = format!(
                    "its file did not take the rest within {} s; the trace ends with what is there",
                    self.patience.as_secs()
                );
                let _ = self.failed.set(format!("{}: {why}", self.path.display()));
                Err(DaemonError::Setting(format!("{what}: {why}")))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(DaemonError::Setting(format!("{what}: its writer panicked")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    use fs2_block::{ConnectionId, Extent, Flags, Op};
    use fs2_store::AlignedBuf;

    use crate::daemon::open;
    use crate::daemon::tests::settings;
    use crate::service::{ClientRequest, Service};

    #[test]
    fn a_trace_is_not_written_over_what_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let [image, link, trace] = ["image", "link", "trace"].map(|name| dir.path().join(name));
        let content = vec![7; 64 << 10];
        std::fs::write(&image, &content).unwrap();
        std::fs::hard_link(&image, &link).unwrap();
        for path in [&image, &link] {
            let e = open(&image, &settings(&format!("--passive --trace {}", path.display()))).err().unwrap();
            assert_eq!(
                e.to_string(),
                format!("trace {}: that is the volume; give another file", path.display())
            );
        }
        std::fs::write(&trace, "earlier").unwrap();
        std::os::unix::fs::symlink(dir.path().join("absent"), dir.path().join("dangling")).unwrap();
        for path in [&*trace, dir.path(), "/dev/null".as_ref(), &dir.path().join("dangling")] {
            let e = open(&image, &settings(&format!("--passive --trace {}", path.display()))).err().unwrap();
            let says = format!("trace {}: File exists; remove it or name another", path.display());
            assert_eq!(e.to_string(), says);
        }
        assert_eq!(std::fs::read(&trace).unwrap(), b"earlier");
        assert_eq!(next_trace(&trace), dir.path().join("trace.1"));
        std::fs::write(dir.path().join("trace.1"), "").unwrap();
        assert_eq!(next_trace(&trace), dir.path().join("trace.2"));
        for path in [dir.path(), "/dev/null".as_ref()] {
            assert_eq!(next_trace(path), path);
        }
        std::fs::remove_file(&trace).unwrap();
        // Of what is not served nothing is left.
        let (t, r) = (trace.display(), dir.path().join("record"));
        assert!(
            open(&image, &settings(&format!("--trace {t} --record {}", r.display()))).is_err(),
            "no ext2"
        );
        assert!(!trace.exists() && !r.exists());
        let served = open(&image, &settings("--passive")).unwrap();
        assert!(served.start_trace(&link).is_err());
        assert!(std::fs::read(&image).unwrap() == content);
        served.start_trace(&trace).unwrap();
        assert_eq!(served.stop_trace().unwrap(), Some(0));
        // Not its end: that would leave a record of the file behind.
        let _ = served.leave(fs2_block::ConnectionId(1));
        let table = refuse_over(&trace, &image, Some(&trace)).unwrap_err().to_string();
        assert!(table.contains("the volume's table"), "{table}");
    }

    /// A pipe that nobody reads, as a file whose server is gone.
    fn stalled() -> (NewFile, OwnedFd) {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        (NewFile { file: File::from(writer), path: None }, reader)
    }

    /// F2: nor a hand-over.
    #[test]
    fn a_file_that_takes_nothing_holds_up_no_end() {
        let (tell, done) = sync_channel(1);
        let ends = std::thread::spawn(move || {
            for way in 0..3 {
                let image = tempfile::NamedTempFile::new().unwrap();
                image.as_file().set_len(1 << 30).unwrap();
                let mut served = open(image.path(), &settings("--passive")).unwrap();
                served.traces.patience = Duration::from_millis(50);
                let (file, _reader) = stalled();
                served.traces.begin(&served.server, file, "stalled".as_ref()).unwrap();
                let connection = served.server.connect();
                for n in 0..4000u64 {
                    let at = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 46;
                    let request = ClientRequest {
                        connection,
                        op: Op::Read,
                        extent: Extent::new(at << 12, 4096),
                        flags: Flags::default(),
                        buffer: AlignedBuf::zeroed(4096),
                    };
                    served.server.call(request).1.unwrap();
                }
                match way {
                    0 => {
                        let e = served.stop_trace().unwrap_err().to_string();
                        assert!(e.contains("did not take the rest"), "{e}");
                    }
                    1 => assert!(served.end().is_some()),
                    // Of a plain device there is nothing to hand over.
                    _ => drop(served.leave(ConnectionId(1))),
                }
                // As `fs2 umount` asks for it.
                let failed = served.status("").trace_failed.expect("it is not complete");
                assert!(failed.starts_with("stalled: its file did not take the rest"), "{failed}");
            }
            tell.send(()).unwrap();
        });
        // Far longer than it takes.
        if done.recv_timeout(Duration::from_secs(120)) != Err(RecvTimeoutError::Timeout) {
            ends.join().unwrap();
            return;
        }
        panic!("an end waits for the trace's file");
    }
}
