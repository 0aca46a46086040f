//! Files as they are planned, made and compared.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::super::{BenchError, Content, Control, Needs, Rng, Site, Verified};

/// A file that is to be: where below the site, how long, and the number of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) number: u64,
}

/// Files in the order in which they are made, with their directories.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub(super) dirs: Vec<PathBuf>,
    pub(super) files: Vec<Planned>,
}

impl Files {
    pub(super) fn dir(&mut self, path: impl Into<PathBuf>) {
        self.dirs.push(path.into());
    }

    pub(super) fn file(&mut self, path: impl Into<PathBuf>, len: u64, number: u64) {
        self.files.push(Planned { path: path.into(), len, number });
    }

    /// What they take.
    pub(super) fn needs(&self) -> Needs {
        Needs {
            bytes: self.files.iter().map(|f| f.len).sum(),
            inodes: (self.dirs.len() + self.files.len()) as u64,
            descriptors: 1,
            // A path of about a hundred bytes each, twice.
            memory: (self.dirs.len() + self.files.len()) as u64 * 256 + (1 << 20),
        }
    }

    /// Makes them all.
    pub(super) fn make(&self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let mut recorder = control.recorder(vec![super::super::OpClass::new("make")]);
        for dir in &self.dirs {
            let path = site.path(dir);
            fs::create_dir(&path).map_err(BenchError::at(&path, "making the directory"))?;
        }
        for planned in &self.files {
            control.check()?;
            let began = std::time::Instant::now();
            make(&site.path(&planned.path), Content::new(site.seed(), planned.number), planned.len)?;
            recorder.done(0, began, 0, planned.len);
        }
        Ok(())
    }

    /// Compares them all.
    pub(super) fn verify(
        &self,
        site: &Site,
        control: &Control,
        into: &mut Verified,
    ) -> Result<(), BenchError> {
        let mut recorder = control.recorder(vec![super::super::OpClass::new("compare")]);
        for planned in &self.files {
            control.check()?;
            let began = std::time::Instant::now();
            let content = Content::new(site.seed(), planned.number);
            into.compare(&site.path(&planned.path), content, planned.len);
            recorder.done(0, began, planned.len, 0);
        }
        Ok(())
    }
}

/// Makes a file that must not be there yet.
pub(super) fn make(path: &Path, content: Content, len: u64) -> Result<(), BenchError> {
    let write = || {
        let file = File::create_new(path)?;
        content.write(&file, 0, len)
    };
    write().map_err(BenchError::at(path, "making it"))
}

/// More MiB than any volume has; as bytes still a number.
pub(super) const AGEING_MIB_MAX: u64 = 1 << 30;

/// Ages the free space between two parts of a workload's files: files of 4 to 256 KiB in twenty
/// directories, `bytes` in all, of which half, drawn at random, are removed again. The rest stays.
pub(super) fn age(site: &Site, control: &Control, bytes: u64) -> Result<(), BenchError> {
    let mut rng = site.stream("ageing");
    let root = site.path("age");
    fs::create_dir(&root).map_err(BenchError::at(&root, "making the directory"))?;
    let dirs: Vec<PathBuf> = (0..20).map(|i| root.join(format!("d{i:02}"))).collect();
    for dir in &dirs {
        fs::create_dir(dir).map_err(BenchError::at(dir, "making the directory"))?;
    }
    let mut made = Vec::new();
    let mut total = 0;
    while total < bytes {
        control.check()?;
        let len = rng.between(1, 64) * 4096;
        let path = dirs[rng.index(dirs.len())].join(format!("f{:06}", made.len()));
        make(&path, Content::new(site.seed(), number(Kind::Age, made.len() as u64)), len)?;
        made.push(path);
        total += len;
    }
    rng.shuffle(&mut made);
    for path in &made[..made.len() / 2] {
        control.check()?;
        fs::remove_file(path).map_err(BenchError::at(path, "removing it"))?;
    }
    Ok(())
}

/// What `age` takes at most.
pub(super) fn age_needs(bytes: u64) -> Needs {
    Needs { bytes: bytes + (256 << 10), inodes: bytes / 4096 / 16 + 64, ..Needs::default() }
}

/// The sum of what two parts need; what no number holds is more than any machine has.
pub(super) fn both(a: Needs, b: Needs) -> Needs {
    Needs {
        bytes: a.bytes.saturating_add(b.bytes),
        inodes: a.inodes.saturating_add(b.inodes),
        descriptors: a.descriptors.saturating_add(b.descriptors),
        memory: a.memory.saturating_add(b.memory),
    }
}

/// Parts of a workload whose files have numbers of their own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Age,
    First,
    Second,
    Third,
}

/// The content's number of the `i`th file of a kind.
pub(super) fn number(kind: Kind, i: u64) -> u64 {
    ((kind as u64) << 48) | i
}

/// A tree of `n` directories below `root`, parents before children: each below an earlier one that is not
/// deeper than `depth`.
pub(super) fn tree(root: &str, n: u64, depth: usize, rng: &mut Rng) -> Vec<PathBuf> {
    let mut dirs = vec![(PathBuf::from(root), 0)];
    for i in 1..n {
        // Half of them close to the root, as in source trees (a guess).
        let reach = if rng.chance(0.5) { dirs.len().min(20) } else { dirs.len() };
        let (parent, level) = dirs[rng.index(reach)].clone();
        let (parent, level) = if level < depth { (parent, level) } else { (PathBuf::from(root), 0) };
        dirs.push((parent.join(format!("d{i:03}")), level + 1));
    }
    dirs.into_iter().map(|(path, _)| path).collect()
}
