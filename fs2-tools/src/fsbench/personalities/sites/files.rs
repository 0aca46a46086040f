//! A site's documents: how large, how popular, and how one is served.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::super::files::{Files, Kind, Planned, number};
use crate::fsbench::measure::residency::residency;
use crate::fsbench::{BenchError, Rng};

/// Smallest document, bytes.
pub(super) const LEAST: u64 = 1024;
/// Bytes sent at a time.
pub(super) const SEND: usize = 128 << 10;
/// Directories of a site (a guess).
const DIRS: u64 = 20;

/// A site.
#[derive(Debug)]
pub(super) struct Documents {
    pub(super) files: Files,
    /// Places in `files`, most popular first.
    ranked: Vec<usize>,
}

/// Of a log-uniform law from [`LEAST`] to `largest`.
fn size(rng: &mut Rng, largest: u64) -> u64 {
    let (low, high) = ((LEAST as f64).ln(), (largest as f64).ln());
    ((low + rng.unit() * (high - low)).exp() as u64).clamp(LEAST, largest.max(LEAST))
}

impl Documents {
    /// `count` of them below `root`, the smallest the most popular but for a share `swaps` of them that have
    /// changed places. `site` sets its content apart from other sites'.
    pub(super) fn new(
        root: &str,
        site: u64,
        count: u64,
        largest: u64,
        swaps: f64,
        rng: &mut Rng,
    ) -> Documents {
        let mut files = Files::default();
        files.dir(root);
        for d in 0..DIRS {
            files.dir(format!("{root}/d{d:02}"));
        }
        for i in 0..count {
            let path = PathBuf::from(format!("{root}/d{:02}/f{i:05}.html", rng.below(DIRS)));
            files.file(path, size(rng, largest), number(Kind::First, site << 32 | i));
        }
        let mut ranked: Vec<usize> = (0..files.files.len()).collect();
        ranked.sort_by_key(|i| (files.files[*i].len, *i));
        // Two change places at a time.
        for _ in 0..(swaps * count as f64 / 2.0).round() as u64 {
            let (a, b) = (rng.index(ranked.len()), rng.index(ranked.len()));
            ranked.swap(a, b);
        }
        Documents { files, ranked }
    }

    /// The document of a rank, 0 the most popular.
    pub(super) fn of_rank(&self, rank: usize) -> &Planned {
        &self.files.files[self.ranked[rank]]
    }

    pub(super) fn count(&self) -> usize {
        self.ranked.len()
    }
}

/// Opens a document, looks whether all of it is in memory, and reads it whole: whether it was, and its bytes.
pub(super) fn serve(path: &Path, buffer: &mut [u8]) -> io::Result<(bool, u64)> {
    let mut file = File::open(path)?;
    let (resident, _) = residency(&file)?;
    let mut sent = 0;
    loop {
        match file.read(buffer)? {
            0 => return Ok((resident.cached == resident.pages, sent)),
            n => sent += n as u64,
        }
    }
}

/// Asks the kernel to drop a file's pages. Not every file system does.
pub(super) fn evict(path: &Path) -> Result<(), BenchError> {
    let ask = || {
        let file = File::open(path)?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).map_err(io::Error::from)
    };
    ask().map_err(BenchError::at(path, "dropping it from the page cache"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsbench::rng;

    #[test]
    fn sizes_are_log_uniform() {
        let mut rng = Rng::new(3);
        let largest = 4 << 20;
        let mut all: Vec<f64> = (0..20_000).map(|_| size(&mut rng, largest) as f64).collect();
        all.sort_by(f64::total_cmp);
        assert!(all[0] >= LEAST as f64 && *all.last().unwrap() <= largest as f64);
        let n = all.len() as f64;
        let furthest = |law: &dyn Fn(f64) -> f64| {
            all.iter().enumerate().map(|(i, x)| (law(*x) - i as f64 / n).abs()).fold(0.0, f64::max) * n.sqrt()
        };
        let span = (largest as f64 / LEAST as f64).ln();
        assert!(furthest(&|x| (x / LEAST as f64).ln() / span) < rng::KS_LIMIT);
        // A law of another span is told apart.
        assert!(furthest(&|x| (x / LEAST as f64).ln() / (0.97 * span)) > rng::KS_LIMIT);
    }

    #[test]
    fn popular_documents_are_small_but_for_the_swaps() {
        let ranks = |swaps| {
            let d = Documents::new("s", 0, 1000, 1 << 20, swaps, &mut Rng::new(4));
            let lens: Vec<u64> = (0..d.count()).map(|r| d.of_rank(r).len).collect();
            let mut sorted = lens.clone();
            sorted.sort_unstable();
            lens.iter().zip(&sorted).filter(|(a, b)| a != b).count()
        };
        assert_eq!(ranks(0.0), 0);
        // A tenth, less those that were drawn twice.
        assert!((80..=100).contains(&ranks(0.1)), "{}", ranks(0.1));
    }

    #[test]
    fn a_document_that_was_written_is_served_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 300_000]).unwrap();
        assert_eq!(serve(&path, &mut [0; 4096]).unwrap(), (true, 300_000));
        evict(&path).unwrap();
        assert_eq!(serve(&path, &mut [0; 4096]).unwrap().1, 300_000);
        assert!(evict(&dir.path().join("absent")).unwrap_err().to_string().contains("absent"));
    }
}
