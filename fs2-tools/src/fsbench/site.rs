//! The directory a benchmark writes in, and nowhere else.
//!
//! I1: everything a workload makes lies below `DIR/fsbench.d`, which this program made itself, so that it was
//!     empty, and which holds a marker that says so.
//! I2: only a directory with such a marker is ever removed, and links out of it are not followed.

use std::fs::{self, File};
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::BenchError;
use super::rng::Rng;
use crate::output::quoted;

/// The directory's name in the one the user names.
pub const SITE_NAME: &str = "fsbench.d";

/// The marker's name in it.
const MARKER_NAME: &str = "FSBENCH";

/// First word of every marker.
const MAGIC: &str = "fsbench made this directory and may remove it";

/// What the marker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marker {
    magic: String,
    /// The workload.
    pub workload: String,
    /// Its parameters.
    pub parameters: serde_json::Value,
    /// Its seed.
    pub seed: u64,
    /// The process that made it, or has taken it over since.
    pub pid: u32,
    /// When that process began, and in which boot: another that has its number later is not it.
    #[serde(default)]
    pub began: String,
    /// Whether all files are made and no pass has changed any.
    pub pristine: bool,
}

/// A directory of a benchmark's own. Removed on drop unless it is kept.
#[derive(Debug)]
pub struct Site {
    root: PathBuf,
    marker: Marker,
    keep: bool,
    gone: bool,
}

impl Site {
    /// Makes one in `dir`.
    ///
    /// # Errors
    /// Where there is one already, or the file system says no.
    pub fn create(
        dir: &Path,
        workload: &str,
        parameters: serde_json::Value,
        seed: u64,
    ) -> Result<Site, BenchError> {
        let root = dir.join(SITE_NAME);
        match fs::create_dir(&root) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Err(in_the_way(dir, &root)),
            Err(e) => return Err(BenchError::at(&root, "making it")(e)),
        }
        let marker = Marker {
            magic: MAGIC.into(),
            workload: workload.into(),
            parameters,
            seed,
            pid: std::process::id(),
            began: began(std::process::id()).unwrap_or_default(),
            pristine: false,
        };
        let site = Site { root, marker, keep: false, gone: false };
        if let Err(e) = site.write_marker() {
            // Without its marker it would not be removed; nothing else is in it yet.
            let _ = fs::remove_file(site.root.join(MARKER_NAME));
            let _ = fs::remove_dir(&site.root);
            let mut site = site;
            site.gone = true;
            return Err(e);
        }
        Ok(site)
    }

    /// Takes over what an earlier process prepared with `--keep` and no pass has changed.
    ///
    /// # Errors
    /// Where there is none, one of another workload, other parameters or another seed, or one that a process is at work in.
    pub fn reuse(
        dir: &Path,
        workload: &str,
        parameters: &serde_json::Value,
        seed: u64,
    ) -> Result<Site, BenchError> {
        let root = dir.join(SITE_NAME);
        if root.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            let what =
                format!("{}: nothing is there to go on with; first run --runs 0 --keep", root.display());
            return Err(BenchError::Refused(what));
        }
        let marker = read_marker(&root)?;
        if is_in_use(&marker) {
            return Err(in_the_way(dir, &root));
        }
        let refused = |what: String| Err(BenchError::Refused(format!("{}: {what}", root.display())));
        if marker.workload != workload || marker.seed != seed || marker.parameters != *parameters {
            return refused(format!(
                "was made for {} with seed {} and {}; give the same, or remove it: fsbench clean {}",
                marker.workload,
                marker.seed,
                marker.parameters,
                quoted(dir)
            ));
        }
        if !marker.pristine {
            return refused(format!(
                "is not as it was prepared: a run has changed it, or the preparation did not end; remove it: fsbench clean {}",
                quoted(dir)
            ));
        }
        // From now on nobody else may remove it, or take it over.
        let pid = std::process::id();
        let marker = Marker { pid, began: began(pid).unwrap_or_default(), ..marker };
        let site = Site { root, marker, keep: true, gone: false };
        site.write_marker()?;
        Ok(site)
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.marker.seed
    }

    /// A stream of random numbers of this name.
    pub fn stream(&self, name: &str) -> Rng {
        Rng::stream(self.marker.seed, name)
    }

    /// Writes down whether the files are as they were prepared.
    ///
    /// # Errors
    /// The file system's.
    pub fn set_pristine(&mut self, pristine: bool) -> Result<(), BenchError> {
        if self.marker.pristine == pristine {
            return Ok(());
        }
        self.marker.pristine = pristine;
        self.write_marker()
    }

    fn write_marker(&self) -> Result<(), BenchError> {
        let path = self.root.join(MARKER_NAME);
        let text = serde_json::to_string_pretty(&self.marker).expect("plain fields always serialise");
        let write = || {
            // Where a link has taken its place, nothing is written through that.
            let mut options = File::options();
            options.write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW);
            let mut file = options.open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(BenchError::at(&path, "writing the marker"))
    }

    /// Leaves it when this value is dropped.
    pub fn keep(&mut self, keep: bool) {
        self.keep = keep;
    }

    /// Removes it and everything in it.
    ///
    /// # Errors
    /// What is left and why.
    pub fn remove(mut self) -> Result<(), BenchError> {
        self.gone = true;
        remove(&self.root)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.keep || self.gone {
            return;
        }
        if let Err(e) = remove(&self.root) {
            eprintln!("fsbench: {e}");
        }
    }
}

/// More than any marker has.
const MARKER_BYTES_MAX: u64 = 1 << 20;

fn read_marker(root: &Path) -> Result<Marker, BenchError> {
    let path = root.join(MARKER_NAME);
    // Keeps I2: a link to somebody's files is no directory of ours, whatever it says there.
    let is_dir = root.symlink_metadata().is_ok_and(|m| m.is_dir());
    if !is_dir {
        return Err(BenchError::Refused(format!("{}: no directory, so it is left alone", root.display())));
    }
    let read = || {
        let mut text = String::new();
        // Not through a link, and not from a pipe, which nobody may write to.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options().read(true).custom_flags(flags).open(&path)?;
        file.take(MARKER_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    };
    let text = read().map_err(BenchError::at(&path, "reading the marker"))?;
    match serde_json::from_str::<Marker>(&text) {
        Ok(marker) if marker.magic == MAGIC => Ok(marker),
        _ => Err(BenchError::Refused(format!(
            "{}: not a marker of fsbench, so {} is left alone",
            path.display(),
            root.display()
        ))),
    }
}

/// Why a site cannot be made.
fn in_the_way(dir: &Path, root: &Path) -> BenchError {
    let what = match read_marker(root) {
        Ok(marker) if is_in_use(&marker) => {
            format!("process {} runs {} here; wait for it, or end it", marker.pid, marker.workload)
        }
        Ok(marker) => format!(
            "left by an earlier run of {}; `fsbench clean {}` removes it, --reuse goes on with what was prepared",
            marker.workload,
            quoted(dir)
        ),
        Err(_) => "is in the way and was not made by fsbench; move it, or give another directory".into(),
    };
    BenchError::Refused(format!("{}: {what}", root.display()))
}

/// Whether another process that lives has made it.
fn is_in_use(marker: &Marker) -> bool {
    marker.pid != std::process::id() && began(marker.pid).is_some_and(|now| now == marker.began)
}

/// In which boot, and how long after its beginning, a process began; `None` where there is none, or one that has ended and that nobody
/// has waited for, as below a container's first process.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Fields 3 and 22; the second is its name in brackets, and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ticks = fields.next().filter(|state| *state != "Z").and(fields.nth(18))?.to_owned();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{} {ticks}", boot.trim()))
}

fn remove(root: &Path) -> Result<(), BenchError> {
    // Somebody who has pressed Ctrl-C sees that it was noticed.
    let shown = std::io::stderr().is_terminal();
    if shown {
        let _ = write!(std::io::stderr(), "\r\x1b[Kcleaning up");
    }
    let done = remove_all(root);
    if shown {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    done
}

fn remove_all(root: &Path) -> Result<(), BenchError> {
    // Keeps I2. The marker goes last, so that what cannot be removed now can be later.
    for entry in fs::read_dir(root).map_err(BenchError::at(root, "cleaning up"))? {
        let path = entry.map_err(BenchError::at(root, "cleaning up"))?.path();
        if path.file_name().is_some_and(|n| n == MARKER_NAME) {
            continue;
        }
        // `is_dir` of the entry itself: a link to a directory is a link.
        let is_dir = path.symlink_metadata().is_ok_and(|m| m.is_dir());
        let done = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        done.map_err(BenchError::at(&path, "cleaning up"))?;
    }
    let marker = root.join(MARKER_NAME);
    fs::remove_file(&marker).map_err(BenchError::at(&marker, "cleaning up"))?;
    fs::remove_dir(root).map_err(BenchError::at(root, "cleaning up"))
}

/// Removes what an earlier run has left in `dir`; whether there was anything.
///
/// # Errors
/// Where it is not fsbench's, is in use, or cannot be removed.
pub fn clean(dir: &Path) -> Result<bool, BenchError> {
    let root = dir.join(SITE_NAME);
    if root.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return Ok(false);
    }
    let marker = read_marker(&root)?;
    if is_in_use(&marker) {
        return Err(in_the_way(dir, &root));
    }
    remove(&root).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(dir: &Path) -> Site {
        Site::create(dir, "x", serde_json::json!({"a": 1}), 5).unwrap()
    }

    #[test]
    fn it_goes_with_the_value_and_takes_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine"), b"stays").unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        fs::write(dir.path().join("target/file"), b"stays").unwrap();
        let site = make(dir.path());
        fs::create_dir_all(site.path("a/b")).unwrap();
        fs::write(site.path("a/b/c"), b"goes").unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), site.path("link")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), site.path("a/link")).unwrap();
        drop(site);
        assert!(!dir.path().join(SITE_NAME).exists());
        assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"stays");
        assert_eq!(fs::read(dir.path().join("target/file")).unwrap(), b"stays");
    }

    #[test]
    fn it_goes_with_a_panic_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let ended = std::panic::catch_unwind(move || {
            let site = make(&path);
            fs::write(site.path("c"), b"goes").unwrap();
            std::panic::resume_unwind(Box::new("planted"));
        });
        assert!(ended.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join(SITE_NAME);
        assert!(!clean(dir.path()).unwrap());
        fs::create_dir(&root).unwrap();
        for marker in [None, Some("{}"), Some("text")] {
            if let Some(text) = marker {
                fs::write(root.join(MARKER_NAME), text).unwrap();
            }
            assert!(clean(dir.path()).is_err());
            let e = Site::create(dir.path(), "x", serde_json::Value::Null, 1).unwrap_err();
            assert!(e.to_string().contains("not made by fsbench"), "{e}");
        }
        assert!(root.exists());
    }

    #[test]
    fn what_was_prepared_is_taken_over_once() {
        let dir = tempfile::tempdir().unwrap();
        let none = Site::reuse(dir.path(), "x", &serde_json::Value::Null, 5).unwrap_err().to_string();
        assert!(none.contains("nothing is there to go on with; first run --runs 0 --keep"), "{none}");
        let mut site = make(dir.path());
        site.keep(true);
        drop(site);
        let parameters = serde_json::json!({"a": 1});
        let reuse = |parameters: &serde_json::Value, seed| Site::reuse(dir.path(), "x", parameters, seed);
        assert!(reuse(&parameters, 5).unwrap_err().to_string().contains("not as it was prepared"));
        let again = Site::create(dir.path(), "x", serde_json::Value::Null, 1).unwrap_err();
        assert!(again.to_string().contains("fsbench clean"), "{again}");
        assert!(clean(dir.path()).unwrap());

        let mut site = make(dir.path());
        site.set_pristine(true).unwrap();
        site.keep(true);
        drop(site);
        assert!(reuse(&parameters, 6).unwrap_err().to_string().contains("seed 5"));
        assert!(reuse(&serde_json::json!({"a": 2}), 5).is_err());
        let mut site = reuse(&parameters, 5).unwrap();
        site.set_pristine(false).unwrap();
        drop(site);
        assert!(reuse(&parameters, 5).is_err());
        assert!(clean(dir.path()).unwrap());
    }

    #[test]
    fn links_in_its_place_are_left_alone() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Somebody's own site, kept, with a link to it from a place that others can write to.
        let mut kept = make(other.path());
        fs::write(kept.path("precious"), b"stays").unwrap();
        kept.keep(true);
        drop(kept);
        let root = dir.path().join(SITE_NAME);
        std::os::unix::fs::symlink(other.path().join(SITE_NAME), &root).unwrap();
        assert!(clean(dir.path()).unwrap_err().to_string().contains("no directory"));
        let parameters = serde_json::json!({"a": 1});
        assert!(Site::reuse(dir.path(), "x", &parameters, 5).is_err());
        assert!(Site::create(dir.path(), "x", parameters, 5).is_err());
        assert_eq!(fs::read(other.path().join(SITE_NAME).join("precious")).unwrap(), b"stays");
        // A marker that is a link is neither believed nor written through; nor is one that is a pipe waited for.
        fs::remove_file(&root).unwrap();
        let site = make(dir.path());
        let marker = site.path(MARKER_NAME);
        let target = dir.path().join("target");
        fs::rename(&marker, &target).unwrap();
        let before = fs::read(&target).unwrap();
        std::os::unix::fs::symlink(&target, &marker).unwrap();
        let mut site = site;
        assert!(site.set_pristine(true).is_err());
        assert!(clean(dir.path()).is_err());
        assert_eq!(fs::read(&target).unwrap(), before);
        fs::remove_file(&marker).unwrap();
        nix::unistd::mkfifo(&marker, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(clean(dir.path()).is_err());
        drop(site);
        assert_eq!(fs::read(&target).unwrap(), before);
        assert!(!root.exists());
    }

    /// Where nobody waits for it, who was killed was told of as running for good.
    #[test]
    fn a_process_that_has_ended_and_is_not_waited_for_keeps_nothing() {
        use nix::sys::wait::{Id, WaitPidFlag, waitid};
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert!(began(std::process::id()).is_some());
        assert_eq!(began(child.id()), None);
        child.wait().unwrap();
    }

    /// Found: `fsbench clean` removed the files below a run that had taken them over, and a second run took them over too.
    #[test]
    fn who_takes_it_over_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let parent = std::os::unix::process::parent_id();
        let mut site = make(dir.path());
        (site.marker.pid, site.marker.began) = (parent, began(parent).unwrap());
        site.set_pristine(true).unwrap();
        let reuse = || Site::reuse(dir.path(), "x", &serde_json::json!({"a": 1}), 5);
        let busy = reuse().unwrap_err().to_string();
        assert!(busy.contains(&format!("process {parent} runs x")), "{busy}");
        // One that has ended by now.
        site.marker.began = "then".into();
        site.write_marker().unwrap();
        site.keep(true);
        drop(site);
        let taken = reuse().unwrap();
        let marker = read_marker(taken.root()).unwrap();
        assert_eq!((marker.pid, Some(marker.began)), (std::process::id(), began(std::process::id())));
    }

    #[test]
    fn a_number_that_another_process_has_now_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut site = make(dir.path());
        site.keep(true);
        // One that lives as long as this test, and is another: whoever started it.
        let parent = std::os::unix::process::parent_id();
        site.marker.pid = parent;
        site.marker.began = began(parent).unwrap();
        site.write_marker().unwrap();
        let busy = clean(dir.path()).unwrap_err().to_string();
        assert!(busy.contains(&format!("process {parent} runs x")), "{busy}");
        site.marker.began = format!("{}0", began(parent).unwrap());
        site.write_marker().unwrap();
        drop(site);
        assert!(clean(dir.path()).unwrap());
    }
}
