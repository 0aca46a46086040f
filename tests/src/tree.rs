//! A tree of files in memory, beside the one on the volume.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::digest;

/// Random numbers by seed: xorshift64*.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same seed, the same numbers.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next_u64() >> 16) % n.max(1)
    }

    /// So many random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The files that should be there, with their bytes.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Vec<u8>>,
    made: u64,
}

impl Tree {
    /// `per_dir` files of 2 to 48 KiB in each of `dirs`, made under `root`.
    ///
    /// # Panics
    /// Where the file system says no.
    pub fn make(root: &Path, dirs: &[String], per_dir: usize, rng: &mut Rng) -> Tree {
        let mut tree = Tree::default();
        for dir in dirs {
            for i in 0..per_dir {
                let len = 2048 + rng.below(46 << 10) as usize;
                let (name, bytes) = (format!("{dir}/{i:04}"), rng.bytes(len));
                fs::write(root.join(&name), &bytes).expect("a file of the tree");
                tree.files.insert(name, bytes);
            }
        }
        tree
    }

    /// Sixteen directories at the top of `root`, which the kernel spreads over the volume; the names of
    /// that in the lowest and that in the highest block group.
    ///
    /// # Panics
    /// Where the file system says no.
    pub fn far_apart(root: &Path) -> [String; 2] {
        use std::os::unix::fs::MetadataExt;
        let mut by_inode: Vec<(u64, String)> = ('a'..='p')
            .map(|c| {
                let dir = root.join(c.to_string());
                fs::create_dir(&dir).expect("a directory of the tree");
                (fs::metadata(&dir).expect("its inode").ino(), c.to_string())
            })
            .collect();
        by_inode.sort();
        [by_inode[0].1.clone(), by_inode[15].1.clone()]
    }

    /// Names and bytes.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }

    /// Reads every file, in the same order each time, and compares. In no order of the directories': files
    /// beside one another a drive reads ahead of, and none of them would be worth a copy.
    ///
    /// # Panics
    /// Where one differs or cannot be read.
    #[track_caller]
    pub fn compare(&self, root: &Path) {
        let mut order: Vec<_> = self.files.iter().collect();
        order.sort_by_key(|(name, _)| digest(name.as_bytes()));
        for (name, bytes) in order {
            compare_one(root, name, bytes);
        }
        let there = walk(root);
        assert_eq!(there, self.files.keys().cloned().collect::<Vec<_>>(), "the names differ");
    }

    /// One step of a random history, done to both. What the kernel was asked to do, for a log.
    ///
    /// # Panics
    /// Where the file system says no or a file differs.
    #[track_caller]
    pub fn step(&mut self, root: &Path, rng: &mut Rng) -> String {
        let kind = rng.below(16);
        let n = rng.below(self.files.len() as u64) as usize;
        let Some(name) = self.files.keys().nth(n).cloned() else { return self.create(root, rng) };
        let path = root.join(&name);
        let bytes = self.files.get_mut(&name).expect("it was found");
        match kind {
            0..=2 => self.create(root, rng),
            3..=4 => {
                fs::remove_file(&path).expect("removing");
                self.files.remove(&name);
                format!("remove {name}")
            }
            5 => {
                let len = rng.below(bytes.len() as u64 + 8192) as usize;
                File::options()
                    .write(true)
                    .open(&path)
                    .and_then(|f| f.set_len(len as u64))
                    .expect("truncating");
                bytes.resize(len, 0);
                format!("truncate {name} to {len}")
            }
            6..=8 => {
                let len = 1 + rng.below(30_000) as usize;
                let at = rng.below(bytes.len() as u64 + 1) as usize;
                let new = rng.bytes(len);
                let file = File::options().write(true).open(&path).expect("opening");
                file.write_all_at(&new, at as u64).expect("writing");
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].copy_from_slice(&new);
                format!("write {len} bytes at {at} of {name}")
            }
            9 => {
                let len = 1 + rng.below(10_000) as usize;
                let new = rng.bytes(len);
                let mut file = File::options().append(true).open(&path).expect("opening");
                file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(&new)).expect("appending");
                file.sync_all().expect("syncing");
                bytes.extend(&new);
                format!("append {} bytes to {name}", new.len())
            }
            10 => {
                let to = self.new_name(&name);
                fs::rename(&path, root.join(&to)).expect("renaming");
                let bytes = self.files.remove(&name).expect("it was found");
                self.files.insert(to.clone(), bytes);
                format!("rename {name} to {to}")
            }
            _ => {
                compare_one(root, &name, bytes);
                format!("compare {name}")
            }
        }
    }

    fn create(&mut self, root: &Path, rng: &mut Rng) -> String {
        let n = rng.below(self.files.len() as u64) as usize;
        let beside = self.files.keys().nth(n).cloned().unwrap_or_else(|| "x".into());
        let len = rng.below(60_000) as usize;
        let (name, bytes) = (self.new_name(&beside), rng.bytes(len));
        fs::write(root.join(&name), &bytes).expect("creating");
        let said = format!("create {name}, {} bytes", bytes.len());
        self.files.insert(name, bytes);
        said
    }

    fn new_name(&mut self, beside: &str) -> String {
        self.made += 1;
        match beside.rsplit_once('/') {
            Some((dir, _)) => format!("{dir}/new{}", self.made),
            None => format!("new{}", self.made),
        }
    }
}

#[track_caller]
fn compare_one(root: &Path, name: &str, bytes: &[u8]) {
    let there = fs::read(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    if there != bytes {
        let at = there.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(there.len().min(bytes.len()));
        panic!("{name} differs from byte {at} on; {} bytes there, {} expected", there.len(), bytes.len());
    }
}

/// Names of all files below `root`, in order.
fn walk(root: &Path) -> Vec<String> {
    fn into(root: &Path, dir: &Path, names: &mut Vec<String>) {
        for entry in fs::read_dir(dir).expect("a directory").map(|e| e.expect("its entry")) {
            let path = entry.path();
            if entry.file_type().expect("its kind").is_dir() {
                into(root, &path, names);
            } else if let Ok(name) = path.strip_prefix(root) {
                names.push(name.to_string_lossy().into_owned());
            }
        }
    }
    let mut names = Vec::new();
    into(root, root, &mut names);
    names.sort();
    names
}

/// What is below `root` by its path there: a digest of each file's or link's bytes, 0 for everything else.
///
/// # Panics
/// Where something cannot be read.
#[track_caller]
pub fn tree_digests(root: &Path) -> BTreeMap<PathBuf, u64> {
    fn into(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, u64>) {
        for entry in fs::read_dir(dir).expect("a directory").map(|e| e.expect("its entry")) {
            let path = entry.path();
            let kind = entry.file_type().expect("its kind");
            let digest = if kind.is_file() {
                crate::file_digest(&path)
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).expect("a link's target");
                crate::digest(target.as_os_str().as_encoded_bytes())
            } else {
                0
            };
            found.insert(path.strip_prefix(root).expect("it is below").to_owned(), digest);
            if kind.is_dir() {
                into(root, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    into(root, root, &mut found);
    found
}
