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

#[cfg(test)]
mod tests {
    use super::super::{BenchError, Setup};
    use super::*;

    /// No parameter that is a number of something is so large that it counts as a small one.
    #[test]
    fn what_is_too_large_is_refused_or_needs_too_much() {
        for entry in entries() {
            let setup = |set: Vec<(String, String)>| Setup {
                preset: entry.presets[0].into(),
                seed: 1,
                scale: 1.0,
                set,
                passes: 1,
            };
            let usual = (entry.make)(&setup(vec![])).unwrap();
            let (needs, parameters) = (usual.needs(), usual.parameters());
            let numbers = parameters.as_object().unwrap().iter().filter(|(_, value)| value.is_u64());
            for name in numbers.map(|(name, _)| name) {
                for value in [1u64 << 44, i64::MAX as u64] {
                    match (entry.make)(&setup(vec![(name.clone(), value.to_string())])) {
                        Ok(made) => {
                            let more = made.needs();
                            assert!(more.bytes >= needs.bytes, "{} {name}={value}: {more:?}", entry.name);
                        }
                        Err(e) => assert!(matches!(e, BenchError::Usage(_)), "{} {name}: {e}", entry.name),
                    }
                }
            }
        }
        // All of them together, of the one whose product no number holds.
        let most = [("processes", "1000"), ("files", "10000000"), ("most", "1099511627776")];
        let set = most.map(|(name, value)| (name.into(), value.into())).into();
        let setup = Setup { preset: "ci".into(), seed: 1, scale: 1.0, set, passes: 1 };
        assert_eq!((postmark::ENTRY.make)(&setup).unwrap().needs().bytes, u64::MAX);
    }
}
