//! Whether a backing is ours alone.
//!
//! L1: an exclusive store holds a claim that the kernel drops only when the last I/O of its open file has
//!     ended: O_EXCL on a block device (a partition's keeps others from its whole disk, too), an OFD lock over
//!     the whole of a regular file.
//! L2: the claim is taken first and the loop devices looked at afterwards, so that one set up between the
//!     two is seen; one set up later is not prevented (the loop driver asks nobody).
//! L3: who claims a loop device, or a partition of one, also claims each device that it stands on and locks,
//!     of the file at the bottom, the bytes that it reaches ([`below`]), so that two ways in exclude each other.
//!     Not seen: a device mapper's or RAID's way to a loop device, and any without sysfs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::{OpenError, SERVED_SOURCE, SERVED_TYPE, below, sys};

/// An open backing, with whatever else must stay open to keep it ours.
pub(super) struct Claimed {
    pub(super) file: File,
    pub(super) is_device: bool,
    pub(super) below: Vec<below::Held>,
}

/// Opens `path`, exclusively where asked; one try.
pub(super) fn open_once(path: &Path, write: bool, exclusive: bool) -> Result<Claimed, OpenError> {
    let io = |doing| move |source| OpenError::Io { path: path.to_owned(), doing, source };
    // Looked at before it is opened: opening a pipe would wait, opening a tape would rewind it.
    let before = fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => OpenError::NotFound { path: path.to_owned() },
        _ => io("looking at it")(e),
    })?;
    let is_device = kind_of(path, &before)?;
    if is_device && exclusive {
        refuse_mounted(path, before.rdev())?;
    }
    let mut flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    if is_device && exclusive {
        flags |= libc::O_EXCL;
    }
    let file = fs::OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(flags)
        .open(path)
        .map_err(|e| refused(path, write, is_device.then(|| before.rdev()), &before, e))?;
    let meta = file.metadata().map_err(io("looking at it"))?;
    if kind_of(path, &meta)? != is_device {
        let source = io::Error::other("replaced while it was being opened");
        return Err(io("opening it")(source));
    }
    if is_device && write && sys::device_read_only(&file) {
        return Err(OpenError::ReadOnly { path: path.to_owned(), why: "the device is set read-only" });
    }
    let mut below = Vec::new();
    if exclusive && is_device {
        below = below::hold(path, &file, write)?;
    } else if exclusive && !is_device {
        lock_file(path, &file, &meta, &WHOLE, write)?;
        if let Err(e) = refuse_on_loop(path, &meta) {
            // Not by its closing alone: a program that another thread starts has the file open until it is executed.
            unlock_file(&file);
            return Err(e);
        }
    }
    Ok(Claimed { file, is_device, below })
}

/// All bytes of a file, also those that it may have later.
const WHOLE: Range<u64> = 0..u64::MAX;

fn kind_of(path: &Path, m: &fs::Metadata) -> Result<bool, OpenError> {
    let t = m.file_type();
    let what = match () {
        () if t.is_file() => return Ok(false),
        () if t.is_block_device() => return Ok(true),
        () if t.is_dir() => "a directory",
        () if t.is_fifo() => "a pipe",
        () if t.is_socket() => "a socket",
        () if t.is_char_device() => "a character device",
        () => "something else",
    };
    Err(OpenError::NotAFileOrDevice { path: path.to_owned(), what })
}

fn refused(path: &Path, write: bool, device: Option<u64>, m: &fs::Metadata, e: io::Error) -> OpenError {
    let path = path.to_owned();
    let read_only = |path, why| OpenError::ReadOnly { path, why };
    match (e.raw_os_error(), device) {
        (Some(libc::EBUSY), Some(rdev)) => match mounted_at(rdev) {
            Some(at) => OpenError::Mounted { path, at },
            None => OpenError::Busy { path, holder: device_holder(rdev) },
        },
        (Some(libc::ETXTBSY), _) => {
            OpenError::Busy { path, holder: file_holder(m.dev(), m.ino(), None, "a running program") }
        }
        (Some(libc::EROFS), _) => read_only(path, "its file system is mounted read-only"),
        (Some(libc::EACCES | libc::EPERM), Some(rdev))
            if write && number(&sys::sysfs(rdev).join("ro")) == Some(1) =>
        {
            read_only(path, "the device is set read-only")
        }
        (Some(libc::EACCES), None) if write && m.mode() & 0o222 == 0 => {
            read_only(path, "its mode gives nobody write permission")
        }
        _ => OpenError::Io { path, doing: "opening it", source: e },
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// An OFD lock over bytes of a file: for writing, or, on a file open read-only, shared (it keeps
/// writers that lock out, other readers not).
pub(super) fn lock_file(
    path: &Path,
    file: &File,
    m: &fs::Metadata,
    bytes: &Range<u64>,
    write: bool,
) -> Result<(), OpenError> {
    let lock = lock_over(bytes, if write { libc::F_WRLCK } else { libc::F_RDLCK });
    loop {
        return match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => Ok(()),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN | Errno::EACCES) => Err(OpenError::Busy {
                path: path.to_owned(),
                holder: file_holder(
                    m.dev(),
                    m.ino(),
                    Some(bytes),
                    "a process that this one may not look into",
                ),
            }),
            Err(e) => Err(OpenError::Io { path: path.to_owned(), doing: "locking it", source: e.into() }),
        };
    }
}

/// Gives back the lock of a file that nothing was read from or written to.
fn unlock_file(file: &File) {
    if let Err(e) = fcntl(file, FcntlArg::F_OFD_SETLK(&lock_over(&WHOLE, libc::F_UNLCK))) {
        tracing::debug!("unlocking: {e}");
    }
}

/// What the kernel's offsets cannot tell is locked to the file's end, or whole.
fn lock_over(bytes: &Range<u64>, kind: libc::c_int) -> libc::flock {
    let start = libc::off_t::try_from(bytes.start);
    let len = libc::off_t::try_from(bytes.end.saturating_sub(bytes.start));
    let (l_start, l_len) = match (start, len) {
        (Ok(start), Ok(len)) if start.checked_add(len).is_some() => (start, len),
        (Ok(start), _) => (start, 0),
        (Err(_), _) => (0, 0),
    };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start,
        l_len,
        l_pid: 0,
    }
}

fn refuse_mounted(path: &Path, rdev: u64) -> Result<(), OpenError> {
    match mounted_at(rdev) {
        Some(at) => Err(OpenError::Mounted { path: path.to_owned(), at }),
        None => Ok(()),
    }
}

fn refuse_on_loop(path: &Path, m: &fs::Metadata) -> Result<(), OpenError> {
    let Some((loopdev, rdev)) = loop_on((m.dev(), m.ino()), None) else { return Ok(()) };
    Err(match rdev.and_then(mounted_at) {
        Some(at) => OpenError::Mounted { path: path.to_owned(), at },
        None => OpenError::OnLoop { path: path.to_owned(), loopdev },
    })
}

/// The path that sysfs gives for a loop device's backing.
pub(super) fn backing_path(sysfs_dir: &Path) -> Option<PathBuf> {
    // Bytes: one that is not seen could be written below a mount.
    let mut path = fs::read(sysfs_dir.join("loop/backing_file")).ok()?;
    path.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(path).into())
}

/// A loop device over the file of that device and inode number, other than `but`: its node, and its device number where
/// known.
///
/// Asking a loop device for its backing asks the backing's file system; one in a process (FUSE) may hang.
/// So loop devices over such are passed by, unless it is the one that our file lies in.
pub(super) fn loop_on((dev, ino): (u64, u64), but: Option<u64>) -> Option<(PathBuf, Option<u64>)> {
    let Ok(all) = fs::read_dir("/sys/block") else { return node_on((dev, ino), but) };
    let mounts = mountinfo();
    for entry in all.flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with("loop") {
            continue;
        }
        // Only a loop device that is set up has a backing.
        let Some(backing) = backing_path(&entry.path()) else { continue };
        if in_foreign_fuse(&mounts, &backing, libc::major(dev), libc::minor(dev)) {
            continue;
        }
        let node = Path::new("/dev").join(&name);
        let rdev = sys::device_number(&entry.path());
        if but.is_some() && rdev == but {
            continue;
        }
        let by_path = || fs::metadata(&backing).is_ok_and(|m| (m.dev(), m.ino()) == (dev, ino));
        let same = match File::open(&node).and_then(|f| sys::loop_backing(&f)) {
            Ok(backing) => backing.file == (dev, ino),
            // ENXIO: let go in between. Otherwise the node may not be opened: go by the path.
            Err(e) => e.raw_os_error() != Some(libc::ENXIO) && by_path(),
        };
        if same {
            return Some((node, rdev));
        }
    }
    None
}

/// As [`loop_on`], by the nodes in `/dev`: where there is no sysfs, as in a chroot. Which of them lies over a FUSE file system nobody tells before
/// it is asked.
fn node_on(file: (u64, u64), but: Option<u64>) -> Option<(PathBuf, Option<u64>)> {
    let nodes = fs::read_dir("/dev").ok()?.flatten();
    let nodes = nodes.filter(|node| node.file_name().to_string_lossy().starts_with("loop"));
    let mut nodes = nodes.filter_map(|node| Some((node.path(), fs::metadata(node.path()).ok()?)));
    let found = nodes.find(|(node, m)| {
        m.file_type().is_block_device()
            && but != Some(m.rdev())
            && File::open(node).and_then(|f| sys::loop_backing(&f)).is_ok_and(|backing| backing.file == file)
    });
    found.map(|(node, m)| (node, Some(m.rdev())))
}

/// Where a device is mounted, as this mount namespace sees it.
pub(super) fn mounted_at(rdev: u64) -> Option<PathBuf> {
    find_mount(&mountinfo(), libc::major(rdev), libc::minor(rdev))
}

fn mountinfo() -> String {
    String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap_or_default()).into_owned()
}

/// Lines of a mountinfo (proc_pid_mountinfo(5)): "id parent major:minor root mount-point options
/// optional-fields... - type source super-options", blanks as octal escapes. As (major:minor, point, type, source).
fn mounts(table: &str) -> impl Iterator<Item = (&str, PathBuf, &str, &str)> {
    table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let (mut words, mut mounted) = (left.split(' '), right.split(' '));
        Some((words.nth(2)?, unescape(words.nth(1)?), mounted.next()?, mounted.next().unwrap_or_default()))
    })
}

/// Where a daemon of FS2 serves a volume by the files of this device number, and which; of one that does not tell, the place again.
pub(super) fn served_at(dev: u64) -> Option<(PathBuf, PathBuf)> {
    find_served(&mountinfo(), libc::major(dev), libc::minor(dev))
}

fn find_served(table: &str, major: u32, minor: u32) -> Option<(PathBuf, PathBuf)> {
    let device = format!("{major}:{minor}");
    let (_, at, _, source) = mounts(table).find(|m| m.0 == device && m.2 == SERVED_TYPE)?;
    let volume = source.strip_prefix(SERVED_SOURCE).filter(|volume| !volume.is_empty());
    Some((at.clone(), volume.map_or(at, unescape)))
}

/// The mount point of a device.
fn find_mount(table: &str, major: u32, minor: u32) -> Option<PathBuf> {
    let wanted = format!("{major}:{minor}");
    mounts(table).find(|m| m.0 == wanted).map(|m| m.1)
}

/// Whether a path lies in a FUSE file system other than the one of that device number.
fn in_foreign_fuse(table: &str, path: &Path, major: u32, minor: u32) -> bool {
    let device = format!("{major}:{minor}");
    // As the table is: what is no UTF-8 was replaced there.
    let path = PathBuf::from(path.to_string_lossy().into_owned());
    // Of two mounts on one point the later covers the earlier: max_by_key gives the last.
    mounts(table)
        .filter(|m| path.starts_with(&m.1))
        .max_by_key(|m| m.1.components().count())
        .is_some_and(|m| (m.2 == "fuse" || m.2.starts_with("fuse.")) && m.0 != device)
}

fn unescape(word: &str) -> PathBuf {
    let mut out = String::new();
    let mut rest = word;
    while let Some(i) = rest.find('\\') {
        let code = rest.get(i + 1..i + 4).and_then(|o| u8::from_str_radix(o, 8).ok());
        out.push_str(&rest[..i]);
        match code {
            Some(c) => out.push(char::from(c)),
            None => out.push('\\'),
        }
        rest = &rest[i + if code.is_some() { 4 } else { 1 }..];
    }
    out.push_str(rest);
    PathBuf::from(out)
}

/// Who has a block device: devices built on it, else processes that hold it open.
pub(super) fn device_holder(rdev: u64) -> String {
    let above = fs::read_dir(sys::sysfs(rdev).join("holders"))
        .ok()
        .and_then(|d| d.flatten().next())
        .map(|e| format!("the device {}", e.file_name().to_string_lossy()));
    let process = || {
        process_with(
            |link, _| link.starts_with("/dev"),
            |m| m.file_type().is_block_device() && m.rdev() == rdev,
        )
    };
    above.or_else(process).unwrap_or_else(|| {
        "the kernel (a mount elsewhere, swap, RAID, a partition of it) or a process not visible here"
            .to_owned()
    })
}

/// Who has a file; with `locked`, only who locked one of these bytes.
fn file_holder(dev: u64, ino: u64, locked: Option<&Range<u64>>, otherwise: &str) -> String {
    let inode = format!("ino:\t{ino}");
    let about = |_: &Path, fdinfo: &str| {
        fdinfo.lines().any(|l| l == inode)
            && locked.is_none_or(|bytes| fdinfo.lines().any(|l| is_lock_within(l, bytes)))
    };
    process_with(about, |m| (m.dev(), m.ino()) == (dev, ino)).unwrap_or_else(|| otherwise.to_owned())
}

/// Whether a line of an fdinfo (proc_pid_fdinfo(5)) is of a lock that has one of these bytes:
/// "lock: number: kind mode type pid device:inode first last", the last byte a number or EOF.
fn is_lock_within(line: &str, bytes: &Range<u64>) -> bool {
    let Some(lock) = line.strip_prefix("lock:") else { return false };
    let mut words = lock.split_ascii_whitespace().rev();
    let last = words.next().and_then(|w| w.parse().ok()).unwrap_or(u64::MAX);
    let first = words.next().and_then(|w| w.parse().ok()).unwrap_or(0);
    first < bytes.end && last >= bytes.start
}

/// The first process with a descriptor that fits. `likely` sees the link's text and the fdinfo, which the
/// kernel answers by itself; only what it lets pass is looked at, for that may ask a file system that hangs.
fn process_with(
    likely: impl Fn(&Path, &str) -> bool,
    fits: impl Fn(&fs::Metadata) -> bool,
) -> Option<String> {
    let me = std::process::id();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(fds) = fs::read_dir(process.path().join("fd")) else { continue };
        for fd in fds.flatten() {
            let Ok(link) = fs::read_link(fd.path()) else { continue };
            let fdinfo = process.path().join("fdinfo").join(fd.file_name());
            let Ok(fdinfo) = fs::read_to_string(fdinfo) else { continue };
            // Follows the link to the open file itself, whatever its path is now.
            if likely(&link, &fdinfo) && fs::metadata(fd.path()).is_ok_and(|m| fits(&m)) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                let whose = if pid == me { ", this one; was it given twice?" } else { "" };
                return Some(format!("process {pid} ({}{whose})", name.trim()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_known_by_its_bytes() {
        let line = "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 512 1023";
        assert!(is_lock_within(line, &(1023..4096)) && is_lock_within(line, &(0..513)));
        assert!(!is_lock_within(line, &(1024..4096)) && !is_lock_within(line, &(0..512)));
        assert!(!is_lock_within("ino:\t1234", &WHOLE) && is_lock_within(line, &WHOLE));
        let line = "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 512 EOF";
        assert!(is_lock_within(line, &(1 << 40..1 << 41)) && !is_lock_within(line, &(0..512)));
    }

    #[test]
    fn what_no_offset_tells_is_locked_to_the_end() {
        let over = |bytes: Range<u64>| {
            let lock = lock_over(&bytes, libc::F_WRLCK);
            (lock.l_start, lock.l_len)
        };
        assert_eq!(over(512..1024), (512, 512));
        assert_eq!(over(WHOLE), (0, 0));
        assert_eq!(over(512..u64::MAX), (512, 0));
        assert_eq!(over(i64::MAX as u64..i64::MAX as u64 + 512), (i64::MAX, 0));
        assert_eq!(over(u64::MAX - 512..u64::MAX), (0, 0));
    }

    #[test]
    fn loop_devices_over_a_process_are_passed_by() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     40 22 0:50 / /run/x rw shared:3 - fuse.fs2 fs2 rw\n\
                     41 40 8:2 / /run/x/y rw - ext4 /dev/sda2 rw\n";
        let passed = |path: &str, dev| in_foreign_fuse(table, Path::new(path), 0, dev);
        assert!(passed("/run/x/volume", 49));
        assert!(!passed("/run/x/volume", 50), "our own file system must be asked");
        assert!(!passed("/run/x/y/volume", 49) && !passed("/run/xy", 49) && !passed("/a", 49));
    }

    #[test]
    fn what_a_daemon_serves_is_known_by_its_mount() {
        let table = "40 22 0:50 / /run/x rw shared:3 - fuse.fs2 fs2:/my\\040disk rw\n\
                     41 22 0:51 / /run/y rw - fuse.fs2 fs2 rw\n\
                     42 22 0:52 / /run/z rw - fuse.other fs2:/z rw\n";
        let served = |dev| find_served(table, 0, dev);
        assert_eq!(served(50), Some(("/run/x".into(), "/my disk".into())));
        assert_eq!(served(51), Some(("/run/y".into(), "/run/y".into())), "by a former version");
        assert_eq!((served(52), served(53)), (None, None));
    }

    #[test]
    fn mountinfo_is_read_as_the_manual_says() {
        let table = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
                     40 22 8:17 / /mnt/a\\040b\\134c rw - ext2 /dev/sdb1 rw\n\
                     41 22 8:1 / /late rw - ext4 /dev/sda1 rw\n\
                     short 1 8:33\n";
        assert_eq!(find_mount(table, 8, 17), Some("/mnt/a b\\c".into()));
        assert_eq!(find_mount(table, 8, 1), Some("/".into()));
        assert_eq!(find_mount(table, 8, 33), None);
        assert_eq!(find_mount(table, 8, 18), None);
        assert_eq!(unescape("x\\9\\"), PathBuf::from("x\\9\\"));
    }
}
