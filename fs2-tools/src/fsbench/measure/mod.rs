//! Measuring: latencies, figures of several runs, cold starts, a memory limit, energy, and the document all of
//! it is written to.
//!
//! A run is made cold by [`Cold`], kept small by [`MemLimit`], its operations are counted in a [`Histogram`] per thread
//! and class, its energy by [`RaplSpan`], [`of_meter`] and [`DriveSpan`]; all of that becomes a [`RunRecord`], several
//! of them a [`Document`] with a [`Summary`] of each figure. Nothing here knows a workload.
//!
//! ```
//! use fs2_tools::fsbench::measure::{Histogram, Summary, Welch};
//!
//! let mut latencies = Histogram::new();
//! (1..=1000).for_each(|us| latencies.record(us * 1000));
//! let p99 = latencies.quantile_ns(0.99).unwrap() as f64;
//! assert!((p99 - 990_000.0).abs() <= 990_000.0 * Histogram::RELATIVE_ERROR);
//!
//! let (ext2, fs2) = ([33.1, 33.4, 32.9], [23.2, 23.0, 23.5]);
//! let summary = Summary::of(&ext2).unwrap();
//! println!("{:.1} s ± {:.1}", summary.mean, summary.ci95_half.unwrap());
//! assert!(Welch::test(&ext2, &fs2).unwrap().is_distinguishable());
//! ```

mod advice;
pub mod attach;
mod cold;
mod drive;
mod energy;
mod environment;
mod histogram;
mod memlimit;
pub(crate) mod residency;
pub(crate) mod result;
mod series;
mod stats;

pub use advice::{Circumstances, warnings};
pub use cold::{Cold, ColdError, ColdMode, ColdProof};
pub use drive::{DriveSpan, RestSpan, power_called};
pub use energy::{EnergyReading, MeterRecord, POWERCAP, Rapl, RaplSpan, of_meter};
pub use environment::{BlockDevice, Environment, FileSystem, Fs2Volume};
pub use histogram::{Histogram, Percentiles};
pub use memlimit::{LIMIT_BYTES_MIN, MemLimit, MemLimitError, Version};
pub use residency::{Method, Residency, cachestat, residency, residency_of};
pub use result::{
    ClassRecord, Document, OptionFacts, RunKind, RunRecord, SCHEMA, WorkloadFacts, more_is_better,
};
pub use stats::{
    CONFIDENCE, CV_WILD, StopRule, Summary, Verdict, Welch, first_is_high, first_is_low, outliers,
};
