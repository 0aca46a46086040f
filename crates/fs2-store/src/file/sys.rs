//! Calls into the kernel that std does not have.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::statfs::{FsType, NFS_SUPER_MAGIC, TMPFS_MAGIC, fstatfs};

use crate::stamp::StampOf;

mod ioctls {
    use nix::libc::{c_int, c_ushort};

    nix::ioctl_read!(blkgetsize64, 0x12, 114, usize);
    nix::ioctl_read!(blkgetdiskseq, 0x12, 128, u64);
    nix::ioctl_read_bad!(blkroget, nix::request_code_none!(0x12, 94), c_int);
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), c_int);
    nix::ioctl_read_bad!(blkrotational, nix::request_code_none!(0x12, 126), c_ushort);
    nix::ioctl_write_ptr_bad!(blkdiscard, nix::request_code_none!(0x12, 119), [u64; 2]);
    nix::ioctl_write_ptr_bad!(blkzeroout, nix::request_code_none!(0x12, 127), [u64; 2]);
    nix::ioctl_read_bad!(loop_get_status64, 0x4C05, super::LoopInfo64);
}

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
pub(super) struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}
const _: () = assert!(size_of::<LoopInfo64>() == 232);

/// Bytes of a block device.
pub(super) fn device_size(file: &File) -> io::Result<u64> {
    let mut size = 0usize;
    // SAFETY: BLKGETSIZE64 writes one u64 (declared size_t) to where the pointer shows.
    unsafe { ioctls::blkgetsize64(file.as_raw_fd(), &mut size) }?;
    Ok(size as u64)
}

/// Bytes of a block device's logical block.
pub(super) fn device_logical_block(file: &File) -> io::Result<u32> {
    let mut bytes = 0;
    // SAFETY: BLKSSZGET writes one int.
    unsafe { ioctls::blksszget(file.as_raw_fd(), &mut bytes) }?;
    u32::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// Whether a block device turns; false where it does not say.
pub(super) fn device_rotational(file: &File) -> bool {
    let mut turns = 0;
    // SAFETY: BLKROTATIONAL writes one unsigned short.
    unsafe { ioctls::blkrotational(file.as_raw_fd(), &mut turns) }.is_ok() && turns != 0
}

/// Whether a block device refuses writes.
pub(super) fn device_read_only(file: &File) -> bool {
    let mut ro = 0;
    // SAFETY: BLKROGET writes one int.
    unsafe { ioctls::blkroget(file.as_raw_fd(), &mut ro) }.is_ok() && ro != 0
}

/// BLKDISCARD of aligned bytes.
pub(super) fn device_discard(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64; the device is open for writing by its owner, us.
    unsafe { ioctls::blkdiscard(file.as_raw_fd(), &[offset, len]) }?;
    Ok(())
}

/// BLKZEROOUT of aligned bytes; they stay allocated.
pub(super) fn device_zero(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKZEROOUT reads two u64.
    unsafe { ioctls::blkzeroout(file.as_raw_fd(), &[offset, len]) }?;
    Ok(())
}

/// What a loop device stands on.
pub(super) struct LoopBacking {
    /// `st_dev` and `st_ino`.
    pub(super) file: (u64, u64),
    /// `st_rdev`: 0 for a regular file.
    pub(super) rdev: u64,
    /// Byte of it that is the device's first.
    pub(super) offset: u64,
}

/// What a loop device, or the one of a partition, stands on; ENXIO where none is set up.
pub(super) fn loop_backing(file: &File) -> io::Result<LoopBacking> {
    let mut info = MaybeUninit::<LoopInfo64>::zeroed();
    // SAFETY: LOOP_GET_STATUS64 writes one struct loop_info64, whose layout is asserted above.
    unsafe { ioctls::loop_get_status64(file.as_raw_fd(), info.as_mut_ptr()) }?;
    // SAFETY: all bit patterns, zeros included, are valid.
    let info = unsafe { info.assume_init() };
    Ok(LoopBacking { file: (info.device, info.inode), rdev: info.rdevice, offset: info.offset })
}

/// Turns O_DIRECT on or off. EINVAL where the file system has none.
pub(super) fn set_direct(file: &File, on: bool) -> io::Result<()> {
    let now = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    let mut want = now;
    want.set(OFlag::O_DIRECT, on);
    if want != now {
        fcntl(file, FcntlArg::F_SETFL(want))?;
    }
    Ok(())
}

/// What O_DIRECT on this file asks of offsets and lengths, and of memory, in bytes; `None` where the
/// kernel does not say, `Some((0, 0))` where it says that O_DIRECT does not work here.
pub(super) fn direct_alignment(file: &File) -> Option<(u32, u32)> {
    let mut out = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor; `out` has room for the answer.
    let rc = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            out.as_mut_ptr(),
        )
    };
    if rc != 0 {
        return None;
    }
    // SAFETY: zeroed, then filled by the kernel; plain numbers.
    let out = unsafe { out.assume_init() };
    (out.stx_mask & libc::STATX_DIOALIGN != 0).then_some((out.stx_dio_offset_align, out.stx_dio_mem_align))
}

/// Tries a read at the last block: a first block read ahead by whoever looked at it says nothing. A sector there that is bad says nothing
/// either, and others are tried.
pub(super) fn reads_somewhere(
    size: u64,
    align: u64,
    mut read: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let quarter = |n: u64| size / 4 * n / align * align;
    let mut failed = None;
    for at in [size - align, quarter(3), quarter(2), quarter(1)] {
        match read(at) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EIO | libc::ENODATA | libc::EILSEQ)) => {
                failed = Some(e)
            }
            done => return done,
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Reads until `buf` is full. `granule` is what a direct file's offsets are multiples of, 1 otherwise.
pub(super) fn pread_exact(
    file: &File,
    mut offset: u64,
    mut buf: &mut [u8],
    granule: usize,
) -> io::Result<()> {
    while !buf.is_empty() {
        match file.read_at(buf, offset) {
            Ok(n) => {
                let n = if n < buf.len() { n - n % granule } else { n };
                if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                buf = &mut buf[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes all of `buf`. With `dsync` each piece is durable when the call returns; EOPNOTSUPP where
/// the kernel or file system does not know that flag (nothing is written then).
pub(super) fn pwrite_all(
    file: &File,
    mut offset: u64,
    mut buf: &[u8],
    granule: usize,
    dsync: bool,
) -> io::Result<()> {
    while !buf.is_empty() {
        let wrote = if dsync { pwrite_dsync(file, buf, offset) } else { file.write_at(buf, offset) };
        match wrote {
            Ok(n) => {
                let n = if n < buf.len() { n - n % granule } else { n };
                if n == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                buf = &buf[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads what the page cache has; `WouldBlock` where it has nothing, fewer bytes where it has not all.
pub(super) fn pread_nowait(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: one iovec over `buf`, which is ours alone and outlives the call.
    let n = unsafe { libc::preadv2(file.as_raw_fd(), &iov, 1, offset, libc::RWF_NOWAIT) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// How many pages of a range are in the page cache. Since Linux 6.5, which is also the first that takes pages into a
/// socket without copying them.
pub(super) fn pages_in_memory(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    /// `struct cachestat_range` of `linux/mman.h`.
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    /// `struct cachestat`.
    #[repr(C)]
    #[derive(Default)]
    struct Found {
        cache: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    /// As all calls since Linux 5.1, the same on all architectures but alpha, which has other numbers.
    const CACHESTAT: libc::c_long = 451;
    let range = Range { offset, len };
    let mut found = Found::default();
    // SAFETY: the kernel reads one `struct cachestat_range` and writes one `struct cachestat`, both of which outlive the
    // call.
    let done = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0) };
    if done == 0 { Ok(found.cache) } else { Err(io::Error::last_os_error()) }
}

/// Whether the file system that holds a file keeps it in memory alone (swap aside).
pub(super) fn is_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|fs| matches!(fs.filesystem_type(), TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Whether a write may be told of an earlier one's lack of room, which no sync is told of any more: NFS does so (`nfs_file_write`).
pub(super) fn tells_of_earlier(file: &File) -> bool {
    fstatfs(file).is_ok_and(|fs| fs.filesystem_type() == NFS_SUPER_MAGIC)
}

const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

fn pwrite_dsync(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let iov = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    // SAFETY: one iovec over `buf`, which the kernel only reads and which outlives the call.
    let n = unsafe { libc::pwritev2(file.as_raw_fd(), &iov, 1, offset, libc::RWF_DSYNC) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether an error says that the operation does not exist here, rather than that it failed.
pub(super) fn unsupported(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY))
}

/// The sysfs directory of a device number.
pub(super) fn sysfs(dev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(dev), libc::minor(dev)))
}

/// The device number that a sysfs directory of a device gives.
pub(super) fn device_number(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The disk of a partition, and its byte that is the partition's first; a disk's are itself and 0.
pub(super) fn disk_of(dev: u64) -> io::Result<(u64, u64)> {
    disk_at(&sysfs(dev)).map(|disk| disk.unwrap_or((dev, 0)))
}

/// `None` where the sysfs directory is not a partition's.
fn disk_at(dir: &Path) -> io::Result<Option<(u64, u64)>> {
    if !dir.join("partition").try_exists()? {
        return Ok(None);
    }
    let what = "sysfs does not say where the partition lies";
    let start = fs::read_to_string(dir.join("start"))?.trim().parse::<u64>().ok();
    // In sectors of 512 bytes, whatever the disk's are.
    let start = start.and_then(|sectors| sectors.checked_mul(512));
    match (device_number(&dir.join("..")), start) {
        (Some(disk), Some(start)) => Ok(Some((disk, start))),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, what)),
    }
}

/// The node that the kernel's name of a device stands for.
pub(super) fn node_of(dev: u64) -> Option<PathBuf> {
    let link = fs::read_link(sysfs(dev)).ok()?;
    let name = link.file_name()?.to_str()?;
    // As sysfs writes a slash.
    Some(Path::new("/dev").join(name.replace('!', "/")))
}

/// A number of the device's request queue (a partition's is its disk's).
fn queue_number(dev: u64, name: &str) -> Option<u64> {
    let dir = sysfs(dev);
    let read = |p: &Path| fs::read_to_string(p).ok()?.trim().parse().ok();
    read(&dir.join("queue").join(name)).or_else(|| read(&dir.join("../queue").join(name)))
}

/// Whether the device below a file turns; false where sysfs does not say.
pub(super) fn sysfs_rotational(dev: u64) -> bool {
    queue_number(dev, "rotational") == Some(1)
}

/// How many requests the disk takes at a time, by the sysfs directory of it, of its partition, or of what is made of disks: the
/// least that one of them says. `None` where none does.
pub(super) fn queue_depth(dir: &Path) -> Option<u32> {
    let read = |p: &str| fs::read_to_string(dir.join(p)).ok()?.trim().parse().ok();
    if let Some(depth) = read("device/queue_depth").or_else(|| read("../device/queue_depth")) {
        return Some(depth);
    }
    let below = fs::read_dir(dir.join("slaves")).or_else(|_| fs::read_dir(dir.join("../slaves"))).ok()?;
    let mut least = None;
    for disk in below {
        if let Some(depth) = queue_depth(&disk.ok()?.path()) {
            least = Some(least.map_or(depth, |l: u32| l.min(depth)));
        }
    }
    least
}

/// 0 where the kernel has none.
fn diskseq(file: &File) -> u64 {
    let mut number = 0;
    // SAFETY: BLKGETDISKSEQ writes one u64, or nothing.
    let _ = unsafe { ioctls::blkgetdiskseq(file.as_raw_fd(), &mut number) };
    number
}

/// See [`FileStore::identity`](super::FileStore::identity).
pub(super) fn identity_of(file: &File) -> io::Result<String> {
    let m = file.metadata()?;
    if m.rdev() != 0 {
        return Ok(format!("dev-{}-{}", m.rdev(), diskseq(file)));
    }
    Ok(format!("file-{}-{}-{}", m.dev(), m.ino(), made_ns(&m)))
}

/// When a file was made, nanoseconds since 1970; 0 where its file system does not say.
fn made_ns(m: &fs::Metadata) -> u64 {
    let made = m.created().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    made.and_then(|d| u64::try_from(d.as_nanos()).ok()).unwrap_or(0)
}

/// What a foreign writer would move.
pub(super) fn stamp_of(file: &File, is_device: bool) -> Option<StampOf> {
    let m = file.metadata().ok()?;
    if !is_device {
        let ns = |secs: i64, nanos: i64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        return Some(StampOf::File {
            dev: m.dev(),
            ino: m.ino(),
            size: m.size(),
            ctime_ns: ns(m.ctime(), m.ctime_nsec()),
            mtime_ns: ns(m.mtime(), m.mtime_nsec()),
            made_ns: made_ns(&m),
        });
    }
    // With iostats off the counters stand still: no stamp rather than one that never differs.
    if queue_number(m.rdev(), "iostats") == Some(0) {
        return None;
    }
    let stat = fs::read_to_string(sysfs(m.rdev()).join("stat")).ok()?;
    let field = |n: usize| stat.split_ascii_whitespace().nth(n)?.parse::<u64>().ok();
    Some(StampOf::Device {
        major: libc::major(m.rdev()),
        minor: libc::minor(m.rdev()),
        diskseq: diskseq(file),
        sectors_written: field(6)?,
        sectors_discarded: field(13).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_partition_is_found_in_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let at = |p: &str| sys.path().join(p);
        fs::create_dir_all(at("loop0/loop0p2")).unwrap();
        fs::write(at("loop0/dev"), "7:0\n").unwrap();
        fs::write(at("loop0/loop0p2/dev"), "259:1\n").unwrap();
        symlink(at("loop0/loop0p2"), at("259:1")).unwrap();
        assert_eq!(disk_at(&at("loop0")).unwrap(), None);
        fs::write(at("loop0/loop0p2/partition"), "2\n").unwrap();
        assert!(disk_at(&at("259:1")).is_err(), "where does it begin?");
        fs::write(at("loop0/loop0p2/start"), "2048\n").unwrap();
        assert_eq!(disk_at(&at("259:1")).unwrap(), Some((libc::makedev(7, 0), 1 << 20)));
        fs::write(at("loop0/loop0p2/start"), "36028797018963968\n").unwrap();
        assert!(disk_at(&at("259:1")).is_err(), "no such byte");
    }

    #[test]
    fn a_queue_is_that_of_the_slowest_disk_below() {
        let sys = tempfile::tempdir().unwrap();
        let at = |p: &str| sys.path().join(p);
        let dir = |p: &str| fs::create_dir_all(at(p)).unwrap();
        for (disk, depth) in
            [("sda", Some("32\n")), ("sdb", Some("1\n")), ("vda", None), ("odd", Some("many\n"))]
        {
            dir(&format!("{disk}/device"));
            dir(&format!("{disk}/slaves"));
            dir(&format!("{disk}/{disk}1"));
            if let Some(depth) = depth {
                fs::write(at(disk).join("device/queue_depth"), depth).unwrap();
            }
        }
        for (made, of) in [
            ("dm-0", &["sda/sda1"][..]),
            ("md0", &["sda", "sdb/sdb1"]),
            ("dm-1", &["dm-0"]),
            ("dm-2", &["sda", "vda"]),
            ("dm-3", &["vda", "sdb"]),
            ("dm-4", &["vda"]),
        ] {
            dir(&format!("{made}/slaves"));
            dir(&format!("{made}/{made}p1"));
            for (n, disk) in of.iter().enumerate() {
                symlink(at(disk), at(made).join(format!("slaves/{n}"))).unwrap();
            }
        }
        let depths = ["sda", "sda/sda1", "sdb/sdb1", "dm-0", "dm-1/dm-1p1", "md0", "dm-2", "dm-3"]
            .map(|d| queue_depth(&at(d)));
        assert_eq!(depths.map(|d| d.unwrap_or(0)), [32, 32, 1, 32, 32, 1, 32, 1]);
        let unsaid = ["vda", "vda/vda1", "odd", "dm-4", "none"].map(|d| queue_depth(&at(d)));
        assert_eq!(unsaid, [None; 5]);
    }

    #[test]
    fn a_bad_sector_does_not_say_that_direct_reads_fail() {
        let error = |errno| Err(io::Error::from_raw_os_error(errno));
        let mut read = Vec::new();
        // Past the page cache the kernel calls a bad sector ENODATA.
        let found = reads_somewhere(1 << 20, 512, |at| {
            read.push(at);
            if at == (1 << 20) - 512 { error(libc::ENODATA) } else { Ok(()) }
        });
        assert!(found.is_ok());
        assert_eq!(read, [(1 << 20) - 512, 768 << 10]);
        assert!(
            reads_somewhere(4096, 4096, |at| {
                assert_eq!(at, 0);
                error(libc::EIO)
            })
            .is_err()
        );
        let mut tries = 0;
        let refused = reads_somewhere(1 << 20, 512, |_| {
            tries += 1;
            error(libc::EINVAL)
        });
        assert!(refused.is_err() && tries == 1);
    }
}
