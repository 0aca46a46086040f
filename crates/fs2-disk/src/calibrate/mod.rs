//! What a drive is, from how long its reads take.
//!
//! [`calibrate`] asks an [`Oracle`] for reads and makes a [`DriveProfile`] of the times; it never asks for
//! a write. The paper's section 4.2 takes the lower envelope of access times over logical distance; here
//! the same is found with fewer reads, because when a read ends its last sector has just passed the head:
//! the ends of two reads tell the angle between their places, and a seek is bracketed from both sides,
//! as in Worthington, Ganger et al., "On-line extraction of SCSI disk drive parameters" (1995).
//!
//! * C1: nothing is read twice where a drive's cache would answer, except to look at that cache: places are
//!   fresh and read downwards, for drives read ahead upwards.
//! * C2: a time that is wrong (a late wake-up, an answer from a cache) is outvoted: every figure is a median, the
//!   densest cluster or what most samples agree with.
//! * C3: the same answers of the oracle and the same seed give the same profile.
//!
//! What reads cannot tell is not made up: see the notes of [`Calibration`].

mod arm;
mod assemble;
mod bench;
mod buffer;
mod check;
mod fit;
mod robust;
mod rotation;
mod zones;

use fs2_block::Nanos;

use crate::profile::DriveProfile;
pub use check::{Verdict, check};

/// When a read was asked for and when its data was there, on one clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Right before asking.
    pub begin: Nanos,
    /// Right after the answer.
    pub end: Nanos,
}

/// The oracle cannot go on: a read failed, or somebody wants an end. It keeps the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop;

/// A drive that can be read and waited for. One read at a time.
pub trait Oracle {
    /// Reads `sectors` sectors of 512 bytes from `sector`, bypassing every cache but the drive's own.
    ///
    /// # Errors
    /// [`Stop`] where it cannot be read.
    fn read(&mut self, sector: u64, sectors: u32) -> Result<Timed, Stop>;

    /// Lets time pass with nothing asked.
    fn pause(&mut self, time: Nanos);

    /// Told what is being measured and how far all of it has come, 0 to 1.
    fn progress(&mut self, what: &'static str, done: f64) {
        let _ = (what, done);
    }
}

/// How to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of the volume or device, sectors of 512 bytes.
    pub capacity_sectors: u64,
    /// Sectors of the smallest read and of the alignment of all; 1 to 64.
    pub grain: u32,
    /// Chooses the places.
    pub seed: u64,
    /// About how long it may take; with less than a minute fewer places are looked at.
    pub budget: Nanos,
}

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A read failed, or somebody wanted an end.
    #[error("a read failed")]
    Stopped,
    /// Less than [`CAPACITY_MIN`].
    #[error("it has {0} sectors; fewer than {CAPACITY_MIN} tell nothing of an arm")]
    TooSmall(u64),
    /// Times vary as a disk's do, and no speed of rotation explains them, or none that fits how fast it is read.
    #[error(
        "its times vary as a disk's do, but no speed of rotation explains them: not one disk alone (an array, \
         a disk over a network, one that others use meanwhile), one that keeps whole tracks in its \
         cache, one behind a bus far slower than its platters (USB 2), or a machine too busy to look at the clock \
         in time: try again when it rests, or by a faster bus"
    )]
    NoRotation,
    /// Too few seeks could be told, or none of the long ones.
    #[error(
        "only {found} of its seeks, the longest of {longest} sectors, could be told from what else its reads wait for: \
         a volume of which the drive's cache holds much, one that others use meanwhile, or a machine too busy to look \
         at the clock in time: try again when it rests, with more time, or measure all of the drive"
    )]
    NoSeeks {
        /// Distances of which the time is known.
        found: usize,
        /// The longest of them, sectors; 0 of none.
        longest: u64,
    },
    /// What was measured is no seek curve, so that nobody would read the profile: what is wrong with it.
    #[error(
        "its seeks make no curve: {0}: a volume whose stretches lie in another order on the drive, or \
         one that others use meanwhile: measure all of the drive, or try again when it rests"
    )]
    NoCurve(String),
}

impl From<Stop> for Refused {
    fn from(_: Stop) -> Refused {
        Refused::Stopped
    }
}

/// 256 MiB: over less, a seek is hardly more than settling.
pub const CAPACITY_MIN: u64 = 1 << 19;

/// Fewer points make no curve, and one that ends before half the way tells nothing of the other half.
const SEEKS_MIN: usize = 4;

/// What a command takes at most before an arm moves: a larger overhead was measured wrong. Guess.
const COMMAND_US: f64 = 200.0;

/// How long a move takes, as measured.
#[derive(Clone, Debug, PartialEq)]
pub struct SeekPoint {
    /// Sectors from the end of one read to the beginning of the next.
    pub distance: u64,
    /// From the command until the head could read there, milliseconds: overhead and arm.
    pub ms: f64,
    /// The same by the profile.
    pub fitted_ms: f64,
    /// Times of single accesses from which that was found, milliseconds: each is `ms` and a wait of less
    /// than a turn.
    pub accesses_ms: Vec<f64>,
}

/// How fast a place can be read in one go, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePoint {
    /// Where.
    pub sector: u64,
    /// 10⁶ bytes a second.
    pub mb_s: f64,
    /// The same by the profile.
    pub fitted_mb_s: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The drive. Power is 0 and what a write's seek takes longer a guess: reads do not tell.
    pub profile: DriveProfile,
    /// Seeks by distance; none of a drive without an arm.
    pub seeks: Vec<SeekPoint>,
    /// Rates by place.
    pub rates: Vec<RatePoint>,
    /// Root mean square of what the seek curve is off by at the nine tenths of the points that it fits best,
    /// microseconds.
    pub seek_residual_us: f64,
    /// The most a fitted rate is off by, per cent.
    pub rate_residual_percent: f64,
    /// Reads asked for.
    pub reads: u64,
    /// By the oracle's clock.
    pub elapsed: Nanos,
    /// What could not be seen, in sentences.
    pub notes: Vec<String>,
}

/// Measures a drive.
///
/// # Errors
/// [`Refused`]; a drive without an arm is no error but a profile that says so.
///
/// # Panics
/// Unless the grain is within 1..=64.
pub fn calibrate(oracle: &mut dyn Oracle, options: Options) -> Result<Calibration, Refused> {
    assert!((1..=64).contains(&options.grain), "a grain of {} sectors", options.grain);
    if options.capacity_sectors < CAPACITY_MIN {
        return Err(Refused::TooSmall(options.capacity_sectors));
    }
    let mut bench = bench::Bench::new(oracle, options);
    bench.progress("whether there is an arm", 0.0);
    let first = bench.scattered(40)?;
    if !first.varies() {
        return assemble::flash(&mut bench, &first);
    }
    bench.progress("rotation", 0.02);
    let turn = rotation::turn(&mut bench)?.ok_or(Refused::NoRotation)?;
    bench.progress("zones", 0.1);
    let map = zones::map(&mut bench, &turn)?.ok_or(Refused::NoRotation)?;
    bench.progress("the drive's cache", 0.45);
    let buffer = buffer::look(&mut bench, &turn, &map)?;
    bench.progress("seeks", 0.6);
    let mut seeks = arm::curve(&mut bench, &turn, &map)?;
    // No arm moves sooner than the cache answers: what seems to was in it.
    seeks.retain(|s| s.us >= buffer.overhead_us.min(COMMAND_US));
    let longest = seeks.last().map_or(0, |s| s.distance);
    if seeks.len() < SEEKS_MIN || longest < options.capacity_sectors / 2 {
        return Err(Refused::NoSeeks { found: seeks.len(), longest });
    }
    let found = assemble::disk(&bench, &turn, &map, &buffer, seeks);
    // What is written has to be what a profile's reader takes.
    if let Some(what) = found.profile.seek_curve().and_then(|curve| curve.fault(options.capacity_sectors)) {
        return Err(Refused::NoCurve(what));
    }
    bench.progress("done", 1.0);
    Ok(found)
}
