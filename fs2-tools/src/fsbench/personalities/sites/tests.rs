use super::*;
use crate::fsbench::control::Limits;
use crate::fsbench::rng::chi_limit;

fn setup(set: &[(&str, &str)]) -> Setup {
    let set = set.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
    Setup { preset: "ci".into(), seed: 3, scale: 1.0, set, passes: 2 }
}

#[test]
fn requests_follow_zipf_s_law_of_each_phase() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::create(dir.path(), "zipf-alpha", serde_json::Value::Null, 3).unwrap();
    let set = [("files", "12"), ("largest", "2048"), ("alphas", "0.5,1.5"), ("threads", "1")];
    let mut w = Sites::new(&setup(&set), Study::Alpha).unwrap();
    w.prepare(&site, &Control::new(Limits::default())).unwrap();
    let control = Control::new(Limits { ops: Some(8000), ..Limits::default() });
    let report = w.pass(&site, &control).unwrap();
    assert_eq!(report.short, None);
    // The first requests of a phase are one for each document.
    for (n, alpha) in [0.5, 1.5].into_iter().enumerate() {
        let c = &report.classes[3 * n..3 * n + 3];
        assert_eq!((c[0].ops, c[0].ops + c[1].ops + c[2].ops), (12, 4000), "{alpha}");
        // The bytes say which documents were asked for: in the mean those of the law.
        let zipf = Zipf::new(12, alpha);
        let len = |r| w.sites[0].of_rank(r).len as f64;
        let mean: f64 = (0..12).map(|r| zipf.probability(r) * len(r)).sum();
        let variance: f64 = (0..12).map(|r| zipf.probability(r) * (len(r) - mean).powi(2)).sum();
        let read: u64 = c.iter().map(|c| c.bytes_read).sum();
        let off = (read as f64 / 4000.0 - mean).abs() / (variance / 4000.0).sqrt();
        // 99 samples of 100 are nearer.
        assert!(off < 2.58, "{alpha}: {off} deviations");
    }
    let verified = w.verify(&site, &control).unwrap();
    assert_eq!((verified.damaged, verified.files), (0, 12));
}

#[test]
fn ranks_are_drawn_as_a_class_says() {
    let w = Sites::new(&setup(&[]), Study::Class(0)).unwrap();
    let n = w.sites[0].count();
    let (zipf, mut rng) = (Zipf::new(n, w.phases[0].alpha), Rng::new(9));
    let mut counts = vec![0.0; n];
    let draws = 100_000.0;
    (0..draws as u64).for_each(|_| counts[zipf.draw(&mut rng)] += 1.0);
    let h: f64 = (1..=n).map(|i| (i as f64).powf(-0.9)).sum();
    let law = |rank: usize| draws * ((rank + 1) as f64).powf(-0.9) / h;
    let x: f64 = counts.iter().enumerate().map(|(r, c)| (c - law(r)).powi(2) / law(r)).sum();
    assert!(x < chi_limit(n as f64 - 1.0), "{x}");
}

#[test]
fn identical_sites_differ_in_content_alone() {
    let w = Sites::new(&setup(&[("files", "50")]), Study::Shared).unwrap();
    for (a, b) in w.sites[0].files.files.iter().zip(&w.sites[1].files.files) {
        assert_eq!(a.len, b.len);
        assert_ne!(a.number, b.number);
        assert_ne!(a.path, b.path);
    }
    assert_eq!((w.phases[0].sites, w.phases[1].sites), (1, 2));
}

#[test]
fn popular_files_elsewhere_are_made_read_compared_and_removed() {
    let (dir, hot) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hot_dir = hot.path().to_str().unwrap();
    let small = [("files", "20"), ("largest", "9000"), ("threads", "2"), ("hot", "0.5")];
    {
        let site = Site::create(dir.path(), "hybrid", serde_json::Value::Null, 3).unwrap();
        let mut set = small.to_vec();
        set.push(("hot_dir", hot_dir));
        let mut w = Sites::new(&setup(&set), Study::Hybrid).unwrap();
        assert!((3..=8).contains(&w.hot), "{} of 20 documents get half of the requests", w.hot);
        let zipf = Zipf::new(20, 0.9);
        let sum: f64 = (0..w.hot).map(|r| zipf.probability(r)).sum();
        assert!(sum >= 0.5 && sum - zipf.probability(w.hot - 1) < 0.5);
        w.prepare(&site, &Control::new(Limits::default())).unwrap();
        assert_eq!(std::fs::read_dir(hot.path().join("fsbench.d/hot")).unwrap().count(), w.hot);
        let control = Control::new(Limits { ops: Some(400), ..Limits::default() });
        let report = w.pass(&site, &control).unwrap();
        assert_eq!(report.short, None);
        assert_eq!(w.metrics(&report, &[1.0, 1.0]).last().map(|m| m.name.as_str()), Some("gain"));
        assert_eq!(w.verify(&site, &control).unwrap().damaged, 0);
        // One of the copies, too, is looked at.
        std::fs::write(hot.path().join("fsbench.d/hot/r00000.html"), b"x").unwrap();
        assert_eq!(w.verify(&site, &control).unwrap().damaged, 1);
        assert!(w.reopen(&site).unwrap_err().to_string().contains("--reuse"));
    }
    assert_eq!(std::fs::read_dir(hot.path()).unwrap().count(), 0);
    let said = |set: &[(&str, &str)]| Sites::new(&setup(set), Study::Hybrid).err().map(|e| e.to_string());
    assert!(said(&[("hot_dir", "/absent/dir")]).is_some_and(|s| s.contains("no such directory")));
    // The run's own directory is no other one.
    let site = Site::create(dir.path(), "hybrid", serde_json::Value::Null, 3).unwrap();
    let mut set = small.to_vec();
    let own = dir.path().to_str().unwrap();
    set.push(("hot_dir", own));
    let mut w = Sites::new(&setup(&set), Study::Hybrid).unwrap();
    let e = w.prepare(&site, &Control::new(Limits::default())).unwrap_err();
    assert!(e.to_string().contains("the run itself"), "{e}");
}

#[test]
fn sites_that_cannot_be_are_refused() {
    for wrong in [
        ("files", "0"),
        ("largest", "1023"),
        ("threads", "0"),
        ("swaps", "1.5"),
        ("alpha", "-1.0"),
        ("alpha", "nan"),
        ("alpha", "11"),
        ("hot", "2"),
    ] {
        assert!(Sites::new(&setup(&[wrong]), Study::Hybrid).is_err(), "{wrong:?}");
    }
    for wrong in ["", "x", "0.5,", "0.5,0.5", "-1", "nan"] {
        assert!(Sites::new(&setup(&[("alphas", wrong)]), Study::Alpha).is_err(), "{wrong}");
    }
    // What a study does not have is no parameter of it.
    let said = Sites::new(&setup(&[("hot", "0.5")]), Study::Class(1)).err().unwrap().to_string();
    assert!(said.contains("no such parameter"), "{said}");
    assert!(Sites::new(&setup(&[("alpha", "0"), ("files", "1")]), Study::Class(1)).is_ok());
}
