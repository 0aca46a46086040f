//! What the kernel's FUSE requests mean for the volume.
//!
//! Invariants:
//! 1. FALLOCATE and FSYNC are never answered ENOSYS or EOPNOTSUPP: the kernel would never ask
//!    again, and discards and flushes would end silently.
//! 2. A write's payload is in memory of its own before the service sees it.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fs2_block::{Extent, Flags, Op};
use fs2_store::AlignedBuf;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};

use super::serving::{Serving, errno};
use super::{FILE_NAME, Shared};
use crate::service::ExportInfo;

const FILE: INodeNo = INodeNo(2);

/// Nothing but the times ever changes, so the kernel may remember as long as it likes.
const TTL: Duration = Duration::from_secs(86_400);

/// Bytes of the largest write or read in one request.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests the kernel sends without waiting for earlier ones; more would be queued there.
const BACKGROUND_MAX: u16 = 256;

/// Stretches asked of the service at once when a seek looks for data or a hole.
const STRETCHES_AT_ONCE: usize = 256;

pub(super) struct VolumeFs {
    serving: Arc<Serving>,
    info: ExportInfo,
    mounted_at: SystemTime,
    owner: (u32, u32),
    shared: Arc<Shared>,
}

impl VolumeFs {
    pub(super) fn new(serving: Arc<Serving>, shared: Arc<Shared>) -> VolumeFs {
        VolumeFs {
            info: serving.service().info(),
            serving,
            mounted_at: SystemTime::now(),
            owner: (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()),
            shared,
        }
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o500, 2, 0),
            FILE => (FileType::RegularFile, 0o600, 1, self.info.size_bytes),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind,
            perm,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: self.info.block_bytes,
            flags: 0,
        })
    }

    fn without_payload(&self, op: Op, extent: Extent, flags: Flags, reply: ReplyEmpty) {
        self.serving.run(op, extent, flags, AlignedBuf::zeroed(0), |done| match done {
            Ok(_) => reply.ok(),
            Err(e) => reply.error(e),
        });
    }

    /// As much of `size` bytes from `offset` as the volume has.
    fn read_extent(&self, offset: u64, size: u32) -> Extent {
        let left = self.info.size_bytes.saturating_sub(offset);
        let len = left.min(size.into());
        Extent::checked(offset, len).unwrap_or_default()
    }

    /// `len` bytes from `offset`, if the volume has them all.
    fn inner_extent(&self, offset: u64, len: u64) -> Option<Extent> {
        Extent::checked(offset, len).filter(|e| e.end() <= self.info.size_bytes)
    }

    fn seek(&self, from: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.info.size_bytes;
        if from >= size {
            return Err(Errno::ENXIO);
        }
        let mut at = from;
        while at < size {
            let before = at;
            let part = Extent::checked(at, size - at).ok_or(Errno::EINVAL)?;
            for stretch in self.serving.service().stretches(part, STRETCHES_AT_ONCE).map_err(errno)? {
                if stretch.len > 0 && stretch.hole == hole {
                    return Ok(at);
                }
                at = at.saturating_add(stretch.len).min(size);
            }
            if at == before {
                // The service knows nothing of the rest: all of it is data.
                return Ok(if hole { size } else { at });
            }
        }
        // The end of a file counts as a hole.
        if hole { Ok(size) } else { Err(Errno::ENXIO) }
    }
}

/// What fallocate(2) in `mode` asks for, if it is something a volume can do.
fn fallocate_op(mode: i32) -> Option<(Op, Flags)> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | libc::FALLOC_FL_KEEP_SIZE;
    match mode {
        PUNCH => Some((Op::Punch, Flags::default())),
        ZERO | ZERO_KEEP => Some((Op::WriteZeroes, Flags { no_hole: true, ..Flags::default() })),
        _ => None,
    }
}

impl Filesystem for VolumeFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        if config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).is_err() {
            tracing::warn!("this kernel has no asynchronous direct I/O on FUSE: one request at a time");
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE) {
            Some(attr) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry(&TTL, &attr, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attr) = self.attr(ino) else {
            return reply.error(Errno::ENOENT);
        };
        // Times may be set in vain; the size and who may come in are fixed.
        let other_size = size.is_some_and(|size| size != attr.size);
        if other_size || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        reply.attr(&TTL, &attr);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::ENOENT);
        }
        // Past the page cache: it would hold a second copy, and what is read must be what the
        // engine chose to read.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        self.shared.file_opened();
        reply.opened(FileHandle(0), flags);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
        self.shared.file_closed();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        let extent = self.read_extent(offset, size);
        if extent.is_empty() {
            return reply.data(&[]);
        }
        let room = self.serving.room(extent.len() as usize);
        self.serving.run(Op::Read, extent, Flags::default(), room, |bytes| match bytes {
            Ok(bytes) => reply.data(bytes),
            Err(e) => reply.error(e),
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        // A volume does not grow; a write that would make it grow is refused whole.
        let Some(extent) = self.inner_extent(offset, data.len() as u64) else {
            return reply.error(Errno::ENOSPC);
        };
        if extent.is_empty() {
            return reply.written(0);
        }
        // With direct I/O the kernel leaves O_DSYNC to us (and O_SYNC includes its bit).
        let fua = flags.0 & libc::O_DSYNC != 0;
        // Keeps invariant 2: `data` is the thread's receive buffer, and takes the next request.
        let mut payload = self.serving.room(data.len());
        payload.copy_from_slice(data);
        let len = data.len() as u32;
        self.serving.run(
            Op::Write,
            extent,
            Flags { fua, ..Flags::default() },
            payload,
            move |done| match done {
                Ok(_) => reply.written(len),
                Err(e) => reply.error(e),
            },
        );
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // Keeps invariant 1: whatever we do not do is EINVAL.
        let extent = self.inner_extent(offset, length).filter(|e| !e.is_empty() && ino == FILE);
        let (Some(extent), Some((op, flags))) = (extent, fallocate_op(mode)) else {
            return reply.error(Errno::EINVAL);
        };
        self.without_payload(op, extent, flags, reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // The file has no attributes of its own to save, so fsync and fdatasync are the same.
        self.without_payload(Op::Flush, Extent::default(), Flags::default(), reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Sent at each close(2), which promises nothing; nothing is buffered here either.
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let hole = match whence {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            _ => return reply.error(Errno::EINVAL),
        };
        let Some(from) = u64::try_from(offset).ok().filter(|_| ino == FILE) else {
            return reply.error(Errno::EINVAL);
        };
        match self.seek(from, hole) {
            // Within the volume's size, which is below 2^63.
            Ok(at) => reply.offset(at as i64),
            Err(e) => reply.error(e),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // The loop driver takes the discard granularity from this block size.
        let block = self.info.block_bytes.max(512);
        reply.statfs(self.info.size_bytes / u64::from(block), 0, 0, 2, 0, block, 255, block);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (next, (ino, kind, name)) in (1u64..).zip(entries).skip(offset.min(3) as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    // "Not here" once, and the kernel stops asking before each write.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    // The directory is fixed.
    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallocate_modes() {
        use libc::{
            FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE,
        };
        let op = |mode| fallocate_op(mode).map(|(op, flags)| (op, flags.no_hole));
        assert_eq!(op(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), Some((Op::Punch, false)));
        assert_eq!(op(FALLOC_FL_ZERO_RANGE), Some((Op::WriteZeroes, true)));
        assert_eq!(op(FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE), Some((Op::WriteZeroes, true)));
        for mode in [0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE] {
            assert_eq!(op(mode), None);
        }
    }
}
