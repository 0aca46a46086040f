//! What a command may write over: nothing that it reads, and no file that somebody may still want.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Failure;

/// A file, by whatever name.
#[derive(PartialEq, Eq)]
enum Place {
    /// One that is there: device and inode.
    There(u64, u64),
    /// One that is not: the same of its directory, and its name there.
    Not(u64, u64, OsString),
}

fn about(path: &Path, standard: BorrowedFd<'_>) -> Option<Metadata> {
    if path == Path::new("-") {
        return File::from(standard.try_clone_to_owned().ok()?).metadata().ok();
    }
    std::fs::metadata(path).ok()
}

/// Where a path leads, through links; `None` for what is no file, such as a terminal or a pipe.
fn place(path: &Path, standard: BorrowedFd<'_>) -> Option<Place> {
    if let Some(about) = about(path, standard) {
        return about.is_file().then(|| Place::There(about.dev(), about.ino()));
    }
    let dir = path.parent().filter(|d| *d != Path::new("")).unwrap_or(Path::new("."));
    let about = std::fs::metadata(dir).ok()?;
    Some(Place::Not(about.dev(), about.ino(), path.file_name().map(OsStr::to_owned)?))
}

/// Refuses an output that is an input, or another output, under whatever name. `-` is standard input and output.
///
/// # Errors
/// Which two are the same.
pub(super) fn refuse_same<'a>(
    outputs: &[&Path],
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let places: Vec<_> = outputs.iter().map(|path| place(path, stdout().as_fd())).collect();
    for input in inputs {
        let read = place(input, stdin().as_fd());
        for (output, written) in outputs.iter().zip(&places) {
            if read.is_some() && read == *written {
                let what = match *output == input {
                    true => "it is read, so it cannot be written too".to_owned(),
                    false => format!("the same file as {}, which is read", input.display()),
                };
                return Err(Failure::at(output, format!("{what}; give the output another name")));
            }
        }
    }
    for (i, output) in outputs.iter().enumerate() {
        if let Some(j) = (0..i).find(|j| places[i].is_some() && places[i] == places[*j]) {
            let what = format!("two outputs are the same file, this and {}", outputs[j].display());
            return Err(Failure::at(output, what));
        }
    }
    Ok(())
}

/// Refuses to replace a file with something in it, unless it is `force`d: a command line that lacks its last name
/// has a trace there.
///
/// # Errors
/// What is there.
pub(super) fn refuse_there(output: &Path, force: bool) -> Result<(), Failure> {
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
    use std::path::PathBuf;

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
