//! The papers' workloads, one module each. What is stated, measured or assumed of them is in
//! `docs/fsbench.md`.

mod cvs;
mod files;
mod mapping;
mod startx;
mod surge;
mod tpcw;

use super::Entry;

/// Every workload of this module.
pub fn entries() -> Vec<Entry> {
    let mut all = vec![cvs::ENTRY, startx::ENTRY, surge::ENTRY];
    all.extend(tpcw::ENTRIES);
    all
}
