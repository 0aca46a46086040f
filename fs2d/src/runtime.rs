//! Files of this boot: control sockets and the stamps by which a foreign writer is noticed.
//!
//! A backing's stamp is in `KEY.stamp` after a clean end, and in `KEY.began.stamp` from the beginning of an active session on: where that is killed,
//! or changes nothing, its end is no reason to believe whoever wrote meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use fs2_store::{Stamp, StampOf, Store};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::makedev;

/// The variable that names the runtime directory.
pub const RUNTIME_DIR: &str = "FS2_RUNTIME_DIR";

/// Where sockets, logs and stamps live: `$FS2_RUNTIME_DIR`, else `/run/fs2` for root, else
/// `$XDG_RUNTIME_DIR/fs2`, else a directory of the user's own in the system's temporary directory. Without links, as the
/// kernel names it: by what lies in it a mount's loop device is known.
pub fn runtime_dir() -> PathBuf {
    let dir = named_dir();
    dir.canonicalize().or_else(|_| std::path::absolute(&dir)).unwrap_or(dir)
}

/// The runtime directory for whoever reads what lies in it and acts on that: only this user can have written it. In the system's temporary
/// directory anybody can have made it first.
///
/// # Errors
/// What the system says of it, `NotFound` where there is none; `PermissionDenied` where it is somebody else's, or others may write to it.
pub fn own_dir() -> io::Result<PathBuf> {
    let (dir, named) = (runtime_dir(), named_dir());
    let user = nix::unistd::geteuid().as_raw();
    let meta = std::fs::metadata(&dir)?;
    let link =
        std::fs::symlink_metadata(&named).ok().filter(std::fs::Metadata::is_symlink).map(|link| link.uid());
    let Some(why) = not_own(user, meta.uid(), meta.mode(), link) else { return Ok(dir) };
    let whose = if link.is_some() { &named } else { &dir };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {why}", whose.display())))
}

/// Why a directory of this owner and mode, named by a link of that owner, may hold others' words, and what to do.
fn not_own(user: u32, owner: u32, mode: u32, link: Option<u32>) -> Option<String> {
    let another = "set FS2_RUNTIME_DIR to another place";
    if let Some(link) = link.filter(|link| ![user, 0].contains(link)) {
        return Some(format!("it is a link of user {link}'s; remove it, or {another}"));
    }
    if owner != user {
        return Some(format!(
            "it belongs to user {owner}, and nothing in it is believed; remove it, or {another}; a daemon of that user's is asked by \
             fs2 status --control SOCKET"
        ));
    }
    let mode = mode & 0o7777;
    (mode & 0o022 != 0).then(|| {
        format!(
            "others may write to it (mode {mode:04o}), and nothing in it is believed; see what lies in it, then chmod go-w, or {another}"
        )
    })
}

/// What to add where no volume is found: that the runtime directory cannot be read, or that others' daemons have other directories. Empty
/// for root, and where [`RUNTIME_DIR`] says which.
pub fn whose_are_seen() -> String {
    match unreadable() {
        Some(why) => format!("; {why}"),
        None => seen_by(
            nix::unistd::geteuid().is_root(),
            std::env::var_os(RUNTIME_DIR).is_some_and(|d| !d.is_empty()),
        )
        .to_owned(),
    }
}

/// Why nothing is seen of the volumes that there may be, and what to do.
pub fn unreadable() -> Option<String> {
    let dir = runtime_dir();
    let Err(e) = std::fs::read_dir(&dir) else {
        return own_dir().err().map(|e| format!("the runtime directory {e}"));
    };
    if e.kind() == io::ErrorKind::NotFound {
        return None;
    }
    let next = if e.kind() == io::ErrorKind::PermissionDenied {
        "; it is for root, or for the user whose it is"
    } else {
        ""
    };
    Some(format!("the runtime directory {}: {e}{next}", dir.display()))
}

fn seen_by(root: bool, named: bool) -> &'static str {
    if root || named {
        ""
    } else {
        "; only this user's volumes are seen here, and what root mounted, by root"
    }
}

fn named_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os(RUNTIME_DIR).filter(|d| !d.is_empty()) {
        return dir.into();
    }
    let uid = nix::unistd::geteuid();
    if uid.is_root() {
        return "/run/fs2".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()) {
        Some(dir) => Path::new(&dir).join("fs2"),
        None => std::env::temp_dir().join(format!("fs2-{uid}")),
    }
}

/// Makes the runtime directory, for its owner alone.
///
/// # Errors
/// What the system says; `PermissionDenied` as [`own_dir`] has it.
pub fn make_runtime_dir() -> io::Result<PathBuf> {
    let dir = runtime_dir();
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", dir.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(named)?;
    own_dir()
}

/// A name for a backing that is the same however it was reached: device number, or file system and
/// inode.
///
/// # Errors
/// What the system says of the path.
pub fn key_of(path: &Path) -> io::Result<String> {
    let m = std::fs::metadata(path)?;
    Ok(match m.rdev() {
        0 => format!("file-{}-{}", m.dev(), m.ino()),
        dev => format!("dev-{dev}"),
    })
}

fn stamp_file(key: &str) -> PathBuf {
    runtime_dir().join(format!("{key}.stamp"))
}

/// Where the stamp of an active session's beginning is kept.
fn began_file(stamp: &Path) -> PathBuf {
    stamp.with_extension("began.stamp")
}

/// The file of a stamp by what it is of, as [`key_of`] names that.
fn stamp_file_of(stamp: &Stamp) -> PathBuf {
    stamp_file(&match stamp.of {
        StampOf::File { dev, ino, .. } => format!("file-{dev}-{ino}"),
        StampOf::Device { major, minor, .. } => format!("dev-{}", makedev(major.into(), minor.into())),
    })
}

/// What a stamp of this boot says now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// There is none.
    Unknown,
    /// Nobody wrote.
    Same,
    /// Another disk or loop device has the name, or the same once more.
    OtherDisk,
    Written,
}

/// Whether the backing was written since a daemon of this boot left it cleanly, or began a session that it did not end, by whatever way
/// leads to it. Where nothing is known (another boot, another machine), it was not; where what is known cannot be read, it was.
pub fn written_since(store: &dyn Store) -> bool {
    let said = |now: &Stamp| {
        let file = stamp_file_of(now);
        match since(&file, now) {
            Since::Unknown => since(&began_file(&file), now),
            said => said,
        }
    };
    written(store.stamp().as_ref().map(said), &store.stamps_below().iter().map(said).collect::<Vec<_>>())
}

/// By what is said of a backing, and of what is below it, down to the file where a loop device has all of one.
fn written(itself: Option<Since>, below: &[Since]) -> bool {
    // Whoever wrote through the loop device wrote the file: it says more than that the device was set up anew. One that was not served is
    // another file.
    let by_the_file = matches!(below.last(), Some(Since::Same | Since::Unknown));
    itself.iter().chain(below).any(|since| match since {
        Since::Unknown | Since::Same => false,
        Since::OtherDisk => !by_the_file,
        Since::Written => true,
    })
}

fn since(file: &Path, now: &Stamp) -> Since {
    let line = match std::fs::read_to_string(file) {
        Ok(line) => line,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Since::Unknown;
        }
        Err(_) => return Since::Written,
    };
    let Some(then) = Stamp::parse(line.trim()) else { return Since::Written };
    match (then.of, now.of) {
        _ if then.boot_id != now.boot_id => Since::Unknown,
        (then, now) if then == now => Since::Same,
        (StampOf::Device { diskseq: then, .. }, StampOf::Device { diskseq: now, .. }) if then != now => {
            Since::OtherDisk
        }
        // That one is gone, and this one has its number: a copy of an image, say. Nothing is known of it.
        (StampOf::File { made_ns: then, .. }, StampOf::File { made_ns: now, .. })
            if then != now && then.min(now) != 0 =>
        {
            Since::Unknown
        }
        // As an FS2 noted it that did not look when a file was made.
        (then @ StampOf::File { made_ns: 0, .. }, now) if then == without_made(now) => Since::Same,
        _ => Since::Written,
    }
}

fn without_made(of: StampOf) -> StampOf {
    match of {
        StampOf::File { dev, ino, size, ctime_ns, mtime_ns, .. } => {
            StampOf::File { dev, ino, size, ctime_ns, mtime_ns, made_ns: 0 }
        }
        device => device,
    }
}

/// Whether a daemon of this boot has left such a record.
pub fn has_stamp(path: &Path) -> bool {
    key_of(path).is_ok_and(|key| stamp_file(&key).exists())
}

/// The same by whatever way leads to the backing.
pub fn has_any_stamp(path: &Path, store: &dyn Store) -> bool {
    has_stamp(path) || store.stamps_below().iter().any(|stamp| stamp_file_of(stamp).exists())
}

/// The stamps of a backing as it is now: its own, and those of what is below it.
pub fn stamps(store: &dyn Store) -> Vec<Stamp> {
    store.stamp().into_iter().chain(store.stamps_below().iter().cloned()).collect()
}

/// Remembers the backing's state at a clean end, after the last flush, by whatever way leads to it.
///
/// # Errors
/// What the system says, as where no room is left; the backing counts as written then.
pub fn remember_stamp(store: &dyn Store) -> io::Result<()> {
    make_runtime_dir()?;
    each(&stamps(store), |file, stamp| {
        let kept = keep(file, stamp);
        remove(&began_file(file)).and(kept)
    })
}

/// The same of the beginning of an active session, whose stamps these are: the backing changes from then on, and one of before would speak
/// against it.
///
/// # Errors
/// As [`remember_stamp`].
pub fn begin_stamp(began: &[Stamp]) -> io::Result<()> {
    make_runtime_dir()?;
    each(began, |file, stamp| {
        let kept = keep(&began_file(file), stamp);
        // In any case: one that is there means a clean end.
        remove(file).and(kept)
    })
}

/// The end of a session that has changed nothing: what was at its beginning counts, for whoever wrote since was somebody else.
///
/// # Errors
/// As [`remember_stamp`].
pub fn begun_stamp_stands(store: &dyn Store) -> io::Result<()> {
    each(&stamps(store), |file, stamp| match std::fs::rename(began_file(file), file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => keep(file, stamp),
        renamed => renamed,
    })
}

/// Forgets it, by whatever way leads to the backing: what a daemon knew of it is no longer so, and no copy stands.
///
/// # Errors
/// What the system says; that there is none is no error.
pub fn forget_stamp(store: &dyn Store) -> io::Result<()> {
    each(&stamps(store), |file, _| remove(file).and(remove(&began_file(file))))
}

/// Does something with each stamp and its file. Not by a path: what was opened may have another name meanwhile, and its name something else.
fn each(stamps: &[Stamp], each: impl Fn(&Path, &Stamp) -> io::Result<()>) -> io::Result<()> {
    stamps.iter().map(|stamp| each(&stamp_file_of(stamp), stamp)).fold(Ok(()), Result::and)
}

/// A stamp is there whole, or is empty and speaks against the backing: without any a foreign writer would go unnoticed.
fn keep(file: &Path, stamp: &Stamp) -> io::Result<()> {
    let new = file.with_extension("stamp.new");
    std::fs::write(&new, stamp.to_line()).and_then(|()| std::fs::rename(&new, file)).inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
        // Takes no room for data.
        let _ = File::create(file);
    })
}

/// Where it is remembered that a flush of a backing failed below programs that use the volume: the kernel tells of it once, and a daemon that
/// takes over would call durable what is lost.
#[derive(Debug)]
pub struct LostFile(PathBuf);

impl LostFile {
    /// That of what the path leads to now: to be asked for as it is opened.
    ///
    /// # Errors
    /// What the system says of the path.
    pub fn of(path: &Path) -> io::Result<LostFile> {
        Ok(LostFile(runtime_dir().join(format!("{}.lost", key_of(path)?))))
    }

    /// Remembers it.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self) -> io::Result<()> {
        make_runtime_dir()?;
        std::fs::write(&self.0, "a flush failed\n")
    }
}

/// Whether that happened below a mount that a daemon goes on with.
pub fn is_lost(path: &Path) -> bool {
    LostFile::of(path).is_ok_and(|file| file.0.exists())
}

/// Forgets it: nobody goes on with what was mounted then.
///
/// # Errors
/// What the system says; that there is none is no error.
pub fn forget_lost(path: &Path) -> io::Result<()> {
    remove(&LostFile::of(path)?.0)
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The right to end the daemon of a mount, by the path of its record; let go on drop. Whoever has it ends the daemon and clears
/// the record away: `fs2 umount`, the daemon itself or its supervisor when the last user is gone, or the next mount. Who mounts has it
/// until that is done.
#[derive(Debug)]
pub struct Ending(Flock<File>);

impl Ending {
    /// `None` where another has it.
    fn of(record: &Path) -> io::Result<Option<Ending>> {
        // The log is written to by one session, and its inode never changes meanwhile; a record is replaced.
        let path = record.with_extension("log");
        loop {
            let log = File::options().append(true).create(true).open(&path);
            let log = log.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
            let lock = match Flock::lock(log, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => lock,
                Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
                Err((_, e)) => return Err(e.into()),
            };
            // Who had it may have taken the file away with the mount.
            let ending = Ending(lock);
            if ending.is_of(record) {
                return Ok(Some(ending));
            }
        }
    }

    /// Whether the log that stands for the right is there still. Where it was cleared away with a mount, a later log is another's.
    pub fn is_of(&self, record: &Path) -> bool {
        let there = std::fs::metadata(record.with_extension("log"));
        self.0.metadata().is_ok_and(|locked| there.is_ok_and(|there| there.ino() == locked.ino()))
    }
}

/// Takes the right to end the daemon of a mount; `None` where another has it.
///
/// # Errors
/// `NotFound` where the mount has ended; what the system says.
pub fn begin_ending(record: &Path) -> io::Result<Option<Ending>> {
    std::fs::metadata(record)?;
    let ending = Ending::of(record)?;
    // Who had it may have ended the mount.
    std::fs::metadata(record).map(|_| ending)
}

/// Takes that right before there is a record, to mount; `None` where another has it. The log is empty then: it tells of one session.
///
/// # Errors
/// What the system says.
pub fn begin_mounting(record: &Path) -> io::Result<Option<Ending>> {
    let Some(mounting) = Ending::of(record)? else { return Ok(None) };
    mounting.0.set_len(0)?;
    Ok(Some(mounting))
}

/// Takes that right where a mount was begun and given up, as by a signal that nobody can catch: no record tells of it, and nobody is about
/// to write one.
pub(crate) fn begin_ending_unmounted(record: &Path) -> Option<Ending> {
    let unknown = || std::fs::metadata(record).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    Some(record).filter(|_| unknown())?;
    // Who mounts writes the record and lets go then.
    Ending::of(record).ok().flatten().filter(|_| unknown())
}

/// Removes what a FUSE mount left in the runtime directory; the log stays where something is to be read in it.
pub(crate) fn forget_mount(record: &Path, clean: bool) {
    if clean {
        let _ = std::fs::remove_file(record.with_extension("log"));
    }
    let _ = std::fs::remove_dir(record.with_extension("fuse"));
    let _ = std::fs::remove_file(record);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_only_their_own_is_told() {
        let told = "only this user's volumes are seen";
        for (root, named) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(seen_by(root, named).contains(told), !root && !named);
        }
    }

    /// Anybody could make the directory in /tmp, and a record in it that named another's files, which `fs2 status` removed.
    #[test]
    fn a_directory_that_others_may_have_written_to_is_not_believed() {
        for (user, owner, mode, link) in [
            (1000, 1000, 0o40700, None),
            (1000, 1000, 0o40755, Some(1000)),
            (1000, 1000, 0o40700, Some(0)),
            (0, 0, 0o40755, Some(0)),
        ] {
            assert_eq!(not_own(user, owner, mode, link), None);
        }
        for (user, owner, mode, link, says) in [
            (1000, 1001, 0o40700, None, "belongs to user 1001"),
            (1000, 0, 0o40755, None, "belongs to user 0"),
            (0, 1000, 0o40700, None, "belongs to user 1000"),
            (1000, 1000, 0o40775, None, "(mode 0775)"),
            (0, 0, 0o41777, None, "(mode 1777)"),
            (1000, 1000, 0o40700, Some(1001), "a link of user 1001's"),
        ] {
            let why = not_own(user, owner, mode, link).unwrap();
            assert!(why.contains(says) && why.contains("FS2_RUNTIME_DIR"), "{why}");
        }
    }

    /// It was written in place: on a full file system it was empty, and that was taken for one that had never been there.
    #[test]
    fn a_stamp_that_cannot_be_kept_or_read_speaks_against_the_backing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file-1-2.stamp");
        let stamp = |boot: &str, size: u64| {
            let line = format!("stamp1 boot={boot} kind=file dev=1 ino=2 size={size} ctime_ns=4 mtime_ns=5");
            Stamp::parse(&line).unwrap()
        };
        let now = stamp("a", 3);
        assert_eq!(since(&file, &now), Since::Unknown);
        keep(&file, &stamp("a", 4)).unwrap();
        assert_eq!(since(&file, &now), Since::Written);
        keep(&file, &stamp("b", 4)).unwrap();
        assert_eq!(since(&file, &now), Since::Unknown, "of another boot");
        keep(&file, &now).unwrap();
        assert_eq!(since(&file, &now), Since::Same);
        let all = || std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(all(), 1);
        for odd in [&b""[..], b"stamp1 boot=a kind=file dev=1", b"\xff"] {
            std::fs::write(&file, odd).unwrap();
            assert_eq!(since(&file, &now), Since::Written, "{odd:?}");
        }
        // What is to become the stamp cannot be written.
        let in_the_way = dir.path().join("file-1-2.stamp.new");
        for before in [Some(&now), None] {
            match before {
                Some(before) => keep(&file, before).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            std::fs::create_dir(&in_the_way).unwrap();
            assert!(keep(&file, &now).is_err() && since(&file, &now) == Since::Written, "{before:?}");
            std::fs::remove_dir(&in_the_way).unwrap();
        }
    }

    /// On ext4 and xfs the next file often has the number of the last that was deleted: a copy of an image was taken for that one, written
    /// by others, and lost its mark.
    #[test]
    fn another_file_of_the_same_number_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file-1-2.stamp");
        let stamp = |size: u64, made: &str| {
            let line = format!("stamp1 boot=a kind=file dev=1 ino=2 size={size} ctime_ns=4 mtime_ns=5{made}");
            Stamp::parse(&line).unwrap()
        };
        keep(&file, &stamp(3, " made_ns=9")).unwrap();
        let said =
            [(3, " made_ns=9"), (4, " made_ns=9"), (3, " made_ns=8"), (4, " made_ns=8"), (3, ""), (4, "")];
        let said = said.map(|(size, made)| since(&file, &stamp(size, made)));
        use Since::{Same, Unknown, Written};
        assert_eq!(said, [Same, Written, Unknown, Unknown, Written, Written]);
        // What an FS2 of before has kept does not say when it was made.
        keep(&file, &stamp(3, "")).unwrap();
        let said =
            [(3, " made_ns=9"), (4, " made_ns=9")].map(|(size, made)| since(&file, &stamp(size, made)));
        assert_eq!(said, [Same, Written]);
    }

    #[test]
    fn a_loop_device_set_up_anew_is_known_by_its_file() {
        use Since::{OtherDisk, Same, Unknown, Written};
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dev-1792.stamp");
        let stamp = |disk: u64, sectors: u64| {
            let place = format!("stamp1 boot=a kind=device major=7 minor=0 diskseq={disk}");
            Stamp::parse(&format!("{place} written={sectors} discarded=0")).unwrap()
        };
        keep(&file, &stamp(3, 8)).unwrap();
        let said =
            [(3, 8), (3, 9), (4, 8), (4, 9)].map(|(disk, sectors)| since(&file, &stamp(disk, sectors)));
        assert_eq!(said, [Same, Written, OtherDisk, OtherDisk]);
        assert_eq!(stamp_file_of(&stamp(3, 8)).file_name(), file.file_name());
        for itself in [None, Some(Unknown), Some(Same), Some(OtherDisk)] {
            assert!(!written(itself, &[Same]) && !written(itself, &[OtherDisk, Same]));
            assert!(written(itself, &[Written]) && written(itself, &[Same, Written]));
            assert!(!written(itself, &[Unknown]), "another file, never served");
            assert_eq!(written(itself, &[]), itself == Some(OtherDisk));
            assert!(written(itself, &[OtherDisk]) && written(itself, &[Written, Same]));
        }
        assert!(written(Some(Written), &[]) && written(Some(Written), &[Same]));
    }

    #[test]
    fn one_at_a_time_mounts_or_ends() {
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("volume.mount");
        let absent = |e: io::Error| e.kind() == io::ErrorKind::NotFound;
        assert!(begin_ending(&record).is_err_and(absent), "there is no mount");
        std::fs::write(record.with_extension("log"), "of the last session").unwrap();
        let mounting = begin_mounting(&record).unwrap();
        assert_eq!(std::fs::metadata(record.with_extension("log")).unwrap().len(), 0);
        assert!(mounting.is_some() && begin_mounting(&record).unwrap().is_none());
        assert!(begin_ending_unmounted(&record).is_none(), "somebody is mounting");
        drop(mounting);
        let ending = begin_ending_unmounted(&record);
        assert!(ending.is_some() && begin_mounting(&record).unwrap().is_none());
        drop(ending);
        std::fs::write(&record, "").unwrap();
        assert!(begin_ending_unmounted(&record).is_none(), "it is mounted");
        let ending = begin_ending(&record).unwrap().unwrap();
        assert!(ending.is_of(&record));
        std::fs::remove_file(record.with_extension("log")).unwrap();
        assert!(!ending.is_of(&record), "it is cleared away");
        let next = begin_ending(&record).unwrap().unwrap();
        assert!(next.is_of(&record) && !ending.is_of(&record), "the log is another's");
    }
}
