//! Regular files and block devices.
//!
//! F1: a write changes no byte outside its range, whatever the device's alignment: a write with partial
//!     blocks at its edges holds its stripes alone from reading the edges to writing them, every other
//!     write holds them shared.
//! F2: a write never makes a file longer: ranges are checked against the size at opening.
//! F3: all data goes one way, by O_DIRECT or by the page cache; never a mixture from this store.

mod below;
mod earlier;
mod error;
mod lock;
mod stripes;
mod sys;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Whence, lseek};

use earlier::Earlier;
pub use error::OpenError;
pub(crate) use stripes::Mask;
use stripes::Stripes;

use crate::store::{check_range, check_read, sync_failed};
use crate::{AlignedBuf, Pipe, Stamp, Store, Stretch};

/// The type of the FUSE mounts by which daemons of FS2 serve volumes.
pub const SERVED_TYPE: &str = "fuse.fs2";

/// Before the volume's path, what is mounted there.
pub const SERVED_SOURCE: &str = "fs2:";

/// Whether to bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where it works.
    #[default]
    Auto,
    /// Or fail with [`OpenError::NoDirect`].
    On,
    /// Never.
    Off,
}

/// Whether others are kept out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// A block device is claimed with O_EXCL, and with a loop device or its partition what that stands on; a regular file
    /// is locked whole (OFD) and refused while a loop device stands on it. Opened read-only, a file's lock is shared among
    /// readers.
    #[default]
    Exclusive,
    /// Nothing is claimed or looked at.
    None,
}

/// How to open a backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For writing too.
    pub write: bool,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Whether others are kept out.
    pub lock: Lock,
    /// How long to wait for another holder to let go; `None`: one try.
    pub lock_wait: Option<Duration>,
}

/// How often a held lock is tried again. A guess: short against a daemon's end, long against the try.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// Bytes that go through a bounce buffer at a time.
const BOUNCE: usize = 1 << 20;

/// Bytes of a page of the page cache.
const PAGE: u64 = 4096;

/// Whether a range is of whole pages.
fn page_aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(4096) && len.is_multiple_of(4096)
}

fn is_device(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.rdev() != 0)
}

/// Whether a file system says by this that it has no splicing.
fn refuses_splice(e: &io::Error) -> bool {
    sys::unsupported(e) || e.raw_os_error() == Some(libc::EINVAL)
}

/// O_DIRECT's demands on offsets and lengths that are tried where the kernel does not tell them.
const USUAL_ALIGN: u32 = 4096;

/// A regular file or block device.
///
/// Reads and writes block the calling thread in pread and pwrite; [`UringStore`](crate::UringStore) puts the
/// same open file and locks on rings.
pub struct FileStore {
    file: File,
    /// Keeps what is below a loop device claimed and locked.
    below: Vec<below::Held>,
    path: PathBuf,
    is_device: bool,
    size: u64,
    /// O_DIRECT's granule for offsets and lengths, 1 through the page cache.
    align: usize,
    /// O_DIRECT's granule for memory, 1 through the page cache.
    memory_align: usize,
    logical_block: u32,
    rotational: bool,
    queue_depth: Option<u32>,
    write: bool,
    stripes: Stripes,
    /// On a file system that is memory, where no read or write waits for a device.
    in_memory: bool,
    /// On a file system whose plain writes tell, once, of earlier ones that found no room.
    earlier: Option<Earlier>,
    /// The kernel tells what of a file is in memory, and takes its pages into a socket as they are.
    lends: bool,
    no_lending: AtomicBool,
    no_nowait: AtomicBool,
    no_dsync: AtomicBool,
    no_discard: AtomicBool,
    no_punch: AtomicBool,
    no_zero_range: AtomicBool,
}

impl FileStore {
    /// Refuses a file by which a daemon of FS2 serves a volume, and a loop device that stands on one: whoever has the replicas in it kept,
    /// made or marked would have copies of copies, and a mark that its daemon knows nothing of. What is mounted elsewhere only is not seen.
    ///
    /// # Errors
    /// [`OpenError::Served`].
    pub fn refuse_served(&self) -> Result<(), OpenError> {
        let files = std::iter::once(&self.file).chain(self.below.iter().map(|held| &held.file));
        let files = files.filter_map(|file| file.metadata().ok().filter(std::fs::Metadata::is_file));
        match files.map(|m| m.dev()).find_map(lock::served_at) {
            Some((at, volume)) => Err(OpenError::Served { path: self.path.clone(), at, volume }),
            None => Ok(()),
        }
    }

    /// Opens a regular file or block device.
    ///
    /// # Errors
    /// See [`OpenError`]; with `lock_wait`, a holder's not letting go is told after that time.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<FileStore, OpenError> {
        let path = path.as_ref();
        let io = |doing| move |source| OpenError::Io { path: path.to_owned(), doing, source };
        let started = Instant::now();
        let lock::Claimed { file, is_device, below } = loop {
            match lock::open_once(path, options.write, options.lock == Lock::Exclusive) {
                Ok(claimed) => break claimed,
                Err(e) if e.is_transient() && options.lock_wait.is_some_and(|w| started.elapsed() < w) => {
                    std::thread::sleep(LOCK_POLL);
                }
                Err(e) => return Err(e),
            }
        };
        let meta = file.metadata().map_err(io("looking at it"))?;
        let size = if is_device { sys::device_size(&file) } else { Ok(meta.len()) };
        let size = size.map_err(io("asking for its size"))?;
        let device_block = if is_device { sys::device_logical_block(&file).ok() } else { None };
        let mut store = FileStore {
            rotational: if is_device {
                sys::device_rotational(&file)
            } else {
                sys::sysfs_rotational(meta.dev())
            },
            queue_depth: sys::queue_depth(&sys::sysfs(if is_device { meta.rdev() } else { meta.dev() })),
            file,
            below,
            path: path.to_owned(),
            is_device,
            size,
            align: 1,
            memory_align: 1,
            logical_block: device_block.unwrap_or(1),
            write: options.write,
            stripes: Stripes::new(),
            in_memory: false,
            earlier: None,
            lends: false,
            no_lending: AtomicBool::new(false),
            no_nowait: AtomicBool::new(false),
            no_dsync: AtomicBool::new(false),
            no_discard: AtomicBool::new(false),
            no_punch: AtomicBool::new(false),
            no_zero_range: AtomicBool::new(false),
        };
        store.in_memory = !is_device && sys::is_memory(&store.file);
        store.earlier = (!is_device && sys::tells_of_earlier(&store.file)).then(Earlier::default);
        let direct = match options.direct {
            // It would be the same copy, with rules of alignment.
            Direct::Auto if store.in_memory => Err("its file system is memory"),
            _ => store.go_direct(device_block),
        };
        match (options.direct, direct) {
            (Direct::Off, _) | (Direct::Auto, Err(_)) => {
                sys::set_direct(&store.file, false).map_err(io("turning direct I/O off"))?;
                (store.align, store.memory_align) = (1, 1);
            }
            (Direct::On, Err(why)) => return Err(OpenError::NoDirect { path: path.to_owned(), why }),
            (Direct::Auto | Direct::On, Ok(())) => store.logical_block = store.align as u32,
        }
        store.lends = store.is_cached() && sys::pages_in_memory(&store.file, 0, 1).is_ok();
        tracing::debug!(path = %path.display(), size, direct = store.is_direct(), "opened");
        Ok(store)
    }

    /// Turns O_DIRECT on and tries it.
    fn go_direct(&mut self, device_block: Option<u32>) -> Result<(), &'static str> {
        sys::set_direct(&self.file, true).map_err(|_| "its file system has no direct I/O")?;
        let (align, memory) = match (sys::direct_alignment(&self.file), device_block) {
            (Some((0, _)), _) => return Err("its file system has no direct I/O for it"),
            (Some((align, memory)), block) => (align.max(block.unwrap_or(1)), memory),
            (None, Some(block)) => (block, block),
            (None, None) => (USUAL_ALIGN, USUAL_ALIGN),
        };
        let (align, memory) = (align as usize, memory.max(1) as usize);
        if !align.is_power_of_two() || align > BOUNCE || !memory.is_power_of_two() || memory > 4096 {
            return Err("it wants an alignment that is not provided for");
        }
        if !self.size.is_multiple_of(align as u64) {
            return Err("its size is no multiple of the alignment that direct I/O wants");
        }
        if self.size > 0 {
            let mut probe = AlignedBuf::zeroed(align);
            sys::reads_somewhere(self.size, align as u64, |at| {
                sys::pread_exact(&self.file, at, &mut probe, align)
            })
            .map_err(|_| "a direct read fails")?;
        }
        (self.align, self.memory_align) = (align, memory);
        Ok(())
    }

    /// What it was opened as.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name that no other file or disk of this boot has, also one that is found by the same path later, or is given the number of this
    /// one: a file is known by when it was made, too, where its file system says that, a disk by the kernel's count of disks.
    ///
    /// # Errors
    /// What the system says of it.
    pub fn identity(&self) -> io::Result<String> {
        sys::identity_of(&self.file)
    }

    /// The same of what is opened for reading alone, and not claimed.
    ///
    /// # Errors
    /// As [`FileStore::identity`], and of opening it.
    pub fn identity_at(path: &Path) -> io::Result<String> {
        // A FIFO would wait for whoever writes to it.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        sys::identity_of(&file)
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.align > 1
    }

    /// Whether it is a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether a buffer on a page's boundary goes from or to these bytes in one call without reading around it.
    pub(crate) fn is_plain(&self, offset: u64, len: u64, write: bool) -> bool {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size);
        inside && (self.write || !write) && self.aligned(offset, len)
    }

    /// For a write that ends later: see [`Stripes::try_shared`].
    pub(crate) fn try_stripes(&self, mask: Mask) -> bool {
        self.stripes.try_shared(mask)
    }

    pub(crate) fn release_stripes(&self, mask: Mask) {
        self.stripes.release_shared(mask);
    }

    /// Writes what [`FileStore::is_plain`] while its stripes are held already.
    pub(crate) fn write_held(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        self.check_write(offset, buf.len() as u64)?;
        self.put(offset, buf, fua)
    }

    fn is_cached(&self) -> bool {
        !self.is_direct() && !self.is_device
    }

    /// Whether a write may be told of an earlier one: then it is done by [`FileStore::write_at`] alone.
    pub(crate) fn tells_of_earlier(&self) -> bool {
        self.earlier.is_some()
    }

    fn aligned(&self, offset: u64, len: u64) -> bool {
        let a = self.align as u64;
        offset.is_multiple_of(a) && len.is_multiple_of(a)
    }

    fn memory_fits(&self, start: *const u8) -> bool {
        start.addr().is_multiple_of(self.memory_align)
    }

    /// The aligned pieces that cover `offset..offset + len`, each at most the bounce buffer's size.
    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
        let a = self.align as u64;
        let end = (offset + len).next_multiple_of(a);
        let mut at = offset - offset % a;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let piece = (at, (end - at).min(BOUNCE as u64) as usize);
                at += piece.1 as u64;
                piece
            })
        })
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.write {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        check_range(self.size, offset, len)
    }

    /// The error of a write before a sync, which is the write's own but where the file system mixes them.
    fn own(&self, e: io::Error) -> io::Error {
        if self.tells_of_earlier() { sync_failed(e) } else { e }
    }

    fn put(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        let raw = |dsync| sys::pwrite_all(&self.file, offset, buf, self.align, dsync);
        if !fua {
            return match &self.earlier {
                Some(earlier) => earlier.write(|| raw(false)),
                None => raw(false),
            };
        }
        // A file may find no room, and a synchronous write that says so may have it from its sync, of an earlier write. So
        // it is written by itself first. The page cache then takes the same bytes once more, and syncs no others; past
        // it the device would write them twice, and the sync is a call of its own.
        if !self.is_device {
            raw(false).map_err(|e| self.own(e))?;
        }
        let by_write = self.is_device || !self.is_direct();
        if by_write && !self.no_dsync.load(Ordering::Relaxed) {
            match raw(true) {
                Err(e) if sys::unsupported(&e) => self.no_dsync.store(true, Ordering::Relaxed),
                done => return done.map_err(sync_failed),
            }
        }
        if self.is_device {
            raw(false)?;
        }
        self.flush().map_err(sync_failed)
    }

    /// Writes through a bounce buffer, reading the blocks at the edges first.
    fn put_bounced(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        let len = buf.len() as u64;
        let end = offset + len;
        let _held = if self.aligned(offset, len) {
            self.stripes.shared(offset, len)
        } else {
            let start = offset - offset % self.align as u64;
            self.stripes.alone(start, end.next_multiple_of(self.align as u64) - start)
        };
        let align = self.align as u64;
        let mut bounce = AlignedBuf::zeroed(self.pieces(offset, len).next().map_or(0, |p| p.1));
        for (at, n) in self.pieces(offset, len) {
            let piece = &mut bounce[..n];
            let piece_end = at + n as u64;
            let (from, to) = (offset.max(at), end.min(piece_end));
            let last_block = piece_end - align;
            if from > at || (to < piece_end && last_block == at) {
                sys::pread_exact(&self.file, at, &mut piece[..self.align], self.align)?;
            }
            if to < piece_end && last_block != at {
                let tail = (last_block - at) as usize;
                sys::pread_exact(&self.file, last_block, &mut piece[tail..], self.align)?;
            }
            piece[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&buf[(from - offset) as usize..(to - offset) as usize]);
            self.put(at, piece, fua)?;
        }
        Ok(())
    }

    fn plain_zeroes(&self, mut offset: u64, len: u64) -> io::Result<()> {
        let zeros = AlignedBuf::zeroed((BOUNCE as u64).min(len.next_multiple_of(4096)) as usize);
        let end = offset + len;
        while offset < end {
            // Up to a multiple of the buffer's size first, so that all but the ends are aligned.
            let n = (end - offset).min(zeros.len() as u64 - offset % zeros.len() as u64);
            self.write_at(offset, &zeros[..n as usize], false).map_err(|e| self.own(e))?;
            offset += n;
        }
        Ok(())
    }

    /// fallocate; false where it does not exist here.
    fn allocate(&self, gone: &AtomicBool, mode: FallocateFlags, offset: u64, len: u64) -> io::Result<bool> {
        if gone.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mode = mode | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        loop {
            match fallocate(&self.file, mode, offset as libc::off_t, len as libc::off_t) {
                Ok(()) => return Ok(true),
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => {
                    let e = io::Error::from(e);
                    if sys::unsupported(&e) {
                        gone.store(true, Ordering::Relaxed);
                        return Ok(false);
                    }
                    return Err(e);
                }
            }
        }
    }

    /// The whole logical blocks of a device within a range; `None` where there are none.
    fn inner_blocks(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let b = u64::from(self.logical_block).max(512);
        let start = offset.next_multiple_of(b);
        let end = (offset + len) / b * b;
        (start < end).then(|| (start, end - start))
    }
}

impl Store for FileStore {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_read(self.size, offset, buf.len())?;
        if self.aligned(offset, buf.len() as u64) && self.memory_fits(buf.as_ptr()) {
            return sys::pread_exact(&self.file, offset, buf, self.align);
        }
        let end = offset + buf.len() as u64;
        let mut bounce = AlignedBuf::zeroed(self.pieces(offset, buf.len() as u64).next().map_or(0, |p| p.1));
        for (at, n) in self.pieces(offset, buf.len() as u64) {
            sys::pread_exact(&self.file, at, &mut bounce[..n], self.align)?;
            let (from, to) = (offset.max(at), end.min(at + n as u64));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bounce[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        check_read(self.size, offset, buf.len())?;
        if self.is_direct() {
            return Ok(false);
        }
        if self.in_memory {
            return sys::pread_exact(&self.file, offset, buf, 1).map(|()| true);
        }
        if self.no_nowait.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match sys::pread_nowait(&self.file, buf, offset) {
            Ok(n) => Ok(n == buf.len()),
            Err(e) if sys::unsupported(&e) => {
                self.no_nowait.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn try_write(&self, offset: u64, buf: &[u8]) -> io::Result<bool> {
        // Into the page cache. It may wait there for memory, as any program may that writes much; what a
        // block is written to in part is read first, though, which is a device's time, as a sync is.
        if !self.is_cached()
            || self.tells_of_earlier()
            || !(self.in_memory || page_aligned(offset, buf.len()))
        {
            return Ok(false);
        }
        self.check_write(offset, buf.len() as u64)?;
        self.put(offset, buf, false).map(|()| true)
    }

    fn tries(&self) -> bool {
        self.is_cached()
    }

    fn try_lend(&self, offset: u64, len: usize, pipe: &mut Pipe) -> io::Result<bool> {
        check_read(self.size, offset, len)?;
        if !self.lends() || len == 0 || !pipe.takes(len) {
            return Ok(false);
        }
        if !self.in_memory {
            let pages = (offset % PAGE + len as u64).div_ceil(PAGE);
            // A page that is being read counts as one in memory. What is read ahead arrives in order.
            let mut last = [0];
            if sys::pages_in_memory(&self.file, offset, len as u64)? < pages
                || !self.try_read(offset + len as u64 - 1, &mut last)?
            {
                return Ok(false);
            }
        }
        let lent = pipe.refer(&self.file, offset, len);
        if lent.as_ref().is_err_and(refuses_splice) {
            // Its file system has no such thing.
            self.no_lending.store(true, Ordering::Relaxed);
        }
        lent.map(|()| true)
    }

    fn lends(&self) -> bool {
        self.lends && !self.no_lending.load(Ordering::Relaxed)
    }

    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        self.check_write(offset, buf.len() as u64)?;
        if !self.is_direct() {
            return self.put(offset, buf, fua);
        }
        if self.aligned(offset, buf.len() as u64) && self.memory_fits(buf.as_ptr()) {
            let _held = self.stripes.shared(offset, buf.len() as u64);
            return self.put(offset, buf, fua);
        }
        self.put_bounced(offset, buf, fua)
    }

    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.check_write(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if self.is_device {
            let Some((start, n)) = self.inner_blocks(offset, len) else {
                return self.plain_zeroes(offset, len);
            };
            let zeroed = {
                let _held = self.stripes.shared(start, n);
                sys::device_zero(&self.file, start, n)
            };
            // Not under the stripes: plain zeroes take them themselves.
            match zeroed {
                Err(e) if sys::unsupported(&e) => return self.plain_zeroes(offset, len),
                done => done?,
            }
            self.plain_zeroes(offset, start - offset)?;
            return self.plain_zeroes(start + n, offset + len - (start + n));
        }
        {
            let _held = self.stripes.shared(offset, len);
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE;
            let range = FallocateFlags::FALLOC_FL_ZERO_RANGE;
            if !no_hole && self.allocate(&self.no_punch, punch, offset, len)?
                || self.allocate(&self.no_zero_range, range, offset, len)?
            {
                return Ok(());
            }
        }
        self.plain_zeroes(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        if len == 0 || self.no_discard.load(Ordering::Relaxed) {
            return Ok(());
        }
        let done = if self.is_device {
            let Some((start, n)) = self.inner_blocks(offset, len) else { return Ok(()) };
            let _held = self.stripes.shared(start, n);
            sys::device_discard(&self.file, start, n)
        } else {
            let _held = self.stripes.shared(offset, len);
            self.allocate(&self.no_discard, FallocateFlags::FALLOC_FL_PUNCH_HOLE, offset, len).map(|_| ())
        };
        match done {
            Err(e) if sys::unsupported(&e) => {
                self.no_discard.store(true, Ordering::Relaxed);
                Ok(())
            }
            done => done,
        }
    }

    fn flush(&self) -> io::Result<()> {
        if !self.write {
            return Ok(());
        }
        // Never tried again on EIO: the kernel tells a lost write once.
        let sync = || loop {
            match self.file.sync_data() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        };
        match &self.earlier {
            Some(earlier) => earlier.sync(sync),
            None => sync(),
        }
    }

    fn logical_block_bytes(&self) -> u32 {
        self.logical_block
    }

    fn rotational(&self) -> bool {
        self.rotational
    }

    fn queue_depth(&self) -> Option<u32> {
        self.queue_depth
    }

    fn sparse(&self) -> bool {
        !self.is_device
    }

    fn host_space(&self) -> Option<(u64, u64)> {
        if self.is_device {
            return None;
        }
        let v = fstatvfs(&self.file).ok()?;
        let unit = v.fragment_size();
        Some((v.blocks_available() * unit, v.blocks() * unit))
    }

    fn stretches(&self, offset: u64, len: u64, limit: usize) -> io::Result<Vec<Stretch>> {
        check_range(self.size, offset, len)?;
        let end = offset + len;
        let mut found: Vec<Stretch> = Vec::new();
        let mut at = offset;
        let seek = |from: u64, whence| match lseek(&self.file, from as libc::off_t, whence) {
            Ok(n) => Ok(Some((n as u64).min(end))),
            Err(nix::errno::Errno::ENXIO) => Ok(None),
            Err(e) => Err(io::Error::from(e)),
        };
        while at < end && found.len() < limit.max(1) {
            let next_data = if self.is_device { Ok(Some(at)) } else { seek(at, Whence::SeekData) };
            let stretch = match next_data {
                Ok(Some(data)) if data > at => Stretch { len: data - at, hole: true },
                Ok(None) => Stretch { len: end - at, hole: true },
                Ok(Some(_)) if !self.is_device => {
                    let hole = seek(at, Whence::SeekHole)?.unwrap_or(end);
                    // A hole punched in between makes the two calls differ: one byte is always true.
                    Stretch { len: hole.max(at + 1) - at, hole: false }
                }
                Ok(Some(_)) => Stretch { len: end - at, hole: false },
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) || sys::unsupported(&e) => {
                    Stretch { len: end - at, hole: false }
                }
                Err(e) => return Err(e),
            };
            at += stretch.len;
            match found.last_mut() {
                Some(last) if last.hole == stretch.hole => last.len += stretch.len,
                _ => found.push(stretch),
            }
        }
        Ok(found)
    }

    fn stamp(&self) -> Option<Stamp> {
        Stamp::new(sys::stamp_of(&self.file, self.is_device)?)
    }

    fn stamps_below(&self) -> Vec<Stamp> {
        let whole = self.below.iter().take_while(|h| h.whole);
        whole.filter_map(|h| Stamp::new(sys::stamp_of(&h.file, is_device(&h.file))?)).collect()
    }
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore")
            .field("path", &self.path)
            .field("size", &self.size)
            .field("direct", &self.is_direct())
            .field("logical_block", &self.logical_block)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where NFS would be: such a write goes to who may wait, and what it is told to the next flush.
    #[test]
    fn a_flush_tells_what_a_write_was_told_of_earlier_ones() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(64 << 10).unwrap();
        let options = OpenOptions { write: true, direct: Direct::Off, ..OpenOptions::default() };
        let mut store = FileStore::open(image.path(), options).unwrap();
        assert!(store.earlier.is_none() && store.try_write(0, &[1; 4096]).unwrap());
        store.earlier = Some(Earlier::default());
        assert!(!store.try_write(0, &[2; 4096]).unwrap());
        store.write_at(0, &[3; 4096], false).unwrap();
        store.flush().unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let file = std::mem::replace(&mut store.file, full);
        let e = store.write_at(0, &[5; 4096], false).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
        store.file = file;
        store.write_at(4096, &[4; 4096], false).unwrap();
        assert_eq!(store.flush().unwrap_err().raw_os_error(), None);
        store.flush().unwrap();
    }
}
