//! Foreign suites on a mounted volume whose policy copies, moves and drops as much as it can. Beside each runs
//! a reader that keeps the page cache from hiding the volume. A suite proves something only if much happened
//! to replicas meanwhile: each test ends with at least [`MUCH`] copies written, invalidated and reclaimed,
//! with a clean file system, and with every file equal on the volume mounted without FS2.
//!
//! Suites run by time: `FS2_SUITE_SECONDS` is for all of them together (24 by default, 320 in `.ci/run`).
//! `FS2_SUITE_SEED` is the first seed (7 by default).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fs2_tests::{
    KERNEL, Mounted, Need, PlainMount, Rng, Scratch, Tree, e2fsck_clean, loops_below, mke2fs, mounts_below,
    needs, run, run_within, setting, tool, tree_digests,
};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// Of copies written, invalidated and reclaimed, what a test must end with.
const MUCH: u64 = 1000;

/// Suites that share the time.
const SUITES: u64 = 4;

/// A guard against hangs, on top of a suite's time.
const PATIENCE: Duration = Duration::from_secs(900);

/// How long each suite runs.
fn share() -> Duration {
    let seconds = setting("FS2_SUITE_SECONDS", 24);
    Duration::from_secs((seconds / SUITES).max(2))
}

fn forget(file: &File) {
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

/// A tree that is read from the volume, compared, and now and then written again.
struct Stir {
    root: PathBuf,
    files: Vec<(String, Vec<u8>)>,
    rng: Rng,
}

impl Stir {
    fn new(root: PathBuf, seed: u64) -> Stir {
        fs::create_dir(&root).unwrap();
        let mut rng = Rng::new(seed);
        let tree = Tree::make(&root, &[".".into()], 150, &mut rng);
        let files = tree.files().clone().into_iter().collect();
        nix::unistd::syncfs(File::open(&root).unwrap()).unwrap();
        Stir { root, files, rng }
    }

    /// Reads or writes one file, from the volume and to it; a file of `beside` is dropped from the page
    /// cache too.
    fn once(&mut self, beside: Option<&Path>) {
        let n = self.rng.below(self.files.len() as u64) as usize;
        let (name, bytes) = &mut self.files[n];
        let file = File::options().read(true).write(true).open(self.root.join(&*name)).unwrap();
        forget(&file);
        let mut there = vec![0; bytes.len()];
        file.read_exact_at(&mut there, 0).unwrap();
        assert!(there == *bytes, "{name} differs");
        if self.rng.below(6) == 0 {
            *bytes = self.rng.bytes(bytes.len());
            file.write_all_at(bytes, 0).unwrap();
            file.sync_all().unwrap();
        }
        let files: Vec<_> =
            beside.and_then(|d| fs::read_dir(d).ok()).into_iter().flatten().flatten().take(16).collect();
        if let Some(entry) = files.get(self.rng.below(files.len() as u64) as usize)
            && entry.file_type().is_ok_and(|t| t.is_file())
            && let Ok(file) = File::open(entry.path())
        {
            forget(&file);
        }
    }
}

/// Set on drop, so that a suite that fails ends the thread beside it.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `suite` in a directory of a volume with the torture policy.
fn under_torture(name: &str, paranoid: bool, suite: impl FnOnce(&Path)) {
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 512 << 20, &["-t", "ext2", "-b", "4096", "-m", "0"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mut args = vec!["--policy", "torture", "--require-active", "--host-reserve", "0%"];
    args.extend(paranoid.then_some("--paranoid"));
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &args);
    let work = mounted.dir().join("work");
    fs::create_dir(&work).unwrap();
    let mut stir = Stir::new(mounted.dir().join("stir"), 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                stir.once(Some(&work));
            }
        });
        let _stop = Set(&stop);
        suite(&work);
    });
    let counters = ["copies_written", "invalidated", "reclaimed"];
    let mut status = mounted.status();
    for _ in 0..100 {
        if counters.iter().all(|&c| status[c].as_u64() >= Some(MUCH)) {
            break;
        }
        (0..100).for_each(|_| stir.once(None));
        status = mounted.status();
    }
    for counter in counters {
        assert!(status[counter].as_u64() >= Some(MUCH), "{counter} in {status}");
    }
    // From the volume, so from replicas where there are any; then the same without FS2.
    mounted.cold();
    let files = tree_digests(mounted.dir());
    let status = mounted.status();
    for counter in ["hash_mismatches", "replica_errors", "table_errors"] {
        assert_eq!(status[counter], 0, "{counter} in {status}");
    }
    assert!(status["reads_from_replica"].as_u64() > Some(100), "{status}");
    assert_eq!(status["liveness"], "active");
    mounted.umount().ended(0);
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
    e2fsck_clean(&image);
    let plain = PlainMount::new(&image, &scratch.path("plain"), "ro");
    same_files(&files, &tree_digests(plain.dir()));
    let figures = ["copies_written", "invalidated", "reclaimed", "reads_from_replica", "discards"]
        .map(|c| format!("{c} {}", status[c]));
    println!("{name}: {}; {} files equal", figures.join(", "), files.len());
}

#[track_caller]
fn same_files(here: &BTreeMap<PathBuf, u64>, plain: &BTreeMap<PathBuf, u64>) {
    let names = |m: &BTreeMap<PathBuf, u64>| m.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(here), names(plain), "the names differ without FS2");
    for (name, digest) in here {
        assert!(plain[name] == *digest, "{} differs without FS2", name.display());
    }
}

/// Every operation fsx has, by seeds one after the other.
#[test]
fn fsx() {
    if !needs(KERNEL) || !needs(&[Need::Program("fsx")]) {
        return;
    }
    let (first, until) = (setting("FS2_SUITE_SEED", 7), Instant::now() + share());
    under_torture("fsx", false, |work| {
        let config = work.join("fsx.toml");
        let weights = "close_open = 1\nread = 10\nwrite = 10\nmapread = 8\nmapwrite = 8\ninvalidate = 1\n\
                 truncate = 4\nfsync = 2\nfdatasync = 2\npunch_hole = 4\nsendfile = 1\nposix_fadvise = 6\n\
                 copy_file_range = 2\nposix_fallocate = 2\n";
        fs::write(&config, format!("flen = 2097152\n[opsize]\nmax = 65536\n[weights]\n{weights}")).unwrap();
        let mut seed = first;
        while seed == first || Instant::now() < until {
            println!("fsx -S {seed} -N 1000");
            let mut fsx = Command::new(tool("fsx").unwrap());
            fsx.args(["-q", "-N", "1000", "-S", &seed.to_string(), "-f"]).arg(&config).arg("-P").arg(work);
            // Three files in turns: one's blocks become another's.
            run_within(fsx.arg(work.join(format!("fsx{}", seed % 3))), PATIENCE).ended(0);
            seed += 1;
        }
    });
}

/// Of stress-ng's class, what does not touch files, needs what ext2 lacks, or touches other file systems too
/// (fanotify marks every mount there is and holds files of them open, so that others cannot be unmounted).
const NOT_OURS: &str = "bind-mount binderfs dup eventfd fanotify io procfs verity";

/// stress-ng's file-system class, a few stressors at a time, each group equally long.
#[test]
fn stress_ng_file_system_class() {
    if !needs(KERNEL) || !needs(&[Need::Program("stress-ng")]) {
        return;
    }
    let said = run(Command::new("stress-ng").args(["--class", "filesystem?"]));
    let all = format!("{}{}", said.out, said.err);
    let names = all.split_once("stressors:").unwrap_or_else(|| panic!("{all}")).1;
    let names: Vec<&str> =
        names.split_whitespace().filter(|n| !NOT_OURS.split(' ').any(|not| not == *n)).collect();
    assert!(names.len() > 30 && names.contains(&"fpunch"), "{names:?}");
    // Four seconds a group at least; fpunch, for one, always runs to its timeout, whatever its count.
    let groups = (share().as_secs() / 4).clamp(1, names.len() as u64);
    let seconds = (share().as_secs() / groups).to_string();
    under_torture("stress-ng", true, |work| {
        for group in names.chunks(names.len().div_ceil(groups as usize)) {
            let mut stress = Command::new("stress-ng");
            // Some stressors leave files in the working directory, whatever the path for temporary ones.
            stress.current_dir(work).arg("--temp-path").arg(work).args(["--verify", "--timeout", &seconds]);
            stress.args(["--hdd-bytes", "16m", "--fallocate-bytes", "16m", "--iomix-bytes", "16m"]);
            stress.args(["--copy-file-bytes", "128m", "--sync-file-bytes", "8m", "--fiemap-bytes", "16m"]);
            for name in group {
                stress.args([&format!("--{name}"), "1"]);
            }
            let done = run_within(&mut stress, PATIENCE);
            println!("{}: {}", group.join(" "), done.code);
            done.ended(0);
        }
    });
}

/// dbench's file server mix by four clients, which write through every other time.
#[test]
fn dbench() {
    if !needs(KERNEL) || !needs(&[Need::Program("dbench")]) {
        return;
    }
    under_torture("dbench", false, |work| {
        let seconds = (share().as_secs() / 2).max(1).to_string();
        for how in [&[][..], &["-F", "-x"]] {
            let mut dbench = Command::new("dbench");
            dbench.args(["-D"]).arg(work).args(["-t", &seconds, "--skip-cleanup"]).args(how).arg("4");
            let said = run_within(&mut dbench, PATIENCE).ended(0).says("Throughput");
            println!("{}", said.out.lines().rfind(|l| l.starts_with("Throughput")).unwrap_or_default());
        }
    });
}

/// fio writes in several ways and reads back what it wrote, round after round over the same files.
#[test]
fn fio_verify() {
    if !needs(KERNEL) || !needs(&[Need::Program("fio")]) {
        return;
    }
    let (seed, until) = (setting("FS2_SUITE_SEED", 7), Instant::now() + share());
    let jobs = "[global]\nsize=12m\nverify_fatal=1\nverify_state_save=0\ndo_verify=1\nrandrepeat=1\nthread=1\n\
         [random]\nrw=randwrite\nbsrange=512-64k\nbs_unaligned=1\nverify=crc32c\nioengine=psync\nfsync=64\n\
         [mixed]\nrw=randrw\nbs=4k\nverify=md5\nverify_backlog=256\nioengine=psync\n\
         [direct]\nrw=randwrite\nbs=4k\ndirect=1\nioengine=libaio\niodepth=8\nverify=crc32c\nverify_async=1\n\
         [stream]\nrw=write\nbs=128k\ndirect=1\nioengine=libaio\niodepth=4\nverify=xxhash\n\
         [mapped]\nrw=randwrite\nbs=4k\nioengine=mmap\nverify=crc32c\n";
    under_torture("fio", false, |work| {
        let mut round = 0;
        while round == 0 || Instant::now() < until {
            let file = work.join("jobs.fio");
            fs::write(&file, format!("{jobs}\n")).unwrap();
            let mut fio = Command::new("fio");
            fio.current_dir(work)
                .arg("--directory")
                .arg(work)
                .arg(format!("--randseed={}", seed + round))
                .arg(&file);
            let said = run_within(&mut fio, PATIENCE).ended(0);
            assert!(said.out.matches("err= 0").count() >= 5, "{}{}", said.out, said.err);
            round += 1;
        }
        println!("fio: {round} rounds");
    });
}
