//! Files that are there whole or not at all.

use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::replay::Failure;

/// A file that is not there yet: its name appears once it is whole.
pub(crate) struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
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
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(".new-").permissions(Permissions::from_mode(0o666));
        let file = builder.tempfile_in(dir).map_err(|e| Failure::at(path, e))?;
        Ok(NewFile { file, path: path.to_owned() })
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
        write: impl FnOnce(&mut BufWriter<NamedTempFile>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let at = |e| Failure::at(&self.path, e);
        let mut file = BufWriter::new(self.file);
        let done = write(&mut file)?;
        let file = file.into_inner().map_err(|e| at(e.into_error()))?;
        file.as_file().sync_all().map_err(at)?;
        file.persist(&self.path).map_err(|e| at(e.error))?;
        Ok(done)
    }
}
