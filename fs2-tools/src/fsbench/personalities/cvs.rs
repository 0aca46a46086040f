//! `cvs-update`: `cvs -q update` in a checkout of the Linux kernel (FS² paper, 1.1 and 4.4).
//!
//! With timestamps that match, cvs reads no working file: it reads each directory's CVS files, lists the
//! working directory and the repository's, locks the latter, and for each file looks at the working file's
//! inode and maps the `,v` file twice. So the disk goes to and fro between two trees.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::files::{AGEING_MIB_MAX, Files, Kind, age, age_needs, both, number, tree};
use super::mapping::Mapping;
use crate::fsbench::{
    BenchError, Control, Entry, Metric, Needs, OpClass, PassReport, Rng, Setup, Site, Verified, Workload,
};

pub(super) const ENTRY: Entry = Entry {
    name: "cvs-update",
    summary: "cvs -q update over a kernel tree: two trees read in turns",
    source: "FS2 1.1, 4.4",
    presets: &["ci", "paper"],
    make: |setup| Ok(Box::new(CvsUpdate::new(setup)?)),
};

/// File sizes: lognormal, as measured on a subset of Linux 6.12 (docs/fsbench.md).
const SIZE_MU: f64 = 8.459;
/// Its deviation.
const SIZE_SIGMA: f64 = 1.575;
/// Its largest file.
const SIZE_MAX: u64 = 1_490_000;
/// A `,v` file of one revision is longer than the file it holds by so much.
const RCS_BYTES: u64 = 670;
/// A line of CVS/Entries: name, revision, date.
const ENTRY_BYTES: u64 = 45;
/// CVS/Root and CVS/Repository: a path each.
const PATH_BYTES: u64 = 30;

parameters! {
    struct Parameters {
        /// Files in the tree.
        files: u64,
        /// Directories.
        dirs: u64,
        /// Files newer than CVS/Entries says: they and their `,v` files are read whole.
        touch: u64,
        /// Made between the repository and the working tree, and half of it removed, in MiB.
        ageing_mib: u64,
        /// cvs's own time for each file, in microseconds.
        cpu_us: u64,
    }
}

/// A directory with the files in it, by their place in the lists.
#[derive(Clone, Debug)]
struct Dir {
    work: PathBuf,
    repo: PathBuf,
    /// Name and length.
    files: Vec<(String, u64)>,
}

pub(super) struct CvsUpdate {
    parameters: Parameters,
    dirs: Vec<Dir>,
    repo: Files,
    work: Files,
    touched: Vec<PathBuf>,
}

/// A file's size.
fn size(rng: &mut Rng) -> u64 {
    (rng.lognormal(SIZE_MU, SIZE_SIGMA) as u64).clamp(1, SIZE_MAX)
}

impl CvsUpdate {
    fn new(setup: &Setup) -> Result<CvsUpdate, BenchError> {
        let p = match setup.preset.as_str() {
            // 17,916 files and 889 directories were measured. The paper's disk was idle 18 % of 33 s: 330 us a file.
            "paper" => Parameters { files: 17_916, dirs: 889, touch: 0, ageing_mib: 256, cpu_us: 330 },
            _ => Parameters { files: 2500, dirs: 150, touch: 0, ageing_mib: 32, cpu_us: 330 },
        };
        let p = Parameters {
            files: setup.scaled(p.files, 1),
            dirs: setup.scaled(p.dirs, 1),
            ageing_mib: setup.scaled(p.ageing_mib, 0),
            ..p
        };
        let p = setup.apply(p)?;
        if p.files == 0
            || p.dirs == 0
            || p.files > 10_000_000
            || p.dirs > p.files
            || p.ageing_mib > AGEING_MIB_MAX
        {
            return Err(BenchError::Usage(
                "cvs-update needs a file for each directory, 10,000,000 files at most, and at most 2^30 MiB of ageing".into(),
            ));
        }
        let mut rng = Rng::stream(setup.seed, "cvs-update tree");
        let paths = tree("", p.dirs, 6, &mut rng);
        // Directories differ much in how many files they hold.
        let weights: Vec<f64> = paths.iter().map(|_| rng.lognormal(0.0, 1.0)).collect();
        let mut counts = vec![1u64; paths.len()];
        let total: f64 = weights.iter().sum();
        let spare = p.files - p.dirs;
        for (count, weight) in counts.iter_mut().zip(&weights) {
            *count += (spare as f64 * weight / total) as u64;
        }
        // What rounding has left over.
        let made: u64 = counts.iter().sum();
        for i in 0..p.files.saturating_sub(made) as usize {
            let n = counts.len();
            counts[i % n] += 1;
        }
        let (mut repo, mut work, mut dirs) = (Files::default(), Files::default(), Vec::new());
        repo.dir("repo");
        work.dir("work");
        let mut i = 0;
        for (path, count) in paths.iter().zip(&counts) {
            let (in_repo, in_work) = (join("repo", path), join("work", path));
            if !path.as_os_str().is_empty() {
                repo.dir(&in_repo);
                work.dir(&in_work);
            }
            work.dir(in_work.join("CVS"));
            let mut files = Vec::new();
            for _ in 0..*count {
                let (name, len) = (format!("f{i:05}.c"), size(&mut rng));
                repo.file(in_repo.join(format!("{name},v")), len + RCS_BYTES, number(Kind::First, i));
                work.file(in_work.join(&name), len, number(Kind::Second, i));
                files.push((name, len));
                i += 1;
            }
            let admin = number(Kind::Third, 4 * dirs.len() as u64);
            for (k, (name, len)) in
                [("Root", PATH_BYTES), ("Repository", PATH_BYTES), ("Entries", ENTRY_BYTES * count)]
                    .iter()
                    .enumerate()
            {
                work.file(in_work.join("CVS").join(name), *len, admin + k as u64);
            }
            dirs.push(Dir { work: in_work, repo: in_repo, files });
        }
        // cvs goes down each directory before the next one beside it.
        dirs.sort_by(|a, b| a.work.cmp(&b.work));
        let mut all: Vec<PathBuf> =
            dirs.iter().flat_map(|d| d.files.iter().map(|(name, _)| d.work.join(name))).collect();
        Rng::stream(setup.seed, "cvs-update touch").shuffle(&mut all);
        all.truncate(p.touch as usize);
        Ok(CvsUpdate { parameters: p, dirs, repo, work, touched: all })
    }

    fn directory(
        &self,
        site: &Site,
        control: &Control,
        dir: &Dir,
        r: &mut Pass<'_>,
    ) -> Result<(), BenchError> {
        let (work, repo) = (site.path(&dir.work), site.path(&dir.repo));
        let admin = work.join("CVS");
        for name in ["Root", "Root", "Repository", "Entries"] {
            r.read_whole(ADMIN, &admin.join(name))?;
        }
        for name in ["Tag", "Entries.Log"] {
            r.probe(&admin.join(name))?;
        }
        r.list(&work)?;
        let lock = Lock::take(&repo, r)?;
        r.list(&repo)?;
        for (name, len) in &dir.files {
            if control.over() {
                break;
            }
            let path = work.join(name);
            let newer = r.check(&path)?;
            let rcs = repo.join(format!("{name},v"));
            // Once to see which revision is newest, once to see whether it differs.
            for _ in 0..2 {
                r.map(&rcs, len + RCS_BYTES)?;
            }
            if newer {
                r.read_whole(WHOLE, &rcs)?;
                r.read_whole(WHOLE, &path)?;
            }
            if self.parameters.cpu_us > 0 {
                std::thread::sleep(Duration::from_micros(self.parameters.cpu_us));
            }
        }
        lock.release(r)
    }
}

fn join(root: &str, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(root) } else { Path::new(root).join(path) }
}

const ADMIN: usize = 0;
const PROBE: usize = 1;
const LIST: usize = 2;
const LOCK: usize = 3;
const CHECK: usize = 4;
const MAP: usize = 5;
const WHOLE: usize = 6;

/// When all working files were last changed, as CVS/Entries says.
fn checked_out() -> SystemTime {
    // Linux 2.6.7: 2004-06-16.
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_087_344_000)
}

struct Pass<'a> {
    recorder: crate::fsbench::control::Recorder<'a>,
    buffer: Vec<u8>,
}

impl Pass<'_> {
    fn read_whole(&mut self, class: usize, path: &Path) -> Result<(), BenchError> {
        let began = Instant::now();
        let mut read = || -> io::Result<u64> {
            self.buffer.clear();
            Ok(File::open(path)?.read_to_end(&mut self.buffer)? as u64)
        };
        let n = read().map_err(BenchError::at(path, "reading it"))?;
        self.recorder.done(class, began, n, 0);
        Ok(())
    }

    /// Looks for a file that is not there.
    fn probe(&mut self, path: &Path) -> Result<(), BenchError> {
        let began = Instant::now();
        match path.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(BenchError::at(path, "looking for it")(e)),
            Ok(_) => return Err(BenchError::Failed(format!("{}: is not to be there", path.display()))),
        }
        self.recorder.done(PROBE, began, 0, 0);
        Ok(())
    }

    fn list(&mut self, path: &Path) -> Result<(), BenchError> {
        let began = Instant::now();
        for entry in fs::read_dir(path).map_err(BenchError::at(path, "listing it"))? {
            entry.map_err(BenchError::at(path, "listing it"))?;
        }
        self.recorder.done(LIST, began, 0, 0);
        Ok(())
    }

    /// stat and access of a working file; whether it is newer than checked out.
    fn check(&mut self, path: &Path) -> Result<bool, BenchError> {
        let began = Instant::now();
        let look = || {
            let changed = path.metadata()?.modified()?;
            nix::unistd::access(path, nix::unistd::AccessFlags::R_OK)?;
            Ok(changed > checked_out())
        };
        let newer = look().map_err(BenchError::at(path, "looking at it"))?;
        self.recorder.done(CHECK, began, 0, 0);
        Ok(newer)
    }

    /// Opens and maps a `,v` file and reads its header through the mapping.
    fn map(&mut self, path: &Path, len: u64) -> Result<(), BenchError> {
        let began = Instant::now();
        let map = || {
            let file = File::open(path)?;
            match Mapping::new(&file, len.min(file.metadata()?.len()))? {
                Some(mapping) => mapping.touch(0, 1),
                None => Ok(()),
            }
        };
        map().map_err(BenchError::at(path, "mapping it"))?;
        self.recorder.done(MAP, began, len.min(4096), 0);
        Ok(())
    }
}

/// cvs's read lock on a directory of the repository. Released on drop too, for what fails meanwhile.
struct Lock {
    file: Option<PathBuf>,
}

impl Lock {
    fn take(repo: &Path, r: &mut Pass<'_>) -> Result<Lock, BenchError> {
        let began = Instant::now();
        let master = repo.join("#cvs.lock");
        fs::create_dir(&master).map_err(BenchError::at(&master, "locking"))?;
        let path = repo.join(format!("#cvs.rfl.fsbench.{}", std::process::id()));
        let made = File::create_new(&path);
        fs::remove_dir(&master).map_err(BenchError::at(&master, "locking"))?;
        made.map_err(BenchError::at(&path, "locking"))?;
        r.recorder.done(LOCK, began, 0, 0);
        Ok(Lock { file: Some(path) })
    }

    fn release(mut self, r: &mut Pass<'_>) -> Result<(), BenchError> {
        let began = Instant::now();
        if let Some(path) = self.file.take() {
            fs::remove_file(&path).map_err(BenchError::at(&path, "unlocking"))?;
        }
        r.recorder.done(LOCK, began, 0, 0);
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            let _ = fs::remove_file(path);
        }
    }
}

impl Workload for CvsUpdate {
    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(&self.parameters).unwrap_or_default()
    }

    fn about(&self) -> &'static [(&'static str, &'static str)] {
        Parameters::ABOUT
    }

    fn needs(&self) -> Needs {
        let ageing = age_needs(self.parameters.ageing_mib << 20);
        both(both(self.repo.needs(), self.work.needs()), ageing)
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        self.repo.make(site, control)?;
        age(site, control, self.parameters.ageing_mib << 20)?;
        self.work.make(site, control)?;
        let touched: std::collections::BTreeSet<&PathBuf> = self.touched.iter().collect();
        for dir in &self.dirs {
            control.check()?;
            for (name, _) in &dir.files {
                let path = dir.work.join(name);
                let later = Duration::from_secs(if touched.contains(&path) { 60 } else { 0 });
                let path = site.path(path);
                let set = || File::options().append(true).open(&path)?.set_modified(checked_out() + later);
                set().map_err(BenchError::at(&path, "dating it"))?;
            }
        }
        Ok(())
    }

    fn reopen(&mut self, _site: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut classes: Vec<OpClass> =
            ["CVS files", "probes", "listings", "locks", "working files", "map ,v", "read whole"]
                .map(OpClass::new)
                .into();
        let recorder = control.recorder(std::mem::take(&mut classes));
        let mut pass = Pass { recorder, buffer: Vec::new() };
        let mut seen = 0;
        for dir in &self.dirs {
            if control.over() {
                break;
            }
            self.directory(site, control, dir, &mut pass)?;
            seen += 1;
        }
        let mut report = control.report(pass.recorder.into_classes());
        if seen < self.dirs.len() && control.limits().duration.is_none() && control.limits().ops.is_none() {
            report.short = Some(format!("{seen} of {} directories", self.dirs.len()));
        }
        report.metrics = vec![Metric::less("runtime", "s", report.elapsed.as_secs_f64())];
        Ok(report)
    }

    fn verify(&mut self, site: &Site, control: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        self.repo.verify(site, control, &mut verified)?;
        self.work.verify(site, control, &mut verified)?;
        for dir in &self.dirs {
            let path = site.path(&dir.repo);
            let entries = fs::read_dir(&path).map_err(BenchError::at(&path, "listing it"))?;
            let left = entries.flatten().find(|e| e.file_name().as_encoded_bytes().starts_with(b"#cvs"));
            if let Some(left) = left {
                verified.note(&left.path(), 0, Some("a lock was left".into()));
            }
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(scale: f64, set: &[(&str, &str)]) -> CvsUpdate {
        let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        CvsUpdate::new(&Setup { preset: "paper".into(), seed: 1, scale, set, passes: 1 }).unwrap()
    }

    #[test]
    fn the_papers_tree_has_the_sizes_that_were_measured() {
        let cvs = workload(1.0, &[]);
        let mut sizes: Vec<u64> = cvs.dirs.iter().flat_map(|d| d.files.iter().map(|f| f.1)).collect();
        assert_eq!((sizes.len(), cvs.dirs.len()), (17_916, 889));
        let total: u64 = sizes.iter().sum();
        assert!((235_000_000..300_000_000).contains(&total), "{total} bytes; 251 MB were measured");
        sizes.sort_unstable();
        // Kolmogorov and Smirnov against the lognormal, below its cap.
        let n = sizes.len() as f64;
        let furthest = sizes.iter().enumerate().filter(|(_, s)| **s < SIZE_MAX).map(|(i, s)| {
            let z = ((*s as f64 + 0.5).ln() - SIZE_MU) / SIZE_SIGMA;
            (crate::fsbench::rng::normal_cdf(z) - (i as f64 + 0.5) / n).abs()
        });
        let furthest = furthest.fold(0.0, f64::max);
        // 1.63 / sqrt(n): passed by 99 of 100 seeds.
        assert!(furthest < 1.63 / n.sqrt(), "{furthest}");
    }

    #[test]
    fn the_same_seed_plans_the_same_tree() {
        let (a, b) = (workload(0.05, &[]), workload(0.05, &[]));
        assert_eq!(a.work.files, b.work.files);
        assert_eq!(a.repo.dirs, b.repo.dirs);
        assert_eq!(workload(0.05, &[("touch", "7")]).touched.len(), 7);
    }

    #[test]
    fn parameters_that_make_no_tree_are_refused() {
        let make = |set: &[(&str, &str)]| {
            let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            CvsUpdate::new(&Setup { preset: "ci".into(), seed: 1, scale: 1.0, set, passes: 1 }).err()
        };
        assert!(make(&[("files", "0")]).is_some());
        assert!(make(&[("files", "10"), ("dirs", "11")]).is_some());
        assert!(make(&[("files", "many")]).unwrap().to_string().contains("many"));
        assert!(make(&[("files", "-5")]).is_some());
        assert!(make(&[("files", "10"), ("dirs", "10")]).is_none());
    }
}
