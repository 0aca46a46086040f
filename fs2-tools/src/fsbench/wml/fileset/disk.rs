//! A fileset on the medium: made, put right again, compared.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::super::Verified;
use super::super::dist::Rng;
use super::super::gates::{Stop, lock};
use super::super::run::RunError;
use super::{FileSet, State, set_of};

/// Files are made with writes of this many bytes, and at most so many at a time.
const ALLOCATE_BYTES: usize = 1 << 20;
const ALLOCATE_THREADS: usize = 32;

impl FileSet {
    /// Makes what exists when a run starts. A tree that is there is removed first, unless the script reuses it.
    pub(in super::super) fn create(&mut self, seed: u64, stop: &Stop) -> Result<(), RunError> {
        let failed = |what: &str, path: &Path, source| RunError::Prepare {
            fileset: self.spec.name.clone(),
            what: format!("{what} {}", path.display()),
            source,
        };
        let found = self.root.symlink_metadata().is_ok();
        let reusing = self.spec.trusttree || (found && self.spec.reuse);
        if found && !reusing {
            fs::remove_dir_all(&self.root).map_err(|e| failed("cannot remove", &self.root, e))?;
        }
        fs::create_dir_all(&self.root).map_err(|e| failed("cannot create", &self.root, e))?;
        // Leaf directories need theirs before the first makedir; other directories are made with the files in
        // them when nothing is made in advance, as the original does.
        if self.spec.prealloc_percent > 0 || self.leafdirs() > 0 {
            let mut path = PathBuf::new();
            for dir in 1..self.dirs.len() {
                self.dir_path(dir, &mut path);
                make_dir(&path).map_err(|e| failed("cannot create", &path, e))?;
            }
        }
        let mut path = PathBuf::new();
        if reusing && !self.spec.trusttree {
            for entry in (0..self.files()).filter(|i| !self.initial.contains(*i)) {
                self.path(entry, &mut path);
                remove(fs::remove_file(&path)).map_err(|e| failed("cannot remove", &path, e))?;
            }
            for leafdir in (0..self.leafdirs()).filter(|i| !self.initial_leafdirs.contains(*i)) {
                self.leafdir_path(leafdir, &mut path);
                remove(fs::remove_dir(&path)).map_err(|e| failed("cannot remove", &path, e))?;
            }
        }
        for leafdir in self.initial_leafdirs.iter() {
            self.leafdir_path(leafdir, &mut path);
            make_dir(&path).map_err(|e| failed("cannot create", &path, e))?;
        }
        // In no order, as the original: files next to each other in the set are not so on the medium.
        let mut order: Vec<usize> = self.initial.iter().collect();
        let mut rng = Rng::new(seed, 0x616c_6c6f);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        self.allocate(&order, reusing, seed, stop)?;
        self.made = true;
        self.reset_state();
        Ok(())
    }

    /// Takes over what another process has made and nobody has changed.
    pub(in super::super) fn adopt(&mut self) {
        self.made = true;
        self.reset_state();
    }

    /// Brings the set back to what it was when made: entries that came are removed, those that went are made again,
    /// and those that were written get their length. Files that were only read stay where they are.
    pub(in super::super) fn restore(&self, seed: u64, stop: &Stop) -> Result<(), RunError> {
        let failed = |path: &Path, source| RunError::Prepare {
            fileset: self.spec.name.clone(),
            what: format!("cannot put right {}", path.display()),
            source,
        };
        let (mut path, mut wrong) = (PathBuf::new(), Vec::new());
        {
            let state = lock(&self.state);
            for entry in state.there.iter().filter(|i| !self.initial.contains(*i)) {
                self.path(entry, &mut path);
                remove(fs::remove_file(&path)).map_err(|e| failed(&path, e))?;
            }
            for entry in self.initial.iter() {
                if self.written.get(entry) || !state.there.contains(entry) {
                    wrong.push(entry);
                }
            }
            for leafdir in state.leaf_there.iter().filter(|i| !self.initial_leafdirs.contains(*i)) {
                self.leafdir_path(leafdir, &mut path);
                remove(fs::remove_dir(&path)).map_err(|e| failed(&path, e))?;
            }
        }
        for leafdir in self.initial_leafdirs.iter() {
            self.leafdir_path(leafdir, &mut path);
            make_dir(&path).map_err(|e| failed(&path, e))?;
        }
        self.allocate(&wrong, true, seed, stop)?;
        self.reset_state();
        Ok(())
    }

    fn reset_state(&self) {
        let (files, leafdirs) = (self.files(), self.leafdirs());
        let mut state = lock(&self.state);
        *state = State {
            there: self.initial.clone(),
            absent: set_of(files, (0..files).filter(|i| !self.initial.contains(*i))),
            held: vec![0; files],
            rotor: 0,
            absent_rotor: 0,
            creating: 0,
            deleting: 0,
            leaf_there: self.initial_leafdirs.clone(),
            leaf_absent: set_of(leafdirs, (0..leafdirs).filter(|i| !self.initial_leafdirs.contains(*i))),
            leaf_rotor: 0,
            leaf_absent_rotor: 0,
            dir_rotor: 0,
        };
        self.written.0.iter().for_each(|w| w.store(0, Ordering::Relaxed));
    }

    fn allocate(&self, order: &[usize], reusing: bool, seed: u64, stop: &Stop) -> Result<(), RunError> {
        let threads = if self.spec.paralloc { ALLOCATE_THREADS.min(order.len()).max(1) } else { 1 };
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), RunError> {
            let mut data = vec![0u8; ALLOCATE_BYTES];
            let mut path = PathBuf::new();
            while let Some(entry) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                if stop.is_set() {
                    return Err(RunError::Interrupted);
                }
                self.path(*entry, &mut path);
                if let Err(source) = self.allocate_file(*entry, &path, reusing, seed, &mut data, stop) {
                    // The other threads need not go on.
                    next.store(order.len(), Ordering::Relaxed);
                    let what = format!("cannot write {}", path.display());
                    return Err(RunError::Prepare { fileset: self.spec.name.clone(), what, source });
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut result = work();
            for other in others {
                let other = other.join().unwrap_or(Err(RunError::Interrupted));
                result = result.and(other);
            }
            result
        })
    }

    fn allocate_file(
        &self,
        entry: usize,
        path: &Path,
        reusing: bool,
        seed: u64,
        data: &mut [u8],
        stop: &Stop,
    ) -> io::Result<()> {
        if reusing && self.spec.trusttree && path.exists() {
            self.unknown.set(entry);
            return Ok(());
        }
        let (size, content) = (self.size(entry), self.content(entry, seed));
        let mut file = open_creating(OpenOptions::new().read(true).append(true), path)?;
        let mut there = file.metadata()?.len();
        match there {
            0 => self.unknown.clear(entry),
            _ if !self.made => self.unknown.set(entry),
            _ => {}
        }
        if there > size {
            file.set_len(size)?;
            there = size;
        }
        while there < size && !stop.is_set() {
            let chunk = &mut data[..(size - there).min(ALLOCATE_BYTES as u64) as usize];
            content.fill(there, chunk);
            file.write_all(chunk)?;
            there += chunk.len() as u64;
        }
        Ok(())
    }

    /// Compares what is on the file system with what should be: that files exist or do not, and the content of those
    /// that no flowop has written to.
    pub(in super::super) fn verify(&self, seed: u64, stop: &Stop, found: &mut Verified) {
        let mut path = PathBuf::new();
        let there = lock(&self.state).there.clone();
        for entry in (0..self.files()).take_while(|_| !stop.is_set()) {
            self.path(entry, &mut path);
            match (there.contains(entry), path.symlink_metadata().is_ok()) {
                (true, true) if self.unknown.get(entry) => found.note(&path, 0, None),
                (true, true) => found.compare(&path, self.content(entry, seed), self.size(entry)),
                (true, false) => found.note(&path, 0, Some("it is gone".into())),
                (false, true) => found.note(&path, 0, Some("it was deleted, and is there".into())),
                (false, false) => {}
            }
        }
    }
}

/// Creates a file and, where it has none, its directory.
pub(in super::super) fn open_creating(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.create(true);
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            options.open(path)
        }
        other => other,
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn remove(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
