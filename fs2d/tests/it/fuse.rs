//! The FUSE frontend under the kernel. Needs root and /dev/fuse; without them each test says so
//! and ends. Not shown here: a loop device on the file (the kernel tests of fs2-tools).

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;

use fs2_block::{Extent, Op};
use fs2_store::AlignedBuf;
use fs2d::frontend::fuse::{FILE_NAME, Server};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MntFlags, umount2};
use nix::sys::statvfs::statvfs;

use crate::fuse_mem::random::{
    RANDOM_PART, RANDOM_THREADS, open, random_operations_on, turns_are_told_of_by,
};
use crate::fuse_mem::{BLOCK, MemService, PANIC, Rig, fuse_is_here};

const MIB: usize = 1 << 20;

fn is_mounted(dir: &Path) -> bool {
    let dir = dir.to_str().unwrap();
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|l| l.split(' ').nth(4) == Some(dir))
}

#[test]
fn one_file_and_nothing_else() {
    if !fuse_is_here() {
        return;
    }
    let rig = Rig::new(MIB, 2);
    let names: Vec<_> = fs::read_dir(rig.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, [FILE_NAME]);
    let meta = fs::metadata(rig.file()).unwrap();
    assert!(meta.is_file());
    assert_eq!((meta.len(), meta.permissions().mode() & 0o7777), (MIB as u64, 0o600));
    assert_eq!(meta.uid(), nix::unistd::geteuid().as_raw());
    let stat = statvfs(rig.dir()).unwrap();
    assert_eq!((stat.block_size(), stat.blocks()), (BLOCK as u64, (MIB / BLOCK) as u64));

    // The directory and the size are fixed; the same size again is no change.
    let refused = |r: std::io::Result<()>| assert_eq!(r.unwrap_err().kind(), ErrorKind::PermissionDenied);
    refused(File::create(rig.dir().join("other")).map(drop));
    refused(File::create(rig.file()).map(drop));
    refused(fs::remove_file(rig.file()));
    refused(fs::rename(rig.file(), rig.dir().join("other")));
    refused(fs::set_permissions(rig.file(), fs::Permissions::from_mode(0o666)));
    let f = open(&rig.file(), 0);
    refused(f.set_len(MIB as u64 + 1));
    f.set_len(MIB as u64).unwrap();
    assert_eq!(f.metadata().unwrap().len(), MIB as u64);
    assert_eq!(rig.service.seen(Op::Read) + rig.service.seen(Op::Write), 0);
}

/// Several threads, each with a stretch of its own, through direct and plain descriptors at once.
#[test]
fn random_operations_against_a_plain_vector() {
    if fuse_is_here() {
        random_operations_on(Rig::new(RANDOM_THREADS * RANDOM_PART, 4));
    }
}

#[test]
fn turns_are_told_of() {
    if fuse_is_here() {
        turns_are_told_of_by(|service| Rig::of(service, 2));
    }
}

/// The same with two threads that go back for the next request while others answer.
#[test]
fn random_operations_begun() {
    if !fuse_is_here() {
        return;
    }
    let service = MemService::from_memory(RANDOM_THREADS * RANDOM_PART);
    service.elsewhere.store(true, Ordering::Relaxed);
    random_operations_on(Rig::of(service.clone(), 2));
    let all =
        [Op::Read, Op::Write, Op::Punch, Op::WriteZeroes].map(|op| service.seen(op)).iter().sum::<u64>();
    assert_eq!(service.begun.load(Ordering::Relaxed) as u64, all, "nothing was called");
}

#[test]
fn the_end_of_the_volume() {
    if !fuse_is_here() {
        return;
    }
    let size = 3 * BLOCK + 512;
    let rig = Rig::new(size, 1);
    for flags in [0, libc::O_DIRECT] {
        let f = open(&rig.file(), flags);
        let mut room = AlignedBuf::zeroed(2 * BLOCK);
        assert_eq!(f.read_at(&mut room, 2 * BLOCK as u64).unwrap(), BLOCK + 512);
        assert_eq!(f.read_at(&mut room, size as u64).unwrap(), 0);
        assert_eq!(f.read_at(&mut room, 1 << 40).unwrap(), 0);
        let errno = |at: u64| f.write_at(&room, at).unwrap_err().raw_os_error();
        assert_eq!(errno(2 * BLOCK as u64), Some(libc::ENOSPC));
        assert_eq!(errno(size as u64), Some(libc::ENOSPC));
        assert_eq!(errno(1 << 40), Some(libc::ENOSPC));
    }
    assert_eq!(rig.service.seen(Op::Write), 0);
    let f = open(&rig.file(), 0);
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    assert_eq!(fallocate(&f, punch, BLOCK as i64, 1 << 30), Err(nix::Error::EINVAL));
    assert_eq!(fs::metadata(rig.file()).unwrap().len(), size as u64);
}

#[test]
fn flush_fua_punch_and_zeroes_arrive_as_what_they_are() {
    if !fuse_is_here() {
        return;
    }
    let rig = Rig::new(MIB, 2);
    let f = open(&rig.file(), 0);
    f.sync_data().unwrap();
    f.sync_all().unwrap();
    assert_eq!(rig.service.seen(Op::Flush), 2);

    f.write_all_at(b"x", 5).unwrap();
    let (op, extent, flags) = rig.service.last().unwrap();
    assert_eq!((op, extent, flags.fua), (Op::Write, Extent::new(5, 1), false));
    open(&rig.file(), libc::O_DSYNC).write_all_at(b"x", 5).unwrap();
    assert!(rig.service.last().unwrap().2.fua);

    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&f, FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep, 4096, 8192).unwrap();
    let (op, extent, flags) = rig.service.last().unwrap();
    assert_eq!((op, extent, flags.no_hole), (Op::Punch, Extent::new(4096, 8192), false));
    fallocate(&f, FallocateFlags::FALLOC_FL_ZERO_RANGE | keep, 0, 4096).unwrap();
    let (op, extent, flags) = rig.service.last().unwrap();
    assert_eq!((op, extent, flags.no_hole), (Op::WriteZeroes, Extent::new(0, 4096), true));
}

/// The kernel never asks again for what was answered ENOSYS, nor a loop device for punches answered EOPNOTSUPP: that is right of a service
/// that takes none, and of none else.
#[test]
fn a_refusal_does_not_end_flushes_and_punches() {
    if !fuse_is_here() {
        return;
    }
    let rig = Rig::new(MIB, 2);
    let f = open(&rig.file(), 0);
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let zeroes = FallocateFlags::FALLOC_FL_ZERO_RANGE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    // 524 and above are no error numbers the kernel would take from a server.
    for (tries, e) in (1u64..).zip([libc::ENOSYS, libc::EOPNOTSUPP, 524, -1, 4096]) {
        rig.service.fail.store(e, Ordering::Relaxed);
        assert_eq!(f.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO), "fsync, service says {e}");
        let said = if e == libc::EOPNOTSUPP { nix::Error::EOPNOTSUPP } else { nix::Error::EIO };
        assert_eq!(fallocate(&f, punch, 0, 4096), Err(said), "punch, service says {e}");
        assert_eq!(fallocate(&f, zeroes, 0, 4096), Err(nix::Error::EIO), "zeroes, service says {e}");
        assert_eq!((rig.service.seen(Op::Flush), rig.service.seen(Op::Punch)), (tries, tries));
        assert_eq!(f.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    rig.service.fail.store(libc::ENOSPC, Ordering::Relaxed);
    assert_eq!(f.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    rig.service.fail.store(0, Ordering::Relaxed);
    assert_eq!(fallocate(&f, FallocateFlags::empty(), 0, 4096), Err(nix::Error::EINVAL), "preallocation");
    f.sync_all().unwrap();
    fallocate(&f, punch, 0, 4096).unwrap();
    assert_eq!((rig.service.seen(Op::Flush), rig.service.seen(Op::Punch)), (6, 6));
}

#[test]
fn holes_can_be_found() {
    if !fuse_is_here() {
        return;
    }
    let rig = Rig::new(8 * BLOCK, 2);
    let f = open(&rig.file(), 0);
    let seek = |at: usize, whence| {
        // SAFETY: the descriptor is open; lseek takes no pointer.
        let r = unsafe { libc::lseek(f.as_raw_fd(), at as i64, whence) };
        nix::errno::Errno::result(r).map(|r| r as usize)
    };
    assert_eq!(seek(5, libc::SEEK_HOLE), Ok(8 * BLOCK));
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&f, punch, 2 * BLOCK as i64, 2 * BLOCK as i64).unwrap();
    fallocate(&f, punch, 6 * BLOCK as i64, 2 * BLOCK as i64).unwrap();
    assert_eq!(seek(0, libc::SEEK_DATA), Ok(0));
    assert_eq!(seek(0, libc::SEEK_HOLE), Ok(2 * BLOCK));
    assert_eq!(seek(2 * BLOCK + 7, libc::SEEK_HOLE), Ok(2 * BLOCK + 7));
    assert_eq!(seek(2 * BLOCK, libc::SEEK_DATA), Ok(4 * BLOCK));
    assert_eq!(seek(6 * BLOCK, libc::SEEK_DATA), Err(nix::Error::ENXIO));
    assert_eq!(seek(8 * BLOCK, libc::SEEK_HOLE), Err(nix::Error::ENXIO));
}

#[test]
fn unmounting_is_seen_whoever_does_it() {
    if !fuse_is_here() {
        return;
    }
    let rig = Rig::new(MIB, 3);
    assert!(rig.server.is_alive() && is_mounted(rig.dir()));
    rig.server.unmount().unwrap();
    assert!(!rig.server.is_alive() && !is_mounted(rig.dir()));
    assert_eq!(rig.server.fuse_connection(), None);
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 1);
    rig.server.unmount().unwrap();

    let rig = Rig::new(MIB, 3);
    umount2(rig.dir(), MntFlags::empty()).unwrap();
    rig.server.wait().unwrap();
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 1);
    // What someone mounts there afterwards is not ours to unmount.
    nix::mount::mount(Some("t"), rig.dir(), Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=4k"))
        .unwrap();
    rig.server.unmount().unwrap();
    let still = is_mounted(rig.dir());
    umount2(rig.dir(), MntFlags::empty()).unwrap();
    assert!(still);

    let rig = Rig::new(MIB, 3);
    rig.server.abort().unwrap();
    rig.server.wait().unwrap();
    assert!(File::open(rig.file()).is_err() && is_mounted(rig.dir()));
    rig.server.unmount().unwrap();
    assert!(!is_mounted(rig.dir()));
}

#[test]
fn in_use_it_is_served_to_the_end() {
    if !fuse_is_here() {
        return;
    }
    let rig = Rig::new(MIB, 2);
    let mut f = open(&rig.file(), 0);
    let dir = rig.dir().to_owned();
    let service = rig.service.clone();
    std::thread::scope(|scope| {
        // Both give up only after seconds; what is read meanwhile is served.
        let waiter = scope.spawn(|| rig.server.unmount());
        while is_mounted(&dir) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        f.write_all_at(b"late", 100).unwrap();
        let mut got = String::new();
        f.seek(SeekFrom::Start(100)).unwrap();
        (&mut f).take(4).read_to_string(&mut got).unwrap();
        assert_eq!(got, "late");
        assert_eq!(service.disconnected.load(Ordering::Relaxed), 0);
        drop(f);
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(service.disconnected.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_leaves_nothing_mounted() {
    if !fuse_is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let service = MemService::new(MIB);
    let theirs = service.clone();
    let path = dir.path().to_owned();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let server = Server::mount(&path, theirs, 2).unwrap();
        let _open = open(&server.file(), 0);
        assert!(server.file().exists());
        std::panic::resume_unwind(Box::new("planted"));
    }));
    assert!(panicked.is_err());
    assert!(!is_mounted(dir.path()));
    dir.close().unwrap();
}

#[test]
fn a_panic_of_the_service_costs_a_request_and_a_thread() {
    if !fuse_is_here() {
        return;
    }
    let rig = Rig::new(MIB, 2);
    let f = open(&rig.file(), 0);
    rig.service.fail.store(PANIC, Ordering::Relaxed);
    assert_eq!(f.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
    rig.service.fail.store(0, Ordering::Relaxed);
    f.write_all_at(b"served", 0).unwrap();
    assert!(rig.server.is_alive());
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 0);
    // With the last thread the mount ends, for whoever waits as well.
    rig.service.fail.store(PANIC, Ordering::Relaxed);
    assert!(f.sync_all().is_err());
    assert!(rig.server.wait().unwrap_err().to_string().contains("panicked"));
    assert!(f.read_at(&mut [0; 8], 0).is_err());
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 1);
    drop(f);
    assert!(rig.server.unmount().is_err(), "says how it ended");
    assert!(!is_mounted(rig.dir()));
}

#[test]
fn what_cannot_be_mounted() {
    if !fuse_is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let kind = |path: &Path, threads| Server::mount(path, MemService::new(MIB), threads).unwrap_err().kind();
    assert_eq!(kind(dir.path(), 0), ErrorKind::InvalidInput);
    assert_eq!(kind(&file, 1), ErrorKind::InvalidInput);
    assert_eq!(kind(&dir.path().join("absent"), 1), ErrorKind::NotFound);
    assert!(!is_mounted(dir.path()));
}
