//! How values are distributed, in fixed memory.

use serde::Serialize;

/// Parts of each power of two: a value is known to 1/128 of itself, below 128 exactly.
const PARTS_LOG: u32 = 7;
const BUCKETS: usize = (64 - PARTS_LOG as usize + 1) << PARTS_LOG;

/// Counts values.
#[derive(Clone)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    max: u64,
}

/// What a distribution looks like. A percentile is at most 0.8 % below the
/// value, mean and maximum are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// A tenth of them is no greater.
    pub p10: f64,
    /// Half of them.
    pub p50: f64,
    /// Nine in ten.
    pub p90: f64,
    /// 99 in a hundred.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum: 0, max: 0 }
    }

    pub(crate) fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// The distribution, of values times `unit`.
    pub(crate) fn percentiles(&self, unit: f64) -> Percentiles {
        if self.count == 0 {
            return Percentiles::default();
        }
        let at = |share: f64| {
            // The smallest value that so many are not above.
            let rank = ((self.count as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let found = self.counts.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            found.map_or(self.max, lowest) as f64 * unit
        };
        Percentiles {
            count: self.count,
            mean: self.sum as f64 / self.count as f64 * unit,
            p10: at(0.1),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: self.max as f64 * unit,
        }
    }
}

fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PARTS_LOG + 1);
    ((shift as usize) << PARTS_LOG) + (value >> shift) as usize
}

/// The least value of a bucket; of sizes, which are seldom odd, often the value itself.
fn lowest(bucket: usize) -> u64 {
    let parts = 1 << PARTS_LOG;
    if bucket < 2 * parts {
        return bucket as u64;
    }
    let shift = (bucket >> PARTS_LOG) as u32 - 1;
    ((bucket - ((shift as usize) << PARTS_LOG)) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_to_its_128th() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for shift in 8..64 {
            for around in [-1_i64, 0, 1, 77] {
                let value = (1_u64 << shift).saturating_add_signed(around);
                let low = lowest(bucket(value));
                assert!(low <= value && value - low <= value / 128, "{value} {low}");
                assert!(bucket(value) == bucket(value - 1) || bucket(value) == bucket(value - 1) + 1);
            }
        }
        for value in 0..256 {
            assert_eq!(lowest(bucket(value)), value);
        }
    }

    #[test]
    fn percentiles_of_a_hundred_values() {
        let mut h = Histogram::new();
        assert_eq!(h.percentiles(1.0), Percentiles::default());
        (1..=100).for_each(|v| h.add(v));
        let p = h.percentiles(2.0);
        assert_eq!(
            (p.count, p.mean, p.p10, p.p50, p.p90, p.p99, p.max),
            (100, 101.0, 20.0, 100.0, 180.0, 198.0, 200.0)
        );
    }
}
