//! Daemons killed with SIGKILL, one after the other, under reads, writes, flushes and trims over several
//! connections; afterwards each block must hold a count that its writer permits (see `Counters`), on the image
//! itself, through a daemon that knows no replicas, and through one that reads from them.
//!
//! Of ten kills, four come from within, in the middle of a copy (`fs2-killed`, which says so before it dies: they
//! are counted by what it said), five hit `fs2d` at a random moment, and one hits an `fs2d` that serves the volume
//! as the last kill left it: inactive, so that originals change under replicas nobody knows of.
//!
//! `FS2_KILLS` says how many (12 by default, 200 in `.ci/run`), `FS2_KILL_SEED` where the random numbers begin.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fs2_tests::{
    Ask, BLOCK, Counters, NbdClient, Need, Rng, Scratch, Served, debugfs, dump, e2fsck_clean, mke2fs, needs,
    setting, stamped,
};

/// Blocks whose writes are counted.
const COUNTED: usize = 1536;

/// Writing connections, each with blocks of its own, and reading ones.
const WRITERS: usize = 3;
const READERS: usize = 2;

/// A daemon that does not come or go within this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What happened in all.
#[derive(Debug, Default)]
struct Totals {
    kills: u64,
    in_copy: [u64; 3],
    inactive: u64,
    /// Blocks with a write under way at a kill, and how many of those writes had arrived.
    under_way: u64,
    arrived: u64,
    read_from_replica: u64,
}

/// One daemon's clients.
struct Load<'a> {
    socket: &'a Path,
    counters: &'a Counters,
    /// Free blocks that are written, read and trimmed too: replicas may be there first.
    free: &'a [u64],
    wrong: Mutex<Vec<String>>,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Whether it is how a connection to a killed daemon ends.
fn is_end(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

impl Load<'_> {
    /// Runs one client until its connection ends.
    fn until_the_end(&self, client: impl FnOnce(&Self, NbdClient) -> io::Result<()>) {
        let result = NbdClient::connect(self.socket).and_then(|c| client(self, c));
        if let Err(e) = result
            && !is_end(&e)
        {
            self.wrong(e.to_string());
        }
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// A run of up to four counted blocks that are neighbours, among `from..to`.
    fn run(&self, rng: &mut Rng, from: usize, to: usize) -> std::ops::Range<usize> {
        let first = from + rng.below((to - from) as u64) as usize;
        let len = 1 + rng.below(4) as usize;
        let next = |&i: &usize| self.counters.block(i) == self.counters.block(first) + (i - first) as u64;
        let end = (first..to.min(first + len)).take_while(next).last().unwrap_or(first) + 1;
        first..end
    }

    /// Writes what is its own, several requests at a time, none of them to the same block.
    fn write(&self, mut client: NbdClient, nth: usize, mut rng: Rng) -> io::Result<()> {
        let share = self.counters.len() / WRITERS;
        let (from, to) = (nth * share, (nth + 1) * share);
        loop {
            let mut batch: Vec<std::ops::Range<usize>> = Vec::new();
            for _ in 0..1 + rng.below(5) {
                let run = self.run(&mut rng, from, to);
                if batch.iter().all(|b| run.end <= b.start || b.end <= run.start) {
                    batch.push(run);
                }
            }
            let mut sent = std::collections::HashMap::new();
            for run in batch {
                let bytes: Vec<u8> = run.clone().flat_map(|i| self.counters.send(i)).collect();
                let offset = self.counters.block(run.start) * BLOCK as u64;
                let fua = rng.below(8) == 0;
                sent.insert(client.send(Ask::Write { fua }, offset, bytes.len(), &bytes)?, run);
            }
            while !sent.is_empty() {
                let (cookie, _) = client.receive()?;
                for i in sent.remove(&cookie).ok_or(io::ErrorKind::InvalidData)? {
                    self.counters.answered(i);
                }
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            if rng.below(12) == 0 {
                let before = self.counters.before_flush();
                client.call(Ask::Flush, 0, 0, &[])?;
                self.counters.flushed(&before);
            }
        }
    }

    fn read(&self, mut client: NbdClient, mut rng: Rng) -> io::Result<()> {
        loop {
            let run = self.run(&mut rng, 0, self.counters.len());
            let least: Vec<u64> = run.clone().map(|i| self.counters.least(i)).collect();
            let offset = self.counters.block(run.start) * BLOCK as u64;
            let bytes = client.call(Ask::Read, offset, run.len() * BLOCK, &[])?;
            for ((i, least), block) in run.zip(least).zip(bytes.chunks(BLOCK)) {
                if let Err(what) = self.counters.judge(i, least, block) {
                    self.wrong(what);
                }
            }
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes free blocks as a file system would, and gives them back.
    fn take(&self, mut client: NbdClient, mut rng: Rng) -> io::Result<()> {
        let mut holds = std::collections::HashMap::new();
        for count in 2.. {
            let block = self.free[rng.below(self.free.len() as u64) as usize];
            let offset = block * BLOCK as u64;
            match rng.below(4) {
                0 | 1 => {
                    let bytes = stamped(block, count);
                    client.call(Ask::Write { fua: false }, offset, BLOCK, &bytes)?;
                    holds.insert(block, bytes);
                }
                2 => {
                    client.call(Ask::Trim, offset, BLOCK, &[])?;
                    holds.remove(&block);
                }
                _ => {
                    let bytes = client.call(Ask::Read, offset, BLOCK, &[])?;
                    if holds.get(&block).is_some_and(|h| *h != bytes) {
                        self.wrong(format!("block {block}, written in this session, differs"));
                    }
                }
            }
        }
        Ok(())
    }

    /// All clients at once, until `end` has ended the daemon.
    fn run_until(&self, seed: u64, end: impl FnOnce(&Self)) {
        std::thread::scope(|scope| {
            for n in 0..WRITERS {
                let rng = Rng::new(seed * 16 + n as u64);
                scope.spawn(move || self.until_the_end(|l, c| l.write(c, n, rng)));
            }
            for n in 0..READERS {
                let rng = Rng::new(seed * 16 + 8 + n as u64);
                scope.spawn(move || self.until_the_end(|l, c| l.read(c, rng)));
            }
            scope.spawn(move || self.until_the_end(|l, c| l.take(c, Rng::new(seed * 16 + 15))));
            end(self);
        });
        self.assert_right();
    }

    #[track_caller]
    fn assert_right(&self) {
        let wrong = self.wrong.lock().unwrap().clone();
        assert!(wrong.is_empty(), "{} wrong answers, first {}", wrong.len(), wrong[0]);
    }
}

struct Rig<'a> {
    scratch: &'a Scratch,
    image: PathBuf,
    counters: Counters,
    free: Vec<u64>,
    rng: Rng,
    totals: Totals,
}

impl<'a> Rig<'a> {
    /// A volume with one file, whose blocks are counted.
    fn new(scratch: &'a Scratch, seed: u64) -> Rig<'a> {
        let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
        let name = |i: usize| (1 << 40) + i as u64;
        let bytes: Vec<u8> = (0..COUNTED).flat_map(|i| stamped(name(i), 0)).collect();
        fs::write(files.join("counted"), bytes).unwrap();
        mke2fs(&image, 48 << 20, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
        // Its blocks, without the indirect ones: those that hold what the file holds.
        let file = File::options().read(true).write(true).open(&image).unwrap();
        let listed = debugfs(&image, false, "blocks /counted").out;
        let mut block = vec![0; BLOCK];
        let blocks: Vec<u64> = listed
            .split_whitespace()
            .map(|b| b.parse().unwrap())
            .filter(|b| {
                file.read_exact_at(&mut block, b * BLOCK as u64).unwrap();
                fs2_tests::count_in(u64::from_le_bytes(block[..8].try_into().unwrap()), &block) == Ok(0)
            })
            .collect();
        assert_eq!(blocks.len(), COUNTED);
        for &b in &blocks {
            file.write_all_at(&stamped(b, 1), b * BLOCK as u64).unwrap();
        }
        scratch.run("mkfs2", [Path::new("--space"), Path::new("20%"), &image]).ended(0);
        // A third of what is free, in stretches, is taken and given back; the rest is for copies only.
        let free = dump(&image).free.into_iter().flatten().filter(|b| b / 16 % 3 == 0).collect();
        let (counters, rng) = (Counters::new(blocks), Rng::new(seed));
        Rig { scratch, image, counters, free, rng, totals: Totals::default() }
    }

    fn load<'b>(&'b self, socket: &'b Path) -> Load<'b> {
        let (counters, free) = (&self.counters, &self.free[..]);
        Load {
            socket,
            counters,
            free,
            wrong: Mutex::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// After a kill: what the image holds is legal, and from now on the truth.
    fn settle(&mut self) {
        self.totals.kills += 1;
        self.totals.under_way += self.counters.under_way() as u64;
        let file = File::open(&self.image).unwrap();
        let mut bytes = vec![0; BLOCK];
        for i in 0..self.counters.len() {
            file.read_exact_at(&mut bytes, self.counters.block(i) * BLOCK as u64).unwrap();
            let arrived = self.counters.settle(i, &bytes);
            let arrived =
                arrived.unwrap_or_else(|e| panic!("on the image after kill {}: {e}", self.totals.kills));
            self.totals.arrived += u64::from(arrived);
        }
    }

    /// Every counted block through a daemon is what it is on the image.
    fn compare(&self, socket: &Path, how: &str) {
        let mut client = NbdClient::connect(socket).unwrap();
        for i in 0..self.counters.len() {
            let offset = self.counters.block(i) * BLOCK as u64;
            let bytes = client.call(Ask::Read, offset, BLOCK, &[]).unwrap();
            if let Err(e) = self.counters.judge(i, self.counters.least(i), &bytes) {
                panic!("{how}, after kill {}: {e}", self.totals.kills);
            }
        }
    }

    /// The volume becomes active again.
    fn check(&self) {
        let checked = self.scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &self.image]);
        assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    }

    /// `fs2d`, killed at a random moment.
    fn kill_at_random(&mut self, active: bool) {
        let torture = ["--policy", "torture", "--space", "20%", "--host-reserve", "0%"];
        let args = if active { &[&torture[..], &["--require-active"]].concat() } else { &torture[..] };
        let served = Served::new(self.scratch, &self.image, args);
        let liveness = served.status()["liveness"].clone();
        assert_eq!(liveness == "active", active, "{liveness}");
        let socket = served.socket().to_owned();
        // Once to verify entries and have copies made, once more to read from them.
        self.compare(&socket, "at first");
        if active {
            self.compare(&socket, "from copies");
        }
        let status = served.status();
        for counter in ["hash_mismatches", "replica_errors", "table_errors"] {
            assert_eq!(status[counter], 0, "{counter} in {status}");
        }
        self.totals.read_from_replica += status["reads_from_replica"].as_u64().unwrap();
        self.totals.inactive += u64::from(!active);
        let (seed, wait) = (self.rng.next_u64() >> 8, self.rng.below(150));
        // It belongs to the closure: where that fails, the daemon must go, or its clients never end.
        self.load(&socket).run_until(seed, move |load| {
            std::thread::sleep(Duration::from_millis(wait));
            until("both kinds of requests", || {
                load.assert_right();
                load.reads.load(Ordering::Relaxed) > 3 && load.writes.load(Ordering::Relaxed) > 3
            });
            served.kill();
        });
    }

    /// A daemon that kills itself in the middle of a copy.
    fn kill_in_copy(&mut self, how: usize) {
        let (socket, report) = (self.scratch.path("killed.nbd"), self.scratch.path("killed.says"));
        for file in [&socket, &report] {
            let _ = fs::remove_file(file);
        }
        let after = 20 + self.rng.below(400);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fs2-killed"));
        command.arg(&self.image).arg(&socket).arg(&report).arg(after.to_string());
        command.arg(["before", "half", "after"][how]).stdin(Stdio::null());
        /// Ends the daemon of a test that fails.
        struct Child(std::process::Child);
        impl Drop for Child {
            fn drop(&mut self) {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
        }
        let mut child = Child(command.spawn().unwrap());
        until("the daemon serves", || {
            assert!(child.0.try_wait().unwrap().is_none(), "the daemon ended at once");
            NbdClient::connect(&socket).is_ok()
        });
        let seed = self.rng.next_u64() >> 8;
        // As above.
        self.load(&socket).run_until(seed, move |load| {
            let mut ended = None;
            until("the kill", || {
                load.assert_right();
                ended = child.0.try_wait().unwrap();
                ended.is_some()
            });
            assert_eq!(ended.unwrap().signal(), Some(9), "it did not kill itself");
        });
        let said = fs::read_to_string(&report).expect("what was in flight");
        assert!(said.contains("bytes of a copy at"), "{said}");
        self.totals.in_copy[how] += 1;
    }
}

#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_block_has_a_count_that_its_writer_permits_after_each_kill() {
    if !needs(&["mke2fs", "debugfs", "dumpe2fs", "e2fsck"].map(Need::Program)) {
        return;
    }
    let (kills, seed) = (setting("FS2_KILLS", 12), setting("FS2_KILL_SEED", 1));
    println!("FS2_KILLS={kills} FS2_KILL_SEED={seed}");
    let scratch = Scratch::new();
    let mut rig = Rig::new(&scratch, seed);
    for kill in 0..kills {
        let inactive = kill % 10 == 9;
        if !inactive && kill > 0 {
            rig.check();
        }
        match kill % 10 {
            n @ (0 | 2 | 4 | 6) => rig.kill_in_copy((kill / 10 + n / 2) as usize % 3),
            _ => rig.kill_at_random(!inactive),
        }
        rig.settle();
    }
    rig.check();
    let served = Served::new(&scratch, &rig.image, &["--require-active"]);
    rig.compare(served.socket(), "in the end");
    served.stop().ended(0);
    e2fsck_clean(&rig.image);
    let t = &rig.totals;
    let in_copy: u64 = t.in_copy.iter().sum();
    println!(
        "{} kills, {in_copy} of them in a copy (before its first byte {}, after half {}, after all {}), {} while \
         inactive; {} blocks had a write under way, {} of these had arrived; {} reads from replicas compared",
        t.kills,
        t.in_copy[0],
        t.in_copy[1],
        t.in_copy[2],
        t.inactive,
        t.under_way,
        t.arrived,
        t.read_from_replica
    );
    assert_eq!(t.kills, kills);
    assert!(in_copy >= kills / 4 && t.under_way >= kills, "{t:?}");
    assert!(kills < 10 || t.read_from_replica > 100 * kills, "{t:?}");
}
