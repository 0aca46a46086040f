//! libmount's table of what the kernel does not keep of a mount (`/run/mount/utab`): an entry with `helper=NAME` makes
//! umount(8) call `umount.NAME`. umount(8) removes the entry itself.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

const TABLE: &str = "/run/mount/utab";

/// How long another may have the table's lock: libmount does for as long as it takes to write a file. Anybody may take it, and keep it, as
/// its file can be read. Guess.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Where mount(8) and umount(8) look for helpers.
const HELPERS: &str = "/sbin";

/// Has umount(8) call `umount.NAME` for what is mounted at `dir` from `source`. Does nothing where there is no such helper.
///
/// # Errors
/// Where the table cannot be written; umount(8) then calls no helper.
pub fn remember_helper(source: &Path, dir: &Path, name: &str) -> io::Result<()> {
    if !Path::new(HELPERS).join(format!("umount.{name}")).exists() {
        return Ok(());
    }
    let table = Path::new(TABLE);
    std::fs::create_dir_all(table.parent().unwrap_or(table))?;
    change(table, dir, Some(entry(source, dir, name)))
}

/// Removes what the table has on a directory that is unmounted now. Where that fails the entry stays, of no consequence: it
/// counts only together with a mount of the same source.
pub fn forget_helper(dir: &Path) {
    let table = Path::new(TABLE);
    if table.exists() {
        let _ = change(table, dir, None);
    }
}

fn entry(source: &Path, dir: &Path, name: &str) -> Vec<u8> {
    let mut line = b"SRC=".to_vec();
    escape(source.as_os_str(), &mut line);
    line.extend(b" TARGET=");
    escape(dir.as_os_str(), &mut line);
    line.extend(format!(" ROOT=/ OPTS=helper={name}\n").as_bytes());
    line
}

/// As in mountinfo.
fn escape(path: &OsStr, out: &mut Vec<u8>) {
    for &byte in path.as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => out.extend(format!("\\{byte:03o}").as_bytes()),
            _ => out.push(byte),
        }
    }
}

/// Takes away all entries of `dir` and appends `with`, under the table's lock as libmount takes it.
fn change(table: &Path, dir: &Path, with: Option<Vec<u8>>) -> io::Result<()> {
    let _lock = lock(&table.with_extension("lock"))?;
    let before = match std::fs::read(table) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        before => before?,
    };
    let mut target = b"TARGET=".to_vec();
    escape(dir.as_os_str(), &mut target);
    let is_other = |line: &&[u8]| !line.split(|&b| b == b' ' || b == b'\n').any(|field| field == target);
    let mut after: Vec<u8> =
        before.split_inclusive(|&b| b == b'\n').filter(is_other).flatten().copied().collect();
    after.extend(with.unwrap_or_default());
    if after == before {
        return Ok(());
    }
    let mut new = tempfile::NamedTempFile::new_in(table.parent().unwrap_or(table))?;
    new.write_all(&after)?;
    let readable: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    new.as_file().set_permissions(readable)?;
    new.persist(table).map(drop).map_err(|e| e.error)
}

/// The table's lock, which is not waited for without end.
fn lock(path: &Path) -> io::Result<Flock<File>> {
    let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < until => file = back,
            Err((_, Errno::EWOULDBLOCK)) => {
                let (path, s) = (path.display(), LOCK_PATIENCE.as_secs());
                let what =
                    format!("{path} is held by another process for more than {s} s: see fuser -v {path}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err((_, e)) => return Err(e.into()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go_beside_others() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("utab");
        let read = || std::fs::read_to_string(&table).unwrap();
        let foreign = "SRC=/dev/sda1 TARGET=/srv/a\\040b ROOT=/ OPTS=_netdev\n";
        std::fs::write(&table, foreign).unwrap();
        let (source, target) = (Path::new("/dev/loop7"), Path::new("/srv/a"));
        let add = || change(&table, target, Some(entry(source, target, "fs2"))).unwrap();
        add();
        let ours = "SRC=/dev/loop7 TARGET=/srv/a ROOT=/ OPTS=helper=fs2\n";
        assert_eq!(read(), format!("{foreign}{ours}"));
        // A later mount at the same place replaces it.
        add();
        assert_eq!(read(), format!("{foreign}{ours}"));
        change(&table, Path::new("/srv/a b"), None).unwrap();
        assert_eq!(read(), ours);
        change(&table, target, None).unwrap();
        assert_eq!(read(), "");
    }

    /// Any user could take the lock and keep it: `fs2 mount` and `fs2 umount` did not end.
    #[test]
    fn a_lock_that_another_keeps_is_not_waited_for_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("utab");
        let path = table.with_extension("lock");
        std::fs::write(&path, "").unwrap();
        let held = Flock::lock(File::open(&path).unwrap(), FlockArg::LockExclusive).unwrap();
        let (say, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || say.send(change(&table, Path::new("/srv"), Some(b"x\n".into()))));
        let e = said.recv_timeout(Duration::from_secs(120)).expect("an end").unwrap_err();
        assert!(e.to_string().contains("utab.lock is held by another process"), "{e}");
        drop(held);
        assert!(!dir.path().join("utab").exists());
        change(&dir.path().join("utab"), Path::new("/srv"), Some(b"x\n".into())).unwrap();
    }
}
