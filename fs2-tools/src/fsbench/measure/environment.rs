//! What a run depended on and a reader must know: kernel, file system, device, drive, machine.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kernel::{Mount, mount_holding};
use crate::volume::find_record;

/// Where it ran. What cannot be found out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Of this program.
    pub version: String,
    /// Such as `Linux 6.12.1 x86_64`.
    pub kernel: String,
    /// Model of the first processor.
    pub cpu: Option<String>,
    /// Processors this process may run on.
    pub cpus: u64,
    /// Memory of the machine, bytes.
    pub memory_bytes: Option<u64>,
    /// The file system below the directory.
    pub file_system: Option<FileSystem>,
    /// The block device below it.
    pub device: Option<BlockDevice>,
    /// The FS2 daemon that serves it.
    pub fs2: Option<Fs2Volume>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSystem {
    /// Such as `ext2`.
    pub fstype: String,
    /// What is mounted, such as `/dev/loop3`.
    pub source: String,
    /// Where.
    pub mounted_on: String,
    /// Mount options, in the kernel's order.
    pub options: Vec<String>,
    /// Block size, bytes.
    pub block_bytes: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Free for this user, bytes.
    pub free_bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// A block device and its queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Kernel name, such as `loop3`.
    pub name: String,
    /// Vendor's name, where there is one.
    pub model: Option<String>,
    /// Size, bytes.
    pub bytes: Option<u64>,
    /// Whether it is said to turn.
    pub rotational: Option<bool>,
    /// The scheduler in force.
    pub scheduler: Option<String>,
    /// Read-ahead, KiB.
    pub read_ahead_kib: Option<u64>,
    /// The file below a loop device.
    pub backing_file: Option<String>,
}

/// The daemon below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fs2Volume {
    /// Image or device.
    pub volume: String,
    /// Its version.
    pub version: String,
    /// The policy.
    pub policy: String,
    /// The drive: a profile's name, `unknown`, or what is simulated.
    pub drive: String,
    /// `active`, or why not.
    pub liveness: String,
    /// How the kernel reaches it.
    pub frontend: String,
}

impl Environment {
    /// Looks. `dir`: where the workload will run.
    ///
    /// # Errors
    /// Only where the directory is not there.
    pub fn of(dir: &Path) -> std::io::Result<Environment> {
        let mount = mount_holding(dir)?;
        let uname = nix::sys::utsname::uname().ok();
        let part = |s: &std::ffi::OsStr| s.to_string_lossy().into_owned();
        let kernel = uname.map_or_else(
            || "unknown".into(),
            |u| format!("{} {} {}", part(u.sysname()), part(u.release()), part(u.machine())),
        );
        Ok(Environment {
            version: env!("CARGO_PKG_VERSION").into(),
            kernel,
            cpu: cpu_model(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            memory_bytes: memory(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            file_system: mount.as_ref().map(|m| file_system(m, dir)),
            device: mount.as_ref().and_then(|m| block_device(Path::new("/sys"), m.device)),
            fs2: mount.as_ref().and_then(|m| fs2_volume(&m.target)),
        })
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|l| l.starts_with("model name") || l.starts_with("CPU part"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn file_system(mount: &Mount, dir: &Path) -> FileSystem {
    let stat = nix::sys::statvfs::statvfs(dir).ok();
    let of = |get: fn(&nix::sys::statvfs::Statvfs) -> u64| stat.as_ref().map_or(0, get);
    let block = of(|s| s.fragment_size());
    FileSystem {
        fstype: mount.fstype.clone(),
        source: mount.source.display().to_string(),
        mounted_on: mount.target.display().to_string(),
        options: mount.options.clone(),
        block_bytes: of(|s| s.block_size()),
        bytes: block * of(|s| s.blocks()),
        free_bytes: block * of(|s| s.blocks_available()),
        inodes: of(|s| s.files()),
        free_inodes: of(|s| s.files_available()),
    }
}

/// From sysfs below `sys`; a partition's queue is its disk's.
fn block_device(sys: &Path, (major, minor): (u32, u32)) -> Option<BlockDevice> {
    let link = sys.join(format!("dev/block/{major}:{minor}"));
    let here = link.canonicalize().ok()?;
    let name = here.file_name()?.to_string_lossy().into_owned();
    let disk: PathBuf = if here.join("queue").is_dir() { here.clone() } else { here.parent()?.to_owned() };
    let read = |path: PathBuf| std::fs::read_to_string(path).ok().map(|s| s.trim().to_owned());
    let number = |path: PathBuf| read(path)?.parse::<u64>().ok();
    let scheduler = read(disk.join("queue/scheduler")).map(|line| {
        let chosen = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        chosen.map_or(line.clone(), |(chosen, _)| chosen.to_owned())
    });
    Some(BlockDevice {
        name,
        model: read(disk.join("device/model")),
        // In sectors of 512 bytes whatever the device's own.
        bytes: number(here.join("size")).map(|s| s * 512),
        rotational: number(disk.join("queue/rotational")).map(|r| r == 1),
        scheduler,
        read_ahead_kib: number(disk.join("queue/read_ahead_kb")),
        backing_file: read(disk.join("loop/backing_file")),
    })
}

fn fs2_volume(mounted_on: &Path) -> Option<Fs2Volume> {
    let record = find_record(mounted_on)?;
    let status = crate::volume::status(&record).ok()?;
    Some(Fs2Volume {
        volume: status.volume,
        version: status.version,
        policy: status.policy,
        drive: status.drive,
        liveness: status.liveness.to_string(),
        frontend: status.frontend,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let e = Environment::of(dir.path()).unwrap();
        assert!(e.kernel.starts_with("Linux "), "{}", e.kernel);
        assert!(e.cpus >= 1 && e.memory_bytes > Some(1 << 20), "{e:?}");
        let fs = e.file_system.clone().unwrap();
        assert!(!fs.fstype.is_empty() && fs.bytes >= fs.free_bytes && fs.bytes > 0, "{fs:?}");
        assert_eq!(e.fs2, None);
        let text = serde_json::to_string(&e).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), e);
        assert!(Environment::of(Path::new("/absent/dir")).is_err());
    }

    #[test]
    fn a_partition_has_its_disk_s_queue() {
        let sys = tempfile::tempdir().unwrap();
        let sys = sys.path();
        let disk = sys.join("devices/sda");
        std::fs::create_dir_all(disk.join("sda1")).unwrap();
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir_all(sys.join("dev/block")).unwrap();
        std::fs::write(disk.join("queue/scheduler"), "none [mq-deadline] kyber\n").unwrap();
        std::fs::write(disk.join("queue/rotational"), "1\n").unwrap();
        std::fs::write(disk.join("sda1/size"), "2048\n").unwrap();
        std::os::unix::fs::symlink(disk.join("sda1"), sys.join("dev/block/8:1")).unwrap();
        let d = block_device(sys, (8, 1)).unwrap();
        assert_eq!((d.name.as_str(), d.bytes, d.rotational), ("sda1", Some(1 << 20), Some(true)));
        assert_eq!((d.scheduler.as_deref(), d.model, d.backing_file), (Some("mq-deadline"), None, None));
        assert!(block_device(sys, (8, 2)).is_none());
    }

    #[test]
    fn texts_of_proc() {
        assert_eq!(
            cpu_model("processor : 0\nmodel name\t: A & B @ 2 GHz\n").as_deref(),
            Some("A & B @ 2 GHz")
        );
        assert_eq!(cpu_model("processor : 0\n"), None);
        assert_eq!(memory("MemTotal:       1024 kB\nMemFree: 3 kB\n"), Some(1 << 20));
        assert_eq!(memory("MemFree: 3 kB\n"), None);
    }
}
