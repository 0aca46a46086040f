//! What a replay is told.

use std::sync::Arc;

use fs2_block::Nanos;
use fs2_disk::DriveProfile;
use fs2_engine::policy::Policy;
use fs2_engine::{EngineConfig, PolicyKind};
use fs2_trace::Record;

use crate::replay::belief::{Belief, Secrets};
use crate::replay::redirect::Redirect;
use crate::replay::{ReadSet, Scheme};

/// When requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At the trace's times.
    Open,
    /// Each when the one `clients` before it was answered and the think time of the trace has passed.
    Closed {
        /// Requests outstanding at most, at least 1.
        clients: usize,
        /// Shorter gaps between requests were the recording's service, not thought.
        think_min: Nanos,
        /// Longer gaps count as this.
        think_max: Nanos,
    },
}

impl Pace {
    /// The think time before a request of a closed loop, given the one before it in the trace: the gap
    /// between them less the recorded service, within what counts as thought.
    pub(in crate::replay) fn think(&self, before: Option<&Record>, record: &Record) -> Nanos {
        let (Pace::Closed { think_min, think_max, .. }, Some(before)) = (self, before) else {
            return Nanos(0);
        };
        let gap = record.at.since(before.at).since(before.service.unwrap_or_default());
        if gap < *think_min { Nanos(0) } else { gap.min(*think_max) }
    }

    /// One request at a time, think times from 5 to 100 ms kept.
    pub fn closed() -> Pace {
        Pace::Closed { clients: 1, think_min: Nanos::from_millis(5), think_max: Nanos::from_millis(100) }
    }
}

/// Requests outstanding at most by default, where the drive cannot keep up. A guess: each takes some 350 bytes, so all of them a third of a GiB
/// (`fs2-replay run`, first come, first served; 200,000 waiting, 2026-11-29), and no order is better for more to choose among.
const QUEUE_MAX: usize = 1 << 20;

/// How a trace is replayed.
#[derive(Clone)]
pub struct Settings {
    /// The drive that judges.
    pub drive: DriveProfile,
    /// The engine's settings: policy, what it believes of the drive, space, seed.
    pub engine: EngineConfig,
    /// One of the literature's schemes, instead of the engine's policy.
    pub scheme: Option<Scheme>,
    /// What the workload reads, for schemes that are told beforehand.
    pub known: Option<Arc<ReadSet>>,
    /// A policy of the caller's own, instead of the engine's or the scheme's.
    pub policy: Option<Box<dyn Policy>>,
    /// I/Os at the device at a time, at least 1.
    pub depth: usize,
    /// When requests arrive.
    pub pace: Pace,
    /// Where a scheme of the simulator's own puts requests instead; the daemon has no such thing.
    pub redirect: Option<Box<dyn Redirect>>,
    /// Open loop: further requests stay in the trace until one of so many was answered, at least 1. They are late then, and count from
    /// their own times.
    pub queue_max: usize,
    /// The volume is this many times as large as the traced one, all groups further apart.
    pub stretch: u32,
    /// What the drive has that nobody told the engine.
    pub secrets: Secrets,
}

impl Settings {
    /// The engine's defaults, believing the truth about the drive; one I/O at a time, open loop.
    pub fn new(drive: DriveProfile) -> Settings {
        Settings {
            engine: EngineConfig {
                drive: Some(drive.clone()),
                degree: PolicyKind::Fs2.degree(),
                settle: true,
                ..EngineConfig::default()
            },
            drive,
            scheme: None,
            known: None,
            policy: None,
            depth: 1,
            pace: Pace::Open,
            redirect: None,
            queue_max: QUEUE_MAX,
            stretch: 1,
            secrets: Secrets::NONE,
        }
    }

    /// The same with an engine that is told this about the drive.
    pub fn with_belief(mut self, belief: Belief, seed: u64) -> Settings {
        let (profile, knowledge) = belief.about(&self.drive);
        (self.engine.drive, self.engine.knowledge) = (profile, knowledge);
        self.engine.turns = self.drive.rotational();
        self.drive = belief.drive(self.drive);
        self.secrets = belief.secrets(seed);
        self
    }

    /// The same with a policy of the engine's.
    pub fn with_policy(self, policy: PolicyKind) -> Settings {
        self.with_scheme(policy.into())
    }

    /// The same with the engine's policy or scheme of this name.
    pub fn with_scheme(mut self, scheme: Scheme) -> Settings {
        match scheme {
            Scheme::Engine(kind) => {
                (self.engine.policy, self.engine.degree, self.scheme) = (kind, kind.degree(), None);
            }
            other => (self.engine.policy, self.scheme) = (PolicyKind::None, Some(other)),
        }
        self
    }
}

/// Why a replay could not begin.
#[derive(Debug)]
pub struct ReplayError(pub String);

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReplayError {}
