//! Files that are there whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, access, linkat};
use tempfile::TempPath;

use crate::replay::Failure;

/// A file that is not there yet: its name appears once it is whole.
pub(crate) struct NewFile {
    /// Goes when the program is killed. Nothing where the file system has no files without a name: then it is made when
    /// it is written, for it would stay.
    nameless: Option<File>,
    path: PathBuf,
}

fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))
}

const HIDDEN: &str = ".new-";

/// What the system said of a file that is to be at `path`, without the hidden name that it said it of.
fn at(path: &Path, e: io::Error) -> Failure {
    let said = e.to_string();
    Failure::at(path, said.split(" at path \"").next().unwrap_or_default())
}

/// A file without a name, if the file system has such and it can be given one later.
fn nameless(dir: &Path) -> Option<File> {
    let open = || File::options().write(true).mode(0o666).custom_flags(libc::O_TMPFILE).open(dir).ok();
    Path::new("/proc/self/fd").exists().then(open).flatten()
}

/// A file with a hidden name beside `path`.
fn hidden(path: &Path) -> Result<(File, TempPath), Failure> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(HIDDEN).permissions(Permissions::from_mode(0o666));
    Ok(builder.tempfile_in(dir_of(path)).map_err(|e| at(path, e))?.into_parts())
}

/// Gives a file without a name a hidden one, from which it can take another's place.
fn named(file: &File, dir: &Path) -> io::Result<TempPath> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| Ok(linkat(CWD, &from, CWD, to, AtFlags::SYMLINK_FOLLOW)?);
    tempfile::Builder::new().prefix(HIDDEN).make_in(dir, link).map(|made| made.into_temp_path())
}

impl NewFile {
    /// A place for a file at `path`.
    ///
    /// # Errors
    /// Where no file can be made there.
    pub(crate) fn create(path: &Path) -> Result<NewFile, Failure> {
        NewFile::create_by(path, nameless)
    }

    fn create_by(path: &Path, nameless: fn(&Path) -> Option<File>) -> Result<NewFile, Failure> {
        if path.as_os_str() == "-" {
            return Err(Failure::at(
                path,
                "not standard output here, expected a file; ./- is one of that name",
            ));
        }
        match std::fs::metadata(path) {
            Ok(about) if !about.is_file() => {
                return Err(Failure::at(path, "not a file, expected one to write"));
            }
            // What is to be replaced is asked as if it were written.
            Ok(_) => access(path, Access::WRITE_OK).map_err(|e| Failure::at(path, io::Error::from(e)))?,
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Failure::at(path, e)),
            _ => {}
        }
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Failure::at(path, "no file's name, expected one to write"));
        }
        // A link is followed: what it leads to is replaced, and not the link (/dev/stdout is one).
        let path = match path.symlink_metadata() {
            Ok(about) if about.is_symlink() => path.canonicalize().map_err(|e| Failure::at(path, e))?,
            _ => path.to_owned(),
        };
        let nameless = nameless(dir_of(&path));
        if nameless.is_none() {
            // Whether one can be made there; it goes at once.
            hidden(&path)?;
        }
        Ok(NewFile { nameless, path })
    }

    /// Writes it whole.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        let path = self.path.clone();
        self.write_with(|file| file.write_all(text.as_bytes()).map_err(|e| Failure::at(&path, e)))
    }

    /// Lets it be written; it appears if that went well.
    ///
    /// # Errors
    /// The file system's, and those of `write`.
    pub(crate) fn write_with<T>(
        self,
        write: impl FnOnce(&mut BufWriter<File>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let at = |e| at(&self.path, e);
        let (file, hidden) = match self.nameless {
            Some(file) => (file, None),
            None => hidden(&self.path).map(|(file, name)| (file, Some(name)))?,
        };
        let mut file = BufWriter::new(file);
        let done = write(&mut file)?;
        let file = file.into_inner().map_err(|e| at(e.into_error()))?;
        if let Ok(about) = std::fs::metadata(&self.path) {
            file.set_permissions(Permissions::from_mode(about.permissions().mode() & 0o777)).map_err(at)?;
        }
        file.sync_all().map_err(at)?;
        let hidden = hidden.map_or_else(|| named(&file, dir_of(&self.path)), Ok).map_err(at)?;
        hidden.persist(&self.path).map_err(|e| at(e.error))?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_become_a_file_is_refused_before_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink(at("absent"), at("dangling")).unwrap();
        let long = "x".repeat(300);
        let bad = [Path::new("").to_owned(), at("new/"), at("absent/new"), at("dangling"), at(&long)];
        for path in
            bad.iter().map(PathBuf::as_path).chain([dir.path(), Path::new("/dev/full"), Path::new("..")])
        {
            let why = NewFile::create(path).err().expect("a refusal").0;
            assert!(why.starts_with(&path.display().to_string()) && !why.contains(HIDDEN), "{why}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
    }

    /// A page that only its owner could read was one for everybody, and one that nobody may write was written.
    #[test]
    fn what_is_replaced_keeps_its_mode_and_is_asked_for_leave() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "before").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        NewFile::create(&file).unwrap().write("after").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
        // Root may write anything.
        let may = access(&file, Access::WRITE_OK).is_ok();
        assert_eq!(NewFile::create(&file).is_ok(), may);
        let why = NewFile::create(Path::new("-")).err().expect("a refusal").0;
        assert!(why.contains("not standard output"), "{why}");
    }

    /// `fs2 calibrate -o` and others make it, and measure for a minute: who was killed meanwhile left `.new-...` there, where the
    /// file system has no files without a name (NFS, vfat).
    #[test]
    fn it_has_no_name_until_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let there = || std::fs::read_dir(dir.path()).unwrap().count();
        let new = NewFile::create_by(&path, |_| None).unwrap();
        assert_eq!(there(), 0);
        new.write("text").unwrap();
        assert_eq!((there(), std::fs::read_to_string(&path).unwrap().as_str()), (1, "text"));
        // What cannot be made is told before, all the same.
        assert!(NewFile::create_by(&dir.path().join("absent/file"), |_| None).is_err());
    }

    #[test]
    fn a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        NewFile::create(&link).unwrap().write("after").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "after");
    }
}
