//! What a command may write over: nothing that it reads, and no file that somebody may still want.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::replay::Failure;

/// A file, by whatever name.
#[derive(PartialEq, Eq)]
enum Place {
    /// One that is there: device and inode.
    There(u64, u64),
    /// A block device, by its number.
    Device(u64),
    /// One that is not: the same of its directory, and its name there.
    Not(u64, u64, OsString),
}

fn about(path: &Path, standard: BorrowedFd<'_>) -> Option<Metadata> {
    if path == Path::new("-") {
        return File::from(standard.try_clone_to_owned().ok()?).metadata().ok();
    }
    std::fs::metadata(path).ok()
}

/// The file below a loop device, or a partition of one.
fn backing(device: &Metadata) -> Option<PathBuf> {
    let (major, minor) = (libc::major(device.rdev()), libc::minor(device.rdev()));
    let sysfs = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    // A partition's directory lies in its device's.
    let mut name =
        ["loop", "../loop"].iter().find_map(|at| std::fs::read(sysfs.join(at).join("backing_file")).ok())?;
    name.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(name).into())
}

/// Loop devices one over another that are looked through. A guess: nobody has as many.
const LOOPS_MAX: usize = 8;

/// Where a path leads, through links, and what lies below it where that is a loop device; nothing for what is no file,
/// such as a terminal or a pipe.
fn places(path: &Path, standard: BorrowedFd<'_>) -> Vec<Place> {
    let Some(mut about) = about(path, standard) else { return not_there(path).into_iter().collect() };
    let mut all = Vec::new();
    for _ in 0..LOOPS_MAX {
        if about.is_file() {
            all.push(Place::There(about.dev(), about.ino()));
        }
        if !about.file_type().is_block_device() {
            break;
        }
        all.push(Place::Device(about.rdev()));
        match backing(&about).and_then(|below| std::fs::metadata(below).ok()) {
            Some(below) => about = below,
            None => break,
        }
    }
    all
}

fn not_there(path: &Path) -> Option<Place> {
    let dir = path.parent().filter(|d| *d != Path::new("")).unwrap_or(Path::new("."));
    let about = std::fs::metadata(dir).ok()?;
    Some(Place::Not(about.dev(), about.ino(), path.file_name().map(OsStr::to_owned)?))
}

/// Whether two paths lead to the same file or device.
fn meet(a: &[Place], b: &[Place]) -> bool {
    a.iter().any(|place| b.contains(place))
}

/// Whether two inputs are one file or device that is there, by whatever names.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(|path| {
        let mut places = places(path, stdin().as_fd());
        places.retain(|place| !matches!(place, Place::Not(..)));
        places
    });
    meet(&a, &b)
}

/// Refuses an output that is an input, or another output, under whatever name. `-` is standard input and output.
///
/// # Errors
/// Which two are the same.
pub(crate) fn refuse_same<'a>(
    outputs: &[&Path],
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let places_of: Vec<_> = outputs.iter().map(|path| places(path, stdout().as_fd())).collect();
    for input in inputs {
        let mut read = places(input, stdin().as_fd());
        // Not read either: it may be the name of a built-in drive.
        read.retain(|place| !matches!(place, Place::Not(..)));
        for (output, written) in outputs.iter().zip(&places_of) {
            if meet(&read, written) {
                let what = match *output == input {
                    true => "it is read, so it cannot be written too".to_owned(),
                    false => format!("the same file as {}, which is read", input.display()),
                };
                return Err(Failure::at(output, format!("{what}; give the output another name")));
            }
        }
    }
    for (i, output) in outputs.iter().enumerate() {
        if let Some(j) = (0..i).find(|j| meet(&places_of[i], &places_of[*j])) {
            let what = format!("two outputs are the same file, this and {}", outputs[j].display());
            return Err(Failure::at(output, format!("{what}; give one of them another name")));
        }
    }
    Ok(())
}

/// Refuses to replace a file with something in it, unless it is `force`d: a command line that lacks its last name
/// has a trace there.
///
/// # Errors
/// What is there.
pub(crate) fn refuse_there(output: &Path, force: bool) -> Result<(), Failure> {
    match std::fs::metadata(output) {
        Ok(about) if !force && output != Path::new("-") && about.is_file() && about.len() > 0 => {
            let what = format!("there already, with {} bytes", about.len());
            let then = "the last name is the file to write; give another, or --force to replace this one";
            Err(Failure::at(output, format!("{what}; {then}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_same_by_any_name() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("d")).expect("made");
        std::fs::write(at("a"), "a").expect("written");
        std::fs::write(at("b"), "a").expect("written");
        std::os::unix::fs::symlink("a", at("link")).expect("made");
        std::os::unix::fs::symlink(".", at("d/up")).expect("made");
        std::fs::hard_link(at("a"), at("hard")).expect("made");
        let same = |outputs: &[PathBuf], inputs: &[PathBuf]| {
            let outputs: Vec<_> = outputs.iter().map(PathBuf::as_path).collect();
            refuse_same(&outputs, inputs.iter().map(PathBuf::as_path)).map_err(|e| e.0)
        };
        for name in ["a", "link", "hard", "d/../a"] {
            let why = same(&[at("new"), at(name)], &[at("b"), at("a")]).expect_err(name);
            assert!(why.contains("read") && why.contains("another name"), "{why}");
        }
        assert_eq!(same(&[at("new"), at("b")], &[at("a"), at("not-there")]), Ok(()));
        let why = same(&[at("d/new"), at("d/up/new")], &[]).expect_err("two outputs");
        assert!(why.contains("two outputs"), "{why}");
        let null = PathBuf::from("/dev/null");
        assert_eq!(same(&[null.clone(), null.clone()], &[null]), Ok(()));
        // A built-in drive has a name and no file.
        assert_eq!(same(&[at("new")], &[at("new")]), Ok(()));
    }

    #[test]
    fn only_what_is_empty_is_replaced_unasked() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let at = dir.path().join("a");
        assert!(refuse_there(&at, false).is_ok());
        std::fs::write(&at, "").expect("written");
        assert!(refuse_there(&at, false).is_ok());
        std::fs::write(&at, "x").expect("written");
        assert!(refuse_there(&at, false).expect_err("there").0.contains("1 bytes; the last name"));
        assert!(refuse_there(&at, true).is_ok() && refuse_there(Path::new("/dev/null"), false).is_ok());
    }
}
