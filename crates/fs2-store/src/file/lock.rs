//! Whether a backing is ours alone.
//!
//! L1: an exclusive store holds a claim that the kernel drops only when the last I/O of its open file has
//!     ended: O_EXCL on a block device, an OFD lock over the whole of a regular file.
//! L2: the claim is taken first and the loop devices looked at afterwards, so that one set up between the
//!     two is seen; one set up later is not prevented (the loop driver asks nobody).
//! L3: who claims a loop device also locks the file behind it, so that the two ways in exclude each other.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::{OpenError, sys};

/// An open backing, with whatever else must stay open to keep it ours.
pub(super) struct Claimed {
    pub(super) file: File,
    pub(super) is_device: bool,
    pub(super) below: Option<File>,
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
    let mut below = None;
    if exclusive && is_device && libc::major(meta.rdev()) == LOOP_MAJOR {
        below = lock_below_loop(path, &file, meta.rdev(), write)?;
    } else if exclusive && !is_device {
        lock_file(path, &file, &meta, write)?;
        if let Err(e) = refuse_on_loop(path, &meta) {
            // Not by its closing alone: a program that another thread starts has the file open until it is executed.
            unlock_file(&file);
            return Err(e);
        }
    }
    Ok(Claimed { file, is_device, below })
}

const LOOP_MAJOR: u32 = 7;

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
            OpenError::Busy { path, holder: file_holder(m.dev(), m.ino(), false, "a running program") }
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

/// An OFD lock over the whole file: for writing, or, on a file open read-only, shared (it keeps
/// writers that lock out, other readers not).
fn lock_file(path: &Path, file: &File, m: &fs::Metadata, write: bool) -> Result<(), OpenError> {
    let lock = whole_file(if write { libc::F_WRLCK } else { libc::F_RDLCK });
    loop {
        return match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => Ok(()),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN | Errno::EACCES) => Err(OpenError::Busy {
                path: path.to_owned(),
                holder: file_holder(m.dev(), m.ino(), true, "a process that this one may not look into"),
            }),
            Err(e) => Err(OpenError::Io { path: path.to_owned(), doing: "locking it", source: e.into() }),
        };
    }
}

/// Gives back the lock of a file that nothing was read from or written to.
fn unlock_file(file: &File) {
    if let Err(e) = fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK))) {
        tracing::debug!("unlocking: {e}");
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Locks the file below a loop device (L3).
fn lock_below_loop(path: &Path, loopdev: &File, rdev: u64, write: bool) -> Result<Option<File>, OpenError> {
    let Ok(identity) = sys::loop_backing(loopdev) else { return Ok(None) };
    let Some(below) = backing_path(&sys::sysfs(rdev)) else { return Ok(None) };
    // A backing that was deleted, or lies in another mount namespace, can be opened by nobody here.
    let Ok(file) = fs::OpenOptions::new().read(true).write(write).open(&below) else { return Ok(None) };
    let Ok(m) = file.metadata() else { return Ok(None) };
    if (m.dev(), m.ino()) != identity || !m.is_file() {
        return Ok(None);
    }
    match lock_file(&below, &file, &m, write) {
        Ok(()) => Ok(Some(file)),
        Err(OpenError::Busy { holder, .. }) => Err(OpenError::Busy {
            path: path.to_owned(),
            holder: format!("{holder}, through its backing {}", below.display()),
        }),
        // A file system without locks keeps nobody out; the device itself is claimed all the same.
        Err(e) => {
            tracing::warn!("{}: its backing could not be locked: {e}", path.display());
            Ok(None)
        }
    }
}

fn refuse_mounted(path: &Path, rdev: u64) -> Result<(), OpenError> {
    match mounted_at(rdev) {
        Some(at) => Err(OpenError::Mounted { path: path.to_owned(), at }),
        None => Ok(()),
    }
}

fn refuse_on_loop(path: &Path, m: &fs::Metadata) -> Result<(), OpenError> {
    let Some((loopdev, rdev)) = loop_on(m.dev(), m.ino()) else { return Ok(()) };
    Err(match rdev.and_then(mounted_at) {
        Some(at) => OpenError::Mounted { path: path.to_owned(), at },
        None => OpenError::OnLoop { path: path.to_owned(), loopdev },
    })
}

/// The path that sysfs gives for a loop device's backing.
fn backing_path(sysfs_dir: &Path) -> Option<PathBuf> {
    // Bytes: one that is not seen could be written below a mount.
    let mut path = fs::read(sysfs_dir.join("loop/backing_file")).ok()?;
    path.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(path).into())
}

/// A loop device over the file: its node, and its device number where known.
///
/// Asking a loop device for its backing asks the backing's file system; one in a process (FUSE) may hang.
/// So loop devices over such are passed by, unless it is the one that our file lies in.
fn loop_on(dev: u64, ino: u64) -> Option<(PathBuf, Option<u64>)> {
    let mounts = mountinfo();
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
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
        let rdev = fs::read_to_string(entry.path().join("dev")).ok().and_then(|t| {
            let (major, minor) = t.trim().split_once(':')?;
            Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        let by_path = || fs::metadata(&backing).is_ok_and(|m| (m.dev(), m.ino()) == (dev, ino));
        let same = match File::open(&node).and_then(|f| sys::loop_backing(&f)) {
            Ok(identity) => identity == (dev, ino),
            // ENXIO: let go in between. Otherwise the node may not be opened: go by the path.
            Err(e) => e.raw_os_error() != Some(libc::ENXIO) && by_path(),
        };
        if same {
            return Some((node, rdev));
        }
    }
    None
}

/// Where a device is mounted, as this mount namespace sees it.
fn mounted_at(rdev: u64) -> Option<PathBuf> {
    find_mount(&mountinfo(), libc::major(rdev), libc::minor(rdev))
}

fn mountinfo() -> String {
    String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap_or_default()).into_owned()
}

/// Lines of a mountinfo (proc_pid_mountinfo(5)): "id parent major:minor root mount-point options
/// optional-fields... - type source super-options", blanks as octal escapes. As (major:minor, point, type).
fn mounts(table: &str) -> impl Iterator<Item = (&str, PathBuf, &str)> {
    table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut words = left.split(' ');
        Some((words.nth(2)?, unescape(words.nth(1)?), right.split(' ').next()?))
    })
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
fn device_holder(rdev: u64) -> String {
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

/// Who has a file; with `locked`, only who locked it.
fn file_holder(dev: u64, ino: u64, locked: bool, otherwise: &str) -> String {
    let inode = format!("ino:\t{ino}");
    let about = |_: &Path, fdinfo: &str| {
        fdinfo.lines().any(|l| l == inode) && (!locked || fdinfo.lines().any(|l| l.starts_with("lock:")))
    };
    process_with(about, |m| (m.dev(), m.ino()) == (dev, ino)).unwrap_or_else(|| otherwise.to_owned())
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
