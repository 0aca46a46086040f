//! Random walks: fixed seeds, and what they must have seen.

use fs2_engine::Plant;
use fs2_sim::model::swarm::{Coverage, walk};

#[test]
fn walks_break_nothing_and_see_everything() {
    let mut coverage = Coverage::default();
    for seed in 1..=900 {
        let end = walk(seed, 300, &[]);
        coverage.add(&end.coverage);
        if let Some((v, path)) = end.violation {
            panic!("seed {seed}:\n{}\n => {v}", path.join("\n"));
        }
    }
    println!("{coverage}");
    for (what, least) in [
        ("copies published", 300),
        ("copies in vain", 20),
        ("reads from replicas", 200),
        ("reads of parts", 2_000),
        ("replicas invalidated", 200),
        ("replicas reclaimed", 50),
        ("entries verified", 50),
        ("entries refuted", 20),
        ("blocks freed by discards", 300),
        ("bitmap writes that waited (R3)", 1),
        ("table pages written", 300),
        ("freezes", 5),
        ("sessions with entries trusted at once", 10),
        ("walks in blocks of 4 KiB", 100),
        ("walks over several groups", 50),
        ("requests that waited in sockets", 1_000),
        ("requests read from dead connections", 20),
        ("connections lost", 100),
        ("file systems frozen", 50),
        ("remounts read-only", 20),
        ("checks of served volumes", 50),
        ("sessions that went on elsewhere", 50),
        ("kernels that died", 50),
        ("daemons killed", 300),
        ("losses of power", 300),
    ] {
        assert!(coverage.of(what) >= least, "{what}: {} times, not {least}", coverage.of(what));
    }
}

#[test]
fn one_seed_is_one_walk() {
    let (a, b) = (walk(7, 200, &[]), walk(7, 200, &[]));
    assert_eq!(a.coverage, b.coverage);
}

#[test]
fn walks_can_fail() {
    for plant in [Plant::WriteStaysFree, Plant::WriteKeepsOriginal, Plant::TableLossIgnored] {
        let caught = (0..400).any(|seed| walk(seed, 300, &[plant]).violation.is_some());
        assert!(caught, "{plant:?} was not noticed in 400 walks");
    }
}
