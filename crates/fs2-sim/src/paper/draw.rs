//! Random numbers by seed, the same on every machine.
//!
//! Only the four operations and square roots of `f64` are used, which IEEE 754 defines to the bit; logarithm
//! and exponential are made of them here, for a library's differ from machine to machine.

/// splitmix64. See the module.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

const LN_2: f64 = std::f64::consts::LN_2;

/// Natural logarithm of a positive, normal number, within 1e-14 of itself.
pub(super) fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0, "the logarithm of {x}");
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), of which the argument is at most 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    for n in (0..12).rev() {
        sum = sum * square + 1.0 / f64::from(2 * n + 1);
    }
    2.0 * t * sum + exponent as f64 * LN_2
}

/// e to the power of `x`, from -700 to 700, within 1e-14 of itself.
pub(super) fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let halves = x / LN_2;
    let whole = (halves + if halves < 0.0 { -0.5 } else { 0.5 }) as i64;
    let rest = x - whole as f64 * LN_2;
    let mut sum = 1.0;
    for n in (1..18).rev() {
        sum = 1.0 + sum * rest / f64::from(n);
    }
    sum * f64::from_bits(((whole + 1023) as u64) << 52)
}

pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Draw {
    /// A sequence for a seed and what it is for.
    pub(super) fn new(seed: u64, what: &str) -> Draw {
        let named = what.bytes().fold(seed, |h, b| mix(h ^ u64::from(b)).wrapping_add(seed));
        Draw(mix(named))
    }

    /// Another sequence, the `n`th that this one leads to; this one stays where it is.
    pub(super) fn fork(&self, n: u64) -> Draw {
        Draw(mix(self.0 ^ mix(n.wrapping_add(0x51))))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `n`; 0 where `n` is 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// From 0 to 1, both left out.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Between two numbers, evenly.
    pub(super) fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    /// Exponential of this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(self.unit())
    }

    /// Log-normal: `mu` and `sigma` of the natural logarithm.
    pub(super) fn log_normal(&mut self, mu: f64, sigma: f64) -> f64 {
        // Twelve uniforms less their mean: variance 1, and no tail beyond six sigma.
        let sum: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        exp(mu + sigma * sum)
    }

    /// Pareto from `least` up, of this shape.
    pub(super) fn pareto(&mut self, least: f64, shape: f64) -> f64 {
        least * exp(-ln(self.unit()) / shape)
    }

    /// Weibull of this scale and shape.
    pub(super) fn weibull(&mut self, scale: f64, shape: f64) -> f64 {
        scale * exp(ln(-ln(self.unit())) / shape)
    }

    /// In random order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Draws from 0 up, the nth with a weight of 1/n to the power of `exponent`.
#[derive(Clone, Debug)]
pub(super) struct Zipf(Vec<f64>);

impl Zipf {
    pub(super) fn new(n: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let weight = |i: usize| exp(-exponent * ln(i as f64));
        Zipf(
            (1..=n.max(1))
                .map(|i| {
                    sum += weight(i);
                    sum
                })
                .collect(),
        )
    }

    pub(super) fn draw(&self, draw: &mut Draw) -> usize {
        let at = draw.unit() * self.0.last().copied().unwrap_or(1.0);
        self.0.partition_point(|sum| *sum < at).min(self.0.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_are_those_of_the_library_nearly() {
        for x in [1e-300, 1e-9, 0.3, 0.999, 1.0, 1.001, 1.5, 2.0, 10.0, 1e9, 1e300] {
            let far: f64 = ln(x) - f64::ln(x);
            assert!(far.abs() <= 1e-13 * f64::ln(x).abs().max(1.0), "ln {x}: {far}");
        }
        for x in [-600.0, -20.0, -0.4, 0.0, 0.2, 1.0, 9.5, 600.0] {
            let ratio: f64 = exp(x) / f64::exp(x);
            assert!((ratio - 1.0).abs() < 1e-12, "exp {x}: {ratio}");
        }
    }

    #[test]
    fn what_is_drawn_has_its_mean() {
        let mut d = Draw::new(7, "means");
        let n = 100_000;
        let mut mean =
            |mut f: Box<dyn FnMut(&mut Draw) -> f64>| (0..n).map(|_| f(&mut d)).sum::<f64>() / f64::from(n);
        let exponential = mean(Box::new(|d| d.exponential(7.0)));
        assert!((exponential / 7.0 - 1.0).abs() < 0.02, "{exponential}");
        let normal = mean(Box::new(|d| ln(d.log_normal(2.0, 1.5))));
        assert!((normal - 2.0).abs() < 0.03, "{normal}");
        let pareto = mean(Box::new(|d| d.pareto(1.0, 3.0)));
        assert!((pareto / 1.5 - 1.0).abs() < 0.02, "{pareto}");
        // Of shape 1 it is the exponential distribution.
        let weibull = mean(Box::new(|d| d.weibull(2.0, 1.0)));
        assert!((weibull / 2.0 - 1.0).abs() < 0.02, "{weibull}");
        let zipf = Zipf::new(2, 1.0);
        let first = mean(Box::new(move |d| f64::from(zipf.draw(d) == 0)));
        assert!((first - 2.0 / 3.0).abs() < 0.01, "{first}");
    }
}
