//! A memory limit round the workload's processes, page cache included: without it a modern machine keeps the
//! papers' working sets in memory and nothing of the disk is measured.
//!
//! Only the processes that are put in are limited. The daemon and the loop device's worker stay where they
//! are, so that what is measured is not starved by the limit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cgroup may be in use by threads that are just ending. Guess.
const EMPTY_PATIENCE: Duration = Duration::from_secs(2);

/// Below this not even a shell runs.
pub const LIMIT_BYTES_MIN: u64 = 4 << 20;

/// Why there is no limit.
#[derive(Debug, thiserror::Error)]
pub enum MemLimitError {
    /// The kernel or the container has no memory controller to use.
    #[error("--mem-limit needs {missing}; {remedy}")]
    Missing {
        /// What is missing.
        missing: String,
        /// What to do.
        remedy: String,
    },
    /// A limit nothing runs in.
    #[error("--mem-limit {0} bytes: give at least 4m")]
    TooSmall(u64),
    /// The system says no.
    #[error("--mem-limit: {path}: {source}")]
    Io {
        /// The file of the cgroup.
        path: PathBuf,
        /// What it says.
        #[source]
        source: io::Error,
    },
}

/// Which hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A memory hierarchy of its own.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A memory cgroup of our own; on drop whoever is in it goes back to where this process was, and it is removed.
#[derive(Debug)]
pub struct MemLimit {
    version: Version,
    dir: PathBuf,
    /// Where this process was before.
    home: PathBuf,
    bytes: u64,
}

/// A hierarchy that can limit memory: its version, where it is mounted, and this process's cgroup in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    root: PathBuf,
    home: PathBuf,
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> MemLimitError {
    let path = path.to_owned();
    move |source| MemLimitError::Io { path, source }
}

/// From the text of /proc/self/cgroup and the mounted hierarchies (type, options, where, and the cgroup that is
/// its root there).
fn find(own: &str, mounted: &[crate::kernel::Mount]) -> Option<Hierarchy> {
    let path_of = |wanted: &dyn Fn(&str, &str) -> bool| {
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(id, controllers).then(|| path.to_owned())
        })
    };
    let below = |mount: &crate::kernel::Mount, path: &str| {
        // In a container the root of what is mounted may lie deep in the hierarchy, or above what is shown.
        let path = Path::new(path);
        let inside = path.strip_prefix(&mount.root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
        let home = mount.target.join(inside);
        if home.join("cgroup.procs").exists() { home } else { mount.target.clone() }
    };
    let v1 = mounted.iter().find(|m| m.fstype == "cgroup" && m.has_option("memory"));
    if let Some(mount) = v1 {
        let path = path_of(&|_, controllers| controllers.split(',').any(|c| c == "memory"))?;
        return Some(Hierarchy {
            version: Version::V1,
            root: mount.target.clone(),
            home: below(mount, &path),
        });
    }
    let mount = mounted.iter().find(|m| m.fstype == "cgroup2")?;
    let path = path_of(&|id, controllers| id == "0" && controllers.is_empty())?;
    Some(Hierarchy { version: Version::V2, root: mount.target.clone(), home: below(mount, &path) })
}

const SCOPE: &str = "systemd-run --scope -p MemoryMax=BYTES fsbench ... does the same where it may";

impl MemLimit {
    /// Makes an empty cgroup with this limit.
    ///
    /// # Errors
    /// What is missing and what to do; nothing is left behind.
    pub fn new(bytes: u64) -> Result<MemLimit, MemLimitError> {
        if bytes < LIMIT_BYTES_MIN {
            return Err(MemLimitError::TooSmall(bytes));
        }
        let own = Path::new("/proc/self/cgroup");
        let text = fs::read_to_string(own).map_err(io_error(own))?;
        let mounted = crate::kernel::mounts().map_err(io_error(Path::new("/proc/self/mountinfo")))?;
        let found = find(&text, &mounted).ok_or_else(|| MemLimitError::Missing {
            missing: "a memory controller: no cgroup hierarchy is mounted".into(),
            remedy: "mount -t cgroup2 none /sys/fs/cgroup, or run without --mem-limit".into(),
        })?;
        if !nix::unistd::geteuid().is_root() {
            return Err(MemLimitError::Missing {
                missing: "root, to make a cgroup".into(),
                remedy: format!("sudo, or {}", SCOPE.replace("BYTES", &bytes.to_string())),
            });
        }
        let above = match found.version {
            // What limits this process goes on doing so.
            Version::V1 => &found.home,
            // Below a cgroup that has processes, version 2 allows no limits.
            Version::V2 => &found.root,
        };
        remove_stale(above);
        if found.version == Version::V2 {
            enable_v2(above, bytes)?;
        }
        let dir = above.join(format!("fsbench-{}-{}", std::process::id(), next_number()));
        fs::create_dir(&dir).map_err(io_error(&dir))?;
        // From here on dropping it undoes it.
        let this = MemLimit { version: found.version, dir, home: found.home, bytes };
        let file = match this.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        this.write(file, &bytes.to_string())?;
        // Swapping is no way out; not every kernel can swap.
        match this.version {
            Version::V1 => drop(this.write("memory.memsw.limit_in_bytes", &bytes.to_string())),
            Version::V2 => drop(this.write("memory.swap.max", "0")),
        }
        Ok(this)
    }

    /// Puts this process with all its threads in.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn enter(&self) -> Result<(), MemLimitError> {
        self.add(std::process::id())
    }

    /// Puts a process with all its threads in.
    ///
    /// # Errors
    /// What the kernel says, such as that there is no such process.
    pub fn add(&self, pid: u32) -> Result<(), MemLimitError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Takes this process out again; what it read stays charged until it is dropped.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn leave(&self) -> Result<(), MemLimitError> {
        let path = self.home.join("cgroup.procs");
        fs::write(&path, std::process::id().to_string()).map_err(io_error(&path))
    }

    /// The limit, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Which hierarchy it is of.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is charged now, page cache included, bytes; `None` where the kernel does not say.
    pub fn used_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    /// How often the kernel killed a process for want of memory in it; `None` where it does not say.
    pub fn oom_kills(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        text.lines().find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    fn write(&self, file: &str, value: &str) -> Result<(), MemLimitError> {
        let path = self.dir.join(file);
        fs::write(&path, value).map_err(io_error(&path))
    }

    fn remove(&self) -> io::Result<()> {
        let until = Instant::now() + EMPTY_PATIENCE;
        loop {
            // Children that are still there go where this process was.
            let inside = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                let _ = fs::write(self.home.join("cgroup.procs"), pid);
            }
            if self.version == Version::V1 {
                let _ = fs::write(self.dir.join("memory.force_empty"), "0");
            }
            match fs::remove_dir(&self.dir) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => return other,
            }
        }
    }
}

impl Drop for MemLimit {
    fn drop(&mut self) {
        if let Err(e) = self.remove() {
            eprintln!("fsbench: {} is left behind: {e}", self.dir.display());
        }
    }
}

/// More than one may be made in a process.
fn next_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Cgroups of fsbench processes that were killed: an empty one of a process that is gone is removed.
fn remove_stale(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix("fsbench-")).and_then(|n| n.split('-').next());
        if let Some(pid) = pid
            && pid.parse::<u32>().is_ok()
            && !Path::new("/proc").join(pid).exists()
        {
            // Refused by the kernel where anyone is in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn enable_v2(root: &Path, bytes: u64) -> Result<(), MemLimitError> {
    let controllers = root.join("cgroup.controllers");
    let has = fs::read_to_string(&controllers).map_err(io_error(&controllers))?;
    if !has.split_whitespace().any(|c| c == "memory") {
        return Err(MemLimitError::Missing {
            missing: format!("the memory controller in {} (there: {})", controllers.display(), has.trim()),
            remedy: "boot with cgroup_enable=memory, or run without --mem-limit".into(),
        });
    }
    let subtree = root.join("cgroup.subtree_control");
    let on = fs::read_to_string(&subtree).map_err(io_error(&subtree))?;
    if on.split_whitespace().any(|c| c == "memory") {
        return Ok(());
    }
    fs::write(&subtree, "+memory").map_err(|e| match e.kind() {
        // "No internal processes": the root of a container's hierarchy has some.
        io::ErrorKind::ResourceBusy => MemLimitError::Missing {
            missing: format!(
                "+memory in {}, which the kernel refuses while processes are in its cgroup",
                subtree.display()
            ),
            remedy: SCOPE.replace("BYTES", &bytes.to_string()),
        },
        _ => io_error(&subtree)(e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::parse_mountinfo;

    #[test]
    fn the_hierarchy_is_found_in_either_version() {
        let v1 = parse_mountinfo(
            b"1 0 0:1 / /cg/cpu rw - cgroup cgroup rw,cpu\n2 0 0:2 / /cg/memory rw - cgroup cgroup rw,memory\n\
              3 0 0:3 / /cg/unified rw - cgroup2 cgroup2 rw\n",
        )
        .unwrap();
        let own = "8:cpu:/x\n4:memory,x:/a/b\n0::/u\n";
        let found = find(own, &v1).unwrap();
        // Nothing is there, so the root of the hierarchy is home.
        assert_eq!(
            found,
            Hierarchy { version: Version::V1, root: "/cg/memory".into(), home: "/cg/memory".into() }
        );
        let v2 = &v1[2..];
        assert_eq!(
            find("0::/u:v\n", v2).map(|h| (h.version, h.root)),
            Some((Version::V2, "/cg/unified".into()))
        );
        assert_eq!(find("4:memory:/a\n", v2), None);
        assert_eq!(find(own, &v1[..1]), None);
        assert_eq!(find("", &v1), None);
    }

    #[test]
    fn home_is_where_the_process_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/cgroup.procs"), "").unwrap();
        let line = format!("2 0 0:2 / {} rw - cgroup cgroup rw,memory\n", root.display());
        let mounted = parse_mountinfo(line.as_bytes()).unwrap();
        assert_eq!(find("4:memory:/a/b\n", &mounted).unwrap().home, root.join("a/b"));
        // Mounted from /a on, as a container sees it.
        let line = format!("2 0 0:2 /z {} rw - cgroup cgroup rw,memory\n", root.display());
        let mounted = parse_mountinfo(line.as_bytes()).unwrap();
        assert_eq!(find("4:memory:/z/a/b\n", &mounted).unwrap().home, root.join("a/b"));
    }

    #[test]
    fn too_small_a_limit_is_refused_before_anything_else() {
        assert!(matches!(MemLimit::new(1 << 20), Err(MemLimitError::TooSmall(_))));
    }

    #[test]
    fn a_controller_that_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu io\n").unwrap();
        let e = enable_v2(dir.path(), 1 << 30).unwrap_err().to_string();
        assert!(
            e.contains("memory controller") && e.contains("cpu io") && e.contains("cgroup_enable=memory"),
            "{e}"
        );
        fs::write(dir.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), "memory\n").unwrap();
        enable_v2(dir.path(), 1 << 30).unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), "\n").unwrap();
        enable_v2(dir.path(), 1 << 30).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(), "+memory");
    }
}
