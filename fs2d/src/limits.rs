//! How long a file this process may write (RLIMIT_FSIZE), which a shell's `ulimit -f` or a service manager sets.
//!
//! A write beyond it is answered by EFBIG and, unless that is ignored, by SIGXFSZ, which ends the process below its clients.

use std::path::Path;

use fs2_store::{FileStore, Store};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::error::DaemonError;

/// Takes all that is allowed, and has a write beyond that fail, as any write may. What the system does not let be changed stays.
pub(crate) fn take_all() {
    // SAFETY: no handler is installed.
    if let Err(e) = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) } {
        tracing::warn!("SIGXFSZ cannot be ignored: {e}");
    }
    let raised =
        getrlimit(Resource::RLIMIT_FSIZE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_FSIZE, hard, hard));
    if let Err(e) = raised {
        tracing::warn!("the limit of files' sizes cannot be raised: {e}");
    }
}

/// Refuses a file whose end could not be written; where programs wait for it already, that is only told of.
pub(crate) fn refuse_beyond(path: &Path, file: &FileStore, again: bool) -> Result<(), DaemonError> {
    // Where it is not known, a write will tell.
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_FSIZE) else { return Ok(()) };
    match beyond(path, file.size_bytes(), hard).filter(|_| !file.is_device()) {
        Some(why) if again => tracing::error!("{why}"),
        Some(why) => return Err(DaemonError::Setting(why)),
        None => {}
    }
    Ok(())
}

fn beyond(path: &Path, bytes: u64, limit: u64) -> Option<String> {
    (bytes > limit).then(|| {
        format!(
            "{} has {bytes} bytes, and this process may write no file behind byte {limit} (RLIMIT_FSIZE): raise that limit first, \
             by ulimit -f unlimited or a service's LimitFSIZE=infinity",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_as_long_as_the_limit() {
        let of = |bytes, limit| beyond(Path::new("disk.img"), bytes, limit);
        assert_eq!((of(4096, 4096), of(4096, nix::sys::resource::RLIM_INFINITY)), (None, None));
        let why = of(4097, 4096).unwrap();
        assert!(
            why.starts_with("disk.img has 4097 bytes") && why.contains("byte 4096 (RLIMIT_FSIZE)"),
            "{why}"
        );
    }
}
