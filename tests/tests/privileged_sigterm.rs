//! SIGTERM to the daemon of a mounted volume in use: it ends by itself, sets no mark, and the volume says how it
//! becomes active again. What fsync promised is there.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fs2_tests::{KERNEL, Mounted, Rng, Scratch, mke2fs, needs, run};
use nix::sys::signal::{Signal, kill};

#[test]
fn sigterm_below_a_mount_in_use_ends_the_daemon() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mnt) = (scratch.path("image"), scratch.path("mnt"));
    mke2fs(&image, 256 << 20, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--policy", "torture", "--require-active"]);
    let promised = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rng = Rng::new(5);
            for n in 0.. {
                let (name, bytes) = (format!("{n}"), rng.bytes(20_000));
                let write = || -> std::io::Result<()> {
                    let mut file = fs::File::create(mnt.join(&name))?;
                    file.write_all(&bytes)?;
                    file.sync_all()?;
                    fs::File::open(&mnt)?.sync_all()
                };
                if write().is_err() {
                    return;
                }
                promised.lock().unwrap().push((name, bytes));
            }
        });
        let start = Instant::now();
        while promised.lock().unwrap().len() < 50 {
            assert!(!writer.is_finished() && start.elapsed() < Duration::from_secs(120), "no load");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(mounted.pid(), Signal::SIGTERM).unwrap();
        let asked = Instant::now();
        while kill(mounted.pid(), None).is_ok() {
            assert!(asked.elapsed() < Duration::from_secs(120), "the daemon does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    mounted.umount();
    let promised = promised.into_inner().unwrap();
    assert!(promised.len() >= 50);
    let remedy = format!("chkfs2 -f -p {}", image.display());
    scratch
        .run("fs2", ["mount", "--require-active", image.to_str().unwrap(), mnt.to_str().unwrap()])
        .ended(32)
        .says(&remedy);
    let mut checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    if checked.code & 4 != 0 {
        // Without a journal, a file being made may have no name yet; that is for a person to decide.
        run(Command::new("e2fsck").arg("-fy").arg(&image));
        checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    }
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    let mounted = Mounted::new(&scratch, &image, &mnt, &["--require-active"]);
    for (name, bytes) in &promised {
        assert!(fs::read(mnt.join(name)).unwrap() == *bytes, "{name} differs");
    }
    mounted.umount().ended(0);
}
