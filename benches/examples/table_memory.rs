//! What a replica takes in memory: resident bytes by which a table of so many replicas makes the process larger.
//!
//! `cargo run --release -p fs2-benches --example table_memory`
#![allow(missing_docs)]

use fs2_block::BlockNo;
use fs2_table::{Replica, ReplicaTable, Trust};

/// Resident bytes of this process that are its own.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux says so");
    let pages: Vec<u64> = statm.split(' ').filter_map(|n| n.trim().parse().ok()).collect();
    (pages[1] - pages[2]) * 4096
}

/// Replicas in runs of `run`, originals and copies scattered by runs.
fn table(n: u32, run: u32) -> ReplicaTable {
    // Scattered entries leave pages half empty.
    let mut t = ReplicaTable::new(3 * n as usize, 1);
    // Odd, so that each run is drawn once: places are a power of two.
    let places = (n / run).next_power_of_two();
    let place = |i: u32, by: u32| (i / run).wrapping_mul(by) % places * (run + 1) + i % run;
    for i in 0..n {
        let (original, replica) = (1 + place(i, 0x9e37_79b1), (1 << 31) + place(i, 0x85eb_ca6b));
        let (original, replica) = (BlockNo(original), BlockNo(replica));
        t.insert(Replica { original, replica, hash: u64::from(i), trust: Trust::Verified })
            .expect("there is room");
    }
    t
}

fn main() {
    if std::env::args().nth(1).is_none() {
        println!("{:>10}  {:>5}  {:>14}  {:>9}", "replicas", "runs", "resident MiB", "bytes each");
    }
    for run in [1, 4, 32] {
        for n in [1_000_000, 10_000_000] {
            // A process of its own: what another table left would be taken again.
            if let Some(child) = std::env::args().nth(1) {
                if child == format!("{n}/{run}") {
                    let before = resident();
                    let t = table(n, run);
                    let taken = resident() - before;
                    println!(
                        "{n:>10}  {run:>5}  {:>14.1}  {:>9.1}",
                        taken as f64 / f64::from(1 << 20),
                        taken as f64 / t.len() as f64
                    );
                }
                continue;
            }
            let own = std::env::current_exe().expect("it runs");
            std::process::Command::new(own).arg(format!("{n}/{run}")).status().map(|_| ()).expect("it runs");
        }
    }
}
