//! Loop devices: a file as a block device.
//!
//! Invariants:
//! 1. Only a device this process configured is reconfigured or detached; whose it is is known by
//!    the disk sequence number, which changes with each configuration.
//! 2. What was changed in sysfs is put back when the device is detached here; a device that is
//!    kept keeps it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Mount, mounts, told};

/// How often a free device is asked for before giving up: another process may take it first.
const ATTEMPTS: u32 = 64;

/// How long [`LoopDevice::detach`] waits for the kernel. Guess.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// The kernel's `struct loop_info64` and `struct loop_config` (include/uapi/linux/loop.h).
mod abi {
    pub(super) const READ_ONLY: u32 = 1;
    pub(super) const AUTOCLEAR: u32 = 4;
    pub(super) const DIRECT_IO: u32 = 16;

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(super) struct Info64 {
        pub(super) device: u64,
        pub(super) inode: u64,
        pub(super) rdevice: u64,
        pub(super) offset: u64,
        pub(super) size_limit: u64,
        pub(super) number: u32,
        pub(super) encrypt_type: u32,
        pub(super) encrypt_key_size: u32,
        pub(super) flags: u32,
        pub(super) file_name: [u8; 64],
        pub(super) crypt_name: [u8; 64],
        pub(super) encrypt_key: [u8; 32],
        pub(super) init: [u64; 2],
    }

    impl Info64 {
        pub(super) const ZERO: Info64 = Info64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        };
    }

    #[repr(C)]
    pub(super) struct Config {
        pub(super) fd: u32,
        pub(super) block_size: u32,
        pub(super) info: Info64,
        pub(super) reserved: [u64; 8],
    }

    const _: () = assert!(size_of::<Info64>() == 232);
    const _: () = assert!(size_of::<Config>() == 304);

    nix::ioctl_none!(ctl_get_free, 0x4C, 0x82);
    nix::ioctl_none!(clr_fd, 0x4C, 0x01);
    nix::ioctl_write_ptr_bad!(configure, 0x4C0A, Config);
    nix::ioctl_read_bad!(get_status64, 0x4C05, Info64);
}

/// How a file becomes a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopOptions {
    /// Reads and writes of the file pass the page cache: without, there are two caches, one of the
    /// device and one of the file. Refused where the file cannot.
    pub direct_io: bool,
    /// Nothing may be written.
    pub read_only: bool,
    /// It goes by itself once nobody has it open or mounted: nothing is left when this process dies.
    pub autoclear: bool,
    /// Logical block size in bytes: 512, 1024, 2048 or 4096.
    pub block_size: u32,
    /// Whether the scheduler and the file system are to take it for a turning disk.
    pub rotational: bool,
    /// Read-ahead of the device's page cache, KiB.
    pub read_ahead_kb: u32,
    /// The block layer's scheduler: `none`, as below it requests are scheduled again.
    pub scheduler: String,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions {
            direct_io: true,
            read_only: false,
            autoclear: true,
            block_size: 512,
            rotational: true,
            read_ahead_kb: 128,
            scheduler: "none".into(),
        }
    }
}

/// A loop device of our own; detached on drop.
#[derive(Debug)]
pub struct LoopDevice {
    number: u32,
    /// Open for reading only, so that a kernel that refuses to mount devices open for writing mounts it.
    device: File,
    sequence: Option<String>,
    /// Files of sysfs and what stood in them.
    before: Vec<(PathBuf, String)>,
    warnings: Vec<String>,
    kept: bool,
}

impl LoopDevice {
    /// Makes `file` a block device under a free number.
    ///
    /// # Errors
    /// Where the file or `/dev/loop-control` cannot be opened; `Unsupported` where direct I/O was
    /// asked for and the file does not offer it at this block size; `ResourceBusy` where others
    /// were faster each time. Queue settings that could not be made are [`LoopDevice::warnings`].
    pub fn attach(file: &Path, options: &LoopOptions) -> io::Result<LoopDevice> {
        let backing = File::options().read(true).write(!options.read_only).open(file);
        let backing = backing.map_err(|e| told(file, "cannot open", e))?;
        let control = Path::new("/dev/loop-control");
        let control_file = File::options().read(true).write(true).open(control);
        let control_file =
            control_file.map_err(|e| told(control, "cannot open (no loop driver, or not root)", e))?;

        let mut info = abi::Info64::ZERO;
        info.flags = if options.direct_io { abi::DIRECT_IO } else { 0 }
            | if options.read_only { abi::READ_ONLY } else { 0 }
            | if options.autoclear { abi::AUTOCLEAR } else { 0 };
        info.file_name = shown_name(file);
        let config = abi::Config {
            fd: backing.as_raw_fd() as u32,
            block_size: options.block_size,
            info,
            reserved: [0; 8],
        };

        let mut missing = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(u64::from(attempt.min(20))));
            }
            // SAFETY: the descriptor is open for the whole call, which takes no argument.
            let number = unsafe { abi::ctl_get_free(control_file.as_raw_fd()) };
            let number = number.map_err(|e| told(control, "no free loop device", e))?;
            let number = u32::try_from(number).map_err(io::Error::other)?;
            let path = device_path(number);
            let device = match File::options().read(true).write(!options.read_only).open(&path) {
                Ok(device) => device,
                // Not there yet, or being taken down.
                Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENXIO) => {
                    missing = (e.kind() == io::ErrorKind::NotFound).then_some((path, number));
                    continue;
                }
                Err(e) => return Err(told(&path, "cannot open", e)),
            };
            // SAFETY: both descriptors are open, and `config` is laid out as the kernel's struct
            // loop_config (sizes asserted beside it) and only read.
            match unsafe { abi::configure(device.as_raw_fd(), &config) } {
                Ok(_) => return LoopDevice::configured(number, device, file, options),
                Err(nix::Error::EBUSY) => missing = None,
                Err(e) => return Err(told(&path, &format!("cannot attach {}", file.display()), e)),
            }
        }
        if let Some((path, number)) = missing {
            let what = format!(
                "is the next free device, and nobody makes its node, as udev does, which a container has not: mknod -m 660 {} b 7 {number}",
                path.display()
            );
            return Err(told(&path, &what, io::ErrorKind::NotFound));
        }
        Err(told(control, "every free device was taken by others first", io::ErrorKind::ResourceBusy))
    }

    /// From here on, dropping the device undoes it.
    fn configured(number: u32, device: File, file: &Path, options: &LoopOptions) -> io::Result<LoopDevice> {
        let sequence = read_line(&sysfs(number, "diskseq")).ok();
        let mut this = LoopDevice { number, device, sequence, before: vec![], warnings: vec![], kept: false };
        let path = this.path();
        // The descriptor that configured stays open until this one is: no autoclear in between.
        this.device = File::open(&path).map_err(|e| told(&path, "cannot open", e))?;

        let mut info = abi::Info64::ZERO;
        // SAFETY: the descriptor is open, and `info` is laid out as the kernel's struct loop_info64.
        unsafe { abi::get_status64(this.device.as_raw_fd(), &mut info) }
            .map_err(|e| told(&path, "cannot read its state", e))?;
        if options.direct_io && info.flags & abi::DIRECT_IO == 0 {
            let what = format!("no direct I/O in blocks of {} bytes for a loop device", options.block_size);
            return Err(told(file, &what, io::ErrorKind::Unsupported));
        }
        this.set("queue/rotational", if options.rotational { "1" } else { "0" });
        this.set("queue/scheduler", &options.scheduler);
        this.set("queue/read_ahead_kb", &options.read_ahead_kb.to_string());
        Ok(this)
    }

    fn set(&mut self, name: &str, value: &str) {
        let path = sysfs(self.number, name);
        let set = || -> io::Result<Option<String>> {
            let before = chosen(&read_line(&path)?);
            if before == value {
                return Ok(None);
            }
            std::fs::write(&path, value)?;
            Ok(Some(before))
        };
        match set() {
            Ok(None) => {}
            Ok(Some(before)) => self.before.push((path, before)),
            Err(e) => self.warnings.push(format!("{} stays, not {value}: {e}", path.display())),
        }
    }

    /// Such as `/dev/loop3`.
    pub fn path(&self) -> PathBuf {
        device_path(self.number)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Settings that could not be made, one line each: it works, but not as asked.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What sysfs says of its queue, such as `discard_granularity`; of a list, the chosen one.
    ///
    /// # Errors
    /// `NotFound` for a name this kernel does not have.
    pub fn queue(&self, name: &str) -> io::Result<String> {
        let path = sysfs(self.number, "queue").join(name);
        read_line(&path).map(|line| chosen(&line)).map_err(|e| told(&path, "cannot read", e))
    }

    /// Detaches the file and waits until the kernel has let go of it.
    ///
    /// # Errors
    /// `ResourceBusy` where it is still mounted or open elsewhere: it goes with its last user.
    pub fn detach(mut self) -> io::Result<()> {
        let asked = self.clear();
        let (number, sequence) = (self.number, self.sequence.take());
        // The last close is what detaches.
        drop(self);
        asked?;
        let until = Instant::now() + DETACH_PATIENCE;
        while is_still(number, sequence.as_deref()) {
            if Instant::now() >= until {
                return Err(told(&device_path(number), "still in use", io::ErrorKind::ResourceBusy));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Leaves it attached; with autoclear, until its last user lets go, which must have it open or
    /// mounted by now.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// Asks the kernel to detach at the last close.
    fn clear(&mut self) -> io::Result<()> {
        self.kept = true;
        if !is_still(self.number, self.sequence.as_deref()) {
            return Ok(());
        }
        for (path, before) in self.before.drain(..).rev() {
            // Of no consequence but for the next device under this number.
            let _ = std::fs::write(path, before);
        }
        // SAFETY: the descriptor is open for the whole call, which takes no argument.
        match unsafe { abi::clr_fd(self.device.as_raw_fd()) } {
            // ENXIO: it was detached by someone else.
            Ok(_) | Err(nix::Error::ENXIO) => Ok(()),
            Err(e) => Err(told(&self.path(), "cannot detach", e)),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.kept {
            let _ = self.clear();
        }
    }
}

/// A loop device in use, whosever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopEntry {
    /// Such as `/dev/loop3`.
    pub device: PathBuf,
    /// The file's path as the kernel has it.
    pub file: PathBuf,
    /// The file has no name any more.
    pub deleted: bool,
}

/// Every loop device in use. Asks sysfs only and touches none of them.
///
/// # Errors
/// Where `/sys/block` cannot be read.
pub fn loops() -> io::Result<Vec<LoopEntry>> {
    let dir = Path::new("/sys/block");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| told(dir, "cannot read", e))? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix("loop")).and_then(|n| n.parse().ok());
        let Some(number) = number else { continue };
        // Not there for a device that is free.
        let Ok(file) = std::fs::read(sysfs(number, "loop/backing_file")) else { continue };
        let file = file.strip_suffix(b"\n").unwrap_or(&file);
        let (file, deleted) = match file.strip_suffix(b" (deleted)") {
            Some(file) => (file, true),
            None => (file, false),
        };
        let file = std::ffi::OsString::from_vec(file.to_vec()).into();
        found.push((number, LoopEntry { device: device_path(number), file, deleted }));
    }
    found.sort_by_key(|&(number, _)| number);
    Ok(found.into_iter().map(|(_, entry)| entry).collect())
}

/// Whether a loop device was configured by the name of `file`, as itself says: for where there is no sysfs, or that has no path of the file
/// any more.
///
/// # Errors
/// Where the device cannot be opened or asked, or knows only as long a part of the name.
pub(crate) fn is_named_for(device: &Path, file: &Path) -> io::Result<bool> {
    let opened = File::open(device).map_err(|e| told(device, "cannot open", e))?;
    let mut info = abi::Info64::ZERO;
    // SAFETY: the descriptor is open, and `info` is laid out as the kernel's struct loop_info64.
    match unsafe { abi::get_status64(opened.as_raw_fd(), &mut info) } {
        Ok(_) if info.file_name != shown_name(file) => Ok(false),
        Ok(_) if file.as_os_str().len() < info.file_name.len() => Ok(true),
        Ok(_) => Err(told(device, "knows a part of its file's name", io::ErrorKind::InvalidData)),
        // It has no file.
        Err(nix::Error::ENXIO) => Ok(false),
        Err(e) => Err(told(device, "cannot read its state", e)),
    }
}

/// A file's name for people, cut short; at least one zero byte stays at the end.
fn shown_name(file: &Path) -> [u8; 64] {
    let (name, mut shown) = (file.as_os_str().as_bytes(), [0; 64]);
    let len = name.len().min(shown.len() - 1);
    shown[..len].copy_from_slice(&name[..len]);
    shown
}

/// The loop device whose backing file is `file`, by this name or by another of the same file.
/// A file system that may not answer is not asked: only where the kernel's path lies on the same
/// mounted device as `file` are the files themselves compared.
///
/// # Errors
/// Where `file` does not exist, or /sys or /proc cannot be read.
pub fn loop_of_file(file: &Path) -> io::Result<Option<PathBuf>> {
    let file = file.canonicalize().map_err(|e| told(file, "cannot look for its loop device", e))?;
    let meta = file.metadata().map_err(|e| told(&file, "cannot look for its loop device", e))?;
    let loops: Vec<_> = loops()?.into_iter().filter(|l| !l.deleted).collect();
    if let Some(same_name) = loops.iter().find(|l| l.file == file) {
        return Ok(Some(same_name.device.clone()));
    }
    let mounts = mounts()?;
    let here = device_of(&mounts, &file);
    let same_file = loops
        .into_iter()
        .filter(|l| device_of(&mounts, &l.file) == here)
        .find(|l| l.file.symlink_metadata().is_ok_and(|m| (m.dev(), m.ino()) == (meta.dev(), meta.ino())));
    Ok(same_file.map(|l| l.device))
}

/// The device of the mount that holds `path`.
fn device_of(mounts: &[Mount], path: &Path) -> Option<(u32, u32)> {
    let holder = mounts.iter().filter(|m| path.starts_with(&m.target));
    // The longest; of several at one place, the last.
    holder.max_by_key(|m| m.target.as_os_str().len()).map(|m| m.device)
}

/// Whether the device is still configured as it was when it had this sequence number.
fn is_still(number: u32, sequence: Option<&str>) -> bool {
    let configured = sysfs(number, "loop/backing_file").exists();
    let now = read_line(&sysfs(number, "diskseq")).ok();
    configured && (sequence.is_none() || sequence == now.as_deref())
}

fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn sysfs(number: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/loop{number}")).join(name)
}

fn read_line(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path).map(|s| s.trim_end().to_owned())
}

/// Of `none [mq-deadline] bfq`, the one in brackets.
fn chosen(line: &str) -> String {
    match (line.find('['), line.find(']')) {
        (Some(open), Some(close)) if open < close => line[open + 1..close].to_owned(),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_of_a_list() {
        assert_eq!(chosen("none [mq-deadline] bfq"), "mq-deadline");
        assert_eq!(chosen("[none]"), "none");
        assert_eq!(chosen("128"), "128");
        assert_eq!(chosen("]["), "][");
    }

    #[test]
    fn the_mount_that_holds_a_path() {
        let text = b"1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /home rw - ext4 b rw\n\
            3 2 8:3 / /home rw - ext4 c rw\n4 1 8:4 / /homes rw - ext4 d rw\n";
        let mounts = super::super::parse_mountinfo(text).unwrap();
        let of = |p| device_of(&mounts, Path::new(p));
        assert_eq!(of("/etc/passwd"), Some((8, 1)));
        assert_eq!(of("/home/x"), Some((8, 3)));
        assert_eq!(of("/homestead"), Some((8, 1)));
        assert_eq!(of("/homes/x"), Some((8, 4)));
        assert_eq!(of("relative"), None);
    }

    #[test]
    fn errors_name_the_file() {
        let e = LoopDevice::attach(Path::new("/absent/file"), &LoopOptions::default()).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert!(e.to_string().contains("/absent/file"), "{e}");
        assert!(loop_of_file(Path::new("/absent/file")).is_err());
    }
}
