//! Fast arithmetic for the replay loop: division by a number known beforehand, and finding a zone.

/// Divides by a fixed number with a multiplication: a division takes several times as long, and an
/// access needs about ten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    by: u64,
    /// 2⁶⁴ / by, rounded up.
    inverse: u64,
}

impl Divisor {
    /// # Panics
    /// For 0.
    pub(crate) fn new(by: u64) -> Divisor {
        assert!(by > 0, "division by 0");
        Divisor { by, inverse: (u64::MAX / by).wrapping_add(1) }
    }

    pub(crate) fn get(self) -> u64 {
        self.by
    }

    /// Quotient and remainder.
    #[inline]
    pub(crate) fn div_rem(self, n: u64) -> (u64, u64) {
        if self.by == 1 {
            return (n, 0);
        }
        let quotient = ((u128::from(n) * u128::from(self.inverse)) >> 64) as u64;
        let rest = n.wrapping_sub(quotient.wrapping_mul(self.by));
        // The inverse is a little too large; for large numbers the quotient may be as well.
        if rest < self.by { (quotient, rest) } else { (n / self.by, n % self.by) }
    }
}

/// Where to begin looking for the part a number lies in, of parts that begin at ascending numbers.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    shift: u32,
    from: Box<[u16]>,
}

impl Index {
    /// An index of parts that begin at `firsts`, of which the first is 0. At most 65536 parts.
    pub(crate) fn new(firsts: &[u64]) -> Index {
        const SLOTS: u64 = 512;
        let last = firsts.last().copied().unwrap_or(0);
        let shift = (u64::BITS - (last / SLOTS).leading_zeros()).min(63);
        let slots = (last >> shift) + 1;
        let part_at = |n: u64| firsts.partition_point(|f| *f <= n).saturating_sub(1) as u16;
        Index { shift, from: (0..slots).map(|slot| part_at(slot << shift)).collect() }
    }

    /// The part of `n`, or one before it.
    #[inline]
    pub(crate) fn guess(&self, n: u64) -> usize {
        let slot = ((n >> self.shift) as usize).min(self.from.len() - 1);
        usize::from(self.from[slot])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_divisor_divides(n in any::<u64>(), small in any::<u32>(), by in 1u64..=1 << 21) {
            let d = Divisor::new(by);
            for n in [n, u64::from(small), n % by, by - 1, by, u64::MAX] {
                prop_assert_eq!(d.div_rem(n), (n / by, n % by));
            }
        }

        #[test]
        fn an_index_never_points_beyond(mut firsts in prop::collection::vec(1u64..1 << 50, 0..60), n in any::<u64>()) {
            firsts.push(0);
            firsts.sort_unstable();
            firsts.dedup();
            let index = Index::new(&firsts);
            for n in firsts.iter().flat_map(|f| [f.saturating_sub(1), *f, f + 1]).chain([n, n >> 20]) {
                let part = firsts.partition_point(|f| *f <= n) - 1;
                prop_assert!(index.guess(n) <= part);
            }
        }
    }
}
