//! Files that are there whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, linkat};
use tempfile::TempPath;

use super::Failure;

/// A file that is not there yet: its name appears once it is whole.
pub(crate) struct NewFile {
    file: File,
    /// Its name meanwhile, where the file system has no files without one: those go when the program is killed.
    hidden: Option<TempPath>,
    path: PathBuf,
}

fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))
}

const HIDDEN: &str = ".new-";

/// A file without a name, if the file system has such and it can be given one later.
fn nameless(dir: &Path) -> Option<File> {
    let open = || File::options().write(true).mode(0o666).custom_flags(libc::O_TMPFILE).open(dir).ok();
    Path::new("/proc/self/fd").exists().then(open).flatten()
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
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(Failure::at(path, "not a file, expected one to write"));
        }
        let path = path.to_owned();
        if let Some(file) = nameless(dir_of(&path)) {
            return Ok(NewFile { file, hidden: None, path });
        }
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(HIDDEN).permissions(Permissions::from_mode(0o666));
        let made = builder.tempfile_in(dir_of(&path)).map_err(|e| Failure::at(&path, e))?;
        let (file, hidden) = made.into_parts();
        Ok(NewFile { file, hidden: Some(hidden), path })
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
        let at = |e| Failure::at(&self.path, e);
        let mut file = BufWriter::new(self.file);
        let done = write(&mut file)?;
        let file = file.into_inner().map_err(|e| at(e.into_error()))?;
        file.sync_all().map_err(at)?;
        let hidden = self.hidden.map_or_else(|| named(&file, dir_of(&self.path)), Ok).map_err(at)?;
        hidden.persist(&self.path).map_err(|e| at(e.error))?;
        Ok(done)
    }
}
