//! Directories.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use super::super::model::Op;
use super::failure::Failure;
use super::{Flow, Worker};

impl Worker<'_> {
    pub(super) fn make_dir(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        self.leafdir(op, false, |path| fs::create_dir(path))
    }

    pub(super) fn remove_dir(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        self.leafdir(op, true, |path| fs::remove_dir(path))
    }

    pub(super) fn leafdir(
        &mut self,
        op: &Op,
        exists: bool,
        change: impl Fn(&PathBuf) -> io::Result<()>,
    ) -> std::result::Result<Flow, Failure> {
        let Some(set) = op.fileset else { return Err(Failure::misuse("it names no fileset")) };
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.leafdirs());
        let Some(leafdir) = fileset.take_leafdir(exists, index) else {
            return Ok(self.none(
                set,
                if exists { ", which has no leaf directory" } else { ", whose leaf directories exist" },
            ));
        };
        fileset.leafdir_path(leafdir, &mut self.path);
        let start = Instant::now();
        let changed = change(&self.path);
        let flow = self.count(op, start, 0);
        fileset.put_leafdir(leafdir, exists != changed.is_ok());
        let what = if exists { "remove" } else { "make" };
        changed.map_err(|e| Failure::io(format!("cannot {what} {}", self.path.display()), e)).map(|()| flow)
    }

    pub(super) fn list_dir(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        /// What the original adds for each entry: its system's structure but for one byte of the name.
        const ENTRY_BYTES: u64 = 279;
        let Some(set) = op.fileset else { return Err(Failure::misuse("it names no fileset")) };
        let fileset = &self.live.sets[set];
        fileset.dir_path(fileset.next_dir(), &mut self.path);
        let start = Instant::now();
        // The directory itself and its parent are listed too, and not told of by the standard library.
        let mut bytes = 2 * ENTRY_BYTES + 3;
        let list = || -> io::Result<u64> {
            for entry in fs::read_dir(&self.path)? {
                bytes += entry?.file_name().len() as u64 + ENTRY_BYTES;
            }
            Ok(bytes)
        };
        match { list }() {
            Ok(bytes) => Ok(self.count(op, start, bytes)),
            // Made with its first file, which has not come yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(self.count(op, start, 0)),
            Err(e) => Err(Failure::io(format!("cannot list {}", self.path.display()), e)),
        }
    }
}
