//! What a copy is worth: whose place it may take where there is no room for all.

use fs2_block::Nanos;
use fs2_table::value::{OCTAVE, VALUE_MAX};

/// Not said by the policy: whatever is there makes room for it.
pub const UNAPPRAISED: u8 = u8::MAX;

/// What is to take another's place must be worth so much more, in steps of [values](fs2_table::value): twice as much, for two that were
/// read equally often differ by what the platter made of it. Measured: with half an octave a cvs update with room for a third of what it
/// reads copies twice as much and has nothing of it.
pub(crate) const CLEARLY: u8 = OCTAVE;

/// A copy that begins so many blocks behind another at the most is read on from it. As reads go on for policies.
pub(crate) const GOES_ON_BLOCKS: u32 = 64;

/// The lowest value: 1/128 ms a block.
const LEAST_NS: u128 = 1_000_000 / 128;

/// Of a use that saves so much time with so many blocks, as a [value](fs2_table::value): eight steps to the octave, from 1/128 ms a block.
pub fn worth(saved: Nanos, blocks: u32) -> u8 {
    // 2^(k/8) in 1/1024, between two steps.
    const BETWEEN: [u32; OCTAVE as usize] = [1069, 1166, 1272, 1387, 1512, 1649, 1798, 1961];
    let amount = (u128::from(saved.0) << 10) / (LEAST_NS * u128::from(blocks.max(1)));
    let Some(octaves) = amount.checked_ilog2().and_then(|n| n.checked_sub(10)) else { return 0 };
    let mantissa = (amount >> octaves) as u32;
    let steps = BETWEEN.iter().filter(|&&b| mantissa >= b).count() as u32;
    (octaves * u32::from(OCTAVE) + steps).min(u32::from(VALUE_MAX)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_a_block() {
        assert_eq!(worth(Nanos(0), 0), 0);
        assert_eq!(worth(Nanos::from_millis(8), 4), 64, "256 times the least");
        assert_eq!(worth(Nanos::from_millis(8), 1), 80);
        assert_eq!(worth(Nanos::from_millis(8), 2048), 0);
        assert_eq!(worth(Nanos(u64::MAX), 1), 127);
        for ns in (7_900..40_000_000).step_by(1_111) {
            let exact = 8.0 * (ns as f64 / 7812.0).log2();
            assert!((f64::from(worth(Nanos(ns), 1)) - exact).abs() < 0.52, "{ns}");
        }
    }
}
