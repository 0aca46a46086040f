//! What is mounted where, as `/proc/self/mountinfo` tells it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number of the mount; used again once it is gone.
    pub id: u64,
    /// Major and minor number of the device; major 0 where there is none.
    pub device: (u32, u32),
    /// What was mounted: a device's path, or a name where there is no device.
    pub source: PathBuf,
    /// The directory of the file system that was mounted; `/` but for bind mounts.
    pub root: PathBuf,
    /// Where it is mounted, from this process's root.
    pub target: PathBuf,
    /// Such as `ext2`, or `fuse.fs2` for subtype fs2.
    pub fstype: String,
    /// Options of the mount, then those of the file system: `ro`, `noatime`, `discard`.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether an option is set, by its whole text.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// Its options as they can be given: what mountinfo shows for SELinux is none.
    pub fn options_again(&self) -> Vec<String> {
        self.options.iter().filter(|o| *o != "seclabel").cloned().collect()
    }

    /// Whether its file system is mounted read-only: not where only this mount of it is, as to a service of systemd's.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().rfind(|o| ["ro", "rw"].contains(&o.as_str())).is_some_and(|o| o == "ro")
    }
}

/// Everything mounted in this process's mount namespace, in the order it was mounted.
///
/// # Errors
/// Where /proc cannot be read, or `InvalidData` as in [`parse_mountinfo`].
pub fn mounts() -> io::Result<Vec<Mount>> {
    let path = Path::new("/proc/self/mountinfo");
    parse_mountinfo(&std::fs::read(path).map_err(|e| super::told(path, "cannot read", e))?)
}

/// The mount one sees at `dir`, the last one made there; `None` where `dir` is no mount point.
///
/// # Errors
/// As [`mounts`].
pub fn mount_at(dir: &Path) -> io::Result<Option<Mount>> {
    // A mount whose server is dead may not let itself be resolved.
    let dir = dir.canonicalize().or_else(|_| std::path::absolute(dir))?;
    Ok(mounts()?.into_iter().rfind(|m| m.target == dir))
}

/// The mount that holds `path`: the one at the longest directory above it, the last one made there.
///
/// # Errors
/// As [`mounts`]; `NotFound` for a path that is not there.
pub fn mount_holding(path: &Path) -> io::Result<Option<Mount>> {
    let path = path.canonicalize().map_err(|e| super::told(path, "cannot look for its mount", e))?;
    let holders = mounts()?.into_iter().filter(|m| path.starts_with(&m.target));
    Ok(holders.max_by_key(|m| m.target.as_os_str().len()))
}

/// Reads the text of a mountinfo file.
///
/// # Errors
/// `InvalidData` with the number of the first line that is no mount.
pub fn parse_mountinfo(text: &[u8]) -> io::Result<Vec<Mount>> {
    text.split(|&b| b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(i, line)| {
            parse_line(line).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("mountinfo line {}: not a mount", i + 1))
            })
        })
        .collect()
}

/// `36 35 98:0 /root /target rw,noatime master:1 - ext3 /dev/sda1 rw,errors=continue`, with any
/// number of fields where `master:1` stands.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let mut next = || fields.next();
    let id = number(next()?)?;
    let _parent = next()?;
    let device = next()?;
    let colon = device.iter().position(|&b| b == b':')?;
    let device = (number(&device[..colon])?, number(&device[colon + 1..])?);
    let root = path(next()?);
    let target = path(next()?);
    let mut options = list(next()?);
    while next()? != b"-" {}
    let fstype = String::from_utf8_lossy(&unescape(next()?)).into_owned();
    let source = path(next()?);
    // Some file systems have no options of their own.
    options.extend(next().map(list).unwrap_or_default());
    Some(Mount { id, device, source, root, target, fstype, options })
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn path(field: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(field)).into()
}

fn list(field: &[u8]) -> Vec<String> {
    field
        .split(|&b| b == b',')
        .filter(|o| !o.is_empty())
        .map(|o| String::from_utf8_lossy(&unescape(o)).into_owned())
        .collect()
}

/// The kernel writes space, tab, newline, backslash and # as a backslash and three octal digits.
pub(crate) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_shape() {
        let text = b"25 1 259:2 / / rw,relatime shared:1 master:7 - ext4 /dev/nvme0n1p2 rw,discard\n\
            36 25 7:0 / /mnt/my\\040disk\\011\\012\\134\\043x ro,noatime - ext2 /dev/loop0 ro,errors=continue\n\
            40 25 0:51 /sub /mnt/caf\xe9 rw - fuse.fs2 fs2\\040one \n\
            41 25 0:52 / /m/trailing\\04 rw opt:a opt:b opt:c - tmpfs none rw\n";
        let mounts = parse_mountinfo(text).unwrap();
        assert_eq!(mounts.len(), 4);
        assert_eq!((mounts[0].id, mounts[0].device), (25, (259, 2)));
        assert!(mounts[0].has_option("relatime") && mounts[0].has_option("discard"));
        assert_eq!(mounts[1].target, Path::new("/mnt/my disk\t\n\\#x"));
        assert_eq!(
            (mounts[1].fstype.as_str(), mounts[1].source.as_path()),
            ("ext2", Path::new("/dev/loop0"))
        );
        assert!(mounts[1].has_option("ro") && !mounts[1].has_option("rw"));
        assert!(mounts[1].is_read_only() && !mounts[0].is_read_only());
        for (options, read_only) in [("ro - ext2 x rw,discard", false), ("rw - ext2 x ro", true)] {
            let mounts = parse_mountinfo(format!("25 1 7:0 / / {options}\n").as_bytes()).unwrap();
            assert_eq!(mounts[0].is_read_only(), read_only, "{options}");
        }
        assert_eq!(mounts[2].target.as_os_str().as_encoded_bytes(), b"/mnt/caf\xe9");
        assert_eq!(
            (mounts[2].source.as_path(), mounts[2].root.as_path()),
            (Path::new("fs2 one"), Path::new("/sub"))
        );
        assert_eq!(mounts[3].target, Path::new("/m/trailing\\04"));
    }

    #[test]
    fn what_is_no_mount_is_named() {
        let good = "25 1 8:1 / / rw - ext4 /dev/sda1 rw";
        assert!(parse_mountinfo(good.as_bytes()).is_ok());
        for cut in 0..good.rfind(" rw").unwrap_or(0) {
            let text = format!("{good}\n{}x", &good[..cut]);
            match parse_mountinfo(text.as_bytes()) {
                Err(e) => assert!(e.to_string().contains("line 2"), "{e}"),
                // Once the separator and two fields stand, it is a mount by another name.
                Ok(_) => assert!(cut > good.find("ext4").unwrap_or(0), "cut at {cut}"),
            }
        }
        for bad in
            ["x 1 8:1 / / rw - ext4 d rw", "25 1 81 / / rw - ext4 d rw", "25 1 8:-1 / / rw - ext4 d rw"]
        {
            assert!(parse_mountinfo(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(parse_mountinfo(b"").unwrap(), []);
    }

    #[test]
    fn this_machine_s_own() {
        assert_eq!(mount_at(Path::new("/proc")).unwrap().unwrap().fstype, "proc");
        assert_eq!(mount_at(Path::new("/proc/self")).unwrap(), None);
        assert_eq!(mount_holding(Path::new("/proc/self/status")).unwrap().unwrap().fstype, "proc");
        assert!(mount_holding(Path::new("/absent/dir")).is_err());
        assert_eq!(mount_at(Path::new("/absent/dir")).unwrap(), None);
    }
}
