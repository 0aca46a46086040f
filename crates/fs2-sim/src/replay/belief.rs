//! The predictor is not the judge: what the engine is told about the drive, and what the drive has that
//! nobody told it.

use std::str::FromStr;

use fs2_block::{Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile, Knowledge, Service};

use super::free_map::mix;

/// What the engine is told about the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// The drive's own profile.
    Equal,
    /// Turns 0.02 % too fast, seeks 10 % too long, another drive's zones and skews; and the drive has 2 % of
    /// its sectors elsewhere and answers 20 to 100 µs late.
    Mismatched,
    /// The drive's profile, but no knowledge of the platter's angle.
    SeekOnly,
    /// No profile, as where a volume is mounted without one: the seeks of a drive of today (`EngineConfig::turns`).
    Nothing,
    /// The drive's profile; and the drive takes writes into a cache of 8 MiB, which it says nothing of.
    WriteCache,
}

impl Belief {
    /// Every belief, in the order of reports.
    pub const ALL: [Belief; 5] =
        [Belief::Equal, Belief::Mismatched, Belief::SeekOnly, Belief::Nothing, Belief::WriteCache];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Belief::Equal => "equal",
            Belief::Mismatched => "mismatched",
            Belief::SeekOnly => "seek-only",
            Belief::Nothing => "nothing",
            Belief::WriteCache => "write-cache",
        }
    }

    /// The profile the engine gets for this drive, and how much of it to believe.
    pub fn about(self, drive: &DriveProfile) -> (Option<DriveProfile>, Knowledge) {
        match self {
            Belief::Equal | Belief::WriteCache => (Some(drive.clone()), Knowledge::Full),
            Belief::SeekOnly => (Some(drive.clone()), Knowledge::SeekOnly),
            Belief::Nothing => (None, Knowledge::Full),
            Belief::Mismatched => {
                let other =
                    if drive.name() == "nearline-hc310" { "wd800-repaired" } else { "nearline-hc310" };
                let told = drive.clone().with_rpm_scaled(1.0002).with_seek_scaled(1.1);
                let told = match DriveProfile::builtin(other) {
                    Ok(other) => told.with_layout_of(&other),
                    Err(_) => told,
                };
                (Some(told), Knowledge::Full)
            }
        }
    }

    /// The drive there is, where one of this profile was asked for.
    pub fn drive(self, drive: DriveProfile) -> DriveProfile {
        match self {
            Belief::WriteCache => drive.with_write_cache(WRITE_CACHE_KIB, WRITE_CACHE_IDLE_MS),
            _ => drive,
        }
    }

    /// What the drive has that its profile does not say.
    pub fn secrets(self, seed: u64) -> Secrets {
        match self {
            Belief::Mismatched => Secrets { remapped_permille: 20, late_us: (20, 100), seed, accesses: 0 },
            _ => Secrets::NONE,
        }
    }
}

impl FromStr for Belief {
    type Err = String;

    fn from_str(s: &str) -> Result<Belief, String> {
        Belief::ALL.into_iter().find(|b| b.name() == s).ok_or_else(|| {
            let names: Vec<_> = Belief::ALL.iter().map(|b| b.name()).collect();
            format!("no belief is called '{s}'; there are {}", names.join(", "))
        })
    }
}

/// The write cache nobody told of: 8 MiB, as a drive of 2005 has, and the rest after which it is written. Guesses.
const WRITE_CACHE_KIB: u32 = 8 << 10;
const WRITE_CACHE_IDLE_MS: f64 = 50.0;

/// Sectors that are remapped together: 1 MiB. A guess; single sectors would make every other long read
/// two, which no drive in use does.
const REMAPPED_SECTORS: u64 = 2048;

/// What a drive has that its profile does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secrets {
    /// Sectors that lie elsewhere.
    pub remapped_permille: u64,
    /// How late completions are seen: from, to, in µs.
    pub late_us: (u64, u64),
    /// Draws both.
    pub seed: u64,
    accesses: u64,
}

impl Secrets {
    /// A drive as its profile says.
    pub const NONE: Secrets = Secrets { remapped_permille: 0, late_us: (0, 0), seed: 0, accesses: 0 };

    /// Serves an access and says when its completion is seen.
    pub(super) fn serve(
        &mut self,
        disk: &mut Disk,
        now: Nanos,
        op: Op,
        sector: Sector,
        sectors: u32,
    ) -> (Service, Nanos) {
        if self.remapped_permille == 0 {
            let service = disk.serve(now, op, sector, sectors);
            return (service, service.end());
        }
        let stretch = sector.0 / REMAPPED_SECTORS;
        let drawn = mix(self.seed ^ mix(stretch));
        let mut at = sector;
        if drawn % 1000 < self.remapped_permille {
            let all = (disk.profile().capacity_sectors() / REMAPPED_SECTORS).max(1);
            at = Sector((drawn >> 16) % all * REMAPPED_SECTORS + sector.0 % REMAPPED_SECTORS);
        }
        let service = disk.serve(now, op, at, sectors);
        self.accesses += 1;
        let (from, to) = self.late_us;
        let late = from + mix(self.seed.wrapping_add(self.accesses)) % (to - from + 1).max(1);
        (service, service.end() + Nanos(late * 1000))
    }
}
