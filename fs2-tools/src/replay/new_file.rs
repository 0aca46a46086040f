//! Files that are there whole or not at all.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::Failure;

/// A file that is not there yet: its name appears once it is whole.
pub(super) struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// A place for a file at `path`.
    ///
    /// # Errors
    /// Where no file can be made there.
    pub(super) fn create(path: &Path) -> Result<NewFile, Failure> {
        if path.is_dir() {
            return Err(Failure::at(path, "a directory, expected a file to write"));
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
    pub(super) fn write(mut self, text: &str) -> Result<(), Failure> {
        self.file.write_all(text.as_bytes()).map_err(|e| Failure::at(&self.path, e))?;
        self.file.persist(&self.path).map_err(|e| Failure::at(&self.path, e.error))?;
        Ok(())
    }
}
