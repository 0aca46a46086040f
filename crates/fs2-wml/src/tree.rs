//! The shape of a fileset: which directories, which files in them, how long each file is.
//!
//! The mean depth is ln(files + leaf directories) / ln(width). Each directory draws how deep it would be and how
//! wide, both by gamma laws; where it is as deep as that it holds files, otherwise directories. The root takes
//! directories until all files have a place. Names count from one, in eight digits.

use super::dist::{Dist, Law, Rng, gamma};
use super::model::{Amount, FilesetSpec};

/// Deeper than any draw that means something: ends what a width of one would not.
const DEPTH_MAX: u32 = 64;

/// A file or directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// The directory it is in.
    pub dir: u32,
    /// Its number in that.
    pub serial: u32,
}

/// A fileset's files and directories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// The first is the root; each stands behind its parent.
    pub dirs: Vec<Node>,
    /// Files, each with its directory.
    pub files: Vec<Node>,
    /// Their bytes.
    pub sizes: Vec<u64>,
    /// Leaf directories.
    pub leafdirs: Vec<Node>,
}

impl Tree {
    /// The tree a generator makes of it.
    pub fn grow(spec: &FilesetSpec, rng: &mut Rng) -> Self {
        let all = (spec.entries + spec.leafdirs) as f64;
        let depth = all.ln() / spec.dirwidth.mean().trunc().ln();
        let mut growth =
            Growth { spec, rng, depth: if depth.is_nan() { 0.0 } else { depth }, tree: Tree::default() };
        growth.dir(None, 1, 1);
        growth.tree
    }

    /// Bytes of the files, if all were there.
    pub fn bytes(&self) -> u64 {
        self.sizes.iter().fold(0, |sum, s| sum.saturating_add(*s))
    }
}

struct Growth<'a> {
    spec: &'a FilesetSpec,
    rng: &'a mut Rng,
    /// Mean depth.
    depth: f64,
    tree: Tree,
}

impl Growth<'_> {
    fn drawn(&mut self, mean: f64) -> f64 {
        let shape = self.spec.dirgamma as f64 / 1000.0;
        if shape > 0.0 { gamma(self.rng, shape, mean / shape) } else { mean }
    }

    fn dir(&mut self, parent: Option<u32>, serial: u32, depth: u32) {
        let at = self.tree.dirs.len() as u32;
        self.tree.dirs.push(Node { dir: parent.unwrap_or(0), serial });
        let deep = match &self.spec.dirdepth {
            Some(amount) => with_mean(amount, self.depth).draw_f64(self.rng),
            None => self.drawn(self.depth),
        };
        let deep = deep.trunc().max(1.0);
        let wide = match &self.spec.dirwidth {
            Amount::Drawn(dist) => dist.draw(self.rng),
            Amount::Fixed(mean) => self.drawn(*mean as f64),
        };
        let wide = if wide > 0.0 { wide } else { 1.0 };
        let is_leaf = parent.is_some() && (f64::from(depth) >= deep || depth >= DEPTH_MAX);
        // Counted on from files to leaf directories: a name means one thing.
        let mut serial = 1;
        for leafdirs in [false, true] {
            let mut n = 1;
            while self.wanted(leafdirs) && (parent.is_none() || f64::from(n) < wide + 1.0) {
                match (is_leaf, leafdirs) {
                    (false, _) => self.dir(Some(at), serial, depth + 1),
                    (true, true) => self.tree.leafdirs.push(Node { dir: at, serial }),
                    (true, false) => {
                        self.tree.files.push(Node { dir: at, serial });
                        let size = self.size();
                        self.tree.sizes.push(size);
                    }
                }
                serial += 1;
                n += 1;
            }
        }
    }

    fn wanted(&self, leafdirs: bool) -> bool {
        if leafdirs {
            (self.tree.leafdirs.len() as u64) < self.spec.leafdirs
        } else {
            (self.tree.files.len() as u64) < self.spec.entries
        }
    }

    fn size(&mut self) -> u64 {
        let shape = self.spec.size_gamma as f64 / 1000.0;
        match &self.spec.size {
            Amount::Fixed(mean) if shape > 0.0 => gamma(self.rng, shape, *mean as f64 / shape) as u64,
            amount => amount.draw(self.rng),
        }
    }
}

/// A random depth has the tree's own mean, whatever the variable says.
fn with_mean(amount: &Amount, to: f64) -> Amount {
    let Amount::Drawn(dist) = amount else { return amount.clone() };
    let mut dist = Dist::clone(dist);
    match &mut dist.law {
        Law::Uniform { mean, .. } | Law::Gamma { mean, .. } => *mean = to,
        _ => {}
    }
    Amount::Drawn(dist.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(entries: u64, leafdirs: u64, width: u64, dirgamma: u64) -> FilesetSpec {
        FilesetSpec {
            name: "f".into(),
            path: "/".into(),
            size: Amount::Fixed(16384),
            size_gamma: 0,
            entries,
            leafdirs,
            dirwidth: Amount::Fixed(width),
            dirgamma,
            dirdepth: None,
            prealloc_percent: 100,
            paralloc: false,
            reuse: false,
            trusttree: false,
            readonly: false,
            writeonly: false,
        }
    }

    fn depth(tree: &Tree, mut dir: u32) -> u32 {
        let mut depth = 0;
        while dir != 0 {
            dir = tree.dirs[dir as usize].dir;
            depth += 1;
        }
        depth
    }

    /// ln 8000 / ln 20 = 3: without gamma laws every directory of the second level holds twenty files.
    #[test]
    fn constant_shape() {
        let tree = Tree::grow(&spec(8000, 0, 20, 0), &mut Rng::new(1, 1));
        assert_eq!((tree.files.len(), tree.bytes()), (8000, 8000 * 16384));
        assert!(tree.files.iter().all(|f| depth(&tree, f.dir) == 2 && (1..=20).contains(&f.serial)));
        // 400 directories of files in 20, below the root.
        assert_eq!(tree.dirs.len(), 421);
    }

    /// A width as great as the number of files: one directory below the root.
    #[test]
    fn flat() {
        let tree = Tree::grow(&spec(1000, 0, 1000, 0), &mut Rng::new(1, 1));
        assert_eq!((tree.dirs.len(), tree.files.last().unwrap().serial), (2, 1000));
    }

    /// Widths are gamma laws of mean 20, cut up to whole numbers: 20.5 files in a directory on average, within a tenth
    /// for a thousand directories. And the same from the same seed.
    #[test]
    fn gamma_shape() {
        let tree = Tree::grow(&spec(20_000, 0, 20, 1500), &mut Rng::new(3, 1));
        let mut with_files: Vec<u32> = tree.files.iter().map(|f| f.dir).collect();
        with_files.dedup();
        let mean = 20_000.0 / with_files.len() as f64;
        assert!((mean / 20.5 - 1.0).abs() < 0.1, "{mean} files in a directory");
        assert!(tree.files.iter().all(|f| (1..=DEPTH_MAX).contains(&depth(&tree, f.dir))));
        assert_eq!(tree, Tree::grow(&spec(20_000, 0, 20, 1500), &mut Rng::new(3, 1)));
    }

    #[test]
    fn leaf_directories_and_odd_widths_end() {
        let tree = Tree::grow(&spec(0, 500, 100, 1500), &mut Rng::new(1, 1));
        assert_eq!((tree.files.len(), tree.leafdirs.len()), (0, 500));
        let tree = Tree::grow(&spec(30, 30, 5, 1500), &mut Rng::new(1, 1));
        let mut names: Vec<_> = tree.files.iter().chain(&tree.leafdirs).chain(&tree.dirs[1..]).collect();
        names.sort_by_key(|n| (n.dir, n.serial));
        names.dedup();
        assert_eq!(names.len(), 60 + tree.dirs.len() - 1, "each name once");
        for width in [0, 1, 2] {
            for gamma in [0, 1, 1500] {
                assert_eq!(Tree::grow(&spec(100, 0, width, gamma), &mut Rng::new(1, 1)).files.len(), 100);
            }
        }
    }
}
