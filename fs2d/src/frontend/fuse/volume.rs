//! What the kernel's FUSE requests mean for the volume.
//!
//! Invariants:
//! 1. FALLOCATE and FSYNC are never answered ENOSYS or EOPNOTSUPP: the kernel would never ask
//!    again, and discards and flushes would end silently. But for a punch (EOPNOTSUPP) where the
//!    service takes none any more.
//! 2. A write's payload is in memory of its own before the service sees it.

use std::sync::Arc;
use std::time::SystemTime;

use fs2_block::{Extent, Flags, Op};
use fs2_store::AlignedBuf;
use zerocopy::IntoBytes;

use super::device::{Inbox, Reply};
use super::serving::{Serving, Tell, Work, errno};
use super::session::REQUEST_BYTES_MAX;
use super::wire::{
    self, Attr, AttrOut, Dirent, EntryOut, FallocateIn, LseekIn, OpenOut, SetattrIn, StatfsOut, WriteOut, op,
    valid,
};
use super::{FILE_NAME, Shared};
use crate::service::ExportInfo;

const ROOT: u64 = 1;
const FILE: u64 = 2;

/// Nothing but the times ever changes, so the kernel may remember as long as it likes: seconds.
const TTL: u64 = 86_400;

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

    /// Memory for a request.
    pub(super) fn room(&self, len: usize) -> AlignedBuf {
        self.serving.room(len)
    }

    fn attr(&self, ino: u64) -> Option<Attr> {
        let (mode, nlink, size) = match ino {
            ROOT => (libc::S_IFDIR | 0o500, 2, 0),
            FILE => (libc::S_IFREG | 0o600, 1, self.info.size_bytes),
            _ => return None,
        };
        let since = self.mounted_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(Attr {
            ino,
            size,
            blocks: size.div_ceil(512),
            times: [since.as_secs(); 3],
            times_nsec: [since.subsec_nanos(); 3],
            mode,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: self.info.block_bytes,
            flags: 0,
        })
    }

    fn attr_reply(&self, ino: u64, reply: Reply) {
        match self.attr(ino) {
            Some(attr) => reply.value(&AttrOut { attr_valid: TTL, valid_nsec: [0; 2], attr }),
            None => reply.error(libc::ENOENT),
        }
    }

    pub(super) fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }

    fn without_payload(op: Op, extent: Extent, flags: Flags, reply: Reply) -> Option<Work> {
        let tell = if op == Op::Punch { Tell::Punched } else { Tell::End };
        Some(Work { op, extent, flags, buffer: AlignedBuf::zeroed(0), tell, reply })
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

    fn seek(&self, from: u64, hole: bool) -> Result<u64, i32> {
        let size = self.info.size_bytes;
        if from >= size {
            return Err(libc::ENXIO);
        }
        let mut at = from;
        while at < size {
            let before = at;
            let part = Extent::checked(at, size - at).ok_or(libc::EINVAL)?;
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
        if hole { Ok(size) } else { Err(libc::ENXIO) }
    }

    /// Answers a request, or says what the service is to do for it.
    #[must_use]
    pub(super) fn handle(&self, inbox: &mut Inbox, reply: Reply) -> Option<Work> {
        let ino = inbox.head.header.nodeid;
        match inbox.head.header.opcode {
            op::READ => return self.read(inbox, reply),
            op::WRITE => return self.write(inbox, reply),
            op::FALLOCATE => return self.fallocate(inbox, reply),
            // The file has no attributes of its own to save, so fsync and fdatasync are the same.
            op::FSYNC => {
                return Self::without_payload(Op::Flush, Extent::default(), Flags::default(), reply);
            }
            // FLUSH is sent at each close(2), which promises nothing; nothing is buffered here either.
            op::FLUSH | op::FSYNCDIR | op::RELEASEDIR => reply.ok(),
            op::LSEEK => self.lseek(inbox, reply),
            op::LOOKUP => self.lookup(inbox, reply),
            op::GETATTR => self.attr_reply(ino, reply),
            op::SETATTR => self.setattr(inbox, reply),
            op::OPEN if ino == FILE => {
                // Past the page cache: it would hold a second copy, and what is read must be what the
                // engine chose to read.
                let open_flags = wire::FOPEN_DIRECT_IO | wire::FOPEN_PARALLEL_DIRECT_WRITES;
                self.shared.file_opened();
                reply.value(&OpenOut { open_flags, ..OpenOut::default() });
            }
            op::OPEN => reply.error(libc::ENOENT),
            op::RELEASE => {
                reply.ok();
                self.shared.file_closed();
            }
            op::OPENDIR => reply.value(&OpenOut::default()),
            op::READDIR => self.readdir(inbox, reply),
            op::STATFS => self.statfs(reply),
            op::FORGET | op::BATCH_FORGET => reply.none(),
            // The directory is fixed.
            op::MKNOD
            | op::MKDIR
            | op::CREATE
            | op::SYMLINK
            | op::LINK
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::RENAME2 => reply.error(libc::EPERM),
            // "Not here" once, and the kernel stops asking: for attributes before each write, among others.
            _ => reply.error(libc::ENOSYS),
        }
        None
    }

    fn read(&self, inbox: &mut Inbox, reply: Reply) -> Option<Work> {
        if inbox.head.header.nodeid != FILE {
            return refused(reply, libc::EISDIR);
        }
        if inbox.head.io.size > REQUEST_BYTES_MAX {
            return refused(reply, libc::EINVAL);
        }
        let extent = self.read_extent(inbox.head.io.offset, inbox.head.io.size);
        if extent.is_empty() {
            reply.ok();
            return None;
        }
        let buffer = inbox.buffer(extent.len() as usize, |len| self.serving.room(len));
        Some(Work { op: Op::Read, extent, flags: Flags::default(), buffer, tell: Tell::Bytes, reply })
    }

    fn write(&self, inbox: &mut Inbox, reply: Reply) -> Option<Work> {
        if inbox.head.header.nodeid != FILE {
            return refused(reply, libc::EISDIR);
        }
        let size = inbox.head.io.size;
        if size as usize != inbox.payload_len() {
            return refused(reply, libc::EINVAL);
        }
        // A volume does not grow; a write that would make it grow is refused whole.
        let Some(extent) = self.inner_extent(inbox.head.io.offset, size.into()) else {
            return refused(reply, libc::ENOSPC);
        };
        if extent.is_empty() {
            reply.value(&WriteOut { size, padding: 0 });
            return None;
        }
        // With direct I/O the kernel leaves O_DSYNC to us (and O_SYNC includes its bit).
        let fua = inbox.head.io.flags & libc::O_DSYNC as u32 != 0;
        // Keeps invariant 2.
        let buffer = inbox.payload(|len| self.serving.room(len));
        let flags = Flags { fua, ..Flags::default() };
        Some(Work { op: Op::Write, extent, flags, buffer, tell: Tell::Written(size), reply })
    }

    fn fallocate(&self, inbox: &Inbox, reply: Reply) -> Option<Work> {
        // Keeps invariant 1: whatever we do not do is EINVAL.
        let Some(asked) = inbox.fixed::<FallocateIn>() else { return refused(reply, libc::EINVAL) };
        let extent = self.inner_extent(asked.offset, asked.length);
        let extent = extent.filter(|e| !e.is_empty() && inbox.head.header.nodeid == FILE);
        let (Some(extent), Some((op, flags))) = (extent, fallocate_op(asked.mode as i32)) else {
            return refused(reply, libc::EINVAL);
        };
        Self::without_payload(op, extent, flags, reply)
    }

    fn lseek(&self, inbox: &Inbox, reply: Reply) {
        let Some(asked) = inbox.fixed::<LseekIn>() else { return reply.error(libc::EINVAL) };
        let hole = match asked.whence as i32 {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            _ => return reply.error(libc::EINVAL),
        };
        if inbox.head.header.nodeid != FILE {
            return reply.error(libc::EINVAL);
        }
        match self.seek(asked.offset, hole) {
            Ok(at) => reply.value(&at),
            Err(e) => reply.error(e),
        }
    }

    fn lookup(&self, inbox: &Inbox, reply: Reply) {
        match self.attr(FILE) {
            Some(attr) if inbox.head.header.nodeid == ROOT && inbox.name() == FILE_NAME.as_bytes() => {
                let (entry_valid, attr_valid, valid_nsec) = (TTL, TTL, [0; 2]);
                reply.value(&EntryOut {
                    nodeid: FILE,
                    generation: 0,
                    entry_valid,
                    attr_valid,
                    valid_nsec,
                    attr,
                });
            }
            _ => reply.error(libc::ENOENT),
        }
    }

    fn setattr(&self, inbox: &Inbox, reply: Reply) {
        let ino = inbox.head.header.nodeid;
        let Some(asked) = inbox.fixed::<SetattrIn>() else { return reply.error(libc::EINVAL) };
        // Times may be set in vain; the size and who may come in are fixed.
        let other_size =
            asked.valid & valid::SIZE != 0 && self.attr(ino).is_some_and(|attr| attr.size != asked.size);
        if other_size || asked.valid & (valid::MODE | valid::UID | valid::GID) != 0 {
            return reply.error(libc::EPERM);
        }
        self.attr_reply(ino, reply);
    }

    fn statfs(&self, reply: Reply) {
        // The loop driver takes the discard granularity from this block size.
        let block = self.info.block_bytes.max(512);
        reply.value(&StatfsOut {
            blocks: self.info.size_bytes / u64::from(block),
            files: 2,
            bsize: block,
            namelen: 255,
            frsize: block,
            ..StatfsOut::default()
        });
    }

    fn readdir(&self, inbox: &Inbox, reply: Reply) {
        if inbox.head.header.nodeid != ROOT {
            return reply.error(libc::ENOTDIR);
        }
        let entries =
            [(ROOT, libc::S_IFDIR, "."), (ROOT, libc::S_IFDIR, ".."), (FILE, libc::S_IFREG, FILE_NAME)];
        let mut told = Vec::new();
        for (off, (ino, mode, name)) in (1u64..).zip(entries).skip(inbox.head.io.offset.min(3) as usize) {
            let entry = Dirent { ino, off, namelen: name.len() as u32, kind: mode >> 12 };
            let len = (size_of::<Dirent>() + name.len()).next_multiple_of(8);
            if told.len() + len > inbox.head.io.size as usize {
                break;
            }
            let end = told.len() + len;
            told.extend_from_slice(entry.as_bytes());
            told.extend_from_slice(name.as_bytes());
            told.resize(end, 0);
        }
        reply.bytes(&told);
    }
}

fn refused(reply: Reply, errno: i32) -> Option<Work> {
    reply.error(errno);
    None
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
