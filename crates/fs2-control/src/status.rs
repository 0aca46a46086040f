//! How a volume is doing, as the daemon tells it.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::sample::Control;

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
    /// The file system that holds the image is short of space: no copies, whatever the share.
    #[serde(rename = "host-short")]
    HostShort,
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

/// The marks that the free share is held against, shares of 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// Copying resumes at or above.
    pub high: f64,
    /// Below it copying stops and the least used replicas go.
    pub low: f64,
    /// Below it whole regions of replicas go.
    pub critical: f64,
}

/// Where on the volume accesses began: counters of equal parts of its bytes, in ascending order of addresses. All four
/// lists are of the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Clients' reads, where the file system put their blocks.
    #[serde(deserialize_with = "counters")]
    pub reads: Vec<u64>,
    /// Clients' reads, at replicas.
    #[serde(deserialize_with = "counters")]
    pub replica_reads: Vec<u64>,
    /// Clients' writes.
    #[serde(deserialize_with = "counters")]
    pub writes: Vec<u64>,
    /// The daemon's own accesses, for its replicas and its table.
    #[serde(deserialize_with = "counters")]
    pub own: Vec<u64>,
}

/// Takes counters as they come. `Vec`'s own way reserves up to 1 MiB for whatever length is claimed.
fn counters<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    struct Counters;
    impl<'de> Visitor<'de> for Counters {
        type Value = Vec<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of counters")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<u64>, A::Error> {
            let mut all = Vec::new();
            while let Some(n) = from.next_element()? {
                all.push(n);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Counters)
}

/// Whether the daemon's own work goes on in short pauses, and the sums it goes by: those of late, not of the whole
/// session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PauseWork {
    /// It goes on; else it waits for long rests.
    pub allowed: bool,
    /// What it cost clients' requests, in ms, less what it saved those that came behind it: below 0 it saved more.
    pub cost_ms: f64,
    /// What it may cost, in ms.
    pub limit_ms: f64,
}

impl PauseWork {
    /// In ms, by how much more it saved than it cost; `None` where it did not.
    pub fn saved_ms(&self) -> Option<f64> {
        (self.cost_ms < 0.0).then_some(-self.cost_ms)
    }
}

/// Whether replicas are read: where reads take longer than a model of plain ext2 beside the volume says, they are not for a
/// while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaGate {
    /// Reads until replicas are read again; 0: they are read.
    pub closed_for: u64,
    /// How often that was so since the attach.
    pub closings: u64,
}

/// Times in seconds, summed since the attach. Differences between two statuses are those of the time between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalS {
    /// Reads of clients that were measured.
    pub reads: u64,
    /// Their dispatch to completion.
    pub read: f64,
    /// Their arrival to dispatch.
    pub read_wait: f64,
    /// Writes of clients that were measured.
    pub writes: u64,
    /// Their dispatch to completion.
    pub write: f64,
    /// Accesses that have parts: [`AccessMs::accesses`].
    pub accesses: u64,
    /// Their seeks.
    pub seek: f64,
    /// Their rotational latency.
    pub rotation: f64,
    /// Their transfer, overhead included.
    pub transfer: f64,
    /// What reading replicas instead of originals saved, as the policy predicted it at each choice.
    pub saved: f64,
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
    /// Mean wait of a read before it was dispatched, measured; not part of the mean.
    pub wait: Option<f64>,
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

/// Requests of clients that were answered with an error of what is below.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Reads.
    pub reads: u64,
    /// Writes, write-zeroes and discards.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// The last of them and its error.
    pub last: Option<String>,
    /// Why every write and flush is answered with an error now, whatever it asks for.
    pub refuses_changes: Option<String>,
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
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Bytes of its file system's block, 4096 where there is none.
    pub block_bytes: u32,
    /// Share of the blocks that are not static metadata: those free without a replica, 0 to 1; 0 where nothing is known.
    pub free_share: f64,
    /// What the free share is held against.
    pub watermarks: Marks,
    /// At most this share of the volume holds replicas, 0 to 1.
    pub space_share: f64,
    /// Where the share stands.
    pub watermark_state: WatermarkState,
    /// Whether any discard was seen since the attach; without one the space known free only shrinks.
    pub discard_seen: bool,
    /// The hot region, if the policy has one.
    pub hot_region: Option<HotRegion>,
    /// The block at which the drive's head is taken to be: where the last access ended.
    pub head_block: u64,
    /// Where the accesses were.
    pub parts: Parts,
    /// Replicas in the table, in blocks.
    pub replicas: u64,
    /// Bytes the replicas take.
    pub replica_bytes: u64,
    /// Replicas that have not been compared with their original yet.
    pub replicas_unverified: u64,
    /// Replicas that were, and were right.
    pub verified: u64,
    /// Replicas that were, and were wrong.
    pub refuted: u64,
    /// Reads of clients.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Of these, served from a replica.
    pub reads_from_replica: u64,
    /// Writes and write-zeroes of clients.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Discards of clients.
    pub discards: u64,
    /// Flushes of clients.
    pub flushes: u64,
    /// What clients got errors for.
    pub failed: Failed,
    /// Requests that wait to be started.
    pub requests_waiting: u64,
    /// I/Os at the device, the daemon's own among them.
    pub ios_in_flight: u64,
    /// Replicas dropped because their original or their block was written, discarded or claimed, or their original was deleted.
    pub invalidated: u64,
    /// Replicas dropped to give space back.
    pub reclaimed: u64,
    /// Blocks read that wait to be copied.
    pub copies_waiting: u64,
    /// Blocks copied.
    pub copies_written: u64,
    /// Blocks copied in vain: what they were made from changed meanwhile, or belongs to no file.
    pub copies_void: u64,
    /// Copies whose write failed below.
    pub copy_errors: u64,
    /// The daemon's own work in short pauses.
    pub pause_work: PauseWork,
    /// Whether replicas are read; open where no drive is modelled beside the volume.
    pub replica_gate: ReplicaGate,
    /// Replica reads whose content had another hash.
    pub hash_mismatches: u64,
    /// Replica reads that failed below; what else holds their blocks was read.
    pub replica_errors: u64,
    /// Reads whose original failed below and that were answered from a replica.
    pub original_errors: u64,
    /// Table pages written.
    pub table_pages_written: u64,
    /// Table or mark writes that failed.
    pub table_errors: u64,
    /// Clients sent away because they took no answers, or left a write half sent.
    pub clients_cut: u64,
    /// Access times.
    pub access_ms: AccessMs,
    /// The sums behind them.
    pub total_s: TotalS,
    /// What reads that have a copy take, from copies and from originals.
    pub control: Control,
    /// Energy.
    pub energy_j: EnergyJ,
    /// Seconds since the attach.
    pub uptime_s: f64,
    /// The file a trace is being recorded in.
    pub trace: Option<String>,
    /// Which trace could not be written, and why: it ends there.
    pub trace_failed: Option<String>,
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
    use crate::sample::Sample;

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
            Just(WatermarkState::HostShort),
        ];
        let millis = || proptest::option::of(0.0..1e5f64);
        let texts = proptest::array::uniform5(".{0,90}");
        let counters = proptest::array::uniform16(any::<u64>());
        let parts = proptest::collection::vec(any::<u64>(), 0..70);
        let times = (millis(), millis(), millis(), millis(), millis());
        let more = (
            proptest::option::of(".{0,200}"),
            proptest::option::of((any::<u64>(), any::<u64>())),
            proptest::option::of((any::<bool>(), proptest::option::of(".{0,99}"), any::<u64>())),
            any::<bool>(),
            0.0..=1.0f64,
            0.0..1e9f64,
        );
        let numbers = (counters, parts);
        (liveness, state, texts, numbers, times, more).prop_map(
            |(liveness, state, texts, numbers, t, more)| {
                let (n, parts) = numbers;
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
                    volume_bytes: n[0],
                    block_bytes: n[1] as u32,
                    free_share,
                    watermarks: Marks { high: free_share, low: uptime_s, critical: 0.0 },
                    space_share: free_share,
                    watermark_state: state,
                    discard_seen,
                    head_block: n[2],
                    parts: Parts {
                        reads: parts.clone(),
                        replica_reads: vec![],
                        writes: parts,
                        own: vec![n[3]],
                    },
                    hot_region: region.map(|(first_block, last_block)| HotRegion { first_block, last_block }),
                    replicas: n[0],
                    replica_bytes: n[1],
                    replicas_unverified: n[2],
                    verified: n[3],
                    refuted: n[4],
                    reads: n[3],
                    read_bytes: n[4],
                    reads_from_replica: n[4],
                    writes: n[5],
                    write_bytes: n[6],
                    requests_waiting: n[7],
                    ios_in_flight: n[8],
                    discards: n[6],
                    flushes: n[7],
                    failed: Failed {
                        reads: n[0],
                        writes: n[1],
                        flushes: n[2],
                        last: remedy.clone(),
                        refuses_changes: remedy.clone(),
                    },
                    invalidated: n[8],
                    reclaimed: n[9],
                    copies_written: n[10],
                    copies_waiting: n[10],
                    copies_void: n[11],
                    copy_errors: n[12],
                    pause_work: PauseWork { allowed: discard_seen, cost_ms: free_share, limit_ms: uptime_s },
                    replica_gate: ReplicaGate { closed_for: n[13], closings: n[14] },
                    hash_mismatches: n[12],
                    replica_errors: n[13],
                    original_errors: n[15],
                    table_pages_written: n[14],
                    table_errors: n[15],
                    clients_cut: n[9],
                    access_ms: AccessMs {
                        mean: t.0,
                        p99: t.1,
                        wait: t.0,
                        seek: t.2,
                        rotation: t.3,
                        transfer: t.4,
                        accesses: n[12],
                        source: Source::Simulated(drive),
                    },
                    total_s: TotalS { reads: n[3], read: uptime_s, seek: free_share, ..TotalS::default() },
                    control: Control {
                        every: n[1] as u32,
                        copies: Sample { reads: n[2], mean_ms: t.0, error_ms: t.1 },
                        originals: Sample { reads: n[3], mean_ms: t.2, error_ms: t.3 },
                    },
                    energy_j: EnergyJ { value: t.0, source: Source::None },
                    uptime_s,
                    trace_failed: remedy.clone(),
                    trace: remedy,
                    detach: detach.map(|(marked, why_not, replicas)| DetachInfo {
                        marked,
                        why_not,
                        replicas,
                    }),
                    pid: n[0] as u32,
                    version: "0.1.0".into(),
                }
            },
        )
    }

    #[test]
    fn the_json_has_the_documented_names_and_forms() {
        let status = Status {
            liveness: Liveness::Inactive("no mark".into()),
            remedy: Some("mkfs2 /dev/sdb1".into()),
            watermark_state: WatermarkState::Suspended,
            hot_region: Some(HotRegion { first_block: 8, last_block: 15 }),
            parts: Parts { reads: vec![1, 2], ..Parts::default() },
            access_ms: AccessMs {
                mean: Some(5.5),
                source: Source::Modelled("wd800-repaired".into()),
                ..AccessMs::default()
            },
            detach: Some(DetachInfo { marked: false, why_not: Some("x".into()), replicas: 3 }),
            ..Status::default()
        };
        let want = r#"{
            "volume": "", "uuid": "", "frontend": "", "policy": "", "drive": "", "data_path": "",
            "liveness": "inactive: no mark", "remedy": "mkfs2 /dev/sdb1",
            "volume_bytes": 0, "block_bytes": 0,
            "free_share": 0.0, "watermarks": { "high": 0.0, "low": 0.0, "critical": 0.0 }, "space_share": 0.0,
            "watermark_state": "suspended", "discard_seen": false,
            "hot_region": { "first_block": 8, "last_block": 15 }, "head_block": 0,
            "parts": { "reads": [1, 2], "replica_reads": [], "writes": [], "own": [] },
            "replicas": 0, "replica_bytes": 0, "replicas_unverified": 0, "verified": 0, "refuted": 0,
            "reads": 0, "read_bytes": 0, "reads_from_replica": 0, "writes": 0, "write_bytes": 0,
            "discards": 0, "flushes": 0,
            "failed": { "reads": 0, "writes": 0, "flushes": 0, "last": null, "refuses_changes": null },
            "requests_waiting": 0, "ios_in_flight": 0,
            "invalidated": 0, "reclaimed": 0, "copies_waiting": 0, "copies_written": 0, "copies_void": 0,
            "copy_errors": 0, "pause_work": { "allowed": false, "cost_ms": 0.0, "limit_ms": 0.0 },
            "replica_gate": { "closed_for": 0, "closings": 0 },
            "hash_mismatches": 0, "replica_errors": 0, "original_errors": 0, "table_pages_written": 0, "table_errors": 0, "clients_cut": 0,
            "access_ms": { "mean": 5.5, "p99": null, "wait": null, "seek": null, "rotation": null, "transfer": null,
                "accesses": 0, "source": "modelled by profile wd800-repaired" },
            "total_s": { "reads": 0, "read": 0.0, "read_wait": 0.0, "writes": 0, "write": 0.0, "accesses": 0,
                "seek": 0.0, "rotation": 0.0, "transfer": 0.0, "saved": 0.0 },
            "control": { "every": 0, "copies": { "reads": 0, "mean_ms": null, "error_ms": null },
                "originals": { "reads": 0, "mean_ms": null, "error_ms": null } },
            "energy_j": { "value": null, "source": "none" },
            "uptime_s": 0.0, "trace": null, "trace_failed": null,
            "detach": { "marked": false, "why_not": "x", "replicas": 3 },
            "pid": 0, "version": ""
        }"#;
        let want: serde_json::Value = serde_json::from_str(want).unwrap();
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
