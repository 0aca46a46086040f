//! Block devices and what stands on them. Needs root and loop devices: where they are missing each test
//! prints why it is skipped.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fs2_store::{Direct, FileStore, Lock, OpenError, OpenOptions, StampOf, Store};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::common::{PATIENT, RW, agree, file_of, scratch, steps};
use crate::loop_dev::LoopDev;

/// `file` in sectors of so many bytes.
fn over(file: &Path, sector: u32) -> Option<LoopDev> {
    with(file, &["--sector-size", &sector.to_string()])
}

fn with(file: &Path, options: &[&str]) -> Option<LoopDev> {
    LoopDev::attach(file, options).map_or_else(|why| skip(&why), Some)
}

/// A partition of a loop device that looks for such, taken away when dropped: before its device.
struct Partition(PathBuf, PathBuf, u32);

impl Partition {
    /// Its first MiB, and how many.
    fn of(dev: &LoopDev, number: u32, start: u64, len: u64) -> Option<Partition> {
        let sectors = |mib: u64| (mib << 11).to_string();
        let number_text = number.to_string();
        let args =
            [dev.path().as_os_str(), number_text.as_ref(), sectors(start).as_ref(), sectors(len).as_ref()]
                .map(ToOwned::to_owned);
        run("addpart", &args.each_ref().map(|a| a.as_os_str()))?;
        let mut node = dev.path().as_os_str().to_owned();
        node.push(format!("p{number}"));
        let made = Partition(node.into(), dev.path().to_owned(), number);
        if made.0.exists() { Some(made) } else { skip("nobody makes nodes of partitions in /dev") }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _ = Command::new("delpart").arg(&self.1).arg(self.2.to_string()).status();
    }
}

/// A mount, undone when dropped.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn skip<T>(why: &str) -> Option<T> {
    eprintln!("skipped: {why}");
    None
}

fn allowed() -> Option<()> {
    if !nix::unistd::geteuid().is_root() {
        return skip("needs root");
    }
    if !Path::new("/dev/loop-control").exists() {
        return skip("needs /dev/loop-control");
    }
    Some(())
}

/// Tried for as long as it finds a device in use: a child that another test is about to start has until then what was open here.
fn run(program: &str, args: &[&std::ffi::OsStr]) -> Option<()> {
    let until = Instant::now() + PATIENT.lock_wait.unwrap();
    loop {
        let said = match Command::new(program).args(args).output() {
            Ok(o) if o.status.success() => return Some(()),
            Ok(o) => String::from_utf8_lossy(&o.stderr).trim().to_owned(),
            Err(e) => return skip(&format!("no {program}: {e}")),
        };
        let in_use = said.contains("in use") || said.contains("busy");
        if !in_use || Instant::now() >= until {
            return skip(&format!("{program}: {said}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_device_is_a_vector() {
    for sector in [512, 4096] {
        device_is_a_vector(sector);
    }
}

fn device_is_a_vector(sector: u32) -> Option<()> {
    allowed()?;
    let dir = scratch();
    let size = 1 << 20;
    let dev = over(&file_of(dir.path(), "f", size), sector)?;
    let mut runner = TestRunner::deterministic();
    let mut model = vec![0; size as usize];
    for direct in [Direct::Auto, Direct::On, Direct::Off] {
        let s = FileStore::open(dev.path(), OpenOptions { direct, ..PATIENT }).unwrap();
        assert!(s.is_device() && !s.sparse() && s.host_space().is_none());
        assert_eq!(s.is_direct(), direct != Direct::Off);
        assert_eq!(s.logical_block_bytes(), sector);
        for _ in 0..10 {
            let steps = steps(size, 30_000, 40).new_tree(&mut runner).unwrap().current();
            agree(&s, &mut model, &steps);
        }
    }
    Some(())
}

#[test]
fn a_device_is_claimed_and_its_file_too() {
    let _ = claims();
}

fn claims() -> Option<()> {
    allowed()?;
    let dir = scratch();
    let file = file_of(dir.path(), "f", 1 << 20);
    let dev = over(&file, 512)?;
    // The file is refused while the loop device stands on it, open or not.
    let e = FileStore::open(&file, RW).unwrap_err();
    assert!(matches!(&e, OpenError::OnLoop { loopdev, .. } if loopdev == dev.path()), "{e}");
    // A second name does not help.
    let link = dir.path().join("link");
    std::fs::hard_link(&file, &link).unwrap();
    // Nor does one refusal stand in the way of the next, while another thread starts programs: these have the file
    // open until they are executed.
    let starting = AtomicBool::new(true);
    std::thread::scope(|s| {
        s.spawn(|| {
            while starting.load(Ordering::Relaxed) {
                let _ = Command::new("true").status();
            }
        });
        let refusals: Vec<_> = (0..2000).map(|_| FileStore::open(&link, RW).err()).collect();
        starting.store(false, Ordering::Relaxed);
        for e in refusals {
            assert!(matches!(&e, Some(OpenError::OnLoop { .. })), "{e:?}");
        }
    });
    // The device is ours once.
    let first = FileStore::open(dev.path(), PATIENT).unwrap();
    let e = FileStore::open(dev.path(), RW).unwrap_err();
    let me = format!("process {}", std::process::id());
    assert!(matches!(&e, OpenError::Busy { holder, .. } if holder.contains(&me)), "{e}");
    // Nor by another loop device over the same file: L3.
    let other = over(&file, 512)?;
    let e = FileStore::open(other.path(), RW).unwrap_err();
    assert!(matches!(&e, OpenError::Busy { holder, .. } if holder.contains("backing")), "{e}");
    drop(first);
    FileStore::open(other.path(), PATIENT).unwrap();
    drop((other, dev));
    FileStore::open(&file, PATIENT).unwrap();
    // The other way round: the file is ours, then somebody sets up a loop device on it.
    let held = FileStore::open(&file, PATIENT).unwrap();
    let late = over(&file, 512)?;
    assert!(matches!(FileStore::open(late.path(), RW), Err(OpenError::Busy { .. })));
    drop(held);
    Some(())
}

/// Partitions of two loop devices over one image, and loop devices over others, were each claimed for themselves: two daemons
/// copied into what the other's client had written.
#[test]
fn whatever_leads_to_the_same_bytes_excludes_each_other() {
    let _ = ways();
}

fn ways() -> Option<()> {
    allowed()?;
    let dir = scratch();
    let file = file_of(dir.path(), "f", 12 << 20);
    let a = with(&file, &["--partscan"])?;
    let b = with(&file, &["--partscan"])?;
    let (a1, a2) = (Partition::of(&a, 1, 1, 4)?, Partition::of(&a, 2, 5, 4)?);
    let b1 = Partition::of(&b, 1, 1, 4)?;
    let part = with(&file, &["--offset=4MiB", "--sizelimit=1MiB"])?;
    let on_a = with(a.path(), &[])?;
    let on_a2 = with(&a2.0, &["--offset=2MiB"])?;
    let on_that = with(on_a2.path(), &[])?;
    // What can be opened, and the MiB of the file that it reaches.
    let ways = [
        (a.path(), 0..12),
        (b.path(), 0..12),
        (a1.0.as_path(), 1..5),
        (b1.0.as_path(), 1..5),
        (part.path(), 4..5),
        (a2.0.as_path(), 5..9),
        (on_a.path(), 0..12),
        (on_a2.path(), 7..9),
        (on_that.path(), 7..9),
    ];
    for (held, its) in &ways {
        let store = FileStore::open(held, PATIENT).unwrap();
        for (other, bytes) in &ways {
            let what = format!("{} beside {}", other.display(), held.display());
            if bytes.start < its.end && its.start < bytes.end {
                let e = FileStore::open(other, RW).expect_err(&what);
                assert!(matches!(&e, OpenError::Busy { .. }), "{what}: {e}");
            } else {
                FileStore::open(other, PATIENT).expect(&what);
            }
        }
        drop(store);
    }
    let _first = FileStore::open(&a1.0, PATIENT).unwrap();
    let e = FileStore::open(&b1.0, RW).unwrap_err().to_string();
    let holder = format!("in use by process {}", std::process::id());
    let through = format!("through its backing {}", file.display());
    assert!(e.contains(&holder) && e.contains(&through), "{e}");
    // What is mounted below is told as what is mounted itself.
    let at = dir.path().join("at");
    std::fs::create_dir(&at).unwrap();
    run("mke2fs", &["-q".as_ref(), "-t".as_ref(), "ext2".as_ref(), a2.0.as_ref()])?;
    run("mount", &["-t".as_ref(), "ext2".as_ref(), a2.0.as_ref(), at.as_ref()])?;
    let mount = Mount(at.clone());
    let e = FileStore::open(on_that.path(), RW).unwrap_err();
    assert!(matches!(&e, OpenError::Mounted { path, at: a } if *path == a2.0 && *a == at), "{e}");
    drop(mount);
    FileStore::open(on_that.path(), PATIENT).unwrap();
    Some(())
}

/// Nobody could lock the file, and so both were taken for the only way to it.
#[test]
fn a_deleted_file_is_reached_by_one_loop_device() {
    let _ = deleted();
}

fn deleted() -> Option<()> {
    allowed()?;
    let dir = scratch();
    let file = file_of(dir.path(), "f", 1 << 20);
    let (one, other) = (over(&file, 512)?, over(&file, 512)?);
    std::fs::remove_file(&file).unwrap();
    let e = FileStore::open(one.path(), RW).unwrap_err();
    let named = other.path().display().to_string();
    assert!(matches!(&e, OpenError::Busy { holder, .. } if holder.contains(&named)), "{e}");
    drop(other);
    FileStore::open(one.path(), PATIENT).unwrap();
    Some(())
}

#[test]
fn what_is_mounted_is_refused() {
    let _ = mounted();
}

fn mounted() -> Option<()> {
    allowed()?;
    let dir = scratch();
    let at = dir.path().join("a mount");
    std::fs::create_dir(&at).unwrap();
    refused_while_mounted(&at, file_of(dir.path(), "f", 4 << 20))?;
    // What sysfs says of such a loop device was not read, and the file below the mount opened for writing.
    let latin1 = dir.path().join(OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&latin1).unwrap();
    refused_while_mounted(&at, file_of(&latin1, "f", 4 << 20))
}

fn refused_while_mounted(at: &Path, file: PathBuf) -> Option<()> {
    run("mke2fs", &["-q".as_ref(), "-t".as_ref(), "ext2".as_ref(), file.as_ref()])?;
    let dev = over(&file, 512)?;
    run("mount", &["-t".as_ref(), "ext2".as_ref(), dev.path().as_ref(), at.as_ref()])?;
    let mount = Mount(at.to_owned());
    for path in [dev.path(), &file] {
        let e = FileStore::open(path, RW).unwrap_err();
        assert!(matches!(&e, OpenError::Mounted { at: a, .. } if a == at), "{e}");
        assert!(!e.is_transient());
    }
    drop(mount);
    FileStore::open(dev.path(), PATIENT).unwrap();
    Some(())
}

#[test]
fn a_device_stamp_counts_foreign_writes() {
    let _ = stamps();
}

fn stamps() -> Option<()> {
    allowed()?;
    let dir = scratch();
    let dev = over(&file_of(dir.path(), "f", 1 << 20), 512)?;
    let s = FileStore::open(dev.path(), PATIENT).unwrap();
    s.write_at(0, &[1; 8192], true).unwrap();
    s.flush().unwrap();
    let Some(before) = s.stamp() else { return skip("the kernel keeps no I/O statistics") };
    let mut buf = [0; 4096];
    s.read_at(0, &mut buf).unwrap();
    s.flush().unwrap();
    assert_eq!(s.stamp().unwrap(), before, "reading and flushing move nothing");
    drop(s);
    let foreign = OpenOptions { lock: Lock::None, ..PATIENT };
    FileStore::open(dev.path(), foreign).unwrap().write_at(4096, &[2; 512], true).unwrap();
    let after = FileStore::open(dev.path(), PATIENT).unwrap().stamp().unwrap();
    match (before.of, after.of) {
        (
            StampOf::Device { sectors_written: a, diskseq: m, .. },
            StampOf::Device { sectors_written: b, diskseq: n, .. },
        ) => assert!(b > a && m == n && m != 0, "{before} {after}"),
        other => panic!("{other:?}"),
    }
    Some(())
}

/// A session through a loop device left the file's record as it was, and the file was taken for written by another.
#[test]
fn a_loop_device_knows_the_stamps_below() {
    let _ = stamps_below();
}

fn stamps_below() -> Option<()> {
    allowed()?;
    let dir = scratch();
    // No whole number of sectors.
    let file = file_of(dir.path(), "f", (1 << 20) + 100);
    let by_itself = FileStore::open(&file, PATIENT).unwrap().stamp().unwrap();
    let lower = over(&file, 512)?;
    let upper = over(lower.path(), 512)?;
    let of_lower = FileStore::open(lower.path(), PATIENT).unwrap();
    let Some(lower_stamp) = of_lower.stamp() else { return skip("the kernel keeps no I/O statistics") };
    assert_eq!(of_lower.stamps_below(), std::slice::from_ref(&by_itself));
    drop(of_lower);
    let through = FileStore::open(upper.path(), PATIENT).unwrap();
    assert_eq!(through.stamps_below(), [lower_stamp, by_itself]);
    through.write_at(0, &[1; 4096], true).unwrap();
    through.flush().unwrap();
    let after = through.stamps_below();
    drop((through, upper, lower));
    assert_eq!(FileStore::open(&file, PATIENT).unwrap().stamp().as_ref(), after.last());
    // Another volume may lie in the rest, and its writes are nobody's business.
    for part in ["--offset=4096", "--sizelimit=524288"] {
        let part = with(&file, &[part])?;
        assert_eq!(FileStore::open(part.path(), PATIENT).unwrap().stamps_below(), []);
    }
    Some(())
}

#[test]
fn a_read_only_device_is_refused_for_writing() {
    let _ = read_only();
}

fn read_only() -> Option<()> {
    allowed()?;
    let dir = scratch();
    // Not blockdev --setro: that would outlast the detaching.
    let dev = with(&file_of(dir.path(), "f", 1 << 20), &["--read-only"])?;
    let e = FileStore::open(dev.path(), RW).unwrap_err();
    assert!(matches!(e, OpenError::ReadOnly { .. }), "{e}");
    FileStore::open(dev.path(), OpenOptions { write: false, ..PATIENT }).unwrap();
    Some(())
}

/// A full file system below a sparse image: a write with `fua` says so as one without does, and is not for a ring, whose one call
/// could not tell whose error it is.
#[test]
fn a_full_file_system_is_told_of_the_write_itself() {
    let _ = full();
}

fn full() -> Option<()> {
    if !nix::unistd::geteuid().is_root() {
        return skip("needs root");
    }
    let dir = scratch();
    run(
        "mount",
        &[
            "-t".as_ref(),
            "tmpfs".as_ref(),
            "-o".as_ref(),
            "size=64k".as_ref(),
            "none".as_ref(),
            dir.path().as_ref(),
        ],
    )?;
    let _mount = Mount(dir.path().to_owned());
    let s = FileStore::open(file_of(dir.path(), "f", 1 << 20), OpenOptions { direct: Direct::Off, ..RW })
        .unwrap();
    let room =
        (0..256u64).take_while(|n| s.write_at(n * 4096, &[1; 4096], n % 2 == 0).is_ok()).count() as u64;
    assert!((8..=16).contains(&room), "{room} blocks");
    let write = |block: u64, fua| s.write_at(block * 4096, &[2; 4096], fua).map_err(|e| e.raw_os_error());
    assert_eq!((write(room, false), write(room, true)), (Err(Some(libc::ENOSPC)), Err(Some(libc::ENOSPC))));
    assert_eq!((write(0, true), s.flush().is_ok()), (Ok(()), true), "it has its room");
    Some(())
}

/// What an earlier write found no room for is told by the sync of a later one, which must not pass for that one's own.
#[test]
fn a_sync_that_finds_no_room_for_an_earlier_write_is_told_apart() {
    let _ = earlier();
}

fn earlier() -> Option<()> {
    allowed()?;
    let (below, above) = (scratch(), scratch());
    let args = |line: &str| line.split(' ').map(std::ffi::OsString::from).collect::<Vec<_>>();
    let on = |program: &str, line: &str, more: &[&Path]| {
        let words = args(line);
        let all: Vec<&OsStr> =
            words.iter().map(|a| a.as_os_str()).chain(more.iter().map(|p| p.as_os_str())).collect();
        run(program, &all)
    };
    on("mount", "-t tmpfs -o size=8m none", &[below.path()])?;
    let _below = Mount(below.path().to_owned());
    let image = file_of(below.path(), "image", 64 << 20);
    on("mke2fs", "-q -t ext4 -O ^has_journal -E nodiscard", &[&image])?;
    let dev = with(&image, &[])?;
    on("mount", "-t ext4", &[dev.path(), above.path()])?;
    let _above = Mount(above.path().to_owned());
    let file = file_of(above.path(), "f", 0);
    on("fallocate", "-l 16m", &[&file])?;
    on("sync", "-f", &[&file])?;
    // Room for the file there is above, and none for its blocks below.
    let _ = std::fs::write(below.path().join("full"), vec![1; 8 << 20]);
    let s = FileStore::open(&file, OpenOptions { direct: Direct::Off, ..RW }).unwrap();
    let write = |at: u64, fua| s.write_at(at, &[2; 4096], fua).map_err(|e| e.raw_os_error());
    assert_eq!((write(1 << 20, false), write(2 << 20, true)), (Ok(()), Err(None)));
    Some(())
}
