//! Random numbers that are the same on every machine: streams by seed and name, and the distributions the
//! papers' workloads draw from.
//!
//! Two streams of one seed and different names are independent, so that a new thread or a new kind of file
//! does not shift what the others draw.

use std::f64::consts::TAU;

/// xoshiro256** by Blackman and Vigna (2018), seeded by SplitMix64 as they advise.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// A step of SplitMix64: a bijection that mixes well.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        let step = |n: u64| mix(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Rng { state: [step(0), step(1), step(2), step(3)] }
    }

    /// The stream of a seed and a name.
    pub fn stream(seed: u64, name: &str) -> Rng {
        Rng::new(seed ^ xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        out
    }

    /// Uniform in 0..n; 0 where `n` is 0. The bias is below n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in low..=high, in any order.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.min(high), low.max(high));
        low + match (high - low).checked_add(1) {
            Some(n) => self.below(n),
            None => self.bits(),
        }
    }

    /// An index of a slice of `len` elements; 0 where there are none.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in (0, 1]: its logarithm is finite.
    fn positive(&mut self) -> f64 {
        1.0 - self.unit()
    }

    /// Whether something of probability `p` happens.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Any order of the elements, each as likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for i in (1..of.len()).rev() {
            of.swap(i, self.index(i + 1));
        }
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.positive().ln()).sqrt() * (TAU * self.unit()).cos()
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.positive().ln()
    }

    /// The exponential of a normal with mean `mu` and deviation `sigma`.
    pub fn lognormal(&mut self, mu: f64, sigma: f64) -> f64 {
        (mu + sigma * self.normal()).exp()
    }

    /// Pareto: P(X > x) = (k / x)^alpha for x ≥ k.
    pub fn pareto(&mut self, k: f64, alpha: f64) -> f64 {
        k / self.positive().powf(1.0 / alpha)
    }

    /// Weibull: P(X > x) = exp(-(x / scale)^shape).
    pub fn weibull(&mut self, scale: f64, shape: f64) -> f64 {
        scale * (-self.positive().ln()).powf(1.0 / shape)
    }

    /// TPC's NURand(a, low, high) with the constant 0: some numbers are drawn much more often.
    pub fn nurand(&mut self, a: u64, low: u64, high: u64) -> u64 {
        let (low, high) = (low.min(high), low.max(high));
        let n = (high - low).saturating_add(1);
        (self.between(0, a) | self.between(low, high)) % n + low
    }

    /// An index by weight; 0 where there are no weights.
    pub fn weighted(&mut self, weights: &[f64]) -> usize {
        let total: f64 = weights.iter().sum();
        let mut at = self.unit() * total;
        for (i, w) in weights.iter().enumerate() {
            if at < *w {
                return i;
            }
            at -= w;
        }
        // Rounding may leave a crumb behind the last weight.
        weights.iter().rposition(|w| *w > 0.0).unwrap_or(0)
    }
}

/// Zipf: rank i of 1..=n with probability proportional to 1 / i^alpha. Ranks are given from 0.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    /// Over `n` ranks; 8 bytes each.
    pub fn new(n: usize, alpha: f64) -> Zipf {
        let mut sum = 0.0;
        let cumulated = (1..=n.max(1))
            .map(|i| {
                sum += (i as f64).powf(-alpha);
                sum
            })
            .collect();
        Zipf { cumulated }
    }

    /// A rank, 0 the likeliest.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let total = self.cumulated.last().copied().unwrap_or(1.0);
        let at = rng.unit() * total;
        self.cumulated.partition_point(|c| *c <= at).min(self.cumulated.len() - 1)
    }

    /// The probability of a rank; 0 beyond the last one.
    pub fn probability(&self, rank: usize) -> f64 {
        let total = self.cumulated.last().copied().unwrap_or(1.0);
        let below = rank.checked_sub(1).and_then(|i| self.cumulated.get(i)).copied().unwrap_or(0.0);
        self.cumulated.get(rank).map_or(0.0, |c| (c - below) / total)
    }
}

/// The normal distribution's cumulative function, right within 1e-7 (Abramowitz and Stegun, 7.1.26).
#[cfg(test)]
pub(crate) fn normal_cdf(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let erf = 1.0 - poly * (-x * x).exp();
    if z < 0.0 { 0.5 * (1.0 - erf) } else { 0.5 * (1.0 + erf) }
}

/// Of Kolmogorov's statistic, 99 samples of 100 of the law itself are below.
#[cfg(test)]
pub(crate) const KS_LIMIT: f64 = 1.63;

/// The 99th percentile of chi square (Wilson and Hilferty).
#[cfg(test)]
pub(crate) fn chi_limit(degrees: f64) -> f64 {
    let a = 2.0 / (9.0 * degrees);
    degrees * (1.0 - a + 2.326 * a.sqrt()).powi(3)
}

#[cfg(test)]
mod tests;
