use super::*;
use crate::fsbench::control::Limits;
use crate::fsbench::rng::chi_limit;
use crate::fsbench::{Control, Workload};

const SPECS: [&Spec; 2] = [&rubis::SPEC, &rubbos::SPEC];

fn setup(preset: &str, set: &[(&str, &str)]) -> Setup {
    let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
    Setup { preset: preset.into(), seed: 3, scale: 1.0, set, passes: 2 }
}

fn writes(visit: &Interaction) -> bool {
    visit.steps.iter().any(|s| matches!(s, Step::Update { .. } | Step::Insert { .. } | Step::Entry { .. }))
}

#[test]
fn every_mix_is_whole_writes_what_it_should_and_is_drawn_as_it_says() {
    for spec in SPECS {
        for (mix, name) in spec.mixes.iter().enumerate() {
            let weights: Vec<f64> = spec.interactions.iter().map(|i| i.share[mix]).collect();
            let total: f64 = weights.iter().sum();
            assert!((total - 100.0).abs() < 1e-9, "{} {name}: {total}", spec.name);
            let write: f64 = spec.interactions.iter().filter(|i| writes(i)).map(|i| i.share[mix]).sum();
            assert!((write - [0.0, 15.0][mix]).abs() < 1e-9, "{} {name}: {write}", spec.name);
            let (mut rng, n) = (Rng::new(1), 100_000.0);
            let mut counts = vec![0f64; weights.len()];
            (0..n as u64).for_each(|_| counts[rng.weighted(&weights)] += 1.0);
            let drawn: Vec<(f64, f64)> = counts.into_iter().zip(weights).collect();
            assert!(drawn.iter().all(|(c, w)| *w > 0.0 || *c == 0.0));
            let kept = || drawn.iter().filter(|(_, w)| *w > 0.0);
            let x: f64 = kept().map(|(c, w)| (c - w / 100.0 * n).powi(2) / (w / 100.0 * n)).sum();
            let degrees = kept().count() as f64 - 1.0;
            assert!(x < chi_limit(degrees), "{} {name}: {x}", spec.name);
        }
    }
}

#[test]
fn databases_are_as_large_as_published() {
    for (spec, published) in SPECS.into_iter().zip([1.4e9, 439e6]) {
        let bytes = Web::new(&setup("paper", &[]), spec).unwrap().store.needs().bytes;
        assert!((bytes as f64 / published - 1.0).abs() < 0.1, "{}: {bytes}", spec.name);
    }
}

#[test]
fn every_table_is_used_and_every_write_is_committed() {
    for spec in SPECS {
        let mut used = vec![false; spec.tables.len()];
        for visit in spec.interactions {
            for step in visit.steps {
                match *step {
                    Step::Row { of, by, .. } | Step::List { of, by, .. } => {
                        (used[of], used[by]) = (true, true)
                    }
                    Step::Insert { of, key } => (used[of], used[key]) = (true, true),
                    Step::Newest { of, .. }
                    | Step::Whole { of }
                    | Step::Update { of, .. }
                    | Step::Entry { of } => used[of] = true,
                    Step::Page | Step::Commit => {}
                }
            }
            let committed = matches!(visit.steps.last(), Some(Step::Commit));
            assert_eq!(writes(visit), committed, "{} {}", spec.name, visit.name);
        }
        for (table, used) in spec.tables.iter().zip(used) {
            assert!(used, "{}: nothing uses {}", spec.name, table.name);
        }
    }
}

#[test]
fn every_visit_does_something_and_what_it_writes_is_found_again() {
    for spec in SPECS {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::create(dir.path(), spec.name, serde_json::Value::Null, 3).unwrap();
        let mut w = Web::new(&setup("ci", &[("users", "1000")]), spec).unwrap();
        let control = Control::new(Limits::default());
        w.prepare(&site, &control).unwrap();
        {
            let open = w.store.open(&site).unwrap();
            let mut rng = Rng::new(5);
            let mut visitor = w.what.visitor(&site, &open, &mut rng);
            for _ in 0..20 {
                visitor.change(&mut rng);
                for (which, visit) in spec.interactions.iter().enumerate() {
                    let (read, written) = visitor.visit(which, &mut rng).unwrap();
                    assert!(read + written > 0, "{} {}", spec.name, visit.name);
                    assert_eq!(written > 0, writes(visit), "{} {}", spec.name, visit.name);
                }
            }
        }
        let verified = w.verify(&site, &control).unwrap();
        assert_eq!((verified.damaged, verified.examples.clone()), (0, vec![]));
        for name in ["db/users", "html/p03.html"] {
            let path = site.path(name);
            let mut bytes = std::fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!(w.verify(&site, &control).unwrap().damaged, 2);
    }
}

#[test]
fn some_things_are_looked_at_more_often() {
    let mut rng = Rng::new(7);
    let mut counts = vec![0u64; 1000];
    for _ in 0..200_000 {
        counts[(popular(&mut rng) * 1000 / SPAN) as usize] += 1;
    }
    counts.sort_unstable();
    let top: u64 = counts.iter().rev().take(100).sum();
    assert!(top > 50_000, "a tenth gets {top}; uniform draws would give it 20,000");
}

#[test]
fn what_cannot_be_is_refused() {
    for wrong in [("users", "9"), ("clients", "0"), ("think", "-1.0"), ("session", "nan"), ("mix", "bids")] {
        for spec in SPECS {
            assert!(Web::new(&setup("ci", &[wrong]), spec).is_err(), "{wrong:?}");
        }
    }
    let said = Web::new(&setup("ci", &[("mix", "bids")]), &rubis::SPEC).err().unwrap().to_string();
    assert!(said.contains("browsing and bidding"), "{said}");
    assert!(Web::new(&setup("ci", &[("mix", "browsing"), ("users", "10")]), &rubbos::SPEC).is_ok());
}

/// As for `tpcw`: one browser's draws at a seed. Of each pass, how often each visit was made, and bytes read and written.
#[test]
fn a_visitor_does_the_same_at_the_same_seed() {
    type Pass<'a> = (&'a [u64], (u64, u64));
    let rubis: [Pass; 2] = [
        (
            &[3, 4, 3, 11, 17, 41, 6, 8, 10, 49, 8, 11, 1, 5, 7, 19, 30, 27, 0, 3, 7, 2, 4, 2, 4, 8, 10],
            (27607040, 1819136),
        ),
        (
            &[9, 3, 8, 24, 16, 40, 8, 5, 13, 58, 15, 6, 3, 3, 3, 24, 12, 20, 0, 0, 5, 2, 0, 2, 3, 5, 13],
            (27131904, 1436160),
        ),
    ];
    let rubbos: [Pass; 2] = [
        (
            &[71, 6, 3, 16, 1, 9, 6, 52, 23, 27, 35, 1, 1, 10, 4, 13, 8, 4, 3, 1, 2, 1, 2, 1],
            (27697152, 1201152),
        ),
        (
            &[75, 5, 5, 14, 1, 7, 11, 49, 31, 20, 26, 3, 1, 4, 6, 14, 11, 6, 5, 0, 0, 2, 3, 1],
            (27856896, 1079296),
        ),
    ];
    for (spec, passes) in SPECS.into_iter().zip([rubis, rubbos]) {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::create(dir.path(), spec.name, serde_json::Value::Null, 3).unwrap();
        let set = [("users", "1000"), ("clients", "1"), ("think", "0"), ("session", "1e6")];
        let mut w = Web::new(&setup("ci", &set), spec).unwrap();
        w.prepare(&site, &Control::new(Limits::default())).unwrap();
        for (counts, bytes) in passes {
            let report =
                w.pass(&site, &Control::new(Limits { ops: Some(300), ..Limits::default() })).unwrap();
            let made: Vec<u64> = report.classes.iter().map(|c| c.ops).collect();
            assert_eq!((made.as_slice(), report.bytes()), (counts, bytes), "{}", spec.name);
        }
    }
}
