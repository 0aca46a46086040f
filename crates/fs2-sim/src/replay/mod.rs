//! Traces replayed through the daemon's engine over a modelled drive.
//!
//! The main type is [`Replay`]: one volume, one policy, one drive; runs of a trace go in, a [`Run`] of
//! figures comes out of each. Reading traces and printing tables is left to `fs2-replay`.
//!
//! The engine is the daemon's, attached to an [`Image`] that holds a file system's structure and no
//! contents; the drive is the judge, and what the engine believes of it is learnt from completions only.
//!
//! ```
//! use fs2_block::{Extent, Nanos, Op, Permille};
//! use fs2_disk::DriveProfile;
//! use fs2_sim::replay::{FreeMap, Replay, Settings};
//! use fs2_trace::Record;
//!
//! let map = FreeMap::aged(1 << 30, Permille::new(600).unwrap(), 1).unwrap();
//! let settings = Settings::new(DriveProfile::builtin("wd800-repaired").unwrap());
//! let mut replay = Replay::new(&map, settings).unwrap();
//! // Two places far apart, read in turns, twice.
//! let round = (0..200).map(|i| {
//!     let at = (i % 2) * 500_000_000 + i * 40_960;
//!     Ok::<_, ()>(Record::new(Nanos(i * 10_000_000), Op::Read, Extent::new(at, 4096)))
//! });
//! let first = replay.run(round.clone()).unwrap();
//! replay.idle(Nanos::from_millis(60_000));
//! let second = replay.run(round).unwrap();
//! assert_eq!(first.reads, 200);
//! assert!(second.reads_split.mean_total() < first.reads_split.mean_total());
//! ```

mod baselines;
mod belief;
mod bounds;
mod event_loop;
mod free_map;
mod image;
mod metrics;
mod redirect;
mod samples;

pub use baselines::{ReadSet, Scheme};
pub use belief::{Belief, Secrets};
pub use bounds::{Bound, Bounds};
pub use event_loop::{Pace, Replay, ReplayError, Settings};
pub use free_map::{FreeMap, FreeMapError, GroupPlaces, InUse};
pub use image::Image;
pub use metrics::{Course, Histogram, Run};
pub use redirect::{OwnIo, Redirect};
pub use samples::{Dot, DotKind, Moment, Samples};
