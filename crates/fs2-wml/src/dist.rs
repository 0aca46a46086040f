//! Random variables: the language's own (`randvar`) and the custom ones (`cvar`), drawn from a thread's own
//! generator, so that a run with one thread is repeated by its seed.

use std::f64::consts::{E, PI};

/// xoshiro256++ of Blackman and Vigna, seeded through SplitMix64 as they advise.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator for one stream of a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut x = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }))
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In (0, 1): for logarithms.
    fn open(&mut self) -> f64 {
        loop {
            let u = self.unit();
            if u > 0.0 {
                return u;
            }
        }
    }

    /// In 0..bound; 0 where there is nothing below it.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn normal(&mut self) -> f64 {
        // Box and Muller's, one of the pair.
        (-2.0 * self.open().ln()).sqrt() * (2.0 * PI * self.unit()).cos()
    }
}

/// Gamma with a shape and a scale, by the rejection methods of Knuth's second volume (3.4.1, A and G).
pub(super) fn gamma(rng: &mut Rng, shape: f64, scale: f64) -> f64 {
    // Far outside the language's use the methods below would not end.
    if !(shape > 0.0 && shape.is_finite()) {
        return 0.0;
    }
    // It is its mean but for a millionth, and the products below leave what a number holds.
    if shape > 1e12 {
        return scale * shape;
    }
    let x = if shape <= 1.0 { gamma_small(rng, shape) } else { gamma_large(rng, shape) };
    scale * x
}

fn gamma_small(rng: &mut Rng, a: f64) -> f64 {
    let p = E / (a + E);
    loop {
        let u = rng.unit();
        let v = rng.open();
        let (x, q) = if u < p {
            let x = v.powf(1.0 / a);
            (x, (-x).exp())
        } else {
            let x = 1.0 - v.ln();
            (x, x.powf(a - 1.0))
        };
        if rng.unit() < q {
            return x;
        }
    }
}

fn gamma_large(rng: &mut Rng, a: f64) -> f64 {
    let spread = (2.0 * a - 1.0).sqrt();
    loop {
        let y = (PI * rng.unit()).tan();
        let x = spread * y + a - 1.0;
        if x > 0.0 && rng.unit() <= (1.0 + y * y) * ((a - 1.0) * (x / (a - 1.0)).ln() - spread * y).exp() {
            return x;
        }
    }
}

/// A row of a table of probabilities.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) percent: f64,
    pub(super) least: f64,
    pub(super) largest: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Law {
    /// From `min` to `2 mean - min`.
    Uniform {
        min: f64,
        mean: f64,
    },
    /// `min` plus gamma of mean `mean - min`.
    Gamma {
        min: f64,
        mean: f64,
        shape: f64,
    },
    /// Uniform within a row; scaled to `mean` where one is given.
    Table {
        rows: Vec<Row>,
        scale: Option<(f64, f64)>,
    },
    CustomUniform {
        lower: f64,
        upper: f64,
    },
    CustomGamma {
        mean: f64,
        shape: f64,
    },
    Normal {
        mean: f64,
        sigma: f64,
    },
    LogNormal {
        shape: f64,
        scale: f64,
    },
    Exponential {
        mean: f64,
    },
    Erlang {
        shape: u32,
        mean: f64,
    },
    Weibull {
        shape: f64,
        scale: f64,
    },
    Triangular {
        lower: f64,
        upper: f64,
        mode: f64,
    },
}

/// A random variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Dist {
    pub(super) law: Law,
    /// To the nearest multiple of this; 0 leaves the value as it is.
    pub(super) round: f64,
    /// Bounds after rounding: custom variables have them.
    pub(super) bounds: Option<(f64, f64)>,
}

/// Nothing drawn is larger: such a value would not be a size of anything.
const LARGEST: f64 = (1u64 << 60) as f64;

impl Dist {
    /// Finite, not negative.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        let mut x = match &self.law {
            Law::Uniform { min, mean } => rng.unit() * 2.0 * (mean - min) + min,
            Law::Gamma { min, mean, shape } => gamma(rng, *shape, (mean - min) / shape) + min,
            Law::Table { rows, scale } => {
                let x = table(rng, rows);
                scale.map_or(x, |(factor, min)| (x - rows_least(rows)) * factor + min)
            }
            Law::CustomUniform { lower, upper } => lower + rng.unit() * (upper - lower),
            Law::CustomGamma { mean, shape } => gamma(rng, *shape, mean / shape),
            Law::Normal { mean, sigma } => mean + sigma * rng.normal(),
            Law::LogNormal { shape, scale } => (scale.ln() + shape * rng.normal()).exp(),
            Law::Exponential { mean } => -mean * rng.open().ln(),
            Law::Erlang { shape, mean } => {
                -mean * (0..*shape).map(|_| rng.open().ln()).sum::<f64>() / f64::from(*shape)
            }
            Law::Weibull { shape, scale } => scale * (-rng.open().ln()).powf(1.0 / shape),
            Law::Triangular { lower, upper, mode } => triangular(rng, *lower, *upper, *mode),
        };
        if self.round > 0.0 {
            x = (x / self.round).round() * self.round;
        }
        if let Some((least, largest)) = self.bounds {
            x = x.max(least).min(largest);
        }
        if x.is_finite() { x.clamp(0.0, LARGEST) } else { 0.0 }
    }

    /// The mean of the law before rounding and bounds, where the tree of a fileset needs one.
    pub fn mean(&self) -> f64 {
        match &self.law {
            Law::Uniform { mean, .. } | Law::Gamma { mean, .. } | Law::CustomGamma { mean, .. } => *mean,
            Law::Normal { mean, .. } | Law::Exponential { mean } | Law::Erlang { mean, .. } => *mean,
            Law::Table { rows, scale } => {
                let mean = rows_mean(rows);
                scale.map_or(mean, |(factor, min)| (mean - rows_least(rows)) * factor + min)
            }
            Law::CustomUniform { lower, upper } => (lower + upper) / 2.0,
            Law::LogNormal { shape, scale } => scale * (shape * shape / 2.0).exp(),
            Law::Weibull { shape, scale } => scale * statrs::function::gamma::gamma(1.0 + 1.0 / shape),
            Law::Triangular { lower, upper, mode } => (lower + upper + mode) / 3.0,
        }
    }
}

pub(super) fn rows_least(rows: &[Row]) -> f64 {
    rows.iter().map(|r| r.least).fold(f64::INFINITY, f64::min)
}

pub(super) fn rows_mean(rows: &[Row]) -> f64 {
    rows.iter().map(|r| r.percent / 100.0 * (r.least + r.largest) / 2.0).sum()
}

fn table(rng: &mut Rng, rows: &[Row]) -> f64 {
    let mut at = rng.unit() * 100.0;
    for row in rows {
        if at < row.percent {
            return row.least + (row.largest - row.least) * at / row.percent;
        }
        at -= row.percent;
    }
    rows.last().map_or(0.0, |r| r.largest)
}

fn triangular(rng: &mut Rng, lower: f64, upper: f64, mode: f64) -> f64 {
    let (u, width) = (rng.unit(), upper - lower);
    if u * width <= mode - lower {
        lower + (u * width * (mode - lower)).sqrt()
    } else {
        upper - ((1.0 - u) * width * (upper - mode)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(law: Law) -> f64 {
        let (mut rng, n) = (Rng::new(7, 3), 200_000);
        let dist = Dist { law, round: 0.0, bounds: None };
        (0..n).map(|_| dist.draw(&mut rng)).sum::<f64>() / f64::from(n)
    }

    /// Each law's mean by its own formula, from 200,000 draws: within 1.5 %, five standard errors of the widest.
    #[test]
    fn laws_have_their_means() {
        let rows = vec![
            Row { percent: 80.0, least: 1024.0, largest: 4096.0 },
            Row { percent: 15.0, least: 4096.0, largest: 16384.0 },
            Row { percent: 5.0, least: 16384.0, largest: 65536.0 },
        ];
        for (law, mean) in [
            (Law::Uniform { min: 10.0, mean: 40.0 }, 40.0),
            (Law::Gamma { min: 1024.0, mean: 5632.0, shape: 1.5 }, 5632.0),
            (Law::Gamma { min: 0.0, mean: 0.5, shape: 0.5 }, 0.5),
            // 0.8 * 2560 + 0.15 * 10240 + 0.05 * 40960
            (Law::Table { rows: rows.clone(), scale: None }, 5632.0),
            (Law::CustomUniform { lower: 4096.0, upper: 8192.0 }, 6144.0),
            (Law::CustomGamma { mean: 16384.0, shape: 1.5 }, 16384.0),
            (Law::Normal { mean: 1000.0, sigma: 100.0 }, 1000.0),
            // 100 * exp(0.25 / 2)
            (Law::LogNormal { shape: 0.5, scale: 100.0 }, 113.315),
            (Law::Exponential { mean: 50.0 }, 50.0),
            (Law::Erlang { shape: 3, mean: 50.0 }, 50.0),
            // 100 * Gamma(1.5)
            (Law::Weibull { shape: 2.0, scale: 100.0 }, 88.623),
            (Law::Triangular { lower: 0.0, upper: 30.0, mode: 12.0 }, 14.0),
        ] {
            let found = mean_of(law.clone());
            assert!((found / mean - 1.0).abs() < 0.015, "{law:?}: {found}, not {mean}");
            let told = Dist { law: law.clone(), round: 0.0, bounds: None }.mean();
            assert!((told / mean - 1.0).abs() < 1e-4, "{law:?}: {told}, not {mean}");
        }
    }

    #[test]
    fn rounding_and_bounds() {
        let law = Law::Exponential { mean: 5000.0 };
        let dist = Dist { law, round: 1024.0, bounds: Some((2048.0, 8192.0)) };
        let mut rng = Rng::new(1, 1);
        for _ in 0..1000 {
            let x = dist.draw(&mut rng);
            assert!((2048.0..=8192.0).contains(&x) && x % 1024.0 == 0.0, "{x}");
        }
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |stream| Rng::new(42, stream).next();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(Rng::new(1, 1).below(0), 0);
        assert!((0..1000).all(|s| Rng::new(9, s).below(3) < 3));
    }
}
