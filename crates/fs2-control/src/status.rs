//! How a volume is doing, as the daemon tells it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether replicas are kept. In JSON a string: `active`, `frozen: why` or `inactive: why`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Liveness {
    /// Copies are made and read.
    Active,
    /// No space counts as free for the rest of the session; replicas that are left may be read. Why.
    Frozen(String),
    /// Plain pass-through. Why.
    Inactive(String),
}

impl Default for Liveness {
    fn default() -> Liveness {
        Liveness::Inactive("not attached".into())
    }
}

impl fmt::Display for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Liveness::Active => f.write_str("active"),
            Liveness::Frozen(why) => write!(f, "frozen: {why}"),
            Liveness::Inactive(why) => write!(f, "inactive: {why}"),
        }
    }
}

impl From<Liveness> for String {
    fn from(l: Liveness) -> String {
        l.to_string()
    }
}

/// A text that is none of the three forms of a [`Liveness`].
#[derive(Debug, thiserror::Error)]
#[error("neither `active`, `frozen: why` nor `inactive: why`")]
pub struct NotALiveness;

impl TryFrom<String> for Liveness {
    type Error = NotALiveness;

    fn try_from(s: String) -> Result<Liveness, NotALiveness> {
        if s == "active" {
            Ok(Liveness::Active)
        } else if let Some(why) = s.strip_prefix("frozen: ") {
            Ok(Liveness::Frozen(why.into()))
        } else if let Some(why) = s.strip_prefix("inactive: ") {
            Ok(Liveness::Inactive(why.into()))
        } else {
            Err(NotALiveness)
        }
    }
}

/// Where the free share stands against the watermarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatermarkState {
    /// Nothing is copied, whatever the share: inactive, frozen, or a policy without copies.
    #[default]
    Off,
    /// Copies are made.
    Copying,
    /// Between low and high after having been below low: no copies yet.
    Suspended,
    /// Below low: the least valuable replicas go.
    Low,
    /// Below critical: whole regions go.
    Critical,
}

/// Where figures come from that no clock measured. In JSON a string: `modelled by profile X`,
/// `simulated drive X` or `none`; any other text is kept as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Source {
    /// There are no figures.
    #[default]
    None,
    /// A profile of the real drive predicted them.
    Modelled(String),
    /// The drive itself is simulated, and took these times.
    Simulated(String),
    /// Something else, such as a power meter.
    Other(String),
}

const MODELLED: &str = "modelled by profile ";
const SIMULATED: &str = "simulated drive ";

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::None => f.write_str("none"),
            Source::Modelled(profile) => write!(f, "{MODELLED}{profile}"),
            Source::Simulated(drive) => write!(f, "{SIMULATED}{drive}"),
            Source::Other(what) => f.write_str(what),
        }
    }
}

impl From<Source> for String {
    fn from(s: Source) -> String {
        s.to_string()
    }
}

impl From<String> for Source {
    fn from(s: String) -> Source {
        if s == "none" {
            Source::None
        } else if let Some(profile) = s.strip_prefix(MODELLED) {
            Source::Modelled(profile.into())
        } else if let Some(drive) = s.strip_prefix(SIMULATED) {
            Source::Simulated(drive.into())
        } else {
            Source::Other(s)
        }
    }
}

/// The blocks among which the head mostly is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotRegion {
    /// First file-system block.
    pub first_block: u64,
    /// Last file-system block, inclusive.
    pub last_block: u64,
}

/// Access times in ms. The mean and p99 are measured over reads, dispatch to completion; the parts
/// are means an access, and come from `source`: they need not add up to the mean. What is not known
/// is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessMs {
    /// Measured mean of a read.
    pub mean: Option<f64>,
    /// What 99 % of the reads do not exceed, measured.
    pub p99: Option<f64>,
    /// Mean seek.
    pub seek: Option<f64>,
    /// Mean rotational latency.
    pub rotation: Option<f64>,
    /// Mean transfer, overhead included.
    pub transfer: Option<f64>,
    /// How many accesses the parts are means of.
    pub accesses: u64,
    /// Where the parts come from.
    pub source: Source,
}

/// Energy used since the attach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyJ {
    /// In joules; `None` where nothing says.
    pub value: Option<f64>,
    /// Where the figure comes from.
    pub source: Source,
}

/// How the session ended, or is ending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachInfo {
    /// The mark stands: the next attach is active at once.
    pub marked: bool,
    /// Why there is no mark.
    pub why_not: Option<String>,
    /// Replicas in the table written.
    pub replicas: u64,
}

/// How a volume is doing. Counters run from the attach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The device or image served.
    pub volume: String,
    /// The file system's UUID; empty where there is no file system.
    pub uuid: String,
    /// The frontend and where it is found, such as `ublk /dev/ublkb0`.
    pub frontend: String,
    /// The policy in force.
    pub policy: String,
    /// The drive: a profile's name, `unknown`, or what is simulated.
    pub drive: String,
    /// How bytes reach the backing: through the page cache or not, by io_uring or threads, how many I/Os at a
    /// time.
    pub data_path: String,
    /// Whether replicas are kept.
    pub liveness: Liveness,
    /// The command that makes an inactive or frozen volume active.
    pub remedy: Option<String>,
    /// Share of the volume that is free and holds no replica, 0 to 1; 0 where nothing is known.
    pub free_share: f64,
    /// Where the share stands.
    pub watermark_state: WatermarkState,
    /// Whether any discard was seen since the attach; without one the space known free only shrinks.
    pub discard_seen: bool,
    /// The hot region, if the policy has one.
    pub hot_region: Option<HotRegion>,
    /// Replicas in the table, in blocks.
    pub replicas: u64,
    /// Bytes the replicas take.
    pub replica_bytes: u64,
    /// Replicas that have not been compared with their original yet.
    pub replicas_unverified: u64,
    /// Reads of clients.
    pub reads: u64,
    /// Of these, served from a replica.
    pub reads_from_replica: u64,
    /// Writes and write-zeroes of clients.
    pub writes: u64,
    /// Discards of clients.
    pub discards: u64,
    /// Flushes of clients.
    pub flushes: u64,
    /// Replicas dropped because their original or their block was written, discarded or claimed.
    pub invalidated: u64,
    /// Replicas dropped to give space back.
    pub reclaimed: u64,
    /// Blocks read that wait to be copied.
    pub copies_waiting: u64,
    /// Blocks copied.
    pub copies_written: u64,
    /// Blocks copied in vain: what they were made from changed meanwhile.
    pub copies_void: u64,
    /// Replica reads whose content had another hash.
    pub hash_mismatches: u64,
    /// Replica reads that failed below and were served from the original.
    pub replica_errors: u64,
    /// Table pages written.
    pub table_pages_written: u64,
    /// Table or mark writes that failed.
    pub table_errors: u64,
    /// Access times.
    pub access_ms: AccessMs,
    /// Energy.
    pub energy_j: EnergyJ,
    /// Seconds since the attach.
    pub uptime_s: f64,
    /// The file a trace is being recorded in.
    pub trace: Option<String>,
    /// How the session ended, in the answer to a detach.
    pub detach: Option<DetachInfo>,
    /// The daemon's process.
    pub pid: u32,
    /// The daemon's version.
    pub version: String,
}

impl Status {
    /// One JSON object with the fields of this type; numbers that are not finite become null.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("plain fields with string keys always serialise")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any status whose numbers are finite.
    pub(crate) fn any_status() -> impl Strategy<Value = Status> {
        let liveness = prop_oneof![
            Just(Liveness::Active),
            ".{0,60}".prop_map(Liveness::Frozen),
            ".{0,60}".prop_map(Liveness::Inactive),
        ];
        let state = prop_oneof![
            Just(WatermarkState::Off),
            Just(WatermarkState::Copying),
            Just(WatermarkState::Suspended),
            Just(WatermarkState::Low),
            Just(WatermarkState::Critical),
        ];
        let millis = || proptest::option::of(0.0..1e5f64);
        let texts = proptest::array::uniform5(".{0,90}");
        let counters = proptest::array::uniform16(any::<u64>());
        let times = (millis(), millis(), millis(), millis(), millis());
        let more = (
            proptest::option::of(".{0,200}"),
            proptest::option::of((any::<u64>(), any::<u64>())),
            proptest::option::of((any::<bool>(), proptest::option::of(".{0,99}"), any::<u64>())),
            any::<bool>(),
            0.0..=1.0f64,
            0.0..1e9f64,
        );
        (liveness, state, texts, counters, times, more).prop_map(|(liveness, state, texts, n, t, more)| {
            let [volume, uuid, frontend, policy, drive] = texts;
            let (remedy, region, detach, discard_seen, free_share, uptime_s) = more;
            Status {
                volume,
                uuid,
                frontend,
                policy,
                drive: drive.clone(),
                data_path: drive.clone(),
                liveness,
                remedy: remedy.clone(),
                free_share,
                watermark_state: state,
                discard_seen,
                hot_region: region.map(|(first_block, last_block)| HotRegion { first_block, last_block }),
                replicas: n[0],
                replica_bytes: n[1],
                replicas_unverified: n[2],
                reads: n[3],
                reads_from_replica: n[4],
                writes: n[5],
                discards: n[6],
                flushes: n[7],
                invalidated: n[8],
                reclaimed: n[9],
                copies_written: n[10],
                copies_waiting: n[10],
                copies_void: n[11],
                hash_mismatches: n[12],
                replica_errors: n[13],
                table_pages_written: n[14],
                table_errors: n[15],
                access_ms: AccessMs {
                    mean: t.0,
                    p99: t.1,
                    seek: t.2,
                    rotation: t.3,
                    transfer: t.4,
                    accesses: n[12],
                    source: Source::Simulated(drive),
                },
                energy_j: EnergyJ { value: t.0, source: Source::None },
                uptime_s,
                trace: remedy,
                detach: detach.map(|(marked, why_not, replicas)| DetachInfo { marked, why_not, replicas }),
                pid: n[0] as u32,
                version: "0.1.0".into(),
            }
        })
    }

    #[test]
    fn the_json_has_the_documented_names_and_forms() {
        let status = Status {
            liveness: Liveness::Inactive("no mark".into()),
            remedy: Some("mkfs2 /dev/sdb1".into()),
            watermark_state: WatermarkState::Suspended,
            hot_region: Some(HotRegion { first_block: 8, last_block: 15 }),
            access_ms: AccessMs {
                mean: Some(5.5),
                source: Source::Modelled("wd800-repaired".into()),
                ..AccessMs::default()
            },
            detach: Some(DetachInfo { marked: false, why_not: Some("x".into()), replicas: 3 }),
            ..Status::default()
        };
        let want = serde_json::json!({
            "volume": "", "uuid": "", "frontend": "", "policy": "", "drive": "", "data_path": "",
            "liveness": "inactive: no mark", "remedy": "mkfs2 /dev/sdb1",
            "free_share": 0.0, "watermark_state": "suspended", "discard_seen": false,
            "hot_region": { "first_block": 8, "last_block": 15 },
            "replicas": 0, "replica_bytes": 0, "replicas_unverified": 0,
            "reads": 0, "reads_from_replica": 0, "writes": 0, "discards": 0, "flushes": 0,
            "invalidated": 0, "reclaimed": 0, "copies_waiting": 0, "copies_written": 0, "copies_void": 0,
            "hash_mismatches": 0, "replica_errors": 0, "table_pages_written": 0, "table_errors": 0,
            "access_ms": { "mean": 5.5, "p99": null, "seek": null, "rotation": null, "transfer": null,
                "accesses": 0, "source": "modelled by profile wd800-repaired" },
            "energy_j": { "value": null, "source": "none" },
            "uptime_s": 0.0, "trace": null,
            "detach": { "marked": false, "why_not": "x", "replicas": 3 },
            "pid": 0, "version": "",
        });
        assert_eq!(status.to_json(), want);
        assert_eq!(serde_json::from_value::<Status>(want).unwrap(), status);
    }

    #[test]
    fn a_number_that_is_none_does_not_break_the_json() {
        let status = Status { free_share: f64::NAN, uptime_s: f64::INFINITY, ..Status::default() };
        assert_eq!(status.to_json()["free_share"], serde_json::Value::Null);
    }

    #[test]
    fn a_liveness_is_one_of_three() {
        assert_eq!(Liveness::try_from("active".to_string()).unwrap(), Liveness::Active);
        assert!(Liveness::try_from("asleep".to_string()).is_err());
        assert!(Liveness::try_from("frozen".to_string()).is_err());
    }
}
