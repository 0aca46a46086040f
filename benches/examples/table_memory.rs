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

/// In blocks of 4 KiB.
const HALF_A_TIB: u32 = 1 << 27;

/// Replicas in runs of `run`, originals and copies scattered by runs, over as little as that takes or over 1 TiB.
fn table(n: u32, run: u32, sparse: bool) -> ReplicaTable {
    // Scattered entries leave pages half empty.
    let mut t = ReplicaTable::new(3 * n as usize, 1);
    // Odd, so that each run is drawn once: places are a power of two.
    let places = (n / run).next_power_of_two();
    let apart = if sparse { (HALF_A_TIB - 1) / places } else { run + 1 };
    let place = |i: u32, by: u32| (i / run).wrapping_mul(by) % places * apart + i % run;
    for i in 0..n {
        let (original, replica) = (1 + place(i, 0x9e37_79b1), HALF_A_TIB + place(i, 0x85eb_ca6b));
        let (original, replica) = (BlockNo(original), BlockNo(replica));
        t.insert(Replica { original, replica, hash: u64::from(i), trust: Trust::Verified })
            .expect("there is room");
    }
    t
}

fn main() {
    let child = std::env::args().nth(1);
    if child.is_none() {
        println!(
            "{:>10}  {:>5}  {:>6}  {:>14}  {:>9}",
            "replicas", "runs", "over", "resident MiB", "bytes each"
        );
    }
    for (run, sparse) in [(1, false), (4, false), (32, false), (1, true)] {
        let over = if sparse { "1 TiB" } else { "little" };
        for n in [1_000_000, 10_000_000] {
            // A process of its own: what another table left would be taken again.
            let name = format!("{n}/{run}/{over}");
            let Some(child) = &child else {
                let own = std::env::current_exe().expect("it runs");
                std::process::Command::new(own).arg(name).status().map(|_| ()).expect("it runs");
                continue;
            };
            if *child == name {
                let before = resident();
                let t = table(n, run, sparse);
                let taken = (resident() - before) as f64;
                let (mib, each) = (taken / f64::from(1 << 20), taken / t.len() as f64);
                println!("{n:>10}  {run:>5}  {over:>6}  {mib:>14.1}  {each:>9.1}");
            }
        }
    }
}
