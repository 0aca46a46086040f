//! The papers' workloads, one module each. What is stated, measured or assumed of them is in
//! `docs/fsbench.md`.

#[macro_use]
mod parameters;

mod clients;
mod compile;
mod cvs;
mod files;
mod mapping;
mod mersenne;
mod pages;
mod postmark;
mod single;
mod sites;
mod startx;
mod surge;
mod tpcw;
mod users;
mod visits;
mod webdb;

use super::Entry;

/// Every workload of this module.
pub fn entries() -> Vec<Entry> {
    let mut all = vec![cvs::ENTRY, startx::ENTRY, surge::ENTRY];
    all.extend(tpcw::ENTRIES);
    all.extend([postmark::ENTRY, compile::ENTRY]);
    all.extend(users::ENTRIES);
    all.push(single::ENTRY);
    all.extend(sites::ENTRIES);
    all.extend(webdb::ENTRIES);
    all
}
