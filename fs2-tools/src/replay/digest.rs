//! Contents of files in a number.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::Failure;

/// Contents of files, each read once.
#[derive(Default)]
pub(super) struct Digests {
    files: BTreeMap<PathBuf, u128>,
    /// By the description of a drive, what it names in turn.
    beside: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl Digests {
    /// The XXH3-128 of a file's bytes.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn of(&mut self, path: &Path) -> Result<u128, Failure> {
        if let Some(digest) = self.files.get(path) {
            return Ok(*digest);
        }
        let at = |e: std::io::Error| Failure::at(path, e);
        let mut file = std::fs::File::open(path).map_err(at)?;
        let mut digest = Xxh3::new();
        let mut buf = vec![0; 1 << 20];
        loop {
            let n = file.read(&mut buf).map_err(at)?;
            if n == 0 {
                break;
            }
            digest.update(&buf[..n]);
        }
        let digest = digest.digest128();
        self.files.insert(path.to_owned(), digest);
        Ok(digest)
    }

    /// The files that a drive's description names in turn.
    pub(super) fn beside(&mut self, drive: &Path) -> &[PathBuf] {
        self.beside.entry(drive.to_owned()).or_insert_with(|| super::profile::beside(drive))
    }
}
