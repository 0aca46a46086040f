//! The daemon is killed with SIGKILL under load. What fsync promised is there afterwards, nothing stale is
//! read, and the volume says how it becomes active again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use fs2_tests::{KERNEL, Mounted, Rng, Scratch, e2fsck_clean, mke2fs, needs, run};

/// Files and the bytes fsync promised; one being written is in neither state and left out.
type Promised = Mutex<BTreeMap<String, Vec<u8>>>;

/// Writes, overwrites and removes files, each with fsync, until the volume is gone.
fn write_until_it_fails(root: &Path, seed: u64, promised: &Promised) {
    let mut rng = Rng::new(seed);
    let dir = root.join(format!("w{seed}"));
    if fs::create_dir(&dir).is_err() {
        return;
    }
    for n in 0.. {
        let name = format!("w{seed}/{:03}", if n < 40 { n } else { rng.below(120) });
        let path = root.join(&name);
        promised.lock().unwrap().remove(&name);
        let mut write = || -> std::io::Result<Option<Vec<u8>>> {
            if n > 40 && rng.clone().below(6) == 0 && path.exists() {
                fs::remove_file(&path)?;
                // The free blocks are on disk before anyone has them again.
                nix::unistd::syncfs(File::open(&dir)?)?;
                return Ok(None);
            }
            let len = 1 + rng.below(40_000) as usize;
            let bytes = rng.bytes(len);
            let mut file = File::options().create(true).truncate(false).write(true).open(&path)?;
            file.write_all(&bytes)?;
            file.set_len(len as u64)?;
            file.sync_all()?;
            File::open(&dir)?.sync_all()?;
            Ok(Some(bytes))
        };
        match write() {
            Ok(Some(bytes)) => drop(promised.lock().unwrap().insert(name, bytes)),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Reads promised files from the volume, not from the page cache, until told to stop.
fn read_until(root: &Path, stop: &AtomicBool, promised: &Promised) {
    let mut rng = Rng::new(99);
    while !stop.load(Ordering::Relaxed) {
        let name = {
            let promised = promised.lock().unwrap();
            promised.keys().nth(rng.below(promised.len() as u64) as usize).cloned()
        };
        let Some(file) = name.and_then(|n| File::open(root.join(n)).ok()) else {
            std::thread::yield_now();
            continue;
        };
        let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        let _ = nix::fcntl::posix_fadvise(&file, 0, 0, advice);
        let _ = std::io::copy(&mut &file, &mut std::io::sink());
    }
}

fn compare(root: &Path, promised: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in promised {
        let there = fs::read(root.join(name)).unwrap_or_else(|e| panic!("{name}, which fsync promised: {e}"));
        assert!(
            there == *bytes,
            "{name} is not what fsync promised ({} and {} bytes)",
            there.len(),
            bytes.len()
        );
    }
}

#[test]
fn a_killed_daemon_loses_nothing_that_fsync_promised() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("fs2"));
    mke2fs(&image, 512 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let torture = ["--policy", "torture", "--require-active"];
    let mounted = Mounted::new(&scratch, &image, &mnt, &torture);
    let promised = Promised::default();
    let stop = AtomicBool::new(false);
    /// Set on drop, so that a failure ends the reader too.
    struct Set<'a>(&'a AtomicBool);
    impl Drop for Set<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let stop_reading = Set(&stop);
        let reader = scope.spawn(|| read_until(&mnt, &stop, &promised));
        let writers: Vec<_> = [1, 2]
            .map(|seed| {
                let (mnt, promised) = (&mnt, &promised);
                scope.spawn(move || write_until_it_fails(mnt, seed, promised))
            })
            .into();
        let busy = || {
            let s = mounted.status();
            let over = |counter: &str, n| s[counter].as_u64() > Some(n);
            over("copies_written", 1000) && over("invalidated", 100) && over("reads_from_replica", 100)
        };
        while !busy() {
            assert!(writers.iter().all(|w| !w.is_finished()), "a writer failed before its time");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        mounted.kill_daemon();
        for writer in writers {
            writer.join().unwrap();
        }
        drop(stop_reading);
        reader.join().unwrap();
    });
    let promised = promised.into_inner().unwrap();
    assert!(promised.len() > 50, "{} files: the test shows nothing", promised.len());
    let remedy = format!("chkfs2 -f -p {}", image.display());
    mounted.umount().ended(4).says(&remedy);

    // Not even a clean file system brings the replicas back: nobody knows what they are worth.
    // ext2 has no journal: a kill between an inode and its directory's block leaves a file without a name,
    // which e2fsck -p, with FS2 or without, leaves to a person. No promised file is such a one.
    let mut checked = run(Command::new("e2fsck").arg("-p").arg(&image));
    if checked.code == 4 && checked.out.contains("Unattached inode") {
        checked = run(Command::new("e2fsck").arg("-fy").arg(&image));
    }
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    scratch
        .run("fs2", ["mount", "--require-active", image.to_str().unwrap(), mnt.to_str().unwrap()])
        .ended(32)
        .says(&remedy);
    let (mounted, said) = Mounted::and_said(&scratch, &image, &mnt, &["--policy", "torture"]);
    said.says("inactive: ").says(&remedy);
    compare(&mnt, &promised);
    let status = mounted.status();
    assert_eq!((&status["reads_from_replica"], &status["copies_written"]), (&0.into(), &0.into()));
    mounted.umount().ended(0);

    let checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    let mounted = Mounted::new(&scratch, &image, &mnt, &torture);
    let status = mounted.read_until(3, &[("reads_from_replica", 100)], || compare(&mnt, &promised));
    assert_eq!((&status["hash_mismatches"], &status["replica_errors"]), (&0.into(), &0.into()));
    mounted.umount().ended(0);
    e2fsck_clean(&image);
}
