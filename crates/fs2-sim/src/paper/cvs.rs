//! `cvs -q update`: the working tree's inodes and directories in turns with the repository's files.
//!
//! Per directory, as strace shows: the directory of the tree, its CVS/Root, Repository and Entries, the
//! directory of the repository, a lock made and removed there; per file, in the order of names: the inode in
//! the tree, then the file in the repository, which is mapped and read whole. The tree's data is not read.

use fs2_block::Nanos;

use super::draw::{Draw, ln};
use super::kernel::{Script, Step};
use super::params::{Cvs, Kernel};
use super::volume::{Directory, Stored, Volume};

/// A directory of the tree and the same in the repository.
#[derive(Clone, Debug)]
struct Both {
    tree: Directory,
    admin: Directory,
    /// CVS/Root, Repository, Entries.
    admin_files: Vec<Stored>,
    repository: Directory,
    /// In the order of names: in the tree, in the repository.
    files: Vec<(Stored, Stored)>,
}

/// Both trees.
#[derive(Clone, Debug)]
pub(super) struct Trees(Vec<Both>);

/// Bytes of a line in CVS/Entries. Measured on a few trees: names of 12 characters, a revision, a date.
const ENTRY_BYTES: u32 = 55;

fn blocks(bytes: f64) -> u32 {
    (bytes as u64).div_ceil(4096).max(1) as u32
}

/// A directory and the files in it.
type Filled = (Directory, Vec<Stored>);

/// Directories in the order of a walk, each below one before it: parents, and sizes of their files.
struct Shape {
    parents: Vec<usize>,
    bytes: Vec<Vec<f64>>,
}

impl Shape {
    fn draw(p: &Cvs, draw: &mut Draw) -> Shape {
        let mut parents: Vec<usize> = vec![0];
        for i in 1..p.directories as usize {
            // Down from the one before, or from one of those above it.
            let mut parent = i - 1;
            while parent > 0 && draw.chance(0.6) {
                parent = parents[parent];
            }
            parents.push(parent);
        }
        let weights: Vec<f64> = parents.iter().map(|_| draw.exponential(1.0)).collect();
        let (sum, mu) = (weights.iter().sum::<f64>(), ln(p.file_median_bytes));
        let bytes = weights.iter().map(|w| {
            let n = (f64::from(p.files) * w / sum + 0.5) as u32;
            (0..n).map(|_| draw.log_normal(mu, p.file_sigma).min(4e6)).collect()
        });
        Shape { bytes: bytes.collect(), parents }
    }
}

impl Trees {
    pub(super) fn make(volume: &mut Volume, p: &Cvs, seed: u64) -> Option<Trees> {
        let mut draw = Draw::new(seed, "cvs");
        let shape = Shape::draw(p, &mut draw);
        let mut repository: Vec<Filled> = Vec::new();
        for (i, bytes) in shape.bytes.iter().enumerate() {
            let mut directory = match i {
                0 => volume.directory_in(volume.group_at(p.repository_at))?,
                _ => volume.directory(&mut repository[shape.parents[i]].0)?,
            };
            let mut files = Vec::new();
            for b in bytes {
                files.push(volume.file_of(&mut directory, blocks(b + p.rcs_bytes), 1)?);
            }
            repository.push((directory, files));
        }
        // A commit writes the whole file anew, and then the old one goes.
        for n in 0..p.commits {
            for ((directory, files), bytes) in repository.iter_mut().zip(&shape.bytes) {
                for (file, b) in files.iter_mut().zip(bytes) {
                    if draw.chance(p.committed) {
                        let new = volume.file_of(directory, blocks(b + p.rcs_bytes), n)?;
                        volume.remove(&std::mem::replace(file, new));
                        directory.entries -= 1;
                    }
                }
            }
        }
        let mut out: Vec<Both> = Vec::new();
        for (i, (repository, files)) in repository.into_iter().enumerate() {
            let mut tree = match i {
                0 => volume.directory_in(volume.group_at(p.tree_at))?,
                _ => volume.directory(&mut out[shape.parents[i]].tree)?,
            };
            let mut admin = volume.directory(&mut tree)?;
            let mut admin_files = Vec::new();
            for bytes in [40, 60, ENTRY_BYTES * shape.bytes[i].len() as u32] {
                admin_files.push(volume.file_of(&mut admin, bytes.div_ceil(4096).max(1), 2)?);
            }
            let mut both = Vec::new();
            for (file, b) in files.into_iter().zip(&shape.bytes[i]) {
                both.push((volume.file_of(&mut tree, blocks(*b), 2)?, file));
            }
            out.push(Both { tree, admin, admin_files, repository, files: both });
        }
        Some(Trees(out))
    }

    /// The steps of the one process.
    pub(super) fn update(&self, volume: &Volume, kernel: &Kernel, p: &Cvs) -> Vec<Step> {
        let mut s = Script::new(volume, kernel);
        for both in &self.0 {
            s.list(&both.tree);
            s.list(&both.admin);
            for file in &both.admin_files {
                s.read_whole(file);
            }
            s.list(&both.repository);
            // The lock: an inode and a block taken and given back, two entries.
            for block in volume.group_metadata(both.repository.group) {
                s.change(block);
            }
            let directory = volume.inode_block(both.repository.stored.inode);
            s.change(directory);
            if let Some((start, _)) = both.repository.stored.runs.first() {
                s.change(*start);
            }
            for (tree, repository) in &both.files {
                s.stat(tree);
                s.read_whole(repository);
                s.think_ms(p.cpu_ms_per_file);
            }
        }
        s.steps
    }

    /// All extents of data, for digests and for copies by hand.
    pub(super) fn stored(&self) -> impl Iterator<Item = &Stored> {
        self.0.iter().flat_map(|b| {
            let own = [&b.tree.stored, &b.admin.stored, &b.repository.stored];
            own.into_iter().chain(&b.admin_files).chain(b.files.iter().flat_map(|(t, r)| [t, r]))
        })
    }
}

/// No limit: the process ends by itself.
pub(super) const UNTIL: Nanos = Nanos(u64::MAX / 4);
