//! What a replica's place is worth: 0 to 127, eight steps to the octave, so that what was read once and what was read
//! twenty times differ whether a use saves much or little. What the lowest value stands for is the caller's.

/// Values saturate here.
pub const VALUE_MAX: u8 = 0x7f;

/// So many steps up are twice as much.
pub const OCTAVE: u8 = 8;

/// What is added to the greater of two values that lie so far apart: 8 log2(1 + 2^(-n/8)).
const MORE: [u8; 37] = [
    8, 8, 7, 7, 6, 6, 5, 5, 5, 4, 4, 4, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 0,
];

/// Both together. What is less than a 22nd of the other adds nothing to it.
pub fn sum(a: u8, b: u8) -> u8 {
    let more = MORE.get(usize::from(a.abs_diff(b))).copied().unwrap_or(0);
    a.max(b).saturating_add(more).min(VALUE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_eighths_of_an_octave() {
        let amount = |value: u8| (f64::from(value) / f64::from(OCTAVE)).exp2();
        for a in 0..=VALUE_MAX {
            for b in 0..=VALUE_MAX {
                let exact = (f64::from(OCTAVE) * (amount(a) + amount(b)).log2()).round();
                assert_eq!(f64::from(sum(a, b)), exact.min(127.0), "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_value_grows_to_twenty_uses() {
        let uses = (0..100).fold(50, |value, _| sum(value, 50));
        assert!((50 + 35..50 + 40).contains(&uses), "{uses}");
    }
}
