//! Figures of several runs: mean with its confidence interval, spread, and whether two settings differ.
//!
//! Student's t and its tail are statrs'. Two settings are compared by Welch's test (B. L. Welch, Biometrika
//! 34, 1947), which does not take their spreads for equal.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The share of intervals that hold the true mean.
pub const CONFIDENCE: f64 = 0.95;

/// Above this coefficient of variation the mean says little: the dagger of the Sehgal thesis.
pub const CV_WILD: f64 = 0.40;

/// What is told of one figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Runs.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; `None` of a single run.
    pub sd: Option<f64>,
    /// Half the width of the mean's 95 % confidence interval by Student's t; `None` of a single run.
    pub ci95_half: Option<f64>,
    /// Coefficient of variation, sd / |mean|; `None` of a single run or a mean of 0.
    pub cv: Option<f64>,
    /// Median.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
}

impl Summary {
    /// `None` of no values, or where one is not finite.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        // About the mean, not by the sum of squares: small spreads of large values stay.
        let variance =
            (n > 1).then(|| sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64);
        let sd = variance.map(f64::sqrt);
        let ci95_half = sd.and_then(|sd| Some(t_quantile((n - 1) as f64)? * sd / (n as f64).sqrt()));
        Some(Summary {
            n: n as u64,
            mean,
            sd,
            ci95_half,
            cv: sd.filter(|_| mean != 0.0).map(|sd| sd / mean.abs()),
            median: median_of_sorted(&sorted),
            min: sorted[0],
            max: sorted[n - 1],
        })
    }

    /// Half the interval's width as a share of the mean; `None` of a single run or a mean of 0.
    pub fn relative_half(&self) -> Option<f64> {
        self.ci95_half.filter(|_| self.mean != 0.0).map(|half| half / self.mean.abs())
    }

    /// Whether the coefficient of variation is above [`CV_WILD`].
    pub fn is_wild(&self) -> bool {
        self.cv.is_some_and(|cv| cv > CV_WILD)
    }
}

/// The middle of sorted values, or the mean of the two in the middle.
fn median_of_sorted(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Beyond this |t| 5 % lie, both tails together; `None` for less than nothing of freedom.
fn t_quantile(freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(1.0 - (1.0 - CONFIDENCE) / 2.0))
}

/// Whether B differs from A, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welch {
    /// Mean of B less mean of A.
    pub difference: f64,
    /// The same as a share of A's mean; `None` where that is 0.
    pub relative: Option<f64>,
    /// Half the width of the difference's 95 % confidence interval.
    pub ci95_half: f64,
    /// The test's statistic; `None` where neither varies.
    pub t: Option<f64>,
    /// Degrees of freedom (Welch and Satterthwaite); `None` where neither varies.
    pub freedom: Option<f64>,
    /// How often a difference as large comes of chance, both sides.
    pub p: f64,
}

impl Welch {
    /// Compares; `None` where one has fewer than two values or one that is not finite.
    pub fn test(a: &[f64], b: &[f64]) -> Option<Welch> {
        let (a, b) = (Summary::of(a)?, Summary::of(b)?);
        let (va, vb) = (a.sd?.powi(2) / a.n as f64, b.sd?.powi(2) / b.n as f64);
        let difference = b.mean - a.mean;
        let relative = (a.mean != 0.0).then(|| difference / a.mean.abs());
        let variance = va + vb;
        // Sums of equal values may differ by rounding; such a spread is none.
        let rounding = (a.mean.abs().max(b.mean.abs()) * 1e-14).powi(2);
        if variance <= rounding {
            let p = if difference.abs() <= rounding.sqrt() { 1.0 } else { 0.0 };
            return Some(Welch { difference, relative, ci95_half: 0.0, t: None, freedom: None, p });
        }
        let freedom = variance.powi(2) / (va.powi(2) / (a.n - 1) as f64 + vb.powi(2) / (b.n - 1) as f64);
        let t = difference / variance.sqrt();
        let tails = StudentsT::new(0.0, 1.0, freedom).ok()?;
        Some(Welch {
            difference,
            relative,
            ci95_half: t_quantile(freedom)? * variance.sqrt(),
            t: Some(t),
            freedom: Some(freedom),
            p: 2.0 * tails.cdf(-t.abs()),
        })
    }

    /// Whether A and B can be told apart at 95 %.
    pub fn is_distinguishable(&self) -> bool {
        self.p < 1.0 - CONFIDENCE
    }
}

/// When enough was run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopRule {
    /// Not fewer.
    pub runs_min: u32,
    /// Not more.
    pub runs_max: u32,
    /// Until half the confidence interval is below this share of the mean; `None`: `runs_min`, no more.
    pub relative_half: Option<f64>,
}

/// What a [`StopRule`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Another run.
    More,
    /// Enough.
    Done,
    /// As many as may be, and the interval is still this share of the mean to each side.
    NotReached {
        /// Half the interval as a share of the mean; `None` where it cannot be told.
        relative_half: Option<f64>,
    },
}

impl StopRule {
    /// Judges the runs there are. An interval judged after each run is a little too narrow, as chance ends
    /// it early; at least five runs keep that small.
    pub fn judge(&self, values: &[f64]) -> Verdict {
        let n = values.len();
        if n < self.runs_min as usize {
            return Verdict::More;
        }
        let Some(wanted) = self.relative_half else { return Verdict::Done };
        let relative_half = Summary::of(values).and_then(|s| s.relative_half());
        match relative_half {
            Some(half) if half < wanted => Verdict::Done,
            _ if n >= self.runs_max as usize => Verdict::NotReached { relative_half },
            _ => Verdict::More,
        }
    }
}

/// Runs that lie far from the others: a modified z-score (0.6745·|x − median| / MAD; Iglewicz and Hoaglin,
/// 1993) above 10, as hyperfine has it, since few runs make the usual 3.5 too eager. Their indices.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    const FAR: f64 = 10.0;
    if values.len() < 4 || values.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted);
    let mut away: Vec<f64> = values.iter().map(|v| (v - median).abs()).collect();
    away.sort_by(f64::total_cmp);
    // Equal values but for one have no deviation; a thousandth of the median stands in.
    let mad = median_of_sorted(&away).max(median.abs() * 1e-3);
    let far = |v: &f64| 0.6745 * (v - median).abs() > FAR * mad;
    values.iter().enumerate().filter(|(_, v)| far(v)).map(|(i, _)| i).collect()
}

/// Whether the first value stands out from the others, towards more.
pub fn first_is_high(values: &[f64]) -> bool {
    outliers(values).first() == Some(&0) && values[1..].iter().all(|v| *v < values[0])
}

/// Whether the first value stands out from the others, towards less.
pub fn first_is_low(values: &[f64]) -> bool {
    outliers(values).first() == Some(&0) && values[1..].iter().all(|v| *v > values[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 5e-5 * want.abs().max(1.0), "{got} for {want}");
    }

    /// R: x <- c(12.1, 11.9, 12.4, 12.0, 12.6); t.test(x) gives 11.84, 12.56 to two digits.
    #[test]
    fn a_summary_by_hand() {
        let s = Summary::of(&[12.1, 11.9, 12.4, 12.0, 12.6]).unwrap();
        assert_eq!((s.n, s.median, s.min, s.max), (5, 12.1, 11.9, 12.6));
        near(s.mean, 12.2);
        // Squares: .01 + .09 + .04 + .04 + .16 = .34; / 4 = .085.
        near(s.sd.unwrap(), 0.085f64.sqrt());
        // t of 4 degrees at 97.5 % is 2.776445.
        near(s.ci95_half.unwrap(), 2.776445 * (0.085f64 / 5.0).sqrt());
        near(s.cv.unwrap(), 0.085f64.sqrt() / 12.2);
        assert!(!s.is_wild());
        assert!(Summary::of(&[1.0, 5.0]).unwrap().is_wild());
    }

    /// Student's t at 97.5 %, from the printed tables.
    #[test]
    fn quantiles_of_the_tables() {
        for (freedom, want) in
            [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (6.0, 2.447), (9.0, 2.262), (29.0, 2.045)]
        {
            let got = t_quantile(freedom).unwrap();
            assert!((got - want).abs() < 6e-4, "{freedom}: {got}");
        }
    }

    #[test]
    fn a_single_run_has_no_interval() {
        let s = Summary::of(&[7.0]).unwrap();
        assert_eq!((s.sd, s.ci95_half, s.cv, s.relative_half()), (None, None, None, None));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().cv, None);
    }

    /// By hand: two values 2 apart have a standard deviation of the root of 2 and one degree of freedom, whose t is 12.7062.
    #[test]
    fn two_runs_have_a_wide_interval() {
        let s = Summary::of(&[3.0, 1.0]).unwrap();
        assert_eq!((s.n, s.mean, s.median, s.min, s.max), (2, 2.0, 2.0, 1.0, 3.0));
        near(s.sd.unwrap(), 2f64.sqrt());
        assert!((s.ci95_half.unwrap() - 12.7062).abs() < 1e-3, "{s:?}");
        // Variances of 1 and 4 of the means: t = 2 / sqrt 5, freedom = 25 / (1 + 16).
        let w = Welch::test(&[1.0, 3.0], &[2.0, 6.0]).unwrap();
        near(w.t.unwrap(), 2.0 / 5f64.sqrt());
        near(w.freedom.unwrap(), 25.0 / 17.0);
        assert!(!w.is_distinguishable());
        // One that does not vary beside one that does: the other's freedom alone.
        near(Welch::test(&[1.0, 1.0], &[2.0, 6.0, 4.0]).unwrap().freedom.unwrap(), 2.0);
        assert!(outliers(&[1.0, 900.0]).is_empty() && !first_is_high(&[900.0, 1.0]));
    }

    /// Welch's example as R has it: t.test(extra ~ group, data = sleep) gives t = -1.8608, df = 17.776,
    /// p = 0.07939, interval -3.3654832 to 0.2054832.
    #[test]
    fn students_sleep_data() {
        let a = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let b = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let w = Welch::test(&a, &b).unwrap();
        near(w.difference, 1.58);
        near(w.t.unwrap(), 1.8608);
        assert!((w.freedom.unwrap() - 17.776).abs() < 5e-4);
        near(w.p, 0.07939);
        near(w.difference - w.ci95_half, -0.2054832);
        near(w.difference + w.ci95_half, 3.3654832);
        assert!(!w.is_distinguishable());
        // The other way round is the same but for the sign.
        let back = Welch::test(&b, &a).unwrap();
        near(back.t.unwrap(), -1.8608);
        near(back.p, w.p);
    }

    #[test]
    fn values_that_do_not_vary() {
        let same = Welch::test(&[0.1 + 0.2; 3], &[0.3; 4]).unwrap();
        assert!(!same.is_distinguishable(), "{same:?}");
        let other = Welch::test(&[1.0; 3], &[2.0; 3]).unwrap();
        assert!(other.is_distinguishable());
        assert_eq!(other.relative, Some(1.0));
        assert_eq!(Welch::test(&[1.0], &[2.0, 3.0]), None);
        assert_eq!(Welch::test(&[0.0, 1.0, -1.0], &[2.0, 3.0]).unwrap().relative, None);
    }

    #[test]
    fn runs_until_the_interval_is_narrow() {
        let rule = StopRule { runs_min: 3, runs_max: 5, relative_half: Some(0.05) };
        assert_eq!(rule.judge(&[1.0, 1.0]), Verdict::More);
        assert_eq!(rule.judge(&[1.0, 1.0, 1.0]), Verdict::Done);
        assert_eq!(rule.judge(&[1.0, 2.0, 3.0]), Verdict::More);
        match rule.judge(&[1.0, 2.0, 3.0, 1.0, 2.0]) {
            Verdict::NotReached { relative_half: Some(half) } => assert!(half > 0.05),
            other => panic!("{other:?}"),
        }
        // Where nothing can be told, it ends all the same.
        let nothing = Verdict::NotReached { relative_half: None };
        assert_eq!(rule.judge(&[0.0; 5]), nothing);
        assert_eq!(rule.judge(&[f64::NAN; 5]), nothing);
        let fixed = StopRule { relative_half: None, ..rule };
        assert_eq!(fixed.judge(&[1.0, 2.0]), Verdict::More);
        assert_eq!(fixed.judge(&[1.0, 9.0, 3.0]), Verdict::Done);
    }

    #[test]
    fn what_stands_out() {
        assert_eq!(outliers(&[10.0, 10.1, 9.9, 10.05, 30.0]), [4]);
        assert_eq!(outliers(&[10.0, 10.0, 10.0, 10.0, 30.0]), [4]);
        assert!(outliers(&[10.0, 10.1, 9.9, 10.05, 10.3]).is_empty());
        assert!(outliers(&[1.0, 50.0, 100.0]).is_empty(), "three say nothing");
        assert!(first_is_high(&[30.0, 10.1, 9.9, 10.05, 10.0]));
        assert!(!first_is_low(&[30.0, 10.1, 9.9, 10.05, 10.0]));
        assert!(first_is_low(&[3.0, 10.1, 9.9, 10.05, 10.0]));
        assert!(!first_is_high(&[10.0, 10.1, 9.9, 10.05, 30.0]));
    }
}
