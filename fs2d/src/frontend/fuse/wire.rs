//! The kernel's numbers and structures, as in include/uapi/linux/fuse.h.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that is spoken: the last minor number is Linux 5.2's.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 31;

/// What requests ask for.
pub(super) mod op {
    pub(in super::super) const LOOKUP: u32 = 1;
    pub(in super::super) const FORGET: u32 = 2;
    pub(in super::super) const GETATTR: u32 = 3;
    pub(in super::super) const SETATTR: u32 = 4;
    pub(in super::super) const SYMLINK: u32 = 6;
    pub(in super::super) const MKNOD: u32 = 8;
    pub(in super::super) const MKDIR: u32 = 9;
    pub(in super::super) const UNLINK: u32 = 10;
    pub(in super::super) const RMDIR: u32 = 11;
    pub(in super::super) const RENAME: u32 = 12;
    pub(in super::super) const LINK: u32 = 13;
    pub(in super::super) const OPEN: u32 = 14;
    pub(in super::super) const READ: u32 = 15;
    pub(in super::super) const WRITE: u32 = 16;
    pub(in super::super) const STATFS: u32 = 17;
    pub(in super::super) const RELEASE: u32 = 18;
    pub(in super::super) const FSYNC: u32 = 20;
    pub(in super::super) const FLUSH: u32 = 25;
    pub(in super::super) const INIT: u32 = 26;
    pub(in super::super) const OPENDIR: u32 = 27;
    pub(in super::super) const READDIR: u32 = 28;
    pub(in super::super) const RELEASEDIR: u32 = 29;
    pub(in super::super) const FSYNCDIR: u32 = 30;
    pub(in super::super) const CREATE: u32 = 35;
    pub(in super::super) const DESTROY: u32 = 38;
    pub(in super::super) const BATCH_FORGET: u32 = 42;
    pub(in super::super) const FALLOCATE: u32 = 43;
    pub(in super::super) const RENAME2: u32 = 45;
    pub(in super::super) const LSEEK: u32 = 46;
}

/// What the kernel offers and a server asks for.
pub(super) mod init {
    pub(in super::super) const ASYNC_READ: u32 = 1 << 0;
    pub(in super::super) const BIG_WRITES: u32 = 1 << 5;
    pub(in super::super) const ASYNC_DIO: u32 = 1 << 15;
    pub(in super::super) const MAX_PAGES: u32 = 1 << 22;
    /// There are more of them in `flags2`.
    pub(in super::super) const EXT: u32 = 1 << 30;
    /// Of `flags2`: requests by io_uring (bit 41 of both).
    pub(in super::super) const OVER_IO_URING: u32 = 1 << 9;
}

/// Commands to the kernel where requests come by io_uring.
pub(super) mod ring_command {
    /// Takes an entry's memory, and brings its first request.
    pub(in super::super) const REGISTER: u32 = 1;
    /// Takes an answer, and brings the next request.
    pub(in super::super) const COMMIT_AND_FETCH: u32 = 2;
}

/// How a file is open.
pub(super) const FOPEN_DIRECT_IO: u32 = 1 << 0;
pub(super) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// What a SETATTR is about.
pub(super) mod valid {
    pub(in super::super) const MODE: u32 = 1 << 0;
    pub(in super::super) const UID: u32 = 1 << 1;
    pub(in super::super) const GID: u32 = 1 << 2;
    pub(in super::super) const SIZE: u32 = 1 << 3;
}

/// Another descriptor of the same connection: `_IOR(229, 0, u32)`.
pub(super) const CLONE: libc::c_ulong = 2 << 30 | 4 << 16 | 229 << 8;

/// Before each request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    pub(super) len: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) nodeid: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) padding: u32,
}
const _: () = assert!(size_of::<InHeader>() == 40);

/// Before each answer.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct OutHeader {
    pub(super) len: u32,
    /// 0, or an errno's negative.
    pub(super) error: i32,
    pub(super) unique: u64,
}
const _: () = assert!(size_of::<OutHeader>() == 16);

/// What there was from the beginning; the rest has no use here.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitIn {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
}

/// What follows where the flags have [`init::EXT`].
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitIn2 {
    pub(super) first: InitIn,
    pub(super) flags2: u32,
}

#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct InitOut {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
    pub(super) max_background: u16,
    pub(super) congestion_threshold: u16,
    pub(super) max_write: u32,
    pub(super) time_gran: u32,
    pub(super) max_pages: u16,
    pub(super) map_alignment: u16,
    pub(super) flags2: u32,
    pub(super) unused: [u32; 7],
}
const _: () = assert!(size_of::<InitOut>() == 64);
const _: () = assert!(std::mem::offset_of!(InitOut, flags2) == 32);

#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    /// Of 512 bytes.
    pub(super) blocks: u64,
    /// Seconds of atime, mtime, ctime, and their nanoseconds.
    pub(super) times: [u64; 3],
    pub(super) times_nsec: [u32; 3],
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) blksize: u32,
    pub(super) flags: u32,
}
const _: () = assert!(size_of::<Attr>() == 88);

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct EntryOut {
    pub(super) nodeid: u64,
    pub(super) generation: u64,
    /// How long the name and the attributes may be remembered: seconds, then nanoseconds.
    pub(super) entry_valid: u64,
    pub(super) attr_valid: u64,
    pub(super) valid_nsec: [u32; 2],
    pub(super) attr: Attr,
}
const _: () = assert!(size_of::<EntryOut>() == 128);

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct AttrOut {
    pub(super) attr_valid: u64,
    pub(super) valid_nsec: [u32; 2],
    pub(super) attr: Attr,
}
const _: () = assert!(size_of::<AttrOut>() == 104);

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetattrIn {
    pub(super) valid: u32,
    pub(super) padding: u32,
    pub(super) fh: u64,
    pub(super) size: u64,
    pub(super) rest: [u64; 8],
}
const _: () = assert!(size_of::<SetattrIn>() == 88);

#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct OpenOut {
    pub(super) fh: u64,
    pub(super) open_flags: u32,
    pub(super) backing_id: i32,
}

/// A READ's or a WRITE's, and a READDIR's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IoIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) io_flags: u32,
    pub(super) lock_owner: u64,
    /// As the file was opened with.
    pub(super) flags: u32,
    pub(super) padding: u32,
}
const _: () = assert!(size_of::<IoIn>() == 40);

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct WriteOut {
    pub(super) size: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FallocateIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) mode: u32,
    pub(super) padding: u32,
}
const _: () = assert!(size_of::<FallocateIn>() == 32);

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LseekIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) whence: u32,
    pub(super) padding: u32,
}
const _: () = assert!(size_of::<LseekIn>() == 24);

#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct StatfsOut {
    pub(super) blocks: u64,
    pub(super) bfree: u64,
    pub(super) bavail: u64,
    pub(super) files: u64,
    pub(super) ffree: u64,
    pub(super) bsize: u32,
    pub(super) namelen: u32,
    pub(super) frsize: u32,
    pub(super) padding: [u32; 7],
}
const _: () = assert!(size_of::<StatfsOut>() == 80);

/// Before the name of an entry of a directory, which is filled up to 8 bytes.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Dirent {
    pub(super) ino: u64,
    /// Where the next one begins.
    pub(super) off: u64,
    pub(super) namelen: u32,
    /// As in the mode, without the permissions' bits.
    pub(super) kind: u32,
}
const _: () = assert!(size_of::<Dirent>() == 24);

/// The header of an entry where requests come by io_uring; the rest lies in its payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RingHeader {
    /// [`InHeader`], and in answers [`OutHeader`].
    pub(super) in_out: [u8; 128],
    /// A request's fixed part.
    pub(super) op_in: [u8; 128],
    pub(super) flags: u64,
    /// By which the answer is given.
    pub(super) commit_id: u64,
    /// Bytes in the payload, of the request or of the answer.
    pub(super) payload_bytes: u32,
    pub(super) padding: u32,
    pub(super) reserved: u64,
}
const _: () = assert!(size_of::<RingHeader>() == 288);
const _: () = assert!(std::mem::offset_of!(RingHeader, op_in) == 128);
const _: () = assert!(std::mem::offset_of!(RingHeader, commit_id) == 264);
const _: () = assert!(std::mem::offset_of!(RingHeader, payload_bytes) == 272);

/// What an io_uring command carries behind its number.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RingCommand {
    pub(super) flags: u64,
    pub(super) commit_id: u64,
    pub(super) queue: u16,
    pub(super) padding: [u8; 6],
}
const _: () = assert!(size_of::<RingCommand>() == 24);
