//! The control sample: what copies gain, measured.

use serde::{Deserialize, Serialize};

/// Reads of a control sample and what they took, dispatch to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// How many.
    pub reads: u64,
    /// Their measured mean in ms.
    pub mean_ms: Option<f64>,
    /// The mean is right within so many ms with 95 % confidence.
    pub error_ms: Option<f64>,
}

/// The control sample: of the reads that have a copy, one short run in so many is read from the originals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// One run in so many; 0: none.
    pub every: u32,
    /// Runs served as the policy chose, mostly from copies.
    pub copies: Sample,
    /// Runs sent to the originals.
    pub originals: Sample,
}

/// What a control sample says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlGain {
    /// Mean of a read sent to its original, in ms.
    pub without: f64,
    /// Mean of one served as the policy chose, in ms.
    pub with: f64,
    /// The difference of the two is right within so many ms with 95 % confidence.
    pub error: f64,
}

impl ControlGain {
    /// By how much of 1 the reads are shorter; negative where they are longer. `None` where that says nothing.
    pub fn share(&self) -> Option<f64> {
        Some(1.0 - self.with / self.without).filter(|s| s.is_finite())
    }
}

impl Control {
    /// Below so many reads of either kind nothing is concluded.
    pub const READS_LEAST: u64 = 30;

    /// What copies gain; `None` while there are too few reads to say.
    pub fn gain(&self) -> Option<ControlGain> {
        let (c, o) = (&self.copies, &self.originals);
        if c.reads.min(o.reads) < Control::READS_LEAST {
            return None;
        }
        let (with, without) = (c.mean_ms?, o.mean_ms?);
        let error = c.error_ms?.hypot(o.error_ms?);
        [with, without, error].iter().all(|t| t.is_finite()).then_some(ControlGain { without, with, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_sample_says_nothing_too_early() {
        let sample = |reads, mean, error| Sample { reads, mean_ms: Some(mean), error_ms: Some(error) };
        let control = Control { every: 256, copies: sample(9000, 2.0, 0.3), originals: sample(30, 5.0, 0.4) };
        let gain = control.gain().unwrap();
        assert_eq!((gain.with, gain.without, gain.error), (2.0, 5.0, 0.5));
        assert!((gain.share().unwrap() - 0.6).abs() < 1e-12);
        for few in [
            Control { originals: sample(29, 5.0, 0.4), ..control },
            Control { copies: sample(0, 2.0, 0.4), ..control },
            Control { originals: Sample { error_ms: None, ..control.originals }, ..control },
            Control { originals: sample(50, f64::NAN, 0.4), ..control },
            Control::default(),
        ] {
            assert_eq!(few.gain(), None, "{few:?}");
        }
        assert_eq!(ControlGain { without: 0.0, with: 0.0, error: 0.0 }.share(), None);
    }
}
