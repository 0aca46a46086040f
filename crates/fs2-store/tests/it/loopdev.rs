//! Block devices and what stands on them. Needs root and loop devices: where they are missing each test
//! prints why it is skipped.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use fs2_store::{Direct, FileStore, Lock, OpenError, OpenOptions, StampOf, Store};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::common::{PATIENT, RW, agree, file_of, scratch, steps};

/// A loop device over a file, detached when dropped.
struct LoopDev(PathBuf);

impl LoopDev {
    fn over(file: &Path, sector: u32) -> Option<LoopDev> {
        LoopDev::with(file, &["--sector-size", &sector.to_string()])
    }

    fn with(file: &Path, options: &[&str]) -> Option<LoopDev> {
        let out = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        match out {
            Ok(o) if o.status.success() => {
                Some(LoopDev(String::from_utf8_lossy(&o.stdout).trim().to_owned().into()))
            }
            Ok(o) => skip(&format!("losetup: {}", String::from_utf8_lossy(&o.stderr).trim())),
            Err(e) => skip(&format!("no losetup: {e}")),
        }
    }
}

impl Drop for LoopDev {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
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

fn run(program: &str, args: &[&std::ffi::OsStr]) -> Option<()> {
    match Command::new(program).args(args).output() {
        Ok(o) if o.status.success() => Some(()),
        Ok(o) => skip(&format!("{program}: {}", String::from_utf8_lossy(&o.stderr).trim())),
        Err(e) => skip(&format!("no {program}: {e}")),
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
    let dev = LoopDev::over(&file_of(dir.path(), "f", size), sector)?;
    let mut runner = TestRunner::deterministic();
    let mut model = vec![0; size as usize];
    for direct in [Direct::Auto, Direct::On, Direct::Off] {
        let s = FileStore::open(&dev.0, OpenOptions { direct, ..PATIENT }).unwrap();
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
    let dev = LoopDev::over(&file, 512)?;
    // The file is refused while the loop device stands on it, open or not.
    let e = FileStore::open(&file, RW).unwrap_err();
    assert!(matches!(&e, OpenError::OnLoop { loopdev, .. } if *loopdev == dev.0), "{e}");
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
    let first = FileStore::open(&dev.0, PATIENT).unwrap();
    let e = FileStore::open(&dev.0, RW).unwrap_err();
    let me = format!("process {}", std::process::id());
    assert!(matches!(&e, OpenError::Busy { holder, .. } if holder.contains(&me)), "{e}");
    // Nor by another loop device over the same file: L3.
    let other = LoopDev::over(&file, 512)?;
    let e = FileStore::open(&other.0, RW).unwrap_err();
    assert!(matches!(&e, OpenError::Busy { holder, .. } if holder.contains("backing")), "{e}");
    drop(first);
    FileStore::open(&other.0, PATIENT).unwrap();
    drop((other, dev));
    FileStore::open(&file, PATIENT).unwrap();
    // The other way round: the file is ours, then somebody sets up a loop device on it.
    let held = FileStore::open(&file, PATIENT).unwrap();
    let late = LoopDev::over(&file, 512)?;
    assert!(matches!(FileStore::open(&late.0, RW), Err(OpenError::Busy { .. })));
    drop(held);
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
    let dev = LoopDev::over(&file, 512)?;
    run("mount", &["-t".as_ref(), "ext2".as_ref(), dev.0.as_ref(), at.as_ref()])?;
    let mount = Mount(at.to_owned());
    for path in [&dev.0, &file] {
        let e = FileStore::open(path, RW).unwrap_err();
        assert!(matches!(&e, OpenError::Mounted { at: a, .. } if a == at), "{e}");
        assert!(!e.is_transient());
    }
    drop(mount);
    FileStore::open(&dev.0, PATIENT).unwrap();
    Some(())
}

#[test]
fn a_device_stamp_counts_foreign_writes() {
    let _ = stamps();
}

fn stamps() -> Option<()> {
    allowed()?;
    let dir = scratch();
    let dev = LoopDev::over(&file_of(dir.path(), "f", 1 << 20), 512)?;
    let s = FileStore::open(&dev.0, PATIENT).unwrap();
    s.write_at(0, &[1; 8192], true).unwrap();
    s.flush().unwrap();
    let Some(before) = s.stamp() else { return skip("the kernel keeps no I/O statistics") };
    let mut buf = [0; 4096];
    s.read_at(0, &mut buf).unwrap();
    s.flush().unwrap();
    assert_eq!(s.stamp().unwrap(), before, "reading and flushing move nothing");
    drop(s);
    let foreign = OpenOptions { lock: Lock::None, ..PATIENT };
    FileStore::open(&dev.0, foreign).unwrap().write_at(4096, &[2; 512], true).unwrap();
    let after = FileStore::open(&dev.0, PATIENT).unwrap().stamp().unwrap();
    match (before.of, after.of) {
        (
            StampOf::Device { sectors_written: a, diskseq: m, .. },
            StampOf::Device { sectors_written: b, diskseq: n, .. },
        ) => assert!(b > a && m == n && m != 0, "{before} {after}"),
        other => panic!("{other:?}"),
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
    let dev = LoopDev::with(&file_of(dir.path(), "f", 1 << 20), &["--read-only"])?;
    let e = FileStore::open(&dev.0, RW).unwrap_err();
    assert!(matches!(e, OpenError::ReadOnly { .. }), "{e}");
    FileStore::open(&dev.0, OpenOptions { write: false, ..PATIENT }).unwrap();
    Some(())
}
