//! The whole of it: a volume in memory, served over FUSE, a loop device on its file, the kernel's
//! ext2 on that. Needs root, /dev/fuse and /dev/loop-control; without them each test says so and
//! ends. Not shown here: replicas (the volume is a plain one).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fs2_block::{ConnectionId, Extent, Op};
use fs2_store::Stretch;
use fs2_tools::kernel::{
    FuseWatchdog, LoopDevice, LoopOptions, MountOptions, loop_of_file, loops, mount_at, mount_ext2,
};
use fs2d::frontend::fuse::{Control, Server};
use fs2d::service::{ClientRequest, Completion, Errno, ExportInfo, Service};

use crate::fuse_mem::{BLOCK, MemService, Rig, fuse_is_here};

const MIB: usize = 1 << 20;

fn rig_is_here() -> bool {
    fuse_is_here() && {
        let here = File::open("/dev/loop-control").is_ok();
        if !here {
            println!("skipped: needs /dev/loop-control");
        }
        here
    }
}

fn run(program: &str, args: &[&str], last: &Path) -> String {
    let done = Command::new(program).args(args).arg(last).output();
    let done = done.unwrap_or_else(|e| panic!("{program} (e2fsprogs or util-linux): {e}"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {said}");
    said
}

/// A rig with a device on it; the last field goes first.
struct Stack {
    rig: Rig,
    _dog: FuseWatchdog,
    mnt: tempfile::TempDir,
}

impl Stack {
    fn new(size: usize) -> Stack {
        let rig = Rig::new(size, 3);
        let service = rig.service.clone();
        let ops = [Op::Read, Op::Write, Op::Punch, Op::WriteZeroes, Op::Flush];
        let progress = move || ops.iter().map(|&op| service.seen(op)).sum();
        let connection = rig.server.fuse_connection().unwrap();
        let dog = FuseWatchdog::start(connection, Duration::from_secs(60), progress).unwrap();
        Stack { rig, _dog: dog, mnt: tempfile::tempdir().unwrap() }
    }

    fn service(&self) -> &MemService {
        &self.rig.service
    }

    /// What e2fsck says of the bytes below.
    fn check(&self) {
        let image = self.mnt.path().with_extension("image");
        let _undo = Remove(image.clone());
        fs::write(&image, self.service().bytes()).unwrap();
        run("e2fsck", &["-fn"], &image);
    }
}

struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    let mut x = seed as u32 | 1;
    std::iter::repeat_with(|| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    })
    .take(len)
    .collect()
}

#[test]
fn ext2_over_loop_over_fuse() {
    if !rig_is_here() {
        return;
    }
    let stack = Stack::new(64 * MIB);
    let (service, mnt) = (stack.service(), stack.mnt.path());
    let device = LoopDevice::attach(&stack.rig.file(), &LoopOptions::default()).unwrap();
    assert_eq!(device.warnings(), [] as [String; 0]);
    assert_eq!(device.queue("discard_granularity").unwrap(), BLOCK.to_string());
    assert_eq!(device.queue("rotational").unwrap(), "1");
    assert_eq!(loop_of_file(&stack.rig.file()).unwrap(), Some(device.path()));
    run("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "4096"], &device.path());
    assert!(service.seen(Op::Punch) > 0, "mke2fs discards");
    // A flush of the device is a flush of the volume.
    let flushes = service.seen(Op::Flush);

    let mut mounted = mount_ext2(&device.path(), mnt, MountOptions::default()).unwrap();
    let mut files = BTreeMap::new();
    for i in 0..40usize {
        let path = mnt.join(format!("d{}/f{i}", i % 5));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = content(i, i * i * 700);
        let mut f = File::create(&path).unwrap();
        f.write_all(&bytes).unwrap();
        f.sync_all().unwrap();
        files.insert(path, bytes);
    }
    assert!(service.seen(Op::Flush) > flushes, "fsync flushes");
    mounted.cold().unwrap();
    for (path, bytes) in &files {
        assert!(fs::read(path).unwrap() == *bytes, "{}", path.display());
    }

    // Without the discard option, only fstrim tells of freed blocks.
    let gone: Vec<_> = files.keys().filter(|p| p.starts_with(mnt.join("d1"))).cloned().collect();
    let freed: usize = gone.iter().map(|p| files.remove(p).unwrap().len() / BLOCK * BLOCK).sum();
    let punches = service.seen(Op::Punch);
    gone.iter().for_each(|p| fs::remove_file(p).unwrap());
    mounted.cold().unwrap();
    let holes = service.hole_bytes();
    assert_eq!(service.seen(Op::Punch), punches);
    run("fstrim", &[], mnt);
    assert!(service.seen(Op::Punch) > punches);
    assert!(service.hole_bytes() >= holes + freed, "{} {holes} {freed}", service.hole_bytes());

    // With it, freeing is enough.
    mounted.unmount().unwrap();
    let discard = MountOptions { discard: true, ..MountOptions::default() };
    let mut mounted = mount_ext2(&device.path(), mnt, discard).unwrap();
    let punches = service.seen(Op::Punch);
    let gone = files.keys().next_back().unwrap().clone();
    assert!(files.remove(&gone).unwrap().len() > BLOCK);
    fs::remove_file(gone).unwrap();
    mounted.cold().unwrap();
    assert!(service.seen(Op::Punch) > punches);

    for (path, bytes) in &files {
        assert!(fs::read(path).unwrap() == *bytes, "{}", path.display());
    }
    mounted.unmount().unwrap();
    device.detach().unwrap();
    stack.check();
    assert_eq!(service.clients(), 1);
    stack.rig.server.unmount().unwrap();
    assert_eq!(service.disconnected.load(Ordering::Relaxed), 1);
    assert_eq!(mount_at(stack.rig.dir()).unwrap(), None);
}

/// The loop driver makes WRITE_ZEROES a punch where the zeroes may be a hole.
#[test]
fn the_device_s_own_commands() {
    if !rig_is_here() {
        return;
    }
    let stack = Stack::new(8 * MIB);
    let service = stack.service();
    let device = LoopDevice::attach(&stack.rig.file(), &LoopOptions::default()).unwrap();
    fs::write(device.path(), content(1, 8 * MIB)).unwrap();
    File::open(device.path()).unwrap().sync_all().unwrap();
    assert!(service.bytes() == content(1, 8 * MIB));
    let last = |args: &[&str]| {
        run("blkdiscard", args, &device.path());
        service.last().map(|(op, extent, _)| (op, extent)).unwrap()
    };
    assert_eq!(last(&["-f", "-o", "65536", "-l", "32768"]), (Op::Punch, Extent::new(65536, 32768)));
    let (op, extent) = last(&["-f", "-z", "-o", "131072", "-l", "32768"]);
    println!("write zeroes came as {op:?}");
    assert!(matches!(op, Op::Punch | Op::WriteZeroes));
    assert_eq!(extent, Extent::new(131_072, 32_768));
    let bytes = service.bytes();
    for zero in [65536..98304, 131_072..163_840] {
        assert!(bytes[zero].iter().all(|&b| b == 0));
    }
    assert!(bytes[98304..131_072] == content(1, 8 * MIB)[98304..131_072]);

    // An error below is an error above, and the next request is served.
    service.fail.store(libc::EIO, Ordering::Relaxed);
    assert!(File::options().write(true).open(device.path()).unwrap().sync_all().is_err());
    service.fail.store(0, Ordering::Relaxed);
    File::options().write(true).open(device.path()).unwrap().sync_all().unwrap();
    device.detach().unwrap();
    stack.rig.server.unmount().unwrap();
}

#[test]
fn a_panic_leaves_nothing_behind() {
    if !rig_is_here() {
        return;
    }
    let place = Mutex::new(None);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let stack = Stack::new(8 * MIB);
        *place.lock().unwrap() = Some((stack.rig.dir().to_owned(), stack.mnt.path().to_owned()));
        let device = LoopDevice::attach(&stack.rig.file(), &LoopOptions::default()).unwrap();
        run("mke2fs", &["-q", "-F", "-t", "ext2"], &device.path());
        let _mounted = mount_ext2(&device.path(), stack.mnt.path(), MountOptions::default()).unwrap();
        fs::write(stack.mnt.path().join("file"), content(7, MIB)).unwrap();
        std::panic::resume_unwind(Box::new("planted"));
    }));
    assert!(panicked.is_err());
    let (dir, mnt) = place.lock().unwrap().take().unwrap();
    assert!(!dir.exists() && !mnt.exists(), "directories are removed, so nothing is mounted there");
    assert!(loops().unwrap().iter().all(|l| !l.file.starts_with(&dir)));
}

/// Reads wait until they are let go.
struct Hanging {
    below: Arc<MemService>,
    hangs: Mutex<bool>,
    let_go: Condvar,
}

impl Hanging {
    fn new() -> Arc<Hanging> {
        let below = MemService::new(MIB);
        Arc::new(Hanging { below, hangs: Mutex::new(true), let_go: Condvar::new() })
    }

    fn let_go(&self) {
        *self.hangs.lock().unwrap() = false;
        self.let_go.notify_all();
    }
}

impl Service for Hanging {
    fn info(&self) -> ExportInfo {
        self.below.info()
    }

    fn connect(&self) -> ConnectionId {
        self.below.connect()
    }

    fn disconnect(&self, connection: ConnectionId) {
        self.below.disconnect(connection);
    }

    fn submit(&self, request: ClientRequest, done: Completion) {
        if request.op == Op::Read {
            let hangs = self.hangs.lock().unwrap();
            drop(self.let_go.wait_while(hangs, |hangs| *hangs).unwrap());
        }
        self.below.submit(request, done);
    }

    fn stretches(&self, extent: Extent, limit: usize) -> Result<Vec<Stretch>, Errno> {
        self.below.stretches(extent, limit)
    }
}

#[test]
fn the_watchdog_ends_a_hang_and_leaves_idleness_alone() {
    if !rig_is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let service = Hanging::new();
    let server = Server::mount(dir.path(), service.clone(), 2).unwrap();
    let connection = server.fuse_connection().unwrap();
    let dog = FuseWatchdog::start(connection, Duration::from_millis(200), || 0).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    assert!(!dog.fired() && server.is_alive());
    assert!(fs::read(server.file()).is_err());
    assert!(dog.fired());
    service.let_go();
    server.wait().unwrap();
    server.unmount().unwrap();
    let gone = FuseWatchdog::start(u32::MAX, Duration::from_secs(1), || 0).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
}

/// A thread that waits for a server in its own process keeps the corpse from being buried.
#[test]
fn a_killed_server_s_own_reader_is_freed() {
    const CHILD: &str = "FS2_TEST_HANGING_CHILD";
    if !rig_is_here() {
        return;
    }
    if let Some(dir) = std::env::var_os(CHILD) {
        let server = Server::mount(Path::new(&dir), Hanging::new(), 1).unwrap();
        let connection = server.fuse_connection().unwrap();
        let _dog = FuseWatchdog::start(connection, Duration::from_secs(600), || 0).unwrap();
        println!("\nconnection {connection}");
        let _ = fs::read(server.file());
        unreachable!("the read ends with the process");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kernel_fuse::a_killed_server_s_own_reader_is_freed", "--nocapture"])
        .env(CHILD, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let connection =
        lines.map_while(Result::ok).find_map(|l| Some(l.strip_prefix("connection ")?.to_owned()));
    let connection = connection.and_then(|n| n.parse().ok()).expect("the child mounted");
    let control = Control::open(connection).unwrap();
    // Until the read is with the server.
    while control.waiting().unwrap() == Some(0) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    child.kill().unwrap();
    // Hangs for ever without the watchdog's second process.
    child.wait().unwrap();
    nix::mount::umount2(dir.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    assert_eq!(mount_at(dir.path()).unwrap(), None);
}
