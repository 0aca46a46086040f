//! Programs of the system: root's are missing from many users' paths, and from root's after `su` without `-`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// Where root's programs live when they are not on the path.
pub(crate) const USUAL: &str = "/usr/sbin:/sbin:/usr/local/sbin";

/// The program, on `path` or where it usually is.
pub(crate) fn find(name: &str, path: Option<&OsStr>, usual: &str) -> Option<PathBuf> {
    let of = |dirs: &OsStr| std::env::split_paths(dirs).map(|d| d.join(name)).find(|p| p.is_file());
    path.and_then(of).or_else(|| of(OsStr::new(usual)))
}

/// To run the program; where it is not to be found, that says so.
pub(crate) fn command(name: &str) -> Command {
    let path = std::env::var_os("PATH");
    Command::new(find(name, path.as_deref(), USUAL).unwrap_or_else(|| name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_on_the_path_first_then_where_it_usually_is() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for d in [&a, &b] {
            std::fs::create_dir(d).unwrap();
        }
        let path = std::env::join_paths([&a, &b]).unwrap();
        assert_eq!(find("e2fsck", Some(&path), ""), None);
        std::fs::create_dir(a.join("e2fsck")).unwrap();
        std::fs::write(b.join("e2fsck"), "").unwrap();
        assert_eq!(find("e2fsck", Some(&path), ""), Some(b.join("e2fsck")), "a directory is no program");
        assert_eq!(find("e2fsck", None, path.to_str().unwrap()), Some(b.join("e2fsck")));
        assert_eq!(find("e2fsck", Some(OsStr::new("/nowhere")), "/nowhere/else"), None);
    }
}
