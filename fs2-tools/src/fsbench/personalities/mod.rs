//! The papers' workloads, one module each. What is stated, measured or assumed of them is in
//! `docs/fsbench.md`.

mod cvs;
mod files;
mod mapping;

use super::Entry;

/// Every workload of this module.
pub fn entries() -> Vec<Entry> {
    vec![cvs::ENTRY]
}
