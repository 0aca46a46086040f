use super::super::visits::Visitor;
use super::*;
use crate::fsbench::control::Limits;
use crate::fsbench::{Control, Workload};

fn setup(set: &[(&str, &str)]) -> Setup {
    let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
    Setup { preset: "ci".into(), seed: 3, scale: 1.0, set, passes: 2 }
}

#[test]
fn every_mix_is_whole_and_is_drawn_as_it_says() {
    for mix in [Mix::Browsing, Mix::Shopping, Mix::Ordering] {
        let weights = INTERACTIONS.map(|i| i.share[mix as usize]);
        let total: f64 = weights.iter().sum();
        assert!((total - 100.0).abs() < 1e-9, "{mix:?}: {total}");
        let mut rng = Rng::new(1);
        let n = 100_000.0;
        let mut counts = [0f64; 14];
        for _ in 0..n as u64 {
            counts[rng.weighted(&weights)] += 1.0;
        }
        let x: f64 =
            counts.iter().zip(&weights).map(|(c, w)| (c - w / 100.0 * n).powi(2) / (w / 100.0 * n)).sum();
        // The 99th percentile of chi square with 13 degrees.
        assert!(x < 27.69, "{mix:?}: {x}");
    }
}

#[test]
fn pictures_have_the_intended_sizes() {
    let t = Tpcw::new(&setup(&[("items", "20000")]), Mix::Shopping).unwrap();
    let mut counts = [0f64; 5];
    for f in t.files.files.iter().skip(1).step_by(2) {
        counts[PICTURES.iter().position(|(kb, _)| kb << 10 == f.len).unwrap()] += 1.0;
    }
    let n: f64 = counts.iter().sum();
    assert_eq!(n, 20_000.0);
    let x: f64 = counts.iter().zip(PICTURES).map(|(c, (_, p))| (c - p * n).powi(2) / (p * n)).sum();
    // The 99th percentile of chi square with 4 degrees.
    assert!(x < 13.28, "{x}");
}

#[test]
fn what_is_written_is_found_again_round_after_round_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::create(dir.path(), "tpcw-ordering", serde_json::Value::Null, 3).unwrap();
    let mut t = Tpcw::new(&setup(&[("customers", "300"), ("items", "60")]), Mix::Ordering).unwrap();
    let control = Control::new(Limits::default());
    t.prepare(&site, &control).unwrap();
    {
        let open = t.store.open(&site).unwrap();
        let mut rng = Rng::new(5);
        let mut user = t.what.visitor(&site, &open, &mut rng);
        let rows = open.rows(store::Table::Orders);
        for _ in 0..8 {
            for (which, interaction) in INTERACTIONS.iter().enumerate() {
                let (read, _) = user.visit(which, &mut rng).unwrap();
                assert!(read > 0 || which == 9, "{}", interaction.name);
            }
        }
        assert_eq!(open.rows(store::Table::Orders), rows + 8);
        // Beyond the log's end.
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..40 {
            open.commit(1000, &mut buffer).unwrap();
        }
    }
    let verified = t.verify(&site, &control).unwrap();
    assert_eq!((verified.damaged, verified.examples.clone()), (0, vec![]));

    // One byte of one page, and one of the log.
    for name in ["db/order_line", "db/log"] {
        let path = site.path(name);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let verified = t.verify(&site, &control).unwrap();
    assert_eq!(verified.damaged, 2, "{:?}", verified.examples);
}

#[test]
fn shops_that_cannot_be_are_refused() {
    for wrong in [("customers", "5"), ("items", "0"), ("clients", "0"), ("think", "-1.0"), ("session", "nan")]
    {
        assert!(Tpcw::new(&setup(&[wrong]), Mix::Shopping).is_err(), "{wrong:?}");
    }
    assert!(Tpcw::new(&setup(&[("customers", "10"), ("items", "10")]), Mix::Shopping).is_ok());
}

#[test]
fn a_class_s_database_is_as_large_as_its_working_set() {
    for (preset, bytes, items) in CLASSES {
        let t = Tpcw::new(&Setup { preset: preset.into(), ..setup(&[]) }, Mix::Browsing).unwrap();
        let have = store::bytes(Shape { customers: t.what.parameters.customers, items });
        assert!(have.abs_diff(bytes) <= 128 << 10, "{preset}: {have} of {bytes}");
        assert_eq!((t.what.parameters.items, t.what.parameters.clients), (items, 8));
    }
}

/// One browser's draws at a seed: what each interaction read and wrote. Another order of draws, or another stream, is
/// another workload, whose results compare with no earlier ones.
#[test]
fn a_browser_does_the_same_at_the_same_seed() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::create(dir.path(), "tpcw-ordering", serde_json::Value::Null, 3).unwrap();
    let set = [("customers", "300"), ("items", "60"), ("clients", "1"), ("think", "0"), ("session", "1e6")];
    let mut t = Tpcw::new(&setup(&set), Mix::Ordering).unwrap();
    t.prepare(&site, &Control::new(Limits::default())).unwrap();
    let passes = [1, 2].map(|_| {
        let report = t.pass(&site, &Control::new(Limits { ops: Some(300), ..Limits::default() })).unwrap();
        (report.classes.iter().map(|c| c.ops).collect::<Vec<_>>(), report.bytes())
    });
    let want = [
        (vec![28, 1, 1, 34, 38, 35, 48, 42, 48, 22, 1, 1, 1, 0], (29977600, 3995136)),
        (vec![21, 1, 1, 40, 39, 35, 40, 48, 39, 35, 0, 0, 0, 1], (30482432, 5213696)),
    ];
    assert_eq!(passes, want);
}
