//! Every place where foreign bytes come in, with the seeds in `fuzz/seeds` (crashers found among them)
//! and with bytes a little beside them: no panic, and no more memory than the input's length allows.
//!
//! `FS2_FUZZ_RUNS=n` runs n times as many, `FS2_FUZZ_SEED=n` others. What is counted is what Rust's
//! allocator hands out on the thread that runs; zstd's own buffers are not.

mod counting;

use std::path::Path;

use counting::{HAS, MOST};
use fs2_fuzz::{Rng, TARGETS, Target, mutate};

/// Runs `f`; the most heap it had beyond what there was.
fn peak(f: impl FnOnce()) -> usize {
    let before = HAS.get();
    MOST.set(before);
    f();
    (MOST.get() - before).max(0) as usize
}

/// Longest input, in bytes: as `fuzz/smoke.sh` has it.
const LEN_MAX: usize = 65_536;
/// Runs of a target whose cost is 1.
const RUNS: usize = 20_000;

fn seeds(target: &Target) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seeds = Vec::new();
    let own = Path::new("fuzz/seeds").join(target.name);
    for dir in [Some(&*own), target.samples.map(Path::new)].into_iter().flatten() {
        let dir = root.join(dir);
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("an entry of the directory").path();
            if path.is_dir() {
                continue;
            }
            seeds.push((path.display().to_string(), std::fs::read(&path).expect("a seed can be read")));
        }
    }
    seeds.sort();
    seeds
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// Says which input it was, whatever ends the test.
struct Say<'a>(&'a Target, String, &'a [u8]);

impl Drop for Say<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.2.iter().map(|b| format!("{b:02x}")).collect();
            eprintln!("{}: {}: {} bytes: {hex}", self.0.name, self.1, self.2.len());
        }
    }
}

fn replay(name: &str) {
    let target = fs2_fuzz::find(name).expect("there is such a target");
    let seeds = seeds(target);
    assert!(seeds.len() >= 3, "{name} has seeds");
    // What is made once, and kept, is made now.
    (target.run)(&seeds[0].1);
    let mut most = (0, 0);
    let mut run = |what: String, bytes: &[u8]| {
        let _say = Say(target, what, bytes);
        let peak = peak(|| (target.run)(bytes));
        let bound = target.memory_bytes + target.memory_per_byte * bytes.len();
        assert!(peak <= bound, "{name}: {peak} bytes of heap at once, at most {bound} expected");
        most = most.max((peak, bytes.len()));
    };
    for (path, bytes) in &seeds {
        run(path.clone(), bytes);
    }
    let seed = number("FS2_FUZZ_SEED", 1);
    let runs = RUNS * number("FS2_FUZZ_RUNS", 1) as usize / target.cost as usize;
    let bytes: Vec<Vec<u8>> = seeds.into_iter().map(|s| s.1).collect();
    let mut rng = Rng::new(seed);
    for n in 0..runs {
        run(format!("seed {seed}, run {n}"), &mutate(&mut rng, &bytes, LEN_MAX));
    }
    println!(
        "{name}: {} seeds, {runs} runs; at most {} bytes of heap, for {} bytes",
        bytes.len(),
        most.0,
        most.1
    );
}

#[test]
fn ext2_image() {
    replay("ext2_image");
}

#[test]
fn wml_script() {
    replay("wml_script");
}

#[test]
fn table_bytes() {
    replay("table_bytes");
}

#[test]
fn nbd_bytes() {
    replay("nbd_bytes");
}

#[test]
fn fuse_requests() {
    replay("fuse_requests");
}

#[test]
fn control_frames() {
    replay("control_frames");
}

#[test]
fn metrics_request() {
    replay("metrics_request");
}

#[test]
fn trace_bytes() {
    replay("trace_bytes");
}

#[test]
fn engine_events() {
    replay("engine_events");
}

#[test]
fn disksim_specs() {
    replay("disksim_specs");
}

#[test]
fn hand_over() {
    replay("hand_over");
}

#[test]
fn every_target_is_replayed_and_has_a_binary() {
    let here = include_str!("foreign_bytes.rs");
    let cargo = include_str!("../../fuzz/Cargo.toml");
    for target in TARGETS {
        assert!(here.contains(&format!("replay({:?})", target.name)), "{} is not replayed", target.name);
        assert!(cargo.contains(&format!("name = {:?}", target.name)), "{} has no binary", target.name);
    }
}

/// The counter counts: what a target may have is compared with something.
#[test]
fn the_counter_counts() {
    let most = peak(|| {
        let a = vec![1u8; 1 << 20];
        drop(a);
        let mut b = vec![2u8; 100];
        b.reserve_exact(1 << 19);
        drop(b);
    });
    assert!((1 << 20..(1 << 20) + 4096).contains(&most), "{most}");
}
