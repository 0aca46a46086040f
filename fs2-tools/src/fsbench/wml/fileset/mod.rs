//! A fileset on the file system: which of its files exist, which is picked next, and how they are made.
//!
//! Invariants, under the one lock of a set:
//! 1. An entry is in `there` or in `absent`, or one thread is creating or deleting it.
//! 2. An entry that is open or looked at (`held`) is not deleted.
//! 3. Who waits for an entry waits only while a thread is creating or deleting one: it cannot wait for ever.

mod disk;
mod pick;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use super::super::Content;
use super::dist::Rng;
use super::index::IndexSet;
use super::model::FilesetSpec;
use super::tree::{Node, Tree};
pub(super) use disk::open_creating;

#[derive(Debug)]
pub(super) struct FileSet {
    pub(super) spec: FilesetSpec,
    pub(super) root: PathBuf,
    /// Directories below the root, each with a slash at its end.
    dirs: Vec<String>,
    tree: Tree,
    state: Mutex<State>,
    changed: Condvar,
    /// Files that were written to since they were put right.
    written: Bits,
    /// Files whose content is not, or may not be, what `content` says.
    unknown: Bits,
    /// Makes contents of different sets differ.
    stream: u64,
    /// Entries that exist when a run starts.
    initial: IndexSet,
    initial_leafdirs: IndexSet,
    /// Whether this program made what is there: lengths it finds are then of its own files.
    made: bool,
}

/// One bit for each entry, set and read by any thread.
#[derive(Debug)]
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(size: usize) -> Self {
        Self((0..size.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn get(&self, i: usize) -> bool {
        self.0[i / 64].load(Ordering::Relaxed) >> (i % 64) & 1 == 1
    }

    fn set(&self, i: usize) {
        // Most often it is set already, and reading it costs the other threads nothing.
        if !self.get(i) {
            self.0[i / 64].fetch_or(1 << (i % 64), Ordering::Relaxed);
        }
    }

    fn clear(&self, i: usize) {
        self.0[i / 64].fetch_and(!(1 << (i % 64)), Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct State {
    there: IndexSet,
    absent: IndexSet,
    held: Vec<u32>,
    /// Next for everyone; threads that open one file after the other have their own.
    rotor: usize,
    absent_rotor: usize,
    creating: usize,
    deleting: usize,
    leaf_there: IndexSet,
    leaf_absent: IndexSet,
    leaf_rotor: usize,
    leaf_absent_rotor: usize,
    dir_rotor: usize,
}

/// Which entry is wanted.
#[derive(Debug)]
pub(super) enum Pick<'a> {
    /// The next for everyone.
    Next,
    /// The next after the thread's own last.
    Own(&'a mut usize),
    /// This, or the next that will do.
    Index(usize),
}

/// What comes of wanting to delete a file.
#[derive(Debug, PartialEq)]
pub(super) enum Deletion {
    /// The caller deletes it, then says so.
    Of(usize),
    /// Others have it open: nothing is deleted.
    InUse,
    /// There is none.
    None,
}

fn set_of(size: usize, members: impl Iterator<Item = usize>) -> IndexSet {
    let mut set = IndexSet::new(size);
    members.for_each(|i| set.insert(i));
    set
}

/// Exactly `percent` of `n`, each choice as likely.
fn choose(n: usize, percent: u64, rng: &mut Rng) -> IndexSet {
    let mut wanted = (n as u64 * percent).div_ceil(100);
    let mut chosen = IndexSet::new(n);
    for i in 0..n {
        if rng.below((n - i) as u64) < wanted {
            chosen.insert(i);
            wanted -= 1;
        }
    }
    chosen
}

impl FileSet {
    /// The set below `base`, as a seed makes it; nothing is on the file system yet.
    pub(super) fn plan(spec: &FilesetSpec, base: &Path, seed: u64, stream: u64) -> Self {
        let mut rng = Rng::new(seed, stream);
        let tree = Tree::grow(spec, &mut rng);
        let mut dirs: Vec<String> = Vec::with_capacity(tree.dirs.len());
        for (i, dir) in tree.dirs.iter().enumerate() {
            let path =
                if i == 0 { String::new() } else { format!("{}{:08}/", dirs[dir.dir as usize], dir.serial) };
            dirs.push(path);
        }
        let (files, leafdirs) = (tree.files.len(), tree.leafdirs.len());
        let initial = choose(files, spec.prealloc_percent, &mut rng);
        let initial_leafdirs = choose(leafdirs, spec.prealloc_percent, &mut rng);
        let state = State {
            there: IndexSet::new(files),
            absent: set_of(files, 0..files),
            held: vec![0; files],
            rotor: 0,
            absent_rotor: 0,
            creating: 0,
            deleting: 0,
            leaf_there: IndexSet::new(leafdirs),
            leaf_absent: set_of(leafdirs, 0..leafdirs),
            leaf_rotor: 0,
            leaf_absent_rotor: 0,
            dir_rotor: 0,
        };
        Self {
            spec: spec.clone(),
            root: base.join(&spec.name),
            dirs,
            state: Mutex::new(state),
            changed: Condvar::new(),
            written: Bits::new(files),
            unknown: Bits::new(files),
            stream,
            tree,
            initial,
            initial_leafdirs,
            made: false,
        }
    }

    pub(super) fn files(&self) -> usize {
        self.tree.files.len()
    }

    pub(super) fn leafdirs(&self) -> usize {
        self.tree.leafdirs.len()
    }

    /// Bytes of the whole set, and files and directories.
    pub(super) fn needs(&self) -> (u64, u64) {
        (self.tree.bytes(), (self.tree.files.len() + self.tree.leafdirs.len() + self.tree.dirs.len()) as u64)
    }

    pub(super) fn size(&self, entry: usize) -> u64 {
        self.tree.sizes[entry]
    }

    fn path_of(&self, node: Node, out: &mut PathBuf) {
        out.clear();
        out.push(&self.root);
        // A relative name: pushed behind the root, never instead of it.
        out.push(format!("{}{:08}", self.dirs[node.dir as usize], node.serial));
    }

    /// Where an entry is; into a buffer that is used again.
    pub(super) fn path(&self, entry: usize, out: &mut PathBuf) {
        self.path_of(self.tree.files[entry], out);
    }

    pub(super) fn leafdir_path(&self, leafdir: usize, out: &mut PathBuf) {
        self.path_of(self.tree.leafdirs[leafdir], out);
    }

    pub(super) fn dir_path(&self, dir: usize, out: &mut PathBuf) {
        out.clear();
        out.push(&self.root);
        out.push(&self.dirs[dir]);
    }

    pub(super) fn mark_written(&self, entry: usize) {
        self.written.set(entry);
        self.unknown.set(entry);
    }

    fn content(&self, entry: usize, seed: u64) -> Content {
        Content::new(seed, self.stream << 40 | entry as u64)
    }
}

#[cfg(test)]
mod tests;
