//! The literature's schemes, to compare with: through the same engine, table and drive as ours, and in the
//! simulator only.
//!
//! [`Scheme`] names them and the engine's own policies alike; [`super::Settings::scheme`] puts one in force.
//! Two kinds:
//!
//! - copies, originals staying where they are, are policies of the engine (`relayout`): `fs2-static`;
//!
//! Equal terms: at most the share of the volume that `EngineConfig::space` gives holds copies or moved
//! blocks, in blocks that the file system holds free; every read and write of a scheme's own is charged to the
//! drive, and counted. Papers rearrange nightly: here when nothing was asked for ten seconds, and at least a
//! hundred requests since the last time (guesses; a replay lets a minute pass between runs).

mod area;
mod fs2_static;
mod relayout;

use std::fmt;
use std::str::FromStr;

use fs2_engine::PolicyKind;
use fs2_engine::policy::{Policy, Shape};

pub use fs2_static::ReadSet;

use fs2_static::Fs2Static;
use relayout::Relayout;

/// A policy by name: the engine's or one of the literature's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// One that the daemon has, too.
    Engine(PolicyKind),
    /// What the workload reads, copied beforehand.
    Fs2Static,
}

impl Scheme {
    /// All of them, in the order of reports; not the engine's `torture`, which is for its tests.
    pub const ALL: [Scheme; 4] = [
        Scheme::Engine(PolicyKind::None),
        Scheme::Fs2Static,
        Scheme::Engine(PolicyKind::Fs2Of2005),
        Scheme::Engine(PolicyKind::Fs2),
    ];

    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Engine(kind) => PolicyKind::NAMES[kind as usize],
            Scheme::Fs2Static => "fs2-static",
        }
    }

    /// Whether it must be told beforehand what the workload reads ([`super::Settings::known`]).
    pub fn needs_known_reads(self) -> bool {
        self == Scheme::Fs2Static
    }

    /// The policy to put in force in the engine, for a volume of this shape and `room` blocks of copies; `None`
    /// for the engine's own.
    pub(super) fn policy(self, shape: &Shape, room: u32, known: Option<&ReadSet>) -> Option<Box<dyn Policy>> {
        match self {
            Scheme::Engine(_) => None,
            Scheme::Fs2Static => {
                let empty = ReadSet::new(fs2_block::BlockSize::B4096);
                Some(Box::new(Relayout::new(Fs2Static::new(known.unwrap_or(&empty)), shape, room)))
            }
        }
    }
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
