//! Figures that a few wrong samples do not move.

/// The middle one; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

/// Where the given share of the values lies below, 0 to 1; 0 of none.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let i = (share * v.len() as f64) as usize;
    v.get(i.min(v.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Median and number of the values in the window of `width` that holds most of them, the lowest such.
pub(super) fn densest(values: &[f64], width: f64) -> Option<(f64, usize)> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let (mut best, mut from) = (None::<(usize, usize)>, 0);
    for to in 0..v.len() {
        while v[to] - v[from] > width {
            from += 1;
        }
        if best.is_none_or(|(a, b)| to + 1 - from > b - a) {
            best = Some((from, to + 1));
        }
    }
    best.map(|(a, b)| (median(&v[a..b]), b - a))
}

/// A number `s` with as many of the half-open ranges `(x - turn, x]` around it as possible, and half the width of
/// where that is so; the widest such place. `x` are access times, `s` what all of them contain beside a wait
/// of less than a turn.
pub(super) fn agreed(accesses: &[f64], turn: f64) -> Option<(f64, f64)> {
    let mut edges: Vec<(f64, i32)> = accesses.iter().flat_map(|x| [(*x - turn, 1), (*x, -1)]).collect();
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let (mut depth, mut best) = (0, None::<(i32, f64, f64)>);
    for pair in edges.windows(2) {
        depth += pair[0].1;
        let (low, high) = (pair[0].0, pair[1].0);
        let better = |(d, a, b): (i32, f64, f64)| depth > d || depth == d && high - low > b - a;
        if best.is_none_or(better) {
            best = Some((depth, low, high));
        }
    }
    best.map(|(_, low, high)| ((low + high) / 2.0, (high - low) / 2.0))
}

/// Slope of `y` over `x` where both ascend: the median over all pairs at least half the range apart (Theil and
/// Sen). `None` of fewer than two.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let range = points.last()?.0 - points.first()?.0;
    let mut slopes = Vec::new();
    for (i, a) in points.iter().enumerate() {
        for b in &points[i + 1..] {
            if b.0 - a.0 > 0.0 && b.0 - a.0 >= range / 2.0 {
                slopes.push((b.1 - a.1) / (b.0 - a.0));
            }
        }
    }
    (!slopes.is_empty()).then(|| median(&slopes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!((median(&[]), quantile(&[], 0.5)), (0.0, 0.0));
        assert_eq!(quantile(&[5.0, 1.0, 2.0, 4.0, 3.0], 0.75), 4.0);
        assert_eq!(densest(&[9.0, 1.0, 1.2, 1.1, 5.0, 5.1], 0.5), Some((1.1, 3)));
        assert_eq!(densest(&[], 1.0), None);
        assert_eq!(slope(&[(0.0, 0.0), (1.0, 2.0), (2.0, 4.0), (3.0, 60.0), (4.0, 8.0)]), Some(2.0));
        assert_eq!(slope(&[(1.0, 1.0)]), None);
    }

    #[test]
    fn what_access_times_agree_on() {
        // 2 ms and a wait below 8: one answer from a cache, one late by a lot.
        let accesses = [2.1, 9.9, 5.0, 7.0, 2.05, 9.97, 0.1, 31.0];
        let (s, half) = agreed(&accesses, 8.0).unwrap();
        assert!((s - 2.01).abs() < 1e-9 && (half - 0.04).abs() < 1e-9, "{s} {half}");
        assert_eq!(agreed(&[], 8.0), None);
    }
}
