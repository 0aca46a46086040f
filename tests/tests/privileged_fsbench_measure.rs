//! What fsbench's measuring asks of the kernel: caches that are really dropped, a limit that really limits. The caches are all
//! volumes', and a mount namespace it makes has what is mounted elsewhere: a program of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs2_tests::{KERNEL, Mounted, Need, PlainMount, Scratch, mke2fs, needs, run};
use fs2_tools::fsbench::fs2::difference;
use fs2_tools::fsbench::measure::{
    Cold, ColdMode, DriveSpan, Environment, MemLimit, Method, power_called, residency_of,
};
use fs2_tools::kernel::mount_at;

const MIB: u64 = 1 << 20;

/// Held by who looks at what is cached and by who drops the caches of all: one at a time.
fn caches() -> MutexGuard<'static, ()> {
    static CACHES: Mutex<()> = Mutex::new(());
    CACHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files of 1 MiB below `dir`, written out.
fn files(dir: &Path, n: usize) -> Vec<PathBuf> {
    let made: Vec<PathBuf> = (0..n).map(|i| dir.join(format!("file{i}"))).collect();
    for path in &made {
        let mut file = std::fs::File::create(path).unwrap();
        file.write_all(&vec![0x5a; MIB as usize]).unwrap();
        file.sync_all().unwrap();
    }
    made
}

fn read_all(files: &[PathBuf]) {
    for path in files {
        assert_eq!(std::fs::read(path).unwrap().len() as u64, MIB);
    }
}

fn plain(scratch: &Scratch) -> PlainMount {
    let image = scratch.path("image");
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    PlainMount::new(&image, &scratch.path("mnt"), "nodev")
}

/// A process of ours, ended on drop.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_remount_is_cold_and_keeps_its_options() {
    if !needs(&[Need::Root, Need::Loop, Need::Program("mke2fs")]) {
        return;
    }
    let _caches = caches();
    let scratch = Scratch::new();
    let mount = plain(&scratch);
    let files = files(mount.dir(), 20);
    read_all(&files);
    assert_eq!(residency_of(&files[0]).unwrap().0.share(), 1.0, "warm before");
    let before = mount_at(mount.dir()).unwrap().unwrap();
    let cold = Cold::plan(ColdMode::Remount, mount.dir()).unwrap();
    let proof = cold.make(&files).unwrap();
    assert!(proof.files >= 8 && proof.residency.pages >= 8 * 256, "{proof:?}");
    assert_eq!(proof.residency.cached, 0);
    assert!(matches!(proof.method, Some(Method::Cachestat | Method::Mincore)));
    let after = mount_at(mount.dir()).unwrap().unwrap();
    assert_eq!((before.options, before.source, before.fstype), (after.options, after.source, after.fstype));
    read_all(&files);
}

/// Mounted in another namespace too, the file system lives on, with all it has cached.
#[test]
fn a_mount_that_lives_on_elsewhere_is_cold_too() {
    if !needs(&[Need::Root, Need::Loop, Need::Program("mke2fs"), Need::Program("unshare")]) {
        return;
    }
    let _caches = caches();
    let scratch = Scratch::new();
    let mount = plain(&scratch);
    let files = files(mount.dir(), 3);
    read_all(&files);
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo there; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut there = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut there).unwrap();
    let _other = Ours(child);
    let cold = Cold::plan(ColdMode::Remount, mount.dir()).unwrap();
    let proof = cold.make(&files).unwrap();
    assert!(proof.dropped_too && proof.files > 0 && proof.residency.cached == 0, "{proof:?}");
    // It is mounted again, and usable.
    read_all(&files);
}

#[test]
fn a_mount_in_use_stays_mounted() {
    if !needs(&[Need::Root, Need::Loop, Need::Program("mke2fs")]) {
        return;
    }
    let _caches = caches();
    let scratch = Scratch::new();
    let mount = plain(&scratch);
    let made = files(mount.dir(), 1);
    let open = std::fs::File::open(&made[0]).unwrap();
    let cold = Cold::plan(ColdMode::Remount, mount.dir()).unwrap();
    let e = cold.make(&made).unwrap_err();
    assert!(e.to_string().contains("cannot unmount"), "{e}");
    assert!(mount_at(mount.dir()).unwrap().is_some());
    drop(open);
    cold.make(&made).unwrap();
}

/// A file system in memory; taken away on drop.
struct InMemory(PathBuf);

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// What stays cached whatever is dropped is no cold start: the run fails, says why, and leaves nothing.
#[test]
fn a_run_that_stays_warm_is_refused() {
    if !needs(&[Need::Root]) {
        return;
    }
    let _caches = caches();
    let scratch = Scratch::new();
    let dir = scratch.make_dir("memory");
    let mut mount = Command::new("mount");
    run(mount.args(["-t", "tmpfs", "-o", "size=64m", "none"]).arg(&dir)).ended(0);
    let memory = InMemory(dir);
    let bench = |cold: &str| {
        let args = ["run", "cvs-update", "--scale", "0.02", "--cold", cold];
        run(scratch.command("fsbench").args(args).arg(&memory.0)).ended(1)
    };
    bench("drop").says("still cached after --cold drop").says("tmpfs");
    bench("remount").says("without a block device");
    assert_eq!(std::fs::read_dir(&memory.0).unwrap().count(), 0, "nothing is left");
}

/// A child may read a file larger than its limit; no more of it is kept than that.
#[test]
fn the_limit_holds_the_page_cache_and_is_removed() {
    if !needs(&[Need::Root, Need::Loop, Need::Program("mke2fs")]) {
        return;
    }
    let _caches = caches();
    let scratch = Scratch::new();
    let mount = plain(&scratch);
    let made = files(mount.dir(), 32);
    let limit = match MemLimit::new(8 * MIB) {
        Ok(limit) => limit,
        // Said with what is missing; a machine without the controller has nothing more to show.
        Err(e @ fs2_tools::fsbench::measure::MemLimitError::Missing { .. }) => {
            assert!(e.to_string().contains("--mem-limit needs"), "{e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    Cold::plan(ColdMode::Remount, mount.dir()).unwrap().make(&made).unwrap();
    let mut child = Command::new("sh");
    child.args(["-c", "read go; exec cat \"$@\"", "sh"]).args(&made);
    let mut child = Ours(child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    limit.add(child.0.id()).unwrap();
    child.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.0.wait().unwrap().success());
    assert!(limit.used_bytes().unwrap() <= 8 * MIB);
    assert_eq!(limit.oom_kills(), Some(0));
    let cached: u64 = made.iter().map(|f| residency_of(f).unwrap().0.cached * 4096).sum();
    assert!(cached > 0 && cached <= 8 * MIB, "{cached} bytes of 32 MiB");
    let dir = limit.dir().to_owned();
    drop(limit);
    assert!(!dir.exists());
}

/// The limit goes though someone is still in it, who then goes on outside.
#[test]
fn whoever_is_left_in_it_is_let_out() {
    if !needs(&[Need::Root]) {
        return;
    }
    let Ok(limit) = MemLimit::new(16 * MIB) else { return };
    let child = Ours(Command::new("sleep").arg("1000").spawn().unwrap());
    limit.add(child.0.id()).unwrap();
    let dir = limit.dir().to_owned();
    drop(limit);
    assert!(!dir.exists());
    let where_now = std::fs::read_to_string(format!("/proc/{}/cgroup", child.0.id())).unwrap();
    assert!(!where_now.contains("fsbench-"), "{where_now}");
}

/// On FS2: what is read after a cold start comes from the drive, and the daemon's figures tell so.
#[test]
fn a_cold_fs2_volume_reads_from_its_modelled_drive() {
    if !needs(KERNEL) {
        return;
    }
    let _caches = caches();
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 128 * MIB, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let args = ["--drive", "wd800-repaired", "--time-scale", "0.1", "--require-active"];
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &args);
    let made = files(mounted.dir(), 4);
    let status = || -> fs2_control::Status { serde_json::from_value(mounted.status()).unwrap() };
    Cold::plan(ColdMode::Remount, mounted.dir()).unwrap().make(&made).unwrap();
    let before = status();
    read_all(&made);
    let after = status();
    let power = power_called(&after.drive).expect("a built-in profile");
    let span = DriveSpan::of(&difference(&before, &after).unwrap(), 1.0, Some(power));
    // Requests are of at most 128 KiB read-ahead, thus no fewer than 8 a file.
    assert!(span.reads >= 8 * 4 && span.accesses >= span.reads, "{span:?}");
    assert!(span.t_a_ms > Some(0.0) && span.access_j > Some(0.0), "{span:?}");
    assert_eq!(span.reading().source, "disk model");
    let environment = Environment::of(mounted.dir()).unwrap();
    let fs = environment.file_system.unwrap();
    assert_eq!((fs.fstype.as_str(), environment.fs2), ("ext2", None), "its runtime directory is another");
    assert!(environment.device.unwrap().backing_file.is_some());
    mounted.umount().ended(0);
}
