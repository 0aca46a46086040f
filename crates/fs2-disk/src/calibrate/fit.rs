//! A seek curve through measured points.

use super::robust::median;
use crate::seek::SeekCurve;

/// Weighted least squares: `y` of each row from its `x`, by the normal equations. The few columns are scaled
/// by the caller to about 1. `None` where they depend on each other.
fn least_squares(rows: &[Vec<f64>], y: &[f64], weights: &[f64]) -> Option<Vec<f64>> {
    let n = rows.first()?.len();
    let mut m = vec![vec![0.0; n + 1]; n];
    for ((row, y), w) in rows.iter().zip(y).zip(weights) {
        for i in 0..n {
            for j in 0..n {
                m[i][j] += w * row[i] * row[j];
            }
            m[i][n] += w * row[i] * y;
        }
    }
    for i in 0..n {
        let pivot = (i..n).max_by(|a, b| m[*a][i].abs().total_cmp(&m[*b][i].abs()))?;
        m.swap(i, pivot);
        if m[i][i].abs() < 1e-12 {
            return None;
        }
        let (above, below) = m.split_at_mut(i + 1);
        for row in below {
            let factor = row[i] / above[i][i];
            for j in i..=n {
                row[j] -= factor * above[i][j];
            }
        }
    }
    let mut x = vec![0.0; n];
    for i in (0..n).rev() {
        let rest: f64 = (i + 1..n).map(|j| m[i][j] * x[j]).sum();
        x[i] = (m[i][n] - rest) / m[i][i];
    }
    x.iter().all(|v| v.is_finite()).then_some(x)
}

fn residuals(rows: &[Vec<f64>], y: &[f64], x: &[f64]) -> Vec<f64> {
    let at = |row: &Vec<f64>| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
    rows.iter().zip(y).map(|(row, y)| at(row) - y).collect()
}

/// Least squares with points far off weighted down (Huber), every residual relative to its point's time. The
/// coefficients and the mean square of what is off.
fn robust_fit(rows: &[Vec<f64>], y: &[f64]) -> Option<(Vec<f64>, f64)> {
    if rows.len() < rows.first()?.len() + 2 {
        return None;
    }
    // A fifth of a millisecond below which an error is not relative any more: noise is not.
    let base: Vec<f64> = y.iter().map(|ms| 1.0 / (ms + 0.2).powi(2)).collect();
    let mut weights = base.clone();
    let mut x = least_squares(rows, y, &weights)?;
    let mut off = 0.0;
    for _ in 0..6 {
        let r = residuals(rows, y, &x);
        let relative: Vec<f64> = r.iter().zip(&base).map(|(r, w)| r.abs() * w.sqrt()).collect();
        let scale = (1.48 * median(&relative)).max(2e-3);
        let soft = |r: f64| (1.5 * scale / r.max(1e-12)).min(1.0);
        weights = relative.iter().zip(&base).map(|(r, w)| w * soft(*r)).collect();
        off = relative.iter().map(|r| soft(*r) * r * r).sum::<f64>() / (rows.len() - x.len()) as f64;
        x = least_squares(rows, y, &weights)?;
    }
    Some((x, off))
}

/// Distances at which a curve may bend.
fn knees(points: &[(f64, f64)]) -> Vec<f64> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return vec![] };
    let ratio = (last.0 / first.0).powf(1.0 / 200.0);
    (1..200).map(|i| first.0 * ratio.powi(i)).collect()
}

fn sqrt_linear(points: &[(f64, f64)]) -> Option<(SeekCurve, f64)> {
    let most = points.last()?.0;
    let y: Vec<f64> = points.iter().map(|p| p.1).collect();
    let mut best = None::<(SeekCurve, f64)>;
    for knee in knees(points) {
        let k = knee / most;
        let row = |p: &(f64, f64)| vec![1.0, (p.0 / most).min(k).sqrt(), (p.0 / most - k).max(0.0)];
        let rows: Vec<Vec<f64>> = points.iter().map(row).collect();
        let Some((x, off)) = robust_fit(&rows, &y) else { continue };
        if x.iter().any(|v| *v < 0.0) || best.as_ref().is_some_and(|(_, least)| *least <= off) {
            continue;
        }
        let curve = SeekCurve::SqrtLinear { base: x[0], root: x[1] / most.sqrt(), knee, slope: x[2] / most };
        best = Some((curve, off));
    }
    best
}

fn cubic_linear(points: &[(f64, f64)]) -> Option<(SeekCurve, f64)> {
    let most = points.last()?.0;
    let mut best = None::<(SeekCurve, f64)>;
    for knee in knees(points) {
        let (near, far): (Vec<_>, Vec<_>) = points.iter().partition(|p| p.0 < knee);
        let powers = |p: &(f64, f64)| (0..4).map(|n| (p.0 / knee).powi(n)).collect();
        let line = |p: &(f64, f64)| vec![1.0, p.0 / most];
        let times = |part: &[(f64, f64)]| part.iter().map(|p| p.1).collect::<Vec<f64>>();
        let below = robust_fit(&near.iter().map(powers).collect::<Vec<_>>(), &times(&near));
        let above = robust_fit(&far.iter().map(line).collect::<Vec<_>>(), &times(&far));
        let (Some((a, off_a)), Some((b, off_b))) = (below, above) else { continue };
        let off = (off_a * near.len() as f64 + off_b * far.len() as f64) / points.len() as f64;
        let curve = SeekCurve::CubicLinear {
            cubic: [a[3] / knee.powi(3), a[2] / knee.powi(2), a[1] / knee, a[0]],
            knee,
            linear: [b[1] / most, b[0]],
        };
        // At its knee a curve may not leap.
        let leap = (curve.millis(knee as u64 + 1) - curve.millis((knee as u64).saturating_sub(1))).abs();
        if leap < 0.05 * b[0].abs() + 0.1
            && bounded(&curve, points)
            && best.as_ref().is_none_or(|(_, least)| *least > off)
        {
            best = Some((curve, off));
        }
    }
    best
}

/// No way takes much longer than the longest that was measured, none shorter than all of them much less than those. Where
/// points are few or close together, a cubic passes through all of them and goes anywhere beside them.
fn bounded(curve: &SeekCurve, points: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    let top = points.iter().map(|p| p.1).fold(0.0, f64::max);
    (0..=200).all(|i| {
        let x = last.0.powf(f64::from(i) / 200.0);
        let ms = curve.millis(x as u64);
        ms <= 1.25 * top + 0.1 && (x >= first.0 || ms >= 0.5 * first.1)
    })
}

/// What a curve may be off by at a point before the points themselves say more than it: 3 %, and 40 µs that
/// are the measurement's.
fn tolerable(curve: &SeekCurve, points: &[(f64, f64)]) -> bool {
    let off = |p: &&(f64, f64)| (curve.millis(p.0 as u64) - p.1).abs() > 0.03 * p.1 + 0.04;
    // One point of ten may be wrong itself.
    points.iter().filter(off).count() * 10 <= points.len()
}

/// Whether it ends, at `full` sectors, no higher than in proportion to the way beyond what was measured, and not far below: a line
/// through two points close together goes on as their noise lies.
fn ends_well(curve: &SeekCurve, points: &[(f64, f64)], full: u64) -> bool {
    let Some(last) = points.last() else { return false };
    let top = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let end = curve.millis(full);
    end <= 1.25 * top * (full as f64 / last.0).max(1.0) + 0.1 && end >= 0.5 * last.1
}

/// The curve, of the forms a profile knows, that fits best, over a volume of `full` sectors: distance in sectors, ascending, and
/// milliseconds.
pub(super) fn curve(points: &[(f64, f64)], full: u64) -> SeekCurve {
    let root = sqrt_linear(points);
    let cubic = cubic_linear(points);
    let chosen = match (root, cubic) {
        // Six numbers fit a little better than four in any case.
        (Some(r), Some(c)) => Some(if c.1 < 0.6 * r.1 { c.0 } else { r.0 }),
        (r, c) => r.or(c).map(|f| f.0),
    };
    if let Some(curve) = chosen.filter(|c| tolerable(c, points) && ends_well(c, points, full)) {
        return curve;
    }
    let mut points = points.to_vec();
    let table = SeekCurve::Table { points: points.clone() };
    match points.last() {
        // As long as the longest that was measured.
        Some(&(x, ms)) if x < full as f64 && !ends_well(&table, &points, full) => {
            points.push((full as f64, ms));
            SeekCurve::Table { points }
        }
        _ => table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(curve: &SeekCurve) -> Vec<(f64, f64)> {
        (0..30).map(|i| 4000.0 * 1.42f64.powi(i)).map(|x| (x, curve.millis(x as u64))).collect()
    }

    fn close(a: &SeekCurve, b: &SeekCurve) {
        for (x, ms) in through(b) {
            assert!(
                (a.millis(x as u64) - ms).abs() < 0.01 * ms + 0.01,
                "at {x}: {} {ms}",
                a.millis(x as u64)
            );
        }
    }

    #[test]
    fn the_form_it_was_made_from() {
        let root = SeekCurve::SqrtLinear { base: 0.6, root: 7e-4, knee: 3e7, slope: 3e-8 };
        let mut points = through(&root);
        points[7].1 *= 3.0;
        let found = curve(&points, 500_000_000);
        assert!(matches!(found, SeekCurve::SqrtLinear { .. }), "{found:?}");
        close(&found, &root);
        let cubic = SeekCurve::CubicLinear {
            cubic: [7.9e-21, -1.6e-13, 1.15e-6, 1.35],
            knee: 1.1e7,
            linear: [9e-8, 4.16],
        };
        let found = curve(&through(&cubic), 500_000_000);
        close(&found, &cubic);
    }

    /// As measured on the first 256 MiB of a large drive, where all moves take about as long.
    #[test]
    fn a_cubic_that_leaves_its_points_is_no_curve() {
        let points = [
            (315_371.0, 0.3654),
            (328_292.0, 0.3651),
            (335_877.0, 0.3704),
            (336_495.0, 0.3705),
            (336_502.0, 0.3710),
            (339_981.0, 0.3827),
            (339_983.0, 0.3727),
            (339_985.0, 0.3636),
            (340_593.0, 0.3592),
            (348_182.0, 0.3683),
            (352_906.0, 0.3714),
            (365_206.0, 0.3749),
            (422_999.0, 0.3770),
        ];
        let found = curve(&points, 500_000_000);
        for distance in [1, 100, 8192, 50_000, 250_000, 420_000] {
            assert!(found.millis(distance) < 0.5, "{distance}: {} of {found:?}", found.millis(distance));
        }
    }

    /// As measured on 322 MiB of a large drive: the line through the last two, 120 sectors apart, ended at 115 ms.
    #[test]
    fn a_curve_ends_as_what_was_measured_does() {
        let mut points = vec![
            (343_488.0, 0.2709),
            (398_424.0, 0.2668),
            (435_672.0, 0.2571),
            (450_048.0, 0.2584),
            (458_584.0, 0.2514),
            (464_352.0, 0.2604),
            (468_304.0, 0.2557),
            (468_936.0, 0.2340),
            (468_944.0, 0.2650),
            (469_064.0, 0.3368),
        ];
        for last in [0.3368, 0.2] {
            points[9].1 = last;
            let found = curve(&points, 659_456);
            for distance in [469_064, 500_000, 600_000, 659_456] {
                let ms = found.millis(distance);
                assert!((0.1..0.6).contains(&ms), "{distance}: {ms} of {found:?}");
            }
        }
    }

    #[test]
    fn points_that_no_form_fits_stay_points() {
        let points: Vec<(f64, f64)> = (1..30).map(|i| (f64::from(i) * 1e6, f64::from(i % 7) + 1.0)).collect();
        assert_eq!(curve(&points, 30_000_000), SeekCurve::Table { points });
    }
}
