//! Each distribution against its law at a fixed seed: Kolmogorov and Smirnov for what is continuous, chi
//! square for what is counted. The bounds are passed by 99 seeds of 100.

use super::*;

const N: usize = 20_000;

/// The largest distance between the draws' distribution and `cdf`, times the root of how many.
fn ks(seed: u64, draw: impl Fn(&mut Rng) -> f64, cdf: impl Fn(f64) -> f64) -> f64 {
    let mut rng = Rng::new(seed);
    let mut all: Vec<f64> = (0..N).map(|_| draw(&mut rng)).collect();
    all.sort_by(f64::total_cmp);
    let n = N as f64;
    let far = |(i, x): (usize, &f64)| {
        let p = cdf(*x);
        (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
    };
    all.iter().enumerate().map(far).fold(0.0, f64::max) * n.sqrt()
}

/// Sum of squared deviations over expected counts, and the degrees of freedom.
fn chi_square(counts: &[u64], expected: &[f64]) -> (f64, f64) {
    let x = counts.iter().zip(expected).map(|(c, e)| (*c as f64 - e).powi(2) / e).sum();
    (x, counts.len() as f64 - 1.0)
}

#[test]
fn continuous_distributions_follow_their_laws() {
    assert!(ks(1, |r| r.unit(), |x| x) < KS_LIMIT);
    assert!(ks(2, |r| r.normal(), normal_cdf) < KS_LIMIT);
    assert!(ks(3, |r| r.exponential(7.0), |x| 1.0 - (-x / 7.0).exp()) < KS_LIMIT);
    assert!(ks(4, |r| r.lognormal(9.357, 1.318), |x| normal_cdf((x.ln() - 9.357) / 1.318)) < KS_LIMIT);
    assert!(ks(5, |r| r.pareto(133_000.0, 1.1), |x| 1.0 - (133_000.0 / x).powf(1.1)) < KS_LIMIT);
    assert!(ks(6, |r| r.weibull(1.46, 0.382), |x| 1.0 - (-(x / 1.46).powf(0.382)).exp()) < KS_LIMIT);
}

#[test]
fn the_test_can_fail() {
    assert!(ks(3, |r| r.exponential(7.2), |x| 1.0 - (-x / 7.0).exp()) > KS_LIMIT);
    assert!(ks(2, |r| r.normal() + 0.05, normal_cdf) > KS_LIMIT);
}

#[test]
fn zipf_ranks_are_drawn_by_their_probability() {
    for (n, alpha) in [(50, 1.0), (200, 0.75), (10, 0.0)] {
        let (zipf, mut rng) = (Zipf::new(n, alpha), Rng::new(8));
        let mut counts = vec![0; n];
        for _ in 0..N {
            counts[zipf.draw(&mut rng)] += 1;
        }
        let expected: Vec<f64> = (0..n).map(|i| zipf.probability(i) * N as f64).collect();
        assert!((expected.iter().sum::<f64>() - N as f64).abs() < 1e-6);
        assert!((expected[0] / expected[n - 1] - (n as f64).powf(alpha)).abs() < 1e-6);
        let (x, degrees) = chi_square(&counts, &expected);
        assert!(x < chi_limit(degrees), "{n} {alpha}: {x}");
    }
}

#[test]
fn whole_numbers_are_uniform() {
    let mut rng = Rng::new(9);
    let mut counts = [0; 37];
    for _ in 0..N {
        counts[rng.below(37) as usize] += 1;
    }
    let (x, degrees) = chi_square(&counts, &[N as f64 / 37.0; 37]);
    assert!(x < chi_limit(degrees), "{x}");
    for _ in 0..1000 {
        assert!((5..=7).contains(&rng.between(7, 5)));
    }
    assert_eq!((rng.below(0), rng.below(1), rng.between(3, 3), rng.index(0)), (0, 0, 3, 0));
    let _ = rng.between(0, u64::MAX);
}

#[test]
fn weights_are_kept() {
    let mut rng = Rng::new(10);
    let weights = [29.0, 0.0, 11.0, 60.0];
    let mut counts = [0u64; 4];
    for _ in 0..N {
        counts[rng.weighted(&weights)] += 1;
    }
    assert_eq!(counts[1], 0);
    let (kept, expected): (Vec<u64>, Vec<f64>) =
        [0, 2, 3].iter().map(|&i| (counts[i], weights[i] / 100.0 * N as f64)).unzip();
    let (x, degrees) = chi_square(&kept, &expected);
    assert!(x < chi_limit(degrees), "{x}");
    assert_eq!(rng.weighted(&[]), 0);
}

#[test]
fn nurand_prefers_some_and_stays_in_its_range() {
    let mut rng = Rng::new(11);
    let mut counts = vec![0u64; 3000];
    for _ in 0..300_000 {
        let n = rng.nurand(1023, 1, 3000);
        counts[n as usize - 1] += 1;
    }
    counts.sort_unstable();
    let (top, all): (u64, u64) = (counts.iter().rev().take(300).sum(), counts.iter().sum());
    assert_eq!(all, 300_000);
    assert!(top as f64 > 0.25 * all as f64, "a tenth gets {top}; uniform draws would give it 0.11");
}

#[test]
fn streams_of_different_names_differ_and_repeat() {
    let draws = |seed, name| {
        let mut rng = Rng::stream(seed, name);
        [rng.bits(), rng.bits(), rng.bits()]
    };
    assert_eq!(draws(1, "a"), draws(1, "a"));
    assert_ne!(draws(1, "a"), draws(1, "b"));
    assert_ne!(draws(1, "a"), draws(2, "a"));
    let mut all: Vec<u32> = (0..100).collect();
    Rng::new(1).shuffle(&mut all);
    assert_ne!(all, (0..100).collect::<Vec<_>>());
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}
