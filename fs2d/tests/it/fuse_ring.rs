//! A mount whose requests come by io_uring. Needs root, /dev/fuse and a kernel with
//! /sys/module/fuse/parameters/enable_uring, which is set and put back; without them each test says so and ends. Other tests of this program ask
//! for no ring.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fs2_block::Op;
use fs2_store::AlignedBuf;
use fs2d::frontend::fuse::{RingKind, Server};

use crate::fuse_mem::random::{
    RANDOM_PART, RANDOM_THREADS, open, random_operations_on, turns_are_told_of_by,
};
use crate::fuse_mem::{BLOCK, MemService, PANIC, Rig, fuse_is_here};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel offers it, or does not; as it was before on drop. One at a time.
struct Offered {
    former: String,
    _alone: MutexGuard<'static, ()>,
}

impl Offered {
    /// `None` where that cannot be, and says so.
    fn set(yes: bool) -> Option<Offered> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !fuse_is_here() {
            return None;
        }
        if !Path::new(PARAMETER).exists() {
            println!("skipped: needs {PARAMETER} (Linux 6.14, CONFIG_FUSE_IO_URING)");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let offered = Offered { former: std::fs::read_to_string(PARAMETER).unwrap(), _alone: alone };
        std::fs::write(PARAMETER, if yes { "Y" } else { "N" }).unwrap();
        Some(offered)
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        std::fs::write(PARAMETER, &self.former).unwrap();
    }
}

fn rig(service: Arc<MemService>) -> Rig {
    let rig = Rig::with(service, 2, RingKind::On);
    assert!(rig.server.is_by_ring());
    rig
}

/// A hang becomes a failure that says what was waited for.
fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|l| l.split(' ').nth(1) == dir.to_str())
}

#[test]
fn turns_are_told_of() {
    let Some(_offered) = Offered::set(true) else { return };
    turns_are_told_of_by(rig);
}

#[test]
fn random_operations_by_ring() {
    let Some(_offered) = Offered::set(true) else { return };
    let service = MemService::new(RANDOM_THREADS * RANDOM_PART);
    random_operations_on(rig(service.clone()));
    assert_eq!(service.disconnected.load(Ordering::Relaxed), 1);
}

/// The device's directory, its attributes, its end: what no service answers.
#[test]
fn one_file_and_its_end() {
    let Some(_offered) = Offered::set(true) else { return };
    let rig = rig(MemService::new(MIB));
    let names: Vec<_> = std::fs::read_dir(rig.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["volume"]);
    assert_eq!(std::fs::metadata(rig.file()).unwrap().len(), MIB as u64);
    assert!(std::fs::metadata(rig.dir().join("other")).is_err());
    assert_eq!(File::create(rig.dir().join("other")).unwrap_err().raw_os_error(), Some(libc::EPERM));
    let f = open(&rig.file(), libc::O_DIRECT);
    let mut room = AlignedBuf::zeroed(2 * BLOCK);
    assert_eq!(f.read_at(&mut room, (MIB - BLOCK) as u64).unwrap(), BLOCK);
    assert_eq!(f.read_at(&mut room, MIB as u64).unwrap(), 0);
    assert_eq!(f.write_at(&room, (MIB - BLOCK) as u64).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    f.sync_all().unwrap();
    assert_eq!(rig.service.seen(Op::Flush), 1);
    rig.service.fail.store(libc::ENOSYS, Ordering::Relaxed);
    assert_eq!(f.read_at(&mut room, 0).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(f.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    rig.service.fail.store(0, Ordering::Relaxed);
    f.sync_all().unwrap();
    drop(f);
    rig.server.unmount().unwrap();
    assert!(!rig.server.is_alive() && !is_mounted(rig.dir()));
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 1);
}

/// Requests that wait take neither the thread nor what comes after them; an answer may be late, from elsewhere, or none.
#[test]
fn who_waits_for_a_device_does_not_keep_the_ring() {
    let Some(_offered) = Offered::set(true) else { return };
    let rig = rig(MemService::new(MIB));
    let file = open(&rig.file(), libc::O_DIRECT);
    file.write_all_at(&AlignedBuf::copy_of(&[7; BLOCK]), 0).unwrap();
    rig.service.holds.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let read = || {
            let mut room = AlignedBuf::zeroed(BLOCK);
            open(&rig.file(), libc::O_DIRECT).read_exact_at(&mut room, 0).map(|()| room[0])
        };
        let readers: Vec<_> = (0..16).map(|_| scope.spawn(read)).collect();
        until("reads that wait", || rig.service.holding() == readers.len());
        // A write passes them.
        file.write_all_at(&AlignedBuf::copy_of(&[8; BLOCK]), BLOCK as u64).unwrap();
        for (n, (request, done)) in rig.service.held().into_iter().enumerate() {
            match n % 4 {
                // Elsewhere, and without an answer.
                0 => drop((request, done)),
                1 => drop(std::thread::spawn({
                    let service = rig.service.clone();
                    move || service.answer(request, done)
                })),
                _ => rig.service.answer(request, done),
            }
        }
        let ends: Vec<_> = readers.into_iter().map(|r| r.join().unwrap()).collect();
        assert_eq!(ends.iter().filter(|e| matches!(e, Ok(7))).count(), 12);
        let lost = ends.iter().filter_map(|e| e.as_ref().err());
        assert!(lost.clone().count() == 4 && lost.clone().all(|e| e.raw_os_error() == Some(libc::EIO)));
    });
    drop(file);
    rig.server.unmount().unwrap();
}

#[test]
fn cut_off_it_ends_and_says_so() {
    let Some(_offered) = Offered::set(true) else { return };
    let rig = rig(MemService::new(MIB));
    rig.service.holds.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let reader =
            scope.spawn(|| open(&rig.file(), libc::O_DIRECT).read_at(&mut AlignedBuf::zeroed(BLOCK), 0));
        until("a read that waits", || rig.service.holding() == 1);
        rig.server.abort().unwrap();
        assert!(reader.join().unwrap().is_err());
    });
    // The connection outlives its request.
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 0);
    let held = rig.service.held();
    held.into_iter().for_each(|(request, done)| rig.service.answer(request, done));
    rig.server.wait().unwrap();
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 1);
    rig.server.unmount().unwrap();
    assert!(!is_mounted(rig.dir()));
}

#[test]
fn in_use_it_is_served_to_the_end() {
    let Some(_offered) = Offered::set(true) else { return };
    let rig = rig(MemService::new(MIB));
    let f = open(&rig.file(), 0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.server.unmount());
        until("the mount is out of the tree", || !is_mounted(rig.dir()));
        f.write_all_at(b"late", 100).unwrap();
        let mut got = [0; 4];
        f.read_exact_at(&mut got, 100).unwrap();
        assert_eq!(&got, b"late");
        drop(f);
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 1);
}

/// Nobody else would answer what waits in its queues.
#[test]
fn a_thread_that_panics_cuts_the_mount_off() {
    let Some(_offered) = Offered::set(true) else { return };
    let rig = rig(MemService::new(MIB));
    let f = open(&rig.file(), 0);
    rig.service.fail.store(PANIC, Ordering::Relaxed);
    assert!(f.read_at(&mut [0; 8], 0).is_err());
    assert!(rig.server.wait().unwrap_err().to_string().contains("panicked"));
    assert!(f.read_at(&mut [0; 8], 0).is_err());
    assert_eq!(rig.service.disconnected.load(Ordering::Relaxed), 1);
    drop(f);
    assert!(rig.server.unmount().is_err(), "says how it ended");
    assert!(!is_mounted(rig.dir()));
}

#[test]
fn where_the_kernel_offers_none() {
    let Some(_offered) = Offered::set(false) else { return };
    let dir = tempfile::tempdir().unwrap();
    let refused =
        Server::mount_with(dir.path(), "".as_ref(), MemService::new(MIB), 2, RingKind::On).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains(&format!("echo Y > {PARAMETER}")), "{refused}");
    assert!(!is_mounted(dir.path()));
    for kind in [RingKind::Auto, RingKind::Off] {
        let rig = Rig::with(MemService::new(MIB), 2, kind);
        assert!(!rig.server.is_by_ring());
        open(&rig.file(), 0).write_all_at(b"served", 0).unwrap();
        rig.server.unmount().unwrap();
    }
}

#[test]
fn offered_and_not_wanted() {
    let Some(_offered) = Offered::set(true) else { return };
    let rig = Rig::new(MIB, 2);
    assert!(!rig.server.is_by_ring());
    open(&rig.file(), 0).write_all_at(b"served", 0).unwrap();
    rig.server.unmount().unwrap();
    let rig = Rig::with(MemService::new(MIB), 2, RingKind::Auto);
    assert!(rig.server.is_by_ring());
    rig.server.unmount().unwrap();
}
