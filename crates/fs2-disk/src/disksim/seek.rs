//! DiskSim's seek curves, as tables by cylinders.

use super::text::{Block, Parser, Place, Value};
use super::{list, number, word};
use crate::profile::ProfileError;
use crate::seek::SeekCurve;

/// The curve of a mechanical model of a drive with so many cylinders.
pub(super) fn curve(m: &Block, cylinders: u32, parser: &mut Parser<'_>) -> Result<SeekCurve, ProfileError> {
    let (place, kind) = word(m, "Seek type")?;
    let ms = |name: &str| number(m, name, 0.0..=10_000.0);
    let full = f64::from(cylinders.max(2) - 1);
    let curve = match kind {
        // The parameter itself sets the type.
        _ if m.find("Full seek curve").is_some() => extracted(m, parser)?,
        "constant" => SeekCurve::Table { points: vec![(1.0, ms("Constant seek time")?)] },
        "linear" => {
            let (one, mean) = (ms("Single cylinder seek time")?, ms("Average seek time")?);
            let third = (full / 3.0).round();
            let mut points = vec![(1.0, one), (third, mean), (full, ms("Full strobe seek time")?)];
            points.dedup_by(|b, a| b.0 <= a.0);
            SeekCurve::Table { points }
        }
        "curve" => lee(
            ms("Single cylinder seek time")?,
            ms("Average seek time")?,
            ms("Full strobe seek time")?,
            full,
        ),
        "hpl" => hpl(m, full, &[])?,
        "hplplus10" => {
            let name = "First ten seek times";
            let ten = list(m, name)?.iter().map(|(place, v)| match v {
                Value::Number(n) if (0.0..=10_000.0).contains(n) => Ok(*n),
                _ => Err(place.error(format!("{name}: expected milliseconds"))),
            });
            hpl(m, full, &ten.collect::<Result<Vec<_>, _>>()?)?
        }
        other => {
            let what =
                format!("seek type `{other}`, expected extracted, linear, curve, constant, hpl or hplplus10");
            return Err(place.error(what));
        }
    };
    match curve.fault(cylinders.into()) {
        Some(what) => Err(place.error(what)),
        None => Ok(curve),
    }
}

/// A file of measured distances and times.
fn extracted(m: &Block, parser: &mut Parser<'_>) -> Result<SeekCurve, ProfileError> {
    let (place, file) = word(m, "Full seek curve")?;
    let text = parser.file(file, place)?;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let error =
            |what: String| ProfileError::Malformed { name: file.to_owned(), line: i + 1, column: 1, what };
        if line.trim().is_empty() || line.starts_with("Seek distances measured") {
            continue;
        }
        let mut fields = line.split([',', ' ', '\t']).filter(|f| !f.is_empty()).map(str::parse::<f64>);
        let (Some(Ok(distance)), Some(Ok(ms))) = (fields.next(), fields.next()) else {
            return Err(error(format!("`{line}`, expected a distance and milliseconds")));
        };
        let before = points.last().map_or(0.0, |p| p.0);
        // Written so that a NaN fails.
        if !(distance > before && distance <= 1e9 && (0.0..=10_000.0).contains(&ms)) {
            let what = format!(
                "distance {distance} in {ms} ms, expected a distance above {before} and 0 to 10000 ms"
            );
            return Err(error(what));
        }
        points.push((distance, ms));
    }
    if points.is_empty() {
        return Err(place.error(format!("{file} holds no seek time")));
    }
    Ok(SeekCurve::Table { points })
}

/// Distances at which a formula is put down: all short ones, then some in each doubling.
fn distances(full: f64) -> Vec<f64> {
    let mut all = Vec::new();
    let mut d = 1.0;
    while d < full {
        all.push(d);
        d = (d * 1.03_f64).floor().max(d + 1.0);
    }
    all.push(full.max(1.0));
    all
}

/// E. K. Lee, "Performance modeling and analysis of disk arrays" (1993): a + b·(d − 1) + c·√(d − 1)
/// through the shortest, the mean and the longest seek.
fn lee(one: f64, mean: f64, longest: f64, full: f64) -> SeekCurve {
    let root = (-10.0 * one + 15.0 * mean - 5.0 * longest) / (3.0 * full.sqrt());
    let linear = (7.0 * one - 15.0 * mean + 8.0 * longest) / (3.0 * full);
    let at = |d: f64| (d, (one + linear * (d - 1.0) + root * (d - 1.0).sqrt()).max(0.0));
    SeekCurve::Table { points: distances(full).into_iter().map(at).collect() }
}

/// C. Ruemmler, J. Wilkes, "An introduction to disk drive modeling" (1994): root below a distance,
/// a straight line from it on, and a time of its own for one cylinder or for the first ones.
fn hpl(m: &Block, full: f64, first: &[f64]) -> Result<SeekCurve, ProfileError> {
    let name = "HPL seek equation values";
    let values = list(m, name)?;
    let value = |i: usize| match values.get(i) {
        Some((_, Value::Number(n))) if (-1.0..=1e6).contains(n) => Ok(*n),
        Some((place, _)) => Err(place.error(format!("{name}: expected a number of -1 to 1e6"))),
        None => Err(place_of(m).error(format!("{name}: expected six numbers"))),
    };
    let v = [value(0)?, value(1)?, value(2)?, value(3)?, value(4)?, value(5)?];
    let ms = |d: f64| {
        if let Some(ms) = first.get(d as usize - 1) {
            return *ms;
        }
        match d {
            1.0 if v[5] >= 0.0 => v[5],
            d if d < v[0] => v[1] + v[2] * d.sqrt(),
            d => v[3] + v[4] * d,
        }
    };
    let mut at = distances(full);
    at.extend([v[0] - 1.0, v[0]].into_iter().filter(|d| (1.0..=full).contains(d)).map(f64::floor));
    at.sort_by(f64::total_cmp);
    at.dedup();
    Ok(SeekCurve::Table { points: at.into_iter().map(|d| (d, ms(d).clamp(0.0, 10_000.0))).collect() })
}

fn place_of(m: &Block) -> &Place {
    &m.place
}
