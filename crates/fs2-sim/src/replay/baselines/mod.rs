//! The literature's schemes, to compare with: through the same engine, table and drive as ours, and in the
//! simulator only.
//!
//! [`Scheme`] names them and the engine's own policies alike; [`super::Settings::scheme`] puts one in force.
//! Two kinds:
//!
//! - copies, originals staying where they are, are policies of the engine: `fs2-static`, `alis-heat`, `alis-run`
//!   (all three by `relayout`) and `sr-array`;
//! - schemes that move blocks and send writes there too stand between engine and drive
//!   ([`super::Redirect`]): `abr`, `hot-files`, `borg` (by `mover`) and `organ-pipe`. The daemon has no such thing.
//!
//! Equal terms: at most the share of the volume that `EngineConfig::space` gives holds copies or moved
//! blocks, in blocks that the file system holds free; every read and write of a scheme's own is charged to the
//! drive, and counted. Papers rearrange nightly: here when nothing was asked for ten seconds, and at least a
//! hundred requests since the last time (guesses; a replay lets a minute pass between runs).

mod abr;
mod alis_heat;
mod alis_run;
mod area;
mod borg;
mod fs2_static;
mod graph;
mod hot_files;
mod mover;
mod organ_pipe;
mod relayout;
mod sr_array;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use fs2_block::BlockRange;
use fs2_disk::DriveProfile;
use fs2_engine::PolicyKind;
use fs2_engine::policy::{Policy, Shape};

pub use fs2_static::ReadSet;

use abr::Abr;
use alis_heat::AlisHeat;
use alis_run::AlisRun;
use area::{Around, reserve, slots};
use borg::Borg;
use fs2_static::Fs2Static;
use hot_files::HotFiles;
use mover::Mover;
use organ_pipe::OrganPipe;
use relayout::Relayout;
use sr_array::SrArray;

use super::{FreeMap, Redirect};

/// A policy by name: the engine's or one of the literature's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// One that the daemon has, too.
    Engine(PolicyKind),
    /// Units in the order of their use, from the middle outwards.
    OrganPipe,
    /// The hottest blocks in reserved cylinders.
    Abr,
    /// The hottest files in a zone of their own.
    HotFiles,
    /// The hottest extents, copied together by address.
    AlisHeat,
    /// Runs of what is read one after the other, copied together.
    AlisRun,
    /// The same by the heaviest edge, moved, and a buffer for writes.
    Borg,
    /// Copies at equal angles.
    SrArray,
    /// What the workload reads, copied beforehand.
    Fs2Static,
}

impl Scheme {
    /// All of them, in the order of reports; not the engine's `torture`, which is for its tests.
    pub const ALL: [Scheme; 11] = [
        Scheme::Engine(PolicyKind::None),
        Scheme::OrganPipe,
        Scheme::Abr,
        Scheme::HotFiles,
        Scheme::AlisHeat,
        Scheme::AlisRun,
        Scheme::Borg,
        Scheme::SrArray,
        Scheme::Fs2Static,
        Scheme::Engine(PolicyKind::Fs2Of2005),
        Scheme::Engine(PolicyKind::Fs2),
    ];

    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Engine(kind) => PolicyKind::NAMES[kind as usize],
            Scheme::OrganPipe => "organ-pipe",
            Scheme::Abr => "abr",
            Scheme::HotFiles => "hot-files",
            Scheme::AlisHeat => "alis-heat",
            Scheme::AlisRun => "alis-run",
            Scheme::Borg => "borg",
            Scheme::SrArray => "sr-array",
            Scheme::Fs2Static => "fs2-static",
        }
    }

    /// Whether it must be told beforehand what the workload reads ([`super::Settings::known`]).
    pub fn needs_known_reads(self) -> bool {
        self == Scheme::Fs2Static
    }

    /// Copies of a block at most.
    pub(super) fn degree(self) -> u8 {
        match self {
            Scheme::SrArray => sr_array::COPIES,
            Scheme::Engine(policy) => policy.degree(),
            _ => 1,
        }
    }

    /// The policy to put in force in the engine, if it is a scheme of copies.
    pub(super) fn policy(self, on: &Ground<'_>) -> Option<Box<dyn Policy>> {
        let (shape, room) = (&on.shape, on.room);
        let policy: Box<dyn Policy> = match self {
            Scheme::AlisHeat => Box::new(Relayout::new(AlisHeat::default(), shape, room)),
            Scheme::AlisRun => Box::new(Relayout::new(AlisRun::new(), shape, room)),
            Scheme::SrArray => Box::new(SrArray::new(shape, on.drive, room)),
            Scheme::Fs2Static => {
                let empty = ReadSet::new(on.map.block_size);
                let known = on.known.unwrap_or(&empty);
                Box::new(Relayout::new(Fs2Static::new(known), shape, room))
            }
            Scheme::Engine(_) | Scheme::OrganPipe | Scheme::Abr | Scheme::HotFiles | Scheme::Borg => {
                return None;
            }
        };
        Some(policy)
    }

    /// What stands between engine and drive, if it is a scheme that moves blocks.
    pub(super) fn redirect(self, on: &Ground<'_>) -> Option<Box<dyn Redirect>> {
        let bs = on.map.block_size;
        let area = |around| slots(&reserve(&free_runs(on.map), on.room, around));
        let middle = Around::middle(&on.shape);
        let redirect: Box<dyn Redirect> = match self {
            Scheme::OrganPipe => Box::new(OrganPipe::new(bs, on.map.blocks, on.room)),
            Scheme::Abr => Box::new(Mover::new(Abr::new(on.room), bs, area(middle))),
            Scheme::HotFiles => Box::new(Mover::new(HotFiles::default(), bs, area(Around::Beginning))),
            Scheme::Borg => Box::new(Mover::new(Borg::new(), bs, area(middle))),
            Scheme::Engine(_) | Scheme::AlisHeat | Scheme::AlisRun | Scheme::SrArray | Scheme::Fs2Static => {
                return None;
            }
        };
        Some(redirect)
    }
}

/// What a scheme is made for.
pub(super) struct Ground<'a> {
    pub(super) map: &'a FreeMap,
    pub(super) shape: Shape,
    /// Blocks that may hold copies or moved blocks.
    pub(super) room: u32,
    /// The drive as it is believed to be.
    pub(super) drive: &'a DriveProfile,
    /// What the workload reads.
    pub(super) known: Option<&'a ReadSet>,
}

fn free_runs(map: &FreeMap) -> Vec<BlockRange> {
    let mut runs = Vec::new();
    let mut free = map.free.iter();
    while let Some(run) = free.next_range() {
        runs.push(BlockRange::new(*run.start(), run.end() + 1));
    }
    runs
}

impl From<PolicyKind> for Scheme {
    fn from(kind: PolicyKind) -> Scheme {
        Scheme::Engine(kind)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(s: &str) -> Result<Scheme, String> {
        if let Some(scheme) = Scheme::ALL.into_iter().find(|x| x.name() == s) {
            return Ok(scheme);
        }
        PolicyKind::from_str(s).map(Scheme::Engine).map_err(|_| {
            let names: Vec<_> = Scheme::ALL.iter().map(|x| x.name()).collect();
            format!("no policy '{s}'; there are {} and torture", names.join(", "))
        })
    }
}
