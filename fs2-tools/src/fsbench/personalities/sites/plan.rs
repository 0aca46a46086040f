//! What each study serves: parameters, and the phases of a pass.

use super::files::LEAST;
use crate::fsbench::{BenchError, Setup};

/// Which of the study's experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Study {
    /// One site of a class, 0 to 4.
    Class(usize),
    /// One site at several steepnesses.
    Alpha,
    /// One site, then two.
    Shared,
    /// Two sites, then with the second one's popular files elsewhere.
    Hybrid,
}

parameters! {
    pub(super) struct Parameters {
        /// Documents of a site.
        pub(super) files: u64,
        /// Largest document, bytes.
        pub(super) largest: u64,
        /// Zipf's exponent: rank i is requested in proportion to 1 / i^alpha, so that more is steeper.
        pub(super) alpha: Option<f64>,
        /// Several of them, parted by commas.
        pub(super) alphas: Option<String>,
        /// Share of the documents that are not in order of size in the order of popularity.
        pub(super) swaps: f64,
        /// Share of requests whose documents, the most popular ones, are copied to the hot directory.
        pub(super) hot: Option<f64>,
        /// That directory; empty: one beside the sites.
        pub(super) hot_dir: Option<String>,
        /// Requests at a time, to each site.
        pub(super) threads: u64,
        /// Seconds of a run where neither --duration nor --ops is given.
        pub(super) seconds: u64,
    }
}

/// A part of a pass.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Phase {
    /// Set before what it is about; empty where there is only one.
    pub(super) name: String,
    pub(super) alpha: f64,
    /// The first so many sites are served.
    pub(super) sites: usize,
    /// Whether the second site's popular documents are read from the hot directory.
    pub(super) uses_hot: bool,
}

/// Of each class: documents, largest one in KiB, and what `ci` divides the documents by. Sizes are the
/// study's; the numbers make its working sets of log-uniform sizes.
const CLASSES: [(u64, u64, u64); 5] =
    [(570, 250, 4), (695, 1 << 10, 4), (935, 4 << 10, 4), (1240, 16 << 10, 16), (1065, 64 << 10, 64)];

/// The exponent of all classes.
const ALPHA: f64 = 0.9;
/// Documents of up to 64 MiB that are 4 GB together, for [`Study::Alpha`].
const ALPHA_FILES: u64 = 710;
/// The study names 0.75 alone; the others are guesses around it.
const ALPHAS: &str = "0.5,0.75,0.9,1.1";

impl Parameters {
    pub(super) fn new(setup: &Setup, study: Study) -> Result<Parameters, BenchError> {
        let ci = setup.preset == "ci";
        let class = match study {
            Study::Class(n) => n,
            // As many documents as class 1 at `ci`; the largest class that was told apart at `paper`.
            Study::Shared | Study::Hybrid => {
                if ci {
                    1
                } else {
                    3
                }
            }
            Study::Alpha => 4,
        };
        let (files, kib, part) = CLASSES[class];
        let files = match study {
            Study::Alpha => ALPHA_FILES / if ci { 10 } else { 1 },
            _ => files / if ci { part } else { 1 },
        };
        // Documents of 64 MiB would leave the small sweep hardly any.
        let kib = if ci && study == Study::Alpha { 4 << 10 } else { kib };
        let is_hybrid = study == Study::Hybrid;
        let p = Parameters {
            files: setup.scaled(files, 1),
            largest: kib << 10,
            alpha: (study != Study::Alpha).then_some(ALPHA),
            alphas: (study == Study::Alpha).then(|| ALPHAS.to_owned()),
            swaps: 0.1,
            hot: is_hybrid.then_some(0.5),
            hot_dir: is_hybrid.then(String::new),
            threads: 8,
            seconds: if ci { 30 } else { 600 },
        };
        let p = setup.apply(p)?;
        let share = |x: f64| (0.0..=1.0).contains(&x);
        if !(1..=10_000_000).contains(&p.files)
            || !(LEAST..=1 << 40).contains(&p.largest)
            || !(1..=1000).contains(&p.threads)
            || !share(p.swaps)
            || !p.hot.is_none_or(share)
        {
            return Err(BenchError::Usage(format!(
                "{}: 1 to 10,000,000 files of at most {LEAST} bytes to 1 TiB, 1 to 1,000 threads, shares of 0 to 1",
                match study {
                    Study::Class(_) => "zipf",
                    Study::Alpha => "zipf-alpha",
                    Study::Shared => "shared",
                    Study::Hybrid => "hybrid",
                }
            )));
        }
        Ok(p)
    }

    /// The phases of a pass.
    pub(super) fn phases(&self, study: Study) -> Result<Vec<Phase>, BenchError> {
        let sane = |alpha: f64| {
            if (0.0..=10.0).contains(&alpha) {
                Ok(alpha)
            } else {
                Err(BenchError::Usage(format!(
                    "alpha: {alpha} is not from 0 to 10; with 0 all are as popular"
                )))
            }
        };
        let phase = |name: &str, alpha: f64, sites, uses_hot| {
            Ok(Phase { name: name.into(), alpha: sane(alpha)?, sites, uses_hot })
        };
        let alpha = self.alpha.unwrap_or(ALPHA);
        match study {
            Study::Class(_) => Ok(vec![phase("", alpha, 1, false)?]),
            Study::Shared => Ok(vec![phase("single", alpha, 1, false)?, phase("shared", alpha, 2, false)?]),
            Study::Hybrid => Ok(vec![phase("one", alpha, 2, false)?, phase("hybrid", alpha, 2, true)?]),
            Study::Alpha => {
                let list = self.alphas.as_deref().unwrap_or_default();
                let one = |text: &str| {
                    let text = text.trim();
                    let alpha = text.parse().map_err(|_| {
                        BenchError::Usage(format!(
                            "--set alphas: '{text}' is no number; give some like {ALPHAS}"
                        ))
                    })?;
                    phase(&format!("alpha {text}"), alpha, 1, false)
                };
                let phases: Vec<Phase> = list.split(',').map(one).collect::<Result<_, _>>()?;
                for (i, p) in phases.iter().enumerate() {
                    if phases[..i].iter().any(|q| q.name == p.name) {
                        return Err(BenchError::Usage(format!("--set alphas: {} is given twice", p.alpha)));
                    }
                }
                Ok(phases)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_s_documents_are_its_working_set() {
        // In the mean of log-uniform sizes.
        let mean = |kib: u64| {
            let (a, b) = (LEAST as f64, (kib << 10) as f64);
            (b - a) / (b / a).ln()
        };
        let stated = [25e6, 100e6, 450e6, 2e9, 6e9];
        for ((files, kib, _), stated) in CLASSES.iter().zip(stated) {
            let bytes = *files as f64 * mean(*kib);
            assert!((bytes / stated - 1.0).abs() < 0.1, "{files} of {kib} KiB: {bytes} of {stated}");
        }
        let bytes = ALPHA_FILES as f64 * mean(64 << 10);
        assert!((bytes / 4e9 - 1.0).abs() < 0.1, "{bytes}");
    }
}
