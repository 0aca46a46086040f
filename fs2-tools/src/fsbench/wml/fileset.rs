//! A fileset on the file system: which of its files exist, which is picked next, and how they are made.
//!
//! Invariants, under the one lock of a set:
//! 1. An entry is in `there` or in `absent`, or one thread is creating or deleting it.
//! 2. An entry that is open or looked at (`held`) is not deleted.
//! 3. Who waits for an entry waits only while a thread is creating or deleting one: it cannot wait for ever.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::super::{Content, Verified};
use super::dist::Rng;
use super::gates::{Stop, lock};
use super::index::IndexSet;
use super::model::FilesetSpec;
use super::run::RunError;
use super::tree::{Node, Tree};

/// Files are made with writes of this many bytes, and at most so many at a time.
const ALLOCATE_BYTES: usize = 1 << 20;
const ALLOCATE_THREADS: usize = 32;

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

    /// An existing entry, now held; `None` when there is none and nobody is creating one.
    pub(super) fn hold_existing(&self, pick: Pick, stop: &Stop) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            if state.there.len() > 0 {
                let entry = state.existing(pick)?;
                state.held[entry] += 1;
                return Some(entry);
            }
            if state.creating == 0 || stop.is_set() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends what `hold_existing` or a creation began.
    pub(super) fn release(&self, entry: usize) {
        let mut state = lock(&self.state);
        state.held[entry] = state.held[entry].saturating_sub(1);
    }

    /// An entry that does not exist, for the caller to create; `None` when all exist and nobody is deleting one.
    pub(super) fn begin_creation(&self, pick: Pick, stop: &Stop) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            let from = match &pick {
                Pick::Index(i) => *i,
                _ => state.absent_rotor,
            };
            if let Some(entry) = state.absent.next_round(from) {
                if !matches!(pick, Pick::Index(_)) {
                    state.absent_rotor = entry + 1;
                }
                state.absent.remove(entry);
                state.creating += 1;
                return Some(entry);
            }
            if state.deleting == 0 || stop.is_set() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The creation succeeded, and the entry is held; or it failed.
    pub(super) fn end_creation(&self, entry: usize, exists: bool) {
        let mut state = lock(&self.state);
        state.creating -= 1;
        if exists {
            self.mark_written(entry);
            state.there.insert(entry);
            state.held[entry] = 1;
        } else {
            state.absent.insert(entry);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Picks an entry to delete, or takes the one given, of which the caller may hold one hold itself.
    pub(super) fn begin_deletion(&self, which: Result<Pick, (usize, bool)>, stop: &Stop) -> Deletion {
        let mut state = lock(&self.state);
        let (entry, mine) = match which {
            Err((entry, mine)) => (entry, u32::from(mine)),
            Ok(pick) => {
                while state.there.len() == 0 {
                    if state.creating == 0 || stop.is_set() {
                        return Deletion::None;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                let by_index = matches!(pick, Pick::Index(_));
                let Some(first) = state.existing(pick) else { return Deletion::None };
                let mut entry = first;
                // Open ones are passed over: if they were left, they would add up until none can be created.
                while state.held[entry] > 0 {
                    entry = state.there.next_round(entry + 1).unwrap_or(first);
                    if entry == first {
                        return Deletion::InUse;
                    }
                }
                if !by_index && entry != first {
                    state.rotor = entry + 1;
                }
                (entry, 0)
            }
        };
        // Gone or going already: by another thread that had it open before.
        if !state.there.contains(entry) || state.held[entry] > mine {
            return Deletion::InUse;
        }
        state.there.remove(entry);
        state.held[entry] = 0;
        state.deleting += 1;
        Deletion::Of(entry)
    }

    pub(super) fn end_deletion(&self, entry: usize, gone: bool) {
        let mut state = lock(&self.state);
        state.deleting -= 1;
        if gone {
            state.absent.insert(entry);
        } else {
            state.there.insert(entry);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A leaf directory to make (`exists` false) or remove; the caller says what became of it.
    pub(super) fn take_leafdir(&self, exists: bool, index: Option<usize>) -> Option<usize> {
        let state = &mut *lock(&self.state);
        let (set, rotor) = if exists {
            (&mut state.leaf_there, &mut state.leaf_rotor)
        } else {
            (&mut state.leaf_absent, &mut state.leaf_absent_rotor)
        };
        let leafdir = set.next_round(index.unwrap_or(*rotor))?;
        if index.is_none() {
            *rotor = leafdir + 1;
        }
        set.remove(leafdir);
        Some(leafdir)
    }

    pub(super) fn put_leafdir(&self, leafdir: usize, exists: bool) {
        let mut state = lock(&self.state);
        if exists { state.leaf_there.insert(leafdir) } else { state.leaf_absent.insert(leafdir) }
    }

    /// The next directory in turn; all of them exist.
    pub(super) fn next_dir(&self) -> usize {
        let mut state = lock(&self.state);
        let dir = state.dir_rotor % self.dirs.len();
        state.dir_rotor = dir + 1;
        dir
    }

    /// After the end was set: everyone who waits looks at it.
    pub(super) fn end(&self) {
        let _state = lock(&self.state);
        self.changed.notify_all();
    }

    /// Makes what exists when a run starts. A tree that is there is removed first, unless the script reuses it.
    pub(super) fn create(&mut self, seed: u64, stop: &Stop) -> Result<(), RunError> {
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
    pub(super) fn adopt(&mut self) {
        self.made = true;
        self.reset_state();
    }

    /// Brings the set back to what it was when made: entries that came are removed, those that went are made again,
    /// and those that were written get their length. Files that were only read stay where they are.
    pub(super) fn restore(&self, seed: u64, stop: &Stop) -> Result<(), RunError> {
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
    pub(super) fn verify(&self, seed: u64, stop: &Stop, found: &mut Verified) {
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

impl State {
    /// The entry picked among those that exist, of which there is one.
    fn existing(&mut self, pick: Pick) -> Option<usize> {
        let rotor = match pick {
            Pick::Index(i) => return self.there.next_round(i),
            Pick::Own(own) => own,
            Pick::Next => &mut self.rotor,
        };
        let entry = self.there.next_round(*rotor)?;
        *rotor = entry + 1;
        Some(entry)
    }
}

/// Creates a file and, where it has none, its directory.
pub(super) fn open_creating(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
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

#[cfg(test)]
mod tests {
    use super::super::model::Amount;
    use super::*;

    fn set(dir: &Path, entries: u64, prealloc_percent: u64) -> FileSet {
        let spec = FilesetSpec {
            name: "set".into(),
            path: "/tmp".into(),
            size: Amount::Fixed(3000),
            size_gamma: 0,
            entries,
            leafdirs: 4,
            dirwidth: Amount::Fixed(5),
            dirgamma: 1500,
            dirdepth: None,
            prealloc_percent,
            paralloc: true,
            reuse: false,
            trusttree: false,
            readonly: false,
            writeonly: false,
        };
        FileSet::plan(&spec, dir, 11, 0)
    }

    fn on_disk(set: &FileSet) -> Vec<(bool, u64)> {
        let mut path = PathBuf::new();
        (0..set.files())
            .map(|i| {
                set.path(i, &mut path);
                path.metadata().map_or((false, 0), |m| (true, m.len()))
            })
            .collect()
    }

    #[test]
    fn makes_exactly_the_share_and_puts_it_right_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut set, stop) = (set(dir.path(), 50, 80), Stop::default());
        set.create(1, &stop).unwrap();
        let before = on_disk(&set);
        assert_eq!(before.iter().filter(|f| **f == (true, 3000)).count(), 40);
        assert_eq!(before.iter().filter(|f| !f.0).count(), 10);

        let mut path = PathBuf::new();
        let Deletion::Of(gone) = set.begin_deletion(Ok(Pick::Next), &stop) else { panic!() };
        set.path(gone, &mut path);
        fs::remove_file(&path).unwrap();
        set.end_deletion(gone, true);
        let came = set.begin_creation(Pick::Next, &stop).unwrap();
        set.path(came, &mut path);
        open_creating(OpenOptions::new().write(true), &path).unwrap();
        set.end_creation(came, true);
        let longer = set.hold_existing(Pick::Next, &stop).unwrap();
        set.path(longer, &mut path);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        set.mark_written(longer);
        assert_ne!(on_disk(&set), before);
        set.restore(1, &stop).unwrap();
        assert_eq!(on_disk(&set), before);
        let mut found = Verified::default();
        set.verify(1, &stop, &mut found);
        assert_eq!((found.files, found.bytes, found.damaged), (40, 39 * 3000, 0), "{:?}", found.examples);
        set.path(set.hold_existing(Pick::Next, &stop).unwrap(), &mut path);
        fs::write(&path, vec![7; 3000]).unwrap();
        set.verify(1, &stop, &mut found);
        assert_eq!(found.damaged, 1);
    }

    #[test]
    fn rotation_index_and_holds() {
        let dir = tempfile::tempdir().unwrap();
        let (mut set, stop) = (set(dir.path(), 5, 100), Stop::default());
        set.create(1, &stop).unwrap();
        // One after the other for everyone, and again from the start.
        let picks: Vec<_> = (0..6).map(|_| set.hold_existing(Pick::Next, &stop).unwrap()).collect();
        assert_eq!(picks, [0, 1, 2, 3, 4, 0]);
        let mut own = 0;
        assert_eq!(set.hold_existing(Pick::Own(&mut own), &stop), Some(0));
        assert_eq!(set.hold_existing(Pick::Index(3), &stop), Some(3));
        // Held by two: neither may delete it. Held by the caller alone: it may.
        assert_eq!(set.begin_deletion(Err((3, true)), &stop), Deletion::InUse);
        set.release(3);
        assert_eq!(set.begin_deletion(Err((3, true)), &stop), Deletion::Of(3));
        // It is neither there nor absent until that is done.
        assert_eq!(set.begin_deletion(Err((3, false)), &stop), Deletion::InUse);
        set.end_deletion(3, true);
        assert_eq!(set.hold_existing(Pick::Index(3), &stop), Some(4));
        assert_eq!(set.begin_creation(Pick::Next, &stop), Some(3));
        set.end_creation(3, true);
        assert_eq!(set.begin_creation(Pick::Next, &stop), None);
    }

    #[test]
    fn who_needs_a_file_that_is_being_deleted_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut set, stop) = (set(dir.path(), 1, 100), Stop::default());
        set.create(1, &stop).unwrap();
        assert_eq!(set.begin_deletion(Ok(Pick::Next), &stop), Deletion::Of(0));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| set.begin_creation(Pick::Next, &stop));
            set.end_deletion(0, true);
            assert_eq!(waiting.join().unwrap(), Some(0));
        });
        // And who needs one to exist waits for the creation.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| set.hold_existing(Pick::Next, &stop));
            set.end_creation(0, true);
            assert_eq!(waiting.join().unwrap(), Some(0));
        });
    }

    #[test]
    fn a_reused_tree_keeps_its_files() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let mut set = set(dir.path(), 3, 100);
        set.spec.reuse = true;
        let stop = Stop::default();
        set.create(1, &stop).unwrap();
        let mut path = PathBuf::new();
        set.path(1, &mut path);
        let inode = path.metadata().unwrap().ino();
        fs::write(&path, vec![1; 5000]).unwrap();
        set.create(1, &stop).unwrap();
        assert_eq!((path.metadata().unwrap().ino(), path.metadata().unwrap().len()), (inode, 3000));
    }
}
