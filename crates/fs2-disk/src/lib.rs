//! A disk drive as mathematics: seek curve, rotation, zones, skews, read-ahead cache and power.
//! The main types are [`DriveProfile`], which says what a drive is, and [`Disk`], which is one:
//! [`Disk::serve`] takes a command and the time, and says how long it takes and why. [`Queue`]
//! chooses the next request and which of its copies, [`Device`] is a drive with a command queue
//! of its own; what a daemon may believe about a real drive is [`Head`]; what reads of a real drive
//! tell of it is [`calibrate`]. Real time and I/O are left to those above.
//!
//! ```
//! use fs2_block::{Nanos, Op, Sector};
//! use fs2_disk::{Disk, DriveProfile, Energy};
//!
//! let profile = DriveProfile::builtin("wd800-repaired").unwrap();
//! let mut energy = Energy::new(profile.power());
//! let mut disk = Disk::new(profile);
//! let far = disk.serve(Nanos(0), Op::Read, Sector(20_000_000), 8);
//! energy.add(&far);
//! // The paper: 9E-8 · 20,000,000 + 4.16 ms.
//! assert_eq!(far.seek, Nanos(5_960_000));
//! // What follows is read ahead: no seek, no rotation.
//! let next = disk.serve(far.end(), Op::Read, Sector(20_000_008), 8);
//! assert!(next.cache_hit);
//! ```
#![forbid(unsafe_code)]

mod background;
mod cache;
pub mod calibrate;
mod controlled;
mod controller;
mod device;
mod disk;
mod disksim;
mod divide;
mod geometry;
mod head;
mod parse;
mod platter;
mod profile;
mod queue;
mod remap;
mod seek;
mod service;
mod spindle;

pub use device::Device;
pub use disk::Disk;
pub use head::{Head, Knowledge};
pub use profile::{DriveProfile, Extended, Power, ProfileError, Zone};
pub use queue::{Chosen, Overdue, Positioning, Queue, Scheduler};
pub use seek::SeekCurve;
pub use service::{Activity, Energy, Service, Split};
