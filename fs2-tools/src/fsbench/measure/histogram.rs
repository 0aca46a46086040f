//! Latencies in logarithmic buckets.
//!
//! Invariants:
//! 1. Each power of two is divided into [`STEPS`] equal buckets, so a bucket is never wider than a 64th of
//!    what is in it; below [`STEPS`] nanoseconds a bucket is one value.
//! 2. `count`, `sum`, `min` and `max` are exact; a quantile is the middle of a bucket, kept between `min`
//!    and `max`, and thus wrong by at most [`Histogram::RELATIVE_ERROR`].

use serde::{Deserialize, Serialize};

/// Buckets to a power of two, as a power of two.
const STEP_BITS: u32 = 6;
const STEPS: u64 = 1 << STEP_BITS;

/// How often something took how long, in nanoseconds. Two can be added up without loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By [`bucket`]; as long as the highest one used.
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - STEP_BITS;
    (u64::from(shift + 1) * STEPS + ((ns >> shift) - STEPS)) as usize
}

/// First and last value of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return (bucket, bucket);
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    let first = (STEPS + step) << shift;
    (first, first + ((1 << shift) - 1))
}

impl Histogram {
    /// A quantile is at most this share of the true value away from it: half a bucket.
    pub const RELATIVE_ERROR: f64 = 0.5 / STEPS as f64;

    /// One with nothing in it.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// Something took `ns` nanoseconds.
    pub fn record(&mut self, ns: u64) {
        let bucket = bucket(ns);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.count += 1;
        self.sum += u128::from(ns);
    }

    /// Adds what another counted, such as another thread's.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        // What was read from a document may be any number.
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together, nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum
    }

    /// The mean in nanoseconds; `None` of nothing.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The least; `None` of nothing.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The most; `None` of nothing.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// What the share `q` (0 to 1) of all does not exceed, nanoseconds: of n values in order the one at
    /// place q·n, rounded up. `None` of nothing.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (bucket, n) in self.counts.iter().enumerate() {
            seen = n.saturating_add(seen);
            if seen >= rank {
                let (first, last) = bounds(bucket);
                return Some((first + (last - first) / 2).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// The usual ones.
    pub fn percentiles(&self) -> Option<Percentiles> {
        Some(Percentiles {
            count: self.count,
            mean_ns: self.mean_ns()?,
            min_ns: self.min,
            p50_ns: self.quantile_ns(0.50)?,
            p90_ns: self.quantile_ns(0.90)?,
            p95_ns: self.quantile_ns(0.95)?,
            p99_ns: self.quantile_ns(0.99)?,
            p999_ns: self.quantile_ns(0.999)?,
            max_ns: self.max,
        })
    }
}

/// What is told of a histogram, nanoseconds. Mean, least and most are exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many were recorded.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Least.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// What 90 % do not exceed.
    pub p90_ns: u64,
    /// What 95 % do not exceed.
    pub p95_ns: u64,
    /// What 99 % do not exceed.
    pub p99_ns: u64,
    /// What 99.9 % do not exceed.
    pub p999_ns: u64,
    /// Most.
    pub max_ns: u64,
}

/// In a document: the sum, and each bucket in use by its first value. Enough to make it again.
#[derive(Serialize, Deserialize)]
struct Written {
    /// At most what JSON's readers take for a number: 584 years.
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    /// First value and count.
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let used = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        let buckets = used.map(|(bucket, n)| (bounds(bucket).0, *n)).collect();
        let sum_ns = u64::try_from(self.sum).unwrap_or(u64::MAX);
        Written { sum_ns, min_ns: self.min, max_ns: self.max, buckets }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let mut out = Histogram {
            sum: written.sum_ns.into(),
            min: written.min_ns,
            max: written.max_ns,
            ..Histogram::new()
        };
        for (first, n) in written.buckets {
            let bucket = bucket(first);
            if bucket >= out.counts.len() {
                out.counts.resize(bucket + 1, 0);
            }
            out.counts[bucket] = out.counts[bucket].saturating_add(n);
            out.count = out.count.saturating_add(n);
        }
        if out.count > 0 && out.min > out.max {
            return Err(serde::de::Error::custom("a histogram whose least value is above its greatest"));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values of every size, as latencies are: the exponent is drawn, then the rest.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0u32..64, any::<u64>()).prop_map(|(bits, v)| v >> bits);
        proptest::collection::vec(value, 1..300)
    }

    fn of(values: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        values.iter().for_each(|v| h.record(*v));
        h
    }

    #[test]
    fn buckets_follow_one_another_without_gap() {
        let mut next = 0u64;
        for n in 0.. {
            let (first, last) = bounds(n);
            assert_eq!(first, next, "bucket {n}");
            assert_eq!((bucket(first), bucket(last)), (n, n));
            assert!((last - first) as f64 <= first as f64 / STEPS as f64);
            if last == u64::MAX {
                assert!(n < 4096, "{n}");
                break;
            }
            next = last + 1;
        }
    }

    #[test]
    fn of_one_and_of_two() {
        let one = of(&[123_456_789]).percentiles().unwrap();
        let all = [one.min_ns, one.p50_ns, one.p90_ns, one.p95_ns, one.p99_ns, one.p999_ns, one.max_ns];
        assert_eq!(all, [123_456_789; 7], "what is known exactly is told exactly");
        // Of two the lower one is the median, and all above it the higher one.
        let two = of(&[100, 1_000_000]).percentiles().unwrap();
        assert_eq!((two.p50_ns, two.max_ns), (100, 1_000_000));
        for high in [two.p90_ns, two.p95_ns, two.p99_ns, two.p999_ns] {
            assert!(high <= 1_000_000 && (1e6 - high as f64) / 1e6 <= Histogram::RELATIVE_ERROR, "{high}");
        }
        assert_eq!(Histogram::new().percentiles(), None);
        // A document's numbers are anybody's.
        let mut large: Histogram = serde_json::from_str(
            r#"{"sum_ns":9,"min_ns":1,"max_ns":9,"buckets":[[1,18446744073709551615],[9,5]]}"#,
        )
        .unwrap();
        let again = large.clone();
        large.merge(&again);
        assert_eq!((large.count(), large.quantile_ns(1.0)), (u64::MAX, Some(1)));
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_list(mut v in values(), q in 0.0..=1.0f64) {
            let h = of(&v);
            v.sort_unstable();
            for q in [q, 0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
                let rank = ((q * v.len() as f64).ceil() as usize).clamp(1, v.len());
                let (want, got) = (v[rank - 1] as f64, h.quantile_ns(q).unwrap() as f64);
                // The least bit of what f64 holds of a u64 on top.
                prop_assert!((got - want).abs() <= want * (Histogram::RELATIVE_ERROR + 1e-12), "{q}: {got} for {want}");
            }
            prop_assert_eq!(h.max_ns(), v.last().copied());
            prop_assert_eq!(h.min_ns(), v.first().copied());
            prop_assert_eq!(h.sum_ns(), v.iter().map(|v| u128::from(*v)).sum::<u128>());
        }

        #[test]
        fn parts_add_up_to_the_whole(a in values(), b in values()) {
            let mut sum = of(&a);
            sum.merge(&of(&b));
            sum.merge(&Histogram::new());
            let whole: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(&sum, &of(&whole));
            let mut other = Histogram::new();
            other.merge(&of(&a));
            prop_assert_eq!(other, of(&a));
        }

        #[test]
        fn what_is_written_is_read_again(v in values()) {
            let h = of(&v.iter().map(|v| v >> 9).collect::<Vec<_>>());
            let text = serde_json::to_string(&h).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), h);
        }
    }

    #[test]
    fn nothing_has_no_percentiles() {
        let h = Histogram::new();
        assert_eq!((h.percentiles(), h.mean_ns(), h.quantile_ns(0.5)), (None, None, None));
        let text = serde_json::to_string(&h).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), h);
    }

    #[test]
    fn a_document_that_contradicts_itself_is_refused() {
        let text = r#"{"sum_ns":1,"min_ns":9,"max_ns":2,"buckets":[[9,1]]}"#;
        assert!(serde_json::from_str::<Histogram>(text).is_err());
    }
}
