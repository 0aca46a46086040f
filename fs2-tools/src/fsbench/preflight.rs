//! What must be so before anything is written: a directory that is mounted and can be written, and room.

use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};

use super::BenchError;
use super::workload::Needs;
use crate::kernel::{Mount, mounts};
use crate::mkfs2::bytes;
use crate::output::quoted;

/// A file costs at most so many bytes beside its data: its inode, its share of a directory, the rest of
/// its last block.
const BESIDE_A_FILE: u64 = 4096 + 512;

/// Data may take so much more: indirect blocks, the allocator's preallocation (a guess).
const MORE_PERMILLE: u64 = 30;

/// Descriptors of the program itself: its output, the control socket, directories being listed.
const OWN_DESCRIPTORS: u64 = 32;

fn refused(what: String) -> BenchError {
    BenchError::Refused(what)
}

/// The mount that holds `dir`.
pub fn mount_of(dir: &Path) -> Option<Mount> {
    let dir = dir.canonicalize().ok()?;
    let all = mounts().ok()?;
    // Of several at one place, the last is seen.
    let depth =
        all.iter().filter(|m| dir.starts_with(&m.target)).map(|m| m.target.components().count()).max()?;
    all.into_iter().rfind(|m| dir.starts_with(&m.target) && m.target.components().count() == depth)
}

/// Checks that `dir` is a directory one can write in, on the file system the user means.
///
/// # Errors
/// What is wrong and what to do.
pub fn directory(dir: &Path) -> Result<(), BenchError> {
    use std::os::unix::fs::FileTypeExt;
    let (shown, typed) = (dir.display(), quoted(dir));
    let meta = match std::fs::metadata(dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(refused(format!(
                "{shown}: there is no such directory; make it, or mount the volume first"
            )));
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => {
            return Err(refused(format!(
                "{shown}: the daemon behind it is gone; unmount it (fs2 umount {typed}) and mount it anew"
            )));
        }
        Err(e) => return Err(BenchError::at(dir, "looking at it")(e)),
    };
    if meta.file_type().is_block_device() {
        return Err(refused(format!(
            "{shown}: a block device; give the directory it is mounted on (fs2 mount {typed} DIR)"
        )));
    }
    if !meta.is_dir() {
        return Err(refused(format!(
            "{shown}: not a directory; give the one the volume is mounted on (fs2 mount {typed} DIR)"
        )));
    }
    let here = dir.canonicalize().map_err(BenchError::at(dir, "looking at it"))?;
    let is_mounted = |path: &Path| mounts().is_ok_and(|all| all.iter().any(|m| m.target == path));
    if let Some(record) = crate::volume::all_records().into_iter().find(|r| here.starts_with(&r.dir))
        && !is_mounted(&record.dir)
    {
        return Err(refused(format!(
            "{}: the FS2 volume {} is not mounted there any more; fs2 umount {2} and fs2 mount {3} {2}",
            record.dir.display(),
            record.device.display(),
            quoted(&record.dir),
            quoted(&record.device)
        )));
    }
    if listed_in_fstab(&here) && !is_mounted(&here) {
        return Err(refused(format!(
            "{shown}: nothing is mounted there, though /etc/fstab says so; mount {typed} first"
        )));
    }
    let vfs = statvfs(dir).map_err(|e| BenchError::at(dir, "asking for its space")(e.into()))?;
    if vfs.flags().contains(FsFlags::ST_RDONLY) {
        return Err(refused(format!("{shown}: mounted read-only; mount -o remount,rw {typed}")));
    }
    nix::unistd::access(dir, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK)
        .map_err(|e| refused(format!("{shown}: cannot be written: {e}")))
}

/// Whether /etc/fstab names a mount point.
fn listed_in_fstab(dir: &Path) -> bool {
    std::fs::read_to_string("/etc/fstab").is_ok_and(|text| is_listed(&text, dir))
}

/// Whether a text like /etc/fstab names a mount point that is mounted at the start.
fn is_listed(fstab: &str, dir: &Path) -> bool {
    fstab
        .lines()
        .filter(|l| !l.trim_start().starts_with('#'))
        .filter(|l| !l.split_whitespace().nth(3).is_some_and(|o| o.split(',').any(|o| o == "noauto")))
        .any(|l| l.split_whitespace().nth(1).is_some_and(|d| d != "/" && Path::new(d) == dir))
}

/// Checks that there is room for a workload; raises the limit of descriptors where it may.
///
/// # Errors
/// What there is too little of, how much there is and what would do.
pub fn room(dir: &Path, needs: &Needs) -> Result<(), BenchError> {
    let shown = dir.display();
    let vfs = space_of(dir)?;
    let (free, want) = (free_bytes(&vfs), on_disk(needs));
    if want > free {
        return Err(refused(format!(
            "{shown}: {} free, about {} needed; give a larger volume or a smaller --scale",
            bytes(free),
            bytes(want)
        )));
    }
    // File systems that make inodes as they need them say 0.
    if vfs.files() > 0 && needs.inodes > vfs.files_free() {
        return Err(refused(format!(
            "{shown}: {} inodes free, {} needed; make the file system with more (mke2fs -N) or give a smaller --scale",
            vfs.files_free(),
            needs.inodes
        )));
    }
    descriptors(needs.descriptors.saturating_add(OWN_DESCRIPTORS))?;
    if let Some(available) = memory_available()
        && needs.memory > available
    {
        return Err(refused(format!(
            "{} of memory available, {} needed; give a smaller --scale",
            bytes(available),
            bytes(needs.memory)
        )));
    }
    Ok(())
}

/// Checks that there is room for two images of volumes that hold a workload: one as it was made, and one in use.
///
/// # Errors
/// As of [`room`].
pub fn images(dir: &Path, needs: &Needs) -> Result<(), BenchError> {
    let (free, want) = (free_bytes(&space_of(dir)?), on_disk(needs).saturating_mul(2));
    if want > free {
        return Err(refused(format!(
            "{}: {} free, about {} needed for images; name another directory by --work-dir or give a smaller scale",
            dir.display(),
            bytes(free),
            bytes(want)
        )));
    }
    Ok(())
}

fn space_of(dir: &Path) -> Result<Statvfs, BenchError> {
    statvfs(dir).map_err(|e| BenchError::at(dir, "asking for its space")(e.into()))
}

/// What is set aside for root is not for benchmarks, and some file systems count as free what nobody gets.
fn free_bytes(vfs: &Statvfs) -> u64 {
    vfs.blocks_available().saturating_mul(vfs.fragment_size())
}

/// What a workload's files take, with what is beside their bytes.
fn on_disk(needs: &Needs) -> u64 {
    needs
        .bytes
        .saturating_add(needs.bytes.saturating_mul(MORE_PERMILLE) / 1000)
        .saturating_add(needs.inodes.saturating_mul(BESIDE_A_FILE))
}

fn descriptors(want: u64) -> Result<(), BenchError> {
    let limits = getrlimit(Resource::RLIMIT_NOFILE);
    let (soft, hard) = limits.map_err(|e| refused(format!("the limit of open files: {e}")))?;
    if want <= soft {
        return Ok(());
    }
    if want > hard {
        return Err(refused(format!(
            "{hard} files may be open at a time, {want} are needed; raise it (ulimit -Hn {want}) or give a smaller --scale"
        )));
    }
    setrlimit(Resource::RLIMIT_NOFILE, want, hard)
        .map_err(|e| refused(format!("raising the limit of open files to {want}: {e}")))
}

/// What the kernel could give without swapping, in bytes.
pub(crate) fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(result: Result<(), BenchError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(directory(dir.path()).is_ok());
        assert!(said(directory(&dir.path().join("absent"))).contains("no such directory"));
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        assert!(said(directory(&file)).contains("not a directory"));
        assert!(said(directory(&file.join("below"))).contains("looking at it"));
    }

    #[test]
    fn too_little_of_anything_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(room(dir.path(), &Needs::default()).is_ok());
        let lots = 1 << 60;
        assert!(said(room(dir.path(), &Needs { bytes: lots, ..Needs::default() })).contains("free"));
        let inodes = said(room(dir.path(), &Needs { inodes: u64::MAX, ..Needs::default() }));
        assert!(inodes.contains("free"), "{inodes}");
        for descriptors in [1 << 40, u64::MAX] {
            let needs = Needs { descriptors, ..Needs::default() };
            assert!(said(room(dir.path(), &needs)).contains("ulimit"));
        }
        assert!(said(room(dir.path(), &Needs { memory: lots, ..Needs::default() })).contains("memory"));
        images(dir.path(), &Needs::default()).unwrap();
        let free = free_bytes(&space_of(dir.path()).unwrap());
        let image = said(images(dir.path(), &Needs { bytes: free / 4 * 3, ..Needs::default() }));
        assert!(image.contains("--work-dir"), "{image}");
    }

    #[test]
    fn a_mount_point_of_fstab_is_known() {
        let fstab = "# /dev/x /old ext2\nUUID=1 / ext4 rw 0 1\n/dev/b /srv/b ext2 noatime 0 2\n/dev/c /c ext2 noauto,rw 0 0\n";
        let listed: Vec<&str> = ["/", "/old", "/srv/b", "/srv", "/c"]
            .into_iter()
            .filter(|d| is_listed(fstab, Path::new(d)))
            .collect();
        assert_eq!(listed, ["/srv/b"]);
    }

    #[test]
    fn the_mount_of_a_directory_is_the_innermost() {
        let of_proc = mount_of(Path::new("/proc/self")).unwrap();
        assert_eq!(of_proc.target, Path::new("/proc"));
        assert_eq!(mount_of(Path::new("/absent/directory")), None);
    }
}
