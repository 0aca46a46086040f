//! Shares as people type them.

use fs2_block::Permille;

/// A share of the volume: `5%`, `0.5%`, or the same without the sign, but not below 1: `0.6` may be meant for 60 %.
/// From 0.1 % to 100 %, in steps of 0.1 %.
///
/// # Errors
/// What is wrong with it, with an example.
pub fn parse_percent(text: &str) -> Result<Permille, String> {
    match parse_share(text)? {
        share if share == Permille::default() => Err(wrong("nothing")),
        share => Ok(share),
    }
}

fn wrong(why: &str) -> String {
    format!("{why}; give a share like 5% or 0.5%")
}

/// The same, or nothing: `0%`.
///
/// # Errors
/// As [`parse_percent`].
pub fn parse_share(text: &str) -> Result<Permille, String> {
    let plain = text.trim();
    let number = plain.strip_suffix('%').unwrap_or(plain).trim_end();
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(tenths) {
        return Err(wrong("not a number"));
    }
    if number == plain
        && let Some(both) = fs2d::settings::either(number)
    {
        return Err(both);
    }
    let (tenth, finer) = tenths.split_at(1);
    if finer.bytes().any(|b| b != b'0') {
        return Err(wrong("finer than 0.1%"));
    }
    let permille = whole.parse::<u16>().ok().and_then(|w| w.checked_mul(10)).zip(tenth.parse::<u16>().ok());
    permille.and_then(|(w, t)| Permille::new(w.saturating_add(t))).ok_or_else(|| wrong("more than 100%"))
}

/// `51.2 GiB`: bytes for people.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} bytes");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_as_people_type_them() {
        let permille = |text: &str| parse_percent(text).map(|p| p.share_of(1000));
        for (text, is) in [
            ("5%", 50),
            ("0.5%", 5),
            ("5", 50),
            (" 12.0 % ", 120),
            ("100%", 1000),
            ("0.1%", 1),
            ("7.300%", 73),
        ] {
            assert_eq!(permille(text), Ok(is), "{text:?}");
        }
        for text in [
            "", "%", "5%%", "-5%", "+5", "0", "0.0%", "0.05%", "100.1%", "1000", "99999999", "5.%", ".5%",
            "5,5%", "five",
        ] {
            let said = permille(text).unwrap_err();
            assert!(said.ends_with("give a share like 5% or 0.5%"), "{text:?}: {said}");
        }
        for (text, both) in [("0.6", "0.6% or 60%"), (" 0.05 ", "0.05% or 5%"), ("0.125", "0.125% or 12.5%")]
        {
            assert!(permille(text).unwrap_err().contains(both), "{text}");
        }
        assert_eq!(["0", "0.0%", "5%"].map(|t| parse_share(t).map(|p| p.get())), [Ok(0), Ok(0), Ok(50)]);
        assert!(parse_share("-0%").is_err());
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1 << 40), "1.0 TiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }
}
