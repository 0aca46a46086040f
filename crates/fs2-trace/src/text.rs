//! Words and numbers of a line, from its bytes: no text is made of them, and nothing panics.

/// The words of a line, cut at spaces and tabs.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Words<'a> {
        Words { rest: line }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let from = self.rest.iter().position(|b| !is_space(*b))?;
        let word = &self.rest[from..];
        let len = word.iter().position(|b| is_space(*b)).unwrap_or(word.len());
        let (word, rest) = word.split_at(len);
        self.rest = rest;
        Some(word)
    }
}

#[inline]
fn is_space(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// The fields of a line, cut at `mark`, without the spaces around them.
pub(crate) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    mark: u8,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(line: &'a [u8], mark: u8) -> Fields<'a> {
        Fields { rest: Some(line), mark }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        match rest.iter().position(|b| *b == self.mark) {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                Some(rest[..at].trim_ascii())
            }
            None => {
                self.rest = None;
                Some(rest.trim_ascii())
            }
        }
    }
}

/// A whole number.
#[inline]
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    let mut n: u64 = 0;
    // Nineteen digits cannot overflow.
    if word.len() <= 19 {
        for b in word {
            let digit = b.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            n = n * 10 + u64::from(digit);
        }
        return Some(n);
    }
    for b in word {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(n)
}

/// A number with an optional fraction or exponent, times `unit` and cut to a whole: with a `unit`
/// of 1,000,000,000 the nanoseconds of a time in seconds. Exact but for numbers with an exponent.
#[inline]
pub(crate) fn decimal(word: &[u8], unit: u64) -> Option<u64> {
    let Some(dot) = word.iter().position(|b| !b.is_ascii_digit()) else {
        return number(word)?.checked_mul(unit);
    };
    let (whole, rest) = word.split_at(dot);
    let whole = if whole.is_empty() { 0 } else { number(whole)?.checked_mul(unit)? };
    let Some(fraction) = rest.strip_prefix(b".") else {
        return scientific(word, unit);
    };
    if fraction.is_empty() && dot == 0 {
        return None;
    }
    let mut part = 0;
    let mut scale = unit;
    for b in fraction {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return scientific(word, unit);
        }
        // The units tried have no more than nine zeroes; digits beyond them are worth nothing.
        if scale.is_multiple_of(10) {
            scale /= 10;
            part += u64::from(digit) * scale;
        } else {
            scale = 0;
        }
    }
    whole.checked_add(part)
}

/// A number with an exponent.
#[cold]
fn scientific(word: &[u8], unit: u64) -> Option<u64> {
    if !matches!(word.first(), Some(b'0'..=b'9' | b'.')) || word.len() > 64 {
        return None;
    }
    let value = std::str::from_utf8(word).ok()?.parse::<f64>().ok()? * unit as f64;
    // Below 2^63 the conversion is sound, and no trace is longer.
    (value.is_finite() && (0.0..9.2e18).contains(&value)).then_some(value as u64)
}

/// A whole number in hexadecimal, with or without `0x`.
pub(crate) fn hex(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"0x").unwrap_or(word);
    if word.is_empty() || word.len() > 16 {
        return None;
    }
    let mut n = 0;
    for b in word {
        n = n << 4 | u64::from((*b as char).to_digit(16)?);
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"-1"), None);
        assert_eq!(hex(b"0x1F"), Some(31));
        assert_eq!(hex(b"g"), None);
    }

    #[test]
    fn decimals_are_exact() {
        const S: u64 = 1_000_000_000;
        assert_eq!(decimal(b"1.5", S), Some(1_500_000_000));
        assert_eq!(decimal(b"0.000000001", S), Some(1));
        assert_eq!(decimal(b"0.0000000019", S), Some(1));
        assert_eq!(decimal(b"7", S), Some(7 * S));
        assert_eq!(decimal(b".25", S), Some(250_000_000));
        assert_eq!(decimal(b"3.", S), Some(3 * S));
        assert_eq!(decimal(b"1e-3", S), Some(1_000_000));
        assert_eq!(decimal(b"2.5E1", 1000), Some(25_000));
        // A quarter of 100 is a whole; the digits beyond two zeroes are cut.
        assert_eq!(decimal(b"1.259", 100), Some(125));
        for bad in [&b"."[..], b"", b"x", b"-1", b"1.x", b"nan", b"inf", b"1e99", b"18446744074"] {
            assert_eq!(decimal(bad, S), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn words_and_fields() {
        let words: Vec<_> = Words::new(b"  a\tbc  d ").collect();
        assert_eq!(words, [&b"a"[..], b"bc", b"d"]);
        let fields: Vec<_> = Fields::new(b"1, 2 ,,3", b',').collect();
        assert_eq!(fields, [&b"1"[..], b"2", b"", b"3"]);
    }
}
