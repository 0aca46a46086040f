//! How long the arm takes, as a function of logical distance.

use fs2_block::Nanos;

/// Seek time against distance in 512-byte sectors, milliseconds.
///
/// A logical distance is what can be measured without knowing a drive's cylinders; the paper's
/// section 4.2 characterises its drive so. Every form gives 0 ms for distance 0 and never less
/// than 0 ms: a curve that turns negative is cut off there.
#[derive(Clone, Debug, PartialEq)]
pub enum SeekCurve {
    /// `c3·x³ + c2·x² + c1·x + c0` below the knee, `slope·x + offset` from it on: the paper's form.
    CubicLinear {
        /// c3, c2, c1, c0 in milliseconds per sector³, per sector², per sector, and milliseconds.
        cubic: [f64; 4],
        /// First distance, in sectors, of the linear branch.
        knee: f64,
        /// Slope in milliseconds per sector and offset in milliseconds.
        linear: [f64; 2],
    },
    /// `base + root·√x` up to the knee, continued from there with a straight line.
    SqrtLinear {
        /// Milliseconds for the shortest move.
        base: f64,
        /// Milliseconds per square root of a sector.
        root: f64,
        /// Where the straight line begins, in sectors.
        knee: f64,
        /// Slope of the straight line, milliseconds per sector.
        slope: f64,
    },
    /// Measured points, distances ascending, joined by straight lines. Nearer than the first
    /// point costs as the first; beyond the last, the last line goes on.
    Table {
        /// Distance in sectors and time in milliseconds.
        points: Vec<(f64, f64)>,
    },
}

/// Longer than any arm has ever taken: what is added up from seeks stays a time.
pub(crate) const SEEK_MAX_MS: f64 = 10_000.0;

/// From end to end an arm takes at least this share of what it takes on the way, or this much less, in ms: otherwise the numbers are in the
/// wrong order. Curves have dips, measured ones too: DiskSim's of the Atlas 10K one to 0.71, the WD's as the paper prints it one to 0. Guesses.
const FALL_SHARE: f64 = 0.5;
const FALL_MS: f64 = 1.0;

/// Distances at which a curve is looked at, besides its ends.
const SEEK_STEPS: u128 = 512;

impl SeekCurve {
    /// Milliseconds to move `distance` sectors.
    pub fn millis(&self, distance: u64) -> f64 {
        if distance == 0 {
            return 0.0;
        }
        let x = distance as f64;
        let ms = match self {
            SeekCurve::CubicLinear { cubic: [c3, c2, c1, c0], knee, linear: [slope, offset] } => {
                if x < *knee { ((c3 * x + c2) * x + c1) * x + c0 } else { slope * x + offset }
            }
            SeekCurve::SqrtLinear { base, root, knee, slope } => {
                base + root * x.min(*knee).sqrt() + slope * (x - knee).max(0.0)
            }
            SeekCurve::Table { points } => interpolate(points, x),
        };
        ms.max(0.0)
    }

    /// What is wrong with it over so many sectors or cylinders: it takes longer than [`SEEK_MAX_MS`] anywhere, or far less
    /// from end to end than on the way.
    pub(crate) fn fault(&self, full: u64) -> Option<String> {
        let knee = match self {
            SeekCurve::CubicLinear { knee, .. } | SeekCurve::SqrtLinear { knee, .. } => *knee as u64,
            SeekCurve::Table { .. } => 0,
        };
        let steps = (1..=SEEK_STEPS).map(|i| (u128::from(full) * i / SEEK_STEPS) as u64);
        let halves = (0..u64::BITS).map(|n| full >> n);
        let ends = [knee.min(full), knee.saturating_sub(1).min(full)];
        let all = steps.chain(halves).chain(ends).map(|x| (self.millis(x), x));
        let (ms, x) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
        if ms > SEEK_MAX_MS {
            return Some(format!("a seek over {x} takes {ms:.0} ms, expected at most {SEEK_MAX_MS}"));
        }
        let end = self.millis(full);
        (end < ms * FALL_SHARE && end < ms - FALL_MS).then(|| {
            format!(
                "a seek over {x} takes {ms:.2} ms, and one from end to end, over {full}, only {end:.2}, expected longer times for longer distances"
            )
        })
    }

    /// The curve with every time multiplied by `factor` (a deliberately wrong belief, a slower arm).
    pub(crate) fn scaled(&self, factor: f64) -> SeekCurve {
        match self.clone() {
            SeekCurve::CubicLinear { cubic, knee, linear } => SeekCurve::CubicLinear {
                cubic: cubic.map(|c| c * factor),
                knee,
                linear: linear.map(|c| c * factor),
            },
            SeekCurve::SqrtLinear { base, root, knee, slope } => SeekCurve::SqrtLinear {
                base: base * factor,
                root: root * factor,
                knee,
                slope: slope * factor,
            },
            SeekCurve::Table { points } => {
                SeekCurve::Table { points: points.into_iter().map(|(x, ms)| (x, ms * factor)).collect() }
            }
        }
    }

    pub(crate) fn nanos(&self, distance: u64) -> Nanos {
        // As `Nanos::from_millis_f64`, without the call that rounding is on older processors.
        Nanos((self.millis(distance) * 1e6 + 0.5) as u64)
    }
}

fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|p| p.0 < x);
    let (a, b) = match (after, points) {
        (_, []) => return 0.0,
        (_, [only]) => return only.1,
        (0, [first, ..]) => return first.1,
        (i, _) if i == points.len() => (points[i - 2], points[i - 1]),
        (i, _) => (points[i - 1], points[i]),
    };
    a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0)
}
