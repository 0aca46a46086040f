//! Loop devices and mounts under the kernel. Needs root and /dev/loop-control; without them each
//! test says so and ends.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use fs2_tools::kernel::{
    LoopDevice, LoopOptions, MountGuard, MountOptions, drop_caches_of, loop_of_file, loops, mount_at,
    mount_ext2, unmount,
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

pub(super) fn loops_are_here() -> bool {
    let here = nix::unistd::geteuid().is_root() && File::open("/dev/loop-control").is_ok();
    if !here {
        println!("skipped: needs root and /dev/loop-control");
    }
    here
}

/// A directory with `image` (16 MiB) and `mnt` in it.
fn workshop() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (image, mnt) = (dir.path().join("an image"), dir.path().join("a mount"));
    File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    fs::create_dir(&mnt).unwrap();
    (dir, image, mnt)
}

fn mke2fs(device: &Path) {
    let done = Command::new("mke2fs").args(["-q", "-F", "-t", "ext2", "-b", "4096"]).arg(device).output();
    let done = done.expect("e2fsprogs is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Found: the image below the device that was measured was replaced by its profile.
#[test]
fn what_lies_below_a_device_is_not_written_over() {
    if !loops_are_here() {
        return;
    }
    let (_dir, image, _) = workshop();
    let device = LoopDevice::attach(&image, &LoopOptions::default()).unwrap();
    let calibrate = Command::new(env!("CARGO_BIN_EXE_fs2"))
        .args(["calibrate", "--drive", "ssd-sata", "--seconds", "5"])
        .arg(device.path())
        .arg("-o")
        .arg(&image)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&calibrate.stderr);
    assert_eq!(calibrate.status.code(), Some(2), "{err}");
    assert!(err.contains("the same file as /dev/loop") && err.contains("another name"), "{err}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 16 * MIB);
}

#[test]
fn a_file_becomes_a_device_and_is_let_go() {
    if !loops_are_here() {
        return;
    }
    let (_dir, image, _) = workshop();
    let options = LoopOptions { read_ahead_kb: 64, block_size: 4096, ..LoopOptions::default() };
    let device = LoopDevice::attach(&image, &options).unwrap();
    assert_eq!(device.warnings(), [] as [String; 0]);
    let queue = |name: &str| device.queue(name).unwrap();
    assert_eq!(
        (queue("rotational"), queue("scheduler"), queue("read_ahead_kb")),
        ("1".into(), "none".into(), "64".into())
    );
    assert_eq!(queue("logical_block_size"), "4096");
    assert_eq!(
        fs::read_to_string(format!("/sys/block/loop{}/loop/dio", device.number())).unwrap().trim(),
        "1"
    );
    assert_eq!(device.queue("no_such").unwrap_err().kind(), ErrorKind::NotFound);

    let path = device.path();
    assert!(loops().unwrap().iter().any(|l| l.device == path && l.file == image.canonicalize().unwrap()));
    assert_eq!(loop_of_file(&image).unwrap(), Some(path.clone()));
    let link = image.with_file_name("another name");
    fs::hard_link(&image, &link).unwrap();
    assert_eq!(loop_of_file(&link).unwrap(), Some(path.clone()));
    fs::copy(&image, image.with_file_name("a copy")).unwrap();
    assert_eq!(loop_of_file(&image.with_file_name("a copy")).unwrap(), None);

    let disk = File::options().write(true).open(&path).unwrap();
    disk.write_all_at(b"through the device", 5 * MIB).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    let mut got = [0; 18];
    File::open(&image).unwrap().read_exact_at(&mut got, 5 * MIB).unwrap();
    assert_eq!(&got, b"through the device");

    let number = device.number();
    device.detach().unwrap();
    assert_eq!(loop_of_file(&image).unwrap(), None);
    let read_ahead = fs::read_to_string(format!("/sys/block/loop{number}/queue/read_ahead_kb")).unwrap();
    assert_ne!(read_ahead.trim(), "64", "put back, for whoever has the number next");
}

#[test]
fn options_that_change_what_one_can_do() {
    if !loops_are_here() {
        return;
    }
    let (_dir, image, mnt) = workshop();
    let read_only = LoopOptions { read_only: true, scheduler: "no-such".into(), ..LoopOptions::default() };
    let device = LoopDevice::attach(&image, &read_only).unwrap();
    assert_eq!(fs::read_to_string(format!("/sys/block/loop{}/ro", device.number())).unwrap().trim(), "1");
    let write = |disk: File| disk.write_all_at(b"x", 0).and_then(|()| disk.sync_all());
    assert!(File::options().write(true).open(device.path()).and_then(write).is_err());
    let [warning] = device.warnings() else { panic!("{:?}", device.warnings()) };
    assert!(warning.contains("no-such") && warning.contains("scheduler"), "{warning}");
    device.detach().unwrap();

    let odd = LoopOptions { block_size: 777, ..LoopOptions::default() };
    assert_eq!(LoopDevice::attach(&image, &odd).unwrap_err().kind(), ErrorKind::InvalidInput);

    // ramfs has no direct I/O.
    nix::mount::mount(Some("r"), &mnt, Some("ramfs"), nix::mount::MsFlags::empty(), None::<&str>).unwrap();
    let _undo = Unmount(mnt.clone());
    let held = mnt.join("image");
    File::create(&held).unwrap().set_len(MIB).unwrap();
    let refused = LoopDevice::attach(&held, &LoopOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert_eq!(loop_of_file(&held).unwrap(), None);
    let buffered = LoopOptions { direct_io: false, ..LoopOptions::default() };
    LoopDevice::attach(&held, &buffered).unwrap().detach().unwrap();
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = unmount(&self.0, true);
    }
}

/// Sectors read from the device since it was configured.
fn sectors_read(device: &LoopDevice) -> u64 {
    let stat = fs::read_to_string(format!("/sys/block/loop{}/stat", device.number())).unwrap();
    stat.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn cold_means_read_from_the_device_again() {
    if !loops_are_here() {
        return;
    }
    let (_dir, image, mnt) = workshop();
    let device = LoopDevice::attach(&image, &LoopOptions::default()).unwrap();
    mke2fs(&device.path());
    let options = MountOptions { extra: vec!["noatime".into()], ..MountOptions::default() };
    let mut mounted = mount_ext2(&device.path(), &mnt, options).unwrap();
    let content: Vec<u8> = (0..2 * MIB).map(|i| (i % 251) as u8).collect();
    fs::write(mnt.join("file"), &content).unwrap();
    mounted.cold().unwrap();
    assert!(mount_at(&mnt).unwrap().unwrap().has_option("noatime"));

    let before = sectors_read(&device);
    assert!(fs::read(mnt.join("file")).unwrap() == content);
    let once = sectors_read(&device);
    assert!(once - before >= 2 * MIB / 512, "cold: {} sectors", once - before);
    assert!(fs::read(mnt.join("file")).unwrap() == content);
    assert_eq!(sectors_read(&device), once, "warm");
    mounted.cold().unwrap();
    assert!(fs::read(mnt.join("file")).unwrap() == content);
    assert!(sectors_read(&device) - once >= 2 * MIB / 512);

    // And of the raw device.
    mounted.unmount().unwrap();
    let read_raw =
        || File::open(device.path()).unwrap().read_exact_at(&mut vec![0; MIB as usize], 8 * MIB).unwrap();
    let keep_open = File::open(device.path()).unwrap();
    read_raw();
    let once = sectors_read(&device);
    read_raw();
    assert_eq!(sectors_read(&device), once);
    drop_caches_of(&device.path()).unwrap();
    read_raw();
    assert!(sectors_read(&device) - once >= MIB / 512);
    drop(keep_open);
    device.detach().unwrap();
}

#[test]
fn mounting_and_letting_go() {
    if !loops_are_here() {
        return;
    }
    let (_dir, image, mnt) = workshop();
    let device = LoopDevice::attach(&image, &LoopOptions::default()).unwrap();
    let none = mount_ext2(&device.path(), &mnt, MountOptions::default()).unwrap_err();
    assert!(none.to_string().contains("no ext2 file system"), "{none}");
    assert_eq!(mount_at(&mnt).unwrap(), None);
    mke2fs(&device.path());

    let mut mounted = mount_ext2(&device.path(), &mnt, MountOptions::default()).unwrap();
    let seen = mount_at(&mnt).unwrap().unwrap();
    assert_eq!((seen.fstype.as_str(), seen.source), ("ext2", device.path()));
    assert_eq!(seen.device, (7, device.number()));
    let open = File::create(mnt.join("open")).unwrap();
    assert_eq!(mounted.unmount().unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert!(mount_at(&mnt).unwrap().is_some());
    drop(open);
    mounted.unmount().unwrap();
    assert_eq!(mount_at(&mnt).unwrap(), None);

    // What someone else mounts there afterwards is not ours.
    let mut mounted = mount_ext2(&device.path(), &mnt, MountOptions::default()).unwrap();
    unmount(&mnt, false).unwrap();
    nix::mount::mount(Some("r"), &mnt, Some("ramfs"), nix::mount::MsFlags::empty(), None::<&str>).unwrap();
    {
        let _undo = Unmount(mnt.clone());
        mounted.unmount().unwrap();
        drop(mounted);
        assert_eq!(mount_at(&mnt).unwrap().unwrap().fstype, "ramfs");
    }

    let read_only = MountOptions { read_only: true, ..MountOptions::default() };
    let mounted = mount_ext2(&device.path(), &mnt, read_only).unwrap();
    assert_eq!(File::create(mnt.join("new")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    mounted.keep();
    assert!(mount_at(&mnt).unwrap().is_some());
    // Kept ones outlive their guards; autoclear ends the device with the mount.
    let path = device.path();
    device.keep();
    assert!(loops().unwrap().iter().any(|l| l.device == path));
    unmount(&mnt, false).unwrap();
    while loop_of_file(&image).unwrap().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_panic_leaves_nothing_behind() {
    if !loops_are_here() {
        return;
    }
    let (dir, image, mnt) = workshop();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let device = LoopDevice::attach(&image, &LoopOptions::default()).unwrap();
        mke2fs(&device.path());
        let mounted: MountGuard = mount_ext2(&device.path(), &mnt, MountOptions::default()).unwrap();
        let mut open = File::create(mounted.dir().join("open")).unwrap();
        open.write_all(b"x").unwrap();
        std::panic::resume_unwind(Box::new("planted"));
    }));
    assert!(panicked.is_err());
    assert_eq!(mount_at(&mnt).unwrap(), None);
    while loop_of_file(&image).unwrap().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut start = [0; 16];
    File::open(&image).unwrap().read_exact(&mut start).unwrap();
    dir.close().unwrap();
}
