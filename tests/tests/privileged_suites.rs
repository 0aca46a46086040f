//! Foreign suites on a mounted volume whose policy copies, moves and drops as much as it can. Beside each runs
//! a reader that keeps the page cache from hiding the volume. A suite proves something only if much happened
//! to replicas meanwhile: each test ends with at least [`MUCH`] copies written, invalidated and reclaimed.
//!
//! `FS2_FSX_SEEDS` (such as `7,8,9`; one by default), `FS2_FSX_OPS` and `FS2_STRESS_TIMES` make them longer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fs2_tests::{
    KERNEL, Mounted, Need, Rng, Scratch, Tree, e2fsck_clean, loops_below, mke2fs, mounts_below, needs,
    run_within, tool,
};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// Of copies written, invalidated and reclaimed, what a test must end with.
const MUCH: u64 = 1000;

/// A suite may run this long; a guard against hangs.
const PATIENCE: Duration = Duration::from_secs(1800);

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
        nix::unistd::sync();
        Stir { root, files, rng }
    }

    /// Reads or writes one file, from the volume and to it; `beside` is dropped from the page cache too.
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
        if let Some(file) = beside.and_then(|p| File::open(p).ok()) {
            forget(&file);
        }
    }
}

/// Runs `suite` in a directory of a volume with the torture policy.
fn under_torture(paranoid: bool, suite: impl FnOnce(&Path)) {
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 512 << 20, &["-t", "ext2", "-b", "4096", "-m", "0"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mut args = vec!["--policy", "torture", "--require-active"];
    args.extend(paranoid.then_some("--paranoid"));
    let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &args);
    let work = mounted.dir().join("work");
    fs::create_dir(&work).unwrap();
    let mut stir = Stir::new(mounted.dir().join("stir"), 1);
    let stop = AtomicBool::new(false);
    /// Set on drop, so that a suite that fails ends the thread beside it.
    struct Set<'a>(&'a AtomicBool);
    impl Drop for Set<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let beside = work.join("fsx");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                stir.once(Some(&beside));
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
    for counter in ["hash_mismatches", "replica_errors", "table_errors"] {
        assert_eq!(status[counter], 0, "{counter} in {status}");
    }
    assert!(status["reads_from_replica"].as_u64() > Some(100), "{status}");
    assert_eq!(status["liveness"], "active");
    mounted.umount().ended(0);
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
    e2fsck_clean(&image);
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|v| !v.is_empty()).unwrap_or_else(|| default.into())
}

#[test]
fn fsx() {
    if !needs(KERNEL) || !needs(&[Need::Program("fsx")]) {
        return;
    }
    let (seeds, ops) = (setting("FS2_FSX_SEEDS", "7"), setting("FS2_FSX_OPS", "20000"));
    for seed in seeds.split(',') {
        println!("fsx -S {seed} -N {ops}");
        under_torture(false, |work| {
            let config = work.join("fsx.toml");
            let weights = "close_open = 1\nread = 10\nwrite = 10\nmapread = 8\nmapwrite = 8\ninvalidate = 1\n\
                 truncate = 4\nfsync = 2\nfdatasync = 2\npunch_hole = 4\nsendfile = 1\nposix_fadvise = 6\n\
                 copy_file_range = 2\n";
            fs::write(&config, format!("flen = 2097152\n[opsize]\nmax = 65536\n[weights]\n{weights}"))
                .unwrap();
            let mut fsx = Command::new(tool("fsx").unwrap());
            fsx.args(["-q", "-N", &ops, "-S", seed, "-f"])
                .arg(&config)
                .arg("-P")
                .arg(work)
                .arg(work.join("fsx"));
            run_within(&mut fsx, PATIENCE).ended(0);
        });
    }
}

/// Of stress-ng's file-system class, those that make, move, fill, punch and remove files and verify them.
#[test]
fn stress_ng_file_system_class() {
    if !needs(KERNEL) || !needs(&[Need::Program("stress-ng")]) {
        return;
    }
    let mix = "copy-file 6, dentry 2000, dir 1000, fallocate 30, filename 500, fsize 40, hdd 400, \
               iomix 2000, link 5, rename 2000, symlink 2, sync-file 20, utime 2000, xattr 200";
    let times: u64 = setting("FS2_STRESS_TIMES", "1").parse().unwrap();
    under_torture(true, |work| {
        let mut stress = Command::new("stress-ng");
        stress.arg("--temp-path").arg(work).args(["--verify", "--metrics-brief", "--timeout", "900"]);
        stress.args(["--hdd-bytes", "16m", "--fallocate-bytes", "16m", "--iomix-bytes", "16m"]);
        stress.args(["--copy-file-bytes", "128m", "--sync-file-bytes", "8m"]);
        for (name, ops) in mix.split(", ").filter_map(|m| m.split_once(' ')) {
            let ops = (ops.parse::<u64>().unwrap() * times).to_string();
            stress.args([&format!("--{name}"), "1", &format!("--{name}-ops"), &ops]);
        }
        let done = run_within(&mut stress, PATIENCE).ended(0);
        println!("{}{}", done.out, done.err);
    });
}
